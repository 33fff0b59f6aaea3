/* Columns by liveness: first fit. tcgen05.alloc is done once, for all of them, so that no block holds columns
 * while it waits for more.
 *
 * The rule of fences (PTX ISA, "tcgen05 Memory Consistency Model"): loads and stores of tensor memory, and
 * what the tensor core does there, are ordered among threads only if tcgen05.fence::before_thread_sync stands
 * before what orders the threads, and tcgen05.fence::after_thread_sync behind it. So in the code of a team
 * that touches tensor memory, and in the block's own where the kernel has any, each sync and arrival has the
 * one before it and each sync and wait the other behind it; in the code of other teams a wait for what a
 * commit-tensor arrives at, which then fill what a product has read. A commit-tensor has the first in itself.
 */
#include "tensor_plan.h"

#include <stdlib.h>

#include "tensor_memory.h"

enum { LEAST_COLUMNS = 32 }; /* of tcgen05.alloc, and powers of two of it */

bool tvm_starts_tensor_work(const tvm_insn *insn) {
    const unsigned both = TVM_EFFECT_ASYNC | TVM_EFFECT_TENSOR;
    return tvm_insn_class(insn) == TVM_CLASS_MOVE && (tvm_op(insn->op)->effects & both) == both;
}

/* ---- columns ---- */

typedef struct columns {
    kernel_state *k;
    uint32_t owner[TVM_TENSOR_COLUMNS]; /* the slot that has it, + 1; 0: none */
    bool used[TVM_TENSOR_COLUMNS];      /* it has had one */
    uint32_t end;
} columns;

static bool is_free(const columns *c, uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; i++)
        if (c->owner[i]) return false;
    return true;
}

static bool place(columns *c, uint32_t slot) {
    uint32_t count = tvm_tensor_columns(c->k->program, &c->k->kernel->slots[slot]), first = 0;
    while (first + count <= TVM_TENSOR_COLUMNS && !is_free(c, first, count)) first++;
    if (first + count > TVM_TENSOR_COLUMNS) return false;
    for (uint32_t i = first; i < first + count; i++) {
        if (c->used[i]) c->k->slots[slot].reuses = true;
        c->owner[i] = slot + 1;
        c->used[i] = true;
    }
    c->k->slots[slot].tensor_column = first;
    if (first + count > c->end) c->end = first + count;
    return true;
}

static void release(columns *c, uint32_t slot) {
    for (uint32_t i = 0; i < TVM_TENSOR_COLUMNS; i++)
        if (c->owner[i] == slot + 1) c->owner[i] = 0;
}

static tvm_status place_all(kernel_state *k) {
    columns c = {.k = k};
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        if (tvm_insn_class(insn) == TVM_CLASS_FREE) release(&c, tvm_operands(k->kernel, insn)[0].value);
        if (insn->result == TVM_NONE || k->kernel->slots[insn->result].kind != TVM_SLOT_TENSOR) continue;
        if (place(&c, insn->result)) continue;
        return tvm_diag_add(k->diags, TVM_UNSUPPORTED, NULL, "allocate what is freed last first",
                            "kernel '%s': the columns of tensor memory that are free for '%s' lie apart",
                            tvm_string(k->program, k->kernel->name),
                            tvm_string(k->program, k->kernel->slots[insn->result].name));
    }
    for (k->tensor.columns = LEAST_COLUMNS; k->tensor.columns < c.end;) k->tensor.columns *= 2;
    return TVM_OK;
}

/* ---- teams ---- */

static bool touches(const kernel_state *k, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        if (tvm_op(k->kernel->insns[i].op)->effects & TVM_EFFECT_TENSOR) return true;
    return false;
}

/* The first warps of the teams that the range's code is of. */
static void find_workers(kernel_state *k, uint32_t first, uint32_t end, const tvm_role *role) {
    uint32_t teams = 0;
    for (uint32_t t = 0; t < (role ? tvm_role_teams(role) : 1); t++)
        teams |= UINT32_C(1) << (role ? tvm_role_team(role, t).first : 0);
    for (uint32_t i = first; i < end; i++) {
        if (!role && tvm_insn_class(&k->kernel->insns[i]) == TVM_CLASS_SECTION) i = k->kernel->insns[i].match;
        if (tvm_starts_tensor_work(&k->kernel->insns[i])) k->tensor.workers |= teams;
        if (k->kernel->insns[i].op == TVM_OP_COMMIT_TENSOR) k->tensor.committers |= teams;
    }
}

static uint8_t fences_of(const tvm_insn *insn) {
    unsigned effects = tvm_op(insn->op)->effects;
    bool meets = effects & (TVM_EFFECT_BARRIER | TVM_EFFECT_WARP_BARRIER),
         waits = effects & TVM_EFFECT_MBARRIER;
    if (tvm_insn_class(insn) != TVM_CLASS_ORDER || effects & TVM_EFFECT_ASYNC) return 0;
    return (uint8_t)((meets ? TENSOR_FENCE_BEFORE : 0) | (meets || waits ? TENSOR_FENCE_AFTER : 0));
}

/* The mbarriers at which a commit-tensor arrives, by slot. */
static void find_committed(const kernel_state *k, bool committed[TVM_MAX_SLOTS]) {
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        if (insn->op == TVM_OP_COMMIT_TENSOR) committed[tvm_operands(k->kernel, insn)[0].value] = true;
    }
}

/* Of a role that touches no tensor memory: it may fill what a product has read. */
static void find_fences_of_others(kernel_state *k, uint32_t first, uint32_t end, const bool *committed) {
    for (uint32_t i = first; i < end; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        if (insn->op == TVM_OP_WAIT_BARRIER && committed[tvm_operands(k->kernel, insn)[0].value])
            k->tensor.fences[i] = TENSOR_FENCE_AFTER;
    }
}

static void find_fences(kernel_state *k) {
    bool committed[TVM_MAX_SLOTS] = {false};
    find_committed(k, committed);
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        if (tvm_insn_class(insn) == TVM_CLASS_SECTION) {
            const tvm_role role = tvm_role_of(k->kernel, insn);
            find_workers(k, i + 1, insn->match, &role);
            if (touches(k, i + 1, insn->match)) continue;
            find_fences_of_others(k, i + 1, insn->match, committed);
            i = insn->match;
        } else {
            k->tensor.fences[i] = fences_of(insn);
        }
    }
}

static bool has_pairs(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_tensor_is_pair(kernel, &kernel->insns[i])) return true;
    return false;
}

uint32_t tvm_tensor_shared_bytes(const tvm_ir_kernel *kernel) {
    return TENSOR_MEETS + (has_pairs(kernel) ? 8 * kernel->warps : 0);
}

tvm_status tvm_tensor_plan(kernel_state *k) {
    k->tensor.used = tvm_has_tensor_memory(k->kernel);
    if (!k->tensor.used) return TVM_OK;
    k->tensor.fences = calloc(k->kernel->insn_count + (size_t)1, sizeof *k->tensor.fences);
    if (!k->tensor.fences) return tvm_diag_no_memory(k->diags);
    k->tensor.pairs = has_pairs(k->kernel);
    find_workers(k, 0, k->kernel->insn_count, NULL);
    find_fences(k);
    return place_all(k);
}
