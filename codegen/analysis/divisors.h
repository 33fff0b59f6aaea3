/* Divisors of values. */
#ifndef TVM_CODEGEN_DIVISORS_H
#define TVM_CODEGEN_DIVISORS_H

#include "kernel_state.h"

/* Least common multiple; 0 when one of them is 0. */
uint64_t tvm_fact_common_multiple(uint64_t a, uint64_t b);
/* Divisors of all slots and expressions; after the ranges. */
void tvm_find_divisors(const kernel_state *k);

#endif
