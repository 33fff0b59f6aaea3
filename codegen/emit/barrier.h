/* Where threads wait for each other. */
#ifndef TVM_CODEGEN_BARRIER_H
#define TVM_CODEGEN_BARRIER_H

#include "emit.h"

/* All warps wait for each other; what they wrote before is visible to those after it, wgmma included. */
void tvm_emit_barrier(emitter *e);
/* The same for what only threads read. */
void tvm_emit_thread_barrier(emitter *e);

#endif
