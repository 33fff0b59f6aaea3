/* Statements of a graph: temporaries and parts of tensors, as in a kernel, and launches. */
#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "graph.h"
#include "instruction.h"
#include "names.h"
#include "report.h"
#include "result.h"
#include "scalars.h"
#include "statement.h"
#include "suggest.h"

/* ---- the kernel of a launch ---- */

/* Kernels are counted first, then entries; NULL: there is none. */
static const tvm_ir_kernel *function_of(const tvm_ir_program *program, uint32_t index) {
    if (index < program->kernel_count) return &program->kernels[index];
    index -= program->kernel_count;
    return index < program->entry_count ? &program->entries[index].head : NULL;
}

static const tvm_ir_program *program_of(const tvm_asm *as, uint32_t program) {
    return program ? as->graph.text->programs[program - 1] : as->graph.kernels;
}

static bool is_named(const char *name, const char *other, uint32_t length) {
    return strlen(name) == length && memcmp(name, other, length) == 0;
}

/* `PROGRAM.`, if it stands there. */
static bool launch_program(tvm_asm *as, uint32_t *program) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    tvm_suggest suggest;
    *program = 0;
    if (!tvm_asm_is(as, tvm_asm_ahead(as, 1), ".")) return true;
    if (!tvm_asm_expect_name(as, "the name of a program or kernel", &name, &length)) return false;
    tvm_asm_next(as); /* the dot */
    const tvm_symbol *symbol = tvm_symbols_find(&as->statics.names, name, length);
    if (symbol && symbol->value.kind == TVM_VALUE_POISON) return false;
    if (symbol && symbol->value.kind == TVM_VALUE_PROGRAM) {
        *program = symbol->value.as.program + 1;
        return true;
    }
    tvm_suggest_start(&suggest, name, length);
    for (uint32_t i = 0; i < as->statics.names.count; i++)
        if (as->statics.names.items[i].value.kind == TVM_VALUE_PROGRAM)
            tvm_suggest_offer(&suggest, as->statics.names.items[i].name, as->statics.names.items[i].length);
    const char *hint = TVM_SUGGEST_HINT(&suggest, "");
    return tvm_asm_error(as, token, hint ? hint : ".program NAME = \"FILE\" names one",
                         "there is no program '%.*s'", length > 80 ? 80 : (int)length, name);
}

/* `[PROGRAM.]KERNEL` */
static bool launch_kernel(tvm_asm *as, uint32_t *program, uint32_t *function) {
    if (!launch_program(as, program)) return false;
    const tvm_token *token = tvm_asm_peek(as);
    const tvm_ir_program *of = program_of(as, *program);
    const tvm_ir_kernel *kernel;
    const char *name;
    uint32_t length;
    tvm_suggest suggest;
    if (!tvm_asm_expect_name(as, "the name of a kernel", &name, &length)) return false;
    tvm_suggest_start(&suggest, name, length);
    for (*function = 0; (kernel = function_of(of, *function)); ++*function) {
        const char *other = tvm_string(of, kernel->name);
        if (is_named(other, name, length)) return true;
        tvm_suggest_offer(&suggest, other, strlen(other));
    }
    if (as->text.left_out) return false;
    return tvm_asm_error(as, token, TVM_SUGGEST_HINT(&suggest, ""), "there is no kernel or entry '%.*s'%s",
                         length > 80 ? 80 : (int)length, name,
                         *program ? " in the program" : " before this in the text");
}

/* ---- arguments ---- */

typedef struct launch_read {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_graph_text_argument arguments[TVM_MAX_PARAMS];
    bool given[TVM_MAX_PARAMS];
} launch_read;

static const char *param_name(const launch_read *l, uint32_t param) {
    return tvm_string(l->program, l->kernel->slots[param].name);
}

/* `name =`, if it stands there; else the first parameter that has got no argument yet. */
static bool argument_param(tvm_asm *as, const launch_read *l, bool *named, uint32_t *param) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    tvm_suggest suggest;
    *param = 0;
    if (token->kind != TVM_TOKEN_NAME || !tvm_asm_is(as, tvm_asm_ahead(as, 1), "=")) {
        if (*named)
            return tvm_asm_error(as, token, NULL,
                                 "an argument without a name stands behind one that has one");
        for (*param = 0; *param < l->kernel->param_count && l->given[*param]; ++*param) continue;
        return *param < l->kernel->param_count ||
               tvm_asm_error(as, token, NULL, "'%s' takes %u arguments, and this is one more",
                             tvm_string(l->program, l->kernel->name), l->kernel->param_count);
    }
    *named = true;
    if (!tvm_asm_expect_name(as, "the name of a parameter", &name, &length)) return false;
    tvm_asm_next(as); /* = */
    tvm_suggest_start(&suggest, name, length);
    for (*param = 0; *param < l->kernel->param_count; ++*param) {
        const char *other = param_name(l, *param);
        if (is_named(other, name, length))
            return !l->given[*param] || tvm_asm_error(as, token, NULL, "'%s' is given twice", other);
        tvm_suggest_offer(&suggest, other, strlen(other));
    }
    return tvm_asm_error(as, token, TVM_SUGGEST_HINT(&suggest, ""), "'%s' has no parameter '%.*s'",
                         tvm_string(l->program, l->kernel->name), length > 80 ? 80 : (int)length, name);
}

static bool tensor_argument(tvm_asm *as, const tvm_token *token, const launch_read *l, uint32_t param,
                            const tvm_value *value, tvm_graph_text_argument *argument) {
    const tvm_slot *slot = &l->kernel->slots[param];
    if (value->kind != TVM_VALUE_TENSOR || value->as.tensor.pending)
        return tvm_asm_error(as, token, NULL, "'%s' of '%s' is a tensor of %s, not %s", param_name(l, param),
                             tvm_string(l->program, l->kernel->name), TVM_DTYPE_TEXT(slot->dtype),
                             value->as.tensor.pending ? "an instruction" : tvm_value_what(value));
    argument->slot = value->as.tensor.slot;
    tvm_dtype type = tvm_asm_kernel(as)->slots[argument->slot].dtype;
    return tvm_dtype_same(type, slot->dtype) ||
           tvm_asm_invalid(as, token, NULL, "'%s' of '%s' is a tensor of %s, not of %s", param_name(l, param),
                           tvm_string(l->program, l->kernel->name), TVM_DTYPE_TEXT(slot->dtype),
                           TVM_DTYPE_TEXT(type));
}

static bool scalar_argument(tvm_asm *as, const tvm_token *token, const launch_read *l, uint32_t param,
                            const tvm_value *value, tvm_graph_text_argument *argument) {
    const tvm_slot *slot = &l->kernel->slots[param];
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token, NULL, "'%s' of '%s' is a scalar of type %s, not %s",
                             param_name(l, param), tvm_string(l->program, l->kernel->name),
                             TVM_DTYPE_TEXT(slot->dtype), tvm_value_what(value));
    tvm_dtype type = tvm_asm_type_of(as, value);
    bool same = value->kind == TVM_VALUE_BOOL && slot->dtype.kind == TVM_KIND_BOOL;
    if (!same && !tvm_asm_adapts(as, value, slot->dtype))
        return tvm_asm_invalid(as, token, "convert it: i32(...), f32(...)", "'%s' of '%s' is %s, not %s",
                               param_name(l, param), tvm_string(l->program, l->kernel->name),
                               TVM_DTYPE_TEXT(slot->dtype), TVM_DTYPE_TEXT(type));
    return tvm_asm_lower(as, token, value, slot->dtype, &argument->expr) &&
           tvm_asm_launch_time(as, token, argument->expr, 0, "an argument of a launch");
}

static bool one_argument(tvm_asm *as, launch_read *l, bool *named) {
    uint32_t param;
    tvm_value value;
    if (!argument_param(as, l, named, &param)) return false;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expression(as, &value) || value.kind == TVM_VALUE_POISON) return false;
    l->given[param] = true;
    l->arguments[param] = (tvm_graph_text_argument){TVM_NONE, TVM_NONE};
    if (l->kernel->slots[param].kind == TVM_SLOT_GLOBAL)
        return tensor_argument(as, token, l, param, &value, &l->arguments[param]);
    return scalar_argument(as, token, l, param, &value, &l->arguments[param]);
}

/* `(argument, ...)` */
static bool arguments(tvm_asm *as, const tvm_token *token, launch_read *l) {
    bool named = false;
    if (!tvm_asm_expect(as, "(", "and the arguments after the kernel's name")) return false;
    if (!tvm_asm_accept(as, ")")) {
        do {
            if (!one_argument(as, l, &named)) return false;
        } while (tvm_asm_accept(as, ","));
        if (!tvm_asm_expect(as, ")", "or ',' after an argument")) return false;
    }
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (!l->given[p])
            return tvm_asm_error(as, token, NULL, "'%s' of '%s' is not given", param_name(l, p),
                                 tvm_string(l->program, l->kernel->name));
    return true;
}

/* ---- launches ---- */

static uint32_t find_launch(const tvm_graph_text *text, const char *name, uint32_t length,
                            tvm_suggest *suggest) {
    for (uint32_t i = 0; i < text->launch_count; i++) {
        if (is_named(text->launches[i].name, name, length)) return i;
        if (suggest) tvm_suggest_offer(suggest, text->launches[i].name, strlen(text->launches[i].name));
    }
    return TVM_NONE;
}

/* [after NAME, ...] */
static bool launch_order(tvm_asm *as, uint32_t after[TVM_GRAPH_TEXT_AFTER], uint32_t *count) {
    *count = 0;
    if (!tvm_asm_accept(as, "after")) return tvm_asm_expect_end(as);
    do {
        const tvm_token *token = tvm_asm_peek(as);
        const char *name;
        uint32_t length;
        tvm_suggest suggest;
        if (!tvm_asm_expect_name(as, "the name of an earlier launch", &name, &length)) return false;
        if (*count == TVM_GRAPH_TEXT_AFTER)
            return tvm_asm_error(as, token, NULL, "more than %d launches", (int)TVM_GRAPH_TEXT_AFTER);
        tvm_suggest_start(&suggest, name, length);
        after[*count] = find_launch(as->graph.text, name, length, &suggest);
        if (after[(*count)++] == TVM_NONE && !as->report.errors)
            return tvm_asm_error(as, token, TVM_SUGGEST_HINT(&suggest, ""),
                                 "there is no launch '%.*s' before this", length > 80 ? 80 : (int)length,
                                 name);
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
}

/* A launch of its name, after the kernel's and a number where none is given. */
static bool add_launch(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                       tvm_graph_text_launch *made) {
    tvm_graph_text *text = as->graph.text;
    tvm_text own = {0};
    uint32_t count = text->launch_count;
    if (name)
        tvm_text_bytes(&own, name, length);
    else
        tvm_text_add(&own, "%s.%u",
                     tvm_string(program_of(as, made->program),
                                function_of(program_of(as, made->program), made->function)->name),
                     count);
    if (!(count & (count - 1))) {
        void *grown = reallocarray(text->launches, count ? 2 * (size_t)count : 1, sizeof *text->launches);
        if (grown) text->launches = grown;
        own.failed = own.failed || !grown;
    }
    made->name = own.failed ? NULL : strndup(own.data, own.size);
    tvm_text_free(&own);
    made->file = strdup(as->text.source->name);
    made->line = token->line;
    if (made->name && made->file && made->arguments && made->after) {
        text->launches[text->launch_count++] = *made;
        return true;
    }
    free(made->name);
    free(made->file);
    return tvm_asm_no_memory(as);
}

/* Copies what has been read, in memory of the launch's own. */
static bool keep_launch(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        const launch_read *l, const uint32_t *after, tvm_graph_text_launch *made) {
    made->argument_count = l->kernel->param_count;
    made->arguments = calloc(made->argument_count + 1, sizeof *made->arguments);
    made->after = calloc(made->after_count + 1, sizeof *made->after);
    if (made->arguments)
        memcpy(made->arguments, l->arguments, made->argument_count * sizeof *made->arguments);
    if (made->after) memcpy(made->after, after, made->after_count * sizeof *made->after);
    if (add_launch(as, token, name, length, made)) return true;
    free(made->arguments);
    free(made->after);
    return false;
}

/* launch [NAME:] [PROGRAM.]KERNEL(argument, ...) [after NAME, ...] */
static bool launch(tvm_asm *as) {
    const tvm_token *token = tvm_asm_next(as), *at = tvm_asm_peek(as);
    tvm_graph_text_launch made = {0};
    launch_read l = {0};
    uint32_t length = 0, after[TVM_GRAPH_TEXT_AFTER];
    const char *name = NULL;
    if (as->graph.text->launch_count == TVM_GRAPH_TEXT_LAUNCHES) {
        tvm_asm_invalid(as, token, NULL, "a graph has at most %d launches", (int)TVM_GRAPH_TEXT_LAUNCHES);
        as->report.stopped = true;
        return false;
    }
    if (tvm_asm_is(as, tvm_asm_ahead(as, 1), ":")) {
        if (!tvm_asm_expect_name(as, "the name of the launch", &name, &length)) return false;
        tvm_asm_next(as); /* the colon */
        name = tvm_arena_text(&as->scratch, name, length);
        if (!name) return tvm_asm_no_memory(as);
        if (find_launch(as->graph.text, name, length, NULL) != TVM_NONE)
            return tvm_asm_error(as, at, NULL, "there is already a launch '%.*s'", (int)length, name);
    }
    if (!launch_kernel(as, &made.program, &made.function)) return false;
    l.program = program_of(as, made.program);
    l.kernel = function_of(l.program, made.function);
    return arguments(as, token, &l) && launch_order(as, after, &made.after_count) &&
           (as->report.errors || keep_launch(as, token, name, length, &l, after, &made));
}

/* ---- temporaries and parts ---- */

/* The instruction after `%name =`; TVM_OP_COUNT: there is none. */
static unsigned made_by(tvm_asm *as) {
    uint32_t at = as->text.at, tokens;
    if (!tvm_asm_at_local(as) || !tvm_asm_is(as, tvm_asm_ahead(as, 2), "=")) return TVM_OP_COUNT;
    for (int i = 0; i < 3; i++) tvm_asm_next(as);
    unsigned op = tvm_asm_mnemonic(as, &tokens);
    as->text.at = at;
    return op;
}

/* Is what the statement at the token has made known before any launch: no block, no variable, no contents? */
static bool check_made(tvm_asm *as, const tvm_token *token) {
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    const tvm_insn *insn = &kernel->insns[kernel->insn_count - 1];
    const tvm_slot *slot = &kernel->slots[insn->result];
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    uint32_t count = tvm_launch_tensors(kernel, tensors);
    bool good = true;
    for (unsigned d = 0; good && d < slot->rank; d++)
        good = tvm_asm_launch_time(as, token, slot->shape[d], 0, "an extent in a graph") &&
               (slot->form != TVM_FORM_STRIDED ||
                tvm_asm_launch_time(as, token, slot->stride[d], 0, "a stride in a graph"));
    for (uint32_t i = 0; good && i < insn->count; i++)
        if (tvm_operands(kernel, insn)[i].kind == TVM_OPERAND_EXPR)
            good =
                tvm_asm_launch_time(as, token, tvm_operands(kernel, insn)[i].value, 0, "an index in a graph");
    if (good && count && tensors[count - 1].slot == insn->result && tensors[count - 1].clean)
        return tvm_asm_invalid(as, token, NULL,
                               "a temporary of a graph is not clean: launches write it first");
    return good;
}

void tvm_asm_graph_statement(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    unsigned op = made_by(as);
    bool good = true;
    if (op != TVM_OP_COUNT && tvm_op(op)->result == TVM_SLOT_GLOBAL) {
        uint32_t made = tvm_asm_kernel(as)->insn_count;
        tvm_asm_statement(as);
        if (tvm_asm_kernel(as)->insn_count > made) check_made(as, token);
        return;
    }
    uint32_t from = as->text.at;
    if (tvm_asm_at(as, "launch")) {
        good = launch(as);
    } else {
        tvm_suggest suggest;
        tvm_suggest_start(&suggest, tvm_token_text(as->text.source, token), token->length);
        tvm_suggest_offer(&suggest, "launch", 6);
        const char *hint = TVM_SUGGEST_HINT(&suggest, "");
        good = tvm_asm_expected(as, token, hint ? hint : "a kernel has the other instructions",
                                "'launch', '%%name = alloc-global' or '%%name = view-global' in a graph");
    }
    bool consumed = as->text.at > from && as->text.source->tokens[as->text.at - 1].kind == TVM_TOKEN_NEWLINE;
    if (!good && !consumed) tvm_asm_skip_statement(as);
}
