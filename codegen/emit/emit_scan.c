/* scan: what comes before each element along an axis, combined in the order the language fixes. The axis is
 * made of digits, most significant first, each of locals or of threads. Upwards, from the last digit, the
 * totals of ever larger blocks: locals one after the other; threads as a tree, whose left siblings give each
 * thread what comes before it in its block. Downwards, what comes before each block is carried into its
 * parts.
 *
 * What comes before the first element is a value that changes nothing, bit for bit: -0 for a sum, a NaN for
 * max and min of floats. */
#include "compute.h"
#include "reduce_op.h"
#include "scan_plan.h"
#include "scratch.h"

#include <stdlib.h>

enum { WARP = 32 };

/* ---- values ---- */

static reg combine(emitter *e, const scan_plan *s, reg x, reg y) {
    return tvm_reduce_pair(e, &s->op, x, y);
}

static reg choose(emitter *e, const scan_plan *s, reg x, reg y, reg predicate) {
    reg d = tvm_new_element(e, s->op.compute);
    tvm_emit(e, "selp.%s %s, %s, %s, %s;", tvm_element_suffix(s->op.compute), d.name, x.name, y.name,
             predicate.name);
    return d;
}

/* What changes nothing; and (`is_result`) what stands before the first element of an exclusive scan. */
static reg neutral(emitter *e, const scan_plan *s, bool is_result) {
    char text[24];
    reg d = tvm_new_element(e, s->op.compute);
    tvm_emit(e, "mov.%s %s, %s;", tvm_element_suffix(s->op.compute), d.name,
             tvm_reduce_neutral(&s->op, is_result, text));
    return d;
}

/* ---- threads ---- */

/* Does the thread stand in the later half of blocks of 2 * distance, of whose size `of` gives the position?
 */
static reg is_later(emitter *e, const scan_plan *s, reg of, uint32_t distance) {
    reg bit = tvm_pure(e, 'r', "and.b32 $, %s, %u;", of.name, (unsigned)distance);
    return tvm_pure(e, 'p', "setp.%s.u32 $, %s, 0;", s->insn.reverse ? "eq" : "ne", bit.name);
}

/* What is before an element: where it is `later` than the partner, the partner's total as well. `before`
 * without a name: nothing yet. */
static reg choose_later(emitter *e, const scan_plan *s, reg partner, reg before, reg later) {
    bool first = !before.name[0];
    reg with = first ? partner : combine(e, s, partner, before);
    reg without = first ? neutral(e, s, false) : before;
    return choose(e, s, with, without, later);
}

/* One level of the tree: partners differ in the bit `distance` of the lane. */
static void step(emitter *e, const scan_plan *s, reg of, uint32_t distance, reg *total, reg *before) {
    char mask[16];
    snprintf(mask, sizeof mask, "%u", (unsigned)distance);
    reg other = tvm_reduce_shuffle(e, &s->op, "bfly", *total, mask), later = is_later(e, s, of, distance);
    *before = choose_later(e, s, other, *before, later);
    *total = combine(e, s, *total, other);
}

static reg address_of(emitter *e, reg place, uint32_t bytes) {
    reg base = tvm_scratch_base(e), offset = tvm_pure_scale(e, place, bytes);
    return tvm_pure(e, 'r', "add.u32 $, %s, %s;", base.name, offset.name);
}

/* Totals of warps, [total][warp]: each lane reads that of one of its group's warps, and the lanes make the
 * tree. Before a warp come the blocks that its number names, each from a lane that has its total. */
static void exchange_warps(emitter *e, const scan_plan *s, const scan_digit *digit, uint32_t scratch,
                           uint32_t count, reg *totals, reg *before) {
    const char *suffix = tvm_element_suffix(s->op.compute);
    uint32_t bytes = tvm_scan_value_bytes(s), row = s->threads / WARP * bytes;
    reg thread = tvm_thread_id(e), warp = tvm_pure_divide(e, thread, WARP);
    reg own = address_of(e, warp, bytes);
    for (uint32_t j = 0; j < count; j++)
        tvm_emit(e, "st.shared.%s [%s+%u], %s;", suffix, own.name, (unsigned)(scratch + j * row),
                 totals[j].name);
    tvm_scratch_publish(e);
    reg group = tvm_pure_scale(e, tvm_pure_divide(e, thread, WARP * digit->left), digit->left);
    reg lane = tvm_pure_modulo(e, thread, digit->left), number = tvm_pure_modulo(e, warp, digit->left);
    reg from = address_of(e, tvm_pure(e, 'r', "add.u32 $, %s, %s;", group.name, lane.name), bytes);
    for (uint32_t j = 0; j < count; j++) {
        reg value = tvm_new_element(e, s->op.compute);
        tvm_emit(e, "ld.shared.%s %s, [%s+%u];", suffix, value.name, from.name,
                 (unsigned)(scratch + j * row));
        for (uint32_t distance = 1; distance < digit->left; distance *= 2) {
            char mask[16];
            snprintf(mask, sizeof mask, "%u", (unsigned)distance);
            reg sibling = tvm_pure(e, 'r', "xor.b32 $, %s, %s;", number.name, mask);
            reg earlier = tvm_reduce_shuffle(e, &s->op, "idx", value, sibling.name);
            reg other = tvm_reduce_shuffle(e, &s->op, "bfly", value, mask);
            before[j] = choose_later(e, s, earlier, before[j], is_later(e, s, number, distance));
            value = combine(e, s, value, other);
        }
        totals[j] = value;
    }
}

/* The number of the thread's total among those that are exchanged, in the order of the scan. */
static reg number_of(emitter *e, const scan_plan *s, const scan_digit *digit) {
    reg number = tvm_pure_divide(e, tvm_thread_id(e), digit->weight << digit->shuffled);
    if (digit->weight * digit->size < s->threads) number = tvm_pure_modulo(e, number, digit->left);
    return s->insn.reverse ? tvm_pure(e, 'r', "sub.u32 $, %u, %s;", (unsigned)(digit->left - 1), number.name)
                           : number;
}

/* Of `left` totals in order: what they come to, and what comes before that of the thread, in which *before is
 * the last. They are combined as blocks of powers of two; before a number come the blocks that its binary
 * digits name, the last one first. */
static void scan_all(emitter *e, const scan_plan *s, uint32_t left, reg number, reg *blocks, reg *total,
                     reg *before) {
    *total = (reg){""};
    for (unsigned level = 0; left >> level > 0; level++) {
        uint32_t count = left >> level, odd = (left - 1) >> level;
        reg at = tvm_pure_divide(e, number, 1U << level), sibling = blocks[0];
        for (uint32_t k = 2; k + 1 <= odd; k += 2)
            sibling = choose(e, s, blocks[k], sibling,
                             tvm_pure(e, 'p', "setp.eq.u32 $, %s, %u;", at.name, (unsigned)(k + 1)));
        if (odd >= 1) {
            reg bit = tvm_pure(e, 'r', "and.b32 $, %s, 1;", at.name);
            reg is_odd = tvm_pure(e, 'p', "setp.ne.u32 $, %s, 0;", bit.name);
            *before = choose_later(e, s, sibling, *before, is_odd);
        }
        if (count & 1) *total = total->name[0] ? combine(e, s, blocks[count - 1], *total) : blocks[count - 1];
        for (uint32_t k = 0; k + 1 < count; k += 2) blocks[k / 2] = combine(e, s, blocks[k], blocks[k + 1]);
    }
}

/* Totals of threads, [total][thread]: each thread reads all that are combined with its own. */
static bool exchange_threads(emitter *e, const scan_plan *s, const scan_digit *digit, uint32_t scratch,
                             uint32_t count, reg *totals, reg *before) {
    const char *suffix = tvm_element_suffix(s->op.compute);
    uint32_t bytes = tvm_scan_value_bytes(s), row = s->threads * bytes,
             unit = digit->weight << digit->shuffled;
    reg thread = tvm_thread_id(e), own = address_of(e, thread, bytes);
    for (uint32_t j = 0; j < count; j++)
        tvm_emit(e, "st.shared.%s [%s+%u], %s;", suffix, own.name, (unsigned)(scratch + j * row),
                 totals[j].name);
    tvm_scratch_publish(e);
    reg place = tvm_pure_divide(e, thread, unit);
    if (unit * digit->left < s->threads) place = tvm_pure_modulo(e, place, digit->left);
    reg first = tvm_pure(e, 'r', "sub.u32 $, %s, %s;", thread.name, tvm_pure_scale(e, place, unit).name);
    reg from = address_of(e, first, bytes), number = number_of(e, s, digit);
    reg *blocks = calloc(digit->left, sizeof *blocks);
    for (uint32_t j = 0; blocks && j < count; j++) {
        for (uint32_t q = 0; q < digit->left; q++) {
            uint32_t at = s->insn.reverse ? digit->left - 1 - q : q;
            blocks[q] = tvm_new_element(e, s->op.compute);
            tvm_emit(e, "ld.shared.%s %s, [%s+%u];", suffix, blocks[q].name, from.name,
                     (unsigned)(scratch + j * row + at * unit * bytes));
        }
        scan_all(e, s, digit->left, number, blocks, &totals[j], &before[j]);
    }
    free(blocks);
    return blocks != NULL;
}

/* `totals` of parts become those of their blocks, `before` what comes before the thread's part in them. */
static bool scan_threads(emitter *e, const scan_plan *s, unsigned d, reg *totals, reg *before) {
    const scan_digit *digit = &s->digits[d];
    reg thread = tvm_thread_id(e);
    for (uint32_t j = 0; j < s->parts[d]; j++)
        for (unsigned b = 0; b < digit->shuffled; b++)
            step(e, s, thread, digit->weight << b, &totals[j], &before[j]);
    if (digit->left == 1) return true;
    uint32_t chunk = tvm_scan_chunk(s, d, e->k->target, e->shared.scratch);
    bool done = true;
    for (uint32_t at = 0; done && at < s->parts[d]; at += chunk) {
        uint32_t count = s->parts[d] - at < chunk ? s->parts[d] - at : chunk;
        uint32_t scratch = tvm_scratch_begin(e, (uint64_t)chunk * tvm_scan_each_bytes(s, digit));
        if (digit->of_warps)
            exchange_warps(e, s, digit, scratch, count, totals + at, before + at);
        else
            done = exchange_threads(e, s, digit, scratch, count, totals + at, before + at);
    }
    return done;
}

/* ---- up and down ---- */

/* The i-th part of a block of locals, in the order of the scan. */
static uint32_t part(const scan_plan *s, uint32_t block, uint32_t size, uint32_t i) {
    return block * size + (s->insn.reverse ? size - 1 - i : i);
}

/* By digit, of the blocks that a thread has parts of: what they come to, and what comes before them. */
typedef struct scan_values {
    reg *totals[TVM_MAX_MODES + 1], *before[TVM_MAX_MODES + 1];
} scan_values;

static bool go_up(emitter *e, const scan_plan *s, scan_values *v) {
    for (unsigned d = s->count; d-- > 0;) {
        uint32_t size = s->digits[d].size;
        for (uint32_t j = 0; j < s->parts[d]; j++) {
            v->totals[d][j] =
                s->digits[d].spatial ? v->totals[d + 1][j] : v->totals[d + 1][part(s, j, size, 0)];
            for (uint32_t i = 1; !s->digits[d].spatial && d > 0 && i < size; i++)
                v->totals[d][j] = combine(e, s, v->totals[d][j], v->totals[d + 1][part(s, j, size, i)]);
        }
        if (s->digits[d].spatial && !scan_threads(e, s, d, v->totals[d], v->before[d + 1])) return false;
    }
    return true;
}

static reg join(emitter *e, const scan_plan *s, reg first, reg then) {
    return first.name[0] && then.name[0] ? combine(e, s, first, then) : first.name[0] ? first : then;
}

static void go_down(emitter *e, const scan_plan *s, scan_values *v) {
    for (unsigned d = 0; d < s->count; d++) {
        uint32_t size = s->digits[d].size;
        for (uint32_t j = 0; j < s->parts[d]; j++) {
            reg carry = v->before[d][j];
            if (s->digits[d].spatial) {
                v->before[d + 1][j] = join(e, s, carry, v->before[d + 1][j]);
                continue;
            }
            for (uint32_t i = 0; i < size; i++) {
                uint32_t at = part(s, j, size, i);
                v->before[d + 1][at] = carry;
                if (i + 1 < size) carry = join(e, s, carry, v->totals[d + 1][at]);
            }
        }
    }
}

/* ---- the instruction ---- */

/* Of the k-th part of a line, in row-major order of the axis' local digits, and of the line: the local index.
 */
static uint32_t local_of(const scan_plan *s, uint32_t line, uint32_t k) {
    uint32_t local = 0, weight = 1;
    for (unsigned d = s->count; d-- > 0;) {
        if (s->digits[d].spatial) continue;
        local += k % s->digits[d].size * s->digits[d].weight;
        k /= s->digits[d].size;
    }
    for (unsigned i = s->layout->locals; i-- > 0;) {
        unsigned m = s->layout->local[i];
        uint32_t size = s->layout->mode_size[m];
        if (s->layout->mode_dim[m] != s->insn.axis) {
            local += line % size * weight;
            line /= size;
        }
        weight *= size;
    }
    return local;
}

static reg finish(emitter *e, const scan_plan *s, reg element, reg before) {
    reg value = element;
    if (s->insn.exclusive)
        value = before.name[0] ? combine(e, s, neutral(e, s, true), before) : neutral(e, s, true);
    else if (before.name[0])
        value = combine(e, s, before, element);
    return tvm_is_half(s->op.type) ? tvm_f32_to_half(e, s->op.type, value) : value;
}

static bool scan_into(emitter *e, const scan_plan *s, scan_values *v, reg *results) {
    uint32_t each = s->locals / s->lines;
    for (uint32_t i = 0; i < s->locals; i++) {
        reg value = tvm_read_element(e, s->insn.source, local_of(s, i / each, i % each), true);
        v->totals[s->count][i] = tvm_is_half(s->op.type) ? tvm_half_to_f32(e, s->op.type, value) : value;
    }
    if (!go_up(e, s, v)) return false;
    go_down(e, s, v);
    for (uint32_t i = 0; i < s->locals; i++)
        results[local_of(s, i / each, i % each)] =
            finish(e, s, v->totals[s->count][i], v->before[s->count][i]);
    element_writer writer;
    if (!tvm_write_begin(e, &writer, s->result)) return false;
    for (uint32_t l = 0; l < s->locals; l++) tvm_write_element(e, &writer, results[l]);
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_SCAN(emitter *e, const tvm_insn *insn) {
    scan_plan s;
    scan_values v;
    size_t before = e->body.size;
    tvm_scan_plan(&s, e->k->program, e->k->kernel, insn);
    reg *memory = calloc((2 * (size_t)s.count + 3) * s.locals, sizeof *memory);
    for (unsigned d = 0; memory && d <= s.count; d++) {
        v.totals[d] = memory + 2 * (size_t)d * s.locals;
        v.before[d] = v.totals[d] + s.locals;
    }
    bool done = memory && scan_into(e, &s, &v, memory + (2 * (size_t)s.count + 2) * s.locals);
    free(memory);
    if (!done) return tvm_diag_no_memory(e->k->diags);
    char name[96];
    uint32_t through = 0;
    unsigned shuffles = 0;
    for (unsigned d = 0; d < s.count; d++) {
        if (!s.digits[d].spatial) continue;
        shuffles += s.digits[d].shuffled;
        if (s.digits[d].left > 1) through += s.digits[d].left;
    }
    snprintf(name, sizeof name, "%u own, %u shuffles, %u through shared memory",
             (unsigned)(s.locals / s.lines), shuffles, (unsigned)through);
    tvm_explain(e, name, 0, tvm_body_lines(e, before), -1, "");
    return TVM_OK;
}
