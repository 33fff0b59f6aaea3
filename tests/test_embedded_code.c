/* Machine code that a bytecode file carries: used by a context, unless its limits refuse it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <stdlib.h>

#ifdef HAVE_CUDA_H

#include "cuda_kit.h"
#include "embed.h"
#include "suite_kit.h"

static cuda_kit kit;

/* In place of the kit's bytecode: the same with cubins of the stand-in for ptxas. */
static void embed(void) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_target targets[TVM_EMBED_MAX];
    tvm_ptx_compiler compiler;
    size_t count;
    ck_assert_int_eq(tvm_vbc_read(kit.bytecode, kit.bytecode_size, "kit.vbc", &program, &diags), TVM_OK);
    ck_assert_int_eq(tvm_embed_parse("sm_80,sm_89,sm_90a", targets, &count, &diags), TVM_OK);
    ck_assert_int_eq(tvm_ptx_compiler_find(&compiler, NULL, &diags), TVM_OK);
    ck_assert_int_eq(tvm_ptx_compiler_ask(&compiler, &diags), TVM_OK);
    ck_assert_int_eq(tvm_embed(program, targets, count, &compiler, 0, &diags), TVM_OK);
    tvm_ptx_compiler_free(&compiler);
    free(kit.bytecode);
    kit.bytecode = NULL;
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &kit.bytecode, &kit.bytecode_size, &diags),
                     TVM_OK);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

static void setup(void) {
    kit_setup(&kit);
    embed();
}

static void teardown(void) {
    ck_assert_int_eq(kit.driver->live(), 0);
    kit_teardown(&kit);
}

static bool takes_embedded_code(tvm_context *context) {
    tvm_program *program = NULL;
    tvm_kernel *kernel = NULL;
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &program), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(program, "scale", &kernel), TVM_OK);
    ck_assert_msg(tvm_prepare(kernel) == TVM_OK, "%s", tvm_message(context));
    bool embedded = strstr(tvm_code_origin(program), "embedded in the program") != NULL;
    tvm_program_free(program);
    return embedded;
}

/* It concerns programs that are loaded afterwards. */
START_TEST(a_context_refuses_code_of_strangers) {
    const tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = kit.cache};
    tvm_context *context = NULL;
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert(takes_embedded_code(context));
    ck_assert_int_eq(tvm_set_limits(context, &(tvm_limits){.no_embedded_code = 1}), TVM_OK);
    ck_assert(!takes_embedded_code(context));
    /* nor does it count turns */
    ck_assert_int_eq(tvm_set_limits(context, &(tvm_limits){.turns = 1000}), TVM_OK);
    ck_assert(!takes_embedded_code(context));
    ck_assert_int_eq(tvm_set_limits(context, NULL), TVM_OK);
    ck_assert(takes_embedded_code(context));
    tvm_context_free(context);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("embedded code");
    TCase *cases = tcase_create("embedded code");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, a_context_refuses_code_of_strangers);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}

#else

/* Without cuda.h no code is loaded: test_cuda.c shows that the build says so. */
int main(void) {
    return EXIT_SUCCESS;
}

#endif /* HAVE_CUDA_H */
