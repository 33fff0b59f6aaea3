/* Boxes of a tensor map for a tile: PTX ISA, "Tensors", on boxes, strides and swizzling modes. */
#include "bulk_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "numbers.h"
#include "tensor_memory.h"
#include "view.h"

/* Bytes that a box begins at a multiple of; a swizzle of so many spans repeats itself. */
enum { BOX_ALIGNMENT = 128, SPANS_OF_SWIZZLE = 8 };

enum { GRANULE_BITS = 8 * TVM_ABI_BOX_GRANULE, MAP_ELEMENT_BITS = 64 };

static unsigned swizzle_of(const tvm_shared_layout *layout, unsigned bits) {
    if (layout->swizzle_bits == 0) return TVM_ABI_SWIZZLE_NONE;
    bool chunks = (uint64_t)bits << layout->swizzle_base == GRANULE_BITS && layout->swizzle_shift == 3;
    return chunks && layout->swizzle_bits <= 3 ? layout->swizzle_bits : TVM_ABI_SWIZZLES;
}

static uint64_t span_of(unsigned swizzle) {
    return UINT64_C(16) << swizzle;
}

uint64_t tvm_bulk_alignment(const tvm_shared_layout *layout, unsigned bits) {
    unsigned swizzle = swizzle_of(layout, bits);
    return swizzle == TVM_ABI_SWIZZLES       ? 0
           : swizzle == TVM_ABI_SWIZZLE_NONE ? BOX_ALIGNMENT
                                             : SPANS_OF_SWIZZLE * span_of(swizzle);
}

/* The largest divisor of `extent` that is at most `most` and a multiple of `granule`; 0: there is none. */
static uint32_t part_of(uint32_t extent, uint32_t most, uint32_t granule) {
    for (uint32_t part = extent < most ? extent : most; part > 0; part--)
        if (extent % part == 0 && part % granule == 0) return part;
    return 0;
}

static const char *name_of(const kernel_state *k, uint32_t slot) {
    return tvm_string(k->program, k->kernel->slots[slot].name);
}

bulk_tile tvm_bulk_tile(const kernel_state *k, const tvm_operand *operands, const tvm_operand **extents) {
    bulk_tile tile = {.shared = operands};
    tile.global = tile.shared + 1 + tvm_slot_shared_layout(k, tile.shared->value)->rank;
    *extents = tile.global + 1 + k->kernel->slots[tile.global->value].rank;
    tile.rank = (*extents)->value;
    for (unsigned d = 0; d < tile.rank; d++) tile.extent[d] = (*extents)[1 + d].value;
    return tile;
}

/* ---- the tensor ---- */

/* The slot that the map is of: what the tile is a part of, a tensor or a view with strides of its own. */
static uint32_t mapped_slot(const kernel_state *k, const bulk_tile *tile) {
    uint32_t slot = tile->global->value;
    tvm_view view;
    while (k->kernel->slots[slot].view && k->kernel->slots[slot].form == TVM_FORM_PART) {
        tvm_view_read(k->kernel, &k->kernel->insns[k->kernel->slots[slot].view - 1], &view);
        slot = view.base;
    }
    return slot;
}

static const tvm_slot *mapped(const kernel_state *k, const bulk_tile *tile) {
    return &k->kernel->slots[mapped_slot(k, tile)];
}

/* Has a variable one value from its assignment on? Then one instruction assigns it, once. */
static bool is_set_once(const kernel_state *k, uint32_t slot) {
    unsigned loops_end = 0, set = 0;
    bool once = true;
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        bool is_loop = tvm_insn_class(insn) == TVM_CLASS_LOOP;
        if (is_loop && insn->match > loops_end) loops_end = insn->match;
        if (insn->result != slot) continue;
        once = once && i >= loops_end && !is_loop;
        set++;
    }
    return once && set == 1;
}

/* Has the expression one value at all places that come after its variables' assignments? */
static bool keeps_value(const kernel_state *k, uint32_t expr) {
    const tvm_expr *node = node_of(k, expr);
    if (tvm_fact_stable(k, expr)) return true;
    if (node->op == TVM_EXPR_SLOT) return node->a < k->kernel->param_count || is_set_once(k, node->a);
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    return arity > 0 && keeps_value(k, node->a) && (arity < 2 || keeps_value(k, node->b)) &&
           (arity < 3 || keeps_value(k, node->c));
}

static bool is_zero(const kernel_state *k, uint32_t expr) {
    int64_t value;
    return tvm_fact_constant(k, expr, &value) && value == 0;
}

/* A launch makes the map of a view with strides of its own: it checks it, and its memory begins where a
 * tensor's does. */
static bool begins_with_tensor(const kernel_state *k, uint32_t slot) {
    if (!k->kernel->slots[slot].at_launch || slot >= UINT16_MAX) return false;
    while (k->kernel->slots[slot].view) {
        tvm_view view;
        tvm_view_read(k->kernel, &k->kernel->insns[k->kernel->slots[slot].view - 1], &view);
        for (unsigned b = 0; b < view.base_rank; b++)
            if (!is_zero(k, view.index[b].value)) return false;
        slot = view.base;
    }
    return true;
}

/* A tile on its way through views to the tensor of the map. */
typedef struct view_walk {
    uint32_t slot;              /* what it is a tile of, so far */
    bulk_sum at[TVM_MAX_RANK];  /* its coordinates there */
    uint8_t from[TVM_MAX_RANK]; /* the dimension there that dimension d of the tile's own tensor is */
} view_walk;

/* Does a part, which lies inside of its base, end where that does in dimension d? */
static bool ends_with_base(const kernel_state *k, const tvm_slot *slot, const tvm_view *view, unsigned d) {
    enum { BUDGET = 16 };
    unsigned budget = BUDGET;
    linear left = {0};
    tvm_linear_add_value(k, &left, slot->shape[d], 1, &budget);
    tvm_linear_add_value(k, &left, view->index[view->from[d]].value, 1, &budget);
    tvm_linear_add_value(k, &left, k->kernel->slots[view->base].shape[view->from[d]], -1, &budget);
    return !left.failed && tvm_linear_not_negative(k, &left);
}

/* Is what is outside of the part in dimension d of the tile's own tensor outside of its base, too, or is none
 * of the tile outside? */
static bool ends_alike(const kernel_state *k, const bulk_tile *tile, const view_walk *w, const tvm_view *view,
                       unsigned d) {
    const tvm_slot *own = &k->kernel->slots[tile->global->value], *slot = &k->kernel->slots[w->slot];
    unsigned dim = w->from[d], of_base = view->from[dim];
    uint32_t extent = d + tile->rank < own->rank ? 1 : tile->extent[d + tile->rank - own->rank];
    bool begins_alike = is_zero(k, view->index[of_base].value);
    if (begins_alike && slot->shape[dim] == k->kernel->slots[view->base].shape[of_base]) return true;
    if (tvm_fact_inside(k, tile->global[1 + d].value, extent, own->shape[d])) return true;
    return (begins_alike || tvm_fact_not_negative(k, tile->global[1 + d].value)) &&
           ends_with_base(k, slot, view, dim);
}

/* From a part to its base; NULL, or what is wrong. */
static const char *leave_part(const kernel_state *k, const bulk_tile *tile, view_walk *w) {
    tvm_view view;
    bulk_sum at[TVM_MAX_RANK] = {0};
    tvm_view_read(k->kernel, &k->kernel->insns[k->kernel->slots[w->slot].view - 1], &view);
    for (unsigned b = 0; b < view.base_rank; b++) {
        at[b] = (bulk_sum){.count = 1, .expr = {view.index[b].value}};
        if (!keeps_value(k, view.index[b].value)) return "at an index that changes";
    }
    for (unsigned d = 0; d < k->kernel->slots[tile->global->value].rank; d++)
        if (!ends_alike(k, tile, w, &view, d))
            return "that ends, for all that is known, within the tile before what it is of";
    for (unsigned d = 0; d < view.rank; d++) {
        bulk_sum *sum = &at[view.from[d]];
        for (unsigned i = 0; i < w->at[d].count; i++) sum->expr[sum->count++] = w->at[d].expr[i];
    }
    for (unsigned d = 0; d < k->kernel->slots[tile->global->value].rank; d++)
        w->from[d] = view.from[w->from[d]];
    memcpy(w->at, at, sizeof at);
    w->slot = view.base;
    return NULL;
}

/* A part of a tensor, or a part of that, at indices that stay as they are, its dimensions in any order, goes
 * by boxes of the tensor. */
static bool find_view(const kernel_state *k, const bulk_tile *tile, bulk_plan *plan, char why[BULK_WHY_MAX]) {
    view_walk w = {.slot = tile->global->value};
    const tvm_slot *slots = k->kernel->slots;
    unsigned rank = slots[w.slot].rank;
    const char *wrong = NULL;
    for (unsigned d = 0; d < rank; d++) {
        w.at[d] = (bulk_sum){.count = 1, .expr = {tile->global[1 + d].value}};
        w.from[d] = (uint8_t)d;
    }
    while (!wrong && slots[w.slot].view && slots[w.slot].form == TVM_FORM_PART) {
        uint32_t part = w.slot;
        wrong = leave_part(k, tile, &w);
        if (wrong) w.slot = part;
    }
    if (!wrong && slots[w.slot].view && !begins_with_tensor(k, w.slot))
        wrong = "with strides that does not begin, in each block, with its tensor";
    memcpy(plan->at, w.at, sizeof plan->at);
    for (unsigned d = 0; d < tile->rank; d++) plan->dim[d] = w.from[rank - tile->rank + d];
    if (wrong) snprintf(why, BULK_WHY_MAX, "%.60s is a view %s", name_of(k, w.slot), wrong);
    return !wrong;
}

static uint64_t divisor_of(const kernel_state *k, const bulk_plan *plan, unsigned dim) {
    uint64_t divisor = 0;
    for (unsigned i = 0; i < plan->at[dim].count; i++)
        divisor = tvm_gcd(divisor, tvm_fact_divisor(k, plan->at[dim].expr[i]));
    return divisor;
}

/* The dimension of the tensor whose elements are neighbours in memory; the rank: none is known. */
static unsigned row_of(const kernel_state *k, const tvm_slot *slot) {
    int64_t stride;
    if (slot->form == TVM_FORM_ROW_MAJOR) return slot->rank - 1U;
    for (unsigned d = slot->rank; d-- > 0;)
        if (tvm_fact_constant(k, slot->stride[d], &stride) && stride == 1) return d;
    return slot->rank;
}

/* Elements that the steps of all dimensions but that of rows are known to be multiples of. */
static uint64_t steps_of(const kernel_state *k, const tvm_slot *slot, unsigned row) {
    uint64_t step = 0;
    if (slot->form == TVM_FORM_ROW_MAJOR) return slot->rank > 1 ? tvm_fact_divisor(k, slot->shape[row]) : 0;
    for (unsigned d = 0; d < slot->rank; d++)
        if (d != row) step = tvm_gcd(step, tvm_fact_divisor(k, slot->stride[d]));
    return step;
}

/* The tile's dimensions as boxes have them: that of rows, then the others, the tensor's last one first.
 * False: the tile is none of rows. */
static bool order_tile(const bulk_tile *tile, bulk_plan *plan) {
    unsigned count = 0;
    for (unsigned i = 0; i < plan->map.rank; i++)
        for (unsigned d = 0; d < tile->rank; d++)
            if (plan->dim[d] == tvm_abi_map_dim(&plan->map, i)) plan->order[count++] = (uint8_t)d;
    return plan->dim[plan->order[0]] == tvm_abi_map_dim(&plan->map, 0);
}

/* CUDA Driver API, cuTensorMapEncodeTiled, of the types 16U4_ALIGN16B and 16U6_ALIGN16B; PTX ISA, "Sub-byte
 * Types", for the coordinate. */
static bool spread_fits(const kernel_state *k, const tvm_slot *slot, const bulk_plan *plan, unsigned row,
                        char why[BULK_WHY_MAX]) {
    uint64_t first = divisor_of(k, plan, row), of_row = tvm_fact_divisor(k, slot->shape[row]),
             step = steps_of(k, slot, row) * slot->dtype.bits;
    if (first % TVM_SPREAD_ROW == 0 && of_row % TVM_SPREAD_ROW == 0 &&
        step % (8 * TVM_ABI_SPREAD_GRANULE) == 0)
        return true;
    snprintf(why, BULK_WHY_MAX,
             "its rows are known to begin at multiples of %" PRIu64
             " elements and to have multiples of %" PRIu64 ", not of %d",
             tvm_gcd(first, TVM_SPREAD_ROW), tvm_gcd(of_row, TVM_SPREAD_ROW), TVM_SPREAD_ROW);
    return false;
}

/* Those that read tiles of bytes which begin with narrower elements. */
static bool has_spread(const kernel_state *k) {
    return tvm_target_has(k->target, TVM_HAS_TCGEN05) || tvm_target_has(k->target, TVM_HAS_MMA_F8F6F4);
}

static bool global_fits(kernel_state *k, const bulk_tile *tile, bulk_plan *plan, char why[BULK_WHY_MAX]) {
    const tvm_slot *slot = mapped(k, tile);
    unsigned bits = slot->dtype.bits;
    const char *name = name_of(k, tile->global->value);
    unsigned row = row_of(k, slot);
    if (!tvm_target_has(k->target, TVM_HAS_BULK) || (plan->spreads && !has_spread(k))) {
        char target[16];
        snprintf(why, BULK_WHY_MAX, "%s lacks it", tvm_target_name(k->target, target));
        return false;
    }
    if (slot->rank > TVM_ABI_TENSOR_MAP_RANK) {
        snprintf(why, BULK_WHY_MAX, "%.60s has %u dimensions, a tensor map at most %d", name, slot->rank,
                 TVM_ABI_TENSOR_MAP_RANK);
        return false;
    }
    if (row == slot->rank) {
        snprintf(why, BULK_WHY_MAX, "no stride of %.60s is known to be 1", name);
        return false;
    }
    if (!find_view(k, tile, plan, why)) return false;
    plan->map.rank = slot->rank;
    plan->map.row = (uint8_t)(slot->rank - 1 - row);
    if (!order_tile(tile, plan)) {
        snprintf(why, BULK_WHY_MAX,
                 "the tile has one element only of the dimension of %.60s that is rows in memory", name);
        return false;
    }
    if (plan->spreads) return spread_fits(k, slot, plan, row, why);
    uint64_t step = steps_of(k, slot, row) * bits, first = divisor_of(k, plan, row) * bits;
    /* Else it is an illegal instruction, to an H200 (driver 580, CUDA 13.0). */
    if (first % GRANULE_BITS != 0) {
        snprintf(why, BULK_WHY_MAX,
                 "its rows are known to begin at multiples of %" PRIu64 " bytes only, not of 16",
                 tvm_gcd(first, GRANULE_BITS) / 8);
        return false;
    }
    if (step % GRANULE_BITS == 0) return true;
    snprintf(why, BULK_WHY_MAX, "%s of %.60s are known to be multiples of %" PRIu64 " bytes only, not of 16",
             slot->form == TVM_FORM_ROW_MAJOR ? "rows" : "strides", name, tvm_gcd(step, GRANULE_BITS) / 8);
    return false;
}

/* Where a box is stored no coordinate may be negative: that is an illegal instruction, to an H200 (driver
 * 580, CUDA 13.0), which loads such boxes and drops what lies behind the tensor's end. An index that is a
 * multiple of the tile's extent is tested when the kernel runs: where it is negative, all of the tile is
 * outside. */
static bool begins_inside(const kernel_state *k, const bulk_tile *tile, bulk_plan *plan,
                          char why[BULK_WHY_MAX]) {
    const tvm_slot *slot = &k->kernel->slots[tile->global->value];
    for (unsigned d = 0; d < slot->rank; d++) {
        uint32_t index = tile->global[1 + d].value;
        uint32_t extent = d + tile->rank < slot->rank ? 1 : tile->extent[d + tile->rank - slot->rank];
        if (k->facts->exprs[index].low >= 0 || tvm_fact_at_most(k, index, INT32_MAX)) continue;
        plan->tested |= 1U << d;
        if (tvm_fact_divisor(k, index) % extent == 0) continue;
        snprintf(why, BULK_WHY_MAX, "index %u of %.60s may be negative, for all that is known", d,
                 name_of(k, tile->global->value));
        return false;
    }
    return true;
}

/* Elements of the tensor that one of the map may be at most: rows and the tile's first coordinate are whole
 * ones. */
static unsigned widest(const kernel_state *k, const bulk_tile *tile, const bulk_plan *plan, uint32_t run) {
    const tvm_slot *slot = mapped(k, tile);
    unsigned row = plan->dim[plan->order[0]];
    uint64_t whole = tvm_gcd(MAP_ELEMENT_BITS / plan->tile.bits, tvm_fact_divisor(k, slot->shape[row]));
    whole = tvm_gcd(whole, divisor_of(k, plan, row));
    return (unsigned)tvm_gcd(whole, run);
}

/* ---- boxes ---- */

/* The modes of a dimension of the shared layout: those that are not the innermost one are numbered by boxes.
 */
static unsigned innermost_mode(const shared_tile *s, unsigned dim) {
    return s->first[dim] + s->modes[dim] - 1U;
}

/* Elements of a row of the tile that are neighbours in shared memory. */
static uint32_t row_run(const bulk_tile *tile, const bulk_plan *plan) {
    const shared_tile *s = &plan->tile;
    uint32_t extent = tile->extent[plan->order[0]],
             run = tvm_shared_contiguous_in(s, s->lead + plan->order[0]);
    return run >= extent ? extent : extent % run == 0 ? run : 0;
}

/* Rows of 128 elements, which are 128 bytes. */
static bool spread_box(bulk_plan *plan, uint32_t run, char why[BULK_WHY_MAX]) {
    bool swizzle = plan->map.swizzle == TVM_ABI_SWIZZLE_NONE || plan->map.swizzle == TVM_ABI_SWIZZLE_128;
    plan->box[plan->order[0]] = TVM_SPREAD_ROW;
    if (run % TVM_SPREAD_ROW == 0 && run > 0 && swizzle) return true;
    snprintf(why, BULK_WHY_MAX, "elements come to rows of %d bytes, with a swizzle of these or none",
             TVM_SPREAD_ROW);
    return false;
}

static bool row_box(const kernel_state *k, const bulk_tile *tile, bulk_way way, bulk_plan *plan,
                    char why[BULK_WHY_MAX]) {
    unsigned bits = plan->tile.bits, last = plan->order[0];
    uint32_t run = row_run(tile, plan), granule = GRANULE_BITS / bits;
    if (plan->spreads) return spread_box(plan, run, why);
    if (plan->map.swizzle) {
        plan->box[last] = 8 * (uint32_t)span_of(plan->map.swizzle) / bits;
        if (run == plan->box[last]) return true;
        snprintf(why, BULK_WHY_MAX,
                 "%u bytes of a row are contiguous in shared memory, a swizzle of %u bytes wants as many",
                 tvm_shared_bytes_of(&plan->tile, run), tvm_shared_bytes_of(&plan->tile, plan->box[last]));
        return false;
    }
    if (run > plan->factor * TVM_ABI_BOX_EXTENT && way != BULK_ADD) plan->factor = widest(k, tile, plan, run);
    plan->box[last] = part_of(run, plan->factor * TVM_ABI_BOX_EXTENT, granule);
    if (plan->box[last] > 0) return true;
    snprintf(why, BULK_WHY_MAX, "%u bytes of a row are contiguous in shared memory, no multiple of 16",
             tvm_shared_bytes_of(&plan->tile, run));
    return false;
}

/* The other dimensions, as long as they go on where the ones before them end. */
static void other_boxes(const bulk_tile *tile, bulk_plan *plan) {
    const shared_tile *s = &plan->tile;
    uint64_t filled = plan->box[plan->order[0]];
    for (unsigned i = 1; i < tile->rank; i++) {
        unsigned d = plan->order[i], dim = s->lead + d, m = innermost_mode(s, dim);
        plan->box[d] = 1;
        if (tile->extent[d] == 1 || s->modes[dim] == 0 || s->layout->mode_stride[m] != filled) continue;
        uint32_t size = s->modes[dim] == 1 ? tile->extent[d] : s->layout->mode_size[m];
        if (size > tile->extent[d]) size = tile->extent[d];
        if (tile->extent[d] % size == 0) plan->box[d] = part_of(size, TVM_ABI_BOX_EXTENT, 1);
        filled *= plan->box[d];
    }
}

/* Do all boxes begin where a box may? */
static bool aligned(const bulk_tile *tile, const bulk_plan *plan, char why[BULK_WHY_MAX]) {
    const shared_tile *s = &plan->tile;
    uint64_t wanted = tvm_bulk_alignment(s->layout, s->bits),
             found = tvm_gcd(s->constant, s->dynamic_divisor);
    for (uint32_t n = 1; n < plan->count; n++) {
        uint32_t at[TVM_MAX_RANK];
        tvm_bulk_box(tile, plan, n, at);
        found = tvm_gcd(found, tvm_shared_linear(s, at));
    }
    if (found * s->bits % (8 * wanted) == 0) return true;
    snprintf(why, BULK_WHY_MAX,
             "its boxes begin at multiples of %" PRIu64 " bytes of shared memory, not of %" PRIu64,
             tvm_gcd(found * s->bits, 8 * wanted) / 8, wanted);
    return false;
}

void tvm_bulk_box(const bulk_tile *tile, const bulk_plan *plan, uint32_t n, uint32_t at[TVM_MAX_RANK]) {
    memset(at, 0, TVM_MAX_RANK * sizeof *at);
    for (unsigned d = tile->rank; d-- > 0;) {
        uint32_t boxes = tile->extent[d] / plan->box[d];
        at[d] = n % boxes * plan->box[d];
        n /= boxes;
    }
}

/* ---- the map ---- */

static tvm_abi_element element_of(tvm_dtype type, unsigned factor, bool is_written) {
    static const tvm_abi_element bits[] = {TVM_ABI_BITS8, TVM_ABI_BITS16, TVM_ABI_BITS32, TVM_ABI_BITS64};
    if (factor > 1 || !is_written) return bits[tvm_log2_floor(factor * type.bits / 8)];
    if (tvm_dtype_same(type, TVM_F16)) return TVM_ABI_F16;
    if (tvm_dtype_same(type, TVM_BF16)) return TVM_ABI_BF16;
    if (tvm_dtype_same(type, TVM_F32)) return TVM_ABI_F32;
    if (tvm_dtype_same(type, TVM_F64)) return TVM_ABI_F64;
    if (tvm_dtype_same(type, TVM_I(32))) return TVM_ABI_I32;
    if (tvm_dtype_same(type, TVM_I(64))) return TVM_ABI_I64;
    return bits[tvm_log2_floor(type.bits / 8)];
}

/* The number of the tensor in the ABI. */
static uint32_t number_of(const kernel_state *k, uint32_t slot) {
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    uint32_t count = tvm_launch_tensors(k->kernel, tensors), i = 0;
    if (slot < k->kernel->param_count) return slot;
    while (i < count && tensors[i].slot != slot) i++;
    return k->kernel->param_count + i;
}

static void describe(const kernel_state *k, const bulk_tile *tile, bool is_written, bulk_plan *plan) {
    uint32_t of = mapped_slot(k, tile), root = tvm_view_root(k->kernel, of);
    const tvm_slot *slot = &k->kernel->slots[of];
    unsigned last = plan->order[0];
    uint32_t row = tvm_shared_bytes_of(&plan->tile, plan->box[last]);
    plan->map.tensor = (uint16_t)number_of(k, root);
    plan->map.view = (uint16_t)(of == root ? 0 : of + 1);
    plan->map.element = plan->spreads ? (slot->dtype.bits == 4 ? TVM_ABI_SPREAD4 : TVM_ABI_SPREAD6)
                                      : (uint8_t)element_of(slot->dtype, plan->factor, is_written);
    plan->map.is_written = is_written;
    plan->map.promotion = is_written ? 0 : row >= 128 ? 4 : row >= 64 ? 2 : 1;
    for (unsigned d = 0; d < slot->rank; d++) plan->map.box[d] = 1;
    for (unsigned d = 0; d < tile->rank; d++) plan->map.box[plan->dim[d]] = (uint16_t)plan->box[d];
    plan->map.box[plan->dim[last]] = (uint16_t)(plan->box[last] / plan->factor);
}

bool tvm_bulk_plan_make(kernel_state *k, const bulk_tile *tile, bulk_way way, bulk_plan *plan,
                        char why[BULK_WHY_MAX]) {
    *plan = (bulk_plan){.factor = 1, .count = 1};
    bool is_linear =
        tvm_shared_open(k, &plan->tile, tile->shared->value, tile->shared + 1, tile->rank, tile->extent, 1);
    const shared_tile *s = &plan->tile;
    if (!tvm_is_power_of_two(s->bits)) {
        snprintf(why, BULK_WHY_MAX, "elements of %u bits are no power of two of bits", s->bits);
        return false;
    }
    plan->spreads = tvm_tensor_spreads(k->kernel->slots[tile->shared->value].dtype,
                                       k->kernel->slots[tile->global->value].dtype);
    plan->factor = tvm_bits_whole(s->bits);
    plan->map.swizzle = (uint8_t)swizzle_of(s->layout, s->bits);
    if (!global_fits(k, tile, plan, why) || (way != BULK_LOAD && !begins_inside(k, tile, plan, why)))
        return false;
    if (!is_linear || plan->map.swizzle == TVM_ABI_SWIZZLES) {
        snprintf(why, BULK_WHY_MAX, "%s",
                 is_linear ? "the swizzle is none of a tensor map's"
                           : "a dimension of the shared layout has several modes");
        return false;
    }
    if (!row_box(k, tile, way, plan, why)) return false;
    other_boxes(tile, plan);
    uint32_t elements = 1;
    for (unsigned d = 0; d < tile->rank; d++) {
        plan->count *= tile->extent[d] / plan->box[d];
        elements *= plan->box[d];
    }
    plan->box_bytes =
        plan->spreads ? elements * mapped(k, tile)->dtype.bits / 8 : tvm_shared_bytes_of(s, elements);
    if (plan->count > BULK_BOXES) {
        snprintf(why, BULK_WHY_MAX,
                 "it is %u boxes, contiguous in shared memory, of at most 256 in a dimension", plan->count);
        return false;
    }
    if (!aligned(tile, plan, why)) return false;
    describe(k, tile, way != BULK_LOAD, plan);
    /* Sums wrap alike; those of signed ones are an illegal instruction, to an H200 (driver 580, CUDA 13.0).
     */
    if (way == BULK_ADD && plan->map.element == TVM_ABI_I64) plan->map.element = TVM_ABI_BITS64;
    return true;
}
