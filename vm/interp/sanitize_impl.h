/* Inside of the sanitizer: what its files share. See sanitize.h. */
#ifndef TVM_VM_INTERP_SANITIZE_IMPL_H
#define TVM_VM_INTERP_SANITIZE_IMPL_H

#include "sanitize.h"

/* ---- clocks ----
 *
 * A launch has one counter, `now`, that every operation of order moves on. Who touches memory is an actor:
 * the threads of a team, its products, its copies, ... A clock says of some actors up to which time what they
 * did has been seen: all that has a lower time. Of the threads of a team it may be what one of them did, or
 * one warp: an atomic release is one thread's. Ascending by who. */

typedef struct san_tick {
    uint64_t who; /* san_who */
    uint32_t time;
} san_tick;

/* The actor's threads: all, one warp, or one of them. */
static inline uint64_t san_all(uint32_t actor) {
    return (uint64_t)actor << 16;
}
static inline uint64_t san_warp(uint32_t actor, uint32_t warp) {
    return san_all(actor) + 1 + warp;
}
static inline uint64_t san_thread(uint32_t actor, uint32_t thread) {
    return san_warp(actor, TVM_MAX_THREADS / 32) + thread;
}

typedef struct san_clock {
    san_tick *ticks;
    uint32_t count, capacity;
} san_clock;

uint32_t tvm_san_seen(const san_clock *clock, uint64_t who);
/* False: out of memory. */
bool tvm_san_see(san_clock *clock, uint64_t who, uint32_t time);
bool tvm_san_join(san_clock *clock, const san_clock *other);
void tvm_san_clock_free(san_clock *clock);

/* ---- who, when, where ---- */

/* The actors of a context, in the order of sanitize_actor; those of the mbarriers of a block follow those of
 * its contexts. */
enum { SAN_ACTORS = SANITIZE_TENSOR + 1 };

/* Accesses of one instruction at one time. Number 0 is none. */
typedef struct san_event {
    uint32_t actor, time;
    uint32_t insn;
    uint32_t layout; /* of the program; TVM_NONE: no thread of its own has an element */
    uint8_t mode;    /* sanitize_mode */
    uint8_t rank;    /* of who does it in its cluster: a copy's actor may be another block's */
    uint32_t sums;   /* of sanitize_access */
} san_event;

/* Threads of a block: one, by its number; all that hold an element of the event's layout, of which it is the
 * first; several of a warp, of which it is one; several of several warps. SAN_UPDATE: of a write, that it had
 * read the element. */
enum { SAN_THREAD = 1023, SAN_HOLDERS = 1024, SAN_WARP = 2048, SAN_MANY = 4096, SAN_UPDATE = 8192 };

/* What is known of an element, or a byte: the last write, the last read, and another that is not ordered with
 * it. */
typedef struct san_cell {
    uint32_t write, read, other; /* events; 0: none */
    uint16_t writer, reader, other_reader;
} san_cell;

/* Memory: a shared tensor, or global tensors that overlap. */
typedef struct san_region {
    san_cell *cells;
    uint64_t count;
    uintptr_t base; /* its memory */
    uint64_t bytes;
    unsigned granule; /* bytes of a cell */
    bool undefined;   /* before it is written */
    bool scratch;     /* alloc-global */
} san_region;

/* Of a register layout. */
typedef struct san_layout {
    uint16_t *codes;      /* by element: its first thread, with SAN_HOLDERS where there are more */
    uint64_t holders[16]; /* bits: the threads that hold what thread 0 holds */
    bool in_warp;         /* they are in its warp */
    bool replicated;
} san_layout;

/* ---- state ---- */

/* What one thread of a team has seen, or its warp (SAN_WARP), and the others will with the next sync. */
typedef struct san_acquired {
    san_clock clock;
    uint16_t thread;
} san_acquired;

typedef struct san_context {
    san_clock seen;         /* by all threads of the team */
    san_acquired *acquired; /* beside that */
    uint32_t acquired_count, acquired_capacity;
    uint32_t *latest;                       /* by instruction: its latest event */
    uint64_t retired;                       /* copy-async groups that wait-group has let go on */
    uint64_t warp_retired;                  /* that sync-warp has shown to the warps */
    uint32_t stores;                        /* store-bulk so far */
    uint32_t commits;                       /* commit-tensor so far */
    uint32_t products[TVM_MAX_PENDING + 1]; /* times of the latest, a ring */
    uint32_t product_count;
} san_context;

typedef struct san_barrier {
    san_clock arrived, ended; /* of the phase that is on; of those before it */
    uint32_t made, maker;     /* when, and by which instruction */
} san_barrier;

typedef struct san_block {
    san_context *contexts;
    san_barrier *barriers;
    san_region *shared; /* by slot */
    bool *freed;        /* by slot */
    uint32_t warps[32]; /* by warp: when its threads last met */
    uint32_t first_actor;
    int32_t index[3];
    bool runs, waited; /* it has begun; it has come to wait-dependency */
} san_block;

typedef struct san_word {
    const void *address;
    san_clock clock;
} san_word;

/* Warps of a tile that has no register tensor. */
typedef struct san_part {
    uint32_t insn, operand;
    uint16_t *codes; /* by element; NULL: all warps */
} san_part;

typedef enum san_kind {
#define SAN_KIND(id, name, text) SAN_##id,
#include "sanitize_kinds.def"
    SAN_KINDS
} san_kind;

enum { SAN_TEXT = 1024, SAN_WHO = 128 };

typedef struct san_report {
    san_kind kind;
    uint32_t insn, other; /* instructions; other: TVM_NONE: there is none */
    uint64_t count;       /* elements */
    uint32_t slot;        /* TVM_NONE: no memory */
    int32_t block[3];
    char element[96], who[SAN_WHO], whom[SAN_WHO], what[SAN_TEXT];
    const char *hint;
    bool weak;    /* it is of threads of one warp, and another may be of different ones */
    bool covered; /* by another report */
} san_report;

typedef struct sanitizer {
    interp_run *run;
    const tvm_interp_kernel *kernel;
    uint32_t context_count; /* of a block */
    uint32_t actor_count;
    uint32_t now;
    san_event *events;
    uint32_t event_count, event_capacity;
    san_region *regions; /* of global memory */
    uint32_t region_count;
    san_block blocks[TVM_MAX_CLUSTER];
    uint32_t block_count;
    san_layout *layouts; /* by layout of the program */
    san_word *words;     /* semaphores and other words that order: a hash table */
    uint32_t word_count, word_capacity;
    san_part *parts;
    uint32_t part_count;
    san_report *reports;
    uint32_t report_count, report_capacity;
    bool no_memory; /* for a report */
    bool one_sided; /* threads have acquired or released for themselves */
    bool faulted;   /* a block has ended with a fault */
    uint64_t lost;  /* reports that were too many */
    uint32_t waits; /* the kernel's first wait-dependency; TVM_NONE: it begins when others have ended */
    const tvm_sanitize_past *past; /* what launches before have done; of `stream` alone */
    void *stream;
} sanitizer;

/* What earlier launches of the stream did, as an actor: who has waited for them has seen it. */
enum { SAN_LAUNCHES = INT32_MAX };

static inline san_block *san_block_of(sanitizer *s, const interp_block *block) {
    return &s->blocks[block - block->cluster];
}
static inline san_context *san_context_of(sanitizer *s, const interp_context *context) {
    return &san_block_of(s, context->block)->contexts[context - context->block->contexts];
}
static inline uint32_t san_actor(const san_block *block, uint32_t context, sanitize_actor actor) {
    return block->first_actor + context * SAN_ACTORS + (uint32_t)actor;
}
static inline uint32_t san_actor_of(const sanitizer *s, const interp_context *context, sanitize_actor actor) {
    const interp_block *block = context->block;
    return san_actor(&s->blocks[block - block->cluster], (uint32_t)(context - block->contexts), actor);
}
static inline uint32_t san_barrier_actor(const sanitizer *s, const san_block *block, uint32_t barrier) {
    return block->first_actor + s->context_count * SAN_ACTORS + barrier;
}

/* The number of a new event, or of the instruction's latest one where it is the same; 0: out of memory. */
uint32_t tvm_san_event(sanitizer *s, san_context *context, const san_event *event);
/* Sets who of the walk's team touches which element; false: out of memory. */
bool tvm_san_threads(sanitizer *s, const interp_context *context, const sanitize_access *access,
                     uint32_t insn, sanitize_walk *walk);
/* Cells that nothing is known of; false: out of memory. */
bool tvm_san_region_make(san_region *region, uint64_t count);
void tvm_san_region_free(san_region *region);

/* Before a walk's access to an element: a record of the past that nothing orders before it. */
void tvm_san_race(sanitize_walk *walk, uint64_t at, uint32_t event, uint16_t code, uint16_t mine,
                  bool was_write);
void tvm_san_undefined(sanitize_walk *walk, uint64_t at, uint16_t mine);
/* Of cell `at`, while earlier launches may still run; `whose` says what they do there. */
void tvm_san_early(sanitize_walk *walk, uint64_t at, uint16_t mine, const char *whose);

/* ---- launches before ---- */

void tvm_san_past_begin(sanitizer *s);
/* Leaves what the launch did to its parameters: its regions and events are taken away. */
void tvm_san_past_end(sanitizer *s);
/* May earlier launches still run beside what the team does? */
bool tvm_san_is_early(sanitizer *s, const interp_context *context);
/* The walk's row of elements, before it is touched. */
void tvm_san_past_row(sanitize_walk *walk, int64_t element, int64_t dense, int64_t count);
/* Blocks that have run and have not come to wait-dependency. */
void tvm_san_past_blocks(sanitizer *s);

/* Counts the report with one of the same kind and places, or keeps it; what has been filled in but `count`.
 * NULL: it is counted there, or out of memory. */
san_report *tvm_san_report(sanitizer *s, san_kind kind, uint32_t insn, uint32_t other);
/* The one that is kept; NULL: there is none. */
san_report *tvm_san_find(sanitizer *s, san_kind kind, uint32_t insn, uint32_t other);
/* Drops reports that others cover. */
void tvm_san_finish(sanitizer *s);
const char *tvm_san_kind_text(san_kind kind);
/* As one JSON document, malloc'ed; NULL: out of memory. */
char *tvm_san_json(const sanitizer *s);
tvm_place tvm_san_place(const sanitizer *s, uint32_t insn);
const char *tvm_san_mnemonic(const sanitizer *s, uint32_t insn);

#endif
