/* gather and scatter: elements at indices that are tensors. */
#include "emit.h"
#include "global_transfer.h"
#include "shared_places.h"
#include "emit_wgmma.h"
#include "uses.h"

static bool is_shared(const emitter *e, const tvm_operand *tensor) {
    return e->k->kernel->slots[tensor->value].kind == TVM_SLOT_SHARED;
}

/* The operand after the tensor's indices. */
static const tvm_operand *after_indices(const emitter *e, const tvm_operand *tensor) {
    return tensor + 1 + tvm_slot_rank(e->k->program, &e->k->kernel->slots[tensor->value]);
}

/* Where no instruction reads what a gather gives, what is left of it is that its bytes come nearer. */
static bool is_prefetch(const emitter *e, const tvm_insn *insn, const transfer *t) {
    return e->k->uses->slots[insn->result].count == 0 && t->g.tile.bits >= 8;
}

tvm_status tvm_emit_GATHER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *tensor = tvm_operands(e->k->kernel, insn), *evict = after_indices(e, tensor),
                      *mask = evict + 1, *fill = mask + 1 < tensor + insn->count ? mask + 1 : NULL;
    if (is_shared(e, tensor)) {
        shared_places p;
        bool made = tvm_shared_places_open(e, &p, tensor, tvm_slot_layout(e->k, insn->result), mask, true);
        p.fill = fill;
        tvm_status status =
            made ? tvm_shared_places_load(e, &p, insn->result) : tvm_diag_no_memory(e->k->diags);
        tvm_shared_places_close(&p);
        return status;
    }
    transfer t = {0};
    tvm_status status = tvm_transfer_open(e, &t, tensor, insn->result, false, mask);
    if (status == TVM_OK && is_prefetch(e, insn, &t)) {
        status = tvm_transfer_prefetch(e, &t, tvm_transfer_alignment(&t));
    } else if (status == TVM_OK) {
        t.hint = tvm_cache_hint(e, evict);
        tvm_transfer_fill(e, &t, fill);
        status = tvm_transfer_load_all(e, &t, tvm_transfer_alignment(&t));
    }
    tvm_transfer_close(&t);
    return status;
}

tvm_status tvm_emit_SCATTER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *tensor = tvm_operands(e->k->kernel, insn), *source = after_indices(e, tensor),
                      *mask = source + 1;
    if (is_shared(e, tensor)) {
        shared_places p;
        const tvm_layout *layout = tvm_slot_layout(e->k, source->value);
        bool made = tvm_shared_places_open(e, &p, tensor, layout, mask, true);
        tvm_status status =
            made ? tvm_shared_places_store(e, &p, source->value) : tvm_diag_no_memory(e->k->diags);
        tvm_shared_places_close(&p);
        tvm_wgmma_stored(e, layout);
        return status;
    }
    transfer t = {0};
    tvm_status status = tvm_transfer_open(e, &t, tensor, source->value, true, mask);
    if (status == TVM_OK) status = tvm_transfer_store_all(e, &t, tvm_transfer_alignment(&t));
    tvm_transfer_close(&t);
    return status;
}
