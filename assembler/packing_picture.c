/* tvm-as --print-packing: where the bits of the elements lie. */
#include "picture.h"

#include <string.h>

enum { BYTE = 8, WORD = 32 };

/* What lies in each bit of a block of words: element * 256 + bit of its code. */
static void find_bits(tvm_packing packing, tvm_dtype type, uint32_t elements, uint32_t *bits) {
    for (uint32_t e = 0; e < elements; e++)
        for (unsigned b = 0; b < type.bits; b++) bits[tvm_packing_bit(packing, type, e, b)] = e * 256 + b;
}

/* A row of 8 bits: two of them stand where 16 would not fit the 80 columns of a terminal. */
static void draw_packing(picture *p, tvm_packing packing, tvm_dtype type) {
    uint32_t bits[8 * WORD] = {0};
    uint32_t elements = tvm_packing_block(TVM_PACKING_PAIR, type), rows = elements * type.bits / BYTE;
    find_bits(packing, type, elements, bits);
    picture_panel *panel = tvm_picture_panel(p, rows, BYTE);
    if (!panel) return;
    tvm_text_add(&panel->title,
                 "%s%s, packing %s: elements %u to %u of a thread, element.bit,\nfrom the highest bit down\n",
                 packing > 0 ? "\n" : "", TVM_DTYPE_TEXT(type), tvm_packing_names[packing], 0u,
                 (unsigned)(elements - 1));
    for (unsigned b = 0; b < BYTE; b++) snprintf(panel->heads[b], PICTURE_LABEL, "+%u", BYTE - 1 - b);
    for (uint32_t r = 0; r < rows; r++) {
        unsigned word = r / 4, low = (3 - r % 4) * BYTE;
        if (r % 4)
            snprintf(panel->labels[r], PICTURE_LABEL, "%2u-%-2u", low + BYTE - 1, low);
        else
            snprintf(panel->labels[r], PICTURE_LABEL, "word %u  %2u-%-2u", word, low + BYTE - 1, low);
        for (unsigned b = 0; b < BYTE; b++) {
            uint32_t at = bits[word * WORD + low + BYTE - 1 - b];
            picture_cell *cell = &panel->cells[r * BYTE + b];
            snprintf(cell->text, sizeof cell->text, "%u.%u", (unsigned)(at / 256), (unsigned)(at % 256));
            cell->colour = (uint16_t)(at / 256);
        }
    }
}

tvm_status tvm_print_packing(const tvm_picture_request *request, char **text, tvm_diags *diags) {
    picture p = {.failed = false};
    tvm_dtype type;
    const char *name = request->expression;
    *text = NULL;
    if (!tvm_dtype_parse(name, strlen(name), &type) || !tvm_packing_takes(TVM_PACKING_PAIR, type))
        return tvm_diag_add(diags, TVM_INVALID, NULL, "u1 to u8, i2 to i8, f3_e1m1 to f8_e5m2",
                            "'%.40s' is no low-precision type: only these have more than one packing", name);
    snprintf(p.title, sizeof p.title, "%s", name);
    for (unsigned packing = 0; packing < TVM_PACKING_COUNT; packing++)
        draw_packing(&p, (tvm_packing)packing, type);
    return tvm_picture_finish(&p, request, text, diags);
}
