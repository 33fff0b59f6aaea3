/* Launches of shipped programs, with a kit's arguments (kernel_kit.h), on the PTX machine. */
#ifndef TVM_TESTS_KERNEL_CODE_KIT_H
#define TVM_TESTS_KERNEL_CODE_KIT_H

#include <string.h>

#include "kernel_kit.h"
#include "ptx_launch_kit.h"
#include "translate_kit.h"

/* A scalar argument of the type, as launch-time expressions have it, and its bits as a parameter. */
static inline tvm_scalar kit_scalar_of(const tvm_value *argument, tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT) return (tvm_scalar){.f = argument->f};
    return (tvm_scalar){.i = argument->i};
}

static inline uint64_t kit_bits_of(const tvm_value *argument, tvm_dtype type) {
    float narrow = (float)argument->f;
    uint32_t word;
    memcpy(&word, &narrow, sizeof word);
    if (type.kind == TVM_KIND_FLOAT && type.bits == 32) return word;
    return kit_scalar_of(argument, type).u;
}

/* The launch of kernel `name` with the kit's arguments as code generated for the target, on two
 * multiprocessors; its scalars come first. c, which it writes, is no number before, and is read back. */
static inline void kit_execute(kernel_kit *k, kit_tensor *c, const tvm_ir_program *program, const char *name,
                               const char *target_name) {
    tvm_scalar scalars[KIT_ARGUMENTS] = {{0}};
    uint64_t values[KIT_ARGUMENTS];
    tvm_target target;
    const tvm_ir_kernel *kernel = NULL;
    for (uint32_t i = 0; i < program->kernel_count; i++)
        if (!strcmp(tvm_string(program, program->kernels[i].name), name)) kernel = &program->kernels[i];
    ck_assert_ptr_nonnull(kernel);
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    tvm_launch_env env = {.scalars = scalars,
                          .multiprocessors = 2,
                          .target = target.arch,
                          .traits = tvm_target_traits_of(target)};
    for (size_t i = 0; i < kernel->param_count && !k->arguments[i].data; i++)
        scalars[i] = kit_scalar_of(&k->arguments[i], kernel->slots[i].dtype);
    ck_assert_int_eq(tvm_launch_check(program, kernel, &env, NULL), TVM_OK);
    tvm_module *module = translate(program, target_name);
    const tvm_kernel_code *code = &module->kernels[kernel - program->kernels];
    ptx_machine m = ptx_load(module->ptx, code->name, code->abi.threads);
    memset(c->data, 0x7f, kit_bytes(c));
    for (size_t i = 0; i < k->argument_count; i++)
        values[i] = k->arguments[i].data ? (uint64_t)(uintptr_t)k->arguments[i].data
                                         : kit_bits_of(&k->arguments[i], kernel->slots[i].dtype);
    for (size_t i = 0; i < k->tensor_count; i++) ptx_allow(&m, k->tensors[i].data, kit_bytes(&k->tensors[i]));
    ptx_launch(&m, module, program, kernel, &env, values, NULL);
    ck_assert_msg(!m.fault[0] && !m.trapped, "%s for %s: %s", name, target_name, m.fault);
    ptx_free(&m);
    tvm_module_free(module);
    kit_read(k, c);
}

#endif
