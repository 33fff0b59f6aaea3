#include "launch.h"
#include "runtime.h"
#include "signature.h"
#include "vbc.h"

#include <stdlib.h>
#include <string.h>

/* What is kept of a kernel's parameters; the texts of their shapes are made when they are asked for. */
static tvm_status make_params(tvm_kernel *function, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    size_t count = kernel->param_count ? kernel->param_count : 1;
    function->type_names = calloc(count, sizeof *function->type_names);
    function->shapes = calloc(count, sizeof *function->shapes);
    function->args = calloc(count, sizeof *function->args);
    if (!function->type_names || !function->shapes || !function->args) return tvm_diag_no_memory(diags);
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        tvm_dtype_name(kernel->slots[p].dtype, function->type_names[p]);
        function->args[p] = (uint8_t)tvm_arg_kind_of(&kernel->slots[p]);
    }
    return TVM_OK;
}

static tvm_status make_kernel(tvm_kernel *function, uint32_t index, tvm_diags *diags) {
    function->kernel = &function->code->program->kernels[index];
    function->index = index;
    function->tensor_count = tvm_launch_tensors(function->kernel, function->tensors);
    tvm_status status = make_params(function, diags);
    return status ? status : tvm_launch_plan_make(function->kernel, &function->plan, diags);
}

static tvm_status make_entry(tvm_kernel *function, uint32_t index, tvm_diags *diags) {
    const tvm_ir_program *program = function->code->program;
    const tvm_launch_env env = tvm_context_launch_env(function->code->context);
    function->entry = &program->entries[index];
    function->kernel = &function->entry->head;
    tvm_status status = make_params(function, diags);
    return status ? status
                  : tvm_variants_make(program, function->entry, &env, &function->code->room,
                                      &function->variants, diags);
}

/* What an entry's choice has to know of the device, as far as it costs nothing: see tvm_room. */
static tvm_status make_room(tvm_program *code, tvm_diags *diags) {
    const tvm_device_ops *ops = code->context->ops;
    if (!ops->shared_need || !code->program->entry_count) return TVM_OK;
    code->room.has = ops->shared_bytes(code->device_code);
    code->room.ask = ops->shared_need;
    code->room.code = code->device_code;
    code->room.answers = calloc(code->program->kernel_count + (size_t)1, sizeof *code->room.answers);
    return code->room.answers ? TVM_OK : tvm_diag_no_memory(diags);
}

/* Fills code->functions from its program. */
static tvm_status make_functions(tvm_program *code, tvm_diags *diags) {
    const tvm_ir_program *program = code->program;
    uint32_t kernels = program->kernel_count;
    tvm_status status = TVM_OK;
    code->functions = calloc((size_t)kernels + program->entry_count + 1, sizeof *code->functions);
    if (!code->functions) return tvm_diag_no_memory(diags);
    while (!status && code->function_count < (size_t)kernels + program->entry_count) {
        uint32_t i = (uint32_t)code->function_count++;
        code->functions[i].code = code;
        status = i < kernels ? make_kernel(&code->functions[i], i, diags)
                             : make_entry(&code->functions[i], i - kernels, diags);
    }
    return status;
}

static void free_function(tvm_kernel *function) {
    for (uint32_t p = 0; function->shapes && p < function->kernel->param_count; p++)
        free(function->shapes[p]);
    free(function->type_names);
    free(function->shapes);
    free(function->args);
    free(function->plan);
    tvm_variants_free(function->variants);
}

void tvm_program_free(tvm_program *code) {
    if (!code) return;
    tvm_bindings_free(code->bindings);
    if (code->device_code) code->context->ops->code_close(code->device_code);
    for (size_t i = 0; i < code->function_count; i++) free_function(&code->functions[i]);
    free(code->functions);
    free(code->room.answers);
    tvm_ir_program_free(code->program);
    pthread_mutex_destroy(&code->lock);
    free(code);
}

tvm_status tvm_context_load(tvm_context *context, tvm_ir_program *program, tvm_program **code,
                            tvm_diags *diags) {
    tvm_program *loaded = calloc(1, sizeof *loaded);
    if (!loaded || pthread_mutex_init(&loaded->lock, NULL)) {
        free(loaded);
        tvm_ir_program_free(program);
        return tvm_diag_no_memory(diags);
    }
    loaded->context = context;
    loaded->program = program;
    bool counts = atomic_load(&context->limits.turns) != 0;
    if (atomic_load(&context->limits.no_embedded_code)) tvm_ir_program_drop_images(program);
    tvm_status status =
        context->ops->code_open(context->device, program, counts, &loaded->device_code, diags);
    if (!status) status = make_room(loaded, diags);
    if (!status) status = make_functions(loaded, diags);
    if (status) {
        tvm_program_free(loaded);
        return status;
    }
    *code = loaded;
    return TVM_OK;
}

tvm_status tvm_load_file(tvm_context *context, const char *path, tvm_program **code) {
    if (!context || !path || !code) return tvm_context_missing(context, __func__);
    *code = NULL;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = tvm_vbc_read_file(path, &program, &diags);
    if (!status) status = tvm_context_load(context, program, code, &diags);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_load(tvm_context *context, const void *bytes, size_t size, tvm_program **code) {
    if (!context || (!bytes && size) || !code) return tvm_context_missing(context, __func__);
    *code = NULL;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = tvm_vbc_read(bytes, size, NULL, &program, &diags);
    if (!status) status = tvm_context_load(context, program, code, &diags);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_program_bytes(const tvm_program *code, void **bytes, size_t *size) {
    if (!code || !bytes || !size) return tvm_context_missing(code ? code->context : NULL, __func__);
    uint8_t *written = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_vbc_write(code->program, TVM_VBC_LINES | TVM_VBC_IMAGES | TVM_VBC_CERTIFICATES,
                                      &written, size, &diags);
    *bytes = written;
    return tvm_context_finish(code->context, status, &diags);
}

/* ---- introspection ---- */

const char *tvm_code_origin(const tvm_program *code) {
    return code ? code->context->ops->code_origin(code->device_code) : "";
}

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
    if (!code || !name || !function) return tvm_context_missing(code ? code->context : NULL, __func__);
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

/* The text of the shape that all variants of an entry declare for a parameter, or "" where they differ; NULL:
 * out of memory. */
static char *shape_of_variants(const tvm_kernel *function, uint32_t index) {
    const tvm_ir_program *program = function->code->program;
    const tvm_ir_entry *entry = function->entry;
    char *text = tvm_launch_shape_text(program, &program->kernels[entry->cases[0].kernel], index);
    for (uint32_t i = 1; text && *text && i < entry->case_count; i++) {
        char *other = tvm_launch_shape_text(program, &program->kernels[entry->cases[i].kernel], index);
        if (other && strcmp(text, other)) *text = 0;
        if (!other) {
            free(text);
            text = NULL;
        }
        free(other);
    }
    return text;
}

/* The text of a parameter's shape, which lives as long as the program; NULL: out of memory. */
static const char *shape_text(const tvm_kernel *function, size_t index) {
    pthread_mutex_lock(&function->code->lock);
    char **text = &function->shapes[index];
    if (!*text)
        *text = function->entry
                    ? shape_of_variants(function, (uint32_t)index)
                    : tvm_launch_shape_text(function->code->program, function->kernel, (uint32_t)index);
    pthread_mutex_unlock(&function->code->lock);
    return *text;
}

tvm_status tvm_param(const tvm_kernel *function, size_t index, tvm_param_info *info) {
    if (!function || !info) return tvm_context_missing(function ? function->code->context : NULL, __func__);
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
    const char *shape = shape_text(function, index);
    if (!shape) return tvm_context_finish(function->code->context, tvm_diag_no_memory(&diags), &diags);
    *info = (tvm_param_info){.name = tvm_string(function->code->program, slot->name),
                             .type = function->type_names[index],
                             .bits = slot->dtype.bits,
                             .is_tensor = tensor,
                             .rank = tensor ? slot->rank : 0,
                             .shape = shape};
    return tvm_context_finish(function->code->context, TVM_OK, &diags);
}

int tvm_param_written(const tvm_kernel *function, size_t index) {
    if (!function || index >= function->kernel->param_count) return 0;
    return (tvm_param_accesses(function, (uint32_t)index) & TVM_PARAM_WRITTEN) != 0;
}

tvm_status tvm_get_kernel_info(tvm_kernel *function, tvm_kernel_info *info) {
    if (!function || !info) return tvm_context_missing(function ? function->code->context : NULL, __func__);
    tvm_diags diags = {0};
    tvm_kernel_info found = {0};
    tvm_context *context = function->code->context;
    tvm_status status =
        function->entry
            ? tvm_diag_add(&diags, TVM_USAGE, NULL, "tvm_kernel_variant names the kernel that a launch runs",
                           "'%s' is an entry, which has no code of its own", tvm_kernel_name(function))
            : context->ops->describe(function->code->device_code, function->index, &found, &diags);
    *info = status ? (tvm_kernel_info){0} : found;
    return tvm_context_finish(context, status, &diags);
}
