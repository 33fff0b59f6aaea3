/* mma as wgmma: see plan/wgmma.h. */
#ifndef TVM_CODEGEN_EMIT_WGMMA_H
#define TVM_CODEGEN_EMIT_WGMMA_H

#include "emit.h"

/* Of an mma that the plan has as the first of a wgmma's. */
tvm_status tvm_emit_wgmma(emitter *e, const tvm_insn *insn);
/* After a store to shared memory by threads of this layout: waits for all of them where they need no sync, as
 * each that loads an element has stored it, but wgmma, which reads for all of them, does. */
void tvm_wgmma_stored(emitter *e, const tvm_layout *layout);

#endif
