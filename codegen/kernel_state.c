/* What slots of a kernel are, temporaries included. */
#include "kernel_state.h"

#include "view.h"

static const temporary *temporary_of(const kernel_state *k, uint32_t slot) {
    return slot < k->kernel->slot_count ? NULL : &k->temporaries[slot - k->kernel->slot_count];
}

const tvm_layout *tvm_slot_layout(const kernel_state *k, uint32_t slot) {
    const temporary *t = temporary_of(k, slot);
    return t ? &t->layout : &k->program->layouts[k->kernel->slots[slot].layout];
}

const tvm_shared_layout *tvm_slot_shared_layout(const kernel_state *k, uint32_t slot) {
    return &k->program->shared_layouts[k->kernel->slots[slot].layout];
}

tvm_dtype tvm_slot_dtype(const kernel_state *k, uint32_t slot) {
    const temporary *t = temporary_of(k, slot);
    return t ? t->dtype : k->kernel->slots[slot].dtype;
}

tvm_packing tvm_slot_packing(const kernel_state *k, uint32_t slot) {
    return temporary_of(k, slot) ? TVM_PACKING_LINEAR : (tvm_packing)k->kernel->slots[slot].packing;
}

static bool insn_writes_global(const tvm_ir_kernel *kernel, const tvm_insn *insn, uint32_t slot) {
    if (!(tvm_op(insn->op)->effects & TVM_EFFECT_WRITE_GLOBAL)) return false;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT && tvm_global_alias(kernel, operands[o].value, slot))
            return true;
    return false;
}

bool tvm_writes_global(const tvm_ir_kernel *kernel, uint32_t slot) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (insn_writes_global(kernel, &kernel->insns[i], slot)) return true;
    return false;
}

bool tvm_threads_write_global(const tvm_ir_kernel *kernel, uint32_t slot) {
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        bool is_bulk = insn->op == TVM_OP_STORE_BULK || insn->op == TVM_OP_REDUCE_BULK;
        if (!is_bulk && insn_writes_global(kernel, insn, slot)) return true;
    }
    return false;
}
