/* Inside the code generator: mma as wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"),
 * which takes b from where it lies in shared memory, and a from there or from registers. Four warps together
 * multiply 64 rows of a: each its own fragment of mma.m16n8k16, whose registers a, c and d are the same ones.
 *
 * It does an mma whose b is a tile of a shared tensor, where warps 4i to 4i+3 have the same b, and b lies as
 * a matrix descriptor says it (wgmma_matrix.h). So does a, of which the four warps have 64 rows that lie one
 * after the other, or it is loaded to registers first. Several of them in a row, of the same a and of b one
 * below the other, are one wgmma of more columns.
 *
 * wgmma runs beside what its warps do next: wgmma_waits.c says what waits for it. */
#ifndef TVM_CODEGEN_WGMMA_H
#define TVM_CODEGEN_WGMMA_H

#include "groups.h"

/* Finds the mma of the kernel that it can do; after the shared memory has been planned. */
tvm_status tvm_wgmma_find(kernel_state *k);
void tvm_wgmma_free(kernel_state *k);

/* The pattern of groups.h: an mma of a shared b on a target that has wgmma, with those right after it that
 * one wgmma does along. */
bool tvm_wgmma_matches(kernel_state *k, group_match *g);
const char *tvm_wgmma_refuse(kernel_state *k, const group_match *g);
const char *tvm_wgmma_does_not_pay(kernel_state *k, const group_match *g);
uint32_t tvm_wgmma_take(kernel_state *k, const group_match *g);

/* Is the mma done by a wgmma? */
bool tvm_wgmma_takes(const kernel_state *k, const tvm_insn *insn);
/* Does a wgmma of the kernel have its sums in the slot? */
bool tvm_wgmma_has_sums(const kernel_state *k, uint32_t slot);
/* Eights of columns of one that does the mma; 0: none does. */
uint32_t tvm_wgmma_columns(const kernel_state *k, const tvm_insn *mma);

#endif
