#include "warn_registers.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

enum { NAMED = 3 };

static uint32_t words_of(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t slot) {
    const tvm_slot *s = &kernel->slots[slot];
    if (s->kind != TVM_SLOT_REGISTER) return 0;
    return (uint32_t)(((uint64_t)tvm_layout_locals(&program->layouts[s->layout]) * s->dtype.bits + 31) / 32);
}

static uint32_t first_assignment(const tvm_ir_kernel *kernel, uint32_t slot) {
    uint32_t i = 0;
    while (i < kernel->insn_count && kernel->insns[i].result != slot) i++;
    return i;
}

/* Of each slot: was it assigned before a loop that reads it? Such a tensor is in registers all the while.
 * NULL without memory. */
static bool *find_held(const tvm_ir_kernel *kernel) {
    bool *held = calloc(kernel->slot_count + (size_t)1, sizeof *held);
    uint32_t *since = malloc((kernel->slot_count + (size_t)1) * sizeof *since);
    uint32_t depth = 0, loop = TVM_NONE, outermost = 0;
    if (since) memset(since, 0xff, (kernel->slot_count + (size_t)1) * sizeof *since);
    for (uint32_t i = 0; held && since && i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        const tvm_operand *operands = tvm_operands(kernel, insn);
        tvm_op_class class = tvm_insn_class(insn);
        if (tvm_class_opens(class)) depth++;
        if (class == TVM_CLASS_LOOP && loop == TVM_NONE) loop = i, outermost = depth;
        for (uint32_t o = 0; o < insn->count; o++)
            if (loop != TVM_NONE && operands[o].kind == TVM_OPERAND_SLOT && since[operands[o].value] < loop)
                held[operands[o].value] = true;
        if (insn->result != TVM_NONE && since[insn->result] == TVM_NONE) since[insn->result] = i;
        if (class == TVM_CLASS_END && depth-- == outermost) loop = TVM_NONE;
    }
    if (!since) free(held);
    if (!since) return NULL;
    free(since);
    return held;
}

static uint32_t largest(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const bool *held,
                        const uint32_t *named, unsigned count) {
    uint32_t best = TVM_NONE;
    for (uint32_t s = 0; s < kernel->slot_count; s++) {
        unsigned i = 0;
        while (i < count && named[i] != s) i++;
        if (i < count || !held[s] || !words_of(program, kernel, s)) continue;
        if (best == TVM_NONE || words_of(program, kernel, s) > words_of(program, kernel, best)) best = s;
    }
    return best;
}

static tvm_status warn(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_kernel_code *code, tvm_diags *diags) {
    uint32_t named[NAMED], slot;
    unsigned count = 0;
    tvm_place place = {0};
    tvm_text text = {0};
    bool *held = find_held(kernel);
    if (!held) return tvm_diag_no_memory(diags);
    while (count < NAMED && (slot = largest(program, kernel, held, named, count)) != TVM_NONE) {
        uint32_t i = first_assignment(kernel, slot);
        named[count++] = slot;
        tvm_text_add(&text, "%s%%%s has %u", count > 1 ? ", " : "; of those that its loops hold, ",
                     tvm_string(program, kernel->slots[slot].name),
                     (unsigned)words_of(program, kernel, slot));
        if (i == kernel->insn_count || place.line) continue;
        place.line = kernel->insns[i].line;
        if (kernel->insns[i].file != TVM_NONE) place.file = tvm_string(program, kernel->insns[i].file);
    }
    free(held);
    bool spills = code->spill_stores || code->spill_loads;
    tvm_diag_add(
        diags, TVM_OK, &place,
        "smaller tiles, more .warps, or a tensor in shared memory in place of one in registers, as the a of mma",
        "kernel %s %s, with %d registers a thread%s", code->name,
        spills ? "spills registers to memory"
               : "has wgmma that run one after the other for want of registers",
        code->registers, tvm_text_string(&text));
    tvm_text_free(&text);
    return TVM_OK;
}

static bool lacks_registers(const tvm_kernel_code *code) {
    bool serialized = strstr(code->loss, "wgmma") && strstr(code->loss, "serialized");
    return code->spill_stores > 0 || code->spill_loads > 0 || serialized;
}

tvm_status tvm_warn_registers(const tvm_ir_program *program, const tvm_module *module, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t k = 0; k < module->kernel_count && status == TVM_OK; k++)
        if (!module->kernels[k].abi.absence && lacks_registers(&module->kernels[k]))
            status = warn(program, &program->kernels[k], &module->kernels[k], diags);
    return status;
}
