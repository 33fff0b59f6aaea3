/* GGUF files for tests, made byte by byte as ggml's docs/gguf.md says. */
#ifndef TVM_TESTS_GGUF_KIT_H
#define TVM_TESTS_GGUF_KIT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GGUF_HEAD = 1 << 14, GGUF_DATA = 1 << 18, GGUF_U32 = 4, GGUF_STRING = 8, GGUF_ARRAY = 9 };

typedef struct gguf_file {
    uint8_t pairs[GGUF_HEAD], infos[GGUF_HEAD], data[GGUF_DATA];
    size_t pairs_size, infos_size, data_size;
    uint32_t version;
    uint64_t pair_count, tensor_count, alignment;
} gguf_file;

static inline void gguf_put(uint8_t *to, size_t *size, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) to[(*size)++] = (uint8_t)(value >> 8 * i);
}

static inline void gguf_put_string(uint8_t *to, size_t *size, const char *text) {
    gguf_put(to, size, strlen(text), 8);
    memcpy(to + *size, text, strlen(text));
    *size += strlen(text);
}

static inline void gguf_text(gguf_file *file, const char *key, const char *value) {
    gguf_put_string(file->pairs, &file->pairs_size, key);
    gguf_put(file->pairs, &file->pairs_size, GGUF_STRING, 4);
    gguf_put_string(file->pairs, &file->pairs_size, value);
    file->pair_count++;
}

static inline void gguf_number(gguf_file *file, const char *key, uint32_t value) {
    gguf_put_string(file->pairs, &file->pairs_size, key);
    gguf_put(file->pairs, &file->pairs_size, GGUF_U32, 4);
    gguf_put(file->pairs, &file->pairs_size, value, 4);
    file->pair_count++;
}

/* As tokenizers are. */
static inline void gguf_array(gguf_file *file, const char *key, const char *const *texts, uint64_t count) {
    gguf_put_string(file->pairs, &file->pairs_size, key);
    gguf_put(file->pairs, &file->pairs_size, GGUF_ARRAY, 4);
    gguf_put(file->pairs, &file->pairs_size, GGUF_STRING, 4);
    gguf_put(file->pairs, &file->pairs_size, count, 8);
    for (uint64_t i = 0; i < count; i++) gguf_put_string(file->pairs, &file->pairs_size, texts[i]);
    file->pair_count++;
}

static inline void gguf_start(gguf_file *file, const char *architecture) {
    static const char *const tokens[] = {"<s>", "", "\xe2\x96\x81the"};
    memset(file, 0, sizeof *file);
    file->version = 3;
    file->alignment = 32;
    gguf_text(file, "general.architecture", architecture);
    gguf_array(file, "tokenizer.ggml.tokens", tokens, 3);
}

/* A tensor of `rows` rows (0: a vector) of `columns` weights, of ggml's type of this number; its bytes,
 * zeros, which stay where they are. */
static inline uint8_t *gguf_tensor(gguf_file *file, const char *name, uint32_t type, uint64_t rows,
                                   uint64_t columns, size_t bytes) {
    uint64_t at = (file->data_size + file->alignment - 1) / file->alignment * file->alignment;
    gguf_put_string(file->infos, &file->infos_size, name);
    gguf_put(file->infos, &file->infos_size, rows ? 2 : 1, 4);
    gguf_put(file->infos, &file->infos_size, columns, 8);
    if (rows) gguf_put(file->infos, &file->infos_size, rows, 8);
    gguf_put(file->infos, &file->infos_size, type, 4);
    gguf_put(file->infos, &file->infos_size, at, 8);
    file->tensor_count++;
    if (at + bytes > GGUF_DATA) abort();
    file->data_size = at + bytes;
    return file->data + at;
}

/* The whole file, in memory of GGUF_DATA + 3 * GGUF_HEAD bytes; its size. */
static inline size_t gguf_bytes(const gguf_file *file, uint8_t *to) {
    size_t size = 0;
    memcpy(to, "GGUF", size = 4);
    gguf_put(to, &size, file->version, 4);
    gguf_put(to, &size, file->tensor_count, 8);
    gguf_put(to, &size, file->pair_count, 8);
    memcpy(to + size, file->pairs, file->pairs_size);
    size += file->pairs_size;
    memcpy(to + size, file->infos, file->infos_size);
    size += file->infos_size;
    while (size % file->alignment) to[size++] = 0;
    memcpy(to + size, file->data, file->data_size);
    return size + file->data_size;
}

static inline void gguf_write(const gguf_file *file, const char *path) {
    static uint8_t bytes[GGUF_DATA + 3 * GGUF_HEAD];
    size_t size = gguf_bytes(file, bytes);
    FILE *stream = fopen(path, "wb");
    if (!stream || fwrite(bytes, 1, size, stream) != size || fclose(stream)) abort();
}

#endif
