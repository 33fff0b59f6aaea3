/* Checked launches that are kept to run again: of a graph. */
#ifndef TVM_VM_CALL_KEPT_H
#define TVM_VM_CALL_KEPT_H

#include "runtime.h"

typedef struct tvm_call_args {
    tvm_scalar scalars[TVM_MAX_PARAMS];
    void *data[TVM_MAX_PARAMS];
    const tvm_value *values; /* when the caller says more of tensors than their addresses; else NULL */
    uint64_t tensor_bytes[TVM_MAX_LAUNCH_TENSORS];
} tvm_call_args;

/* Its parts point at each other: it is not to be moved. */
typedef struct tvm_kept_launch {
    const tvm_kernel *function, *variant; /* a kernel or an entry, and the kernel that runs */
    tvm_call_args args;
    tvm_launch_shapes shapes;
    tvm_device_launch launch; /* the grid may have no block */
} tvm_kept_launch;

/* Checks the arguments, one for each parameter, as tvm_launchv does, whose messages it appends, and keeps the
 * launch. The values, and the tensors that they name, must live as long as it. */
tvm_status tvm_launch_keep(const tvm_kernel *function, const tvm_value *values, tvm_kept_launch *kept,
                           tvm_diags *diags);
/* Launches what is kept, under the context's limits of now. */
tvm_status tvm_launch_kept(tvm_kept_launch *kept, void *stream, tvm_diags *diags);

static inline bool tvm_launch_is_empty(const tvm_device_launch *launch) {
    return !launch->grid[0] || !launch->grid[1] || !launch->grid[2];
}

#endif
