/* Random kernels on hostile arguments: the generated code, executed by ptx_machine.h, which lets it access
 * the kernel's tensors alone, does what the interpreter does, and traps where that reports a fault.
 *
 *   test_random_bounds [SEEDS [FIRST]]      programs to make, and the first one's seed */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi_kit.h"
#include "assembler.h"
#include "codegen.h"
#include "interp.h"
#include "launch.h"
#include "ptx_machine.h"
#include "random_program.h"
#include "suite_kit.h"

enum { TIMEOUT = 300, PROGRAMS = 400, LAUNCHES = 3, BYTES = 1 << 16, PARAMS = 10, MULTIPROCESSORS = 2 };

static unsigned seeds = PROGRAMS, first_seed = 1;

/* A kernel and one set of arguments. */
typedef struct launch {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_launch_env env;
    tvm_scalar scalars[PARAMS];
    uint64_t bytes[PARAMS];
    uint8_t *interp[PARAMS], *gpu[PARAMS]; /* the tensors of either side */
    char fault[512];                       /* what the interpreter reports; "": nothing */
} launch;

static int64_t hostile(uint64_t *state, tvm_dtype type) {
    static const int64_t values[] = {0,
                                     1,
                                     -1,
                                     2,
                                     3,
                                     6,
                                     7,
                                     8,
                                     12,
                                     16,
                                     31,
                                     32,
                                     33,
                                     64,
                                     100,
                                     1000,
                                     INT32_MAX,
                                     INT32_MIN,
                                     -8,
                                     -3,
                                     INT32_MAX - 3,
                                     1 << 30,
                                     INT32_MAX - 32,
                                     60000000,
                                     UINT32_MAX,
                                     (int64_t)1 << 32,
                                     ((int64_t)1 << 32) + 1,
                                     INT64_MAX,
                                     INT64_MIN,
                                     -6};
    int64_t value = values[random_bits(state) % (sizeof values / sizeof *values)];
    if (type.bits == 64) return value;
    return type.kind == TVM_KIND_INT ? (int32_t)value : (int64_t)(uint32_t)value;
}

static bool is_extent(const launch *l, uint32_t p) {
    return strcmp(tvm_string(l->program, l->kernel->slots[p].name), "n") == 0;
}

/* Scalars that the launch takes, with tensors that are not too large; false: not this time. */
static bool choose_arguments(launch *l, uint64_t *state) {
    static const int64_t extents[] = {0, 1, 4, 8, 31, 32, 40, 64, 96, 5};
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->kernel->slots[p].kind == TVM_SLOT_SCALAR)
            l->scalars[p].i = is_extent(l, p)
                                  ? extents[random_bits(state) % (sizeof extents / sizeof *extents)]
                                  : hostile(state, l->kernel->slots[p].dtype);
    l->env = (tvm_launch_env){.scalars = l->scalars, .multiprocessors = MULTIPROCESSORS, .target = 80};
    if (tvm_launch_check(l->program, l->kernel, &l->env, NULL) != TVM_OK) return false;
    if ((uint64_t)l->env.grid[0] * l->env.grid[1] * l->env.grid[2] > 4) return false;
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        int64_t shape[TVM_MAX_RANK];
        if (l->kernel->slots[p].kind == TVM_SLOT_GLOBAL &&
            (tvm_launch_shape(l->program, l->kernel, p, &l->env, shape, &l->bytes[p], NULL) != TVM_OK ||
             l->bytes[p] > BYTES))
            return false;
    }
    return true;
}

static void make_tensors(launch *l) {
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        if (l->kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        l->interp[p] = aligned_alloc(64, (l->bytes[p] + 64) / 64 * 64);
        l->gpu[p] = aligned_alloc(64, (l->bytes[p] + 64) / 64 * 64);
        ck_assert(l->interp[p] && l->gpu[p]);
        for (uint64_t i = 0; i < l->bytes[p]; i++) l->interp[p][i] = (uint8_t)(i * 37 + p);
        memcpy(l->gpu[p], l->interp[p], l->bytes[p]);
    }
}

static void free_tensors(launch *l) {
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        free(l->interp[p]);
        free(l->gpu[p]);
        l->interp[p] = l->gpu[p] = NULL;
    }
}

static void interpret(launch *l, const tvm_interp_kernel *ready) {
    tvm_interp_arg args[PARAMS];
    tvm_diags diags = {0};
    const tvm_interp_options options = {.threads = 1, .multiprocessors = MULTIPROCESSORS, .target = 80};
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        args[p] = (tvm_interp_arg){.scalar = l->scalars[p], .data = l->interp[p]};
    tvm_status status = tvm_interp_run(ready, args, l->env.grid, &options, &diags);
    snprintf(l->fault, sizeof l->fault, "%s", status == TVM_OK ? "" : diags.items[0].message);
    tvm_diags_free(&diags);
}

static void say(const launch *l, const random_program *p, unsigned seed, const char *what) {
    fprintf(stderr, "seed %u: %s\ninterpreter: %s\n", seed, what, l->fault);
    for (uint32_t i = 0; i < l->kernel->param_count; i++)
        if (l->kernel->slots[i].kind == TVM_SLOT_SCALAR)
            fprintf(stderr, "%s = %lld\n", tvm_string(l->program, l->kernel->slots[i].name),
                    (long long)l->scalars[i].i);
    fprintf(stderr, "%s", p->text);
}

/* What is wrong with what the generated code did; NULL: nothing. */
static const char *differs(const launch *l, const ptx_machine *m) {
    /* On a GPU any number is the result of a division by zero. */
    if (strstr(l->fault, "division by zero")) return NULL;
    /* A scalar that is not in its range becomes another one there. */
    if (strstr(l->fault, "is not in the range")) return NULL;
    if (l->fault[0])
        return m->trapped ? NULL : "the interpreter reports a fault, the generated code does not trap";
    if (m->trapped) return "the generated code traps, the interpreter reports no fault";
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->gpu[p] && memcmp(l->gpu[p], l->interp[p], l->bytes[p]) != 0) return "the results differ";
    return NULL;
}

static bool execute(const launch *l, const tvm_module *module, const random_program *p, unsigned seed) {
    const tvm_kernel_code *code = &module->kernels[0];
    ptx_machine m = ptx_load(module->ptx, code->name, code->abi.threads);
    uint64_t values[PARAMS];
    for (uint32_t i = 0; i < l->kernel->param_count; i++) {
        values[i] = l->gpu[i] ? (uint64_t)(uintptr_t)l->gpu[i] : (uint64_t)l->scalars[i].i;
        if (l->gpu[i]) ptx_allow(&m, l->gpu[i], l->bytes[i]);
    }
    abi_set(&code->abi, values, NULL, &l->env, NULL, m.params, sizeof m.params / sizeof *m.params);
    memcpy(m.grid, l->env.grid, sizeof m.grid);
    for (m.block[0] = 0; m.block[0] < m.grid[0] && !m.trapped && !m.fault[0]; m.block[0]++) ptx_run(&m);
    const char *wrong = m.fault[0] ? m.fault : differs(l, &m);
    if (wrong) say(l, p, seed, wrong);
    bool good = wrong == NULL;
    ptx_free(&m);
    return good;
}

typedef struct counts {
    unsigned programs, launches, faults, wrong;
} counts;

static void run_program(const random_program *p, unsigned seed, counts *out) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    tvm_interp_kernel *ready = NULL;
    uint64_t state = seed;
    /* A constant index outside of a shared tensor, a constant division by zero and the like are refused. */
    bool good = tvm_assemble_text(p->text, p->length, "random.vasm", NULL, &program, &diags) == TVM_OK &&
                tvm_translate(program, (tvm_target){.arch = 80}, &module, &diags) == TVM_OK &&
                tvm_interp_prepare(program, &program->kernels[0], &ready, &diags) == TVM_OK;
    if (good) {
        out->programs++;
        for (unsigned i = 0; i < LAUNCHES; i++) {
            launch l = {.program = program, .kernel = &program->kernels[0]};
            for (unsigned tries = 0; tries < 40; tries++) {
                if (!choose_arguments(&l, &state)) continue;
                make_tensors(&l);
                interpret(&l, ready);
                out->launches++;
                out->faults += l.fault[0] != '\0';
                if (!execute(&l, module, p, seed)) out->wrong++;
                free_tensors(&l);
                break;
            }
        }
    } else if (getenv("RANDOM_VERBOSE")) {
        tvm_diags_print(&diags, stderr, "random", false);
    }
    tvm_interp_free(ready);
    if (module) tvm_module_free(module);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

START_TEST(generated_code_stays_in_its_tensors_and_traps_where_the_interpreter_faults) {
    static random_program p;
    counts all = {0};
    for (unsigned i = 0; i < seeds && all.wrong < 3; i++) {
        random_program_make(&p, first_seed + i);
        run_program(&p, first_seed + i, &all);
    }
    ck_assert_uint_eq(all.wrong, 0);
    /* It would show nothing if most programs were refused, or none came to a fault. */
    printf("%u programs of %u, %u launches, %u with a fault\n", all.programs, seeds, all.launches,
           all.faults);
    ck_assert_uint_ge(all.programs, seeds / 2);
    ck_assert_uint_ge(all.launches, seeds / 2);
    ck_assert_uint_ge(all.faults, seeds / 10);
    ck_assert_uint_ge(all.launches - all.faults, seeds / 10);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1) seeds = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2) first_seed = (unsigned)strtoul(argv[2], NULL, 0);
    Suite *suite = suite_create("random bounds");
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, TIMEOUT);
    tcase_add_test(tests, generated_code_stays_in_its_tensors_and_traps_where_the_interpreter_faults);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
