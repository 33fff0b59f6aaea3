/* Names: how they are read, and what static names and those of parameters mean. */
#include "names.h"

#include <string.h>

#include "cursor.h"
#include "expr_text.h"
#include "expressions.h"
#include "report.h"
#include "text.h"

/* ---- reading ---- */

/* One `${...}`: text at the dollar sign; appends the value and returns the length up to and with the brace,
 * or 0. */
static size_t paste(tvm_asm *as, const tvm_token *token, const char *text, size_t length, tvm_text *buffer) {
    size_t depth = 0, end = 1;
    do {
        if (text[end] == '{') depth++;
        if (text[end] == '}') depth--;
        end++;
    } while (depth && end < length);
    tvm_value value;
    char shown[64];
    as->report.muted++;
    bool good = tvm_asm_expression_of_text(as, as->text.source->name, text + 2, end - 3, &value);
    as->report.muted--;
    if (!good) {
        tvm_asm_error(as, token, NULL, "'%.*s' has no static value", end > 60 ? 60 : (int)end, text);
        return 0;
    }
    if (value.kind == TVM_VALUE_POISON) return 0;
    if (value.kind != TVM_VALUE_INTEGER && value.kind != TVM_VALUE_DTYPE && value.kind != TVM_VALUE_STRING) {
        tvm_asm_error(as, token, NULL, "${} pastes an integer, a type or a string into a name, not %s",
                      tvm_value_what(&value));
        return 0;
    }
    tvm_text_puts(buffer, tvm_value_text(&value, shown));
    return end;
}

static bool is_short(tvm_asm *as, const tvm_token *token, uint32_t length) {
    if (length <= TVM_MAX_NAME) return true;
    return tvm_asm_error(as, token, NULL, "a name has at most %d letters, this one %u", TVM_MAX_NAME, length);
}

bool tvm_asm_name(tvm_asm *as, const tvm_token *token, const char **text, uint32_t *length) {
    *text = tvm_token_text(as->text.source, token);
    *length = token->length;
    if (!token->pasted) return is_short(as, token, *length);
    tvm_text buffer = {0};
    bool good = true;
    for (size_t i = 0; good && i < token->length;) {
        const char *rest = *text + i;
        if (*rest == '$') {
            size_t used = paste(as, token, rest, token->length - i, &buffer);
            good = used > 0;
            i += used;
        } else {
            tvm_text_bytes(&buffer, rest, 1);
            i++;
        }
    }
    char *copy =
        good && !buffer.failed && buffer.data ? tvm_arena_text(&as->scratch, buffer.data, buffer.size) : NULL;
    size_t size = buffer.size;
    tvm_text_free(&buffer);
    if (!good) return false;
    if (!copy) return tvm_asm_no_memory(as);
    if (!tvm_is_identifier(copy, size))
        return tvm_asm_error(as, token, "${} pastes into a name; elsewhere write the constant itself",
                             "'%.60s' is not a name", copy);
    *text = copy;
    *length = (uint32_t)size;
    return is_short(as, token, *length);
}

bool tvm_asm_expect_name(tvm_asm *as, const char *what, const char **text, uint32_t *length) {
    const tvm_token *token = tvm_asm_peek(as);
    if (token->kind != TVM_TOKEN_NAME) return tvm_asm_expected(as, token, NULL, "%s", what);
    tvm_asm_next(as);
    return tvm_asm_name(as, token, text, length);
}

static bool add_symbol(tvm_asm *as, tvm_symbols *symbols, const char *name, uint32_t length, uint32_t slot) {
    const char *copy = tvm_arena_text(&as->keep, name, length);
    tvm_symbol *symbol = copy ? tvm_symbols_add(symbols, copy, length) : NULL;
    if (!symbol) return tvm_asm_no_memory(as);
    symbol->slot = slot;
    return true;
}

/* ---- parameters ---- */

const tvm_symbol *tvm_asm_find_parameter(const tvm_asm *as, const char *name, uint32_t length) {
    return as->kernel.begun ? tvm_symbols_find(&as->kernel.parameters, name, length) : NULL;
}

void tvm_asm_poison_parameter(tvm_asm *as, const char *name, uint32_t length) {
    if (!tvm_asm_find_parameter(as, name, length))
        add_symbol(as, &as->kernel.parameters, name, length, TVM_NONE);
}

bool tvm_asm_add_parameter(tvm_asm *as, const char *name, uint32_t length, const tvm_slot *slot) {
    tvm_slot made = *slot;
    tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    made.name = tvm_ir_program_string(as->program, name, length);
    uint32_t index = made.name == TVM_NONE ? TVM_NONE : tvm_ir_kernel_add_slot(kernel, &made);
    if (index == TVM_NONE) return tvm_asm_no_memory(as);
    kernel->param_count++;
    return add_symbol(as, &as->kernel.parameters, name, length, index);
}

/* ---- static names ---- */

bool tvm_asm_check_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    tvm_dtype type;
    const char *what = NULL;
    if (tvm_is_reserved(name, length)) what = "a word of the language";
    if (tvm_dtype_parse(name, length, &type)) what = "a type";
    const tvm_op_info *info = tvm_op(tvm_op_by_name(name, length));
    if (info && info->since <= as->text.version) what = "an instruction";
    if (!what) return true;
    return tvm_asm_error(as, token, NULL, "'%.*s' is %s and cannot be defined", (int)length, name, what);
}

void tvm_asm_poison_name(tvm_asm *as, const char *name, uint32_t length) {
    if (as->report.muted) return;
    const char *copy = tvm_arena_text(&as->keep, name, length);
    tvm_symbol *symbol = copy ? tvm_symbols_add(&as->statics.names, copy, length) : NULL;
    if (symbol)
        symbol->value = tvm_value_poison();
    else
        tvm_asm_no_memory(as);
}

bool tvm_asm_define(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    const tvm_value *value) {
    if (!tvm_asm_check_name(as, token, name, length)) return false;
    const tvm_symbol *old = tvm_symbols_find(&as->statics.names, name, length);
    if (old && old->line && old->scope == as->statics.names.scope)
        return tvm_asm_error(as, token, NULL, "'%.*s' is already defined at %s:%u", (int)length, name,
                             old->file, old->line);
    if (tvm_asm_find_parameter(as, name, length))
        return tvm_asm_error(as, token, NULL, "'%.*s' is a parameter of the kernel", (int)length, name);
    const char *copy = tvm_arena_text(&as->keep, name, length);
    tvm_symbol *symbol = copy ? tvm_symbols_add(&as->statics.names, copy, length) : NULL;
    if (!symbol) return tvm_asm_no_memory(as);
    symbol->value = tvm_value_copy(&as->keep, value);
    symbol->file = as->text.source->name;
    symbol->line = token->line;
    if (symbol->value.kind == TVM_VALUE_POISON && value->kind != TVM_VALUE_POISON)
        return tvm_asm_no_memory(as);
    return true;
}

/* ---- -D ---- */

static tvm_define *find_define(const tvm_asm *as, const char *name, uint32_t length) {
    for (size_t i = 0; i < as->statics.define_count; i++) {
        tvm_define *define = &as->statics.defines[i];
        if (!define->used && define->length == length && memcmp(define->name, name, length) == 0)
            return define;
    }
    return NULL;
}

bool tvm_asm_overridden(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        tvm_value *value, bool *given) {
    tvm_define *define =
        as->statics.names.scope == 0 && !as->kernel.begun ? find_define(as, name, length) : NULL;
    if (given) *given = define != NULL;
    if (!define) return true;
    define->used = true;
    bool numbers = tvm_value_is_number(&define->value) && tvm_value_is_number(value);
    if (!numbers && define->value.kind != value->kind && value->kind != TVM_VALUE_POISON)
        return tvm_asm_invalid(as, token, NULL, "-D %.*s gives %s where %s is needed", (int)length, name,
                               tvm_value_what(&define->value), tvm_value_what(value));
    *value = define->value;
    return true;
}
