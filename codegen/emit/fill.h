/* What the registers of a load hold before it, and keep where an element is not read. */
#ifndef TVM_CODEGEN_FILL_H
#define TVM_CODEGEN_FILL_H

#include "emit.h"

/* Elements of one value, as bits: of 64 bits the two words of one, else a word of several. */
typedef struct fill_bits {
    bool given; /* false: zero bits */
    unsigned bits;
    reg word[2]; /* %r */
} fill_bits;

/* operand: an expression that is converted to elements of the type, which are whole bytes, or left out; NULL:
 * as left out. */
void tvm_fill_open(emitter *e, fill_bits *fill, const tvm_operand *operand, tvm_dtype type);
/* Gives it to register `unit`, number u of an access of `width` bits. */
void tvm_fill_unit(emitter *e, const fill_bits *fill, unsigned width, unsigned u, reg unit);

#endif
