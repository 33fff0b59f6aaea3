/* Tiles of global tensors: address arithmetic, alignment, bounds. */
#include "global_access.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "caches.h"

/* Above this many bytes across the tile, a constant stride goes the way of run-time ones, in 64 bits. */
enum { CONSTANT_REACH = 1 << 24, ALIGN_MAX_BITS = 128 };

static uint32_t shape_expr(const global_access *g, unsigned tensor_dim) {
    return g->e->kernel->slots[g->slot].shape[tensor_dim];
}

static bool is_narrow(const emitter *e, uint32_t expr) {
    tvm_dtype type = e->kernel->exprs[expr].type;
    return type.kind == TVM_KIND_INT && type.bits == 32;
}

static unsigned bytes_scale(const global_access *g) {
    return g->bits >= 8 ? g->bits / 8 : 1;
}

static void find_strides(global_access *g) {
    int64_t stride = 1;
    uint64_t divisor = 1;
    bool constant = true;
    for (unsigned d = g->rank; d-- > 0;) {
        uint32_t extent = d >= g->lead ? g->extent[d - g->lead] : 1;
        g->stride_divisor[d] = divisor;
        g->constant_stride[d] =
            constant && d >= g->lead && stride * extent * bytes_scale(g) <= CONSTANT_REACH;
        g->stride[d] = stride;
        int64_t shape;
        uint64_t shape_divisor = tvm_fact_divisor(g->e, shape_expr(g, d));
        if (__builtin_mul_overflow(divisor, shape_divisor, &divisor)) divisor = divisor & (~divisor + 1);
        if (divisor > INT32_MAX) divisor = divisor & (~divisor + 1);
        constant = constant && tvm_fact_constant(g->e, shape_expr(g, d), &shape) && shape >= 0 &&
                   shape <= CONSTANT_REACH && stride <= CONSTANT_REACH;
        if (constant) stride *= shape;
    }
}

static uint64_t index_divisor(const global_access *g, unsigned d) {
    uint64_t divisor = tvm_fact_divisor(g->e, g->index[d].value);
    unsigned rest = g->bits % 8;
    if (g->whole_bytes && rest != 0 && d + 1 == g->rank && divisor != 0) {
        uint64_t whole = 8 / tvm_fact_gcd(g->bits, 8);
        divisor = divisor / tvm_fact_gcd(divisor, whole) * whole;
    }
    return divisor;
}

static void find_bounds(global_access *g) {
    for (unsigned d = 0; d < g->rank; d++) {
        bool in_tile = d >= g->lead;
        const thread_part *part = in_tile ? &g->part[d - g->lead] : NULL;
        int64_t extent = in_tile ? g->extent[d - g->lead] : 1;
        g->proven[d] = tvm_fact_inside(g->e, g->index[d].value, extent, shape_expr(g, d));
        uint64_t granule = tvm_fact_gcd(index_divisor(g, d), tvm_fact_divisor(g->e, shape_expr(g, d)));
        if (part && part->varies) granule = tvm_fact_gcd(granule, part->divisor);
        g->granule[d] = granule == 0 || granule > TVM_MAX_TILE_ELEMENTS ? TVM_MAX_TILE_ELEMENTS : granule;
    }
}

void tvm_global_open(emitter *e, global_access *g, uint32_t slot, const tvm_operand *index,
                     unsigned tile_rank) {
    const tvm_slot *tensor = &e->kernel->slots[slot];
    g->e = e;
    g->slot = slot;
    g->index = index;
    g->rank = tensor->rank;
    g->tile_rank = tile_rank;
    g->lead = g->rank - tile_rank;
    g->bits = tensor->dtype.bits;
    find_strides(g);
    find_bounds(g);
}

/* Every target has L2 hints (sm_80 and later). What is evicted first is read once: it stays out of L1. */
cache_hint tvm_cache_hint(emitter *e, const tvm_operand *operand) {
    cache_hint hint = {"", "", ""};
    if (operand->kind != TVM_OPERAND_CONST || operand->value == TVM_EVICT_NORMAL) return hint;
    reg policy =
        tvm_pure(e, 'd', "createpolicy.fractional.L2::evict_%s.b64 $, 1.0;", tvm_evict_names[operand->value]);
    if (operand->value == TVM_EVICT_FIRST) hint.level1 = ".L1::no_allocate";
    hint.level2 = ".L2::cache_hint";
    snprintf(hint.policy, sizeof hint.policy, ", %s", policy.name);
    return hint;
}

bool tvm_global_is_guarded(const global_access *g) {
    for (unsigned d = 0; d < g->rank; d++)
        if (!g->proven[d]) return true;
    return false;
}

unsigned tvm_global_alignment(const global_access *g, const uint64_t rows[TVM_MAX_RANK]) {
    uint64_t align = ALIGN_MAX_BITS;
    for (unsigned d = 0; d < g->rank; d++) {
        uint64_t step = index_divisor(g, d);
        if (d >= g->lead) {
            const thread_part *part = &g->part[d - g->lead];
            if (part->varies) step = tvm_fact_gcd(step, part->divisor);
            if (!g->constant_stride[d]) step = tvm_fact_gcd(step, rows[d - g->lead]);
        }
        /* Only the power of two matters; each factor contributes its own. */
        uint64_t stride = g->constant_stride[d] ? (uint64_t)g->stride[d] : g->stride_divisor[d];
        step = (step & (~step + 1)) % (2 * ALIGN_MAX_BITS);
        stride = (stride & (~stride + 1)) % (2 * ALIGN_MAX_BITS);
        align = tvm_fact_gcd(align, step * stride * g->bits);
    }
    return (unsigned)(align & (~align + 1));
}

int64_t tvm_global_offset(const global_access *g, const uint32_t coordinate[TVM_MAX_RANK]) {
    int64_t offset = 0;
    for (unsigned d = 0; d < g->tile_rank; d++)
        if (g->constant_stride[g->lead + d]) offset += coordinate[d] * g->stride[g->lead + d];
    return offset;
}

/* ---- values of 64 bits, at kernel entry where nothing in them changes ---- */

static reg widen(global_access *g, uint32_t expr, bool *fixed) {
    emitter *e = g->e;
    tvm_dtype type = e->kernel->exprs[expr].type;
    int64_t value;
    if (tvm_fact_constant(e, expr, &value)) {
        *fixed = true;
        return tvm_pure(e, 'd', "mov.b64 $, %" PRId64 ";", value);
    }
    reg r = tvm_emit_expr(e, expr);
    *fixed = tvm_fact_stable(e, expr);
    if (type.bits == 64) return r;
    const char *conversion = type.kind == TVM_KIND_INT ? "cvt.s64.s32" : "cvt.u64.u32";
    if (*fixed) return tvm_pure(e, 'd', "%s $, %s;", conversion, r.name);
    reg wide = tvm_new_rd(e);
    tvm_emit(e, "%s %s, %s;", conversion, wide.name, r.name);
    return wide;
}

static reg add64(emitter *e, reg a, reg b, bool fixed) {
    if (fixed) return tvm_pure(e, 'd', "add.s64 $, %s, %s;", a.name, b.name);
    reg out = tvm_new_rd(e);
    tvm_emit(e, "add.s64 %s, %s, %s;", out.name, a.name, b.name);
    return out;
}

reg tvm_global_stride(global_access *g, unsigned tensor_dim) {
    reg product = {""};
    int64_t constant = 1;
    for (unsigned d = tensor_dim + 1; d < g->rank; d++) {
        int64_t value;
        bool fixed;
        if (tvm_fact_constant(g->e, shape_expr(g, d), &value)) {
            constant = (int64_t)((uint64_t)constant * (uint64_t)value);
            continue;
        }
        reg factor = widen(g, shape_expr(g, d), &fixed);
        product = product.name[0] ? tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %s;", product.name, factor.name)
                                  : factor;
    }
    if (!product.name[0]) return tvm_pure(g->e, 'd', "mov.b64 $, %" PRId64 ";", constant);
    return constant == 1 ? product
                         : tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %" PRId64 ";", product.name, constant);
}

/* Bytes of one step along a dimension other than the last: rows are whole bytes. */
static reg stride_bytes(global_access *g, unsigned tensor_dim) {
    reg elements = tvm_global_stride(g, tensor_dim);
    if (g->bits >= 8) {
        if (g->bits == 8) return elements;
        return tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %u;", elements.name, g->bits / 8);
    }
    reg total = elements;
    if (g->bits != 1) total = tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %u;", elements.name, g->bits);
    return tensor_dim + 1 == g->rank ? total : tvm_pure(g->e, 'd', "shr.s64 $, %s, 3;", total.name);
}

reg tvm_global_position(global_access *g, unsigned tensor_dim) {
    bool fixed;
    reg position = widen(g, g->index[tensor_dim].value, &fixed);
    if (tensor_dim < g->lead || !g->part[tensor_dim - g->lead].varies) return position;
    reg part = tvm_pure(g->e, 'd', "cvt.u64.u32 $, %s;", g->part[tensor_dim - g->lead].value.name);
    return add64(g->e, position, part, fixed);
}

/* value * stride of the dimension, in bytes; in bits >> 3 for the last dimension of sub-byte tensors. */
static reg scaled(global_access *g, unsigned d, reg value, bool fixed) {
    emitter *e = g->e;
    bool is_last = d + 1 == g->rank;
    if (is_last && g->bits == 8) return value;
    char factor[24];
    if (is_last)
        snprintf(factor, sizeof factor, "%u", g->bits > 8 ? g->bits / 8 : g->bits);
    else
        snprintf(factor, sizeof factor, "%s", stride_bytes(g, d).name);
    reg out;
    if (fixed) {
        out = tvm_pure(e, 'd', "mul.lo.s64 $, %s, %s;", value.name, factor);
    } else {
        out = tvm_new_rd(e);
        tvm_emit(e, "mul.lo.s64 %s, %s, %s;", out.name, value.name, factor);
    }
    if (!is_last || g->bits > 8) return out;
    if (fixed) return tvm_pure(e, 'd', "shr.s64 $, %s, 3;", out.name);
    reg bytes = tvm_new_rd(e);
    tvm_emit(e, "shr.s64 %s, %s, 3;", bytes.name, out.name);
    return bytes;
}

/* tensor + thread parts + indices: what is fixed first, so that it is computed once. */
static void make_base(global_access *g) {
    emitter *e = g->e;
    reg address = {""};
    memcpy(address.name, e->slots[g->slot].reg, sizeof address.name);
    for (unsigned d = 0; d < g->tile_rank; d++) {
        if (!g->part[d].varies) continue;
        reg part = tvm_pure(e, 'd', "cvt.u64.u32 $, %s;", g->part[d].value.name);
        address = add64(e, address, scaled(g, g->lead + d, part, true), true);
    }
    g->base_is_fixed = true;
    for (int pass = 0; pass < 2; pass++)
        for (unsigned d = 0; d < g->rank; d++) {
            int64_t value;
            uint32_t expr = g->index[d].value;
            bool fixed = tvm_fact_stable(e, expr) || tvm_fact_constant(e, expr, &value);
            if (fixed != (pass == 0) || (tvm_fact_constant(e, expr, &value) && value == 0)) continue;
            reg index = widen(g, expr, &fixed);
            address = add64(e, address, scaled(g, d, index, fixed), fixed);
            if (!fixed) g->base_is_fixed = false;
        }
    g->base = address;
    g->has_base = true;
}

reg tvm_global_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK]) {
    emitter *e = g->e;
    int64_t rows[TVM_MAX_RANK] = {0};
    if (!g->has_base) make_base(g);
    for (unsigned d = 0; d < g->tile_rank; d++)
        if (!g->constant_stride[g->lead + d]) rows[d] = coordinate[d];
    for (unsigned i = 0; i < g->pointer_count; i++)
        if (memcmp(g->pointers[i].rows, rows, sizeof rows) == 0) return g->pointers[i].value;
    reg pointer = g->base;
    for (unsigned d = 0; d < g->tile_rank; d++) {
        if (rows[d] == 0) continue;
        reg step = stride_bytes(g, g->lead + d);
        if (rows[d] != 1) step = tvm_pure(e, 'd', "mul.lo.s64 $, %s, %" PRId64 ";", step.name, rows[d]);
        pointer = add64(e, pointer, step, false);
    }
    if (g->pointer_count < GLOBAL_CACHE) {
        memcpy(g->pointers[g->pointer_count].rows, rows, sizeof rows);
        g->pointers[g->pointer_count++].value = pointer;
    }
    return pointer;
}

/* ---- bounds ---- */

static reg bound_test(global_access *g, unsigned d, uint32_t first) {
    emitter *e = g->e;
    uint32_t index = g->index[d].value, shape = shape_expr(g, d);
    reg p = tvm_new_pred(e);
    bool narrow = is_narrow(e, index) && is_narrow(e, shape);
    const thread_part *part = d >= g->lead && g->part[d - g->lead].varies ? &g->part[d - g->lead] : NULL;
    /* Unsigned, a negative position is above every extent. */
    if (narrow) {
        int64_t value;
        bool constant = tvm_fact_constant(e, index, &value);
        reg at = constant ? tvm_pure(e, 'r', "mov.b32 $, %" PRId64 ";", value) : tvm_emit_expr(e, index);
        reg limit = tvm_emit_expr(e, shape);
        if (part && (constant || tvm_fact_stable(e, index))) {
            at = tvm_pure(e, 'r', "add.s32 $, %s, %s;", at.name, part->value.name);
        } else if (part) {
            reg sum = tvm_new_r(e);
            tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, at.name, part->value.name);
            at = sum;
        }
        if (first > 0) {
            reg sum = tvm_new_r(e);
            tvm_emit(e, "add.s32 %s, %s, %u;", sum.name, at.name, first);
            at = sum;
        }
        tvm_emit(e, "setp.lt.u32 %s, %s, %s;", p.name, at.name, limit.name);
        return p;
    }
    bool fixed;
    reg at = tvm_global_position(g, d), limit = widen(g, shape, &fixed), sum = tvm_new_rd(e);
    tvm_emit(e, "add.s64 %s, %s, %u;", sum.name, at.name, first);
    tvm_emit(e, "setp.lt.u64 %s, %s, %s;", p.name, sum.name, limit.name);
    return p;
}

static uint32_t granule_of(const global_access *g, unsigned d, const uint32_t coordinate[TVM_MAX_RANK]) {
    return d >= g->lead ? (uint32_t)(coordinate[d - g->lead] / g->granule[d]) : 0;
}

bool tvm_global_predicate(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], reg *out) {
    emitter *e = g->e;
    bool any = false;
    for (unsigned d = 0; d < g->rank; d++) {
        if (g->proven[d]) continue;
        uint32_t granule = granule_of(g, d, coordinate);
        unsigned i = 0;
        while (i < g->predicate_count && (g->predicates[i].dim != d || g->predicates[i].granule != granule))
            i++;
        reg p;
        if (i < g->predicate_count) {
            p = g->predicates[i].value;
        } else {
            p = bound_test(g, d, (uint32_t)(granule * g->granule[d]));
            if (i < GLOBAL_CACHE) {
                g->predicates[i].dim = d;
                g->predicates[i].granule = granule;
                g->predicates[i].value = p;
                g->predicate_count++;
            }
        }
        if (any) {
            reg both = tvm_new_pred(e);
            tvm_emit(e, "and.pred %s, %s, %s;", both.name, out->name, p.name);
            p = both;
        }
        *out = p;
        any = true;
    }
    return any;
}

void tvm_global_key(const global_access *g, const uint32_t coordinate[TVM_MAX_RANK],
                    uint32_t key[2 * TVM_MAX_RANK]) {
    memset(key, 0, 2 * TVM_MAX_RANK * sizeof *key);
    for (unsigned d = 0; d < g->tile_rank; d++) {
        if (!g->constant_stride[g->lead + d]) key[d] = coordinate[d];
        if (!g->proven[g->lead + d]) key[TVM_MAX_RANK + d] = granule_of(g, g->lead + d, coordinate);
    }
}
