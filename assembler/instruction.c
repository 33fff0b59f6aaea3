/* Instructions, read by the operand list of their row of the opcode table. */
#include "instruction.h"

#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "head.h"
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

/* May the operand be missing, and is it? A name of another operand in its place says so, too. */
static bool is_left_out(const tvm_asm *as, const tvm_reading *r, const tvm_operand_desc *desc,
                        const char *rest) {
    bool follows = desc->kind == 'L' && (as->text.version >= 3 || tvm_asm_loads_beside(as, r));
    if (!desc->optional && desc->kind != 'A' && desc->kind != 'X' && desc->kind != 'V' && !follows)
        return false;
    if (tvm_asm_at_end(as) || (r->nested && tvm_asm_at(as, ")"))) return true;
    tvm_operand_desc later;
    while (tvm_operand_next(&rest, &later))
        if (later.optional && tvm_asm_operand_named(as, &later)) return true;
    return false;
}

static bool read_operands(tvm_asm *as, tvm_reading *r) {
    const char *cursor = r->info->operands;
    tvm_operand_desc desc;
    char before = 0;
    bool comma = true; /* nothing stands before the next operand but a comma or the mnemonic */
    while (tvm_operand_next(&cursor, &desc)) {
        if (!comma) comma = tvm_asm_accept(as, ",") || tvm_words_of(before) != NULL;
        if (is_left_out(as, r, &desc, cursor)) {
            if (!tvm_asm_leave_out(as, r, &desc)) return false;
            continue;
        }
        if (!comma)
            return tvm_asm_expected(as, tvm_asm_peek(as), NULL, "',' and '%.*s' of %s", (int)desc.name_length,
                                    desc.name, r->info->mnemonic);
        if (desc.optional && desc.since > as->text.version)
            return tvm_asm_error(as, tvm_asm_peek(as), "write '.vasm' with that version",
                                 "'%.*s' of %s came with version %u of the language", (int)desc.name_length,
                                 desc.name, r->info->mnemonic, desc.since);
        if (desc.kind != 'F' && tvm_asm_operand_named(as, &desc)) tvm_asm_next(as);
        if (!(is_optional(&desc) ? read_optional : tvm_asm_read_operand)(as, r, &desc)) return false;
        comma = false;
        before = desc.kind;
    }
    return r->nested ? tvm_asm_expect(as, ")", "after the operands") : tvm_asm_expect_end(as);
}

static bool lower_scalars(tvm_asm *as, tvm_reading *r) {
    for (uint32_t i = 0; i < r->scalar_count; i++) {
        const tvm_deferred *scalar = &r->scalars[i];
        tvm_dtype type = tvm_asm_type_of(as, &scalar->value);
        if (r->wide && scalar->value.kind == TVM_VALUE_FLOAT && scalar->value.type.kind == TVM_KIND_NONE)
            type = TVM_F64;
        if (!tvm_asm_lower(as, scalar->token, &scalar->value, type, &r->operands[scalar->at].value))
            return false;
    }
    return true;
}

bool tvm_asm_instruction(tvm_asm *as, const tvm_token *token, unsigned op, const tvm_token *result,
                         const char *result_name, uint32_t result_length) {
    tvm_reading r = {.op = op, .info = tvm_op(op), .token = token, .tile_slot = TVM_NONE};
    r.type.kind = r.info->result;
    bool good =
        tvm_asm_check_warps(as, token) && read_operands(as, &r) && lower_scalars(as, &r) &&
        tvm_asm_finish(as, token, op, result, result_name, result_length, r.operands, r.count, &r.type);
    if (!good && result_name) tvm_asm_poison_slot(as, result_name, result_length);
    return good;
}

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

bool tvm_asm_nested_operands(tvm_asm *as, const tvm_token *token, unsigned op, tvm_value *value) {
    tvm_reading r = {.op = op, .info = tvm_op(op), .token = token, .tile_slot = TVM_NONE, .nested = true};
    r.type.kind = r.info->result;
    return tvm_asm_check_warps(as, token) && read_operands(as, &r) && lower_scalars(as, &r) &&
           pending_value(as, &r, value);
}

bool tvm_asm_tensor_operation(tvm_asm *as, unsigned op, const tvm_token *token, const tvm_value *operands,
                              uint32_t count, tvm_value *value) {
    tvm_reading r = {.op = op, .info = tvm_op(op), .token = token, .tile_slot = TVM_NONE, .nested = true};
    const char *cursor = r.info->operands;
    tvm_operand_desc desc;
    r.type.kind = r.info->result;
    for (uint32_t i = 0; tvm_operand_next(&cursor, &desc); i++) {
        tvm_value operand = i < count ? operands[i] : (tvm_value){0};
        if (!(i < count ? tvm_asm_push_value(as, &r, &desc, token, &operand)
                        : tvm_asm_leave_out(as, &r, &desc)))
            return false;
    }
    return lower_scalars(as, &r) && pending_value(as, &r, value);
}
