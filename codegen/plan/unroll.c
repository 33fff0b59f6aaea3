#include "unroll.h"

#include <stdlib.h>

#include "analysis.h"

/* Instructions that the copies of one loop's body may make. */
enum { UNROLLED_MAX = 1 << 14 };

tvm_status tvm_loops_plan(kernel_state *k) {
    const tvm_ir_kernel *kernel = k->kernel;
    uint32_t openers[TVM_MAX_DEPTH + 1];
    uint64_t weights[TVM_MAX_DEPTH + 2] = {0};
    unsigned depth = 0;
    k->loops = calloc(kernel->insn_count + (size_t)1, sizeof *k->loops);
    if (!k->loops) return tvm_diag_no_memory(k->diags);
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        weights[depth]++;
        tvm_op_class class = tvm_insn_class(insn);
        if (tvm_class_opens(class) && depth < TVM_MAX_DEPTH) {
            openers[depth++] = i;
            weights[depth] = 0;
        } else if (class == TVM_CLASS_END && depth > 0) {
            uint32_t opener = openers[depth - 1];
            uint64_t weight = weights[depth], copies = 1;
            if (tvm_insn_has(&kernel->insns[opener], TVM_TRAIT_COUNTER)) {
                copies = tvm_operands(kernel, &kernel->insns[opener])[3].value;
                if (weight * copies > UNROLLED_MAX) copies = UNROLLED_MAX / weight;
                if (copies < 1) copies = 1;
            }
            k->loops[opener] = (loop_plan){(uint32_t)copies, (uint32_t)weight};
            weights[--depth] += weight * copies;
        }
    }
    return TVM_OK;
}

bool tvm_loop_known(const kernel_state *k, const tvm_insn *loop, known_loop *known) {
    const tvm_operand *operands = tvm_operands(k->kernel, loop);
    int64_t end;
    if (!tvm_fact_constant(k, operands[0].value, &known->start) ||
        !tvm_fact_constant(k, operands[1].value, &end) ||
        !tvm_fact_constant(k, operands[2].value, &known->step) || known->step <= 0 ||
        tvm_slot_dtype(k, loop->result).kind != TVM_KIND_INT)
        return false;
    uint64_t step = (uint64_t)known->step, distance = (uint64_t)end - (uint64_t)known->start;
    known->turns = end <= known->start ? 0 : distance / step + (distance % step != 0);
    return true;
}
