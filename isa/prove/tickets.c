/* Places that a counter hands out: what atomic-fetch gives is different for all that add to a counter of one
 * element, if all of them add a number above 0, and all they add is less than 2^32. A scatter to such places,
 * of elements that have taken a number, writes elements of its own. Only atomic operations outside of loops
 * and conditions are looked at, with the scatter behind them in the same straight line. */
#include "prove_impl.h"

enum { MOST_DEPTH = 4 };

static bool is_slot(const tvm_operand *operand, uint32_t slot) {
    return operand->kind == TVM_OPERAND_SLOT && operand->value == slot;
}

/* Are all elements of the tensor one number? */
static bool is_number(const prover *p, const tvm_operand *operand, unsigned depth, int64_t *v) {
    int64_t a, b;
    if (operand->kind == TVM_OPERAND_EXPR) {
        const tvm_expr *node = &p->kernel->exprs[operand->value];
        *v = node->value.i;
        return node->op == TVM_EXPR_INTEGER && *v >= 0 && *v <= INT32_MAX;
    }
    *v = 0;
    if (operand->kind == TVM_OPERAND_NONE) return true; /* of alloc-register: zero bits */
    if (operand->kind != TVM_OPERAND_SLOT || operand->value < p->kernel->param_count || depth == MOST_DEPTH)
        return false;
    const tvm_insn *insn = tvm_prove_definition(p, operand->value);
    if (!insn || (insn->op != TVM_OP_ALLOC_REGISTER && insn->op != TVM_OP_ADD)) return false;
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    if (insn->op == TVM_OP_ALLOC_REGISTER) return is_number(p, &operands[insn->count - 1], depth + 1, v);
    if (!is_number(p, &operands[0], depth + 1, &a) || !is_number(p, &operands[1], depth + 1, &b))
        return false;
    *v = a + b;
    return *v <= INT32_MAX;
}

static bool is_same_shape(const prover *p, uint32_t a, uint32_t b) {
    const tvm_slot *x = &p->kernel->slots[a], *y = &p->kernel->slots[b];
    unsigned rank = tvm_slot_rank(p->program, x);
    bool same = rank == tvm_slot_rank(p->program, y);
    for (unsigned d = 0; d < rank && same; d++)
        same = tvm_slot_shape(p->program, x)[d] == tvm_slot_shape(p->program, y)[d];
    return same;
}

/* How much the atomic-fetch adds to its counter, of 32 bits, at most; 0: it is no such one. */
static int64_t adds(const prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    if (insn->op != TVM_OP_ATOMIC_FETCH || operands[0].value != TVM_ATOMIC_ADD) return 0;
    const tvm_slot *counter = &p->kernel->slots[operands[1].value];
    const unsigned rank = tvm_slot_rank(p->program, counter);
    int64_t each, index, elements = 1;
    for (unsigned d = 0; d < rank; d++) {
        elements *= tvm_slot_shape(p->program, counter)[d];
        if (!is_number(p, &operands[2 + d], 0, &index) || index != 0) return 0; /* outside all are told 0 */
    }
    const tvm_layout *layout = &p->program->layouts[p->kernel->slots[insn->result].layout];
    if (elements != 1 || counter->dtype.bits != 32 || tvm_layout_replication(layout) != 1 ||
        !is_number(p, &operands[2 + rank], 0, &each))
        return 0;
    for (unsigned d = 0; d < tvm_slot_rank(p->program, &p->kernel->slots[insn->result]); d++)
        elements *= tvm_slot_shape(p->program, &p->kernel->slots[insn->result])[d];
    return elements * each <= INT32_MAX ? elements * each : 0;
}

static const tvm_operand *mask_of(const prover *p, const tvm_insn *atomic) {
    const tvm_operand *operands = tvm_operands(p->kernel, atomic);
    return &operands[4 + tvm_slot_rank(p->program, &p->kernel->slots[operands[1].value])];
}

/* Is what the mask says at `at` said by that of the atomic-fetch before it, too? */
static bool is_within(const prover *p, uint32_t atomic, uint32_t at, const tvm_operand *mask) {
    const tvm_operand *of = mask_of(p, &p->kernel->insns[atomic]);
    if (of->kind == TVM_OPERAND_NONE) return true;
    if (mask->kind != TVM_OPERAND_SLOT) return false;
    uint32_t slot = mask->value;
    for (uint32_t i = at; i-- > atomic + 1;) {
        const tvm_insn *insn = &p->kernel->insns[i];
        if (insn->result != slot) continue;
        if (insn->op != TVM_OP_AND) return false;
        const tvm_operand *operands = tvm_operands(p->kernel, insn);
        const tvm_operand *next = is_slot(&operands[1], of->value) ? &operands[1] : &operands[0];
        if (next->kind != TVM_OPERAND_SLOT || !is_same_shape(p, next->value, slot)) return false;
        slot = next->value;
    }
    return slot == of->value;
}

/* The atomic-fetch that has said where the scatter writes; TVM_NONE. */
static uint32_t ticket_of(const prover *p, uint32_t at) {
    const tvm_insn *scatter = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, scatter);
    if (scatter->op != TVM_OP_SCATTER ||
        tvm_slot_rank(p->program, &p->kernel->slots[operands[0].value]) != 1 ||
        operands[1].kind != TVM_OPERAND_SLOT || operands[2].kind != TVM_OPERAND_SLOT ||
        !is_same_shape(p, operands[1].value, operands[2].value))
        return TVM_NONE;
    for (uint32_t i = at; i-- > 0;) {
        const tvm_insn *insn = &p->kernel->insns[i];
        if (tvm_insn_class(insn) < TVM_CLASS_ALLOCATE) return TVM_NONE;
        if (insn->result != operands[1].value) continue;
        return adds(p, i) && is_within(p, i, at, &operands[3]) ? i : TVM_NONE;
    }
    return TVM_NONE;
}

/* Does nobody else write the counter from the first number on, and is it not beyond its type? */
static bool is_counter(const prover *p, uint32_t root) {
    uint32_t depth = 0, site = 0;
    int64_t sum = 0;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        tvm_op_class class = tvm_insn_class(&p->kernel->insns[i]);
        if (class == TVM_CLASS_END) depth--;
        for (; site < p->first_site[i + 1]; site++) {
            const prove_site *s = &p->sites[site];
            if (s->root != root || !s->writes) continue;
            int64_t more = adds(p, i);
            if (more && depth) return false;
            if (!more && (sum || s->is_atomic || depth)) return false;
            sum += more;
        }
        if (tvm_class_opens(class)) depth++;
    }
    return sum <= INT32_MAX;
}

void tvm_prove_find_tickets(prover *p) {
    for (uint32_t s = 0; s < p->site_count; s++) {
        prove_site *site = &p->sites[s];
        uint32_t atomic = ticket_of(p, site->insn);
        if (atomic == TVM_NONE || p->first_site[atomic] == p->first_site[atomic + 1]) continue;
        const prove_site *counter = &p->sites[p->first_site[atomic]];
        if (!counter->block && counter->root != site->root && is_counter(p, counter->root))
            site->ticket = counter->root + 1;
    }
}
