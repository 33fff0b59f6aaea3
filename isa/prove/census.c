/* A semaphore that counts blocks: lock-semaphore waits until all blocks of one side have added 1 to it. Sides
 * are told by one index of the block, `if block.y == 0` at the top of the kernel, where no index above it has
 * an extent. Then all waits at the semaphore end, if
 *
 *   - it is a clean tensor of one element, which only what follows names;
 *   - each block of the first side adds 1 once, in the condition's first body, and waits for no other block
 * in it or before it: so it comes there, and these blocks have lower indices, and are begun before;
 *   - those of the other side wait for as many as there are blocks on the first side: the extents of the
 * lower indices multiplied;
 *   - it is released only where all have waited: by the block that finds that all others of its side have
 * counted themselves in another such tensor, with an atomic-fetch that stands behind the wait, of as many
 * blocks.
 *
 * Nothing else changes what it holds, so that a wait that has begun to hold goes on to. */
#include "prove_impl.h"

typedef struct census {
    const prover *p;
    const tvm_ir_kernel *kernel;
    uint32_t branch; /* the condition that tells sides */
    unsigned axis;
} census;

static const tvm_expr *expr_of(const census *c, const tvm_operand *operand) {
    return operand->kind == TVM_OPERAND_EXPR ? &c->kernel->exprs[operand->value] : NULL;
}

static bool is_integer(const tvm_expr *node, int64_t v) {
    return node && node->op == TVM_EXPR_INTEGER && node->value.i == v;
}

/* ---- sides ---- */

/* The extent of the grid along the axis; 0: it is no number. */
static int64_t extent_of(const census *c, unsigned axis) {
    const uint32_t grid = c->kernel->grid[axis];
    if (grid == TVM_NONE) return 1;
    const tvm_expr *node = &c->kernel->exprs[grid];
    return node->op == TVM_EXPR_INTEGER ? node->value.i : 0;
}

/* Does the condition tell the blocks of index 0 along the highest axis? */
static bool is_side(census *c, uint32_t at) {
    const tvm_expr *node = expr_of(c, tvm_operands(c->kernel, &c->kernel->insns[at]));
    if (!node || node->op != TVM_EXPR_EQ) return false;
    const tvm_expr *index = &c->kernel->exprs[node->a];
    if (index->op != TVM_EXPR_BLOCK || !is_integer(&c->kernel->exprs[node->b], 0)) return false;
    c->axis = index->a;
    for (unsigned axis = c->axis + 1; axis < 3; axis++)
        if (extent_of(c, axis) != 1) return false;
    return true;
}

/* The innermost loop, condition or role around the instruction; TVM_NONE. */
static uint32_t opener_of(const census *c, uint32_t at) {
    for (uint32_t i = at; i-- > 0;) {
        const tvm_insn *insn = &c->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (tvm_class_opens(class) && class != TVM_CLASS_ELSE && tvm_prove_end_of(c->kernel, i) > at)
            return i;
    }
    return TVM_NONE;
}

static bool is_in_first(const census *c, uint32_t at) {
    return at > c->branch && at < c->kernel->insns[c->branch].match;
}

static bool is_in_other(const census *c, uint32_t at) {
    const uint32_t middle = c->kernel->insns[c->branch].match, end = tvm_prove_end_of(c->kernel, c->branch);
    return middle != end && at > middle && at < end;
}

/* Is the number that of the blocks that have one index along the axis? */
static bool is_all(const census *c, const tvm_expr *node) {
    if (!node) return false;
    if (c->axis == 0) return is_integer(node, 1);
    return c->axis == 1 && node->op == TVM_EXPR_GRID && node->a == 0;
}

/* ---- counters ---- */

/* A clean tensor of one element of 32 bits. */
static bool is_counter(const census *c, uint32_t slot) {
    const tvm_slot *s = &c->kernel->slots[slot];
    const tvm_insn *made = tvm_prove_definition(c->p, slot);
    if (!made || made->op != TVM_OP_ALLOC_GLOBAL || s->dtype.bits != 32 ||
        tvm_operands(c->kernel, made)->kind != TVM_OPERAND_CONST /* clean */)
        return false;
    bool one = true;
    for (unsigned d = 0; d < s->rank; d++) one = one && is_integer(&c->kernel->exprs[s->shape[d]], 1);
    return one;
}

static bool names(const census *c, uint32_t at, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(c->kernel, &c->kernel->insns[at]);
    bool any = false;
    for (uint32_t o = 0; o < c->kernel->insns[at].count; o++)
        any = any || (operands[o].kind == TVM_OPERAND_SLOT && operands[o].value == slot);
    return any;
}

/* Are all indices 0? */
static bool is_first(const census *c, const tvm_operand *indices, unsigned rank) {
    bool zero = true;
    for (unsigned d = 0; d < rank; d++) zero = zero && is_integer(expr_of(c, &indices[d]), 0);
    return zero;
}

/* A tensor of one element, which is 1. */
static bool is_one(const census *c, const tvm_operand *source) {
    if (source->kind == TVM_OPERAND_EXPR) return false;
    const tvm_slot *s = &c->kernel->slots[source->value];
    const tvm_insn *made = s->kind == TVM_SLOT_REGISTER ? tvm_prove_definition(c->p, source->value) : NULL;
    if (!made || made->op != TVM_OP_ALLOC_REGISTER) return false;
    const tvm_operand *init = &tvm_operands(c->kernel, made)[made->count - 1];
    bool one = is_integer(expr_of(c, init), 1);
    for (unsigned d = 0; d < tvm_slot_rank(c->p->program, s); d++)
        one = one && tvm_slot_shape(c->p->program, s)[d] == 1;
    return one;
}

/* Does each block that runs it add 1 to the counter? */
static bool adds_one(const census *c, uint32_t at, uint32_t slot) {
    const tvm_insn *insn = &c->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    const unsigned rank = c->kernel->slots[slot].rank;
    if (insn->op != TVM_OP_ATOMIC && insn->op != TVM_OP_ATOMIC_FETCH) return false;
    if (operands[0].value != TVM_ATOMIC_ADD || operands[1].kind != TVM_OPERAND_SLOT ||
        operands[1].value != slot)
        return false;
    const tvm_operand *mask = &operands[4 + rank], *scope = &operands[6 + rank];
    bool is_wide = scope->kind == TVM_OPERAND_NONE ||
                   (scope->kind == TVM_OPERAND_CONST && scope->value >= TVM_SCOPE_GPU);
    return is_first(c, operands + 2, rank) && is_one(c, &operands[2 + rank]) &&
           mask->kind == TVM_OPERAND_NONE && is_wide;
}

/* ---- releases ---- */

/* The atomic-fetch that the condition compares with all but one: `%last == grid.x - 1`; TVM_NONE. */
static uint32_t fetch_of(const census *c, uint32_t branch) {
    const tvm_expr *node = expr_of(c, tvm_operands(c->kernel, &c->kernel->insns[branch]));
    if (!node || node->op != TVM_EXPR_EQ || c->kernel->insns[branch].op != TVM_OP_IF) return TVM_NONE;
    const tvm_expr *x = &c->kernel->exprs[node->a], *number = &c->kernel->exprs[node->b];
    if (x->op != TVM_EXPR_SLOT || number->op != TVM_EXPR_SUB || !is_all(c, &c->kernel->exprs[number->a]) ||
        !is_integer(&c->kernel->exprs[number->b], 1) || x->type.bits != 32)
        return TVM_NONE;
    const tvm_insn *scalar = tvm_prove_definition(c->p, x->a);
    if (!scalar || scalar->op != TVM_OP_SCALAR) return TVM_NONE;
    const tvm_insn *fetch = tvm_prove_definition(c->p, tvm_operands(c->kernel, scalar)->value);
    return fetch && fetch->op == TVM_OP_ATOMIC_FETCH ? (uint32_t)(fetch - c->kernel->insns) : TVM_NONE;
}

/* Is it where all blocks of the other side have done the atomic-fetch behind the wait, which none does again?
 */
static bool is_after_all(const census *c, uint32_t at, uint32_t wait) {
    const uint32_t branch = opener_of(c, at);
    const uint32_t fetch =
        branch == TVM_NONE || opener_of(c, branch) != c->branch ? TVM_NONE : fetch_of(c, branch);
    if (fetch == TVM_NONE || at > c->kernel->insns[branch].match || opener_of(c, fetch) != c->branch ||
        fetch < wait || extent_of(c, c->axis) != 2)
        return false;
    const uint32_t counter = tvm_operands(c->kernel, &c->kernel->insns[fetch])[1].value;
    bool only = is_counter(c, counter) && adds_one(c, fetch, counter);
    for (uint32_t i = 0; i < c->kernel->insn_count && only; i++) {
        bool resets = c->kernel->insns[i].op == TVM_OP_RELEASE_SEMAPHORE && opener_of(c, i) == branch;
        only = !names(c, i, counter) || i == fetch || resets;
    }
    return only;
}

/* ---- all ---- */

/* Does a block of the first side come to the count, whatever others do? */
static bool comes(const census *c, uint32_t count) {
    const uint32_t end = c->kernel->insns[c->branch].match;
    for (uint32_t i = 0; i < end; i++) {
        const tvm_insn *insn = &c->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (class == TVM_CLASS_EXIT || class == TVM_CLASS_SECTION || insn->op == TVM_OP_TRAP ||
            tvm_op(insn->op)->effects & TVM_EFFECT_WAIT)
            return false;
    }
    return is_in_first(c, count) && opener_of(c, count) == c->branch;
}

static bool is_counted(census *c, uint32_t wait) {
    const tvm_operand *operands = tvm_operands(c->kernel, &c->kernel->insns[wait]);
    const uint32_t slot = operands->value;
    const unsigned rank = c->kernel->slots[slot].rank;
    uint32_t count = TVM_NONE;
    c->branch = opener_of(c, wait);
    if (c->branch == TVM_NONE || opener_of(c, c->branch) != TVM_NONE ||
        c->kernel->insns[c->branch].op != TVM_OP_IF || !is_side(c, c->branch) || !is_in_other(c, wait) ||
        !is_counter(c, slot) || !is_first(c, operands + 1, rank) ||
        !is_all(c, expr_of(c, &operands[1 + rank])))
        return false;
    for (uint32_t i = 0; i < c->kernel->insn_count; i++) {
        if (i == wait || !names(c, i, slot)) continue;
        bool releases = c->kernel->insns[i].op == TVM_OP_RELEASE_SEMAPHORE;
        if (releases ? !is_after_all(c, i, wait) : count != TVM_NONE || !adds_one(c, i, slot)) return false;
        if (!releases) count = i;
    }
    return count != TVM_NONE && comes(c, count);
}

bool tvm_prove_is_counted(const prover *p, uint32_t wait) {
    census c = {.p = p, .kernel = p->kernel};
    return p->kernel->insns[wait].op == TVM_OP_LOCK_SEMAPHORE && tvm_cluster_blocks(p->kernel) == 1 &&
           is_counted(&c, wait);
}
