/* load-shared and store-shared: ldmatrix and stmatrix, else the widest plain accesses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "barrier.h"
#include "emit_cluster.h"
#include "emit.h"
#include "global_transfer.h"
#include "kernel.h"
#include "ldmatrix.h"
#include "shared_places.h"
#include "emit_wgmma.h"

/* The register tensor of the instruction against its shared tile. */
typedef struct tile_transfer {
    shared_access shared;
    shared_lanes lanes;
    const tvm_layout *layout;
    uint32_t slot;
    char guard[16]; /* "@%p ": of stores; "": all threads store */
    reg far; /* %r: what is added to an address for the tensor of another block; name[0] == 0: it is this
                one's */
} tile_transfer;

static const char *space_of(const tile_transfer *t) {
    return t->far.name[0] ? "shared::cluster" : "shared";
}

static reg reach(emitter *e, const tile_transfer *t, reg address) {
    if (!t->far.name[0]) return address;
    reg out = tvm_new_r(e);
    tvm_emit(e, "add.u32 %s, %s, %s;", out.name, address.name, t->far.name);
    return out;
}

static void open_lanes(emitter *e, tile_transfer *t) {
    uint32_t coordinate[TVM_MAX_RANK];
    shared_lanes *lanes = &t->lanes;
    for (uint32_t thread = 0; thread < t->shared.tile.threads; thread++) {
        tvm_layout_map(t->layout, thread, 0, coordinate);
        lanes->offset[thread] = tvm_shared_linear(&t->shared.tile, coordinate);
    }
    for (unsigned d = 0; d < t->shared.tile.tile_rank; d++) {
        reg at;
        if (!tvm_thread_coordinate(e, t->layout, d, &at) || !tvm_shared_part(e, &t->shared.tile, d, at, &at))
            continue;
        lanes->value =
            lanes->varies ? tvm_pure(e, 'r', "add.s32 $, %s, %s;", lanes->value.name, at.name) : at;
        lanes->varies = true;
    }
}

/* The element, the first of a run of whole bytes, that the access begins with, or *rest bytes behind it. */
static uint32_t element_of(const shared_tile *s, const access *a, uint32_t *rest) {
    uint32_t whole = tvm_bits_whole(s->bits), bytes = whole * s->bits / 8, first = (uint32_t)(a->offset / 8);
    *rest = first % bytes;
    return first / bytes * whole;
}

/* Of the warp that has most. */
static unsigned access_conflicts(const tile_transfer *t, const access *a) {
    uint32_t address[32], rest, constant = element_of(&t->shared.tile, a, &rest) + t->shared.tile.constant;
    unsigned worst = 0;
    for (uint32_t warp = 0; warp + 32 <= t->shared.tile.threads; warp += 32) {
        for (unsigned lane = 0; lane < 32; lane++)
            address[lane] =
                rest + tvm_shared_bytes_of(&t->shared.tile,
                                           tvm_shared_swizzle(t->shared.tile.layout,
                                                              t->lanes.offset[warp + lane] + constant));
        unsigned conflicts = tvm_shared_conflicts(address, 32, a->width);
        if (conflicts > worst) worst = conflicts;
    }
    return worst;
}

static void emit_access(emitter *e, tile_transfer *t, const access_plan *plan, const access *a, bool is_load,
                        reg units[4]) {
    char operands[64];
    uint32_t plus, rest, element = element_of(&t->shared.tile, a, &rest);
    reg address = tvm_shared_address(&t->shared, &t->lanes, element, &plus);
    address = reach(e, t, address);
    plus += rest;
    if (is_load) {
        tvm_access_load_registers(e, plan, a, t->slot, units);
        tvm_emit(e, "ld.%s.%s %s, [%s+%u];", space_of(t), tvm_access_type(a->width),
                 tvm_access_operands(units, a->units, operands), address.name, plus);
    } else {
        tvm_access_gather(e, plan, a, t->slot, units);
        tvm_emit(e, "%sst.%s.%s [%s+%u], %s;", t->guard, space_of(t), tvm_access_type(a->width), address.name,
                 plus, tvm_access_operands(units, a->units, operands));
    }
}

/* The greatest that divides it. */
static unsigned power_of_two(unsigned value) {
    return value & (~value + 1);
}

static tvm_status plan_of(emitter *e, tile_transfer *t, access_plan *plan) {
    uint32_t locals = tvm_layout_locals(t->layout);
    int64_t *offset = calloc(locals, sizeof *offset);
    uint32_t *class_id = calloc(locals, sizeof *class_id);
    tvm_status status = offset && class_id ? TVM_OK : tvm_diag_no_memory(e->k->diags);
    for (uint32_t i = 0; i < locals && status == TVM_OK; i++) {
        uint32_t coordinate[TVM_MAX_RANK];
        tvm_layout_map(t->layout, 0, i, coordinate);
        offset[i] = tvm_shared_linear(&t->shared.tile, coordinate);
    }
    unsigned bits = t->shared.tile.bits;
    unsigned align = power_of_two(tvm_shared_alignment(&t->shared.tile, t->lanes.offset) * bits),
             run = power_of_two(tvm_shared_run(&t->shared.tile) * bits);
    if (align > 128) align = 128;
    if (align < 8) align = 8; /* a sum whose parts are inside of bytes, which begins at one: it is guarded */
    if (status == TVM_OK)
        status =
            tvm_access_plan_make(e->k, locals, bits, offset, class_id, align, run < 128 ? run : 128, plan);
    free(offset);
    free(class_id);
    return status;
}

static void explain_plain(emitter *e, const tile_transfer *t, const access_plan *plan, bool is_load,
                          const char *refused) {
    char name[64], reason[400];
    unsigned worst = 0;
    for (uint32_t i = 0; i < plan->count; i++) {
        unsigned n = access_conflicts(t, &plan->accesses[i]);
        if (n > worst) worst = n;
    }
    char what[24];
    snprintf(what, sizeof what, "%s.%s", is_load ? "ld" : "st", space_of(t));
    snprintf(name, sizeof name, "%s.%s%s", what, tvm_access_type(plan->widest),
             t->shared.guarded ? " guarded" : "");
    int n = snprintf(reason, sizeof reason, "%s", refused);
    if (plan->widest < 128 && n >= 0 && (size_t)n < sizeof reason)
        snprintf(reason + n, sizeof reason - (size_t)n,
                 "%s%s.v4.b32: runs that stay contiguous and aligned have %u bits", n ? "; " : "", what,
                 plan->widest);
    tvm_explain(e, name, plan->widest, plan->count, (int)worst, reason);
}

static tvm_status transfer_planned(emitter *e, tile_transfer *t, bool is_load, const char *refused) {
    access_plan plan;
    tvm_status status = plan_of(e, t, &plan);
    if (status != TVM_OK) return status;
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    reg(*units)[4] = calloc(plan.count + (size_t)1, sizeof *units);
    if (!started || !units) status = tvm_diag_no_memory(e->k->diags);
    for (uint32_t i = 0; i < plan.count && status == TVM_OK; i++)
        emit_access(e, t, &plan, &plan.accesses[i], is_load, units[i]);
    for (uint32_t i = 0; i < plan.count && status == TVM_OK && is_load; i++)
        tvm_access_spread(e, &plan, &plan.accesses[i], t->slot, units[i], started);
    if (status == TVM_OK) explain_plain(e, t, &plan, is_load, refused);
    free(started);
    free(units);
    tvm_access_plan_free(&plan);
    return status;
}

/* ---- layouts with several modes in a dimension: every element's address on its own ---- */

/* The plan of one element, or run of elements that are whole bytes, moved to local i's place. */
static void move_fields(access_plan *plan, const field *fields, uint32_t i, unsigned bits) {
    for (uint32_t k = 0; k < plan->field_count; k++) {
        uint64_t bit = (uint64_t)i * bits + fields[k].word * UINT64_C(32) + fields[k].word_bit;
        plan->fields[k].word = (uint32_t)(bit / 32);
        plan->fields[k].word_bit = (uint8_t)(bit % 32);
    }
}

static void transfer_element(emitter *e, tile_transfer *t, access_plan *plan, const access *a, reg address,
                             bool *started, bool is_load) {
    char operands[64];
    reg units[4];
    uint32_t plus = e->k->slots[t->shared.tile.slot].shared_offset + (uint32_t)(a->offset / 8);
    if (is_load) {
        tvm_access_load_registers(e, plan, a, t->slot, units);
        tvm_emit(e, "ld.%s.%s %s, [%s+%u];", space_of(t), tvm_access_type(a->width),
                 tvm_access_operands(units, a->units, operands), address.name, plus);
        tvm_access_spread(e, plan, a, t->slot, units, started);
    } else {
        tvm_access_gather(e, plan, a, t->slot, units);
        tvm_emit(e, "%sst.%s.%s [%s+%u], %s;", t->guard, space_of(t), tvm_access_type(a->width), address.name,
                 plus, tvm_access_operands(units, a->units, operands));
    }
}

static tvm_status transfer_elements(emitter *e, tile_transfer *t, bool is_load) {
    enum { FIELDS = 64 };
    uint32_t locals = tvm_layout_locals(t->layout), whole = tvm_bits_whole(t->shared.tile.bits);
    unsigned bits = t->shared.tile.bits, run = whole * bits;
    reg part[TVM_MAX_RANK] = {{""}};
    int64_t offset[8];
    uint32_t class_zero[8] = {0};
    field fields[FIELDS];
    access_plan plan;
    for (unsigned d = 0; d < t->shared.tile.tile_rank; d++)
        if (!tvm_thread_coordinate(e, t->layout, d, &part[d])) part[d].name[0] = '\0';
    for (uint32_t i = 0; i < whole; i++) offset[i] = i;
    bool *started = calloc(e->slots[t->slot].words + (size_t)1, sizeof *started);
    if (!started) return tvm_diag_no_memory(e->k->diags);
    unsigned align = whole > 1 ? 8 : bits < 128 ? bits : 128;
    tvm_status status = tvm_access_plan_make(e->k, whole, bits, offset, class_zero, align, 128, &plan);
    if (status == TVM_OK) memcpy(fields, plan.fields, plan.field_count * sizeof *fields);
    for (uint32_t i = 0; i < locals && status == TVM_OK; i += whole) {
        uint32_t constant[TVM_MAX_RANK];
        tvm_layout_map(t->layout, 0, i, constant);
        reg address = reach(e, t, tvm_shared_address_of_coordinates(&t->shared, part, constant));
        move_fields(&plan, fields, i, bits);
        for (uint32_t a = 0; a < plan.count; a++)
            transfer_element(e, t, &plan, &plan.accesses[a], address, started, is_load);
    }
    char name[64];
    unsigned width = whole > 1 ? 8 : bits;
    snprintf(name, sizeof name, "%s.%s.%s by element%s", is_load ? "ld" : "st", space_of(t),
             tvm_access_type(width), t->shared.guarded ? " guarded" : "");
    if (status == TVM_OK)
        tvm_explain(e, name, width, locals / whole * (run > width ? run / width : 1), -1,
                    "wider: a dimension of the shared layout has several modes");
    free(started);
    tvm_access_plan_free(&plan);
    return status;
}

/* `layout`: of the tile; the slot's words are the thread's elements in its order. */
static tile_transfer *open_tile(emitter *e, const tvm_operand *tensor, const tvm_layout *layout,
                                uint32_t slot) {
    tile_transfer *t = calloc(1, sizeof *t);
    if (!t) {
        tvm_diag_no_memory(e->k->diags);
        return NULL;
    }
    t->slot = slot;
    t->layout = layout;
    t->shared.e = e;
    if (tvm_shared_open_layout(e->k, &t->shared.tile, tensor->value, tensor + 1, t->layout)) open_lanes(e, t);
    t->shared.guarded = tvm_shared_guard(e, tensor->value, tensor + 1, t->layout->rank, t->layout->shape);
    return t;
}

tvm_status tvm_emit_load_tile(emitter *e, const tvm_operand *tensor, const tvm_layout *layout,
                              uint32_t slot) {
    tile_transfer *t = open_tile(e, tensor, layout, slot);
    if (!t) return TVM_NO_MEMORY;
    char refused[200];
    tvm_status status;
    if (!t->shared.tile.linear)
        status = transfer_elements(e, t, true);
    else if (tvm_emit_ldmatrix(e, &t->shared, &t->lanes, t->layout, t->slot, 0, refused, &status))
        ;
    else
        status = transfer_planned(e, t, true, refused);
    free(t);
    return status;
}

tvm_status tvm_emit_load_spread(emitter *e, const tvm_operand *tensor, const tvm_layout *layout,
                                uint32_t slot, unsigned bits) {
    tile_transfer *t = open_tile(e, tensor, layout, slot);
    if (!t) return TVM_NO_MEMORY;
    char refused[200] = "ldmatrix: a dimension of the shared layout has several modes";
    tvm_status status;
    bool taken = t->shared.tile.linear &&
                 tvm_emit_ldmatrix(e, &t->shared, &t->lanes, layout, slot, bits, refused, &status);
    if (!taken)
        status = tvm_emit_error(e, TVM_UNSUPPORTED,
                                "write a row-major tile at multiples of 16 elements along k", "'%s': %s",
                                tvm_string(e->k->program, e->k->kernel->slots[tensor->value].name), refused);
    free(t);
    return status;
}

/* A tile with a mask: element by element. NULL: it has none. */
static const tvm_operand *mask_of(const emitter *e, const tvm_insn *insn, unsigned at) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    uint32_t place = 1 + tvm_slot_shared_layout(e->k, operands->value)->rank + at;
    return place < insn->count && operands[place].kind == TVM_OPERAND_SLOT ? &operands[place] : NULL;
}

/* fill: of a load; NULL: zero bits. */
static tvm_status move_masked(emitter *e, const tvm_operand *tensor, const tvm_operand *mask,
                              const tvm_operand *fill, uint32_t slot, bool is_load) {
    const tvm_layout *layout = tvm_slot_layout(e->k, slot);
    shared_places p;
    tvm_shared_guard(e, tensor->value, tensor + 1, layout->rank, layout->shape);
    tvm_status status = TVM_OK;
    bool made = tvm_shared_places_open(e, &p, tensor, layout, mask, false);
    p.fill = fill;
    if (!made)
        status = tvm_diag_no_memory(e->k->diags);
    else
        status = is_load ? tvm_shared_places_load(e, &p, slot) : tvm_shared_places_store(e, &p, slot);
    tvm_shared_places_close(&p);
    return status;
}

tvm_status tvm_emit_LOAD_SHARED(emitter *e, const tvm_insn *insn) {
    const tvm_operand *tensor = tvm_operands(e->k->kernel, insn), *mask = mask_of(e, insn, 0);
    const tvm_operand *fill = mask && mask + 1 < tensor + insn->count ? mask + 1 : NULL;
    if (mask) return move_masked(e, tensor, mask, fill, insn->result, true);
    return tvm_emit_load_tile(e, tensor, tvm_slot_layout(e->k, insn->result), insn->result);
}

tvm_status tvm_emit_STORE_SHARED(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn), *mask = mask_of(e, insn, 1);
    uint32_t source = operands[1 + tvm_slot_shared_layout(e->k, operands->value)->rank].value;
    const tvm_layout *layout = tvm_slot_layout(e->k, source);
    tvm_status status;
    if (mask) {
        status = move_masked(e, operands, mask, NULL, source, false);
    } else {
        tile_transfer *t = open_tile(e, operands, layout, source);
        if (!t) return TVM_NO_MEMORY;
        char refused[200];
        if (!t->shared.tile.linear)
            status = transfer_elements(e, t, false);
        else if (!tvm_emit_stmatrix(e, &t->shared, &t->lanes, layout, source, refused, &status))
            status = transfer_planned(e, t, false, refused);
        free(t);
    }
    tvm_wgmma_stored(e, layout);
    return status;
}

/* ---- tiles of the other blocks of a cluster ---- */

static tvm_status move_far(emitter *e, const tvm_operand *tensor, uint32_t slot, bool is_load) {
    uint32_t rank = tensor[1 + tvm_slot_shared_layout(e->k, tensor->value)->rank].value;
    tile_transfer *t = open_tile(e, tensor, tvm_slot_layout(e->k, slot), slot);
    if (!t) return TVM_NO_MEMORY;
    if (tvm_emit_cluster_guard(e, rank)) t->shared.guarded = true;
    if (tvm_cluster_blocks(e->k->kernel) > 1) {
        reg there = tvm_emit_cluster_address(e, tvm_shared_base(e), rank);
        t->far = tvm_new_r(e);
        tvm_emit(e, "sub.u32 %s, %s, %s;", t->far.name, there.name, tvm_shared_base(e).name);
    }
    /* one thread's way to another block is enough for what several have */
    reg owner;
    if (!is_load && tvm_layout_owner(e, t->layout, &owner)) {
        snprintf(t->guard, sizeof t->guard, "@%s ", owner.name);
        /* of four words that are constants, ptxas 12.8 and 13.0 can forget three in a store with a condition
         */
        tvm_hide_constants(e, slot);
    }
    tvm_status status =
        t->shared.tile.linear ? transfer_planned(e, t, is_load, "") : transfer_elements(e, t, is_load);
    free(t);
    return status;
}

tvm_status tvm_emit_LOAD_CLUSTER(emitter *e, const tvm_insn *insn) {
    return move_far(e, tvm_operands(e->k->kernel, insn), insn->result, true);
}

tvm_status tvm_emit_STORE_CLUSTER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    uint32_t source = operands[insn->count - 1].value;
    tvm_status status = move_far(e, operands, source, false);
    tvm_wgmma_stored(e, tvm_slot_layout(e->k, source));
    return status;
}

/* ---- tensors ---- */

tvm_status tvm_emit_ALLOC_SHARED(emitter *e, const tvm_insn *insn) {
    /* The tensor that had the memory before may still be read by other warps. */
    if (e->k->slots[insn->result].reuses) tvm_emit_barrier(e);
    return TVM_OK;
}

tvm_status tvm_emit_FREE_SHARED(emitter *e, const tvm_insn *insn) {
    (void)e;
    (void)insn;
    return TVM_OK;
}
