/* Tensors in memory: allocation, loads and stores of tiles, and elements that blocks pass to each other. */
#include "interp_box.h"

#include <stdlib.h>
#include <string.h>

/* ---- operands ---- */

tvm_status tvm_interp_index(interp_context *context, const interp_insn *insn, uint32_t first, unsigned rank,
                            int64_t *index) {
    for (unsigned d = 0; d < rank; d++) {
        tvm_scalar value;
        tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[first + 1 + d].value, &value);
        if (status != TVM_OK) return status;
        index[d] = value.i;
    }
    return TVM_OK;
}

unsigned tvm_interp_shape(const interp_context *context, uint32_t slot, int64_t shape[TVM_MAX_RANK]) {
    const tvm_interp_kernel *k = context->block->kernel;
    if (interp_slot(k, slot)->kind != TVM_SLOT_GLOBAL) return tvm_interp_slot_shape(k, slot, shape);
    unsigned rank = interp_slot(k, slot)->rank;
    memcpy(shape, interp_global_of(context, slot)->shape, rank * sizeof *shape);
    return rank;
}

void tvm_interp_strides(const interp_context *context, uint32_t slot, int64_t stride[TVM_MAX_RANK]) {
    const tvm_interp_kernel *k = context->block->kernel;
    if (interp_slot(k, slot)->kind == TVM_SLOT_GLOBAL)
        memcpy(stride, interp_global_of(context, slot)->stride, interp_slot(k, slot)->rank * sizeof *stride);
    else
        tvm_interp_shared_steps(k, slot, stride);
}

uint8_t *tvm_interp_data(const interp_context *context, uint32_t slot) {
    bool global = interp_slot(context->block->kernel, slot)->kind == TVM_SLOT_GLOBAL;
    return global ? interp_global_of(context, slot)->data : interp_tensor(context->block, slot);
}

tvm_status tvm_interp_inside(const interp_context *context, const interp_insn *insn, uint32_t slot,
                             unsigned rank, const int64_t *shape, const int64_t *start, unsigned tile_rank,
                             const int64_t *tile) {
    const tvm_interp_kernel *k = context->block->kernel;
    for (unsigned d = 0; d < rank; d++) {
        int64_t extent = d < rank - tile_rank ? 1 : tile[d - (rank - tile_rank)];
        if (start[d] >= 0 && start[d] <= shape[d] - extent) continue;
        const char *name = interp_slot_name(k, slot);
        if (extent == 1)
            return tvm_interp_fault(context, insn, INTERP_OUTSIDE,
                                    "%%%s: index %lld is outside dimension %u of extent %lld", name,
                                    (long long)start[d], d, (long long)shape[d]);
        return tvm_interp_fault(context, insn, INTERP_OUTSIDE,
                                "%%%s: %lld elements at index %lld are outside dimension %u of extent %lld",
                                name, (long long)extent, (long long)start[d], d, (long long)shape[d]);
    }
    return TVM_OK;
}

tvm_status tvm_interp_at_byte(const interp_context *context, const interp_insn *insn, uint32_t slot,
                              int64_t column) {
    const tvm_interp_kernel *k = context->block->kernel;
    unsigned bits = interp_slot(k, slot)->dtype.bits;
    if (column % tvm_bits_whole(bits) == 0) return TVM_OK;
    return tvm_interp_fail(context, insn, "%s%s: index %lld of elements of %u bits is inside a byte",
                           interp_sigil(k, slot), interp_slot_name(k, slot), (long long)column, bits);
}

/* ---- allocation ---- */

const tvm_operand *tvm_interp_given(const interp_insn *insn, uint32_t at) {
    return at < insn->source->count && insn->operands[at].kind != TVM_OPERAND_NONE ? &insn->operands[at]
                                                                                   : NULL;
}

tvm_status tvm_interp_code(const interp_context *context, const interp_insn *insn, const tvm_operand *operand,
                           tvm_dtype type, uint64_t *code) {
    tvm_scalar value;
    *code = 0;
    if (!operand) return TVM_OK;
    tvm_status status = tvm_interp_evaluate(context, insn, operand->value, &value);
    if (status != TVM_OK) return status;
    tvm_dtype from = context->block->kernel->kernel->exprs[operand->value].type;
    *code = tvm_cast(type, from, tvm_interp_scalar_code(from, value), tvm_dtype_is_lowbit(type));
    return TVM_OK;
}

INTERP_NO_PLAN(ALLOC_REGISTER)

tvm_status tvm_interp_ALLOC_REGISTER(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t result = insn->source->result;
    tvm_dtype type = interp_slot(k, result)->dtype;
    uint64_t code;
    tvm_status status = tvm_interp_code(context, insn, tvm_interp_given(insn, 0), type, &code);
    if (status == TVM_OK)
        tvm_interp_fill(type, interp_tensor(context->block, result), k->extents[result], code);
    return status;
}

INTERP_NO_PLAN(ALLOC_SHARED)

/* The contents are undefined: all ones, which is NaN in floats, so that a program that reads them is seen to.
 */
tvm_status tvm_interp_ALLOC_SHARED(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t result = insn->source->result;
    tvm_dtype type = interp_slot(k, result)->dtype;
    tvm_interp_fill(type, interp_tensor(context->block, result), k->extents[result],
                    UINT64_MAX >> (64 - type.bits));
    return interp_sanitized(context) ? tvm_sanitize_alloc_shared(context, insn) : TVM_OK;
}

INTERP_NO_PLAN(ALLOC_GLOBAL)

/* The launch has allocated it. */
tvm_status tvm_interp_ALLOC_GLOBAL(interp_context *context, const interp_insn *insn) {
    (void)context, (void)insn;
    return TVM_OK;
}

INTERP_NO_PLAN(FREE_SHARED)

tvm_status tvm_interp_FREE_SHARED(interp_context *context, const interp_insn *insn) {
    if (interp_sanitized(context)) tvm_sanitize_free_shared(context, insn);
    return TVM_OK;
}

/* ---- loads and stores ---- */

/* What the four instructions share: `container` is the slot of the memory, `tensor` that of the registers. */
typedef struct tile_plan {
    uint32_t container, tensor;
    uint8_t rank, tile_rank;
    interp_width width;
    int64_t shape[TVM_MAX_RANK];  /* of a shared container */
    int64_t stride[TVM_MAX_RANK]; /* the same */
    const tvm_shared_digits *split;
    int64_t tile[TVM_MAX_RANK], dense[TVM_MAX_RANK];
    bool masked;
    interp_places places;    /* of a tile with a mask */
    const tvm_operand *fill; /* of a load; NULL: zero bits */
} tile_plan;

/* mask: its operand, or count: the instruction has none. */
static tvm_status plan_tile(tvm_interp_kernel *k, interp_insn *insn, uint32_t tensor, uint32_t mask,
                            tvm_diags *diags) {
    tile_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    plan->container = insn->operands[0].value;
    plan->tensor = tensor;
    const tvm_slot *container = interp_slot(k, plan->container);
    if (container->kind == TVM_SLOT_GLOBAL)
        plan->rank = container->rank;
    else
        plan->rank = (uint8_t)tvm_interp_slot_shape(k, plan->container, plan->shape);
    plan->tile_rank = (uint8_t)tvm_interp_slot_shape(k, tensor, plan->tile);
    if (container->kind != TVM_SLOT_GLOBAL) tvm_interp_shared_steps(k, plan->container, plan->stride);
    plan->split = k->split[plan->container];
    tvm_interp_row_major(plan->tile_rank, plan->tile, plan->dense);
    plan->width = container->kind == TVM_SLOT_GLOBAL ? interp_width_of(container->dtype)
                                                     : interp_shared_width_of(container->dtype);
    plan->masked = mask < insn->source->count && insn->operands[mask].kind == TVM_OPERAND_SLOT;
    if (plan->masked) tvm_interp_plan_places(k, insn->operands, tensor, &insn->operands[mask], &plan->places);
    return TVM_OK;
}

/* The operand after the memory's indices. */
static uint32_t after_indices(const tvm_interp_kernel *k, const interp_insn *insn) {
    return 1 + tvm_slot_rank(k->program, interp_slot(k, insn->operands[0].value));
}

/* mask: its place; fill stands behind it. */
static tvm_status plan_load(tvm_interp_kernel *kernel, interp_insn *insn, uint32_t mask, tvm_diags *diags) {
    tvm_status status = plan_tile(kernel, insn, insn->source->result, mask, diags);
    tile_plan *plan = insn->plan;
    if (status == TVM_OK) plan->fill = plan->places.fill = tvm_interp_given(insn, mask + 1);
    return status;
}

tvm_status tvm_plan_LOAD_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_load(kernel, insn, after_indices(kernel, insn) + 1, diags);
}

tvm_status tvm_plan_LOAD_SHARED(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_load(kernel, insn, after_indices(kernel, insn), diags);
}

tvm_status tvm_plan_STORE_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    uint32_t source = after_indices(kernel, insn);
    return plan_tile(kernel, insn, insn->operands[source].value, source + 1, diags);
}

tvm_status tvm_plan_STORE_SHARED(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return tvm_plan_STORE_GLOBAL(kernel, insn, diags);
}

/* A tile of a global tensor, and where it starts. */
typedef struct global_tile {
    interp_box where;
    uint8_t *container;
    int64_t start[TVM_MAX_RANK];
} global_tile;

static tvm_status find_global_tile(interp_context *context, const interp_insn *insn, global_tile *out) {
    const tile_plan *plan = insn->plan;
    const interp_global *global = interp_global_of(context, plan->container);
    tvm_status status = tvm_interp_index(context, insn, 0, plan->rank, out->start);
    if (status != TVM_OK) return status;
    out->container = global->data;
    out->where = tvm_interp_box_make(plan->rank, global->shape, global->stride, out->start, plan->tile_rank,
                                     plan->tile, plan->dense);
    return TVM_OK;
}

/* Of a tile of the plan, in global or in the block's shared memory. */
static tvm_status sanitize_tile(interp_context *context, const interp_insn *insn, interp_box where,
                                sanitize_mode mode) {
    const tile_plan *plan = insn->plan;
    const sanitize_access access = {
        .owner = context->block, .memory = plan->container, .tensor = plan->tensor, .mode = mode};
    return interp_sanitized(context) ? tvm_interp_box_sanitize(where, context, insn, &access) : TVM_OK;
}

tvm_status tvm_interp_LOAD_GLOBAL(interp_context *context, const interp_insn *insn) {
    const tile_plan *plan = insn->plan;
    interp_width width = plan->width;
    global_tile tile;
    if (plan->masked) return tvm_interp_move_places(context, insn, &plan->places, plan->tensor, true);
    tvm_status status = find_global_tile(context, insn, &tile);
    if (status == TVM_OK) status = tvm_interp_code(context, insn, plan->fill, width.type, &width.fill);
    if (status == TVM_OK) status = sanitize_tile(context, insn, tile.where, SANITIZE_READ);
    if (status != TVM_OK) return status;
    interp_count(context->block, false, true, tvm_interp_box_inside(&tile.where), width.bits);
    tvm_interp_box_move(tile.where, INTERP_LOAD, width, tile.container,
                        interp_tensor(context->block, plan->tensor));
    return TVM_OK;
}

/* Threads write whole bytes, so that two of them never write into one: the verifier has seen to it that a
 * thread's runs are whole bytes relative to the tile, and rows of the tensor are; what is left is where the
 * tile starts. */
tvm_status tvm_interp_STORE_GLOBAL(interp_context *context, const interp_insn *insn) {
    const tile_plan *plan = insn->plan;
    const interp_block *block = context->block;
    global_tile tile;
    if (plan->masked) return tvm_interp_move_places(context, insn, &plan->places, plan->tensor, false);
    tvm_status status = find_global_tile(context, insn, &tile);
    if (status != TVM_OK) return status;
    status = tvm_interp_at_byte(context, insn, plan->container, tile.start[plan->rank - 1]);
    if (status == TVM_OK) status = sanitize_tile(context, insn, tile.where, SANITIZE_WRITE);
    if (status != TVM_OK) return status;
    interp_count(block, false, false, tvm_interp_box_inside(&tile.where), plan->width.bits);
    tvm_interp_box_move(tile.where, INTERP_STORE, plan->width, tile.container,
                        interp_tensor(block, plan->tensor));
    return TVM_OK;
}

/* ---- elements that are empty, which is zero bits, or put ---- */

/* scope: where it may stand; launches on other devices take part in an exchange of scope sys. */
static tvm_status plan_exchange(tvm_interp_kernel *kernel, interp_insn *insn, uint32_t tensor, uint32_t scope,
                                tvm_diags *diags) {
    tvm_status status = plan_tile(kernel, insn, tensor, insn->source->count, diags);
    bool given = scope < insn->source->count && insn->operands[scope].kind == TVM_OPERAND_CONST;
    if (status != TVM_OK || !given || insn->operands[scope].value != TVM_SCOPE_SYS) return status;
    ((tile_plan *)insn->plan)->width.strong = true;
    kernel->has_peers = true;
    return TVM_OK;
}

tvm_status tvm_plan_PUT_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    uint32_t at = after_indices(kernel, insn), source = insn->operands[at].value;
    tvm_interp_need_scratch(kernel, (size_t)kernel->extents[source] * sizeof(uint32_t));
    return plan_exchange(kernel, insn, source, at + 1, diags);
}

tvm_status tvm_plan_TAKE_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    uint32_t result = insn->source->result;
    /* taken, and zeros */
    tvm_interp_need_scratch(kernel, (size_t)kernel->extents[result] * 2 * sizeof(uint32_t));
    return plan_exchange(kernel, insn, result, after_indices(kernel, insn), diags);
}

/* A tile of f32, and its elements on the dense side. */
typedef struct exchange {
    global_tile tile;
    interp_width width;
    uint32_t *elements;
    size_t count;
} exchange;

static tvm_status find_exchange(interp_context *context, const interp_insn *insn, exchange *out) {
    const tile_plan *plan = insn->plan;
    const interp_block *block = context->block;
    *out = (exchange){.width = plan->width,
                      .elements = (uint32_t *)block->scratch,
                      .count = block->kernel->extents[plan->tensor]};
    return find_global_tile(context, insn, &out->tile);
}

static void move_exchange(const exchange *x, interp_direction way, uint32_t *elements) {
    tvm_interp_box_move(x->tile.where, way, x->width, x->tile.container, (uint8_t *)elements);
}

/* Elements of the tile that are not empty; it is left in x->elements, with zeros for what is outside. */
static size_t count_full(const exchange *x) {
    size_t full = 0;
    move_exchange(x, INTERP_LOAD, x->elements);
    for (size_t i = 0; i < x->count; i++) full += x->elements[i] != 0;
    return full;
}

static size_t count_inside(const exchange *x) {
    return (size_t)tvm_interp_box_inside(&x->tile.where);
}

/* What other launches put and take, the sanitizer, which sees this one alone, cannot know. */
static tvm_status sanitize_exchange(interp_context *context, const interp_insn *insn, const exchange *x,
                                    sanitize_mode mode) {
    return x->width.strong ? TVM_OK : sanitize_tile(context, insn, x->tile.where, mode);
}

tvm_status tvm_interp_PUT_GLOBAL(interp_context *context, const interp_insn *insn) {
    enum { ZERO = 0, NEGATIVE_ZERO = INT32_MIN };
    const tile_plan *plan = insn->plan;
    interp_run *run = context->block->run;
    exchange x;
    tvm_status status = find_exchange(context, insn, &x);
    if (status != TVM_OK) return status;
    pthread_mutex_lock(&run->mutex);
    bool empty = count_full(&x) == 0;
    if (empty) {
        memcpy(x.elements, interp_tensor(context->block, plan->tensor), x.count * sizeof *x.elements);
        for (size_t i = 0; i < x.count; i++)
            if (x.elements[i] == ZERO) x.elements[i] = (uint32_t)NEGATIVE_ZERO;
        move_exchange(&x, INTERP_STORE, x.elements);
        tvm_interp_changed(run);
    }
    pthread_mutex_unlock(&run->mutex);
    interp_count(context->block, false, false, count_inside(&x), plan->width.bits);
    if (empty) return sanitize_exchange(context, insn, &x, SANITIZE_PUT);
    return tvm_interp_fail(context, insn, "%s%s: an element that was put before has not been taken",
                           interp_sigil(context->block->kernel, plan->container),
                           interp_slot_name(context->block->kernel, plan->container));
}

/* With the mutex held: takes the elements if all are there. */
static bool take(void *data) {
    const exchange *x = data;
    if (count_full(x) != count_inside(x)) return false;
    uint32_t *zeros = x->elements + x->count;
    memset(zeros, 0, x->count * sizeof *zeros);
    move_exchange(x, INTERP_STORE, zeros);
    return true;
}

tvm_status tvm_interp_TAKE_GLOBAL(interp_context *context, const interp_insn *insn) {
    const tile_plan *plan = insn->plan;
    exchange x;
    tvm_status status = find_exchange(context, insn, &x);
    if (status != TVM_OK) return status;
    interp_wait wait = tvm_interp_wait(context, take, &x);
    if (wait == INTERP_WAIT_HOPELESS)
        return tvm_interp_fault(
            context, insn, INTERP_DEADLOCK,
            "deadlock: all blocks that run wait; elements of %s%s that this one waits for "
            "are never put",
            interp_sigil(context->block->kernel, plan->container),
            interp_slot_name(context->block->kernel, plan->container));
    if (wait == INTERP_WAIT_AGAIN) return TVM_OK; /* nothing was taken */
    interp_count(context->block, false, true, count_inside(&x), plan->width.bits);
    interp_count(context->block, false, false, count_inside(&x), plan->width.bits);
    memcpy(interp_tensor(context->block, plan->tensor), x.elements, x.count * sizeof *x.elements);
    return sanitize_exchange(context, insn, &x, SANITIZE_TAKE);
}

void tvm_interp_plan_tile(const tvm_interp_kernel *kernel, const tvm_operand *operands, uint32_t first,
                          unsigned tile_rank, const uint32_t *tile, interp_tile *out) {
    *out = (interp_tile){
        .slot = operands[first].value, .first = first, .tensor = TVM_NONE, .tile_rank = tile_rank};
    out->rank = tvm_interp_slot_shape(kernel, out->slot, out->shape);
    for (unsigned d = 0; d < tile_rank; d++) out->tile[d] = tile[d];
}

tvm_status tvm_interp_load_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                void *elements) {
    return tvm_interp_move_tile(context, insn, tile, context->block, true, elements);
}

tvm_status tvm_interp_find_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                int64_t start[TVM_MAX_RANK]) {
    tvm_status status = tvm_interp_index(context, insn, tile->first, tile->rank, start);
    if (status == TVM_OK)
        status = tvm_interp_inside(context, insn, tile->slot, tile->rank, tile->shape, start, tile->tile_rank,
                                   tile->tile);
    return status == TVM_OK ? tvm_interp_at_byte(context, insn, tile->slot, start[tile->rank - 1]) : status;
}

static interp_box box_of(const interp_block *block, const interp_tile *tile, const int64_t *start) {
    int64_t stride[TVM_MAX_RANK], dense[TVM_MAX_RANK];
    tvm_interp_shared_steps(block->kernel, tile->slot, stride);
    tvm_interp_row_major(tile->tile_rank, tile->tile, dense);
    interp_box where =
        tvm_interp_box_make(tile->rank, tile->shape, stride, start, tile->tile_rank, tile->tile, dense);
    tvm_interp_box_split(&where, block->kernel->split[tile->slot], tile->rank, start);
    return where;
}

tvm_status tvm_interp_sanitize_tile_at(interp_context *context, const interp_insn *insn,
                                       const interp_tile *tile, const int64_t *start,
                                       const sanitize_access *access) {
    return tvm_interp_box_sanitize(box_of(access->owner, tile, start), context, insn, access);
}

void tvm_interp_move_tile_at(const interp_block *block, const interp_tile *tile, const int64_t *start,
                             bool is_load, void *elements) {
    interp_box where = box_of(block, tile, start);
    interp_width width = interp_shared_width_of(interp_slot(block->kernel, tile->slot)->dtype);
    bool is_shared = interp_slot(block->kernel, tile->slot)->kind == TVM_SLOT_SHARED;
    if (is_shared) interp_count(block, true, is_load, tvm_interp_box_inside(&where), width.type.bits);
    tvm_interp_box_move(where, is_load ? INTERP_LOAD : INTERP_STORE, width, interp_tensor(block, tile->slot),
                        elements);
}

tvm_status tvm_interp_move_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                const interp_block *block, bool is_load, void *elements) {
    int64_t start[TVM_MAX_RANK];
    tvm_status status = tvm_interp_find_tile(context, insn, tile, start);
    if (status == TVM_OK && interp_sanitized(context)) {
        const sanitize_access access = {.owner = block,
                                        .memory = tile->slot,
                                        .tensor = tile->tensor,
                                        .mode = is_load ? SANITIZE_READ : SANITIZE_WRITE,
                                        .actor = tile->tensor == TVM_NONE ? SANITIZE_MMA : SANITIZE_THREADS,
                                        .operand = tile->first};
        status = tvm_interp_sanitize_tile_at(context, insn, tile, start, &access);
    }
    if (status == TVM_OK) tvm_interp_move_tile_at(block, tile, start, is_load, elements);
    return status;
}

static tvm_status move_shared(interp_context *context, const interp_insn *insn, interp_direction way) {
    const tile_plan *plan = insn->plan;
    const interp_block *block = context->block;
    int64_t start[TVM_MAX_RANK];
    tvm_status status = tvm_interp_index(context, insn, 0, plan->rank, start);
    if (status == TVM_OK)
        status = tvm_interp_inside(context, insn, plan->container, plan->rank, plan->shape, start,
                                   plan->tile_rank, plan->tile);
    if (status == TVM_OK) status = tvm_interp_at_byte(context, insn, plan->container, start[plan->rank - 1]);
    if (status != TVM_OK) return status;
    if (plan->masked)
        return tvm_interp_move_places(context, insn, &plan->places, plan->tensor, way == INTERP_LOAD);
    interp_box where = tvm_interp_box_make(plan->rank, plan->shape, plan->stride, start, plan->tile_rank,
                                           plan->tile, plan->dense);
    tvm_interp_box_split(&where, plan->split, plan->rank, start);
    status = sanitize_tile(context, insn, where, way == INTERP_LOAD ? SANITIZE_READ : SANITIZE_WRITE);
    if (status != TVM_OK) return status;
    if (interp_slot(block->kernel, plan->container)->kind == TVM_SLOT_SHARED)
        interp_count(block, true, way == INTERP_LOAD, tvm_interp_box_inside(&where), plan->width.type.bits);
    tvm_interp_box_move(where, way, plan->width, interp_tensor(block, plan->container),
                        interp_tensor(block, plan->tensor));
    return TVM_OK;
}

tvm_status tvm_interp_LOAD_SHARED(interp_context *context, const interp_insn *insn) {
    return move_shared(context, insn, INTERP_LOAD);
}

tvm_status tvm_interp_STORE_SHARED(interp_context *context, const interp_insn *insn) {
    return move_shared(context, insn, INTERP_STORE);
}

/* Tensor memory is held as shared memory is. */
tvm_status tvm_plan_LOAD_TENSOR(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return tvm_plan_LOAD_SHARED(kernel, insn, diags);
}

tvm_status tvm_plan_STORE_TENSOR(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return tvm_plan_STORE_SHARED(kernel, insn, diags);
}

tvm_status tvm_interp_LOAD_TENSOR(interp_context *context, const interp_insn *insn) {
    return move_shared(context, insn, INTERP_LOAD);
}

tvm_status tvm_interp_STORE_TENSOR(interp_context *context, const interp_insn *insn) {
    return move_shared(context, insn, INTERP_STORE);
}
