/* What a path through a kernel sees. Control is structured, so one pass over the instructions is enough: a
 * set of variables that are assigned on every path to here, saved where control opens and met where it
 * closes. */
#include "verify_state.h"

#include "tensor_memory.h"
#include "view.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SET_WORDS = TVM_MAX_SLOTS / 64 };

typedef struct slot_set {
    uint64_t words[SET_WORDS];
} slot_set;

typedef struct frame {
    uint32_t opener;
    slot_set
        entry; /* IF: before it. Loops: at the head, whence every path out comes. ROLE: for the other warps */
    slot_set then; /* IF with ELSE: after the first body */
    bool has_else;
} frame;

typedef enum tensor_life { NOT_YET, LIVE, FREED } tensor_life;

typedef struct flow {
    tvm_verify_state *state;
    const tvm_ir_kernel *kernel;
    unsigned words; /* of the sets that are used */
    unsigned depth;
    uint32_t role; /* 1 + the instruction of the role around; 0: there is none */
    uint64_t shared_bytes;
    uint64_t tensor_columns;
    uint32_t canceler; /* 1 + the role of cancel-block as in `role`; 0: there was none */
    bool works, pairs; /* the tensor core is given work; of pairs of blocks */
    unsigned launch_tensors;
    slot_set assigned;
    uint32_t owner[TVM_MAX_SLOTS]; /* 1 + the instruction of the last role that assigned it; 0: none has */
    uint8_t life[TVM_MAX_SLOTS];   /* tensor_life of SHARED, BARRIER, TENSOR, and GLOBAL slots that are no
                                      parameters */
    frame frames[TVM_MAX_DEPTH];
} flow;

/* ---- sets ---- */

static bool set_has(const slot_set *set, uint32_t slot) {
    return set->words[slot / 64] >> (slot % 64) & 1;
}
static void set_add(slot_set *set, uint32_t slot) {
    set->words[slot / 64] |= UINT64_C(1) << (slot % 64);
}
static void set_remove(slot_set *set, uint32_t slot) {
    set->words[slot / 64] &= ~(UINT64_C(1) << (slot % 64));
}

static void set_copy(const flow *f, slot_set *to, const slot_set *from) {
    memcpy(to->words, from->words, f->words * sizeof from->words[0]);
}

static void set_meet(const flow *f, slot_set *into, const slot_set *with) {
    for (unsigned i = 0; i < f->words; i++) into->words[i] &= with->words[i];
}

/* No path leads here: whatever is asked holds. */
static void set_unreachable(const flow *f, slot_set *set) {
    for (unsigned i = 0; i < f->words; i++) set->words[i] = UINT64_MAX;
}

/* ---- reads ---- */

static const char *name_of(const flow *f, uint32_t slot) {
    return tvm_string(f->state->program, f->kernel->slots[slot].name);
}

static void read_slot(flow *f, const tvm_insn *insn, uint32_t slot) {
    if (f->kernel->slots[slot].kind == TVM_SLOT_SHARED) {
        uint32_t root = f->life[slot] == LIVE ? tvm_view_root(f->kernel, slot) : slot;
        if (f->life[root] != LIVE)
            tvm_verify_error(f->state, insn, "shared tensor '%s' is used %s", name_of(f, slot),
                             f->life[root] == FREED ? "after free-shared" : "before alloc-shared");
    } else if (f->kernel->slots[slot].kind == TVM_SLOT_TENSOR) {
        if (f->life[slot] != LIVE)
            tvm_verify_error(f->state, insn, "'%s' is used %s", name_of(f, slot),
                             f->life[slot] == FREED ? "after free-tensor" : "before alloc-tensor");
    } else if (!set_has(&f->assigned, slot)) {
        if (f->role && f->kernel->slots[slot].kind == TVM_SLOT_REGISTER && set_has(&f->frames[0].entry, slot))
            tvm_verify_error(f->state, insn, "'%s' is the block's: a role has register tensors of its own",
                             name_of(f, slot));
        else if (f->owner[slot] && f->owner[slot] != f->role)
            tvm_verify_error(f->state, insn, "'%s' belongs to role '%s', which assigned it", name_of(f, slot),
                             name_of(f, f->kernel->insns[f->owner[slot] - 1].result));
        else
            tvm_verify_error(f->state, insn, "'%s' may be used before it is assigned", name_of(f, slot));
        set_add(&f->assigned, slot); /* one report is enough */
    }
}

/* The limit on the size of a tree bounds the recursion. */
static void read_expr(flow *f, const tvm_insn *insn, uint32_t expr) {
    const tvm_expr *node = &f->kernel->exprs[expr];
    unsigned arity = tvm_expr_arity(node);
    if (node->op == TVM_EXPR_SLOT) read_slot(f, insn, node->a);
    if (node->op == TVM_EXPR_MULTIPROCESSORS)
        tvm_verify_error(f->state, insn, "multiprocessors is known to the launch alone: expected grid");
    else if (tvm_expr_is_of_device(node->op))
        tvm_verify_error(f->state, insn, "%s is known to the launch alone", tvm_expr_op_info(node->op)->text);
    for (unsigned i = 0; i < arity; i++) read_expr(f, insn, node->operands[i]);
}

static void read_operands(flow *f, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(f->kernel, insn);
    for (uint32_t i = 0; i < insn->count; i++) {
        if (operands[i].kind == TVM_OPERAND_SLOT) read_slot(f, insn, operands[i].value);
        if (operands[i].kind != TVM_OPERAND_EXPR) continue;
        if (!tvm_verify_charge(f->state, f->kernel->exprs[operands[i].value].size)) return;
        read_expr(f, insn, operands[i].value);
    }
}

/* ---- control ---- */

/* A loop with a result has a variable, set in each iteration from operands that are read once; one without
 * reads its operands in each iteration. */
static bool assigns_each_turn(const tvm_insn *insn) {
    return tvm_insn_class(insn) == TVM_CLASS_LOOP && insn->result != TVM_NONE;
}
static bool reads_each_turn(const tvm_insn *insn) {
    return tvm_insn_class(insn) == TVM_CLASS_LOOP && insn->result == TVM_NONE;
}

static bool is_loop_variable(const flow *f, uint32_t slot) {
    for (unsigned d = 0; d < f->depth; d++) {
        const tvm_insn *opener = &f->kernel->insns[f->frames[d].opener];
        if (assigns_each_turn(opener) && opener->result == slot) return true;
    }
    return false;
}

static void open_if(flow *f, uint32_t at) {
    frame *top = &f->frames[f->depth++];
    top->opener = at;
    top->has_else = false;
    set_copy(f, &top->entry, &f->assigned);
}

/* The role has what was assigned before, but register tensors, which are spread over other threads. */
static void open_role(flow *f, uint32_t at) {
    frame *top = &f->frames[f->depth++];
    top->opener = at;
    f->role = at + 1;
    set_copy(f, &top->entry, &f->assigned);
    set_remove(&top->entry, f->kernel->insns[at].result);
    for (uint32_t s = 0; s < f->kernel->slot_count; s++)
        if (f->kernel->slots[s].kind == TVM_SLOT_REGISTER) set_remove(&f->assigned, s);
}

/* What it assigned, the others do not have. */
static void close_role(flow *f) {
    set_copy(f, &f->assigned, &f->frames[f->depth].entry);
    for (uint32_t s = 0; s < f->kernel->slot_count; s++)
        if (f->owner[s] == f->role) set_remove(&f->assigned, s);
    f->role = 0;
}

static void open_else(flow *f) {
    frame *top = &f->frames[f->depth - 1];
    top->has_else = true;
    set_copy(f, &top->then, &f->assigned);
    set_copy(f, &f->assigned, &top->entry);
}

/* A loop variable has no value after its loop, nor, when that loop stands in another's body, at the other's
 * head from the second iteration on. Every other variable that is assigned before a loop is so in every
 * iteration. */
static void open_loop(flow *f, uint32_t at) {
    const tvm_insn *insn = &f->kernel->insns[at];
    if (!tvm_verify_charge(f->state, insn->match - at)) return;
    for (uint32_t i = at; i < insn->match; i++)
        if (assigns_each_turn(&f->kernel->insns[i])) set_remove(&f->assigned, f->kernel->insns[i].result);
    if (reads_each_turn(insn)) read_operands(f, insn);
    frame *top = &f->frames[f->depth++];
    top->opener = at;
    set_copy(f, &top->entry, &f->assigned);
    if (assigns_each_turn(insn)) set_add(&f->assigned, insn->result);
}

static void close(flow *f) {
    frame *top = &f->frames[--f->depth];
    tvm_op_class class = tvm_insn_class(&f->kernel->insns[top->opener]);
    if (class == TVM_CLASS_LOOP)
        set_copy(f, &f->assigned, &top->entry);
    else if (class == TVM_CLASS_SECTION)
        close_role(f);
    else
        set_meet(f, &f->assigned, top->has_else ? &top->then : &top->entry);
}

/* ---- shared memory ---- */

static uint64_t shared_size(const flow *f, uint32_t slot) {
    const tvm_slot *of = &f->kernel->slots[slot];
    return (uint64_t)tvm_shared_layout_span(&f->state->program->shared_layouts[of->layout]) * of->dtype.bits /
           8;
}

static void alloc_shared(flow *f, const tvm_insn *insn) {
    uint32_t slot = insn->result;
    if (f->depth > 0) {
        tvm_verify_error(f->state, insn, "shared memory cannot be allocated inside for, while, if or role");
        f->life[slot] = LIVE; /* one report is enough */
    } else if (f->life[slot] != NOT_YET) {
        tvm_verify_error(f->state, insn, "shared tensor '%s' is allocated twice", name_of(f, slot));
    } else {
        f->life[slot] = LIVE;
        uint64_t before = f->shared_bytes;
        f->shared_bytes += shared_size(f, slot);
        if (before <= TVM_MAX_SHARED_BYTES && f->shared_bytes > TVM_MAX_SHARED_BYTES)
            tvm_verify_error(f->state, insn, "%llu bytes of shared memory, expected at most %d",
                             (unsigned long long)f->shared_bytes, TVM_MAX_SHARED_BYTES);
    }
}

static void free_shared(flow *f, const tvm_insn *insn) {
    uint32_t slot = tvm_operands(f->kernel, insn)[0].value;
    if (f->depth > 0) {
        tvm_verify_error(f->state, insn, "shared memory cannot be freed inside for, while, if or role");
    } else if (f->kernel->slots[slot].view) {
        tvm_verify_error(f->state, insn, "'%s' is a view: expected the tensor that alloc-shared made",
                         name_of(f, slot));
    } else if (f->life[slot] == LIVE) {
        f->life[slot] = FREED;
        f->shared_bytes -= shared_size(f, slot);
    }
}

static void alloc_barrier(flow *f, const tvm_insn *insn) {
    uint32_t slot = insn->result;
    if (f->depth > 0)
        tvm_verify_error(f->state, insn, "mbarriers cannot be made inside for, while, if or role");
    else if (f->life[slot] != NOT_YET)
        tvm_verify_error(f->state, insn, "the mbarriers '%s' are made twice", name_of(f, slot));
    else
        f->shared_bytes += shared_size(f, slot);
    f->life[slot] = LIVE;
}

/* ---- tensor memory ---- */

static void alloc_tensor(flow *f, const tvm_insn *insn) {
    uint32_t slot = insn->result;
    uint64_t before = f->tensor_columns;
    if (f->depth > 0)
        tvm_verify_error(f->state, insn, "tensor memory cannot be allocated inside for, while, if or role");
    else if (f->life[slot] != NOT_YET)
        tvm_verify_error(f->state, insn, "'%s' is allocated twice", name_of(f, slot));
    else
        f->tensor_columns += tvm_tensor_columns(f->state->program, &f->kernel->slots[slot]);
    if (before <= TVM_TENSOR_COLUMNS && f->tensor_columns > TVM_TENSOR_COLUMNS)
        tvm_verify_error(f->state, insn, "%llu columns of tensor memory, expected at most %d",
                         (unsigned long long)f->tensor_columns, TVM_TENSOR_COLUMNS);
    f->life[slot] = LIVE;
}

static void free_tensor(flow *f, const tvm_insn *insn) {
    uint32_t slot = tvm_operands(f->kernel, insn)[0].value;
    if (f->depth > 0) {
        tvm_verify_error(f->state, insn, "tensor memory cannot be freed inside for, while, if or role");
    } else if (f->life[slot] == LIVE) {
        f->life[slot] = FREED;
        f->tensor_columns -= tvm_tensor_columns(f->state->program, &f->kernel->slots[slot]);
    }
}

/* ---- tensors of the launch ---- */

static void alloc_global(flow *f, const tvm_insn *insn) {
    uint32_t slot = insn->result;
    if (f->depth > 0)
        tvm_verify_error(f->state, insn, "a global tensor cannot be allocated inside for, while, if or role");
    else if (f->life[slot] != NOT_YET)
        tvm_verify_error(f->state, insn, "global tensor '%s' is allocated twice", name_of(f, slot));
    else if (f->launch_tensors++ == TVM_MAX_LAUNCH_TENSORS)
        tvm_verify_error(f->state, insn, "a kernel allocates at most %d global tensors",
                         TVM_MAX_LAUNCH_TENSORS);
    f->life[slot] = LIVE;
}

static void check_allocated(flow *f) {
    for (uint32_t s = f->kernel->param_count; s < f->kernel->slot_count; s++)
        if (f->kernel->slots[s].kind == TVM_SLOT_GLOBAL && f->life[s] == NOT_YET)
            tvm_verify_error(f->state, NULL, "global tensor '%s' is never allocated", name_of(f, s));
}

/* ---- one pass ---- */

/* Register tensors need no more than assign. */
static void allocate(flow *f, const tvm_insn *insn) {
    if (f->kernel->slots[insn->result].kind == TVM_SLOT_SHARED) alloc_shared(f, insn);
    if (f->kernel->slots[insn->result].kind == TVM_SLOT_BARRIER) alloc_barrier(f, insn);
    if (f->kernel->slots[insn->result].kind == TVM_SLOT_GLOBAL) alloc_global(f, insn);
    if (f->kernel->slots[insn->result].kind == TVM_SLOT_TENSOR) alloc_tensor(f, insn);
}

/* One name is one view: what an access looks at does not depend on the path. */
static void make_view(flow *f, const tvm_insn *insn) {
    const tvm_slot *slot = &f->kernel->slots[insn->result];
    if (f->life[insn->result] != NOT_YET)
        tvm_verify_error(f->state, insn, "'%s' is made twice: expected a name of its own for each view",
                         name_of(f, insn->result));
    else if (slot->kind == TVM_SLOT_GLOBAL && slot->form != TVM_FORM_PART && !slot->at_launch)
        tvm_verify_error(
            f->state, insn,
            "a view with strides stands outside of control and before exit, at an index that the launch "
            "knows");
    else if (tvm_view_depth(f->kernel, insn->result) > TVM_MAX_VIEW_DEPTH)
        tvm_verify_error(f->state, insn, "views of views are at most %d deep", TVM_MAX_VIEW_DEPTH);
    f->life[insn->result] = LIVE;
}

static void assign(flow *f, const tvm_insn *insn) {
    if (insn->result == TVM_NONE) return;
    if (f->kernel->slots[insn->result].view) make_view(f, insn);
    if (is_loop_variable(f, insn->result))
        tvm_verify_error(f->state, insn, "'%s' is the variable of a loop around it, which cannot be assigned",
                         name_of(f, insn->result));
    if (!assigns_each_turn(insn)) set_add(&f->assigned, insn->result);
    if (f->role) f->owner[insn->result] = f->role;
}

/* PTX ISA, "tcgen05.mma": all instructions of tcgen05 of a kernel have one .cta_group. */
static void check_pairs(flow *f, const tvm_insn *insn) {
    const unsigned both = TVM_EFFECT_ASYNC | TVM_EFFECT_TENSOR;
    bool works = (tvm_op(insn->op)->effects & both) == both && tvm_insn_class(insn) == TVM_CLASS_MOVE;
    if (!works && insn->op != TVM_OP_COMMIT_TENSOR) return;
    bool pair = tvm_tensor_is_pair(f->kernel, insn);
    if (f->works && pair != f->pairs)
        tvm_verify_error(f->state, insn,
                         "pair: expected it with all copy-tensor, mma-tensor and commit-tensor of the "
                         "kernel, or with none");
    f->works = true;
    f->pairs = pair;
}

/* PTX ISA, "clusterlaunchcontrol.try_cancel": a request behind an answer that there is no block left is not
 * defined, so that one team asks. */
static void check_cancels(flow *f, const tvm_insn *insn) {
    if (insn->op != TVM_OP_CANCEL_BLOCK) return;
    if (f->canceler && f->canceler != f->role + 1)
        tvm_verify_error(f->state, insn,
                         "another team has a cancel-block, too: expected them in one role, or in none");
    f->canceler = f->role + 1;
    if (tvm_kernel_waits(f->kernel))
        tvm_verify_error(f->state, insn,
                         "blocks of the kernel wait for each other, and one that is canceled never comes");
    if (!f->role) return;
    const tvm_role role = tvm_role_of(f->kernel, &f->kernel->insns[f->role - 1]);
    if (tvm_role_teams(&role) > 1)
        tvm_verify_error(f->state, insn, "the role has %u teams: expected one, which asks for all",
                         tvm_role_teams(&role));
}

static void flow_insn(flow *f, uint32_t at) {
    const tvm_insn *insn = &f->kernel->insns[at];
    check_pairs(f, insn);
    check_cancels(f, insn);
    if (!reads_each_turn(insn)) read_operands(f, insn);
    assign(f, insn);
    switch (tvm_insn_class(insn)) {
    case TVM_CLASS_BRANCH:
        open_if(f, at);
        break;
    case TVM_CLASS_SECTION:
        open_role(f, at);
        break;
    case TVM_CLASS_ELSE:
        open_else(f);
        break;
    case TVM_CLASS_LOOP:
        open_loop(f, at);
        break;
    case TVM_CLASS_END:
        close(f);
        break;
    case TVM_CLASS_JUMP:
    case TVM_CLASS_EXIT:
        set_unreachable(f, &f->assigned);
        break;
    case TVM_CLASS_ALLOCATE:
        allocate(f, insn);
        break;
    case TVM_CLASS_FREE:
        if (f->kernel->slots[tvm_operands(f->kernel, insn)[0].value].kind == TVM_SLOT_TENSOR)
            free_tensor(f, insn);
        else
            free_shared(f, insn);
        break;
    default:
        break;
    }
}

void tvm_verify_flow(tvm_verify_state *state) {
    flow *f = malloc(sizeof *f);
    if (f == NULL) {
        state->status = tvm_diag_no_memory(state->diags);
        state->errors++;
        state->stopped = true;
        return;
    }
    /* What is kept by slot is set for those that there are; frames are filled when control opens. */
    memset(f, 0, offsetof(flow, assigned));
    f->state = state;
    f->kernel = state->kernel;
    f->words = (f->kernel->slot_count + 63) / 64;
    memset(f->assigned.words, 0, f->words * sizeof f->assigned.words[0]);
    memset(f->owner, 0, f->kernel->slot_count * sizeof f->owner[0]);
    memset(f->life, NOT_YET, f->kernel->slot_count * sizeof f->life[0]);
    for (uint32_t p = 0; p < f->kernel->param_count; p++) set_add(&f->assigned, p);
    for (uint32_t i = 0; i < f->kernel->insn_count && !tvm_verify_done(state); i++) flow_insn(f, i);
    check_allocated(f);
    free(f);
}
