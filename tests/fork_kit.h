/* Processes of a test. Check keeps its messages in a file that parent and child share: a child that asserts
 * anything, be it that it is one, can write between two parts of the parent's. */
#ifndef TVM_TESTS_FORK_KIT_H
#define TVM_TESTS_FORK_KIT_H

#include "check_kit.h"
#include <unistd.h>

/* fork, which succeeds; in the child, where it returns 0, nothing of Check has run. */
static inline pid_t fork_quietly(void) {
    pid_t child = fork();
    if (child != 0) ck_assert_int_gt(child, 0);
    return child;
}

#endif
