/* Check, whose assertions note their place in a file each time that they hold, which takes longer than what
 * most of them assert: here only one that does not hold says where it stands. */
#ifndef TVM_TESTS_CHECK_KIT_H
#define TVM_TESTS_CHECK_KIT_H

#include <check.h>

#undef ck_assert_msg
#undef ck_assert
/* All the others are made of this one. */
#define ck_assert_msg(expr, ...) ((expr) ? (void)0 : ck_abort_msg(__VA_ARGS__))
#define ck_assert(expr)          ck_assert_msg(expr, "Assertion '%s' failed", #expr)

#endif
