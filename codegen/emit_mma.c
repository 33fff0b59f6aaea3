/* mma: one mma.sync.m16n8k16 a tile of c and step of k, k ascending, so that every output is accumulated in
 * that order; all tiles of c before the next k, so that neighbouring instructions do not wait for each other.
 * Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". */
#include "compute.h"

enum { WORDS_A = 4, WORDS_B = 2, WORDS_C = 4 };

static void emit_tile(emitter *e, const char *type, const tvm_operand *operands, uint32_t result,
                      const uint32_t tiles[3]) {
    reg a[WORDS_A], b[WORDS_B], c[WORDS_C];
    for (unsigned i = 0; i < WORDS_A; i++) a[i] = tvm_slot_word(e, operands[0].value, tiles[0] * WORDS_A + i);
    for (unsigned i = 0; i < WORDS_B; i++) b[i] = tvm_slot_word(e, operands[1].value, tiles[1] * WORDS_B + i);
    for (unsigned i = 0; i < WORDS_C; i++) c[i] = tvm_slot_word(e, result, tiles[2] * WORDS_C + i);
    tvm_emit(e,
             "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%s, %s, %s, %s}, {%s, %s, %s, %s}, {%s, %s}, "
             "{%s, %s, %s, %s};",
             type, type, c[0].name, c[1].name, c[2].name, c[3].name, a[0].name, a[1].name, a[2].name,
             a[3].name, b[0].name, b[1].name, c[0].name, c[1].name, c[2].name, c[3].name);
}

tvm_status tvm_emit_MMA(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->kernel, insn);
    uint32_t a = operands[0].value, b = operands[1].value, c = operands[2].value;
    tvm_mma_plan plan;
    tvm_why why = {""};
    if (!tvm_mma_plan_make(tvm_slot_layout(e, a), tvm_slot_layout(e, b), tvm_slot_layout(e, c), &plan, &why))
        return tvm_diag_add(e->diags, TVM_INVALID, NULL, NULL, "mma: %s", why.text);
    const char *type = tvm_slot_dtype(e, a).exponent == 5 ? "f16" : "bf16";
    for (uint32_t i = 0; i < plan.tiles_c * WORDS_C && c != insn->result; i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, insn->result, i).name, tvm_slot_word(e, c, i).name);
    for (uint32_t k = 0; k < plan.tiles_k; k++)
        for (uint32_t t = 0; t < plan.tiles_c; t++) {
            uint32_t tiles[3] = {0, 0, t};
            tvm_mma_tile(&plan, t, k, &tiles[0], &tiles[1]);
            emit_tile(e, type, operands, insn->result, tiles);
        }
    char name[48];
    snprintf(name, sizeof name, "mma.sync.m16n8k16.f32.%s", type);
    tvm_explain(e, name, 0, plan.tiles_c * plan.tiles_k, -1, "");
    return TVM_OK;
}
