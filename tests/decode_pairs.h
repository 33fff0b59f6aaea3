/* What attention_decode and kv_append are tested with: rows of choices that hold every pair of two choices of
 * different kinds, but those that no cache has (heads of 80 with scales of 32 or 64 elements, with shares of
 * no whole words, or turned). */
#ifndef TVM_TESTS_DECODE_PAIRS_H
#define TVM_TESTS_DECODE_PAIRS_H

#include "decode_kit.h"

enum { DECODE_KINDS = 11, DECODE_ROWS = 49 };

/* How many choices each kind has: keys, values, elements of a head, page, queries, heads, window, cap, lse
 * and sinks, type of queries, what kv_append does, variant. */
static const unsigned decode_choices[DECODE_KINDS] = {7, 6, 4, 4, 3, 3, 3, 4, 2, 3, 6};

/* A digit for each kind. */
static const char *const decode_rows[DECODE_ROWS] = {
    "00100013102", "00211220121", "01111001103", "02321111000", "03330102014", "04102002005", "05021111003",
    "10122212004", "10302110010", "11131110101", "12002220123", "12301213111", "13232001121", "14310222022",
    "15020110005", "20122220000", "21030001112", "22231111021", "22320012123", "23222213015", "24202100002",
    "25011123124", "30012020112", "31222120005", "32032103020", "33001221103", "34020112011", "35312020124",
    "40032101015", "40200112001", "41221022110", "42332113114", "43211013122", "44011020103", "45300211020",
    "50210112120", "51312203013", "52022011012", "52210010125", "53201210010", "54032113124", "55200200021",
    "55231122003", "60331122103", "61200011124", "62331220005", "63002113121", "64112121100", "65021000012"};

typedef struct decode_choice {
    decode_form form;
    decode_shape shape;
    const char *variant;
} decode_choice;

static inline decode_choice decode_choose(const char *row) {
    static const decode_form keys[] = {{.k = NULL},
                                       {.k = "f8_e4m3"},
                                       {.k = "u8", .k_zeros = true},
                                       {.k = "u4", .k_group = 32},
                                       {.k = "u3"},
                                       {.k = "u2", .k_zeros = true},
                                       {.k = "u4", .k_zeros = true, .channels = true}};
    static const decode_form values[] = {{.v = NULL},
                                         {.v = "f8_e5m2"},
                                         {.v = "i8", .v_group = 64},
                                         {.v = "u4", .v_zeros = true, .v_group = 32},
                                         {.v = "f4_e2m1"},
                                         {.v = "u2", .v_zeros = true}};
    static const int widths[] = {64, 80, 128, 256}, pages[] = {16, 32, 64, 128}, queries[] = {1, 3, 8};
    static const int heads[][2] = {{8, 8}, {32, 8}, {16, 1}}, windows[] = {0, 5, 70};
    static const char *const variants[] = {"small8", "cluster8", "bulk8", "columns8", "heads8", NULL};
    const decode_form *k = &keys[row[0] - '0'], *v = &values[row[1] - '0'];
    const int *head = heads[row[5] - '0'];
    return (decode_choice){.form = {.a = row[8] == '0' ? "f16" : "bf16",
                                    .k = k->k,
                                    .v = v->v,
                                    .d = widths[row[2] - '0'],
                                    .page = pages[row[3] - '0'],
                                    .k_group = k->k_group,
                                    .v_group = v->v_group,
                                    .channels = k->channels,
                                    .k_zeros = k->k_zeros,
                                    .v_zeros = v->v_zeros,
                                    .soft_cap = row[7] == '1' || row[7] == '3',
                                    .lse = row[7] >= '2',
                                    .sinks = row[7] == '1' || row[7] == '2',
                                    .rope = row[9] != '0',
                                    .qkv = row[9] == '2'},
                           .shape = {.batch = 3,
                                     .queries = queries[row[4] - '0'],
                                     .heads = head[0],
                                     .kv_heads = head[1],
                                     .window = windows[row[6] - '0'],
                                     .lengths = {21, 0, 75}},
                           .variant = variants[row[10] - '0']};
}

#endif
