/* tvm-pack: bytes of f16 input a second and core, for every type of weights, in plain rows and in the layout
 * of programs/matmul.vasminc. One thread, processor time; the input lies in the page cache; the best of three
 * runs.
 *
 *   bench_pack PROGRAM.vasm [K N [GROUP [TYPE...]]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "assembler.h"
#include "convert.h"
#include "fileio.h"
#include "npy.h"
#include "pack.h"
#include "vbc.h"

enum { REPEATS = 3 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tvm_status make_weights(const char *path, uint64_t k, uint64_t n, tvm_diags *diags) {
    tvm_npy npy = {.kind = 'f', .item = 2, .rank = 2, .shape = {k, n}, .bytes = k * n * 2};
    uint16_t *weights = malloc(npy.bytes);
    if (!weights) return tvm_diag_no_memory(diags);
    uint64_t state = 1;
    for (uint64_t i = 0; i < k * n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        weights[i] = tvm_f32_to_f16((float)(int32_t)(state >> 32) * 0x1p-34f);
    }
    tvm_status status = tvm_npy_write(path, &npy, weights, diags);
    free(weights);
    return status;
}

/* The program for weights of this type, to a file. */
static tvm_status make_program(const char *source, const char *type, const char *path, tvm_diags *diags) {
    char define[64];
    snprintf(define, sizeof define, "WTYPE=%s", type);
    const char *defines[] = {define};
    tvm_assembler_options options = {.defines = defines, .define_count = 1};
    uint8_t *text;
    size_t size;
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_file_read(source, 1 << 20, &text, &size, diags);
    if (status) return status;
    status = tvm_assemble_text((const char *)text, size, source, &options, &program, diags);
    if (!status) status = tvm_vbc_write_file(program, path, false, diags);
    tvm_ir_program_free(program);
    free(text);
    return status;
}

static tvm_status measure(const pack_options *options, double *best, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    *best = 1e30;
    for (int i = 0; !status && i < REPEATS; i++) {
        double start = now();
        status = tvm_pack(options, diags);
        double seconds = now() - start;
        if (seconds < *best) *best = seconds;
    }
    return status;
}

static tvm_status bench(const char *source, const char *folder, tvm_dtype type, pack_options options,
                        double bytes, tvm_diags *diags) {
    char name[TVM_DTYPE_NAME_MAX], program[256];
    double plain, laid;
    tvm_dtype_name(type, name);
    snprintf(program, sizeof program, "%s/program.vbc", folder);
    tvm_status status = make_program(source, name, program, diags);
    options.type = type;
    if (!status) status = measure(&options, &plain, diags);
    options.layout = program;
    if (!status) status = measure(&options, &laid, diags);
    if (!status)
        printf("%-8s plain %5.2f GB/s   layout %5.2f GB/s\n", name, bytes / plain * 1e-9,
               bytes / laid * 1e-9);
    fflush(stdout);
    unlink(program);
    return status;
}

static bool wanted(int argc, char **argv, tvm_dtype type) {
    char name[TVM_DTYPE_NAME_MAX];
    if (!tvm_dtype_is_lowbit(type)) return false;
    bool any = argc <= 5;
    for (int i = 5; i < argc; i++) any = any || !strcmp(argv[i], tvm_dtype_name(type, name));
    return any;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: bench_pack PROGRAM.vasm [K N [GROUP [TYPE...]]]\n");
        return 2;
    }
    uint64_t k = argc > 3 ? strtoull(argv[2], NULL, 10) : 8192,
             n = argc > 3 ? strtoull(argv[3], NULL, 10) : 8192;
    char folder[] = "/tmp/tvm-bench-pack-XXXXXX", input[64], output[64];
    if (!mkdtemp(folder)) return 1;
    snprintf(input, sizeof input, "%s/w.npy", folder);
    snprintf(output, sizeof output, "%s/w.tvmw", folder);
    tvm_diags diags = {0};
    pack_options options = {.input = input,
                            .output = output,
                            .group = argc > 4 ? strtoull(argv[4], NULL, 10) : 128,
                            .scale_type = TVM_F16,
                            .threads = 1};
    tvm_status status = make_weights(input, k, n, &diags);
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; !status && i < count; i++)
        if (wanted(argc, argv, types[i]))
            status = bench(argv[1], folder, types[i], options, (double)(k * n) * 2, &diags);
    unlink(input);
    unlink(output);
    rmdir(folder);
    if (status) tvm_diags_print(&diags, stderr, "bench_pack", false);
    tvm_diags_free(&diags);
    return status ? 1 : 0;
}
