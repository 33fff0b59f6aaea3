/* programs/all_reduce.vasm on the interpreter: ranks are threads with contexts of their own, which write into
 * each other's inboxes at the same time. Against sums in float64; the same bits on every rank. */
#include <math.h>
#include <pthread.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { MAX_RANKS = 8, BLOCKS = 64, TILE = 1024, LAUNCHES = 3 };

typedef struct rank_run {
    kernel_kit kit;
    kit_tensor *x, *y;
    tvm_kernel *kernel;
    unsigned launches;
    tvm_status status;
} rank_run;

static void *run_rank(void *data) {
    rank_run *r = data;
    for (unsigned i = 0; i < r->launches && r->status == TVM_OK; i++)
        r->status = tvm_launchv(r->kernel, NULL, r->kit.arguments, r->kit.argument_count);
    return NULL;
}

/* What n, rank, x, turns, inbox, each rank's inbox and y are. */
static void give_arguments(rank_run *ranks, unsigned count, unsigned at, size_t n, tvm_dtype type,
                           kit_tensor *const *inboxes) {
    rank_run *r = &ranks[at];
    kit_scalar(&r->kit, (double)n);
    kit_scalar(&r->kit, at);
    r->x = kit_input(&r->kit, type, n, -4, 4);
    kit_tensor_new(&r->kit, TVM_I(32), BLOCKS);
    for (unsigned p = 0; p <= count; p++) {
        const kit_tensor *inbox = inboxes[p == 0 ? at : p - 1];
        r->kit.arguments[r->kit.argument_count++] =
            (tvm_value){.data = inbox->data, .bytes = kit_bytes(inbox)};
    }
    r->y = kit_tensor_new(&r->kit, type, n);
}

static void check_sums(const rank_run *ranks, unsigned count, size_t n, tvm_dtype type) {
    double units = tvm_dtype_same(type, TVM_F16) ? 0x1p-11 : 0x1p-22;
    for (size_t i = 0; i < n; i++) {
        double sum = 0, most = 0;
        for (unsigned r = 0; r < count; r++) {
            sum += ranks[r].x->values[i];
            most += fabs(ranks[r].x->values[i]);
        }
        for (unsigned r = 0; r < count; r++) {
            double y = ranks[r].y->values[i];
            ck_assert_msg(fabs(y - sum) <= most * 0x1p-21 + fabs(sum) * units, "rank %u, %zu: %g, not %g", r,
                          i, y, sum);
            ck_assert_msg(memcmp(&y, &ranks[0].y->values[i], sizeof y) == 0, "ranks 0 and %u differ", r);
        }
    }
}

static void sums(unsigned count, const char *name, tvm_dtype type, size_t n) {
    rank_run ranks[MAX_RANKS] = {0};
    kit_tensor *inboxes[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    char define[40];
    kernel_kit memory = {0};
    for (unsigned r = 0; r < count; r++) {
        snprintf(define, sizeof define, "%s", name);
        ranks[r].kit = kit_open("all_reduce.vasm", define);
        ranks[r].launches = LAUNCHES;
        ck_assert_int_eq(tvm_get_kernel(ranks[r].kit.program, "all_reduce", &ranks[r].kernel), TVM_OK);
    }
    memory.context = ranks[0].kit.context;
    for (unsigned r = 0; r < count; r++)
        inboxes[r] = kit_tensor_new(&memory, TVM_F32, (size_t)2 * 2 * count * BLOCKS * TILE);
    for (unsigned r = 0; r < count; r++) {
        ranks[r].kit.random += (uint64_t)r << 32;
        give_arguments(ranks, count, r, n, type, inboxes);
    }
    for (unsigned r = 0; r < count; r++)
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    for (unsigned r = 0; r < count; r++) pthread_join(threads[r], NULL);
    for (unsigned r = 0; r < count; r++) {
        ck_assert_msg(ranks[r].status == TVM_OK, "%s", tvm_message(ranks[r].kit.context));
        kit_read(&ranks[r].kit, ranks[r].y);
    }
    check_sums(ranks, count, n, type);
    kit_clear(&memory);
    for (unsigned r = 0; r < count; r++) kit_close(&ranks[r].kit);
}

START_TEST(test_one_step) {
    static const size_t sizes[] = {0, 1, 8, 1023, 4096, 5000};
    sums(2, "RANKS=2", TVM_F16, sizes[_i]);
}
END_TEST

START_TEST(test_more_ranks) {
    sums(3, "RANKS=3", TVM_F16, 2500);
    sums(8, "RANKS=8", TVM_F16, 1100);
}
END_TEST

/* Longer than all blocks' tiles: the last is not whole, nor has every rank a share of it. */
START_TEST(test_two_steps) {
    sums(2, "RANKS=2", TVM_F16, (size_t)BLOCKS * TILE + 1);
    sums(3, "RANKS=3", TVM_F16, (size_t)3 * BLOCKS * TILE + 1500);
}
END_TEST

/* A rank that waits for one that never comes ends at its limit. */
START_TEST(test_alone) {
    rank_run alone = {.kit = kit_open("all_reduce.vasm", "RANKS=2"), .launches = 1};
    kernel_kit memory = {.context = alone.kit.context};
    kit_tensor *inboxes[2];
    tvm_limits limits = {.milliseconds = 50};
    for (unsigned r = 0; r < 2; r++)
        inboxes[r] = kit_tensor_new(&memory, TVM_F32, (size_t)2 * 2 * 2 * BLOCKS * TILE);
    ck_assert_int_eq(tvm_get_kernel(alone.kit.program, "all_reduce", &alone.kernel), TVM_OK);
    ck_assert_int_eq(tvm_set_limits(alone.kit.context, &limits), TVM_OK);
    give_arguments(&alone, 2, 0, 100, TVM_F16, inboxes);
    run_rank(&alone);
    ck_assert_int_eq(alone.status, TVM_LIMIT);
    ck_assert_ptr_nonnull(strstr(tvm_message(alone.kit.context), "50 milliseconds"));
    kit_clear(&memory);
    kit_close(&alone.kit);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("all_reduce");
    TCase *tests = tcase_create("all_reduce");
    tcase_add_loop_test(tests, test_one_step, 0, 6);
    tcase_add_test(tests, test_more_ranks);
    tcase_add_test(tests, test_two_steps);
    tcase_add_test(tests, test_alone);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
