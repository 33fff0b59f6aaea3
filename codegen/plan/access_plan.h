/* How the elements of a register tensor travel to and from memory: as few and as wide accesses as contiguity
 * and alignment allow, and the fields in which each access's bits and the tensor's words correspond. */
#ifndef TVM_CODEGEN_ACCESS_PLAN_H
#define TVM_CODEGEN_ACCESS_PLAN_H

#include "kernel_state.h"

/* One access of `width` bits (8 ... 128) at bit `offset` of its class. Accesses of one class share a base
 * address and a predicate. Its units are registers of 32 bits (one of 8 or 16 for the narrow ones). */
typedef struct access {
    uint32_t class_id;
    int64_t offset;
    unsigned width;
    uint32_t first_unit, units;
} access;

/* Bits [unit_bit, +length) of a unit are bits [word_bit, +length) of a word of the tensor. */
typedef struct field {
    uint32_t word;
    uint8_t unit_bit, word_bit, length;
} field;

typedef struct access_plan {
    access *accesses;
    uint32_t count;
    field *fields;        /* in the order of units */
    uint32_t *unit_field; /* by unit: its first field; one more entry at the end */
    uint32_t field_count, unit_count;
    unsigned widest; /* bits of the widest access */
} access_plan;

/* Element `local` lies at element offset[local] of class class_id[local]; every class base is aligned to
 * align_bits (a power of two, at least 8); accesses are at most max_bits wide. */
tvm_status tvm_access_plan_make(kernel_state *k, uint32_t locals, unsigned bits, const int64_t *offset,
                                const uint32_t *class_id, unsigned align_bits, unsigned max_bits,
                                access_plan *plan);
void tvm_access_plan_free(access_plan *plan);

#endif
