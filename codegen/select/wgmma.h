/* Inside the code generator: mma as wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"),
 * which takes a from registers and b from where it lies in shared memory. Four warps together multiply 64
 * rows of a: each its own fragment of mma.m16n8k16, whose registers a, c and d are the same ones.
 *
 * A program does not ask for it. It loads b from shared memory, views it, if need be, as mma's b, and
 * multiplies, in instructions that follow each other:
 *
 *     %x2 = load-shared %sx[...], ...
 *     %x = view %x2, f16, ...
 *     %d = mma %w, %x, %c
 *
 * Where nothing else reads %x2 and %x, warps 4i to 4i+3 have the same b, and b's rows of 64 elements along k
 * lie in shared memory under swizzle(3, 3, 3) (what alloc-shared takes for rows of 128 bytes), the load and
 * the view are left out. Several such triples in a row, of the same a and of b one below the other, are one
 * wgmma of more columns.
 *
 * wgmma runs beside what its warps do next: it is waited for before an instruction that reads or assigns its
 * a or its sums, or one that may write shared memory, end a loop or jump. */
#ifndef TVM_CODEGEN_WGMMA_H
#define TVM_CODEGEN_WGMMA_H

#include "emit.h"

/* Decides for all instructions of the kernel; after the shared memory has been planned. */
tvm_status tvm_wgmma_plan(emitter *e);
void tvm_wgmma_free(emitter *e);

/* Is the instruction done by a wgmma: as its mma, or as what is left out for it? */
bool tvm_wgmma_takes(const emitter *e, const tvm_insn *insn);
/* Eights of columns of one that does the mma; 0: none does. */
uint32_t tvm_wgmma_columns(const emitter *e, const tvm_insn *mma);
tvm_status tvm_emit_wgmma(emitter *e, const tvm_insn *insn);
/* Why an mma of such a triple is none; "" where there is no triple. */
const char *tvm_wgmma_refused(const emitter *e, const tvm_insn *mma);

/* Before an instruction that no wgmma takes, or (NULL) the end of a sequence of them: waits if it must. */
void tvm_wgmma_settle(emitter *e, const tvm_insn *insn);

/* After a store to shared memory by threads of this layout: waits for all of them where they need no sync, as
 * each that loads an element has stored it, but wgmma, which reads for all of them, does. */
void tvm_wgmma_stored(emitter *e, const tvm_layout *layout);

#endif
