#include "signature.h"

#include <stdio.h>
#include <string.h>

#include "expr_text.h"

/* Two kernels whose parameters have the same names: a slot means the same in both. */
typedef struct pair {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel, *other;
} pair;

/* "k: i32", "w: global u3 of rank 2" */
static const char *param_text(const tvm_ir_program *program, const tvm_slot *slot, char text[128]) {
    bool tensor = slot->kind == TVM_SLOT_GLOBAL;
    int length = snprintf(text, 128, "%.60s: %s%s", tvm_string(program, slot->name), tensor ? "global " : "",
                          TVM_DTYPE_TEXT(slot->dtype));
    if (tensor && length > 0 && length < 128)
        snprintf(text + length, 128 - (size_t)length, " of rank %u", slot->rank);
    return text;
}

/* ---- shapes ---- */

/* What does not exist has been reported: no second message about it. */
static bool same_expr(const pair *p, uint32_t a, uint32_t b) {
    if (a >= p->kernel->expr_count || b >= p->other->expr_count) return true;
    const tvm_expr *x = &p->kernel->exprs[a], *y = &p->other->exprs[b];
    if (x->op != y->op || !tvm_dtype_same(x->type, y->type) || x->value.i != y->value.i) return false;
    const uint32_t of_x[3] = {x->a, x->b, x->c}, of_y[3] = {y->a, y->b, y->c};
    unsigned arity = tvm_expr_arity(x);
    for (unsigned i = 0; i < 3; i++)
        if (i < arity ? !same_expr(p, of_x[i], of_y[i]) : of_x[i] != of_y[i]) return false;
    return true;
}

static tvm_status differ(const pair *p, const char *what, unsigned d, const tvm_slot *slot, uint32_t a,
                         uint32_t b, tvm_why *why) {
    tvm_text found = {0}, expected = {0};
    tvm_print_expr(&found, p->program, p->kernel, a, false);
    tvm_print_expr(&expected, p->program, p->other, b, false);
    tvm_status status = tvm_refuse(why, "%s %u of '%.30s' is %.40s in '%.30s', %.40s in '%.30s'", what, d,
                                   tvm_string(p->program, slot->name), tvm_text_string(&found),
                                   tvm_string(p->program, p->kernel->name), tvm_text_string(&expected),
                                   tvm_string(p->program, p->other->name));
    tvm_text_free(&found), tvm_text_free(&expected);
    return status;
}

static tvm_status same_shape(const pair *p, const tvm_slot *a, const tvm_slot *b, tvm_why *why) {
    const char *name = tvm_string(p->program, a->name);
    if (a->form != b->form)
        return tvm_refuse(
            why, "'%.60s' has %s in '%.60s', %s in '%.60s'", name,
            a->form == TVM_FORM_STRIDED ? "strides" : "no strides", tvm_string(p->program, p->kernel->name),
            b->form == TVM_FORM_STRIDED ? "strides" : "none", tvm_string(p->program, p->other->name));
    for (unsigned d = 0; d < a->rank; d++) {
        if (!same_expr(p, a->shape[d], b->shape[d]))
            return differ(p, "dimension", d, a, a->shape[d], b->shape[d], why);
        if (a->form == TVM_FORM_STRIDED && !same_expr(p, a->stride[d], b->stride[d]))
            return differ(p, "the stride of dimension", d, a, a->stride[d], b->stride[d], why);
    }
    return TVM_OK;
}

/* ---- the whole ---- */

uint64_t tvm_signature_work(const tvm_ir_kernel *kernel) {
    uint64_t work = 0;
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        const tvm_slot *slot = &kernel->slots[p];
        for (unsigned d = 0; slot->kind == TVM_SLOT_GLOBAL && d < slot->rank; d++) {
            work += kernel->exprs[slot->shape[d]].size;
            if (slot->form == TVM_FORM_STRIDED) work += kernel->exprs[slot->stride[d]].size;
        }
    }
    return work;
}

tvm_status tvm_same_signature(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              const tvm_ir_kernel *other, bool shapes, tvm_why *why) {
    const pair both = {program, kernel, other};
    const char *name = tvm_string(program, kernel->name), *others = tvm_string(program, other->name);
    if (kernel->param_count != other->param_count)
        return tvm_refuse(why, "the number of parameters of '%.60s' is %u, of '%.60s' %u", name,
                          kernel->param_count, others, other->param_count);
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        const tvm_slot *a = &kernel->slots[p], *b = &other->slots[p];
        char found[128], expected[128];
        if (strcmp(tvm_string(program, a->name), tvm_string(program, b->name)) != 0 || a->kind != b->kind ||
            !tvm_dtype_same(a->dtype, b->dtype) || a->rank != b->rank)
            return tvm_refuse(why, "parameter %u of '%.60s' is %s, that of '%.60s' is %s", p + 1, name,
                              param_text(program, a, found), others, param_text(program, b, expected));
    }
    /* All names are the same: slots in expressions mean the same. */
    tvm_status status = TVM_OK;
    for (uint32_t p = 0; shapes && p < kernel->param_count && status == TVM_OK; p++)
        if (kernel->slots[p].kind == TVM_SLOT_GLOBAL)
            status = same_shape(&both, &kernel->slots[p], &other->slots[p], why);
    return status;
}
