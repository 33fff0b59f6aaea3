/* Private to wgmma: the plan of its products, by which code is written. */
#ifndef TVM_CODEGEN_WGMMA_IMPL_H
#define TVM_CODEGEN_WGMMA_IMPL_H

#include "mma_operands.h"
#include "wgmma.h"
#include "wgmma_matrix.h"

enum wgmma_role { WGMMA_NONE, WGMMA_FIRST, WGMMA_JOINS };

/* The matrices that wgmma multiplies. Fragments are those of a along m, columns are eight of n. */
typedef struct products {
    bool a_is_shared; /* read where it lies; else from registers */
    wgmma_matrix a, b;
    uint32_t fragments, columns, steps;
    uint32_t *tile_a;      /* [fragments][steps]: local numbers */
    uint32_t *tile_c;      /* [fragments][columns] */
    uint32_t *at_a, *at_b; /* [fragments][steps], [steps]: byte offsets of the matrices */
} products;

/* An mma whose b is a shared tile. */
typedef struct product {
    uint32_t mma;     /* instruction */
    uint32_t columns; /* eights of columns; 0: wgmma cannot do it */
    uint32_t joined;  /* products that one wgmma does, of the first one */
    bool is_paced;    /* each step of k is a group of its own: wgmma_waits.c */
    products all;     /* unless refused */
    const char *refused;
    const char *why_a; /* a, in shared memory, is loaded to registers first; else NULL */
} product;

struct wgmma_plan {
    product *products; /* in the order of instructions */
    uint32_t count;
    uint8_t *role;     /* by instruction */
    uint32_t *product; /* by instruction that is one's mma: its number + 1; else 0 */
    bool used;         /* in this kernel */
    struct wait_set
        *heads; /* by instruction that opens a loop: what may be unfinished at its head; or NULL */
    uint8_t **makers; /* wgmma_makers.c: by variable that is the a of a product, of each instruction 1 where
                         it makes it; of others NULL */
};

/* Have the two, each the first of those that a wgmma does, the same sums in the same places? */
bool tvm_wgmma_same_sums(const kernel_state *k, const product *p, const product *other);

/* Finds what makes the a of each product, once it is known which are done. */
tvm_status tvm_wgmma_find_makers(kernel_state *k);
/* Does the instruction make the a of p, which is in registers? */
bool tvm_wgmma_makes_a(const kernel_state *k, const tvm_insn *insn, const product *p);
void tvm_wgmma_free_makers(kernel_state *k);

static inline const mma_operands *operands_of(const kernel_state *k, const product *p) {
    return tvm_mma_operands_of(k, &k->kernel->insns[p->mma]);
}
static inline uint32_t slot_sums(const kernel_state *k, const product *p) {
    return k->kernel->insns[p->mma].result;
}

#endif
