/* Kernels as plain C functions: libffi's closures. */
#include "bind.h"
#include "runtime.h"

#include <stdlib.h>

typedef struct tvm_binding {
    struct tvm_binding *next;
    tvm_kernel *kernel;
    tvm_bind_options options;
    ffi_closure *closure;
    tvm_function function;
    ffi_cif cif;
    ffi_type *types[TVM_MAX_PARAMS + 1];
} tvm_binding;

ffi_type *tvm_ffi_type(tvm_arg_kind kind) {
    static ffi_type *const types[TVM_ARG_KINDS] = {
        [TVM_ARG_TENSOR] = &ffi_type_pointer, [TVM_ARG_BOOL] = &ffi_type_uint8,
        [TVM_ARG_I32] = &ffi_type_sint32,     [TVM_ARG_U32] = &ffi_type_uint32,
        [TVM_ARG_I64] = &ffi_type_sint64,     [TVM_ARG_U64] = &ffi_type_uint64,
        [TVM_ARG_F32] = &ffi_type_float,      [TVM_ARG_F64] = &ffi_type_double};
    return types[kind];
}

static void call(ffi_cif *cif, void *result, void **arguments, void *data) {
    const tvm_binding *binding = data;
    void *stream = binding->options.stream;
    (void)cif;
    if (binding->options.stream_parameter) stream = *(void **)*arguments++;
    *(ffi_sarg *)result = tvm_launch_addresses(binding->kernel, stream, arguments);
}

static void binding_free(tvm_binding *binding) {
    if (binding->closure) ffi_closure_free(binding->closure);
    free(binding);
}

void tvm_bindings_free(tvm_binding *bindings) {
    while (bindings) {
        tvm_binding *next = bindings->next;
        binding_free(bindings);
        bindings = next;
    }
}

static tvm_status make_closure(tvm_binding *binding, tvm_diags *diags) {
    const tvm_kernel *kernel = binding->kernel;
    unsigned count = 0;
    void *code = NULL;
    if (binding->options.stream_parameter) binding->types[count++] = &ffi_type_pointer;
    for (uint32_t i = 0; i < kernel->kernel->param_count; i++)
        binding->types[count++] = tvm_ffi_type((tvm_arg_kind)kernel->args[i]);
    binding->closure = ffi_closure_alloc(sizeof *binding->closure, &code);
    if (!binding->closure) return tvm_diag_no_memory(diags);
    if (ffi_prep_cif(&binding->cif, FFI_DEFAULT_ABI, count, &ffi_type_sint, binding->types) != FFI_OK ||
        ffi_prep_closure_loc(binding->closure, &binding->cif, call, binding, code) != FFI_OK)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "libffi cannot make a function of kernel '%s'", tvm_kernel_name(kernel));
    binding->function = (tvm_function)(uintptr_t)code;
    return TVM_OK;
}

static tvm_status bind_kernel(tvm_kernel *kernel, const tvm_bind_options *options, tvm_function *function,
                              tvm_diags *diags) {
    tvm_program *program = kernel->code;
    tvm_binding *binding = calloc(1, sizeof *binding);
    if (!binding) return tvm_diag_no_memory(diags);
    binding->kernel = kernel;
    if (options) binding->options = *options;
    tvm_status status = make_closure(binding, diags);
    if (status) {
        binding_free(binding);
        return status;
    }
    pthread_mutex_lock(&program->lock);
    binding->next = program->bindings;
    program->bindings = binding;
    pthread_mutex_unlock(&program->lock);
    *function = binding->function;
    return TVM_OK;
}

tvm_status tvm_bind_with(tvm_kernel *kernel, const tvm_bind_options *options, tvm_function *function) {
    if (!kernel || !function) return tvm_context_missing(kernel ? kernel->code->context : NULL, __func__);
    *function = NULL;
    tvm_diags diags = {0};
    tvm_status status = bind_kernel(kernel, options, function, &diags);
    return tvm_context_finish(kernel->code->context, status, &diags);
}

tvm_status tvm_bind(tvm_kernel *kernel, tvm_function *function) {
    return tvm_bind_with(kernel, NULL, function);
}

tvm_status tvm_unbind(tvm_kernel *kernel, tvm_function function) {
    if (!kernel) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = TVM_OK;
    tvm_program *program = kernel->code;
    pthread_mutex_lock(&program->lock);
    tvm_binding **link = &program->bindings;
    while (*link && ((*link)->kernel != kernel || (*link)->function != function)) link = &(*link)->next;
    tvm_binding *binding = *link;
    if (binding) *link = binding->next;
    pthread_mutex_unlock(&program->lock);
    if (binding)
        binding_free(binding);
    else
        status = tvm_diag_add(&diags, TVM_NOT_FOUND, NULL, NULL, "kernel '%s' is not bound to that function",
                              tvm_kernel_name(kernel));
    return tvm_context_finish(program->context, status, &diags);
}
