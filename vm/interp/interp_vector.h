/* The loops over elements in which the interpreter spends its time, compiled for the widest vectors that the
 * processor has. Their results do not depend on which. */
#ifndef TVM_VM_INTERP_VECTOR_H
#define TVM_VM_INTERP_VECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arrays of codes to floats and back; agree with tvm_decode and tvm_encode for every input. */
void tvm_interp_f16_to_f32(float *to, const uint16_t *from, size_t count);
void tvm_interp_bf16_to_f32(float *to, const uint16_t *from, size_t count);
void tvm_interp_f32_to_f16(uint16_t *to, const float *from, size_t count);
void tvm_interp_f32_to_bf16(uint16_t *to, const float *from, size_t count);

/* to = x * y + z with one rounding; an operand of step 0 is a single element, else its step is 1. */
void tvm_interp_fma_f32(float *to, const float *const operands[3], const size_t steps[3], size_t count);

/* to[i] = (the little-endian bits of `from` from bit positions[i] on) & mask, up to 8 bits each. Reads three
 * bytes past the one with the last bit. */
void tvm_interp_gather_bits(uint8_t *to, const uint8_t *from, const uint32_t *positions, uint8_t mask,
                            size_t count);
/* to[i] |= ((the bits of `from` from bit positions[i] on) & mask) << at, mask and at from shapes[i]. */
void tvm_interp_gather_pieces(uint8_t *to, const uint8_t *from, const uint32_t *positions,
                              const uint16_t *shapes, size_t count);
static inline uint16_t interp_shape(unsigned at, uint8_t mask) {
    return (uint16_t)(at << 8 | mask);
}

/* Copies of units of `bytes` bytes each, a power of two up to 64, from places that are counted in units. */
typedef struct interp_units {
    uint32_t bytes, count;
    uint32_t *at; /* of each unit: its place in the source */
} interp_units;
/* Makes units as wide as they stay whole in the source. */
void tvm_interp_widen_units(interp_units *units);
void tvm_interp_copy_units(const interp_units *units, uint8_t *to, const uint8_t *from);

/* to[i] = from[at[i]], of 4 bytes each. */
void tvm_interp_gather_32(uint32_t *to, const uint32_t *from, const uint32_t *at, size_t count);

/* to[i] = table[from[i]]. */
void tvm_interp_lookup_16(uint16_t *to, const uint8_t *from, const uint16_t table[256], size_t count);
void tvm_interp_lookup_32(uint32_t *to, const uint8_t *from, const uint32_t table[256], size_t count);

/* Bytes of scratch, 64-byte aligned, that tvm_interp_mma needs. */
size_t tvm_interp_mma_scratch(size_t m, size_t k);

/* What a and b of tvm_interp_mma are: codes of f16 or bf16, or floats. */
typedef enum tvm_interp_factor { TVM_FACTOR_F16, TVM_FACTOR_BF16, TVM_FACTOR_F32 } tvm_interp_factor;

/* c[m,n] += a[m,k] * b[k,n], all row-major and dense. Each element of c is accumulated in f32 one product
 * after the other, k ascending: the exact product is added and the sum rounded, as fmaf does. */
void tvm_interp_mma(size_t m, size_t n, size_t k, const void *a, const void *b, tvm_interp_factor factor,
                    float *c, void *scratch);

#endif
