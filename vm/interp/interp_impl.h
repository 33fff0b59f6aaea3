/* Inside of the interpreter: what its files share. Nothing here is public.
 *
 * A register tensor is held dense: its elements in row-major order, each in a container of 1, 2, 4 or 8
 * bytes. Threads that replicate an element hold the same value, so the dense tile is the whole state, and
 * layouts matter only to `view` and to the order in which `reduce` combines. A shared tensor is held dense in
 * the order of its indices: the physical layout and the swizzle have no part in the meaning.
 *
 * interp.c prepares and frees; interp_run.c spreads blocks over host threads and schedules contexts; the
 * other files execute families of instructions. What depends on the instruction alone is computed once, by
 * the family's plan_FAMILY, and read by interp_FAMILY. */
#ifndef TVM_VM_INTERP_IMPL_H
#define TVM_VM_INTERP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "device.h"
#include "interp.h"

enum {
    INTERP_MAX_COPIES = 1 << 16,   /* copy-async of a block that may be outstanding */
    INTERP_PRINT_BUFFER = 1 << 20, /* bytes of print-tensor kept before they are written */
    INTERP_SLACK = 64              /* readable bytes past every tensor: wide loads may run over its end */
};

typedef struct interp_context interp_context;
typedef struct interp_insn interp_insn;
typedef tvm_status (*interp_function)(interp_context *context, const interp_insn *insn);

struct interp_insn {
    interp_function execute;
    const tvm_insn *source;
    const tvm_operand *operands;
    void *plan; /* of the family; one block for free(); NULL when the family has none */
};

struct tvm_interp_kernel {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    interp_insn *insns;
    /* Of each slot: the dimensions of a view of a shared tensor that joins some which are no neighbours;
     * NULL: of all others. */
    struct tvm_shared_digits **split;
    size_t *offsets;   /* of each slot's tensor in the shared or in the register tensors; of mbarriers, the
                          number of the first */
    uint32_t *extents; /* elements of each REGISTER and SHARED slot */
    uint32_t *globals; /* of each GLOBAL slot: which of the launch's */
    tvm_launch_tensor launch_tensors[TVM_MAX_LAUNCH_TENSORS];
    uint32_t launch_tensor_count;
    uint32_t view_count;
    uint32_t barrier_count; /* mbarriers of a block */
    size_t memory_bytes;    /* of the shared tensors of a block */
    size_t register_bytes;  /* of the register tensors of a team */
    size_t scratch_bytes;
    bool waits;       /* blocks wait for each other */
    bool has_peers;   /* and for those of launches on other devices, of which nothing is known here */
    bool in_order;    /* what blocks do depends on their order: they run one after the other */
    bool takes_turns; /* so do some instructions, which say when they do it */
    bool has_roles;
};

/* A global tensor: those that are parameters by their number, then those of the launch. */
typedef struct interp_global {
    void *data;
    uint64_t bytes;
    int64_t shape[TVM_MAX_RANK];
    int64_t stride[TVM_MAX_RANK]; /* elements */
    bool known;                   /* of a view: its extents and strides have values */
} interp_global;

/* One launch. Workers share it; what they write is under the mutex or atomic. */
typedef struct interp_run {
    const tvm_interp_kernel *kernel;
    const tvm_interp_arg *args;
    interp_global *globals;
    uint32_t grid[3];
    uint64_t first, blocks; /* the first that runs; up to which */
    atomic_uint_fast64_t next;
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_mutex_t atomics;           /* held while an atomic instruction is done */
    pthread_cond_t changed;            /* a semaphore, or what else may let a block go on */
    uint64_t changes;                  /* how often, so far */
    unsigned working;                  /* workers that have not ended */
    unsigned waiting;                  /* of them, those that sleep and have seen the latest change */
    atomic_int_fast64_t instructions;  /* that may still be executed; INT64_MAX: any number */
    int64_t deadline;                  /* in nanoseconds of the monotonic clock; INT64_MAX: none */
    const tvm_interp_options *options; /* never NULL */
    unsigned cancelled;                /* *options->cancelled when the launch began */
    tvm_status status;
    tvm_diags *diags;
    FILE *output;
    struct sanitizer *sanitizer; /* NULL: the launch is not checked; see sanitize.h */
    struct interp_turns *turns;  /* NULL: no instruction waits for its turn; see interp_turns.c */
} interp_run;

typedef struct interp_barrier interp_barrier;

/* A copy that copy-async has started and wait-group has not retired; or of copy-bulk, whose mbarrier's phase
 * has not ended. */
typedef struct interp_copy {
    uint64_t group;          /* of copy-async */
    interp_barrier *barrier; /* of copy-bulk and copy-cluster */
    const interp_insn *insn;
    const struct interp_block *from; /* of copy-cluster: whose tile it is; else NULL */
    interp_global global;            /* as it was when the copy was started */
    int64_t target[TVM_MAX_RANK];
    int64_t source[TVM_MAX_RANK];
} interp_copy;

/* In the order in which they were started. */
typedef struct interp_copies {
    interp_copy *items;
    size_t count, capacity;
} interp_copies;

/* An mma-tensor or copy-tensor that no commit-tensor of its team has followed: where its tiles begin. */
typedef struct interp_tensor_work {
    const interp_insn *insn;
    bool accumulates;
    int64_t target[TVM_MAX_RANK], a[TVM_MAX_RANK], b[TVM_MAX_RANK];
    int64_t scale_a[TVM_MAX_RANK], scale_b[TVM_MAX_RANK];
} interp_tensor_work;

/* In the order in which they were started. */
typedef struct interp_tensor_works {
    interp_tensor_work *items;
    size_t count, capacity;
} interp_tensor_works;

/* A multicast that some blocks have made and others, which it is for, too, have not. */
typedef struct interp_cast {
    interp_copy copy; /* as the first one made it */
    uint32_t barrier; /* its number, the same in all blocks */
    uint32_t ranks;   /* the blocks that it is for: a mask */
    uint32_t made;    /* those of them that have made it */
} interp_cast;

typedef struct interp_casts {
    interp_cast *items;
    size_t count, capacity;
} interp_casts;

/* The end and step of a `for`, evaluated when it was entered. */
typedef struct interp_loop {
    tvm_scalar end, step;
} interp_loop;

/* An mbarrier. */
struct interp_barrier {
    uint32_t arrivals; /* that end a phase; 0: it has not been made yet */
    uint32_t missing;  /* of them, in this phase */
    bool open;
    uint64_t phases;                      /* that have ended */
    int64_t bytes;                        /* announced in this phase, less those that have come */
    uint64_t waits[TVM_MAX_THREADS / 32]; /* by warp: how often it has waited here */
    uint32_t casts;   /* multicasts of this phase that not all blocks have made: it does not end before */
    uint64_t brought; /* the number, from 1, of the last phase that ended with a copy; 0: none has */
    const interp_insn *bringer; /* that copy */
};

/* Of a block and sync-cluster. */
typedef enum interp_meets {
    INTERP_APART,
    INTERP_MEETS, /* it has come there */
    INTERP_MET    /* and all others have */
} interp_meets;

/* A worker's block: all memory is allocated once and used again for the next block. */
typedef struct interp_block {
    interp_run *run;
    const tvm_interp_kernel *kernel;
    int32_t index[3];
    struct interp_block *cluster; /* its blocks, by rank, which the worker runs in turn */
    uint32_t cluster_size;
    interp_meets meets;
    uint8_t *memory;
    uint8_t *registers; /* of the context that runs */
    uint8_t *scratch;
    interp_copies bulk; /* of copy-bulk */
    interp_casts casts; /* of the cluster; its first block's alone */
    interp_barrier *barriers;
    char *print;
    size_t print_size;
    interp_context *contexts; /* the block's own, then those of the teams of its roles */
    uint32_t context_count;
    uint64_t turns[TVM_MAX_THREADS / 32]; /* of loops that a warp has made, or will make behind its role */
    uint32_t slice;            /* instructions that may be executed before the limits are looked at again */
    tvm_launch_counts *counts; /* since the worker began; NULL: nothing is counted */
    uint32_t running;          /* teams of roles that have begun and not ended */
    uint64_t seen; /* interp_run.changes, before the contexts that wait for other blocks last looked */
    bool has_turn; /* of rank 0: of the cluster, which has not used it yet */
} interp_block;

/* A context that is not ready does its instruction again once it is. */
typedef enum interp_state {
    INTERP_READY,
    INTERP_AT_ROLES,   /* the block: for the teams of roles to end */
    INTERP_AT_BARRIER, /* for the end of a phase of an mbarrier */
    INTERP_AT_CLUSTER, /* the block: for the others of its cluster */
    INTERP_AT_OTHERS,  /* for another block, while other contexts of this one may run */
    INTERP_AT_TURN,    /* for the cluster's turn */
    INTERP_DONE        /* or has not begun */
} interp_state;

/* One flow of control: the block's, or that of a team of a role, which is begun with what the block's scalars
 * are then. */
struct interp_context {
    interp_block *block;
    tvm_team team;
    uint32_t role;  /* its instruction; TVM_NONE: of the block */
    uint32_t index; /* which of the role's teams */
    uint32_t pc;
    interp_state state;
    const interp_barrier *awaited; /* of INTERP_AT_BARRIER */
    bool has_arrived;              /* in a sync-barrier, which waits, or a commit-tensor of a pair */
    uint64_t pair_commits;         /* that it has come to */
    uint8_t *registers;            /* the tensors */
    tvm_scalar *slots;
    interp_global *views; /* those that it has made */
    interp_loop *loops;   /* by instruction: a loop has at most one activation */
    bool pipelined;       /* in a pipelined loop, where copies are done at once */
    interp_copies stores; /* of store-bulk */
    interp_copies copies; /* of copy-async */
    interp_tensor_works tensor_works;
    uint64_t groups; /* committed so far: the number of the group that is being filled */
    tvm_eval_env env;
};

/* The context does its instruction again when it goes on, which it may in another state than READY. */
static inline tvm_status interp_again(interp_context *context, interp_state state) {
    context->state = state;
    context->pc--;
    return TVM_OK;
}

/* Counts elements of a shared or global tensor that were read or written. */
static inline void interp_count(const interp_block *block, bool is_shared, bool is_load, uint64_t elements,
                                unsigned bits) {
    tvm_launch_counts *c = block->counts;
    uint64_t bytes = (elements * bits + 7) / 8;
    if (!c) return;
    *(is_shared ? is_load ? &c->shared_read : &c->shared_written
      : is_load ? &c->global_read
                : &c->global_written) += bytes;
}

/* ---- planning ---- */

typedef tvm_status (*interp_plan_function)(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags);

/* What an instruction needs of the scratch memory of a block. */
void tvm_interp_need_scratch(tvm_interp_kernel *kernel, size_t bytes);

/* A tile of a shared tensor whose slot, followed by its indices, is operand `first`. */
typedef struct interp_tile {
    uint32_t slot, first;
    uint32_t tensor; /* whose threads move it; TVM_NONE: the team does together */
    unsigned rank, tile_rank;
    int64_t shape[TVM_MAX_RANK], tile[TVM_MAX_RANK];
} interp_tile;
void tvm_interp_plan_tile(const tvm_interp_kernel *kernel, const tvm_operand *operands, uint32_t first,
                          unsigned tile_rank, const uint32_t *tile, interp_tile *out);
/* Moves the tile, in row-major order, from or to the tensor of a block; a fault where it is not inside. */
tvm_status tvm_interp_move_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                const interp_block *block, bool is_load, void *elements);
/* The same in parts: where it begins, a fault where it is not inside; what the sanitizer is told; the
 * elements. */
tvm_status tvm_interp_find_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                int64_t start[TVM_MAX_RANK]);
struct sanitize_access;
tvm_status tvm_interp_sanitize_tile_at(interp_context *context, const interp_insn *insn,
                                       const interp_tile *tile, const int64_t *start,
                                       const struct sanitize_access *access);
void tvm_interp_move_tile_at(const interp_block *block, const interp_tile *tile, const int64_t *start,
                             bool is_load, void *elements);
/* Its elements in row-major order; a fault where it is not inside of the tensor. */
tvm_status tvm_interp_load_tile(interp_context *context, const interp_insn *insn, const interp_tile *tile,
                                void *elements);

/* The places that the elements of a tile have in a global or shared tensor, one by one: its indices are
 * scalars, to which the element's coordinate in the tile is added, or tensors, broadcast to the tile, whose
 * element is the index.
 */
typedef struct interp_place_index {
    bool is_tensor;
    uint32_t slot, step[TVM_MAX_RANK]; /* of a tensor: elements, by dimension of the tile */
} interp_place_index;
typedef struct interp_places {
    const tvm_operand *operands; /* the memory, then its indices */
    const tvm_operand *fill;     /* of a load: what elements without a place become; NULL: zero bits */
    uint32_t memory, mask, of;   /* slots: mask: or TVM_NONE; of: the tile's register tensor */
    unsigned rank, tile_rank;
    bool in_block; /* of an atomic: its scope is the block */
    uint32_t tile[TVM_MAX_RANK], mask_step[TVM_MAX_RANK];
    interp_place_index index[TVM_MAX_RANK];
} interp_places;
/* Steps of a register tensor that is broadcast to a tile, in elements; 0 where it is stretched. */
void tvm_interp_broadcast_steps(const tvm_interp_kernel *kernel, uint32_t slot, unsigned rank,
                                uint32_t steps[TVM_MAX_RANK]);
/* operands: the memory, then its indices. tile: the slot of a register tensor. mask: an operand that may be
 * left out, or NULL. */
void tvm_interp_plan_places(const tvm_interp_kernel *kernel, const tvm_operand *operands, uint32_t tile,
                            const tvm_operand *mask, interp_places *out);
/* Visits the tile's elements in row-major order; place is NULL for those that are masked off or outside. */
typedef void (*interp_visit)(void *data, size_t element, uint8_t *place);
/* owner: the block whose shared memory it is. */
tvm_status tvm_interp_each_place(interp_context *context, const interp_insn *insn, const interp_places *plan,
                                 const interp_block *owner, interp_visit visit, void *data);
/* Loads them to a register tensor, with the plan's fill where there is no place, or stores those that have
 * one.
 */
tvm_status tvm_interp_move_places(interp_context *context, const interp_insn *insn, const interp_places *plan,
                                  uint32_t slot, bool is_load);

#define TVM_OP(number, id, mnemonic, since, class, family, ...)                                              \
    tvm_status tvm_interp_##family(interp_context *context, const interp_insn *insn);                        \
    tvm_status tvm_plan_##family(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags);
#include "opcodes.def"

/* Of a family that computes nothing beforehand. */
#define INTERP_NO_PLAN(family)                                                                               \
    tvm_status tvm_plan_##family(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {           \
        (void)kernel, (void)insn, (void)diags;                                                               \
        return TVM_OK;                                                                                       \
    }

/* ---- executing ---- */

/* Records the first error of the launch, with kernel, block and place, and stops the others. Returns
 * TVM_FAULT. */
tvm_status tvm_interp_fail(const interp_context *context, const interp_insn *insn, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with another status, which it returns. */
tvm_status tvm_interp_end(const interp_context *context, const interp_insn *insn, tvm_status status,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
/* tvm_interp_fail of a kind, which the sanitizer tells. */
typedef enum interp_fault {
    INTERP_FAULT,
    INTERP_OUTSIDE,  /* an index, or a tile, is outside */
    INTERP_DEADLOCK, /* nothing that runs can go on */
    INTERP_BARRIER,  /* the same: others have ended without coming here */
    INTERP_CLUSTER   /* blocks of a cluster are not where others count on them */
} interp_fault;
tvm_status tvm_interp_fault(const interp_context *context, const interp_insn *insn, interp_fault kind,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* A fault INTERP_CLUSTER between two instructions; other: the one of another block, or NULL. */
tvm_status tvm_interp_fault_between(const interp_context *context, const interp_insn *insn,
                                    const interp_insn *other, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for memory that is exhausted; returns TVM_NO_MEMORY. */
tvm_status tvm_interp_no_memory(interp_run *run);

/* Of a launch that begins. */
void tvm_interp_limits_begin(interp_run *run, const tvm_interp_options *options);
/* Once block->slice instructions have been executed: fills it again, or ends the launch. */
tvm_status tvm_interp_next_slice(interp_context *context, const interp_insn *insn);
/* A turn of the loop that the instruction opens begins: ends the launch if that is one too many. */
tvm_status tvm_interp_turn(interp_context *context, const interp_insn *insn);

/* Wakes the workers that wait for a semaphore or for elements that are put; the mutex is held. */
void tvm_interp_changed(interp_run *run);

/* For something that another block does: `ready` is asked with the mutex held. While other contexts of the
 * block may run, one that must wait does its instruction again; else the worker sleeps until it is ready or
 * the launch stops. The kernel has `waits` set. */
typedef enum interp_wait {
    INTERP_WAIT_OVER,
    INTERP_WAIT_AGAIN,   /* or the launch stops: the instruction returns TVM_OK at once */
    INTERP_WAIT_HOPELESS /* all workers would sleep */
} interp_wait;
interp_wait tvm_interp_wait(interp_context *context, bool (*ready)(void *data), void *data);
/* Sleeps until something changes for which a context of the block may wait; false when all workers would
 * sleep. */
bool tvm_interp_sleep(interp_block *block);
/* An instruction that shows the order in which blocks do it: false when it must wait, to be done again. Once
 * it has been done, passed on to the next block. */
bool tvm_interp_take_turn(interp_context *context);
void tvm_interp_pass_turn(interp_context *context);
/* Runs all clusters of a kernel whose instructions take turns. */
void tvm_interp_run_turns(interp_run *run, unsigned threads);

/* Runs the function in so many threads, or fewer; returns when all have ended. */
void tvm_interp_work(interp_run *run, unsigned threads, void *(*body)(void *run));

/* The blocks of a cluster, whose memory serves one cluster after the other. False: without memory. To be
 * freed in any case. */
bool tvm_interp_cluster_make(interp_block cluster[TVM_MAX_CLUSTER], interp_run *run);
void tvm_interp_cluster_free(interp_block *cluster);
/* Cluster number n of the launch, from its begin. */
void tvm_interp_cluster_begin(interp_block *cluster, uint64_t number);
/* Goes on with it to its end, or until it waits for its turn. */
tvm_status tvm_interp_cluster_go(interp_block *cluster, bool *waits);

/* "line 12: wait-barrier: 1 of 2 arrivals are missing" of one that waits, with its role. */
void tvm_interp_context_text(const interp_context *context, char text[320]);
/* What the context waits for, in words; "" when it does not. */
void tvm_interp_waits_for(const interp_context *context, char text[160]);

tvm_status tvm_interp_evaluate(const interp_context *context, const interp_insn *insn, uint32_t expr,
                               tvm_scalar *value);

/* Evaluates the index expressions of an indexed tensor whose slot is operand `first`. */
tvm_status tvm_interp_index(interp_context *context, const interp_insn *insn, uint32_t first, unsigned rank,
                            int64_t *index);
/* The extents of a tensor, for a global one those of the launch; returns its rank. */
unsigned tvm_interp_shape(const interp_context *context, uint32_t slot, int64_t shape[TVM_MAX_RANK]);
/* Its steps, in elements, and its first element. */
void tvm_interp_strides(const interp_context *context, uint32_t slot, int64_t stride[TVM_MAX_RANK]);
uint8_t *tvm_interp_data(const interp_context *context, uint32_t slot);
/* A fault unless the tile, whose dimensions are the last ones of the shared tensor, lies inside of it. */
tvm_status tvm_interp_inside(const interp_context *context, const interp_insn *insn, uint32_t slot,
                             unsigned rank, const int64_t *shape, const int64_t *start, unsigned tile_rank,
                             const int64_t *tile);

/* A fault where an index of the last dimension of a tensor, of elements narrower than a byte, is inside one.
 */
tvm_status tvm_interp_at_byte(const interp_context *context, const interp_insn *insn, uint32_t slot,
                              int64_t column);

/* Value of a scalar of a scalar type as an element's code of that type. */
uint64_t tvm_interp_scalar_code(tvm_dtype type, tvm_scalar value);

/* Fills `count` containers with one code. */
void tvm_interp_fill(tvm_dtype type, void *containers, size_t count, uint64_t code);
/* The value of an operand, an expression that is converted to an element, or left out: zero bits. */
tvm_status tvm_interp_code(const interp_context *context, const interp_insn *insn, const tvm_operand *operand,
                           tvm_dtype type, uint64_t *code);
/* The operand at `at`, or NULL: the instruction does not have it, or leaves it out. */
const tvm_operand *tvm_interp_given(const interp_insn *insn, uint32_t at);

/* The block of the cluster that the expression is the rank of. */
tvm_status tvm_interp_peer(interp_context *context, const interp_insn *insn, uint32_t rank,
                           interp_block **peer);

/* The mbarrier that operands[first], with its index, names; a fault where there is none. */
tvm_status tvm_interp_find_barrier(interp_context *context, const interp_insn *insn, uint32_t first,
                                   interp_barrier **out);

/* One arrival at the mbarrier of a block; the instruction makes it. */
tvm_status tvm_interp_arrival(interp_context *context, const interp_insn *insn, interp_block *block,
                              interp_barrier *barrier);

/* ---- tensor memory ---- */

/* The blocks that an instruction of the tensor core is for: this one, or the pair; 0: its even block does it.
 */
uint32_t tvm_interp_tensor_blocks(const interp_context *context, const interp_insn *insn,
                                  interp_block *out[2]);

/* Notes what the instruction is to do once the team commits; its tiles begin where the work says. */
tvm_status tvm_interp_start_tensor_work(interp_context *context, const interp_tensor_work *work);
/* Does it: of a family each. */
tvm_status tvm_interp_multiply_tensor(interp_context *context, const interp_tensor_work *work);
/* At the end of a block: a fault where no commit-tensor follows one. */
tvm_status tvm_interp_tensor_end(const interp_block *block);

/* ---- copies ---- */

/* Adds the copy of the instruction, whose plan is that of COPY_ASYNC: its tiles, at the indices that its
 * operands have now. */
tvm_status tvm_interp_start_copy(interp_context *context, const interp_insn *insn, interp_copies *copies);
void tvm_interp_perform_copy(const interp_block *block, const interp_copy *copy);
/* The same for copies to global memory, whose plan is that of STORE_BULK. */
void tvm_interp_perform_store(const interp_block *block, const interp_copy *copy);
/* What a context's store-bulk have not stored, all but the latest ones. */
void tvm_interp_finish_stores(interp_context *context, size_t pending);
uint64_t tvm_interp_copy_bytes(const interp_copy *copy);
/* Appends it, one of those that nothing has waited for. */
tvm_status tvm_interp_add_copy(interp_context *context, const interp_insn *insn, interp_copies *copies,
                               const interp_copy *copy);
/* The same of copy-cluster; `block` is the one that it goes to. */
void tvm_interp_perform_cluster_copy(const interp_block *block, const interp_copy *copy);
uint64_t tvm_interp_cluster_copy_bytes(const interp_copy *copy);
/* The copies that belong to the phase of the mbarrier that is about to end. */
void tvm_interp_bulk_come(interp_block *block, interp_barrier *barrier);
/* Do both blocks make one copy, with the same tile of the same tensor to the same place? */
bool tvm_interp_copy_same(const interp_copy *a, const interp_copy *b);
/* "x[8, 0] to %s[0, 0]" */
void tvm_interp_copy_text(const tvm_interp_kernel *kernel, const interp_copy *copy, char text[160]);
/* At the end of a block: a fault where a copy-bulk has not come, or nobody has waited for it. */
tvm_status tvm_interp_bulk_end(const interp_block *block);

/* ---- multicast ---- */

/* The blocks of the cluster that the copy-bulk is for, as a mask of ranks, by its last operand. */
uint32_t tvm_interp_cast_ranks(const interp_block *block, const tvm_operand *axes);
/* A fault where one of them has not made the mbarrier. */
tvm_status tvm_interp_cast_reaches(interp_context *context, const interp_copy *copy, uint32_t ranks);
/* The block's part of a multicast for those blocks, to the place and the mbarrier that the copy has. */
tvm_status tvm_interp_cast(interp_context *context, const interp_copy *copy, uint32_t ranks);
/* All arrivals of the phase have come, the last one by that instruction (or NULL): a fault where other blocks
 * multicast to it and this one has not. */
tvm_status tvm_interp_cast_check(const interp_block *block, const interp_barrier *barrier,
                                 const interp_insn *last);
/* Where nothing can go on, or all have ended: a fault for a multicast that a block will not make any more. */
tvm_status tvm_interp_cast_end(interp_block *cluster);
/* A phase has had its last arrival, or the last block has made a multicast: ends it if nothing is missing. */
tvm_status tvm_interp_end_phase(interp_block *block, interp_barrier *barrier);

/* Writes what print-tensor has gathered. */
void tvm_interp_print_flush(interp_block *block);

static inline const tvm_slot *interp_slot(const tvm_interp_kernel *kernel, uint32_t slot) {
    return &kernel->kernel->slots[slot];
}
static inline uint8_t *interp_tensor(const interp_block *block, uint32_t slot) {
    bool in_registers = interp_slot(block->kernel, slot)->kind == TVM_SLOT_REGISTER;
    return (in_registers ? block->registers : block->memory) + block->kernel->offsets[slot];
}
/* A parameter or tensor of the launch; of a view its extents and strides alone. */
static inline interp_global *interp_run_global(const interp_run *run, uint32_t slot) {
    return &run->globals[run->kernel->globals[slot]];
}
static inline interp_global *interp_global_of(const interp_context *context, uint32_t slot) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t own = k->kernel->param_count + k->launch_tensor_count, number = k->globals[slot];
    return number < own ? &context->block->run->globals[number] : &context->views[number - own];
}
static inline const char *interp_slot_name(const tvm_interp_kernel *kernel, uint32_t slot) {
    return tvm_string(kernel->program, interp_slot(kernel, slot)->name);
}
/* "%" before what is not a parameter, as in the text. */
static inline const char *interp_sigil(const tvm_interp_kernel *kernel, uint32_t slot) {
    return slot < kernel->kernel->param_count ? "" : "%";
}

#endif
