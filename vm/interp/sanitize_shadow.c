/* Shadow memory: for each element, or byte, the last write and the last read; and the comparison of these
 * with a new access. Most elements of a row have the same past, so that the relation of an event to the
 * access is found once. */
#include "sanitize_impl.h"

#include <stdlib.h>
#include <sys/mman.h>

/* ---- cells ---- */

/* From so many bytes on, memory is mapped: what is not touched takes none, and what is takes large pages. */
enum { MAPPED = 1 << 20 };

bool tvm_san_region_make(san_region *region, uint64_t count) {
    uint64_t bytes = count * sizeof *region->cells;
    if (count > PTRDIFF_MAX / sizeof *region->cells) return false;
    region->count = count;
    if (bytes < MAPPED) {
        region->cells = calloc(count, sizeof *region->cells);
        return region->cells != NULL;
    }
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    madvise(memory, bytes, MADV_HUGEPAGE);
    region->cells = memory;
    return true;
}

void tvm_san_region_free(san_region *region) {
    uint64_t bytes = region->count * sizeof *region->cells;
    if (region->cells && bytes >= MAPPED)
        munmap(region->cells, bytes);
    else
        free(region->cells);
    region->cells = NULL;
}

/* ---- the past and the present ---- */

/* Of an event to an access. BY_WARP: of a copy that a warp has waited for. */
typedef enum relation { ORDERED = 1, BY_THREAD, BY_WARP, UNORDERED } relation;

static bool is_block(const sanitizer *s, const san_block *block, uint32_t actor) {
    return actor - block->first_actor < s->actor_count;
}

/* Atomics of any blocks, if their scopes reach, and elements that are passed on. */
static bool exchanged(const sanitize_walk *walk, const san_event *event, bool same_block) {
    bool atomic = walk->mode == SANITIZE_ATOMIC, within = walk->mode == SANITIZE_ATOMIC_BLOCK;
    if (event->mode == SANITIZE_ATOMIC) return atomic || (within && same_block);
    if (event->mode == SANITIZE_ATOMIC_BLOCK) return (atomic || within) && same_block;
    return event->mode == SANITIZE_PUT && walk->mode == SANITIZE_TAKE;
}

/* What the blocks that make a multicast bring to one of them is one tile. */
static bool is_one_cast(const sanitize_walk *walk, const san_event *event) {
    const sanitizer *s = walk->sanitizer;
    const san_event *now = &s->events[walk->event];
    return event->rank != now->rank && event->insn == now->insn && event->actor == now->actor &&
           event->time == now->time && walk->is_cast;
}

/* What the thread of a team that starts products and copies in tensor memory does there in order (PTX ISA,
 * "Pipelined tcgen05 Instructions"): a copy before all that follows, sums before more sums of the same
 * columns and kind. */
static bool is_in_order(const sanitize_walk *walk, const san_event *event) {
    const sanitizer *s = walk->sanitizer;
    const san_event *now = &s->events[walk->event];
    if (walk->actor != SANITIZE_TENSOR || event->actor != now->actor) return false;
    return s->kernel->insns[event->insn].source->op == TVM_OP_COPY_TENSOR ||
           (now->sums && event->sums == now->sums);
}

static relation find_relation(const sanitize_walk *walk, uint32_t number) {
    sanitizer *s = walk->sanitizer;
    const interp_context *context = walk->context;
    const san_block *block = san_block_of(s, context->block);
    const san_context *own = san_context_of(s, context);
    const san_event *event = &s->events[number];
    bool same_block = is_block(s, block, event->actor);
    if (number == walk->event || exchanged(walk, event, same_block) ||
        event->time < tvm_san_seen(&own->seen, san_all(event->actor)))
        return ORDERED;
    if (is_one_cast(walk, event)) return ORDERED;
    if (is_in_order(walk, event)) return ORDERED;
    if (!same_block) return UNORDERED;
    if (event->time == 0) return ORDERED;
    uint32_t local = event->actor - block->first_actor, actor = local % SAN_ACTORS;
    bool barrier = local >= s->context_count * SAN_ACTORS;
    if (!barrier && walk->actor == SANITIZE_DONE && actor <= SANITIZE_MMA) return ORDERED;
    if (!barrier && actor <= SANITIZE_MMA) return BY_THREAD;
    if (event->actor == san_actor_of(s, context, SANITIZE_COPY) && event->time < own->warp_retired)
        return BY_WARP;
    return UNORDERED;
}

static const san_layout *layout_of(const sanitize_walk *walk, uint32_t layout) {
    return &walk->sanitizer->layouts[layout];
}

static bool holds(const san_layout *layout, uint32_t first, uint32_t thread) {
    uint32_t offset = thread - first;
    return offset < TVM_MAX_THREADS && layout->holders[offset / 64] >> (offset % 64) & 1;
}

/* Are all threads of `mine` among the holders of which `first` is the lowest? */
static bool among(const san_layout *theirs, uint32_t first, const san_layout *mine, uint32_t own) {
    for (uint32_t t = 0; t < TVM_MAX_THREADS; t++)
        if (mine->holders[t / 64] >> (t % 64) & 1 && !holds(theirs, first, own + t)) return false;
    return true;
}

static bool in_one_warp(const sanitize_walk *walk, uint16_t code, uint32_t layout) {
    if (code & SAN_MANY) return false;
    return !(code & SAN_HOLDERS) || layout_of(walk, layout)->in_warp;
}

/* Orders accesses by threads of one block: those of one thread, and those of two threads of a warp with a
 * sync-warp in between. All replicas of an element write the same value, so that a replica that reads it
 * afterwards reads what it wrote itself. */
static bool by_thread(const sanitize_walk *walk, const san_event *event, uint16_t code, uint16_t mine,
                      bool was_write) {
    const sanitizer *s = walk->sanitizer;
    uint32_t theirs = code & SAN_THREAD, own = mine & SAN_THREAD;
    code &= (uint16_t)~SAN_UPDATE;
    mine &= (uint16_t)~SAN_UPDATE;
    if (!((code | mine) & ~SAN_THREAD) && theirs == own) return true;
    bool same_warp = theirs / 32 == own / 32 && in_one_warp(walk, code, event->layout) &&
                     in_one_warp(walk, mine, walk->layout);
    const interp_block *block = walk->context->block;
    if (same_warp && event->time < s->blocks[block - block->cluster].warps[own / 32]) return true;
    if ((code | mine) & (SAN_MANY | SAN_WARP)) return false;
    bool reads = walk->mode == SANITIZE_READ;
    if (!(code & SAN_HOLDERS)) return false;
    const san_layout *layout = layout_of(walk, event->layout);
    if (!(mine & SAN_HOLDERS)) return was_write && reads && holds(layout, theirs, own);
    const san_layout *now = layout_of(walk, walk->layout);
    if (was_write && reads) return among(layout, theirs, now, own);
    return same_warp && theirs == own && among(layout, theirs, now, own);
}

/* Does the clock have what the threads of the code did then? */
static bool clock_has(const sanitize_walk *walk, const san_clock *clock, const san_event *event,
                      uint16_t code) {
    uint32_t thread = code & SAN_THREAD;
    bool several = code & (SAN_MANY | SAN_WARP);
    return event->time < tvm_san_seen(clock, san_all(event->actor)) ||
           (in_one_warp(walk, code, event->layout) &&
            event->time < tvm_san_seen(clock, san_warp(event->actor, thread / 32))) ||
           (!several && event->time < tvm_san_seen(clock, san_thread(event->actor, thread)));
}

/* By atomic operations of single threads. */
static bool by_atomics(const sanitize_walk *walk, const san_event *event, uint16_t code, uint16_t mine) {
    const san_context *own = san_context_of(walk->sanitizer, walk->context);
    bool alone = !(mine & (SAN_HOLDERS | SAN_MANY | SAN_WARP));
    if (clock_has(walk, &own->seen, event, code)) return true;
    for (uint32_t i = 0; i < own->acquired_count; i++) {
        uint32_t thread = own->acquired[i].thread & SAN_THREAD, other = mine & SAN_THREAD;
        bool warp = own->acquired[i].thread & SAN_WARP;
        bool has = warp ? other / 32 == thread / 32 && in_one_warp(walk, mine, walk->layout)
                        : alone && other == thread;
        if (has && clock_has(walk, &own->acquired[i].clock, event, code)) return true;
    }
    return false;
}

static bool ordered(const sanitize_walk *walk, relation past, uint32_t event, uint16_t code, uint16_t mine,
                    bool was_write) {
    if (past == ORDERED) return true;
    if (walk->sanitizer->one_sided && by_atomics(walk, &walk->sanitizer->events[event], code, mine))
        return true;
    if (past == UNORDERED) return false;
    if (past == BY_THREAD) return by_thread(walk, &walk->sanitizer->events[event], code, mine, was_write);
    return (code & SAN_WARP) && (code & SAN_THREAD) / 32 == (mine & SAN_THREAD) / 32 &&
           in_one_warp(walk, mine, walk->layout);
}

static inline relation relation_of(sanitize_walk *walk, unsigned known, uint32_t event) {
    if (walk->known[known].event != event) {
        walk->known[known].event = event;
        walk->known[known].relation = (uint8_t)find_relation(walk, event);
    }
    return (relation)walk->known[known].relation;
}

/* ---- records ---- */

/* Of the same team at the same time: one record for several threads. */
static uint16_t several(const sanitize_walk *walk, uint32_t layout, uint16_t code, uint16_t mine) {
    bool one = (code & SAN_THREAD) / 32 == (mine & SAN_THREAD) / 32 && in_one_warp(walk, code, layout) &&
               in_one_warp(walk, mine, walk->layout);
    return (uint16_t)((mine & SAN_THREAD) | (one ? SAN_WARP : SAN_MANY));
}

static bool same_time(const sanitize_walk *walk, uint32_t event) {
    const san_event *then = &walk->sanitizer->events[event], *now = &walk->sanitizer->events[walk->event];
    return then->actor == now->actor && then->time == now->time;
}

static void record_read(sanitize_walk *walk, san_cell *cell, uint16_t mine) {
    bool alike = cell->reader == mine || !cell->read;
    if (cell->read && cell->read != walk->event) {
        relation past = relation_of(walk, 1, cell->read);
        if (past != ORDERED && !(past == BY_THREAD && cell->reader == mine && !(mine & ~SAN_THREAD))) {
            if (!same_time(walk, cell->read)) {
                cell->other = walk->event;
                cell->other_reader = mine;
                return;
            }
            alike = false;
        } else {
            alike = true;
        }
    }
    if (!alike)
        cell->reader = several(walk, walk->sanitizer->events[cell->read].layout, cell->reader, mine);
    else
        cell->reader = mine;
    cell->read = walk->event;
}

static inline void touch_read(sanitize_walk *walk, san_cell *cell, uint64_t at, uint16_t mine) {
    if (cell->write) {
        relation past = relation_of(walk, 0, cell->write);
        if (past != ORDERED && !ordered(walk, past, cell->write, cell->writer, mine, true))
            tvm_san_race(walk, at, cell->write, cell->writer, mine, true);
    } else if (walk->region->undefined) {
        tvm_san_undefined(walk, at, mine);
    }
    if (cell->read != walk->event || cell->reader != mine) record_read(walk, cell, mine);
}

/* Has the team read the element that it writes? */
static bool is_update(const sanitize_walk *walk, const san_cell *cell, uint16_t mine) {
    const san_event *events = walk->sanitizer->events;
    uint32_t own = events[walk->event].actor;
    return (events[cell->read].actor == own && ((cell->reader ^ mine) & SAN_THREAD) == 0) ||
           (cell->other && events[cell->other].actor == own &&
            ((cell->other_reader ^ mine) & SAN_THREAD) == 0);
}

/* All blocks that multicast to the element come after what was there before, not the first one alone; what
 * was read there came after what was written. */
static void keep_past(san_cell *cell, const san_cell *was) {
    cell->read = was->read ? was->read : was->write;
    cell->reader = was->read ? was->reader : was->writer;
    cell->other = was->other;
    cell->other_reader = was->other_reader;
}

static inline void touch_write(sanitize_walk *walk, san_cell *cell, uint64_t at, uint16_t mine) {
    bool races = false;
    if (walk->updates && !cell->write && walk->region->undefined) tvm_san_undefined(walk, at, mine);
    if (cell->read && is_update(walk, cell, mine)) mine |= SAN_UPDATE;
    if (cell->write) {
        relation past = relation_of(walk, 0, cell->write);
        races = past != ORDERED && !ordered(walk, past, cell->write, cell->writer, mine, true);
        if (races) tvm_san_race(walk, at, cell->write, cell->writer, mine, true);
    }
    if (cell->read && !races) {
        relation past = relation_of(walk, 1, cell->read);
        races = past != ORDERED && !ordered(walk, past, cell->read, cell->reader, mine, false);
        if (races) tvm_san_race(walk, at, cell->read, cell->reader, mine, false);
    }
    if (cell->other && !races &&
        !ordered(walk, find_relation(walk, cell->other), cell->other, cell->other_reader, mine, false))
        tvm_san_race(walk, at, cell->other, cell->other_reader, mine, false);
    const san_cell was = *cell;
    *cell = (san_cell){.write = walk->event, .writer = mine};
    if (walk->is_cast) keep_past(cell, &was);
}

/* ---- rows ---- */

/* Cells [at, at + count), which threads touch one each (codes), or all the same ones. */
static void touch(sanitize_walk *walk, uint64_t at, uint64_t count, const uint16_t *codes) {
    san_cell *cells = walk->region->cells + at;
    bool reads = walk->mode == SANITIZE_READ;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t code = (uint16_t)(codes ? (codes[i] & walk->mask) + walk->base : walk->code);
        if (reads)
            touch_read(walk, &cells[i], at + i, code);
        else
            touch_write(walk, &cells[i], at + i, code);
    }
}

/* Elements of less than a byte, and those of memory that another tensor has in smaller ones. */
static void touch_uneven(sanitize_walk *walk, uint64_t element, uint64_t dense, uint64_t count) {
    uint64_t granule = 8 * (uint64_t)walk->region->granule, latest = UINT64_MAX;
    const uint16_t *codes = walk->codes;
    const uint16_t fixed = walk->code;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bit = (element + i) * walk->bits, first = bit / granule,
                 last = (bit + walk->bits - 1) / granule;
        uint16_t code = codes ? (uint16_t)((codes[dense + i] & walk->mask) + walk->base) : fixed;
        if (first == latest && code == walk->code) first++;
        walk->code = code;
        if (first <= last) touch(walk, walk->first + first, last - first + 1, NULL);
        latest = last;
    }
    walk->code = fixed;
}

void tvm_sanitize_row(sanitize_walk *walk, int64_t element, int64_t step, int64_t dense, int64_t count) {
    for (; step != 1 && count > 1; count--, element += step, dense++)
        tvm_sanitize_row(walk, element, 1, dense, 1);
    if (count <= 0) return;
    if (walk->early) tvm_san_past_row(walk, element, dense, count);
    if (walk->bits != 8 * walk->region->granule)
        touch_uneven(walk, (uint64_t)element, (uint64_t)dense, (uint64_t)count);
    else
        touch(walk, walk->first + (uint64_t)element, (uint64_t)count,
              walk->codes ? walk->codes + dense : NULL);
}
