#include "config.h"

#include "numbers.h"
#include "pack_job.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

enum {
    PIECE_BYTES = 1 << 20, /* of input: within a core's second-level cache */
    SLAB_BYTES = 4 << 20,
    SEARCHED_BYTES = 64 << 20, /* of a piece that is in memory while its scales are searched */
    PIECE_COLUMNS = 4096,      /* at the most, where rows lie side by side in the file */
    NARROW_COLUMNS = 512,      /* below which reading them piece by piece costs more than idle threads */
    TURNED_BYTES = 32 << 20, /* that are read at once where columns do: runs of rows that are worth a call */
    PIECES_A_THREAD = 4,
    GROUP_BYTES = 24,       /* of buffers, for a group and column */
    ALL_BUFFERS = 512 << 20 /* of all threads: memory stays below 1 GiB */
};

/* ---- memory ---- */

static void *buffer(uint64_t bytes, bool *good) {
    void *made = bytes < ALL_BUFFERS ? aligned_alloc(64, tvm_round_up(bytes + 64, 64)) : NULL;
    *good = *good && made;
    return made;
}

typedef struct buffer_sizes {
    uint64_t slab, raw, codes, scratch, out, groups, search;
} buffer_sizes;

static buffer_sizes sizes_of(const pack_job *job) {
    uint64_t slab = job->slab_rows * job->piece_columns,
             rows = job->laid_out ? job->tile_rows : PACK_PLAIN_ROWS;
    uint64_t across = (job->piece_columns + job->tile_columns - 1) / job->tile_columns;
    buffer_sizes sizes = {.slab = slab * job->item};
    if (job->options->given == PACK_BIT_STRINGS) sizes.raw = slab * job->item;
    if (job->options->transpose) sizes.raw = job->raw_rows * job->piece_columns * job->item;
    sizes.codes = job->laid_out ? (uint64_t)job->tile_rows * job->tile_columns : rows * job->piece_columns;
    sizes.scratch = job->laid_out ? pack_layout_scratch(&job->layout) : 0;
    sizes.out =
        job->laid_out ? across * job->layout.bytes : rows * job->piece_columns * job->type.bits / 8 + 8;
    sizes.search = job->options->search ? tvm_pack_search_bytes(job->group) : 0;
    sizes.groups = ((job->piece_rows + job->group - 1) / job->group + 1) * job->piece_columns;
    return sizes;
}

static bool make_buffers(pack_buffers *buffers, const buffer_sizes *sizes) {
    bool good = true;
    buffers->slab = buffer(sizes->slab, &good);
    buffers->raw = buffer(sizes->raw, &good);
    buffers->codes = buffer(sizes->codes, &good);
    buffers->scratch = buffer(sizes->scratch, &good);
    buffers->out = buffer(sizes->out, &good);
    buffers->greatest = buffer(sizes->groups * sizeof *buffers->greatest, &good);
    buffers->least = buffer(sizes->groups * sizeof *buffers->least, &good);
    buffers->by.divisors = buffer(sizes->groups * sizeof(float), &good);
    buffers->by.reciprocals = buffer(sizes->groups * sizeof(float), &good);
    buffers->by.offsets = buffer(sizes->groups * sizeof(float), &good);
    buffers->scales = buffer(sizes->groups * sizeof *buffers->scales, &good);
    buffers->zeros = buffer(sizes->groups * sizeof *buffers->zeros, &good);
    buffers->search = buffer(sizes->search, &good);
    return good;
}

static void free_buffers(pack_buffers *buffers) {
    free(buffers->slab);
    free(buffers->raw);
    free(buffers->codes);
    free(buffers->scratch);
    free(buffers->out);
    free(buffers->greatest);
    free(buffers->least);
    free(buffers->by.divisors);
    free(buffers->by.reciprocals);
    free(buffers->by.offsets);
    free(buffers->scales);
    free(buffers->zeros);
    free(buffers->search);
}

/* As many threads as have work and memory. */
static tvm_status make_all_buffers(pack_job *job, tvm_diags *diags) {
    buffer_sizes sizes = sizes_of(job);
    uint64_t each = sizes.slab + sizes.raw + sizes.codes + sizes.scratch + sizes.out + sizes.search +
                    sizes.groups * GROUP_BYTES;
    uint64_t threads = tvm_work_threads(job->options->threads);
    if (threads > job->bands) threads = job->bands ? job->bands : 1;
    if (threads > ALL_BUFFERS / (each + 1)) threads = ALL_BUFFERS / (each + 1);
    if (!threads) threads = 1;
    job->buffers = calloc(threads, sizeof *job->buffers);
    if (!job->buffers) return tvm_diag_no_memory(diags);
    job->threads = (unsigned)threads;
    for (unsigned i = 0; i < job->threads; i++)
        if (!make_buffers(&job->buffers[i], &sizes)) return tvm_diag_no_memory(diags);
    return TVM_OK;
}

/* ---- pieces ---- */

static uint64_t common_multiple(uint64_t a, uint64_t b) {
    uint64_t x = a, y = b;
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Whole tiles of columns, about as many as make a piece of PIECE_BYTES. */
static uint64_t columns_of_piece(const pack_job *job, uint64_t most) {
    uint64_t groups = (job->piece_rows + job->group - 1) / job->group;
    uint64_t column = job->piece_rows * job->item + groups * GROUP_BYTES;
    uint64_t columns = PIECE_BYTES / column;
    if (columns < NARROW_COLUMNS) columns = NARROW_COLUMNS;
    if (columns > most) columns = most;
    columns = columns / job->tile_columns * job->tile_columns;
    return columns ? columns : job->tile_columns;
}

/* A band of rows that is read at once and turned piece by piece: several pieces, or of a tall one several
 * slabs. All threads' bands take half of the memory at the most. */
static void cut_bands(pack_job *job, uint64_t threads) {
    uint64_t share = ALL_BUFFERS / 2 / threads, most = share < TURNED_BYTES ? share : TURNED_BYTES;
    uint64_t rows = most / (job->piece_columns * job->item);
    uint64_t step = rows < job->piece_rows ? job->slab_rows : job->piece_rows;
    uint64_t steps = rows / step ? rows / step : 1, all = (job->k + step - 1) / step;
    if (steps > all) steps = all;
    while (step == job->piece_rows && steps > 1 &&
           (job->k + steps * step - 1) / (steps * step) * job->pieces_across < threads * PIECES_A_THREAD)
        steps /= 2;
    job->raw_rows = steps * step;
    if (step == job->piece_rows) job->band_rows = job->raw_rows;
}

static void cut_pieces(pack_job *job) {
    uint64_t threads = tvm_work_threads(job->options->threads);
    uint64_t unit = common_multiple(job->group, job->tile_rows);
    if (unit > job->k) unit = tvm_round_up(job->k, job->tile_rows);
    job->piece_rows = unit;
    if (job->piece_rows > job->k) job->piece_rows = tvm_round_up(job->k, unit);
    /* Columns reach far where a piece has all rows anyway: its slabs are read twice, a row at a time. */
    job->piece_columns = columns_of_piece(job, PIECE_COLUMNS);
    uint64_t down = (job->k + job->piece_rows - 1) / job->piece_rows;
    while (down * ((job->n + job->piece_columns - 1) / job->piece_columns) < threads * PIECES_A_THREAD &&
           job->piece_columns / 2 >= job->tile_columns && job->piece_columns / 2 >= NARROW_COLUMNS)
        job->piece_columns = job->piece_columns / 2 / job->tile_columns * job->tile_columns;
    while (job->options->search && job->piece_rows * job->piece_columns * job->item > SEARCHED_BYTES &&
           job->piece_columns / 2 >= job->tile_columns)
        job->piece_columns = job->piece_columns / 2 / job->tile_columns * job->tile_columns;
    job->pieces_across = (job->n + job->piece_columns - 1) / job->piece_columns;
    uint64_t step = job->laid_out ? job->tile_rows : 1;
    job->slab_rows = SLAB_BYTES / (job->piece_columns * job->item) / step * step;
    if (!job->slab_rows) job->slab_rows = step;
    if (job->slab_rows > job->piece_rows || job->options->search)
        job->slab_rows = tvm_round_up(job->piece_rows, step);
    job->band_rows = job->piece_rows;
    if (job->options->transpose) cut_bands(job, threads);
    job->bands = (job->k + job->band_rows - 1) / job->band_rows * job->pieces_across;
}

tvm_status pack_job_plan(pack_job *job, tvm_diags *diags) {
    job->tile_rows = job->laid_out ? job->layout.rows : 1;
    job->tile_columns = job->laid_out ? job->layout.columns : 8; /* whole bytes */
    job->coder = tvm_pack_coder_make(job->type);
    if (!job->pieces_across) cut_pieces(job);
    if (job->options->search && job->slab_rows * job->piece_columns * job->item > ALL_BUFFERS / 2)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "--scales absmax reads groups piece by piece",
                            "groups of %" PRIu64 " rows are too long for a search of their scales",
                            job->group);
    return make_all_buffers(job, diags);
}

void pack_job_free(pack_job *job) {
    for (unsigned i = 0; job->buffers && i < job->threads; i++) free_buffers(&job->buffers[i]);
    free(job->buffers);
    free(job->importance);
    pack_array_close(&job->input);
    pack_array_close(&job->given_scales);
    pack_array_close(&job->given_zeros);
    pack_layout_free(&job->layout);
    tvm_output_close(&job->output);
}

/* ---- what is asked for ---- */

static tvm_status argument_error(tvm_diags *diags, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static tvm_status argument_error(tvm_diags *diags, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "%s", text);
}

tvm_status pack_job_layout(pack_job *job, tvm_diags *diags) {
    const pack_options *options = job->options;
    if (!options->layout) return TVM_OK;
    tvm_status status =
        pack_layout_open(options->layout, options->kernel, options->threads, &job->layout, diags);
    if (status) return status;
    job->laid_out = true;
    if (job->type.kind == TVM_KIND_NONE) job->type = job->layout.type;
    if (tvm_dtype_same(job->type, job->layout.type)) return TVM_OK;
    return argument_error(diags, "the type is %s, but the layout of %s is one of %s",
                          TVM_DTYPE_TEXT(job->type), options->layout, TVM_DTYPE_TEXT(job->layout.type));
}

static tvm_status check_type(pack_job *job, tvm_diags *diags) {
    job->type = job->options->type;
    tvm_status status = pack_job_layout(job, diags);
    if (status) return status;
    if (job->type.kind == TVM_KIND_NONE)
        return argument_error(diags, "neither a type nor a layout is given: --type u4, for instance");
    if (job->type.bits > 8 || job->type.kind == TVM_KIND_BOOL)
        return argument_error(diags,
                              "%s is no type of weights: u1 to u8, i2 to i8 and floats of 3 to 8 bits are",
                              TVM_DTYPE_TEXT(job->type));
    if (job->options->own_zeros && job->type.kind != TVM_KIND_UINT)
        return argument_error(diags, "a zero point for each group goes with unsigned types, not with %s",
                              TVM_DTYPE_TEXT(job->type));
    return TVM_OK;
}

static tvm_status wrong_input(const pack_job *job, const char *expected, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    tvm_place place = {.file = job->input.path};
    return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL, "%s%.80s%s is %s; %s is expected",
                        job->input.name ? "tensor '" : "the array", job->input.name ? job->input.name : "",
                        job->input.name ? "'" : "", pack_array_text(&job->input, text), expected);
}

static tvm_status check_input(pack_job *job, tvm_diags *diags) {
    const pack_options *options = job->options;
    const pack_array *input = &job->input;
    if (input->rank != 2) return wrong_input(job, "a matrix", diags);
    if (options->given != PACK_WEIGHTS) {
        if (!tvm_dtype_same(input->type, TVM_U(8)) && !tvm_dtype_same(input->type, TVM_I(8)))
            return wrong_input(job, "U8 or I8, a code to an element", diags);
        job->item = 1;
    } else if (tvm_dtype_same(input->type, TVM_F32)) {
        job->source = PACK_F32;
        job->item = 4;
    } else if (tvm_dtype_same(input->type, TVM_F16) || tvm_dtype_same(input->type, TVM_BF16)) {
        job->source = tvm_dtype_same(input->type, TVM_F16) ? PACK_F16 : PACK_BF16;
        job->item = 2;
    } else {
        return wrong_input(job, "F32, F16 or BF16", diags);
    }
    job->k = input->shape[options->transpose];
    job->n = input->shape[!options->transpose];
    if (options->given == PACK_BIT_STRINGS) {
        if (options->transpose) return argument_error(diags, "bit strings cannot be transposed");
        if (job->n > INT64_MAX / 8 || job->n * 8 % job->type.bits)
            return wrong_input(job, "rows of a whole number of codes", diags);
        job->n = job->n * 8 / job->type.bits;
    }
    return TVM_OK;
}

/* ---- scales given beside codes ---- */

/* FILE or FILE:NAME. */
static tvm_status open_at(const char *where, pack_array *array, tvm_diags *diags) {
    char *path = strdup(where);
    if (!path) return tvm_diag_no_memory(diags);
    char *colon = strrchr(path, ':');
    if (colon) *colon = '\0';
    tvm_status status = pack_array_open(path, colon ? colon + 1 : NULL, array, diags);
    array->path = where;
    free(path);
    return status;
}

static tvm_status open_beside(const char *where, const char *what, pack_array *array, tvm_diags *diags) {
    tvm_status status = open_at(where, array, diags);
    if (status) return status;
    tvm_place place = {.file = where};
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (array->rank == 2 && (tvm_dtype_same(array->type, TVM_F16) || tvm_dtype_same(array->type, TVM_BF16)))
        return TVM_OK;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL,
                        "the %s are %s; a matrix of F16 or BF16 is expected", what,
                        pack_array_text(array, text));
}

static tvm_status check_beside(const pack_job *job, const char *what, const pack_array *array,
                               tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    tvm_place place = {.file = array->path};
    if (array->shape[0] == job->k / job->group && array->shape[1] == job->n) return TVM_OK;
    return tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL,
                        "the %s are %s, but %" PRIu64 " by %" PRIu64 " weights in groups of %" PRIu64
                        " have %" PRIu64 " by %" PRIu64,
                        what, pack_array_text(array, text), job->k, job->n, job->group, job->k / job->group,
                        job->n);
}

static tvm_status open_scales(pack_job *job, tvm_diags *diags) {
    const pack_options *options = job->options;
    tvm_status status = TVM_OK;
    job->has_scales = options->given == PACK_WEIGHTS || options->scales;
    job->has_zeros = options->given == PACK_WEIGHTS ? options->own_zeros : options->zeros != NULL;
    if (options->given == PACK_WEIGHTS) return TVM_OK;
    if (job->has_zeros && !job->has_scales) return argument_error(diags, "zeros are given without scales");
    if (job->has_zeros && job->type.kind != TVM_KIND_UINT)
        return argument_error(diags, "zeros go with codes of unsigned types");
    if (job->has_scales) status = open_beside(options->scales, "scales", &job->given_scales, diags);
    if (!status && job->has_zeros) status = open_beside(options->zeros, "zeros", &job->given_zeros, diags);
    return status;
}

/* After the input is known. */
static tvm_status check_group(pack_job *job, tvm_diags *diags) {
    job->group = job->options->group ? job->options->group : job->k;
    if (job->has_scales && job->given_scales.path && !job->options->group && job->given_scales.shape[0] &&
        job->k % job->given_scales.shape[0] == 0)
        job->group = job->k / job->given_scales.shape[0];
    if (!job->group) job->group = 1;
    if (job->k % job->group)
        return argument_error(diags, "a group of %" PRIu64 " rows does not divide k, which is %" PRIu64,
                              job->group, job->k);
    tvm_status status = TVM_OK;
    if (job->given_scales.path) status = check_beside(job, "scales", &job->given_scales, diags);
    if (!status && job->given_zeros.path) status = check_beside(job, "zeros", &job->given_zeros, diags);
    return status;
}

/* The numbers by which the errors of the k rows count. */
static tvm_status read_importance(pack_job *job, tvm_diags *diags) {
    const pack_options *options = job->options;
    pack_array array = {.descriptor = -1};
    if (!options->activations || !options->search) return TVM_OK;
    tvm_status status = open_at(options->activations, &array, diags);
    tvm_place place = {.file = options->activations};
    uint64_t count = 1;
    char text[TVM_SAFETENSORS_TEXT_MAX];
    for (unsigned d = 0; d < array.rank; d++) count *= array.shape[d] && count <= job->k ? array.shape[d] : 0;
    bool wide = tvm_dtype_same(array.type, TVM_F32);
    if (!status && (count != job->k ||
                    (!wide && !tvm_dtype_same(array.type, TVM_F16) && !tvm_dtype_same(array.type, TVM_BF16))))
        status = tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL,
                              "the activations are %s; %" PRIu64
                              " numbers of F32, F16 or BF16 are expected, one a row",
                              pack_array_text(&array, text), job->k);
    size_t bytes = (size_t)(job->k * array.type.bits / 8);
    uint8_t *raw = malloc(bytes + 1);
    job->importance = malloc((job->k + 1) * sizeof *job->importance);
    if (!status && (!raw || !job->importance)) status = tvm_diag_no_memory(diags);
    if (!status)
        status = tvm_read_at(array.descriptor, options->activations, raw, bytes, array.offset, diags);
    for (uint64_t i = 0; !status && i < job->k; i++) {
        job->importance[i] = (float)tvm_decode(array.type, tvm_container_get(array.type, raw, i));
        if (!(job->importance[i] >= 0) || isinf(job->importance[i]))
            status = tvm_diag_add(diags, TVM_FORMAT, &place,
                                  "squares of the inputs, summed or averaged, are expected",
                                  "number %" PRIu64 " of the activations is not finite, or negative", i);
    }
    free(raw);
    pack_array_close(&array);
    return status;
}

static tvm_status copy_array(const pack_job *job, const pack_array *from, uint64_t at, tvm_diags *diags) {
    enum { CHUNK = 1 << 16 };
    uint8_t chunk[CHUNK];
    uint64_t bytes = from->shape[0] * from->shape[1] * 2;
    tvm_status status = TVM_OK;
    for (uint64_t done = 0; !status && done < bytes; done += CHUNK) {
        size_t size = bytes - done < CHUNK ? bytes - done : CHUNK;
        status = tvm_read_at(from->descriptor, from->path, chunk, size, from->offset + done, diags);
        if (!status) status = tvm_output_write(&job->output, chunk, size, at + done, diags);
    }
    return status;
}

/* ---- the output's header ---- */

typedef struct description {
    char shape[64], columns[32], group[32], tile[32], value[64];
    char type[TVM_DTYPE_NAME_MAX];
    char *metadata[32];
    tvm_safetensor items[3];
    tvm_safetensors tensors;
} description;

static char scales_name[] = "scales", zeros_name[] = "zeros", packed_name[] = "packed";

/* Text that a structure holds but does not change. */
static char *text_of(const char *text) {
    union {
        const char *in;
        char *out;
    } both = {.in = text};
    return both.out;
}

static void describe(description *d, const char *key, const char *value) {
    d->metadata[2 * d->tensors.metadata_count] = text_of(key);
    d->metadata[2 * d->tensors.metadata_count++ + 1] = text_of(value);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_plain_text(const char *text) {
    for (; *text; text++)
        if (*text < ' ' || *text > '~') return false;
    return true;
}

static void describe_values(description *d, const pack_job *job) {
    const char *scales = job->has_scales ? "scales" : "1";
    if (job->has_zeros)
        snprintf(d->value, sizeof d->value, "(code - zeros) * %s", scales);
    else if (job->type.kind == TVM_KIND_UINT)
        snprintf(d->value, sizeof d->value, "(code - %u) * %s", 1u << (job->type.bits - 1), scales);
    else
        snprintf(d->value, sizeof d->value, "code * %s", scales);
    describe(d, "value", d->value);
    describe(d, "zero", job->has_zeros ? "per-group" : job->type.kind == TVM_KIND_UINT ? "mid" : "none");
}

static void describe_layout(description *d, const pack_job *job) {
    if (!job->laid_out) {
        describe(d, "packing", "rows");
        describe(d, "layout", "plain");
        return;
    }
    const char *program = base_name(job->options->layout);
    describe(d, "packing", "program");
    describe(d, "layout", job->layout.hash);
    describe(d, "kernel", tvm_string(job->layout.program, job->layout.kernel->name));
    if (is_plain_text(program)) describe(d, "program", program);
    snprintf(d->tile, sizeof d->tile, "%u,%u", job->layout.rows, job->layout.columns);
    describe(d, "tile", d->tile);
}

static void add_tensor(description *d, char *name, tvm_dtype type, unsigned rank, const uint64_t *shape) {
    tvm_safetensor *tensor = &d->items[d->tensors.count++];
    *tensor = (tvm_safetensor){.name = name, .type = type, .rank = rank};
    memcpy(tensor->shape, shape, rank * sizeof *shape);
}

/* The shape of `packed`. */
static tvm_status packed_shape(const pack_job *job, uint64_t shape[TVM_MAX_RANK], unsigned *rank,
                               tvm_diags *diags) {
    int64_t extents[TVM_MAX_RANK];
    uint64_t bytes;
    if (!job->laid_out) {
        *rank = 2;
        shape[0] = job->k;
        shape[1] = job->columns * job->type.bits / 8;
        return TVM_OK;
    }
    if (job->k > INT64_MAX || job->n > INT64_MAX) return argument_error(diags, "the matrix is too large");
    tvm_status status =
        pack_layout_shape(&job->layout, (int64_t)job->k, (int64_t)job->n, extents, rank, &bytes, diags);
    for (unsigned d = 0; !status && d < *rank; d++) shape[d] = (uint64_t)extents[d];
    return status;
}

static tvm_status make_header(pack_job *job, description *d, uint8_t **header, size_t *size,
                              tvm_diags *diags) {
    uint64_t packed[TVM_MAX_RANK], scales[2] = {job->k / job->group, job->n};
    unsigned rank;
    tvm_status status = packed_shape(job, packed, &rank, diags);
    if (status) return status;
    tvm_dtype scale_type = job->given_scales.path ? job->given_scales.type : job->options->scale_type;
    tvm_dtype zero_type = job->given_zeros.path ? job->given_zeros.type : scale_type;
    /* those of two bytes first, so that they lie at even places */
    if (job->has_scales) add_tensor(d, scales_name, scale_type, 2, scales);
    if (job->has_zeros) add_tensor(d, zeros_name, zero_type, 2, scales);
    add_tensor(d, packed_name, TVM_U(8), rank, packed);
    snprintf(d->shape, sizeof d->shape, "%" PRIu64 ",%" PRIu64, job->k, job->n);
    snprintf(d->group, sizeof d->group, "%" PRIu64, job->group);
    d->tensors.items = d->items;
    d->tensors.metadata = d->metadata;
    describe(d, "format", "tilusvm-weights");
    describe(d, "version", "1");
    describe(d, "type", tvm_dtype_name(job->type, d->type));
    describe(d, "shape", d->shape);
    snprintf(d->columns, sizeof d->columns, "%" PRIu64, job->columns);
    if (!job->laid_out && job->columns != job->n) describe(d, "columns", d->columns);
    if (job->has_scales) describe(d, "group", d->group);
    if (job->has_scales) describe(d, "scale", tvm_dtype_same(scale_type, TVM_BF16) ? "bf16" : "f16");
    describe_values(d, job);
    describe_layout(d, job);
    describe(d, "generator", "tvm-pack " PACKAGE_VERSION);
    return tvm_safetensors_header(&d->tensors, header, size, diags);
}

static tvm_status start_output(pack_job *job, tvm_diags *diags) {
    description d = {.tensors = {0}};
    uint8_t *header;
    size_t size;
    tvm_status status = make_header(job, &d, &header, &size, diags);
    if (status) return status;
    for (size_t i = 0; i < d.tensors.count; i++)
        *(d.items[i].name == scales_name  ? &job->scales_at
          : d.items[i].name == zeros_name ? &job->zeros_at
                                          : &job->packed_at) = d.items[i].offset;
    const tvm_safetensor *last = &d.items[d.tensors.count - 1];
    status = tvm_output_open(job->options->output, last->offset + last->bytes, &job->output, diags);
    if (!status) status = tvm_output_write(&job->output, header, size, 0, diags);
    free(header);
    return status;
}

/* ---- all of it ---- */

/* Scales that are too small for their type, as a warning: their weights are gone. */
static void warn_of_underflows(const pack_job *job) {
    const pack_buffers *first = NULL;
    uint64_t count = 0;
    for (unsigned t = 0; t < job->threads; t++) {
        const pack_buffers *b = &job->buffers[t];
        count += b->underflows;
        if (b->underflows && (!first || pack_is_first(first, b->first_group, b->first_column))) first = b;
    }
    if (!first) return;
    tvm_place place = {.file = job->input.path};
    bool bf16 = job->scaler.bf16;
    tvm_diag_add(
        job->options->warnings, TVM_ARGUMENT, &place,
        bf16 ? "multiply the weights by a power of two" : "--scale bf16 has a wider range",
        "%" PRIu64 " of %" PRIu64
        " scales underflow to 0 in %s, so that their weights become 0: the first is that of group %" PRIu64
        ", column %" PRIu64,
        count, job->k / job->group * job->n, bf16 ? "bf16" : "f16", first->first_group, first->first_column);
}

static tvm_status run(pack_job *job, tvm_diags *diags) {
    const pack_options *options = job->options;
    tvm_status status = check_type(job, diags);
    if (!status) status = pack_array_open(options->input, options->tensor, &job->input, diags);
    if (!status) status = check_input(job, diags);
    if (!status) status = open_scales(job, diags);
    if (!status) status = check_group(job, diags);
    if (!status) status = read_importance(job, diags);
    if (!status) job->columns = pack_row_columns(job->type, job->n);
    if (!status) status = start_output(job, diags);
    if (status) return status;
    job->scaler =
        tvm_pack_scaler_make(job->type, job->has_zeros, tvm_dtype_same(options->scale_type, TVM_BF16));
    if (job->k && job->n) {
        status = pack_job_plan(job, diags);
        if (!status)
            status = tvm_work(job->bands, job->threads, pack_quantize, job, &options->progress, diags);
        if (!status) warn_of_underflows(job);
    }
    if (!status && job->given_scales.path)
        status = copy_array(job, &job->given_scales, job->scales_at, diags);
    if (!status && job->given_zeros.path) status = copy_array(job, &job->given_zeros, job->zeros_at, diags);
    return status ? status : tvm_output_commit(&job->output, diags);
}

tvm_status tvm_pack(const pack_options *options, tvm_diags *diags) {
    pack_job job = {.options = options,
                    .input = {.descriptor = -1},
                    .given_scales = {.descriptor = -1},
                    .given_zeros = {.descriptor = -1},
                    .output = {.descriptor = -1}};
    tvm_status status = run(&job, diags);
    pack_job_free(&job);
    return status;
}
