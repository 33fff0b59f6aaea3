/* Random numbers by Philox 4x32-10 (isa/random.h). The four words of a counter are made once for all elements
 * of a thread that take one of them, where each thread's elements begin at a multiple of four; else for each
 * element, which then selects its word. */
#include "random.h"

#include <stdlib.h>

#include "compute.h"
#include "emit.h"

typedef struct philox {
    reg keys[TVM_PHILOX_ROUNDS][2];
    reg offset;              /* %rd: the offset, and the counters of the thread's first element */
    reg stream[2], position; /* %r; position: of the thread's first element in the tile, where it varies */
    bool varies;             /* the position does */
    bool aligned;            /* it is a multiple of four */
} philox;

/* Words made for one counter: the elements' position / 4, less the thread's part. */
typedef struct counter_words {
    uint32_t counter;
    reg words[TVM_PHILOX_WORDS];
} counter_words;

static reg low_word(emitter *e, reg wide, bool high) {
    reg low = tvm_new_r(e), upper = tvm_new_r(e);
    tvm_emit(e, "mov.b64 {%s, %s}, %s;", low.name, upper.name, wide.name);
    return high ? upper : low;
}

/* An integer operand as 64 bits. */
static reg wide_operand(emitter *e, const tvm_operand *operand) {
    tvm_dtype type = e->k->kernel->exprs[operand->value].type;
    reg value = tvm_emit_expr(e, operand->value);
    if (type.bits == 64) return value;
    reg wide = tvm_new_rd(e);
    tvm_emit(e, "cvt.%s.%s %s, %s;", type.kind == TVM_KIND_INT ? "s64" : "u64",
             type.kind == TVM_KIND_INT ? "s32" : "u32", wide.name, value.name);
    return wide;
}

static void make_keys(emitter *e, philox *p, const tvm_operand *seed) {
    static const uint32_t bump[2] = {TVM_PHILOX_W0, TVM_PHILOX_W1};
    reg wide = wide_operand(e, seed);
    for (unsigned i = 0; i < 2; i++) p->keys[0][i] = low_word(e, wide, i == 1);
    for (unsigned round = 1; round < TVM_PHILOX_ROUNDS; round++)
        for (unsigned i = 0; i < 2; i++)
            p->keys[round][i] = word_op(e, "add.u32", p->keys[round - 1][i], bump[i]);
}

/* Row-major position of the thread's first element, and whether all of them are multiples of four. */
static void find_position(emitter *e, philox *p, const tvm_layout *layout) {
    uint32_t stride = 1, threads = tvm_layout_threads(layout);
    p->aligned = true;
    for (uint32_t t = 0; t < threads; t++)
        if (tvm_layout_element(layout, t, 0) % TVM_PHILOX_WORDS) p->aligned = false;
    for (unsigned d = layout->rank; d-- > 0; stride *= layout->shape[d]) {
        reg part;
        if (!tvm_thread_coordinate(e, layout, d, &part)) continue;
        part = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", part.name, (unsigned)stride);
        p->position = p->varies ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", p->position.name, part.name) : part;
        p->varies = true;
    }
}

static void begin(emitter *e, philox *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    *p = (philox){0};
    make_keys(e, p, &operands[0]);
    find_position(e, p, tvm_slot_layout(e->k, insn->result));
    p->offset = wide_operand(e, &operands[1]);
    if (p->varies && p->aligned) {
        reg counters = tvm_pure(e, 'r', "shr.u32 $, %s, 2;", p->position.name), sum = tvm_new_rd(e);
        reg wide = tvm_pure(e, 'd', "cvt.u64.u32 $, %s;", counters.name);
        tvm_emit(e, "add.s64 %s, %s, %s;", sum.name, p->offset.name, wide.name);
        p->offset = sum;
    }
    bool given = operands[2].kind == TVM_OPERAND_EXPR;
    reg stream = given ? wide_operand(e, &operands[2]) : (reg){""};
    for (unsigned i = 0; i < 2; i++)
        p->stream[i] = given ? low_word(e, stream, i == 1) : tvm_constant_word(e, 0);
}

static reg high_product(emitter *e, reg a, uint32_t b) {
    return word_op(e, "mul.hi.u32", a, b);
}

static reg exclusive(emitter *e, reg a, reg b, reg c) {
    reg d = tvm_new_r(e), both = tvm_new_r(e);
    tvm_emit(e, "xor.b32 %s, %s, %s;", both.name, a.name, b.name);
    tvm_emit(e, "xor.b32 %s, %s, %s;", d.name, both.name, c.name);
    return d;
}

/* The words at a counter, a %rd. */
static void make_words(emitter *e, const philox *p, reg counter, reg words[TVM_PHILOX_WORDS]) {
    words[0] = low_word(e, counter, false);
    words[1] = low_word(e, counter, true);
    words[2] = p->stream[0];
    words[3] = p->stream[1];
    for (unsigned round = 0; round < TVM_PHILOX_ROUNDS; round++) {
        reg high0 = high_product(e, words[0], TVM_PHILOX_M0),
            high1 = high_product(e, words[2], TVM_PHILOX_M1);
        reg low0 = word_op(e, "mul.lo.u32", words[0], TVM_PHILOX_M0);
        reg low1 = word_op(e, "mul.lo.u32", words[2], TVM_PHILOX_M1);
        words[0] = exclusive(e, high1, words[1], p->keys[round][0]);
        words[2] = exclusive(e, high0, words[3], p->keys[round][1]);
        words[1] = low1;
        words[3] = low0;
    }
}

static reg counter_plus(emitter *e, reg offset, uint32_t counter) {
    reg sum = tvm_new_rd(e);
    if (counter == 0) return offset;
    tvm_emit(e, "add.s64 %s, %s, %u;", sum.name, offset.name, (unsigned)counter);
    return sum;
}

/* The word of an element whose position is the thread's plus `at`; the position is no multiple of four. */
static reg own_word(emitter *e, const philox *p, uint32_t at) {
    reg position = at ? word_op(e, "add.u32", p->position, at) : p->position, words[TVM_PHILOX_WORDS];
    reg wide = tvm_new_rd(e), sum = tvm_new_rd(e), chosen[2];
    tvm_emit(e, "cvt.u64.u32 %s, %s;", wide.name, word_op(e, "shr.u32", position, 2).name);
    tvm_emit(e, "add.s64 %s, %s, %s;", sum.name, p->offset.name, wide.name);
    make_words(e, p, sum, words);
    reg odd = tvm_new_pred(e), upper = tvm_new_pred(e), result = tvm_new_r(e);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", odd.name, word_op(e, "and.b32", position, 1).name);
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", upper.name, word_op(e, "and.b32", position, 2).name);
    for (unsigned i = 0; i < 2; i++) {
        chosen[i] = tvm_new_r(e);
        tvm_emit(e, "selp.b32 %s, %s, %s, %s;", chosen[i].name, words[2 * i + 1].name, words[2 * i].name,
                 odd.name);
    }
    tvm_emit(e, "selp.b32 %s, %s, %s, %s;", result.name, chosen[1].name, chosen[0].name, upper.name);
    return result;
}

/* Of elements that begin at a multiple of four in each thread. */
static reg shared_word(emitter *e, const philox *p, uint32_t at, counter_words *made, uint32_t *count) {
    uint32_t counter = at / TVM_PHILOX_WORDS, i = *count;
    while (i > 0 && made[i - 1].counter != counter) i--;
    if (i == 0) {
        made[*count].counter = counter;
        make_words(e, p, counter_plus(e, p->offset, counter), made[*count].words);
        i = ++*count;
    }
    return made[i - 1].words[at % TVM_PHILOX_WORDS];
}

/* ---- distributions: the operations of isa/random.c, one by one ---- */

static reg f32_op(emitter *e, const char *op, reg a, reg b) {
    reg d = tvm_new_f(e);
    tvm_emit(e, "%s.f32 %s, %s, %s;", op, d.name, a.name, b.name);
    return d;
}

static reg f32_constant(emitter *e, float value) {
    reg d = tvm_new_f(e);
    tvm_emit(e, "mov.f32 %s, 0f%08X;", d.name, (unsigned)tvm_f32_bits(value));
    return d;
}

static reg f32_with(emitter *e, const char *op, reg a, float b) {
    return f32_op(e, op, a, f32_constant(e, b));
}

static reg f32_fma(emitter *e, reg a, reg b, reg c) {
    reg d = tvm_new_f(e);
    tvm_emit(e, "fma.rn.f32 %s, %s, %s, %s;", d.name, a.name, b.name, c.name);
    return d;
}

static reg f32_of_word(emitter *e, reg word) {
    reg d = tvm_new_f(e);
    tvm_emit(e, "cvt.rn.f32.u32 %s, %s;", d.name, word.name);
    return d;
}

static reg polynomial(emitter *e, const float *coefficients, unsigned count, reg x) {
    reg value = f32_constant(e, coefficients[0]);
    for (unsigned i = 1; i < count; i++) value = f32_fma(e, value, x, f32_constant(e, coefficients[i]));
    return value;
}

static reg select_f32(emitter *e, reg condition, reg yes, reg no) {
    reg d = tvm_new_f(e);
    tvm_emit(e, "selp.f32 %s, %s, %s, %s;", d.name, yes.name, no.name, condition.name);
    return d;
}

static reg natural_log(emitter *e, reg x) {
    reg bits = tvm_new_r(e), m = tvm_new_f(e), exponent = tvm_new_f(e), small = tvm_new_pred(e);
    tvm_emit(e, "mov.b32 %s, %s;", bits.name, x.name);
    reg mantissa = word_op(e, "or.b32", word_op(e, "and.b32", bits, 0x7fffff), 0x3f000000);
    tvm_emit(e, "mov.b32 %s, %s;", m.name, mantissa.name);
    reg field = word_op(e, "sub.u32", word_op(e, "shr.u32", bits, 23), 126);
    tvm_emit(e, "cvt.rn.f32.s32 %s, %s;", exponent.name, field.name);
    tvm_emit(e, "setp.lt.f32 %s, %s, %s;", small.name, m.name, f32_constant(e, TVM_SQRT_HALF).name);
    m = select_f32(e, small, f32_op(e, "add.rn", m, m), m);
    exponent = select_f32(e, small, f32_with(e, "sub.rn", exponent, 1), exponent);
    reg f = f32_with(e, "sub.rn", m, 1), z = f32_op(e, "mul.rn", f, f);
    reg y = f32_op(e, "mul.rn", polynomial(e, tvm_log_coefficients, TVM_LOG_COEFFICIENTS, f), f);
    y = f32_op(e, "mul.rn", y, z);
    y = f32_fma(e, exponent, f32_constant(e, TVM_LOG_2_LOW), y);
    y = f32_fma(e, z, f32_constant(e, -0.5f), y);
    y = f32_op(e, "add.rn", f, y);
    return f32_fma(e, exponent, f32_constant(e, TVM_LOG_2_HIGH), y);
}

static reg normal(emitter *e, reg word) {
    reg one = f32_constant(e, 1), odd = word_op(e, "or.b32", word_op(e, "shl.b32", word, 1), 1);
    reg t = f32_with(e, "mul.rn", f32_of_word(e, odd), 0x1p-32f), x = f32_op(e, "sub.rn", one, t);
    reg product = f32_op(e, "mul.rn", t, f32_op(e, "sub.rn", f32_constant(e, 2), t));
    reg w = tvm_new_f(e), root = tvm_new_f(e), center = tvm_new_pred(e), negative = tvm_new_pred(e);
    tvm_emit(e, "neg.f32 %s, %s;", w.name, natural_log(e, product).name);
    tvm_emit(e, "sqrt.rn.f32 %s, %s;", root.name, w.name);
    tvm_emit(e, "setp.lt.f32 %s, %s, %s;", center.name, w.name, f32_constant(e, 5).name);
    reg near = f32_with(e, "sub.rn", w, 2.5f), far = f32_with(e, "sub.rn", root, 3);
    near = polynomial(e, tvm_erfinv_center, TVM_ERFINV_COEFFICIENTS, near);
    far = polynomial(e, tvm_erfinv_tail, TVM_ERFINV_COEFFICIENTS, far);
    reg value = select_f32(e, center, near, far);
    value = f32_with(e, "mul.rn", f32_op(e, "mul.rn", value, x), TVM_SQRT_2);
    reg opposite = tvm_new_f(e);
    tvm_emit(e, "neg.f32 %s, %s;", opposite.name, value.name);
    tvm_emit(e, "setp.lt.s32 %s, %s, 0;", negative.name, word.name);
    return select_f32(e, negative, opposite, value);
}

static reg element_of(emitter *e, unsigned op, reg word) {
    if (op == TVM_OP_RANDOM_BITS) return word;
    if (op == TVM_OP_RANDOM_NORMAL) return normal(e, word);
    return f32_with(e, "mul.rn", f32_of_word(e, word_op(e, "shr.u32", word, 8)), 0x1p-24f);
}

tvm_status tvm_emit_RANDOM(emitter *e, const tvm_insn *insn) {
    const tvm_layout *layout = tvm_slot_layout(e->k, insn->result);
    uint32_t locals = tvm_layout_locals(layout), count = 0;
    counter_words *made = malloc(locals * sizeof *made);
    size_t before = e->body.size;
    element_writer writer;
    philox p;
    if (!made || !tvm_write_begin(e, &writer, insn->result)) {
        free(made);
        return tvm_diag_no_memory(e->k->diags);
    }
    begin(e, &p, insn);
    for (uint32_t l = 0; l < locals; l++) {
        uint32_t at = tvm_layout_element(layout, 0, l);
        reg word = p.aligned || !p.varies ? shared_word(e, &p, at, made, &count) : own_word(e, &p, at);
        tvm_write_element(e, &writer, element_of(e, insn->op, word));
    }
    tvm_write_end(e, &writer);
    free(made);
    tvm_explain(e, p.aligned ? "Philox, four words a counter" : "Philox, one word a counter", 0,
                tvm_body_lines(e, before), -1,
                p.aligned ? "" : "four words: a thread's elements do not begin at a multiple of four");
    return TVM_OK;
}
