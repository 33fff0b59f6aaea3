/* Pairs of neighbours of packing `linear`: their codes in the halves of a word, and floats as f16 or bf16. */
#include "linear_pairs.h"

#include "compute.h"
#include "emit_packed_float.h"
#include "target.h"

/* ---- codes ---- */

/* Two neighbouring codes, from bit `bit` of the slot on, at the low end of a register whose upper bits are
 * anything. A second code past the tensor's end is anything, too. */
static reg neighbours(emitter *e, uint32_t slot, uint32_t bit) {
    unsigned bits = tvm_slot_dtype(e->k, slot).bits;
    uint32_t word = bit / 32, shift = bit % 32;
    uint32_t words = tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e->k, slot)), bits);
    reg low = tvm_slot_word(e, slot, word);
    if (shift == 0) return low;
    reg d = tvm_new_r(e);
    if (shift + 2 * bits > 32 && word + 1 < words)
        tvm_emit(e, "shf.r.wrap.b32 %s, %s, %s, %u;", d.name, low.name, tvm_slot_word(e, slot, word + 1).name,
                 (unsigned)shift);
    else
        tvm_emit(e, "shr.u32 %s, %s, %u;", d.name, low.name, (unsigned)shift);
    return d;
}

reg tvm_spread_pair(emitter *e, uint32_t slot, uint32_t l, uint32_t pattern) {
    unsigned bits = tvm_slot_dtype(e->k, slot).bits;
    reg d = tvm_new_r(e);
    if (bits == 8) {
        unsigned at = l % 4; /* byte 4 of the pair (word, upper) is the pattern's upper byte */
        tvm_emit(e, "prmt.b32 %s, %s, 0x%x, 0x4%u4%u;", d.name, tvm_slot_word(e, slot, l / 4).name,
                 (unsigned)(pattern >> 8 & 0xff), at + 1, at);
        return pattern & 0xff ? word_op(e, "xor.b32", d, pattern & 0x00ff00ff) : d;
    }
    reg two = neighbours(e, slot, l * bits), first = tvm_new_r(e), moved = tvm_new_r(e);
    uint32_t mask = (1u << bits) - 1;
    tvm_emit(e, "lop3.b32 %s, %s, 0x%x, 0x%08x, 0x6a;", first.name, two.name, (unsigned)mask,
             (unsigned)pattern);
    tvm_emit(e, "shl.b32 %s, %s, %u;", moved.name, two.name, 16 - bits);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%08x, %s, 0x6a;", d.name, moved.name, (unsigned)(mask << 16), first.name);
    return d;
}

/* ---- by the converter ---- */

reg tvm_other_halves(emitter *e, tvm_dtype from, tvm_dtype to, reg pair) {
    reg halves[2], wide[2], d = tvm_new_r(e);
    for (unsigned i = 0; i < 2; i++) halves[i] = tvm_new_h(e);
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", halves[0].name, halves[1].name, pair.name);
    for (unsigned i = 0; i < 2; i++) wide[i] = tvm_half_to_f32(e, from, halves[i]);
    tvm_emit(e, "cvt.rn.%s.f32 %s, %s, %s;", to.exponent == 5 ? "f16x2" : "bf16x2", d.name, wide[1].name,
             wide[0].name);
    return d;
}

bool tvm_converts_ofp8(const emitter *e, tvm_dtype from) {
    bool is_ofp8 = tvm_dtype_same(from, TVM_FLOAT(8, 4, 3)) || tvm_dtype_same(from, TVM_FLOAT(8, 5, 2));
    return is_ofp8 && tvm_target_has(e->k->target, TVM_HAS_CVT_F8);
}

static reg converted_pair(emitter *e, uint32_t slot, tvm_dtype from, tvm_dtype to, uint32_t l) {
    reg both[2], pair = tvm_new_r(e);
    tvm_read_halves(e, slot, l / 4, both);
    tvm_emit(e, "cvt.rn.f16x2.%sx2 %s, %s;", from.exponent == 5 ? "e5m2" : "e4m3", pair.name,
             both[l / 2 % 2].name);
    return to.exponent == 5 ? pair : tvm_other_halves(e, TVM_F16, to, pair);
}

/* ---- by fields ---- */

/* Sign, and exponent with mantissa, moved from the low end to their places in each half. */
static reg place_fields(emitter *e, tvm_dtype from, tvm_dtype to, reg codes) {
    unsigned fields = from.bits - 1u, left = to.mantissa - (unsigned)from.mantissa;
    unsigned sign_left = 16u - from.bits;
    if (left == sign_left) return word_op(e, "shl.b32", codes, left);
    reg placed = word_op(e, "shl.b32", codes, left), sign = word_op(e, "shl.b32", codes, sign_left);
    reg masked = word_op(e, "and.b32", placed, (((1u << fields) - 1) << left) * 0x10001u), d = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x80008000, %s, 0xea;", d.name, sign.name, masked.name);
    return d;
}

/* The fields in place are the value but for the bias: one exact multiplication, subnormals included. */
static reg scaled_pair(emitter *e, tvm_dtype from, tvm_dtype to, reg placed) {
    bool bf16 = to.exponent == 8;
    int power = tvm_float_bias(to) - tvm_float_bias(from);
    uint32_t factor = (uint32_t)(tvm_float_bias(to) + power) << to.mantissa;
    if (power == 0) return placed;
    reg scale = tvm_constant_word(e, factor * 0x10001u), pair = tvm_new_r(e);
    if (bf16)
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", pair.name, placed.name, scale.name,
                 tvm_constant_word(e, 0x80008000).name);
    else
        tvm_emit(e, "mul.rn.f16x2 %s, %s, %s;", pair.name, placed.name, scale.name);
    return pair;
}

/* Bytes go to the upper ones of halves, where signs are in place. */
static reg bytes_pair(emitter *e, uint32_t slot, tvm_dtype from, tvm_dtype to, uint32_t l) {
    unsigned at = l % 4, left = to.mantissa - (unsigned)from.mantissa;
    reg halves = tvm_new_r(e);
    tvm_emit(e, "prmt.b32 %s, %s, 0, 0x%u4%u4;", halves.name, tvm_slot_word(e, slot, l / 4).name, at + 1, at);
    reg placed = left == 8 ? halves : tvm_place_float_fields(e, from, halves, 8, left);
    if (tvm_float_nan_carries(from, to))
        return scaled_pair(e, from, to, tvm_carry_float_nan(e, from, placed, left));
    reg pair = scaled_pair(e, from, to, placed);
    if (!tvm_float_pair_needs_mending(from, to)) return pair;
    return tvm_mend_float_pair(e, from, to, word_op(e, "shr.u32", halves, 8), pair);
}

reg tvm_linear_float_pair(emitter *e, uint32_t slot, tvm_dtype to, uint32_t l) {
    tvm_dtype from = tvm_slot_dtype(e->k, slot);
    if (tvm_converts_ofp8(e, from)) return converted_pair(e, slot, from, to, l);
    if (from.bits == 8) return bytes_pair(e, slot, from, to, l);
    reg codes = tvm_spread_pair(e, slot, l, 0), placed = place_fields(e, from, to, codes);
    return tvm_mend_float_pair(e, from, to, codes, scaled_pair(e, from, to, placed));
}
