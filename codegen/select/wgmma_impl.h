/* Private to wgmma: what its plan tells emission. */
#ifndef TVM_CODEGEN_WGMMA_IMPL_H
#define TVM_CODEGEN_WGMMA_IMPL_H

#include "mma_operands.h"
#include "shared_access.h"
#include "wgmma.h"

enum {
    WGMMA_THREADS = 128,              /* of a warpgroup */
    WGMMA_ROW = 64,                   /* elements of b along k that are contiguous */
    WGMMA_STEP = 16,                  /* of these, of one wgmma */
    WGMMA_EIGHT_ROWS = 8 * WGMMA_ROW, /* elements from eight columns of b to the next eight */
    WGMMA_COLUMNS = 32                /* times 8: at most */
};

enum wgmma_role { WGMMA_NONE, WGMMA_FIRST, WGMMA_JOINS };

/* Where the matrices of b lie, and how wgmma goes through them. Fragments are those of a along m, columns are
 * eight of n. */
typedef struct products {
    uint32_t
        threads[TVM_MAX_THREADS / WGMMA_THREADS]; /* linear offset of each warpgroup's b from the first's */
    uint32_t groups;
    bool varies;
    uint32_t fragments, columns, steps;
    uint32_t *tile_a; /* [fragments][steps] */
    uint32_t *tile_c; /* [fragments][columns] */
    uint32_t *offset; /* [steps]: of column 0, linear, in elements */
} products;

/* An mma whose b is a shared tile. */
typedef struct product {
    uint32_t mma;     /* instruction */
    uint32_t columns; /* eights of columns; 0: wgmma cannot do it */
    uint32_t joined;  /* products that one wgmma does, of the first one */
    products all;     /* unless refused */
    const char *refused;
} product;

struct wgmma_state {
    product *products; /* in the order of instructions */
    uint32_t count;
    uint8_t *role;       /* by instruction */
    uint32_t *product;   /* by instruction that is one's mma: its number + 1; else 0 */
    bool used;           /* in this kernel */
    wait_set unfinished; /* here, while the kernel is emitted */
    wait_set *heads;     /* by instruction that opens a loop: at its head */
};

/* A product's group has been committed; was another unfinished? */
bool tvm_wgmma_start(emitter *e, uint32_t number);

/* Have the two, each the first of those that a wgmma does, the same sums in the same places? */
bool tvm_wgmma_same_sums(const emitter *e, const product *p, const product *other);

static inline uint32_t insn_number(const emitter *e, const tvm_insn *insn) {
    return (uint32_t)(insn - e->kernel->insns);
}
static inline const mma_operands *operands_of(const emitter *e, const product *p) {
    return tvm_mma_operands_of(e, &e->kernel->insns[p->mma]);
}
static inline uint32_t slot_sums(const emitter *e, const product *p) {
    return e->kernel->insns[p->mma].result;
}

#endif
