/* tvm-as: assembles a program. */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "assembler.h"
#include "fileio.h"
#include "lexer.h"
#include "lsp.h"
#include "certify.h"
#include "prove.h"
#include "source_file.h"
#include "tool.h"
#include "vbc.h"
#include "warnings.h"

#include "config.h"

enum {
    OPTION_PRINT_LAYOUT = 256,
    OPTION_PRINT_PACKING,
    OPTION_SVG,
    OPTION_TYPE,
    OPTION_SHARED,
    OPTION_GLOBAL,
    OPTION_NO_LINES,
    OPTION_CHECK,
    OPTION_LAYOUTS,
    OPTION_PROVE,
    OPTION_LSP
};

/* Of --prove: nothing is wrong for sure, but not all is proved. */
enum { EXIT_NOT_PROVED = 3 };

typedef struct arguments {
    const char *input;
    const char *output;
    bool print_layout, print_packing;
    tvm_picture_request picture; /* of one of both */
    const char *svg;             /* the file; NULL: text to standard output */
    bool no_lines;
    tvm_warnings warnings;
    bool check;
    bool layouts;
    bool prove, certify;
    bool open; /* something was not proved */
    bool lsp;
    tvm_source_options source;
    tvm_tool_files files;
} arguments;

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0,
     "write the bytecode to FILE (-: standard output); the default is the input's name with .vbc", 0},
    {"check", OPTION_CHECK, NULL, 0, "verify the program, or a graph, and write nothing", 0},
    {"layouts", OPTION_LAYOUTS, NULL, 0, "list each tensor's layout and why it has it, and write nothing", 0},
    {"prove", OPTION_PROVE, "certificate", OPTION_ARG_OPTIONAL,
     "say of each kernel whether it is proved free of races and of deadlock, and write nothing; certificate: say what "
     "the checker confirms, and write the bytecode with the certificates",
     0},
    {"warn", 'W', "race|no-prove|no-reduce", 0,
     "race: warn of accesses of shared memory that nothing orders on some path; no-prove: do not warn of races and "
     "deadlocks that every block has; no-reduce: do not warn of reductions of what lies outside of a tensor",
     0},
    {"lsp", OPTION_LSP, NULL, 0,
     "serve an editor on standard input and output (Language Server Protocol); no file", 0},
    {"no-lines", OPTION_NO_LINES, NULL, 0, "leave the line table out", 0},
    {"print-layout", OPTION_PRINT_LAYOUT, "LAYOUT", 0,
     "print a register layout as a grid of thread: local cells, or a shared layout by banks, and exit", 0},
    {"type", OPTION_TYPE, "TYPE", 0, "of --print-layout: the type of the elements in memory (default: f16)",
     0},
    {"shared", OPTION_SHARED, "LAYOUT", 0,
     "of --print-layout: print the accesses of each warp to a tile with this shared layout, and bank conflicts",
     0},
    {"global", OPTION_GLOBAL, "ROW", OPTION_ARG_OPTIONAL,
     "of --print-layout: print the accesses of each warp to a tile of a global tensor with ROW elements in a row "
     "(default: as many as the tile has)",
     0},
    {"svg", OPTION_SVG, "FILE", 0,
     "of --print-layout and --print-packing: write SVG to FILE (-: standard output)", 0},
    {"print-packing", OPTION_PRINT_PACKING, "TYPE", 0,
     "print where the bits of a low-precision type's elements lie in each packing, and exit", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static uint64_t parse_row(const char *text, struct argp_state *state) {
    char *end;
    errno = 0;
    unsigned long long row = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (row < 1 || row > INT32_MAX || *end)
        argp_error(state, "--global=%s: a number of elements from 1 to %d is expected", text, INT32_MAX);
    return row;
}

static void check_together(const arguments *args, struct argp_state *state) {
    bool prints = args->print_layout || args->print_packing;
    bool writes = prints || args->output || args->layouts || args->prove || args->certify || args->check ||
                  args->no_lines || args->source.define_count;
    if (args->lsp && (args->input || writes)) argp_error(state, "with --lsp go -I and -W alone, and no file");
    if (args->lsp) return;
    if (!args->input && !prints) argp_error(state, "no input file");
    if (args->input && prints) argp_error(state, "--print-layout and --print-packing go without a file");
    if (args->print_layout && args->print_packing)
        argp_error(state, "one of --print-layout and --print-packing at a time");
    if (args->svg && !prints) argp_error(state, "--svg goes with --print-layout or --print-packing");
    if (!args->print_layout && (args->picture.shared || args->picture.global || args->picture.type))
        argp_error(state, "--type, --shared and --global go with --print-layout");
    if (args->picture.shared && args->picture.global)
        argp_error(state, "one of --shared and --global at a time");
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    arguments *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->source;
        return 0;
    case 'o':
        args->output = argument;
        return 0;
    case OPTION_PRINT_LAYOUT:
    case OPTION_PRINT_PACKING:
        *(key == OPTION_PRINT_LAYOUT ? &args->print_layout : &args->print_packing) = true;
        args->picture.expression = argument;
        return 0;
    case OPTION_SVG:
        args->svg = argument;
        return 0;
    case OPTION_TYPE:
        args->picture.type = argument;
        return 0;
    case OPTION_SHARED:
        args->picture.shared = argument;
        return 0;
    case OPTION_GLOBAL:
        args->picture.global = true;
        args->picture.row = argument ? parse_row(argument, state) : 0;
        return 0;
    case 'W':
        if (!tvm_warnings_choose(&args->warnings, argument))
            argp_error(state, "-W%s: " TVM_WARNINGS_WORDS " is expected, or no- before it", argument);
        return 0;
    case OPTION_NO_LINES:
        args->no_lines = true;
        return 0;
    case OPTION_LAYOUTS:
        args->layouts = true;
        return 0;
    case OPTION_PROVE:
        if (argument && strcmp(argument, "certificate") != 0)
            argp_error(state, "--prove=%s: certificate is expected, or nothing", argument);
        args->prove = !argument;
        args->certify = argument != NULL;
        return 0;
    case OPTION_LSP:
        args->lsp = true;
        return 0;
    case OPTION_CHECK:
        args->check = true;
        return 0;
    case ARGP_KEY_ARG:
        if (args->input) argp_error(state, "more than one input file");
        args->input = argument;
        return 0;
    case ARGP_KEY_END:
        check_together(args, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* F.vasm -> F.vbc beside it; malloc'ed. Standard input goes to standard output. */
static char *default_output(const char *input) {
    size_t length = strlen(input);
    if (strcmp(input, "-") == 0) return strdup("-");
    if (length > 5 && strcmp(input + length - 5, ".vasm") == 0) length -= 5;
    char *output = malloc(length + 5);
    if (output) {
        memcpy(output, input, length);
        memcpy(output + length, ".vbc", 5);
    }
    return output;
}

static tvm_status print_picture(arguments *args, tvm_diags *diags) {
    char *picture = NULL;
    tvm_picture_request request = args->picture;
    request.svg = args->svg != NULL;
    request.colour = !args->svg && tvm_tool_coloured(STDOUT_FILENO);
    tvm_status status = args->svg ? tvm_tool_writes(&args->files, args->svg, TVM_FILE_SVG, diags) : TVM_OK;
    if (!status)
        status = args->print_layout ? tvm_print_layout(&request, &picture, diags)
                                    : tvm_print_packing(&request, &picture, diags);
    if (status == TVM_OK)
        status = tvm_file_write(args->svg ? args->svg : "-", picture, strlen(picture), diags);
    free(picture);
    return status;
}

static tvm_status write_program(arguments *args, const tvm_ir_program *program, tvm_diags *diags) {
    char *output = args->output ? strdup(args->output) : default_output(args->input);
    if (!output) return tvm_diag_no_memory(diags);
    tvm_status status = tvm_tool_writes(&args->files, output, TVM_FILE_BYTECODE, diags);
    unsigned parts = TVM_VBC_CERTIFICATES | (args->no_lines ? 0 : TVM_VBC_LINES);
    if (!status) status = tvm_vbc_write_file(program, output, parts, diags);
    free(output);
    return status;
}

/* What is wrong for sure is an error. */
static tvm_status prove(arguments *args, const tvm_ir_program *program, tvm_diags *diags) {
    tvm_text text = {0};
    tvm_status status = TVM_OK;
    bool refuted = false;
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK; k++) {
        tvm_proof proof;
        status = tvm_prove_long(program, k, &proof, diags);
        if (status != TVM_OK) break;
        tvm_proof_add(&text, program, k, &proof);
        const tvm_proof_verdict verdicts[] = {proof.races.verdict, proof.deadlocks.verdict,
                                              proof.global.verdict};
        for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++) {
            args->open |= verdicts[i] != TVM_PROVED;
            refuted |= verdicts[i] == TVM_REFUTED;
        }
    }
    if (status == TVM_OK)
        status = text.failed ? tvm_diag_no_memory(diags)
                             : tvm_file_write("-", tvm_text_string(&text), text.size, diags);
    tvm_text_free(&text);
    if (status == TVM_OK && refuted)
        status = tvm_diag_add(diags, TVM_INVALID, &(tvm_place){.file = args->input}, NULL,
                              "a kernel has a race or a deadlock");
    return status;
}

/* Certificates, and what they confirm. */
static tvm_status certify(arguments *args, tvm_ir_program **program, tvm_diags *diags) {
    tvm_text text = {0};
    tvm_status status = tvm_certify_program(program, diags);
    for (uint32_t k = 0; status == TVM_OK && k < (*program)->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &(*program)->kernels[k];
        tvm_checked checked;
        status = tvm_check(*program, k, kernel->certificate, kernel->certificate_count, &checked, diags);
        if (status != TVM_OK) break;
        tvm_checked_add(&text, *program, k, &checked);
        args->open |= !checked.races.holds || !checked.deadlocks.holds || checked.waits_for_blocks;
    }
    if (status == TVM_OK)
        status = text.failed ? tvm_diag_no_memory(diags)
                             : tvm_file_write("-", tvm_text_string(&text), text.size, diags);
    tvm_text_free(&text);
    return status;
}

static tvm_status assemble(arguments *args, tvm_diags *diags) {
    uint8_t *text;
    size_t size;
    tvm_ir_program *program = NULL;
    tvm_text layouts = {0};
    unsigned version = 0;
    tvm_graph_text *graph = NULL;
    tvm_assembler_options how = tvm_source_assembler(&args->source, &args->files);
    how.graph = &graph;
    how.layouts = args->layouts ? &layouts : NULL;
    how.version = &version;
    tvm_tool_reads(&args->files, args->input);
    tvm_status status = tvm_file_read(args->input, TVM_SOURCE_MAX, &text, &size, diags);
    if (status != TVM_OK) return status;
    status = tvm_assemble_text((const char *)text, size, args->input, &how, &program, diags);
    free(text);
    if (status == TVM_OK && graph && !args->check)
        status = tvm_diag_add(diags, TVM_USAGE, &(tvm_place){.file = args->input},
                              "--check checks it, and tvm-run runs it", "a graph has no bytecode");
    tvm_graph_text_free(graph);
    /* --prove says more */
    if (args->prove) tvm_warnings_choose(&args->warnings, "no-prove");
    if (status == TVM_OK) status = tvm_warnings_find(program, &args->warnings, version, diags);
    if (status == TVM_OK && args->layouts)
        status = layouts.failed ? tvm_diag_no_memory(diags)
                                : tvm_file_write("-", tvm_text_string(&layouts), layouts.size, diags);
    tvm_text_free(&layouts);
    if (status == TVM_OK && args->prove) status = prove(args, program, diags);
    if (status == TVM_OK && args->certify) status = certify(args, &program, diags);
    if (status == TVM_OK && !args->check && !args->layouts && !args->prove)
        status = write_program(args, program, diags);
    tvm_ir_program_free(program);
    return status;
}

static int serve(const arguments *args) {
    tvm_assembler_options how = tvm_source_assembler(&args->source, NULL);
    return tvm_lsp_run(&how, &args->warnings);
}

int main(int argc, char **argv) {
    static const struct argp_child children[] = {{.argp = &tvm_source_argp}, {0}};
    static const struct argp parser = {
        options, parse, "FILE.vasm", "Assembles a Tilus VM program to bytecode.", children, NULL, NULL};
    arguments args = {0};
    tvm_diags diags = {0};
    tvm_status status =
        tvm_tool_parse(&parser, "tvm-as (Tilus VM) " PACKAGE_VERSION, argc, argv, &args, &diags);
    bool prints = args.print_layout || args.print_packing;
    int served = !status && args.lsp ? serve(&args) : EXIT_SUCCESS;
    if (!status && !args.lsp) status = prints ? print_picture(&args, &diags) : assemble(&args, &diags);
    tvm_tool_files_free(&args.files);
    tvm_source_options_free(&args.source);
    int ended = tvm_tool_end("tvm-as", status, &diags);
    if (args.open && !ended) return EXIT_NOT_PROVED;
    return args.lsp && !ended ? served : ended;
}
