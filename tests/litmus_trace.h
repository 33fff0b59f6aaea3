/* What the threads of a launch do to a byte or two, as programs of litmus_text.h: ptx_machine.h, which
 * executes the code that the translator has written, tells each instruction as it comes to it. Of accesses
 * those are kept that touch a byte that is watched, one of shared memory, in each block, or one of global
 * memory, or that order others; of the threads those that do one of these, or speak for others. */
#ifndef TVM_TESTS_LITMUS_TRACE_H
#define TVM_TESTS_LITMUS_TRACE_H

#include <stdarg.h>

#include "litmus_text.h"
#include "ptx_machine.h"

enum { TRACE_BLOCKS = 4, TRACE_THREADS = 512, TRACE_TEXT = 1 << 13, TRACE_SOURCES = 24 };

typedef struct trace_thread {
    char *text;
    size_t length;
    bool is_kept;
} trace_thread;

typedef struct litmus_trace {
    const uint8_t *global; /* the byte that is watched; NULL: none */
    int64_t shared;        /* its place from where shared memory begins; -1: none */
    trace_thread thread[TRACE_BLOCKS][TRACE_THREADS];
} litmus_trace;

/* ---- writing lines ---- */

static inline unsigned trace_block(const ptx_machine *m) {
    return m->block[0] + m->grid[0] * (m->block[1] + m->grid[1] * m->block[2]);
}

__attribute__((format(printf, 4, 5))) static inline void trace_line(litmus_trace *trace, const ptx_machine *m,
                                                                    unsigned t, const char *format, ...) {
    ck_assert_uint_lt(trace_block(m), TRACE_BLOCKS);
    ck_assert_uint_lt(t, TRACE_THREADS);
    trace_thread *to = &trace->thread[trace_block(m)][t];
    if (!to->text) to->text = malloc(TRACE_TEXT);
    ck_assert_ptr_nonnull(to->text);
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(to->text + to->length, TRACE_TEXT - to->length, format, arguments);
    va_end(arguments);
    ck_assert(n > 0 && to->length + (size_t)n < TRACE_TEXT);
    to->length += (size_t)n;
}

/* The first word, without a guard. */
static inline const char *trace_name(const ptx_insn *insn, char name[128]) {
    const char *text = insn->text;
    if (*text == '@') text += strcspn(text, " ") + 1;
    snprintf(name, 128, "%.*s", (int)strcspn(text, " ;"), text);
    return name;
}

/* ---- places ---- */

static inline uint64_t trace_address(const ptx_machine *m, const ptx_operand *o, unsigned t, unsigned width) {
    uint64_t address = ptx_mask(ptx_get(m, o->reg[0], t) + o->value, width);
    return width == 32 ? ptx_near(m, address) : address;
}

/* The name of bytes of shared memory of the cluster: "d@1", if the watched one is among them, or "-". */
static inline void trace_shared(const litmus_trace *trace, ptx_machine *m, const ptx_insn *insn,
                                uint64_t address, uint64_t bytes, char name[24]) {
    const ptx_machine *owner = ptx_owner(m, insn, &address);
    uint64_t watched = PTX_SHARED_BASE + (uint64_t)trace->shared;
    bool is_it = trace->shared >= 0 && address <= watched && watched < address + bytes;
    snprintf(name, 24, is_it ? "d@%u" : "-", trace_block(owner));
}

static inline void trace_global(const litmus_trace *trace, const uint8_t *at, uint64_t bytes, char name[24]) {
    bool is_it = trace->global && at <= trace->global && trace->global < at + bytes;
    snprintf(name, 24, is_it ? "g" : "-");
}

static inline bool trace_box_has(const litmus_trace *trace, const ptx_tensor_map *map, const int32_t *at) {
    for (uint32_t n = 0; n < ptx_box_elements(map); n++) {
        const uint8_t *from = ptx_box_element(map, at, n);
        if (from && trace->global && from <= trace->global && trace->global < from + map->element_bytes)
            return true;
    }
    return false;
}

/* An mbarrier, with the phase that it is in. */
static inline ptx_mbarrier *trace_mbarrier(ptx_machine *m, const ptx_insn *insn, const ptx_operand *o,
                                           unsigned t, unsigned *block) {
    ptx_machine *owner;
    ptx_mbarrier *b = ptx_mbarrier_of(m, insn, o, t, &owner);
    *block = trace_block(owner);
    return b;
}

/* ---- instructions ---- */

static inline void trace_access(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn, unsigned t) {
    const char *op = insn->part[0];
    bool fetches = ptx_is(op, "ld") || ptx_is(op, "atom") || ptx_is(op, "ldmatrix");
    const ptx_operand *memory = &insn->operand[fetches], *data = &insn->operand[!fetches];
    bool shared = strstr(insn->text, "shared"), matrix = strstr(op, "matrix");
    bool strong = litmus_order_of(insn->text, LITMUS_WEAK) != LITMUS_WEAK;
    unsigned bytes = ptx_bits(insn) / 8, count = data->kind == PTX_GROUP ? data->count : 1;
    char name[24], word[128];
    if (ptx_is(insn->part[1], "param") || (matrix && t % 32 >= 8 * count)) return;
    uint64_t at = trace_address(m, memory, t, shared ? 32 : 64), size = matrix ? 16 : (uint64_t)bytes * count;
    if (shared)
        trace_shared(trace, m, insn, at, size, name);
    else
        trace_global(trace, (const uint8_t *)(uintptr_t)at, size, name);
    if (strong && !shared && name[0] == '-')
        snprintf(name, sizeof name, "f%llx", (unsigned long long)at & 0xffff);
    if (name[0] == '-') return;
    if (name[0] != 'f' || insn->guard != UINT32_MAX) trace->thread[trace_block(m)][t].is_kept = true;
    trace_line(trace, m, t, "%s [%s%s], 1;\n", trace_name(insn, word), name,
               strong && (ptx_is(op, "ld") || litmus_says(insn->text, "acquire")) ? "!" : "");
}

static inline void trace_mbarrier_step(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn,
                                       unsigned t) {
    bool waits = ptx_is(insn->part[1], "try_wait") || ptx_is(insn->part[1], "test_wait");
    unsigned block;
    char word[128];
    if (waits ? !ptx_mbarrier_test(m, insn, t) : !ptx_is(insn->part[1], "arrive")) return;
    const ptx_mbarrier *b = trace_mbarrier(m, insn, &insn->operand[1], t, &block);
    if (!waits) trace->thread[trace_block(m)][t].is_kept = true;
    trace_line(trace, m, t, "%s [m%u@%u#%d];\n", trace_name(insn, word), (unsigned)b->address, block,
               (int)b->phase - waits);
}

/* cp.async of threads, and cp.async.mbarrier.arrive. */
static inline void trace_copy(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn, unsigned t) {
    const ptx_operand *o = insn->operand;
    char to[24], from[24], word[128];
    unsigned block;
    if (ptx_is(insn->part[2], "mbarrier")) {
        const ptx_mbarrier *b = trace_mbarrier(m, insn, &o[0], t, &block);
        trace_line(trace, m, t, "%s [m%u@%u#%u];\n", trace_name(insn, word), (unsigned)b->address, block,
                   (unsigned)b->phase);
        return;
    }
    trace_shared(trace, m, insn, trace_address(m, &o[0], t, 32), o[2].value, to);
    trace_global(trace, (const uint8_t *)(uintptr_t)trace_address(m, &o[1], t, 64), o[2].value, from);
    if (to[0] == '-' && from[0] == '-') return;
    trace->thread[trace_block(m)][t].is_kept = true;
    trace_line(trace, m, t, "%s [%s], [%s], 16;\n", trace_name(insn, word), to, from);
}

/* A box, to each block of a multicast, or back. */
static inline void trace_box(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn, unsigned t) {
    const char *word = insn->text;
    char name[128], shared[24];
    bool stores = ptx_is(insn->part[ptx_bulk_tensor(insn) + 2], "global");
    const ptx_operand *tile = &insn->operand[stores], *tensor = &insn->operand[!stores];
    const ptx_tensor_map *map = (const ptx_tensor_map *)(uintptr_t)ptx_get(m, tensor->reg[0], t);
    int32_t at[5] = {0};
    for (unsigned d = 0; d < map->rank; d++) at[map->order[d]] = (int32_t)ptx_get(m, tensor->reg[1 + d], t);
    const char *global = trace_box_has(trace, map, at) ? "g" : "-";
    uint64_t bytes = (uint64_t)ptx_box_elements(map) * map->element_bytes, mask = 1;
    uint64_t address = trace_address(m, tile, t, 32);
    trace_shared(trace, m, insn, address, bytes, shared);
    trace_name(insn, name);
    if (stores) {
        trace_line(trace, m, t, "%s [%s], [%s];\n", name, global, shared);
        return;
    }
    bool casts = strstr(word, ".multicast");
    if (casts) mask = ptx_operand_value(m, &insn->operand[3], t);
    uint64_t barrier = trace_address(m, &insn->operand[2], t, 32);
    for (unsigned r = 0; mask >> r; r++) {
        ptx_machine *owner = casts ? m->peers[r] : m;
        if (!(mask >> r & 1)) continue;
        trace_shared(trace, owner, insn, address, bytes, shared);
        trace_line(trace, m, t, "%s [%s], [%s], [m%u@%u#%u];\n", name, shared, global, (unsigned)barrier,
                   trace_block(owner), (unsigned)ptx_mbarrier_find(owner, barrier)->phase);
    }
}

/* A run of bytes. */
static inline void trace_run(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn, unsigned t) {
    const ptx_operand *o = insn->operand;
    bool is_global = ptx_is(insn->part[4], "global");
    uint64_t bytes = ptx_operand_value(m, &o[2], t), at = trace_address(m, &o[1], t, is_global ? 64 : 32);
    unsigned block;
    const ptx_mbarrier *b = trace_mbarrier(m, insn, &o[3], t, &block);
    char to[24], from[24], word[128];
    trace_shared(trace, m, insn, trace_address(m, &o[0], t, 32), bytes, to);
    if (is_global)
        trace_global(trace, (const uint8_t *)(uintptr_t)at, bytes, from);
    else
        trace_shared(trace, m, insn, at, bytes, from);
    trace_line(trace, m, t, "%s [%s], [%s], [m%u@%u#%u];\n", trace_name(insn, word), to, from,
               (unsigned)b->address, block, (unsigned)b->phase);
}

/* Of a tile its first element. */
static inline void trace_product(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn, unsigned t) {
    char name[2][24] = {"-", "-"}, word[128];
    for (unsigned i = 0; i < 2 && ptx_is(insn->part[1], "mma_async"); i++)
        if (insn->operand[i].kind == PTX_REG)
            trace_shared(trace, m, insn, (ptx_get(m, insn->operand[i].reg[0], t) & 0x3fff) << 4, 1, name[i]);
    if (!ptx_is(insn->part[1], "mma_async"))
        trace_line(trace, m, t, "%s %u;\n", trace_name(insn, word), (unsigned)insn->operand[0].value);
    else if (name[0][0] != '-' || name[1][0] != '-')
        trace_line(trace, m, t, "%s [%s], [%s];\n", trace_name(insn, word), name[0], name[1]);
}

static inline void trace_engine(litmus_trace *trace, ptx_machine *m, const ptx_insn *insn, unsigned t) {
    trace_thread *own = &trace->thread[trace_block(m)][t];
    char word[128];
    bool group = strstr(insn->text, "_group") && !strstr(insn->text, "bulk_group ");
    if (group)
        trace_line(trace, m, t, "%s %u;\n", trace_name(insn, word),
                   insn->operands ? (unsigned)ptx_operand_value(m, &insn->operand[0], t) : 0);
    else if (ptx_bulk_tensor(insn))
        own->is_kept = true, trace_box(trace, m, insn, t);
    else if (ptx_is(insn->part[2], "bulk"))
        own->is_kept = true, trace_run(trace, m, insn, t);
    else
        trace_copy(trace, m, insn, t);
}

/* ptx_machine.watch */
static inline void trace_insn(void *watcher, ptx_machine *m, const ptx_insn *insn) {
    litmus_trace *trace = watcher;
    const char *op = insn->part[0];
    char word[128];
    if (insn->label != UINT32_MAX) return;
    for (unsigned t = 0; t < m->threads; t++) {
        if (!ptx_active(m, insn, t)) continue;
        if (ptx_is(op, "mbarrier"))
            trace_mbarrier_step(trace, m, insn, t);
        else if (ptx_is(op, "cp"))
            trace_engine(trace, m, insn, t);
        else if (ptx_is(op, "wgmma"))
            trace_product(trace, m, insn, t);
        else if (ptx_is(op, "fence") || ptx_is(op, "barrier"))
            trace_line(trace, m, t, "%s;\n", trace_name(insn, word));
        else if (ptx_is(op, "bar"))
            trace_line(trace, m, t, "%s %u;\n", trace_name(insn, word),
                       (unsigned)ptx_operand_value(m, &insn->operand[ptx_is(insn->part[1], "red")], t));
        else if (ptx_is(op, "ld") || ptx_is(op, "st") || ptx_is(op, "atom") || ptx_is(op, "red") ||
                 ptx_is(op, "ldmatrix") || ptx_is(op, "stmatrix"))
            trace_access(trace, m, insn, t);
    }
}

/* ---- the program ---- */

/* The threads that are kept; `cluster`: the blocks of one. */
static inline unsigned trace_sources(const litmus_trace *trace, unsigned cluster,
                                     litmus_source out[TRACE_SOURCES]) {
    unsigned count = 0;
    for (unsigned b = 0; b < TRACE_BLOCKS; b++)
        for (unsigned t = 0; t < TRACE_THREADS; t++) {
            const trace_thread *thread = &trace->thread[b][t];
            if (!thread->is_kept) continue;
            ck_assert_uint_lt(count, TRACE_SOURCES);
            out[count++] = (litmus_source){b, b / cluster, t / 32, thread->text};
        }
    return count;
}

static inline void trace_free(litmus_trace *trace) {
    for (unsigned b = 0; b < TRACE_BLOCKS; b++)
        for (unsigned t = 0; t < TRACE_THREADS; t++) free(trace->thread[b][t].text);
    free(trace);
}

#endif
