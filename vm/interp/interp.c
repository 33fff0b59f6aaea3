#include "interp_impl.h"
#include "shared_view.h"

#include <stdlib.h>
#include <string.h>

/* A family without functions of these names does not link. */
static const struct {
    interp_function execute;
    interp_plan_function plan;
} families[TVM_OP_COUNT] = {
#define TVM_OP(number, id, mnemonic, since, class, family, ...)                                              \
    [number] = {tvm_interp_##family, tvm_plan_##family},
#include "opcodes.def"
};

void tvm_interp_need_scratch(tvm_interp_kernel *kernel, size_t bytes) {
    if (bytes > kernel->scratch_bytes) kernel->scratch_bytes = bytes;
}

static uint32_t slot_extent(const tvm_ir_program *program, const tvm_slot *slot) {
    uint32_t extent = 1;
    const uint32_t *shape = tvm_slot_shape(program, slot);
    for (unsigned d = 0; d < tvm_slot_rank(program, slot); d++) extent *= shape[d];
    return extent;
}

/* Gives every register and shared tensor, and those in tensor memory, its place, and every mbarrier its
 * number. False: no memory. */
static bool place_tensors(tvm_interp_kernel *k) {
    size_t shared = 0, registers = 0;
    for (uint32_t s = 0; s < k->kernel->slot_count; s++) {
        const tvm_slot *slot = interp_slot(k, s);
        if (slot->kind == TVM_SLOT_BARRIER) {
            k->offsets[s] = k->barrier_count;
            k->barrier_count += slot_extent(k->program, slot);
        }
        if (slot->kind != TVM_SLOT_REGISTER && slot->kind != TVM_SLOT_SHARED && slot->kind != TVM_SLOT_TENSOR)
            continue;
        k->extents[s] = slot_extent(k->program, slot);
        if (slot->view) continue;
        size_t *offset = slot->kind == TVM_SLOT_REGISTER ? &registers : &shared;
        k->offsets[s] = *offset;
        size_t bytes = (size_t)k->extents[s] * tvm_dtype_container(slot->dtype) + INTERP_SLACK;
        *offset += (bytes + 63) / 64 * 64;
    }
    for (uint32_t s = 0; s < k->kernel->slot_count; s++) {
        tvm_shared_root root;
        if (interp_slot(k, s)->kind != TVM_SLOT_SHARED || !interp_slot(k, s)->view) continue;
        tvm_shared_root_find(k->program, k->kernel, s, &root);
        k->offsets[s] =
            k->offsets[root.slot] + (size_t)root.first * tvm_dtype_container(interp_slot(k, s)->dtype);
        if (!tvm_shared_digits_split(root.digits, tvm_slot_rank(k->program, interp_slot(k, s)))) continue;
        k->split[s] = malloc(sizeof root.digits);
        if (!k->split[s]) return false;
        memcpy(k->split[s], root.digits, sizeof root.digits);
    }
    k->memory_bytes = shared;
    k->register_bytes = registers;
    return true;
}

static void number_globals(tvm_interp_kernel *k) {
    k->launch_tensor_count = tvm_launch_tensors(k->kernel, k->launch_tensors);
    for (uint32_t p = 0; p < k->kernel->param_count; p++) k->globals[p] = p;
    for (uint32_t i = 0; i < k->launch_tensor_count; i++)
        k->globals[k->launch_tensors[i].slot] = k->kernel->param_count + i;
    for (uint32_t s = 0; s < k->kernel->slot_count; s++)
        if (interp_slot(k, s)->view && interp_slot(k, s)->kind == TVM_SLOT_GLOBAL)
            k->globals[s] = k->kernel->param_count + k->launch_tensor_count + k->view_count++;
}

static tvm_status plan_insns(tvm_interp_kernel *k, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    k->waits = tvm_kernel_waits(k->kernel);
    for (uint32_t i = 0; i < k->kernel->insn_count && status == TVM_OK; i++) {
        interp_insn *insn = &k->insns[i];
        insn->source = &k->kernel->insns[i];
        if (tvm_insn_class(insn->source) == TVM_CLASS_SECTION) k->has_roles = true;
        insn->operands = tvm_operands(k->kernel, insn->source);
        insn->execute = families[insn->source->op].execute;
        status = families[insn->source->op].plan(k, insn, diags);
    }
    return status;
}

tvm_status tvm_interp_prepare(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                              tvm_interp_kernel **out, tvm_diags *diags) {
    *out = NULL;
    tvm_interp_kernel *k = calloc(1, sizeof *k);
    if (!k) return tvm_diag_no_memory(diags);
    k->program = program;
    k->kernel = kernel;
    k->insns = calloc((size_t)kernel->insn_count + 1, sizeof *k->insns);
    k->offsets = calloc((size_t)kernel->slot_count + 1, sizeof *k->offsets);
    k->extents = calloc((size_t)kernel->slot_count + 1, sizeof *k->extents);
    k->split = calloc((size_t)kernel->slot_count + 1, sizeof *k->split);
    k->globals = calloc((size_t)kernel->slot_count + 1, sizeof *k->globals);
    tvm_status status = TVM_OK;
    if (!k->insns || !k->offsets || !k->extents || !k->globals || !k->split || !place_tensors(k)) {
        status = tvm_diag_no_memory(diags);
    } else {
        number_globals(k);
        status = plan_insns(k, diags);
    }
    if (status != TVM_OK) {
        tvm_interp_free(k);
        return status;
    }
    *out = k;
    return TVM_OK;
}

void tvm_interp_free(tvm_interp_kernel *kernel) {
    if (!kernel) return;
    if (kernel->insns)
        for (uint32_t i = 0; i < kernel->kernel->insn_count; i++) free(kernel->insns[i].plan);
    free(kernel->insns);
    free(kernel->offsets);
    free(kernel->extents);
    free(kernel->globals);
    for (uint32_t s = 0; kernel->split && s < kernel->kernel->slot_count; s++) free(kernel->split[s]);
    free(kernel->split);
    free(kernel);
}
