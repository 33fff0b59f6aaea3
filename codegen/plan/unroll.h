/* How often the bodies of loops are copied. */
#ifndef TVM_CODEGEN_UNROLL_H
#define TVM_CODEGEN_UNROLL_H

#include "kernel_state.h"

/* Sets k->loops. */
tvm_status tvm_loops_plan(kernel_state *k);

/* A loop with a counter between constants. */
typedef struct known_loop {
    int64_t start, step;
    uint64_t turns;
} known_loop;
/* False: its turns are not known where code is written. */
bool tvm_loop_known(const kernel_state *k, const tvm_insn *loop, known_loop *known);

#endif
