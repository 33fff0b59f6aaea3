#include "scan_plan.h"

#include "numbers.h"
#include "scratch_need.h"

enum {
    WARP = 32,
    CHUNK = 16 /* totals of a thread that are exchanged at a time, where there is memory for so many */
};

static uint32_t spatial_weight(const tvm_layout *layout, unsigned mode) {
    uint32_t weight = 1;
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t entry = layout->spatial[i];
        if (entry == (int32_t)mode) break;
        weight *= entry < 0 ? (uint32_t)-entry : layout->mode_size[entry];
    }
    return weight;
}

static uint32_t local_weight(const tvm_layout *layout, unsigned mode) {
    uint32_t weight = 1;
    for (unsigned i = layout->locals; i-- > 0 && layout->local[i] != mode;)
        weight *= layout->mode_size[layout->local[i]];
    return weight;
}

static void plan_digit(scan_digit *digit, const tvm_layout *layout, unsigned mode) {
    *digit = (scan_digit){.size = layout->mode_size[mode], .spatial = tvm_mode_is_spatial(layout, mode)};
    digit->weight = digit->spatial ? spatial_weight(layout, mode) : local_weight(layout, mode);
    digit->left = digit->size;
    if (!digit->spatial || !tvm_is_power_of_two(digit->size) || !tvm_is_power_of_two(digit->weight)) return;
    while (digit->left > 1 && digit->weight << digit->shuffled < WARP) {
        digit->shuffled++;
        digit->left /= 2;
    }
    digit->of_warps = digit->shuffled == 5 && digit->left > 1;
}

void tvm_scan_plan(scan_plan *s, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                   const tvm_insn *insn) {
    *s = (scan_plan){.insn = tvm_scan_of(tvm_operands(kernel, insn), insn->count), .result = insn->result};
    const tvm_slot *source = &kernel->slots[s->insn.source];
    const tvm_layout *layout = s->layout = &program->layouts[source->layout];
    s->op = tvm_reduce_op(source->dtype, s->insn.operation);
    s->locals = tvm_layout_locals(layout);
    s->threads = tvm_layout_threads(layout);
    uint32_t parts = 1;
    for (unsigned m = 0; m < layout->modes; m++)
        if (layout->mode_dim[m] == s->insn.axis) {
            plan_digit(&s->digits[s->count], layout, m);
            if (!s->digits[s->count].spatial) parts *= s->digits[s->count].size;
            s->count++;
        }
    s->lines = s->locals / parts;
    s->parts[0] = s->lines;
    for (unsigned d = 0; d < s->count; d++)
        s->parts[d + 1] = s->parts[d] * (s->digits[d].spatial ? 1 : s->digits[d].size);
}

uint32_t tvm_scan_value_bytes(const scan_plan *s) {
    return s->op.compute.bits == 64 ? 8 : 4;
}

uint32_t tvm_scan_each_bytes(const scan_plan *s, const scan_digit *digit) {
    return tvm_scan_value_bytes(s) * (digit->of_warps ? s->threads / WARP : s->threads);
}

uint32_t tvm_scan_chunk(const scan_plan *s, unsigned d, tvm_target target, uint64_t taken) {
    return tvm_scratch_chunk(s->parts[d] < CHUNK ? s->parts[d] : CHUNK, tvm_scan_each_bytes(s, &s->digits[d]),
                             target, taken);
}

uint64_t tvm_scan_scratch(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                          tvm_target target, uint64_t taken) {
    scan_plan s;
    uint64_t most = 0;
    tvm_scan_plan(&s, program, kernel, insn);
    for (unsigned d = 0; d < s.count; d++) {
        if (!s.digits[d].spatial || s.digits[d].left == 1) continue;
        uint64_t bytes =
            (uint64_t)tvm_scan_chunk(&s, d, target, taken) * tvm_scan_each_bytes(&s, &s.digits[d]);
        if (bytes > most) most = bytes;
    }
    return most;
}
