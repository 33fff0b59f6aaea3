/* Calling a kernel: arguments from C to what a device launches. Nothing here allocates unless it fails. */
#include "launch.h"
#include "runtime.h"

#include <stdarg.h>
#include <string.h>

typedef struct call_args {
    tvm_scalar scalars[TVM_MAX_PARAMS];
    void *data[TVM_MAX_PARAMS];
    size_t bytes[TVM_MAX_PARAMS]; /* of tensors, as the caller says; 0: not said */
} call_args;

static const char *param_name(const tvm_kernel *function, uint32_t param) {
    return tvm_string(function->code->program, function->kernel->slots[param].name);
}

static tvm_status out_of_range(const tvm_kernel *function, uint32_t param, int64_t value, tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                        "kernel '%s': %lld does not fit parameter '%s' of type %s", tvm_kernel_name(function),
                        (long long)value, param_name(function, param), function->type_names[param]);
}

/* A scalar from its tvm_value, exactly or not at all. */
static tvm_status scalar_from_value(const tvm_kernel *function, uint32_t param, const tvm_value *value,
                                    tvm_scalar *scalar, tvm_diags *diags) {
    tvm_dtype type = function->kernel->slots[param].dtype;
    bool fits = true;
    scalar->u = 0;
    switch (type.kind) {
    case TVM_KIND_FLOAT:
        scalar->f = type.bits == 32 ? (double)(float)value->f : value->f;
        break;
    case TVM_KIND_BOOL:
        scalar->i = value->i != 0;
        break;
    case TVM_KIND_INT:
        scalar->i = value->i;
        fits = type.bits == 64 || (value->i >= INT32_MIN && value->i <= INT32_MAX);
        break;
    default:
        scalar->i = value->i;
        fits = type.bits == 64 || (value->i >= 0 && value->i <= UINT32_MAX);
    }
    return fits ? TVM_OK : out_of_range(function, param, value->i, diags);
}

static tvm_status count_mismatch(const tvm_kernel *function, size_t count, tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "kernel '%s' takes %u arguments, %zu were given",
                        tvm_kernel_name(function), function->kernel->param_count, count);
}

static tvm_status arguments_from_values(const tvm_kernel *function, const tvm_value *values, size_t count,
                                        call_args *out, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    if (count != kernel->param_count || (count && !values)) return count_mismatch(function, count, diags);
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        out->data[i] = values[i].data;
        out->bytes[i] = values[i].bytes;
        if (kernel->slots[i].kind == TVM_SLOT_GLOBAL) continue;
        tvm_status status = scalar_from_value(function, i, &values[i], &out->scalars[i], diags);
        if (status) return status;
    }
    return TVM_OK;
}

static void arguments_from_list(const tvm_ir_kernel *kernel, va_list list, call_args *out) {
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        tvm_dtype type = kernel->slots[i].dtype;
        tvm_scalar *scalar = &out->scalars[i];
        out->data[i] = NULL;
        out->bytes[i] = 0;
        if (kernel->slots[i].kind == TVM_SLOT_GLOBAL)
            out->data[i] = va_arg(list, void *);
        else if (type.kind == TVM_KIND_FLOAT && type.bits == 32)
            scalar->f = (float)va_arg(list, double);
        else if (type.kind == TVM_KIND_FLOAT)
            scalar->f = va_arg(list, double);
        else if (type.kind == TVM_KIND_BOOL)
            scalar->i = va_arg(list, int) != 0;
        else if (type.bits == 32 && type.kind == TVM_KIND_INT)
            scalar->i = va_arg(list, int);
        else if (type.bits == 32)
            scalar->i = va_arg(list, unsigned);
        else
            scalar->i = va_arg(list, int64_t);
    }
}

/* What only a caller who passes addresses can get wrong. */
static tvm_status check_tensor(const tvm_kernel *function, uint32_t param, const call_args *args,
                               tvm_diags *diags) {
    const void *data = args->data[param];
    if ((uintptr_t)data % 16)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "kernel '%s': the address %p of tensor '%s' is not 16-byte aligned",
                            tvm_kernel_name(function), data, param_name(function, param));
    if (data && !args->bytes[param]) return TVM_OK;
    int64_t shape[TVM_MAX_RANK];
    uint64_t needed;
    tvm_status status = tvm_launch_shape(function->code->program, function->kernel, param, args->scalars,
                                         shape, &needed, diags);
    if (status) return status;
    if (!data && needed)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "kernel '%s': the address of tensor '%s' is NULL", tvm_kernel_name(function),
                            param_name(function, param));
    if (args->bytes[param] && args->bytes[param] < needed)
        return tvm_diag_add(
            diags, TVM_ARGUMENT, NULL, NULL,
            "kernel '%s': tensor '%s' has %llu bytes by its declared shape, but only %zu are there",
            tvm_kernel_name(function), param_name(function, param), (unsigned long long)needed,
            args->bytes[param]);
    return TVM_OK;
}

/* Everything that is checked before a launch; grid as tvm_launch_check gives it. */
static tvm_status check_arguments(const tvm_kernel *function, const call_args *args, uint32_t grid[3],
                                  tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    tvm_status status = tvm_launch_check(function->code->program, kernel, args->scalars, grid, diags);
    for (uint32_t i = 0; !status && i < kernel->param_count; i++)
        if (kernel->slots[i].kind == TVM_SLOT_GLOBAL) status = check_tensor(function, i, args, diags);
    return status;
}

static tvm_status submit(tvm_kernel *function, void *stream, const call_args *args, tvm_diags *diags) {
    tvm_device_launch launch = {
        .kernel = function->index, .scalars = args->scalars, .data = args->data, .stream = stream};
    tvm_status status = check_arguments(function, args, launch.grid, diags);
    if (status || !launch.grid[0] || !launch.grid[1] || !launch.grid[2]) return status;
    tvm_context *context = function->code->context;
    tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_LAUNCH, tvm_kernel_name(function));
    status = context->ops->launch(function->code->device_code, &launch, diags);
    tvm_span_end(&context->observer, &span);
    return status;
}

tvm_status tvm_launch(tvm_kernel *function, void *stream, ...) {
    if (!function) return TVM_USAGE;
    call_args args;
    va_list list;
    va_start(list, stream);
    arguments_from_list(function->kernel, list, &args);
    va_end(list);
    tvm_diags diags = {0};
    tvm_status status = submit(function, stream, &args, &diags);
    return tvm_context_finish(function->code->context, status, &diags);
}

tvm_status tvm_launchv(tvm_kernel *function, void *stream, const tvm_value *values, size_t count) {
    if (!function) return TVM_USAGE;
    call_args args;
    tvm_diags diags = {0};
    tvm_status status = arguments_from_values(function, values, count, &args, &diags);
    if (!status) status = submit(function, stream, &args, &diags);
    return tvm_context_finish(function->code->context, status, &diags);
}

tvm_status tvm_prepare(tvm_kernel *function) {
    if (!function) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_context *context = function->code->context;
    tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_PREPARE, tvm_kernel_name(function));
    tvm_status status = context->ops->prepare(function->code->device_code, function->index, &diags);
    tvm_span_end(&context->observer, &span);
    return tvm_context_finish(context, status, &diags);
}

static tvm_status shape_of(const tvm_kernel *function, size_t index, const tvm_value *values, size_t count,
                           int64_t shape[8], size_t *bytes, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    if (index >= kernel->param_count || kernel->slots[index].kind != TVM_SLOT_GLOBAL)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "parameter %zu of kernel '%s' is no tensor", index,
                            tvm_kernel_name(function));
    call_args args;
    uint64_t size;
    tvm_status status = arguments_from_values(function, values, count, &args, diags);
    if (!status)
        status = tvm_launch_shape(function->code->program, kernel, (uint32_t)index, args.scalars, shape,
                                  &size, diags);
    if (status) return status;
    if (bytes) *bytes = size;
    return TVM_OK;
}

tvm_status tvm_param_shape(const tvm_kernel *function, size_t index, const tvm_value *values, size_t count,
                           int64_t shape[8], size_t *bytes) {
    if (!function || !shape) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = shape_of(function, index, values, count, shape, bytes, &diags);
    return tvm_context_finish(function->code->context, status, &diags);
}

tvm_status tvm_time(tvm_kernel *function, const tvm_value *values, size_t count, unsigned repeats,
                    double *microseconds) {
    if (!function || !microseconds) return TVM_USAGE;
    *microseconds = 0;
    call_args args;
    tvm_diags diags = {0};
    tvm_device_launch launch = {.kernel = function->index, .scalars = args.scalars, .data = args.data};
    tvm_status status = arguments_from_values(function, values, count, &args, &diags);
    if (!status) status = check_arguments(function, &args, launch.grid, &diags);
    if (!status && launch.grid[0] && launch.grid[1] && launch.grid[2])
        status = function->code->context->ops->time(function->code->device_code, &launch, repeats,
                                                    microseconds, &diags);
    return tvm_context_finish(function->code->context, status, &diags);
}
