/* Pipelined loops to plain ones, before anything else looks at the kernels. */
#include "pipeline_lower.h"

#include <stdio.h>
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
    if (l->products.found) tvm_lower_alloc_products(l, 1, false);
    for (uint32_t i = 0; i < l->from->insn_count && !l->failed; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        if (tvm_lower_load_products(l, i).is_read) continue;
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

static void write_kernel(lowering *l, bool parted, tvm_target target) {
    l->to->insn_count = l->to->operand_count = 0;
    if (!l->failed) tvm_lower_rings(l);
    if (parted && !l->failed)
        tvm_lower_roles(l, tvm_target_moves_registers(target, l->from));
    else if (!l->failed)
        write_groups(l);
}

static bool start_lowering(lowering *l) {
    l->ahead = calloc(l->from->insn_count, sizeof *l->ahead);
    l->renamed = malloc((size_t)TVM_MAX_SLOTS * sizeof *l->renamed);
    l->failed = !l->ahead || !l->renamed;
    if (l->renamed) memset(l->renamed, 0xff, (size_t)TVM_MAX_SLOTS * sizeof *l->renamed);
    return !l->failed;
}

static void end_lowering(lowering *l) {
    free(l->ahead);
    free(l->renamed);
}

/* Writes the kernel to `to`, a kernel of the program `copy`. */
static bool lower_to(tvm_ir_program *copy, tvm_ir_kernel *to, const tvm_ir_program *program, uint32_t kernel,
                     tvm_target target, const tensor_products *products, char **why_not) {
    lowering l = {.program = copy, .from = &program->kernels[kernel], .to = to, .products.found = products};
    if (start_lowering(&l)) {
        bool parted = is_parted(&l, program, kernel, target, why_not);
        write_kernel(&l, parted, target);
    }
    end_lowering(&l);
    return !l.failed;
}

/* May the layouts of what follows from the sums be renamed? The verifier knows what each instruction asks of
 * them, so that the program's own instructions are written once to see, and none of those that the lowering
 * adds: a mistake there is for the verifier to find in what is written in the end. */
static bool layouts_follow(const tvm_ir_program *program, uint32_t kernel, const tensor_products *products) {
    tvm_ir_program *trial = tvm_ir_program_clone_kernel(program, kernel);
    lowering l = {.program = trial, .from = &program->kernels[kernel], .products.found = products};
    if (trial) l.to = &trial->kernels[0];
    if (trial && start_lowering(&l)) tvm_lower_renamed(&l);
    bool follow = trial && !l.failed && tvm_verify(trial, NULL) == TVM_OK;
    if (trial) end_lowering(&l);
    tvm_ir_program_free(trial);
    return follow;
}

static bool lower_kernel(const tvm_ir_program *program, uint32_t kernel, tvm_target target,
                         tvm_lowered *out) {
    tensor_products products;
    tvm_why why = {""};
    bool taken = tvm_tensor_products_find(program, kernel, target, &products, &why);
    if (taken && !layouts_follow(program, kernel, &products)) {
        taken = false;
        snprintf(why.text, sizeof why.text, "a layout beside the sums does not follow from theirs");
    }
    if (!taken && (out->no_products[kernel] = strdup(why.text)) == NULL) return false;
    return lower_to(out->program, &out->program->kernels[kernel], program, kernel, target,
                    taken ? &products : NULL, &out->not_parted[kernel]);
}

void tvm_lowered_free(tvm_lowered *lowered) {
    for (uint32_t k = 0; lowered->program && k < lowered->program->kernel_count; k++) {
        if (lowered->not_parted) free(lowered->not_parted[k]);
        if (lowered->no_products) free(lowered->no_products[k]);
    }
    free(lowered->not_parted);
    free(lowered->no_products);
    tvm_ir_program_free(lowered->program);
    *lowered = (tvm_lowered){.program = NULL};
}

tvm_status tvm_pipelines_lower(const tvm_ir_program *program, tvm_target target, tvm_lowered *out,
                               tvm_diags *diags) {
    bool any = false;
    *out = (tvm_lowered){.program = NULL};
    for (uint32_t k = 0; k < program->kernel_count && !any; k++) any = has_pipelines(&program->kernels[k]);
    if (!any) return TVM_OK;
    out->program = tvm_ir_program_clone_kernels(program);
    out->not_parted = calloc(program->kernel_count, sizeof *out->not_parted);
    out->no_products = calloc(program->kernel_count, sizeof *out->no_products);
    bool made = out->program && out->not_parted && out->no_products;
    tvm_status status = made ? TVM_OK : tvm_diag_no_memory(diags);
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK; k++)
        if (has_pipelines(&program->kernels[k]) && !lower_kernel(program, k, target, out))
            status = tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "use fewer or shorter pipelined loops",
                                  "kernel '%s' is too long once its pipelined loops are written out",
                                  tvm_string(program, program->kernels[k].name));
    if (status == TVM_OK && (status = tvm_verify(out->program, diags)) != TVM_OK)
        (void)tvm_diag_add(diags, status, NULL, "report it, with the program",
                           "the verifier refuses what the translator has written for a pipelined loop");
    if (status != TVM_OK) tvm_lowered_free(out);
    return status;
}
