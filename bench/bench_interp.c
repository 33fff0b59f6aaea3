/* The interpreter against a plain triple loop: C = A . W, W of u3 with a scale a group of 128 rows. With -p
 * launches of the shipped programs of a folder instead; the last argument is then the number of the only one
 * to run.
 *
 *     bench_interp [-t THREADS] [-m M] [-n N] [-k K] [PROGRAM.vasm]
 *     bench_interp [-t THREADS] -p FOLDER [POINT]
 *
 * Times are the least of several runs, taken in turns. The loop is what -O2 makes of it, on f32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "assembler.h"
#include "fileio.h"
#include "interp.h"
#include "launch.h"
#include "tvm.h"

enum { ROUNDS = 5, GROUP = 128, BITS = 3 };

typedef struct problem {
    int m, n, k;
    unsigned threads;
    float *af, *wf, *cf; /* for the loop: weights are already scaled */
    uint16_t *a, *s, *c;
    uint8_t *w, *p;
    size_t packed;
} problem;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The yardstick: as -O2 has it, whatever the flags are with which the rest is built. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((noinline, optimize("O2")))
#else
__attribute__((noinline))
#endif
static void
triple_loop(int m, int n, int k, const float *a, const float *b, float *c) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
}

static void *need(void *memory) {
    if (memory) return memory;
    fputs("bench_interp: out of memory\n", stderr);
    exit(EXIT_FAILURE);
}

static void fail(const tvm_diags *diags) {
    tvm_diags_print(diags, stderr, "bench_interp", false);
    exit(EXIT_FAILURE);
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_problem(problem *q) {
    size_t mk = (size_t)q->m * q->k, kn = (size_t)q->k * q->n, mn = (size_t)q->m * q->n;
    size_t groups = (size_t)q->k / GROUP;
    uint32_t state = 1;
    q->packed = groups * (((size_t)q->n + 127) / 128) * (128 * 128 * BITS / 8);
    q->af = need(malloc(mk * sizeof *q->af));
    q->wf = need(malloc(kn * sizeof *q->wf));
    q->cf = need(malloc(mn * sizeof *q->cf));
    q->a = need(aligned_alloc(64, (mk * sizeof *q->a + 63) / 64 * 64));
    q->s = need(aligned_alloc(64, (groups * q->n * sizeof *q->s + 63) / 64 * 64));
    q->c = need(aligned_alloc(64, (mn * sizeof *q->c + 63) / 64 * 64));
    q->w = need(calloc(kn * BITS / 8 + 64, 1));
    q->p = need(aligned_alloc(64, (q->packed + 63) / 64 * 64));
    for (size_t i = 0; i < mk; i++) {
        q->a[i] = tvm_f32_to_f16((float)(int)(next_random(&state) % 2001 - 1000) / 1000);
        q->af[i] = tvm_f16_to_f32(q->a[i]);
    }
    for (size_t i = 0; i < groups * q->n; i++)
        q->s[i] = tvm_f32_to_f16((float)(next_random(&state) % 100 + 1) / 1000);
    for (size_t i = 0; i < kn; i++) {
        uint32_t code = next_random(&state) % (1u << BITS);
        tvm_bits_set(q->w, i * BITS, BITS, code);
        q->wf[i] = ((float)code - 4) * tvm_f16_to_f32(q->s[i / q->n / GROUP * q->n + i % q->n]);
    }
}

static void free_problem(problem *q) {
    free(q->af);
    free(q->wf);
    free(q->cf);
    free(q->a);
    free(q->s);
    free(q->c);
    free(q->w);
    free(q->p);
}

static tvm_interp_arg argument(const problem *q, const char *name) {
    const struct {
        const char *name;
        int64_t number;
        void *data;
    } all[] = {{"m", q->m, NULL}, {"n", q->n, NULL}, {"k", q->k, NULL}, {"a", 0, q->a},
               {"p", 0, q->p},    {"s", 0, q->s},    {"c", 0, q->c},    {"w", 0, q->w}};
    tvm_interp_arg arg = {.data = NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0) arg = (tvm_interp_arg){{.i = all[i].number}, all[i].data};
    return arg;
}

/* Prepares and runs a kernel, and returns the seconds of the run alone. */
static double run_kernel(const tvm_ir_program *program, const char *name, const problem *q) {
    const tvm_ir_kernel *kernel = need((void *)(uintptr_t)tvm_find_kernel(program, name));
    tvm_diags diags = {0};
    tvm_interp_kernel *ready = NULL;
    tvm_interp_arg args[TVM_MAX_PARAMS];
    tvm_scalar scalars[TVM_MAX_PARAMS];
    tvm_launch_env env = {.scalars = scalars, .multiprocessors = TVM_INTERP_MULTIPROCESSORS};
    const tvm_interp_options options = {.threads = q->threads};
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        args[i] = argument(q, tvm_string(program, kernel->slots[i].name));
        scalars[i] = args[i].scalar;
    }
    if (tvm_launch_check(program, kernel, &env, &diags) != TVM_OK ||
        tvm_interp_prepare(program, kernel, &ready, &diags) != TVM_OK)
        fail(&diags);
    double start = now();
    if (tvm_interp_run(ready, args, env.grid, &options, &diags) != TVM_OK) fail(&diags);
    double seconds = now() - start;
    tvm_interp_free(ready);
    return seconds;
}

/* Largest error relative to the largest result. */
static double error_of(const problem *q) {
    double largest = 0, error = 0;
    for (size_t i = 0; i < (size_t)q->m * q->n; i++) {
        largest = fmax(largest, fabs((double)q->cf[i]));
        error = fmax(error, fabs((double)q->cf[i] - (double)tvm_f16_to_f32(q->c[i])));
    }
    return error / largest;
}

/* ---- launches of shipped programs ---- */

/* Arguments: scalars, and tensors whose first elements are these integers, as NAME=NUMBER,...; other tensors
 * are random: floats between -1 and 1, integers and codes any bits. */
typedef struct point {
    const char *file, *defines, *entry, *arguments;
    unsigned target;
} point;

static const point points[] = {
    {"attention", "T=f16", "attention",
     "sequences=1 tokens=384 kv_tokens=384 heads=4 kv_heads=2 d=128 dv=128 longest=384 left=-1 right=0 "
     "scale=0.09 q_starts=0,384 k_starts=0,384",
     90},
    {"attention", "T=f16", "attention",
     "sequences=1 tokens=384 kv_tokens=384 heads=4 kv_heads=2 d=64 dv=64 longest=384 left=-1 right=0 "
     "scale=0.09 q_starts=0,384 k_starts=0,384",
     0},
    {"matmul_u3", "", "matmul", "m=64 n=512 k=1024", 0},
    {"matmul_u3", "", "matmul", "m=64 n=512 k=1024", 90},
    {"matmul_lowbit_u4", "", "matmul_lowbit", "m=8 n=512 k=2048", 90},
    {"matmul_lowbit_u4", "", "matmul_lowbit", "m=17 n=512 k=2048", 0},
    {"matmul_lowbit_u3", "", "matmul_lowbit", "m=4 n=512 k=2048", 0},
    {"matmul_lowbit_u3", "", "matmul_lowbit", "m=65 n=512 k=1024", 90},
    {"matmul", "", "matmul", "m=192 n=256 k=512", 90},
    {"matmul", "", "matmul", "m=192 n=256 k=512", 0},
    {"softmax", "", "softmax", "m=64 n=4096", 0},
    {"softmax", "", "softmax", "m=2 n=65536", 0},
    {"layer_norm", "", "layer_norm", "m=64 n=4096 eps=0.00001", 0},
    {"rms_norm", "", "rms_norm", "m=64 n=4096 eps=0.00001", 0},
    {"reduce", "", "reduce", "m=64 n=4096", 0}};

static const char *find_word(const char *text, const char *name, size_t length) {
    for (const char *at = text; *at; at += *at == ' ') {
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
        at += strcspn(at, " ");
    }
    return NULL;
}

static void call(tvm_context *context, tvm_status status) {
    if (status == TVM_OK) return;
    fputs(tvm_message(context), stderr);
    exit(EXIT_FAILURE);
}

/* FNV-1a. */
static uint64_t hash_of(uint64_t hash, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void fill_tensor(const tvm_param_info *param, const char *numbers, void *data, size_t bytes) {
    uint32_t state = 1;
    uint8_t *to = data;
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)next_random(&state);
    for (size_t i = 0; i < bytes / 2 && strstr(param->type, "f16") && !numbers; i++) {
        float value = (float)(int)(next_random(&state) % 2001 - 1000) / 1000;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t code = param->type[0] == 'b' ? (uint16_t)(bits >> 16) : tvm_f32_to_f16(value);
        memcpy(to + 2 * i, &code, sizeof code);
    }
    for (size_t i = 0; i < bytes / 4 && strcmp(param->type, "f32") == 0; i++) {
        float value = (float)(int)(next_random(&state) % 2001 - 1000) / 1000;
        memcpy(to + 4 * i, &value, sizeof value);
    }
    for (size_t i = 0; numbers && *numbers != ' ' && *numbers && i < bytes / 4; i++) {
        int32_t value = (int32_t)strtol(numbers, (char **)(uintptr_t)&numbers, 10);
        memcpy(to + 4 * i, &value, sizeof value);
        numbers += *numbers == ',';
    }
}

static tvm_program *load_point(tvm_context *context, const char *folder, const point *p) {
    char path[512], defines[64];
    snprintf(path, sizeof path, "%s/%s.vasm", folder, p->file);
    snprintf(defines, sizeof defines, "%s", p->defines);
    const char *all[] = {defines};
    const tvm_assemble_options options = {.name = path, .defines = all, .define_count = *defines != 0};
    tvm_diags diags = {0};
    tvm_program *program = NULL;
    uint8_t *text;
    size_t size;
    if (tvm_file_read(path, 1 << 20, &text, &size, &diags) != TVM_OK) fail(&diags);
    call(context, tvm_assemble(context, (const char *)text, size, &options, &program));
    free(text);
    return program;
}

/* Prints the time of a launch, and a hash of all tensors after one. */
static void run_point(const char *folder, const point *p, unsigned threads) {
    const tvm_context_options options = {
        .device = TVM_DEVICE_CPU, .threads = threads, .cache_dir = "", .target = p->target};
    tvm_context *context = NULL;
    call(context, tvm_context_create(&options, &context));
    tvm_program *program = load_point(context, folder, p);
    tvm_kernel *kernel = NULL;
    call(context, tvm_get_kernel(program, p->entry, &kernel));
    tvm_value values[TVM_MAX_PARAMS] = {{0}};
    size_t count = tvm_param_count(kernel), bytes[TVM_MAX_PARAMS];
    tvm_param_info params[TVM_MAX_PARAMS];
    for (size_t i = 0; i < count; i++) {
        call(context, tvm_param(kernel, i, &params[i]));
        const char *text = find_word(p->arguments, params[i].name, strlen(params[i].name));
        if (params[i].is_tensor || !text) continue;
        values[i].i = strtoll(text, NULL, 10);
        values[i].f = strtod(text, NULL);
    }
    for (size_t i = 0; i < count; i++) {
        if (!params[i].is_tensor) continue;
        int64_t shape[8];
        call(context, tvm_param_shape(kernel, i, values, count, shape, &bytes[i]));
        call(context, tvm_memory_alloc(context, bytes[i], &values[i].data));
        fill_tensor(&params[i], find_word(p->arguments, params[i].name, strlen(params[i].name)),
                    values[i].data, bytes[i]);
    }
    const char *variant;
    call(context, tvm_kernel_variant(kernel, values, count, &variant));
    call(context, tvm_launchv(kernel, NULL, values, count));
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < count; i++)
        if (params[i].is_tensor) hash = hash_of(hash, values[i].data, bytes[i]);
    double least = INFINITY, microseconds;
    for (int round = 0; round < ROUNDS; round++, least = fmin(least, microseconds))
        call(context, tvm_time(kernel, values, count, 1, &microseconds));
    printf("%-28s target %2u  %8.2f ms  %016llx  %s\n", variant, p->target, least * 1e-3,
           (unsigned long long)hash, p->arguments);
    for (size_t i = 0; i < count; i++)
        if (params[i].is_tensor) call(context, tvm_memory_free(context, values[i].data));
    tvm_program_free(program);
    tvm_context_free(context);
}

int main(int argc, char **argv) {
    problem q = {.m = 256, .n = 1024, .k = 1024};
    const char *folder = NULL;
    int option;
    while ((option = getopt(argc, argv, "t:m:n:k:p:")) != -1) {
        if (option == '?') return 2;
        if (option == 'p') folder = optarg;
        int number = atoi(optarg);
        if (option == 't') q.threads = (unsigned)number;
        if (option == 'm') q.m = number;
        if (option == 'n') q.n = number;
        if (option == 'k') q.k = number;
    }
    for (size_t i = 0; folder && i < sizeof points / sizeof *points; i++)
        if (optind == argc || (size_t)atoi(argv[optind]) == i) run_point(folder, &points[i], q.threads);
    if (folder) return EXIT_SUCCESS;
    const char *path = optind < argc ? argv[optind] : "programs/matmul_u3.vasm";
    if (q.m <= 0 || q.n <= 0 || q.k <= 0 || q.k % GROUP || q.n % 8) {
        fputs("bench_interp: k must be a multiple of 128, n of 8\n", stderr);
        return 2;
    }
    tvm_diags diags = {0};
    tvm_ir_program *program;
    uint8_t *text;
    size_t size;
    if (tvm_file_read(path, 1 << 20, &text, &size, &diags) != TVM_OK ||
        tvm_assemble_text((const char *)text, size, path, NULL, &program, &diags) != TVM_OK)
        fail(&diags);
    make_problem(&q);
    double pack = run_kernel(program, "pack", &q), loop = INFINITY, interp = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        triple_loop(q.m, q.n, q.k, q.af, q.wf, q.cf);
        loop = fmin(loop, now() - start);
        interp = fmin(interp, run_kernel(program, "matmul", &q));
    }
    printf(
        "%d x %d x %d: triple loop %.1f ms, interpreter %.1f ms (%.1f times as fast), pack %.1f ms, error %.1e\n",
        q.m, q.n, q.k, loop * 1e3, interp * 1e3, loop / interp, pack * 1e3, error_of(&q));
    free_problem(&q);
    free(text);
    tvm_ir_program_free(program);
    return EXIT_SUCCESS;
}
