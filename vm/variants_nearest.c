/* What a launch is told that no variant serves: the nearest one, and what it needs. */
#include "variants.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { TEXT_MAX = 512 };

typedef struct shape {
    const tvm_ir_program *program;
    const tvm_ir_kernel *head;
    const tvm_launch_env *env;
} shape;

/* How far an expression is from being what it should be. */
typedef struct shortfall {
    unsigned device; /* comparisons that fail on this device whatever the arguments */
    unsigned failed; /* all that fail */
    double distance;
} shortfall;

static bool nearer(shortfall a, shortfall b) {
    if (a.device != b.device) return a.device < b.device;
    if (a.failed != b.failed) return a.failed < b.failed;
    return a.distance < b.distance;
}

static shortfall sum(shortfall a, shortfall b) {
    return (shortfall){a.device + b.device, a.failed + b.failed, a.distance + b.distance};
}

static tvm_status value_of(const shape *s, uint32_t expr, tvm_scalar *value) {
    tvm_eval_env env = {.slots = s->env->scalars,
                        .multiprocessors = (int32_t)s->env->multiprocessors,
                        .target = (int32_t)s->env->target};
    return tvm_expr_eval(s->head, expr, &env, value, NULL);
}

static double number(tvm_dtype type, tvm_scalar value) {
    if (type.kind == TVM_KIND_FLOAT) return value.f;
    return type.kind == TVM_KIND_UINT ? (double)value.u : (double)value.i;
}

/* Of the two sides of a comparison, relative to the one that is a constant, or else to the right one. */
static double distance(const shape *s, const tvm_expr *node) {
    tvm_scalar a, b;
    if (!tvm_expr_is_comparison(node->op) || value_of(s, node->a, &a) || value_of(s, node->b, &b)) return 1;
    tvm_dtype type = s->head->exprs[node->a].type;
    double left = number(type, a), right = number(type, b);
    bool constant = s->head->exprs[node->a].op == TVM_EXPR_INTEGER;
    double far = fabs(left - right) / (1 + fabs(constant ? left : right));
    return far < 1e300 ? far : 1e300;
}

/* Both sides have to be as wanted: `a && b` true, `a || b` false. */
static bool needs_both(const tvm_expr *node, bool wanted) {
    return node->op == (wanted ? TVM_EXPR_LAND : TVM_EXPR_LOR);
}

static bool needs_either(const tvm_expr *node, bool wanted) {
    return node->op == (wanted ? TVM_EXPR_LOR : TVM_EXPR_LAND);
}

static shortfall measure(const shape *s, uint32_t expr, bool wanted) {
    const tvm_expr *node = &s->head->exprs[expr];
    if (node->op == TVM_EXPR_LNOT) return measure(s, node->a, !wanted);
    if (needs_both(node, wanted)) return sum(measure(s, node->a, wanted), measure(s, node->b, wanted));
    if (needs_either(node, wanted)) {
        shortfall a = measure(s, node->a, wanted), b = measure(s, node->b, wanted);
        return nearer(b, a) ? b : a;
    }
    tvm_scalar value;
    if (value_of(s, expr, &value) == TVM_OK && (value.i != 0) == wanted) return (shortfall){0, 0, 0};
    bool device = !(tvm_expr_leaves(s->head, expr) & TVM_LEAF_PARAM);
    return (shortfall){device, 1, distance(s, node)};
}

/* ---- text ---- */

static void append(char text[TEXT_MAX], const char *before, const char *more) {
    size_t length = strlen(text);
    snprintf(text + length, TEXT_MAX - length, "%s%s", length ? before : "", more);
}

static const char *opposite(unsigned op) {
    switch (op) {
    case TVM_EXPR_LT:
        return ">=";
    case TVM_EXPR_LE:
        return ">";
    case TVM_EXPR_GT:
        return "<=";
    case TVM_EXPR_GE:
        return "<";
    case TVM_EXPR_EQ:
        return "!=";
    default:
        return "==";
    }
}

static void append_need(const shape *s, uint32_t expr, bool wanted, char text[TEXT_MAX]) {
    const tvm_expr *node = &s->head->exprs[expr];
    char left[TEXT_MAX], right[TEXT_MAX], whole[2 * TEXT_MAX + 8];
    if (!wanted && tvm_expr_is_comparison(node->op)) {
        tvm_launch_expr_text(s->program, s->head, node->a, NULL, left, sizeof left);
        tvm_launch_expr_text(s->program, s->head, node->b, NULL, right, sizeof right);
        snprintf(whole, sizeof whole, "%s %s %s", left, opposite(node->op), right);
    } else {
        tvm_launch_expr_text(s->program, s->head, expr, NULL, left, sizeof left);
        snprintf(whole, sizeof whole, wanted ? "%s" : "!(%s)", left);
    }
    append(text, " and ", whole);
}

/* "m <= 64 and n % 16 == 0": the comparisons of the nearest way to what is wanted that fail. */
static void write_needs(const shape *s, uint32_t expr, bool wanted, char text[TEXT_MAX]) {
    const tvm_expr *node = &s->head->exprs[expr];
    if (measure(s, expr, wanted).failed == 0 || strlen(text) + 1 >= TEXT_MAX) return;
    if (node->op == TVM_EXPR_LNOT) {
        write_needs(s, node->a, !wanted, text);
    } else if (needs_both(node, wanted)) {
        write_needs(s, node->a, wanted, text);
        write_needs(s, node->b, wanted, text);
    } else if (needs_either(node, wanted)) {
        bool second = nearer(measure(s, node->b, wanted), measure(s, node->a, wanted));
        write_needs(s, second ? node->b : node->a, wanted, text);
    } else {
        append_need(s, expr, wanted, text);
    }
}

static void find_read(const tvm_ir_kernel *head, uint32_t expr, bool reads[TVM_MAX_PARAMS],
                      unsigned *leaves) {
    const tvm_expr *node = &head->exprs[expr];
    const uint32_t operands[3] = {node->a, node->b, node->c};
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (node->op == TVM_EXPR_SLOT) reads[node->a] = true;
    if (!arity) *leaves |= tvm_expr_leaves(head, expr);
    for (unsigned i = 0; i < arity; i++) find_read(head, operands[i], reads, leaves);
}

/* "m = 100, n = 64": what the conditions read, in the order of the parameters. */
static void write_values(const shape *s, const tvm_ir_entry *entry, char text[TEXT_MAX]) {
    bool reads[TVM_MAX_PARAMS] = {false};
    unsigned leaves = 0;
    char one[128];
    for (uint32_t i = 0; i < entry->case_count; i++)
        find_read(s->head, entry->cases[i].condition, reads, &leaves);
    for (uint32_t p = 0; p < s->head->param_count; p++) {
        const tvm_slot *slot = &s->head->slots[p];
        tvm_scalar value = s->env->scalars[p];
        const char *name = tvm_string(s->program, slot->name);
        if (!reads[p]) continue;
        if (slot->dtype.kind == TVM_KIND_FLOAT)
            snprintf(one, sizeof one, "%.60s = %g", name, value.f);
        else if (slot->dtype.kind == TVM_KIND_UINT)
            snprintf(one, sizeof one, "%.60s = %" PRIu64, name, value.u);
        else
            snprintf(one, sizeof one, "%.60s = %" PRId64, name, value.i);
        append(text, ", ", one);
    }
    snprintf(one, sizeof one, "multiprocessors = %" PRIu32, s->env->multiprocessors);
    if (leaves & TVM_LEAF_MULTIPROCESSORS) append(text, ", ", one);
    snprintf(one, sizeof one, "target = %" PRIu32, s->env->target);
    if (leaves & TVM_LEAF_TARGET) append(text, ", ", one);
}

tvm_status tvm_variants_refuse(const tvm_ir_program *program, const tvm_ir_entry *entry,
                               const tvm_launch_env *env, tvm_diags *diags) {
    const shape s = {program, &entry->head, env};
    char values[TEXT_MAX] = "", needs[TEXT_MAX] = "";
    shortfall least = {0, 0, 0};
    uint32_t nearest = 0;
    for (uint32_t i = 0; i < entry->case_count; i++) { /* each has a condition, or would have been chosen */
        shortfall found = measure(&s, entry->cases[i].condition, true);
        if (i > 0 && !nearer(found, least)) continue;
        nearest = i;
        least = found;
    }
    write_values(&s, entry, values);
    write_needs(&s, entry->cases[nearest].condition, true, needs);
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                        "no variant of '%s' serves %s; the nearest is '%s', which needs %s",
                        tvm_string(program, entry->head.name), values,
                        tvm_string(program, program->kernels[entry->cases[nearest].kernel].name), needs);
}
