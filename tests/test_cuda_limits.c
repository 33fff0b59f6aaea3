/* Limits of launches on the CUDA device: the budget of turns in the code and its entry of the cache, and
 * blocks that wait for each other, of which a GPU must be able to run all at a time. Without cuda.h there is
 * no such device. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <stdlib.h>

#ifdef HAVE_CUDA_H

#include "device_kit.h"

static const char limited[] = ".vasm 3\n"
                              ".kernel count(n: i32)\n"
                              ".warps 1\n"
                              ".grid 1\n"
                              "    while n > 0\n"
                              "    end\n"
                              ".end\n"
                              ".kernel line(n: i32, s: global u32[n])\n"
                              ".warps 1\n"
                              ".grid n, 2\n"
                              "    lock-semaphore s[block.x], 1\n"
                              "    launch-dependents\n"
                              "    wait-dependency\n"
                              ".end\n"
                              ".kernel pairs(n: i32, s: global u32[n])\n"
                              ".warps 1\n"
                              ".cluster 2\n"
                              ".grid 2 * n\n"
                              "    lock-semaphore s[block.x / 2], 1\n"
                              ".end\n";

static void setup_limited(void) {
    kit_setup_with(&kit, limited);
    snprintf(driver_log, sizeof driver_log, "%s/driver.log", kit.folder);
    snprintf(ptxas_log, sizeof ptxas_log, "%s/ptxas.log", kit.folder);
    setenv("FAKE_CUDA_LOG", driver_log, 1);
    setenv("FAKE_CUDA_MULTIPROCESSORS", "3", 1);
}

static void open_with(tvm_limits limits) {
    ck_assert_msg(open_context() == TVM_OK, "%s", tvm_message(context));
    ck_assert_int_eq(tvm_set_limits(context, &limits), TVM_OK);
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
}

static tvm_status launch_count(void) {
    return tvm_launch(function_of("count"), NULL, 7);
}

START_TEST(the_code_gets_the_limit_of_its_launch) {
    open_with((tvm_limits){.turns = 1000});
    ck_assert_int_eq(tvm_prepare(function_of("count")), TVM_OK);
    setenv("FAKE_CUDA_PARAMS", "ii", 1);
    log_of(driver_log);
    ck_assert_int_eq(launch_count(), TVM_OK);
    assert_log(driver_log, "launch count 1,1,1 32,1,1 0 default 7 1000\n");
    ck_assert_int_eq(tvm_set_limits(context, &(tvm_limits){.turns = 5}), TVM_OK);
    ck_assert_int_eq(launch_count(), TVM_OK);
    assert_log(driver_log, "launch count 1,1,1 32,1,1 0 default 7 5\n");
    ck_assert_int_eq(tvm_set_limits(context, NULL), TVM_OK);
    ck_assert_int_eq(launch_count(), TVM_OK);
    assert_log(driver_log, "launch count 1,1,1 32,1,1 0 default 7 -1\n"); /* 2^32 - 1 */
}
END_TEST

START_TEST(code_that_does_not_count_is_refused) {
    open_with((tvm_limits){.turns = 0});
    ck_assert_int_eq(launch_count(), TVM_OK);
    ck_assert_int_eq(tvm_set_limits(context, &(tvm_limits){.turns = 5}), TVM_OK);
    ck_assert_int_eq(launch_count(), TVM_LIMIT);
    assert_says("kernel 'count': the context limits turns, and the code does not count them");
    tvm_program_free(code);
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
    ck_assert_int_eq(launch_count(), TVM_OK);
}
END_TEST

/* Neither takes the code of the other from the cache. */
START_TEST(the_cache_knows_the_two_apart) {
    static const unsigned turns[] = {0, 9, 0, 10};
    for (unsigned i = 0; i < 4; i++) {
        open_with((tvm_limits){.turns = turns[i]});
        ck_assert_int_eq(launch_count(), TVM_OK);
        close_all();
        assert_log(ptxas_log, "%s",
                   i == 0   ? "--version \n-v -arch=sm_90a\n"
                   : i == 1 ? "-v -arch=sm_90a\n"
                            : "");
    }
}
END_TEST

START_TEST(a_fault_tells_the_limit) {
    setenv("FAKE_CUDA_FAULT", "719", 1);
    open_with((tvm_limits){.turns = 1234});
    ck_assert_int_eq(launch_count(), TVM_OK);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_FAULT);
    assert_says(
        "the kernel launched last is 'count', which ends so, too, where its budget of 1234 turns is used up");
    unsetenv("FAKE_CUDA_FAULT");
}
END_TEST

/* ---- blocks that wait for each other ---- */

/* says: how it is refused; NULL: it is not. */
static void launch_waiting(const char *kernel, int n, const char *says) {
    void *semaphores;
    ck_assert_int_eq(tvm_memory_alloc(context, (size_t)n * 4, &semaphores), TVM_OK);
    ck_assert_int_eq(tvm_launch(function_of(kernel), NULL, n, semaphores), says ? TVM_LIMIT : TVM_OK);
    if (says) assert_says(says);
    ck_assert_int_eq(tvm_memory_free(context, semaphores), TVM_OK);
}

/* 3 multiprocessors, which run 2 blocks each. */
START_TEST(blocks_that_wait_have_room) {
    open_with((tvm_limits){.co_resident = 1});
    ck_assert_int_eq(tvm_prepare(function_of("line")), TVM_OK);
    log_of(driver_log);
    launch_waiting("line", 3, NULL);
    assert_log(driver_log, "together launch line 3,2,1 32,1,1 0 default\n");
    launch_waiting(
        "line", 4,
        "kernel 'line': its blocks wait for each other, and of 4 x 2 x 1 no more than 6 run at a time");
    ck_assert_str_eq(log_of(driver_log), "");
    setenv("FAKE_CUDA_RESIDENT", "0", 1);
    launch_waiting("line", 1, "no more than 0 run");
    unsetenv("FAKE_CUDA_RESIDENT");
    ck_assert_int_eq(tvm_set_limits(context, NULL), TVM_OK);
    launch_waiting("line", 4, NULL);
    assert_log(driver_log, "with 6 1 launch line 4,2,1 32,1,1 0 default\n");
}
END_TEST

/* The GPU runs 2 clusters. */
START_TEST(clusters_that_wait_have_room) {
    open_with((tvm_limits){.co_resident = 1});
    launch_waiting("pairs", 2, NULL);
    launch_waiting("pairs", 3, "of 6 x 1 x 1 no more than 4 run at a time");
}
END_TEST

START_TEST(blocks_that_do_not_wait_need_none) {
    setenv("FAKE_CUDA_RESIDENT", "0", 1);
    open_with((tvm_limits){.co_resident = 1});
    ck_assert_int_eq(tvm_prepare(function_of("count")), TVM_OK);
    log_of(driver_log);
    ck_assert_int_eq(launch_count(), TVM_OK);
    assert_log(driver_log, "launch count 1,1,1 32,1,1 0 default\n");
    unsetenv("FAKE_CUDA_RESIDENT");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("CUDA limits");
    TCase *tests = suite_case(suite, "limits");
    tcase_add_checked_fixture(tests, setup_limited, teardown);
    tcase_add_test(tests, the_code_gets_the_limit_of_its_launch);
    tcase_add_test(tests, code_that_does_not_count_is_refused);
    tcase_add_test(tests, the_cache_knows_the_two_apart);
    tcase_add_test(tests, a_fault_tells_the_limit);
    tcase_add_test(tests, blocks_that_wait_have_room);
    tcase_add_test(tests, clusters_that_wait_have_room);
    tcase_add_test(tests, blocks_that_do_not_wait_need_none);
    return run_suite(suite);
}

#else

/* test_cuda.c shows that the build says so. */
int main(void) {
    return EXIT_SUCCESS;
}

#endif /* HAVE_CUDA_H */
