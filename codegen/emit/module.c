/* The module that a program's kernels are in. */
#include "module.h"

#include <stdlib.h>
#include <string.h>

#include "shared_plan.h"
#include "target.h"

/* A string that belongs to a module, whose `owner` is the head of the list. */
struct kept {
    struct kept *next;
    char bytes[];
};

const char *tvm_module_keep(tvm_module *module, const char *string) {
    size_t size = strlen(string) + 1;
    struct kept *node = malloc(sizeof *node + size);
    if (!node) return NULL;
    node->next = module->owner;
    module->owner = node;
    memcpy(node->bytes, string, size);
    return node->bytes;
}

tvm_kernel_abi tvm_module_abi_of(const tvm_ir_kernel *kernel, tvm_target target) {
    if (!tvm_kernel_is_for(kernel, target.arch, tvm_target_traits_of(target)))
        return (tvm_kernel_abi){.absence = TVM_ABI_OTHER_TARGET};
    tvm_kernel_abi abi = {.threads = 32 * kernel->warps};
    memcpy(abi.cluster, kernel->cluster, sizeof abi.cluster);
    return abi;
}

bool tvm_module_start(tvm_module *module, const tvm_ir_program *program) {
    module->kernels = calloc(program->kernel_count + (size_t)1, sizeof *module->kernels);
    if (!module->kernels) return false;
    module->kernel_count = program->kernel_count;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const char *name = tvm_module_keep(module, tvm_string(program, program->kernels[k].name));
        if (!name) return false;
        module->kernels[k] = (tvm_kernel_code){.name = name,
                                               .abi = tvm_module_abi_of(&program->kernels[k], module->target),
                                               .registers = -1,
                                               .spill_stores = -1,
                                               .spill_loads = -1,
                                               .stack_bytes = -1};
    }
    return true;
}

tvm_status tvm_module_finish(tvm_module *module, const module_text *parts, tvm_diags *diags) {
    char name[16];
    tvm_text all = {0};
    unsigned version = tvm_target_record_of(module->target)->ptx;
    if (parts->ptx_version > version) version = parts->ptx_version;
    tvm_text_add(&all, ".version %u.%u\n.target %s\n.address_size 64\n\n", version / 10, version % 10,
                 tvm_target_name(module->target, name));
    tvm_text_add(&all, ".extern .shared .align %d .b8 tvm_smem[];\n", SHARED_ALIGNMENT_MAX);
    if (parts->uses_vprintf)
        tvm_text_add(
            &all, ".extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);\n");
    tvm_text_append(&all, &parts->globals);
    tvm_text_append(&all, &parts->kernels);
    if (all.failed) {
        tvm_text_free(&all);
        return tvm_diag_no_memory(diags);
    }
    module->ptx = all.data;
    module->ptx_size = all.size;
    return TVM_OK;
}

tvm_status tvm_module_abi(const tvm_module *module, uint32_t **words, uint32_t *count, tvm_diags *diags) {
    const tvm_kernel_abi *abis[TVM_MAX_KERNELS];
    uint32_t kernels = (uint32_t)module->kernel_count;
    for (uint32_t k = 0; k < kernels; k++) abis[k] = &module->kernels[k].abi;
    *count = (uint32_t)tvm_abi_encode(abis, kernels, NULL);
    *words = malloc(*count * sizeof **words);
    if (!*words) return tvm_diag_no_memory(diags);
    tvm_abi_encode(abis, kernels, *words);
    return TVM_OK;
}

void tvm_module_free(tvm_module *module) {
    if (!module) return;
    for (size_t k = 0; module->kernels && k < module->kernel_count; k++) free(module->kernels[k].selections);
    free(module->kernels);
    for (struct kept *node = module->owner, *next; node; node = next) {
        next = node->next;
        free(node);
    }
    free(module->ptx);
    free(module->cubin);
    free(module);
}
