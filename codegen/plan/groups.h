/* Before code is written, a kernel's instructions are put into groups
 * that are carried out as one. What can become what is a table, a row a pattern (patterns.c): it matches by
 * what defines and what reads a value, wherever the instructions stand in one straight run; whether it is
 * legal, the results being those of the instructions one by one, is asked apart from whether it pays on the
 * target. Why a pattern that matches was not taken is kept for --explain. */
#ifndef TVM_CODEGEN_GROUPS_H
#define TVM_CODEGEN_GROUPS_H

#include "kernel_state.h"

/* What a pattern is asked about: an instruction, and what the match found. */
typedef struct group_match {
    uint32_t first;  /* instruction */
    uint32_t second; /* the only reader of its result, of patterns of two; else TVM_NONE */
} group_match;

/* Of an instruction. */
typedef struct group_entry {
    uint32_t next;       /* the one carried out with it, or TVM_NONE */
    const char *done;    /* where, for its explanation: by an earlier one, with it; else NULL */
    const char *refused; /* the name of a pattern that matches and was not taken */
    const char *why;     /* refused; else NULL */
} group_entry;

struct groups {
    uint32_t *passed;      /* by variable: how many of its reads are those of a next reader */
    group_entry entries[]; /* by instruction */
};

void tvm_groups_free(kernel_state *k);

/* The instruction that is carried out with this one, right after it; NULL: none. */
const tvm_insn *tvm_group_next(const kernel_state *k, const tvm_insn *insn);
/* Where an instruction has been carried out, for its explanation, when an earlier one did it; else NULL. */
const char *tvm_group_done(const kernel_state *k, const tvm_insn *insn);
/* Why a pattern that matches was not taken, and which; NULL: there is none. */
const char *tvm_group_refused(const kernel_state *k, const tvm_insn *insn, const char **pattern);

#endif
