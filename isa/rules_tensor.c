/* Rules of tensor memory. */
#include "rules.h"
#include "tensor_memory.h"

tvm_status tvm_rule_ALLOC_TENSOR(const tvm_rule *rule) {
    tvm_result_type *type = rule->type;
    const tvm_shared_layout *layout = &type->shared_layout;
    tvm_shared_layout plain;
    if (type->dtype.kind == TVM_KIND_NONE || !type->has_layout)
        return tvm_refuse(rule->why, "expected a type and a shape for the result");
    unsigned bits = type->dtype.bits, rank = layout->rank;
    if (bits != 8 && bits != 16 && bits != 32)
        return tvm_refuse(rule->why, "type %s, expected elements of 8, 16 or 32 bits",
                          TVM_DTYPE_TEXT(type->dtype));
    if (tvm_shared_layout_row_major(rank, layout->shape, &plain, NULL) != TVM_OK ||
        !tvm_shared_layout_equal(&plain, layout))
        return tvm_refuse(rule->why, "the tensor is not in row-major order");
    if (rank < 2 ||
        (layout->shape[rank - 2] != TVM_TENSOR_LANES && layout->shape[rank - 2] != TVM_TENSOR_HALF))
        return tvm_refuse(
            rule->why,
            "shape %s, expected [.., %d, n] or [.., %d, n]: the last but one dimension is the lanes",
            TVM_SHAPE_TEXT(rank, layout->shape), TVM_TENSOR_LANES, TVM_TENSOR_HALF);
    if (layout->shape[rank - 1] * bits % TVM_TENSOR_COLUMN_BITS != 0)
        return tvm_refuse(rule->why, "%u elements of %u bits in a lane, expected whole columns of %d bits",
                          layout->shape[rank - 1], bits, TVM_TENSOR_COLUMN_BITS);
    type->kind = TVM_SLOT_TENSOR;
    return TVM_OK;
}

tvm_status tvm_rule_FREE_TENSOR(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

/* A tile of all lanes, from a whole column on. */
static tvm_status check_tile(const tvm_rule *rule, unsigned entry, const uint32_t tile[2]) {
    const tvm_slot *slot = tvm_rule_slot(rule, entry);
    const tvm_operand *indices = rule->operands + rule->at[entry] + 1;
    unsigned rank = tvm_slot_rank(rule->program, slot), whole = TVM_TENSOR_COLUMN_BITS / slot->dtype.bits;
    uint32_t rows = tvm_tensor_rows(rule->program, slot);
    int64_t lane, column;
    tvm_status status = tvm_rule_tile(rule, entry, 2, tile);
    if (status != TVM_OK) return status;
    if (tile[0] != rows || !tvm_rule_integer(rule, indices[rank - 2].value, &lane) || lane != 0)
        return tvm_refuse(rule->why, "a tile of %s has all %u lanes, from lane 0 on, not %u",
                          TVM_RULE_NAME(rule, entry), rows, tile[0]);
    bool known = tvm_rule_integer(rule, indices[rank - 1].value, &column);
    if (tile[1] % whole || (known && column % whole) || (whole > 1 && !known))
        return tvm_refuse(
            rule->why,
            "a tile of %s is whole columns of %d bits: expected multiples of %u elements, from a constant "
            "index on",
            TVM_RULE_NAME(rule, entry), TVM_TENSOR_COLUMN_BITS, whole);
    return TVM_OK;
}

/* What the threads hold of the tile. Where layouts are left out the shape alone is known yet. */
static tvm_status check_access(const tvm_rule *rule, const tvm_layout *layout) {
    tvm_tensor_access access;
    tvm_why why = {""};
    if (layout->rank != 2)
        return tvm_refuse(rule->why, "shape %s, expected a matrix",
                          TVM_SHAPE_TEXT(layout->rank, layout->shape));
    tvm_status status = check_tile(rule, 0, layout->shape);
    if (status != TVM_OK || rule->type->open) return status;
    if (tvm_tensor_access_find(layout, tvm_rule_slot(rule, 0)->dtype.bits, rule->team, &access, &why) ==
        TVM_OK)
        return TVM_OK;
    return tvm_refuse(rule->why, "%s", why.text);
}

tvm_status tvm_rule_LOAD_TENSOR(const tvm_rule *rule) {
    tvm_status status = tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, NULL);
    return status == TVM_OK ? check_access(rule, &rule->type->layout) : status;
}

static tvm_status same_type(const tvm_rule *rule, unsigned a, unsigned b) {
    tvm_dtype x = tvm_rule_slot(rule, a)->dtype, y = tvm_rule_slot(rule, b)->dtype;
    if (tvm_dtype_same(x, y)) return TVM_OK;
    return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", TVM_RULE_NAME(rule, b),
                      TVM_DTYPE_TEXT(y), TVM_DTYPE_TEXT(x), TVM_RULE_NAME(rule, a));
}

tvm_status tvm_rule_STORE_TENSOR(const tvm_rule *rule) {
    tvm_status status = same_type(rule, 0, 1);
    if (status == TVM_OK) status = check_access(rule, tvm_rule_layout(rule, 1));
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

/* PTX ISA, "CTA Pair". */
static tvm_status check_pair(const tvm_rule *rule, unsigned entry) {
    uint32_t blocks = tvm_cluster_blocks(rule->kernel);
    if (!tvm_rule_is_given(rule, entry) || blocks % 2 == 0) return TVM_OK;
    return tvm_refuse(
        rule->why, "pair is of two blocks of a cluster, which has %u: expected .cluster with an even number",
        blocks);
}

/* One instruction copies 32 bytes to each lane (PTX ISA, "tcgen05.cp", .128x256b), or 16 bytes of 32 rows to
 * each quarter of the lanes (.32x128b.warpx4). */
tvm_status tvm_rule_COPY_TENSOR(const tvm_rule *rule) {
    enum { TARGET, SOURCE, TILE, PAIR };
    uint32_t rank = tvm_rule_value(rule, TILE), tile[2], lanes[2];
    const tvm_operand *extents = rule->operands + rule->at[TILE] + 1;
    tvm_status status = same_type(rule, TARGET, SOURCE);
    if (status != TVM_OK) return status;
    for (unsigned d = 0; d + 2 < rank; d++)
        if (extents[d].value != 1)
            return tvm_refuse(rule->why, "a tile of %u matrices, expected one", extents[d].value);
    if (rank < 2) return tvm_refuse(rule->why, "a tile of 1 dimension, expected a matrix");
    for (unsigned d = 0; d < 2; d++) lanes[d] = tile[d] = extents[rank - 2 + d].value;
    bool to_quarters = tile[0] == TVM_TENSOR_SCALE_ROWS;
    unsigned step = to_quarters ? TVM_TENSOR_STEP / 2 : TVM_TENSOR_STEP;
    if (to_quarters) lanes[0] = TVM_TENSOR_LANES;
    if (tvm_tensor_rows(rule->program, tvm_rule_slot(rule, TARGET)) != TVM_TENSOR_LANES)
        return tvm_refuse(rule->why, "%s has %d lanes, which no copy reaches: store-tensor does",
                          TVM_RULE_NAME(rule, TARGET), TVM_TENSOR_HALF);
    status = check_tile(rule, TARGET, lanes);
    if (status == TVM_OK) status = tvm_rule_tile(rule, SOURCE, 2, tile);
    if (status != TVM_OK) return status;
    if (tile[1] * tvm_rule_slot(rule, TARGET)->dtype.bits % (8 * step) != 0)
        return tvm_refuse(rule->why, "%u elements of a lane, expected a multiple of %u bytes", tile[1], step);
    status = check_pair(rule, PAIR);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

enum { D, A, B, ACCUMULATE, TRANSPOSE_A, TRANSPOSE_B, K, SCALE_A, SCALE_B, TYPE_A, TYPE_B, PAIR };

/* Of type_a and type_b. */
static tvm_status check_spread(const tvm_rule *rule, const tvm_tensor_tile *tile, unsigned entry) {
    const tvm_slot *slot = tvm_rule_slot(rule, entry);
    const char *name = entry == A ? "type_a" : "type_b";
    if (!tile->is_spread) return TVM_OK;
    if (!tvm_dtype_same(slot->dtype, TVM_U(8)))
        return tvm_refuse(rule->why, "%s is of a tile of u8, of which 16 have 16 elements, %s has type %s",
                          name, TVM_RULE_NAME(rule, entry), TVM_DTYPE_TEXT(slot->dtype));
    if (!tile->is_shared)
        return tvm_refuse(rule->why, "%s is of a tile in shared memory, %s is in tensor memory", name,
                          TVM_RULE_NAME(rule, entry));
    return TVM_OK;
}

/* Elements of less than 8 bits lie along k (PTX ISA, "Valid Combinations of Type-Size, Major-ness and
 * Swizzling"). */
static tvm_status check_turns(const tvm_rule *rule, const tvm_tensor_mma *mma) {
    if (mma->a.type.bits < 8 && mma->a.is_transposed)
        return tvm_refuse(rule->why, "transpose_a: elements of %u bits lie along k", mma->a.type.bits);
    if (mma->b.type.bits < 8 && !mma->b.is_transposed)
        return tvm_refuse(rule->why,
                          "elements of %u bits lie along k: expected %s as [n, k], and transpose_b",
                          mma->b.type.bits, TVM_RULE_NAME(rule, B));
    return TVM_OK;
}

/* Two elements of f4_e2m1 a byte are of products with scales of both alone (PTX ISA, "Packing format"). */
static tvm_status check_packed(const tvm_rule *rule, const tvm_tensor_mma *mma) {
    bool packs_a = mma->a.type.bits < 8 && !mma->a.is_spread,
         packs_b = mma->b.type.bits < 8 && !mma->b.is_spread;
    bool both = packs_a && packs_b && mma->a.type.bits == 4 && mma->b.type.bits == 4;
    if (!packs_a && !packs_b) return TVM_OK;
    if (both && mma->scale_a.tensor && mma->scale_b.tensor) return TVM_OK;
    return tvm_refuse(
        rule->why,
        "elements of %s that fill their bytes, as those of %s, are multiplied by others of f4_e2m1 with "
        "scales alone: expected a tile of u8 and type_%c",
        TVM_DTYPE_TEXT(packs_a ? mma->a.type : mma->b.type), TVM_RULE_NAME(rule, packs_a ? A : B),
        packs_a ? 'a' : 'b');
}

static tvm_status check_scales(const tvm_rule *rule, const tvm_tensor_mma *mma) {
    const tvm_tensor_tile *a = &mma->scale_a, *b = &mma->scale_b;
    if (!a->tensor && !b->tensor) return TVM_OK;
    if (!a->tensor || !b->tensor)
        return tvm_refuse(rule->why,
                          "scale_a and scale_b go together: give an operand without scales those of 1.0");
    bool small = tvm_mma_is_small_float(mma->a.type);
    if (!small || !tvm_mma_is_small_float(mma->b.type))
        return tvm_refuse(rule->why, "scales are of floats of 4, 6 or 8 bits, %s has type %s",
                          TVM_RULE_NAME(rule, small ? B : A),
                          TVM_DTYPE_TEXT(small ? mma->b.type : mma->a.type));
    bool packed = mma->a.type.bits == 4 && !mma->a.is_spread;
    if (!mma->scaling || (mma->scaling->block != 32 && !packed))
        return tvm_refuse(rule->why, "scale_a has type %s, expected e8m0%s", TVM_DTYPE_TEXT(a->type),
                          packed ? ", or f8_e4m3 for blocks of 16"
                                 : "; scales of f8_e4m3 are of two operands of f4_e2m1, packed");
    if (!tvm_dtype_same(a->type, b->type))
        return tvm_refuse(rule->why, "scale_b has type %s, expected %s as scale_a", TVM_DTYPE_TEXT(b->type),
                          TVM_DTYPE_TEXT(a->type));
    tvm_status status = check_tile(rule, SCALE_A, a->tile);
    return status == TVM_OK ? check_tile(rule, SCALE_B, b->tile) : status;
}

static tvm_status check_types(const tvm_rule *rule, const tvm_tensor_mma *mma) {
    if (!mma->types || (mma->types->sums != TVM_MMA_F32 && mma->types->sums != TVM_MMA_I32))
        return tvm_refuse(
            rule->why,
            "%s of %s and %s of %s with sums of %s, expected f16, bf16, tf32, f32 (read as tf32), or floats "
            "of 8, 6 or 4 bits, with sums of f32, or i8 or u8 with i32",
            TVM_RULE_NAME(rule, A), TVM_DTYPE_TEXT(mma->a.type), TVM_RULE_NAME(rule, B),
            TVM_DTYPE_TEXT(mma->b.type), TVM_DTYPE_TEXT(mma->d.type));
    tvm_status status = check_packed(rule, mma);
    return status == TVM_OK ? check_turns(rule, mma) : status;
}

/* PTX ISA, "tcgen05 Matrix Shape": of a block's 128 rows, or 64, which scales do not have, and a pair has in
 * all lanes. */
static tvm_status check_extents(const tvm_rule *rule, const tvm_tensor_mma *mma) {
    enum { COLUMNS = 16, COLUMNS_MAX = 256 };
    bool half = mma->m == TVM_TENSOR_HALF && !mma->folds;
    uint32_t columns = half && mma->types->sums == TVM_MMA_F32 ? COLUMNS / 2 : COLUMNS * mma->blocks;
    if (half && (mma->blocks > 1 || mma->scale_a.tensor))
        return tvm_refuse(rule->why, "%s has %d lanes, expected %d %s", TVM_RULE_NAME(rule, D),
                          TVM_TENSOR_HALF, TVM_TENSOR_LANES,
                          mma->blocks > 1 ? "of a pair" : "of products with scales");
    if (mma->folds && mma->scale_a.tensor)
        return tvm_refuse(rule->why, "%s has %d rows, expected %d of products with scales",
                          TVM_RULE_NAME(rule, A), TVM_TENSOR_HALF, TVM_TENSOR_LANES);
    if (mma->n % columns || mma->n > COLUMNS_MAX)
        return tvm_refuse(rule->why, "n is %u, expected a multiple of %u up to %d", mma->n, columns,
                          COLUMNS_MAX);
    if (mma->k % mma->step || mma->k > TVM_MAX_TILE_ELEMENTS || mma->k == 0)
        return tvm_refuse(rule->why, "k is %u, expected a multiple of %u", mma->k, mma->step);
    return TVM_OK;
}

tvm_status tvm_rule_MMA_TENSOR(const tvm_rule *rule) {
    tvm_tensor_mma mma;
    for (unsigned entry = D; entry <= B; entry++)
        if (tvm_slot_rank(rule->program, tvm_rule_slot(rule, entry)) < 2)
            return tvm_refuse(rule->why, "%s is no matrix", TVM_RULE_NAME(rule, entry));
    tvm_tensor_mma_read(rule->program, rule->kernel, rule->operands, &mma);
    tvm_status status = check_spread(rule, &mma.a, A);
    if (status == TVM_OK) status = check_spread(rule, &mma.b, B);
    if (status == TVM_OK) status = check_types(rule, &mma);
    if (status == TVM_OK) status = check_extents(rule, &mma);
    if (status != TVM_OK) return status;
    if (mma.a.is_transposed && !mma.a.is_shared)
        return tvm_refuse(rule->why, "transpose_a is of a tile in shared memory, a is in tensor memory");
    if (tvm_rule_is_given(rule, ACCUMULATE) && tvm_rule_expr_type(rule, ACCUMULATE).kind != TVM_KIND_BOOL)
        return tvm_refuse(rule->why, "accumulate has type %s, expected bool",
                          TVM_DTYPE_TEXT(tvm_rule_expr_type(rule, ACCUMULATE)));
    status = check_tile(rule, D, mma.d.tile);
    if (status == TVM_OK)
        status = mma.a.is_shared ? tvm_rule_tile(rule, A, 2, mma.a.tile) : check_tile(rule, A, mma.a.tile);
    if (status == TVM_OK) status = tvm_rule_tile(rule, B, 2, mma.b.tile);
    if (status == TVM_OK) status = check_scales(rule, &mma);
    if (status == TVM_OK) status = check_pair(rule, PAIR);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

tvm_status tvm_rule_COMMIT_TENSOR(const tvm_rule *rule) {
    tvm_status status = check_pair(rule, 1);
    return status == TVM_OK ? tvm_rule_barrier_index(rule, 0) : status;
}
