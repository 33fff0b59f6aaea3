/* Rules of the instructions that give the elements of a register tensor other places. */
#include "pieces.h"
#include "rules.h"

#include <string.h>

tvm_status tvm_rule_RELAYOUT(const tvm_rule *rule) {
    const tvm_layout *source = tvm_rule_layout(rule, 0), *result = &rule->type->layout;
    tvm_status status = tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, NULL);
    if (status != TVM_OK) return status;
    if (source->rank == result->rank &&
        memcmp(source->shape, result->shape, source->rank * sizeof source->shape[0]) == 0)
        return TVM_OK;
    return tvm_refuse(rule->why, "the layout has shape %s, %s %s",
                      TVM_SHAPE_TEXT(result->rank, result->shape), TVM_RULE_NAME(rule, 0),
                      TVM_SHAPE_TEXT(source->rank, source->shape));
}

/* ---- other names for the same elements ---- */

static tvm_status transposed(const tvm_rule *rule, tvm_layout *out, tvm_why *why) {
    const tvm_layout *source = tvm_rule_layout(rule, 0);
    const tvm_operand *order = rule->count > 1 ? &rule->operands[1] : NULL;
    uint32_t dims[TVM_MAX_RANK];
    bool given = order && order->kind == TVM_OPERAND_CONST;
    if (given && order->value != source->rank)
        return tvm_refuse(why, "the order has %u entries, the tensor %u dimensions", order->value,
                          source->rank);
    for (unsigned d = 0; d < source->rank; d++) dims[d] = given ? order[1 + d].value : source->rank - 1U - d;
    return tvm_layout_permute(source, dims, out, why);
}

static tvm_status reshaped(const tvm_rule *rule, tvm_layout *out, tvm_why *why) {
    uint32_t shape[TVM_MAX_RANK];
    const tvm_operand *list = &rule->operands[1];
    tvm_why reason = {""};
    for (uint32_t d = 0; d < list->value; d++) shape[d] = list[1 + d].value;
    if (tvm_layout_reshape(tvm_rule_layout(rule, 0), list->value, shape, out, &reason) == TVM_OK)
        return TVM_OK;
    return tvm_refuse(why, "%.150s%s", reason.text,
                      strstr(reason.text, "straddles") ? ": relayout it first" : "");
}

tvm_status tvm_rule_RELABEL(const tvm_rule *rule) {
    const tvm_layout *source = tvm_rule_layout(rule, 0);
    tvm_layout layout;
    tvm_status status;
    tvm_why why = {""};
    switch (rule->op) {
    case TVM_OP_TRANSPOSE:
        status = transposed(rule, &layout, &why);
        break;
    case TVM_OP_RESHAPE:
        status = reshaped(rule, &layout, &why);
        break;
    case TVM_OP_SQUEEZE:
        status = tvm_layout_squeeze(source, tvm_rule_value(rule, 1), &layout, &why);
        break;
    default:
        status = tvm_layout_unsqueeze(source, tvm_rule_value(rule, 1), &layout, &why);
    }
    if (status != TVM_OK) return tvm_refuse(rule->why, "%s", why.text);
    return tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, &layout);
}

/* ---- pieces ---- */

/* Every dimension of the source is `axis` or as the other's. */
static tvm_status same_but(const tvm_rule *rule, unsigned x, unsigned y, unsigned axis) {
    const tvm_layout *a = tvm_rule_layout(rule, x), *b = tvm_rule_layout(rule, y);
    bool same = a->rank == b->rank;
    for (unsigned d = 0; same && d < a->rank; d++) same = d == axis || a->shape[d] == b->shape[d];
    if (same) return TVM_OK;
    return tvm_refuse(rule->why, "%s has shape %s, %s %s: expected the same but along the axis",
                      TVM_RULE_NAME(rule, x), TVM_SHAPE_TEXT(a->rank, a->shape), TVM_RULE_NAME(rule, y),
                      TVM_SHAPE_TEXT(b->rank, b->shape));
}

/* The list of a row's entry has a number for each dimension, and [offset, offset + extent) is inside. */
static tvm_status check_tile(const tvm_rule *rule, const tvm_layout *whole, const tvm_operand *offset,
                             unsigned extents, const uint32_t *extent) {
    char shape[TVM_SHAPE_TEXT_MAX];
    tvm_shape_text(whole->rank, whole->shape, shape);
    if (offset->value != whole->rank || extents != whole->rank)
        return tvm_refuse(rule->why, "expected an offset and an extent for each dimension of %s", shape);
    for (unsigned d = 0; d < whole->rank; d++)
        if (offset[1 + d].value > whole->shape[d] || extent[d] > whole->shape[d] - offset[1 + d].value)
            return tvm_refuse(rule->why, "dimension %u: %u elements from %u on are not inside of %s", d,
                              extent[d], offset[1 + d].value, shape);
    return TVM_OK;
}

static bool is_spatial(const tvm_layout *layout, unsigned mode) {
    for (unsigned i = 0; i < layout->spatials; i++)
        if (layout->spatial[i] == (int32_t)mode) return true;
    return false;
}

/* What a dimension's modes are in a slice of `extent` at `offset`, from the least significant: whole ones,
 * then a part of one of locals, then one place of others of locals. False: the slice cuts threads apart. */
static bool slice_modes(const tvm_layout *layout, unsigned dim, uint32_t offset, uint32_t extent,
                        uint32_t *size) {
    uint32_t below = 1;
    for (unsigned m = layout->modes; m-- > 0;) {
        if (layout->mode_dim[m] != dim) continue;
        uint32_t whole = layout->mode_size[m];
        if (extent % (below * whole) == 0 && offset % (below * whole) == 0) {
            size[m] = whole;
        } else {
            uint32_t first = offset / below % whole;
            size[m] = extent > below ? extent / below : 1;
            if (is_spatial(layout, m) || offset % below != 0 || extent % below != 0 ||
                first + size[m] > whole)
                return false;
            for (unsigned n = m; n-- > 0 && layout->mode_dim[n] == dim; size[n] = 1)
                if (is_spatial(layout, n)) return false;
            return true;
        }
        below *= whole;
    }
    return true;
}

/* The layout of a slice that leaves every element where it is. */
static bool sliced(const tvm_layout *layout, const tvm_operand *offset, const uint32_t *extent,
                   tvm_layout *out) {
    uint32_t size[TVM_MAX_MODES];
    for (unsigned d = 0; d < layout->rank; d++)
        if (!slice_modes(layout, d, offset[1 + d].value, extent[d], size)) return false;
    return tvm_layout_make(layout->rank, extent, layout->modes, size, layout->spatials, layout->spatial,
                           layout->locals, layout->local, out, NULL) == TVM_OK;
}

static tvm_status slice_layout(const tvm_rule *rule, tvm_layout *out) {
    enum { SOURCE, OFFSET, EXTENT };
    const tvm_layout *source = tvm_rule_layout(rule, SOURCE);
    const tvm_operand *offset = &rule->operands[rule->at[OFFSET]], *list = &rule->operands[rule->at[EXTENT]];
    uint32_t extent[TVM_MAX_RANK];
    for (uint32_t d = 0; d < list->value; d++) extent[d] = list[1 + d].value;
    tvm_status status = check_tile(rule, source, offset, list->value, extent);
    if (status != TVM_OK) return status;
    if (!rule->type->has_layout) {
        if (sliced(source, offset, extent, out)) return TVM_OK;
        return tvm_refuse(rule->why, "the slice cuts through what threads hold: expected its layout");
    }
    *out = rule->type->layout;
    if (out->rank == source->rank && memcmp(out->shape, extent, source->rank * sizeof *extent) == 0)
        return TVM_OK;
    return tvm_refuse(rule->why, "the layout has shape %s, the slice %s",
                      TVM_SHAPE_TEXT(out->rank, out->shape), TVM_SHAPE_TEXT(source->rank, extent));
}

static tvm_status insert_layout(const tvm_rule *rule, tvm_layout *out) {
    enum { TARGET, SOURCE, OFFSET };
    const tvm_layout *source = tvm_rule_layout(rule, SOURCE);
    *out = *tvm_rule_layout(rule, TARGET);
    if (!tvm_dtype_same(tvm_rule_slot(rule, TARGET)->dtype, tvm_rule_slot(rule, SOURCE)->dtype))
        return tvm_refuse(rule->why, "%s has type %s, expected %s as the target", TVM_RULE_NAME(rule, SOURCE),
                          TVM_DTYPE_TEXT(tvm_rule_slot(rule, SOURCE)->dtype),
                          TVM_DTYPE_TEXT(tvm_rule_slot(rule, TARGET)->dtype));
    return check_tile(rule, out, &rule->operands[rule->at[OFFSET]], source->rank, source->shape);
}

/* `count` times the layout along the axis, all in the same threads: behind each other, or (`inner`) each
 * element beside itself. */
static tvm_status repeated(const tvm_layout *layout, uint32_t axis, uint32_t count, bool inner,
                           tvm_layout *out, tvm_why *why) {
    tvm_layout wide, copies, both;
    uint32_t shape[TVM_MAX_RANK], merged[TVM_MAX_RANK];
    unsigned rank = layout->rank + 1U, place = inner ? axis + 1 : axis;
    for (unsigned d = 0; d < rank; d++) shape[d] = d == place ? count : 1;
    for (unsigned d = 0; d < layout->rank; d++) merged[d] = layout->shape[d] * (d == axis ? count : 1);
    tvm_status status = tvm_layout_unsqueeze(layout, place, &wide, why);
    if (status == TVM_OK) status = tvm_layout_local(rank, shape, &copies, why);
    if (status == TVM_OK)
        status = tvm_layout_compose(inner ? &wide : &copies, inner ? &copies : &wide, &both, why);
    if (status == TVM_OK) status = tvm_layout_reshape(&both, layout->rank, merged, out, why);
    return status;
}

static tvm_status concat_layout(const tvm_rule *rule, tvm_layout *out) {
    enum { FIRST, SECOND, AXIS };
    const tvm_layout *x = tvm_rule_layout(rule, FIRST), *y = tvm_rule_layout(rule, SECOND);
    uint32_t axis = tvm_rule_value(rule, AXIS), shape[TVM_MAX_RANK];
    tvm_why why = {""};
    if (axis >= x->rank) return tvm_refuse(rule->why, "there is no axis %u of %u dimensions", axis, x->rank);
    tvm_status status = same_but(rule, FIRST, SECOND, axis);
    if (status != TVM_OK) return status;
    if (!tvm_dtype_same(tvm_rule_slot(rule, FIRST)->dtype, tvm_rule_slot(rule, SECOND)->dtype))
        return tvm_refuse(rule->why, "x and y are of different types");
    if (!rule->type->has_layout) {
        if (tvm_layout_equal(x, y) && repeated(x, axis, 2, false, out, &why) == TVM_OK) return TVM_OK;
        return tvm_refuse(rule->why, "the layouts of x and y differ: expected that of the result");
    }
    *out = rule->type->layout;
    for (unsigned d = 0; d < x->rank; d++) shape[d] = x->shape[d] + (d == axis ? y->shape[d] : 0);
    if (out->rank == x->rank && memcmp(out->shape, shape, x->rank * sizeof *shape) == 0) return TVM_OK;
    return tvm_refuse(rule->why, "the layout has shape %s, the result %s",
                      TVM_SHAPE_TEXT(out->rank, out->shape), TVM_SHAPE_TEXT(x->rank, shape));
}

static tvm_status repeat_layout(const tvm_rule *rule, tvm_layout *out) {
    enum { SOURCE, AXIS, COUNT };
    const tvm_layout *source = tvm_rule_layout(rule, SOURCE);
    uint32_t axis = tvm_rule_value(rule, AXIS), count = tvm_rule_value(rule, COUNT);
    tvm_why why = {""};
    if (axis >= source->rank)
        return tvm_refuse(rule->why, "there is no axis %u of %u dimensions", axis, source->rank);
    if (count < 1 || count > TVM_MAX_LOCALS)
        return tvm_refuse(rule->why, "expected a count from 1 to %d", TVM_MAX_LOCALS);
    if (repeated(source, axis, count, rule->op == TVM_OP_REPEAT_INTERLEAVE, out, &why) == TVM_OK)
        return TVM_OK;
    return tvm_refuse(rule->why, "%s", why.text);
}

static tvm_status shift_layout(const tvm_rule *rule, tvm_layout *out) {
    enum { SOURCE, AXIS, BY };
    const tvm_layout *source = tvm_rule_layout(rule, SOURCE);
    uint32_t axis = tvm_rule_value(rule, AXIS), by = tvm_rule_value(rule, BY);
    if (axis >= source->rank)
        return tvm_refuse(rule->why, "there is no axis %u of %u dimensions", axis, source->rank);
    if (by < 1 || by >= source->shape[axis])
        return tvm_refuse(rule->why,
                          "by %u of %u elements: expected a distance of 1 at least, below the extent", by,
                          source->shape[axis]);
    *out = *source;
    return TVM_OK;
}

tvm_status tvm_rule_PIECES(const tvm_rule *rule) {
    tvm_layout layout;
    tvm_status status = rule->op == TVM_OP_SLICE    ? slice_layout(rule, &layout)
                        : rule->op == TVM_OP_INSERT ? insert_layout(rule, &layout)
                        : rule->op == TVM_OP_CONCAT ? concat_layout(rule, &layout)
                        : rule->op == TVM_OP_SHIFT  ? shift_layout(rule, &layout)
                                                    : repeat_layout(rule, &layout);
    if (status != TVM_OK) return status;
    return tvm_rule_register(rule, tvm_rule_slot(rule, 0)->dtype, &layout);
}
