/* launch_shipped FILE.vbc[:KERNEL]...: every kernel of the files, or the one of that name, on the GPU, at
 * small sizes that fill no tile; those that read page tables, lengths and the like once more with numbers
 * that lead nowhere. What it computes is not looked at: it is run under compute-sanitizer
 * (tests/gpu/sanitize). */
#include "shipped_launch.h"

enum { LAUNCHES = 3 /* of a kernel, at most */ };

static const size_of odd_sizes[] = {
    {3, 72, 64, 640, 2},  {37, 200, 256, 1280, 2}, {150, 136, 128, 512, 2}, {70, 64, 64, 0, 2},
    {77, 80, 80, 0, 2},   {70, 96, 96, 0, 2},      {133, 128, 128, 0, 2},   {70, 192, 128, 0, 2},
    {70, 256, 256, 0, 2}, {3, 512, 512, 0, 2},     {17, 1024, 1024, 0, 2},  {1, 4096, 4096, 0, 2},
    {7, 33, 33, 0, 2},    {5, 8192, 64, 0, 2},     {2, 16384, 64, 0, 2},    {70, 128, 128, 0, 8},
};

static bool launch_all(tvm_context *context, char *path) {
    tvm_program *program = NULL;
    unsigned kernels = 0, launches = 0;
    char *only = strstr(path, ".vbc:");
    if (only) only += strlen(".vbc"), *only++ = '\0';
    bool good = tvm_load_file(context, path, &program) == TVM_OK;
    if (!good) fprintf(stderr, "%s: %s\n", path, tvm_message(context));
    for (size_t k = 0; good && k < tvm_kernel_count(program); k++) {
        tvm_kernel *kernel = tvm_kernel_at(program, k);
        unsigned served = 0;
        if (only && strcmp(only, tvm_kernel_name(kernel)) != 0) continue;
        for (size_t s = 0; good && s < sizeof odd_sizes / sizeof *odd_sizes && served < LAUNCHES; s++) {
            tvm_status status = shipped_launch_kernel(context, kernel, &odd_sizes[s], 1, false);
            if (status == TVM_OK && shipped_has_numbers(kernel))
                status = shipped_launch_kernel(context, kernel, &odd_sizes[s], 1, true);
            served += status == TVM_OK;
            good = status == TVM_OK || status == TVM_ARGUMENT;
        }
        if (served == 0) printf("%s: %s: not launched\n", path, tvm_kernel_name(kernel));
        kernels += served > 0;
        launches += served;
    }
    printf("%s: %u kernels, %u launches\n", path, kernels, launches);
    tvm_program_free(program);
    return good && launches > 0;
}

int main(int argc, char **argv) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = ""};
    tvm_context *context = NULL;
    bool good = tvm_context_create(&options, &context) == TVM_OK;
    if (!good) fprintf(stderr, "%s\n", tvm_message(context));
    for (int i = 1; good && i < argc; i++) good = launch_all(context, argv[i]);
    tvm_context_free(context);
    return good && argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
