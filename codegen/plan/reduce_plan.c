#include "reduce_plan.h"

#include "numbers.h"
#include "reduce.h"
#include "scratch_need.h"

enum { WARP = 32 };

/* The modes of the axes that are spatial, most significant first, with their weights in the thread number. */
static void find_digits(reduction *r) {
    const tvm_layout *layout = r->layout;
    for (unsigned m = 0; m < layout->modes; m++) {
        if (!(r->axes >> layout->mode_dim[m] & 1)) continue;
        uint32_t stride = 1;
        for (unsigned i = layout->spatials; i-- > 0;) {
            int32_t entry = layout->spatial[i];
            if (entry == (int32_t)m)
                r->digits[r->digit_count++] = (axis_digit){layout->mode_size[m], stride, 0};
            stride *= entry < 0 ? (uint32_t)-entry : layout->mode_size[entry];
        }
    }
    r->partials = 1;
    for (unsigned i = 0; i < r->digit_count; i++) r->partials *= r->digits[i].size;
    r->tree = tvm_is_power_of_two(r->partials);
}

/* Levels of the tree, lowest first, whose partner is the lane that differs in one bit. */
static void find_shuffles(reduction *r) {
    r->exchanged = r->partials;
    if (!r->tree) return;
    for (unsigned i = r->digit_count; i-- > 0;) {
        axis_digit *digit = &r->digits[i];
        for (; 1u << digit->shuffled < digit->size; digit->shuffled++) {
            uint32_t distance = digit->stride << digit->shuffled;
            if (!tvm_is_power_of_two(digit->stride) || distance >= WARP) return;
            r->lane_masks[r->shuffles++] = distance;
            r->exchanged /= 2;
        }
    }
}

/* Has the team one result, to which each thread votes? */
static bool is_vote(const reduction *r) {
    const tvm_layout *layout = r->layout;
    unsigned operation = r->op.operation;
    bool one = r->op.type.kind == TVM_KIND_BOOL && r->outputs == 1 && r->threads > WARP;
    for (unsigned i = 0; i < layout->spatials; i++) {
        int32_t entry = layout->spatial[i];
        one = one && (entry < 0 || layout->mode_size[entry] == 1 || (r->axes >> layout->mode_dim[entry] & 1));
    }
    return one && (operation == TVM_REDUCE_ANY || operation == TVM_REDUCE_ALL ||
                   operation == TVM_REDUCE_AND || operation == TVM_REDUCE_OR);
}

void tvm_reduce_plan(reduction *r, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                     const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    const tvm_slot *source = &kernel->slots[operands[1].value];
    *r = (reduction){.op = tvm_reduce_op(source->dtype, operands[0].value),
                     .source = operands[1].value,
                     .result = insn->result,
                     .axes = tvm_reduce_axes(operands, insn->count),
                     .layout = &program->layouts[source->layout]};
    r->is_position = tvm_reduce_is_position(r->op.operation);
    r->locals = tvm_layout_locals(r->layout);
    r->outputs = tvm_layout_locals(&program->layouts[kernel->slots[insn->result].layout]);
    r->threads = tvm_layout_threads(r->layout);
    find_digits(r);
    find_shuffles(r);
    r->votes = r->exchanged > 1 && is_vote(r);
    r->places = r->shuffles == 5 ? r->threads / WARP : r->threads;
}

uint32_t tvm_reduce_value_bytes(const reduction *r) {
    return r->op.compute.bits == 64 ? 8 : 4;
}

uint32_t tvm_reduce_output_bytes(const reduction *r) {
    return r->places * (tvm_reduce_value_bytes(r) + (r->is_position ? 4 : 0));
}

uint32_t tvm_reduce_chunk(const reduction *r, tvm_target target, uint64_t taken) {
    return tvm_scratch_chunk(r->outputs < REDUCE_CHUNK ? r->outputs : REDUCE_CHUNK,
                             tvm_reduce_output_bytes(r), target, taken);
}

uint64_t tvm_reduce_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                            tvm_target target, uint64_t taken) {
    reduction r;
    tvm_reduce_plan(&r, program, kernel, insn);
    return r.exchanged > 1 && !r.votes
               ? (uint64_t)tvm_reduce_chunk(&r, target, taken) * tvm_reduce_output_bytes(&r)
               : 0;
}
