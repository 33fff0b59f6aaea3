/* Where threads fence what they wrote to shared memory, before they tell others of it: see emit/barrier.h.
 *
 * A fence costs tens of cycles, as much as a barrier, and an arrival stands in each turn of a consumer's
 * loop; so it is left out where no thread can have written since its last one to memory that the
 * asynchronous proxy touches. "May have written" is a set of warps, as what a role's do says nothing of those
 * of the next one, which run beside them. It flows along the instructions; where paths meet, either will do.
 */
#include <stdlib.h>

#include "paths.h"
#include "proxy_fences.h"
#include "shared_view.h"
#include "tensor_plan.h"
#include "wgmma_impl.h"

/* Bit w: warp w of the block. */
typedef uint32_t warp_set;

typedef struct fences {
    kernel_state *k;
    warp_set active; /* the warps that do the instruction */
    uint32_t team;   /* how many of them are a team */
} fences;

/* The memory of a shared tensor, or of what it is a view of. */
typedef struct span {
    uint64_t first, end;
} span;

static span span_of(const kernel_state *k, uint32_t slot) {
    tvm_shared_root root;
    tvm_shared_root_find(k->program, k->kernel, slot, &root);
    uint64_t elements = tvm_shared_layout_span(tvm_slot_shared_layout(k, root.slot));
    uint64_t first = k->slots[root.slot].shared_offset;
    return (span){first, first + (elements * k->kernel->slots[root.slot].dtype.bits + 7) / 8};
}

/* Does the instruction read or write its shared tensors through the asynchronous proxy? */
static bool is_by_engine(const kernel_state *k, const tvm_insn *insn) {
    if (tvm_starts_tensor_work(insn)) return true;
    switch (insn->op) {
    case TVM_OP_COPY_BULK:
    case TVM_OP_COPY_CLUSTER:
        return true;
    case TVM_OP_STORE_BULK:
    case TVM_OP_REDUCE_BULK:
        return k->bulk.stores_by_engine;
    case TVM_OP_MMA:
        return k->wgmma->used;
    default:
        return false;
    }
}

static bool is_shared(const kernel_state *k, const tvm_operand *operand) {
    return operand->kind == TVM_OPERAND_SLOT && k->kernel->slots[operand->value].kind == TVM_SLOT_SHARED;
}

/* Does any instruction do so with the tensor's memory, or a part of it? */
static bool is_touched(const kernel_state *k, uint32_t slot) {
    span written = span_of(k, slot);
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        if (!is_by_engine(k, insn)) continue;
        for (uint32_t j = 0; j < insn->count; j++) {
            const tvm_operand *operand = &tvm_operands(k->kernel, insn)[j];
            if (!is_shared(k, operand)) continue;
            span touched = span_of(k, operand->value);
            if (written.first < touched.end && touched.first < written.end) return true;
        }
    }
    return false;
}

/* Does the instruction write through the threads, or wait for what they copied, to memory that the
 * asynchronous proxy reads or writes? Groups are those of copy-async; store-bulk and reduce-bulk only read
 * shared memory, whoever does them. */
static bool writes(const kernel_state *k, const tvm_insn *insn) {
    const tvm_op_info *info = tvm_op(insn->op);
    const tvm_operand *operands = tvm_operands(k->kernel, insn);
    bool is_group = info->class == TVM_CLASS_ORDER && info->effects == TVM_EFFECT_ASYNC;
    if (info->class == TVM_CLASS_LOOP || insn->op == TVM_OP_COPY_BULK) return false;
    if (!(info->effects & TVM_EFFECT_WRITE_SHARED) && !is_group) return false;
    bool has_tensor = false;
    for (uint32_t i = 0; i < insn->count; i++) {
        if (!is_shared(k, &operands[i])) continue;
        if (is_touched(k, operands[i].value)) return true;
        has_tensor = true;
    }
    return !has_tensor;
}

/* Does every thread come to a fence there, where one is needed? To a team of one warp a barrier of the warp
 * is one of the team: tvm_emit_SYNC_WARP. */
static bool fences_at(const fences *f, const tvm_insn *insn) {
    if (tvm_insn_class(insn) != TVM_CLASS_ORDER) return false;
    return tvm_op(insn->op)->effects & TVM_EFFECT_BARRIER || (insn->op == TVM_OP_SYNC_WARP && f->team == 1);
}

static warp_set warps_of(uint32_t first, uint32_t end) {
    return (warp_set)((UINT64_C(1) << end) - (UINT64_C(1) << first));
}

static bool meet(void *context, void *into, const void *other) {
    warp_set *written = into, more = *(const warp_set *)other;
    (void)context;
    bool grown = more & ~*written;
    *written |= more;
    return grown;
}

static void step(void *context, uint32_t at, void *state) {
    fences *f = context;
    warp_set *written = state, *unfenced = &f->k->bulk.unfenced[at];
    const tvm_insn *insn = &f->k->kernel->insns[at];
    bool is_written = writes(f->k, insn);
    *unfenced |= *written & f->active;
    if (is_written) *unfenced |= f->active; /* its own are fenced, too */
    if (tvm_insn_class(insn) == TVM_CLASS_SECTION) {
        tvm_role role = tvm_role_of(f->k->kernel, insn);
        f->active = warps_of(role.first, role.end);
        f->team = role.by;
    }
    if (fences_at(f, insn)) *written &= ~f->active;
    if (is_written) *written |= f->active;
}

static void leave_role(void *context, void *state) {
    fences *f = context;
    (void)state;
    f->active = warps_of(0, f->k->kernel->warps);
    f->team = f->k->kernel->warps;
}

tvm_status tvm_proxy_plan(kernel_state *k) {
    fences f = {.k = k, .active = warps_of(0, k->kernel->warps), .team = k->kernel->warps};
    const tvm_paths paths = {.kernel = k->kernel,
                             .context = &f,
                             .size = sizeof(warp_set),
                             .meet = meet,
                             .step = step,
                             .leave_role = leave_role};
    k->bulk.unfenced = calloc(k->kernel->insn_count + (size_t)1, sizeof *k->bulk.unfenced);
    return k->bulk.unfenced && tvm_paths_walk(&paths) ? TVM_OK : tvm_diag_no_memory(k->diags);
}
