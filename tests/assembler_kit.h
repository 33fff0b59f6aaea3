/* Assembling in tests: programs in strings, and what came of them. */
#ifndef TESTS_ASSEMBLER_KIT_H
#define TESTS_ASSEMBLER_KIT_H

#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "program.h"

#define HEAD                                                                                                 \
    ".vasm 1\n.kernel f(m: i32, n: i32, l: i64, u: u32, b: bool, x: f32, a: global f32[m, n])\n.warps 1\n"
#define TAIL ".end\n"

static inline tvm_ir_program *assemble_with(const char *text, const tvm_assembler_options *options) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(text, strlen(text), "test.vasm", options, &program, &diags);
    if (status != TVM_OK) {
        tvm_diags_print(&diags, stderr, "test", false);
        ck_abort_msg("not assembled:\n%s", text);
    }
    ck_assert_uint_eq(diags.count, 0);
    tvm_diags_free(&diags);
    return program;
}

static inline tvm_ir_program *assemble(const char *text) {
    return assemble_with(text, NULL);
}

/* Between HEAD and TAIL. */
static inline tvm_ir_program *assemble_body(const char *body) {
    char text[8192];
    int length = snprintf(text, sizeof text, "%s%s\n%s", HEAD, body, TAIL);
    ck_assert_int_lt(length, (int)sizeof text);
    return assemble(text);
}

static inline const tvm_slot *slot_named(const tvm_ir_program *program, const char *name) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t i = 0; i < kernel->slot_count; i++)
        if (strcmp(tvm_string(program, kernel->slots[i].name), name) == 0) return &kernel->slots[i];
    ck_abort_msg("no slot %s", name);
    return NULL;
}

static inline const tvm_insn *insn_at(const tvm_ir_program *program, uint32_t index) {
    ck_assert_uint_lt(index, program->kernels[0].insn_count);
    return &program->kernels[0].insns[index];
}

#endif
