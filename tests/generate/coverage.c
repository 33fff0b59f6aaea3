#include "coverage.h"

#include <stdio.h>

static unsigned number_of(tvm_dtype type) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    unsigned count = (unsigned)tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), i = 0;
    while (i + 1 < count && !tvm_dtype_same(types[i], type)) i++;
    return i;
}

static void cover_insn(generate_coverage *c, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_insn *insn) {
    const char *cursor = tvm_op(insn->op)->operands;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    tvm_operand_desc desc;
    uint32_t at = 0;
    c->rows[insn->op]++;
    for (unsigned i = 0; i < COVERAGE_OPERANDS && tvm_operand_next(&cursor, &desc); i++) {
        if (!desc.stored) continue;
        if (operands[at].kind != TVM_OPERAND_NONE) {
            c->operands[insn->op][i]++;
            if (tvm_words_of(desc.kind)) c->words[insn->op][i][operands[at].value]++;
        }
        at += tvm_entry_operands(program, kernel, &desc, &operands[at]);
    }
}

void generate_cover(generate_coverage *c, const tvm_ir_program *program) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t i = 0; i < kernel->insn_count; i++) cover_insn(c, program, kernel, &kernel->insns[i]);
    for (uint32_t i = 0; i < kernel->expr_count; i++) c->operators[kernel->exprs[i].op]++;
    for (uint32_t i = 0; i < kernel->slot_count; i++) {
        const tvm_slot *slot = &kernel->slots[i];
        if (slot->kind != TVM_SLOT_BARRIER) c->types[number_of(slot->dtype)]++;
        if (slot->kind == TVM_SLOT_GLOBAL) c->forms[slot->form]++;
    }
}

/* ---- names ---- */

static void see_words(const generate_coverage *c, const tvm_operand_words *words, unsigned op,
                      unsigned operand, const char *name, coverage_see see, void *data) {
    char part[160];
    for (unsigned w = 0; w < words->count && w < COVERAGE_WORDS; w++) {
        snprintf(part, sizeof part, "%s %s", name, words->names[w]);
        see(data, part, c->words[op][operand][w]);
    }
}

static void see_row(const generate_coverage *c, unsigned op, coverage_see see, void *data) {
    const char *cursor = tvm_op(op)->operands;
    tvm_operand_desc desc;
    char part[96];
    see(data, tvm_op(op)->mnemonic, c->rows[op]);
    for (unsigned i = 0; i < COVERAGE_OPERANDS && tvm_operand_next(&cursor, &desc); i++) {
        const tvm_operand_words *words = tvm_words_of(desc.kind);
        snprintf(part, sizeof part, "%s %.*s", tvm_op(op)->mnemonic, (int)desc.name_length, desc.name);
        if (desc.stored && desc.optional) see(data, part, c->operands[op][i]);
        if (desc.stored && words) see_words(c, words, op, i, part, see, data);
    }
}

void generate_coverage_each(const generate_coverage *c, coverage_see see, void *data) {
    static const char *const forms[TVM_FORMS] = {"row-major", "strided", "part"};
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    char part[96], name[TVM_DTYPE_NAME_MAX];
    for (unsigned op = 0; op < TVM_OP_COUNT; op++)
        if (tvm_op(op)) see_row(c, op, see, data);
    for (unsigned op = 0; op < TVM_EXPR_COUNT; op++) {
        if (!tvm_expr_op_info(op)) continue;
        snprintf(part, sizeof part, "operator %s", tvm_expr_op_info(op)->text);
        see(data, part, c->operators[op]);
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(part, sizeof part, "type %s", tvm_dtype_name(types[i], name));
        see(data, part, c->types[i]);
    }
    for (unsigned i = 0; i < TVM_FORMS; i++) {
        snprintf(part, sizeof part, "global tensor %s", forms[i]);
        see(data, part, c->forms[i]);
    }
}
