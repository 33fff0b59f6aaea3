#include "language.h"

#include "mma.h"
#include "shared_view.h"
#include "tensor_memory.h"

#include <string.h>

static void need(unsigned *version, unsigned since) {
    if (since > *version) *version = since;
}

/* Does the result have a layout other than the language's first version gave it: that of the first operand of
 * its shape? (Then the row's layout is used, written or not.) */
static bool has_layout_of_its_own(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                  const tvm_insn *insn) {
    const tvm_layout *result = &program->layouts[kernel->slots[insn->result].layout];
    for (uint32_t i = 0; i < insn->count; i++) {
        const tvm_operand operand = tvm_operands(kernel, insn)[i];
        if (operand.kind != TVM_OPERAND_SLOT) continue;
        const tvm_layout *layout = &program->layouts[kernel->slots[operand.value].layout];
        if (layout->rank == result->rank &&
            memcmp(layout->shape, result->shape, result->rank * sizeof result->shape[0]) == 0)
            return !tvm_layout_equal(layout, result);
    }
    return true;
}

/* Does the row take elements of the result's type only from version 5 of the language on? */
static bool is_later_type(const tvm_op_info *info, tvm_dtype type) {
    unsigned later = type.bits == 64 ? TVM_TRAIT_DOUBLE_5 : TVM_TRAIT_FLOAT_5;
    return type.kind == TVM_KIND_FLOAT && (info->traits & later);
}

/* What is known of the rows that were met: all of their operands came with them, or not. */
typedef enum row_age { UNKNOWN, OF_ONE_AGE, OF_SEVERAL } row_age;
typedef struct row_ages {
    uint8_t of[TVM_OP_COUNT]; /* row_age */
} row_ages;

static bool has_later_operands(const tvm_op_info *info) {
    const char *cursor = info->operands;
    tvm_operand_desc desc;
    while (tvm_operand_next(&cursor, &desc)) {
        const tvm_operand_words *words = tvm_words_of(desc.kind);
        if (desc.since > 0 || (words != NULL && words->since != NULL)) return true;
    }
    return false;
}

static void need_operands(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                          unsigned *version) {
    const char *cursor = tvm_op(insn->op)->operands;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    tvm_operand_desc desc;
    uint32_t at = 0;
    while (tvm_operand_next(&cursor, &desc)) {
        if (desc.kind == 'L' && desc.since > *version && has_layout_of_its_own(program, kernel, insn))
            need(version, desc.since);
        if (!desc.stored || at >= insn->count) continue;
        const tvm_operand_words *words = tvm_words_of(desc.kind);
        bool given = operands[at].kind != TVM_OPERAND_NONE;
        bool is_tile = operands[at].kind == TVM_OPERAND_SLOT &&
                       kernel->slots[operands[at].value].kind != TVM_SLOT_REGISTER;
        if (desc.since > 0 && (desc.optional ? given : is_tile)) need(version, desc.since);
        if (given && words != NULL && words->since != NULL) need(version, words->since[operands[at].value]);
        at += tvm_entry_operands(program, kernel, &desc, &operands[at]);
    }
}

static void need_insn(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                      row_ages *ages, unsigned *version) {
    const tvm_op_info *info = tvm_op(insn->op);
    uint8_t *age = &ages->of[insn->op];
    need(version, info->since);
    if (insn->op == TVM_OP_MMA)
        need(version, tvm_mma_since(program, kernel, tvm_operands(kernel, insn), insn->count));
    if (insn->op == TVM_OP_VIEW_SHARED && tvm_shared_view_joins(program, kernel, insn->result))
        need(version, TVM_LANGUAGE_OF_JOINTS);
    if (insn->op == TVM_OP_MMA &&
        tvm_mma_broadcasts(program, kernel, tvm_operands(kernel, insn), insn->count))
        need(version, TVM_LANGUAGE_OF_BROADCASTS);
    bool copies = insn->op == TVM_OP_COPY_BULK || insn->op == TVM_OP_COPY_ASYNC;
    if (copies && tvm_copy_spreads(program, kernel, insn)) need(version, TVM_LANGUAGE_OF_SPREAD);
    if (info->result == TVM_SLOT_REGISTER && is_later_type(info, kernel->slots[insn->result].dtype))
        need(version, 5);
    if (*age == UNKNOWN) *age = has_later_operands(info) ? OF_SEVERAL : OF_ONE_AGE;
    if (*age == OF_SEVERAL) need_operands(program, kernel, insn, version);
}

uint32_t tvm_language_operands(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                               const tvm_insn *insn, unsigned version) {
    const char *cursor = tvm_op(insn->op)->operands;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    tvm_operand_desc desc;
    uint32_t at = 0;
    while (at < insn->count && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        if (desc.optional && desc.since > version) break;
        at += tvm_entry_operands(program, kernel, &desc, &operands[at]);
    }
    return at;
}

static void need_kernel(const tvm_ir_program *program, const tvm_ir_kernel *kernel, row_ages *ages,
                        unsigned *version) {
    if (tvm_cluster_blocks(kernel) > 1) need(version, TVM_LANGUAGE_OF_CLUSTERS);
    for (uint32_t i = 0; i < kernel->expr_count; i++)
        need(version, tvm_expr_op_info(kernel->exprs[i].op)->since);
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        need_insn(program, kernel, &kernel->insns[i], ages, version);
    for (uint32_t i = 0; i < kernel->slot_count; i++) {
        const tvm_slot *slot = &kernel->slots[i];
        if (tvm_dtype_same(slot->dtype, TVM_E8M0) || slot->form != TVM_FORM_ROW_MAJOR) need(version, 3);
        if (slot->kind == TVM_SLOT_SHARED && slot->dtype.bits < 8) need(version, TVM_LANGUAGE_OF_PACKED);
    }
}

static void need_entry(const tvm_ir_program *program, const tvm_ir_entry *entry, row_ages *ages,
                       unsigned *version) {
    need_kernel(program, &entry->head, ages, version);
    for (uint32_t i = 0; i < entry->case_count; i++)
        if (entry->cases[i].cost != TVM_NONE) need(version, TVM_LANGUAGE_OF_COSTS);
}

unsigned tvm_language_needed(const tvm_ir_program *program) {
    unsigned version = 1;
    row_ages ages = {{UNKNOWN}};
    for (uint32_t i = 0; i < program->kernel_count; i++)
        need_kernel(program, &program->kernels[i], &ages, &version);
    for (uint32_t i = 0; i < program->entry_count; i++)
        need_entry(program, &program->entries[i], &ages, &version);
    return version;
}

unsigned tvm_language_later_operands(const tvm_op_info *info, unsigned version) {
    const char *cursor = info->operands;
    tvm_operand_desc desc;
    unsigned later = 0;
    while (tvm_operand_next(&cursor, &desc)) later += desc.stored && desc.optional && desc.since > version;
    return later;
}
