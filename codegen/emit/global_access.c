/* Tiles of global tensors: address arithmetic and tests of bounds. */
#include "global_access.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "analysis.h"
#include "hoist.h"

static bool is_narrow(const emitter *e, uint32_t expr) {
    tvm_dtype type = e->k->kernel->exprs[expr].type;
    return type.kind == TVM_KIND_INT && type.bits == 32;
}

void tvm_global_open(emitter *e, global_access *g, uint32_t slot, const tvm_operand *index,
                     unsigned tile_rank) {
    g->e = e;
    tvm_global_tile_open(e->k, &g->tile, slot, index, tile_rank);
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

/* ---- values of 64 bits, computed as early as what is in them allows ---- */

/* At kernel entry, before the innermost loop, or where code is being emitted. */
enum when { AT_ENTRY, BEFORE_LOOP, HERE };

static enum when when_known(const emitter *e, uint32_t expr) {
    int64_t value;
    if (tvm_fact_constant(e->k, expr, &value) || tvm_fact_stable(e->k, expr)) return AT_ENTRY;
    return tvm_loop_invariant(e, expr) ? BEFORE_LOOP : HERE;
}

/* One instruction with a result of 64 bits, `$`. */
__attribute__((format(printf, 3, 4))) static reg compute(emitter *e, enum when when, const char *format,
                                                         ...) {
    char string[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(string, sizeof string, format, arguments);
    va_end(arguments);
    if (when == AT_ENTRY) return tvm_pure(e, 'd', "%s", string);
    if (when == BEFORE_LOOP) return tvm_hoist(e, 'd', "%s", string);
    reg out = tvm_new_rd(e);
    char *dollar = strchr(string, '$');
    *dollar = '\0';
    tvm_emit(e, "%s%s%s", string, out.name, dollar + 1);
    return out;
}

static reg widen(global_access *g, uint32_t expr, enum when *when) {
    emitter *e = g->e;
    tvm_dtype type = e->k->kernel->exprs[expr].type;
    int64_t value;
    *when = when_known(e, expr);
    if (tvm_fact_constant(e->k, expr, &value)) return tvm_pure(e, 'd', "mov.b64 $, %" PRId64 ";", value);
    reg r = *when == BEFORE_LOOP ? tvm_hoist_expr(e, expr) : tvm_emit_expr(e, expr);
    if (type.bits == 64) return r;
    return compute(e, *when, type.kind == TVM_KIND_INT ? "cvt.s64.s32 $, %s;" : "cvt.u64.u32 $, %s;", r.name);
}

static reg add64(emitter *e, enum when when, reg a, reg b) {
    return compute(e, when, "add.s64 $, %s, %s;", a.name, b.name);
}

reg tvm_global_stride(global_access *g, unsigned tensor_dim) {
    reg product = {""};
    int64_t constant = 1;
    tvm_global_dim of = g->tile.step_of[tensor_dim];
    const tvm_slot *slot = &g->e->k->kernel->slots[of.slot];
    bool strided = slot->form == TVM_FORM_STRIDED;
    /* The stride alone, or the extents behind. */
    for (unsigned d = strided ? of.dim : of.dim + 1; d < (strided ? of.dim + 1 : slot->rank); d++) {
        int64_t value;
        enum when when;
        uint32_t expr = strided ? slot->stride[d] : slot->shape[d];
        if (tvm_fact_constant(g->e->k, expr, &value)) {
            constant = (int64_t)((uint64_t)constant * (uint64_t)value);
            continue;
        }
        reg factor = widen(g, expr, &when);
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
    if (g->tile.bits >= 8) {
        if (g->tile.bits == 8) return elements;
        return tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %u;", elements.name, g->tile.bits / 8);
    }
    reg total = elements;
    if (g->tile.bits != 1) total = tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %u;", elements.name, g->tile.bits);
    return tensor_dim + 1 == g->tile.rank ? total : tvm_pure(g->e, 'd', "shr.s64 $, %s, 3;", total.name);
}

/* An index, and the thread's part, along the dimension. */
static reg position_of(global_access *g, unsigned tensor_dim, uint32_t index) {
    enum when when;
    reg position = widen(g, index, &when);
    if (tensor_dim < g->tile.lead || !g->tile.part[tensor_dim - g->tile.lead].varies) return position;
    reg part = tvm_pure(g->e, 'd', "cvt.u64.u32 $, %s;", g->part[tensor_dim - g->tile.lead].name);
    return add64(g->e, when, position, part);
}

reg tvm_global_position(global_access *g, unsigned tensor_dim) {
    return position_of(g, tensor_dim, g->tile.index[tensor_dim].value);
}

/* value * stride of the dimension, in bytes; in bits >> 3 for the last dimension of sub-byte tensors. */
static reg scaled(global_access *g, unsigned d, reg value, enum when when) {
    emitter *e = g->e;
    bool is_unit = tvm_global_has_unit_step(&g->tile, d);
    if (is_unit && g->tile.bits == 8) return value;
    char factor[24];
    if (is_unit)
        snprintf(factor, sizeof factor, "%u", g->tile.bits > 8 ? g->tile.bits / 8 : g->tile.bits);
    else
        snprintf(factor, sizeof factor, "%s", stride_bytes(g, d).name);
    reg out = compute(e, when, "mul.lo.s64 $, %s, %s;", value.name, factor);
    return is_unit && g->tile.bits < 8 ? compute(e, when, "shr.s64 $, %s, 3;", out.name) : out;
}

/* Is a step along the dimension a constant number of bytes that 31 bits hold? */
static bool step_is_constant(const global_access *g, unsigned tensor_dim, int64_t *bytes) {
    int64_t step;
    uint64_t divisor;
    if (!tvm_global_find_step(&g->tile, tensor_dim, &step, &divisor) ||
        __builtin_mul_overflow(step, (int64_t)g->tile.bits, &step))
        return false;
    *bytes = step / 8;
    return step % 8 == 0 && *bytes <= INT32_MAX;
}

/* Index times step along the dimension, in bytes. */
static reg index_bytes(global_access *g, unsigned d, uint32_t expr) {
    emitter *e = g->e;
    int64_t step;
    enum when when = when_known(e, expr);
    if (when == HERE && is_narrow(e, expr) && step_is_constant(g, d, &step))
        return compute(e, HERE, "mul.wide.s32 $, %s, %" PRId64 ";", tvm_emit_expr(e, expr).name, step);
    reg index = widen(g, expr, &when);
    return scaled(g, d, index, when);
}

/* When the address of the tensor is known: of a view that is made at an index of the run, where it is made.
 */
static enum when when_placed(const global_access *g) {
    const tensor_place *place = &g->e->slots[g->tile.slot].place;
    const loop_frame *loop = tvm_innermost_loop(g->e);
    if (!place->moves) return AT_ENTRY;
    return loop && place->made_at < loop->scope ? BEFORE_LOOP : HERE;
}

/* sum + more, both of which may be nothing. */
static reg plus(emitter *e, enum when when, reg sum, reg more) {
    if (!sum.name[0]) return more;
    return more.name[0] ? add64(e, when, sum, more) : sum;
}

/* `sum`, and what of the tensor's address and the indices becomes known then. */
static reg add_known(global_access *g, enum when when, reg sum) {
    emitter *e = g->e;
    reg tensor = {""};
    if (when_placed(g) == when) memcpy(tensor.name, e->slots[g->tile.slot].reg, sizeof tensor.name);
    sum = plus(e, when, sum, tensor);
    for (unsigned d = 0; d < g->tile.tile_rank && when == AT_ENTRY; d++) {
        if (!g->tile.part[d].varies) continue;
        reg part = tvm_pure(e, 'd', "cvt.u64.u32 $, %s;", g->part[d].name);
        sum = plus(e, AT_ENTRY, sum, scaled(g, g->tile.lead + d, part, AT_ENTRY));
    }
    for (unsigned d = 0; d < g->tile.rank; d++) {
        int64_t value;
        if (tvm_global_is_tensor(&g->tile, d)) continue;
        uint32_t expr = tvm_global_far_index(&g->tile, d, &value);
        if (expr == TVM_NONE || when_known(e, expr) != when ||
            (tvm_fact_constant(e->k, expr, &value) && value == 0))
            continue;
        sum = plus(e, when, sum, index_bytes(g, d, expr));
    }
    return sum;
}

/* Tensor + thread parts + indices: what changes least first, so that it is computed once. What a loop changes
 * is kept apart. */
static void make_base(global_access *g) {
    bool in_loop = tvm_innermost_loop(g->e);
    reg address = add_known(g, AT_ENTRY, (reg){""});
    if (in_loop) address = add_known(g, BEFORE_LOOP, address);
    if (in_loop)
        g->moving = add_known(g, HERE, (reg){""});
    else
        address = add_known(g, HERE, address);
    g->base = address.name[0] ? address : tvm_pure(g->e, 'd', "mov.b64 $, 0;");
    g->has_base = true;
}

/* from + rows + bytes. */
static reg move_pointer(global_access *g, enum when when, reg from, const int64_t rows[TVM_MAX_RANK],
                        int64_t bytes) {
    for (unsigned d = 0; d < g->tile.tile_rank; d++) {
        if (rows[d] == 0) continue;
        reg step = stride_bytes(g, g->tile.lead + d);
        if (rows[d] != 1) step = tvm_pure(g->e, 'd', "mul.lo.s64 $, %s, %" PRId64 ";", step.name, rows[d]);
        from = add64(g->e, when, from, step);
    }
    return bytes == 0 ? from : compute(g->e, when, "add.s64 $, %s, %" PRId64 ";", from.name, bytes);
}

/* In a loop the first one is computed before it, and kept in a register; the others step on from the last
 * one: more kept ones would save nothing but cost registers. */
static reg new_pointer(global_access *g, const int64_t rows[TVM_MAX_RANK], int64_t bytes) {
    emitter *e = g->e;
    if (!g->moving.name[0]) return move_pointer(g, HERE, g->base, rows, bytes);
    if (g->pointer_count == 0) {
        reg start = tvm_hoist_kept(e, 'd', move_pointer(g, BEFORE_LOOP, g->base, rows, bytes));
        return add64(e, HERE, start, g->moving);
    }
    int64_t more[TVM_MAX_RANK];
    unsigned last = g->pointer_count - 1;
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) more[d] = rows[d] - g->pointers[last].rows[d];
    return move_pointer(g, HERE, g->pointers[last].value, more, bytes - g->pointers[last].bytes);
}

static reg pointer_to(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], int64_t bytes) {
    int64_t rows[TVM_MAX_RANK] = {0};
    if (!g->has_base) make_base(g);
    for (unsigned d = 0; d < g->tile.tile_rank; d++)
        if (!g->tile.constant_stride[g->tile.lead + d]) rows[d] = coordinate[d];
    for (unsigned i = 0; i < g->pointer_count; i++)
        if (g->pointers[i].bytes == bytes && memcmp(g->pointers[i].rows, rows, sizeof rows) == 0)
            return g->pointers[i].value;
    reg pointer = new_pointer(g, rows, bytes);
    if (g->pointer_count < GLOBAL_CACHE) {
        memcpy(g->pointers[g->pointer_count].rows, rows, sizeof rows);
        g->pointers[g->pointer_count].bytes = bytes;
        g->pointers[g->pointer_count++].value = pointer;
    }
    return pointer;
}

reg tvm_global_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK]) {
    return pointer_to(g, coordinate, 0);
}

reg tvm_global_near_pointer(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], int64_t *add_bytes) {
    enum { REACH = 4096 };
    int64_t bytes = tvm_global_offset(&g->tile, coordinate) * g->tile.bits / 8, first = bytes / REACH * REACH;
    *add_bytes = bytes - first - REACH / 2;
    /* One pointer a row is enough. */
    reg pointer = pointer_to(g, coordinate, REACH / 2);
    return first == 0 ? pointer : compute(g->e, HERE, "add.s64 $, %s, %" PRId64 ";", pointer.name, first);
}

/* ---- bounds ---- */

static reg bound_test(global_access *g, unsigned d, uint32_t first) {
    emitter *e = g->e;
    uint32_t index = g->tile.index[d].value, shape = tvm_global_shape(&g->tile, d);
    reg p = tvm_new_pred(e);
    bool narrow = is_narrow(e, index) && is_narrow(e, shape);
    const reg *part =
        d >= g->tile.lead && g->tile.part[d - g->tile.lead].varies ? &g->part[d - g->tile.lead] : NULL;
    /* Unsigned, a negative position is above every extent. */
    if (narrow) {
        int64_t value;
        bool constant = tvm_fact_constant(e->k, index, &value);
        reg at = constant ? tvm_pure(e, 'r', "mov.b32 $, %" PRId64 ";", value) : tvm_emit_expr(e, index);
        reg limit = tvm_emit_expr(e, shape);
        if (part && (constant || tvm_fact_stable(e->k, index))) {
            at = tvm_pure(e, 'r', "add.s32 $, %s, %s;", at.name, part->name);
        } else if (part) {
            reg sum = tvm_new_r(e);
            tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, at.name, part->name);
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
    enum when when;
    int64_t near;
    uint32_t far = tvm_global_far_index(&g->tile, d, &near);
    bool apart = far != TVM_NONE && e->k->kernel->exprs[far].type.bits == 64;
    reg at = position_of(g, d, apart ? far : index), limit = widen(g, shape, &when), sum = tvm_new_rd(e);
    tvm_emit(e, "add.s64 %s, %s, %" PRId64 ";", sum.name, at.name, first + (apart ? near : 0));
    tvm_emit(e, "setp.lt.u64 %s, %s, %s;", p.name, sum.name, limit.name);
    return p;
}

bool tvm_global_last(global_access *g, reg *at, reg *limit) {
    emitter *e = g->e;
    unsigned d = g->tile.rank - 1;
    uint32_t index = g->tile.index[d].value, shape = tvm_global_shape(&g->tile, d);
    enum when when;
    if (!is_narrow(e, index) || !is_narrow(e, shape)) {
        *at = tvm_global_position(g, d);
        *limit = widen(g, shape, &when);
        return true;
    }
    const reg *part = &g->part[d - g->tile.lead];
    int64_t value;
    bool constant = tvm_fact_constant(e->k, index, &value);
    *at = constant ? tvm_pure(e, 'r', "mov.b32 $, %" PRId64 ";", value) : tvm_emit_expr(e, index);
    *limit = tvm_emit_expr(e, shape);
    if (!g->tile.part[d - g->tile.lead].varies) return false;
    reg sum = tvm_new_r(e);
    tvm_emit(e, "add.s32 %s, %s, %s;", sum.name, at->name, part->name);
    *at = sum;
    return false;
}

bool tvm_global_guard_bytes(global_access *g) {
    return tvm_emit_byte_guard(g->e, g->tile.index[g->tile.rank - 1].value, g->tile.bits);
}

reg tvm_global_element(global_access *g, unsigned d, reg index, bool is_wide, reg *inside) {
    emitter *e = g->e;
    uint32_t shape = tvm_global_shape(&g->tile, d);
    bool narrow_test = !is_wide && is_narrow(e, shape);
    int64_t step;
    enum when when;
    reg at = index;
    *inside = tvm_new_pred(e);
    if (narrow_test)
        tvm_emit(e, "setp.lt.u32 %s, %s, %s;", inside->name, index.name, tvm_emit_expr(e, shape).name);
    if (narrow_test && step_is_constant(g, d, &step))
        return compute(e, HERE, "mul.wide.s32 $, %s, %" PRId64 ";", index.name, step);
    if (!is_wide) at = compute(e, HERE, "cvt.s64.s32 $, %s;", index.name);
    if (!narrow_test)
        tvm_emit(e, "setp.lt.u64 %s, %s, %s;", inside->name, at.name, widen(g, shape, &when).name);
    return scaled(g, d, at, HERE);
}

bool tvm_global_predicate(global_access *g, const uint32_t coordinate[TVM_MAX_RANK], reg *out) {
    emitter *e = g->e;
    bool any = false;
    for (unsigned d = 0; d < g->tile.rank; d++) {
        if (g->tile.proven[d]) continue;
        uint32_t granule = tvm_global_granule(&g->tile, d, coordinate);
        unsigned i = 0;
        while (i < g->predicate_count && (g->predicates[i].dim != d || g->predicates[i].granule != granule))
            i++;
        reg p;
        if (i < g->predicate_count) {
            p = g->predicates[i].value;
        } else {
            p = bound_test(g, d, (uint32_t)(granule * g->tile.granule[d]));
            if (i < GLOBAL_CACHE) {
                g->predicates[i].dim = d;
                g->predicates[i].granule = granule;
                g->predicates[i].value = p;
                g->predicate_count++;
            }
        }
        *out = any ? tvm_both(e, *out, p) : p;
        any = true;
    }
    return any;
}
