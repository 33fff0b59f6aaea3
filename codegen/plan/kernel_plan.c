#include "kernel_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "analysis.h"
#include "bulk_ways.h"
#include "claims.h"
#include "find_facts.h"
#include "groups.h"
#include "mbarrier_plan.h"
#include "mma_operands.h"
#include "patterns.h"
#include "pipeline.h"
#include "proxy_fences.h"
#include "shared_plan.h"
#include "tensor_plan.h"
#include "turns.h"
#include "unroll.h"
#include "uses.h"
#include "wgmma.h"

tvm_status tvm_plan_memory(kernel_state *k) {
    tvm_status status = tvm_mma_operands_make(k);
    return status == TVM_OK ? tvm_shared_plan_make(k) : status;
}

tvm_status tvm_plan_kernel(kernel_state *k) {
    tvm_status status = tvm_facts_make(k);
    if (status == TVM_OK) status = tvm_slot_uses_make(k);
    if (status == TVM_OK) status = tvm_loops_plan(k);
    if (status == TVM_OK) status = tvm_turns_plan(k);
    if (status != TVM_OK) return status;
    if (k->claims) tvm_fact_claim_values(k);
    tvm_mbarriers_plan(k);
    tvm_bulk_ways_find(k);
    status = tvm_groups_make(k);
    if (status == TVM_OK) status = tvm_tensor_plan(k);
    return status == TVM_OK ? tvm_proxy_plan(k) : status;
}

void tvm_plan_free(kernel_state *k) {
    tvm_wgmma_free(k);
    tvm_groups_free(k);
    tvm_slot_uses_free(k);
    tvm_facts_free(k);
    tvm_mma_operands_free(k);
    free(k->loops);
    free(k->turns);
    free(k->bulk.unfenced);
    free(k->tensor.fences);
}

/* ---- copies of pipelined loops ---- */

static bool copies_fit(kernel_state *k, char why[BULK_WHY_MAX]) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_insn *insn = &k->kernel->insns[i];
        bulk_plan plan;
        if (tvm_pipeline_stages(k->kernel, insn)) end = insn->match;
        if (i >= end || insn->op != TVM_OP_COPY_ASYNC) continue;
        const tvm_operand *extents;
        const bulk_tile tile = tvm_bulk_tile(k, tvm_operands(k->kernel, insn), &extents);
        k->insn = insn;
        if (!tvm_bulk_plan_make(k, &tile, BULK_LOAD, &plan, why)) return false;
    }
    return true;
}

bool tvm_copies_fit_engine(const tvm_ir_program *program, uint32_t kernel, tvm_target target, tvm_why *why) {
    char text[BULK_WHY_MAX] = "";
    kernel_state k = {.program = program, .kernel = &program->kernels[kernel], .target = target};
    tvm_status status = tvm_plan_memory(&k);
    if (status == TVM_OK) status = tvm_facts_make(&k);
    bool fit = status == TVM_OK && copies_fit(&k, text);
    if (!fit) snprintf(why->text, sizeof why->text, "%.*s", (int)sizeof why->text - 1, text);
    tvm_plan_free(&k);
    return fit;
}
