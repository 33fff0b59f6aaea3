#include "program.h"

#include <string.h>

/* The words of the table's columns. */
enum {
    READ_GLOBAL = TVM_EFFECT_READ_GLOBAL,
    WRITE_GLOBAL = TVM_EFFECT_WRITE_GLOBAL,
    READ_SHARED = TVM_EFFECT_READ_SHARED,
    WRITE_SHARED = TVM_EFFECT_WRITE_SHARED,
    SCRATCH = TVM_EFFECT_SCRATCH,
    ASYNC = TVM_EFFECT_ASYNC,
    BARRIER = TVM_EFFECT_BARRIER,
    WARP_BARRIER = TVM_EFFECT_WARP_BARRIER,
    WAIT = TVM_EFFECT_WAIT,
    NEXT_LAUNCH = TVM_EFFECT_NEXT_LAUNCH,
    LAST_LAUNCH = TVM_EFFECT_LAST_LAUNCH,
    OUTPUT = TVM_EFFECT_OUTPUT,
    MBARRIER = TVM_EFFECT_MBARRIER,
    TENSOR = TVM_EFFECT_TENSOR,
    SYNTAX = TVM_TRAIT_SYNTAX,
    BESIDE = TVM_TRAIT_BESIDE,
    PACKED = TVM_TRAIT_PACKED,
    MEMO = TVM_TRAIT_MEMO,
    VALUE = TVM_TRAIT_VALUE,
    COUNTER = TVM_TRAIT_COUNTER,
    LOWBIT = TVM_TRAIT_LOWBIT,
    COMMUTES = TVM_TRAIT_COMMUTES,
    OFFSET = TVM_TRAIT_OFFSET,
    FACTOR = TVM_TRAIT_FACTOR,
    SIGNED = TVM_TRAIT_SIGNED,
    UNSIGNED = TVM_TRAIT_UNSIGNED,
    FLOAT = TVM_TRAIT_FLOAT,
    DOUBLE = TVM_TRAIT_DOUBLE,
    FLOAT_5 = TVM_TRAIT_FLOAT_5,
    DOUBLE_5 = TVM_TRAIT_DOUBLE_5,
    BOOL = TVM_TRAIT_BOOL,
    PENDING = TVM_TRAIT_PENDING
};

#define TVM_OP(number, id, mnemonic, since, class, family, result, operands, effects, traits, semantics)     \
    [number] = {mnemonic, #family, since,  TVM_CLASS_##class, TVM_SLOT_##result,                             \
                operands, effects, traits, semantics},
static const tvm_op_info ops[TVM_OP_COUNT] = {
#include "opcodes.def"
};

/* Two rows of one number do not compile. */
static bool is_row(unsigned op) {
    switch (op) {
#define TVM_OP(number, ...) case number:
#include "opcodes.def"
        return true;
    default:
        return false;
    }
}

enum {
    ROWS = 0
#define TVM_OP(number, ...) +1
#include "opcodes.def"
};
_Static_assert((int)ROWS == (int)TVM_OP_COUNT, "opcodes.def gives its numbers without gaps");

#define TVM_EXPR(number, id, text, since, arity, precedence, takes, tensors, instruction, word)              \
    [number] = {text, since, arity, precedence, TVM_TAKES_##takes, tensors, instruction, word},
static const tvm_expr_info expr_ops[TVM_EXPR_COUNT] = {
#include "expr.def"
};
#undef TVM_EXPR

/* Two operators of one number do not compile. */
static bool is_expr_op(unsigned op) {
    switch (op) {
#define TVM_EXPR(number, ...) case number:
#include "expr.def"
#undef TVM_EXPR
        return true;
    default:
        return false;
    }
}

enum {
    EXPR_ROWS = 0
#define TVM_EXPR(number, ...) +1
#include "expr.def"
#undef TVM_EXPR
};
_Static_assert((int)EXPR_ROWS == (int)TVM_EXPR_COUNT, "expr.def gives its numbers without gaps");

const char *const tvm_compare_names[TVM_COMPARE_COUNT] = {"eq", "ne", "lt", "le", "gt", "ge"};
const char *const tvm_reduction_names[TVM_REDUCTION_COUNT] = {"sum", "max", "min", "prod",   "and",   "or",
                                                              "xor", "any", "all", "argmax", "argmin"};
static const uint8_t reduction_since[TVM_REDUCTION_COUNT] = {1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3};
const char *const tvm_atomic_names[TVM_ATOMIC_COUNT] = {"add", "sub", "min", "max", "exch",
                                                        "cas", "and", "or",  "xor"};
const char *const tvm_order_names[TVM_ORDER_COUNT] = {"relaxed", "acquire", "release", "acq_rel"};
const char *const tvm_scope_names[TVM_SCOPE_COUNT] = {"cta", "cluster", "gpu", "sys"};
const char *const tvm_axes_names[TVM_AXES_COUNT] = {"x", "y", "z", "all"};
const char *const tvm_evict_names[TVM_EVICT_COUNT] = {"normal", "first", "last"};
const char *const tvm_spread_names[TVM_SPREAD_COUNT] = {"f4_e2m1", "f6_e2m3", "f6_e3m2"};

static const tvm_operand_words words[] = {
    {'C', TVM_COMPARE_COUNT, "a comparison", tvm_compare_names, NULL},
    {'R', TVM_REDUCTION_COUNT, "a reduction", tvm_reduction_names, reduction_since},
    {'O', TVM_ATOMIC_COUNT, "an atomic operation", tvm_atomic_names, NULL},
    {'M', TVM_ORDER_COUNT, "an order", tvm_order_names, NULL},
    {'K', TVM_SCOPE_COUNT, "a scope", tvm_scope_names, NULL},
    {'Y', TVM_AXES_COUNT, "axes of the cluster", tvm_axes_names, NULL},
    {'E', TVM_EVICT_COUNT, "an eviction priority", tvm_evict_names, NULL},
    {'H', TVM_SPREAD_COUNT, "a type of 4 or 6 bits", tvm_spread_names, NULL},
};

const tvm_operand_words *tvm_words_of(char kind) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].kind == kind) return &words[i];
    return NULL;
}

const tvm_operand_words *tvm_op_first_words(unsigned op) {
    tvm_operand_desc desc;
    const char *cursor = is_row(op) ? ops[op].operands : "";
    return tvm_operand_next(&cursor, &desc) ? tvm_words_of(desc.kind) : NULL;
}

/* The trait of a row that takes elements of the type; 0: none does. */
static unsigned element_trait(tvm_dtype type) {
    if (type.kind == TVM_KIND_BOOL) return TVM_TRAIT_BOOL;
    if (!tvm_dtype_is_arithmetic(type)) return 0;
    if (type.kind == TVM_KIND_INT) return TVM_TRAIT_SIGNED;
    if (type.kind == TVM_KIND_UINT) return TVM_TRAIT_UNSIGNED;
    return type.bits == 64 ? TVM_TRAIT_DOUBLE : TVM_TRAIT_FLOAT;
}

bool tvm_op_takes_element(const tvm_op_info *info, tvm_dtype type) {
    return info->traits & element_trait(type);
}

const tvm_op_info *tvm_op(unsigned op) {
    return is_row(op) ? &ops[op] : NULL;
}

tvm_opcode tvm_op_by_name(const char *mnemonic, size_t length) {
    for (unsigned op = 0; op < TVM_OP_COUNT && length; op++)
        if (ops[op].mnemonic[0] == *mnemonic && strncmp(ops[op].mnemonic, mnemonic, length) == 0 &&
            ops[op].mnemonic[length] == '\0')
            return (tvm_opcode)op;
    return TVM_OP_COUNT;
}

const tvm_expr_info *tvm_expr_op_info(unsigned op) {
    return is_expr_op(op) ? &expr_ops[op] : NULL;
}

bool tvm_expr_takes_type(unsigned op, tvm_dtype type) {
    switch (expr_ops[op].takes) {
    case TVM_TAKES_ANY:
        return true;
    case TVM_TAKES_NUMBER:
        return type.kind != TVM_KIND_BOOL;
    case TVM_TAKES_INTEGER:
        return tvm_dtype_is_integer(type);
    case TVM_TAKES_BOOL:
        return type.kind == TVM_KIND_BOOL;
    case TVM_TAKES_NOTHING:
        break;
    }
    return false;
}

/* An entry is  name:kind  name:=kind  with an optional [] after s, m, g, a and v, then an optional ?, then an
 * optional
 * @version. */
bool tvm_operand_next(const char **cursor, tvm_operand_desc *desc) {
    const char *at = *cursor;
    while (*at == ' ') at++;
    *cursor = at;
    if (*at == '\0') return false;
    *desc = (tvm_operand_desc){.name = at, .stored = true};
    while (*at != ':') at++;
    desc->name_length = (size_t)(at++ - desc->name);
    if (*at == '=') {
        desc->stored = false;
        at++;
    }
    desc->kind = *at++;
    if (at[0] == '[' && at[1] == ']') {
        desc->indexed = true;
        at += 2;
    }
    if (*at == '?') {
        desc->optional = true;
        at++;
    }
    if (*at == '@')
        for (at++; *at >= '0' && *at <= '9'; at++) desc->since = 10 * desc->since + (unsigned)(*at - '0');
    *cursor = at;
    return true;
}

uint32_t tvm_op_operands_max(const tvm_op_info *info) {
    const char *cursor = info->operands;
    tvm_operand_desc desc;
    uint32_t most = 0;
    while (tvm_operand_next(&cursor, &desc))
        if (desc.stored)
            most += desc.indexed || tvm_is_list(desc.kind) || desc.kind == 'V' ? 1 + TVM_MAX_RANK
                    : desc.kind == 'I'                                         ? 2
                                                                               : 1;
    return most;
}
