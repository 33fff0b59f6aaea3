/* Inside the code generator: what each element-wise row of opcodes.def becomes, as sequences of PTX. */
#ifndef TVM_CODEGEN_OPERATIONS_H
#define TVM_CODEGEN_OPERATIONS_H

#include "sequence.h"

/* What a sequence computes on. */
typedef enum operation_form {
    FORM_WORD,  /* integers of up to 32 bits, extended to a register */
    FORM_LONG,  /* integers of 64 bits */
    FORM_BOOL,  /* 0 or 1; where there is none: FORM_WORD */
    FORM_WHOLE, /* all elements of a word at once, of any type under 32 bits */
    FORM_WHOLE_BOOL,
    FORM_F32,
    FORM_F64,
    FORM_F16,       /* in f32, rounded to f16 afterwards; where there is none: FORM_F32 */
    FORM_BF16,      /* the same for bf16 */
    FORM_F16X2,     /* a word of two f16 */
    FORM_BF16X2,    /* a word of two bf16 */
    FORM_BF16X2_90, /* the same from sm_90 on; where there is none: FORM_BF16X2 */
    OPERATION_FORMS
} operation_form;

typedef struct operation {
    const char *exact[OPERATION_FORMS]; /* NULL: there is none */
    const char *fast[OPERATION_FORMS];  /* with the row's operand `fast` */
    const char *not_packed;             /* why there is no form of two halves */
    unsigned least;                     /* bit i: operand i is one of a min (tvm_least_operand) */
} operation;

/* The operation of an element-wise row; NULL of other rows. */
const operation *tvm_operation_of(unsigned op);

/* Is the operand `fast` given, which comes after the first `arity` operands? */
bool tvm_operation_is_fast(const emitter *e, const tvm_insn *insn, unsigned arity);

/* The sequence for single elements of the type, halves as f32; and for words of two halves, or of several
 * integers or bools, on a target; NULL where there is none. */
const char *tvm_operation_single(const operation *o, bool fast, tvm_dtype type);
const char *tvm_operation_packed(const operation *o, bool fast, tvm_dtype type, tvm_target target);
const char *tvm_operation_whole(const operation *o, tvm_dtype type);

#endif
