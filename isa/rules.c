#include "rules.h"

#include <stdio.h>
#include <string.h>

const char *tvm_shape_text(unsigned rank, const uint32_t *shape, char text[TVM_SHAPE_TEXT_MAX]) {
    size_t used = 0;
    text[0] = '\0';
    for (unsigned d = 0; d < rank && used < TVM_SHAPE_TEXT_MAX; d++)
        used += (size_t)snprintf(text + used, TVM_SHAPE_TEXT_MAX - used, d == 0 ? "%u" : "x%u", shape[d]);
    return text;
}

/* ---- operands of a row ---- */

const tvm_slot *tvm_rule_slot(const tvm_rule *rule, unsigned entry) {
    return &rule->kernel->slots[rule->operands[rule->at[entry]].value];
}

tvm_dtype tvm_rule_expr_type(const tvm_rule *rule, unsigned entry) {
    return rule->kernel->exprs[rule->operands[rule->at[entry]].value].type;
}

uint32_t tvm_rule_value(const tvm_rule *rule, unsigned entry) {
    return rule->operands[rule->at[entry]].value;
}

bool tvm_rule_is_tensor(const tvm_rule *rule, unsigned entry) {
    return rule->operands[rule->at[entry]].kind == TVM_OPERAND_SLOT;
}

bool tvm_rule_is_given(const tvm_rule *rule, unsigned entry) {
    return rule->desc[entry].name && rule->operands[rule->at[entry]].kind != TVM_OPERAND_NONE;
}

const tvm_layout *tvm_rule_layout(const tvm_rule *rule, unsigned entry) {
    return &rule->program->layouts[tvm_rule_slot(rule, entry)->layout];
}

bool tvm_rule_integer(const tvm_rule *rule, uint32_t expr, int64_t *value) {
    const tvm_expr *node = &rule->kernel->exprs[expr];
    if (node->op != TVM_EXPR_INTEGER) return false;
    *value = node->value.i;
    return true;
}

/* The operand may be of any kind, of a slot that does not exist. */
static const char *operand_name(const tvm_rule *rule, const tvm_operand_desc *desc,
                                const tvm_operand *operand, char text[TVM_RULE_NAME_MAX]) {
    const tvm_ir_kernel *kernel = rule->kernel;
    if (operand->kind == TVM_OPERAND_SLOT && operand->value < kernel->slot_count)
        snprintf(text, TVM_RULE_NAME_MAX, "'%s%.56s'", operand->value < kernel->param_count ? "" : "%",
                 tvm_string(rule->program, kernel->slots[operand->value].name));
    else
        snprintf(text, TVM_RULE_NAME_MAX, "%.*s", (int)desc->name_length, desc->name);
    return text;
}

const char *tvm_rule_name(const tvm_rule *rule, unsigned entry, char text[TVM_RULE_NAME_MAX]) {
    return operand_name(rule, &rule->desc[entry], &rule->operands[rule->at[entry]], text);
}

/* ---- results ---- */

static tvm_status result_dtype(const tvm_rule *rule, tvm_dtype dtype) {
    tvm_result_type *type = rule->type;
    if (type->dtype.kind != TVM_KIND_NONE && !tvm_dtype_same(type->dtype, dtype))
        return tvm_refuse(rule->why, "the result has type %s, expected %s as declared", TVM_DTYPE_TEXT(dtype),
                          TVM_DTYPE_TEXT(type->dtype));
    type->dtype = dtype;
    return TVM_OK;
}

tvm_status tvm_rule_register(const tvm_rule *rule, tvm_dtype dtype, const tvm_layout *layout) {
    char text[TVM_LAYOUT_TEXT_MAX];
    tvm_result_type *type = rule->type;
    if (layout == NULL && !type->has_layout) return tvm_refuse(rule->why, "expected a layout for the result");
    if (layout == NULL) layout = &type->layout;
    tvm_status status = result_dtype(rule, dtype);
    if (status != TVM_OK) return status;
    if (type->has_layout && !tvm_layout_equal(&type->layout, layout)) {
        if (layout->rank != type->layout.rank ||
            memcmp(layout->shape, type->layout.shape, layout->rank * sizeof layout->shape[0]) != 0)
            return tvm_refuse(rule->why, "the result has shape %s, expected %s as declared",
                              TVM_SHAPE_TEXT(layout->rank, layout->shape),
                              TVM_SHAPE_TEXT(type->layout.rank, type->layout.shape));
        return tvm_refuse(rule->why, "the result has a layout other than declared: %s",
                          tvm_layout_text(layout, text));
    }
    uint32_t threads = tvm_layout_threads(layout);
    if (threads != tvm_team_threads(rule->team))
        return tvm_refuse(rule->why, "the layout is for %u threads, the %s %u (%u warps)", threads,
                          rule->team.warps == rule->kernel->warps ? "kernel has" : "team has",
                          tvm_team_threads(rule->team), rule->team.warps);
    type->kind = TVM_SLOT_REGISTER;
    if (!type->has_layout) type->layout = *layout;
    type->has_layout = true;
    return TVM_OK;
}

tvm_status tvm_rule_scalar(const tvm_rule *rule, tvm_dtype dtype) {
    tvm_status status = result_dtype(rule, dtype);
    if (status == TVM_OK) rule->type->kind = TVM_SLOT_SCALAR;
    return status;
}

tvm_status tvm_rule_nothing(const tvm_rule *rule) {
    rule->type->kind = TVM_SLOT_NONE;
    return TVM_OK;
}

/* ---- operands against the row ---- */

static const char *const slot_kinds[TVM_SLOT_KINDS] = {"nothing",
                                                       "a scalar",
                                                       "a register tensor",
                                                       "a shared tensor",
                                                       "a global tensor",
                                                       "an array of mbarriers",
                                                       "a tensor in tensor memory"};

/* The mnemonics of the rows that take packed operands: "view, cast-lowbit and print-tensor". */
static const char *packed_takers(char text[128]) {
    const char *names[TVM_OP_COUNT];
    unsigned count = 0;
    size_t used = 0;
    for (unsigned op = 0; op < TVM_OP_COUNT; op++)
        if (tvm_op(op)->traits & TVM_TRAIT_PACKED) names[count++] = tvm_op(op)->mnemonic;
    text[0] = '\0';
    for (unsigned i = 0; i < count && used < 128; i++)
        used += (size_t)snprintf(text + used, 128 - used, "%s%s",
                                 i == 0           ? ""
                                 : i + 1 == count ? " and "
                                                  : ", ",
                                 names[i]);
    return text;
}

static tvm_status check_slot(const tvm_rule *rule, const tvm_operand_desc *desc, const tvm_operand *operand,
                             tvm_slot_kind kind) {
    int length = (int)desc->name_length;
    if (operand->value >= rule->kernel->slot_count)
        return tvm_refuse(rule->why, "%.*s: slot %u does not exist", length, desc->name, operand->value);
    unsigned found = rule->kernel->slots[operand->value].kind;
    char name[TVM_RULE_NAME_MAX];
    if (found != kind)
        return tvm_refuse(rule->why, "%s is %s, expected %s", operand_name(rule, desc, operand, name),
                          found < TVM_SLOT_KINDS ? slot_kinds[found] : "of no kind", slot_kinds[kind]);
    if (found == TVM_SLOT_REGISTER) {
        uint32_t layout = rule->kernel->slots[operand->value].layout;
        uint32_t threads = tvm_layout_threads(&rule->program->layouts[layout]);
        if (threads != tvm_team_threads(rule->team))
            return tvm_refuse(rule->why, "the layout of %s is for %u threads, the %s %u (%u warps)",
                              operand_name(rule, desc, operand, name), threads,
                              rule->team.warps == rule->kernel->warps ? "kernel has" : "team has",
                              tvm_team_threads(rule->team), rule->team.warps);
    }
    unsigned packing = rule->kernel->slots[operand->value].packing;
    if (packing != TVM_PACKING_LINEAR && !(rule->info->traits & TVM_TRAIT_PACKED)) {
        char takers[128];
        return tvm_refuse(rule->why, "%s has packing %s, which only %s take: cast it, or view it as u8",
                          operand_name(rule, desc, operand, name),
                          packing < TVM_PACKING_COUNT ? tvm_packing_names[packing] : "that does not exist",
                          packed_takers(takers));
    }
    return TVM_OK;
}

static tvm_status check_expr(const tvm_rule *rule, const tvm_operand_desc *desc, const tvm_operand *operand) {
    if (operand->kind != TVM_OPERAND_EXPR)
        return tvm_refuse(rule->why, "%.*s: expected a scalar expression", (int)desc->name_length,
                          desc->name);
    if (operand->value >= rule->kernel->expr_count)
        return tvm_refuse(rule->why, "%.*s: expression %u does not exist", (int)desc->name_length, desc->name,
                          operand->value);
    return TVM_OK;
}

/* The index expressions after a tensor: operands[1..rank]. */
static tvm_status check_indices(const tvm_rule *rule, const tvm_operand_desc *desc,
                                const tvm_operand *operand, uint32_t left, uint32_t *taken) {
    char tensor[TVM_RULE_NAME_MAX];
    unsigned rank = tvm_slot_rank(rule->program, &rule->kernel->slots[operand->value]);
    if (left < 1 + rank)
        return tvm_refuse(rule->why, "%s has %u dimensions, but %u indices",
                          operand_name(rule, desc, operand, tensor), rank, left - 1);
    for (unsigned d = 1; d <= rank; d++) {
        bool is_tensor = desc->kind == 'v' && operand[d].kind == TVM_OPERAND_SLOT;
        tvm_status status = is_tensor ? check_slot(rule, desc, &operand[d], TVM_SLOT_REGISTER)
                                      : check_expr(rule, desc, &operand[d]);
        if (status != TVM_OK) return status;
        if (is_tensor) continue;
        tvm_dtype type = rule->kernel->exprs[operand[d].value].type;
        if (!tvm_dtype_same(type, TVM_I(32)) && !tvm_dtype_same(type, TVM_I(64)))
            return tvm_refuse(rule->why, "index %u of %s has type %s, expected i32 or i64", d - 1,
                              operand_name(rule, desc, operand, tensor), TVM_DTYPE_TEXT(type));
    }
    *taken = 1 + rank;
    return TVM_OK;
}

static tvm_status check_list(const tvm_rule *rule, const tvm_operand_desc *desc, const tvm_operand *operand,
                             uint32_t left, uint32_t *taken) {
    uint32_t count = operand->value, least = desc->kind == 'A' ? 1 : 0;
    if (operand->kind != TVM_OPERAND_CONST || count < 1 || count > TVM_MAX_RANK || left < 1 + count)
        return tvm_refuse(rule->why, "%.*s: expected a list of 1 to %d %s", (int)desc->name_length,
                          desc->name, TVM_MAX_RANK, least ? "extents" : "numbers");
    for (uint32_t i = 1; i <= count; i++)
        if (operand[i].kind != TVM_OPERAND_CONST || operand[i].value < least ||
            operand[i].value > TVM_MAX_TILE_ELEMENTS)
            return tvm_refuse(rule->why, "%.*s: %s is a constant from %u to %d", (int)desc->name_length,
                              desc->name, least ? "an extent" : "a number", least, TVM_MAX_TILE_ELEMENTS);
    *taken = 1 + count;
    return TVM_OK;
}

static tvm_status check_const(const tvm_rule *rule, const tvm_operand_desc *desc, const tvm_operand *operand,
                              uint32_t end, const char *expected) {
    if (operand->kind == TVM_OPERAND_CONST && operand->value < end) return TVM_OK;
    return tvm_refuse(rule->why, "%.*s: expected %s", (int)desc->name_length, desc->name, expected);
}

static tvm_status check_tensor(const tvm_rule *rule, const tvm_operand_desc *desc, const tvm_operand *operand,
                               uint32_t left, uint32_t *taken) {
    bool is_either = strchr("mave", desc->kind) && operand->kind == TVM_OPERAND_SLOT &&
                     operand->value < rule->kernel->slot_count;
    bool is_shared =
        desc->kind == 's' || (is_either && rule->kernel->slots[operand->value].kind == TVM_SLOT_SHARED);
    tvm_slot_kind kind = is_shared                   ? TVM_SLOT_SHARED
                         : desc->kind == 'w'         ? TVM_SLOT_BARRIER
                         : strchr("ce", desc->kind)  ? TVM_SLOT_TENSOR
                         : strchr("gav", desc->kind) ? TVM_SLOT_GLOBAL
                                                     : TVM_SLOT_REGISTER;
    if (operand->kind != TVM_OPERAND_SLOT)
        return tvm_refuse(rule->why, "%.*s: expected %s", (int)desc->name_length, desc->name,
                          slot_kinds[kind]);
    tvm_status status = check_slot(rule, desc, operand, kind);
    if (status != TVM_OK || !desc->indexed || kind == TVM_SLOT_REGISTER) return status;
    return check_indices(rule, desc, operand, left, taken);
}

static tvm_status check_interval(const tvm_rule *rule, const tvm_operand_desc *desc,
                                 const tvm_operand *operand, uint32_t left, uint32_t *taken) {
    if (left < 2)
        return tvm_refuse(rule->why, "%.*s: expected two bounds", (int)desc->name_length, desc->name);
    tvm_status status = check_expr(rule, desc, operand);
    *taken = 2;
    return status == TVM_OK ? check_expr(rule, desc, operand + 1) : status;
}

static tvm_status check_values(const tvm_rule *rule, const tvm_operand_desc *desc, const tvm_operand *operand,
                               uint32_t left, uint32_t *taken) {
    uint32_t count = operand->value;
    if (operand->kind != TVM_OPERAND_CONST || count > TVM_MAX_RANK || left < 1 + count)
        return tvm_refuse(rule->why, "%.*s: expected a list of at most %d scalars", (int)desc->name_length,
                          desc->name, TVM_MAX_RANK);
    for (uint32_t i = 1; i <= count; i++) {
        tvm_status status = check_expr(rule, desc, &operand[i]);
        if (status != TVM_OK) return status;
    }
    *taken = 1 + count;
    return TVM_OK;
}

/* `left` operands, one at least, begin at `operand`; *taken of them belong to the entry. */
static tvm_status check_operand(const tvm_rule *rule, const tvm_operand_desc *desc,
                                const tvm_operand *operand, uint32_t left, uint32_t *taken) {
    const tvm_operand_words *words = tvm_words_of(desc->kind);
    *taken = 1;
    if (desc->optional && operand->kind == TVM_OPERAND_NONE) return TVM_OK;
    switch (desc->kind) {
    case 'x':
        return check_expr(rule, desc, operand);
    case 'b':
        if (operand->kind == TVM_OPERAND_EXPR) return check_expr(rule, desc, operand);
        return check_tensor(rule, desc, operand, left, taken);
    case 'A':
    case 'D':
        return check_list(rule, desc, operand, left, taken);
    case 'I':
        return check_interval(rule, desc, operand, left, taken);
    case 'V':
        return check_values(rule, desc, operand, left, taken);
    case 'Q':
        if (operand->kind == TVM_OPERAND_STRING && operand->value < rule->program->string_count)
            return TVM_OK;
        return tvm_refuse(rule->why, "%.*s: expected a text", (int)desc->name_length, desc->name);
    case 'N':
        return check_const(rule, desc, operand, UINT32_MAX, "a constant");
    case 'F':
        if (operand->kind == TVM_OPERAND_CONST && operand->value == 1) return TVM_OK;
        return tvm_refuse(rule->why, "%.*s: expected the flag, or nothing", (int)desc->name_length,
                          desc->name);
    default:
        if (words != NULL) return check_const(rule, desc, operand, words->count, words->what);
        return check_tensor(rule, desc, operand, left, taken);
    }
}

static tvm_status check_row(tvm_rule *rule, uint32_t count) {
    const char *cursor = rule->info->operands;
    tvm_operand_desc desc;
    unsigned entry = 0;
    uint32_t at = 0;
    while (tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        uint32_t taken;
        if (at == count && desc.optional && desc.since > rule->info->since) break; /* it came later */
        if (at == count) return tvm_refuse(rule->why, "%.*s is missing", (int)desc.name_length, desc.name);
        tvm_status status = check_operand(rule, &desc, rule->operands + at, count - at, &taken);
        if (status != TVM_OK) return status;
        rule->desc[entry] = desc;
        rule->at[entry++] = at;
        at += taken;
    }
    if (at != count) return tvm_refuse(rule->why, "%u operands, expected %u", count, at);
    return TVM_OK;
}

/* ---- dispatch ---- */

#define TVM_OP(number, id, mnemonic, since, class, family, ...) [number] = tvm_rule_##family,
static tvm_status (*const rules[TVM_OP_COUNT])(const tvm_rule *rule) = {
#include "opcodes.def"
};

static tvm_status check_result_kind(const tvm_rule *rule, const tvm_insn *insn) {
    tvm_slot_kind declared = rule->type->kind;
    if (rule->info->result == TVM_SLOT_NONE && insn->result != TVM_NONE)
        return tvm_refuse(rule->why, "the instruction has no result");
    if (declared >= TVM_SLOT_KINDS || (declared != TVM_SLOT_NONE && declared != rule->info->result))
        return tvm_refuse(rule->why, "the result is %s, but the variable %s", slot_kinds[rule->info->result],
                          declared >= TVM_SLOT_KINDS ? "of no kind" : slot_kinds[declared]);
    if (rule->type->dtype.kind != TVM_KIND_NONE && !tvm_dtype_valid(rule->type->dtype))
        return tvm_refuse(rule->why, "the result's type does not exist");
    return TVM_OK;
}

/* Can the row's text say the packing of the result? */
static bool states_packing(const tvm_op_info *info) {
    const char *cursor = info->operands;
    tvm_operand_desc desc;
    while (tvm_operand_next(&cursor, &desc))
        if (desc.kind == 'P') return true;
    return false;
}

/* The packing is never inferred: it is what the text or the slot says, where the row lets it say so. */
static tvm_status check_packing(const tvm_rule *rule) {
    const tvm_result_type *type = rule->type;
    if (type->packing == TVM_PACKING_LINEAR) return TVM_OK;
    if (type->packing >= TVM_PACKING_COUNT)
        return tvm_refuse(rule->why, "the result's packing does not exist");
    const char *packing = tvm_packing_names[type->packing];
    if (!states_packing(rule->info))
        return tvm_refuse(rule->why, "the result is linear, the variable has packing %s", packing);
    if (!tvm_packing_takes(type->packing, type->dtype))
        return tvm_refuse(rule->why, "type %s has no packing %s: expected a low-precision type",
                          TVM_DTYPE_TEXT(type->dtype), packing);
    uint32_t locals = tvm_layout_locals(&type->layout), block = tvm_packing_block(type->packing, type->dtype);
    if (locals % block != 0)
        return tvm_refuse(rule->why,
                          "a thread holds %u elements, expected a multiple of %u as packing %s of %s has it",
                          locals, block, packing, TVM_DTYPE_TEXT(type->dtype));
    return TVM_OK;
}

tvm_status tvm_infer(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_team team,
                     const tvm_insn *insn, const tvm_operand *operands, tvm_result_type *type, tvm_why *why) {
    tvm_rule rule = {.program = program,
                     .kernel = kernel,
                     .team = team,
                     .op = insn->op,
                     .operands = operands,
                     .count = insn->count,
                     .type = type,
                     .why = why};
    rule.info = tvm_op(insn->op);
    if (rule.info == NULL) return tvm_refuse(why, "opcode %u does not exist", insn->op);
    tvm_status status = check_result_kind(&rule, insn);
    if (status == TVM_OK) status = check_row(&rule, insn->count);
    if (status == TVM_OK) status = rules[insn->op](&rule);
    return status == TVM_OK ? check_packing(&rule) : status;
}

/* ---- elements narrower than a byte ---- */

tvm_status tvm_rule_whole_bytes(const tvm_rule *rule, unsigned entry, uint32_t extent) {
    const tvm_slot *slot = tvm_rule_slot(rule, entry);
    uint32_t whole = tvm_bits_whole(slot->dtype.bits);
    unsigned last = tvm_slot_rank(rule->program, slot) - 1;
    int64_t index;
    if (extent % whole != 0)
        return tvm_refuse(
            rule->why,
            "the tile takes %u elements of %s in the last dimension, which are not whole bytes: "
            "expected a multiple of %u",
            extent, TVM_DTYPE_TEXT(slot->dtype), whole);
    if (tvm_rule_integer(rule, rule->operands[rule->at[entry] + 1 + last].value, &index) &&
        index % whole != 0)
        return tvm_refuse(rule->why,
                          "%s: index %lld of elements of %s is inside a byte: expected a multiple of %u",
                          TVM_RULE_NAME(rule, entry), (long long)index, TVM_DTYPE_TEXT(slot->dtype), whole);
    return TVM_OK;
}

/* Neighbours in the last dimension that are neighbours in a thread: the last mode of that dimension, when it
 * is the fastest local digit. */
static uint32_t innermost_run(const tvm_layout *layout) {
    if (layout->locals == 0) return 1;
    unsigned fastest = layout->local[layout->locals - 1];
    return fastest == layout->modes - 1u && layout->mode_dim[fastest] == layout->rank - 1
               ? layout->mode_size[fastest]
               : 1;
}

tvm_status tvm_rule_owns_bytes(const tvm_rule *rule, tvm_dtype dtype, const tvm_layout *layout) {
    uint32_t run = innermost_run(layout);
    if ((uint64_t)run * dtype.bits % 8 == 0) return TVM_OK;
    return tvm_refuse(rule->why,
                      "a thread holds runs of %u elements of %s in the last dimension, which are not whole "
                      "bytes: its fastest local digit must cover a multiple of 8 bits",
                      run, TVM_DTYPE_TEXT(dtype));
}
