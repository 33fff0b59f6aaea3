#include "scratch_move.h"

#include "compute.h"
#include "scratch.h"

static reg side_address(emitter *e, const scratch_tile *t, const tile_side *s) {
    reg address = tvm_scratch_base(e), coordinate;
    for (unsigned d = 0; d < s->layout->rank; d++)
        if (tvm_thread_coordinate(e, s->layout, d, &coordinate))
            address = tvm_pure(e, 'r', "add.u32 $, %s, %s;", address.name,
                               tvm_pure_scale(e, coordinate, t->stride[d] * t->bytes).name);
    return address;
}

/* The words of an access, `{a, b}` or `a`, and `v2.b32` or `b32`. */
static void words_text(const reg *words, uint32_t count, char type[16], char list[64]) {
    if (count == 1) {
        snprintf(type, 16, "b32");
        snprintf(list, 64, "%s", words[0].name);
        return;
    }
    snprintf(type, 16, "v%u.b32", (unsigned)count);
    int n = snprintf(list, 64, "{%s", words[0].name);
    for (uint32_t i = 1; i < count; i++) n += snprintf(list + n, 64 - (size_t)n, ", %s", words[i].name);
    snprintf(list + n, 64 - (size_t)n, "}");
}

void tvm_tile_store(emitter *e, const scratch_tile *t, const tile_side *s, uint32_t scratch) {
    reg address = side_address(e, t, s), words[4];
    char type[16], list[64];
    uint32_t count = s->width * t->bytes / 4;
    for (uint32_t l = 0; l < s->locals; l += s->width) {
        uint32_t offset = scratch + t->bytes * (tvm_tile_base(t, s) + tvm_tile_offset(t, s->layout, 0, l));
        if (count == 0) {
            reg value = tvm_read_element(e, s->slot, l, false);
            tvm_emit(e, "st.shared.b%u [%s+%u], %s;", (unsigned)(8 * t->bytes), address.name,
                     (unsigned)offset, value.name);
            continue;
        }
        for (uint32_t i = 0; i < count; i++) words[i] = tvm_slot_word(e, s->slot, l * t->bytes / 4 + i);
        words_text(words, count, type, list);
        tvm_emit(e, "st.shared.%s [%s+%u], %s;", type, address.name, (unsigned)offset, list);
    }
}

bool tvm_tile_load(emitter *e, const scratch_tile *t, const tile_side *s, uint32_t scratch) {
    reg address = side_address(e, t, s), words[4];
    char type[16], list[64];
    uint32_t count = s->width * t->bytes / 4;
    element_writer writer;
    if (!tvm_write_begin(e, &writer, s->slot)) return false;
    for (uint32_t l = 0; l < s->locals; l += s->width) {
        uint32_t offset = scratch + t->bytes * (tvm_tile_base(t, s) + tvm_tile_offset(t, s->layout, 0, l));
        if (count == 0) {
            reg value = tvm_new_element(e, t->type);
            tvm_emit(e, "ld.shared.%s%u %s, [%s+%u];", tvm_is_half(t->type) ? "b" : "u",
                     (unsigned)(8 * t->bytes), value.name, address.name, (unsigned)offset);
            tvm_write_element(e, &writer, value);
            continue;
        }
        for (uint32_t i = 0; i < count; i++) words[i] = tvm_new_r(e);
        words_text(words, count, type, list);
        tvm_emit(e, "ld.shared.%s %s, [%s+%u];", type, list, address.name, (unsigned)offset);
        for (uint32_t i = 0; i < count; i++) tvm_write_word(e, &writer, words[i]);
    }
    tvm_write_end(e, &writer);
    return true;
}
