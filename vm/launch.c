#include "launch.h"
#include "expr_text.h"

#include "view.h"

#include <inttypes.h>
#include <stdarg.h>
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
    unsigned arity = tvm_expr_arity(node);
    if (node->op == TVM_EXPR_SLOT && node->a < kernel->param_count) reads->params[node->a] = true;
    if (arity == 0) reads->leaves |= tvm_expr_leaves(kernel, expr);
    for (unsigned i = 0; i < arity; i++) tvm_launch_reads_find(kernel, node->operands[i], reads);
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

static void print_exprs(tvm_text *text, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        unsigned count, const uint32_t *exprs) {
    for (unsigned d = 0; d < count; d++) {
        tvm_text_puts(text, d ? ", " : "[");
        tvm_print_expr(text, program, kernel, exprs[d], false);
    }
    tvm_text_puts(text, "]");
}

char *tvm_launch_shape_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t param) {
    const tvm_slot *slot = &kernel->slots[param];
    tvm_text text = {.limit = TEXT_MAX};
    if (slot->kind != TVM_SLOT_GLOBAL) return strdup("");
    print_exprs(&text, program, kernel, slot->rank, slot->shape);
    if (slot->form == TVM_FORM_STRIDED) {
        tvm_text_puts(&text, " strides ");
        print_exprs(&text, program, kernel, slot->rank, slot->stride);
    }
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
    tvm_eval_env env = tvm_launch_eval_env(s->env);
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

/* Without diags nobody asks why. */
__attribute__((format(printf, 2, 3))) static tvm_status refuse(tvm_diags *diags, const char *format, ...) {
    va_list arguments;
    if (!diags) return TVM_ARGUMENT;
    va_start(arguments, format);
    tvm_diag_addv(diags, TVM_ARGUMENT, NULL, NULL, format, arguments);
    va_end(arguments);
    return TVM_ARGUMENT;
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

/* word: "extent", or "stride". */
static tvm_status evaluate_extent(const scope *s, uint32_t param, uint32_t expr, const char *word, unsigned d,
                                  int64_t *extent, tvm_diags *diags) {
    char what[160];
    tvm_scalar value;
    tvm_status status = evaluate(s, expr, "", &value, NULL);
    bool big = status == TVM_OK && too_big(s->kernel->exprs[expr].type, value, TVM_ELEMENTS_MAX);
    *extent = status == TVM_OK ? value.i : 0;
    if (status == TVM_OK && !big && value.i >= 0) return TVM_OK;
    if (!diags) return TVM_ARGUMENT;
    snprintf(what, sizeof what, "%s %u of %.100s", word, d,
             slot_name(s, param)); /* no launch that succeeds pays for it */
    if (status != TVM_OK) return evaluate(s, expr, what, &value, diags);
    tvm_text text = describe(s, expr);
    tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': %s is %s: %s", kernel_name(s), what,
                 big ? "above 2^40" : "negative", tvm_text_string(&text));
    tvm_text_free(&text);
    return TVM_ARGUMENT;
}

/* Bytes of the memory of a parameter with strides, and the strides. */
static tvm_status check_strides(const scope *s, uint32_t param, const int64_t *shape, uint64_t *bytes,
                                int64_t stride[TVM_MAX_RANK], tvm_diags *diags) {
    const tvm_slot *slot = &s->kernel->slots[param];
    int64_t span;
    for (unsigned d = 0; d < slot->rank; d++) {
        tvm_status status = evaluate_extent(s, param, slot->stride[d], "stride", d, &stride[d], diags);
        if (status != TVM_OK) return status;
    }
    if (!tvm_strided_span(slot->rank, shape, stride, &span) || span > TVM_ELEMENTS_MAX)
        return refuse(diags, "kernel '%s': %s goes over more than 2^40 elements", kernel_name(s),
                      slot_name(s, param));
    *bytes = (uint64_t)span * slot->dtype.bits / 8;
    return TVM_OK;
}

static tvm_status check_row(const scope *s, uint32_t param, int64_t row, tvm_diags *diags) {
    const tvm_slot *slot = &s->kernel->slots[param];
    if ((uint64_t)row * slot->dtype.bits % 8 == 0) return TVM_OK;
    if (!diags) return TVM_ARGUMENT;
    tvm_text text = describe(s, slot->shape[slot->rank - 1]);
    tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                 "kernel '%s': a row of %s, %" PRId64 " elements of %s, is not whole bytes: %s",
                 kernel_name(s), slot_name(s, param), row, TVM_DTYPE_TEXT(slot->dtype),
                 tvm_text_string(&text));
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
        tvm_status status = evaluate_extent(&s, param, slot->shape[d], "extent", d, &shape[d], diags);
        if (status != TVM_OK) return status;
        empty = empty || shape[d] == 0;
        /* The limit is on the extents that are not zero: strides are products of them. */
        big = big || __builtin_mul_overflow(elements, shape[d] ? shape[d] : 1, &elements) ||
              elements > TVM_ELEMENTS_MAX;
    }
    if (big)
        return refuse(diags, "kernel '%s': %s has more than 2^40 elements", kernel_name(&s),
                      slot_name(&s, param));
    int64_t stride[TVM_MAX_RANK];
    if (slot->form == TVM_FORM_STRIDED) return check_strides(&s, param, shape, bytes, stride, diags);
    tvm_status status = check_row(&s, param, slot->rank ? shape[slot->rank - 1] : 1, diags);
    if (status != TVM_OK) return status;
    *bytes = empty ? 0 : (uint64_t)elements * slot->dtype.bits / 8;
    return TVM_OK;
}

tvm_status tvm_launch_strides(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot,
                              const tvm_launch_env *env, int64_t stride[TVM_MAX_RANK], tvm_diags *diags) {
    const scope s = {program, kernel, env};
    tvm_status status = TVM_OK;
    for (unsigned d = 0; d < kernel->slots[slot].rank && status == TVM_OK; d++) {
        tvm_global_dim step = tvm_global_step(kernel, slot, d);
        const tvm_slot *of = &kernel->slots[step.slot];
        int64_t extent;
        stride[d] = 1;
        if (of->form == TVM_FORM_STRIDED)
            status =
                evaluate_extent(&s, step.slot, of->stride[step.dim], "stride", step.dim, &stride[d], diags);
        for (unsigned i = step.dim + 1; i < of->rank && of->form == TVM_FORM_ROW_MAJOR && status == TVM_OK;
             i++) {
            status = evaluate_extent(&s, step.slot, of->shape[i], "extent", i, &extent, diags);
            stride[d] = (int64_t)((uint64_t)stride[d] * (uint64_t)extent);
        }
    }
    return status;
}

/* ---- views ---- */

/* The view that instruction `insn` makes, which is one that the launch checks. */
static tvm_status check_view(const scope *s, uint32_t slot, const tvm_insn *insn, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = s->kernel;
    tvm_view_numbers n = {.form = (tvm_global_form)kernel->slots[slot].form};
    uint64_t bytes;
    tvm_view view;
    tvm_why why = {{0}};
    tvm_view_read(kernel, insn, &view);
    n.base_rank = view.base_rank;
    n.rank = view.rank;
    memcpy(n.from, view.from, sizeof n.from);
    tvm_status status = tvm_launch_shape(s->program, kernel, view.base, s->env, n.base_shape, &bytes, diags);
    for (unsigned d = 0; d < view.base_rank && status == TVM_OK; d++) {
        tvm_scalar value = {0};
        status = evaluate(s, view.index[d].value, "an index", &value, diags);
        n.index[d] = value.i;
    }
    for (unsigned d = 0; d < view.rank && status == TVM_OK; d++) {
        const tvm_slot *of = &kernel->slots[slot];
        status = evaluate_extent(s, slot, of->shape[d], "extent", d, &n.shape[d], diags);
        if (status == TVM_OK && of->form == TVM_FORM_STRIDED)
            status = evaluate_extent(s, slot, of->stride[d], "stride", d, &n.stride[d], diags);
    }
    if (status != TVM_OK || tvm_view_inside(&n, &why) == TVM_OK) return status;
    const tvm_place place = {.file = insn->file == TVM_NONE ? NULL : tvm_string(s->program, insn->file),
                             .line = insn->line};
    return tvm_diag_add(diags, TVM_ARGUMENT, &place, NULL, "kernel '%s': view '%%%s' of '%s%s': %s",
                        kernel_name(s), slot_name(s, slot), view.base < kernel->param_count ? "" : "%",
                        slot_name(s, view.base), why.text);
}

/* Those that every block makes; a grid without blocks makes none. */
static tvm_status check_views(const scope *s, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    const uint32_t *grid = s->env->grid;
    if (!grid[0] || !grid[1] || !grid[2]) return TVM_OK;
    for (uint32_t i = 0; i < s->kernel->slot_count && status == TVM_OK; i++) {
        const tvm_slot *slot = &s->kernel->slots[i];
        if (slot->at_launch) status = check_view(s, i, &s->kernel->insns[slot->view - 1], diags);
    }
    return status;
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
    return status == TVM_OK ? check_views(&s, diags) : status;
}
