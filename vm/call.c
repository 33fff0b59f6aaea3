/* Calling a kernel: arguments from C to what a device launches. Nothing here allocates unless it fails. */
#include "call_kept.h"
#include "launch.h"
#include "runtime.h"
#include "signature.h"
#include "tensor.h"
#include "work.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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
                                        tvm_call_args *out, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    if (count != kernel->param_count || (count && !values)) return count_mismatch(function, count, diags);
    out->values = values;
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        out->data[i] = values[i].tensor ? tvm_tensor_data(values[i].tensor) : values[i].data;
        if (kernel->slots[i].kind == TVM_SLOT_GLOBAL) continue;
        tvm_status status = scalar_from_value(function, i, &values[i], &out->scalars[i], diags);
        if (status) return status;
    }
    return TVM_OK;
}

static void arguments_from_list(const tvm_kernel *function, va_list list, tvm_call_args *out) {
    out->values = NULL;
    for (uint32_t i = 0; i < function->kernel->param_count; i++) {
        tvm_scalar *scalar = &out->scalars[i];
        switch ((tvm_arg_kind)function->args[i]) {
        case TVM_ARG_BOOL:
            scalar->i = va_arg(list, int) != 0;
            break;
        case TVM_ARG_I32:
            scalar->i = va_arg(list, int);
            break;
        case TVM_ARG_U32:
            scalar->i = va_arg(list, unsigned);
            break;
        case TVM_ARG_I64:
        case TVM_ARG_U64:
            scalar->i = va_arg(list, int64_t);
            break;
        case TVM_ARG_F32:
            scalar->f = (float)va_arg(list, double);
            break;
        case TVM_ARG_F64:
            scalar->f = va_arg(list, double);
            break;
        default:
            out->data[i] = va_arg(list, void *);
        }
    }
}

static void arguments_from_addresses(const tvm_kernel *function, void *const *addresses, tvm_call_args *out) {
    out->values = NULL;
    for (uint32_t i = 0; i < function->kernel->param_count; i++) {
        tvm_scalar *scalar = &out->scalars[i];
        const void *from = addresses[i];
        switch ((tvm_arg_kind)function->args[i]) {
        case TVM_ARG_BOOL:
            scalar->i = *(const uint8_t *)from != 0;
            break;
        case TVM_ARG_I32:
            scalar->i = *(const int32_t *)from;
            break;
        case TVM_ARG_U32:
            scalar->i = *(const uint32_t *)from;
            break;
        case TVM_ARG_I64:
        case TVM_ARG_U64:
            scalar->i = *(const int64_t *)from;
            break;
        case TVM_ARG_F32:
            scalar->f = *(const float *)from;
            break;
        case TVM_ARG_F64:
            scalar->f = *(const double *)from;
            break;
        default:
            out->data[i] = *(void *const *)from;
        }
    }
}

static tvm_launch_env env_of(const tvm_kernel *function, const tvm_call_args *args) {
    tvm_launch_env env = tvm_context_launch_env(function->code->context);
    env.scalars = args->scalars;
    return env;
}

/* ---- entries ---- */

/* The kernel that a launch runs: the function itself, or of an entry the variant for these arguments. */
static tvm_status find_variant(const tvm_kernel *function, const tvm_call_args *args,
                               const tvm_kernel **variant, tvm_diags *diags) {
    uint32_t index;
    *variant = function;
    if (!function->entry) return TVM_OK;
    const tvm_launch_env env = env_of(function, args);
    tvm_status status = tvm_variants_choose(function->variants, &env, &index, diags);
    if (!status) *variant = &function->code->functions[function->entry->cases[index].kernel];
    return status;
}

/* What went wrong with a variant is told with the entry's name before it. */
static void name_entry(const tvm_kernel *function, const tvm_kernel *variant, tvm_diags *diags) {
    for (size_t i = 0; variant != function && i < diags->count; i++) {
        char *old = diags->items[i].message, *told;
        if (!old || asprintf(&told, "entry '%s': %s", tvm_kernel_name(function), old) < 0) continue;
        diags->items[i].message = told;
        free(old);
    }
}

/* Ends a public call. */
static tvm_status finish(const tvm_kernel *function, const tvm_kernel *variant, tvm_status status,
                         tvm_diags *diags) {
    if (status) name_entry(function, variant, diags);
    return tvm_context_finish(function->code->context, status, diags);
}

/* ---- checks ---- */

/* Is what lies behind a bare address enough, as far as the context knows? */
static tvm_status check_memory(const tvm_kernel *function, uint32_t param, const void *data, uint64_t needed,
                               tvm_diags *diags) {
    tvm_limits_state *limits = &function->code->context->limits;
    size_t bytes = tvm_memory_table_bytes(&limits->memory, data);
    if (bytes == SIZE_MAX && needed && atomic_load_explicit(&limits->known_sizes, memory_order_relaxed))
        return tvm_diag_add(
            diags, TVM_LIMIT, NULL, "pass the tensor's bytes, or memory of tvm_memory_alloc",
            "kernel '%s': the size of tensor '%s' is not known, and the context's limits ask for it",
            tvm_kernel_name(function), param_name(function, param));
    if (bytes >= needed) return TVM_OK;
    return tvm_diag_add(
        diags, TVM_ARGUMENT, NULL, NULL,
        "kernel '%s': tensor '%s' has %llu bytes by its declared shape, but only %zu lie there in "
        "memory of tvm_memory_alloc",
        tvm_kernel_name(function), param_name(function, param), (unsigned long long)needed, bytes);
}

/* What only a caller who passes addresses can get wrong; without values, only a NULL is left to be looked at.
 */
static tvm_status check_tensor(const tvm_kernel *function, uint32_t param, const tvm_call_args *args,
                               const tvm_launch_shapes *shapes, tvm_diags *diags) {
    const tvm_value *value = args->values ? &args->values[param] : NULL;
    const void *data = args->data[param];
    int64_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK];
    uint64_t needed;
    tvm_status status = tvm_launch_shapes_find(shapes, param, shape, &needed, diags);
    bool strided = function->kernel->slots[param].form == TVM_FORM_STRIDED;
    if (!status && value && value->tensor && strided)
        status = tvm_launch_strides(shapes->program, shapes->kernel, param, &shapes->env, stride, diags);
    if (!status && value && value->tensor)
        status = tvm_tensor_check(function, param, shape, strided ? stride : NULL, value->tensor, diags);
    if (status) return status;
    if ((uintptr_t)data % 16)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "kernel '%s': the address %p of tensor '%s' is not 16-byte aligned",
                            tvm_kernel_name(function), data, param_name(function, param));
    if (!data && needed)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "kernel '%s': the address of tensor '%s' is NULL", tvm_kernel_name(function),
                            param_name(function, param));
    if (value && !value->tensor && value->bytes && value->bytes < needed)
        return tvm_diag_add(
            diags, TVM_ARGUMENT, NULL, NULL,
            "kernel '%s': tensor '%s' has %llu bytes by its declared shape, but only %zu are there",
            tvm_kernel_name(function), param_name(function, param), (unsigned long long)needed, value->bytes);
    bool bare = !value || (!value->tensor && !value->bytes);
    return bare ? check_memory(function, param, data, needed, diags) : TVM_OK;
}

/* Is there nothing to be looked at but that there is an address? */
static inline bool is_plain(const tvm_kernel *function, const tvm_call_args *args, uint32_t param) {
    const tvm_value *value = args->values ? &args->values[param] : NULL;
    const void *data = args->data[param];
    if (tvm_limits_look_at_memory(&function->code->context->limits)) return false;
    return data && (uintptr_t)data % 16 == 0 && (!value || (!value->tensor && !value->bytes));
}

/* What the scalars alone say: everything of the launch but where its tensors lie. */
static tvm_status check_scalars(const tvm_kernel *function, tvm_call_args *args, tvm_launch_shapes *shapes,
                                tvm_diags *diags) {
    tvm_status status = TVM_OK;
    shapes->program = function->code->program;
    shapes->kernel = function->kernel;
    shapes->plan = function->plan;
    shapes->env = env_of(function, args);
    if (!tvm_launch_plan_run(function->plan, &shapes->env, &shapes->values))
        status = tvm_launch_check(shapes->program, shapes->kernel, &shapes->env, diags);
    int64_t shape[TVM_MAX_RANK];
    for (uint32_t i = 0; !status && i < function->tensor_count; i++)
        status =
            tvm_launch_shapes_find(shapes, function->tensors[i].slot, shape, &args->tensor_bytes[i], diags);
    return status;
}

/* Everything that is checked before a launch; sets its grid and shapes. */
static tvm_status check_arguments(const tvm_kernel *function, tvm_call_args *args, tvm_launch_shapes *shapes,
                                  tvm_device_launch *launch, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    tvm_status status = check_scalars(function, args, shapes, diags);
    memcpy(launch->grid, shapes->env.grid, sizeof launch->grid);
    launch->shapes = shapes;
    for (uint32_t i = 0; !status && i < kernel->param_count; i++)
        if (function->args[i] == TVM_ARG_TENSOR && !is_plain(function, args, i))
            status = check_tensor(function, i, args, shapes, diags);
    if (!status)
        status = tvm_limits_check(&function->code->context->limits, tvm_kernel_name(function),
                                  function->tensor_count, launch, diags);
    return status;
}

/* All but the grid and shapes, which the checks find. */
static tvm_device_launch launch_of(const tvm_kernel *function, void *stream, const tvm_call_args *args) {
    return (tvm_device_launch){.kernel = function->index,
                               .scalars = args->scalars,
                               .data = args->data,
                               .tensor_bytes = args->tensor_bytes,
                               .stream = stream};
}

static tvm_status submit(const tvm_kernel *function, void *stream, tvm_call_args *args, tvm_diags *diags) {
    tvm_launch_shapes shapes;
    tvm_device_launch launch = launch_of(function, stream, args);
    tvm_status status = check_arguments(function, args, &shapes, &launch, diags);
    if (status || tvm_launch_is_empty(&launch)) return status;
    tvm_context *context = function->code->context;
    tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_LAUNCH, tvm_kernel_name(function));
    status = context->ops->launch(function->code->device_code, &launch, diags);
    tvm_span_end(&context->observer, &span);
    return status;
}

tvm_status tvm_launch(tvm_kernel *function, void *stream, ...) {
    if (!function) return TVM_USAGE;
    tvm_call_args args;
    va_list list;
    va_start(list, stream);
    arguments_from_list(function, list, &args);
    va_end(list);
    const tvm_kernel *variant;
    tvm_diags diags = {0};
    tvm_status status = find_variant(function, &args, &variant, &diags);
    if (!status) status = submit(variant, stream, &args, &diags);
    return finish(function, variant, status, &diags);
}

tvm_status tvm_launch_addresses(tvm_kernel *function, void *stream, void *const *addresses) {
    tvm_call_args args;
    arguments_from_addresses(function, addresses, &args);
    const tvm_kernel *variant;
    tvm_diags diags = {0};
    tvm_status status = find_variant(function, &args, &variant, &diags);
    if (!status) status = submit(variant, stream, &args, &diags);
    return finish(function, variant, status, &diags);
}

/* tvm_launchv's arguments and the kernel that they are for. */
static tvm_status arguments_and_variant(const tvm_kernel *function, const tvm_value *values, size_t count,
                                        tvm_call_args *args, const tvm_kernel **variant, tvm_diags *diags) {
    *variant = function;
    tvm_status status = arguments_from_values(function, values, count, args, diags);
    return status ? status : find_variant(function, args, variant, diags);
}

tvm_status tvm_launch_keep(const tvm_kernel *function, const tvm_value *values, tvm_kept_launch *kept,
                           tvm_diags *diags) {
    tvm_diags said = {0};
    kept->function = function;
    tvm_status status = arguments_and_variant(function, values, function->kernel->param_count, &kept->args,
                                              &kept->variant, &said);
    if (!status) kept->launch = launch_of(kept->variant, NULL, &kept->args);
    if (!status) status = check_arguments(kept->variant, &kept->args, &kept->shapes, &kept->launch, &said);
    if (status) name_entry(function, kept->variant, &said);
    for (size_t i = 0; i < said.count; i++)
        tvm_diag_add(diags, status, NULL, said.items[i].hint, "%s", said.items[i].message);
    if (status && !said.count) tvm_diag_no_memory(diags);
    tvm_diags_free(&said);
    return status;
}

tvm_status tvm_launch_kept(tvm_kept_launch *kept, void *stream, tvm_diags *diags) {
    tvm_context *context = kept->function->code->context;
    tvm_device_launch *launch = &kept->launch;
    tvm_status status = tvm_limits_check(&context->limits, tvm_kernel_name(kept->variant),
                                         kept->variant->tensor_count, launch, diags);
    if (status || tvm_launch_is_empty(launch)) return status;
    launch->stream = stream;
    tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_LAUNCH, tvm_kernel_name(kept->variant));
    status = context->ops->launch(kept->variant->code->device_code, launch, diags);
    tvm_span_end(&context->observer, &span);
    return status;
}

tvm_status tvm_launchv(tvm_kernel *function, void *stream, const tvm_value *values, size_t count) {
    if (!function) return TVM_USAGE;
    tvm_call_args args;
    const tvm_kernel *variant;
    tvm_diags diags = {0};
    tvm_status status = arguments_and_variant(function, values, count, &args, &variant, &diags);
    if (!status) status = submit(variant, stream, &args, &diags);
    return finish(function, variant, status, &diags);
}

tvm_status tvm_kernel_costs(const tvm_kernel *function, const tvm_value *values, size_t count,
                            tvm_text *out) {
    const tvm_ir_entry *entry = function->entry;
    tvm_call_args args;
    tvm_diags diags = {0};
    bool costs = false;
    for (uint32_t i = 0; entry && i < entry->case_count; i++)
        costs = costs || entry->cases[i].cost != TVM_NONE;
    if (!costs) return TVM_OK;
    tvm_status status = arguments_from_values(function, values, count, &args, &diags);
    const tvm_launch_env env = env_of(function, &args);
    if (!status) status = tvm_variants_costs(function->variants, &env, out, &diags);
    return finish(function, function, status, &diags);
}

tvm_status tvm_reserve(tvm_kernel *function, void *stream, const tvm_value *values, size_t count) {
    if (!function) return TVM_USAGE;
    tvm_call_args args;
    const tvm_kernel *variant;
    tvm_launch_shapes shapes;
    tvm_diags diags = {0};
    tvm_status status = arguments_and_variant(function, values, count, &args, &variant, &diags);
    tvm_device_launch launch = launch_of(variant, stream, &args);
    if (!status) status = check_scalars(variant, &args, &shapes, &diags);
    if (!status) memcpy(launch.grid, shapes.env.grid, sizeof launch.grid);
    launch.shapes = &shapes;
    if (!status) status = function->code->context->ops->reserve(function->code->device_code, &launch, &diags);
    return finish(function, variant, status, &diags);
}

static tvm_status prepare(const tvm_kernel *kernel, tvm_diags *diags) {
    tvm_context *context = kernel->code->context;
    tvm_span span = tvm_span_begin(&context->observer, TVM_SPAN_PREPARE, tvm_kernel_name(kernel));
    tvm_status status = context->ops->prepare(kernel->code->device_code, kernel->index, diags);
    tvm_span_end(&context->observer, &span);
    return status;
}

typedef struct preparation {
    const tvm_kernel *entry;
    const bool *possible; /* of each case */
} preparation;

static tvm_status prepare_variant(void *closure, unsigned thread, uint64_t number, tvm_diags *diags) {
    const preparation *p = closure;
    const tvm_kernel *variant = &p->entry->code->functions[p->entry->entry->cases[number].kernel];
    (void)thread;
    return p->possible[number] ? prepare(variant, diags) : TVM_OK;
}

/* Those kernels that launches on this device may run, several at a time. */
static tvm_status prepare_entry(const tvm_kernel *entry, tvm_diags *diags) {
    uint32_t cases = entry->entry->case_count;
    unsigned threads = tvm_work_threads(0);
    if (threads > cases) threads = cases;
    bool *possible = calloc(cases, sizeof *possible);
    if (!possible) return tvm_diag_no_memory(diags);
    tvm_status status = tvm_variants_possible(entry->variants, possible, diags);
    preparation made = {entry, possible};
    if (!status) status = tvm_work(cases, threads, prepare_variant, &made, NULL, diags);
    free(possible);
    return status;
}

tvm_status tvm_prepare(tvm_kernel *function) {
    if (!function) return TVM_USAGE;
    tvm_diags diags = {0};
    if (!function->entry) return finish(function, function, prepare(function, &diags), &diags);
    return finish(function, NULL, prepare_entry(function, &diags), &diags);
}

tvm_status tvm_kernel_variant(const tvm_kernel *function, const tvm_value *values, size_t count,
                              const char **name) {
    if (!function || !name) return tvm_context_missing(function ? function->code->context : NULL, __func__);
    *name = NULL;
    tvm_call_args args;
    const tvm_kernel *variant;
    tvm_diags diags = {0};
    tvm_status status = arguments_and_variant(function, values, count, &args, &variant, &diags);
    if (!status) *name = tvm_kernel_name(variant);
    return tvm_context_finish(function->code->context, status, &diags);
}

tvm_status tvm_kernel_check(const tvm_kernel *function, const tvm_value *values, size_t count,
                            const tvm_kernel **variant) {
    tvm_call_args args;
    tvm_diags diags = {0};
    tvm_status status = arguments_and_variant(function, values, count, &args, variant, &diags);
    tvm_launch_env env = env_of(function, &args);
    if (!status) status = tvm_launch_check(function->code->program, (*variant)->kernel, &env, &diags);
    return finish(function, *variant, status, &diags);
}

static tvm_status shape_of(const tvm_kernel *function, size_t index, const tvm_value *values, size_t count,
                           int64_t shape[8], size_t *bytes, const tvm_kernel **variant, tvm_diags *diags) {
    const tvm_ir_kernel *kernel = function->kernel;
    if (index >= kernel->param_count || kernel->slots[index].kind != TVM_SLOT_GLOBAL)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "parameter %zu of kernel '%s' is no tensor", index,
                            tvm_kernel_name(function));
    tvm_call_args args;
    uint64_t size;
    tvm_status status = arguments_and_variant(function, values, count, &args, variant, diags);
    const tvm_launch_env env = env_of(function, &args);
    if (!status)
        status = tvm_launch_shape(function->code->program, (*variant)->kernel, (uint32_t)index, &env, shape,
                                  &size, diags);
    if (status) return status;
    if (bytes) *bytes = size;
    return TVM_OK;
}

tvm_status tvm_param_shape(const tvm_kernel *function, size_t index, const tvm_value *values, size_t count,
                           int64_t shape[8], size_t *bytes) {
    if (!function || !shape) return tvm_context_missing(function ? function->code->context : NULL, __func__);
    const tvm_kernel *variant = function;
    tvm_diags diags = {0};
    tvm_status status = shape_of(function, index, values, count, shape, bytes, &variant, &diags);
    return finish(function, variant, status, &diags);
}

tvm_status tvm_kernel_strides(const tvm_kernel *function, size_t index, const tvm_value *values, size_t count,
                              int64_t stride[TVM_MAX_RANK]) {
    const tvm_kernel *variant = function;
    tvm_call_args args;
    tvm_diags diags = {0};
    tvm_status status = arguments_and_variant(function, values, count, &args, &variant, &diags);
    const tvm_launch_env env = env_of(function, &args);
    if (!status)
        status = tvm_launch_strides(function->code->program, variant->kernel, (uint32_t)index, &env, stride,
                                    &diags);
    return finish(function, variant, status, &diags);
}

enum { MOST_SETS = 64 };

tvm_status tvm_time_sets(tvm_kernel *function, const tvm_value *const *sets, unsigned set_count, size_t count,
                         unsigned repeats, double *microseconds) {
    if (!function || !microseconds || !set_count || set_count > MOST_SETS)
        return tvm_context_missing(function ? function->code->context : NULL, __func__);
    *microseconds = 0;
    typedef struct set {
        tvm_call_args args;
        tvm_launch_shapes shapes;
    } set;
    set *made = calloc(set_count, sizeof *made);
    tvm_device_launch launches[MOST_SETS];
    const tvm_kernel *variant = function;
    tvm_diags diags = {0};
    tvm_status status = made ? TVM_OK : tvm_diag_no_memory(&diags);
    for (unsigned i = 0; !status && i < set_count; i++) {
        status = arguments_and_variant(function, sets[i], count, &made[i].args, &variant, &diags);
        launches[i] = launch_of(variant, NULL, &made[i].args);
        if (!status) status = check_arguments(variant, &made[i].args, &made[i].shapes, &launches[i], &diags);
    }
    if (!status && !tvm_launch_is_empty(launches))
        status = function->code->context->ops->time(function->code->device_code, launches, set_count, repeats,
                                                    microseconds, &diags);
    free(made);
    return finish(function, variant, status, &diags);
}

tvm_status tvm_time(tvm_kernel *function, const tvm_value *values, size_t count, unsigned repeats,
                    double *microseconds) {
    return tvm_time_sets(function, &values, 1, count, repeats, microseconds);
}

tvm_status tvm_launch_counted(tvm_kernel *function, const tvm_value *values, size_t count,
                              tvm_launch_counts *counts) {
    tvm_call_args args;
    const tvm_kernel *variant;
    tvm_diags diags = {0};
    tvm_status status = arguments_and_variant(function, values, count, &args, &variant, &diags);
    tvm_launch_shapes shapes;
    tvm_device_launch launch = launch_of(variant, NULL, &args);
    if (!status) status = check_arguments(variant, &args, &shapes, &launch, &diags);
    launch.counts = counts;
    if (!status && !tvm_launch_is_empty(&launch))
        status = function->code->context->ops->launch(function->code->device_code, &launch, &diags);
    return finish(function, variant, status, &diags);
}
