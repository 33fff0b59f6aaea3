/* What a target has no room for. */
#include "codegen.h"

static tvm_status refuse(const tvm_ir_program *program, const tvm_module *module, const tvm_ir_kernel *kernel,
                         const char *entry, tvm_diags *diags) {
    char target[16];
    const tvm_kernel_abi *abi = &module->kernels[kernel - program->kernels].abi;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                        "%s%s%skernel %s needs %u bytes of shared memory; a block on %s has at most %u",
                        entry ? "of entry " : "", entry ? entry : "", entry ? " no variant fits: " : "",
                        tvm_string(program, kernel->name), (unsigned)abi->shared_bytes,
                        tvm_target_name(module->target, target), tvm_target_shared_bytes(module->target));
}

/* Of an entry without any code the first kernel that is too big: what keeps it from being of use. */
static const tvm_ir_kernel *missing_kernel(const tvm_ir_program *program, const tvm_module *module,
                                           const tvm_ir_entry *entry, bool of_an_entry[TVM_MAX_KERNELS]) {
    const tvm_ir_kernel *missing = NULL;
    bool served = false;
    for (uint32_t c = 0; c < entry->case_count; c++) {
        uint32_t kernel = entry->cases[c].kernel;
        uint32_t absence = module->kernels[kernel].abi.absence;
        of_an_entry[kernel] = true;
        served = served || absence == TVM_ABI_PRESENT;
        if (absence == TVM_ABI_TOO_BIG && !missing) missing = &program->kernels[kernel];
    }
    return served ? NULL : missing;
}

tvm_status tvm_module_check(const tvm_ir_program *program, const tvm_module *module, tvm_diags *diags) {
    bool of_an_entry[TVM_MAX_KERNELS] = {false};
    for (uint32_t i = 0; i < program->entry_count; i++) {
        const tvm_ir_entry *entry = &program->entries[i];
        const tvm_ir_kernel *missing = missing_kernel(program, module, entry, of_an_entry);
        if (missing) return refuse(program, module, missing, tvm_string(program, entry->head.name), diags);
    }
    for (uint32_t k = 0; k < program->kernel_count; k++)
        if (!of_an_entry[k] && module->kernels[k].abi.absence == TVM_ABI_TOO_BIG)
            return refuse(program, module, &program->kernels[k], NULL, diags);
    return TVM_OK;
}
