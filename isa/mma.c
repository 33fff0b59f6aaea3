/* What mma's operands are, and the layouts that follow from c. */
#include "mma.h"

#include <string.h>

#include "layout_digits.h"

/* Number of operands that an entry of the row takes. */
static uint32_t source_size(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                            const tvm_operand *operand) {
    const tvm_slot *slot = &kernel->slots[operand->value];
    return slot->kind == TVM_SLOT_SHARED ? 1 + tvm_slot_rank(program, slot) : 1;
}

/* Options come after the operands; of what was written before they existed they are missing. */
static uint32_t option(const tvm_operand *operands, uint32_t count, uint32_t at) {
    return at < count && operands[at].kind == TVM_OPERAND_CONST ? operands[at].value : 0;
}

static void read_source(const tvm_ir_kernel *kernel, const tvm_operand *operand, bool transposed,
                        tvm_mma_source *source) {
    source->slot = operand->value;
    source->tensor = operand;
    source->is_shared = kernel->slots[operand->value].kind == TVM_SLOT_SHARED;
    source->is_transposed = transposed;
}

/* `other`: the extent that is not k. */
static void find_tile(const tvm_mma *mma, bool k_first, uint32_t other, const uint32_t *batch,
                      unsigned leading, tvm_mma_source *source) {
    uint64_t all = mma->splits_k ? (uint64_t)mma->batch * mma->k : mma->k;
    uint32_t k = all < UINT32_MAX ? (uint32_t)all : UINT32_MAX;
    unsigned rank = mma->splits_k ? 0 : leading;
    memcpy(source->tile, batch, rank * sizeof *batch);
    source->tile[rank] = k_first ? k : other;
    source->tile[rank + 1] = k_first ? other : k;
    source->tile_rank = rank + 2;
    source->k_stride = k_first ? other : 1;
    source->other_stride = k_first ? 1 : k;
    source->batch_stride = mma->splits_k ? mma->k * source->k_stride : mma->k * other;
}

static uint32_t find_k(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_mma *mma) {
    const tvm_slot *slot = &kernel->slots[mma->b.is_shared ? mma->a.slot : mma->b.slot];
    if (mma->a.is_shared && mma->b.is_shared) return 0;
    unsigned rank = tvm_slot_rank(program, slot);
    return rank < 2 ? 0 : tvm_slot_shape(program, slot)[rank - (mma->b.is_shared ? 1 : 2)];
}

bool tvm_mma_read(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_operand *operands,
                  uint32_t count, tvm_mma *out) {
    enum { TRANSPOSE_A, TRANSPOSE_B, SPLIT_K, K, REASSOCIATE };
    uint32_t at_b = source_size(program, kernel, operands);
    uint32_t at_c = at_b + source_size(program, kernel, operands + at_b), options = at_c + 1;
    memset(out, 0, sizeof *out);
    read_source(kernel, operands, option(operands, count, options + TRANSPOSE_A) != 0, &out->a);
    read_source(kernel, operands + at_b, option(operands, count, options + TRANSPOSE_B) != 0, &out->b);
    out->c = operands[at_c].value;
    out->splits_k = option(operands, count, options + SPLIT_K) != 0;
    out->may_reassociate = option(operands, count, options + REASSOCIATE) != 0;
    const uint32_t *shape = tvm_slot_shape(program, &kernel->slots[out->c]);
    unsigned leading = tvm_slot_rank(program, &kernel->slots[out->c]) - 2;
    out->batch = 1;
    for (unsigned d = 0; d < leading; d++) out->batch *= shape[d];
    out->m = shape[leading];
    out->n = shape[leading + 1];
    uint32_t k = option(operands, count, options + K);
    out->k = k ? k : find_k(program, kernel, out);
    if (out->k == 0) return false;
    if (out->a.is_shared) find_tile(out, out->a.is_transposed, out->m, shape, leading, &out->a);
    if (out->b.is_shared) find_tile(out, !out->b.is_transposed, out->n, shape, leading, &out->b);
    return true;
}

/* ---- layouts ---- */

tvm_status tvm_mma_fragments(const tvm_layout *c, bool a, uint32_t k, tvm_layout *out, tvm_why *why) {
    const char *name = a ? "mma.m16n8k16.A" : "mma.m16n8k16.B";
    tvm_layout atom, atom_c, warps, steps;
    uint32_t shape[TVM_MAX_RANK];
    if (k % 16 != 0) return tvm_layout_refuse(why, "k is %u, expected a multiple of 16", k);
    tvm_status status = tvm_layout_atom("mma.m16n8k16.C", strlen("mma.m16n8k16.C"), &atom_c, why);
    if (status == TVM_OK) status = tvm_layout_divide_right(c, &atom_c, &warps, why);
    if (status != TVM_OK) return tvm_layout_refuse(why, "c's layout is not a product X.mma.m16n8k16.C");
    /* What a warp has of c along the dimension that the operand lacks, it needs once; and all of k. */
    for (unsigned d = 0; d < c->rank; d++) shape[d] = 1;
    shape[c->rank - (a ? 1u : 2u)] = k / 16;
    status = tvm_layout_reduce(&warps, c->rank - (a ? 1u : 2u), &warps, why);
    if (status == TVM_OK) status = tvm_layout_local(c->rank, shape, &steps, why);
    if (status == TVM_OK) status = tvm_layout_compose(&steps, &warps, &warps, why);
    if (status == TVM_OK) status = tvm_layout_atom(name, strlen(name), &atom, why);
    if (status == TVM_OK) status = tvm_layout_compose(&warps, &atom, out, why);
    return status == TVM_OK && !tvm_layout_holdable(out, why) ? TVM_INVALID : status;
}

tvm_status tvm_mma_tile_layout(const tvm_mma *mma, bool a, const tvm_layout *fragments, tvm_layout *out,
                               tvm_why *why) {
    const tvm_mma_source *source = a ? &mma->a : &mma->b;
    unsigned rank = fragments->rank, leading = rank - 2u, k_dim = a ? rank - 1u : rank - 2u;
    unsigned other = a ? rank - 2u : rank - 1u, count = 0;
    bool k_first = source->is_transposed == a;
    uint32_t order[TVM_MAX_RANK];
    tvm_layout turned;
    /* Split along k, the batch stands right before k. */
    if (!k_first && mma->splits_k) order[count++] = other;
    for (unsigned d = 0; d < leading; d++) order[count++] = d;
    if (!k_first && !mma->splits_k) order[count++] = other;
    order[count++] = k_dim;
    if (k_first) order[count++] = other;
    tvm_status status = tvm_layout_permute(fragments, order, &turned, why);
    return status == TVM_OK ? tvm_layout_reshape(&turned, source->tile_rank, source->tile, out, why) : status;
}
