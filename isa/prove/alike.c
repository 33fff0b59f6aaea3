/* What of a role bears on its waits, and which roles decide alike.
 *
 * Of the instructions of a role those matter that name an mbarrier, the loops and conditions around them, and
 * what assigns the scalars that these read, with the loops and conditions around that, and so on. The others
 * change nothing of which waits and arrivals come, and in which order: turns.c passes over them.
 *
 * A decision is one's own if it is not known in advance and depends on what roles assign. If all that such
 * decisions of a role depend on is assigned by `let` and `for`, then they follow from what the block's
 * scalars were where the role began. Two roles decide alike if the one's instructions that bear on own
 * decisions are the other's, one by one in the order of the text, but for the names of scalars: then the n-th
 * decision at an instruction is that of its counterpart, however fast either team is. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

typedef struct finder {
    prover *p;
    prove_bearing *out;
    uint32_t first, end; /* teams */
} finder;

static bool is_control(tvm_op_class class) {
    return class == TVM_CLASS_LOOP || class == TVM_CLASS_BRANCH;
}

uint32_t tvm_prove_end_of(const tvm_ir_kernel *kernel, uint32_t at) {
    uint32_t end = kernel->insns[at].match;
    return tvm_insn_class(&kernel->insns[end]) == TVM_CLASS_ELSE ? kernel->insns[end].match : end;
}

/* Marks the scalars that the expression reads; true: there is a new one. */
static bool mark(prover *p, uint32_t expr, uint8_t *slots) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    bool any = false;
    if (node->op == TVM_EXPR_SLOT) {
        any = !slots[node->a];
        slots[node->a] = 1;
    }
    for (unsigned i = 0; i < tvm_expr_arity(node); i++) any = mark(p, node->operands[i], slots) || any;
    return any;
}

bool tvm_prove_mark_operands(prover *p, uint32_t at, uint8_t *slots) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[at]);
    bool any = false;
    for (uint32_t o = 0; o < p->kernel->insns[at].count; o++)
        if (operands[o].kind == TVM_OPERAND_EXPR) any = mark(p, operands[o].value, slots) || any;
    return any;
}

void tvm_prove_mark_indices(prover *p, uint32_t at, uint8_t *slots) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++) {
        if (operands[o].kind != TVM_OPERAND_SLOT) continue;
        const tvm_slot *slot = &p->kernel->slots[operands[o].value];
        unsigned rank = tvm_slot_has_places(slot->kind) ? tvm_slot_rank(p->program, slot) : 0;
        for (unsigned d = 0; d < rank && o + 1 + d < insn->count; d++)
            if (operands[o + 1 + d].kind == TVM_OPERAND_EXPR) mark(p, operands[o + 1 + d].value, slots);
    }
}

void tvm_prove_close_over(prover *p, uint32_t from, uint32_t end, uint8_t *insns, uint8_t *slots) {
    const tvm_ir_kernel *kernel = p->kernel;
    for (bool any = true; any;) {
        any = false;
        for (uint32_t i = from; i < end; i++) {
            const tvm_insn *insn = &kernel->insns[i];
            tvm_op_class class = tvm_insn_class(insn);
            bool bears = insns[i] || (insn->result != TVM_NONE && slots[insn->result]) ||
                         (class == TVM_CLASS_JUMP && insns[insn->match]);
            uint32_t last = is_control(class) ? tvm_prove_end_of(kernel, i) : i;
            for (uint32_t j = i + 1; j < last && !bears; j++) bears = insns[j];
            if (!bears) continue;
            any = any || !insns[i];
            insns[i] = 1;
            bool reads = is_control(class) || (insn->op == TVM_OP_LET && slots[insn->result]);
            if (reads) any = tvm_prove_mark_operands(p, i, slots) || any;
        }
    }
}

static bool is_barrier(const prover *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    return tvm_insn_class(insn) == TVM_CLASS_ORDER && insn->count && operands->kind == TVM_OPERAND_SLOT &&
           p->kernel->slots[operands->value].kind == TVM_SLOT_BARRIER;
}

static void find_needed(finder *f, uint32_t from, uint32_t end) {
    for (uint32_t i = from; i < end; i++) {
        if (!is_barrier(f->p, &f->p->kernel->insns[i])) continue;
        f->out->insns[i] = 1;
        tvm_prove_mark_indices(f->p, i, f->out->slots);
    }
    tvm_prove_close_over(f->p, from, end, f->out->insns, f->out->slots);
}

/* ---- alike ---- */

/* By a role of the group, or by the block between two of them, so that they begin with different values. */
static bool is_assigned(const finder *f, uint32_t slot) {
    for (uint32_t i = f->p->contexts[f->first].role; i < f->p->contexts[f->end - 1].end; i++)
        if (f->p->kernel->insns[i].result == slot) return true;
    return false;
}

static bool is_assigned_between(const finder *f, uint32_t slot) {
    for (uint32_t c = f->first + 1; c < f->end; c++)
        for (uint32_t i = f->p->contexts[c - 1].end; i < f->p->contexts[c].role; i++)
            if (f->p->kernel->insns[i].result == slot) return true;
    return false;
}

static bool is_constant(const finder *f, uint32_t expr) {
    const tvm_expr *node = &f->p->kernel->exprs[expr];
    tvm_prove_charge(f->p, 1);
    if (node->op == TVM_EXPR_SLOT) return !is_assigned(f, node->a);
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (!is_constant(f, node->operands[i])) return false;
    return true;
}

bool tvm_prove_is_constant(prover *p, uint32_t first, uint32_t end, uint32_t expr) {
    const finder f = {.p = p, .first = first, .end = end};
    return is_constant(&f, expr);
}

static bool is_number(const prover *p, uint32_t expr) {
    return p->kernel->exprs[expr].op == TVM_EXPR_INTEGER;
}

/* A decision of the role's own. */
static bool is_own(const finder *f, uint32_t at) {
    const tvm_insn *insn = &f->p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(f->p->kernel, insn);
    unsigned count = insn->op == TVM_OP_FOR ? 3 : 1;
    bool constant = true, numbers = insn->op == TVM_OP_FOR;
    if (!is_control(tvm_insn_class(insn)) || !f->out->insns[at]) return false;
    for (unsigned o = 0; o < count; o++) {
        constant = constant && is_constant(f, operands[o].value);
        numbers = numbers && is_number(f->p, operands[o].value);
    }
    return !constant && !numbers;
}

/* What bears on own decisions, with the ends of its loops and conditions. False: not all of it is let or for.
 */
static bool find_deciding(finder *f, uint32_t role, uint8_t *insns) {
    const tvm_ir_kernel *kernel = f->p->kernel;
    uint32_t end = kernel->insns[role].match;
    uint8_t *slots = calloc(kernel->slot_count + (size_t)1, 1);
    bool good = slots != NULL;
    if (!good) f->p->no_memory = true;
    for (uint32_t i = role + 1; i < end; i++) insns[i] = is_own(f, i);
    if (good) tvm_prove_close_over(f->p, role + 1, end, insns, slots);
    for (uint32_t i = role; i < end && good; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        bool sets = insn->result != TVM_NONE && slots[insn->result];
        if (sets) good = insn->op == TVM_OP_LET || insn->op == TVM_OP_FOR;
        if (!insns[i] || !is_control(tvm_insn_class(insn))) continue;
        insns[insn->match] = insns[tvm_prove_end_of(kernel, i)] = 1;
    }
    free(slots);
    return good;
}

/* Is the scalar assigned in the role alone? */
static bool is_of_role(const prover *p, uint32_t slot, uint32_t role) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++)
        if (p->kernel->insns[i].result == slot && (i <= role || i > p->kernel->insns[role].match))
            return false;
    return slot >= p->kernel->param_count;
}

/* The counterpart's names: `to` by scalar of the one role, `back` by that of the other, + 1. */
typedef struct names {
    uint32_t *to, *back, one, other; /* roles */
} names;

static bool is_same_name(const finder *f, names *n, uint32_t a, uint32_t b) {
    if (!is_assigned(f, a) || !is_assigned(f, b)) return a == b;
    if (is_assigned_between(f, a) || is_assigned_between(f, b)) return false;
    if (!n->to[a] && !n->back[b] &&
        (a == b || (is_of_role(f->p, a, n->one) && is_of_role(f->p, b, n->other)))) {
        n->to[a] = b + 1;
        n->back[b] = a + 1;
    }
    return n->to[a] == b + 1 && n->back[b] == a + 1;
}

static bool is_same_expr(const finder *f, names *n, uint32_t a, uint32_t b) {
    const tvm_expr *x = &f->p->kernel->exprs[a], *y = &f->p->kernel->exprs[b];
    tvm_prove_charge(f->p, 1);
    if (x->op != y->op || !tvm_dtype_same(x->type, y->type)) return false;
    if (x->op == TVM_EXPR_SLOT) return is_same_name(f, n, x->a, y->a);
    if (tvm_expr_arity(x) == 0) return a == b;
    for (unsigned i = 0; i < tvm_expr_arity(x); i++)
        if (!is_same_expr(f, n, x->operands[i], y->operands[i])) return false;
    return true;
}

static bool is_same_insn(const finder *f, names *n, uint32_t a, uint32_t b) {
    const tvm_insn *x = &f->p->kernel->insns[a], *y = &f->p->kernel->insns[b];
    const tvm_operand *of = tvm_operands(f->p->kernel, x), *with = tvm_operands(f->p->kernel, y);
    if (x->op != y->op || x->count != y->count) return false;
    for (uint32_t o = 0; o < x->count; o++)
        if (of[o].kind != with[o].kind ||
            (of[o].kind == TVM_OPERAND_EXPR ? !is_same_expr(f, n, of[o].value, with[o].value)
                                            : of[o].value != with[o].value))
            return false;
    return x->result == TVM_NONE ? y->result == TVM_NONE
                                 : y->result != TVM_NONE && is_same_name(f, n, x->result, y->result);
}

/* The next of the instructions that bear on decisions. */
static uint32_t next(const uint8_t *insns, uint32_t at, uint32_t end) {
    while (at < end && !insns[at]) at++;
    return at;
}

static bool is_same_role(const finder *f, names *n, const uint8_t *insns) {
    uint32_t a = n->one + 1, b = n->other + 1;
    const uint32_t a_end = f->p->kernel->insns[n->one].match, b_end = f->p->kernel->insns[n->other].match;
    for (;; a++, b++) {
        a = next(insns, a, a_end);
        b = next(insns, b, b_end);
        if (a == a_end || b == b_end) return a == a_end && b == b_end;
        if (!is_same_insn(f, n, a, b)) return false;
    }
}

static bool are_alike(const finder *f, uint32_t one, uint32_t other, const uint8_t *insns) {
    const size_t count = f->p->kernel->slot_count + (size_t)1;
    names n = {calloc(count, sizeof *n.to), calloc(count, sizeof *n.back), one, other};
    bool made = n.to && n.back;
    if (!made) f->p->no_memory = true;
    bool same = made && is_same_role(f, &n, insns);
    free(n.to);
    free(n.back);
    return same;
}

static void set_counterparts(finder *f, uint32_t one, uint32_t other, const uint8_t *insns) {
    const uint32_t a_end = f->p->kernel->insns[one].match, b_end = f->p->kernel->insns[other].match;
    uint32_t a = next(insns, one + 1, a_end), b = next(insns, other + 1, b_end);
    for (; a < a_end && b < b_end; a = next(insns, a + 1, a_end), b = next(insns, b + 1, b_end))
        if (is_own(f, b)) f->out->counterpart[b] = a;
}

/* Of each role whose decisions follow from the block's scalars the first one that decides alike. */
static void find_alike(finder *f, uint8_t *insns) {
    uint64_t good = 0;
    for (uint32_t c = f->first; c < f->end; c++) {
        uint32_t role = f->p->contexts[c].role;
        if (c > f->first && f->p->contexts[c - 1].role == role) continue;
        if (!find_deciding(f, role, insns)) continue;
        good |= UINT64_C(1) << c;
        for (uint32_t other = f->first; other <= c; other++) {
            uint32_t with = f->p->contexts[other].role;
            if (!(good >> other & 1) || !are_alike(f, with, role, insns)) continue;
            set_counterparts(f, with, role, insns);
            break;
        }
    }
}

bool tvm_prove_find_bearing(prover *p, uint32_t first, uint32_t end, prove_bearing *out) {
    finder f = {.p = p, .out = out, .first = first, .end = end};
    const size_t count = p->kernel->insn_count + (size_t)1;
    uint8_t *insns = calloc(count, 1);
    *out = (prove_bearing){calloc(count, 1), calloc(p->kernel->slot_count + (size_t)1, 1),
                           malloc(count * sizeof *out->counterpart)};
    bool made = insns && out->insns && out->slots && out->counterpart;
    for (uint32_t i = 0; made && i < count; i++) out->counterpart[i] = TVM_NONE;
    for (uint32_t c = first; made && c < end; c++) find_needed(&f, p->contexts[c].from, p->contexts[c].end);
    if (made) find_alike(&f, insns);
    if (!made) p->no_memory = true;
    free(insns);
    return made && !p->no_memory;
}

void tvm_prove_free_bearing(prove_bearing *bearing) {
    free(bearing->insns);
    free(bearing->slots);
    free(bearing->counterpart);
}
