/* Inside the code generator: the elements of a register tensor against their places in a global tensor, for
 * what loads, stores and updates them. Indices may be tensors, and a mask may leave elements out.
 *
 * Elements whose addresses differ by constants and that are inside or outside together, under one element of
 * each index tensor and of the mask, are a class: it has one pointer and one predicate, and its elements
 * travel together in accesses as wide as contiguity and alignment allow. */
#ifndef TVM_CODEGEN_GLOBAL_TRANSFER_H
#define TVM_CODEGEN_GLOBAL_TRANSFER_H

#include "access.h"
#include "fill.h"
#include "global_access.h"

typedef struct element_map {
    uint32_t locals, classes;
    int64_t *offset;       /* by local: elements from the class's base */
    uint32_t *class_id;    /* by local */
    uint32_t *class_first; /* by class: a local of it */
} element_map;

/* A register tensor that is broadcast to the tile. */
typedef struct broadcast {
    uint32_t slot;
    uint32_t *map; /* local of the tile -> its own; NULL: there is no tensor */
    struct broadcast_value {
        reg value;  /* of an index: bytes; name[0] == 0: not made yet */
        reg inside; /* of an index: it lies inside; of a mask: it is set */
    } * values;     /* by its own local */
} broadcast;
bool tvm_broadcast_open(emitter *e, broadcast *b, const tvm_operand *operand, const tvm_layout *tile);
void tvm_broadcast_close(broadcast *b);
/* Is the mask set for this local of the tile? */
reg tvm_broadcast_set(emitter *e, broadcast *mask, uint32_t local);

typedef struct transfer {
    global_access g;
    element_map map;
    const tvm_layout *layout;
    unsigned extra; /* leading dimensions of the tile that the tensor does not have */
    cache_hint hint;
    fill_bits fill;                /* of a load: what elements that are not read become */
    bool traps;                    /* the code tests more, and traps */
    const char *order;             /* ".relaxed.gpu" where another block writes or reads meanwhile */
    uint32_t slot;                 /* the register tensor */
    broadcast index[TVM_MAX_RANK]; /* by dimension of the tensor */
    broadcast mask;
    reg *pointer, *predicate; /* by class; name[0] == 0: none */
} transfer;

/* tensor: its operand, then its indices. mask: an operand, or NULL. Elements outside are loaded as zero bits;
 * tvm_transfer_fill gives them another value. Close it whatever open returns. */
tvm_status tvm_transfer_open(emitter *e, transfer *t, const tvm_operand *tensor, uint32_t slot, bool is_store,
                             const tvm_operand *mask);
void tvm_transfer_close(transfer *t);
/* fill: an operand, or NULL. */
void tvm_transfer_fill(emitter *e, transfer *t, const tvm_operand *fill);

/* Alignment, in bits, of every class's base; below 8: inside a byte. */
unsigned tvm_transfer_alignment(const transfer *t);
bool tvm_transfer_is_guarded(const transfer *t);
/* Finds the classes anew, after a change of the granules. */
tvm_status tvm_transfer_classify(emitter *e, transfer *t);
/* The constant coordinates of an element in the dimensions that the tensor has and whose indices are scalars.
 */
void tvm_transfer_coordinate(const transfer *t, uint32_t local, uint32_t coordinate[TVM_MAX_RANK]);
/* Pointer and predicate of a class, made when first needed; false: no predicate. */
bool tvm_transfer_class(emitter *e, transfer *t, uint32_t class_id, reg *pointer, reg *predicate);
/* Is the thread the one, the lowest, that is to speak for the elements of the layout that it holds? Computed
 * at kernel entry; false: all are. */
bool tvm_layout_owner(emitter *e, const tvm_layout *layout, reg *owner);
/* From here on each element is accessed by one thread: a second one might come after the first has been seen.
 */
void tvm_transfer_keep_owners(emitter *e, transfer *t);
/* Why the widest access was not taken. */
void tvm_transfer_refusal(const transfer *t, const access_plan *plan, unsigned align, const char *what,
                          char out[200]);

tvm_status tvm_transfer_plan(emitter *e, transfer *t, unsigned align, access_plan *plan);
/* One access, to `units` or from them. */
void tvm_transfer_load(emitter *e, transfer *t, const access_plan *plan, const access *a, reg units[4]);
void tvm_transfer_store(emitter *e, transfer *t, const access *a, const reg units[4]);

/* Where each thread holds whole runs of 16 or 8 bytes along rows that, for all that is known, begin and end
 * anywhere: one access a run that lies inside and is aligned when the kernel runs, and one an element of the
 * others, which are those at a row's ends where the program begins its tile at a multiple of that. False:
 * there are no such runs, or they need no test. */
bool tvm_transfer_find_runs(emitter *e, transfer *t, unsigned align, access_plan *plan, tvm_status *status);
tvm_status tvm_transfer_load_runs(emitter *e, transfer *t, const access_plan *plan);
tvm_status tvm_transfer_store_runs(emitter *e, transfer *t, const access_plan *plan);

/* The whole tensor to the L2 cache, and its line of the report. */
tvm_status tvm_transfer_prefetch(emitter *e, transfer *t, unsigned align);

/* The whole tensor, and its line of the report. */
tvm_status tvm_transfer_load_all(emitter *e, transfer *t, unsigned align);
tvm_status tvm_transfer_store_all(emitter *e, transfer *t, unsigned align);

#endif
