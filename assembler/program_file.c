#include "program_file.h"

#include <stdlib.h>
#include <string.h>

#include "fileio.h"
#include "lexer.h"
#include "vbc.h"

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

tvm_status tvm_program_file_read(const char *path, const tvm_assembler_options *options, bool *is_text,
                                 tvm_ir_program **program, tvm_diags *diags) {
    uint8_t *bytes;
    size_t size;
    *program = NULL;
    tvm_status status = tvm_file_read_extent(path, TVM_VBC_FILE_MAX, program_extent, &bytes, &size, diags);
    if (status) return status;
    const char *name = strcmp(path, "-") == 0 ? "<stdin>" : path;
    const tvm_place place = {.file = name};
    bool text = is_program_text(path, bytes, size);
    if (is_text) *is_text = text;
    if (text)
        status = tvm_assemble_text((const char *)bytes, size, path, options, program, diags);
    else if (options->define_count)
        status = tvm_diag_add(diags, TVM_USAGE, &place, "they go with tvm-as, which made this file",
                              "constants are for a program's text, and this is bytecode");
    else
        status = tvm_vbc_read(bytes, size, name, program, diags);
    free(bytes);
    return status;
}
