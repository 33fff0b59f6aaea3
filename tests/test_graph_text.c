/* Graphs as text: the shipped layer beside float64, loops, parts and order, scalars that can change, and what
 * is refused, with its place. Any text, cut or damaged, is taken or refused with a message. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "graph_kit.h"

#include <math.h>
#include <stdlib.h>

#include "kernel_kit.h"
#include "suite_kit.h"

enum { N = 128 };

#define HEAD ".graph g(n: i32, f: f32, x: input f32[n], z: output f32[n])\n"

static kernel_kit kit; /* context, tensors and arguments: its program is not used */
static tvm_graph *graph;

static void setup(void) {
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    kit = (kernel_kit){.random = 77};
    graph = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &kit.context), TVM_OK);
}

static void teardown(void) {
    tvm_graph_free(graph);
    kit_close(&kit);
}

static tvm_status read_graph(const char *text, const tvm_assemble_options *options,
                             const char *const *names) {
    tvm_graph_argument arguments[KIT_ARGUMENTS] = {{NULL, {0}}};
    for (size_t i = 0; i < kit.argument_count; i++)
        arguments[i] = (tvm_graph_argument){names[i], kit.arguments[i]};
    return tvm_graph_assemble(kit.context, text, strlen(text), options, arguments, kit.argument_count,
                              &graph);
}

/* `text` behind the kernels; freed by the next call. */
static const char *with_kernels(const char *text) {
    static char *whole;
    free(whole);
    ck_assert_int_gt(asprintf(&whole, "%s%s", graph_source, text), 0);
    return whole;
}

static void assert_ok(tvm_status status) {
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(kit.context));
}

static void run(void) {
    assert_ok(tvm_graph_finish(graph));
    assert_ok(tvm_graph_launch(graph, NULL));
    for (size_t i = 0; i < kit.tensor_count; i++) kit_read(&kit, &kit.tensors[i]);
}

/* ---- the shipped layer ---- */

static double product(const double *a, const double *b, size_t k) {
    double sum = 0;
    for (size_t i = 0; i < k; i++) sum += a[i] * b[i];
    return sum;
}

/* Row `r` of the sum of residual and x, and of the layer. */
static void layer_row(size_t r, size_t d, size_t h, double eps, double *sum, double *y) {
    const kit_tensor *t = kit.tensors; /* x, residual, norm, w1, w2 */
    double square = 0, *n = calloc(d, sizeof *n), *a = calloc(h, sizeof *a);
    ck_assert(n && a);
    for (size_t i = 0; i < d; i++) {
        sum[i] = t[0].values[r * d + i] + t[1].values[r * d + i];
        square += sum[i] * sum[i] / (double)d;
    }
    for (size_t i = 0; i < d; i++) n[i] = sum[i] / sqrt(square + eps) * t[2].values[i];
    for (size_t i = 0; i < h; i++) {
        double gate = product(n, t[3].values + i * d, d), up = product(n, t[3].values + (h + i) * d, d);
        a[i] = gate / (1 + exp(-gate)) * up;
    }
    for (size_t i = 0; i < d; i++) y[i] = sum[i] + product(a, t[4].values + i * h, h);
    free(n), free(a);
}

static void check_layer(const char *define, tvm_dtype type, size_t m, double tolerance) {
    enum { D = 64, H = 96 };
    static const char *const names[] = {"m", "d", "h", "eps", "x", "residual", "norm", "w1", "w2", "y"};
    const double eps = 0.25;
    char path[5000];
    static double sum[5][D], expected[5][D];
    uint8_t *text;
    size_t size;
    tvm_diags diags = {0};
    const tvm_assemble_options options = {
        .name = program_path("llama_mlp.graph", path), .defines = &define, .define_count = 1};
    ck_assert_int_eq(tvm_file_read(path, SIZE_MAX / 2, &text, &size, &diags), TVM_OK);
    kit_scalar(&kit, (double)m), kit_scalar(&kit, D), kit_scalar(&kit, H), kit_scalar(&kit, eps);
    kit_input(&kit, type, m * D, -1, 1);
    kit_input(&kit, type, m * D, -1, 1);
    kit_input(&kit, type, D, 0.5, 1.5);
    kit_input(&kit, type, (size_t)2 * H * D, -0.25, 0.25);
    kit_input(&kit, type, (size_t)D * H, -0.25, 0.25);
    kit_tensor_new(&kit, type, m * D);
    for (size_t r = 0; r < m; r++) layer_row(r, D, H, eps, sum[r], expected[r]);
    char *terminated = strndup((const char *)text, size);
    assert_ok(read_graph(terminated, &options, names));
    free(terminated), free(text);
    run();
    for (size_t i = 0; i < m * D; i++) {
        double y = kit.tensors[5].values[i], r = kit.tensors[1].values[i];
        ck_assert_msg(fabs(y - expected[i / D][i % D]) <= tolerance * fmax(1, fabs(expected[i / D][i % D])),
                      "y[%zu] is %g, not %g", i, y, expected[i / D][i % D]);
        ck_assert(fabs(r - sum[i / D][i % D]) <= tolerance);
    }
}

START_TEST(a_layer_of_llama_is_what_float64_computes) {
    check_layer("T=f16", TVM_F16, 5, 4e-3);
    /* what no expression of the text reads can change, and what tensors' sizes come from cannot */
    assert_ok(tvm_graph_set_scalar(graph, "eps", &(tvm_value){.f = 3}));
    ck_assert_int_eq(tvm_graph_set_scalar(graph, "eps", &(tvm_value){.i = 3}), TVM_ARGUMENT);
    ck_assert_int_eq(tvm_graph_set_scalar(graph, "d", &(tvm_value){.i = 32}), TVM_USAGE);
    static const char *const tensors[] = {"x", "y", "residual", "%u"};
    for (int r = TVM_GRAPH_INPUT; r <= TVM_GRAPH_TEMPORARY; r++) {
        tvm_graph_role role;
        assert_ok(tvm_graph_get_role(graph, tensors[r], &role));
        ck_assert_int_eq((int)role, r);
        ck_assert_int_eq(tvm_graph_get_role(graph, "eps", &role), TVM_USAGE);
    }
    char *report = NULL;
    assert_ok(tvm_graph_report(graph, &report));
    ck_assert_msg(strstr(report, "llama_mlp: 4 launches") && strstr(report, "\ndown: matmul") &&
                      strstr(report, "after gated\n"),
                  "%s", report);
    free(report);
}
END_TEST

START_TEST(a_definition_is_for_the_programs_too) {
    check_layer("T=bf16", TVM_BF16, 2, 4e-2);
}
END_TEST

/* ---- statements ---- */

static const char *const vector_names[] = {"n", "f", "x", "z"};

static void vectors(void) {
    kit_scalar(&kit, N), kit_scalar(&kit, 3);
    kit_input(&kit, TVM_F32, N, -1, 1);
    kit_tensor_new(&kit, TVM_F32, N);
}

/* z = 3 x + w[0] + w[1] + w[2], a launch a row of the stacked w. */
START_TEST(loops_add_launches_that_take_parts) {
    static const char *const names[] = {"n", "f", "x", "z", "w"};
    vectors();
    const kit_tensor *w = kit_input(&kit, TVM_F32, 3 * N, -1, 1);
    assert_ok(read_graph(with_kernels(".const ROWS = 3\n"
                                      ".graph g(n: i32, f: f32, x: input f32[n], z: output f32[n],\n"
                                      "         w: input f32[ROWS, n])\n"
                                      "    %t0 = alloc-global f32[n]\n"
                                      "    launch scale(n, f, x, %t0)\n"
                                      ".for I = 0 to ROWS\n"
                                      "    %w${I} = view-global w[I, 0], [n]\n"
                                      ".if I < ROWS - 1\n"
                                      ".const J = I + 1\n"
                                      "    %t${J} = alloc-global f32[n]\n"
                                      "    launch sum(n, %t${I}, %w${I}, z = %t${J})\n"
                                      ".else\n"
                                      "    launch last: sum(n = n, z = z, x = %t${I}, y = %w${I})\n"
                                      ".endif\n"
                                      ".endfor\n"
                                      ".end\n"),
                         NULL, names));
    run();
    for (int i = 0; i < N; i++) {
        float sum = 3 * (float)kit.tensors[0].values[i];
        for (int r = 0; r < 3; r++) sum += (float)w->values[r * N + i];
        ck_assert(fabs(kit.tensors[1].values[i] - (double)sum) < 1e-5);
    }
    char *report = NULL;
    assert_ok(tvm_graph_report(graph, &report));
    /* two of the three temporaries are alive at a time */
    ck_assert_msg(strstr(report, "memory of its own: 1024 bytes, 1536 unshared\n") &&
                      strstr(report, "last: sum, 1 x 1 x 1 blocks, after sum.2\n"),
                  "%s", report);
    free(report);
}
END_TEST

/* No tensor orders them: the text does. A scalar of a launch may be any expression. */
START_TEST(a_launch_may_say_what_it_comes_after) {
    vectors();
    assert_ok(read_graph(with_kernels(HEAD ".assume n > 0\n"
                                           "    %t = alloc-global f32[n]\n"
                                           "    %u = alloc-global f32[n]\n"
                                           "    launch one: scale(n, f * 2.0 + 1.0, x, %t)\n"
                                           "    launch two: scale(max(n, 1), f, x, %u) after one\n"
                                           "    launch both: sum(n, %t, %u, z)\n"
                                           ".end\n"),
                         NULL, vector_names));
    run();
    for (int i = 0; i < N; i++)
        ck_assert(fabs(kit.tensors[1].values[i] - 10 * kit.tensors[0].values[i]) < 1e-5);
    char *report = NULL;
    assert_ok(tvm_graph_report(graph, &report));
    ck_assert_msg(strstr(report, "two: scale, 1 x 1 x 1 blocks, after one\n") != NULL, "%s", report);
    free(report);
    ck_assert_int_eq(tvm_graph_set_scalar(graph, "f", &(tvm_value){.f = 1}), TVM_USAGE);
}
END_TEST

/* Tensors may come later; elements of 4 bits are bytes to callers, and a scalar as it is can change. */
START_TEST(tensors_come_later) {
    static const char text[] = ".vasm 7\n"
                               ".kernel copy(n: i32, x: global u4[n], y: global u4[n])\n"
                               ".warps 1\n"
                               ".grid cdiv(n, 256)\n"
                               "    %v = load-global x[block.x * 256], spatial(32).local(8)\n"
                               "    store-global y[block.x * 256], %v\n"
                               ".end\n"
                               ".graph g(n: i32, x: input u4[n], y: output u4[n])\n"
                               "    %t = alloc-global u4[n]\n"
                               "    launch copy(n, x, %t)\n"
                               "    launch copy(n, %t, y)\n"
                               ".end\n";
    const tvm_graph_argument n = {"n", {.i = N}};
    assert_ok(tvm_graph_assemble(kit.context, text, sizeof text - 1, NULL, &n, 1, &graph));
    assert_ok(tvm_graph_finish(graph));
    ck_assert_int_eq(tvm_graph_launch(graph, NULL), TVM_USAGE); /* where x lies is not known */
    int64_t shape = N / 2;
    tvm_tensor tensor = {
        .ndim = 1, .dtype = {TVM_TENSOR_UINT, 8, 1}, .shape = &shape, .device = {TVM_TENSOR_CPU, 0}};
    tensor.data = kit_input(&kit, TVM_U(8), N / 2, 0, 255)->data;
    assert_ok(tvm_graph_set_tensor(graph, "x", &tensor));
    tensor.data = kit_tensor_new(&kit, TVM_U(8), N / 2)->data;
    assert_ok(tvm_graph_set_tensor(graph, "y", &tensor));
    assert_ok(tvm_graph_launch(graph, NULL));
    kit_read(&kit, &kit.tensors[1]);
    for (int i = 0; i < N / 2; i++) ck_assert(kit.tensors[0].values[i] == kit.tensors[1].values[i]);
}
END_TEST

/* ---- refusals ---- */

/* `at` is a line behind the kernels, from 1 on; 0: the message has no place. */
static void refused(const char *text, unsigned at, const char *message) {
    const char *whole = with_kernels(text);
    char place[32] = "";
    unsigned line = at;
    for (const char *c = graph_source; at && *c; c++) line += *c == '\n';
    tvm_status status = read_graph(whole, NULL, vector_names);
    if (!status) status = tvm_graph_finish(graph);
    ck_assert_msg(status != TVM_OK, "%s is taken, without '%s'", text, message);
    if (at) snprintf(place, sizeof place, "-:%u:", line);
    ck_assert_msg(strstr(tvm_message(kit.context), message) && strstr(tvm_message(kit.context), place),
                  "%s\n'%s' does not say '%s' at '%s'", text, tvm_message(kit.context), message, place);
    tvm_graph_free(graph);
    graph = NULL;
}

START_TEST(what_is_wrong_is_refused_at_its_place) {
    vectors();
    refused("", 0, "the text has no .graph");
    refused(HEAD, 1, "'.graph' without '.end'");
    refused(HEAD ".end\n", 1, "the graph has no 'launch'");
    refused(HEAD "launch scale(n, f, x, z)\n.end\n.graph h()\n.end\n", 4, "there is a graph already");
    refused(HEAD "launch scal(n, f, x, z)\n.end\n", 2, "did you mean 'scale'?");
    refused(HEAD "launch p.scale(n, f, x, z)\n.end\n", 2, "there is no program 'p'");
    refused(HEAD "launch scale(n, f, x)\n.end\n", 2, "'y' of 'scale' is not given");
    refused(HEAD "launch scale(n, f, x, z, z)\n.end\n", 2, "'scale' takes 4 arguments");
    refused(HEAD "launch scale(n, f, x, x = z)\n.end\n", 2, "'x' is given twice");
    refused(HEAD "launch scale(n, f, x, yy = z)\n.end\n", 2, "did you mean 'y'?");
    refused(HEAD "launch scale(n = n, f, x, z)\n.end\n", 2, "without a name stands behind");
    refused(HEAD "launch scale(f, f, x, z)\n.end\n", 2, "'n' of 'scale' is i32, not f32");
    refused(HEAD "launch scale(x, f, x, z)\n.end\n", 2, "is a scalar of type i32, not a global tensor");
    refused(HEAD "launch scale(n, f, n, z)\n.end\n", 2, "is a tensor of f32, not a run-time scalar");
    refused(HEAD "launch relu(n, x, z)\n.end\n", 2, "'x' of 'relu' is a tensor of f16, not of f32");
    refused(HEAD "launch scale(block.x, f, x, z)\n.end\n", 2, "an argument of a launch is made of");
    refused(HEAD "launch a: scale(n, f, x, z) after b\nlaunch b: scale(n, f, x, z)\n.end\n", 2,
            "there is no launch 'b' before this");
    refused(HEAD "launch a: scale(n, f, x, z) after a\n.end\n", 2, "there is no launch 'a' before this");
    refused(HEAD "launch a: scale(n, f, x, z)\nlaunch a: scale(n, f, x, z)\n.end\n", 3,
            "there is already a launch 'a'");
    refused(HEAD "lunch scale(n, f, x, z)\n.end\n", 2, "did you mean 'launch'?");
    refused(HEAD "%t = alloc-global f32[grid.x]\nlaunch scale(n, f, x, z)\n.end\n", 2,
            "an extent in a graph");
    refused(HEAD "%t = alloc-global f32[n], clean\nlaunch scale(n, f, x, z)\n.end\n", 2, "is not clean");
    refused(HEAD "%t = load-global x[0], spatial(32)\n.end\n", 2, "'%name = alloc-global'");
    refused(HEAD ".grid 1\nlaunch scale(n, f, x, z)\n.end\n", 2, "'.grid' outside of a kernel");
    refused(".graph g(x: global f32[3])\n.end\n", 1, "is 'input', 'output' or 'state'");
    refused(".graph g(x: inptu f32[3])\n.end\n", 1, "is 'input', 'output' or 'state'");
    refused(".graph g(x: input f33[3])\n.end\n", 1, "did you mean 'f32'?");
    refused(".graph g(x: f32[3])\n.end\n", 1, "a tensor is written 'input f16[m, n]'");
    refused(".program p = \"none.vasm\"\n", 1, "cannot find 'none.vasm'");
    refused(".program p = 3\n", 1, "expected a file name in quotes");
    refused(".graph g(n: i32, n: i32)\n.end\n", 1, "there are two parameters 'n'");
}
END_TEST

START_TEST(what_does_not_fit_is_refused) {
    vectors();
    refused(HEAD "launch up: scale(n, f, z, z)\n.end\n", 2,
            "launch 'up': kernel 'scale' reads 'x', the output 'z', which no launch before it has written");
    refused(HEAD "launch scale(n, f, x, x)\n.end\n", 2, "which is the input 'x'");
    refused(HEAD "launch scale(n / 0, f, x, z)\n.end\n", 0, "division by zero");
    refused(HEAD "launch scale(n - 1, f, x, z)\n.end\n", 0, "launch 'scale.0'");
    refused(HEAD ".assume n % 3 == 0\nlaunch scale(n, f, x, z)\n.end\n", 0, "n % 3 == 0");
    refused(HEAD "%t = alloc-global f32[n]\nlaunch scale(n, f, x, z)\n.end\n", 0,
            "no launch takes tensor '%t'");
    refused(HEAD "%t = alloc-global f32[n - 1000]\nlaunch scale(n, f, x, z)\n.end\n", 0, "negative");
    refused(HEAD "%t = alloc-global f32[n, 1000000, 1000000]\nlaunch scale(n, f, x, z)\n.end\n", 0, "2^40");
    refused(HEAD "%t = view-global x[n], [n]\nlaunch scale(n, f, %t, z)\n.end\n", 0, "%t");
    kit.arguments[0].i = -5;
    refused(HEAD "launch scale(n, f, x, z)\n.end\n", 0, "negative");
    kit.argument_count = 0;
    refused(HEAD "launch scale(n, f, x, z)\n.end\n", 0, "graph 'g': scalar 'n' is not given");
}
END_TEST

START_TEST(arguments_have_the_names_of_parameters) {
    static const char *const unknown[] = {"n", "f", "x", "zz"}, *const twice[] = {"n", "f", "x", "n"};
    vectors();
    const char *text = with_kernels(HEAD "launch scale(n, f, x, z)\n.end\n");
    ck_assert_int_eq(read_graph(text, NULL, unknown), TVM_USAGE);
    ck_assert_msg(strstr(tvm_message(kit.context), "there is no parameter 'zz'") != NULL, "%s",
                  tvm_message(kit.context));
    ck_assert_int_eq(read_graph(text, NULL, twice), TVM_USAGE);
    kit.arguments[0] = (tvm_value){.f = N}; /* an i32 */
    ck_assert_int_eq(read_graph(text, NULL, vector_names), TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(kit.context), "scalar 'n' is i32") != NULL, "%s",
                  tvm_message(kit.context));
    kit.arguments[0] = (tvm_value){.i = N};
    int64_t shape = N / 2;
    const tvm_tensor half = {.data = kit.tensors[0].data,
                             .ndim = 1,
                             .dtype = {TVM_TENSOR_FLOAT, 32, 1},
                             .shape = &shape,
                             .device = {TVM_TENSOR_CPU, 0}};
    kit.arguments[2] = (tvm_value){.tensor = &half};
    ck_assert_int_eq(read_graph(text, NULL, vector_names), TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(kit.context), "tensor 'x' is to be f32[128]") != NULL, "%s",
                  tvm_message(kit.context));
    tvm_program *program;
    ck_assert_int_eq(tvm_assemble(kit.context, text, strlen(text), NULL, &program), TVM_SYNTAX);
    ck_assert_msg(strstr(tvm_message(kit.context), "a graph stands here") != NULL, "%s",
                  tvm_message(kit.context));
}
END_TEST

/* What a text may have of anything has a limit, and a message. */
START_TEST(counts_have_limits) {
    char programs[5200], path[5000];
    vectors();
    refused(HEAD ".for I = 0 to 5000\nlaunch scale(n, f, x, z)\n.endfor\n.end\n", 3, "at most 4096 launches");
    refused(HEAD ".for I = 0 to 17\n%t${I} = alloc-global f32[n]\n.endfor\nlaunch scale(n, f, x, z)\n.end\n",
            3, "at most 16");
    snprintf(programs, sizeof programs, ".for I = 0 to 70\n.program p${I} = \"%s\"\n.endfor\n" HEAD ".end\n",
             program_path("tutorial/axpy.vasm", path));
    refused(programs, 2, "at most 64 programs");
    refused(HEAD
            "launch one: scale(n, f, x, z)\nlaunch scale(n, f, x, z) after one"
            ", one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one"
            ", one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one"
            ", one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one"
            ", one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one"
            "\n.end\n",
            3, "more than 64 launches");
}
END_TEST

/* ---- damaged texts ---- */

static const char sample[] =
    ".vasm 7\n"
    ".kernel scale(n: i32, f: f32, x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 128)\n"
    "    store-global y[block.x * 128], load-global(x[block.x * 128], spatial(32).local(4))\n"
    ".end\n"
    ".program p = \"no such file\" with T = f16, N = 3, S = \"a \\\" b\"\n"
    ".graph g(n: i32, f: f32, x: input f32[n], z: output f32[n] strides [1], s: state f32[4])\n"
    ".assume n % 4 == 0\n"
    "    %t = alloc-global f32[n, 2]\n"
    "    %v = view-global %t[0, 0], [n], order [1]\n"
    "    launch one: scale(n, f = f * 2.0, x = x, y = %v)\n"
    "    launch p.q(n + 1, 3.5, %v, z) after one\n"
    ".end\n";

/* Taken or refused, with a message, and nothing is left (which sanitizers see). */
static void take(const char *text, size_t size) {
    const tvm_graph_argument arguments[] = {{"n", {.i = N}}, {"f", {.f = 1}}};
    tvm_status status = tvm_graph_assemble(kit.context, text, size, NULL, arguments, 2, &graph);
    ck_assert(!status == (graph != NULL));
    ck_assert(!status == !*tvm_message(kit.context));
    if (!status && tvm_graph_finish(graph)) ck_assert(*tvm_message(kit.context));
    tvm_graph_free(graph);
    graph = NULL;
}

START_TEST(texts_may_be_cut_anywhere) {
    for (size_t size = 0; size < sizeof sample; size++) take(sample, size);
}
END_TEST

/* A piece of the text stands where another one did, or bytes are others. */
START_TEST(texts_may_be_damaged_anyhow) {
    static const char bytes[] = "%.,:()[]=\n \"${}-0naxz\\;";
    char text[2 * sizeof sample];
    for (int round = 0; round < 3000; round++) {
        size_t size = sizeof sample - 1, at = (size_t)(kit_random(&kit) * (double)size);
        memcpy(text, sample, size);
        if (round % 2) {
            size_t from = (size_t)(kit_random(&kit) * (double)size), most = size - (from > at ? from : at);
            memmove(text + at, sample + from, most < 40 ? most : 40);
        }
        for (int i = 0; i < 3; i++)
            text[(size_t)(kit_random(&kit) * (double)size)] =
                bytes[(size_t)(kit_random(&kit) * (double)(sizeof bytes - 1))];
        take(text, size);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph_text");
    TCase *tests = suite_case(suite, "graph_text");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_layer_of_llama_is_what_float64_computes);
    tcase_add_test(tests, a_definition_is_for_the_programs_too);
    tcase_add_test(tests, loops_add_launches_that_take_parts);
    tcase_add_test(tests, a_launch_may_say_what_it_comes_after);
    tcase_add_test(tests, tensors_come_later);
    tcase_add_test(tests, what_is_wrong_is_refused_at_its_place);
    tcase_add_test(tests, what_does_not_fit_is_refused);
    tcase_add_test(tests, arguments_have_the_names_of_parameters);
    tcase_add_test(tests, counts_have_limits);
    tcase_add_test(tests, texts_may_be_cut_anywhere);
    tcase_add_test(tests, texts_may_be_damaged_anyhow);
    return run_suite(suite);
}
