/* The element-wise instructions: walks over tiles that broadcast, around the loops of interp_loops.c. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_loops.h"

enum { OPERANDS = 3 };

uint64_t tvm_interp_scalar_code(tvm_dtype type, tvm_scalar value) {
    if (type.kind == TVM_KIND_FLOAT) {
        uint64_t bits = 0;
        float single = (float)value.f;
        if (type.bits == 32)
            memcpy(&bits, &single, sizeof single);
        else
            memcpy(&bits, &value.f, sizeof value.f);
        return bits;
    }
    return type.bits < 64 ? value.u & ((UINT64_C(1) << type.bits) - 1) : value.u;
}

void tvm_interp_fill(tvm_dtype type, void *containers, size_t count, uint64_t code) {
    unsigned bytes = tvm_dtype_container(type);
    if (count == 0) return;
    if (code == 0) {
        memset(containers, 0, count * bytes);
        return;
    }
    tvm_container_set(type, containers, 0, code);
    uint8_t *to = containers;
    for (size_t done = 1; done < count;) {
        size_t more = done < count - done ? done : count - done;
        memcpy(to + done * bytes, to, more * bytes);
        done += more;
    }
}

/* ---- plans ---- */

typedef struct element_operand {
    bool scalar;
    uint32_t value;              /* slot or expression */
    tvm_dtype type;              /* of the scalar expression, else of the tensor */
    uint32_t bytes;              /* of a container */
    uint32_t step[TVM_MAX_RANK]; /* in elements, 0 where it is broadcast */
} element_operand;

typedef struct element_plan {
    interp_loop_function loop;
    tvm_dtype type; /* to which scalars are converted */
    uint32_t result_bytes;
    unsigned arity, rank; /* dimensions that are left once they are merged */
    uint32_t extent[TVM_MAX_RANK];
    element_operand operands[OPERANDS];
} element_plan;

/* Steps of an operand along the dimensions of the result. */
static void operand_steps(const tvm_interp_kernel *k, element_operand *operand, unsigned rank) {
    const tvm_slot *slot = interp_slot(k, operand->value);
    unsigned own = tvm_slot_rank(k->program, slot);
    const uint32_t *shape = tvm_slot_shape(k->program, slot);
    uint32_t step = 1;
    for (unsigned d = 0; d < own; d++) {
        uint32_t extent = shape[own - 1 - d];
        operand->step[rank - 1 - d] = extent == 1 ? 0 : step;
        step *= extent;
    }
}

/* Can dimension d be joined with the one before it: does every operand go on where it would? */
static bool joins(const element_plan *plan, unsigned outer, unsigned d) {
    for (unsigned o = 0; o < plan->arity; o++)
        if (plan->operands[o].step[outer] != plan->extent[d] * plan->operands[o].step[d]) return false;
    return true;
}

/* Drops dimensions of extent 1 and joins neighbours, so that the inner loop is as long as can be. */
static void merge_dimensions(element_plan *plan) {
    unsigned kept = 0;
    for (unsigned d = 0; d < plan->rank; d++) {
        if (plan->extent[d] == 1) continue;
        bool join = kept > 0 && joins(plan, kept - 1, d);
        unsigned at = join ? kept - 1 : kept;
        plan->extent[at] = join ? plan->extent[at] * plan->extent[d] : plan->extent[d];
        for (unsigned o = 0; o < plan->arity; o++) plan->operands[o].step[at] = plan->operands[o].step[d];
        kept = at + 1;
    }
    if (kept == 0) plan->extent[kept++] = 1;
    plan->rank = kept;
}

/* Operands first .. first+arity of the instruction, each a tensor or a scalar. NULL, reported, without
 * memory. */
static element_plan *plan_elements(tvm_interp_kernel *k, interp_insn *insn, unsigned first, unsigned arity,
                                   tvm_diags *diags) {
    element_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) {
        tvm_diag_no_memory(diags);
        return NULL;
    }
    const tvm_slot *result = interp_slot(k, insn->source->result);
    plan->arity = arity;
    plan->rank = tvm_slot_rank(k->program, result);
    plan->result_bytes = tvm_dtype_container(result->dtype);
    plan->type = result->dtype;
    memcpy(plan->extent, tvm_slot_shape(k->program, result), plan->rank * sizeof plan->extent[0]);
    for (unsigned o = 0; o < arity; o++) {
        element_operand *operand = &plan->operands[o];
        operand->value = insn->operands[first + o].value;
        operand->scalar = insn->operands[first + o].kind == TVM_OPERAND_EXPR;
        if (operand->scalar) {
            operand->type = k->kernel->exprs[operand->value].type;
        } else {
            operand->type = interp_slot(k, operand->value)->dtype;
            operand->bytes = tvm_dtype_container(operand->type);
            operand_steps(k, operand, plan->rank);
        }
    }
    merge_dimensions(plan);
    return plan;
}

/* The element type of the tensors among the operands. */
static tvm_dtype tensor_type(const element_plan *plan) {
    for (unsigned o = 0; o < plan->arity; o++)
        if (!plan->operands[o].scalar) return plan->operands[o].type;
    return plan->type;
}

static tvm_status plan_loop(tvm_interp_kernel *kernel, interp_insn *insn, unsigned arity, tvm_diags *diags) {
    element_plan *plan = plan_elements(kernel, insn, 0, arity, diags);
    if (plan) plan->loop = tvm_interp_element_loop(insn->source->op, plan->type);
    return plan ? TVM_OK : TVM_NO_MEMORY;
}

tvm_status tvm_plan_BINARY(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_loop(kernel, insn, 2, diags);
}

tvm_status tvm_plan_FMA(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_loop(kernel, insn, 3, diags);
}

tvm_status tvm_plan_UNARY(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_loop(kernel, insn, 1, diags);
}

tvm_status tvm_plan_WHERE(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    element_plan *plan = plan_elements(kernel, insn, 0, 3, diags);
    if (!plan) return TVM_NO_MEMORY;
    plan->loop = tvm_interp_where_loop(plan->result_bytes);
    return TVM_OK;
}

tvm_status tvm_plan_COMPARE(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    element_plan *plan = plan_elements(kernel, insn, 1, 2, diags);
    if (!plan) return TVM_NO_MEMORY;
    tvm_compare compare = (tvm_compare)insn->operands[0].value;
    plan->type = tensor_type(plan);
    if (compare == TVM_GT || compare == TVM_GE) {
        element_operand x = plan->operands[0];
        plan->operands[0] = plan->operands[1];
        plan->operands[1] = x;
        compare = compare == TVM_GT ? TVM_LT : TVM_LE;
    }
    plan->loop = tvm_interp_compare_loop(compare, plan->type);
    return TVM_OK;
}

/* ---- execution ---- */

/* Where the operands start: a tensor's first element, or the scalar converted into `scalars`. */
static tvm_status locate_operands(interp_context *context, const interp_insn *insn,
                                  uint64_t scalars[OPERANDS], const uint8_t *start[OPERANDS]) {
    const element_plan *plan = insn->plan;
    for (unsigned o = 0; o < plan->arity; o++) {
        const element_operand *operand = &plan->operands[o];
        start[o] = (const uint8_t *)&scalars[o];
        if (!operand->scalar) {
            start[o] = interp_tensor(context->block, operand->value);
            continue;
        }
        tvm_scalar value;
        tvm_status status = tvm_interp_evaluate(context, insn, operand->value, &value);
        if (status != TVM_OK) return status;
        tvm_container_set(
            plan->type, &scalars[o], 0,
            tvm_cast(plan->type, operand->type, tvm_interp_scalar_code(operand->type, value), false));
    }
    return TVM_OK;
}

static tvm_status interp_elements(interp_context *context, const interp_insn *insn) {
    const element_plan *plan = insn->plan;
    uint64_t scalars[OPERANDS];
    const uint8_t *at[OPERANDS] = {0};
    tvm_status status = locate_operands(context, insn, scalars, at);
    if (status != TVM_OK) return status;
    uint8_t *to = interp_tensor(context->block, insn->source->result);
    unsigned last = plan->rank - 1;
    size_t steps[OPERANDS] = {0};
    uint32_t index[TVM_MAX_RANK] = {0};
    for (unsigned o = 0; o < plan->arity; o++) steps[o] = plan->operands[o].step[last];
    for (;;) {
        const void *const row[OPERANDS] = {at[0], at[1], at[2]};
        plan->loop(plan->extent[last], to, row, steps);
        to += (size_t)plan->extent[last] * plan->result_bytes;
        unsigned d = last;
        for (; d > 0; d--) {
            bool wraps = ++index[d - 1] == plan->extent[d - 1];
            for (unsigned o = 0; o < plan->arity; o++) {
                size_t step = (size_t)plan->operands[o].step[d - 1] * plan->operands[o].bytes;
                at[o] = wraps ? at[o] - step * (plan->extent[d - 1] - 1) : at[o] + step;
            }
            if (!wraps) break;
            index[d - 1] = 0;
        }
        if (d == 0) return TVM_OK;
    }
}

tvm_status tvm_interp_BINARY(interp_context *context, const interp_insn *insn) {
    return interp_elements(context, insn);
}

tvm_status tvm_interp_FMA(interp_context *context, const interp_insn *insn) {
    return interp_elements(context, insn);
}

tvm_status tvm_interp_UNARY(interp_context *context, const interp_insn *insn) {
    return interp_elements(context, insn);
}

tvm_status tvm_interp_COMPARE(interp_context *context, const interp_insn *insn) {
    return interp_elements(context, insn);
}

tvm_status tvm_interp_WHERE(interp_context *context, const interp_insn *insn) {
    return interp_elements(context, insn);
}

/* ---- index tensors ---- */

#define COUNT_UP(type)                                                                                       \
    static void count_up_##type(void *to, uint64_t start, uint32_t count) {                                  \
        type *elements = to;                                                                                 \
        for (uint32_t i = 0; i < count; i++) elements[i] = (type)(start + i);                                \
    }
COUNT_UP(uint8_t)
COUNT_UP(uint16_t)
COUNT_UP(uint32_t)
COUNT_UP(uint64_t)

/* Each index along an axis, `inner` times. */
static void count_along(tvm_dtype type, uint8_t *to, uint64_t start, uint32_t extent, uint32_t inner) {
    static void (*const counts[9])(void *, uint64_t, uint32_t) = {
        [1] = count_up_uint8_t, [2] = count_up_uint16_t, [4] = count_up_uint32_t, [8] = count_up_uint64_t};
    unsigned bytes = tvm_dtype_container(type);
    if (inner == 1 && type.bits == 8 * bytes) {
        counts[bytes](to, start, extent);
        return;
    }
    uint64_t mask = type.bits < 64 ? (UINT64_C(1) << type.bits) - 1 : UINT64_MAX;
    for (uint32_t i = 0; i < extent; i++, to += (size_t)inner * bytes)
        tvm_interp_fill(type, to, inner, (start + i) & mask);
}

INTERP_NO_PLAN(IOTA)

tvm_status tvm_interp_IOTA(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    const tvm_slot *result = interp_slot(k, insn->source->result);
    const uint32_t *shape = tvm_slot_shape(k->program, result);
    unsigned rank = tvm_slot_rank(k->program, result), axis = insn->operands[0].value;
    uint8_t *elements = interp_tensor(context->block, insn->source->result);
    uint32_t inner = 1, count = k->extents[insn->source->result];
    tvm_scalar start = {0};
    for (unsigned d = axis + 1; d < rank; d++) inner *= shape[d];
    if (insn->operands[1].kind == TVM_OPERAND_EXPR) {
        tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[1].value, &start);
        if (status != TVM_OK) return status;
    }
    size_t period = (size_t)shape[axis] * inner * tvm_dtype_container(result->dtype);
    size_t bytes = (size_t)count * tvm_dtype_container(result->dtype);
    if (count > 0) count_along(result->dtype, elements, start.u, shape[axis], inner);
    for (size_t at = period; at < bytes; at += period) memcpy(elements + at, elements, period);
    return TVM_OK;
}
