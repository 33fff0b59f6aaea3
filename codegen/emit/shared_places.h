/* Inside the code generator: the places of a tile's elements in a shared tensor, one by one, for what
 * addresses them so: indices that are tensors, masks. */
#ifndef TVM_CODEGEN_SHARED_PLACES_H
#define TVM_CODEGEN_SHARED_PLACES_H

#include "global_transfer.h"
#include "shared_access.h"

typedef struct shared_places {
    shared_access shared;
    const tvm_layout *layout; /* of the registers */
    const tvm_operand *index;
    bool proven[TVM_MAX_RANK]; /* by dimension of the tensor, as are all of these */
    reg part[TVM_MAX_RANK];    /* of the thread; name[0] == 0: none */
    broadcast tensor[TVM_MAX_RANK];
    broadcast mask;
    const tvm_operand *fill; /* of a load: the value of elements that have no place; NULL: zero bits */
} shared_places;

/* tensor: its operand, then its indices. mask: an operand, or NULL. tested: elements may be outside. Close it
 * whatever open returns; false: no memory. */
bool tvm_shared_places_open(emitter *e, shared_places *p, const tvm_operand *tensor, const tvm_layout *layout,
                            const tvm_operand *mask, bool tested);
void tvm_shared_places_close(shared_places *p);
bool tvm_shared_places_guarded(const shared_places *p);
/* The address of an element, to which the tensor's shared_offset is to be added, and whether it has a place;
 * false: it always has one. */
bool tvm_shared_place(emitter *e, shared_places *p, uint32_t local, reg *address, reg *predicate);

/* Loads the elements to a register tensor of the layout, the fill where there is no place; or stores those
 * that have one. */
tvm_status tvm_shared_places_load(emitter *e, shared_places *p, uint32_t slot);
tvm_status tvm_shared_places_store(emitter *e, shared_places *p, uint32_t slot);

#endif
