/* The data-driven cases (tests/cases.txt) as generated code: the PTX for each target is executed by
 * ptx_machine.h, block after block, and gives the outputs that the case expects; so does code that counts
 * turns, for one target, or with TVM_TEST_ALL for each. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case_file.h"
#include "codegen.h"
#include "extent_kit.h"
#include "launch.h"
#include "ptx_launch_kit.h"

enum { MARGIN = 64, MARGIN_BYTE = 0x5a, MULTIPROCESSORS = 2 };

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { TARGETS = sizeof targets / sizeof *targets };
static char folder[4096];
static char **paths;

/* One launch: a parameter's value, or its tensor between margins; then the tensors of the launch. */
typedef struct launch {
    const case_file *c;
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_launch_env env;
    tvm_scalar scalars[CASE_MAX_ITEMS];
    tvm_launch_tensor own[TVM_MAX_LAUNCH_TENSORS];
    uint32_t own_count;
    uint8_t *block[CASE_MAX_ITEMS + TVM_MAX_LAUNCH_TENSORS];
    uint64_t bytes[CASE_MAX_ITEMS + TVM_MAX_LAUNCH_TENSORS], elements[CASE_MAX_ITEMS];
} launch;

static const char *param_name(const launch *l, uint32_t i) {
    return tvm_string(l->program, l->kernel->slots[i].name);
}

static void read_scalars(launch *l) {
    for (uint32_t i = 0; i < l->kernel->param_count; i++) {
        const tvm_slot *slot = &l->kernel->slots[i];
        const char *text = case_argument(l->c, param_name(l, i));
        ck_assert_msg(text != NULL, "no argument %s", param_name(l, i));
        if (slot->kind != TVM_SLOT_SCALAR) continue;
        if (slot->dtype.kind == TVM_KIND_FLOAT)
            l->scalars[i].f = strtod(text, NULL);
        else
            l->scalars[i].i = text[0] == '-' ? strtoll(text, NULL, 0) : (int64_t)strtoull(text, NULL, 0);
    }
    l->env = (tvm_launch_env){.scalars = l->scalars, .multiprocessors = MULTIPROCESSORS};
}

static void make_block(launch *l, uint32_t i, uint32_t slot) {
    int64_t shape[TVM_MAX_RANK];
    ck_assert_int_eq(tvm_launch_shape(l->program, l->kernel, slot, &l->env, shape, &l->bytes[i], NULL),
                     TVM_OK);
    l->block[i] = aligned_alloc(64, (l->bytes[i] + 2 * MARGIN + 63) / 64 * 64);
    ck_assert_ptr_nonnull(l->block[i]);
    memset(l->block[i], MARGIN_BYTE, l->bytes[i] + 2 * MARGIN);
    memset(l->block[i] + MARGIN, 0, l->bytes[i]);
}

static void make_tensor(launch *l, uint32_t i) {
    const tvm_slot *slot = &l->kernel->slots[i];
    make_block(l, i, i);
    l->elements[i] = l->bytes[i] * 8 / slot->dtype.bits;
    ck_assert(
        case_fill(slot->dtype, l->block[i] + MARGIN, l->elements[i], case_argument(l->c, param_name(l, i))));
}

static uint64_t param_bits(const launch *l, uint32_t i) {
    const tvm_slot *slot = &l->kernel->slots[i];
    if (slot->kind != TVM_SLOT_SCALAR) return (uint64_t)(uintptr_t)(l->block[i] + MARGIN);
    return slot->dtype.kind == TVM_KIND_FLOAT ? tvm_encode(slot->dtype, l->scalars[i].f)
                                              : (uint64_t)l->scalars[i].i;
}

static void run(launch *l, const tvm_module *module, const char *target) {
    const tvm_kernel_code *code = &module->kernels[l->kernel - l->program->kernels];
    ptx_machine m = ptx_load(module->ptx, code->name, code->abi.threads);
    uint64_t values[CASE_MAX_ITEMS], tensors[TVM_MAX_LAUNCH_TENSORS];
    uint32_t count = l->kernel->param_count;
    for (uint32_t i = 0; i < count; i++) values[i] = param_bits(l, i);
    for (uint32_t i = 0; i < l->own_count; i++)
        tensors[i] = (uint64_t)(uintptr_t)(l->block[count + i] + MARGIN);
    for (uint32_t i = 0; i < count + l->own_count; i++)
        if (l->block[i]) ptx_allow(&m, l->block[i] + MARGIN, l->bytes[i]);
    ptx_allow(&m, (const uint8_t *)"", 0); /* of a kernel without tensors */
    ptx_launch(&m, module, l->program, l->kernel, &l->env, values, tensors);
    ck_assert_msg(!m.fault[0], "%s: %s: %s", target, l->c->name, m.fault);
    ck_assert_msg(m.trapped == l->c->traps_gpu, "%s: %s: %s", target, l->c->name,
                  m.trapped ? "a trap" : "no trap, though the case has one");
    ptx_free(&m);
}

static void check_margins(const launch *l, uint32_t i, const char *target, const char *name) {
    for (size_t b = 0; b < MARGIN; b++)
        ck_assert_msg(l->block[i][b] == MARGIN_BYTE && l->block[i][MARGIN + l->bytes[i] + b] == MARGIN_BYTE,
                      "%s: %s: written outside of it", target, name);
}

static void check_tensor(const launch *l, uint32_t i, const char *target) {
    check_margins(l, i, target, param_name(l, i));
    for (size_t o = 0; o < l->c->out_count; o++)
        if (strcmp(l->c->outs[o].name, param_name(l, i)) == 0)
            ck_assert_msg(case_compare(l->c, &l->c->outs[o], l->kernel->slots[i].dtype, l->block[i] + MARGIN,
                                       l->elements[i]),
                          "%s: %s", target, l->c->name);
}

/* counted: as code that counts turns, with as many as there can be. */
static void run_for(launch *l, const char *name, bool counted) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_target_parse(name, &target, NULL), TVM_OK);
    if (!tvm_kernel_is_for(l->kernel, target.arch, tvm_target_traits_of(target))) return;
    const tvm_translate_options options = {.counts_turns = counted};
    tvm_status status = tvm_translate_with(l->program, target, &options, &module, &diags);
    tvm_diags_print(&diags, stderr, l->c->name, false);
    ck_assert_int_eq(status, TVM_OK);
    read_scalars(l);
    l->env.target = target.arch;
    l->env.traits = tvm_target_traits_of(target);
    ck_assert_int_eq(tvm_launch_check(l->program, l->kernel, &l->env, NULL), TVM_OK);
    uint32_t count = l->kernel->param_count;
    l->own_count = tvm_launch_tensors(l->kernel, l->own);
    for (uint32_t i = 0; i < count; i++)
        if (l->kernel->slots[i].kind == TVM_SLOT_GLOBAL) make_tensor(l, i);
    for (uint32_t i = 0; i < l->own_count; i++) make_block(l, count + i, l->own[i].slot);
    run(l, module, name);
    for (uint32_t i = 0; i < count; i++)
        if (l->kernel->slots[i].kind == TVM_SLOT_GLOBAL) check_tensor(l, i, name);
    for (uint32_t i = count; i < count + l->own_count; i++)
        check_margins(l, i, name, "a tensor of the launch");
    for (uint32_t i = 0; i < count + l->own_count; i++) {
        free(l->block[i]);
        l->block[i] = NULL;
    }
    tvm_module_free(module);
}

/* The machine has no printing, and runs one block after the other. */
static bool is_for_the_machine(const tvm_ir_kernel *kernel) {
    bool clusters = tvm_cluster_blocks(kernel) > 1;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        unsigned op = kernel->insns[i].op;
        if (tvm_op(op)->effects & TVM_EFFECT_OUTPUT || (clusters && op == TVM_OP_SYNC_CLUSTER)) return false;
    }
    return true;
}

static const tvm_ir_kernel *find_kernel(const tvm_ir_program *program, const char *name) {
    for (uint32_t k = 0; k < program->kernel_count; k++)
        if (strcmp(tvm_string(program, program->kernels[k].name), name) == 0) return &program->kernels[k];
    return NULL;
}

START_TEST(the_generated_code_gives_what_the_case_expects) {
    case_file *c = case_read(paths[_i]);
    ck_assert_ptr_nonnull(c);
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    /* a chain of launches is the interpreter's and the GPU's */
    bool is_run = c->errors == NULL && c->before == NULL && (c->refusal == NULL || c->traps_gpu) &&
                  c->kernel != NULL && case_assemble(c, folder, &program, &diags) == TVM_OK;
    launch l = {.c = c, .program = program};
    if (is_run) l.kernel = find_kernel(program, c->kernel);
    if (l.kernel != NULL && is_for_the_machine(l.kernel)) {
        for (size_t t = 0; t < TARGETS; t++) run_for(&l, targets[t], false);
        for (size_t t = 0; t < TARGETS; t++)
            if (test_all() || t == (size_t)_i % TARGETS) run_for(&l, targets[t], true);
    }
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
    case_free(c);
}
END_TEST

int main(void) {
    snprintf(folder, sizeof folder, "%s/tests/cases", getenv("srcdir") ? getenv("srcdir") : ".");
    paths = case_list(folder);
    int count = 0;
    while (paths != NULL && paths[count] != NULL) count++;
    if (count == 0) {
        fprintf(stderr, "no cases in %s\n", folder);
        return EXIT_FAILURE;
    }
    Suite *suite = suite_create("codegen cases");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, the_generated_code_gives_what_the_case_expects, 0, count);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    for (int i = 0; i < count; i++) free(paths[i]);
    free(paths);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
