/* Build time: text to program, program to PTX, and a load that finds its cubin in the cache (with a GPU).
 * Median of many.
 *
 *   build_time FILE.vasm [TARGET] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "assembler.h"
#include "codegen.h"
#include "fileio.h"

enum { REPEATS = 101 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: build_time FILE.vasm [TARGET]\n");
        return 2;
    }
    tvm_diags diags = {0};
    tvm_target target;
    uint8_t *text;
    size_t size, ptx_size = 0;
    static double assemble[REPEATS], translate[REPEATS];
    tvm_status status = tvm_target_parse(argc > 2 ? argv[2] : "sm_90a", &target, &diags);
    if (status == TVM_OK) status = tvm_file_read(argv[1], 1 << 20, &text, &size, &diags);
    for (int i = 0; status == TVM_OK && i < REPEATS; i++) {
        tvm_ir_program *program = NULL;
        tvm_module *module = NULL;
        double start = now();
        status = tvm_assemble_text((const char *)text, size, argv[1], NULL, &program, &diags);
        double middle = now();
        if (status == TVM_OK) status = tvm_translate(program, target, &module, &diags);
        translate[i] = now() - middle;
        assemble[i] = middle - start;
        if (status == TVM_OK) ptx_size = module->ptx_size;
        tvm_module_free(module);
        tvm_ir_program_free(program);
    }
    if (status != TVM_OK) {
        tvm_diags_print(&diags, stderr, "build_time", false);
        return 1;
    }
    qsort(assemble, REPEATS, sizeof *assemble, ascending);
    qsort(translate, REPEATS, sizeof *translate, ascending);
    printf("%s: assemble and verify %.2f ms, translate to PTX %.2f ms (%zu bytes), together %.2f ms\n",
           argv[1], assemble[REPEATS / 2], translate[REPEATS / 2], ptx_size,
           assemble[REPEATS / 2] + translate[REPEATS / 2]);
    free(text);
    return 0;
}
