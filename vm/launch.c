#include "launch.h"
#include "expr_text.h"

#include <inttypes.h>
#include <string.h>

/* ---- text of an expression and of the parameters that it reads ---- */

enum { TEXT_MAX = 512 };

typedef struct scope {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    const tvm_launch_env *env;
} scope;

static const char *slot_name(const scope *s, uint32_t slot) {
    return tvm_string(s->program, s->kernel->slots[slot].name);
}

void tvm_launch_reads_find(const tvm_ir_kernel *kernel, uint32_t expr, tvm_launch_reads *reads) {
    const tvm_expr *node = &kernel->exprs[expr];
    const uint32_t operands[3] = {node->a, node->b, node->c};
    unsigned arity = tvm_expr_op_info(node->op)->arity;
    if (node->op == TVM_EXPR_SLOT && node->a < kernel->param_count) reads->params[node->a] = true;
    if (arity == 0) reads->leaves |= tvm_expr_leaves(kernel, expr);
    for (unsigned i = 0; i < arity; i++) tvm_launch_reads_find(kernel, operands[i], reads);
}

static void write_name(tvm_text *out, bool *any, const char *name) {
    tvm_text_add(out, "%s%s = ", *any ? ", " : "", name);
    *any = true;
}

bool tvm_launch_print_values(tvm_text *out, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                             const tvm_launch_env *env, const tvm_launch_reads *reads) {
    bool any = false;
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        if (!reads->params[p]) continue;
        write_name(out, &any, tvm_string(program, kernel->slots[p].name));
        tvm_print_scalar(out, kernel->slots[p].dtype, env->scalars[p]);
    }
    if (reads->leaves & TVM_LEAF_MULTIPROCESSORS) {
        write_name(out, &any, "multiprocessors");
        tvm_text_add(out, "%" PRIu32, env->multiprocessors);
    }
    if (reads->leaves & TVM_LEAF_TARGET) {
        write_name(out, &any, "target");
        tvm_text_add(out, "%" PRIu32, env->target);
    }
    return any;
}

/* A text that was too long ends in dots. */
static tvm_text cut(tvm_text text) {
    if (text.too_long && text.size >= 3) memcpy(text.data + text.size - 3, "...", 3);
    return text;
}

tvm_text tvm_launch_expr_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t expr,
                              const tvm_launch_env *env) {
    tvm_text text = {.limit = TEXT_MAX}, values = {.limit = TEXT_MAX};
    tvm_launch_reads reads = {.leaves = 0};
    tvm_print_expr(&text, program, kernel, expr, false);
    if (env) tvm_launch_reads_find(kernel, expr, &reads);
    if (env && tvm_launch_print_values(&values, program, kernel, env, &reads))
        tvm_text_add(&text, " (%s)", tvm_text_string(&values));
    tvm_text_free(&values);
    return cut(text);
}

static tvm_text describe(const scope *s, uint32_t expr) {
    return tvm_launch_expr_text(s->program, s->kernel, expr, s->env);
}

char *tvm_launch_shape_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t param) {
    const tvm_slot *slot = &kernel->slots[param];
    tvm_text text = {.limit = TEXT_MAX};
    if (slot->kind != TVM_SLOT_GLOBAL) return strdup("");
    tvm_text_puts(&text, "[");
    for (unsigned d = 0; d < slot->rank; d++) {
        if (d > 0) tvm_text_puts(&text, ", ");
        tvm_print_expr(&text, program, kernel, slot->shape[d], false);
    }
    tvm_text_puts(&text, "]");
    text = cut(text);
    if (!text.failed || text.too_long) return text.data;
    tvm_text_free(&text);
    return NULL;
}

/* ---- evaluation ---- */

static const char *kernel_name(const scope *s) {
    return tvm_string(s->program, s->kernel->name);
}

/* what: "grid.x", "the assume", ... for the message of a division by zero. */
static tvm_status evaluate(const scope *s, uint32_t expr, const char *what, tvm_scalar *value,
                           tvm_diags *diags) {
    tvm_eval_env env = {.slots = s->env->scalars,
                        .multiprocessors = (int32_t)s->env->multiprocessors,
                        .target = (int32_t)s->env->target};
    for (unsigned d = 0; d < 3; d++) env.grid[d] = (int32_t)s->env->grid[d];
    tvm_why why = {{0}};
    if (tvm_expr_eval(s->kernel, expr, &env, value, &why) == TVM_OK) return TVM_OK;
    if (!diags) return TVM_ARGUMENT;
    tvm_text text = describe(s, expr);
    tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': %s, %s: %s", kernel_name(s), what,
                 tvm_text_string(&text), why.text);
    tvm_text_free(&text);
    return TVM_ARGUMENT;
}

static bool too_big(tvm_dtype type, tvm_scalar value, int64_t most) {
    return type.kind == TVM_KIND_UINT ? value.u > (uint64_t)most : value.i > most;
}

/* The grid is whole clusters. */
static tvm_status check_clusters(const scope *s, const uint32_t grid[3], tvm_diags *diags) {
    for (unsigned d = 0; d < 3; d++)
        if (grid[d] % s->kernel->cluster[d])
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                                "kernel '%s': grid.%c is %" PRIu32
                                ", expected a multiple of its clusters' %" PRIu32 " blocks",
                                kernel_name(s), "xyz"[d], grid[d], s -> kernel -> cluster[d]);
    return TVM_OK;
}

static tvm_status check_grid(const scope *s, uint32_t grid[3], tvm_diags *diags) {
    static const int64_t most[3] = {TVM_GRID_MAX};
    static const char *const names[3] = {"grid.x", "grid.y", "grid.z"};
    for (unsigned d = 0; d < 3; d++) {
        grid[d] = 1;
        if (s->kernel->grid[d] == TVM_NONE) continue;
        tvm_scalar value;
        tvm_status status = evaluate(s, s->kernel->grid[d], names[d], &value, diags);
        if (status != TVM_OK) return status;
        tvm_dtype type = s->kernel->exprs[s->kernel->grid[d]].type;
        if (too_big(type, value, most[d]) || value.i < 0) {
            tvm_text text = describe(s, s->kernel->grid[d]);
            tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                         "kernel '%s': %s is %" PRId64 ", expected 0 to %" PRId64 ": %s", kernel_name(s),
                         names[d], value.i, most[d], tvm_text_string(&text));
            tvm_text_free(&text);
            return TVM_ARGUMENT;
        }
        grid[d] = (uint32_t)value.i;
    }
    return check_clusters(s, grid, diags);
}

static tvm_status check_assumes(const scope *s, tvm_diags *diags) {
    for (uint32_t a = 0; a < s->kernel->assume_count; a++) {
        tvm_scalar value;
        tvm_status status = evaluate(s, s->kernel->assumes[a], "an assume", &value, diags);
        if (status != TVM_OK) return status;
        if (value.i) continue;
        tvm_text text = describe(s, s->kernel->assumes[a]);
        tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s' assumes %s", kernel_name(s),
                     tvm_text_string(&text));
        tvm_text_free(&text);
        return TVM_ARGUMENT;
    }
    return TVM_OK;
}

/* ---- shapes ---- */

static tvm_status evaluate_extent(const scope *s, uint32_t param, unsigned d, int64_t *extent,
                                  tvm_diags *diags) {
    uint32_t expr = s->kernel->slots[param].shape[d];
    char what[160];
    tvm_scalar value;
    tvm_status status = evaluate(s, expr, "", &value, NULL);
    bool big = status == TVM_OK && too_big(s->kernel->exprs[expr].type, value, TVM_ELEMENTS_MAX);
    *extent = status == TVM_OK ? value.i : 0;
    if (status == TVM_OK && !big && value.i >= 0) return TVM_OK;
    snprintf(what, sizeof what, "extent %u of %.100s", d,
             slot_name(s, param)); /* no launch that succeeds pays for it */
    if (status != TVM_OK) return evaluate(s, expr, what, &value, diags);
    tvm_text text = describe(s, expr);
    tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': %s is %s: %s", kernel_name(s), what,
                 big ? "above 2^40" : "negative", tvm_text_string(&text));
    tvm_text_free(&text);
    return TVM_ARGUMENT;
}

tvm_status tvm_launch_shape(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t param,
                            const tvm_launch_env *env, int64_t shape[TVM_MAX_RANK], uint64_t *bytes,
                            tvm_diags *diags) {
    const scope s = {program, kernel, env};
    const tvm_slot *slot = &kernel->slots[param];
    int64_t elements = 1;
    bool empty = false, big = false;
    for (unsigned d = 0; d < slot->rank; d++) {
        tvm_status status = evaluate_extent(&s, param, d, &shape[d], diags);
        if (status != TVM_OK) return status;
        empty = empty || shape[d] == 0;
        /* The limit is on the extents that are not zero: strides are products of them. */
        big = big || __builtin_mul_overflow(elements, shape[d] ? shape[d] : 1, &elements) ||
              elements > TVM_ELEMENTS_MAX;
    }
    if (big)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': %s has more than 2^40 elements",
                            kernel_name(&s), slot_name(&s, param));
    unsigned bits = slot->dtype.bits;
    int64_t row = slot->rank ? shape[slot->rank - 1] : 1;
    if ((uint64_t)row * bits % 8) {
        char name[TVM_DTYPE_NAME_MAX];
        tvm_text text = describe(&s, slot->shape[slot->rank - 1]);
        tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                     "kernel '%s': a row of %s, %" PRId64 " elements of %s, is not whole bytes: %s",
                     kernel_name(&s), slot_name(&s, param), row, tvm_dtype_name(slot->dtype, name),
                     tvm_text_string(&text));
        tvm_text_free(&text);
        return TVM_ARGUMENT;
    }
    *bytes = empty ? 0 : (uint64_t)elements * bits / 8;
    return TVM_OK;
}

tvm_status tvm_launch_check(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_launch_env *env,
                            tvm_diags *diags) {
    const scope s = {program, kernel, env};
    tvm_status status = check_assumes(&s, diags);
    if (status == TVM_OK) status = check_grid(&s, env->grid, diags);
    for (uint32_t p = 0; p < kernel->param_count && status == TVM_OK; p++) {
        int64_t shape[TVM_MAX_RANK];
        uint64_t bytes;
        if (kernel->slots[p].kind == TVM_SLOT_GLOBAL)
            status = tvm_launch_shape(program, kernel, p, env, shape, &bytes, diags);
    }
    return status;
}
