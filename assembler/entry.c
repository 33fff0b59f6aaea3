/* Entries: a name for several kernels of one signature, and the table by which a launch chooses. */
#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "head.h"
#include "language.h"
#include "names.h"
#include "operators.h"
#include "report.h"
#include "scalars.h"
#include "signature.h"
#include "suggest.h"

bool tvm_directive_entry(tvm_asm *as, const tvm_token *token) {
    const char *name = "?";
    uint32_t length = 1;
    bool good = tvm_asm_launch_name(as, "the name of the entry", &name, &length);
    if (as->program->entry_count >= TVM_MAX_ENTRIES) {
        tvm_asm_invalid(as, token, NULL, "a program has at most %d entries", TVM_MAX_ENTRIES);
        as->report.stopped = true;
        return false;
    }
    uint32_t string = tvm_ir_program_string(as->program, name, length);
    uint32_t index = string == TVM_NONE ? TVM_NONE : tvm_ir_program_add_entry(as->program, string);
    if (index == TVM_NONE) return tvm_asm_no_memory(as);
    as->kernel.entry = index;
    as->kernel.is_entry = true;
    as->kernel.first = TVM_NONE;
    as->kernel.cases_seen = 0;
    tvm_asm_kernel_open(as, token);
    return good && tvm_asm_expect_end(as);
}

/* ---- .case ---- */

static bool no_variant(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    const tvm_ir_program *program = as->program;
    tvm_suggest suggest;
    tvm_suggest_start(&suggest, name, length);
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const char *other = tvm_string(program, program->kernels[k].name);
        tvm_suggest_offer(&suggest, other, strlen(other));
    }
    if (as->text.left_out) return false;
    const char *shown = TVM_SUGGEST_HINT(&suggest, "");
    return tvm_asm_invalid(as, token, shown ? shown : "the kernels of an entry stand before it",
                           "there is no kernel '%.*s' before this", (int)length, name);
}

/* *kernel is TVM_NONE where there is none of that name. */
static bool variant(tvm_asm *as, const char **name, uint32_t *length, uint32_t *kernel) {
    const tvm_ir_program *program = as->program;
    if (!tvm_asm_expect_name(as, "the name of a kernel", name, length)) return false;
    *name = tvm_arena_text(&as->scratch, *name, *length);
    if (!*name) return tvm_asm_no_memory(as);
    *kernel = TVM_NONE;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const char *other = tvm_string(program, program->kernels[k].name);
        if (strlen(other) == *length && memcmp(other, *name, *length) == 0) *kernel = k;
    }
    return true;
}

/* The parameters of the entry are those of the first kernel that it names. */
static bool take_parameters(tvm_asm *as, const tvm_token *token, uint32_t first) {
    as->kernel.first = first;
    for (uint32_t p = 0; p < as->program->kernels[first].param_count; p++) {
        tvm_slot slot = as->program->kernels[first].slots[p];
        const char *name = tvm_string(as->program, slot.name);
        uint32_t length = (uint32_t)strlen(name);
        for (unsigned d = 0; d < TVM_MAX_RANK; d++) slot.shape[d] = slot.stride[d] = TVM_NONE;
        slot.form = TVM_FORM_ROW_MAJOR;
        if (!tvm_asm_add_parameter(as, name, length, &slot)) return false;
        const tvm_symbol *constant = tvm_symbols_find(&as->statics.names, name, length);
        if (constant && constant->line)
            return tvm_asm_error(as, token, NULL,
                                 "parameter '%s' of the kernel is here a constant, defined at %s:%u", name,
                                 constant->file, constant->line);
    }
    return true;
}

static bool check_signature(tvm_asm *as, const tvm_token *token, uint32_t kernel) {
    const tvm_ir_kernel *kernels = as->program->kernels;
    tvm_why why = {""};
    if (as->kernel.first == TVM_NONE) return take_parameters(as, token, kernel);
    const tvm_ir_kernel *first = &kernels[as->kernel.first];
    if (tvm_same_signature(as->program, &kernels[kernel], first, false, &why) != TVM_OK)
        return tvm_asm_invalid(as, token, "the kernels of an entry take the same arguments", "%s", why.text);
    if (as->text.latest < TVM_LANGUAGE_OF_SHAPES ||
        tvm_same_signature(as->program, &kernels[kernel], first, true, &why) == TVM_OK)
        return true;
    return tvm_asm_invalid(as, token,
                           "the kernels of an entry have parameters of the same shapes; one that wants "
                           "another shape takes a view: view-global x, [...], strides row_major",
                           "%s", why.text);
}

/* *expr is TVM_NONE for what is always true; *never for what never is. */
static bool condition(tvm_asm *as, uint32_t *expr, bool *never) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value, truth;
    *expr = TVM_NONE;
    if (!tvm_asm_expression(as, &value) || !tvm_asm_to_bool(as, token, &value, &truth)) return false;
    if (truth.kind == TVM_VALUE_POISON) return false;
    if (tvm_value_is_static(&truth)) {
        *never = !truth.as.i;
        return true;
    }
    return tvm_asm_lower(as, token, &truth, TVM_BOOL, expr) &&
           tvm_asm_launch_time(as, token, *expr, 0, "a condition");
}

/* Evaluated where the case holds, a constant one too. */
static bool cost(tvm_asm *as, const tvm_token *token, uint32_t *expr) {
    const tvm_token *at = tvm_asm_peek(as);
    tvm_value value;
    if (as->text.version < TVM_LANGUAGE_OF_COSTS)
        return tvm_asm_error(as, token, NULL, "the cost of a case needs '.vasm %d'", TVM_LANGUAGE_OF_COSTS);
    if (!tvm_asm_expression(as, &value) || value.kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(&value))
        return tvm_asm_error(as, at, NULL, "a cost is an integer, not %s", tvm_value_what(&value));
    tvm_dtype type = tvm_asm_type_of(as, &value);
    if (value.kind == TVM_VALUE_BOOL || !(tvm_dtype_same(type, TVM_I(32)) || tvm_dtype_same(type, TVM_I(64))))
        return tvm_asm_invalid(as, at, type.kind == TVM_KIND_BOOL ? NULL : "write i64(...)",
                               "a cost has type i64 or i32, not %s", TVM_DTYPE_TEXT(type));
    return tvm_asm_lower(as, at, &value, TVM_I(64), expr) && tvm_asm_launch_time(as, at, *expr, 0, "a cost");
}

bool tvm_directive_case(tvm_asm *as, const tvm_token *token) {
    tvm_ir_entry *entry = &as->program->entries[as->kernel.entry];
    const tvm_token *at = tvm_asm_peek(as);
    tvm_ir_case made = {.condition = TVM_NONE, .cost = TVM_NONE};
    bool never = false;
    const char *name;
    uint32_t length;
    as->kernel.cases_seen++;
    if (!variant(as, &name, &length, &made.kernel)) return false;
    /* A case that is left out needs no kernel: the one of a table's row may be left out, too. */
    if (made.kernel == TVM_NONE && (as->kernel.first == TVM_NONE || !tvm_asm_at(as, "if")))
        return no_variant(as, at, name, length);
    if (made.kernel != TVM_NONE && !check_signature(as, at, made.kernel)) return false;
    if (tvm_asm_accept(as, "if")) {
        if (!condition(as, &made.condition, &never)) return false;
    } else if (!tvm_asm_at_end(as) && !tvm_asm_at(as, "cost")) {
        return tvm_asm_error(as, tvm_asm_peek(as), NULL, "expected 'if' and a condition, or the end of line");
    }
    const tvm_token *word = tvm_asm_peek(as);
    if (tvm_asm_accept(as, "cost") && !cost(as, word, &made.cost)) return false;
    if (!never && made.kernel == TVM_NONE) return no_variant(as, at, name, length);
    if (!tvm_asm_expect_end(as) || never) return never;
    if (entry->case_count >= TVM_MAX_CASES)
        return tvm_asm_invalid(as, token, NULL, "an entry has at most %d cases", TVM_MAX_CASES);
    return tvm_ir_entry_add_case(as->program, entry, &made) != TVM_NONE || tvm_asm_no_memory(as);
}
