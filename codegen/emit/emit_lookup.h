/* Conversions of floats of 3 bits of packing `pair`, which has no pairs in halves of words. */
#ifndef TVM_CODEGEN_EMIT_LOOKUP_H
#define TVM_CODEGEN_EMIT_LOOKUP_H

#include "packed_views.h"

/* Why not, as of a candidate (compute.h). */
const char *tvm_refuse_packed_lookup(const packed_cast *c);
/* Converts the whole tensor; false when memory ran out. */
bool tvm_emit_packed_lookup(emitter *e, const packed_cast *c);

#endif
