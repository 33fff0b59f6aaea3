/* tvm-as --print-packing: where the bits of the elements lie. */
#include "assembler.h"

#include <string.h>

#include "text.h"

enum { HALF = 16, WORD = 32, PICTURE_MAX = 1 << 16 };

/* What lies in each bit of a block of words: element * 256 + bit of its code. */
static void find_bits(tvm_packing packing, tvm_dtype type, uint32_t elements, uint32_t *bits) {
    for (uint32_t e = 0; e < elements; e++)
        for (unsigned b = 0; b < type.bits; b++) bits[tvm_packing_bit(packing, type, e, b)] = e * 256 + b;
}

static void print_half(tvm_text *out, const uint32_t *bits, unsigned word, unsigned half) {
    char cell[16];
    if (half == 1)
        tvm_text_add(out, "word %u  31-16 ", word);
    else
        tvm_text_add(out, "        15-0  ");
    for (unsigned b = HALF; b-- > 0;) {
        uint32_t at = bits[word * WORD + half * HALF + b];
        snprintf(cell, sizeof cell, "%u.%u", (unsigned)(at / 256), (unsigned)(at % 256));
        tvm_text_add(out, " %4s", cell);
    }
    tvm_text_puts(out, "\n");
}

static void print_packing(tvm_text *out, tvm_packing packing, tvm_dtype type) {
    uint32_t bits[8 * WORD] = {0};
    char name[TVM_DTYPE_NAME_MAX];
    uint32_t elements = tvm_packing_block(TVM_PACKING_PAIR, type);
    find_bits(packing, type, elements, bits);
    tvm_text_add(out,
                 "%s, packing %s: elements %u to %u of a thread, element.bit, from the highest bit down\n",
                 tvm_dtype_name(type, name), tvm_packing_names[packing], 0u, (unsigned)(elements - 1));
    for (unsigned word = 0; word < elements * type.bits / WORD; word++)
        for (unsigned half = 2; half-- > 0;) print_half(out, bits, word, half);
}

tvm_status tvm_print_packing(const char *name, char **picture, tvm_diags *diags) {
    tvm_text out = {.limit = PICTURE_MAX};
    tvm_dtype type;
    *picture = NULL;
    if (!tvm_dtype_parse(name, strlen(name), &type) || !tvm_packing_takes(TVM_PACKING_PAIR, type))
        return tvm_diag_add(diags, TVM_INVALID, NULL, "u1 to u8, i2 to i8, f3_e1m1 to f8_e5m2",
                            "'%.40s' is no low-precision type: only these have more than one packing", name);
    for (unsigned packing = 0; packing < TVM_PACKING_COUNT; packing++) {
        if (packing > 0) tvm_text_puts(&out, "\n");
        print_packing(&out, (tvm_packing)packing, type);
    }
    if (out.failed) {
        tvm_text_free(&out);
        return tvm_diag_no_memory(diags);
    }
    *picture = out.data;
    return TVM_OK;
}
