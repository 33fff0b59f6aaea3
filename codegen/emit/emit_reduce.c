/* reduce: the elements of a dimension combined in the order the language fixes. Each thread combines its own
 * in ascending local order. The partial results p = 0..P-1, numbered by coordinate, are then combined as a
 * binary tree with neighbours first if P is a power of two, else one after the other. The first levels of the
 * tree are butterfly shuffles while the partner is a lane of the warp; the rest goes through shared memory,
 * where every thread reads the partial results it needs and combines them itself, 16 bytes at a time. */
#include "barrier.h"
#include "compute.h"
#include "numbers.h"
#include "shared_plan.h"

#include <stdlib.h>

enum {
    WARP = 32,
    CHUNK = 16, /* outputs of a thread that are exchanged at a time, where there is memory for so many */
    VECTOR = 4  /* registers of one access to it */
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
    uint32_t chunk;     /* outputs exchanged at a time */
    uint32_t threads;
} reduction;

/* ---- planning ---- */

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
    r->tree = tvm_is_power_of_two(r->partials);
}

/* Levels of the tree, lowest first, whose partner is the lane that differs in one bit. */
static void find_shuffles(reduction *r) {
    r->exchanged = r->partials;
    if (!r->tree) return;
    for (unsigned i = r->digit_count; i-- > 0;) {
        axis_digit *digit = &r->digits[i];
        for (; 1u << digit->shuffled < digit->size; digit->shuffled++) {
            uint32_t distance = digit->stride << digit->shuffled;
            if (!tvm_is_power_of_two(digit->stride) || distance >= WARP) return;
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
    r->threads = tvm_layout_threads(layout);
    r->name = operands[0].value == TVM_REDUCE_MAX ? "max"
              : r->compute.kind == TVM_KIND_FLOAT ? "add.rn"
                                                  : "add";
    find_digits(r, layout, operands[2].value);
    find_shuffles(r);
}

static uint32_t element_bytes(const reduction *r) {
    return r->compute.bits == 64 ? 8 : 4;
}

/* Fewer than CHUNK where the block has too little shared memory left. */
static uint32_t chunk_of(const reduction *r, tvm_target target, uint64_t taken) {
    uint64_t left = tvm_target_shared_bytes(target), each = (uint64_t)r->threads * element_bytes(r);
    uint32_t chunk = r->outputs < CHUNK ? r->outputs : CHUNK;
    left -= taken < left ? taken : left;
    while (chunk > 1 && chunk * each > left) chunk = (chunk + 1) / 2;
    return chunk;
}

uint64_t tvm_reduce_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                            tvm_target target, uint64_t taken, uint32_t *chunk) {
    reduction r;
    plan_reduction(&r, program, kernel, insn);
    *chunk = chunk_of(&r, target, taken);
    return r.exchanged > 1 ? (uint64_t)*chunk * r.threads * element_bytes(&r) : 0;
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

/* Up to VECTOR outputs that are stored and loaded at once. The scratch memory holds a piece as
 * [thread][output], which no access has bank conflicts in; the pieces of a chunk follow each other. */
typedef struct piece {
    uint32_t count;
    uint32_t offset; /* bytes, of thread 0's */
    reg own;         /* address of this thread's in a piece at offset 0 */
    reg first;       /* the same of partial result 0 of this thread's outputs */
} piece;

typedef struct partial {
    reg outputs[VECTOR];
} partial;

static reg scratch_address(emitter *e, reg thread, uint32_t bytes) {
    reg base = tvm_shared_base(e);
    reg scaled = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", thread.name, (unsigned)bytes);
    reg offset = tvm_pure(e, 'r', "add.u32 $, %s, %u;", scaled.name, (unsigned)e->shared.scratch);
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

/* Registers as the operand of an access: its type with the dot of a vector, and the list. */
static void access_text(const reduction *r, uint32_t count, const reg *regs, char type[16], char list[64]) {
    const char *suffix = tvm_element_suffix(r->compute);
    if (count == 1) {
        snprintf(type, 16, "%s", suffix);
        snprintf(list, 64, "%s", regs[0].name);
        return;
    }
    snprintf(type, 16, "v%u.%s", (unsigned)count, suffix);
    int n = snprintf(list, 64, "{%s", regs[0].name);
    for (uint32_t i = 1; i < count; i++) n += snprintf(list + n, 64 - (size_t)n, ", %s", regs[i].name);
    snprintf(list + n, 64 - (size_t)n, "}");
}

static partial load_partial(emitter *e, const reduction *r, const piece *p, uint32_t q) {
    partial loaded = {{{""}}};
    char type[16], list[64];
    for (uint32_t i = 0; i < p->count; i++) loaded.outputs[i] = tvm_new_element(e, r->compute);
    access_text(r, p->count, loaded.outputs, type, list);
    tvm_emit(e, "ld.shared.%s %s, [%s+%u];", type, list, p->first.name,
             (unsigned)(p->offset + partial_thread(r, q) * p->count * element_bytes(r)));
    return loaded;
}

static partial combine_partial(emitter *e, const reduction *r, const piece *p, partial x, partial y) {
    for (uint32_t i = 0; i < p->count; i++) x.outputs[i] = combine(e, r, x.outputs[i], y.outputs[i]);
    return x;
}

/* Partial results [q, q + count), count a power of two: at most 10 levels deep. */
static partial combine_tree(emitter *e, const reduction *r, const piece *p, uint32_t q, uint32_t count) {
    if (count == 1) return load_partial(e, r, p, q);
    partial low = combine_tree(e, r, p, q, count / 2);
    return combine_partial(e, r, p, low, combine_tree(e, r, p, q + count / 2, count / 2));
}

static partial combine_partials(emitter *e, const reduction *r, const piece *p) {
    if (r->tree) return combine_tree(e, r, p, 0, r->exchanged);
    partial sum = load_partial(e, r, p, 0);
    for (uint32_t q = 1; q < r->exchanged; q++) sum = combine_partial(e, r, p, sum, load_partial(e, r, p, q));
    return sum;
}

/* The widest piece that takes at most `left` outputs. */
static piece piece_of(emitter *e, const reduction *r, uint32_t left, uint32_t offset) {
    uint32_t count = 16 / element_bytes(r);
    while (count > left) count /= 2;
    uint32_t bytes = count * element_bytes(r);
    return (piece){count, offset, scratch_address(e, tvm_thread_id(e), bytes),
                   scratch_address(e, first_thread(e, r), bytes)};
}

static void exchange_partials(emitter *e, const reduction *r, reg *outputs) {
    char type[16], list[64];
    for (uint32_t at = 0, end; at < r->outputs; at = end) {
        piece pieces[CHUNK];
        unsigned count = 0;
        end = r->outputs - at < r->chunk ? r->outputs : at + r->chunk;
        for (uint32_t o = at; o < end; o += pieces[count++].count) {
            piece *p = &pieces[count];
            *p = piece_of(e, r, end - o, (o - at) * r->threads * element_bytes(r));
            access_text(r, p->count, outputs + o, type, list);
            tvm_emit(e, "st.shared.%s [%s+%u], %s;", type, p->own.name, (unsigned)p->offset, list);
        }
        tvm_emit_thread_barrier(e);
        uint32_t o = at;
        for (unsigned i = 0; i < count; o += pieces[i++].count) {
            partial sum = combine_partials(e, r, &pieces[i]);
            for (uint32_t j = 0; j < pieces[i].count; j++) outputs[o + j] = sum.outputs[j];
        }
        tvm_emit_thread_barrier(e);
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
    r.chunk = chunk_of(&r, e->target, e->shared.scratch);
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
