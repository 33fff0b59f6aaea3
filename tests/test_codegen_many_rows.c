/* The variants of matmul_lowbit for many rows: the PTX of those that use wgmma or tcgen05, executed by
 * ptx_machine.h, gives what the interpreter gives, to the last bit. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "extent_kit.h"
#include "interp.h"
#include "launch.h"
#include "matmul_reference.h"
#include "ptx_launch_kit.h"
#include "shipped_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { PARAMETERS = 16, SHIPPED_N = 264, STACK_N = 272, SHIPPED_K = 384, SHIPPED_EXPERTS = 3 };

typedef struct shipped {
    tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    unsigned target, multiprocessors;
    int n; /* 0: SHIPPED_N */
    tvm_launch_env env;
    tvm_scalar scalars[PARAMETERS];
    void *data[PARAMETERS];
    uint64_t bytes[PARAMETERS];
} shipped;

/* Of m rows the first three are of no expert but the first, and the last two of none. */
static void fill_words(const shipped *s, uint32_t i) {
    const int32_t offsets[SHIPPED_EXPERTS + 1] = {0, 3, 31, (int32_t)s->scalars[0].i - 2};
    const float factors[SHIPPED_EXPERTS] = {1, 0.5F, 2};
    if (s->bytes[i] == sizeof offsets) memcpy(s->data[i], offsets, sizeof offsets);
    if (s->bytes[i] == sizeof factors) memcpy(s->data[i], factors, sizeof factors);
}

/* Numbers whose products and sums are exact. */
static void fill_parameter(const shipped *s, uint32_t i) {
    const tvm_slot *slot = &s->kernel->slots[i];
    uint64_t state = 0x9e3779b97f4a7c15u + i;
    bool scales = strcmp(tvm_string(s->program, slot->name), "s") == 0;
    uint16_t *halves = s->data[i];
    uint8_t *bytes = s->data[i];
    if (slot->dtype.bits == 32) fill_words(s, i);
    for (uint64_t b = 0; b < s->bytes[i] && slot->dtype.bits == 8; b++)
        bytes[b] =
            scales ? (uint8_t)(0x30 + b % 3 * 8) /* e4m3: 0.5, 1, 2 */ : (uint8_t)(next_random(&state) >> 40);
    for (uint64_t h = 0; h < s->bytes[i] / 2 && slot->dtype.bits == 16; h++)
        halves[h] = scales ? half_code(0, 0, (int)(h % 3) - 1, 0) : small_half(false, &state);
}

static uint32_t scalars_of(const shipped *s) {
    uint32_t count = 3; /* m, n, k */
    return count + (strcmp(tvm_string(s->program, s->kernel->slots[count].name), "experts") == 0);
}

static void open_shipped(shipped *s, int m) {
    const int64_t sizes[] = {m, s->n ? s->n : SHIPPED_N, SHIPPED_K, SHIPPED_EXPERTS};
    for (unsigned i = 0; i < scalars_of(s); i++) s->scalars[i].i = sizes[i];
    s->env = (tvm_launch_env){.scalars = s->scalars,
                              .multiprocessors = s->multiprocessors,
                              .target = s->target,
                              .traits = tvm_target_traits_for(s->target)};
    ck_assert_int_eq(tvm_launch_check(s->program, s->kernel, &s->env, NULL), TVM_OK);
    tvm_launch_tensor own[TVM_MAX_LAUNCH_TENSORS];
    uint32_t count = s->kernel->param_count, owned = tvm_launch_tensors(s->kernel, own);
    for (uint32_t i = scalars_of(s); i < count + owned; i++) {
        int64_t extent[TVM_MAX_RANK];
        ck_assert_int_eq(tvm_launch_shape(s->program, s->kernel, i < count ? i : own[i - count].slot, &s->env,
                                          extent, &s->bytes[i], NULL),
                         TVM_OK);
        s->data[i] = aligned_alloc(64, (s->bytes[i] + 64) / 64 * 64);
        ck_assert_ptr_nonnull(s->data[i]);
        memset(s->data[i], 0, s->bytes[i]);
        if (i < count) fill_parameter(s, i);
    }
}

static void close_shipped(shipped *s) {
    for (unsigned i = 3; i < PARAMETERS; i++) free(s->data[i]);
    memset(s->data, 0, sizeof s->data);
}

static void interpret_shipped(shipped *s) {
    tvm_diags diags = {0};
    tvm_interp_kernel *prepared = NULL;
    tvm_interp_arg args[PARAMETERS] = {{{0}, NULL}};
    tvm_interp_options options = {.threads = 1,
                                  .multiprocessors = s->multiprocessors,
                                  .target = s->target,
                                  .traits = tvm_target_traits_for(s->target)};
    for (uint32_t i = 0; i < s->kernel->param_count; i++)
        args[i] = (tvm_interp_arg){.scalar = s->scalars[i], .data = s->data[i]};
    ck_assert_int_eq(tvm_interp_prepare(s->program, s->kernel, &prepared, &diags), TVM_OK);
    tvm_status status = tvm_interp_run(prepared, args, s->env.grid, &options, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_interp_free(prepared);
}

static void execute_shipped(shipped *s, const tvm_module *module) {
    const tvm_kernel_code *code = &module->kernels[s->kernel - s->program->kernels];
    ptx_machine machine = ptx_load(module->ptx, code->name, code->abi.threads);
    uint64_t values[PARAMETERS];
    for (uint32_t i = 0; i < PARAMETERS; i++)
        values[i] = i < scalars_of(s) ? (uint64_t)s->scalars[i].i : (uint64_t)(uintptr_t)s->data[i];
    ptx_launch(&machine, module, s->program, s->kernel, &s->env, values, values + s->kernel->param_count);
    ck_assert_msg(!machine.fault[0] && !machine.trapped, "%s", machine.fault);
    ptx_free(&machine);
}

static bool has_wgmma(const tvm_kernel_code *code) {
    for (size_t i = 0; i < code->selection_count; i++)
        if (strncmp(code->selections[i].candidate, "wgmma", 5) == 0) return true;
    return false;
}

static const char *const shipped_types[] = {"WTYPE=u4",
                                            "WTYPE=u3",
                                            "WTYPE=f6_e3m2",
                                            "WTYPE=u4 ZEROS=1",
                                            "WTYPE=u1",
                                            "WTYPE=u4 BOOK=\"nf4\"",
                                            "WTYPE=f4_e2m1 OTYPE=f32 GROUP=32"};
enum { SHIPPED_TYPES = sizeof shipped_types / sizeof *shipped_types };

/* The code for m rows gives what the interpreter gives, to the last bit. */
static void is_as_interpreted(const shipped *of, const tvm_module *module, int m) {
    shipped s = *of, again = *of;
    uint32_t c = s.kernel->param_count - 1;
    open_shipped(&s, m);
    open_shipped(&again, m);
    interpret_shipped(&s);
    execute_shipped(&again, module);
    ck_assert_mem_eq(s.data[c], again.data[c], s.bytes[c]);
    close_shipped(&s);
    close_shipped(&again);
}

/* Its variants with wgmma: all of the first type, and of the others without TVM_TEST_ALL every other one. */
START_TEST(the_shipped_program_is_right) {
    char path[5000];
    shipped s = {.program = assemble_file(program_path("matmul_lowbit_u4.vasm", path), shipped_types[_i]),
                 .target = 90,
                 .multiprocessors = 1};
    tvm_module *module = translate(s.program, "sm_90a");
    unsigned found = 0, with_wgmma = 0;
    for (uint32_t k = 0; k < s.program->kernel_count; k++) {
        if (!has_wgmma(&module->kernels[k])) continue;
        /* clusters of two, of one type, show what larger ones do */
        if (tvm_cluster_blocks(&s.program->kernels[k]) > (_i == 0 ? 2 : 1)) continue;
        if (_i > 0 && !test_takes(with_wgmma++ + (unsigned)_i % 2, 2)) continue;
        s.kernel = &s.program->kernels[k];
        is_as_interpreted(&s, module, 61);
        found++;
    }
    ck_assert_uint_gt(found, 0);
    tvm_module_free(module);
    tvm_ir_program_free(s.program);
}
END_TEST

/* How many kernels the code has of a kind; one of `every` of them, without TVM_TEST_ALL, is right. */
static unsigned check_kind(shipped *s, const char *target, bool (*is_kind)(const tvm_kernel_code *),
                           unsigned every, unsigned first) {
    tvm_module *module = translate(s->program, target);
    unsigned found = 0;
    for (uint32_t k = 0; k < s->program->kernel_count; k++) {
        if (!is_kind(&module->kernels[k]) || !test_takes(found++ + first, every)) continue;
        s->kernel = &s->program->kernels[k];
        is_as_interpreted(s, module, 61);
    }
    tvm_module_free(module);
    tvm_ir_program_free(s->program);
    return found;
}

static const char *const stack_types[] = {"WTYPE=u4 EXPERTS=1",
                                          "WTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 FACTOR=1 EXPERTS=1"};
enum { STACK_TYPES = sizeof stack_types / sizeof *stack_types };

/* Those of experts, whose tiles two blocks share. */
START_TEST(stacks_are_right) {
    char path[5000];
    shipped s = {.program = assemble_file(program_path("matmul_lowbit_u4.vasm", path), stack_types[_i]),
                 .target = 90,
                 .n = STACK_N, /* rows of scales of 8 bits are whole 16 bytes */
                 .multiprocessors = 2};
    ck_assert_uint_gt(check_kind(&s, "sm_90a", has_wgmma, 10, (unsigned)_i), 10);
}
END_TEST

static const char *const tensor_types[] = {"WTYPE=u4",
                                           "WTYPE=u3 GROUP=32",
                                           "WTYPE=f6_e3m2 GROUP=0",
                                           "WTYPE=u4 ZEROS=1 GROUP=64 BIAS=1 ATYPE=bf16",
                                           "WTYPE=u8",
                                           "WTYPE=u4 BOOK=\"nf4\"",
                                           "WTYPE=f4_e2m1 GROUP=16 FACTOR=1"};
enum { TENSOR_TYPES = sizeof tensor_types / sizeof *tensor_types };

static bool has_tcgen05(const tvm_kernel_code *code) {
    for (size_t i = 0; i < code->selection_count; i++)
        if (strncmp(code->selections[i].candidate, "tcgen05.mma", 11) == 0) return true;
    return false;
}

/* Those with tcgen05, whose tiles three blocks share: one of each type without TVM_TEST_ALL. */
START_TEST(tensor_variants_are_right) {
    char path[5000];
    shipped s = {.program = assemble_file(program_path("matmul_lowbit_u4.vasm", path), tensor_types[_i]),
                 .target = 100,
                 .multiprocessors = 3};
    ck_assert_uint_eq(check_kind(&s, "sm_100a", has_tcgen05, 4, (unsigned)_i), 4);
}
END_TEST

static const char *const tensor_stack_types[] = {"WTYPE=u4 EXPERTS=1",
                                                 "WTYPE=u8 GROUP=64 ZEROS=1 EXPERTS=1",
                                                 "WTYPE=u2 GROUP=32 EXPERTS=1 GATE=\"silu\"",
                                                 "WTYPE=u4 BOOK=\"nf4\" EXPERTS=1 BIAS=1",
                                                 "WTYPE=u3 EXPERTS=1 BIAS=1",
                                                 "WTYPE=f6_e3m2 GROUP=0 EXPERTS=1",
                                                 "WTYPE=f4_e2m1 GROUP=16 STYPE=f8_e4m3 FACTOR=1 EXPERTS=1"};
enum { TENSOR_STACK_TYPES = sizeof tensor_stack_types / sizeof *tensor_stack_types };

/* Those of experts, whose tiles two blocks share: one of each type without TVM_TEST_ALL. */
START_TEST(tensor_stacks_are_right) {
    char path[5000];
    shipped s = {.program =
                     assemble_file(program_path("matmul_lowbit_u4.vasm", path), tensor_stack_types[_i]),
                 .target = 100,
                 .n = STACK_N,
                 .multiprocessors = 2};
    ck_assert_uint_eq(check_kind(&s, "sm_100a", has_tcgen05, 9, 2 * (unsigned)_i), 9);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_many_rows");
    TCase *tests = tcase_create("many_rows");
    tcase_add_loop_test(tests, the_shipped_program_is_right, 0, SHIPPED_TYPES);
    tcase_add_loop_test(tests, stacks_are_right, 0, STACK_TYPES);
    tcase_add_loop_test(tests, tensor_variants_are_right, 0, TENSOR_TYPES);
    tcase_add_loop_test(tests, tensor_stacks_are_right, 0, TENSOR_STACK_TYPES);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
