/* One operand of an instruction, read by its kind in the opcode table. */
#include "operand.h"

#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "infer_open.h"
#include "language.h"
#include "names.h"
#include "report.h"
#include "result.h"
#include "scalars.h"
#include "shapes.h"
#include "suggest.h"
#include "tensor_memory.h"
#include "variables.h"

static bool push(tvm_asm *as, tvm_reading *r, tvm_operand_kind kind, uint32_t value) {
    if (r->count == TVM_INSN_OPERANDS) return tvm_asm_error(as, r->token, NULL, "too many operands");
    r->operands[r->count++] = (tvm_operand){kind, value};
    return true;
}

/* What makes a scalar of a tensor. */
static const char *one_element_hint(const tvm_asm *as) {
    return as->text.version < tvm_op(TVM_OP_SCALAR)->since ? NULL
                                                           : "'scalar(%x)' is the one element of a tensor";
}

/* converted: to the type of the elements. */
static bool push_scalar(tvm_asm *as, tvm_reading *r, const tvm_token *token, bool converted,
                        const tvm_value *value) {
    if (value->kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token, value->kind == TVM_VALUE_TENSOR ? one_element_hint(as) : NULL,
                             "expected a scalar, found %s", tvm_value_what(value));
    r->scalars[r->scalar_count++] = (tvm_deferred){r->count, converted, token, *value};
    return push(as, r, TVM_OPERAND_EXPR, 0);
}

/* ---- tensors ---- */

/* The name at the cursor, with its % if it has one, as a slot; *slot is TVM_NONE for poison. */
static bool read_slot(tvm_asm *as, const tvm_operand_desc *desc, const char *what, uint32_t *slot) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    bool local = tvm_asm_at_local(as);
    if (local) {
        tvm_asm_next(as);
        token = tvm_asm_peek(as);
    }
    if (token->kind != TVM_TOKEN_NAME)
        return tvm_asm_expected(as, token, NULL, "%s for '%.*s'", what, (int)desc->name_length, desc->name);
    if (!tvm_asm_read_name(as, local, &name, &length)) return false;
    const tvm_symbol *bound = local ? NULL : tvm_symbols_find(&as->statics.names, name, length);
    if (bound && bound->value.kind == TVM_VALUE_TENSOR) {
        *slot = bound->value.as.tensor.slot;
        return true;
    }
    const tvm_symbol *symbol =
        local ? tvm_asm_find_local(as, name, length) : tvm_asm_find_parameter(as, name, length);
    tvm_value unused;
    if (!symbol && local) return tvm_asm_slot_value(as, token, TVM_MAX_SLOTS, name, length, &unused);
    if (!symbol) return tvm_asm_unknown_name(as, token, name, length);
    *slot = symbol->slot;
    return true;
}

/* What an instruction of tensors is written like for a scalar. */
static const char *scalar_hint(const tvm_asm *as, const tvm_reading *r, const tvm_slot *found,
                               char hint[64]) {
    if (found->kind != TVM_SLOT_SCALAR) return NULL;
    if (r->op == TVM_OP_CAST) return "a conversion of a scalar is 'f32(x)'";
    if (!tvm_op_is_elementwise(r->info)) return NULL;
    if (as->text.version < TVM_LANGUAGE_OF_TENSORS) return "functions of scalars need '.vasm 7'";
    snprintf(hint, 64, "write '%s(...)', which takes scalars", r->info->mnemonic);
    return hint;
}

static bool push_tensor(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, const tvm_token *token,
                        tvm_slot_kind kind, uint32_t slot) {
    const tvm_slot *found = &tvm_asm_kernel(as)->slots[slot];
    char hint[64];
    if (found->kind != kind)
        return tvm_asm_invalid(as, token, scalar_hint(as, r, found, hint),
                               "expected %s for '%.*s', found %s '%s'", tvm_slot_what(kind),
                               (int)desc->name_length, desc->name, tvm_slot_what((tvm_slot_kind)found->kind),
                               tvm_string(as->program, found->name));
    if (found->dtype.kind == TVM_KIND_FLOAT && found->dtype.bits == 64) r->wide = true;
    if (desc->kind == 'b') r->element = found->dtype;
    return push(as, r, TVM_OPERAND_SLOT, slot);
}

/* `a`, `e`: a tensor of one of two kinds. */
static bool read_of_two(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, tvm_slot_kind one,
                        tvm_slot_kind other, uint32_t *slot) {
    const tvm_token *token = tvm_asm_peek(as);
    char what[80];
    bool global = one == TVM_SLOT_GLOBAL;
    snprintf(what, sizeof what, "%s",
             global ? "a global or shared tensor" : "a tensor in shared or tensor memory");
    if (!read_slot(as, desc, what, slot) || *slot == TVM_NONE) return false;
    const tvm_slot *found = &tvm_asm_kernel(as)->slots[*slot];
    if (found->kind == one || found->kind == other) return push(as, r, TVM_OPERAND_SLOT, *slot);
    return tvm_asm_invalid(as, token, NULL, "expected %s for '%.*s', found %s '%s'", what,
                           (int)desc->name_length, desc->name, tvm_slot_what((tvm_slot_kind)found->kind),
                           tvm_string(as->program, found->name));
}

static bool read_tensor(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, tvm_slot_kind kind,
                        uint32_t *slot) {
    const tvm_token *token = tvm_asm_peek(as);
    return read_slot(as, desc, tvm_slot_what(kind), slot) && *slot != TVM_NONE &&
           push_tensor(as, r, desc, token, kind, *slot);
}

bool tvm_asm_takes_scalars(const tvm_asm *as, const tvm_reading *r) {
    return r->nested && as->text.version >= TVM_LANGUAGE_OF_TENSORS && tvm_op_is_elementwise(r->info);
}

bool tvm_asm_push_value(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, const tvm_token *token,
                        tvm_value *value) {
    bool tensor = desc->kind == 'm' || (desc->kind == 'r' && !tvm_asm_takes_scalars(as, r));
    if (value->kind == TVM_VALUE_TENSOR)
        return tvm_asm_settle(as, value) &&
               push_tensor(as, r, desc, token, TVM_SLOT_REGISTER, value->as.tensor.slot);
    if (!tensor || value->kind == TVM_VALUE_POISON)
        return push_scalar(as, r, token, desc->kind == 'b' || desc->kind == 'r', value);
    return tvm_asm_error(as, token, NULL, "expected a register tensor for '%.*s', found %s",
                         (int)desc->name_length, desc->name, tvm_value_what(value));
}

bool tvm_asm_push_given(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, const tvm_token *token,
                        tvm_value *value) {
    if (desc->kind == 'N' || tvm_words_of(desc->kind))
        return push(as, r, TVM_OPERAND_CONST, (uint32_t)value->as.i);
    if (!tvm_is_list(desc->kind)) return tvm_asm_push_value(as, r, desc, token, value);
    bool good = push(as, r, TVM_OPERAND_CONST, value->as.list.count);
    for (uint32_t i = 0; good && i < value->as.list.count; i++)
        good = push(as, r, TVM_OPERAND_CONST, (uint32_t)value->as.list.items[i].as.i);
    return good;
}

/* Does the operand end behind the variable at the cursor, so that it is a tensor's name and no expression? */
static bool is_bare_variable(const tvm_asm *as) {
    if (!tvm_asm_at_local(as)) return false;
    uint32_t i = 2;
    while (tvm_asm_is(as, tvm_asm_ahead(as, i), ".") && tvm_asm_ahead(as, i)->adjacent) i += 2;
    if (tvm_asm_is(as, tvm_asm_ahead(as, i), "[")) {
        unsigned depth = 0;
        do {
            const tvm_token *token = tvm_asm_ahead(as, i++);
            if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END) return true;
            if (tvm_asm_is(as, token, "[")) depth++;
            if (tvm_asm_is(as, token, "]")) depth--;
        } while (depth);
    }
    const tvm_token *after = tvm_asm_ahead(as, i);
    return after->kind != TVM_TOKEN_SIGN || tvm_asm_is(as, after, ",") || tvm_asm_is(as, after, ")");
}

/* Does an expression begin with the name or number at the cursor: does an operator follow? */
static bool begins_expression(const tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as), *after = tvm_asm_ahead(as, 1);
    bool number = token->kind == TVM_TOKEN_INTEGER || token->kind == TVM_TOKEN_FLOAT;
    return as->text.version >= TVM_LANGUAGE_OF_TENSORS && (number || token->kind == TVM_TOKEN_NAME) &&
           after->kind == TVM_TOKEN_SIGN && !tvm_asm_is(as, after, ",") && !tvm_asm_is(as, after, ")") &&
           !tvm_asm_is(as, after, "[");
}

/* `r`: a register tensor, by its name or as an expression. */
static bool read_register(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    uint32_t slot, tokens;
    bool expression =
        tvm_asm_at_part(as) || tvm_asm_takes_scalars(as, r) || begins_expression(as) ||
        (!is_bare_variable(as) && (tvm_asm_at_local(as) || tvm_asm_at(as, "(") || tvm_asm_at(as, "-") ||
                                   tvm_asm_at(as, "~") || tvm_asm_at(as, "!")));
    if (expression || tvm_asm_at_nested(as, &tokens) || tvm_asm_is(as, tvm_asm_ahead(as, 1), "("))
        return tvm_asm_expression(as, &value) && tvm_asm_push_value(as, r, desc, token, &value);
    return read_tensor(as, r, desc, TVM_SLOT_REGISTER, &slot);
}

static bool push_index(tvm_asm *as, tvm_reading *r, const tvm_token *token, const tvm_value *value) {
    uint32_t expr;
    if (value->kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token, NULL, "an index is a scalar, not %s", tvm_value_what(value));
    tvm_dtype type = tvm_asm_type_of(as, value);
    if (type.kind == TVM_KIND_FLOAT)
        return tvm_asm_error(as, token, NULL, "an index is an integer, not a float");
    if (!tvm_dtype_same(type, TVM_I(32))) type = type.kind == TVM_KIND_BOOL ? TVM_I(32) : TVM_I(64);
    return tvm_asm_lower(as, token, value, type, &expr) && push(as, r, TVM_OPERAND_EXPR, expr);
}

/* An index of kind v: a register tensor as well. */
static bool push_place(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, const tvm_token *token,
                       tvm_value *value) {
    if (value->kind != TVM_VALUE_TENSOR) return push_index(as, r, token, value);
    return tvm_asm_settle(as, value) &&
           push_tensor(as, r, desc, token, TVM_SLOT_REGISTER, value->as.tensor.slot);
}

/* `[i, j]`, or nothing: indices that are not written are 0. */
static bool read_indices(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, uint32_t slot) {
    unsigned rank = tvm_slot_rank(as->program, &tvm_asm_kernel(as)->slots[slot]);
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value list = {.kind = TVM_VALUE_LIST};
    if (tvm_asm_accept(as, "[") && !tvm_asm_list(as, "]", &list)) return false;
    uint32_t given = list.as.list.count;
    if (given > rank)
        return tvm_asm_invalid(as, token, NULL, "%u indices for a tensor of rank %u", given, rank);
    for (uint32_t i = 0; i < rank; i++) {
        tvm_value zero = tvm_value_integer(0);
        tvm_value index = i < given ? list.as.list.items[i] : zero;
        if (!(desc->kind == 'v' ? push_place(as, r, desc, token, &index) : push_index(as, r, token, &index)))
            return false;
    }
    unsigned kind = tvm_asm_kernel(as)->slots[slot].kind;
    if (r->tile_slot == TVM_NONE && (kind == TVM_SLOT_SHARED || kind == TVM_SLOT_TENSOR)) {
        r->tile_slot = slot;
        r->tile_given = given;
    }
    return true;
}

/* `b`: a register tensor by its name alone, else a scalar expression. */
static bool read_broadcast(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    return tvm_asm_expression(as, &value) && tvm_asm_push_value(as, r, desc, token, &value);
}

/* `m`: a register tensor, or a tile of a shared one. */
static bool read_register_or_shared(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const char *name;
    uint32_t length, slot, from = as->text.at;
    if (tvm_asm_at_local(as)) {
        tvm_asm_next(as);
        if (!tvm_asm_variable_name(as, &name, &length)) return false;
        as->text.at = from;
        const tvm_symbol *symbol = tvm_asm_find_slot(as, name, length);
        if (symbol && symbol->slot != TVM_NONE &&
            tvm_asm_kernel(as)->slots[symbol->slot].kind == TVM_SLOT_SHARED)
            return read_tensor(as, r, desc, TVM_SLOT_SHARED, &slot) && read_indices(as, r, desc, slot);
    }
    return read_register(as, r, desc);
}

/* A bound of an interval, in the type of the scalar that the result is. */
static bool read_bound(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    char wanted[TVM_DTYPE_NAME_MAX], hint[64];
    tvm_value value;
    tvm_dtype type;
    uint32_t expr;
    if (!tvm_asm_expression(as, &value) || value.kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(&value))
        return tvm_asm_error(as, token, NULL, "expected a scalar, found %s", tvm_value_what(&value));
    tvm_dtype own = tvm_asm_type_of(as, &value);
    if (!tvm_dtype_scalar_of(tvm_asm_kernel(as)->slots[r->operands[0].value].dtype, &type) ||
        !tvm_dtype_is_integer(type))
        type = own; /* the rule says what is wrong */
    snprintf(hint, sizeof hint, "write %s(...)", tvm_dtype_name(type, wanted));
    if (!tvm_asm_adapts(as, &value, type))
        return tvm_asm_invalid(as, token, hint, "the result has type %s, this bound of '%.*s' %s", wanted,
                               (int)desc->name_length, desc->name, TVM_DTYPE_TEXT(own));
    return tvm_asm_lower(as, token, &value, type, &expr) && push(as, r, TVM_OPERAND_EXPR, expr);
}

/* `I`: `low to end` */
static bool read_interval(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    return read_bound(as, r, desc) && tvm_asm_expect(as, "to", "and the end of the range") &&
           read_bound(as, r, desc);
}

/* ---- constants ---- */

static bool read_integer(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    int64_t value;
    char what[64];
    snprintf(what, sizeof what, "'%.*s'", (int)desc->name_length, desc->name);
    return tvm_asm_static_integer(as, 0, UINT32_MAX, what, &value) &&
           push(as, r, TVM_OPERAND_CONST, (uint32_t)value);
}

static bool push_tile(tvm_asm *as, tvm_reading *r, const uint32_t *extents, uint32_t count) {
    if (!push(as, r, TVM_OPERAND_CONST, count)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!push(as, r, TVM_OPERAND_CONST, extents[i])) return false;
    return true;
}

static bool read_tile(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    char what[32];
    snprintf(what, sizeof what, "the %.*s list", (int)desc->name_length, desc->name);
    tvm_value value;
    uint32_t extents[TVM_MAX_RANK], count;
    if (!tvm_asm_static(as, what, &value)) return false;
    if (value.kind != TVM_VALUE_LIST && value.kind != TVM_VALUE_POISON)
        return tvm_asm_error(as, token, NULL, "expected %s, as [16, 64], found %s", what,
                             tvm_value_what(&value));
    return value.kind == TVM_VALUE_LIST &&
           tvm_asm_extents(as, token, value.as.list.items, value.as.list.count, what, TVM_MAX_RANK, extents,
                           &count) &&
           push_tile(as, r, extents, count);
}

/* `[0, 2]` */
static bool read_numbers(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    char what[32];
    snprintf(what, sizeof what, "the %.*s list", (int)desc->name_length, desc->name);
    tvm_value value;
    if (!tvm_asm_static(as, what, &value) || value.kind == TVM_VALUE_POISON) return false;
    if (value.kind != TVM_VALUE_LIST || value.as.list.count < 1 || value.as.list.count > TVM_MAX_RANK)
        return tvm_asm_error(as, token, NULL, "expected %s of 1 to %d numbers, as [0, 2], found %s", what,
                             TVM_MAX_RANK, tvm_value_what(&value));
    if (!push(as, r, TVM_OPERAND_CONST, value.as.list.count)) return false;
    for (uint32_t i = 0; i < value.as.list.count; i++) {
        const tvm_value *item = &value.as.list.items[i];
        if (item->kind != TVM_VALUE_INTEGER || item->as.i < 0 || item->as.i > TVM_MAX_TILE_ELEMENTS)
            return tvm_asm_error(as, token, NULL, "%s has numbers from 0 to %d", what, TVM_MAX_TILE_ELEMENTS);
        if (!push(as, r, TVM_OPERAND_CONST, (uint32_t)item->as.i)) return false;
    }
    return true;
}

/* The tile that was not written: the dimensions of the shared tensor that were given no index. */
static bool default_tile(tvm_asm *as, tvm_reading *r) {
    const tvm_slot *slot = r->tile_slot == TVM_NONE ? NULL : &tvm_asm_kernel(as)->slots[r->tile_slot];
    unsigned rank = slot ? tvm_slot_rank(as->program, slot) : 0;
    if (!slot || r->tile_given >= rank)
        return tvm_asm_error(as, tvm_asm_peek(as), "every dimension of the shared tensor has an index",
                             "expected ', tile [...]'");
    return push_tile(as, r, tvm_slot_shape(as->program, slot) + r->tile_given, rank - r->tile_given);
}

/* since: of each word, or NULL. */
static bool find_word(tvm_asm *as, const char *const *words, const uint8_t *since, unsigned count,
                      const char *what, unsigned *word) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *text = tvm_token_text(as->text.source, token);
    tvm_suggest suggest;
    char hint[96], all[80] = "";
    tvm_suggest_start(&suggest, text, token->length);
    for (unsigned i = 0; i < count; i++) {
        *word = i;
        if (since && since[i] > as->text.version) continue;
        if (tvm_asm_accept(as, words[i])) return true;
        tvm_suggest_offer(&suggest, words[i], strlen(words[i]));
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", words[i]);
    }
    return tvm_asm_expected(as, token, tvm_suggest_hint(&suggest, "", hint), "%s (%s)", what, all);
}

static bool read_word(tvm_asm *as, tvm_reading *r, const tvm_operand_words *words) {
    unsigned word;
    return find_word(as, words->names, words->since, words->count, words->what, &word) &&
           push(as, r, TVM_OPERAND_CONST, word);
}

/* A type, of those that the words name. */
static bool read_type_word(tvm_asm *as, tvm_reading *r, const tvm_operand_words *words) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_dtype type;
    if (!tvm_asm_type(as, &type)) return false;
    for (unsigned i = 0; i < words->count; i++)
        if (strcmp(words->names[i], TVM_DTYPE_TEXT(type)) == 0) return push(as, r, TVM_OPERAND_CONST, i);
    return tvm_asm_invalid(as, token, NULL, "expected %s, found %s", words->what, TVM_DTYPE_TEXT(type));
}

/* ---- what the result's slot says ---- */

/* Is what the instruction reads in tensor memory, which threads reach in few layouts? */
static bool reads_tensor_memory(const tvm_asm *as, const tvm_reading *r) {
    return r->count && r->operands[0].kind == TVM_OPERAND_SLOT &&
           tvm_asm_kernel(as)->slots[r->operands[0].value].kind == TVM_SLOT_TENSOR;
}

/* The result has this shape; its layout is inferred. */
static bool open_shape(tvm_asm *as, tvm_reading *r, unsigned rank, const uint32_t *shape) {
    tvm_why why;
    if (reads_tensor_memory(as, r) && rank == 2 &&
        (shape[0] == TVM_TENSOR_LANES || shape[0] == TVM_TENSOR_HALF)) {
        r->type.has_layout = true;
        return tvm_tensor_layout(shape[0], shape[1], tvm_asm_team(as), &r->type.layout, &why) == TVM_OK ||
               tvm_asm_invalid(as, r->token, NULL, "%s", why.text);
    }
    r->type.has_layout = r->type.open = true;
    if (tvm_infer_whole(rank, shape, tvm_asm_team(as), &r->type.layout, &why)) return true;
    return tvm_asm_invalid(as, r->token, NULL, "%s", why.text);
}

/* A layout; from version 3 of the language on `[16, 64]` or `tile [16, 64]`, the shape alone. */
static bool read_layout(tvm_asm *as, tvm_reading *r) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    if (as->text.version >= 3 && tvm_asm_is(as, tvm_asm_ahead(as, 1), "[")) tvm_asm_accept(as, "tile");
    if (!tvm_asm_static(as, "a layout", &value) || value.kind == TVM_VALUE_POISON) return false;
    if (value.kind == TVM_VALUE_LIST && as->text.version >= 3) {
        uint32_t shape[TVM_MAX_RANK], rank;
        return tvm_asm_extents(as, token, value.as.list.items, value.as.list.count, "the tile", TVM_MAX_RANK,
                               shape, &rank) &&
               tvm_asm_same_shape(as, token, r, rank, shape) && open_shape(as, r, rank, shape);
    }
    if (value.kind != TVM_VALUE_LAYOUT) {
        const char *hint =
            tvm_value_is_number(&value) ? "a named operand is written with its name, as 'init 0.0'" : NULL;
        return tvm_asm_error(as, token, hint, "expected a register layout, found %s", tvm_value_what(&value));
    }
    r->type.layout = *value.as.layout;
    r->type.has_layout = true;
    return tvm_asm_same_shape(as, token, r, r->type.layout.rank, r->type.layout.shape);
}

static bool read_packing(tvm_asm *as, tvm_reading *r) {
    unsigned packing;
    if (!find_word(as, tvm_packing_names, NULL, TVM_PACKING_COUNT, "a packing", &packing)) return false;
    r->type.packing = (tvm_packing)packing;
    return true;
}

/* The tile that is loaded without a layout: what was given no index of a shared tensor, all of a register
 * tensor. */
static bool open_tile(tvm_asm *as, tvm_reading *r) {
    const tvm_slot *slot = r->count && r->operands[0].kind == TVM_OPERAND_SLOT
                               ? &tvm_asm_kernel(as)->slots[r->operands[0].value]
                               : NULL;
    uint32_t shape[TVM_MAX_RANK];
    bool indexed = slot && (slot->kind == TVM_SLOT_SHARED || slot->kind == TVM_SLOT_TENSOR);
    unsigned from = indexed ? r->tile_given : 0;
    unsigned rank = slot && slot->kind != TVM_SLOT_GLOBAL ? tvm_slot_rank(as->program, slot) : 0;
    if (from >= rank)
        return tvm_asm_error(as, tvm_asm_peek(as), "the tile alone leaves the layout to the assembler",
                             "expected the tile, as [16, 64], or a layout");
    memcpy(shape, tvm_slot_shape(as->program, slot), rank * sizeof *shape);
    /* A view of the same bits as another type. */
    if (slot->kind == TVM_SLOT_REGISTER && r->type.dtype.kind != TVM_KIND_NONE) {
        uint64_t bits = (uint64_t)shape[rank - 1] * slot->dtype.bits;
        if (bits % r->type.dtype.bits)
            return tvm_asm_invalid(as, r->token, NULL,
                                   "%llu bits of the last dimension are not whole elements",
                                   (unsigned long long)bits);
        shape[rank - 1] = (uint32_t)(bits / r->type.dtype.bits);
    }
    return open_shape(as, r, rank - from, shape + from);
}

static bool default_layout(tvm_asm *as, tvm_reading *r, char kind) {
    tvm_why why;
    if (!r->has_shape) return true; /* it follows from the operands */
    if (kind == 'L' && as->text.version >= 3) return open_shape(as, r, r->rank, r->shape);
    r->type.has_layout = true;
    r->type.open = as->text.version >= 3;
    if (kind == 'L') return tvm_asm_auto_layout(as, r->token, r->rank, r->shape, 32, &r->type.layout);
    if (tvm_shared_layout_auto(r->rank, r->shape, r->type.dtype.bits, &r->type.shared_layout, &why) == TVM_OK)
        return true;
    return tvm_asm_invalid(as, r->token, NULL, "%s", why.text);
}

/* ---- by kind ---- */

static bool read_flag(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_operand_named(as, desc))
        return tvm_asm_expected(as, token, NULL, "'%.*s'", (int)desc->name_length, desc->name);
    tvm_asm_next(as);
    return push(as, r, TVM_OPERAND_CONST, 1);
}

/* Has the result the layout of the one tensor that it is made of? Then the row says no more of it than a
 * type. */
static bool keeps_layout(const tvm_reading *r) {
    const char *cursor = r->info->operands;
    tvm_operand_desc desc;
    for (unsigned i = 0; tvm_operand_next(&cursor, &desc); i++)
        if (i == 0 ? desc.kind != 'r' : desc.stored || desc.kind == 'L') return false;
    return true;
}

/* A broadcast operand is read beside the first tensor of its instruction; what it is made of keeps to that.
 */
static bool read_beside(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    uint32_t outer = as->statement.beside;
    if (desc->kind == 'r' && !keeps_layout(r)) as->statement.beside = 0;
    for (uint32_t i = r->count; desc->kind == 'b' && i-- > 0;)
        if (r->operands[i].kind == TVM_OPERAND_SLOT) as->statement.beside = r->operands[i].value + 1;
    bool good = desc->kind == 'r' ? read_register(as, r, desc) : read_broadcast(as, r, desc);
    as->statement.beside = outer;
    return good;
}

bool tvm_asm_loads_beside(const tvm_asm *as, const tvm_reading *r) {
    const tvm_operand *source = &r->operands[0];
    return as->statement.beside && r->nested && r->count && source->kind == TVM_OPERAND_SLOT &&
           tvm_asm_kernel(as)->slots[source->value].kind != TVM_SLOT_REGISTER;
}

static bool has_one_element(const tvm_asm *as, const tvm_slot *slot, unsigned dim) {
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (slot->kind == TVM_SLOT_SHARED) return tvm_slot_shape(as->program, slot)[dim] == 1;
    const tvm_expr *extent = &kernel->exprs[slot->shape[dim]];
    return extent->op == TVM_EXPR_INTEGER && extent->value.i == 1;
}

/* The layout of a tile that is loaded to be broadcast: that of what it goes to, without the leading
 * dimensions that the source lacks, one element where it has no more. */
static bool layout_beside(tvm_asm *as, tvm_reading *r) {
    const tvm_slot *slot = &tvm_asm_kernel(as)->slots[r->operands[0].value];
    unsigned rank = tvm_slot_rank(as->program, slot);
    tvm_layout *layout = &r->type.layout;
    tvm_status status = TVM_OK;
    tvm_why why;
    *layout = as->program->layouts[tvm_asm_kernel(as)->slots[as->statement.beside - 1].layout];
    while (status == TVM_OK && layout->rank > rank) {
        status = tvm_layout_reduce(layout, 0, layout, &why);
        if (status == TVM_OK) status = tvm_layout_squeeze(layout, 0, layout, &why);
    }
    for (unsigned d = 0; status == TVM_OK && d < layout->rank; d++)
        if (has_one_element(as, slot, rank - layout->rank + d))
            status = tvm_layout_reduce(layout, d, layout, &why);
    r->type.has_layout = true;
    if (status != TVM_OK) return tvm_asm_invalid(as, r->token, NULL, "%s", why.text);
    return !tvm_asm_is_open(as, as->statement.beside - 1) || open_shape(as, r, layout->rank, layout->shape);
}

/* `Q`: a static string, which the program keeps. */
static bool read_text(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    if (!tvm_asm_static(as, "a text", &value) || value.kind == TVM_VALUE_POISON) return false;
    if (value.kind != TVM_VALUE_STRING)
        return tvm_asm_error(as, token, NULL, "expected '%.*s', a text in quotes, found %s",
                             (int)desc->name_length, desc->name, tvm_value_what(&value));
    for (uint32_t i = 0; i < value.as.string.length; i++)
        if ((unsigned char)value.as.string.text[i] < ' ' || value.as.string.text[i] == 0x7f)
            return tvm_asm_error(as, token, NULL, "a text of a program has no control characters");
    uint32_t string = tvm_ir_program_string(as->program, value.as.string.text, value.as.string.length);
    if (string == TVM_NONE) return tvm_asm_no_memory(as);
    return push(as, r, TVM_OPERAND_STRING, string);
}

/* `V`: the scalars that are left. */
static bool read_values(tvm_asm *as, tvm_reading *r) {
    uint32_t at = r->count;
    if (!push(as, r, TVM_OPERAND_CONST, 0)) return false;
    do {
        const tvm_token *token = tvm_asm_peek(as);
        tvm_value value;
        if (r->operands[at].value == TVM_MAX_RANK)
            return tvm_asm_error(as, token, NULL, "%s takes at most %d values", r->info->mnemonic,
                                 TVM_MAX_RANK);
        if (!tvm_asm_expression(as, &value) || !push_scalar(as, r, token, false, &value)) return false;
        r->operands[at].value++;
    } while (tvm_asm_accept(as, ","));
    return true;
}

bool tvm_asm_read_operand(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    uint32_t slot, count;
    tvm_value value;
    const tvm_token *token = tvm_asm_peek(as);
    switch (desc->kind) {
    case 'x':
        return tvm_asm_expression(as, &value) &&
               push_scalar(as, r, token, r->has_shape && desc->optional && r->op == TVM_OP_ALLOC_REGISTER,
                           &value);
    case 'r':
    case 'b':
        return read_beside(as, r, desc);
    case 's':
        return read_tensor(as, r, desc, TVM_SLOT_SHARED, &slot) &&
               (!desc->indexed || read_indices(as, r, desc, slot));
    case 'g':
        return read_tensor(as, r, desc, TVM_SLOT_GLOBAL, &slot) &&
               (!desc->indexed || read_indices(as, r, desc, slot));
    case 'a':
    case 'v':
        return read_of_two(as, r, desc, TVM_SLOT_GLOBAL, TVM_SLOT_SHARED, &slot) &&
               (!desc->indexed || read_indices(as, r, desc, slot));
    case 'I':
        return read_interval(as, r, desc);
    case 'w':
        return read_tensor(as, r, desc, TVM_SLOT_BARRIER, &slot) && read_indices(as, r, desc, slot);
    case 'c':
        return read_tensor(as, r, desc, TVM_SLOT_TENSOR, &slot) &&
               (!desc->indexed || read_indices(as, r, desc, slot));
    case 'e':
        return read_of_two(as, r, desc, TVM_SLOT_SHARED, TVM_SLOT_TENSOR, &slot) &&
               read_indices(as, r, desc, slot);
    case 'm':
        return read_register_or_shared(as, r, desc);
    case 'Q':
        return read_text(as, r, desc);
    case 'V':
        return read_values(as, r);
    case 'N':
        return read_integer(as, r, desc);
    case 'A':
        return read_tile(as, r, desc);
    case 'D':
        count = r->count;
        return read_numbers(as, r, desc) && tvm_asm_order_extents(as, r, count);
    case 'F':
        return read_flag(as, r, desc);
    case 'X':
        return tvm_asm_read_view_extents(as, r);
    case 'Z':
        return tvm_asm_read_view_strides(as, r);
    case 't':
        return tvm_asm_read_typed_shape(as, r);
    case 'T':
        return tvm_asm_type(as, &r->type.dtype);
    case 'L':
        return read_layout(as, r);
    case 'G':
        return tvm_asm_read_global_type(as, r);
    case 'P':
        return read_packing(as, r);
    case 'U':
        tvm_asm_next(as);
        r->relayouts = true;
        return true;
    case 'W':
        return tvm_asm_read_barriers(as, r);
    case 'B':
        return tvm_asm_read_typed_shape(as, r) && tvm_asm_plain_order(as, r);
    case 'S':
        return tvm_asm_read_shared_layout(as, r);
    case 'H':
        return read_type_word(as, r, tvm_words_of(desc->kind));
    default:
        return read_word(as, r, tvm_words_of(desc->kind));
    }
}

bool tvm_asm_leave_out(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    if (desc->kind == 'A' && !desc->optional) {
        r->extents_follow = true;
        return default_tile(as, r);
    }
    if (desc->kind == 'P' || desc->kind == 'Z') return true; /* linear; as in what is viewed */
    if (desc->kind == 'X') return tvm_asm_leave_out_view_extents(as, r);
    if (desc->kind == 'V') return push(as, r, TVM_OPERAND_CONST, 0);
    if (desc->kind == 'L' && !desc->optional)
        return tvm_asm_loads_beside(as, r) ? layout_beside(as, r) : open_tile(as, r);
    if (!desc->stored) return default_layout(as, r, desc->kind);
    return push(as, r, TVM_OPERAND_NONE, 0);
}
