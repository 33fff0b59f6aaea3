/* Small functions of whole numbers. */
#ifndef TVM_NUMBERS_H
#define TVM_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool tvm_is_power_of_two(uint64_t value) {
    return value != 0 && (value & (value - 1)) == 0;
}

/* The greatest n with 2^n <= value; 0 of 0. */
static inline unsigned tvm_log2_floor(uint64_t value) {
    unsigned n = 0;
    while (value >>= 1) n++;
    return n;
}

/* The least multiple of `step`, which is not 0, that is not less than the value. */
static inline uint64_t tvm_round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

/* The greatest common divisor; of 0 and x it is x. */
static inline uint64_t tvm_gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
