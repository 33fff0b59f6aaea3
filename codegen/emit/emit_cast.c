/* cast and cast-lowbit of whole tensors: conversions of two neighbours at a time where the target is f16 or
 * bf16, else one element after the other. */
#include <math.h>
#include <string.h>

#include "cast_move.h"
#include "groups.h"
#include "emit_lookup.h"
#include "emit_packed.h"
#include "linear_pairs.h"
#include "packed_constant.h"

typedef struct cast_work {
    uint32_t source, result, locals;
    tvm_dtype from, to;
    tvm_packing from_packing, to_packing;
    bool lowbit;
    /* What the next instruction subtracts (packed integers) or multiplies by (packed floats), done along with
     * the conversion; 0 and 1 without one. */
    double zero, scale;
    const scaled_weights *scaled; /* the last step is left to mma's sums; or NULL */
} cast_work;

/* ---- no conversion at all ---- */

static const char *refuse_move(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    if (tvm_cast_keeps_bits(w->from, w->to, w->lowbit) && w->from_packing == w->to_packing) return NULL;
    bool integers = tvm_dtype_is_integer(w->from) && tvm_dtype_is_integer(w->to);
    return integers && w->from_packing != w->to_packing ? "another packing" : "";
}

static bool emit_move(emitter *e, void *work) {
    const cast_work *w = work;
    for (uint32_t i = 0; i < tvm_tensor_words(w->locals, w->from.bits); i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, w->result, i).name,
                 tvm_slot_word(e, w->source, i).name);
    return true;
}

/* ---- f32 to pairs ---- */

static const char *refuse_f32_pairs(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    if (!tvm_dtype_same(w->from, TVM_F32) || !tvm_is_half(w->to)) return "";
    return w->locals % 2 ? "an odd number of elements" : NULL;
}

static bool begin(emitter *e, const cast_work *w, element_writer *writer) {
    return tvm_write_begin_apart(e, writer, w->result, w->source != w->result);
}

static bool emit_f32_pairs(emitter *e, void *work) {
    const cast_work *w = work;
    const char *type = w->to.exponent == 5 ? "f16x2" : "bf16x2";
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2) {
        reg pair = tvm_write_place(e, &writer), low = tvm_slot_word(e, w->source, l),
            high = tvm_slot_word(e, w->source, l + 1);
        tvm_emit(e, "cvt.rn.%s.f32 %s, %s, %s;", type, pair.name, high.name, low.name);
        tvm_write_word(e, &writer, pair);
    }
    tvm_write_end(e, &writer);
    return true;
}

/* ---- low-bit codes to pairs ---- */

static const char *refuse_integer_pairs(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    if (!tvm_dtype_is_integer(w->from) || w->from.bits > 8 || !tvm_is_half(w->to)) return "";
    if (w->from_packing != TVM_PACKING_LINEAR) return "";
    return w->to.exponent == 8 && w->from.bits == 8 ? "8 bits do not fit bf16's mantissa" : NULL;
}

/* The code spliced into the mantissa of 2^10 (bf16: 2^7), which is then subtracted; a signed code with its
 * sign bit flipped is 2^(bits-1) too large, which is subtracted as well. Both are exact. */
static bool emit_integer_pairs(emitter *e, void *work) {
    const cast_work *w = work;
    bool bf16 = w->to.exponent == 8;
    uint32_t offset = w->from.kind == TVM_KIND_INT ? 1u << (w->from.bits - 1) : 0;
    uint32_t base = (bf16 ? 0x4300u : 0x6400u) + offset;
    reg one = bf16 ? tvm_constant_word(e, 0x3f803f80) : (reg){""};
    reg minus = tvm_constant_word(e, (base | 0x8000u) * 0x10001u);
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2) {
        reg spliced = tvm_spread_pair(e, w->source, l, base * 0x10001u), pair = tvm_new_r(e);
        if (bf16)
            tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", pair.name, spliced.name, one.name, minus.name);
        else
            tvm_emit(e, "add.rn.f16x2 %s, %s, %s;", pair.name, spliced.name, minus.name);
        tvm_write_word(e, &writer, pair);
    }
    tvm_write_end(e, &writer);
    return true;
}

static const char *refuse_float_pairs(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    if (w->from.kind != TVM_KIND_FLOAT || !tvm_dtype_is_lowbit(w->from) || !tvm_is_half(w->to)) return "";
    if (w->from_packing != TVM_PACKING_LINEAR) return "";
    return w->from.exponent > w->to.exponent ? "f16 has fewer exponent bits" : NULL;
}

static bool emit_float_pairs(emitter *e, void *work) {
    const cast_work *w = work;
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2)
        tvm_write_word(e, &writer, tvm_linear_float_pair(e, w->source, w->to, l));
    tvm_write_end(e, &writer);
    return true;
}

/* ---- scales of 8 bits to pairs ---- */

/* f8_e4m3 and f8_e5m2: the hardware's converter to f16, which takes two bytes. */
static const char *refuse_ofp8_pairs(const emitter *e, const void *work) {
    const cast_work *w = work;
    bool from_ofp8 =
        tvm_dtype_same(w->from, TVM_FLOAT(8, 4, 3)) || tvm_dtype_same(w->from, TVM_FLOAT(8, 5, 2));
    if (!from_ofp8 || !tvm_is_half(w->to) || w->from_packing != TVM_PACKING_LINEAR) return "";
    return tvm_converts_ofp8(e, w->from) ? NULL : "not on this target";
}

/* e8m0: the code where bf16 has the exponent. What is there of 2^-127 is zero, of which the smaller power of
 * two is the maximum, and of NaN infinity, which times zero is NaN. */
static const char *refuse_e8m0_pairs(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    return tvm_dtype_same(w->from, TVM_E8M0) && tvm_is_half(w->to) ? NULL : "";
}

static bool emit_e8m0_pairs(emitter *e, void *work) {
    const cast_work *w = work;
    reg zero = tvm_constant_word(e, 0), least = tvm_constant_word(e, 0x00400040);
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2) {
        reg power = word_op(e, "shl.b32", tvm_spread_pair(e, w->source, l, 0), 7), pair = tvm_new_r(e);
        if (w->to.exponent == 8) { /* f16 has neither */
            reg placed = power;
            power = tvm_new_r(e);
            tvm_emit(e, "max.bf16x2 %s, %s, %s;", power.name, placed.name, least.name);
        }
        tvm_emit(e, "fma.rn.bf16x2 %s, %s, %s, %s;", pair.name, power.name, zero.name, power.name);
        tvm_write_word(e, &writer, w->to.exponent == 8 ? pair : tvm_other_halves(e, TVM_BF16, w->to, pair));
    }
    tvm_write_end(e, &writer);
    return true;
}

/* ---- to f8_e4m3 and f8_e5m2 ---- */

static const char *refuse_ofp8(const emitter *e, const void *work) {
    const cast_work *w = work;
    bool to_ofp8 = tvm_dtype_same(w->to, TVM_FLOAT(8, 4, 3)) || tvm_dtype_same(w->to, TVM_FLOAT(8, 5, 2));
    bool is_wide = tvm_dtype_same(w->from, TVM_F32) || tvm_is_half(w->from);
    if (!to_ofp8 || !is_wide || w->to_packing != TVM_PACKING_LINEAR) return "";
    if (!tvm_target_has(e->k->target, TVM_HAS_CVT_F8)) return "not on this target";
    return w->locals % 4 ? "no whole words" : NULL;
}

/* Two elements in the halves of a .b16. The converter takes pairs of f16, too, but none of bf16. */
static reg ofp8_pair(emitter *e, const cast_work *w, uint32_t local) {
    const char *pair = w->to.exponent == 5 ? "e5m2x2" : "e4m3x2";
    reg f[2], d = tvm_new_h(e);
    if (tvm_dtype_same(w->from, TVM_F16)) {
        tvm_emit(e, "cvt.rn.satfinite.%s.f16x2 %s, %s;", pair, d.name,
                 tvm_slot_word(e, w->source, local / 2).name);
        return d;
    }
    for (uint32_t i = 0; i < 2; i++) {
        f[i] = tvm_read_element(e, w->source, local + i, false);
        if (tvm_is_half(w->from)) f[i] = tvm_half_to_f32(e, w->from, f[i]);
    }
    tvm_emit(e, "cvt.rn.satfinite.%s.f32 %s, %s, %s;", pair, d.name, f[1].name, f[0].name);
    return d;
}

static bool emit_ofp8(emitter *e, void *work) {
    const cast_work *w = work;
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l += 4) {
        reg low = ofp8_pair(e, w, l), high = ofp8_pair(e, w, l + 2);
        tvm_write_word(e, &writer, tvm_pack_pair(e, low, high));
    }
    tvm_write_end(e, &writer);
    return true;
}

/* ---- packing pair ---- */

static packed_cast packed_work(const cast_work *w) {
    return (packed_cast){w->source, w->result, w->locals, w->from, w->to, w->zero, w->scale, w->scaled};
}

static const char *refuse_packed(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    packed_cast c = packed_work(w);
    return w->from_packing == TVM_PACKING_PAIR ? tvm_refuse_packed_pairs(&c) : "";
}

static bool emit_packed(emitter *e, void *work) {
    packed_cast c = packed_work(work);
    return tvm_emit_packed_pairs(e, &c);
}

static const char *refuse_lookup(const emitter *e, const void *work) {
    (void)e;
    const cast_work *w = work;
    packed_cast c = packed_work(w);
    return w->from_packing == TVM_PACKING_PAIR ? tvm_refuse_packed_lookup(&c) : "";
}

static bool emit_lookup(emitter *e, void *work) {
    packed_cast c = packed_work(work);
    return tvm_emit_packed_lookup(e, &c);
}

/* ---- one after the other ---- */

static bool emit_elements(emitter *e, void *work) {
    const cast_work *w = work;
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    bool same = tvm_dtype_same(w->from, w->to) && tvm_dtype_is_lowbit(w->to); /* only another packing */
    bool halves = tvm_is_half(w->from) && w->from_packing == TVM_PACKING_LINEAR;
    bool widened = tvm_is_half(w->from) && tvm_dtype_same(w->to, TVM_F32);
    reg both[2];
    for (uint32_t l = 0; l < w->locals; l++) {
        if (halves && l % 2 == 0) tvm_read_halves(e, w->source, l / 2, both);
        reg value = halves ? both[l % 2] : tvm_read_element(e, w->source, l, false);
        if (widened)
            value = tvm_half_to_f32_in(e, w->from, value, tvm_write_place(e, &writer));
        else if (!same)
            value = tvm_convert_loose(e, w->to, w->from, value, w->lowbit);
        tvm_write_element(e, &writer, value);
    }
    tvm_write_end(e, &writer);
    return !writer.failed;
}

static const candidate candidates[] = {
    {"move", refuse_move, emit_move},
    {"cvt of f32 pairs", refuse_f32_pairs, emit_f32_pairs},
    {"cvt to pairs", refuse_ofp8, emit_ofp8},
    {"packed lookup", refuse_lookup, emit_lookup},
    {"packed pairs", refuse_packed, emit_packed},
    {"spliced pairs", refuse_integer_pairs, emit_integer_pairs},
    {"cvt of f8 pairs", refuse_ofp8_pairs, emit_float_pairs},
    {"powers in pairs", refuse_e8m0_pairs, emit_e8m0_pairs},
    {"scaled pairs", refuse_float_pairs, emit_float_pairs},
    {"single elements", NULL, emit_elements},
};

tvm_status tvm_emit_CAST(emitter *e, const tvm_insn *insn) {
    char from[TVM_DTYPE_NAME_MAX], to[TVM_DTYPE_NAME_MAX], detail[2 * TVM_DTYPE_NAME_MAX + 16];
    cast_work work = {
        .source = tvm_operands(e->k->kernel, insn)[0].value, .result = insn->result, .scale = 1};
    work.from = tvm_slot_dtype(e->k, work.source);
    work.to = tvm_slot_dtype(e->k, work.result);
    work.from_packing = tvm_slot_packing(e->k, work.source);
    work.to_packing = tvm_slot_packing(e->k, work.result);
    work.locals = tvm_layout_locals(tvm_slot_layout(e->k, work.source));
    work.lowbit = tvm_insn_has(insn, TVM_TRAIT_LOWBIT);
    snprintf(detail, sizeof detail, "%s to %s", tvm_dtype_name(work.from, from), tvm_dtype_name(work.to, to));
    const tvm_insn *next = tvm_group_next(e->k, insn), *last = next ? next : insn;
    if (next) tvm_packed_constant(e->k, insn, next, &work.zero, &work.scale);
    work.result = last->result;
    if (e->k->slots[last->result].scaled.is_scaled && work.from_packing == TVM_PACKING_PAIR) {
        work.scaled = &e->k->slots[last->result].scaled;
        if (work.from.kind == TVM_KIND_FLOAT) work.scale *= ldexp(1, -tvm_pair_exponent(work.from));
        snprintf(detail + strlen(detail), sizeof detail - strlen(detail), ", scaled");
    }
    return tvm_select_candidate(e, candidates, sizeof candidates / sizeof candidates[0], &work, detail);
}
