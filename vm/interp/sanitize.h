/* The sanitizer of block-level programs: what the interpreter tells it.
 *
 * A launch with a sanitizer runs its blocks one after the other on one thread. The interpreter calls the
 * functions below where an instruction touches memory or orders threads; without a sanitizer
 * (interp_run.sanitizer is NULL) that costs one branch an instruction. What happens with it:
 *
 *   sanitize_access.c  launches, blocks, and the shadows of their tensors
 *   sanitize_threads.c which thread touches which element, from the layout of the register tensor
 *   sanitize_shadow.c  who wrote and read an element last, and whether that comes before who touches it now
 *   sanitize_clock.c   clocks: what each team has seen of whom
 *   sanitize_order.c   what sync, mbarriers, copies, semaphores and atomics do to the clocks
 *   sanitize_past.c    launches before this one, of the same stream, until wait-dependency
 *   sanitize_race.c    an access that nothing orders, as a report
 *   sanitize_report.c  reports: kept once a pair of places, as diagnostics or JSON
 *
 * Functions that return a status fail for want of memory alone, with tvm_interp_no_memory. */
#ifndef TVM_VM_INTERP_SANITIZE_H
#define TVM_VM_INTERP_SANITIZE_H

#include "interp_impl.h"

static inline bool interp_sanitized(const interp_context *context) {
    return __builtin_expect(context->block->run->sanitizer != NULL, false);
}

/* ---- a launch ---- */

/* Makes run->sanitizer, once the global tensors have been found. */
tvm_status tvm_sanitize_begin(interp_run *run);
/* Reports what was found and frees the sanitizer: TVM_SANITIZER, or the status that the launch has ended
 * with. */
tvm_status tvm_sanitize_end(interp_run *run, tvm_status status);
/* A cluster begins: its blocks have seen nothing. */
void tvm_sanitize_cluster(interp_block *cluster);
/* What would have ended the launch without a sanitizer; it goes on with the next cluster. */
void tvm_sanitize_fault(const interp_context *context, const interp_insn *insn, const interp_insn *other,
                        interp_fault kind, const char *message);
/* Has a report been made of this launch? */
bool tvm_sanitize_found(const interp_run *run);

/* ---- memory ---- */

typedef enum sanitize_mode {
    SANITIZE_READ,
    SANITIZE_WRITE,
    SANITIZE_ATOMIC,
    SANITIZE_ATOMIC_BLOCK, /* of scope cta */
    SANITIZE_PUT,          /* and TAKE: elements that blocks pass to each other */
    SANITIZE_TAKE
} sanitize_mode;

/* Who touches: the threads that hold the elements of a register tensor, or all of the team. */
typedef enum sanitize_actor {
    SANITIZE_THREADS,
    SANITIZE_MMA,         /* reads until an arrival that is not pending */
    SANITIZE_COPY,        /* copy-async, until wait-group */
    SANITIZE_STORE_READ,  /* store-bulk of its tile, until wait-bulk */
    SANITIZE_STORE_WRITE, /* and of global memory */
    SANITIZE_TENSOR,      /* mma-tensor and copy-tensor, until the phase of a commit-tensor has ended */
    SANITIZE_BULK,        /* copy-bulk, until the phase of its mbarrier has ended */
    SANITIZE_DONE         /* ordered by itself, as the copies of a pipelined loop are */
} sanitize_actor;

typedef struct sanitize_access {
    const interp_block *owner; /* of shared memory */
    uint32_t memory;           /* slot */
    uint32_t tensor;           /* slot of the register tensor; TVM_NONE: all threads of the team */
    sanitize_mode mode;
    bool updates; /* an atomic operation whose result depends on what was there */
    sanitize_actor actor;
    const interp_barrier *barrier; /* of SANITIZE_BULK */
    bool is_cast;                  /* of a multicast: other blocks write the tile, too */
    const tvm_operand *parts;      /* of a copy-async: how warps share the tile out, or NULL */
    const int64_t *tile;           /* its extents */
    unsigned tile_rank;
    uint32_t operand; /* of SANITIZE_MMA: the one where the tile begins */
    uint32_t sums;    /* of an mma-tensor that adds up: to which columns, and of which kind; else 0 */
} sanitize_access;

/* An access that goes on for several rows. */
typedef struct sanitize_walk {
    interp_context *context;
    struct sanitizer *sanitizer;
    struct san_region *region;
    uint64_t first; /* cell of the tensor's first element */
    unsigned bits;  /* of an element */
    bool early;     /* earlier launches may still run */
    bool updates, is_cast;
    const uint16_t *codes; /* by element of the register tensor; NULL: `code` for all */
    uint32_t event, layout;
    uint16_t code, base;
    uint16_t mask; /* of a code that is looked up */
    sanitize_mode mode;
    sanitize_actor actor;
    uint32_t slot, rank;
    struct {
        uint32_t event;
        uint8_t relation;
    } known[2]; /* the relation of an event to this access: of writes, of reads */
    tvm_status status;
} sanitize_walk;

/* False: there is nothing to do, or walk->status says what failed. */
bool tvm_sanitize_open(interp_context *context, const interp_insn *insn, const sanitize_access *access,
                       sanitize_walk *walk);
/* `count` elements of the memory from `element` on, `step` apart, those of the register tensor from `dense`
 * on. */
void tvm_sanitize_row(sanitize_walk *walk, int64_t element, int64_t step, int64_t dense, int64_t count);

/* The tile of a copy in the shared memory of a block, of those that a multicast is for. */
tvm_status tvm_interp_sanitize_tile(interp_context *context, const interp_copy *copy, sanitize_access shared,
                                    const interp_block *owner);
/* Both sides of a copy to or from the block's own tile: how, and by whom. */
tvm_status tvm_interp_sanitize_copy(interp_context *context, const interp_copy *copy, sanitize_access shared,
                                    sanitize_access global);

/* ---- order ---- */

/* Begins the next iteration of a loop: an instruction makes other accesses in it than in the last one. */
void tvm_sanitize_turn(const interp_context *context);
tvm_status tvm_sanitize_sync(interp_context *context);
tvm_status tvm_sanitize_sync_warp(interp_context *context);
tvm_status tvm_sanitize_role_begin(interp_context *team, const interp_context *block);
/* The block's own context goes on once all roles have ended. */
tvm_status tvm_sanitize_roles_end(interp_context *block);
void tvm_sanitize_alloc_barrier(interp_context *context, uint32_t first, uint32_t count);
/* An arrival at an mbarrier of `block`; `pending`: products that it leaves out. */
tvm_status tvm_sanitize_arrive(interp_context *context, interp_block *block, const interp_barrier *barrier,
                               uint32_t pending);
/* The instruction reaches for another block's mbarrier, which is to be made first; of one that brings bytes
 * the phase before is to have ended, too. */
void tvm_sanitize_far(interp_context *context, const interp_insn *insn, const interp_block *peer,
                      const interp_barrier *barrier, bool copies);
/* A phase has ended, and its copies have come. */
tvm_status tvm_sanitize_phase(interp_block *block, const interp_barrier *barrier);
tvm_status tvm_sanitize_wait(interp_context *context, const interp_barrier *barrier);
/* A commit-tensor arrives: what the team has started before it is done. */
tvm_status tvm_sanitize_commit(interp_context *context, interp_block *block, const interp_barrier *barrier);
/* Before the reads of a product, which may run on. */
void tvm_sanitize_mma(interp_context *context);
void tvm_sanitize_wait_group(interp_context *context, uint64_t retired);
/* A store-bulk has begun. */
void tvm_sanitize_store(interp_context *context);
tvm_status tvm_sanitize_wait_bulk(interp_context *context, uint32_t pending, bool read);
tvm_status tvm_sanitize_sync_cluster(interp_block *cluster);
tvm_status tvm_sanitize_release(interp_context *context, const void *word);
tvm_status tvm_sanitize_acquire(interp_context *context, const void *word);
/* The same of one thread of the block, by an atomic operation: others have their part in it by a sync. */
tvm_status tvm_sanitize_release_one(interp_context *context, const void *word, uint32_t thread);
tvm_status tvm_sanitize_acquire_one(interp_context *context, const void *word, uint32_t thread);
/* Which thread has the element of the register tensor. */
tvm_status tvm_sanitize_thread(interp_context *context, uint32_t slot, uint64_t element, uint32_t *thread);
/* The team goes on once earlier launches of the stream have ended. */
tvm_status tvm_sanitize_wait_dependency(interp_context *context);
/* A semaphore's word, before the instruction touches it. */
void tvm_sanitize_semaphore(interp_context *context, const interp_insn *insn, const void *word);
tvm_status tvm_sanitize_alloc_shared(interp_context *context, const interp_insn *insn);
void tvm_sanitize_free_shared(interp_context *context, const interp_insn *insn);

#endif
