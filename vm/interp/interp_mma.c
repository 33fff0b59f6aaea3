/* mma. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_vector.h"
#include "mma.h"

/* ---- mma ---- */

/* An operand: a register tensor is dense as it is, a tile of a shared tensor is gathered to scratch memory.
 */
typedef struct mma_operand {
    uint32_t slot;
    interp_tile tile;        /* of a shared one */
    size_t loaded, gathered; /* places in scratch memory: of the tile as it is stored, and as mma reads it */
} mma_operand;

typedef struct mma_plan {
    tvm_mma mma;
    mma_operand a, b;
    bool bf16;
} mma_plan;

static size_t plan_operand(tvm_interp_kernel *k, const interp_insn *insn, const tvm_mma_source *source,
                           size_t elements, size_t scratch, mma_operand *operand) {
    operand->slot = source->slot;
    if (!source->is_shared) return scratch;
    tvm_interp_plan_tile(k, insn->operands, (uint32_t)(source->tensor - insn->operands), source->tile_rank,
                         source->tile, &operand->tile);
    operand->loaded = scratch;
    operand->gathered = scratch + elements * sizeof(uint16_t) + INTERP_SLACK;
    return operand->gathered + elements * sizeof(uint16_t) + INTERP_SLACK;
}

tvm_status tvm_plan_MMA(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    mma_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_mma *mma = &plan->mma;
    tvm_mma_read(k->program, k->kernel, insn->operands, insn->source->count, mma);
    plan->bf16 = tvm_dtype_same(interp_slot(k, mma->a.slot)->dtype, TVM_BF16);
    size_t scratch = (tvm_interp_mma_scratch(mma->m, mma->k) + INTERP_SLACK) / INTERP_SLACK * INTERP_SLACK;
    scratch = plan_operand(k, insn, &mma->a, (size_t)mma->batch * mma->m * mma->k, scratch, &plan->a);
    scratch = plan_operand(k, insn, &mma->b, (size_t)mma->batch * mma->k * mma->n, scratch, &plan->b);
    tvm_interp_need_scratch(k, scratch);
    return TVM_OK;
}

/* Row-major matrices of `rows` times `columns` elements that are these steps apart in the tile. */
static void gather(uint16_t *to, const uint16_t *tile, const tvm_mma *mma, uint32_t batch_stride,
                   uint32_t rows, uint32_t row_stride, uint32_t columns, uint32_t column_stride) {
    for (uint32_t i = 0; i < mma->batch; i++)
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t c = 0; c < columns; c++)
                *to++ = tile[i * batch_stride + r * row_stride + c * column_stride];
}

/* The operand's matrices, dense. */
static tvm_status read_operand(interp_context *context, const interp_insn *insn, bool is_a,
                               const uint16_t **out) {
    const mma_plan *plan = insn->plan;
    const tvm_mma *mma = &plan->mma;
    const tvm_mma_source *source = is_a ? &mma->a : &mma->b;
    const mma_operand *operand = is_a ? &plan->a : &plan->b;
    const interp_block *block = context->block;
    *out = (const uint16_t *)(const void *)interp_tensor(block, operand->slot);
    if (!source->is_shared) return TVM_OK;
    uint16_t *tile = (uint16_t *)(void *)(block->scratch + operand->loaded);
    uint16_t *to = (uint16_t *)(void *)(block->scratch + operand->gathered);
    tvm_status status = tvm_interp_load_tile(context, insn, &operand->tile, tile);
    if (status != TVM_OK) return status;
    if (is_a)
        gather(to, tile, mma, source->batch_stride, mma->m, source->other_stride, mma->k, source->k_stride);
    else
        gather(to, tile, mma, source->batch_stride, mma->k, source->k_stride, mma->n, source->other_stride);
    *out = to;
    return TVM_OK;
}

tvm_status tvm_interp_MMA(interp_context *context, const interp_insn *insn) {
    const mma_plan *plan = insn->plan;
    const tvm_mma *mma = &plan->mma;
    const interp_block *block = context->block;
    const uint16_t *a, *b;
    tvm_status status = read_operand(context, insn, true, &a);
    if (status == TVM_OK) status = read_operand(context, insn, false, &b);
    if (status != TVM_OK) return status;
    const float *c = (const float *)(const void *)interp_tensor(block, mma->c);
    float *result = (float *)(void *)interp_tensor(block, insn->source->result);
    size_t size_a = (size_t)mma->m * mma->k, size_b = (size_t)mma->k * mma->n,
           size_c = (size_t)mma->m * mma->n;
    if (result != c) memcpy(result, c, mma->batch * size_c * sizeof *result);
    for (uint32_t i = 0; i < mma->batch; i++)
        tvm_interp_mma(mma->m, mma->n, mma->k, a + i * size_a, b + i * size_b, plan->bf16,
                       result + i * size_c, block->scratch);
    return TVM_OK;
}
