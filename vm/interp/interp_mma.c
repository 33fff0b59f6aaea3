/* mma and mma-tensor. */
#include "interp_impl.h"
#include "sanitize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interp_vector.h"
#include "tensor_memory.h"

/* An operand: a register tensor is dense as it is, a tile of a shared tensor is gathered to scratch memory.
 */
typedef struct mma_operand {
    uint32_t slot;
    tvm_dtype type;
    unsigned bytes;          /* of an element */
    interp_tile tile;        /* of a shared one */
    size_t loaded, gathered; /* places in scratch memory: of the tile as it is stored, and as mma reads it, */
    size_t floats;           /* and of that as floats */
    float value[256];        /* of the codes of a small float */
    uint32_t scales;         /* slot; TVM_NONE: none */
    bool is_spread;          /* each 16 bytes of the tile begin with 16 codes */
    interp_tile
        scale_tile; /* of mma-tensor, its place in scratch memory, and that of the scales as mma has them */
    size_t scale_loaded, scale_codes;
} mma_operand;

typedef struct mma_plan {
    tvm_mma mma;
    mma_operand a, b;
    tvm_interp_factor factor;
    interp_tile d, d_part; /* of mma-tensor: all, and a block's columns of b; its place in scratch memory */
    size_t d_at;
    bool folds;         /* of mma-tensor: the columns of the second block are the lanes from 64 on */
    bool as_floats;     /* tvm_interp_mma does not read their types */
    size_t sums, parts; /* of f16 sums, places of the sums in f32 and of a's part of a step */
    float scale[256];   /* of the codes of scales */
} mma_plan;

/* ---- planning ---- */

/* The next place in scratch memory; loops over elements may read and write INTERP_SLACK bytes further. */
static size_t take_place(size_t *scratch, size_t bytes) {
    size_t at = *scratch;
    *scratch = (at + bytes + 2 * INTERP_SLACK - 1) / INTERP_SLACK * INTERP_SLACK;
    return at;
}

static void plan_operand(tvm_interp_kernel *k, const interp_insn *insn, const tvm_mma_source *source,
                         tvm_dtype type, size_t elements, size_t *scratch, mma_operand *operand) {
    const mma_plan *plan = insn->plan;
    bool is_small = tvm_mma_is_small_float(type);
    for (unsigned code = 0; is_small && code < 1U << type.bits; code++)
        operand->value[code] = (float)tvm_decode(type, code);
    operand->slot = source->slot;
    operand->type = type;
    operand->bytes = tvm_dtype_container(type);
    operand->is_spread = source->is_spread;
    if (plan->as_floats) operand->floats = take_place(scratch, elements * sizeof(float));
    if (!source->is_shared) return;
    tvm_interp_plan_tile(k, insn->operands, (uint32_t)(source->tensor - insn->operands), source->tile_rank,
                         source->tile, &operand->tile);
    operand->loaded = take_place(scratch, elements * operand->bytes);
    operand->gathered = take_place(scratch, elements * operand->bytes);
}

static void plan_types(mma_plan *plan) {
    tvm_dtype a = plan->mma.types->a;
    bool f16 = tvm_dtype_same(a, TVM_F16), bf16 = tvm_dtype_same(a, TVM_BF16);
    plan->factor = f16 ? TVM_FACTOR_F16 : bf16 ? TVM_FACTOR_BF16 : TVM_FACTOR_F32;
    plan->as_floats = tvm_dtype_same(a, TVM_TF32) || tvm_mma_is_small_float(a);
    plan->a.scales = plan->mma.scale_a;
    plan->b.scales = plan->mma.scale_b;
    const tvm_mma_scaling *scaling = plan->mma.scaling;
    for (unsigned code = 0; code < 256 && scaling; code++) { /* of f8_e4m3 the sign is not read */
        double scale = tvm_decode(scaling->type, code);
        plan->scale[code] = (float)fabs(scale);
    }
}

tvm_status tvm_plan_MMA(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    mma_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_mma *mma = &plan->mma;
    tvm_mma_read(k->program, k->kernel, insn->operands, insn->source->count, mma);
    plan_types(plan);
    size_t scratch = 0, size_a = (size_t)tvm_mma_matrices(&mma->a) * mma->m * mma->k,
           size_b = (size_t)tvm_mma_matrices(&mma->b) * mma->k * mma->n;
    take_place(&scratch, tvm_interp_mma_scratch(mma->m, mma->k));
    plan_operand(k, insn, &mma->a, mma->types->a, size_a, &scratch, &plan->a);
    plan_operand(k, insn, &mma->b, mma->types->b, size_b, &scratch, &plan->b);
    if (mma->types->sums == TVM_MMA_F16) {
        plan->sums = take_place(&scratch, (size_t)mma->m * mma->n * sizeof(float));
        plan->parts = take_place(&scratch, (size_t)mma->m * mma->atoms->k * sizeof(float));
    }
    tvm_interp_need_scratch(k, scratch);
    return TVM_OK;
}

/* ---- operands ---- */

#define GATHER(type)                                                                                         \
    static void gather_##type(void *target, const void *tile, uint32_t matrices, uint32_t batch_stride,      \
                              uint32_t rows, uint32_t row_stride, uint32_t columns,                          \
                              uint32_t column_stride) {                                                      \
        type *to = target;                                                                                   \
        const type *from = tile;                                                                             \
        for (uint32_t i = 0; i < matrices; i++)                                                              \
            for (uint32_t r = 0; r < rows; r++)                                                              \
                for (uint32_t c = 0; c < columns; c++)                                                       \
                    *to++ = from[i * batch_stride + r * row_stride + c * column_stride];                     \
    }
GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)

/* Row-major matrices of rows x columns elements that are these steps apart in the tile. */
static void gather(void *to, const void *tile, unsigned bytes, uint32_t matrices, uint32_t batch_stride,
                   uint32_t rows, uint32_t row_stride, uint32_t columns, uint32_t column_stride) {
    (bytes == 1   ? gather_uint8_t
     : bytes == 2 ? gather_uint16_t
     : bytes == 4
         ? gather_uint32_t
         : gather_uint64_t)(to, tile, matrices, batch_stride, rows, row_stride, columns, column_stride);
}

/* Of codes of tf32, or of small floats. */
static void to_floats(const mma_operand *operand, const void *from, size_t count, float *to) {
    if (operand->bytes == 1) {
        const uint8_t *codes = from;
        for (size_t i = 0; i < count; i++) to[i] = operand->value[codes[i]];
    } else {
        const uint32_t *codes = from;
        for (size_t i = 0; i < count; i++) to[i] = tvm_f32_from_bits(codes[i] & UINT32_C(0xffffe000));
    }
}

/* Each element of the dense matrices times its block's scale. */
static void multiply_scales(const mma_plan *plan, bool is_a, uint32_t matrices, const uint8_t *codes,
                            float *values) {
    const tvm_mma *mma = &plan->mma;
    uint32_t block = mma->scaling->block, rows = is_a ? mma->m : mma->k, columns = is_a ? mma->k : mma->n;
    uint32_t row_block = is_a ? 1 : block, column_block = is_a ? block : 1;
    for (uint32_t i = 0; i < matrices; i++)
        for (uint32_t r = 0; r < rows; r++) {
            const uint8_t *row =
                codes + ((size_t)i * (rows / row_block) + r / row_block) * (columns / column_block);
            for (uint32_t c = 0; c < columns; c++) *values++ *= plan->scale[row[c / column_block]];
        }
}

/* The operand's matrices, dense; those of a tile have been loaded to scratch memory. */
static const void *make_dense(const mma_plan *plan, const interp_block *block, bool is_a) {
    const tvm_mma *mma = &plan->mma;
    const tvm_mma_source *source = is_a ? &mma->a : &mma->b;
    const mma_operand *operand = is_a ? &plan->a : &plan->b;
    uint32_t rows = is_a ? mma->m : mma->k, columns = is_a ? mma->k : mma->n;
    uint32_t matrices = tvm_mma_matrices(source);
    const void *dense = interp_tensor(block, operand->slot);
    if (source->is_shared) {
        void *to = block->scratch + operand->gathered;
        gather(to, block->scratch + operand->loaded, operand->bytes, matrices, source->batch_stride, rows,
               is_a ? source->other_stride : source->k_stride, columns,
               is_a ? source->k_stride : source->other_stride);
        dense = to;
    }
    if (!plan->as_floats) return dense;
    float *floats = (float *)(void *)(block->scratch + operand->floats);
    to_floats(operand, dense, (size_t)matrices * rows * columns, floats);
    if (!mma->scaling) return floats;
    const uint8_t *scales = operand->scales != TVM_NONE ? interp_tensor(block, operand->scales)
                                                        : block->scratch + operand->scale_codes;
    multiply_scales(plan, is_a, matrices, scales, floats);
    return floats;
}

/* Of each 16 bytes the 16 codes at their beginning, a byte each, in their place. */
static void unpack_spread(const mma_operand *operand, size_t bytes, uint8_t *tile) {
    enum { TOGETHER = 16 };
    for (uint8_t *at = tile; operand->is_spread && at < tile + bytes; at += TOGETHER) {
        uint8_t codes[TOGETHER];
        for (unsigned i = 0; i < TOGETHER; i++)
            codes[i] = (uint8_t)tvm_bits_get(at, (size_t)i * operand->type.bits, operand->type.bits);
        memcpy(at, codes, sizeof codes);
    }
}

static tvm_status read_operand(interp_context *context, const interp_insn *insn, bool is_a,
                               const void **out) {
    const mma_plan *plan = insn->plan;
    const mma_operand *operand = is_a ? &plan->a : &plan->b;
    const tvm_mma_source *source = is_a ? &plan->mma.a : &plan->mma.b;
    uint8_t *tile = context->block->scratch + operand->loaded;
    tvm_status status = TVM_OK;
    if (source->is_shared) status = tvm_interp_load_tile(context, insn, &operand->tile, tile);
    if (source->is_shared && status == TVM_OK)
        unpack_spread(operand,
                      (size_t)tvm_mma_matrices(source) * source->shape[source->rank - 2] *
                          source->shape[source->rank - 1],
                      tile);
    if (status == TVM_OK) *out = make_dense(plan, context->block, is_a);
    return status;
}

/* ---- products ---- */

/* Sums of f16 are rounded to f16 after the products of each fragment along k. */
static void add_f16(const mma_plan *plan, const uint8_t *a, const uint8_t *b, uint16_t *c, uint8_t *scratch) {
    const tvm_mma *mma = &plan->mma;
    uint32_t step = mma->atoms->k;
    size_t count = (size_t)mma->m * mma->n, bytes = plan->as_floats ? sizeof(float) : sizeof(uint16_t);
    float *sums = (float *)(void *)(scratch + plan->sums);
    uint8_t *part = scratch + plan->parts;
    for (uint32_t k = 0; k < mma->k; k += step) {
        for (uint32_t r = 0; r < mma->m; r++)
            memcpy(part + r * step * bytes, a + ((size_t)r * mma->k + k) * bytes, step * bytes);
        tvm_interp_f16_to_f32(sums, c, count);
        tvm_interp_mma(mma->m, mma->n, step, part, b + (size_t)k * mma->n * bytes, plan->factor, sums,
                       scratch);
        tvm_interp_f32_to_f16(c, sums, count);
    }
}

static void add_f64(const tvm_mma *mma, const double *a, const double *b, double *c) {
    for (uint32_t r = 0; r < mma->m; r++, c += mma->n)
        for (uint32_t k = 0; k < mma->k; k++)
            for (uint32_t n = 0; n < mma->n; n++)
                c[n] = fma(a[(size_t)r * mma->k + k], b[(size_t)k * mma->n + n], c[n]);
}

/* Sums wrap. */
static void add_i32(const mma_plan *plan, const uint8_t *a, const uint8_t *b, uint32_t *c) {
    const tvm_mma *mma = &plan->mma;
    bool signed_a = plan->a.type.kind == TVM_KIND_INT, signed_b = plan->b.type.kind == TVM_KIND_INT;
    for (uint32_t r = 0; r < mma->m; r++, c += mma->n)
        for (uint32_t k = 0; k < mma->k; k++) {
            uint8_t code = *a++;
            int32_t x = signed_a ? (int8_t)code : code;
            const uint8_t *row = b + (size_t)k * mma->n;
            for (uint32_t n = 0; n < mma->n && signed_b; n++) c[n] += (uint32_t)(x * (int8_t)row[n]);
            for (uint32_t n = 0; n < mma->n && !signed_b; n++) c[n] += (uint32_t)(x * row[n]);
        }
}

static void add_products(const mma_plan *plan, const void *a, const void *b, void *c, uint8_t *scratch) {
    const tvm_mma *mma = &plan->mma;
    switch (mma->types->sums) {
    case TVM_MMA_F32:
        tvm_interp_mma(mma->m, mma->n, mma->k, a, b, plan->factor, c, scratch);
        break;
    case TVM_MMA_F16:
        add_f16(plan, a, b, c, scratch);
        break;
    case TVM_MMA_F64:
        add_f64(mma, a, b, c);
        break;
    case TVM_MMA_I32:
        add_i32(plan, a, b, c);
        break;
    }
}

tvm_status tvm_interp_MMA(interp_context *context, const interp_insn *insn) {
    const mma_plan *plan = insn->plan;
    const tvm_mma *mma = &plan->mma;
    const interp_block *block = context->block;
    const void *a, *b;
    if (interp_sanitized(context)) tvm_sanitize_mma(context);
    tvm_status status = read_operand(context, insn, true, &a);
    if (status == TVM_OK) status = read_operand(context, insn, false, &b);
    if (status != TVM_OK) return status;
    const uint8_t *c = interp_tensor(block, mma->c);
    uint8_t *result = interp_tensor(block, insn->source->result);
    unsigned bytes = plan->as_floats ? (unsigned)sizeof(float) : plan->a.bytes;
    size_t size_a = (size_t)mma->m * mma->k * bytes, size_b = (size_t)mma->k * mma->n * bytes,
           size_c = (size_t)mma->m * mma->n * tvm_dtype_container(mma->types->c);
    if (result != c) memcpy(result, c, mma->batch * size_c);
    for (uint32_t i = 0; i < mma->batch; i++)
        add_products(plan, (const uint8_t *)a + tvm_mma_matrix(mma, &mma->a, i) * size_a,
                     (const uint8_t *)b + tvm_mma_matrix(mma, &mma->b, i) * size_b, result + i * size_c,
                     block->scratch);
    return TVM_OK;
}

/* ---- mma-tensor ---- */

/* A tile in shared or tensor memory, whose elements are gathered alike. */
static tvm_mma_source source_of(const tvm_tensor_tile *tile, bool is_a) {
    bool k_first = tile->is_transposed == is_a;
    return (tvm_mma_source){.slot = tile->tensor->value,
                            .rank = 2,
                            .tensor = tile->tensor,
                            .is_shared = true,
                            .is_transposed = tile->is_transposed,
                            .is_spread = tile->is_spread,
                            .type = tile->type,
                            .tile_rank = 2,
                            .tile = {tile->tile[0], tile->tile[1]},
                            .k_stride = k_first ? tile->tile[1] : 1,
                            .other_stride = k_first ? 1 : tile->tile[1]};
}

/* The operand's scales, where the product has any. */
static void plan_scales(tvm_interp_kernel *k, const interp_insn *insn, const tvm_tensor_tile *tile,
                        uint32_t rows, size_t *scratch, mma_operand *operand) {
    const tvm_mma *mma = &((const mma_plan *)insn->plan)->mma;
    operand->scales = TVM_NONE;
    if (!mma->scaling) return;
    tvm_interp_plan_tile(k, insn->operands, (uint32_t)(tile->tensor - insn->operands), 2, tile->tile,
                         &operand->scale_tile);
    operand->scale_loaded = take_place(scratch, (size_t)tile->tile[0] * tile->tile[1]);
    operand->scale_codes = take_place(scratch, (size_t)rows * (mma->k / mma->scaling->block));
}

tvm_status tvm_plan_MMA_TENSOR(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    mma_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_tensor_mma t;
    tvm_tensor_mma_read(k->program, k->kernel, insn->operands, &t);
    plan->mma = (tvm_mma){.a = source_of(&t.a, true),
                          .b = source_of(&t.b, false),
                          .types = t.types,
                          .scaling = t.scaling,
                          .batch = 1,
                          .m = t.m,
                          .n = t.n / t.blocks, /* of one product: each block's rows by each block's columns */
                          .k = t.k};
    plan_types(plan);
    size_t scratch = 0;
    take_place(&scratch, tvm_interp_mma_scratch(t.m, t.k));
    plan_operand(k, insn, &plan->mma.a, t.types->a, (size_t)t.m * t.k, &scratch, &plan->a);
    plan_operand(k, insn, &plan->mma.b, t.types->b, (size_t)t.k * plan->mma.n, &scratch, &plan->b);
    plan->folds = t.folds;
    plan_scales(k, insn, &t.scale_a, t.m, &scratch, &plan->a);
    plan_scales(k, insn, &t.scale_b, t.n, &scratch, &plan->b);
    const uint32_t part[2] = {t.m, plan->mma.n};
    tvm_interp_plan_tile(k, insn->operands, 0, 2, t.d.tile, &plan->d);
    tvm_interp_plan_tile(k, insn->operands, 0, 2, part, &plan->d_part);
    plan->d_at = take_place(&scratch, (size_t)t.m * plan->mma.n * tvm_dtype_container(t.types->c));
    tvm_interp_need_scratch(k, scratch);
    return TVM_OK;
}

/* Of a product with tensor memory the kind of its PTX instruction, by the bits of an element in its container
 * and whether there are scales; not 0. */
static uint32_t kind_of(const tvm_tensor_mma *t) {
    return (t->a.is_spread ? 8 : t->a.type.bits) << 1 | (t->scaling != NULL);
}

/* A tile of each block that the tensor core reads, or writes, until the team has waited for it; it is found,
 * and the sanitizer told. kind: of the products that are added to it; 0: it is an operand. */
static tvm_status find_tensor(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                              int64_t *start, sanitize_mode mode, bool updates, uint32_t kind) {
    interp_block *blocks[2];
    uint32_t count = tvm_interp_tensor_blocks(context, insn, blocks);
    tvm_status status = tvm_interp_find_tile(context, insn, tile, start);
    const unsigned last = tile->rank - 1;
    uint32_t sums = kind ? ((uint32_t)start[last] << 10 | (uint32_t)tile->tile[1]) << 10 | kind : 0;
    for (uint32_t b = 0; b < count && status == TVM_OK && interp_sanitized(context); b++) {
        const sanitize_access access = {.owner = blocks[b],
                                        .memory = tile->slot,
                                        .tensor = TVM_NONE,
                                        .mode = mode,
                                        .updates = updates,
                                        .actor = SANITIZE_TENSOR,
                                        .sums = sums};
        status = tvm_interp_sanitize_tile_at(context, insn, tile, start, &access);
    }
    return status;
}

tvm_status tvm_interp_MMA_TENSOR(interp_context *context, const interp_insn *insn) {
    const mma_plan *plan = insn->plan;
    interp_tensor_work work = {.insn = insn, .accumulates = true};
    interp_block *blocks[2];
    tvm_tensor_mma t;
    tvm_scalar adds = {.i = 1};
    tvm_status status = TVM_OK;
    tvm_tensor_mma_read(context->block->kernel->program, context->block->kernel->kernel, insn->operands, &t);
    if (t.accumulate->kind == TVM_OPERAND_EXPR)
        status = tvm_interp_evaluate(context, insn, t.accumulate->value, &adds);
    work.accumulates = adds.i != 0;
    if (status == TVM_OK) status = find_tensor(context, insn, &plan->a.tile, work.a, SANITIZE_READ, false, 0);
    if (status == TVM_OK) status = find_tensor(context, insn, &plan->b.tile, work.b, SANITIZE_READ, false, 0);
    if (status == TVM_OK && plan->mma.scaling)
        status = find_tensor(context, insn, &plan->a.scale_tile, work.scale_a, SANITIZE_READ, false, 0);
    if (status == TVM_OK && plan->mma.scaling)
        status = find_tensor(context, insn, &plan->b.scale_tile, work.scale_b, SANITIZE_READ, false, 0);
    if (status == TVM_OK)
        status =
            find_tensor(context, insn, &plan->d, work.target, SANITIZE_WRITE, work.accumulates, kind_of(&t));
    if (status != TVM_OK || !tvm_interp_tensor_blocks(context, insn, blocks)) return status;
    return tvm_interp_start_tensor_work(context, &work);
}

/* The scales of some rows of a, or columns of b, of all that the block has, as mma has them: a's [m, k /
 * block], b's [k / block, n]. */
typedef struct scale_rows {
    const interp_block *block;
    uint32_t first, count, all;
} scale_rows;

static tvm_status load_scales(interp_context *context, const interp_insn *insn, bool is_a,
                              const int64_t *start, const scale_rows *of) {
    const mma_plan *plan = insn->plan;
    const mma_operand *operand = is_a ? &plan->a : &plan->b;
    uint8_t *scratch = context->block->scratch, *tile = scratch + operand->scale_loaded,
            *codes = scratch + operand->scale_codes;
    uint32_t blocks = plan->mma.k / plan->mma.scaling->block;
    size_t lane = (size_t)operand->scale_tile.tile[1];
    tvm_interp_move_tile_at(of->block, &operand->scale_tile, start, true, tile);
    for (uint32_t r = 0; r < of->count; r++)
        for (uint32_t i = 0; i < blocks; i++) {
            uint32_t row = of->first + r;
            const uint8_t *at =
                tile + row % TVM_TENSOR_SCALE_ROWS * lane + tvm_tensor_scale_place(of->all, row, i);
            for (unsigned q = TVM_TENSOR_SCALE_ROWS; q < TVM_TENSOR_LANES; q += TVM_TENSOR_SCALE_ROWS)
                if (at[q * lane] != *at)
                    return tvm_interp_fail(
                        context, insn, "scale_%c: the quarters of the lanes differ in number %u of row %u",
                        is_a ? 'a' : 'b', i, row);
            codes[is_a ? r * blocks + i : i * of->count + r] = *at;
        }
    return TVM_OK;
}

/* The rows of one block by the columns of another, or the same: columns of the first one's sums. */
static void multiply_part(const interp_context *context, const interp_tensor_work *work,
                          const interp_block *of_a, const interp_block *of_b, uint32_t part) {
    const mma_plan *plan = work->insn->plan;
    const tvm_mma *mma = &plan->mma;
    uint8_t *scratch = context->block->scratch, *d = scratch + plan->d_at, *a = scratch + plan->a.loaded,
            *b = scratch + plan->b.loaded;
    int64_t target[TVM_MAX_RANK];
    memcpy(target, work->target, sizeof target);
    target[plan->d.rank - (plan->folds ? 2 : 1)] += (int64_t)part * (plan->folds ? mma->m : mma->n);
    tvm_interp_move_tile_at(of_a, &plan->a.tile, work->a, true, a);
    tvm_interp_move_tile_at(of_b, &plan->b.tile, work->b, true, b);
    unpack_spread(&plan->a, (size_t)mma->m * mma->k, a);
    unpack_spread(&plan->b, (size_t)mma->k * mma->n, b);
    if (work->accumulates)
        tvm_interp_move_tile_at(of_a, &plan->d_part, target, true, d);
    else
        memset(d, 0, (size_t)mma->m * mma->n * tvm_dtype_container(mma->types->c));
    add_products(plan, make_dense(plan, context->block, true), make_dense(plan, context->block, false), d,
                 scratch);
    tvm_interp_move_tile_at(of_a, &plan->d_part, target, false, d);
}

/* Each block has the scales of its own rows of a, and of all columns of b. */
tvm_status tvm_interp_multiply_tensor(interp_context *context, const interp_tensor_work *work) {
    const mma_plan *plan = work->insn->plan;
    const tvm_mma *mma = &plan->mma;
    interp_block *blocks[2];
    uint32_t count = tvm_interp_tensor_blocks(context, work->insn, blocks);
    tvm_status status = TVM_OK;
    for (uint32_t r = 0; r < count && status == TVM_OK; r++)
        for (uint32_t c = 0; c < count && status == TVM_OK; c++) {
            const scale_rows of_a = {blocks[r], 0, mma->m, mma->m},
                             of_b = {blocks[r], c * mma->n, mma->n, count * mma->n};
            if (mma->scaling) status = load_scales(context, work->insn, true, work->scale_a, &of_a);
            if (mma->scaling && status == TVM_OK)
                status = load_scales(context, work->insn, false, work->scale_b, &of_b);
            if (status == TVM_OK) multiply_part(context, work, blocks[r], blocks[c], c);
        }
    return status;
}
