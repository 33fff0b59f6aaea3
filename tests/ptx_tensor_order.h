/* Inside ptx_machine.h: what orders the accesses of tensor memory, and of shared memory by the tensor cores
 * (PTX ISA, "Memory Consistency Model for 5th generation of TensorCore operations").
 *
 * Each warp has a channel for each kind of its asynchronous operations, which are numbered there. A warp has
 * seen the end of operations by waiting for them: its own of tcgen05.ld and st by tcgen05.wait; those of
 * tcgen05.mma and cp by an mbarrier at which tcgen05.commit arrived. What it learns at a barrier or an
 * mbarrier counts from its next tcgen05.fence::after_thread_sync on; of its own ld and st others learn what
 * came before its last tcgen05.fence::before_thread_sync. Without a wait its cp come before its mma, and sums
 * of mma before more sums of the same accumulator, shape and kind ("Pipelined tcgen05 Instructions"): an mma
 * that writes where an earlier one reads a from, or reads a where that adds up, is in no order. */
#ifndef TVM_TESTS_PTX_TENSOR_ORDER_H
#define TVM_TESTS_PTX_TENSOR_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ptx_tensor_way { PTX_TENSOR_MMA, PTX_TENSOR_CP, PTX_TENSOR_LD, PTX_TENSOR_ST } ptx_tensor_way;

enum {
    PTX_TENSOR_LANES = 128,
    PTX_TENSOR_COLUMNS = 512,
    PTX_TENSOR_WAYS = 4,
    PTX_TENSOR_WARPS = 32,
    PTX_TENSOR_FAR = PTX_TENSOR_WARPS * PTX_TENSOR_WAYS, /* from there on: those of the pair's other block */
    PTX_TENSOR_CHANNELS = 2 * PTX_TENSOR_FAR,
    PTX_TENSOR_MBARRIERS = 128
};

/* An operation; serial 0: none. sums: where an mma adds up, and in which shape and kind; 0: it reads, or is
 * another operation. */
typedef struct ptx_stamp {
    uint32_t serial;
    uint32_t channel : 8, sums : 24;
} ptx_stamp;

/* Of each channel the last operation whose end is known. */
typedef struct ptx_ends {
    uint32_t of[PTX_TENSOR_CHANNELS];
} ptx_ends;

typedef struct ptx_tensor {
    uint32_t cell[PTX_TENSOR_LANES][PTX_TENSOR_COLUMNS];
    ptx_stamp wrote[PTX_TENSOR_LANES][PTX_TENSOR_COLUMNS], read[PTX_TENSOR_LANES][PTX_TENSOR_COLUMNS];
    ptx_stamp *shared_read;             /* by byte of shared memory */
    uint16_t owner[PTX_TENSOR_COLUMNS]; /* 1 + the first column of the allocation; 0: free */
    bool given_up;                      /* tcgen05.relinquish_alloc_permit */
    unsigned group; /* of .cta_group, which all instructions have alike; 0: there was none */
    ptx_ends issued;
    ptx_ends seen[PTX_TENSOR_WARPS], learned[PTX_TENSOR_WARPS], told[PTX_TENSOR_WARPS];
    ptx_ends arrived[PTX_TENSOR_MBARRIERS], ended[PTX_TENSOR_MBARRIERS];
    uint32_t *loading; /* by register: the warps that have not waited for its tcgen05.ld */
    unsigned loads;    /* registers that are loading, of all warps */
} ptx_tensor;

static inline unsigned ptx_channel(unsigned warp, ptx_tensor_way way) {
    return PTX_TENSOR_WAYS * warp + way;
}

static inline void ptx_ends_merge(ptx_ends *to, const ptx_ends *from) {
    for (unsigned c = 0; c < PTX_TENSOR_CHANNELS; c++)
        if (from->of[c] > to->of[c]) to->of[c] = from->of[c];
}

/* What the pair's other block is told. */
static inline void ptx_ends_merge_far(ptx_ends *to, const ptx_ends *from) {
    for (unsigned c = 0; c < PTX_TENSOR_CHANNELS; c++)
        if (from->of[c] > to->of[c ^ PTX_TENSOR_FAR]) to->of[c ^ PTX_TENSOR_FAR] = from->of[c];
}

/* An operation as the pair's other block has it. */
static inline ptx_stamp ptx_stamp_far(ptx_stamp s) {
    return (ptx_stamp){s.serial, s.channel ^ PTX_TENSOR_FAR, s.sums};
}

/* The next operation of the warp. */
static inline ptx_stamp ptx_tensor_issue(ptx_tensor *x, unsigned warp, ptx_tensor_way way) {
    unsigned channel = ptx_channel(warp, way);
    return (ptx_stamp){++x->issued.of[channel], (uint8_t)channel, 0};
}

/* Has the warp seen the end of the operation? */
static inline bool ptx_tensor_ended(const ptx_tensor *x, unsigned warp, ptx_stamp s) {
    return s.serial <= x->seen[warp].of[s.channel];
}

/* Does the operation s come before `by`, of the warp? */
static inline bool ptx_tensor_before(const ptx_tensor *x, unsigned warp, ptx_stamp by, ptx_stamp s) {
    bool multiplies = by.channel == ptx_channel(warp, PTX_TENSOR_MMA);
    bool piped = multiplies && ((s.channel == by.channel && s.sums && s.sums == by.sums) ||
                                s.channel == ptx_channel(warp, PTX_TENSOR_CP));
    return piped || ptx_tensor_ended(x, warp, s);
}

/* tcgen05.wait::ld, wait::st: the warp has seen the ends of its own. */
static inline void ptx_tensor_wait(ptx_tensor *x, unsigned warp, ptx_tensor_way way) {
    unsigned channel = ptx_channel(warp, way);
    x->seen[warp].of[channel] = x->issued.of[channel];
}

/* The warp tells what it has seen and learned: to the warps of a barrier, or to an mbarrier. */
static inline void ptx_tensor_tell(const ptx_tensor *x, unsigned warp, ptx_ends *to) {
    ptx_ends_merge(to, &x->told[warp]);
    ptx_ends_merge(to, &x->learned[warp]);
}

/* A barrier: what the warps of `from` tell, those of `to` learn. */
static inline void ptx_tensor_pass(ptx_tensor *x, uint32_t from, uint32_t to) {
    ptx_ends all = {{0}};
    for (unsigned w = 0; w < PTX_TENSOR_WARPS; w++)
        if (from >> w & 1) ptx_tensor_tell(x, w, &all);
    for (unsigned w = 0; w < PTX_TENSOR_WARPS; w++)
        if (to >> w & 1) ptx_ends_merge(&x->learned[w], &all);
}

/* A barrier of the cluster: what the warps of one block of a pair tell, those of the other learn. */
static inline void ptx_tensor_pass_far(const ptx_tensor *from, ptx_tensor *to) {
    for (unsigned w = 0; w < PTX_TENSOR_WARPS; w++) {
        ptx_ends all = {{0}};
        ptx_tensor_tell(from, w, &all);
        for (unsigned other = 0; other < PTX_TENSOR_WARPS; other++)
            ptx_ends_merge_far(&to->learned[other], &all);
    }
}

/* tcgen05.commit: the phase of the mbarrier, of the block or of the pair's other one, ends after the mma and
 * cp of the warp. */
static inline void ptx_tensor_commit(const ptx_tensor *x, unsigned warp, ptx_tensor *owner,
                                     unsigned mbarrier) {
    ptx_ends ends = {{0}};
    for (unsigned way = PTX_TENSOR_MMA; way <= PTX_TENSOR_CP; way++) {
        unsigned c = ptx_channel(warp, (ptx_tensor_way)way);
        ends.of[c] = x->issued.of[c];
    }
    if (owner == x)
        ptx_ends_merge(&owner->arrived[mbarrier], &ends);
    else
        ptx_ends_merge_far(&owner->arrived[mbarrier], &ends);
}

/* The mbarrier's phase ends. */
static inline void ptx_tensor_end_phase(ptx_tensor *x, unsigned mbarrier) {
    ptx_ends_merge(&x->ended[mbarrier], &x->arrived[mbarrier]);
    x->arrived[mbarrier] = (ptx_ends){{0}};
}

static inline void ptx_tensor_fence(ptx_tensor *x, unsigned warp, bool after) {
    if (after)
        ptx_ends_merge(&x->seen[warp], &x->learned[warp]);
    else
        ptx_ends_merge(&x->told[warp], &x->seen[warp]);
}

#endif
