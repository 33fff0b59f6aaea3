/* Makes a program that shows a failure smaller: lines, and openers with their ends, are left out, and
 * variables exchanged for others, as long as the failure stays. */
#ifndef TVM_TESTS_GENERATE_SHRINK_H
#define TVM_TESTS_GENERATE_SHRINK_H

#include <stdbool.h>

/* Does the text, any text, fail as the one did that is shrunk? */
typedef bool (*shrink_fails)(const char *text, void *data);

/* malloc'ed. At most `tries` texts are asked for. */
char *shrink(const char *text, shrink_fails fails, void *data, unsigned tries);

#endif
