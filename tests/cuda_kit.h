/* What suites of the CUDA device share: the fake driver, a stand-in for ptxas, a folder of their own
 * and a small program. */
#ifndef TVM_TESTS_CUDA_KIT_H
#define TVM_TESTS_CUDA_KIT_H

#include "check_kit.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "fake_cuda.h"
#include "folder_kit.h"
#include "runtime.h"
#include "vbc.h"

/* y = x * f, which the interpreter computes and the fake driver does not. */
#define KIT_SCALE(grid)                                                                                      \
    ".kernel scale(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"                                    \
    ".warps 2\n"                                                                                             \
    ".grid " grid "\n"                                                                                       \
    "    %vx = load-global x[block.x * 256], spatial(64).local(4)\n"                                         \
    "    %vy = mul %vx, f\n"                                                                                 \
    "    store-global y[block.x * 256], %vy\n"                                                               \
    ".end\n"
/* Asks for 64 KiB of shared memory. */
#define KIT_SHARED                                                                                           \
    ".kernel shared(n: i32, x: global f32[n])\n"                                                             \
    ".warps 1\n"                                                                                             \
    ".grid 1\n"                                                                                              \
    "    %vs = alloc-shared f32[128, 128]\n"                                                                 \
    "    %vx = load-global x[0], spatial(32).local(4)\n"                                                     \
    "    store-shared %vs[5, 0], %vx\n"                                                                      \
    "    sync\n"                                                                                             \
    "    %vy = load-shared %vs[5, 0], spatial(32).local(4)\n"                                                \
    "    store-global x[0], %vy\n"                                                                           \
    ".end\n"

static const char kit_source[] = ".vasm 1\n" KIT_SCALE("cdiv(n, 256)") KIT_SHARED
    ".kernel tensors(n: i32)\n"
    ".warps 1\n"
    ".grid multiprocessors\n"
    "    %va = alloc-global f32[grid.x, n]\n"
    "    %vc = alloc-global u32[n], clean\n"
    "    %vx = load-global %va[block.x, 0], spatial(1, 4).replicated(8)\n"
    ".end\n"
    ".entry any\n"
    ".case tensors if n > 0 && target != 1\n"
    ".end\n";

typedef struct cuda_kit {
    char folder[64], cache[80];
    uint8_t *bytecode;
    size_t bytecode_size;
    const fake_cuda_control *driver; /* NULL: built without cuda.h */
} cuda_kit;

static inline void kit_open_driver(cuda_kit *kit) {
    kit->driver = NULL;
#ifdef HAVE_CUDA_H
    /* Opened by its path once, it is the libcuda.so.1 of this process. */
    void *library = dlopen("tests/fake/libcuda.so.1", RTLD_NOW);
    if (!library) ck_abort_msg("%s", dlerror());
    kit->driver = dlsym(library, "fake_cuda");
    ck_assert_ptr_nonnull(kit->driver);
#endif
}

/* With this program. */
static inline void kit_setup_with(cuda_kit *kit, const char *source) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    folder_make(kit->folder);
    folder_ptxas(kit->folder, "99.0, V99.0.1");
    snprintf(kit->cache, sizeof kit->cache, "%s/cache", kit->folder);
    kit_open_driver(kit);
    tvm_status status = tvm_assemble_text(source, strlen(source), "kit.vasm", NULL, &program, &diags);
    ck_assert_msg(status == TVM_OK, "%s", status ? diags.items[0].message : "");
    ck_assert_int_eq(tvm_vbc_write(program, false, &kit->bytecode, &kit->bytecode_size, &diags), TVM_OK);
    tvm_ir_program_free(program);
}

static inline void kit_setup(cuda_kit *kit) {
    kit_setup_with(kit, kit_source);
}

static inline void kit_teardown(cuda_kit *kit) {
    free(kit->bytecode);
    folder_remove(kit->folder);
}

#endif
