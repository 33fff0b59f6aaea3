/* The interface: a text to a program, an expression to a picture. */
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "canonical.h"
#include "expr_text.h"
#include "expressions.h"
#include "head.h"
#include "infer_open.h"
#include "language.h"
#include "picture.h"
#include "report.h"
#include "run.h"
#include "suggest.h"
#include "verify.h"

enum { ARENA_LIMIT = 256 << 20 };

static tvm_asm *start(const tvm_assembler_options *options, tvm_diags *diags) {
    tvm_asm *as = calloc(1, sizeof *as);
    tvm_ir_program *program = as ? tvm_ir_program_new() : NULL;
    if (!program) {
        free(as);
        tvm_diag_no_memory(diags);
        return NULL;
    }
    as->options = options;
    as->program = program;
    as->report.diags = diags;
    as->report.diags_before = diags ? diags->count : 0;
    as->text.version = 1;
    as->keep.limit = as->scratch.limit = ARENA_LIMIT;
    return as;
}

static void finish(tvm_asm *as) {
    for (tvm_source *source = as->text.sources, *next; source; source = next) {
        next = source->next;
        tvm_source_free(source);
    }
    tvm_arena_free(&as->keep);
    tvm_arena_free(&as->scratch);
    tvm_symbols_free(&as->statics.names);
    tvm_symbols_free(&as->kernel.parameters);
    tvm_symbols_free(&as->kernel.slots);
    tvm_symbols_free(&as->kernel.elements);
    tvm_symbols_free(&as->kernel.slot_names);
    tvm_asm_free_open(as);
    if (as->kernel.is_graph) tvm_asm_graph_leave(as);
    tvm_graph_text_free(as->graph.text);
    tvm_ir_program_free(as->program);
    free(as->statics.defines);
    free(as->statics.tunes.values);
    free(as);
}

/* ---- -D ---- */

/* The value of a -D: an expression; a word that means nothing by itself is the string of that word. */
static bool define_value(tvm_asm *as, const char *title, const char *text, tvm_value *value) {
    size_t length = strlen(text);
    tvm_dtype type;
    bool known = tvm_is_reserved(text, length) || tvm_dtype_parse(text, length, &type) ||
                 strcmp(text, "row_major") == 0;
    if (known || !tvm_is_identifier(text, length))
        return tvm_asm_expression_of_text(as, title, text, length, value);
    *value = tvm_value_string(text, (uint32_t)length);
    return true;
}

static bool add_define(tvm_asm *as, const char *text) {
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    tvm_value value;
    if (!equals || !tvm_is_identifier(text, length))
        return tvm_asm_error_in(as, NULL, NULL, NULL, "-D takes NAME=VALUE, not '%.80s'", text);
    char *name = tvm_arena_text(&as->keep, text, length);
    size_t title_size = length + 4;
    char *title = name ? tvm_arena_alloc(&as->keep, title_size) : NULL;
    if (!title) return tvm_asm_no_memory(as);
    memcpy(title, "-D ", 3);
    memcpy(title + 3, text, length);
    title[length + 3] = '\0';
    as->text.source = NULL;
    if (!define_value(as, title, equals + 1, &value)) return false;
    tvm_define define = {
        .name = name, .length = (uint32_t)length, .value = tvm_value_copy(&as->keep, &value)};
    if (define.value.kind == TVM_VALUE_POISON && value.kind != TVM_VALUE_POISON) return tvm_asm_no_memory(as);
    as->statics.defines[as->statics.define_count++] = define;
    return true;
}

static void read_defines(tvm_asm *as) {
    size_t count = as->options ? as->options->define_count : 0;
    if (!count) return;
    as->statics.defines = calloc(count, sizeof *as->statics.defines);
    if (!as->statics.defines) {
        tvm_asm_no_memory(as);
        return;
    }
    for (size_t i = 0; i < count && !as->report.stopped; i++) add_define(as, as->options->defines[i]);
}

/* A later -D of a name replaces an earlier one; each must have found its .const or .tune. */
static void check_defines(tvm_asm *as) {
    for (size_t i = 0; i < as->statics.define_count; i++) {
        const tvm_define *define = &as->statics.defines[i];
        if (define->used || as->text.left_out) continue;
        tvm_suggest suggest;
        tvm_suggest_start(&suggest, define->name, define->length);
        for (uint32_t j = 0; j < as->statics.names.count; j++)
            tvm_suggest_offer(&suggest, as->statics.names.items[j].name, as->statics.names.items[j].length);
        tvm_asm_error_in(as, NULL, NULL, TVM_SUGGEST_HINT(&suggest, ""),
                         "-D %s: there is no .const of that name at top level, nor a .tune", define->name);
    }
}

static void drop_replaced_defines(tvm_asm *as) {
    for (size_t i = 0; i < as->statics.define_count; i++)
        for (size_t j = i + 1; j < as->statics.define_count; j++)
            if (strcmp(as->statics.defines[i].name, as->statics.defines[j].name) == 0)
                as->statics.defines[i].used = true;
}

/* ---- assembling ---- */

static bool read_text(tvm_asm *as, const char *text, size_t length, const char *name) {
    as->text.sources =
        tvm_source_new(name ? name : "-", text, length, TVM_ASM_ERRORS, &as->report.errors, as->report.diags);
    if (as->report.errors && as->report.status == TVM_OK) as->report.status = TVM_SYNTAX;
    if (!as->text.sources) {
        if (as->report.status == TVM_OK) as->report.status = TVM_SYNTAX;
        return false;
    }
    if (as->report.errors >= TVM_ASM_ERRORS) return false;
    return tvm_asm_push_source(as, as->text.sources, 0);
}

/* The verifier knows lines but not their text. */
static void add_source_lines(const tvm_asm *as, tvm_diags *diags, size_t from) {
    for (size_t i = from; i < diags->count; i++) {
        tvm_diag *diag = &diags->items[i];
        char line[TVM_SOURCE_LINE_MAX + 1] = "";
        if (!diag->file || !diag->line || diag->source) continue;
        for (const tvm_source *source = as->text.sources; source; source = source->next) {
            if (strcmp(source->name, diag->file) != 0) continue;
            for (uint32_t t = 0; t < source->count && !line[0]; t++)
                if (source->tokens[t].line == diag->line)
                    tvm_source_line(source, source->tokens[t].offset, line);
        }
        if (line[0]) diag->source = strdup(line);
    }
}

/* Gives the graph to the caller. */
static tvm_status verified_graph(tvm_asm *as) {
    tvm_graph_text *text = as->graph.text;
    size_t before = as->report.diags ? as->report.diags->count : 0;
    if (!text) return TVM_OK;
    if (!text->head) {
        tvm_asm_error_in(as, as->text.sources, NULL, NULL, "'.program' without a '.graph'");
        return as->report.status;
    }
    tvm_status status = tvm_verify(text->head, as->report.diags);
    if (status && as->report.diags) add_source_lines(as, as->report.diags, before);
    if (status) return status;
    *as->options->graph = text;
    as->graph.text = NULL;
    return TVM_OK;
}

static tvm_status verified(tvm_asm *as, tvm_ir_program **program) {
    tvm_ir_program *result = tvm_asm_canonical(as->program, as->report.diags);
    if (!result) return TVM_NO_MEMORY;
    size_t before = as->report.diags ? as->report.diags->count : 0;
    for (uint32_t i = 0; i < result->entry_count; i++)
        result->entries[i].shapes_may_differ = as->text.latest < TVM_LANGUAGE_OF_SHAPES;
    tvm_status status = tvm_verify(result, as->report.diags);
    if (status == TVM_OK) {
        *program = result;
        return TVM_OK;
    }
    if (as->report.diags) add_source_lines(as, as->report.diags, before);
    tvm_ir_program_free(result);
    return status;
}

tvm_status tvm_assemble_text(const char *text, size_t length, const char *name,
                             const tvm_assembler_options *options, tvm_ir_program **program,
                             tvm_diags *diags) {
    *program = NULL;
    if (options && options->graph) *options->graph = NULL;
    tvm_asm *as = start(options, diags);
    if (!as) return TVM_NO_MEMORY;
    read_defines(as);
    drop_replaced_defines(as);
    if (!as->report.stopped && read_text(as, text, length, name)) {
        tvm_asm_run(as);
        if (!as->text.version_seen && !as->report.errors)
            tvm_asm_error_in(as, as->text.sources, NULL, NULL, "expected '.vasm %d' as the first statement",
                             TVM_LANGUAGE_VERSION);
        if (!as->report.stopped) check_defines(as);
    }
    tvm_status status = as->report.status;
    if (status == TVM_OK) status = verified(as, program);
    if (status == TVM_OK && (status = verified_graph(as)) != TVM_OK) {
        tvm_ir_program_free(*program);
        *program = NULL;
    }
    if (options && options->version) *options->version = as->text.latest;
    finish(as);
    return status;
}

/* ---- pictures ---- */

static bool picture_value(tvm_asm *as, const char *title, const char *text, tvm_value *value) {
    return tvm_asm_expression_of_text(as, title, text, strlen(text), value) &&
           value->kind != TVM_VALUE_POISON;
}

/* The bits of an element in memory. */
static bool picture_bits(tvm_asm *as, const char *name, unsigned *bits) {
    tvm_dtype type;
    *bits = 16;
    if (!name) return true;
    if (!tvm_dtype_parse(name, strlen(name), &type)) {
        tvm_asm_error_in(as, NULL, NULL, "such as f16, f32 or u4", "'%.40s' is no type", name);
        return false;
    }
    *bits = type.bits;
    return true;
}

static void same_shape(tvm_asm *as, const tvm_layout *layout, const tvm_shared_layout *tile) {
    bool same = layout->rank == tile->rank;
    for (unsigned d = 0; same && d < tile->rank; d++) same = layout->shape[d] == tile->shape[d];
    if (!same)
        tvm_asm_error_in(as, NULL, NULL, NULL, "the register layout and the shared layout differ in shape");
}

static void draw(tvm_asm *as, const tvm_picture_request *request, picture *p) {
    tvm_value value, memory;
    unsigned bits;
    if (!picture_bits(as, request->type, &bits) || !picture_value(as, "layout", request->expression, &value))
        return;
    bool accessed = request->shared || request->global;
    if (value.kind == TVM_VALUE_SHARED && !accessed) {
        tvm_picture_shared(p, value.as.shared, bits);
    } else if (value.kind != TVM_VALUE_LAYOUT) {
        tvm_asm_error_in(as, NULL, NULL, NULL, "expected a register layout%s, found %s",
                         accessed ? "" : " or a shared layout", tvm_value_what(&value));
    } else if (request->global) {
        if (request->row && request->row < value.as.layout->shape[value.as.layout->rank - 1])
            tvm_asm_error_in(as, NULL, NULL, NULL,
                             "a row of the global tensor is shorter than one of the tile");
        else
            tvm_picture_global_access(p, value.as.layout, request->row, bits);
    } else if (!request->shared) {
        tvm_picture_layout(p, value.as.layout);
    } else if (picture_value(as, "shared layout", request->shared, &memory)) {
        if (memory.kind != TVM_VALUE_SHARED)
            tvm_asm_error_in(as, NULL, NULL, "shared([64, 64], [64, 64], [64, 1], swizzle(3, 3, 3))",
                             "expected a shared layout with its shape, found %s", tvm_value_what(&memory));
        else
            same_shape(as, value.as.layout, memory.as.shared);
        if (as->report.status == TVM_OK)
            tvm_picture_shared_access(p, value.as.layout, memory.as.shared, bits);
    }
}

tvm_status tvm_print_layout(const tvm_picture_request *request, char **text, tvm_diags *diags) {
    picture p = {.wide = request->svg};
    *text = NULL;
    tvm_asm *as = start(NULL, diags);
    if (!as) return TVM_NO_MEMORY;
    draw(as, request, &p);
    tvm_status status = as->report.status;
    finish(as);
    if (status == TVM_OK) return tvm_picture_finish(&p, request, text, diags);
    tvm_picture_free(&p);
    return status;
}
