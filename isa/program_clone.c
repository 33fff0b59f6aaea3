/* Copies of a program's kernels, to be rewritten or translated by themselves. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

/* NULL for nothing to copy, too: *failed tells. */
static void *copied(const void *items, uint32_t count, size_t size, bool *failed) {
    void *copy = count > 0 ? malloc(count * size) : NULL;
    if (copy != NULL) memcpy(copy, items, count * size);
    if (count > 0 && copy == NULL) *failed = true;
    return copy;
}

static void clone_kernel(tvm_ir_kernel *to, const tvm_ir_kernel *from, bool *failed) {
    *to = *from;
    to->expr_index = (tvm_index){0};
    to->certificate = NULL; /* it is of the original */
    to->certificate_count = 0;
    to->slots = copied(from->slots, to->slot_capacity = from->slot_count, sizeof *from->slots, failed);
    to->assumes =
        copied(from->assumes, to->assume_capacity = from->assume_count, sizeof *from->assumes, failed);
    to->exprs = copied(from->exprs, to->expr_capacity = from->expr_count, sizeof *from->exprs, failed);
    to->operands =
        copied(from->operands, to->operand_capacity = from->operand_count, sizeof *from->operands, failed);
    to->insns = copied(from->insns, to->insn_capacity = from->insn_count, sizeof *from->insns, failed);
}

static bool clone_strings(tvm_ir_program *to, const tvm_ir_program *from) {
    to->strings = calloc(from->string_count + (size_t)1, sizeof *to->strings);
    if (to->strings == NULL) return false;
    to->string_capacity = from->string_count + 1;
    for (; to->string_count < from->string_count; to->string_count++)
        if ((to->strings[to->string_count] = strdup(from->strings[to->string_count])) == NULL) return false;
    return true;
}

/* Kernels `first` to `first + count`. */
static tvm_ir_program *clone(const tvm_ir_program *from, uint32_t first, uint32_t count) {
    tvm_ir_program *to = tvm_ir_program_new();
    bool failed = to == NULL || !clone_strings(to, from);
    if (!failed) {
        to->layouts =
            copied(from->layouts, to->layout_capacity = from->layout_count, sizeof *to->layouts, &failed);
        to->layout_count = to->layouts ? from->layout_count : 0;
        to->shared_layouts =
            copied(from->shared_layouts, to->shared_layout_capacity = from->shared_layout_count,
                   sizeof *to->shared_layouts, &failed);
        to->shared_layout_count = to->shared_layouts ? from->shared_layout_count : 0;
        to->kernels = calloc(count + (size_t)1, sizeof *to->kernels);
        failed = failed || to->kernels == NULL;
        to->kernel_capacity = to->kernels ? count + 1 : 0;
    }
    for (uint32_t k = 0; !failed && k < count; k++)
        clone_kernel(&to->kernels[to->kernel_count++], &from->kernels[first + k], &failed);
    if (!failed) return to;
    tvm_ir_program_free(to);
    return NULL;
}

tvm_ir_program *tvm_ir_program_clone_kernels(const tvm_ir_program *from) {
    return clone(from, 0, from->kernel_count);
}

tvm_ir_program *tvm_ir_program_clone_kernel(const tvm_ir_program *from, uint32_t kernel) {
    return clone(from, kernel, 1);
}
