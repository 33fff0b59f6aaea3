#include "fill.h"

#include "analysis.h"

void tvm_fill_open(emitter *e, fill_bits *fill, const tvm_operand *operand, tvm_dtype type) {
    *fill = (fill_bits){.bits = type.bits};
    if (!operand || operand->kind != TVM_OPERAND_EXPR) return;
    reg value = tvm_emit_expr_as(e, operand->value, type, tvm_dtype_is_lowbit(type));
    fill->given = true;
    fill->word[0] = tvm_new_r(e);
    if (type.bits == 64) {
        fill->word[1] = tvm_new_r(e);
        tvm_emit(e, "mov.b64 {%s, %s}, %s;", fill->word[0].name, fill->word[1].name, value.name);
    } else if (type.bits == 32) {
        tvm_emit(e, "mov.b32 %s, %s;", fill->word[0].name, value.name);
    } else if (tvm_is_half(type)) {
        tvm_emit(e, "mov.b32 %s, {%s, %s};", fill->word[0].name, value.name, value.name);
    } else {
        tvm_emit(e, "prmt.b32 %s, %s, 0, %s;", fill->word[0].name, value.name,
                 type.bits == 16 ? "0x1010" : "0x0000");
    }
}

void tvm_fill_unit(emitter *e, const fill_bits *fill, unsigned width, unsigned u, reg unit) {
    if (!fill->given)
        tvm_emit(e, "mov.b32 %s, 0;", unit.name);
    else if (width >= 32)
        tvm_emit(e, "mov.b32 %s, %s;", unit.name, fill->word[fill->bits == 64 ? u % 2 : 0].name);
    else
        tvm_emit(e, "and.b32 %s, %s, 0x%x;", unit.name, fill->word[0].name, (1U << width) - 1);
}
