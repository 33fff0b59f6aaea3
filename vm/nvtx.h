/* NVTX ranges, where a tool listens. */
#ifndef TVM_VM_NVTX_H
#define TVM_VM_NVTX_H

#include <stdbool.h>

/* Does a tool listen? (nsys and similar tools name their library in NVTX_INJECTION64_PATH.) False in a build
 * without NVTX's headers. */
bool tvm_nvtx_present(void);
/* A range of the calling thread. */
void tvm_nvtx_push(const char *text);
void tvm_nvtx_pop(void);

#endif
