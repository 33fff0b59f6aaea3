/* cancel-block: see emit_cancel.c. */
#ifndef TVM_CODEGEN_CANCEL_H
#define TVM_CODEGEN_CANCEL_H

#include "emit.h"

/* At kernel entry: makes the mbarrier at which answers come, where the kernel has a cancel-block. */
void tvm_cancels_begin(emitter *e);

#endif
