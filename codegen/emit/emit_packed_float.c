/* cast-lowbit of floats of 4 to 8 bits of packing `pair` to pairs of f16 and bf16.
 *
 * The recipe (isa/packing.h) gives a view in which sign, exponent and mantissa stand where f16 or bf16 has
 * them: one AND takes the pair out. What it leaves is the value times the power of two between the biases,
 * subnormals included, so that one exact multiplication finishes it; a multiplication by a constant that
 * follows is part of that one, and where the product of both is 1 there is none. Floats in bytes are unpacked
 * by the converter of f8_e4m3, whose exponent is as wide as theirs or wider. */
#include "emit_packed_float.h"

enum { SIGNS = 0x80008000, F16_INFINITIES = 0x7c007c00 };

/* ---- infinities and NaN ---- */

/* Per half: bit 7 of (magnitude + addend), which tells magnitudes of at least 128 - addend. */
static reg at_least(emitter *e, reg magnitude, uint32_t addend) {
    return word_op(e, "and.b32", word_op(e, "add.u32", magnitude, addend * 0x10001u), 0x00800080);
}

reg tvm_mend_float_pair(emitter *e, tvm_dtype from, tvm_dtype to, reg codes, reg pair) {
    bool infinity = tvm_float_has_infinity(from), bf16 = to.exponent == 8;
    if (!tvm_float_pair_needs_mending(from, to)) return pair;
    if (!tvm_float_has_nan(from)) {
        /* 2^16 * 1.5 overflows to infinity, not to the NaN that its mantissa bit makes */
        reg carry = word_op(e, "add.u32", word_op(e, "and.b32", codes, 0x003f003f), 0x00010001);
        reg bit = word_op(e, "and.b32", word_op(e, "shl.b32", carry, 3), 0x02000200), d = tvm_new_r(e);
        tvm_emit(e, "lop3.b32 %s, %s, %s, 0, 0x30;", d.name, pair.name, bit.name);
        return d;
    }
    reg magnitude = word_op(e, "and.b32", codes, 0x007f007f);
    if (infinity && bf16) {
        reg special = at_least(e, magnitude, 4), field = tvm_new_r(e), d = tvm_new_r(e);
        tvm_emit(e, "sub.u32 %s, %s, %s;", field.name, word_op(e, "shl.b32", special, 8).name, special.name);
        tvm_emit(e, "or.b32 %s, %s, %s;", d.name, pair.name, field.name);
        pair = d;
    }
    reg nan = at_least(e, magnitude, infinity ? 3 : 1), sign = word_op(e, "shl.b32", nan, 8);
    reg unit = word_op(e, "shr.u32", nan, 7), field = tvm_new_r(e), d = tvm_new_r(e);
    tvm_emit(e, "sub.u32 %s, %s, %s;", field.name, sign.name, unit.name);
    tvm_emit(e, "lop3.b32 %s, %s, %s, %s, 0x54;", d.name, pair.name, field.name, sign.name);
    return d;
}

bool tvm_float_nan_carries(tvm_dtype from, tvm_dtype to) {
    return tvm_float_has_nan(from) && !tvm_float_has_infinity(from) && to.exponent == from.exponent + 1;
}

reg tvm_carry_float_nan(emitter *e, tvm_dtype from, reg placed, unsigned low) {
    uint32_t above = (1u << (low + from.bits - 1)) * 0x10001u;
    reg carried = word_op(e, "add.u32", placed, (1u << low) * 0x10001u), d = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%08x, %s, 0xea;", d.name, carried.name, (unsigned)above, placed.name);
    return d;
}

/* ---- the factor ---- */

static reg multiply_by(emitter *e, tvm_dtype type, reg pair, double factor) {
    if (factor == 1) return pair;
    reg by = tvm_constant_word(e, (uint32_t)tvm_encode(type, factor) * 0x10001u), d = tvm_new_r(e);
    if (type.exponent == 8)
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", d.name, pair.name, by.name,
                 tvm_constant_word(e, SIGNS).name);
    else
        tvm_emit(e, "mul.rn.f16x2 %s, %s, %s;", d.name, pair.name, by.name);
    return d;
}

static reg multiply(emitter *e, const packed_cast *c, reg pair) {
    packed_factors f = tvm_packed_factors(e->k, c->from, c->to, c->scale);
    return multiply_by(e, c->to, multiply_by(e, c->to, pair, f.first), f.last);
}

/* The bits of exponent and mantissa when their lowest is bit `low` of each half. */
static uint32_t field_mask(tvm_dtype type, unsigned low) {
    return (((1u << (type.bits - 1)) - 1) << low) * 0x10001u;
}

reg tvm_place_float_fields(emitter *e, tvm_dtype type, reg view, unsigned from, unsigned to) {
    if (from == to) return word_op(e, "and.b32", view, field_mask(type, to) | SIGNS);
    bool up = from < to;
    reg moved = word_op(e, up ? "shl.b32" : "shr.u32", view, up ? to - from : from - to), d = tvm_new_r(e);
    reg masked = word_op(e, "and.b32", moved, field_mask(type, to));
    tvm_emit(e, "lop3.b32 %s, %s, 0x%x, %s, 0xea;", d.name, view.name, (unsigned)SIGNS, masked.name);
    return d;
}

/* ---- in halves ---- */

static reg halves_pair(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    const tvm_pair_field *field = &v->recipe->field[pair];
    unsigned low = tvm_pair_low(c->from),
             left = tvm_packed_in_place(c->from, c->to) ? low : (unsigned)(c->to.mantissa - c->from.mantissa);
    reg view = tvm_moved_view(v, 0, field->view, (int)field->offset);
    reg placed = tvm_place_float_fields(e, c->from, view, low, left), d;
    if (!tvm_float_pair_needs_mending(c->from, c->to)) return multiply(e, c, placed);
    if (!tvm_target_has(e->k->target, TVM_HAS_MIN_XORSIGN)) {
        reg codes = word_op(e, "shr.u32", placed, left);
        return tvm_mend_float_pair(e, c->from, c->to, codes, placed);
    }
    /* f7_e5m1's 1.5 * 2^16 is NaN as f16: the smaller of that and infinity is infinity. */
    d = tvm_new_r(e);
    tvm_emit(e, "min.xorsign.abs.f16x2 %s, %s, %s;", d.name, placed.name,
             tvm_constant_word(e, F16_INFINITIES).name);
    return d;
}

/* ---- in bytes ---- */

static reg converted_pair(block_views *v, const packed_cast *c, const tvm_pair_field *field) {
    emitter *e = v->e;
    bool e5 = c->from.exponent == 5;
    if (field->offset) {
        reg bytes = tvm_block_view(v, field->view);
        uint32_t mask = 0x80 | ((1u << (c->from.bits - 1)) - 1) << ((e5 ? 2u : 3u) - c->from.mantissa);
        if (mask != 0xff) bytes = word_op(e, "and.b32", bytes, mask * 0x01010101u);
        for (unsigned i = 0; i < 2; i++) v->half[i] = tvm_new_h(e);
        tvm_emit(e, "mov.b32 {%s, %s}, %s;", v->half[0].name, v->half[1].name, bytes.name);
    }
    reg d = tvm_new_r(e);
    tvm_emit(e, "cvt.rn.f16x2.%sx2 %s, %s;", e5 ? "e5m2" : "e4m3", d.name,
             v->half[field->offset ? 0 : 1].name);
    return multiply(e, c, d);
}

/* Without a converter: the bytes to the upper ones of halves. */
static reg bytes_pair(block_views *v, const packed_cast *c, const tvm_pair_field *field) {
    emitter *e = v->e;
    reg view = tvm_block_view(v, field->view), halves = tvm_new_r(e), codes = halves;
    unsigned low = (c->from.exponent == 5 ? 10u : 11u) - c->from.mantissa,
             left = (unsigned)(c->to.mantissa - c->from.mantissa);
    tvm_emit(e, "prmt.b32 %s, %s, 0, 0x%x;", halves.name, view.name, field->offset ? 0x1404u : 0x3424u);
    reg placed = tvm_place_float_fields(e, c->from, halves, low, left);
    if (tvm_float_nan_carries(c->from, c->to))
        return multiply(e, c, tvm_carry_float_nan(e, c->from, placed, left));
    reg d = multiply(e, c, placed);
    if (tvm_float_pair_needs_mending(c->from, c->to)) codes = word_op(e, "shr.u32", halves, 8);
    return tvm_mend_float_pair(e, c->from, c->to, codes, d);
}

reg tvm_float_pair(block_views *v, const packed_cast *c, unsigned pair) {
    const tvm_pair_field *field = &v->recipe->field[pair];
    if (tvm_packed_converts(v->e->k, c->from, c->to)) return converted_pair(v, c, field);
    return tvm_pair_form_of(c->from) == TVM_FORM_HALVES ? halves_pair(v, c, pair) : bytes_pair(v, c, field);
}
