/* tvm-dis: prints bytecode as text. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assembler.h"
#include "fileio.h"
#include "tool.h"
#include "tool_files.h"
#include "vbc.h"

#include "config.h"

typedef struct arguments {
    const char *input;
    const char *output;
} arguments;

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0, "write the text to FILE instead of standard output", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *argument, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case 'o':
        args->output = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (args->input) argp_error(state, "more than one input file");
        args->input = argument;
        return 0;
    case ARGP_KEY_END:
        if (!args->input) argp_error(state, "no input file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The text, after a comment for each image that is embedded; malloc'ed. NULL when out of memory. */
static char *with_images(const tvm_ir_program *program, const char *text) {
    char *listed = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&listed, &size);
    if (!stream) return NULL;
    for (uint32_t i = 0; i < program->image_count; i++) {
        const tvm_ir_image *image = &program->images[i];
        fprintf(stream, "; embedded %s for %s, %zu bytes, code generator %u%s%s\n",
                image->ptx ? "PTX" : "cubin", image->target, image->code_size, (unsigned)image->codegen,
                image->made_by[0] ? ", by " : "", image->made_by);
    }
    fputs(text, stream);
    if (!fclose(stream)) return listed;
    free(listed);
    return NULL;
}

static tvm_status disassemble(const arguments *args, tvm_diags *diags) {
    tvm_ir_program *program;
    char *text = NULL, *listed = NULL;
    tvm_status status = tvm_vbc_read_file(args->input, &program, diags);
    if (status != TVM_OK) return status;
    const char *output = args->output ? args->output : "-";
    tvm_tool_files files = {0};
    tvm_tool_reads(&files, args->input);
    status = tvm_tool_writes(&files, output, TVM_FILE_PROGRAM, diags);
    tvm_tool_files_free(&files);
    if (status == TVM_OK) status = tvm_disassemble(program, &text, diags);
    if (status == TVM_OK && !(listed = with_images(program, text))) status = tvm_diag_no_memory(diags);
    if (status == TVM_OK) status = tvm_file_write(output, listed, strlen(listed), diags);
    free(listed);
    free(text);
    tvm_ir_program_free(program);
    return status;
}

int main(int argc, char **argv) {
    static const struct argp parser = {
        options, parse, "FILE.vbc", "Prints Tilus VM bytecode as text that tvm-as assembles to it again.",
        NULL,    NULL,  NULL};
    arguments args = {0};
    tvm_diags diags = {0};
    tvm_status status =
        tvm_tool_parse(&parser, "tvm-dis (Tilus VM) " PACKAGE_VERSION, argc, argv, &args, &diags);
    if (!status) status = disassemble(&args, &diags);
    return tvm_tool_end("tvm-dis", status, &diags);
}
