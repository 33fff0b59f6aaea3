/* Build time: text to program and program to PTX, without a GPU. Medians of many, in time of the processor.
 *
 *   build_time [-t TARGET] [-D NAME=VALUE]... FILE.vasm... */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "assembler.h"
#include "codegen.h"
#include "fileio.h"

enum { REPEATS = 51, DEFINES = 8 };

typedef struct options {
    const char *target_name, *defines[DEFINES];
    size_t define_count;
    tvm_target target;
    int failed;
} options;

typedef struct times {
    double assemble, translate; /* milliseconds */
    size_t bytes;               /* of PTX */
} times;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tvm_status build(const options *o, const char *path, const char *text, size_t size, times *t,
                        tvm_diags *diags) {
    tvm_assembler_options assembler = {.defines = o->defines, .define_count = o->define_count};
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    double start = now(), middle;
    tvm_status status = tvm_assemble_text(text, size, path, &assembler, &program, diags);
    middle = now();
    if (status == TVM_OK) status = tvm_translate(program, o->target, &module, diags);
    *t = (times){middle - start, now() - middle, status == TVM_OK ? module->ptx_size : 0};
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return status;
}

static tvm_status measure(const options *o, const char *path, tvm_diags *diags) {
    static double assemble[REPEATS], translate[REPEATS], together[REPEATS];
    uint8_t *text = NULL;
    size_t size;
    times t = {0};
    tvm_status status = tvm_file_read(path, 1 << 20, &text, &size, diags);
    for (int i = 0; status == TVM_OK && i < REPEATS; i++) {
        status = build(o, path, (const char *)text, size, &t, diags);
        assemble[i] = t.assemble, translate[i] = t.translate, together[i] = t.assemble + t.translate;
    }
    free(text);
    if (status != TVM_OK) return status;
    qsort(assemble, REPEATS, sizeof *assemble, ascending);
    qsort(translate, REPEATS, sizeof *translate, ascending);
    qsort(together, REPEATS, sizeof *together, ascending);
    printf("%-32s assemble and verify %6.2f ms, translate %6.2f ms (%zu kB of PTX), together %6.2f ms\n",
           path, assemble[REPEATS / 2], translate[REPEATS / 2], t.bytes / 1000, together[REPEATS / 2]);
    return TVM_OK;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    options *o = state->input;
    tvm_diags diags = {0};
    switch (key) {
    case 't':
        o->target_name = arg;
        return 0;
    case 'D':
        if (o->define_count == DEFINES) argp_error(state, "too many definitions");
        o->defines[o->define_count++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (tvm_target_parse(o->target_name, &o->target, &diags) != TVM_OK ||
            measure(o, arg, &diags) != TVM_OK) {
            tvm_diags_print(&diags, stderr, "build_time", false);
            o->failed = 1;
        }
        tvm_diags_free(&diags);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv) {
    static const struct argp_option argp_options[] = {
        {"target", 't', "TARGET", 0, "translate for TARGET (default: sm_90a)", 0},
        {"define", 'D', "NAME=VALUE", 0, "a constant of the programs that follow", 0},
        {0}};
    static const struct argp argp = {
        argp_options, parse_option, "FILE.vasm...", "Measure how long programs take to build.", NULL,
        NULL,         NULL};
    options o = {.target_name = "sm_90a"};
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &o);
    return o.failed;
}
