/* What a program costs that does without Tilus VM: the cubin of a program's kernels, and the driver. */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen.h"
#include "cuda_driver.h"
#include "fileio.h"
#include "vbc.h"

typedef struct bare_code {
    uint8_t *cubin;
    size_t cubin_size;
    unsigned threads, shared_bytes;
} bare_code;

static inline double microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static inline int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, ascending);
    return samples[count / 2];
}

/* Translates kernel `name` of a bytecode file for a device of compute capability major.minor. */
static inline tvm_status bare_translate(const char *path, const char *name, int major, int minor,
                                        bare_code *code, tvm_diags *diags) {
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    tvm_target target;
    tvm_status status = tvm_vbc_read_file(path, &program, diags);
    if (!status) status = tvm_target_for_device(major, minor, &target, diags);
    if (!status) status = tvm_translate(program, target, &module, diags);
    if (!status) status = tvm_ptxas(module, NULL, diags);
    for (size_t i = 0; !status && i < module->kernel_count; i++) {
        if (strcmp(module->kernels[i].name, name)) continue;
        code->threads = module->kernels[i].abi.threads;
        code->shared_bytes = module->kernels[i].abi.shared_bytes;
        code->cubin = module->cubin;
        code->cubin_size = module->cubin_size;
        module->cubin = NULL;
        break;
    }
    tvm_module_free(module);
    tvm_ir_program_free(program);
    if (!status && !code->cubin)
        status = tvm_diag_add(diags, TVM_NOT_FOUND, NULL, NULL, "there is no kernel '%s'", name);
    return status;
}

static inline CUresult bare_load(const tvm_cuda_driver *driver, const bare_code *code, const char *name,
                                 CUmodule *module, CUfunction *function) {
    CUresult result = driver->module_load(module, code->cubin, 0, NULL, NULL);
    if (!result) result = driver->module_function(function, *module, name);
    if (!result && code->shared_bytes > 48 * 1024)
        result = driver->function_set(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      (int)code->shared_bytes);
    return result;
}

#endif
