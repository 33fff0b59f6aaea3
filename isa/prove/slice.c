/* Which scalars a walk by explore.c follows. All that bear on what is asked are often too many: each
 * condition of one more doubles the paths. What is not followed may be anything, so that any choice is sound,
 * and a few of them often do. How far a scalar is: one that an instruction that is asked has, or that a
 * condition around it reads, is at 0. What is assigned to a scalar at d is as far where that happens once and
 * outside of loops, else at d + 1; what conditions around an assignment read is as far as what is assigned.
 * So the stages of a ring, which bear on how many turns are made, are farther than the work that is left. */
#include "explore.h"

#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = EXPLORE_ALL + 1 };

typedef struct slice {
    explorer *e;
    uint8_t *far;   /* by slot, UNKNOWN: it does not bear */
    bool *is_fixed; /* by slot: assigned once, outside of loops */
    bool any;       /* something is nearer than it was */
} slice;

static void reach(slice *s, uint32_t slot, unsigned far) {
    if (far >= s->far[slot]) return;
    s->far[slot] = (uint8_t)far;
    s->any = true;
}

static void reach_expr(slice *s, uint32_t expr, unsigned far) {
    const tvm_expr *node = &s->e->p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT) reach(s, node->a, far);
    for (unsigned i = 0; i < tvm_expr_arity(node); i++) reach_expr(s, node->operands[i], far);
}

static void reach_operands(slice *s, uint32_t at, unsigned far) {
    const tvm_ir_kernel *kernel = s->e->p->kernel;
    const tvm_operand *operands = tvm_operands(kernel, &kernel->insns[at]);
    for (uint32_t o = 0; o < kernel->insns[at].count; o++)
        if (operands[o].kind == TVM_OPERAND_EXPR) reach_expr(s, operands[o].value, far);
}

/* How far the nearest of what the instruction does is; UNKNOWN: it does not bear. */
static unsigned distance(const slice *s, uint32_t at) {
    const tvm_insn *insn = &s->e->p->kernel->insns[at];
    tvm_op_class class = tvm_insn_class(insn);
    if (s->e->asked[at] || class == TVM_CLASS_EXIT || insn->op == TVM_OP_TRAP) return 0;
    if (class == TVM_CLASS_JUMP) return s->e->insns[insn->match] ? 0 : UNKNOWN;
    return insn->result == TVM_NONE ? UNKNOWN : s->far[insn->result];
}

static bool is_control(tvm_op_class class) {
    return class == TVM_CLASS_LOOP || class == TVM_CLASS_BRANCH;
}

/* The conditions and bounds of what is around bearing instructions, and what these assign. */
static void visit(slice *s, uint32_t at) {
    const tvm_ir_kernel *kernel = s->e->p->kernel;
    const tvm_insn *insn = &kernel->insns[at];
    tvm_op_class class = tvm_insn_class(insn);
    unsigned far = distance(s, at);
    if (is_control(class))
        for (uint32_t j = at + 1; j < tvm_prove_end_of(kernel, at); j++) {
            unsigned other = distance(s, j);
            if (other < far) far = other;
        }
    if (far > s->e->most) return;
    s->any = s->any || !s->e->insns[at];
    s->e->insns[at] = 1;
    if (is_control(class) && insn->result != TVM_NONE) reach(s, insn->result, far);
    if (is_control(class)) reach_operands(s, at, far);
    if (s->e->asked[at]) reach_operands(s, at, 0);
    if (insn->op == TVM_OP_LET) reach_operands(s, at, far + !s->is_fixed[insn->result]);
}

static void find_fixed(slice *s, uint8_t *assigned) {
    const tvm_ir_kernel *kernel = s->e->p->kernel;
    uint32_t loop_end = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (tvm_insn_class(insn) == TVM_CLASS_LOOP && insn->match > loop_end) loop_end = insn->match;
        if (insn->result == TVM_NONE) continue;
        s->is_fixed[insn->result] = !assigned[insn->result] && i >= loop_end;
        assigned[insn->result] = 1;
    }
}

/* Are there scalars that it reads and that are not followed? */
static bool reads_beyond(const slice *s, uint32_t expr) {
    const tvm_expr *node = &s->e->p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT && s->far[node->a] != UNKNOWN && s->far[node->a] > s->e->most) return true;
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (reads_beyond(s, node->operands[i])) return true;
    return false;
}

static void mark_edge(const slice *s) {
    const tvm_ir_kernel *kernel = s->e->p->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op != TVM_OP_LET || s->e->index[insn->result] < 0) continue;
        s->e->edge[i] = reads_beyond(s, tvm_operands(kernel, insn)[0].value);
    }
}

/* By what is asked now; e->insns is empty. False: out of memory. */
static bool find(slice *s, explorer *e) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    const size_t slots = kernel->slot_count + (size_t)1;
    uint8_t *assigned = calloc(slots, 1);
    *s = (slice){e, malloc(slots), calloc(slots, sizeof *s->is_fixed), true};
    bool made = s->far && s->is_fixed && assigned;
    if (made) {
        memset(s->far, UNKNOWN, slots);
        find_fixed(s, assigned);
    }
    while (made && s->any) {
        s->any = false;
        for (uint32_t i = 0; i < kernel->insn_count; i++) visit(s, i);
    }
    free(assigned);
    return made;
}

static void end(slice *s) {
    free(s->far);
    free(s->is_fixed);
}

bool tvm_explore_slice(explorer *e) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    slice s;
    bool made = find(&s, e);
    for (uint32_t i = 0; made && i < kernel->slot_count; i++) {
        const tvm_slot *slot = &kernel->slots[i];
        bool is = i >= kernel->param_count && s.far[i] <= e->most && slot->kind == TVM_SLOT_SCALAR &&
                  (tvm_dtype_is_integer(slot->dtype) || slot->dtype.kind == TVM_KIND_BOOL);
        e->index[i] = is ? (int32_t)e->followed++ : -1;
    }
    if (made) mark_edge(&s);
    end(&s);
    return made;
}

bool tvm_explore_narrow(explorer *e, const uint8_t *asked) {
    const tvm_ir_kernel *kernel = e->p->kernel;
    slice s;
    e->asked = asked;
    memset(e->insns, 0, kernel->insn_count);
    bool made = find(&s, e);
    for (uint32_t i = 0; made && i < kernel->slot_count; i++)
        if (s.far[i] > e->most) e->index[i] = -1;
    end(&s);
    if (!made) e->p->no_memory = e->failed = true;
    return made;
}
