/* cast-lowbit of integers of packing `pair` to pairs of f16 and bf16, and through f16 to f32.
 *
 * The recipe of the packing (isa/packing.h) gives for each pair a view, a word made of those of the block in
 * at most a few instructions that pairs share, in both halves of which the two codes lie at one offset.
 * Integers become f16 in two instructions more: one LOP3 takes the codes out and puts the exponent above
 * them, whose unit in the last place is such that the code counts ones (2^(10 - offset), in bf16 2^(7 -
 * offset)); one addition takes the power off again, together with the bias of signed codes and with what a
 * following `sub` or `add` of a constant has.
 *
 * The upper bytes of the halves need no view: one PRMT puts them below the exponent of 1024, and the codes in
 * them are differences of what is left when lower ones are masked off. */
#include "emit_packed.h"

#include <math.h>

#include "emit_packed_float.h"
#include "scaled.h"

/* (a & mask) ^ pattern */
static reg take_bits(emitter *e, reg a, uint32_t mask, uint32_t pattern) {
    reg d = tvm_new_r(e);
    if (pattern == 0) return word_op(e, "and.b32", a, mask);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%08x, 0x%08x, 0x6a;", d.name, a.name, (unsigned)mask, (unsigned)pattern);
    return d;
}

/* ---- integers ---- */

/* The shift that brings a field into a window of `window` bits, the same for as many fields of a view as
 * possible. */
static unsigned window_shift(const tvm_pair_recipe *recipe, unsigned pair, unsigned bits, unsigned window) {
    unsigned shift = 0;
    for (unsigned p = 0; p <= pair; p++)
        if (recipe->field[p].view == recipe->field[pair].view &&
            recipe->field[p].offset - shift + bits > window)
            shift = recipe->field[p].offset;
    return shift;
}

/* The constant pair -value; value is exact in the type. */
static reg minus_pair(emitter *e, const packed_cast *c, double value) {
    return tvm_constant_word(e, (uint32_t)tvm_encode(c->to, -value) * 0x10001u);
}

static reg add_pairs(emitter *e, const packed_cast *c, reg a, reg b) {
    reg d = tvm_new_r(e);
    if (c->to.exponent == 8)
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", d.name, a.name, tvm_constant_word(e, 0x3f803f80).name,
                 b.name);
    else
        tvm_emit(e, "add.rn.f16x2 %s, %s, %s;", d.name, a.name, b.name);
    return d;
}

/* Bytes to bf16, whose mantissa has 7 bits: 2^7 and the lower bits, plus a power of two that bit 7 doubles:
 * it is the lowest bit of the exponent. `zero` is 0 or 128. */
static reg bytes_to_bf16(block_views *v, const packed_cast *c, unsigned pair, double zero) {
    emitter *e = v->e;
    reg view = tvm_block_view(v, v->recipe->field[pair].view);
    reg low = take_bits(e, view, 0x007f007f, 0x43004300);
    if (zero == 128) /* -256 or -128 */
        return add_pairs(e, c, low, take_bits(e, view, 0x00800080, 0xc380c380));
    reg high = take_bits(e, view, 0x00800080, 0x43004300); /* 128 or 256 */
    return add_pairs(e, c, add_pairs(e, c, low, minus_pair(e, c, 256)), high);
}

/* The code under the mask, or what it lacks: with one constant, which a LOP3 has room for; take_bits has two.
 */
static reg take_code(emitter *e, const packed_cast *c, reg view, uint32_t mask) {
    if (!c->scaled->lacking) return word_op(e, "and.b32", view, mask);
    reg d = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%x, 0, 0x0c;", d.name, view.name, (unsigned)mask);
    return d;
}

/* The code as a subnormal; nested: with those of the byte's other classes above it. */
static reg scaled_field(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    const tvm_pair_field *field = &v->recipe->field[pair];
    unsigned bits = c->from.bits, class = tvm_weight_class(c->scaled, pair), offset = class * bits;
    uint32_t mask = ((1u << bits) - 1) << offset;
    if (!c->scaled->nested)
        return take_code(e, c, tvm_moved_view(v, 0, field->view, (int)offset - field->offset),
                         mask * 0x10001u);
    if (field->view == 0)
        return word_op(e, "and.b32", tvm_block_view(v, 0), (class == 0 ? 0xff : mask) * 0x10001u);
    if (!v->upper.name[0]) {
        v->upper = tvm_new_r(e);
        tvm_emit(e, "prmt.b32 %s, %s, 0, 0x4341;", v->upper.name, tvm_block_view(v, 0).name);
    }
    return class == 0 ? v->upper : word_op(e, "and.b32", v->upper, mask * 0x10001u);
}

static reg scaled_integer_pair(block_views *v, const packed_cast *c, unsigned pair) {
    reg field = scaled_field(v, c, pair);
    if (c->scaled->subtracted == 0) return field;
    unsigned bits = c->from.bits, class = tvm_weight_class(c->scaled, pair);
    /* the whole byte has as many zero points as classes */
    double in_place = ldexp(c->scaled->subtracted, (int)(class * bits));
    if (c->scaled->nested && class == 0) in_place *= 255 / ((1 << bits) - 1);
    return add_pairs(v->e, c, field, minus_pair(v->e, c, ldexp(in_place, -24)));
}

/* The codes of the upper bytes to f16. With u the byte's codes c0 + c1 2^w + ..., V = 1024 + u, and R(i) =
 * 1024 + u without its first i codes, in place of which stands `zero` in each: c(i) - zero = (R(i) - R(i +
 * 1)) / 2^(wi), where R(0) is V, and of the last R(i + 1) a constant. The division is one by the exponent
 * that R(i
 * + 1) is made with, and a power of two in the multiplication of R(i), which has that of its own. */
static reg upper_byte_pair(block_views *v, const packed_cast *c, unsigned pair, unsigned zero) {
    emitter *e = v->e;
    unsigned bits = c->from.bits, offset = v->recipe->field[pair].offset, i = offset / bits,
             above = offset + bits;
    if (i == 0) {
        v->byte = v->rest = tvm_new_r(e);
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x4341;", v->byte.name, tvm_block_view(v, 0).name,
                 tvm_hidden_constant(e, 0x64646464).name);
    }
    uint32_t taken = 0;
    for (unsigned j = 0; j <= i; j++) taken |= zero << (bits * j);
    reg minuend = v->rest, rest, d = tvm_new_r(e);
    uint32_t exponent = 0x6400 - (offset << 10);
    if (above == 8) {
        rest = tvm_constant_word(e, (0x8000 | exponent | taken) * 0x10001u);
    } else {
        rest = take_bits(e, v->byte, (0xff00 | (0xffu << above & 0xff)) * 0x10001u,
                         (0x8000 | (0x6400 ^ exponent) | taken) * 0x10001u);
        v->rest = rest;
    }
    if (i == 0) return add_pairs(e, c, minuend, rest);
    /* R(i) is there times -2^(-w(i-1)). */
    reg factor = tvm_constant_word(e, (0x8000 | (0x3c00 - (bits << 10))) * 0x10001u);
    tvm_emit(e, "fma.rn.f16x2 %s, %s, %s, %s;", d.name, minuend.name, factor.name, rest.name);
    return d;
}

static bool in_upper_byte(const block_views *v, const packed_cast *c, unsigned pair, double zero) {
    unsigned bits = c->from.bits;
    return c->to.exponent == 5 && v->recipe->words == 1 && v->recipe->field[pair].view == 1 && zero >= 0 &&
           zero < 1u << bits;
}

static reg integer_pair(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    if (c->scaled) return scaled_integer_pair(v, c, pair);
    const tvm_pair_recipe *recipe = v->recipe;
    unsigned bits = c->from.bits, window = c->to.mantissa, bias = c->to.exponent == 8 ? 127 : 15;
    double zero = c->zero + tvm_packing_complement(TVM_PACKING_PAIR, c->from);
    if (bits > window) return bytes_to_bf16(v, c, pair, zero);
    if (in_upper_byte(v, c, pair, zero)) return upper_byte_pair(v, c, pair, (unsigned)zero);
    unsigned shift = window_shift(recipe, pair, bits, window), view = recipe->field[pair].view;
    unsigned offset = recipe->field[pair].offset - shift;
    uint32_t magic = (bias + window - offset) << window;
    reg source = tvm_moved_view(v, 0, view, -(int)shift);
    reg spliced = take_bits(e, source, (((1u << bits) - 1) << offset) * 0x10001u, magic * 0x10001u);
    return add_pairs(e, c, spliced, minus_pair(e, c, ldexp(1, (int)(window - offset)) + zero));
}

/* ---- tensors ---- */

static reg convert_pair(block_views *v, const packed_cast *c, unsigned pair) {
    return c->from.kind == TVM_KIND_FLOAT ? tvm_float_pair(v, c, pair) : integer_pair(v, c, pair);
}

bool tvm_emit_packed_pairs(emitter *e, const packed_cast *c) {
    packed_cast halves = *c;
    bool wide = c->to.bits == 32;
    if (wide) halves.to = tvm_pair_target(c->from);
    element_writer writer;
    if (!tvm_write_begin(e, &writer, c->result)) return false;
    const tvm_pair_recipe *recipe = tvm_pair_recipe_of(c->from);
    for (uint32_t block = 0; block < c->locals / (2u * recipe->pairs); block++) {
        block_views views;
        tvm_block_begin(&views, e, c->source, block);
        for (unsigned pair = 0; pair < recipe->pairs; pair++)
            tvm_write_pair(e, &writer, wide ? &halves.to : NULL, convert_pair(&views, &halves, pair));
    }
    tvm_write_end(e, &writer);
    return true;
}

const char *tvm_refuse_packed_pairs(const packed_cast *c) {
    bool integer = tvm_dtype_is_integer(c->from);
    bool half = c->to.kind == TVM_KIND_FLOAT && c->to.bits == 16, wide = tvm_dtype_same(c->to, TVM_F32);
    if (!half && !wide) return "";
    if (integer) return NULL;
    if (tvm_pair_recipe_of(c->from) == NULL) return "";
    if (wide) return tvm_float_has_nan(c->from) ? "a NaN is made that of f32" : NULL;
    return c->from.exponent > c->to.exponent ? "f16 has fewer exponent bits" : NULL;
}
