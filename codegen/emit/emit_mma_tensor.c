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
    reg address = tvm_new_r(e), elements = tvm_shared_dynamic(&access);
    uint32_t bytes = matrix->tile.bytes;
    if (bytes == 0) {
        elements = word_op(e, "mul.lo.s32", elements, matrix->tile.bits);
        elements = word_op(e, "shr.s32", elements, 3);
        bytes = 1;
    }
    tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", address.name, elements.name, bytes, start.name);
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
    uint32_t sums, a, b;  /* formats */
    unsigned scales;      /* of a row, in one instruction; 0: there are none */
    unsigned ptx_version; /* 87: 8.7; 0: that of tcgen05.mma */
} kind;

/* Of kind::f8f6f4 and kind::mxf8f6f4. */
static uint32_t small_format(tvm_dtype type) {
    enum { E4M3, E5M2, E2M3 = 3, E3M2, E2M1 };
    if (type.bits == 8) return type.mantissa == 2 ? E5M2 : E4M3;
    return type.bits == 4 ? E2M1 : type.mantissa == 3 ? E2M3 : E3M2;
}

static kind kind_of(const tvm_tensor_mma *t) {
    enum { F32 = 1, S32 = 2, BF16 = 1, TF32 = 2, PACKED_E2M1 = 1 };
    const tvm_mma_types *types = t->types;
    bool packed = types->a.bits < 8 && !t->a.is_spread;
    if (packed && t->scaling->block == 16) return (kind){"mxf4nvf4", 0, PACKED_E2M1, PACKED_E2M1, 4, 87};
    if (packed) return (kind){"mxf4", 0, PACKED_E2M1, PACKED_E2M1, 2, 0};
    if (types->sums == TVM_MMA_I32)
        return (kind){"i8", S32, types->a.kind == TVM_KIND_INT, types->b.kind == TVM_KIND_INT, 0, 0};
    if (types->a.bits == 32) return (kind){"tf32", F32, TF32, TF32, 0, 0};
    if (types->a.bits <= 8) {
        uint32_t a = small_format(types->a), b = small_format(types->b);
        return t->scaling ? (kind){"mxf8f6f4", 0, a, b, 1, 0} : (kind){"f8f6f4", F32, a, b, 0, 0};
    }
    uint32_t format = types->a.exponent == TVM_BF16.exponent ? BF16 : 0;
    return (kind){"f16", F32, format, format, 0, 0};
}

/* `id`: which of the four scales in a column is the instruction's first. */
static uint32_t instruction_descriptor(const tvm_tensor_mma *t, const kind *of, bool a_transposed,
                                       bool b_transposed, uint32_t id) {
    enum { E8M0 = 1 << 23 };
    uint32_t bits = of->sums << 4 | of->a << 7 | of->b << 10 | (uint32_t)a_transposed << 15 |
                    (uint32_t)b_transposed << 16 | t->n / 8 << 17 | t->blocks * t->m / 16 << 24;
    return bits | id << 4 | id << 29 | (t->scaling && t->scaling->block == 32 ? (uint32_t)E8M0 : 0);
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
    const char *why = o->is_shared ? tvm_tensor_matrix_find(e->k, tile->tensor, tile->tile, k_first,
                                                            TVM_TENSOR_STEP, &o->matrix)
                                   : NULL;
    if (!why) o->base = o->is_shared ? base_of(e, &o->matrix) : tvm_tensor_address(e, tile->tensor);
    return why;
}

typedef struct product {
    const tvm_tensor_mma *t;
    kind of;
    operand a, b;
    reg d, scale_a, scale_b; /* addresses */
} product;

static reg plus_columns(emitter *e, reg address, uint32_t columns) {
    return columns ? word_op(e, "add.u32", address, columns) : address;
}

/* The qualifier, and the operands, of the scales of a step: none, and no text. */
static reg list_scales(emitter *e, const product *p, uint32_t step, char operands[3 * sizeof(reg)]) {
    uint32_t first = step * p->of.scales, word = first / TVM_TENSOR_SCALES;
    uint32_t bits = instruction_descriptor(p->t, &p->of, p->a.is_shared && p->a.matrix.is_transposed,
                                           p->b.matrix.is_transposed, first % TVM_TENSOR_SCALES);
    reg form = tvm_pure(e, 'r', "mov.b32 $, 0x%x;", bits);
    operands[0] = '\0';
    if (!p->of.scales) return form;
    reg a = plus_columns(e, p->scale_a, word * tvm_tensor_scale_columns(p->t->m));
    reg b = plus_columns(e, p->scale_b, word * tvm_tensor_scale_columns(p->t->n));
    snprintf(operands, 3 * sizeof(reg), " [%s], [%s],", a.name, b.name);
    return form;
}

/* fence TENSOR_PRODUCT */
static void emit_steps(emitter *e, product *p) {
    const tvm_tensor_mma *t = p->t;
    p->d = tvm_tensor_address(e, t->d.tensor);
    if (p->of.scales) p->scale_a = tvm_tensor_address(e, t->scale_a.tensor);
    if (p->of.scales) p->scale_b = tvm_tensor_address(e, t->scale_b.tensor);
    reg first = adds_first(e, t), more = tvm_pure(e, 'p', "setp.ne.u32 $, %d, 0;", 1);
    uint32_t behind = tvm_new_label(e);
    char scales[3 * sizeof(reg)], vector[48] = "";
    if (p->of.scales) snprintf(vector, sizeof vector, ".block_scale.scale_vec::%uX", p->of.scales);
    list_scales(e, p, 0, scales); /* its registers are made before the branch */
    tvm_emit_even_block(e, behind);
    reg leader = tvm_emit_elect(e, behind);
    for (uint32_t s = 0; s < p->b.matrix.steps; s++) {
        bool shared = p->a.is_shared;
        reg source = shared ? descriptor(e, &p->a.matrix, p->a.base, s)
                            : plus_columns(e, p->a.base, s * SHARED_COLUMNS);
        reg form = list_scales(e, p, s, scales);
        tvm_emit(e, "@%s tcgen05.mma.cta_group::%u.kind::%s%s [%s], %s%s%s, %s, %s,%s %s;", leader.name,
                 tvm_tensor_group(e), p->of.name, vector, p->d.name, shared ? "" : "[", source.name,
                 shared ? "" : "]", descriptor(e, &p->b.matrix, p->b.base, s).name, form.name, scales,
                 s ? more.name : first.name);
    }
    tvm_text_add(&e->body, "$L%u:\n", behind);
}

static bool guard_all(emitter *e, const tvm_tensor_mma *t) {
    const tvm_tensor_tile *tiles[] = {&t->d, &t->a, &t->b, &t->scale_a, &t->scale_b};
    bool guarded = false;
    for (unsigned i = 0; i < sizeof tiles / sizeof *tiles; i++)
        if (tiles[i]->tensor && guard(e, tiles[i])) guarded = true;
    return guarded;
}

tvm_status tvm_emit_MMA_TENSOR(emitter *e, const tvm_insn *insn) {
    tvm_tensor_mma t;
    char name[80], target[16];
    tvm_tensor_mma_read(e->k->program, e->k->kernel, tvm_operands(e->k->kernel, insn), &t);
    product p = {.t = &t, .of = kind_of(&t)};
    if (t.types->sums == TVM_MMA_I32 && !tvm_target_has(e->k->target, TVM_HAS_TCGEN05_I8))
        return tvm_emit_error(e, TVM_UNSUPPORTED, "'.assume has(tcgen05_i8)' leaves the kernel out there",
                              "%s has no tcgen05.mma of integers", tvm_target_name(e->k->target, target));
    if (p.of.ptx_version > e->ptx_version) e->ptx_version = p.of.ptx_version;
    bool guarded = guard_all(e, &t);
    const char *why = open_operand(e, &t.a, t.a.is_transposed, &p.a);
    if (why) return refuse(e, t.a.tensor, why);
    why = open_operand(e, &t.b, !t.b.is_transposed, &p.b);
    if (why) return refuse(e, t.b.tensor, why);
    emit_steps(e, &p);
    snprintf(name, sizeof name, "tcgen05.mma.kind::%s m%un%uk%u%s%s", p.of.name, t.blocks * t.m, t.n, t.step,
             p.a.is_shared ? "" : " of a in tensor memory", guarded ? " guarded" : "");
    tvm_explain(e, name, 0, p.b.matrix.steps, -1, "");
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
    const uint32_t tile[2] = {last[-1].value, last->value}, lanes[2] = {TVM_TENSOR_LANES, last->value};
    bool to_quarters = tile[0] == TVM_TENSOR_SCALE_ROWS;
    char name[48];
    const char *shape = to_quarters ? "32x128b.warpx4" : "128x256b";
    tensor_matrix matrix;
    bool guarded = tvm_shared_guard(e, target->value, target + 1, 2, lanes);
    guarded = tvm_shared_guard(e, source->value, source + 1, 2, tile) || guarded;
    const char *why = tvm_tensor_matrix_find(e->k, source, tile, false,
                                             to_quarters ? TVM_TENSOR_STEP / 2 : TVM_TENSOR_STEP, &matrix);
    if (!why && matrix.is_transposed)
        why = "its rows do not lie in 16 bytes each: leave the layout of its tensor out";
    if (why) return refuse(e, source, why);
    reg to = tvm_tensor_address(e, target), base = base_of(e, &matrix);
    uint32_t behind = tvm_new_label(e);
    tvm_emit_even_block(e, behind);
    reg leader = tvm_emit_elect(e, behind);
    for (uint32_t s = 0; s < matrix.steps; s++) {
        reg at = plus_columns(e, to, s * matrix.step * 8 / TVM_TENSOR_COLUMN_BITS);
        tvm_emit(e, "@%s tcgen05.cp.cta_group::%u.%s [%s], %s;", leader.name, tvm_tensor_group(e), shape,
                 at.name, descriptor(e, &matrix, base, s).name);
    }
    tvm_text_add(&e->body, "$L%u:\n", behind);
    snprintf(name, sizeof name, "tcgen05.cp.%s%s", shape, guarded ? " guarded" : "");
    tvm_explain(e, name, 256, matrix.steps, -1, "");
    return TVM_OK;
}
