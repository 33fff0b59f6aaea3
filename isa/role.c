/* Which warps do an instruction. */
#include "program.h"

/* The instruction may not have been checked yet. */
static uint32_t number(const tvm_ir_kernel *kernel, const tvm_insn *insn, uint32_t operand,
                       uint32_t otherwise) {
    if (operand >= insn->count || (uint64_t)insn->first + insn->count > kernel->operand_count)
        return otherwise;
    const tvm_operand *value = &tvm_operands(kernel, insn)[operand];
    return value->kind == TVM_OPERAND_CONST ? value->value : otherwise;
}

tvm_role tvm_role_of(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    uint32_t first = number(kernel, insn, 0, 0), end = number(kernel, insn, 1, kernel->warps);
    if (first >= end || end > kernel->warps) first = 0, end = kernel->warps;
    uint32_t by = number(kernel, insn, 2, end - first);
    if (by < 1 || (end - first) % by != 0) by = end - first;
    return (tvm_role){.first = first, .end = end, .by = by, .registers = number(kernel, insn, 3, 0)};
}

tvm_team tvm_role_team(const tvm_role *role, uint32_t index) {
    return (tvm_team){role->first + index * role->by, role->by};
}

uint32_t tvm_role_teams(const tvm_role *role) {
    return (role->end - role->first) / role->by;
}

tvm_team tvm_team_next(tvm_team_walk *walk, const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    tvm_op_class class = tvm_insn_class(insn);
    if (walk->depth == 0) walk->team = tvm_block_team(kernel);
    tvm_team team = walk->team;
    if (walk->depth == 0 && class == TVM_CLASS_SECTION) {
        tvm_role role = tvm_role_of(kernel, insn);
        walk->team = tvm_role_team(&role, 0);
        walk->depth = 1;
    } else if (walk->depth > 0 && tvm_class_opens(class)) {
        walk->depth++;
    } else if (walk->depth > 0 && class == TVM_CLASS_END) {
        walk->depth--;
    }
    return team;
}
