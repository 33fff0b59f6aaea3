/* Inside the code generator: what each mma of a kernel multiplies. */
#ifndef TVM_CODEGEN_MMA_OPERANDS_H
#define TVM_CODEGEN_MMA_OPERANDS_H

#include "emit.h"
#include "mma.h"

typedef struct mma_operands {
    tvm_mma mma;
    /* Register tensors: a and b themselves, or temporaries for tiles of shared tensors, with the layouts that
     * follow from c. */
    uint32_t a, b;
    tvm_layout tile_a, tile_b; /* of those tiles: which thread needs what */
    tvm_mma_plan plan;
} mma_operands;

/* For all mma of the kernel; before its slots are declared, as temporaries are slots, too. */
tvm_status tvm_mma_operands_make(emitter *e);
void tvm_mma_operands_free(emitter *e);
const mma_operands *tvm_mma_operands_of(const emitter *e, const tvm_insn *mma);

#endif
