/* Views of shared tensors, made by view-shared: the same memory, seen as another tensor. A view is a slice of
 * what it views, at constant indices, then its dimensions in another order, then another shape; nothing
 * moves. */
#ifndef TVM_ISA_SHARED_VIEW_H
#define TVM_ISA_SHARED_VIEW_H

#include "program.h"

/* Where the elements of one dimension are among those of the root in row-major order: the coordinate in
 * digits, the outermost first, each of which counts steps. A dimension of several digits joins dimensions
 * that are no neighbours, as rows of a tile that has a border. */
typedef struct tvm_shared_digits {
    unsigned count;
    uint32_t size[TVM_MAX_MODES], step[TVM_MAX_MODES];
} tvm_shared_digits;

/* How far coordinate `at` is from coordinate 0. */
uint32_t tvm_shared_digits_at(const tvm_shared_digits *digits, uint32_t at);
/* Does one of the dimensions have several digits? */
bool tvm_shared_digits_split(const tvm_shared_digits *digits, unsigned rank);

typedef struct tvm_shared_view {
    uint32_t source;          /* slot */
    uint32_t base;            /* elements from the source's first to the view's, before the swizzle */
    tvm_shared_layout layout; /* of the view, from its first element on */
    uint32_t first;           /* the view's first element among those of the root in row-major order */
    tvm_shared_digits digits[TVM_MAX_RANK]; /* of the view's dimensions, among the same */
} tvm_shared_view;

/* The view that an instruction makes, whose operands fit its row. TVM_INVALID with *why where the source's
 * layout has no such view. */
tvm_status tvm_shared_view_make(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                const tvm_operand *operands, tvm_shared_view *view, tvm_why *why);

/* The tensor that alloc-shared made in whose memory a shared tensor lies; how far, before the swizzle, its
 * first element is from that one's; and its elements among those of that one in row-major order. */
typedef struct tvm_shared_root {
    uint32_t slot;
    uint32_t base;
    uint32_t first;
    tvm_shared_digits digits[TVM_MAX_RANK]; /* of each dimension of the tensor */
} tvm_shared_root;
void tvm_shared_root_find(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot,
                          tvm_shared_root *root);

/* Does a view, of a verified program, join dimensions that are no neighbours in what it is a view of? */
bool tvm_shared_view_joins(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot);

/* Are two slots shared tensors in one memory? */
bool tvm_shared_alias(const tvm_ir_kernel *kernel, uint32_t a, uint32_t b);

#endif
