/* Statements that begin with a dot. */
#include "directives.h"

#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "directive_names.h"
#include "expressions.h"
#include "head.h"
#include "language.h"
#include "names.h"
#include "operators.h"
#include "report.h"
#include "suggest.h"

typedef bool directive_function(tvm_asm *as, const tvm_token *token);

typedef enum where { ANYWHERE, TOP_LEVEL, IN_KERNEL, IN_HEAD, IN_ENTRY, IN_EITHER } where;

typedef struct directive {
    const char *name;
    directive_function *function;
    where where;
} directive;

bool tvm_directive_vasm(tvm_asm *as, const tvm_token *token) {
    int64_t number;
    bool first = !as->text.version_seen;
    as->text.version_seen = true;
    /* An included file may say it, too, before anything else: the dot is its first token, line breaks aside.
     */
    const tvm_token *before = token - 1;
    while (!first && before-- > as->text.source->tokens)
        if (before->kind != TVM_TOKEN_NEWLINE)
            return tvm_asm_error(as, token, NULL, "'.vasm' stands in the first statement of a file");
    const tvm_token *at = tvm_asm_peek(as);
    if (!tvm_asm_static_integer(as, INT64_MIN, INT64_MAX, "the version", &number)) return false;
    if (number < 1 || number > TVM_LANGUAGE_VERSION)
        return tvm_asm_error(as, at, NULL, "version %lld of the language is not known, only 1 to %d",
                             (long long)number, TVM_LANGUAGE_VERSION);
    as->text.version = (unsigned)number;
    if (as->text.version > as->text.latest) as->text.latest = as->text.version;
    return tvm_asm_expect_end(as);
}

/* ---- .const and .layout ---- */

/* A file's constants are defaults where it is included: what was set before, by another file, stays. */
static bool set_by_another_file(const tvm_asm *as, const char *name, uint32_t length) {
    if (as->statics.names.scope != 0 || as->kernel.begun) return false;
    const tvm_symbol *old = tvm_symbols_find(&as->statics.names, name, length);
    return old && old->line && strcmp(old->file, as->text.source->name) != 0;
}

static bool one_const(tvm_asm *as) {
    const char *name;
    uint32_t length;
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value = tvm_value_poison();
    if (!tvm_asm_expect_name(as, "the name of a constant", &name, &length)) return false;
    if (!tvm_asm_expect(as, "=", "after the name of the constant")) {
        tvm_asm_poison_name(as, name, length);
        return false;
    }
    bool good = tvm_asm_static(as, "a constant", &value);
    if (!good) value = tvm_value_poison();
    if (set_by_another_file(as, name, length)) return good;
    good = tvm_asm_overridden(as, token, name, length, &value, NULL) && good;
    return tvm_asm_define(as, token, name, length, &value) && good;
}

bool tvm_directive_const(tvm_asm *as, const tvm_token *token) {
    (void)token;
    return tvm_asm_each(as, one_const);
}

static bool one_layout(tvm_asm *as) {
    const char *name;
    uint32_t length;
    tvm_value value = tvm_value_poison();
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect_name(as, "the name of a layout", &name, &length)) return false;
    if (!tvm_asm_expect(as, "=", "after the name of the layout")) {
        tvm_asm_poison_name(as, name, length);
        return false;
    }
    const tvm_token *at = tvm_asm_peek(as);
    bool good = tvm_asm_static(as, "a layout", &value);
    if (!good) value = tvm_value_poison();
    if (value.kind != TVM_VALUE_POISON && value.kind != TVM_VALUE_LAYOUT && value.kind != TVM_VALUE_SHARED &&
        value.kind != TVM_VALUE_SWIZZLE && value.kind != TVM_VALUE_ROW_MAJOR) {
        good = tvm_asm_error(as, at, "other values are defined with .const", "expected a layout, found %s",
                             tvm_value_what(&value));
        value = tvm_value_poison();
    }
    return tvm_asm_define(as, token, name, length, &value) && good;
}

bool tvm_directive_layout(tvm_asm *as, const tvm_token *token) {
    (void)token;
    return tvm_asm_each(as, one_layout);
}

/* ---- .error and .assert ---- */

static bool message(tvm_asm *as, const char *what, tvm_value *text) {
    const tvm_token *at = tvm_asm_peek(as);
    if (!tvm_asm_static(as, what, text) || text->kind == TVM_VALUE_POISON) return false;
    return text->kind == TVM_VALUE_STRING ||
           tvm_asm_error(as, at, NULL, "expected a text in quotes, found %s", tvm_value_what(text));
}

/* Ends the assembly: what follows was refused with it. */
static bool refuse(tvm_asm *as, const tvm_token *token, const tvm_value *text, const char *without) {
    if (text->as.string.length)
        tvm_asm_invalid(as, token, NULL, "%.*s", (int)text->as.string.length, text->as.string.text);
    else
        tvm_asm_invalid(as, token, NULL, "%s", without);
    as->report.stopped = true;
    return false;
}

bool tvm_directive_error(tvm_asm *as, const tvm_token *token) {
    tvm_value text;
    return message(as, "the text of .error", &text) && refuse(as, token, &text, "'.error' without a text");
}

/* condition [, "text"] */
bool tvm_directive_assert(tvm_asm *as, const tvm_token *token) {
    const tvm_token *at = tvm_asm_peek(as);
    tvm_value value, truth, text = tvm_value_string("", 0);
    if (!tvm_asm_expression(as, &value) || !tvm_asm_to_bool(as, at, &value, &truth)) return false;
    if (truth.kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_static(&truth))
        return tvm_asm_error(as, at, "what a launch must fulfil stands in .assume",
                             "an assertion must be known when the program is assembled");
    if (tvm_asm_accept(as, ",") && !message(as, "the text of .assert", &text)) return false;
    if (!truth.as.i) return refuse(as, token, &text, "the assertion does not hold");
    return tvm_asm_expect_end(as);
}

static const directive directives[] = {
#define TVM_DIRECTIVE(name, where) {#name, tvm_directive_##name, where},
#include "directive_names.def"
#undef TVM_DIRECTIVE
};

enum { DIRECTIVE_COUNT = sizeof directives / sizeof *directives };

static bool run(tvm_asm *as, const directive *d, const tvm_token *token) {
    bool in_head = as->kernel.begun && !as->kernel.is_entry; /* of a kernel, or of a graph */
    if ((d->where == IN_KERNEL && (!in_head || as->kernel.is_graph)) || (d->where == IN_HEAD && !in_head) ||
        (d->where == IN_EITHER && !as->kernel.begun))
        return tvm_asm_error(as, token, NULL, "'.%s' outside of a kernel", d->name);
    if (d->where == IN_ENTRY && !as->kernel.is_entry)
        return tvm_asm_error(as, token, NULL, "'.%s' outside of an entry", d->name);
    if (d->where == TOP_LEVEL && as->kernel.begun) {
        char hint[48];
        const char *what = tvm_asm_what_is_open(as);
        snprintf(hint, sizeof hint, "the %s before it ends with .end", what);
        tvm_asm_error(as, token, hint, "'.%s' inside of %s %s", d->name, as->kernel.is_entry ? "an" : "a",
                      what);
        tvm_asm_kernel_close(as);
    }
    return d->function(as, token);
}

void tvm_asm_unknown_directive(tvm_asm *as, const tvm_token *name) {
    const char *text = tvm_token_text(as->text.source, name);
    tvm_suggest suggest;
    tvm_suggest_start(&suggest, text, name->length);
    tvm_suggest_offer_all(&suggest, tvm_asm_directive_name);
    tvm_asm_error(as, name, TVM_SUGGEST_HINT(&suggest, "."), "unknown directive '.%.*s'",
                  name->length > 60 ? 60 : (int)name->length, text);
}

void tvm_asm_directive(tvm_asm *as) {
    tvm_asm_next(as); /* the dot */
    const tvm_token *token = tvm_asm_peek(as);
    const tvm_source *source = as->text.source;
    uint32_t from = as->text.at;
    if (token->kind != TVM_TOKEN_NAME) {
        tvm_asm_expected(as, token, NULL, "a directive after '.'");
        tvm_asm_skip_statement(as);
        return;
    }
    tvm_asm_next(as);
    for (size_t i = 0; i < DIRECTIVE_COUNT; i++) {
        if (!tvm_asm_is(as, token, directives[i].name)) continue;
        bool good = run(as, &directives[i], token);
        /* Nothing to recover from where the directive has gone elsewhere, or consumed the line's end. */
        bool moved = as->text.source != source || as->text.at <= from;
        if (!good && !moved && as->text.source->tokens[as->text.at - 1].kind != TVM_TOKEN_NEWLINE)
            tvm_asm_skip_statement(as);
        return;
    }
    tvm_asm_unknown_directive(as, token);
    tvm_asm_skip_statement(as);
}
