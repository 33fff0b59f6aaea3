#include "pack_job.h"
#include "npy.h"
#include "numbers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 4096 };

typedef struct unpacker {
    pack_job job;
    float values[256]; /* of the codes */
    float mid;
    tvm_dtype scale_type, zero_type, to;
    uint64_t to_at; /* where the output's data begins */
} unpacker;

/* ---- pieces ---- */

typedef struct piece {
    unpacker *unpacker;
    pack_buffers *buffers;
    uint64_t row, column, rows, columns;
    tvm_diags *diags;
} piece;

static float float_of(tvm_dtype type, uint16_t code) {
    return tvm_dtype_same(type, TVM_BF16) ? tvm_bf16_to_f32(code) : tvm_f16_to_f32(code);
}

/* The piece's rows of scales or zeros as floats; `filler` where the file has none. */
static tvm_status read_floats(const piece *p, bool there, uint64_t at, tvm_dtype type, float filler,
                              float *to) {
    const pack_job *job = &p->unpacker->job;
    uint64_t first = p->row / job->group, last = (p->row + p->rows - 1) / job->group;
    for (uint64_t g = first; g <= last; g++, to += p->columns) {
        tvm_status status = there ? tvm_read_at(job->input.descriptor, job->input.path, p->buffers->scales,
                                                p->columns * 2, at + (g * job->n + p->column) * 2, p->diags)
                                  : TVM_OK;
        if (status) return status;
        for (uint64_t j = 0; j < p->columns; j++)
            to[j] = there ? float_of(type, p->buffers->scales[j]) : filler;
    }
    return TVM_OK;
}

/* Codes of the rows of one tile, or of all of the piece's: width is the distance of rows in `codes`. */
static void put_values(const piece *p, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                       const uint8_t *codes, size_t width) {
    const unpacker *u = p->unpacker;
    for (uint64_t i = row; i < row + rows; i++) {
        size_t at = (size_t)((i / u->job.group - p->row / u->job.group) * p->columns + column);
        const float *scales = p->buffers->by.divisors + at, *zeros = p->buffers->by.offsets + at;
        const uint8_t *from = codes + (i - row) * width;
        size_t place = (size_t)((i - p->row) * p->columns + column);
        if (u->job.item == 4) {
            tvm_pack_values(u->values, from, zeros, scales, columns, (float *)p->buffers->slab + place);
            continue;
        }
        float values[COLUMNS];
        pack_float half = tvm_dtype_same(u->to, TVM_F16) ? PACK_F16 : PACK_BF16;
        for (size_t j = 0; j < columns; j += COLUMNS) {
            size_t count = columns - j < COLUMNS ? columns - j : COLUMNS;
            tvm_pack_values(u->values, from + j, zeros + j, scales + j, count, values);
            tvm_pack_to_half(half, values, count, (uint16_t *)p->buffers->slab + place + j);
        }
    }
}

static tvm_status unpack_plain(const piece *p) {
    const pack_job *job = &p->unpacker->job;
    unsigned bits = job->type.bits;
    for (uint64_t i = 0; i < p->rows; i++) {
        tvm_status status =
            tvm_read_at(job->input.descriptor, job->input.path, p->buffers->out, (p->columns * bits + 7) / 8,
                        job->packed_at + ((p->row + i) * job->columns + p->column) * bits / 8, p->diags);
        if (status) return status;
        tvm_bits_unpack(job->type, p->buffers->out, 0, p->columns, p->buffers->codes);
        put_values(p, p->row + i, 1, 0, p->columns, p->buffers->codes, p->columns);
    }
    return TVM_OK;
}

static tvm_status unpack_tiles(const piece *p) {
    const pack_job *job = &p->unpacker->job;
    const pack_layout *layout = &job->layout;
    for (uint64_t row = p->row; row < p->row + p->rows; row += layout->rows)
        for (uint64_t column = 0; column < p->columns; column += layout->columns) {
            uint64_t down = p->row + p->rows - row, across = p->columns - column;
            uint64_t place = pack_layout_place(layout, job->k, job->n, row / layout->rows,
                                               (p->column + column) / layout->columns);
            tvm_status status = tvm_read_at(job->input.descriptor, job->input.path, p->buffers->out,
                                            layout->bytes, job->packed_at + place, p->diags);
            if (status) return status;
            pack_layout_untile(layout, p->buffers->out, p->buffers->codes);
            put_values(p, row, down < layout->rows ? down : layout->rows, column,
                       across < layout->columns ? across : layout->columns, p->buffers->codes,
                       layout->columns);
        }
    return TVM_OK;
}

static tvm_status unpack_piece(void *closure, unsigned thread, uint64_t number, tvm_diags *diags) {
    unpacker *u = closure;
    pack_job *job = &u->job;
    piece p = {.unpacker = u,
               .buffers = &job->buffers[thread],
               .row = number / job->pieces_across * job->piece_rows,
               .column = number % job->pieces_across * job->piece_columns,
               .diags = diags};
    p.rows = job->k - p.row < job->piece_rows ? job->k - p.row : job->piece_rows;
    p.columns = job->n - p.column < job->piece_columns ? job->n - p.column : job->piece_columns;
    tvm_status status =
        read_floats(&p, job->has_scales, job->scales_at, u->scale_type, 1, p.buffers->by.divisors);
    if (!status)
        status = read_floats(&p, job->has_zeros, job->zeros_at, u->zero_type, u->mid, p.buffers->by.offsets);
    if (!status) status = job->laid_out ? unpack_tiles(&p) : unpack_plain(&p);
    for (uint64_t i = 0; !status && i < p.rows; i++)
        status = tvm_output_write(&job->output, (uint8_t *)p.buffers->slab + i * p.columns * job->item,
                                  p.columns * job->item,
                                  u->to_at + ((p.row + i) * job->n + p.column) * job->item, diags);
    return status;
}

static void cut(pack_job *job) {
    uint32_t rows = job->laid_out ? job->layout.rows : 1, columns = job->laid_out ? job->layout.columns : 8;
    job->piece_rows = tvm_round_up(PACK_PLAIN_ROWS, rows);
    job->piece_columns = tvm_round_up(job->n < COLUMNS ? job->n : COLUMNS, columns);
    job->slab_rows = job->piece_rows;
    job->pieces_across = (job->n + job->piece_columns - 1) / job->piece_columns;
    job->bands = (job->k + job->piece_rows - 1) / job->piece_rows * job->pieces_across;
}

/* ---- the input's description ---- */

typedef struct reader {
    unpacker *unpacker;
    const tvm_safetensors *tensors;
    tvm_diags *diags;
} reader;

static tvm_status bad(const reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static tvm_status bad(const reader *r, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tvm_place place = {.file = r->unpacker->job.input.path};
    return tvm_diag_add(r->diags, TVM_FORMAT, &place, NULL, "%s", text);
}

static const char *metadata(const reader *r, const char *key) {
    const char *value = tvm_safetensors_metadata(r->tensors, key);
    return value ? value : "";
}

/* A number of digits alone, followed by `end`; NULL when there is none. */
static const char *number(const char *text, char end, uint64_t *value) {
    if (*text < '0' || *text > '9') return NULL;
    char *after;
    *value = strtoull(text, &after, 10);
    return *after == end && *value <= INT64_MAX / 64 ? after + 1 : NULL;
}

static tvm_status read_description(const reader *r) {
    pack_job *job = &r->unpacker->job;
    const char *type = metadata(r, "type"), *shape = metadata(r, "shape"), *group = metadata(r, "group");
    if (strcmp(metadata(r, "format"), "tilusvm-weights"))
        return bad(r, "these are no packed weights: the metadata do not say format tilusvm-weights");
    if (strcmp(metadata(r, "version"), "1")) {
        tvm_place place = {.file = job->input.path};
        return tvm_diag_add(r->diags, TVM_VERSION, &place, NULL,
                            "version '%.40s' of packed weights is not known (1 is)", metadata(r, "version"));
    }
    if (!tvm_dtype_parse(type, strlen(type), &job->type) || job->type.bits > 8 ||
        job->type.kind == TVM_KIND_BOOL)
        return bad(r, "the metadata's type '%.40s' is no type of weights", type);
    const char *rest = number(shape, ',', &job->k);
    if (!rest || !number(rest, '\0', &job->n))
        return bad(r, "the metadata's shape '%.40s' is not 'k,n'", shape);
    job->has_scales = tvm_safetensors_find(r->tensors, "scales") != NULL;
    job->has_zeros = tvm_safetensors_find(r->tensors, "zeros") != NULL;
    if (job->has_zeros != !strcmp(metadata(r, "zero"), "per-group"))
        return bad(r, "the metadata and the tensors disagree about zeros");
    job->group = job->k ? job->k : 1;
    if (!job->has_scales) return job->has_zeros ? bad(r, "there are zeros without scales") : TVM_OK;
    if (!number(group, '\0', &job->group) || !job->group || job->k % job->group)
        return bad(r, "the metadata's group '%.40s' does not divide %" PRIu64, group, job->k);
    return TVM_OK;
}

static tvm_status find_matrix(const reader *r, const char *name, uint64_t *at, tvm_dtype *type) {
    const pack_job *job = &r->unpacker->job;
    const tvm_safetensor *tensor = tvm_safetensors_find(r->tensors, name);
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (!tensor) return TVM_OK;
    bool fits = (tvm_dtype_same(tensor->type, TVM_F16) || tvm_dtype_same(tensor->type, TVM_BF16)) &&
                tensor->rank == 2 && tensor->shape[0] == job->k / job->group && tensor->shape[1] == job->n;
    if (!fits)
        return bad(r, "tensor '%s' is %s; F16 or BF16 [%" PRIu64 ", %" PRIu64 "] is expected", name,
                   tvm_safetensor_text(tensor, text), job->k / job->group, job->n);
    *at = tensor->offset;
    *type = tensor->type;
    return TVM_OK;
}

static tvm_status find_packed(const reader *r) {
    pack_job *job = &r->unpacker->job;
    const tvm_safetensor *tensor;
    char text[TVM_SAFETENSORS_TEXT_MAX];
    uint64_t bytes, weights;
    tvm_status status = tvm_safetensors_need(r->tensors, job->input.path, "packed", &tensor, r->diags);
    if (status) return status;
    int64_t shape[TVM_MAX_RANK];
    unsigned rank;
    job->columns = pack_row_columns(job->type, job->n);
    if (__builtin_mul_overflow(job->k, job->columns, &weights) || weights > INT64_MAX / 8)
        return bad(r, "%" PRIu64 " by %" PRIu64 " weights are too many", job->k, job->n);
    bytes = weights * job->type.bits / 8;
    if (job->laid_out)
        status =
            pack_layout_shape(&job->layout, (int64_t)job->k, (int64_t)job->n, shape, &rank, &bytes, r->diags);
    if (status) return status;
    if (!tvm_dtype_same(tensor->type, TVM_U(8)) || tensor->bytes != bytes)
        return bad(r, "tensor 'packed' is %s; U8 of %" PRIu64 " bytes is expected",
                   tvm_safetensor_text(tensor, text), bytes);
    job->packed_at = tensor->offset;
    return TVM_OK;
}

/* The program that made the layout has to be the one that is given. */
static tvm_status check_layout(const reader *r) {
    pack_job *job = &r->unpacker->job;
    const char *layout = metadata(r, "layout"), *program = metadata(r, "program");
    tvm_place place = {.file = job->input.path};
    bool plain = !strcmp(layout, "plain");
    if (plain && job->options->layout)
        return tvm_diag_add(r->diags, TVM_ARGUMENT, &place, NULL,
                            "the weights are in plain rows: no layout goes with them");
    if (plain) return TVM_OK;
    if (!job->options->layout)
        return tvm_diag_add(
            r->diags, TVM_ARGUMENT, &place, "--layout FILE.vbc",
            "the weights are laid out by kernel '%.80s' of a program %.80s (%.40s), which is needed",
            metadata(r, "kernel"), program, layout);
    tvm_status status = pack_job_layout(job, r->diags);
    if (status || !strcmp(layout, job->layout.hash)) return status;
    return tvm_diag_add(r->diags, TVM_ARGUMENT, &place, NULL,
                        "the weights are laid out by another program than %s: %.40s, not %s",
                        job->options->layout, layout, job->layout.hash);
}

static tvm_status read_input(unpacker *u, tvm_diags *diags) {
    pack_job *job = &u->job;
    tvm_status status = pack_array_open(job->options->input, "packed", &job->input, diags);
    reader r = {u, &job->input.tensors, diags};
    if (!status) status = read_description(&r);
    if (!status) status = check_layout(&r);
    if (!status) status = find_packed(&r);
    if (!status) status = find_matrix(&r, "scales", &job->scales_at, &u->scale_type);
    if (!status) status = find_matrix(&r, "zeros", &job->zeros_at, &u->zero_type);
    return status;
}

/* ---- the output ---- */

static tvm_status start_safetensors(unpacker *u, uint64_t data, tvm_diags *diags) {
    char name[] = "weight";
    tvm_safetensor tensor = {.name = name, .type = u->to, .rank = 2, .shape = {u->job.k, u->job.n}};
    tvm_safetensors tensors = {.items = &tensor, .count = 1};
    uint8_t *header;
    size_t size;
    tvm_status status = tvm_safetensors_header(&tensors, &header, &size, diags);
    if (status) return status;
    u->to_at = size;
    status = tvm_output_open(u->job.options->output, size + data, &u->job.output, diags);
    if (!status) status = tvm_output_write(&u->job.output, header, size, 0, diags);
    free(header);
    return status;
}

static tvm_status start_output(unpacker *u, tvm_diags *diags) {
    const char *path = u->job.options->output, *suffix = strrchr(path, '.');
    uint64_t data = u->job.k * u->job.n * u->job.item;
    if (suffix && !strcmp(suffix, ".safetensors")) return start_safetensors(u, data, diags);
    /* bf16 as ml_dtypes writes it */
    tvm_npy npy = {.kind = tvm_dtype_same(u->to, TVM_BF16) ? 'V' : 'f',
                   .item = u->job.item,
                   .rank = 2,
                   .shape = {u->job.k, u->job.n}};
    uint8_t header[TVM_NPY_HEADER_MAX];
    size_t size = tvm_npy_header(&npy, header);
    u->to_at = size;
    tvm_status status = tvm_output_open(path, size + data, &u->job.output, diags);
    return status ? status : tvm_output_write(&u->job.output, header, size, 0, diags);
}

static tvm_status run(unpacker *u, tvm_diags *diags) {
    pack_job *job = &u->job;
    tvm_status status = read_input(u, diags);
    if (status) return status;
    u->to = job->options->type.kind == TVM_KIND_NONE ? TVM_F32 : job->options->type;
    job->item = u->to.bits / 8u;
    u->mid = job->type.kind == TVM_KIND_UINT ? (float)(1u << (job->type.bits - 1)) : 0;
    for (unsigned code = 0; code < 1u << job->type.bits; code++)
        u->values[code] = (float)tvm_decode(job->type, code);
    status = start_output(u, diags);
    if (!status && job->k && job->n) {
        cut(job);
        status = pack_job_plan(job, diags);
        if (!status)
            status = tvm_work(job->bands, job->threads, unpack_piece, u, &job->options->progress, diags);
    }
    return status ? status : tvm_output_commit(&job->output, diags);
}

tvm_status tvm_unpack(const pack_options *options, tvm_diags *diags) {
    unpacker *u = calloc(1, sizeof *u);
    if (!u) return tvm_diag_no_memory(diags);
    u->job.options = options;
    u->job.input.descriptor = u->job.given_scales.descriptor = u->job.given_zeros.descriptor = -1;
    u->job.output.descriptor = -1;
    tvm_status status = run(u, diags);
    pack_job_free(&u->job);
    free(u);
    return status;
}
