/* Inside ptx_machine.h: wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions") with a in
 * registers or shared memory.
 *
 * Its sums are computed at once, but nothing else may notice before the wait_group that covers it. What is
 * not defined ends the test: an instruction that reads or writes a sum before that, or writes a register of
 * a; a wgmma of registers that have been written since the last wgmma.fence, or whose sums another wgmma
 * still has in another place; one that reads shared memory which was written and not made visible to the
 * async proxy; a write of shared memory that it may still read; the end of the kernel before it has been
 * waited for. */
#ifndef TVM_TESTS_PTX_WGMMA_H
#define TVM_TESTS_PTX_WGMMA_H

#include "ptx_mma.h"

enum { PTX_ROWS = 64, PTX_K_BYTES = 32, PTX_COLUMNS = 256 };

/* ---- what the other instructions may do meanwhile ---- */

static inline bool ptx_in_flight(const ptx_warpgroup *w, uint32_t number) {
    return w->flight[number].group > w->done;
}

/* Is the instruction done by warps of the warpgroup? */
static inline bool ptx_group_runs(const ptx_machine *m, unsigned group) {
    return m->running >> (4 * group) & 15;
}

/* Is the instruction done by whole warpgroups? */
static inline bool ptx_whole_groups_run(const ptx_machine *m) {
    for (unsigned g = 0; g < ptx_warpgroups(m); g++)
        if (ptx_group_runs(m, g) && (m->running >> (4 * g) & 15) != 15) return false;
    return true;
}

static inline void ptx_wgmma_watch_operand(ptx_warpgroup *w, const ptx_insn *insn, const ptx_operand *o,
                                           bool written) {
    if (o->kind == PTX_MEMORY ? o->reg[0] == UINT32_MAX : o->kind != PTX_REG && o->kind != PTX_GROUP) return;
    for (unsigned i = 0; i < (o->kind == PTX_MEMORY ? 1 : o->count); i++) {
        ptx_flight *f = &w->flight[o->reg[i]];
        ptx_must(!ptx_in_flight(w, o->reg[i]) || (f->sums == 0 && !written),
                 "ptx: a wgmma that has not been waited for has a register as %s: %s",
                 f->sums ? "a sum" : "part of a", insn->text);
        if (written) f->accessed = true;
    }
}

/* Before any instruction. */
static inline void ptx_wgmma_watch(ptx_machine *m, const ptx_insn *insn) {
    const char *op = insn->part[0];
    if (insn->label != UINT32_MAX || ptx_is(op, "wgmma")) return;
    bool gives = !ptx_is(op, "st") && !ptx_is(op, "bra");
    for (unsigned g = 0; g < ptx_warpgroups(m); g++)
        for (unsigned i = 0; i < insn->operands && ptx_group_runs(m, g); i++)
            ptx_wgmma_watch_operand(&m->warpgroups[g], insn, &insn->operand[i],
                                    i == 0 && gives && insn->operand[0].kind != PTX_MEMORY);
}

/* ---- groups ---- */

static inline void ptx_wgmma_begin(ptx_machine *m) {
    size_t all = ptx_registers(m);
    for (unsigned g = 0; g < ptx_warpgroups(m); g++) {
        ptx_warpgroup *w = &m->warpgroups[g];
        for (size_t i = 0; i < all; i++) w->flight[i] = (ptx_flight){.accessed = true};
        if (w->groups > 0) memset(w->read_last, 0, PTX_SHARED * sizeof *w->read_last);
        w->groups = w->done = 0;
        w->open = false;
    }
    memset(m->proxy, PTX_VISIBLE, PTX_SHARED);
}

static inline void ptx_wgmma_end(const ptx_machine *m) {
    for (unsigned g = 0; g < ptx_warpgroups(m); g++)
        ptx_must(!m->warpgroups[g].open && m->warpgroups[g].groups == m->warpgroups[g].done,
                 "ptx: the end comes before a wgmma's");
}

static inline void ptx_wgmma_fence(const ptx_machine *m, ptx_warpgroup *w) {
    size_t all = ptx_registers(m);
    for (size_t i = 0; i < all; i++) w->flight[i].accessed = false;
}

static inline void ptx_wgmma_wait(ptx_warpgroup *w, uint64_t pending) {
    uint32_t done = w->groups > pending ? w->groups - (uint32_t)pending : 0;
    if (done > w->done) w->done = done;
}

/* Of the async proxy: what the thread itself wrote. Accesses of the generic proxy are in order here as they
 * are: what a fence of it is for is litmus_model.h's to say. */
static inline void ptx_fence(ptx_machine *m, const ptx_insn *insn) {
    if (ptx_is(insn->part[1], "mbarrier_init") || ptx_is(insn->part[1], "acq_rel")) return;
    ptx_must(ptx_is(insn->part[1], "proxy") && ptx_is(insn->part[2], "async"), "ptx: unknown %s", insn->text);
    if (ptx_is(insn->part[3], "global")) return;
    for (size_t i = 0; i < m->written_ever; i++)
        if (m->proxy[i] == PTX_WRITTEN && ptx_active(m, insn, m->writer[i] - 1U)) m->proxy[i] = PTX_FENCED;
}

/* ---- operands ---- */

/* A register becomes one of the wgmma that is issued now: of a, or number `place` of its sums. */
static inline void ptx_wgmma_take(ptx_warpgroup *w, const ptx_insn *insn, uint32_t number, unsigned sums,
                                  unsigned place) {
    ptx_flight *f = &w->flight[number];
    if (ptx_in_flight(w, number))
        ptx_must(f->sums == sums && f->place == place,
                 "ptx: another wgmma still has a register, in another place: %s", insn->text);
    ptx_must(!f->accessed, "ptx: a register was written and no wgmma.fence came after it: %s", insn->text);
    *f = (ptx_flight){.group = w->groups + 1, .sums = (uint16_t)sums, .place = (uint16_t)place};
}

static inline uint64_t ptx_uniform(const ptx_machine *m, const ptx_insn *insn, const ptx_operand *o,
                                   unsigned first) {
    uint64_t value = ptx_operand_value(m, o, first);
    for (unsigned t = first; t < first + PTX_GROUP_THREADS; t++)
        ptx_must(ptx_operand_value(m, o, t) == value, "ptx: a warpgroup's threads differ: %s", insn->text);
    return value;
}

/* PTX ISA, "Matrix Descriptor Format" and "Shared Memory Layout": offsets in bytes. */
typedef struct ptx_matrix {
    uint32_t start, leading, stride, width; /* width: of the swizzle; 16: none */
    bool transposed;                        /* not along k */
} ptx_matrix;

static inline ptx_matrix ptx_descriptor(const ptx_insn *insn, uint64_t d, bool transposed, unsigned rows) {
    static const uint64_t fields =
        UINT64_C(0x3fff) | UINT64_C(0x3fff) << 16 | UINT64_C(0x3fff) << 32 | UINT64_C(3) << 62;
    static const uint32_t widths[] = {16, 128, 64, 32};
    ptx_matrix x = {(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4,
                    (uint32_t)(d >> 32 & 0x3fff) << 4, widths[d >> 62], transposed};
    uint32_t in_row = x.start % x.width, taken = transposed ? 2 * rows : PTX_K_BYTES;
    ptx_must((d & ~fields) == 0, "ptx: a descriptor of something else, %llx: %s", (unsigned long long)d,
             insn->text);
    if (x.width == 16) return x;
    /* The base offset is 0: the swizzle's pattern begins at a multiple of its period. Along k nobody reads
     * the leading offset, which is 16 by convention, but for the number of a cluster's block. */
    ptx_must(x.start % (8 * x.width) < x.width && (in_row == 0 || in_row + taken <= x.width) &&
                 x.stride % (8 * x.width) == 0 &&
                 (transposed ? x.leading % (8 * x.width) == 0 : x.leading % 256 == 16),
             "ptx: a matrix does not begin in the first of eight rows, %x: %s", x.start, insn->text);
    return x;
}

/* Where the element is; transposed ones, beside each other along the rows, have 8 or 16 bits. */
static inline uint32_t ptx_matrix_place(const ptx_matrix *x, unsigned row, unsigned k, unsigned bytes) {
    unsigned across = x->width / bytes; /* elements beside each other */
    uint32_t at = x->start, along = k * bytes;
    if (x->width == 16) {
        if (x->transposed)
            return at + k / 8 * x->leading + k % 8 * 16 + row / across * x->stride + row % across * bytes;
        return at + row / 8 * x->stride + row % 8 * 16 + along / 16 * x->leading + along % 16;
    }
    if (x->transposed)
        at += k / 8 * x->stride + k % 8 * x->width + row / across * x->leading + row % across * bytes;
    else
        at += row / 8 * x->stride + row % 8 * x->width + along;
    return at ^ (at >> 7 & (x->width / 16 - 1)) << 4;
}

/* A row of a along m, or of b along n. */
static inline void ptx_read_row(ptx_machine *m, const ptx_insn *insn, unsigned group, const ptx_matrix *x,
                                unsigned number, const ptx_type *type, double *row) {
    ptx_warpgroup *w = &m->warpgroups[group];
    uint32_t warps = UINT32_C(15) << (4 * group);
    unsigned bytes = type->bits / 8;
    for (unsigned k = 0; k < PTX_K_BYTES / bytes; k++) {
        uint32_t at = ptx_matrix_place(x, number, k, bytes);
        ptx_must(at >= PTX_SHARED_BASE && at + bytes <= PTX_SHARED, "ptx: outside of shared memory: %s",
                 insn->text);
        uint64_t code = 0;
        for (unsigned i = 0; i < bytes; i++) {
            ptx_must((m->seen[at + i] & warps) == warps && m->proxy[at + i] == PTX_VISIBLE,
                     "ptx: wgmma reads what was written, and no fence and barrier came after it: %s",
                     insn->text);
            w->read_last[at + i] = w->groups + 1;
        }
        memcpy(&code, m->shared + at, bytes);
        row[k] = ptx_number(type, code);
    }
}

/* ---- the product of one warpgroup ---- */

typedef struct ptx_wgmma_types {
    const ptx_type *a, *b, *sum;
    unsigned k;
} ptx_wgmma_types;

static inline void ptx_wgmma_sum(ptx_machine *m, const ptx_insn *insn, unsigned t, bool adds,
                                 const ptx_wgmma_types *types, double a[PTX_ROWS][PTX_K_BYTES],
                                 double b[PTX_COLUMNS][PTX_K_BYTES]) {
    unsigned warp = t / 32 % 4, lane = t % 32, in_word = 32 / types->sum->bits;
    for (unsigned w = 0; w < insn->sum_count; w++) {
        uint64_t word = 0;
        for (unsigned j = 0; j < in_word; j++) {
            unsigned i = w * in_word + j, shift = j * types->sum->bits;
            unsigned row = 16 * warp + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            uint64_t c = adds ? ptx_mask(ptx_get(m, insn->sums[w], t) >> shift, types->sum->bits) : 0;
            word |= ptx_products(types->sum, c, types->k, a[row], b[column], 1) << shift;
        }
        ptx_set(m, insn->sums[w], t, word);
    }
}

/* Fragments: PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16", and those of k8 and k32. */
static inline void ptx_wgmma_multiply(ptx_machine *m, const ptx_insn *insn, unsigned first, unsigned columns,
                                      const ptx_wgmma_types *types) {
    static double a[PTX_ROWS][PTX_K_BYTES], b[PTX_COLUMNS][PTX_K_BYTES];
    const ptx_operand *o = insn->operand;
    unsigned group = first / PTX_GROUP_THREADS;
    const ptx_shape s = {16, 8, types->k};
    bool adds = ptx_uniform(m, insn, &o[2], first) != 0, halves = types->a->bits == 16;
    if (o[0].kind == PTX_REG) {
        ptx_matrix x =
            ptx_descriptor(insn, ptx_uniform(m, insn, &o[0], first), halves && o[5].value, PTX_ROWS);
        for (unsigned r = 0; r < PTX_ROWS; r++) ptx_read_row(m, insn, group, &x, r, types->a, a[r]);
    }
    for (unsigned t = first; t < first + PTX_GROUP_THREADS && o[0].kind == PTX_GROUP; t++)
        for (unsigned i = 0; i < 128 / types->a->bits; i++) {
            unsigned row, k;
            ptx_place_a(&s, types->a->bits, t % 32, i, &row, &k);
            a[16 * (t / 32 % 4) + row][k] = ptx_element(m, &o[0], t, i, types->a);
        }
    ptx_matrix x = ptx_descriptor(insn, ptx_uniform(m, insn, &o[1], first),
                                  halves && o[insn->operands - 1].value, columns);
    for (unsigned c = 0; c < columns; c++) ptx_read_row(m, insn, group, &x, c, types->b, b[c]);
    for (unsigned t = first; t < first + PTX_GROUP_THREADS; t++) ptx_wgmma_sum(m, insn, t, adds, types, a, b);
}

static inline bool ptx_is_bit(const ptx_operand *o) {
    return o->kind == PTX_IMMEDIATE && o->value <= 1;
}

/* PTX ISA, "Asynchronous Warpgroup Level Matrix Shape": columns, of integers beyond 32 in steps of 16. */
static inline bool ptx_wgmma_takes(const ptx_wgmma_types *t, unsigned columns, unsigned k) {
    bool whole = t->sum->type.kind == TVM_KIND_INT, same = t->a == t->b;
    bool f8 = t->a->bits == 8 && t->b->bits == 8 && !whole && t->a->name[0] == 'e' && t->b->name[0] == 'e',
         i8 = t->a->bits == 8 && t->b->bits == 8 && whole && t->a->name[1] == '8' && t->b->name[1] == '8',
         f16 =
             same && t->a->bits == 16 && (t->sum->bits == 32 || (t->a->name[0] == 'f' && t->sum->bits == 16)),
         tf32 = same && ptx_is(t->a->name, "tf32");
    return (f8 || i8 || f16 || tf32) && (whole || t->sum->name[0] == 'f') && k == t->k && columns % 8 == 0 &&
           columns >= 8 && columns <= PTX_COLUMNS && (!whole || columns <= 32 || columns % 16 == 0);
}

/* d, a, descriptor of b, scale-d; but for integers imm-scale-a, imm-scale-b; of 16 bits imm-trans-a of a
 * descriptor, imm-trans-b. */
static inline void ptx_wgmma_issue(ptx_machine *m, const ptx_insn *insn) {
    const ptx_operand *o = insn->operand;
    unsigned columns = 0, k = 0;
    bool shared = o[0].kind == PTX_REG;
    ptx_must(insn->parts == 8 && sscanf(insn->part[4], "m64n%uk%u", &columns, &k) == 2, "ptx: unknown %s",
             insn->text);
    ptx_wgmma_types types = {ptx_type_named(insn, insn->part[6]), ptx_type_named(insn, insn->part[7]),
                             ptx_type_named(insn, insn->part[5]), 0};
    types.k = 8 * PTX_K_BYTES / types.a->bits;
    bool halves = types.a->bits == 16, whole = types.sum->type.kind == TVM_KIND_INT;
    unsigned operands = whole ? 3 : !halves ? 5 : shared ? 7 : 6;
    bool known = ptx_wgmma_takes(&types, columns, k) && insn->operands == operands &&
                 (shared || o[0].count == 4) && insn->sum_count == columns / 2 * types.sum->bits / 32;
    for (unsigned i = 3; i < operands; i++) known = known && (i < 5 ? o[i].value == 1 : ptx_is_bit(&o[i]));
    ptx_must(known && insn->guard == UINT32_MAX && ptx_whole_groups_run(m), "ptx: unknown %s", insn->text);
    for (unsigned g = 0; g < ptx_warpgroups(m); g++) {
        ptx_warpgroup *w = &m->warpgroups[g];
        if (!ptx_group_runs(m, g)) continue;
        for (unsigned i = 0; i < 4 && !shared; i++) ptx_wgmma_take(w, insn, o[0].reg[i], 0, 0);
        for (unsigned i = 0; i < insn->sum_count; i++)
            ptx_wgmma_take(w, insn, insn->sums[i], insn->sum_count, i);
        w->open = true;
        ptx_wgmma_multiply(m, insn, g * PTX_GROUP_THREADS, columns, &types);
    }
}

static inline void ptx_wgmma(ptx_machine *m, const ptx_insn *insn) {
    bool fence = ptx_is(insn->part[1], "fence"), commit = ptx_is(insn->part[1], "commit_group");
    if (ptx_is(insn->part[1], "mma_async")) ptx_wgmma_issue(m, insn);
    for (unsigned g = 0; g < ptx_warpgroups(m); g++) {
        ptx_warpgroup *w = &m->warpgroups[g];
        if (!ptx_group_runs(m, g)) continue;
        ptx_must((m->running >> (4 * g) & 15) == 15, "ptx: a warpgroup's warps have parted: %s", insn->text);
        if (fence) ptx_wgmma_fence(m, w);
        if (commit) {
            w->groups++;
            w->open = false;
        }
        if (ptx_is(insn->part[1], "wait_group")) ptx_wgmma_wait(w, insn->operand[0].value);
    }
}

#endif
