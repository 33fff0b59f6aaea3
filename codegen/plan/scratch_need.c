#include "scratch_need.h"

#include <string.h>

static uint64_t fetch_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_insn *insn, tvm_target target, uint64_t taken) {
    const tvm_slot *result = &kernel->slots[insn->result];
    const tvm_layout *layout = &program->layouts[result->layout];
    uint64_t bytes = result->dtype.bits / 8;
    (void)target, (void)taken;
    if (tvm_layout_replication(layout) <= 1) return 0;
    for (unsigned d = 0; d < layout->rank; d++) bytes *= layout->shape[d];
    return bytes;
}

static uint64_t print_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_insn *insn, tvm_target target, uint64_t taken) {
    (void)program, (void)kernel, (void)insn, (void)target, (void)taken;
    return PRINT_PIECE * PRINT_VALUE_BYTES;
}

static const struct {
    const char *family;
    uint64_t (*need)(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                     tvm_target target, uint64_t taken);
} families[] = {
    {"ATOMIC_FETCH", fetch_scratch}, {"PIECES", tvm_pieces_scratch},     {"PRINT_TENSOR", print_scratch},
    {"REDUCE", tvm_reduce_scratch},  {"RELAYOUT", tvm_relayout_scratch}, {"SCAN", tvm_scan_scratch},
};

uint64_t tvm_scratch_need(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                          tvm_target target, uint64_t taken) {
    const tvm_op_info *info = tvm_op(insn->op);
    for (size_t i = 0; (info->effects & TVM_EFFECT_SCRATCH) && i < sizeof families / sizeof *families; i++)
        if (strcmp(info->family, families[i].family) == 0)
            return families[i].need(program, kernel, insn, target, taken);
    return 0;
}

uint32_t tvm_scratch_chunk(uint32_t most, uint64_t each, tvm_target target, uint64_t taken) {
    uint64_t left = tvm_target_shared_bytes(target);
    left -= taken < left ? taken : left;
    while (most > 1 && most * each > left) most = (most + 1) / 2;
    return most;
}
