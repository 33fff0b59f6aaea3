/* Element-wise instructions. f16 and bf16 are computed two neighbours at a time, in the words they lie in,
 * where PTX has the operation; everything else one element after the other, integers under 32 bits in 32-bit
 * registers. */
#include "compute.h"

#include <stdlib.h>
#include <string.h>

#include "operations.h"
#include "scaled.h"
#include "wgmma.h"

enum { MAX_SOURCES = 4 };

/* An operand of an element-wise instruction: a scalar, or a tensor broadcast to the result. */
typedef struct source {
    bool scalar;
    reg value;             /* of a scalar: in the class of its elements, integers extended */
    reg pair;              /* of an f16 or bf16 scalar: in both halves */
    uint32_t slot;         /* of a tensor */
    uint32_t *map;         /* result's local index -> the tensor's */
    const uint32_t *times; /* a factor of scaled sums (scaled.h): the result's local index -> theirs */
    uint32_t sums;         /* their slot */
    reg *multiplied;       /* this times 2^power, by local index and class of power */
} source;

typedef struct elementwise {
    const operation *operation; /* of an element-wise row, else NULL */
    bool fast;
    tvm_dtype type; /* of the sources, but for the condition of where */
    uint32_t result, locals;
    source sources[MAX_SOURCES];
    unsigned count;
    tvm_compare compare;
} elementwise;

/* ---- sources ---- */

static bool take_tensor(emitter *e, elementwise *w, source *s, uint32_t slot) {
    s->slot = slot;
    s->map = calloc(w->locals, sizeof *s->map);
    if (!s->map) return false;
    tvm_layout_broadcasts(tvm_slot_layout(e->k, slot), tvm_slot_layout(e->k, w->result), s->map, NULL);
    return true;
}

static void take_scalar(emitter *e, elementwise *w, unsigned i, uint32_t expr) {
    source *s = &w->sources[i];
    bool is_f32 = w->type.kind == TVM_KIND_FLOAT && w->type.bits == 32;
    s->scalar = true;
    s->value = tvm_extend_code(e, w->type, tvm_emit_expr_as(e, expr, w->type, false));
    if (is_f32 && w->operation && w->operation->least >> i & 1)
        s->value = tvm_least_operand(e, expr, s->value);
    if (tvm_is_half(w->type)) s->pair = tvm_pack_pair(e, s->value, s->value);
}

/* Takes operands [first, first + count) of the instruction; the type is that of the first tensor at or after
 * `typed`, or the result's when all of those are scalars. */
static bool take_sources(emitter *e, elementwise *w, const tvm_insn *insn, unsigned first, unsigned count,
                         unsigned typed) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    *w = (elementwise){.operation = tvm_operation_of(insn->op), .result = insn->result, .count = count};
    w->locals = tvm_layout_locals(tvm_slot_layout(e->k, insn->result));
    w->type = tvm_slot_dtype(e->k, insn->result);
    for (unsigned i = first + count; i-- > first + typed;)
        if (operands[i].kind == TVM_OPERAND_SLOT) w->type = tvm_slot_dtype(e->k, operands[i].value);
    for (unsigned i = 0; i < count; i++) {
        const tvm_operand *operand = &operands[first + i];
        if (operand->kind != TVM_OPERAND_SLOT)
            take_scalar(e, w, i, operand->value);
        else if (!take_tensor(e, w, &w->sources[i], operand->value))
            return false;
    }
    return true;
}

static void free_sources(elementwise *w) {
    for (unsigned i = 0; i < w->count; i++) {
        free(w->sources[i].map);
        free(w->sources[i].multiplied);
    }
}

/* The other factor of scaled sums takes their power on. */
static bool take_power(emitter *e, elementwise *w) {
    for (unsigned i = 0; i < 2 && i < w->count; i++) {
        const source *sums = &w->sources[i];
        source *factor = &w->sources[1 - i];
        if (sums->scalar || !e->k->slots[sums->slot].scaled.is_scaled) continue;
        factor->times = sums->map;
        factor->sums = sums->slot;
        factor->multiplied = calloc(
            SCALED_CLASSES * (size_t)tvm_layout_locals(tvm_slot_layout(e->k, factor->slot)), sizeof(reg));
        if (!factor->multiplied) return false;
    }
    return true;
}

static reg multiplied_element(emitter *e, const source *s, uint32_t local) {
    uint32_t of = s->times[local];
    const scaled_weights *scaled = &e->k->slots[s->sums].scaled;
    reg *known = &s->multiplied[SCALED_CLASSES * s->map[local] + tvm_sum_class(scaled, of)];
    if (known->name[0]) return *known;
    uint32_t factor = tvm_f32_bits((float)tvm_sum_factor(scaled, of));
    *known = tvm_new_f(e);
    tvm_emit(e, "mul.rn.f32 %s, %s, 0f%08X;", known->name,
             tvm_read_element(e, s->slot, s->map[local], true).name, (unsigned)factor);
    return *known;
}

static reg source_element(emitter *e, const source *s, uint32_t local) {
    if (s->multiplied) return multiplied_element(e, s, local);
    if (s->scalar) return s->value;
    if (tvm_slot_dtype(e->k, s->slot).bits == 32) return tvm_slot_word(e, s->slot, s->map[local]);
    return tvm_read_element(e, s->slot, s->map[local], true);
}

/* An element of a float source as f32 (f64 as f64). */
static reg source_number(emitter *e, const elementwise *w, const source *s, uint32_t local) {
    reg value = source_element(e, s, local);
    return tvm_is_half(w->type) ? tvm_half_to_f32(e, w->type, value) : value;
}

/* Elements `local` and `local` + 1 of an f16 or bf16 source in the halves of a word; past the end, anything.
 */
static reg source_pair(emitter *e, const elementwise *w, const source *s, uint32_t local) {
    if (s->scalar) return s->pair;
    uint32_t a = s->map[local], b = local + 1 < w->locals ? s->map[local + 1] : a + 1;
    reg first = tvm_slot_word(e, s->slot, a / 2);
    if (a % 2 == 0 && b == a + 1) return first;
    if (local + 1 >= w->locals) b = a;
    if (a == b) { /* as one half twice, which arithmetic of pairs has operands for, where PRMT is one more */
        reg halves[2];
        tvm_read_halves(e, s->slot, a / 2, halves);
        return tvm_pack_pair(e, halves[a % 2], halves[a % 2]);
    }
    reg pair = tvm_new_r(e);
    unsigned low = a % 2 ? 0x32 : 0x10, high = b % 2 ? 0x76 : 0x54;
    tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%02x%02x;", pair.name, first.name,
             tvm_slot_word(e, s->slot, b / 2).name, high, low);
    return pair;
}

/* Results are written at once where no source lies in their slot. */
static bool begin(emitter *e, const elementwise *w, element_writer *writer) {
    bool apart = true;
    for (unsigned i = 0; i < w->count; i++) {
        const source *s = &w->sources[i];
        if ((!s->scalar && s->slot == w->result) || (s->multiplied && s->sums == w->result)) apart = false;
    }
    return tvm_write_begin_apart(e, writer, w->result, apart);
}

static tvm_status finish(emitter *e, elementwise *w, bool taken, const candidate *candidates, size_t count) {
    char name[TVM_DTYPE_NAME_MAX];
    tvm_status status = taken ? tvm_select_candidate(e, candidates, count, w, tvm_dtype_name(w->type, name))
                              : tvm_diag_no_memory(e->k->diags);
    free_sources(w);
    return status;
}

/* ---- whole words ---- */

static const char *packed_sequence(const emitter *e, const elementwise *w) {
    return tvm_operation_packed(w->operation, w->fast, w->type, e->k->target);
}

static const char *refuse_packed(const emitter *e, const void *work) {
    const elementwise *w = work;
    if (packed_sequence(e, w)) return NULL;
    if (!tvm_is_half(w->type)) return "";
    return w->operation->not_packed ? w->operation->not_packed : "none on this target";
}

/* The elements of a word are two halves. */
static bool emit_packed(emitter *e, void *work) {
    const elementwise *w = work;
    const char *sequence = packed_sequence(e, w);
    const sequence_type type = {w->type.exponent == 8 ? "bf16x2" : "f16x2", 'r', 32};
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l += 2) {
        reg operands[3] = {0};
        for (unsigned i = 0; i < w->count; i++) operands[i] = source_pair(e, w, &w->sources[i], l);
        reg place = tvm_write_place(e, &writer);
        tvm_write_word(e, &writer, tvm_emit_sequence_to(e, sequence, type, operands, place));
    }
    tvm_write_end(e, &writer);
    return true;
}

/* Operations on bits take the words as they are, where every thread's elements are in the result's order. */
static const char *refuse_whole(const emitter *e, const void *work) {
    const elementwise *w = work;
    (void)e;
    if (!tvm_operation_whole(w->operation, w->type)) return "";
    for (unsigned i = 0; i < w->count; i++) {
        if (w->sources[i].scalar) return "an operand is a scalar";
        for (uint32_t l = 0; l < w->locals; l++)
            if (w->sources[i].map[l] != l) return "the operands' elements are in another order";
    }
    return NULL;
}

static bool emit_whole(emitter *e, void *work) {
    const elementwise *w = work;
    const char *sequence = tvm_operation_whole(w->operation, w->type);
    const sequence_type type = {"b32", 'r', 32};
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t i = 0; i < tvm_tensor_words(w->locals, w->type.bits); i++) {
        reg operands[3] = {0};
        for (unsigned s = 0; s < w->count; s++) operands[s] = tvm_slot_word(e, w->sources[s].slot, i);
        reg place = tvm_write_place(e, &writer);
        tvm_write_word(e, &writer, tvm_emit_sequence_to(e, sequence, type, operands, place));
    }
    tvm_write_end(e, &writer);
    return true;
}

/* ---- single elements ---- */

/* What a sequence computes single elements in: f16 and bf16 as f32. */
static sequence_type single_type(tvm_dtype type) {
    bool real = type.kind == TVM_KIND_FLOAT, wide = type.bits == 64;
    return (sequence_type){tvm_arithmetic_suffix(type),
                           real   ? (wide ? 'g' : 'f')
                           : wide ? 'q'
                                  : 'r',
                           type.bits};
}

static bool emit_single(emitter *e, void *work) {
    const elementwise *w = work;
    const char *sequence = tvm_operation_single(w->operation, w->fast, w->type);
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg operands[3] = {0};
        for (unsigned i = 0; i < w->count; i++) operands[i] = source_number(e, w, &w->sources[i], l);
        reg place = w->type.bits == 32 ? tvm_write_place(e, &writer) : (reg){""};
        reg d = tvm_emit_sequence_to(e, sequence, single_type(w->type), operands, place);
        tvm_write_element(e, &writer, tvm_is_half(w->type) ? tvm_f32_to_half(e, w->type, d) : d);
    }
    tvm_write_end(e, &writer);
    return true;
}

/* Sums of wgmma, in place, times a factor of their row: that of online softmax, which is mostly 1. A warp
 * whose factors all are skips the multiplications. */
enum { LEAST_SKIPPED = 16 }; /* multiplications of a factor */

static const char *refuse_ones(const emitter *e, const void *work) {
    const elementwise *w = work;
    const source *sums = &w->sources[0], *factor = &w->sources[1];
    if (w->operation != tvm_operation_of(TVM_OP_MUL) || w->type.kind != TVM_KIND_FLOAT || w->type.bits != 32)
        return "";
    if (sums->scalar || factor->scalar || sums->multiplied || factor->multiplied) return "";
    if (sums->slot != w->result || factor->slot == w->result || !tvm_wgmma_has_sums(e->k, sums->slot))
        return "";
    uint32_t factors = tvm_layout_locals(tvm_slot_layout(e->k, factor->slot));
    for (uint32_t l = 0; l < w->locals; l++)
        if (sums->map[l] != l) return "";
    return w->locals < LEAST_SKIPPED * factors ? "few elements of a factor" : NULL;
}

static bool emit_ones(emitter *e, void *work) {
    const elementwise *w = work;
    const source *factor = &w->sources[1];
    uint32_t sums = w->sources[0].slot, factors = tvm_layout_locals(tvm_slot_layout(e->k, factor->slot));
    uint32_t done = tvm_new_label(e);
    reg any = tvm_new_pred(e);
    for (uint32_t f = 0; f < factors; f++) {
        reg value = tvm_slot_word(e, factor->slot, f);
        tvm_emit(e, f ? "setp.neu.or.f32 %s, %s, 0f3F800000, %s;" : "setp.neu.f32 %s, %s, 0f3F800000;",
                 any.name, value.name, any.name);
    }
    tvm_emit(e, "vote.sync.any.pred %s, %s, 0xffffffff;", any.name, any.name);
    tvm_emit(e, "@!%s bra $L%u;", any.name, done);
    for (uint32_t l = 0; l < w->locals; l++) {
        reg sum = tvm_slot_word(e, sums, l);
        tvm_emit(e, "mul.rn.f32 %s, %s, %s;", sum.name, sum.name,
                 tvm_slot_word(e, factor->slot, factor->map[l]).name);
    }
    tvm_text_add(&e->body, "$L%u:\n", done);
    return true;
}

static const candidate arithmetic[] = {
    {"skipped where all are 1", refuse_ones, emit_ones},
    {"whole words", refuse_whole, emit_whole},
    {"packed pairs", refuse_packed, emit_packed},
    {"single elements", NULL, emit_single},
};

static tvm_status emit_arithmetic(emitter *e, const tvm_insn *insn, unsigned count) {
    elementwise w;
    bool taken = take_sources(e, &w, insn, 0, count, 0) && take_power(e, &w);
    w.fast = tvm_operation_is_fast(e, insn, count);
    return finish(e, &w, taken, arithmetic, sizeof arithmetic / sizeof *arithmetic);
}

tvm_status tvm_emit_BINARY(emitter *e, const tvm_insn *insn) {
    return emit_arithmetic(e, insn, 2);
}
tvm_status tvm_emit_FMA(emitter *e, const tvm_insn *insn) {
    return emit_arithmetic(e, insn, 3);
}
tvm_status tvm_emit_UNARY(emitter *e, const tvm_insn *insn) {
    return emit_arithmetic(e, insn, 1);
}

/* ---- compare ---- */

static bool emit_compare(emitter *e, void *work) {
    const elementwise *w = work;
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    e->compared = e->k->insn, e->compared_pred = e->next_pred;
    e->next_pred += w->locals;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg x = source_number(e, w, &w->sources[0], l), y = source_number(e, w, &w->sources[1], l);
        reg predicate = tvm_pred(e->compared_pred + l), d = tvm_new_r(e);
        tvm_emit(e, "setp.%s.%s %s, %s, %s;", tvm_test_name(w->compare, w->type),
                 tvm_arithmetic_suffix(w->type), predicate.name, x.name, y.name);
        tvm_emit(e, "selp.b32 %s, 1, 0, %s;", d.name, predicate.name);
        tvm_write_element(e, &writer, d);
    }
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_COMPARE(emitter *e, const tvm_insn *insn) {
    static const candidate candidates[] = {{"single elements", NULL, emit_compare}};
    elementwise w;
    bool taken = take_sources(e, &w, insn, 1, 2, 0);
    w.compare = (tvm_compare)tvm_operands(e->k->kernel, insn)[0].value;
    return finish(e, &w, taken, candidates, 1);
}

/* ---- where ---- */

/* The condition of element `local`. That of a compare right before is still in a predicate: were it read back
 * from the tensor, ptxas would make the conditions of all elements before it uses the first. */
static reg where_condition(emitter *e, const source *s, uint32_t local) {
    if (e->compared && e->k->insn == e->compared + 1 && !s->scalar && s->slot == e->compared->result)
        return tvm_pred(e->compared_pred + s->map[local]);
    reg condition = source_element(e, s, local), predicate = tvm_new_pred(e);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", predicate.name, condition.name);
    return predicate;
}

static bool emit_where(emitter *e, void *work) {
    const elementwise *w = work;
    const char *suffix = tvm_element_suffix(w->type);
    element_writer writer;
    if (!begin(e, w, &writer)) return false;
    for (uint32_t l = 0; l < w->locals; l++) {
        reg predicate = where_condition(e, &w->sources[0], l);
        reg x = source_element(e, &w->sources[1], l), y = source_element(e, &w->sources[2], l);
        reg d = w->type.bits == 32 ? tvm_write_place(e, &writer) : tvm_new_element(e, w->type);
        tvm_emit(e, "selp.%s %s, %s, %s, %s;", suffix, d.name, x.name, y.name, predicate.name);
        tvm_write_element(e, &writer, d);
    }
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_WHERE(emitter *e, const tvm_insn *insn) {
    static const candidate candidates[] = {{"single elements", NULL, emit_where}};
    elementwise w;
    bool taken = take_sources(e, &w, insn, 0, 3, 1);
    return finish(e, &w, taken, candidates, 1);
}

/* ---- alloc-register and view ---- */

/* The code of a constant expression, converted to an element. */
static bool constant_code(const emitter *e, uint32_t expr, tvm_dtype type, bool lowbit, uint64_t *code) {
    const tvm_expr *node = &e->k->kernel->exprs[expr];
    uint64_t value;
    if (node->op == TVM_EXPR_INTEGER)
        value = (uint64_t)node->value.i &
                (node->type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << node->type.bits) - 1);
    else if (node->op == TVM_EXPR_FLOAT)
        value = node->type.bits == 32 ? tvm_f32_bits((float)node->value.f) : tvm_f64_bits(node->value.f);
    else
        return false;
    *code = tvm_cast(type, node->type, value, lowbit);
    return true;
}

/* 1.0 as f32 is hidden from ptxas, as the tensor may be an operand of min (tvm_least_operand). */
static bool fill_constant(emitter *e, uint32_t slot, uint32_t locals, uint64_t code) {
    tvm_dtype type = tvm_slot_dtype(e->k, slot);
    unsigned bits = type.bits;
    uint32_t words = tvm_tensor_words(locals, bits);
    uint8_t *string = calloc(words + 1, 4);
    if (!string) return false;
    for (uint32_t l = 0; l < locals; l++) tvm_bits_set(string, (uint64_t)l * bits, bits, code);
    for (uint32_t i = 0; i < words; i++)
        tvm_emit(e, "mov.b32 %s, 0x%08x;", tvm_slot_word(e, slot, i).name,
                 (unsigned)tvm_bits_get(string, (uint64_t)i * 32, 32));
    free(string);
    if (type.kind == TVM_KIND_FLOAT && bits == 32 && code == tvm_f32_bits(1)) tvm_hide_constants(e, slot);
    return true;
}

static bool fill_value(emitter *e, uint32_t slot, uint32_t locals, reg value) {
    element_writer writer;
    if (!tvm_write_begin(e, &writer, slot)) return false;
    for (uint32_t l = 0; l < locals; l++) tvm_write_element(e, &writer, value);
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_ALLOC_REGISTER(emitter *e, const tvm_insn *insn) {
    const tvm_operand *init = insn->count ? tvm_operands(e->k->kernel, insn) : NULL;
    tvm_dtype type = tvm_slot_dtype(e->k, insn->result);
    uint32_t locals = tvm_layout_locals(tvm_slot_layout(e->k, insn->result));
    bool lowbit = tvm_dtype_is_lowbit(type), done;
    size_t before = e->body.size;
    uint64_t code = 0;
    bool given = init && init->kind == TVM_OPERAND_EXPR;
    if (!given || constant_code(e, init->value, type, lowbit, &code))
        done = fill_constant(e, insn->result, locals, code);
    else
        done = fill_value(e, insn->result, locals, tvm_emit_expr_as(e, init->value, type, lowbit));
    if (!done) return tvm_diag_no_memory(e->k->diags);
    tvm_explain(e, given ? "move of the value" : "move of zero", 0, tvm_body_lines(e, before), -1, "");
    return TVM_OK;
}

tvm_status tvm_emit_VIEW(emitter *e, const tvm_insn *insn) {
    uint32_t from = tvm_operands(e->k->kernel, insn)[0].value;
    uint32_t words =
        tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e->k, from)), tvm_slot_dtype(e->k, from).bits);
    for (uint32_t i = 0; i < words && from != insn->result; i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, insn->result, i).name,
                 tvm_slot_word(e, from, i).name);
    tvm_explain(e, "alias", 0, 0, -1, "");
    return TVM_OK;
}
