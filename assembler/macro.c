/* Macros and scopes: .macro, .endmacro, calls of them; .scope, .endscope. A call executes the macro's
 * statements in scopes of its own, one of static names and one of variables. */
#include "macro.h"

#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "frames.h"
#include "names.h"
#include "report.h"
#include "result.h"
#include "variables.h"

/* ---- .macro ---- */

/* name, %name, name = expression */
static bool parameter(tvm_asm *as, tvm_macro_parameter *parameters, uint32_t *count) {
    tvm_macro_parameter made = {.variable = tvm_asm_at_local(as)};
    if (made.variable) tvm_asm_next(as);
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    if (!tvm_asm_expect_name(as, "a parameter of the macro", &name, &made.name.length)) return false;
    if (!made.variable && !tvm_asm_check_name(as, token, name, made.name.length)) return false;
    for (uint32_t i = 0; i < *count; i++)
        if (parameters[i].name.length == made.name.length &&
            memcmp(parameters[i].name.name, name, made.name.length) == 0)
            return tvm_asm_error(as, token, NULL, "there are two parameters '%.*s'", (int)made.name.length,
                                 name);
    if (*count == TVM_ASM_PARAMETERS)
        return tvm_asm_error(as, token, NULL, "a macro has at most %d parameters", TVM_ASM_PARAMETERS);
    made.name.name = tvm_arena_text(&as->keep, name, made.name.length);
    if (!made.name.name) return tvm_asm_no_memory(as);
    if (!made.variable && tvm_asm_accept(as, "=")) {
        made.initial = as->text.at;
        tvm_asm_skip_expression(as);
    }
    parameters[(*count)++] = made;
    return true;
}

static bool header(tvm_asm *as, tvm_macro *macro) {
    tvm_macro_parameter parameters[TVM_ASM_PARAMETERS];
    if (!tvm_asm_expect(as, "(", "and the parameters after the macro's name")) return false;
    if (!tvm_asm_accept(as, ")")) {
        do {
            if (!parameter(as, parameters, &macro->count)) return false;
        } while (tvm_asm_accept(as, ","));
        if (!tvm_asm_expect(as, ")", "or ',' after a parameter")) return false;
    }
    tvm_macro_parameter *kept = tvm_arena_alloc(&as->keep, (macro->count + 1) * sizeof *kept);
    if (!kept) return tvm_asm_no_memory(as);
    memcpy(kept, parameters, macro->count * sizeof *kept);
    macro->parameters = kept;
    macro->body = as->text.at;
    return tvm_asm_expect_end(as);
}

static bool skip_body(tvm_asm *as, const tvm_token *token) {
    tvm_asm_skip_to(as, "macro", "endmacro", false);
    if (tvm_asm_peek(as)->kind == TVM_TOKEN_END)
        return tvm_asm_error(as, token, NULL, "'.macro' without '.endmacro'");
    tvm_asm_next(as);
    tvm_asm_next(as);
    return tvm_asm_expect_end(as);
}

bool tvm_directive_macro(tvm_asm *as, const tvm_token *token) {
    const tvm_token *at = tvm_asm_peek(as);
    const char *name;
    tvm_macro *macro = tvm_arena_alloc(&as->keep, sizeof *macro);
    if (!macro) return tvm_asm_no_memory(as);
    *macro = (tvm_macro){.source = as->text.source, .version = as->text.version};
    bool good = tvm_asm_expect_name(as, "the name of a macro", &name, &macro->name.length);
    if (good) {
        macro->name.name = tvm_arena_text(&as->keep, name, macro->name.length);
        good = (macro->name.name || tvm_asm_no_memory(as)) && header(as, macro);
        tvm_value value = good ? (tvm_value){.kind = TVM_VALUE_MACRO, .as.macro = macro} : tvm_value_poison();
        if (macro->name.name)
            good = tvm_asm_define(as, at, macro->name.name, macro->name.length, &value) && good;
    }
    if (!good && as->text.source->tokens[as->text.at - 1].kind != TVM_TOKEN_NEWLINE)
        tvm_asm_skip_statement(as);
    return skip_body(as, token) && good;
}

/* ---- calls ---- */

const tvm_macro *tvm_asm_macro_at(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    if (token->kind != TVM_TOKEN_NAME || !tvm_asm_is(as, tvm_asm_ahead(as, 1), "(")) return NULL;
    as->report.muted++;
    bool good = tvm_asm_name(as, token, &name, &length);
    as->report.muted--;
    const tvm_symbol *symbol = good ? tvm_symbols_find(&as->statics.names, name, length) : NULL;
    return symbol && symbol->value.kind == TVM_VALUE_MACRO ? symbol->value.as.macro : NULL;
}

/* What a parameter is bound to. */
typedef struct binding {
    bool given;
    tvm_value value;
    tvm_symbols *home; /* of a variable: its symbol */
    uint32_t index;
} binding;

static bool variable_argument(tvm_asm *as, const tvm_macro_parameter *parameter, binding *bound) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    tvm_value indices;
    if (!tvm_asm_at_local(as))
        return tvm_asm_expected(as, token, NULL, "a variable for '%%%.*s'", (int)parameter->name.length,
                                parameter->name.name);
    if (!as->kernel.begun) return tvm_asm_error(as, token, NULL, "variables exist only in a kernel");
    tvm_asm_next(as);
    if (!tvm_asm_variable_name(as, &name, &length)) return false;
    if (tvm_asm_accept(as, "[") &&
        (!tvm_asm_list(as, "]", &indices) || !tvm_asm_element_name(as, token, &indices, &name, &length)))
        return false;
    return tvm_asm_locate(as, token, name, length, &bound->home, &bound->index);
}

static bool value_argument(tvm_asm *as, binding *bound) {
    if (!tvm_asm_expression(as, &bound->value) || !tvm_asm_settle(as, &bound->value)) return false;
    bound->value = tvm_value_copy(&as->keep, &bound->value);
    return true;
}

/* The parameter that the argument at the cursor is for: by its name, `name = value`, or by its place. */
static bool chosen(tvm_asm *as, const tvm_macro *macro, uint32_t place, uint32_t *index) {
    const tvm_token *token = tvm_asm_peek(as);
    *index = place;
    if (token->kind == TVM_TOKEN_NAME && tvm_asm_is(as, tvm_asm_ahead(as, 1), "=")) {
        for (*index = 0; *index < macro->count; (*index)++) {
            const tvm_word *name = &macro->parameters[*index].name;
            if (name->length == token->length &&
                memcmp(name->name, tvm_token_text(as->text.source, token), token->length) == 0)
                break;
        }
        if (*index == macro->count || macro->parameters[*index].variable)
            return tvm_asm_error(as, token, NULL, "'%.*s' has no parameter '%.*s'", (int)macro->name.length,
                                 macro->name.name, (int)token->length,
                                 tvm_token_text(as->text.source, token));
        tvm_asm_next(as);
        tvm_asm_next(as);
    }
    return *index < macro->count ||
           tvm_asm_error(as, token, NULL, "'%.*s' takes %u argument%s", (int)macro->name.length,
                         macro->name.name, macro->count, macro->count == 1 ? "" : "s");
}

static bool arguments(tvm_asm *as, const tvm_macro *macro, binding *bound) {
    uint32_t place = 0, index;
    if (tvm_asm_accept(as, ")")) return tvm_asm_expect_end(as);
    do {
        const tvm_token *token = tvm_asm_peek(as);
        if (!chosen(as, macro, place++, &index)) return false;
        const tvm_macro_parameter *parameter = &macro->parameters[index];
        if (bound[index].given)
            return tvm_asm_error(as, token, NULL, "'%.*s' is given twice", (int)parameter->name.length,
                                 parameter->name.name);
        bound[index].given = true;
        if (!(parameter->variable ? variable_argument(as, parameter, &bound[index])
                                  : value_argument(as, &bound[index])))
            return false;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect(as, ")", "or ',' after an argument") && tvm_asm_expect_end(as);
}

static bool all_given(tvm_asm *as, const tvm_token *token, const tvm_macro *macro, const binding *bound) {
    for (uint32_t i = 0; i < macro->count; i++) {
        const tvm_macro_parameter *parameter = &macro->parameters[i];
        if (!bound[i].given && !parameter->initial)
            return tvm_asm_error(as, token, NULL, "'%.*s' is called without '%s%.*s'",
                                 (int)macro->name.length, macro->name.name, parameter->variable ? "%" : "",
                                 (int)parameter->name.length, parameter->name.name);
    }
    return true;
}

/* Defines a parameter in the scope of the call. What it was called may be the name of something else outside.
 */
static bool bind(tvm_asm *as, const tvm_token *call, const tvm_macro_parameter *parameter, binding *bound) {
    const tvm_token *token = call;
    if (!bound->given) {
        token = &as->text.source->tokens[parameter->initial];
        as->text.at = parameter->initial;
        if (!value_argument(as, bound)) return false;
    }
    tvm_symbols *symbols = parameter->variable ? &as->kernel.slots : &as->statics.names;
    tvm_symbol *symbol = tvm_symbols_add(symbols, parameter->name.name, parameter->name.length);
    if (!symbol) return tvm_asm_no_memory(as);
    symbol->value = bound->value;
    symbol->home = bound->home;
    symbol->alias = bound->index;
    symbol->file = as->text.source->name;
    symbol->line = token->line;
    return true;
}

/* The frame of the call, the scopes, the parameters; then the cursor is at the body. */
static bool enter(tvm_asm *as, const tvm_token *token, const tvm_macro *macro, binding *bound) {
    if (as->text.macros == TVM_ASM_MACROS) {
        tvm_asm_error(as, token, "does the macro call itself?", "macros nested deeper than %d",
                      TVM_ASM_MACROS);
        as->report.stopped = true;
        return false;
    }
    tvm_frame *frame = tvm_asm_open_frame(as, TVM_FRAME_MACRO, token);
    if (!frame) return false;
    frame->caller = as->text.source;
    frame->source = macro->source;
    frame->resume = as->text.at;
    frame->name = macro->name.name;
    frame->name_length = macro->name.length;
    frame->version = as->text.version;
    frame->own_scope = as->kernel.own_scope;
    frame->entered = true;
    as->text.macros++;
    tvm_symbols_enter(&as->statics.names);
    tvm_symbols_enter(&as->kernel.slots);
    as->kernel.own_scope = as->kernel.slots.scope;
    as->text.source = macro->source;
    as->text.version = macro->version;
    bool good = true;
    for (uint32_t i = 0; good && i < macro->count; i++)
        good = bind(as, token, &macro->parameters[i], &bound[i]);
    as->text.at = macro->body;
    if (!good) tvm_asm_close_frame(as);
    return good;
}

void tvm_asm_call_macro(tvm_asm *as, const tvm_macro *macro) {
    binding bound[TVM_ASM_PARAMETERS] = {0};
    const tvm_token *token = tvm_asm_next(as);
    const tvm_source *source = as->text.source;
    as->statement.assigned = NULL;
    as->statement.line = token->line;
    tvm_asm_next(as); /* the parenthesis */
    bool good = arguments(as, macro, bound) && all_given(as, token, macro, bound);
    if (good)
        enter(as, token, macro, bound);
    else if (as->text.source == source && as->text.source->tokens[as->text.at - 1].kind != TVM_TOKEN_NEWLINE)
        tvm_asm_skip_statement(as);
}

bool tvm_directive_endmacro(tvm_asm *as, const tvm_token *token) {
    if (!tvm_asm_innermost(as, TVM_FRAME_MACRO))
        return tvm_asm_error(as, token, NULL, "'.endmacro' without '.macro'");
    tvm_asm_close_frame(as);
    return true;
}

/* ---- .scope ---- */

bool tvm_directive_scope(tvm_asm *as, const tvm_token *token) {
    tvm_frame *frame = tvm_asm_open_frame(as, TVM_FRAME_SCOPE, token);
    if (!frame) return false;
    frame->entered = true;
    tvm_symbols_enter(&as->statics.names);
    tvm_symbols_enter(&as->kernel.slots);
    return tvm_asm_expect_end(as);
}

bool tvm_directive_endscope(tvm_asm *as, const tvm_token *token) {
    if (!tvm_asm_innermost(as, TVM_FRAME_SCOPE))
        return tvm_asm_error(as, token, NULL, "'.endscope' without '.scope'");
    tvm_asm_close_frame(as);
    return tvm_asm_expect_end(as);
}
