/* mma with scales where mma.sync has none: elements times their scales become factors of mma.sync.m16n8k16,
 * f16 with scales of f8_e4m3 (an f4_e2m1 times an f8_e4m3 has 6 significant bits from 2^-10 to 2688: all of
 * them are f16), bf16 with scales of e8m0 (powers of two; vasm(5) says from where to where the products are
 * bf16).
 *
 * A fragment of k elements is k / 16 of the instruction. Along k a thread has runs of 4 or 8 elements in each
 * half of the fragment; four of a run are one instruction's, in a and b alike. */
#include <stdlib.h>

#include "compute.h"
#include "mma_text.h"
#include "emit_mma_mixed.h"

enum { TEXT = TVM_MMA_TEXT };

/* An operand's elements times their scales, pairs of them as words: made when a tile is first asked for. */
typedef struct factors {
    uint32_t slot, scales;
    bool is_a;
    unsigned pairs; /* of a fragment */
    reg *words;     /* name[0] == 0: not made */
} factors;

typedef struct scaled_product {
    emitter *e;
    const mma_operands *o;
    tvm_dtype type; /* of the factors */
    unsigned run;   /* pairs of a run */
    factors a, b;
} scaled_product;

/* ---- scales ---- */

/* The word of the tile's scales, of the fragment's upper or lower 8 rows: one of two neighbouring lanes has
 * it. */
static reg scale_word(const scaled_product *x, const factors *of, uint32_t tile, unsigned rows) {
    emitter *e = x->e;
    reg word = tvm_slot_word(e, of->scales, tile * x->o->mma.scaling->scales->k / 4), out = tvm_new_r(e);
    if (!of->is_a) return word;
    reg lane = tvm_pure(e, 'r', "and.b32 $, %s, 30;", tvm_thread_id(e).name);
    if (rows) lane = tvm_pure(e, 'r', "or.b32 $, %s, 1;", lane.name);
    tvm_emit(e, "shfl.sync.idx.b32 %s, %s, %s, 31, 0xffffffff;", out.name, word.name, lane.name);
    return out;
}

/* The scale of the thread's run in that half of k. Of four scales a fragment, those of a half are two:
 * threads 0 and 1 of four have the first one's elements. */
static reg scale_of(const scaled_product *x, reg word, uint32_t tile, unsigned half) {
    emitter *e = x->e;
    const tvm_mma_scaling *scaling = x->o->mma.scaling;
    reg code = tvm_new_r(e);
    uint32_t per = scaling->scales->k;
    if (per == 4) {
        reg bit = tvm_pure(e, 'r', "and.b32 $, %s, 2;", tvm_thread_id(e).name);
        reg at = tvm_pure(e, 'r', "mad.lo.u32 $, %s, 4, %u;", bit.name, 16 * half);
        tvm_emit(e, "bfe.u32 %s, %s, %s, 7;", code.name, word.name, at.name);
    } else {
        tvm_emit(e, "bfe.u32 %s, %s, %u, 8;", code.name, word.name,
                 8 * (tile * per % 4 + (per == 2 ? half : 0)));
    }
    return tvm_emit_convert(e, TVM_F32, scaling->type, code, true);
}

/* ---- factors ---- */

static reg times(const scaled_product *x, const factors *of, uint32_t local, reg scale) {
    emitter *e = x->e;
    reg product = tvm_new_f(e), element = tvm_read_element(e, of->slot, local, false);
    reg value = tvm_emit_convert(e, TVM_F32, tvm_slot_dtype(e->k, of->slot), element, true);
    tvm_emit(e, "mul.rn.f32 %s, %s, %s;", product.name, value.name, scale.name);
    return tvm_f32_to_half(e, x->type, product);
}

/* Runs of a: of the upper rows, of the lower rows, then the same of the second half of k. */
static void make_tile(const scaled_product *x, factors *of, uint32_t tile, uint32_t scales) {
    reg words[2];
    unsigned rows = of->is_a ? 2 : 1;
    for (unsigned r = 0; r < rows; r++) words[r] = scale_word(x, of, scales, r);
    for (unsigned i = 0; i < of->pairs / x->run; i++) {
        reg scale = scale_of(x, words[i % rows], scales, i / rows);
        for (unsigned p = i * x->run; p < (i + 1) * x->run; p++) {
            uint32_t at = tile * of->pairs + p;
            reg low = times(x, of, 2 * at, scale), high = times(x, of, 2 * at + 1, scale);
            of->words[at] = tvm_pack_pair(x->e, low, high);
        }
    }
}

static const reg *tile_of(const scaled_product *x, factors *of, uint32_t tile, uint32_t scales) {
    const reg *words = of->words + tile * of->pairs;
    if (!words->name[0]) make_tile(x, of, tile, scales);
    return words;
}

/* ---- products ---- */

static void multiply(scaled_product *x, uint32_t result, uint32_t c, uint32_t k) {
    char before[TEXT], after[TEXT];
    const char *type = tvm_mma_type_name(x->type);
    uint32_t tile_a, tile_b, scales_a, scales_b;
    unsigned run = x->run;
    tvm_mma_tile(&x->o->plan, c, k, &tile_a, &tile_b);
    tvm_mma_tile(&x->o->scales, c, k, &scales_a, &scales_b);
    const reg *a = tile_of(x, &x->a, tile_a, scales_a), *b = tile_of(x, &x->b, tile_b, scales_b);
    tvm_mma_words(x->e, result, c * x->o->words_c, x->o->words_c, after);
    for (unsigned half = 0; half < 2; half++, a += 2 * run, b += run)
        for (unsigned i = 0; i < run; i += 2) {
            bool first = k == 0 && half == 0 && i == 0;
            tvm_mma_words(x->e, first ? x->o->mma.c : result, c * x->o->words_c, x->o->words_c, before);
            tvm_emit(x->e,
                     "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 %s, {%s, %s, %s, %s}, {%s, %s}, %s;",
                     type, type, after, a[i].name, a[run + i].name, a[i + 1].name, a[run + i + 1].name,
                     b[i].name, b[i + 1].name, before);
        }
}

static bool open_factors(const scaled_product *x, factors *of, bool is_a) {
    const tvm_mma *mma = &x->o->mma;
    *of = (factors){.slot = is_a ? x->o->a : x->o->b,
                    .scales = is_a ? mma->scale_a : mma->scale_b,
                    .is_a = is_a,
                    .pairs = x->run * (is_a ? 4 : 2)};
    of->words = calloc(tvm_layout_locals(tvm_slot_layout(x->e->k, of->slot)) / 2, sizeof *of->words);
    return of->words != NULL;
}

tvm_status tvm_emit_mma_scaled(emitter *e, const tvm_insn *insn, const mma_operands *o) {
    bool is_e8m0 = o->mma.scaling->type.exponent == 8;
    scaled_product x = {
        .e = e, .o = o, .type = is_e8m0 ? TVM_BF16 : TVM_F16, .run = o->mma.atoms->k == 64 ? 4 : 2};
    bool good = open_factors(&x, &x.a, true) && open_factors(&x, &x.b, false);
    for (uint32_t k = 0; good && k < o->plan.tiles_k; k++)
        for (uint32_t c = 0; c < o->plan.tiles_c; c++) multiply(&x, insn->result, c, k);
    free(x.a.words);
    free(x.b.words);
    if (!good) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e,
                is_e8m0 ? "mma.sync.m16n8k16.f32.bf16 of scaled floats"
                        : "mma.sync.m16n8k16.f32.f16 of scaled floats",
                0, o->mma.atoms->k / 16 * o->plan.tiles_c * o->plan.tiles_k, -1, "");
    return TVM_OK;
}
