#include "words.h"

#include <string.h>

#include "builtins.h"
#include "directive_names.h"
#include "expr_text.h"
#include "layout.h"
#include "statement.h"

/* Words that statements have between their parts, beside the names of operands. */
static const char *const joining[] = {"to",     "in",    "global", "cost", "input",
                                      "output", "state", "after",  "with"};

typedef struct visitor {
    tvm_word_kind kind;
    tvm_word_visit *visit;
    void *context;
} visitor;

static void give(const visitor *v, const char *word) {
    v->visit(v->context, v->kind, word, strlen(word));
}

static void give_names(const visitor *v, const char *name_of(size_t index)) {
    const char *name;
    for (size_t i = 0; (name = name_of(i)); i++) give(v, name);
}

/* A row with a syntax of its own and without a mnemonic in the text: `%a = 1` is let. */
static bool is_written(const tvm_op_info *info) {
    return !(info->traits & TVM_TRAIT_SYNTAX && info->traits & TVM_TRAIT_VALUE);
}

static void give_rows(const visitor *v, bool control) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        const tvm_op_info *info = tvm_op(op);
        if (info && is_written(info) && !(info->traits & TVM_TRAIT_SYNTAX) == !control)
            give(v, info->mnemonic);
    }
}

static void give_control(const visitor *v) {
    const char *word;
    give_rows(v, true);
    for (size_t i = 0; (word = tvm_asm_own_word(i)); i++)
        if (tvm_op_by_name(word, strlen(word)) == TVM_OP_COUNT) give(v, word);
    give(v, "launch");
}

static void give_types(const visitor *v) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < count && i < TVM_DTYPE_COUNT_MAX; i++) give(v, TVM_DTYPE_TEXT(types[i]));
}

/* Those that are called by their words alone. */
static void give_reductions(const visitor *v) {
    const tvm_operand_words *words = tvm_op_first_words(TVM_OP_REDUCE);
    for (unsigned i = 0; i < words->count; i++) {
        const char *name = words->names[i];
        size_t length = strlen(name);
        if (tvm_op_by_name(name, length) == TVM_OP_COUNT && !tvm_asm_is_function(name, length)) give(v, name);
    }
}

/* May the operand stand behind its name? (tvm_asm_operand_named) */
static bool is_named(const tvm_op_info *info, const tvm_operand_desc *desc) {
    return desc->optional || strchr("NADLSW", desc->kind) || info->traits & TVM_TRAIT_SYNTAX;
}

static void give_operand(const visitor *v, const tvm_op_info *info, const tvm_operand_desc *desc) {
    const tvm_operand_words *words = tvm_words_of(desc->kind);
    tvm_word_kind kind = desc->kind == 'F' || desc->kind == 'U' ? TVM_WORD_FLAG : TVM_WORD_OPERAND;
    if ((v->kind == kind && is_named(info, desc)) || (v->kind == TVM_WORD_CHOICE && words))
        v->visit(v->context, v->kind, desc->name, desc->name_length);
    for (unsigned i = 0; v->kind == TVM_WORD_VALUE && words && i < words->count; i++)
        give(v, words->names[i]);
}

static void give_operands(const visitor *v) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        const tvm_op_info *info = tvm_op(op);
        tvm_operand_desc desc;
        if (!info || !is_written(info)) continue;
        const char *cursor = info->operands;
        for (bool first = true; tvm_operand_next(&cursor, &desc); first = false) {
            give_operand(v, info, &desc);
            if (first && v->kind == TVM_WORD_CHOOSER && tvm_words_of(desc.kind)) give(v, info->mnemonic);
        }
    }
    for (size_t i = 0; v->kind == TVM_WORD_OPERAND && i < sizeof joining / sizeof *joining; i++)
        give(v, joining[i]);
}

const char *tvm_word_kind_name(tvm_word_kind kind) {
    static const char *const names[TVM_WORD_KINDS] = {
        [TVM_WORD_INSTRUCTION] = "instruction",
        [TVM_WORD_CONTROL] = "control",
        [TVM_WORD_DIRECTIVE] = "directive",
        [TVM_WORD_TYPE] = "type",
        [TVM_WORD_FUNCTION] = "function",
        [TVM_WORD_ATOM] = "atom",
        [TVM_WORD_CONSTANT] = "constant",
        [TVM_WORD_OPERAND] = "operand",
        [TVM_WORD_FLAG] = "flag",
        [TVM_WORD_VALUE] = "value",
        [TVM_WORD_CHOOSER] = "chooser",
        [TVM_WORD_CHOICE] = "choice",
    };
    return names[kind];
}

void tvm_words_each(tvm_word_kind kind, tvm_word_visit *visit, void *context) {
    visitor v = {kind, visit, context};
    switch (kind) {
    case TVM_WORD_INSTRUCTION:
        give_rows(&v, false);
        break;
    case TVM_WORD_CONTROL:
        give_control(&v);
        break;
    case TVM_WORD_DIRECTIVE:
        give_names(&v, tvm_asm_directive_name);
        break;
    case TVM_WORD_TYPE:
        give_types(&v);
        break;
    case TVM_WORD_FUNCTION:
        give_names(&v, tvm_asm_function_name);
        give_reductions(&v);
        for (unsigned op = TVM_EXPR_HAS; op <= TVM_EXPR_LIMIT; op++) give(&v, tvm_expr_op_info(op)->text);
        break;
    case TVM_WORD_ATOM:
        give_names(&v, tvm_layout_atom_name);
        break;
    case TVM_WORD_CONSTANT:
        give_names(&v, tvm_reserved_word);
        break;
    default:
        give_operands(&v);
        break;
    }
}
