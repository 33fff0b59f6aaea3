/* Tensors in memory: allocation, loads, stores and asynchronous copies of tiles. */
#include "interp_impl.h"

#include "sanitize.h"

#include <stdlib.h>
#include <string.h>

/* ---- boxes: a tile of a container (a global or shared tensor), and its dense counterpart ---- */

/* Dimension by dimension, the part [low, high) of the tile that lies inside the container, and the steps, in
 * elements, of the container and of the dense side. */
typedef struct box {
    unsigned rank;
    bool inside;  /* is any of it inside? */
    int64_t base; /* the container's element at tile index 0; may itself be outside */
    int64_t extent[TVM_MAX_RANK], low[TVM_MAX_RANK], high[TVM_MAX_RANK];
    int64_t step[TVM_MAX_RANK], dense[TVM_MAX_RANK];
} box;

/* The operands of a tile: where it starts in a container of `rank` dimensions, of which it spans the last
 * `tile_rank`; dense_shape are the extents of the tensor on the dense side in those dimensions. */
static box box_make(unsigned rank, const int64_t *shape, const int64_t *start, unsigned tile_rank,
                    const int64_t *tile, const int64_t *dense_shape) {
    box b = {.rank = tile_rank, .inside = true};
    uint64_t base = 0, step = 1, dense = 1;
    for (unsigned d = rank; d-- > 0;) {
        base += (uint64_t)start[d] * step; /* wraps when far outside: not used then */
        if (d < rank - tile_rank) {
            if (start[d] < 0 || start[d] >= shape[d]) b.inside = false;
        } else {
            unsigned t = d - (rank - tile_rank);
            bool before = start[d] <= -tile[t], after = start[d] >= shape[d];
            b.extent[t] = tile[t];
            b.low[t] = start[d] < 0 && !before ? -start[d] : 0;
            b.high[t] = before || after ? 0 : tile[t] < shape[d] - start[d] ? tile[t] : shape[d] - start[d];
            b.step[t] = (int64_t)step;
            b.dense[t] = (int64_t)dense;
            dense *= (uint64_t)dense_shape[t];
            if (b.low[t] >= b.high[t]) b.inside = false;
        }
        step *= (uint64_t)shape[d];
    }
    b.base = (int64_t)base;
    return b;
}

/* Merges dimensions that are contiguous on both sides, for longer rows. */
static void box_merge(box *b) {
    for (unsigned d = b->rank - 1; d > 0 && b->rank > 1; d--) {
        bool whole = b->low[d] == 0 && b->high[d] == b->extent[d];
        if (!whole || b->step[d - 1] != b->extent[d] * b->step[d] ||
            b->dense[d - 1] != b->extent[d] * b->dense[d])
            return;
        int64_t extent = b->extent[d];
        b->extent[d - 1] *= extent;
        b->low[d - 1] *= extent;
        b->high[d - 1] *= extent;
        b->step[d - 1] = b->step[d];
        b->dense[d - 1] = b->dense[d];
        b->rank = d;
    }
}

/* Bits of an element in the container and bytes of one on the dense side. */
typedef struct width {
    tvm_dtype type;
    unsigned bits, bytes;
} width;

static width width_of(tvm_dtype type) {
    return (width){type, type.bits, tvm_dtype_container(type)};
}

static void zero(uint8_t *dense, int64_t count, unsigned bytes) {
    if (count > 0) memset(dense, 0, (size_t)count * bytes);
}

/* A row of a tile that is being loaded: zeros, what is inside, zeros. */
static void load_row(width w, const uint8_t *container, int64_t element, uint8_t *dense, int64_t extent,
                     int64_t low, int64_t high) {
    zero(dense, low, w.bytes);
    if (w.bits == 8 * w.bytes)
        memcpy(dense + (size_t)low * w.bytes, container + (element + low) * w.bytes,
               (size_t)(high - low) * w.bytes);
    else
        tvm_bits_unpack(w.type, container, (uint64_t)(element + low) * w.bits, (size_t)(high - low),
                        dense + (size_t)low * w.bytes);
    zero(dense + (size_t)high * w.bytes, extent - high, w.bytes);
}

static void store_row(width w, uint8_t *container, int64_t element, const uint8_t *dense, int64_t low,
                      int64_t high) {
    if (w.bits == 8 * w.bytes)
        memcpy(container + (element + low) * w.bytes, dense + (size_t)low * w.bytes,
               (size_t)(high - low) * w.bytes);
    else
        tvm_bits_pack(w.type, container, (uint64_t)(element + low) * w.bits, (size_t)(high - low),
                      dense + (size_t)low * w.bytes);
}

typedef enum direction { LOAD, STORE } direction;

/* The row at an index, of the last dimension: where it begins on both sides; false: it is outside. */
static inline bool box_row(const box *b, const int64_t *index, int64_t *element, int64_t *place) {
    bool inside = b->inside;
    *element = b->base;
    *place = 0;
    for (unsigned d = 0; d + 1 < b->rank; d++) {
        inside = inside && index[d] >= b->low[d] && index[d] < b->high[d];
        *element = (int64_t)((uint64_t)*element + (uint64_t)index[d] * (uint64_t)b->step[d]);
        *place += index[d] * b->dense[d];
    }
    return inside;
}

/* The index of the next row; false: there is none. */
static inline bool box_next(const box *b, int64_t *index) {
    unsigned d = b->rank - 1;
    while (d > 0 && ++index[d - 1] == b->extent[d - 1]) index[--d] = 0;
    return d > 0;
}

/* Moves a tile between a container and the dense side, one row of the last dimension after the other. On a
 * load what is outside becomes zero bits, on a store it is dropped. */
static void box_move(box b, direction way, width w, uint8_t *container, uint8_t *dense) {
    box_merge(&b);
    unsigned last = b.rank - 1;
    int64_t index[TVM_MAX_RANK] = {0}, element, place;
    do {
        bool inside = box_row(&b, index, &element, &place);
        uint8_t *row = dense + (size_t)place * w.bytes;
        if (inside && way == LOAD)
            load_row(w, container, element, row, b.extent[last], b.low[last], b.high[last]);
        else if (inside)
            store_row(w, container, element, row, b.low[last], b.high[last]);
        else if (way == LOAD)
            zero(row, b.extent[last], w.bytes);
    } while (box_next(&b, index));
}

/* Tells the sanitizer of the tile's elements that lie inside. */
static tvm_status box_sanitize(box b, interp_context *context, const interp_insn *insn,
                               const sanitize_access *access) {
    sanitize_walk walk;
    int64_t index[TVM_MAX_RANK] = {0}, element, place;
    if (!tvm_sanitize_open(context, insn, access, &walk)) return walk.status;
    box_merge(&b);
    unsigned last = b.rank - 1;
    do
        if (box_row(&b, index, &element, &place))
            tvm_sanitize_row(&walk, element + b.low[last], place + b.low[last], b.high[last] - b.low[last]);
    while (box_next(&b, index));
    return walk.status;
}

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

static unsigned slot_shape(const tvm_interp_kernel *k, uint32_t slot, int64_t shape[TVM_MAX_RANK]) {
    const tvm_slot *s = interp_slot(k, slot);
    unsigned rank = tvm_slot_rank(k->program, s);
    const uint32_t *extents = tvm_slot_shape(k->program, s);
    for (unsigned d = 0; d < rank; d++) shape[d] = extents[d];
    return rank;
}

unsigned tvm_interp_shape(const interp_context *context, uint32_t slot, int64_t shape[TVM_MAX_RANK]) {
    const tvm_interp_kernel *k = context->block->kernel;
    if (interp_slot(k, slot)->kind != TVM_SLOT_GLOBAL) return slot_shape(k, slot, shape);
    unsigned rank = interp_slot(k, slot)->rank;
    memcpy(shape, interp_global_of(context->block->run, slot)->shape, rank * sizeof *shape);
    return rank;
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

/* ---- allocation ---- */

INTERP_NO_PLAN(ALLOC_REGISTER)

tvm_status tvm_interp_ALLOC_REGISTER(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t result = insn->source->result;
    tvm_dtype type = interp_slot(k, result)->dtype;
    uint64_t code = 0;
    if (insn->source->count > 0 && insn->operands[0].kind == TVM_OPERAND_EXPR) {
        tvm_scalar value;
        tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[0].value, &value);
        if (status != TVM_OK) return status;
        tvm_dtype from = k->kernel->exprs[insn->operands[0].value].type;
        code = tvm_cast(type, from, tvm_interp_scalar_code(from, value), tvm_dtype_is_lowbit(type));
    }
    tvm_interp_fill(type, interp_tensor(context->block, result), k->extents[result], code);
    return TVM_OK;
}

INTERP_NO_PLAN(ALLOC_SHARED)

/* The contents are undefined: all ones, which is NaN in floats, so that a program that reads them is seen to.
 */
tvm_status tvm_interp_ALLOC_SHARED(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t result = insn->source->result;
    memset(interp_tensor(context->block, result), 0xff,
           (size_t)k->extents[result] * tvm_dtype_container(interp_slot(k, result)->dtype));
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
    width width;
    int64_t shape[TVM_MAX_RANK]; /* of a shared container */
    int64_t tile[TVM_MAX_RANK];
    bool masked;
    interp_places places; /* of a tile with a mask */
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
        plan->rank = (uint8_t)slot_shape(k, plan->container, plan->shape);
    plan->tile_rank = (uint8_t)slot_shape(k, tensor, plan->tile);
    plan->width = width_of(container->dtype);
    plan->masked = mask < insn->source->count && insn->operands[mask].kind == TVM_OPERAND_SLOT;
    if (plan->masked) tvm_interp_plan_places(k, insn->operands, tensor, &insn->operands[mask], &plan->places);
    return TVM_OK;
}

/* The operand after the memory's indices. */
static uint32_t after_indices(const tvm_interp_kernel *k, const interp_insn *insn) {
    return 1 + tvm_slot_rank(k->program, interp_slot(k, insn->operands[0].value));
}

tvm_status tvm_plan_LOAD_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_tile(kernel, insn, insn->source->result, after_indices(kernel, insn) + 1, diags);
}

tvm_status tvm_plan_LOAD_SHARED(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_tile(kernel, insn, insn->source->result, after_indices(kernel, insn), diags);
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
    box where;
    uint8_t *container;
    int64_t start[TVM_MAX_RANK];
} global_tile;

static tvm_status find_global_tile(interp_context *context, const interp_insn *insn, global_tile *out) {
    const tile_plan *plan = insn->plan;
    const interp_global *global = interp_global_of(context->block->run, plan->container);
    tvm_status status = tvm_interp_index(context, insn, 0, plan->rank, out->start);
    if (status != TVM_OK) return status;
    out->container = global->data;
    out->where = box_make(plan->rank, global->shape, out->start, plan->tile_rank, plan->tile, plan->tile);
    return TVM_OK;
}

/* Of a tile of the plan, in global or in the block's shared memory. */
static tvm_status sanitize_tile(interp_context *context, const interp_insn *insn, box where,
                                sanitize_mode mode) {
    const tile_plan *plan = insn->plan;
    const sanitize_access access = {
        .owner = context->block, .memory = plan->container, .tensor = plan->tensor, .mode = mode};
    return interp_sanitized(context) ? box_sanitize(where, context, insn, &access) : TVM_OK;
}

tvm_status tvm_interp_LOAD_GLOBAL(interp_context *context, const interp_insn *insn) {
    const tile_plan *plan = insn->plan;
    global_tile tile;
    if (plan->masked) return tvm_interp_move_places(context, insn, &plan->places, plan->tensor, true);
    tvm_status status = find_global_tile(context, insn, &tile);
    if (status == TVM_OK) status = sanitize_tile(context, insn, tile.where, SANITIZE_READ);
    if (status != TVM_OK) return status;
    box_move(tile.where, LOAD, plan->width, tile.container, interp_tensor(context->block, plan->tensor));
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
    int64_t column = tile.start[plan->rank - 1];
    if (column % 8 * plan->width.bits % 8)
        return tvm_interp_fail(context, insn, "%s%s: index %lld of elements of %u bits is inside a byte",
                               interp_sigil(block->kernel, plan->container),
                               interp_slot_name(block->kernel, plan->container), (long long)column,
                               plan->width.bits);
    status = sanitize_tile(context, insn, tile.where, SANITIZE_WRITE);
    if (status != TVM_OK) return status;
    box_move(tile.where, STORE, plan->width, tile.container, interp_tensor(block, plan->tensor));
    return TVM_OK;
}

/* ---- elements that are empty, which is zero bits, or put ---- */

tvm_status tvm_plan_PUT_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    uint32_t source = insn->operands[after_indices(kernel, insn)].value;
    tvm_interp_need_scratch(kernel, (size_t)kernel->extents[source] * sizeof(uint32_t));
    return plan_tile(kernel, insn, source, insn->source->count, diags);
}

tvm_status tvm_plan_TAKE_GLOBAL(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    uint32_t result = insn->source->result;
    /* taken, and zeros */
    tvm_interp_need_scratch(kernel, (size_t)kernel->extents[result] * 2 * sizeof(uint32_t));
    return plan_tile(kernel, insn, result, insn->source->count, diags);
}

/* A tile of f32, and its elements on the dense side. */
typedef struct exchange {
    global_tile tile;
    width width;
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

static void move_exchange(const exchange *x, direction way, uint32_t *elements) {
    box_move(x->tile.where, way, x->width, x->tile.container, (uint8_t *)elements);
}

/* Elements of the tile that are not empty; it is left in x->elements, with zeros for what is outside. */
static size_t count_full(const exchange *x) {
    size_t full = 0;
    move_exchange(x, LOAD, x->elements);
    for (size_t i = 0; i < x->count; i++) full += x->elements[i] != 0;
    return full;
}

static size_t count_inside(const exchange *x) {
    const box *where = &x->tile.where;
    size_t inside = where->inside;
    for (unsigned d = 0; d < where->rank && inside; d++) inside *= (size_t)(where->high[d] - where->low[d]);
    return inside;
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
        move_exchange(&x, STORE, x.elements);
        tvm_interp_changed(run);
    }
    pthread_mutex_unlock(&run->mutex);
    if (empty) return sanitize_tile(context, insn, x.tile.where, SANITIZE_PUT);
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
    move_exchange(x, STORE, zeros);
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
    memcpy(interp_tensor(context->block, plan->tensor), x.elements, x.count * sizeof *x.elements);
    return sanitize_tile(context, insn, x.tile.where, SANITIZE_TAKE);
}

void tvm_interp_plan_tile(const tvm_interp_kernel *kernel, const tvm_operand *operands, uint32_t first,
                          unsigned tile_rank, const uint32_t *tile, interp_tile *out) {
    *out = (interp_tile){
        .slot = operands[first].value, .first = first, .tensor = TVM_NONE, .tile_rank = tile_rank};
    out->rank = slot_shape(kernel, out->slot, out->shape);
    for (unsigned d = 0; d < tile_rank; d++) out->tile[d] = tile[d];
}

tvm_status tvm_interp_load_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                void *elements) {
    return tvm_interp_move_tile(context, insn, tile, context->block, true, elements);
}

tvm_status tvm_interp_move_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                const interp_block *block, bool is_load, void *elements) {
    int64_t start[TVM_MAX_RANK];
    tvm_status status = tvm_interp_index(context, insn, tile->first, tile->rank, start);
    if (status == TVM_OK)
        status = tvm_interp_inside(context, insn, tile->slot, tile->rank, tile->shape, start, tile->tile_rank,
                                   tile->tile);
    if (status != TVM_OK) return status;
    box where = box_make(tile->rank, tile->shape, start, tile->tile_rank, tile->tile, tile->tile);
    if (interp_sanitized(context)) {
        const sanitize_access access = {.owner = block,
                                        .memory = tile->slot,
                                        .tensor = tile->tensor,
                                        .mode = is_load ? SANITIZE_READ : SANITIZE_WRITE,
                                        .actor = tile->tensor == TVM_NONE ? SANITIZE_MMA : SANITIZE_THREADS,
                                        .operand = tile->first};
        status = box_sanitize(where, context, insn, &access);
        if (status != TVM_OK) return status;
    }
    box_move(where, is_load ? LOAD : STORE, width_of(interp_slot(block->kernel, tile->slot)->dtype),
             interp_tensor(block, tile->slot), elements);
    return TVM_OK;
}

static tvm_status move_shared(interp_context *context, const interp_insn *insn, direction way) {
    const tile_plan *plan = insn->plan;
    const interp_block *block = context->block;
    int64_t start[TVM_MAX_RANK];
    tvm_status status = tvm_interp_index(context, insn, 0, plan->rank, start);
    if (status == TVM_OK)
        status = tvm_interp_inside(context, insn, plan->container, plan->rank, plan->shape, start,
                                   plan->tile_rank, plan->tile);
    if (status != TVM_OK) return status;
    if (plan->masked) return tvm_interp_move_places(context, insn, &plan->places, plan->tensor, way == LOAD);
    box where = box_make(plan->rank, plan->shape, start, plan->tile_rank, plan->tile, plan->tile);
    status = sanitize_tile(context, insn, where, way == LOAD ? SANITIZE_READ : SANITIZE_WRITE);
    if (status != TVM_OK) return status;
    box_move(where, way, plan->width, interp_tensor(block, plan->container),
             interp_tensor(block, plan->tensor));
    return TVM_OK;
}

tvm_status tvm_interp_LOAD_SHARED(interp_context *context, const interp_insn *insn) {
    return move_shared(context, insn, LOAD);
}

tvm_status tvm_interp_STORE_SHARED(interp_context *context, const interp_insn *insn) {
    return move_shared(context, insn, STORE);
}

/* ---- asynchronous copies ---- */

/* Between a shared tensor, the target but for store-bulk, and a global one. */
typedef struct copy_plan {
    uint32_t target, source;
    uint32_t target_first, source_first; /* operands */
    uint8_t target_rank, source_rank, tile_rank;
    width width;
    int64_t target_shape[TVM_MAX_RANK];
    int64_t tile[TVM_MAX_RANK];
} copy_plan;

/* `shared`, `global`: where the tensors stand among the operands; the tile comes after both. */
static tvm_status plan_copy(tvm_interp_kernel *k, interp_insn *insn, uint32_t shared, uint32_t global,
                            tvm_diags *diags) {
    copy_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    const tvm_operand *operands = insn->operands;
    plan->target = operands[shared].value;
    plan->target_rank = (uint8_t)slot_shape(k, plan->target, plan->target_shape);
    plan->target_first = shared;
    plan->source = operands[global].value;
    plan->source_rank = interp_slot(k, plan->source)->rank;
    plan->source_first = global;
    const tvm_operand *tile = operands + 2u + plan->target_rank + plan->source_rank;
    plan->tile_rank = (uint8_t)tile[0].value;
    for (unsigned d = 0; d < plan->tile_rank; d++) plan->tile[d] = tile[1 + d].value;
    plan->width = width_of(interp_slot(k, plan->source)->dtype);
    return TVM_OK;
}

static uint32_t operands_of(const tvm_interp_kernel *k, uint32_t slot) {
    return 1 + tvm_slot_rank(k->program, interp_slot(k, slot));
}

tvm_status tvm_plan_COPY_ASYNC(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    return plan_copy(k, insn, 0, operands_of(k, insn->operands[0].value), diags);
}

tvm_status tvm_plan_STORE_BULK(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    return plan_copy(k, insn, operands_of(k, insn->operands[0].value), 0, diags);
}

static bool grow_copies(interp_copies *copies) {
    if (copies->count < copies->capacity) return true;
    size_t capacity = copies->capacity ? 2 * copies->capacity : 16;
    interp_copy *items = realloc(copies->items, capacity * sizeof *items);
    if (!items) return false;
    copies->items = items;
    copies->capacity = capacity;
    return true;
}

tvm_status tvm_interp_start_copy(interp_context *context, const interp_insn *insn, interp_copies *copies) {
    const copy_plan *plan = insn->plan;
    interp_copy copy = {.group = context->groups, .insn = insn};
    tvm_status status = tvm_interp_index(context, insn, plan->target_first, plan->target_rank, copy.target);
    if (status == TVM_OK)
        status = tvm_interp_index(context, insn, plan->source_first, plan->source_rank, copy.source);
    if (status == TVM_OK)
        status = tvm_interp_inside(context, insn, plan->target, plan->target_rank, plan->target_shape,
                                   copy.target, plan->tile_rank, plan->tile);
    if (status != TVM_OK) return status;
    if (copies->count >= INTERP_MAX_COPIES)
        return tvm_interp_fail(context, insn, "more than %d copies that nothing has waited for",
                               INTERP_MAX_COPIES);
    if (!grow_copies(copies)) return tvm_interp_no_memory(context->block->run);
    copies->items[copies->count++] = copy;
    return TVM_OK;
}

uint64_t tvm_interp_copy_bytes(const interp_copy *copy) {
    const copy_plan *plan = copy->insn->plan;
    uint64_t bytes = plan->width.bytes;
    for (unsigned d = 0; d < plan->tile_rank; d++) bytes *= (uint64_t)plan->tile[d];
    return bytes;
}

static void perform(const interp_block *block, const interp_copy *copy, direction way) {
    const copy_plan *plan = copy->insn->plan;
    const int64_t *shape = plan->target_shape;
    const interp_global *global = interp_global_of(block->run, plan->source);
    unsigned points = plan->target_rank - plan->tile_rank;
    int64_t place = 0;
    for (unsigned d = 0; d < plan->target_rank; d++) place = place * shape[d] + copy->target[d];
    box_move(
        box_make(plan->source_rank, global->shape, copy->source, plan->tile_rank, plan->tile, shape + points),
        way, plan->width, global->data,
        interp_tensor(block, plan->target) + (size_t)place * plan->width.bytes);
}

void tvm_interp_perform_copy(const interp_block *block, const interp_copy *copy) {
    perform(block, copy, LOAD);
}

void tvm_interp_perform_store(const interp_block *block, const interp_copy *copy) {
    perform(block, copy, STORE);
}

/* Both sides of the copy that was started last; `shared` and `global` say how and by whom. */
tvm_status tvm_interp_sanitize_copy(interp_context *context, const interp_copy *copy, sanitize_access shared,
                                    sanitize_access global) {
    const copy_plan *plan = copy->insn->plan;
    const int64_t *tile = plan->tile;
    const interp_global *memory = interp_global_of(context->block->run, plan->source);
    shared.owner = global.owner = context->block;
    shared.memory = plan->target;
    global.memory = plan->source;
    shared.tensor = global.tensor = TVM_NONE;
    shared.tile = global.tile = tile;
    shared.tile_rank = global.tile_rank = plan->tile_rank;
    tvm_status status = box_sanitize(
        box_make(plan->target_rank, plan->target_shape, copy->target, plan->tile_rank, tile, tile), context,
        copy->insn, &shared);
    if (status != TVM_OK) return status;
    return box_sanitize(box_make(plan->source_rank, memory->shape, copy->source, plan->tile_rank, tile, tile),
                        context, copy->insn, &global);
}

/* How warps share the tile out: the last entry; NULL: it has none. */
static const tvm_operand *parts_of(const tvm_interp_kernel *k, const interp_insn *insn) {
    uint32_t tile = operands_of(k, insn->operands[0].value);
    tile += operands_of(k, insn->operands[tile].value);
    const tvm_operand *parts = &insn->operands[tile + 2 + insn->operands[tile].value];
    return parts->kind == TVM_OPERAND_CONST ? parts : NULL;
}

static tvm_status sanitize_copy_async(interp_context *context, const interp_insn *insn) {
    sanitize_access to = {.mode = SANITIZE_WRITE,
                          .actor = context->pipelined ? SANITIZE_DONE : SANITIZE_COPY,
                          .parts = parts_of(context->block->kernel, insn)},
                    from = to;
    from.mode = SANITIZE_READ;
    return tvm_interp_sanitize_copy(context, &context->copies.items[context->copies.count - 1], to, from);
}

tvm_status tvm_interp_COPY_ASYNC(interp_context *context, const interp_insn *insn) {
    tvm_status status = tvm_interp_start_copy(context, insn, &context->copies);
    if (status == TVM_OK && interp_sanitized(context)) status = sanitize_copy_async(context, insn);
    if (status == TVM_OK && context->pipelined)
        tvm_interp_perform_copy(context->block, &context->copies.items[--context->copies.count]);
    return status;
}

INTERP_NO_PLAN(COMMIT_GROUP)

tvm_status tvm_interp_COMMIT_GROUP(interp_context *context, const interp_insn *insn) {
    (void)insn;
    context->groups++;
    return TVM_OK;
}

INTERP_NO_PLAN(WAIT_GROUP)

/* Performs the copies of all committed groups but the `pending` latest, in the order in which they were
 * started. */
tvm_status tvm_interp_WAIT_GROUP(interp_context *context, const interp_insn *insn) {
    uint64_t pending = insn->operands[0].value;
    uint64_t retired = context->groups > pending ? context->groups - pending : 0;
    if (interp_sanitized(context)) tvm_sanitize_wait_group(context, retired);
    interp_copies *copies = &context->copies;
    size_t done = 0;
    while (done < copies->count && copies->items[done].group < retired)
        tvm_interp_perform_copy(context->block, &copies->items[done++]);
    copies->count -= done;
    if (done && copies->count)
        memmove(copies->items, copies->items + done, copies->count * sizeof *copies->items);
    return TVM_OK;
}
