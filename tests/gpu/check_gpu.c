/* Compares the GPU with the interpreter: the data-driven cases, every conversion of low-precision types,
 * element-wise instructions over random data, and the matmul programs (these with float64, too).
 *
 *   check_gpu [--target=N] CASES PROGRAMS [GROUP]     the folders tests/cases and programs; code for an older
 *                                                     target than the GPU's own, as 80
 *   check_gpu [--target=N] --random N [SEED]          N random programs, from that seed on
 *
 * Programs are translated on every core; tests of the groups that take long run beside each other there, too.
 * Prints a line for each failure and each group, and at the end `N passed, N failed, N skipped`. Exit status
 * 77 and the reason where there is no GPU. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "assembler.h"
#include "fileio.h"
#include "suite.h"
#include "vbc.h"

enum { EXIT_SKIP = 77, MAX_THREADS = 32 };

/* ---- programs */

static bool assemble_into(gpu_test *test, const char *text, const char *file, const char *const *defines,
                          size_t define_count) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *bytes = NULL;
    size_t length = text != NULL ? strlen(text) : 0;
    tvm_status status = TVM_OK;
    if (text == NULL) {
        status = tvm_file_read(file, 1 << 20, &bytes, &length, &diags);
        text = (const char *)bytes;
    }
    tvm_assembler_options options = {.defines = defines, .define_count = define_count};
    if (status == TVM_OK)
        status =
            tvm_assemble_text(text, length, file != NULL ? file : test->name, &options, &program, &diags);
    if (status == TVM_OK) status = tvm_vbc_write(program, true, &test->bytecode, &test->size, &diags);
    tvm_diags_print(&diags, stdout, test->name, false);
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
    free(bytes);
    return status == TVM_OK;
}

gpu_test *gpu_add(gpu_group *group, const char *name, const char *text, const char *file,
                  const char *const *defines, size_t define_count) {
    if (group->count == group->capacity) {
        group->capacity = group->capacity * 2 + 16;
        group->tests = realloc(group->tests, group->capacity * sizeof *group->tests);
        if (group->tests == NULL) abort();
    }
    gpu_test *test = &group->tests[group->count++];
    memset(test, 0, sizeof *test);
    snprintf(test->name, sizeof test->name, "%s", name);
    if ((text != NULL || file != NULL) && !assemble_into(test, text, file, defines, define_count))
        test->bytecode = NULL;
    return test;
}

/* ---- translation of all programs ahead, on every core: ptxas takes most of the time */

/* Runs `work`, which takes what there is to do until there is no more, on every core, and waits for it. */
static void on_every_core(void *(*work)(void *), void *data) {
    pthread_t threads[MAX_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (size_t)cores, started = 0;
    while (started < wanted && pthread_create(&threads[started], NULL, work, data) == 0) started++;
    if (started == 0) work(data);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

typedef struct warm_up {
    gpu_group *groups;
    size_t group_count;
    tvm_context *gpu;
    atomic_size_t next;
} warm_up;

static void prepare(tvm_context *gpu, const gpu_test *test) {
    tvm_program *code = NULL;
    if (test->few || test->bytecode == NULL || tvm_load(gpu, test->bytecode, test->size, &code) != TVM_OK)
        return;
    for (size_t i = 0; i < tvm_kernel_count(code); i++) tvm_prepare(tvm_kernel_at(code, i));
    tvm_program_free(code); /* what failed is reported by the test itself; the rest is in the cache */
}

static void *warm(void *data) {
    warm_up *w = data;
    for (;;) {
        size_t index = atomic_fetch_add(&w->next, 1), g = 0;
        while (g < w->group_count && index >= w->groups[g].count) index -= w->groups[g++].count;
        if (g == w->group_count) return NULL;
        prepare(w->gpu, &w->groups[g].tests[index]);
    }
}

/* ---- launches */

typedef struct loaded {
    tvm_context *context;
    tvm_kernel *function;
    tvm_value values[GPU_MAX_ARGS];
} loaded;

static bool failed(const loaded *l, const gpu_test *test, const char *kernel) {
    printf("%s: %s on %s: %s\n", test->name, kernel, tvm_device_name(l->context), tvm_message(l->context));
    return false;
}

static bool set_up(loaded *l, const gpu_arg *args, size_t count) {
    for (size_t i = 0; i < count; i++) {
        l->values[i].i = args[i].scalar;
        l->values[i].f = args[i].number;
        if (!args[i].tensor) continue;
        size_t bytes = gpu_arg_bytes(&args[i]);
        void *zeros = args[i].bytes == NULL ? calloc(bytes + 1, 1) : NULL;
        bool good =
            tvm_memory_alloc(l->context, bytes, &l->values[i].data) == TVM_OK &&
            tvm_memory_write(l->context, l->values[i].data, zeros ? zeros : args[i].bytes, bytes) == TVM_OK;
        free(zeros);
        l->values[i].bytes = bytes;
        if (!good) return false;
    }
    return true;
}

static bool read_back(const loaded *l, const gpu_arg *args, size_t count, uint8_t *outputs[GPU_MAX_ARGS]) {
    for (size_t i = 0; i < count; i++) {
        if (!args[i].tensor) continue;
        outputs[i] = calloc(gpu_arg_bytes(&args[i]) + 1, 1);
        if (outputs[i] == NULL) abort();
        if (tvm_memory_read(l->context, outputs[i], l->values[i].data, gpu_arg_bytes(&args[i])) != TVM_OK)
            return false;
    }
    return true;
}

bool gpu_has_room(tvm_kernel *kernel) {
    tvm_kernel_info info;
    return tvm_get_kernel_info(kernel, &info) != TVM_RESOURCES;
}

bool gpu_launch_code(tvm_context *context, tvm_program *code, const gpu_test *test, const char *name,
                     const gpu_arg *args, size_t count, uint8_t *outputs[GPU_MAX_ARGS]) {
    loaded l = {.context = context};
    bool good = tvm_get_kernel(code, name, &l.function) == TVM_OK && set_up(&l, args, count) &&
                tvm_launchv(l.function, NULL, l.values, count) == TVM_OK &&
                tvm_synchronize(context, NULL) == TVM_OK && read_back(&l, args, count, outputs);
    if (!good) failed(&l, test, name);
    for (size_t i = 0; i < count; i++)
        if (l.values[i].data != NULL) tvm_memory_free(context, l.values[i].data);
    return good;
}

bool gpu_launch(tvm_context *context, const gpu_test *test, const char *name, const gpu_arg *args,
                size_t count, uint8_t *outputs[GPU_MAX_ARGS]) {
    const loaded l = {.context = context};
    tvm_program *code = NULL;
    bool good = tvm_load(context, test->bytecode, test->size, &code) == TVM_OK
                    ? gpu_launch_code(context, code, test, name, args, count, outputs)
                    : failed(&l, test, name);
    tvm_program_free(code);
    return good;
}

/* ---- comparison */

static bool near_enough(const gpu_arg *arg, uint64_t a, uint64_t b) {
    if (a == b) return true;
    double x = tvm_decode(arg->type, a), y = tvm_decode(arg->type, b);
    if (x != x && y != y) return true;
    uint64_t apart = a > b ? a - b : b - a, sign = UINT64_C(1) << (arg->type.bits - 1);
    if (arg->units && x == x && y == y && !((a ^ b) & sign) && apart <= arg->units) return true;
    double scale = x < 0 ? -x : x, distance = x > y ? x - y : y - x;
    return arg->tolerance > 0 && distance <= arg->tolerance * (scale > 1 ? scale : 1);
}

bool gpu_same(const char *name, const char *tensor, const gpu_arg *arg, const uint8_t *cpu,
              const uint8_t *gpu) {
    size_t wrong = 0;
    unsigned bits = arg->type.bits;
    if (memcmp(cpu, gpu, gpu_arg_bytes(arg)) == 0) return true;
    for (size_t i = 0; i < arg->count; i++) {
        uint64_t a = tvm_bits_get(cpu, i * bits, bits), b = tvm_bits_get(gpu, i * bits, bits);
        if (near_enough(arg, a, b)) continue;
        if (wrong++ < 4)
            printf("%s: %s: element %zu is %.9g (0x%llx) on the GPU, %.9g (0x%llx) on the interpreter\n",
                   name, tensor, i, tvm_decode(arg->type, b), (unsigned long long)b, tvm_decode(arg->type, a),
                   (unsigned long long)a);
    }
    if (wrong > 4) printf("%s: %s: %zu of %zu elements differ\n", name, tensor, wrong, arg->count);
    return wrong == 0;
}

bool gpu_run_both(suite *s, const gpu_test *test, const char *name, const gpu_arg *args, size_t count) {
    uint8_t *cpu[GPU_MAX_ARGS] = {0}, *gpu[GPU_MAX_ARGS] = {0};
    bool good =
        gpu_launch(s->cpu, test, name, args, count, cpu) && gpu_launch(s->gpu, test, name, args, count, gpu);
    for (size_t i = 0; good && i < count; i++) {
        char tensor[64];
        snprintf(tensor, sizeof tensor, "%.16s argument %zu", name, i);
        if (args[i].tensor && !gpu_same(test->name, tensor, &args[i], cpu[i], gpu[i])) good = false;
    }
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(cpu[i]), free(gpu[i]);
    return good;
}

bool gpu_run_again(suite *s, const gpu_test *test, const char *name, const gpu_arg *args, size_t count) {
    uint8_t *first[GPU_MAX_ARGS] = {0}, *second[GPU_MAX_ARGS] = {0};
    bool good = gpu_launch(s->gpu, test, name, args, count, first) &&
                gpu_launch(s->gpu, test, name, args, count, second);
    for (size_t i = 0; good && i < count; i++)
        if (args[i].tensor && memcmp(first[i], second[i], gpu_arg_bytes(&args[i])) != 0) {
            printf("%s: %s: other bits the second time\n", test->name, name);
            good = false;
        }
    for (size_t i = 0; i < GPU_MAX_ARGS; i++) free(first[i]), free(second[i]);
    return good;
}

/* ---- the whole */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

typedef struct group_run {
    suite *s;
    const gpu_group *group;
    atomic_size_t next;
    pthread_mutex_t lock; /* of the suite's counts */
} group_run;

static void run_test(group_run *r, const gpu_test *test) {
    bool good = test->run == NULL || (test->bytecode != NULL && test->run(r->s, test));
    pthread_mutex_lock(&r->lock);
    unsigned *count = test->run == NULL ? &r->s->skipped : good ? &r->s->passed : &r->s->failed;
    ++*count;
    if (!good) printf("FAIL: %s\n", test->name);
    fflush(stdout);
    pthread_mutex_unlock(&r->lock);
}

static void *run_tests(void *data) {
    group_run *r = data;
    for (;;) {
        size_t index = atomic_fetch_add(&r->next, 1);
        if (index >= r->group->count) return NULL;
        run_test(r, &r->group->tests[index]);
    }
}

static void run_group(suite *s, const gpu_group *group) {
    group_run r = {.s = s, .group = group};
    unsigned passed = s->passed, bad = s->failed;
    double start = seconds();
    pthread_mutex_init(&r.lock, NULL);
    if (group->beside)
        on_every_core(run_tests, &r);
    else
        run_tests(&r);
    pthread_mutex_destroy(&r.lock);
    printf("%s: %u passed, %u failed (%.1f s)\n", group->name, s->passed - passed, s->failed - bad,
           seconds() - start);
    fflush(stdout);
}

/* s->model, an interpreter with the GPU's target and multiprocessors: a launch on the GPU sees them, and so
 * do the extents of its parameters. */
static bool open_model(suite *s) {
    static const char source[] =
        ".vasm 1\n.kernel device(x: global u8[multiprocessors, target])\n.warps 1\n.grid 1\n.end\n";
    const tvm_value value = {.i = 0};
    int64_t shape[8] = {0};
    size_t bytes;
    tvm_program *code = NULL;
    tvm_kernel *device = NULL;
    bool good = tvm_assemble(s->gpu, source, strlen(source), NULL, &code) == TVM_OK &&
                tvm_get_kernel(code, "device", &device) == TVM_OK &&
                tvm_param_shape(device, 0, &value, 1, shape, &bytes) == TVM_OK;
    if (!good) printf("check_gpu: %s\n", tvm_message(s->gpu));
    tvm_program_free(code);
    tvm_context_options options = {
        .device = TVM_DEVICE_CPU, .multiprocessors = (unsigned)shape[0], .target = (unsigned)shape[1]};
    s->target = options.target;
    if (!good || tvm_context_create(&options, &s->model) == TVM_OK) return good;
    printf("check_gpu: %s\n", tvm_message(s->model));
    return false;
}

/* 0, or the status to exit with. */
static int open_contexts(suite *s, unsigned target, const char *cache) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .target = target, .cache_dir = cache};
    tvm_status status = tvm_context_create(&options, &s->gpu);
    if (status == TVM_NO_DEVICE || status == TVM_UNSUPPORTED) {
        printf("check_gpu: skipped: %s\n", tvm_message(s->gpu));
        return EXIT_SKIP;
    }
    options = (tvm_context_options){.device = TVM_DEVICE_CPU};
    if (status == TVM_OK && tvm_context_create(&options, &s->cpu) == TVM_OK)
        return open_model(s) ? 0 : EXIT_FAILURE;
    printf("check_gpu: %s\n", tvm_message(status == TVM_OK ? s->cpu : s->gpu));
    return EXIT_FAILURE;
}

/* All groups, or the one of that name. */
static bool run_all(suite *s, const char *only) {
    static const struct {
        const char *name;
        void (*add)(suite *s, gpu_group *group);
        bool beside;
    } all[] = {{"cases", gpu_add_cases, false},
               {"casts", gpu_add_casts, false},
               {"element-wise", gpu_add_elementwise, false},
               {"experts", gpu_add_experts, true},
               {"experts8", gpu_add_experts8, true},
               {"functions", gpu_add_math, true},
               {"litmus", gpu_add_litmus, false},
               {"matmul", gpu_add_matmuls, true},
               {"matmul_lowbit", gpu_add_lowbits, true},
               {"moves", gpu_add_moves, false},
               {"interface", gpu_add_interface, false},
               {"graphs", gpu_add_graphs, false},
               {"products", gpu_add_products, true},
               {"rows", gpu_add_rows, true},
               {"streams", gpu_add_streams, false},
               {"attention", gpu_add_attention, true},
               {"attention_decode", gpu_add_attention_decode, true}};
    gpu_group groups[sizeof all / sizeof *all] = {0};
    size_t count = 0;
    double start = seconds();
    printf("check_gpu: %s against %s\n", tvm_device_name(s->gpu), tvm_device_name(s->cpu));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (only != NULL && strcmp(only, all[i].name) != 0) continue;
        groups[count].name = all[i].name;
        groups[count].beside = all[i].beside;
        all[i].add(s, &groups[count++]);
    }
    warm_up w = {.groups = groups, .group_count = count, .gpu = s->gpu};
    on_every_core(warm, &w);
    printf("programs translated (%.1f s)\n", seconds() - start);
    fflush(stdout);
    for (size_t g = 0; g < count; g++) {
        run_group(s, &groups[g]);
        for (size_t i = 0; i < groups[g].count; i++) free(groups[g].tests[i].bytecode);
        free(groups[g].tests);
    }
    return count > 0;
}

/* --target=N, before the other arguments; 0: the GPU's own. */
static unsigned read_target(int *argc, char ***argv) {
    static const char name[] = "--target=";
    if (*argc < 2 || strncmp((*argv)[1], name, strlen(name)) != 0) return 0;
    unsigned target = (unsigned)strtoul((*argv)[1] + strlen(name), NULL, 10);
    *argc -= 1;
    *argv += 1;
    return target;
}

int main(int argc, char **argv) {
    unsigned target = read_target(&argc, &argv);
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: check_gpu [--target=N] CASES PROGRAMS [GROUP]\n"
                        "       check_gpu [--target=N] --random N [SEED]\n");
        return 2;
    }
    bool random = strcmp(argv[1], "--random") == 0;
    suite s = {.cases = argv[1], .programs = argv[2]};
    char cache[] = "/tmp/check_gpu.XXXXXX", command[64];
    if (mkdtemp(cache) == NULL) {
        perror("check_gpu");
        return EXIT_FAILURE;
    }
    /* random programs are not met again: nothing is kept of them; nvJitLink compiles one module at a time */
    if (random) setenv("TVM_NVJITLINK", "none", 0);
    int status = open_contexts(&s, target, random ? "" : cache);
    if (status == 0 && random) {
        uint64_t first = argc == 4 ? strtoull(argv[3], NULL, 0) : 1;
        if (!gpu_random(s.gpu, first, strtoull(argv[2], NULL, 0))) status = EXIT_FAILURE;
    } else if (status == 0) {
        if (!run_all(&s, argc == 4 ? argv[3] : NULL)) printf("there is no group '%s'\n", argv[3]);
        printf("%u passed, %u failed, %u skipped\n", s.passed, s.failed, s.skipped);
        if (s.failed != 0 || s.passed == 0) status = EXIT_FAILURE;
    }
    tvm_context_free(s.model);
    tvm_context_free(s.gpu);
    tvm_context_free(s.cpu);
    snprintf(command, sizeof command, "rm -rf %s", cache);
    if (system(command) != 0) status = EXIT_FAILURE;
    return status;
}
