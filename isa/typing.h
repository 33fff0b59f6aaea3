/* The types that instructions and expressions give. */
#ifndef TVM_ISA_TYPING_H
#define TVM_ISA_TYPING_H

#include "program.h"

/* The type of a result: kind, element type, packing, and the layout by value. */
typedef struct tvm_result_type {
    tvm_slot_kind kind;
    tvm_dtype dtype;     /* kind TVM_KIND_NONE: not known yet */
    tvm_packing packing; /* of REGISTER */
    bool has_layout;
    bool open;                       /* of the layout the shape alone counts: the assembler infers the rest */
    tvm_layout layout;               /* of REGISTER */
    tvm_shared_layout shared_layout; /* of SHARED */
    uint32_t rank;                   /* of GLOBAL, and its extents: expressions */
    uint32_t shape[TVM_MAX_RANK];
    tvm_global_form form;          /* of GLOBAL */
    uint32_t stride[TVM_MAX_RANK]; /* of STRIDED */
} tvm_result_type;

/* Checks the operands of one instruction of a team against its row's rule and completes *type: on entry it
 * holds what the text or the slot declares (=t =T =L =S =G =P), on success everything. Does not look at
 * control structure or initialisation. TVM_INVALID with *why otherwise; the text says what was expected and
 * what was found. `insn->result` may be TVM_NONE while the assembler has no slot yet. */
tvm_status tvm_infer(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_team team,
                     const tvm_insn *insn, const tvm_operand *operands, tvm_result_type *type, tvm_why *why);

/* Type of an expression node from its operands; TVM_INVALID with *why when operands do not fit. */
tvm_status tvm_expr_check(const tvm_ir_kernel *kernel, const tvm_expr *node, tvm_why *why);

#endif
