/* Tiles of shared tensors, and bank conflicts. */
#include "shared_tile.h"

#include "analysis.h"
#include "numbers.h"
#include "traffic.h"

uint32_t tvm_shared_swizzle(const tvm_shared_layout *layout, uint32_t offset) {
    uint32_t mask = (UINT32_C(1) << layout->swizzle_bits) - 1;
    if (layout->swizzle_bits == 0) return offset;
    return offset ^
           ((offset >> (layout->swizzle_base + layout->swizzle_shift) & mask) << layout->swizzle_base);
}

uint64_t tvm_shared_period(const tvm_shared_layout *layout) {
    if (layout->swizzle_bits == 0) return 1;
    return UINT64_C(1) << (layout->swizzle_base + layout->swizzle_shift + layout->swizzle_bits);
}

/* Elements beyond which neither runs nor alignment matter: 16 bytes of the narrowest. */
static uint32_t most(const shared_tile *s) {
    return s->bits < 8 ? 128 : 16;
}

uint32_t tvm_shared_run(const shared_tile *s) {
    uint32_t run = UINT32_C(1) << (s->layout->swizzle_base < 7 ? s->layout->swizzle_base : 7);
    return s->layout->swizzle_bits == 0 || run > most(s) ? most(s) : run;
}

/* ---- a dimension's modes ---- */

static void find_modes(shared_tile *s) {
    for (unsigned m = s->layout->modes; m-- > 0;) {
        unsigned d = s->layout->mode_dim[m];
        s->first[d] = (uint8_t)m;
        s->modes[d]++;
    }
}

/* Elements of dimension d that its modes but the first one have together. */
static uint32_t inner_extent(const shared_tile *s, unsigned d) {
    uint32_t extent = 1;
    for (unsigned i = 1; i < s->modes[d]; i++) extent *= s->layout->mode_size[s->first[d] + i];
    return extent;
}

/* Linear offset of one coordinate. */
static uint32_t offset_in(const shared_tile *s, unsigned d, uint32_t at) {
    uint32_t offset = 0;
    for (unsigned i = s->modes[d]; i-- > 0;) {
        unsigned m = s->first[d] + i;
        uint32_t digit = i > 0 ? at % s->layout->mode_size[m] : at;
        offset += digit * s->layout->mode_stride[m];
        at /= s->layout->mode_size[m];
    }
    return offset;
}

/* Does adding coordinates of the tile to the constant part carry no digit of dimension d, and does the
 * run-time part, a multiple of `divisor` (0: none), consist of the first mode's digit alone? */
static bool adds_up(const shared_tile *s, unsigned d, int64_t constant, uint64_t divisor, uint32_t extent) {
    uint32_t inner = inner_extent(s, d), below = 1;
    if (s->modes[d] < 2) return true;
    if (divisor % inner != 0 || (divisor != 0 && s->layout->mode_stride[s->first[d]] % inner != 0))
        return false;
    if (constant < 0) return false;
    for (unsigned i = s->modes[d]; i-- > 1;) {
        below *= s->layout->mode_size[s->first[d] + i];
        uint64_t at = (uint64_t)constant % below;
        if (at != 0 && at + extent > below) return false;
    }
    return true;
}

static uint32_t step_of(const shared_tile *s, unsigned d) {
    return s->modes[d] == 0 ? 0 : s->layout->mode_stride[s->first[d]] / inner_extent(s, d);
}

/* An index of the last dimension is taken to begin at a byte, as a sum: then both parts do, or all of it is
 * the run-time part. */
static void at_byte(const shared_tile *s, int64_t *constant, uint64_t *rest) {
    uint64_t whole = tvm_bits_whole(s->bits);
    if (whole == 1 || *rest == 0 || (*constant % (int64_t)whole == 0 && *rest % whole == 0)) return;
    *constant = 0;
    *rest = whole;
}

bool tvm_shared_open(kernel_state *k, shared_tile *s, uint32_t slot, const tvm_operand *index,
                     unsigned tile_rank, const uint32_t *extent, uint32_t threads) {
    *s = (shared_tile){.slot = slot, .layout = tvm_slot_shared_layout(k, slot), .index = index};
    s->rank = s->layout->rank;
    s->tile_rank = tile_rank;
    s->lead = s->rank - tile_rank;
    s->bits = tvm_slot_dtype(k, slot).bits;
    s->bytes = s->bits / 8;
    s->threads = threads;
    s->linear = true;
    s->constant = k->slots[slot].shared_base;
    find_modes(s);
    for (unsigned d = 0; d < s->rank; d++) {
        int64_t constant;
        uint64_t rest;
        tvm_fact_split(k, index[d].value, &constant, &rest);
        if (d + 1 == s->rank) at_byte(s, &constant, &rest);
        s->constant_index[d] = constant;
        s->step[d] = step_of(s, d);
        if (!adds_up(s, d, constant, rest, d < s->lead ? 1 : extent[d - s->lead])) s->linear = false;
        s->constant +=
            s->modes[d] < 2 ? (uint32_t)constant * s->step[d] : offset_in(s, d, (uint32_t)constant);
        if (rest != 0) s->has_dynamic = true;
        uint64_t power = (rest & (~rest + 1)) % (UINT64_C(1) << 32);
        s->dynamic_divisor = tvm_gcd(s->dynamic_divisor, power * s->step[d]);
    }
    s->fixed = s->dynamic_divisor % tvm_shared_period(s->layout) == 0;
    return s->linear;
}

/* Is each digit of the layout on one side of `below` in its dimension, or cut by it in whole parts? */
static bool respects(const tvm_layout *layout, unsigned dim, uint32_t below) {
    uint32_t stride = 1;
    for (unsigned m = layout->modes; m-- > 0;) {
        if (layout->mode_dim[m] != dim) continue;
        uint32_t next = stride * layout->mode_size[m];
        if (stride < below && below < next && (below % stride != 0 || next % below != 0)) return false;
        if (stride < below && next <= below && below % next != 0) return false;
        stride = next;
    }
    return true;
}

bool tvm_shared_open_layout(kernel_state *k, shared_tile *s, uint32_t slot, const tvm_operand *index,
                            const tvm_layout *layout) {
    tvm_shared_open(k, s, slot, index, layout->rank, layout->shape, tvm_layout_threads(layout));
    for (unsigned d = 0; d < s->tile_rank; d++) {
        uint32_t below = 1;
        for (unsigned i = s->modes[s->lead + d]; i-- > 1;) {
            below *= s->layout->mode_size[s->first[s->lead + d] + i];
            if (!respects(layout, d, below)) s->linear = false;
        }
    }
    return s->linear;
}

uint32_t tvm_shared_contiguous_in(const shared_tile *s, unsigned dim) {
    unsigned m = s->first[dim] + s->modes[dim] - 1u;
    if (s->modes[dim] == 0) return UINT32_MAX; /* one element */
    return s->layout->mode_stride[m] != 1 ? 1 : s->modes[dim] == 1 ? UINT32_MAX : s->layout->mode_size[m];
}

uint32_t tvm_shared_contiguous(const shared_tile *s) {
    return tvm_shared_contiguous_in(s, s->rank - 1);
}

uint32_t tvm_shared_strides(const shared_tile *s, unsigned d) {
    unsigned dim = s->lead + d, modes = s->modes[dim];
    uint64_t divisor = 0;
    if (dim + 1 == s->rank && modes > 0 && s->layout->mode_stride[s->first[dim] + modes - 1u] == 1) modes--;
    for (unsigned i = 0; i < modes; i++)
        divisor = tvm_gcd(divisor, s->layout->mode_stride[s->first[dim] + i]);
    return (uint32_t)divisor;
}

uint32_t tvm_shared_linear(const shared_tile *s, const uint32_t coordinate[TVM_MAX_RANK]) {
    uint32_t offset = 0;
    for (unsigned d = 0; d < s->tile_rank; d++) offset += offset_in(s, s->lead + d, coordinate[d]);
    return offset;
}

uint32_t tvm_shared_alignment(const shared_tile *s, const uint32_t *lanes) {
    uint64_t align = tvm_gcd(most(s), s->dynamic_divisor);
    align = tvm_gcd(align, s->constant);
    for (uint32_t t = 0; t < s->threads; t++) align = tvm_gcd(align, lanes[t]);
    return (uint32_t)align;
}

/* ---- bank conflicts ---- */

unsigned tvm_shared_conflicts(const uint32_t *address, unsigned lanes, unsigned width) {
    return tvm_bank_passes(address, lanes, width, NULL) - tvm_bank_passes_least(lanes, width);
}
