#include "image.h"

#include <stdlib.h>
#include <string.h>

/* The ABI that comes with embedded code; it is not believed where no code of the program can have it. */
static tvm_status read_abis(const tvm_ir_program *program, const tvm_ir_image *embedded,
                            tvm_kernel_abi **abis) {
    tvm_target target;
    if (tvm_target_parse(embedded->target, &target, NULL)) return TVM_FORMAT;
    return tvm_abi_decode(embedded->facts, embedded->fact_count, program, target.arch,
                          tvm_target_traits_of(target), abis);
}

static bool is_fresh(const tvm_ir_program *program, const uint64_t hash[2], const tvm_ir_image *embedded) {
    return embedded->codegen == TVM_CODEGEN_VERSION && embedded->hash[0] == hash[0] &&
           embedded->hash[1] == hash[1] && read_abis(program, embedded, NULL) == TVM_OK;
}

/* Code for another target may leave out kernels that this one could have. */
static bool lacks_kernels_for(const tvm_ir_program *program, const tvm_kernel_abi *abis, tvm_target target) {
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        bool absent =
            abis[k].absence == TVM_ABI_OTHER_TARGET ||
            (abis[k].absence == TVM_ABI_TOO_BIG && abis[k].shared_bytes <= tvm_target_shared_bytes(target));
        if (absent && tvm_kernel_is_for(&program->kernels[k], target.arch, tvm_target_traits_of(target)))
            return true;
    }
    return false;
}

static bool is_wanted(const tvm_image_request *request, tvm_embedded_kind kind, bool ptx, tvm_target target) {
    bool exact = tvm_target_same(target, request->target);
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

/* Of an image that can be used for the request; NULL: it cannot, or out of memory. */
static tvm_kernel_abi *abis_of(const tvm_image_request *request, const uint64_t hash[2],
                               tvm_embedded_kind kind, const tvm_ir_image *embedded, tvm_target *target) {
    tvm_kernel_abi *abis = NULL;
    if (tvm_target_parse(embedded->target, target, NULL) ||
        !is_wanted(request, kind, embedded->ptx, *target) || !is_fresh(request->program, hash, embedded) ||
        read_abis(request->program, embedded, &abis))
        return NULL;
    if (!lacks_kernels_for(request->program, abis, request->target)) return abis;
    free(abis);
    return NULL;
}

bool tvm_image_find_embedded(const tvm_image_request *request, const uint64_t hash[2], tvm_embedded_kind kind,
                             tvm_image *image) {
    const tvm_ir_program *program = request->program;
    bool found = false;
    for (uint32_t i = 0; i < program->image_count; i++) {
        const tvm_ir_image *embedded = &program->images[i];
        tvm_target target;
        tvm_kernel_abi *abis = abis_of(request, hash, kind, embedded, &target);
        if (!abis) continue;
        if (found && !tvm_target_is_later(target, image->target)) {
            free(abis);
            continue;
        }
        if (found) free(image->kernels);
        found = true;
        *image = (tvm_image){.kernels = abis,
                             .kernel_count = program->kernel_count,
                             .ptx = embedded->ptx,
                             .code = embedded->code,
                             .code_size = embedded->code_size,
                             .source = TVM_IMAGE_EMBEDDED,
                             .target = target};
        memcpy(image->made_by, embedded->made_by, sizeof image->made_by);
    }
    return found;
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
