/* What the prover claims while a kernel is translated, taken down for a test that checks it when the kernel
 * runs. A claim is about the values that scalar expressions have where an instruction is executed; on a path
 * on which the translation knows constants, as of the variable of a loop that it unrolls, where they have
 * these values. */
#ifndef TVM_CODEGEN_CLAIMS_H
#define TVM_CODEGEN_CLAIMS_H

#include "kernel_state.h"

typedef enum tvm_claim_kind {
    TVM_CLAIM_RANGE,   /* low <= expr <= high; of a u64 its bits as an i64 */
    TVM_CLAIM_DIVISOR, /* expr is a multiple of `divisor`; 0: it is 0 */
    TVM_CLAIM_REST,    /* expr is low plus a multiple of `divisor`, modulo its width */
    TVM_CLAIM_INSIDE,  /* 0 <= expr and expr + low <= bound */
} tvm_claim_kind;

enum { TVM_CLAIM_CONSTANTS = 8 };

typedef struct tvm_claim {
    tvm_claim_kind kind;
    uint32_t kernel, insn; /* of the program */
    uint32_t expr, bound;
    int64_t low, high;
    uint64_t divisor;
    unsigned constants; /* slots that have these values there */
    uint32_t slot[TVM_CLAIM_CONSTANTS];
    int64_t value[TVM_CLAIM_CONSTANTS];
} tvm_claim;

typedef struct tvm_claims {
    tvm_claim *items; /* freed by who owns it */
    size_t count, capacity;
    uint64_t left_out; /* of paths with more constants, or where no instruction was being translated */
    bool failed;       /* out of memory */
} tvm_claims;

/* Takes down what is proved where code is being emitted (its place is filled in); and what is known of every
 * operand wherever it is evaluated. k->claims is
 * there. */
void tvm_fact_claim(const kernel_state *k, const tvm_claim *made);
void tvm_fact_claim_values(kernel_state *k);

#endif
