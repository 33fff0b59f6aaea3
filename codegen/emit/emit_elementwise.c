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
    unsigned op;
    tvm_dtype type; /* of the sources, but for the condition of where */
    uint32_t result, locals;
    source sources[MAX_SOURCES];
    unsigned count;
    tvm_compare compare;
} elementwise;

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
    *w = (elementwise){.op = insn->op, .result = insn->result, .count = count};
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
    if (!tvm_is_half(w->type)) return "";
    if (w->op == TVM_OP_DIV) return "no packed division";
    return w->op == TVM_OP_EXP ? "no packed exponential of full precision" : NULL;
}

static const char *packed_name(unsigned op) {
    switch (op) {
    case TVM_OP_ADD:
        return "add.rn";
    case TVM_OP_SUB:
        return "sub.rn";
    case TVM_OP_MUL:
        return "mul.rn";
    case TVM_OP_MIN:
        return "min";
    case TVM_OP_MAX:
        return "max";
    case TVM_OP_FMA:
        return "fma.rn";
    default:
        return "neg";
    }
}

/* bf16 add, sub and mul before sm_90, exactly: x * 1 + y, y * -1 + x and x * y + -0. */
static void emit_bf16_by_fma(emitter *e, unsigned op, reg d, const reg operands[3]) {
    reg constant = tvm_constant_word(e, op == TVM_OP_ADD   ? 0x3f803f80
                                        : op == TVM_OP_SUB ? 0xbf80bf80
                                                           : 0x80008000);
    const char *x = operands[0].name, *y = operands[1].name, *c = constant.name;
    if (op == TVM_OP_ADD)
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", d.name, x, c, y);
    else if (op == TVM_OP_SUB)
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", d.name, y, c, x);
    else
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", d.name, x, y, c);
}

static void emit_packed_op(emitter *e, const elementwise *w, reg d, const reg operands[3]) {
    const char *type = w->type.exponent == 5 ? "f16x2" : "bf16x2", *name = packed_name(w->op);
    bool by_fma = w->op == TVM_OP_ADD || w->op == TVM_OP_SUB || w->op == TVM_OP_MUL;
    if (by_fma && w->type.exponent == 8 && e->target.arch < ARCH_BF16_ADD)
        emit_bf16_by_fma(e, w->op, d, operands);
    else if (w->count == 3)
        tvm_emit(e, "%s.%s %s, %s, %s, %s;", name, type, d.name, operands[0].name, operands[1].name,
                 operands[2].name);
    else if (w->count == 2)
        tvm_emit(e, "%s.%s %s, %s, %s;", name, type, d.name, operands[0].name, operands[1].name);
    else
        tvm_emit(e, "%s.%s %s, %s;", name, type, d.name, operands[0].name);
}

static bool emit_packed(emitter *e, void *work) {
    const elementwise *w = work;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, w->result)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2) {
        reg operands[3], d = tvm_new_r(e);
        for (unsigned i = 0; i < w->count; i++) operands[i] = source_pair(e, w, &w->sources[i], l);
        emit_packed_op(e, w, d, operands);
        tvm_write_word(e, &writer, d);
    }
    tvm_write_end(e, &writer);
    return true;
}

/* ---- single elements ---- */

static const char *element_name(unsigned op, tvm_dtype type) {
    bool is_float = type.kind == TVM_KIND_FLOAT;
    switch (op) {
    case TVM_OP_ADD:
        return is_float ? "add.rn" : "add";
    case TVM_OP_SUB:
        return is_float ? "sub.rn" : "sub";
    case TVM_OP_MUL:
        return is_float ? "mul.rn" : "mul.lo";
    case TVM_OP_DIV:
        return is_float ? "div.rn" : "div";
    case TVM_OP_MOD:
        return "rem";
    case TVM_OP_MIN:
        return "min";
    case TVM_OP_MAX:
        return "max";
    case TVM_OP_FMA:
        return is_float ? "fma.rn" : "mad.lo";
    default:
        return "neg";
    }
}

/* e to the x in f32: x = j ln 2 + f with |f| <= ln 2 / 2 (ln 2 in two parts, so that f is nearly exact), 2^(f
 * log2 e) from the hardware, and 2^j applied as two powers of two, which also reaches the subnormals. Two
 * units in the last place. Outside [-105, 89] the result is zero or infinity as at the ends. */
static reg emit_exp(emitter *e, reg x) {
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
static reg mend_division(emitter *e, const elementwise *w, reg quotient, const reg operands[3]) {
    reg zero = tvm_new_pred(e), d = tvm_new_element(e, w->type);
    unsigned bits = w->type.bits == 64 ? 64 : 32;
    tvm_emit(e, "setp.eq.b%u %s, %s, 0;", bits, zero.name, operands[1].name);
    tvm_emit(e, "selp.b%u %s, %s, %s, %s;", bits, d.name, w->op == TVM_OP_MOD ? operands[0].name : "-1",
             quotient.name, zero.name);
    return d;
}

/* The result in the arithmetic's own class: f16 and bf16 as f32. */
static reg emit_element_op(emitter *e, const elementwise *w, const reg operands[3]) {
    if (w->op == TVM_OP_EXP) return emit_exp(e, operands[0]);
    reg d = tvm_is_half(w->type) ? tvm_new_f(e) : tvm_new_element(e, w->type);
    const char *name = element_name(w->op, w->type), *suffix = tvm_arithmetic_suffix(w->type);
    if (w->count == 3)
        tvm_emit(e, "%s.%s %s, %s, %s, %s;", name, suffix, d.name, operands[0].name, operands[1].name,
                 operands[2].name);
    else if (w->count == 2)
        tvm_emit(e, "%s.%s %s, %s, %s;", name, suffix, d.name, operands[0].name, operands[1].name);
    else
        tvm_emit(e, "%s.%s %s, %s;", name, suffix, d.name, operands[0].name);
    bool divides = w->op == TVM_OP_DIV || w->op == TVM_OP_MOD;
    return divides && w->type.kind != TVM_KIND_FLOAT ? mend_division(e, w, d, operands) : d;
}

static bool emit_single(emitter *e, void *work) {
    const elementwise *w = work;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, w->result)) return false;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg operands[3];
        for (unsigned i = 0; i < w->count; i++) operands[i] = source_number(e, w, &w->sources[i], l);
        reg d = emit_element_op(e, w, operands);
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
