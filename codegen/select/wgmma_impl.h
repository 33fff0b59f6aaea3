/* Private to wgmma: what its plan tells emission. */
#ifndef TVM_CODEGEN_WGMMA_IMPL_H
#define TVM_CODEGEN_WGMMA_IMPL_H

#include "shared_access.h"
#include "wgmma.h"

enum {
    WGMMA_THREADS = 128,              /* of a warpgroup */
    WGMMA_ROW = 64,                   /* elements of b along k that are contiguous */
    WGMMA_STEP = 16,                  /* of these, of one wgmma */
    WGMMA_EIGHT_ROWS = 8 * WGMMA_ROW, /* elements from eight columns of b to the next eight */
    WGMMA_COLUMNS = 32                /* times 8: at most */
};

enum wgmma_role { WGMMA_NONE, WGMMA_LEFT_OUT, WGMMA_FIRST, WGMMA_JOINS };

typedef struct triple {
    uint32_t load, view, mma; /* instructions; view: TVM_NONE */
    uint32_t columns;         /* eights of columns; 0: not for wgmma */
    uint32_t joined;          /* triples that one wgmma does, of the first one */
    char refused[112];
} triple;

struct wgmma_state {
    triple *triples; /* in the order of instructions */
    uint32_t count;
    uint8_t *role;    /* by instruction */
    uint32_t *triple; /* by instruction that is a triple's mma: its number + 1; else 0 */
    bool used;        /* in this kernel */
    /* Groups of wgmma, one a triple or several joined, counted as they are committed and waited for. */
    uint32_t committed, done;
    uint32_t *busy;         /* by slot: the last group that has it as a or sums */
    const triple **sums_of; /* by slot: the first triple of the last wgmma that has it as sums */
};

/* The products of one triple. Fragments are those of a along m, columns are eight of n. */
typedef struct products {
    uint32_t fragments, columns, steps;
    uint32_t *tile_a; /* [fragments][steps] */
    uint32_t *tile_c; /* [fragments][columns] */
    uint32_t *offset; /* [steps]: of column 0, linear, in elements */
} products;

/* Where the b of a triple lies. */
typedef struct place {
    shared_tile tile;
    uint32_t
        threads[TVM_MAX_THREADS / WGMMA_THREADS]; /* linear offset of each warpgroup's b from the first's */
    uint32_t groups;
    bool varies;
    uint32_t *tiles; /* by fragment of b: linear offset in the first warpgroup */
    uint32_t count;
} place;

/* NULL, or why wgmma cannot do the products, "" for want of memory. `all` is freed by the caller in any case.
 */
const char *tvm_wgmma_products(emitter *e, const triple *t, place *p, products *all);
void tvm_wgmma_products_free(products *all);

/* Have the two, each the first of those that a wgmma does, the same sums in the same places? */
bool tvm_wgmma_same_sums(const emitter *e, const triple *t, const triple *other);

static inline uint32_t insn_number(const emitter *e, const tvm_insn *insn) {
    return (uint32_t)(insn - e->kernel->insns);
}
static inline const tvm_operand *insn_operands(const emitter *e, uint32_t insn) {
    return tvm_operands(e->kernel, &e->kernel->insns[insn]);
}
static inline uint32_t slot_loaded(const emitter *e, const triple *t) {
    return e->kernel->insns[t->load].result;
}
static inline uint32_t slot_viewed(const emitter *e, const triple *t) {
    return e->kernel->insns[t->view == TVM_NONE ? t->load : t->view].result;
}
static inline uint32_t slot_sums(const emitter *e, const triple *t) {
    return e->kernel->insns[t->mma].result;
}

#endif
