/* Types and registers as mma.sync and wgmma name them. */
#ifndef TVM_CODEGEN_MMA_TEXT_H
#define TVM_CODEGEN_MMA_TEXT_H

#include "emit.h"

/* An operand's type in the names of mma.sync and wgmma: "f16", "s8", "e4m3". */
const char *tvm_mma_type_name(tvm_dtype type);

/* "{%w0, %w1}": words of a slot, up to four. */
enum { TVM_MMA_TEXT = 200 };
const char *tvm_mma_words(const emitter *e, uint32_t slot, uint32_t first, unsigned count,
                          char text[TVM_MMA_TEXT]);

#endif
