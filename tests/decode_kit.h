/* Attention to a paged cache on any context: random keys and values go into the cache by kv_append, in two
 * parts, come back by kv_unpack, and attention_decode of what is in the cache is compared with that in
 * float64. */
#ifndef TVM_TESTS_DECODE_KIT_H
#define TVM_TESTS_DECODE_KIT_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tvm.h"
#include "types.h"

enum { DECODE_SEQUENCES = 8, DECODE_SLAB = 16, DECODE_ARGUMENTS = 24, DECODE_DEFINES = 16, DECODE_HEADS = 3 };

/* What the programs are assembled for; 0 is the programs' own choice, and of groups -1 none. `qkv`: kv_append
 * gets keys and values in rows with DECODE_HEADS heads of queries before them. */
typedef struct decode_form {
    const char *a, *k, *v;
    int d, page, k_group, v_group;
    bool channels, k_zeros, v_zeros, soft_cap, lse, sinks, rope, qkv, early;
} decode_form;

typedef struct decode_shape {
    int batch, queries, heads, kv_heads, window;
    int lengths[DECODE_SEQUENCES];
} decode_shape;

typedef struct decode_tensor {
    tvm_dtype type;
    size_t count;
    double *values;
    void *data; /* the context's */
} decode_tensor;

/* One run: its inputs and results as float64, and why it is wrong, or "". */
typedef struct decode_run {
    tvm_context *context;
    tvm_program *append, *decode;
    decode_form form;
    decode_shape shape;
    tvm_dtype type, k_type, v_type;
    int max_pages, pages, tokens, longest;
    size_t slab;
    double scale, cap, v_most;
    double
        *turn_error; /* of each key, what f32 arithmetic of its turn may be off by; NULL: it is not turned */
    decode_tensor starts, table, lengths, k, v, back_k, back_v, rotation, k_scale, k_zero, cache, q, sinks,
        out, lse;
    uint64_t random;
    char why[400];
} decode_run;

static inline bool decode_fail(decode_run *r, const char *format, ...) {
    va_list list;
    va_start(list, format);
    if (r->why[0] == '\0') vsnprintf(r->why, sizeof r->why, format, list);
    va_end(list);
    return false;
}

static inline tvm_dtype decode_type(const char *name) {
    tvm_dtype type;
    if (!tvm_dtype_parse(name, strlen(name), &type)) abort();
    return type;
}

static inline double decode_random(decode_run *r, double low, double high) {
    r->random = r->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (high - low) * (double)(r->random >> 11) * 0x1p-53;
}

/* ---- Tensors ---- */

static inline size_t decode_bytes(const decode_tensor *t) {
    return (t->count * t->type.bits + 7) / 8;
}

/* Between the values and the bytes of the type; values become what the type makes of them. */
static inline void decode_encode(decode_tensor *t, uint8_t *bytes) {
    bool plain = tvm_dtype_same(t->type, TVM_F32); /* large ones: as the compiler converts */
    for (size_t i = 0; i < t->count && plain; i++) {
        float value = (float)t->values[i];
        memcpy(bytes + i * sizeof value, &value, sizeof value);
        t->values[i] = (double)value;
    }
    for (size_t i = 0; i < t->count && !plain; i++) {
        uint64_t code = tvm_encode(t->type, t->values[i]);
        tvm_bits_set(bytes, i * t->type.bits, t->type.bits, code);
        t->values[i] = tvm_decode(t->type, code);
    }
}

static inline bool decode_write(decode_run *r, decode_tensor *t) {
    uint8_t *bytes = calloc(decode_bytes(t) + 1, 1);
    if (bytes == NULL) abort();
    decode_encode(t, bytes);
    bool good = tvm_memory_write(r->context, t->data, bytes, decode_bytes(t)) == TVM_OK;
    free(bytes);
    return good || decode_fail(r, "write: %s", tvm_message(r->context));
}

static inline bool decode_read(decode_run *r, decode_tensor *t) {
    uint8_t *bytes = calloc(decode_bytes(t) + 1, 1);
    if (bytes == NULL) abort();
    bool good = tvm_memory_read(r->context, bytes, t->data, decode_bytes(t)) == TVM_OK;
    bool plain = tvm_dtype_same(t->type, TVM_F32);
    for (size_t i = 0; i < t->count; i++) {
        float value = 0;
        if (plain) memcpy(&value, bytes + i * sizeof value, sizeof value);
        t->values[i] =
            plain ? (double)value : tvm_decode(t->type, tvm_bits_get(bytes, i * t->type.bits, t->type.bits));
    }
    free(bytes);
    return good || decode_fail(r, "read: %s", tvm_message(r->context));
}

/* Random values in [low, high). */
static inline bool decode_new(decode_run *r, decode_tensor *t, tvm_dtype type, size_t count, double low,
                              double high) {
    *t = (decode_tensor){.type = type, .count = count, .values = calloc(count + 1, sizeof *t->values)};
    if (t->values == NULL) abort();
    for (size_t i = 0; i < count; i++) t->values[i] = decode_random(r, low, high);
    if (tvm_memory_alloc(r->context, decode_bytes(t) + 16, &t->data) != TVM_OK)
        return decode_fail(r, "memory: %s", tvm_message(r->context));
    return decode_write(r, t);
}

/* Bytes that are no numbers, whatever they are read as; without values. */
static inline bool decode_poison(decode_run *r, decode_tensor *t, size_t bytes) {
    uint8_t *poison = malloc(bytes);
    *t = (decode_tensor){.type = TVM_U(8), .count = bytes};
    if (poison == NULL) abort();
    memset(poison, 0xff, bytes);
    bool good = tvm_memory_alloc(r->context, bytes, &t->data) == TVM_OK &&
                tvm_memory_write(r->context, t->data, poison, bytes) == TVM_OK;
    free(poison);
    return good || decode_fail(r, "memory: %s", tvm_message(r->context));
}

static inline void decode_free_tensor(decode_run *r, decode_tensor *t) {
    if (t->data) tvm_memory_free(r->context, t->data);
    free(t->values);
    *t = (decode_tensor){.data = NULL};
}

/* ---- Programs ---- */

/* NAME=VALUE of everything that is not the programs' own choice; those of attention_decode, or of kv_append.
 */
static inline size_t decode_defines(const decode_form *f, bool decode, char texts[DECODE_DEFINES][32]) {
    size_t n = 0;
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"D", f->d}, {"PAGE", f->page}, {"KGROUP", f->k_group}, {"VGROUP", f->v_group}};
    const struct {
        const char *name;
        bool set;
    } flags[] = {
        {"KCHANNELS", f->channels},          {"KZEROS", f->k_zeros},    {"VZEROS", f->v_zeros},
        {"SOFT_CAP", f->soft_cap && decode}, {"LSE", f->lse && decode}, {"ROPE", f->rope && !decode},
        {"QKV", f->qkv && !decode},          {"EARLY", f->early},       {"SINKS", f->sinks && decode}};
    snprintf(texts[n++], 32, "ATYPE=%s", f->a);
    if (f->k) snprintf(texts[n++], 32, "KTYPE=%s", f->k);
    if (f->v) snprintf(texts[n++], 32, "VTYPE=%s", f->v);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value != 0)
            snprintf(texts[n++], 32, "%s=%d", numbers[i].name, numbers[i].value < 0 ? 0 : numbers[i].value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].set) snprintf(texts[n++], 32, "%s=true", flags[i].name);
    if (!decode) snprintf(texts[n++], 32, "T=f32");
    return n;
}

static inline bool decode_load(decode_run *r, const char *folder, const char *file, bool decode,
                               tvm_program **program) {
    char path[4200], include[4300], texts[DECODE_DEFINES][32];
    const char *defines[DECODE_DEFINES];
    size_t count = decode_defines(&r->form, decode, texts);
    for (size_t i = 0; i < count; i++) defines[i] = texts[i];
    snprintf(path, sizeof path, "%s/test", folder);
    snprintf(include, sizeof include, ".vasm 3\n.include \"%s\"\n", file);
    tvm_assemble_options options = {.name = path, .defines = defines, .define_count = count};
    return tvm_assemble(r->context, include, strlen(include), &options, program) == TVM_OK ||
           decode_fail(r, "%s: %s", file, tvm_message(r->context));
}

/* Arguments as they are added to a list. */
typedef struct decode_list {
    tvm_value values[DECODE_ARGUMENTS];
    size_t count;
} decode_list;

static inline void decode_add(decode_list *l, double value) {
    l->values[l->count++] = (tvm_value){.i = (int64_t)value, .f = value};
}

static inline void decode_add_tensor(decode_list *l, const decode_tensor *t) {
    l->values[l->count++] = (tvm_value){.data = t->data, .bytes = decode_bytes(t)};
}

static inline bool decode_launch(decode_run *r, tvm_program *program, const char *name,
                                 const decode_list *l) {
    tvm_kernel *kernel = NULL;
    return (tvm_get_kernel(program, name, &kernel) == TVM_OK &&
            tvm_launchv(kernel, NULL, l->values, l->count) == TVM_OK) ||
           decode_fail(r, "%s: %s", name, tvm_message(r->context));
}

/* ---- The cache ---- */

static inline int decode_groups(int group, int d, tvm_dtype type) {
    return group < 0 || type.bits == 16 ? 0 : group == 0 ? 1 : d / group;
}

/* A table whose entries beyond a sequence's pages lead nowhere; pages in no order, and one of them nobody's.
 */
static inline bool decode_pages(decode_run *r) {
    const decode_shape *s = &r->shape;
    int page = r->form.page, next = 0;
    r->max_pages = 1, r->pages = 1;
    for (int i = 0; i < s->batch; i++) {
        int need = (s->lengths[i] + page - 1) / page;
        r->pages += need;
        if (need > r->max_pages) r->max_pages = need;
        r->tokens += s->lengths[i];
        if (s->lengths[i] > r->longest) r->longest = s->lengths[i];
    }
    int step = r->pages % 7 ? 7 : r->pages % 5 ? 5 : r->pages % 3 ? 3 : 1;
    if (!decode_new(r, &r->table, TVM_I(32), (size_t)(s->batch * r->max_pages), 0, 0) ||
        !decode_new(r, &r->lengths, TVM_I(32), (size_t)s->batch, 0, 0) ||
        !decode_new(r, &r->starts, TVM_I(32), (size_t)s->batch + 1, 0, 0))
        return false;
    for (int i = 0; i < s->batch * r->max_pages; i++) {
        bool used = i % r->max_pages * page < s->lengths[i / r->max_pages];
        r->table.values[i] = used ? (double)(++next * step % r->pages) : 0x7ffffff0;
    }
    return decode_write(r, &r->table);
}

/* The rows of k and v that are tokens from share `part` to `part + 1` of two of each sequence, or with both
 * all. */
static inline bool decode_part(decode_run *r, int part, bool both) {
    int at = 0;
    for (int i = 0; i < r->shape.batch; i++) {
        int length = r->shape.lengths[i], half = length * 2 / 3;
        r->starts.values[i] = at;
        r->lengths.values[i] = part == 0 && !both ? half : length;
        at += both ? length : part == 0 ? half : length - half;
    }
    r->starts.values[r->shape.batch] = at;
    return decode_write(r, &r->starts) && decode_write(r, &r->lengths);
}

/* k and v; or, with `turned`, the rows of which they are a part, and where their queries go. */
static inline bool decode_store(decode_run *r, const char *name, const decode_tensor *k,
                                const decode_tensor *v, const decode_tensor *rows,
                                const decode_tensor *turned) {
    decode_list l = {.count = 0};
    decode_add(&l, r->shape.batch),
        decode_add(&l, (double)(k->count / (size_t)(r->shape.kv_heads * r->form.d)));
    decode_add(&l, r->longest);
    if (turned) decode_add(&l, DECODE_HEADS);
    decode_add(&l, r->shape.kv_heads);
    decode_add(&l, r->pages), decode_add(&l, r->max_pages);
    bool turn = r->form.rope && strcmp(name, "kv_append") == 0;
    if (turn) decode_add(&l, (double)(r->rotation.count / (size_t)r->form.d));
    const decode_tensor *list[] = {&r->starts, &r->table, &r->lengths, turned ? rows : k, v};
    for (size_t i = 0; i < (turned ? 4 : 5); i++) decode_add_tensor(&l, list[i]);
    if (turn) decode_add_tensor(&l, &r->rotation);
    if (r->form.channels) decode_add_tensor(&l, &r->k_scale);
    if (r->form.channels && r->form.k_zeros) decode_add_tensor(&l, &r->k_zero);
    if (turned) decode_add_tensor(&l, turned);
    decode_add_tensor(&l, &r->cache);
    return decode_launch(r, r->append, name, &l);
}

/* The queries of rows of `part`, turned by their positions. */
static inline bool decode_compare_queries(decode_run *r, int part, const decode_tensor *rows,
                                          const decode_tensor *turned) {
    size_t d = (size_t)r->form.d, width = (DECODE_HEADS + 2 * (size_t)r->shape.kv_heads) * d, row = 0;
    for (int i = 0; i < r->shape.batch; i++) {
        int length = r->shape.lengths[i], half = length * 2 / 3;
        for (int t = part == 0 ? 0 : half; t < (part == 0 ? half : length); t++, row++)
            for (size_t j = 0; j < DECODE_HEADS * d; j++) {
                const double *x = rows->values + row * width + j - j % d, *turn = r->rotation.values;
                turn += (size_t)t * d + j % (d / 2);
                double a = x[j % (d / 2)], b = x[j % (d / 2) + d / 2], want = x[j % d];
                if (r->form.rope)
                    want = j % d < d / 2 ? a * turn[0] - b * turn[d / 2] : b * turn[0] + a * turn[d / 2];
                double got = turned->values[row * DECODE_HEADS * d + j];
                if (!(fabs(got - want) <= 1e-6))
                    return decode_fail(r, "q, row %zu, %zu is %.9g, expected %.9g", row, j, got, want);
            }
    }
    return true;
}

/* Keys and values in rows behind queries, to the cache; and what became of the queries. */
static inline bool decode_store_rows(decode_run *r, int part, const decode_tensor *k,
                                     const decode_tensor *v) {
    size_t own = (size_t)(r->shape.kv_heads * r->form.d), before = (size_t)(DECODE_HEADS * r->form.d);
    size_t width = before + 2 * own, tokens = k->count / own;
    decode_tensor rows = {.data = NULL}, turned = {.data = NULL};
    bool good = decode_new(r, &rows, k->type, tokens * width, -1, 1) &&
                decode_new(r, &turned, k->type, tokens * before, 99, 99);
    for (size_t t = 0; good && t < tokens; t++) {
        double *to = rows.values + t * width + before;
        memcpy(to, k->values + t * own, own * sizeof *to);
        memcpy(to + own, v->values + t * own, own * sizeof *to);
    }
    good = good && decode_write(r, &rows) && decode_store(r, "kv_append", k, v, &rows, &turned) &&
           decode_read(r, &turned) && decode_compare_queries(r, part, &rows, &turned);
    decode_free_tensor(r, &rows), decode_free_tensor(r, &turned);
    return good;
}

/* Rows of the sequences' tokens in `part` of them, of `all`, to a tensor of their own. */
static inline bool decode_pick(decode_run *r, const decode_tensor *all, int part, decode_tensor *to) {
    size_t row = (size_t)(r->shape.kv_heads * r->form.d), from = 0, at = 0;
    if (!decode_new(r, to, all->type, all->count, 0, 0)) return false;
    for (int i = 0; i < r->shape.batch; i++) {
        size_t length = (size_t)r->shape.lengths[i], half = length * 2 / 3;
        size_t begin = part == 0 ? 0 : half, end = part == 0 ? half : length;
        memcpy(to->values + at * row, all->values + (from + begin) * row,
               (end - begin) * row * sizeof(double));
        at += end - begin, from += length;
    }
    return decode_write(r, to);
}

static inline bool decode_fill(decode_run *r) {
    bool good = true;
    for (int part = 0; part < 2 && good; part++) {
        decode_tensor k = {.data = NULL}, v = {.data = NULL};
        good = decode_pick(r, &r->k, part, &k) && decode_pick(r, &r->v, part, &v) &&
               decode_part(r, part, false) &&
               (r->form.qkv ? decode_store_rows(r, part, &k, &v)
                            : decode_store(r, "kv_append", &k, &v, NULL, NULL));
        decode_free_tensor(r, &k), decode_free_tensor(r, &v);
    }
    return good && decode_part(r, 0, true) &&
           decode_store(r, "kv_unpack", &r->back_k, &r->back_v, NULL, NULL) && decode_read(r, &r->back_k) &&
           decode_read(r, &r->back_v);
}

/* ---- What quantization may change ---- */

/* The greatest code's value, less the zero point; for the step between neighbours. */
static inline double decode_largest(tvm_dtype type) {
    if (type.kind != TVM_KIND_FLOAT) return (double)((1 << (type.bits - 1)) - 1);
    double most = 0;
    for (uint64_t code = 0; code < UINT64_C(1) << type.bits; code++) {
        double value = tvm_decode(type, code);
        if (isfinite(value)) most = fmax(most, value);
    }
    return most;
}

/* Half the distance of a type's neighbours where `x` is, in units of the codes, or where it may come to be
 * when the scale is rounded: a power of two away at the most. */
static inline double decode_half_step(tvm_dtype type, double x) {
    if (type.kind != TVM_KIND_FLOAT) return 0.5;
    int subnormal = 2 - (1 << (type.exponent - 1)); /* exponent of the smallest normal number */
    return fmax(fabs(x), ldexp(1, subnormal)) * ldexp(1, -1 - type.mantissa);
}

static inline bool decode_compare_group(decode_run *r, const char *what, const double *x, const double *y,
                                        int count, tvm_dtype type, bool zeros) {
    double most = 0, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(x[i])), low = fmin(low, x[i]), high = fmax(high, x[i]);
    double scale =
        zeros ? fmax((high - low) / ((1 << type.bits) - 1), most / 2048) : most / decode_largest(type);
    for (int i = 0; i < count; i++) {
        double half = scale * decode_half_step(type, zeros ? 0 : x[i] / scale);
        if (!(fabs(x[i] - y[i]) <= 1.002 * half + most * 0x1p-10 + (zeros ? scale * 0.6 : 0)))
            return decode_fail(r, "%s: element %d of a group is %.9g, from %.9g", what, i, y[i], x[i]);
    }
    return true;
}

/* By how much a value of 16 bits may be off: half the distance of its neighbours, and what it was off by
 * before it was rounded to them. */
static inline double decode_rounding(tvm_dtype type, double x, double before) {
    double smallest_normal = type.exponent == 8 ? 0x1p-126 : 0x1p-14;
    double unit = type.exponent == 8 ? 0x1p-8 : 0x1p-11;
    return fmax(fabs(x) + before, smallest_normal) * unit + before;
}

/* What came back from the cache against what went in, k turned where the program turns it. */
static inline bool decode_compare_cache(decode_run *r, const char *what, const decode_tensor *in,
                                        const decode_tensor *back, tvm_dtype type, int group, bool zeros) {
    const double *before = what[0] == 'k' ? r->turn_error : NULL;
    int d = r->form.d, width = group > 0 ? group : d;
    bool fixed = group < 0 && type.bits < 16;
    for (size_t i = 0; i < in->count && !fixed; i += (size_t)width) {
        if (type.bits < 16) {
            if (!decode_compare_group(r, what, in->values + i, back->values + i, width, type, zeros))
                return false;
            continue;
        }
        for (size_t j = i; j < i + (size_t)width; j++)
            if (!(fabs(back->values[j] - in->values[j]) <=
                  decode_rounding(type, in->values[j], before ? before[j] : 0)))
                return decode_fail(r, "%s: element %zu is %.9g, from %.9g", what, j, back->values[j],
                                   in->values[j]);
    }
    for (size_t i = 0; i < in->count && fixed; i++) { /* scales of channels, or none */
        size_t channel = i % (size_t)(d * r->shape.kv_heads);
        bool scaled = what[0] == 'k' && r->form.channels;
        double scale = scaled ? r->k_scale.values[channel] : 1;
        double step = fmax(0.5, fabs(in->values[i] / scale) * 0.125);
        if (!(fabs(back->values[i] - in->values[i]) <= 1.01 * scale * step))
            return decode_fail(r, "%s: element %zu is %.9g, from %.9g", what, i, back->values[i],
                               in->values[i]);
    }
    return true;
}

/* As kv_append turns keys, half style. Each of the two products and their sum is rounded to f32, by no more
 * than 2^-24 of it: where the products nearly cancel, that is much of what is left. */
static inline void decode_turn(decode_run *r) {
    int d = r->form.d, row = r->shape.kv_heads * d;
    size_t at = 0;
    r->turn_error = calloc(r->k.count + 1, sizeof *r->turn_error);
    if (r->turn_error == NULL) abort();
    for (int i = 0; i < r->shape.batch; i++)
        for (int t = 0; t < r->shape.lengths[i]; t++, at++)
            for (int j = 0; j < row; j++) {
                double *x = r->k.values + at * (size_t)row + j, a = x[0], b;
                const double *turn = r->rotation.values + (size_t)t * (size_t)d + j % d;
                if (j % d >= d / 2) continue;
                b = x[d / 2];
                x[0] = a * turn[0] - b * turn[d / 2], x[d / 2] = b * turn[0] + a * turn[d / 2];
                double *error = r->turn_error + (x - r->k.values);
                error[0] = 0x1p-24 * (fabs(a * turn[0]) + fabs(b * turn[d / 2]) + fabs(x[0]));
                error[d / 2] = 0x1p-24 * (fabs(b * turn[0]) + fabs(a * turn[d / 2]) + fabs(x[d / 2]));
            }
}

/* ---- Attention ---- */

static inline double decode_score(const decode_run *r, size_t token, int kv_head, const double *q) {
    int d = r->form.d;
    const double *k = r->back_k.values + (token * (size_t)r->shape.kv_heads + (size_t)kv_head) * (size_t)d;
    double sum = 0;
    for (int j = 0; j < d; j++) sum += k[j] * q[j];
    sum *= r->scale;
    return r->form.soft_cap ? r->cap * tanh(sum / r->cap) : sum;
}

/* What elements may differ by, for the greatest value and for a result. Weights are rounded apart from each
 * other, so that their errors add up by the root of the sum of the weights' squares; four times that, as
 * there are many results.
 */
static inline double decode_tolerance(const decode_run *r, double total, double squares, double want) {
    double unit = strcmp(r->form.a, "bf16") == 0 ? 1.2e-2 : 1.5e-3;
    double spread = total > 0 ? fmin(4 * sqrt(squares) / total, 1) : 0;
    return unit * fmax(spread * r->v_most, fabs(want));
}

/* The sums of one query and head: the greatest score, the weights with it as 1, their squares, and the values
 * by them, [d]. `begin` is the first row of the sequence's keys, `from` to before `to` what the query sees.
 */
typedef struct decode_sums {
    double most, total, squares, *values;
} decode_sums;

static inline decode_sums decode_sum(const decode_run *r, size_t begin, int from, int to, size_t row,
                                     int head) {
    int d = r->form.d, kv_head = head / (r->shape.heads / r->shape.kv_heads);
    const double *q = r->q.values + (row * (size_t)r->shape.heads + (size_t)head) * (size_t)d;
    size_t seen = to > from ? (size_t)(to - from) : 0;
    decode_sums sums = {.most = -INFINITY, .values = calloc((size_t)d, sizeof *sums.values)};
    double *scores = calloc(seen + 1, sizeof *scores);
    if (sums.values == NULL || scores == NULL) abort();
    for (size_t i = 0; i < seen; i++) {
        scores[i] = decode_score(r, begin + (size_t)from + i, kv_head, q);
        sums.most = fmax(sums.most, scores[i]);
    }
    if (r->form.sinks) {
        sums.most = fmax(sums.most, r->sinks.values[head]);
        sums.total = exp(r->sinks.values[head] - sums.most);
    }
    for (size_t i = 0; i < seen; i++) {
        double p = exp(scores[i] - sums.most);
        size_t token = (begin + (size_t)from + i) * (size_t)r->shape.kv_heads + (size_t)kv_head;
        sums.total += p, sums.squares += p * p;
        for (int j = 0; j < d; j++) sums.values[j] += p * r->back_v.values[token * (size_t)d + (size_t)j];
    }
    free(scores);
    return sums;
}

static inline bool decode_compare_head(decode_run *r, size_t begin, int from, int to, size_t row, int head) {
    int d = r->form.d;
    size_t at = row * (size_t)r->shape.heads + (size_t)head;
    const double *out = r->out.values + at * (size_t)d;
    decode_sums sums = decode_sum(r, begin, from, to, row, head);
    double most = sums.most, total = sums.total;
    bool good = true;
    for (int j = 0; j < d && good; j++) {
        double want = total > 0 ? sums.values[j] / total : 0;
        if (!(fabs(out[j] - want) <= decode_tolerance(r, total, sums.squares, want)))
            good = decode_fail(r, "row %zu, head %d, element %d is %.6g, expected %.6g", row, head, j, out[j],
                               want);
    }
    double log_sum = total > 0 ? log(total) + most : -INFINITY;
    if (good && r->form.lse && r->lse.values[at] != log_sum &&
        !(fabs(r->lse.values[at] - log_sum) <= 2 * decode_tolerance(r, 1, 1, 0)))
        good = decode_fail(r, "row %zu, head %d: lse %.6g, expected %.6g", row, head, r->lse.values[at],
                           log_sum);
    free(sums.values);
    return good;
}

static inline bool decode_compare(decode_run *r) {
    const decode_shape *s = &r->shape;
    size_t begin = 0;
    for (size_t i = 0; i < r->back_v.count; i++) r->v_most = fmax(r->v_most, fabs(r->back_v.values[i]));
    for (int i = 0; i < s->batch; begin += (size_t)s->lengths[i++])
        for (int query = 0; query < s->queries; query++) {
            int to = s->lengths[i] - s->queries + query + 1,
                from = s->window && to > s->window ? to - s->window : 0;
            for (int head = 0; head < s->heads; head++)
                if (!decode_compare_head(r, begin, from, to, (size_t)(i * s->queries + query), head))
                    return false;
        }
    return true;
}

static inline bool decode_attend(decode_run *r, const char *name) {
    const decode_shape *s = &r->shape;
    decode_list l = {.count = 0};
    const int scalars[] = {s->batch, s->queries, s->heads, s->kv_heads, r->pages, r->max_pages, s->window};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) decode_add(&l, scalars[i]);
    decode_add(&l, r->scale);
    if (r->form.soft_cap) decode_add(&l, r->cap);
    const decode_tensor *list[] = {&r->q, &r->cache, &r->table, &r->lengths};
    for (size_t i = 0; i < 4; i++) decode_add_tensor(&l, list[i]);
    if (r->form.channels) decode_add_tensor(&l, &r->k_scale);
    if (r->form.channels && r->form.k_zeros) decode_add_tensor(&l, &r->k_zero);
    if (r->form.sinks) decode_add_tensor(&l, &r->sinks);
    decode_add_tensor(&l, &r->out);
    if (r->form.lse) decode_add_tensor(&l, &r->lse);
    return decode_launch(r, r->decode, name, &l) && decode_read(r, &r->out) &&
           (!r->form.lse || decode_read(r, &r->lse));
}

/* ---- A run ---- */

static inline bool decode_tensors(decode_run *r) {
    const decode_shape *s = &r->shape;
    size_t d = (size_t)r->form.d, kv = (size_t)(r->tokens * s->kv_heads) * d,
           channels = (size_t)s->kv_heads * d;
    size_t rows = (size_t)(s->batch * s->queries * s->heads);
    double codes = r->form.k_zeros ? (double)(1 << r->k_type.bits) - 1 : 2 * decode_largest(r->k_type);
    double most = r->form.rope ? 1.42 : 1.02; /* no key is greater, turned ones neither */
    if (r->k_type.kind == TVM_KIND_FLOAT) codes = 2;
    bool good =
        decode_new(r, &r->k, TVM_F32, kv, -1, 1) && decode_new(r, &r->v, TVM_F32, kv, -1, 1) &&
        decode_new(r, &r->back_k, TVM_F32, kv, 0, 0) && decode_new(r, &r->back_v, TVM_F32, kv, 0, 0) &&
        decode_new(r, &r->rotation, TVM_F32, (size_t)r->longest * d, -1, 1) &&
        decode_new(r, &r->k_scale, TVM_F32, channels, (2 * most + 0.06) / codes, (2 * most + 0.46) / codes) &&
        decode_new(r, &r->k_zero, TVM_F32, channels, 0, 0) &&
        decode_poison(r, &r->cache, (size_t)(r->pages * s->kv_heads * r->form.page / 16) * r->slab) &&
        decode_new(r, &r->q, r->type, rows * d, -3, 3) && decode_new(r, &r->out, r->type, rows * d, 99, 99) &&
        decode_new(r, &r->sinks, TVM_F32, (size_t)s->heads, -8, 6) &&
        decode_new(r, &r->lse, TVM_F32, rows, 99, 99);
    for (size_t i = 0; good && i < channels; i++) r->k_zero.values[i] = most / r->k_scale.values[i];
    for (size_t i = 0; good && i < r->rotation.count; i++)
        if (i % d < d / 2) {
            double angle = 3.2 * r->rotation.values[i];
            r->rotation.values[i] = cos(angle), r->rotation.values[i + d / 2] = sin(angle);
        }
    return good && decode_write(r, &r->k_zero) && decode_write(r, &r->rotation);
}

static inline void decode_close(decode_run *r) {
    decode_tensor *const list[] = {&r->starts, &r->table,  &r->lengths,  &r->k,       &r->v,
                                   &r->back_k, &r->back_v, &r->rotation, &r->k_scale, &r->k_zero,
                                   &r->cache,  &r->q,      &r->sinks,    &r->out,     &r->lse};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) decode_free_tensor(r, list[i]);
    free(r->turn_error);
    tvm_program_free(r->append);
    tvm_program_free(r->decode);
}

/* The programs of that folder in the context, with a cache that is filled. False with r->why; decode_close in
 * any case. */
static inline bool decode_open(decode_run *r, tvm_context *context, const char *folder,
                               const decode_form *form, const decode_shape *shape) {
    *r = (decode_run){
        .context = context, .form = *form, .shape = *shape, .scale = 0.25, .cap = 2, .random = 77};
    if (r->form.d == 0) r->form.d = 128;
    if (r->form.page == 0) r->form.page = 16;
    r->type = decode_type(form->a);
    r->k_type = decode_type(form->k ? form->k : form->a),
    r->v_type = decode_type(form->v ? form->v : form->a);
    int k_groups = form->channels ? 0 : decode_groups(form->k_group, r->form.d, r->k_type);
    int v_groups = decode_groups(form->v_group, r->form.d, r->v_type);
    if (form->channels) r->form.k_group = -1;
    r->slab = (size_t)(2 * r->form.d * (r->k_type.bits + r->v_type.bits) +
                       32 * (k_groups * (1 + form->k_zeros) + v_groups * (1 + form->v_zeros)));
    if (!decode_pages(r) || !decode_tensors(r) ||
        !decode_load(r, folder, "kv_append.vasm", false, &r->append) ||
        !decode_load(r, folder, "attention_decode.vasm", true, &r->decode) || !decode_fill(r))
        return false;
    if (form->rope) decode_turn(r);
    return decode_compare_cache(r, "k", &r->k, &r->back_k, r->k_type, r->form.k_group, form->k_zeros) &&
           decode_compare_cache(r, "v", &r->v, &r->back_v, r->v_type, form->v_group, form->v_zeros);
}

#endif
