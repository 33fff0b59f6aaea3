/* cast-lowbit of floats of 3 bits of packing `pair` to f16, bf16 and, through f16, f32: PRMT as a table of
 * eight bytes, of which it looks four up at once by the nibbles of a word. The upper bytes of f16 are enough,
 * for no value has more than two bits of mantissa; bf16 takes a second table. One more PRMT a pair puts the
 * bytes together. */
#include "emit_lookup.h"

enum { NIBBLES = 0x77777777 };

typedef struct lookup {
    emitter *e;
    const packed_cast *c;
    tvm_dtype half;
    reg upper[2], lower[2]; /* the tables' words */
    bool has_lower;
} lookup;

/* (a & mask) | b */
static reg insert_bits(emitter *e, reg a, uint32_t mask, reg b) {
    reg d = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x%08x, %s, 0xea;", d.name, a.name, (unsigned)mask, b.name);
    return d;
}

static void make_tables(lookup *l) {
    uint64_t upper = 0, lower = 0;
    for (unsigned code = 0; code < 8; code++) {
        uint64_t half = tvm_cast(l->half, l->c->from, code, true);
        upper |= (half >> 8) << (8 * code);
        lower |= (half & 0xff) << (8 * code);
    }
    for (unsigned i = 0; i < 2; i++) {
        l->upper[i] = tvm_hidden_constant(l->e, (uint32_t)(upper >> (32 * i)));
        if (lower) l->lower[i] = tvm_hidden_constant(l->e, (uint32_t)(lower >> (32 * i)));
    }
    l->has_lower = lower != 0;
}

static reg look_up(emitter *e, const reg table[2], reg nibbles) {
    reg d = tvm_new_r(e);
    tvm_emit(e, "prmt.b32 %s, %s, %s, %s;", d.name, table[0].name, table[1].name, nibbles.name);
    return d;
}

/* Eight elements by the lower three bits of the nibbles of `index`. */
static void convert_eight(lookup *l, element_writer *writer, reg index) {
    emitter *e = l->e;
    for (unsigned four = 0; four < 2; four++) {
        reg nibbles = four ? word_op(e, "shr.u32", index, 16) : index;
        reg upper = look_up(e, l->upper, nibbles), lower = {"0"};
        if (l->has_lower) lower = look_up(e, l->lower, nibbles);
        for (unsigned pair = 0; pair < 2; pair++) {
            reg d = tvm_new_r(e);
            tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%x;", d.name, upper.name, lower.name,
                     pair ? 0x3726u : 0x1504u);
            tvm_write_pair(e, writer, l->c->to.bits == 32 ? &l->half : NULL, d);
        }
    }
}

/* The last eight of the 32 elements of f3 in three words: one bit in each word's nibbles. */
static reg spare_bits(emitter *e, uint32_t slot, uint32_t word) {
    reg low = word_op(e, "and.b32", word_op(e, "shr.u32", tvm_slot_word(e, slot, word), 3), 0x11111111);
    reg middle = insert_bits(e, word_op(e, "shr.u32", tvm_slot_word(e, slot, word + 1), 2), 0x22222222, low);
    return insert_bits(e, word_op(e, "shr.u32", tvm_slot_word(e, slot, word + 2), 1), 0x44444444, middle);
}

const char *tvm_refuse_packed_lookup(const packed_cast *c) {
    bool half = c->to.kind == TVM_KIND_FLOAT && c->to.bits == 16;
    bool small = c->from.kind == TVM_KIND_FLOAT && c->from.bits == 3;
    return small && (half || tvm_dtype_same(c->to, TVM_F32)) ? NULL : "";
}

bool tvm_emit_packed_lookup(emitter *e, const packed_cast *c) {
    lookup l = {.e = e, .c = c, .half = c->to.bits == 16 ? c->to : TVM_F16};
    element_writer writer;
    if (!tvm_write_begin(e, &writer, c->result)) return false;
    make_tables(&l);
    uint32_t words = tvm_tensor_words(c->locals, c->from.bits);
    for (uint32_t i = 0; i < words; i++) {
        reg word = tvm_slot_word(e, c->source, i);
        convert_eight(&l, &writer, word_op(e, "and.b32", word, NIBBLES));
        if (i % 3 == 2) convert_eight(&l, &writer, spare_bits(e, c->source, i - 2));
    }
    tvm_write_end(e, &writer);
    return true;
}
