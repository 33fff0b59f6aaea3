/* Running a suite of Check. */
#ifndef TVM_TESTS_SUITE_KIT_H
#define TVM_TESTS_SUITE_KIT_H

#include "check_kit.h"
#include <stdlib.h>

/* A case of the suite. */
static inline TCase *suite_case(Suite *suite, const char *name) {
    TCase *tests = tcase_create(name);
    suite_add_tcase(suite, tests);
    return tests;
}

/* Runs the suite, and frees it; the exit status of the test program. */
static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
