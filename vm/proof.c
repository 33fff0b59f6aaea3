/* tvm_prove_kernel and tvm_check_kernel: the only part of vm/ that depends on the prover. */
#include "prove.h"

#include <stdlib.h>

#include "certify.h"
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

typedef tvm_status add_function(const tvm_ir_program *program, uint32_t kernel, tvm_kernel_proof *worst,
                                tvm_text *lines, tvm_diags *diags);

static void worsen(tvm_kernel_proof *worst, tvm_kernel_proof by) {
    if (by.races > worst->races) worst->races = by.races;
    if (by.deadlocks > worst->deadlocks) worst->deadlocks = by.deadlocks;
    if (by.global > worst->global) worst->global = by.global;
}

static tvm_status add_proved(const tvm_ir_program *program, uint32_t kernel, tvm_kernel_proof *worst,
                             tvm_text *lines, tvm_diags *diags) {
    tvm_proof proof;
    tvm_status status = tvm_prove_long(program, kernel, &proof, diags);
    if (status) return status;
    worsen(worst, (tvm_kernel_proof){verdict_of(&proof.races), verdict_of(&proof.deadlocks),
                                     verdict_of(&proof.global)});
    tvm_proof_add(lines, program, kernel, &proof);
    return TVM_OK;
}

static tvm_status add_checked(const tvm_ir_program *program, uint32_t kernel, tvm_kernel_proof *worst,
                              tvm_text *lines, tvm_diags *diags) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    tvm_checked checked;
    tvm_status status = tvm_check(program, kernel, k->certificate, k->certificate_count, &checked, diags);
    if (status) return status;
    tvm_kernel_proof by = {TVM_VERDICT_OPEN, TVM_VERDICT_OPEN, TVM_VERDICT_OPEN};
    if (checked.races.holds) by.races = TVM_VERDICT_PROVED;
    if (checked.deadlocks.holds)
        by.deadlocks = checked.waits_for_blocks ? TVM_VERDICT_CONDITIONAL : TVM_VERDICT_PROVED;
    worsen(worst, by);
    tvm_checked_add(lines, program, kernel, &checked);
    return TVM_OK;
}

static tvm_status add_all(tvm_kernel *function, add_function *add, tvm_kernel_proof *proof, char **report) {
    if (!function || !proof) return tvm_context_missing(function ? function->code->context : NULL, __func__);
    const tvm_program *code = function->code;
    tvm_diags diags = {0};
    tvm_text lines = {0};
    tvm_status status = TVM_OK;
    *proof = (tvm_kernel_proof){TVM_VERDICT_PROVED, TVM_VERDICT_PROVED, TVM_VERDICT_PROVED};
    if (report) *report = NULL;
    if (!function->entry) status = add(code->program, function->index, proof, &lines, &diags);
    for (uint32_t i = 0; function->entry && i < function->entry->case_count && !status; i++)
        status = add(code->program, function->entry->cases[i].kernel, proof, &lines, &diags);
    if (!status && lines.failed) status = tvm_diag_no_memory(&diags);
    if (status) *proof = (tvm_kernel_proof){TVM_VERDICT_OPEN, TVM_VERDICT_OPEN, TVM_VERDICT_OPEN};
    if (status || !report)
        tvm_text_free(&lines);
    else
        *report = lines.data;
    return tvm_context_finish(code->context, status, &diags);
}

tvm_status tvm_prove_kernel(tvm_kernel *kernel, tvm_kernel_proof *proof, char **report) {
    return add_all(kernel, add_proved, proof, report);
}

tvm_status tvm_check_kernel(tvm_kernel *kernel, tvm_kernel_proof *proof, char **report) {
    return add_all(kernel, add_checked, proof, report);
}
