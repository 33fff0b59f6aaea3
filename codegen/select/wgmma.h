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
tvm_status tvm_wgmma_find(emitter *e);
void tvm_wgmma_free(emitter *e);

/* The pattern of groups.h: an mma of a shared b on a target that has wgmma, with those right after it that
 * one wgmma does along. */
bool tvm_wgmma_matches(emitter *e, group_match *g);
const char *tvm_wgmma_refuse(emitter *e, const group_match *g);
const char *tvm_wgmma_does_not_pay(emitter *e, const group_match *g);
uint32_t tvm_wgmma_take(emitter *e, const group_match *g);
group_emitter tvm_emit_wgmma;

/* Is the mma done by a wgmma? */
bool tvm_wgmma_takes(const emitter *e, const tvm_insn *insn);
/* Does a wgmma of the kernel have its sums in the slot? */
bool tvm_wgmma_has_sums(const emitter *e, uint32_t slot);
/* Eights of columns of one that does the mma; 0: none does. */
uint32_t tvm_wgmma_columns(const emitter *e, const tvm_insn *mma);

/* ---- waiting: see wgmma_waits.c ---- */

/* Once it is known which mma are wgmma. */
tvm_status tvm_wgmma_plan_waits(emitter *e);

/* Before an instruction: waits if it must. */
void tvm_wgmma_wait(emitter *e, const tvm_insn *insn);
/* Waits for all. */
void tvm_wgmma_drain(emitter *e);
/* What may be unfinished here. */
wait_set tvm_waits(const emitter *e);
/* Goes on where `now` may be; returns what could be before. */
wait_set tvm_waits_enter(emitter *e, wait_set now);
/* Another path, with `other`, meets this one. */
void tvm_waits_meet(emitter *e, const wait_set *other);
void tvm_waits_add(wait_set *into, const wait_set *other);
/* At the head of a loop (its FOR or WHILE), where its turns meet what is before it; and where a turn ends. */
void tvm_waits_at_head(emitter *e, uint32_t loop);
void tvm_waits_before_head(emitter *e, uint32_t loop);

/* After a store to shared memory by threads of this layout: waits for all of them where they need no sync, as
 * each that loads an element has stored it, but wgmma, which reads for all of them, does. */
void tvm_wgmma_stored(emitter *e, const tvm_layout *layout);

#endif
