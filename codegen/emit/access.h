/* How the bits of planned accesses (plan/access_plan.h) and the words of register tensors are moved. */
#ifndef TVM_CODEGEN_ACCESS_H
#define TVM_CODEGEN_ACCESS_H

#include "access_plan.h"
#include "emit.h"

/* The registers that a load of access `a` fills: the tensor's own words where a unit is a whole word. */
void tvm_access_load_registers(emitter *e, const access_plan *plan, const access *a, uint32_t slot,
                               reg units[4]);
/* Spreads loaded units over the words. started[word] is set for words that have bits already. */
void tvm_access_spread(emitter *e, const access_plan *plan, const access *a, uint32_t slot,
                       const reg units[4], bool *started);
/* The registers to store for access `a`, put together from words. */
void tvm_access_gather(emitter *e, const access_plan *plan, const access *a, uint32_t slot, reg units[4]);

/* "v4.b32", "b32", "u16", "u8" for a width, and the operand list "{%w0, %w1}" or "%w0". */
const char *tvm_access_type(unsigned width);
const char *tvm_access_operands(const reg units[4], uint32_t count, char text_out[64]);

/* Bits [at, at + length) of `into` become bits [from, ...) of `value`; `started` false: the rest of `into` is
 * nothing. */
void tvm_emit_insert(emitter *e, const char *into, bool started, unsigned at, const char *value,
                     unsigned from, unsigned length);

#endif
