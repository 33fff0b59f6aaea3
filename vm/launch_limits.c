#include "launch_limits.h"

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
    launch->turns = atomic_load_explicit(&limits->turns, memory_order_relaxed);
    launch->co_resident = atomic_load_explicit(&limits->co_resident, memory_order_relaxed);
    launch->milliseconds = atomic_load_explicit(&limits->milliseconds, memory_order_relaxed);
    launch->sanitize = (tvm_sanitize)atomic_load_explicit(&limits->sanitize, memory_order_relaxed);
    launch->cancelled = &limits->cancelled;
    return TVM_OK;
}
