#include "source_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"
#include "lexer.h"
#include "vbc.h"

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

static bool ends_in(const char *path, const char *extension) {
    size_t length = strlen(path), size = strlen(extension);
    return length > size && strcmp(path + length - size, extension) == 0;
}

/* As far as a file may be text, a text's limit; a NUL byte ends that. */
static uint64_t program_extent(const uint8_t *bytes, size_t size) {
    uint64_t bytecode = tvm_vbc_extent(bytes, size);
    if (bytecode > size) return bytecode;
    return bytecode || (size && memchr(bytes, 0, size)) ? bytecode : TVM_SOURCE_MAX;
}

static bool is_program_text(const char *path, const uint8_t *bytes, size_t size) {
    if (tvm_vbc_begins(bytes, size) || ends_in(path, ".vbc")) return false;
    return ends_in(path, ".vasm") || !memchr(bytes, 0, size);
}

tvm_status tvm_source_read_file(const char *path, const tvm_source_options *options, tvm_tool_files *files,
                                bool *is_text, tvm_ir_program **program, tvm_diags *diags) {
    uint8_t *bytes;
    size_t size;
    if (files) tvm_tool_reads(files, path);
    tvm_status status = tvm_file_read_extent(path, TVM_VBC_FILE_MAX, program_extent, &bytes, &size, diags);
    if (status) return status;
    const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    const tvm_place place = {.file = name};
    const tvm_assembler_options how = tvm_source_assembler(options, files);
    bool text = is_program_text(path, bytes, size);
    if (is_text) *is_text = text;
    if (text)
        status = tvm_assemble_text((const char *)bytes, size, path, &how, program, diags);
    else if (options->define_count || options->include_dir_count)
        status = tvm_diag_add(diags, TVM_USAGE, &place, "they go with tvm-as, which made this file",
                              "-D and -I are for a program's text, and this is bytecode");
    else
        status = tvm_vbc_read(bytes, size, name, program, diags);
    free(bytes);
    return status;
}
