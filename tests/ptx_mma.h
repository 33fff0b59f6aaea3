/* Inside ptx_machine.h: mma.sync of every type (PTX ISA, "Warp-level Matrix Fragments"), and what wgmma
 * shares with it: numbers of codes, and how products are added. */
#ifndef TVM_TESTS_PTX_MMA_H
#define TVM_TESTS_PTX_MMA_H

#include "ptx_state.h"
#include "types.h"

/* ---- numbers ---- */

typedef struct ptx_type {
    const char *name;
    unsigned bits;
    tvm_dtype type; /* codes are decoded as */
} ptx_type;

static inline const ptx_type *ptx_type_named(const ptx_insn *insn, const char *name) {
    static const ptx_type all[] = {
        {"f16", 16, {TVM_KIND_FLOAT, 16, 5, 10}},  {"bf16", 16, {TVM_KIND_FLOAT, 16, 8, 7}},
        {"tf32", 32, {TVM_KIND_FLOAT, 32, 8, 23}}, {"f32", 32, {TVM_KIND_FLOAT, 32, 8, 23}},
        {"f64", 64, {TVM_KIND_FLOAT, 64, 11, 52}}, {"s8", 8, {TVM_KIND_INT, 8, 0, 0}},
        {"u8", 8, {TVM_KIND_UINT, 8, 0, 0}},       {"s32", 32, {TVM_KIND_INT, 32, 0, 0}},
        {"e4m3", 8, {TVM_KIND_FLOAT, 8, 4, 3}},    {"e5m2", 8, {TVM_KIND_FLOAT, 8, 5, 2}}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (ptx_is(all[i].name, name)) return &all[i];
    ck_abort_msg("ptx: unknown type %s: %s", name, insn->text);
    return NULL;
}

static inline double ptx_number(const ptx_type *type, uint64_t code) {
    if (ptx_is(type->name, "tf32")) code &= UINT32_C(0xffffe000);
    return tvm_decode(type->type, code);
}

/* Element `at` of the compact bit string that the operand's registers are. */
static inline double ptx_element(const ptx_machine *m, const ptx_operand *o, unsigned t, unsigned at,
                                 const ptx_type *type) {
    unsigned width = type->bits == 64 ? 64 : 32, bit = at * type->bits;
    uint64_t word = ptx_get(m, o->reg[bit / width], t);
    return ptx_number(type, ptx_mask(word >> bit % width, type->bits));
}

/* c plus the products, one after the other; f16 is rounded at the end. */
static inline uint64_t ptx_products(const ptx_type *sum, uint64_t code, unsigned count, const double *a,
                                    const double *b, unsigned step_b) {
    double exact = ptx_number(sum, code);
    float rounded = (float)exact;
    bool integer = sum->bits == 32 && sum->type.kind == TVM_KIND_INT;
    int64_t whole = integer ? (int64_t)exact : 0;
    for (unsigned k = 0; k < count; k++, b += step_b) {
        if (ptx_is(sum->name, "f64"))
            exact = fma(a[k], *b, exact);
        else if (integer)
            whole += (int64_t)(a[k] * *b);
        else
            rounded = fmaf((float)a[k], (float)*b, rounded);
    }
    if (ptx_is(sum->name, "f64")) return tvm_f64_bits(exact);
    if (ptx_is(sum->name, "f16")) return tvm_f32_to_f16(rounded);
    return sum->type.kind == TVM_KIND_INT ? (uint32_t)whole : ptx_from_float(rounded);
}

/* ---- fragments ---- */

typedef struct ptx_shape {
    unsigned m, n, k;
} ptx_shape;

/* Element i that a lane has of a: runs of `run` elements along k; then 8 rows down; then the second half of
 * k. */
static inline void ptx_place_a(const ptx_shape *s, unsigned bits, unsigned lane, unsigned i, unsigned *row,
                               unsigned *k) {
    unsigned run = bits < 32 ? 32 / bits : 1, halves = s->m / 8;
    *row = lane / 4 + i / run % halves * 8;
    *k = lane % 4 * run + i % run + i / run / halves * (s->k < 8 ? 0 : 4 * run);
}

static inline void ptx_place_b(unsigned bits, unsigned lane, unsigned i, unsigned *k, unsigned *column) {
    unsigned run = bits < 32 ? 32 / bits : 1;
    *column = lane / 4;
    *k = lane % 4 * run + i % run + i / run * 4 * run;
}

/* mma.sync.aligned.m16n8k16.row.col.d.a.b.c */
static inline void ptx_mma(ptx_machine *m, const ptx_insn *insn) {
    static double a[16][32], b[32][8];
    const ptx_operand *o = insn->operand;
    ptx_shape s = {0};
    ptx_must(insn->parts == 10 && ptx_is(insn->part[4], "row") && ptx_is(insn->part[5], "col") &&
                 sscanf(insn->part[3], "m%un%uk%u", &s.m, &s.n, &s.k) == 3 && s.m <= 16 && s.n == 8 &&
                 s.k <= 32 && ptx_is(insn->part[6], insn->part[9]),
             "ptx: unknown %s", insn->text);
    const ptx_type *type_a = ptx_type_named(insn, insn->part[7]),
                   *type_b = ptx_type_named(insn, insn->part[8]), *sum = ptx_type_named(insn, insn->part[6]);
    for (unsigned warp = 0; warp < m->threads; warp += 32) {
        if (!ptx_runs(m, warp)) continue;
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned row, k, column;
            for (unsigned i = 0; i < s.m * s.k / 32; i++) {
                ptx_place_a(&s, type_a->bits, lane, i, &row, &k);
                a[row][k] = ptx_element(m, &o[1], warp + lane, i, type_a);
            }
            for (unsigned i = 0; i < s.n * s.k / 32; i++) {
                ptx_place_b(type_b->bits, lane, i, &k, &column);
                b[k][column] = ptx_element(m, &o[2], warp + lane, i, type_b);
            }
        }
        for (unsigned lane = 0; lane < 32; lane++) {
            uint64_t words[4] = {0};
            for (unsigned i = 0; i < s.m * s.n / 32; i++) {
                unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2,
                         width = sum->bits == 64 ? 64 : 32, bit = i * sum->bits;
                uint64_t c =
                    ptx_mask(ptx_get(m, o[3].reg[bit / width], warp + lane) >> bit % width, sum->bits);
                words[bit / width] |= ptx_products(sum, c, s.k, a[row], &b[0][column], 8) << bit % width;
            }
            for (unsigned i = 0; i < o[0].count; i++) ptx_set(m, o[0].reg[i], warp + lane, words[i]);
        }
    }
}

#endif
