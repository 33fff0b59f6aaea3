#include "bulk_run.h"

#include "analysis.h"
#include "numbers.h"

enum { GRANULE = 16 };

static bool is_together(const bulk_tile *tile, const bulk_run *r) {
    const shared_tile *s = &r->s;
    uint64_t elements = 1;
    for (unsigned d = tile->rank; d-- > 0; elements *= tile->extent[d]) {
        unsigned global = r->g.lead + d, shared = s->lead + d;
        if (tile->extent[d] == 1) continue;
        if (!r->g.constant_stride[global] || (uint64_t)r->g.stride[global] != elements) return false;
        if (s->modes[shared] != 1 || s->layout->mode_stride[s->first[shared]] != elements) return false;
    }
    return s->layout->swizzle_bits == 0;
}

static bool is_aligned(const bulk_run *r) {
    const shared_tile *s = &r->s;
    static const uint64_t rows[TVM_MAX_RANK] = {0};
    uint64_t shared = tvm_gcd(s->constant, s->dynamic_divisor);
    return r->bytes % GRANULE == 0 && shared * s->bytes % GRANULE == 0 &&
           tvm_global_alignment(&r->g, rows) >= 8 * GRANULE;
}

/* No edge of the tensor goes through the tile. */
static bool is_whole(const bulk_tile *tile, const bulk_run *r) {
    for (unsigned d = 0; d < tile->rank; d++) {
        unsigned dim = r->g.lead + d;
        if (!r->g.proven[dim] && tvm_gcd(r->g.granule[dim], tile->extent[d]) != tile->extent[d]) return false;
    }
    return true;
}

bool tvm_bulk_run_find(kernel_state *k, const bulk_tile *tile, bulk_run *r) {
    const tvm_slot *slot = &k->kernel->slots[tile->global->value];
    *r = (bulk_run){0};
    if (!tvm_dtype_same(slot->dtype, k->kernel->slots[tile->shared->value].dtype)) return false;
    if (!tvm_target_has(k->target, TVM_HAS_BULK) || slot->form != TVM_FORM_ROW_MAJOR) return false;
    for (unsigned d = 0; d < tile->rank; d++) r->g.extent[d] = tile->extent[d];
    if (!tvm_shared_open(k, &r->s, tile->shared->value, tile->shared + 1, tile->rank, tile->extent, 1))
        return false;
    if (r->s.bytes == 0) return false;
    tvm_global_tile_open(k, &r->g, tile->global->value, tile->global + 1, tile->rank);
    r->bytes = r->s.bytes;
    for (unsigned d = 0; d < tile->rank; d++) r->bytes *= tile->extent[d];
    return is_together(tile, r) && is_aligned(r) && is_whole(tile, r);
}
