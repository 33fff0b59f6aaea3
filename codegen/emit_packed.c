/* cast-lowbit of tensors of packing `pair` to pairs of f16 and bf16, and through f16 to f32.
 *
 * The recipe of the packing (isa/packing.h) gives for each pair a view, a word made of those of the block in
 * at most a few instructions that pairs share, in both halves of which the two codes lie at one offset.
 * Integers become f16 in two instructions more: one LOP3 takes the codes out and puts the exponent above
 * them, whose unit in the last place is such that the code counts ones (2^(10 - offset), in bf16 2^(7 -
 * offset)); one addition takes the power off again, together with the bias of a flipped sign bit and with
 * what a following `sub` or `add` of a constant has. */
#include "packed.h"

#include <math.h>
#include <string.h>

#include "scaled.h"

reg tvm_hidden_constant(emitter *e, uint32_t value) {
    reg zero = tvm_pure(e, 'r', "shr.u32 $, %s, 16;", tvm_thread_id(e).name);
    return tvm_pure(e, 'r', "or.b32 $, %s, 0x%x;", zero.name, (unsigned)value);
}

/* ---- views ---- */

typedef struct block_views {
    emitter *e;
    const tvm_pair_recipe *recipe;
    uint32_t slot, block;
    reg view[TVM_PAIR_VIEWS + 8];
    reg moved[2][TVM_PAIR_VIEWS + 8]; /* the latest shift of a view, by purpose */
    int distance[2][TVM_PAIR_VIEWS + 8];
    reg half[2]; /* OFP8: the two bytes of each pair */
    reg upper;   /* scaled and nested: the upper bytes of the halves */
} block_views;

static void block_begin(block_views *v, emitter *e, uint32_t slot, uint32_t block) {
    memset(v, 0, sizeof *v);
    v->e = e;
    v->recipe = tvm_pair_recipe_of(tvm_slot_dtype(e, slot));
    v->slot = slot;
    v->block = block;
}

static reg word_op(emitter *e, const char *op, reg a, uint32_t b) {
    reg d = tvm_new_r(e);
    tvm_emit(e, "%s %s, %s, 0x%x;", op, d.name, a.name, (unsigned)b);
    return d;
}

/* (a & mask) ^ pattern */
static reg take_bits(emitter *e, reg a, uint32_t mask, uint32_t pattern) {
    reg d = tvm_new_r(e);
    if (pattern == 0) return word_op(e, "and.b32", a, mask);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%08x, 0x%08x, 0x6a;", d.name, a.name, (unsigned)mask, (unsigned)pattern);
    return d;
}

static reg view_of(block_views *v, unsigned view) {
    emitter *e = v->e;
    const tvm_pair_recipe *recipe = v->recipe;
    if (view < recipe->words) return tvm_slot_word(e, v->slot, v->block * recipe->words + view);
    if (v->view[view].name[0]) return v->view[view];
    const tvm_pair_view *how = &recipe->view[view - recipe->words];
    reg a = view_of(v, how->a), d = tvm_new_r(e);
    if (how->op == TVM_VIEW_SHIFT) {
        tvm_emit(e, "shr.u32 %s, %s, %u;", d.name, a.name, (unsigned)how->amount);
    } else if (how->op == TVM_VIEW_BYTES) {
        unsigned low = how->amount % 2u, high = 4 + how->amount / 2u;
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%x;", d.name, a.name, view_of(v, how->b).name,
                 low | high << 4 | (low + 2) << 8 | (high + 2) << 12);
    } else {
        tvm_emit(e, "lop3.b32 %s, %s, %s, 0x%08x, 0xe4;", d.name, a.name, view_of(v, how->b).name,
                 how->amount * 0x10001u);
    }
    v->view[view] = d;
    return d;
}

/* A view shifted, to the left when distance > 0: within each half, what the caller keeps of it has stayed
 * inside. */
static reg moved_view(block_views *v, unsigned purpose, unsigned view, int distance) {
    emitter *e = v->e;
    const tvm_pair_recipe *recipe = v->recipe;
    unsigned from = view;
    int whole = distance;
    if (view >= recipe->words && recipe->view[view - recipe->words].op == TVM_VIEW_SHIFT && distance != 0) {
        from = recipe->view[view - recipe->words].a;
        whole -= recipe->view[view - recipe->words].amount;
    }
    if (whole == 0 || distance == 0) return view_of(v, whole == 0 ? from : view);
    if (v->moved[purpose][view].name[0] && v->distance[purpose][view] == distance)
        return v->moved[purpose][view];
    reg d = word_op(e, whole > 0 ? "shl.b32" : "shr.u32", view_of(v, from),
                    (uint32_t)(whole > 0 ? whole : -whole));
    v->moved[purpose][view] = d;
    v->distance[purpose][view] = distance;
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
 * it is the lowest bit of the exponent. */
static reg bytes_to_bf16(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    bool is_signed = c->from.kind == TVM_KIND_INT;
    reg view = view_of(v, v->recipe->field[pair].view);
    reg low = take_bits(e, view, 0x007f007f, 0x43004300);
    if (is_signed) /* -128 or -256 */
        return add_pairs(e, c, low, take_bits(e, view, 0x00800080, 0xc300c300));
    if (c->zero == 128) /* -256 or -128 */
        return add_pairs(e, c, low, take_bits(e, view, 0x00800080, 0xc380c380));
    reg high = take_bits(e, view, 0x00800080, 0x43004300); /* 128 or 256 */
    return add_pairs(e, c, add_pairs(e, c, low, minus_pair(e, c, 256)), high);
}

/* The code, its sign bit flipped, as a subnormal; nested: with those of the byte's other classes above it. */
static reg scaled_integer_pair(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    const tvm_pair_field *field = &v->recipe->field[pair];
    unsigned bits = c->from.bits, class = tvm_weight_class(c->scaled, pair), offset = class * bits;
    uint32_t mask = ((1u << bits) - 1) << offset,
             sign = c->from.kind == TVM_KIND_INT ? 1u << (bits - 1 + offset) : 0;
    if (!c->scaled->nested) {
        reg source = moved_view(v, 0, field->view, (int)offset - field->offset);
        return take_bits(e, source, mask * 0x10001u, sign * 0x10001u);
    }
    if (field->view < v->recipe->words)
        return word_op(e, "and.b32", view_of(v, field->view), (class == 0 ? 0xff : mask) * 0x10001u);
    if (!v->upper.name[0]) {
        v->upper = tvm_new_r(e);
        tvm_emit(e, "prmt.b32 %s, %s, 0, 0x4341;", v->upper.name,
                 view_of(v, v->recipe->view[field->view - v->recipe->words].a).name);
    }
    return class == 0 ? v->upper : word_op(e, "and.b32", v->upper, mask * 0x10001u);
}

static reg integer_pair(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    if (c->scaled) return scaled_integer_pair(v, c, pair);
    const tvm_pair_recipe *recipe = v->recipe;
    unsigned bits = c->from.bits, window = c->to.mantissa, bias = c->to.exponent == 8 ? 127 : 15;
    if (bits > window) return bytes_to_bf16(v, c, pair);
    unsigned shift = window_shift(recipe, pair, bits, window), view = recipe->field[pair].view;
    unsigned offset = recipe->field[pair].offset - shift;
    uint32_t sign = c->from.kind == TVM_KIND_INT ? 1u << (bits - 1) : 0;
    uint32_t magic = (bias + window - offset) << window;
    double value = ldexp(1, (int)(window - offset)) + sign + c->zero;
    reg spliced;
    if (bits == 8 && view >= recipe->words) { /* the upper bytes: one PRMT brings the exponent along */
        reg word = view_of(v, recipe->view[view - recipe->words].a);
        if (sign) word = word_op(e, "xor.b32", word, 0x80808080);
        spliced = tvm_new_r(e);
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x4341;", spliced.name, word.name,
                 tvm_hidden_constant(e, (magic >> 8) * 0x01010101u).name);
    } else {
        reg source = moved_view(v, 0, view, -(int)shift);
        spliced = take_bits(e, source, (((1u << bits) - 1) << offset) * 0x10001u,
                            (magic | sign << offset) * 0x10001u);
    }
    return add_pairs(e, c, spliced, minus_pair(e, c, value));
}

/* ---- floats ---- */

/* Sign, and exponent with mantissa, moved from the view to their places, then multiplied by the power of two
 * between the biases: exact, subnormals included. */
static reg float_pair(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    const tvm_pair_field *field = &v->recipe->field[pair];
    unsigned bits = c->from.bits, left = c->to.mantissa - (unsigned)c->from.mantissa;
    int place = (int)left - field->offset, sign_place = 16 - (int)bits - field->offset;
    int power = tvm_float_bias(c->to) - tvm_float_bias(c->from);
    uint32_t fields = (((1u << (bits - 1)) - 1) << left) * 0x10001u;
    reg placed = moved_view(v, 0, field->view, place), all;
    if (place == sign_place) {
        all = word_op(e, "and.b32", placed, fields | 0x80008000);
    } else {
        reg sign = moved_view(v, 1, field->view, sign_place), masked = word_op(e, "and.b32", placed, fields);
        all = tvm_new_r(e);
        tvm_emit(e, "lop3.b32 %s, %s, 0x80008000, %s, 0xea;", all.name, sign.name, masked.name);
    }
    reg result = all;
    if (power != 0 && !c->scaled) {
        uint32_t factor = (uint32_t)(tvm_float_bias(c->to) + power) << c->to.mantissa;
        reg scale = tvm_constant_word(e, factor * 0x10001u);
        result = tvm_new_r(e);
        if (c->to.exponent == 8)
            tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", result.name, all.name, scale.name,
                     tvm_constant_word(e, 0x80008000).name);
        else
            tvm_emit(e, "mul.rn.f16x2 %s, %s, %s;", result.name, all.name, scale.name);
    }
    if (!tvm_float_pair_needs_mending(c->from, c->to)) return result;
    reg codes = word_op(e, "and.b32", moved_view(v, 1, field->view, -(int)field->offset),
                        ((1u << bits) - 1) * 0x10001u);
    return tvm_mend_float_pair(e, c->from, c->to, codes, result);
}

/* The bytes of OFP8 in a word, the four of two pairs, by the converter of sm_90 (sm_89 has it, too, but in a
 * later version of PTX). */
enum { ARCH_OFP8 = 90 };

static bool has_converter(const emitter *e, const packed_cast *c) {
    return e->target.arch >= ARCH_OFP8 && c->to.exponent == 5 && tvm_float_has_nan(c->from);
}

static reg converted_pair(block_views *v, const packed_cast *c, unsigned pair) {
    emitter *e = v->e;
    if (pair == 0) {
        reg word = view_of(v, 0);
        reg bytes = tvm_new_r(e);
        tvm_emit(e, "prmt.b32 %s, %s, 0, 0x3120;", bytes.name, word.name);
        for (unsigned i = 0; i < 2; i++) v->half[i] = tvm_new_h(e);
        tvm_emit(e, "mov.b32 {%s, %s}, %s;", v->half[0].name, v->half[1].name, bytes.name);
    }
    reg d = tvm_new_r(e);
    tvm_emit(e, "cvt.rn.f16x2.e%um%ux2 %s, %s;", (unsigned)c->from.exponent, (unsigned)c->from.mantissa,
             d.name, v->half[pair].name);
    return d;
}

/* ---- tensors ---- */

static reg convert_pair(block_views *v, const packed_cast *c, unsigned pair) {
    if (has_converter(v->e, c)) return converted_pair(v, c, pair);
    return c->from.kind == TVM_KIND_FLOAT ? float_pair(v, c, pair) : integer_pair(v, c, pair);
}

void tvm_write_pair(emitter *e, element_writer *writer, bool wide, reg pair) {
    if (!wide) {
        tvm_write_word(e, writer, pair);
        return;
    }
    reg half[2] = {tvm_new_h(e), tvm_new_h(e)};
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", half[0].name, half[1].name, pair.name);
    for (unsigned i = 0; i < 2; i++) tvm_write_element(e, writer, tvm_half_to_f32(e, TVM_F16, half[i]));
}

bool tvm_emit_packed_pairs(emitter *e, const packed_cast *c) {
    packed_cast halves = *c;
    bool wide = c->to.bits == 32;
    if (wide) halves.to = TVM_F16;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, c->result)) return false;
    const tvm_pair_recipe *recipe = tvm_pair_recipe_of(c->from);
    for (uint32_t block = 0; block < c->locals / (2u * recipe->pairs); block++) {
        block_views views;
        block_begin(&views, e, c->source, block);
        for (unsigned pair = 0; pair < recipe->pairs; pair++)
            tvm_write_pair(e, &writer, wide, convert_pair(&views, &halves, pair));
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
    if (wide) return "f32 of a float goes element by element";
    return c->from.exponent > c->to.exponent ? "f16 has fewer exponent bits" : NULL;
}

bool tvm_packed_zero_is_exact(tvm_dtype from, tvm_dtype to, double zero) {
    bool half = to.kind == TVM_KIND_FLOAT && to.bits == 16;
    if (!tvm_dtype_is_integer(from) || !half || from.bits > 8 || zero != trunc(zero)) return false;
    if (from.bits > to.mantissa) return zero == 0 || (zero == 128 && from.kind == TVM_KIND_UINT);
    /* Twice the power of two that is spliced on, at most, and half of it: integers that the type has. */
    return fabs(zero) <= ldexp(1, to.mantissa - 1);
}
