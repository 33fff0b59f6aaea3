/* Instructions that give elements other places. Tensors are dense and row-major here, so that a layout does
 * not matter: the elements of the result are read from the source in steps along each dimension. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_vector.h"
#include "pieces.h"

/* A tile of the source, read in the order of a tile of the result. Steps are in elements. */
typedef struct move_plan {
    uint32_t source;
    uint32_t bytes; /* of a container */
    unsigned rank;
    uint32_t extent[TVM_MAX_RANK];
    size_t from[TVM_MAX_RANK]; /* steps in the source */
    size_t elements;
    bool in_order; /* the source as it is */
} move_plan;

static move_plan *plan_move(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    move_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) {
        tvm_diag_no_memory(diags);
        return NULL;
    }
    const tvm_slot *result = interp_slot(k, insn->source->result);
    plan->source = insn->operands[0].value;
    plan->bytes = tvm_dtype_container(result->dtype);
    plan->rank = tvm_slot_rank(k->program, result);
    plan->elements = 1;
    memcpy(plan->extent, tvm_slot_shape(k->program, result), plan->rank * sizeof plan->extent[0]);
    for (unsigned d = 0; d < plan->rank; d++) plan->elements *= plan->extent[d];
    return plan;
}

/* Row-major steps of a tensor. */
static void steps_of(const tvm_interp_kernel *k, uint32_t slot, size_t steps[TVM_MAX_RANK]) {
    const uint32_t *shape = tvm_slot_shape(k->program, interp_slot(k, slot));
    size_t step = 1;
    for (unsigned d = tvm_slot_rank(k->program, interp_slot(k, slot)); d-- > 0; step *= shape[d])
        steps[d] = step;
}

static void move_elements(const move_plan *plan, uint8_t *to, const uint8_t *from) {
    uint32_t index[TVM_MAX_RANK] = {0};
    unsigned last = plan->rank - 1;
    for (size_t done = 0; done < plan->elements;) {
        for (uint32_t i = 0; i < plan->extent[last]; i++, done++, to += plan->bytes)
            memcpy(to, from + i * plan->from[last] * plan->bytes, plan->bytes);
        for (unsigned d = last; d-- > 0;) {
            from += plan->from[d] * plan->bytes;
            if (++index[d] < plan->extent[d]) break;
            from -= plan->extent[d] * plan->from[d] * plan->bytes;
            index[d] = 0;
        }
    }
}

/* The elements of the result, which may be the source's variable, by way of scratch memory. */
static tvm_status interp_move(interp_context *context, const interp_insn *insn) {
    const move_plan *plan = insn->plan;
    interp_block *block = context->block;
    const uint8_t *source = interp_tensor(block, plan->source);
    uint8_t *result = interp_tensor(block, insn->source->result);
    if (plan->in_order) {
        if (result != source) memcpy(result, source, plan->elements * plan->bytes);
        return TVM_OK;
    }
    move_elements(plan, block->scratch, source);
    memcpy(result, block->scratch, plan->elements * plan->bytes);
    return TVM_OK;
}

tvm_status tvm_plan_RELAYOUT(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    move_plan *plan = plan_move(k, insn, diags);
    if (!plan) return TVM_NO_MEMORY;
    plan->in_order = true;
    return TVM_OK;
}

tvm_status tvm_interp_RELAYOUT(interp_context *context, const interp_insn *insn) {
    return interp_move(context, insn);
}

tvm_status tvm_plan_RELABEL(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    move_plan *plan = plan_move(k, insn, diags);
    if (!plan) return TVM_NO_MEMORY;
    plan->in_order = insn->source->op != TVM_OP_TRANSPOSE;
    if (plan->in_order) return TVM_OK;
    size_t steps[TVM_MAX_RANK];
    steps_of(k, plan->source, steps);
    const tvm_operand *order = insn->source->count > 1 ? &insn->operands[1] : NULL;
    bool given = order && order->kind == TVM_OPERAND_CONST;
    for (unsigned d = 0; d < plan->rank; d++)
        plan->from[d] = steps[given ? order[1 + d].value : plan->rank - 1 - d];
    tvm_interp_need_scratch(k, plan->elements * plan->bytes);
    return TVM_OK;
}

tvm_status tvm_interp_RELABEL(interp_context *context, const interp_insn *insn) {
    return interp_move(context, insn);
}

/* ---- pieces: by a table of where each element comes from ---- */

typedef struct pieces_plan {
    tvm_pieces pieces;
    uint32_t bytes;     /* of the result */
    bool apart;         /* no piece is of the result's variable */
    interp_units units; /* places are those among all register tensors */
    uint32_t at[];
} pieces_plan;

tvm_status tvm_plan_PIECES(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    const tvm_slot *result = interp_slot(k, insn->source->result);
    const uint32_t *shape = tvm_slot_shape(k->program, result);
    uint32_t elements = tvm_layout_elements(&k->program->layouts[result->layout]);
    uint32_t bytes = tvm_dtype_container(result->dtype);
    pieces_plan *plan = insn->plan = calloc(1, sizeof *plan + elements * sizeof plan->at[0]);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_pieces_of(k->program, k->kernel, insn->source, insn->operands, &plan->pieces);
    plan->bytes = elements * bytes;
    plan->apart = true;
    for (unsigned p = 0; p < plan->pieces.count; p++)
        plan->apart = plan->apart && k->offsets[plan->pieces.slots[p]] != k->offsets[insn->source->result];
    for (uint32_t e = 0; e < elements; e++) {
        uint32_t index[TVM_MAX_RANK], from[TVM_MAX_RANK], rest = e, place = 0;
        for (unsigned d = plan->pieces.rank; d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
        unsigned piece = tvm_pieces_origin(&plan->pieces, index, from);
        for (unsigned d = 0; d < plan->pieces.rank; d++)
            place = place * plan->pieces.shapes[piece][d] + from[d];
        plan->at[e] = (uint32_t)(k->offsets[plan->pieces.slots[piece]] / bytes) + place;
    }
    plan->units = (interp_units){bytes, elements, plan->at};
    tvm_interp_widen_units(&plan->units);
    tvm_interp_need_scratch(k, plan->bytes);
    return TVM_OK;
}

tvm_status tvm_interp_PIECES(interp_context *context, const interp_insn *insn) {
    const pieces_plan *plan = insn->plan;
    const interp_block *block = context->block;
    uint8_t *result = interp_tensor(block, insn->source->result);
    uint8_t *to = plan->apart ? result : block->scratch;
    tvm_interp_copy_units(&plan->units, to, block->registers);
    if (to != result) memcpy(result, to, plan->bytes);
    return TVM_OK;
}
