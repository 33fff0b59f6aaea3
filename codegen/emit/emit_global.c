/* load-global, store-global, put-global and take-global. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "barrier.h"
#include "emit.h"
#include "global_transfer.h"
#include "turns_emit.h"

/* ---- sub-byte elements that may begin anywhere in a byte ---- */

/* For the elements whose constant part is `rest` bits beyond a byte: the byte that the thread's part leads
 * to, and the shift. */
typedef struct bit_base {
    bool made;
    reg byte;    /* %rd, from the row's start */
    reg shift;   /* %r */
    reg crosses; /* %p: the element lies in two bytes */
} bit_base;

static void make_bit_base(transfer *t, unsigned rest, bit_base *out) {
    global_access *g = &t->g;
    emitter *e = g->e;
    reg position = tvm_global_position(g, g->tile.rank - 1), bit = tvm_new_rd(e), low = tvm_new_rd(e),
        narrow = tvm_new_r(e);
    out->byte = tvm_new_rd(e);
    out->shift = tvm_new_r(e);
    out->crosses = tvm_new_pred(e);
    tvm_emit(e, "mad.lo.s64 %s, %s, %u, %u;", bit.name, position.name, g->tile.bits, rest);
    tvm_emit(e, "shr.s64 %s, %s, 3;", out->byte.name, bit.name);
    tvm_emit(e, "and.b64 %s, %s, 7;", low.name, bit.name);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, low.name);
    tvm_emit(e, "mov.b32 %s, %s;", out->shift.name, narrow.name);
    tvm_emit(e, "setp.gt.u32 %s, %s, %u;", out->crosses.name, narrow.name, 8 - g->tile.bits);
    out->made = true;
}

/* The address of the row: everything but the last dimension. */
static reg row_pointer(transfer *t, const uint32_t coordinate[TVM_MAX_RANK]) {
    global_access *g = &t->g;
    emitter *e = g->e;
    reg address = {""};
    memcpy(address.name, e->slots[g->tile.slot].reg, sizeof address.name);
    for (unsigned d = 0; d + 1 < g->tile.rank; d++) {
        reg position = tvm_global_position(g, d), stride = tvm_global_stride(g, d);
        reg at = tvm_new_rd(e), bits = tvm_new_rd(e), bytes = tvm_new_rd(e), next = tvm_new_rd(e);
        tvm_emit(e, "add.s64 %s, %s, %u;", at.name, position.name,
                 d >= g->tile.lead ? coordinate[d - g->tile.lead] : 0U);
        tvm_emit(e, "mul.lo.s64 %s, %s, %s;", bits.name, at.name, stride.name);
        tvm_emit(e, "mul.lo.s64 %s, %s, %u;", bits.name, bits.name, g->tile.bits);
        tvm_emit(e, "shr.s64 %s, %s, 3;", bytes.name, bits.name);
        tvm_emit(e, "add.s64 %s, %s, %s;", next.name, address.name, bytes.name);
        address = next;
    }
    return address;
}

static bool same_row(const global_access *g, const uint32_t a[TVM_MAX_RANK], const uint32_t b[TVM_MAX_RANK]) {
    return memcmp(a, b, (g->tile.tile_rank - 1) * sizeof *a) == 0;
}

static reg load_bits(transfer *t, const bit_base *base, reg row, uint32_t whole, const char *guard) {
    emitter *e = t->g.e;
    unsigned bits = t->g.tile.bits;
    reg address = tvm_new_rd(e), first = tvm_new_r(e), value = tvm_new_r(e);
    tvm_emit(e, "add.s64 %s, %s, %s;", address.name, row.name, base->byte.name);
    tvm_emit(e, "mov.b32 %s, 0;", first.name);
    tvm_emit(e, "%sld.global.u8 %s, [%s+%u];", guard, first.name, address.name, whole);
    if ((bits & (bits - 1)) != 0) {
        reg second = tvm_new_r(e), both = tvm_new_r(e), p = base->crosses;
        if (guard[0]) {
            char guard_name[16];
            sscanf(guard, "@%15s", guard_name);
            p = tvm_new_pred(e);
            tvm_emit(e, "and.pred %s, %s, %s;", p.name, base->crosses.name, guard_name);
        }
        tvm_emit(e, "mov.b32 %s, 0;", second.name);
        tvm_emit(e, "@%s ld.global.u8 %s, [%s+%u];", p.name, second.name, address.name, whole + 1);
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x3240;", both.name, first.name, second.name);
        first = both;
    }
    tvm_emit(e, "shr.u32 %s, %s, %s;", value.name, first.name, base->shift.name);
    reg code = tvm_new_r(e);
    tvm_emit(e, "and.b32 %s, %s, %u;", code.name, value.name, (1U << bits) - 1);
    return code;
}

static tvm_status load_by_element(emitter *e, transfer *t) {
    global_access *g = &t->g;
    bit_base bases[8] = {{0}};
    element_writer writer;
    reg row = {""};
    uint32_t row_at[TVM_MAX_RANK] = {0};
    if (!tvm_write_begin(e, &writer, t->slot)) return TVM_NO_MEMORY;
    for (uint32_t i = 0; i < t->map.locals; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        tvm_transfer_coordinate(t, i, coordinate);
        uint32_t bit = coordinate[g->tile.tile_rank - 1] * g->tile.bits;
        bit_base *base = &bases[bit % 8];
        if (!base->made) make_bit_base(t, bit % 8, base);
        if (!row.name[0] || !same_row(g, coordinate, row_at)) row = row_pointer(t, coordinate);
        memcpy(row_at, coordinate, sizeof row_at);
        reg predicate;
        char guard[20] = "";
        if (tvm_global_predicate(g, coordinate, &predicate))
            snprintf(guard, sizeof guard, "@%s ", predicate.name);
        tvm_write_element(e, &writer, load_bits(t, base, row, bit / 8, guard));
    }
    tvm_write_end(e, &writer);
    bool crosses = (g->tile.bits & (g->tile.bits - 1)) != 0;
    tvm_explain(e, "ld.global.u8 by element", 8, t->map.locals << crosses, -1,
                "ld.global.v4.b32: a thread's elements begin inside bytes");
    return TVM_OK;
}

/* The operand after the tensor's indices. */
static const tvm_operand *after_indices(const emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    return operands + 1 + e->k->kernel->slots[operands->value].rank;
}

/* An operand that came later, at this one after the indices; NULL: bytecode of before there were any. */
static const tvm_operand *later(const emitter *e, const tvm_insn *insn, unsigned at) {
    const tvm_operand *operand = after_indices(e, insn) + at;
    return operand < tvm_operands(e->k->kernel, insn) + insn->count ? operand : NULL;
}

tvm_status tvm_emit_LOAD_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    tvm_status status =
        tvm_transfer_open(e, &t, tvm_operands(e->k->kernel, insn), insn->result, false, later(e, insn, 1));
    if (status == TVM_OK) {
        unsigned align = tvm_transfer_alignment(&t);
        t.hint = tvm_cache_hint(e, after_indices(e, insn));
        tvm_transfer_fill(e, &t, later(e, insn, 2));
        status = align >= 8 ? tvm_transfer_load_all(e, &t, align) : load_by_element(e, &t);
    }
    tvm_transfer_close(&t);
    return status;
}

/* Its address is a parameter. */
tvm_status tvm_emit_ALLOC_GLOBAL(emitter *e, const tvm_insn *insn) {
    (void)e, (void)insn;
    return TVM_OK;
}

/* ---- store ---- */

/* The verifier has seen to it that runs are whole bytes. */
static unsigned store_alignment(const transfer *t) {
    unsigned align = tvm_transfer_alignment(t);
    return align < 8 ? 8 : align;
}

tvm_status tvm_emit_STORE_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    tvm_status status = tvm_transfer_open(e, &t, tvm_operands(e->k->kernel, insn),
                                          after_indices(e, insn)->value, true, later(e, insn, 1));
    if (status == TVM_OK) {
        t.traps = tvm_global_guard_bytes(&t.g);
        status = tvm_transfer_store_all(e, &t, store_alignment(&t));
    }
    tvm_transfer_close(&t);
    return status;
}

/* ---- put and take ---- */

static bool is_for_peers(const tvm_operand *scope) {
    return scope && scope->kind == TVM_OPERAND_CONST && scope->value == TVM_SCOPE_SYS;
}

/* fence EXCHANGE: an element is there when its word is not zero, so that nothing else needs to be ordered.
 * What is put is taken in the same launch: it stays in the L2 cache, where else it would be written to memory
 * among the reads of what the kernel streams. fence EXCHANGE_PEERS: of another device, whose cache has no
 * such priority for this one's writes. */
static void set_exchange(emitter *e, transfer *t, const tvm_operand *scope) {
    static const tvm_operand last = {.kind = TVM_OPERAND_CONST, .value = TVM_EVICT_LAST};
    t->order = is_for_peers(scope) ? ".relaxed.sys" : ".relaxed.gpu";
    if (!is_for_peers(scope)) t->hint = tvm_cache_hint(e, &last);
}

static void explain_exchange(emitter *e, const transfer *t, const access_plan *plan, unsigned align,
                             const char *verb) {
    char name[60], refused[200], what[40];
    snprintf(what, sizeof what, "%s%s.global", verb, t->order);
    tvm_transfer_refusal(t, plan, align, what, refused);
    snprintf(name, sizeof name, "%s.%s%s", what, tvm_access_type(plan->widest),
             tvm_transfer_is_guarded(t) ? " guarded" : "");
    tvm_explain(e, name, plan->widest, plan->count, -1, refused);
}

tvm_status tvm_emit_PUT_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    access_plan plan = {0};
    tvm_status status =
        tvm_transfer_open(e, &t, tvm_operands(e->k->kernel, insn), after_indices(e, insn)->value, true, NULL);
    unsigned align = status == TVM_OK ? store_alignment(&t) : 8;
    if (status == TVM_OK) status = tvm_transfer_plan(e, &t, align, &plan);
    if (status == TVM_OK) {
        set_exchange(e, &t, later(e, insn, 1));
        explain_exchange(e, &t, &plan, align, "st");
        tvm_transfer_keep_owners(e, &t);
    }
    for (uint32_t i = 0; i < plan.count && status == TVM_OK; i++) {
        reg units[4];
        tvm_access_gather(e, &plan, &plan.accesses[i], t.slot, units);
        for (uint32_t u = 0; u < plan.accesses[i].units; u++) {
            reg zero = tvm_new_pred(e), value = tvm_new_r(e);
            tvm_emit(e, "setp.eq.b32 %s, %s, 0;", zero.name, units[u].name);
            tvm_emit(e, "selp.b32 %s, 0x80000000, %s, %s;", value.name, units[u].name, zero.name);
            units[u] = value;
        }
        tvm_transfer_store(e, &t, &plan.accesses[i], units);
    }
    tvm_access_plan_free(&plan);
    tvm_transfer_close(&t);
    return status;
}

/* The least of the words that are inside, as unsigned ones: zero as long as one is empty. */
static reg least_word(emitter *e, transfer *t, const access *a, const reg units[4], reg least) {
    reg pointer, predicate, here = units[0], both = tvm_new_r(e);
    bool guarded = tvm_transfer_class(e, t, a->class_id, &pointer, &predicate);
    for (uint32_t u = 1; u < a->units; u++) {
        reg next = tvm_new_r(e);
        tvm_emit(e, "min.u32 %s, %s, %s;", next.name, here.name, units[u].name);
        here = next;
    }
    if (guarded) {
        reg inside = tvm_new_r(e);
        tvm_emit(e, "selp.b32 %s, %s, 1, %s;", inside.name, here.name, predicate.name);
        here = inside;
    }
    tvm_emit(e, "min.u32 %s, %s, %s;", both.name, least.name, here.name);
    return both;
}

/* fence EXCHANGE, WARP_BARRIER: where several threads hold an element, all must have seen it before one
 * empties it. The others of a warp come together again, too: what follows may be done by whole warps. */
static tvm_status take_planned(emitter *e, transfer *t, const access_plan *plan) {
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    reg(*units)[4] = calloc(plan->count + (size_t)1, sizeof *units);
    tvm_status status = started && units ? TVM_OK : tvm_diag_no_memory(e->k->diags);
    reg pointer, predicate, least = tvm_pure(e, 'r', "mov.b32 $, -1;"), empty = tvm_new_pred(e);
    uint32_t again = tvm_new_label(e);
    for (uint32_t i = 0; i < plan->count; i++)
        tvm_transfer_class(e, t, plan->accesses[i].class_id, &pointer, &predicate);
    tvm_text_add(&e->body, "$L%u:\n", again);
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++)
        tvm_transfer_load(e, t, plan, &plan->accesses[i], units[i]);
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++)
        least = least_word(e, t, &plan->accesses[i], units[i], least);
    tvm_emit(e, "setp.eq.u32 %s, %s, 0;", empty.name, least.name);
    tvm_emit(e, "@%s nanosleep.u32 40;", empty.name); /* not to take the cache from those waited for */
    tvm_emit_ask_again(e, empty, true, again);
    if (tvm_layout_replication(t->layout) > 1)
        tvm_emit_barrier(e);
    else
        tvm_emit(e, "bar.warp.sync 0xffffffff;");
    tvm_transfer_keep_owners(e, t);
    reg zero = tvm_pure(e, 'r', "mov.b32 $, 0;");
    const reg zeros[4] = {zero, zero, zero, zero};
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++) {
        tvm_transfer_store(e, t, &plan->accesses[i], zeros);
        tvm_access_spread(e, plan, &plan->accesses[i], t->slot, units[i], started);
    }
    free(started);
    free(units);
    return status;
}

tvm_status tvm_emit_TAKE_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    access_plan plan = {0};
    tvm_status status = tvm_transfer_open(e, &t, tvm_operands(e->k->kernel, insn), insn->result, false, NULL);
    if (status == TVM_OK) {
        unsigned align = tvm_transfer_alignment(&t);
        set_exchange(e, &t, later(e, insn, 0));
        status = tvm_transfer_plan(e, &t, align, &plan);
        if (status == TVM_OK) status = take_planned(e, &t, &plan);
        if (status == TVM_OK) explain_exchange(e, &t, &plan, align, "ld");
    }
    tvm_access_plan_free(&plan);
    tvm_transfer_close(&t);
    return status;
}
