/* Finds what is known of a kernel before code is written. */
#ifndef TVM_CODEGEN_FIND_FACTS_H
#define TVM_CODEGEN_FIND_FACTS_H

#include "kernel_state.h"

/* Makes k->facts. */
tvm_status tvm_facts_make(kernel_state *k);
void tvm_facts_free(kernel_state *k);

#endif
