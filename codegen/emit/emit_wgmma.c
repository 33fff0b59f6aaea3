/* wgmma: see plan/wgmma.h. */
#include "emit_wgmma.h"

#include <stdio.h>
#include <string.h>

#include "barrier.h"
#include "numbers.h"
#include "compute.h"
#include "mma_text.h"
#include "scaled_sums.h"
#include "shared_access.h"
#include "uses.h"
#include "wgmma_wait.h"
#include "wgmma_impl.h"

enum { SUMS_TEXT = WGMMA_COLUMNS * 4 * (sizeof(reg) + 2) }; /* registers of one wgmma's d, as text */

/* ---- descriptors ---- */

/* The thread's warpgroup's part of the linear offset. */
static reg group_offset(emitter *e, const wgmma_operand *o, const wgmma_matrix *matrix) {
    reg sum = tvm_pure(e, 'r', "mov.b32 $, 0;");
    if (!matrix->varies) return sum;
    reg thread =
        tvm_pure(e, 'r', "and.b32 $, %s, %u;", tvm_thread_id(e).name, TVM_MAX_THREADS - WGMMA_THREADS);
    for (unsigned d = 0; d < o->tile.tile_rank; d++) {
        reg at;
        if (!tvm_coordinate_of(e, o->layout, d, thread, &at) || !tvm_shared_part(e, &o->tile, d, at, &at))
            continue;
        sum = tvm_pure(e, 'r', "add.u32 $, %s, %s;", sum.name, at.name);
    }
    /* The same in all lanes, which ptxas would not know: descriptors are in uniform registers. */
    return tvm_pure(e, 'r', "redux.sync.or.b32 $, %s, 0xffffffff;", sum.name);
}

/* In units of 16 bytes; without the constant part it may be negative. Of a matrix with k last under a swizzle nobody
 * reads the leading offset, so that the number of a cluster's block may stand there: kernels with clusters that have
 * no other ones have no register to spare for the base without it. */
static reg descriptor_base(emitter *e, const wgmma_operand *o, const wgmma_matrix *matrix) {
    shared_access access = {.e = e, .tile = o->tile};
    reg bytes = tvm_pure_scale(e, group_offset(e, o, matrix), o->tile.bytes);
    bool is_leading_read = matrix->is_transposed || matrix->width <= 16;
    reg base = is_leading_read ? tvm_matrix_base(e) : tvm_shared_base(e);
    reg start = tvm_pure(e, 'r', "add.s32 $, %s, %s;", bytes.name, base.name);
    if (!o->tile.has_dynamic) return tvm_pure(e, 'r', "shr.s32 $, %s, 4;", start.name);
    reg address = tvm_new_r(e), out = tvm_new_r(e);
    tvm_emit(e, "mad.lo.s32 %s, %s, %u, %s;", address.name, tvm_shared_dynamic(&access).name, o->tile.bytes,
             start.name);
    tvm_emit(e, "shr.s32 %s, %s, 4;", out.name, address.name);
    return out;
}

/* PTX ISA, "Matrix Descriptor Format"; the base offset is 0, as tensors begin where a swizzle does. */
static reg descriptor(emitter *e, const wgmma_operand *o, const wgmma_matrix *matrix, reg base,
                      uint32_t offset) {
    static const uint32_t modes[] = {0, 3, 2, 1}; /* 16 bytes, 32, 64, 128 */
    uint32_t mode = modes[tvm_log2_floor(matrix->width / 16)];
    uint32_t start = e->k->slots[o->tile.slot].shared_offset + o->tile.constant * o->tile.bytes + offset;
    uint32_t low = (matrix->leading >> 4 << 16) + (uint32_t)((int32_t)start / 16);
    uint32_t high = mode << 30 | matrix->stride >> 4;
    reg at = tvm_new_r(e), out = tvm_new_rd(e);
    tvm_emit(e, "add.s32 %s, %s, %u;", at.name, base.name, low);
    tvm_emit(e, "mov.b64 %s, {%s, %s};", out.name, at.name, tvm_pure(e, 'r', "mov.b32 $, %u;", high).name);
    return out;
}

/* ---- one wgmma ---- */

/* `a`: four registers, or the name of a descriptor alone. */
typedef struct wgmma_source {
    reg a[4];
    bool a_is_shared, transposes_a, transposes_b;
    reg b;
} wgmma_source;

/* `sums`, the registers of d, are a list of words_c for each of `columns` eights of columns. Operands of 16
 * bits may be transposed; integers have no signs to change. */
static void emit_one(emitter *e, const tvm_mma_types *types, uint32_t columns, const char *sums,
                     const wgmma_source *s, bool zero) {
    char a[4 * sizeof(reg) + 16], flags[16] = "";
    if (s->a_is_shared)
        snprintf(a, sizeof a, "%s", s->a[0].name);
    else
        snprintf(a, sizeof a, "{%s, %s, %s, %s}", s->a[0].name, s->a[1].name, s->a[2].name, s->a[3].name);
    if (types->a.bits == 16)
        snprintf(flags, sizeof flags, "%s, %d",
                 !s->a_is_shared   ? ""
                 : s->transposes_a ? ", 1"
                                   : ", 0",
                 s->transposes_b);
    tvm_emit(e, "wgmma.mma_async.sync.aligned.m64n%uk%u.%s.%s.%s {%s}, %s, %s, %s%s%s;", 8 * columns,
             types->atoms->k, tvm_mma_type_name(types->c), tvm_mma_type_name(types->a),
             tvm_mma_type_name(types->b), sums, a, s->b.name,
             tvm_pure(e, 'p', "setp.ne.u32 $, %d, 0;", !zero).name,
             types->sums == TVM_MMA_I32 ? "" : ", 1, 1", flags);
}

/* Of `count` eights of columns from `first` on, of all joined products. */
static void emit_product(emitter *e, const product *t, uint32_t f, uint32_t k, uint32_t first, uint32_t count,
                         wgmma_source *source, bool zero) {
    const products *all = &t->all;
    const mma_operands *o = operands_of(e->k, t);
    char sums[SUMS_TEXT];
    size_t used = 0;
    for (uint32_t i = 0; i < count * o->words_c; i++) {
        uint32_t column = first + i / o->words_c;
        uint32_t tile = all->tile_c[f * all->columns + column % all->columns];
        reg d =
            tvm_slot_word(e, slot_sums(e->k, t + column / all->columns), tile * o->words_c + i % o->words_c);
        used += (size_t)snprintf(sums + used, sizeof sums - used, "%s%s", used ? ", " : "", d.name);
    }
    uint32_t tile_a = all->tile_a[f * all->steps + k];
    for (unsigned i = 0; i < 4 && !all->a_is_shared; i++)
        source->a[i] = tvm_slot_word(e, o->a, 4 * tile_a + i);
    emit_one(e, o->mma.types, count, sums, source, zero);
}

/* ---- what scaled weights have not had subtracted: scaled.h ---- */

/* The sums of b's columns over k: a fragment of ones times b. */
typedef struct column_sums {
    bool needed;
    reg one; /* two ones: assigned before the wgmma.fence, as a is */
    reg words[WGMMA_COLUMNS][4];
} column_sums;

static void begin_columns(emitter *e, const product *t, uint32_t columns, column_sums *ones) {
    const scaled_weights *scaled = &e->k->slots[operands_of(e->k, t)->a].scaled;
    ones->needed = scaled->is_scaled && scaled->zero != 0;
    if (ones->needed) ones->one = tvm_constant_word(e, 0x3c003c00);
    for (uint32_t i = 0; i < 4 * columns && ones->needed; i++) ones->words[i / 4][i % 4] = tvm_new_r(e);
}

static void step_columns(emitter *e, const product *t, uint32_t columns, const column_sums *ones, reg where,
                         bool zero) {
    char sums[SUMS_TEXT];
    size_t used = 0;
    if (!ones->needed) return;
    for (uint32_t i = 0; i < columns * 4; i++)
        used += (size_t)snprintf(sums + used, sizeof sums - used, "%s%s", used ? ", " : "",
                                 ones->words[i / 4][i % 4].name);
    const wgmma_source source = {.a = {ones->one, ones->one, ones->one, ones->one}, .b = where};
    emit_one(e, operands_of(e->k, t)->mma.types, columns, sums, &source, zero);
}

static void subtract_columns(emitter *e, const product *t, const products *all, const column_sums *ones) {
    if (!ones->needed) return;
    tvm_wgmma_drain(e);
    for (uint32_t j = 0; j < t->joined; j++)
        for (uint32_t i = 0; i < all->fragments * all->columns; i++)
            tvm_subtract_zero(e, slot_sums(e->k, &t[j]), all->tile_c[i],
                              ones->words[j * all->columns + i % all->columns]);
}

static void subtract_nested(emitter *e, const product *t) {
    const mma_operands *o = operands_of(e->k, t);
    if (!e->k->slots[o->a].scaled.nested) return;
    tvm_wgmma_drain(e);
    for (const product *of = t; of < t + t->joined; of++)
        tvm_subtract_nested(e, slot_sums(e->k, of), &o->plan);
}

/* ---- the instruction ---- */

/* Are all sums zero at the beginning? Else they are what c is. */
static bool begin_sums(emitter *e, const product *t) {
    bool zero = true;
    for (const product *of = t; of < t + t->joined; of++)
        zero = zero && tvm_slot_is_zero(e->k, operands_of(e->k, of)->mma.c);
    for (const product *of = t; of < t + t->joined && !zero; of++) {
        uint32_t c = operands_of(e->k, of)->mma.c, result = slot_sums(e->k, of);
        for (uint32_t i = 0; i < e->slots[c].words && c != result; i++)
            tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, result, i).name, tvm_slot_word(e, c, i).name);
    }
    return zero;
}

/* How many eights of columns one wgmma takes, of as many that are left: of integers, of more than 32 columns
 * a multiple of 16. */
static uint32_t columns_of_one(const tvm_mma_types *types, uint32_t left) {
    return types->sums == TVM_MMA_I32 && left > 4 ? left & ~1u : left;
}

/* fence PRODUCT: those of step k. */
static void emit_step(emitter *e, const product *t, uint32_t k, const reg base[2], const wgmma_operand *a,
                      const wgmma_operand *b, bool zero, const column_sums *ones) {
    const products *all = &t->all;
    wgmma_source source = {.a_is_shared = all->a_is_shared,
                           .transposes_a = all->a.is_transposed,
                           .transposes_b = all->b.is_transposed};
    uint32_t columns = t->joined * all->columns, count;
    for (uint32_t first = 0; first < columns; first += count) {
        count = columns_of_one(operands_of(e->k, t)->mma.types, columns - first);
        source.b = descriptor(e, b, &all->b, base[1], all->at_b[k] + first * all->b.stride);
        if (first == 0) step_columns(e, t, columns, ones, source.b, k == 0);
        for (uint32_t f = 0; f < all->fragments; f++) {
            if (all->a_is_shared)
                source.a[0] = descriptor(e, a, &all->a, base[0], all->at_a[f * all->steps + k]);
            /* ptxas 13.0 makes one wgmma of two behind one fence whose fragments of a are the same values,
             * and of whose sums the first is only written: the other's sums are then never made */
            else if (f > 0 && zero && k == 0)
                tvm_emit(e, "wgmma.fence.sync.aligned;");
            emit_product(e, t, f, k, first, count, &source, zero && k == 0);
        }
    }
}

/* fence PRODUCT. A group, or one a step: wgmma_waits.c. */
static void emit_products(emitter *e, const product *t) {
    const products *all = &t->all;
    const mma_operands *o = operands_of(e->k, t);
    column_sums ones;
    wgmma_operand a, b;
    reg base[2];
    bool zero = begin_sums(e, t);
    begin_columns(e, t, t->joined * all->columns, &ones);
    tvm_wgmma_open(e->k, o, false, &b);
    base[1] = descriptor_base(e, &b, &all->b);
    if (all->a_is_shared) {
        tvm_wgmma_open(e->k, o, true, &a);
        base[0] = descriptor_base(e, &a, &all->a);
    }
    for (uint32_t k = 0; k < all->steps; k++) {
        if (k == 0 || t->is_paced) tvm_emit(e, "wgmma.fence.sync.aligned;");
        emit_step(e, t, k, base, &a, &b, zero, &ones);
        if (k + 1 < all->steps && !t->is_paced) continue;
        tvm_emit(e, "wgmma.commit_group.sync.aligned;");
        if (tvm_wgmma_start(e, (uint32_t)(t - e->k->wgmma->products)) && t->is_paced) tvm_wgmma_pace(e);
    }
    subtract_nested(e, t);
    subtract_columns(e, t, all, &ones);
}

static bool guard_tile(emitter *e, const tvm_mma_source *source, const tvm_layout *tile) {
    return tvm_shared_guard(e, source->slot, source->tensor + 1, tile->rank, tile->shape);
}

/* The tiles of shared tensors that are read where they lie; those that are loaded are guarded there. */
static bool guard_tiles(emitter *e, const product *t) {
    const mma_operands *first = operands_of(e->k, t);
    bool guarded = t->all.a_is_shared && guard_tile(e, &first->mma.a, &first->tile_a);
    for (const product *of = t; of < t + t->joined; of++) {
        const mma_operands *o = operands_of(e->k, of);
        guarded = guard_tile(e, &o->mma.b, &o->tile_b) || guarded;
    }
    return guarded;
}

tvm_status tvm_emit_wgmma(emitter *e, const tvm_insn *insn) {
    const struct wgmma_plan *s = e->k->wgmma;
    const product *t = &s->products[s->product[insn_number(e->k, insn)] - 1];
    const mma_operands *o = operands_of(e->k, t);
    if (t->why_a) {
        tvm_status status = tvm_emit_load_tile(e, o->mma.a.tensor, &o->tile_a, o->a);
        if (status != TVM_OK) return status;
    }
    const tvm_mma_types *types = o->mma.types;
    bool mixed = !tvm_dtype_same(types->a, types->b);
    if (mixed) e->ptx_version = 84;
    char name[96], why[160] = "";
    bool guarded = guard_tiles(e, t);
    emit_products(e, t);
    if (t->why_a) snprintf(why, sizeof why, "a from shared memory: %s", t->why_a);
    snprintf(name, sizeof name, "wgmma.m64n%uk%u.%s.%s%s%s%s%s", 8 * t->joined * t->all.columns,
             types->atoms->k, tvm_mma_type_name(types->c), tvm_mma_type_name(types->a), mixed ? "." : "",
             mixed ? tvm_mma_type_name(types->b) : "", t->all.a_is_shared ? " of shared a" : "",
             guarded ? " guarded" : "");
    tvm_explain(e, name, 0, t->all.steps * t->all.fragments, -1, why);
    return TVM_OK;
}

/* ---- stores ---- */

void tvm_wgmma_stored(emitter *e, const tvm_layout *layout) {
    if (e->k->wgmma->used && tvm_layout_replication(layout) > 1) tvm_emit_barrier(e);
}
