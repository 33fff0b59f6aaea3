/* attention: every option, on the GPU with the kernels of its target, on the interpreter with those of any
 * target. What no query may see is NaN. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { SEQUENCES = 4, HEADS = 4, KV_HEADS = 2, NOBODYS = 2 };

typedef struct option {
    const char *defines[4];
    const char *type;
    unsigned page;
    bool capped, biased;
} option;

static const option options[] = {
    {{"T=f16"}, "f16", 0, false, false},
    {{"T=bf16"}, "bf16", 0, false, false},
    {{"T=f8_e4m3"}, "f8_e4m3", 0, false, false},
    {{"T=f16", "PAGE=16"}, "f16", 16, false, false},
    {{"T=bf16", "PAGE=64", "CAP=true"}, "bf16", 64, true, false},
    {{"T=f16", "CAP=true", "ALIBI=true"}, "f16", 0, true, true},
};
static const unsigned widths[][2] = {{64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
static const int windows[][2] = {{-1, -1}, {-1, 0}, {100, 0}};
/* Options other than the first take windows in turn. The keys of sequence NOBODYS have no queries: they are
 * NaN, and follow upon others. */
static const size_t queries[SEQUENCES] = {70, 1, 0, 150}, keys[SEQUENCES] = {70, 300, 50, 200};
enum { WIDTHS = sizeof widths / sizeof *widths, WINDOWS = sizeof windows / sizeof *windows };

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
static void lay_out(const option *o, batch *b) {
    int32_t pages = 1;
    for (size_t i = 0; i < SEQUENCES; i++) {
        b->starts[i + 1] = b->starts[i] + (int32_t)queries[i];
        b->key_starts[i + 1] = b->key_starts[i] + (int32_t)keys[i];
        b->lengths[i] = (int32_t)keys[i];
    }
    b->tokens = (size_t)b->starts[SEQUENCES], b->rows = (size_t)b->key_starts[SEQUENCES];
    if (o->page == 0) return;
    b->columns = (300 + o->page - 1) / o->page;
    b->table = zeroed(SEQUENCES * b->columns * sizeof *b->table);
    for (size_t i = SEQUENCES; i-- > 0;)
        for (size_t c = (keys[i] + o->page - 1) / o->page; c-- > 0;) b->table[i * b->columns + c] = pages++;
    b->rows = (size_t)pages * o->page;
}

static bool *owned_rows(const option *o, const batch *b) {
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

static void make(batch *b, const option *o, tvm_dtype type, const unsigned width[2], const int window[2]) {
    tvm_dtype out = type.bits == 8 ? TVM_F16 : type;
    *b = (batch){0};
    lay_out(o, b);
    bool *owned = owned_rows(o, b);
    const int64_t scalars[] = {
        SEQUENCES, (int64_t)b->tokens, (int64_t)b->rows, HEADS, KV_HEADS, width[0], width[1],
        150,       window[0],          window[1],        1};
    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) add(b, (gpu_arg)ARG_SCALAR(scalars[i]));
    if (o->capped) add(b, (gpu_arg)ARG_SCALAR(3));
    if (o->page) add(b, (gpu_arg)ARG_SCALAR((int64_t)b->columns));
    add_values(b, type, b->tokens * HEADS * width[0], 0.25, NULL, 1);
    add_values(b, type, b->rows * KV_HEADS * width[0], 1, owned, KV_HEADS * width[0]);
    add_values(b, type, b->rows * KV_HEADS * width[1], 1, owned, KV_HEADS * width[1]);
    if (o->biased) add_values(b, TVM_F32, HEADS, 0.25, NULL, 1);
    add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES + 1, b->starts));
    if (o->page == 0) add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES + 1, b->key_starts));
    if (o->page) add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES, b->lengths));
    if (o->page) add(b, (gpu_arg)ARG_IN(TVM_I(32), SEQUENCES * b->columns, b->table));
    gpu_arg result = ARG_OUT(out, b->tokens * HEADS * width[1]), sums = ARG_OUT(TVM_F32, b->tokens * HEADS);
    result.tolerance = strcmp(o->type, "bf16") == 0 ? 0x1p-7 : 0x1p-10;
    if (type.bits == 8) result.tolerance = 0x1p-4; /* of sm_90a: the weights are, too */
    sums.tolerance = 1e-4;
    add(b, result), add(b, sums);
    free(owned);
}

/* The GPU gives the same bits again, whichever blocks do what. */
static bool same_again(suite *s, const gpu_test *test, const batch *b) {
    uint8_t *first[GPU_MAX_ARGS] = {0}, *second[GPU_MAX_ARGS] = {0};
    bool good = gpu_launch(s->gpu, test, "attention", b->args, b->count, first) &&
                gpu_launch(s->gpu, test, "attention", b->args, b->count, second);
    for (size_t i = 0; good && i < b->count; i++) {
        const gpu_arg *arg = &b->args[i];
        if (arg->tensor && memcmp(first[i], second[i], arg->count * arg->type.bits / 8) != 0)
            printf("%s: other bits the second time\n", test->name), good = false;
    }
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(first[i]), free(second[i]);
    return good;
}

static bool run(suite *s, const gpu_test *test) {
    bool good = true;
    for (size_t i = 0; i < (size_t)WIDTHS * WINDOWS; i++) {
        const unsigned *width = widths[i / WINDOWS];
        const int *window = windows[i % WINDOWS];
        batch b;
        if (test->data != &options[0] && i % WINDOWS != i / WINDOWS % WINDOWS) continue;
        make(&b, test->data, test->type, width, window);
        bool same = gpu_run_both(s, test, "attention", b.args, b.count) && same_again(s, test, &b);
        if (!same)
            printf("%s: d %u, dv %u, window %d, %d\n", test->name, width[0], width[1], window[0], window[1]);
        good = good && same;
        for (size_t a = 0; a < GPU_MAX_ARGS; a++) free(b.owned[a]);
        free(b.table);
    }
    return good;
}

void gpu_add_attention(suite *s, gpu_group *group) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const option *o = &options[i];
        char file[4096], title[128] = "attention";
        size_t count = 0;
        for (; count < 4 && o->defines[count]; count++)
            snprintf(title + strlen(title), sizeof title - strlen(title), " %s", o->defines[count]);
        snprintf(file, sizeof file, "%s/attention.vasm", s->programs);
        gpu_test *test = gpu_add(group, title, NULL, file, o->defines, count);
        test->run = run;
        test->data = o;
        if (!tvm_dtype_parse(o->type, strlen(o->type), &test->type)) abort();
    }
}
