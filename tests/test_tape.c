/* Tapes: those that are made of graphs are verified and, where any number of blocks take their tasks in any
 * rhythm, run each task after what it needs; those that are damaged are refused, each with its message. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "graph_kit.h"

#include <stdlib.h>

#include "runtime_kit.h"
#include "suite_kit.h"
#include "tape.h"

enum { N = 500, BLOCKS = 4 };

static tvm_context *context;
static tvm_program *program;
static tvm_graph *graph;
static tvm_tape tape;
static _Alignas(16) float x[N], z[N];

static void assert_ok(tvm_status status) {
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
}

static void open_graph(void) {
    ck_assert_int_eq(tvm_graph_create(context, "g", &graph), TVM_OK);
    graph_vector made;
    vector_at(&made, x, N, TVM_TENSOR_CPU);
    assert_ok(tvm_graph_add_tensor(graph, "x", TVM_GRAPH_INPUT, &made.tensor));
    vector_at(&made, z, N, TVM_TENSOR_CPU);
    assert_ok(tvm_graph_add_tensor(graph, "z", TVM_GRAPH_OUTPUT, &made.tensor));
}

static void setup(void) {
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    assert_ok(tvm_assemble(context, graph_source, strlen(graph_source), NULL, &program));
    open_graph();
}

static void close_graph(void) {
    tvm_tape_free(&tape);
    tvm_graph_free(graph);
    graph = NULL;
}

static void teardown(void) {
    close_graph();
    tvm_program_free(program);
    tvm_context_free(context);
}

static void temporaries(int count) {
    char name[16];
    graph_vector made;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(tvm_graph_add_tensor(graph, name, TVM_GRAPH_TEMPORARY,
                                       vector_at(&made, NULL, N, TVM_TENSOR_CPU)));
    }
}

static void scale(const char *name, const char *from, const char *to) {
    assert_ok(
        ADD_LAUNCH(graph, name, kernel_named(program, "scale"), INTEGER(N), REAL(2), NAMED(from), NAMED(to)));
}

static void finish(uint32_t blocks) {
    tvm_diags diags = {0};
    assert_ok(tvm_graph_finish(graph));
    ck_assert_int_eq(tvm_tape_make(graph, blocks, &tape, &diags), TVM_OK);
    ck_assert_msg(!tvm_tape_verify(graph, &tape, &diags), "%s", diags.count ? diags.items[0].message : "");
    tvm_diags_free(&diags);
}

/* x to a to b to c to z; a and c lie in the same bytes. */
static void make_chain(uint32_t blocks) {
    temporaries(3);
    scale("first", "x", "t0");
    scale("second", "t0", "t1");
    scale("third", "t1", "t2");
    scale("fourth", "t2", "z");
    finish(blocks);
    ck_assert_uint_eq(graph->tensors[2]->place, graph->tensors[4]->place);
}

START_TEST(launches_become_tasks) {
    make_chain(3);
    ck_assert_uint_eq(tape.task_count, 8);
    ck_assert_uint_eq(tape.tasks[3].launch, 1);
    ck_assert(tape.tasks[3].first == 3 && tape.tasks[3].count == 1 && tape.tasks[3].raise == 1);
    ck_assert(tape.tasks[3].wait_count == 1 && tape.waits[tape.tasks[3].first_wait].counter == 0);
    ck_assert_uint_eq(tape.waits[tape.tasks[3].first_wait].value, BLOCKS);
    tvm_tape none;
    ck_assert_int_eq(tvm_tape_make(graph, 0, &none, NULL), TVM_ARGUMENT);
}
END_TEST

/* ---- damaged tapes ---- */

static void assert_refused(const char *text) {
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_tape_verify(graph, &tape, &diags), TVM_INVALID);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, text) != NULL, "'%s' does not say '%s'",
                  diags.items[0].message, text);
    tvm_diags_free(&diags);
}

static void restore(const tvm_tape_task *tasks, const tvm_tape_wait *waits) {
    memcpy(tape.tasks, tasks, tape.task_count * sizeof *tasks);
    memcpy(tape.waits, waits, tape.wait_count * sizeof *waits);
}

START_TEST(damaged_rows_are_refused) {
    tvm_tape_task tasks[8];
    tvm_tape_wait waits[8];
    make_chain(2);
    memcpy(tasks, tape.tasks, tape.task_count * sizeof *tasks);
    memcpy(waits, tape.waits, tape.wait_count * sizeof *waits);
    tape.tasks[5].launch = 4;
    assert_refused("task 5: there is no launch 4");
    restore(tasks, waits);
    tape.tasks[5].count = 3;
    assert_refused("task 5: 3 blocks from block 2 on are not within the 4 of launch 'third'");
    restore(tasks, waits);
    tape.tasks[5].first = 1;
    assert_refused("task 5: block 1 of launch 'third' is in another task, too");
    restore(tasks, waits);
    tape.tasks[5].first = 3, tape.tasks[5].count = 1;
    assert_refused("block 2 of launch 'third' is in no task");
    restore(tasks, waits);
    tape.task_count--;
    assert_refused("block 2 of launch 'fourth' is in no task");
    tape.task_count++;
    tape.tasks[5].counter = 4;
    assert_refused("task 5: there is no counter 4");
    restore(tasks, waits);
    tape.waits[1].counter = UINT32_MAX;
    assert_refused("task 4: there is no counter 4294967295");
    restore(tasks, waits);
    tape.tasks[2].first_wait = UINT32_MAX;
    assert_refused("task 2: its waits are not within the tape's 3");
}
END_TEST

START_TEST(waits_that_do_not_end_are_refused) {
    make_chain(2);
    tape.waits[1].value = 5;
    assert_refused("task 4: of launch 'third' waits for 5 of counter 1, which never exceeds 4");
    tape.waits[1] = (tvm_tape_wait){.counter = 3, .value = 1};
    assert_refused(
        "task 4: of launch 'third' waits for 1 of counter 3, which the tasks before it raise to 0");
    tape.waits[1] = (tvm_tape_wait){.counter = 1, .value = 4};
    tape.tasks[3].raise = 0;
    assert_refused("task 4: of launch 'third' waits for 4 of counter 1, which never exceeds 2");
}
END_TEST

START_TEST(tasks_that_nothing_orders_are_refused) {
    make_chain(2);
    tape.waits[1].value = 2; /* either task of `second` may have raised it */
    assert_refused(
        "task 4: launch 'third' writes 't2' where launch 'first' in task 0 writes 't0', and neither task "
        "waits for the other");
    tape.waits[1].value = 3; /* both must */
    ck_assert_int_eq(tvm_tape_verify(graph, &tape, NULL), TVM_OK);
    tape.tasks[6].wait_count = 0;
    assert_refused("task 6: launch 'fourth' reads 't2' where launch 'first' in task 0 writes 't0'");
}
END_TEST

START_TEST(memory_that_is_not_alive_is_refused) {
    make_chain(2);
    graph->tensors[3]->place = graph->bytes;
    assert_refused("launch 'second' touches 't1' outside of its memory");
    graph->tensors[3]->place = 0;
    ck_assert_int_eq(tvm_tape_verify(graph, &tape, NULL), TVM_OK);
    close_graph();
    /* t0 is read again at the end, when t2 lies in its bytes: a plan that is wrong */
    open_graph();
    temporaries(3);
    scale("first", "x", "t0");
    scale("second", "t0", "t1");
    scale("third", "t1", "t2");
    assert_ok(ADD_LAUNCH(graph, "last", kernel_named(program, "sum"), INTEGER(N), NAMED("t0"), NAMED("t2"),
                         NAMED("z")));
    finish(2);
    graph->tensors[4]->tensor.data = graph->tensors[2]->tensor.data;
    assert_refused("launch 'last' reads 't0', in whose bytes launch 'third' has written 't2' since");
}
END_TEST

/* ---- blocks that take tasks ---- */

enum { WORKERS = 5 };

/* Do the launches of two tasks meet in a tensor by its name, one writing? */
static bool meet(const graph_launch *a, const graph_launch *b) {
    for (uint32_t p = 0; p < a->count; p++)
        for (uint32_t q = 0; q < b->count; q++)
            if (a->tensors[p] != TVM_NONE && a->tensors[p] == b->tensors[q] &&
                (a->accesses[p] | b->accesses[q]) & TVM_PARAM_WRITTEN)
                return true;
    return false;
}

/* All earlier launches that meet this one, by the order of the graph, have ended. */
static void assert_may_begin(uint32_t task, const uint64_t *ended) {
    uint32_t launch = tape.tasks[task].launch;
    for (uint32_t i = 0; i < launch; i++)
        if (meet(graph->launches[i], graph->launches[launch])) ck_assert_uint_eq(ended[i], BLOCKS);
}

static bool may_go_on(uint32_t task, const uint64_t *counters) {
    for (uint32_t w = 0; w < tape.tasks[task].wait_count; w++) {
        const tvm_tape_wait *wait = &tape.waits[tape.tasks[task].first_wait + w];
        if (counters[wait->counter] < wait->value) return false;
    }
    return true;
}

/* Workers that each have a task (or UINT32_MAX), and wait or run; one step of one of them at a time. */
static void run_tape(unsigned workers) {
    uint64_t counters[16] = {0}, ended[16] = {0};
    uint32_t has[WORKERS], next = 0, done = 0;
    bool runs[WORKERS] = {false};
    for (unsigned w = 0; w < workers; w++) has[w] = UINT32_MAX;
    for (long step = 0; done < tape.task_count; step++) {
        unsigned w = (unsigned)rand() % workers;
        ck_assert_int_lt(step, 100000);
        if (has[w] == UINT32_MAX) {
            if (next < tape.task_count) has[w] = next++;
        } else if (!runs[w]) {
            runs[w] = may_go_on(has[w], counters);
            if (runs[w]) assert_may_begin(has[w], ended);
        } else {
            const tvm_tape_task *task = &tape.tasks[has[w]];
            counters[task->counter] += task->raise;
            ended[task->launch] += task->count;
            runs[w] = false, has[w] = UINT32_MAX, done++;
        }
    }
}

static void make_random(unsigned seed) {
    enum { TENSORS = 5, LAUNCHES = 10 };
    bool written[TENSORS] = {false};
    char name[8], from[8], other[8], to[8];
    srand(seed);
    temporaries(TENSORS);
    for (int i = 0; i < LAUNCHES; i++) {
        int a = rand() % TENSORS, b = rand() % TENSORS, c = i < TENSORS ? i : rand() % TENSORS;
        snprintf(from, sizeof from, written[a] ? "t%d" : "x", a);
        snprintf(other, sizeof other, written[b] ? "t%d" : "x", b);
        snprintf(to, sizeof to, "t%d", c);
        snprintf(name, sizeof name, "l%d", i);
        assert_ok(ADD_LAUNCH(graph, name, kernel_named(program, "sum"), INTEGER(N), NAMED(from), NAMED(other),
                             NAMED(to)));
        written[c] = true;
    }
    scale("last", "t0", "z");
    finish(1 + seed % BLOCKS);
}

START_TEST(any_number_of_blocks_runs_a_tape) {
    for (unsigned seed = 1; seed <= 30; seed++) {
        make_random(seed);
        run_tape(1 + seed % WORKERS);
        close_graph();
        open_graph();
    }
}
END_TEST

/* What waits for a launch without blocks waits for what that waits for. */
START_TEST(a_launch_without_blocks_keeps_the_order) {
    tvm_diags diags = {0};
    temporaries(1);
    scale("first", "x", "t0");
    scale("second", "t0", "z");
    assert_ok(tvm_graph_finish(graph));
    graph_launch *between = graph->launches[1];
    ck_assert_uint_eq(between->after_count, 1);
    close_graph();
    open_graph();
    temporaries(1);
    scale("first", "x", "t0");
    const char *first = "first", *nothing = "nothing";
    const tvm_graph_argument none[] = {INTEGER(0), REAL(1), NAMED(NULL), NAMED(NULL)};
    const tvm_graph_argument last[] = {INTEGER(N), REAL(1), NAMED("t0"), NAMED("z")};
    tvm_kernel *kernel = kernel_named(program, "scale");
    assert_ok(tvm_graph_add_launch(graph, "nothing", kernel, none, 4, &first, 1));
    assert_ok(tvm_graph_add_launch(graph, "last", kernel, last, 4, &nothing, 1));
    assert_ok(tvm_graph_finish(graph));
    ck_assert(graph->launches[2]->after_count == 1 && graph->launches[2]->after[0] == 1);
    ck_assert_int_eq(tvm_tape_make(graph, BLOCKS, &tape, &diags), TVM_OK);
    ck_assert_int_eq(tvm_tape_verify(graph, &tape, &diags), TVM_OK);
    ck_assert(tape.task_count == 2 && tape.tasks[1].wait_count == 1);
    ck_assert_uint_eq(tape.waits[tape.tasks[1].first_wait].counter, 0);
}
END_TEST

/* ---- the interpreter ---- */

enum { M = 40, D = 24, H = 56 };

static tvm_status matrix(const char *name, const char *whole, tvm_graph_role role, void *data, int64_t rows,
                         int64_t columns) {
    int64_t shape[2] = {rows, columns};
    tvm_tensor made = {
        .data = data, .ndim = columns ? 2 : 1, .dtype = {TVM_TENSOR_FLOAT, 16, 1}, .shape = shape};
    made.device.device_type = TVM_TENSOR_CPU;
    return whole ? tvm_graph_add_part(graph, name, whole, &made)
                 : tvm_graph_add_tensor(graph, name, role, &made);
}

/* r = max(a w1, 0), y = max(r w2, 0): two products and two element-wise kernels; integers, exact in f16. */
static void make_perceptron(uint16_t *a, uint16_t *w1, uint16_t *w2, uint16_t *y, uint32_t blocks) {
    tvm_kernel *product = kernel_named(program, "product"), *relu = kernel_named(program, "relu");
    close_graph();
    ck_assert_int_eq(tvm_graph_create(context, "g", &graph), TVM_OK);
    assert_ok(matrix("a", NULL, TVM_GRAPH_INPUT, a, M, D));
    assert_ok(matrix("w1", NULL, TVM_GRAPH_INPUT, w1, D, H));
    assert_ok(matrix("w2", NULL, TVM_GRAPH_INPUT, w2, H, D));
    assert_ok(matrix("y", NULL, TVM_GRAPH_OUTPUT, y, M * D, 0));
    assert_ok(matrix("s", NULL, TVM_GRAPH_TEMPORARY, NULL, M, H));
    assert_ok(matrix("s_row", "s", TVM_GRAPH_TEMPORARY, NULL, M * H, 0));
    assert_ok(matrix("r", NULL, TVM_GRAPH_TEMPORARY, NULL, M, H));
    assert_ok(matrix("r_row", "r", TVM_GRAPH_TEMPORARY, NULL, M * H, 0));
    assert_ok(matrix("t", NULL, TVM_GRAPH_TEMPORARY, NULL, M, D));
    assert_ok(matrix("t_row", "t", TVM_GRAPH_TEMPORARY, NULL, M * D, 0));
    assert_ok(ADD_LAUNCH(graph, "p1", product, INTEGER(M), INTEGER(H), INTEGER(D), NAMED("a"), NAMED("w1"),
                         NAMED("s")));
    assert_ok(ADD_LAUNCH(graph, "e1", relu, INTEGER(M * H), NAMED("s_row"), NAMED("r_row")));
    assert_ok(ADD_LAUNCH(graph, "p2", product, INTEGER(M), INTEGER(D), INTEGER(H), NAMED("r"), NAMED("w2"),
                         NAMED("t")));
    assert_ok(ADD_LAUNCH(graph, "e2", relu, INTEGER(M * D), NAMED("t_row"), NAMED("y")));
    finish(blocks);
}

static int positive_product(const int *a, const int *b, int k, int n, int i, int j) {
    int sum = 0;
    for (int p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
    return sum > 0 ? sum : 0;
}

/* -1, 0 or 1, and as f16. */
static void fill(int *values, uint16_t *codes, int count) {
    for (int i = 0; i < count; i++) {
        values[i] = rand() % 3 - 1;
        codes[i] = (uint16_t)(values[i] ? values[i] > 0 ? 0x3c00 : 0xbc00 : 0);
    }
}

START_TEST(the_interpreter_runs_a_tape) {
    static _Alignas(16) uint16_t ca[M * D], cw1[D * H], cw2[H * D], cy[M * D];
    static int a[M * D], w1[D * H], w2[H * D], r[M * H];
    static const uint32_t sizes[] = {1, 2, 5, 100};
    srand(7);
    fill(a, ca, M * D), fill(w1, cw1, D * H), fill(w2, cw2, H * D);
    for (int e = 0; e < M * H; e++) r[e] = positive_product(a, w1, D, H, e / H, e % H);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        tvm_diags diags = {0};
        memset(cy, 0xff, sizeof cy);
        make_perceptron(ca, cw1, cw2, cy, sizes[s]);
        ck_assert_msg(!tvm_tape_run(graph, &tape, &diags), "%s", diags.count ? diags.items[0].message : "");
        for (int e = 0; e < M * D; e++)
            ck_assert_double_eq(tvm_decode(TVM_F16, cy[e]), positive_product(r, w2, H, D, e / D, e % D));
    }
    /* without the waits the last tasks of the tape run first, and read nothing */
    for (uint32_t i = 0; i < tape.task_count; i++) tape.tasks[i].wait_count = 0;
    ck_assert_int_eq(tvm_tape_verify(graph, &tape, NULL), TVM_INVALID);
}
END_TEST

START_TEST(blocks_that_belong_together_are_no_tasks) {
    tvm_diags diags = {0};
    assert_ok(ADD_LAUNCH(graph, "own", kernel_named(program, "own"), INTEGER(N), NAMED("x"), NAMED("z")));
    finish(2);
    ck_assert_int_eq(tvm_tape_run(graph, &tape, &diags), TVM_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "the blocks of launch 'own' share memory"));
    tvm_diags_free(&diags);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tape");
    TCase *tests = suite_case(suite, "tape");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, launches_become_tasks);
    tcase_add_test(tests, damaged_rows_are_refused);
    tcase_add_test(tests, waits_that_do_not_end_are_refused);
    tcase_add_test(tests, tasks_that_nothing_orders_are_refused);
    tcase_add_test(tests, memory_that_is_not_alive_is_refused);
    tcase_add_test(tests, any_number_of_blocks_runs_a_tape);
    tcase_add_test(tests, a_launch_without_blocks_keeps_the_order);
    tcase_add_test(tests, the_interpreter_runs_a_tape);
    tcase_add_test(tests, blocks_that_belong_together_are_no_tasks);
    return run_suite(suite);
}
