/* How the tiles of a kernel come to shared memory: by the copy engine, or by threads. */
#ifndef TVM_CODEGEN_BULK_WAYS_H
#define TVM_CODEGEN_BULK_WAYS_H

#include "bulk_run.h"

typedef struct bulk_operands {
    bulk_tile tile;
    const tvm_operand *extents;                     /* count, then extents */
    const tvm_operand *barrier, *evict, *multicast; /* the last is NULL of store-bulk */
} bulk_operands;
/* Of a copy-bulk. */
bulk_operands tvm_bulk_operands(const kernel_state *k, const tvm_insn *insn);
/* The blocks that a tile comes to; `axes`: the operand of a multicast, or NULL. */
uint32_t tvm_multicast_blocks(const kernel_state *k, const tvm_operand *axes);

/* Finds k->bulk but for `unfenced`. */
void tvm_bulk_ways_find(kernel_state *k);

#endif
