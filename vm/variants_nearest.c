/* The message of a launch that no variant serves: it names the nearest variant, and what that needs. */
#include "variants.h"
#include "expr_text.h"

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
    tvm_eval_env env = tvm_launch_eval_env(s->env);
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

static void print_need(const shape *s, uint32_t expr, bool wanted, tvm_text *text) {
    unsigned op = s->head->exprs[expr].op;
    if (text->size) tvm_text_puts(text, " and ");
    if (!wanted && tvm_expr_is_comparison(op)) {
        tvm_print_comparison(text, s->program, s->head, expr, tvm_expr_opposite(op));
        return;
    }
    if (!wanted) tvm_text_puts(text, "!(");
    tvm_print_expr(text, s->program, s->head, expr, false);
    if (!wanted) tvm_text_puts(text, ")");
}

/* "m <= 64 and n % 16 == 0": the comparisons of the nearest way to what is wanted that fail. */
static void print_needs(const shape *s, uint32_t expr, bool wanted, tvm_text *text) {
    const tvm_expr *node = &s->head->exprs[expr];
    if (measure(s, expr, wanted).failed == 0 || text->failed) return;
    if (node->op == TVM_EXPR_LNOT) {
        print_needs(s, node->a, !wanted, text);
    } else if (needs_both(node, wanted)) {
        print_needs(s, node->a, wanted, text);
        print_needs(s, node->b, wanted, text);
    } else if (needs_either(node, wanted)) {
        bool second = nearer(measure(s, node->b, wanted), measure(s, node->a, wanted));
        print_needs(s, second ? node->b : node->a, wanted, text);
    } else {
        print_need(s, expr, wanted, text);
    }
}

/* "m = 100, n = 64": what the conditions read, in the order of the parameters. */
static void print_values(const shape *s, const tvm_ir_entry *entry, tvm_text *text) {
    tvm_launch_reads reads = {.leaves = 0};
    for (uint32_t i = 0; i < entry->case_count; i++)
        if (entry->cases[i].condition != TVM_NONE)
            tvm_launch_reads_find(s->head, entry->cases[i].condition, &reads);
    tvm_launch_print_values(text, s->program, s->head, s->env, &reads);
}

/* After all have been asked for. */
static bool has_room(const tvm_room *room, uint32_t kernel) {
    bool fits;
    return tvm_room_for(room, kernel, &fits, NULL) == TVM_OK && fits;
}

/* The case that would serve, were there room for it; the number of cases: none. */
static uint32_t too_big(const shape *s, const tvm_ir_entry *entry, const tvm_room *room) {
    for (uint32_t i = 0; i < entry->case_count; i++) {
        uint32_t condition = entry->cases[i].condition;
        tvm_scalar value = {.i = 1};
        if (!has_room(room, entry->cases[i].kernel) &&
            (condition == TVM_NONE || (value_of(s, condition, &value) == TVM_OK && value.i)))
            return i;
    }
    return entry->case_count;
}

/* Of those that there is room for, each of which has a condition, or it would have been chosen. */
static uint32_t find_nearest(const shape *s, const tvm_ir_entry *entry, const tvm_room *room) {
    shortfall least = {0, 0, 0};
    uint32_t nearest = entry->case_count;
    for (uint32_t i = 0; i < entry->case_count; i++) {
        if (!has_room(room, entry->cases[i].kernel)) continue;
        shortfall found = measure(s, entry->cases[i].condition, true);
        if (nearest < entry->case_count && !nearer(found, least)) continue;
        nearest = i;
        least = found;
    }
    return nearest;
}

static tvm_status refuse_for_room(const shape *s, const tvm_ir_entry *entry, uint32_t kernel,
                                  const tvm_room *room, const char *values, tvm_diags *diags) {
    uint64_t needs;
    tvm_status status = room->ask(room->code, kernel, &needs, diags);
    if (status) return status;
    return tvm_diag_add(
        diags, TVM_RESOURCES, NULL, tvm_status_advice(TVM_RESOURCES),
        "no variant of '%s' serves %s on this device: '%s' needs %llu bytes of shared memory, of "
        "which a block has %llu",
        tvm_string(s->program, entry->head.name), values[0] ? values : "any arguments",
        tvm_string(s->program, s->program->kernels[kernel].name), (unsigned long long)needs,
        (unsigned long long)room->has);
}

tvm_status tvm_variants_refuse(const tvm_ir_program *program, const tvm_ir_entry *entry,
                               const tvm_launch_env *env, const tvm_room *room, tvm_diags *diags) {
    const shape s = {program, &entry->head, env};
    tvm_text values = {.limit = TEXT_MAX}, needs = {.limit = TEXT_MAX};
    tvm_status status = TVM_OK;
    bool fits;
    for (uint32_t i = 0; i < entry->case_count && !status; i++)
        status = tvm_room_for(room, entry->cases[i].kernel, &fits, diags);
    if (status) return status;
    uint32_t big = too_big(&s, entry, room), nearest = find_nearest(&s, entry, room);
    status = TVM_ARGUMENT;
    print_values(&s, entry, &values);
    if (big < entry->case_count || nearest == entry->case_count) {
        uint32_t kernel = entry->cases[big < entry->case_count ? big : 0].kernel;
        status = refuse_for_room(&s, entry, kernel, room, tvm_text_string(&values), diags);
    } else {
        print_needs(&s, entry->cases[nearest].condition, true, &needs);
        tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                     "no variant of '%s' serves %s; the nearest is '%s', which needs %s",
                     tvm_string(program, entry->head.name), tvm_text_string(&values),
                     tvm_string(program, program->kernels[entry->cases[nearest].kernel].name),
                     tvm_text_string(&needs));
    }
    tvm_text_free(&values);
    tvm_text_free(&needs);
    return status;
}
