#include "config.h"

#include "checkpoint_impl.h"
#include "output.h"
#include "pack_vector.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

enum {
    COPY_BYTES = 4 << 20, /* of a piece */
    ROWS = 64,            /* of codes, of a piece */
    COLUMNS = 1024,
    STRIDE = COLUMNS + 64, /* rows of codes do not all lie in the same lines of a cache */
    GROUPS = 16            /* of scales, of a piece */
};

typedef enum part_kind {
    PART_COPY,
    PART_PACKED,
    PART_SCALES,
    PART_ZEROS,
    PART_ORDER,
    PART_MULTIPLIER
} part_kind;

/* A tensor of the output. */
typedef struct part {
    part_kind kind;
    const ck_layer *layer;
    const ck_tensor *source; /* of a copy */
    size_t output;
    uint64_t first_piece, rank_pieces; /* of all; pieces of each of a layer's matrices */
    uint64_t offset;                   /* in the file */
} part;

/* A file of the output. */
typedef struct out_file {
    tvm_output output;
    char *path;
    char **metadata; /* key, value */
    size_t metadata_count;
} out_file;

typedef struct writer {
    checkpoint *c;
    part *parts;           /* file after file */
    tvm_safetensor *items; /* of the parts */
    size_t part_count;
    out_file *files;
    uint64_t pieces;
    uint8_t **buffers;  /* one a thread */
    size_t piece_bytes; /* the most that the rows of a piece are */
} writer;

/* ---- scales ---- */

static uint64_t groups_of(const ck_layer *layer) {
    return layer->k / layer->group;
}

static double scale_of(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    double scale = layer->format->scale(layer, index, group, column);
    return layer->input_scales ? scale * layer->input_scales[group] : scale;
}

static double rounded(const ck_layer *layer, double value, uint16_t *code) {
    bool bf16 = tvm_dtype_same(layer->scale_type, TVM_BF16);
    *code = bf16 ? tvm_f64_to_bf16(value) : tvm_f64_to_f16(value);
    return (double)(bf16 ? tvm_bf16_to_f32(*code) : tvm_f16_to_f32(*code));
}

static tvm_status bad_scale(const checkpoint *c, const ck_layer *layer, uint64_t g, uint64_t j, double value,
                            tvm_diags *diags) {
    tvm_place place = {.file = c->files[layer->file].path};
    return tvm_diag_add(diags, TVM_FORMAT, &place, isfinite(value) ? "--scale bf16 has a wider range" : NULL,
                        "layer '%.120s' (%s): the scale of group %" PRIu64 ", column %" PRIu64 " is %g%s",
                        layer->name, layer->format->name, g, j, value,
                        isfinite(value) ? ", beyond the range of f16" : "");
}

/* Calls `visit` for each scale. */
static tvm_status each_scale(const checkpoint *c, ck_layer *layer,
                             tvm_status (*visit)(const checkpoint *, ck_layer *, double, uint64_t g,
                                                 uint64_t j, double range[2], tvm_diags *),
                             double range[2], tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (uint64_t index = 0; index < layer->count; index++)
        for (uint64_t g = 0; g < groups_of(layer); g++)
            for (uint64_t j = 0; !status && j < layer->n; j++)
                status = visit(c, layer, scale_of(layer, index, g, j), g, j, range, diags);
    return status;
}

static tvm_status measure(const checkpoint *c, ck_layer *layer, double value, uint64_t g, uint64_t j,
                          double range[2], tvm_diags *diags) {
    if (!isfinite(value)) return bad_scale(c, layer, g, j, value, diags);
    double magnitude = fabs(value);
    if (magnitude > 0 && magnitude < range[0]) range[0] = magnitude;
    if (magnitude > range[1]) range[1] = magnitude;
    return TVM_OK;
}

static tvm_status count_rounded(const checkpoint *c, ck_layer *layer, double value, uint64_t g, uint64_t j,
                                double range[2], tvm_diags *diags) {
    uint16_t code;
    double wanted = value / layer->rescale, got = rounded(layer, wanted, &code);
    (void)range;
    if (!isfinite(got)) return bad_scale(c, layer, g, j, value, diags);
    if (got == wanted) return TVM_OK;
    layer->inexact++;
    double off = fabs(got - wanted) / fabs(wanted);
    if (off > layer->worst) layer->worst = off;
    return TVM_OK;
}

/* The type of scales: as they are, where a program takes it. Others are rounded to f16, if need be divided by
 * a power of two that brings them where f16 is as exact as it gets. */
static tvm_status choose_scales(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    tvm_dtype found = layer->numbers, wanted = c->options->scale_type;
    bool power = tvm_dtype_same(found, TVM_E8M0);
    bool half = tvm_dtype_same(found, TVM_F16) || tvm_dtype_same(found, TVM_BF16);
    layer->scale_type = wanted.kind != TVM_KIND_NONE ? wanted : half ? found : power ? TVM_BF16 : TVM_F16;
    double range[2] = {INFINITY, 0};
    tvm_status status = each_scale(c, layer, measure, range, diags);
    if (status || (tvm_dtype_same(layer->scale_type, found) && !layer->input_scales)) return status;
    if (tvm_dtype_same(layer->scale_type, TVM_F16) && range[1] > 0 &&
        (range[1] > 65504 || range[0] < 0x1p-14)) {
        layer->rescale = ldexp(1, ilogb(range[1]));
        layer->multiplier *= layer->rescale;
        layer->has_multiplier = true;
    }
    status = each_scale(c, layer, count_rounded, range, diags);
    if (!status && layer->input_scales && layer->inexact)
        status =
            ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                      "%" PRIu64 " products of its scales and pre_quant_scale are no numbers of %s; let the "
                      "program that quantizes fold pre_quant_scale into the layer before",
                      layer->inexact, tvm_dtype_same(layer->scale_type, TVM_BF16) ? "bf16" : "f16");
    return status;
}

static void warn_of_rounding(const checkpoint *c) {
    uint64_t count = 0, all = 0;
    double worst = 0;
    for (size_t i = 0; i < c->layer_count; i++) {
        const ck_layer *layer = &c->layers[i];
        count += layer->inexact;
        all += layer->count * groups_of(layer) * layer->n;
        if (layer->worst > worst) worst = layer->worst;
    }
    tvm_place place = {.file = c->options->input};
    if (count)
        tvm_diag_add(c->options->warnings, TVM_ARGUMENT, &place, NULL,
                     "%" PRIu64 " of %" PRIu64 " scales are rounded, by %.2g of themselves at the most",
                     count, all, worst);
}

/* ---- what is written ---- */

static char *named(const char *name, const char *suffix) {
    char *text = NULL;
    return asprintf(&text, "%s%s", name, suffix) < 0 ? NULL : text;
}

static tvm_status add_part(writer *w, part_kind kind, const ck_layer *layer, const ck_tensor *source,
                           size_t output, const char *suffix, tvm_dtype type, unsigned rank,
                           const uint64_t *shape, tvm_diags *diags) {
    size_t at = w->part_count;
    tvm_safetensor *item = &w->items[at];
    *item = (tvm_safetensor){.type = type, .rank = rank};
    item->name = source ? strdup(source->header->name) : named(layer->name, suffix);
    if (source) item->dtype = source->header->dtype;
    if (source) item->bytes = source->header->bytes;
    memcpy(item->shape, shape, rank * sizeof *shape);
    w->parts[at] = (part){.kind = kind, .layer = layer, .source = source, .output = output};
    w->part_count++;
    return item->name ? TVM_OK : tvm_diag_no_memory(diags);
}

static uint64_t row_bytes_of(const ck_layer *layer) {
    return pack_row_columns(layer->type, layer->n) * layer->type.bits / 8;
}

static tvm_status add_layer_parts(writer *w, const ck_layer *layer, size_t output, tvm_diags *diags) {
    uint64_t packed[3] = {layer->count, layer->k, row_bytes_of(layer)},
             scales[3] = {layer->count, groups_of(layer), layer->n};
    uint64_t one = 1, k = layer->k;
    unsigned skip = !layer->stacked, rank = 3 - skip;
    tvm_status status =
        add_part(w, PART_PACKED, layer, NULL, output, ".packed", TVM_U(8), rank, packed + skip, diags);
    if (!status)
        status = add_part(w, PART_SCALES, layer, NULL, output, ".scales", layer->scale_type, rank,
                          scales + skip, diags);
    if (!status && layer->own_zeros)
        status = add_part(w, PART_ZEROS, layer, NULL, output, ".zeros", layer->scale_type, rank,
                          scales + skip, diags);
    if (!status && layer->order)
        status = add_part(w, PART_ORDER, layer, NULL, output, ".order", TVM_I(32), 1, &k, diags);
    if (!status && layer->has_multiplier)
        status = add_part(w, PART_MULTIPLIER, layer, NULL, output, ".multiplier", TVM_F32, 1, &one, diags);
    uint64_t bytes = row_bytes_of(layer) * (layer->k < ROWS ? layer->k : ROWS);
    if (bytes > w->piece_bytes) w->piece_bytes = bytes;
    return status;
}

/* Wide elements first, so that each lies at a multiple of itself. */
static unsigned width_of(const tvm_safetensor *item) {
    return item->type.kind == TVM_KIND_NONE ? 1 : item->type.bits / 8u;
}

static void sort_parts(writer *w, size_t from) {
    for (size_t i = from + 1; i < w->part_count; i++)
        for (size_t j = i; j > from && width_of(&w->items[j - 1]) < width_of(&w->items[j]); j--) {
            tvm_safetensor item = w->items[j];
            part p = w->parts[j];
            w->items[j] = w->items[j - 1];
            w->parts[j] = w->parts[j - 1];
            w->items[j - 1] = item;
            w->parts[j - 1] = p;
        }
}

static uint64_t pieces_of(part *p, const tvm_safetensor *item) {
    const ck_layer *layer = p->layer;
    if (p->kind == PART_COPY) return (item->bytes + COPY_BYTES - 1) / COPY_BYTES;
    if (p->kind == PART_ORDER || p->kind == PART_MULTIPLIER) return 1;
    uint64_t rows = p->kind == PART_PACKED ? layer->k : groups_of(layer),
             step = p->kind == PART_PACKED ? ROWS : GROUPS;
    p->rank_pieces = (rows + step - 1) / step;
    return layer->count * p->rank_pieces;
}

/* ---- the header ---- */

static const char *zero_of(const ck_layer *layer) {
    if (layer->table) return "none";
    return layer->own_zeros ? "per-group" : layer->type.kind == TVM_KIND_UINT ? "mid" : "none";
}

/* What tilusvm-weights(5) says of a layer; malloc'ed. */
static char *description_of(const ck_layer *layer) {
    char shape[80], group[24], columns[24], value[80], middle[16] = "";
    int at = layer->stacked ? snprintf(shape, sizeof shape, "%" PRIu64 ",", layer->count) : 0;
    snprintf(shape + at, sizeof shape - (size_t)at, "%" PRIu64 ",%" PRIu64, layer->k, layer->n);
    snprintf(group, sizeof group, "%" PRIu64, layer->group);
    snprintf(columns, sizeof columns, "%" PRIu64, pack_row_columns(layer->type, layer->n));
    if (layer->type.kind == TVM_KIND_UINT && !layer->table)
        snprintf(middle, sizeof middle, "%u", 1u << (layer->type.bits - 1));
    const char *times = layer->has_multiplier ? " * multiplier" : "";
    if (layer->table)
        snprintf(value, sizeof value, "%s[code] * scales%s", layer->table, times);
    else
        snprintf(value, sizeof value, "%scode%s%s%s * scales%s", *middle ? "(" : "", *middle ? " - " : "",
                 layer->own_zeros ? "zeros" : middle, *middle ? ")" : "", times);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "type",
        layer->table ? layer->table : TVM_DTYPE_TEXT(layer->type), "shape", shape, "group", group, "scale",
        tvm_dtype_same(layer->scale_type, TVM_BF16) ? "bf16" : "f16", "zero", zero_of(layer), "value", value,
        "packing", "rows", "layout", "plain", "from", layer->format->name);
    if (object && pack_row_columns(layer->type, layer->n) != layer->n)
        json_object_set_new(object, "columns", json_string(columns));
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(object);
    return text;
}

static bool add_metadata(out_file *file, char *key, char *value) {
    char **metadata =
        key && value ? realloc(file->metadata, 2 * (file->metadata_count + 1) * sizeof *metadata) : NULL;
    if (!metadata) {
        free(key);
        free(value);
        return false;
    }
    file->metadata = metadata;
    metadata[2 * file->metadata_count] = key;
    metadata[2 * file->metadata_count++ + 1] = value;
    return true;
}

static bool describe(const writer *w, size_t output, size_t from, out_file *file) {
    bool good = add_metadata(file, strdup("format"), strdup("tilusvm-model")) &&
                add_metadata(file, strdup("version"), strdup("1")) &&
                add_metadata(file, strdup("generator"), strdup("tvm-pack " PACKAGE_VERSION));
    for (size_t i = from; good && i < w->part_count; i++)
        if (w->parts[i].kind == PART_PACKED && w->parts[i].output == output)
            good = add_metadata(file, strdup(w->items[i].name), description_of(w->parts[i].layer));
    return good;
}

/* The parts of file `output`, its header, and the pieces of its parts. */
static tvm_status start_file(writer *w, size_t output, tvm_diags *diags) {
    checkpoint *c = w->c;
    out_file *file = &w->files[output];
    size_t from = w->part_count;
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < c->layer_count; i++)
        if (c->layers[i].file == output) status = add_layer_parts(w, &c->layers[i], output, diags);
    for (size_t i = 0; !status && i < c->tensor_count; i++) {
        const ck_tensor *tensor = &c->tensors[i];
        if (tensor->file != output || c->claimed[i]) continue;
        status = add_part(w, PART_COPY, NULL, tensor, output, "", tensor->header->type, tensor->header->rank,
                          tensor->header->shape, diags);
    }
    if (status) return status;
    sort_parts(w, from);
    if (!describe(w, output, from, file)) return tvm_diag_no_memory(diags);
    uint8_t *header;
    size_t size;
    tvm_safetensors tensors = {w->items + from, w->part_count - from, file->metadata, file->metadata_count};
    status = tvm_safetensors_header(&tensors, &header, &size, diags);
    if (status) return status;
    uint64_t end = size;
    for (size_t i = from; i < w->part_count; i++) {
        w->parts[i].offset = w->items[i].offset;
        w->parts[i].first_piece = w->pieces;
        w->pieces += pieces_of(&w->parts[i], &w->items[i]);
        end = w->items[i].offset + w->items[i].bytes;
    }
    file->path = c->folder ? NULL : strdup(c->options->output);
    if (c->folder && asprintf(&file->path, "%s/%s", c->options->output, c->files[output].name) < 0)
        file->path = NULL;
    if (!file->path) status = tvm_diag_no_memory(diags);
    if (!status) status = tvm_output_open(file->path, end, &file->output, diags);
    if (!status) status = tvm_output_write(&file->output, header, size, 0, diags);
    free(header);
    return status;
}

/* ---- pieces ---- */

static tvm_status write_packed(const writer *w, const part *p, uint64_t index, uint64_t row, uint8_t *buffer,
                               tvm_diags *diags) {
    const ck_layer *layer = p->layer;
    uint64_t rows[ROWS], count = layer->k - row < ROWS ? layer->k - row : ROWS, width = row_bytes_of(layer);
    uint64_t wide = pack_row_columns(layer->type, layer->n);
    uint8_t *codes = buffer + w->piece_bytes + 8;
    for (uint64_t i = 0; i < count; i++) rows[i] = layer->order ? layer->order[row + i] : row + i;
    for (uint64_t column = 0; column < wide; column += COLUMNS) {
        uint64_t some = wide - column < COLUMNS ? wide - column : COLUMNS;
        uint64_t there = layer->n - column < some ? layer->n - column : some;
        layer->format->take(layer, index, rows, count, column, there, codes, STRIDE);
        for (uint64_t i = 0; i < count; i++) {
            uint8_t string[COLUMNS + 8];
            memset(codes + i * STRIDE + there, 0, some - there);
            tvm_pack_bits(layer->type.bits, codes + i * STRIDE, some, string);
            memcpy(buffer + i * width + column * layer->type.bits / 8, string, some * layer->type.bits / 8);
        }
    }
    return tvm_output_write(&w->files[p->output].output, buffer, count * width,
                            p->offset + (index * layer->k + row) * width, diags);
}

/* Scales or zero points of some groups. */
static tvm_status write_halves(const writer *w, const part *p, uint64_t index, uint64_t group,
                               tvm_diags *diags) {
    const ck_layer *layer = p->layer;
    uint64_t groups = groups_of(layer), end = groups - group < GROUPS ? groups : group + GROUPS;
    tvm_status status = TVM_OK;
    for (uint64_t g = group; g < end; g++)
        for (uint64_t column = 0; !status && column < layer->n; column += COLUMNS) {
            uint16_t halves[COLUMNS];
            uint64_t some = layer->n - column < COLUMNS ? layer->n - column : COLUMNS;
            for (uint64_t j = 0; j < some; j++)
                rounded(layer,
                        p->kind == PART_SCALES ? scale_of(layer, index, g, column + j) / layer->rescale
                                               : (double)layer->format->zero(layer, index, g, column + j),
                        &halves[j]);
            status = tvm_output_write(&w->files[p->output].output, halves, some * sizeof *halves,
                                      p->offset + ((index * groups + g) * layer->n + column) * sizeof *halves,
                                      diags);
        }
    return status;
}

static const part *part_of(const writer *w, uint64_t piece) {
    size_t low = 0, high = w->part_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(w->parts[middle].first_piece <= piece ? &low : &high) = middle;
    }
    return &w->parts[low];
}

static tvm_status write_piece(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags) {
    const writer *w = closure;
    const part *p = part_of(w, piece);
    const tvm_output *output = &w->files[p->output].output;
    uint64_t number = piece - p->first_piece;
    if (p->kind == PART_COPY) {
        uint64_t at = number * COPY_BYTES, left = p->source->header->bytes - at;
        return tvm_output_write(output, p->source->data + at, left < COPY_BYTES ? left : COPY_BYTES,
                                p->offset + at, diags);
    }
    if (p->kind == PART_ORDER)
        return tvm_output_write(output, p->layer->order, p->layer->k * sizeof *p->layer->order, p->offset,
                                diags);
    if (p->kind == PART_MULTIPLIER) {
        float multiplier = (float)p->layer->multiplier;
        return tvm_output_write(output, &multiplier, sizeof multiplier, p->offset, diags);
    }
    uint64_t index = number / p->rank_pieces, step = number % p->rank_pieces;
    if (p->kind == PART_PACKED) return write_packed(w, p, index, step * ROWS, w->buffers[thread], diags);
    return write_halves(w, p, index, step * GROUPS, diags);
}

static tvm_status write_all(writer *w, tvm_diags *diags) {
    unsigned threads = tvm_work_threads(w->c->options->threads);
    if (threads > w->pieces) threads = w->pieces ? (unsigned)w->pieces : 1;
    w->buffers = calloc(threads, sizeof *w->buffers);
    bool good = w->buffers;
    for (unsigned i = 0; good && i < threads; i++)
        good = (w->buffers[i] = malloc(w->piece_bytes + 8 + ROWS * STRIDE + 64));
    tvm_status status = good ? tvm_work(w->pieces, threads, write_piece, w, &w->c->options->progress, diags)
                             : tvm_diag_no_memory(diags);
    for (unsigned i = 0; w->buffers && i < threads; i++) free(w->buffers[i]);
    free(w->buffers);
    return status;
}

static tvm_status write_index(const writer *w, tvm_diags *diags) {
    json_t *map = json_object();
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->part_count; i++) {
        json_object_set_new(map, w->items[i].name, json_string(w->c->files[w->parts[i].output].name));
        bytes += w->items[i].bytes;
    }
    json_t *root =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
    tvm_status status = ck_write_json(w->c->options->output, "model.safetensors.index.json", root, diags);
    json_decref(root);
    return status;
}

/* ---- all of it ---- */

/* The folder of the output, which is not that of the input. */
static tvm_status make_folder(const checkpoint *c, bool *made, tvm_diags *diags) {
    struct stat in, out;
    const char *output = c->options->output;
    tvm_place place = {.file = output};
    *made = !mkdir(output, 0777);
    if (!*made && errno != EEXIST)
        return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot make the folder: %s", strerror(errno));
    if (!stat(c->options->input, &in) && !stat(output, &out) && in.st_dev == out.st_dev &&
        in.st_ino == out.st_ino)
        return tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL, "the output is the folder of the input");
    return TVM_OK;
}

static void free_writer(writer *w) {
    for (size_t i = 0; w->items && i < w->part_count; i++) free(w->items[i].name);
    for (size_t i = 0; w->files && i < w->c->file_count; i++) {
        tvm_output_close(&w->files[i].output);
        for (size_t j = 0; j < 2 * w->files[i].metadata_count; j++) free(w->files[i].metadata[j]);
        free(w->files[i].metadata);
        free(w->files[i].path);
    }
    free(w->items);
    free(w->parts);
    free(w->files);
}

tvm_status ck_write(checkpoint *c, tvm_diags *diags) {
    size_t most = c->tensor_count + 5 * c->layer_count + 1;
    writer w = {.c = c, .files = calloc(c->file_count + 1, sizeof *w.files)};
    w.parts = calloc(most, sizeof *w.parts);
    w.items = calloc(most, sizeof *w.items);
    tvm_status status = w.files && w.parts && w.items ? TVM_OK : tvm_diag_no_memory(diags);
    for (size_t i = 0; w.files && i < c->file_count; i++) w.files[i].output.descriptor = -1;
    for (size_t i = 0; !status && i < c->layer_count; i++) status = choose_scales(c, &c->layers[i], diags);
    if (!status && c->folder) status = ck_find_beside(c, diags);
    bool made = false;
    if (!status && c->folder) status = make_folder(c, &made, diags);
    for (size_t i = 0; !status && i < c->file_count; i++) status = start_file(&w, i, diags);
    if (!status) status = write_all(&w, diags);
    for (size_t i = 0; !status && i < c->file_count; i++)
        status = tvm_output_commit(&w.files[i].output, diags);
    if (!status && c->folder && c->file_count > 1) status = write_index(&w, diags);
    if (!status && c->folder) status = ck_copy_beside(c, diags);
    if (!status) warn_of_rounding(c);
    free_writer(&w);
    if (status && made) rmdir(c->options->output);
    return status;
}

tvm_status tvm_checkpoint_import(const checkpoint_options *options, tvm_diags *diags) {
    checkpoint c = {.options = options};
    tvm_status status = ck_open(&c, diags);
    if (!status) status = ck_find_layers(&c, diags);
    if (!status) status = ck_write(&c, diags);
    ck_close(&c);
    return status;
}
