/* reduce: the elements of a dimension combined in the order the language fixes. Each thread combines its own
 * in ascending local order. The partial results p = 0..P-1, numbered by coordinate, are then combined as a
 * binary tree with neighbours first if P is a power of two, else one after the other. The first levels of the
 * tree are butterfly shuffles while the partner is a lane of the warp; the rest goes through shared memory,
 * where every thread reads the partial results it needs and combines them itself. */
#include "compute.h"

#include <stdlib.h>

enum {
    WARP = 32,
    CHUNK = 4 /* outputs of a thread that are exchanged at a time: bounds the scratch memory */
};

/* A digit of the thread number that counts along the reduced dimension, and how many of its low bits the
 * shuffles have dealt with. */
typedef struct axis_digit {
    uint32_t size, stride;
    uint32_t shuffled;
} axis_digit;

typedef struct reduction {
    tvm_dtype type;    /* of source and result */
    tvm_dtype compute; /* f32 for f16 and bf16 */
    const char *name;  /* "add.rn.f32" */
    uint32_t source, result, locals, outputs;
    axis_digit digits[TVM_MAX_MODES]; /* most significant first */
    unsigned digit_count;
    uint32_t partials;
    bool tree;
    uint32_t lane_masks[5];
    unsigned shuffles;
    uint32_t exchanged; /* partial results left after the shuffles */
    uint32_t threads;
} reduction;

/* ---- planning ---- */

static bool is_power_of_two(uint32_t n) {
    return (n & (n - 1)) == 0;
}

/* The modes of the dimension that are spatial, most significant first, with their weights in the thread
 * number. */
static void find_digits(reduction *r, const tvm_layout *layout, unsigned axis) {
    for (unsigned m = 0; m < layout->modes; m++) {
        if (layout->mode_dim[m] != axis) continue;
        uint32_t stride = 1;
        for (unsigned i = layout->spatials; i-- > 0;) {
            int32_t entry = layout->spatial[i];
            if (entry == (int32_t)m)
                r->digits[r->digit_count++] = (axis_digit){layout->mode_size[m], stride, 0};
            stride *= entry < 0 ? (uint32_t)-entry : layout->mode_size[entry];
        }
    }
    r->partials = 1;
    for (unsigned i = 0; i < r->digit_count; i++) r->partials *= r->digits[i].size;
    r->tree = is_power_of_two(r->partials);
}

/* Levels of the tree, lowest first, whose partner is the lane that differs in one bit. */
static void find_shuffles(reduction *r) {
    r->exchanged = r->partials;
    if (!r->tree) return;
    for (unsigned i = r->digit_count; i-- > 0;) {
        axis_digit *digit = &r->digits[i];
        for (; 1u << digit->shuffled < digit->size; digit->shuffled++) {
            uint32_t distance = digit->stride << digit->shuffled;
            if (!is_power_of_two(digit->stride) || distance >= WARP) return;
            r->lane_masks[r->shuffles++] = distance;
            r->exchanged /= 2;
        }
    }
}

static void plan_reduction(reduction *r, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                           const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    const tvm_slot *source = &kernel->slots[operands[1].value];
    const tvm_layout *layout = &program->layouts[source->layout];
    *r = (reduction){.type = source->dtype, .source = operands[1].value, .result = insn->result};
    r->compute = tvm_is_half(r->type) ? TVM_F32 : r->type;
    r->locals = tvm_layout_locals(layout);
    r->outputs = tvm_layout_locals(&program->layouts[kernel->slots[insn->result].layout]);
    r->threads = WARP * kernel->warps;
    r->name = operands[0].value == TVM_REDUCE_MAX ? "max"
              : r->compute.kind == TVM_KIND_FLOAT ? "add.rn"
                                                  : "add";
    find_digits(r, layout, operands[2].value);
    find_shuffles(r);
}

static uint32_t element_bytes(const reduction *r) {
    return r->compute.bits == 64 ? 8 : 4;
}

uint32_t tvm_reduce_scratch_bytes(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                  const tvm_insn *insn) {
    reduction r;
    if (insn->op != TVM_OP_REDUCE) return 0;
    plan_reduction(&r, program, kernel, insn);
    uint32_t at_once = r.outputs < CHUNK ? r.outputs : CHUNK;
    return r.exchanged > 1 ? at_once * r.threads * element_bytes(&r) : 0;
}

/* ---- within a thread and a warp ---- */

static reg combine(emitter *e, const reduction *r, reg x, reg y) {
    reg d = tvm_new_element(e, r->compute);
    tvm_emit(e, "%s.%s %s, %s, %s;", r->name, tvm_arithmetic_suffix(r->compute), d.name, x.name, y.name);
    return d;
}

static void combine_own(emitter *e, const reduction *r, const uint32_t *map, reg *outputs) {
    for (uint32_t l = 0; l < r->locals; l++) {
        reg value = tvm_read_element(e, r->source, l, true), *output = &outputs[map[l]];
        if (tvm_is_half(r->type)) value = tvm_half_to_f32(e, r->type, value);
        *output = output->name[0] ? combine(e, r, *output, value) : value;
    }
}

static void shuffle_word(emitter *e, const char *to, const char *from, uint32_t lane_mask) {
    tvm_emit(e, "shfl.sync.bfly.b32 %s, %s, %u, 31, 0xffffffff;", to, from, (unsigned)lane_mask);
}

static reg shuffle(emitter *e, const reduction *r, reg value, uint32_t lane_mask) {
    reg d = tvm_new_element(e, r->compute);
    if (r->compute.bits < 64) {
        shuffle_word(e, d.name, value.name, lane_mask);
        return d;
    }
    reg low = tvm_new_r(e), high = tvm_new_r(e), other_low = tvm_new_r(e), other_high = tvm_new_r(e);
    tvm_emit(e, "mov.b64 {%s, %s}, %s;", low.name, high.name, value.name);
    shuffle_word(e, other_low.name, low.name, lane_mask);
    shuffle_word(e, other_high.name, high.name, lane_mask);
    tvm_emit(e, "mov.b64 %s, {%s, %s};", d.name, other_low.name, other_high.name);
    return d;
}

/* ---- through shared memory ---- */

/* Where the scratch memory holds the partial result of a thread: base + thread * size + output * threads *
 * size. */
typedef struct exchange {
    const reduction *r;
    reg own;   /* address of this thread's */
    reg first; /* address of partial result 0 of this thread's output */
    uint32_t output;
} exchange;

static reg scratch_address(emitter *e, const reduction *r, reg thread) {
    reg base = tvm_shared_base(e);
    reg scaled = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", thread.name, (unsigned)element_bytes(r));
    reg offset = tvm_pure(e, 'r', "add.u32 $, %s, %u;", scaled.name, (unsigned)e->scratch_offset);
    return tvm_pure(e, 'r', "add.u32 $, %s, %s;", base.name, offset.name);
}

static uint32_t bits_below(const axis_digit *digit) {
    return 1u << digit->shuffled;
}

/* The thread with the same other digits, and zero in the axis' digits above their shuffled bits. */
static reg first_thread(emitter *e, const reduction *r) {
    reg thread = tvm_thread_id(e), first = thread;
    for (unsigned i = 0; i < r->digit_count; i++) {
        const axis_digit *digit = &r->digits[i];
        uint32_t unit = digit->stride * bits_below(digit), count = digit->size / bits_below(digit);
        if (count == 1) continue;
        reg quotient = tvm_pure(e, 'r', "div.u32 $, %s, %u;", thread.name, (unsigned)unit);
        reg value = tvm_pure(e, 'r', "rem.u32 $, %s, %u;", quotient.name, (unsigned)count);
        reg weight = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", value.name, (unsigned)unit);
        first = tvm_pure(e, 'r', "sub.u32 $, %s, %s;", first.name, weight.name);
    }
    return first;
}

/* The thread, relative to the first, that holds partial result q of those exchanged. */
static uint32_t partial_thread(const reduction *r, uint32_t q) {
    uint32_t thread = 0;
    for (unsigned i = r->digit_count; i-- > 0;) {
        const axis_digit *digit = &r->digits[i];
        uint32_t count = digit->size / bits_below(digit);
        thread += q % count * digit->stride * bits_below(digit);
        q /= count;
    }
    return thread;
}

static reg load_partial(emitter *e, const exchange *x, uint32_t q) {
    const reduction *r = x->r;
    uint32_t offset = (partial_thread(r, q) + x->output * r->threads) * element_bytes(r);
    reg d = tvm_new_element(e, r->compute);
    tvm_emit(e, "ld.shared.%s %s, [%s+%u];", tvm_element_suffix(r->compute), d.name, x->first.name,
             (unsigned)offset);
    return d;
}

/* Partial results [q, q + count), count a power of two: at most 10 levels deep. */
static reg combine_tree(emitter *e, const exchange *x, uint32_t q, uint32_t count) {
    if (count == 1) return load_partial(e, x, q);
    reg low = combine_tree(e, x, q, count / 2);
    return combine(e, x->r, low, combine_tree(e, x, q + count / 2, count / 2));
}

static reg combine_partials(emitter *e, const exchange *x) {
    if (x->r->tree) return combine_tree(e, x, 0, x->r->exchanged);
    reg sum = load_partial(e, x, 0);
    for (uint32_t q = 1; q < x->r->exchanged; q++) sum = combine(e, x->r, sum, load_partial(e, x, q));
    return sum;
}

static void exchange_partials(emitter *e, const reduction *r, reg *outputs) {
    exchange x = {.r = r};
    x.own = scratch_address(e, r, tvm_thread_id(e));
    x.first = scratch_address(e, r, first_thread(e, r));
    for (uint32_t at = 0; at < r->outputs; at += CHUNK) {
        uint32_t end = r->outputs - at < CHUNK ? r->outputs : at + CHUNK;
        for (uint32_t o = at; o < end; o++)
            tvm_emit(e, "st.shared.%s [%s+%u], %s;", tvm_element_suffix(r->compute), x.own.name,
                     (unsigned)((o - at) * r->threads * element_bytes(r)), outputs[o].name);
        tvm_emit(e, "bar.sync 0;");
        for (uint32_t o = at; o < end; o++) {
            x.output = o - at;
            outputs[o] = combine_partials(e, &x);
        }
        tvm_emit(e, "bar.sync 0;");
    }
}

/* ---- the instruction ---- */

static bool reduce_into(emitter *e, const reduction *r, const uint32_t *map, reg *outputs) {
    combine_own(e, r, map, outputs);
    for (uint32_t o = 0; o < r->outputs; o++)
        for (unsigned i = 0; i < r->shuffles; i++)
            outputs[o] = combine(e, r, outputs[o], shuffle(e, r, outputs[o], r->lane_masks[i]));
    if (r->exchanged > 1) exchange_partials(e, r, outputs);
    element_writer writer;
    if (!tvm_write_begin(e, &writer, r->result)) return false;
    for (uint32_t o = 0; o < r->outputs; o++)
        tvm_write_element(e, &writer,
                          tvm_is_half(r->type) ? tvm_f32_to_half(e, r->type, outputs[o]) : outputs[o]);
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_REDUCE(emitter *e, const tvm_insn *insn) {
    reduction r;
    plan_reduction(&r, e->program, e->kernel, insn);
    size_t before = e->body.size;
    uint32_t scratch = tvm_reduce_scratch_bytes(e->program, e->kernel, insn);
    if (scratch > e->scratch_bytes) e->scratch_bytes = scratch;
    uint32_t *map = calloc(r.locals, sizeof *map);
    reg *outputs = calloc(r.outputs, sizeof *outputs);
    bool done = map && outputs;
    if (done) {
        tvm_layout_broadcasts(tvm_slot_layout(e, r.result), tvm_slot_layout(e, r.source), map, NULL);
        done = reduce_into(e, &r, map, outputs);
    }
    free(map);
    free(outputs);
    if (!done) return tvm_diag_no_memory(e->diags);
    char name[96], refused[64] = "";
    snprintf(name, sizeof name, "%u own, %u shuffles, %u through shared memory",
             (unsigned)(r.locals / r.outputs), r.shuffles, (unsigned)(r.exchanged > 1 ? r.exchanged : 0));
    if (r.exchanged > 1)
        snprintf(refused, sizeof refused, "shuffles: %s",
                 r.tree ? "partners in other warps" : "not a power of two of partial results");
    tvm_explain(e, name, 0, tvm_body_lines(e, before), -1, refused);
    return TVM_OK;
}
