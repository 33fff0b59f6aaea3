/* Atomic sums of what no register tensor holds. */
#ifndef TVM_CODEGEN_ATOMIC_H
#define TVM_CODEGEN_ATOMIC_H

#include "emit.h"

/* Adds elements of the type, the low `bits` (16 to 128) of the words, to those at [address + plus] of global
 * memory, each atomically, where the predicate holds (without a name: always). All threads of a warp come
 * here. The address is a multiple of `bits` / 8. */
void tvm_emit_global_add(emitter *e, tvm_dtype type, reg address, int64_t plus, reg predicate,
                         const reg *words, unsigned bits);

#endif
