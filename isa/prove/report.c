/* What a proof has found, as text. */
#include "prove.h"

static void add_part(tvm_text *text, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                     const tvm_proof_part *part, const char *of) {
    static const char *const verdicts[] = {[TVM_PROVED] = "proved",
                                           [TVM_PROVED_IF] = "proved, if",
                                           [TVM_NOT_PROVED] = "not proved",
                                           [TVM_REFUTED] = "found"};
    tvm_text_add(text, "%s: %s: %s", tvm_string(program, kernel->name), of, verdicts[part->verdict]);
    if (part->insn != TVM_NONE) {
        const tvm_insn *insn = &kernel->insns[part->insn];
        if (insn->file != TVM_NONE) tvm_text_add(text, ": %s", tvm_string(program, insn->file));
        if (insn->line)
            tvm_text_add(text, ":%u", (unsigned)insn->line);
        else
            tvm_text_add(text, ": instruction %u", (unsigned)part->insn);
    }
    if (part->verdict != TVM_PROVED) tvm_text_add(text, ": %s", part->text);
    tvm_text_puts(text, "\n");
}

void tvm_proof_add(tvm_text *text, const tvm_ir_program *program, uint32_t kernel, const tvm_proof *proof) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    add_part(text, program, k, &proof->races, "races");
    add_part(text, program, k, &proof->deadlocks, "deadlocks");
    add_part(text, program, k, &proof->global, "global memory");
}
