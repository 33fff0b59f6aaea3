/* Random numbers by counting: Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
 * SC 2011), and the numbers that are made of its words. The code generator emits the same operations in the
 * same order, each of which rounds alike on a GPU, so the bits are the same. */
#ifndef TVM_ISA_RANDOM_H
#define TVM_ISA_RANDOM_H

#include <stdint.h>

enum { TVM_PHILOX_WORDS = 4, TVM_PHILOX_ROUNDS = 10 };

/* Of the rounds: multipliers of counter words 0 and 2, and what is added to the key. */
#define TVM_PHILOX_M0 UINT32_C(0xd2511f53)
#define TVM_PHILOX_M1 UINT32_C(0xcd9e8d57)
#define TVM_PHILOX_W0 UINT32_C(0x9e3779b9)
#define TVM_PHILOX_W1 UINT32_C(0xbb67ae85)

void tvm_philox(const uint32_t key[2], const uint32_t counter[TVM_PHILOX_WORDS],
                uint32_t words[TVM_PHILOX_WORDS]);

/* A multiple of 2^-24, at least 0 and below 1: the 24 high bits of the word. */
float tvm_random_uniform(uint32_t word);

/* Of the standard normal distribution: sqrt(2) erfinv(x), where |x| = 1 - t with t = (2k + 1) 2^-32 of the
 * low 31 bits k, and the high bit is the sign. With w = -log(t (2 - t)) it is a polynomial in w - 2.5 where w
 * < 5, else one in sqrt(w) - 3 (Giles, "Approximating the erfinv function", GPU Computing Gems, 2011), times
 * x. Logarithm: Cephes, logf. Coefficients stand with the highest power first. */
enum { TVM_ERFINV_COEFFICIENTS = 9, TVM_LOG_COEFFICIENTS = 9 };
extern const float tvm_erfinv_center[TVM_ERFINV_COEFFICIENTS], tvm_erfinv_tail[TVM_ERFINV_COEFFICIENTS];
extern const float tvm_log_coefficients[TVM_LOG_COEFFICIENTS];
#define TVM_LOG_2_HIGH 0.693359375f
#define TVM_LOG_2_LOW  -2.12194440e-4f
#define TVM_SQRT_HALF  0.707106781186547524f
#define TVM_SQRT_2     1.41421356237309505f
float tvm_random_normal(uint32_t word);

#endif
