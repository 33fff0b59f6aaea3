/* Translation and compilation of 100 variants of the matmul by 1, 2, 4, ... threads, one a processor at most,
 * with each compiler of PTX that there is: how it scales with the cores.
 *
 *   translate_parallel FOLDER-OF-PROGRAMS [TARGET [THREADS]] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "assembler.h"
#include "fileio.h"
#include "nvjitlink.h"
#include "ptx_compiler.h"

enum { VARIANTS = 100, MAX_THREADS = 256 };

typedef struct work {
    tvm_ir_program *programs[VARIANTS];
    tvm_target target;
    const tvm_ptx_compiler *compiler;
    atomic_uint next, failed;
} work;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Widths, block shapes, groups and activations that differ from variant to variant. */
static tvm_status assemble_variant(const char *folder, const char *text, size_t size, unsigned i,
                                   tvm_ir_program **program, tvm_diags *diags) {
    static const char *const types[] = {"u1", "u2", "u3", "u4", "u8", "i4", "i5", "i6", "f4_e2m1", "f6_e3m2"};
    char type[32], shape[16], group[16], activations[16];
    const char *defines[] = {type, shape, group, activations};
    snprintf(type, sizeof type, "WTYPE=%s", types[i % 10]);
    snprintf(shape, sizeof shape, "BM=%u", i / 10 % 2 ? 32u : 16u);
    snprintf(group, sizeof group, "GROUP=%u", i / 20 % 2 ? 64u : 128u);
    snprintf(activations, sizeof activations, "ATYPE=%s", i / 40 % 2 ? "bf16" : "f16");
    /* The last twenty have stages of their own. */
    if (i >= 80) snprintf(activations, sizeof activations, "STAGES=4");
    tvm_assembler_options options = {
        .include_dirs = &folder, .include_dir_count = 1, .defines = defines, .define_count = 4};
    return tvm_assemble_text(text, size, "matmul.vasm", &options, program, diags);
}

static void *translate(void *argument) {
    work *w = argument;
    for (unsigned i = atomic_fetch_add(&w->next, 1); i < VARIANTS; i = atomic_fetch_add(&w->next, 1)) {
        tvm_module *module = NULL;
        tvm_diags diags = {0};
        tvm_status status = tvm_translate(w->programs[i], w->target, &module, &diags);
        if (!status) status = tvm_ptx_compile(w->compiler, module, &diags);
        if (status && !atomic_fetch_add(&w->failed, 1))
            tvm_diags_print(&diags, stderr, "translate_parallel", false);
        tvm_module_free(module);
        tvm_diags_free(&diags);
    }
    return NULL;
}

static double seconds_with(work *w, unsigned threads) {
    pthread_t others[MAX_THREADS];
    unsigned started = 0;
    atomic_store(&w->next, 0);
    double start = now();
    while (started + 1 < threads && !pthread_create(&others[started], NULL, translate, w)) started++;
    translate(w);
    for (unsigned i = 0; i < started; i++) pthread_join(others[i], NULL);
    return now() - start;
}

static void measure(work *w, const char *name, unsigned most) {
    double one = 0;
    for (unsigned threads = 1; threads <= most && !atomic_load(&w->failed);
         threads = threads < most && threads * 2 > most ? most : threads * 2) {
        double seconds = seconds_with(w, threads);
        if (threads == 1) one = seconds;
        printf(
            "%s, %3u threads: %d variants in %.2f s, %.1f a second, %.2f times one thread (%.0f%% of %u)\n",
            name, threads, VARIANTS, seconds, VARIANTS / seconds, one / seconds,
            100 * one / seconds / threads, threads);
        fflush(stdout);
    }
}

static tvm_status assemble_all(const char *folder, work *w, tvm_diags *diags) {
    char path[4096];
    uint8_t *text = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/matmul_u3.vasm", folder);
    tvm_status status = tvm_file_read(path, 1 << 20, &text, &size, diags);
    for (unsigned i = 0; !status && i < VARIANTS; i++)
        status = assemble_variant(folder, (const char *)text, size, i, &w->programs[i], diags);
    free(text);
    return status;
}

static tvm_status measure_all(work *w, unsigned most, tvm_diags *diags) {
    tvm_ptx_compiler library = {.kind = TVM_PTX_BY_NVJITLINK}, program = {.kind = TVM_PTX_BY_PTXAS};
    if (!tvm_nvjitlink_find(&library.path, NULL)) {
        w->compiler = &library;
        measure(w, "nvJitLink", most);
    }
    tvm_status status = tvm_ptxas_find(&program.path, library.path ? NULL : diags);
    if (!status) {
        w->compiler = &program;
        measure(w, "ptxas", most);
    }
    bool measured = library.path || program.path;
    tvm_ptx_compiler_free(&library);
    tvm_ptx_compiler_free(&program);
    return measured ? TVM_OK : status;
}

int main(int argc, char **argv) {
    static work w;
    tvm_diags diags = {0};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: translate_parallel FOLDER-OF-PROGRAMS [TARGET [THREADS]]\n");
        return 2;
    }
    unsigned most = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : (unsigned)processors;
    if (most < 1) most = 1;
    if (most > MAX_THREADS) most = MAX_THREADS;
    tvm_status status = tvm_target_parse(argc > 2 ? argv[2] : "sm_90a", &w.target, &diags);
    if (!status) status = assemble_all(argv[1], &w, &diags);
    if (!status) status = measure_all(&w, most, &diags);
    if (status) tvm_diags_print(&diags, stderr, "translate_parallel", false);
    for (unsigned i = 0; i < VARIANTS; i++) tvm_ir_program_free(w.programs[i]);
    tvm_diags_free(&diags);
    return status != TVM_OK || atomic_load(&w.failed) != 0;
}
