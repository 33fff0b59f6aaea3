/* Inside ptx_machine.h: tensor memory: cells, their life, and what moves between them and registers (PTX ISA,
 * "TensorCore 5th Generation Family Instructions"); see ptx_tensor.h. */
#ifndef TVM_TESTS_PTX_TENSOR_MEMORY_H
#define TVM_TESTS_PTX_TENSOR_MEMORY_H

#include "ptx_mbarrier.h"
#include "ptx_mma.h"

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

/* A cell that an operation of a warp of x reads, or writes, too; of the pair's other block, if that is the
 * owner. */
static inline uint32_t *ptx_tensor_cell_of(const ptx_tensor *x, ptx_tensor *owner, const ptx_insn *insn,
                                           ptx_stamp by, ptx_spot at, bool writes) {
    unsigned warp = by.channel / PTX_TENSOR_WAYS;
    bool far = owner != x;
    ptx_must(ptx_tensor_has(owner, at, 1, 1), "ptx: lane %u, column %u is not allocated: %s", at.lane,
             at.column, insn->text);
    ptx_stamp *last_write = &owner->wrote[at.lane][at.column], *last_read = &owner->read[at.lane][at.column];
    ptx_stamp wrote = far ? ptx_stamp_far(*last_write) : *last_write,
              read = far ? ptx_stamp_far(*last_read) : *last_read;
    bool same = wrote.serial == by.serial && wrote.channel == by.channel;
    ptx_must(same || ptx_tensor_before(x, warp, by, wrote),
             "ptx: lane %u, column %u may still be written by another: %s", at.lane, at.column, insn->text);
    ptx_must(!writes || ptx_tensor_before(x, warp, by, read),
             "ptx: lane %u, column %u may still be read by another: %s", at.lane, at.column, insn->text);
    *(writes ? last_write : last_read) = far ? ptx_stamp_far(by) : by;
    return &owner->cell[at.lane][at.column];
}

static inline uint32_t *ptx_tensor_cell(ptx_tensor *x, const ptx_insn *insn, ptx_stamp by, ptx_spot at,
                                        bool writes) {
    return ptx_tensor_cell_of(x, x, insn, by, at, writes);
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

/* The other block of the pair. */
static inline ptx_machine *ptx_tensor_peer(const ptx_machine *m, const ptx_insn *insn) {
    ptx_must((m->rank ^ 1) < m->peer_count && !m->peers[m->rank ^ 1]->ended,
             "ptx: the pair has one block: %s", insn->text);
    ptx_machine *peer = m->peers[m->rank ^ 1];
    ptx_must(!peer->tensor || !peer->tensor->group || peer->tensor->group == 2,
             "ptx: no pair for the other block: %s", insn->text);
    ptx_tensor_of(peer);
    return peer;
}

/* .cta_group of the instruction. */
static inline unsigned ptx_tensor_group(ptx_machine *m, const ptx_insn *insn) {
    ptx_tensor *x = ptx_tensor_of(m);
    unsigned group = ptx_is(insn->part[2], "cta_group::1")   ? 1
                     : ptx_is(insn->part[2], "cta_group::2") ? 2
                                                             : 0;
    ptx_must(group && (!x->group || x->group == group), "ptx: another .cta_group than before: %s",
             insn->text);
    /* dealloc is of both blocks together, of which one comes first here and may end. */
    if (group == 2 && !ptx_is(insn->part[1], "dealloc")) ptx_tensor_peer(m, insn);
    return x->group = group;
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

#endif
