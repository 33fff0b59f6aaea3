#include "own_reads.h"

#include "view.h"

typedef struct own_reads {
    kernel_state *k;
    uint32_t tensor; /* the slot that alloc-shared made */
    const tvm_layout *layout;
} own_reads;

typedef enum walk_end { WALK_STORE, WALK_BARRIER, WALK_BEGIN } walk_end;

static bool stores_alike(const own_reads *o, const tvm_insn *insn) {
    const tvm_ir_kernel *kernel = o->k->kernel;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    if (insn->op != TVM_OP_STORE_SHARED || tvm_view_root(kernel, operands->value) != o->tensor) return false;
    uint32_t source = operands[1 + tvm_slot_shared_layout(o->k, operands->value)->rank].value;
    return tvm_layout_equal(tvm_slot_layout(o->k, source), o->layout);
}

/* Back from an instruction to the beginning of the body that it stands in, *at: what comes first? Barriers of
 * inner bodies, which may not run, do not count. */
static walk_end walk_back(const own_reads *o, uint32_t *at) {
    unsigned depth = 0;
    while (*at > 0) {
        const tvm_insn *insn = &o->k->kernel->insns[--*at];
        tvm_op_class class = tvm_insn_class(insn);
        if (stores_alike(o, insn)) return WALK_STORE;
        if (depth == 0 && (insn->op == TVM_OP_SYNC || insn->op == TVM_OP_SYNC_WARP)) return WALK_BARRIER;
        if (class == TVM_CLASS_END || (class == TVM_CLASS_ELSE && depth == 0)) depth++;
        if (!tvm_class_opens(class)) continue;
        if (depth == 0) return WALK_BEGIN;
        depth--;
    }
    return WALK_BEGIN;
}

/* The end of the body that the instruction opens. */
static uint32_t end_of(const tvm_ir_kernel *kernel, uint32_t opener) {
    unsigned depth = 0;
    for (uint32_t i = opener; i < kernel->insn_count; i++) {
        tvm_op_class class = tvm_insn_class(&kernel->insns[i]);
        if (tvm_class_opens(class)) depth++;
        if (class == TVM_CLASS_END && --depth == 0) return i;
    }
    return kernel->insn_count;
}

bool tvm_reads_own(kernel_state *k, const tvm_operand *tensor, const tvm_layout *layout) {
    const tvm_ir_kernel *kernel = k->kernel;
    own_reads o = {.k = k, .tensor = tvm_view_root(kernel, tensor->value), .layout = layout};
    uint32_t at = 0;
    for (; at < kernel->insn_count; at++) {
        const tvm_operand *operands = tvm_operands(kernel, &kernel->insns[at]);
        if (operands <= tensor && tensor < operands + kernel->insns[at].count) break;
    }
    while (true) {
        walk_end end = walk_back(&o, &at);
        if (end != WALK_BEGIN || at == 0) return end == WALK_STORE;
        uint32_t last = end_of(kernel, at); /* a loop's next turn comes from there */
        if (tvm_insn_class(&kernel->insns[at]) == TVM_CLASS_LOOP && walk_back(&o, &last) == WALK_STORE)
            return true;
    }
}
