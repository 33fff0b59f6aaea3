/* What is known of the scalar expressions of a kernel, as data: analysis.h finds and asks for it.
 *
 * All facts of integers are about the 64 bits that hold the value read as an i64 (tvm_scalar.i). For bool,
 * i32, u32 and i64 that is the value itself; of a u64 beyond INT64_MAX it is the value less 2^64. So
 * conversions between 64-bit types change nothing, sums and products are those of i64, and what depends on
 * the order of unsigned values (comparisons, division, right shifts, loops) says something of u64 only where
 * the facts show that it is not negative as i64. */
#ifndef TVM_CODEGEN_FACTS_H
#define TVM_CODEGEN_FACTS_H

#include "kernel_state.h"

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
    int64_t low, high; /* of u64: see above */
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

static inline bool tvm_fact_is_integer(tvm_dtype type) {
    return type.kind != TVM_KIND_FLOAT;
}

static inline bool tvm_fact_is_u64(tvm_dtype type) {
    return type.kind == TVM_KIND_UINT && type.bits == 64;
}

/* The part of a number that is a power of two; 0 of 0. Modulo 2^n a divisor is worth that part of it. */
static inline uint64_t tvm_fact_power_part(uint64_t value) {
    return value & (~value + 1);
}

static inline uint64_t tvm_fact_magnitude(int64_t value) {
    return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

/* Does the instruction give a scalar its value? */
static inline bool tvm_fact_sets_scalar(const kernel_state *k, const tvm_insn *insn) {
    return insn->result != TVM_NONE && k->kernel->slots[insn->result].kind == TVM_SLOT_SCALAR;
}

#endif
