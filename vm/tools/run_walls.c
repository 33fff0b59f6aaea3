/* The walls of a GPU, measured: how fast a kernel reads memory that does nothing else, and how fast one
 * multiplies. Both are programs of the machine itself, so that their cubins are kept in its cache. */
#include "run_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "runtime.h"

enum { READ_BYTES = 1 << 30, STEPS = 2048 };

/* A gibibyte, each word once, by eight loads a thread that are under way together; what was read is told by
 * one tile a block. How many blocks are best differs from GPU to GPU: `grids` are tried. */
static const int64_t grids[] = {2, 4, 8};
static const char read_text[] = ".vasm 3\n"
                                ".kernel read(n: i64, blocks: i32, x: global u32[n],\n"
                                "             y: global u32[multiprocessors * 8192])\n"
                                ".warps 8\n"
                                ".grid multiprocessors * blocks\n"
                                ".assume blocks <= 8, n % 1024 == 0\n"
                                "    .layout L = spatial(256).local(4)\n"
                                "    %sum = alloc-register u32[1024], L, init 0\n"
                                "    %step = i64(grid.x) * 1024\n"
                                "    for %i = i64(block.x) * 1024 to n step %step * 8\n"
                                "        .for P = 0 to 8: %x[P] = load-global x[%i + P * %step], L\n"
                                "        .for P = 0 to 8: %sum = %sum + %x[P]\n"
                                "    end\n"
                                "    store-global y[block.x * 1024], %sum\n"
                                ".end\n";

/* Tiles that stay in shared memory, of random numbers, as the power that products take depends on them. */
static const char multiply_text[] =
    ".vasm 3\n"
    ".kernel multiply(steps: i32, a: global f16[128, 64], b: global f16[256, 64],\n"
    "                 c: global f32[multiprocessors * 128, 1])\n"
    ".warps 8\n"
    ".grid multiprocessors\n"
    "    %a = alloc-shared f16[128, 64]\n"
    "    %b = alloc-shared f16[256, 64]\n"
    "    copy-async %a, a\n"
    "    copy-async %b, b\n"
    "    commit-group\n"
    "    wait-group 0\n"
    "    sync\n"
    "    %c = alloc-register f32[128, 256], init 0.0\n"
    "    for %i = 0 to steps\n"
    "        %c = mma %a, %b, %c, transpose_b, k 64\n"
    "    end\n"
    "    store-global c[block.x * 128, 0], reduce(sum, %c, 1)\n"
    ".end\n";

static tvm_status failed(tvm_context *context, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(context)) : TVM_OK;
}

typedef struct wall {
    tvm_context *context;
    tvm_program *program;
    tvm_kernel *kernel;
    void *memory[4];
    unsigned count;
} wall;

static tvm_status open_wall(wall *w, tvm_context *context, const char *text, const char *name,
                            tvm_diags *diags) {
    tvm_ir_program *program = NULL;
    *w = (wall){.context = context};
    tvm_status status = tvm_assemble_text(text, strlen(text), name, NULL, &program, diags);
    if (!status) status = tvm_context_load(context, program, &w->program, diags);
    return status ? status : failed(context, tvm_get_kernel(w->program, name, &w->kernel), diags);
}

/* Random bytes of floats below 1. */
static tvm_status add_memory(wall *w, size_t bytes, bool random, tvm_diags *diags) {
    tvm_status status = failed(w->context, tvm_memory_alloc(w->context, bytes, &w->memory[w->count]), diags);
    if (status) return status;
    w->count++;
    if (!random) return TVM_OK;
    uint16_t *halves = malloc(bytes);
    if (!halves) return tvm_diag_no_memory(diags);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes / 2; i++) {
        state = state * 1664525 + 1013904223;
        halves[i] = (uint16_t)(state >> 16 & 0x83ff) | 0x3800; /* 0.5 to 1, of either sign */
    }
    status = failed(w->context, tvm_memory_write(w->context, w->memory[w->count - 1], halves, bytes), diags);
    free(halves);
    return status;
}

static void close_wall(wall *w) {
    for (unsigned i = 0; i < w->count; i++) tvm_memory_free(w->context, w->memory[i]);
    tvm_program_free(w->program);
}

static tvm_status measure_reads(tvm_context *context, unsigned multiprocessors, double *bytes_per_second,
                                tvm_diags *diags) {
    wall w;
    *bytes_per_second = 0;
    tvm_status status = open_wall(&w, context, read_text, "read", diags);
    if (!status) status = add_memory(&w, READ_BYTES, false, diags);
    if (!status) status = add_memory(&w, (size_t)multiprocessors * 8192 * 4, false, diags);
    for (unsigned i = 0; !status && i < sizeof grids / sizeof *grids; i++) {
        const tvm_value values[] = {
            {.i = READ_BYTES / 4}, {.i = grids[i]}, {.data = w.memory[0]}, {.data = w.memory[1]}};
        double microseconds = INFINITY;
        status = failed(context, tvm_time(w.kernel, values, 4, 60, &microseconds), diags);
        *bytes_per_second = fmax(*bytes_per_second, READ_BYTES / (microseconds * 1e-6));
    }
    close_wall(&w);
    return status;
}

static tvm_status measure_products(tvm_context *context, unsigned multiprocessors,
                                   double *operations_per_second, tvm_diags *diags) {
    wall w;
    double microseconds = INFINITY;
    tvm_status status = open_wall(&w, context, multiply_text, "multiply", diags);
    if (!status) status = add_memory(&w, 128 * 64 * 2, true, diags);
    if (!status) status = add_memory(&w, 256 * 64 * 2, true, diags);
    if (!status) status = add_memory(&w, (size_t)multiprocessors * 128 * 4, false, diags);
    if (!status) {
        const tvm_value values[] = {
            {.i = STEPS}, {.data = w.memory[0]}, {.data = w.memory[1]}, {.data = w.memory[2]}};
        status = failed(context, tvm_time(w.kernel, values, 4, 60, &microseconds), diags);
    }
    close_wall(&w);
    *operations_per_second = 2.0 * 128 * 256 * 64 * STEPS * multiprocessors / (microseconds * 1e-6);
    return status;
}

tvm_status tvm_run_walls(tvm_context *context, double *bytes_per_second, double *operations_per_second,
                         tvm_diags *diags) {
    unsigned multiprocessors = tvm_context_launch_env(context).multiprocessors;
    tvm_status status = measure_reads(context, multiprocessors, bytes_per_second, diags);
    return status ? status : measure_products(context, multiprocessors, operations_per_second, diags);
}
