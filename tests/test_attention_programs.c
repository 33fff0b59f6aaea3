/* attention on the interpreter against float64: every option, their pairs, and sequences of all lengths; and
 * through ptxas without a spill. What no sequence owns, and other sequences' keys, are NaN: none may come
 * into a result. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_pairs.h"
#include "folder_kit.h"
#include "kernel_code_kit.h"
#include "kernel_kit.h"
#include "suite_kit.h"

enum { SEQUENCES = 6, ALL = -1 };

/* A batch: `queries` and `keys` of each sequence, and what is asked for. */
typedef struct batch {
    const char *type;
    unsigned d, dv, heads, kv_heads, page;
    int left, right;
    bool capped, biased, sunk;
    unsigned block; /* of queries and of keys, of which some are seen; 0: all */
    const char *kernel;
    unsigned queries[SEQUENCES], keys[SEQUENCES], columns; /* columns: of the table, at least */
} batch;

static const double scale = 0.125, cap = 2.0;

/* ---- memory ---- */

/* A batch's tensors; `row` says which row of k and v is the sequence's key, NONE of others. */
typedef struct memory {
    kit_tensor *q, *k, *v, *slopes, *sinks, *o, *lse;
    size_t tokens, rows, columns, starts[SEQUENCES + 1], key_starts[SEQUENCES + 1];
    size_t *table; /* [SEQUENCES, columns] */
    size_t query_blocks, key_blocks;
    bool *chosen; /* [SEQUENCES, heads, query_blocks, key_blocks] */
} memory;

static tvm_dtype type_of(const char *name) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    return type;
}

static size_t key_row(const batch *b, const memory *m, unsigned sequence, size_t key) {
    if (b->page == 0) return m->key_starts[sequence] + key;
    return m->table[sequence * m->columns + key / b->page] * b->page + key % b->page;
}

/* Pages in an order of their own, and one between each two that nobody has. */
static void lay_out(const batch *b, memory *m) {
    size_t pages = 0;
    m->columns = b->columns > 0 ? b->columns : 1;
    for (unsigned s = 0; s < SEQUENCES; s++) {
        m->starts[s + 1] = m->starts[s] + b->queries[s];
        m->key_starts[s + 1] = m->key_starts[s] + b->keys[s];
        if (b->page && (b->keys[s] - 1 + b->page) / b->page > m->columns && b->keys[s] > 0)
            m->columns = (b->keys[s] - 1 + b->page) / b->page;
    }
    m->tokens = m->starts[SEQUENCES];
    m->rows = m->key_starts[SEQUENCES];
    m->table = calloc(SEQUENCES * m->columns, sizeof *m->table);
    ck_assert_ptr_nonnull(m->table);
    for (unsigned s = SEQUENCES; s-- > 0 && b->page;)
        for (size_t i = (b->keys[s] + b->page - 1) / b->page; i-- > 0; pages += 2)
            m->table[s * m->columns + i] = pages;
    if (b->page) m->rows = (pages + 1) * b->page;
}

static void spoil(kernel_kit *kit, const batch *b, const memory *m, kit_tensor *t, size_t width) {
    bool *owned = calloc(m->rows + 1, sizeof *owned);
    ck_assert_ptr_nonnull(owned);
    for (unsigned s = 0; s < SEQUENCES; s++)
        for (size_t i = 0; i < b->keys[s]; i++) owned[key_row(b, m, s, i)] = true;
    for (size_t i = 0; i < m->rows * width; i++)
        if (!owned[i / width]) t->values[i] = NAN;
    kit_write(kit, t);
    free(owned);
}

static void integers(kernel_kit *kit, const size_t *values, size_t count, double past) {
    kit_tensor *t = kit_tensor_new(kit, TVM_I(32), count);
    for (size_t i = 0; i < count; i++) t->values[i] = (double)values[i];
    if (past != 0) /* entries of the table that no key needs */
        for (size_t i = 0; i < count; i++) t->values[i] = values[i] == SIZE_MAX ? past : t->values[i];
    kit_write(kit, t);
}

static void give_places(kernel_kit *kit, const batch *b, const memory *m) {
    size_t lengths[SEQUENCES], *table = calloc(SEQUENCES * m->columns, sizeof *table);
    ck_assert_ptr_nonnull(table);
    integers(kit, m->starts, SEQUENCES + 1, 0);
    for (unsigned s = 0; s < SEQUENCES; s++) {
        lengths[s] = b->keys[s];
        for (size_t i = 0; i < m->columns; i++)
            table[s * m->columns + i] = i * b->page < b->keys[s] ? m->table[s * m->columns + i] : SIZE_MAX;
    }
    if (b->page == 0) integers(kit, m->key_starts, SEQUENCES + 1, 0);
    if (b->page) integers(kit, lengths, SEQUENCES, 0);
    if (b->page) integers(kit, table, SEQUENCES * m->columns, -1);
    free(table);
}

/* Of each block of queries of a head some blocks of keys, none or all of them, in an order of their own. */
static void give_blocks(kernel_kit *kit, const batch *b, memory *m) {
    size_t rows = SEQUENCES * b->heads * m->query_blocks, most = m->key_blocks, all = rows * most;
    m->chosen = calloc(all + 1, sizeof *m->chosen);
    ck_assert_ptr_nonnull(m->chosen);
    kit_tensor *counts = kit_tensor_new(kit, TVM_I(32), rows), *chosen = kit_tensor_new(kit, TVM_I(32), all);
    for (size_t row = 0; row < rows; row++) {
        size_t count = 0, keys = b->keys[row / (b->heads * m->query_blocks)], share = row % 4;
        for (size_t i = 0; i < most; i++) {
            size_t key = row % 2 ? i : most - 1 - i;
            if (key * b->block >= keys || kit_random(kit) * 3 > (double)share) continue;
            m->chosen[row * most + key] = true;
            chosen->values[row * most + count++] = (double)key;
        }
        counts->values[row] = (double)count;
        while (count < most) chosen->values[row * most + count++] = -1;
    }
    kit_write(kit, counts), kit_write(kit, chosen);
}

static memory give(kernel_kit *kit, const batch *b) {
    memory m = {0};
    size_t longest = 0;
    tvm_dtype type = type_of(b->type), out = type.bits == 8 ? type_of("f16") : type;
    lay_out(b, &m);
    for (unsigned s = 0; s < SEQUENCES; s++)
        if (b->queries[s] > longest) longest = b->queries[s];
    for (unsigned s = 0; s < SEQUENCES && b->block; s++) {
        m.query_blocks = (longest + b->block - 1) / b->block;
        size_t blocks = (b->keys[s] + b->block - 1) / b->block;
        m.key_blocks = blocks > m.key_blocks ? blocks : m.key_blocks;
    }
    const double scalars[] = {SEQUENCES, (double)m.tokens, (double)m.rows,  b->heads, b->kv_heads, b->d,
                              b->dv,     (double)longest,  (double)b->left, b->right, scale};
    kit_clear(kit);
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) kit_scalar(kit, scalars[i]);
    if (b->capped) kit_scalar(kit, cap);
    if (b->page) kit_scalar(kit, (double)m.columns);
    if (b->block) kit_scalar(kit, (double)m.key_blocks);
    m.q = kit_input(kit, type, m.tokens * b->heads * b->d, -2, 2);
    m.k = kit_input(kit, type, m.rows * b->kv_heads * b->d, -2, 2);
    m.v = kit_input(kit, type, m.rows * b->kv_heads * b->dv, -1, 1);
    spoil(kit, b, &m, m.k, b->kv_heads * b->d);
    spoil(kit, b, &m, m.v, b->kv_heads * b->dv);
    if (b->biased) m.slopes = kit_input(kit, type_of("f32"), b->heads, 0.01, 0.5);
    if (b->sunk) m.sinks = kit_input(kit, type_of("f32"), b->heads, -4, 6);
    give_places(kit, b, &m);
    if (b->block) give_blocks(kit, b, &m);
    m.o = kit_tensor_new(kit, out, m.tokens * b->heads * b->dv);
    m.lse = kit_tensor_new(kit, type_of("f32"), m.tokens * b->heads);
    return m;
}

/* ---- float64 ---- */

static double score(const batch *b, const memory *m, unsigned head, size_t query, size_t row,
                    double distance) {
    const double *q = m->q->values + (query * b->heads + head) * b->d, *k = m->k->values;
    unsigned kv_head = head / (b->heads / b->kv_heads);
    double x = 0;
    k += (row * b->kv_heads + kv_head) * b->d;
    for (unsigned i = 0; i < b->d; i++) x += q[i] * k[i];
    x *= scale;
    if (b->capped) x = cap * tanh(x / cap);
    return b->biased ? x - m->slopes->values[head] * fabs(distance) : x;
}

static bool is_chosen(const batch *b, const memory *m, unsigned s, unsigned head, size_t query, size_t key) {
    size_t row = (s * b->heads + head) * m->query_blocks + query / b->block;
    return m->chosen[row * m->key_blocks + key / b->block];
}

static void check_row(const batch *b, const memory *m, unsigned s, unsigned head, size_t i) {
    size_t query = m->starts[s] + i;
    unsigned kv_head = head / (b->heads / b->kv_heads);
    double sum = 0, o[256] = {0}, place = (double)i + b->keys[s] - b->queries[s];
    double tolerance = strcmp(b->type, "bf16") == 0 ? 0x1p-7 : 0x1p-10;
    if (type_of(b->type).bits == 8 && b->kernel && !strstr(b->kernel, "attention_d"))
        tolerance = 0x1p-4; /* the weights are of 8 bits */
    for (size_t j = 0; j < b->keys[s]; j++) {
        double distance = (double)j - place;
        if (b->left >= 0 && distance < -b->left) continue;
        if (b->right >= 0 && distance > b->right) continue;
        if (b->block && !is_chosen(b, m, s, head, i, j)) continue;
        size_t row = key_row(b, m, s, j);
        double weight = exp(score(b, m, head, query, row, distance));
        sum += weight;
        for (unsigned c = 0; c < b->dv; c++)
            o[c] += weight * m->v->values[(row * b->kv_heads + kv_head) * b->dv + c];
    }
    if (b->sunk) sum += exp(m->sinks->values[head]);
    double lse = m->lse->values[query * b->heads + head];
    ck_assert_msg(sum == 0 ? lse == -INFINITY : fabs(lse - log(sum)) <= 1e-4,
                  "sequence %u, head %u, query %zu: %g, not %g", s, head, i, lse, log(sum));
    for (unsigned c = 0; c < b->dv; c++) {
        double found = m->o->values[(query * b->heads + head) * b->dv + c], want = sum == 0 ? 0 : o[c] / sum;
        ck_assert_msg(fabs(found - want) <= tolerance,
                      "sequence %u, head %u, query %zu, column %u: %g, not %g", s, head, i, c, found, want);
    }
}

static void check_batch(kernel_kit *kit, const batch *b) {
    memory m = give(kit, b);
    kit_launch(kit, b->kernel ? b->kernel : "attention");
    for (unsigned s = 0; s < SEQUENCES; s++)
        for (unsigned head = 0; head < b->heads; head++)
            for (size_t i = 0; i < b->queries[s]; i++) check_row(b, &m, s, head, i);
    free(m.table), free(m.chosen);
}

enum { DEFINES = 128 };

static const char *define(const batch *b, char text[DEFINES]) {
    snprintf(text, DEFINES, "T=%s PAGE=%u CAP=%s ALIBI=%s SINKS=%s BLOCK=%u", b->type, b->page,
             b->capped ? "true" : "false", b->biased ? "true" : "false", b->sunk ? "true" : "false",
             b->block);
    return text;
}

static kernel_kit open_for(const batch *b) {
    char text[DEFINES];
    return kit_open("attention.vasm", define(b, text));
}

static void check_one(const batch *b) {
    kernel_kit kit = open_for(b);
    check_batch(&kit, b);
    kit_close(&kit);
}

/* ---- tests ---- */

/* Lengths of 0 and 1, more queries than keys, a chunk against a long cache, several tiles of both. */
#define MIXED .queries = {5, 0, 1, 70, 9, 3}, .keys = {5, 7, 1, 131, 4, 0}
#define SMALL .d = 64, .dv = 64, .heads = 2, .kv_heads = 1, MIXED

static const int windows[][2] = {{ALL, ALL}, {ALL, 0}, {3, 0}, {70, 0}, {2, 5}, {ALL, 64}};
enum { WINDOWS = sizeof windows / sizeof *windows, OPTIONS = 8 };
static const char *const kernels[] = {"attention_d64", "attention_wide64", "attention_tensor64"};
enum { KERNELS = sizeof kernels / sizeof *kernels };

START_TEST(every_mask_goes_with_every_option) {
    batch b = {SMALL, .type = "f16", .capped = _i & 1, .biased = _i & 2, .page = _i & 4 ? 16 : 0};
    kernel_kit kit = open_for(&b);
    for (unsigned w = 0; w < WINDOWS * KERNELS; w++) {
        b.left = windows[w % WINDOWS][0], b.right = windows[w % WINDOWS][1], b.kernel = kernels[w / WINDOWS];
        check_batch(&kit, &b);
    }
    kit_close(&kit);
}
END_TEST

/* A sink of each head, far below its scores or far above them: windows, rows that see no key, pages. */
START_TEST(sinks_join_the_sum) {
    static const char *const served[] = {"attention_d64", "attention_wide64", "attention_eight64",
                                         "attention_tensor64"};
    batch b = {SMALL, .type = _i == 2 ? "f8_e4m3" : "f16", .sunk = true, .right = 0, .kernel = served[_i]};
    for (unsigned w = 0; w < 4; w++) {
        b.page = w % 2 ? 16 : 0, b.left = w / 2 ? 3 : ALL;
        check_one(&b);
    }
    batch other = {.type = "bf16",
                   .d = 128,
                   .dv = 128,
                   .heads = 4,
                   .kv_heads = 2,
                   .sunk = true,
                   .left = ALL,
                   .right = _i ? 0 : ALL,
                   .kernel = _i == 3   ? "attention_tensor128"
                             : _i == 2 ? "attention_band128"
                                       : "attention_wide128",
                   .capped = _i == 2,
                   .queries = {5, 0, 1, 70, 9, 3},
                   .keys = {5, 7, 1, 131, 4, 0}};
    if (_i) check_one(&other);
}
END_TEST

/* Blocks of keys that each block of queries of a head has chosen: none, some and all, in any order, under
 * each mask, and with what takes other kernels. */
START_TEST(blocks_that_are_chosen_are_seen) {
    static const struct {
        const char *type, *kernel;
        unsigned d, dv, block, page;
    } served[] = {{"f16", "attention_d64", 64, 64, 64, 0},
                  {"bf16", "attention_d192", 192, 128, 64, 16},
                  {"f16", "attention_d256", 256, 256, 128, 0},
                  {"f16", "attention_wide64", 64, 64, 128, 0},
                  {"bf16", "attention_wide64", 64, 64, 128, 32},
                  {"f16", "attention_band128", 128, 128, 128, 0},
                  {"f16", "attention_wide192", 192, 128, 128, 64},
                  {"f8_e4m3", "attention_eight64", 64, 64, 128, 16},
                  {"f8_e4m3", "attention_eight128", 128, 128, 128, 0},
                  {"f8_e5m2", "attention_d128", 128, 128, 64, 0},
                  {"f16", "attention_tensor64", 64, 64, 128, 0},
                  {"bf16", "attention_tensor192", 192, 128, 128, 16},
                  {"f8_e4m3", "attention_tensor128", 128, 128, 128, 0},
                  {"bf16", "attention_tensor128", 128, 128, 64, 32},
                  {"f8_e5m2", "attention_tensor96", 96, 96, 64, 0}};
    batch b = {.type = served[_i].type,
               .kernel = served[_i].kernel,
               .d = served[_i].d,
               .dv = served[_i].dv,
               .block = served[_i].block,
               .page = served[_i].page,
               .heads = 2,
               .kv_heads = 1,
               .sunk = _i % 2,
               .queries = {5, 0, 1, 130, 9, 3},
               .keys = {5, 7, 1, 331, 200, 0}};
    kernel_kit kit = open_for(&b);
    for (unsigned w = 0; w < 3; w++) {
        b.left = windows[2 * w][0], b.right = windows[2 * w][1];
        check_batch(&kit, &b);
    }
    kit_close(&kit);
}
END_TEST
enum { BLOCKED = 15 };

/* Several tiles of several blocks, and those that see all keys. */
START_TEST(wide_tiles_serve_long_sequences) {
    batch b = {.type = "f16",
               .d = 128,
               .dv = 128,
               .heads = 2,
               .kv_heads = 2,
               .left = ALL,
               .right = ALL,
               .queries = {150, 2, 260},
               .keys = {190, 530, 1},
               .kernel = _i ? "attention_tensor128" : "attention_wide128"};
    check_one(&b);
    b.right = 0;
    check_one(&b);
}
END_TEST

/* A table for so many keys that the L2 cache has room for those of one head: 18 heads of sequences in groups,
 * of which the last is a larger one. */
START_TEST(heads_in_groups_are_all_served) {
    batch b = {.type = "f16",
               .d = 64,
               .dv = 64,
               .heads = 3,
               .kv_heads = 3,
               .page = 128,
               .left = ALL,
               .queries = {5, 200, 1, 0, 9, 3},
               .keys = {5, 201, 1, 131, 4, 0},
               .columns = 700};
    kernel_kit kit = open_for(&b);
    for (unsigned w = 0; w < 2 * KERNELS; w++) {
        b.right = w % 2 ? 0 : ALL, b.kernel = kernels[w / 2];
        check_batch(&kit, &b);
    }
    kit_close(&kit);
}
END_TEST

/* The kernel of sm_90a that serves a choice, which the interpreter runs, too, when asked for by name; NULL:
 * none. */
static const char *wide_of(const attention_choice *c) {
    static const char *const wide[] = {"attention_wide64",  "attention_wide80",  "attention_wide96",
                                       "attention_band128", "attention_wide192", "attention_wide256"};
    static const unsigned widths[] = {64, 80, 96, 128, 192, 256};
    unsigned w = 0;
    while (widths[w] != c->d) w++;
    if (type_of(c->type).bits == 8)
        return c->d == 64 ? "attention_eight64" : c->d == 128 ? "attention_eight128" : NULL;
    if (c->d == 256 && c->page > 64) return NULL;
    if (c->d == 128 && !c->page && !c->capped && !c->biased) return "attention_wide128";
    return wide[w];
}

/* The same of targets with tcgen05. */
static const char *tensor_of(const attention_choice *c) {
    static char name[32];
    snprintf(name, sizeof name, "attention_tensor%u", c->d);
    return type_of(c->type).bits == 16 || c->d != 80 ? name : NULL;
}

START_TEST(every_pair_of_choices_is_right) {
    attention_choice c = attention_choose(attention_rows[_i]);
    batch b = {.type = c.type,
               .d = c.d,
               .dv = c.dv,
               .heads = c.heads,
               .kv_heads = c.kv_heads,
               .page = c.page,
               .left = c.left,
               .right = c.right,
               .capped = c.capped,
               .biased = c.biased,
               .queries = {1, 0, 13, 3},
               .keys = {35, 7, 131, 1}};
    kernel_kit kit = open_for(&b);
    check_batch(&kit, &b);
    b.kernel = wide_of(&c);
    if (b.kernel) check_batch(&kit, &b);
    b.kernel = tensor_of(&c);
    if (b.kernel) check_batch(&kit, &b);
    kit_close(&kit);
}
END_TEST

START_TEST(no_pair_is_left_out) {
    for (unsigned i = 0; i < ATTENTION_KINDS; i++)
        for (unsigned j = i + 1; j < ATTENTION_KINDS; j++)
            for (unsigned x = 0; x < attention_choices[i] * attention_choices[j]; x++) {
                char first = (char)('0' + x % attention_choices[i]),
                     second = (char)('0' + x / attention_choices[i]);
                unsigned row = 0;
                while (row < ATTENTION_ROWS &&
                       (attention_rows[row][i] != first || attention_rows[row][j] != second))
                    row++;
                ck_assert_msg(row < ATTENTION_ROWS, "%c of kind %u with %c of kind %u", first, i, second, j);
            }
}
END_TEST

/* Both products of 8 bits, of one tile and of several. */
START_TEST(eight_bits_are_multiplied_as_they_are) {
    static const unsigned pages[] = {0, 0, 16, 128};
    batch b = {.type = _i % 2 ? "f8_e5m2" : "f8_e4m3",
               .d = _i < 2 ? 128 : 64,
               .dv = _i < 2 ? 128 : 64,
               .heads = 2,
               .kv_heads = 1,
               .page = pages[_i],
               .left = _i == 3 ? 40 : ALL,
               .right = _i % 2 ? 0 : ALL,
               .capped = _i == 2,
               .kernel = _i < 2 ? "attention_eight128" : "attention_eight64",
               .queries = {150, 0, 1, 3, 7, 0},
               .keys = {290, 5, 1, 0, 140, 1}};
    check_one(&b);
}
END_TEST

/* Code for tcgen05 on the PTX machine gives the interpreter's results bit for bit (but for logs of sums,
 * whose last bit is the target's): several tiles of queries and of keys, of which rows see a part or none,
 * and pages. */
START_TEST(code_for_tensor_memory_does_as_the_interpreter) {
    static const batch served[] = {
        {.kernel = "attention_tensor128", .type = "f16", .d = 128, .left = ALL},
        {.kernel = "attention_tensor64", .type = "bf16", .d = 64, .left = ALL, .right = ALL, .sunk = true},
        {.kernel = "attention_tensor64",
         .type = "f16",
         .d = 64,
         .page = 16,
         .left = 70,
         .capped = true,
         .biased = true},
        {.kernel = "attention_tensor80", .type = "f16", .d = 80, .left = 100, .right = 30},
        {.kernel = "attention_tensor192", .type = "bf16", .d = 192, .page = 64, .left = ALL},
        {.kernel = "attention_tensor256", .type = "f16", .d = 256, .left = ALL, .sunk = true},
        {.kernel = "attention_tensor128", .type = "f8_e5m2", .d = 128, .left = ALL},
        {.kernel = "attention_tensor96", .type = "bf16", .d = 96, .left = ALL, .right = ALL, .block = 128},
        {.kernel = "attention_tensor128", .type = "f16", .d = 128, .page = 16, .left = ALL, .block = 64},
        {.kernel = "attention_tensor64", .type = "f8_e4m3", .d = 64, .left = ALL, .right = ALL, .block = 64},
        {.kernel = "attention_tensor192", .type = "f8_e4m3", .d = 192, .left = ALL}};
    static const unsigned queries[SEQUENCES] = {3, 0, 130, 1}, keys[SEQUENCES] = {2, 7, 171, 0};
    batch b = served[_i];
    b.dv = b.d == 192 ? 128 : b.d, b.heads = 2, b.kv_heads = 1;
    memcpy(b.queries, queries, sizeof queries), memcpy(b.keys, keys, sizeof keys);
    char path[5000], text[DEFINES];
    kernel_kit kit = open_for(&b);
    tvm_ir_program *program = assemble_file(program_path("attention.vasm", path), define(&b, text));
    memory m = give(&kit, &b);
    kit_launch(&kit, b.kernel);
    void *o = malloc(kit_bytes(m.o));
    ck_assert_ptr_nonnull(o);
    memcpy(o, m.o->data, kit_bytes(m.o)), memset(m.lse->data, 0x7f, kit_bytes(m.lse));
    kit_execute(&kit, m.o, program, b.kernel, "sm_100a");
    ck_assert_mem_eq(m.o->data, o, kit_bytes(m.o));
    kit_read(&kit, m.lse);
    for (unsigned s = 0; s < SEQUENCES; s++)
        for (unsigned head = 0; head < b.heads; head++)
            for (size_t i = 0; i < b.queries[s]; i++) check_row(&b, &m, s, head, i);
    tvm_ir_program_free(program);
    free(m.table), free(m.chosen), free(o);
    kit_close(&kit);
}
END_TEST
enum { ON_MACHINE = 11 };

/* The file of programs/ in a folder, without the line of that number (of 1, 2, ...) that waits, arrives or
 * commits; false: it has fewer. */
static bool copy_without(const char *folder, const char *file, unsigned number) {
    static const char *const ordering[] = {"wait-barrier ", "arrive-barrier ", "commit-tensor "};
    char path[5000], line[512];
    unsigned found = 0;
    FILE *from = fopen(program_path(file, path), "r");
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *to = fopen(path, "w");
    ck_assert(from && to);
    while (fgets(line, sizeof line, from)) {
        bool orders = false;
        for (unsigned i = 0; i < sizeof ordering / sizeof *ordering; i++)
            orders = orders || (line[0] != ';' && strstr(line, ordering[i]));
        found += orders;
        fputs(orders && found == number ? "\n" : line, to);
    }
    fclose(from), fclose(to);
    return found >= number;
}

/* Two tiles of queries that share a matrix of scores, several tiles and turns a block. The status of the
 * launch, which the sanitizer looks at. */
static tvm_status launch_sanitized(const char *folder) {
    batch b = {.type = "f16",
               .d = 96,
               .dv = 96,
               .heads = 2,
               .kv_heads = 1,
               .left = ALL,
               .right = ALL,
               .queries = {130, 3, 1},
               .keys = {520, 300, 140}};
    char path[5000], text[DEFINES];
    tvm_kernel *kernel = NULL;
    snprintf(path, sizeof path, "%s/attention.vasm", folder);
    kernel_kit kit = kit_open_path(path, define(&b, text));
    memory m = give(&kit, &b);
    ck_assert_int_eq(tvm_set_sanitizer(kit.context, TVM_SANITIZE_TEXT), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(kit.program, "attention_tensor96", &kernel), TVM_OK);
    tvm_status status = tvm_launchv(kernel, NULL, kit.arguments, kit.argument_count);
    free(m.table);
    kit_close(&kit);
    return status;
}

START_TEST(no_wait_of_tensor_memory_is_idle) {
    static const char *const files[] = {"attention.vasm", "attention.vasminc", "attention_tensor.vasminc"};
    enum { FILES = sizeof files / sizeof *files };
    char folder[64];
    folder_make(folder);
    for (unsigned i = 0; i < FILES; i++) copy_without(folder, files[i], 0);
    ck_assert_int_eq(launch_sanitized(folder), TVM_OK);
    unsigned number = 0;
    while (copy_without(folder, files[FILES - 1], ++number))
        ck_assert_msg(launch_sanitized(folder) != TVM_OK, "number %u is not missed", number);
    ck_assert_uint_gt(number, 20);
    folder_remove(folder);
}
END_TEST

/* Later keys come first, so that a row's greatest score grows from tile to tile: by less than what the wide
 * kernels let pass without scaling their sums, and by more over several tiles, other ones in each row. */
START_TEST(a_maximum_that_grows_is_followed) {
    static const char *const served[] = {"attention_wide128", "attention_wide256", "attention_eight128",
                                         "attention_tensor128", "attention_tensor256"};
    batch b = {.type = _i == 2 ? "f8_e4m3" : "f16",
               .d = strstr(served[_i], "256") ? 256 : 128,
               .dv = strstr(served[_i], "256") ? 256 : 128,
               .heads = 1,
               .kv_heads = 1,
               .left = ALL,
               .right = ALL,
               .kernel = served[_i],
               .queries = {7},
               .keys = {700}};
    kernel_kit kit = open_for(&b);
    memory m = give(&kit, &b);
    for (size_t i = 0; i < m.tokens * b.d; i++) m.q->values[i] = ldexp(1, (int)(i / b.d) % 4 - 2);
    for (size_t i = 0; i < m.rows * b.d; i++)
        m.k->values[i] = (i % 4 == 0) * (double)((700 - i / b.d) / 50) / 8;
    kit_write(&kit, m.q), kit_write(&kit, m.k);
    kit_launch(&kit, b.kernel);
    for (size_t i = 0; i < b.queries[0]; i++) check_row(&b, &m, 0, 0, i);
    free(m.table);
    kit_close(&kit);
}
END_TEST

/* The interpreter reports what a GPU would keep inside of the cache: a page that there is not, more keys than
 * the table has pages for. */
START_TEST(what_the_cache_lacks_is_a_fault) {
    batch b = {SMALL, .type = "f16", .left = ALL, .right = 0, .page = 16};
    kernel_kit kit = open_for(&b);
    tvm_kernel *kernel = NULL;
    memory m = give(&kit, &b);
    size_t wanted = _i ? SEQUENCES : SEQUENCES * m.columns, found = 0;
    while (kit.tensors[found].count != wanted || kit.tensors[found].type.kind != TVM_KIND_INT) found++;
    kit.tensors[found].values[0] = (double)(_i ? m.columns * b.page + 1 : m.rows / b.page);
    kit_write(&kit, &kit.tensors[found]);
    ck_assert_int_eq(tvm_get_kernel(kit.program, "attention", &kernel), TVM_OK);
    ck_assert_int_ne(tvm_launchv(kernel, NULL, kit.arguments, kit.argument_count), TVM_OK);
    ck_assert_ptr_nonnull(strstr(tvm_message(kit.context), "load-scalar"));
    free(m.table);
    kit_close(&kit);
}
END_TEST

START_TEST(a_width_that_nothing_serves_names_the_nearest) {
    batch b = {SMALL, .type = "f16", .left = ALL, .right = ALL};
    kernel_kit kit = open_for(&b);
    tvm_kernel *kernel = NULL;
    b.d = b.dv = 72;
    memory m = give(&kit, &b);
    ck_assert_int_eq(tvm_get_kernel(kit.program, "attention", &kernel), TVM_OK);
    ck_assert_int_ne(tvm_launchv(kernel, NULL, kit.arguments, kit.argument_count), TVM_OK);
    ck_assert_ptr_nonnull(
        strstr(tvm_message(kit.context), "the nearest is 'attention_tall80', which needs d == 80"));
    free(m.table);
    kit_close(&kit);
}
END_TEST

static const char *const compiled[][2] = {
    {"", "sm_90a"},
    {"T=bf16 PAGE=32 CAP=true", "sm_90a"},
    {"T=f8_e5m2", "sm_90a"},
    {"T=f8_e4m3 CAP=true ALIBI=true PAGE=16", "sm_80"},
    {"SINKS=true", "sm_90a"},
    {"T=bf16 BLOCK=128 SINKS=true PAGE=64", "sm_90a"},
    {"T=f8_e4m3 BLOCK=128", "sm_90a"},
    {"BLOCK=64", "sm_80"},
    {"T=bf16 BLOCK=128 PAGE=16 CAP=true", "sm_90a"},
    {"", "sm_100a"},
    {"T=bf16 PAGE=16 CAP=true ALIBI=true", "sm_110a"},
    {"T=f8_e4m3 PAGE=64 SINKS=true", "sm_103a"},
    {"BLOCK=128 CAP=true ALIBI=true", "sm_100a"},
    {"T=bf16 BLOCK=64 PAGE=16 SINKS=true", "sm_100a"},
    {"T=f8_e5m2 BLOCK=64 CAP=true", "sm_103a"},
};
enum { COMPILED = sizeof compiled / sizeof *compiled };

START_TEST(it_compiles_without_spills) {
    char path[5000];
    tvm_ir_program *program = assemble_file(program_path("attention.vasm", path), compiled[_i][0]);
    compiles_without_spills(program, compiled[_i][0], compiled[_i][1]);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attention programs");
    TCase *tests = tcase_create("attention");
    tcase_add_loop_test(tests, every_mask_goes_with_every_option, 0, OPTIONS);
    tcase_add_loop_test(tests, sinks_join_the_sum, 0, 4);
    tcase_add_loop_test(tests, blocks_that_are_chosen_are_seen, 0, BLOCKED);
    tcase_add_loop_test(tests, wide_tiles_serve_long_sequences, 0, 2);
    tcase_add_test(tests, heads_in_groups_are_all_served);
    tcase_add_loop_test(tests, every_pair_of_choices_is_right, 0, ATTENTION_ROWS);
    tcase_add_test(tests, no_pair_is_left_out);
    tcase_add_loop_test(tests, eight_bits_are_multiplied_as_they_are, 0, 4);
    tcase_add_loop_test(tests, code_for_tensor_memory_does_as_the_interpreter, 0, ON_MACHINE);
    tcase_add_test(tests, no_wait_of_tensor_memory_is_idle);
    tcase_add_loop_test(tests, a_maximum_that_grows_is_followed, 0, 5);
    tcase_add_loop_test(tests, what_the_cache_lacks_is_a_fault, 0, 2);
    tcase_add_test(tests, a_width_that_nothing_serves_names_the_nearest);
    tcase_add_loop_test(tests, it_compiles_without_spills, 0, COMPILED);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
