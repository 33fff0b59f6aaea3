/* The head of a kernel: its name, parameters, block, grid and assumptions; and its end. */
#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "frames.h"
#include "graph.h"
#include "head.h"
#include "infer.h"
#include "language.h"
#include "names.h"
#include "operators.h"
#include "report.h"
#include "scalars.h"
#include "shapes.h"
#include "suggest.h"

/* ---- parameters ---- */

/* Past the bracket that matches the open one before the cursor. */
static bool skip_brackets(tvm_asm *as, const char *what, const char *close) {
    const tvm_token *open = tvm_asm_peek(as);
    unsigned depth = 1;
    while (depth && !tvm_asm_at_end(as)) {
        if (tvm_asm_at(as, "[") || tvm_asm_at(as, "(")) depth++;
        if (tvm_asm_at(as, "]") || tvm_asm_at(as, ")")) depth--;
        tvm_asm_next(as);
    }
    return !depth || tvm_asm_error(as, open, NULL, "the %s is not closed with '%s'", what, close);
}

static bool parameter_type(tvm_asm *as, tvm_slot *slot, uint32_t *shape_at) {
    bool global = as->kernel.is_graph ? tvm_asm_graph_role(as) : tvm_asm_accept(as, "global");
    const tvm_token *token = tvm_asm_peek(as);
    tvm_dtype type;
    if (as->kernel.is_graph && !global && tvm_asm_ahead(as, 1)->kind == TVM_TOKEN_NAME &&
        !tvm_asm_is(as, tvm_asm_ahead(as, 1), "if"))
        return tvm_asm_error(as, token, NULL, "a tensor of a graph is 'input', 'output' or 'state'");
    if (!tvm_asm_type(as, &type)) return false;
    *slot = (tvm_slot){.kind = global ? TVM_SLOT_GLOBAL : TVM_SLOT_SCALAR, .dtype = type, .layout = TVM_NONE};
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) slot->shape[d] = slot->stride[d] = TVM_NONE;
    if (!global) {
        if (tvm_asm_at(as, "["))
            return tvm_asm_error(as, tvm_asm_peek(as),
                                 as->kernel.is_graph ? "a tensor is written 'input f16[m, n]'"
                                                     : "a tensor is written 'global f16[m, n]'",
                                 "a scalar parameter has no shape");
        if (!tvm_dtype_is_scalar(type))
            return tvm_asm_invalid(as, token, "scalars are of type bool, i32, u32, i64, u64, f32 or f64",
                                   "'%s' is not a type of scalars", TVM_DTYPE_TEXT(type));
        return true;
    }
    if (!tvm_asm_expect(as, "[", "and the shape after the type of a global tensor")) return false;
    *shape_at = as->text.at;
    if (!skip_brackets(as, "shape", "]")) return false;
    if (!tvm_asm_at(as, "strides")) return true;
    if (as->text.version < TVM_LANGUAGE_OF_STRIDES)
        return tvm_asm_error(as, tvm_asm_peek(as), NULL, "'strides' needs '.vasm %d'",
                             TVM_LANGUAGE_OF_STRIDES);
    if (type.bits % 8 != 0)
        return tvm_asm_invalid(as, token, NULL,
                               "a tensor of %s has no strides: its elements are no whole bytes",
                               TVM_DTYPE_TEXT(type));
    tvm_asm_next(as);
    return tvm_asm_expect(as, "[", "and a stride for each dimension") &&
           skip_brackets(as, "list of strides", "]");
}

/* Reads a shape at a token that parameter_type has passed, now that all parameters are known. */
static bool parameter_shape(tvm_asm *as, uint32_t index, uint32_t shape_at) {
    uint32_t after = as->text.at;
    as->text.at = shape_at;
    uint32_t rank, shape[TVM_MAX_RANK];
    uint32_t stride[TVM_MAX_RANK];
    bool good = tvm_asm_global_shape(as, 0, &rank, shape), strided = good && tvm_asm_accept(as, "strides");
    if (strided) good = tvm_asm_expect(as, "[", "") && tvm_asm_global_strides(as, 0, rank, stride);
    as->text.at = after;
    if (!good) return false;
    tvm_slot *slot = &tvm_asm_kernel(as)->slots[index];
    memcpy(slot->shape, shape, rank * sizeof *shape);
    slot->rank = (uint8_t)rank;
    if (!strided) return true;
    memcpy(slot->stride, stride, rank * sizeof *stride);
    slot->form = TVM_FORM_STRIDED;
    return true;
}

/* The names that the verifier refuses; others that mean something are reached as `%name`. */
static bool is_refused_name(const char *name, uint32_t length) {
    static const char *const words[] = {"true", "false", "block", "grid", "multiprocessors", "target"};
    tvm_dtype type;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && memcmp(words[i], name, length) == 0) return true;
    return tvm_dtype_parse(name, length, &type);
}

static bool new_parameter_name(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length) {
    if (is_refused_name(name, length))
        return tvm_asm_error(as, token, NULL,
                             "'%.*s' is a word of the language: a parameter cannot be named so", (int)length,
                             name);
    if (tvm_asm_find_parameter(as, name, length))
        return tvm_asm_error(as, token, NULL, "there are two parameters '%.*s'", (int)length, name);
    uint32_t limit = as->statics.names.limit;
    as->statics.names.limit =
        0; /* the body sees the constants of the kernel's place, whatever a signature sees */
    const tvm_symbol *constant = tvm_symbols_find(&as->statics.names, name, length);
    as->statics.names.limit = limit;
    if (constant)
        return tvm_asm_error(as, token, NULL, "'%.*s' is a constant, defined at %s:%u", (int)length, name,
                             constant->file, constant->line);
    if (tvm_asm_kernel(as)->param_count >= TVM_MAX_PARAMS)
        return tvm_asm_invalid(as, token, NULL, "a kernel has at most %d parameters", TVM_MAX_PARAMS);
    return true;
}

/* [if e]: a kernel has the parameter where it holds. */
static bool parameter_condition(tvm_asm *as, bool *kept) {
    *kept = true;
    return !tvm_asm_accept(as, "if") || tvm_asm_condition(as, "the condition of a parameter", kept);
}

/* *kept: the kernel has it. */
static bool parameter(tvm_asm *as, uint32_t *shape_at, bool *kept) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    tvm_slot slot;
    *shape_at = 0;
    if (!tvm_asm_expect_name(as, "the name of a parameter", &name, &length)) return false;
    bool good = tvm_asm_expect(as, ":", "and a type after the parameter's name") &&
                parameter_type(as, &slot, shape_at) && parameter_condition(as, kept);
    if (good && !*kept) return true;
    good = good && new_parameter_name(as, token, name, length);
    if (!good) {
        tvm_asm_poison_parameter(as, name, length);
        return false;
    }
    return tvm_asm_add_parameter(as, name, length, &slot);
}

static bool parameters_of_signature(tvm_asm *as, const tvm_token *token);

/* `: SIGNATURE [if e]` in a list, past the colon: its parameters stand here. */
static bool joined_parameters(tvm_asm *as) {
    uint32_t at = as->text.at;
    const char *name;
    uint32_t length;
    bool kept;
    if (!tvm_asm_expect_name(as, "the name of a signature", &name, &length) ||
        !parameter_condition(as, &kept))
        return false;
    uint32_t after = as->text.at;
    as->text.at = at;
    bool good = !kept || parameters_of_signature(as, tvm_asm_peek(as));
    as->text.at = after;
    return good;
}

/* The list past its parenthesis, up to and with the closing one. */
static bool parameters(tvm_asm *as) {
    uint32_t shapes[TVM_MAX_PARAMS] = {0};
    uint32_t shape_at = 0;
    if (!tvm_asm_accept(as, ")")) {
        do {
            bool kept;
            if (tvm_asm_accept(as, ":")) {
                if (!joined_parameters(as)) return false;
                continue;
            }
            if (!parameter(as, &shape_at, &kept)) return false;
            if (kept) shapes[tvm_asm_kernel(as)->param_count - 1] = shape_at;
        } while (tvm_asm_accept(as, ","));
        if (!tvm_asm_expect(as, ")", "or ',' after a parameter")) return false;
    }
    for (uint32_t i = 0; i < tvm_asm_kernel(as)->param_count; i++)
        if (shapes[i] && !parameter_shape(as, i, shapes[i])) return false;
    return true;
}

/* ---- .signature ---- */

/* A parameter list that was not understood: its names must not cause more errors. */
static void poison_rest(tvm_asm *as, uint32_t from) {
    for (uint32_t i = from; i + 1 < as->text.source->count; i++) {
        const tvm_token *token = &as->text.source->tokens[i];
        if (token->kind == TVM_TOKEN_NEWLINE) return;
        if (token->kind == TVM_TOKEN_NAME && !token->pasted && tvm_asm_is(as, token + 1, ":"))
            tvm_asm_poison_parameter(as, tvm_token_text(as->text.source, token), token->length);
    }
}

bool tvm_directive_signature(tvm_asm *as, const tvm_token *token) {
    const tvm_token *at = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    if (as->text.version < TVM_LANGUAGE_OF_RECORDS)
        return tvm_asm_error(as, token, NULL, "'.signature' needs '.vasm %d'", TVM_LANGUAGE_OF_RECORDS);
    if (!tvm_asm_expect_name(as, "the name of a signature", &name, &length) ||
        !tvm_asm_expect(as, "(", "and the parameters after the signature's name"))
        return false;
    tvm_value value = {
        .kind = TVM_VALUE_SIGNATURE,
        .as.signature = {as->text.source, as->text.at, as->statics.names.count, as->text.version}};
    if (!skip_brackets(as, "list of parameters", ")")) return false;
    return tvm_asm_define(as, at, name, length, &value) && tvm_asm_expect_end(as);
}

static const tvm_symbol *expect_signature(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    const char *name;
    uint32_t length;
    tvm_suggest suggest;
    if (as->text.version < TVM_LANGUAGE_OF_RECORDS) {
        tvm_asm_error(as, token, NULL, "a kernel with a signature needs '.vasm %d'", TVM_LANGUAGE_OF_RECORDS);
        return NULL;
    }
    if (!tvm_asm_expect_name(as, "the name of a signature", &name, &length)) return NULL;
    const tvm_symbol *symbol = tvm_symbols_find(&as->statics.names, name, length);
    if (symbol && symbol->value.kind == TVM_VALUE_SIGNATURE) return symbol;
    if (symbol) {
        if (symbol->value.kind != TVM_VALUE_POISON)
            tvm_asm_error(as, token, NULL, "'%.*s' is %s, not a signature", (int)length, name,
                          tvm_value_what(&symbol->value));
        return NULL;
    }
    tvm_suggest_start(&suggest, name, length);
    uint32_t known = as->statics.names.limit ? as->statics.names.limit - 1 : as->statics.names.count;
    for (uint32_t i = 0; i < known; i++)
        if (as->statics.names.items[i].value.kind == TVM_VALUE_SIGNATURE)
            tvm_suggest_offer(&suggest, as->statics.names.items[i].name, as->statics.names.items[i].length);
    tvm_asm_error(as, token, TVM_SUGGEST_HINT(&suggest, ""), "there is no signature '%.*s'",
                  length > 80 ? 80 : (int)length, name);
    return NULL;
}

/* The parameters of the signature at the cursor, with the static names that were known where it stands. */
static bool parameters_of_signature(tvm_asm *as, const tvm_token *token) {
    const tvm_symbol *symbol = expect_signature(as);
    if (!symbol) return false;
    if (tvm_asm_at(as, "("))
        return tvm_asm_error(as, tvm_asm_peek(as), NULL,
                             "a kernel has a signature or a list of parameters, not both");
    const tvm_source *source = as->text.source, *let_source = as->text.let_source;
    const tvm_token *let_token = as->text.let_token;
    uint32_t at = as->text.at, limit = as->statics.names.limit;
    unsigned version = as->text.version;
    tvm_value value = symbol->value;
    as->text.source = value.as.signature.source;
    as->text.at = value.as.signature.at;
    as->text.version = value.as.signature.version;
    as->statics.names.limit = value.as.signature.names + 1;
    as->text.let_source = source;
    as->text.let_token = token;
    bool good = parameters(as);
    if (!good) poison_rest(as, value.as.signature.at);
    as->text.source = source;
    as->text.at = at;
    as->text.version = version;
    as->statics.names.limit = limit;
    as->text.let_source = let_source;
    as->text.let_token = let_token;
    return good;
}

/* `(list)` or `: SIGNATURE`, after the kernel's name. */
static bool parameters_of_kernel(tvm_asm *as, const tvm_token *token) {
    if (tvm_asm_accept(as, ":")) return parameters_of_signature(as, token) && tvm_asm_expect_end(as);
    if (!tvm_asm_expect(as, "(", "and the parameters after the kernel's name") || !parameters(as))
        return false;
    if (tvm_asm_at(as, ":"))
        return tvm_asm_error(as, tvm_asm_peek(as), NULL,
                             "a kernel has a signature or a list of parameters, not both");
    return tvm_asm_expect_end(as);
}

bool tvm_asm_parameters(tvm_asm *as, const tvm_token *token, uint32_t from) {
    bool good = parameters_of_kernel(as, token);
    if (!good) poison_rest(as, from);
    return good;
}

/* ---- .kernel ---- */

bool tvm_directive_kernel(tvm_asm *as, const tvm_token *token) {
    const char *name = "?";
    uint32_t length = 1, from = as->text.at;
    bool good = tvm_asm_launch_name(as, "the name of the kernel", &name, &length);
    if (as->program->kernel_count >= TVM_MAX_KERNELS) {
        tvm_asm_invalid(as, token, NULL, "a program has at most %d kernels", TVM_MAX_KERNELS);
        as->report.stopped = true;
        return false;
    }
    uint32_t string = tvm_ir_program_string(as->program, name, length);
    uint32_t index = string == TVM_NONE ? TVM_NONE : tvm_ir_program_add_kernel(as->program, string);
    if (index == TVM_NONE) return tvm_asm_no_memory(as);
    as->kernel.index = index;
    as->kernel.version = as->text.version;
    as->kernel.warps_seen = as->kernel.resident_seen = as->kernel.cluster_seen = as->kernel.grid_seen =
        as->kernel.warps_missed = false;
    tvm_asm_kernel_open(as, token);
    return tvm_asm_parameters(as, token, from) && good;
}

/* With version 1 of the language, a kernel without a grid runs as one block. */
static void check_grid(tvm_asm *as) {
    if (as->kernel.grid_seen || as->kernel.version < 2) return;
    tvm_asm_error_in(as, as->kernel.source, &as->kernel.source->tokens[as->kernel.token],
                     "'.grid 1' for one block", "the kernel has no '.grid'");
}

static bool entry_check(tvm_asm *as) {
    const tvm_token *token = &as->kernel.source->tokens[as->kernel.token];
    if (as->kernel.cases_seen == 0)
        return tvm_asm_error_in(as, as->kernel.source, token, "'.case KERNEL if CONDITION'",
                                "the entry has no '.case'");
    if (as->report.errors == 0 && as->program->entries[as->kernel.entry].case_count == 0)
        return tvm_asm_error_in(as, as->kernel.source, token, NULL,
                                "no case of the entry holds, whatever the arguments");
    return true;
}

bool tvm_directive_end(tvm_asm *as, const tvm_token *token) {
    tvm_asm_close_frames(as, as->kernel.frames);
    if (as->text.frame_count > as->kernel.frames)
        tvm_asm_error(as, token, NULL, "this %s began in the including file or macro and must end there",
                      tvm_asm_what_is_open(as));
    for (unsigned i = as->kernel.control_count; i-- > 0;) {
        const tvm_control *control = &as->kernel.controls[i];
        tvm_asm_error_in(as, control->source, &control->source->tokens[control->token], NULL,
                         "'%s' without 'end'", tvm_op(control->op)->mnemonic);
    }
    if (as->kernel.is_entry) {
        entry_check(as);
    } else if (as->kernel.is_graph) {
        tvm_asm_graph_check(as);
    } else {
        tvm_asm_check_warps(as, token);
        check_grid(as);
        if (!as->report.errors) tvm_asm_infer_layouts(as);
    }
    tvm_asm_kernel_close(as);
    return tvm_asm_expect_end(as);
}

/* ---- .warps .resident .cluster .grid .assume ---- */

bool tvm_directive_warps(tvm_asm *as, const tvm_token *token) {
    int64_t warps;
    if (as->kernel.warps_seen) return tvm_asm_error(as, token, NULL, "'.warps' is already given");
    as->kernel.warps_seen = true;
    if (!tvm_asm_static_integer(as, 1, TVM_MAX_THREADS / 32, "the number of warps", &warps)) return false;
    tvm_asm_kernel(as)->warps = (uint32_t)warps;
    return tvm_asm_expect_end(as);
}

bool tvm_directive_resident(tvm_asm *as, const tvm_token *token) {
    int64_t blocks;
    if (as->kernel.resident_seen) return tvm_asm_error(as, token, NULL, "'.resident' is already given");
    as->kernel.resident_seen = true;
    if (!tvm_asm_static_integer(as, 1, TVM_MAX_RESIDENT, "the number of resident blocks", &blocks))
        return false;
    tvm_asm_kernel(as)->resident = (uint32_t)blocks;
    return tvm_asm_expect_end(as);
}

/* Before whatever reads cluster.x and its kin, and the first instruction. */
bool tvm_directive_cluster(tvm_asm *as, const tvm_token *token) {
    uint32_t *cluster = tvm_asm_kernel(as)->cluster;
    int64_t blocks = 1;
    if (as->kernel.version < TVM_LANGUAGE_OF_CLUSTERS)
        return tvm_asm_error(as, token, NULL, "'.cluster' needs '.vasm %d'", TVM_LANGUAGE_OF_CLUSTERS);
    if (as->kernel.cluster_seen) return tvm_asm_error(as, token, NULL, "'.cluster' is already given");
    if (tvm_asm_kernel(as)->insn_count > 0)
        return tvm_asm_error(as, token, NULL, "'.cluster' stands before the first instruction of the kernel");
    as->kernel.cluster_seen = true;
    unsigned axis = 0;
    do {
        int64_t extent;
        if (axis == 3)
            return tvm_asm_error(as, tvm_asm_peek(as), NULL, "a cluster has at most three extents");
        if (!tvm_asm_static_integer(as, 1, TVM_MAX_CLUSTER, "an extent of the cluster", &extent))
            return false;
        cluster[axis++] = (uint32_t)extent;
        blocks *= extent;
    } while (tvm_asm_accept(as, ","));
    if (blocks > TVM_MAX_CLUSTER)
        return tvm_asm_error(as, token, NULL, "a cluster of %lld blocks, expected at most %d",
                             (long long)blocks, TVM_MAX_CLUSTER);
    return tvm_asm_expect_end(as);
}

bool tvm_directive_grid(tvm_asm *as, const tvm_token *token) {
    if (as->kernel.grid_seen) return tvm_asm_error(as, token, NULL, "'.grid' is already given");
    as->kernel.grid_seen = true;
    unsigned axis = 0;
    do {
        const tvm_token *at = tvm_asm_peek(as);
        tvm_value value;
        uint32_t expr;
        if (axis == 3) return tvm_asm_error(as, at, NULL, "a grid has at most three extents");
        if (!tvm_asm_expression(as, &value) || !tvm_asm_extent(as, at, &value, 0, "a grid extent", &expr))
            return false;
        tvm_asm_kernel(as)->grid[axis++] = expr;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
}

static bool one_assumption(tvm_asm *as) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value, truth;
    uint32_t expr;
    if (!tvm_asm_expression(as, &value) || !tvm_asm_to_bool(as, token, &value, &truth)) return false;
    if (truth.kind == TVM_VALUE_POISON) return false;
    if (tvm_value_is_static(&truth))
        return truth.as.i ||
               tvm_asm_invalid(as, token, NULL, "the assumption is false whatever the arguments");
    if (!tvm_asm_lower(as, token, &truth, TVM_BOOL, &expr) ||
        !tvm_asm_launch_time(as, token, expr, 0, "an assumption"))
        return false;
    return tvm_ir_kernel_add_assume(tvm_asm_kernel(as), expr) != TVM_NONE || tvm_asm_no_memory(as);
}

bool tvm_directive_assume(tvm_asm *as, const tvm_token *token) {
    (void)token;
    return tvm_asm_each(as, one_assumption);
}
