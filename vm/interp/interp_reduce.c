/* reduce: the elements of the axes combined in the order that the language fixes. */
#include "interp_reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "interp_impl.h"
#include "interp_loops.h"
#include "interp_vector.h"
#include "reduce.h"

/* ---- the plan ----
 * A place on the axes is what the thread's digits add plus what the local digits add, parts and locals in the
 * order in which they are combined: place p * locals + l is that of local l of the p-th part.
 *
 * Elements are combined many at a time, by the loops of the element-wise instructions: a lane is a part of an
 * output, lanes of a part are next to each other. Where positions are asked for it is one after the other. */

/* A place on the axes: in elements of the source, and its row-major number among those of the axes. */
typedef struct reduce_place {
    uint32_t offset, position;
} reduce_place;

typedef struct reduce_plan {
    uint32_t source;
    interp_reduction reduction;
    unsigned kept; /* dimensions that are not reduced, and have more than one element */
    uint32_t kept_extent[TVM_MAX_RANK], kept_stride[TVM_MAX_RANK];
    uint32_t outputs, parts, locals;
    interp_loop_function loop; /* combines arrays; NULL: one by one */
    tvm_dtype wide;            /* of its elements */
    bool widens;               /* the source has another type */
    uint32_t elements;         /* of the source */
    uint32_t run;              /* so many lanes are neighbours in the source, and the same number of others */
    uint32_t *lanes;           /* of each lane: its element of the source where all local digits are 0 */
    reduce_place places[];     /* parts * locals */
} reduce_plan;

/* Appends the places that a digit of `size` values adds to each of `count` places so far. */
static uint32_t extend(reduce_place *places, uint32_t count, uint32_t size, reduce_place stride) {
    for (uint32_t i = count; i-- > 0;)
        for (uint32_t v = size; v-- > 0;)
            places[i * size + v] = (reduce_place){places[i].offset + v * stride.offset,
                                                  places[i].position + v * stride.position};
    return count * size;
}

/* What one more of a mode's digit adds. */
static reduce_place mode_stride(const tvm_layout *layout, uint32_t axes, unsigned mode) {
    reduce_place stride = {1, 1};
    for (unsigned m = mode + 1; m < layout->modes && layout->mode_dim[m] == layout->mode_dim[mode]; m++)
        stride = (reduce_place){stride.offset * layout->mode_size[m], stride.position * layout->mode_size[m]};
    for (unsigned d = layout->mode_dim[mode] + 1U; d < layout->rank; d++) {
        stride.offset *= layout->shape[d];
        if (axes >> d & 1) stride.position *= layout->shape[d];
    }
    return stride;
}

/* Parts ascend along the axes: their modes that threads hold, in the order of their significance. Locals
 * ascend by local index: the other modes, in the order of the local digits. */
static void order_places(reduce_plan *plan, const tvm_layout *layout, uint32_t axes, reduce_place *parts) {
    plan->parts = 1;
    for (unsigned m = 0; m < layout->modes; m++)
        if ((axes >> layout->mode_dim[m] & 1) && tvm_mode_is_spatial(layout, m))
            plan->parts = extend(parts, plan->parts, layout->mode_size[m], mode_stride(layout, axes, m));
    plan->locals = 1;
    for (unsigned l = 0; l < layout->locals; l++) {
        unsigned m = layout->local[l];
        if (axes >> layout->mode_dim[m] & 1)
            plan->locals =
                extend(plan->places, plan->locals, layout->mode_size[m], mode_stride(layout, axes, m));
    }
    for (uint32_t p = plan->parts; p-- > 0;)
        for (uint32_t l = plan->locals; l-- > 0;)
            plan->places[p * plan->locals + l] = (reduce_place){parts[p].offset + plan->places[l].offset,
                                                                parts[p].position + plan->places[l].position};
}

static void find_kept(reduce_plan *plan, const tvm_layout *layout, uint32_t axes) {
    uint32_t stride = 1;
    plan->outputs = 1;
    for (unsigned d = layout->rank; d-- > 0; stride *= layout->shape[d]) {
        if ((axes >> d & 1) || layout->shape[d] == 1) continue;
        plan->kept_extent[plan->kept] = layout->shape[d];
        plan->kept_stride[plan->kept++] = stride;
        plan->outputs *= layout->shape[d];
    }
}

/* The element of the source where the axes are zero, of an output: its row-major number. */
static uint32_t output_base(const reduce_plan *plan, uint32_t output) {
    uint32_t base = 0;
    for (unsigned d = 0; d < plan->kept; d++) {
        base += output % plan->kept_extent[d] * plan->kept_stride[d];
        output /= plan->kept_extent[d];
    }
    return base;
}

/* The type in which elements are combined. */
static tvm_dtype wide_type(const interp_reduction *r) {
    if (r->class == REDUCE_DOUBLE) return TVM_F64;
    if (r->class == REDUCE_FLOAT) return TVM_F32;
    unsigned bits = r->type.bits > 32 ? 64 : 32;
    return r->class == REDUCE_SIGNED ? TVM_I(bits) : TVM_U(bits);
}

static interp_loop_function loop_of(const interp_reduction *r, tvm_dtype wide) {
    switch (r->operation) {
    case TVM_SUM:
        return tvm_interp_element_loop(TVM_OP_ADD, wide);
    case TVM_REDUCE_PROD:
        return tvm_interp_element_loop(TVM_OP_MUL, wide);
    case TVM_REDUCE_MIN:
        return tvm_interp_element_loop(TVM_OP_MIN, wide);
    case TVM_REDUCE_MAX:
        return tvm_interp_element_loop(TVM_OP_MAX, wide);
    case TVM_REDUCE_AND:
    case TVM_REDUCE_ALL:
        return tvm_interp_element_loop(TVM_OP_AND, wide);
    case TVM_REDUCE_OR:
    case TVM_REDUCE_ANY:
        return tvm_interp_element_loop(TVM_OP_OR, wide);
    case TVM_REDUCE_XOR:
        return tvm_interp_element_loop(TVM_OP_XOR, wide);
    default:
        return NULL;
    }
}

/* Lanes of a part come next to each other, in the order of their outputs. */
static void find_lanes(reduce_plan *plan) {
    uint32_t count = plan->outputs * plan->parts, begin = 0;
    for (uint32_t p = 0; p < plan->parts; p++)
        for (uint32_t o = 0; o < plan->outputs; o++)
            plan->lanes[p * plan->outputs + o] = output_base(plan, o) + plan->places[p * plan->locals].offset;
    plan->run = count;
    for (uint32_t lane = 1; lane <= count; lane++) {
        if (lane < count && plan->lanes[lane] == plan->lanes[lane - 1] + 1) continue;
        if (lane - begin < plan->run) plan->run = lane - begin;
        begin = lane;
    }
    for (uint32_t lane = 0; lane < count && plan->run > 1; lane++)
        if (lane % plan->run && plan->lanes[lane] != plan->lanes[lane - 1] + 1) plan->run = 1;
    if (count % plan->run) plan->run = 1;
}

/* Bytes of scratch memory up to which the elements that are combined lie, and the lanes' sums behind them. */
static size_t wide_bytes(const reduce_plan *plan) {
    return plan->widens ? ((size_t)plan->elements * tvm_dtype_container(plan->wide) + 63) / 64 * 64 : 0;
}
static size_t lane_bytes(const reduce_plan *plan) {
    return ((size_t)plan->outputs * plan->parts * tvm_dtype_container(plan->wide) + 63) / 64 * 64;
}

tvm_status tvm_plan_REDUCE(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    uint32_t source = insn->operands[1].value, extent = 1;
    uint32_t axes = tvm_reduce_axes(insn->operands, insn->source->count);
    const tvm_slot *slot = interp_slot(k, source);
    const tvm_layout *layout = &k->program->layouts[slot->layout];
    uint32_t elements = tvm_layout_elements(layout);
    for (unsigned d = 0; d < layout->rank; d++)
        if (axes >> d & 1) extent *= layout->shape[d];
    reduce_plan *plan =
        calloc(1, sizeof *plan + extent * sizeof(reduce_place) + elements * sizeof *plan->lanes);
    reduce_place *parts = calloc(extent, sizeof *parts);
    if (!plan || !parts) {
        free(plan);
        free(parts);
        return tvm_diag_no_memory(diags);
    }
    insn->plan = plan;
    plan->source = source;
    plan->elements = elements;
    plan->reduction = tvm_interp_reduction(slot->dtype, insn->operands[0].value);
    plan->wide = wide_type(&plan->reduction);
    plan->widens = !tvm_dtype_same(plan->wide, slot->dtype);
    plan->loop = loop_of(&plan->reduction, plan->wide);
    plan->lanes = (uint32_t *)(plan->places + extent);
    find_kept(plan, layout, axes);
    order_places(plan, layout, axes, parts);
    free(parts);
    if (plan->loop) find_lanes(plan);
    tvm_interp_need_scratch(k, plan->loop ? wide_bytes(plan) + 2 * lane_bytes(plan) + INTERP_SLACK
                                          : (size_t)extent * sizeof(reduce_value));
    return TVM_OK;
}

/* ---- values ---- */

interp_reduction tvm_interp_reduction(tvm_dtype type, uint32_t operation) {
    interp_reduction r = {.type = type, .operation = operation, .class = REDUCE_UNSIGNED};
    if (type.kind == TVM_KIND_INT) r.class = REDUCE_SIGNED;
    if (type.kind == TVM_KIND_FLOAT) r.class = type.bits == 64 ? REDUCE_DOUBLE : REDUCE_FLOAT;
    return r;
}

/* A NaN has no place in the order: for argmax it is as low, for argmin as high as can be. */
static double comparable(const interp_reduction *r, double value) {
    if (!tvm_reduce_is_position(r->operation) || !isnan(value)) return value;
    return r->operation == TVM_REDUCE_ARGMAX ? -INFINITY : INFINITY;
}

reduce_value tvm_interp_reduce_read(const interp_reduction *r, const void *containers, size_t at) {
    uint64_t code = tvm_container_get(r->type, containers, at);
    unsigned unused = 64u - r->type.bits;
    reduce_value value = {.position = 0};
    switch (r->class) {
    case REDUCE_FLOAT:
        value.f = (float)comparable(r, tvm_decode(r->type, code));
        break;
    case REDUCE_DOUBLE:
        value.d = comparable(r, tvm_decode(r->type, code));
        break;
    case REDUCE_SIGNED:
        value.i = (int64_t)(code << unused) >> unused;
        break;
    default:
        value.u = code;
    }
    return value;
}

void tvm_interp_reduce_write(const interp_reduction *r, void *containers, size_t at, reduce_value value) {
    uint64_t code = value.u & (UINT64_MAX >> (64u - r->type.bits));
    if (r->class == REDUCE_FLOAT) code = tvm_encode(r->type, value.f);
    if (r->class == REDUCE_DOUBLE) code = tvm_encode(r->type, value.d);
    tvm_container_set(r->type, containers, at, code);
}

reduce_value tvm_interp_neutral(const interp_reduction *r) {
    bool is_float = r->class == REDUCE_FLOAT || r->class == REDUCE_DOUBLE,
         max = r->operation == TVM_REDUCE_MAX;
    uint64_t ones = UINT64_MAX >> (64u - r->type.bits);
    double number = r->operation == TVM_REDUCE_PROD ? 1
                    : r->operation == TVM_SUM       ? 0
                    : max                           ? -INFINITY
                                                    : INFINITY;
    if (is_float && r->class == REDUCE_FLOAT) return (reduce_value){.f = (float)number};
    if (is_float) return (reduce_value){.d = number};
    switch (r->operation) {
    case TVM_REDUCE_PROD:
        return (reduce_value){.u = 1};
    case TVM_REDUCE_AND:
    case TVM_REDUCE_ALL:
        return (reduce_value){.u = r->type.kind == TVM_KIND_BOOL ? 1 : UINT64_MAX};
    case TVM_REDUCE_MAX:
        return (reduce_value){.u = r->class == REDUCE_SIGNED ? ~(ones >> 1) : 0};
    case TVM_REDUCE_MIN:
        return (reduce_value){.u = r->class == REDUCE_SIGNED ? ones >> 1 : ones};
    default:
        return (reduce_value){.u = 0};
    }
}

/* ---- combining two ---- */

static bool is_less(const interp_reduction *r, reduce_value a, reduce_value b) {
    switch (r->class) {
    case REDUCE_FLOAT:
        return a.f < b.f;
    case REDUCE_DOUBLE:
        return a.d < b.d;
    case REDUCE_SIGNED:
        return a.i < b.i;
    default:
        return a.u < b.u;
    }
}

static reduce_value combine_float(uint32_t operation, reduce_value a, reduce_value b) {
    switch (operation) {
    case TVM_SUM:
        return (reduce_value){.f = a.f + b.f};
    case TVM_REDUCE_PROD:
        return (reduce_value){.f = a.f * b.f};
    case TVM_REDUCE_MIN:
        return (reduce_value){.f = -tvm_interp_max_f32(-a.f, -b.f)};
    default:
        return (reduce_value){.f = tvm_interp_max_f32(a.f, b.f)};
    }
}

static reduce_value combine_double(uint32_t operation, reduce_value a, reduce_value b) {
    switch (operation) {
    case TVM_SUM:
        return (reduce_value){.d = a.d + b.d};
    case TVM_REDUCE_PROD:
        return (reduce_value){.d = a.d * b.d};
    case TVM_REDUCE_MIN:
        return (reduce_value){.d = -tvm_interp_max_f64(-a.d, -b.d)};
    default:
        return (reduce_value){.d = tvm_interp_max_f64(a.d, b.d)};
    }
}

static reduce_value combine_integer(const interp_reduction *r, reduce_value a, reduce_value b) {
    switch (r->operation) {
    case TVM_SUM:
        return (reduce_value){.u = a.u + b.u};
    case TVM_REDUCE_PROD:
        return (reduce_value){.u = a.u * b.u};
    case TVM_REDUCE_MIN:
        return is_less(r, b, a) ? b : a;
    case TVM_REDUCE_AND:
    case TVM_REDUCE_ALL:
        return (reduce_value){.u = a.u & b.u};
    case TVM_REDUCE_OR:
    case TVM_REDUCE_ANY:
        return (reduce_value){.u = a.u | b.u};
    case TVM_REDUCE_XOR:
        return (reduce_value){.u = a.u ^ b.u};
    default:
        return is_less(r, a, b) ? b : a;
    }
}

static reduce_value combine_position(const interp_reduction *r, reduce_value a, reduce_value b) {
    bool max = r->operation == TVM_REDUCE_ARGMAX;
    bool b_wins = max ? is_less(r, a, b) : is_less(r, b, a);
    bool a_wins = max ? is_less(r, b, a) : is_less(r, a, b);
    if (a_wins || b_wins) return b_wins ? b : a;
    return b.position < a.position ? b : a;
}

reduce_value tvm_interp_combine(const interp_reduction *r, reduce_value a, reduce_value b) {
    if (tvm_reduce_is_position(r->operation)) return combine_position(r, a, b);
    if (r->class == REDUCE_FLOAT) return combine_float(r->operation, a, b);
    if (r->class == REDUCE_DOUBLE) return combine_double(r->operation, a, b);
    return combine_integer(r, a, b);
}

/* ---- execution: many at a time ---- */

/* The source's elements in the type in which they are combined. */
static const uint8_t *widen(const reduce_plan *plan, const void *source, uint8_t *to) {
    const interp_reduction *r = &plan->reduction;
    if (!plan->widens) return source;
    if (tvm_dtype_same(r->type, TVM_F16)) {
        tvm_interp_f16_to_f32((float *)(void *)to, source, plan->elements);
    } else if (tvm_dtype_same(r->type, TVM_BF16)) {
        tvm_interp_bf16_to_f32((float *)(void *)to, source, plan->elements);
    } else {
        for (uint32_t i = 0; i < plan->elements; i++) {
            reduce_value value = tvm_interp_reduce_read(r, source, i);
            uint64_t code = r->class == REDUCE_FLOAT ? tvm_f32_bits(value.f) : value.u;
            tvm_container_set(plan->wide, to, i, code & UINT32_MAX);
        }
    }
    return to;
}

/* `count` lanes from `lane` on of a local. */
static void gather_lanes(const reduce_plan *plan, const uint8_t *from, uint32_t lane, uint32_t count,
                         uint8_t *to) {
    const uint32_t *at = plan->lanes + lane;
    if (tvm_dtype_container(plan->wide) == 4)
        tvm_interp_gather_32((uint32_t *)(void *)to, (const uint32_t *)(const void *)from, at, count);
    else
        for (uint32_t i = 0; i < count; i++) memcpy(to + 8 * (size_t)i, from + 8 * (size_t)at[i], 8);
}

/* Each lane's own elements, one after the other: by runs of lanes that are neighbours in the source, or
 * gathered a few lanes at a time. */
static void fold_locals(const reduce_plan *plan, const uint8_t *from, uint8_t *sums, uint8_t *gathered) {
    enum { SHORTEST = 8, TOGETHER = 1024 };
    static const size_t steps[3] = {1, 1, 1};
    unsigned bytes = tvm_dtype_container(plan->wide);
    uint32_t lanes = plan->outputs * plan->parts, most = plan->run < SHORTEST ? TOGETHER : plan->run;
    for (uint32_t lane = 0, count; lane < lanes; lane += count, sums += (size_t)count * bytes) {
        count = lanes - lane < most ? lanes - lane : most;
        for (uint32_t l = 0; l < plan->locals; l++) {
            const uint8_t *more = from + (size_t)(plan->places[l].offset - plan->places[0].offset) * bytes;
            uint8_t *to = l ? gathered : sums;
            if (plan->run >= SHORTEST)
                more += (size_t)plan->lanes[lane] * bytes;
            else
                gather_lanes(plan, more, lane, count, to);
            const void *const operands[3] = {sums, plan->run >= SHORTEST ? more : gathered, NULL};
            if (l)
                plan->loop(count, sums, operands, steps);
            else if (plan->run >= SHORTEST)
                memcpy(sums, more, (size_t)count * bytes);
        }
    }
}

/* Combines the parts: neighbours first, in a binary tree, when there is a power of two of them. */
static void fold_parts(const reduce_plan *plan, uint8_t *sums, uint8_t *apart) {
    static const size_t steps[3] = {1, 1, 1};
    size_t part = (size_t)plan->outputs * tvm_dtype_container(plan->wide);
    bool is_tree = (plan->parts & (plan->parts - 1)) == 0;
    for (uint32_t pairs = plan->parts / 2; is_tree && pairs > 0; pairs /= 2) {
        uint8_t *odd = apart + pairs * part;
        for (uint32_t p = 0; p < pairs; p++) {
            memcpy(apart + p * part, sums + 2 * p * part, part);
            memcpy(odd + p * part, sums + (2 * p + 1) * part, part);
        }
        const void *const operands[3] = {apart, odd, NULL};
        plan->loop((size_t)pairs * plan->outputs, sums, operands, steps);
    }
    for (uint32_t p = 1; !is_tree && p < plan->parts; p++) {
        const void *const operands[3] = {sums, sums + p * part, NULL};
        plan->loop(plan->outputs, sums, operands, steps);
    }
}

/* As tvm_encode has it, a NaN has one code. */
static void narrow(const reduce_plan *plan, void *result, const uint8_t *sums) {
    const interp_reduction *r = &plan->reduction;
    const float *floats = (const float *)(const void *)sums;
    if (tvm_dtype_same(r->type, TVM_F16)) {
        tvm_interp_f32_to_f16(result, floats, plan->outputs);
    } else if (tvm_dtype_same(r->type, TVM_BF16)) {
        tvm_interp_f32_to_bf16(result, floats, plan->outputs);
    } else if (tvm_dtype_same(r->type, TVM_F32)) {
        const float canonical = tvm_f32_from_bits(0x7fffffff);
        float *to = result;
        for (uint32_t i = 0; i < plan->outputs; i++) to[i] = floats[i] == floats[i] ? floats[i] : canonical;
    } else {
        for (uint32_t i = 0; i < plan->outputs; i++) {
            reduce_value value = {.u = tvm_container_get(plan->wide, sums, i)};
            if (r->class == REDUCE_FLOAT) value.f = floats[i];
            tvm_interp_reduce_write(r, result, i, value);
        }
    }
}

/* ---- execution: one by one ---- */

static reduce_value read_place(const reduce_plan *plan, const void *source, size_t base, reduce_place place) {
    reduce_value value = tvm_interp_reduce_read(&plan->reduction, source, base + place.offset);
    value.position = place.position;
    return value;
}

/* The position of the element that is chosen: of equal ones the lowest, so that the order does not matter. */
static uint32_t find_position(const reduce_plan *plan, const void *source, uint32_t output) {
    size_t base = output_base(plan, output);
    reduce_value chosen = read_place(plan, source, base, plan->places[0]);
    for (uint32_t i = 1; i < plan->parts * plan->locals; i++)
        chosen =
            tvm_interp_combine(&plan->reduction, chosen, read_place(plan, source, base, plan->places[i]));
    return chosen.position;
}

tvm_status tvm_interp_REDUCE(interp_context *context, const interp_insn *insn) {
    const reduce_plan *plan = insn->plan;
    const void *source = interp_tensor(context->block, plan->source);
    void *result = interp_tensor(context->block, insn->source->result);
    if (plan->loop) {
        uint8_t *scratch = context->block->scratch, *sums = scratch + wide_bytes(plan);
        const uint8_t *from = widen(plan, source, scratch);
        fold_locals(plan, from, sums, sums + lane_bytes(plan));
        fold_parts(plan, sums, sums + lane_bytes(plan));
        narrow(plan, result, sums);
        return TVM_OK;
    }
    for (uint32_t output = 0; output < plan->outputs; output++)
        tvm_container_set(TVM_I(32), result, output, find_position(plan, source, output));
    return TVM_OK;
}
