/* mma-tensor and copy-tensor: PTX ISA, "tcgen05.mma" and "tcgen05.cp". One thread of the team starts them, in
 * the order in which the tensor core does them. */
#include <stdio.h>

#include "analysis.h"
#include "emit_tensor.h"
#include "kernel.h"
#include "numbers.h"
#include "shared_access.h"
#include "tensor_matrix.h"
#include "tensor_memory.h"

enum { SHARED_COLUMNS = TVM_TENSOR_STEP * 8 / TVM_TENSOR_COLUMN_BITS }; /* of a step in tensor memory */

/* ---- descriptors ---- */

/* Where the tensor's run-time part begins, in units of 16 bytes, in registers that all threads have alike. */
static reg base_of(emitter *e, const tensor_matrix *matrix) {
    shared_access access = {.e = e, .tile = matrix->tile};
    reg start = tvm_matrix_base(e), out = tvm_new_r(e);
    if (!matrix->tile.has_dynamic) return tvm_pure(e, 'r', "shr.u32 $, %s, 4;", start.name);
    reg address = tvm_new_r(e);
    tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", address.name, tvm_shared_dynamic(&access).name,
             matrix->tile.bytes, start.name);
    tvm_emit(e, "shr.s32 %s, %s, 4;", out.name, address.name);
    return out;
}

/* The base offset is 0, as tensors begin where a swizzle does. */
static reg descriptor(emitter *e, const tensor_matrix *matrix, reg base, uint32_t step) {
    int32_t start =
        (int32_t)e->k->slots[matrix->tile.slot].shared_offset + tvm_tensor_matrix_start(matrix, step);
    reg at = word_op(e, "add.u32", base, tvm_tensor_matrix_low(matrix) + (uint32_t)(start / 16)),
        out = tvm_new_rd(e);
    tvm_emit(e, "mov.b64 %s, {%s, %s};", out.name, at.name,
             tvm_pure(e, 'r', "mov.b32 $, %u;", tvm_tensor_matrix_high(matrix)).name);
    return out;
}

static tvm_status refuse(emitter *e, const tvm_operand *tensor, const char *why) {
    const char *name = tvm_string(e->k->program, e->k->kernel->slots[tensor->value].name);
    return tvm_emit_error(e, TVM_UNSUPPORTED, NULL, "'%%%s': %s", name, why);
}

/* ---- products ---- */

/* PTX ISA, "Instruction descriptor", of the kinds that are named. */
typedef struct kind {
    const char *name;
    uint32_t sums, a, b; /* formats */
} kind;

static bool is_e5m2(tvm_dtype type) {
    return type.mantissa == 2;
}

static kind kind_of(const tvm_mma_types *types) {
    enum { F32 = 1, S32 = 2, BF16 = 1, TF32 = 2 };
    if (types->sums == TVM_MMA_I32)
        return (kind){"i8", S32, types->a.kind == TVM_KIND_INT, types->b.kind == TVM_KIND_INT};
    if (types->a.bits == 32) return (kind){"tf32", F32, TF32, TF32};
    if (types->a.bits == 8) return (kind){"f8f6f4", F32, is_e5m2(types->a), is_e5m2(types->b)};
    uint32_t format = types->a.exponent == TVM_BF16.exponent ? BF16 : 0;
    return (kind){"f16", F32, format, format};
}

static uint32_t instruction_descriptor(const tvm_tensor_mma *t, const kind *of, bool a_transposed,
                                       bool b_transposed) {
    return of->sums << 4 | of->a << 7 | of->b << 10 | (uint32_t)a_transposed << 15 |
           (uint32_t)b_transposed << 16 | t->n / 8 << 17 | t->m / 16 << 24;
}

/* The predicate that the first step adds to what is there. */
static reg adds_first(emitter *e, const tvm_tensor_mma *t) {
    int64_t value = 1;
    bool given = t->accumulate->kind == TVM_OPERAND_EXPR;
    if (given && !tvm_fact_constant(e->k, t->accumulate->value, &value))
        return tvm_emit_condition(e, t->accumulate->value);
    return tvm_pure(e, 'p', "setp.ne.u32 $, %d, 0;", value != 0);
}

static bool guard(emitter *e, const tvm_tensor_tile *tile) {
    return tvm_shared_guard(e, tile->tensor->value, tile->tensor + 1, 2, tile->tile);
}

typedef struct operand {
    tensor_matrix matrix;
    bool is_shared;
    reg base; /* of the descriptors; or the address in tensor memory */
} operand;

static const char *open_operand(emitter *e, const tvm_tensor_tile *tile, bool k_first, operand *o) {
    *o = (operand){.is_shared = tile->is_shared};
    const char *why =
        o->is_shared ? tvm_tensor_matrix_find(e->k, tile->tensor, tile->tile, k_first, &o->matrix) : NULL;
    if (!why) o->base = o->is_shared ? base_of(e, &o->matrix) : tvm_tensor_address(e, tile->tensor);
    return why;
}

/* fence TENSOR_PRODUCT */
static void emit_steps(emitter *e, const tvm_tensor_mma *t, const kind *of, const operand *a,
                       const operand *b) {
    reg d = tvm_tensor_address(e, t->d.tensor), first = adds_first(e, t);
    reg more = tvm_pure(e, 'p', "setp.ne.u32 $, %d, 0;", 1);
    uint32_t behind = tvm_new_label(e);
    uint32_t bits =
        instruction_descriptor(t, of, a->is_shared && a->matrix.is_transposed, b->matrix.is_transposed);
    reg form = tvm_pure(e, 'r', "mov.b32 $, 0x%x;", bits), leader = tvm_emit_elect(e, behind);
    for (uint32_t s = 0; s < b->matrix.steps; s++) {
        reg source = !a->is_shared ? (s ? word_op(e, "add.u32", a->base, s * SHARED_COLUMNS) : a->base)
                                   : descriptor(e, &a->matrix, a->base, s);
        tvm_emit(e, "@%s tcgen05.mma.cta_group::1.kind::%s [%s], %s%s%s, %s, %s, %s;", leader.name, of->name,
                 d.name, a->is_shared ? "" : "[", source.name, a->is_shared ? "" : "]",
                 descriptor(e, &b->matrix, b->base, s).name, form.name, s ? more.name : first.name);
    }
    tvm_text_add(&e->body, "$L%u:\n", behind);
}

tvm_status tvm_emit_MMA_TENSOR(emitter *e, const tvm_insn *insn) {
    tvm_tensor_mma t;
    operand a, b;
    char name[80], target[16];
    tvm_tensor_mma_read(e->k->program, e->k->kernel, tvm_operands(e->k->kernel, insn), &t);
    const kind of = kind_of(t.types);
    if (t.types->sums == TVM_MMA_I32 && !tvm_target_has(e->k->target, TVM_HAS_TCGEN05_I8))
        return tvm_emit_error(e, TVM_UNSUPPORTED, "'.assume has(tcgen05_i8)' leaves the kernel out there",
                              "%s has no tcgen05.mma of integers", tvm_target_name(e->k->target, target));
    bool guarded = guard(e, &t.d);
    guarded = guard(e, &t.a) || guarded;
    guarded = guard(e, &t.b) || guarded;
    const char *why = open_operand(e, &t.a, t.a.is_transposed, &a);
    if (why) return refuse(e, t.a.tensor, why);
    why = open_operand(e, &t.b, !t.b.is_transposed, &b);
    if (why) return refuse(e, t.b.tensor, why);
    emit_steps(e, &t, &of, &a, &b);
    snprintf(name, sizeof name, "tcgen05.mma.kind::%s m128n%uk%u%s%s", of.name, t.n,
             TVM_TENSOR_STEP * 8 / t.types->a.bits, a.is_shared ? "" : " of a in tensor memory",
             guarded ? " guarded" : "");
    tvm_explain(e, name, 0, b.matrix.steps, -1, "");
    return TVM_OK;
}

/* ---- copies ---- */

/* fence TENSOR_PRODUCT */
tvm_status tvm_emit_COPY_TENSOR(emitter *e, const tvm_insn *insn) {
    const tvm_operand *target = tvm_operands(e->k->kernel, insn);
    const tvm_operand *source =
        target + 1 + tvm_slot_rank(e->k->program, &e->k->kernel->slots[target->value]);
    const tvm_operand *extents =
        source + 1 + tvm_slot_rank(e->k->program, &e->k->kernel->slots[source->value]);
    const tvm_operand *last = extents + extents->value; /* of which two are not 1 */
    const uint32_t tile[2] = {last[-1].value, last->value};
    tensor_matrix matrix;
    bool guarded = tvm_shared_guard(e, target->value, target + 1, 2, tile);
    guarded = tvm_shared_guard(e, source->value, source + 1, 2, tile) || guarded;
    const char *why = tvm_tensor_matrix_find(e->k, source, tile, false, &matrix);
    if (!why && matrix.is_transposed)
        why = "its rows do not lie in 16 bytes each: leave the layout of its tensor out";
    if (why) return refuse(e, source, why);
    reg to = tvm_tensor_address(e, target), base = base_of(e, &matrix);
    uint32_t behind = tvm_new_label(e);
    reg leader = tvm_emit_elect(e, behind);
    for (uint32_t s = 0; s < matrix.steps; s++) {
        reg at = s ? word_op(e, "add.u32", to, s * SHARED_COLUMNS) : to;
        tvm_emit(e, "@%s tcgen05.cp.cta_group::1.128x256b [%s], %s;", leader.name, at.name,
                 descriptor(e, &matrix, base, s).name);
    }
    tvm_text_add(&e->body, "$L%u:\n", behind);
    tvm_explain(e, guarded ? "tcgen05.cp.128x256b guarded" : "tcgen05.cp.128x256b", 256, matrix.steps, -1,
                "");
    return TVM_OK;
}
