/* tvm-run's arguments bound to the parameters of a kernel: sizes inferred, files checked, tensors on the
 * device. */
#ifndef TVM_VM_RUN_BIND_H
#define TVM_VM_RUN_BIND_H

#include "npy.h"
#include "program.h"
#include "run_args.h"
#include "tvm.h"

typedef struct tvm_run_param {
    const tvm_run_arg *arg; /* NULL: not given */
    tvm_param_info info;
    tvm_dtype type;
    bool known;       /* scalar: its value is */
    const char *from; /* scalar: the tensor whose file gave it; NULL: given */
    uint8_t *file; /* tensor: its .npy file, or its data of a .safetensors file; NULL: none, or on the device
                      already */
    tvm_npy given; /* the file's header, or how the tensor would stand in a .npy file */
    char *stored;  /* tensor of a .safetensors file: "tensor 'packed', U8 [16, 64]" */
    tvm_dtype stored_type; /* of it */
    tvm_npy expected;      /* the tensor as it stands in a file */
    uint64_t elements;
    size_t bytes;                 /* of its memory */
    int64_t stride[TVM_MAX_RANK]; /* of `expected`, in its elements, there */
    bool strided;
} tvm_run_param;

typedef struct tvm_run_binding {
    tvm_context *context;
    tvm_kernel *function;
    const tvm_kernel *variant; /* that runs; set by tvm_run_bind */
    size_t count;
    tvm_run_param params[TVM_MAX_PARAMS];
    tvm_value values[TVM_MAX_PARAMS]; /* for tvm_launchv; the tensors' memory belongs to the binding */
} tvm_run_binding;

/* Binds, reads the files and checks types and shapes: afterwards everything fits, and nothing is on the
 * device. args must outlive the binding. Release with tvm_run_unbind in any case. */
tvm_status tvm_run_bind(tvm_context *context, tvm_kernel *function, const tvm_run_args *args,
                        tvm_run_binding *binding, tvm_diags *diags);
/* Allocates the tensors on the device and fills them. */
tvm_status tvm_run_upload(tvm_run_binding *binding, tvm_diags *diags);
/* Writes every tensor that has an `out:` to its file. */
tvm_status tvm_run_download(const tvm_run_binding *binding, tvm_diags *diags);
void tvm_run_unbind(tvm_run_binding *binding);

/* "matmul(m: i32, a: global f16[:, :])", malloc'ed; NULL when out of memory. */
char *tvm_run_signature(const tvm_kernel *function);

#endif
