#include "turns.h"

#include <stdlib.h>

#include "unroll.h"

uint64_t tvm_turns_times(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* What leaves turns out: of the innermost loop, break and continue; of all, the end of the block. */
typedef struct jumps {
    bool skip;  /* a turn may leave out what follows in the body */
    bool leave; /* the loop may end before its last turn */
} jumps;

static jumps find_jumps(const tvm_ir_kernel *kernel, uint32_t loop) {
    jumps found = {false, false};
    for (uint32_t i = loop + 1; i < kernel->insns[loop].match; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        bool ends = tvm_insn_class(insn) == TVM_CLASS_EXIT;
        bool own = tvm_insn_class(insn) == TVM_CLASS_JUMP && insn->match == loop;
        found.skip = found.skip || ends || own;
        found.leave = found.leave || ends || (own && insn->op == TVM_OP_BREAK);
    }
    return found;
}

/* Of the loops that a turn runs to their ends, whatever comes: what they take for a turn. They are planned.
 */
static uint64_t find_each(kernel_state *k, uint32_t loop, bool skips) {
    const tvm_ir_kernel *kernel = k->kernel;
    uint64_t each = 1;
    for (uint32_t i = loop + 1; i < kernel->insns[loop].match && !skips; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (!tvm_class_opens(tvm_insn_class(insn))) continue;
        known_loop inner;
        if (k->turns[i].whole && tvm_loop_known(k, insn, &inner)) {
            k->turns[i].in_outer = true;
            if (__builtin_add_overflow(each, tvm_turns_times(inner.turns, k->turns[i].each), &each))
                each = UINT64_MAX;
        }
        while (tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_END) i = kernel->insns[i].match;
    }
    return each;
}

/* Loops that open later are inner ones, or come behind. */
tvm_status tvm_turns_plan(kernel_state *k) {
    const tvm_ir_kernel *kernel = k->kernel;
    if (!k->counts_turns) return TVM_OK;
    k->turns = calloc(kernel->insn_count + (size_t)1, sizeof *k->turns);
    if (!k->turns) return tvm_diag_no_memory(k->diags);
    for (uint32_t i = kernel->insn_count; i-- > 0;) {
        const tvm_insn *insn = &kernel->insns[i];
        if (tvm_insn_class(insn) != TVM_CLASS_LOOP) continue;
        jumps found = find_jumps(kernel, i);
        k->turns[i].whole = tvm_insn_has(insn, TVM_TRAIT_COUNTER) && !found.leave;
        k->turns[i].each = find_each(k, i, found.skip);
    }
    return TVM_OK;
}
