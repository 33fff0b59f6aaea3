/* wgmma, and what has to wait for it: see wgmma.h. */
#include <stdio.h>
#include <string.h>

#include "barrier.h"
#include "caches.h"
#include "compute.h"
#include "scaled.h"
#include "uses.h"
#include "wgmma_impl.h"

enum { SUMS_TEXT = WGMMA_COLUMNS * 4 * (sizeof(reg) + 2) }; /* registers of one wgmma's d, as text */

/* The thread's warpgroup's part of the linear offset. */
static reg group_offset(emitter *e, const products *all, const shared_tile *tile, const tvm_layout *layout) {
    reg sum = tvm_pure(e, 'r', "mov.b32 $, 0;");
    if (!all->varies) return sum;
    reg thread =
        tvm_pure(e, 'r', "and.b32 $, %s, %u;", tvm_thread_id(e).name, TVM_MAX_THREADS - WGMMA_THREADS);
    for (unsigned d = 0; d < tile->tile_rank; d++) {
        reg at;
        if (!tvm_coordinate_of(e, layout, d, thread, &at) || !tvm_shared_part(tile, d, at, &at)) continue;
        sum = tvm_pure(e, 'r', "add.u32 $, %s, %s;", sum.name, at.name);
    }
    /* The same in all lanes, which ptxas would not know: descriptors are in uniform registers. */
    return tvm_pure(e, 'r', "redux.sync.or.b32 $, %s, 0xffffffff;", sum.name);
}

/* The matrix descriptor (PTX ISA, "Matrix Descriptor Format") but for the constant part of the address, in
 * units of 16 bytes: lower half. A shared address has 18 bits at most; without the constant part it may be
 * negative. */
static reg descriptor(emitter *e, const products *all, shared_tile *tile, const tvm_layout *layout) {
    reg bytes = tvm_pure_scale(e, group_offset(e, all, tile, layout), 2);
    reg start = tvm_pure(e, 'r', "add.s32 $, %s, %s;", bytes.name, tvm_shared_base(e).name);
    if (!tile->has_dynamic) return tvm_pure(e, 'r', "shr.s32 $, %s, 4;", start.name);
    reg address = tvm_new_r(e), out = tvm_new_r(e);
    tvm_emit(e, "mad.lo.s32 %s, %s, 2, %s;", address.name, tvm_shared_dynamic(tile).name, start.name);
    tvm_emit(e, "shr.s32 %s, %s, 4;", out.name, address.name);
    return out;
}

static reg descriptor_at(emitter *e, const shared_tile *tile, reg low, uint32_t offset) {
    /* swizzle of 128 bytes; 1024 bytes from 8 rows to the next; the leading offset is not used, but 1 */
    enum { HIGH = 1 << 30 | 1024 >> 4, LOW = 1 << 16 };
    uint32_t start = e->slots[tile->slot].shared_offset + (tile->constant + offset) * 2;
    reg at = tvm_new_r(e), out = tvm_new_rd(e);
    tvm_emit(e, "add.s32 %s, %s, %u;", at.name, low.name, LOW + (start >> 4));
    tvm_emit(e, "mov.b64 %s, {%s, %s};", out.name, at.name, tvm_pure(e, 'r', "mov.b32 $, %d;", HIGH).name);
    return out;
}

/* One wgmma: `sums`, the registers of d, are a list of 4 for each of `columns` eights of columns. */
static void emit_one(emitter *e, const char *type, uint32_t columns, const char *sums, const reg a[4],
                     reg where, bool zero) {
    tvm_emit(e, "wgmma.mma_async.sync.aligned.m64n%uk16.f32.%s.%s {%s}, {%s, %s, %s, %s}, %s, %s, 1, 1, 0;",
             8 * columns, type, type, sums, a[0].name, a[1].name, a[2].name, a[3].name, where.name,
             tvm_pure(e, 'p', "setp.ne.u32 $, %d, 0;", !zero).name);
}

static void emit_product(emitter *e, const product *t, const products *all, uint32_t f, uint32_t k, reg where,
                         bool zero) {
    char sums[SUMS_TEXT];
    size_t used = 0;
    for (const product *of = t; of < t + t->joined; of++)
        for (uint32_t i = 0; i < all->columns * 4; i++) {
            uint32_t tile = all->tile_c[f * all->columns + i / 4];
            reg d = tvm_slot_word(e, slot_sums(e, of), tile * 4 + i % 4);
            used += (size_t)snprintf(sums + used, sizeof sums - used, "%s%s", used ? ", " : "", d.name);
        }
    uint32_t slot = operands_of(e, t)->a, tile_a = all->tile_a[f * all->steps + k];
    reg a[4];
    for (unsigned i = 0; i < 4; i++) a[i] = tvm_slot_word(e, slot, 4 * tile_a + i);
    emit_one(e, tvm_slot_dtype(e, slot).exponent == 5 ? "f16" : "bf16", t->joined * all->columns, sums, a,
             where, zero);
}

/* ---- what scaled weights have not had subtracted: scaled.h ---- */

/* The sums of b's columns over k: a fragment of ones times b. */
typedef struct column_sums {
    bool needed;
    reg one; /* two ones: assigned before the wgmma.fence, as a is */
    reg words[WGMMA_COLUMNS][4];
} column_sums;

static void begin_columns(emitter *e, const product *t, uint32_t columns, column_sums *ones) {
    const scaled_weights *scaled = &e->slots[operands_of(e, t)->a].scaled;
    ones->needed = scaled->is_scaled && scaled->zero != 0;
    if (ones->needed) ones->one = tvm_constant_word(e, 0x3c003c00);
    for (uint32_t i = 0; i < 4 * columns && ones->needed; i++) ones->words[i / 4][i % 4] = tvm_new_r(e);
}

static void step_columns(emitter *e, uint32_t columns, const column_sums *ones, reg where, bool zero) {
    char sums[SUMS_TEXT];
    size_t used = 0;
    if (!ones->needed) return;
    for (uint32_t i = 0; i < columns * 4; i++)
        used += (size_t)snprintf(sums + used, sizeof sums - used, "%s%s", used ? ", " : "",
                                 ones->words[i / 4][i % 4].name);
    const reg a[4] = {ones->one, ones->one, ones->one, ones->one};
    emit_one(e, "f16", columns, sums, a, where, zero);
}

static void subtract_columns(emitter *e, const product *t, const products *all, const column_sums *ones) {
    if (!ones->needed) return;
    tvm_wgmma_drain(e);
    for (uint32_t j = 0; j < t->joined; j++)
        for (uint32_t i = 0; i < all->fragments * all->columns; i++)
            tvm_subtract_zero(e, slot_sums(e, &t[j]), all->tile_c[i],
                              ones->words[j * all->columns + i % all->columns]);
}

static void subtract_nested(emitter *e, const product *t) {
    const mma_operands *o = operands_of(e, t);
    if (!e->slots[o->a].scaled.nested) return;
    tvm_wgmma_drain(e);
    for (const product *of = t; of < t + t->joined; of++) tvm_subtract_nested(e, slot_sums(e, of), &o->plan);
}

/* ---- the instruction ---- */

/* Are all sums zero at the beginning? Else they are what c is. */
static bool begin_sums(emitter *e, const product *t) {
    bool zero = true;
    for (const product *of = t; of < t + t->joined; of++)
        zero = zero && tvm_slot_is_zero(e, operands_of(e, of)->mma.c);
    for (const product *of = t; of < t + t->joined && !zero; of++) {
        uint32_t c = operands_of(e, of)->mma.c, result = slot_sums(e, of);
        for (uint32_t i = 0; i < e->slots[c].words && c != result; i++)
            tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, result, i).name, tvm_slot_word(e, c, i).name);
    }
    return zero;
}

/* Each step of k is a group, and the one before the last is waited for: ptxas then converts weights of the
 * next step while the tensor cores do this one, and needs registers for those of two steps only. */
static void emit_products(emitter *e, const product *t) {
    const products *all = &t->all;
    const mma_operands *o = operands_of(e, t);
    const tvm_operand *tensor = o->mma.b.tensor;
    uint32_t columns = t->joined * all->columns;
    column_sums ones;
    shared_tile tile;
    tvm_shared_open_layout(e, &tile, tensor->value, tensor + 1, &o->tile_b);
    bool zero = begin_sums(e, t);
    begin_columns(e, t, columns, &ones);
    reg low = descriptor(e, all, &tile, &o->tile_b);
    for (uint32_t k = 0; k < all->steps; k++) {
        tvm_emit(e, "wgmma.fence.sync.aligned;");
        reg where = descriptor_at(e, &tile, low, all->offset[k]);
        step_columns(e, columns, &ones, where, k == 0);
        for (uint32_t f = 0; f < all->fragments; f++) emit_product(e, t, all, f, k, where, zero && k == 0);
        tvm_emit(e, "wgmma.commit_group.sync.aligned;");
        if (tvm_wgmma_start(e, (uint32_t)(t - e->wgmma->products)))
            tvm_emit(e, "wgmma.wait_group.sync.aligned 1;");
    }
    subtract_nested(e, t);
    subtract_columns(e, t, all, &ones);
}

/* The tiles of shared tensors that are b. */
static bool guard_tiles(emitter *e, const product *t) {
    bool guarded = false;
    for (const product *of = t; of < t + t->joined; of++) {
        const mma_operands *o = operands_of(e, of);
        const tvm_operand *b = o->mma.b.tensor;
        guarded = tvm_shared_guard(e, b->value, b + 1, o->tile_b.rank, o->tile_b.shape) || guarded;
    }
    return guarded;
}

tvm_status tvm_emit_wgmma(emitter *e, const tvm_insn *insn) {
    struct wgmma_state *s = e->wgmma;
    const product *t = &s->products[s->product[insn_number(e, insn)] - 1];
    const mma_operands *o = operands_of(e, t);
    if (o->mma.a.is_shared) {
        tvm_status status = tvm_emit_load_tile(e, o->mma.a.tensor, &o->tile_a, o->a);
        if (status != TVM_OK) return status;
    }
    char name[64];
    bool guarded = guard_tiles(e, t);
    emit_products(e, t);
    snprintf(name, sizeof name, "wgmma.m64n%uk16.f32%s", 8 * t->joined * t->all.columns,
             guarded ? " guarded" : "");
    tvm_explain(e, name, 0, t->all.steps * t->all.fragments, -1, "");
    return TVM_OK;
}

/* ---- stores ---- */

void tvm_wgmma_stored(emitter *e, const tvm_layout *layout) {
    if (e->wgmma->used && tvm_layout_replication(layout) > 1) tvm_emit_barrier(e);
}
