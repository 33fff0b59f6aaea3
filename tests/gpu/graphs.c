/* Graphs on a GPU: launches over a few temporaries, which so share memory and wait for each other in many
 * ways, some of them early ones (programmatic dependencies); replays with other scalars and memory. Results
 * are the interpreter's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

enum { LENGTH = 1 << 16, TENSORS = 7, LAUNCHES = 40, GRAPHS = 12, REPLAYS = 20 };

static const char source[] =
    ".vasm 3\n"
    ".kernel both(n: i32, f: f32, x: global f32[n], y: global f32[n], z: global f32[n])\n"
    ".warps 4\n"
    ".grid cdiv(n, 512)\n"
    "    %x = load-global x[block.x * 512], [512]\n"
    "    %y = load-global y[block.x * 512], [512]\n"
    "    store-global z[block.x * 512], fma(%x, f, %y)\n"
    ".end\n"
    ".kernel early(n: i32, f: f32, x: global f32[n], y: global f32[n], z: global f32[n])\n"
    ".warps 4\n"
    ".grid cdiv(n, 512)\n"
    "    launch-dependents\n"
    "    %x = load-global x[block.x * 512], [512]\n"
    "    wait-dependency\n"
    "    %y = load-global y[block.x * 512], [512]\n"
    "    store-global z[block.x * 512], fma(%x, f, %y)\n"
    ".end\n";

/* A graph on one of the devices: x, w and z are memory there. */
typedef struct built {
    tvm_context *context;
    tvm_program *program;
    tvm_graph *graph;
    void *x[2], *w, *z;
} built;

static bool said(const built *b, bool good, const char *what) {
    if (!good) printf("graphs: %s: %s: %s\n", tvm_device_name(b->context), what, tvm_message(b->context));
    return good;
}

static tvm_tensor vector_at(const built *b, void *data, int64_t shape[1]) {
    tvm_tensor made = {.data = data, .ndim = 1, .shape = shape};
    shape[0] = LENGTH;
    made.device.device_type = tvm_device(b->context) == TVM_DEVICE_CUDA ? TVM_TENSOR_CUDA : TVM_TENSOR_CPU;
    made.dtype.code = TVM_TENSOR_FLOAT;
    made.dtype.bits = 32;
    made.dtype.lanes = 1;
    return made;
}

static bool add_tensor(const built *b, const char *name, tvm_graph_role role, void *data) {
    int64_t shape[1];
    const tvm_tensor tensor = vector_at(b, data, shape);
    return !tvm_graph_add_tensor(b->graph, name, role, &tensor);
}

static bool open_built(built *b, tvm_context *context, const gpu_test *test) {
    enum { BYTES = LENGTH * sizeof(float) };
    float *host = malloc(BYTES);
    *b = (built){.context = context};
    bool good = host && !tvm_load(context, test->bytecode, test->size, &b->program) &&
                !tvm_memory_alloc(context, BYTES, &b->x[0]) && !tvm_memory_alloc(context, BYTES, &b->x[1]) &&
                !tvm_memory_alloc(context, BYTES, &b->w) && !tvm_memory_alloc(context, BYTES, &b->z);
    for (int i = 0; good && i < 3; i++) {
        for (int e = 0; e < LENGTH; e++) host[e] = (float)((e * (i + 3)) % 101 - 50) / 64;
        good = !tvm_memory_write(context, i < 2 ? b->x[i] : b->w, host, BYTES);
    }
    free(host);
    return said(b, good, "memory");
}

static void close_built(built *b) {
    tvm_graph_free(b->graph);
    void *const memory[] = {b->x[0], b->x[1], b->w, b->z};
    for (int i = 0; i < 4; i++)
        if (memory[i]) tvm_memory_free(b->context, memory[i]);
    tvm_program_free(b->program);
}

/* Of random launches: the same on both devices for a seed. */
static bool make_graph(built *b, unsigned seed) {
    bool written[TENSORS] = {false}, good = true;
    char name[16], from[16], to[16];
    tvm_kernel *kernels[2];
    srand(seed);
    tvm_graph_free(b->graph);
    b->graph = NULL;
    good =
        !tvm_graph_create(b->context, "random", &b->graph) && add_tensor(b, "x", TVM_GRAPH_INPUT, b->x[0]) &&
        add_tensor(b, "w", TVM_GRAPH_INPUT, b->w) && add_tensor(b, "z", TVM_GRAPH_OUTPUT, b->z) &&
        !tvm_graph_add_scalar(b->graph, "f", "f32", &(tvm_value){.f = 0.5}) &&
        !tvm_get_kernel(b->program, "both", &kernels[0]) && !tvm_get_kernel(b->program, "early", &kernels[1]);
    for (int t = 0; good && t < TENSORS; t++) {
        snprintf(name, sizeof name, "t%d", t);
        good = add_tensor(b, name, TVM_GRAPH_TEMPORARY, NULL);
    }
    for (int i = 0; good && i < LAUNCHES; i++) {
        int kernel = rand() % 2, weights = rand() % 2, a = rand() % TENSORS,
            c = i < TENSORS ? i : rand() % TENSORS;
        snprintf(name, sizeof name, "l%d", i);
        snprintf(from, sizeof from, written[a] ? "t%d" : "x", a);
        snprintf(to, sizeof to, i < LAUNCHES - 1 ? "t%d" : "z", c);
        written[c] = true;
        const tvm_graph_argument arguments[] = {{.value = {.i = LENGTH}},
                                                {.name = "f"},
                                                {.name = weights ? "w" : from},
                                                {.name = from},
                                                {.name = to}};
        good = !tvm_graph_add_launch(b->graph, name, kernels[kernel], arguments, 5, NULL, 0);
    }
    return said(b, good && !tvm_graph_finish(b->graph), "the graph");
}

static bool replay(const built *b, int number, float *result) {
    int64_t shape[1];
    const tvm_tensor x = vector_at(b, b->x[number % 2], shape);
    const tvm_value f = {.f = (float)(number % 5 - 2) / 4};
    bool good = !tvm_graph_set_tensor(b->graph, "x", &x) && !tvm_graph_set_scalar(b->graph, "f", &f) &&
                !tvm_graph_launch(b->graph, NULL) && !tvm_synchronize(b->context, NULL) &&
                !tvm_memory_read(b->context, result, b->z, LENGTH * sizeof *result);
    return said(b, good, "a replay");
}

static bool run_graphs(suite *s, const gpu_test *test) {
    built cpu = {.context = s->cpu}, gpu = {.context = s->gpu};
    float *results = malloc(2 * LENGTH * sizeof *results);
    bool good = open_built(&cpu, s->cpu, test);
    good = open_built(&gpu, s->gpu, test) && good && results;
    for (unsigned seed = 1; good && seed <= GRAPHS; seed++) {
        good = make_graph(&cpu, seed) && make_graph(&gpu, seed);
        for (int i = 0; good && i < REPLAYS; i++) {
            good = replay(&gpu, i, results);
            if (i >= REPLAYS - 2 || i == 0) {
                good = good && replay(&cpu, i, results + LENGTH);
                if (good && memcmp(results, results + LENGTH, LENGTH * sizeof *results)) {
                    printf("graphs: seed %u, replay %d: the GPU's result is not the interpreter's\n", seed,
                           i);
                    good = false;
                }
            }
        }
    }
    free(results);
    close_built(&cpu);
    close_built(&gpu);
    return good;
}

void gpu_add_graphs(suite *s, gpu_group *group) {
    (void)s;
    gpu_add(group, "graphs of random launches", source, NULL, NULL, 0)->run = run_graphs;
}
