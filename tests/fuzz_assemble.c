/* Fuzzing target: any text is assembled or refused with a message; what is assembled goes through every later
 * stage. */
#include "fuzz_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_graph_text *graph = NULL;
    const tvm_assembler_options options = {.graph = &graph};
    tvm_status status = tvm_assemble_text((const char *)data, size, "fuzz.vasm", &options, &program, &diags);
    fuzz_status(status, &diags);
    tvm_diags_free(&diags);
    if (status == TVM_OK) fuzz_program(program);
    tvm_graph_text_free(graph);
    tvm_ir_program_free(program);
    return 0;
}
