/* atomic and atomic-fetch: one red or atom for each element; two f16 or bf16 that are neighbours in one; on
 * sm_90 up to 16 bytes of sums of f32, f16 and bf16. What the hardware has no instruction for is a loop
 * around cas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit_atomic.h"
#include "emit_cluster.h"
#include "compute.h"
#include "emit.h"
#include "global_transfer.h"
#include "scratch.h"
#include "shared_places.h"
#include "emit_wgmma.h"

typedef struct atomic {
    tvm_atomic operation;
    tvm_dtype type;
    const char *space, *order, *scope;
    bool fetches;
    bool loops;      /* around cas */
    unsigned widest; /* bits of an access to global memory */
    const tvm_layout *layout;
    uint32_t source; /* slots */
    broadcast expected;
    uint32_t rank; /* of the block whose tensor it is, an expression; TVM_NONE: this one */
    char name[64]; /* of the instruction, for the report */
} atomic;

/* Where an access is, and under what condition. */
typedef struct spot {
    reg address, predicate; /* predicate.name[0] == 0: always */
    long long plus;         /* bytes */
} spot;

static bool is_sum(const atomic *a) {
    return a->operation == TVM_ATOMIC_ADD || a->operation == TVM_ATOMIC_SUB;
}

/* Sums of bf16 came with sm_90; there are no atomic minima of floats, and exch is of 32 bits and more. */
static bool needs_loop(const emitter *e, const atomic *a) {
    if (is_sum(a))
        return tvm_is_half(a->type) && a->type.exponent == 8 &&
               !tvm_target_has(e->k->target, TVM_HAS_RED_BF16);
    if (a->operation == TVM_ATOMIC_EXCH) return a->type.bits < 32;
    return a->operation != TVM_ATOMIC_CAS && a->type.kind == TVM_KIND_FLOAT;
}

/* red does not acquire, and has neither exch nor cas. */
static bool is_red(const atomic *a) {
    bool acquires = a->order[1] == 'a';
    return !a->fetches && !acquires && a->operation != TVM_ATOMIC_EXCH && a->operation != TVM_ATOMIC_CAS;
}

static unsigned widest_access(const emitter *e, const atomic *a) {
    if (a->loops || !is_sum(a) || a->type.kind != TVM_KIND_FLOAT || a->type.bits > 32) return a->type.bits;
    return tvm_target_has(e->k->target, TVM_HAS_RED_VECTOR) && is_red(a) ? 128 : 32;
}

static void open_atomic(emitter *e, const tvm_insn *insn, atomic *a) {
    static const char *const orders[] = {".relaxed", ".acquire", ".release", ".acq_rel"};
    static const char *const scopes[] = {".cta", ".cluster", ".gpu", ".sys"};
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    unsigned rank = tvm_slot_rank(e->k->program, &e->k->kernel->slots[operands[1].value]);
    const tvm_operand *source = operands + 2 + rank, *order = source + 3, *scope = source + 4;
    *a = (atomic){.operation = (tvm_atomic)operands[0].value,
                  .type = tvm_slot_dtype(e->k, operands[1].value),
                  .source = source->value,
                  .layout = tvm_slot_layout(e->k, source->value),
                  .fetches = insn->result != TVM_NONE};
    a->rank = source[5].kind == TVM_OPERAND_EXPR ? source[5].value : TVM_NONE;
    a->space = e->k->kernel->slots[operands[1].value].kind != TVM_SLOT_SHARED ? ".global"
               : a->rank == TVM_NONE || tvm_cluster_blocks(e->k->kernel) == 1 ? ".shared"
                                                                              : ".shared::cluster";
    a->order = orders[order->kind == TVM_OPERAND_CONST ? order->value : TVM_ORDER_RELAXED];
    unsigned wide = scope->kind == TVM_OPERAND_CONST ? scope->value : TVM_SCOPE_GPU;
    bool alone = !tvm_target_has(e->k->target, TVM_HAS_CLUSTERS); /* a cluster is one block */
    if (wide == TVM_SCOPE_CLUSTER && alone) wide = TVM_SCOPE_CTA;
    a->scope = scopes[wide];
    a->loops = needs_loop(e, a);
    a->widest = widest_access(e, a);
}

/* ---- values ---- */

/* An element's bits: %h, %r or %rd. */
static reg element_bits(emitter *e, uint32_t slot, uint32_t local) {
    tvm_dtype type = tvm_slot_dtype(e->k, slot);
    reg value = tvm_read_element(e, slot, local, false), bits = value;
    if (type.kind != TVM_KIND_FLOAT || type.bits == 16) return value;
    bits = type.bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
    tvm_emit(e, "mov.b%u %s, %s;", type.bits, bits.name, value.name);
    return bits;
}

static reg new_bits(emitter *e, unsigned bits) {
    return bits == 16 ? tvm_new_h(e) : bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
}

/* Bits as a number for arithmetic, f16 and bf16 as f32; and back. */
static reg number_of(emitter *e, tvm_dtype type, reg bits) {
    if (tvm_is_half(type)) return tvm_half_to_f32(e, type, bits);
    if (type.kind != TVM_KIND_FLOAT) return bits;
    reg value = type.bits == 64 ? tvm_new_fd(e) : tvm_new_f(e);
    tvm_emit(e, "mov.b%u %s, %s;", type.bits, value.name, bits.name);
    return value;
}

static reg bits_of(emitter *e, tvm_dtype type, reg number) {
    if (tvm_is_half(type)) return tvm_f32_to_half(e, type, number);
    reg bits = new_bits(e, type.bits);
    tvm_emit(e, "mov.b%u %s, %s;", type.bits, bits.name, number.name);
    return bits;
}

/* Less is the sum with the negative. */
static reg negated(emitter *e, const atomic *a, reg bits, unsigned width) {
    reg d = new_bits(e, width);
    if (a->type.kind != TVM_KIND_FLOAT)
        tvm_emit(e, "neg.s%u %s, %s;", width, d.name, bits.name);
    else if (width == 64)
        tvm_emit(e, "xor.b64 %s, %s, 0x8000000000000000;", d.name, bits.name);
    else
        tvm_emit(e, "xor.b%u %s, %s, 0x%s;", width, d.name, bits.name,
                 width == 16          ? "8000"
                 : a->type.bits == 16 ? "80008000"
                                      : "80000000");
    return d;
}

/* ---- one instruction: fence ATOMIC_ORDER ---- */

/* "add.noftz.f16x2": operation and type of an access of `width` bits. */
static const char *suffix(const atomic *a, unsigned width, char text[32]) {
    static const char *const names[] = {"add", "add", "min", "max", "exch", "cas", "and", "or", "xor"};
    const char *name = names[a->operation];
    bool is_float = a->type.kind == TVM_KIND_FLOAT;
    if (is_sum(a) && tvm_is_half(a->type))
        snprintf(text, 32, "add.noftz%s.%s%s",
                 width == 64    ? ".v2"
                 : width == 128 ? ".v4"
                                : "",
                 a->type.exponent == 8 ? "bf16" : "f16", width > 16 ? "x2" : "");
    else if (is_sum(a) && is_float)
        snprintf(text, 32, "add%s.f%u",
                 a->type.bits == 64 || width == 32 ? ""
                 : width == 64                     ? ".v2"
                                                   : ".v4",
                 a->type.bits);
    else if (is_sum(a))
        snprintf(text, 32, "add.u%u", a->type.bits);
    else if (a->operation == TVM_ATOMIC_MIN || a->operation == TVM_ATOMIC_MAX)
        snprintf(text, 32, "%s.%s", name, tvm_arithmetic_suffix(a->type));
    else
        snprintf(text, 32, "%s.b%u", name, a->type.bits);
    return text;
}

/* red or atom with these operands; d: where the old element goes, or NULL. */
static void emit_once(emitter *e, atomic *a, const spot *at, unsigned width, const reg *d,
                      const char *operands) {
    char type[32];
    bool red = is_red(a);
    reg sink = d || red ? (reg){""} : new_bits(e, width);
    const char *guard = at->predicate.name[0] ? "@" : "", *space = guard[0] ? " " : "";
    suffix(a, width, type);
    snprintf(a->name, sizeof a->name, "%s%s.%s", red ? "red" : "atom", a->space, type);
    if (red)
        tvm_emit(e, "%s%s%sred%s%s%s.%s [%s+%lld], %s;", guard, at->predicate.name, space, a->order, a->scope,
                 a->space, type, at->address.name, at->plus, operands);
    else
        tvm_emit(e, "%s%s%satom%s%s%s.%s %s, [%s+%lld], %s;", guard, at->predicate.name, space, a->order,
                 a->scope, a->space, type, d ? d->name : sink.name, at->address.name, at->plus, operands);
}

/* The new element of a loop's turn. */
static reg made_of(emitter *e, const atomic *a, reg old, reg value) {
    if (a->operation == TVM_ATOMIC_EXCH) return value;
    reg x = number_of(e, a->type, old), y = number_of(e, a->type, value);
    reg d = a->type.bits == 64 ? tvm_new_fd(e) : tvm_new_f(e);
    const char *name = is_sum(a) ? "add.rn" : a->operation == TVM_ATOMIC_MIN ? "min" : "max";
    tvm_emit(e, "%s.%s %s, %s, %s;", name, a->type.bits == 64 ? "f64" : "f32", d.name, x.name, y.name);
    return bits_of(e, a->type, d);
}

/* The threads of a warp stay together until each has done its element. What is read first is a guess. */
static reg emit_loop(emitter *e, atomic *a, const spot *at, reg value) {
    unsigned bits = a->type.bits;
    uint32_t again = tvm_new_label(e);
    reg old = new_bits(e, bits), seen = new_bits(e, bits), pending = tvm_new_pred(e),
        differs = tvm_new_pred(e), any = tvm_new_pred(e);
    if (at->predicate.name[0])
        tvm_emit(e, "mov.pred %s, %s;", pending.name, at->predicate.name);
    else
        tvm_emit(e, "setp.eq.u32 %s, 0, 0;", pending.name);
    tvm_emit(e, "mov.b%u %s, 0;", bits, old.name);
    tvm_emit(e, "@%s ld%s.b%u %s, [%s+%lld];", pending.name, a->space, bits, old.name, at->address.name,
             at->plus);
    tvm_text_add(&e->body, "$L%u:\n", again);
    reg made = made_of(e, a, old, value);
    tvm_emit(e, "mov.b%u %s, %s;", bits, seen.name, old.name);
    tvm_emit(e, "@%s atom%s%s%s.cas.b%u %s, [%s+%lld], %s, %s;", pending.name, a->order, a->scope, a->space,
             bits, seen.name, at->address.name, at->plus, old.name, made.name);
    tvm_emit(e, "setp.ne.b%u %s, %s, %s;", bits, differs.name, seen.name, old.name);
    tvm_emit(e, "mov.b%u %s, %s;", bits, old.name, seen.name);
    tvm_emit(e, "and.pred %s, %s, %s;", pending.name, pending.name, differs.name);
    tvm_emit(e, "vote.sync.any.pred %s, %s, 0xffffffff;", any.name, pending.name);
    tvm_emit(e, "@%s bra.uni $L%u;", any.name, again);
    snprintf(a->name, sizeof a->name, "atom%s.cas.b%u in a loop", a->space, bits);
    return old;
}

/* One element; the old one's bits where they are fetched, zero where there is no place. */
static reg update_element(emitter *e, atomic *a, const spot *at, uint32_t local) {
    unsigned bits = a->type.bits;
    char operands[64];
    reg value = element_bits(e, a->source, local), old = {""};
    if (a->operation == TVM_ATOMIC_SUB) value = negated(e, a, value, bits);
    if (a->loops) return emit_loop(e, a, at, value);
    bool sums_float = is_sum(a) && a->type.kind == TVM_KIND_FLOAT && bits >= 32;
    if (sums_float) value = number_of(e, a->type, value);
    if (a->operation == TVM_ATOMIC_CAS)
        snprintf(operands, sizeof operands, "%s, %s",
                 element_bits(e, a->expected.slot, a->expected.map[local]).name, value.name);
    else
        snprintf(operands, sizeof operands, "%s", value.name);
    if (!a->fetches) {
        emit_once(e, a, at, bits, NULL, operands);
        return old;
    }
    old = sums_float ? (bits == 64 ? tvm_new_fd(e) : tvm_new_f(e)) : new_bits(e, bits);
    if (at->predicate.name[0])
        tvm_emit(e, "mov.%s %s, %s;",
                 sums_float   ? tvm_element_suffix(a->type)
                 : bits == 16 ? "b16"
                 : bits == 64 ? "b64"
                              : "b32",
                 old.name,
                 !sums_float  ? "0"
                 : bits == 64 ? "0d0000000000000000"
                              : "0f00000000");
    emit_once(e, a, at, bits, &old, operands);
    return sums_float ? bits_of(e, a->type, old) : old;
}

/* ---- sums of words ---- */

static void add_element(emitter *e, atomic *a, const spot *at, reg value) {
    if (a->loops) {
        emit_loop(e, a, at, value);
        return;
    }
    if (a->type.bits >= 32) value = number_of(e, a->type, value);
    emit_once(e, a, at, a->type.bits, NULL, value.name);
}

/* The two halves of a word, or of 16 bits the one. */
static void add_halves(emitter *e, atomic *a, spot at, reg word, bool both) {
    reg low = tvm_new_h(e), high = tvm_new_h(e);
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", low.name, high.name, word.name);
    add_element(e, a, &at, low);
    at.plus += 2;
    if (both) add_element(e, a, &at, high);
}

/* Up to four words by one instruction. */
static void add_vector(emitter *e, atomic *a, const spot *at, const reg *words, unsigned count) {
    char operands[64];
    int n = snprintf(operands, sizeof operands, "%s", count > 1 ? "{" : "");
    for (unsigned w = 0; w < count; w++) {
        reg value = a->type.bits == 32 ? number_of(e, a->type, words[w]) : words[w];
        n += snprintf(operands + n, sizeof operands - (size_t)n, "%s%s", w ? ", " : "", value.name);
    }
    snprintf(operands + n, sizeof operands - (size_t)n, "%s", count > 1 ? "}" : "");
    emit_once(e, a, at, 32 * count, NULL, operands);
}

void tvm_emit_global_add(emitter *e, tvm_dtype type, reg address, int64_t plus, reg predicate,
                         const reg *words, unsigned bits) {
    atomic a = {
        .operation = TVM_ATOMIC_ADD, .type = type, .space = ".global", .order = ".relaxed", .scope = ".gpu"};
    spot at = {.address = address, .predicate = predicate, .plus = plus};
    a.loops = needs_loop(e, &a);
    a.widest = widest_access(e, &a);
    unsigned count = bits < 32 ? 1 : bits / 32, step = a.widest > 32 ? a.widest / 32 : 1;
    if (step > count) step = count;
    for (unsigned w = 0; w < count; w += step, at.plus += 4 * (int)step) {
        if (type.bits == 16 && (bits == 16 || a.loops)) {
            add_halves(e, &a, at, words[w], bits > 16);
        } else if (type.bits == 64) {
            reg wide = tvm_new_rd(e);
            tvm_emit(e, "mov.b64 %s, {%s, %s};", wide.name, words[w].name, words[w + 1].name);
            add_element(e, &a, &at, wide);
        } else {
            add_vector(e, &a, &at, words + w, step);
        }
    }
}

/* ---- what was there before ---- */

typedef struct fetched {
    reg *old; /* by local: bits */
    uint32_t locals;
} fetched;

/* The elements' index in the tile, row-major. */
static uint32_t linear_index(const tvm_layout *layout, const uint32_t *coordinate) {
    uint32_t at = 0;
    for (unsigned d = 0; d < layout->rank; d++) at = at * layout->shape[d] + coordinate[d];
    return at;
}

static reg thread_address(emitter *e, const tvm_layout *layout, unsigned bytes) {
    reg at = tvm_pure(e, 'r', "mov.b32 $, 0;");
    uint32_t step = bytes;
    for (unsigned d = layout->rank; d-- > 0;) {
        reg part;
        if (tvm_thread_coordinate(e, layout, d, &part))
            at = tvm_pure(e, 'r', "mad.lo.u32 $, %s, %u, %s;", part.name, (unsigned)step, at.name);
        step *= layout->shape[d];
    }
    return tvm_pure(e, 'r', "add.u32 $, %s, %s;", at.name, tvm_scratch_base(e).name);
}

/* The threads that did the operations tell those that hold the same elements. */
static void share(emitter *e, const atomic *a, fetched *f, reg owner) {
    unsigned bits = a->type.bits, bytes = bits / 8;
    uint64_t size = bytes;
    for (unsigned d = 0; d < a->layout->rank; d++) size *= a->layout->shape[d];
    uint32_t scratch = tvm_scratch_begin(e, size);
    reg base = thread_address(e, a->layout, bytes);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < f->locals; i++) {
            uint32_t coordinate[TVM_MAX_RANK] = {0};
            tvm_layout_map(a->layout, 0, i, coordinate);
            uint32_t at = scratch + linear_index(a->layout, coordinate) * bytes;
            if (pass == 0)
                tvm_emit(e, "@%s st.shared.b%u [%s+%u], %s;", owner.name, bits, base.name, (unsigned)at,
                         f->old[i].name);
            else
                tvm_emit(e, "ld.shared.b%u %s, [%s+%u];", bits, f->old[i].name, base.name, (unsigned)at);
        }
        if (pass == 0) tvm_scratch_publish(e);
    }
}

static tvm_status finish(emitter *e, atomic *a, const tvm_insn *insn, fetched *f, bool guarded,
                         unsigned count) {
    element_writer writer;
    char name[96];
    reg owner;
    snprintf(name, sizeof name, "%s%s", a->name, guarded ? " guarded" : "");
    tvm_explain(e, name, a->type.bits, count, -1, "");
    if (!a->fetches) return TVM_OK;
    if (tvm_layout_owner(e, a->layout, &owner)) share(e, a, f, owner);
    if (!tvm_write_begin(e, &writer, insn->result)) return tvm_diag_no_memory(e->k->diags);
    for (uint32_t i = 0; i < f->locals; i++) tvm_write_element(e, &writer, f->old[i]);
    tvm_write_end(e, &writer);
    return TVM_OK;
}

/* ---- global memory ---- */

/* Several elements by one instruction: pairs of halves in a word, and vectors of words. */
static void update_wide(emitter *e, atomic *a, const spot *at, const access_plan *plan, const access *part,
                        fetched *f, const uint32_t *locals) {
    reg units[4], d = {""};
    char operands[64];
    int n = 0;
    tvm_access_gather(e, plan, part, a->source, units);
    for (uint32_t u = 0; u < part->units; u++) {
        if (a->operation == TVM_ATOMIC_SUB) units[u] = negated(e, a, units[u], 32);
        if (a->type.bits == 32) units[u] = number_of(e, a->type, units[u]);
        n += snprintf(operands + n, sizeof operands - (size_t)n, "%s%s",
                      u                 ? ", "
                      : part->units > 1 ? "{"
                                        : "",
                      units[u].name);
    }
    if (part->units > 1) snprintf(operands + n, sizeof operands - (size_t)n, "}");
    if (a->fetches) {
        d = tvm_new_r(e);
        if (at->predicate.name[0]) tvm_emit(e, "mov.b32 %s, 0;", d.name);
    }
    emit_once(e, a, at, part->width, a->fetches ? &d : NULL, operands);
    if (!a->fetches) return;
    f->old[locals[0]] = tvm_new_h(e);
    f->old[locals[1]] = tvm_new_h(e);
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", f->old[locals[0]].name, f->old[locals[1]].name, d.name);
}

/* The elements of an access, in the order in which they lie in memory. */
static uint32_t find_locals(const transfer *t, const access *part, uint32_t locals[8]) {
    uint32_t count = part->width / t->g.tile.bits;
    for (uint32_t i = 0; i < t->map.locals; i++) {
        int64_t bit = t->map.offset[i] * t->g.tile.bits - part->offset;
        if (t->map.class_id[i] == part->class_id && bit >= 0 && bit < part->width)
            locals[bit / t->g.tile.bits] = i;
    }
    return count;
}

static tvm_status update_global(emitter *e, atomic *a, const tvm_insn *insn, const tvm_operand *memory,
                                const tvm_operand *mask, fetched *f) {
    transfer t = {0};
    access_plan plan = {0};
    tvm_status status = tvm_transfer_open(e, &t, memory, a->source, true, mask);
    if (status == TVM_OK)
        status = tvm_access_plan_make(e->k, t.map.locals, t.g.tile.bits, t.map.offset, t.map.class_id,
                                      tvm_transfer_alignment(&t), a->widest, &plan);
    if (status == TVM_OK) tvm_transfer_keep_owners(e, &t);
    for (uint32_t i = 0; i < plan.count && status == TVM_OK; i++) {
        const access *part = &plan.accesses[i];
        uint32_t locals[8] = {0};
        spot at = {.plus = part->offset / 8};
        tvm_transfer_class(e, &t, part->class_id, &at.address, &at.predicate);
        if (find_locals(&t, part, locals) > 1)
            update_wide(e, a, &at, &plan, part, f, locals);
        else
            f->old[locals[0]] = update_element(e, a, &at, locals[0]);
    }
    if (status == TVM_OK) status = finish(e, a, insn, f, tvm_transfer_is_guarded(&t), plan.count);
    tvm_access_plan_free(&plan);
    tvm_transfer_close(&t);
    return status;
}

/* ---- shared memory ---- */

static tvm_status update_shared(emitter *e, atomic *a, const tvm_insn *insn, const tvm_operand *memory,
                                const tvm_operand *mask, fetched *f) {
    shared_places p;
    reg owner;
    bool made = tvm_shared_places_open(e, &p, memory, a->layout, mask, true);
    bool owns = tvm_layout_owner(e, a->layout, &owner);
    bool checked = a->rank != TVM_NONE && tvm_emit_cluster_guard(e, a->rank);
    for (uint32_t i = 0; i < f->locals && made; i++) {
        spot at = {.plus = e->k->slots[memory->value].shared_offset};
        tvm_shared_place(e, &p, i, &at.address, &at.predicate);
        if (a->space[7] == ':') at.address = tvm_emit_cluster_address(e, at.address, a->rank);
        if (owns) at.predicate = tvm_both(e, at.predicate, owner);
        f->old[i] = update_element(e, a, &at, i);
    }
    tvm_status status = made ? finish(e, a, insn, f, checked || tvm_shared_places_guarded(&p), f->locals)
                             : tvm_diag_no_memory(e->k->diags);
    tvm_shared_places_close(&p);
    tvm_wgmma_stored(e, a->layout);
    return status;
}

static tvm_status emit_atomic(emitter *e, const tvm_insn *insn) {
    const tvm_operand *memory = tvm_operands(e->k->kernel, insn) + 1;
    atomic a;
    open_atomic(e, insn, &a);
    const tvm_operand *expected =
        memory + 2 + tvm_slot_rank(e->k->program, &e->k->kernel->slots[memory->value]);
    fetched f = {.locals = tvm_layout_locals(a.layout)};
    f.old = calloc(f.locals, sizeof *f.old);
    tvm_status status;
    if (!f.old || !tvm_broadcast_open(e, &a.expected, expected, a.layout))
        status = tvm_diag_no_memory(e->k->diags);
    else if (a.space[1] == 's')
        status = update_shared(e, &a, insn, memory, expected + 1, &f);
    else
        status = update_global(e, &a, insn, memory, expected + 1, &f);
    tvm_broadcast_close(&a.expected);
    free(f.old);
    return status;
}

tvm_status tvm_emit_ATOMIC(emitter *e, const tvm_insn *insn) {
    return emit_atomic(e, insn);
}

tvm_status tvm_emit_ATOMIC_FETCH(emitter *e, const tvm_insn *insn) {
    return emit_atomic(e, insn);
}
