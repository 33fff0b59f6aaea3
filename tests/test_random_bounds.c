/* Random kernels on hostile arguments: the generated code, executed by ptx_machine.h, which lets it access
 * the kernel's tensors alone, does what the interpreter does, and traps where that reports a fault.
 *
 *   test_random_bounds [SEEDS [FIRST]]      programs to make, and the first one's seed */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "hostile_launch.h"
#include "ptx_launch_kit.h"
#include "random_ring.h"
#include "suite_kit.h"

enum { PROGRAMS = 400, LAUNCHES = 3 };

static unsigned seeds = PROGRAMS, first_seed = 1;

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
    ptx_own own;
    ptx_own_make(&own, &m, l->program, l->kernel, &l->env);
    ptx_launch(&m, module, l->program, l->kernel, &l->env, values, own.place);
    ptx_own_free(&own);
    const char *wrong = m.fault[0] ? m.fault : differs(l, &m);
    if (wrong) say(l, p, seed, wrong);
    bool good = wrong == NULL;
    ptx_free(&m);
    return good;
}

typedef struct counts {
    unsigned programs, launches, faults, wrong;
    unsigned engine, producers; /* programs that use the copy engine, and that have a warp more */
} counts;

static void run_program(const random_program *p, unsigned seed, tvm_target target, counts *out) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    tvm_interp_kernel *ready = NULL;
    uint64_t state = seed;
    /* A constant index outside of a shared tensor, a constant division by zero and the like are refused. */
    bool good = tvm_assemble_text(p->text, p->length, "random.vasm", NULL, &program, &diags) == TVM_OK &&
                tvm_translate(program, target, &module, &diags) == TVM_OK &&
                tvm_interp_prepare(program, &program->kernels[0], &ready, &diags) == TVM_OK;
    if (good) {
        out->programs++;
        out->engine += strstr(module->ptx, "async.bulk.tensor") != NULL;
        out->producers += module->kernels[0].abi.threads > 32;
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
    static const tvm_target targets[] = {{80, '\0'}, {90, 'a'}};
    static random_program p;
    counts all = {0};
    for (unsigned i = 0; i < seeds && all.wrong < 3; i++) {
        random_kernel_make(&p, first_seed + i);
        run_program(&p, first_seed + i, targets[i / 4 % 2], &all);
    }
    ck_assert_uint_eq(all.wrong, 0);
    /* It would show nothing if most programs were refused, or none came to a fault. */
    printf("%u programs of %u, %u launches, %u with a fault; %u with the copy engine, %u with a producer\n",
           all.programs, seeds, all.launches, all.faults, all.engine, all.producers);
    ck_assert_uint_ge(all.programs, seeds / 2);
    ck_assert_uint_ge(all.launches, seeds / 2);
    ck_assert_uint_ge(all.faults, seeds / 10);
    ck_assert_uint_ge(all.launches - all.faults, seeds / 10);
    ck_assert_uint_ge(all.engine, seeds / 80);
    ck_assert_uint_ge(all.producers, seeds / 200);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1) seeds = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2) first_seed = (unsigned)strtoul(argv[2], NULL, 0);
    Suite *suite = suite_create("random bounds");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, generated_code_stays_in_its_tensors_and_traps_where_the_interpreter_faults);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
