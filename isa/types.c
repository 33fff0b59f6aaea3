/* The data types: which there are, their names and properties. */
#include "types.h"

#include <stdio.h>
#include <string.h>

/* A row a standard type: name, kind, bits, exponent, mantissa. The low-precision types follow from a rule. */
#define STANDARD_TYPES(X)                                                                                    \
    X("bool", BOOL, 8, 0, 0)                                                                                 \
    X("i8", INT, 8, 0, 0)                                                                                    \
    X("i16", INT, 16, 0, 0)                                                                                  \
    X("i32", INT, 32, 0, 0)                                                                                  \
    X("i64", INT, 64, 0, 0)                                                                                  \
    X("u8", UINT, 8, 0, 0)                                                                                   \
    X("u16", UINT, 16, 0, 0)                                                                                 \
    X("u32", UINT, 32, 0, 0)                                                                                 \
    X("u64", UINT, 64, 0, 0)                                                                                 \
    X("f16", FLOAT, 16, 5, 10)                                                                               \
    X("bf16", FLOAT, 16, 8, 7)                                                                               \
    X("tf32", FLOAT, 32, 8, 10)                                                                              \
    X("f32", FLOAT, 32, 8, 23)                                                                               \
    X("f64", FLOAT, 64, 11, 52)                                                                              \
    X("e8m0", FLOAT, 8, 8, 0)

static const struct standard_type {
    char name[8];
    tvm_dtype type;
} standard_types[] = {
#define STANDARD_ROW(text, id, n, e, m) {text, {TVM_KIND_##id, n, e, m}},
    STANDARD_TYPES(STANDARD_ROW)
#undef STANDARD_ROW
};

enum { STANDARD_COUNT = sizeof standard_types / sizeof standard_types[0], LOWBIT_MAX = 8 };

/* A type is four bytes, which are compared at once: loading a program looks for thousands. */
static const struct standard_type *find_standard(tvm_dtype type) {
    uint32_t wanted, found;
    _Static_assert(sizeof type == sizeof wanted, "a type has no padding");
    memcpy(&wanted, &type, sizeof wanted);
    for (size_t i = 0; i < STANDARD_COUNT; i++) {
        memcpy(&found, &standard_types[i].type, sizeof found);
        if (found == wanted) return &standard_types[i];
    }
    return NULL;
}

bool tvm_dtype_is_lowbit(tvm_dtype type) {
    if (type.bits > LOWBIT_MAX) return false;
    switch (type.kind) {
    case TVM_KIND_UINT:
        return type.bits >= 1 && type.exponent == 0 && type.mantissa == 0;
    case TVM_KIND_INT:
        return type.bits >= 2 && type.exponent == 0 && type.mantissa == 0;
    case TVM_KIND_FLOAT:
        return type.bits >= 3 && type.exponent >= 1 && 1 + type.exponent + type.mantissa == type.bits;
    default:
        return false;
    }
}

bool tvm_dtype_valid(tvm_dtype type) {
    return tvm_dtype_is_lowbit(type) || find_standard(type);
}

bool tvm_dtype_is_integer(tvm_dtype type) {
    return type.kind == TVM_KIND_INT || type.kind == TVM_KIND_UINT;
}

bool tvm_dtype_is_arithmetic(tvm_dtype type) {
    bool holds_only = tvm_dtype_same(type, TVM_TF32) || tvm_dtype_same(type, TVM_E8M0);
    return type.kind != TVM_KIND_BOOL && !holds_only && find_standard(type);
}

bool tvm_dtype_is_scalar(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_BOOL) || (tvm_dtype_is_arithmetic(type) && type.bits >= 32);
}

bool tvm_dtype_scalar_of(tvm_dtype type, tvm_dtype *scalar) {
    bool is_float = type.kind == TVM_KIND_FLOAT;
    *scalar = type;
    if (tvm_dtype_is_scalar(type)) return true;
    if (!tvm_dtype_is_arithmetic(type)) return false;
    *scalar = is_float ? TVM_F32 : TVM_I(32);
    return true;
}

uint32_t tvm_bits_whole(unsigned bits) {
    unsigned common = bits & (~bits + 1); /* the greatest power of two that divides it */
    return common >= 8 ? 1 : 8 / common;
}

unsigned tvm_dtype_container(tvm_dtype type) {
    if (type.bits <= 8) return 1;
    if (type.bits <= 16) return 2;
    return type.bits <= 32 ? 4 : 8;
}

int tvm_float_bias(tvm_dtype type) {
    return (1 << type.exponent >> 1) - 1;
}

bool tvm_float_has_infinity(tvm_dtype type) {
    return type.bits > LOWBIT_MAX || tvm_dtype_same(type, TVM_FLOAT(8, 5, 2));
}

bool tvm_float_has_nan(tvm_dtype type) {
    return tvm_float_has_infinity(type) || tvm_dtype_same(type, TVM_FLOAT(8, 4, 3)) ||
           tvm_dtype_same(type, TVM_E8M0);
}

const char *tvm_dtype_name(tvm_dtype type, char name[TVM_DTYPE_NAME_MAX]) {
    const struct standard_type *standard = find_standard(type);
    if (standard)
        memcpy(name, standard->name, sizeof standard->name);
    else if (!tvm_dtype_is_lowbit(type))
        memcpy(name, "invalid", sizeof "invalid");
    else if (type.kind == TVM_KIND_FLOAT)
        snprintf(name, TVM_DTYPE_NAME_MAX, "f%u_e%um%u", type.bits, type.exponent, type.mantissa);
    else
        snprintf(name, TVM_DTYPE_NAME_MAX, "%c%u", type.kind == TVM_KIND_INT ? 'i' : 'u', type.bits);
    return name;
}

/* The value of the digit at text[at], or 255, which no field of a low-precision type can be. */
static uint8_t digit_at(const char *text, size_t at) {
    return text[at] >= '0' && text[at] <= '9' ? (uint8_t)(text[at] - '0') : 255;
}

/* u3, i7, f6_e3m2: every field is one digit. */
static bool parse_lowbit(const char *text, size_t length, tvm_dtype *type) {
    tvm_dtype found = {0};
    if (length == 2 && (text[0] == 'u' || text[0] == 'i')) {
        found.kind = text[0] == 'u' ? TVM_KIND_UINT : TVM_KIND_INT;
    } else if (length == 7 && text[0] == 'f' && text[2] == '_' && text[3] == 'e' && text[5] == 'm') {
        found.kind = TVM_KIND_FLOAT;
        found.exponent = digit_at(text, 4);
        found.mantissa = digit_at(text, 6);
    } else {
        return false;
    }
    found.bits = digit_at(text, 1);
    if (!tvm_dtype_is_lowbit(found)) return false;
    *type = found;
    return true;
}

bool tvm_dtype_parse(const char *text, size_t length, tvm_dtype *type) {
    for (size_t i = 0; i < STANDARD_COUNT; i++) {
        const struct standard_type *standard = &standard_types[i];
        if (strlen(standard->name) == length && memcmp(standard->name, text, length) == 0) {
            *type = standard->type;
            return true;
        }
    }
    return parse_lowbit(text, length, type);
}

static void list_one(tvm_dtype *types, size_t capacity, size_t *count, tvm_dtype type) {
    if (*count < capacity) types[*count] = type;
    (*count)++;
}

size_t tvm_dtype_list(tvm_dtype *types, size_t capacity) {
    size_t count = 0;
    for (size_t i = 0; i < STANDARD_COUNT; i++) list_one(types, capacity, &count, standard_types[i].type);
    for (uint8_t bits = 1; bits < LOWBIT_MAX; bits++) list_one(types, capacity, &count, TVM_U(bits));
    for (uint8_t bits = 2; bits < LOWBIT_MAX; bits++) list_one(types, capacity, &count, TVM_I(bits));
    for (uint8_t bits = 3; bits <= LOWBIT_MAX; bits++)
        for (uint8_t exponent = 1; exponent < bits; exponent++)
            list_one(types, capacity, &count, TVM_FLOAT(bits, exponent, (uint8_t)(bits - 1 - exponent)));
    return count;
}
