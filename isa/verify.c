#include "verify.h"
#include "rules.h"
#include "signature.h"
#include "verify_state.h"
#include "view.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- reporting ---- */

/* `kernel: mnemonic: `, and the number of an instruction whose line is unknown. */
static void context(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                    char *text, size_t size) {
    text[0] = '\0';
    if (kernel == NULL) return;
    const char *name = tvm_string(program, kernel->name);
    if (insn == NULL) {
        snprintf(text, size, "%.60s: ", name);
        return;
    }
    const tvm_op_info *info = tvm_op(insn->op);
    const char *mnemonic = info != NULL ? info->mnemonic : "?";
    if (insn->line != 0)
        snprintf(text, size, "%.60s: %s: ", name, mnemonic);
    else
        snprintf(text, size, "%.60s: instruction %td: %s: ", name, insn - kernel->insns, mnemonic);
}

static tvm_status report(tvm_diags *diags, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                         const tvm_insn *insn, const char *message) {
    char prefix[128];
    context(program, kernel, insn, prefix, sizeof prefix);
    tvm_place place = {0};
    if (insn != NULL && insn->file < program->string_count) place.file = program->strings[insn->file];
    if (insn != NULL) place.line = insn->line;
    return tvm_diag_add(diags, TVM_INVALID, &place, NULL, "%s%s", prefix, message);
}

void tvm_verify_error(tvm_verify_state *state, const tvm_insn *insn, const char *format, ...) {
    if (tvm_verify_done(state)) return;
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    state->status = report(state->diags, state->program, state->kernel, insn, message);
    state->errors++;
}

bool tvm_verify_charge(tvm_verify_state *state, uint64_t work) {
    if (state->stopped) return false;
    state->work += work;
    if (state->work <= TVM_VERIFY_WORK) return true;
    state->status = tvm_diag_add(state->diags, TVM_INVALID, NULL, NULL, "the program is too large to verify");
    state->errors++;
    state->stopped = true;
    return false;
}

/* ---- strings and names ---- */

/* Length of the UTF-8 sequence at `text` (Unicode 15, table 3-7), or 0 when it is none. */
static unsigned utf8_length(const unsigned char *text) {
    unsigned char lead = text[0];
    if (lead < 0x80) return 1;
    unsigned length = lead >= 0xc2 && lead < 0xe0   ? 2
                      : (lead & 0xf0) == 0xe0       ? 3
                      : lead >= 0xf0 && lead < 0xf5 ? 4
                                                    : 0;
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (length == 0 || text[1] < low || text[1] > high) return 0;
    for (unsigned i = 2; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    return length;
}

static bool string_is_clean(const char *string) {
    const unsigned char *at = (const unsigned char *)string;
    while (*at != '\0') {
        unsigned length = utf8_length(at);
        if (length == 0 || *at < 0x20 || *at == 0x7f) return false;
        at += length;
    }
    return true;
}

static void check_strings(tvm_verify_state *state) {
    for (uint32_t i = 0; i < state->program->string_count && !tvm_verify_done(state); i++)
        if (!string_is_clean(state->program->strings[i]))
            tvm_verify_error(state, NULL, "string %u is not UTF-8 text without control characters", i);
}

/* Parameters are written without a mark: words of the language cannot name them. */
static bool is_word(const char *name) {
    static const char *const words[] = {"true", "false", "block", "grid", "multiprocessors", "target"};
    tvm_dtype type;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(name, words[i]) == 0) return true;
    return tvm_dtype_parse(name, strlen(name), &type);
}

/* "" when the index is bad, which is no identifier. */
static bool check_name(tvm_verify_state *state, uint32_t string, const char *what) {
    const char *name = tvm_string(state->program, string);
    size_t length = strlen(name);
    if (length <= TVM_MAX_NAME && tvm_is_identifier(name, length)) return true;
    tvm_verify_error(state, NULL, "the name of %s, '%.60s', is not an identifier of at most %d letters", what,
                     name, TVM_MAX_NAME);
    return false;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Reports a name that stands twice among `count` of them; sorts the array. */
static void check_unique(tvm_verify_state *state, const char **names, uint32_t count, const char *what) {
    qsort(names, count, sizeof *names, compare_names);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) == 0) {
            tvm_verify_error(state, NULL, "two %s are named '%s'", what, names[i]);
            return;
        }
}

static void out_of_memory(tvm_verify_state *state) {
    state->status = tvm_diag_no_memory(state->diags);
    state->errors++;
    state->stopped = true;
}

static const char **name_array(tvm_verify_state *state, uint32_t count) {
    const char **names = malloc((count + 1) * sizeof *names);
    if (names == NULL) out_of_memory(state);
    return names;
}

/* ---- layouts ---- */

static uint64_t tile_work(unsigned rank, const uint32_t *shape) {
    uint64_t elements = 1;
    for (unsigned d = 0; d < rank && d < TVM_MAX_RANK && elements < TVM_MAX_TILE_ELEMENTS; d++)
        elements *= shape[d];
    return elements < TVM_MAX_TILE_ELEMENTS ? elements : TVM_MAX_TILE_ELEMENTS;
}

static void check_layouts(tvm_verify_state *state) {
    const tvm_ir_program *program = state->program;
    for (uint32_t i = 0; i < program->layout_count && !tvm_verify_done(state); i++) {
        tvm_why why = {""};
        if (tvm_verify_charge(state, 256) && !tvm_layout_valid(&program->layouts[i], &why))
            tvm_verify_error(state, NULL, "layout %u: %s", i, why.text);
    }
    for (uint32_t i = 0; i < program->shared_layout_count && !tvm_verify_done(state); i++) {
        const tvm_shared_layout *layout = &program->shared_layouts[i];
        tvm_why why = {""};
        if (tvm_verify_charge(state, 256 + tile_work(layout->rank, layout->shape)) &&
            !tvm_shared_layout_valid(layout, &why))
            tvm_verify_error(state, NULL, "shared layout %u: %s", i, why.text);
    }
}

/* ---- slots ---- */

static const char *slot_name(const tvm_verify_state *state, const tvm_slot *slot) {
    return tvm_string(state->program, slot->name);
}

/* What is not for the threads of the block is for those of a role: the rules look at each instruction's team.
 */
static bool has_roles(const tvm_ir_kernel *kernel) {
    uint32_t i = 0;
    while (i < kernel->insn_count && tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_SECTION) i++;
    return i < kernel->insn_count;
}

static void check_tensor_slot(tvm_verify_state *state, const tvm_slot *slot) {
    const tvm_ir_program *program = state->program;
    bool in_registers = slot->kind == TVM_SLOT_REGISTER;
    if (slot->packing != TVM_PACKING_LINEAR &&
        (!in_registers || slot->packing >= TVM_PACKING_COUNT ||
         !tvm_packing_takes((tvm_packing)slot->packing, slot->dtype))) {
        tvm_verify_error(state, NULL, "'%s' has packing %u, which its type does not have",
                         slot_name(state, slot), slot->packing);
    } else if (slot->layout >= (in_registers ? program->layout_count : program->shared_layout_count)) {
        tvm_verify_error(state, NULL, "'%s' has layout %u, which does not exist", slot_name(state, slot),
                         slot->layout);
    } else if (in_registers) {
        uint32_t threads = tvm_layout_threads(&program->layouts[slot->layout]);
        uint32_t team = tvm_team_threads(tvm_block_team(state->kernel));
        if (threads > team || (threads != team && !has_roles(state->kernel)))
            tvm_verify_error(state, NULL, "the layout of '%s' is for %u threads, the kernel has %u",
                             slot_name(state, slot), threads, team);
    } else {
        tvm_why why = {""};
        if (tvm_shared_layout_packs(&program->shared_layouts[slot->layout], slot->dtype.bits, &why) != TVM_OK)
            tvm_verify_error(state, NULL, "shared tensor '%s': %s", slot_name(state, slot), why.text);
    }
}

static void check_slot(tvm_verify_state *state, uint32_t index) {
    const tvm_slot *slot = &state->kernel->slots[index];
    bool param = index < state->kernel->param_count;
    if (!check_name(state, slot->name, param ? "a parameter" : "a variable")) return;
    const char *name = slot_name(state, slot);
    if (slot->kind != TVM_SLOT_REGISTER && slot->kind != TVM_SLOT_SHARED && slot->packing != 0) {
        tvm_verify_error(state, NULL, "'%s' has a packing, but is no register tensor", name);
    } else if (param && is_word(name)) {
        tvm_verify_error(state, NULL, "a parameter cannot be named '%s', a word of the language", name);
    } else if (!tvm_dtype_valid(slot->dtype)) {
        tvm_verify_error(state, NULL, "'%s' has a type that does not exist", name);
    } else if (slot->kind == TVM_SLOT_SCALAR) {
        if (!tvm_dtype_is_scalar(slot->dtype))
            tvm_verify_error(state, NULL,
                             "scalar '%s' has type %s, expected bool, i32, u32, i64, u64, f32 or f64", name,
                             TVM_DTYPE_TEXT(slot->dtype));
    } else if ((param && slot->kind != TVM_SLOT_GLOBAL) || slot->kind >= TVM_SLOT_KINDS ||
               slot->kind == TVM_SLOT_NONE) {
        tvm_verify_error(state, NULL, "'%s': %s", name,
                         param ? "a parameter is a scalar or a global tensor"
                               : "a variable is a scalar, a tensor or an array of mbarriers");
    } else if (slot->kind == TVM_SLOT_GLOBAL) {
        if (slot->rank < 1 || slot->rank > TVM_MAX_RANK)
            tvm_verify_error(state, NULL, "global tensor '%s' has rank %u, expected 1 to %d", name,
                             slot->rank, TVM_MAX_RANK);
        else if (slot->form >= (param ? TVM_FORM_PART : TVM_FORMS))
            tvm_verify_error(state, NULL, "global tensor '%s' is no view", name);
        else if (slot->form == TVM_FORM_STRIDED && slot->dtype.bits % 8 != 0)
            tvm_verify_error(state, NULL, "'%s' has strides: expected elements of whole bytes", name);
    } else {
        check_tensor_slot(state, slot);
    }
}

static void check_slots(tvm_verify_state *state) {
    const tvm_ir_kernel *kernel = state->kernel;
    for (uint32_t i = 0; i < kernel->slot_count && !tvm_verify_done(state); i++) check_slot(state, i);
    if (state->errors > 0 || !tvm_verify_charge(state, (uint64_t)kernel->slot_count * 16)) return;
    const char **names = name_array(state, kernel->slot_count);
    if (names == NULL) return;
    for (uint32_t i = 0; i < kernel->slot_count; i++) names[i] = slot_name(state, &kernel->slots[i]);
    check_unique(state, names, kernel->param_count, "parameters");
    check_unique(state, names + kernel->param_count, kernel->slot_count - kernel->param_count, "variables");
    free(names);
}

/* ---- expressions ---- */

static bool operands_come_first(const tvm_expr *node, uint32_t index) {
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    for (unsigned i = 0; info != NULL && i < info->arity; i++)
        if (node->operands[i] >= index) return false;
    return true;
}

/* Such an operator is folded by who builds the program, as the text of a program cannot say it: there,
 * arithmetic of constants is exact. */
static bool is_of_constants(const tvm_ir_kernel *kernel, const tvm_expr *node) {
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    for (unsigned i = 0; i < info->arity; i++) {
        unsigned op = kernel->exprs[node->operands[i]].op;
        if (op != TVM_EXPR_INTEGER && op != TVM_EXPR_FLOAT) return false;
    }
    return info->arity > 0;
}

static void check_expr(tvm_verify_state *state, uint32_t index) {
    tvm_expr *node = &state->kernel->exprs[index];
    tvm_why why = {""};
    if (!operands_come_first(node, index)) {
        tvm_verify_error(state, NULL, "expression %u does not come after its operands", index);
    } else if (tvm_expr_check(state->kernel, node, &why) != TVM_OK) {
        tvm_verify_error(state, NULL, "expression %u: %s", index, why.text);
    } else if (is_of_constants(state->kernel, node)) {
        tvm_verify_error(state, NULL, "expression %u: an operator of constants alone, expected its result",
                         index);
    } else {
        node->size = tvm_expr_tree_size(state->kernel->exprs, index, node);
        if (node->size == 0 || node->size > TVM_MAX_EXPR_SIZE)
            tvm_verify_error(state, NULL, "expression %u has more than %d operators and operands", index,
                             TVM_MAX_EXPR_SIZE);
    }
}

/* Is it one that the launch knows, of these leaves, and of the type? */
static bool is_launch_time(const tvm_verify_state *state, uint32_t expr, bool condition, unsigned leaves) {
    const tvm_ir_kernel *kernel = state->kernel;
    if (expr >= kernel->expr_count || (state->leaves[expr] & ~leaves) != 0) return false;
    tvm_dtype type = kernel->exprs[expr].type;
    return condition ? type.kind == TVM_KIND_BOOL
                     : tvm_dtype_same(type, TVM_I(32)) || tvm_dtype_same(type, TVM_I(64));
}

/* `leaves`: which the expression may have. */
static void check_launch_time(tvm_verify_state *state, uint32_t expr, bool condition, unsigned leaves,
                              const char *what) {
    const tvm_ir_kernel *kernel = state->kernel;
    if (is_launch_time(state, expr, condition, leaves)) return;
    if (expr >= kernel->expr_count)
        tvm_verify_error(state, NULL, "%s: expression %u does not exist", what, expr);
    else if ((state->leaves[expr] & ~leaves) != 0)
        tvm_verify_error(state, NULL,
                         "%s: expected an expression of scalar parameters, multiprocessors%s alone", what,
                         leaves & TVM_LEAF_GRID ? ", target and the grid" : " and target");
    else
        tvm_verify_error(state, NULL, "%s has type %s, expected %s", what,
                         TVM_DTYPE_TEXT(kernel->exprs[expr].type), condition ? "bool" : "i32 or i64");
}

/* The extents and strides of a global tensor. */
static void check_shape(tvm_verify_state *state, uint32_t index) {
    const tvm_slot *slot = &state->kernel->slots[index];
    unsigned leaves = TVM_LEAF_LAUNCH | (index < state->kernel->param_count ? 0 : TVM_LEAF_GRID);
    for (unsigned d = 0; slot->kind == TVM_SLOT_GLOBAL && d < slot->rank; d++) {
        bool strided = slot->form == TVM_FORM_STRIDED;
        char what[128];
        if (is_launch_time(state, slot->shape[d], false, leaves) &&
            (!strided || is_launch_time(state, slot->stride[d], false, leaves)))
            continue;
        snprintf(what, sizeof what, "dimension %u of '%.60s'", d, slot_name(state, slot));
        check_launch_time(state, slot->shape[d], false, leaves, what);
        if (strided) check_launch_time(state, slot->stride[d], false, leaves, what);
    }
}

/* Each expression by itself; then their leaves are known. */
static bool check_each_expr(tvm_verify_state *state) {
    const tvm_ir_kernel *kernel = state->kernel;
    unsigned before = state->errors;
    for (uint32_t i = 0; i < kernel->expr_count && !tvm_verify_done(state); i++) check_expr(state, i);
    if (state->errors > before || state->stopped) return false;
    uint8_t *leaves = realloc(state->leaves, kernel->expr_count + (size_t)1);
    if (leaves == NULL) {
        out_of_memory(state);
        return false;
    }
    state->leaves = leaves;
    tvm_expr_leaves_all(kernel, leaves);
    return true;
}

static void check_exprs(tvm_verify_state *state) {
    const tvm_ir_kernel *kernel = state->kernel;
    if (!check_each_expr(state)) return;
    for (uint32_t p = 0; p < kernel->slot_count && !tvm_verify_done(state); p++) check_shape(state, p);
    for (unsigned d = 0; d < 3; d++)
        if (kernel->grid[d] != TVM_NONE)
            check_launch_time(state, kernel->grid[d], false, TVM_LEAF_LAUNCH, "grid");
    for (uint32_t i = 0; i < kernel->assume_count && !tvm_verify_done(state); i++)
        check_launch_time(state, kernel->assumes[i], true, TVM_LEAF_LAUNCH, "assume");
}

/* ---- control ---- */

typedef struct matcher {
    const tvm_ir_program *program;
    tvm_ir_kernel *kernel;
    tvm_diags *diags;
    uint32_t stack[TVM_MAX_DEPTH]; /* the openers, and ELSE in the place of its IF */
    uint32_t opener[TVM_MAX_DEPTH];
    unsigned depth;
} matcher;

static tvm_status match_error(matcher *m, uint32_t insn, const char *message) {
    return report(m->diags, m->program, m->kernel, &m->kernel->insns[insn], message);
}

static tvm_status match_open(matcher *m, uint32_t insn) {
    if (m->depth == TVM_MAX_DEPTH) return match_error(m, insn, "control is nested too deeply");
    m->stack[m->depth] = m->opener[m->depth] = insn;
    m->depth++;
    return TVM_OK;
}

static tvm_status match_else(matcher *m, uint32_t insn) {
    if (m->depth == 0 || tvm_insn_class(&m->kernel->insns[m->stack[m->depth - 1]]) != TVM_CLASS_BRANCH)
        return match_error(m, insn, "there is no if to which it belongs");
    m->kernel->insns[m->stack[m->depth - 1]].match = insn;
    m->stack[m->depth - 1] = insn;
    return TVM_OK;
}

static tvm_status match_end(matcher *m, uint32_t insn) {
    if (m->depth == 0) return match_error(m, insn, "there is no for, while, if or role to close");
    m->depth--;
    m->kernel->insns[m->stack[m->depth]].match = insn;
    m->kernel->insns[insn].match = m->opener[m->depth];
    return TVM_OK;
}

static tvm_status match_jump(matcher *m, uint32_t insn) {
    for (unsigned d = m->depth; d-- > 0;)
        if (tvm_insn_class(&m->kernel->insns[m->opener[d]]) == TVM_CLASS_LOOP) {
            m->kernel->insns[insn].match = m->opener[d];
            return TVM_OK;
        }
    return match_error(m, insn, "it is outside of every loop");
}

static tvm_status match_insn(matcher *m, uint32_t insn) {
    switch (tvm_insn_class(&m->kernel->insns[insn])) {
    case TVM_CLASS_LOOP:
    case TVM_CLASS_BRANCH:
    case TVM_CLASS_SECTION:
        return match_open(m, insn);
    case TVM_CLASS_ELSE:
        return match_else(m, insn);
    case TVM_CLASS_END:
        return match_end(m, insn);
    case TVM_CLASS_JUMP:
        return match_jump(m, insn);
    default:
        return TVM_OK;
    }
}

tvm_status tvm_ir_kernel_match(const tvm_ir_program *program, tvm_ir_kernel *kernel, tvm_diags *diags) {
    matcher m = {.program = program, .kernel = kernel, .diags = diags};
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        kernel->insns[i].match = TVM_NONE;
        tvm_status status = match_insn(&m, i);
        if (status != TVM_OK) return status;
    }
    if (m.depth > 0) return match_error(&m, m.opener[m.depth - 1], "it is not closed by end");
    return TVM_OK;
}

/* ---- instructions ---- */

/* An upper bound of the steps of a layout rule: it walks the threads, and the locals, of each tensor; mma's
 * walks the tiles of c times those of k, and again for scales. */
static uint64_t rule_work(const tvm_verify_state *state, const tvm_insn *insn) {
    const tvm_ir_kernel *kernel = state->kernel;
    uint64_t work = 64, product = 1;
    unsigned factors = 0;
    const tvm_slot *result = insn->result < kernel->slot_count ? &kernel->slots[insn->result] : NULL;
    if (result && result->kind == TVM_SLOT_REGISTER)
        work += 8 * (uint64_t)tvm_layout_locals(&state->program->layouts[result->layout]);
    for (uint32_t i = 0; i < insn->count; i++) {
        tvm_operand operand = tvm_operands(kernel, insn)[i];
        if (operand.kind != TVM_OPERAND_SLOT || operand.value >= kernel->slot_count) continue;
        const tvm_slot *slot = &kernel->slots[operand.value];
        if (slot->kind == TVM_SLOT_SHARED) work += 8 * (uint64_t)(TVM_MAX_THREADS + TVM_MAX_LOCALS);
        if (slot->kind != TVM_SLOT_REGISTER) continue;
        const tvm_layout *layout = &state->program->layouts[slot->layout];
        work += 8 * ((uint64_t)tvm_layout_threads(layout) + tvm_layout_locals(layout));
        if (i != 1 && factors++ < 2) product *= tvm_layout_locals(layout); /* of a and c */
    }
    if (insn->op != TVM_OP_MMA) return work;
    return work + product * (factors > 2 ? 2 : 1); /* those of scales as well */
}

static void declare_type(const tvm_verify_state *state, const tvm_insn *insn, tvm_result_type *type) {
    memset(type, 0, sizeof *type);
    if (insn->result == TVM_NONE) return;
    const tvm_slot *slot = &state->kernel->slots[insn->result];
    type->kind = (tvm_slot_kind)slot->kind;
    type->dtype = slot->dtype;
    type->packing = (tvm_packing)slot->packing;
    type->has_layout = slot->kind == TVM_SLOT_REGISTER || tvm_slot_has_places(slot->kind);
    if (slot->kind == TVM_SLOT_GLOBAL) type->rank = slot->rank;
    memcpy(type->shape, slot->shape, sizeof type->shape);
    type->form = (tvm_global_form)slot->form;
    memcpy(type->stride, slot->stride, sizeof type->stride);
    if (slot->kind == TVM_SLOT_REGISTER) type->layout = state->program->layouts[slot->layout];
    if (tvm_slot_has_places(slot->kind)) type->shared_layout = state->program->shared_layouts[slot->layout];
}

static void check_rule(tvm_verify_state *state, const tvm_insn *insn, tvm_team team) {
    tvm_verify_key key;
    tvm_verify_key *known = NULL;
    size_t bytes = 0;
    if (tvm_op(insn->op)->traits & TVM_TRAIT_MEMO) {
        bytes = tvm_verify_key_of(state->kernel, insn, team, &key) * sizeof key.words[0];
        if (bytes) known = &state->memo[XXH3_64bits(&key, bytes) % TVM_VERIFY_MEMO];
        if (bytes && memcmp(known, &key, bytes) == 0) return; /* the count is among the first words */
        if (!tvm_verify_charge(state, rule_work(state, insn))) return;
    }
    tvm_result_type type;
    declare_type(state, insn, &type);
    tvm_why why = {""};
    if (tvm_infer(state->program, state->kernel, team, insn, tvm_operands(state->kernel, insn), &type,
                  &why) != TVM_OK)
        tvm_verify_error(state, insn, "%s", why.text);
    else if (known != NULL)
        memcpy(known, &key, bytes);
}

static void check_insn(tvm_verify_state *state, const tvm_insn *insn, tvm_team team) {
    const tvm_ir_kernel *kernel = state->kernel;
    const tvm_op_info *info = tvm_op(insn->op);
    if (!tvm_verify_charge(state, 64)) return;
    if (info == NULL) {
        tvm_verify_error(state, insn, "opcode %u does not exist", insn->op);
    } else if ((uint64_t)insn->first + insn->count > kernel->operand_count) {
        tvm_verify_error(state, insn, "its operands do not exist");
    } else if (insn->result != TVM_NONE && insn->result >= kernel->slot_count) {
        tvm_verify_error(state, insn, "slot %u, the result, does not exist", insn->result);
    } else if ((info->result == TVM_SLOT_NONE) != (insn->result == TVM_NONE)) {
        tvm_verify_error(state, insn,
                         info->result == TVM_SLOT_NONE ? "the instruction has no result"
                                                       : "the result is missing");
    } else if (insn->result != TVM_NONE && insn->result < kernel->param_count) {
        tvm_verify_error(state, insn, "'%s' is a parameter, which cannot be assigned",
                         slot_name(state, &kernel->slots[insn->result]));
    } else if (insn->file != TVM_NONE && insn->file >= state->program->string_count) {
        tvm_verify_error(state, insn, "string %u, its file, does not exist", insn->file);
    } else {
        check_rule(state, insn, team);
    }
}

/* ---- kernels ---- */

static bool is_cluster(const tvm_ir_kernel *kernel) {
    for (unsigned d = 0; d < 3; d++)
        if (kernel->cluster[d] < 1 || kernel->cluster[d] > TVM_MAX_CLUSTER) return false;
    return tvm_cluster_blocks(kernel) <= TVM_MAX_CLUSTER;
}

static bool check_limits(tvm_verify_state *state) {
    const tvm_ir_kernel *kernel = state->kernel;
    if (!check_name(state, kernel->name, "a kernel")) return false;
    if (kernel->warps < 1 || kernel->warps > TVM_MAX_THREADS / 32)
        tvm_verify_error(state, NULL, "%u warps, expected 1 to %d", kernel->warps, TVM_MAX_THREADS / 32);
    else if (kernel->resident < 1 || kernel->resident > TVM_MAX_RESIDENT)
        tvm_verify_error(state, NULL, "%u resident blocks, expected 1 to %d", kernel->resident,
                         TVM_MAX_RESIDENT);
    else if (!is_cluster(kernel))
        tvm_verify_error(state, NULL, "a cluster of %u x %u x %u blocks, expected 1 to %d blocks",
                         kernel->cluster[0], kernel->cluster[1], kernel->cluster[2], TVM_MAX_CLUSTER);
    else if (kernel->param_count > TVM_MAX_PARAMS || kernel->param_count > kernel->slot_count)
        tvm_verify_error(state, NULL, "%u parameters, expected at most %d", kernel->param_count,
                         TVM_MAX_PARAMS);
    else if (kernel->slot_count > TVM_MAX_SLOTS)
        tvm_verify_error(state, NULL, "%u variables, expected at most %d", kernel->slot_count, TVM_MAX_SLOTS);
    else if (kernel->expr_count > TVM_MAX_EXPRS || kernel->assume_count > TVM_MAX_EXPRS)
        tvm_verify_error(state, NULL, "%u expressions, expected at most %d", kernel->expr_count,
                         TVM_MAX_EXPRS);
    else if (kernel->insn_count > TVM_MAX_INSNS)
        tvm_verify_error(state, NULL, "%u instructions, expected at most %d", kernel->insn_count,
                         TVM_MAX_INSNS);
    else
        return true;
    return false;
}

static void check_kernel(tvm_verify_state *state) {
    tvm_ir_kernel *kernel = state->kernel;
    unsigned before = state->errors;
    if (!check_limits(state)) return;
    check_slots(state);
    if (state->errors > before || !tvm_verify_charge(state, (uint64_t)kernel->expr_count * 8)) return;
    check_exprs(state);
    if (state->errors > before) return;
    tvm_team_walk walk = {.depth = 0};
    for (uint32_t s = 0; s < kernel->slot_count; s++) kernel->slots[s].view = 0;
    for (uint32_t i = 0; i < kernel->insn_count && !tvm_verify_done(state); i++) {
        const tvm_insn *insn = &kernel->insns[i];
        unsigned errors = state->errors;
        check_insn(state, insn, tvm_team_next(&walk, kernel, insn));
        /* What views it looks through what has been found right. */
        bool view = insn->op == TVM_OP_VIEW_GLOBAL || insn->op == TVM_OP_VIEW_SHARED;
        if (view && state->errors == errors) kernel->slots[insn->result].view = i + 1;
    }
    if (tvm_verify_done(state)) return;
    tvm_status status = tvm_ir_kernel_match(state->program, kernel, state->diags);
    if (status != TVM_OK) {
        state->status = status;
        state->errors++;
    }
    if (state->errors == before) tvm_views_find(kernel);
    if (state->errors == before) tvm_verify_roles(state);
    if (state->errors == before) tvm_verify_flow(state);
    if (state->errors == before && !state->stopped) tvm_verify_pipelines(state);
}

static void check_kernels(tvm_verify_state *state) {
    tvm_ir_program *program = state->program;
    if (program->kernel_count > TVM_MAX_KERNELS) {
        tvm_verify_error(state, NULL, "%u kernels, expected at most %d", program->kernel_count,
                         TVM_MAX_KERNELS);
        return;
    }
    for (uint32_t i = 0; i < program->kernel_count && !tvm_verify_done(state); i++) {
        state->kernel = &program->kernels[i];
        check_kernel(state);
        state->kernel = NULL;
    }
}

/* ---- entries ---- */

/* The runtime evaluates it as it does the condition. */
static void check_cost(tvm_verify_state *state, uint32_t cost, uint32_t index) {
    const tvm_ir_kernel *head = state->kernel;
    char what[48];
    if (cost == TVM_NONE) return;
    snprintf(what, sizeof what, "the cost of case %u", index + 1);
    if (cost < head->expr_count && !tvm_dtype_same(head->exprs[cost].type, TVM_I(64)))
        tvm_verify_error(state, NULL, "%s has type %s, expected i64", what,
                         TVM_DTYPE_TEXT(head->exprs[cost].type));
    else
        check_launch_time(state, cost, false, TVM_LEAF_LAUNCH, what);
    if (cost < head->expr_count) tvm_verify_charge(state, 64 * (uint64_t)head->exprs[cost].size);
}

static void check_case(tvm_verify_state *state, const tvm_ir_entry *entry, uint32_t index) {
    const tvm_ir_program *program = state->program;
    const tvm_ir_case *made = &entry->cases[index];
    const tvm_ir_kernel *head = &entry->head;
    const tvm_ir_kernel *first = index > 0 ? &program->kernels[entry->cases[0].kernel] : head;
    bool shapes = index > 0 && !entry->shapes_may_differ;
    tvm_why why = {""};
    char what[32];
    snprintf(what, sizeof what, "case %u", index + 1);
    if (!tvm_verify_charge(state, 64 + (uint64_t)head->param_count * 16) ||
        !tvm_verify_charge(state, shapes ? tvm_signature_work(first) : 0))
        return;
    if (made->kernel >= program->kernel_count)
        tvm_verify_error(state, NULL, "%s: kernel %u does not exist", what, made->kernel);
    else if (tvm_same_signature(program, &program->kernels[made->kernel], first, shapes, &why) != TVM_OK)
        tvm_verify_error(state, NULL, "%s: %s", what, why.text);
    else if (made->condition != TVM_NONE)
        check_launch_time(state, made->condition, true, TVM_LEAF_LAUNCH, what);
    check_cost(state, made->cost, index);
    /* The runtime evaluates the condition node by node: each node counts towards the limit of work. */
    if (made->condition < head->expr_count)
        tvm_verify_charge(state, 64 * (uint64_t)head->exprs[made->condition].size);
    if (made->condition < head->expr_count && head->exprs[made->condition].op == TVM_EXPR_INTEGER)
        tvm_verify_error(state, NULL, "%s: its condition is a constant", what);
}

/* The head's parameters are copies of a kernel's that has been checked. */
static void check_entry(tvm_verify_state *state, const tvm_ir_entry *entry) {
    const tvm_ir_kernel *head = &entry->head;
    unsigned before = state->errors;
    if (!check_limits(state)) return;
    if (entry->case_count == 0)
        tvm_verify_error(state, NULL, "the entry has no case");
    else if (entry->case_count > TVM_MAX_CASES)
        tvm_verify_error(state, NULL, "%u cases, expected at most %d", entry->case_count, TVM_MAX_CASES);
    else if (head->slot_count != head->param_count || head->insn_count > 0)
        tvm_verify_error(state, NULL, "the entry has variables or instructions of its own");
    if (state->errors > before || !tvm_verify_charge(state, (uint64_t)head->expr_count * 8)) return;
    if (!check_each_expr(state)) return;
    for (uint32_t i = 0; i < entry->case_count && state->errors == before && !tvm_verify_done(state); i++)
        check_case(state, entry, i);
}

static void check_entries(tvm_verify_state *state) {
    tvm_ir_program *program = state->program;
    if (program->entry_count > TVM_MAX_ENTRIES) {
        tvm_verify_error(state, NULL, "%u entries, expected at most %d", program->entry_count,
                         TVM_MAX_ENTRIES);
        return;
    }
    for (uint32_t i = 0; i < program->entry_count && !tvm_verify_done(state); i++) {
        state->kernel = &program->entries[i].head;
        check_entry(state, &program->entries[i]);
        state->kernel = NULL;
    }
}

/* One name space: a launch is of either. */
static void check_kernel_names(tvm_verify_state *state) {
    const tvm_ir_program *program = state->program;
    uint32_t count = 0;
    if (program->kernel_count > TVM_MAX_KERNELS || program->entry_count > TVM_MAX_ENTRIES) return;
    const char **names = name_array(state, program->kernel_count + program->entry_count);
    if (names == NULL) return;
    for (uint32_t i = 0; i < program->kernel_count; i++)
        names[count++] = tvm_string(program, program->kernels[i].name);
    for (uint32_t i = 0; i < program->entry_count; i++)
        names[count++] = tvm_string(program, program->entries[i].head.name);
    check_unique(state, names, count, program->entry_count ? "kernels or entries" : "kernels");
    free(names);
}

tvm_status tvm_verify(tvm_ir_program *program, tvm_diags *diags) {
    tvm_verify_state *state = calloc(1, sizeof *state);
    if (state == NULL) return tvm_diag_no_memory(diags);
    state->program = program;
    state->diags = diags;
    check_strings(state);
    if (state->errors == 0) check_layouts(state);
    if (state->errors == 0) check_kernels(state);
    if (state->errors == 0) check_entries(state);
    if (!tvm_verify_done(state)) check_kernel_names(state);
    tvm_status status = state->errors == 0 ? TVM_OK : state->status;
    free(state->leaves);
    free(state);
    return status;
}
