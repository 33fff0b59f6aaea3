/* Nodes of scalar expressions as a program has them: an operator of constants alone is its result. */
#ifndef TVM_TESTS_GENERATE_NODE_H
#define TVM_TESTS_GENERATE_NODE_H

#include "program.h"

/* The expression's number; TVM_NONE where it is none of the language. */
uint32_t generate_node(tvm_ir_kernel *kernel, tvm_expr node);

#endif
