/* tvm-cc: bytecode to PTX, cubin, or a report of what was selected. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen.h"
#include "fileio.h"
#include "ptx_compiler.h"
#include "vbc.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION ""
#endif

enum { EXIT_USAGE = 2, KEY_EMIT = 256, KEY_EXPLAIN, KEY_PTXAS };

typedef enum output_kind { EMIT_PTX, EMIT_CUBIN, EMIT_REPORT, EMIT_KINDS } output_kind;
static const char *const kind_names[EMIT_KINDS] = {"ptx", "cubin", "report"};

typedef struct arguments {
    const char *input, *output, *target, *ptxas;
    output_kind kind;
    bool explain;
} arguments;

static output_kind parse_kind(const char *text, struct argp_state *state) {
    for (unsigned k = 0; k < EMIT_KINDS; k++)
        if (strcmp(text, kind_names[k]) == 0) return (output_kind)k;
    argp_error(state, "--emit: unknown '%s', expected ptx, cubin or report", text);
    return EMIT_PTX;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    arguments *a = state->input;
    switch (key) {
    case 't':
        a->target = text;
        return 0;
    case 'o':
        a->output = text;
        return 0;
    case KEY_EMIT:
        a->kind = parse_kind(text, state);
        return 0;
    case KEY_EXPLAIN:
        a->explain = true;
        return 0;
    case KEY_PTXAS:
        a->ptxas = text;
        return 0;
    case ARGP_KEY_ARG:
        if (a->input) argp_error(state, "one bytecode file at a time: '%s' is the second", text);
        a->input = text;
        return 0;
    case ARGP_KEY_END:
        if (!a->input) argp_error(state, "no bytecode file is given");
        if (a->kind == EMIT_CUBIN && strcmp(a->output, "-") == 0 && isatty(STDOUT_FILENO))
            argp_error(state, "a cubin is not written to a terminal: use -o FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"target", 't', "TARGET", 0,
     "translate for TARGET, such as sm_80, sm_89, sm_90a, sm_100a (default: sm_80)", 0},
    {"emit", KEY_EMIT, "KIND", 0, "write ptx (the default), cubin or report", 0},
    {"output", 'o', "FILE", 0, "write to FILE; - is standard output, the default", 0},
    {"explain", KEY_EXPLAIN, NULL, 0, "also report what was selected for each instruction, to standard error",
     0},
    {"ptxas", KEY_PTXAS, "PATH", 0, "run this ptxas", 0},
    {0},
};

static tvm_status find_compiler(const arguments *a, tvm_ptx_compiler *compiler, tvm_diags *diags) {
    return a->ptxas ? tvm_ptx_compiler_ptxas(a->ptxas, compiler, diags)
                    : tvm_ptx_compiler_find(compiler, NULL, diags);
}

/* Compiles where it is needed: for a cubin, and for the registers and spills of a report, which does without
 * them when there is no compiler and none was asked for. */
static tvm_status compile_ptx(tvm_module *module, const arguments *a, tvm_diags *diags) {
    tvm_ptx_compiler compiler;
    if (a->kind == EMIT_PTX && !a->explain) return TVM_OK;
    tvm_status status = find_compiler(a, &compiler, diags);
    if (status == TVM_OK && (a->kind == EMIT_CUBIN || compiler.kind != TVM_PTX_BY_DRIVER))
        status = tvm_ptx_compile(&compiler, module, diags);
    tvm_ptx_compiler_free(&compiler);
    return status;
}

static tvm_status write_output(const tvm_ir_program *program, const tvm_module *module, const arguments *a,
                               tvm_diags *diags) {
    char *report = NULL;
    tvm_status status = TVM_OK;
    if (a->explain || a->kind == EMIT_REPORT) status = tvm_report(program, module, &report, diags);
    if (status == TVM_OK && a->kind == EMIT_PTX)
        status = tvm_file_write(a->output, module->ptx, module->ptx_size, diags);
    if (status == TVM_OK && a->kind == EMIT_CUBIN)
        status = tvm_file_write(a->output, module->cubin, module->cubin_size, diags);
    if (status == TVM_OK && a->kind == EMIT_REPORT)
        status = tvm_file_write(a->output, report, strlen(report), diags);
    else if (status == TVM_OK && a->explain)
        fputs(report, stderr);
    free(report);
    return status;
}

static tvm_status compile(const arguments *a, tvm_diags *diags) {
    tvm_target target;
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    tvm_status status = tvm_target_parse(a->target, &target, diags);
    if (status == TVM_OK) status = tvm_vbc_read_file(a->input, &program, diags);
    if (status == TVM_OK) status = tvm_translate(program, target, &module, diags);
    if (status == TVM_OK) status = compile_ptx(module, a, diags);
    if (status == TVM_OK) status = write_output(program, module, a, diags);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return status;
}

int main(int argc, char **argv) {
    static const struct argp parser = {.options = options,
                                       .parser = parse_option,
                                       .args_doc = "FILE.vbc",
                                       .doc = "Translate Tilus VM bytecode to PTX or, by ptxas, to a cubin."};
    arguments a = {.output = "-", .target = "sm_80"};
    argp_program_version = "tvm-cc (Tilus VM) " PACKAGE_VERSION;
    argp_err_exit_status = EXIT_USAGE;
    tvm_diags diags = {0};
    bool parsed = argp_parse(&parser, argc, argv, 0, NULL, &a) == 0;
    tvm_status status = parsed ? compile(&a, &diags) : tvm_diag_no_memory(&diags);
    tvm_diags_print(&diags, stderr, "tvm-cc", isatty(STDERR_FILENO));
    tvm_diags_free(&diags);
    return status == TVM_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
