/* The operands of mma, and temporaries for those that lie in shared memory. */
#include "mma_operands.h"

#include <stdlib.h>

/* Temporaries are alive within one instruction: those alike are one. */
static uint32_t find_temporary(emitter *e, tvm_dtype dtype, const tvm_layout *layout, uint32_t but) {
    for (uint32_t i = 0; i < e->temporary_count; i++) {
        const temporary *t = &e->temporaries[i];
        uint32_t slot = e->kernel->slot_count + i;
        if (slot != but && tvm_dtype_same(t->dtype, dtype) && tvm_layout_equal(&t->layout, layout))
            return slot;
    }
    e->temporaries[e->temporary_count] = (temporary){dtype, *layout};
    return e->kernel->slot_count + e->temporary_count++;
}

/* A register tensor that has the operand, or will have it. */
static tvm_status find_slot(emitter *e, mma_operands *o, bool a, uint32_t but, uint32_t *slot) {
    const tvm_mma_source *source = a ? &o->mma.a : &o->mma.b;
    tvm_layout fragments;
    tvm_why why = {""};
    *slot = source->slot;
    if (!source->is_shared) return TVM_OK;
    tvm_status status =
        tvm_mma_fragments(o->mma.types->atoms, tvm_slot_layout(e, o->mma.c), a, o->mma.k, &fragments, &why);
    if (status == TVM_OK)
        status = tvm_mma_tile_layout(&o->mma, a, &fragments, a ? &o->tile_a : &o->tile_b, &why);
    if (status != TVM_OK) return tvm_diag_add(e->diags, TVM_INVALID, NULL, NULL, "mma: %s", why.text);
    *slot = find_temporary(e, e->kernel->slots[source->slot].dtype, &fragments, but);
    return TVM_OK;
}

static uint32_t words_of(const emitter *e, uint32_t slot, const tvm_layout *outer) {
    uint32_t locals = tvm_layout_locals(tvm_slot_layout(e, slot)) / tvm_layout_locals(outer);
    return locals * tvm_slot_dtype(e, slot).bits / 32;
}

static tvm_status make_one(emitter *e, const tvm_insn *insn, mma_operands *o) {
    tvm_why why = {""};
    tvm_mma_read(e->program, e->kernel, tvm_operands(e->kernel, insn), insn->count, &o->mma);
    tvm_status status = find_slot(e, o, true, TVM_NONE, &o->a);
    if (status == TVM_OK) status = find_slot(e, o, false, o->a, &o->b);
    if (status != TVM_OK) return status;
    if (tvm_mma_plan_make(o->mma.types->atoms, tvm_slot_layout(e, o->a), tvm_slot_layout(e, o->b),
                          tvm_slot_layout(e, o->mma.c), &o->plan, &why)) {
        o->words_a = words_of(e, o->a, &o->plan.outer_a);
        o->words_b = words_of(e, o->b, &o->plan.outer_b);
        o->words_c = words_of(e, o->mma.c, &o->plan.outer_c);
        return TVM_OK;
    }
    return tvm_diag_add(e->diags, TVM_INVALID, NULL, NULL, "mma: %s", why.text);
}

tvm_status tvm_mma_operands_make(emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    uint32_t count = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) count += kernel->insns[i].op == TVM_OP_MMA;
    e->slots = calloc(kernel->slot_count + 2 * (size_t)count + 1, sizeof *e->slots);
    e->temporaries = calloc(2 * (size_t)count + 1, sizeof *e->temporaries);
    e->mma = calloc(kernel->insn_count + (size_t)1, sizeof *e->mma);
    e->mma_operands = calloc(count + (size_t)1, sizeof *e->mma_operands);
    if (!e->slots || !e->temporaries || !e->mma || !e->mma_operands) return tvm_diag_no_memory(e->diags);
    tvm_status status = TVM_OK;
    count = 0;
    for (uint32_t i = 0; i < kernel->insn_count && status == TVM_OK; i++) {
        if (kernel->insns[i].op != TVM_OP_MMA) continue;
        e->mma[i] = &e->mma_operands[count++];
        status = make_one(e, &kernel->insns[i], e->mma[i]);
    }
    return status;
}

void tvm_mma_operands_free(emitter *e) {
    free(e->slots);
    free(e->temporaries);
    free(e->mma);
    free(e->mma_operands);
    e->slots = NULL;
    e->temporaries = NULL;
    e->mma = NULL;
    e->mma_operands = NULL;
}

const mma_operands *tvm_mma_operands_of(const emitter *e, const tvm_insn *mma) {
    return e->mma[mma - e->kernel->insns];
}

bool tvm_mma_is_of_words(const emitter *e, const mma_operands *o) {
    const tvm_mma_types *types = o->mma.types;
    bool is_f8 = types->a.kind == TVM_KIND_FLOAT && types->a.bits == 8;
    return types->sums != TVM_MMA_F64 && !types->is_scalar &&
           (!is_f8 || tvm_target_has(e->target, TVM_HAS_MMA_F8));
}
