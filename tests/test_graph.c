/* Graphs on the interpreter: what they compute beside plain C, what waits for what and shares memory beside a
 * search through the graph, and what is refused. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "graph_kit.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph_impl.h"
#include "runtime_kit.h"
#include "suite_kit.h"

enum { N = 300, THREADS = 4, ROUNDS = 20 };

static tvm_context *context;
static tvm_program *program;
static tvm_graph *graph;
static _Alignas(16) float x[N], y[N], z[2 * N];

static void setup(void) {
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_msg(!tvm_assemble(context, graph_source, strlen(graph_source), NULL, &program), "%s",
                  tvm_message(context));
    ck_assert_int_eq(tvm_graph_create(context, "g", &graph), TVM_OK);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 37 - 11), y[i] = (float)(i % 5);
    memset(z, 0, sizeof z);
}

static void teardown(void) {
    tvm_graph_free(graph);
    tvm_program_free(program);
    tvm_context_free(context);
}

static tvm_kernel *kernel(const char *name) {
    return kernel_named(program, name);
}

static void assert_ok(tvm_status status) {
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
}

static void assert_refused(tvm_status status, tvm_status expected, const char *text) {
    ck_assert_int_eq(status, expected);
    ck_assert_msg(strstr(tvm_message(context), text) != NULL, "'%s' does not say '%s'", tvm_message(context),
                  text);
    ck_assert_msg(!strncmp(tvm_message(context), "graph 'g': ", 11), "%s", tvm_message(context));
}

static tvm_status tensor(const char *name, tvm_graph_role role, void *data, int64_t n) {
    graph_vector made;
    return tvm_graph_add_tensor(graph, name, role, vector_at(&made, data, n, TVM_TENSOR_CPU));
}

static tvm_status set_tensor(const char *name, void *data, int64_t n) {
    graph_vector made;
    return tvm_graph_set_tensor(graph, name, vector_at(&made, data, n, TVM_TENSOR_CPU));
}

static void temporaries(int count) {
    char name[16];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "t%d", i);
        assert_ok(tensor(name, TVM_GRAPH_TEMPORARY, NULL, N));
    }
}

static void assert_report(const char *expected) {
    char *text = NULL;
    assert_ok(tvm_graph_report(graph, &text));
    ck_assert_str_eq(text, expected);
    free(text);
}

/* z = 2x + (x + y), where neither of the two sums' terms waits for the other. */
static void make_diamond(void) {
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("y", TVM_GRAPH_INPUT, y, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    assert_ok(tvm_graph_add_scalar(graph, "f", "f32", &(tvm_value){.f = 2}));
    temporaries(2);
    assert_ok(
        ADD_LAUNCH(graph, "twice", kernel("any_scale"), INTEGER(N), NAMED("f"), NAMED("x"), NAMED("t0")));
    assert_ok(ADD_LAUNCH(graph, "both", kernel("sum"), INTEGER(N), NAMED("x"), NAMED("y"), NAMED("t1")));
    assert_ok(ADD_LAUNCH(graph, "all", kernel("sum"), INTEGER(N), NAMED("t0"), NAMED("t1"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
}

static void assert_diamond(const float *from, const float *to, float f) {
    for (int i = 0; i < N; i++) ck_assert_float_eq(to[i], f * from[i] + (from[i] + y[i]));
}

START_TEST(computes_what_its_launches_do) {
    make_diamond();
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_diamond(x, z, 2);
    assert_report("g: 3 launches; memory of its own: 2560 bytes, 2560 unshared\n"
                  "twice: any_scale (scale_wide), 2 x 1 x 1 blocks\n"
                  "both: sum, 3 x 1 x 1 blocks\n"
                  "all: sum, 3 x 1 x 1 blocks, after twice, both\n");
}
END_TEST

START_TEST(takes_other_scalars_and_memory) {
    static _Alignas(16) float other[N], result[N];
    make_diamond();
    assert_ok(tvm_graph_launch(graph, NULL));
    for (int i = 0; i < N; i++) other[i] = (float)(3 * i);
    assert_ok(tvm_graph_set_scalar(graph, "f", &(tvm_value){.f = -5}));
    assert_ok(set_tensor("x", other, N));
    assert_ok(set_tensor("z", result, N));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_diamond(other, result, -5);
    assert_diamond(x, z, 2);
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_diamond(other, result, -5);
}
END_TEST

/* Each name is written again and again: reads after writes, writes after reads, writes after writes. */
START_TEST(names_that_are_written_again_keep_their_order) {
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    temporaries(1);
    assert_ok(ADD_LAUNCH(graph, "a", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("t0")));
    assert_ok(ADD_LAUNCH(graph, "b", kernel("scale"), INTEGER(N), REAL(3), NAMED("t0"), NAMED("z")));
    assert_ok(ADD_LAUNCH(graph, "c", kernel("scale"), INTEGER(N), REAL(7), NAMED("x"), NAMED("t0")));
    assert_ok(ADD_LAUNCH(graph, "d", kernel("more"), INTEGER(N), NAMED("t0"), NAMED("z")));
    assert_ok(ADD_LAUNCH(graph, "e", kernel("more"), INTEGER(N), NAMED("x"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    assert_ok(tvm_graph_launch(graph, NULL));
    for (int i = 0; i < N; i++) ck_assert_float_eq(z[i], 6 * x[i] + 7 * x[i] + x[i]);
    assert_report("g: 5 launches; memory of its own: 1280 bytes, 1280 unshared\n"
                  "a: scale, 3 x 1 x 1 blocks\n"
                  "b: scale, 3 x 1 x 1 blocks, after a\n"
                  "c: scale, 3 x 1 x 1 blocks, after b\n"
                  "d: more, 3 x 1 x 1 blocks, after c\n"
                  "e: more, 3 x 1 x 1 blocks, after d\n");
}
END_TEST

/* Of a chain only neighbours live at the same time. */
START_TEST(a_chain_needs_two_temporaries_memory) {
    char name[8], from[8] = "x", to[8];
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    temporaries(6);
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "l%d", i);
        snprintf(to, sizeof to, i < 6 ? "t%d" : "z", i);
        assert_ok(ADD_LAUNCH(graph, name, kernel("scale"), INTEGER(N), REAL(2), NAMED(from), NAMED(to)));
        memcpy(from, to, sizeof from);
    }
    assert_ok(tvm_graph_finish(graph));
    ck_assert_uint_eq(graph->bytes, 2 * 1280);
    ck_assert_uint_eq(graph->unshared, 6 * 1280);
    assert_ok(tvm_graph_launch(graph, NULL));
    for (int i = 0; i < N; i++) ck_assert_float_eq(z[i], 128 * x[i]);
}
END_TEST

/* Halves that two launches write beside each other, and one reads as a whole. */
START_TEST(parts_are_tensors) {
    graph_vector half;
    enum { HALF = 128 };
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, HALF));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, 2 * HALF));
    assert_ok(tensor("t", TVM_GRAPH_TEMPORARY, NULL, 2 * HALF));
    vector_at(&half, NULL, HALF, TVM_TENSOR_CPU);
    assert_ok(tvm_graph_add_part(graph, "low", "t", &half.tensor));
    half.tensor.byte_offset = 4 * HALF;
    assert_ok(tvm_graph_add_part(graph, "high", "t", &half.tensor));
    assert_ok(ADD_LAUNCH(graph, "a", kernel("scale"), INTEGER(HALF), REAL(2), NAMED("x"), NAMED("low")));
    assert_refused(
        ADD_LAUNCH(graph, "c", kernel("scale"), INTEGER(2 * HALF), REAL(1), NAMED("t"), NAMED("z")),
        TVM_ARGUMENT,
        "launch 'c': kernel 'scale' reads 'x', the temporary 't', which no launch before it "
        "has wholly written");
    assert_ok(ADD_LAUNCH(graph, "b", kernel("scale"), INTEGER(HALF), REAL(3), NAMED("x"), NAMED("high")));
    assert_ok(ADD_LAUNCH(graph, "c", kernel("scale"), INTEGER(2 * HALF), REAL(1), NAMED("t"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    assert_ok(tvm_graph_launch(graph, NULL));
    for (int i = 0; i < HALF; i++) {
        ck_assert_float_eq(z[i], 2 * x[i]);
        ck_assert_float_eq(z[HALF + i], 3 * x[i]);
    }
    ck_assert_uint_eq(graph->launches[1]->after_count, 0);
    ck_assert_uint_eq(graph->launches[2]->after_count, 2);
}
END_TEST

START_TEST(a_state_keeps_what_it_holds) {
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("z", TVM_GRAPH_STATE, z, N));
    assert_ok(ADD_LAUNCH(graph, "a", kernel("more"), INTEGER(N), NAMED("x"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    for (int i = 0; i < 3; i++) assert_ok(tvm_graph_launch(graph, NULL));
    for (int i = 0; i < N; i++) ck_assert_float_eq(z[i], 3 * x[i]);
}
END_TEST

/* ---- what is refused ---- */

START_TEST(refuses_launches_that_do_not_fit) {
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    assert_ok(tvm_graph_add_scalar(graph, "n", "i32", &(tvm_value){.i = N}));
    temporaries(1);
    tvm_kernel *scale = kernel("scale");
    assert_refused(
        ADD_LAUNCH(graph, "a", scale, INTEGER(N), REAL(2), NAMED("t0"), NAMED("z")), TVM_ARGUMENT,
        "launch 'a': kernel 'scale' reads 'x', the temporary 't0', which no launch before it has written");
    assert_refused(
        ADD_LAUNCH(graph, "a", kernel("more"), INTEGER(N), NAMED("x"), NAMED("z")), TVM_ARGUMENT,
        "launch 'a': kernel 'more' reads 'y', the output 'z', which no launch before it has written");
    assert_refused(ADD_LAUNCH(graph, "a", scale, INTEGER(N), REAL(2), NAMED("x"), NAMED("x")), TVM_ARGUMENT,
                   "launch 'a': kernel 'scale' writes 'y', which is the input 'x'");
    assert_refused(ADD_LAUNCH(graph, "a", scale, INTEGER(N), NAMED("n"), NAMED("x"), NAMED("z")),
                   TVM_ARGUMENT, "launch 'a': scalar 'n' is i32, and parameter 'f' is f32");
    assert_refused(ADD_LAUNCH(graph, "a", scale, INTEGER(N), REAL(2), NAMED("x")), TVM_ARGUMENT,
                   "launch 'a': kernel 'scale' takes 4 arguments, 3 were given");
    assert_refused(ADD_LAUNCH(graph, "a", scale, INTEGER(N), REAL(2), NAMED("n"), NAMED("z")), TVM_USAGE,
                   "launch 'a': parameter 'x' is a tensor, and there is no tensor 'n'");
    assert_refused(ADD_LAUNCH(graph, "a", scale, NAMED("x"), REAL(2), NAMED("x"), NAMED("z")), TVM_USAGE,
                   "launch 'a': parameter 'n' is a scalar, and there is no scalar 'x'");
    const char *later = "b";
    const tvm_graph_argument arguments[] = {INTEGER(N), REAL(2), NAMED("x"), NAMED("z")};
    assert_refused(tvm_graph_add_launch(graph, "a", scale, arguments, 4, &later, 1), TVM_USAGE,
                   "launch 'a': there is no launch 'b' before it to come after");
    ck_assert_uint_eq(graph->launch_count, 0);
}
END_TEST

START_TEST(refuses_tensors_that_are_none) {
    graph_vector part;
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_refused(tensor("x", TVM_GRAPH_OUTPUT, z, N), TVM_USAGE, "there is a 'x' already");
    assert_refused(tensor("w", TVM_GRAPH_OUTPUT, z, -1), TVM_ARGUMENT, "tensor 'w' has no type, or a shape");
    assert_refused(tvm_graph_add_scalar(graph, "x", "i32", &(tvm_value){.i = 1}), TVM_USAGE,
                   "there is a 'x' already");
    vector_at(&part, NULL, N, TVM_TENSOR_CPU);
    part.tensor.byte_offset = 16;
    assert_refused(tvm_graph_add_part(graph, "p", "x", &part.tensor), TVM_ARGUMENT,
                   "part 'p' is 1200 bytes from byte 16 on");
    vector_at(&part, NULL, 4, TVM_TENSOR_CPU);
    part.tensor.byte_offset = 4;
    assert_refused(tvm_graph_add_part(graph, "p", "x", &part.tensor), TVM_ARGUMENT, "multiple of 16");
    assert_refused(tvm_graph_add_part(graph, "p", "w", &part.tensor), TVM_USAGE, "there is no tensor 'w'");
    assert_refused(tvm_graph_launch(graph, NULL), TVM_USAGE, "it is not finished");
    ck_assert_uint_eq(graph->tensor_count, 1);
}
END_TEST

static void expect_unfinished(const char *text, tvm_status status) {
    assert_refused(tvm_graph_finish(graph), status, text);
    assert_refused(tvm_graph_launch(graph, NULL), TVM_USAGE, "tvm_graph_finish has failed");
    tvm_graph_free(graph);
    ck_assert_int_eq(tvm_graph_create(context, "g", &graph), TVM_OK);
}

START_TEST(refuses_graphs_that_are_not_whole) {
    expect_unfinished("it has no launch", TVM_ARGUMENT);
    for (int round = 0; round < 4; round++) {
        int64_t n = round == 3 ? N - 1 : N;
        assert_ok(tensor("x", TVM_GRAPH_INPUT, x, n));
        assert_ok(tensor("z", round == 1 ? TVM_GRAPH_STATE : TVM_GRAPH_OUTPUT, z, N));
        if (round == 0) assert_ok(tensor("w", TVM_GRAPH_INPUT, y, N));
        if (round == 1) assert_ok(tensor("w", TVM_GRAPH_OUTPUT, y, N));
        if (round == 2) assert_ok(tvm_graph_add_scalar(graph, "s", "i32", &(tvm_value){.i = 1}));
        assert_ok(ADD_LAUNCH(graph, "a", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("z")));
        if (round == 1)
            assert_ok(ADD_LAUNCH(graph, "b", kernel("scale"), INTEGER(0), REAL(2), NAMED(NULL), NAMED(NULL)));
        expect_unfinished(
            round < 2    ? "no launch takes tensor 'w'"
            : round == 2 ? "no launch takes scalar 's'"
                         : "launch 'a': kernel 'scale': tensor 'x' is to be f32[300], but is float32[299]",
            TVM_ARGUMENT);
    }
}
END_TEST

START_TEST(an_output_is_wholly_written) {
    graph_vector half;
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, 2 * N));
    assert_ok(tvm_graph_add_part(graph, "low", "z", vector_at(&half, NULL, N, TVM_TENSOR_CPU)));
    assert_ok(ADD_LAUNCH(graph, "a", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("low")));
    expect_unfinished("no launch writes output 'z' to its end", TVM_ARGUMENT);
}
END_TEST

/* Two names for the same bytes: that is not seen by names. */
static void make_meeting(const char *const *after, size_t count) {
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("y", TVM_GRAPH_INPUT, NULL, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    assert_ok(tensor("w", TVM_GRAPH_OUTPUT, z + N, N));
    const tvm_graph_argument second[] = {INTEGER(N), REAL(5), NAMED("y"), NAMED("w")};
    assert_ok(ADD_LAUNCH(graph, "first", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("z")));
    assert_ok(tvm_graph_add_launch(graph, "second", kernel("scale"), second, 4, after, count));
    assert_ok(tvm_graph_finish(graph));
}

START_TEST(launches_that_meet_in_memory_are_ordered) {
    make_meeting(NULL, 0);
    assert_refused(tvm_graph_launch(graph, NULL), TVM_USAGE, "where 'y' lies is not known");
    assert_ok(set_tensor("y", z + N - 4, N));
    assert_refused(
        tvm_graph_launch(graph, NULL), TVM_ARGUMENT,
        "launch 'first' writes 'z' and launch 'second' reads 'y', which have bytes in common, and neither "
        "launch waits for the other");
    for (int i = 0; i < 2 * N; i++) ck_assert_float_eq(z[i], 0);
    assert_ok(set_tensor("y", y, N));
    assert_ok(tvm_graph_launch(graph, NULL));
    ck_assert_float_eq(z[N + 4], 5 * y[4]);
    assert_refused(set_tensor("w", x, N - 1), TVM_ARGUMENT, "tensor 'w' has another type, shape or strides");
    assert_refused(set_tensor("v", x, N), TVM_USAGE, "there is no tensor 'v'");
}
END_TEST

START_TEST(an_order_that_the_caller_gives_is_one) {
    static const char *const after[] = {"first"};
    make_meeting(after, 1);
    assert_ok(set_tensor("y", z, N));
    assert_ok(tvm_graph_launch(graph, NULL));
    for (int i = 0; i < N; i++) ck_assert_float_eq(z[N + i], 10 * x[i]);
}
END_TEST

/* y or what an earlier launch writes, read early through a settled view. */
static tvm_status launch_settled(const char *name) {
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    if (!strcmp(name, "y")) assert_ok(tensor("y", TVM_GRAPH_INPUT, y, N));
    assert_ok(tensor("t", TVM_GRAPH_TEMPORARY, NULL, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    assert_ok(ADD_LAUNCH(graph, "first", kernel("scale"), INTEGER(N), REAL(2), NAMED("x"), NAMED("t")));
    assert_ok(
        ADD_LAUNCH(graph, "second", kernel("settled"), INTEGER(N), NAMED(name), NAMED("t"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    assert_ok(tvm_set_sanitizer(context, TVM_SANITIZE_TEXT));
    return tvm_graph_launch(graph, NULL);
}

START_TEST(a_settled_view_of_what_no_launch_writes) {
    assert_ok(launch_settled("y"));
    for (int i = 0; i < N; i++) ck_assert_float_eq(z[i], y[i] + 2 * x[i]);
}
END_TEST

START_TEST(a_settled_view_against_the_promise) {
    ck_assert_int_eq(launch_settled("t"), TVM_SANITIZER);
    ck_assert_msg(strstr(tvm_message(context),
                         "graph 'g': launch 'second': settled: not ordered after earlier "
                         "launches: load-global reads %old[0]") != NULL,
                  "%s", tvm_message(context));
}
END_TEST

START_TEST(failures_name_the_launch) {
    const tvm_limits limits = {.blocks = 2};
    make_diamond();
    assert_ok(tvm_set_limits(context, &limits));
    assert_refused(tvm_graph_launch(graph, NULL), TVM_LIMIT, "graph 'g': launch 'both': kernel 'sum'");
    assert_ok(tvm_set_limits(context, NULL));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_diamond(x, z, 2);
}
END_TEST

/* ---- random graphs beside a search ---- */

/* By the launches that each waits for, without the one at [skip_of][skip]. */
static bool reaches(const tvm_graph *g, uint32_t from, uint32_t to, uint32_t skip_of, uint32_t skip) {
    if (from == to) return true;
    const graph_launch *launch = g->launches[to];
    for (uint32_t i = 0; i < launch->after_count; i++)
        if (!(to == skip_of && i == skip) && launch->after[i] >= from &&
            reaches(g, from, launch->after[i], skip_of, skip))
            return true;
    return false;
}

static bool touches(const graph_launch *launch, uint32_t index, bool to_write) {
    for (uint32_t p = 0; p < launch->count; p++)
        if (launch->tensors[p] == index && (!to_write || launch->accesses[p] & TVM_PARAM_WRITTEN))
            return true;
    return false;
}

static void assert_ordered(const tvm_graph *g) {
    for (uint32_t b = 0; b < g->launch_count; b++)
        for (uint32_t a = 0; a < b; a++)
            for (uint32_t t = 0; t < g->tensor_count; t++) {
                const graph_launch *first = g->launches[a], *second = g->launches[b];
                bool meet = (touches(first, t, true) && touches(second, t, false)) ||
                            (touches(first, t, false) && touches(second, t, true));
                if (meet) ck_assert(reaches(g, a, b, UINT32_MAX, 0));
            }
    for (uint32_t b = 0; b < g->launch_count; b++)
        for (uint32_t i = 0; i < g->launches[b]->after_count; i++)
            ck_assert_msg(!reaches(g, g->launches[b]->after[i], b, b, i), "an edge that others imply");
}

static bool wholly_before(const tvm_graph *g, uint32_t t, uint32_t u) {
    for (uint32_t a = 0; a < g->launch_count; a++)
        for (uint32_t b = 0; b < g->launch_count; b++)
            if (touches(g->launches[a], t, false) && touches(g->launches[b], u, false) &&
                (a >= b || !reaches(g, a, b, UINT32_MAX, 0)))
                return false;
    return true;
}

static void assert_memory(const tvm_graph *g) {
    for (uint32_t t = 0; t < g->tensor_count; t++)
        for (uint32_t u = 0; u < t; u++) {
            const graph_tensor *a = g->tensors[t], *b = g->tensors[u];
            if (a->role != TVM_GRAPH_TEMPORARY || b->role != TVM_GRAPH_TEMPORARY) continue;
            bool apart = a->place + a->bytes <= b->place || b->place + b->bytes <= a->place;
            ck_assert(apart || wholly_before(g, t, u) || wholly_before(g, u, t));
            ck_assert(a->place % 256 == 0 && a->place + a->bytes <= g->bytes);
        }
}

enum { TENSORS = 8, LAUNCHES = 14 };

/* Launches over a few temporaries, of which each is written before it is read; results beside plain C. */
static void try_random(unsigned seed) {
    static float held[TENSORS][N];
    char name[8], from[8], other[8], to[8];
    bool written[TENSORS] = {false};
    srand(seed);
    ck_assert_int_eq(tvm_graph_create(context, "g", &graph), TVM_OK);
    assert_ok(tensor("x", TVM_GRAPH_INPUT, x, N));
    assert_ok(tensor("z", TVM_GRAPH_OUTPUT, z, N));
    temporaries(TENSORS);
    for (int i = 0; i < LAUNCHES; i++) {
        int a = rand() % TENSORS, b = rand() % TENSORS, c = i < TENSORS ? i : rand() % TENSORS;
        snprintf(from, sizeof from, written[a] ? "t%d" : "x", a);
        snprintf(other, sizeof other, written[b] ? "t%d" : "x", b);
        snprintf(to, sizeof to, "t%d", c);
        snprintf(name, sizeof name, "l%d", i);
        assert_ok(ADD_LAUNCH(graph, name, kernel("sum"), INTEGER(N), NAMED(from), NAMED(other), NAMED(to)));
        float sum[N];
        for (int e = 0; e < N; e++)
            sum[e] = (written[a] ? held[a][e] : x[e]) + (written[b] ? held[b][e] : x[e]);
        memcpy(held[c], sum, sizeof sum);
        written[c] = true;
    }
    assert_ok(ADD_LAUNCH(graph, "last", kernel("scale"), INTEGER(N), REAL(1), NAMED("t0"), NAMED("z")));
    assert_ok(tvm_graph_finish(graph));
    assert_ordered(graph);
    assert_memory(graph);
    assert_ok(tvm_graph_launch(graph, NULL));
    for (int e = 0; e < N; e++) ck_assert_float_eq(z[e], held[0][e]);
    tvm_graph_free(graph);
    graph = NULL;
}

START_TEST(random_graphs_are_ordered_and_share_memory) {
    tvm_graph_free(graph);
    for (unsigned seed = 1; seed <= 25; seed++) try_random(seed);
}
END_TEST

/* ---- threads ---- */

static void *launch_often(void *unused) {
    (void)unused;
    long failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        failed += tvm_graph_set_scalar(graph, "f", &(tvm_value){.f = 2}) != TVM_OK;
        failed += tvm_graph_launch(graph, NULL) != TVM_OK;
    }
    return (void *)(intptr_t)failed;
}

START_TEST(threads_share_a_graph) {
    pthread_t threads[THREADS];
    make_diamond();
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_often, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        ck_assert_ptr_null(failed);
    }
    assert_diamond(x, z, 2);
}
END_TEST

START_TEST(stands_in_the_timeline) {
    char path[] = "/tmp/tvm-test-graph-XXXXXX", text[8192];
    int made = mkstemp(path);
    ck_assert_int_ge(made, 0);
    FILE *file = fdopen(made, "r");
    make_diamond();
    assert_ok(tvm_trace_start(context, path));
    assert_ok(tvm_graph_launch(graph, NULL));
    assert_ok(tvm_trace_stop(context));
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    remove(path);
    const char *whole = strstr(text, "\"name\":\"graph\"");
    ck_assert(whole && strstr(whole, "\"of\":\"g\"") && strstr(text, "\"of\":\"scale_wide\""));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph");
    TCase *tests = suite_case(suite, "graph");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, computes_what_its_launches_do);
    tcase_add_test(tests, takes_other_scalars_and_memory);
    tcase_add_test(tests, names_that_are_written_again_keep_their_order);
    tcase_add_test(tests, a_chain_needs_two_temporaries_memory);
    tcase_add_test(tests, parts_are_tensors);
    tcase_add_test(tests, a_state_keeps_what_it_holds);
    tcase_add_test(tests, refuses_launches_that_do_not_fit);
    tcase_add_test(tests, refuses_tensors_that_are_none);
    tcase_add_test(tests, refuses_graphs_that_are_not_whole);
    tcase_add_test(tests, an_output_is_wholly_written);
    tcase_add_test(tests, launches_that_meet_in_memory_are_ordered);
    tcase_add_test(tests, an_order_that_the_caller_gives_is_one);
    tcase_add_test(tests, a_settled_view_of_what_no_launch_writes);
    tcase_add_test(tests, a_settled_view_against_the_promise);
    tcase_add_test(tests, failures_name_the_launch);
    tcase_add_test(tests, random_graphs_are_ordered_and_share_memory);
    tcase_add_test(tests, threads_share_a_graph);
    tcase_add_test(tests, stands_in_the_timeline);
    return run_suite(suite);
}
