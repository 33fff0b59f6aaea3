/* tvm_prove_kernel: the only part of vm/ that depends on the prover. */
#include "prove.h"

#include <stdlib.h>

#include "runtime.h"

/* The public verdict, worst last. */
static tvm_verdict verdict_of(const tvm_proof_part *part) {
    switch (part->verdict) {
    case TVM_PROVED:
        return TVM_VERDICT_PROVED;
    case TVM_PROVED_IF:
        return TVM_VERDICT_CONDITIONAL;
    case TVM_REFUTED:
        return TVM_VERDICT_FOUND;
    default:
        return TVM_VERDICT_OPEN;
    }
}

static tvm_status add_kernel(const tvm_program *code, uint32_t kernel, tvm_kernel_proof *worst,
                             tvm_text *lines, tvm_diags *diags) {
    tvm_proof proof;
    tvm_status status = tvm_prove(code->program, kernel, &proof, diags);
    if (status) return status;
    tvm_verdict races = verdict_of(&proof.races), deadlocks = verdict_of(&proof.deadlocks),
                global = verdict_of(&proof.global);
    if (races > worst->races) worst->races = races;
    if (deadlocks > worst->deadlocks) worst->deadlocks = deadlocks;
    if (global > worst->global) worst->global = global;
    tvm_proof_add(lines, code->program, kernel, &proof);
    return TVM_OK;
}

tvm_status tvm_prove_kernel(tvm_kernel *function, tvm_kernel_proof *proof, char **report) {
    if (!function || !proof) return TVM_USAGE;
    const tvm_program *code = function->code;
    tvm_diags diags = {0};
    tvm_text lines = {0};
    tvm_status status = TVM_OK;
    *proof = (tvm_kernel_proof){TVM_VERDICT_PROVED, TVM_VERDICT_PROVED, TVM_VERDICT_PROVED};
    if (report) *report = NULL;
    if (!function->entry) status = add_kernel(code, function->index, proof, &lines, &diags);
    for (uint32_t i = 0; function->entry && i < function->entry->case_count && !status; i++)
        status = add_kernel(code, function->entry->cases[i].kernel, proof, &lines, &diags);
    if (!status && lines.failed) status = tvm_diag_no_memory(&diags);
    if (status) *proof = (tvm_kernel_proof){TVM_VERDICT_OPEN, TVM_VERDICT_OPEN, TVM_VERDICT_OPEN};
    if (status || !report)
        tvm_text_free(&lines);
    else
        *report = lines.data;
    return tvm_context_finish(code->context, status, &diags);
}
