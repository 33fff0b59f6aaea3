/* What conversions have left to mma's sums (plan/scaled.h). */
#ifndef TVM_CODEGEN_SCALED_SUMS_H
#define TVM_CODEGEN_SCALED_SUMS_H

#include "emit.h"
#include "scaled.h"

/* Takes zero times the column sums off a tile of mma's result: `column` are their words as mma has them for
 * the tile. */
void tvm_subtract_zero(emitter *e, uint32_t sums, uint32_t tile, const reg column[4]);
/* Takes the other classes off the sums of nested ones, mma's result. */
void tvm_subtract_nested(emitter *e, uint32_t sums, const tvm_mma_plan *plan);

#endif
