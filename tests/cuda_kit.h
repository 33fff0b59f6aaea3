/* What suites of the CUDA device share: the fake driver, a ptxas that writes a stub, a folder of their own
 * and a small program. */
#ifndef TVM_TESTS_CUDA_KIT_H
#define TVM_TESTS_CUDA_KIT_H

#include <check.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "assembler.h"
#include "fake_cuda.h"
#include "runtime.h"
#include "vbc.h"

/* y = x * f, which the interpreter computes and the fake driver does not; the second kernel asks for 64 KiB
 * of shared memory. */
static const char kit_source[] = ".vasm 1\n"
                                 ".kernel scale(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
                                 ".warps 2\n"
                                 ".grid cdiv(n, 256)\n"
                                 "    %vx = load-global x[block.x * 256], spatial(64).local(4)\n"
                                 "    %vy = mul %vx, f\n"
                                 "    store-global y[block.x * 256], %vy\n"
                                 ".end\n"
                                 ".kernel shared(n: i32, x: global f32[n])\n"
                                 ".warps 1\n"
                                 ".grid 1\n"
                                 "    %vs = alloc-shared f32[128, 128]\n"
                                 "    %vx = load-global x[0], spatial(32).local(4)\n"
                                 "    store-shared %vs[5, 0], %vx\n"
                                 "    sync\n"
                                 "    %vy = load-shared %vs[5, 0], spatial(32).local(4)\n"
                                 "    store-global x[0], %vy\n"
                                 ".end\n"
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
    char folder[64], cache[80], ptxas[80];
    uint8_t *bytecode;
    size_t bytecode_size;
    const fake_cuda_control *driver; /* NULL: built without cuda.h */
} cuda_kit;

static inline void kit_write_ptxas(const cuda_kit *kit) {
    FILE *script = fopen(kit->ptxas, "w");
    ck_assert_ptr_nonnull(script);
    fputs("#!/bin/sh\ncase $1 in --version) echo 'Cuda compilation tools, release 99.0, V99.0.1';;\n"
          "*) printf '\\177ELF stub' >\"$4\";; esac\n",
          script);
    ck_assert_int_eq(fclose(script), 0);
    ck_assert_int_eq(chmod(kit->ptxas, 0700), 0);
    setenv("TVM_PTXAS", kit->ptxas, 1);
}

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

static inline void kit_setup(cuda_kit *kit) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    strcpy(kit->folder, "/tmp/tvm-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(kit->folder));
    snprintf(kit->cache, sizeof kit->cache, "%s/cache", kit->folder);
    snprintf(kit->ptxas, sizeof kit->ptxas, "%s/ptxas", kit->folder);
    kit_write_ptxas(kit);
    kit_open_driver(kit);
    ck_assert_int_eq(tvm_assemble_text(kit_source, sizeof kit_source - 1, "kit.vasm", NULL, &program, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_vbc_write(program, false, &kit->bytecode, &kit->bytecode_size, &diags), TVM_OK);
    tvm_ir_program_free(program);
}

static inline void kit_remove(const char *path) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    ck_assert_int_eq(system(command), 0);
}

static inline void kit_teardown(cuda_kit *kit) {
    free(kit->bytecode);
    kit_remove(kit->folder);
}

#endif
