/* Statements of a kernel: which instruction it is, assignments of scalars, and control. */
#include "statement.h"

#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "directive_names.h"
#include "expressions.h"
#include "foreign.h"
#include "head.h"
#include "infer_open.h"
#include "instruction.h"
#include "language.h"
#include "names.h"
#include "operators.h"
#include "pipeline.h"
#include "report.h"
#include "result.h"
#include "scalars.h"
#include "suggest.h"
#include "variables.h"

static const char *const own_words[] = {"for", "while", "if", "elif", "else", "role"};

const char *tvm_asm_own_word(size_t index) {
    return index < sizeof own_words / sizeof *own_words ? own_words[index] : NULL;
}

/* ---- which instruction ---- */

/* A call is an expression: an instruction whose first operand is in parentheses has a comma outside of them.
 */
static bool is_call(const tvm_asm *as, uint32_t tokens) {
    if (!tvm_asm_is(as, tvm_asm_ahead(as, tokens), "(")) return false;
    unsigned depth = 0;
    for (uint32_t i = tokens;; i++) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END) return true;
        if (tvm_asm_is(as, token, "(") || tvm_asm_is(as, token, "[")) depth++;
        if (depth && (tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]"))) depth--;
        if (!depth && tvm_asm_is(as, token, ",")) return false;
    }
}

static void offer_mnemonics(tvm_suggest *suggest, bool with_result) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        const tvm_op_info *info = tvm_op(op);
        if (with_result && (info->traits & TVM_TRAIT_SYNTAX)) continue;
        if ((info->result != TVM_SLOT_NONE) == with_result)
            tvm_suggest_offer(suggest, info->mnemonic, strlen(info->mnemonic));
    }
}

static bool unknown_statement(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *text;
    uint32_t length;
    char hint[96];
    if (token->kind != TVM_TOKEN_NAME) return tvm_asm_expected(as, token, NULL, "an instruction");
    tvm_asm_word(as, &text, &length);
    const tvm_op_info *later = tvm_op(tvm_op_by_name(text, length));
    if (later && later->since > as->text.version) {
        snprintf(hint, sizeof hint, "write '.vasm %u'", later->since);
        return tvm_asm_error(as, token, hint, "'%s' came with version %u of the language", later->mnemonic,
                             later->since);
    }
    tvm_suggest instructions, directives;
    tvm_suggest_start(&instructions, text, length);
    tvm_suggest_start(&directives, text, length);
    offer_mnemonics(&instructions, false);
    offer_mnemonics(&instructions, true);
    for (size_t i = 0; i < sizeof own_words / sizeof *own_words; i++)
        tvm_suggest_offer(&instructions, own_words[i], strlen(own_words[i]));
    tvm_suggest_offer_all(&directives, tvm_asm_directive_name);
    const char *foreign = tvm_foreign_hint(text, length);
    bool directive = directives.distance < instructions.distance;
    const char *shown = tvm_suggest_hint(directive ? &directives : &instructions, directive ? "." : "", hint);
    tvm_token whole = *token;
    whole.length = length;
    if (as->text.left_out && tvm_asm_is(as, tvm_asm_ahead(as, 1), "(")) return false; /* a macro, maybe */
    return tvm_asm_error(as, &whole, foreign ? foreign : shown, "unknown instruction '%.*s'",
                         length > 80 ? 80 : (int)length, text);
}

/* ---- scalars ---- */

/* Brings the value to the type of a variable that exists. */
static bool assign_existing(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                            const tvm_slot *slot, const tvm_value *value, uint32_t *expr) {
    tvm_dtype from = tvm_asm_type_of(as, value), to = slot->dtype;
    if (tvm_asm_adapts(as, value, to)) return tvm_asm_lower(as, token, value, to, expr);
    char old[TVM_DTYPE_NAME_MAX], hint[64];
    tvm_dtype_name(to, old);
    snprintf(hint, sizeof hint, "write %s(...)", old);
    return tvm_asm_invalid(as, token, hint, "'%%%.*s' has type %s, this value %s", (int)length, name, old,
                           TVM_DTYPE_TEXT(from));
}

/* `%a = %b`: a view of the same type, layout and packing. */
static bool copy_tensor(tvm_asm *as, const tvm_token *result, const char *name, uint32_t length,
                        uint32_t slot) {
    const tvm_slot *source = &tvm_asm_kernel(as)->slots[slot];
    tvm_result_type type = {.kind = TVM_SLOT_REGISTER,
                            .dtype = source->dtype,
                            .packing = (tvm_packing)source->packing,
                            .has_layout = true,
                            .open = tvm_asm_is_open(as, slot),
                            .layout = as->program->layouts[source->layout]};
    tvm_operand operand = {TVM_OPERAND_SLOT, slot};
    return tvm_asm_finish(as, result, TVM_OP_VIEW, result, name, length, &operand, 1, &type);
}

static bool assign_tensor(tvm_asm *as, const tvm_token *result, const tvm_token *token, const char *name,
                          uint32_t length, const tvm_value *value) {
    if (value->as.tensor.pending) {
        const tvm_pending *pending = value->as.tensor.pending;
        tvm_result_type type = pending->type;
        return tvm_asm_finish(as, pending->token, pending->op, result, name, length, pending->operands,
                              pending->count, &type);
    }
    if (value->as.tensor.kind == TVM_SLOT_REGISTER)
        return copy_tensor(as, result, name, length, value->as.tensor.slot);
    return tvm_asm_error(as, token, NULL, "expected a scalar, found %s", tvm_value_what(value));
}

/* token: where the value began. */
static bool assign_value(tvm_asm *as, const tvm_token *result, const tvm_token *token, const char *name,
                         uint32_t length, const tvm_value *value) {
    uint32_t expr;
    if (value->kind == TVM_VALUE_POISON) return false;
    if (value->kind == TVM_VALUE_TENSOR) return assign_tensor(as, result, token, name, length, value);
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token,
                             "use .const or .layout for what is known when the program is assembled",
                             "a variable holds a scalar or a tensor, not %s", tvm_value_what(value));
    const tvm_symbol *symbol = tvm_asm_find_assigned(as, name, length);
    if (symbol && symbol->slot == TVM_NONE) return false;
    const tvm_slot *slot = symbol ? &tvm_asm_kernel(as)->slots[symbol->slot] : NULL;
    bool existing = slot && slot->kind == TVM_SLOT_SCALAR;
    bool good = existing ? assign_existing(as, token, name, length, slot, value, &expr)
                         : tvm_asm_lower_own(as, token, value, &expr);
    if (!good) return false;
    tvm_operand operand = {TVM_OPERAND_EXPR, expr};
    tvm_result_type type = {.kind = TVM_SLOT_SCALAR};
    return tvm_asm_finish(as, result, TVM_OP_LET, result, name, length, &operand, 1, &type);
}

static bool assignment(tvm_asm *as, const tvm_token *result, const char *name, uint32_t length) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    return tvm_asm_expression(as, &value) && tvm_asm_expect_end(as) &&
           assign_value(as, result, token, name, length, &value);
}

/* ---- `%x += e` ---- */

/* The operator of the sign at the cursor with `=` behind it; TVM_EXPR_COUNT: that does not stand there. */
static unsigned update_operator(const tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as), *after = tvm_asm_ahead(as, 1);
    if (token->kind != TVM_TOKEN_SIGN || !after->adjacent || !tvm_asm_is(as, after, "="))
        return TVM_EXPR_COUNT;
    for (unsigned op = 0; op < TVM_EXPR_COUNT; op++) {
        const tvm_expr_info *info = tvm_expr_op_info(op);
        bool arithmetic = info->takes == TVM_TAKES_NUMBER || info->takes == TVM_TAKES_INTEGER;
        if (info->arity == 2 && arithmetic && !tvm_expr_is_comparison(op) &&
            tvm_asm_is(as, token, info->text))
            return op;
    }
    return TVM_EXPR_COUNT;
}

/* The variable's own value, of what the statement may assign. */
static bool updated_value(tvm_asm *as, const tvm_token *result, const char *name, uint32_t length,
                          tvm_value *value) {
    const tvm_symbol *symbol = tvm_asm_find_assigned(as, name, length);
    if (!symbol && tvm_asm_find_slot(as, name, length))
        return tvm_asm_error(as, result, "make it a parameter of the macro, written with '%'",
                             "'%%%.*s' is a variable of the caller, which a macro does not assign",
                             (int)length, name);
    return tvm_asm_slot_value(as, result, symbol ? symbol->slot : TVM_MAX_SLOTS, name, length, value);
}

static bool update(tvm_asm *as, const tvm_token *result, const char *name, uint32_t length, unsigned op) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_value left, right, value;
    char hint[32];
    tvm_asm_next(as); /* the = */
    snprintf(hint, sizeof hint, "write '.vasm %d'", TVM_LANGUAGE_OF_TENSORS);
    if (as->text.version < TVM_LANGUAGE_OF_TENSORS)
        return tvm_asm_error(as, token, hint, "'%s=' came with version %d of the language",
                             tvm_expr_op_info(op)->text, TVM_LANGUAGE_OF_TENSORS);
    if (!tvm_asm_check_warps(as, token) || !updated_value(as, result, name, length, &left)) return false;
    if (left.kind == TVM_VALUE_TENSOR && left.as.tensor.kind == TVM_SLOT_REGISTER)
        as->statement.beside = left.as.tensor.slot + 1;
    return tvm_asm_expression(as, &right) && tvm_asm_expect_end(as) &&
           tvm_asm_binary(as, (tvm_expr_op)op, token, &left, &right, &value) &&
           assign_value(as, result, token, name, length, &value);
}

/* ---- assignments ---- */

/* A misspelt mnemonic after `=` looks like an expression of unknown names. */
static bool looks_like_mnemonic(const tvm_asm *as) {
    const char *text;
    uint32_t length;
    const tvm_token *token = tvm_asm_peek(as);
    if (token->kind != TVM_TOKEN_NAME || token->pasted) return false;
    uint32_t count = tvm_asm_word(as, &text, &length);
    if (tvm_symbols_find(&as->statics.names, text, token->length) ||
        tvm_asm_find_parameter(as, text, token->length))
        return false;
    const tvm_token *after = tvm_asm_ahead(as, count);
    bool operand = after->kind == TVM_TOKEN_NAME ||
                   (tvm_asm_is(as, after, "%") && tvm_asm_ahead(as, count + 1)->adjacent);
    if (!operand || count > 1 || tvm_foreign_hint(text, length)) return operand;
    tvm_suggest suggest;
    tvm_suggest_start(&suggest, text, length);
    offer_mnemonics(&suggest, true);
    return tvm_suggest_best(&suggest) != NULL;
}

static bool assigned_name(tvm_asm *as, const char **name, uint32_t *length) {
    if (!tvm_asm_variable_name(as, name, length)) return false;
    const char *copy = tvm_arena_text(&as->scratch, *name, *length);
    if (!copy) return tvm_asm_no_memory(as);
    *name = copy;
    return true;
}

/* Is the instruction with its operands in parentheses the whole statement, and gives it a scalar? */
static bool is_whole_scalar(const tvm_asm *as, unsigned op, uint32_t tokens) {
    unsigned depth = 0;
    if (tvm_op(op)->result != TVM_SLOT_SCALAR) return false;
    for (uint32_t i = tokens;; i++) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END) return !depth;
        if (!depth && i > tokens) return false;
        if (tvm_asm_is(as, token, "(") || tvm_asm_is(as, token, "[")) depth++;
        if (depth && (tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]"))) depth--;
    }
}

/* What stands behind `%name`. */
static bool assign(tvm_asm *as, const tvm_token *result, const char *name, uint32_t length) {
    uint32_t tokens;
    as->statement.assigned = name;
    as->statement.assigned_length = length;
    unsigned updated = update_operator(as);
    if (updated != TVM_EXPR_COUNT) {
        bool updates = update(as, result, name, length, updated);
        if (!updates) tvm_asm_poison_slot(as, name, length);
        return updates;
    }
    bool good = tvm_asm_expect(as, "=", "after the variable");
    const tvm_token *token = tvm_asm_peek(as);
    unsigned op = good ? tvm_asm_mnemonic(as, &tokens) : TVM_OP_COUNT;
    bool expression = op != TVM_OP_COUNT && ((is_call(as, tokens) && !is_whole_scalar(as, op, tokens)) ||
                                             tvm_asm_is(as, tvm_asm_ahead(as, tokens), "."));
    if (expression) op = TVM_OP_COUNT; /* role.index, too */
    if (good && op == TVM_OP_COUNT) {
        good = looks_like_mnemonic(as)
                   ? unknown_statement(as)
                   : tvm_asm_check_warps(as, token) && assignment(as, result, name, length);
    } else if (good && (tvm_op(op)->result == TVM_SLOT_NONE || tvm_op(op)->traits & TVM_TRAIT_SYNTAX)) {
        good = tvm_asm_error(as, token, NULL, "%s gives no result to assign", tvm_op(op)->mnemonic);
    } else if (good) {
        for (uint32_t i = 0; i < tokens; i++) tvm_asm_next(as);
        good = tvm_asm_instruction(as, token, op, result, name, length);
    }
    if (!good) tvm_asm_poison_slot(as, name, length);
    return good;
}

/* `[i, j]` of an element, or `[a to b]`: the elements a to b - 1, each assigned by the statement. */
static bool element(tvm_asm *as, const tvm_token *result, const char *name, uint32_t length) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_value indices, first;
    uint32_t from = as->text.at;
    bool part = tvm_asm_at(as, ":");
    if (!part && !tvm_asm_expression(as, &first)) return false;
    if (part || tvm_asm_at(as, ":"))
        return tvm_asm_error(as, token, "'insert(%x, %tile, [0, 0])' is %x with a tile replaced",
                             "a part of a tensor is not assigned");
    if (!tvm_asm_accept(as, "to")) {
        as->text.at = from;
        return tvm_asm_list(as, "]", &indices) && tvm_asm_element_name(as, token, &indices, &name, &length) &&
               assign(as, result, name, length);
    }
    int64_t end;
    if (!tvm_asm_static_integer(as, 0, INT64_MAX, "the end of the elements", &end) ||
        !tvm_asm_expect(as, "]", "after the end of the elements"))
        return false;
    if (first.kind == TVM_VALUE_POISON) return false;
    if (first.kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, token, NULL,
                             "the index of an array of variables is a static integer, not %s",
                             tvm_value_what(&first));
    if (first.as.i < 0 || end - first.as.i > TVM_ASM_ARRAY)
        return tvm_asm_invalid(as, token, NULL, "a statement assigns at most %d elements, from 0 on",
                               TVM_ASM_ARRAY);
    uint32_t at = as->text.at;
    bool good = true;
    if (first.as.i >= end) tvm_asm_skip_statement(as);
    for (int64_t i = first.as.i; good && i < end; i++) {
        tvm_value index = tvm_value_integer(i), list = {.kind = TVM_VALUE_LIST, .as.list = {&index, 1}};
        const char *element_name = name;
        uint32_t element_length = length;
        as->text.at = at;
        good = tvm_asm_element_name(as, token, &list, &element_name, &element_length) &&
               assign(as, result, element_name, element_length);
    }
    return good;
}

static bool with_result(tvm_asm *as) {
    const char *name;
    uint32_t length;
    tvm_asm_next(as); /* % */
    const tvm_token *result = tvm_asm_peek(as);
    if (!assigned_name(as, &name, &length)) return false;
    return (tvm_asm_at(as, "[") ? element : assign)(as, result, name, length);
}

/* ---- control ---- */

static bool open_control(tvm_asm *as, const tvm_token *token, unsigned op) {
    if (as->kernel.control_count == TVM_ASM_CONTROLS) {
        tvm_asm_error(as, token, NULL, "control nested deeper than %d", TVM_ASM_CONTROLS);
        as->report.stopped = true;
        return false;
    }
    as->kernel.controls[as->kernel.control_count++] = (tvm_control){
        .op = (uint16_t)op, .source = as->text.source, .token = (uint32_t)(token - as->text.source->tokens)};
    return true;
}

static bool condition(tvm_asm *as, const tvm_token *token, unsigned op) {
    const tvm_token *at = tvm_asm_peek(as);
    tvm_value value, truth;
    tvm_operand operand = {TVM_OPERAND_EXPR, 0};
    tvm_result_type type = {.kind = TVM_SLOT_NONE};
    uint32_t insns = tvm_asm_kernel(as)->insn_count;
    if (!tvm_asm_expression(as, &value) || !tvm_asm_to_bool(as, at, &value, &truth) ||
        !tvm_asm_expect_end(as))
        return false;
    if (op == TVM_OP_WHILE && tvm_asm_kernel(as)->insn_count > insns)
        return tvm_asm_error(
            as, at, "assign a variable before the loop, and anew at the end of its body",
            "the condition of 'while' is computed in each iteration, an instruction in it once");
    return tvm_asm_lower(as, at, &truth, TVM_BOOL, &operand.value) &&
           tvm_asm_finish(as, token, op, NULL, NULL, 0, &operand, 1, &type);
}

static bool while_or_if(tvm_asm *as, unsigned op) {
    const tvm_token *token = tvm_asm_next(as);
    return open_control(as, token, op) && tvm_asm_check_warps(as, token) && condition(as, token, op);
}

/* The type of the loop variable: that of its slot, or what start, end and step have in common. */
static tvm_dtype loop_type(const tvm_asm *as, const tvm_symbol *symbol, const tvm_value bounds[3]) {
    if (symbol && symbol->slot != TVM_NONE) {
        const tvm_slot *slot = &tvm_asm_kernel(as)->slots[symbol->slot];
        if (slot->kind == TVM_SLOT_SCALAR) return slot->dtype;
    }
    tvm_dtype type = tvm_asm_common(as, &bounds[0], &bounds[1]);
    tvm_value so_far = {.kind = TVM_VALUE_EXPR, .type = type};
    bool literals = tvm_value_is_static(&bounds[0]) && tvm_value_is_static(&bounds[1]);
    if (literals && !tvm_value_is_static(&bounds[2]))
        type = bounds[2].type;
    else if (!tvm_value_is_static(&bounds[2]) || bounds[2].type.kind != TVM_KIND_NONE)
        type = tvm_asm_common(as, &so_far, &bounds[2]);
    return type.kind == TVM_KIND_BOOL ? TVM_I(32) : type;
}

/* `pipeline` n, where it stands; *stages is 0 where it does not. */
static bool loop_stages(tvm_asm *as, int64_t *stages) {
    const tvm_token *token = tvm_asm_peek(as);
    *stages = 0;
    if (!tvm_asm_accept(as, "pipeline")) return true;
    if (as->text.version < 3)
        return tvm_asm_error(as, token, "write '.vasm 3'",
                             "pipelined loops came with version 3 of the language");
    return tvm_asm_static_integer(as, 1, UINT32_MAX, "the stages", stages);
}

/* start `to` end [`step` step] [`unroll` n] [`pipeline` n] */
static bool loop_bounds(tvm_asm *as, tvm_value bounds[3], const tvm_token *tokens[3], int64_t *unroll,
                        int64_t *stages) {
    bounds[2] = tvm_value_integer(1);
    *unroll = 1;
    tokens[0] = tvm_asm_peek(as);
    if (!tvm_asm_expression(as, &bounds[0]) || !tvm_asm_expect(as, "to", "after the start of the loop"))
        return false;
    tokens[1] = tokens[2] = tvm_asm_peek(as);
    if (!tvm_asm_expression(as, &bounds[1])) return false;
    if (tvm_asm_accept(as, "step")) {
        tokens[2] = tvm_asm_peek(as);
        if (!tvm_asm_expression(as, &bounds[2])) return false;
    }
    if (tvm_asm_accept(as, "unroll") && !tvm_asm_static_integer(as, 1, UINT32_MAX, "the unrolling", unroll))
        return false;
    if (!loop_stages(as, stages) || !tvm_asm_expect_end(as)) return false;
    for (unsigned i = 0; i < 3; i++) {
        if (bounds[i].kind == TVM_VALUE_POISON) return false;
        if (!tvm_value_is_scalar(&bounds[i]))
            return tvm_asm_error(as, tokens[i], NULL, "a loop counts with scalars, not with %s",
                                 tvm_value_what(&bounds[i]));
        if (tvm_asm_type_of(as, &bounds[i]).kind == TVM_KIND_FLOAT)
            return tvm_asm_error(as, tokens[i], NULL, "a loop counts with integers, not with floats");
    }
    return true;
}

static bool loop(tvm_asm *as) {
    const tvm_token *token = tvm_asm_next(as);
    if (!open_control(as, token, TVM_OP_FOR)) return false;
    if (!tvm_asm_at_local(as))
        return tvm_asm_expected(as, tvm_asm_peek(as), "as in `for %i = 0 to n`", "the loop variable");
    const char *name;
    uint32_t length;
    tvm_asm_next(as);
    const tvm_token *result = tvm_asm_peek(as), *tokens[3];
    if (!assigned_name(as, &name, &length)) return false;
    tvm_value bounds[3];
    int64_t unroll, stages;
    tvm_operand operands[5];
    bool good = tvm_asm_check_warps(as, token) && tvm_asm_expect(as, "=", "after the loop variable") &&
                loop_bounds(as, bounds, tokens, &unroll, &stages);
    const tvm_symbol *symbol = tvm_asm_find_assigned(as, name, length);
    tvm_dtype counter = good ? loop_type(as, symbol, bounds) : TVM_I(32);
    for (unsigned i = 0; good && i < 3; i++) {
        tvm_dtype from = tvm_asm_type_of(as, &bounds[i]);
        operands[i].kind = TVM_OPERAND_EXPR;
        if (!tvm_value_is_static(&bounds[i]) && !tvm_asm_widens(from, counter)) {
            good = tvm_asm_invalid(as, tokens[i], NULL, "'%%%.*s' counts in %s, this is %s", (int)length,
                                   name, TVM_DTYPE_TEXT(counter), TVM_DTYPE_TEXT(from));
        } else {
            good = tvm_asm_lower(as, tokens[i], &bounds[i], counter, &operands[i].value);
        }
    }
    if (good) {
        operands[3] = (tvm_operand){TVM_OPERAND_CONST, (uint32_t)unroll};
        operands[TVM_FOR_PIPELINE] =
            (tvm_operand){stages ? TVM_OPERAND_CONST : TVM_OPERAND_NONE, (uint32_t)stages};
        tvm_result_type type = {.kind = TVM_SLOT_SCALAR};
        good = tvm_asm_finish(as, token, TVM_OP_FOR, result, name, length, operands, 5, &type);
    }
    if (!good) tvm_asm_poison_slot(as, name, length);
    return good;
}

/* `role` name `warps` first `to` end [`by` n] [`registers` n] */
static bool role(tvm_asm *as) {
    const tvm_token *token = tvm_asm_next(as), *result = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    int64_t first, end, more;
    tvm_operand operands[4] = {
        {TVM_OPERAND_CONST, 0}, {TVM_OPERAND_CONST, 0}, {TVM_OPERAND_NONE, 0}, {TVM_OPERAND_NONE, 0}};
    static const char *const options[] = {"by", "registers"};
    if (!open_control(as, token, TVM_OP_ROLE) || !assigned_name(as, &name, &length)) return false;
    bool good = tvm_asm_check_warps(as, token) && tvm_asm_expect(as, "warps", "after the name of the role") &&
                tvm_asm_static_integer(as, 0, UINT32_MAX, "the first warp", &first) &&
                tvm_asm_expect(as, "to", "after the first warp") &&
                tvm_asm_static_integer(as, 0, UINT32_MAX, "the end of the warps", &end);
    for (unsigned i = 0; good && i < 2; i++) {
        if (!tvm_asm_accept(as, options[i])) continue;
        good = tvm_asm_static_integer(as, 0, UINT32_MAX, options[i], &more);
        if (good) operands[2 + i] = (tvm_operand){TVM_OPERAND_CONST, (uint32_t)more};
    }
    if (good && (good = tvm_asm_expect_end(as))) {
        operands[0].value = (uint32_t)first;
        operands[1].value = (uint32_t)end;
        tvm_result_type type = {.kind = TVM_SLOT_SCALAR};
        good = tvm_asm_finish(as, token, TVM_OP_ROLE, result, name, length, operands, 4, &type);
    }
    if (good) {
        const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
        const tvm_insn *insn = &kernel->insns[kernel->insn_count - 1];
        tvm_role made = tvm_role_of(kernel, insn);
        as->kernel.role = insn->result;
        as->kernel.team = tvm_role_team(&made, 0);
    } else {
        tvm_asm_poison_slot(as, name, length);
    }
    return good;
}

static bool otherwise(tvm_asm *as, bool is_elif) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_control *control =
        as->kernel.control_count ? &as->kernel.controls[as->kernel.control_count - 1] : NULL;
    if (!control || control->op != TVM_OP_IF)
        return tvm_asm_error(as, token, NULL, "'%s' without 'if'", is_elif ? "elif" : "else");
    if (control->has_else)
        return tvm_asm_error(as, token, NULL, "'%s' after 'else'", is_elif ? "elif" : "else");
    if (!tvm_asm_emit(as, token, TVM_OP_ELSE, TVM_NONE, NULL, 0)) return false;
    if (!is_elif) {
        control->has_else = true;
        if (tvm_asm_at(as, "if"))
            return tvm_asm_error(as, tvm_asm_peek(as), "written 'elif'", "'else if' is no statement");
        return tvm_asm_expect_end(as);
    }
    control->elifs++;
    return condition(as, token, TVM_OP_IF);
}

static bool end(tvm_asm *as) {
    const tvm_token *token = tvm_asm_next(as);
    if (!tvm_asm_expect_end(as)) return false;
    if (!as->kernel.control_count)
        return tvm_asm_error(as, token, "the kernel itself ends with .end",
                             "'end' without 'for', 'while', 'if' or 'role'");
    const tvm_control *control = &as->kernel.controls[--as->kernel.control_count];
    if (control->op == TVM_OP_ROLE) as->kernel.role = TVM_NONE;
    for (uint32_t i = 0; i <= control->elifs; i++)
        if (!tvm_asm_emit(as, token, TVM_OP_END, TVM_NONE, NULL, 0)) return false;
    return true;
}

static bool in_loop(tvm_asm *as, const tvm_token *token) {
    for (unsigned i = as->kernel.control_count; i-- > 0;)
        if (tvm_op(as->kernel.controls[i].op)->class == TVM_CLASS_LOOP) return true;
    return tvm_asm_error(as, token, NULL, "'%.*s' outside of a loop", (int)token->length,
                         tvm_token_text(as->text.source, token));
}

/* ---- the statement ---- */

static bool without_result(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    uint32_t tokens;
    unsigned op = tvm_asm_mnemonic(as, &tokens);
    if (op == TVM_OP_COUNT || op == TVM_OP_LET) return unknown_statement(as);
    if (tvm_op(op)->result != TVM_SLOT_NONE) {
        char hint[80];
        snprintf(hint, sizeof hint, "write '%%name = %s ...'", tvm_op(op)->mnemonic);
        return tvm_asm_error(as, token, hint, "%s gives a result that must be assigned",
                             tvm_op(op)->mnemonic);
    }
    if (tvm_op(op)->class == TVM_CLASS_JUMP && !in_loop(as, token)) return false;
    as->statement.reports = tvm_op(op)->class == TVM_CLASS_REPORT;
    for (uint32_t i = 0; i < tokens; i++) tvm_asm_next(as);
    return tvm_asm_instruction(as, token, op, NULL, NULL, 0);
}

static bool bare_assignment(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    char hint[80];
    snprintf(hint, sizeof hint, "variables are written with '%%': '%%%.*s = ...'",
             token->length > 32 ? 32 : (int)token->length, tvm_token_text(as->text.source, token));
    return tvm_asm_error(as, token, hint, "'%.*s' cannot be assigned", (int)token->length,
                         tvm_token_text(as->text.source, token));
}

void tvm_asm_statement(tvm_asm *as) {
    uint32_t from = as->text.at;
    bool good;
    as->statement.beside = 0;
    as->statement.assigned = NULL;
    as->statement.reports = false;
    as->statement.line = tvm_asm_peek(as)->line;
    if (tvm_asm_at_local(as)) {
        good = with_result(as);
    } else if (tvm_asm_at(as, "for")) {
        good = loop(as);
    } else if (tvm_asm_at(as, "while")) {
        good = while_or_if(as, TVM_OP_WHILE);
    } else if (tvm_asm_at(as, "if")) {
        good = while_or_if(as, TVM_OP_IF);
    } else if (as->text.version >= tvm_op(TVM_OP_ROLE)->since && tvm_asm_at(as, "role")) {
        good = role(as);
    } else if (tvm_asm_at(as, "elif") || tvm_asm_at(as, "else")) {
        good = otherwise(as, tvm_asm_at(as, "elif"));
    } else if (tvm_asm_at(as, "end")) {
        good = end(as);
    } else if (tvm_asm_peek(as)->kind == TVM_TOKEN_NAME && tvm_asm_is(as, tvm_asm_ahead(as, 1), "=")) {
        good = bare_assignment(as);
    } else {
        good = without_result(as);
    }
    /* The end of the statement has been consumed unless an error came before it. */
    bool consumed = as->text.at > from && as->text.source->tokens[as->text.at - 1].kind == TVM_TOKEN_NEWLINE;
    if (!good && !consumed) tvm_asm_skip_statement(as);
}
