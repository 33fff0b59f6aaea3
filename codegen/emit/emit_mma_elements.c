/* mma of elements: f64 by mma.sync of f64, f32 in full by FMAs, one after the other in the order of k, as the
 * interpreter's; and floats of 4, 6 and 8 bits as products of f16, in which each of them is exact. */
#include <stdlib.h>

#include "compute.h"
#include "emit_mma_elements.h"
#include "linear_pairs.h"

/* Elements of the operands, or pairs of them, in registers, made when a fragment is first asked for, as
 * registers for all of them may not be there; sums of c. */
typedef struct elements {
    emitter *e;
    const mma_operands *o;
    reg *a, *b, *c; /* name[0] == 0: not made */
    uint32_t locals_c;
} elements;

static uint32_t locals_of(const emitter *e, uint32_t slot) {
    return tvm_layout_locals(tvm_slot_layout(e->k, slot));
}

static reg read_element(emitter *e, uint32_t slot, uint32_t i) {
    return tvm_read_element(e, slot, i, false);
}

/* The sums of a step: `c` is read by the first alone, whose registers may be those of other tensors. */
static reg next_sum(elements *x, uint32_t i, reg (*fresh)(emitter *e), uint32_t k) {
    reg before = x->c[i];
    if (k == 0) x->c[i] = fresh(x->e);
    return before;
}

/* ---- f64 ---- */

/* Two halves of the rows, two of k: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64". */
static void multiply_quarters(elements *x, const reg *a, const reg *b, uint32_t c, uint32_t k) {
    for (unsigned half = 0; half < 2; half++)
        for (unsigned q = 0; q < 2; q++) {
            bool first = k == 0 && q == 0;
            reg before[2], *sums = x->c + c + 2 * half;
            for (unsigned i = 0; i < 2; i++)
                before[i] = first ? next_sum(x, c + 2 * half + i, tvm_new_fd, 0) : sums[i];
            tvm_emit(x->e, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%s, %s}, {%s}, {%s}, {%s, %s};",
                     sums[0].name, sums[1].name, a[half + 2 * q].name, b[q].name, before[0].name,
                     before[1].name);
        }
}

static void multiply_f64(elements *x, const reg *a, const reg *b, uint32_t c, uint32_t k) {
    reg before[4], *sums = x->c + c;
    for (unsigned i = 0; i < 4; i++) before[i] = next_sum(x, c + i, tvm_new_fd, k);
    tvm_emit(x->e,
             "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%s, %s, %s, %s}, {%s, %s, %s, %s}, {%s, %s}, "
             "{%s, %s, %s, %s};",
             sums[0].name, sums[1].name, sums[2].name, sums[3].name, a[0].name, a[1].name, a[2].name,
             a[3].name, b[0].name, b[1].name, before[0].name, before[1].name, before[2].name, before[3].name);
}

/* ---- f32 in full ---- */

static void multiply_f32(elements *x, const reg *a, const reg *b, uint32_t c, uint32_t k) {
    reg before = next_sum(x, c, tvm_new_f, k);
    tvm_emit(x->e, "fma.rn.f32 %s, %s, %s, %s;", x->c[c].name, a->name, b->name, before.name);
}

/* ---- f8 through f16 ---- */

/* A pair of neighbours, of four a word, as f16. */
static reg read_halves(emitter *e, uint32_t slot, uint32_t i) {
    return tvm_linear_float_pair(e, slot, TVM_F16, 2 * i);
}

/* A fragment of 32 steps of k is two of 16, whose steps 2t, 2t + 1 and 2t + 8, 2t + 9 are the fragment's 4t
 * to 4t + 3, in a and b alike. */
static void multiply_halves(elements *x, const reg *a, const reg *b, uint32_t c, uint32_t k) {
    reg *sums = x->c + c;
    for (unsigned q = 0; q < 2; q++) {
        reg before[4];
        for (unsigned i = 0; i < 4; i++) before[i] = q == 0 ? next_sum(x, c + i, tvm_new_f, k) : sums[i];
        const reg *low = a + 4 * q;
        tvm_emit(
            x->e,
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%s, %s, %s, %s}, {%s, %s, %s, %s}, {%s, %s}, "
            "{%s, %s, %s, %s};",
            sums[0].name, sums[1].name, sums[2].name, sums[3].name, low[0].name, low[2].name, low[1].name,
            low[3].name, b[2 * q].name, b[2 * q + 1].name, before[0].name, before[1].name, before[2].name,
            before[3].name);
    }
}

/* Sums of f16 are rounded after each fragment. */
static void multiply_to_f16(elements *x, const reg *a, const reg *b, uint32_t c, uint32_t k) {
    reg wide[4];
    elements sums = *x;
    sums.c = wide;
    for (unsigned i = 0; i < 4; i++) wide[i] = tvm_half_to_f32(x->e, TVM_F16, x->c[c + i]);
    multiply_halves(&sums, a, b, 0, k);
    for (unsigned i = 0; i < 4; i++) x->c[c + i] = tvm_f32_to_half(x->e, TVM_F16, wide[i]);
}

/* ---- the instruction ---- */

/* What one way takes of the operands: registers of a fragment of a and b, sums of a tile of c. */
typedef struct way {
    const char *name;
    reg (*read)(emitter *e, uint32_t slot, uint32_t i);
    void (*multiply)(elements *x, const reg *a, const reg *b, uint32_t c, uint32_t k);
    unsigned a, b, c, instructions;
} way;

static const way *find_way(const emitter *e, const mma_operands *o) {
    static const way quarters = {"mma.sync.m8n8k4.f64", read_element, multiply_quarters, 4, 2, 4, 4},
                     f64 = {"mma.sync.m16n8k8.f64", read_element, multiply_f64, 4, 2, 4, 1},
                     f32 = {"fma.rn.f32", read_element, multiply_f32, 1, 1, 1, 1},
                     halves = {"mma.sync.m16n8k16.f32.f16 of f8", read_halves, multiply_halves, 8, 4, 4, 2},
                     to_f16 = {"mma.sync.m16n8k16.f32.f16 of f8, rounded to f16",
                               read_halves,
                               multiply_to_f16,
                               8,
                               4,
                               4,
                               2},
                     mixed = {"mma.sync.m16n8k16.f32.f16 of floats of 4, 6 and 8 bits",
                              read_halves,
                              multiply_halves,
                              8,
                              4,
                              4,
                              2};
    if (o->mma.types->sums == TVM_MMA_F64)
        return tvm_target_has(e->k->target, TVM_HAS_MMA_F64_M16) ? &f64 : &quarters;
    if (o->mma.types->is_scalar) return &f32;
    if (o->mma.types->sums == TVM_MMA_F16) return &to_f16;
    return tvm_mma_is_mixed(&o->mma) ? &mixed : &halves;
}

/* Of a tile of an operand, `count` registers. */
static const reg *fragment(emitter *e, const way *by, uint32_t slot, reg *all, uint32_t tile,
                           unsigned count) {
    reg *first = all + tile * count;
    for (unsigned i = 0; i < count && !first[i].name[0]; i++) first[i] = by->read(e, slot, tile * count + i);
    return first;
}

static void multiply_all(elements *x, const way *by) {
    const tvm_mma_plan *plan = &x->o->plan;
    for (uint32_t k = 0; k < plan->tiles_k; k++)
        for (uint32_t c = 0; c < plan->tiles_c; c++) {
            uint32_t tile_a, tile_b;
            tvm_mma_tile(plan, c, k, &tile_a, &tile_b);
            const reg *a = fragment(x->e, by, x->o->a, x->a, tile_a, by->a);
            by->multiply(x, a, fragment(x->e, by, x->o->b, x->b, tile_b, by->b), c * by->c, k);
        }
}

static bool write_sums(elements *x, uint32_t slot) {
    element_writer w;
    if (!tvm_write_begin(x->e, &w, slot)) return false;
    for (uint32_t i = 0; i < x->locals_c; i++) tvm_write_element(x->e, &w, x->c[i]);
    tvm_write_end(x->e, &w);
    return true;
}

tvm_status tvm_emit_mma_elements(emitter *e, const tvm_insn *insn, const mma_operands *o) {
    const way *by = find_way(e, o);
    elements x = {.e = e, .o = o, .locals_c = locals_of(e, o->mma.c)};
    x.a = calloc(locals_of(e, o->a), sizeof *x.a);
    x.b = calloc(locals_of(e, o->b), sizeof *x.b);
    x.c = calloc(x.locals_c, sizeof *x.c);
    bool good = x.a && x.b && x.c;
    for (uint32_t i = 0; good && i < x.locals_c; i++) x.c[i] = read_element(e, o->mma.c, i);
    if (good) multiply_all(&x, by);
    good = good && write_sums(&x, insn->result);
    free(x.a);
    free(x.b);
    free(x.c);
    if (!good) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e, by->name, 0, by->instructions * o->plan.tiles_c * o->plan.tiles_k, -1, "");
    return TVM_OK;
}
