/* mma: one mma.sync.m16n8k16 a tile of c and step of k, k ascending, so that every output is accumulated in
 * that order; all tiles of c before the next k, so that neighbouring instructions do not wait for each other.
 * The first step of k reads c where it is: where that is known to be zero, ptxas reads the zero register.
 * Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type". */
#include "compute.h"

enum { WORDS_A = 4, WORDS_B = 2, WORDS_C = 4 };

typedef struct mma_tile {
    uint32_t a, b, c, result;        /* slots */
    uint32_t tile_a, tile_b, tile_c; /* tile_c: also of the result */
} mma_tile;

static void emit_tile(emitter *e, const char *type, const mma_tile *t) {
    reg a[WORDS_A], b[WORDS_B], c[WORDS_C], d[WORDS_C];
    for (unsigned i = 0; i < WORDS_A; i++) a[i] = tvm_slot_word(e, t->a, t->tile_a * WORDS_A + i);
    for (unsigned i = 0; i < WORDS_B; i++) b[i] = tvm_slot_word(e, t->b, t->tile_b * WORDS_B + i);
    for (unsigned i = 0; i < WORDS_C; i++) c[i] = tvm_slot_word(e, t->c, t->tile_c * WORDS_C + i);
    for (unsigned i = 0; i < WORDS_C; i++) d[i] = tvm_slot_word(e, t->result, t->tile_c * WORDS_C + i);
    tvm_emit(e,
             "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%s, %s, %s, %s}, {%s, %s, %s, %s}, {%s, %s}, "
             "{%s, %s, %s, %s};",
             type, type, d[0].name, d[1].name, d[2].name, d[3].name, a[0].name, a[1].name, a[2].name,
             a[3].name, b[0].name, b[1].name, c[0].name, c[1].name, c[2].name, c[3].name);
}

tvm_status tvm_emit_MMA(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->kernel, insn);
    mma_tile t = {.a = operands[0].value, .b = operands[1].value, .result = insn->result};
    uint32_t c = operands[2].value;
    tvm_mma_plan plan;
    tvm_why why = {""};
    if (!tvm_mma_plan_make(tvm_slot_layout(e, t.a), tvm_slot_layout(e, t.b), tvm_slot_layout(e, c), &plan,
                           &why))
        return tvm_diag_add(e->diags, TVM_INVALID, NULL, NULL, "mma: %s", why.text);
    const char *type = tvm_slot_dtype(e, t.a).exponent == 5 ? "f16" : "bf16";
    for (uint32_t k = 0; k < plan.tiles_k; k++) {
        t.c = k == 0 ? c : insn->result;
        for (t.tile_c = 0; t.tile_c < plan.tiles_c; t.tile_c++) {
            tvm_mma_tile(&plan, t.tile_c, k, &t.tile_a, &t.tile_b);
            emit_tile(e, type, &t);
        }
    }
    char name[48];
    snprintf(name, sizeof name, "mma.sync.m16n8k16.f32.%s", type);
    tvm_explain(e, name, 0, plan.tiles_c * plan.tiles_k, -1, "");
    return TVM_OK;
}
