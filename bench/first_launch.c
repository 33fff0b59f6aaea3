/* From program load to first launch, context creation aside: run it twice, and the second run finds the cubin
 * in the cache.
 *
 *   first_launch matmul_TYPE.vbc [cpu|cuda] */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tvm.h"

enum { M = 16, N = 1024, K = 1024 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: first_launch FILE.vbc [cpu|cuda]\n");
        return 2;
    }
    tvm_context_options options = {.device = argc == 3 && strcmp(argv[2], "cpu") == 0 ? TVM_DEVICE_CPU
                                                                                      : TVM_DEVICE_CUDA};
    tvm_context *context = NULL;
    tvm_program *program = NULL;
    tvm_kernel *matmul = NULL;
    tvm_value values[7] = {{.i = M}, {.i = N}, {.i = K}, {0}, {0}, {0}, {0}};
    double start = now();
    tvm_status status = tvm_context_create(&options, &context);
    double created = now();
    /* As much as any of the tensors needs, with weights of 8 bits. */
    for (int i = 3; status == TVM_OK && i < 7; i++)
        status = tvm_memory_alloc(context, (size_t)N * K, &values[i].data);
    double ready = now(), loaded = 0, launched = 0;
    if (status == TVM_OK) status = tvm_load_file(context, argv[1], &program);
    if (status == TVM_OK) status = tvm_get_kernel(program, "matmul", &matmul);
    loaded = now();
    if (status == TVM_OK) status = tvm_launchv(matmul, NULL, values, 7);
    launched = now();
    if (status == TVM_OK) status = tvm_synchronize(context, NULL);
    if (status == TVM_OK)
        printf("%s: context %.1f ms; program load %.3f ms, to first launch %.3f ms\n",
               tvm_device_name(context), created - start, loaded - ready, launched - ready);
    else
        fprintf(stderr, "%s\n", tvm_message(context));
    for (int i = 3; i < 7; i++)
        if (values[i].data != NULL) tvm_memory_free(context, values[i].data);
    tvm_program_free(program);
    tvm_context_free(context);
    return status != TVM_OK;
}
