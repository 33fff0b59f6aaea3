/* What is open while statements are executed. */
#ifndef TVM_ASSEMBLER_FRAMES_H
#define TVM_ASSEMBLER_FRAMES_H

#include "state.h"

/* The innermost frame, or NULL. */
static inline tvm_frame *tvm_asm_top(tvm_asm *as) {
    return as->text.frame_count ? &as->text.frames[as->text.frame_count - 1] : NULL;
}
tvm_frame *tvm_asm_open_frame(tvm_asm *as, tvm_frame_kind kind, const tvm_token *token);
/* The innermost frame that is no .if, if it is of this kind and in this source; what is open in it is an
 * error. */
tvm_frame *tvm_asm_innermost(tvm_asm *as, tvm_frame_kind kind);
void tvm_asm_close_frame(tvm_asm *as);
/* Closes the frames above the first `count`, with an error for each: they should have been closed before. */
bool tvm_asm_close_frames(tvm_asm *as, unsigned count);

/* A kernel ends in the file, branch or iteration it began in: an error where it is open. */
bool tvm_asm_leave_kernel(tvm_asm *as);
/* To the closer that matches, or (of .if) the next branch; the cursor stays before it, or at the end of the
 * file. From version 2 of the language on, what is skipped is made of directives that exist: a misspelt .else
 * would be skipped with the rest. */
void tvm_asm_skip_to(tvm_asm *as, const char *opener, const char *closer, bool branches);
/* `.if condition: statement`, `.for i = a to b: statement`: does a colon that belongs to no `?` stand in the
 * rest of the line? */
bool tvm_asm_is_one_line(const tvm_asm *as);

#endif
