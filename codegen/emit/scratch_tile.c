#include "scratch_tile.h"

#include <string.h>

#include "caches.h"
#include "compute.h"
#include "scratch.h"
#include "shared_access.h"

enum { WARP = 32 };

/* ---- the plan ---- */

static uint32_t offset_of(const scratch_tile *t, const tvm_layout *layout, uint32_t thread, uint32_t local) {
    uint32_t index[TVM_MAX_RANK], offset = 0;
    tvm_layout_map(layout, thread, local, index);
    for (unsigned d = 0; d < layout->rank; d++) offset += index[d] * t->stride[d];
    return offset;
}

static uint32_t base_of(const scratch_tile *t, const tile_side *s) {
    uint32_t base = 0;
    for (unsigned d = 0; d < t->rank; d++) base += s->offset[d] * t->stride[d];
    return base;
}

static uint32_t mode_step(const scratch_tile *t, const tvm_layout *layout, unsigned mode) {
    uint32_t step = t->stride[layout->mode_dim[mode]];
    for (unsigned m = mode + 1; m < layout->modes && layout->mode_dim[m] == layout->mode_dim[mode]; m++)
        step *= layout->mode_size[m];
    return step;
}

/* The most elements, at most 16 bytes, that every thread has side by side in ascending local order, at a
 * multiple of their number. */
static uint32_t width_of(const scratch_tile *t, const tile_side *s) {
    const tvm_layout *layout = s->layout;
    uint32_t width = 16 / t->bytes;
    for (; width > 1; width /= 2) {
        bool fits = s->locals % width == 0 && width * t->bytes >= 4 && base_of(t, s) % width == 0;
        for (unsigned i = 0; fits && i < layout->spatials; i++)
            fits = layout->spatial[i] < 0 || mode_step(t, layout, (unsigned)layout->spatial[i]) % width == 0;
        for (uint32_t l = 0; fits && l < s->locals; l++) {
            uint32_t first = offset_of(t, layout, 0, l - l % width);
            fits = first % width == 0 && offset_of(t, layout, 0, l) == first + l % width;
        }
        if (fits) break;
    }
    return t->type.bits < 8 ? 1 : width;
}

/* Wavefronts of the first warp's accesses. */
static uint32_t cost_of(const scratch_tile *t, const tile_side *s) {
    uint32_t address[WARP], cost = 0, bits = 8 * s->width * t->bytes, least = bits <= 32 ? 1 : bits / 32;
    for (uint32_t l = 0; l < s->locals; l += s->width) {
        for (uint32_t lane = 0; lane < WARP; lane++)
            address[lane] = t->bytes * offset_of(t, s->layout, lane, l);
        cost += least + tvm_shared_conflicts(address, WARP, bits);
    }
    return cost;
}

static void set_strides(scratch_tile *t, uint32_t padding, tile_side *const *sides, unsigned count) {
    uint32_t stride = 1;
    for (unsigned d = t->rank; d-- > 0;) {
        t->stride[d] = stride;
        stride *= t->shape[d];
        if (d + 1U == t->rank && d > 0) stride += padding;
    }
    t->elements = stride;
    for (unsigned i = 0; i < count; i++) sides[i]->width = width_of(t, sides[i]);
}

void tvm_tile_plan(scratch_tile *t, tvm_dtype type, unsigned rank, const uint32_t *shape,
                   tile_side *const *sides, unsigned count) {
    uint32_t best = 0, least = UINT32_MAX;
    *t = (scratch_tile){.type = type, .bytes = type.bits <= 8 ? 1 : type.bits / 8U, .rank = rank};
    memcpy(t->shape, shape, rank * sizeof *shape);
    for (uint32_t padding = 0; padding <= 32 / t->bytes; padding = padding ? 2 * padding : 1) {
        uint32_t cost = 0;
        set_strides(t, padding, sides, count);
        for (unsigned i = 0; i < count; i++) cost += cost_of(t, sides[i]);
        if (cost >= least) continue;
        least = cost;
        best = padding;
    }
    set_strides(t, best, sides, count);
}

uint64_t tvm_tile_bytes(const scratch_tile *t) {
    return (uint64_t)t->elements * t->bytes;
}

/* ---- the code ---- */

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
        uint32_t offset = scratch + t->bytes * (base_of(t, s) + offset_of(t, s->layout, 0, l));
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
        uint32_t offset = scratch + t->bytes * (base_of(t, s) + offset_of(t, s->layout, 0, l));
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
