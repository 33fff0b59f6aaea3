/* Where what threads wrote to shared memory is fenced for the asynchronous proxy: see proxy_fences.c. */
#ifndef TVM_CODEGEN_PROXY_FENCES_H
#define TVM_CODEGEN_PROXY_FENCES_H

#include "kernel_state.h"

/* Sets k->bulk.unfenced; after the other members of k->bulk, and the groups. */
tvm_status tvm_proxy_plan(kernel_state *k);

#endif
