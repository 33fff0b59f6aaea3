#include "scratch_tile.h"

#include <string.h>

#include "shared_tile.h"

enum { WARP = 32 };

uint32_t tvm_tile_offset(const scratch_tile *t, const tvm_layout *layout, uint32_t thread, uint32_t local) {
    uint32_t index[TVM_MAX_RANK], offset = 0;
    tvm_layout_map(layout, thread, local, index);
    for (unsigned d = 0; d < layout->rank; d++) offset += index[d] * t->stride[d];
    return offset;
}

uint32_t tvm_tile_base(const scratch_tile *t, const tile_side *s) {
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
        bool fits = s->locals % width == 0 && width * t->bytes >= 4 && tvm_tile_base(t, s) % width == 0;
        for (unsigned i = 0; fits && i < layout->spatials; i++)
            fits = layout->spatial[i] < 0 || mode_step(t, layout, (unsigned)layout->spatial[i]) % width == 0;
        for (uint32_t l = 0; fits && l < s->locals; l++) {
            uint32_t first = tvm_tile_offset(t, layout, 0, l - l % width);
            fits = first % width == 0 && tvm_tile_offset(t, layout, 0, l) == first + l % width;
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
            address[lane] = t->bytes * tvm_tile_offset(t, s->layout, lane, l);
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
