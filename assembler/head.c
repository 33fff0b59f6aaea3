/* What kernels and entries have in common while they are read. */
#include "head.h"

#include <string.h>

#include "cursor.h"
#include "infer_open.h"
#include "names.h"
#include "report.h"
#include "variables.h"

static bool is_named(const tvm_asm *as, const tvm_ir_kernel *kernel, const char *name, uint32_t length) {
    const char *other = tvm_string(as->program, kernel->name);
    return strlen(other) == length && memcmp(other, name, length) == 0;
}

bool tvm_asm_launch_name(tvm_asm *as, const char *what, const char **name, uint32_t *length) {
    const tvm_token *token = tvm_asm_peek(as);
    const tvm_ir_program *program = as->program;
    if (!tvm_asm_expect_name(as, what, name, length)) return false;
    for (uint32_t i = 0; i < program->kernel_count; i++)
        if (is_named(as, &program->kernels[i], *name, *length))
            tvm_asm_error(as, token, NULL, "there is already a kernel '%.*s'", (int)*length, *name);
    for (uint32_t i = 0; i < program->entry_count; i++)
        if (is_named(as, &program->entries[i].head, *name, *length))
            tvm_asm_error(as, token, NULL, "there is already an entry '%.*s'", (int)*length, *name);
    return true;
}

const char *tvm_asm_what_is_open(const tvm_asm *as) {
    if (as->kernel.is_graph) return "graph";
    return as->kernel.is_entry ? "entry" : "kernel";
}

void tvm_asm_kernel_open(tvm_asm *as, const tvm_token *token) {
    as->kernel.begun = true;
    as->kernel.role = TVM_NONE;
    as->kernel.source = as->text.source;
    as->kernel.token = (uint32_t)(token - as->text.source->tokens);
    as->kernel.frames = as->text.frame_count;
    as->kernel.control_count = 0;
    tvm_symbols_enter(&as->statics.names);
}

void tvm_asm_graph_leave(tvm_asm *as) {
    as->program = as->graph.kernels;
    as->graph.kernels = NULL;
    as->kernel.is_graph = false;
}

void tvm_asm_kernel_close(tvm_asm *as) {
    as->kernel.begun = as->kernel.is_entry = false;
    as->kernel.control_count = 0;
    tvm_symbols_clear(&as->kernel.parameters);
    tvm_asm_forget_open(as);
    tvm_asm_forget_variables(as);
    tvm_symbols_leave(&as->statics.names);
    if (as->kernel.is_graph) tvm_asm_graph_leave(as);
}

bool tvm_asm_check_warps(tvm_asm *as, const tvm_token *token) {
    if (as->kernel.warps_seen || as->kernel.warps_missed) return true;
    as->kernel.warps_missed = true;
    tvm_asm_error(as, token, NULL, "expected '.warps' before the first instruction of the kernel");
    return true;
}
