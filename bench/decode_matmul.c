/* Ours: the program of a type, its data, the check of its result and its time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

enum { M, N, K, A, P, S, Z, C, ROLES };
static const char *const role_names[ROLES] = {"m", "n", "k", "a", "p", "s", "z", "c"};
enum { PACK_N, PACK_K, PACK_W, PACK_P, PACK_ROLES };
static const char *const pack_names[PACK_ROLES] = {"n", "k", "w", "p"};
enum { ALIGNMENT = 256, CHAIN_MAX = 512 };

/* ---- the program ---- */

static bool find_roles(bench *b, const tvm_kernel *kernel, const char *const *names, unsigned count,
                       int *roles) {
    for (unsigned i = 0; i < count; i++) roles[i] = -1;
    for (size_t p = 0; p < tvm_param_count(kernel); p++) {
        tvm_param_info info;
        unsigned role = 0;
        if (!bench_ok(b, tvm_param(kernel, p, &info), "parameter")) return false;
        while (role < count && strcmp(names[role], info.name)) role++;
        if (role == count)
            return bench_fail(b, "kernel %s: what parameter %s is to be is not known",
                              tvm_kernel_name(kernel), info.name);
        roles[role] = (int)p;
    }
    for (unsigned i = 0; i < count; i++)
        if (roles[i] < 0 && strcmp(names[i], "z"))
            return bench_fail(b, "kernel %s has no parameter %s", tvm_kernel_name(kernel), names[i]);
    return true;
}

bool decode_program_load(bench *b, const decode_options *options, decode_program *program) {
    char path[4096], define[32];
    const char *defines[DECODE_DEFINES + 1];
    const char *hole = strstr(options->program, "%s");
    int before = hole ? (int)(hole - options->program) : (int)strlen(options->program);
    snprintf(path, sizeof path, "%.*s%s%s", before, options->program, hole ? program->type.name : "",
             hole ? hole + 2 : "");
    snprintf(define, sizeof define, "WTYPE=%s", program->type.name);
    memcpy(defines, options->defines, options->define_count * sizeof *defines);
    defines[options->define_count] = define;
    program->tried = true;
    bool ok = bench_load(b, path, defines, options->define_count + 1, &program->program) &&
              bench_ok(b, tvm_get_kernel(program->program, "pack", &program->pack), path) &&
              bench_ok(b, tvm_get_kernel(program->program, options->kernel, &program->multiply), path) &&
              find_roles(b, program->pack, pack_names, PACK_ROLES, program->pack_roles) &&
              find_roles(b, program->multiply, role_names, ROLES, program->roles);
    if (!ok) snprintf(program->why, sizeof program->why, "%.500s", b->why);
    return ok;
}

void decode_program_close(decode_program *program) {
    tvm_program_free(program->program);
    program->program = NULL;
}

bool decode_program_variant(bench *b, const decode_program *program, int64_t m, decode_shape shape,
                            const char **name) {
    tvm_value values[ROLES] = {0};
    values[program->roles[M]].i = m;
    values[program->roles[N]].i = shape.n;
    values[program->roles[K]].i = shape.k;
    return bench_ok(b,
                    tvm_kernel_variant(program->multiply, values, tvm_param_count(program->multiply), name),
                    tvm_kernel_name(program->multiply));
}

/* ---- the data ---- */

struct decode_problem {
    const decode_options *options;
    decode_program *program;
    decode_shape shape;
    tvm_kernel *multiply; /* what is launched, */
    int64_t m;            /* with so many rows */
    int64_t max_m, group;
    value_type a_type, s_type, c_type;
    size_t p_bytes, s_bytes, z_bytes;    /* of a copy: packed weights, scales, zero points, */
    size_t s_offset, z_offset, a_offset; /* then activations */
    uint8_t *w, *a, *s, *z;              /* the host's */
    uint8_t *c, *again;
    double rms; /* of the weights before they are scaled */
    bench_copies copies;
    unsigned links;              /* of a chain: activations x[0], results x[1] to x[links] */
    void *x[CHAIN_MAX + 1];      /* x[1] is also where a single matmul's result goes */
    tvm_value values[ROLES + 1]; /* of the matmul, in the order of its parameters */
    decode_reference reference;
};

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t a_bytes(const decode_problem *q, int64_t m) {
    return (size_t)(m * q->shape.k) * (q->a_type.bits / 8);
}

static size_t c_bytes(const decode_problem *q, int64_t m) {
    return (size_t)(m * q->shape.n) * (q->c_type.bits / 8);
}

static tvm_value *value(decode_problem *q, int role) {
    int place = q->program->roles[role];
    return &q->values[place < 0 ? ROLES : place];
}

static bool float_type(bench *b, const decode_problem *q, int role, value_type *type) {
    tvm_param_info info;
    if (!bench_ok(b, tvm_param(q->program->multiply, (size_t)q->program->roles[role], &info), "parameter"))
        return false;
    if (value_type_named(info.type, type) && type->bits >= 16) return true;
    return bench_fail(b, "parameter %s: f16, bf16 or f32 is expected, not %s", info.name, info.type);
}

static bool tensor_size(bench *b, decode_problem *q, int role, int64_t shape[8], size_t *bytes) {
    *bytes = 0;
    if (q->program->roles[role] < 0) return true;
    return bench_ok(b,
                    tvm_param_shape(q->program->multiply, (size_t)q->program->roles[role], q->values,
                                    tvm_param_count(q->program->multiply), shape, bytes),
                    q->options->kernel);
}

static bool plan(bench *b, decode_problem *q) {
    int64_t shape[8] = {0};
    value(q, N)->i = q->shape.n, value(q, K)->i = q->shape.k;
    if (!float_type(b, q, A, &q->a_type) || !float_type(b, q, S, &q->s_type) ||
        !float_type(b, q, C, &q->c_type) || !tensor_size(b, q, P, shape, &q->p_bytes) ||
        !tensor_size(b, q, S, shape, &q->s_bytes))
        return false;
    if (shape[0] < 1 || q->shape.k % shape[0] || shape[1] != q->shape.n)
        return bench_fail(b, "s is not [groups, n]");
    q->group = q->shape.k / shape[0];
    if (!tensor_size(b, q, Z, shape, &q->z_bytes)) return false;
    if (q->z_bytes && q->z_bytes != q->s_bytes) return bench_fail(b, "z is not as large as s");
    q->s_offset = aligned(q->p_bytes);
    q->z_offset = q->s_offset + aligned(q->s_bytes);
    q->a_offset = q->z_offset + aligned(q->z_bytes);
    return true;
}

/* Activations: multiples of 2^-7 in [-1, 1), which every float type here has. Scales: either sign, a
 * magnitude between 1/2 and 3/2 of what makes the sums of a chain as large as what they are made of, so that
 * it can be long; those of single ones are larger, so that types of large weights do not get subnormal
 * scales. */
static void make_values(bench *b, decode_problem *q) {
    size_t scales = q->s_bytes / (q->s_type.bits / 8), activations = (size_t)(q->max_m * q->shape.k);
    double gain = q->options->chain ? 1 / sqrt((double)q->shape.k * 13 / 12) : 0.05;
    for (size_t i = 0; i < activations; i++) {
        double x = (double)(int64_t)(bench_random(b) >> 56) / 128 - 1;
        decode_set_code(&q->a_type, q->a, i, value_code(&q->a_type, x));
    }
    for (size_t i = 0; i < scales; i++) {
        uint64_t random = bench_random(b);
        double s = gain / q->rms * (0.5 + (double)(random >> 11) * 0x1p-53);
        decode_set_code(&q->s_type, q->s, i, value_code(&q->s_type, random & 1 ? -s : s));
    }
    for (size_t i = 0; i < (q->z_bytes ? scales : 0); i++) {
        double zero = (double)(bench_random(b) >> (64 - q->program->type.bits));
        decode_set_code(&q->s_type, q->z, i, value_code(&q->s_type, zero));
    }
}

/* What the code stands for, before scales: unsigned types have a zero point in the middle when they have no
 * z. */
static double weight(const decode_problem *q, int64_t row, int64_t column) {
    const value_type *type = &q->program->type;
    size_t at = (size_t)(row * q->shape.n + column);
    double v = value_of(type, value_at(q->w, at, type->bits));
    if (q->z_bytes) {
        size_t group = (size_t)(row / q->group * q->shape.n + column);
        return v - value_of(&q->s_type, decode_code(&q->s_type, q->z, group));
    }
    return type->kind == 'u' ? v - (double)(1u << (type->bits - 1)) : v;
}

static double root_mean_square(bench *b, const decode_problem *q) {
    enum { SAMPLES = 10000 };
    double sum = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double v = weight(q, (int64_t)(bench_random(b) % (uint64_t)q->shape.k),
                          (int64_t)(bench_random(b) % (uint64_t)q->shape.n));
        sum += v * v;
    }
    return sum > 0 ? sqrt(sum / SAMPLES) : 1;
}

static bool make_host(bench *b, decode_problem *q) {
    size_t weights = (size_t)(q->shape.n * q->shape.k);
    if (weights % 8) return bench_fail(b, "n k must be a multiple of 8");
    q->w = malloc(weights / 8 * q->program->type.bits);
    q->a = malloc(a_bytes(q, q->max_m));
    q->s = malloc(q->s_bytes), q->z = calloc(q->z_bytes + 1, 1);
    q->c = malloc(c_bytes(q, q->max_m)), q->again = malloc(c_bytes(q, q->max_m));
    if (!q->w || !q->a || !q->s || !q->z || !q->c || !q->again) return bench_fail(b, "out of memory");
    value_fill(b, &q->program->type, q->w, weights);
    q->rms = root_mean_square(b, q);
    make_values(b, q);
    if (!q->options->checked) return true;
    decode_reference *r = &q->reference;
    if (!decode_reference_make(b, q->shape.n, q->shape.k, r)) return false;
    for (int64_t l = 0; l < q->shape.k; l++)
        for (unsigned j = 0; j < r->count; j++) {
            size_t group = (size_t)(l / q->group * q->shape.n + r->column[j]);
            r->weights[(size_t)(q->shape.k * j + l)] =
                weight(q, l, r->column[j]) * value_of(&q->s_type, decode_code(&q->s_type, q->s, group));
        }
    return decode_reference_multiply(b, r, q->max_m, &q->a_type, q->a);
}

static bool pack(bench *b, decode_problem *q, void *w, void *to) {
    const int *roles = q->program->pack_roles;
    tvm_value values[PACK_ROLES] = {0};
    size_t bytes;
    values[roles[PACK_N]].i = q->shape.n, values[roles[PACK_K]].i = q->shape.k;
    values[roles[PACK_W]].data = w, values[roles[PACK_P]].data = to;
    if (!bench_ok(b,
                  tvm_param_shape(q->program->pack, (size_t)roles[PACK_P], values, PACK_ROLES,
                                  (int64_t[8]){0}, &bytes),
                  "pack"))
        return false;
    if (bytes != q->p_bytes)
        return bench_fail(b, "pack makes %zu bytes where %s wants %zu", bytes, q->options->kernel,
                          q->p_bytes);
    return bench_ok(b, tvm_launchv(q->program->pack, b->stream, values, PACK_ROLES), "pack");
}

static bool make_device(bench *b, decode_problem *q) {
    size_t weights = (size_t)(q->shape.n * q->shape.k) / 8 * q->program->type.bits;
    void *w = NULL;
    bool ok = bench_copies_make(b, q->a_offset + a_bytes(q, q->max_m), &q->copies) &&
              bench_alloc(b, weights, &w) && bench_write(b, w, q->w, weights);
    for (unsigned i = 0; ok && i < q->copies.count; i++) {
        uint8_t *at = q->copies.at[i];
        ok = pack(b, q, w, at) && bench_write(b, at + q->s_offset, q->s, q->s_bytes) &&
             (!q->z_bytes || bench_write(b, at + q->z_offset, q->z, q->z_bytes)) &&
             bench_write(b, at + q->a_offset, q->a, a_bytes(q, q->max_m));
    }
    ok = ok && bench_wait(b);
    bench_free(b, w);
    q->links = 1;
    if (q->options->chain) { /* a whole number of turns over the copies */
        q->links = (q->options->chain + q->copies.count - 1) / q->copies.count * q->copies.count;
        if (ok && q->links > CHAIN_MAX) ok = bench_fail(b, "a chain of %u is too long", q->links);
    }
    for (unsigned i = q->options->chain ? 0 : 1; ok && i <= q->links; i++)
        ok = bench_alloc(b, c_bytes(q, q->max_m), &q->x[i]);
    return ok && (!q->x[0] || bench_write(b, q->x[0], q->a, a_bytes(q, q->max_m)));
}

bool decode_problem_make(bench *b, decode_program *program, const decode_options *options, decode_shape shape,
                         int64_t max_m, decode_problem **problem) {
    decode_problem *q = *problem = calloc(1, sizeof *q);
    if (!q) return bench_fail(b, "out of memory");
    *q = (decode_problem){.options = options, .program = program, .shape = shape, .max_m = max_m};
    decode_problem_set(q, program->multiply, max_m);
    if (!plan(b, q)) return false;
    if (options->chain && (shape.n != shape.k || strcmp(q->a_type.name, q->c_type.name)))
        return bench_fail(b, "a chain needs n = k, and results of the activations' type");
    return make_host(b, q) && make_device(b, q);
}

void decode_problem_free(bench *b, decode_problem *q) {
    if (!q) return;
    bench_copies_free(b, &q->copies);
    for (unsigned i = 0; i <= CHAIN_MAX; i++) bench_free(b, q->x[i]);
    decode_reference_free(&q->reference);
    free(q->w), free(q->a), free(q->s), free(q->z), free(q->c), free(q->again);
    free(q);
}

/* ---- check and time ---- */

void decode_problem_set(decode_problem *q, tvm_kernel *kernel, int64_t m) {
    q->multiply = kernel;
    q->m = m;
    value(q, M)->i = m;
}

tvm_status decode_problem_reserve(bench *b, decode_problem *q) {
    tvm_status status = tvm_reserve(q->multiply, b->stream, q->values, tvm_param_count(q->multiply));
    bench_ok(b, status, tvm_kernel_name(q->multiply));
    return status;
}

unsigned decode_problem_launches(const decode_problem *q, unsigned least) {
    return bench_copies_launches(&q->copies, least);
}

static bool launch(bench *b, decode_problem *q, unsigned i, void *a, void *c) {
    uint8_t *at = q->copies.at[i % q->copies.count];
    value(q, P)->data = at, value(q, S)->data = at + q->s_offset, value(q, Z)->data = at + q->z_offset;
    value(q, A)->data = a ? a : at + q->a_offset;
    value(q, C)->data = c;
    return bench_ok(b, tvm_launchv(q->multiply, b->stream, q->values, tvm_param_count(q->multiply)),
                    tvm_kernel_name(q->multiply));
}

bool decode_problem_enqueue(bench *b, unsigned i, decode_problem *q) {
    return launch(b, q, i, NULL, q->x[1]);
}

static bool enqueue_single(bench *b, unsigned i, void *data) {
    return decode_problem_enqueue(b, i, data);
}

static bool enqueue_link(bench *b, unsigned i, void *data) {
    decode_problem *q = data;
    return launch(b, q, i, q->x[i], q->x[i + 1]);
}

/* One launch on copy i into poisoned memory, and the result. */
static bool result_of(bench *b, decode_problem *q, unsigned i, uint8_t *c) {
    size_t bytes = c_bytes(q, q->m);
    memset(c, 0xff, bytes); /* NaN in every type */
    return bench_write(b, q->x[1], c, bytes) && decode_problem_enqueue(b, i, q) && bench_wait(b) &&
           bench_read(b, c, q->x[1], bytes);
}

bool decode_problem_check(bench *b, decode_problem *q, double *error) {
    if (!result_of(b, q, 0, q->c) || !result_of(b, q, q->copies.count - 1, q->again)) return false;
    *error = decode_reference_error(&q->reference, q->m, q->shape.n, &q->c_type, q->c);
    if (!(*error < decode_tolerance(&q->c_type))) return bench_fail(b, "wrong result: error %.3g", *error);
    if (memcmp(q->c, q->again, c_bytes(q, q->m))) return bench_fail(b, "two runs differ");
    return true;
}

/* The end of the chain: each link's own launch, or after the replays. */
static bool check_chain(bench *b, decode_problem *q, const uint8_t *expected, uint8_t *end) {
    size_t bytes = c_bytes(q, q->m);
    if (!bench_wait(b) || !bench_read(b, end, q->x[q->links], bytes)) return false;
    if (expected && memcmp(expected, end, bytes)) return bench_fail(b, "the chain's replays differ");
    for (size_t i = 0; i < bytes / (q->c_type.bits / 8); i++)
        if (!isfinite(value_of(&q->c_type, decode_code(&q->c_type, end, i))))
            return bench_fail(b, "the chain's end is not finite");
    return true;
}

static bool time_chain(bench *b, decode_problem *q, bench_time *time) {
    for (unsigned i = 0; i < q->links; i++)
        if (!enqueue_link(b, i, q)) return false;
    if (q->options->checked && !check_chain(b, q, NULL, q->c)) return false;
    if (!bench_measure(b, enqueue_link, q, q->links, BENCH_REPLAYS, time)) return false;
    return !q->options->checked || check_chain(b, q, q->c, q->again);
}

static bool time_single(bench *b, decode_problem *q, bench_time *time) {
    return enqueue_single(b, 0, q) &&
           bench_measure(b, enqueue_single, q, decode_problem_launches(q, BENCH_LAUNCHES), BENCH_REPLAYS,
                         time);
}

bool decode_problem_run(bench *b, decode_problem *q, bench_floor *floor, int64_t m, decode_point *point) {
    bench_time time;
    decode_problem_set(q, q->program->multiply, m);
    point->group = q->group;
    point->bytes = q->p_bytes + q->s_bytes + q->z_bytes + a_bytes(q, m);
    if (q->options->checked && !decode_problem_check(b, q, &point->error)) return false;
    if (!q->options->timed) return true;
    if (!bench_floor_time(b, floor, &q->copies, point->bytes, false, &point->floor) ||
        (b->launch_ex && !bench_floor_time(b, floor, &q->copies, point->bytes, true, &point->floor_pdl)) ||
        !(q->options->chain ? time_chain(b, q, &time) : time_single(b, q, &time)))
        return false;
    point->ours = time.median;
    point->ours_least = time.least;
    return true;
}
