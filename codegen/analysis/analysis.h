/* What is known of scalar expressions: constants, divisors, ranges, and proofs that an index lies inside.
 * Everything said here holds for every launch that passes the launch-time checks, wrapping of integers
 * included. */
#ifndef TVM_CODEGEN_ANALYSIS_H
#define TVM_CODEGEN_ANALYSIS_H

#include "facts.h"

/* A sum of multiples of expressions that are looked into no further (atoms), and a constant. */
enum { LINEAR_TERMS = 12 };
typedef struct linear {
    struct {
        uint32_t atom; /* expression */
        int64_t coefficient;
    } terms[LINEAR_TERMS];
    unsigned count;
    int64_t constant;
    bool failed; /* too long, or a coefficient overflowed */
} linear;

/* Is the integer's value known where code is being emitted? */
bool tvm_fact_constant(const kernel_state *k, uint32_t expr, int64_t *value);
/* Has the expression one value during the whole kernel? */
bool tvm_fact_stable(const kernel_state *k, uint32_t expr);
/* Does the value stay the same while the innermost loop runs, that of this scope (tvm_fact_enter_loop)? */
bool tvm_fact_invariant(const kernel_state *k, uint32_t expr, uint32_t scope);
/* The largest known divisor of the expression's value; 0 when the value is 0. */
uint64_t tvm_fact_divisor(const kernel_state *k, uint32_t expr);

/* Proof of index >= 0. */
bool tvm_fact_not_negative(const kernel_state *k, uint32_t index);
/* Proof of 0 <= index and index + extent <= bound, as integers; bound is not negative. */
bool tvm_fact_inside(const kernel_state *k, uint32_t index, int64_t extent, uint32_t bound);
/* Proof of 0 <= index <= most, which is at most INT32_MAX. */
bool tvm_fact_at_most(const kernel_state *k, uint32_t index, int64_t most);
/* Proof that an integer is above zero, as a number of its type. */
bool tvm_fact_positive(const kernel_state *k, uint32_t expr);

/* index = constant + rest modulo the index's width, where rest is a multiple of *divisor (0: rest is 0). */
void tvm_fact_split(const kernel_state *k, uint32_t index, int64_t *constant, uint64_t *divisor);

/* Adds factor * expr to a sum; equal to it modulo the width of the expression's type, and exactly if the
 * expression is exact. *budget bounds the work. */
void tvm_linear_add(const kernel_state *k, linear *sum, uint32_t expr, int64_t factor, unsigned *budget);
/* The same, exactly: an expression that may wrap is an atom. */
void tvm_linear_add_value(const kernel_state *k, linear *sum, uint32_t expr, int64_t factor,
                          unsigned *budget);
void tvm_linear_add_term(linear *sum, uint32_t atom, int64_t factor);
void tvm_linear_add_scaled(linear *sum, const linear *more, int64_t factor);
/* Proof of sum >= 0 for every launch. */
bool tvm_linear_not_negative(const kernel_state *k, const linear *sum);

/* Entering the first (or else the second) part of IF or the body of WHILE: conditions that hold there are
 * pushed. The return value is for tvm_fact_leave. */
unsigned tvm_fact_enter(kernel_state *k, uint32_t expr, bool holds, uint32_t first, uint32_t last);
void tvm_fact_leave(kernel_state *k, unsigned mark);
/* The conditions entered since there were `mark` do not hold wherever the code is used that is emitted next.
 * Returns the mark with which tvm_fact_leave brings them back. */
unsigned tvm_fact_set_aside(kernel_state *k, unsigned mark);

/* Notes what a loop, the instructions [first, last), assigns. */
void tvm_fact_enter_loop(kernel_state *k, uint32_t scope, uint32_t first, uint32_t last);

/* Constants of slots that are known on this path. */
void tvm_fact_set_constant(kernel_state *k, uint32_t slot, int64_t value);
void tvm_fact_forget(kernel_state *k, uint32_t slot);
/* Forgets every slot that the instructions [first, last) assign. */
void tvm_fact_forget_assigned(kernel_state *k, uint32_t first, uint32_t last);

#endif
