/* cuBLASLt without its headers at build time: the few declarations needed, with the values of cublasLt.h
 * (CUDA 11.4 to 13). */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

typedef struct lt_handle *lt_handle;
typedef struct lt_desc *lt_desc;
typedef struct lt_layout *lt_layout;
typedef struct lt_preference *lt_preference;
typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;
typedef struct lt_heuristic {
    lt_algo algo;
    size_t workspace;
    int state; /* 0: usable */
    float waves;
    int reserved[4];
} lt_heuristic;

enum {
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_OP_T = 1,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
    WORKSPACE = 64 << 20,
    CANDIDATES = 8
};

/* member, symbol, parameters; all return a cublasStatus_t, 0 for success */
#define LT_FUNCTIONS(X)                                                                                      \
    X(create, cublasLtCreate, (lt_handle *))                                                                 \
    X(destroy, cublasLtDestroy, (lt_handle))                                                                 \
    X(desc_create, cublasLtMatmulDescCreate, (lt_desc *, int compute, int scale))                            \
    X(desc_destroy, cublasLtMatmulDescDestroy, (lt_desc))                                                    \
    X(desc_set, cublasLtMatmulDescSetAttribute, (lt_desc, int attribute, const void *, size_t))              \
    X(layout_create, cublasLtMatrixLayoutCreate,                                                             \
      (lt_layout *, int type, uint64_t rows, uint64_t columns, int64_t stride))                              \
    X(layout_destroy, cublasLtMatrixLayoutDestroy, (lt_layout))                                              \
    X(preference_create, cublasLtMatmulPreferenceCreate, (lt_preference *))                                  \
    X(preference_destroy, cublasLtMatmulPreferenceDestroy, (lt_preference))                                  \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute,                                                  \
      (lt_preference, int attribute, const void *, size_t))                                                  \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic,                                                             \
      (lt_handle, lt_desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d, lt_preference, int requested, \
       lt_heuristic *, int *returned))                                                                       \
    X(matmul, cublasLtMatmul,                                                                                \
      (lt_handle, lt_desc, const void *alpha, const void *a, lt_layout, const void *b, lt_layout,            \
       const void *beta, const void *c, lt_layout, void *d, lt_layout, const lt_algo *, void *workspace,     \
       size_t workspace_bytes, CUstream))

struct decode_cublas {
    void *library;
    lt_handle handle;
    lt_desc desc;
    lt_preference preference;
    void *workspace;
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    LT_FUNCTIONS(MEMBER)
#undef MEMBER
};

static bool lt(bench *b, int status, const char *what) {
    return status == 0 || bench_fail(b, "cuBLASLt: %s: status %d", what, status);
}

static bool open_library(bench *b, decode_cublas *l) {
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    for (unsigned i = 0; !l->library && i < sizeof names / sizeof *names; i++)
        l->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!l->library) return bench_fail(b, "cuBLASLt: %s", dlerror());
#define FIND(member, symbol, parameters)                                                                     \
    {                                                                                                        \
        void *address = dlsym(l->library, #symbol);                                                          \
        if (!address) return bench_fail(b, "cuBLASLt has no " #symbol);                                      \
        memcpy(&l->member, &address, sizeof address);                                                        \
    }
    LT_FUNCTIONS(FIND)
#undef FIND
    return true;
}

bool decode_cublas_open(bench *b, decode_cublas **cublas) {
    decode_cublas *l = *cublas = calloc(1, sizeof *l);
    int transposed = CUBLAS_OP_T;
    size_t workspace = WORKSPACE;
    if (!l) return bench_fail(b, "out of memory");
    return open_library(b, l) && lt(b, l->create(&l->handle), "create") &&
           lt(b, l->desc_create(&l->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "descriptor") &&
           lt(b, l->desc_set(l->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
              "descriptor") &&
           lt(b, l->preference_create(&l->preference), "preference") &&
           lt(b,
              l->preference_set(l->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                sizeof workspace),
              "preference") &&
           bench_alloc(b, WORKSPACE, &l->workspace);
}

void decode_cublas_close(bench *b, decode_cublas *l) {
    if (!l) return;
    bench_free(b, l->workspace);
    if (l->preference) l->preference_destroy(l->preference);
    if (l->desc) l->desc_destroy(l->desc);
    if (l->handle) l->destroy(l->handle);
    free(l); /* the library stays: it has threads of its own */
}

/* ---- a shape ---- */

/* In cuBLAS' column-major terms: D[n, m] = W^T . X, with W [k, n] and X [k, m]. */
typedef struct lt_job {
    decode_cublas *l;
    decode_shape shape;
    int64_t m;
    uint16_t *w, *x, *c; /* the host's: w [n, k], x [m, k] */
    bench_copies copies; /* of w, then x */
    size_t w_bytes;
    void *out;
    lt_layout w_layout, x_layout, c_layout;
    const lt_heuristic *candidate;
    decode_reference reference;
} lt_job;

static bool enqueue(bench *b, unsigned i, void *data) {
    lt_job *job = data;
    decode_cublas *l = job->l;
    const float one = 1, zero = 0;
    const uint8_t *w = job->copies.at[i % job->copies.count];
    return lt(b,
              l->matmul(l->handle, l->desc, &one, w, job->w_layout, w + job->w_bytes, job->x_layout, &zero,
                        job->out, job->c_layout, job->out, job->c_layout, &job->candidate->algo, l->workspace,
                        WORKSPACE, b->stream),
              "matmul");
}

/* Random f16 codes of either sign, from 2^-7 to 2^-3 in magnitude: sums of products stay finite. */
static void fill(bench *b, uint16_t *to, size_t count) {
    bench_fill_random(b, to, count * 2);
    for (size_t i = 0; i < count; i++) to[i] = (uint16_t)((to[i] & 0x8fff) | 0x2000);
}

static bool job_make(bench *b, lt_job *job, int64_t max_m) {
    size_t weights = (size_t)(job->shape.n * job->shape.k), inputs = (size_t)(max_m * job->shape.k);
    const value_type f16 = {"f16", 'f', 16, 5, 10};
    decode_reference *r = &job->reference;
    job->w_bytes = weights * 2;
    job->w = malloc(weights * 2), job->x = malloc(inputs * 2);
    job->c = malloc((size_t)(max_m * job->shape.n) * 2);
    if (!job->w || !job->x || !job->c) return bench_fail(b, "out of memory");
    fill(b, job->w, weights);
    fill(b, job->x, inputs);
    if (!decode_reference_make(b, job->shape.n, job->shape.k, r)) return false;
    for (unsigned j = 0; j < r->count; j++)
        for (int64_t l = 0; l < r->k; l++)
            r->weights[r->k * j + l] = value_of(&f16, job->w[r->column[j] * r->k + l]);
    if (!decode_reference_multiply(b, r, max_m, &f16, job->x) ||
        !bench_alloc(b, (size_t)(max_m * job->shape.n) * 2, &job->out) ||
        !bench_copies_make(b, (weights + inputs) * 2, &job->copies))
        return false;
    for (unsigned i = 0; i < job->copies.count; i++)
        if (!bench_write(b, job->copies.at[i], job->w, weights * 2) ||
            !bench_write(b, (uint8_t *)job->copies.at[i] + weights * 2, job->x, inputs * 2))
            return false;
    return true;
}

static void free_layouts(lt_job *job) {
    if (job->w_layout) job->l->layout_destroy(job->w_layout);
    if (job->x_layout) job->l->layout_destroy(job->x_layout);
    if (job->c_layout) job->l->layout_destroy(job->c_layout);
    job->w_layout = job->x_layout = job->c_layout = NULL;
}

static bool make_layouts(bench *b, lt_job *job) {
    decode_cublas *l = job->l;
    uint64_t n = (uint64_t)job->shape.n, k = (uint64_t)job->shape.k, m = (uint64_t)job->m;
    return lt(b, l->layout_create(&job->w_layout, CUDA_R_16F, k, n, job->shape.k), "layout") &&
           lt(b, l->layout_create(&job->x_layout, CUDA_R_16F, k, m, job->shape.k), "layout") &&
           lt(b, l->layout_create(&job->c_layout, CUDA_R_16F, n, m, job->shape.n), "layout");
}

static bool check(bench *b, lt_job *job) {
    const value_type f16 = {"f16", 'f', 16, 5, 10};
    size_t bytes = (size_t)(job->m * job->shape.n) * 2;
    memset(job->c, 0xff, bytes);
    if (!bench_write(b, job->out, job->c, bytes) || !enqueue(b, 0, job) || !bench_wait(b) ||
        !bench_read(b, job->c, job->out, bytes))
        return false;
    double error = decode_reference_error(&job->reference, job->m, job->shape.n, &f16, job->c);
    return error < decode_tolerance(&f16) || bench_fail(b, "cuBLASLt: wrong result: error %.3g", error);
}

static bool run_batch(bench *b, lt_job *job, double *first, double *best) {
    lt_heuristic candidates[CANDIDATES];
    int found = 0;
    bench_time time;
    if (!make_layouts(b, job) ||
        !lt(b,
            job->l->heuristic(job->l->handle, job->l->desc, job->w_layout, job->x_layout, job->c_layout,
                              job->c_layout, job->l->preference, CANDIDATES, candidates, &found),
            "heuristic"))
        return false;
    bench_fail(b, "cuBLASLt: no algorithm for this shape");
    for (int i = 0; i < found && !b->lost; i++) { /* one that cannot run is passed over */
        job->candidate = &candidates[i];
        if (candidates[i].state || !check(b, job) ||
            !bench_measure(b, enqueue, job, bench_copies_launches(&job->copies, BENCH_LAUNCHES),
                           BENCH_REPLAYS, &time))
            continue;
        if (isnan(*first)) *first = time.median;
        *best = isnan(*best) ? time.median : fmin(*best, time.median);
    }
    return !isnan(*first);
}

bool decode_cublas_run(bench *b, decode_cublas *l, decode_shape shape, const int64_t *batches, unsigned count,
                       double *first, double *best) {
    lt_job job = {.l = l, .shape = shape};
    int64_t max_m = 1;
    for (unsigned i = 0; i < count; i++) {
        if (batches[i] > max_m) max_m = batches[i];
        first[i] = best[i] = NAN;
    }
    bool ok = job_make(b, &job, max_m);
    for (unsigned i = 0; ok && i < count; i++) {
        job.m = batches[i];
        ok = run_batch(b, &job, &first[i], &best[i]);
        free_layouts(&job);
    }
    bench_copies_free(b, &job.copies);
    bench_free(b, job.out);
    decode_reference_free(&job.reference);
    free(job.w), free(job.x), free(job.c);
    return ok;
}
