/* load-global, store-global, put-global and take-global. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "analysis.h"
#include "barrier.h"
#include "caches.h"
#include "emit.h"
#include "global_access.h"

/* The elements of a register tensor in a global tile: classes, and where in them each local lies. */
typedef struct element_map {
    uint32_t locals, classes;
    int64_t *offset;       /* by local: elements from the class's base */
    uint32_t *class_id;    /* by local */
    uint32_t *class_first; /* by class: a local of it */
} element_map;

static void map_free(element_map *map) {
    free(map->offset);
    free(map->class_id);
    free(map->class_first);
    *map = (element_map){0};
}

static void coordinates_of(const tvm_layout *layout, uint32_t local, uint32_t coordinate[TVM_MAX_RANK]) {
    memset(coordinate, 0, TVM_MAX_RANK * sizeof *coordinate);
    tvm_layout_map(layout, 0, local, coordinate);
}

typedef struct keyed {
    uint32_t key[2 * TVM_MAX_RANK];
    uint32_t local;
} keyed;

static int compare_keyed(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    for (unsigned i = 0; i < 2 * TVM_MAX_RANK; i++)
        if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
    return x->local < y->local ? -1 : x->local > y->local;
}

static bool map_make(const global_access *g, const tvm_layout *layout, element_map *map) {
    uint32_t locals = tvm_layout_locals(layout);
    *map = (element_map){.locals = locals};
    map->offset = calloc(locals, sizeof *map->offset);
    map->class_id = calloc(locals, sizeof *map->class_id);
    map->class_first = calloc(locals, sizeof *map->class_first);
    keyed *keys = calloc(locals, sizeof *keys);
    if (!map->offset || !map->class_id || !map->class_first || !keys) {
        free(keys);
        map_free(map);
        return false;
    }
    for (uint32_t i = 0; i < locals; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        coordinates_of(layout, i, coordinate);
        map->offset[i] = tvm_global_offset(g, coordinate);
        tvm_global_key(g, coordinate, keys[i].key);
        keys[i].local = i;
    }
    qsort(keys, locals, sizeof *keys, compare_keyed);
    for (uint32_t i = 0; i < locals; i++) {
        if (i == 0 || memcmp(keys[i].key, keys[i - 1].key, sizeof keys[i].key) != 0)
            map->class_first[map->classes++] = keys[i].local;
        map->class_id[keys[i].local] = map->classes - 1;
    }
    free(keys);
    return true;
}

/* The thread parts of a layout's coordinates. */
static void layout_parts(emitter *e, global_access *g, const tvm_layout *layout) {
    uint32_t threads = tvm_layout_threads(layout), index[TVM_MAX_RANK];
    for (unsigned d = 0; d < layout->rank; d++) {
        g->extent[d] = layout->shape[d];
        g->part[d].varies = tvm_thread_coordinate(e, layout, d, &g->part[d].value);
    }
    for (uint32_t t = 0; t < threads; t++) {
        tvm_layout_map(layout, t, 0, index);
        for (unsigned d = 0; d < layout->rank; d++)
            g->part[d].divisor = tvm_fact_gcd(g->part[d].divisor, index[d]);
    }
}

/* Divisors of the constant coordinates. */
static void row_divisors(const tvm_layout *layout, uint64_t rows[TVM_MAX_RANK]) {
    memset(rows, 0, TVM_MAX_RANK * sizeof *rows);
    for (uint32_t i = 0, n = tvm_layout_locals(layout); i < n; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        coordinates_of(layout, i, coordinate);
        for (unsigned d = 0; d < layout->rank; d++) rows[d] = tvm_fact_gcd(rows[d], coordinate[d]);
    }
}

/* Why the widest access was not taken. */
static void refusal(const global_access *g, const element_map *map, const access_plan *plan, unsigned align,
                    const char *what, char out[200]) {
    out[0] = '\0';
    if (plan->widest >= 128) return;
    if (plan->widest == align)
        snprintf(out, 200, "%s.v4.b32: addresses are known to be multiples of %u bits only", what, align);
    else if (map->classes > 1 && tvm_global_is_guarded(g))
        snprintf(out, 200, "%s.v4.b32: longer runs may cross the tensor's edge or a row", what);
    else
        snprintf(out, 200, "%s.v4.b32: a thread's elements are contiguous for %u bits only", what,
                 plan->widest);
}

typedef struct transfer {
    global_access g;
    element_map map;
    const tvm_layout *layout;
    cache_hint hint;
    const char *order;        /* ".relaxed.gpu" where another block writes or reads meanwhile */
    uint32_t slot;            /* the register tensor */
    reg *pointer, *predicate; /* by class; name[0] == 0: none */
} transfer;

static tvm_status transfer_open(emitter *e, transfer *t, const tvm_operand *tensor, uint32_t slot,
                                bool is_store) {
    t->slot = slot;
    t->order = "";
    t->hint = (cache_hint){"", "", ""};
    t->layout = tvm_slot_layout(e, slot);
    t->g.whole_bytes = is_store;
    layout_parts(e, &t->g, t->layout);
    tvm_global_open(e, &t->g, tensor->value, tensor + 1, t->layout->rank);
    if (!map_make(&t->g, t->layout, &t->map)) return tvm_diag_no_memory(e->diags);
    t->pointer = calloc(t->map.classes, sizeof *t->pointer);
    t->predicate = calloc(t->map.classes, sizeof *t->predicate);
    if (t->pointer && t->predicate) return TVM_OK;
    return tvm_diag_no_memory(e->diags);
}

static void transfer_close(transfer *t) {
    map_free(&t->map);
    free(t->pointer);
    free(t->predicate);
}

/* Pointer and predicate of a class, made when first needed; false: no predicate. */
static bool class_values(transfer *t, uint32_t class_id, reg *pointer, reg *predicate) {
    uint32_t coordinate[TVM_MAX_RANK];
    if (!t->pointer[class_id].name[0]) {
        coordinates_of(t->layout, t->map.class_first[class_id], coordinate);
        t->pointer[class_id] = tvm_global_pointer(&t->g, coordinate);
        if (!tvm_global_predicate(&t->g, coordinate, &t->predicate[class_id]))
            t->predicate[class_id].name[0] = '\0';
    }
    *pointer = t->pointer[class_id];
    *predicate = t->predicate[class_id];
    return predicate->name[0] != '\0';
}

static void load_access(emitter *e, transfer *t, const access_plan *plan, const access *a, reg units[4]) {
    char operands[64];
    reg pointer, predicate;
    bool guarded = class_values(t, a->class_id, &pointer, &predicate);
    tvm_access_load_registers(e, plan, a, t->slot, units);
    for (uint32_t u = 0; guarded && u < a->units; u++) tvm_emit(e, "mov.b32 %s, 0;", units[u].name);
    tvm_emit(e, "%s%s%sld%s.global%s%s.%s %s, [%s+%lld]%s;", guarded ? "@" : "",
             guarded ? predicate.name : "", guarded ? " " : "", t->order, t->hint.level1, t->hint.level2,
             tvm_access_type(a->width), tvm_access_operands(units, a->units, operands), pointer.name,
             (long long)(a->offset / 8), t->hint.policy);
}

static tvm_status load_planned(emitter *e, transfer *t, unsigned align) {
    access_plan plan;
    tvm_status status =
        tvm_access_plan_make(e, t->map.locals, t->g.bits, t->map.offset, t->map.class_id, align, 128, &plan);
    if (status != TVM_OK) return status;
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    reg(*units)[4] = calloc(plan.count + (size_t)1, sizeof *units);
    if (started && units) {
        /* All loads first: they are in flight together. */
        for (uint32_t i = 0; i < plan.count; i++) load_access(e, t, &plan, &plan.accesses[i], units[i]);
        for (uint32_t i = 0; i < plan.count; i++)
            tvm_access_spread(e, &plan, &plan.accesses[i], t->slot, units[i], started);
        char name[80], refused[200];
        snprintf(name, sizeof name, "ld.global%s%s.%s%s", t->hint.level1, t->hint.level2,
                 tvm_access_type(plan.widest), tvm_global_is_guarded(&t->g) ? " guarded" : "");
        refusal(&t->g, &t->map, &plan, align, "ld.global", refused);
        tvm_explain(e, name, plan.widest, plan.count, -1, refused);
    } else {
        status = tvm_diag_no_memory(e->diags);
    }
    free(started);
    free(units);
    tvm_access_plan_free(&plan);
    return status;
}

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
    reg position = tvm_global_position(g, g->rank - 1), bit = tvm_new_rd(e), low = tvm_new_rd(e),
        narrow = tvm_new_r(e);
    out->byte = tvm_new_rd(e);
    out->shift = tvm_new_r(e);
    out->crosses = tvm_new_pred(e);
    tvm_emit(e, "mad.lo.s64 %s, %s, %u, %u;", bit.name, position.name, g->bits, rest);
    tvm_emit(e, "shr.s64 %s, %s, 3;", out->byte.name, bit.name);
    tvm_emit(e, "and.b64 %s, %s, 7;", low.name, bit.name);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, low.name);
    tvm_emit(e, "mov.b32 %s, %s;", out->shift.name, narrow.name);
    tvm_emit(e, "setp.gt.u32 %s, %s, %u;", out->crosses.name, narrow.name, 8 - g->bits);
    out->made = true;
}

/* The address of the row: everything but the last dimension. */
static reg row_pointer(transfer *t, const uint32_t coordinate[TVM_MAX_RANK]) {
    global_access *g = &t->g;
    emitter *e = g->e;
    reg address = {""};
    memcpy(address.name, e->slots[g->slot].reg, sizeof address.name);
    for (unsigned d = 0; d + 1 < g->rank; d++) {
        reg position = tvm_global_position(g, d), stride = tvm_global_stride(g, d);
        reg at = tvm_new_rd(e), bits = tvm_new_rd(e), bytes = tvm_new_rd(e), next = tvm_new_rd(e);
        tvm_emit(e, "add.s64 %s, %s, %u;", at.name, position.name,
                 d >= g->lead ? coordinate[d - g->lead] : 0U);
        tvm_emit(e, "mul.lo.s64 %s, %s, %s;", bits.name, at.name, stride.name);
        tvm_emit(e, "mul.lo.s64 %s, %s, %u;", bits.name, bits.name, g->bits);
        tvm_emit(e, "shr.s64 %s, %s, 3;", bytes.name, bits.name);
        tvm_emit(e, "add.s64 %s, %s, %s;", next.name, address.name, bytes.name);
        address = next;
    }
    return address;
}

static bool same_row(const global_access *g, const uint32_t a[TVM_MAX_RANK], const uint32_t b[TVM_MAX_RANK]) {
    return memcmp(a, b, (g->tile_rank - 1) * sizeof *a) == 0;
}

static reg load_bits(transfer *t, const bit_base *base, reg row, uint32_t whole, const char *guard) {
    emitter *e = t->g.e;
    unsigned bits = t->g.bits;
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
        coordinates_of(t->layout, i, coordinate);
        uint32_t bit = coordinate[g->tile_rank - 1] * g->bits;
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
    bool crosses = (g->bits & (g->bits - 1)) != 0;
    tvm_explain(e, "ld.global.u8 by element", 8, t->map.locals << crosses, -1,
                "ld.global.v4.b32: a thread's elements begin inside bytes");
    return TVM_OK;
}

tvm_status tvm_emit_LOAD_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    tvm_status status = transfer_open(e, &t, tvm_operands(e->kernel, insn), insn->result, false);
    if (status == TVM_OK) {
        uint64_t rows[TVM_MAX_RANK];
        row_divisors(t.layout, rows);
        unsigned align = tvm_global_alignment(&t.g, rows);
        t.hint = tvm_cache_hint(e, tvm_operands(e->kernel, insn) + insn->count - 1);
        status = align >= 8 ? load_planned(e, &t, align) : load_by_element(e, &t);
    }
    transfer_close(&t);
    return status;
}

/* Its address is a parameter. */
tvm_status tvm_emit_ALLOC_GLOBAL(emitter *e, const tvm_insn *insn) {
    (void)e, (void)insn;
    return TVM_OK;
}

/* ---- store ---- */

static tvm_status open_store(emitter *e, transfer *t, const tvm_insn *insn, access_plan *plan) {
    const tvm_operand *operands = tvm_operands(e->kernel, insn);
    tvm_status status = transfer_open(e, t, operands, operands[insn->count - 1].value, true);
    if (status != TVM_OK) return status;
    uint64_t rows[TVM_MAX_RANK];
    row_divisors(t->layout, rows);
    unsigned align = tvm_global_alignment(&t->g, rows);
    /* The verifier has seen to it that runs are whole bytes. */
    if (align < 8) align = 8;
    status =
        tvm_access_plan_make(e, t->map.locals, t->g.bits, t->map.offset, t->map.class_id, align, 128, plan);
    if (status != TVM_OK) return status;
    bool guarded = tvm_global_guard_bytes(&t->g) || tvm_global_is_guarded(&t->g);
    const char *what = insn->op == TVM_OP_PUT_GLOBAL ? "st.relaxed.gpu.global" : "st.global";
    char name[60], refused[200];
    refusal(&t->g, &t->map, plan, align, what, refused);
    snprintf(name, sizeof name, "%s.%s%s", what, tvm_access_type(plan->widest), guarded ? " guarded" : "");
    tvm_explain(e, name, plan->widest, plan->count, -1, refused);
    return TVM_OK;
}

static void store_units(emitter *e, transfer *t, const access *a, const reg units[4]) {
    char operands[64];
    reg pointer, predicate;
    bool guarded = class_values(t, a->class_id, &pointer, &predicate);
    tvm_emit(e, "%s%s%sst%s.global%s.%s [%s+%lld], %s%s;", guarded ? "@" : "", guarded ? predicate.name : "",
             guarded ? " " : "", t->order, t->hint.level2, tvm_access_type(a->width), pointer.name,
             (long long)(a->offset / 8), tvm_access_operands(units, a->units, operands), t->hint.policy);
}

tvm_status tvm_emit_STORE_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    access_plan plan = {0};
    tvm_status status = open_store(e, &t, insn, &plan);
    for (uint32_t i = 0; i < plan.count && status == TVM_OK; i++) {
        reg pointer, predicate, units[4];
        class_values(&t, plan.accesses[i].class_id, &pointer, &predicate);
        tvm_access_gather(e, &plan, &plan.accesses[i], t.slot, units);
        store_units(e, &t, &plan.accesses[i], units);
    }
    tvm_access_plan_free(&plan);
    transfer_close(&t);
    return status;
}

/* ---- put and take ---- */

/* An element is there when its word is not zero, so that nothing else needs to be ordered. What is put is
 * taken in the same launch: it stays in the L2 cache, where else it would be written to memory among the
 * reads of what the kernel streams. */
static void set_exchange(emitter *e, transfer *t) {
    static const tvm_operand last = {.kind = TVM_OPERAND_CONST, .value = TVM_EVICT_LAST};
    t->order = ".relaxed.gpu";
    t->hint = tvm_cache_hint(e, &last);
}

/* From here on each element of the accesses is written by one thread, the lowest that holds it: what a second
 * one put might come after the first has been taken. */
static void keep_owners(emitter *e, transfer *t, const access_plan *plan) {
    reg digits = {""}, pointer, predicate;
    uint32_t below = 1;
    for (uint32_t i = 0; i < plan->count; i++)
        class_values(t, plan->accesses[i].class_id, &pointer, &predicate);
    for (unsigned s = t->layout->spatials; s-- > 0;) {
        int32_t m = t->layout->spatial[s];
        uint32_t size = m < 0 ? (uint32_t)-m : t->layout->mode_size[m];
        if (m < 0) {
            reg digit = tvm_pure_modulo(e, tvm_pure_divide(e, tvm_thread_id(e), below), size);
            digits = digits.name[0] ? tvm_pure(e, 'r', "or.b32 $, %s, %s;", digits.name, digit.name) : digit;
        }
        below *= size;
    }
    if (!digits.name[0]) return;
    reg owner = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", digits.name);
    for (uint32_t c = 0; c < t->map.classes; c++) {
        reg both = owner;
        if (t->predicate[c].name[0]) {
            both = tvm_new_pred(e);
            tvm_emit(e, "and.pred %s, %s, %s;", both.name, t->predicate[c].name, owner.name);
        }
        t->predicate[c] = both;
    }
}

tvm_status tvm_emit_PUT_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    access_plan plan = {0};
    tvm_status status = open_store(e, &t, insn, &plan);
    if (status == TVM_OK) {
        set_exchange(e, &t);
        keep_owners(e, &t, &plan);
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
        store_units(e, &t, &plan.accesses[i], units);
    }
    tvm_access_plan_free(&plan);
    transfer_close(&t);
    return status;
}

/* The least of the words that are inside, as unsigned ones: zero as long as one is empty. */
static reg least_word(emitter *e, transfer *t, const access *a, const reg units[4], reg least) {
    reg pointer, predicate, here = units[0], both = tvm_new_r(e);
    bool guarded = class_values(t, a->class_id, &pointer, &predicate);
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

/* Where several threads hold an element, all must have seen it before one empties it. The others of a warp
 * come together again, too: what follows may be done by whole warps. */
static tvm_status take_planned(emitter *e, transfer *t, const access_plan *plan) {
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    reg(*units)[4] = calloc(plan->count + (size_t)1, sizeof *units);
    tvm_status status = started && units ? TVM_OK : tvm_diag_no_memory(e->diags);
    reg pointer, predicate, least = tvm_pure(e, 'r', "mov.b32 $, -1;"), empty = tvm_new_pred(e);
    uint32_t again = tvm_new_label(e);
    for (uint32_t i = 0; i < plan->count; i++)
        class_values(t, plan->accesses[i].class_id, &pointer, &predicate);
    tvm_text_add(&e->body, "$L%u:\n", again);
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++)
        load_access(e, t, plan, &plan->accesses[i], units[i]);
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++)
        least = least_word(e, t, &plan->accesses[i], units[i], least);
    tvm_emit(e, "setp.eq.u32 %s, %s, 0;", empty.name, least.name);
    tvm_emit(e, "@%s nanosleep.u32 40;", empty.name); /* not to take the cache from those waited for */
    tvm_emit(e, "@%s bra $L%u;", empty.name, again);
    if (tvm_layout_replication(t->layout) > 1)
        tvm_emit_barrier(e);
    else
        tvm_emit(e, "bar.warp.sync 0xffffffff;");
    keep_owners(e, t, plan);
    reg zero = tvm_pure(e, 'r', "mov.b32 $, 0;");
    const reg zeros[4] = {zero, zero, zero, zero};
    for (uint32_t i = 0; i < plan->count && status == TVM_OK; i++) {
        store_units(e, t, &plan->accesses[i], zeros);
        tvm_access_spread(e, plan, &plan->accesses[i], t->slot, units[i], started);
    }
    free(started);
    free(units);
    return status;
}

tvm_status tvm_emit_TAKE_GLOBAL(emitter *e, const tvm_insn *insn) {
    transfer t = {0};
    access_plan plan = {0};
    tvm_status status = transfer_open(e, &t, tvm_operands(e->kernel, insn), insn->result, false);
    if (status == TVM_OK) {
        uint64_t rows[TVM_MAX_RANK];
        row_divisors(t.layout, rows);
        unsigned align = tvm_global_alignment(&t.g, rows);
        set_exchange(e, &t);
        status =
            tvm_access_plan_make(e, t.map.locals, t.g.bits, t.map.offset, t.map.class_id, align, 128, &plan);
        if (status == TVM_OK) status = take_planned(e, &t, &plan);
        char name[60], refused[200];
        refusal(&t.g, &t.map, &plan, align, "ld.relaxed.gpu.global", refused);
        snprintf(name, sizeof name, "ld.relaxed.gpu.global.%s%s", tvm_access_type(plan.widest),
                 tvm_global_is_guarded(&t.g) ? " guarded" : "");
        if (status == TVM_OK) tvm_explain(e, name, plan.widest, plan.count, -1, refused);
    }
    tvm_access_plan_free(&plan);
    transfer_close(&t);
    return status;
}
