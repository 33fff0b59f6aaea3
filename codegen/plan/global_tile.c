/* Tiles of global tensors: steps, alignment, bounds. */
#include "global_tile.h"

#include <string.h>

#include "analysis.h"
#include "facts.h"
#include "numbers.h"

/* Above this many bytes across the tile, a constant stride goes the way of run-time ones, in 64 bits. */
enum { CONSTANT_REACH = 1 << 24, ALIGN_MAX_BITS = 128 };

/* Bytes that the constant part of an address may be of one index: instructions have 24 bits for all of it. */
enum { NEAR = 1 << 20 };

/* Steps are products of divisors; one that does not fit loses all but its power of two. */
static void multiply_divisor(uint64_t *divisor, uint64_t by) {
    if (__builtin_mul_overflow(*divisor, by, divisor)) *divisor = *divisor & (~*divisor + 1);
    if (*divisor > INT32_MAX) *divisor = *divisor & (~*divisor + 1);
}

/* The step along a dimension: its value, where that is a constant of at most CONSTANT_REACH, and a divisor.
 */
bool tvm_global_find_step(const global_tile *g, unsigned tensor_dim, int64_t *value, uint64_t *divisor) {
    const kernel_state *k = g->k;
    tvm_global_dim of = g->step_of[tensor_dim];
    const tvm_slot *slot = &k->kernel->slots[of.slot];
    int64_t factor;
    *value = 1;
    *divisor = 1;
    if (slot->form == TVM_FORM_STRIDED) {
        *divisor = tvm_fact_divisor(k, slot->stride[of.dim]);
        return tvm_fact_constant(k, slot->stride[of.dim], value) && *value >= 0 && *value <= CONSTANT_REACH;
    }
    bool constant = true;
    for (unsigned d = slot->rank; --d > of.dim;) {
        multiply_divisor(divisor, tvm_fact_divisor(k, slot->shape[d]));
        constant = constant && tvm_fact_constant(k, slot->shape[d], &factor) && factor >= 0 &&
                   factor <= CONSTANT_REACH && *value <= CONSTANT_REACH;
        if (constant) *value *= factor;
    }
    return constant;
}

bool tvm_global_has_unit_step(const global_tile *g, unsigned tensor_dim) {
    int64_t value;
    uint64_t divisor;
    return tvm_global_find_step(g, tensor_dim, &value, &divisor) && value == 1;
}

bool tvm_global_has_rows(const global_tile *g) {
    return tvm_global_has_unit_step(g, g->rank - 1);
}

static void find_strides(global_tile *g) {
    for (unsigned d = 0; d < g->rank; d++) {
        int64_t extent = d >= g->lead ? g->extent[d - g->lead] : 1;
        bool constant = tvm_global_find_step(g, d, &g->stride[d], &g->stride_divisor[d]);
        g->constant_stride[d] =
            constant && d >= g->lead && g->stride[d] * extent * tvm_global_bytes(g) <= CONSTANT_REACH;
    }
}

static uint64_t index_divisor(const global_tile *g, unsigned d) {
    if (tvm_global_is_tensor(g, d)) return 1;
    uint64_t divisor = tvm_fact_divisor(g->k, g->index[d].value);
    uint64_t whole = tvm_bits_whole(g->bits);
    if (g->whole_bytes && whole > 1 && d + 1 == g->rank && divisor != 0)
        divisor = divisor / tvm_gcd(divisor, whole) * whole;
    return divisor;
}

static void find_bounds(global_tile *g) {
    for (unsigned d = 0; d < g->rank; d++) {
        bool in_tile = d >= g->lead;
        const thread_part *part = in_tile ? &g->part[d - g->lead] : NULL;
        int64_t extent = in_tile ? g->extent[d - g->lead] : 1;
        g->proven[d] = tvm_global_is_tensor(g, d) ||
                       tvm_fact_inside(g->k, g->index[d].value, extent, tvm_global_shape(g, d));
        uint64_t granule = tvm_gcd(index_divisor(g, d), tvm_fact_divisor(g->k, tvm_global_shape(g, d)));
        if (part && part->varies) granule = tvm_gcd(granule, part->divisor);
        g->granule[d] = granule == 0 || granule > TVM_MAX_TILE_ELEMENTS ? TVM_MAX_TILE_ELEMENTS : granule;
    }
}

void tvm_global_tile_open(const kernel_state *k, global_tile *g, uint32_t slot, const tvm_operand *index,
                          unsigned tile_rank) {
    const tvm_slot *tensor = &k->kernel->slots[slot];
    g->k = k;
    g->slot = slot;
    g->index = index;
    g->rank = tensor->rank;
    g->tile_rank = tile_rank;
    g->lead = g->rank - tile_rank;
    g->bits = tensor->dtype.bits;
    for (unsigned d = 0; d < g->rank; d++) g->step_of[d] = tvm_global_step(k->kernel, slot, d);
    find_strides(g);
    find_bounds(g);
}

bool tvm_global_is_guarded(const global_tile *g) {
    for (unsigned d = 0; d < g->rank; d++)
        if (!g->proven[d]) return true;
    return false;
}

unsigned tvm_global_alignment(const global_tile *g, const uint64_t rows[TVM_MAX_RANK]) {
    unsigned base = g->k->slots[g->slot].alignment;
    uint64_t align = base ? base : ALIGN_MAX_BITS;
    for (unsigned d = 0; d < g->rank; d++) {
        uint64_t step = index_divisor(g, d);
        if (d >= g->lead) {
            const thread_part *part = &g->part[d - g->lead];
            if (part->varies) step = tvm_gcd(step, part->divisor);
            if (!g->constant_stride[d]) step = tvm_gcd(step, rows[d - g->lead]);
        }
        /* Only the power of two matters; each factor contributes its own. */
        uint64_t stride = g->constant_stride[d] ? (uint64_t)g->stride[d] : g->stride_divisor[d];
        step = (step & (~step + 1)) % (2 * ALIGN_MAX_BITS);
        stride = (stride & (~stride + 1)) % (2 * ALIGN_MAX_BITS);
        align = tvm_gcd(align, step * stride * g->bits);
    }
    return (unsigned)(align & (~align + 1));
}

/* Is a constant part of the index few bytes, which tvm_global_offset then has? */
static bool is_near(const global_tile *g, unsigned d, int64_t value) {
    return g->is_near && !tvm_global_is_tensor(g, d) && g->bits % 8 == 0 && g->constant_stride[d] &&
           value > 0 && value <= NEAR && value * g->stride[d] * tvm_global_bytes(g) <= NEAR;
}

uint32_t tvm_global_far_index(const global_tile *g, unsigned tensor_dim, int64_t *near) {
    uint32_t index = g->index[tensor_dim].value;
    const tvm_expr *node = node_of(g->k, index);
    *near = 0;
    if (tvm_fact_constant(g->k, index, near)) {
        if (is_near(g, tensor_dim, *near)) return TVM_NONE;
    } else if (node->op == TVM_EXPR_ADD && (node->type.bits == 64 || g->k->facts->exprs[index].exact) &&
               tvm_fact_constant(g->k, node->b, near) && is_near(g, tensor_dim, *near)) {
        return node->a;
    }
    *near = 0;
    return index;
}

int64_t tvm_global_offset(const global_tile *g, const uint32_t coordinate[TVM_MAX_RANK]) {
    int64_t offset = 0;
    for (unsigned d = 0; d < g->rank; d++) {
        int64_t near;
        if (tvm_global_is_tensor(g, d)) continue;
        tvm_global_far_index(g, d, &near);
        offset += near * g->stride[d];
    }
    for (unsigned d = 0; d < g->tile_rank; d++)
        if (g->constant_stride[g->lead + d]) offset += coordinate[d] * g->stride[g->lead + d];
    return offset;
}

uint32_t tvm_global_granule(const global_tile *g, unsigned d, const uint32_t coordinate[TVM_MAX_RANK]) {
    return d >= g->lead ? (uint32_t)(coordinate[d - g->lead] / g->granule[d]) : 0;
}

void tvm_global_key(const global_tile *g, const uint32_t coordinate[TVM_MAX_RANK],
                    uint32_t key[2 * TVM_MAX_RANK]) {
    memset(key, 0, 2 * TVM_MAX_RANK * sizeof *key);
    for (unsigned d = 0; d < g->tile_rank; d++) {
        if (!g->constant_stride[g->lead + d]) key[d] = coordinate[d];
        if (!g->proven[g->lead + d]) key[TVM_MAX_RANK + d] = tvm_global_granule(g, g->lead + d, coordinate);
    }
}
