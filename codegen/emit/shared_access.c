/* Addresses in shared tensors. */
#include "shared_access.h"

#include <string.h>

#include "analysis.h"
#include "numbers.h"

bool tvm_shared_part(emitter *e, const shared_tile *s, unsigned d, reg at, reg *offset) {
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
    const tvm_shared_layout *layout = tvm_slot_shared_layout(e->k, slot);
    unsigned lead = layout->rank - tile_rank;
    bool guarded = tvm_emit_byte_guard(e, index[layout->rank - 1].value, tvm_slot_dtype(e->k, slot).bits);
    for (unsigned d = 0; d < layout->rank; d++) {
        uint32_t extent = d < lead ? 1 : tile[d - lead], room = layout->shape[d] - extent;
        if (tvm_fact_at_most(e->k, index[d].value, room)) continue;
        reg at = tvm_emit_expr(e, index[d].value), p = tvm_new_pred(e);
        bool is_wide = e->k->kernel->exprs[index[d].value].type.bits == 64;
        /* Unsigned, a negative index is above every extent. */
        tvm_emit(e, "setp.gt.%s %s, %s, %u;", is_wide ? "u64" : "u32", p.name, at.name, room);
        tvm_emit_trap(e, p, true);
        guarded = true;
    }
    return guarded;
}

bool tvm_shared_access_open(emitter *e, shared_access *a, uint32_t slot, const tvm_operand *index,
                            unsigned tile_rank, const uint32_t *extent, uint32_t threads) {
    *a = (shared_access){.e = e};
    return tvm_shared_open(e->k, &a->tile, slot, index, tile_rank, extent, threads);
}

reg tvm_shared_dynamic(shared_access *a) {
    emitter *e = a->e;
    const shared_tile *s = &a->tile;
    if (a->dynamic.name[0]) return a->dynamic;
    for (unsigned d = 0; d < s->rank; d++) {
        int64_t value;
        if (s->step[d] == 0 || tvm_fact_constant(e->k, s->index[d].value, &value)) continue;
        reg at = tvm_emit_expr(e, s->index[d].value), next = tvm_new_r(e);
        if (e->k->kernel->exprs[s->index[d].value].type.bits == 64) {
            reg narrow = tvm_new_r(e);
            tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, at.name);
            at = narrow;
        }
        if (s->constant_index[d] != 0) {
            reg less = tvm_new_r(e);
            tvm_emit(e, "add.s32 %s, %s, %lld;", less.name, at.name, -(long long)s->constant_index[d]);
            at = less;
        }
        if (a->dynamic.name[0])
            tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", next.name, at.name, s->step[d], a->dynamic.name);
        else
            tvm_emit(e, "mul.lo.s32 %s, %s, %u;", next.name, at.name, s->step[d]);
        a->dynamic = next;
    }
    if (!a->dynamic.name[0]) a->dynamic = tvm_pure(e, 'r', "mov.b32 $, 0;");
    return a->dynamic;
}

/* As tvm_shared_packed_bytes, in registers of the prologue. */
static reg pure_packed_bytes(emitter *e, const shared_tile *s, reg elements) {
    unsigned whole = tvm_bits_whole(s->bits);
    reg runs = tvm_pure(e, 'r', "shr.s32 $, %s, %u;", elements.name, tvm_log2_floor(whole));
    return tvm_pure_scale(e, runs, whole * s->bits / 8);
}

reg tvm_shared_packed_bytes(emitter *e, const shared_tile *s, reg elements) {
    unsigned whole = tvm_bits_whole(s->bits), bytes = whole * s->bits / 8, shift = tvm_log2_floor(whole);
    reg runs = tvm_new_r(e), out = tvm_new_r(e);
    tvm_emit(e, "shr.s32 %s, %s, %u;", runs.name, elements.name, shift);
    if (bytes == 1) return runs;
    tvm_emit(e, "mul.lo.s32 %s, %s, %u;", out.name, runs.name, bytes);
    return out;
}

/* out = elements * bytes + address */
static reg add_elements(emitter *e, const shared_tile *s, reg out, reg elements, reg address) {
    if (s->bytes > 0)
        tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", out.name, elements.name, s->bytes, address.name);
    else
        tvm_emit(e, "add.s32 %s, %s, %s;", out.name, tvm_shared_packed_bytes(e, s, elements).name,
                 address.name);
    return out;
}

/* swizzle(offset) * bytes + start of the tensor, for an offset known at kernel entry. */
static reg fixed_address(shared_access *a, reg offset) {
    emitter *e = a->e;
    const tvm_shared_layout *layout = a->tile.layout;
    if (layout->swizzle_bits > 0) {
        uint32_t mask = ((UINT32_C(1) << layout->swizzle_bits) - 1) << layout->swizzle_base;
        reg high = tvm_pure(e, 'r', "shr.u32 $, %s, %u;", offset.name, layout->swizzle_shift);
        reg bits = tvm_pure(e, 'r', "and.b32 $, %s, %u;", high.name, mask);
        offset = tvm_pure(e, 'r', "xor.b32 $, %s, %s;", offset.name, bits.name);
    }
    reg bytes =
        a->tile.bytes > 0 ? tvm_pure_scale(e, offset, a->tile.bytes) : pure_packed_bytes(e, &a->tile, offset);
    return tvm_pure(e, 'r', "add.s32 $, %s, %s;", bytes.name, tvm_shared_base(e).name);
}

static reg moving_address(shared_access *a, reg offset) {
    emitter *e = a->e;
    const tvm_shared_layout *layout = a->tile.layout;
    reg out = tvm_new_r(e);
    if (layout->swizzle_bits > 0) {
        uint32_t mask = ((UINT32_C(1) << layout->swizzle_bits) - 1) << layout->swizzle_base;
        reg high = tvm_new_r(e), bits = tvm_new_r(e), mixed = tvm_new_r(e);
        tvm_emit(e, "shr.u32 %s, %s, %u;", high.name, offset.name, layout->swizzle_shift);
        tvm_emit(e, "and.b32 %s, %s, %u;", bits.name, high.name, mask);
        tvm_emit(e, "xor.b32 %s, %s, %s;", mixed.name, offset.name, bits.name);
        offset = mixed;
    }
    return add_elements(e, &a->tile, out, offset, tvm_shared_base(e));
}

/* Address register of lane offset + constant, the run-time part included. */
static reg make_address(shared_access *a, const shared_lanes *lanes, uint32_t constant) {
    emitter *e = a->e;
    const shared_tile *s = &a->tile;
    if (s->fixed) {
        reg offset = lanes->varies ? lanes->value : tvm_pure(e, 'r', "mov.b32 $, 0;");
        if (constant != 0) offset = tvm_pure(e, 'r', "add.s32 $, %s, %u;", offset.name, constant);
        reg address = fixed_address(a, offset);
        if (!s->has_dynamic) return address;
        reg dynamic = tvm_shared_dynamic(a), out = tvm_new_r(e);
        return add_elements(e, s, out, dynamic, address);
    }
    reg offset = tvm_shared_dynamic(a), sum = tvm_new_r(e);
    if (lanes->varies) {
        tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, offset.name, lanes->value.name);
        offset = sum;
    }
    if (constant != 0) {
        reg more = tvm_new_r(e);
        tvm_emit(e, "add.s32 %s, %s, %u;", more.name, offset.name, constant);
        offset = more;
    }
    return moving_address(a, offset);
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
        return a >= b && (a - b) % tvm_shared_period(s->layout) == 0;
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

reg tvm_shared_address(shared_access *a, shared_lanes *lanes, uint32_t constant, uint32_t *plus) {
    const shared_tile *s = &a->tile;
    uint32_t difference = 0, start = a->e->k->slots[s->slot].shared_offset;
    /* Whole periods of the swizzle are added after it. */
    uint32_t period = (uint32_t)tvm_shared_period(s->layout), whole;
    constant += s->constant;
    whole = constant - constant % period;
    constant -= whole;
    start += tvm_shared_bytes_of(s, whole);
    for (unsigned i = 0; i < lanes->group_count; i++) {
        if (!same_group(s, lanes, constant, lanes->groups[i].constant, &difference)) continue;
        *plus = start + tvm_shared_bytes_of(s, difference);
        return lanes->groups[i].address;
    }
    reg address = make_address(a, lanes, constant);
    if (lanes->group_count < SHARED_GROUPS) {
        lanes->groups[lanes->group_count].constant = constant;
        lanes->groups[lanes->group_count++].address = address;
    }
    *plus = start;
    return address;
}

/* ---- any layout ---- */

void tvm_shared_add_position(emitter *e, const shared_tile *s, unsigned dim, reg position, uint32_t unit,
                             reg *offset) {
    unsigned first = 0;
    while (first < s->layout->modes && s->layout->mode_dim[first] != dim) first++;
    for (unsigned m = s->layout->modes; m-- > 0;) {
        if (s->layout->mode_dim[m] != dim) continue;
        reg digit = position, sum = tvm_new_r(e);
        if (m > first) { /* inside of the tensor the first mode's digit is what is left */
            uint32_t size = s->layout->mode_size[m];
            bool is_power = tvm_is_power_of_two(size);
            digit =
                is_power ? word_op(e, "and.b32", position, size - 1) : word_op(e, "rem.u32", position, size);
            position = is_power ? word_op(e, "shr.u32", position, tvm_log2_floor(size))
                                : word_op(e, "div.u32", position, size);
        }
        if (offset->name[0])
            tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", sum.name, digit.name, s->layout->mode_stride[m] * unit,
                     offset->name);
        else
            tvm_emit(e, "mul.lo.s32 %s, %s, %u;", sum.name, digit.name, s->layout->mode_stride[m] * unit);
        *offset = sum;
    }
}

reg tvm_shared_address_of_offset(shared_access *a, reg offset) {
    emitter *e = a->e;
    uint32_t base = e->k->slots[a->tile.slot].shared_base;
    if (!offset.name[0]) return moving_address(a, tvm_pure(e, 'r', "mov.b32 $, %u;", base));
    reg sum = offset;
    if (base != 0) {
        sum = tvm_new_r(e);
        tvm_emit(e, "add.u32 %s, %s, %u;", sum.name, offset.name, base);
    }
    return moving_address(a, sum);
}

reg tvm_shared_address_of_coordinates(shared_access *a, const reg coordinate[TVM_MAX_RANK],
                                      const uint32_t constant[TVM_MAX_RANK]) {
    emitter *e = a->e;
    const shared_tile *s = &a->tile;
    reg offset = {""};
    for (unsigned d = 0; d < s->rank; d++) {
        reg at = tvm_emit_expr(e, s->index[d].value), sum = tvm_new_r(e);
        if (e->k->kernel->exprs[s->index[d].value].type.bits == 64)
            tvm_emit(e, "cvt.u32.u64 %s, %s;", sum.name, at.name);
        else
            tvm_emit(e, "mov.b32 %s, %s;", sum.name, at.name);
        if (d >= s->lead) {
            tvm_emit(e, "add.s32 %s, %s, %u;", sum.name, sum.name, constant[d - s->lead]);
            if (coordinate[d - s->lead].name[0])
                tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, sum.name, coordinate[d - s->lead].name);
        }
        tvm_shared_add_position(e, s, d, sum, 1, &offset);
    }
    return tvm_shared_address_of_offset(a, offset);
}
