/* C functions and C types by way of libffi. */
#ifndef TVM_VM_BIND_H
#define TVM_VM_BIND_H

#include <ffi.h>

#include "signature.h"

/* The type that an argument has in a C function. */
ffi_type *tvm_ffi_type(tvm_arg_kind kind);

#endif
