/* The ldmatrix candidates of load-shared, the stmatrix ones of store-shared. */
#ifndef TVM_CODEGEN_LDMATRIX_H
#define TVM_CODEGEN_LDMATRIX_H

#include "shared_access.h"

/* Emits the load by ldmatrix and returns true (*status is its result), or returns false with the reason in
 * `refused` ("" when ldmatrix is not to be expected: elements that are not 16 bits). `spread`: of a tile of
 * bytes, the bits of the elements that each 16 of them begin with (4 or 6): a byte of the slot's words has
 * one in its lower bits. 0: the words are what the tile has. */
bool tvm_emit_ldmatrix(emitter *e, shared_access *access, const shared_lanes *lanes, const tvm_layout *layout,
                       uint32_t slot, unsigned spread, char refused[200], tvm_status *status);

/* The same for a store by stmatrix, which came with sm_90. */
bool tvm_emit_stmatrix(emitter *e, shared_access *access, const shared_lanes *lanes, const tvm_layout *layout,
                       uint32_t slot, char refused[200], tvm_status *status);

#endif
