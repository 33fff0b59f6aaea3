/* One element converted between types, exactly as tvm_cast (isa/types.h) defines it, but for the sign and
 * payload of a NaN in f32 and f64.
 *
 * A source is first widened to one of a few forms without loss; a form is then rounded once into its target.
 * Where a form is wider than f32 and the target narrower, the form goes through f32 rounded to odd: toward
 * zero with the last bit set if anything was lost, after which rounding to at least two bits fewer is as good
 * as rounding once (Boldo and Melquiond, "When double rounding is odd", 2005). */
#include "compute.h"

typedef enum wide_form { FORM_S32, FORM_U32, FORM_S64, FORM_U64, FORM_F32, FORM_F64 } wide_form;

typedef struct wide {
    wide_form form;
    reg value;
    bool may_be_nan;
} wide;

static const char *const form_names[] = {"s32", "u32", "s64", "u64", "f32", "f64"};

static unsigned f32_power(int exponent) {
    return (unsigned)(127 + exponent) << 23;
}

static bool is_lowbit_float(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits <= 8;
}

static reg bits_of(emitter *e, reg value) {
    reg bits = tvm_new_r(e);
    tvm_emit(e, "mov.b32 %s, %s;", bits.name, value.name);
    return bits;
}

static reg float_of(emitter *e, reg bits) {
    reg value = tvm_new_f(e);
    tvm_emit(e, "mov.b32 %s, %s;", value.name, bits.name);
    return value;
}

/* d = a op b for .b32 registers; b may be an immediate. */
static reg select_word(emitter *e, reg if_true, reg if_false, reg predicate) {
    reg d = tvm_new_r(e);
    tvm_emit(e, "selp.b32 %s, %s, %s, %s;", d.name, if_true.name, if_false.name, predicate.name);
    return d;
}

static reg is_nan(emitter *e, const char *type, reg value) {
    reg predicate = tvm_new_pred(e);
    tvm_emit(e, "setp.nan.%s %s, %s, %s;", type, predicate.name, value.name, value.name);
    return predicate;
}

/* ---- widening ---- */

/* Exponent and mantissa moved to the places of an f32's are the value times 2^(bias - 127), subnormals
 * included: multiplying by a power of two is exact. */
static reg decode_lowbit_float(emitter *e, tvm_dtype type, reg code) {
    unsigned n = type.bits, fields = (1u << (n - 1)) - 1;
    reg magnitude = word_op(e, "and.b32", code, fields);
    reg sign = word_op(e, "shl.b32", code, 32 - n);
    reg placed = word_op(e, "shl.b32", magnitude, 23u - type.mantissa), all = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x80000000, %s, 0xea;", all.name, sign.name, placed.name);
    reg value = tvm_new_f(e);
    tvm_emit(e, "mul.rn.f32 %s, %s, 0f%08X;", value.name, all.name, f32_power(127 - tvm_float_bias(type)));
    if (!tvm_float_has_nan(type)) return value;
    reg special = tvm_new_pred(e), bits = bits_of(e, value); /* infinity and NaN, or the NaN */
    bool infinity = tvm_float_has_infinity(type);
    tvm_emit(e, "setp.ge.u32 %s, %s, 0x%x;", special.name, magnitude.name, infinity ? 0x7cu : 0x7fu);
    return float_of(e, select_word(e, word_op(e, "or.b32", bits, 0x7f800000), bits, special));
}

/* The code in the exponent's place; that of 2^-127 is a subnormal, and 255 NaN. */
static reg decode_e8m0(emitter *e, reg code) {
    reg placed = word_op(e, "max.u32", word_op(e, "shl.b32", code, 23), 0x00400000), nan = tvm_new_pred(e),
        bits = tvm_new_r(e);
    tvm_emit(e, "setp.eq.u32 %s, %s, 255;", nan.name, code.name);
    tvm_emit(e, "selp.b32 %s, 0x7fffffff, %s, %s;", bits.name, placed.name, nan.name);
    return float_of(e, bits);
}

static wide widen_float(emitter *e, tvm_dtype from, reg value) {
    if (tvm_dtype_same(from, TVM_E8M0)) return (wide){FORM_F32, decode_e8m0(e, value), true};
    if (is_lowbit_float(from))
        return (wide){FORM_F32, decode_lowbit_float(e, from, value), tvm_float_has_nan(from)};
    if (from.bits == 64) return (wide){FORM_F64, value, true};
    if (tvm_is_half(from)) return (wide){FORM_F32, tvm_half_to_f32(e, from, value), true};
    if (from.mantissa == 23) return (wide){FORM_F32, value, true};
    reg fields = word_op(e, "and.b32", bits_of(e, value), 0xffffe000);
    return (wide){FORM_F32, float_of(e, fields), true};
}

/* Integers of up to 16 bits become the low mantissa bits of 2^23, which is then taken off: two instructions
 * at full rate, where cvt runs at a quarter of it. The sign bit flipped is an offset that is taken off as
 * well. */
static reg small_integer_to_f32(emitter *e, tvm_dtype from, reg code) {
    uint32_t offset = from.kind == TVM_KIND_INT ? 1u << (from.bits - 1) : 0;
    reg bits = tvm_new_r(e), value = tvm_new_f(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%x, 0x%08x, 0x6a;", bits.name, code.name, (1u << from.bits) - 1,
             (unsigned)(0x4b000000 | offset));
    tvm_emit(e, "add.rn.f32 %s, %s, 0f%08X;", value.name, bits.name, (unsigned)(0xcb000000 | offset));
    return value;
}

static wide widen(emitter *e, tvm_dtype from, reg value) {
    if (from.kind == TVM_KIND_FLOAT) return widen_float(e, from, value);
    if (from.kind == TVM_KIND_INT)
        return (wide){from.bits == 64 ? FORM_S64 : FORM_S32, tvm_extend_code(e, from, value), false};
    return (wide){from.bits == 64 ? FORM_U64 : FORM_U32, value, false};
}

/* ---- to floats ---- */

static const char *form_suffix(wide_form form) {
    return form == FORM_F64 ? "f64" : form == FORM_S64 || form == FORM_U64 ? "b64" : "b32";
}

static reg new_of_form(emitter *e, wide_form form) {
    if (form == FORM_F64) return tvm_new_fd(e);
    if (form == FORM_F32) return tvm_new_f(e);
    return form == FORM_S64 || form == FORM_U64 ? tvm_new_rd(e) : tvm_new_r(e);
}

/* The form as f32 rounded to odd; an f32 is returned as it is. */
static reg round_to_odd(emitter *e, wide source) {
    if (source.form == FORM_F32) return source.value;
    const char *name = form_names[source.form];
    reg zero = tvm_new_f(e), back = new_of_form(e, source.form), inexact = tvm_new_pred(e);
    tvm_emit(e, "cvt.rz.f32.%s %s, %s;", name, zero.name, source.value.name);
    tvm_emit(e, "cvt.%s%s.f32 %s, %s;", source.form == FORM_F64 ? "" : "rzi.", name, back.name, zero.name);
    tvm_emit(e, "setp.%s.%s %s, %s, %s;", source.form == FORM_F64 ? "neu" : "ne",
             source.form == FORM_F64 ? "f64" : form_suffix(source.form), inexact.name, back.name,
             source.value.name);
    reg bits = bits_of(e, zero);
    return float_of(e, select_word(e, word_op(e, "or.b32", bits, 1), bits, inexact));
}

static reg to_f32(emitter *e, wide source) {
    if (source.form == FORM_F32) return source.value;
    reg value = tvm_new_f(e);
    tvm_emit(e, "cvt.rn.f32.%s %s, %s;", form_names[source.form], value.name, source.value.name);
    return value;
}

static reg to_f64(emitter *e, wide source) {
    if (source.form == FORM_F64) return source.value;
    reg value = tvm_new_fd(e);
    tvm_emit(e, "cvt.%sf64.%s %s, %s;", source.form == FORM_F32 ? "" : "rn.", form_names[source.form],
             value.name, source.value.name);
    return value;
}

/* Half a unit of the last place kept, less one, plus one if the last place is odd: rounds to nearest even,
 * and carries into the exponent and on to infinity. */
static reg to_tf32(emitter *e, wide source) {
    reg value = round_to_odd(e, source), bits = bits_of(e, value), odd = tvm_new_r(e), sum = tvm_new_r(e);
    tvm_emit(e, "bfe.u32 %s, %s, 13, 1;", odd.name, bits.name);
    tvm_emit(e, "add.u32 %s, %s, %s;", sum.name, bits.name, odd.name);
    reg rounded = word_op(e, "and.b32", word_op(e, "add.u32", sum, 0xfff), 0xffffe000);
    reg result = float_of(e, rounded);
    if (!source.may_be_nan) return result;
    reg nan = is_nan(e, "f32", value), d = tvm_new_f(e);
    tvm_emit(e, "selp.f32 %s, 0f7FFFFFFF, %s, %s;", d.name, result.name, nan.name);
    return d;
}

/* The normal case: the exponent is rebased in place and the mantissa rounded by an integer addition, as in
 * to_tf32. Without mantissa bits the last place is the leading one, which is odd: ties go to the larger
 * magnitude. */
static reg encode_normal(emitter *e, tvm_dtype to, reg magnitude) {
    unsigned shift = 23u - to.mantissa;
    uint32_t half = 1u << (shift - 1), rebase = (uint32_t)(127 - tvm_float_bias(to)) << 23;
    if (to.mantissa == 0)
        return word_op(e, "shr.u32", word_op(e, "add.u32", magnitude, half - rebase), shift);
    reg odd = tvm_new_r(e), sum = tvm_new_r(e);
    tvm_emit(e, "bfe.u32 %s, %s, %u, 1;", odd.name, magnitude.name, shift);
    tvm_emit(e, "add.u32 %s, %s, %s;", sum.name, magnitude.name, odd.name);
    return word_op(e, "shr.u32", word_op(e, "add.u32", sum, half - 1 - rebase), shift);
}

/* The subnormal case: a sum with 2^(23 + q) has q as the unit of its last place, the target's smallest
 * magnitude. */
static reg encode_subnormal(emitter *e, tvm_dtype to, reg magnitude) {
    unsigned base = f32_power(23 + 1 - tvm_float_bias(to) - to.mantissa);
    reg sum = tvm_new_f(e);
    tvm_emit(e, "add.rn.f32 %s, %s, 0f%08X;", sum.name, magnitude.name, base);
    return word_op(e, "sub.u32", bits_of(e, sum), base);
}

static reg to_lowbit_float(emitter *e, tvm_dtype to, wide source) {
    unsigned n = to.bits, all = (1u << (n - 1)) - 1;
    unsigned greatest = tvm_float_has_infinity(to) ? all - 4 : tvm_float_has_nan(to) ? all - 1 : all;
    reg value = round_to_odd(e, source), bits = bits_of(e, value), small = tvm_new_pred(e),
        code = tvm_new_r(e);
    reg magnitude = word_op(e, "and.b32", bits, 0x7fffffff);
    reg normal = encode_normal(e, to, magnitude), subnormal = encode_subnormal(e, to, magnitude);
    tvm_emit(e, "setp.lt.u32 %s, %s, 0x%x;", small.name, magnitude.name, f32_power(1 - tvm_float_bias(to)));
    reg clamped = word_op(e, "min.u32", select_word(e, subnormal, normal, small), greatest);
    reg sign = word_op(e, "shr.u32", bits, 32 - n);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%x, %s, 0xea;", code.name, sign.name, 1u << (n - 1), clamped.name);
    if (!source.may_be_nan) return code;
    reg nan = is_nan(e, "f32", value), d = tvm_new_r(e);
    tvm_emit(e, "selp.b32 %s, 0x%x, %s, %s;", d.name, all, code.name, nan.name);
    return d;
}

/* Half a unit of the exponent added to the bits carries into it; of subnormals, the least is 2^-127 itself,
 * so that the middle above it is at 3 * 2^21. */
static reg to_e8m0(emitter *e, wide source) {
    reg value = round_to_odd(e, source), bits = bits_of(e, value), small = tvm_new_pred(e),
        positive = tvm_new_r(e), rounded = tvm_new_r(e);
    tvm_emit(e, "max.s32 %s, %s, 0;", positive.name, bits.name);
    tvm_emit(e, "setp.lt.u32 %s, %s, 0x00800000;", small.name, positive.name);
    tvm_emit(e, "selp.b32 %s, 0x00200000, 0x00400000, %s;", rounded.name, small.name);
    tvm_emit(e, "add.u32 %s, %s, %s;", rounded.name, rounded.name, positive.name);
    reg code = word_op(e, "min.u32", word_op(e, "shr.u32", rounded, 23), 254);
    if (!source.may_be_nan) return code;
    reg nan = is_nan(e, "f32", value), d = tvm_new_r(e);
    tvm_emit(e, "selp.b32 %s, 255, %s, %s;", d.name, code.name, nan.name);
    return d;
}

static reg to_float(emitter *e, tvm_dtype to, wide source) {
    if (tvm_dtype_same(to, TVM_E8M0)) return to_e8m0(e, source);
    if (is_lowbit_float(to)) return to_lowbit_float(e, to, source);
    if (to.bits == 64) return to_f64(e, source);
    if (tvm_is_half(to)) return tvm_f32_to_half(e, to, round_to_odd(e, source));
    return to.mantissa == 23 ? to_f32(e, source) : to_tf32(e, source);
}

/* ---- to integers ---- */

/* Clamps a form to the range of an integer type under 32 bits, where the form can be outside. */
static reg clamp_integer(emitter *e, tvm_dtype to, wide_form form, reg value) {
    bool is_signed = to.kind == TVM_KIND_INT;
    const char *name = form_names[form];
    int64_t high = (INT64_C(1) << (is_signed ? to.bits - 1 : to.bits)) - 1, low = is_signed ? -high - 1 : 0;
    reg d = new_of_form(e, form);
    tvm_emit(e, "min.%s %s, %s, %lld;", name, d.name, value.name, (long long)high);
    if (form == FORM_U32 || form == FORM_U64) return d;
    reg both = new_of_form(e, form);
    tvm_emit(e, "max.%s %s, %s, %lld;", name, both.name, d.name, (long long)low);
    return both;
}

static reg low_word(emitter *e, reg value) {
    reg d = tvm_new_r(e);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", d.name, value.name);
    return d;
}

static reg integer_to_integer(emitter *e, tvm_dtype to, wide source, bool saturating) {
    bool source_long = source.form == FORM_S64 || source.form == FORM_U64;
    reg value = saturating ? clamp_integer(e, to, source.form, source.value) : source.value;
    if (source_long == (to.bits == 64)) return value;
    if (source_long) return low_word(e, value);
    reg d = tvm_new_rd(e);
    tvm_emit(e, "cvt.%s.%s %s, %s;", source.form == FORM_S32 ? "s64" : "u64", form_names[source.form], d.name,
             value.name);
    return d;
}

/* cvt to an integer saturates; NaN becomes 0 only from f32 to 32 bits. */
static reg float_to_integer(emitter *e, tvm_dtype to, wide source, bool nearest) {
    bool is_signed = to.kind == TVM_KIND_INT, wide_result = to.bits == 64;
    wide_form form = wide_result ? (is_signed ? FORM_S64 : FORM_U64) : (is_signed ? FORM_S32 : FORM_U32);
    reg value = new_of_form(e, form);
    tvm_emit(e, "cvt.%s.%s.%s %s, %s;", nearest ? "rni" : "rzi", form_names[form], form_names[source.form],
             value.name, source.value.name);
    if (source.may_be_nan && (wide_result || source.form == FORM_F64)) {
        reg nan = is_nan(e, form_names[source.form], source.value), d = new_of_form(e, form);
        tvm_emit(e, "selp.%s %s, 0, %s, %s;", form_suffix(form), d.name, value.name, nan.name);
        value = d;
    }
    return to.bits < 32 ? clamp_integer(e, to, form, value) : value;
}

static reg to_bool(emitter *e, wide source) {
    static const char *const tests[] = {"ne.s32", "ne.u32", "ne.s64", "ne.u64", "neu.f32", "neu.f64"};
    reg predicate = tvm_new_pred(e), d = tvm_new_r(e);
    const char *zero = source.form == FORM_F32   ? "0f00000000"
                       : source.form == FORM_F64 ? "0d0000000000000000"
                                                 : "0";
    tvm_emit(e, "setp.%s %s, %s, %s;", tests[source.form], predicate.name, source.value.name, zero);
    tvm_emit(e, "selp.b32 %s, 1, 0, %s;", d.name, predicate.name);
    return d;
}

/* ---- any type ---- */

reg tvm_convert_loose(emitter *e, tvm_dtype to, tvm_dtype from, reg value, bool lowbit) {
    bool small_integer = tvm_dtype_is_integer(from) && from.bits <= 16;
    wide source;
    if (small_integer && to.kind == TVM_KIND_FLOAT && to.bits <= 32)
        source = (wide){FORM_F32, small_integer_to_f32(e, from, value), false};
    else
        source = widen(e, from, value);
    if (to.kind == TVM_KIND_FLOAT) return to_float(e, to, source);
    if (to.kind == TVM_KIND_BOOL) return to_bool(e, source);
    bool saturating = to.bits < 8 || (to.bits == 8 && lowbit);
    if (source.form == FORM_F32 || source.form == FORM_F64)
        return float_to_integer(e, to, source, saturating);
    return integer_to_integer(e, to, source, saturating);
}

/* A scalar's NaN is the canonical one, where that is not asked: ptxas 13.0 else holds a parameter in a
 * register of its own across a loop of wgmma, for which attention_wide128 has none left. */
static reg canonical_f32(emitter *e, reg value) {
    reg nan = is_nan(e, "f32", value), d = tvm_new_f(e);
    tvm_emit(e, "selp.f32 %s, 0f7FFFFFFF, %s, %s;", d.name, value.name, nan.name);
    return d;
}

reg tvm_emit_convert(emitter *e, tvm_dtype to, tvm_dtype from, reg value, bool lowbit) {
    reg code = tvm_convert_loose(e, to, from, value, lowbit);
    if (tvm_dtype_same(to, TVM_F32) && from.kind == TVM_KIND_FLOAT && tvm_float_has_nan(from))
        return canonical_f32(e, code);
    if (!tvm_dtype_is_integer(to) || to.bits >= 32) return code;
    return word_op(e, "and.b32", code, (1u << to.bits) - 1);
}
