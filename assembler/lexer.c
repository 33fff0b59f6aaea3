#include "lexer.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "directive_names.h"
#include "vbc_format.h"

enum { OPENERS = 128 /* open brackets whose places are kept */ };

typedef struct lexer {
    tvm_source *source;
    size_t at;
    size_t line_start;
    uint32_t line;
    unsigned brackets;         /* open ( and [ */
    uint32_t openers[OPENERS]; /* their tokens, the outermost first */
    bool blank;                /* before the next token */
    bool continued;            /* by a backslash at the end of the line */
    unsigned limit;
    unsigned *errors;
    tvm_diags *diags;
    tvm_status status;
} lexer;

static bool is_name_start(char c) {
    return isalpha((unsigned char)c) || c == '_';
}

static bool is_name_part(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static char peek(const lexer *lex, size_t ahead) {
    size_t at = lex->at + ahead;
    return at < lex->source->length ? lex->source->text[at] : '\0';
}

__attribute__((format(printf, 4, 5))) static void lexical_error(lexer *lex, size_t at, size_t length,
                                                                const char *format, ...) {
    if (*lex->errors >= lex->limit) return;
    (*lex->errors)++;
    char line[TVM_SOURCE_LINE_MAX + 1];
    tvm_source_line(lex->source, (uint32_t)at, line);
    tvm_place place = {lex->source->name, lex->line, (uint32_t)(at - lex->line_start + 1), (uint32_t)length,
                       line[0] ? line : NULL};
    va_list arguments;
    va_start(arguments, format);
    tvm_diag_addv(lex->diags, TVM_SYNTAX, &place, NULL, format, arguments);
    va_end(arguments);
}

static tvm_token *push(lexer *lex, tvm_token_kind kind, size_t from) {
    tvm_source *source = lex->source;
    if (source->count == source->capacity) {
        uint32_t capacity = source->capacity ? source->capacity * 2 : 256;
        if (capacity > 2u * TVM_TOKENS_MAX) {
            lex->status =
                tvm_diag_add(lex->diags, TVM_SYNTAX, &(tvm_place){.file = source->name, .line = lex->line},
                             NULL, "more than %d tokens in one file", TVM_TOKENS_MAX);
            return NULL;
        }
        tvm_token *tokens = realloc(source->tokens, capacity * sizeof *tokens);
        if (!tokens) {
            lex->status = tvm_diag_no_memory(lex->diags);
            return NULL;
        }
        source->tokens = tokens;
        source->capacity = capacity;
    }
    tvm_token *token = &source->tokens[source->count++];
    *token = (tvm_token){.kind = (uint8_t)kind,
                         .adjacent = !lex->blank,
                         .offset = (uint32_t)from,
                         .length = (uint32_t)(lex->at - from),
                         .line = lex->line,
                         .column = (uint32_t)(from - lex->line_start + 1)};
    lex->blank = false;
    return token;
}

static size_t past_blanks(const char *text, size_t at) {
    while (text[at] == ' ' || text[at] == '\t') at++;
    return at;
}

static size_t past_name(const char *text, size_t at) {
    while (is_name_part(text[at])) at++;
    return at;
}

/* Does the line that begins at the lexer's position begin a statement, whatever came before: a directive,
 * `%name =` or `for %name`? Then brackets left open are a mistake of a line before, not a statement over
 * several lines. */
static bool statement_follows(const lexer *lex) {
    const char *text = lex->source->text;
    size_t from = past_blanks(text, lex->at), end = text[from] ? past_name(text, from + 1) : from;
    if (text[from] == '.') return tvm_asm_is_directive(text + from + 1, end - from - 1);
    if (text[from] == '%' && is_name_start(text[from + 1])) {
        size_t equals = past_blanks(text, end);
        return text[equals] == '=' && text[equals + 1] != '=';
    }
    if (strncmp(text + from, "for", 3) != 0 || end != from + 3) return false;
    size_t variable = past_blanks(text, end);
    return text[variable] == '%' && is_name_start(text[variable + 1]);
}

/* Ends the statement. A bracket that it leaves open is remembered with its end. */
static void end_statement(lexer *lex, size_t from) {
    const tvm_source *source = lex->source;
    uint32_t opener = 0;
    if (lex->brackets) opener = lex->openers[lex->brackets < OPENERS ? lex->brackets - 1 : OPENERS - 1] + 1;
    lex->brackets = 0;
    if (!source->count || source->tokens[source->count - 1].kind == TVM_TOKEN_NEWLINE) return;
    tvm_token *token = push(lex, TVM_TOKEN_NEWLINE, from);
    if (token) token->value.u = opener;
}

static void newline(lexer *lex) {
    tvm_source *source = lex->source;
    size_t from = lex->at++;
    bool comma = source->count && source->tokens[source->count - 1].kind == TVM_TOKEN_SIGN &&
                 source->text[source->tokens[source->count - 1].offset] == ',';
    bool joined = (lex->brackets || lex->continued || comma) && !statement_follows(lex);
    lex->continued = false;
    if (!joined) end_statement(lex, from);
    lex->blank = true;
    lex->line++;
    lex->line_start = lex->at;
}

static void comment(lexer *lex) {
    while (lex->at < lex->source->length && peek(lex, 0) != '\n') lex->at++;
    lex->blank = true;
}

/* Past `${ ... }`; false when it is not closed on this line. */
static bool paste(lexer *lex) {
    unsigned depth = 0;
    while (lex->at < lex->source->length && peek(lex, 0) != '\n') {
        char c = peek(lex, 0);
        lex->at++;
        if (c == '{') depth++;
        if (c == '}' && --depth == 0) return true;
    }
    return false;
}

static void name(lexer *lex) {
    size_t from = lex->at;
    bool pasted = false;
    for (;;) {
        if (is_name_part(peek(lex, 0))) {
            lex->at++;
        } else if (peek(lex, 0) == '$' && peek(lex, 1) == '{') {
            pasted = true;
            if (!paste(lex)) {
                lexical_error(lex, from, lex->at - from, "'${' without '}'");
                return;
            }
        } else {
            break;
        }
    }
    tvm_token *token = push(lex, TVM_TOKEN_NAME, from);
    if (token) token->pasted = pasted;
}

/* Digits of a radix with underscores between; false on overflow of 64 bits or no digit. */
static bool digits(const char *text, size_t length, unsigned radix, uint64_t *value) {
    uint64_t v = 0;
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '_') continue;
        unsigned digit = isdigit((unsigned char)c) ? (unsigned)(c - '0')
                                                   : (unsigned)(tolower((unsigned char)c) - 'a') + 10;
        if (digit >= radix) return false;
        if (__builtin_mul_overflow(v, radix, &v) || __builtin_add_overflow(v, digit, &v)) return false;
        count++;
    }
    *value = v;
    return count > 0;
}

static bool real(const char *text, size_t length, double *value) {
    char clean[64];
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '_') continue;
        if (n + 1 == sizeof clean) return false;
        clean[n++] = text[i];
    }
    clean[n] = '\0';
    char *end;
    *value = strtod(clean, &end);
    return *end == '\0' && isfinite(*value);
}

static void number(lexer *lex) {
    const char *text = lex->source->text;
    size_t from = lex->at;
    bool is_real = false, radix_given = peek(lex, 0) == '0' && (tolower((unsigned char)peek(lex, 1)) == 'x' ||
                                                                tolower((unsigned char)peek(lex, 1)) == 'b');
    while (is_name_part(peek(lex, 0))) {
        char c = (char)tolower((unsigned char)peek(lex, 0));
        lex->at++;
        if (radix_given) continue;
        if (c == 'e') {
            is_real = true;
            if (peek(lex, 0) == '+' || peek(lex, 0) == '-') lex->at++;
        }
        if (peek(lex, 0) == '.' && isdigit((unsigned char)peek(lex, 1)) && !is_real) {
            is_real = true;
            lex->at++;
        }
    }
    size_t length = lex->at - from;
    uint64_t u = 0;
    double f = 0;
    bool good;
    if (is_real) {
        good = real(text + from, length, &f);
    } else if (radix_given) {
        good =
            digits(text + from + 2, length - 2, tolower((unsigned char)text[from + 1]) == 'x' ? 16 : 2, &u);
    } else {
        good = digits(text + from, length, 10, &u);
    }
    if (!good)
        lexical_error(lex, from, length, "malformed or too large number '%.*s'",
                      length > 80 ? 80 : (int)length, text + from);
    tvm_token *token = push(lex, is_real ? TVM_TOKEN_FLOAT : TVM_TOKEN_INTEGER, from);
    if (!token) return;
    if (is_real) {
        token->value.f = f;
    } else {
        token->value.u = u;
    }
}

static void string(lexer *lex) {
    size_t from = lex->at++;
    while (lex->at < lex->source->length && peek(lex, 0) != '"') {
        if (peek(lex, 0) == '\n') {
            lexical_error(lex, from, lex->at - from, "string without closing quote");
            return;
        }
        lex->at += peek(lex, 0) == '\\' && peek(lex, 1) != '\n' && lex->at + 1 < lex->source->length ? 2 : 1;
    }
    if (lex->at >= lex->source->length) {
        lex->at = lex->source->length;
        lexical_error(lex, from, lex->at - from, "string without closing quote");
        return;
    }
    lex->at++;
    push(lex, TVM_TOKEN_STRING, from);
}

static void sign(lexer *lex) {
    static const char pairs[][3] = {"<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
    char c = peek(lex, 0), d = peek(lex, 1);
    size_t from = lex->at;
    if (!c || !strchr("%.,:()[]=+-*/<>&|^~!?", c)) {
        bool printable = isprint((unsigned char)c);
        size_t length = 1;
        /* one error for a whole UTF-8 sequence */
        while ((unsigned char)c >= 0xC0 && ((unsigned char)peek(lex, length) & 0xC0) == 0x80) length++;
        if (printable) {
            lexical_error(lex, from, 1, "unexpected character '%c'", c);
        } else {
            lexical_error(lex, from, length, "unexpected byte 0x%02x", (unsigned char)c);
        }
        lex->at += length;
        lex->blank = true;
        return;
    }
    lex->at++;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (c == pairs[i][0] && d == pairs[i][1]) {
            lex->at++;
            break;
        }
    }
    if (c == '(' || c == '[') {
        if (lex->brackets < OPENERS) lex->openers[lex->brackets] = lex->source->count;
        lex->brackets++;
    }
    if ((c == ')' || c == ']') && lex->brackets) lex->brackets--;
    push(lex, TVM_TOKEN_SIGN, from);
}

static void next_token(lexer *lex) {
    char c = peek(lex, 0);
    if (c == '\n') {
        newline(lex);
    } else if (c == ' ' || c == '\t' || c == '\r') {
        lex->at++;
        lex->blank = true;
    } else if (c == '\\' && (peek(lex, 1) == '\n' || (peek(lex, 1) == '\r' && peek(lex, 2) == '\n'))) {
        lex->at++;
        lex->continued = true;
    } else if (c == ';' || c == '#' || (c == '/' && peek(lex, 1) == '/')) {
        comment(lex);
    } else if (is_name_start(c) || (c == '$' && peek(lex, 1) == '{')) {
        name(lex);
    } else if (isdigit((unsigned char)c)) {
        number(lex);
    } else if (c == '"') {
        string(lex);
    } else {
        sign(lex);
    }
}

tvm_source *tvm_source_new(const char *name, const char *text, size_t length, unsigned limit,
                           unsigned *errors, tvm_diags *diags) {
    if (length > TVM_SOURCE_MAX) {
        tvm_diag_add(diags, TVM_SYNTAX, &(tvm_place){.file = name}, NULL, "longer than %d bytes",
                     TVM_SOURCE_MAX);
        return NULL;
    }
    if (length >= sizeof VBC_MAGIC - 1 && memcmp(text, VBC_MAGIC, sizeof VBC_MAGIC - 1) == 0) {
        tvm_diag_add(diags, TVM_SYNTAX, &(tvm_place){.file = name, .line = 1, .column = 1},
                     "tvm-dis writes it as text; tvm-run and tvm-cc take it as it is",
                     "this is bytecode, not text");
        return NULL;
    }
    tvm_source *source = calloc(1, sizeof *source);
    char *copy = source ? malloc(length + 1) : NULL;
    char *name_copy = copy ? strdup(name) : NULL;
    if (!name_copy) {
        free(copy);
        free(source);
        tvm_diag_no_memory(diags);
        return NULL;
    }
    if (length) memcpy(copy, text, length);
    copy[length] = '\0';
    source->name = name_copy;
    source->text = copy;
    source->length = length;
    lexer lex = {
        .source = source, .line = 1, .limit = limit, .errors = errors, .diags = diags, .blank = true};
    if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        lex.at = lex.line_start = 3; /* byte-order mark */
    while (lex.at < length && lex.status == TVM_OK) next_token(&lex);
    if (lex.status == TVM_OK) end_statement(&lex, length);
    if (lex.status == TVM_OK) push(&lex, TVM_TOKEN_END, length);
    if (lex.status == TVM_OK) return source;
    tvm_source_free(source);
    return NULL;
}

void tvm_source_free(tvm_source *source) {
    if (!source) return;
    free(source->tokens);
    free(source->text);
    free(source->name);
    free(source);
}

void tvm_source_line(const tvm_source *source, uint32_t offset, char line[TVM_SOURCE_LINE_MAX + 1]) {
    size_t from = offset, to = offset;
    line[0] = '\0';
    while (from > 0 && source->text[from - 1] != '\n' && offset - from <= TVM_SOURCE_LINE_MAX) from--;
    while (to < source->length && source->text[to] != '\n' && to - from <= TVM_SOURCE_LINE_MAX) to++;
    if (to > from && source->text[to - 1] == '\r') to--;
    if (to - from > TVM_SOURCE_LINE_MAX) return;
    memcpy(line, source->text + from, to - from);
    line[to - from] = '\0';
}
