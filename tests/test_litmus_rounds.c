/* The kernels with which check_gpu tries the patterns of codegen/emit/fences.def (tests/gpu/litmus.c), where
 * there is no GPU: each counts nothing on the interpreter, ptxas accepts it, and no pattern is without one.
 */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "litmus_rounds.h"
#include "ptxas_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"
#include "tvm.h"

enum { STATED, PERFORMED, AXIOMS };
static const struct {
    const char *name;
    bool is_ordered; /* by several instructions, not by the description of one */
} fences[] = {
#define FENCE(name, by, instructions, rule) {#name, (by) != STATED},
#include "fences.def"
#undef FENCE
};

static bool is_ordered(const char *name) {
    for (size_t i = 0; i < sizeof fences / sizeof *fences; i++)
        if (strcmp(fences[i].name, name) == 0) return fences[i].is_ordered;
    return false;
}

static void must_be_accepted(tvm_module *module, const char *what) {
    tvm_diags diags = {0};
    ptxas_verdict verdict;
    tvm_status status = ptxas_judge(module, what, &verdict, &diags);
    tvm_diags_print(&diags, stderr, what, false);
    tvm_diags_free(&diags);
    ck_assert_int_eq(status, TVM_OK);
}

/* Elements that are not as the kernel leaves them where it has counted nothing: it stores each count, zero.
 */
static uint64_t rounds_bad(tvm_context *cpu, const rounds_row *row, const char *text, int64_t turns) {
    enum { BLOCKS = 4, ARGS = 7 };
    static const size_t words[ARGS] = {0,
                                       0,
                                       ROUNDS_ROWS * ROUNDS_TILE,
                                       ROUNDS_ROWS * ROUNDS_WIDE,
                                       BLOCKS * ROUNDS_TILE,
                                       BLOCKS * ROUNDS_FLAGS,
                                       BLOCKS * ROUNDS_TILE};
    tvm_value values[ARGS] = {{.i = BLOCKS}, {.i = turns}};
    tvm_program *program = NULL;
    tvm_kernel *kernel = NULL;
    uint64_t bad = 0;
    ck_assert_msg(tvm_assemble(cpu, text, strlen(text), NULL, &program) == TVM_OK, "%s: %s", row->patterns,
                  tvm_message(cpu));
    ck_assert_int_eq(tvm_get_kernel(program, "k", &kernel), TVM_OK);
    for (unsigned i = 2; i < ARGS; i++) {
        union {
            float f;
            uint32_t bits;
        } *data = calloc(words[i], sizeof *data);
        ck_assert_ptr_nonnull(data);
        for (size_t w = 0; w < words[i] && i < 4; w++) data[w].f = (float)(w / (words[i] / ROUNDS_ROWS));
        for (size_t w = 0; w < words[i] && i == ARGS - 1; w++) data[w].bits = 1;
        values[i].data = data;
        values[i].bytes = words[i] * sizeof *data;
    }
    ck_assert_msg(tvm_launchv(kernel, NULL, values, ARGS) == TVM_OK, "%s: %s", row->patterns,
                  tvm_message(cpu));
    for (size_t w = 0; w < words[ARGS - 1]; w++) bad += ((uint32_t *)values[ARGS - 1].data)[w] != 0;
    for (unsigned i = 2; i < ARGS; i++) free(values[i].data);
    tvm_program_free(program);
    return bad;
}

START_TEST(kernels_for_the_gpu_count_no_bad_element) {
    const rounds_row *row = &rounds_rows[_i];
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1};
    tvm_context *cpu = NULL;
    char text[4096];
    ck_assert_int_eq(tvm_context_create(&options, &cpu), TVM_OK);
    snprintf(text, sizeof text, "%s%s%s%s", ROUNDS_BEGIN, row->head, row->body, ROUNDS_END);
    ck_assert_uint_eq(rounds_bad(cpu, row, text, row->waits ? 1 : 3), 0);
    tvm_context_free(cpu);
    for (const char *at = row->patterns; *at; at += strspn(at, " ")) {
        char name[64];
        ck_assert_int_eq(sscanf(at, "%63s", name), 1);
        ck_assert_msg(is_ordered(name), "%s", name);
        at += strlen(name);
    }
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_90a");
    must_be_accepted(module, row->patterns);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(each_pattern_runs_on_a_gpu) {
    bool has = !fences[_i].is_ordered;
    for (size_t i = 0; i < ROUNDS && !has; i++) has = strstr(rounds_rows[i].patterns, fences[_i].name);
    ck_assert_msg(has, "%s", fences[_i].name);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("litmus rounds");
    TCase *tests = suite_case(suite, "all");
    tcase_add_loop_test(tests, kernels_for_the_gpu_count_no_bad_element, 0, ROUNDS);
    tcase_add_loop_test(tests, each_pattern_runs_on_a_gpu, 0, sizeof fences / sizeof *fences);
    return run_suite(suite);
}
