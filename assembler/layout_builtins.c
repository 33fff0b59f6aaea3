/* Functions of expressions that make layouts. */
#include "layout_builtins.h"

#include <string.h>

#include "report.h"
#include "shapes.h"

enum { ARGUMENTS_MAX = 64 };

static bool refused(tvm_asm *as, const tvm_call *call, const tvm_why *why) {
    return tvm_asm_invalid(as, call->token, NULL, "%.*s: %s", (int)call->length, call->name, why->text);
}

/* The result of an operation of the algebra. */
static bool made(tvm_asm *as, const tvm_call *call, tvm_status status, const tvm_why *why,
                 const tvm_layout *layout, tvm_value *value) {
    tvm_why reason;
    if (status != TVM_OK) return refused(as, call, why);
    if (!tvm_layout_holdable(layout, &reason)) return refused(as, call, &reason);
    *value = tvm_value_layout(&as->scratch, layout);
    return value->kind != TVM_VALUE_POISON || tvm_asm_no_memory(as);
}

static bool argument_layout(tvm_asm *as, const tvm_call *call, uint32_t index, const tvm_layout **layout) {
    const tvm_value *argument = &call->args[index];
    *layout = NULL;
    if (argument->kind != TVM_VALUE_LAYOUT)
        return tvm_asm_error(as, call->token, NULL, "argument %u of %.*s is a register layout, not %s",
                             index + 1, (int)call->length, call->name, tvm_value_what(argument));
    *layout = argument->as.layout;
    return true;
}

/* The arguments as a shape. */
static bool shape_of(tvm_asm *as, const tvm_call *call, uint32_t count, uint32_t shape[TVM_MAX_RANK],
                     uint32_t *rank) {
    return tvm_asm_extents(as, call->token, call->args, count, "the shape", TVM_MAX_RANK, shape, rank);
}

/* ---- primitives ---- */

typedef tvm_status primitive(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why);

static bool call_primitive(tvm_asm *as, const tvm_call *call, primitive *make, tvm_value *value) {
    uint32_t shape[TVM_MAX_RANK], rank;
    tvm_layout layout;
    tvm_why why;
    if (!shape_of(as, call, call->count, shape, &rank)) return false;
    return made(as, call, make(rank, shape, &layout, &why), &why, &layout, value);
}

/* A function that hands its operation of layout.h to one of those that read arguments. */
#define CALL(name, reader, operation)                                                                        \
    static bool call_##name(tvm_asm *as, const tvm_call *call, tvm_value *value) {                           \
        return reader(as, call, operation, value);                                                           \
    }
CALL(local, call_primitive, tvm_layout_local)
CALL(spatial, call_primitive, tvm_layout_spatial)
CALL(column_local, call_primitive, tvm_layout_column_local)
CALL(column_spatial, call_primitive, tvm_layout_column_spatial)

static bool call_replicated(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t threads, rank = 1;
    tvm_layout layout;
    tvm_why why;
    if (!tvm_asm_argument_integer(as, call, 0, 1, TVM_MAX_THREADS, &threads)) return false;
    if (call->count == 2 && !tvm_asm_argument_integer(as, call, 1, 1, TVM_MAX_RANK, &rank)) return false;
    tvm_status status = tvm_layout_replicated((unsigned)rank, (uint32_t)threads, &layout, &why);
    return made(as, call, status, &why, &layout, value);
}

static bool call_auto(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    uint32_t shape[TVM_MAX_RANK], rank, count = call->count;
    unsigned bits = 32;
    tvm_layout layout;
    if (count && call->args[count - 1].kind == TVM_VALUE_DTYPE) bits = call->args[--count].type.bits;
    if (!shape_of(as, call, count, shape, &rank) ||
        !tvm_asm_auto_layout(as, call->token, rank, shape, bits, &layout))
        return false;
    return made(as, call, TVM_OK, NULL, &layout, value);
}

/* ---- the four lists ---- */

/* A list of integers as numbers of 32 bits within bounds. */
static bool integers(tvm_asm *as, const tvm_call *call, uint32_t index, int64_t least, int64_t most,
                     int64_t *out, uint32_t capacity, uint32_t *count) {
    const tvm_value *list = &call->args[index];
    if (list->kind != TVM_VALUE_LIST)
        return tvm_asm_error(as, call->token, NULL, "argument %u of %.*s is a list, not %s", index + 1,
                             (int)call->length, call->name, tvm_value_what(list));
    if (list->as.list.count > capacity)
        return tvm_asm_invalid(as, call->token, NULL, "argument %u of %.*s has more than %u items", index + 1,
                               (int)call->length, call->name, capacity);
    *count = list->as.list.count;
    for (uint32_t i = 0; i < *count; i++) {
        const tvm_value *item = &list->as.list.items[i];
        if (item->kind == TVM_VALUE_POISON) return false;
        if (item->kind != TVM_VALUE_INTEGER || item->as.i < least || item->as.i > most)
            return tvm_asm_invalid(
                as, call->token, NULL, "item %u of argument %u of %.*s must be an integer from %lld to %lld",
                i + 1, index + 1, (int)call->length, call->name, (long long)least, (long long)most);
        out[i] = item->as.i;
    }
    return true;
}

static void narrow(const int64_t *from, uint32_t count, uint32_t *to) {
    for (uint32_t i = 0; i < count; i++) to[i] = (uint32_t)from[i];
}

static bool call_layout(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t shape[TVM_MAX_RANK], modes[ARGUMENTS_MAX], spatial[ARGUMENTS_MAX], local[ARGUMENTS_MAX];
    uint32_t rank, mode_count, spatial_count, local_count;
    if (!integers(as, call, 0, 1, TVM_MAX_TILE_ELEMENTS, shape, TVM_MAX_RANK, &rank) ||
        !integers(as, call, 1, 1, TVM_MAX_TILE_ELEMENTS, modes, ARGUMENTS_MAX, &mode_count) ||
        !integers(as, call, 2, -TVM_MAX_THREADS, ARGUMENTS_MAX, spatial, ARGUMENTS_MAX, &spatial_count) ||
        !integers(as, call, 3, 0, ARGUMENTS_MAX, local, ARGUMENTS_MAX, &local_count))
        return false;
    uint32_t shape32[TVM_MAX_RANK], modes32[ARGUMENTS_MAX];
    int32_t spatial32[ARGUMENTS_MAX];
    uint8_t local8[ARGUMENTS_MAX];
    narrow(shape, rank, shape32);
    narrow(modes, mode_count, modes32);
    for (uint32_t i = 0; i < spatial_count; i++) spatial32[i] = (int32_t)spatial[i];
    for (uint32_t i = 0; i < local_count; i++) local8[i] = (uint8_t)local[i];
    tvm_layout layout;
    tvm_why why;
    tvm_status status = tvm_layout_make(rank, shape32, mode_count, modes32, spatial_count, spatial32,
                                        local_count, local8, &layout, &why);
    return made(as, call, status, &why, &layout, value);
}

static bool call_shared(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t shape[TVM_MAX_RANK], modes[ARGUMENTS_MAX], strides[ARGUMENTS_MAX];
    uint32_t rank, mode_count, stride_count, shape32[TVM_MAX_RANK], modes32[ARGUMENTS_MAX],
        strides32[ARGUMENTS_MAX];
    if (!integers(as, call, 0, 1, TVM_MAX_TILE_ELEMENTS, shape, TVM_MAX_RANK, &rank) ||
        !integers(as, call, 1, 1, TVM_MAX_TILE_ELEMENTS, modes, ARGUMENTS_MAX, &mode_count) ||
        !integers(as, call, 2, 0, TVM_MAX_TILE_ELEMENTS, strides, ARGUMENTS_MAX, &stride_count))
        return false;
    if (stride_count != mode_count)
        return tvm_asm_invalid(as, call->token, NULL, "shared: %u modes but %u strides", mode_count,
                               stride_count);
    tvm_value none = {.kind = TVM_VALUE_SWIZZLE};
    const tvm_value *swizzle = call->count == 4 ? &call->args[3] : &none;
    if (swizzle->kind != TVM_VALUE_SWIZZLE)
        return tvm_asm_error(as, call->token, NULL,
                             "argument 4 of shared is swizzle(base, bits, shift), not %s",
                             tvm_value_what(swizzle));
    narrow(shape, rank, shape32);
    narrow(modes, mode_count, modes32);
    narrow(strides, mode_count, strides32);
    tvm_shared_layout layout;
    tvm_why why;
    if (tvm_shared_layout_make(rank, shape32, mode_count, modes32, strides32, swizzle->as.swizzle.base,
                               swizzle->as.swizzle.bits, swizzle->as.swizzle.shift, &layout, &why) != TVM_OK)
        return refused(as, call, &why);
    *value = tvm_value_shared(&as->scratch, &layout);
    return value->kind != TVM_VALUE_POISON || tvm_asm_no_memory(as);
}

static bool call_swizzle(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t base, bits, shift;
    if (!tvm_asm_argument_integer(as, call, 0, 0, 31, &base) ||
        !tvm_asm_argument_integer(as, call, 1, 0, 31, &bits) ||
        !tvm_asm_argument_integer(as, call, 2, 0, 31, &shift))
        return false;
    *value =
        (tvm_value){.kind = TVM_VALUE_SWIZZLE, .as.swizzle = {(uint8_t)base, (uint8_t)bits, (uint8_t)shift}};
    return true;
}

/* ---- the algebra ---- */

typedef tvm_status dimension_operation(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why);

static bool call_dimension(tvm_asm *as, const tvm_call *call, dimension_operation *operation,
                           tvm_value *value) {
    const tvm_layout *layout;
    int64_t dim;
    tvm_layout result;
    tvm_why why;
    if (!argument_layout(as, call, 0, &layout) ||
        !tvm_asm_argument_integer(as, call, 1, 0, TVM_MAX_RANK - 1, &dim))
        return false;
    return made(as, call, operation(layout, (unsigned)dim, &result, &why), &why, &result, value);
}

CALL(reduce, call_dimension, tvm_layout_reduce)
CALL(squeeze, call_dimension, tvm_layout_squeeze)
CALL(unsqueeze, call_dimension, tvm_layout_unsqueeze)

static bool call_permute(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    const tvm_layout *layout;
    int64_t order[TVM_MAX_RANK];
    uint32_t count, order32[TVM_MAX_RANK];
    tvm_layout result;
    tvm_why why;
    if (!argument_layout(as, call, 0, &layout) ||
        !integers(as, call, 1, 0, TVM_MAX_RANK - 1, order, TVM_MAX_RANK, &count))
        return false;
    if (count != layout->rank)
        return tvm_asm_invalid(as, call->token, NULL, "permute: %u dimensions named of a layout of rank %u",
                               count, layout->rank);
    narrow(order, count, order32);
    return made(as, call, tvm_layout_permute(layout, order32, &result, &why), &why, &result, value);
}

static bool call_reshape(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    const tvm_layout *layout;
    uint32_t shape[TVM_MAX_RANK], rank;
    tvm_layout result;
    tvm_why why;
    if (!argument_layout(as, call, 0, &layout) ||
        !tvm_asm_extents(as, call->token, call->args + 1, call->count - 1, "the shape", TVM_MAX_RANK, shape,
                         &rank))
        return false;
    return made(as, call, tvm_layout_reshape(layout, rank, shape, &result, &why), &why, &result, value);
}

static bool call_flatten(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    const tvm_layout *layout;
    tvm_layout result;
    tvm_why why;
    if (!argument_layout(as, call, 0, &layout)) return false;
    return made(as, call, tvm_layout_flatten(layout, &result, &why), &why, &result, value);
}

typedef tvm_status pair_operation(const tvm_layout *a, const tvm_layout *b, tvm_layout *out, tvm_why *why);

static bool call_pair(tvm_asm *as, const tvm_call *call, pair_operation *operation, tvm_value *value) {
    const tvm_layout *a, *b;
    tvm_layout result;
    tvm_why why;
    if (!argument_layout(as, call, 0, &a) || !argument_layout(as, call, 1, &b)) return false;
    return made(as, call, operation(a, b, &result, &why), &why, &result, value);
}

CALL(concat, call_pair, tvm_layout_concat)
CALL(divide, call_pair, tvm_layout_divide_right)
CALL(left_divide, call_pair, tvm_layout_divide_left)

bool tvm_asm_compose(tvm_asm *as, const tvm_token *token, const tvm_value *x, const tvm_value *y,
                     tvm_value *value) {
    tvm_layout result;
    tvm_why why;
    if (x->kind == TVM_VALUE_POISON || y->kind == TVM_VALUE_POISON) {
        *value = tvm_value_poison();
        return true;
    }
    if (x->kind != TVM_VALUE_LAYOUT || y->kind != TVM_VALUE_LAYOUT)
        return tvm_asm_error(as, token, NULL, "'.' composes register layouts, not %s",
                             tvm_value_what(x->kind != TVM_VALUE_LAYOUT ? x : y));
    tvm_call call = {token, "'.'", 3, NULL, 0};
    return made(as, &call, tvm_layout_compose(x->as.layout, y->as.layout, &result, &why), &why, &result,
                value);
}

/* ---- questions ---- */

typedef uint32_t question(const tvm_layout *layout);

static uint32_t rank_of(const tvm_layout *layout) {
    return layout->rank;
}

static bool call_question(tvm_asm *as, const tvm_call *call, question *ask, tvm_value *value) {
    const tvm_layout *layout;
    if (!argument_layout(as, call, 0, &layout)) return false;
    *value = tvm_value_integer(ask(layout));
    return true;
}

CALL(threads, call_question, tvm_layout_threads)
CALL(locals, call_question, tvm_layout_locals)
CALL(rank, call_question, rank_of)

static bool call_extent(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    const tvm_layout *layout;
    int64_t dim;
    if (!argument_layout(as, call, 0, &layout) ||
        !tvm_asm_argument_integer(as, call, 1, 0, layout->rank ? layout->rank - 1 : 0, &dim))
        return false;
    *value = tvm_value_integer(layout->shape[dim]);
    return true;
}

const tvm_builtin tvm_layout_builtins[] = {
    {"local", call_local, 1, TVM_MAX_RANK},
    {"spatial", call_spatial, 1, TVM_MAX_RANK},
    {"column_local", call_column_local, 1, TVM_MAX_RANK},
    {"column_spatial", call_column_spatial, 1, TVM_MAX_RANK},
    {"replicated", call_replicated, 1, 2},
    {"auto", call_auto, 1, TVM_MAX_RANK + 1},
    {"layout", call_layout, 4, 4},
    {"shared", call_shared, 3, 4},
    {"swizzle", call_swizzle, 3, 3},
    {"reduce", call_reduce, 2, 2},
    {"squeeze", call_squeeze, 2, 2},
    {"unsqueeze", call_unsqueeze, 2, 2},
    {"permute", call_permute, 2, 2},
    {"reshape", call_reshape, 2, TVM_MAX_RANK + 1},
    {"flatten", call_flatten, 1, 1},
    {"concat", call_concat, 2, 2},
    {"divide", call_divide, 2, 2},
    {"left_divide", call_left_divide, 2, 2},
    {"threads", call_threads, 1, 1},
    {"locals", call_locals, 1, 1},
    {"rank", call_rank, 1, 1},
    {"extent", call_extent, 2, 2},
    {NULL, NULL, 0, 0},
};
