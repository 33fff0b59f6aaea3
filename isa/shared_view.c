#include "shared_view.h"

#include <string.h>

#include "view.h"

/* ---- modes ---- */

/* Elements that are `stride` apart in memory, before the swizzle, and `step` in the row-major order of the
 * root. */
typedef struct piece {
    uint32_t size, stride, step;
} piece;

/* From the outermost one on. */
typedef struct pieces {
    piece list[TVM_MAX_MODES];
    unsigned count;
} pieces;

static tvm_status add(pieces *to, piece one, tvm_why *why) {
    if (one.size == 1) return TVM_OK;
    if (to->count == TVM_MAX_MODES)
        return tvm_refuse(why, "its layout has more than %d modes", TVM_MAX_MODES);
    to->list[to->count++] = one;
    return TVM_OK;
}

static tvm_status refuse_parts(tvm_why *why) {
    return tvm_refuse(why, "a dimension joins others in parts that its layout does not have");
}

/* A whole dimension: what is even in its memory and among the elements of the root. */
static tvm_status refine(const tvm_shared_layout *layout, unsigned dim, const tvm_shared_digits *digits,
                         pieces *out, tvm_why *why) {
    pieces reversed = {.count = 0};
    unsigned m = layout->modes, digit = digits->count;
    uint32_t in_mode = 1, in_digit = 1, stride = 0, step = 0;
    for (uint32_t left = layout->shape[dim]; left > 1;) {
        while (in_mode == 1 && m-- > 0)
            if (layout->mode_dim[m] == dim) in_mode = layout->mode_size[m], stride = layout->mode_stride[m];
        while (in_digit == 1 && digit-- > 0) in_digit = digits->size[digit], step = digits->step[digit];
        uint32_t size = in_mode < in_digit ? in_mode : in_digit;
        if (size < 2 || in_mode % size != 0 || in_digit % size != 0) return refuse_parts(why);
        tvm_status status = add(&reversed, (piece){size, stride, step}, why);
        if (status != TVM_OK) return status;
        in_mode /= size, in_digit /= size, left /= size;
        stride *= size, step *= size;
    }
    out->count = 0;
    for (unsigned i = reversed.count; i-- > 0;) out->list[out->count++] = reversed.list[i];
    return TVM_OK;
}

/* The elements [at, at + extent) of a dimension: where they begin is added to *base, in memory, and to
 * *first, among the elements of the root. */
static tvm_status slice(const pieces *whole, unsigned dim, uint32_t at, uint32_t extent, uint32_t shape,
                        uint32_t *base, uint32_t *first, pieces *out, tvm_why *why) {
    uint32_t inner = shape;
    for (unsigned m = 0; m < whole->count; m++) {
        const piece *of = &whole->list[m];
        inner /= of->size;
        bool cut = extent >= inner ? at % inner != 0 || extent % inner != 0
                                   : at / inner != (at + extent - 1) / inner;
        if (cut)
            return tvm_refuse(
                why,
                "dimension %u lies in memory in runs of %u elements: expected whole ones, or a part of one",
                dim, inner);
        *base += at / inner * of->stride;
        *first += at / inner * of->step;
        tvm_status status =
            extent >= inner ? add(out, (piece){extent / inner, of->stride, of->step}, why) : TVM_OK;
        if (status != TVM_OK) return status;
        if (extent > inner) extent = inner;
        at = at % inner;
    }
    return TVM_OK;
}

/* ---- another shape ---- */

/* Takes the innermost `extent` elements of what is left of `from`, outermost first. */
static tvm_status take(pieces *from, uint32_t extent, pieces *out, tvm_why *why) {
    pieces reversed = {.count = 0};
    while (extent > 1) {
        piece *last = from->count > 0 ? &from->list[from->count - 1] : NULL;
        uint32_t size = last == NULL ? 1 : last->size < extent ? last->size : extent;
        if (last == NULL || last->size % size != 0 || extent % size != 0)
            return tvm_refuse(why, "an extent of the shape goes over a part of a dimension");
        tvm_status status = add(&reversed, (piece){size, last->stride, last->step}, why);
        if (status != TVM_OK) return status;
        extent /= size;
        last->size /= size;
        last->stride *= size;
        last->step *= size;
        if (last->size == 1) from->count--;
    }
    out->count = 0;
    for (unsigned i = reversed.count; i-- > 0;) out->list[out->count++] = reversed.list[i];
    return TVM_OK;
}

/* ---- the view ---- */

typedef struct maker {
    const tvm_shared_layout *of;
    tvm_shared_view *view;
    uint32_t shape[TVM_MAX_RANK];
    pieces dims[TVM_MAX_RANK];
    unsigned rank;
    tvm_why *why;
} maker;

static tvm_status reshape(maker *m, unsigned rank, const tvm_operand *shape) {
    pieces all = {.count = 0};
    uint64_t before = 1, after = 1;
    tvm_status status = TVM_OK;
    for (unsigned d = 0; d < m->rank; d++) {
        before *= m->shape[d];
        for (unsigned i = 0; i < m->dims[d].count && status == TVM_OK; i++)
            status = add(&all, m->dims[d].list[i], m->why);
    }
    for (unsigned d = 0; d < rank && after <= before; d++) after *= shape[d].value;
    if (status == TVM_OK && before != after)
        return tvm_refuse(m->why, "the shape has other than %llu elements", (unsigned long long)before);
    m->rank = rank;
    for (unsigned d = rank; d-- > 0 && status == TVM_OK;) {
        m->shape[d] = shape[d].value;
        status = take(&all, m->shape[d], &m->dims[d], m->why);
    }
    return status;
}

/* One digit for each run of pieces that are even steps. */
static void count_digits(const pieces *of, tvm_shared_digits *digits) {
    digits->count = 0;
    for (unsigned i = 0; i < of->count; i++) {
        const piece *one = &of->list[i];
        bool goes_on = i > 0 && of->list[i - 1].step == one->size * one->step;
        unsigned at = goes_on ? digits->count - 1 : digits->count++;
        digits->size[at] = goes_on ? digits->size[at] * one->size : one->size;
        digits->step[at] = one->step;
    }
}

static tvm_status finish(maker *m) {
    uint32_t size[TVM_MAX_MODES], stride[TVM_MAX_MODES];
    unsigned modes = 0;
    for (unsigned d = 0; d < m->rank; d++) {
        const pieces *of = &m->dims[d];
        count_digits(of, &m->view->digits[d]);
        for (unsigned i = 0; i < of->count; i++, modes++) {
            if (modes == TVM_MAX_MODES)
                return tvm_refuse(m->why, "its layout has more than %d modes", TVM_MAX_MODES);
            size[modes] = of->list[i].size;
            stride[modes] = of->list[i].stride;
        }
    }
    return tvm_shared_layout_part(m->rank, m->shape, modes, size, stride, m->of, &m->view->layout, m->why);
}

static tvm_status make(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_operand *operands, const tvm_shared_digits *digits, tvm_shared_view *view,
                       tvm_why *why) {
    const tvm_slot *source = &kernel->slots[operands->value];
    maker m = {.of = &program->shared_layouts[source->layout], .view = view, .why = why};
    const tvm_operand *index = operands + 1, *extents = index + m.of->rank,
                      *order = extents + 1 + extents->value;
    const tvm_operand *shape = order + 1 + (order->kind == TVM_OPERAND_NONE ? 0 : order->value);
    bool taken[TVM_MAX_RANK] = {false};
    *view = (tvm_shared_view){.source = operands->value};
    m.rank = extents->value;
    if (m.rank > m.of->rank)
        return tvm_refuse(why, "the slice has %u dimensions, the tensor %u", m.rank, m.of->rank);
    if (order->kind != TVM_OPERAND_NONE && order->value != m.rank)
        return tvm_refuse(why, "order names %u dimensions, the slice has %u", order->value, m.rank);
    for (unsigned d = 0; d < m.rank; d++) {
        uint32_t dim = order->kind == TVM_OPERAND_NONE ? m.of->rank - m.rank + d : order[1 + d].value;
        if (dim >= m.of->rank || taken[dim])
            return tvm_refuse(why, "order: dimension %u %s", dim,
                              dim < m.of->rank ? "is named twice" : "does not exist");
        taken[dim] = true;
    }
    for (unsigned b = 0; b < m.of->rank; b++) {
        unsigned d = 0;
        pieces none = {.count = 0}, *out = &none;
        const tvm_expr *at = &kernel->exprs[index[b].value];
        uint32_t extent = 1;
        for (; d < m.rank; d++)
            if ((order->kind == TVM_OPERAND_NONE ? m.of->rank - m.rank + d : order[1 + d].value) == b) {
                extent = m.shape[d] = extents[1 + d].value;
                out = &m.dims[d];
            }
        if (at->op != TVM_EXPR_INTEGER)
            return tvm_refuse(why, "index %u is no constant: expected it where the view is used", b);
        if (at->value.i < 0 || extent > m.of->shape[b] || at->value.i > m.of->shape[b] - extent)
            return tvm_refuse(why, "%u elements at index %lld are not inside dimension %u of extent %u",
                              extent, (long long)at->value.i, b, m.of->shape[b]);
        uint32_t first = (uint32_t)at->value.i;
        pieces whole = {.count = 0};
        tvm_status status = refine(m.of, b, &digits[b], &whole, why);
        if (status == TVM_OK)
            status = slice(&whole, b, first, extent, m.of->shape[b], &view->base, &view->first, out, why);
        if (status != TVM_OK) return status;
    }
    tvm_status status = shape->kind == TVM_OPERAND_NONE ? TVM_OK : reshape(&m, shape->value, shape + 1);
    return status == TVM_OK ? finish(&m) : status;
}

tvm_status tvm_shared_view_make(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                const tvm_operand *operands, tvm_shared_view *view, tvm_why *why) {
    tvm_shared_root root;
    tvm_shared_root_find(program, kernel, operands->value, &root);
    tvm_status status = make(program, kernel, operands, root.digits, view, why);
    view->first += root.first;
    return status;
}

/* ---- through views ---- */

void tvm_shared_root_find(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot,
                          tvm_shared_root *root) {
    uint32_t way[TVM_MAX_VIEW_DEPTH + 1];
    unsigned depth = 0;
    while (kernel->slots[slot].view != 0 && depth <= TVM_MAX_VIEW_DEPTH) {
        way[depth++] = kernel->slots[slot].view - 1;
        slot = tvm_operands(kernel, &kernel->insns[way[depth - 1]])->value;
    }
    const tvm_shared_layout *layout = &program->shared_layouts[kernel->slots[slot].layout];
    uint32_t step = 1;
    *root = (tvm_shared_root){.slot = slot};
    for (unsigned d = layout->rank; d-- > 0; step *= layout->shape[d]) {
        root->digits[d].count = 1;
        root->digits[d].size[0] = layout->shape[d];
        root->digits[d].step[0] = step;
    }
    while (depth-- > 0) {
        tvm_shared_view view;
        if (make(program, kernel, tvm_operands(kernel, &kernel->insns[way[depth]]), root->digits, &view,
                 NULL) != TVM_OK)
            return; /* which the verifier refuses */
        root->base += view.base;
        root->first += view.first;
        memcpy(root->digits, view.digits, sizeof root->digits);
    }
}

uint32_t tvm_shared_digits_at(const tvm_shared_digits *digits, uint32_t at) {
    uint32_t place = 0;
    for (unsigned i = digits->count; i-- > 0; at /= digits->size[i])
        place += (i > 0 ? at % digits->size[i] : at) * digits->step[i];
    return place;
}

bool tvm_shared_digits_split(const tvm_shared_digits *digits, unsigned rank) {
    bool split = false;
    for (unsigned d = 0; d < rank; d++) split = split || digits[d].count > 1;
    return split;
}

bool tvm_shared_view_joins(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot) {
    tvm_shared_root root;
    tvm_shared_root_find(program, kernel, slot, &root);
    return tvm_shared_digits_split(root.digits, tvm_slot_rank(program, &kernel->slots[slot]));
}

bool tvm_shared_alias(const tvm_ir_kernel *kernel, uint32_t a, uint32_t b) {
    return kernel->slots[a].kind == TVM_SLOT_SHARED && kernel->slots[b].kind == TVM_SLOT_SHARED &&
           tvm_view_root(kernel, a) == tvm_view_root(kernel, b);
}
