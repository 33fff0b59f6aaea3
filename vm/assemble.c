/* tvm_assemble: the only part of vm/ that depends on the assembler. */
#include "assembler.h"
#include "runtime.h"

tvm_status tvm_assemble(tvm_context *context, const char *text, size_t length,
                        const tvm_assemble_options *options, tvm_program **code) {
    static const tvm_assemble_options defaults = {0};
    if (!context || (!text && length) || !code) return tvm_context_missing(context, __func__);
    *code = NULL;
    if (!options) options = &defaults;
    tvm_assembler_options how = {.defines = options->defines,
                                 .define_count = options->define_count,
                                 .include_dirs = options->include_dirs,
                                 .include_dir_count = options->include_dir_count};
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = tvm_assemble_text(text ? text : "", length, options->name, &how, &program, &diags);
    if (!status) status = tvm_context_load(context, program, code, &diags);
    return tvm_context_finish(context, status, &diags);
}
