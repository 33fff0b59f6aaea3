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
 *                       instructions connect, the one wins whose kernel costs least
 *   3. costs            of an instruction with given layouts: of its accesses, and of the cheapest changes of
 *                       layout that make it legal (infer_plan.c, infer_cost.c)
 *   4. shared tensors   the swizzle with the fewest bank conflicts (infer_shared.c)
 *   5. relayout         instructions go where a plan says so; then every instruction is checked by its rule
 *
 * Nothing depends on anything but the kernel's own text: the same text gives the same layouts. vasm(5),
 * "Layouts that are left out", is the description for users. */
#ifndef TVM_ASSEMBLER_INFER_H
#define TVM_ASSEMBLER_INFER_H

#include "lexer.h"
#include "text.h"
#include "verify.h"

struct tvm_asm;

/* What is known of a variable beside its slot. */
typedef struct tvm_open_slot {
    bool open;
    const tvm_source *source; /* where it was made: NULL: a parameter */
    const tvm_token *token;
} tvm_open_slot;

typedef struct tvm_open_insn {
    const tvm_source *source;
    const tvm_token *token;
} tvm_open_insn;

/* Of the kernel that is read; the arrays grow with it. */
typedef struct tvm_open_layouts {
    tvm_slot *shapes; /* the kernel's slots, each register tensor in its whole layout */
    uint32_t shape_count, shape_capacity;
    tvm_open_slot *slots; /* beside the kernel's */
    uint32_t slot_capacity;
    tvm_open_insn *insns;
    uint32_t insn_capacity;
    uint32_t count; /* open slots, shared ones too */
} tvm_open_layouts;

/* The whole layout of a shape: each of the team's threads holds every element. */
bool tvm_infer_whole(unsigned rank, const uint32_t *shape, tvm_team team, tvm_layout *layout, tvm_why *why);

/* ---- while the kernel is read (infer_open.c) ---- */
bool tvm_asm_is_open(const struct tvm_asm *as, uint32_t slot);
/* Is one of the operands an open register tensor? */
bool tvm_asm_has_open(const struct tvm_asm *as, const tvm_operand *operands, uint32_t count);
/* As tvm_infer, for the type and shape alone. */
tvm_status tvm_asm_infer_shape(struct tvm_asm *as, const tvm_insn *insn, const tvm_operand *operands,
                               tvm_result_type *type, tvm_why *why);
/* Remembers where a new slot was made and whether it is open; where the last instruction stands. */
bool tvm_asm_note_slot(struct tvm_asm *as, const tvm_token *token, uint32_t slot,
                       const tvm_result_type *type);
bool tvm_asm_note_insn(struct tvm_asm *as, const tvm_token *token);
/* A register variable is assigned once more: the shapes must agree, and the layouts where both are known. A
 * layout that is written decides an open variable. */
bool tvm_asm_same_layout(struct tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                         uint32_t slot, const tvm_result_type *type);
void tvm_asm_forget_open(struct tvm_asm *as);
void tvm_asm_free_open(struct tvm_asm *as);

/* ---- at its end (infer.c) ---- */
/* Decides the layouts of the open slots, inserts relayouts, and checks the instructions. False after errors.
 */
bool tvm_asm_infer_layouts(struct tvm_asm *as);

#endif
