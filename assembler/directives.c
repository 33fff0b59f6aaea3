/* Statements that begin with a dot. */
#include "parser.h"

#include <stdio.h>
#include <string.h>

typedef bool directive_function(tvm_asm *as, const tvm_token *token);

typedef enum where { ANYWHERE, TOP_LEVEL, IN_KERNEL, IN_ENTRY, IN_EITHER } where;

typedef struct directive {
    const char *name;
    directive_function *function;
    where where;
} directive;

static bool version(tvm_asm *as, const tvm_token *token) {
    int64_t number;
    bool first = !as->version_seen;
    as->version_seen = true;
    /* An included file may say it, too, before anything else: the dot is its first token, line breaks aside.
     */
    const tvm_token *before = token - 1;
    while (!first && before-- > as->source->tokens)
        if (before->kind != TVM_TOKEN_NEWLINE)
            return tvm_asm_error(as, token, NULL, "'.vasm' stands in the first statement of a file");
    const tvm_token *at = tvm_asm_peek(as);
    if (!tvm_asm_static_integer(as, INT64_MIN, INT64_MAX, "the version", &number)) return false;
    if (number < 1 || number > TVM_LANGUAGE_VERSION)
        return tvm_asm_error(as, at, NULL, "version %lld of the language is not known, only 1 to %d",
                             (long long)number, TVM_LANGUAGE_VERSION);
    as->version = (unsigned)number;
    if (as->version > as->latest) as->latest = as->version;
    return tvm_asm_expect_end(as);
}

/* ---- .const and .layout ---- */

static tvm_define *find_define(const tvm_asm *as, const char *name, uint32_t length) {
    for (size_t i = 0; i < as->define_count; i++) {
        tvm_define *define = &as->defines[i];
        if (!define->used && define->length == length && memcmp(define->name, name, length) == 0)
            return define;
    }
    return NULL;
}

bool tvm_asm_overridden(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                        tvm_value *value, bool *given) {
    tvm_define *define = as->names.scope == 0 && !as->in_kernel ? find_define(as, name, length) : NULL;
    if (given) *given = define != NULL;
    if (!define) return true;
    define->used = true;
    bool numbers = tvm_value_is_number(&define->value) && tvm_value_is_number(value);
    if (!numbers && define->value.kind != value->kind && value->kind != TVM_VALUE_POISON)
        return tvm_asm_invalid(as, token, NULL, "-D %.*s gives %s where %s is needed", (int)length, name,
                               tvm_value_what(&define->value), tvm_value_what(value));
    *value = define->value;
    return true;
}

/* A file's constants are defaults where it is included: what was set before, by another file, stays. */
static bool set_by_another_file(const tvm_asm *as, const char *name, uint32_t length) {
    if (as->names.scope != 0 || as->in_kernel) return false;
    const tvm_symbol *old = tvm_symbols_find(&as->names, name, length);
    return old && old->line && strcmp(old->file, as->source->name) != 0;
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

static bool constants(tvm_asm *as, const tvm_token *token) {
    (void)token;
    do {
        if (!one_const(as)) return false;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
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

static bool layouts(tvm_asm *as, const tvm_token *token) {
    (void)token;
    do {
        if (!one_layout(as)) return false;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
}

/* ---- the rest ---- */

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
    as->stopped = true;
    return false;
}

static bool error(tvm_asm *as, const tvm_token *token) {
    tvm_value text;
    return message(as, "the text of .error", &text) && refuse(as, token, &text, "'.error' without a text");
}

/* condition [, "text"] */
static bool assertion(tvm_asm *as, const tvm_token *token) {
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

/* ---- .let ---- */

static bool launch_value(tvm_asm *as, const tvm_token *token, const tvm_value *value) {
    if (value->kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token, "other values are defined with .const", "expected a scalar, found %s",
                             tvm_value_what(value));
    return value->kind != TVM_VALUE_EXPR ||
           tvm_asm_launch_time(as, token, value->as.expr, TVM_LEAF_GRID, "a value of .let");
}

bool tvm_asm_let_value(tvm_asm *as, const tvm_token *token, const tvm_value *let, tvm_value *value) {
    const tvm_source *outer_source = as->let_source, *source = as->source;
    const tvm_token *outer_token = as->let_token;
    uint32_t at = as->at;
    if (++as->nesting > TVM_ASM_NESTING || as->tokens > TVM_ASM_TOKENS)
        return tvm_asm_error(as, token, "does the value depend on itself?", "values of .let nested too deep");
    if (!as->let_token) {
        as->let_source = as->source;
        as->let_token = token;
    }
    as->source = let->as.let.source;
    as->at = let->as.let.at;
    const tvm_token *first = tvm_asm_peek(as);
    bool good = tvm_asm_expression(as, value) && launch_value(as, first, value);
    as->source = source;
    as->at = at;
    as->let_source = outer_source;
    as->let_token = outer_token;
    as->nesting--;
    return good;
}

/* In a kernel the value is read here, once; elsewhere the parameters are not known, and it is read where it
 * is used. */
static bool one_let(tvm_asm *as) {
    const char *name;
    uint32_t length;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect_name(as, "the name of a launch-time value", &name, &length) ||
        !tvm_asm_expect(as, "=", "after the name of the value"))
        return false;
    const tvm_token *at = tvm_asm_peek(as);
    tvm_value value = {.kind = TVM_VALUE_LET, .as.let = {as->source, as->at}};
    bool good = true;
    if (as->in_kernel && !as->in_entry) {
        good = tvm_asm_expression(as, &value) && launch_value(as, at, &value);
    } else {
        tvm_asm_skip_expression(as);
    }
    if (!good) value = tvm_value_poison();
    return tvm_asm_define(as, token, name, length, &value) && good;
}

static bool let(tvm_asm *as, const tvm_token *token) {
    (void)token;
    do {
        if (!one_let(as)) return false;
    } while (tvm_asm_accept(as, ","));
    return tvm_asm_expect_end(as);
}

static bool elif_branch(tvm_asm *as, const tvm_token *token) {
    return tvm_asm_elif(as, token, false);
}

static bool else_branch(tvm_asm *as, const tvm_token *token) {
    return tvm_asm_elif(as, token, true);
}

static bool end_of_table(tvm_asm *as, const tvm_token *token) {
    return tvm_asm_error(as, token, NULL, "'.endtable' without '.table'");
}

static bool warps(tvm_asm *as, const tvm_token *token) {
    if (as->warps_seen) return tvm_asm_error(as, token, NULL, "'.warps' is already given");
    return tvm_asm_warps(as);
}

static bool resident(tvm_asm *as, const tvm_token *token) {
    if (as->resident_seen) return tvm_asm_error(as, token, NULL, "'.resident' is already given");
    return tvm_asm_resident(as);
}

static bool assume(tvm_asm *as, const tvm_token *token) {
    (void)token;
    return tvm_asm_assume(as);
}

static const directive directives[] = {
    {"vasm", version, ANYWHERE},
    {"const", constants, ANYWHERE},
    {"include", tvm_asm_include, ANYWHERE},
    {"if", tvm_asm_if, ANYWHERE},
    {"elif", elif_branch, ANYWHERE},
    {"else", else_branch, ANYWHERE},
    {"endif", tvm_asm_endif, ANYWHERE},
    {"for", tvm_asm_for, ANYWHERE},
    {"endfor", tvm_asm_endfor, ANYWHERE},
    {"layout", layouts, ANYWHERE},
    {"error", error, ANYWHERE},
    {"assert", assertion, ANYWHERE},
    {"let", let, ANYWHERE},
    {"macro", tvm_asm_macro, ANYWHERE},
    {"endmacro", tvm_asm_endmacro, ANYWHERE},
    {"table", tvm_asm_table, ANYWHERE},
    {"endtable", end_of_table, ANYWHERE},
    {"scope", tvm_asm_scope, ANYWHERE},
    {"endscope", tvm_asm_endscope, ANYWHERE},
    {"tune", tvm_asm_tune, TOP_LEVEL},
    {"signature", tvm_asm_signature, TOP_LEVEL},
    {"kernel", tvm_asm_kernel_header, TOP_LEVEL},
    {"warps", warps, IN_KERNEL},
    {"resident", resident, IN_KERNEL},
    {"cluster", tvm_asm_cluster, IN_KERNEL},
    {"grid", tvm_asm_grid, IN_KERNEL},
    {"assume", assume, IN_KERNEL},
    {"entry", tvm_asm_entry_header, TOP_LEVEL},
    {"case", tvm_asm_case, IN_ENTRY},
    {"end", tvm_asm_kernel_end, IN_EITHER},
};

enum { DIRECTIVE_COUNT = sizeof directives / sizeof *directives };

bool tvm_asm_is_directive(const char *name, size_t length) {
    for (size_t i = 0; i < DIRECTIVE_COUNT; i++)
        if (strlen(directives[i].name) == length && memcmp(directives[i].name, name, length) == 0)
            return true;
    return false;
}

const char *tvm_asm_directive_name(size_t index) {
    return index < DIRECTIVE_COUNT ? directives[index].name : NULL;
}

void tvm_asm_offer_directives(tvm_suggest *suggest) {
    for (size_t i = 0; i < DIRECTIVE_COUNT; i++)
        tvm_suggest_offer(suggest, directives[i].name, strlen(directives[i].name));
}

static bool run(tvm_asm *as, const directive *d, const tvm_token *token) {
    if ((d->where == IN_KERNEL && (!as->in_kernel || as->in_entry)) ||
        (d->where == IN_EITHER && !as->in_kernel))
        return tvm_asm_error(as, token, NULL, "'.%s' outside of a kernel", d->name);
    if (d->where == IN_ENTRY && !as->in_entry)
        return tvm_asm_error(as, token, NULL, "'.%s' outside of an entry", d->name);
    if (d->where == TOP_LEVEL && as->in_kernel) {
        const char *what = as->in_entry ? "an entry" : "a kernel";
        tvm_asm_error(as, token,
                      as->in_entry ? "the entry before it ends with .end"
                                   : "the kernel before it ends with .end",
                      "'.%s' inside of %s", d->name, what);
        tvm_asm_kernel_close(as);
    }
    return d->function(as, token);
}

void tvm_asm_unknown_directive(tvm_asm *as, const tvm_token *name) {
    const char *text = tvm_token_text(as->source, name);
    tvm_suggest suggest;
    char hint[96];
    tvm_suggest_start(&suggest, text, name->length);
    tvm_asm_offer_directives(&suggest);
    tvm_asm_error(as, name, tvm_suggest_hint(&suggest, ".", hint), "unknown directive '.%.*s'",
                  name->length > 60 ? 60 : (int)name->length, text);
}

void tvm_asm_directive(tvm_asm *as) {
    tvm_asm_next(as); /* the dot */
    const tvm_token *token = tvm_asm_peek(as);
    const tvm_source *source = as->source;
    uint32_t from = as->at;
    char found[80];
    if (token->kind != TVM_TOKEN_NAME) {
        tvm_asm_error(as, token, NULL, "expected a directive after '.', found %s",
                      tvm_asm_found(as, token, found));
        tvm_asm_skip_statement(as);
        return;
    }
    tvm_asm_next(as);
    for (size_t i = 0; i < DIRECTIVE_COUNT; i++) {
        if (!tvm_asm_is(as, token, directives[i].name)) continue;
        bool good = run(as, &directives[i], token);
        /* Nothing to recover from where the directive has gone elsewhere, or consumed the line's end. */
        bool moved = as->source != source || as->at <= from;
        if (!good && !moved && as->source->tokens[as->at - 1].kind != TVM_TOKEN_NEWLINE)
            tvm_asm_skip_statement(as);
        return;
    }
    tvm_asm_unknown_directive(as, token);
    tvm_asm_skip_statement(as);
}
