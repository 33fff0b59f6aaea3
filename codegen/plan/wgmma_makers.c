/* What makes the a of a wgmma: the instructions that assign it, and those whose results are moved to it, by
 * any chain of instructions whose code is moves. ptxas gives what is moved, and where it is moved to, the
 * same registers, even where wgmma still reads them when the value is made ("wgmma-joined" of
 * compile/ptxas_mistakes.def). So all of these wait for the wgmma (wgmma_waits.c), not the last move alone.
 *
 * They are found from the a backwards: what a move moves was assigned by those instructions that a path from
 * them brings to the move, past none that assigns the same variable. */
#include <stdlib.h>

#include "analysis.h"
#include "cast_move.h"
#include "pieces_plan.h"
#include "relayout_plan.h"
#include "uses.h"
#include "wgmma_impl.h"

/* A point of the text is the number of the instruction behind it. */
typedef struct search {
    kernel_state *k;
    uint8_t *makers;  /* by instruction: does it make the a? */
    uint32_t *moves;  /* makers that move, to be followed */
    uint32_t *points; /* that a path comes from, to be followed */
    uint32_t *seen;   /* by point: the last pass that came to it */
    uint32_t move_count, point_count, pass;
    bool failed; /* out of memory */
} search;

/* ---- moves ---- */

static bool is_relayout_move(search *s, const tvm_insn *insn) {
    relayout r;
    bool made = tvm_relayout_plan(&r, s->k->program, s->k->kernel, insn);
    bool moves = made && r.how == RELAYOUT_IN_THREAD;
    tvm_relayout_free(&r);
    s->failed = s->failed || !made;
    return moves;
}

static bool is_pieces_move(search *s, const tvm_insn *insn) {
    assembly a;
    bool made = tvm_pieces_plan(&a, s->k->program, s->k->kernel, insn), moves = made && a.origins;
    free(a.origins);
    s->failed = s->failed || !made;
    return moves;
}

static bool is_cast_move(const search *s, const tvm_insn *insn) {
    uint32_t from = tvm_operands(s->k->kernel, insn)[0].value, to = insn->result;
    bool lowbit = tvm_insn_has(insn, TVM_TRAIT_LOWBIT);
    return tvm_slot_packing(s->k, from) == tvm_slot_packing(s->k, to) &&
           tvm_cast_keeps_bits(tvm_slot_dtype(s->k, from), tvm_slot_dtype(s->k, to), lowbit);
}

/* The constant that every element of the operand is. */
static bool constant_of(const kernel_state *k, const tvm_operand *operand, int64_t *value) {
    *value = 0;
    if (operand->kind == TVM_OPERAND_EXPR) return tvm_fact_constant(k, operand->value, value);
    const tvm_insn *made = operand->kind == TVM_OPERAND_SLOT ? tvm_slot_definition(k, operand->value) : NULL;
    if (!made || made->op != TVM_OP_ALLOC_REGISTER) return false;
    const tvm_operand *init = made->count ? tvm_operands(k->kernel, made) : NULL;
    return !init || init->kind == TVM_OPERAND_NONE || constant_of(k, init, value);
}

/* Of integers that are words, is one operand a constant that leaves the other as it is? ptxas makes a move of
 * such an operation; of floats it makes none, and parts of words are taken apart. */
static bool is_neutral(const search *s, const tvm_insn *insn) {
    static const struct {
        tvm_opcode op;
        int64_t constant;
    } neutral[] = {{TVM_OP_ADD, 0}, {TVM_OP_SUB, 0}, {TVM_OP_SHL, 0}, {TVM_OP_SHR, 0},
                   {TVM_OP_OR, 0},  {TVM_OP_XOR, 0}, {TVM_OP_MUL, 1}, {TVM_OP_AND, -1}};
    tvm_dtype type = tvm_slot_dtype(s->k, insn->result);
    uint64_t mask = UINT64_MAX >> (64 - type.bits);
    size_t row = 0, rows = sizeof neutral / sizeof *neutral;
    while (row < rows && neutral[row].op != insn->op) row++;
    if (row == rows || !tvm_dtype_is_integer(type) || type.bits < 32) return false;
    for (unsigned i = tvm_insn_has(insn, TVM_TRAIT_COMMUTES) ? 0 : 1; i < 2; i++) {
        int64_t value;
        bool constant = constant_of(s->k, &tvm_operands(s->k->kernel, insn)[i], &value);
        if (constant && (((uint64_t)value ^ (uint64_t)neutral[row].constant) & mask) == 0) return true;
    }
    return false;
}

/* May the code of the instruction move words of its operands to its result as they are? A reduction does
 * where there is one element, a scan does with the first one. */
static bool may_move(search *s, const tvm_insn *insn) {
    switch (insn->op) {
    case TVM_OP_VIEW:
    case TVM_OP_TRANSPOSE:
    case TVM_OP_RESHAPE:
    case TVM_OP_SQUEEZE:
    case TVM_OP_UNSQUEEZE:
    case TVM_OP_REDUCE:
    case TVM_OP_SCAN:
        return true;
    case TVM_OP_RELAYOUT:
        return is_relayout_move(s, insn);
    case TVM_OP_SLICE:
    case TVM_OP_INSERT:
    case TVM_OP_CONCAT:
    case TVM_OP_REPEAT:
    case TVM_OP_REPEAT_INTERLEAVE:
    case TVM_OP_SHIFT:
        return is_pieces_move(s, insn);
    case TVM_OP_CAST:
    case TVM_OP_CAST_LOWBIT:
        return is_cast_move(s, insn);
    default:
        return is_neutral(s, insn);
    }
}

static void add_maker(search *s, uint32_t at) {
    if (s->makers[at]) return;
    s->makers[at] = true;
    if (may_move(s, &s->k->kernel->insns[at])) s->moves[s->move_count++] = at;
}

/* ---- paths ---- */

static void come_from(search *s, uint32_t point) {
    if (s->seen[point] == s->pass) return;
    s->seen[point] = s->pass;
    s->points[s->point_count++] = point;
}

/* From the jumps of a loop: to its end, or to its head. */
static void come_from_jumps(search *s, uint32_t loop, tvm_opcode op) {
    const tvm_insn *insns = s->k->kernel->insns;
    for (uint32_t i = loop; i < insns[loop].match; i++)
        if (insns[i].op == op && insns[i].match == loop) come_from(s, i);
}

static void come_from_head(search *s, uint32_t loop) {
    come_from(s, loop);
    come_from(s, s->k->kernel->insns[loop].match);
    come_from_jumps(s, loop, TVM_OP_CONTINUE);
}

/* To behind an END: from the end of what it closes, and from what brings past that. */
static void come_from_end(search *s, uint32_t end) {
    const tvm_insn *insns = s->k->kernel->insns;
    uint32_t opener = insns[end].match;
    if (tvm_insn_class(&insns[opener]) == TVM_CLASS_LOOP) {
        come_from_head(s, opener);
        come_from_jumps(s, opener, TVM_OP_BREAK);
        return;
    }
    bool has_else = insns[opener].op == TVM_OP_IF && insns[opener].match != end;
    come_from(s, end);
    come_from(s, has_else ? insns[opener].match : opener);
}

/* Of an ELSE, the IF. */
static uint32_t branch_of(const search *s, uint32_t otherwise) {
    const tvm_insn *insns = s->k->kernel->insns;
    return insns[insns[otherwise].match].match;
}

/* To behind an instruction that does not assign what is looked for. */
static void come_from_insn(search *s, uint32_t at) {
    switch (tvm_insn_class(&s->k->kernel->insns[at])) {
    case TVM_CLASS_LOOP:
        come_from_head(s, at);
        break;
    case TVM_CLASS_ELSE:
        come_from(s, branch_of(s, at));
        break;
    case TVM_CLASS_END:
        come_from_end(s, at);
        break;
    case TVM_CLASS_JUMP:
    case TVM_CLASS_EXIT:
        break;
    default:
        come_from(s, at);
    }
}

/* What assigned the variable that an instruction reads. */
static void find_assignments(search *s, uint32_t reader, uint32_t slot) {
    s->pass++;
    s->point_count = 0;
    come_from(s, reader);
    while (s->point_count > 0) {
        uint32_t point = s->points[--s->point_count];
        if (point == 0) continue;
        if (s->k->kernel->insns[point - 1].result == slot)
            add_maker(s, point - 1);
        else
            come_from_insn(s, point - 1);
    }
}

/* ---- a variable ---- */

static void find_makers(search *s, uint32_t slot) {
    const tvm_ir_kernel *kernel = s->k->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (kernel->insns[i].result == slot) add_maker(s, i);
    while (s->move_count > 0 && !s->failed) {
        uint32_t at = s->moves[--s->move_count];
        const tvm_operand *operands = tvm_operands(kernel, &kernel->insns[at]);
        for (uint32_t o = 0; o < kernel->insns[at].count; o++)
            if (operands[o].kind == TVM_OPERAND_SLOT) find_assignments(s, at, operands[o].value);
    }
}

static void find_all(search *s) {
    struct wgmma_plan *w = s->k->wgmma;
    size_t insns = s->k->kernel->insn_count + (size_t)1;
    for (uint32_t i = 0; i < w->count && !s->failed; i++) {
        const mma_operands *o = operands_of(s->k, &w->products[i]);
        if (w->role[w->products[i].mma] != WGMMA_FIRST || o->mma.a.is_shared || w->makers[o->a]) continue;
        s->makers = w->makers[o->a] = calloc(insns, 1);
        if (!s->makers)
            s->failed = true;
        else
            find_makers(s, o->a);
    }
}

tvm_status tvm_wgmma_find_makers(kernel_state *k) {
    size_t insns = k->kernel->insn_count + (size_t)1;
    search s = {.k = k};
    s.moves = calloc(insns, sizeof *s.moves);
    s.points = calloc(insns, sizeof *s.points);
    s.seen = calloc(insns, sizeof *s.seen);
    k->wgmma->makers = calloc(k->kernel->slot_count + (size_t)1, sizeof *k->wgmma->makers);
    s.failed = !s.moves || !s.points || !s.seen || !k->wgmma->makers;
    if (!s.failed) find_all(&s);
    free(s.moves);
    free(s.points);
    free(s.seen);
    return s.failed ? tvm_diag_no_memory(k->diags) : TVM_OK;
}

bool tvm_wgmma_makes_a(const kernel_state *k, const tvm_insn *insn, const product *p) {
    const mma_operands *o = operands_of(k, p);
    return !o->mma.a.is_shared && k->wgmma->makers[o->a][insn_number(k, insn)];
}

void tvm_wgmma_free_makers(kernel_state *k) {
    for (uint32_t i = 0; k->wgmma->makers && i < k->kernel->slot_count; i++) free(k->wgmma->makers[i]);
    free(k->wgmma->makers);
}
