#include "value.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

tvm_value tvm_value_integer(int64_t i) {
    return (tvm_value){.kind = TVM_VALUE_INTEGER, .as.i = i};
}

tvm_value tvm_value_float(double f) {
    return (tvm_value){.kind = TVM_VALUE_FLOAT, .as.f = f};
}

tvm_value tvm_value_bool(bool b) {
    return (tvm_value){.kind = TVM_VALUE_BOOL, .type = TVM_BOOL, .as.i = b};
}

tvm_value tvm_value_dtype(tvm_dtype type) {
    return (tvm_value){.kind = TVM_VALUE_DTYPE, .type = type};
}

tvm_value tvm_value_string(const char *text, uint32_t length) {
    return (tvm_value){.kind = TVM_VALUE_STRING, .as.string = {text, length}};
}

tvm_value tvm_value_layout(tvm_arena *arena, const tvm_layout *layout) {
    tvm_layout *copy = tvm_arena_alloc(arena, sizeof *copy);
    if (!copy) return tvm_value_poison();
    *copy = *layout;
    return (tvm_value){.kind = TVM_VALUE_LAYOUT, .as.layout = copy};
}

tvm_value tvm_value_shared(tvm_arena *arena, const tvm_shared_layout *layout) {
    tvm_shared_layout *copy = tvm_arena_alloc(arena, sizeof *copy);
    if (!copy) return tvm_value_poison();
    *copy = *layout;
    return (tvm_value){.kind = TVM_VALUE_SHARED, .as.shared = copy};
}

bool tvm_value_is_number(const tvm_value *value) {
    return value->kind == TVM_VALUE_INTEGER || value->kind == TVM_VALUE_FLOAT ||
           value->kind == TVM_VALUE_BOOL;
}

bool tvm_value_is_scalar(const tvm_value *value) {
    return tvm_value_is_number(value) || value->kind == TVM_VALUE_EXPR;
}

bool tvm_value_is_static(const tvm_value *value) {
    return value->kind != TVM_VALUE_EXPR && value->kind != TVM_VALUE_TENSOR;
}

static tvm_value copy_list(tvm_arena *arena, const tvm_value *value) {
    uint32_t count = value->as.list.count;
    tvm_value *items = tvm_arena_alloc(arena, count * sizeof *items);
    if (!items) return tvm_value_poison();
    for (uint32_t i = 0; i < count; i++) {
        items[i] = tvm_value_copy(arena, &value->as.list.items[i]);
        if (items[i].kind == TVM_VALUE_POISON) return tvm_value_poison();
    }
    tvm_value copy = *value;
    copy.as.list.items = items;
    return copy;
}

tvm_value tvm_value_copy(tvm_arena *arena, const tvm_value *value) {
    switch (value->kind) {
    case TVM_VALUE_LAYOUT:
        return tvm_value_layout(arena, value->as.layout);
    case TVM_VALUE_SHARED:
        return tvm_value_shared(arena, value->as.shared);
    case TVM_VALUE_LIST:
        return copy_list(arena, value);
    case TVM_VALUE_STRING: {
        char *text = tvm_arena_text(arena, value->as.string.text, value->as.string.length);
        return text ? tvm_value_string(text, value->as.string.length) : tvm_value_poison();
    }
    default:
        return *value;
    }
}

bool tvm_value_is_literal(const tvm_value *value) {
    return (value->kind == TVM_VALUE_INTEGER || value->kind == TVM_VALUE_FLOAT) &&
           value->type.kind == TVM_KIND_NONE;
}

bool tvm_is_whole(double value) {
    return isfinite(value) && value == trunc(value);
}

tvm_scalar tvm_value_scalar(const tvm_value *value) {
    return value->kind == TVM_VALUE_FLOAT ? (tvm_scalar){.f = value->as.f} : (tvm_scalar){.i = value->as.i};
}

tvm_value tvm_value_of_scalar(tvm_dtype type, tvm_scalar scalar) {
    tvm_value value = {.kind = TVM_VALUE_INTEGER, .type = type};
    if (type.kind == TVM_KIND_FLOAT) {
        value.kind = TVM_VALUE_FLOAT;
        value.as.f = scalar.f;
    } else {
        if (type.kind == TVM_KIND_BOOL) value.kind = TVM_VALUE_BOOL;
        value.as.i = scalar.i;
    }
    return value;
}

tvm_value tvm_value_as(const tvm_value *value, tvm_dtype type) {
    tvm_dtype from = value->type;
    if (tvm_value_is_literal(value)) from = value->kind == TVM_VALUE_FLOAT ? TVM_F64 : TVM_I(64);
    return tvm_value_of_scalar(type, tvm_scalar_cast(type, from, tvm_value_scalar(value)));
}

static double as_double(const tvm_value *value) {
    return value->kind == TVM_VALUE_FLOAT ? value->as.f : (double)value->as.i;
}

bool tvm_value_equal(const tvm_value *a, const tvm_value *b) {
    if (tvm_value_is_number(a) && tvm_value_is_number(b)) {
        if (a->kind == TVM_VALUE_FLOAT || b->kind == TVM_VALUE_FLOAT) return as_double(a) == as_double(b);
        return a->as.i == b->as.i;
    }
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case TVM_VALUE_DTYPE:
        return tvm_dtype_same(a->type, b->type);
    case TVM_VALUE_LAYOUT:
        return tvm_layout_equal(a->as.layout, b->as.layout);
    case TVM_VALUE_SHARED:
        return tvm_shared_layout_equal(a->as.shared, b->as.shared);
    case TVM_VALUE_SWIZZLE:
        return a->as.swizzle.base == b->as.swizzle.base && a->as.swizzle.bits == b->as.swizzle.bits &&
               a->as.swizzle.shift == b->as.swizzle.shift;
    case TVM_VALUE_ROW_MAJOR:
        return true;
    case TVM_VALUE_STRING:
        return a->as.string.length == b->as.string.length &&
               memcmp(a->as.string.text, b->as.string.text, a->as.string.length) == 0;
    case TVM_VALUE_LIST:
        if (a->as.list.count != b->as.list.count) return false;
        for (uint32_t i = 0; i < a->as.list.count; i++)
            if (!tvm_value_equal(&a->as.list.items[i], &b->as.list.items[i])) return false;
        return true;
    default:
        return false;
    }
}

const char *tvm_slot_what(tvm_slot_kind kind) {
    switch (kind) {
    case TVM_SLOT_SCALAR:
        return "a scalar";
    case TVM_SLOT_REGISTER:
        return "a register tensor";
    case TVM_SLOT_SHARED:
        return "a shared tensor";
    case TVM_SLOT_GLOBAL:
        return "a global tensor";
    case TVM_SLOT_BARRIER:
        return "an array of mbarriers";
    case TVM_SLOT_TENSOR:
        return "a tensor in tensor memory";
    case TVM_SLOT_NONE:
    case TVM_SLOT_KINDS:
        break;
    }
    return "nothing";
}

const char *tvm_value_what(const tvm_value *value) {
    switch (value->kind) {
    case TVM_VALUE_INTEGER:
        return "an integer";
    case TVM_VALUE_FLOAT:
        return "a float";
    case TVM_VALUE_BOOL:
        return "a bool";
    case TVM_VALUE_DTYPE:
        return "a type";
    case TVM_VALUE_LAYOUT:
        return "a register layout";
    case TVM_VALUE_SHARED:
    case TVM_VALUE_SWIZZLE:
    case TVM_VALUE_ROW_MAJOR:
        return "a shared layout";
    case TVM_VALUE_LIST:
        return "a list";
    case TVM_VALUE_STRING:
        return "a string";
    case TVM_VALUE_EXPR:
        return "a run-time scalar";
    case TVM_VALUE_TENSOR:
        return tvm_slot_what((tvm_slot_kind)value->as.tensor.kind);
    case TVM_VALUE_MACRO:
        return "a macro";
    case TVM_VALUE_SIGNATURE:
        return "a signature";
    case TVM_VALUE_PROGRAM:
        return "a program";
    case TVM_VALUE_TABLE:
        return "a table";
    case TVM_VALUE_RECORD:
        return "a row of a table";
    case TVM_VALUE_LET:
        return "a launch-time value";
    case TVM_VALUE_POISON:
        break;
    }
    return "an erroneous value";
}

const char *tvm_value_text(const tvm_value *value, char text[64]) {
    switch (value->kind) {
    case TVM_VALUE_INTEGER:
        if (tvm_dtype_same(value->type, TVM_U(64))) {
            snprintf(text, 64, "%" PRIu64, (uint64_t)value->as.i);
        } else {
            snprintf(text, 64, "%" PRId64, value->as.i);
        }
        break;
    case TVM_VALUE_BOOL:
        snprintf(text, 64, "%s", value->as.i ? "true" : "false");
        break;
    case TVM_VALUE_FLOAT:
        snprintf(text, 64, "%g", value->as.f);
        break;
    case TVM_VALUE_DTYPE:
        snprintf(text, 64, "%s", TVM_DTYPE_TEXT(value->type));
        break;
    case TVM_VALUE_STRING:
        snprintf(text, 64, "%.*s", value->as.string.length > 60 ? 60 : (int)value->as.string.length,
                 value->as.string.text);
        break;
    case TVM_VALUE_RECORD:
        snprintf(text, 64, "%.60s", value->as.record.table->rows[value->as.record.row].name.name);
        break;
    default:
        snprintf(text, 64, "%s", tvm_value_what(value));
        break;
    }
    return text;
}
