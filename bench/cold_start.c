/* From a cold process with a warm cache to the first result, against the bare driver with the same cubin:
 * each run is a process of its own, which is timed from main to the result in host memory; the two kinds take
 * turns.
 *
 *   cold_start matmul_TYPE.vbc [RUNS]     15 runs each by default */
#include <unistd.h>

#include "bare.h"
#include "tvm.h"

enum { M = 16, N = 256, K = 256, DEFAULT_RUNS = 15, BUFFER = N * K, PATH = 64 };

/* Of one process, in microseconds: until the context and the buffers are there, from then to the result. */
typedef struct times {
    double context, result;
} times;

static int failed(const char *what, const char *why) {
    fprintf(stderr, "cold_start: %s: %s\n", what, why);
    return 1;
}

static int print_times(double start, double ready, double done) {
    printf("%.3f %.3f\n", ready - start, done - ready);
    return fflush(stdout) != 0;
}

/* ---- one process ---- */

static int run_tvm(const char *path) {
    double start = microseconds();
    tvm_context_options options = {.device = TVM_DEVICE_CUDA};
    tvm_context *context = NULL;
    tvm_program *program = NULL;
    tvm_kernel *matmul = NULL;
    uint16_t c[M * N];
    tvm_value values[7] = {{.i = M}, {.i = N}, {.i = K}};
    tvm_status status = tvm_context_create(&options, &context);
    for (int i = 3; !status && i < 7; i++) status = tvm_memory_alloc(context, BUFFER, &values[i].data);
    double ready = microseconds();
    if (!status) status = tvm_load_file(context, path, &program);
    if (!status) status = tvm_get_kernel(program, "matmul", &matmul);
    if (!status) status = tvm_launchv(matmul, NULL, values, 7);
    if (!status) status = tvm_memory_read(context, c, values[6].data, sizeof c);
    double done = microseconds();
    return status ? failed("tvm", tvm_message(context)) : print_times(start, ready, done);
}

static int run_bare(const char *path, const char *threads, const char *shared_bytes) {
    static uint8_t cubin[1 << 24];
    double start = microseconds();
    tvm_cuda_driver driver;
    tvm_diags diags = {0};
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUdeviceptr data[4];
    uint16_t c[M * N];
    int32_t sizes[3] = {M, N, K};
    void *arguments[7] = {&sizes[0], &sizes[1], &sizes[2], &data[0], &data[1], &data[2], &data[3]};
    if (tvm_cuda_driver_open(&driver, &diags)) return failed("driver", diags.items[0].message);
    CUresult result = driver.device_get(&device, 0);
    if (!result) result = driver.primary_retain(&context, device);
    if (!result) result = driver.context_push(context);
    for (int i = 0; !result && i < 4; i++) result = driver.memory_alloc(&data[i], BUFFER);
    double ready = microseconds();
    FILE *file = fopen(path, "rb");
    if (!file) return failed(path, "cannot be opened");
    size_t size = fread(cubin, 1, sizeof cubin, file);
    fclose(file);
    bare_code code = {cubin, size, (unsigned)atoi(threads), (unsigned)atoi(shared_bytes)};
    if (!result)
        result = size ? bare_load(&driver, &code, "matmul", &module, &function) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result =
            driver.launch(function, 1, 1, 1, code.threads, 1, 1, code.shared_bytes, NULL, arguments, NULL);
    if (!result) result = driver.memory_read(c, data[3], sizeof c);
    double done = microseconds();
    return result ? failed("bare", "the driver refuses") : print_times(start, ready, done);
}

/* ---- the processes ---- */

static times run_process(const char *command) {
    times t = {0};
    FILE *output = popen(command, "r");
    bool good = output && fscanf(output, "%lf %lf", &t.context, &t.result) == 2;
    if (!output || pclose(output) || !good) exit(failed(command, "failed"));
    return t;
}

/* Writes the cubin to `path`. */
static bare_code make_cubin(const char *bytecode, const char *path) {
    tvm_cuda_driver driver;
    tvm_diags diags = {0};
    CUdevice device;
    bare_code code = {0};
    int major = 0, minor = 0;
    tvm_status status = tvm_cuda_driver_open(&driver, &diags);
    if (!status && (driver.device_get(&device, 0) ||
                    driver.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) ||
                    driver.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)))
        exit(failed("device 0", "cannot be used"));
    if (!status) status = bare_translate(bytecode, "matmul", major, minor, &code, &diags);
    if (!status) status = tvm_file_write(path, code.cubin, code.cubin_size, &diags);
    if (status) {
        tvm_diags_print(&diags, stderr, "cold_start", false);
        exit(1);
    }
    return code;
}

static void print_median(const char *name, times *all, int runs, times *middle) {
    double *samples = calloc((size_t)runs, sizeof *samples);
    if (!samples) exit(failed("calloc", "out of memory"));
    for (int i = 0; i < runs; i++) samples[i] = all[i].context;
    middle->context = median(samples, (size_t)runs);
    for (int i = 0; i < runs; i++) samples[i] = all[i].result;
    middle->result = median(samples, (size_t)runs);
    printf("%-5s context and buffers %9.3f ms, from there to the result %7.3f ms\n", name,
           middle->context * 1e-3, middle->result * 1e-3);
    free(samples);
}

static int compare(const char *self, const char *bytecode, int runs) {
    char cubin[PATH], tvm[4096], bare[4096];
    times *of_tvm = calloc((size_t)runs, sizeof *of_tvm), *of_bare = calloc((size_t)runs, sizeof *of_bare), a,
          b;
    if (!of_tvm || !of_bare) return failed("calloc", "out of memory");
    snprintf(cubin, sizeof cubin, "/tmp/tilusvm-cold-start-%ld.cubin", (long)getpid());
    bare_code code = make_cubin(bytecode, cubin);
    snprintf(tvm, sizeof tvm, "'%s' --tvm '%s'", self, bytecode);
    snprintf(bare, sizeof bare, "'%s' --bare %s %u %u", self, cubin, code.threads, code.shared_bytes);
    run_process(tvm); /* fills the cache */
    run_process(bare);
    for (int i = 0; i < runs; i++) {
        of_tvm[i] = run_process(tvm);
        of_bare[i] = run_process(bare);
    }
    unlink(cubin);
    print_median("tvm", of_tvm, runs, &a);
    print_median("bare", of_bare, runs, &b);
    printf("more by %.3f ms and %.3f ms\n", (a.context - b.context) * 1e-3, (a.result - b.result) * 1e-3);
    free(of_tvm);
    free(of_bare);
    free(code.cubin);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--tvm")) return run_tvm(argv[2]);
    if (argc == 5 && !strcmp(argv[1], "--bare")) return run_bare(argv[2], argv[3], argv[4]);
    int runs = argc == 3 ? atoi(argv[2]) : DEFAULT_RUNS;
    if (argc < 2 || argc > 3 || runs < 1) {
        fprintf(stderr, "usage: cold_start matmul_TYPE.vbc [RUNS]\n");
        return 2;
    }
    return compare(argv[0], argv[1], runs);
}
