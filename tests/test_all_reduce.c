/* programs/all_reduce.vasm on the interpreter: ranks are threads with contexts of their own, which write into
 * each other's inboxes at the same time. Against sums in float64; the same bits on every rank. What stands
 * behind a sum is compared with what the residual has become. */
#include <math.h>
#include <pthread.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { MAX_RANKS = 8, BLOCKS = 128, WORDS = 1024, TILE = 2048 /* of f16 */, LAUNCHES = 3 };

typedef struct rank_run {
    kernel_kit kit;
    kit_tensor *x, *y, *gain, *moments, *gained; /* y: of all_reduce_add the residual */
    double *old;                                 /* its elements before the launches */
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

static kit_tensor *inbox_new(kernel_kit *memory, unsigned ranks) {
    return kit_tensor_new(memory, TVM_F32, (size_t)2 * 2 * ranks * BLOCKS * (16 / ranks) * WORDS);
}

/* What rank, x, turns, inbox and each rank's inbox are. */
static void give_inboxes(rank_run *ranks, unsigned count, unsigned at, size_t n, tvm_dtype type,
                         kit_tensor *const *inboxes) {
    rank_run *r = &ranks[at];
    kit_scalar(&r->kit, at);
    r->x = kit_input(&r->kit, type, n, -4, 4);
    kit_tensor_new(&r->kit, TVM_I(32), BLOCKS);
    for (unsigned p = 0; p <= count; p++) {
        const kit_tensor *inbox = inboxes[p == 0 ? at : p - 1];
        r->kit.arguments[r->kit.argument_count++] =
            (tvm_value){.data = inbox->data, .bytes = kit_bytes(inbox)};
    }
}

static void give_sum(rank_run *ranks, unsigned count, unsigned at, size_t n, tvm_dtype type,
                     kit_tensor *const *inboxes) {
    kit_scalar(&ranks[at].kit, (double)n);
    give_inboxes(ranks, count, at, n, type, inboxes);
    ranks[at].y = kit_tensor_new(&ranks[at].kit, type, n);
}

/* The residual and the gains are the same on all ranks. */
static void give_sum_with_residual(rank_run *ranks, unsigned count, unsigned at, size_t m, size_t n,
                                   tvm_dtype type, kit_tensor *const *inboxes) {
    rank_run *r = &ranks[at];
    kit_scalar(&r->kit, (double)m);
    kit_scalar(&r->kit, (double)n);
    give_inboxes(ranks, count, at, m * n, type, inboxes);
    r->kit.random = 77;
    r->y = kit_input(&r->kit, type, m * n, -9, 9);
    r->old = malloc(m * n * sizeof *r->old);
    ck_assert_ptr_nonnull(r->old);
    memcpy(r->old, r->y->values, m * n * sizeof *r->old);
    r->gain = kit_input(&r->kit, type, n, -1, 1);
    r->moments = kit_tensor_new(&r->kit, TVM_F32, m * ((n + 63) / 64));
    r->gained = kit_tensor_new(&r->kit, type, m * n);
}

static double unit_of(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_F16) ? 0x1p-11 : 0x1p-22;
}

static void check_sums(const rank_run *ranks, unsigned count, size_t n, tvm_dtype type) {
    double units = unit_of(type);
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

/* Opens the ranks, with inboxes in a memory that all see. */
static void open_ranks(rank_run *ranks, unsigned count, const char *define, const char *entry,
                       kernel_kit *memory, kit_tensor **inboxes) {
    char own[40];
    for (unsigned r = 0; r < count; r++) {
        snprintf(own, sizeof own, "%s", define);
        ranks[r].kit = kit_open("all_reduce.vasm", own);
        ranks[r].launches = LAUNCHES;
        ck_assert_int_eq(tvm_get_kernel(ranks[r].kit.program, entry, &ranks[r].kernel), TVM_OK);
        ranks[r].kit.random += (uint64_t)r << 32;
    }
    memory->context = ranks[0].kit.context;
    for (unsigned r = 0; r < count; r++) inboxes[r] = inbox_new(memory, count);
}

static void run_ranks(rank_run *ranks, unsigned count) {
    pthread_t threads[MAX_RANKS];
    for (unsigned r = 0; r < count; r++)
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    for (unsigned r = 0; r < count; r++) pthread_join(threads[r], NULL);
    for (unsigned r = 0; r < count; r++) {
        ck_assert_msg(ranks[r].status == TVM_OK, "%s", tvm_message(ranks[r].kit.context));
        kit_read(&ranks[r].kit, ranks[r].y);
    }
}

static void sums(unsigned count, const char *define, tvm_dtype type, size_t n) {
    rank_run ranks[MAX_RANKS] = {0};
    kit_tensor *inboxes[MAX_RANKS];
    kernel_kit memory = {0};
    open_ranks(ranks, count, define, "all_reduce", &memory, inboxes);
    for (unsigned r = 0; r < count; r++) give_sum(ranks, count, r, n, type, inboxes);
    run_ranks(ranks, count);
    check_sums(ranks, count, n, type);
    kit_clear(&memory);
    for (unsigned r = 0; r < count; r++) kit_close(&ranks[r].kit);
}

/* Each launch adds the same sum to the residual. */
static void check_residual(const rank_run *ranks, unsigned count, size_t n, tvm_dtype type) {
    for (size_t i = 0; i < n; i++) {
        double sum = 0, most = fabs(ranks[0].old[i]);
        for (unsigned r = 0; r < count; r++) {
            sum += ranks[r].x->values[i];
            most += LAUNCHES * fabs(ranks[r].x->values[i]);
        }
        double wanted = ranks[0].old[i] + LAUNCHES * sum;
        for (unsigned r = 0; r < count; r++) {
            double y = ranks[r].y->values[i];
            ck_assert_msg(fabs(y - wanted) <= LAUNCHES * most * unit_of(type), "rank %u, %zu: %g, not %g", r,
                          i, y, wanted);
            ck_assert_msg(memcmp(&y, &ranks[0].y->values[i], sizeof y) == 0, "ranks 0 and %u differ", r);
        }
    }
}

static void check_norm(rank_run *r, size_t m, size_t n, tvm_dtype type) {
    size_t parts = (n + 63) / 64;
    kit_read(&r->kit, r->moments);
    kit_read(&r->kit, r->gained);
    for (size_t i = 0; i < m * parts; i++) {
        double sum = 0;
        for (size_t j = i % parts * 64; j < n && j < (i % parts + 1) * 64; j++)
            sum += r->y->values[i / parts * n + j] * r->y->values[i / parts * n + j];
        ck_assert_msg(fabs(r->moments->values[i] - sum) <= sum * 0x1p-18, "moment %zu: %g, not %g", i,
                      r->moments->values[i], sum);
    }
    for (size_t i = 0; i < m * n; i++) {
        double wanted = r->y->values[i] * r->gain->values[i % n];
        ck_assert_msg(fabs(r->gained->values[i] - wanted) <= fabs(wanted) * unit_of(type) + 0x1p-24,
                      "%zu times its gain: %g, not %g", i, r->gained->values[i], wanted);
    }
}

static void residuals(unsigned count, const char *define, tvm_dtype type, size_t m, size_t n) {
    rank_run ranks[MAX_RANKS] = {0};
    kit_tensor *inboxes[MAX_RANKS];
    kernel_kit memory = {0};
    open_ranks(ranks, count, define, "all_reduce_add", &memory, inboxes);
    for (unsigned r = 0; r < count; r++) give_sum_with_residual(ranks, count, r, m, n, type, inboxes);
    run_ranks(ranks, count);
    check_residual(ranks, count, m * n, type);
    for (unsigned r = 0; r < count; r++) check_norm(&ranks[r], m, n, type);
    kit_clear(&memory);
    for (unsigned r = 0; r < count; r++) {
        free(ranks[r].old);
        kit_close(&ranks[r].kit);
    }
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

/* Of more tiles than there are blocks. */
START_TEST(test_long) {
    sums(2, "RANKS=2", TVM_F16, (size_t)BLOCKS * TILE + 1);
}
END_TEST

/* The last tile is not whole, nor has every rank a share of it; of more shares than there are blocks. */
START_TEST(test_two_steps) {
    sums(8, "RANKS=8", TVM_F16, (size_t)16 * TILE + 1);
    sums(3, "RANKS=3", TVM_F16, (size_t)3 * BLOCKS * TILE + 1500);
}
END_TEST

/* One token and more, of rows that are no whole tiles, and of more tiles than there are blocks. */
START_TEST(test_residual) {
    residuals(2, "RANKS=2", TVM_F16, 1, 2048);
    residuals(2, "RANKS=2", TVM_F16, 3, 1000);
    residuals(2, "RANKS=2", TVM_F16, 0, 64);
    residuals(1, "RANKS=1", TVM_F16, 2, 72);
    residuals(8, "RANKS=8", TVM_F16, 1, 1160);
    residuals(2, "RANKS=2", TVM_F16, BLOCKS + 3, 72);
}
END_TEST

/* A rank that waits for one that never comes ends at its limit. */
START_TEST(test_alone) {
    rank_run alone = {.kit = kit_open("all_reduce.vasm", "RANKS=2"), .launches = 1};
    kernel_kit memory = {.context = alone.kit.context};
    kit_tensor *inboxes[2];
    tvm_limits limits = {.milliseconds = 50};
    for (unsigned r = 0; r < 2; r++) inboxes[r] = inbox_new(&memory, 2);
    ck_assert_int_eq(tvm_get_kernel(alone.kit.program, "all_reduce", &alone.kernel), TVM_OK);
    ck_assert_int_eq(tvm_set_limits(alone.kit.context, &limits), TVM_OK);
    give_sum(&alone, 2, 0, 100, TVM_F16, inboxes);
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
    tcase_add_test(tests, test_long);
    tcase_add_test(tests, test_two_steps);
    tcase_add_test(tests, test_residual);
    tcase_add_test(tests, test_alone);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
