/* Is every copy waited for? Two forms are known, of an mbarrier whose phase ends with one arrival:
 *
 *   copy-bulk ..., barrier %b[%i]        in a role:                    in another role:
 *   arrive-barrier %b[%i]                    while ...                     while ...
 *   wait-barrier %b[%i]                          copy-bulk, arrive             wait-barrier
 *
 * In the first form each arrival is followed by a wait, whatever the path. In the second one the parts of
 * both roles that decide how often, and at which of the mbarriers, are the same but for the names of
 * variables. So as many phases are waited for as have ended; more roles may wait for them, too. */
#include "drains.h"

#include <stdlib.h>
#include <string.h>

#include "kernel_state.h"
#include "view.h"

typedef struct proof {
    const tvm_ir_kernel *kernel;
    uint32_t slot;   /* of the mbarriers */
    uint32_t *role;  /* by instruction: one more than the role around it; 0: none */
    uint32_t *outer; /* by instruction: what opens the innermost control around it; TVM_NONE */
} proof;

/* A role, and the instructions of it that decide when its events come. */
typedef struct part {
    uint32_t first, end;
    tvm_opcode event; /* at the mbarriers */
    bool *kept;       /* by instruction */
} part;

/* ---- events ---- */

/* The operand that names the mbarriers; NULL: the instruction has nothing to do with them. */
static const tvm_operand *barrier_of(const proof *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT && operands[o].value == p->slot) return &operands[o];
    return NULL;
}

static bool is_event(const proof *p, const tvm_insn *insn, tvm_opcode op) {
    return insn->op == op && barrier_of(p, insn);
}

/* One index: mbarriers are made in rows of one dimension, or are looked at no further. */
static uint32_t index_of(const tvm_operand *barrier) {
    return barrier[1].value;
}

static bool same_expr(const proof *p, uint32_t a, uint32_t b) {
    const tvm_expr *x = &p->kernel->exprs[a], *y = &p->kernel->exprs[b];
    const uint32_t of_x[3] = {x->a, x->b, x->c}, of_y[3] = {y->a, y->b, y->c};
    unsigned arity = tvm_expr_arity(x);
    if (a == b) return true;
    if (x->op != y->op || !tvm_dtype_same(x->type, y->type) || x->value.i != y->value.i) return false;
    for (unsigned i = 0; i < 3; i++)
        if (i < arity ? !same_expr(p, of_x[i], of_y[i]) : of_x[i] != of_y[i]) return false;
    return true;
}

/* Does the event come at the same mbarrier after the instruction, on the same straight line? */
static bool follows(const proof *p, uint32_t at, tvm_opcode op) {
    uint32_t index = index_of(barrier_of(p, &p->kernel->insns[at]));
    for (uint32_t i = at + 1; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (is_event(p, insn, op) && same_expr(p, index_of(barrier_of(p, insn)), index)) return true;
        if (class <= TVM_CLASS_JUMP || class == TVM_CLASS_EXIT || class == TVM_CLASS_SECTION ||
            (insn->result != TVM_NONE && tvm_expr_reads(p->kernel, index, insn->result))) {
            bool plain = insn->op == TVM_OP_LET && !tvm_expr_reads(p->kernel, index, insn->result);
            if (!plain) return false;
        }
    }
    return false;
}

/* ---- one team ---- */

static bool has_teams(const proof *p, uint32_t role) {
    const tvm_role of = tvm_role_of(p->kernel, &p->kernel->insns[role - 1]);
    return tvm_role_teams(&of) > 1;
}

static bool is_in_line(const proof *p) {
    uint32_t role = TVM_NONE;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        if (insn->op == TVM_OP_ALLOC_BARRIER || !barrier_of(p, insn)) continue;
        if (role != TVM_NONE && p->role[i] != role) return false;
        role = p->role[i];
        if (role && has_teams(p, role)) return false;
        if (insn->op == TVM_OP_COPY_BULK && !follows(p, i, TVM_OP_ARRIVE_BARRIER)) return false;
        if (insn->op == TVM_OP_ARRIVE_BARRIER && !follows(p, i, TVM_OP_WAIT_BARRIER)) return false;
    }
    return true;
}

/* ---- two roles ---- */

/* The first role from this instruction on that has events of the kind; false: there is none. */
static bool find_part(const proof *p, tvm_opcode event, uint32_t from, part *out) {
    for (uint32_t i = from; i < p->kernel->insn_count; i++) {
        uint32_t role = p->role[i];
        if (role == 0 || !is_event(p, &p->kernel->insns[i], event)) continue;
        *out = (part){.first = role, .end = p->kernel->insns[role - 1].match, .event = event};
        return true;
    }
    return false;
}

/* Are all events of the kind the part's? */
static bool is_only_part(const proof *p, const part *of) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++)
        if (is_event(p, &p->kernel->insns[i], of->event) && (i < of->first || i >= of->end)) return false;
    return true;
}

/* Instructions that are kept, in the order in which they were found, and variables whose setters are. */
typedef struct slice {
    const proof *p;
    part *of;
    uint32_t *found;
    uint32_t count;
    bool *known; /* by slot */
} slice;

static void keep_one(slice *s, uint32_t at) {
    if (s->of->kept[at]) return;
    s->of->kept[at] = true;
    s->found[s->count++] = at;
}

/* Those that set the variables of the expression. */
static void keep_expr(slice *s, uint32_t expr) {
    const tvm_ir_kernel *kernel = s->p->kernel;
    const tvm_expr *e = &kernel->exprs[expr];
    const uint32_t operands[3] = {e->a, e->b, e->c};
    if (e->op == TVM_EXPR_SLOT && !s->known[e->a]) {
        s->known[e->a] = true;
        for (uint32_t i = s->of->first; i < s->of->end; i++)
            if (kernel->insns[i].result == e->a) keep_one(s, i);
    }
    for (unsigned i = 0; i < tvm_expr_op_info(e->op)->arity; i++) keep_expr(s, operands[i]);
}

/* What opens the innermost control around the instruction, with its division, its end, and what jumps there.
 */
static void keep_around(slice *s, uint32_t at) {
    const tvm_ir_kernel *kernel = s->p->kernel;
    uint32_t opener = s->p->outer[at];
    if (opener == TVM_NONE || opener < s->of->first || s->of->kept[opener]) return;
    uint32_t middle = kernel->insns[opener].match;
    keep_one(s, opener);
    keep_one(s, middle);
    if (tvm_insn_class(&kernel->insns[middle]) == TVM_CLASS_ELSE) keep_one(s, kernel->insns[middle].match);
    for (uint32_t i = opener; i < middle; i++)
        if (tvm_insn_class(&kernel->insns[i]) == TVM_CLASS_JUMP && kernel->insns[i].match == opener)
            keep_one(s, i);
}

static void keep_needs(slice *s, uint32_t at) {
    const tvm_insn *insn = &s->p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(s->p->kernel, insn);
    keep_around(s, at);
    if (insn->op == s->of->event) {
        keep_expr(s, index_of(operands));
        return;
    }
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_EXPR) keep_expr(s, operands[o].value);
}

/* False: out of memory. */
static bool keep(const proof *p, part *of) {
    slice s = {.p = p, .of = of};
    of->kept = calloc(p->kernel->insn_count, sizeof *of->kept);
    s.found = calloc(p->kernel->insn_count, sizeof *s.found);
    s.known = calloc((size_t)p->kernel->slot_count + 1, sizeof *s.known);
    bool made = of->kept && s.found && s.known;
    for (uint32_t i = of->first; i < of->end && made; i++)
        if (is_event(p, &p->kernel->insns[i], of->event)) keep_one(&s, i);
    for (uint32_t f = 0; f < s.count && made; f++) keep_needs(&s, s.found[f]);
    free(s.found);
    free(s.known);
    return made;
}

/* Does it do the same for whoever does it? */
static bool is_known(const proof *p, const tvm_insn *insn, tvm_opcode event) {
    tvm_op_class class = tvm_insn_class(insn);
    if (insn->op == TVM_OP_LOAD_SCALAR)
        return !tvm_writes_global(p->kernel, tvm_operands(p->kernel, insn)->value);
    return insn->op == event || insn->op == TVM_OP_LET || class == TVM_CLASS_LOOP ||
           class == TVM_CLASS_BRANCH || class == TVM_CLASS_ELSE || class == TVM_CLASS_END ||
           class == TVM_CLASS_JUMP;
}

static bool sets(const proof *p, const part *of, uint32_t slot) {
    for (uint32_t i = of->first; i < of->end; i++)
        if (p->kernel->insns[i].result == slot) return true;
    return false;
}

/* Variables of the one role and those of the other that stand for them; outside of both they are the same. */
typedef struct names {
    const proof *p;
    const part *a, *b;
    uint32_t *of; /* by slot of a: one more than that of b; 0: not known yet */
    uint32_t *by; /* the other way round */
} names;

static bool same_name(names *n, uint32_t a, uint32_t b) {
    if (!sets(n->p, n->a, a) && !sets(n->p, n->b, b)) return a == b;
    if (!n->of[a] && !n->by[b]) {
        n->of[a] = b + 1;
        n->by[b] = a + 1;
    }
    return n->of[a] == b + 1 && n->by[b] == a + 1;
}

static bool match_expr(names *n, uint32_t a, uint32_t b) {
    const tvm_expr *x = &n->p->kernel->exprs[a], *y = &n->p->kernel->exprs[b];
    const uint32_t of_x[3] = {x->a, x->b, x->c}, of_y[3] = {y->a, y->b, y->c};
    unsigned arity = tvm_expr_arity(x);
    if (x->op != y->op || !tvm_dtype_same(x->type, y->type) || x->value.i != y->value.i) return false;
    if (x->op == TVM_EXPR_SLOT) return same_name(n, x->a, y->a);
    for (unsigned i = 0; i < 3; i++)
        if (i < arity ? !match_expr(n, of_x[i], of_y[i]) : of_x[i] != of_y[i]) return false;
    return true;
}

static bool match_insn(names *n, const tvm_insn *a, const tvm_insn *b) {
    const tvm_operand *x = tvm_operands(n->p->kernel, a), *y = tvm_operands(n->p->kernel, b);
    if (!is_known(n->p, a, n->a->event) || !is_known(n->p, b, n->b->event)) return false;
    if (a->op == n->a->event || b->op == n->b->event)
        return a->op == n->a->event && b->op == n->b->event && match_expr(n, index_of(x), index_of(y));
    if (a->op != b->op || a->count != b->count || (a->result == TVM_NONE) != (b->result == TVM_NONE))
        return false;
    for (uint32_t o = 0; o < a->count; o++) {
        if (x[o].kind != y[o].kind) return false;
        if (x[o].kind == TVM_OPERAND_EXPR ? !match_expr(n, x[o].value, y[o].value) : x[o].value != y[o].value)
            return false;
    }
    return a->result == TVM_NONE || same_name(n, a->result, b->result);
}

static bool match_parts(names *n) {
    const tvm_ir_kernel *kernel = n->p->kernel;
    uint32_t i = n->a->first, j = n->b->first;
    for (;; i++, j++) {
        while (i < n->a->end && !n->a->kept[i]) i++;
        while (j < n->b->end && !n->b->kept[j]) j++;
        if (i >= n->a->end || j >= n->b->end) return i >= n->a->end && j >= n->b->end;
        if (!match_insn(n, &kernel->insns[i], &kernel->insns[j])) return false;
    }
}

static bool is_copied_before_arrivals(const proof *p, const part *of) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        if (!is_event(p, &p->kernel->insns[i], TVM_OP_COPY_BULK)) continue;
        if (i < of->first || i >= of->end || !follows(p, i, TVM_OP_ARRIVE_BARRIER)) return false;
    }
    return true;
}

/* Do the arrivals come as the waits do? False, too, where there is no memory. */
static bool are_alike(const proof *p, part a, part b, bool *no_memory) {
    const tvm_ir_kernel *kernel = p->kernel;
    names n = {.p = p, .a = &a, .b = &b};
    n.of = calloc((size_t)kernel->slot_count + 1, sizeof *n.of);
    n.by = calloc((size_t)kernel->slot_count + 1, sizeof *n.by);
    *no_memory = !n.of || !n.by || !keep(p, &a) || !keep(p, &b);
    bool alike = !*no_memory && match_parts(&n);
    free(a.kept);
    free(b.kept);
    free(n.of);
    free(n.by);
    return alike;
}

/* One role arrives, and of those that wait one does so as often: it ends when all phases have ended. */
static bool is_awaited(const proof *p, bool *no_memory) {
    part arrivals, waits;
    if (!find_part(p, TVM_OP_ARRIVE_BARRIER, 0, &arrivals) || !is_only_part(p, &arrivals)) return false;
    if (has_teams(p, arrivals.first) || !is_copied_before_arrivals(p, &arrivals)) return false;
    for (uint32_t from = 0; find_part(p, TVM_OP_WAIT_BARRIER, from, &waits); from = waits.end)
        if (are_alike(p, arrivals, waits, no_memory)) return true;
    return false;
}

/* ---- slots ---- */

/* One arrival of a team ends a phase, no block arrives at another's mbarriers, and none is open. */
static bool is_plain(const proof *p) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        const tvm_operand *operands = tvm_operands(p->kernel, insn);
        if (insn->op == TVM_OP_ALLOC_BARRIER && insn->result == p->slot &&
            ((operands[0].kind != TVM_OPERAND_NONE && operands[0].value != 1) ||
             operands[1].kind != TVM_OPERAND_NONE))
            return false;
        if (!barrier_of(p, insn)) continue;
        if (insn->op == TVM_OP_COPY_CLUSTER || insn->op == TVM_OP_SYNC_BARRIER ||
            insn->op == TVM_OP_COMMIT_TENSOR)
            return false;
        if (insn->op == TVM_OP_ARRIVE_BARRIER && operands[insn->count - 1].kind != TVM_OPERAND_NONE)
            return false;
    }
    return true;
}

static void find_outer(proof *p) {
    uint32_t stack[TVM_MAX_DEPTH + 1], depth = 0;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        if (tvm_insn_class(insn) == TVM_CLASS_END) depth--;
        p->outer[i] = depth > 0 ? stack[depth - 1] : TVM_NONE;
        p->role[i] =
            depth > 0 && tvm_insn_class(&p->kernel->insns[stack[0]]) == TVM_CLASS_SECTION ? stack[0] + 1 : 0;
        if (tvm_class_opens(tvm_insn_class(insn))) stack[depth++] = i;
    }
}

static bool is_proved(const tvm_ir_program *program, const proof *p, bool *no_memory) {
    if (tvm_slot_rank(program, &p->kernel->slots[p->slot]) != 1 || !is_plain(p)) return false;
    return is_in_line(p) || is_awaited(p, no_memory);
}

bool tvm_drains_find(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_target target,
                     bool *undrained) {
    proof p = {.kernel = kernel,
               .role = calloc((size_t)kernel->insn_count + 1, sizeof *p.role),
               .outer = calloc((size_t)kernel->insn_count + 1, sizeof *p.outer)};
    bool no_memory = !p.role || !p.outer;
    if (!no_memory) find_outer(&p);
    for (uint32_t i = 0; i < kernel->insn_count && tvm_target_has(target, TVM_HAS_BULK) && !no_memory; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op != TVM_OP_COPY_BULK && insn->op != TVM_OP_COPY_CLUSTER) continue;
        const tvm_operand *operands = tvm_operands(kernel, insn);
        for (uint32_t o = 0; o < insn->count; o++) {
            p.slot = operands[o].value;
            if (operands[o].kind == TVM_OPERAND_SLOT && kernel->slots[p.slot].kind == TVM_SLOT_BARRIER)
                undrained[p.slot] = !is_proved(program, &p, &no_memory);
        }
    }
    free(p.role);
    free(p.outer);
    return !no_memory;
}
