/* Persistent kernels: the code of several kernels as bodies of one, run by the PTX machine from the rows of a
 * graph's tape, does what the interpreter does with the graph, whatever the number of its blocks, and launch
 * after launch; kernels that cannot be bodies are refused, with the cause. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "graph_kit.h"

#include <pthread.h>
#include <stdlib.h>

#include "abi_kit.h"
#include "persistent.h"
#include "ptx_machine.h"
#include "runtime_kit.h"
#include "suite_kit.h"
#include "tape.h"

enum { N = 1000, LAUNCHES = 16, WORKERS = 5 };

static const char more_source[] =
    ".vasm 7\n"
    /* y = x, through shared memory, by more warps than the others have */
    ".kernel passed(n: i32, x: global f32[n], y: global f32[n])\n"
    ".warps 4\n"
    ".grid cdiv(n, 256)\n"
    "    %s = alloc-shared f32[256], row_major\n"
    "    store-shared %s, load-global(x[block.x * 256], spatial(128).local(2))\n"
    "    sync\n"
    "    store-global y[block.x * 256], load-shared(%s, local(2).spatial(128))\n"
    ".end\n"
    /* the same between two roles that meet at an mbarrier; the last block has nothing to do, and ends early
     */
    ".kernel roles(n: i32, x: global f32[n], y: global f32[n])\n"
    ".warps 2\n"
    ".grid cdiv(n, 128) + 1\n"
    "    %full = alloc-barrier [1]\n"
    "    %s = alloc-shared f32[128], row_major\n"
    "    if block.x * 128 >= n\n"
    "        exit\n"
    "    end\n"
    "    wait-dependency\n"
    "    role first warps 0 to 1\n"
    "        store-shared %s, load-global(x[block.x * 128], spatial(32).local(4))\n"
    "        arrive-barrier %full[0]\n"
    "    end\n"
    "    role second warps 1 to 2\n"
    "        wait-barrier %full[0]\n"
    "        store-global y[block.x * 128], load-shared(%s, spatial(32).local(4))\n"
    "    end\n"
    ".end\n"
    /* y = x summed over two blocks, of which the second takes what the first puts */
    ".kernel pairs(n: i32, x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".grid 2 * cdiv(n, 128)\n"
    "    %part = alloc-global f32[cdiv(n, 128), 128], clean\n"
    "    %v = load-global x[block.x / 2 * 128], spatial(32).local(4)\n"
    "    if block.x % 2 == 0\n"
    "        put-global %part[block.x / 2, 0], view(%v, f32, spatial(1, 32).local(1, 4))\n"
    "    else\n"
    "        %p = take-global(%part[block.x / 2, 0], spatial(1, 32).local(1, 4))\n"
    "        store-global y[block.x / 2 * 128], add(%v, view(%p, f32, spatial(32).local(4)))\n"
    "    end\n"
    ".end\n"
    ".kernel clustered(n: i32, x: global f32[n], y: global f32[n])\n"
    ".warps 1\n"
    ".cluster 2\n"
    ".grid 2\n"
    "    sync-cluster\n"
    ".end\n"
    ".kernel talking(n: i32)\n"
    ".warps 1\n"
    ".grid 1\n"
    "    %v = alloc-register i32[32], spatial(32), init 1\n"
    "    print-tensor %v\n"
    ".end\n";

static tvm_context *context;
static tvm_program *plain, *more;
static tvm_graph *graph;
static tvm_tape tape;
static _Alignas(16) float x[N], z[N], expected[N];

static void assert_ok(tvm_status status) {
    ck_assert_msg(status == TVM_OK, "%s", tvm_message(context));
}

static void setup(void) {
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    assert_ok(tvm_assemble(context, graph_source, strlen(graph_source), NULL, &plain));
    assert_ok(tvm_assemble(context, more_source, strlen(more_source), NULL, &more));
    ck_assert_int_eq(tvm_graph_create(context, "g", &graph), TVM_OK);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 97 - 40);
    memset(z, 0, sizeof z);
}

static void teardown(void) {
    tvm_tape_free(&tape);
    tvm_graph_free(graph);
    tvm_program_free(plain);
    tvm_program_free(more);
    tvm_context_free(context);
}

/* ---- graphs ---- */

static void vector(const char *name, tvm_graph_role role, float *data) {
    graph_vector made;
    assert_ok(tvm_graph_add_tensor(graph, name, role, vector_at(&made, data, N, TVM_TENSOR_CPU)));
}

static void tensors(int temporaries) {
    char name[16];
    vector("x", TVM_GRAPH_INPUT, x);
    vector("z", TVM_GRAPH_OUTPUT, z);
    for (int i = 0; i < temporaries; i++) {
        snprintf(name, sizeof name, "t%d", i);
        vector(name, TVM_GRAPH_TEMPORARY, NULL);
    }
}

/* y = 2 x, and z = x + y; scale and sum share their counters with nothing. */
static void finish(void) {
    tvm_diags diags = {0};
    assert_ok(tvm_graph_set_persistent(graph));
    assert_ok(tvm_graph_finish(graph));
    assert_ok(tvm_graph_launch(graph, NULL));
    memcpy(expected, z, sizeof z);
    ck_assert_int_eq(tvm_tape_make(graph, 1, &tape, &diags), TVM_OK);
    ck_assert_msg(!tvm_tape_verify(graph, &tape, &diags), "%s", diags.count ? diags.items[0].message : "");
    tvm_diags_free(&diags);
}

#define ADD(name, program, kernel, ...)                                                                      \
    assert_ok(ADD_LAUNCH(graph, name, kernel_named(program, kernel), INTEGER(N), __VA_ARGS__))

/* Kernels of several programs and sizes of blocks, one of them twice, with waits before and in their code,
 * one launch that waits for two others, and temporaries that share memory. */
static void make_mixed(void) {
    tensors(6);
    ADD("double", plain, "scale", REAL(2), NAMED("x"), NAMED("t0"));
    ADD("pass", more, "passed", NAMED("t0"), NAMED("t1"));
    ADD("halve", plain, "scale", REAL(0.5), NAMED("x"), NAMED("t2"));
    ADD("roles", more, "roles", NAMED("t2"), NAMED("t3"));
    ADD("sum", plain, "sum", NAMED("t1"), NAMED("t3"), NAMED("t4"));
    ADD("early", plain, "early", NAMED("x"), NAMED("t4"), NAMED("t5"));
    ADD("last", more, "roles", NAMED("t5"), NAMED("z"));
    finish();
}

/* ---- the machine ---- */

/* Blocks of the persistent kernel, of which one runs at a time: each until it asks a counter, or for
 * what another block puts. */
typedef struct crew crew;
typedef struct worker {
    ptx_machine machine;
    crew *crew;
    uint32_t number;
    pthread_t thread;
} worker;
struct crew {
    worker workers[WORKERS];
    uint32_t count, turn;
    bool ended[WORKERS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* The lock is held. */
static void pass_on(crew *c) {
    uint32_t next = c->turn;
    do next = (next + 1) % c->count;
    while (c->ended[next] && next != c->turn);
    c->turn = next;
    pthread_cond_broadcast(&c->changed);
}

static void wait_for_turn(crew *c, uint32_t number) {
    while (c->turn != number) pthread_cond_wait(&c->changed, &c->lock);
}

static void at_insn(void *closure, ptx_machine *m, const ptx_insn *insn) {
    worker *w = closure;
    (void)m;
    if (!ptx_is(insn->part[0], "ld") ||
        (!ptx_is(insn->part[1], "acquire") && !ptx_is(insn->part[1], "relaxed")))
        return;
    pass_on(w->crew);
    wait_for_turn(w->crew, w->number);
}

static void *run_worker(void *closure) {
    worker *w = closure;
    pthread_mutex_lock(&w->crew->lock);
    wait_for_turn(w->crew, w->number);
    ptx_run(&w->machine);
    w->crew->ended[w->number] = true;
    pass_on(w->crew);
    pthread_mutex_unlock(&w->crew->lock);
    return NULL;
}

static void run_crew(const tvm_module *module, uint32_t count, const uint64_t params[6]) {
    crew c = {.count = count};
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.changed, NULL);
    for (uint32_t i = 0; i < count; i++) {
        worker *w = &c.workers[i];
        *w = (worker){.machine = ptx_load(module->ptx, TVM_PERSISTENT_NAME, module->kernels[0].abi.threads),
                      .crew = &c,
                      .number = i};
        memcpy(w->machine.params, params, 6 * sizeof *params);
        w->machine.grid[0] = count, w->machine.block[0] = i;
        w->machine.watch = at_insn, w->machine.watcher = w;
    }
    for (uint32_t i = 0; i < count; i++)
        ck_assert_int_eq(pthread_create(&c.workers[i].thread, NULL, run_worker, &c.workers[i]), 0);
    for (uint32_t i = 0; i < count; i++) pthread_join(c.workers[i].thread, NULL);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_msg(!c.workers[i].machine.fault[0] && !c.workers[i].machine.trapped, "block %u: %s", i,
                      c.workers[i].machine.fault);
        ptx_free(&c.workers[i].machine);
    }
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
}

/* ---- what a launch of the persistent kernel reads ---- */

typedef struct persistent_launch {
    tvm_module *module;
    uint32_t resident, bodies, body_of[LAUNCHES];
    uint8_t *rows;
    uint32_t row_bytes;
    tvm_persistent_wait *waits;
    uint32_t *counters;
    uint8_t *params[LAUNCHES], *own[LAUNCHES];
} persistent_launch;

static void translate_graph(persistent_launch *p, const char *target_name) {
    tvm_persistent_body bodies[LAUNCHES];
    tvm_diags diags = {0};
    tvm_target target;
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    for (uint32_t i = 0; i < graph->launch_count; i++) {
        const tvm_kernel *kernel = graph->launches[i]->kept.variant;
        uint32_t at = 0;
        while (at < p->bodies &&
               (bodies[at].program != kernel->code->program || bodies[at].kernel != kernel->index))
            at++;
        if (at == p->bodies)
            bodies[p->bodies++] = (tvm_persistent_body){kernel->code->program, kernel->index};
        p->body_of[i] = at;
    }
    tvm_status status =
        tvm_translate_persistent(bodies, p->bodies, target, false, &p->module, &p->resident, &diags);
    ck_assert_msg(!status, "%s", diags.count ? diags.items[0].message : "");
    tvm_diags_free(&diags);
}

/* The parameters of a launch as the body's ABI has them; clean memory of its own for what it allocates. */
static void set_params(persistent_launch *p, uint32_t index) {
    const tvm_kept_launch *kept = &graph->launches[index]->kept;
    const tvm_kernel_abi *abi = &p->module->kernels[1 + p->body_of[index]].abi;
    const tvm_ir_kernel *kernel = kept->variant->kernel;
    uint64_t values[TVM_MAX_PARAMS], own[TVM_MAX_LAUNCH_TENSORS] = {0}, rows[TVM_ABI_PARAMS];
    p->params[index] = aligned_alloc(64, TVM_ABI_PARAM_BYTES);
    p->own[index] = aligned_alloc(256, 1 << 16);
    ck_assert(p->params[index] && p->own[index]);
    memset(p->own[index], 0, 1 << 16);
    for (uint32_t i = 0; i < TVM_MAX_LAUNCH_TENSORS && i < 4; i++)
        own[i] = (uint64_t)(uintptr_t)p->own[index] + ((uint64_t)i << 14);
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        const tvm_slot *slot = &kernel->slots[i];
        values[i] = kept->args.scalars[i].u;
        if (slot->kind == TVM_SLOT_GLOBAL)
            values[i] = (uint64_t)(uintptr_t)kept->args.data[i];
        else if (slot->dtype.kind == TVM_KIND_FLOAT)
            values[i] = tvm_f32_bits((float)kept->args.scalars[i].f);
    }
    abi_set(abi, values, own, &kept->shapes.env, NULL, rows, TVM_ABI_PARAMS);
    for (uint32_t i = 0; i < abi->param_count; i++)
        memcpy(p->params[index] + abi->params[i].offset, &rows[i], abi->params[i].width);
}

static void set_rows(persistent_launch *p) {
    p->row_bytes = tvm_persistent_row_bytes(p->module);
    p->rows = aligned_alloc(64, (tape.task_count * (size_t)p->row_bytes + 64) / 64 * 64);
    p->waits = aligned_alloc(64, (tape.wait_count + 8) * sizeof *p->waits / 64 * 64 + 64);
    p->counters = aligned_alloc(64, (tape.counter_count + 1) * TVM_PERSISTENT_COUNTER_BYTES);
    ck_assert(p->rows && p->waits && p->counters);
    memset(p->counters, 0, (tape.counter_count + 1) * TVM_PERSISTENT_COUNTER_BYTES);
    for (uint32_t i = 0; i < tape.wait_count; i++)
        p->waits[i] =
            (tvm_persistent_wait){tape.waits[i].counter * TVM_PERSISTENT_COUNTER_BYTES, tape.waits[i].value};
    for (uint32_t i = 0; i < tape.task_count; i++) {
        const tvm_tape_task *task = &tape.tasks[i];
        const graph_launch *launch = graph->launches[task->launch];
        const tvm_kernel_abi *abi = &p->module->kernels[1 + p->body_of[task->launch]].abi;
        tvm_persistent_row made, *row = &made;
        *row = (tvm_persistent_row){.body = p->body_of[task->launch],
                                    .is_early = launch->early && abi->flags & TVM_ABI_WAITS_FOR_DEPENDENCY,
                                    .block = {task->first, 0, 0},
                                    .counter = task->counter * TVM_PERSISTENT_COUNTER_BYTES,
                                    .raise = task->raise};
        memcpy(row->grid, launch->kept.launch.grid, sizeof row->grid);
        if (task->wait_count) {
            row->wait = p->waits[task->first_wait].counter, row->value = p->waits[task->first_wait].value;
            row->more = task->first_wait + 1, row->more_count = task->wait_count - 1;
        }
        memcpy(p->rows + (size_t)i * p->row_bytes, row, sizeof *row);
        memcpy(p->rows + (size_t)i * p->row_bytes + sizeof *row, p->params[task->launch],
               p->row_bytes - sizeof *row);
    }
}

/* Twice, by each number of blocks from `fewest` on: the second launch finds the counters as the first did. */
static void check(const char *target, uint32_t fewest) {
    persistent_launch p = {0};
    translate_graph(&p, target);
    for (uint32_t i = 0; i < graph->launch_count; i++) set_params(&p, i);
    set_rows(&p);
    const uint64_t params[] = {(uint64_t)(uintptr_t)p.rows,
                               (uint64_t)(uintptr_t)p.waits,
                               (uint64_t)(uintptr_t)p.counters,
                               0,
                               tape.task_count,
                               tape.counter_count};
    for (uint32_t workers = fewest; workers <= WORKERS; workers++)
        for (int again = 0; again < 2; again++) {
            memset(z, 0, sizeof z);
            run_crew(p.module, workers, params);
            for (int i = 0; i < N; i++)
                ck_assert_msg(z[i] == expected[i], "%s, %u blocks: z[%d] is %g, not %g", target, workers, i,
                              (double)z[i], (double)expected[i]);
        }
    for (uint32_t i = 0; i < graph->launch_count; i++) free(p.params[i]), free(p.own[i]);
    free(p.rows), free(p.waits), free(p.counters);
    tvm_module_free(p.module);
}

START_TEST(it_does_what_the_launches_do) {
    make_mixed();
    for (int i = 0; i < N; i++) ck_assert(expected[i] == x[i] + (2 * x[i] + 0.5F * x[i]));
    ck_assert(graph->launches[6]->early && !graph->launches[4]->early);
    ck_assert_uint_eq(graph->launches[4]->after_count, 2);
    check("sm_90a", 1);
    check("sm_80", 1);
}
END_TEST

/* A block that waits for the one before it: as many as the launch has are under way, or the order of the tape
 * has the other one begin first. */
START_TEST(blocks_that_wait_for_each_other_all_come_to_run) {
    tensors(1);
    ADD("pairs", more, "pairs", NAMED("x"), NAMED("t0"));
    ADD("double", plain, "scale", REAL(2), NAMED("t0"), NAMED("z"));
    finish();
    for (int i = 0; i < N; i++) ck_assert(expected[i] == 4 * x[i]);
    check("sm_90a", 1);
}
END_TEST

static void assert_refused(tvm_program *program, const char *kernel, const char *why) {
    const tvm_kernel *found = kernel_named(program, kernel);
    const tvm_persistent_body body = {found->code->program, found->index};
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module;
    uint32_t resident;
    ck_assert_int_eq(tvm_target_parse("sm_90a", &target, NULL), TVM_OK);
    ck_assert_int_eq(tvm_translate_persistent(&body, 1, target, false, &module, &resident, &diags),
                     TVM_UNSUPPORTED);
    ck_assert_ptr_null(module);
    ck_assert_msg(strstr(diags.items[0].message, why) && strstr(diags.items[0].message, kernel), "%s",
                  diags.items[0].message);
    tvm_diags_free(&diags);
}

START_TEST(what_cannot_be_a_body_is_refused) {
    assert_refused(more, "clustered", "it has clusters");
    assert_refused(more, "talking", "it prints");
}
END_TEST

static Suite *persistent_suite(void) {
    Suite *suite = suite_create("persistent");
    TCase *tests = suite_case(suite, "persistent");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, it_does_what_the_launches_do);
    tcase_add_test(tests, blocks_that_wait_for_each_other_all_come_to_run);
    tcase_add_test(tests, what_cannot_be_a_body_is_refused);
    return suite;
}

int main(void) {
    return run_suite(persistent_suite());
}
