/* The operands of mma, and temporaries for those that lie in shared memory. */
#include "mma_operands.h"

#include <stdlib.h>

/* Temporaries are alive within one instruction: those alike are one. */
static uint32_t find_temporary(kernel_state *k, tvm_dtype dtype, const tvm_layout *layout, uint32_t but) {
    for (uint32_t i = 0; i < k->temporary_count; i++) {
        const temporary *t = &k->temporaries[i];
        uint32_t slot = k->kernel->slot_count + i;
        if (slot != but && tvm_dtype_same(t->dtype, dtype) && tvm_layout_equal(&t->layout, layout))
            return slot;
    }
    k->temporaries[k->temporary_count] = (temporary){dtype, *layout};
    return k->kernel->slot_count + k->temporary_count++;
}

/* A register tensor that has the operand, or will have it. */
static tvm_status find_slot(kernel_state *k, mma_operands *o, bool a, uint32_t but, uint32_t *slot) {
    const tvm_mma_source *source = a ? &o->mma.a : &o->mma.b;
    tvm_layout fragments;
    tvm_why why = {""};
    *slot = source->slot;
    if (!source->is_shared) return TVM_OK;
    tvm_status status = tvm_mma_fragments(o->mma.atoms, tvm_slot_layout(k, o->mma.c), a, source->rank,
                                          source->shape, &fragments, &why);
    if (status == TVM_OK)
        status = tvm_mma_tile_layout(&o->mma, a, &fragments, a ? &o->tile_a : &o->tile_b, &why);
    if (status != TVM_OK) return tvm_diag_add(k->diags, TVM_INVALID, NULL, NULL, "mma: %s", why.text);
    *slot = find_temporary(k, k->kernel->slots[source->slot].dtype, &fragments, but);
    return TVM_OK;
}

static uint32_t words_of(const kernel_state *k, uint32_t slot, const tvm_layout *outer) {
    uint32_t locals = tvm_layout_locals(tvm_slot_layout(k, slot)) / tvm_layout_locals(outer);
    return locals * tvm_slot_dtype(k, slot).bits / 32;
}

static bool make_scales(const kernel_state *k, mma_operands *o, tvm_why *why) {
    return tvm_mma_plan_make(o->mma.scaling->scales, tvm_slot_layout(k, o->mma.scale_a),
                             tvm_slot_layout(k, o->mma.scale_b), tvm_slot_layout(k, o->mma.c), &o->scales,
                             why);
}

static tvm_status make_one(kernel_state *k, const tvm_insn *insn, mma_operands *o) {
    tvm_why why = {""};
    tvm_mma_read(k->program, k->kernel, tvm_operands(k->kernel, insn), insn->count, &o->mma);
    tvm_status status = find_slot(k, o, true, TVM_NONE, &o->a);
    if (status == TVM_OK) status = find_slot(k, o, false, o->a, &o->b);
    if (status != TVM_OK) return status;
    if (tvm_mma_plan_make(o->mma.atoms, tvm_slot_layout(k, o->a), tvm_slot_layout(k, o->b),
                          tvm_slot_layout(k, o->mma.c), &o->plan, &why)) {
        o->words_a = words_of(k, o->a, &o->plan.outer_a);
        o->words_b = words_of(k, o->b, &o->plan.outer_b);
        o->words_c = words_of(k, o->mma.c, &o->plan.outer_c);
        if (!o->mma.scaling || make_scales(k, o, &why)) return TVM_OK;
    }
    return tvm_diag_add(k->diags, TVM_INVALID, NULL, NULL, "mma: %s", why.text);
}

tvm_status tvm_mma_operands_make(kernel_state *k) {
    const tvm_ir_kernel *kernel = k->kernel;
    uint32_t count = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) count += kernel->insns[i].op == TVM_OP_MMA;
    k->slots = calloc(kernel->slot_count + 2 * (size_t)count + 1, sizeof *k->slots);
    k->temporaries = calloc(2 * (size_t)count + 1, sizeof *k->temporaries);
    k->mma = calloc(kernel->insn_count + (size_t)1, sizeof *k->mma);
    k->mma_operands = calloc(count + (size_t)1, sizeof *k->mma_operands);
    if (!k->slots || !k->temporaries || !k->mma || !k->mma_operands) return tvm_diag_no_memory(k->diags);
    tvm_status status = TVM_OK;
    count = 0;
    for (uint32_t i = 0; i < kernel->insn_count && status == TVM_OK; i++) {
        if (kernel->insns[i].op != TVM_OP_MMA) continue;
        k->mma[i] = &k->mma_operands[count++];
        status = make_one(k, &kernel->insns[i], k->mma[i]);
    }
    return status;
}

void tvm_mma_operands_free(kernel_state *k) {
    free(k->slots);
    free(k->temporaries);
    free(k->mma);
    free(k->mma_operands);
    k->slots = NULL;
    k->temporaries = NULL;
    k->mma = NULL;
    k->mma_operands = NULL;
}

const mma_operands *tvm_mma_operands_of(const kernel_state *k, const tvm_insn *mma) {
    return k->mma[mma - k->kernel->insns];
}

bool tvm_mma_is_of_words(const kernel_state *k, const mma_operands *o) {
    const tvm_mma_types *types = o->mma.types;
    bool is_f8 = types->a.kind == TVM_KIND_FLOAT && types->a.bits == 8;
    return types->sums != TVM_MMA_F64 && !types->is_scalar && !tvm_mma_is_mixed(&o->mma) &&
           (!is_f8 || tvm_target_has(k->target, TVM_HAS_MMA_F8));
}
