/* mma by mma.sync. */
#ifndef TVM_CODEGEN_EMIT_MMA_H
#define TVM_CODEGEN_EMIT_MMA_H

#include "types.h"

/* An operand's type in the names of mma.sync and wgmma: "f16", "s8", "e4m3". */
const char *tvm_mma_type_name(tvm_dtype type);

#endif
