/* programs/attention_decode.vasm and kv_append.vasm: types and options of the cache, shapes that are cut into
 * parts, on the GPU against float64; and twice for the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode_kit.h"
#include "suite.h"

static const decode_shape shapes[] = {
    {4, 1, 32, 8, 0, {0, 1, 500, 77}},
    {2, 2, 32, 2, 200, {700, 5}},
    {1, 1, 16, 2, 0, {2500}},
    {3, 1, 16, 8, 0, {1500, 900, 40}},
    {6, 4, 4, 2, 0, {17, 16, 128, 3, 300, 64}},
};
static const decode_form forms[] = {
    {.a = "f16", .page = 16, .lse = true},
    {.a = "bf16", .d = 64, .page = 32, .lse = true, .sinks = true},
    {.a = "f16", .k = "u4", .v = "u4", .page = 16, .sinks = true},
    {.a = "bf16", .page = 128, .soft_cap = true},
    {.a = "f16", .d = 64, .page = 32, .rope = true, .qkv = true, .early = true},
    {.a = "f16", .d = 256, .page = 64, .rope = true, .qkv = true, .lse = true, .early = true},
    {.a = "f16", .page = 128, .early = true},
    {.a = "f16", .d = 256, .page = 64},
    {.a = "f16", .k = "f8_e4m3", .v = "f8_e4m3", .page = 16},
    {.a = "bf16", .k = "f8_e5m2", .v = "f8_e4m3", .k_group = -1, .v_group = -1, .page = 32},
    {.a = "f16", .k = "i8", .v = "u8", .v_zeros = true, .page = 64},
    {.a = "f16", .k = "u4", .v = "u4", .rope = true, .qkv = true, .page = 16, .early = true},
    {.a = "bf16",
     .k = "u4",
     .v = "u4",
     .k_zeros = true,
     .v_zeros = true,
     .k_group = 32,
     .v_group = 32,
     .page = 128},
    {.a = "f16", .k = "u4", .v = "u2", .channels = true, .k_zeros = true, .v_zeros = true, .page = 32},
    {.a = "f16", .k = "f4_e2m1", .v = "i4", .k_group = 64, .page = 64},
    {.a = "f16", .k = "u3", .v = "u3", .page = 16},
    {.a = "f16", .k = "u4", .v = "f8_e5m2", .page = 32},
    {.a = "f16", .k = "u2", .v = "u2", .k_zeros = true, .v_zeros = true, .page = 32},
    {.a = "f16", .k = "f6_e3m2", .v = "f8_e6m1", .page = 64},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, FORMS = sizeof forms / sizeof *forms };

/* Twice, for the same bits. */
static bool attends_by(decode_run *r, const char *kernel) {
    size_t bytes = r->out.count * sizeof *r->out.values;
    if (!decode_attend(r, kernel) || !decode_compare(r)) return false;
    double *first = malloc(bytes);
    if (first == NULL) abort();
    memcpy(first, r->out.values, bytes);
    bool good = decode_attend(r, kernel);
    if (good && memcmp(first, r->out.values, bytes) != 0) good = decode_fail(r, "other bits the second time");
    free(first);
    return good;
}

/* With pages and lengths that are not there: the nearest ones are taken, nothing outside of the cache is
 * touched (which compute-sanitizer would see), and the right table gives the right results afterwards. */
static bool stays_inside(decode_run *r, const char *kernel) {
    double page = r->table.values[0], length = r->lengths.values[0],
           last = r->lengths.values[r->shape.batch - 1];
    r->table.values[0] = -1;
    r->lengths.values[0] = 0x7fffffff;
    r->lengths.values[r->shape.batch - 1] = -5;
    bool good = decode_write(r, &r->table) && decode_write(r, &r->lengths) && decode_attend(r, kernel);
    r->table.values[0] = page;
    r->lengths.values[0] = length;
    r->lengths.values[r->shape.batch - 1] = last;
    return good && decode_write(r, &r->table) && decode_write(r, &r->lengths);
}

/* What the entry chooses; on a Hopper GPU the variants, too, which it takes for many tokens. */
static bool run_shape(suite *s, const gpu_test *test, const decode_shape *shape) {
    static const char *const kernels[] = {"attention_decode",          "attention_decode_bulk8",
                                          "attention_decode_bulk4",    "attention_decode_columns8",
                                          "attention_decode_cluster8", "attention_decode_cluster4",
                                          "attention_decode_cluster2", "attention_decode_heads8"};
    decode_run r;
    bool good = decode_open(&r, s->gpu, s->programs, test->data, shape);
    for (size_t i = 0; good && i < sizeof kernels / sizeof *kernels; i++) {
        tvm_kernel *variant;
        bool is_entry = i == 0, has_heads = strstr(kernels[i], "heads8") != NULL;
        if (has_heads && shape->kv_heads % 8 != 0) continue;
        if (!is_entry && (s->target != 90 || tvm_get_kernel(r.decode, kernels[i], &variant) != TVM_OK))
            continue;
        good = stays_inside(&r, kernels[i]) && attends_by(&r, kernels[i]);
        if (!good) printf("%s ", kernels[i]);
    }
    if (!good)
        printf("%s: batch %d, %d queries, %d heads: %s\n", test->name, shape->batch, shape->queries,
               shape->heads, r.why);
    decode_close(&r);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    bool good = true;
    for (size_t i = 0; i < SHAPES; i++) good = run_shape(s, test, &shapes[i]) && good;
    return good;
}

/* ---- Long sums ---- */

/* Weights that are nearly equal, of so many tokens that a warp sums 2000: what a tensor core cuts off each
 * product where the sum is much greater, it cuts to one side, so that it adds up. So many tiles of queries
 * that each has one block or few, for one head of keys or for eight. */
static const decode_form long_forms[] = {
    {.a = "f16", .k = "u4", .v = "u4", .d = 64},
    {.a = "f16", .k = "u4", .v = "u3", .d = 64},
    {.a = "f16", .k = "u4", .v = "u2", .d = 64},
    {.a = "f16", .k = "u4", .v = "u4", .v_zeros = true, .d = 64},
    {.a = "f16", .k = "u4", .v = "f8_e4m3", .d = 64},
};
enum { LONG_FORMS = sizeof long_forms / sizeof *long_forms };
static const struct {
    decode_shape shape;
    const char *kernels[5];
} long_sums[] = {
    {{1, 64, 16, 1, 0, {16384}},
     {"attention_decode", "attention_decode_bulk8", "attention_decode_bulk4", "attention_decode_columns8"}},
    {{1, 64, 128, 8, 0, {2048}}, {"attention_decode_heads8"}}};
enum { LONG_SUMS = sizeof long_sums / sizeof *long_sums };

/* The mean of the errors of the first and the last query, against the root of the mean square of the results.
 * Where sums were kept for all of a warp's tokens it was 0.1 to 2 of it. */
static bool has_no_bias(decode_run *r) {
    static const double least = 1e-2;
    const decode_shape *s = &r->shape;
    size_t d = (size_t)r->form.d, count = 0;
    double error = 0, squares = 0;
    for (int query = 0; query < s->queries; query += s->queries - 1)
        for (int head = 0; head < s->heads; head++) {
            decode_sums sums =
                decode_sum(r, 0, 0, s->lengths[0] - s->queries + query + 1, (size_t)query, head);
            const double *out = r->out.values + ((size_t)query * (size_t)s->heads + (size_t)head) * d;
            for (size_t j = 0; j < d; j++, count++) {
                double want = sums.values[j] / sums.total;
                error += out[j] - want, squares += want * want;
            }
            free(sums.values);
        }
    double bias = error / (double)count / sqrt(squares / (double)count);
    return fabs(bias) < least || decode_fail(r, "the mean of the errors is %.2g of the results", bias);
}

static bool run_long(suite *s, const gpu_test *test) {
    bool good = true;
    for (size_t i = 0; good && i < LONG_SUMS; i++) {
        decode_run r;
        tvm_kernel *variant;
        good = decode_open(&r, s->gpu, s->programs, test->data, &long_sums[i].shape);
        r.scale = 1.0 / 64;
        for (const char *const *kernel = long_sums[i].kernels; good && *kernel; kernel++) {
            bool is_entry = strcmp(*kernel, "attention_decode") == 0;
            if (!is_entry && (s->target != 90 || tvm_get_kernel(r.decode, *kernel, &variant) != TVM_OK))
                continue;
            good = decode_attend(&r, *kernel) && has_no_bias(&r);
            if (!good) printf("%s ", *kernel);
        }
        if (!good) printf("%s: %d tokens: %s\n", test->name, long_sums[i].shape.lengths[0], r.why);
        decode_close(&r);
    }
    return good;
}

/* The cache alone, and that attention_decode's programs are translated side by side with kv_append's. */
static bool run_cache(suite *s, const gpu_test *test) {
    decode_run r;
    bool good = decode_open(&r, s->gpu, s->programs, test->data, &shapes[0]);
    if (!good) printf("%s: %s\n", test->name, r.why);
    decode_close(&r);
    return good;
}

static gpu_test *add(suite *s, gpu_group *group, const decode_form *form, bool decode) {
    const char *program = decode ? "attention_decode" : "kv_append", *defines[DECODE_DEFINES];
    char name[128], file[4200], texts[DECODE_DEFINES][32];
    size_t count = decode_defines(form, decode, texts), at;
    for (size_t i = 0; i < count; i++) defines[i] = texts[i];
    at = (size_t)snprintf(name, sizeof name, "%s", program);
    for (size_t i = 0; i < count && at < sizeof name; i++)
        at += (size_t)snprintf(name + at, sizeof name - at, " %s", texts[i]);
    snprintf(file, sizeof file, "%s/%s.vasm", s->programs, program);
    gpu_test *test = gpu_add(group, name, NULL, file, defines, count);
    test->run = decode ? run : run_cache;
    test->data = form;
    return test;
}

void gpu_add_attention_decode(suite *s, gpu_group *group) {
    for (size_t i = 0; i < LONG_FORMS; i++) add(s, group, &long_forms[i], true)->run = run_long;
    for (size_t i = 0; i < FORMS; i++) add(s, group, &forms[i], false), add(s, group, &forms[i], true);
}
