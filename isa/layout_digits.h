/* Private to the layout files: a layout as two lists of digits, the form in which the algebra is easy.
 *
 * thread and local are mixed-radix numbers; each digit, most significant first, adds digit * stride to one
 * dimension of the index. A stride of 0 is a replication digit. A layout is canonical exactly if no two
 * neighbours of a list could be one digit, so pushing merges them, and two lists describe the same function
 * exactly if they are equal item by item. */
#ifndef TVM_ISA_LAYOUT_DIGITS_H
#define TVM_ISA_LAYOUT_DIGITS_H

#include "layout.h"

/* A valid layout has at most 10 spatial digits (1024 threads) and 12 local ones (4096 elements); compose and
 * concat join two lists before the limits are checked. */
enum { TVM_MAX_DIGITS = 2 * TVM_MAX_MODES };

typedef struct tvm_digit {
    uint64_t size;
    uint64_t stride;
    unsigned dim;
} tvm_digit;

typedef struct tvm_digit_list {
    tvm_digit items[TVM_MAX_DIGITS];
    unsigned count;
} tvm_digit_list;

typedef struct tvm_digits {
    uint64_t shape[TVM_MAX_RANK];
    unsigned rank;
    tvm_digit_list spatial;
    tvm_digit_list local;
} tvm_digits;

/* Empty digit lists over a shape. */
void tvm_digits_start(tvm_digits *digits, unsigned rank, const uint32_t *shape);
void tvm_digits_of(const tvm_layout *layout, tvm_digits *digits);
/* Appends a less significant digit: size 1 vanishes, and a digit that continues the last one is merged. */
void tvm_digit_push(tvm_digit_list *list, tvm_digit digit);
void tvm_digit_push_all(tvm_digit_list *list, const tvm_digit_list *more);
bool tvm_digit_lists_equal(const tvm_digit_list *a, const tvm_digit_list *b);
/* For each number that the digits spell, the sum over its digits of value * stride * dim_stride[dim]. */
void tvm_digits_spell(const tvm_digit_list *list, const uint64_t *dim_stride, uint32_t *flat);
/* The layout of the digits, if they cover every dimension exactly once and keep the limits. */
tvm_status tvm_digits_finish(const tvm_digits *digits, tvm_layout *out, tvm_why *why);

/* Is 1 <= rank <= TVM_MAX_RANK, no extent 0, and the product at most TVM_MAX_TILE_ELEMENTS? */
tvm_status tvm_shape_check(unsigned rank, const uint32_t *shape, tvm_why *why);
/* Deals the modes out to the dimensions, in order, so that each product is the extent. */
tvm_status tvm_modes_assign(unsigned rank, const uint32_t *shape, unsigned modes, const uint32_t *mode_size,
                            uint8_t *mode_dim, tvm_why *why);

#endif
