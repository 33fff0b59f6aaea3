/* Rules of the instructions that make tensors and move them between memories. */
#include "rules.h"
#include "tensor_memory.h"

tvm_status tvm_rule_ALLOC_REGISTER(const tvm_rule *rule) {
    if (rule->type->dtype.kind == TVM_KIND_NONE)
        return tvm_refuse(rule->why, "expected a type for the result");
    return tvm_rule_register(rule, rule->type->dtype, NULL);
}

tvm_status tvm_rule_IOTA(const tvm_rule *rule) {
    const tvm_operand *start = rule->operands + rule->at[1];
    tvm_dtype type = rule->type->dtype;
    if (type.kind == TVM_KIND_NONE) return tvm_refuse(rule->why, "expected a type for the result");
    if (!tvm_dtype_is_integer(type) || !tvm_dtype_is_arithmetic(type))
        return tvm_refuse(rule->why, "type %s, expected an integer of 8 to 64 bits", TVM_DTYPE_TEXT(type));
    if (rule->type->has_layout && tvm_rule_value(rule, 0) >= rule->type->layout.rank)
        return tvm_refuse(rule->why, "axis %u of a tensor of %u dimensions", tvm_rule_value(rule, 0),
                          rule->type->layout.rank);
    if (start->kind == TVM_OPERAND_EXPR && !tvm_dtype_is_integer(rule->kernel->exprs[start->value].type))
        return tvm_refuse(rule->why, "start has type %s, expected an integer",
                          TVM_DTYPE_TEXT(rule->kernel->exprs[start->value].type));
    return tvm_rule_register(rule, type, NULL);
}

tvm_status tvm_rule_RANDOM(const tvm_rule *rule) {
    tvm_dtype type = rule->type->dtype, made = rule->op == TVM_OP_RANDOM_BITS ? TVM_U(32) : TVM_F32;
    if (type.kind != TVM_KIND_NONE && !tvm_dtype_same(type, made))
        return tvm_refuse(rule->why, "type %s, expected %s", TVM_DTYPE_TEXT(type), TVM_DTYPE_TEXT(made));
    for (unsigned entry = 0; entry < 3; entry++) {
        const tvm_operand *operand = rule->operands + rule->at[entry];
        if (operand->kind == TVM_OPERAND_EXPR &&
            !tvm_dtype_is_integer(rule->kernel->exprs[operand->value].type))
            return tvm_refuse(rule->why, "%.*s has type %s, expected an integer",
                              (int)rule->desc[entry].name_length, rule->desc[entry].name,
                              TVM_DTYPE_TEXT(rule->kernel->exprs[operand->value].type));
    }
    return tvm_rule_register(rule, made, NULL);
}

tvm_status tvm_rule_ALLOC_SHARED(const tvm_rule *rule) {
    tvm_result_type *type = rule->type;
    if (type->dtype.kind == TVM_KIND_NONE) return tvm_refuse(rule->why, "expected a type for the result");
    if (!type->has_layout) return tvm_refuse(rule->why, "expected a layout for the result");
    if (tvm_shared_layout_whole(&type->shared_layout, rule->why) != TVM_OK) return TVM_INVALID;
    type->kind = TVM_SLOT_SHARED;
    tvm_why why = {""};
    return tvm_shared_layout_packs(&type->shared_layout, type->dtype.bits, &why) == TVM_OK
               ? TVM_OK
               : tvm_refuse(rule->why, "type %s: %.160s", TVM_DTYPE_TEXT(type->dtype), why.text);
}

tvm_status tvm_rule_FREE_SHARED(const tvm_rule *rule) {
    return tvm_rule_nothing(rule);
}

tvm_status tvm_rule_ALLOC_GLOBAL(const tvm_rule *rule) {
    tvm_result_type *type = rule->type;
    if (type->dtype.kind == TVM_KIND_NONE) return tvm_refuse(rule->why, "expected a type for the result");
    if (type->rank < 1 || type->rank > TVM_MAX_RANK)
        return tvm_refuse(rule->why, "a tensor has 1 to %d dimensions, not %u", TVM_MAX_RANK, type->rank);
    if (type->form != TVM_FORM_ROW_MAJOR)
        return tvm_refuse(rule->why, "a tensor of the launch is in row-major order");
    type->kind = TVM_SLOT_GLOBAL;
    return TVM_OK;
}

/* ---- tiles: they span the trailing dimensions of the tensor ---- */

static tvm_status tile_rank(const tvm_rule *rule, unsigned entry, unsigned tile, const char *what) {
    unsigned rank = tvm_slot_rank(rule->program, tvm_rule_slot(rule, entry));
    if (tile >= 1 && tile <= rank) return TVM_OK;
    return tvm_refuse(rule->why, "%s has %u dimensions, %s only %u", what, tile, TVM_RULE_NAME(rule, entry),
                      rank);
}

/* What is known before the program runs: extents that do not fit, constant indices outside. */
static tvm_status tile_inside(const tvm_rule *rule, unsigned entry, unsigned tile_dims,
                              const uint32_t *tile) {
    const tvm_slot *slot = tvm_rule_slot(rule, entry);
    const tvm_operand *indices = rule->operands + rule->at[entry] + 1;
    unsigned rank = tvm_slot_rank(rule->program, slot);
    const uint32_t *shape = tvm_slot_shape(rule->program, slot);
    for (unsigned d = 0; d < rank; d++) {
        uint32_t extent = d < rank - tile_dims ? 1 : tile[d - (rank - tile_dims)];
        if (extent > shape[d])
            return tvm_refuse(rule->why, "the tile has extent %u in dimension %u, %s only %u", extent, d,
                              TVM_RULE_NAME(rule, entry), shape[d]);
        int64_t index;
        if (!tvm_rule_integer(rule, indices[d].value, &index)) continue;
        int64_t last = index > INT64_MAX - extent ? INT64_MAX : index + extent - 1;
        if (index < 0 || last >= shape[d])
            return tvm_refuse(rule->why,
                              "the tile takes elements %lld to %lld of dimension %u, %s has 0 to %u",
                              (long long)index, (long long)last, d, TVM_RULE_NAME(rule, entry), shape[d] - 1);
    }
    return tile_dims == 0 ? TVM_OK : tvm_rule_whole_bytes(rule, entry, tile[tile_dims - 1]);
}

static tvm_status same_dtype(const tvm_rule *rule, unsigned a, unsigned b) {
    tvm_dtype x = tvm_rule_slot(rule, a)->dtype, y = tvm_rule_slot(rule, b)->dtype;
    if (tvm_dtype_same(x, y)) return TVM_OK;
    return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", TVM_RULE_NAME(rule, b),
                      TVM_DTYPE_TEXT(y), TVM_DTYPE_TEXT(x), TVM_RULE_NAME(rule, a));
}

/* ---- loads and stores ---- */

static tvm_status load(const tvm_rule *rule) {
    tvm_status status = tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, NULL);
    return status != TVM_OK ? status : tile_rank(rule, 0, rule->type->layout.rank, "the result");
}

tvm_status tvm_rule_LOAD_GLOBAL(const tvm_rule *rule) {
    enum { MASK = 2, FILL };
    tvm_status status = load(rule);
    if (status == TVM_OK) status = tvm_rule_mask(rule, MASK, 0, &rule->type->layout);
    return status == TVM_OK ? tvm_rule_fill(rule, FILL, 0) : status;
}

tvm_status tvm_rule_tile(const tvm_rule *rule, unsigned entry, unsigned rank, const uint32_t *tile) {
    tvm_status status = tile_rank(rule, entry, rank, "its tile");
    return status != TVM_OK ? status : tile_inside(rule, entry, rank, tile);
}

tvm_status tvm_rule_LOAD_SHARED(const tvm_rule *rule) {
    enum { MASK = 1, FILL };
    tvm_status status = load(rule);
    const tvm_layout *tile = &rule->type->layout;
    if (status == TVM_OK) status = tile_inside(rule, 0, tile->rank, tile->shape);
    if (status == TVM_OK) status = tvm_rule_owns_bytes(rule, rule->type->dtype, tile);
    if (status == TVM_OK) status = tvm_rule_mask(rule, MASK, 0, tile);
    if (status == TVM_OK && tvm_rule_is_given(rule, FILL) && !tvm_rule_is_given(rule, MASK))
        return tvm_refuse(rule->why, "fill without a mask: the tile lies inside of %s",
                          TVM_RULE_NAME(rule, 0));
    return status == TVM_OK ? tvm_rule_fill(rule, FILL, 0) : status;
}

/* What the result is at least and less than: two of its type, and not known to hold no value. */
static tvm_status interval(const tvm_rule *rule, unsigned entry, tvm_dtype type) {
    const tvm_operand *bounds = rule->operands + rule->at[entry];
    int64_t low, end;
    if (bounds->kind == TVM_OPERAND_NONE) return TVM_OK;
    if (!tvm_dtype_is_integer(type))
        return tvm_refuse(rule->why, "a range is of integers, the result has type %s", TVM_DTYPE_TEXT(type));
    for (unsigned i = 0; i < 2; i++) {
        tvm_dtype bound = rule->kernel->exprs[bounds[i].value].type;
        if (!tvm_dtype_same(bound, type))
            return tvm_refuse(rule->why, "the range's %s has type %s, expected %s as the result",
                              i == 0 ? "low" : "end", TVM_DTYPE_TEXT(bound), TVM_DTYPE_TEXT(type));
    }
    if (!tvm_rule_integer(rule, bounds[0].value, &low) || !tvm_rule_integer(rule, bounds[1].value, &end))
        return TVM_OK;
    bool below = type.kind == TVM_KIND_UINT ? (uint64_t)low < (uint64_t)end : low < end;
    return below ? TVM_OK
                 : tvm_refuse(rule->why, "the range %lld to %lld is empty", (long long)low, (long long)end);
}

tvm_status tvm_rule_LOAD_SCALAR(const tvm_rule *rule) {
    const tvm_slot *source = tvm_rule_slot(rule, 0);
    tvm_dtype type;
    if (!tvm_dtype_scalar_of(source->dtype, &type))
        return tvm_refuse(rule->why, "%s has type %s, of which there are no scalars", TVM_RULE_NAME(rule, 0),
                          TVM_DTYPE_TEXT(source->dtype));
    tvm_status status = source->kind == TVM_SLOT_SHARED ? tile_inside(rule, 0, 0, NULL) : TVM_OK;
    if (status == TVM_OK) status = interval(rule, 1, type);
    return status == TVM_OK ? tvm_rule_scalar(rule, type) : status;
}

/* All threads have the one element of a register tensor. */
tvm_status tvm_rule_SCALAR(const tvm_rule *rule) {
    const tvm_slot *source = tvm_rule_slot(rule, 0);
    const tvm_layout *layout = tvm_rule_layout(rule, 0);
    tvm_dtype type;
    if (!tvm_dtype_scalar_of(source->dtype, &type))
        return tvm_refuse(rule->why, "%s has type %s, of which there are no scalars", TVM_RULE_NAME(rule, 0),
                          TVM_DTYPE_TEXT(source->dtype));
    for (unsigned d = 0; d < layout->rank; d++)
        if (layout->shape[d] != 1)
            return tvm_refuse(rule->why, "%s has shape %s, expected one element", TVM_RULE_NAME(rule, 0),
                              TVM_SHAPE_TEXT(layout->rank, layout->shape));
    tvm_status status = interval(rule, 1, type);
    return status == TVM_OK ? tvm_rule_scalar(rule, type) : status;
}

static tvm_status store(const tvm_rule *rule) {
    tvm_status status = same_dtype(rule, 0, 1);
    return status != TVM_OK ? status : tile_rank(rule, 0, tvm_rule_layout(rule, 1)->rank, "the tile");
}

/* Threads write elements narrower than a byte without asking each other: each byte has one owner. */
static tvm_status store_global(const tvm_rule *rule) {
    tvm_status status = store(rule);
    if (status != TVM_OK) return status;
    status = tvm_rule_owns_bytes(rule, tvm_rule_slot(rule, 1)->dtype, tvm_rule_layout(rule, 1));
    return status != TVM_OK ? status : tvm_rule_nothing(rule);
}

tvm_status tvm_rule_STORE_GLOBAL(const tvm_rule *rule) {
    enum { MASK = 2 };
    tvm_status status = store_global(rule);
    return status != TVM_OK ? status : tvm_rule_mask(rule, MASK, 0, tvm_rule_layout(rule, 1));
}

tvm_status tvm_rule_STORE_SHARED(const tvm_rule *rule) {
    enum { MASK = 2 };
    tvm_status status = store(rule);
    if (status != TVM_OK) return status;
    const tvm_layout *tile = tvm_rule_layout(rule, 1);
    status = tile_inside(rule, 0, tile->rank, tile->shape);
    if (status == TVM_OK) status = tvm_rule_owns_bytes(rule, tvm_rule_slot(rule, 1)->dtype, tile);
    if (status == TVM_OK) status = tvm_rule_mask(rule, MASK, 0, tile);
    return status != TVM_OK ? status : tvm_rule_nothing(rule);
}

/* ---- elements that are empty or put: their own semaphores ---- */

static tvm_status may_be_empty(const tvm_rule *rule) {
    tvm_dtype type = tvm_rule_slot(rule, 0)->dtype;
    if (tvm_dtype_same(type, TVM_F32)) return TVM_OK;
    return tvm_refuse(rule->why, "%s has type %s, expected f32", TVM_RULE_NAME(rule, 0),
                      TVM_DTYPE_TEXT(type));
}

/* Blocks of one launch pass elements, or those of launches on several devices. */
static tvm_status reaches_blocks(const tvm_rule *rule, unsigned scope) {
    if (!tvm_rule_is_given(rule, scope)) return TVM_OK;
    uint32_t value = tvm_rule_value(rule, scope);
    if (value == TVM_SCOPE_GPU || value == TVM_SCOPE_SYS) return TVM_OK;
    return tvm_refuse(rule->why, "scope %s does not reach other blocks, expected gpu or sys",
                      tvm_scope_names[value]);
}

tvm_status tvm_rule_PUT_GLOBAL(const tvm_rule *rule) {
    enum { SCOPE = 2 };
    tvm_status status = may_be_empty(rule);
    if (status == TVM_OK) status = reaches_blocks(rule, SCOPE);
    return status != TVM_OK ? status : store_global(rule);
}

tvm_status tvm_rule_TAKE_GLOBAL(const tvm_rule *rule) {
    enum { SCOPE = 1 };
    tvm_status status = may_be_empty(rule);
    if (status == TVM_OK) status = reaches_blocks(rule, SCOPE);
    return status != TVM_OK ? status : load(rule);
}

/* Each warp copies a part: the parts are as many as the warps, and alike. */
static tvm_status warps_cut(const tvm_rule *rule, unsigned rank, const uint32_t *tile) {
    const tvm_operand *warps = rule->operands + rule->at[4];
    uint64_t parts = 1;
    if (warps->kind == TVM_OPERAND_NONE) return TVM_OK;
    if (warps->value != rank)
        return tvm_refuse(rule->why, "warps has %u entries, expected %u, one a dimension of the tile",
                          warps->value, rank);
    for (unsigned d = 0; d < rank; d++) {
        if (tile[d] % warps[1 + d].value != 0)
            return tvm_refuse(rule->why, "the tile's extent %u in dimension %u is no multiple of %u warps",
                              tile[d], d, warps[1 + d].value);
        parts *= warps[1 + d].value;
        if (parts > TVM_MAX_TILE_ELEMENTS) break;
    }
    if (tvm_rule_whole_bytes(rule, 0, tile[rank - 1] / warps[rank].value) != TVM_OK) return TVM_INVALID;
    if (parts != rule->team.warps)
        return tvm_refuse(rule->why, "the tile is cut for %llu warps, expected the %s %u",
                          (unsigned long long)parts,
                          rule->team.warps == rule->kernel->warps ? "kernel's" : "team's", rule->team.warps);
    return TVM_OK;
}

/* Is the tile, of entry first + 2, one of both tensors, the entries before it, of which one is shared? */
static tvm_status fits_both(const tvm_rule *rule, unsigned first, unsigned shared, unsigned rank,
                            const uint32_t tile[TVM_MAX_RANK]) {
    tvm_status status = tile_rank(rule, first, rank, "the tile");
    if (status == TVM_OK) status = tile_rank(rule, first + 1, rank, "the tile");
    if (status == TVM_OK) status = tile_inside(rule, shared, rank, tile);
    return status == TVM_OK ? tvm_rule_whole_bytes(rule, shared == first ? first + 1 : first, tile[rank - 1])
                            : status;
}

static unsigned read_tile(const tvm_rule *rule, unsigned entry, uint32_t tile[TVM_MAX_RANK]) {
    unsigned rank = tvm_rule_value(rule, entry);
    for (uint32_t d = 0; d < rank; d++) tile[d] = rule->operands[rule->at[entry] + 1 + d].value;
    return rank;
}

/* A tile of two tensors of one type. */
static tvm_status copied_tile(const tvm_rule *rule, unsigned first, unsigned shared, unsigned *rank,
                              uint32_t tile[TVM_MAX_RANK]) {
    *rank = read_tile(rule, first + 2, tile);
    tvm_status status = same_dtype(rule, first, first + 1);
    return status == TVM_OK ? fits_both(rule, first, shared, *rank, tile) : status;
}

/* Elements of 4 or 6 bits come to bytes in whole rows. */
static tvm_status spread_tile(const tvm_rule *rule, unsigned rank, const uint32_t tile[TVM_MAX_RANK]) {
    tvm_status status = fits_both(rule, 0, 0, rank, tile);
    if (status != TVM_OK || tile[rank - 1] % TVM_SPREAD_ROW == 0) return status;
    return tvm_refuse(rule->why, "a row of %u elements of %s, expected a multiple of %d where they become u8",
                      tile[rank - 1], TVM_DTYPE_TEXT(tvm_rule_slot(rule, 1)->dtype), TVM_SPREAD_ROW);
}

/* To a shared tensor. */
static tvm_status loaded_tile(const tvm_rule *rule, unsigned *rank, uint32_t tile[TVM_MAX_RANK]) {
    *rank = read_tile(rule, 2, tile);
    return tvm_tensor_spreads(tvm_rule_slot(rule, 0)->dtype, tvm_rule_slot(rule, 1)->dtype)
               ? spread_tile(rule, *rank, tile)
               : copied_tile(rule, 0, 0, rank, tile);
}

tvm_status tvm_rule_COPY_ASYNC(const tvm_rule *rule) {
    uint32_t tile[TVM_MAX_RANK];
    unsigned rank;
    tvm_status status = loaded_tile(rule, &rank, tile);
    if (status == TVM_OK) status = warps_cut(rule, rank, tile);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

tvm_status tvm_rule_COPY_BULK(const tvm_rule *rule) {
    uint32_t tile[TVM_MAX_RANK];
    unsigned rank;
    tvm_status status = loaded_tile(rule, &rank, tile);
    if (status != TVM_OK) return status;
    if (rule->operands[rule->at[3]].kind == TVM_OPERAND_NONE)
        return tvm_refuse(rule->why, "expected 'barrier', the mbarrier that its bytes are announced to");
    return tvm_rule_barrier_index(rule, 3);
}

tvm_status tvm_rule_STORE_BULK(const tvm_rule *rule) {
    uint32_t tile[TVM_MAX_RANK];
    unsigned rank;
    tvm_status status = copied_tile(rule, 0, 1, &rank, tile);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

/* Sums of element types for which TMA and the threads have atomic additions. */
tvm_status tvm_rule_REDUCE_BULK(const tvm_rule *rule) {
    enum { OPERATION, TARGET, SOURCE };
    uint32_t tile[TVM_MAX_RANK];
    unsigned rank;
    tvm_atomic operation = (tvm_atomic)tvm_rule_value(rule, OPERATION);
    tvm_dtype type = tvm_rule_slot(rule, TARGET)->dtype;
    if (operation != TVM_ATOMIC_ADD)
        return tvm_refuse(rule->why, "operation %s, expected add", tvm_atomic_names[operation]);
    if (!tvm_dtype_is_arithmetic(type) || (type.kind != TVM_KIND_FLOAT && type.bits < 32))
        return tvm_refuse(rule->why,
                          "sums of type %s, expected an integer of 32 or 64 bits, f16, bf16, f32 or f64",
                          TVM_DTYPE_TEXT(type));
    tvm_status status = copied_tile(rule, TARGET, SOURCE, &rank, tile);
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}

tvm_status tvm_rule_WAIT_BULK(const tvm_rule *rule) {
    if (tvm_rule_value(rule, 0) > TVM_MAX_PENDING)
        return tvm_refuse(rule->why, "pending is %u, expected at most %d", tvm_rule_value(rule, 0),
                          TVM_MAX_PENDING);
    return tvm_rule_nothing(rule);
}
