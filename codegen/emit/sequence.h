/* Inside the code generator: short sequences of PTX, written as text with registers and constants by name.
 *
 * A sequence is lines of PTX, each ended by `;`, in which
 *     %x %y %z    are the operands
 *     %result     is what it gives
 *     %fNAME      is a register of the sequence's own, by the letter after the percent sign: f .f32, g .f64,
 * r .b32, q .b64, p .pred, e of the result's class; NAME may be empty, and a register may be assigned again
 *     #NUMBER     is a constant of f32, in decimal; ##NUMBER one of f64
 *     $t $b       are the suffix of the type that is computed in ("s32", "f16x2") and that of its bits
 * ("b32") $top $mask  are the element's bits less one, and a word with its bits set $1 $2       are labels;
 * `$1:;` defines one. All threads of a warp go the same way. */
#ifndef TVM_CODEGEN_SEQUENCE_H
#define TVM_CODEGEN_SEQUENCE_H

#include "compute.h"

typedef struct sequence_type {
    const char *suffix; /* $t */
    char class;         /* of the result: f g r q, as above */
    unsigned bits;      /* of an element */
} sequence_type;

/* Emits the sequence; gives %result, in this register, which is none of the operands; "": in a new one. */
reg tvm_emit_sequence_to(emitter *e, const char *sequence, sequence_type type, const reg operands[3],
                         reg result);

#endif
