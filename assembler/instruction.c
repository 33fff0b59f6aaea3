/* Instructions, read by the operand list of their row of the opcode table. */
#include "instruction.h"

#include <limits.h>
#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "functions.h"
#include "head.h"
#include "language.h"
#include "operand.h"
#include "report.h"
#include "result.h"
#include "scalars.h"
#include "variables.h"

/* ---- which one it is ---- */

/* A token of a hyphenated word after its first. */
static bool joins(const tvm_asm *as, uint32_t distance) {
    const tvm_token *hyphen = tvm_asm_ahead(as, distance), *name = tvm_asm_ahead(as, distance + 1);
    return tvm_asm_is(as, hyphen, "-") && hyphen->adjacent && name->kind == TVM_TOKEN_NAME && name->adjacent;
}

uint32_t tvm_asm_word(const tvm_asm *as, const char **text, uint32_t *length) {
    const tvm_token *first = tvm_asm_peek(as), *last = first;
    uint32_t count = 1;
    while (count < 16 && joins(as, count)) {
        last = tvm_asm_ahead(as, count + 1);
        count += 2;
    }
    *text = tvm_token_text(as->text.source, first);
    *length = last->offset + last->length - first->offset;
    return count;
}

unsigned tvm_asm_mnemonic(const tvm_asm *as, uint32_t *tokens) {
    const char *text;
    uint32_t length;
    if (tvm_asm_peek(as)->kind != TVM_TOKEN_NAME) return TVM_OP_COUNT;
    for (uint32_t count = tvm_asm_word(as, &text, &length); count; count = count > 2 ? count - 2 : 0) {
        const tvm_token *last = tvm_asm_ahead(as, count - 1);
        length = last->offset + last->length - tvm_asm_peek(as)->offset;
        unsigned op = tvm_op_by_name(text, length);
        *tokens = count;
        if (op == TVM_OP_COUNT) continue;
        if (tvm_op(op)->since <= as->text.version) return op;
        if (tvm_op(op)->result == TVM_SLOT_NONE) return TVM_OP_COUNT; /* no shorter one is meant */
    }
    return TVM_OP_COUNT;
}

/* ---- operands ---- */

static bool is_optional(const tvm_operand_desc *desc) {
    return desc->optional || desc->kind == 'A' || desc->kind == 'X';
}

/* operand [if condition]: where it does not hold the operand is left out. */
static bool read_optional(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    const tvm_reading before = *r;
    bool holds;
    if (!tvm_asm_read_operand(as, r, desc)) return false;
    if (!tvm_asm_accept(as, "if")) return true;
    if (!tvm_asm_condition(as, "the condition of an operand", &holds)) return false;
    if (holds) return true;
    *r = before;
    return tvm_asm_leave_out(as, r, desc);
}

static bool at_operand_end(const tvm_asm *as, const tvm_reading *r) {
    return tvm_asm_at_end(as) || (r->nested && tvm_asm_at(as, ")"));
}

/* May the operand be missing, and is it? A name of another operand in its place says so, too. */
static bool is_left_out(const tvm_asm *as, const tvm_reading *r, const tvm_operand_desc *desc,
                        const char *rest) {
    bool follows = desc->kind == 'L' && (as->text.version >= 3 || tvm_asm_loads_beside(as, r));
    if (!desc->optional && desc->kind != 'A' && desc->kind != 'X' && desc->kind != 'V' && !follows)
        return false;
    if (at_operand_end(as, r)) return true;
    tvm_operand_desc later;
    while (tvm_operand_next(&rest, &later))
        if (later.optional && tvm_asm_operand_named(as, &later)) return true;
    return false;
}

/* ---- operands by their names, in any order ---- */

/* What has been read before its place in the text came: tokens [from, to). */
typedef struct read_ahead {
    uint32_t from[TVM_INSN_OPERANDS], to[TVM_INSN_OPERANDS];
    unsigned count;
} read_ahead;

/* Is the cursor at the name of an operand of the row other than this one? */
static bool at_another(const tvm_asm *as, const tvm_reading *r, const tvm_operand_desc *desc) {
    const char *cursor = r->info->operands;
    tvm_operand_desc other;
    if (tvm_asm_peek(as)->kind != TVM_TOKEN_NAME || tvm_asm_operand_named(as, desc)) return false;
    while (tvm_operand_next(&cursor, &other))
        if (other.name != desc->name && tvm_asm_operand_named(as, &other)) return true;
    return false;
}

/* Moves the cursor to the operand's name, behind a comma of the same statement; false: it is not there. */
static bool find_named(tvm_asm *as, const tvm_operand_desc *desc) {
    const uint32_t from = as->text.at;
    for (unsigned depth = 0;; as->text.at++) {
        const tvm_token *token = tvm_asm_peek(as);
        bool closes = tvm_asm_is(as, token, ")") || tvm_asm_is(as, token, "]");
        if (token->kind == TVM_TOKEN_NEWLINE || token->kind == TVM_TOKEN_END || (closes && !depth)) break;
        depth = depth + (tvm_asm_is(as, token, "(") || tvm_asm_is(as, token, "[")) - closes;
        if (depth || !tvm_asm_is(as, token, ",")) continue;
        as->text.at++;
        if (tvm_asm_operand_named(as, desc)) return true;
        as->text.at--;
    }
    as->text.at = from;
    return false;
}

/* Skips what has been read, with the comma behind it. */
static void skip_read(tvm_asm *as, const read_ahead *ahead) {
    for (unsigned i = 0; i < ahead->count; i++) {
        if (ahead->from[i] != as->text.at) continue;
        as->text.at = ahead->to[i];
        if (!tvm_asm_accept(as, ",")) return;
        i = UINT_MAX; /* from the first one again */
    }
}

static bool read_named(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc) {
    if (desc->optional && desc->since > as->text.version)
        return tvm_asm_error(as, tvm_asm_peek(as), "write '.vasm' with that version",
                             "'%.*s' of %s came with version %u of the language", (int)desc->name_length,
                             desc->name, r->info->mnemonic, desc->since);
    if (desc->kind != 'F' && desc->kind != 'U' && tvm_asm_operand_named(as, desc)) tvm_asm_next(as);
    return (is_optional(desc) ? read_optional : tvm_asm_read_operand)(as, r, desc);
}

/* Where another operand's name stands in this one's place, and its own further on, reads it there. *done:
 * that is so. */
static bool read_further_on(tvm_asm *as, tvm_reading *r, const tvm_operand_desc *desc, read_ahead *ahead,
                            bool *done) {
    const uint32_t here = as->text.at;
    *done = as->text.version >= TVM_LANGUAGE_OF_TENSORS && desc->kind != 'V' && at_another(as, r, desc) &&
            ahead->count < TVM_INSN_OPERANDS && find_named(as, desc);
    if (!*done) return true;
    const uint32_t from = as->text.at;
    if (!read_named(as, r, desc)) return false;
    if (!at_operand_end(as, r) && !tvm_asm_at(as, ","))
        return tvm_asm_expected(as, tvm_asm_peek(as), NULL, "',' behind '%.*s' of %s", (int)desc->name_length,
                                desc->name, r->info->mnemonic);
    ahead->from[ahead->count] = from;
    ahead->to[ahead->count++] = as->text.at;
    as->text.at = here;
    return true;
}

/* word: the first operand, which is not written here; poison: it is. */
static bool read_operands(tvm_asm *as, tvm_reading *r, tvm_value word) {
    const char *cursor = r->info->operands;
    tvm_operand_desc desc;
    read_ahead ahead = {.count = 0};
    char before = 0;
    bool comma = true; /* nothing stands before the next operand but a comma or the mnemonic */
    if (word.kind != TVM_VALUE_POISON &&
        !(tvm_operand_next(&cursor, &desc) && tvm_asm_push_given(as, r, &desc, r->token, &word)))
        return false;
    while (tvm_operand_next(&cursor, &desc)) {
        bool done;
        if (!comma) comma = tvm_asm_accept(as, ",") || tvm_words_of(before) != NULL;
        if (comma) skip_read(as, &ahead);
        if (comma && !read_further_on(as, r, &desc, &ahead, &done)) return false;
        if (comma && done) continue;
        if (is_left_out(as, r, &desc, cursor)) {
            if (!tvm_asm_leave_out(as, r, &desc)) return false;
            continue;
        }
        if (!comma)
            return tvm_asm_expected(as, tvm_asm_peek(as), NULL, "',' and '%.*s' of %s", (int)desc.name_length,
                                    desc.name, r->info->mnemonic);
        if (!read_named(as, r, &desc)) return false;
        comma = false;
        before = desc.kind;
    }
    if (ahead.count && (comma || tvm_asm_accept(as, ","))) skip_read(as, &ahead);
    return r->nested ? tvm_asm_expect(as, ")", "after the operands") : tvm_asm_expect_end(as);
}

/* A literal with a fraction does not become an integer of a tensor unasked; f32(1.5) asks for it. */
static bool check_fraction(tvm_asm *as, const tvm_reading *r, const tvm_deferred *scalar) {
    tvm_dtype element = r->op == TVM_OP_ALLOC_REGISTER ? r->type.dtype : r->element;
    const tvm_value *value = &scalar->value;
    char shown[64];
    if (!scalar->converted || element.kind == TVM_KIND_NONE || element.kind == TVM_KIND_FLOAT) return true;
    if (value->kind != TVM_VALUE_FLOAT || value->type.kind != TVM_KIND_NONE || tvm_is_whole(value->as.f))
        return true;
    return tvm_asm_invalid(as, scalar->token, "'cast(%x, f32)' is the tensor with elements of f32",
                           "%s is no value of %s, which the tensor has", tvm_value_text(value, shown),
                           TVM_DTYPE_TEXT(element));
}

static bool lower_scalars(tvm_asm *as, tvm_reading *r) {
    for (uint32_t i = 0; i < r->scalar_count; i++) {
        const tvm_deferred *scalar = &r->scalars[i];
        tvm_dtype type = tvm_asm_type_of(as, &scalar->value);
        if (!check_fraction(as, r, scalar)) return false;
        if (r->wide && scalar->value.kind == TVM_VALUE_FLOAT && scalar->value.type.kind == TVM_KIND_NONE)
            type = TVM_F64;
        if (!tvm_asm_lower(as, scalar->token, &scalar->value, type, &r->operands[scalar->at].value))
            return false;
    }
    return true;
}

/* ---- =U ---- */

/* Puts the first operand, where that is asked for, into a layout that is inferred, of its elements in a row:
 * so it has every shape. */
static bool relayout_before(tvm_asm *as, tvm_reading *r) {
    if (!r->relayouts) return true;
    const tvm_slot *slot = &tvm_asm_kernel(as)->slots[r->operands[0].value];
    const tvm_layout *layout = &as->program->layouts[slot->layout];
    tvm_value elements = tvm_value_integer(1);
    for (unsigned d = 0; d < layout->rank; d++) elements.as.i *= layout->shape[d];
    tvm_value value = {.kind = TVM_VALUE_TENSOR,
                       .as.tensor = {r->operands[0].value, TVM_SLOT_REGISTER, NULL}};
    tvm_value operands[2] = {value, {.kind = TVM_VALUE_LIST, .as.list = {&elements, 1}}};
    if (layout->rank > 1 && !tvm_asm_tensor_operation(as, TVM_OP_RESHAPE, r->token, operands, 2, &value))
        return false;
    operands[0] = value;
    if (!tvm_asm_tensor_operation(as, TVM_OP_RELAYOUT, r->token, operands, 1, &value) ||
        !tvm_asm_settle(as, &value))
        return false;
    r->operands[0].value = value.as.tensor.slot;
    return true;
}

bool tvm_asm_instruction(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result,
                         const char *result_name, uint32_t result_length) {
    tvm_reading r = {.op = op, .info = tvm_op(op), .token = token, .tile_slot = TVM_NONE};
    r.type.kind = r.info->result;
    r.nested = r.type.kind == TVM_SLOT_SCALAR && tvm_asm_accept(as, "(");
    bool good =
        tvm_asm_check_warps(as, token) && read_operands(as, &r, tvm_value_poison()) &&
        relayout_before(as, &r) && lower_scalars(as, &r) && (!r.nested || tvm_asm_expect_end(as)) &&
        tvm_asm_finish(as, token, op, result, result_name, result_length, r.operands, r.count, &r.type);
    if (!good && result_name) tvm_asm_poison_slot(as, result_name, result_length);
    return good;
}

/* ---- as values ---- */

/* What was read, to be written when it is known where the result goes. */
static bool pending_value(tvm_asm *as, const tvm_reading *r, tvm_value *value) {
    tvm_pending *pending = tvm_arena_alloc(&as->scratch, sizeof *pending);
    tvm_operand *operands = tvm_arena_alloc(&as->scratch, (r->count + 1) * sizeof *operands);
    if (!pending || !operands) return tvm_asm_no_memory(as);
    memcpy(operands, r->operands, r->count * sizeof *operands);
    *pending = (tvm_pending){r->op, r->token, operands, r->count, r->type};
    *value = (tvm_value){.kind = TVM_VALUE_TENSOR, .as.tensor = {TVM_NONE, r->info->result, pending}};
    return true;
}

/* The variable that it is written to. */
static bool written_value(tvm_asm *as, const tvm_reading *r, tvm_value *value) {
    tvm_value pending;
    return pending_value(as, r, &pending) && tvm_asm_settle(as, &pending) &&
           tvm_asm_slot_value(as, r->token, pending.as.tensor.slot, "", 0, value);
}

static tvm_reading reading(unsigned op, const tvm_token *token) {
    tvm_reading r = {.op = op, .info = tvm_op(op), .token = token, .tile_slot = TVM_NONE, .nested = true};
    r.type.kind = r.info->result;
    return r;
}

/* ---- element-wise functions of scalars ---- */

static bool is_of_scalars(const tvm_asm *as, const tvm_reading *r) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->operands[i].kind == TVM_OPERAND_SLOT) return false;
    return tvm_asm_takes_scalars(as, r) && r->scalar_count;
}

/* The type that the scalars have in common. */
static tvm_dtype common_type(const tvm_asm *as, const tvm_reading *r) {
    tvm_value so_far = r->scalars[0].value;
    for (uint32_t i = 1; i < r->scalar_count; i++) {
        tvm_dtype type = tvm_asm_common(as, &so_far, &r->scalars[i].value);
        bool literals = tvm_value_is_literal(&so_far) && tvm_value_is_literal(&r->scalars[i].value);
        if (!literals)
            so_far = (tvm_value){.kind = TVM_VALUE_EXPR, .type = type};
        else if (so_far.kind != TVM_VALUE_FLOAT)
            so_far = r->scalars[i].value;
    }
    return tvm_asm_type_of(as, &so_far);
}

/* A tensor of one element, which is the scalar. */
static bool one_element(tvm_asm *as, const tvm_deferred *scalar, tvm_dtype type, tvm_operand *operand) {
    tvm_reading r = reading(TVM_OP_ALLOC_REGISTER, scalar->token);
    tvm_value tensor;
    tvm_why why;
    r.type.dtype = type;
    r.type.has_layout = true;
    if (tvm_layout_replicated(1, tvm_team_threads(tvm_asm_team(as)), &r.type.layout, &why) != TVM_OK)
        return tvm_asm_invalid(as, scalar->token, NULL, "%s", why.text);
    r.operands[0].kind = TVM_OPERAND_EXPR;
    r.count = 1;
    if (!tvm_asm_lower(as, scalar->token, &scalar->value, type, &r.operands[0].value) ||
        !pending_value(as, &r, &tensor) || !tvm_asm_settle(as, &tensor))
        return false;
    *operand = (tvm_operand){TVM_OPERAND_SLOT, tensor.as.tensor.slot};
    return true;
}

static bool check_scalar_type(tvm_asm *as, const tvm_reading *r, tvm_dtype type) {
    return tvm_op_takes_element(r->info, type) ||
           tvm_asm_invalid(as, r->token, tvm_op_takes_element(r->info, TVM_F32) ? "write f32(...)" : NULL,
                           "%s does not take a scalar of type %s", r->info->mnemonic, TVM_DTYPE_TEXT(type));
}

bool tvm_asm_of_constants(const tvm_asm *as, unsigned op) {
    return as->text.constants && as->text.version >= TVM_LANGUAGE_OF_TENSORS &&
           tvm_op_is_elementwise(tvm_op(op));
}

/* Where the value must be known, and the scalars are: a constant. Literals that have no type are computed
 * with in f64, and the result has none. *done: that is so, or an error. */
static bool fold_constants(tvm_asm *as, const tvm_reading *r, tvm_value *value, bool *done) {
    bool untyped = true, outside = !as->kernel.begun || as->kernel.is_entry;
    double x[2] = {0, 0}, result;
    *done = tvm_asm_of_constants(as, r->op);
    for (uint32_t i = 0; *done && i < r->scalar_count; i++) {
        const tvm_value *scalar = &r->scalars[i].value;
        if (!tvm_value_is_static(scalar) && outside)
            return tvm_asm_error(as, r->scalars[i].token, NULL,
                                 "%s of what is not known when the program is assembled", r->info->mnemonic);
        *done = *done && tvm_value_is_static(scalar);
        untyped = untyped && tvm_value_is_literal(scalar);
    }
    if (!*done) return true;
    tvm_dtype type = common_type(as, r);
    if (!check_scalar_type(as, r, type)) return false;
    if (untyped) type = TVM_F64;
    for (uint32_t i = 0; i < r->scalar_count && i < 2; i++) {
        tvm_value typed = tvm_value_as(&r->scalars[i].value, type);
        x[i] = tvm_value_scalar(&typed).f;
    }
    if (!tvm_function_apply(r->op, type, x[0], x[1], &result))
        return tvm_asm_error(as, r->token, NULL, "%s is no function of constants", r->info->mnemonic);
    if (result != result)
        return tvm_asm_invalid(as, r->token, NULL, "%s has no value there", r->info->mnemonic);
    *value = untyped ? tvm_value_float(result) : tvm_value_of_scalar(type, (tvm_scalar){.f = result});
    return true;
}

/* The first scalar becomes a tensor of one element, to which the others are broadcast; the result is its
 * element. */
static bool of_scalars(tvm_asm *as, tvm_reading *r, tvm_value *value) {
    tvm_dtype type = common_type(as, r);
    tvm_reading result = reading(TVM_OP_SCALAR, r->token);
    tvm_value tensor;
    bool done;
    if (!fold_constants(as, r, value, &done)) return false;
    if (done) return true;
    if (!as->kernel.begun || as->kernel.is_entry)
        return tvm_asm_error(as, r->token, NULL, "instructions stand between .kernel and .end");
    if (!tvm_asm_check_warps(as, r->token)) return false;
    if (!check_scalar_type(as, r, type)) return false;
    for (uint32_t i = 0; i < r->scalar_count; i++) {
        tvm_operand *operand = &r->operands[r->scalars[i].at];
        if (!(i == 0 ? one_element(as, &r->scalars[i], type, operand)
                     : tvm_asm_lower(as, r->scalars[i].token, &r->scalars[i].value, type, &operand->value)))
            return false;
    }
    if (!pending_value(as, r, &tensor) || !tvm_asm_settle(as, &tensor)) return false;
    result.operands[0] = (tvm_operand){TVM_OPERAND_SLOT, tensor.as.tensor.slot};
    result.operands[1].kind = TVM_OPERAND_NONE;
    result.count = 2;
    return written_value(as, &result, value);
}

/* ---- nested ---- */

bool tvm_asm_nested_operands(tvm_asm *as, const tvm_token *token, unsigned op, tvm_value word,
                             tvm_value *value) {
    tvm_reading r = reading(op, token);
    bool outside = !as->kernel.begun || as->kernel.is_entry;
    if (!outside && !tvm_asm_check_warps(as, token)) return false;
    if (!read_operands(as, &r, word) || !relayout_before(as, &r)) return false;
    if (is_of_scalars(as, &r)) return of_scalars(as, &r, value);
    if (outside) return tvm_asm_error(as, token, NULL, "instructions stand between .kernel and .end");
    return lower_scalars(as, &r) &&
           (r.info->result == TVM_SLOT_SCALAR ? written_value : pending_value)(as, &r, value);
}

bool tvm_asm_tensor_operation(tvm_asm *as, unsigned op, const tvm_token *token, const tvm_value *operands,
                              uint32_t count, tvm_value *value) {
    tvm_reading r = reading(op, token);
    const char *cursor = r.info->operands;
    tvm_operand_desc desc;
    for (uint32_t i = 0; tvm_operand_next(&cursor, &desc); i++) {
        tvm_value operand = i < count ? operands[i] : (tvm_value){0};
        if (!(i < count ? tvm_asm_push_given(as, &r, &desc, token, &operand)
                        : tvm_asm_leave_out(as, &r, &desc)))
            return false;
    }
    if (is_of_scalars(as, &r)) return of_scalars(as, &r, value);
    return lower_scalars(as, &r) && pending_value(as, &r, value);
}
