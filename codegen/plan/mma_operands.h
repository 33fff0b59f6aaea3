/* Inside the code generator: what each mma of a kernel multiplies. */
#ifndef TVM_CODEGEN_MMA_OPERANDS_H
#define TVM_CODEGEN_MMA_OPERANDS_H

#include "kernel_state.h"
#include "mma.h"

typedef struct mma_operands {
    tvm_mma mma;
    /* Register tensors: a and b themselves, or temporaries for tiles of shared tensors, with the layouts that
     * follow from c. */
    uint32_t a, b;
    tvm_layout tile_a, tile_b; /* of those tiles: which thread needs what */
    tvm_mma_plan plan;
    tvm_mma_plan scales; /* of scales: which tile of theirs goes with which of c, and step of k */
    uint32_t words_a, words_b, words_c; /* of a fragment */
} mma_operands;

/* For all mma of the kernel; before its slots are declared, as temporaries are slots, too. */
tvm_status tvm_mma_operands_make(kernel_state *k);
void tvm_mma_operands_free(kernel_state *k);
const mma_operands *tvm_mma_operands_of(const kernel_state *k, const tvm_insn *mma);

/* Does an mma.sync of the target take words of the fragments as they are? */
bool tvm_mma_is_of_words(const kernel_state *k, const mma_operands *o);

#endif
