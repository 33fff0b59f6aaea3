/* What attention is tested with: rows of choices that hold every pair of two choices of different kinds. */
#ifndef TVM_TESTS_ATTENTION_PAIRS_H
#define TVM_TESTS_ATTENTION_PAIRS_H

#include <stdbool.h>

typedef struct attention_choice {
    const char *type;
    unsigned d, dv, page, heads, kv_heads;
    int left, right; /* -1: all */
    bool capped, biased, sunk;
    unsigned block; /* 64 or 128: some of the blocks of keys are seen */
} attention_choice;

enum { ATTENTION_KINDS = 7, ATTENTION_ROWS = 36 };

/* How many choices each kind has: type, widths, page, mask, cap, slopes, heads. */
static const unsigned attention_choices[ATTENTION_KINDS] = {4, 6, 5, 6, 2, 2, 3};

/* A digit for each kind. */
static const char *const attention_rows[ATTENTION_ROWS] = {
    "0005010", "0100101", "0112100", "0134002", "0245102", "0322001", "0345010", "0441100", "0444112",
    "0513002", "1014100", "1033102", "1143010", "1231110", "1310001", "1402102", "1524000", "1535001",
    "1540000", "2021112", "2040000", "2125012", "2203112", "2214011", "2333100", "2430012", "2542100",
    "3042011", "3111002", "3220110", "3232011", "3304012", "3311011", "3415002", "3423001", "3501111"};

static inline attention_choice attention_choose(const char *row) {
    static const char *const types[] = {"f16", "bf16", "f8_e4m3", "f8_e5m2"};
    static const unsigned widths[][2] = {{64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    static const unsigned pages[] = {0, 16, 32, 64, 128};
    static const int masks[][2] = {{-1, -1}, {-1, 0}, {3, 0}, {70, 0}, {2, 5}, {-1, 64}};
    static const unsigned heads[][2] = {{1, 1}, {3, 1}, {4, 2}};
    const unsigned *width = widths[row[1] - '0'], *head = heads[row[6] - '0'];
    const int *mask = masks[row[3] - '0'];
    return (attention_choice){.type = types[row[0] - '0'],
                              .d = width[0],
                              .dv = width[1],
                              .page = pages[row[2] - '0'],
                              .left = mask[0],
                              .right = mask[1],
                              .capped = row[4] == '1',
                              .biased = row[5] == '1',
                              .heads = head[0],
                              .kv_heads = head[1]};
}

#endif
