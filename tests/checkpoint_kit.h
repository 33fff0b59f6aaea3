/* Small checkpoints for tests: .safetensors files written here, byte by byte, and what an import made of
 * them, read back as tilusvm-weights(5) says. */
#ifndef TVM_TESTS_CHECKPOINT_KIT_H
#define TVM_TESTS_CHECKPOINT_KIT_H

#include "check_kit.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "matmul_reference.h"
#include "safetensors.h"
#include "types.h"

/* ---- writing ---- */

enum { KIT_ENTRIES = 16 };

typedef struct kit_entry {
    char name[128], dtype[16], shape[64];
    void *data;
    size_t bytes;
} kit_entry;

typedef struct kit_file {
    kit_entry entries[KIT_ENTRIES];
    int count;
} kit_file;

/* Takes `bytes` bytes, which begin as zeros; shape is "4,8". */
static inline void *kit_add(kit_file *file, const char *name, const char *dtype, const char *shape,
                            size_t bytes) {
    ck_assert_int_lt(file->count, KIT_ENTRIES);
    kit_entry *entry = &file->entries[file->count++];
    snprintf(entry->name, sizeof entry->name, "%s", name);
    snprintf(entry->dtype, sizeof entry->dtype, "%s", dtype);
    snprintf(entry->shape, sizeof entry->shape, "%s", shape);
    entry->data = calloc(bytes + 1, 1);
    entry->bytes = bytes;
    ck_assert_ptr_nonnull(entry->data);
    return entry->data;
}

static inline const char *kit_shape(int a, int b) {
    static char texts[8][32];
    static int next;
    char *text = texts[next++ % 8];
    if (b)
        snprintf(text, sizeof texts[0], "%d,%d", a, b);
    else
        snprintf(text, sizeof texts[0], "%d", a);
    return text;
}

static inline void kit_write_text(const char *path, const char *text) {
    FILE *stream = fopen(path, "w");
    ck_assert_ptr_nonnull(stream);
    fputs(text, stream);
    fclose(stream);
}

/* Writes the file and frees the entries. */
static inline void kit_write(kit_file *file, const char *path) {
    char header[4096] = "{";
    size_t at = 1, place = 0;
    for (int i = 0; i < file->count; i++) {
        const kit_entry *e = &file->entries[i];
        at += (size_t)snprintf(header + at, sizeof header - at,
                               "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                               i ? "," : "", e->name, e->dtype, e->shape, place, place + e->bytes);
        place += e->bytes;
    }
    at += (size_t)snprintf(header + at, sizeof header - at, "}");
    FILE *stream = fopen(path, "wb");
    ck_assert_ptr_nonnull(stream);
    for (int i = 0; i < 8; i++) fputc((int)(at >> 8 * i & 255), stream);
    fwrite(header, 1, at, stream);
    for (int i = 0; i < file->count; i++) {
        fwrite(file->entries[i].data, 1, file->entries[i].bytes, stream);
        free(file->entries[i].data);
    }
    ck_assert_int_eq(fclose(stream), 0);
    file->count = 0;
}

/* ---- reading ---- */

typedef struct kit_result {
    tvm_safetensors tensors;
    uint8_t *bytes;
} kit_result;

static inline kit_result kit_read(const char *path) {
    kit_result read;
    struct stat info;
    int descriptor = open(path, O_RDONLY);
    ck_assert_msg(descriptor >= 0, "there is no %s", path);
    ck_assert_int_eq(tvm_safetensors_read(descriptor, path, &read.tensors, NULL), TVM_OK);
    fstat(descriptor, &info);
    read.bytes = malloc((size_t)info.st_size);
    ck_assert_ptr_nonnull(read.bytes);
    ck_assert_int_eq(tvm_read_at(descriptor, path, read.bytes, (size_t)info.st_size, 0, NULL), TVM_OK);
    close(descriptor);
    return read;
}

static inline void kit_free(kit_result *read) {
    tvm_safetensors_free(&read->tensors);
    free(read->bytes);
}

static inline const tvm_safetensor *kit_find(const kit_result *read, const char *name, const char *suffix) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    return tvm_safetensors_find(&read->tensors, full);
}

static inline double kit_number(const kit_result *read, const tvm_safetensor *tensor, uint64_t index) {
    return tvm_decode(tensor->type, tvm_container_get(tensor->type, read->bytes + tensor->offset, index));
}

/* A layer, as its tensors and the description in the metadata say. */
typedef struct kit_layer {
    const kit_result *read;
    const tvm_safetensor *packed, *scales, *zeros, *order, *multiplier;
    tvm_dtype type, scale;
    const double *table; /* of what its codes mean; NULL: they are numbers */
    uint64_t group, k, n;
} kit_layer;

/* "key":"VALUE" of a JSON object of strings. */
static inline void kit_member(const char *json, const char *key, char value[64]) {
    char pattern[32];
    snprintf(pattern, sizeof pattern, "\"%s\":\"", key);
    const char *at = strstr(json, pattern);
    ck_assert_msg(at != NULL, "%s is not in %s", key, json);
    snprintf(value, 64, "%s", at + strlen(pattern));
    *strchr(value, '"') = '\0';
}

static inline kit_layer kit_open_layer(const kit_result *read, const char *name) {
    char value[64], key[128];
    kit_layer layer = {.read = read};
    snprintf(key, sizeof key, "%s.packed", name);
    const char *json = tvm_safetensors_metadata(&read->tensors, key);
    ck_assert_msg(json != NULL, "%s is not described", key);
    kit_member(json, "type", value);
    layer.table = weight_table(value);
    if (layer.table)
        layer.type = TVM_U(4);
    else
        ck_assert(tvm_dtype_parse(value, strlen(value), &layer.type));
    kit_member(json, "group", value);
    layer.group = strtoull(value, NULL, 10);
    layer.packed = kit_find(read, name, ".packed");
    layer.scales = kit_find(read, name, ".scales");
    layer.zeros = kit_find(read, name, ".zeros");
    layer.order = kit_find(read, name, ".order");
    layer.multiplier = kit_find(read, name, ".multiplier");
    ck_assert(layer.packed && layer.scales);
    kit_member(json, "scale", value);
    ck_assert(tvm_dtype_parse(value, strlen(value), &layer.scale));
    bool is_power = tvm_dtype_same(layer.scale, TVM_E8M0); /* which is U8 in the file */
    ck_assert(tvm_dtype_same(layer.scales->type, is_power ? TVM_U(8) : layer.scale));
    layer.k = layer.packed->shape[layer.packed->rank - 2];
    layer.n = layer.scales->shape[layer.scales->rank - 1];
    kit_member(json, "zero", value);
    bool mid = layer.type.kind == TVM_KIND_UINT && !layer.table;
    ck_assert_str_eq(value, layer.zeros ? "per-group" : mid ? "mid" : "none");
    return layer;
}

/* W[i, j] of matrix `index` of a stack, and the input that it multiplies. */
static inline double kit_weight(const kit_layer *layer, uint64_t index, uint64_t i, uint64_t j,
                                uint64_t *input) {
    const kit_result *read = layer->read;
    uint64_t width = layer->packed->shape[layer->packed->rank - 1];
    uint64_t at = (index * (layer->k / layer->group) + i / layer->group) * layer->n + j;
    uint64_t code = tvm_bits_get(read->bytes + layer->packed->offset + (index * layer->k + i) * width,
                                 j * layer->type.bits, layer->type.bits);
    double zero = layer->zeros                        ? kit_number(read, layer->zeros, at)
                  : layer->type.kind == TVM_KIND_UINT ? (double)(1u << (layer->type.bits - 1))
                                                      : 0;
    double level = layer->table ? layer->table[code] : tvm_decode(layer->type, code) - zero;
    uint64_t scale = tvm_container_get(layer->scale, read->bytes + layer->scales->offset, at);
    double value = level * tvm_decode(layer->scale, scale);
    *input = layer->order ? (uint64_t)kit_number(read, layer->order, i) : i;
    return value * (layer->multiplier ? kit_number(read, layer->multiplier, 0) : 1);
}

#endif
