/* What is known of a word: an instruction from the table, a type, the layouts of a variable from the listing;
 * and the words that can be completed. */
#include "lsp_impl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"
#include "words.h"

enum { ROWS_MAX = 16 };

/* ---- words in a line ---- */

typedef struct word {
    const char *text;
    size_t length;
} word;

static bool is_part(char c, const char *also) {
    return isalnum((unsigned char)c) || (c && strchr(also, c));
}

/* The letters, digits, underscores and those of `also` around a byte. */
static word word_at(const char *line, size_t size, size_t at, const char *also) {
    size_t from = at, to = at;
    while (from > 0 && is_part(line[from - 1], also)) from--;
    while (to < size && is_part(line[to], also)) to++;
    return (word){line + from, to - from};
}

/* Is the byte in a comment, or in a text in quotes? */
static bool is_text(const char *line, size_t at) {
    bool quoted = false;
    for (size_t i = 0; i < at; i++) {
        if (quoted && line[i] == '\\')
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        else if (line[i] == ';' && !quoted)
            return true;
    }
    return quoted;
}

/* ---- what is said of them ---- */

/* As vasm(5)'s index has it. */
static void describe_instruction(const tvm_op_info *info, tvm_text *out) {
    static const char *const results[TVM_SLOT_KINDS] = {[TVM_SLOT_NONE] = "",
                                                        [TVM_SLOT_SCALAR] = "scalar = ",
                                                        [TVM_SLOT_REGISTER] = "register = ",
                                                        [TVM_SLOT_SHARED] = "shared = ",
                                                        [TVM_SLOT_GLOBAL] = "global = ",
                                                        [TVM_SLOT_BARRIER] = "barrier = ",
                                                        [TVM_SLOT_TENSOR] = "tensor = "};
    tvm_text_add(out, "```vasm\n%s%s%s%s\n```\n%s", results[info->result], info->mnemonic,
                 info->operands[0] ? " " : "", info->operands, info->semantics);
    if (info->since > 1) tvm_text_add(out, " (`.vasm %u`)", info->since);
}

static void describe_type(tvm_dtype type, tvm_text *out) {
    static const char *const kinds[] = {[TVM_KIND_BOOL] = "truth values",
                                        [TVM_KIND_UINT] = "unsigned integers",
                                        [TVM_KIND_INT] = "signed integers",
                                        [TVM_KIND_FLOAT] = "floats"};
    tvm_text_add(out, "`%s`: %s of %u bits", TVM_DTYPE_TEXT(type), kinds[type.kind], type.bits);
    if (type.kind == TVM_KIND_FLOAT)
        tvm_text_add(out, ", %u of the exponent and %u of the mantissa", type.exponent, type.mantissa);
}

/* The last .kernel at or above a line; its length 0 when there is none. */
static word kernel_above(const lsp_document *document, uint32_t line) {
    static const char directive[] = ".kernel ";
    const char *at = document->text, *end = at + document->length;
    word found = {"", 0};
    for (uint32_t i = 0; i <= line; i++) {
        while (at < end && (*at == ' ' || *at == '\t')) at++;
        if (strncmp(at, directive, sizeof directive - 1) == 0) {
            size_t length = 0;
            found.text = at + sizeof directive - 1;
            while (is_part(found.text[length], "_${}.")) length++;
            found.length = length;
        }
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at) break;
        at++;
    }
    return found;
}

static bool begins(const char *line, size_t size, const char *with, size_t length) {
    return size >= length && memcmp(line, with, length) == 0;
}

/* The listing's rows of a variable, two lines each, those of one kernel or of all (kernel.length 0). */
static unsigned list_rows(const tvm_text *listing, word variable, word kernel, tvm_text *out) {
    const char *line, *heading = NULL;
    size_t size, heading_size = 0;
    bool wanted = false, said = false;
    unsigned rows = 0;
    for (uint32_t i = 0; rows < ROWS_MAX && lsp_line(listing->data, listing->size, i, &line, &size); i++) {
        const char *name = memchr(line, '%', size);
        if (begins(line, size, "kernel ", 7)) {
            heading = line;
            heading_size = size;
            said = false;
            wanted = !kernel.length || (begins(line + 7, size - 7, kernel.text, kernel.length) &&
                                        line[7 + kernel.length] == ':');
            continue;
        }
        size_t left = name ? size - (size_t)(name + 1 - line) : 0;
        if (!wanted || !name || !begins(name + 1, left, variable.text, variable.length) ||
            is_part(name[1 + variable.length], "_"))
            continue;
        if (!said) tvm_text_add(out, "%.*s\n", (int)heading_size, heading);
        tvm_text_add(out, "%.*s\n", (int)size, line);
        if (name[1 + variable.length] == ':' && lsp_line(listing->data, listing->size, i + 1, &line, &size))
            tvm_text_add(out, "%.*s\n", (int)size, line);
        said = true;
        rows++;
    }
    return rows;
}

static void describe_variable(const lsp_document *document, uint32_t line, word variable, tvm_text *out) {
    tvm_text rows = {0};
    if (!document->layouts.size || !variable.length) return;
    if (!list_rows(&document->layouts, variable, kernel_above(document, line), &rows))
        list_rows(&document->layouts, variable, (word){"", 0}, &rows);
    if (rows.size) tvm_text_add(out, "```\n%s```", tvm_text_string(&rows));
    tvm_text_free(&rows);
}

/* `%at.step`, the word being one of its parts: the program's name of it is at_step. */
static bool describe_field(const lsp_document *document, uint32_t row, const char *line, word part,
                           tvm_text *out) {
    const char *from = part.text;
    char name[TVM_MAX_NAME + 1];
    while (from > line && is_part(from[-1], "_.")) from--;
    size_t size = (size_t)(part.text + part.length - from);
    if (!part.length || from == line || from[-1] != '%' || from == part.text || size > TVM_MAX_NAME)
        return false;
    for (size_t i = 0; i < size; i++) name[i] = from[i] == '.' ? '_' : from[i];
    describe_variable(document, row, (word){name, size}, out);
    return true;
}

static void describe(const lsp_document *document, uint32_t row, const char *line, size_t size, size_t at,
                     tvm_text *out) {
    word narrow = word_at(line, size, at, "_"), wide = word_at(line, size, at, "_-");
    const tvm_op_info *info = tvm_op(tvm_op_by_name(wide.text, wide.length));
    tvm_dtype type;
    if (!narrow.length && !wide.length && at < size && line[at] == '%')
        narrow = word_at(line, size, at + 1, "_");
    if (is_text(line, at)) return;
    char before = narrow.text > line ? narrow.text[-1] : '\0';
    if (!info) info = tvm_op(tvm_op_by_name(narrow.text, narrow.length));
    if (describe_field(document, row, line, narrow, out)) return;
    if (before == '%')
        describe_variable(document, row, narrow, out);
    else if (before == '.')
        return;
    else if (info)
        describe_instruction(info, out);
    else if (tvm_dtype_parse(narrow.text, narrow.length, &type))
        describe_type(type, out);
}

json_t *lsp_hover(const lsp_document *document, uint32_t line, const char *text, size_t size, size_t at) {
    tvm_text out = {0};
    describe(document, line, text, size, at, &out);
    json_t *result = out.failed ? NULL
                     : out.size ? json_pack("{s:{s:s,s:o}}", "contents", "kind", "markdown", "value",
                                            lsp_string(tvm_text_string(&out)))
                                : json_null();
    tvm_text_free(&out);
    return result;
}

/* ---- completion ---- */

static void add_item(void *context, tvm_word_kind kind, const char *name, size_t length) {
    enum { FUNCTION = 3, KEYWORD = 14, CONSTANT = 21, OPERATOR = 24, TYPE = 25 };
    static const int kinds[TVM_WORD_KINDS] = {[TVM_WORD_INSTRUCTION] = OPERATOR, [TVM_WORD_CONTROL] = KEYWORD,
                                              [TVM_WORD_DIRECTIVE] = KEYWORD,    [TVM_WORD_TYPE] = TYPE,
                                              [TVM_WORD_FUNCTION] = FUNCTION,    [TVM_WORD_ATOM] = CONSTANT,
                                              [TVM_WORD_CONSTANT] = CONSTANT};
    json_t **list = context;
    const tvm_op_info *info = kind == TVM_WORD_INSTRUCTION ? tvm_op(tvm_op_by_name(name, length)) : NULL;
    json_t *item = json_pack("{s:s%,s:i}", "label", name, length, "kind", kinds[kind]);
    if (item && info) {
        json_object_set_new(item, "detail", json_string(info->operands));
        json_object_set_new(item, "documentation", json_string(info->semantics));
    }
    if (*list && (!item || json_array_append_new(*list, item) != 0)) {
        json_decref(*list);
        *list = NULL;
    }
}

/* Behind a dot the directives, behind a percent sign nothing, else all words that mean something by
 * themselves. */
json_t *lsp_completion(const char *text, size_t at) {
    static const tvm_word_kind kinds[] = {TVM_WORD_INSTRUCTION, TVM_WORD_CONTROL, TVM_WORD_TYPE,
                                          TVM_WORD_FUNCTION,    TVM_WORD_ATOM,    TVM_WORD_CONSTANT};
    json_t *list = json_array();
    size_t from = at;
    while (from > 0 && is_part(text[from - 1], "_-")) from--;
    char before = from ? text[from - 1] : '\0';
    if (is_text(text, at) || before == '%') return list;
    if (before == '.') tvm_words_each(TVM_WORD_DIRECTIVE, add_item, &list);
    for (size_t i = 0; before != '.' && list && i < sizeof kinds / sizeof *kinds; i++)
        tvm_words_each(kinds[i], add_item, &list);
    return list;
}
