/* Asynchronous copies of tiles between shared and global memory. */
#include "interp_box.h"
#include "tensor_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Between a shared tensor, the target but for store-bulk, and a global one. */
typedef struct copy_plan {
    uint32_t target, source;
    uint32_t target_first, source_first; /* operands */
    uint8_t target_rank, source_rank, tile_rank;
    interp_width width;
    int64_t target_shape[TVM_MAX_RANK], target_step[TVM_MAX_RANK];
    const tvm_shared_digits *target_split;
    int64_t tile[TVM_MAX_RANK];
    bool spreads; /* 16 elements become 16 bytes, which they begin */
} copy_plan;

static uint32_t operands_of(const tvm_interp_kernel *k, uint32_t slot) {
    return 1 + tvm_slot_rank(k->program, interp_slot(k, slot));
}

/* `shared`, `global`: where the tensors stand among the operands; the tile comes after both. */
static tvm_status plan_copy(tvm_interp_kernel *k, interp_insn *insn, uint32_t shared, uint32_t global,
                            tvm_diags *diags) {
    copy_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    const tvm_operand *operands = insn->operands;
    plan->target = operands[shared].value;
    plan->target_rank = (uint8_t)tvm_interp_slot_shape(k, plan->target, plan->target_shape);
    plan->target_first = shared;
    plan->source = operands[global].value;
    plan->source_rank = interp_slot(k, plan->source)->rank;
    plan->source_first = global;
    uint32_t last = shared > global ? shared : global;
    const tvm_operand *tile = operands + last + operands_of(k, operands[last].value);
    plan->tile_rank = (uint8_t)tile[0].value;
    for (unsigned d = 0; d < plan->tile_rank; d++) plan->tile[d] = tile[1 + d].value;
    plan->width = interp_width_of(interp_slot(k, plan->source)->dtype);
    tvm_interp_shared_steps(k, plan->target, plan->target_step);
    plan->target_split = k->split[plan->target];
    plan->spreads =
        tvm_tensor_spreads(interp_slot(k, plan->target)->dtype, interp_slot(k, plan->source)->dtype);
    size_t bytes = plan->width.bytes;
    for (unsigned d = 0; d < plan->tile_rank; d++) bytes *= (size_t)plan->tile[d];
    if (interp_slot(k, plan->target)->view || plan->spreads) tvm_interp_need_scratch(k, bytes);
    return TVM_OK;
}

tvm_status tvm_plan_COPY_ASYNC(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    return plan_copy(k, insn, 0, operands_of(k, insn->operands[0].value), diags);
}

tvm_status tvm_plan_STORE_BULK(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    return plan_copy(k, insn, operands_of(k, insn->operands[0].value), 0, diags);
}

/* Sums of floats show the order in which blocks come to them. */
tvm_status tvm_plan_REDUCE_BULK(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    tvm_status status = plan_copy(k, insn, 1 + operands_of(k, insn->operands[1].value), 1, diags);
    if (status != TVM_OK) return status;
    copy_plan *plan = insn->plan;
    plan->width.combine = tvm_interp_element_loop(TVM_OP_ADD, plan->width.type);
    if (plan->width.type.kind == TVM_KIND_FLOAT) k->in_order = true;
    return TVM_OK;
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

tvm_status tvm_interp_add_copy(interp_context *context, const interp_insn *insn, interp_copies *copies,
                               const interp_copy *copy) {
    if (copies->count >= INTERP_MAX_COPIES)
        return tvm_interp_fail(context, insn, "more than %d copies that nothing has waited for",
                               INTERP_MAX_COPIES);
    if (!grow_copies(copies)) return tvm_interp_no_memory(context->block->run);
    copies->items[copies->count++] = *copy;
    return TVM_OK;
}

/* Such tiles begin with a whole row of what is spread. */
static tvm_status at_row(const interp_context *context, const interp_insn *insn, const copy_plan *plan,
                         int64_t column) {
    if (!plan->spreads) return tvm_interp_at_byte(context, insn, plan->source, column);
    if (column % TVM_SPREAD_ROW == 0) return TVM_OK;
    const tvm_interp_kernel *k = context->block->kernel;
    return tvm_interp_fail(
        context, insn, "%s%s: index %lld, expected a multiple of %d where elements become u8",
        interp_sigil(k, plan->source), interp_slot_name(k, plan->source), (long long)column, TVM_SPREAD_ROW);
}

tvm_status tvm_interp_start_copy(interp_context *context, const interp_insn *insn, interp_copies *copies) {
    const copy_plan *plan = insn->plan;
    interp_copy copy = {
        .group = context->groups, .insn = insn, .global = *interp_global_of(context, plan->source)};
    tvm_status status = tvm_interp_index(context, insn, plan->target_first, plan->target_rank, copy.target);
    if (status == TVM_OK)
        status = tvm_interp_index(context, insn, plan->source_first, plan->source_rank, copy.source);
    if (status == TVM_OK)
        status = tvm_interp_inside(context, insn, plan->target, plan->target_rank, plan->target_shape,
                                   copy.target, plan->tile_rank, plan->tile);
    if (status == TVM_OK)
        status = tvm_interp_at_byte(context, insn, plan->target, copy.target[plan->target_rank - 1]);
    if (status == TVM_OK) status = at_row(context, insn, plan, copy.source[plan->source_rank - 1]);
    return status == TVM_OK ? tvm_interp_add_copy(context, insn, copies, &copy) : status;
}

uint64_t tvm_interp_copy_bytes(const interp_copy *copy) {
    const copy_plan *plan = copy->insn->plan;
    uint64_t bytes = plan->width.bytes;
    for (unsigned d = 0; d < plan->tile_rank; d++) bytes *= (uint64_t)plan->tile[d];
    return bytes;
}

bool tvm_interp_copy_same(const interp_copy *a, const interp_copy *b) {
    const copy_plan *plan = a->insn->plan;
    const interp_global *x = &a->global, *y = &b->global;
    size_t extents = plan->source_rank * sizeof *x->shape;
    return a->insn == b->insn && x->data == y->data && memcmp(x->shape, y->shape, extents) == 0 &&
           memcmp(x->stride, y->stride, extents) == 0 && memcmp(a->source, b->source, extents) == 0 &&
           memcmp(a->target, b->target, plan->target_rank * sizeof *a->target) == 0;
}

/* "%s[1, 0]" */
static size_t place_text(const tvm_interp_kernel *k, uint32_t slot, const int64_t *at, unsigned rank,
                         char *text, size_t room) {
    size_t used = (size_t)snprintf(text, room, "%s%.40s", interp_sigil(k, slot), interp_slot_name(k, slot));
    for (unsigned d = 0; d < rank && used < room; d++)
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64 "%s", d ? ", " : "[", at[d],
                                 d + 1 == rank ? "]" : "");
    return used < room ? used : room - 1;
}

void tvm_interp_copy_text(const tvm_interp_kernel *kernel, const interp_copy *copy, char text[160]) {
    const copy_plan *plan = copy->insn->plan;
    size_t used = place_text(kernel, plan->source, copy->source, plan->source_rank, text, 160);
    used += (size_t)snprintf(text + used, 160 - used, " to ");
    if (used < 160)
        place_text(kernel, plan->target, copy->target, plan->target_rank, text + used, 160 - used);
}

/* `far`: of the global tensor. What is outside of it is zero in shared memory. */
static void count_copy(const interp_block *block, const copy_plan *plan, const interp_box *far,
                       bool is_load) {
    uint64_t inside = tvm_interp_box_inside(far), tile = 1;
    for (unsigned d = 0; d < plan->tile_rank; d++) tile *= (uint64_t)plan->tile[d];
    interp_count(block, false, is_load, inside, plan->width.bits);
    interp_count(block, true, !is_load, is_load ? tile : inside, plan->width.bits);
    if (plan->width.combine) interp_count(block, false, true, inside, plan->width.bits);
}

static interp_box target_box(const interp_copy *copy, const int64_t *dense) {
    const copy_plan *plan = copy->insn->plan;
    interp_box box = tvm_interp_box_make(plan->target_rank, plan->target_shape, plan->target_step,
                                         copy->target, plan->tile_rank, plan->tile, dense);
    tvm_interp_box_split(&box, plan->target_split, plan->target_rank, copy->target);
    return box;
}

/* Elements, a byte each, to 16 bytes that 16 of them begin; what is behind them is undefined, here zero. */
static void spread(uint8_t *elements, uint64_t count, unsigned bits) {
    for (uint8_t *to = elements; to < elements + count; to += TVM_SPREAD_TOGETHER) {
        uint8_t codes[TVM_SPREAD_TOGETHER];
        memcpy(codes, to, sizeof codes);
        memset(to, 0, sizeof codes);
        for (unsigned i = 0; i < TVM_SPREAD_TOGETHER; i++) tvm_bits_set(to, (size_t)i * bits, bits, codes[i]);
    }
}

/* Through the scratch memory, where neighbours of the shared tile's last dimension are apart. */
static void perform_apart(const interp_block *block, const interp_copy *copy, interp_direction way) {
    const copy_plan *plan = copy->insn->plan;
    const interp_global *global = &copy->global;
    int64_t dense[TVM_MAX_RANK];
    tvm_interp_row_major(plan->tile_rank, plan->tile, dense);
    const interp_box far = tvm_interp_box_make(plan->source_rank, global->shape, global->stride, copy->source,
                                               plan->tile_rank, plan->tile, dense);
    const interp_box near = target_box(copy, dense);
    const interp_width apart = interp_shared_width_of(plan->width.type);
    uint8_t *shared = interp_tensor(block, plan->target);
    bool is_load = way == INTERP_LOAD;
    count_copy(block, plan, &far, is_load);
    if (is_load) tvm_interp_box_move(far, INTERP_LOAD, plan->width, global->data, block->scratch);
    if (plan->spreads) spread(block->scratch, tvm_interp_copy_bytes(copy), plan->width.bits);
    tvm_interp_box_move(near, is_load ? INTERP_STORE : INTERP_LOAD, apart, shared, block->scratch);
    if (!is_load) tvm_interp_box_move(far, way, plan->width, global->data, block->scratch);
}

static bool has_rows(const copy_plan *plan) {
    unsigned last = plan->target_rank - 1u;
    return !plan->target_split && (plan->target_step[last] == 1 || plan->target_shape[last] == 1);
}

static void perform(const interp_block *block, const interp_copy *copy, interp_direction way) {
    const copy_plan *plan = copy->insn->plan;
    const interp_global *global = &copy->global;
    unsigned points = plan->target_rank - plan->tile_rank;
    int64_t place = 0;
    if (plan->spreads || !has_rows(plan)) {
        perform_apart(block, copy, way);
        return;
    }
    for (unsigned d = 0; d < plan->target_rank; d++) place += copy->target[d] * plan->target_step[d];
    const interp_box where =
        tvm_interp_box_make(plan->source_rank, global->shape, global->stride, copy->source, plan->tile_rank,
                            plan->tile, plan->target_step + points);
    count_copy(block, plan, &where, way == INTERP_LOAD);
    tvm_interp_box_move(where, way, plan->width, global->data,
                        interp_tensor(block, plan->target) + (size_t)place * plan->width.bytes);
}

void tvm_interp_perform_copy(const interp_block *block, const interp_copy *copy) {
    perform(block, copy, INTERP_LOAD);
}

void tvm_interp_perform_store(const interp_block *block, const interp_copy *copy) {
    const copy_plan *plan = copy->insn->plan;
    if (!plan->width.combine) {
        perform(block, copy, INTERP_STORE);
        return;
    }
    pthread_mutex_lock(&block->run->atomics);
    perform(block, copy, INTERP_COMBINE);
    pthread_mutex_unlock(&block->run->atomics);
}

tvm_status tvm_interp_sanitize_tile(interp_context *context, const interp_copy *copy, sanitize_access shared,
                                    const interp_block *owner) {
    const copy_plan *plan = copy->insn->plan;
    int64_t dense[TVM_MAX_RANK];
    tvm_interp_row_major(plan->tile_rank, plan->tile, dense);
    shared.owner = owner;
    shared.memory = plan->target;
    shared.tensor = TVM_NONE;
    shared.tile = plan->tile;
    shared.tile_rank = plan->tile_rank;
    return tvm_interp_box_sanitize(target_box(copy, dense), context, copy->insn, &shared);
}

tvm_status tvm_interp_sanitize_copy(interp_context *context, const interp_copy *copy, sanitize_access shared,
                                    sanitize_access global) {
    const copy_plan *plan = copy->insn->plan;
    const int64_t *tile = plan->tile;
    int64_t dense[TVM_MAX_RANK];
    tvm_interp_row_major(plan->tile_rank, tile, dense);
    global.owner = context->block;
    global.memory = plan->source;
    global.tensor = TVM_NONE;
    global.tile = tile;
    global.tile_rank = plan->tile_rank;
    tvm_status status = tvm_interp_sanitize_tile(context, copy, shared, context->block);
    if (status != TVM_OK) return status;
    return tvm_interp_box_sanitize(tvm_interp_box_make(plan->source_rank, copy->global.shape,
                                                       copy->global.stride, copy->source, plan->tile_rank,
                                                       tile, dense),
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
