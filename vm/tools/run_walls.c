/* The roofline ceilings of a GPU, measured once and kept in the cache: the rate at which a kernel that does
 * nothing else reads memory, and the rate of a large product of matrices. Both kernels are programs of the
 * virtual machine itself. The best number of warps and loads, and the best tile, differ from GPU to GPU, so
 * that several are tried. */
#include "run_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "assembler.h"
#include "cache.h"
#include "runtime.h"

enum { READ_BYTES = 1000000000, WARPS_MOST = 64, DEPTH_MOST = 16, SIDE = 4096, REPEATS = 200, REST_MS = 100 };

/* Each word once, in pieces of 16 bytes, DEPTH of which a thread has under way together. What was read is
 * told by one tile a block. */
static const char read_text[] = ".vasm 3\n"
                                ".const WARPS = 8, DEPTH = 8\n"
                                ".kernel read(n: i64, blocks: i32, x: global u32[n],\n"
                                "             y: global u32[multiprocessors * 8192])\n"
                                ".warps WARPS\n"
                                ".grid multiprocessors * blocks\n"
                                ".assume blocks >= 1, blocks * WARPS <= 64, n % 4096 == 0\n"
                                "    .const TILE = WARPS * 128\n"
                                "    .layout L = spatial(WARPS * 32).local(4)\n"
                                "    %sum = alloc-register u32[TILE], L, init 0\n"
                                "    %step = i64(grid.x) * TILE\n"
                                "    for %i = i64(block.x) * TILE to n step %step * DEPTH\n"
                                "        .for P = 0 to DEPTH: %x[P] = load-global x[%i + P * %step], L\n"
                                "        .for P = 0 to DEPTH: %sum = %sum ^ %x[P]\n"
                                "    end\n"
                                "    store-global y[block.x * TILE], %sum\n"
                                ".end\n";

static const char multiply_text[] =
    ".vasm 3\n"
    ".const BN = 256, STAGES = 3\n"
    ".kernel multiply(m: i32, a: global f16[m, 4096], b: global f16[4096, 4096],\n"
    "                 c: global f16[m, 4096])\n"
    ".warps 8\n"
    ".grid 4096 / BN, cdiv(m, 128)\n"
    ".assume m % 128 == 0\n"
    "    %a = alloc-shared f16[128, 64]\n"
    "    %b = alloc-shared f16[64, BN]\n"
    "    %c = alloc-register f32[128, BN], init 0.0\n"
    "    for %k = 0 to 4096 step 64 pipeline STAGES\n"
    "        copy-async %a, a[block.y * 128, %k]\n"
    "        copy-async %b, b[%k, block.x * BN]\n"
    "        %c = mma %a, %b, %c, k 64\n"
    "    end\n"
    "    store-global c[block.y * 128, block.x * BN], cast(%c, f16)\n"
    ".end\n";

static const char *const reads[][2] = {
    {"WARPS=8", "DEPTH=16"}, {"WARPS=16", "DEPTH=8"}, {"WARPS=32", "DEPTH=8"}};
static const char *const tiles[][2] = {
    {"BN=256", "STAGES=3"}, {"BN=128", "STAGES=4"}, {"BN=128", "STAGES=3"}};
enum { WAYS = 3 };

static tvm_status failed(tvm_context *context, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(context)) : TVM_OK;
}

/* ---- memory ---- */

typedef struct wall {
    tvm_context *context;
    void *memory[3];
    unsigned count;
    tvm_value values[5];
} wall;

/* Random numbers from 0.5 to 1, of either sign, as the power that products take depends on them. */
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
        halves[i] = (uint16_t)(state >> 16 & 0x83ff) | 0x3800;
    }
    status = failed(w->context, tvm_memory_write(w->context, w->memory[w->count - 1], halves, bytes), diags);
    free(halves);
    return status;
}

static void free_memory(wall *w) {
    for (unsigned i = 0; i < w->count; i++) tvm_memory_free(w->context, w->memory[i]);
}

/* ---- time ---- */

static tvm_status measure(const wall *w, tvm_kernel *kernel, size_t count, double *least, tvm_diags *diags) {
    double microseconds;
    nanosleep(&(struct timespec){.tv_nsec = REST_MS * 1000000L}, NULL);
    tvm_status status = failed(w->context, tvm_time(kernel, w->values, count, REPEATS, &microseconds), diags);
    if (!status) *least = fmin(*least, microseconds);
    return status;
}

static tvm_status load(tvm_context *context, const char *text, const char *name, const char *const *defines,
                       tvm_program **code, tvm_kernel **kernel, tvm_diags *diags) {
    tvm_ir_program *program = NULL;
    tvm_assembler_options how = {.defines = defines, .define_count = 2};
    tvm_status status = tvm_assemble_text(text, strlen(text), name, &how, &program, diags);
    if (!status) status = tvm_context_load(context, program, code, diags);
    return status ? status : failed(context, tvm_get_kernel(*code, name, kernel), diags);
}

static tvm_status measure_reads(tvm_context *context, unsigned multiprocessors, double *bytes_per_second,
                                tvm_diags *diags) {
    wall w = {.context = context};
    /* a whole number of iterations, however many blocks and warps there are */
    int64_t turn = (int64_t)multiprocessors * WARPS_MOST * 128 * DEPTH_MOST, n = READ_BYTES / 4 / turn * turn;
    double least = INFINITY;
    if (!n) n = turn;
    tvm_status status = add_memory(&w, (size_t)n * 4, false, diags);
    if (!status) status = add_memory(&w, (size_t)multiprocessors * 8192 * 4, false, diags);
    for (unsigned way = 0; !status && way < WAYS; way++) {
        tvm_program *code = NULL;
        tvm_kernel *kernel = NULL;
        status = load(context, read_text, "read", reads[way], &code, &kernel, diags);
        int warps = atoi(strchr(reads[way][0], '=') + 1);
        for (int64_t blocks = 1; !status && blocks * warps <= WARPS_MOST; blocks *= 2) {
            w.values[0].i = n;
            w.values[1].i = blocks;
            w.values[2].data = w.memory[0];
            w.values[3].data = w.memory[1];
            status = measure(&w, kernel, 4, &least, diags);
        }
        tvm_program_free(code);
    }
    free_memory(&w);
    *bytes_per_second = (double)n * 4 / (least * 1e-6);
    return status;
}

/* Four tiles of 128 x 256 for each multiprocessor: what cuBLAS, too, comes near to the rate of the tensor
 * cores with. A tile that a GPU has too little shared memory for is passed over. */
static tvm_status measure_products(tvm_context *context, unsigned multiprocessors,
                                   double *operations_per_second, tvm_diags *diags) {
    wall w = {.context = context};
    int64_t m = 128 * (int64_t)((multiprocessors + 3) / 4);
    double least = INFINITY;
    tvm_status status = add_memory(&w, (size_t)m * SIDE * 2, true, diags);
    if (!status) status = add_memory(&w, (size_t)SIDE * SIDE * 2, true, diags);
    if (!status) status = add_memory(&w, (size_t)m * SIDE * 2, false, diags);
    for (unsigned way = 0; !status && way < WAYS; way++) {
        tvm_program *code = NULL;
        tvm_kernel *kernel = NULL;
        tvm_diags said = {0};
        w.values[0].i = m;
        for (unsigned i = 0; i < 3; i++) w.values[i + 1].data = w.memory[i];
        tvm_status one = load(context, multiply_text, "multiply", tiles[way], &code, &kernel, &said);
        if (!one) one = measure(&w, kernel, 4, &least, &said);
        if (one && way + 1 == WAYS && isinf(least))
            status = tvm_diag_add(diags, one, NULL, NULL, "%s", said.count ? said.items[0].message : "");
        tvm_diags_free(&said);
        tvm_program_free(code);
    }
    free_memory(&w);
    *operations_per_second = 2.0 * (double)m * SIDE * SIDE / (least * 1e-6);
    return status;
}

/* ---- the cache ---- */

static bool get_walls(tvm_cache *cache, tvm_cache_key key, double *bytes_per_second,
                      double *operations_per_second) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    double found[2];
    bool known = tvm_cache_get(cache, key, &bytes, &size) && size == sizeof found;
    if (known) {
        memcpy(found, bytes, sizeof found);
        known = found[0] > 0 && found[1] > 0 && isfinite(found[0]) && isfinite(found[1]);
    }
    if (known) *bytes_per_second = found[0], *operations_per_second = found[1];
    free(bytes);
    return known;
}

tvm_status tvm_run_walls(tvm_context *context, double *bytes_per_second, double *operations_per_second,
                         bool *measured, tvm_diags *diags) {
    unsigned multiprocessors = tvm_context_launch_env(context).multiprocessors;
    const char *device = tvm_device_name(context);
    tvm_cache_key key = tvm_cache_key_of("tvm-run: walls, 2", device, strlen(device));
    tvm_cache *cache = tvm_cache_open(NULL, 0, NULL);
    tvm_status status = TVM_OK;
    *measured = !get_walls(cache, key, bytes_per_second, operations_per_second);
    if (*measured) {
        status = measure_reads(context, multiprocessors, bytes_per_second, diags);
        if (!status) status = measure_products(context, multiprocessors, operations_per_second, diags);
        const double found[] = {*bytes_per_second, *operations_per_second};
        if (!status) tvm_cache_put(cache, key, found, sizeof found, NULL);
    }
    tvm_cache_close(cache);
    return status;
}
