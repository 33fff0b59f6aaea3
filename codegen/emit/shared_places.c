#include "shared_places.h"

#include <stdio.h>

#include "analysis.h"
#include "compute.h"
#include "uses.h"

bool tvm_shared_places_open(emitter *e, shared_places *p, const tvm_operand *tensor, const tvm_layout *layout,
                            const tvm_operand *mask, bool tested) {
    const tvm_shared_layout *shared = tvm_slot_shared_layout(e->k, tensor->value);
    *p = (shared_places){.layout = layout, .index = tensor + 1};
    p->shared = (shared_access){.e = e,
                                .tile = {.slot = tensor->value,
                                         .layout = shared,
                                         .rank = shared->rank,
                                         .bytes = tvm_slot_dtype(e->k, tensor->value).bits / 8}};
    bool made = tvm_broadcast_open(e, &p->mask, mask, layout);
    for (unsigned d = 0; d < shared->rank; d++) {
        made = tvm_broadcast_open(e, &p->tensor[d], &p->index[d], layout) && made;
        if (p->tensor[d].map) {
            p->proven[d] = tvm_slot_elements_at_most(e->k, p->index[d].value, (int64_t)shared->shape[d] - 1);
            continue;
        }
        bool in_tile = shared->rank - d <= layout->rank;
        unsigned t = in_tile ? layout->rank - (shared->rank - d) : 0;
        uint32_t extent = in_tile ? layout->shape[t] : 1;
        if (in_tile && !tvm_thread_coordinate(e, layout, t, &p->part[d])) p->part[d].name[0] = '\0';
        p->proven[d] = !tested || (extent <= shared->shape[d] &&
                                   tvm_fact_at_most(e->k, p->index[d].value, shared->shape[d] - extent));
    }
    return made;
}

void tvm_shared_places_close(shared_places *p) {
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) tvm_broadcast_close(&p->tensor[d]);
    tvm_broadcast_close(&p->mask);
}

bool tvm_shared_places_guarded(const shared_places *p) {
    bool guarded = p->mask.map;
    for (unsigned d = 0; d < p->shared.tile.rank; d++) guarded = guarded || !p->proven[d];
    return guarded;
}

/* index + thread part + constant, in the index's width. */
static reg scalar_position(emitter *e, const shared_places *p, unsigned d, uint32_t constant, bool wide) {
    reg at = tvm_emit_expr(e, p->index[d].value), part = p->part[d];
    if (part.name[0]) {
        reg sum = wide ? tvm_new_rd(e) : tvm_new_r(e);
        if (wide) part = tvm_pure(e, 'd', "cvt.u64.u32 $, %s;", part.name);
        tvm_emit(e, "add.%s %s, %s, %s;", wide ? "s64" : "s32", sum.name, at.name, part.name);
        at = sum;
    }
    if (constant != 0) {
        reg sum = wide ? tvm_new_rd(e) : tvm_new_r(e);
        tvm_emit(e, "add.%s %s, %s, %u;", wide ? "s64" : "s32", sum.name, at.name, constant);
        at = sum;
    }
    return at;
}

/* The element's position along dimension d, where it is not proved to be inside with a test of it. */
static reg position(emitter *e, const shared_places *p, unsigned d, uint32_t local, uint32_t coordinate,
                    reg *predicate) {
    const broadcast *tensor = &p->tensor[d];
    bool wide;
    reg at;
    if (tensor->map) {
        wide = tvm_slot_dtype(e->k, tensor->slot).bits == 64;
        at = tvm_read_element(e, tensor->slot, tensor->map[local], true);
    } else {
        wide = node_of(e->k, p->index[d].value)->type.bits == 64;
        at = scalar_position(e, p, d, coordinate, wide);
    }
    if (!p->proven[d]) {
        reg inside = tvm_new_pred(e);
        /* Unsigned, a negative position is above every extent. */
        tvm_emit(e, "setp.lt.%s %s, %s, %u;", wide ? "u64" : "u32", inside.name, at.name,
                 p->shared.tile.layout->shape[d]);
        *predicate = tvm_both(e, *predicate, inside);
    }
    if (!wide) return at;
    reg narrow = tvm_new_r(e);
    tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, at.name);
    return narrow;
}

/* Scalar positions first: without a swizzle they are an address that many elements have, to which a
 * multiplication adds what is the element's own. */
bool tvm_shared_place(emitter *e, shared_places *p, uint32_t local, reg *address, reg *predicate) {
    uint32_t coordinate[TVM_MAX_RANK] = {0};
    unsigned rank = p->shared.tile.rank;
    bool plain = p->shared.tile.layout->swizzle_bits == 0;
    reg offset = {""};
    predicate->name[0] = '\0';
    tvm_layout_map(p->layout, 0, local, coordinate);
    for (unsigned tensors = 0; tensors < 2; tensors++) {
        for (unsigned d = 0; d < rank; d++) {
            bool in_tile = rank - d <= p->layout->rank;
            if ((p->tensor[d].map != NULL) != (tensors == 1)) continue;
            uint32_t constant = in_tile ? coordinate[p->layout->rank - (rank - d)] : 0;
            reg at = position(e, p, d, local, constant, predicate);
            tvm_shared_add_position(e, &p->shared.tile, d, at, plain && tensors ? p->shared.tile.bytes : 1,
                                    &offset);
        }
        if (plain && !tensors) offset = tvm_shared_address_of_offset(&p->shared, offset);
    }
    *address = plain ? offset : tvm_shared_address_of_offset(&p->shared, offset);
    if (p->mask.map) *predicate = tvm_both(e, *predicate, tvm_broadcast_set(e, &p->mask, local));
    return predicate->name[0] != '\0';
}

/* ---- moving elements ---- */

/* The type of an access to one element, in the class of tvm_read_element. */
static const char *access_type(tvm_dtype type) {
    if (type.bits == 16) return tvm_is_half(type) ? "b16" : "u16";
    return type.bits == 8 ? "u8" : type.bits == 32 ? "b32" : "b64";
}

static void explain(emitter *e, const shared_places *p, const char *what, tvm_dtype type) {
    char name[60];
    snprintf(name, sizeof name, "%s.%s by element%s", what, access_type(type),
             tvm_shared_places_guarded(p) ? " guarded" : "");
    tvm_explain(e, name, type.bits, tvm_layout_locals(p->layout), -1, "");
}

tvm_status tvm_shared_places_load(emitter *e, shared_places *p, uint32_t slot) {
    tvm_dtype type = tvm_slot_dtype(e->k, slot);
    element_writer writer;
    reg fill = {"0"};
    if (p->fill && p->fill->kind == TVM_OPERAND_EXPR && tvm_shared_places_guarded(p))
        fill = tvm_emit_expr_as(e, p->fill->value, type, tvm_dtype_is_lowbit(type));
    if (!tvm_write_begin(e, &writer, slot)) return tvm_diag_no_memory(e->k->diags);
    for (uint32_t i = 0, locals = tvm_layout_locals(p->layout); i < locals; i++) {
        reg address, predicate, value = tvm_new_element(e, type);
        bool guarded = tvm_shared_place(e, p, i, &address, &predicate);
        if (guarded)
            tvm_emit(e, "mov.%s %s, %s;",
                     type.bits == 64     ? "b64"
                     : tvm_is_half(type) ? "b16"
                                         : "b32",
                     value.name, fill.name);
        tvm_emit(e, "%s%s%sld.shared.%s %s, [%s+%u];", guarded ? "@" : "", predicate.name, guarded ? " " : "",
                 access_type(type), value.name, address.name, e->k->slots[p->shared.tile.slot].shared_offset);
        tvm_write_element(e, &writer, value);
    }
    tvm_write_end(e, &writer);
    explain(e, p, "ld.shared", type);
    return TVM_OK;
}

tvm_status tvm_shared_places_store(emitter *e, shared_places *p, uint32_t slot) {
    tvm_dtype type = tvm_slot_dtype(e->k, slot);
    for (uint32_t i = 0, locals = tvm_layout_locals(p->layout); i < locals; i++) {
        reg address, predicate, value = tvm_read_element(e, slot, i, false);
        bool guarded = tvm_shared_place(e, p, i, &address, &predicate);
        tvm_emit(e, "%s%s%sst.shared.%s [%s+%u], %s;", guarded ? "@" : "", predicate.name, guarded ? " " : "",
                 access_type(type), address.name, e->k->slots[p->shared.tile.slot].shared_offset, value.name);
    }
    explain(e, p, "st.shared", type);
    return TVM_OK;
}
