/* Layouts that the text leaves out.
 *
 * While a kernel is read, every instruction is checked and written at once (result.c). A register tensor
 * whose layout is left out, and whatever is made of one, is *open*: its slot has the shape alone, held as the
 * *whole* layout, of which every thread holds every element. Whole layouts keep every rule that says where
 * elements are, so the rules of the language give the shapes of open results (infer_open.c).
 *
 * At the kernel's end tvm_asm_infer_layouts (infer.c) decides:
 *
 *   1. anchors          what an open tensor would have for its own sake: the sums of mma, wide coalesced
 *                       accesses, reductions within a warp (infer_anchor.c)
 *   2. spreading        from an anchor through the instructions, forwards by their rules, backwards by trying
 *                       what could have given a result (infer_spread.c). Of the anchors of tensors that
 *                       instructions connect, the one wins whose kernel costs least: first the time of its
 *                       products (infer_product.c) and the registers that it lacks (infer_pressure.c), then
 *                       everything
 *   3. costs            of an instruction with given layouts: of its accesses, and of the cheapest changes of
 *                       layout that make it legal (infer_plan.c, infer_cost.c)
 *   4. improvements     one tensor at a time, and relayouts to the other side of what is computed beside them
 *                       (infer_region.c)
 *   5. shared tensors   the swizzle with the fewest bank conflicts (infer_shared.c)
 *   6. relayout         instructions go where a plan says so; then every instruction is checked by its rule
 *                       (infer_rewrite.c)
 *
 * infer_warn.c warns of what no layout makes good; infer_report.c lists layouts and products.
 *
 * Nothing depends on anything but the kernel's own text: the same text gives the same layouts. vasm(5),
 * "Layouts that are left out", is the description for users. */
#ifndef TVM_ASSEMBLER_INFER_H
#define TVM_ASSEMBLER_INFER_H

#include "state.h"

/* Decides the layouts of the open slots, inserts relayouts, and checks the instructions. False after errors.
 */
bool tvm_asm_infer_layouts(tvm_asm *as);

#endif
