#include "launch_limits.h"

#include "runtime.h"

tvm_status tvm_set_limits(tvm_context *context, const tvm_limits *limits) {
    static const tvm_limits none = {0};
    if (!context) return TVM_USAGE;
    if (!limits) limits = &none;
    tvm_limits_state *state = &context->limits;
    atomic_store(&state->scratch_bytes, limits->scratch_bytes);
    atomic_store(&state->blocks, limits->blocks);
    atomic_store(&state->instructions, limits->instructions);
    atomic_store(&state->milliseconds, limits->milliseconds);
    atomic_store(&state->known_sizes, limits->known_sizes != 0);
    atomic_store(&state->no_embedded_code, limits->no_embedded_code != 0);
    return tvm_context_finish(context, TVM_OK, &(tvm_diags){0});
}

tvm_status tvm_set_sanitizer(tvm_context *context, tvm_sanitize sanitize) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && (unsigned)sanitize > TVM_SANITIZE_JSON)
        status =
            tvm_diag_add(&diags, TVM_USAGE, NULL, NULL, "there is no sanitizer number %d", (int)sanitize);
    if (!status && sanitize && context->ops->kind != TVM_DEVICE_CPU)
        status = tvm_diag_add(&diags, TVM_UNSUPPORTED, NULL, NULL,
                              "launches on a GPU are not checked: the sanitizer is the interpreter's");
    if (!status) atomic_store(&context->limits.sanitize, (unsigned)sanitize);
    return tvm_context_finish(context, status, &diags);
}

tvm_status tvm_cancel(tvm_context *context) {
    if (!context) return TVM_USAGE;
    tvm_diags diags = {0};
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status && context->ops->kind != TVM_DEVICE_CPU)
        status = tvm_diag_add(&diags, TVM_UNSUPPORTED, NULL, NULL, "launches on a GPU cannot be cancelled");
    if (!status) atomic_fetch_add(&context->limits.cancelled, 1);
    return tvm_context_finish(context, status, &diags);
}

/* The limit is `most` (0: none) and the launch wants more. */
static tvm_status refuse(const char *kernel, const char *what, uint64_t wants, uint64_t most,
                         tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_LIMIT, NULL, NULL,
                        "kernel '%s': the launch has %llu %s, the context's limit is %llu", kernel,
                        (unsigned long long)wants, what, (unsigned long long)most);
}

tvm_status tvm_limits_check(tvm_limits_state *limits, const char *kernel, uint32_t tensors,
                            tvm_device_launch *launch, tvm_diags *diags) {
    uint64_t most = atomic_load_explicit(&limits->blocks, memory_order_relaxed), bytes = 0;
    if (most) {
        uint64_t rows = (uint64_t)launch->grid[1] * launch->grid[2], blocks;
        if (__builtin_mul_overflow(rows, launch->grid[0], &blocks)) blocks = UINT64_MAX;
        if (blocks > most) return refuse(kernel, "blocks", blocks, most, diags);
    }
    most = atomic_load_explicit(&limits->scratch_bytes, memory_order_relaxed);
    for (uint32_t i = 0; most && i < tensors; i++)
        if (__builtin_add_overflow(bytes, launch->tensor_bytes[i], &bytes)) bytes = UINT64_MAX;
    if (most && bytes > most) return refuse(kernel, "bytes of tensors of its own", bytes, most, diags);
    launch->instructions = atomic_load_explicit(&limits->instructions, memory_order_relaxed);
    launch->milliseconds = atomic_load_explicit(&limits->milliseconds, memory_order_relaxed);
    launch->sanitize = (tvm_sanitize)atomic_load_explicit(&limits->sanitize, memory_order_relaxed);
    launch->cancelled = &limits->cancelled;
    return TVM_OK;
}
