/* Ranges of values. */
#ifndef TVM_CODEGEN_RANGES_H
#define TVM_CODEGEN_RANGES_H

#include "kernel_state.h"

void tvm_fact_type_range(tvm_dtype type, int64_t *low, int64_t *high);
/* Ranges of all slots and expressions, and which are exact: from assumptions, definitions, loops, and, for
 * variables that are assigned again, by induction over all their assignments. */
void tvm_find_ranges(const kernel_state *k);
/* Does the operation itself not wrap, whatever its operands did? */
bool tvm_fact_keeps_value(const kernel_state *k, const tvm_expr *node);

#endif
