/* Inside tvm-cc: --check-ptxas. */
#ifndef TVM_CODEGEN_CHECK_PTXAS_H
#define TVM_CODEGEN_CHECK_PTXAS_H

#include "diag.h"

/* A line a mistake of ptxas_mistakes.def, and how many there are, on standard output. `path` is the ptxas, or
 * NULL: the one that is found. TVM_UNSUPPORTED when some could not be judged. */
tvm_status tvm_check_ptxas(const char *path, tvm_diags *diags);

#endif
