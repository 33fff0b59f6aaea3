/* Elements that are addressed one by one: gather and scatter by tensors of indices, masked loads and stores.
 */
#include "interp_impl.h"
#include "interp_box.h"
#include "sanitize.h"

#include <stdlib.h>
#include <string.h>

void tvm_interp_broadcast_steps(const tvm_interp_kernel *k, uint32_t slot, unsigned rank,
                                uint32_t steps[TVM_MAX_RANK]) {
    unsigned own = tvm_slot_rank(k->program, interp_slot(k, slot));
    const uint32_t *shape = tvm_slot_shape(k->program, interp_slot(k, slot));
    uint32_t step = 1;
    memset(steps, 0, TVM_MAX_RANK * sizeof *steps);
    for (unsigned d = 0; d < own; d++) {
        uint32_t extent = shape[own - 1 - d];
        steps[rank - 1 - d] = extent == 1 ? 0 : step;
        step *= extent;
    }
}

void tvm_interp_plan_places(const tvm_interp_kernel *k, const tvm_operand *operands, uint32_t tile,
                            const tvm_operand *mask, interp_places *out) {
    *out = (interp_places){.operands = operands, .memory = operands[0].value, .mask = TVM_NONE, .of = tile};
    const tvm_slot *memory = interp_slot(k, out->memory), *of = interp_slot(k, tile);
    out->rank = tvm_slot_rank(k->program, memory);
    out->tile_rank = tvm_slot_rank(k->program, of);
    memcpy(out->tile, tvm_slot_shape(k->program, of), out->tile_rank * sizeof out->tile[0]);
    for (unsigned d = 0; d < out->rank; d++) {
        out->index[d].is_tensor = operands[1 + d].kind == TVM_OPERAND_SLOT;
        if (!out->index[d].is_tensor) continue;
        out->index[d].slot = operands[1 + d].value;
        tvm_interp_broadcast_steps(k, out->index[d].slot, out->tile_rank, out->index[d].step);
    }
    if (!mask || mask->kind != TVM_OPERAND_SLOT) return;
    out->mask = mask->value;
    tvm_interp_broadcast_steps(k, out->mask, out->tile_rank, out->mask_step);
}

/* The place of a tile's element: its offset in the memory, in elements; false: it is outside. */
static bool locate(const interp_block *block, const interp_places *plan, const int64_t *shape,
                   const int64_t *stride, const int64_t *start, const uint32_t *coordinate, int64_t *offset) {
    const tvm_shared_digits *split = block->kernel->split[plan->memory];
    *offset = 0;
    for (unsigned d = 0; d < plan->rank; d++) {
        const interp_place_index *index = &plan->index[d];
        unsigned back = plan->rank - d;
        int64_t at = start[d];
        if (index->is_tensor) {
            uint32_t element = 0;
            for (unsigned t = 0; t < plan->tile_rank; t++) element += coordinate[t] * index->step[t];
            const uint8_t *indices = interp_tensor(block, index->slot);
            at = interp_slot(block->kernel, index->slot)->dtype.bits == 64
                     ? (int64_t)tvm_container_get(TVM_I(64), indices, element)
                     : (int32_t)tvm_container_get(TVM_I(32), indices, element);
        } else if (back <= plan->tile_rank) {
            uint32_t along = coordinate[plan->tile_rank - back];
            if (__builtin_add_overflow(at, (int64_t)along, &at)) return false;
        }
        if (at < 0 || at >= shape[d]) return false;
        *offset += tvm_interp_step(split, d, at, stride[d]);
    }
    return true;
}

static bool is_masked(const interp_block *block, const interp_places *plan, const uint32_t *coordinate) {
    uint32_t element = 0;
    if (plan->mask == TVM_NONE) return false;
    for (unsigned t = 0; t < plan->tile_rank; t++) element += coordinate[t] * plan->mask_step[t];
    return interp_tensor(block, plan->mask)[element] == 0;
}

/* By what the instruction may do: one that reads and writes is atomic. */
static sanitize_mode mode_of(const interp_insn *insn) {
    unsigned effects = tvm_op(insn->source->op)->effects;
    if (!(effects & (TVM_EFFECT_WRITE_GLOBAL | TVM_EFFECT_WRITE_SHARED))) return SANITIZE_READ;
    return effects & (TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_READ_SHARED) ? SANITIZE_ATOMIC : SANITIZE_WRITE;
}

/* All atomic operations but an exchange whose old value nobody gets. */
static bool is_update(const interp_context *context, const interp_insn *insn) {
    const tvm_operand *operands = tvm_operands(context->block->kernel->kernel, insn->source);
    return mode_of(insn) == SANITIZE_ATOMIC &&
           (insn->source->result != TVM_NONE || operands[0].value != TVM_ATOMIC_EXCH);
}

static bool sanitize_places(interp_context *context, const interp_insn *insn, const interp_places *plan,
                            const interp_block *owner, sanitize_walk *walk) {
    const sanitize_access access = {.owner = owner,
                                    .memory = plan->memory,
                                    .tensor = plan->of,
                                    .updates = is_update(context, insn),
                                    .mode = plan->in_block ? SANITIZE_ATOMIC_BLOCK : mode_of(insn)};
    return tvm_sanitize_open(context, insn, &access, walk);
}

/* The indices that are scalars; 0 for those that are tensors. */
static tvm_status find_start(const interp_context *context, const interp_insn *insn,
                             const interp_places *plan, int64_t start[TVM_MAX_RANK]) {
    for (unsigned d = 0; d < plan->rank; d++) {
        tvm_scalar value;
        start[d] = 0;
        if (plan->index[d].is_tensor) continue;
        tvm_status status = tvm_interp_evaluate(context, insn, plan->operands[1 + d].value, &value);
        if (status != TVM_OK) return status;
        start[d] = value.i;
    }
    return TVM_OK;
}

tvm_status tvm_interp_each_place(interp_context *context, const interp_insn *insn, const interp_places *plan,
                                 const interp_block *owner, interp_visit visit, void *data) {
    const interp_block *block = context->block;
    uint8_t *memory =
        owner == block ? tvm_interp_data(context, plan->memory) : interp_tensor(owner, plan->memory);
    unsigned bytes = tvm_dtype_container(interp_slot(block->kernel, plan->memory)->dtype);
    int64_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK], start[TVM_MAX_RANK], offset;
    uint32_t coordinate[TVM_MAX_RANK] = {0};
    tvm_interp_shape(context, plan->memory, shape);
    tvm_interp_strides(context, plan->memory, stride);
    tvm_status status = find_start(context, insn, plan, start);
    if (status != TVM_OK) return status;
    sanitize_walk walk = {.status = TVM_OK};
    bool sanitized = interp_sanitized(context);
    if (sanitized && !sanitize_places(context, insn, plan, owner, &walk)) return walk.status;
    for (size_t element = 0;; element++) {
        bool inside = !is_masked(block, plan, coordinate) &&
                      locate(block, plan, shape, stride, start, coordinate, &offset);
        if (sanitized && inside) tvm_sanitize_row(&walk, offset, 1, (int64_t)element, 1);
        visit(data, element, inside ? memory + (size_t)offset * bytes : NULL);
        unsigned d = plan->tile_rank;
        while (d > 0 && ++coordinate[d - 1] == plan->tile[d - 1]) coordinate[--d] = 0;
        if (d == 0) return walk.status;
    }
}

/* ---- moving elements ---- */

/* The elements of a register tensor. */
typedef struct dense {
    uint8_t *elements;
    unsigned bytes;
    tvm_dtype type;
    uint64_t fill;   /* the code of those that have no place */
    uint64_t inside; /* so far */
} dense;

static void load_element(void *data, size_t element, uint8_t *place) {
    dense *to = data;
    to->inside += place != NULL;
    uint8_t *at = to->elements + element * to->bytes;
    if (place)
        memcpy(at, place, to->bytes);
    else
        tvm_interp_fill(to->type, at, 1, to->fill);
}

static void store_element(void *data, size_t element, uint8_t *place) {
    dense *from = data;
    from->inside += place != NULL;
    if (place) memcpy(place, from->elements + element * from->bytes, from->bytes);
}

/* ---- by rows: a tile whose indices are scalars, masked by rows at most ---- */

static bool has_rows(const interp_places *plan) {
    for (unsigned d = 0; d < plan->rank; d++)
        if (plan->index[d].is_tensor) return false;
    return plan->tile_rank > 0 && (plan->mask == TVM_NONE || plan->mask_step[plan->tile_rank - 1] == 0);
}

/* A row, of which the elements from `low` to `high` are inside, `step` elements apart; place: of the first of
 * these. */
static void move_row(dense *row, bool is_load, uint8_t *place, int64_t step, uint32_t low, uint32_t high,
                     uint32_t extent) {
    uint8_t *at = row->elements + (size_t)low * row->bytes;
    row->inside += high - low;
    if (is_load) {
        tvm_interp_fill(row->type, row->elements, low, row->fill);
        tvm_interp_fill(row->type, row->elements + (size_t)high * row->bytes, extent - high, row->fill);
    }
    if (step == 1 && high > low) {
        memcpy(is_load ? at : place, is_load ? place : at, (size_t)(high - low) * row->bytes);
    } else {
        for (uint32_t i = low; i < high; i++, at += row->bytes, place += step * row->bytes)
            memcpy(is_load ? at : place, is_load ? place : at, row->bytes);
    }
    row->elements += (size_t)extent * row->bytes;
}

static tvm_status move_rows(interp_context *context, const interp_insn *insn, const interp_places *plan,
                            dense *row, bool is_load) {
    const interp_block *block = context->block;
    int64_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK], start[TVM_MAX_RANK], offset;
    uint8_t *memory = tvm_interp_data(context, plan->memory);
    tvm_interp_shape(context, plan->memory, shape);
    tvm_interp_strides(context, plan->memory, stride);
    tvm_status status = find_start(context, insn, plan, start);
    if (status != TVM_OK) return status;
    unsigned last = plan->tile_rank - 1;
    uint32_t coordinate[TVM_MAX_RANK] = {0}, extent = plan->tile[last], low = 0, high = 0;
    int64_t first = start[plan->rank - 1], end = shape[plan->rank - 1];
    if (first > -(int64_t)extent && first < end) {
        low = first < 0 ? (uint32_t)-first : 0;
        high = end - first < extent ? (uint32_t)(end - first) : extent;
    }
    for (;;) {
        coordinate[last] = low;
        bool inside = low < high && !is_masked(block, plan, coordinate) &&
                      locate(block, plan, shape, stride, start, coordinate, &offset);
        if (inside)
            move_row(row, is_load, memory + offset * row->bytes, stride[plan->rank - 1], low, high, extent);
        else
            move_row(row, is_load, NULL, 1, 0, 0, extent);
        unsigned d = last;
        while (d > 0 && ++coordinate[d - 1] == plan->tile[d - 1]) coordinate[--d] = 0;
        if (d == 0) return TVM_OK;
    }
}

tvm_status tvm_interp_move_places(interp_context *context, const interp_insn *insn, const interp_places *plan,
                                  uint32_t slot, bool is_load) {
    const interp_block *block = context->block;
    const tvm_slot *memory = interp_slot(block->kernel, plan->memory);
    tvm_dtype type = interp_slot(block->kernel, slot)->dtype;
    dense registers = {interp_tensor(block, slot), tvm_dtype_container(type), type, 0, 0};
    tvm_status status = tvm_interp_code(context, insn, plan->fill, type, &registers.fill);
    if (status != TVM_OK) return status;
    status = !interp_sanitized(context) && !block->kernel->split[plan->memory] && has_rows(plan)
                 ? move_rows(context, insn, plan, &registers, is_load)
                 : tvm_interp_each_place(context, insn, plan, block, is_load ? load_element : store_element,
                                         &registers);
    interp_count(block, memory->kind == TVM_SLOT_SHARED, is_load, registers.inside, memory->dtype.bits);
    return status;
}

static tvm_status plan_places(tvm_interp_kernel *k, interp_insn *insn, uint32_t tile, uint32_t mask,
                              tvm_diags *diags) {
    interp_places *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_interp_plan_places(k, insn->operands, tile, &insn->operands[mask], plan);
    return TVM_OK;
}

static uint32_t after_indices(const tvm_interp_kernel *k, const interp_insn *insn) {
    return 1 + tvm_slot_rank(k->program, interp_slot(k, insn->operands[0].value));
}

tvm_status tvm_plan_GATHER(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    uint32_t mask = after_indices(k, insn) + 1;
    tvm_status status = plan_places(k, insn, insn->source->result, mask, diags);
    interp_places *plan = insn->plan;
    if (status == TVM_OK) plan->fill = tvm_interp_given(insn, mask + 1);
    return status;
}

tvm_status tvm_plan_SCATTER(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    uint32_t at = after_indices(k, insn);
    return plan_places(k, insn, insn->operands[at].value, at + 1, diags);
}

tvm_status tvm_interp_GATHER(interp_context *context, const interp_insn *insn) {
    return tvm_interp_move_places(context, insn, insn->plan, insn->source->result, true);
}

tvm_status tvm_interp_SCATTER(interp_context *context, const interp_insn *insn) {
    uint32_t source = insn->operands[after_indices(context->block->kernel, insn)].value;
    return tvm_interp_move_places(context, insn, insn->plan, source, false);
}
