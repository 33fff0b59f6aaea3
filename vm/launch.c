#include "launch.h"

#include <inttypes.h>
#include <string.h>

/* ---- text of an expression and of the parameters that it reads ---- */

typedef struct text {
    char bytes[512];
    size_t length;
} text;

static void append(text *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(text *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof to->bytes - to->length;
    int length = vsnprintf(to->bytes + to->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) to->length += (size_t)length < room ? (size_t)length : room - 1;
}

static bool full(const text *t) {
    return t->length + 1 >= sizeof t->bytes;
}

typedef struct scope {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    const tvm_launch_env *env;
} scope;

static const char *slot_name(const scope *s, uint32_t slot) {
    return tvm_string(s->program, s->kernel->slots[slot].name);
}

static void write_expr(const scope *s, uint32_t expr, unsigned above, text *to);

static void write_call(const scope *s, const char *name, const tvm_expr *node, unsigned arity, text *to) {
    append(to, "%s(", name);
    write_expr(s, node->a, 0, to);
    if (arity > 1) {
        append(to, ", ");
        write_expr(s, node->b, 0, to);
    }
    append(to, ")");
}

static void write_operator(const scope *s, const tvm_expr *node, unsigned above, text *to) {
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    bool parentheses = info->precedence < above;
    append(to, "%s", parentheses ? "(" : "");
    if (info->arity == 1) {
        append(to, "%s", info->text);
        write_expr(s, node->a, info->precedence, to);
    } else {
        write_expr(s, node->a, info->precedence + (info->arity == 3), to);
        append(to, " %s ", info->text);
        write_expr(s, node->b, info->precedence + 1, to);
    }
    if (info->arity == 3) {
        append(to, " : ");
        write_expr(s, node->c, info->precedence, to);
    }
    append(to, "%s", parentheses ? ")" : "");
}

/* As it would be written in a program; parentheses where the operator above, of precedence `above`, needs
 * them. Bounded: the verifier limits the size of an expression, and writing stops when the text is full. */
static void write_expr(const scope *s, uint32_t expr, unsigned above, text *to) {
    const tvm_expr *node = &s->kernel->exprs[expr];
    char name[TVM_DTYPE_NAME_MAX];
    if (full(to)) return;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        if (node->type.kind == TVM_KIND_BOOL)
            append(to, "%s", node->value.i ? "true" : "false");
        else
            append(to, "%" PRId64, node->value.i);
        break;
    case TVM_EXPR_FLOAT:
        append(to, "%g", node->value.f);
        break;
    case TVM_EXPR_SLOT:
        append(to, "%s", slot_name(s, node->a));
        break;
    case TVM_EXPR_BLOCK:
        append(to, "block.%c", (char)('x' + node->a));
        break;
    case TVM_EXPR_GRID:
        append(to, "grid.%c", (char)('x' + node->a));
        break;
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
        append(to, "%s", tvm_expr_op_info(node->op)->text);
        break;
    case TVM_EXPR_CAST:
        write_call(s, tvm_dtype_name(node->type, name), node, 1, to);
        break;
    case TVM_EXPR_MIN:
    case TVM_EXPR_MAX:
    case TVM_EXPR_CDIV:
        write_call(s, tvm_expr_op_info(node->op)->text, node, 2, to);
        break;
    default:
        write_operator(s, node, above, to);
        break;
    }
}

/* Marks the parameters that an expression reads, and after them the number of multiprocessors
 * and the target. */
static void find_params(const scope *s, uint32_t expr, bool reads[TVM_MAX_PARAMS + 2]) {
    const tvm_expr *node = &s->kernel->exprs[expr];
    const tvm_expr_info *info = tvm_expr_op_info(node->op);
    if (node->op == TVM_EXPR_SLOT && node->a < TVM_MAX_PARAMS) reads[node->a] = true;
    if (node->op == TVM_EXPR_MULTIPROCESSORS) reads[TVM_MAX_PARAMS] = true;
    if (node->op == TVM_EXPR_TARGET) reads[TVM_MAX_PARAMS + 1] = true;
    if (info->arity > 0) find_params(s, node->a, reads);
    if (info->arity > 1) find_params(s, node->b, reads);
    if (info->arity > 2) find_params(s, node->c, reads);
}

/* ` (n = 1000, k = 128)`, or nothing when none is read. */
static void write_values(const scope *s, uint32_t expr, text *to) {
    bool reads[TVM_MAX_PARAMS + 2] = {false};
    const char *before = " (";
    find_params(s, expr, reads);
    for (uint32_t p = 0; p < s->kernel->param_count; p++) {
        if (!reads[p]) continue;
        tvm_scalar value = s->env->scalars[p];
        tvm_dtype type = s->kernel->slots[p].dtype;
        if (type.kind == TVM_KIND_FLOAT)
            append(to, "%s%s = %g", before, slot_name(s, p), value.f);
        else if (type.kind == TVM_KIND_UINT)
            append(to, "%s%s = %" PRIu64, before, slot_name(s, p), value.u);
        else
            append(to, "%s%s = %" PRId64, before, slot_name(s, p), value.i);
        before = ", ";
    }
    if (reads[TVM_MAX_PARAMS]) {
        append(to, "%smultiprocessors = %" PRIu32, before, s->env->multiprocessors);
        before = ", ";
    }
    if (reads[TVM_MAX_PARAMS + 1]) {
        append(to, "%starget = %" PRIu32, before, s->env->target);
        before = ", ";
    }
    if (before[0] == ',') append(to, ")");
}

static text describe(const scope *s, uint32_t expr) {
    text t = {.length = 0};
    write_expr(s, expr, 0, &t);
    write_values(s, expr, &t);
    return t;
}

char *tvm_launch_shape_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t param) {
    const scope s = {.program = program, .kernel = kernel};
    const tvm_slot *slot = &kernel->slots[param];
    text t = {.length = 0};
    for (unsigned d = 0; slot->kind == TVM_SLOT_GLOBAL && d < slot->rank; d++) {
        append(&t, d ? ", " : "[");
        write_expr(&s, slot->shape[d], 0, &t);
    }
    if (slot->kind == TVM_SLOT_GLOBAL) append(&t, slot->rank ? "]" : "[]");
    if (full(&t)) memcpy(t.bytes + t.length - 3, "...", 3);
    return strdup(t.bytes);
}

void tvm_launch_expr_text(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t expr,
                          const tvm_launch_env *env, char *out, size_t size) {
    const scope s = {program, kernel, env};
    text t = {.length = 0};
    write_expr(&s, expr, 0, &t);
    if (env) write_values(&s, expr, &t);
    snprintf(out, size, "%s", t.bytes);
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
    text t = describe(s, expr);
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': %s, %s: %s", kernel_name(s), what,
                        t.bytes, why.text);
}

static bool too_big(tvm_dtype type, tvm_scalar value, int64_t most) {
    return type.kind == TVM_KIND_UINT ? value.u > (uint64_t)most : value.i > most;
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
            text t = describe(s, s->kernel->grid[d]);
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                                "kernel '%s': %s is %" PRId64 ", expected 0 to %" PRId64 ": %s",
                                kernel_name(s), names[d], value.i, most[d], t.bytes);
        }
        grid[d] = (uint32_t)value.i;
    }
    return TVM_OK;
}

static tvm_status check_assumes(const scope *s, tvm_diags *diags) {
    for (uint32_t a = 0; a < s->kernel->assume_count; a++) {
        tvm_scalar value;
        tvm_status status = evaluate(s, s->kernel->assumes[a], "an assume", &value, diags);
        if (status != TVM_OK) return status;
        if (value.i) continue;
        text t = describe(s, s->kernel->assumes[a]);
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s' assumes %s", kernel_name(s),
                            t.bytes);
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
    text t = describe(s, expr);
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s': %s is %s: %s", kernel_name(s), what,
                        big ? "above 2^40" : "negative", t.bytes);
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
        text t = describe(&s, slot->shape[slot->rank - 1]);
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "kernel '%s': a row of %s, %" PRId64 " elements of %s, is not whole bytes: %s",
                            kernel_name(&s), slot_name(&s, param), row, tvm_dtype_name(slot->dtype, name),
                            t.bytes);
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
