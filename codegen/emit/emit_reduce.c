/* reduce: the elements of the axes combined in the order the language fixes. Each thread combines its own in
 * ascending local order. The partial results p = 0..P-1, numbered by coordinate, are then combined as a
 * binary tree with neighbours first if P is a power of two, else one after the other. The first levels of the
 * tree are butterfly shuffles while the partner is a lane of the warp (one redux of integers, where all lanes
 * are partners and the order does not matter); the rest goes through shared memory. Where a warp is left with
 * one partial result, each warp reads those of its warps, side by side; else every thread reads the partial
 * results it needs, 16 bytes at a time, and combines them itself. One bool of all threads is combined by the
 * barrier (PTX ISA, "bar.red"). */
#include "access.h"
#include "barrier.h"
#include "compute.h"
#include "numbers.h"
#include "reduce_op.h"
#include "reduce_plan.h"
#include "scratch.h"

#include <stdlib.h>

enum {
    WARP = 32,
    VECTOR = 4,     /* registers of one access to it */
    READ_BY_ALL = 8 /* partial results that every thread reads itself; more are spread over the lanes */
};

/* A value on its way; of argmax and argmin with the position that it has along the axes. */
typedef struct partial {
    reg value, position;
} partial;

/* ---- two values ---- */

/* Does y come before x: is it greater (argmin: less), or as great and further to the front? */
static reg comes_first(emitter *e, const reduction *r, partial x, partial y) {
    reg better = tvm_new_pred(e), same = tvm_new_pred(e), before = tvm_new_pred(e), tie = tvm_new_pred(e),
        first = tvm_new_pred(e);
    tvm_emit(e, "setp.%s.%s %s, %s, %s;", r->op.operation == TVM_REDUCE_ARGMAX ? "gt" : "lt",
             tvm_reduce_suffix(&r->op), better.name, y.value.name, x.value.name);
    tvm_emit(e, "setp.eq.%s %s, %s, %s;", tvm_reduce_suffix(&r->op), same.name, y.value.name, x.value.name);
    tvm_emit(e, "setp.lt.s32 %s, %s, %s;", before.name, y.position.name, x.position.name);
    tvm_emit(e, "and.pred %s, %s, %s;", tie.name, same.name, before.name);
    tvm_emit(e, "or.pred %s, %s, %s;", first.name, better.name, tie.name);
    return first;
}

static partial combine(emitter *e, const reduction *r, partial x, partial y) {
    partial d = {.value = tvm_new_element(e, r->op.compute)};
    if (r->is_position) {
        reg first = comes_first(e, r, x, y);
        d.position = tvm_new_r(e);
        tvm_emit(e, "selp.b32 %s, %s, %s, %s;", d.position.name, y.position.name, x.position.name,
                 first.name);
    }
    tvm_emit(e, "%s.%s %s, %s, %s;", tvm_reduce_name(&r->op), tvm_reduce_suffix(&r->op), d.value.name,
             x.value.name, y.value.name);
    return d;
}

/* ---- within a thread ---- */

static reg own_element(emitter *e, const reduction *r, uint32_t local) {
    reg value = tvm_read_element(e, r->source, local, true);
    return tvm_is_half(r->op.type) ? tvm_half_to_f32(e, r->op.type, value) : value;
}

static void combine_own(emitter *e, const reduction *r, const uint32_t *map, partial *outputs) {
    for (uint32_t l = 0; l < r->locals; l++) {
        partial value = {.value = own_element(e, r, l)}, *output = &outputs[map[l]];
        *output = output->value.name[0] ? combine(e, r, *output, value) : value;
    }
}

/* Where an element lies along the axes: row-major, of index map(thread, local). */
static uint32_t position_stride(const reduction *r, unsigned dim) {
    uint32_t stride = 1;
    for (unsigned d = dim + 1; d < r->layout->rank; d++)
        if (r->axes >> d & 1) stride *= r->layout->shape[d];
    return stride;
}

static uint32_t local_position(const reduction *r, uint32_t local) {
    uint32_t index[TVM_MAX_RANK], position = 0;
    tvm_layout_map(r->layout, 0, local, index);
    for (unsigned d = 0; d < r->layout->rank; d++)
        if (r->axes >> d & 1) position += index[d] * position_stride(r, d);
    return position;
}

/* Computed at kernel entry; false when it is zero in every thread. */
static bool thread_position(emitter *e, const reduction *r, reg *out) {
    bool any = false;
    for (unsigned d = 0; d < r->layout->rank; d++) {
        reg coordinate;
        if (!(r->axes >> d & 1) || !tvm_thread_coordinate(e, r->layout, d, &coordinate)) continue;
        coordinate = tvm_pure_scale(e, coordinate, position_stride(r, d));
        *out = any ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", out->name, coordinate.name) : coordinate;
        any = true;
    }
    return any;
}

typedef struct placed {
    uint32_t position, local;
} placed;

static int by_position(const void *x, const void *y) {
    const placed *a = x, *b = y;
    if (a->position != b->position) return a->position < b->position ? -1 : 1;
    return a->local < b->local ? -1 : a->local > b->local;
}

/* A NaN is as low as can be (argmin: as high). */
static reg without_nan(emitter *e, const reduction *r, reg value) {
    bool max = r->op.operation == TVM_REDUCE_ARGMAX;
    if (r->op.compute.kind != TVM_KIND_FLOAT) return value;
    reg d = tvm_new_element(e, r->op.compute);
    tvm_emit(e, "%s.%s %s, %s, %s;", tvm_reduce_name(&r->op), tvm_reduce_suffix(&r->op), d.name, value.name,
             r->op.compute.bits == 64 ? (max ? "0dFFF0000000000000" : "0d7FF0000000000000")
                                      : (max ? "0fFF800000" : "0f7F800000"));
    return d;
}

/* In ascending order of positions, so that the first of equals stays. */
static void find_own(emitter *e, const reduction *r, const uint32_t *map, const placed *order,
                     partial *outputs) {
    for (uint32_t i = 0; i < r->locals; i++) {
        reg value = without_nan(e, r, own_element(e, r, order[i].local));
        partial *output = &outputs[map[order[i].local]];
        reg position = tvm_new_r(e);
        if (!output->value.name[0]) {
            tvm_emit(e, "mov.b32 %s, %u;", position.name, (unsigned)order[i].position);
            *output = (partial){value, position};
            continue;
        }
        reg better = tvm_new_pred(e), best = tvm_new_element(e, r->op.compute);
        tvm_emit(e, "setp.%s.%s %s, %s, %s;", r->op.operation == TVM_REDUCE_ARGMAX ? "gt" : "lt",
                 tvm_reduce_suffix(&r->op), better.name, value.name, output->value.name);
        tvm_emit(e, "selp.b32 %s, %u, %s, %s;", position.name, (unsigned)order[i].position,
                 output->position.name, better.name);
        tvm_emit(e, "%s.%s %s, %s, %s;", tvm_reduce_name(&r->op), tvm_reduce_suffix(&r->op), best.name,
                 output->value.name, value.name);
        *output = (partial){best, position};
    }
}

static bool find_positions(emitter *e, const reduction *r, const uint32_t *map, partial *outputs) {
    placed *order = calloc(r->locals, sizeof *order);
    reg thread;
    if (!order) return false;
    for (uint32_t l = 0; l < r->locals; l++) order[l] = (placed){local_position(r, l), l};
    qsort(order, r->locals, sizeof *order, by_position);
    find_own(e, r, map, order, outputs);
    free(order);
    if (!thread_position(e, r, &thread)) return true;
    for (uint32_t o = 0; o < r->outputs; o++) {
        reg position = tvm_new_r(e);
        tvm_emit(e, "add.u32 %s, %s, %s;", position.name, outputs[o].position.name, thread.name);
        outputs[o].position = position;
    }
    return true;
}

/* ---- within a warp ---- */

static partial shuffle(emitter *e, const reduction *r, partial x, uint32_t lane_mask) {
    char mask[16];
    snprintf(mask, sizeof mask, "%u", (unsigned)lane_mask);
    partial d = {.value = tvm_reduce_shuffle(e, &r->op, "bfly", x.value, mask)};
    if (r->is_position) {
        d.position = tvm_new_r(e);
        tvm_emit(e, "shfl.sync.bfly.b32 %s, %s, %s, 31, 0xffffffff;", d.position.name, x.position.name, mask);
    }
    return d;
}

/* Integers of which all 32 lanes hold one each: in any order they give the same. */
static bool is_redux(const reduction *r) {
    return r->op.compute.kind != TVM_KIND_FLOAT && r->op.compute.bits < 64 && !r->is_position &&
           r->op.operation != TVM_REDUCE_PROD;
}

static partial combine_warp(emitter *e, const reduction *r, partial x) {
    partial d = {.value = tvm_new_r(e)};
    tvm_emit(e, "redux.sync.%s.%s %s, %s, 0xffffffff;", tvm_reduce_name(&r->op), tvm_reduce_suffix(&r->op),
             d.value.name, x.value.name);
    return d;
}

static partial combine_lanes(emitter *e, const reduction *r, partial x, const uint32_t *masks,
                             unsigned count) {
    if (count == 5 && is_redux(r)) return combine_warp(e, r, x);
    for (unsigned i = 0; i < count; i++) x = combine(e, r, x, shuffle(e, r, x, masks[i]));
    return x;
}

/* ---- through shared memory ---- */

static uint32_t bits_below(const axis_digit *digit) {
    return 1u << digit->shuffled;
}

static reg scaled_address(emitter *e, reg place, uint32_t bytes) {
    reg scaled = tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", place.name, (unsigned)bytes);
    return tvm_pure(e, 'r', "add.u32 $, %s, %s;", tvm_scratch_base(e).name, scaled.name);
}

/* Registers as the operand of an access: its type with the dot of a vector, and the list. */
static void access_text(const char *suffix, uint32_t count, const reg *regs, char type[16], char list[64]) {
    reg units[4] = {{""}};
    for (uint32_t i = 0; i < count && i < 4; i++) units[i] = regs[i];
    if (count == 1)
        snprintf(type, 16, "%s", suffix);
    else
        snprintf(type, 16, "v%u.%s", (unsigned)count, suffix);
    tvm_access_operands(units, count, list);
}

static void store(emitter *e, const char *suffix, reg address, uint32_t offset, uint32_t count,
                  const reg *regs) {
    char type[16], list[64];
    access_text(suffix, count, regs, type, list);
    tvm_emit(e, "st.shared.%s [%s+%u], %s;", type, address.name, (unsigned)offset, list);
}

static void load(emitter *e, const char *suffix, reg address, uint32_t offset, uint32_t count,
                 const reg *regs) {
    char type[16], list[64];
    access_text(suffix, count, regs, type, list);
    tvm_emit(e, "ld.shared.%s %s, [%s+%u];", type, list, address.name, (unsigned)offset);
}

/* ---- ... where a warp holds one partial result of each output: [output][place], values, then positions.
 * A place is that of a warp: warps whose results are combined are neighbours, in the tree's order. ---- */

/* The first place of those that are combined with the thread's. */
static reg group_of(emitter *e, const reduction *r) {
    reg thread = tvm_thread_id(e), group = {""};
    uint32_t stride = 1, weight = r->exchanged;
    for (unsigned i = r->layout->spatials; i-- > 0;) {
        int32_t entry = r->layout->spatial[i];
        uint32_t size = entry < 0 ? (uint32_t)-entry : r->layout->mode_size[entry];
        if (entry < 0 || !(r->axes >> r->layout->mode_dim[entry] & 1)) {
            reg digit = tvm_pure_modulo(e, tvm_pure_divide(e, thread, stride), size);
            digit = tvm_pure_scale(e, digit, weight);
            group = group.name[0] ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", group.name, digit.name) : digit;
            weight *= size;
        }
        stride *= size;
    }
    return group.name[0] ? group : tvm_pure(e, 'r', "mov.u32 $, 0;");
}

/* The number of the thread's partial result among those that are combined. */
static reg number_of(emitter *e, const reduction *r) {
    reg thread = tvm_thread_id(e), number = {""};
    uint32_t weight = 1;
    for (unsigned i = r->digit_count; i-- > 0;) {
        const axis_digit *digit = &r->digits[i];
        uint32_t count = digit->size / bits_below(digit);
        if (count == 1) continue;
        reg value = tvm_pure_divide(e, thread, digit->stride * bits_below(digit));
        if (digit->stride * digit->size < r->threads) value = tvm_pure_modulo(e, value, count);
        value = tvm_pure_scale(e, value, weight);
        number = number.name[0] ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", number.name, value.name) : value;
        weight *= count;
    }
    return number;
}

/* Every thread reads all: at most READ_BY_ALL. */
static partial combine_read(emitter *e, const reduction *r, reg first, reg first_position, uint32_t offset,
                            uint32_t offset_position) {
    partial all[READ_BY_ALL];
    uint32_t most = 16 / tvm_reduce_value_bytes(r), width = r->exchanged < most ? r->exchanged : most;
    reg values[READ_BY_ALL], positions[READ_BY_ALL] = {{""}};
    for (uint32_t q = 0; q < r->exchanged; q++) values[q] = tvm_new_element(e, r->op.compute);
    for (uint32_t q = 0; q < r->exchanged; q += width)
        load(e, tvm_element_suffix(r->op.compute), first, offset + q * tvm_reduce_value_bytes(r), width,
             &values[q]);
    for (uint32_t q = 0; r->is_position && q < r->exchanged; q++) {
        positions[q] = tvm_new_r(e);
        load(e, "b32", first_position, offset_position + 4 * q, 1, &positions[q]);
    }
    for (uint32_t q = 0; q < r->exchanged; q++) all[q] = (partial){values[q], positions[q]};
    for (uint32_t distance = 1; distance < r->exchanged; distance *= 2)
        for (uint32_t q = 0; q < r->exchanged; q += 2 * distance)
            all[q] = combine(e, r, all[q], all[q + distance]);
    return all[0];
}

/* Every lane reads one, and shuffles combine them. */
static partial combine_spread(emitter *e, const reduction *r, reg lane, reg lane_position, uint32_t offset,
                              uint32_t offset_position) {
    static const uint32_t masks[5] = {1, 2, 4, 8, 16};
    partial x = {.value = tvm_new_element(e, r->op.compute)};
    load(e, tvm_element_suffix(r->op.compute), lane, offset, 1, &x.value);
    if (r->is_position) {
        x.position = tvm_new_r(e);
        load(e, "b32", lane_position, offset_position, 1, &x.position);
    }
    return combine_lanes(e, r, x, masks, tvm_log2_floor(r->exchanged));
}

static void exchange_warps(emitter *e, const reduction *r, partial *outputs, uint32_t count) {
    uint32_t bytes = tvm_reduce_value_bytes(r), positions = r->scratch + r->chunk * r->places * bytes;
    bool spread = r->exchanged > READ_BY_ALL;
    reg group = group_of(e, r), number = number_of(e, r);
    reg place = tvm_pure(e, 'r', "add.u32 $, %s, %s;", group.name, number.name), from = group;
    reg own = scaled_address(e, place, bytes), own_position = scaled_address(e, place, 4);
    if (spread) {
        reg lane = tvm_pure_modulo(e, tvm_thread_id(e), r->exchanged);
        from = tvm_pure(e, 'r', "add.u32 $, %s, %s;", group.name, lane.name);
    }
    reg first = scaled_address(e, from, bytes), first_position = scaled_address(e, from, 4);
    for (uint32_t o = 0; o < count; o++) {
        store(e, tvm_element_suffix(r->op.compute), own, r->scratch + o * r->places * bytes, 1,
              &outputs[o].value);
        if (r->is_position)
            store(e, "b32", own_position, positions + 4 * o * r->places, 1, &outputs[o].position);
    }
    tvm_scratch_publish(e);
    for (uint32_t o = 0; o < count; o++)
        outputs[o] = (spread ? combine_spread : combine_read)(
            e, r, first, first_position, r->scratch + o * r->places * bytes, positions + 4 * o * r->places);
}

/* ---- ... in general ----
 * Up to VECTOR outputs are stored and loaded at once, as a piece: [thread][output], which no access has bank
 * conflicts in; the pieces of a chunk follow each other, those of the positions those of the values. */
typedef struct piece {
    uint32_t count;
    uint32_t offset, offset_position; /* bytes, of thread 0's */
    reg own, own_position;            /* address of this thread's in a piece at offset 0 */
    reg first, first_position;        /* the same of partial result 0 of this thread's outputs */
} piece;

typedef struct partials {
    partial outputs[VECTOR];
} partials;

/* The thread with the same other digits, and zero in the axes' digits above their shuffled bits. */
static reg first_thread(emitter *e, const reduction *r) {
    reg thread = tvm_thread_id(e), first = thread;
    for (unsigned i = 0; i < r->digit_count; i++) {
        const axis_digit *digit = &r->digits[i];
        uint32_t unit = digit->stride * bits_below(digit), count = digit->size / bits_below(digit);
        if (count == 1) continue;
        reg value = tvm_pure_modulo(e, tvm_pure_divide(e, thread, unit), count);
        reg weight = tvm_pure_scale(e, value, unit);
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

static void split(const partial *outputs, uint32_t count, reg values[VECTOR], reg positions[VECTOR]) {
    for (uint32_t i = 0; i < count; i++) {
        values[i] = outputs[i].value;
        positions[i] = outputs[i].position;
    }
}

static partials load_partials(emitter *e, const reduction *r, const piece *p, uint32_t q) {
    partials loaded = {{{{""}, {""}}}};
    reg values[VECTOR], positions[VECTOR];
    uint32_t place = partial_thread(r, q) * p->count;
    for (uint32_t i = 0; i < p->count; i++)
        loaded.outputs[i] =
            (partial){tvm_new_element(e, r->op.compute), r->is_position ? tvm_new_r(e) : (reg){""}};
    split(loaded.outputs, p->count, values, positions);
    load(e, tvm_element_suffix(r->op.compute), p->first, p->offset + place * tvm_reduce_value_bytes(r),
         p->count, values);
    if (r->is_position)
        load(e, "b32", p->first_position, p->offset_position + place * 4, p->count, positions);
    return loaded;
}

static void store_piece(emitter *e, const reduction *r, const piece *p, const partial *outputs) {
    reg values[VECTOR], positions[VECTOR];
    split(outputs, p->count, values, positions);
    store(e, tvm_element_suffix(r->op.compute), p->own, p->offset, p->count, values);
    if (r->is_position) store(e, "b32", p->own_position, p->offset_position, p->count, positions);
}

static partials combine_pair(emitter *e, const reduction *r, const piece *p, partials x, partials y) {
    for (uint32_t i = 0; i < p->count; i++) x.outputs[i] = combine(e, r, x.outputs[i], y.outputs[i]);
    return x;
}

/* Partial results [q, q + count), count a power of two: at most 10 levels deep. */
static partials combine_tree(emitter *e, const reduction *r, const piece *p, uint32_t q, uint32_t count) {
    if (count == 1) return load_partials(e, r, p, q);
    partials low = combine_tree(e, r, p, q, count / 2);
    return combine_pair(e, r, p, low, combine_tree(e, r, p, q + count / 2, count / 2));
}

static partials combine_partials(emitter *e, const reduction *r, const piece *p) {
    if (r->tree) return combine_tree(e, r, p, 0, r->exchanged);
    partials sum = load_partials(e, r, p, 0);
    for (uint32_t q = 1; q < r->exchanged; q++) sum = combine_pair(e, r, p, sum, load_partials(e, r, p, q));
    return sum;
}

/* The widest piece that takes at most `left` outputs; `before` outputs of the chunk lie before it. */
static piece piece_of(emitter *e, const reduction *r, uint32_t left, uint32_t before) {
    uint32_t count = 16 / tvm_reduce_value_bytes(r), bytes = tvm_reduce_value_bytes(r) * r->threads;
    while (count > left) count /= 2;
    reg thread = tvm_thread_id(e), first = first_thread(e, r);
    piece p = {.count = count,
               .offset = r->scratch + before * bytes,
               .offset_position = r->scratch + r->chunk * bytes + 4 * before * r->threads,
               .own = scaled_address(e, thread, count * tvm_reduce_value_bytes(r)),
               .first = scaled_address(e, first, count * tvm_reduce_value_bytes(r))};
    if (r->is_position) {
        p.own_position = scaled_address(e, thread, count * 4);
        p.first_position = scaled_address(e, first, count * 4);
    }
    return p;
}

static void exchange_threads(emitter *e, const reduction *r, partial *outputs, uint32_t count) {
    piece pieces[REDUCE_CHUNK];
    unsigned number = 0;
    for (uint32_t o = 0; o < count; o += pieces[number++].count) {
        pieces[number] = piece_of(e, r, count - o, o);
        store_piece(e, r, &pieces[number], outputs + o);
    }
    tvm_scratch_publish(e);
    uint32_t o = 0;
    for (unsigned i = 0; i < number; o += pieces[i++].count) {
        partials sum = combine_partials(e, r, &pieces[i]);
        for (uint32_t j = 0; j < pieces[i].count; j++) outputs[o + j] = sum.outputs[j];
    }
}

/* ---- by the barrier ---- */

static partial combine_votes(emitter *e, const reduction *r, partial own) {
    bool any = r->op.operation == TVM_REDUCE_ANY || r->op.operation == TVM_REDUCE_OR;
    reg vote = tvm_new_pred(e);
    partial out = {.value = tvm_new_r(e)};
    tvm_emit(e, "setp.ne.b32 %s, %s, 0;", vote.name, own.value.name);
    reg all = tvm_emit_barrier_vote(e, any ? "or" : "and", vote);
    tvm_emit(e, "selp.b32 %s, 1, 0, %s;", out.value.name, all.name);
    return out;
}

/* ---- the instruction ---- */

static bool reduce_into(emitter *e, reduction *r, const uint32_t *map, partial *outputs) {
    if (r->is_position && !find_positions(e, r, map, outputs)) return false;
    if (!r->is_position) combine_own(e, r, map, outputs);
    if (r->votes) outputs[0] = combine_votes(e, r, outputs[0]);
    for (uint32_t o = 0; !r->votes && o < r->outputs; o++)
        outputs[o] = combine_lanes(e, r, outputs[o], r->lane_masks, r->shuffles);
    for (uint32_t at = 0; !r->votes && r->exchanged > 1 && at < r->outputs; at += r->chunk) {
        uint32_t count = r->outputs - at < r->chunk ? r->outputs - at : r->chunk;
        r->scratch = tvm_scratch_begin(e, (uint64_t)r->chunk * tvm_reduce_output_bytes(r));
        (r->shuffles == 5 ? exchange_warps : exchange_threads)(e, r, outputs + at, count);
    }
    element_writer writer;
    if (!tvm_write_begin(e, &writer, r->result)) return false;
    for (uint32_t o = 0; o < r->outputs; o++)
        tvm_write_element(e, &writer,
                          r->is_position            ? outputs[o].position
                          : tvm_is_half(r->op.type) ? tvm_f32_to_half(e, r->op.type, outputs[o].value)
                                                    : outputs[o].value);
    tvm_write_end(e, &writer);
    return true;
}

static void explain(emitter *e, const reduction *r, size_t before) {
    char name[96], refused[64] = "", lanes[24];
    if (r->votes) {
        tvm_explain(e, "bar.red", 0, tvm_body_lines(e, before), -1, "");
        return;
    }
    snprintf(lanes, sizeof lanes, "%u shuffles", r->shuffles);
    snprintf(name, sizeof name, "%u own, %s, %u through shared memory", (unsigned)(r->locals / r->outputs),
             r->shuffles == 5 && is_redux(r) ? "redux" : lanes,
             (unsigned)(r->exchanged > 1 ? r->exchanged : 0));
    if (r->exchanged > 1)
        snprintf(refused, sizeof refused, "shuffles: %s",
                 r->tree ? "partners in other warps" : "not a power of two of partial results");
    tvm_explain(e, name, 0, tvm_body_lines(e, before), -1, refused);
}

tvm_status tvm_emit_REDUCE(emitter *e, const tvm_insn *insn) {
    reduction r;
    tvm_reduce_plan(&r, e->k->program, e->k->kernel, insn);
    size_t before = e->body.size;
    r.chunk = tvm_reduce_chunk(&r, e->k->target, e->shared.scratch);
    uint32_t *map = calloc(r.locals, sizeof *map);
    partial *outputs = calloc(r.outputs, sizeof *outputs);
    bool done = map && outputs;
    if (done) {
        tvm_layout_broadcasts(tvm_slot_layout(e->k, r.result), r.layout, map, NULL);
        done = reduce_into(e, &r, map, outputs);
    }
    free(map);
    free(outputs);
    if (!done) return tvm_diag_no_memory(e->k->diags);
    explain(e, &r, before);
    return TVM_OK;
}
