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
        {"e4m3", 8, {TVM_KIND_FLOAT, 8, 4, 3}},    {"e5m2", 8, {TVM_KIND_FLOAT, 8, 5, 2}},
        {"e2m3", 6, {TVM_KIND_FLOAT, 6, 2, 3}},    {"e3m2", 6, {TVM_KIND_FLOAT, 6, 3, 2}},
        {"e2m1", 4, {TVM_KIND_FLOAT, 4, 2, 1}}};
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

/* An instruction's parts: mma.sync.aligned.m16n8k16.row.col{.kind{.block_scale.scale_vec}}.d.a.b.c{.scale} */
typedef struct ptx_product {
    ptx_shape s;
    const ptx_type *a, *b, *sum;
    bool bytes;      /* kind::f8f6f4 and kind::mxf8f6f4: each element in a byte */
    unsigned scales; /* of a row in a fragment; 0: none */
    bool ue4m3;      /* they are; else ue8m0 */
} ptx_product;

/* PTX ISA, "Multiply-and-Accumulate Instruction: mma": which kinds have which scales. */
static inline void ptx_read_scales(const ptx_insn *insn, unsigned at, const char *kind, ptx_product *p) {
    const char *stype = insn->part[insn->parts - 1];
    ptx_must(sscanf(insn->part[at], "scale_vec::%uX", &p->scales) == 1, "ptx: unknown %s", insn->text);
    p->ue4m3 = ptx_is(stype, "ue4m3");
    bool known = (ptx_is(kind, "mxf8f6f4") && p->scales == 1 && p->s.k == 32 && !p->ue4m3) ||
                 (ptx_is(kind, "mxf4") && p->scales == 2 && p->s.k == 64 && !p->ue4m3) ||
                 (ptx_is(kind, "mxf4nvf4") && p->s.k == 64 && p->scales == (p->ue4m3 ? 4 : 2));
    ptx_must(known && (p->ue4m3 || ptx_is(stype, "ue8m0")), "ptx: unknown %s", insn->text);
}

static inline ptx_product ptx_read_product(const ptx_insn *insn) {
    ptx_product p = {.scales = 0};
    unsigned at = 6;
    ptx_must(insn->parts >= 10 && ptx_is(insn->part[4], "row") && ptx_is(insn->part[5], "col") &&
                 sscanf(insn->part[3], "m%un%uk%u", &p.s.m, &p.s.n, &p.s.k) == 3 && p.s.m <= 16 &&
                 p.s.n == 8 && p.s.k <= 64,
             "ptx: unknown %s", insn->text);
    const char *kind = strncmp(insn->part[at], "kind::", 6) == 0 ? insn->part[at++] + 6 : "";
    p.bytes = ptx_is(kind, "f8f6f4") || ptx_is(kind, "mxf8f6f4");
    if (ptx_is(insn->part[at], "block_scale")) {
        ptx_read_scales(insn, at + 1, kind, &p);
        at += 2;
    }
    ptx_must(insn->parts == at + 4 + (p.scales > 0) && ptx_is(insn->part[at], insn->part[at + 3]) &&
                 (*kind == '\0' || p.bytes || p.scales),
             "ptx: unknown %s", insn->text);
    p.sum = ptx_type_named(insn, insn->part[at]);
    p.a = ptx_type_named(insn, insn->part[at + 1]);
    p.b = ptx_type_named(insn, insn->part[at + 2]);
    return p;
}

/* Element `at`, in a byte: 6 bits are the lower ones, 4 bits are bits 2 to 5. */
static inline double ptx_byte_element(const ptx_machine *m, const ptx_insn *insn, const ptx_operand *o,
                                      unsigned t, unsigned at, const ptx_type *type) {
    unsigned byte = (unsigned)(ptx_get(m, o->reg[at / 4], t) >> at % 4 * 8) & 255,
             code = type->bits == 4 ? byte >> 2 : byte;
    ptx_must(type->bits == 8 || (code < 1u << type->bits && (type->bits != 4 || byte % 4 == 0)),
             "ptx: bits beside an element: %s", insn->text);
    return tvm_decode(type->type, code);
}

/* The number that a scale of ue8m0, or ue4m3, is. */
static inline double ptx_scale_number(const ptx_insn *insn, bool ue4m3, unsigned code) {
    if (!ue4m3) return code == 255 ? (double)NAN : ldexp(1, (int)code - 127);
    ptx_must(code < 128, "ptx: a negative ue4m3: %s", insn->text);
    if (code == 127) return (double)NAN;
    return code < 8 ? ldexp(code, -9) : ldexp(8 + code % 8, (int)(code / 8) - 10);
}

/* Scale `at` of a's row, or b's column: PTX ISA, "Block Scaling for mma.sync". Operand o is the word, the one
 * after it {byte-id, thread-id}. */
static inline double ptx_scale(const ptx_machine *m, const ptx_insn *insn, const ptx_product *p,
                               const ptx_operand *o, bool is_a, unsigned warp, unsigned line, unsigned at) {
    unsigned byte_id = o[1].reg[0], thread_id = o[1].reg[1];
    ptx_must(o[1].count == 2 && byte_id % p->scales == 0 && byte_id < 4 && thread_id < (is_a ? 2 : 4),
             "ptx: no such scales: %s", insn->text);
    unsigned lane = is_a ? line % 8 * 4 + 2 * thread_id + line / 8 : line * 4 + thread_id;
    unsigned code = (unsigned)(ptx_get(m, o->reg[0], warp + lane) >> 8 * (byte_id + at)) & 255;
    return ptx_scale_number(insn, p->ue4m3, code);
}

typedef struct ptx_matrices {
    double a[16][64], b[64][8];
} ptx_matrices;

static inline void ptx_read_matrices(const ptx_machine *m, const ptx_insn *insn, const ptx_product *p,
                                     unsigned warp, ptx_matrices *x) {
    const ptx_operand *o = insn->operand;
    unsigned bits_a = p->bytes ? 8 : p->a->bits, bits_b = p->bytes ? 8 : p->b->bits, row, k, column;
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned t = warp + lane;
        for (unsigned i = 0; i < p->s.m * p->s.k / 32; i++) {
            ptx_place_a(&p->s, bits_a, lane, i, &row, &k);
            x->a[row][k] =
                p->bytes ? ptx_byte_element(m, insn, &o[1], t, i, p->a) : ptx_element(m, &o[1], t, i, p->a);
        }
        for (unsigned i = 0; i < p->s.n * p->s.k / 32; i++) {
            ptx_place_b(bits_b, lane, i, &k, &column);
            x->b[k][column] =
                p->bytes ? ptx_byte_element(m, insn, &o[2], t, i, p->b) : ptx_element(m, &o[2], t, i, p->b);
        }
    }
    for (k = 0; p->scales && k < p->s.k; k++) {
        unsigned at = k / (p->s.k / p->scales);
        for (row = 0; row < p->s.m; row++) x->a[row][k] *= ptx_scale(m, insn, p, &o[4], true, warp, row, at);
        for (column = 0; column < p->s.n; column++)
            x->b[k][column] *= ptx_scale(m, insn, p, &o[6], false, warp, column, at);
    }
}

static inline void ptx_mma(ptx_machine *m, const ptx_insn *insn) {
    static ptx_matrices x;
    const ptx_operand *o = insn->operand;
    ptx_product p = ptx_read_product(insn);
    for (unsigned warp = 0; warp < m->threads; warp += 32) {
        if (!ptx_runs(m, warp)) continue;
        ptx_read_matrices(m, insn, &p, warp, &x);
        for (unsigned lane = 0; lane < 32; lane++) {
            uint64_t words[4] = {0};
            for (unsigned i = 0; i < p.s.m * p.s.n / 32; i++) {
                unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2,
                         width = p.sum->bits == 64 ? 64 : 32, bit = i * p.sum->bits;
                uint64_t c =
                    ptx_mask(ptx_get(m, o[3].reg[bit / width], warp + lane) >> bit % width, p.sum->bits);
                words[bit / width] |= ptx_products(p.sum, c, p.s.k, x.a[row], &x.b[0][column], 8)
                                      << bit % width;
            }
            for (unsigned i = 0; i < o[0].count; i++) ptx_set(m, o[0].reg[i], warp + lane, words[i]);
        }
    }
}

#endif
