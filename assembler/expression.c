/* The grammar of expressions: precedence climbing over the operators of expr.def. Values are computed as they
 * are read; what depends on run-time scalars becomes nodes of the kernel. */
#include "expressions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "builtins.h"
#include "cursor.h"
#include "foreign.h"
#include "language.h"
#include "layout_builtins.h"
#include "let.h"
#include "names.h"
#include "nested.h"
#include "operators.h"
#include "parts.h"
#include "report.h"
#include "result.h"
#include "scalars.h"
#include "suggest.h"
#include "table.h"
#include "variables.h"

static bool same(const char *text, size_t length, const char *other) {
    return strlen(other) == length && memcmp(text, other, length) == 0;
}

static bool climb(tvm_asm *as, unsigned least, tvm_value *value);

static bool enter(tvm_asm *as) {
    if (++as->text.nesting <= TVM_ASM_NESTING) return true;
    return tvm_asm_error(as, tvm_asm_peek(as), NULL, "expression nested deeper than %d", TVM_ASM_NESTING);
}

/* ---- primaries ---- */

static bool parenthesis(tvm_asm *as, tvm_value *value) {
    tvm_asm_next(as);
    return climb(as, 0, value) && tvm_asm_expect(as, ")", "after the expression");
}

bool tvm_asm_list(tvm_asm *as, const char *close, tvm_value *list) {
    tvm_value *items = NULL;
    uint32_t count = 0, capacity = 0;
    if (!tvm_asm_accept(as, close)) {
        do {
            if (count && tvm_asm_at(as, close)) break; /* trailing comma */
            if (count == capacity) {
                if (count >= TVM_ASM_LIST)
                    return tvm_asm_error(as, tvm_asm_peek(as), NULL, "more than %d items", TVM_ASM_LIST);
                capacity = capacity ? capacity * 2 : 4;
                tvm_value *more = tvm_arena_alloc(&as->scratch, capacity * sizeof *more);
                if (!more) return tvm_asm_no_memory(as);
                if (count) memcpy(more, items, count * sizeof *items);
                items = more;
            }
            if (!climb(as, 0, &items[count]) || !tvm_asm_settle(as, &items[count])) return false;
            count++;
        } while (tvm_asm_accept(as, ","));
        char where[32];
        snprintf(where, sizeof where, "or ',' after item %u", count);
        if (!tvm_asm_expect(as, close, where)) return false;
    }
    *list = (tvm_value){.kind = TVM_VALUE_LIST, .as.list = {items, count}};
    return true;
}

static bool is_macro(const tvm_asm *as, const char *name, uint32_t length) {
    const tvm_symbol *symbol = tvm_symbols_find(&as->statics.names, name, length);
    return symbol && symbol->value.kind == TVM_VALUE_MACRO;
}

static bool call(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length, tvm_value *value) {
    tvm_value list;
    bool known = false;
    tvm_asm_next(as); /* the parenthesis */
    if (!tvm_asm_list(as, ")", &list)) return false;
    tvm_call made = {token, name, length, list.as.list.items, list.as.list.count};
    for (uint32_t i = 0; i < made.count; i++) {
        if (made.args[i].kind != TVM_VALUE_POISON) continue;
        *value = tvm_value_poison();
        return true;
    }
    if (is_macro(as, name, length))
        return tvm_asm_error(as, token, NULL, "'%.*s' is a macro: a call of it is a statement", (int)length,
                             name);
    if (!tvm_asm_call(as, &made, value, &known)) return false;
    if (known) return true;
    tvm_suggest suggest;
    tvm_suggest_start(&suggest, name, length);
    tvm_suggest_offer_all(&suggest, tvm_asm_function_name);
    const char *foreign = tvm_foreign_hint(name, length);
    return tvm_asm_error(as, token, foreign ? foreign : TVM_SUGGEST_HINT(&suggest, ""),
                         "unknown function '%.*s'", (int)length, name);
}

/* block.x and its kin, at the word. */
static bool block_or_grid(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_expr_op op = tvm_asm_is(as, token, "block") ? TVM_EXPR_BLOCK : TVM_EXPR_GRID;
    tvm_asm_next(as); /* the dot */
    const tvm_token *axis = tvm_asm_next(as);
    const char *text = tvm_token_text(as->text.source, axis);
    if (axis->kind != TVM_TOKEN_NAME || axis->length != 1 || text[0] < 'x' || text[0] > 'z')
        return tvm_asm_error(as, axis, NULL, "expected x, y or z after '%s.'",
                             op == TVM_EXPR_BLOCK ? "block" : "grid");
    if (!as->kernel.begun)
        return tvm_asm_error(as, token, NULL, "the block index has a value only in a kernel");
    tvm_expr node = {.op = (uint8_t)op, .type = TVM_I(32), .a = (uint32_t)(text[0] - 'x')};
    return tvm_asm_node(as, token, &node, value);
}

/* The block's index in its cluster along an axis: block.x % 2. */
static bool index_in_cluster(tvm_asm *as, const tvm_token *token, unsigned axis, tvm_value *value) {
    const tvm_expr node = {.op = TVM_EXPR_BLOCK, .type = TVM_I(32), .a = axis};
    const tvm_value extent = tvm_value_integer(tvm_asm_kernel(as)->cluster[axis]);
    tvm_value block;
    if (extent.as.i == 1) {
        *value = tvm_value_integer(0);
        return true;
    }
    return tvm_asm_node(as, token, &node, &block) &&
           tvm_asm_binary(as, TVM_EXPR_MOD, token, &block, &extent, value);
}

/* x + X * (y + Y * z) */
static bool rank_in_cluster(tvm_asm *as, const tvm_token *token, tvm_value *value) {
    *value = tvm_value_integer(0);
    for (unsigned axis = 3; axis-- > 0;) {
        const tvm_value extent = tvm_value_integer(tvm_asm_kernel(as)->cluster[axis]);
        tvm_value index, scaled;
        if (extent.as.i == 1) continue;
        if (!index_in_cluster(as, token, axis, &index) ||
            !tvm_asm_binary(as, TVM_EXPR_MUL, token, value, &extent, &scaled) ||
            !tvm_asm_binary(as, TVM_EXPR_ADD, token, &index, &scaled, value))
            return false;
    }
    return true;
}

/* cluster.x and its kin, and cluster.rank, at the word: expressions of the block's index. */
static bool of_cluster(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_asm_next(as); /* the dot */
    const tvm_token *what = tvm_asm_next(as);
    const char *text = tvm_token_text(as->text.source, what);
    if (!as->kernel.begun || as->kernel.is_entry)
        return tvm_asm_error(as, token, NULL, "the place in a cluster has a value only in a kernel");
    if (tvm_asm_is(as, what, "rank")) return rank_in_cluster(as, token, value);
    if (what->kind != TVM_TOKEN_NAME || what->length != 1 || text[0] < 'x' || text[0] > 'z')
        return tvm_asm_error(as, what, NULL, "expected x, y, z or rank after 'cluster.'");
    return index_in_cluster(as, token, (unsigned)(text[0] - 'x'), value);
}

/* multiprocessors, target: what a launch knows of the device. */
static bool of_device(tvm_asm *as, tvm_expr_op op, tvm_value *value) {
    const tvm_token *token = tvm_asm_next(as);
    if (!as->kernel.begun)
        return tvm_asm_error(as, token, NULL, "%s%s has a value only in a kernel",
                             op == TVM_EXPR_MULTIPROCESSORS ? "the number of " : "",
                             tvm_expr_op_info(op)->text);
    const tvm_expr node = {.op = (uint8_t)op, .type = TVM_I(32)};
    return tvm_asm_node(as, token, &node, value);
}

/* has(wgmma), limit(shared_memory): what a launch knows of the target, at the word. */
static bool of_target(tvm_asm *as, tvm_expr_op op, tvm_value *value) {
    const char *(*name_of)(size_t number) = op == TVM_EXPR_HAS ? tvm_capability_name : tvm_limit_name;
    const tvm_token *token = tvm_asm_next(as);
    tvm_asm_next(as); /* the parenthesis */
    const tvm_token *word = tvm_asm_next(as);
    tvm_expr node = {.op = (uint8_t)op, .type = op == TVM_EXPR_HAS ? TVM_BOOL : TVM_I(32)};
    const char *name = NULL, *text = tvm_token_text(as->text.source, word);
    tvm_suggest suggest;
    if (as->text.version < TVM_LANGUAGE_OF_TRAITS)
        return tvm_asm_error(as, token, NULL, "'%s' needs '.vasm %d'", tvm_expr_op_info(op)->text,
                             TVM_LANGUAGE_OF_TRAITS);
    if (!as->kernel.begun)
        return tvm_asm_error(as, token, NULL, "%s(...) has a value only in a kernel",
                             tvm_expr_op_info(op)->text);
    tvm_suggest_start(&suggest, text, word->length);
    while ((name = name_of(node.a)) && !(word->kind == TVM_TOKEN_NAME && same(text, word->length, name))) {
        tvm_suggest_offer(&suggest, name, strlen(name));
        node.a++;
    }
    if (!name)
        return tvm_asm_error(as, word, TVM_SUGGEST_HINT(&suggest, ""), "there is no %s '%.*s'",
                             op == TVM_EXPR_HAS ? "capability" : "limit", (int)word->length, text);
    return tvm_asm_expect(as, ")", "after the name") && tvm_asm_node(as, token, &node, value);
}

/* The longest `name.name.name` at the cursor that is an atom; false when there is none. */
static bool atom(tvm_asm *as, tvm_value *value) {
    char text[64];
    size_t length = 0;
    uint32_t best = 0;
    tvm_layout layout;
    tvm_why why;
    for (uint32_t i = 0;; i += 2) {
        const tvm_token *token = tvm_asm_ahead(as, i);
        if (token->kind != TVM_TOKEN_NAME || token->pasted || length + token->length + 2 > sizeof text) break;
        memcpy(text + length, tvm_token_text(as->text.source, token), token->length);
        length += token->length;
        tvm_layout found;
        if (tvm_layout_atom(text, length, &found, &why) == TVM_OK) {
            best = i + 1;
            layout = found;
        }
        if (!tvm_asm_is(as, tvm_asm_ahead(as, i + 1), ".")) break;
        text[length++] = '.';
    }
    if (!best) return false;
    for (uint32_t i = 0; i < best; i++) tvm_asm_next(as);
    *value = tvm_value_layout(&as->scratch, &layout);
    return true;
}

static bool word_value(const char *name, size_t length, tvm_value *value) {
    if (same(name, length, "true") || same(name, length, "false")) {
        *value = tvm_value_bool(length == 4);
    } else if (same(name, length, "inf")) {
        *value = tvm_value_float(INFINITY);
    } else if (same(name, length, "nan")) {
        *value = tvm_value_float(NAN);
    } else if (same(name, length, "row_major")) {
        *value = (tvm_value){.kind = TVM_VALUE_ROW_MAJOR};
    } else {
        return false;
    }
    return true;
}

bool tvm_asm_unknown_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    tvm_suggest suggest;
    char hint[96];
    if (as->kernel.begun && tvm_asm_find_slot(as, name, length)) {
        snprintf(hint, sizeof hint, "local variables are written '%%%.*s'", length > 40 ? 40 : (int)length,
                 name);
        return tvm_asm_error(as, token, hint, "'%.*s' is not defined", (int)length, name);
    }
    if (as->text.left_out) return false;
    tvm_suggest_start(&suggest, name, length);
    /* In a signature, those that are known there. */
    for (uint32_t i = 0;
         i < as->statics.names.count && (!as->statics.names.limit || i + 1 < as->statics.names.limit); i++)
        if (as->statics.names.items[i].line)
            tvm_suggest_offer(&suggest, as->statics.names.items[i].name, as->statics.names.items[i].length);
    for (uint32_t i = 0; as->kernel.begun && i < as->kernel.parameters.count; i++)
        tvm_suggest_offer(&suggest, as->kernel.parameters.items[i].name,
                          as->kernel.parameters.items[i].length);
    tvm_asm_offer_types(&suggest);
    tvm_suggest_offer_all(&suggest, tvm_layout_atom_name);
    const char *dot = memchr(name, '.', length);
    const char *foreign = tvm_foreign_hint(name, dot ? (size_t)(dot - name) : length);
    tvm_asm_error(as, token, foreign ? foreign : tvm_suggest_hint(&suggest, "", hint),
                  "'%.*s' is not defined", length > 80 ? 80 : (int)length, name);
    tvm_asm_poison_name(as, name, length); /* one error a name is enough */
    return false;
}

/* A dotted word that looks like an atom, for the message: the cursor is at its first name. */
static bool unknown_dotted(tvm_asm *as) {
    const tvm_token *first = tvm_asm_peek(as);
    const tvm_token *last = first;
    for (uint32_t i = 1; tvm_asm_is(as, tvm_asm_ahead(as, i), ".") &&
                         tvm_asm_ahead(as, i + 1)->kind == TVM_TOKEN_NAME && i < 8;
         i += 2)
        last = tvm_asm_ahead(as, i + 1);
    uint32_t length = last->offset + last->length - first->offset;
    return tvm_asm_unknown_name(as, first, tvm_token_text(as->text.source, first), length);
}

/* A name that no parenthesis follows. */
static bool named_value(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        tvm_value *value) {
    const tvm_symbol *symbol = tvm_symbols_find(&as->statics.names, name, length);
    if (symbol) {
        tvm_asm_next(as);
        *value = symbol->value;
        if (value->kind == TVM_VALUE_LET) return tvm_asm_let_value(as, token, &symbol->value, value);
        return tvm_asm_members(as, value);
    }
    const tvm_symbol *parameter = tvm_asm_find_parameter(as, name, length);
    if (parameter) {
        tvm_asm_next(as);
        return tvm_asm_slot_value(as, token, parameter->slot, name, length, value);
    }
    tvm_dtype type;
    if (tvm_dtype_parse(name, length, &type)) {
        tvm_asm_next(as);
        *value = tvm_value_dtype(type);
        return true;
    }
    if (word_value(name, length, value)) {
        tvm_asm_next(as);
        return true;
    }
    if (atom(as, value)) return true;
    return token->pasted ? tvm_asm_unknown_name(as, token, name, length) : unknown_dotted(as);
}

/* role.index: which of the role's teams runs the code. */
static bool role_index(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_asm_next(as); /* the dot */
    tvm_asm_next(as);
    if (!as->kernel.begun || as->kernel.role == TVM_NONE)
        return tvm_asm_error(as, token, NULL, "role.index has a value only in a role");
    const tvm_expr node = {.op = TVM_EXPR_SLOT, .type = TVM_I(32), .a = as->kernel.role};
    return tvm_asm_node(as, token, &node, value);
}

static bool name_primary(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_peek(as), *after = tvm_asm_ahead(as, 1);
    if (tvm_asm_is(as, after, ".") && (tvm_asm_is(as, token, "block") || tvm_asm_is(as, token, "grid")))
        return block_or_grid(as, value);
    if (as->text.version >= 3 && tvm_asm_is(as, token, "role") && tvm_asm_is(as, after, ".") &&
        tvm_asm_is(as, tvm_asm_ahead(as, 2), "index"))
        return role_index(as, value);
    if (tvm_asm_is(as, after, ".") && tvm_asm_is(as, token, "cluster") &&
        as->kernel.version >= TVM_LANGUAGE_OF_CLUSTERS)
        return of_cluster(as, value);
    if (tvm_asm_is(as, token, tvm_expr_op_info(TVM_EXPR_MULTIPROCESSORS)->text))
        return of_device(as, TVM_EXPR_MULTIPROCESSORS, value);
    if (tvm_asm_is(as, token, tvm_expr_op_info(TVM_EXPR_TARGET)->text))
        return of_device(as, TVM_EXPR_TARGET, value);
    const char *name;
    uint32_t length;
    if (!tvm_asm_name(as, token, &name, &length)) return false;
    for (unsigned op = TVM_EXPR_HAS; op <= TVM_EXPR_LIMIT && tvm_asm_is(as, after, "("); op++)
        if (same(name, length, tvm_expr_op_info(op)->text) &&
            !tvm_symbols_find(&as->statics.names, name, length))
            return of_target(as, (tvm_expr_op)op, value);
    if (tvm_asm_is(as, token, "column") && tvm_asm_is(as, after, "-") && after->adjacent &&
        tvm_asm_is(as, tvm_asm_ahead(as, 3), "(")) {
        const tvm_token *kind = tvm_asm_ahead(as, 2);
        if (tvm_asm_is(as, kind, "local") || tvm_asm_is(as, kind, "spatial")) {
            name = tvm_asm_is(as, kind, "local") ? "column_local" : "column_spatial";
            for (unsigned i = 0; i < 3; i++) tvm_asm_next(as);
            return call(as, token, name, (uint32_t)strlen(name), value);
        }
    }
    uint32_t tokens;
    unsigned word;
    if (tvm_asm_at_reduction(as, &word)) return tvm_asm_reduction(as, word, value);
    if (tvm_asm_at_nested(as, &tokens)) return tvm_asm_nested(as, value);
    if (tvm_asm_is(as, after, "(")) {
        tvm_asm_next(as);
        return call(as, token, name, length, value);
    }
    return named_value(as, token, name, length, value);
}

static bool local_slot(tvm_asm *as, tvm_value *value) {
    const char *name;
    uint32_t length;
    tvm_asm_next(as);
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_read_name(as, true, &name, &length)) return false;
    if (!as->kernel.begun) return tvm_asm_error(as, token, NULL, "variables exist only in a kernel");
    const tvm_symbol *symbol = tvm_asm_find_local(as, name, length);
    return tvm_asm_slot_value(as, token, symbol ? symbol->slot : TVM_MAX_SLOTS, name, length, value);
}

static bool integer_literal(const tvm_token *token, tvm_value *value) {
    *value = tvm_value_integer((int64_t)token->value.u);
    if (token->value.u > INT64_MAX) value->type = TVM_U(64);
    return true;
}

static bool simple_primary(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_peek(as);
    switch (token->kind) {
    case TVM_TOKEN_INTEGER:
        return integer_literal(tvm_asm_next(as), value);
    case TVM_TOKEN_FLOAT:
        *value = tvm_value_float(tvm_asm_next(as)->value.f);
        return true;
    case TVM_TOKEN_STRING:
        return tvm_asm_string(as, tvm_asm_next(as), value);
    case TVM_TOKEN_NAME:
        return name_primary(as, value);
    default:
        break;
    }
    if (tvm_asm_at(as, "(")) return parenthesis(as, value);
    if (tvm_asm_accept(as, "[")) return tvm_asm_list(as, "]", value);
    if (tvm_asm_at_local(as)) return local_slot(as, value);
    return tvm_asm_expected(as, token, NULL, "an expression");
}

static bool primary(tvm_asm *as, tvm_value *value) {
    if (!enter(as)) return false;
    bool good = simple_primary(as, value);
    while (good && tvm_asm_at(as, ".")) {
        const tvm_token *dot = tvm_asm_next(as);
        tvm_value inner;
        good = simple_primary(as, &inner) && tvm_asm_compose(as, dot, value, &inner, value);
    }
    as->text.nesting--;
    return good;
}

/* ---- operators ---- */

/* What a tensor in memory that is indexed as an array stands for. */
static const char *memory_hint(const tvm_value *value) {
    bool tensor = value->kind == TVM_VALUE_TENSOR;
    if (tensor && value->as.tensor.kind == TVM_SLOT_GLOBAL)
        return "'load-global(x[0, 0], [4, 8])' is a tile of it, 'load-scalar(x[0, 0])' an element";
    if (tensor && value->as.tensor.kind == TVM_SLOT_SHARED)
        return "'load-shared(%s[0, 0], [4, 8])' is a tile of it, 'load-scalar(%s[0, 0])' an element";
    return NULL;
}

/* `list[i]`, or a part of a tensor. */
static bool subscript(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_next(as);
    tvm_value index;
    if (value->kind == TVM_VALUE_TENSOR && value->as.tensor.kind == TVM_SLOT_REGISTER) {
        if (as->text.version >= TVM_LANGUAGE_OF_TENSORS) return tvm_asm_part(as, token, value);
        return tvm_asm_error(as, token, "write '.vasm 7'",
                             "parts of register tensors came with version 7 of the language");
    }
    if (!climb(as, 0, &index) || !tvm_asm_expect(as, "]", "after the index")) return false;
    if (value->kind == TVM_VALUE_POISON || index.kind == TVM_VALUE_POISON) {
        *value = tvm_value_poison();
        return true;
    }
    if (value->kind != TVM_VALUE_LIST)
        return tvm_asm_error(as, token, memory_hint(value), "only a list is indexed in an expression, not %s",
                             tvm_value_what(value));
    if (index.kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, token, NULL, "the index of a list is a static integer, not %s",
                             tvm_value_what(&index));
    if (index.as.i < 0 || index.as.i >= value->as.list.count)
        return tvm_asm_invalid(as, token, NULL, "index %lld is outside of a list of %u items",
                               (long long)index.as.i, value->as.list.count);
    *value = value->as.list.items[index.as.i];
    return true;
}

/* Is a token, whose text begins with `first`, the operator? Asked of nearly all operators at each operand. */
static bool is_operator(const tvm_asm *as, const tvm_token *token, char first, const tvm_expr_info *info) {
    return info->text[0] == first && tvm_asm_is(as, token, info->text);
}

static bool unary(tvm_asm *as, tvm_value *value) {
    const tvm_token *token = tvm_asm_peek(as);
    const char first = token->kind == TVM_TOKEN_SIGN ? *tvm_token_text(as->text.source, token) : '\0';
    for (unsigned op = 0; first && op < TVM_EXPR_COUNT; op++) {
        const tvm_expr_info *info = tvm_expr_op_info(op);
        if (info->arity != 1 || !is_operator(as, token, first, info)) continue;
        tvm_value operand;
        tvm_asm_next(as);
        if (!enter(as) || !unary(as, &operand)) return false;
        as->text.nesting--;
        return tvm_asm_unary(as, (tvm_expr_op)op, token, &operand, value);
    }
    if (!primary(as, value)) return false;
    while (tvm_asm_at(as, "["))
        if (!subscript(as, value)) return false;
    return true;
}

/* The operator of two or three operands that the token is, or TVM_EXPR_COUNT. */
static unsigned infix(const tvm_asm *as, const tvm_token *token) {
    if (token->kind != TVM_TOKEN_SIGN) return TVM_EXPR_COUNT;
    const char first = *tvm_token_text(as->text.source, token);
    for (unsigned op = 0; op < TVM_EXPR_COUNT; op++) {
        const tvm_expr_info *info = tvm_expr_op_info(op);
        if (info->arity >= 2 && is_operator(as, token, first, info)) return op;
    }
    return TVM_EXPR_COUNT;
}

static bool is_operand_end(const tvm_asm *as, const tvm_token *token) {
    return token->kind != TVM_TOKEN_SIGN || tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]");
}

/* Past the branch of a conditional that is not taken: it may be what has no value there, as a division by
 * zero. */
static bool skip_branch(tvm_asm *as, tvm_value *value) {
    const tvm_token *first = tvm_asm_peek(as);
    unsigned depth = 0, conditionals = 0;
    for (bool operand = false; !tvm_asm_at_end(as);) {
        const tvm_token *token = tvm_asm_peek(as);
        bool closes = tvm_asm_at(as, ")") || tvm_asm_at(as, "]");
        if (!depth) {
            if (closes || tvm_asm_at(as, ",") || (operand && token->kind != TVM_TOKEN_SIGN)) break;
            if (tvm_asm_at(as, ":") && !conditionals--) break;
            if (tvm_asm_at(as, "?")) conditionals++;
        }
        if (closes) depth--;
        if (tvm_asm_at(as, "(") || tvm_asm_at(as, "[")) depth++;
        operand = is_operand_end(as, tvm_asm_next(as));
    }
    *value = tvm_value_poison();
    return tvm_asm_peek(as) != first || primary(as, value); /* which says what is missing */
}

static bool conditional(tvm_asm *as, const tvm_token *token, tvm_value *value) {
    if (!tvm_asm_settle(as, value)) return false;
    tvm_value condition = *value, yes, no;
    unsigned precedence = tvm_expr_op_info(TVM_EXPR_SELECT)->precedence;
    bool decided = tvm_value_is_number(&condition) && condition.kind != TVM_VALUE_FLOAT;
    bool taken = decided && condition.as.i;
    if (!(decided && !taken ? skip_branch(as, &yes) : climb(as, 0, &yes)) ||
        !tvm_asm_expect(as, ":", "of the conditional '?'"))
        return false;
    if (!(taken ? skip_branch(as, &no) : climb(as, precedence, &no))) return false;
    return tvm_asm_select(as, token, &condition, &yes, &no, value);
}

static bool climb(tvm_asm *as, unsigned least, tvm_value *value) {
    if (!enter(as) || !unary(as, value)) return false;
    for (;;) {
        const tvm_token *token = tvm_asm_peek(as);
        unsigned op = infix(as, token);
        if (op == TVM_EXPR_COUNT || tvm_expr_op_info(op)->precedence < least) break;
        tvm_asm_next(as);
        if (op == TVM_EXPR_SELECT) {
            if (!conditional(as, token, value)) return false;
            continue;
        }
        if (!tvm_asm_settle(as, value)) return false;
        tvm_value left = *value, right;
        uint32_t beside = as->statement.beside;
        if (left.kind == TVM_VALUE_TENSOR && left.as.tensor.kind == TVM_SLOT_REGISTER)
            as->statement.beside = left.as.tensor.slot + 1;
        if (!climb(as, tvm_expr_op_info(op)->precedence + 1, &right)) return false;
        as->statement.beside = beside;
        if (!tvm_asm_binary(as, (tvm_expr_op)op, token, &left, &right, value)) return false;
    }
    as->text.nesting--;
    return true;
}

bool tvm_asm_expression(tvm_asm *as, tvm_value *value) {
    return climb(as, 0, value);
}

bool tvm_asm_static(tvm_asm *as, const char *what, tvm_value *value) {
    const tvm_token *token = tvm_asm_peek(as);
    as->text.constants++;
    bool good = tvm_asm_expression(as, value);
    as->text.constants--;
    if (!good) return false;
    if (tvm_value_is_static(value)) return true;
    return tvm_asm_error(as, token, NULL, "%s must be known when the program is assembled", what);
}

bool tvm_asm_static_integer(tvm_asm *as, int64_t least, int64_t most, const char *what, int64_t *result) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    if (!tvm_asm_static(as, what, &value)) return false;
    if (value.kind == TVM_VALUE_POISON) return false;
    if (value.kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, token, NULL, "%s is an integer, not %s", what, tvm_value_what(&value));
    if (value.as.i < least || value.as.i > most)
        return tvm_asm_invalid(as, token, NULL, "%s is from %lld to %lld, not %lld", what, (long long)least,
                               (long long)most, (long long)value.as.i);
    *result = value.as.i;
    return true;
}

bool tvm_asm_condition(tvm_asm *as, const char *what, bool *holds) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value, truth;
    if (!tvm_asm_static(as, what, &value) || !tvm_asm_to_bool(as, token, &value, &truth)) return false;
    *holds = truth.kind != TVM_VALUE_POISON && truth.as.i;
    return truth.kind != TVM_VALUE_POISON;
}

bool tvm_asm_type(tvm_asm *as, tvm_dtype *type) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *text = tvm_token_text(as->text.source, token);
    tvm_value value;
    /* The name of a type means the type here, even where a parameter is called so. */
    if (token->kind == TVM_TOKEN_NAME && !token->pasted &&
        !tvm_symbols_find(&as->statics.names, text, token->length) &&
        tvm_dtype_parse(text, token->length, type)) {
        tvm_asm_next(as);
        return true;
    }
    if (!primary(as, &value) || value.kind == TVM_VALUE_POISON) return false;
    if (value.kind != TVM_VALUE_DTYPE)
        return tvm_asm_error(as, token, NULL, "expected a type, found %s", tvm_value_what(&value));
    *type = value.type;
    return true;
}

bool tvm_asm_expression_of_text(tvm_asm *as, const char *name, const char *text, size_t length,
                                tvm_value *value) {
    unsigned errors = 0;
    tvm_source *source = tvm_source_new(name, text, length, as->report.muted ? 0 : TVM_ASM_ERRORS, &errors,
                                        as->report.muted ? NULL : as->report.diags);
    if (!source) return tvm_asm_no_memory(as);
    const tvm_source *outer = as->text.source;
    uint32_t at = as->text.at;
    unsigned nesting = as->text.nesting;
    as->text.source = source;
    as->text.at = 0;
    bool good = !errors && climb(as, 0, value) && tvm_asm_expect_end(as);
    if (errors && as->report.status == TVM_OK) as->report.status = TVM_SYNTAX;
    as->report.errors += errors;
    as->text.source = outer;
    as->text.at = at;
    as->text.nesting = nesting;
    tvm_source_free(source);
    return good;
}
