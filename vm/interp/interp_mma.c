/* mma and reduce. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_loops.h"
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

/* ---- reduce ----
 * The source is outer x extent x inner. A place on the axis is what the thread's digits add plus what the
 * local digits add: offsets[p * locals + l] is that of local l of the p-th part, parts and locals in the
 * order in which they are combined. */

typedef enum reduce_class { REDUCE_FLOAT, REDUCE_DOUBLE, REDUCE_SIGNED, REDUCE_UNSIGNED } reduce_class;

typedef union reduce_value {
    float f;
    double d;
    int64_t i;
    uint64_t u;
} reduce_value;

typedef struct reduce_plan {
    uint32_t source;
    tvm_dtype type;
    tvm_reduction operation;
    reduce_class class;
    uint32_t outer, extent, inner;
    uint32_t parts, locals;
    uint32_t offsets[]; /* parts * locals == extent */
} reduce_plan;

/* Appends the places that a digit of `size` values, `stride` apart, adds to each of `count` places so far. */
static uint32_t extend(uint32_t *places, uint32_t count, uint32_t size, uint32_t stride) {
    for (uint32_t i = count; i-- > 0;)
        for (uint32_t v = size; v-- > 0;) places[i * size + v] = places[i] + v * stride;
    return count * size;
}

/* Stride along its dimension of a mode. */
static uint32_t mode_stride(const tvm_layout *layout, unsigned mode) {
    uint32_t stride = 1;
    for (unsigned m = mode + 1; m < layout->modes && layout->mode_dim[m] == layout->mode_dim[mode]; m++)
        stride *= layout->mode_size[m];
    return stride;
}

static bool is_spatial(const tvm_layout *layout, unsigned mode) {
    for (unsigned s = 0; s < layout->spatials; s++)
        if (layout->spatial[s] == (int32_t)mode) return true;
    return false;
}

/* Parts ascend along the axis: its modes that threads hold, in the order of their significance in the
 * dimension. Locals ascend by local index: its other modes, in the order of the local digits. */
static void order_axis(reduce_plan *plan, const tvm_layout *layout, unsigned axis, uint32_t *parts) {
    plan->parts = 1;
    for (unsigned m = 0; m < layout->modes; m++)
        if (layout->mode_dim[m] == axis && is_spatial(layout, m))
            plan->parts = extend(parts, plan->parts, layout->mode_size[m], mode_stride(layout, m));
    plan->locals = 1;
    for (unsigned l = 0; l < layout->locals; l++)
        if (layout->mode_dim[layout->local[l]] == axis)
            plan->locals = extend(plan->offsets, plan->locals, layout->mode_size[layout->local[l]],
                                  mode_stride(layout, layout->local[l]));
    for (uint32_t p = plan->parts; p-- > 0;)
        for (uint32_t l = plan->locals; l-- > 0;)
            plan->offsets[p * plan->locals + l] = parts[p] + plan->offsets[l];
}

static reduce_class classify(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT) return type.bits == 64 ? REDUCE_DOUBLE : REDUCE_FLOAT;
    return type.kind == TVM_KIND_INT ? REDUCE_SIGNED : REDUCE_UNSIGNED;
}

tvm_status tvm_plan_REDUCE(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    uint32_t source = insn->operands[1].value;
    unsigned axis = insn->operands[2].value;
    const tvm_slot *slot = interp_slot(k, source);
    const tvm_layout *layout = &k->program->layouts[slot->layout];
    uint32_t extent = layout->shape[axis];
    reduce_plan *plan = calloc(1, sizeof *plan + extent * sizeof(uint32_t));
    uint32_t *parts = calloc(extent, sizeof *parts);
    if (!plan || !parts) {
        free(plan);
        free(parts);
        return tvm_diag_no_memory(diags);
    }
    insn->plan = plan;
    plan->source = source;
    plan->type = slot->dtype;
    plan->operation = (tvm_reduction)insn->operands[0].value;
    plan->class = classify(slot->dtype);
    plan->extent = extent;
    plan->outer = plan->inner = 1;
    for (unsigned d = 0; d < layout->rank; d++) {
        if (d < axis) plan->outer *= layout->shape[d];
        if (d > axis) plan->inner *= layout->shape[d];
    }
    order_axis(plan, layout, axis, parts);
    free(parts);
    tvm_interp_need_scratch(k, (size_t)extent * sizeof(reduce_value));
    return TVM_OK;
}

static reduce_value read_value(const reduce_plan *plan, const void *containers, size_t at) {
    uint64_t code = tvm_container_get(plan->type, containers, at);
    unsigned unused = 64u - plan->type.bits;
    switch (plan->class) {
    case REDUCE_FLOAT:
        return (reduce_value){.f = (float)tvm_decode(plan->type, code)};
    case REDUCE_DOUBLE:
        return (reduce_value){.d = tvm_decode(plan->type, code)};
    case REDUCE_SIGNED:
        return (reduce_value){.i = (int64_t)(code << unused) >> unused};
    default:
        return (reduce_value){.u = code};
    }
}

static void write_value(const reduce_plan *plan, void *containers, size_t at, reduce_value value) {
    uint64_t code = value.u & (UINT64_MAX >> (64u - plan->type.bits));
    if (plan->class == REDUCE_FLOAT) code = tvm_encode(plan->type, value.f);
    if (plan->class == REDUCE_DOUBLE) code = tvm_encode(plan->type, value.d);
    tvm_container_set(plan->type, containers, at, code);
}

static reduce_value combine(const reduce_plan *plan, reduce_value a, reduce_value b) {
    if (plan->operation == TVM_SUM) switch (plan->class) {
        case REDUCE_FLOAT:
            return (reduce_value){.f = a.f + b.f};
        case REDUCE_DOUBLE:
            return (reduce_value){.d = a.d + b.d};
        default:
            return (reduce_value){.u = a.u + b.u};
        }
    switch (plan->class) {
    case REDUCE_FLOAT:
        return (reduce_value){.f = tvm_interp_max_f32(a.f, b.f)};
    case REDUCE_DOUBLE:
        return (reduce_value){.d = tvm_interp_max_f64(a.d, b.d)};
    case REDUCE_SIGNED:
        return (reduce_value){.i = a.i > b.i ? a.i : b.i};
    default:
        return (reduce_value){.u = a.u > b.u ? a.u : b.u};
    }
}

/* Combines the parts: neighbours first, in a binary tree, when there is a power of two of them. */
static reduce_value combine_parts(const reduce_plan *plan, reduce_value *parts) {
    if ((plan->parts & (plan->parts - 1)) == 0) {
        for (uint32_t distance = 1; distance < plan->parts; distance *= 2)
            for (uint32_t p = 0; p < plan->parts; p += 2 * distance)
                parts[p] = combine(plan, parts[p], parts[p + distance]);
    } else {
        for (uint32_t p = 1; p < plan->parts; p++) parts[0] = combine(plan, parts[0], parts[p]);
    }
    return parts[0];
}

/* A wide sum wraps to the narrower one, so that integers may be summed in 64 bits. */
tvm_status tvm_interp_REDUCE(interp_context *context, const interp_insn *insn) {
    const reduce_plan *plan = insn->plan;
    const void *source = interp_tensor(context->block, plan->source);
    void *result = interp_tensor(context->block, insn->source->result);
    reduce_value *parts = (reduce_value *)(void *)context->block->scratch;
    for (uint32_t o = 0; o < plan->outer; o++)
        for (uint32_t i = 0; i < plan->inner; i++) {
            size_t base = (size_t)o * plan->extent * plan->inner + i;
            const uint32_t *offset = plan->offsets;
            for (uint32_t p = 0; p < plan->parts; p++) {
                parts[p] = read_value(plan, source, base + (size_t)*offset++ * plan->inner);
                for (uint32_t l = 1; l < plan->locals; l++)
                    parts[p] = combine(plan, parts[p],
                                       read_value(plan, source, base + (size_t)*offset++ * plan->inner));
            }
            write_value(plan, result, (size_t)o * plan->inner + i, combine_parts(plan, parts));
        }
    return TVM_OK;
}
