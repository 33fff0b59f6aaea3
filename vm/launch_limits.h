/* The limits of a context (tvm_set_limits), whether its launches are checked, and the calls that end them. */
#ifndef TVM_VM_LAUNCH_LIMITS_H
#define TVM_VM_LAUNCH_LIMITS_H

#include <stdatomic.h>

#include "device.h"
#include "memory_table.h"

/* Read by launches while another thread sets them: each by itself. */
typedef struct tvm_limits_state {
    atomic_uint_fast64_t scratch_bytes, blocks, instructions;
    atomic_uint milliseconds, turns;
    atomic_bool known_sizes, no_embedded_code, co_resident;
    atomic_uint sanitize;    /* tvm_sanitize */
    atomic_uint cancelled;   /* counts tvm_cancel */
    tvm_memory_table memory; /* what tvm_memory_alloc has given out */
} tvm_limits_state;

/* Must a launch check tensors of which the caller gives only the address? */
static inline bool tvm_limits_look_at_memory(tvm_limits_state *limits) {
    return atomic_load_explicit(&limits->known_sizes, memory_order_relaxed) ||
           atomic_load_explicit(&limits->memory.known, memory_order_relaxed);
}

/* Checks the grid and the sizes of the `tensors` of a launch of the kernel of this name, and copies the
 * limits that the device checks. */
tvm_status tvm_limits_check(tvm_limits_state *limits, const char *kernel, uint32_t tensors,
                            tvm_device_launch *launch, tvm_diags *diags);

#endif
