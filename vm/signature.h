/* A kernel's parameters by the C types that they are passed as. */
#ifndef TVM_VM_SIGNATURE_H
#define TVM_VM_SIGNATURE_H

#include "program.h"

typedef enum tvm_arg_kind {
    TVM_ARG_TENSOR, /* void * */
    TVM_ARG_BOOL,   /* bool */
    TVM_ARG_I32,    /* int32_t, ... */
    TVM_ARG_U32,
    TVM_ARG_I64,
    TVM_ARG_U64,
    TVM_ARG_F32, /* float */
    TVM_ARG_F64,
    TVM_ARG_KINDS
} tvm_arg_kind;

static inline tvm_arg_kind tvm_arg_kind_of(const tvm_slot *param) {
    if (param->kind == TVM_SLOT_GLOBAL) return TVM_ARG_TENSOR;
    bool wide = param->dtype.bits == 64;
    switch (param->dtype.kind) {
    case TVM_KIND_FLOAT:
        return wide ? TVM_ARG_F64 : TVM_ARG_F32;
    case TVM_KIND_INT:
        return wide ? TVM_ARG_I64 : TVM_ARG_I32;
    case TVM_KIND_UINT:
        return wide ? TVM_ARG_U64 : TVM_ARG_U32;
    default:
        return TVM_ARG_BOOL;
    }
}

#endif
