/* How much is tested: with TVM_TEST_ALL in the environment (1, say) everything that is done in half an hour;
 * without it, what shows each mechanism and each boundary once, so that the run takes minutes.
 * TVM_TEST_ALL=exhaustive adds products of options that take ptxas hours. */
#ifndef TVM_TESTS_EXTENT_KIT_H
#define TVM_TESTS_EXTENT_KIT_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool test_all(void) {
    const char *all = getenv("TVM_TEST_ALL");
    return all != NULL && *all != '\0';
}

static inline bool test_exhaustively(void) {
    const char *all = getenv("TVM_TEST_ALL");
    return all != NULL && strcmp(all, "exhaustive") == 0;
}

/* Is iteration `i` of a loop run? All are with TVM_TEST_ALL, else one of `every`. */
static inline bool test_takes(unsigned long i, unsigned every) {
    return i % every == 0 || test_all();
}

#endif
