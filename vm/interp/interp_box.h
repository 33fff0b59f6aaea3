/* Boxes: a tile of a container (a global or shared tensor), and its dense counterpart. */
#ifndef TVM_VM_INTERP_BOX_H
#define TVM_VM_INTERP_BOX_H

#include "interp_loops.h"
#include "sanitize.h"
#include "shared_view.h"

/* Dimension by dimension, the part [low, high) of the tile that lies inside the container, and the steps, in
 * elements, of the container and of the dense side. */
typedef struct interp_box {
    unsigned rank;
    bool inside;  /* is any of it inside? */
    int64_t base; /* the container's element at tile index 0; may itself be outside */
    int64_t extent[TVM_MAX_RANK], low[TVM_MAX_RANK], high[TVM_MAX_RANK];
    int64_t step[TVM_MAX_RANK], dense[TVM_MAX_RANK];
    /* Of a view that joins dimensions: those of the tile, and where it starts; NULL: steps are all there is.
     */
    const tvm_shared_digits *split;
    int64_t start[TVM_MAX_RANK];
} interp_box;

/* Bits of an element in the container and bytes of one on the dense side. */
typedef struct interp_width {
    tvm_dtype type;
    unsigned bits, bytes;
    interp_loop_function combine; /* of INTERP_COMBINE */
    uint64_t fill;                /* of INTERP_LOAD: the code of elements outside */
    bool strong; /* other launches access the elements meanwhile, which are whole words of 32 bits */
} interp_width;
static inline interp_width interp_width_of(tvm_dtype type) {
    return (interp_width){.type = type, .bits = type.bits, .bytes = tvm_dtype_container(type)};
}

/* Of a shared tensor as the container: its elements lie in containers there, of as many bytes as on the dense
 * side, also those that are packed on the device. */
static inline interp_width interp_shared_width_of(tvm_dtype type) {
    interp_width width = interp_width_of(type);
    width.bits = 8 * width.bytes;
    return width;
}

/* INTERP_COMBINE: a store, after which the container's element is combine(element, what is stored). */
typedef enum interp_direction { INTERP_LOAD, INTERP_STORE, INTERP_COMBINE } interp_direction;

/* The operands of a tile: where it starts in a container of `rank` dimensions, of which it spans the last
 * `tile_rank`, with a step of `stride` elements in each; `dense` are the steps of those dimensions on the
 * dense side, whose last one is 1. */
interp_box tvm_interp_box_make(unsigned rank, const int64_t *shape, const int64_t *stride,
                               const int64_t *start, unsigned tile_rank, const int64_t *tile,
                               const int64_t *dense);
/* Adds the dimensions of a container that is a view with `split` ones, of which the strides were 0. split: of
 * all dimensions, or NULL. */
void tvm_interp_box_split(interp_box *b, const tvm_shared_digits *split, unsigned rank, const int64_t *start);
/* What index `at` inside of dimension d adds to an element's place. split: of all dimensions, or NULL. */
static inline int64_t tvm_interp_step(const tvm_shared_digits *split, unsigned d, int64_t at,
                                      int64_t stride) {
    return split && split[d].count > 1 ? tvm_shared_digits_at(&split[d], (uint32_t)at) : at * stride;
}
/* Elements of the tile that lie inside of the container. */
uint64_t tvm_interp_box_inside(const interp_box *b);
/* Moves a tile between a container and the dense side. On a load what is outside becomes the fill, on a
 * store it is dropped. */
void tvm_interp_box_move(interp_box b, interp_direction way, interp_width w, uint8_t *container,
                         uint8_t *dense);
/* Reports the tile's elements that lie inside to the sanitizer. */
tvm_status tvm_interp_box_sanitize(interp_box b, interp_context *context, const interp_insn *insn,
                                   const sanitize_access *access);

/* Computes the strides, in elements, of a contiguous row-major tensor. */
void tvm_interp_row_major(unsigned rank, const int64_t *shape, int64_t *stride);
/* Extents of a shared or register tensor; returns its rank. */
unsigned tvm_interp_slot_shape(const tvm_interp_kernel *k, uint32_t slot, int64_t shape[TVM_MAX_RANK]);
/* Steps of a shared tensor: of a view among the elements of what alloc-shared made. 0 along a dimension that
 * has several: k->split. */
void tvm_interp_shared_steps(const tvm_interp_kernel *k, uint32_t slot, int64_t stride[TVM_MAX_RANK]);

#endif
