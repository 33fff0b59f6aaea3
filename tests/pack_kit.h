/* What the tests of tvm-pack share: inputs, results, programs. */
#ifndef TVM_TESTS_PACK_KIT_H
#define TVM_TESTS_PACK_KIT_H

#include "check_kit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assembler.h"
#include "npy.h"
#include "own_folder_kit.h"
#include "pack.h"
#include "safetensors.h"
#include "vbc.h"

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* ---- inputs ---- */

/* Codes of a 16- or 32-bit float type, or bytes. */
static inline void write_npy(const char *path, tvm_dtype type, uint64_t rows, uint64_t columns,
                             const void *data) {
    tvm_npy npy = {.kind = tvm_dtype_same(type, TVM_BF16) ? 'V'
                           : type.kind == TVM_KIND_FLOAT  ? 'f'
                           : type.kind == TVM_KIND_INT    ? 'i'
                                                          : 'u',
                   .item = type.bits / 8u,
                   .rank = 2,
                   .shape = {rows, columns}};
    npy.bytes = rows * columns * npy.item;
    ck_assert_int_eq(tvm_npy_write(path, &npy, data, NULL), TVM_OK);
}

/* Rounds the values to the type, in place, and writes them. */
static inline void write_weights(const char *path, tvm_dtype type, uint64_t rows, uint64_t columns,
                                 double *values, bool transposed) {
    uint8_t *data = malloc(rows * columns * 4);
    ck_assert_ptr_nonnull(data);
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < columns; j++) {
            uint64_t code = tvm_encode(type, values[i * columns + j]);
            values[i * columns + j] = tvm_decode(type, code);
            tvm_container_set(type, data, transposed ? j * rows + i : i * columns + j, code);
        }
    write_npy(path, type, transposed ? columns : rows, transposed ? rows : columns, data);
    free(data);
}

static inline double *random_weights(uint64_t count, double size, uint64_t seed) {
    double *values = malloc(count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (uint64_t i = 0; i < count; i++) values[i] = ((double)next_random(&seed) * 0x1p-30 - 1) * size;
    return values;
}

static inline void write_text(const char *path, const char *text, size_t size) {
    FILE *stream = fopen(path, "wb");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(text, 1, size, stream), size);
    fclose(stream);
}

/* ---- results ---- */

typedef struct packed {
    tvm_safetensors tensors;
    uint8_t *file;
} packed;

static inline packed read_packed(const char *path) {
    packed read;
    struct stat info;
    int descriptor = open(path, O_RDONLY);
    ck_assert_int_ge(descriptor, 0);
    ck_assert_int_eq(tvm_safetensors_read(descriptor, path, &read.tensors, NULL), TVM_OK);
    fstat(descriptor, &info);
    read.file = malloc((size_t)info.st_size);
    ck_assert_ptr_nonnull(read.file);
    ck_assert_int_eq(tvm_read_at(descriptor, path, read.file, (size_t)info.st_size, 0, NULL), TVM_OK);
    close(descriptor);
    return read;
}

static inline const uint8_t *data_of(const packed *read, const char *name) {
    const tvm_safetensor *tensor = tvm_safetensors_find(&read->tensors, name);
    if (!tensor) ck_abort_msg("there is no %s", name); /* called so often that ck_assert takes its time */
    return read->file + tensor->offset;
}

static inline void free_packed(packed *read) {
    tvm_safetensors_free(&read->tensors);
    free(read->file);
}

static inline void pack_well(const pack_options *options) {
    tvm_diags diags = {0};
    tvm_status status = tvm_pack(options, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    tvm_diags_free(&diags);
}

static inline bool folder_has(const char *name) {
    struct stat info;
    return stat(in_folder(name), &info) == 0;
}

static inline int files_in_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "test -z \"$(ls -A %s | grep -v '^[wspm][.]')\"", folder);
    return system(command);
}

/* Refused with this text, and nothing is left behind. */
static inline void pack_badly(const pack_options *options, const char *says) {
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_pack(options, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, says) != NULL, "'%s' is not said: %s", says,
                  diags.items[0].message);
    tvm_diags_free(&diags);
    ck_assert(!folder_has("out"));
    ck_assert_int_eq(files_in_folder(), 0);
}

static inline double *unpack_to(const pack_options *packing, tvm_dtype to, const char *name, uint64_t count) {
    pack_options options = {.input = packing->output,
                            .output = in_folder(name),
                            .layout = packing->layout,
                            .type = to,
                            .threads = 2};
    tvm_diags diags = {0};
    tvm_status status = tvm_unpack(&options, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    tvm_diags_free(&diags);
    FILE *stream = fopen(options.output, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t bytes = count * to.bits / 8;
    uint8_t *data = malloc(bytes);
    double *values = malloc(count * sizeof *values);
    ck_assert(data && values);
    ck_assert_int_eq(fseek(stream, -(long)bytes, SEEK_END), 0);
    ck_assert_uint_eq(fread(data, 1, bytes, stream), bytes);
    fclose(stream);
    for (uint64_t i = 0; i < count; i++) values[i] = tvm_decode(to, tvm_container_get(to, data, i));
    free(data);
    unlink(options.output);
    return values;
}

/* ---- programs ---- */

static inline void assemble(const char *path, const char *text, size_t size, const char *name,
                            const char *define) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_assembler_options options = {.defines = &define, .define_count = define != NULL};
    tvm_status status = tvm_assemble_text(text, size, name, &options, &program, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "no message");
    ck_assert_int_eq(tvm_vbc_write_file(program, path, false, NULL), TVM_OK);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

static inline void assemble_matmul(const char *path, tvm_dtype type) {
    const char *top = getenv("srcdir");
    char define[64], name[TVM_DTYPE_NAME_MAX], source[512], text[4096];
    snprintf(define, sizeof define, "WTYPE=%s", tvm_dtype_name(type, name));
    snprintf(source, sizeof source, "%s/programs/matmul_u3.vasm", top ? top : ".");
    FILE *stream = fopen(source, "rb");
    ck_assert_ptr_nonnull(stream);
    size_t size = fread(text, 1, sizeof text, stream);
    fclose(stream);
    assemble(path, text, size, source, define);
}

#endif
