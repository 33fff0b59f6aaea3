#include "global_transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "numbers.h"

/* ---- register tensors beside the tile ---- */

bool tvm_broadcast_open(emitter *e, broadcast *b, const tvm_operand *operand, const tvm_layout *tile) {
    *b = (broadcast){.slot = TVM_NONE};
    if (!operand || operand->kind != TVM_OPERAND_SLOT) return true;
    const tvm_layout *own = tvm_slot_layout(e->k, operand->value);
    b->slot = operand->value;
    b->map = calloc(tvm_layout_locals(tile), sizeof *b->map);
    b->values = calloc(tvm_layout_locals(own), sizeof *b->values);
    if (b->map) tvm_layout_broadcasts(own, tile, b->map, NULL);
    return b->map && b->values;
}

void tvm_broadcast_close(broadcast *b) {
    free(b->map);
    free(b->values);
    *b = (broadcast){.slot = TVM_NONE};
}

reg tvm_broadcast_set(emitter *e, broadcast *mask, uint32_t local) {
    struct broadcast_value *known = &mask->values[mask->map[local]];
    if (known->inside.name[0]) return known->inside;
    known->inside = tvm_new_pred(e);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", known->inside.name,
             tvm_read_element(e, mask->slot, mask->map[local], false).name);
    return known->inside;
}

/* ---- classes ---- */

/* What elements of one class have in common. */
enum { KEY = 3 * TVM_MAX_RANK + 1 };

typedef struct keyed {
    uint32_t key[KEY];
    uint32_t local;
} keyed;

static int compare_keyed(const void *a, const void *b) {
    const keyed *x = a, *y = b;
    for (unsigned i = 0; i < KEY; i++)
        if (x->key[i] != y->key[i]) return x->key[i] < y->key[i] ? -1 : 1;
    return x->local < y->local ? -1 : x->local > y->local;
}

void tvm_transfer_coordinate(const transfer *t, uint32_t local, uint32_t coordinate[TVM_MAX_RANK]) {
    uint32_t tile[TVM_MAX_RANK] = {0};
    memset(coordinate, 0, TVM_MAX_RANK * sizeof *coordinate);
    tvm_layout_map(t->layout, 0, local, tile);
    for (unsigned d = 0; d < t->g.tile.tile_rank; d++)
        if (!t->index[t->g.tile.lead + d].map) coordinate[d] = tile[t->extra + d];
}

static void find_key(const transfer *t, uint32_t local, const uint32_t coordinate[TVM_MAX_RANK],
                     uint32_t key[KEY]) {
    memset(key, 0, KEY * sizeof *key);
    tvm_global_key(&t->g.tile, coordinate, key);
    for (unsigned d = 0; d < t->g.tile.rank; d++)
        if (t->index[d].map) key[2 * TVM_MAX_RANK + d] = t->index[d].map[local];
    if (t->mask.map) key[3 * TVM_MAX_RANK] = t->mask.map[local];
}

static bool map_make(transfer *t) {
    element_map *map = &t->map;
    uint32_t locals = tvm_layout_locals(t->layout);
    *map = (element_map){.locals = locals};
    map->offset = calloc(locals, sizeof *map->offset);
    map->class_id = calloc(locals, sizeof *map->class_id);
    map->class_first = calloc(locals, sizeof *map->class_first);
    keyed *keys = calloc(locals, sizeof *keys);
    bool made = map->offset && map->class_id && map->class_first && keys;
    for (uint32_t i = 0; i < locals && made; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        tvm_transfer_coordinate(t, i, coordinate);
        map->offset[i] = tvm_global_offset(&t->g.tile, coordinate);
        find_key(t, i, coordinate, keys[i].key);
        keys[i].local = i;
    }
    if (made) qsort(keys, locals, sizeof *keys, compare_keyed);
    for (uint32_t i = 0; i < locals && made; i++) {
        if (i == 0 || memcmp(keys[i].key, keys[i - 1].key, sizeof keys[i].key) != 0)
            map->class_first[map->classes++] = keys[i].local;
        map->class_id[keys[i].local] = map->classes - 1;
    }
    free(keys);
    return made;
}

static void map_free(element_map *map) {
    free(map->offset);
    free(map->class_id);
    free(map->class_first);
    *map = (element_map){0};
}

tvm_status tvm_transfer_classify(emitter *e, transfer *t) {
    map_free(&t->map);
    free(t->pointer);
    free(t->predicate);
    t->pointer = t->predicate = NULL;
    if (!map_make(t)) return tvm_diag_no_memory(e->k->diags);
    t->pointer = calloc(t->map.classes, sizeof *t->pointer);
    t->predicate = calloc(t->map.classes, sizeof *t->predicate);
    return t->pointer && t->predicate ? TVM_OK : tvm_diag_no_memory(e->k->diags);
}

/* The thread parts of the coordinates whose indices are scalars. */
static void find_parts(emitter *e, transfer *t, unsigned tile_rank, unsigned lead) {
    global_access *g = &t->g;
    for (unsigned d = 0; d < tile_rank; d++) {
        bool has_tensor = t->index[lead + d].map;
        g->tile.extent[d] = has_tensor ? 1 : t->layout->shape[t->extra + d];
        g->tile.part[d].varies =
            !has_tensor && tvm_thread_coordinate(e, t->layout, t->extra + d, &g->part[d]);
    }
    uint64_t stride[TVM_MAX_MODES];
    tvm_layout_mode_strides(t->layout, stride);
    for (unsigned i = 0; i < t->layout->spatials; i++) {
        int32_t m = t->layout->spatial[i];
        unsigned d = m < 0 ? 0 : t->layout->mode_dim[m] - t->extra;
        if (m >= 0 && d < tile_rank && t->layout->mode_size[m] > 1)
            g->tile.part[d].divisor = tvm_gcd(g->tile.part[d].divisor, stride[m]);
    }
}

tvm_status tvm_transfer_open(emitter *e, transfer *t, const tvm_operand *tensor, uint32_t slot, bool is_store,
                             const tvm_operand *mask) {
    unsigned rank = e->k->kernel->slots[tensor->value].rank;
    t->slot = slot;
    t->order = "";
    t->hint = (cache_hint){"", "", ""};
    t->fill = (fill_bits){.given = false};
    t->layout = tvm_slot_layout(e->k, slot);
    t->g.tile.whole_bytes = is_store;
    t->g.tile.is_near = true;
    bool made = tvm_broadcast_open(e, &t->mask, mask, t->layout);
    for (unsigned d = 0; d < rank; d++)
        made = tvm_broadcast_open(e, &t->index[d], &tensor[1 + d], t->layout) && made;
    if (!made) return tvm_diag_no_memory(e->k->diags);
    unsigned tile_rank = t->layout->rank < rank ? t->layout->rank : rank;
    t->extra = t->layout->rank - tile_rank;
    find_parts(e, t, tile_rank, rank - tile_rank);
    tvm_global_open(e, &t->g, tensor->value, tensor + 1, tile_rank);
    return tvm_transfer_classify(e, t);
}

void tvm_transfer_close(transfer *t) {
    map_free(&t->map);
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) tvm_broadcast_close(&t->index[d]);
    tvm_broadcast_close(&t->mask);
    free(t->pointer);
    free(t->predicate);
}

void tvm_transfer_fill(emitter *e, transfer *t, const tvm_operand *fill) {
    if (tvm_transfer_is_guarded(t)) tvm_fill_open(e, &t->fill, fill, tvm_slot_dtype(e->k, t->slot));
}

unsigned tvm_transfer_alignment(const transfer *t) {
    uint64_t rows[TVM_MAX_RANK] = {0}; /* divisors of the constant coordinates */
    for (uint32_t i = 0; i < t->map.locals; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        tvm_transfer_coordinate(t, i, coordinate);
        for (unsigned d = 0; d < t->g.tile.tile_rank; d++) rows[d] = tvm_gcd(rows[d], coordinate[d]);
    }
    return tvm_global_alignment(&t->g.tile, rows);
}

bool tvm_transfer_is_guarded(const transfer *t) {
    bool guarded = t->traps || t->mask.map || tvm_global_is_guarded(&t->g.tile);
    for (unsigned d = 0; d < t->g.tile.rank; d++) guarded = guarded || t->index[d].map;
    return guarded;
}

static struct broadcast_value *index_value(emitter *e, transfer *t, unsigned d, uint32_t local) {
    broadcast *index = &t->index[d];
    struct broadcast_value *known = &index->values[index->map[local]];
    if (known->value.name[0]) return known;
    reg at = tvm_read_element(e, index->slot, index->map[local], true);
    known->value =
        tvm_global_element(&t->g, d, at, tvm_slot_dtype(e->k, index->slot).bits == 64, &known->inside);
    return known;
}

static void make_class(emitter *e, transfer *t, uint32_t class_id) {
    uint32_t coordinate[TVM_MAX_RANK], local = t->map.class_first[class_id];
    reg pointer, predicate = {""};
    tvm_transfer_coordinate(t, local, coordinate);
    pointer = tvm_global_pointer(&t->g, coordinate);
    if (!tvm_global_predicate(&t->g, coordinate, &predicate)) predicate.name[0] = '\0';
    for (unsigned d = 0; d < t->g.tile.rank; d++) {
        if (!t->index[d].map) continue;
        const struct broadcast_value *at = index_value(e, t, d, local);
        reg sum = tvm_new_rd(e);
        tvm_emit(e, "add.s64 %s, %s, %s;", sum.name, pointer.name, at->value.name);
        pointer = sum;
        predicate = tvm_both(e, predicate, at->inside);
    }
    if (t->mask.map) predicate = tvm_both(e, predicate, tvm_broadcast_set(e, &t->mask, local));
    t->pointer[class_id] = pointer;
    t->predicate[class_id] = predicate;
}

bool tvm_transfer_class(emitter *e, transfer *t, uint32_t class_id, reg *pointer, reg *predicate) {
    if (!t->pointer[class_id].name[0]) make_class(e, t, class_id);
    *pointer = t->pointer[class_id];
    *predicate = t->predicate[class_id];
    return predicate->name[0] != '\0';
}

bool tvm_layout_owner(emitter *e, const tvm_layout *layout, reg *owner) {
    reg digits = {""};
    uint32_t below = 1;
    for (unsigned s = layout->spatials; s-- > 0;) {
        int32_t m = layout->spatial[s];
        uint32_t size = m < 0 ? (uint32_t)-m : layout->mode_size[m];
        if (m < 0) {
            reg digit = tvm_pure_modulo(e, tvm_pure_divide(e, tvm_thread_id(e), below), size);
            digits = digits.name[0] ? tvm_pure(e, 'r', "or.b32 $, %s, %s;", digits.name, digit.name) : digit;
        }
        below *= size;
    }
    if (!digits.name[0]) return false;
    *owner = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", digits.name);
    return true;
}

void tvm_transfer_keep_owners(emitter *e, transfer *t) {
    reg owner, pointer, predicate;
    for (uint32_t c = 0; c < t->map.classes; c++) tvm_transfer_class(e, t, c, &pointer, &predicate);
    if (!tvm_layout_owner(e, t->layout, &owner)) return;
    for (uint32_t c = 0; c < t->map.classes; c++) t->predicate[c] = tvm_both(e, t->predicate[c], owner);
}

void tvm_transfer_refusal(const transfer *t, const access_plan *plan, unsigned align, const char *what,
                          char out[200]) {
    out[0] = '\0';
    if (plan->widest >= 128) return;
    if (plan->widest == align)
        snprintf(out, 200, "%s.v4.b32: addresses are known to be multiples of %u bits only", what, align);
    else if (t->map.classes > 1 && tvm_global_is_guarded(&t->g.tile))
        snprintf(out, 200, "%s.v4.b32: longer runs may cross the tensor's edge or a row", what);
    else
        snprintf(out, 200, "%s.v4.b32: a thread's elements are contiguous for %u bits only", what,
                 plan->widest);
}

/* ---- accesses ---- */

tvm_status tvm_transfer_plan(emitter *e, transfer *t, unsigned align, access_plan *plan) {
    return tvm_access_plan_make(e->k, t->map.locals, t->g.tile.bits, t->map.offset, t->map.class_id, align,
                                128, plan);
}

void tvm_transfer_load(emitter *e, transfer *t, const access_plan *plan, const access *a, reg units[4]) {
    char operands[64];
    reg pointer, predicate;
    bool guarded = tvm_transfer_class(e, t, a->class_id, &pointer, &predicate);
    tvm_access_load_registers(e, plan, a, t->slot, units);
    for (uint32_t u = 0; guarded && u < a->units; u++) tvm_fill_unit(e, &t->fill, a->width, u, units[u]);
    tvm_emit(e, "%s%s%sld%s.global%s%s.%s %s, [%s+%lld]%s;", guarded ? "@" : "",
             guarded ? predicate.name : "", guarded ? " " : "", t->order, t->hint.level1, t->hint.level2,
             tvm_access_type(a->width), tvm_access_operands(units, a->units, operands), pointer.name,
             (long long)(a->offset / 8), t->hint.policy);
}

void tvm_transfer_store(emitter *e, transfer *t, const access *a, const reg units[4]) {
    char operands[64];
    reg pointer, predicate;
    bool guarded = tvm_transfer_class(e, t, a->class_id, &pointer, &predicate);
    tvm_emit(e, "%s%s%sst%s.global%s.%s [%s+%lld], %s%s;", guarded ? "@" : "", guarded ? predicate.name : "",
             guarded ? " " : "", t->order, t->hint.level2, tvm_access_type(a->width), pointer.name,
             (long long)(a->offset / 8), tvm_access_operands(units, a->units, operands), t->hint.policy);
}

static bool reads_result(const transfer *t) {
    bool reads = t->mask.slot == t->slot;
    for (unsigned d = 0; d < t->g.tile.rank; d++) reads = reads || t->index[d].slot == t->slot;
    return reads;
}

tvm_status tvm_transfer_load_all(emitter *e, transfer *t, unsigned align) {
    access_plan plan;
    tvm_status status;
    if (tvm_transfer_find_runs(e, t, align, &plan, &status)) {
        status = tvm_transfer_load_runs(e, t, &plan);
        tvm_access_plan_free(&plan);
        return status;
    }
    if (status == TVM_OK) status = tvm_transfer_plan(e, t, align, &plan);
    if (status != TVM_OK) return status;
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    reg(*units)[4] = calloc(plan.count + (size_t)1, sizeof *units);
    if (started && units) {
        reg pointer, predicate;
        /* Words of the result that are indices, too, are read before any of them is loaded. */
        for (uint32_t c = 0; c < t->map.classes && reads_result(t); c++)
            tvm_transfer_class(e, t, c, &pointer, &predicate);
        /* All loads first: they are in flight together. */
        for (uint32_t i = 0; i < plan.count; i++) tvm_transfer_load(e, t, &plan, &plan.accesses[i], units[i]);
        for (uint32_t i = 0; i < plan.count; i++)
            tvm_access_spread(e, &plan, &plan.accesses[i], t->slot, units[i], started);
        char name[80], refused[200];
        snprintf(name, sizeof name, "ld.global%s%s.%s%s", t->hint.level1, t->hint.level2,
                 tvm_access_type(plan.widest), tvm_transfer_is_guarded(t) ? " guarded" : "");
        tvm_transfer_refusal(t, &plan, align, "ld.global", refused);
        tvm_explain(e, name, plan.widest, plan.count, -1, refused);
    } else {
        status = tvm_diag_no_memory(e->k->diags);
    }
    free(started);
    free(units);
    tvm_access_plan_free(&plan);
    return status;
}

tvm_status tvm_transfer_store_all(emitter *e, transfer *t, unsigned align) {
    access_plan plan = {0};
    tvm_status status;
    if (tvm_transfer_find_runs(e, t, align, &plan, &status)) {
        status = tvm_transfer_store_runs(e, t, &plan);
        tvm_access_plan_free(&plan);
        return status;
    }
    if (status == TVM_OK) status = tvm_transfer_plan(e, t, align, &plan);
    for (uint32_t i = 0; i < plan.count && status == TVM_OK; i++) {
        reg pointer, predicate, units[4];
        tvm_transfer_class(e, t, plan.accesses[i].class_id, &pointer, &predicate);
        tvm_access_gather(e, &plan, &plan.accesses[i], t->slot, units);
        tvm_transfer_store(e, t, &plan.accesses[i], units);
    }
    if (status == TVM_OK) {
        char name[60], refused[200];
        tvm_transfer_refusal(t, &plan, align, "st.global", refused);
        snprintf(name, sizeof name, "st.global.%s%s", tvm_access_type(plan.widest),
                 tvm_transfer_is_guarded(t) ? " guarded" : "");
        tvm_explain(e, name, plan.widest, plan.count, -1, refused);
    }
    tvm_access_plan_free(&plan);
    return status;
}
