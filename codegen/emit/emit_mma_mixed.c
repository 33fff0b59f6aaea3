/* mma.sync of kind f8f6f4, and those with block scales (PTX ISA, "Multiply-and-Accumulate Instruction: mma"
 * and "Block Scaling for mma.sync"). kind::f8f6f4 and kind::mxf8f6f4 take each element in a byte: 6 bits in
 * the lower bits, 4 bits in bits 2 to 5. A tensor has its elements side by side, so that they are spread over
 * bytes first, a fragment when it is first needed; of a tile of bytes ldmatrix spreads them, 4 bits to the
 * lower ones (ldmatrix.h). kind::mxf4 and kind::mxf4nvf4 take two elements of 4 bits
 * a byte, which is how a tensor has them.
 *
 * The scales of a fragment are one, two or four bytes of a word of their tensor (the layouts mma.scale_vec1,
 * 2 and 4), which byte-id names. */
#include "emit_mma_mixed.h"

#include <stdlib.h>

#include "compute.h"
#include "mma_text.h"

enum { TEXT = TVM_MMA_TEXT, FRAGMENT = 4 };

/* An operand's fragments as words of the instruction: `count` for each, made when first asked for. */
typedef struct operand {
    uint32_t slot;
    unsigned count;
    bool spread;    /* over bytes */
    unsigned shift; /* of elements that lie in bytes: how far they are below their place */
    reg *words;     /* name[0] == 0: not made */
} operand;

typedef struct mixed {
    emitter *e;
    const mma_operands *o;
    operand a, b;
    reg *scale_a, *scale_b; /* words of the scales */
    char name[TEXT];        /* the instruction */
} mixed;

bool tvm_mma_mixed_fits(const emitter *e, const mma_operands *o) {
    return tvm_target_has(e->k->target, o->mma.scaling ? TVM_HAS_MMA_BLOCK_SCALE : TVM_HAS_MMA_F8F6F4);
}

/* ---- elements in bytes ---- */

/* So many bits of the tensor's words from bit `from` on, which may lie in two words. */
static reg read_bits(emitter *e, uint32_t slot, uint32_t from, unsigned count) {
    uint32_t word = from / 32, shift = from % 32;
    reg low = tvm_slot_word(e, slot, word), out = low;
    if (shift + count > 32) {
        out = tvm_new_r(e);
        tvm_emit(e, "shf.r.wrap.b32 %s, %s, %s, %u;", out.name, low.name,
                 tvm_slot_word(e, slot, word + 1).name, shift);
    } else if (shift != 0) {
        out = tvm_new_r(e);
        tvm_emit(e, "shr.u32 %s, %s, %u;", out.name, low.name, shift);
    }
    return out;
}

/* Four elements of 6 bits: pairs go to halves of the word, then each to its byte. */
static reg spread_6(emitter *e, reg from) {
    reg high = word_op(e, "shl.b32", from, 4), halves = word_op(e, "and.b32", from, 0xfff),
        all = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x0fff0000, %s, 0xea;", all.name, high.name, halves.name);
    reg odd = word_op(e, "shl.b32", all, 2), even = word_op(e, "and.b32", all, 0x003f003f),
        out = tvm_new_r(e);
    tvm_emit(e, "lop3.b32 %s, %s, 0x3f003f00, %s, 0xea;", out.name, odd.name, even.name);
    return out;
}

/* Four elements of 4 bits: bytes of two go to the halves, then each to bits 2 to 5 of its byte. */
static reg spread_4(emitter *e, reg from) {
    reg halves = tvm_new_r(e), out = tvm_new_r(e);
    tvm_emit(e, "prmt.b32 %s, %s, 0, 0x4140;", halves.name, from.name);
    reg odd = word_op(e, "shl.b32", halves, 6), even = word_op(e, "shl.b32", halves, 2);
    reg low = word_op(e, "and.b32", even, 0x003c003c);
    tvm_emit(e, "lop3.b32 %s, %s, 0x3c003c00, %s, 0xea;", out.name, odd.name, low.name);
    return out;
}

static reg word_of(emitter *e, operand *from, uint32_t tile, unsigned i) {
    uint32_t at = tile * from->count + i;
    reg *word = &from->words[at];
    if (word->name[0]) return *word;
    unsigned bits = tvm_slot_dtype(e->k, from->slot).bits;
    if (!from->spread || bits == 8)
        *word = tvm_slot_word(e, from->slot, at);
    else if (bits == 6)
        *word = spread_6(e, read_bits(e, from->slot, 24 * at, 24));
    else
        *word = spread_4(e, read_bits(e, from->slot, 16 * at, 16));
    if (from->shift > 0) *word = word_op(e, "shl.b32", *word, from->shift);
    return *word;
}

/* ---- instructions ---- */

static void name_instruction(mixed *x) {
    const tvm_mma *mma = &x->o->mma;
    const char *a = tvm_mma_type_name(mma->types->a), *b = tvm_mma_type_name(mma->types->b),
               *c = tvm_mma_type_name(mma->types->c);
    if (!mma->scaling) {
        snprintf(x->name, TEXT, "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.%s.%s.%s.%s", c, a, b, c);
        return;
    }
    bool packed = mma->atoms->k == 64, is_e8m0 = mma->scaling->type.exponent == 8;
    snprintf(x->name, TEXT,
             "mma.sync.aligned.m16n8k%u.row.col.kind::%s.block_scale.scale_vec::%uX.f32.%s.%s.f32.%s",
             mma->atoms->k,
             !packed   ? "mxf8f6f4"
             : is_e8m0 ? "mxf4"
                       : "mxf4nvf4",
             mma->scaling->scales->k, a, b, is_e8m0 ? "ue8m0" : "ue4m3");
}

static const char *fragment(mixed *x, operand *from, uint32_t tile, char text[TEXT]) {
    size_t used = 0;
    reg words[FRAGMENT];
    for (unsigned i = 0; i < from->count; i++) words[i] = word_of(x->e, from, tile, i);
    for (unsigned i = 0; i < from->count; i++)
        used += (size_t)snprintf(text + used, TEXT - used, "%s%s", i ? ", " : "{", words[i].name);
    snprintf(text + used, TEXT - used, "}");
    return text;
}

static const char *sums(const mixed *x, uint32_t slot, uint32_t tile, char text[TEXT]) {
    return tvm_mma_words(x->e, slot, tile * x->o->words_c, x->o->words_c, text);
}

/* ", %r5, {2, 0}" for each operand: the word, and the place of the first scale in it. */
static void scales(const mixed *x, uint32_t c, uint32_t k, char text[TEXT]) {
    uint32_t per = x->o->mma.scaling->scales->k, a, b;
    tvm_mma_tile(&x->o->scales, c, k, &a, &b);
    snprintf(text, TEXT, ", %s, {%u, 0}, %s, {%u, 0}", x->scale_a[a * per / 4].name, a * per % 4,
             x->scale_b[b * per / 4].name, b * per % 4);
}

static void multiply(mixed *x, uint32_t result, uint32_t c, uint32_t k) {
    char a[TEXT], b[TEXT], before[TEXT], after[TEXT], scaled[TEXT] = "";
    uint32_t tile_a, tile_b;
    tvm_mma_tile(&x->o->plan, c, k, &tile_a, &tile_b);
    fragment(x, &x->a, tile_a, a);
    fragment(x, &x->b, tile_b, b);
    if (x->o->mma.scaling) scales(x, c, k, scaled);
    tvm_emit(x->e, "%s %s, %s, %s, %s%s;", x->name, sums(x, result, c, after), a, b,
             sums(x, k == 0 ? x->o->mma.c : result, c, before), scaled);
}

/* ---- the whole ---- */

static bool open_operand(const mixed *x, operand *of, const tvm_mma_source *source, uint32_t slot,
                         unsigned count) {
    uint32_t locals = tvm_layout_locals(tvm_slot_layout(x->e->k, slot));
    bool packed = x->o->mma.atoms->k == 64;
    *of = (operand){.slot = slot, .count = count, .spread = !packed};
    if (source->is_spread && source->type.bits == 4) of->shift = 2;
    of->words = calloc(locals / (packed ? 8 : 4), sizeof *of->words);
    return of->words != NULL;
}

/* The sign of ue4m3 must be zero; mma does not read it. */
static reg *open_scales(emitter *e, const tvm_mma *mma, uint32_t slot) {
    uint32_t count = tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e->k, slot)), 8);
    reg *words = calloc(count, sizeof *words);
    for (uint32_t i = 0; words && i < count; i++) {
        words[i] = tvm_slot_word(e, slot, i);
        if (mma->scaling->type.exponent != 8) words[i] = word_op(e, "and.b32", words[i], 0x7f7f7f7f);
    }
    return words;
}

static bool open_mixed(mixed *x) {
    const tvm_mma *mma = &x->o->mma;
    bool good = open_operand(x, &x->a, &mma->a, x->o->a, 4) && open_operand(x, &x->b, &mma->b, x->o->b, 2);
    if (!good || !mma->scaling) return good;
    x->scale_a = open_scales(x->e, mma, mma->scale_a);
    x->scale_b = open_scales(x->e, mma, mma->scale_b);
    return x->scale_a && x->scale_b;
}

tvm_status tvm_emit_mma_mixed(emitter *e, const tvm_insn *insn, const mma_operands *o) {
    mixed x = {.e = e, .o = o};
    bool good = open_mixed(&x);
    name_instruction(&x);
    for (uint32_t k = 0; good && k < o->plan.tiles_k; k++)
        for (uint32_t c = 0; c < o->plan.tiles_c; c++) multiply(&x, insn->result, c, k);
    free(x.a.words);
    free(x.b.words);
    free(x.scale_a);
    free(x.scale_b);
    if (!good) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e, x.name, 0, o->plan.tiles_c * o->plan.tiles_k, -1, "");
    return TVM_OK;
}
