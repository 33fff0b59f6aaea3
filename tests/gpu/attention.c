/* attention: every pair of its choices, and every width and mask of f16 and f8, on the GPU with the kernels
 * of its target, on the interpreter with those of any target. What no query may see is NaN. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_pairs.h"
#include "suite.h"

enum { SEQUENCES = 4, NOBODYS = 2 };

/* What is launched with every width and mask. */
static const attention_choice forms[] = {{.type = "f16"},
                                         {.type = "f8_e4m3"},
                                         {.type = "bf16", .sunk = true},
                                         {.type = "f16", .sunk = true, .page = 64},
                                         {.type = "bf16", .block = 128},
                                         {.type = "f16", .block = 64, .page = 16, .sunk = true},
                                         {.type = "f8_e4m3", .block = 128}};
static const unsigned widths[][2] = {{64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
static const int windows[][2] = {{-1, -1}, {-1, 0}, {100, 0}};
/* The keys of sequence NOBODYS have no queries: they are NaN, and follow upon others. */
static const size_t queries[SEQUENCES] = {70, 1, 0, 150}, keys[SEQUENCES] = {70, 300, 50, 200};
enum { LONGEST = 150, MOST_KEYS = 300 };
enum {
    FORMS = sizeof forms / sizeof *forms,
    WIDTHS = sizeof widths / sizeof *widths,
    WINDOWS = sizeof windows / sizeof *windows
};

typedef struct batch {
    gpu_arg args[GPU_MAX_ARGS];
    void *owned[GPU_MAX_ARGS];
    size_t count, tokens, rows, columns;
    int32_t starts[SEQUENCES + 1], key_starts[SEQUENCES + 1], lengths[SEQUENCES], *table;
} batch;

static void *zeroed(size_t bytes) {
    void *memory = calloc(bytes + 8, 1);
    if (memory == NULL) abort();
    return memory;
}

static void add(batch *b, gpu_arg arg) {
    if (b->count == GPU_MAX_ARGS) abort();
    b->args[b->count++] = arg;
}

/* Pages one after the other, from the last sequence's last to the first one's first; those left over are NaN.
 */
static void lay_out(const attention_choice *o, batch *b) {
    int32_t pages = 1;
    for (size_t i = 0; i < SEQUENCES; i++) {
        b->starts[i + 1] = b->starts[i] + (int32_t)queries[i];
        b->key_starts[i + 1] = b->key_starts[i] + (int32_t)keys[i];
        b->lengths[i] = (int32_t)keys[i];
    }
    b->tokens = (size_t)b->starts[SEQUENCES], b->rows = (size_t)b->key_starts[SEQUENCES];
    if (o->page == 0) return;
    b->columns = (MOST_KEYS + o->page - 1) / o->page;
    b->table = zeroed(SEQUENCES * b->columns * sizeof *b->table);
    for (size_t i = SEQUENCES; i-- > 0;)
        for (size_t c = (keys[i] + o->page - 1) / o->page; c-- > 0;) b->table[i * b->columns + c] = pages++;
    b->rows = (size_t)pages * o->page;
}

static bool *owned_rows(const attention_choice *o, const batch *b) {
    bool *owned = zeroed(b->rows);
    for (size_t i = 0; i < SEQUENCES; i++)
        for (size_t j = 0; j < keys[i]; j++) {
            size_t row = o->page ? (size_t)b->table[i * b->columns + j / o->page] * o->page + j % o->page
                                 : (size_t)b->key_starts[i] + j;
            owned[row] = i != NOBODYS;
        }
    return owned;
}

/* `count` values below `limit` in magnitude; NaN in the rows that are not in `owned`, if there is one. */
static void add_values(batch *b, tvm_dtype type, size_t count, double limit, const bool *owned,
                       size_t width) {
    uint64_t state = b->count;
    uint8_t *bytes = zeroed(count * type.bits / 8);
    for (size_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double value = ((double)(state >> 40) * 0x1p-23 - 1) * limit;
        tvm_bits_set(bytes, i * type.bits, type.bits,
                     tvm_encode(type, owned && !owned[i / width] ? NAN : value));
    }
    b->owned[b->count] = bytes;
    add(b, (gpu_arg)ARG_IN(type, count, bytes));
}

static void add_integers(batch *b, int32_t *values, size_t count) {
    b->owned[b->count] = values;
    add(b, (gpu_arg)ARG_IN(TVM_I(32), count, values));
}

/* Of each block of queries of a head about two in three blocks of keys, the last first; of some none. */
static void add_blocks(batch *b, const attention_choice *o) {
    size_t rows = SEQUENCES * o->heads * ((LONGEST + o->block - 1) / o->block),
           most = (MOST_KEYS + o->block - 1) / o->block;
    int32_t *counts = zeroed(rows * sizeof *counts), *chosen = zeroed(rows * most * sizeof *chosen);
    for (size_t row = 0; row < rows; row++) {
        size_t s = row * SEQUENCES / rows;
        for (size_t i = 0; i < most; i++) chosen[row * most + i] = -1;
        for (size_t i = most; i-- > 0 && row % 7 != 3;)
            if ((row + i) % 3 && i * o->block < keys[s])
                chosen[row * most + (size_t)counts[row]++] = (int32_t)i;
    }
    add_integers(b, counts, rows), add_integers(b, chosen, rows * most);
}

static void make(batch *b, const attention_choice *o, tvm_dtype type) {
    tvm_dtype out = type.bits == 8 ? TVM_F16 : type;
    *b = (batch){0};
    lay_out(o, b);
    bool *owned = owned_rows(o, b);
    const int64_t scalars[] = {SEQUENCES,
                               (int64_t)b->tokens,
                               (int64_t)b->rows,
                               o->heads,
                               o->kv_heads,
                               o->d,
                               o->dv,
                               LONGEST,
                               o->left,
                               o->right,
                               1};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) add(b, (gpu_arg)ARG_SCALAR(scalars[i]));
    if (o->capped) add(b, (gpu_arg)ARG_SCALAR(3));
    if (o->page) add(b, (gpu_arg)ARG_SCALAR((int64_t)b->columns));
    if (o->block) add(b, (gpu_arg)ARG_SCALAR((MOST_KEYS + o->block - 1) / o->block));
    add_values(b, type, b->tokens * o->heads * o->d, 0.25, NULL, 1);
    add_values(b, type, b->rows * o->kv_heads * o->d, 1, owned, o->kv_heads * o->d);
    add_values(b, type, b->rows * o->kv_heads * o->dv, 1, owned, o->kv_heads * o->dv);
    if (o->biased) add_values(b, TVM_F32, o->heads, 0.25, NULL, 1);
    if (o->sunk) add_values(b, TVM_F32, o->heads, 4, NULL, 1);
    add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES + 1, b->starts));
    if (o->page == 0) add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES + 1, b->key_starts));
    if (o->page) add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES, b->lengths));
    if (o->page) add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES * b->columns, b->table));
    if (o->block) add_blocks(b, o);
    gpu_arg result = ARG_OUT(out, b->tokens * o->heads * o->dv),
            sums = ARG_OUT(TVM_F32, b->tokens * o->heads);
    result.tolerance = strcmp(o->type, "bf16") == 0 ? 0x1p-7 : 0x1p-10;
    if (type.bits == 8) result.tolerance = 0x1p-4; /* of sm_90a: the weights are, too */
    sums.tolerance =
        type.bits == 8 ? 0x1p-10 : 1e-4; /* wgmma keeps 13 bits behind the point of sums of 8 bits */
    add(b, result), add(b, sums);
    free(owned);
}

static bool run(suite *s, const gpu_test *test, const attention_choice *choice, const char *kernel) {
    batch b;
    make(&b, choice, test->type);
    bool good =
        gpu_run_both(s, test, kernel, b.args, b.count) && gpu_run_again(s, test, kernel, b.args, b.count);
    if (!good)
        printf("%s: d %u, dv %u, window %d, %d, heads %u, %u\n", test->name, choice->d, choice->dv,
               choice->left, choice->right, choice->heads, choice->kv_heads);
    for (size_t a = 0; a < GPU_MAX_ARGS; a++) free(b.owned[a]);
    free(b.table);
    return good;
}

static bool run_row(suite *s, const gpu_test *test) {
    attention_choice choice = attention_choose(test->data);
    return run(s, test, &choice, "attention");
}

/* What the entry chooses, and the kernel for any target, which it does not choose where there is a better
 * one. */
static bool run_widths(suite *s, const gpu_test *test) {
    const attention_choice *form = test->data;
    bool good = true;
    for (size_t i = 0; i < (size_t)WIDTHS * WINDOWS; i++) {
        const unsigned *width = widths[i / WINDOWS];
        const int *window = windows[i % WINDOWS];
        attention_choice choice = *form;
        choice.d = width[0], choice.dv = width[1], choice.heads = 4, choice.kv_heads = 2;
        choice.left = window[0], choice.right = window[1];
        char plain[32];
        snprintf(plain, sizeof plain, "attention_d%u", width[0]);
        good = run(s, test, &choice, "attention") && run(s, test, &choice, plain) && good;
    }
    return good;
}

static gpu_test *add_program(suite *s, gpu_group *group, const attention_choice *choice) {
    char file[4096], title[128], type[32], page[32], block[32];
    const char *defines[] = {type,
                             page,
                             choice->capped ? "CAP=true" : "CAP=false",
                             choice->biased ? "ALIBI=true" : "ALIBI=false",
                             choice->sunk ? "SINKS=true" : "SINKS=false",
                             block};
    snprintf(type, sizeof type, "T=%s", choice->type);
    snprintf(page, sizeof page, "PAGE=%u", choice->page);
    snprintf(block, sizeof block, "BLOCK=%u", choice->block);
    snprintf(title, sizeof title, "attention %s %s %s %s %s %s", type, page, defines[2], defines[3],
             defines[4], block);
    snprintf(file, sizeof file, "%s/attention.vasm", s->programs);
    gpu_test *test = gpu_add(group, title, NULL, file, defines, sizeof defines / sizeof *defines);
    if (!tvm_dtype_parse(choice->type, strlen(choice->type), &test->type)) abort();
    return test;
}

/* ---- attention_merge */

/* Parts, tokens, heads, d. */
static const size_t merges[][4] = {{1, 3, 2, 64}, {3, 2, 5, 128},  {8, 1, 3, 80}, {2, 3, 1, 1000},
                                   {5, 4, 1, 37}, {2, 33, 4, 256}, {4, 5, 2, 512}};
static const char *const merged_types[] = {"f16", "bf16", "f32"}; /* f32: with sinks */
enum { MERGES = sizeof merges / sizeof *merges, MERGED_TYPES = sizeof merged_types / sizeof *merged_types };

/* Outputs of which some saw no keys; of the first row none did. */
static bool run_merge(suite *s, const gpu_test *test) {
    bool good = true;
    for (size_t m = 0; m < MERGES; m++) {
        batch b = {.count = 0};
        size_t parts = merges[m][0], rows = merges[m][1] * merges[m][2], d = merges[m][3];
        for (size_t i = 0; i < 4; i++) add(&b, (gpu_arg)ARG_SCALAR(merges[m][i]));
        add_values(&b, test->type, parts * rows * d, 1, NULL, 1);
        add_values(&b, TVM_F32, parts * rows, 6, NULL, 1);
        float *sums = b.owned[b.count - 1];
        if (test->type.bits == 32) add_values(&b, TVM_F32, merges[m][2], 6, NULL, 1);
        for (size_t i = 0; i < parts * rows; i++)
            if (i % rows == 0 || i % 7 == 3) sums[i] = -INFINITY;
        gpu_arg out = ARG_OUT(test->type, rows * d), lse = ARG_OUT(TVM_F32, rows);
        out.tolerance = test->type.bits == 32 ? 1e-5 : test->type.mantissa == 7 ? 0x1p-7 : 0x1p-10;
        lse.tolerance = 1e-5;
        add(&b, out), add(&b, lse);
        good = gpu_run_both(s, test, "attention_merge", b.args, b.count) &&
               gpu_run_again(s, test, "attention_merge", b.args, b.count) && good;
        for (size_t a = 0; a < GPU_MAX_ARGS; a++) free(b.owned[a]);
    }
    return good;
}

static void add_merge(suite *s, gpu_group *group, const char *type) {
    char file[4096], title[64], define[32];
    const char *defines[] = {define, "SINKS=true"};
    bool sunk = strcmp(type, "f32") == 0;
    snprintf(define, sizeof define, "T=%s", type);
    snprintf(title, sizeof title, "attention_merge %s%s", define, sunk ? " SINKS=true" : "");
    snprintf(file, sizeof file, "%s/attention_merge.vasm", s->programs);
    gpu_test *test = gpu_add(group, title, NULL, file, defines, sunk ? 2 : 1);
    if (!tvm_dtype_parse(type, strlen(type), &test->type)) abort();
    test->run = run_merge;
}

void gpu_add_attention(suite *s, gpu_group *group) {
    for (size_t i = 0; i < MERGED_TYPES; i++) add_merge(s, group, merged_types[i]);
    for (size_t i = 0; i < FORMS; i++) {
        gpu_test *test = add_program(s, group, &forms[i]);
        test->run = run_widths;
        test->data = &forms[i];
    }
    for (size_t i = 0; i < ATTENTION_ROWS; i++) {
        attention_choice choice = attention_choose(attention_rows[i]);
        gpu_test *test = add_program(s, group, &choice);
        test->run = run_row;
        test->data = attention_rows[i];
        test->few = true;
    }
}
