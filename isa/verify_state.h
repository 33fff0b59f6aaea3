/* What the files of the verifier share. Private to isa/. */
#ifndef TVM_ISA_VERIFY_STATE_H
#define TVM_ISA_VERIFY_STATE_H

#include "program.h"

enum {
    TVM_VERIFY_ERRORS = 20, /* the most that are reported */
    TVM_VERIFY_MEMO = 256,  /* entries of the memory of instructions found right */
    TVM_VERIFY_KEY_OPERANDS = 16,
    TVM_VERIFY_KEY = 5 + 4 * TVM_VERIFY_KEY_OPERANDS
};

/* Steps, about 10 ns each, that a program may cost to verify. */
#define TVM_VERIFY_WORK (UINT64_C(1) << 28)

/* What the rule of an instruction depends on: opcode, then kind, type and layout (or value) of the result and
 * each operand; of an expression the type, and which constant it is. */
typedef struct tvm_verify_key {
    uint32_t words[TVM_VERIFY_KEY];
} tvm_verify_key;

/* The words that an instruction's key has; 0 where nothing is remembered. The others of it are not set. */
uint32_t tvm_verify_key_of(const tvm_ir_kernel *kernel, const tvm_insn *insn, tvm_team team,
                           tvm_verify_key *key);

typedef struct tvm_verify_state {
    tvm_ir_program *program;
    tvm_ir_kernel *kernel;
    tvm_diags *diags;
    unsigned errors;
    bool stopped; /* out of memory or work: nothing more is checked */
    tvm_status status;
    uint64_t work;
    uint8_t *leaves; /* of the kernel's expressions, as tvm_expr_leaves */
    tvm_verify_key memo[TVM_VERIFY_MEMO];
} tvm_verify_state;

/* No more is worth finding. */
static inline bool tvm_verify_done(const tvm_verify_state *state) {
    return state->stopped || state->errors >= TVM_VERIFY_ERRORS;
}

/* Reports `kernel: mnemonic: message`; the kernel and insn may be NULL. */
void tvm_verify_error(tvm_verify_state *state, const tvm_insn *insn, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Accounts for work; false when there is too much. */
bool tvm_verify_charge(tvm_verify_state *state, uint64_t work);

/* Values defined before use on every path; shared tensors; loop variables. The instructions have been checked
 * one by one and matched. */
void tvm_verify_flow(tvm_verify_state *state);

/* Pipelined loops: what pipeline.h asks of them, and that the tensors that they fill are used in such loops
 * alone and fit with all stages into shared memory. After tvm_verify_flow. */
void tvm_verify_pipelines(tvm_verify_state *state);

/* Where roles stand and what they have of the registers. The instructions have been matched. */
void tvm_verify_roles(tvm_verify_state *state);

#endif
