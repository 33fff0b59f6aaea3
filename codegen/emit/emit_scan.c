/* scan: what comes before each element along an axis, combined in the order the language fixes. The axis is
 * made of digits, most significant first, each of locals or of threads. Upwards, from the last digit, the
 * totals of ever larger blocks: locals one after the other; threads as a tree, whose left siblings give each
 * thread what comes before it in its block. Downwards, what comes before each block is carried into its
 * parts.
 *
 * What comes before the first element is a value that changes nothing, bit for bit: -0 for a sum, a NaN for
 * max and min of floats. */
#include "caches.h"
#include "compute.h"
#include "numbers.h"
#include "reduce.h"
#include "reduce_op.h"
#include "scratch.h"

#include <stdlib.h>

enum {
    WARP = 32,
    CHUNK = 16, /* totals of a thread that are exchanged at a time, where there is memory for so many */
    MAX_LEVELS = 11
};

typedef struct scan_digit {
    uint32_t size;
    bool spatial;
    uint32_t weight;   /* in the local index, or the thread number */
    unsigned shuffled; /* spatial: its low bits whose partners are lanes of the warp */
    uint32_t left;     /* spatial: totals that are left after the shuffles */
    bool of_warps;     /* spatial: then every warp holds one */
} scan_digit;

typedef struct scan {
    reduce_op op;
    tvm_scan insn;
    uint32_t result, locals, threads;
    const tvm_layout *layout;
    scan_digit digits[TVM_MAX_MODES];
    unsigned count;
    uint32_t lines;                    /* of the axis that a thread has parts of */
    uint32_t parts[TVM_MAX_MODES + 1]; /* blocks of digit d on that a thread has parts of */
    reg *totals[TVM_MAX_MODES + 1], *before[TVM_MAX_MODES + 1];
} scan;

/* ---- planning ---- */

static uint32_t spatial_weight(const tvm_layout *layout, unsigned mode) {
    uint32_t weight = 1;
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t entry = layout->spatial[i];
        if (entry == (int32_t)mode) break;
        weight *= entry < 0 ? (uint32_t)-entry : layout->mode_size[entry];
    }
    return weight;
}

static uint32_t local_weight(const tvm_layout *layout, unsigned mode) {
    uint32_t weight = 1;
    for (unsigned i = layout->locals; i-- > 0 && layout->local[i] != mode;)
        weight *= layout->mode_size[layout->local[i]];
    return weight;
}

static void plan_digit(scan_digit *digit, const tvm_layout *layout, unsigned mode) {
    *digit = (scan_digit){.size = layout->mode_size[mode], .spatial = tvm_mode_is_spatial(layout, mode)};
    digit->weight = digit->spatial ? spatial_weight(layout, mode) : local_weight(layout, mode);
    digit->left = digit->size;
    if (!digit->spatial || !tvm_is_power_of_two(digit->size) || !tvm_is_power_of_two(digit->weight)) return;
    while (digit->left > 1 && digit->weight << digit->shuffled < WARP) {
        digit->shuffled++;
        digit->left /= 2;
    }
    digit->of_warps = digit->shuffled == 5 && digit->left > 1;
}

static void plan_scan(scan *s, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                      const tvm_insn *insn) {
    *s = (scan){.insn = tvm_scan_of(tvm_operands(kernel, insn), insn->count), .result = insn->result};
    const tvm_slot *source = &kernel->slots[s->insn.source];
    const tvm_layout *layout = s->layout = &program->layouts[source->layout];
    s->op = tvm_reduce_op(source->dtype, s->insn.operation);
    s->locals = tvm_layout_locals(layout);
    s->threads = tvm_layout_threads(layout);
    uint32_t parts = 1;
    for (unsigned m = 0; m < layout->modes; m++)
        if (layout->mode_dim[m] == s->insn.axis) {
            plan_digit(&s->digits[s->count], layout, m);
            if (!s->digits[s->count].spatial) parts *= s->digits[s->count].size;
            s->count++;
        }
    s->lines = s->locals / parts;
    s->parts[0] = s->lines;
    for (unsigned d = 0; d < s->count; d++)
        s->parts[d + 1] = s->parts[d] * (s->digits[d].spatial ? 1 : s->digits[d].size);
}

static uint32_t value_bytes(const scan *s) {
    return s->op.compute.bits == 64 ? 8 : 4;
}

/* Bytes of scratch memory for one total of each thread. */
static uint32_t each_bytes(const scan *s, const scan_digit *digit) {
    return value_bytes(s) * (digit->of_warps ? s->threads / WARP : s->threads);
}

static uint32_t chunk_of(const scan *s, unsigned d, tvm_target target, uint64_t taken) {
    uint64_t left = tvm_target_shared_bytes(target), each = each_bytes(s, &s->digits[d]);
    uint32_t chunk = s->parts[d] < CHUNK ? s->parts[d] : CHUNK;
    left -= taken < left ? taken : left;
    while (chunk > 1 && chunk * each > left) chunk = (chunk + 1) / 2;
    return chunk;
}

uint64_t tvm_scan_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                          tvm_target target, uint64_t taken) {
    scan s;
    uint64_t most = 0;
    plan_scan(&s, program, kernel, insn);
    for (unsigned d = 0; d < s.count; d++) {
        if (!s.digits[d].spatial || s.digits[d].left == 1) continue;
        uint64_t bytes = (uint64_t)chunk_of(&s, d, target, taken) * each_bytes(&s, &s.digits[d]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* ---- values ---- */

static reg combine(emitter *e, const scan *s, reg x, reg y) {
    return tvm_reduce_pair(e, &s->op, x, y);
}

static reg choose(emitter *e, const scan *s, reg x, reg y, reg predicate) {
    reg d = tvm_new_element(e, s->op.compute);
    tvm_emit(e, "selp.%s %s, %s, %s, %s;", tvm_element_suffix(s->op.compute), d.name, x.name, y.name,
             predicate.name);
    return d;
}

/* What changes nothing; and (`is_result`) what stands before the first element of an exclusive scan. */
static reg neutral(emitter *e, const scan *s, bool is_result) {
    char text[24];
    reg d = tvm_new_element(e, s->op.compute);
    tvm_emit(e, "mov.%s %s, %s;", tvm_element_suffix(s->op.compute), d.name,
             tvm_reduce_neutral(&s->op, is_result, text));
    return d;
}

/* ---- threads ---- */

/* Does the thread stand in the later half of blocks of 2 * distance, of whose size `of` gives the position?
 */
static reg is_later(emitter *e, const scan *s, reg of, uint32_t distance) {
    reg bit = tvm_pure(e, 'r', "and.b32 $, %s, %u;", of.name, (unsigned)distance);
    return tvm_pure(e, 'p', "setp.%s.u32 $, %s, 0;", s->insn.reverse ? "eq" : "ne", bit.name);
}

/* What is before an element: where it is `later` than the partner, the partner's total as well. `before`
 * without a name: nothing yet. */
static reg choose_later(emitter *e, const scan *s, reg partner, reg before, reg later) {
    bool first = !before.name[0];
    reg with = first ? partner : combine(e, s, partner, before);
    reg without = first ? neutral(e, s, false) : before;
    return choose(e, s, with, without, later);
}

/* One level of the tree: partners differ in the bit `distance` of the lane. */
static void step(emitter *e, const scan *s, reg of, uint32_t distance, reg *total, reg *before) {
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
static void exchange_warps(emitter *e, const scan *s, const scan_digit *digit, uint32_t scratch,
                           uint32_t count, reg *totals, reg *before) {
    const char *suffix = tvm_element_suffix(s->op.compute);
    uint32_t bytes = value_bytes(s), row = s->threads / WARP * bytes;
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
static reg number_of(emitter *e, const scan *s, const scan_digit *digit) {
    reg number = tvm_pure_divide(e, tvm_thread_id(e), digit->weight << digit->shuffled);
    if (digit->weight * digit->size < s->threads) number = tvm_pure_modulo(e, number, digit->left);
    return s->insn.reverse ? tvm_pure(e, 'r', "sub.u32 $, %u, %s;", (unsigned)(digit->left - 1), number.name)
                           : number;
}

/* Of `left` totals in order: what they come to, and what comes before that of the thread, in which *before is
 * the last. They are combined as blocks of powers of two; before a number come the blocks that its binary
 * digits name, the last one first. */
static void scan_all(emitter *e, const scan *s, uint32_t left, reg number, reg *blocks, reg *total,
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
static bool exchange_threads(emitter *e, const scan *s, const scan_digit *digit, uint32_t scratch,
                             uint32_t count, reg *totals, reg *before) {
    const char *suffix = tvm_element_suffix(s->op.compute);
    uint32_t bytes = value_bytes(s), row = s->threads * bytes, unit = digit->weight << digit->shuffled;
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
static bool scan_threads(emitter *e, const scan *s, unsigned d, reg *totals, reg *before) {
    const scan_digit *digit = &s->digits[d];
    reg thread = tvm_thread_id(e);
    for (uint32_t j = 0; j < s->parts[d]; j++)
        for (unsigned b = 0; b < digit->shuffled; b++)
            step(e, s, thread, digit->weight << b, &totals[j], &before[j]);
    if (digit->left == 1) return true;
    uint32_t chunk = chunk_of(s, d, e->target, e->shared.scratch);
    bool done = true;
    for (uint32_t at = 0; done && at < s->parts[d]; at += chunk) {
        uint32_t count = s->parts[d] - at < chunk ? s->parts[d] - at : chunk;
        uint32_t scratch = tvm_scratch_begin(e, (uint64_t)chunk * each_bytes(s, digit));
        if (digit->of_warps)
            exchange_warps(e, s, digit, scratch, count, totals + at, before + at);
        else
            done = exchange_threads(e, s, digit, scratch, count, totals + at, before + at);
    }
    return done;
}

/* ---- up and down ---- */

/* The i-th part of a block of locals, in the order of the scan. */
static uint32_t part(const scan *s, uint32_t block, uint32_t size, uint32_t i) {
    return block * size + (s->insn.reverse ? size - 1 - i : i);
}

static bool go_up(emitter *e, scan *s) {
    for (unsigned d = s->count; d-- > 0;) {
        uint32_t size = s->digits[d].size;
        for (uint32_t j = 0; j < s->parts[d]; j++) {
            s->totals[d][j] =
                s->digits[d].spatial ? s->totals[d + 1][j] : s->totals[d + 1][part(s, j, size, 0)];
            for (uint32_t i = 1; !s->digits[d].spatial && d > 0 && i < size; i++)
                s->totals[d][j] = combine(e, s, s->totals[d][j], s->totals[d + 1][part(s, j, size, i)]);
        }
        if (s->digits[d].spatial && !scan_threads(e, s, d, s->totals[d], s->before[d + 1])) return false;
    }
    return true;
}

static reg join(emitter *e, const scan *s, reg first, reg then) {
    return first.name[0] && then.name[0] ? combine(e, s, first, then) : first.name[0] ? first : then;
}

static void go_down(emitter *e, scan *s) {
    for (unsigned d = 0; d < s->count; d++) {
        uint32_t size = s->digits[d].size;
        for (uint32_t j = 0; j < s->parts[d]; j++) {
            reg carry = s->before[d][j];
            if (s->digits[d].spatial) {
                s->before[d + 1][j] = join(e, s, carry, s->before[d + 1][j]);
                continue;
            }
            for (uint32_t i = 0; i < size; i++) {
                uint32_t at = part(s, j, size, i);
                s->before[d + 1][at] = carry;
                if (i + 1 < size) carry = join(e, s, carry, s->totals[d + 1][at]);
            }
        }
    }
}

/* ---- the instruction ---- */

/* Of the k-th part of a line, in row-major order of the axis' local digits, and of the line: the local index.
 */
static uint32_t local_of(const scan *s, uint32_t line, uint32_t k) {
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

static reg finish(emitter *e, const scan *s, reg element, reg before) {
    reg value = element;
    if (s->insn.exclusive)
        value = before.name[0] ? combine(e, s, neutral(e, s, true), before) : neutral(e, s, true);
    else if (before.name[0])
        value = combine(e, s, before, element);
    return tvm_is_half(s->op.type) ? tvm_f32_to_half(e, s->op.type, value) : value;
}

static bool scan_into(emitter *e, scan *s, reg *results) {
    uint32_t each = s->locals / s->lines;
    for (uint32_t i = 0; i < s->locals; i++) {
        reg value = tvm_read_element(e, s->insn.source, local_of(s, i / each, i % each), true);
        s->totals[s->count][i] = tvm_is_half(s->op.type) ? tvm_half_to_f32(e, s->op.type, value) : value;
    }
    if (!go_up(e, s)) return false;
    go_down(e, s);
    for (uint32_t i = 0; i < s->locals; i++)
        results[local_of(s, i / each, i % each)] =
            finish(e, s, s->totals[s->count][i], s->before[s->count][i]);
    element_writer writer;
    if (!tvm_write_begin(e, &writer, s->result)) return false;
    for (uint32_t l = 0; l < s->locals; l++) tvm_write_element(e, &writer, results[l]);
    tvm_write_end(e, &writer);
    return true;
}

tvm_status tvm_emit_SCAN(emitter *e, const tvm_insn *insn) {
    scan s;
    size_t before = e->body.size;
    plan_scan(&s, e->program, e->kernel, insn);
    reg *memory = calloc((2 * (size_t)s.count + 3) * s.locals, sizeof *memory);
    for (unsigned d = 0; memory && d <= s.count; d++) {
        s.totals[d] = memory + 2 * (size_t)d * s.locals;
        s.before[d] = s.totals[d] + s.locals;
    }
    bool done = memory && scan_into(e, &s, memory + (2 * (size_t)s.count + 2) * s.locals);
    free(memory);
    if (!done) return tvm_diag_no_memory(e->diags);
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
