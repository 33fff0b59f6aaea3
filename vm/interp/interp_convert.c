/* cast. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_vector.h"

typedef enum cast_way {
    CAST_COPY,    /* the same type */
    CAST_TABLE,   /* from containers of one byte: a table of all codes */
    CAST_WIDEN,   /* f16 or bf16 to f32 */
    CAST_NARROW,  /* f32 to f16 or bf16 */
    CAST_ELEMENTS /* one call an element */
} cast_way;

typedef struct cast_plan {
    cast_way way;
    tvm_dtype from, to;
    uint32_t source, count;
    bool lowbit;
    uint64_t table[256]; /* of containers of the result */
} cast_plan;

static bool tvm_is_half(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_F16) || tvm_dtype_same(type, TVM_BF16);
}

static cast_way choose_cast(tvm_dtype from, tvm_dtype to) {
    if (tvm_dtype_same(from, to)) return CAST_COPY;
    if (tvm_dtype_container(from) == 1) return CAST_TABLE;
    if (tvm_is_half(from) && tvm_dtype_same(to, TVM_F32)) return CAST_WIDEN;
    if (tvm_is_half(to) && tvm_dtype_same(from, TVM_F32)) return CAST_NARROW;
    return CAST_ELEMENTS;
}

tvm_status tvm_plan_CAST(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    cast_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    plan->source = insn->operands[0].value;
    plan->count = k->extents[insn->source->result];
    plan->from = interp_slot(k, plan->source)->dtype;
    plan->to = interp_slot(k, insn->source->result)->dtype;
    plan->lowbit = tvm_insn_has(insn->source, TVM_TRAIT_LOWBIT);
    plan->way = choose_cast(plan->from, plan->to);
    if (plan->way != CAST_TABLE) return TVM_OK;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t code = plan->from.kind == TVM_KIND_BOOL ? byte != 0 : byte & ((1u << plan->from.bits) - 1);
        tvm_container_set(plan->to, plan->table, byte, tvm_cast(plan->to, plan->from, code, plan->lowbit));
    }
    return TVM_OK;
}

static void cast_table(const cast_plan *plan, void *to, const uint8_t *from) {
    switch (tvm_dtype_container(plan->to)) {
    case 1: {
        const uint8_t *table = (const uint8_t *)plan->table;
        uint8_t *bytes = to;
        for (uint32_t i = 0; i < plan->count; i++) bytes[i] = table[from[i]];
        break;
    }
    case 2:
        tvm_interp_lookup_16(to, from, (const uint16_t *)(const void *)plan->table, plan->count);
        break;
    case 4:
        tvm_interp_lookup_32(to, from, (const uint32_t *)(const void *)plan->table, plan->count);
        break;
    default: {
        uint64_t *words = to;
        for (uint32_t i = 0; i < plan->count; i++) words[i] = plan->table[from[i]];
        break;
    }
    }
}

/* As tvm_encode has it, a NaN has one code. */
static void cast_widen(const cast_plan *plan, float *to, const uint16_t *from) {
    if (tvm_dtype_same(plan->from, TVM_F16))
        tvm_interp_f16_to_f32(to, from, plan->count);
    else
        tvm_interp_bf16_to_f32(to, from, plan->count);
    const float canonical = tvm_f32_from_bits(0x7fffffff);
    for (uint32_t i = 0; i < plan->count; i++) to[i] = to[i] == to[i] ? to[i] : canonical;
}

static void cast_narrow(const cast_plan *plan, uint16_t *to, const float *from) {
    if (tvm_dtype_same(plan->to, TVM_F16))
        tvm_interp_f32_to_f16(to, from, plan->count);
    else
        tvm_interp_f32_to_bf16(to, from, plan->count);
}

tvm_status tvm_interp_CAST(interp_context *context, const interp_insn *insn) {
    const cast_plan *plan = insn->plan;
    const void *from = interp_tensor(context->block, plan->source);
    void *to = interp_tensor(context->block, insn->source->result);
    switch (plan->way) {
    case CAST_COPY:
        if (to != from) memcpy(to, from, (size_t)plan->count * tvm_dtype_container(plan->to));
        break;
    case CAST_TABLE:
        cast_table(plan, to, from);
        break;
    case CAST_WIDEN:
        cast_widen(plan, to, from);
        break;
    case CAST_NARROW:
        cast_narrow(plan, to, from);
        break;
    case CAST_ELEMENTS:
        for (uint32_t i = 0; i < plan->count; i++)
            tvm_container_set(
                plan->to, to, i,
                tvm_cast(plan->to, plan->from, tvm_container_get(plan->from, from, i), plan->lowbit));
        break;
    }
    return TVM_OK;
}
