/* Addresses in shared tensors, and bank conflicts. */
#include "shared_access.h"

#include <string.h>

#include "analysis.h"
#include "caches.h"
#include "traffic.h"

uint32_t tvm_shared_swizzle(const tvm_shared_layout *layout, uint32_t offset) {
    uint32_t mask = (UINT32_C(1) << layout->swizzle_bits) - 1;
    if (layout->swizzle_bits == 0) return offset;
    return offset ^
           ((offset >> (layout->swizzle_base + layout->swizzle_shift) & mask) << layout->swizzle_base);
}

static uint64_t swizzle_period(const tvm_shared_layout *layout) {
    if (layout->swizzle_bits == 0) return 1;
    return UINT64_C(1) << (layout->swizzle_base + layout->swizzle_shift + layout->swizzle_bits);
}

uint32_t tvm_shared_run(const shared_tile *s) {
    return s->layout->swizzle_bits == 0   ? 16
           : s->layout->swizzle_base >= 4 ? 16
                                          : UINT32_C(1) << s->layout->swizzle_base;
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

bool tvm_shared_open(emitter *e, shared_tile *s, uint32_t slot, const tvm_operand *index, unsigned tile_rank,
                     const uint32_t *extent, uint32_t threads) {
    *s = (shared_tile){.e = e, .slot = slot, .layout = tvm_slot_shared_layout(e, slot), .index = index};
    s->rank = s->layout->rank;
    s->tile_rank = tile_rank;
    s->lead = s->rank - tile_rank;
    s->bytes = tvm_slot_dtype(e, slot).bits / 8;
    s->threads = threads;
    s->linear = true;
    s->constant = e->slots[slot].shared_base;
    find_modes(s);
    for (unsigned d = 0; d < s->rank; d++) {
        int64_t constant;
        uint64_t rest;
        tvm_fact_split(e, index[d].value, &constant, &rest);
        s->constant_index[d] = constant;
        s->step[d] = step_of(s, d);
        if (!adds_up(s, d, constant, rest, d < s->lead ? 1 : extent[d - s->lead])) s->linear = false;
        s->constant +=
            s->modes[d] < 2 ? (uint32_t)constant * s->step[d] : offset_in(s, d, (uint32_t)constant);
        if (rest != 0) s->has_dynamic = true;
        uint64_t power = (rest & (~rest + 1)) % (UINT64_C(1) << 32);
        s->dynamic_divisor = tvm_fact_gcd(s->dynamic_divisor, power * s->step[d]);
    }
    s->fixed = s->dynamic_divisor % swizzle_period(s->layout) == 0;
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

bool tvm_shared_open_layout(emitter *e, shared_tile *s, uint32_t slot, const tvm_operand *index,
                            const tvm_layout *layout) {
    tvm_shared_open(e, s, slot, index, layout->rank, layout->shape, tvm_layout_threads(layout));
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
        divisor = tvm_fact_gcd(divisor, s->layout->mode_stride[s->first[dim] + i]);
    return (uint32_t)divisor;
}

bool tvm_shared_part(const shared_tile *s, unsigned d, reg at, reg *offset) {
    emitter *e = s->e;
    unsigned dim = s->lead + d;
    bool any = false;
    uint32_t below = 1;
    for (unsigned i = s->modes[dim]; i-- > 0;) {
        unsigned m = s->first[dim] + i;
        reg digit = tvm_pure_divide(e, at, below);
        if (i > 0) digit = tvm_pure_modulo(e, digit, s->layout->mode_size[m]);
        digit = tvm_pure_scale(e, digit, s->layout->mode_stride[m]);
        *offset = any ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", offset->name, digit.name) : digit;
        any = true;
        below *= s->layout->mode_size[m];
    }
    return any;
}

bool tvm_shared_guard(emitter *e, uint32_t slot, const tvm_operand *index, unsigned tile_rank,
                      const uint32_t *tile) {
    const tvm_shared_layout *layout = tvm_slot_shared_layout(e, slot);
    unsigned lead = layout->rank - tile_rank;
    bool guarded = false;
    for (unsigned d = 0; d < layout->rank; d++) {
        uint32_t extent = d < lead ? 1 : tile[d - lead], room = layout->shape[d] - extent;
        if (tvm_fact_at_most(e, index[d].value, room)) continue;
        reg at = tvm_emit_expr(e, index[d].value), p = tvm_new_pred(e);
        bool is_wide = e->kernel->exprs[index[d].value].type.bits == 64;
        /* Unsigned, a negative index is above every extent. */
        tvm_emit(e, "setp.gt.%s %s, %s, %u;", is_wide ? "u64" : "u32", p.name, at.name, room);
        tvm_emit_trap(e, p, true);
        guarded = true;
    }
    return guarded;
}

uint32_t tvm_shared_linear(const shared_tile *s, const uint32_t coordinate[TVM_MAX_RANK]) {
    uint32_t offset = 0;
    for (unsigned d = 0; d < s->tile_rank; d++) offset += offset_in(s, s->lead + d, coordinate[d]);
    return offset;
}

uint32_t tvm_shared_alignment(const shared_tile *s, const shared_lanes *lanes) {
    uint64_t align = tvm_fact_gcd(16, s->dynamic_divisor);
    align = tvm_fact_gcd(align, s->constant);
    for (uint32_t t = 0; t < s->threads; t++) align = tvm_fact_gcd(align, lanes->offset[t]);
    return (uint32_t)align;
}

/* ---- emission ---- */

reg tvm_shared_dynamic(shared_tile *s) {
    emitter *e = s->e;
    if (s->dynamic.name[0]) return s->dynamic;
    for (unsigned d = 0; d < s->rank; d++) {
        int64_t value;
        if (s->step[d] == 0 || tvm_fact_constant(e, s->index[d].value, &value)) continue;
        reg at = tvm_emit_expr(e, s->index[d].value), next = tvm_new_r(e);
        if (e->kernel->exprs[s->index[d].value].type.bits == 64) {
            reg narrow = tvm_new_r(e);
            tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, at.name);
            at = narrow;
        }
        if (s->constant_index[d] != 0) {
            reg less = tvm_new_r(e);
            tvm_emit(e, "add.s32 %s, %s, %lld;", less.name, at.name, -(long long)s->constant_index[d]);
            at = less;
        }
        if (s->dynamic.name[0])
            tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", next.name, at.name, s->step[d], s->dynamic.name);
        else
            tvm_emit(e, "mul.lo.s32 %s, %s, %u;", next.name, at.name, s->step[d]);
        s->dynamic = next;
    }
    if (!s->dynamic.name[0]) s->dynamic = tvm_pure(e, 'r', "mov.b32 $, 0;");
    return s->dynamic;
}

/* swizzle(offset) * bytes + start of the tensor, for an offset known at kernel entry. */
static reg fixed_address(shared_tile *s, reg offset) {
    emitter *e = s->e;
    const tvm_shared_layout *layout = s->layout;
    if (layout->swizzle_bits > 0) {
        uint32_t mask = ((UINT32_C(1) << layout->swizzle_bits) - 1) << layout->swizzle_base;
        reg high = tvm_pure(e, 'r', "shr.u32 $, %s, %u;", offset.name, layout->swizzle_shift);
        reg bits = tvm_pure(e, 'r', "and.b32 $, %s, %u;", high.name, mask);
        offset = tvm_pure(e, 'r', "xor.b32 $, %s, %s;", offset.name, bits.name);
    }
    reg bytes = tvm_pure_scale(e, offset, s->bytes);
    return tvm_pure(e, 'r', "add.s32 $, %s, %s;", bytes.name, tvm_shared_base(e).name);
}

static reg moving_address(shared_tile *s, reg offset) {
    emitter *e = s->e;
    const tvm_shared_layout *layout = s->layout;
    reg out = tvm_new_r(e);
    if (layout->swizzle_bits > 0) {
        uint32_t mask = ((UINT32_C(1) << layout->swizzle_bits) - 1) << layout->swizzle_base;
        reg high = tvm_new_r(e), bits = tvm_new_r(e), mixed = tvm_new_r(e);
        tvm_emit(e, "shr.u32 %s, %s, %u;", high.name, offset.name, layout->swizzle_shift);
        tvm_emit(e, "and.b32 %s, %s, %u;", bits.name, high.name, mask);
        tvm_emit(e, "xor.b32 %s, %s, %s;", mixed.name, offset.name, bits.name);
        offset = mixed;
    }
    tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", out.name, offset.name, s->bytes, tvm_shared_base(e).name);
    return out;
}

/* Address register of lane offset + constant, the run-time part included. */
static reg make_address(shared_tile *s, const shared_lanes *lanes, uint32_t constant) {
    emitter *e = s->e;
    if (s->fixed) {
        reg offset = lanes->varies ? lanes->value : tvm_pure(e, 'r', "mov.b32 $, 0;");
        if (constant != 0) offset = tvm_pure(e, 'r', "add.s32 $, %s, %u;", offset.name, constant);
        reg address = fixed_address(s, offset);
        if (!s->has_dynamic) return address;
        reg dynamic = tvm_shared_dynamic(s), out = tvm_new_r(e);
        tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", out.name, dynamic.name, s->bytes, address.name);
        return out;
    }
    reg offset = tvm_shared_dynamic(s), sum = tvm_new_r(e);
    if (lanes->varies) {
        tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, offset.name, lanes->value.name);
        offset = sum;
    }
    if (constant != 0) {
        reg more = tvm_new_r(e);
        tvm_emit(e, "add.s32 %s, %s, %u;", more.name, offset.name, constant);
        offset = more;
    }
    return moving_address(s, offset);
}

/* Is swizzle(lane + a) - swizzle(lane + b) the same number in every thread, whatever the run-time part? */
static bool same_group(const shared_tile *s, const shared_lanes *lanes, uint32_t a, uint32_t b,
                       uint32_t *difference) {
    if (s->layout->swizzle_bits == 0) {
        *difference = a - b;
        return a >= b;
    }
    if (!s->fixed) {
        *difference = a - b;
        return a >= b && (a - b) % swizzle_period(s->layout) == 0;
    }
    for (uint32_t t = 0; t < s->threads; t++) {
        uint32_t here = tvm_shared_swizzle(s->layout, lanes->offset[t] + a) -
                        tvm_shared_swizzle(s->layout, lanes->offset[t] + b);
        if (t == 0)
            *difference = here;
        else if (here != *difference)
            return false;
    }
    return *difference <= INT32_MAX;
}

reg tvm_shared_address(shared_tile *s, shared_lanes *lanes, uint32_t constant, uint32_t *plus) {
    uint32_t difference = 0, start = s->e->slots[s->slot].shared_offset;
    /* Whole periods of the swizzle are added after it. */
    uint32_t period = (uint32_t)swizzle_period(s->layout), whole;
    constant += s->constant;
    whole = constant - constant % period;
    constant -= whole;
    start += whole * s->bytes;
    for (unsigned i = 0; i < lanes->group_count; i++) {
        if (!same_group(s, lanes, constant, lanes->groups[i].constant, &difference)) continue;
        *plus = start + difference * s->bytes;
        return lanes->groups[i].address;
    }
    reg address = make_address(s, lanes, constant);
    if (lanes->group_count < SHARED_GROUPS) {
        lanes->groups[lanes->group_count].constant = constant;
        lanes->groups[lanes->group_count++].address = address;
    }
    *plus = start;
    return address;
}

/* ---- any layout ---- */

void tvm_shared_add_position(const shared_tile *s, unsigned dim, reg position, uint32_t unit, reg *offset) {
    emitter *e = s->e;
    unsigned first = 0;
    while (first < s->layout->modes && s->layout->mode_dim[first] != dim) first++;
    for (unsigned m = s->layout->modes; m-- > 0;) {
        if (s->layout->mode_dim[m] != dim) continue;
        reg digit = position, sum = tvm_new_r(e);
        if (m > first) { /* inside of the tensor the first mode's digit is what is left */
            reg rest = tvm_new_r(e);
            digit = tvm_new_r(e);
            tvm_emit(e, "rem.u32 %s, %s, %u;", digit.name, position.name, s->layout->mode_size[m]);
            tvm_emit(e, "div.u32 %s, %s, %u;", rest.name, position.name, s->layout->mode_size[m]);
            position = rest;
        }
        if (offset->name[0])
            tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", sum.name, digit.name, s->layout->mode_stride[m] * unit,
                     offset->name);
        else
            tvm_emit(e, "mul.lo.s32 %s, %s, %u;", sum.name, digit.name, s->layout->mode_stride[m] * unit);
        *offset = sum;
    }
}

reg tvm_shared_address_of_offset(shared_tile *s, reg offset) {
    uint32_t base = s->e->slots[s->slot].shared_base;
    if (!offset.name[0]) return moving_address(s, tvm_pure(s->e, 'r', "mov.b32 $, %u;", base));
    reg sum = offset;
    if (base != 0) {
        sum = tvm_new_r(s->e);
        tvm_emit(s->e, "add.u32 %s, %s, %u;", sum.name, offset.name, base);
    }
    return moving_address(s, sum);
}

reg tvm_shared_address_of_coordinates(shared_tile *s, const reg coordinate[TVM_MAX_RANK],
                                      const uint32_t constant[TVM_MAX_RANK]) {
    emitter *e = s->e;
    reg offset = {""};
    for (unsigned d = 0; d < s->rank; d++) {
        reg at = tvm_emit_expr(e, s->index[d].value), sum = tvm_new_r(e);
        if (e->kernel->exprs[s->index[d].value].type.bits == 64)
            tvm_emit(e, "cvt.u32.u64 %s, %s;", sum.name, at.name);
        else
            tvm_emit(e, "mov.b32 %s, %s;", sum.name, at.name);
        if (d >= s->lead) {
            tvm_emit(e, "add.s32 %s, %s, %u;", sum.name, sum.name, constant[d - s->lead]);
            if (coordinate[d - s->lead].name[0])
                tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, sum.name, coordinate[d - s->lead].name);
        }
        tvm_shared_add_position(s, d, sum, 1, &offset);
    }
    return tvm_shared_address_of_offset(s, offset);
}

/* ---- bank conflicts ---- */

unsigned tvm_shared_conflicts(const uint32_t *address, unsigned lanes, unsigned width) {
    return tvm_bank_passes(address, lanes, width, NULL) - tvm_bank_passes_least(lanes, width);
}
