/* Other layouts of the same program. */
#ifndef TVM_TESTS_GENERATE_RELAYOUT_H
#define TVM_TESTS_GENERATE_RELAYOUT_H

/* The text of the disassembler without the layouts of register tensors that may be left out: those of loads
 * become tiles. malloc'ed. */
char *leave_layouts_out(const char *text);

#endif
