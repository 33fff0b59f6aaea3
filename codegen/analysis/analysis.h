/* What is known of scalar expressions: constants, divisors, ranges, and proofs that an index lies inside.
 * Everything said here holds for every launch that passes the launch-time checks, wrapping of integers
 * included. */
#ifndef TVM_CODEGEN_ANALYSIS_H
#define TVM_CODEGEN_ANALYSIS_H

#include "claims.h"
#include "kernel_state.h"

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

/* What is known of the slot of a scalar. */
typedef struct slot_fact {
    uint32_t assigned;   /* how many instructions assign it; parameters: 0 */
    uint32_t set_in;     /* the scope of the last loop begun that assigns it (tvm_fact_enter_loop); 0: none */
    uint32_t definition; /* the only LET's expression, when its leaves do not change until the slot's last
                            use; or TVM_NONE */
    uint32_t loop;       /* the FOR whose variable it is, when nothing else assigns it; or TVM_NONE */
    bool given;          /* its only assignment gives it a value that is no expression's, as from memory */
    const tvm_operand *interval; /* `given` with a range whose bounds do not change until the slot's last use:
                                    low and end; or NULL */
    bool stable;                 /* one value during the whole kernel */
    bool constant;               /* its value is known here */
    bool reached;                /* while ranges are found: something is known to assign it */
    int64_t value;
    uint64_t divisor;  /* of every value it has; 0: it is 0 */
    int64_t low, high; /* see facts.h for u64 */
} slot_fact;

typedef struct expr_fact {
    bool stable;
    bool varies;    /* a leaf is a parameter, a block index or a grid extent: never a constant of this path */
    bool exact;     /* integers: as a sum of multiples of leaves it does not wrap */
    bool reached;   /* while ranges are found: what it reads is */
    uint32_t scope; /* the loop for which `invariant` was found; 0: none */
    bool invariant;
    uint64_t divisor;
    int64_t low, high;
    /* what tvm_fact_constant found when facts.version was `seen` */
    uint64_t seen;
    bool seen_known;
    int64_t seen_value;
} expr_fact;

/* A condition that holds where code is being emitted. */
typedef struct known_condition {
    uint32_t expr;
    bool holds; /* or: does not hold */
} known_condition;

typedef struct facts {
    slot_fact *slots;
    expr_fact *exprs;
    uint64_t *assumed_divisor; /* by expression: from .assume and checked launches; 1 when nothing is known */
    int64_t *assumed_low, *assumed_high;
    known_condition conditions[2 * TVM_MAX_DEPTH];
    unsigned condition_count;
    uint32_t grid_leaf[3]; /* the expression that is the grid's extent, or TVM_NONE */
    uint64_t version;      /* counts changes of the slots' constants */
    uint64_t work;         /* what is left for proofs in this kernel; without any, nothing is proven */
    uint32_t *scalars_set; /* by instruction: those before it that assign a scalar */
} facts;

tvm_status tvm_facts_make(kernel_state *k);
void tvm_facts_free(kernel_state *k);

/* Is the integer's value known where code is being emitted? */
bool tvm_fact_constant(const kernel_state *k, uint32_t expr, int64_t *value);
/* Has the expression one value during the whole kernel? */
bool tvm_fact_stable(const kernel_state *k, uint32_t expr);
/* Does the value stay the same while the innermost loop runs, that of this scope (tvm_fact_enter_loop)? */
bool tvm_fact_invariant(const kernel_state *k, uint32_t expr, uint32_t scope);
/* The largest known divisor of the expression's value; 0 when the value is 0. */
uint64_t tvm_fact_divisor(const kernel_state *k, uint32_t expr);
uint64_t tvm_fact_gcd(uint64_t a, uint64_t b); /* gcd(0, x) = x */

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

/* Takes down what is proved where code is being emitted (its place is filled in); and what is known of every
 * operand wherever it is evaluated. k->claims is there. */
void tvm_fact_claim(const kernel_state *k, const tvm_claim *made);
void tvm_fact_claim_values(kernel_state *k);

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
