/* Private to codegen/analysis: how ranges and divisors are found.
 *
 * All facts of integers are about the 64 bits that hold the value read as an i64 (tvm_scalar.i). For bool,
 * i32, u32 and i64 that is the value itself; of a u64 beyond INT64_MAX it is the value less 2^64. So
 * conversions between 64-bit types change nothing, sums and products are those of i64, and what depends on
 * the order of unsigned values (comparisons, division, right shifts, loops) says something of u64 only where
 * the facts show that it is not negative as i64. */
#ifndef TVM_CODEGEN_FACTS_H
#define TVM_CODEGEN_FACTS_H

#include "analysis.h"

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

/* Least common multiple; 0 when one of them is 0. */
uint64_t tvm_fact_common_multiple(uint64_t a, uint64_t b);

/* Does the instruction give a scalar its value? */
static inline bool tvm_fact_sets_scalar(const kernel_state *k, const tvm_insn *insn) {
    return insn->result != TVM_NONE && k->kernel->slots[insn->result].kind == TVM_SLOT_SCALAR;
}

void tvm_fact_type_range(tvm_dtype type, int64_t *low, int64_t *high);

/* Ranges of all slots and expressions, and which are exact: from assumptions, definitions, loops, and, for
 * variables that are assigned again, by induction over all their assignments. */
void tvm_find_ranges(const kernel_state *k);
/* Does the operation itself not wrap, whatever its operands did? */
bool tvm_fact_keeps_value(const kernel_state *k, const tvm_expr *node);

/* Divisors of all slots and expressions; after the ranges. */
void tvm_find_divisors(const kernel_state *k);

#endif
