/* Shared-memory layouts: strided modes and the XOR swizzle. */
#include <string.h>

#include "layout_digits.h"
#include "numbers.h"

enum { CHUNK_BYTES = 16, CHUNKS_OF_ALL_BANKS = 8, ATOM_BYTES = CHUNK_BYTES * CHUNKS_OF_ALL_BANKS };

/* ---- canonical form and checks ---- */

/* Sorted by stride, each stride must reach past everything that the smaller ones span: then offsets are a
 * mixed radix with gaps, and no two elements share one. */
static tvm_status check_strides(const tvm_shared_layout *layout, tvm_why *why) {
    uint8_t sorted[TVM_MAX_MODES];
    for (unsigned m = 0; m < layout->modes; m++) {
        unsigned at = m;
        for (; at > 0 && layout->mode_stride[m] < layout->mode_stride[sorted[at - 1]]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = (uint8_t)m;
    }
    uint64_t span = 1;
    for (unsigned i = 0; i < layout->modes; i++) {
        uint64_t stride = layout->mode_stride[sorted[i]];
        if (stride < span)
            return tvm_refuse(why, "stride %llu is less than the %llu elements that smaller strides span",
                              (unsigned long long)stride, (unsigned long long)span);
        span += stride * (layout->mode_size[sorted[i]] - 1);
        if (span > TVM_MAX_TILE_ELEMENTS)
            return tvm_refuse(why, "the layout spans more than %d elements", TVM_MAX_TILE_ELEMENTS);
    }
    return TVM_OK;
}

/* The swizzle permutes each aligned block of 2^(base+bits) offsets, with one XOR for the whole block. Only a
 * last, partial block can be left: not if its XOR is 0, or if it is whole blocks of twice the XOR's top bit.
 */
static tvm_status check_swizzle(const tvm_shared_layout *layout, unsigned base, unsigned bits, unsigned shift,
                                bool whole, tvm_why *why) {
    if (bits == 0) return TVM_OK;
    if (bits > shift) return tvm_refuse(why, "a swizzle of %u bits with a shift of only %u", bits, shift);
    if (base > 31 || shift > 31 || base + shift + bits > 31)
        return tvm_refuse(why, "swizzle(%u, %u, %u) reaches beyond bit 31", base, bits, shift);
    if (!whole) return TVM_OK;
    uint32_t span = tvm_shared_layout_span(layout);
    uint32_t rest = span % (UINT32_C(1) << (base + bits));
    uint32_t flip = ((span - 1) >> (base + shift)) & ((UINT32_C(1) << bits) - 1);
    if (rest != 0 && flip != 0 && rest % (UINT32_C(2) << (base + tvm_log2_floor(flip))) != 0)
        return tvm_refuse(why, "swizzle(%u, %u, %u) leaves the %u elements of the layout", base, bits, shift,
                          span);
    return TVM_OK;
}

/* whole: of a tensor's own memory, which the swizzle must not leave. */
static tvm_status make(unsigned rank, const uint32_t *shape, unsigned modes, const uint32_t *mode_size,
                       const uint32_t *mode_stride, unsigned base, unsigned bits, unsigned shift, bool whole,
                       tvm_shared_layout *out, tvm_why *why) {
    uint8_t dims[TVM_MAX_MODES];
    if (modes > TVM_MAX_MODES) return tvm_refuse(why, "the layout has more than %d modes", TVM_MAX_MODES);
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status == TVM_OK) status = tvm_modes_assign(rank, shape, modes, mode_size, dims, why);
    if (status != TVM_OK) return status;

    tvm_shared_layout layout;
    memset(&layout, 0, sizeof layout);
    memcpy(layout.shape, shape, rank * sizeof *shape);
    layout.rank = (uint8_t)rank;
    for (unsigned m = 0; m < modes; m++) {
        if (mode_size[m] == 1) continue;
        unsigned last = layout.modes - 1U;
        if (layout.modes > 0 && layout.mode_dim[last] == dims[m] &&
            layout.mode_stride[last] == (uint64_t)mode_size[m] * mode_stride[m]) {
            layout.mode_size[last] *= mode_size[m];
            layout.mode_stride[last] = mode_stride[m];
            continue;
        }
        layout.mode_size[layout.modes] = mode_size[m];
        layout.mode_stride[layout.modes] = mode_stride[m];
        layout.mode_dim[layout.modes++] = dims[m];
    }
    status = check_strides(&layout, why);
    if (status == TVM_OK) status = check_swizzle(&layout, base, bits, shift, whole, why);
    if (status != TVM_OK) return status;
    layout.swizzle_base = (uint8_t)(bits ? base : 0);
    layout.swizzle_bits = (uint8_t)bits;
    layout.swizzle_shift = (uint8_t)(bits ? shift : 0);
    *out = layout;
    return TVM_OK;
}

tvm_status tvm_shared_layout_make(unsigned rank, const uint32_t *shape, unsigned modes,
                                  const uint32_t *mode_size, const uint32_t *mode_stride, unsigned base,
                                  unsigned bits, unsigned shift, tvm_shared_layout *out, tvm_why *why) {
    return make(rank, shape, modes, mode_size, mode_stride, base, bits, shift, true, out, why);
}

tvm_status tvm_shared_layout_part(unsigned rank, const uint32_t *shape, unsigned modes,
                                  const uint32_t *mode_size, const uint32_t *mode_stride,
                                  const tvm_shared_layout *of, tvm_shared_layout *out, tvm_why *why) {
    return make(rank, shape, modes, mode_size, mode_stride, of->swizzle_base, of->swizzle_bits,
                of->swizzle_shift, false, out, why);
}

tvm_status tvm_shared_layout_whole(const tvm_shared_layout *layout, tvm_why *why) {
    return check_swizzle(layout, layout->swizzle_base, layout->swizzle_bits, layout->swizzle_shift, true,
                         why);
}

tvm_status tvm_shared_layout_packs(const tvm_shared_layout *layout, unsigned bits, tvm_why *why) {
    uint32_t whole = tvm_bits_whole(bits), run = 1;
    if (whole == 1) return TVM_OK;
    for (unsigned m = 0; m < layout->modes; m++)
        if (layout->mode_stride[m] == 1 && layout->mode_dim[m] == layout->rank - 1)
            run = layout->mode_size[m];
    if (run % whole != 0)
        return tvm_refuse(
            why,
            "%u elements of the last dimension are neighbours in memory, expected a multiple of "
            "%u, which are whole bytes",
            run, whole);
    for (unsigned m = 0; m < layout->modes; m++)
        if (layout->mode_stride[m] != 1 && layout->mode_stride[m] % whole != 0)
            return tvm_refuse(why,
                              "stride %u leads inside a byte, expected a multiple of %u elements, which are "
                              "whole bytes",
                              layout->mode_stride[m], whole);
    if (layout->swizzle_bits > 0 && (UINT32_C(1) << layout->swizzle_base) % whole != 0)
        return tvm_refuse(why,
                          "the swizzle moves runs of %u elements, expected a multiple of %u, which are whole "
                          "bytes",
                          UINT32_C(1) << layout->swizzle_base, whole);
    return TVM_OK;
}

bool tvm_shared_layout_valid(const tvm_shared_layout *layout, tvm_why *why) {
    tvm_shared_layout canonical;
    if (make(layout->rank, layout->shape, layout->modes, layout->mode_size, layout->mode_stride,
             layout->swizzle_base, layout->swizzle_bits, layout->swizzle_shift, false, &canonical,
             why) != TVM_OK)
        return false;
    if (!tvm_shared_layout_equal(layout, &canonical)) {
        tvm_refuse(why, "the shared layout is not in canonical form");
        return false;
    }
    return true;
}

bool tvm_shared_layout_equal(const tvm_shared_layout *a, const tvm_shared_layout *b) {
    return memcmp(a->shape, b->shape, sizeof a->shape) == 0 &&
           memcmp(a->mode_size, b->mode_size, sizeof a->mode_size) == 0 &&
           memcmp(a->mode_stride, b->mode_stride, sizeof a->mode_stride) == 0 &&
           memcmp(a->mode_dim, b->mode_dim, sizeof a->mode_dim) == 0 && a->rank == b->rank &&
           a->modes == b->modes && a->swizzle_base == b->swizzle_base && a->swizzle_bits == b->swizzle_bits &&
           a->swizzle_shift == b->swizzle_shift;
}

/* ---- constructors ---- */

static tvm_status row_major(unsigned rank, const uint32_t *shape, unsigned base, unsigned bits,
                            unsigned shift, tvm_shared_layout *out, tvm_why *why) {
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status != TVM_OK) return status;
    uint32_t strides[TVM_MAX_RANK];
    uint32_t product = 1;
    for (unsigned d = rank; d-- > 0; product *= shape[d]) strides[d] = product;
    return tvm_shared_layout_make(rank, shape, rank, shape, strides, base, bits, shift, out, why);
}

tvm_status tvm_shared_layout_row_major(unsigned rank, const uint32_t *shape, tvm_shared_layout *out,
                                       tvm_why *why) {
    return row_major(rank, shape, 0, 0, 0, out, why);
}

/* Rows of several times 128 bytes: one block of columns of 128 bytes after the other, each with all rows of
 * the last two dimensions, under the swizzle of 128 bytes (PTX ISA, "Matrix Descriptor Format"). */
static tvm_status column_blocks(unsigned rank, const uint32_t *shape, unsigned bits_each,
                                tvm_shared_layout *out) {
    uint32_t sizes[TVM_MAX_RANK + 1], strides[TVM_MAX_RANK + 1], columns = 8 * ATOM_BYTES / bits_each;
    uint64_t stride = (uint64_t)shape[rank - 2] * shape[rank - 1];
    sizes[rank] = columns;
    strides[rank] = 1;
    sizes[rank - 1] = shape[rank - 1] / columns;
    strides[rank - 1] = shape[rank - 2] * columns;
    sizes[rank - 2] = shape[rank - 2];
    strides[rank - 2] = columns;
    for (unsigned d = rank - 2; d-- > 0; stride *= shape[d]) {
        sizes[d] = shape[d];
        strides[d] = (uint32_t)stride;
    }
    unsigned base = tvm_log2_floor(8 * CHUNK_BYTES / bits_each), bits = tvm_log2_floor(CHUNKS_OF_ALL_BANKS);
    return tvm_shared_layout_make(rank, shape, rank + 1, sizes, strides, base, bits, bits, out, NULL);
}

tvm_status tvm_shared_layout_auto(unsigned rank, const uint32_t *shape, unsigned bits, tvm_shared_layout *out,
                                  tvm_why *why) {
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status != TVM_OK) return status;
    uint64_t row_bits = (uint64_t)shape[rank - 1] * bits, row_bytes = row_bits / 8;
    bool whole_chunks = tvm_is_power_of_two(bits) && 8 * CHUNK_BYTES % bits == 0 &&
                        tvm_is_power_of_two(row_bits) && row_bytes >= 2 * CHUNK_BYTES;
    bool wide = bits == 16 && row_bytes > ATOM_BYTES && row_bytes % ATOM_BYTES == 0;
    if (rank >= 2 && wide && column_blocks(rank, shape, bits, out) == TVM_OK) return TVM_OK;
    if (rank >= 2 && whole_chunks) {
        unsigned base = tvm_log2_floor(8 * CHUNK_BYTES / bits);
        unsigned row_chunks = tvm_log2_floor((uint32_t)(row_bytes / CHUNK_BYTES));
        unsigned all_banks = tvm_log2_floor(CHUNKS_OF_ALL_BANKS);
        unsigned swizzle_bits = row_chunks < all_banks ? row_chunks : all_banks;
        unsigned shift = row_chunks > all_banks ? row_chunks : all_banks;
        if (row_major(rank, shape, base, swizzle_bits, shift, out, NULL) == TVM_OK) return TVM_OK;
    }
    return row_major(rank, shape, 0, 0, 0, out, why);
}

tvm_status tvm_shared_layout_for_tensor_core(unsigned rank, const uint32_t *shape, unsigned bits,
                                             tvm_shared_layout *out, tvm_why *why) {
    uint64_t row_bytes = rank ? (uint64_t)shape[rank - 1] * bits / 8 : 0;
    bool blocks =
        rank >= 2 && tvm_is_power_of_two(bits) && row_bytes > ATOM_BYTES && row_bytes % ATOM_BYTES == 0;
    if (blocks && column_blocks(rank, shape, bits, out) == TVM_OK) return TVM_OK;
    return tvm_shared_layout_auto(rank, shape, bits, out, why);
}

/* ---- queries ---- */

uint32_t tvm_shared_layout_offset(const tvm_shared_layout *layout, const uint32_t *index) {
    uint32_t offset = 0, rest = 0;
    for (unsigned m = layout->modes; m-- > 0;) {
        bool innermost = m + 1 == layout->modes || layout->mode_dim[m + 1] != layout->mode_dim[m];
        if (innermost) rest = index[layout->mode_dim[m]];
        offset += rest % layout->mode_size[m] * layout->mode_stride[m];
        rest /= layout->mode_size[m];
    }
    uint32_t mask = (UINT32_C(1) << layout->swizzle_bits) - 1;
    return offset ^
           ((offset >> (layout->swizzle_base + layout->swizzle_shift) & mask) << layout->swizzle_base);
}

uint32_t tvm_shared_layout_span(const tvm_shared_layout *layout) {
    uint32_t span = 1;
    for (unsigned m = 0; m < layout->modes; m++) span += (layout->mode_size[m] - 1) * layout->mode_stride[m];
    return span;
}
