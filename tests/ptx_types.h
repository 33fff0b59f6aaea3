/* Inside ptx_machine.h: what the machine is made of: instructions, registers, memory, copies under way, and
 * the warps that have parted. */
#ifndef TVM_TESTS_PTX_TYPES_H
#define TVM_TESTS_PTX_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx_tensor_order.h"

enum {
    PTX_PARTS = 16,
    PTX_OPERANDS = 8,
    PTX_VECTOR = 6,
    PTX_CLASSES = 10,
    PTX_LOCALS = 8,
    PTX_TENSORS = 24,
    PTX_SUMS = 128, /* registers of a wgmma's d: m64n256 */
    PTX_WARPGROUPS = 8,
    PTX_GROUP_THREADS = 128, /* of a warpgroup */
    PTX_MBARRIERS = 128,
    PTX_BULK = 256,     /* copies under way */
    PTX_ENGINE = 2048,  /* writers from there on are the copy engine, by the number of the copy's mbarrier */
    PTX_NAMED = 16,     /* barriers of bar */
    PTX_PEERS = 16,     /* blocks of a cluster */
    PTX_FAR_SHIFT = 24, /* from this bit on an address in shared memory says which block of the cluster */
    PTX_SHARED = 228 << 10,
    PTX_SHARED_BASE = 1 << 10
};
enum { PTX_STEPS_MAX = 20 * 1000 * 1000 };

typedef enum ptx_kind {
    PTX_REG,
    PTX_IMMEDIATE,
    PTX_GROUP,
    PTX_MEMORY,
    PTX_LABEL,
    PTX_TID,
    PTX_LANE,
    PTX_CTAID,
    PTX_NCTAID,
    PTX_CLUSTER_CTAID, /* of the block in its cluster */
    PTX_CLUSTER_RANK,
    PTX_SHARED_WINDOW,
    PTX_PARAM
} ptx_kind;

typedef struct ptx_operand {
    ptx_kind kind;
    uint64_t value;           /* immediate; offset of memory; axis; number of a label */
    uint32_t reg[PTX_VECTOR]; /* registers; reg[0] == UINT32_MAX: memory without one */
    unsigned count;
} ptx_operand;

/* Opcodes that are done for each thread, so that their first part is looked up once. */
/* clang-format off */
#define PTX_OPS(X)                                                                                           \
    X(abs) X(add) X(and) X(atom) X(bfe) X(bfi) X(copysign) X(cp) X(createpolicy) X(cvt) X(cvta) X(div)       \
    X(fma) X(ld) X(lop3) X(mad) X(mapa) X(max) X(min) X(mov) X(mul) X(neg) X(not) X(or) X(popc) X(prmt)      \
    X(red) X(rem) X(selp) X(setp) X(shf) X(shl) X(shr) X(st) X(sub) X(xor)
/* clang-format on */
#define PTX_OP(name) PTX_OP_##name,
typedef enum ptx_op { PTX_OP_OTHER, PTX_OPS(PTX_OP) PTX_OP_COUNT } ptx_op;
#undef PTX_OP

typedef struct ptx_insn {
    char text[160];
    char part[PTX_PARTS][32]; /* of the opcode, at the dots */
    unsigned parts;
    ptx_op op;
    unsigned width; /* the number in the last part, of f32 32 */
    ptx_operand operand[PTX_OPERANDS];
    unsigned operands;
    uint32_t *sums; /* registers of a wgmma's d, or of tcgen05.ld and st, which are no operands; NULL: none */
    unsigned sum_count;
    uint32_t guard; /* UINT32_MAX: none */
    bool guard_not;
    uint32_t label; /* of a line that is one; else UINT32_MAX */
} ptx_insn;

/* What wgmma has to do with a register. */
typedef struct ptx_flight {
    uint32_t group;       /* of wgmma, the last that has it: groups are numbered from 1; 0: none has */
    uint16_t sums, place; /* it is number `place` of that many sums; sums 0: it is of a */
    bool accessed;        /* written by other instructions since the last wgmma.fence, or not yet fenced */
} ptx_flight;

/* wgmma of one warpgroup. */
typedef struct ptx_warpgroup {
    uint32_t groups, done; /* committed; and waited for */
    bool open;
    ptx_flight *flight;  /* by register */
    uint32_t *read_last; /* of each byte of shared memory: the last of the groups that reads it */
} ptx_warpgroup;

/* Global memory that the kernel may access. */
typedef struct ptx_memory {
    const uint8_t *bytes;
    uint64_t size;
} ptx_memory;

/* An mbarrier. Times are of ptx_machine.clock; 0 is none. */
typedef struct ptx_mbarrier {
    uint64_t address;
    unsigned maker; /* thread */
    uint32_t seen;  /* warps for which a barrier came after its making: a mask */
    uint32_t expected, missing;
    int64_t bytes;
    uint64_t phase;
    uint32_t arrived[32],
        ended[32]; /* by warp: its last arrival in this phase; and in those that have ended */
} ptx_mbarrier;

/* A copy that has been started and not come. */
typedef struct ptx_bulk {
    const struct ptx_tensor_map *map;
    int32_t at[5];
    uint64_t address, barrier;
    const uint8_t *from; /* without a map: so many bytes of global memory, or of a block's shared memory */
    uint32_t bytes;
} ptx_bulk;

/* A copy to global memory that a thread has started and not waited for. */
typedef struct ptx_bulk_store {
    const struct ptx_tensor_map *map;
    int32_t at[5];
    uint64_t address;
    unsigned thread;
    uint32_t group;
    const ptx_insn *adds; /* cp.reduce; NULL: cp */
} ptx_bulk_store;

/* A copy of cp.async that has not come; see ptx_order.h. */
typedef struct ptx_async {
    unsigned thread;
    uint32_t group;
    uint8_t *to;
    const uint8_t *from;
    size_t bytes, given;
} ptx_async;

/* Warps that have gone the same way since they parted, in step. */
typedef struct ptx_part {
    uint32_t warps; /* a mask */
    size_t at;      /* the next instruction */
    bool gathers;   /* until its warpgroups are whole */
    bool waits;
    bool meets;              /* then: the cluster's other blocks; or */
    uint64_t barrier, count; /* the barrier, and the threads that it waits for */
    uint64_t asked;          /* ptx_machine.events when it last asked an mbarrier in vain */
} ptx_part;

typedef struct ptx_machine {
    unsigned threads;
    unsigned resident; /* blocks of a multiprocessor, which share its registers */
    ptx_part parts[32];
    unsigned part_count;
    uint32_t running;               /* the warps whose instruction is being done: a mask */
    ptx_memory memory[PTX_TENSORS]; /* where there is none, any */
    unsigned memories;
    bool trapped;    /* the block came to a trap, and has ended there */
    char fault[256]; /* or has ended because it accessed other global memory; "": it has not */
    bool ended;
    unsigned steps,
        steps_most;  /* after the most it is a fault, ptx_endless; 0: a mistake, after PTX_STEPS_MAX */
    bool asks_again; /* who asks an mbarrier in vain does so again and again, in place of being a mistake */
    uint32_t turns;  /* the budget of code that counts turns; 0: the most */
    unsigned latest; /* part */
    uint64_t order;  /* not 0: warps, and copies of cp.async, in an order that it says; ptx_order.h */
    ptx_async *asyncs;
    unsigned async_count, async_capacity;
    uint32_t async_groups[1024]; /* that each thread has committed */
    uint32_t block[3], grid[3];
    uint32_t canceled; /* blocks of the grid, its last ones; ptx_launch_control.h */
    uint64_t answer[2];
    bool asked, none_left; /* an answer is under way; the last one was that there is no block left */
    struct ptx_machine *peers[PTX_PEERS]; /* the blocks of the cluster by rank; none where it is one block */
    unsigned peer_count, rank;
    uint32_t place[3]; /* in the cluster */
    uint64_t params[32];
    uint32_t first[PTX_CLASSES], count[PTX_CLASSES]; /* registers of each class */
    char locals[PTX_LOCALS][8]; /* names of registers between braces; their class is the last */
    uint8_t *widths;            /* of the registers, in bits */
    uint64_t *regs;             /* [register][thread] */
    uint8_t *shared;
    uint16_t *writer;     /* of each byte of shared memory: 1 + the thread that wrote it last; 0: none */
    uint32_t *seen;       /* and the warps that see what it wrote: a mask */
    uint32_t *written_at; /* and when it did: clock */
    uint32_t clock;       /* counts writes of shared memory and arrivals */
    uint64_t events;      /* ends of phases of mbarriers */
    ptx_mbarrier mbarriers[PTX_MBARRIERS];
    unsigned mbarrier_count;
    ptx_bulk bulk[PTX_BULK];
    unsigned bulk_count;
    ptx_bulk_store stores[PTX_BULK];
    unsigned store_count;
    uint32_t store_groups[1024]; /* that each thread has committed */
    uint32_t arrived[PTX_NAMED]; /* warps that have arrived at a barrier without waiting: a mask */
    uint32_t registers[8];       /* of a thread, by warpgroup; 0: as many as at the beginning */
    size_t written_ever;         /* the same, since the beginning */
    size_t written; /* bytes of shared memory that may have been written since the last barrier */
    ptx_warpgroup warpgroups[PTX_WARPGROUPS];
    ptx_tensor *tensor; /* tensor memory; NULL: the kernel has none */
    uint8_t *proxy;     /* of each byte of shared memory: does the async proxy see it? ptx_proxy */
    ptx_insn *insns;
    size_t insn_count, insn_capacity;
    /* Called before an instruction is done, by the warps that run; NULL: nobody watches. */
    void (*watch)(void *watcher, struct ptx_machine *m, const ptx_insn *insn);
    void *watcher;
} ptx_machine;

#endif
