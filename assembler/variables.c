/* Variables of a kernel: which slot a name means where it stands. Scopes and macros have names of their own,
 * arrays a slot for each element; the program's names are made different from each other. */
#include "variables.h"

#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "language.h"
#include "names.h"
#include "report.h"
#include "scalars.h"
#include "suggest.h"
#include "text.h"

/* ---- finding ---- */

/* The end of the part of a name that begins at `from`: of `at.acc[0, 1]` the parts are `at`, `.acc`, `[0,
 * 1]`. */
static uint32_t part_end(const char *name, uint32_t length, uint32_t from) {
    uint32_t i = from + 1;
    while (i < length && name[i] != '.' && name[i] != '[') i++;
    return i < length ? i : length;
}

/* What has a part that begins so: an array or a record. */
static uint32_t owner_state(char first) {
    return first == '.' ? TVM_SYMBOL_RECORD : TVM_SYMBOL_ARRAY;
}

static tvm_symbol *meant(tvm_symbol *symbol) {
    while (symbol && symbol->home) symbol = &symbol->home->items[symbol->alias];
    return symbol;
}

static tvm_symbol *find_base(const tvm_asm *as, const char *name, uint32_t length, bool assigned) {
    tvm_symbol *symbol = tvm_symbols_find(&as->kernel.slots, name, part_end(name, length, 0));
    return symbol && assigned && symbol->scope < as->kernel.own_scope ? NULL : meant(symbol);
}

enum { KEY_MAX = 288 };

/* An element or field by the number of its array or record and the text of the part. */
static uint32_t element_key(const tvm_symbol *owner, const char *part, uint32_t length, char key[KEY_MAX]) {
    int size = snprintf(key, KEY_MAX, "%u%.*s", owner->array, (int)length, part);
    return size < KEY_MAX ? (uint32_t)size : KEY_MAX - 1;
}

static tvm_symbol *find(const tvm_asm *as, const char *name, uint32_t length, bool assigned) {
    char key[KEY_MAX];
    tvm_symbol *symbol = find_base(as, name, length, assigned);
    for (uint32_t at = part_end(name, length, 0), end; symbol && at < length; at = end) {
        if (symbol->slot == TVM_SYMBOL_POISON) return symbol;
        if (symbol->slot != owner_state(name[at])) return NULL;
        end = part_end(name, length, at);
        symbol = tvm_symbols_find(&as->kernel.elements, key, element_key(symbol, name + at, end - at, key));
    }
    return symbol;
}

static const tvm_symbol *only_made(const tvm_symbol *symbol) {
    bool made = symbol && (symbol->slot < TVM_SYMBOL_RECORD || symbol->slot == TVM_SYMBOL_POISON);
    return made ? symbol : NULL;
}

const tvm_symbol *tvm_asm_find_slot(const tvm_asm *as, const char *name, uint32_t length) {
    return only_made(find(as, name, length, false));
}

const tvm_symbol *tvm_asm_find_local(const tvm_asm *as, const char *name, uint32_t length) {
    const tvm_symbol *variable = tvm_asm_find_slot(as, name, length);
    return variable || as->text.version >= 2 ? variable : tvm_asm_find_parameter(as, name, length);
}

const tvm_symbol *tvm_asm_find_assigned(const tvm_asm *as, const char *name, uint32_t length) {
    return only_made(find(as, name, length, true));
}

bool tvm_asm_is_array(const tvm_asm *as, const char *name, uint32_t length) {
    const tvm_symbol *symbol = find(as, name, length, false);
    return symbol && symbol->slot == TVM_SYMBOL_ARRAY;
}

bool tvm_asm_is_record(const tvm_asm *as, const char *name, uint32_t length) {
    const tvm_symbol *symbol = find(as, name, length, false);
    return symbol && symbol->slot == TVM_SYMBOL_RECORD;
}

static void offer_fields(const tvm_asm *as, tvm_suggest *suggest, const char *record, uint32_t length) {
    char key[KEY_MAX];
    const tvm_symbol *symbol = find(as, record, length, false);
    if (!symbol || symbol->slot != TVM_SYMBOL_RECORD) return;
    uint32_t size = element_key(symbol, ".", 1, key);
    for (uint32_t i = 0; i < as->kernel.elements.count; i++) {
        const tvm_symbol *field = &as->kernel.elements.items[i];
        if (field->length > size && memcmp(field->name, key, size) == 0 && field->slot != TVM_SYMBOL_POISON)
            tvm_suggest_offer(suggest, field->name + size, field->length - size);
    }
}

/* ---- making ---- */

static tvm_symbol *add(tvm_asm *as, tvm_symbols *symbols, const char *name, uint32_t length) {
    const char *copy = tvm_arena_text(&as->keep, name, length);
    tvm_symbol *symbol = copy ? tvm_symbols_add(symbols, copy, length) : NULL;
    if (!symbol) tvm_asm_no_memory(as);
    if (!symbol) return NULL;
    symbol->slot = TVM_SYMBOL_UNMADE;
    symbol->shown = copy;
    return symbol;
}

/* Makes an array or a record of a symbol that is nothing yet; an error where it is something else. */
static bool own_parts(tvm_asm *as, const tvm_token *token, tvm_symbol *symbol, char first) {
    if (symbol->slot == TVM_SYMBOL_UNMADE) {
        symbol->slot = owner_state(first);
        symbol->array = ++as->kernel.arrays;
    }
    if (symbol->slot == owner_state(first)) return true;
    bool record = first == '.';
    return tvm_asm_invalid(
        as, token, record ? "choose another name for the record" : "choose another name for the array",
        "'%%%s' is %s, not %s of them", symbol->shown,
        symbol->slot == TVM_SYMBOL_ARRAY    ? "an array of variables"
        : symbol->slot == TVM_SYMBOL_RECORD ? "a record of variables"
                                            : "a variable",
        record ? "a record" : "an array");
}

/* The element or field of an array or record. */
static tvm_symbol *make_part(tvm_asm *as, tvm_symbol *owner, const char *part, uint32_t length) {
    char key[KEY_MAX], shown[2 * KEY_MAX];
    uint32_t key_length = element_key(owner, part, length, key);
    tvm_symbol *made = tvm_symbols_find(&as->kernel.elements, key, key_length);
    if (made) return made;
    int size = snprintf(shown, sizeof shown, "%s%.*s", owner->shown, (int)length, part);
    if (size >= (int)sizeof shown) size = sizeof shown - 1;
    made = add(as, &as->kernel.elements, key, key_length);
    if (made && !(made->shown = tvm_arena_text(&as->keep, shown, (size_t)size))) tvm_asm_no_memory(as);
    return made && made->shown ? made : NULL;
}

/* The symbol that the name means, made where there is none; NULL after an error. */
static tvm_symbol *make_any(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    uint32_t at = part_end(name, length, 0);
    tvm_symbol *symbol = find_base(as, name, length, true);
    if (!symbol) symbol = add(as, &as->kernel.slots, name, at);
    for (uint32_t end; symbol && at < length && symbol->slot != TVM_SYMBOL_POISON; at = end) {
        end = part_end(name, length, at);
        if (!own_parts(as, token, symbol, name[at])) return NULL;
        symbol = make_part(as, symbol, name + at, end - at);
    }
    return symbol;
}

/* The symbol that an assignment to the name gives a slot, or has given one; NULL after an error. */
static tvm_symbol *make(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    tvm_symbol *symbol = make_any(as, token, name, length);
    if (!symbol || (symbol->slot != TVM_SYMBOL_ARRAY && symbol->slot != TVM_SYMBOL_RECORD)) return symbol;
    bool record = symbol->slot == TVM_SYMBOL_RECORD;
    tvm_asm_invalid(as, token,
                    record ? "a field is written '%name.field'" : "an element is written '%name[index]'",
                    "'%%%.*s' is %s of variables", (int)length, name, record ? "a record" : "an array");
    return NULL;
}

bool tvm_asm_locate(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                    tvm_symbols **home, uint32_t *index) {
    tvm_symbol *symbol = find(as, name, length, false);
    if (!symbol) symbol = make(as, token, name, length);
    if (!symbol) return false;
    const tvm_symbols *elements = &as->kernel.elements;
    bool element = elements->count && symbol >= elements->items && symbol < elements->items + elements->count;
    *home = element ? &as->kernel.elements : &as->kernel.slots;
    *index = (uint32_t)(symbol - (*home)->items);
    return true;
}

void tvm_asm_poison_slot(tvm_asm *as, const char *name, uint32_t length) {
    as->report.muted++;
    tvm_symbol *symbol = find(as, name, length, true);
    if (!symbol) symbol = make(as, NULL, name, length);
    as->report.muted--;
    if (symbol && symbol->slot != TVM_SYMBOL_ARRAY && symbol->slot != TVM_SYMBOL_RECORD)
        symbol->slot = TVM_SYMBOL_POISON;
}

/* ---- slots ---- */

/* at.acc[0, 1] as a program writes it: at_acc_0_1. */
static uint32_t plain_name(const char *name, uint32_t length, char *plain) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < length; i++) {
        if (name[i] == ']' || name[i] == ' ') continue;
        plain[count++] = name[i] == '[' || name[i] == ',' || name[i] == '.' ? '_' : name[i];
    }
    return count;
}

/* The last number that was appended to a name: the slot of a symbol that no name can have. */
static tvm_symbol *last_number(tvm_asm *as, char *plain, uint32_t size) {
    plain[size] = '#';
    tvm_symbol *symbol = tvm_symbols_find(&as->kernel.slot_names, plain, size + 1);
    if (!symbol && (symbol = add(as, &as->kernel.slot_names, plain, size + 1))) symbol->slot = 0;
    return symbol;
}

/* The name that no slot of the kernel has: the given one (if `numbered`, never that), or with a number behind
 * it. */
static bool slot_name(tvm_asm *as, const char *name, uint32_t length, bool numbered, uint32_t *string) {
    char *plain = tvm_arena_alloc(&as->scratch, length + 16);
    if (!plain) return tvm_asm_no_memory(as);
    uint32_t size = plain_name(name, length, plain);
    if (numbered || tvm_symbols_find(&as->kernel.slot_names, plain, size)) {
        if (size > TVM_MAX_NAME - 12) size = TVM_MAX_NAME - 12;
        tvm_symbol *last = last_number(as, plain, size);
        if (!last) return false;
        uint32_t whole;
        do {
            whole = size + (uint32_t)snprintf(plain + size, 16, "_%u", ++last->slot);
        } while (tvm_symbols_find(&as->kernel.slot_names, plain, whole));
        size = whole;
    }
    if (!add(as, &as->kernel.slot_names, plain, size)) return false;
    *string = tvm_ir_program_string(as->program, plain, size);
    return *string != TVM_NONE || tvm_asm_no_memory(as);
}

static bool add_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length, bool temporary,
                     const tvm_slot *slot, uint32_t *index) {
    tvm_slot made = *slot;
    tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (kernel->slot_count >= TVM_MAX_SLOTS)
        return tvm_asm_invalid(as, token, NULL, "a kernel has at most %d variables", TVM_MAX_SLOTS);
    if (!slot_name(as, name, length, temporary, &made.name)) return false;
    *index = tvm_ir_kernel_add_slot(kernel, &made);
    return *index != TVM_NONE || tvm_asm_no_memory(as);
}

bool tvm_asm_add_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                      const tvm_slot *slot, uint32_t *index) {
    tvm_symbol *symbol = make(as, token, name, length);
    if (!symbol) return false;
    bool good = add_slot(as, token, symbol->shown, (uint32_t)strlen(symbol->shown), false, slot, index);
    symbol->slot = good ? *index : TVM_SYMBOL_POISON;
    return good;
}

bool tvm_asm_add_temporary(tvm_asm *as, const tvm_token *token, const tvm_slot *slot, uint32_t *index) {
    const tvm_symbol *symbol =
        as->statement.assigned ? find(as, as->statement.assigned, as->statement.assigned_length, true) : NULL;
    const char *name = symbol ? symbol->shown : as->statement.assigned ? as->statement.assigned : "t";
    uint32_t length =
        symbol || !as->statement.assigned ? (uint32_t)strlen(name) : as->statement.assigned_length;
    return add_slot(as, token, name, length, true, slot, index);
}

void tvm_asm_forget_variables(tvm_asm *as) {
    tvm_symbols_clear(&as->kernel.slots);
    tvm_symbols_clear(&as->kernel.elements);
    tvm_symbols_clear(&as->kernel.slot_names);
    as->kernel.arrays = 0;
}

/* ---- reading ---- */

bool tvm_asm_element_name(tvm_asm *as, const tvm_token *token, const tvm_value *indices, const char **name,
                          uint32_t *length) {
    tvm_text buffer = {0};
    bool good =
        indices->as.list.count > 0 || tvm_asm_error(as, token, NULL, "an element of an array has an index");
    tvm_text_bytes(&buffer, *name, *length);
    for (uint32_t i = 0; good && i < indices->as.list.count; i++) {
        const tvm_value *index = &indices->as.list.items[i];
        if (index->kind == TVM_VALUE_POISON) {
            good = false;
        } else if (index->kind != TVM_VALUE_INTEGER) {
            good = tvm_asm_error(as, token, NULL,
                                 "the index of an array of variables is a static integer, not %s",
                                 tvm_value_what(index));
        } else if (index->as.i < 0 || index->as.i > UINT32_MAX) {
            good = tvm_asm_invalid(as, token, NULL,
                                   "the index of an array is not negative, nor as large as %lld",
                                   (long long)index->as.i);
        }
        if (good) tvm_text_add(&buffer, "%s%lld", i ? ", " : "[", (long long)index->as.i);
    }
    tvm_text_puts(&buffer, "]");
    if (good && buffer.size > TVM_MAX_NAME)
        good = tvm_asm_invalid(as, token, NULL, "the name is longer than %d bytes", TVM_MAX_NAME);
    char *copy = good && !buffer.failed ? tvm_arena_text(&as->scratch, buffer.data, buffer.size) : NULL;
    *length = (uint32_t)buffer.size;
    tvm_text_free(&buffer);
    if (good && !copy) return tvm_asm_no_memory(as);
    *name = copy;
    return good;
}

static bool at_field(const tvm_asm *as) {
    const tvm_token *name = tvm_asm_ahead(as, 1);
    return tvm_asm_at(as, ".") && tvm_asm_peek(as)->adjacent && name->kind == TVM_TOKEN_NAME &&
           name->adjacent;
}

bool tvm_asm_variable_name(tvm_asm *as, const char **name, uint32_t *length) {
    if (!tvm_asm_expect_name(as, "a name after '%'", name, length)) return false;
    while (at_field(as)) {
        const tvm_token *token = tvm_asm_next(as);
        const char *field;
        uint32_t size;
        if (as->text.version < TVM_LANGUAGE_OF_RECORDS)
            return tvm_asm_error(as, token, NULL, "fields of variables need '.vasm %d'",
                                 TVM_LANGUAGE_OF_RECORDS);
        if (!tvm_asm_expect_name(as, "a field", &field, &size)) return false;
        if (*length + 1 + size > TVM_MAX_NAME)
            return tvm_asm_invalid(as, token, NULL, "the name is longer than %d bytes", TVM_MAX_NAME);
        char *whole = tvm_arena_alloc(&as->scratch, *length + size + 2);
        if (!whole) return tvm_asm_no_memory(as);
        snprintf(whole, *length + size + 2, "%.*s.%.*s", (int)*length, *name, (int)size, field);
        *name = whole;
        *length += 1 + size;
    }
    return true;
}

bool tvm_asm_read_name(tvm_asm *as, bool local, const char **name, uint32_t *length) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value indices;
    if (!local) return tvm_asm_expect_name(as, "a name after '%'", name, length);
    if (!tvm_asm_variable_name(as, name, length)) return false;
    if (!tvm_asm_at(as, "[") || !tvm_asm_is_array(as, *name, *length)) return true;
    tvm_asm_next(as);
    return tvm_asm_list(as, "]", &indices) && tvm_asm_element_name(as, token, &indices, name, length);
}

/* ---- as values ---- */

/* What a field may have meant that its record does not have. */
static const char *field_hint(const tvm_asm *as, const char *name, uint32_t length, char hint[96]) {
    tvm_suggest suggest;
    char record[72];
    uint32_t dot = length;
    while (dot > 0 && name[dot - 1] != '.') dot--;
    if (!dot || dot > 64) return NULL;
    const char *bracket = memchr(name, '[', length);
    tvm_suggest_start(&suggest, name + dot, (size_t)((bracket ? bracket : name + length) - (name + dot)));
    offer_fields(as, &suggest, name, dot - 1);
    snprintf(record, sizeof record, "%%%.*s", (int)dot, name);
    return tvm_suggest_hint(&suggest, record, hint);
}

static bool unknown_slot(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    tvm_suggest suggest;
    char hint[96];
    const char *shown;
    if (as->text.left_out) return false;
    bool parameter = tvm_asm_find_parameter(as, name, length) != NULL;
    if (tvm_asm_is_array(as, name, length)) {
        shown = "it is an array: an element is written '%name[index]'";
    } else if (tvm_asm_is_record(as, name, length)) {
        shown = "it is a record: a field is written '%name.field'";
    } else if ((shown = field_hint(as, name, length, hint))) {
    } else if (parameter || tvm_symbols_find(&as->statics.names, name, length)) {
        snprintf(hint, sizeof hint, "%s are written without '%%': '%.*s'",
                 parameter ? "parameters" : "constants", length > 40 ? 40 : (int)length, name);
        shown = hint;
    } else {
        tvm_suggest_start(&suggest, name, length);
        for (uint32_t i = 0; i < as->kernel.slots.count; i++)
            tvm_suggest_offer(&suggest, as->kernel.slots.items[i].name, as->kernel.slots.items[i].length);
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
