#include "bulk_ways.h"

bulk_operands tvm_bulk_operands(const kernel_state *k, const tvm_insn *insn) {
    bulk_operands o = {0};
    o.tile = tvm_bulk_tile(k, tvm_operands(k->kernel, insn), &o.extents);
    o.barrier = o.extents + 1 + o.tile.rank;
    o.evict = o.barrier + 1 + tvm_slot_shared_layout(k, o.barrier->value)->rank;
    o.multicast = o.evict + 1;
    return o;
}

uint32_t tvm_multicast_blocks(const kernel_state *k, const tvm_operand *axes) {
    if (!axes || axes->kind == TVM_OPERAND_NONE || !tvm_target_has(k->target, TVM_HAS_MULTICAST)) return 1;
    return axes->value == TVM_AXES_ALL ? tvm_cluster_blocks(k->kernel) : k->kernel->cluster[axes->value];
}

void tvm_bulk_ways_find(kernel_state *k) {
    char why[BULK_WHY_MAX];
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        bulk_plan plan;
        bulk_run run;
        if (insn->op == TVM_OP_STORE_BULK || insn->op == TVM_OP_REDUCE_BULK) {
            /* where it stands more may be known of its indices than here */
            if (tvm_target_has(k->target, TVM_HAS_BULK))
                k->bulk.by_engine = k->bulk.stores_by_engine = k->bulk.reads_by_engine = true;
            continue;
        }
        if (insn->op == TVM_OP_COPY_CLUSTER && tvm_target_has(k->target, TVM_HAS_BULK))
            k->bulk.by_engine = k->bulk.reads_by_engine = true;
        if (insn->op != TVM_OP_COPY_BULK) continue;
        bulk_operands o = tvm_bulk_operands(k, insn);
        if (tvm_bulk_plan_make(k, &o.tile, BULK_LOAD, &plan, why) ||
            (tvm_multicast_blocks(k, o.multicast) == 1 && tvm_bulk_run_find(k, &o.tile, &run)))
            k->bulk.by_engine = true;
        else
            k->bulk.by_threads = true;
    }
}
