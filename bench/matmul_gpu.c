/* The weight-only matmul on a GPU against the read floor, in one run: CUDA-graph replays of 40 launches over
 * rotating buffers larger than three times the L2, median. Random weights and activations; before anything is
 * timed, sampled elements of the result are compared with float64 sums over the plain weights.
 *
 *   matmul_gpu matmul_TYPE.vbc BITS SIGN N K M...     SIGN: u (zero point 2^(BITS-1)) or i
 *
 * The floor is a kernel that only reads as many bytes as the packed weights have (the best of several grids).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "tvm.h"
#include "types.h"

enum { LAUNCHES = 40, REPLAYS = 15, GROUP = 128, SAMPLES = 400 };

/* Reads bytes in 16-byte pieces, four in flight a thread. */
static const char floor_ptx[] =
    ".version 7.4\n.target sm_80\n.address_size 64\n"
    ".visible .entry read(.param .u64 data, .param .u64 count, .param .u64 out) {\n"
    ".reg .b64 %p, %e, %o, %i, %s, %n, %a;\n.reg .b32 %r<24>;\n.reg .pred %q;\n"
    "ld.param.u64 %p, [data]; ld.param.u64 %n, [count]; ld.param.u64 %o, [out];\n"
    "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %nctaid.x;\n"
    "mad.lo.u32 %r2, %r0, %r1, %r2; mul.lo.u32 %r3, %r3, %r1;\n"
    "cvt.u64.u32 %i, %r2; cvt.u64.u32 %s, %r3; mov.u32 %r4, 0;\n"
    "LOOP:\n"
    "mad.lo.u64 %e, %s, 3, %i; setp.ge.u64 %q, %e, %n; @%q bra TAIL;\n"
    "shl.b64 %a, %i, 4; add.u64 %a, %p, %a; shl.b64 %e, %s, 4;\n"
    "ld.global.nc.L1::no_allocate.v4.u32 {%r5,%r6,%r7,%r8}, [%a]; add.u64 %a, %a, %e;\n"
    "ld.global.nc.L1::no_allocate.v4.u32 {%r9,%r10,%r11,%r12}, [%a]; add.u64 %a, %a, %e;\n"
    "ld.global.nc.L1::no_allocate.v4.u32 {%r13,%r14,%r15,%r16}, [%a]; add.u64 %a, %a, %e;\n"
    "ld.global.nc.L1::no_allocate.v4.u32 {%r17,%r18,%r19,%r20}, [%a];\n"
    "xor.b32 %r4, %r4, %r5; xor.b32 %r4, %r4, %r6; xor.b32 %r4, %r4, %r7; xor.b32 %r4, %r4, %r8;\n"
    "xor.b32 %r4, %r4, %r9; xor.b32 %r4, %r4, %r10; xor.b32 %r4, %r4, %r11; xor.b32 %r4, %r4, %r12;\n"
    "xor.b32 %r4, %r4, %r13; xor.b32 %r4, %r4, %r14; xor.b32 %r4, %r4, %r15; xor.b32 %r4, %r4, %r16;\n"
    "xor.b32 %r4, %r4, %r17; xor.b32 %r4, %r4, %r18; xor.b32 %r4, %r4, %r19; xor.b32 %r4, %r4, %r20;\n"
    "mad.lo.u64 %i, %s, 4, %i; bra LOOP;\n"
    "TAIL:\n"
    "setp.ge.u64 %q, %i, %n; @%q bra DONE;\n"
    "shl.b64 %a, %i, 4; add.u64 %a, %p, %a;\n"
    "ld.global.nc.v4.u32 {%r5,%r6,%r7,%r8}, [%a]; xor.b32 %r4, %r4, %r5; add.u64 %i, %i, %s; bra TAIL;\n"
    "DONE:\n"
    "setp.ne.u32 %q, %r4, 305419896; @%q ret; st.global.u32 [%o], %r4; ret;\n}\n";

static tvm_context *context;
static tvm_cuda_driver driver;
static CUstream stream;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "matmul_gpu: %s: %s\n", what, why);
    exit(1);
}
static void need(tvm_status status, const char *what) {
    if (status != TVM_OK) fail(what, tvm_message(context));
}
static void cuda(CUresult result, const char *what) {
    const char *name = "?";
    if (result == CUDA_SUCCESS) return;
    driver.error_name(result, &name);
    fail(what, name);
}

static uint64_t seed = 88172645463325252u;
static uint32_t next_random(void) { /* xorshift64 (Marsaglia 2003) */
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct buffers {
    size_t count, bytes; /* packed weights */
    void *p[64];
    void *a, *s, *c;
} buffers;

/* Median time of a launch: `enqueue` puts launch number i on the stream. */
static double replays(void (*enqueue)(unsigned i, void *data), void *data) {
    CUgraph graph;
    CUgraphExec exec;
    CUevent start, stop;
    double times[REPLAYS];
    cuda(driver.capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
    for (unsigned i = 0; i < LAUNCHES; i++) enqueue(i, data);
    cuda(driver.capture_end(stream, &graph), "capture");
    cuda(driver.graph_instantiate(&exec, graph, 0), "graph");
    cuda(driver.event_create(&start, 0), "event");
    cuda(driver.event_create(&stop, 0), "event");
    for (int r = -3; r < REPLAYS; r++) {
        float ms = 0;
        cuda(driver.event_record(start, stream), "record");
        cuda(driver.graph_launch(exec, stream), "graph launch");
        cuda(driver.event_record(stop, stream), "record");
        cuda(driver.event_synchronize(stop), "run");
        cuda(driver.event_elapsed(&ms, start, stop), "elapsed");
        if (r >= 0) times[r] = ms * 1e3 / LAUNCHES;
    }
    driver.event_destroy(start), driver.event_destroy(stop);
    driver.graph_exec_destroy(exec), driver.graph_destroy(graph);
    qsort(times, REPLAYS, sizeof *times, ascending);
    return times[REPLAYS / 2];
}

typedef struct floor_launch {
    CUfunction function;
    buffers *b;
    unsigned grid, threads;
} floor_launch;
static void enqueue_floor(unsigned i, void *data) {
    floor_launch *f = data;
    uint64_t address = (uint64_t)(uintptr_t)f->b->p[i % f->b->count], count = f->b->bytes / 16,
             out = (uint64_t)(uintptr_t)f->b->c;
    void *args[] = {&address, &count, &out};
    cuda(driver.launch(f->function, f->grid, 1, 1, f->threads, 1, 1, 0, stream, args, NULL), "launch");
}
static double measure_floor(buffers *b) {
    CUmodule module;
    floor_launch f = {.b = b};
    double best = INFINITY;
    cuda(driver.module_load(&module, floor_ptx, 0, NULL, NULL), "floor kernel");
    cuda(driver.module_function(&f.function, module, "read"), "floor kernel");
    for (unsigned blocks = 1; blocks <= 8; blocks *= 2)
        for (f.threads = 256; f.threads <= 1024; f.threads *= 2) {
            f.grid = 132 * blocks;
            if (blocks * f.threads <= 2048) best = fmin(best, replays(enqueue_floor, &f));
        }
    driver.module_unload(module);
    return best;
}

typedef struct matmul_launch {
    tvm_kernel *function;
    buffers *b;
    tvm_value values[7];
} matmul_launch;
static void enqueue_matmul(unsigned i, void *data) {
    matmul_launch *l = data;
    l->values[4].data = l->b->p[i % l->b->count];
    need(tvm_launchv(l->function, stream, l->values, 7), "launch");
}

typedef struct problem {
    int bits, is_signed;
    int64_t n, k;
    uint8_t *w; /* host, plain */
    uint16_t *a, *s;
} problem;

/* Largest difference over sampled elements, relative to the root mean square of those elements. */
static double check(const problem *q, int64_t m, const uint16_t *c) {
    double worst = 0, square = 0;
    for (int t = 0; t < SAMPLES; t++) {
        int64_t i = next_random() % m, j = next_random() % q->n;
        double sum = 0;
        for (int64_t l = 0; l < q->k; l++) {
            unsigned code =
                (unsigned)tvm_bits_get(q->w, (uint64_t)(l * q->n + j) * (unsigned)q->bits, (unsigned)q->bits);
            int half = 1 << (q->bits - 1);
            int value = q->is_signed ? ((int)code ^ half) - half : (int)code - half;
            sum += (double)tvm_f16_to_f32(q->a[i * q->k + l]) * value *
                   (double)tvm_f16_to_f32(q->s[l / GROUP * q->n + j]);
        }
        double got = (double)tvm_f16_to_f32(c[i * q->n + j]);
        worst = fmax(worst, fabs(got - sum));
        if (isnan(got)) worst = INFINITY;
        square += sum * sum;
    }
    return worst / sqrt(square / SAMPLES);
}

static void *upload(const void *host, size_t bytes) {
    void *data = NULL;
    need(tvm_memory_alloc(context, bytes, &data), "memory");
    if (host != NULL) need(tvm_memory_write(context, data, host, bytes), "upload");
    return data;
}

static void make_inputs(problem *q, int64_t max_m, buffers *b, tvm_program *code) {
    size_t w_bytes = (size_t)(q->k * q->n) * (size_t)q->bits / 8, groups = (size_t)(q->k / GROUP * q->n);
    q->w = malloc(w_bytes), q->a = malloc((size_t)(max_m * q->k) * 2), q->s = malloc(groups * 2);
    if (!q->w || !q->a || !q->s) fail("inputs", "out of memory");
    for (size_t i = 0; i + 4 <= w_bytes; i += 4) memcpy(q->w + i, &(uint32_t){next_random()}, 4);
    for (int64_t i = 0; i < max_m * q->k; i++)
        q->a[i] = tvm_f32_to_f16((float)((double)next_random() * 0x1p-31 - 1.0));
    for (size_t i = 0; i < groups; i++)
        q->s[i] = tvm_f32_to_f16((float)(0.005 + 0.01 * next_random() * 0x1p-32));
    tvm_kernel *pack;
    need(tvm_get_kernel(code, "pack", &pack), "pack");
    void *w = upload(q->w, w_bytes);
    tvm_value values[4] = {{.i = q->k}, {.i = q->n}, {.data = w}, {0}};
    need(tvm_param_shape(pack, 3, values, 4, (int64_t[8]){0}, &b->bytes), "pack");
    b->count = (size_t)(400e6 / (double)b->bytes) + 1;
    if (b->count < 3) b->count = 3;
    if (b->count > LAUNCHES) b->count = LAUNCHES;
    for (size_t i = 0; i < b->count; i++) {
        values[3].data = b->p[i] = upload(NULL, b->bytes);
        need(tvm_launchv(pack, NULL, values, 4), "pack");
    }
    need(tvm_synchronize(context, NULL), "pack");
    b->a = upload(q->a, (size_t)(max_m * q->k) * 2);
    b->s = upload(q->s, groups * 2);
    b->c = upload(NULL, (size_t)(max_m * q->n) * 2 + 16);
    tvm_memory_free(context, w);
}

int main(int argc, char **argv) {
    if (argc < 7) {
        fprintf(stderr, "usage: matmul_gpu FILE.vbc BITS u|i N K M...\n");
        return 2;
    }
    problem q = {
        .bits = atoi(argv[2]), .is_signed = argv[3][0] == 'i', .n = atol(argv[4]), .k = atol(argv[5])};
    tvm_diags diags = {0};
    if (tvm_cuda_driver_open(&driver, &diags)) {
        tvm_diags_print(&diags, stderr, "matmul_gpu", false);
        tvm_diags_free(&diags);
        return 1;
    }
    need(tvm_context_create(&(tvm_context_options){.device = TVM_DEVICE_CUDA}, &context), "context");
    CUdevice device;
    CUcontext primary;
    cuda(driver.device_get(&device, 0), "device");
    cuda(driver.primary_retain(&primary, device), "context");
    cuda(driver.context_push(primary), "context");
    cuda(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING), "stream");
    tvm_program *code;
    matmul_launch l = {0};
    need(tvm_load_file(context, argv[1], &code), argv[1]);
    need(tvm_get_kernel(code, "matmul", &l.function), "matmul");
    int64_t max_m = 1;
    for (int i = 6; i < argc; i++) max_m = atol(argv[i]) > max_m ? atol(argv[i]) : max_m;
    buffers b = {0};
    make_inputs(&q, max_m, &b, code);
    need(tvm_prepare(l.function), "prepare");
    double floor_time = measure_floor(&b);
    printf("%s, %s: n %ld k %ld, weights %.1f MB, read floor %.2f us (%.2f TB/s)\n", tvm_device_name(context),
           argv[1], (long)q.n, (long)q.k, (double)b.bytes / 1e6, floor_time,
           (double)b.bytes / floor_time / 1e6);
    uint16_t *c = malloc((size_t)(max_m * q.n) * 2);
    if (c == NULL) fail("result", "out of memory");
    int bad = 0;
    for (int i = 6; i < argc; i++) {
        int64_t m = atol(argv[i]);
        l.b = &b;
        tvm_value values[7] = {{.i = m}, {.i = q.n},    {.i = q.k},   {.data = b.a},
                               {0},      {.data = b.s}, {.data = b.c}};
        memcpy(l.values, values, sizeof values);
        memset(c, 0xff, (size_t)(m * q.n) * 2);
        need(tvm_memory_write(context, b.c, c, (size_t)(m * q.n) * 2), "poison");
        enqueue_matmul(0, &l);
        need(tvm_synchronize(context, stream), "matmul");
        need(tvm_memory_read(context, c, b.c, (size_t)(m * q.n) * 2), "result");
        double error = check(&q, m, c), time = replays(enqueue_matmul, &l);
        printf("  m %4ld: %8.2f us, %.2f x floor, %.1f TFLOP/s, largest sampled error %.2g of rms\n", (long)m,
               time, time / floor_time, 2e-6 * (double)(m * q.n) * (double)q.k / time, error);
        bad |= !(error < 1e-2);
    }
    return bad;
}
