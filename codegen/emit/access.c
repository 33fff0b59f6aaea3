/* Moves between the registers of accesses and the words of register tensors. */
#include "access.h"

#include <stdio.h>

const char *tvm_access_type(unsigned width) {
    switch (width) {
    case 128:
        return "v4.b32";
    case 64:
        return "v2.b32";
    case 32:
        return "b32";
    case 16:
        return "u16";
    default:
        return "u8";
    }
}

const char *tvm_access_operands(const reg units[4], uint32_t count, char text_out[64]) {
    if (count == 4)
        snprintf(text_out, 64, "{%s, %s, %s, %s}", units[0].name, units[1].name, units[2].name,
                 units[3].name);
    else if (count == 2)
        snprintf(text_out, 64, "{%s, %s}", units[0].name, units[1].name);
    else
        snprintf(text_out, 64, "%s", units[0].name);
    return text_out;
}

static const field *whole_word(const access_plan *plan, uint32_t unit) {
    const field *f = &plan->fields[plan->unit_field[unit]];
    bool whole = plan->unit_field[unit + 1] - plan->unit_field[unit] == 1 && f->length == 32;
    return whole ? f : NULL;
}

void tvm_access_load_registers(emitter *e, const access_plan *plan, const access *a, uint32_t slot,
                               reg units[4]) {
    for (uint32_t u = 0; u < a->units; u++) {
        const field *f = whole_word(plan, a->first_unit + u);
        units[u] = f ? tvm_slot_word(e, slot, f->word) : tvm_new_r(e);
    }
}

void tvm_emit_insert(emitter *e, const char *into, bool started, unsigned at, const char *value,
                     unsigned from, unsigned length) {
    if (!started) {
        if (from > at)
            tvm_emit(e, "shr.u32 %s, %s, %u;", into, value, from - at);
        else if (from < at)
            tvm_emit(e, "shl.b32 %s, %s, %u;", into, value, at - from);
        else
            tvm_emit(e, "mov.b32 %s, %s;", into, value);
        return;
    }
    if (at % 8 == 0 && from % 8 == 0 && length % 8 == 0) {
        unsigned selector = 0;
        for (unsigned byte = 0; byte < 4; byte++) {
            bool inside = byte >= at / 8 && byte < (at + length) / 8;
            selector |= (inside ? 4 + byte - at / 8 + from / 8 : byte) << (4 * byte);
        }
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%04x;", into, into, value, selector);
        return;
    }
    reg moved = tvm_new_r(e);
    if (from > 0)
        tvm_emit(e, "shr.u32 %s, %s, %u;", moved.name, value, from);
    else
        tvm_emit(e, "mov.b32 %s, %s;", moved.name, value);
    tvm_emit(e, "bfi.b32 %s, %s, %s, %u, %u;", into, moved.name, into, at, length);
}

void tvm_access_spread(emitter *e, const access_plan *plan, const access *a, uint32_t slot,
                       const reg units[4], bool *started) {
    for (uint32_t u = 0; u < a->units; u++) {
        uint32_t unit = a->first_unit + u;
        if (whole_word(plan, unit)) continue;
        for (uint32_t i = plan->unit_field[unit]; i < plan->unit_field[unit + 1]; i++) {
            const field *f = &plan->fields[i];
            tvm_emit_insert(e, tvm_slot_word(e, slot, f->word).name, started[f->word], f->word_bit,
                            units[u].name, f->unit_bit, f->length);
            started[f->word] = true;
        }
    }
}

void tvm_access_gather(emitter *e, const access_plan *plan, const access *a, uint32_t slot, reg units[4]) {
    for (uint32_t u = 0; u < a->units; u++) {
        uint32_t unit = a->first_unit + u, first = plan->unit_field[unit];
        const field *f = whole_word(plan, unit);
        if (f) {
            units[u] = tvm_slot_word(e, slot, f->word);
            continue;
        }
        units[u] = tvm_new_r(e);
        for (uint32_t i = first; i < plan->unit_field[unit + 1]; i++) {
            f = &plan->fields[i];
            tvm_emit_insert(e, units[u].name, i > first, f->unit_bit, tvm_slot_word(e, slot, f->word).name,
                            f->word_bit, f->length);
        }
    }
}
