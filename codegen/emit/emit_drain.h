/* The end of a block: see emit_drain.c. */
#ifndef TVM_CODEGEN_EMIT_DRAIN_H
#define TVM_CODEGEN_EMIT_DRAIN_H

#include "emit.h"

/* Where a team or block ends: its tiles live as long as copies may read or write them, and as other blocks of
 * the cluster may reach for them. */
void tvm_emit_block_end(emitter *e);
/* Then the team leaves the kernel, of an entry point by "exit" or "ret". */
void tvm_emit_block_exit(emitter *e, const char *instruction);

#endif
