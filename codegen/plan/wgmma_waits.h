/* Products of wgmma that may be unfinished, and what waits for them: see wgmma_waits.c. */
#ifndef TVM_CODEGEN_WGMMA_WAITS_H
#define TVM_CODEGEN_WGMMA_WAITS_H

#include "kernel_state.h"

enum {
    WAIT_PRODUCTS = 128,
    WAIT_ANY = 8 /* ages end there: wait_group has three bits */
};

/* By number of the product. Of each, how many groups there are from its last one on, at least; 0: it is
 * finished. */
typedef struct wait_set {
    uint8_t age[WAIT_PRODUCTS];
} wait_set;

bool tvm_waits_none(const wait_set *set);
/* A group of the product is committed. */
void tvm_waits_commit(wait_set *set, uint32_t number);
/* At most the latest `pending` groups are unfinished. */
void tvm_waits_end(wait_set *set, unsigned pending);
/* Paths meet. Was any of `other` younger in *into, or not in it? */
bool tvm_waits_add(wait_set *into, const wait_set *other);

/* What may be unfinished at the heads of loops (wgmma_impl.h); once it is known which mma are wgmma. */
tvm_status tvm_wgmma_plan_waits(kernel_state *k);
/* How many of the latest groups may be unfinished where the instruction begins; WAIT_ANY: any number. */
unsigned tvm_wgmma_may_be_pending(const kernel_state *k, const wait_set *set, const tvm_insn *insn);

#endif
