/* reduce: the elements of the axes combined in the order that the language fixes. */
#include "interp_reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interp_impl.h"
#include "interp_loops.h"
#include "reduce.h"

/* ---- the plan ----
 * A place on the axes is what the thread's digits add plus what the local digits add, parts and locals in the
 * order in which they are combined: place p * locals + l is that of local l of the p-th part. */

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
    reduce_place places[]; /* parts * locals */
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

tvm_status tvm_plan_REDUCE(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    uint32_t source = insn->operands[1].value, extent = 1;
    uint32_t axes = tvm_reduce_axes(insn->operands, insn->source->count);
    const tvm_slot *slot = interp_slot(k, source);
    const tvm_layout *layout = &k->program->layouts[slot->layout];
    for (unsigned d = 0; d < layout->rank; d++)
        if (axes >> d & 1) extent *= layout->shape[d];
    reduce_plan *plan = calloc(1, sizeof *plan + extent * sizeof(reduce_place));
    reduce_place *parts = calloc(extent, sizeof *parts);
    if (!plan || !parts) {
        free(plan);
        free(parts);
        return tvm_diag_no_memory(diags);
    }
    insn->plan = plan;
    plan->source = source;
    plan->reduction = tvm_interp_reduction(slot->dtype, insn->operands[0].value);
    find_kept(plan, layout, axes);
    order_places(plan, layout, axes, parts);
    free(parts);
    tvm_interp_need_scratch(k, (size_t)extent * sizeof(reduce_value));
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

/* ---- execution ---- */

/* Combines the parts: neighbours first, in a binary tree, when there is a power of two of them. */
static reduce_value combine_parts(const reduce_plan *plan, reduce_value *parts) {
    if ((plan->parts & (plan->parts - 1)) == 0) {
        for (uint32_t distance = 1; distance < plan->parts; distance *= 2)
            for (uint32_t p = 0; p < plan->parts; p += 2 * distance)
                parts[p] = tvm_interp_combine(&plan->reduction, parts[p], parts[p + distance]);
    } else {
        for (uint32_t p = 1; p < plan->parts; p++)
            parts[0] = tvm_interp_combine(&plan->reduction, parts[0], parts[p]);
    }
    return parts[0];
}

/* The element of the source where the axes are zero, of an output: its row-major number. */
static size_t output_base(const reduce_plan *plan, uint32_t output) {
    size_t base = 0;
    for (unsigned d = 0; d < plan->kept; d++) {
        base += (size_t)(output % plan->kept_extent[d]) * plan->kept_stride[d];
        output /= plan->kept_extent[d];
    }
    return base;
}

static reduce_value read_place(const reduce_plan *plan, const void *source, size_t base, reduce_place place) {
    reduce_value value = tvm_interp_reduce_read(&plan->reduction, source, base + place.offset);
    value.position = place.position;
    return value;
}

tvm_status tvm_interp_REDUCE(interp_context *context, const interp_insn *insn) {
    const reduce_plan *plan = insn->plan;
    const void *source = interp_tensor(context->block, plan->source);
    void *result = interp_tensor(context->block, insn->source->result);
    reduce_value *parts = (reduce_value *)(void *)context->block->scratch;
    for (uint32_t output = 0; output < plan->outputs; output++) {
        size_t base = output_base(plan, output);
        const reduce_place *place = plan->places;
        for (uint32_t p = 0; p < plan->parts; p++) {
            parts[p] = read_place(plan, source, base, *place++);
            for (uint32_t l = 1; l < plan->locals; l++)
                parts[p] =
                    tvm_interp_combine(&plan->reduction, parts[p], read_place(plan, source, base, *place++));
        }
        reduce_value all = combine_parts(plan, parts);
        if (tvm_reduce_is_position(plan->reduction.operation))
            tvm_container_set(TVM_I(32), result, output, all.position);
        else
            tvm_interp_reduce_write(&plan->reduction, result, output, all);
    }
    return TVM_OK;
}
