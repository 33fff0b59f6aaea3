/* Scalars from tensors. load-scalar: every thread of the team loads the element, which is one access of each
 * warp. scalar: every thread has it. */
#include <stdlib.h>

#include "analysis.h"
#include "compute.h"
#include "emit.h"
#include "global_access.h"
#include "shared_access.h"

/* Where the element lies. */
typedef struct place {
    const char *space;
    reg address, inside; /* inside.name[0] == 0: always inside */
    uint32_t plus;       /* bytes */
    bool guarded;
} place;

static place place_global(emitter *e, const tvm_operand *tensor) {
    static const uint32_t origin[TVM_MAX_RANK] = {0};
    global_access g = {0};
    place p = {.space = "global"};
    tvm_global_open(e, &g, tensor->value, tensor + 1, 0);
    p.guarded = tvm_global_predicate(&g, origin, &p.inside);
    p.address = tvm_global_pointer(&g, origin);
    return p;
}

static bool place_shared(emitter *e, const tvm_operand *tensor, place *p) {
    static const reg none[TVM_MAX_RANK] = {{""}};
    static const uint32_t origin[TVM_MAX_RANK] = {0};
    shared_access tile;
    shared_lanes *lanes = calloc(1, sizeof *lanes);
    if (!lanes) return false;
    *p = (place){.space = "shared"};
    bool one_mode =
        tvm_shared_access_open(e, &tile, tensor->value, tensor + 1, 0, NULL, tvm_team_threads(e->team));
    p->guarded = tvm_shared_guard(e, tensor->value, tensor + 1, 0, NULL);
    if (one_mode) {
        p->address = tvm_shared_address(&tile, lanes, 0, &p->plus);
    } else {
        p->address = tvm_shared_address_of_coordinates(&tile, none, origin);
        p->plus = e->k->slots[tensor->value].shared_offset;
    }
    free(lanes);
    return true;
}

/* The type of the load, whose register holds the value as a scalar, but for f16 and bf16. */
static const char *load_type(tvm_dtype type) {
    static const char *const names[3][4] = {
        {"s8", "s16", "b32", "b64"}, {"u8", "u16", "b32", "b64"}, {"", "b16", "f32", "f64"}};
    unsigned row = type.kind == TVM_KIND_INT ? 0 : type.kind == TVM_KIND_FLOAT ? 2 : 1;
    return names[row][type.bits == 8 ? 0 : type.bits == 16 ? 1 : type.bits == 32 ? 2 : 3];
}

static reg load_element(emitter *e, const place *p, tvm_dtype type) {
    const char *zero = type.kind != TVM_KIND_FLOAT || type.bits == 16 ? "0"
                       : type.bits == 32                              ? "0f00000000"
                                                                      : "0d0000000000000000";
    bool guarded = p->inside.name[0];
    reg value = tvm_new_element(e, type);
    if (guarded) tvm_emit(e, "mov.%s %s, %s;", tvm_element_suffix(type), value.name, zero);
    tvm_emit(e, "%s%s%sld.%s.%s %s, [%s+%u];", guarded ? "@" : "", p->inside.name, guarded ? " " : "",
             p->space, load_type(type), value.name, p->address.name, p->plus);
    if (type.kind != TVM_KIND_BOOL) return value;
    reg set = tvm_new_pred(e), truth = tvm_new_r(e);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", set.name, value.name);
    tvm_emit(e, "selp.b32 %s, 1, 0, %s;", truth.name, set.name);
    return truth;
}

/* What is outside of its range becomes the nearest value of it: proofs build on the range, whatever the
 * memory holds. An empty range has none. */
static reg keep_in_range(emitter *e, const tvm_operand bounds[2], tvm_dtype type, reg value) {
    const char *suffix = tvm_arithmetic_suffix(type);
    bool wide = type.bits == 64;
    reg low = tvm_emit_expr(e, bounds[0].value), end = tvm_emit_expr(e, bounds[1].value);
    if (!tvm_fact_inside(e->k, bounds[0].value, 1, bounds[1].value)) {
        reg empty = tvm_new_pred(e);
        tvm_emit(e, "setp.ge.%s %s, %s, %s;", suffix, empty.name, low.name, end.name);
        tvm_emit_trap(e, empty, true);
    }
    reg last = wide ? tvm_new_rd(e) : tvm_new_r(e), above = wide ? tvm_new_rd(e) : tvm_new_r(e),
        kept = wide ? tvm_new_rd(e) : tvm_new_r(e);
    tvm_emit(e, "sub.%s %s, %s, 1;", suffix, last.name, end.name);
    tvm_emit(e, "max.%s %s, %s, %s;", suffix, above.name, value.name, low.name);
    tvm_emit(e, "min.%s %s, %s, %s;", suffix, kept.name, above.name, last.name);
    return kept;
}

/* The result is the element, whose register holds the value as a scalar, but for f16 and bf16. */
static void assign(emitter *e, const tvm_insn *insn, reg element) {
    const tvm_operand *bounds = tvm_insn_interval(e->k->program, e->k->kernel, insn);
    tvm_dtype from = tvm_slot_dtype(e->k, tvm_operands(e->k->kernel, insn)->value),
              type = tvm_slot_dtype(e->k, insn->result);
    reg value = tvm_is_half(from) ? tvm_half_to_f32(e, from, element) : element;
    if (bounds) value = keep_in_range(e, bounds, type, value);
    tvm_emit(e, "mov.%s %s, %s;", tvm_element_suffix(type), e->slots[insn->result].reg, value.name);
    tvm_fact_forget(e->k, insn->result);
}

tvm_status tvm_emit_LOAD_SCALAR(emitter *e, const tvm_insn *insn) {
    const tvm_operand *tensor = tvm_operands(e->k->kernel, insn);
    tvm_dtype from = tvm_slot_dtype(e->k, tensor->value);
    place p;
    if (e->k->kernel->slots[tensor->value].kind == TVM_SLOT_GLOBAL)
        p = place_global(e, tensor);
    else if (!place_shared(e, tensor, &p))
        return tvm_diag_no_memory(e->k->diags);
    assign(e, insn, load_element(e, &p, from));
    char name[40];
    snprintf(name, sizeof name, "ld.%s.%s%s", p.space, load_type(from), p.guarded ? " guarded" : "");
    tvm_explain(e, name, from.bits, 1, -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_SCALAR(emitter *e, const tvm_insn *insn) {
    const tvm_operand *tensor = tvm_operands(e->k->kernel, insn);
    assign(e, insn, tvm_read_element(e, tensor->value, 0, true));
    tvm_explain(e, "mov", tvm_slot_dtype(e->k, tensor->value).bits, 1, -1, "");
    return TVM_OK;
}
