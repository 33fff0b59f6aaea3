/* Prefill attention: TFLOP/s of programs/attention.vasm, full and causal, by CUDA-graph replays over rotating
 * copies, the median. Before a point is timed, rows of its result are compared with float64. Peers:
 * FlashAttention, cuDNN and FlashInfer count floating-point operations in the same way, 4 d for each query
 * and key of a head, and half of that where the mask is causal. See attention --help and bench/NOTES. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "value.h"

enum {
    KEY_ONLY = 256,
    KEY_PROGRAM,
    KEY_TYPE,
    KEY_KERNEL,
    KEY_JSON,
    KEY_REST,
    KEY_TARGET,
    KEY_REPLAYS,
    PARTS = 4, /* uniform numbers of 16 bits that a pool's number is the sum of */
    SUMS = PARTS * 0xffff + 1,
    POOL = 1 << 22,
    KEYS_FROM = 1000003, /* of the pool: no query is a key */
    ROWS = 6
};

/* Sequences of equal lengths of queries and keys. */
typedef struct point {
    const char *name, *type;
    unsigned d, dv, heads, kv_heads, sequences, length;
    int right;
} point;

static const point points[] = {
    {"d128", "f16", 128, 128, 32, 32, 1, 16384, -1},   {"d128", "f16", 128, 128, 32, 32, 1, 16384, 0},
    {"d128", "f16", 128, 128, 32, 32, 8, 2048, -1},    {"d128", "f16", 128, 128, 32, 32, 8, 2048, 0},
    {"d64", "f16", 64, 64, 32, 32, 4, 4096, -1},       {"d64", "f16", 64, 64, 32, 32, 4, 4096, 0},
    {"d256", "f16", 256, 256, 16, 16, 4, 4096, -1},    {"d256", "f16", 256, 256, 16, 16, 4, 4096, 0},
    {"d192", "f16", 192, 128, 32, 32, 4, 4096, -1},    {"d192", "f16", 192, 128, 32, 32, 4, 4096, 0},
    {"gqa", "f16", 128, 128, 32, 8, 2, 6000, -1},      {"gqa", "f16", 128, 128, 32, 8, 2, 6000, 0},
    {"d80", "f16", 80, 80, 32, 32, 4, 4096, -1},       {"d80", "f16", 80, 80, 32, 32, 4, 4096, 0},
    {"d96", "f16", 96, 96, 32, 32, 4, 4096, -1},       {"d96", "f16", 96, 96, 32, 32, 4, 4096, 0},
    {"odd", "f16", 128, 128, 40, 40, 5, 3000, -1},     {"odd", "f16", 128, 128, 40, 40, 5, 3000, 0},
    {"bf16", "bf16", 128, 128, 32, 32, 4, 4096, -1},   {"bf16", "bf16", 128, 128, 32, 32, 4, 4096, 0},
    {"f8", "f8_e4m3", 128, 128, 32, 32, 1, 16384, -1}, {"f8", "f8_e4m3", 128, 128, 32, 32, 1, 16384, 0},
};
enum { POINTS = sizeof points / sizeof *points };

typedef struct options {
    const char *folder, *program, *type, *only, *kernel, *json;
    double rest;
    unsigned replays, target;
} options;

static const struct argp_option argp_options[] = {
    {"programs", 'p', "FOLDER", 0, "where attention.vasm is (default: programs)", 0},
    {"program", KEY_PROGRAM, "FILE", 0,
     "the program of the points of a type (--type), such as one with code for the device", 0},
    {"type", KEY_TYPE, "TYPE", 0, "of --program (default: f16)", 0},
    {"only", KEY_ONLY, "NAME", 0, "only points whose name begins so: d128, d128-2048, d128-2048-causal", 0},
    {"kernel", KEY_KERNEL, "NAME", 0, "this kernel in place of the entry", 0},
    {"json", KEY_JSON, "FILE", 0, "write the numbers, a JSON object a line", 0},
    {"rest", KEY_REST, "SECONDS", 0, "without launches before each point (default: 0.1)", 0},
    {"target", KEY_TARGET, "N", 0, "code for an older target than the GPU's own, as 80", 0},
    {"replays", KEY_REPLAYS, "N", 0, "that the median is taken of (default: 15)", 0},
    {0}};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    options *o = state->input;
    switch (key) {
    case 'p':
        o->folder = arg;
        return 0;
    case KEY_PROGRAM:
        o->program = arg;
        return 0;
    case KEY_ONLY:
        o->only = arg;
        return 0;
    case KEY_TYPE:
        o->type = arg;
        return 0;
    case KEY_KERNEL:
        o->kernel = arg;
        return 0;
    case KEY_JSON:
        o->json = arg;
        return 0;
    case KEY_REST:
        o->rest = strtod(arg, NULL);
        return 0;
    case KEY_TARGET:
        o->target = (unsigned)strtoul(arg, NULL, 10);
        return 0;
    case KEY_REPLAYS:
        o->replays = (unsigned)strtoul(arg, NULL, 10);
        if (o->replays == 0 || o->replays > BENCH_REPLAYS)
            argp_error(state, "--replays: 1 to %d", BENCH_REPLAYS);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a point's memory ---- */

/* Of each copy: q, k, v, starts, o, lse, one after the other. */
enum { Q, K, V, STARTS, O, LSE, TENSORS };

typedef struct work {
    const point *p;
    tvm_kernel *kernel;
    size_t tokens, width, bytes[TENSORS], at[TENSORS]; /* width: bytes of an element of q, k and v */
    bench_copies copies;
} work;

static void lay_out(work *w) {
    const point *p = w->p;
    size_t tokens = w->tokens = (size_t)p->sequences * p->length, at = 0;
    const size_t bytes[TENSORS] = {
        tokens * p->heads * p->d * w->width,     tokens * p->kv_heads * p->d * w->width,
        tokens * p->kv_heads * p->dv * w->width, (p->sequences + (size_t)1) * 4,
        tokens * p->heads * p->dv * 2,           tokens * p->heads * 4};
    for (unsigned t = 0; t < TENSORS; t++) {
        w->bytes[t] = bytes[t], w->at[t] = at;
        at += (bytes[t] + 255) / 256 * 256;
    }
    w->copies.bytes = at;
}

/* Numbers of about a normal distribution, and what is known of their type. */
typedef struct numbers {
    value_type type;
    uint16_t *pool; /* codes, which come again after POOL of them */
    uint8_t *coded; /* as they go to the device */
    uint16_t *sums; /* the code of each sum of PARTS */
    double *values; /* of each code */
} numbers;

static void fill_pool(bench *b, const work *w, numbers *n) {
    for (unsigned sum = 0; sum < SUMS; sum++) {
        double x = sqrt(12.0 / PARTS) * (sum * 0x1p-16 - PARTS / 2.0);
        n->sums[sum] = (uint16_t)value_code(&n->type, fabs(x) < 0x1p-12 ? 0x1p-12 : x);
    }
    for (uint32_t code = 0; code < 1u << 8 * w->width; code++) n->values[code] = value_of(&n->type, code);
    for (size_t i = 0; i < POOL; i++) {
        uint64_t bits = bench_random(b);
        uint32_t sum = 0;
        for (unsigned part = 0; part < PARTS; part++) sum += (uint32_t)(bits >> 16 * part & 0xffff);
        n->pool[i] = n->sums[sum];
        memcpy(n->coded + i * w->width, &n->pool[i], w->width); /* the lower byte of 8 bits */
    }
    memcpy(n->pool + POOL, n->pool, KEYS_FROM * sizeof *n->pool);
    memcpy(n->coded + POOL * w->width, n->coded, KEYS_FROM * w->width);
}

static bool make_numbers(numbers *n) {
    n->pool = malloc(((size_t)POOL + KEYS_FROM) * sizeof *n->pool);
    n->coded = malloc(((size_t)POOL + KEYS_FROM) * 2);
    n->sums = malloc(SUMS * sizeof *n->sums);
    n->values = malloc((1 << 16) * sizeof *n->values);
    return n->pool && n->coded && n->sums && n->values;
}

static void free_numbers(numbers *n) {
    free(n->pool), free(n->coded), free(n->sums), free(n->values);
}

static bool fill(bench *b, const work *w, const uint8_t *coded) {
    size_t most = POOL * w->width;
    for (unsigned c = 0; c < w->copies.count; c++) {
        uint8_t *base = w->copies.at[c];
        for (unsigned t = Q; t <= V; t++)
            for (size_t done = 0; done < w->bytes[t]; done += most) {
                size_t part = w->bytes[t] - done < most ? w->bytes[t] - done : most;
                const uint8_t *from = coded + (t == K ? KEYS_FROM * w->width : 0);
                if (!bench_write(b, base + w->at[t] + done, from, part)) return false;
            }
        for (uint32_t s = 0; s <= w->p->sequences; s++) {
            uint32_t start = s * w->p->length;
            if (!bench_write(b, base + w->at[STARTS] + 4 * (size_t)s, &start, 4)) return false;
        }
    }
    return true;
}

static bool launch(bench *b, unsigned i, void *data) {
    const work *w = data;
    const point *p = w->p;
    uint8_t *base = w->copies.at[i % w->copies.count];
    const int64_t scalars[] = {p->sequences, (int64_t)w->tokens, (int64_t)w->tokens,
                               p->heads,     p->kv_heads,        p->d,
                               p->dv,        p->length,          -1,
                               p->right};
    static const unsigned tensors[] = {Q, K, V, STARTS, STARTS, O, LSE};
    tvm_value values[24] = {{0}};
    unsigned count = 0;
    for (; count < sizeof scalars / sizeof *scalars; count++) values[count].i = scalars[count];
    values[count++].f = 1 / sqrt(p->d);
    for (unsigned t = 0; t < sizeof tensors / sizeof *tensors; t++)
        values[count++] = (tvm_value){.data = base + w->at[tensors[t]], .bytes = w->bytes[tensors[t]]};
    return bench_ok(b, tvm_launchv(w->kernel, b->stream, values, count), "launch");
}

/* ---- float64 ---- */

static double pool_at(const numbers *n, size_t index) {
    return n->values[n->pool[index % POOL]];
}

/* The greatest error of some rows of the first copy, relative to what a row's values can be off: one. */
static bool check(bench *b, const work *w, const numbers *n, double *error) {
    const point *p = w->p;
    value_type out = n->type;
    if (w->width == 1 && !value_type_named("f16", &out)) return bench_fail(b, "f16 is no type");
    *error = 0;
    for (unsigned r = 0; r < ROWS; r++) {
        size_t head = bench_random(b) % p->heads, query = bench_random(b) % w->tokens, first;
        size_t kv_head = head / (p->heads / p->kv_heads), end;
        double o[256] = {0}, sum = 0;
        uint16_t found[256];
        first = query / p->length * p->length;
        end = p->right < 0 ? first + p->length : query + 1;
        for (size_t j = first; j < end; j++) {
            double score = 0;
            for (unsigned i = 0; i < p->d; i++)
                score += pool_at(n, (query * p->heads + head) * p->d + i) *
                         pool_at(n, (j * p->kv_heads + kv_head) * p->d + i + KEYS_FROM);
            double weight = exp(score / sqrt(p->d));
            sum += weight;
            for (unsigned i = 0; i < p->dv; i++)
                o[i] += weight * pool_at(n, (j * p->kv_heads + kv_head) * p->dv + i);
        }
        const uint8_t *base = w->copies.at[0];
        if (!bench_read(b, found, base + w->at[O] + (query * p->heads + head) * p->dv * 2, p->dv * (size_t)2))
            return false;
        for (unsigned i = 0; i < p->dv; i++)
            *error = fmax(*error, fabs(value_of(&out, found[i]) - o[i] / sum) / fmax(1, fabs(o[i] / sum)));
    }
    return *error < (w->width == 1 ? 0.05 : 0.02) || bench_fail(b, "the error against float64 is %g", *error);
}

/* ---- a point ---- */

typedef struct run {
    bench b;
    options o;
    numbers numbers;
    FILE *json;
} run;

static bool measure(run *r, work *w) {
    bench *b = &r->b;
    const point *p = w->p;
    double flop =
        2.0 * p->heads * p->sequences * p->length * p->length * (p->d + p->dv) * (p->right < 0 ? 1 : .5);
    double error = 0;
    bench_time time;
    /* 20 ms a graph, at least */
    unsigned least = (unsigned)(20e3 / (flop / 600e6)) + 1;
    if (least > BENCH_LAUNCHES) least = BENCH_LAUNCHES;
    fill_pool(b, w, &r->numbers);
    if (!fill(b, w, r->numbers.coded)) return false;
    for (unsigned i = 0; i < w->copies.count; i++)
        if (!launch(b, i, w) || !bench_wait(b)) return false;
    if (!check(b, w, &r->numbers, &error) ||
        !bench_measure(b, launch, w, bench_copies_launches(&w->copies, least), r->o.replays, &time))
        return false;
    printf(
        "%-5s %2u x %5u tokens, %2u / %2u heads of %3u, %-6s %9.1f us %6.1f TFLOP/s (least %.1f us; error %.1e)\n",
        p->name, p->sequences, p->length, p->heads, p->kv_heads, p->d, p->right < 0 ? "full" : "causal",
        time.median, flop / time.median * 1e-6, time.least, error);
    fflush(stdout);
    if (r->json)
        fprintf(
            r->json,
            "{\"kind\": \"prefill\", \"type\": \"%s\", \"d\": %u, \"dv\": %u, \"heads\": %u, \"kv_heads\": %u, "
            "\"sequences\": %u, \"length\": %u, \"causal\": %s, \"us\": %.2f, \"tflops\": %.1f}\n",
            p->type, p->d, p->dv, p->heads, p->kv_heads, p->sequences, p->length,
            p->right < 0 ? "false" : "true", time.median, flop / time.median * 1e-6);
    return true;
}

static bool run_point(run *r, const point *p) {
    char path[4096], define[32];
    const char *defines[] = {define};
    tvm_program *program = NULL;
    work w = {.p = p, .width = strncmp(p->type, "f8", 2) == 0 ? 1 : 2};
    bool own = r->o.program && strcmp(p->type, r->o.type) == 0;
    snprintf(path, sizeof path, "%s/attention.vasm", r->o.folder);
    snprintf(define, sizeof define, "T=%s", p->type);
    lay_out(&w);
    bool ok = value_type_named(p->type, &r->numbers.type) &&
              bench_load(&r->b, own ? r->o.program : path, defines, own ? 0 : 1, &program) &&
              bench_ok(&r->b, tvm_get_kernel(program, r->o.kernel ? r->o.kernel : "attention", &w.kernel),
                       "attention") &&
              bench_copies_make(&r->b, w.copies.bytes, &w.copies) && measure(r, &w);
    if (!ok) printf("%s %s: %s\n", p->name, p->right < 0 ? "full" : "causal", r->b.why);
    bench_copies_free(&r->b, &w.copies);
    tvm_program_free(program);
    return !r->b.lost;
}

static bool is_wanted(const point *p, const char *only) {
    char name[64];
    snprintf(name, sizeof name, "%s-%u-%s-", p->name, p->length, p->right < 0 ? "full" : "causal");
    size_t length = only ? strlen(only) : 0;
    return !only || (strncmp(name, only, length) == 0 && name[length] == '-');
}

int main(int argc, char **argv) {
    static const struct argp argp = {argp_options, parse_option, NULL, "Measure prefill attention.",
                                     NULL,         NULL,         NULL};
    run r = {.o = {.folder = "programs", .type = "f16", .rest = 0.1, .replays = BENCH_REPLAYS}};
    argp_parse(&argp, argc, argv, 0, NULL, &r.o);
    bool ok = bench_open_gpu(&r.b, r.o.target, 0);
    r.b.rest = r.o.rest;
    if (ok && !make_numbers(&r.numbers)) ok = bench_fail(&r.b, "out of memory");
    if (ok && r.o.json && !(r.json = fopen(r.o.json, "w")))
        ok = bench_fail(&r.b, "%s cannot be written", r.o.json);
    for (size_t i = 0; ok && i < POINTS; i++)
        if (is_wanted(&points[i], r.o.only)) ok = run_point(&r, &points[i]);
    if (!ok) fprintf(stderr, "attention: %s\n", r.b.why);
    if (r.json) fclose(r.json);
    free_numbers(&r.numbers);
    bench_close(&r.b);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
