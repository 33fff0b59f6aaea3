/* Program to PTX: pipelined loops are written out, then each kernel is planned and emitted. */
#include <stdlib.h>

#include "kernel.h"
#include "pipeline_lower.h"
#include "shared_plan.h"

static tvm_status translate(const tvm_ir_program *program, const tvm_lowered *lowered, tvm_target target,
                            const tvm_translate_options *options, tvm_module **module_out, tvm_diags *diags) {
    tvm_module *module = calloc(1, sizeof *module);
    if (!module) return tvm_diag_no_memory(diags);
    module->target = target;
    module_text parts = {.options = *options};
    if (lowered->program) program = lowered->program;
    tvm_status status = tvm_module_start(module, program) ? TVM_OK : tvm_diag_no_memory(diags);
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK; k++)
        if (!module->kernels[k].abi.absence) {
            left_alone left = {NULL, "no pipelined loop"};
            if (lowered->program) left = (left_alone){lowered->not_parted[k], lowered->no_products[k]};
            status = tvm_emit_kernel(program, k, left, module, &parts, diags);
        }
    if (status == TVM_OK) status = tvm_module_finish(module, &parts, diags);
    tvm_text_free(&parts.globals);
    tvm_text_free(&parts.kernels);
    if (status == TVM_OK)
        *module_out = module;
    else
        tvm_module_free(module);
    return status;
}

tvm_status tvm_translate(const tvm_ir_program *program, tvm_target target, tvm_module **module,
                         tvm_diags *diags) {
    return tvm_translate_with(program, target, &(tvm_translate_options){.claims = NULL}, module, diags);
}

tvm_status tvm_translate_with(const tvm_ir_program *program, tvm_target target,
                              const tvm_translate_options *options, tvm_module **module, tvm_diags *diags) {
    tvm_lowered lowered;
    *module = NULL;
    tvm_status status = tvm_pipelines_lower(program, target, &lowered, diags);
    if (status == TVM_OK) status = translate(program, &lowered, target, options, module, diags);
    tvm_lowered_free(&lowered);
    return status;
}

tvm_status tvm_kernel_shared_bytes(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                   tvm_target target, uint64_t *bytes, tvm_diags *diags) {
    tvm_lowered lowered;
    tvm_status status = tvm_pipelines_lower(program, target, &lowered, diags);
    if (status != TVM_OK) return status;
    if (lowered.program) kernel = &lowered.program->kernels[kernel - program->kernels];
    bool made = tvm_shared_bytes(lowered.program ? lowered.program : program, kernel, target, bytes);
    tvm_lowered_free(&lowered);
    return made ? TVM_OK : tvm_diag_no_memory(diags);
}

tvm_target tvm_module_machine(const tvm_module *module) {
    return module->machine.arch ? module->machine : module->target;
}
