/* tvm-run --cache-stats and --cache-clear. */
#ifndef TVM_VM_RUN_CACHE_H
#define TVM_VM_RUN_CACHE_H

#include "diag.h"

typedef enum tvm_run_cache { TVM_RUN_CACHE_NONE, TVM_RUN_CACHE_STATS, TVM_RUN_CACHE_CLEAR } tvm_run_cache;

/* Counts, or removes, the entries of the user's cache folder and prints their numbers to `stream`. */
tvm_status tvm_run_cache_do(tvm_run_cache action, FILE *stream, tvm_diags *diags);

#endif
