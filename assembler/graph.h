/* Graphs while they are read: .program, .graph up to its .end, and the statements between (graph_text.h has
 * what comes of them). Between .graph and .end the program that the assembler writes is the graph's head;
 * the text's own kernels wait meanwhile. */
#ifndef TVM_ASSEMBLER_GRAPH_H
#define TVM_ASSEMBLER_GRAPH_H

#include "state.h"

/* The word before the type of a parameter that is a tensor, if it stands there: input, output or state. */
bool tvm_asm_graph_role(tvm_asm *as);
/* A statement of a graph. */
void tvm_asm_graph_statement(tvm_asm *as);
/* At .end: a graph launches something. */
bool tvm_asm_graph_check(tvm_asm *as);

#endif
