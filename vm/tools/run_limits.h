/* --limits of tvm-run. */
#ifndef TVM_VM_TOOLS_RUN_LIMITS_H
#define TVM_VM_TOOLS_RUN_LIMITS_H

#include "tvm.h"

/* Reads NAME=N[,NAME=N...] into the limits that are named; the others keep their values. `text` is modified,
 * as strsep(3) does. Returns NULL, or the word that is no limit. */
const char *tvm_run_limits_parse(char *text, tvm_limits *limits);
/* Names of the limits, for a message. */
extern const char tvm_run_limits_names[];

#endif
