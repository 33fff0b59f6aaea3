/* What a context refuses or ends by its limits, on the interpreter. */
#include "check_kit.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime_kit.h"
#include "suite_kit.h"

static const char source[] = ".vasm 2\n" SCALE_KERNEL ".kernel count(turns: i32, out: global i32[32])\n"
                             ".warps 1\n"
                             ".grid 1\n"
                             "    %sum = 0\n"
                             "    for %i = 0 to turns\n"
                             "        %sum = %sum + %i % 7\n"
                             "    end\n"
                             "    %tile = alloc-register i32[32], spatial(32), init %sum\n"
                             "    store-global out[0], %tile\n"
                             ".end\n"
                             ".kernel wait(n: i32, s: global u32[n])\n"
                             ".warps 1\n"
                             ".grid n\n"
                             "    if block.x == 0\n"
                             "        release-semaphore s[1], 2\n"
                             "    end\n"
                             "    while block.x == 0\n"
                             "        sync\n"
                             "    end\n"
                             "    lock-semaphore s[0], 1\n"
                             ".end\n"
                             ".kernel own(n: i32)\n"
                             ".warps 1\n"
                             ".grid 2\n"
                             "    %a = alloc-global f32[grid.x, n]\n"
                             "    %b = alloc-global f32[n], clean\n"
                             "    %c = alloc-register f32[32], spatial(32), init 1.0\n"
                             "    store-global %a[block.x, 0], %c\n"
                             ".end\n";

static tvm_context *context;
static tvm_program *code;

static void setup(void) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    tvm_status status = tvm_assemble(context, source, sizeof source - 1, NULL, &code);
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
}

static void teardown(void) {
    tvm_program_free(code);
    tvm_context_free(context);
}

static void set(tvm_limits limits) {
    ck_assert_int_eq(tvm_set_limits(context, &limits), TVM_OK);
}

static void assert_says(tvm_status status, tvm_status expected, const char *words) {
    const char *message = tvm_message(context);
    ck_assert_msg(status == expected && strstr(message, words), "status %d, '%s' does not say '%s'", status,
                  message, words);
}

static void *memory(size_t bytes) {
    void *data = NULL;
    ck_assert_int_eq(tvm_memory_alloc(context, bytes, &data), TVM_OK);
    memset(data, 0, bytes);
    return data;
}

START_TEST(blocks) {
    float *x = memory(512 * 4), *y = memory(512 * 4);
    set((tvm_limits){.blocks = 3});
    assert_says(tvm_launch(kernel_named(code, "scale"), NULL, 512, 2.0, x, y), TVM_LIMIT,
                "kernel 'scale': the launch has 4 blocks, the context's limit is 3");
    ck_assert_int_eq(tvm_launch(kernel_named(code, "scale"), NULL, 384, 2.0, x, y), TVM_OK);
    ck_assert_int_eq(tvm_set_limits(context, NULL), TVM_OK);
    ck_assert_int_eq(tvm_launch(kernel_named(code, "scale"), NULL, 512, 2.0, x, y), TVM_OK);
    tvm_memory_free(context, x);
    tvm_memory_free(context, y);
}
END_TEST

START_TEST(scratch) {
    set((tvm_limits){.scratch_bytes = 1200});
    assert_says(tvm_launch(kernel_named(code, "own"), NULL, 101), TVM_LIMIT,
                "the launch has 1212 bytes of tensors of its own, the context's limit is 1200");
    ck_assert_int_eq(tvm_launch(kernel_named(code, "own"), NULL, 100), TVM_OK);
}
END_TEST

/* A turn of count is two instructions, and the launch five more. */
START_TEST(instructions) {
    int32_t *out = memory(32 * 4);
    set((tvm_limits){.instructions = 20005});
    ck_assert_int_eq(tvm_launch(kernel_named(code, "count"), NULL, 10000, out), TVM_OK);
    ck_assert_int_eq(out[31], 29994);
    out[31] = -1;
    assert_says(tvm_launch(kernel_named(code, "count"), NULL, 10001, out), TVM_LIMIT,
                "the launch executes more than its limit of 20005 instructions");
    ck_assert_int_eq(out[31], -1);
    tvm_memory_free(context, out);
}
END_TEST

START_TEST(milliseconds) {
    int32_t *out = memory(32 * 4);
    set((tvm_limits){.milliseconds = 20});
    assert_says(tvm_launch(kernel_named(code, "count"), NULL, INT32_MAX, out), TVM_LIMIT,
                "the launch takes longer than its limit of 20 milliseconds");
    tvm_memory_free(context, out);
}
END_TEST

/* As soon as the launch runs. */
static void *cancel_what_runs(void *semaphores) {
    _Atomic uint32_t *running = (_Atomic uint32_t *)semaphores + 1;
    while (atomic_load(running) != 2) sched_yield();
    atomic_store(running, 0);
    return tvm_cancel(context) ? NULL : context;
}

/* One block turns for ever, others sleep at a semaphore that nobody releases. */
START_TEST(cancelled) {
    uint32_t *s = memory(16 * 4);
    pthread_t thread;
    void *result;
    for (unsigned round = 0; round < 3; round++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, cancel_what_runs, s), 0);
        assert_says(tvm_launch(kernel_named(code, "wait"), NULL, 3, s), TVM_CANCELLED,
                    "the launch was cancelled");
        ck_assert_int_eq(pthread_join(thread, &result), 0);
        ck_assert_ptr_nonnull(result);
    }
    /* What begins afterwards is not concerned. */
    ck_assert_int_eq(tvm_launch(kernel_named(code, "own"), NULL, 64), TVM_OK);
    tvm_memory_free(context, s);
}
END_TEST

/* What tvm_memory_alloc has made is known, also from the middle of it on; what it has not is refused on
 * demand. */
START_TEST(sizes) {
    float *x = memory(512 * 4), *y = memory(512 * 4), *z = NULL;
    tvm_kernel *scale = kernel_named(code, "scale");
    ck_assert_int_eq(posix_memalign((void **)&z, 64, 512 * 4), 0);
    memset(z, 0, 512 * 4);
    assert_says(tvm_launch(scale, NULL, 516, 2.0, x, y), TVM_ARGUMENT,
                "tensor 'x' has 2064 bytes by its declared shape, but only 2048 lie there");
    assert_says(tvm_launch(scale, NULL, 512, 2.0, x, y + 4), TVM_ARGUMENT, "tensor 'y' has 2048 bytes");
    ck_assert_int_eq(tvm_launch(scale, NULL, 508, 2.0, x, y + 4), TVM_OK);
    ck_assert_int_eq(tvm_launch(scale, NULL, 512, 2.0, x, z), TVM_OK);
    set((tvm_limits){.known_sizes = 1});
    assert_says(tvm_launch(scale, NULL, 512, 2.0, x, z), TVM_LIMIT, "the size of tensor 'y' is not known");
    tvm_value values[4] = {{.i = 512}, {.f = 2}, {.data = x}, {.data = z, .bytes = 512 * 4}};
    ck_assert_int_eq(tvm_launchv(scale, NULL, values, 4), TVM_OK);
    values[2].data = x + 512; /* one past it */
    assert_says(tvm_launchv(scale, NULL, values, 4), TVM_LIMIT, "tensor 'x'");
    tvm_memory_free(context, x);
    values[2].data = x; /* not known any more: only its address is looked at */
    assert_says(tvm_launchv(scale, NULL, values, 4), TVM_LIMIT, "tensor 'x'");
    tvm_memory_free(context, y);
    free(z);
}
END_TEST

START_TEST(wrong_use) {
    ck_assert_int_eq(tvm_set_limits(NULL, NULL), TVM_USAGE);
    ck_assert_int_eq(tvm_cancel(NULL), TVM_USAGE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("limits");
    TCase *tests = tcase_create("limits");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, blocks);
    tcase_add_test(tests, scratch);
    tcase_add_test(tests, instructions);
    tcase_add_test(tests, milliseconds);
    tcase_add_test(tests, cancelled);
    tcase_add_test(tests, sizes);
    tcase_add_test(tests, wrong_use);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
