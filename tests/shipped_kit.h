/* What the suites of the shipped programs share: assembled with definitions, put through ptxas. */
#ifndef TVM_TESTS_SHIPPED_KIT_H
#define TVM_TESTS_SHIPPED_KIT_H

#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "fileio.h"
#include "ptxas_kit.h"
#include "vbc.h"

static inline const char *programs_folder(void) {
    static char folder[4096];
    const char *top = getenv("srcdir");
    snprintf(folder, sizeof folder, "%s/programs", top != NULL ? top : ".");
    return folder;
}

/* `define` holds definitions NAME=VALUE with a space between. */
static inline tvm_status assemble_text_with(const char *text, size_t size, const char *path,
                                            const char *define, tvm_ir_program **program, tvm_diags *diags) {
    size_t count = 0;
    char copy[256];
    enum { MOST = 16 };
    const char *defines[MOST], *folder = programs_folder();
    snprintf(copy, sizeof copy, "%s", define);
    for (char *next = strtok(copy, " "); next != NULL; next = strtok(NULL, " ")) {
        ck_assert_uint_lt(count, MOST);
        defines[count++] = next;
    }
    tvm_assembler_options options = {
        .include_dirs = &folder, .include_dir_count = 1, .defines = defines, .define_count = count};
    return tvm_assemble_text(text, size, path, &options, program, diags);
}

static inline tvm_status assemble_with(const char *path, const char *define, tvm_ir_program **program,
                                       tvm_diags *diags) {
    uint8_t *text = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &text, &size, diags), TVM_OK);
    tvm_status status = assemble_text_with((const char *)text, size, path, define, program, diags);
    free(text);
    return status;
}

static inline tvm_ir_program *assemble_file(const char *path, const char *define) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = assemble_with(path, define, &program, &diags);
    tvm_diags_print(&diags, stderr, "test_programs", false);
    ck_assert_msg(status == TVM_OK, "%s with '%s' is refused", path, define);
    tvm_diags_free(&diags);
    return program;
}

static inline const char *program_path(const char *name, char path[5000]) {
    snprintf(path, 5000, "%s/%s", programs_folder(), name);
    return path;
}

/* With these definitions the assembler refuses the program with a message that contains `message`. */
static inline void is_refused(const char *path, const char *define, const char *message) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_ne(assemble_with(path, define, &program, &diags), TVM_OK);
    FILE *stream = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(stream);
    tvm_diags_print(&diags, stream, "test", false);
    fclose(stream);
    ck_assert_msg(strstr(text, message) != NULL, "%s: %s", define, text);
    free(text);
    tvm_diags_free(&diags);
}

static inline uint8_t *bytecode_of(const char *path, const char *define, size_t *size) {
    uint8_t *bytes = NULL;
    tvm_ir_program *program = assemble_file(path, define);
    ck_assert_int_eq(tvm_vbc_write(program, false, &bytes, size, NULL), TVM_OK);
    tvm_ir_program_free(program);
    return bytes;
}

/* The file that the build makes of NAME_SOURCE.vasm for another type: the same program as with WTYPE defined.
 */
static inline void generated_is_defined(const char *name, const char *source_type, tvm_dtype type) {
    char type_name[TVM_DTYPE_NAME_MAX], path[5000], source[5000], file[64], define[64];
    const char *build = getenv("builddir");
    size_t made_size, defined_size;
    tvm_dtype_name(type, type_name);
    snprintf(file, sizeof file, "%s_%s.vasm", name, source_type);
    program_path(file, source);
    snprintf(path, sizeof path, "%s/programs/%s_%s.vasm", build != NULL ? build : ".", name, type_name);
    snprintf(define, sizeof define, "WTYPE=%s", type_name);
    uint8_t *made = bytecode_of(strcmp(type_name, source_type) == 0 ? source : path, "", &made_size);
    uint8_t *defined = bytecode_of(source, define, &defined_size);
    ck_assert_mem_eq(made, defined, made_size < defined_size ? made_size : defined_size);
    ck_assert_uint_eq(made_size, defined_size);
    free(made), free(defined);
}

static inline void compiles_without_spills(const tvm_ir_program *program, const char *what,
                                           const char *target_name) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    ptxas_verdict verdict = {0};
    char name[300];
    snprintf(name, sizeof name, "%s for %s", what, target_name);
    ck_assert_int_eq(tvm_target_parse(target_name, &target, &diags), TVM_OK);
    tvm_status status = tvm_translate(program, target, &module, &diags);
    if (status == TVM_OK) status = ptxas_judge(module, name, &verdict, &diags);
    tvm_diags_print(&diags, stderr, "test_programs", false);
    ck_assert_msg(status == TVM_OK, "%s", name);
    ck_assert_msg(strstr(module->ptx, "trap;") == NULL, "%s: the bounds of an access are not proved", name);
    ck_assert_msg(verdict.kernel == NULL, "%s: kernel %s: %d bytes of spills stored, %d loaded; %s", name,
                  verdict.kernel, verdict.stored, verdict.loaded, verdict.loss);
    tvm_module_free(module);
}

#endif
