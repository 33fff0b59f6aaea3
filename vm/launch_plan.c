#include "launch_plan.h"
#include "step.h"

#include <stdlib.h>
#include <string.h>

enum {
    NO_VALUE = UINT16_MAX,
    DEVICE_VALUES = 2 + TVM_CAPABILITY_COUNT + TVM_LIMIT_COUNT /* the leaves that the device gives */
};

typedef struct plan_tensor {
    uint32_t slot;
    uint8_t rank;
    uint8_t bits; /* of an element */
    uint16_t shape[TVM_MAX_RANK];
} plan_tensor;

/* Values are numbered: the constants, the arguments that are read, what is read of the device, the results of
 * the steps; then the extents of the grid that are read, and the results of the steps that read them. */
struct tvm_launch_plan {
    uint32_t constant_count, param_count, device_count, step_count, extent_count, late_count, assume_count,
        tensor_count;
    uint16_t grid[3]; /* NO_VALUE: 1 */
    uint8_t cluster[3];
    uint8_t params[TVM_MAX_PARAMS];
    tvm_expr device[DEVICE_VALUES];
    uint8_t extents[3]; /* 0 to 2: grid.x to grid.z */
    int64_t constants[TVM_PLAN_VALUES];
    tvm_step steps[TVM_PLAN_VALUES]; /* the late ones follow */
    plan_tensor tensors[TVM_MAX_PARAMS + TVM_MAX_LAUNCH_TENSORS];
    uint16_t assumes[];
};

/* ---- making ---- */

typedef struct plan_maker {
    const tvm_ir_kernel *kernel;
    tvm_launch_plan *plan;
    tvm_launch_tensor made[TVM_MAX_LAUNCH_TENSORS]; /* the tensors of the launch */
    uint32_t made_count;
    uint16_t *values; /* of each expression of the kernel; NO_VALUE: none yet */
    bool *needed;
    bool *late;     /* reads the grid */
    uint32_t count; /* of values */
} plan_maker;

static void need(const plan_maker *m, uint32_t expr) {
    if (expr != TVM_NONE) m->needed[expr] = true;
}

static void need_shape(const plan_maker *m, const tvm_slot *slot) {
    for (unsigned d = 0; slot->kind == TVM_SLOT_GLOBAL && d < slot->rank; d++) need(m, slot->shape[d]);
}

/* Operands stand before what uses them. */
static void find_needed(const plan_maker *m) {
    const tvm_ir_kernel *kernel = m->kernel;
    for (unsigned d = 0; d < 3; d++) need(m, kernel->grid[d]);
    for (uint32_t a = 0; a < kernel->assume_count; a++) need(m, kernel->assumes[a]);
    for (uint32_t p = 0; p < kernel->param_count; p++) need_shape(m, &kernel->slots[p]);
    for (uint32_t t = 0; t < m->made_count; t++) need_shape(m, &kernel->slots[m->made[t].slot]);
    for (uint32_t e = kernel->expr_count; e-- > 0;) {
        const tvm_expr *node = &kernel->exprs[e];
        for (unsigned i = 0; m->needed[e] && i < tvm_expr_arity(node); i++) need(m, node->operands[i]);
    }
    for (uint32_t e = 0; e < kernel->expr_count; e++) {
        const tvm_expr *node = &kernel->exprs[e];
        m->late[e] = node->op == TVM_EXPR_GRID;
        for (unsigned i = 0; i < tvm_expr_arity(node); i++) m->late[e] |= m->late[node->operands[i]];
    }
}

/* In the order of their values. */
typedef enum plan_sort {
    SORT_CONSTANT,
    SORT_PARAM,
    SORT_DEVICE,
    SORT_STEP,
    SORT_EXTENT,
    SORT_LATE_STEP,
    SORTS,
    SORT_NONE /* nothing that a plan takes */
} plan_sort;

static plan_sort sort_of(const plan_maker *m, uint32_t expr) {
    const tvm_expr *node = &m->kernel->exprs[expr];
    if (node->type.kind == TVM_KIND_FLOAT) return SORT_NONE;
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        return SORT_CONSTANT;
    case TVM_EXPR_SLOT:
        return node->a < m->kernel->param_count ? SORT_PARAM : SORT_NONE;
    case TVM_EXPR_MULTIPROCESSORS:
    case TVM_EXPR_TARGET:
    case TVM_EXPR_HAS:
    case TVM_EXPR_LIMIT:
        return SORT_DEVICE;
    case TVM_EXPR_GRID:
        return SORT_EXTENT;
    default:
        if (!tvm_expr_arity(node)) return SORT_NONE;
        return m->late[expr] ? SORT_LATE_STEP : SORT_STEP;
    }
}

static tvm_step step_of(const plan_maker *m, const tvm_expr *node) {
    unsigned arity = tvm_expr_arity(node);
    tvm_step step = tvm_step_of(m->kernel, node);
    step.a = m->values[node->a];
    step.b = arity > 1 ? m->values[node->b] : 0;
    step.c = arity > 2 ? m->values[node->c] : 0;
    return step;
}

/* Equal nodes are one expression: of the device and of the grid there are at most as many as there is room
 * for. */
static void place_one(const plan_maker *m, plan_sort sort, const tvm_expr *node) {
    tvm_launch_plan *plan = m->plan;
    switch (sort) {
    case SORT_CONSTANT:
        plan->constants[plan->constant_count++] = node->value.i;
        break;
    case SORT_PARAM:
        plan->params[plan->param_count++] = (uint8_t)node->a;
        break;
    case SORT_DEVICE:
        plan->device[plan->device_count++] = *node;
        break;
    case SORT_EXTENT:
        plan->extents[plan->extent_count++] = (uint8_t)node->a;
        break;
    default:
        plan->steps[plan->step_count + plan->late_count] = step_of(m, node);
        *(sort == SORT_STEP ? &plan->step_count : &plan->late_count) += 1;
    }
}

static bool has_room(const plan_maker *m, plan_sort sort) {
    const tvm_launch_plan *plan = m->plan;
    return m->count < TVM_PLAN_VALUES && (sort != SORT_PARAM || plan->param_count < TVM_MAX_PARAMS) &&
           (sort != SORT_DEVICE || plan->device_count < DEVICE_VALUES) &&
           (sort != SORT_EXTENT || plan->extent_count < 3);
}

/* Numbers the needed expressions of one sort; false when one is not taken. */
static bool place(plan_maker *m, plan_sort sort) {
    for (uint32_t e = 0; e < m->kernel->expr_count; e++) {
        plan_sort found = m->needed[e] ? sort_of(m, e) : SORT_NONE;
        if (m->needed[e] && found == SORT_NONE) return false;
        if (found != sort) continue;
        if (!has_room(m, sort)) return false;
        place_one(m, sort, &m->kernel->exprs[e]);
        m->values[e] = (uint16_t)m->count++;
    }
    return true;
}

static void place_tensor(const plan_maker *m, uint32_t index) {
    const tvm_slot *slot = &m->kernel->slots[index];
    plan_tensor *tensor = &m->plan->tensors[m->plan->tensor_count++];
    *tensor = (plan_tensor){.slot = index, .rank = slot->rank, .bits = slot->dtype.bits};
    for (unsigned d = 0; d < slot->rank; d++) tensor->shape[d] = m->values[slot->shape[d]];
}

static void place_uses(const plan_maker *m) {
    const tvm_ir_kernel *kernel = m->kernel;
    tvm_launch_plan *plan = m->plan;
    for (unsigned d = 0; d < 3; d++) plan->cluster[d] = (uint8_t)kernel->cluster[d];
    for (unsigned d = 0; d < 3; d++)
        plan->grid[d] = kernel->grid[d] == TVM_NONE ? NO_VALUE : m->values[kernel->grid[d]];
    for (uint32_t a = 0; a < kernel->assume_count; a++)
        plan->assumes[plan->assume_count++] = m->values[kernel->assumes[a]];
    for (uint32_t p = 0; p < kernel->param_count; p++)
        if (kernel->slots[p].kind == TVM_SLOT_GLOBAL) place_tensor(m, p);
    for (uint32_t t = 0; t < m->made_count; t++) place_tensor(m, m->made[t].slot);
}

/* Strides and views are left to tvm_launch_check. */
static bool is_plain(const tvm_ir_kernel *kernel) {
    bool plain = true;
    for (uint32_t s = 0; s < kernel->slot_count; s++)
        plain = plain && kernel->slots[s].form != TVM_FORM_STRIDED && !kernel->slots[s].at_launch;
    return plain;
}

tvm_status tvm_launch_plan_make(const tvm_ir_kernel *kernel, tvm_launch_plan **plan, tvm_diags *diags) {
    *plan = NULL;
    size_t exprs = (size_t)kernel->expr_count + 1;
    plan_maker m = {.kernel = kernel};
    m.made_count = tvm_launch_tensors(kernel, m.made);
    m.plan = calloc(1, sizeof *m.plan + kernel->assume_count * sizeof m.plan->assumes[0]);
    m.values = calloc(exprs, sizeof *m.values);
    m.needed = calloc(2 * exprs, sizeof *m.needed);
    bool memory = m.plan && m.values && m.needed, taken = memory && is_plain(kernel);
    if (taken) {
        m.late = m.needed + exprs;
        find_needed(&m);
        for (plan_sort sort = 0; taken && sort < SORTS; sort++) taken = place(&m, sort);
    }
    if (taken) {
        place_uses(&m);
        *plan = m.plan;
    } else {
        free(m.plan);
    }
    free(m.values);
    free(m.needed);
    return memory ? TVM_OK : tvm_diag_no_memory(diags);
}

/* ---- running ---- */

/* The bounds are those of tvm_launch_shape; negative numbers are above them. */
static inline bool tensor_fits(const plan_tensor *tensor, const int64_t *values) {
    int64_t elements = 1, row = 1;
    for (unsigned d = 0; d < tensor->rank; d++) {
        row = values[tensor->shape[d]];
        if ((uint64_t)row > TVM_ELEMENTS_MAX) return false;
        if (__builtin_mul_overflow(elements, row ? row : 1, &elements) || elements > TVM_ELEMENTS_MAX)
            return false;
    }
    return ((uint64_t)row * tensor->bits & 7) == 0;
}

/* Operands that && || ?: do not select are evaluated too: a division by zero among them sends the launch to
 * tvm_launch_check, which does not. */
static inline bool run_steps(const tvm_step *steps, uint32_t count, int64_t *values, uint32_t first) {
    for (uint32_t s = 0; s < count; s++)
        if (!tvm_step_run(&steps[s], values, &values[first + s])) return false;
    return true;
}

static bool set_grid(const tvm_launch_plan *plan, const int64_t *values, uint32_t grid[3]) {
    static const uint64_t most[3] = {TVM_GRID_MAX};
    for (unsigned d = 0; d < 3; d++) {
        uint64_t extent = plan->grid[d] == NO_VALUE ? 1 : (uint64_t)values[plan->grid[d]];
        if (extent > most[d] || extent % plan->cluster[d]) return false;
        grid[d] = (uint32_t)extent;
    }
    return true;
}

bool tvm_launch_plan_run(const tvm_launch_plan *plan, tvm_launch_env *env, tvm_launch_values *out) {
    int64_t *values = out->values;
    out->known = false;
    if (!plan) return false;
    uint32_t count = plan->constant_count;
    memcpy(values, plan->constants, count * sizeof values[0]);
    for (uint32_t p = 0; p < plan->param_count; p++) values[count++] = env->scalars[plan->params[p]].i;
    const tvm_eval_env device = tvm_launch_eval_env(env);
    for (uint32_t d = 0; d < plan->device_count; d++)
        values[count++] = tvm_expr_of_device(&plan->device[d], &device);
    if (!run_steps(plan->steps, plan->step_count, values, count)) return false;
    count += plan->step_count;
    for (uint32_t a = 0; a < plan->assume_count; a++)
        if (!values[plan->assumes[a]]) return false;
    if (!set_grid(plan, values, env->grid)) return false;
    for (uint32_t d = 0; d < plan->extent_count; d++) values[count++] = (int32_t)env->grid[plan->extents[d]];
    if (!run_steps(plan->steps + plan->step_count, plan->late_count, values, count)) return false;
    for (uint32_t t = 0; t < plan->tensor_count; t++)
        if (!tensor_fits(&plan->tensors[t], values)) return false;
    out->known = true;
    return true;
}

void tvm_launch_plan_shape(const tvm_launch_plan *plan, const tvm_launch_values *values, uint32_t slot,
                           int64_t shape[TVM_MAX_RANK], uint64_t *bytes) {
    const plan_tensor *tensor = plan->tensors;
    while (tensor->slot != slot) tensor++;
    uint64_t elements = 1;
    for (unsigned d = 0; d < tensor->rank; d++) {
        shape[d] = values->values[tensor->shape[d]];
        elements *= (uint64_t)shape[d];
    }
    *bytes = elements * tensor->bits / 8;
}

tvm_status tvm_launch_shapes_find(const tvm_launch_shapes *shapes, uint32_t slot, int64_t shape[TVM_MAX_RANK],
                                  uint64_t *bytes, tvm_diags *diags) {
    if (!shapes->values.known)
        return tvm_launch_shape(shapes->program, shapes->kernel, slot, &shapes->env, shape, bytes, diags);
    tvm_launch_plan_shape(shapes->plan, &shapes->values, slot, shape, bytes);
    return TVM_OK;
}
