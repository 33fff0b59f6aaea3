#include "runtime.h"
#include "vbc.h"

#include <stdlib.h>
#include <string.h>

static tvm_status make_function(tvm_kernel *function, tvm_program *code, const tvm_ir_kernel *kernel,
                                tvm_diags *diags) {
    function->code = code;
    function->kernel = kernel;
    if (!kernel->param_count) return TVM_OK;
    function->type_names = calloc(kernel->param_count, sizeof *function->type_names);
    if (!function->type_names) return tvm_diag_no_memory(diags);
    for (uint32_t p = 0; p < kernel->param_count; p++)
        tvm_dtype_name(kernel->slots[p].dtype, function->type_names[p]);
    return TVM_OK;
}

/* Fills code->functions from its program. */
static tvm_status make_functions(tvm_program *code, tvm_diags *diags) {
    const tvm_ir_program *program = code->program;
    const tvm_launch_env env = tvm_context_launch_env(code->context);
    code->function_count = (size_t)program->kernel_count + program->entry_count;
    code->functions = calloc(code->function_count + 1, sizeof *code->functions);
    if (!code->functions) return tvm_diag_no_memory(diags);
    tvm_status status = TVM_OK;
    for (uint32_t i = 0; !status && i < program->kernel_count; i++) {
        code->functions[i].index = i;
        status = make_function(&code->functions[i], code, &program->kernels[i], diags);
    }
    for (uint32_t i = 0; !status && i < program->entry_count; i++) {
        tvm_kernel *function = &code->functions[program->kernel_count + i];
        function->entry = &program->entries[i];
        status = make_function(function, code, &function->entry->head, diags);
        if (!status) status = tvm_variants_make(program, function->entry, &env, &function->variants, diags);
    }
    return status;
}

void tvm_program_free(tvm_program *code) {
    if (!code) return;
    if (code->device_code) code->context->ops->code_close(code->device_code);
    for (size_t i = 0; code->functions && i < code->function_count; i++) {
        free(code->functions[i].type_names);
        tvm_variants_free(code->functions[i].variants);
    }
    free(code->functions);
    tvm_ir_program_free(code->program);
    free(code);
}

/* Takes the program, also when it fails. */
static tvm_status load_program(tvm_context *context, tvm_ir_program *program, tvm_program **code,
                               tvm_diags *diags) {
    tvm_program *loaded = calloc(1, sizeof *loaded);
    if (!loaded) {
        tvm_ir_program_free(program);
        return tvm_diag_no_memory(diags);
    }
    loaded->context = context;
    loaded->program = program;
    tvm_status status = make_functions(loaded, diags);
    if (!status) status = context->ops->code_open(context->device, program, &loaded->device_code, diags);
    if (status) {
        tvm_program_free(loaded);
        return status;
    }
    *code = loaded;
    return TVM_OK;
}

static tvm_status no_device(tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "the context has no device: tvm_context_create failed");
}

tvm_status tvm_load_file(tvm_context *context, const char *path, tvm_program **code) {
    if (!context || !path || !code) return TVM_USAGE;
    *code = NULL;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = context->ops ? tvm_vbc_read_file(path, &program, &diags) : no_device(&diags);
    if (!status) status = load_program(context, program, code, &diags);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_load(tvm_context *context, const void *bytes, size_t size, tvm_program **code) {
    if (!context || (!bytes && size) || !code) return TVM_USAGE;
    *code = NULL;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = context->ops ? tvm_vbc_read(bytes, size, NULL, &program, &diags) : no_device(&diags);
    if (!status) status = load_program(context, program, code, &diags);
    return tvm_context_finish(context, status, &diags);
}

/* ---- introspection ---- */

size_t tvm_kernel_count(const tvm_program *code) {
    return code ? code->function_count : 0;
}

tvm_kernel *tvm_kernel_at(tvm_program *code, size_t index) {
    return code && index < code->function_count ? &code->functions[index] : NULL;
}

/* "matmul, pack": the names of a program's kernels and entries, malloc'ed; NULL when out of memory. */
static char *kernel_names(const tvm_program *code) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (!stream) return NULL;
    for (size_t i = 0; i < code->function_count; i++)
        fprintf(stream, "%s%s", i ? ", " : "", tvm_kernel_name(&code->functions[i]));
    if (!code->function_count) fputs("none", stream);
    if (!fclose(stream)) return text;
    free(text);
    return NULL;
}

tvm_status tvm_get_kernel(tvm_program *code, const char *name, tvm_kernel **function) {
    if (!code || !name || !function) return TVM_USAGE;
    *function = NULL;
    tvm_diags diags = {0};
    for (size_t i = 0; i < code->function_count; i++) {
        if (strcmp(tvm_kernel_name(&code->functions[i]), name)) continue;
        *function = &code->functions[i];
        return tvm_context_finish(code->context, TVM_OK, &diags);
    }
    char *names = kernel_names(code);
    tvm_status status = tvm_diag_add(&diags, TVM_NOT_FOUND, NULL, NULL,
                                     "the program has no kernel '%s'; it has: %s", name, names ? names : "?");
    free(names);
    return tvm_context_finish(code->context, status, &diags);
}

const char *tvm_kernel_name(const tvm_kernel *function) {
    return function ? tvm_string(function->code->program, function->kernel->name) : "";
}

size_t tvm_param_count(const tvm_kernel *function) {
    return function ? function->kernel->param_count : 0;
}

tvm_status tvm_param(const tvm_kernel *function, size_t index, tvm_param_info *info) {
    if (!function || !info) return TVM_USAGE;
    tvm_diags diags = {0};
    const tvm_ir_kernel *kernel = function->kernel;
    if (index >= kernel->param_count) {
        tvm_status status = tvm_diag_add(&diags, TVM_USAGE, NULL, NULL,
                                         "kernel '%s' has %u parameters: there is no parameter %zu",
                                         tvm_kernel_name(function), kernel->param_count, index);
        return tvm_context_finish(function->code->context, status, &diags);
    }
    const tvm_slot *slot = &kernel->slots[index];
    bool tensor = slot->kind == TVM_SLOT_GLOBAL;
    *info = (tvm_param_info){.name = tvm_string(function->code->program, slot->name),
                             .type = function->type_names[index],
                             .bits = slot->dtype.bits,
                             .is_tensor = tensor,
                             .rank = tensor ? slot->rank : 0};
    return tvm_context_finish(function->code->context, TVM_OK, &diags);
}
