/* Check, whose assertions note their place in a file each time that they hold, which takes longer than what
 * most of them assert: here only one that does not hold says where it stands. And a test may take as long as
 * a busy machine makes it: only one that hangs is ended. */
#ifndef TVM_TESTS_CHECK_KIT_H
#define TVM_TESTS_CHECK_KIT_H

#include <check.h>
#include <stdlib.h>

enum { TVM_HANGS = 3600 }; /* seconds after which a test is taken for one that hangs */

#undef ck_assert_msg
#undef ck_assert
/* All the others are made of this one. */
#define ck_assert_msg(expr, ...) ((expr) ? (void)0 : ck_abort_msg(__VA_ARGS__))
#define ck_assert(expr)          ck_assert_msg(expr, "Assertion '%s' failed", #expr)

static inline TCase *tvm_tcase_create(const char *name) {
    TCase *tcase = tcase_create(name);
    if (!getenv("CK_DEFAULT_TIMEOUT")) tcase_set_timeout(tcase, TVM_HANGS);
    return tcase;
}
#define tcase_create tvm_tcase_create

#endif
