#include "image.h"

#include <string.h>

/* The numbers of a launch that no kernel of the program can have are not believed. */
static bool facts_fit(const tvm_ir_program *program, const tvm_ir_image *embedded) {
    const tvm_image_kernel *kernels = (const tvm_image_kernel *)embedded->facts;
    tvm_target target;
    if (embedded->kernels != program->kernel_count ||
        embedded->words != sizeof(tvm_image_kernel) / sizeof(uint32_t) ||
        tvm_target_parse(embedded->target, &target, NULL))
        return false;
    for (uint32_t i = 0; i < embedded->kernels; i++) {
        const tvm_ir_kernel *kernel = &program->kernels[i];
        uint32_t threads = tvm_kernel_is_for(kernel, target.arch) ? 32 * kernel->warps : 0;
        if (kernels[i].threads != threads || kernels[i].shared_bytes > TVM_MAX_SHARED_BYTES) return false;
    }
    return true;
}

/* Code for a lower target leaves out kernels that assume a higher one. */
static bool has_kernels_for(const tvm_ir_program *program, const tvm_ir_image *embedded, unsigned arch) {
    const tvm_image_kernel *kernels = (const tvm_image_kernel *)embedded->facts;
    for (uint32_t i = 0; i < embedded->kernels; i++)
        if (!kernels[i].threads && tvm_kernel_is_for(&program->kernels[i], arch)) return false;
    return true;
}

static bool is_fresh(const tvm_ir_program *program, const uint64_t hash[2], const tvm_ir_image *embedded) {
    return embedded->codegen == TVM_CODEGEN_VERSION && embedded->hash[0] == hash[0] &&
           embedded->hash[1] == hash[1] && facts_fit(program, embedded);
}

static bool same_target(tvm_target a, tvm_target b) {
    return a.arch == b.arch && a.feature == b.feature;
}

static bool is_wanted(const tvm_image_request *request, tvm_embedded_kind kind, bool ptx, tvm_target target) {
    bool exact = same_target(target, request->target);
    switch (kind) {
    case TVM_EMBEDDED_EXACT:
        return !ptx && exact && tvm_target_cubin_runs(target, request->capability);
    case TVM_EMBEDDED_LOWER:
        return !ptx && tvm_target_cubin_runs(target, request->capability);
    case TVM_EMBEDDED_PTX_FOR:
        return ptx && tvm_target_ptx_runs(target, request->capability) &&
               (exact || !tvm_target_cubin_runs(request->target, request->capability));
    }
    return false;
}

bool tvm_image_find_embedded(const tvm_image_request *request, const uint64_t hash[2], tvm_embedded_kind kind,
                             tvm_image *image) {
    const tvm_ir_program *program = request->program;
    const tvm_ir_image *best = NULL;
    tvm_target target, best_target = {0};
    for (uint32_t i = 0; i < program->image_count; i++) {
        const tvm_ir_image *embedded = &program->images[i];
        if (is_fresh(program, hash, embedded) && !tvm_target_parse(embedded->target, &target, NULL) &&
            is_wanted(request, kind, embedded->ptx, target) &&
            has_kernels_for(program, embedded, request->target.arch) &&
            (!best || target.arch > best_target.arch)) {
            best = embedded;
            best_target = target;
        }
    }
    if (!best) return false;
    *image = (tvm_image){.kernels = (const tvm_image_kernel *)best->facts,
                         .kernel_count = best->kernels,
                         .ptx = best->ptx,
                         .code = best->code,
                         .code_size = best->code_size,
                         .source = TVM_IMAGE_EMBEDDED,
                         .target = best_target};
    memcpy(image->made_by, best->made_by, sizeof image->made_by);
    return true;
}

void tvm_image_note_stale(const tvm_ir_program *program, const uint64_t hash[2], tvm_diags *warnings) {
    uint32_t stale = 0;
    const tvm_ir_image *first = NULL;
    for (uint32_t i = 0; i < program->image_count; i++) {
        if (is_fresh(program, hash, &program->images[i])) continue;
        if (!stale++) first = &program->images[i];
    }
    if (!stale) return;
    if (first->codegen != TVM_CODEGEN_VERSION)
        tvm_diag_add(warnings, TVM_VERSION, NULL, "tvm-cc --embed puts it in anew",
                     "the code embedded in the program is ignored: it was made by version %u of the code "
                     "generator, this is version %d",
                     (unsigned)first->codegen, TVM_CODEGEN_VERSION);
    else
        tvm_diag_add(warnings, TVM_FORMAT, NULL, "tvm-cc --embed puts it in anew",
                     "the code embedded in the program is ignored: it was made of another program");
}
