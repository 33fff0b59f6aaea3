/* An entry point's parameters: the rows of the kernel's ABI, named by their numbers. */
#include "params.h"

#include <stdio.h>
#include <string.h>

#include "frame.h"

static bool is_wide(const tvm_abi_param *param) {
    return param->width == 8;
}

/* The room that parameters take is bounded by how many there can be: only tensor maps can use it up. */
static uint32_t add(emitter *e, tvm_abi_kind kind, unsigned width, uint32_t index) {
    uint32_t row = tvm_abi_add(&e->code->abi, kind, width, index);
    if (row == TVM_NONE) e->body.failed = true;
    return row == TVM_NONE ? 0 : row;
}

static void load(emitter *e, uint32_t row, uint32_t slot) {
    const tvm_abi_param *param = &e->code->abi.params[row];
    char type[4], text[64];
    reg out;
    memcpy(out.name, e->slots[slot].reg, sizeof out.name);
    snprintf(type, sizeof type, "%c%u", param->kind == TVM_ABI_FLOAT ? 'f' : 'b', is_wide(param) ? 64U : 32U);
    tvm_emit_prologue(e, "%s", tvm_frame_param(e, row, type, out, text));
}

void tvm_params_load(emitter *e) {
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    uint32_t count = tvm_launch_tensors(e->k->kernel, tensors);
    for (uint32_t p = 0; p < e->k->kernel->param_count; p++) {
        tvm_abi_param declared = tvm_abi_declared(e->k->kernel, p);
        load(e, add(e, (tvm_abi_kind)declared.kind, declared.width, p), p);
    }
    for (uint32_t i = 0; i < count; i++) {
        tvm_abi_kind kind = tensors[i].clean ? TVM_ABI_SCRATCH_CLEAN : TVM_ABI_SCRATCH;
        load(e, add(e, kind, 8, i), tensors[i].slot);
    }
}

reg tvm_params_hidden(emitter *e, tvm_abi_kind kind) {
    reg out = tvm_new_r(e);
    char text[64];
    tvm_emit_prologue(e, "%s", tvm_frame_param(e, add(e, kind, 4, 0), "b32", out, text));
    return out;
}

void tvm_emit_load_device(emitter *e, const tvm_expr *node, reg out) {
    tvm_abi_kind kind = node->op == TVM_EXPR_TARGET  ? TVM_ABI_TARGET
                        : node->op == TVM_EXPR_HAS   ? TVM_ABI_CAPABILITY
                        : node->op == TVM_EXPR_LIMIT ? TVM_ABI_LIMIT
                                                     : TVM_ABI_MULTIPROCESSORS;
    uint32_t row = tvm_abi_find(&e->code->abi, kind, node->a);
    if (row == TVM_NONE) row = add(e, kind, 4, node->a);
    char text[64];
    tvm_emit(e, "%s", tvm_frame_param(e, row, "b32", out, text));
}

void tvm_params_write(const tvm_kernel_abi *abi, tvm_text *out) {
    for (uint32_t i = 0; i < abi->param_count; i++) {
        const tvm_abi_param *param = &abi->params[i];
        tvm_text_add(out, "%s\n\t.param ", i ? "," : "");
        if (param->kind == TVM_ABI_TENSOR_MAP)
            tvm_text_add(out, ".align %u .b8 param_%u[%u]", tvm_abi_alignment(param), i, param->width);
        else
            tvm_text_add(out, ".b%u param_%u", is_wide(param) ? 64U : 32U, i);
    }
}
