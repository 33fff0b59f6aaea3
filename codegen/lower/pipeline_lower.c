/* Pipelined loops to plain ones, before anything else looks at the kernels. */
#include "pipeline_lower.h"

#include <stdlib.h>
#include <string.h>

#include "kernel_plan.h"
#include "pipeline_build.h"
#include "target.h"
#include "verify.h"

static bool has_pipelines(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_pipeline_stages(kernel, &kernel->insns[i])) return true;
    return false;
}

/* Each loop with groups, where it stands. */
static void write_groups(lowering *l) {
    for (uint32_t i = 0; i < l->from->insn_count && !l->failed; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        if (tvm_pipeline_stages(l->from, insn)) {
            tvm_lower_groups(l, i);
            i = insn->match;
        } else {
            l->depth += tvm_class_opens(tvm_insn_class(insn));
            l->depth -= tvm_insn_class(insn) == TVM_CLASS_END;
            tvm_lower_copy(l, insn);
        }
    }
}

/* May a warp of its own start the copies, by TMA? Else *why_not says why, malloc'ed. */
static bool is_parted(lowering *l, const tvm_ir_program *program, uint32_t kernel, tvm_target target,
                      char **why_not) {
    tvm_why why = {""};
    bool parted = tvm_lower_can_part(l, &why) && tvm_copies_fit_engine(program, kernel, target, &why);
    if (!parted && !l->failed && (*why_not = strdup(why.text)) == NULL) l->failed = true;
    return parted && !l->failed;
}

static bool lower_kernel(const tvm_ir_program *program, uint32_t kernel, tvm_target target,
                         tvm_lowered *out) {
    const tvm_ir_kernel *from = &program->kernels[kernel];
    tvm_ir_kernel *to = &out->program->kernels[kernel];
    lowering l = {.program = out->program, .from = from, .to = to};
    l.ahead = calloc(from->insn_count, sizeof *l.ahead);
    l.renamed = malloc((size_t)TVM_MAX_SLOTS * sizeof *l.renamed);
    l.failed = !l.ahead || !l.renamed;
    if (l.renamed) memset(l.renamed, 0xff, (size_t)TVM_MAX_SLOTS * sizeof *l.renamed);
    bool parted = !l.failed && is_parted(&l, program, kernel, target, &out->not_parted[kernel]);
    to->insn_count = to->operand_count = 0;
    if (!l.failed) tvm_lower_rings(&l);
    if (parted && !l.failed)
        tvm_lower_roles(&l, tvm_target_moves_registers(target));
    else if (!l.failed)
        write_groups(&l);
    free(l.ahead);
    free(l.renamed);
    return !l.failed;
}

void tvm_lowered_free(tvm_lowered *lowered) {
    for (uint32_t k = 0; lowered->program && lowered->not_parted && k < lowered->program->kernel_count; k++)
        free(lowered->not_parted[k]);
    free(lowered->not_parted);
    tvm_ir_program_free(lowered->program);
    *lowered = (tvm_lowered){NULL, NULL};
}

tvm_status tvm_pipelines_lower(const tvm_ir_program *program, tvm_target target, tvm_lowered *out,
                               tvm_diags *diags) {
    bool any = false;
    *out = (tvm_lowered){NULL, NULL};
    for (uint32_t k = 0; k < program->kernel_count && !any; k++) any = has_pipelines(&program->kernels[k]);
    if (!any) return TVM_OK;
    out->program = tvm_ir_program_clone_kernels(program);
    out->not_parted = calloc(program->kernel_count, sizeof *out->not_parted);
    tvm_status status = out->program && out->not_parted ? TVM_OK : tvm_diag_no_memory(diags);
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK; k++)
        if (has_pipelines(&program->kernels[k]) && !lower_kernel(program, k, target, out))
            status = tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "use fewer or shorter pipelined loops",
                                  "kernel '%s' is too long once its pipelined loops are written out",
                                  tvm_string(program, program->kernels[k].name));
    if (status == TVM_OK) status = tvm_verify(out->program, diags);
    if (status != TVM_OK) tvm_lowered_free(out);
    return status;
}
