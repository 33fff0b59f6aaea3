/* A kernel while it is translated: the program, and what is known and decided of it. The folders analysis and
 * plan fill it in, emit writes PTX by it. What is written is none of it: text and registers are the emitter's
 * (emit/emit.h). */
#ifndef TVM_CODEGEN_KERNEL_STATE_H
#define TVM_CODEGEN_KERNEL_STATE_H

#include "codegen.h"
#include "program.h"

/* Weights, or sums of their products, whose registers are not their values yet: see plan/scaled.h. */
enum { SCALED_CLASSES = 8, SCALED_TILES = 64 };
typedef struct scaled_weights {
    bool is_scaled;
    bool nested;    /* the first class of a byte has all of the byte's codes */
    bool lacking;   /* the register is what the code lacks of the greatest one, the value minus that */
    uint8_t period; /* fragments of weights after which the classes begin again */
    uint8_t classes;
    int8_t power[SCALED_CLASSES];   /* of a class: the value is the register times 2^power */
    uint8_t fragment[SCALED_TILES]; /* of sums: of each tile, that of the weights modulo the period */
    double zero;                    /* and then less this; of weights alone */
    double subtracted; /* what has been taken off the registers, in the value's unit, in place of zero */
} scaled_weights;

/* Whether the barriers of bar can stand for the mbarriers of a slot: see plan/mbarrier_plan.h. */
typedef struct named_barriers {
    uint32_t first; /* number of the first; 0: they cannot */
    uint32_t warps; /* of each team that comes to them */
    uint32_t threads;
    bool syncs;
    const char *refused;
} named_barriers;

/* What is planned of a slot. */
typedef struct slot_plan {
    uint32_t shared_offset; /* SHARED, BARRIER: bytes from the start of the block's dynamic shared memory */
    uint32_t shared_base;   /* SHARED: of a view: its first element from there, before the swizzle */
    bool reuses;            /* SHARED, TENSOR: its memory was another tensor's before */
    uint32_t tensor_column; /* TENSOR: from the first of the kernel's */
    uint32_t ledger; /* BARRIER: bytes to where its arrivals are counted, a u32 an mbarrier; 0: they are
                        not */
    uint32_t team_arrivals; /* BARRIER: an arrival of a team, spread evenly over its warps */
    named_barriers named;   /* BARRIER */
    scaled_weights scaled;  /* REGISTER */
    unsigned alignment;     /* GLOBAL: of a view that has been made: bits of its address; else 0 */
} slot_plan;

/* A register tensor that no variable of the program is: slots from the kernel's slot_count on. */
typedef struct temporary {
    tvm_dtype dtype;
    tvm_layout layout;
} temporary;

/* Of a block's shared memory, in bytes. */
typedef struct shared_need {
    uint64_t scratch; /* where the tensors end: from there on it is scratch memory (emit/scratch.h) */
    uint64_t second;  /* from there to the second buffer of it; 0: there is none */
    uint64_t bytes;   /* all, up to the end of it */
} shared_need;

/* How the kernel's tiles come to shared memory. */
typedef struct bulk_ways {
    bool by_engine;        /* some by the copy engine, which writes through the asynchronous proxy */
    bool stores_by_engine; /* some of store-bulk by the copy engine */
    bool reads_by_engine;  /* the copy engine reads shared memory: those, or copy-cluster */
    bool by_threads;       /* some of copy-bulk by threads */
    /* Of each instruction: the warps, of those that do it, that may have written to shared memory since a
     * fence of theirs. */
    uint32_t *unfenced;
} bulk_ways;

/* Tensor memory of the kernel. */
enum { TENSOR_FENCE_BEFORE = 1, TENSOR_FENCE_AFTER = 2 };
typedef struct tensor_memory {
    bool used;
    bool pairs;       /* all instructions of tcgen05 are of pairs of blocks, .cta_group::2 */
    uint32_t columns; /* that are allocated */
    uint32_t shared;  /* bytes from the start of the block's shared memory: what the translator has there */
    uint32_t workers; /* bit w: the team whose first warp is w starts work of the tensor core, */
    uint32_t committers; /* and has a commit-tensor */
    uint8_t *fences;     /* by instruction: those that stand before and behind it */
} tensor_memory;

/* A loop with a counter. */
typedef struct loop_plan {
    uint32_t copies; /* of its body, that the size of the code allows */
    uint32_t weight; /* instructions of its body, inner loops unrolled */
} loop_plan;

typedef struct kernel_state {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_target target;
    tvm_diags *diags;
    const tvm_insn *insn; /* the one that is being translated; NULL: none */
    slot_plan *slots;     /* the kernel's, then temporaries */
    temporary *temporaries;
    uint32_t temporary_count;
    struct mma_operands **mma, *mma_operands; /* plan/mma_operands.h: by instruction; all */
    struct facts *facts;                      /* analysis/analysis.h: what is known where code is written */
    struct tvm_claims *claims; /* analysis/claims.h: what takes down what is proved; NULL: nothing does */
    struct slot_uses *uses;    /* analysis/uses.h */
    struct groups *groups;     /* plan/groups.h */
    struct wgmma_plan *wgmma;  /* plan/wgmma.h */
    loop_plan *loops;          /* plan/unroll.h: by the insn of FOR */
    bool counts_turns;         /* the code counts the turns of its loops, and what asks again */
    struct turn_plan *turns;   /* plan/turns.h: by the insn of a loop; NULL: nothing is counted */
    bulk_ways bulk;            /* plan/bulk_ways.h */
    tensor_memory tensor;      /* plan/tensor_plan.h */
    shared_need shared;        /* plan/shared_plan.h: of the block's team */
    shared_need role_shared[TVM_MAX_TEAMS];
    uint64_t shared_bytes; /* of the block */
    uint32_t answer; /* of cancel-block: bytes from the start of shared memory; then comes its mbarrier */
} kernel_state;

/* f16 or bf16 */
static inline bool tvm_is_half(tvm_dtype type) {
    return type.kind == TVM_KIND_FLOAT && type.bits == 16;
}

/* A node of the kernel's scalar expressions. */
static inline const tvm_expr *node_of(const kernel_state *k, uint32_t expr) {
    return &k->kernel->exprs[expr];
}

static inline uint32_t insn_number(const kernel_state *k, const tvm_insn *insn) {
    return (uint32_t)(insn - k->kernel->insns);
}

const tvm_layout *tvm_slot_layout(const kernel_state *k, uint32_t slot);
const tvm_shared_layout *tvm_slot_shared_layout(const kernel_state *k, uint32_t slot);
tvm_dtype tvm_slot_dtype(const kernel_state *k, uint32_t slot);
tvm_packing tvm_slot_packing(const kernel_state *k, uint32_t slot);

/* Does the kernel write the global tensor? */
bool tvm_writes_global(const tvm_ir_kernel *kernel, uint32_t slot);
/* Do its threads, by other instructions than store-bulk and reduce-bulk? */
bool tvm_threads_write_global(const tvm_ir_kernel *kernel, uint32_t slot);

#endif
