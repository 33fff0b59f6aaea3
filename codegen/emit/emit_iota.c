/* iota: the indices of a tile's elements. */
#include "compute.h"
#include "emit.h"

/* The start and the thread's part of the index, in the class of the result's elements; false: both are zero.
 */
static bool first_index(emitter *e, const tvm_insn *insn, reg *first) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    tvm_dtype type = tvm_slot_dtype(e->k, insn->result);
    bool wide = type.bits == 64, varies, starts = operands[1].kind == TVM_OPERAND_EXPR;
    reg part = {""};
    varies = tvm_thread_coordinate(e, tvm_slot_layout(e->k, insn->result), operands[0].value, &part);
    if (varies && wide) part = tvm_pure(e, 'd', "cvt.u64.u32 $, %s;", part.name);
    if (starts) *first = tvm_emit_expr_as(e, operands[1].value, type, false);
    if (varies && starts) {
        reg sum = tvm_new_element(e, type);
        tvm_emit(e, "add.%s %s, %s, %s;", wide ? "s64" : "s32", sum.name, first->name, part.name);
        *first = sum;
    } else if (varies) {
        *first = part;
    }
    return varies || starts;
}

tvm_status tvm_emit_IOTA(emitter *e, const tvm_insn *insn) {
    const tvm_layout *layout = tvm_slot_layout(e->k, insn->result);
    tvm_dtype type = tvm_slot_dtype(e->k, insn->result);
    unsigned axis = tvm_operands(e->k->kernel, insn)[0].value;
    bool wide = type.bits == 64;
    size_t before = e->body.size;
    element_writer writer;
    reg first;
    bool varies = first_index(e, insn, &first);
    if (!tvm_write_begin(e, &writer, insn->result)) return tvm_diag_no_memory(e->k->diags);
    for (uint32_t l = 0, locals = tvm_layout_locals(layout); l < locals; l++) {
        uint32_t coordinate[TVM_MAX_RANK] = {0};
        reg at = varies ? first : tvm_new_element(e, type);
        tvm_layout_map(layout, 0, l, coordinate);
        if (!varies) {
            tvm_emit(e, "mov.%s %s, %u;", wide ? "b64" : "b32", at.name, coordinate[axis]);
        } else if (coordinate[axis] != 0) {
            at = tvm_new_element(e, type);
            tvm_emit(e, "add.%s %s, %s, %u;", wide ? "s64" : "s32", at.name, first.name, coordinate[axis]);
        }
        tvm_write_element(e, &writer, at);
    }
    tvm_write_end(e, &writer);
    tvm_explain(e, "add", 0, tvm_body_lines(e, before), -1, "");
    return TVM_OK;
}
