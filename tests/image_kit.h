/* A program with code embedded for some targets, made by a stand-in for ptxas, and where the code that a
 * device gets comes from. */
#ifndef TVM_TESTS_IMAGE_KIT_H
#define TVM_TESTS_IMAGE_KIT_H

#include "check_kit.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "assembler_kit.h"
#include "embed.h"
#include "folder_kit.h"
#include "image.h"
#include "runtime.h"
#include "suite_kit.h"
#include "vbc.h"
#include "vbc_format.h"

#define KERNEL(factor) KERNEL_FOR(factor, "")
#define KERNEL_FOR(factor, assume)                                                                           \
    ".vasm 1\n"                                                                                              \
    ".kernel scale(n: i32, x: global f32[n])\n"                                                              \
    ".warps 4\n"                                                                                             \
    ".grid cdiv(n, 512)\n" assume "    %vs = alloc-shared f32[4, 128]\n"                                     \
    "    %vx = load-global x[block.x * 512], spatial(128).local(4)\n"                                        \
    "    %vy = mul %vx, " factor "\n"                                                                        \
    "    store-global x[block.x * 512], %vy\n"                                                               \
    ".end\n"

static char folder[64], script_path[128], log_path[128];
static tvm_ir_program *program;
static tvm_diags diags, warnings;
static tvm_image image;

static inline void set_up(void) {
    folder_make(folder);
    folder_ptxas(folder, "99.0, V99.0.1");
    snprintf(script_path, sizeof script_path, "%s/ptxas", folder);
    snprintf(log_path, sizeof log_path, "%s/ptxas.log", folder);
    unsetenv("TVM_NVJITLINK");
    diags = (tvm_diags){0};
    warnings = (tvm_diags){0};
    image = (tvm_image){0};
    program = assemble(KERNEL("3.0"));
}

static inline void tear_down(void) {
    tvm_image_free(&image);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    tvm_diags_free(&warnings);
    folder_remove(folder);
}

/* How many lines of the ptxas' log have this. */
static inline int logged(const char *part) {
    char line[256];
    int count = 0;
    FILE *log = fopen(log_path, "r");
    while (log && fgets(line, sizeof line, log)) count += strstr(line, part) != NULL;
    if (log) fclose(log);
    return count;
}

static inline void embed(const char *list) {
    tvm_target targets[TVM_EMBED_MAX];
    tvm_ptx_compiler compiler;
    size_t count;
    ck_assert_int_eq(tvm_embed_parse(list, targets, &count, &diags), TVM_OK);
    ck_assert_int_eq(tvm_ptx_compiler_find(&compiler, NULL, &diags), TVM_OK);
    ck_assert_int_eq(tvm_ptx_compiler_ask(&compiler, &diags), TVM_OK);
    tvm_status status = tvm_embed(program, targets, count, &compiler, 0, &diags);
    tvm_ptx_compiler_free(&compiler);
    ck_assert_msg(status == TVM_OK, "%s", status ? diags.items[0].message : "");
    unlink(log_path);
}

/* Written to bytes and read again. */
static inline void through_the_file(void) {
    uint8_t *bytes;
    size_t size;
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_LINES | TVM_VBC_IMAGES, &bytes, &size, &diags), TVM_OK);
    tvm_ir_program_free(program);
    program = NULL;
    ck_assert_int_eq(tvm_vbc_read(bytes, size, "t.vbc", &program, &diags), TVM_OK);
    free(bytes);
}

static inline void no_compiler(void) {
    setenv("TVM_PTXAS", "/nowhere/ptxas", 1);
}

/* Makes the image for a device of this capability and says where it comes from. */
static inline const char *origin_of(unsigned asked, unsigned capability) {
    static char origin[TVM_IMAGE_ORIGIN_MAX];
    tvm_image_request request = {.program = program, .capability = capability};
    tvm_image_free(&image);
    ck_assert_int_eq(tvm_target_asked(asked, capability, &request.target, &diags), TVM_OK);
    tvm_status status = tvm_image_embedded(&request, &image, &warnings, &diags);
    if (!status && !image.code) status = tvm_image_make(&request, &image, &warnings, &diags);
    ck_assert_msg(status == TVM_OK, "%s", status ? diags.items[0].message : "");
    ck_assert_uint_eq(image.kernel_count, 1);
    ck_assert_uint_eq(image.kernels[0].threads, 128);
    ck_assert_uint_eq((uintptr_t)image.code % 16, 0);
    ck_assert_uint_eq(((const char *)image.code)[image.code_size], 0);
    return tvm_image_origin(&image, origin);
}

static inline const char *origin_on(unsigned capability) {
    return origin_of(capability, capability);
}

#define BY ", by ptxas release 99.0, V99.0.1"

static inline uint8_t *images_section(uint8_t *bytes, size_t *size, uint8_t **entry) {
    for (*entry = bytes + VBC_HEADER_SIZE; memcmp(*entry, "IMGS", VBC_TAG_SIZE) != 0;)
        *entry += VBC_ENTRY_SIZE;
    uint64_t offset, length;
    memcpy(&offset, *entry + 8, 8);
    memcpy(&length, *entry + 16, 8);
    *size = length;
    return bytes + offset;
}

#ifdef HAVE_CUDA_H

/* ---- through tvm.h, on a driver without a GPU */

static tvm_context *context;
static tvm_program *loaded;

static inline tvm_status prepare(void) {
    uint8_t *bytes;
    size_t size;
    if (!dlopen("tests/fake/libcuda.so.1", RTLD_NOW)) ck_abort_msg("%s", dlerror());
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &bytes, &size, &diags), TVM_OK);
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = ""};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_int_eq(tvm_load(context, bytes, size, &loaded), TVM_OK);
    free(bytes);
    ck_assert_str_eq(tvm_code_origin(loaded), "");
    return tvm_prepare(tvm_kernel_at(loaded, 0));
}

#endif

#endif
