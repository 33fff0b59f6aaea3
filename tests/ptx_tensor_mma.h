/* Inside ptx_machine.h: products of tcgen05, of operands in shared or tensor memory; see ptx_tensor.h. */
#ifndef TVM_TESTS_PTX_TENSOR_MMA_H
#define TVM_TESTS_PTX_TENSOR_MMA_H

#include "ptx_tensor_memory.h"
#include "ptx_wgmma.h"

/* ---- matrices in shared memory: "Shared Memory Descriptor" ---- */

static inline ptx_matrix ptx_tensor_descriptor(const ptx_insn *insn, uint64_t d, bool transposed) {
    static const uint64_t fields =
        UINT64_C(0x3fff) | UINT64_C(0x3fff) << 16 | UINT64_C(0x3fff) << 32 | UINT64_C(7) << 61;
    static const uint32_t widths[] = {16, 0, 128, 0, 64, 0, 32, 0};
    ptx_matrix x = {(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4,
                    (uint32_t)(d >> 32 & 0x3fff) << 4, widths[d >> 61], transposed};
    ptx_must((d & ~fields) == UINT64_C(1) << 46 && x.width > 0,
             "ptx: a descriptor of something else, %llx: %s", (unsigned long long)d, insn->text);
    /* The base offset is 0: the swizzle's pattern begins at a multiple of its period. */
    ptx_must(x.width == 16 || (x.start % (8 * x.width) < x.width && x.stride % (8 * x.width) == 0 &&
                               (transposed ? x.leading % (8 * x.width) == 0 : x.leading == 16)),
             "ptx: a matrix does not begin in the first of eight rows, %x: %s", x.start, insn->text);
    return x;
}

/* Bytes of a row from byte `along` on, of the block `of`, which an operation of the warp reads. Of the pair's
 * other block all warps must have seen them. */
static inline void ptx_tensor_read_shared(ptx_machine *m, ptx_machine *of, const ptx_insn *insn, ptx_stamp by,
                                          uint32_t at, unsigned bytes, void *to) {
    uint32_t warps = of == m ? UINT32_C(1) << by.channel / PTX_TENSOR_WAYS : ptx_block_warps(of);
    ptx_must(at >= PTX_SHARED_BASE && at + bytes <= PTX_SHARED, "ptx: outside of shared memory: %s",
             insn->text);
    for (unsigned i = at; i < at + bytes; i++) {
        ptx_must((of->seen[i] & warps) == warps && of->proxy[i] == PTX_VISIBLE,
                 "ptx: the tensor cores read what was written, and no fence and barrier came after it: %s",
                 insn->text);
        of->tensor->shared_read[i] = of == m ? by : ptx_stamp_far(by);
    }
    memcpy(to, of->shared + at, bytes);
}

/* ---- mma: "Instruction Descriptor", "Data Path Layout Organization" ---- */

typedef struct ptx_tensor_kind {
    const char *name;
    unsigned bits;                   /* of an element's container */
    const char *sum[3], *operand[6]; /* types by their codes; NULL: none has it */
    bool scaled;
} ptx_tensor_kind;

static const ptx_tensor_kind ptx_tensor_kinds[] = {
    {"kind::f16", 16, {"f16", "f32"}, {"f16", "bf16"}, false},
    {"kind::tf32", 32, {NULL, "f32"}, {NULL, NULL, "tf32"}, false},
    {"kind::f8f6f4", 8, {"f16", "f32"}, {"e4m3", "e5m2", NULL, "e2m3", "e3m2", "e2m1"}, false},
    {"kind::i8", 8, {NULL, NULL, "s32"}, {"u8", "s8"}, false},
    {"kind::mxf8f6f4", 8, {"f32"}, {"e4m3", "e5m2", NULL, "e2m3", "e3m2", "e2m1"}, true},
    {"kind::mxf4", 4, {"f32"}, {NULL, "e2m1"}, true},
    {"kind::mxf4nvf4", 4, {"f32"}, {NULL, "e2m1"}, true}};

static inline const ptx_tensor_kind *ptx_tensor_kind_named(const ptx_insn *insn, const char *name) {
    for (unsigned i = 0; i < sizeof ptx_tensor_kinds / sizeof *ptx_tensor_kinds; i++)
        if (ptx_is(ptx_tensor_kinds[i].name, name)) return &ptx_tensor_kinds[i];
    ptx_abort("ptx: unknown %s", insn->text);
    return NULL;
}

typedef struct ptx_tensor_product {
    const ptx_tensor_kind *kind;
    const ptx_type *a, *b, *sum;
    unsigned group;            /* 2: of a pair of blocks, the even one first, */
    ptx_machine *blocks[2];    /* which have the first rows and columns, and the others */
    unsigned rows, columns, k; /* of all */
    bool transposes_a, transposes_b, adds;
    ptx_spot d;
    unsigned scales, id_a, id_b; /* of a row, and the first of them in its column; scales 0: there are none */
    bool ue4m3;                  /* they are; else ue8m0 */
    ptx_spot scale_a, scale_b;
} ptx_tensor_product;

/* "Instruction descriptor" and "Block Scaling": which kinds have which scales, and where in a column these
 * begin. */
static inline void ptx_tensor_decode_scales(const ptx_insn *insn, uint32_t code, ptx_tensor_product *p) {
    bool packed = p->kind->bits == 4, nv = ptx_is(p->kind->name, "kind::mxf4nvf4");
    ptx_must(insn->parts == 6 && ptx_is(insn->part[4], "block_scale") &&
                 sscanf(insn->part[5], "scale_vec::%uX", &p->scales) == 1,
             "ptx: unknown %s", insn->text);
    p->ue4m3 = !(code >> 23 & 1);
    p->id_b = code >> 4 & 3, p->id_a = code >> 29 & 3;
    p->rows = (code >> 27 & 3) * 128;
    bool known = (!packed && p->scales == 1 && !p->ue4m3) || (packed && p->scales == 2 && !p->ue4m3) ||
                 (nv && p->scales == 4);
    ptx_must((code & UINT32_C(0x8700604f)) == 0 && (!packed || (code & UINT32_C(0x19000)) == 0) && known &&
                 p->id_a % p->scales == 0 && p->id_b % p->scales == 0,
             "ptx: a descriptor of something else, %x: %s", code, insn->text);
}

static inline ptx_tensor_product ptx_tensor_decode(const ptx_insn *insn, uint32_t code) {
    ptx_tensor_product p = {.kind = ptx_tensor_kind_named(insn, insn->part[3])};
    bool scaled = p.kind->scaled;
    unsigned sum = scaled ? 0 : code >> 4 & 3, a = code >> 7 & 7, b = code >> 10 & 7;
    ptx_must((scaled || (code & UINT32_C(0xe080604f)) == 0) && sum < 3 && a < 6 && b < 6 &&
                 p.kind->sum[sum] && p.kind->operand[a] && p.kind->operand[b],
             "ptx: a descriptor of something else, %x: %s", code, insn->text);
    p.sum = ptx_type_named(insn, p.kind->sum[sum]);
    p.a = ptx_type_named(insn, p.kind->operand[a]), p.b = ptx_type_named(insn, p.kind->operand[b]);
    p.transposes_a = code >> 15 & 1, p.transposes_b = code >> 16 & 1;
    p.columns = (code >> 17 & 63) * 8, p.rows = (code >> 24 & 31) * 16;
    p.k = PTX_K_BYTES * 8 / p.kind->bits;
    if (scaled) ptx_tensor_decode_scales(insn, code, &p);
    p.group = ptx_is(insn->part[2], "cta_group::2") ? 2 : 1;
    bool known = (p.group == 1 && p.rows == 64 && p.columns >= 8) ||
                 (p.group == 1 && scaled && p.rows == 128 && p.columns >= 8) ||
                 (p.group == 1 && p.rows == 128 && p.columns >= 16 && p.columns % 16 == 0);
    /* Layout A, and B, of 128 rows. */
    if (p.group == 2) known = (p.rows == 256 || (p.rows == 128 && !scaled)) && p.columns % 16 == 0;
    if (p.group == 2) known = known && p.columns >= 16;
    if (p.group == 2 && ptx_is(p.kind->name, "kind::i8")) known = known && p.columns % 32 == 0;
    if (ptx_is(p.kind->name, "kind::i8")) known = known && (p.columns % 16 == 0 || p.columns <= 24);
    if (!ptx_is(p.kind->name, "kind::f16"))
        known = known && (p.a == p.b || p.kind->bits == 8);
    else
        known = known && p.a == p.b && (p.sum->bits == 32 || p.a->name[0] == 'f');
    /* Only 8 and 16 bits lie the other way. */
    known = known && (!p.transposes_a || p.a->bits == 8 || p.a->bits == 16) &&
            (!p.transposes_b || p.b->bits == 8 || p.b->bits == 16);
    ptx_must(known && p.columns <= PTX_COLUMNS, "ptx: unknown %u x %u: %s", p.rows, p.columns, insn->text);
    return p;
}

enum { PTX_TENSOR_K = 64 }; /* of 4 bits */

/* The code of element k of 32 bytes, of containers of so many bits: in those of 8 bits, elements of 6 and 4
 * are in the first 12 or 8 of 16 bytes, 16 together. */
static inline uint64_t ptx_tensor_code(const uint8_t *row, const ptx_type *type, unsigned bits, unsigned k) {
    uint64_t code = 0;
    if (type->bits >= 8) {
        memcpy(&code, row + k * bits / 8, bits / 8);
        return code;
    }
    if (bits == type->bits) return row[k / 2] >> k % 2 * 4 & 15;
    unsigned bit = k % 16 * type->bits;
    memcpy(&code, row + k / 16 * 16, 8);
    if (bit >= 32) memcpy(&code, row + k / 16 * 16 + 4, 8), bit -= 32;
    return code >> bit & ((1U << type->bits) - 1);
}

static inline void ptx_tensor_shared_row(ptx_machine *m, ptx_machine *of, const ptx_insn *insn, ptx_stamp by,
                                         const ptx_matrix *x, unsigned number, const ptx_type *type,
                                         unsigned bits, double *row) {
    uint8_t codes[PTX_K_BYTES + 8] = {0};
    unsigned bytes = bits < 8 ? 1 : bits / 8;    /* two elements of 4 bits are one of 8 here */
    unsigned piece = x->transposed ? bytes : 16; /* 16 bytes along k lie together */
    for (unsigned i = 0; i < PTX_K_BYTES; i += piece) {
        uint32_t at = ptx_matrix_place(x, number, i / bytes, bytes);
        ptx_tensor_read_shared(m, of, insn, by, at, piece, codes + i);
    }
    for (unsigned k = 0; k < PTX_K_BYTES * 8 / bits; k++)
        row[k] = ptx_number(type, ptx_tensor_code(codes, type, bits, k));
}

/* Of 64 rows 16 lie in the lanes of each warp. */
static inline unsigned ptx_tensor_lane(unsigned rows, unsigned row) {
    return rows == 64 ? row / 16 * 32 + row % 16 : row;
}

/* a in tensor memory: 32 bytes of a row are eight columns. */
static inline void ptx_tensor_row(ptx_machine *m, ptx_machine *of, const ptx_insn *insn, ptx_stamp by,
                                  ptx_spot a, const ptx_tensor_product *p, unsigned number, double *row) {
    uint8_t codes[PTX_K_BYTES + 8] = {0};
    for (unsigned c = 0; c < PTX_K_BYTES / 4; c++) {
        ptx_spot at = {a.lane + ptx_tensor_lane(p->rows, number), a.column + c};
        memcpy(codes + 4 * c, ptx_tensor_cell_of(m->tensor, of->tensor, insn, by, at, false), 4);
    }
    for (unsigned k = 0; k < p->k; k++)
        row[k] = ptx_number(p->a, ptx_tensor_code(codes, p->a, p->kind->bits, k));
}

/* Row `number` times its scales, which the block `of` has: they are in the lane number mod 32 of each
 * quarter, and the column number / 32. */
static inline void ptx_tensor_scale(ptx_machine *m, ptx_machine *of, const ptx_insn *insn, ptx_stamp by,
                                    const ptx_tensor_product *p, bool is_a, unsigned number, double *row) {
    ptx_spot at = is_a ? p->scale_a : p->scale_b;
    ptx_must(at.lane == 0, "ptx: scales at lane %u: %s", at.lane, insn->text);
    at.lane = number % 32, at.column += number / 32;
    uint32_t word = *ptx_tensor_cell_of(m->tensor, of->tensor, insn, by, at, false), mask = 0;
    unsigned id = is_a ? p->id_a : p->id_b;
    for (unsigned i = 0; i < p->scales; i++) mask |= UINT32_C(255) << 8 * (id + i);
    for (unsigned quarter = 1; quarter < 4; quarter++) {
        const ptx_spot other = {at.lane + 32 * quarter, at.column};
        ptx_must(((*ptx_tensor_cell_of(m->tensor, of->tensor, insn, by, other, false) ^ word) & mask) == 0,
                 "ptx: quarters of the lanes have different scales: %s", insn->text);
    }
    for (unsigned k = 0; k < p->k; k++)
        row[k] *= ptx_scale_number(insn, p->ue4m3, word >> 8 * (id + k / (p->k / p->scales)) & 255);
}

/* Where a sum is. Layout B: of 64 rows the second half of the columns is in the lanes from 64 on. No text of
 * the PTX ISA says so, but a figure, and CUTLASS (include/cute/atom/mma_traits_sm100.hpp, tmem_frg of 2 SMs
 * and 64 rows). */
static inline ptx_spot ptx_tensor_sum_place(const ptx_tensor_product *p, unsigned row, unsigned column) {
    unsigned half = p->columns / 2;
    if (p->group == 2 && p->rows == 128)
        return (ptx_spot){p->d.lane + row + 64 * (column / half), p->d.column + column % half};
    return (ptx_spot){p->d.lane + ptx_tensor_lane(p->rows, row), p->d.column + column};
}

/* The accumulator with its shape and kind, of which sums are in order. */
static inline uint32_t ptx_tensor_sums(const ptx_tensor_product *p) {
    uint32_t kind = (uint32_t)(p->kind - ptx_tensor_kinds);
    return (p->columns / 8 - 1) | (p->rows / 64 - 1) << 5 | kind << 8 | p->d.lane / 16 << 11 |
           p->d.column << 12 | UINT32_C(1) << 23;
}

static inline void ptx_tensor_sum(ptx_machine *m, ptx_machine *of, const ptx_insn *insn, ptx_stamp by,
                                  const ptx_tensor_product *p, unsigned row, const double *a,
                                  double b[PTX_COLUMNS][PTX_TENSOR_K]) {
    by.sums = ptx_tensor_sums(p) & 0xffffff;
    for (unsigned c = 0; c < p->columns; c++) {
        ptx_spot at = ptx_tensor_sum_place(p, row, c);
        uint32_t *cell = ptx_tensor_cell_of(m->tensor, of->tensor, insn, by, at, true);
        uint64_t code = p->adds ? ptx_mask(*cell, p->sum->bits) : 0;
        uint64_t sum = ptx_products(p->sum, code, p->k, a, b[c], 1);
        *cell = p->sum->bits == 32 ? (uint32_t)sum : ptx_half_column(sum);
    }
}

/* tcgen05.mma.cta_group::1.kind{.block_scale.scale_vec} [d], a, b, descriptor{, [scale a], [scale b]}, adds;
 * a is a descriptor or an address. */
static inline void ptx_tensor_mma(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    static double b[PTX_COLUMNS][PTX_TENSOR_K];
    const ptx_operand *o = insn->operand;
    ptx_tensor_product p = ptx_tensor_decode(insn, (uint32_t)ptx_operand_value(m, &o[3], t));
    ptx_must(p.scales ? insn->operands == 7 : insn->parts == 4 && insn->operands == 5, "ptx: unknown %s",
             insn->text);
    if (p.scales) p.scale_a = ptx_tensor_spot(m, &o[4], t), p.scale_b = ptx_tensor_spot(m, &o[5], t);
    p.adds = ptx_operand_value(m, &o[insn->operands - 1], t) != 0;
    p.d = ptx_tensor_spot(m, &o[0], t);
    ptx_must(p.d.lane == 0 || (p.rows == 64 && p.d.lane == 16), "ptx: sums at lane %u: %s", p.d.lane,
             insn->text);
    ptx_stamp by = ptx_tensor_issue(ptx_tensor_of(m), t / 32, PTX_TENSOR_MMA);
    ptx_matrix mb = ptx_tensor_descriptor(insn, ptx_operand_value(m, &o[2], t), p.transposes_b), ma = {0};
    bool shared = o[1].kind != PTX_MEMORY;
    /* Which bits of their bytes elements of less than 8 have in tensor memory is told by figures alone. */
    ptx_must(shared || (!p.transposes_a && p.a->bits >= 8), "ptx: unknown %s", insn->text);
    if (shared) ma = ptx_tensor_descriptor(insn, ptx_operand_value(m, &o[1], t), p.transposes_a);
    unsigned columns = p.columns / p.group, rows = p.rows / p.group;
    for (unsigned g = 0; g < p.group; g++)
        p.blocks[g] = g == m->rank % p.group ? m : ptx_tensor_peer(m, insn);
    for (unsigned c = 0; c < p.columns; c++)
        ptx_tensor_shared_row(m, p.blocks[c / columns], insn, by, &mb, c % columns, p.b, p.kind->bits, b[c]);
    /* A block of a pair has the scales of its rows of a, and of all columns of b: no section of the PTX ISA
     * says so, but CUTLASS does (examples/python/CuTeDSL/blackwell/dense_blockscaled_gemm_persistent.py,
     * tiled_mma_sfb). */
    for (unsigned r = 0; r < p.rows; r++) {
        static double scaled[PTX_COLUMNS][PTX_TENSOR_K];
        double a[PTX_TENSOR_K];
        ptx_machine *of = p.blocks[r / rows];
        for (unsigned c = 0; r % rows == 0 && c < p.columns; c++) {
            memcpy(scaled[c], b[c], sizeof b[c]);
            if (p.scales) ptx_tensor_scale(m, of, insn, by, &p, false, c, scaled[c]);
        }
        if (shared)
            ptx_tensor_shared_row(m, of, insn, by, &ma, r % rows, p.a, p.kind->bits, a);
        else
            ptx_tensor_row(m, of, insn, by, ptx_tensor_spot(m, &o[1], t), &p, r % rows, a);
        if (p.scales) ptx_tensor_scale(m, of, insn, by, &p, true, r % rows, a);
        ptx_tensor_sum(m, of, insn, by, &p, r % rows, a, scaled);
    }
}

#endif
