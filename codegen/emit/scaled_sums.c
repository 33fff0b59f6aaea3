/* The last step of conversions, done to mma's sums: see plan/scaled.h. */
#include "scaled_sums.h"

#include "convert.h"

enum { WORDS_C = 4 }; /* of a tile of mma's result */

void tvm_subtract_zero(emitter *e, uint32_t sums, uint32_t tile, const reg column[4]) {
    const scaled_weights *scaled = &e->k->slots[sums].scaled;
    for (unsigned i = 0; i < WORDS_C; i++) {
        float factor = (float)(-scaled->zero / tvm_sum_factor(scaled, tile * WORDS_C + i));
        const char *d = tvm_slot_word(e, sums, tile * WORDS_C + i).name;
        tvm_emit(e, "fma.rn.f32 %s, %s, 0f%08X, %s;", d, column[i].name, (unsigned)tvm_f32_bits(factor), d);
    }
}

/* Is tile d of c another class of the codes of tile c? Then one word of weights has both, and they share b.
 */
static bool shares_word(const scaled_weights *scaled, const tvm_mma_plan *plan, uint32_t c, uint32_t d) {
    uint32_t a, b, other_a, other_b;
    tvm_mma_tile(plan, c, 0, &a, &b);
    tvm_mma_tile(plan, d, 0, &other_a, &other_b);
    return b == other_b && a / scaled->period == other_a / scaled->period;
}

void tvm_subtract_nested(emitter *e, uint32_t sums, const tvm_mma_plan *plan) {
    const scaled_weights *scaled = &e->k->slots[sums].scaled;
    for (uint32_t c = 0; c < plan->tiles_c; c++) {
        if (tvm_sum_class(scaled, c * WORDS_C) != 0) continue;
        for (uint32_t d = 0; d < plan->tiles_c; d++) {
            if (!shares_word(scaled, plan, c, d)) continue;
            for (unsigned i = d == c ? 2 : 0; i < WORDS_C; i++) {
                const char *whole = tvm_slot_word(e, sums, c * WORDS_C + i % 2).name;
                tvm_emit(e, "sub.rn.f32 %s, %s, %s;", whole, whole,
                         tvm_slot_word(e, sums, d * WORDS_C + i).name);
            }
        }
    }
}
