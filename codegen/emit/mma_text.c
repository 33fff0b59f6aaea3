/* Types and registers as mma.sync and wgmma name them. */
#include "mma_text.h"

#include <stdio.h>

const char *tvm_mma_type_name(tvm_dtype type) {
    if (type.kind != TVM_KIND_FLOAT) return type.bits == 32 ? "s32" : type.kind == TVM_KIND_INT ? "s8" : "u8";
    if (type.bits == 4) return "e2m1";
    if (type.bits == 6) return type.exponent == 2 ? "e2m3" : "e3m2";
    if (type.bits == 8) return type.exponent == 4 ? "e4m3" : "e5m2";
    if (type.bits == 16) return type.exponent == 5 ? "f16" : "bf16";
    return type.bits == 64 ? "f64" : type.mantissa == 10 ? "tf32" : "f32";
}

const char *tvm_mma_words(const emitter *e, uint32_t slot, uint32_t first, unsigned count,
                          char text[TVM_MMA_TEXT]) {
    size_t used = 0;
    for (unsigned i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, TVM_MMA_TEXT - used, "%s%s", i ? ", " : "{",
                                 tvm_slot_word(e, slot, first + i).name);
    snprintf(text + used, TVM_MMA_TEXT - used, "}");
    return text;
}
