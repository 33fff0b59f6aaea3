/* scan: the elements before each element along an axis, combined in the order that the language fixes. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_reduce.h"
#include "reduce.h"

/* ---- the plan ----
 * The axis is made of digits, most significant first: the modes of its dimension, each of threads or of
 * locals. */

typedef struct scan_plan {
    uint32_t source;
    interp_reduction reduction;
    bool exclusive, reverse;
    unsigned digits;
    uint32_t size[TVM_MAX_MODES];
    bool spatial[TVM_MAX_MODES];
    uint32_t extent, outer, inner; /* the tensor is outer x extent x inner */
} scan_plan;

tvm_status tvm_plan_SCAN(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    scan_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_scan scan = tvm_scan_of(insn->operands, insn->source->count);
    const tvm_slot *slot = interp_slot(k, scan.source);
    const tvm_layout *layout = &k->program->layouts[slot->layout];
    plan->source = scan.source;
    plan->reduction = tvm_interp_reduction(slot->dtype, scan.operation);
    plan->exclusive = scan.exclusive;
    plan->reverse = scan.reverse;
    for (unsigned m = 0; m < layout->modes; m++) {
        if (layout->mode_dim[m] != scan.axis) continue;
        plan->size[plan->digits] = layout->mode_size[m];
        plan->spatial[plan->digits++] = tvm_mode_is_spatial(layout, m);
    }
    plan->extent = layout->shape[scan.axis];
    plan->outer = plan->inner = 1;
    for (unsigned d = 0; d < layout->rank; d++) {
        if (d < scan.axis) plan->outer *= layout->shape[d];
        if (d > scan.axis) plan->inner *= layout->shape[d];
    }
    tvm_interp_need_scratch(k, (4 * (size_t)plan->extent + 64) * sizeof(reduce_value));
    return TVM_OK;
}

/* ---- execution ----
 * A value that may be nothing: what comes before the first element. */

typedef struct prefix {
    bool some;
    reduce_value value;
} prefix;

static prefix after(const scan_plan *plan, prefix first, reduce_value then) {
    return (prefix){true, first.some ? tvm_interp_combine(&plan->reduction, first.value, then) : then};
}

/* The first `count` of values, `blocks` of which are combined as a tree, neighbours first: the blocks that
 * the binary digits of count name, the greatest first, combined from the last. */
static prefix prefix_of(const scan_plan *plan, const reduce_value *values, uint32_t count,
                        reduce_value *blocks) {
    prefix all = {.some = false};
    for (uint32_t size = 1, end = count; size <= count; size *= 2) {
        if (!(count & size)) continue;
        end -= size;
        memcpy(blocks, values + end, size * sizeof *blocks);
        for (uint32_t n = size; n > 1; n /= 2)
            for (uint32_t i = 0; i < n / 2; i++)
                blocks[i] = tvm_interp_combine(&plan->reduction, blocks[2 * i], blocks[2 * i + 1]);
        all =
            (prefix){true, all.some ? tvm_interp_combine(&plan->reduction, blocks[0], all.value) : blocks[0]};
    }
    return all;
}

/* What all elements of a block of digit d on come to; `values` are its elements. */
static reduce_value total_of(const scan_plan *plan, unsigned d, const reduce_value *values, uint32_t extent,
                             reduce_value *scratch) {
    if (d == plan->digits) return values[0];
    uint32_t each = extent / plan->size[d];
    reduce_value *totals = scratch, *rest = scratch + plan->size[d];
    for (uint32_t i = 0; i < plan->size[d]; i++)
        totals[i] = total_of(plan, d + 1, values + (size_t)i * each, each, rest);
    if (plan->spatial[d]) return prefix_of(plan, totals, plan->size[d], rest).value;
    for (uint32_t i = 1; i < plan->size[d]; i++)
        totals[0] = tvm_interp_combine(&plan->reduction, totals[0], totals[i]);
    return totals[0];
}

/* Replaces the elements of a block of digit d on, before which `carry` comes, by their results. */
static void scan_block(const scan_plan *plan, unsigned d, reduce_value *values, uint32_t extent, prefix carry,
                       reduce_value *scratch) {
    if (d == plan->digits) {
        if (plan->exclusive)
            values[0] = carry.some ? tvm_interp_combine(&plan->reduction,
                                                        tvm_interp_neutral(&plan->reduction), carry.value)
                                   : tvm_interp_neutral(&plan->reduction);
        else
            values[0] = after(plan, carry, values[0]).value;
        return;
    }
    uint32_t each = extent / plan->size[d];
    reduce_value *totals = scratch, *rest = scratch + plan->size[d];
    for (uint32_t i = 0; i < plan->size[d]; i++)
        totals[i] = total_of(plan, d + 1, values + (size_t)i * each, each, rest);
    for (uint32_t i = 0; i < plan->size[d]; i++) {
        prefix before = carry;
        if (plan->spatial[d]) {
            prefix own = prefix_of(plan, totals, i, rest);
            if (own.some) before = after(plan, carry, own.value);
        }
        scan_block(plan, d + 1, values + (size_t)i * each, each, before, rest);
        if (!plan->spatial[d]) carry = after(plan, carry, totals[i]);
    }
}

tvm_status tvm_interp_SCAN(interp_context *context, const interp_insn *insn) {
    const scan_plan *plan = insn->plan;
    const void *source = interp_tensor(context->block, plan->source);
    void *result = interp_tensor(context->block, insn->source->result);
    reduce_value *values = (reduce_value *)(void *)context->block->scratch, *scratch = values + plan->extent;
    for (uint32_t o = 0; o < plan->outer; o++)
        for (uint32_t i = 0; i < plan->inner; i++) {
            size_t base = (size_t)o * plan->extent * plan->inner + i;
            for (uint32_t p = 0; p < plan->extent; p++) {
                uint32_t at = plan->reverse ? plan->extent - 1 - p : p;
                values[p] = tvm_interp_reduce_read(&plan->reduction, source, base + (size_t)at * plan->inner);
            }
            scan_block(plan, 0, values, plan->extent, (prefix){.some = false}, scratch);
            for (uint32_t p = 0; p < plan->extent; p++) {
                uint32_t at = plan->reverse ? plan->extent - 1 - p : p;
                tvm_interp_reduce_write(&plan->reduction, result, base + (size_t)at * plan->inner, values[p]);
            }
        }
    return TVM_OK;
}
