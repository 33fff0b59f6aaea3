/* Views of global tensors, made by view-global: the same memory, seen as another tensor.
 *
 * A part (TVM_FORM_PART) is at the index in what it views, the base, and its dimensions are some of the
 * base's, in any order, with extents of its own; the others stay at the index. It lies inside of the base,
 * dimension by dimension. A view with strides of its own (TVM_FORM_STRIDED, or TVM_FORM_ROW_MAJOR) is of
 * a base in row-major order: its elements are those of the base in that order from the index on, in steps of
 * the strides; all of them are the base's.
 *
 * Where a view lies inside of its base is checked once, where it is made: an access looks at the view alone.
 * The launch checks a view that every block is sure to make at an index that the launch knows (at_launch);
 * else the instruction does, and traps. A view of the second kind is always checked by the launch. */
#ifndef TVM_ISA_VIEW_H
#define TVM_ISA_VIEW_H

#include "program.h"

typedef struct tvm_view {
    uint32_t base; /* slot */
    unsigned base_rank, rank;
    const tvm_operand *index;   /* an expression a dimension of the base */
    uint8_t from[TVM_MAX_RANK]; /* of PART: dimension d of the view is dimension from[d] of the base */
    bool settled; /* no launch that may still run writes what is read through it: the program's promise */
} tvm_view;
/* Of a view-global whose operands fit its row. */
void tvm_view_read(const tvm_ir_kernel *kernel, const tvm_insn *insn, tvm_view *view);

/* Fills slot.view and slot.at_launch of the kernel, whose instructions have been matched. */
void tvm_views_find(tvm_ir_kernel *kernel);

/* The parameter, or what alloc-global or alloc-shared made, in whose memory a global or shared tensor lies.
 */
uint32_t tvm_view_root(const tvm_ir_kernel *kernel, uint32_t slot);

/* How many views lead there from that tensor, at most one more than there may be. */
unsigned tvm_view_depth(const tvm_ir_kernel *kernel, uint32_t slot);

/* Are two slots global tensors in the memory of one parameter, or of one that alloc-global made? */
bool tvm_global_alias(const tvm_ir_kernel *kernel, uint32_t a, uint32_t b);

/* The dimension of a tensor that is no part, whose step in memory is that of dimension `dim` of `slot`. */
typedef struct tvm_global_dim {
    uint32_t slot;
    unsigned dim;
} tvm_global_dim;
tvm_global_dim tvm_global_step(const tvm_ir_kernel *kernel, uint32_t slot, unsigned dim);

/* A view in numbers. */
typedef struct tvm_view_numbers {
    tvm_global_form form;
    unsigned base_rank, rank;
    uint8_t from[TVM_MAX_RANK];
    int64_t index[TVM_MAX_RANK], base_shape[TVM_MAX_RANK];
    int64_t shape[TVM_MAX_RANK], stride[TVM_MAX_RANK]; /* of the view; stride: of form STRIDED */
} tvm_view_numbers;
/* Does it lie inside of its base, whose extents are not negative? Else TVM_INVALID and *why. */
tvm_status tvm_view_inside(const tvm_view_numbers *view, tvm_why *why);

/* Elements of memory from the first to behind the last one of a tensor with strides; 0: it has none. False:
 * an extent or a stride is negative, or they are more than INT64_MAX. */
bool tvm_strided_span(unsigned rank, const int64_t *shape, const int64_t *stride, int64_t *span);

#endif
