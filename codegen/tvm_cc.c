/* tvm-cc: bytecode to PTX, cubin, a report of what was selected, or bytecode with cubins in it. */
#include "config.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "check_ptxas.h"
#include "codegen.h"
#include "embed.h"
#include "fileio.h"
#include "native.h"
#include "warn_registers.h"
#include "ptx_compiler.h"
#include "source_file.h"
#include "subprocess.h"
#include "tool.h"
#include "vbc.h"

enum {
    KEY_EMIT = 256,
    KEY_EXPLAIN,
    KEY_PTXAS,
    KEY_EMBED,
    KEY_JOBS,
    KEY_TURNS,
    KEY_CHECK,
    SASS_MS = 60000,
    PAGE_LIMIT = 1 << 20
};

typedef enum output_kind { EMIT_PTX, EMIT_CUBIN, EMIT_REPORT, EMIT_HTML, EMIT_KINDS } output_kind;
static const char *const kind_names[EMIT_KINDS] = {"ptx", "cubin", "report", "html"};
static const tvm_file_kind file_kinds[EMIT_KINDS] = {TVM_FILE_PTX, TVM_FILE_CUBIN, TVM_FILE_REPORT,
                                                     TVM_FILE_HTML};

typedef struct arguments {
    const char *input, *output, *target, *ptxas, *embed;
    output_kind kind;
    bool explain, emit, count_turns, check;
    unsigned jobs; /* 0: one a processor */
    tvm_source_options source;
    tvm_tool_files files;
} arguments;

static output_kind parse_kind(const char *text, struct argp_state *state) {
    for (unsigned k = 0; k < EMIT_KINDS; k++)
        if (strcmp(text, kind_names[k]) == 0) return (output_kind)k;
    argp_error(state, "--emit: unknown '%s', expected ptx, cubin, report or html", text);
    return EMIT_PTX;
}

static unsigned parse_jobs(const char *text, struct argp_state *state) {
    char *end;
    unsigned long jobs = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (jobs < 1 || jobs > 1024 || *end)
        argp_error(state, "--jobs %s: a number from 1 to 1024 is expected", text);
    return (unsigned)jobs;
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    arguments *a = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &a->source;
        return 0;
    case 't':
        a->target = text;
        return 0;
    case 'o':
        a->output = text;
        return 0;
    case KEY_EMIT:
        a->kind = parse_kind(text, state);
        a->emit = true;
        return 0;
    case KEY_EMBED:
        a->embed = text;
        return 0;
    case KEY_JOBS:
        a->jobs = parse_jobs(text, state);
        return 0;
    case KEY_EXPLAIN:
        a->explain = true;
        return 0;
    case KEY_TURNS:
        a->count_turns = true;
        return 0;
    case KEY_PTXAS:
        a->ptxas = text;
        return 0;
    case KEY_CHECK:
        a->check = true;
        return 0;
    case ARGP_KEY_ARG:
        if (a->input) argp_error(state, "one program at a time: '%s' is the second", text);
        a->input = text;
        return 0;
    case ARGP_KEY_END:
        if (a->check &&
            (a->input || a->embed || a->emit || a->explain || a->target || a->output || a->count_turns))
            argp_error(state, "--check-ptxas goes with --ptxas alone");
        if (!a->input && !a->check) argp_error(state, "no program is given");
        if (a->embed && (a->emit || a->explain || a->target || a->count_turns))
            argp_error(
                state,
                "--embed writes bytecode: it goes without --emit, --explain, --target and --count-turns");
        if (!a->output) a->output = a->embed ? a->input : "-";
        if (!a->target) a->target = "sm_80";
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"target", 't', "TARGET", 0,
     "translate for TARGET, such as sm_80, sm_89, sm_90a, sm_100a, or native, that of the GPU of this machine "
     "(default: sm_80)",
     0},
    {"emit", KEY_EMIT, "KIND", 0, "write ptx (the default), cubin, report, or html, the report as a page", 0},
    {"output", 'o', "FILE", 0, "write to FILE; - is standard output, the default", 0},
    {"explain", KEY_EXPLAIN, NULL, 0, "also report what was selected for each instruction, to standard error",
     0},
    {"count-turns", KEY_TURNS, NULL, 0,
     "write the code of launches that have a limit of turns, which counts those of its loops", 0},
    {"ptxas", KEY_PTXAS, "PATH", 0, "run this ptxas", 0},
    {"embed", KEY_EMBED, "TARGETS", 0,
     "put cubins for TARGETS, such as sm_80,sm_90a, and PTX for other GPUs into the bytecode file, in place of "
     "those that it has; none: take them out. Written to the file itself when there is no -o",
     0},
    {"check-ptxas", KEY_CHECK, NULL, 0,
     "tell which of the known mistakes this ptxas makes, by the instructions that nvdisasm lists", 0},
    {"jobs", KEY_JOBS, "N", 0, "of --embed: compile with N threads (default: one a processor)", 0},
    {0},
};

static tvm_status find_compiler(const arguments *a, tvm_ptx_compiler *compiler, tvm_diags *diags) {
    return a->ptxas ? tvm_ptx_compiler_ptxas(a->ptxas, compiler, diags)
                    : tvm_ptx_compiler_find(compiler, NULL, diags);
}

/* Compiles where it is needed: for a cubin, and for the registers and spills of a report, which does without
 * them when there is no compiler and none was asked for. */
static tvm_status compile_ptx(const tvm_ir_program *program, tvm_module *module, const arguments *a,
                              tvm_diags *diags) {
    tvm_ptx_compiler compiler;
    if (a->kind == EMIT_PTX && !a->explain) return TVM_OK;
    tvm_status status = find_compiler(a, &compiler, diags);
    if (status == TVM_OK && (a->kind == EMIT_CUBIN || compiler.kind != TVM_PTX_BY_DRIVER))
        status = tvm_ptx_compile(&compiler, module, diags);
    tvm_ptx_compiler_free(&compiler);
    return status ? status : tvm_warn_registers(program, module, diags);
}

/* What cuobjdump lists of the cubin, or of one kernel (NULL: of all), which it has from memory, as ptxas has
 * its input; a listing that was cut says so. NULL where there is no cubin, or no cuobjdump in PATH. */
static char *list_sass(const tvm_module *module, const char *kernel) {
    static const char rest[] = "\n(the rest of the listing is left out)\n";
    const char *command[] = {"/usr/bin/env",         "cuobjdump", "-sass", NULL,
                             kernel ? "-fun" : NULL, kernel,      NULL};
    tvm_process_result result = {0};
    if (!module->cubin) return NULL;
    tvm_status status =
        tvm_process_run_on(command, 3, module->cubin, module->cubin_size, SASS_MS, &result, NULL);
    if (status == TVM_OK && !result.error && !result.timed_out && !result.signal && !result.exit_code) {
        if (strlen(result.output) == TVM_PROCESS_OUTPUT_MAX)
            strcpy(result.output + TVM_PROCESS_OUTPUT_MAX - sizeof rest + 1, rest);
        return result.output;
    }
    free(result.output);
    return NULL;
}

/* FILE-KERNEL.html, malloc'ed; FILE is `length` bytes of the output's name. */
static char *page_path(const arguments *a, size_t length, const char *kernel) {
    char *path;
    return asprintf(&path, "%.*s-%s.html", (int)length, a->output, kernel) < 0 ? NULL : path;
}

static tvm_status write_report(const tvm_ir_program *program, const tvm_module *module,
                               const tvm_report_page *page, const char *path, tvm_diags *diags) {
    char *text = NULL;
    tvm_status status = tvm_report_html(program, module, page, &text, diags);
    if (status == TVM_OK) status = tvm_file_write(path, text, strlen(text), diags);
    free(text);
    return status;
}

/* A page for each kernel beside the output, and then the index: what it links to is there. */
static tvm_status write_pages(const tvm_ir_program *program, const tvm_module *module, arguments *a,
                              tvm_diags *diags) {
    const char *slash = strrchr(a->output, '/'), *name = slash ? slash + 1 : a->output;
    const char *dot = strrchr(name, '.');
    size_t length = dot && (!strcasecmp(dot, ".html") || !strcasecmp(dot, ".htm")) ? (size_t)(dot - a->output)
                                                                                   : strlen(a->output);
    char *stem = strndup(name, length - (size_t)(name - a->output));
    tvm_status status = stem ? TVM_OK : tvm_diag_no_memory(diags);
    for (uint32_t k = 0; status == TVM_OK && k < module->kernel_count; k++) {
        char *path = page_path(a, length, module->kernels[k].name);
        status = path ? tvm_tool_writes(&a->files, path, TVM_FILE_HTML, diags) : tvm_diag_no_memory(diags);
        free(path);
    }
    for (uint32_t k = 0; status == TVM_OK && k < module->kernel_count; k++) {
        char *path = page_path(a, length, module->kernels[k].name);
        char *sass = list_sass(module, module->kernels[k].name);
        const tvm_report_page page = {a->input, sass, k, name, stem};
        status = path ? write_report(program, module, &page, path, diags) : tvm_diag_no_memory(diags);
        free(path);
        free(sass);
    }
    const tvm_report_page index = {a->input, NULL, TVM_NONE, name, stem};
    if (status == TVM_OK) status = write_report(program, module, &index, a->output, diags);
    free(stem);
    return status;
}

/* One page, or several where that would be too long to read. */
static tvm_status write_html(const tvm_ir_program *program, const tvm_module *module, arguments *a,
                             tvm_diags *diags) {
    char *text = NULL, *sass = list_sass(module, NULL);
    const tvm_report_page page = {a->input, sass, TVM_NONE, NULL, NULL};
    tvm_status status = tvm_report_html(program, module, &page, &text, diags);
    bool one = module->kernel_count < 2 || strcmp(a->output, "-") == 0;
    if (status == TVM_OK && (one || strlen(text) <= PAGE_LIMIT))
        status = tvm_file_write(a->output, text, strlen(text), diags);
    else if (status == TVM_OK)
        status = write_pages(program, module, a, diags);
    free(text);
    free(sass);
    return status;
}

static tvm_status write_output(const tvm_ir_program *program, const tvm_module *module, arguments *a,
                               tvm_diags *diags) {
    char *report = NULL;
    tvm_status status = TVM_OK;
    if (a->explain || a->kind == EMIT_REPORT) status = tvm_report(program, module, &report, diags);
    if (status == TVM_OK && a->kind == EMIT_HTML) status = write_html(program, module, a, diags);
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

/* ---- --embed ---- */

static bool has_lines(const tvm_ir_program *program) {
    for (uint32_t k = 0; k < program->kernel_count; k++)
        for (uint32_t i = 0; i < program->kernels[k].insn_count; i++)
            if (program->kernels[k].insns[i].line) return true;
    return false;
}

/* ", without 2 kernels that need more shared memory: a, b" */
static void print_left_out(const tvm_ir_program *program, const tvm_ir_image *image) {
    tvm_target target;
    tvm_kernel_abi *abis;
    uint32_t count = 0;
    const char *before = ": ";
    if (tvm_target_parse(image->target, &target, NULL) ||
        tvm_abi_decode(image->facts, image->fact_count, program, target.arch, tvm_target_traits_of(target),
                       &abis))
        return;
    for (uint32_t k = 0; k < program->kernel_count; k++) count += abis[k].absence == TVM_ABI_TOO_BIG;
    if (count)
        fprintf(stderr, ", without %u kernel%s for which a block has too little shared memory",
                (unsigned)count, count > 1 ? "s" : "");
    for (uint32_t k = 0; count && k < program->kernel_count; k++) {
        if (abis[k].absence != TVM_ABI_TOO_BIG) continue;
        fprintf(stderr, "%s%s", before, tvm_string(program, program->kernels[k].name));
        before = ", ";
    }
    free(abis);
}

/* A line each, and the size of all. */
static void print_images(const tvm_ir_program *program) {
    size_t size = 0;
    for (uint32_t i = 0; i < program->image_count; i++) {
        const tvm_ir_image *image = &program->images[i];
        fprintf(stderr, "tvm-cc: %s for %s, %zu bytes%s%s", image->ptx ? "PTX" : "cubin", image->target,
                image->code_size, image->made_by[0] ? ", by " : "", image->made_by);
        print_left_out(program, image);
        fputs("\n", stderr);
        size += image->code_size;
    }
    fprintf(stderr, "tvm-cc: %u embedded, %zu bytes\n", (unsigned)program->image_count, size);
}

static tvm_status embed(arguments *a, tvm_diags *diags) {
    tvm_target targets[TVM_EMBED_MAX];
    size_t count;
    tvm_ir_program *program = NULL;
    tvm_ptx_compiler compiler = {0};
    bool is_text = false;
    tvm_status status = tvm_embed_parse(a->embed, targets, &count, diags);
    if (status == TVM_OK)
        status = tvm_source_read_file(a->input, &a->source, &a->files, NULL, &is_text, &program, diags);
    if (status == TVM_OK && is_text && a->output == a->input)
        status =
            tvm_diag_add(diags, TVM_USAGE, &(tvm_place){.file = a->input}, "write bytecode with -o FILE.vbc",
                         "the input is a program's text, in which no cubin can be put");
    /* Bytecode may replace itself: its code is all that changes. A text, and what it includes, may not. */
    if (!is_text) tvm_tool_files_free(&a->files);
    if (status == TVM_OK) status = tvm_tool_writes(&a->files, a->output, TVM_FILE_BYTECODE, diags);
    if (status == TVM_OK && count > 0) status = find_compiler(a, &compiler, diags);
    if (status == TVM_OK && count > 0) status = tvm_ptx_compiler_ask(&compiler, diags);
    if (status == TVM_OK) status = tvm_embed(program, targets, count, &compiler, a->jobs, diags);
    unsigned lines = program && has_lines(program) ? TVM_VBC_LINES : 0;
    if (status == TVM_OK)
        status = tvm_vbc_write_file(program, a->output, lines | TVM_VBC_IMAGES | TVM_VBC_CERTIFICATES, diags);
    if (status == TVM_OK) print_images(program);
    tvm_ptx_compiler_free(&compiler);
    tvm_ir_program_free(program);
    return status;
}

static tvm_status compile(arguments *a, tvm_diags *diags) {
    tvm_target target;
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    tvm_status status = tvm_target_parse_native(a->target, &target, diags);
    if (status == TVM_OK)
        status = tvm_source_read_file(a->input, &a->source, &a->files, NULL, NULL, &program, diags);
    if (status == TVM_OK) status = tvm_tool_writes(&a->files, a->output, file_kinds[a->kind], diags);
    const tvm_translate_options with = {.counts_turns = a->count_turns};
    if (status == TVM_OK) status = tvm_translate_with(program, target, &with, &module, diags);
    if (status == TVM_OK) status = tvm_module_check(program, module, diags);
    if (status == TVM_OK) status = compile_ptx(program, module, a, diags);
    if (status == TVM_OK) status = write_output(program, module, a, diags);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return status;
}

int main(int argc, char **argv) {
    static const struct argp_child children[] = {{.argp = &tvm_source_argp}, {0}};
    static const struct argp parser = {
        .options = options,
        .parser = parse_option,
        .args_doc = "FILE\n--check-ptxas",
        .doc = "Translates a Tilus VM program, FILE.vbc or FILE.vasm, to PTX or to a cubin.",
        .children = children};
    arguments a = {.output = NULL};
    tvm_diags diags = {0};
    tvm_status status = tvm_tool_parse(&parser, "tvm-cc (Tilus VM) " PACKAGE_VERSION, argc, argv, &a, &diags);
    if (!status && a.check)
        status = tvm_check_ptxas(a.ptxas, &diags);
    else if (!status)
        status = a.embed ? embed(&a, &diags) : compile(&a, &diags);
    tvm_tool_files_free(&a.files);
    tvm_source_options_free(&a.source);
    return tvm_tool_end("tvm-cc", status, &diags);
}
