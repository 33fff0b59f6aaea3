#include "source_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "program_file.h"

/* ---- -D and -I ---- */

static const struct argp_option source_options[] = {
    {"define", 'D', "NAME=VALUE", 0, "of a program's text: VALUE replaces that of the first .const NAME", 0},
    {"include", 'I', "DIR", 0, "of a program's text: search DIR for included files", 0},
    {0}};

static error_t append(const char ***list, size_t *count, const char *item) {
    const char **more = reallocarray(*list, *count + 1, sizeof *more);
    if (!more) return ENOMEM;
    *list = more;
    more[(*count)++] = item;
    return 0;
}

static error_t parse_option(int key, char *argument, struct argp_state *state) {
    tvm_source_options *options = state->input;
    switch (key) {
    case 'D':
        if (!strchr(argument, '=')) argp_error(state, "-D takes NAME=VALUE, not '%s'", argument);
        return append(&options->defines, &options->define_count, argument);
    case 'I':
        return append(&options->include_dirs, &options->include_dir_count, argument);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp tvm_source_argp = {.options = source_options, .parser = parse_option};

void tvm_source_options_free(tvm_source_options *options) {
    free(options->defines);
    free(options->include_dirs);
    *options = (tvm_source_options){0};
}

static void reads_file(void *files, const char *path) {
    tvm_tool_reads(files, path);
}

tvm_assembler_options tvm_source_assembler(const tvm_source_options *options, tvm_tool_files *files) {
    return (tvm_assembler_options){.defines = options->defines,
                                   .define_count = options->define_count,
                                   .include_dirs = options->include_dirs,
                                   .include_dir_count = options->include_dir_count,
                                   .reads = files ? reads_file : NULL,
                                   .closure = files};
}

/* ---- the file ---- */

tvm_status tvm_source_read_file(const char *path, const tvm_source_options *options, tvm_tool_files *files,
                                tvm_graph_text **graph, bool *is_text, tvm_ir_program **program,
                                tvm_diags *diags) {
    tvm_assembler_options how = tvm_source_assembler(options, files);
    how.graph = graph;
    if (files) tvm_tool_reads(files, path);
    bool text = true;
    tvm_status status = tvm_program_file_read(path, &how, &text, program, diags);
    if (is_text) *is_text = text;
    if (status || text || !options->include_dir_count) return status;
    tvm_ir_program_free(*program);
    *program = NULL;
    return tvm_diag_add(diags, TVM_USAGE, &(tvm_place){.file = path},
                        "it goes with tvm-as, which made this file",
                        "-I is for a program's text, and this is bytecode");
}
