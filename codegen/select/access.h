/* How the elements of a register tensor travel to and from memory: as few and as wide accesses as contiguity
 * and alignment allow, and the fields in which each access's bits and the tensor's words correspond. */
#ifndef TVM_CODEGEN_ACCESS_H
#define TVM_CODEGEN_ACCESS_H

#include "emit.h"

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
tvm_status tvm_access_plan_make(emitter *e, uint32_t locals, unsigned bits, const int64_t *offset,
                                const uint32_t *class_id, unsigned align_bits, unsigned max_bits,
                                access_plan *plan);
void tvm_access_plan_free(access_plan *plan);

/* The registers that a load of access `a` fills: the tensor's own words where a unit is a whole word. */
void tvm_access_load_registers(emitter *e, const access_plan *plan, const access *a, uint32_t slot,
                               reg units[4]);
/* Spreads loaded units over the words. started[word] is set for words that have bits already. */
void tvm_access_spread(emitter *e, const access_plan *plan, const access *a, uint32_t slot,
                       const reg units[4], bool *started);
/* The registers to store for access `a`, put together from words. */
void tvm_access_gather(emitter *e, const access_plan *plan, const access *a, uint32_t slot, reg units[4]);

/* "v4.b32", "b32", "u16", "u8" for a width, and the operand list "{%w0, %w1}" or "%w0". */
const char *tvm_access_type(unsigned width);
const char *tvm_access_operands(const reg units[4], uint32_t count, char text_out[64]);

/* Bits [at, at + length) of `into` become bits [from, ...) of `value`; `started` false: the rest of `into` is
 * nothing. */
void tvm_emit_insert(emitter *e, const char *into, bool started, unsigned at, const char *value,
                     unsigned from, unsigned length);

#endif
