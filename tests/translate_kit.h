/* Translating in tests. */
#ifndef TVM_TESTS_TRANSLATE_KIT_H
#define TVM_TESTS_TRANSLATE_KIT_H

#include "check_kit.h"
#include <stdio.h>

#include "codegen.h"

/* For a target by its name; freed by the caller. */
static inline tvm_module *translate_with(const tvm_ir_program *program, const char *target_name,
                                         const tvm_translate_options *options) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    tvm_status status = tvm_translate_with(program, target, options, &module, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    return module;
}

static inline tvm_module *translate(const tvm_ir_program *program, const char *target_name) {
    return translate_with(program, target_name, &(tvm_translate_options){.claims = NULL});
}

#endif
