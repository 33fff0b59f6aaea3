/* Scalars from tensors: load-scalar and scalar. */
#include "interp_impl.h"
#include "interp_box.h"
#include "sanitize.h"

#include <string.h>

INTERP_NO_PLAN(LOAD_SCALAR)
INTERP_NO_PLAN(SCALAR)

/* The element's bytes, or NULL: it lies outside of its global tensor. */
static tvm_status find_element(interp_context *context, const interp_insn *insn, const uint8_t **element) {
    const interp_block *block = context->block;
    const tvm_interp_kernel *k = block->kernel;
    uint32_t slot = insn->operands[0].value;
    bool shared = interp_slot(k, slot)->kind == TVM_SLOT_SHARED, inside = true;
    int64_t index[TVM_MAX_RANK], shape[TVM_MAX_RANK], stride[TVM_MAX_RANK], at = 0;
    unsigned rank = tvm_interp_shape(context, slot, shape);
    tvm_status status = tvm_interp_index(context, insn, 0, rank, index);
    if (status == TVM_OK && shared)
        status = tvm_interp_inside(context, insn, slot, rank, shape, index, 0, NULL);
    if (status != TVM_OK) return status;
    tvm_interp_strides(context, slot, stride);
    for (unsigned d = 0; d < rank && inside; d++) {
        inside = index[d] >= 0 && index[d] < shape[d];
        if (inside) at += tvm_interp_step(k->split[slot], d, index[d], stride[d]);
    }
    if (inside && interp_sanitized(context)) {
        const sanitize_access access = {.owner = context->block, .memory = slot, .tensor = TVM_NONE};
        sanitize_walk walk;
        if (tvm_sanitize_open(context, insn, &access, &walk)) tvm_sanitize_row(&walk, at, 1, 0, 1);
        if (walk.status != TVM_OK) return walk.status;
    }
    *element = inside ? tvm_interp_data(context, slot) +
                            (size_t)at * tvm_dtype_container(interp_slot(k, slot)->dtype)
                      : NULL;
    return TVM_OK;
}

static tvm_scalar scalar_of(tvm_dtype type, uint64_t code) {
    if (type.kind == TVM_KIND_FLOAT) return (tvm_scalar){.f = tvm_decode(type, code)};
    if (type.kind == TVM_KIND_INT && type.bits < 64)
        return (tvm_scalar){.i = (int64_t)(code << (64 - type.bits)) >> (64 - type.bits)};
    return (tvm_scalar){.u = code};
}

static tvm_status check_range(interp_context *context, const interp_insn *insn, tvm_dtype type,
                              tvm_scalar value) {
    const tvm_interp_kernel *k = context->block->kernel;
    const tvm_operand *bounds = tvm_insn_interval(k->program, k->kernel, insn->source);
    bool is_signed = type.kind == TVM_KIND_INT;
    tvm_scalar low, end;
    if (!bounds) return TVM_OK;
    tvm_status status = tvm_interp_evaluate(context, insn, bounds[0].value, &low);
    if (status == TVM_OK) status = tvm_interp_evaluate(context, insn, bounds[1].value, &end);
    if (status != TVM_OK) return status;
    bool inside = is_signed ? value.i >= low.i && value.i < end.i : value.u >= low.u && value.u < end.u;
    uint32_t slot = insn->operands[0].value;
    if (inside) return TVM_OK;
    if (is_signed)
        return tvm_interp_fail(context, insn, "%s%s: %lld is not in the range %lld to %lld",
                               interp_sigil(k, slot), interp_slot_name(k, slot), (long long)value.i,
                               (long long)low.i, (long long)end.i);
    return tvm_interp_fail(context, insn, "%s%s: %llu is not in the range %llu to %llu",
                           interp_sigil(k, slot), interp_slot_name(k, slot), (unsigned long long)value.u,
                           (unsigned long long)low.u, (unsigned long long)end.u);
}

/* The result is the element, or zero where there is none. */
static tvm_status assign(interp_context *context, const interp_insn *insn, const uint8_t *element) {
    const tvm_interp_kernel *k = context->block->kernel;
    tvm_dtype from = interp_slot(k, insn->operands[0].value)->dtype,
              type = interp_slot(k, insn->source->result)->dtype;
    uint64_t code = element ? tvm_container_get(from, element, 0) : 0;
    tvm_scalar value = scalar_of(type, tvm_cast(type, from, code, false));
    tvm_status status = check_range(context, insn, type, value);
    if (status == TVM_OK) context->slots[insn->source->result] = value;
    return status;
}

tvm_status tvm_interp_LOAD_SCALAR(interp_context *context, const interp_insn *insn) {
    const uint8_t *element;
    tvm_status status = find_element(context, insn, &element);
    return status == TVM_OK ? assign(context, insn, element) : status;
}

tvm_status tvm_interp_SCALAR(interp_context *context, const interp_insn *insn) {
    return assign(context, insn, interp_tensor(context->block, insn->operands[0].value));
}
