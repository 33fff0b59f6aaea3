/* Conversions of tensors of packing `pair`. */
#ifndef TVM_CODEGEN_EMIT_PACKED_H
#define TVM_CODEGEN_EMIT_PACKED_H

#include "packed_views.h"

/* Why not, as of a candidate (compute.h). */
const char *tvm_refuse_packed_pairs(const packed_cast *c);
/* Converts the whole tensor; false when memory ran out. */
bool tvm_emit_packed_pairs(emitter *e, const packed_cast *c);

#endif
