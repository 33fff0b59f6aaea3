/* Functions of expressions over numbers and types. */
#include "builtins.h"

#include <string.h>

#include "instruction.h"
#include "language.h"
#include "layout_builtins.h"
#include "operators.h"
#include "report.h"
#include "suggest.h"

static bool argument_dtype(tvm_asm *as, const tvm_call *call, tvm_dtype *type) {
    *type = (tvm_dtype){0};
    if (call->args[0].kind != TVM_VALUE_DTYPE)
        return tvm_asm_error(as, call->token, NULL, "%.*s takes a type, not %s", (int)call->length,
                             call->name, tvm_value_what(&call->args[0]));
    *type = call->args[0].type;
    return true;
}

/* ---- numbers ---- */

/* The operator of that name, from left to right. */
static bool call_operator(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    unsigned op = 0;
    while (strncmp(tvm_expr_op_info(op)->text, call->name, call->length) != 0 ||
           tvm_expr_op_info(op)->text[call->length])
        op++;
    *value = call->args[0];
    for (uint32_t i = 1; i < call->count; i++) {
        const tvm_value left = *value;
        if (!tvm_asm_binary(as, (tvm_expr_op)op, call->token, &left, &call->args[i], value)) return false;
    }
    return true;
}

static bool call_gcd(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t a, b;
    if (!tvm_asm_argument_integer(as, call, 0, -INT64_MAX, INT64_MAX, &a) ||
        !tvm_asm_argument_integer(as, call, 1, -INT64_MAX, INT64_MAX, &b))
        return false;
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    *value = tvm_value_integer(a < 0 ? -a : a);
    return true;
}

static bool call_abs(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t a;
    if (call->args[0].kind == TVM_VALUE_FLOAT) {
        *value = call->args[0];
        if (value->as.f < 0) value->as.f = -value->as.f;
        return true;
    }
    if (!tvm_asm_argument_integer(as, call, 0, -INT64_MAX, INT64_MAX, &a)) return false;
    *value = tvm_value_integer(a < 0 ? -a : a);
    return true;
}

static bool call_log2(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    int64_t a, log = 0;
    if (!tvm_asm_argument_integer(as, call, 0, 1, INT64_MAX, &a)) return false;
    while (a >>= 1) log++;
    *value = tvm_value_integer(log);
    return true;
}

static bool call_len(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    if (call->args[0].kind != TVM_VALUE_LIST)
        return tvm_asm_error(as, call->token, NULL, "len takes a list, not %s",
                             tvm_value_what(&call->args[0]));
    *value = tvm_value_integer(call->args[0].as.list.count);
    return true;
}

/* The names of the rows that a table keeps. */
static bool call_names(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    if (call->args[0].kind != TVM_VALUE_TABLE)
        return tvm_asm_error(as, call->token, NULL, "names takes a table, not %s",
                             tvm_value_what(&call->args[0]));
    const tvm_table *table = call->args[0].as.record.table;
    tvm_value *items = tvm_arena_alloc(&as->scratch, (table->row_count + (size_t)1) * sizeof *items);
    uint32_t count = 0;
    if (!items) return tvm_asm_no_memory(as);
    for (uint32_t i = 0; i < table->row_count; i++) {
        const tvm_word *name = &table->rows[i].name;
        if (table->rows[i].kept) items[count++] = tvm_value_string(name->name, name->length);
    }
    *value = (tvm_value){.kind = TVM_VALUE_LIST, .as.list = {items, count}};
    return true;
}

/* ---- types ---- */

#define QUESTIONS(X)                                                                                         \
    X(bits, integer(type.bits))                                                                              \
    X(is_float, bool(type.kind == TVM_KIND_FLOAT))                                                           \
    X(is_signed, bool(type.kind == TVM_KIND_INT))                                                            \
    X(is_unsigned, bool(type.kind == TVM_KIND_UINT))                                                         \
    X(is_lowbit, bool(tvm_dtype_is_lowbit(type)))                                                            \
    X(exponent_bits, integer(type.exponent))                                                                 \
    X(mantissa_bits, integer(type.mantissa))                                                                 \
    X(pair_exponent, integer(tvm_dtype_is_lowbit(type) ? tvm_pair_exponent(type) : 0))

#define QUESTION(name, answer)                                                                               \
    static bool call_##name(tvm_asm *as, const tvm_call *call, tvm_value *value) {                           \
        tvm_dtype type;                                                                                      \
        if (!argument_dtype(as, call, &type)) return false;                                                  \
        *value = tvm_value_##answer;                                                                         \
        return true;                                                                                         \
    }
QUESTIONS(QUESTION)

static bool call_bias(tvm_asm *as, const tvm_call *call, tvm_value *value) {
    tvm_dtype type;
    if (!argument_dtype(as, call, &type)) return false;
    if (type.kind != TVM_KIND_FLOAT)
        return tvm_asm_invalid(as, call->token, NULL, "only a float type has an exponent's bias");
    *value = tvm_value_integer(tvm_float_bias(type));
    return true;
}

static const tvm_builtin builtins[] = {
    {"min", call_operator, 2, 64},
    {"max", call_operator, 2, 64},
    {"cdiv", call_operator, 2, 2},
    {"gcd", call_gcd, 2, 2},
    {"abs", call_abs, 1, 1},
    {"log2", call_log2, 1, 1},
    {"len", call_len, 1, 1},
    {"names", call_names, 1, 1},
    {"bits", call_bits, 1, 1},
    {"is_float", call_is_float, 1, 1},
    {"is_signed", call_is_signed, 1, 1},
    {"is_unsigned", call_is_unsigned, 1, 1},
    {"is_lowbit", call_is_lowbit, 1, 1},
    {"exponent_bits", call_exponent_bits, 1, 1},
    {"mantissa_bits", call_mantissa_bits, 1, 1},
    {"bias", call_bias, 1, 1},
    {"pair_exponent", call_pair_exponent, 1, 1},
};

enum { BUILTIN_COUNT = sizeof builtins / sizeof *builtins };

static const tvm_builtin *row(size_t index) {
    return index < BUILTIN_COUNT ? &builtins[index] : &tvm_layout_builtins[index - BUILTIN_COUNT];
}

const char *tvm_asm_function_name(size_t index) {
    return row(index)->name;
}

/* The index of the row, or that of the end. */
static size_t find(const char *name, size_t length) {
    size_t i = 0;
    for (const char *known; (known = row(i)->name); i++)
        if (strlen(known) == length && memcmp(known, name, length) == 0) break;
    return i;
}

bool tvm_asm_is_function(const char *name, size_t length) {
    return row(find(name, length))->name != NULL;
}

void tvm_asm_offer_types(tvm_suggest *suggest) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    char name[TVM_DTYPE_NAME_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    if (count > TVM_DTYPE_COUNT_MAX) count = TVM_DTYPE_COUNT_MAX;
    for (size_t i = 0; i < count; i++) {
        tvm_dtype_name(types[i], name);
        tvm_suggest_offer(suggest, name, strlen(name));
    }
}

/* i64(x), or T(x) of a static name T that is a type. */
static bool conversion(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known) {
    tvm_dtype type;
    const tvm_symbol *symbol = tvm_symbols_find(&as->statics.names, call->name, call->length);
    if (symbol && symbol->value.kind == TVM_VALUE_DTYPE) {
        type = symbol->value.type;
    } else if (!tvm_dtype_parse(call->name, call->length, &type)) {
        return true;
    }
    *known = true;
    if (!tvm_dtype_is_scalar(type))
        return tvm_asm_invalid(as, call->token, "scalars are of type bool, i32, u32, i64, u64, f32 or f64",
                               "'%.*s' is not a type of scalars", (int)call->length, call->name);
    return tvm_asm_arguments(as, call, 1, 1) && tvm_asm_convert(as, call->token, type, &call->args[0], value);
}

/* The element-wise instruction of the same name, where the argument is a register tensor or a run-time
 * scalar; TVM_OP_COUNT: there is none. */
static unsigned instruction(const tvm_asm *as, const tvm_call *call) {
    unsigned op = tvm_op_by_name(call->name, call->length);
    bool scalar = call->count == 1 && call->args[0].kind == TVM_VALUE_EXPR &&
                  as->text.version >= TVM_LANGUAGE_OF_TENSORS;
    if (op == TVM_OP_COUNT || !tvm_op_is_elementwise(tvm_op(op)) || call->count != 1) return TVM_OP_COUNT;
    return scalar || call->args[0].kind == TVM_VALUE_TENSOR ? op : TVM_OP_COUNT;
}

bool tvm_asm_call(tvm_asm *as, const tvm_call *call, tvm_value *value, bool *known) {
    size_t index = find(call->name, call->length);
    if (index >= BUILTIN_COUNT) { /* the name of a type means that before a function of layouts */
        bool good = conversion(as, call, value, known);
        if (*known || !row(index)->name) return good;
    }
    *known = true;
    unsigned op = instruction(as, call);
    if (op != TVM_OP_COUNT) return tvm_asm_tensor_operation(as, op, call->token, call->args, 1, value);
    return tvm_asm_arguments(as, call, row(index)->least, row(index)->most) &&
           row(index)->function(as, call, value);
}
