/* What is known of scalar expressions before any code is emitted: which are fixed, their ranges and divisors;
 * and the constants and conditions of the path that is being emitted. */
#include "analysis.h"

#include <stdlib.h>
#include <string.h>

#include "caches.h"

enum { RANGE_PASSES = 4, DIVISOR_PASSES = 16, PROOF_WORK = 1 << 24 };

static bool is_integer(tvm_dtype type) {
    return type.kind != TVM_KIND_FLOAT;
}

uint64_t tvm_fact_gcd(uint64_t a, uint64_t b) {
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint64_t magnitude(int64_t value) {
    return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

/* ---- ranges ---- */

static void type_range(tvm_dtype type, int64_t *low, int64_t *high) {
    *low = INT64_MIN;
    *high = INT64_MAX;
    if (type.kind == TVM_KIND_BOOL) {
        *low = 0;
        *high = 1;
    } else if (type.kind == TVM_KIND_INT && type.bits == 32) {
        *low = INT32_MIN;
        *high = INT32_MAX;
    } else if (type.kind == TVM_KIND_UINT && type.bits == 32) {
        *low = 0;
        *high = UINT32_MAX;
    }
    /* u64 reaches beyond int64_t: nothing is known of it, and it is never exact. */
}

typedef struct range {
    int64_t low, high;
    bool fits; /* the bounds did not overflow */
} range;

static range range_of(const facts *f, uint32_t expr) {
    return (range){f->exprs[expr].low, f->exprs[expr].high, true};
}

static range range_add(range a, range b) {
    range out;
    bool low = __builtin_add_overflow(a.low, b.low, &out.low);
    bool high = __builtin_add_overflow(a.high, b.high, &out.high);
    out.fits = !low && !high;
    return out;
}

static range range_sub(range a, range b) {
    range out;
    bool low = __builtin_sub_overflow(a.low, b.high, &out.low);
    bool high = __builtin_sub_overflow(a.high, b.low, &out.high);
    out.fits = !low && !high;
    return out;
}

static range range_mul(range a, range b) {
    const int64_t x[2] = {a.low, a.high}, y[2] = {b.low, b.high};
    range out = {INT64_MAX, INT64_MIN, true};
    for (int i = 0; i < 4; i++) {
        int64_t product;
        if (__builtin_mul_overflow(x[i / 2], y[i % 2], &product)) out.fits = false;
        if (product < out.low) out.low = product;
        if (product > out.high) out.high = product;
    }
    return out;
}

/* By a positive constant, toward zero. */
static range range_div(range a, int64_t by, bool up) {
    if (up && __builtin_add_overflow(a.high, by - 1, &a.high)) return (range){0, 0, false};
    if (up && __builtin_add_overflow(a.low, by - 1, &a.low)) return (range){0, 0, false};
    return (range){a.low / by, a.high / by, true};
}

/* The literal value of an expression that needs no path. */
static bool literal(const facts *f, uint32_t expr, int64_t *value) {
    *value = f->exprs[expr].low;
    return f->exprs[expr].low == f->exprs[expr].high;
}

/* block.a * c <= X - 1 when the grid's extent is cdiv(X, d) or X / d with c <= d. */
static bool block_product_fits(const emitter *e, const tvm_expr *node) {
    const tvm_expr *block = node_of(e, node->a);
    int64_t factor, by;
    if (block->op != TVM_EXPR_BLOCK || block->a > 2 || e->kernel->grid[block->a] == TVM_NONE) return false;
    const tvm_expr *grid = node_of(e, e->kernel->grid[block->a]);
    if (grid->op != TVM_EXPR_CDIV && grid->op != TVM_EXPR_DIV) return false;
    return literal(e->facts, node->b, &factor) && literal(e->facts, grid->b, &by) && factor >= 0 &&
           factor <= by && e->facts->exprs[grid->a].high <= INT32_MAX;
}

static range range_mod(range a, int64_t by) {
    range out = {a.low < 0 ? -(by - 1) : 0, a.high > 0 ? by - 1 : 0, true};
    if (a.high >= 0 && a.high < out.high) out.high = a.high;
    return out;
}

static range range_shift(range a, const tvm_expr *node, int64_t by) {
    if (by < 0 || by > 31) return (range){0, 0, false};
    int64_t factor = INT64_C(1) << by;
    if (node->op == TVM_EXPR_SHL) return range_mul(a, (range){factor, factor, true});
    return (range){a.low >> by, a.high >> by, true};
}

static range range_node(const emitter *e, const tvm_expr *node) {
    const facts *f = e->facts;
    unsigned arity = tvm_expr_op_info(node->op)->arity; /* a leaf's a is no expression */
    range none = {0, 0, false}, a = arity > 0 ? range_of(f, node->a) : none,
          b = arity > 1 ? range_of(f, node->b) : none;
    int64_t by = 0;
    bool has_literal = arity > 1 && literal(f, node->b, &by);
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return (range){node->value.i, node->value.i, true};
    case TVM_EXPR_SLOT:
        return (range){f->slots[node->a].low, f->slots[node->a].high, true};
    case TVM_EXPR_BLOCK:
        return (range){0, node->a == 0 ? INT32_MAX - 1 : 65534, true};
    case TVM_EXPR_GRID:
        return (range){1, node->a == 0 ? INT32_MAX : 65535, true};
    case TVM_EXPR_MULTIPROCESSORS:
        return (range){1, INT32_MAX, true};
    case TVM_EXPR_TARGET: /* the device's, on which code for a lower one may run */
        return (range){e->target.arch, INT32_MAX, true};
    case TVM_EXPR_CAST:
        return a;
    case TVM_EXPR_NEG:
        return range_sub((range){0, 0, true}, a);
    case TVM_EXPR_ADD:
        return range_add(a, b);
    case TVM_EXPR_SUB:
        return range_sub(a, b);
    case TVM_EXPR_MUL:
        if (block_product_fits(e, node)) return (range){0, INT32_MAX - 1, true};
        return range_mul(a, b);
    case TVM_EXPR_DIV:
        if (!has_literal && a.low >= 0 && b.low >= 1) return (range){0, a.high, true};
        return has_literal && by > 0 ? range_div(a, by, false) : none;
    case TVM_EXPR_CDIV:
        return has_literal && by > 0 ? range_div(a, by, true) : none;
    case TVM_EXPR_MOD:
        if (!has_literal && a.low >= 0 && b.low >= 1)
            return (range){0, a.high < b.high ? a.high : b.high - 1, true};
        return has_literal && by > 0 ? range_mod(a, by) : none;
    case TVM_EXPR_SHL:
    case TVM_EXPR_SHR:
        return has_literal ? range_shift(a, node, by) : none;
    case TVM_EXPR_AND:
        return a.low >= 0 ? (range){0, a.high, true} : b.low >= 0 ? (range){0, b.high, true} : none;
    case TVM_EXPR_MIN:
        return (range){a.low < b.low ? a.low : b.low, a.high < b.high ? a.high : b.high, true};
    case TVM_EXPR_MAX:
        return (range){a.low > b.low ? a.low : b.low, a.high > b.high ? a.high : b.high, true};
    case TVM_EXPR_SELECT: {
        range c = range_of(f, node->c);
        return (range){b.low < c.low ? b.low : c.low, b.high > c.high ? b.high : c.high, true};
    }
    default:
        return none;
    }
}

/* Do the operands that a linear sum looks into keep exactness? */
static bool operands_exact(const emitter *e, const tvm_expr *node) {
    const facts *f = e->facts;
    switch (node->op) {
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MUL:
        return f->exprs[node->a].exact && f->exprs[node->b].exact;
    case TVM_EXPR_NEG:
    case TVM_EXPR_SHL:
    case TVM_EXPR_CAST:
        return f->exprs[node->a].exact;
    case TVM_EXPR_SLOT: {
        uint32_t definition = f->slots[node->a].definition;
        return definition == TVM_NONE || f->exprs[definition].exact;
    }
    default:
        return true;
    }
}

static void range_expr(const emitter *e, uint32_t expr) {
    const tvm_expr *node = node_of(e, expr);
    expr_fact *fact = &e->facts->exprs[expr];
    int64_t low, high;
    type_range(node->type, &low, &high);
    bool is_u64 = node->type.kind == TVM_KIND_UINT && node->type.bits == 64;
    bool from_float = node->op == TVM_EXPR_CAST && !is_integer(node_of(e, node->a)->type);
    fact->exact = false;
    if (is_integer(node->type) && !from_float && (!is_u64 || node->op == TVM_EXPR_INTEGER)) {
        range r = range_node(e, node);
        bool fits = r.fits && r.low >= low && r.high <= high && r.low <= r.high;
        bool leaf_like = node->op != TVM_EXPR_ADD && node->op != TVM_EXPR_SUB && node->op != TVM_EXPR_MUL &&
                         node->op != TVM_EXPR_NEG && node->op != TVM_EXPR_SHL && node->op != TVM_EXPR_CAST;
        if (fits) {
            low = r.low;
            high = r.high;
        }
        fact->exact = (fits || leaf_like) && operands_exact(e, node);
    }
    if (e->facts->assumed_low[expr] > low) low = e->facts->assumed_low[expr];
    if (e->facts->assumed_high[expr] < high) high = e->facts->assumed_high[expr];
    uint64_t divisor = e->facts->assumed_divisor[expr];
    if (divisor > 1 && divisor <= INT32_MAX && high > 0) high -= high % (int64_t)divisor;
    if (low > high) low = high; /* contradicting assumptions: the kernel is never launched */
    fact->low = low;
    fact->high = high;
}

/* A grid extent that is a product of factors that are not negative: none of them is 0. */
static void range_grid_factors(const emitter *e) {
    facts *f = e->facts;
    for (unsigned axis = 0; axis < 3; axis++) {
        uint32_t grid = e->kernel->grid[axis];
        if (grid == TVM_NONE || node_of(e, grid)->op != TVM_EXPR_MUL) continue;
        uint32_t a = node_of(e, grid)->a, b = node_of(e, grid)->b;
        if (f->exprs[a].low < 0 || f->exprs[b].low < 0) continue;
        if (f->assumed_low[a] < 1) f->assumed_low[a] = 1;
        if (f->assumed_low[b] < 1) f->assumed_low[b] = 1;
    }
}

static void range_slots(const emitter *e) {
    for (uint32_t s = 0; s < e->kernel->slot_count; s++) {
        slot_fact *slot = &e->facts->slots[s];
        if (slot->definition != TVM_NONE) {
            slot->low = e->facts->exprs[slot->definition].low;
            slot->high = e->facts->exprs[slot->definition].high;
        } else if (slot->loop != TVM_NONE) {
            const tvm_operand *operands = tvm_operands(e->kernel, &e->kernel->insns[slot->loop]);
            int64_t high = e->facts->exprs[operands[1].value].high;
            slot->low = e->facts->exprs[operands[0].value].low;
            if (high > slot->low) slot->high = high - 1;
        }
    }
}

/* ---- divisors ---- */

static uint64_t power_part(uint64_t value) {
    return value & (~value + 1);
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product;
    if (!__builtin_mul_overflow(a, b, &product) && product <= INT64_MAX) return product;
    return power_part(a) > power_part(b) ? power_part(a) : power_part(b);
}

static uint64_t least_common_multiple(uint64_t a, uint64_t b) {
    if (a == 0 || b == 0) return 0;
    uint64_t product;
    if (__builtin_mul_overflow(a / tvm_fact_gcd(a, b), b, &product) || product > INT64_MAX)
        return a > b ? a : b;
    return product;
}

static uint64_t divisor_node(const emitter *e, const tvm_expr *node) {
    const facts *f = e->facts;
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    uint64_t a = arity > 0 ? f->exprs[node->a].divisor : 1, b = arity > 1 ? f->exprs[node->b].divisor : 1;
    int64_t by = 0;
    bool has_literal = arity > 1 && literal(f, node->b, &by);
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return magnitude(node->value.i);
    case TVM_EXPR_SLOT:
        return f->slots[node->a].divisor;
    case TVM_EXPR_CAST:
        return is_integer(node_of(e, node->a)->type) ? a : 1;
    case TVM_EXPR_NEG:
        return a;
    case TVM_EXPR_ADD:
    case TVM_EXPR_SUB:
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
        return tvm_fact_gcd(a, b);
    case TVM_EXPR_MUL:
        return a == 0 || b == 0 ? 0 : times(a, b);
    case TVM_EXPR_DIV:
    case TVM_EXPR_CDIV:
        return a == 0 ? 0 : has_literal && by > 0 && a % (uint64_t)by == 0 ? a / (uint64_t)by : 1;
    case TVM_EXPR_MOD:
        return tvm_fact_gcd(a, b);
    case TVM_EXPR_SHL:
        return a == 0 ? 0 : has_literal && by >= 0 && by < 32 ? times(a, UINT64_C(1) << by) : power_part(a);
    case TVM_EXPR_SHR:
        return a == 0 ? 0 : has_literal && by >= 0 && by < 32 && (a >> by) << by == a ? a >> by : 1;
    case TVM_EXPR_AND:
        if (a == 0 || b == 0) return 0;
        return power_part(a) > power_part(b) ? power_part(a) : power_part(b);
    case TVM_EXPR_OR:
    case TVM_EXPR_XOR:
        return power_part(tvm_fact_gcd(a, b));
    case TVM_EXPR_SELECT:
        return tvm_fact_gcd(b, f->exprs[node->c].divisor);
    default:
        return 1;
    }
}

/* Does the operation itself not wrap, whatever its operands did? */
static bool keeps_value(const emitter *e, const tvm_expr *node) {
    range r = range_node(e, node);
    int64_t low, high;
    type_range(node->type, &low, &high);
    bool is_u64 = node->type.kind == TVM_KIND_UINT && node->type.bits == 64;
    return !is_u64 && r.fits && r.low >= low && r.high <= high;
}

static void divisor_expr(const emitter *e, uint32_t expr) {
    const tvm_expr *node = node_of(e, expr);
    expr_fact *fact = &e->facts->exprs[expr];
    fact->divisor = 1;
    if (!is_integer(node->type)) return;
    uint64_t divisor = divisor_node(e, node);
    bool can_wrap = node->op == TVM_EXPR_ADD || node->op == TVM_EXPR_SUB || node->op == TVM_EXPR_MUL ||
                    node->op == TVM_EXPR_NEG || node->op == TVM_EXPR_SHL || node->op == TVM_EXPR_CAST ||
                    node->op == TVM_EXPR_CDIV;
    /* Wrapping keeps divisibility by powers of two alone. */
    if (can_wrap && divisor != 0 && !keeps_value(e, node))
        divisor = node->op == TVM_EXPR_CDIV ? 1 : power_part(divisor);
    fact->divisor = least_common_multiple(divisor, e->facts->assumed_divisor[expr]);
}

static bool divisor_slots(const emitter *e) {
    facts *f = e->facts;
    bool changed = false;
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        const tvm_insn *insn = &e->kernel->insns[i];
        if (insn->op != TVM_OP_LET && insn->op != TVM_OP_FOR) continue;
        const tvm_operand *operands = tvm_operands(e->kernel, insn);
        slot_fact *slot = &f->slots[insn->result];
        uint64_t divisor = tvm_fact_gcd(slot->divisor, f->exprs[operands[0].value].divisor);
        if (insn->op == TVM_OP_FOR) divisor = tvm_fact_gcd(divisor, f->exprs[operands[2].value].divisor);
        changed = changed || divisor != slot->divisor;
        slot->divisor = divisor;
    }
    return changed;
}

/* From "every slot is always 0" upward until nothing changes: the largest divisors that all assignments keep.
 */
static void find_divisors(const emitter *e) {
    bool changed = true;
    for (int pass = 0; changed && pass <= DIVISOR_PASSES; pass++) {
        if (pass == DIVISOR_PASSES)
            for (uint32_t s = e->kernel->param_count; s < e->kernel->slot_count; s++)
                e->facts->slots[s].divisor = 1;
        for (uint32_t x = 0; x < e->kernel->expr_count; x++) divisor_expr(e, x);
        changed = divisor_slots(e);
    }
}

/* ---- what is fixed ---- */

typedef struct leaves {
    bool pinned; /* they keep their values while the slot that is defined by them is used */
    bool stable; /* for the whole kernel */
} leaves;

static void find_leaves(const emitter *e, uint32_t expr, leaves *out) {
    const tvm_expr *node = node_of(e, expr);
    if (node->op == TVM_EXPR_SLOT) {
        const slot_fact *slot = &e->facts->slots[node->a];
        bool is_param = node->a < e->kernel->param_count;
        out->stable = out->stable && (is_param || slot->stable);
        out->pinned = out->pinned && (is_param || slot->definition != TVM_NONE || slot->loop != TVM_NONE);
        return;
    }
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (arity > 0) find_leaves(e, node->a, out);
    if (arity > 1) find_leaves(e, node->b, out);
    if (arity > 2) find_leaves(e, node->c, out);
}

/* A slot with one LET stands for its expression: a use follows the LET without passing it again, so leaves
 * that are parameters, other such slots and variables of enclosing loops still have the values that they had
 * there. */
static void find_definitions(const emitter *e) {
    facts *f = e->facts;
    const tvm_ir_kernel *kernel = e->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->result == TVM_NONE || (insn->op != TVM_OP_LET && insn->op != TVM_OP_FOR)) continue;
        slot_fact *slot = &f->slots[insn->result];
        if (slot->assigned != 1) continue;
        if (insn->op == TVM_OP_FOR) {
            slot->loop = i;
            continue;
        }
        leaves found = {true, true};
        uint32_t expr = tvm_operands(kernel, insn)[0].value;
        find_leaves(e, expr, &found);
        if (found.pinned) slot->definition = expr;
        slot->stable = found.pinned && found.stable;
    }
}

static void find_stable(const emitter *e) {
    facts *f = e->facts;
    for (uint32_t x = 0; x < e->kernel->expr_count; x++) {
        const tvm_expr *node = node_of(e, x);
        expr_fact *fact = &f->exprs[x];
        unsigned arity = tvm_expr_op_info(node->op)->arity;
        bool is_param = node->op == TVM_EXPR_SLOT && node->a < e->kernel->param_count;
        fact->stable = node->op != TVM_EXPR_SLOT || is_param || f->slots[node->a].stable;
        fact->varies = node->op == TVM_EXPR_BLOCK || node->op == TVM_EXPR_GRID ||
                       node->op == TVM_EXPR_MULTIPROCESSORS || node->op == TVM_EXPR_TARGET || is_param;
        const uint32_t operands[3] = {node->a, node->b, node->c};
        for (unsigned i = 0; i < arity; i++) {
            fact->stable = fact->stable && f->exprs[operands[i]].stable;
            fact->varies = fact->varies || f->exprs[operands[i]].varies;
        }
    }
}

/* ---- assumptions ---- */

static void assume_bound(facts *f, uint32_t expr, unsigned op, int64_t value) {
    int64_t *low = &f->assumed_low[expr], *high = &f->assumed_high[expr];
    int64_t least = op == TVM_EXPR_GT && value < INT64_MAX ? value + 1 : value;
    int64_t most = op == TVM_EXPR_LT && value > INT64_MIN ? value - 1 : value;
    if ((op == TVM_EXPR_GT || op == TVM_EXPR_GE || op == TVM_EXPR_EQ) && least > *low) *low = least;
    if ((op == TVM_EXPR_LT || op == TVM_EXPR_LE || op == TVM_EXPR_EQ) && most < *high) *high = most;
}

static void assume(const emitter *e, uint32_t expr) {
    const tvm_expr *node = node_of(e, expr);
    facts *f = e->facts;
    if (node->op == TVM_EXPR_LAND) {
        assume(e, node->a);
        assume(e, node->b);
        return;
    }
    if (node->op < TVM_EXPR_LT || node->op > TVM_EXPR_EQ || !is_integer(node_of(e, node->a)->type)) return;
    static const uint8_t mirrored[] = {TVM_EXPR_GT, TVM_EXPR_GE, TVM_EXPR_LT, TVM_EXPR_LE, TVM_EXPR_EQ};
    const tvm_expr *a = node_of(e, node->a), *b = node_of(e, node->b);
    if (b->op == TVM_EXPR_INTEGER) assume_bound(f, node->a, node->op, b->value.i);
    if (a->op == TVM_EXPR_INTEGER) assume_bound(f, node->b, mirrored[node->op - TVM_EXPR_LT], a->value.i);
    if (node->op != TVM_EXPR_EQ || a->op != TVM_EXPR_MOD || b->op != TVM_EXPR_INTEGER || b->value.i != 0)
        return;
    const tvm_expr *by = node_of(e, a->b);
    if (by->op == TVM_EXPR_INTEGER && by->value.i != 0)
        f->assumed_divisor[a->a] = least_common_multiple(f->assumed_divisor[a->a], magnitude(by->value.i));
}

/* What a checked launch says: .assume, extents that are not negative, a grid that is not empty. */
static void find_assumptions(const emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    for (uint32_t i = 0; i < kernel->assume_count; i++) assume(e, kernel->assumes[i]);
    for (uint32_t p = 0; p < kernel->slot_count; p++) {
        const tvm_slot *slot = &kernel->slots[p];
        if (slot->kind != TVM_SLOT_GLOBAL) continue;
        for (unsigned d = 0; d < slot->rank; d++) assume_bound(e->facts, slot->shape[d], TVM_EXPR_GE, 0);
        uint32_t row = slot->shape[slot->rank - 1];
        unsigned bits = slot->dtype.bits;
        uint64_t whole = 8 / tvm_fact_gcd(bits, 8); /* elements in the shortest run of whole bytes */
        if (whole > 1)
            e->facts->assumed_divisor[row] = least_common_multiple(e->facts->assumed_divisor[row], whole);
    }
    for (unsigned axis = 0; axis < 3; axis++)
        if (kernel->grid[axis] != TVM_NONE) {
            assume_bound(e->facts, kernel->grid[axis], TVM_EXPR_GE, 1);
            assume_bound(e->facts, kernel->grid[axis], TVM_EXPR_LE, axis == 0 ? INT32_MAX : 65535);
        }
}

/* ---- making ---- */

static bool allocate(emitter *e) {
    facts *f = calloc(1, sizeof *f);
    e->facts = f;
    if (!f) return false;
    size_t exprs = e->kernel->expr_count + (size_t)1, slots = e->kernel->slot_count + (size_t)1;
    f->slots = calloc(slots, sizeof *f->slots);
    f->exprs = calloc(exprs, sizeof *f->exprs);
    f->assumed_divisor = calloc(exprs, sizeof *f->assumed_divisor);
    f->assumed_low = calloc(exprs, sizeof *f->assumed_low);
    f->assumed_high = calloc(exprs, sizeof *f->assumed_high);
    f->scalars_set = calloc(e->kernel->insn_count + (size_t)1, sizeof *f->scalars_set);
    f->version = 1;
    for (unsigned axis = 0; axis < 3; axis++) f->grid_leaf[axis] = TVM_NONE;
    f->work = PROOF_WORK;
    return f->slots && f->exprs && f->assumed_divisor && f->assumed_low && f->assumed_high && f->scalars_set;
}

tvm_status tvm_facts_make(emitter *e) {
    if (!allocate(e)) return tvm_diag_no_memory(e->diags);
    facts *f = e->facts;
    const tvm_ir_kernel *kernel = e->kernel;
    for (uint32_t x = 0; x < kernel->expr_count; x++) {
        f->assumed_divisor[x] = 1;
        f->assumed_low[x] = INT64_MIN;
        f->assumed_high[x] = INT64_MAX;
        type_range(kernel->exprs[x].type, &f->exprs[x].low, &f->exprs[x].high);
        if (kernel->exprs[x].op == TVM_EXPR_GRID) f->grid_leaf[kernel->exprs[x].a] = x;
    }
    for (uint32_t s = 0; s < kernel->slot_count; s++) {
        slot_fact *slot = &f->slots[s];
        slot->definition = slot->loop = TVM_NONE;
        slot->divisor = s < kernel->param_count ? 1 : 0;
        type_range(kernel->slots[s].dtype, &slot->low, &slot->high);
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        unsigned op = kernel->insns[i].op;
        if (kernel->insns[i].result != TVM_NONE) f->slots[kernel->insns[i].result].assigned++;
        f->scalars_set[i + 1] = f->scalars_set[i] + (op == TVM_OP_LET || op == TVM_OP_FOR);
    }
    find_assumptions(e);
    find_definitions(e);
    find_stable(e);
    for (int pass = 0; pass < RANGE_PASSES; pass++) {
        for (uint32_t x = 0; x < kernel->expr_count; x++) range_expr(e, x);
        range_slots(e);
        range_grid_factors(e);
    }
    find_divisors(e);
    return TVM_OK;
}

void tvm_facts_free(emitter *e) {
    facts *f = e->facts;
    if (!f) return;
    free(f->slots);
    free(f->exprs);
    free(f->assumed_divisor);
    free(f->assumed_low);
    free(f->assumed_high);
    free(f->scalars_set);
    free(f);
    e->facts = NULL;
}

/* ---- constants of the path ---- */

static bool find_constant(const emitter *e, uint32_t expr, int64_t *value) {
    const tvm_expr *node = node_of(e, expr);
    if (node->op == TVM_EXPR_SLOT) {
        *value = e->facts->slots[node->a].value;
        return e->facts->slots[node->a].constant;
    }
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (arity == 0) return false;
    const uint32_t children[3] = {node->a, node->b, node->c};
    tvm_scalar operands[3] = {{0}, {0}, {0}}, out;
    for (unsigned i = 0; i < arity; i++)
        if (!tvm_fact_constant(e, children[i], &operands[i].i)) return false;
    tvm_dtype type = node_of(e, node->op == TVM_EXPR_SELECT ? node->b : node->a)->type;
    if (tvm_expr_apply(node, type, operands, &out, NULL) != TVM_OK) return false;
    *value = out.i;
    return true;
}

bool tvm_fact_constant(const emitter *e, uint32_t expr, int64_t *value) {
    const tvm_expr *node = node_of(e, expr);
    expr_fact *fact = &e->facts->exprs[expr];
    if (!is_integer(node->type)) return false;
    if (fact->low == fact->high) {
        *value = fact->low;
        return true;
    }
    if (node->op == TVM_EXPR_INTEGER) {
        *value = node->value.i;
        return true;
    }
    if (fact->varies) return false;
    if (fact->seen != e->facts->version) {
        fact->seen = e->facts->version;
        fact->seen_known = find_constant(e, expr, &fact->seen_value);
    }
    *value = fact->seen_value;
    return fact->seen_known;
}

bool tvm_fact_stable(const emitter *e, uint32_t expr) {
    return e->facts->exprs[expr].stable;
}

static bool is_invariant(const emitter *e, uint32_t expr, uint32_t scope) {
    const tvm_expr *node = node_of(e, expr);
    /* Loops begun after this one, and not after its end, are in it. */
    if (node->op == TVM_EXPR_SLOT) return e->facts->slots[node->a].set_in < scope;
    expr_fact *fact = &e->facts->exprs[expr];
    if (fact->scope == scope) return fact->invariant;
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    fact->scope = scope;
    fact->invariant = (arity < 1 || is_invariant(e, node->a, scope)) &&
                      (arity < 2 || is_invariant(e, node->b, scope)) &&
                      (arity < 3 || is_invariant(e, node->c, scope));
    return fact->invariant;
}

bool tvm_fact_loop_invariant(const emitter *e, uint32_t expr) {
    const loop_frame *loop = tvm_innermost_loop(e);
    return loop && is_invariant(e, expr, loop->scope);
}

void tvm_fact_enter_loop(emitter *e, uint32_t scope, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        uint32_t slot = e->kernel->insns[i].result;
        if (slot != TVM_NONE) e->facts->slots[slot].set_in = scope;
    }
}

uint64_t tvm_fact_divisor(const emitter *e, uint32_t expr) {
    int64_t value;
    if (tvm_fact_constant(e, expr, &value)) return magnitude(value);
    return e->facts->exprs[expr].divisor;
}

void tvm_fact_set_constant(emitter *e, uint32_t slot, int64_t value) {
    e->facts->slots[slot].constant = true;
    e->facts->slots[slot].value = value;
    e->facts->version++;
}

void tvm_fact_forget(emitter *e, uint32_t slot) {
    if (!e->facts->slots[slot].constant) return;
    e->facts->slots[slot].constant = false;
    e->facts->version++;
}

void tvm_fact_forget_assigned(emitter *e, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        uint32_t slot = e->kernel->insns[i].result;
        if (slot != TVM_NONE) tvm_fact_forget(e, slot);
    }
}
