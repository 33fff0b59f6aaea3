#include "config.h"

#include "checkpoint_export.h"
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

/* A file of the output. */
typedef struct out_file {
    tvm_output output;
    char *path;
    char **metadata; /* key, value */
    size_t metadata_count;
} out_file;

typedef struct writer {
    checkpoint *c;
    ck_part *parts;        /* file after file */
    tvm_safetensor *items; /* of the parts */
    size_t part_count;
    out_file *files;
    uint64_t pieces;
    uint8_t **buffers;   /* one a thread */
    size_t buffer_bytes; /* the most that a piece takes */
} writer;

/* ---- what is written ---- */

static char *named(const char *name, const char *suffix) {
    char *text = NULL;
    return asprintf(&text, "%s%s", name, suffix) < 0 ? NULL : text;
}

static tvm_status add_part(writer *w, ck_part_kind kind, const ck_layer *layer, const ck_tensor *source,
                           size_t output, const char *suffix, tvm_dtype type, unsigned rank,
                           const uint64_t *shape, tvm_diags *diags) {
    size_t at = w->part_count;
    tvm_safetensor *item = &w->items[at];
    *item = (tvm_safetensor){.type = type, .rank = rank};
    item->name = source ? strdup(source->header->name) : named(layer->name, suffix);
    if (source) item->dtype = source->header->dtype;
    if (source) item->bytes = source->header->bytes;
    memcpy(item->shape, shape, rank * sizeof *shape);
    ck_part *part = &w->parts[at];
    *part = (ck_part){.kind = kind, .layer = layer, .source = source, .output = output};
    if (ck_part_memory(part) > w->buffer_bytes) w->buffer_bytes = ck_part_memory(part);
    w->part_count++;
    return item->name ? TVM_OK : tvm_diag_no_memory(diags);
}

static tvm_status add_exported_parts(writer *w, const ck_layer *layer, size_t output, tvm_diags *diags) {
    ck_exported parts[CK_EXPORTED_PARTS];
    unsigned count = ck_exported_parts(w->c, layer, parts);
    tvm_status status = TVM_OK;
    for (unsigned i = 0; !status && i < count; i++)
        status = add_part(w, parts[i].kind, layer, NULL, output, parts[i].suffix, parts[i].type,
                          parts[i].rank, parts[i].shape, diags);
    return status;
}

static tvm_status add_layer_parts(writer *w, const ck_layer *layer, size_t output, tvm_diags *diags) {
    uint64_t packed[3] = {layer->count, layer->k, ck_row_bytes(layer)},
             scales[3] = {layer->count, layer->k / layer->group, layer->n}, values[2] = {layer->n, layer->k};
    uint64_t one = 1, k = layer->k;
    /* not all readers of .safetensors know F8_E8M0 */
    tvm_dtype scale = tvm_dtype_same(layer->scale_type, TVM_E8M0) ? TVM_U(8) : layer->scale_type;
    if (layer->plain)
        return add_part(w, CK_PART_VALUES, layer, NULL, output, ".weight", layer->float_type, 2, values,
                        diags);
    if (w->c->plan.target != CK_OURS) return add_exported_parts(w, layer, output, diags);
    unsigned skip = !layer->stacked, rank = 3 - skip;
    tvm_status status =
        add_part(w, CK_PART_PACKED, layer, NULL, output, ".packed", TVM_U(8), rank, packed + skip, diags);
    if (!status)
        status =
            add_part(w, CK_PART_SCALES, layer, NULL, output, ".scales", scale, rank, scales + skip, diags);
    if (!status && layer->own_zeros)
        status = add_part(w, CK_PART_ZEROS, layer, NULL, output, ".zeros", layer->scale_type, rank,
                          scales + skip, diags);
    if (!status && layer->order)
        status = add_part(w, CK_PART_ORDER, layer, NULL, output, ".order", TVM_I(32), 1, &k, diags);
    if (!status && layer->has_multiplier)
        status = add_part(w, CK_PART_MULTIPLIER, layer, NULL, output, ".multiplier", TVM_F32, 1, &one, diags);
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
            ck_part p = w->parts[j];
            w->items[j] = w->items[j - 1];
            w->parts[j] = w->parts[j - 1];
            w->items[j - 1] = item;
            w->parts[j - 1] = p;
        }
}

/* ---- the header ---- */

static const char *zero_of(const ck_layer *layer) {
    if (layer->table) return "none";
    return layer->own_zeros ? "per-group" : layer->type.kind == TVM_KIND_UINT ? "mid" : "none";
}

/* What tilusvm-weights(5) says of a layer; malloc'ed. */
static char *description_of(const ck_layer *layer) {
    char shape[80], group[24], columns[24], value[80], middle[16] = "", from[64], error[24];
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
    const char *blocks = ck_blocks_name(layer);
    snprintf(from, sizeof from, "%s%s%s", layer->format->name, blocks ? " " : "", blocks ? blocks : "");
    snprintf(error, sizeof error, "%.3g", ck_error_of(layer));
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "type",
                  layer->table ? layer->table : TVM_DTYPE_TEXT(layer->type), "shape", shape, "group", group,
                  "scale", TVM_DTYPE_TEXT(layer->scale_type), "zero", zero_of(layer), "value", value,
                  "packing", "rows", "layout", "plain", "from", from);
    if (object && layer->inexact) json_object_set_new(object, "error", json_string(error));
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
    bool good =
        add_metadata(file, strdup("format"),
                     strdup(ck_has_codes(w->c) && w->c->plan.target == CK_OURS ? "tilusvm-model" : "pt")) &&
        add_metadata(file, strdup("version"), strdup("1")) &&
        add_metadata(file, strdup("generator"), strdup("tvm-pack " PACKAGE_VERSION));
    for (size_t i = from; good && i < w->part_count; i++)
        if (w->parts[i].kind == CK_PART_PACKED && w->parts[i].output == output)
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
        bool changed = tensor->change && (tensor->change->heads || tensor->change->added != 0);
        status = add_part(w, changed ? CK_PART_ROWS : CK_PART_COPY, NULL, tensor, output, "",
                          tensor->header->type, tensor->header->rank, tensor->header->shape, diags);
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
        w->pieces += ck_part_pieces(&w->parts[i]);
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

static const ck_part *part_of(const writer *w, uint64_t piece) {
    size_t low = 0, high = w->part_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(w->parts[middle].first_piece <= piece ? &low : &high) = middle;
    }
    return &w->parts[low];
}

static tvm_status write_piece(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags) {
    const writer *w = closure;
    const ck_part *part = part_of(w, piece);
    return ck_write_piece(part, &w->files[part->output].output, piece - part->first_piece, w->buffers[thread],
                          diags);
}

static tvm_status write_all(writer *w, tvm_diags *diags) {
    unsigned threads = tvm_work_threads(w->c->options->threads);
    if (threads > w->pieces) threads = w->pieces ? (unsigned)w->pieces : 1;
    w->buffers = calloc(threads, sizeof *w->buffers);
    bool good = w->buffers;
    for (unsigned i = 0; good && i < threads; i++) good = (w->buffers[i] = malloc(w->buffer_bytes + 64));
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
    if (!status) status = ck_choose_scales(c, diags);
    if (!status) status = ck_plan_export(c, diags);
    if (!status && c->folder) status = ck_find_beside(c, diags);
    bool made = false;
    if (!status && c->folder) status = make_folder(c, &made, diags);
    for (size_t i = 0; !status && i < c->file_count; i++) status = start_file(&w, i, diags);
    if (!status) status = write_all(&w, diags);
    for (size_t i = 0; !status && i < c->file_count; i++)
        status = tvm_output_commit(&w.files[i].output, diags);
    if (!status && c->folder && c->file_count > 1) status = write_index(&w, diags);
    if (!status && c->folder) status = ck_copy_beside(c, diags);
    if (!status) ck_tell_errors(c);
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
