/* Graphs as CUDA graphs against a driver that has no GPU (fake_cuda.c): the nodes and dependencies that it is
 * asked for, what a replay and other arguments cost, and that every call may fail. Without cuda.h: that the
 * build says so. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "graph_kit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_kit.h"
#include "runtime_kit.h"
#include "suite_kit.h"

#ifdef HAVE_CUDA_H

enum { N = 300, CALLS_MOST = 400 };

static cuda_kit kit;
static char driver_log[80];
static tvm_context *context;
static tvm_program *program;
static tvm_graph *graph;
static char *memory; /* of the device: 4 vectors */

static void setup(void) {
    kit_setup_with(&kit, graph_source);
    snprintf(driver_log, sizeof driver_log, "%s/driver.log", kit.folder);
    setenv("FAKE_CUDA_LOG", driver_log, 1);
}

static void close_all(void) {
    tvm_graph_free(graph);
    if (context) tvm_memory_free(context, memory);
    tvm_program_free(program);
    tvm_context_free(context);
    graph = NULL, program = NULL, context = NULL;
}

static void teardown(void) {
    close_all();
    ck_assert_int_eq(kit.driver->live(), 0);
    ck_assert_int_eq(kit.driver->mistakes(), 0);
    kit_teardown(&kit);
}

static tvm_status open_all(void) {
    const tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = kit.cache};
    void *data = NULL;
    tvm_status status = tvm_context_create(&options, &context);
    if (!status) status = tvm_load(context, kit.bytecode, kit.bytecode_size, &program);
    if (!status) status = tvm_memory_alloc(context, 4 * 4096, &data);
    memory = data;
    return status;
}

static void assert_ok(tvm_status status) {
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
}

static tvm_kernel *kernel(const char *name) {
    return kernel_named(program, name);
}

static tvm_status tensor(const char *name, tvm_graph_role role, int place, int64_t n) {
    graph_vector made;
    return tvm_graph_add_tensor(
        graph, name, role, vector_at(&made, place < 0 ? NULL : memory + place * 4096, n, TVM_TENSOR_CUDA));
}

static tvm_status set_tensor(const char *name, int place, int64_t n) {
    graph_vector made;
    return tvm_graph_set_tensor(graph, name, vector_at(&made, memory + place * 4096, n, TVM_TENSOR_CUDA));
}

/* What the driver was asked for since the last call. */
static const char *driver_said(void) {
    static char text[16384];
    FILE *log = fopen(driver_log, "r");
    size_t size = log ? fread(text, 1, sizeof text - 1, log) : 0;
    text[size] = '\0';
    if (log) fclose(log);
    unlink(driver_log);
    return text;
}

static void assert_said(const char *text) {
    const char *said = driver_said();
    ck_assert_msg(strstr(said, text) != NULL, "'%s' does not say '%s'", said, text);
}

static bool is_persistent; /* make_diamond's graph */

/* t0 = f x, t1 = x + y, z = t0 + t1; by the name `last` of a kernel. */
static tvm_status make_diamond(void) {
    tvm_status status = tvm_graph_create(context, "g", &graph);
    if (!status) status = tensor("x", TVM_GRAPH_INPUT, 0, N);
    if (!status) status = tensor("y", TVM_GRAPH_INPUT, 1, N);
    if (!status) status = tensor("z", TVM_GRAPH_OUTPUT, 2, N);
    if (!status) status = tensor("t0", TVM_GRAPH_TEMPORARY, -1, N);
    if (!status) status = tensor("t1", TVM_GRAPH_TEMPORARY, -1, N);
    if (!status) status = tvm_graph_add_scalar(graph, "f", "f32", &(tvm_value){.f = 2});
    if (!status)
        status = ADD_LAUNCH(graph, "twice", kernel("scale"), INTEGER(N), NAMED("f"), NAMED("x"), NAMED("t0"));
    if (!status)
        status = ADD_LAUNCH(graph, "both", kernel("sum"), INTEGER(N), NAMED("x"), NAMED("y"), NAMED("t1"));
    if (!status)
        status = ADD_LAUNCH(graph, "all", kernel("sum"), INTEGER(N), NAMED("t0"), NAMED("t1"), NAMED("z"));
    if (!status && is_persistent) status = tvm_graph_set_persistent(graph);
    return status ? status : tvm_graph_finish(graph);
}

START_TEST(nodes_have_the_dependencies) {
    assert_ok(open_all());
    assert_ok(make_diamond());
    driver_said();
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "node 0: scale 3,1,1 32 0\nnode 1: sum 3,1,1 32 0\n"
                                    "node 2 after 0 1: sum 3,1,1 32 0\nreplay\n");
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "replay\n");
}
END_TEST

/* A kernel of as many blocks as there are tasks, one for each of the launches' blocks, which has room for two
 * rows: 64 bytes and up to 32 of parameters. */
START_TEST(a_persistent_graph_is_one_node) {
    assert_ok(open_all());
    is_persistent = true;
    assert_ok(make_diamond());
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_said("node 0: tvm_persistent 9,1,1 32 192\nnode 0 with 2 1\nreplay\n");
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "replay\n");
    assert_ok(tvm_graph_set_scalar(graph, "f", &(tvm_value){.f = 0.5}));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_said("node 0: tvm_persistent 9,1,1 32 192\nnode 0 with 2 1\nreplay\n");
    ck_assert_int_eq(kit.driver->calls("cuCtxSynchronize"), 1); /* what runs is not taken away */
    ck_assert_int_eq(tvm_graph_set_persistent(graph), TVM_USAGE);
}
END_TEST

/* Beside asking which context is current, as every launch does. */
START_TEST(a_replay_is_one_call) {
    assert_ok(open_all());
    assert_ok(make_diamond());
    assert_ok(tvm_graph_launch(graph, NULL));
    kit.driver->push(NULL); /* not the context's: it is made current, and the other one again */
    kit.driver->reset();
    assert_ok(tvm_graph_launch(graph, memory));
    ck_assert_int_eq(kit.driver->calls("cuGraphLaunch"), 1);
    ck_assert_int_eq(kit.driver->calls(NULL), 4);
}
END_TEST

START_TEST(other_arguments_go_to_their_nodes) {
    char expected[300];
    assert_ok(open_all());
    assert_ok(make_diamond());
    assert_ok(tvm_graph_launch(graph, NULL));
    driver_said();
    assert_ok(tvm_graph_set_scalar(graph, "f", &(tvm_value){.f = 0.5}));
    setenv("FAKE_CUDA_PARAMS", "ifp", 1);
    assert_ok(tvm_graph_launch(graph, NULL));
    unsetenv("FAKE_CUDA_PARAMS");
    snprintf(expected, sizeof expected, "set 0: scale 3,1,1 32 0 300 0.5 %p\nreplay\n", (void *)memory);
    ck_assert_str_eq(driver_said(), expected);
    assert_ok(set_tensor("z", 3, N));
    setenv("FAKE_CUDA_PARAMS", "ippp", 1);
    assert_ok(tvm_graph_launch(graph, NULL));
    unsetenv("FAKE_CUDA_PARAMS");
    const char *said = driver_said();
    snprintf(expected, sizeof expected, " %p\nreplay\n", (void *)(memory + 3 * 4096));
    ck_assert_msg(!strncmp(said, "set 2: sum", 10) && strstr(said, expected), "%s", said);
    ck_assert_int_eq(kit.driver->calls("cuGraphInstantiateWithFlags"), 1);
}
END_TEST

/* A launch without blocks is a node that runs nothing: with blocks again the graph is another. */
START_TEST(a_launch_may_have_no_blocks) {
    assert_ok(open_all());
    assert_ok(tvm_graph_create(context, "g", &graph));
    assert_ok(tensor("x", TVM_GRAPH_INPUT, 0, N));
    assert_ok(tensor("z", TVM_GRAPH_STATE, 2, N));
    assert_ok(tvm_graph_add_scalar(graph, "count", "i32", &(tvm_value){.i = 0}));
    assert_ok(ADD_LAUNCH(graph, "a", kernel("some"), INTEGER(N), NAMED("count"), NAMED("x"), NAMED("z")));
    assert_ok(ADD_LAUNCH(graph, "b", kernel("some"), INTEGER(N), INTEGER(1), NAMED("x"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    driver_said();
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "node 0: nothing\nnode 1 after 0: some 1,1,1 32 0\nreplay\n");
    assert_ok(tvm_graph_set_scalar(graph, "count", &(tvm_value){.i = 2}));
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "node 0: some 2,1,1 32 0\nnode 1 after 0: some 1,1,1 32 0\nreplay\n");
    ck_assert_int_eq(kit.driver->calls("cuCtxSynchronize"), 1); /* what runs is not taken away */
    assert_ok(tvm_graph_set_scalar(graph, "count", &(tvm_value){.i = 3}));
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "set 0: some 3,1,1 32 0\nreplay\n");
}
END_TEST

START_TEST(arguments_that_do_not_fit_launch_nothing) {
    assert_ok(open_all());
    assert_ok(tvm_graph_create(context, "g", &graph));
    assert_ok(tensor("x", TVM_GRAPH_INPUT, 0, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, 2, N));
    assert_ok(tvm_graph_add_scalar(graph, "n", "i32", &(tvm_value){.i = N}));
    assert_ok(ADD_LAUNCH(graph, "a", kernel("any_scale"), NAMED("n"), REAL(1), NAMED("x"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_said("node 0: scale_wide 2,1,1 32 0\nreplay\n");
    assert_ok(tvm_graph_set_scalar(graph, "n", &(tvm_value){.i = 200}));
    ck_assert_int_eq(tvm_graph_launch(graph, NULL), TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(context),
                         "launch 'a': entry 'any_scale': kernel 'scale': tensor 'x' is to be "
                         "f32[200], but is float32[300]") != NULL,
                  "%s", tvm_message(context));
    ck_assert_str_eq(driver_said(), "");
    assert_ok(tvm_graph_set_scalar(graph, "n", &(tvm_value){.i = N}));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_said("set 0: scale_wide 2,1,1 32 0\nreplay\n");
}
END_TEST

/* x's launch may begin before the one of t has ended: what it reads early no launch writes. */
static void make_early(tvm_graph_role role, const char *name) {
    assert_ok(tvm_graph_create(context, "g", &graph));
    assert_ok(tensor("x", TVM_GRAPH_INPUT, 0, N));
    assert_ok(tensor("w", role, role == TVM_GRAPH_TEMPORARY ? -1 : 1, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, 2, N));
    assert_ok(tensor("t", TVM_GRAPH_TEMPORARY, -1, N));
    assert_ok(ADD_LAUNCH(graph, "first", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("t")));
    if (role == TVM_GRAPH_TEMPORARY)
        assert_ok(ADD_LAUNCH(graph, "made", kernel("scale"), INTEGER(N), REAL(2), NAMED("t"), NAMED("w")));
    assert_ok(ADD_LAUNCH(graph, "early", kernel(name), INTEGER(N), NAMED("w"), NAMED("t"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    driver_said();
    assert_ok(tvm_graph_launch(graph, NULL));
}

START_TEST(early_launches_overlap_where_they_may) {
    assert_ok(open_all());
    make_early(TVM_GRAPH_INPUT, "early");
    ck_assert_str_eq(driver_said(), "node 0: scale 3,1,1 32 0\nnode 1: early 3,1,1 32 0\n"
                                    "edge 0 1 port 1 type 1\nreplay\n");
    /* weights that lie where the first launch reads are as good */
    assert_ok(set_tensor("w", 0, N));
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_str_eq(driver_said(), "set 1: early 3,1,1 32 0\nreplay\n");
    close_all();
    assert_ok(open_all());
    make_early(TVM_GRAPH_TEMPORARY, "early"); /* an earlier launch writes what is read early */
    ck_assert_str_eq(driver_said(), "node 0: scale 3,1,1 32 0\nnode 1 after 0: scale 3,1,1 32 0\n"
                                    "node 2 after 1: early 3,1,1 32 0\nreplay\n");
}
END_TEST

/* A promise that what is read early is settled makes the launch early, though another one writes the tensor;
 * a wait-dependency that not all blocks come to keeps nothing behind it from being early. */
START_TEST(early_launches_may_read_what_is_settled) {
    assert_ok(open_all());
    make_early(TVM_GRAPH_TEMPORARY, "settled");
    ck_assert_str_eq(driver_said(), "node 0: scale 3,1,1 32 0\nnode 1 after 0: scale 3,1,1 32 0\n"
                                    "node 2: settled 3,1,1 32 0\nedge 1 2 port 1 type 1\nreplay\n");
    close_all();
    assert_ok(open_all());
    make_early(TVM_GRAPH_TEMPORARY, "branch");
    ck_assert_str_eq(driver_said(), "node 0: scale 3,1,1 32 0\nnode 1 after 0: scale 3,1,1 32 0\n"
                                    "node 2 after 1: branch 3,1,1 32 0\nreplay\n");
}
END_TEST

/* One that waits for two launches begins when both have ended. */
START_TEST(early_launches_wait_for_one_alone) {
    assert_ok(open_all());
    assert_ok(tvm_graph_create(context, "g", &graph));
    assert_ok(tensor("x", TVM_GRAPH_INPUT, 0, N));
    assert_ok(tensor("w", TVM_GRAPH_OUTPUT, 1, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, 2, N));
    assert_ok(tensor("t", TVM_GRAPH_TEMPORARY, -1, N));
    const char *const after[] = {"other"};
    const tvm_graph_argument arguments[] = {INTEGER(N), NAMED("x"), NAMED("t"), NAMED("z")};
    assert_ok(ADD_LAUNCH(graph, "first", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("t")));
    assert_ok(ADD_LAUNCH(graph, "other", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("w")));
    assert_ok(tvm_graph_add_launch(graph, "early", kernel("early"), arguments, 4, after, 1));
    assert_ok(tvm_graph_finish(graph));
    driver_said();
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_said("node 2 after 0 1: early 3,1,1 32 0\nreplay\n");
}
END_TEST

/* The memory of a launch's own tensors: clean one stays zero, and is no other launch's. */
START_TEST(own_tensors_have_memory) {
    unsigned long long own[2], clean[2];
    assert_ok(open_all());
    assert_ok(tvm_graph_create(context, "g", &graph));
    assert_ok(tensor("x", TVM_GRAPH_INPUT, 0, N));
    assert_ok(tensor("t", TVM_GRAPH_TEMPORARY, -1, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, 2, N));
    assert_ok(ADD_LAUNCH(graph, "a", kernel("own"), INTEGER(N), NAMED("x"), NAMED("t")));
    assert_ok(ADD_LAUNCH(graph, "b", kernel("own"), INTEGER(N), NAMED("t"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    char *report = NULL;
    assert_ok(tvm_graph_report(graph, &report));
    ck_assert_msg(strstr(report, "memory of its own: 2560 bytes, 3840 unshared") != NULL, "%s", report);
    free(report);
    driver_said();
    setenv("FAKE_CUDA_PARAMS", "ipppp", 1);
    assert_ok(tvm_graph_launch(graph, NULL));
    unsetenv("FAKE_CUDA_PARAMS");
    const char *said = driver_said(), *second = strstr(said, "node 1 after 0");
    ck_assert_int_eq(sscanf(said, "node 0: own 3,1,1 32 0 300 %*x %*x %llx %llx", &own[0], &clean[0]), 2);
    ck_assert_int_eq(
        sscanf(second, "node 1 after 0: own 3,1,1 32 0 300 %*x %*x %llx %llx", &own[1], &clean[1]), 2);
    ck_assert(own[0] == own[1] && clean[0] != clean[1]);
    for (int i = 0; i < 4; i++) ck_assert_uint_eq(((uint32_t *)(uintptr_t)clean[1])[i], 0);
}
END_TEST

START_TEST(a_timeline_has_graphs_by_name) {
    char path[100], text[16384];
    snprintf(path, sizeof path, "%s/trace", kit.folder);
    assert_ok(open_all());
    assert_ok(make_diamond());
    assert_ok(tvm_trace_start(context, path));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_ok(tvm_trace_stop(context));
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    ck_assert_msg(strstr(text, "{\"name\":\"g\",\"cat\":\"tilusvm\",\"ph\":\"X\",\"pid\":0,") != NULL, "%s",
                  text);
}
END_TEST

START_TEST(a_fault_names_the_graph) {
    assert_ok(open_all());
    assert_ok(make_diamond());
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_ok(tvm_launch(kernel("scale"), NULL, 4, 1.0, memory, memory));
    assert_ok(tvm_graph_launch(graph, NULL));
    setenv("FAKE_CUDA_FAULT", "700", 1);
    ck_assert_int_eq(tvm_synchronize(context, NULL), TVM_FAULT);
    ck_assert_msg(strstr(tvm_message(context), "'one of graph g'") != NULL, "%s", tvm_message(context));
    unsetenv("FAKE_CUDA_FAULT");
}
END_TEST

/* All of a graph's life, in which one call fails; each failure is told, nothing is left, and the next try
 * works. */
static tvm_status live(void) {
    tvm_status status = open_all();
    if (!status) status = make_diamond();
    if (!status) status = tvm_graph_launch(graph, NULL);
    if (!status) status = tvm_graph_set_scalar(graph, "f", &(tvm_value){.f = 3});
    if (!status) status = tvm_graph_launch(graph, NULL);
    return status;
}

static void fail_each_call(void) {
    bool failed = true;
    assert_ok(live());
    close_all();
    for (long nth = 1; failed && nth < CALLS_MOST; nth++) {
        kit.driver->fail_nth(nth, 999);
        tvm_status status = live();
        failed = kit.driver->failed() != NULL;
        const char *name = failed ? kit.driver->failed() : "";
        /* what only tells of another failure, or names the context, may fail unseen */
        if (status) ck_assert_msg(context == NULL || *tvm_message(context), "%s", name);
        if (!strncmp(name, "cuGraph", 7) && !strstr(name, "Destroy")) {
            ck_assert_int_eq(status, TVM_DRIVER);
            ck_assert_msg(strstr(tvm_message(context), "graph 'g': ") != NULL, "%s", tvm_message(context));
            assert_ok(tvm_graph_launch(graph, NULL));
        }
        close_all();
        kit.driver->fail_nth(0, 0);
        ck_assert_int_eq(kit.driver->live(), 0);
        ck_assert_int_eq(kit.driver->mistakes(), 0);
    }
    ck_assert(!failed);
}

START_TEST(every_call_may_fail) {
    fail_each_call();
}
END_TEST

START_TEST(every_call_of_a_persistent_graph_may_fail) {
    is_persistent = true;
    fail_each_call();
}
END_TEST

/* Nothing runs, and the arguments can be mended. */
START_TEST(a_persistent_kernel_needs_room) {
    is_persistent = true;
    assert_ok(open_all());
    assert_ok(make_diamond());
    setenv("FAKE_CUDA_RESIDENT", "0", 1);
    ck_assert_int_eq(tvm_graph_launch(graph, NULL), TVM_UNSUPPORTED);
    unsetenv("FAKE_CUDA_RESIDENT");
    ck_assert_msg(
        strstr(tvm_message(context), "graph 'g': no block of the persistent kernel, of 32 threads, has room"),
        "%s", tvm_message(context));
    assert_ok(tvm_graph_launch(graph, NULL));
}
END_TEST

/* y = x, by blocks of which each waits for the one before it. */
static const char chain_source[] =
    ".vasm 7\n"
    ".kernel chain(n: i32, x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    %turn = alloc-global i32[1], clean\n"
    "    lock-semaphore %turn[0], block.x\n"
    "    store-global y[block.x * 128], load-global(x[block.x * 128], spatial(32).local(4))\n"
    "    release-semaphore %turn[0], (block.x + 1) % grid.x\n"
    ".end\n";

/* The persistent kernel has as many blocks as are resident. Where 2 are, 3 that wait for each other are one
 * too many: nothing is launched. Blocks that do not wait may be more than are resident; and where there is
 * room, the same graph runs. */
START_TEST(blocks_that_wait_are_all_resident) {
    tvm_program *chains;
    setenv("FAKE_CUDA_MULTIPROCESSORS", "2", 1);
    setenv("FAKE_CUDA_RESIDENT", "1", 1);
    is_persistent = true;
    assert_ok(open_all());
    assert_ok(make_diamond());
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_said("node 0: tvm_persistent 2,1,1 32 192\nnode 0 with 2 1\nreplay\n");
    tvm_graph_free(graph);
    assert_ok(tvm_assemble(context, chain_source, strlen(chain_source), NULL, &chains));
    assert_ok(tvm_graph_create(context, "g", &graph));
    assert_ok(tensor("x", TVM_GRAPH_INPUT, 0, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, 2, N));
    assert_ok(tensor("t", TVM_GRAPH_TEMPORARY, -1, N));
    assert_ok(ADD_LAUNCH(graph, "free", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("t")));
    assert_ok(ADD_LAUNCH(graph, "turns", kernel_named(chains, "chain"), INTEGER(N), NAMED("t"), NAMED("z")));
    assert_ok(tvm_graph_set_persistent(graph));
    assert_ok(tvm_graph_finish(graph));
    driver_said();
    ck_assert_int_eq(tvm_graph_launch(graph, NULL), TVM_LIMIT);
    ck_assert_msg(strstr(tvm_message(context),
                         "graph 'g': launch 'turns': its 3 blocks wait for each other, and 2 blocks of the "
                         "persistent kernel are resident at a time") != NULL,
                  "%s", tvm_message(context));
    const char *said = driver_said();
    ck_assert_msg(!strstr(said, "node") && !strstr(said, "replay"), "%s", said);
    setenv("FAKE_CUDA_RESIDENT", "2", 1);
    assert_ok(tvm_graph_launch(graph, NULL));
    said = driver_said();
    ck_assert_msg(strstr(said, "node 0: tvm_persistent 4,1,1 ") && strstr(said, "node 0 with 2 1\nreplay\n"),
                  "%s", said);
    unsetenv("FAKE_CUDA_RESIDENT");
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    tvm_graph_free(graph);
    graph = NULL;
    tvm_program_free(chains);
}
END_TEST

#else

static void setup(void) {}
static void teardown(void) {}

START_TEST(without_cuda_there_is_no_gpu) {
    tvm_context *context = NULL;
    const tvm_context_options options = {.device = TVM_DEVICE_CUDA};
    ck_assert_int_ne(tvm_context_create(&options, &context), TVM_OK);
    tvm_context_free(context);
}
END_TEST

#endif

int main(void) {
    Suite *suite = suite_create("graph_cuda");
    TCase *tests = suite_case(suite, "graph_cuda");
    tcase_add_checked_fixture(tests, setup, teardown);
#ifdef HAVE_CUDA_H
    tcase_add_test(tests, nodes_have_the_dependencies);
    tcase_add_test(tests, a_persistent_graph_is_one_node);
    tcase_add_test(tests, a_replay_is_one_call);
    tcase_add_test(tests, other_arguments_go_to_their_nodes);
    tcase_add_test(tests, a_launch_may_have_no_blocks);
    tcase_add_test(tests, arguments_that_do_not_fit_launch_nothing);
    tcase_add_test(tests, early_launches_overlap_where_they_may);
    tcase_add_test(tests, early_launches_may_read_what_is_settled);
    tcase_add_test(tests, early_launches_wait_for_one_alone);
    tcase_add_test(tests, own_tensors_have_memory);
    tcase_add_test(tests, a_timeline_has_graphs_by_name);
    tcase_add_test(tests, a_fault_names_the_graph);
    tcase_add_test(tests, every_call_may_fail);
    tcase_add_test(tests, every_call_of_a_persistent_graph_may_fail);
    tcase_add_test(tests, a_persistent_kernel_needs_room);
    tcase_add_test(tests, blocks_that_wait_are_all_resident);
#else
    tcase_add_test(tests, without_cuda_there_is_no_gpu);
#endif
    return run_suite(suite);
}
