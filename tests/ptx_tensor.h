/* Inside ptx_machine.h: tcgen05 of one block (PTX ISA, "TensorCore 5th Generation Family Instructions"):
 * tensor memory, what moves data to and from it, and its products; cta_group::1.
 *
 * As with wgmma, an operation is done at once and nothing else may notice before its end has been waited for.
 * What is not defined ends the test: an access of tensor memory, or a write of shared memory, that nothing
 * orders after another that has it still (ptx_tensor_order.h); a register that a tcgen05.ld may still write;
 * lanes of other warps; columns that are not allocated; the end of a block that has not given all back. What
 * an allocation holds at first, and what a 16-bit element leaves of its column, is garbage. */
#ifndef TVM_TESTS_PTX_TENSOR_H
#define TVM_TESTS_PTX_TENSOR_H

#include "ptx_mbarrier.h"
#include "ptx_mma.h"
#include "ptx_wgmma.h"

enum { PTX_GARBAGE = 0xa5 };

/* A column that holds an element of 16 bits. */
static inline uint32_t ptx_half_column(uint64_t code) {
    return UINT32_C(0x1010000) * PTX_GARBAGE | (uint32_t)(code & 0xffff);
}

/* A place in tensor memory: the lane in the upper half of an address, the column in the lower. */
typedef struct ptx_spot {
    unsigned lane, column;
} ptx_spot;

static inline ptx_spot ptx_tensor_spot(const ptx_machine *m, const ptx_operand *o, unsigned t) {
    uint32_t address = (uint32_t)(ptx_get(m, o->reg[0], t) + o->value);
    return (ptx_spot){address >> 16, address & 0xffff};
}

static inline bool ptx_tensor_has(const ptx_tensor *x, ptx_spot at, unsigned lanes, unsigned columns) {
    if (at.lane + lanes > PTX_TENSOR_LANES || at.column + columns > PTX_TENSOR_COLUMNS) return false;
    for (unsigned c = 0; c < columns; c++)
        if (!x->owner[at.column + c]) return false;
    return true;
}

/* A cell that an operation of the warp reads, or writes, too. */
static inline uint32_t *ptx_tensor_cell(ptx_tensor *x, const ptx_insn *insn, ptx_stamp by, ptx_spot at,
                                        bool writes) {
    unsigned warp = by.channel / PTX_TENSOR_WAYS;
    ptx_tensor_way way = (ptx_tensor_way)(by.channel % PTX_TENSOR_WAYS);
    ptx_must(ptx_tensor_has(x, at, 1, 1), "ptx: lane %u, column %u is not allocated: %s", at.lane, at.column,
             insn->text);
    ptx_stamp *wrote = &x->wrote[at.lane][at.column], *read = &x->read[at.lane][at.column];
    bool same = wrote->serial == by.serial && wrote->channel == by.channel;
    ptx_must(same || ptx_tensor_before(x, warp, way, *wrote),
             "ptx: lane %u, column %u may still be written by another: %s", at.lane, at.column, insn->text);
    ptx_must(!writes || ptx_tensor_before(x, warp, way, *read),
             "ptx: lane %u, column %u may still be read by another: %s", at.lane, at.column, insn->text);
    *(writes ? wrote : read) = by;
    return &x->cell[at.lane][at.column];
}

/* ---- alloc, dealloc, relinquish_alloc_permit ---- */

static inline ptx_tensor *ptx_tensor_of(ptx_machine *m) {
    if (m->tensor) return m->tensor;
    m->tensor = calloc(1, sizeof *m->tensor);
    ck_assert_ptr_nonnull(m->tensor);
    memset(m->tensor->cell, PTX_GARBAGE, sizeof m->tensor->cell);
    m->tensor->shared_read = calloc(PTX_SHARED, sizeof *m->tensor->shared_read);
    m->tensor->loading = calloc(ptx_registers(m) + 1, sizeof *m->tensor->loading);
    ck_assert(m->tensor->shared_read && m->tensor->loading);
    return m->tensor;
}

static inline void ptx_tensor_begin(ptx_machine *m) {
    if (m->tensor) free(m->tensor->shared_read), free(m->tensor->loading);
    free(m->tensor);
    m->tensor = NULL;
}

static inline void ptx_tensor_end(const ptx_machine *m) {
    for (unsigned c = 0; m->tensor && c < PTX_TENSOR_COLUMNS; c++)
        ptx_must(!m->tensor->owner[c], "ptx: a block ends with tensor memory of its own");
}

static inline unsigned ptx_one_warp(const ptx_machine *m, const ptx_insn *insn) {
    ptx_must(m->running && !(m->running & (m->running - 1)) && insn->guard == UINT32_MAX,
             "ptx: not by one warp: %s", insn->text);
    unsigned warp = 0;
    while (!(m->running >> warp & 1)) warp++;
    return warp;
}

static inline unsigned ptx_tensor_count(const ptx_insn *insn, const ptx_operand *o) {
    uint64_t columns = o->value;
    ptx_must(o->kind == PTX_IMMEDIATE && columns >= 32 && columns <= 512 && !(columns & (columns - 1)),
             "ptx: no number of columns: %s", insn->text);
    return (unsigned)columns;
}

/* The last columns that are free, so that who takes the first to be at 0 is found out. */
static inline void ptx_tensor_alloc(ptx_machine *m, const ptx_insn *insn) {
    ptx_tensor *x = ptx_tensor_of(m);
    unsigned t = 32 * ptx_one_warp(m, insn), columns = ptx_tensor_count(insn, &insn->operand[1]), free = 0;
    ptx_must(!x->given_up, "ptx: allocates after it gave up to: %s", insn->text);
    unsigned first = PTX_TENSOR_COLUMNS;
    while (first > 0 && (free < columns || first % columns)) free = x->owner[--first] ? 0 : free + 1;
    ptx_must(free >= columns && first % columns == 0, "ptx: no columns are left, for ever: %s", insn->text);
    for (unsigned c = first; c < first + columns; c++) x->owner[c] = (uint16_t)(first + 1);
    uint8_t *at = ptx_address(m, insn, &insn->operand[0], true, t, 4);
    uint32_t address = first;
    ptx_wrote(m, at, t, 4);
    memcpy(at, &address, 4);
    for (unsigned i = 0; i < 4; i++) m->seen[at - m->shared + i] = m->running;
}

static inline void ptx_tensor_dealloc(ptx_machine *m, const ptx_insn *insn) {
    ptx_tensor *x = ptx_tensor_of(m);
    unsigned warp = ptx_one_warp(m, insn), columns = ptx_tensor_count(insn, &insn->operand[1]);
    const ptx_operand place = {.reg = {insn->operand[0].reg[0]}};
    ptx_spot at = ptx_tensor_spot(m, &place, 32 * warp);
    ptx_must(insn->operand[0].kind == PTX_REG && at.lane == 0 && at.column + columns <= PTX_TENSOR_COLUMNS &&
                 x->owner[at.column] == at.column + 1,
             "ptx: no allocation begins there: %s", insn->text);
    for (unsigned c = at.column; c < at.column + columns; c++) {
        ptx_must(x->owner[c] == at.column + 1, "ptx: not as many columns as were allocated: %s", insn->text);
        x->owner[c] = 0;
        for (unsigned lane = 0; lane < PTX_TENSOR_LANES; lane++)
            ptx_must(ptx_tensor_ended(x, warp, x->wrote[lane][c]) &&
                         ptx_tensor_ended(x, warp, x->read[lane][c]),
                     "ptx: gives back what is still accessed: %s", insn->text);
    }
    bool whole = at.column + columns == PTX_TENSOR_COLUMNS || x->owner[at.column + columns] != at.column + 1;
    ptx_must(whole, "ptx: not as many columns as were allocated: %s", insn->text);
}

/* ---- ld, st: "Data Movement Shape" ---- */

typedef struct ptx_movement {
    char shape[16];
    unsigned lanes, words, repeats; /* words: registers of a repeat */
    bool halves;                    /* pack::16b, unpack::16b: two columns a register */
} ptx_movement;

static inline ptx_movement ptx_tensor_movement(const ptx_insn *insn) {
    static const struct {
        const char *shape;
        unsigned lanes, words;
    } all[] = {{"32x32b", 32, 1}, {"16x64b", 16, 1}, {"16x128b", 16, 2}, {"16x256b", 16, 4}};
    ptx_movement v = {.repeats = 0};
    bool packs =
        insn->parts > 6 && (ptx_is(insn->part[6], "pack::16b") || ptx_is(insn->part[6], "unpack::16b"));
    ptx_must(ptx_is(insn->part[2], "sync") && ptx_is(insn->part[3], "aligned") &&
                 insn->parts == (packs ? 8U : 7U) && ptx_is(insn->part[insn->parts - 1], "b32") &&
                 insn->part[5][0] == 'x',
             "ptx: unknown %s", insn->text);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (!ptx_is(all[i].shape, insn->part[4])) continue;
        v = (ptx_movement){.lanes = all[i].lanes, .words = all[i].words, .halves = packs};
        v.repeats = (unsigned)strtoul(insn->part[5] + 1, NULL, 10);
        snprintf(v.shape, sizeof v.shape, "%s", all[i].shape);
    }
    ptx_must(v.repeats > 0 && !(v.repeats & (v.repeats - 1)) && insn->sum_count == v.words * v.repeats &&
                 insn->sum_count <= PTX_SUMS,
             "ptx: unknown %s", insn->text);
    return v;
}

/* Where register r of a lane of the warp is, from the address on; of two columns the first one. */
static inline ptx_spot ptx_tensor_place(const ptx_movement *v, unsigned lane, unsigned r) {
    unsigned repeat = r / v->words, word = r % v->words;
    ptx_spot at = {lane, r};
    if (ptx_is(v->shape, "16x64b")) at = (ptx_spot){lane / 4 + lane % 2 * 8, lane / 2 % 2 + 2 * repeat};
    if (ptx_is(v->shape, "16x128b")) at = (ptx_spot){lane / 4 + word * 8, lane % 4 + 4 * repeat};
    if (ptx_is(v->shape, "16x256b"))
        at = (ptx_spot){lane / 4 + word / 2 * 8, lane % 4 * 2 + word % 2 + 8 * repeat};
    if (v->halves) at.column *= 2;
    return at;
}

static inline void ptx_tensor_move_word(ptx_machine *m, const ptx_insn *insn, ptx_stamp by,
                                        const ptx_movement *v, ptx_spot at, uint32_t number, unsigned t) {
    bool loads = ptx_is(insn->part[1], "ld");
    uint32_t given = loads ? 0 : (uint32_t)ptx_get(m, number, t), word = 0;
    for (unsigned i = 0; i < (v->halves ? 2U : 1U); i++, at.column++) {
        uint32_t *cell = ptx_tensor_cell(m->tensor, insn, by, at, !loads);
        if (loads)
            word |= v->halves ? (*cell & 0xffff) << 16 * i : *cell;
        else
            *cell = v->halves ? ptx_half_column(given >> 16 * i) : given;
    }
    if (loads) ptx_set(m, number, t, word);
}

static inline void ptx_tensor_move(ptx_machine *m, const ptx_insn *insn) {
    ptx_tensor *x = ptx_tensor_of(m);
    const ptx_movement v = ptx_tensor_movement(insn);
    bool loads = ptx_is(insn->part[1], "ld");
    ptx_must(insn->guard == UINT32_MAX && insn->operands == 1, "ptx: unknown %s", insn->text);
    for (unsigned warp = 0; warp < m->threads / 32; warp++) {
        if (!(m->running >> warp & 1)) continue;
        ptx_spot from = ptx_tensor_spot(m, &insn->operand[0], 32 * warp);
        ptx_must(from.lane / 32 == warp % 4 && from.lane % v.lanes == 0, "ptx: lanes of other warps, %u: %s",
                 from.lane, insn->text);
        ptx_stamp by = ptx_tensor_issue(x, warp, loads ? PTX_TENSOR_LD : PTX_TENSOR_ST);
        for (unsigned lane = 0; lane < 32; lane++)
            for (unsigned r = 0; r < insn->sum_count; r++) {
                ptx_spot at = ptx_tensor_place(&v, lane, r);
                at.lane += from.lane, at.column += from.column;
                ptx_tensor_move_word(m, insn, by, &v, at, insn->sums[r], 32 * warp + lane);
            }
        for (unsigned r = 0; r < insn->sum_count && loads; r++) {
            uint32_t *loading = &x->loading[insn->sums[r]];
            x->loads += !*loading;
            *loading |= UINT32_C(1) << warp;
        }
    }
}

/* tcgen05.wait::ld, wait::st. */
static inline void ptx_tensor_wait_for(ptx_machine *m, const ptx_insn *insn) {
    ptx_tensor *x = ptx_tensor_of(m);
    bool loads = ptx_is(insn->part[1], "wait::ld");
    size_t all = ptx_registers(m);
    for (unsigned warp = 0; warp < m->threads / 32; warp++)
        if (m->running >> warp & 1) ptx_tensor_wait(x, warp, loads ? PTX_TENSOR_LD : PTX_TENSOR_ST);
    for (size_t i = 0; i < all && loads && x->loads; i++) {
        if (!x->loading[i]) continue;
        x->loading[i] &= ~m->running;
        x->loads -= !x->loading[i];
    }
}

static inline void ptx_tensor_watch_register(const ptx_machine *m, const ptx_insn *insn, uint32_t number) {
    ptx_must(!(m->tensor->loading[number] & m->running),
             "ptx: a tcgen05.ld that has not been waited for has a register: %s", insn->text);
}

/* Before any instruction. */
static inline void ptx_tensor_watch(const ptx_machine *m, const ptx_insn *insn) {
    if (!m->tensor || !m->tensor->loads || insn->label != UINT32_MAX) return;
    for (unsigned i = 0; i < insn->operands; i++) {
        const ptx_operand *o = &insn->operand[i];
        if (o->kind == PTX_MEMORY ? o->reg[0] == UINT32_MAX : o->kind != PTX_REG && o->kind != PTX_GROUP)
            continue;
        for (unsigned r = 0; r < (o->kind == PTX_MEMORY ? 1 : o->count); r++)
            ptx_tensor_watch_register(m, insn, o->reg[r]);
    }
    for (unsigned i = 0; i < insn->sum_count; i++) ptx_tensor_watch_register(m, insn, insn->sums[i]);
}

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

/* Bytes of a row from byte `along` on, which an operation of the warp reads. */
static inline void ptx_tensor_read_shared(ptx_machine *m, const ptx_insn *insn, ptx_stamp by, uint32_t at,
                                          unsigned bytes, void *to) {
    unsigned warp = by.channel / PTX_TENSOR_WAYS;
    ptx_must(at >= PTX_SHARED_BASE && at + bytes <= PTX_SHARED, "ptx: outside of shared memory: %s",
             insn->text);
    for (unsigned i = at; i < at + bytes; i++) {
        ptx_must(m->seen[i] >> warp & 1 && m->proxy[i] == PTX_VISIBLE,
                 "ptx: the tensor cores read what was written, and no fence and barrier came after it: %s",
                 insn->text);
        m->tensor->shared_read[i] = by;
    }
    memcpy(to, m->shared + at, bytes);
}

/* ---- mma: "Instruction Descriptor", "Data Path Layout Organization" ---- */

typedef struct ptx_tensor_kind {
    const char *name;
    unsigned bytes;                  /* of an element's container */
    const char *sum[3], *operand[6]; /* types by their codes; NULL: none has it */
} ptx_tensor_kind;

static inline const ptx_tensor_kind *ptx_tensor_kind_named(const ptx_insn *insn, const char *name) {
    static const ptx_tensor_kind all[] = {
        {"kind::f16", 2, {"f16", "f32"}, {"f16", "bf16"}},
        {"kind::tf32", 4, {NULL, "f32"}, {NULL, NULL, "tf32"}},
        {"kind::f8f6f4", 1, {"f16", "f32"}, {"e4m3", "e5m2", NULL, "e2m3", "e3m2", "e2m1"}},
        {"kind::i8", 1, {NULL, NULL, "s32"}, {"u8", "s8"}}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (ptx_is(all[i].name, name)) return &all[i];
    ptx_abort("ptx: unknown %s", insn->text);
    return NULL;
}

typedef struct ptx_tensor_product {
    const ptx_tensor_kind *kind;
    const ptx_type *a, *b, *sum;
    unsigned rows, columns, k;
    bool transposes_a, transposes_b, adds;
    ptx_spot d;
} ptx_tensor_product;

static inline ptx_tensor_product ptx_tensor_decode(const ptx_insn *insn, uint32_t code) {
    ptx_tensor_product p = {.kind = ptx_tensor_kind_named(insn, insn->part[3])};
    unsigned sum = code >> 4 & 3, a = code >> 7 & 7, b = code >> 10 & 7;
    ptx_must((code & UINT32_C(0xe080604f)) == 0 && sum < 3 && a < 6 && b < 6 && p.kind->sum[sum] &&
                 p.kind->operand[a] && p.kind->operand[b],
             "ptx: a descriptor of something else, %x: %s", code, insn->text);
    p.sum = ptx_type_named(insn, p.kind->sum[sum]);
    p.a = ptx_type_named(insn, p.kind->operand[a]), p.b = ptx_type_named(insn, p.kind->operand[b]);
    p.transposes_a = code >> 15 & 1, p.transposes_b = code >> 16 & 1;
    p.columns = (code >> 17 & 63) * 8, p.rows = (code >> 24 & 31) * 16;
    p.k = PTX_K_BYTES / p.kind->bytes;
    bool known =
        (p.rows == 64 && p.columns >= 8) || (p.rows == 128 && p.columns >= 16 && p.columns % 16 == 0);
    if (ptx_is(p.kind->name, "kind::i8")) known = known && (p.columns % 16 == 0 || p.columns <= 24);
    if (!ptx_is(p.kind->name, "kind::f16"))
        known = known && (p.a == p.b || p.kind->bytes == 1);
    else
        known = known && p.a == p.b && (p.sum->bits == 32 || p.a->name[0] == 'f');
    /* Only 8 and 16 bits lie the other way. */
    known = known && (!p.transposes_a || p.a->bits == 8 || p.a->bits == 16) &&
            (!p.transposes_b || p.b->bits == 8 || p.b->bits == 16);
    ptx_must(known && p.columns <= PTX_COLUMNS, "ptx: unknown %u x %u: %s", p.rows, p.columns, insn->text);
    return p;
}

/* The code of element k of 32 bytes: those of 6 and 4 bits in the first 12 or 8 of 16 bytes, 16 together. */
static inline uint64_t ptx_tensor_code(const uint8_t *row, const ptx_type *type, unsigned bytes, unsigned k) {
    uint64_t code = 0;
    if (type->bits >= 8) {
        memcpy(&code, row + k * bytes, bytes);
        return code;
    }
    unsigned bit = k % 16 * type->bits;
    memcpy(&code, row + k / 16 * 16, 8);
    if (bit >= 32) memcpy(&code, row + k / 16 * 16 + 4, 8), bit -= 32;
    return code >> bit & ((1U << type->bits) - 1);
}

static inline void ptx_tensor_shared_row(ptx_machine *m, const ptx_insn *insn, ptx_stamp by,
                                         const ptx_matrix *x, unsigned number, const ptx_type *type,
                                         unsigned bytes, double *row) {
    uint8_t codes[PTX_K_BYTES + 8] = {0};
    unsigned piece = x->transposed ? bytes : 16; /* 16 bytes along k lie together */
    for (unsigned i = 0; i < PTX_K_BYTES; i += piece) {
        uint32_t at = ptx_matrix_place(x, number, i / bytes, bytes);
        ptx_tensor_read_shared(m, insn, by, at, piece, codes + i);
    }
    for (unsigned k = 0; k < PTX_K_BYTES / bytes; k++)
        row[k] = ptx_number(type, ptx_tensor_code(codes, type, bytes, k));
}

/* Of 64 rows 16 lie in the lanes of each warp. */
static inline unsigned ptx_tensor_lane(unsigned rows, unsigned row) {
    return rows == 64 ? row / 16 * 32 + row % 16 : row;
}

/* a in tensor memory: 32 bytes of a row are eight columns. */
static inline void ptx_tensor_row(ptx_machine *m, const ptx_insn *insn, ptx_stamp by, ptx_spot a,
                                  const ptx_tensor_product *p, unsigned number, double *row) {
    uint8_t codes[PTX_K_BYTES + 8] = {0};
    for (unsigned c = 0; c < PTX_K_BYTES / 4; c++) {
        ptx_spot at = {a.lane + ptx_tensor_lane(p->rows, number), a.column + c};
        memcpy(codes + 4 * c, ptx_tensor_cell(m->tensor, insn, by, at, false), 4);
    }
    for (unsigned k = 0; k < p->k; k++)
        row[k] = ptx_number(p->a, ptx_tensor_code(codes, p->a, p->kind->bytes, k));
}

static inline void ptx_tensor_sum(ptx_machine *m, const ptx_insn *insn, ptx_stamp by,
                                  const ptx_tensor_product *p, unsigned row, const double *a,
                                  double b[PTX_COLUMNS][PTX_K_BYTES]) {
    for (unsigned c = 0; c < p->columns; c++) {
        ptx_spot at = {p->d.lane + ptx_tensor_lane(p->rows, row), p->d.column + c};
        uint32_t *cell = ptx_tensor_cell(m->tensor, insn, by, at, true);
        uint64_t code = p->adds ? ptx_mask(*cell, p->sum->bits) : 0;
        uint64_t sum = ptx_products(p->sum, code, p->k, a, b[c], 1);
        *cell = p->sum->bits == 32 ? (uint32_t)sum : ptx_half_column(sum);
    }
}

/* tcgen05.mma.cta_group::1.kind [d], a, b, descriptor, adds; a is a descriptor or an address. */
static inline void ptx_tensor_mma(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    static double b[PTX_COLUMNS][PTX_K_BYTES];
    const ptx_operand *o = insn->operand;
    ptx_must(insn->parts == 4 && insn->operands == 5, "ptx: unknown %s", insn->text);
    ptx_tensor_product p = ptx_tensor_decode(insn, (uint32_t)ptx_operand_value(m, &o[3], t));
    p.adds = ptx_operand_value(m, &o[4], t) != 0;
    p.d = ptx_tensor_spot(m, &o[0], t);
    ptx_must(p.d.lane == 0 || (p.rows == 64 && p.d.lane == 16), "ptx: sums at lane %u: %s", p.d.lane,
             insn->text);
    ptx_stamp by = ptx_tensor_issue(ptx_tensor_of(m), t / 32, PTX_TENSOR_MMA);
    ptx_matrix mb = ptx_tensor_descriptor(insn, ptx_operand_value(m, &o[2], t), p.transposes_b), ma = {0};
    bool shared = o[1].kind != PTX_MEMORY;
    ptx_must(shared || !p.transposes_a, "ptx: unknown %s", insn->text);
    if (shared) ma = ptx_tensor_descriptor(insn, ptx_operand_value(m, &o[1], t), p.transposes_a);
    for (unsigned c = 0; c < p.columns; c++)
        ptx_tensor_shared_row(m, insn, by, &mb, c, p.b, p.kind->bytes, b[c]);
    for (unsigned r = 0; r < p.rows; r++) {
        double a[PTX_K_BYTES];
        if (shared)
            ptx_tensor_shared_row(m, insn, by, &ma, r, p.a, p.kind->bytes, a);
        else
            ptx_tensor_row(m, insn, by, ptx_tensor_spot(m, &o[1], t), &p, r, a);
        ptx_tensor_sum(m, insn, by, &p, r, a, b);
    }
}

/* ---- cp, commit ---- */

/* tcgen05.cp.cta_group::1.shape[.multicast] [d], descriptor: rows of the matrix, which lie along k, go to
 * lanes from `first` on, and to each further group of lanes of the mask of warps. */
static inline void ptx_tensor_cp(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    static const struct {
        const char *shape, *multicast;
        unsigned rows, bytes;
        uint8_t warps[4]; /* of which lanes the rows of each warp's lanes are: the number of 32 rows */
    } all[] = {{"128x256b", "", 128, 32, {0, 1, 2, 3}},
               {"128x128b", "", 128, 16, {0, 1, 2, 3}},
               {"64x128b", "warpx2::02_13", 64, 16, {0, 1, 0, 1}},
               {"64x128b", "warpx2::01_23", 64, 16, {0, 0, 1, 1}},
               {"32x128b", "warpx4", 32, 16, {0, 0, 0, 0}}};
    const char *multicast = insn->parts > 4 ? insn->part[4] : "";
    ptx_stamp by = ptx_tensor_issue(ptx_tensor_of(m), t / 32, PTX_TENSOR_CP);
    ptx_spot d = ptx_tensor_spot(m, &insn->operand[0], t);
    ptx_matrix x = ptx_tensor_descriptor(insn, ptx_operand_value(m, &insn->operand[1], t), false);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (!ptx_is(all[i].shape, insn->part[3]) || !ptx_is(all[i].multicast, multicast)) continue;
        ptx_must(d.lane == 0 && insn->operands == 2, "ptx: unknown %s", insn->text);
        for (unsigned lane = 0; lane < PTX_TENSOR_LANES; lane++)
            for (unsigned byte = 0; byte < all[i].bytes; byte += 4) {
                uint32_t word, row = all[i].warps[lane / 32] * 32 + lane % 32;
                ptx_tensor_read_shared(m, insn, by, ptx_matrix_place(&x, row, byte, 1), 4, &word);
                ptx_spot at = {lane, d.column + byte / 4};
                *ptx_tensor_cell(m->tensor, insn, by, at, true) = word;
            }
        return;
    }
    ptx_abort("ptx: unknown %s", insn->text);
}

/* tcgen05.commit.cta_group::1.mbarrier::arrive::one[.shared::cluster].b64 [mbarrier] */
static inline void ptx_tensor_commit_to(ptx_machine *m, const ptx_insn *insn, unsigned t) {
    ptx_machine *owner;
    ptx_mbarrier *b = ptx_mbarrier_of(m, insn, &insn->operand[0], t, &owner);
    ptx_must(ptx_is(insn->part[3], "mbarrier::arrive::one") && insn->operands == 1 && owner == m &&
                 b->missing > 0,
             "ptx: unknown, or more arrivals than an mbarrier is for: %s", insn->text);
    ptx_tensor_commit(ptx_tensor_of(m), t / 32, (unsigned)(b - m->mbarriers));
    b->missing--;
    ptx_mbarrier_end_phase(m, b);
}

static inline void ptx_tcgen05(ptx_machine *m, const ptx_insn *insn) {
    const char *op = insn->part[1];
    bool of_warps = ptx_is(op, "alloc") || ptx_is(op, "dealloc") || ptx_is(op, "relinquish_alloc_permit");
    bool of_thread = ptx_is(op, "mma") || ptx_is(op, "cp") || ptx_is(op, "commit");
    ptx_must(!(of_warps || of_thread) || ptx_is(insn->part[2], "cta_group::1"), "ptx: unknown %s",
             insn->text);
    for (unsigned t = 0; t < m->threads && of_thread; t++) {
        if (!ptx_active(m, insn, t)) continue;
        for (unsigned other = t / 32 * 32; other < t; other++)
            ptx_must(!ptx_active(m, insn, other), "ptx: by two threads of a warp: %s", insn->text);
        if (ptx_is(op, "mma")) ptx_tensor_mma(m, insn, t);
        if (ptx_is(op, "cp")) ptx_tensor_cp(m, insn, t);
        if (ptx_is(op, "commit")) ptx_tensor_commit_to(m, insn, t);
    }
    if (of_thread) return;
    bool after = ptx_is(op, "fence::after_thread_sync");
    if (ptx_is(op, "alloc"))
        ptx_tensor_alloc(m, insn);
    else if (ptx_is(op, "dealloc"))
        ptx_tensor_dealloc(m, insn);
    else if (of_warps)
        ptx_one_warp(m, insn), ptx_tensor_of(m)->given_up = true;
    else if (ptx_is(op, "ld") || ptx_is(op, "st"))
        ptx_tensor_move(m, insn);
    else if (ptx_is(op, "wait::ld") || ptx_is(op, "wait::st"))
        ptx_tensor_wait_for(m, insn);
    else if (after || ptx_is(op, "fence::before_thread_sync"))
        for (unsigned w = 0; w < m->threads / 32; w++) {
            if (m->running >> w & 1) ptx_tensor_fence(ptx_tensor_of(m), w, after);
        }
    else
        ptx_abort("ptx: unknown %s", insn->text);
}

#endif
