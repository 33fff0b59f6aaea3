/* Launches of one stream: a kernel with wait-dependency may begin before those ahead of it have ended, so
 * that until then it must leave alone what they write, and not write what they read. Ahead of it are all back
 * to the latest one without wait-dependency, which began when everything before it had ended.
 *
 * A launch leaves its shadow of the tensors that it was given: who wrote and read each element last. Tensors
 * of alloc-global are memory that any launch may have. */
#include "sanitize_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LAUNCHES = 16 }; /* that are kept: an access early by more of them is not found */

typedef struct past_insn {
    uint32_t line;
    uint16_t op;
} past_insn;

struct tvm_sanitize_past {
    tvm_sanitize_past *before;
    void *stream;
    char *kernel;
    san_region *regions;
    uint32_t region_count;
    san_event *events;
    past_insn *insns;
};

/* ---- what is kept ---- */

static void free_one(tvm_sanitize_past *past) {
    for (uint32_t r = 0; past->regions && r < past->region_count; r++) tvm_san_region_free(&past->regions[r]);
    free(past->regions);
    free(past->events);
    free(past->insns);
    free(past->kernel);
    free(past);
}

void tvm_sanitize_past_free(tvm_sanitize_past *past) {
    while (past) {
        tvm_sanitize_past *before = past->before;
        free_one(past);
        past = before;
    }
}

static void forget(tvm_sanitize_past **past, const void *stream) {
    while (*past) {
        tvm_sanitize_past *one = *past;
        if (one->stream != stream) {
            past = &one->before;
            continue;
        }
        *past = one->before;
        free_one(one);
    }
}

void tvm_san_past_begin(sanitizer *s) {
    const tvm_ir_kernel *kernel = s->kernel->kernel;
    tvm_sanitize_past **past = s->run->options->past;
    s->waits = TVM_NONE;
    for (uint32_t i = kernel->insn_count; i-- > 0;)
        if (kernel->insns[i].op == TVM_OP_WAIT_DEPENDENCY) s->waits = i;
    if (!past) return;
    s->stream = s->run->options->stream;
    if (s->waits == TVM_NONE) forget(past, s->stream);
    s->past = *past;
}

/* Without memory for it nothing is known of the launch. */
static tvm_sanitize_past *make_one(const sanitizer *s) {
    const tvm_ir_kernel *kernel = s->kernel->kernel;
    tvm_sanitize_past *one = calloc(1, sizeof *one);
    if (!one) return NULL;
    one->kernel = strdup(tvm_string(s->kernel->program, kernel->name));
    one->insns = calloc((size_t)kernel->insn_count + 1, sizeof *one->insns);
    one->regions = calloc((size_t)s->region_count + 1, sizeof *one->regions);
    one->stream = s->stream;
    if (one->kernel && one->insns && one->regions) return one;
    free_one(one);
    return NULL;
}

void tvm_san_past_end(sanitizer *s) {
    const tvm_ir_kernel *kernel = s->kernel->kernel;
    tvm_sanitize_past **past = s->run->options->past, *one = past ? make_one(s) : NULL;
    if (!one) return;
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        one->insns[i] = (past_insn){kernel->insns[i].line, (uint16_t)kernel->insns[i].op};
    for (uint32_t r = 0; r < s->region_count; r++) {
        if (s->regions[r].scratch) continue;
        one->regions[one->region_count++] = s->regions[r];
        s->regions[r].cells = NULL;
    }
    one->events = s->events;
    s->events = NULL;
    one->before = *past;
    *past = one;
    uint32_t count = 0;
    while (*past && count++ < MOST_LAUNCHES) past = &(*past)->before;
    tvm_sanitize_past_free(*past);
    *past = NULL;
}

/* ---- what is early ---- */

bool tvm_san_is_early(sanitizer *s, const interp_context *context) {
    return s->waits != TVM_NONE &&
           tvm_san_seen(&san_context_of(s, context)->seen, san_all(SAN_LAUNCHES)) == 0;
}

/* Who has the register tensor's element. */
static uint16_t code_of(const sanitize_walk *walk, int64_t dense) {
    return walk->codes ? (uint16_t)((walk->codes[dense] & walk->mask) + walk->base) : walk->code;
}

/* What a launch did to the cell that whoever comes early may not touch so; 0: nothing. */
static uint32_t event_of(const san_cell *cell, bool writes) {
    return cell->write ? cell->write : !writes ? 0 : cell->read ? cell->read : cell->other;
}

/* Reports the elements of the bytes [first, end), which are the walk's from `dense` on. */
static void check_region(sanitize_walk *walk, const tvm_sanitize_past *past, const san_region *region,
                         uintptr_t first, uintptr_t end, int64_t dense) {
    uintptr_t low = first > region->base ? first : region->base, top = region->base + region->bytes;
    if (top > end) top = end;
    for (uintptr_t at = low; at < top; at += region->granule - (at - region->base) % region->granule) {
        char text[160];
        uint32_t number =
            event_of(&region->cells[(at - region->base) / region->granule], walk->mode != SANITIZE_READ);
        if (!number) continue;
        const past_insn *insn = &past->insns[past->events[number].insn];
        int64_t element = (int64_t)((uint64_t)(at - first) * 8 / walk->bits);
        snprintf(text, sizeof text, "the launch of '%.40s' before it %s it (%s, line %u)", past->kernel,
                 past->events[number].mode == SANITIZE_READ ? "reads" : "writes", tvm_op(insn->op)->mnemonic,
                 (unsigned)insn->line);
        tvm_san_early(walk, (at - walk->region->base) / walk->region->granule, code_of(walk, dense + element),
                      text);
    }
}

void tvm_san_past_row(sanitize_walk *walk, int64_t element, int64_t dense, int64_t count) {
    const sanitizer *s = walk->sanitizer;
    uintptr_t row = walk->region->base + walk->first * walk->region->granule;
    uintptr_t first = row + (uint64_t)element * walk->bits / 8,
              end = row + ((uint64_t)(element + count) * walk->bits + 7) / 8;
    if (walk->region->scratch) {
        for (int64_t i = 0; i < count; i++)
            tvm_san_early(walk,
                          (first - walk->region->base + (uint64_t)i * walk->bits / 8) / walk->region->granule,
                          code_of(walk, dense + i), "earlier launches may have memory of alloc-global");
        return;
    }
    for (const tvm_sanitize_past *past = s->past; past; past = past->before)
        for (uint32_t r = 0; past->stream == s->stream && r < past->region_count; r++)
            if (past->regions[r].base < end && first < past->regions[r].base + past->regions[r].bytes)
                check_region(walk, past, &past->regions[r], first, end, dense);
}

static bool is_scratch(const sanitizer *s, uintptr_t address) {
    for (uint32_t r = 0; r < s->region_count; r++)
        if (address - s->regions[r].base < s->regions[r].bytes) return s->regions[r].scratch;
    return false;
}

void tvm_sanitize_semaphore(interp_context *context, const interp_insn *insn, const void *word) {
    sanitizer *s = context->block->run->sanitizer;
    if (!tvm_san_is_early(s, context) || !is_scratch(s, (uintptr_t)word)) return;
    san_report *report = tvm_san_report(s, SAN_DEPENDENCY, (uint32_t)(insn - s->kernel->insns), TVM_NONE);
    if (!report) return;
    const int32_t *index = context->block->index;
    memcpy(report->block, index, sizeof report->block);
    report->hint = "wait-dependency before it";
    snprintf(report->what, sizeof report->what,
             "%s before wait-dependency (block (%d,%d,%d)): earlier launches may have memory of alloc-global",
             tvm_san_mnemonic(s, report->insn), index[0], index[1], index[2]);
}

/* ---- wait-dependency ---- */

tvm_status tvm_sanitize_wait_dependency(interp_context *context) {
    sanitizer *s = context->block->run->sanitizer;
    san_block_of(s, context->block)->waited = true;
    bool done = tvm_san_see(&san_context_of(s, context)->seen, san_all(SAN_LAUNCHES), 2);
    return done ? TVM_OK : tvm_interp_no_memory(s->run);
}

/* After a fault a block may not have come so far. */
void tvm_san_past_blocks(sanitizer *s) {
    for (uint32_t b = 0; b < s->block_count && s->waits != TVM_NONE && !s->faulted; b++) {
        const san_block *block = &s->blocks[b];
        if (!block->runs || block->waited) continue;
        san_report *report = tvm_san_report(s, SAN_DEPENDENCY, s->waits, TVM_NONE);
        if (!report) continue;
        memcpy(report->block, block->index, sizeof report->block);
        report->hint = "every block comes to it, on every path: later launches rely on it";
        snprintf(report->what, sizeof report->what, "block (%d,%d,%d) has ended without wait-dependency",
                 block->index[0], block->index[1], block->index[2]);
    }
}
