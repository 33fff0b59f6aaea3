/* .program and .graph. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "find_file.h"
#include "head.h"
#include "language.h"
#include "names.h"
#include "program_file.h"
#include "report.h"

/* The graph of the text, which .program or .graph begins; NULL after an error. */
static tvm_graph_text *begun(tvm_asm *as, const tvm_token *token) {
    if (as->text.version < TVM_LANGUAGE_OF_GRAPHS) {
        tvm_asm_error(as, token, NULL, "'.%.*s' needs '.vasm %d'", (int)token->length,
                      tvm_token_text(as->text.source, token), TVM_LANGUAGE_OF_GRAPHS);
        return NULL;
    }
    if (!as->options || !as->options->graph) {
        tvm_asm_error(as, token, "tvm-run runs a graph, and tvm-as --check checks it",
                      "a graph stands here, where a program of kernels is expected");
        as->report.stopped = true;
        return NULL;
    }
    if (!as->graph.text) as->graph.text = calloc(1, sizeof *as->graph.text);
    if (!as->graph.text) tvm_asm_no_memory(as);
    return as->graph.text;
}

/* ---- .program NAME = "FILE" [with CONST = VALUE, ...] ---- */

/* NAME=VALUE as -D takes it, in scratch memory. */
static bool define_text(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        const tvm_value *value, const char **define) {
    tvm_text text = {0};
    char shown[64];
    bool quoted = value->kind == TVM_VALUE_STRING;
    if (!quoted && !tvm_value_is_number(value) && value->kind != TVM_VALUE_DTYPE)
        return tvm_asm_error(as, token, NULL,
                             "a program's constant is given a number, a type or a text, not %s",
                             tvm_value_what(value));
    tvm_text_bytes(&text, name, length);
    tvm_text_puts(&text, quoted ? "=\"" : "=");
    for (uint32_t i = 0; quoted && i < value->as.string.length; i++) {
        char c = value->as.string.text[i];
        if (c == '"' || c == '\\') tvm_text_puts(&text, "\\");
        tvm_text_bytes(&text, &c, 1);
    }
    tvm_text_puts(&text, quoted ? "\"" : tvm_value_text(value, shown));
    *define = text.failed ? NULL : tvm_arena_text(&as->scratch, text.data, text.size);
    tvm_text_free(&text);
    return *define || tvm_asm_no_memory(as);
}

enum { DEFINES_MAX = 64 };

static bool program_constants(tvm_asm *as, const char *defines[DEFINES_MAX], size_t *count) {
    *count = 0;
    if (!tvm_asm_accept(as, "with")) return tvm_asm_expect_end(as);
    do {
        const tvm_token *token = tvm_asm_peek(as);
        const char *name;
        uint32_t length;
        tvm_value value;
        if (*count == DEFINES_MAX)
            return tvm_asm_error(as, token, NULL, "more than %d constants", (int)DEFINES_MAX);
        if (!tvm_asm_expect_name(as, "the name of a constant of the program", &name, &length) ||
            !tvm_asm_expect(as, "=", "after the name of the constant"))
            return false;
        const tvm_token *at = tvm_asm_peek(as);
        if (!tvm_asm_static(as, "a constant of the program", &value) || value.kind == TVM_VALUE_POISON ||
            !define_text(as, at, name, length, &value, &defines[(*count)++]))
            return false;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
}

/* Errors of the program are told with their places in it, and the one here leads to them. */
static bool read_program(tvm_asm *as, const tvm_token *token, const char *path, const char **defines,
                         size_t count, tvm_ir_program **program) {
    tvm_assembler_options how = {.defines = defines,
                                 .define_count = count,
                                 .include_dirs = as->options->include_dirs,
                                 .include_dir_count = as->options->include_dir_count,
                                 .open_text = as->options->open_text,
                                 .open_context = as->options->open_context,
                                 .reads = as->options->reads,
                                 .closure = as->options->closure};
    if (how.reads) how.reads(how.closure, path);
    if (tvm_program_file_read(path, &how, NULL, program, as->report.diags) == TVM_OK) return true;
    return tvm_asm_invalid(as, token, NULL, "'%.200s' is not a program that can be read", path);
}

bool tvm_directive_program(tvm_asm *as, const tvm_token *token) {
    const tvm_token *at = tvm_asm_peek(as), *file;
    tvm_graph_text *text = begun(as, token);
    const char *name, *path, *defines[DEFINES_MAX];
    uint32_t length;
    size_t count;
    tvm_value quoted, value = tvm_value_poison();
    if (!text || !tvm_asm_expect_name(as, "the name of a program", &name, &length) ||
        !tvm_asm_expect(as, "=", "and a file in quotes after the program's name"))
        return false;
    file = tvm_asm_peek(as);
    if (!tvm_asm_static(as, "the file of a program", &quoted)) return false;
    if (quoted.kind != TVM_VALUE_STRING)
        return quoted.kind != TVM_VALUE_POISON &&
               tvm_asm_error(as, file, NULL, "expected a file name in quotes, found %s",
                             tvm_value_what(&quoted));
    bool good = program_constants(as, defines, &count);
    path = tvm_arena_text(&as->scratch, quoted.as.string.text, quoted.as.string.length);
    if (!path) return tvm_asm_no_memory(as);
    path = good ? tvm_asm_find_file(as, file, path) : NULL;
    if (path && text->program_count == TVM_GRAPH_TEXT_PROGRAMS) {
        good =
            tvm_asm_invalid(as, token, NULL, "a graph has at most %d programs", (int)TVM_GRAPH_TEXT_PROGRAMS);
        as->report.stopped = true;
    } else if (path && read_program(as, file, path, defines, count, &text->programs[text->program_count])) {
        value = (tvm_value){.kind = TVM_VALUE_PROGRAM, .as.program = text->program_count++};
    } else {
        good = false;
    }
    return tvm_asm_define(as, at, name, length, &value) && good;
}

/* ---- .graph NAME(...) ---- */

bool tvm_directive_graph(tvm_asm *as, const tvm_token *token) {
    tvm_graph_text *text = begun(as, token);
    const char *name = "?";
    uint32_t length = 1, from = as->text.at;
    if (!text) return false;
    bool good = tvm_asm_launch_name(as, "the name of the graph", &name, &length);
    if (text->head) {
        tvm_asm_invalid(as, token, "each graph has a file of its own", "there is a graph already");
        as->report.stopped = true;
        return false;
    }
    text->head = tvm_ir_program_new();
    uint32_t string = text->head ? tvm_ir_program_string(text->head, name, length) : TVM_NONE;
    uint32_t index = string == TVM_NONE ? TVM_NONE : tvm_ir_program_add_kernel(text->head, string);
    if (index == TVM_NONE) return tvm_asm_no_memory(as);
    text->head->kernels[index].warps = 1;
    as->graph.kernels = as->program;
    as->program = text->head;
    as->kernel.index = index;
    as->kernel.version = as->text.version;
    as->kernel.is_graph = as->kernel.warps_seen = true;
    tvm_asm_kernel_open(as, token);
    return tvm_asm_parameters(as, token, from) && good;
}

bool tvm_asm_graph_check(tvm_asm *as) {
    return as->graph.text->launch_count || as->report.errors ||
           tvm_asm_error_in(as, as->kernel.source, &as->kernel.source->tokens[as->kernel.token],
                            "'launch KERNEL(...)'", "the graph has no 'launch'");
}

/* ---- parameters ---- */

static const char *const roles[] = {
    [TVM_GRAPH_TEXT_INPUT] = "input", [TVM_GRAPH_TEXT_OUTPUT] = "output", [TVM_GRAPH_TEXT_STATE] = "state"};
enum { ROLES = sizeof roles / sizeof *roles };

bool tvm_asm_graph_role(tvm_asm *as) {
    uint32_t index = tvm_asm_kernel(as)->param_count;
    for (uint8_t role = 0; role < ROLES && index < TVM_MAX_PARAMS; role++) {
        if (!tvm_asm_accept(as, roles[role])) continue;
        as->graph.text->roles[index] = role;
        return true;
    }
    return false;
}
