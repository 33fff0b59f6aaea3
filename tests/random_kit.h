/* Random words of a test: the same each time that it runs. */
#ifndef TVM_TESTS_RANDOM_KIT_H
#define TVM_TESTS_RANDOM_KIT_H

#include <stdint.h>

static uint64_t random_state = UINT64_C(88172645463325252);

static inline uint64_t random_bits(void) { /* xorshift64: Marsaglia, "Xorshift RNGs", 2003 */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

#endif
