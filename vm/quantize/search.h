/* Scales, and zero points, whose codes have the least squared error: a search over scales, for each column of
 * a group. */
#ifndef TVM_VM_SEARCH_H
#define TVM_VM_SEARCH_H

#include "pack_vector.h"

/* Bytes of memory that tvm_pack_search needs for groups of so many rows. */
size_t tvm_pack_search_bytes(size_t rows);

/* Scales of the columns of one group, rows->rows of it, which tvm_pack_scales has filled in already: its
 * scales are the first candidates, and what is found is never worse. The error of a column is
 *
 *     sum over i of importance[i] * (weight[i] - (code[i] - zero) * scale)^2
 *
 * with the code nearest to weight[i] / scale + zero; importance is rows->rows finite numbers >= 0, or NULL:
 * all 1. scales, zeros and `to` are the group's; to->moderate is lowered when a new scale is not moderate.
 * The sums are made in an order that does not depend on the machine. memory: tvm_pack_search_bytes, 64-byte
 * aligned. */
void tvm_pack_search(const pack_scaler *scaler, const pack_coder *coder, pack_float type,
                     const pack_rows *rows, const float *importance, uint16_t *scales, uint16_t *zeros,
                     pack_divisors *to, void *memory);

#endif
