/* What names mean: slots of the kernel and static names. */
#include "parser.h"

#include <stdio.h>
#include <string.h>

#include "expr_text.h"

const char *tvm_asm_slot_what(tvm_slot_kind kind) {
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
    case TVM_SLOT_NONE:
    case TVM_SLOT_KINDS:
        break;
    }
    return "nothing";
}

bool tvm_asm_at_local(const tvm_asm *as) {
    const tvm_token *name = tvm_asm_ahead(as, 1);
    return tvm_asm_at(as, "%") && name->kind == TVM_TOKEN_NAME && name->adjacent;
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
    return as->in_kernel ? tvm_symbols_find(&as->parameters, name, length) : NULL;
}

void tvm_asm_poison_parameter(tvm_asm *as, const char *name, uint32_t length) {
    if (!tvm_asm_find_parameter(as, name, length)) add_symbol(as, &as->parameters, name, length, TVM_NONE);
}

bool tvm_asm_add_parameter(tvm_asm *as, const char *name, uint32_t length, const tvm_slot *slot) {
    tvm_slot made = *slot;
    tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    made.name = tvm_ir_program_string(as->program, name, length);
    uint32_t index = made.name == TVM_NONE ? TVM_NONE : tvm_ir_kernel_add_slot(kernel, &made);
    if (index == TVM_NONE) return tvm_asm_no_memory(as);
    kernel->param_count++;
    return add_symbol(as, &as->parameters, name, length, index);
}

/* ---- static names ---- */

bool tvm_asm_check_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    tvm_dtype type;
    const char *what = NULL;
    if (tvm_is_reserved(name, length)) what = "a word of the language";
    if (tvm_dtype_parse(name, length, &type)) what = "a type";
    const tvm_op_info *info = tvm_op(tvm_op_by_name(name, length));
    if (info && info->since <= as->version) what = "an instruction";
    if (!what) return true;
    return tvm_asm_error(as, token, NULL, "'%.*s' is %s and cannot be defined", (int)length, name, what);
}

void tvm_asm_poison_name(tvm_asm *as, const char *name, uint32_t length) {
    if (as->muted) return;
    const char *copy = tvm_arena_text(&as->keep, name, length);
    tvm_symbol *symbol = copy ? tvm_symbols_add(&as->names, copy, length) : NULL;
    if (symbol)
        symbol->value = tvm_value_poison();
    else
        tvm_asm_no_memory(as);
}

bool tvm_asm_define(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    const tvm_value *value) {
    if (!tvm_asm_check_name(as, token, name, length)) return false;
    const tvm_symbol *old = tvm_symbols_find(&as->names, name, length);
    if (old && old->line && old->scope == as->names.scope)
        return tvm_asm_error(as, token, NULL, "'%.*s' is already defined at %s:%u", (int)length, name,
                             old->file, old->line);
    if (tvm_asm_find_parameter(as, name, length))
        return tvm_asm_error(as, token, NULL, "'%.*s' is a parameter of the kernel", (int)length, name);
    const char *copy = tvm_arena_text(&as->keep, name, length);
    tvm_symbol *symbol = copy ? tvm_symbols_add(&as->names, copy, length) : NULL;
    if (!symbol) return tvm_asm_no_memory(as);
    symbol->value = tvm_value_copy(&as->keep, value);
    symbol->file = as->source->name;
    symbol->line = token->line;
    if (symbol->value.kind == TVM_VALUE_POISON && value->kind != TVM_VALUE_POISON)
        return tvm_asm_no_memory(as);
    return true;
}

/* What a field may have meant that its record does not have. */
static const char *field_hint(const tvm_asm *as, const char *name, uint32_t length, char hint[96]) {
    tvm_suggest suggest;
    char record[72];
    uint32_t dot = length;
    while (dot > 0 && name[dot - 1] != '.') dot--;
    if (!dot || dot > 64) return NULL;
    const char *bracket = memchr(name, '[', length);
    tvm_suggest_start(&suggest, name + dot, (size_t)((bracket ? bracket : name + length) - (name + dot)));
    tvm_asm_offer_fields(as, &suggest, name, dot - 1);
    snprintf(record, sizeof record, "%%%.*s", (int)dot, name);
    return tvm_suggest_hint(&suggest, record, hint);
}

static bool unknown_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    tvm_suggest suggest;
    char hint[96];
    const char *shown;
    if (as->left_out) return false;
    bool parameter = tvm_asm_find_parameter(as, name, length) != NULL;
    if (tvm_asm_is_array(as, name, length)) {
        shown = "it is an array: an element is written '%name[index]'";
    } else if (tvm_asm_is_record(as, name, length)) {
        shown = "it is a record: a field is written '%name.field'";
    } else if ((shown = field_hint(as, name, length, hint))) {
    } else if (parameter || tvm_symbols_find(&as->names, name, length)) {
        snprintf(hint, sizeof hint, "%s are written without '%%': '%.*s'",
                 parameter ? "parameters" : "constants", length > 40 ? 40 : (int)length, name);
        shown = hint;
    } else {
        tvm_suggest_start(&suggest, name, length);
        for (uint32_t i = 0; i < as->slots.count; i++)
            tvm_suggest_offer(&suggest, as->slots.items[i].name, as->slots.items[i].length);
        shown = tvm_suggest_hint(&suggest, "%", hint);
    }
    tvm_asm_error(as, token, shown, "'%%%.*s' is not defined", length > 80 ? 80 : (int)length, name);
    tvm_asm_poison_slot(as, name, length); /* one error a name is enough */
    return false;
}

bool tvm_asm_slot_value(tvm_asm *as, const tvm_token *token, uint32_t slot, const char *name, uint32_t length,
                        tvm_value *value) {
    *value = tvm_value_poison();
    if (slot == TVM_NONE) return true;
    tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (slot >= kernel->slot_count) return unknown_slot(as, token, name, length);
    const tvm_slot *found = &kernel->slots[slot];
    if (found->kind != TVM_SLOT_SCALAR) {
        *value = (tvm_value){.kind = TVM_VALUE_TENSOR, .as.tensor = {slot, found->kind, NULL}};
        return true;
    }
    tvm_expr node = {.op = TVM_EXPR_SLOT, .type = found->dtype, .a = slot};
    return tvm_asm_node(as, token, &node, value);
}
