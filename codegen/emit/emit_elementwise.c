/* Element-wise instructions. f16 and bf16 are computed two neighbours at a time, in the words they lie in,
 * where PTX has the operation; everything else one element after the other, integers under 32 bits in 32-bit
 * registers. */
#include "compute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scaled.h"

enum { MAX_SOURCES = 4, ARCH_BF16_ADD = 90 };

/* An operand of an element-wise instruction: a scalar, or a tensor broadcast to the result. */
typedef struct source {
    bool scalar;
    reg value;             /* of a scalar: in the class of its elements, integers extended */
    reg pair;              /* of an f16 or bf16 scalar: in both halves */
    uint32_t slot;         /* of a tensor */
    uint32_t *map;         /* result's local index -> the tensor's */
    const uint32_t *times; /* a factor of scaled sums (scaled.h): the result's local index -> theirs */
    uint32_t sums;         /* their slot */
    reg *multiplied;       /* this times 2^power, by local index and class of power */
} source;

typedef struct elementwise {
    const struct operation *operation; /* of an element-wise row, else NULL */
    tvm_dtype type;                    /* of the sources, but for the condition of where */
    uint32_t result, locals;
    source sources[MAX_SOURCES];
    unsigned count;
    tvm_compare compare;
} elementwise;

/* ---- the operations ---- */

/* What an element-wise row becomes. */
typedef struct operation {
    const char *integer, *real; /* PTX without the type, of integers and of floats */
    const char *packed;         /* of two f16 or bf16, or NULL: then why not */
    const char *not_packed;
    /* bf16 without packed add, sub and mul, exactly, as an fma with a constant pair: x * 1 + y, y * -1 + x
     * and x * y + -0; at which of x, y and the constant stand. 0: packed has it. */
    uint32_t fma_constant;
    uint8_t fma_order[3];
    /* In place of `real`, or NULL. */
    reg (*emit_real)(emitter *e, const reg operands[3]);
    /* After `integer`, or NULL. */
    reg (*mend_integer)(emitter *e, tvm_dtype type, reg result, const reg operands[3]);
} operation;

/* e to the x in f32: x = j ln 2 + f with |f| <= ln 2 / 2 (ln 2 in two parts, so that f is nearly exact), 2^(f
 * log2 e) from the hardware, and 2^j applied as two powers of two, which also reaches the subnormals. Two
 * units in the last place. Outside [-105, 89] the result is zero or infinity as at the ends. */
static reg emit_exp(emitter *e, const reg operands[3]) {
    reg x = operands[0];
    reg low = tvm_new_f(e), clamped = tvm_new_f(e), scaled = tvm_new_f(e), j = tvm_new_f(e),
        minus = tvm_new_f(e), f = tvm_new_f(e), fine = tvm_new_f(e), exponent = tvm_new_f(e),
        power = tvm_new_f(e), n = tvm_new_r(e), half = tvm_new_r(e), rest = tvm_new_r(e);
    tvm_emit(e, "max.f32 %s, %s, 0f%s;", low.name, x.name, "C2D20000");
    tvm_emit(e, "min.f32 %s, %s, 0f%s;", clamped.name, low.name, "42B20000");
    tvm_emit(e, "mul.rn.f32 %s, %s, 0f3FB8AA3B;", scaled.name, clamped.name);
    tvm_emit(e, "cvt.rni.f32.f32 %s, %s;", j.name, scaled.name);
    tvm_emit(e, "neg.f32 %s, %s;", minus.name, j.name);
    tvm_emit(e, "fma.rn.f32 %s, %s, 0f3F317200, %s;", f.name, minus.name, clamped.name);
    tvm_emit(e, "fma.rn.f32 %s, %s, 0f35BFBE8E, %s;", fine.name, minus.name, f.name);
    tvm_emit(e, "mul.rn.f32 %s, %s, 0f3FB8AA3B;", exponent.name, fine.name);
    tvm_emit(e, "ex2.approx.f32 %s, %s;", power.name, exponent.name);
    tvm_emit(e, "cvt.rni.s32.f32 %s, %s;", n.name, j.name);
    tvm_emit(e, "shr.s32 %s, %s, 1;", half.name, n.name);
    tvm_emit(e, "sub.s32 %s, %s, %s;", rest.name, n.name, half.name);
    reg value = power;
    const reg parts[2] = {half, rest};
    for (unsigned i = 0; i < 2; i++) {
        reg bits = tvm_new_r(e), shifted = tvm_new_r(e), product = tvm_new_f(e);
        tvm_emit(e, "shl.b32 %s, %s, 23;", shifted.name, parts[i].name);
        tvm_emit(e, "add.s32 %s, %s, 0x3f800000;", bits.name, shifted.name);
        tvm_emit(e, "mul.rn.f32 %s, %s, %s;", product.name, value.name, bits.name);
        value = product;
    }
    reg nan = tvm_new_pred(e), result = tvm_new_f(e);
    tvm_emit(e, "setp.nan.f32 %s, %s, %s;", nan.name, x.name, x.name);
    tvm_emit(e, "selp.f32 %s, 0f7FFFFFFF, %s, %s;", result.name, value.name, nan.name);
    return result;
}

/* Integer division by zero gives all ones, and leaves the dividend as remainder. */
static reg mend_division(emitter *e, tvm_dtype type, reg result, const char *by_zero, reg divisor) {
    reg zero = tvm_new_pred(e), d = tvm_new_element(e, type);
    unsigned bits = type.bits == 64 ? 64 : 32;
    tvm_emit(e, "setp.eq.b%u %s, %s, 0;", bits, zero.name, divisor.name);
    tvm_emit(e, "selp.b%u %s, %s, %s, %s;", bits, d.name, by_zero, result.name, zero.name);
    return d;
}

static reg mend_quotient(emitter *e, tvm_dtype type, reg result, const reg operands[3]) {
    return mend_division(e, type, result, "-1", operands[1]);
}

static reg mend_remainder(emitter *e, tvm_dtype type, reg result, const reg operands[3]) {
    return mend_division(e, type, result, operands[0].name, operands[1]);
}

enum { X, Y, CONSTANT };

static const operation operation_ADD = {.integer = "add",
                                        .real = "add.rn",
                                        .packed = "add.rn",
                                        .fma_constant = 0x3f803f80,
                                        .fma_order = {X, CONSTANT, Y}};
static const operation operation_SUB = {.integer = "sub",
                                        .real = "sub.rn",
                                        .packed = "sub.rn",
                                        .fma_constant = 0xbf80bf80,
                                        .fma_order = {Y, CONSTANT, X}};
static const operation operation_MUL = {.integer = "mul.lo",
                                        .real = "mul.rn",
                                        .packed = "mul.rn",
                                        .fma_constant = 0x80008000,
                                        .fma_order = {X, Y, CONSTANT}};
static const operation operation_DIV = {
    .integer = "div", .mend_integer = mend_quotient, .real = "div.rn", .not_packed = "no packed division"};
static const operation operation_MOD = {.integer = "rem", .mend_integer = mend_remainder};
static const operation operation_MIN = {.integer = "min", .real = "min", .packed = "min"};
static const operation operation_MAX = {.integer = "max", .real = "max", .packed = "max"};
static const operation operation_FMA = {.integer = "mad.lo", .real = "fma.rn", .packed = "fma.rn"};
static const operation operation_NEG = {.integer = "neg", .real = "neg", .packed = "neg"};
static const operation operation_ABS = {.integer = "abs", .real = "abs", .packed = "abs"};
static const operation operation_EXP = {.emit_real = emit_exp,
                                        .not_packed = "no packed exponential of full precision"};

/* An element-wise row without an operation does not compile. */
static const operation *operation_of(unsigned op) {
    switch (op) {
#define TVM_OP_ELEMENT(number, id, ...)                                                                      \
    case number:                                                                                             \
        return &operation_##id;
#include "opcodes.def"
    default:
        return NULL;
    }
}

/* ---- sources ---- */

static bool take_tensor(emitter *e, elementwise *w, source *s, uint32_t slot) {
    s->slot = slot;
    s->map = calloc(w->locals, sizeof *s->map);
    if (!s->map) return false;
    tvm_layout_broadcasts(tvm_slot_layout(e, slot), tvm_slot_layout(e, w->result), s->map, NULL);
    return true;
}

static void take_scalar(emitter *e, elementwise *w, source *s, uint32_t expr) {
    s->scalar = true;
    s->value = tvm_extend_code(e, w->type, tvm_emit_expr_as(e, expr, w->type, false));
    if (tvm_is_half(w->type)) s->pair = tvm_pack_pair(e, s->value, s->value);
}

/* Takes operands [first, first + count) of the instruction; the type is that of the first tensor at or after
 * `typed`, or the result's when all of those are scalars. */
static bool take_sources(emitter *e, elementwise *w, const tvm_insn *insn, unsigned first, unsigned count,
                         unsigned typed) {
    const tvm_operand *operands = tvm_operands(e->kernel, insn);
    *w = (elementwise){.operation = operation_of(insn->op), .result = insn->result, .count = count};
    w->locals = tvm_layout_locals(tvm_slot_layout(e, insn->result));
    w->type = tvm_slot_dtype(e, insn->result);
    for (unsigned i = first + count; i-- > first + typed;)
        if (operands[i].kind == TVM_OPERAND_SLOT) w->type = tvm_slot_dtype(e, operands[i].value);
    for (unsigned i = 0; i < count; i++) {
        const tvm_operand *operand = &operands[first + i];
        if (operand->kind != TVM_OPERAND_SLOT)
            take_scalar(e, w, &w->sources[i], operand->value);
        else if (!take_tensor(e, w, &w->sources[i], operand->value))
            return false;
    }
    return true;
}

static void free_sources(elementwise *w) {
    for (unsigned i = 0; i < w->count; i++) {
        free(w->sources[i].map);
        free(w->sources[i].multiplied);
    }
}

/* The other factor of scaled sums takes their power on. */
static bool take_power(emitter *e, elementwise *w) {
    for (unsigned i = 0; i < 2 && i < w->count; i++) {
        const source *sums = &w->sources[i];
        source *factor = &w->sources[1 - i];
        if (sums->scalar || !e->slots[sums->slot].scaled.is_scaled) continue;
        factor->times = sums->map;
        factor->sums = sums->slot;
        factor->multiplied =
            calloc(SCALED_CLASSES * (size_t)tvm_layout_locals(tvm_slot_layout(e, factor->slot)), sizeof(reg));
        if (!factor->multiplied) return false;
    }
    return true;
}

static reg multiplied_element(emitter *e, const source *s, uint32_t local) {
    uint32_t of = s->times[local];
    const scaled_weights *scaled = &e->slots[s->sums].scaled;
    reg *known = &s->multiplied[SCALED_CLASSES * s->map[local] + tvm_sum_class(scaled, of)];
    if (known->name[0]) return *known;
    uint32_t factor = tvm_f32_bits((float)tvm_sum_factor(scaled, of));
    *known = tvm_new_f(e);
    tvm_emit(e, "mul.rn.f32 %s, %s, 0f%08X;", known->name,
             tvm_read_element(e, s->slot, s->map[local], true).name, (unsigned)factor);
    return *known;
}

static reg source_element(emitter *e, const source *s, uint32_t local) {
    if (s->multiplied) return multiplied_element(e, s, local);
    return s->scalar ? s->value : tvm_read_element(e, s->slot, s->map[local], true);
}

/* An element of a float source as f32 (f64 as f64). */
static reg source_number(emitter *e, const elementwise *w, const source *s, uint32_t local) {
    reg value = source_element(e, s, local);
    return tvm_is_half(w->type) ? tvm_half_to_f32(e, w->type, value) : value;
}

/* Elements `local` and `local` + 1 of an f16 or bf16 source in the halves of a word; past the end, anything.
 */
static reg source_pair(emitter *e, const elementwise *w, const source *s, uint32_t local) {
    if (s->scalar) return s->pair;
    uint32_t a = s->map[local], b = local + 1 < w->locals ? s->map[local + 1] : a + 1;
    reg first = tvm_slot_word(e, s->slot, a / 2);
    if (a % 2 == 0 && b == a + 1) return first;
    reg pair = tvm_new_r(e);
    unsigned low = a % 2 ? 0x32 : 0x10, high = b % 2 ? 0x76 : 0x54;
    if (local + 1 >= w->locals) b = a;
    tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%02x%02x;", pair.name, first.name,
             tvm_slot_word(e, s->slot, b / 2).name, high, low);
    return pair;
}

static tvm_status finish(emitter *e, elementwise *w, bool taken, const candidate *candidates, size_t count) {
    char name[TVM_DTYPE_NAME_MAX];
    tvm_status status = taken ? tvm_select_candidate(e, candidates, count, w, tvm_dtype_name(w->type, name))
                              : tvm_diag_no_memory(e->diags);
    free_sources(w);
    return status;
}

/* ---- packed f16 and bf16 ---- */

static const char *refuse_packed(const emitter *e, const void *work) {
    (void)e;
    const elementwise *w = work;
    return tvm_is_half(w->type) ? w->operation->not_packed : "";
}

/* One PTX instruction of 1 to 3 operands. */
static void emit_operation(emitter *e, const char *name, const char *type, reg d, const reg *operands,
                           unsigned count) {
    if (count == 3)
        tvm_emit(e, "%s.%s %s, %s, %s, %s;", name, type, d.name, operands[0].name, operands[1].name,
                 operands[2].name);
    else if (count == 2)
        tvm_emit(e, "%s.%s %s, %s, %s;", name, type, d.name, operands[0].name, operands[1].name);
    else
        tvm_emit(e, "%s.%s %s, %s;", name, type, d.name, operands[0].name);
}

static void emit_packed_operation(emitter *e, const elementwise *w, reg d, const reg operands[3]) {
    const operation *o = w->operation;
    bool bf16 = w->type.exponent == 8;
    if (bf16 && o->fma_constant != 0 && e->target.arch < ARCH_BF16_ADD) {
        const reg values[3] = {operands[0], operands[1], tvm_constant_word(e, o->fma_constant)};
        const reg ordered[3] = {values[o->fma_order[0]], values[o->fma_order[1]], values[o->fma_order[2]]};
        emit_operation(e, "fma.rn", "bf16x2", d, ordered, 3);
    } else {
        emit_operation(e, o->packed, bf16 ? "bf16x2" : "f16x2", d, operands, w->count);
    }
}

static bool emit_packed(emitter *e, void *work) {
    const elementwise *w = work;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, w->result)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2) {
        reg operands[3], d = tvm_new_r(e);
        for (unsigned i = 0; i < w->count; i++) operands[i] = source_pair(e, w, &w->sources[i], l);
        emit_packed_operation(e, w, d, operands);
        tvm_write_word(e, &writer, d);
    }
    tvm_write_end(e, &writer);
    return true;
}

/* ---- single elements ---- */

/* The result in the arithmetic's own class: f16 and bf16 as f32. */
static reg emit_element(emitter *e, const elementwise *w, const reg operands[3]) {
    const operation *o = w->operation;
    bool real = w->type.kind == TVM_KIND_FLOAT;
    if (real && o->emit_real) return o->emit_real(e, operands);
    reg d = tvm_is_half(w->type) ? tvm_new_f(e) : tvm_new_element(e, w->type);
    emit_operation(e, real ? o->real : o->integer, tvm_arithmetic_suffix(w->type), d, operands, w->count);
    return !real && o->mend_integer ? o->mend_integer(e, w->type, d, operands) : d;
}

static bool emit_single(emitter *e, void *work) {
    const elementwise *w = work;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, w->result)) return false;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg operands[3];
        for (unsigned i = 0; i < w->count; i++) operands[i] = source_number(e, w, &w->sources[i], l);
        reg d = emit_element(e, w, operands);
        tvm_write_element(e, &writer, tvm_is_half(w->type) ? tvm_f32_to_half(e, w->type, d) : d);
    }
    tvm_write_end(e, &writer);
    return true;
}

static const candidate arithmetic[] = {
    {"packed pairs", refuse_packed, emit_packed},
    {"single elements", NULL, emit_single},
};

static tvm_status emit_arithmetic(emitter *e, const tvm_insn *insn, unsigned count) {
    elementwise w;
    bool taken = take_sources(e, &w, insn, 0, count, 0) && take_power(e, &w);
    return finish(e, &w, taken, arithmetic, 2);
}

tvm_status tvm_emit_BINARY(emitter *e, const tvm_insn *insn) {
    return emit_arithmetic(e, insn, 2);
}
tvm_status tvm_emit_FMA(emitter *e, const tvm_insn *insn) {
    return emit_arithmetic(e, insn, 3);
}
tvm_status tvm_emit_UNARY(emitter *e, const tvm_insn *insn) {
    return emit_arithmetic(e, insn, 1);
}

/* ---- compare ---- */

static bool emit_compare(emitter *e, void *work) {
    static const char *const tests[TVM_COMPARE_COUNT] = {"eq", "ne", "lt", "le", "gt", "ge"};
    const elementwise *w = work;
    bool unordered = w->compare == TVM_NE && w->type.kind == TVM_KIND_FLOAT; /* true of NaN */
    element_writer writer;
    if (!tvm_write_begin(e, &writer, w->result)) return false;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg x = source_number(e, w, &w->sources[0], l), y = source_number(e, w, &w->sources[1], l);
        reg predicate = tvm_new_pred(e), d = tvm_new_r(e);
        tvm_emit(e, "setp.%s%s.%s %s, %s, %s;", tests[w->compare], unordered ? "u" : "",
                 tvm_arithmetic_suffix(w->type), predicate.name, x.name, y.name);
        tvm_emit(e, "selp.b32 %s, 1, 0, %s;", d.name, predicate.name);
        tvm_write_element(e, &writer, d);
    }
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_COMPARE(emitter *e, const tvm_insn *insn) {
    static const candidate candidates[] = {{"single elements", NULL, emit_compare}};
    elementwise w;
    bool taken = take_sources(e, &w, insn, 1, 2, 0);
    w.compare = (tvm_compare)tvm_operands(e->kernel, insn)[0].value;
    return finish(e, &w, taken, candidates, 1);
}

/* ---- where ---- */

static bool emit_where(emitter *e, void *work) {
    const elementwise *w = work;
    const char *suffix = tvm_element_suffix(w->type);
    element_writer writer;
    if (!tvm_write_begin(e, &writer, w->result)) return false;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg condition = source_element(e, &w->sources[0], l), predicate = tvm_new_pred(e);
        tvm_emit(e, "setp.ne.b32 %s, %s, 0;", predicate.name, condition.name);
        reg x = source_element(e, &w->sources[1], l), y = source_element(e, &w->sources[2], l);
        reg d = tvm_new_element(e, w->type);
        tvm_emit(e, "selp.%s %s, %s, %s, %s;", suffix, d.name, x.name, y.name, predicate.name);
        tvm_write_element(e, &writer, d);
    }
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_WHERE(emitter *e, const tvm_insn *insn) {
    static const candidate candidates[] = {{"single elements", NULL, emit_where}};
    elementwise w;
    bool taken = take_sources(e, &w, insn, 0, 3, 1);
    return finish(e, &w, taken, candidates, 1);
}

/* ---- alloc-register and view ---- */

/* The code of a constant expression, converted to an element. */
static bool constant_code(const emitter *e, uint32_t expr, tvm_dtype type, bool lowbit, uint64_t *code) {
    const tvm_expr *node = &e->kernel->exprs[expr];
    uint64_t value;
    if (node->op == TVM_EXPR_INTEGER)
        value = (uint64_t)node->value.i &
                (node->type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << node->type.bits) - 1);
    else if (node->op == TVM_EXPR_FLOAT)
        value = node->type.bits == 32 ? tvm_f32_bits((float)node->value.f) : tvm_f64_bits(node->value.f);
    else
        return false;
    *code = tvm_cast(type, node->type, value, lowbit);
    return true;
}

static bool fill_constant(emitter *e, uint32_t slot, uint32_t locals, unsigned bits, uint64_t code) {
    uint32_t words = tvm_tensor_words(locals, bits);
    uint8_t *string = calloc(words + 1, 4);
    if (!string) return false;
    for (uint32_t l = 0; l < locals; l++) tvm_bits_set(string, (uint64_t)l * bits, bits, code);
    for (uint32_t i = 0; i < words; i++)
        tvm_emit(e, "mov.b32 %s, 0x%08x;", tvm_slot_word(e, slot, i).name,
                 (unsigned)tvm_bits_get(string, (uint64_t)i * 32, 32));
    free(string);
    return true;
}

static bool fill_value(emitter *e, uint32_t slot, uint32_t locals, reg value) {
    element_writer writer;
    if (!tvm_write_begin(e, &writer, slot)) return false;
    for (uint32_t l = 0; l < locals; l++) tvm_write_element(e, &writer, value);
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_ALLOC_REGISTER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *init = insn->count ? tvm_operands(e->kernel, insn) : NULL;
    tvm_dtype type = tvm_slot_dtype(e, insn->result);
    uint32_t locals = tvm_layout_locals(tvm_slot_layout(e, insn->result));
    bool lowbit = tvm_dtype_is_lowbit(type), done;
    size_t before = e->body.size;
    uint64_t code = 0;
    bool given = init && init->kind == TVM_OPERAND_EXPR;
    if (!given || constant_code(e, init->value, type, lowbit, &code))
        done = fill_constant(e, insn->result, locals, type.bits, code);
    else
        done = fill_value(e, insn->result, locals, tvm_emit_expr_as(e, init->value, type, lowbit));
    if (!done) return tvm_diag_no_memory(e->diags);
    tvm_explain(e, given ? "move of the value" : "move of zero", 0, tvm_body_lines(e, before), -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_VIEW(emitter *e, const tvm_insn *insn) {
    uint32_t from = tvm_operands(e->kernel, insn)[0].value;
    uint32_t words =
        tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e, from)), tvm_slot_dtype(e, from).bits);
    for (uint32_t i = 0; i < words && from != insn->result; i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, insn->result, i).name,
                 tvm_slot_word(e, from, i).name);
    tvm_explain(e, "another name", 0, 0, -1, "");
    return TVM_OK;
}
