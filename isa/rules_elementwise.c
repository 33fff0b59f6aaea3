/* Rules of the instructions that compute on register tensors. */
#include "rules.h"

#include <string.h>

/* ---- broadcasting ---- */

typedef struct shape {
    unsigned rank;
    uint32_t extent[TVM_MAX_RANK];
} shape;

/* Widens *into by the shape of a layout, as NumPy does: ranks padded with leading ones, ones stretched. */
static bool broadcast_shape(shape *into, const tvm_layout *layout) {
    shape wide = {.rank = into->rank > layout->rank ? into->rank : layout->rank};
    for (unsigned back = 1; back <= wide.rank; back++) {
        uint32_t a = back <= into->rank ? into->extent[into->rank - back] : 1;
        uint32_t b = back <= layout->rank ? layout->shape[layout->rank - back] : 1;
        if (a != b && a != 1 && b != 1) return false;
        wide.extent[wide.rank - back] = a == 1 ? b : a;
    }
    *into = wide;
    return true;
}

static bool has_shape(const tvm_layout *layout, const shape *of) {
    return layout->rank == of->rank &&
           memcmp(layout->shape, of->extent, of->rank * sizeof of->extent[0]) == 0;
}

static tvm_status result_shape(const tvm_rule *rule, unsigned first, unsigned end, shape *out) {
    *out = (shape){0};
    for (unsigned entry = first; entry < end; entry++) {
        if (!tvm_rule_is_tensor(rule, entry)) continue;
        const tvm_layout *layout = tvm_rule_layout(rule, entry);
        if (!broadcast_shape(out, layout))
            return tvm_refuse(rule->why, "%s has shape %s, which does not broadcast with %s",
                              TVM_RULE_NAME(rule, entry), TVM_SHAPE_TEXT(layout->rank, layout->shape),
                              TVM_SHAPE_TEXT(out->rank, out->extent));
    }
    return TVM_OK;
}

/* The layout that the operands give the result: that of the first one that has the broadcast shape; where
 * none has, what they give together. */
static tvm_status derived_layout(const tvm_rule *rule, unsigned first, unsigned end, const shape *wide,
                                 tvm_layout *out) {
    const tvm_layout *operands[TVM_ROW_OPERANDS];
    unsigned count = 0;
    for (unsigned entry = first; entry < end; entry++) {
        if (!tvm_rule_is_tensor(rule, entry)) continue;
        operands[count] = tvm_rule_layout(rule, entry);
        if (has_shape(operands[count], wide)) {
            *out = *operands[count];
            return TVM_OK;
        }
        count++;
    }
    tvm_why why = {""};
    if (tvm_layout_joint(operands, count, out, rule->why ? &why : NULL) == TVM_OK) return TVM_OK;
    return tvm_refuse(rule->why, "%s", why.text);
}

/* The layout of the result of entries [first, end): the one that is declared, else the derived one; to it
 * every operand is broadcast within each thread. */
static tvm_status result_layout(const tvm_rule *rule, unsigned first, unsigned end, tvm_layout *out) {
    shape wide;
    tvm_status status = result_shape(rule, first, end, &wide);
    if (status != TVM_OK) return status;
    if (!rule->type->has_layout)
        status = derived_layout(rule, first, end, &wide, out);
    else if (has_shape(&rule->type->layout, &wide))
        *out = rule->type->layout;
    else
        return tvm_refuse(rule->why, "the result has shape %s, expected %s as declared",
                          TVM_SHAPE_TEXT(wide.rank, wide.extent),
                          TVM_SHAPE_TEXT(rule->type->layout.rank, rule->type->layout.shape));
    if (status != TVM_OK) return status;
    for (unsigned entry = first; entry < end; entry++) {
        if (!tvm_rule_is_tensor(rule, entry)) continue;
        const tvm_layout *layout = tvm_rule_layout(rule, entry);
        tvm_why why = {""};
        if (!tvm_layout_equal(layout, out) &&
            !tvm_layout_broadcasts(layout, out, NULL, rule->why ? &why : NULL))
            return tvm_refuse(rule->why, "layout of %s: %.120s", TVM_RULE_NAME(rule, entry), why.text);
    }
    return TVM_OK;
}

/* The one element type of the tensors among entries [first, end); kind NONE when there is no tensor. */
static tvm_status tensor_dtype(const tvm_rule *rule, unsigned first, unsigned end, tvm_dtype *out) {
    unsigned named = first; /* the tensor of that type */
    *out = (tvm_dtype){0};
    for (unsigned entry = first; entry < end; entry++) {
        if (!tvm_rule_is_tensor(rule, entry)) continue;
        tvm_dtype dtype = tvm_rule_slot(rule, entry)->dtype;
        if (out->kind != TVM_KIND_NONE && !tvm_dtype_same(*out, dtype))
            return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", TVM_RULE_NAME(rule, entry),
                              TVM_DTYPE_TEXT(dtype), TVM_DTYPE_TEXT(*out), TVM_RULE_NAME(rule, named));
        *out = dtype;
        named = entry;
    }
    return TVM_OK;
}

/* The types of element that a row takes: "i8..i64, f16, bf16 or f32". */
static const char *elements_text(unsigned traits, char text[96]) {
    static const struct {
        unsigned trait;
        const char *types;
    } all[] = {{TVM_TRAIT_SIGNED, "i8..i64"}, {TVM_TRAIT_UNSIGNED, "u8..u64"}, {TVM_TRAIT_FLOAT, "f16"},
               {TVM_TRAIT_FLOAT, "bf16"},     {TVM_TRAIT_FLOAT, "f32"},        {TVM_TRAIT_DOUBLE, "f64"},
               {TVM_TRAIT_BOOL, "bool"}};
    enum { COUNT = sizeof all / sizeof all[0] };
    size_t used = 0;
    unsigned last = COUNT;
    for (unsigned i = 0; i < COUNT; i++)
        if (traits & all[i].trait) last = i;
    for (unsigned i = 0; i <= last && last < COUNT; i++)
        if (traits & all[i].trait)
            used += (size_t)snprintf(text + used, 96 - used, "%s%s",
                                     used == 0   ? ""
                                     : i == last ? " or "
                                                 : ", ",
                                     all[i].types);
    return text;
}

/* Does the row take elements of the type, which is that of its first tensor at or after entry `first`? */
static tvm_status check_element(const tvm_rule *rule, unsigned first, tvm_dtype dtype) {
    char expected[96];
    if (tvm_op_takes_element(rule->info, dtype)) return TVM_OK;
    while (!tvm_rule_is_tensor(rule, first)) first++;
    return tvm_refuse(rule->why, "%s has type %s, expected %s", TVM_RULE_NAME(rule, first),
                      TVM_DTYPE_TEXT(dtype), elements_text(rule->info->traits, expected));
}

static tvm_status arithmetic(const tvm_rule *rule, unsigned first, unsigned end, tvm_dtype *dtype,
                             tvm_layout *layout) {
    tvm_status status = tensor_dtype(rule, first, end, dtype);
    if (status != TVM_OK) return status;
    if (dtype->kind == TVM_KIND_NONE)
        return tvm_refuse(rule->why, "expected a register tensor among the operands, all are scalars");
    status = check_element(rule, first, *dtype);
    return status == TVM_OK ? result_layout(rule, first, end, layout) : status;
}

/* ---- element-wise ---- */

tvm_status tvm_rule_BINARY(const tvm_rule *rule) {
    tvm_dtype dtype;
    tvm_layout layout;
    tvm_status status = arithmetic(rule, 0, 2, &dtype, &layout);
    return status == TVM_OK ? tvm_rule_register(rule, dtype, &layout) : status;
}

tvm_status tvm_rule_FMA(const tvm_rule *rule) {
    tvm_dtype dtype;
    tvm_layout layout;
    tvm_status status = arithmetic(rule, 0, 3, &dtype, &layout);
    return status == TVM_OK ? tvm_rule_register(rule, dtype, &layout) : status;
}

tvm_status tvm_rule_COMPARE(const tvm_rule *rule) {
    tvm_dtype dtype;
    tvm_layout layout;
    tvm_status status = arithmetic(rule, 1, 3, &dtype, &layout);
    tvm_compare operation = (tvm_compare)tvm_rule_value(rule, 0);
    if (status == TVM_OK && dtype.kind == TVM_KIND_BOOL && operation != TVM_EQ && operation != TVM_NE)
        return tvm_refuse(rule->why, "bool tensors are compared by eq and ne, not by %s",
                          tvm_compare_names[operation]);
    return status == TVM_OK ? tvm_rule_register(rule, TVM_BOOL, &layout) : status;
}

tvm_status tvm_rule_UNARY(const tvm_rule *rule) {
    tvm_dtype dtype = tvm_rule_slot(rule, 0)->dtype;
    tvm_status status = check_element(rule, 0, dtype);
    return status == TVM_OK ? tvm_rule_register(rule, dtype, tvm_rule_layout(rule, 0)) : status;
}

tvm_status tvm_rule_WHERE(const tvm_rule *rule) {
    tvm_dtype condition = tvm_rule_slot(rule, 0)->dtype, dtype;
    if (condition.kind != TVM_KIND_BOOL)
        return tvm_refuse(rule->why, "%s has type %s, expected bool", TVM_RULE_NAME(rule, 0),
                          TVM_DTYPE_TEXT(condition));
    tvm_status status = tensor_dtype(rule, 1, 3, &dtype);
    if (status != TVM_OK) return status;
    if (dtype.kind == TVM_KIND_NONE) {
        dtype = tvm_rule_expr_type(rule, 1);
        if (!tvm_dtype_same(dtype, tvm_rule_expr_type(rule, 2)))
            return tvm_refuse(rule->why, "y has type %s, expected %s as x",
                              TVM_DTYPE_TEXT(tvm_rule_expr_type(rule, 2)), TVM_DTYPE_TEXT(dtype));
    }
    tvm_layout layout;
    status = result_layout(rule, 0, 3, &layout);
    return status == TVM_OK ? tvm_rule_register(rule, dtype, &layout) : status;
}

/* ---- conversions ---- */

static bool cast_takes(tvm_dtype dtype) {
    return !tvm_dtype_is_lowbit(dtype) || (tvm_dtype_is_integer(dtype) && dtype.bits == 8);
}

/* A low-bit type, or one that a low-bit type converts from and to. */
static bool cast_lowbit_takes(tvm_dtype dtype) {
    if (tvm_dtype_is_lowbit(dtype)) return true;
    if (tvm_dtype_is_integer(dtype)) return dtype.bits <= 32;
    return tvm_dtype_same(dtype, TVM_F16) || tvm_dtype_same(dtype, TVM_BF16) ||
           tvm_dtype_same(dtype, TVM_F32);
}

tvm_status tvm_rule_CAST(const tvm_rule *rule) {
    char from[TVM_DTYPE_NAME_MAX], to[TVM_DTYPE_NAME_MAX];
    tvm_dtype source = tvm_rule_slot(rule, 0)->dtype, result = rule->type->dtype;
    if (result.kind == TVM_KIND_NONE) return tvm_refuse(rule->why, "expected a type for the result");
    tvm_dtype_name(source, from);
    tvm_dtype_name(result, to);
    bool lowbit = rule->info->traits & TVM_TRAIT_LOWBIT;
    if (!lowbit && !(cast_takes(source) && cast_takes(result)))
        return tvm_refuse(rule->why, "%s to %s is a conversion for cast-lowbit", from, to);
    if (lowbit) {
        if (!tvm_dtype_is_lowbit(source) && !tvm_dtype_is_lowbit(result))
            return tvm_refuse(rule->why, "neither %s nor %s is a low-precision type: expected cast", from,
                              to);
        if (!cast_lowbit_takes(source) || !cast_lowbit_takes(result))
            return tvm_refuse(
                rule->why,
                "no conversion from %s to %s: expected f16, bf16, f32, or an integer of at most 32 "
                "bits, on the side that is not low-precision",
                from, to);
    }
    return tvm_rule_register(rule, result, tvm_rule_layout(rule, 0));
}

tvm_status tvm_rule_VIEW(const tvm_rule *rule) {
    tvm_dtype from = tvm_rule_slot(rule, 0)->dtype, to = rule->type->dtype;
    if (to.kind == TVM_KIND_NONE) return tvm_refuse(rule->why, "expected a type for the result");
    if ((from.kind == TVM_KIND_BOOL) != (to.kind == TVM_KIND_BOOL))
        return tvm_refuse(rule->why, "bool has no bits to view: expected another type (cast makes one)");
    tvm_status status = tvm_rule_register(rule, to, NULL);
    if (status != TVM_OK) return status;
    tvm_why why = {""};
    if (!tvm_layout_viewable(tvm_rule_layout(rule, 0), from.bits, &rule->type->layout, to.bits, &why))
        return tvm_refuse(rule->why, "%s", why.text);
    return TVM_OK;
}
