/* A kernel with a pipelined loop in two roles. The producer, one warp, runs what decides whether the loop's
 * turns come and where their copies read, and starts the copies; the consumer, the warps that the kernel had,
 * runs all else. A stage's tiles are full when its copies have come, and empty when the consumer has read
 * them:
 *
 *     %full = alloc-barrier [STAGES]           %empty = alloc-barrier [STAGES], open
 *     role produce                             role consume
 *         for ...                                  for ...
 *             wait-barrier %empty[%stage]              wait-barrier %full[%stage]
 *             copy-bulk ..., barrier %full[%stage]     the body
 *             arrive-barrier %full[%stage]             arrive-barrier %empty[%stage]
 *
 * Views of global tensors, which have one place, are made before the roles, as are the scalars that they
 * need. Stages go on from one run of the loop to the next, so that in a kernel that stays the next tile's
 * copies come during the epilogue. Where the body multiplies shared tiles, it arrives a turn later, before
 * which its own products need not be done.
 *
 * Where the tensor core has the products (pipeline_products.c) there is a third role of one warp, which the
 * loop goes to; the consumer is all else, and waits for the sums where the loop stood:
 *
 *     role multiply                            role consume
 *         wait-barrier %taken[%buffer]             wait-barrier %done[%buffer]
 *         for ...                                  load-tensor ...
 *             wait-barrier %full[%stage]           arrive-barrier %taken[%buffer]
 *             mma-tensor ...                       what follows
 *             commit-tensor %empty[%stage]
 *         commit-tensor %done[%buffer]
 */
#include "kernel_state.h"
#include "pipeline_build.h"

#include "tensor_memory.h"
#include "view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 4,
    REGISTERS = 1 << 16,
    MOST_OF_A_THREAD = 255,
    PRODUCER_REGISTERS = 24,
    MOST_OF_A_ROLE = 240
};

/* ---- what the producer runs ---- */

typedef struct slice {
    lowering *l;
    bool *kept;      /* by instruction */
    bool *before;    /* the same: done before the roles, for both */
    uint32_t *outer; /* by instruction: what opens the innermost control around it; TVM_NONE */
    bool grown;
    tvm_why *why;
    bool failed;
} slice;

static void keep(slice *s, uint32_t at) {
    if (s->kept[at] || s->before[at]) return;
    s->kept[at] = s->grown = true;
}

/* "what word" */
static void say(tvm_why *why, const char *what, const char *word) {
    if (why) snprintf(why->text, sizeof why->text, "%s%s", what, word);
}

static void refuse_slice(slice *s, const char *what) {
    s->failed = true;
    say(s->why, what, "");
}

static void keep_setters(slice *s, uint32_t slot) {
    const tvm_ir_kernel *kernel = s->l->from;
    for (uint32_t i = 0; i < kernel->insn_count && !s->failed; i++)
        if (kernel->insns[i].result == slot) keep(s, i);
}

/* The limit on the size of a tree bounds the recursion. */
static void keep_expr(slice *s, uint32_t expr) {
    const tvm_expr *node = &s->l->from->exprs[expr];
    const uint32_t children[3] = {node->a, node->b, node->c};
    if (node->op == TVM_EXPR_SLOT) keep_setters(s, node->a);
    for (unsigned i = 0; i < tvm_expr_op_info(node->op)->arity; i++) keep_expr(s, children[i]);
}

static bool is_register(const tvm_ir_kernel *kernel, const tvm_operand *operand) {
    return operand->kind == TVM_OPERAND_SLOT && kernel->slots[operand->value].kind == TVM_SLOT_REGISTER;
}

/* What the instruction needs: its scalars, and the control around it. */
static void keep_needs(slice *s, uint32_t at) {
    const tvm_ir_kernel *kernel = s->l->from;
    const tvm_insn *insn = &kernel->insns[at];
    const tvm_operand *operands = tvm_operands(kernel, insn);
    bool control = tvm_insn_class(insn) <= TVM_CLASS_JUMP;
    unsigned effects = tvm_pipeline_effects(kernel, insn);
    if (!control && effects & ~(unsigned)(TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_LAST_LAUNCH) &&
        !s->l->ahead[at])
        refuse_slice(s, "where the copies read depends on more than scalars and global memory");
    for (uint32_t o = 0; o < insn->count && !s->failed; o++) {
        if (operands[o].kind == TVM_OPERAND_EXPR) keep_expr(s, operands[o].value);
        if (operands[o].kind == TVM_OPERAND_SLOT &&
            kernel->slots[operands[o].value].kind == TVM_SLOT_GLOBAL &&
            tvm_writes_global(s->l->from, operands[o].value))
            refuse_slice(s, "the kernel writes what a copy reads");
        if (is_register(kernel, &operands[o]))
            refuse_slice(s, "where the copies read depends on a register tensor");
    }
    if (s->outer[at] != TVM_NONE) keep(s, s->outer[at]);
}

static void find_outer(slice *s) {
    const tvm_ir_kernel *kernel = s->l->from;
    uint32_t stack[TVM_MAX_DEPTH + 1], depth = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        tvm_op_class class = tvm_insn_class(&kernel->insns[i]);
        if (class == TVM_CLASS_END) depth--;
        s->outer[i] = depth > 0 ? stack[depth - 1] : TVM_NONE;
        if (tvm_class_opens(class)) stack[depth++] = i;
    }
}

/* Whole kernels that this form does not have. */
static bool is_simple(const lowering *l, tvm_why *why) {
    uint32_t loops = 0;
    for (uint32_t i = 0; i < l->from->insn_count; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        loops += tvm_pipeline_stages(l->from, insn) > 0;
        bool whole = insn->op == TVM_OP_SYNC_CLUSTER; /* is of all warps: it stands in no role */
        if (class == TVM_CLASS_SECTION || class == TVM_CLASS_EXIT || class == TVM_CLASS_FREE || whole) {
            say(why, "the kernel has ", tvm_op(insn->op)->mnemonic);
            return false;
        }
        if (i < l->loop.end && tvm_op(insn->op)->effects & TVM_EFFECT_WAIT) {
            say(why, "before the end of the loop stands ", tvm_op(insn->op)->mnemonic);
            return false;
        }
    }
    if (loops == 1 && l->loop.stages > 1 && l->from->warps + GROUP <= TVM_MAX_THREADS / 32) return true;
    say(why,
        loops > 1             ? "the kernel has several pipelined loops"
        : l->loop.stages == 1 ? "one stage has nothing ahead"
                              : "the block has no room for another warp",
        "");
    return false;
}

/* ---- what is done before the roles ---- */

static void do_before(slice *s, uint32_t at);

/* Variables have the value before the roles that they always have: one instruction sets each. */
static void set_before(slice *s, uint32_t expr, uint32_t user) {
    const tvm_ir_kernel *kernel = s->l->from;
    const tvm_expr *node = &kernel->exprs[expr];
    const uint32_t children[3] = {node->a, node->b, node->c};
    unsigned setters = 0;
    for (uint32_t i = 0; node->op == TVM_EXPR_SLOT && i < kernel->insn_count && !s->failed; i++) {
        if (kernel->insns[i].result != node->a) continue;
        if (setters++ || i > user)
            refuse_slice(s, "a view-global is made of a variable that changes");
        else
            do_before(s, i);
    }
    for (unsigned i = 0; i < tvm_expr_op_info(node->op)->arity && !s->failed; i++)
        set_before(s, children[i], user);
}

/* Does the instruction stand, or come to stand, where the next launch may still write what it reads? */
static bool follows_dependency(const tvm_ir_kernel *kernel, uint32_t at) {
    for (uint32_t i = 0; i < at; i++)
        if (tvm_op(kernel->insns[i].op)->effects & TVM_EFFECT_LAST_LAUNCH) return true;
    return false;
}

static void do_before(slice *s, uint32_t at) {
    const tvm_ir_kernel *kernel = s->l->from;
    const tvm_insn *insn = &kernel->insns[at];
    const tvm_operand *operands = tvm_operands(kernel, insn);
    unsigned effects = tvm_pipeline_effects(kernel, insn);
    if (s->before[at]) return;
    s->before[at] = true;
    if (s->outer[at] != TVM_NONE || at > s->l->loop.loop || tvm_class_opens(tvm_insn_class(insn)))
        refuse_slice(
            s,
            "a view-global, or what it is made of, stands in a loop or under a condition, or behind the loop");
    else if (effects & ~(unsigned)TVM_EFFECT_READ_GLOBAL)
        refuse_slice(s, "a view-global is made of more than scalars and global memory");
    else if (effects && follows_dependency(kernel, at))
        refuse_slice(s, "a view-global is made of what is read behind wait-dependency");
    for (uint32_t o = 0; o < insn->count && !s->failed; o++) {
        if (is_register(kernel, &operands[o]))
            refuse_slice(s, "a view-global is made of what is in a register tensor");
        if (operands[o].kind == TVM_OPERAND_EXPR) set_before(s, operands[o].value, at);
        if (operands[o].kind != TVM_OPERAND_SLOT || kernel->slots[operands[o].value].kind != TVM_SLOT_GLOBAL)
            continue;
        if (effects && tvm_writes_global(s->l->from, operands[o].value))
            refuse_slice(s, "the kernel writes what a view-global is made of");
    }
}

/* All views, in the order of the text, in which one is made before another that is made of it. */
static void find_before(slice *s) {
    for (uint32_t i = 0; i < s->l->from->insn_count && !s->failed; i++)
        if (s->l->from->insns[i].op == TVM_OP_VIEW_GLOBAL) do_before(s, i);
}

/* What is kept while anything needs it. */
static void grow(slice *s) {
    const tvm_ir_kernel *kernel = s->l->from;
    do {
        s->grown = false;
        for (uint32_t i = 0; i < kernel->insn_count && !s->failed; i++) {
            const tvm_insn *insn = &kernel->insns[i];
            bool jumps = tvm_insn_class(insn) == TVM_CLASS_JUMP && s->kept[insn->match];
            if (jumps || tvm_op(insn->op)->effects & TVM_EFFECT_LAST_LAUNCH) keep(s, i);
            if (s->kept[i]) keep_needs(s, i);
        }
    } while (s->grown && !s->failed);
}

/* What starts the copies; or, of the role that multiplies, the products. */
static void keep_work(slice *s, bool multiplies) {
    const lowering *l = s->l;
    keep(s, l->loop.loop);
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        const tvm_operand *operands = tvm_operands(l->from, insn);
        if (!multiplies && l->ahead[i]) keep(s, i);
        for (uint32_t o = 0; multiplies && insn->op == TVM_OP_MMA && o < insn->count; o++)
            if (operands[o].kind == TVM_OPERAND_EXPR) keep_expr(s, operands[o].value);
    }
}

/* False: it cannot be; l->failed where there is no memory. */
static bool find_slice(lowering *l, bool multiplies, tvm_why *why, bool **kept, bool **before) {
    slice s = {.l = l, .why = why};
    s.kept = calloc(l->from->insn_count, sizeof *s.kept);
    s.before = calloc(l->from->insn_count, sizeof *s.before);
    s.outer = calloc(l->from->insn_count, sizeof *s.outer);
    if (s.kept && s.before && s.outer) {
        find_outer(&s);
        find_before(&s);
        keep_work(&s, multiplies);
        grow(&s);
    } else {
        l->failed = s.failed = true;
    }
    free(s.outer);
    *kept = s.kept;
    *before = s.before;
    return !s.failed;
}

static void find_only_loop(lowering *l) {
    uint32_t at = 0;
    while (!tvm_pipeline_stages(l->from, &l->from->insns[at])) at++;
    tvm_lower_find(l, at);
}

bool tvm_lower_can_part(lowering *l, tvm_why *why) {
    find_only_loop(l);
    bool can = is_simple(l, why);
    for (unsigned multiplies = 0; can && multiplies <= (l->products.found != NULL); multiplies++) {
        bool *kept = NULL, *before = NULL;
        can = find_slice(l, multiplies, why, &kept, &before);
        free(kept);
        free(before);
    }
    l->loop.end = 0;
    return can && !l->failed;
}

/* ---- writing ---- */

typedef struct roles {
    lowering *l;
    bool *kept, *before;  /* as of a slice */
    uint32_t full, empty; /* slots */
    uint32_t products;    /* mma of shared tiles in the body: then it arrives a turn later */
    void (*write)(const struct roles *r, uint32_t at); /* an instruction of a slice */
    bool multiplies;                                   /* it is that of the role with the products */
} roles;

static void start_stages(lowering *l, const tvm_insn *place) {
    l->stage = tvm_lower_scalar(l, "stage", TVM_I(32));
    tvm_lower_let(l, place, l->stage, tvm_lower_constant(l, TVM_I(32), 0));
}

static void open_role(lowering *l, const tvm_insn *place, const char *name, uint32_t first, uint32_t end,
                      uint32_t registers) {
    uint32_t index = tvm_lower_scalar(l, name, TVM_I(32));
    tvm_operand operands[4] = {{TVM_OPERAND_CONST, first},
                               {TVM_OPERAND_CONST, end},
                               {TVM_OPERAND_NONE, 0},
                               {registers ? TVM_OPERAND_CONST : TVM_OPERAND_NONE, registers}};
    tvm_lower_insert(l, place, TVM_OP_ROLE, index, operands, 4);
}

static void close(lowering *l, const tvm_insn *place) {
    tvm_lower_insert(l, place, TVM_OP_END, TVM_NONE, NULL, 0);
}

/* The loop without its stages. */
static void open_loop(lowering *l, const tvm_insn *insn) {
    tvm_operand operands[TVM_FOR_PIPELINE + 1];
    memcpy(operands, tvm_operands(l->from, insn), sizeof operands);
    for (unsigned o = 0; o < 3; o++) operands[o].value = tvm_lower_expr(l, operands[o].value);
    operands[TVM_FOR_PIPELINE] = (tvm_operand){TVM_OPERAND_NONE, 0};
    uint32_t variable = l->renamed[insn->result] != TVM_NONE ? l->renamed[insn->result] : insn->result;
    tvm_lower_insert(l, insn, TVM_OP_FOR, variable, operands, TVM_FOR_PIPELINE + 1);
}

/* A copy-async as copy-bulk: target, source and tile as they are, then the mbarrier and the priority. */
static void write_copy(const roles *r, const tvm_insn *insn) {
    lowering *l = r->l;
    tvm_operand operands[TVM_INSN_OPERANDS + TVM_MAX_RANK];
    const tvm_operand *old = tvm_operands(l->from, insn);
    uint32_t target_rank = tvm_slot_rank(l->program, &l->from->slots[old->value]);
    uint32_t source = 1 + target_rank, tile = source + 1 + l->from->slots[old[source].value].rank;
    uint32_t evict = tile + 1 + old[tile].value, count = 0;
    for (uint32_t o = 0; o < evict; o++) {
        operands[count] = old[o];
        if (old[o].kind == TVM_OPERAND_EXPR) operands[count].value = tvm_lower_expr(l, old[o].value);
        count++;
        if (o == 0) operands[count++] = (tvm_operand){TVM_OPERAND_EXPR, l->tile};
    }
    operands[count++] = (tvm_operand){TVM_OPERAND_SLOT, r->full};
    operands[count++] = (tvm_operand){TVM_OPERAND_EXPR, l->tile};
    operands[count++] = old[evict];
    tvm_lower_insert(l, insn, TVM_OP_COPY_BULK, TVM_NONE, operands, count);
}

static void write_producer_insn(const roles *r, uint32_t at) {
    lowering *l = r->l;
    const tvm_insn *insn = &l->from->insns[at];
    if (at == l->loop.loop) {
        open_loop(l, insn);
        tvm_lower_barrier(l, insn, TVM_OP_WAIT_BARRIER, r->empty, l->tile, 0);
    } else if (at == l->loop.end) {
        tvm_lower_barrier(l, insn, TVM_OP_ARRIVE_BARRIER, r->full, l->tile, 0);
        tvm_lower_let(l, insn, l->stage, tvm_lower_tile_after(l));
        close(l, insn);
    } else if (insn->op == TVM_OP_COPY_ASYNC) {
        write_copy(r, insn);
    } else {
        tvm_lower_copy(l, insn);
    }
}

/* One thread of a warp starts them; a stage is empty, and a buffer of sums complete, when they are done. */
static void write_multiplier_insn(const roles *r, uint32_t at) {
    lowering *l = r->l;
    const tvm_insn *insn = &l->from->insns[at];
    if (at == l->loop.loop) {
        if (l->products.found->repeats)
            tvm_lower_buffer_barrier(l, insn, TVM_OP_WAIT_BARRIER, l->products.taken);
        tvm_lower_begin_products(l, insn);
        open_loop(l, insn);
        tvm_lower_barrier(l, insn, TVM_OP_WAIT_BARRIER, r->full, l->tile, 0);
    } else if (at == l->loop.end) {
        tvm_lower_barrier(l, insn, TVM_OP_COMMIT_TENSOR, r->empty, l->tile, 0);
        tvm_lower_let(l, insn, l->stage, tvm_lower_tile_after(l));
        tvm_lower_turn_products(l, insn);
        close(l, insn);
        tvm_lower_buffer_barrier(l, insn, TVM_OP_COMMIT_TENSOR, l->products.done);
        tvm_lower_next_buffer(l, insn);
    } else if (insn->op == TVM_OP_MMA) {
        tvm_lower_product(l, at);
    } else {
        tvm_lower_copy(l, insn);
    }
}

static bool is_of_slice(const roles *r, uint32_t at) {
    const tvm_insn *insns = r->l->from->insns;
    tvm_op_class class = tvm_insn_class(&insns[at]);
    uint32_t opener = insns[at].match;
    if (class == TVM_CLASS_ELSE) opener = insns[opener].match;
    if (class == TVM_CLASS_ELSE || class == TVM_CLASS_END) return r->kept[opener];
    return r->kept[at] || (r->multiplies && insns[at].op == TVM_OP_MMA);
}

static void write_slice(const roles *r) {
    lowering *l = r->l;
    const tvm_ir_kernel *from = l->from;
    start_stages(l, &from->insns[l->loop.loop]);
    if (r->multiplies) tvm_lower_first_buffer(l, &from->insns[l->loop.loop]);
    l->tile = tvm_lower_value(l, l->stage);
    for (uint32_t i = 0; i < from->insn_count; i++) {
        uint32_t slot = from->insns[i].result;
        if (!r->kept[i] || slot == TVM_NONE || l->renamed[slot] != TVM_NONE) continue;
        l->renamed[slot] =
            tvm_lower_scalar(l, tvm_string(l->program, from->slots[slot].name), from->slots[slot].dtype);
    }
    for (uint32_t i = 0; i < from->insn_count; i++)
        if (is_of_slice(r, i)) r->write(r, i);
    for (uint32_t s = 0; s < from->slot_count; s++) l->renamed[s] = TVM_NONE;
}

/* A stage is empty once nothing reads it: at the end of the turn, or in the next one behind its products. */
static void write_consumer_loop(const roles *r, bool opens) {
    lowering *l = r->l;
    const tvm_insn *insn = &l->from->insns[opens ? l->loop.loop : l->loop.end],
                   *loop = &l->from->insns[l->loop.loop];
    if (opens) {
        open_loop(l, insn);
        tvm_lower_barrier(l, insn, TVM_OP_WAIT_BARRIER, r->full, l->tile, 0);
        return;
    }
    if (r->products) {
        uint32_t start = tvm_operands(l->from, loop)[0].value;
        uint32_t later = tvm_lower_binary(l, TVM_EXPR_GT, TVM_BOOL, tvm_lower_value(l, loop->result), start);
        tvm_lower_insert(l, insn, TVM_OP_IF, TVM_NONE, &(tvm_operand){TVM_OPERAND_EXPR, later}, 1);
        tvm_lower_barrier(l, insn, TVM_OP_ARRIVE_BARRIER, r->empty, tvm_lower_tile_before(l), r->products);
        close(l, insn);
    } else {
        tvm_lower_barrier(l, insn, TVM_OP_ARRIVE_BARRIER, r->empty, l->tile, 0);
    }
    tvm_lower_let(l, insn, l->stage, tvm_lower_tile_after(l));
    close(l, insn);
    if (!r->products) return;
    uint32_t start = tvm_operands(l->from, loop)[0].value, end = tvm_operands(l->from, loop)[1].value;
    uint32_t any = tvm_lower_binary(l, TVM_EXPR_LT, TVM_BOOL, start, end);
    tvm_lower_insert(l, insn, TVM_OP_IF, TVM_NONE, &(tvm_operand){TVM_OPERAND_EXPR, any}, 1);
    tvm_lower_barrier(l, insn, TVM_OP_ARRIVE_BARRIER, r->empty, tvm_lower_tile_before(l), 0);
    close(l, insn);
}

static bool is_allocation(const lowering *l, const tvm_insn *insn) {
    return tvm_insn_class(insn) == TVM_CLASS_ALLOCATE &&
           l->from->slots[insn->result].kind != TVM_SLOT_REGISTER;
}

/* What is left beside the loop, of which another role has the products. */
static void write_epilogue(const roles *r) {
    lowering *l = r->l;
    const tvm_insn *loop = &l->from->insns[l->loop.loop];
    tvm_lower_first_buffer(l, loop);
    for (uint32_t i = 0; i < l->from->insn_count; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        const product_load load = tvm_lower_load_products(l, i);
        if (load.is_last && l->products.found->repeats) {
            tvm_lower_buffer_barrier(l, insn, TVM_OP_ARRIVE_BARRIER, l->products.taken);
            tvm_lower_next_buffer(l, insn);
        }
        if (i == l->loop.loop) {
            tvm_lower_await_products(l, insn);
            i = l->loop.end;
        } else if (!load.is_read && !is_allocation(l, insn) && !r->before[i]) {
            tvm_lower_copy(l, insn);
        }
    }
}

static void write_consumer(const roles *r) {
    lowering *l = r->l;
    start_stages(l, &l->from->insns[l->loop.loop]);
    l->tile = tvm_lower_value(l, l->stage);
    for (uint32_t i = 0; i < l->from->insn_count; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        if (i == l->loop.loop || i == l->loop.end)
            write_consumer_loop(r, i == l->loop.loop);
        else if (!is_allocation(l, insn) && !r->before[i] && !(l->ahead[i] && insn->op == TVM_OP_COPY_ASYNC))
            tvm_lower_copy(l, insn);
    }
}

/* The mma of the body whose operands wgmma reads from the rings, when the loop's bounds stay as they were
 * while it runs, and there are stages enough to give one back a turn later. */
static uint32_t find_products(const lowering *l) {
    const tvm_insn *loop = &l->from->insns[l->loop.loop];
    uint32_t count = 0;
    if (l->loop.stages < 3) return 0;
    for (unsigned o = 0; o < 2; o++)
        if (tvm_expr_leaves(l->from, tvm_operands(l->from, loop)[o].value) & TVM_LEAF_VARIABLE) return 0;
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        if (tvm_class_opens(tvm_insn_class(insn))) return 0;
        if (insn->op != TVM_OP_MMA) continue;
        count++;
    }
    return count;
}

/* Registers of a consumer's thread: what the producer's warpgroup, which it fills up, leaves. */
static uint32_t consumer_registers(const tvm_ir_kernel *from, uint32_t warps) {
    uint32_t entry = REGISTERS / from->resident / (32 * warps) / 8 * 8;
    uint32_t rest = (entry * (warps / GROUP) - PRODUCER_REGISTERS) / (from->warps / GROUP) / 8 * 8;
    return rest < MOST_OF_A_ROLE ? rest : MOST_OF_A_ROLE;
}

/* The role of one warp that runs a slice of the kernel. */
static void write_slice_role(roles *r, const tvm_insn *place, const char *name, uint32_t warp,
                             uint32_t registers) {
    lowering *l = r->l;
    r->write = r->multiplies ? write_multiplier_insn : write_producer_insn;
    open_role(l, place, name, warp, warp + 1, registers);
    write_slice(r);
    close(l, place);
}

static void write_multiplier(const roles *r, const tvm_insn *place, uint32_t warp) {
    roles own = *r;
    own.multiplies = true;
    if (!find_slice(r->l, true, NULL, &own.kept, &own.before)) r->l->failed = true;
    if (!r->l->failed) write_slice_role(&own, place, "multiply", warp, 0);
    free(own.kept);
    free(own.before);
}

/* Two buffers where the columns allow it, and there is a next tile for the other one. */
static uint32_t count_buffers(const tensor_products *products) {
    return products->repeats && 2 * products->columns <= TVM_TENSOR_COLUMNS ? 2 : 1;
}

/* What is done before the roles. */
static void write_before(roles *r, const tvm_insn *place) {
    lowering *l = r->l;
    const tensor_products *products = l->products.found;
    if (products) tvm_lower_alloc_products(l, count_buffers(products), products->repeats);
    for (uint32_t i = 0; i < l->from->insn_count; i++)
        if (is_allocation(l, &l->from->insns[i]) || r->before[i]) tvm_lower_copy(l, &l->from->insns[i]);
    r->full = tvm_lower_barriers(l, place, "full", l->loop.stages, false);
    r->empty = tvm_lower_barriers(l, place, "empty", l->loop.stages, true);
}

void tvm_lower_roles(lowering *l, bool has_registers) {
    find_only_loop(l);
    roles r = {.l = l};
    if (l->failed || !find_slice(l, false, NULL, &r.kept, &r.before)) {
        free(r.kept);
        free(r.before);
        l->failed = true;
        return;
    }
    const tvm_insn *place = &l->from->insns[l->loop.loop];
    uint32_t warps = l->from->warps, entry = REGISTERS / l->from->resident / (32 * (warps + 1)) / 8 * 8;
    bool changes = has_registers && warps % GROUP == 0 && entry < MOST_OF_A_THREAD;
    l->to->warps = warps + (changes ? GROUP : 1) + (l->products.found != NULL);
    write_before(&r, place);
    r.products = find_products(l);
    write_slice_role(&r, place, "produce", warps, changes ? PRODUCER_REGISTERS : 0);
    if (l->products.found) write_multiplier(&r, place, warps + 1);
    open_role(l, place, "consume", 0, warps, changes ? consumer_registers(l->from, l->to->warps) : 0);
    if (l->products.found)
        write_epilogue(&r);
    else
        write_consumer(&r);
    close(l, place);
    free(r.kept);
    free(r.before);
    l->loop.end = 0;
}
