/* The last pass of the writer: a kernel's text without the moves that the emitters need to be simple. */
#ifndef TVM_CODEGEN_TIDY_H
#define TVM_CODEGEN_TIDY_H

#include "emit.h"

/* Writes the kernel's prologue and body anew to *out, and sets the counts of registers to those that are
 * left: moves and constants are used where they are read, results go at once where they are moved to, what
 * nobody reads is left out. ptxas makes the same code of either text, but for the order of equals, and of
 * subtractions from 0 and products with -1, which are written otherwise. False: out of memory. */
bool tvm_tidy(emitter *e, tvm_text *out);

#endif
