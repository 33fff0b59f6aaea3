#include "tidy_lines.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- classes of registers ---- */

enum { CLASSES = 7 };
/* As emit.h has them. Those of one width may stand for each other, as all are declared as untyped bits. */
static const struct {
    const char *prefix;
    uint8_t width;
} classes[CLASSES] = {{"%p", 1}, {"%r", 32}, {"%rd", 64}, {"%f", 32}, {"%fd", 64}, {"%h", 16}, {"%w", 32}};

static void find_counts(emitter *e, uint32_t *counts[CLASSES]) {
    uint32_t *const of[CLASSES] = {&e->next_pred, &e->next_r, &e->next_rd,  &e->next_f,
                                   &e->next_fd,   &e->next_h, &e->next_word};
    memcpy(counts, of, sizeof of);
}

static unsigned class_of(const tidy_lines *l, uint32_t r) {
    unsigned class = 0;
    while (r >= l->first_of[class + 1]) class ++;
    return class;
}

bool tvm_tidy_same_class(const tidy_lines *l, uint32_t a, uint32_t b) {
    return classes[class_of(l, a)].width == classes[class_of(l, b)].width;
}

/* ---- what an instruction does ---- */

/* PTX ISA, "Instruction Set": by the first part of the name. */
static const char *const pure[] = {
    "mov", "add",  "sub",  "mul", "mad",  "fma",  "and",   "or",   "xor",      "not",         "shl",
    "shr", "shf",  "cvt",  "min", "max",  "neg",  "abs",   "setp", "selp",     "prmt",        "lop3",
    "bfe", "bfi",  "popc", "clz", "brev", "ex2",  "lg2",   "sqrt", "rsqrt",    "rcp",         "sin",
    "cos", "tanh", "div",  "rem", "cvta", "mapa", "bfind", "sad",  "copysign", "createpolicy"};
static const char *const with_result[] = {"ld",   "mma",   "ldmatrix", "shfl",     "atom",
                                          "vote", "match", "elect",    "movmatrix"};
static const char *const without_result[] = {
    "st",   "bra", "bar",      "barrier",        "fence",   "membar",   "red",       "trap",      "ret",
    "exit", "cp",  "prefetch", "griddepcontrol", "discard", "stmatrix", "nanosleep", "setmaxnreg"};
static const char *const with_literals[] = {"mov", "add",  "sub",  "mul", "mad", "and", "or",  "xor", "min",
                                            "max", "setp", "selp", "fma", "div", "rem", "shl", "shr"};

#define IS_IN(table, name, length) is_in(table, sizeof(table) / sizeof *(table), name, length)
static bool is_in(const char *const *table, size_t count, const char *name, size_t length) {
    for (size_t i = 0; i < count; i++)
        if (table[i][0] == name[0] && strncmp(table[i], name, length) == 0 && table[i][length] == '\0')
            return true;
    return false;
}

static bool begins_with(const char *name, size_t length, const char *prefix) {
    return length >= strlen(prefix) && memcmp(name, prefix, strlen(prefix)) == 0;
}

static line_kind kind_of(const char *name, size_t length, size_t root) {
    bool is_barrier = begins_with(name, length, "mbarrier.");
    if (IS_IN(pure, name, root) || begins_with(name, length, "ld.param")) return LINE_PURE;
    if (IS_IN(with_result, name, root)) return LINE_RESULT;
    if (is_barrier &&
        (begins_with(name, length, "mbarrier.try_wait") || begins_with(name, length, "mbarrier.test_wait")))
        return LINE_RESULT;
    if (IS_IN(without_result, name, root) || begins_with(name, length, "mbarrier.init")) return LINE_USE;
    return LINE_OPAQUE;
}

/* How many tokens, from one on, stand before this place. */
static uint16_t tokens_before(const tidy_lines *l, uint32_t from, const char *place) {
    uint32_t at = from;
    while (at < l->token_count && l->text + l->tokens[at].at < place) at++;
    return (uint16_t)(at - from);
}

/* The type, at the name's end, of operands that may be constants; those between braces may not. */
static void find_literals(line *of, const char *name, size_t length, size_t root, const char *end) {
    const char *type = name + length - 4;
    bool word =
        length > 4 && type[0] == '.' && (memcmp(type + 2, "32", 2) == 0 || memcmp(type + 2, "64", 2) == 0);
    of->is_real = word && type[1] == 'f';
    of->takes_literals = word && IS_IN(with_literals, name, root) && !memchr(name, '{', (size_t)(end - name));
}

static void read_operation(tidy_lines *l, line *of, const char *name, const char *end) {
    size_t length = 0, root = 0;
    while (name[length] != ' ' && name[length] != ';') length++;
    while (root < length && name[root] != '.') root++;
    of->is_wgmma = root == 5 && memcmp(name, "wgmma", 5) == 0;
    of->guarded = tokens_before(l, of->first, name);
    of->kind = kind_of(name, length, root);
    if (of->kind != LINE_RESULT && of->kind != LINE_PURE) return;
    const char *operands = name + length + 1, *stop = NULL;
    if (operands < end) stop = memchr(operands, operands[0] == '{' ? '}' : ',', (size_t)(end - operands));
    of->results = tokens_before(l, of->first + of->guarded, stop ? stop : end);
    if (!of->results) of->kind = LINE_USE; /* its result is no register of the kernel's own: frame.h */
    find_literals(of, name, length, root, end);
    of->is_move = root == 3 && memcmp(name, "mov", 3) == 0 && !of->guarded && of->results == 1 && stop &&
                  !memchr(name, '{', (size_t)(end - name));
}

/* An instruction alone in its line. */
static void read_instruction(tidy_lines *l, line *of) {
    const char *at = l->text + of->begin, *end = l->text + of->end;
    while (at < end && *at == '\t') at++;
    if (at == end || end[-1] != ';') return;
    if (*at == '@') {
        at = memchr(at, ' ', (size_t)(end - at));
        if (!at) return;
        at++;
    }
    if (islower((unsigned char)*at) && memchr(at, ';', (size_t)(end - at)) == end - 1)
        read_operation(l, of, at, end);
}

/* ---- lines ---- */

/* CLASSES: no register begins so. */
static unsigned class_named(const char *name, size_t length) {
    unsigned class = 0;
    while (class < CLASSES &&
           (classes[class].prefix[1] != name[1] || classes[class].prefix[2] != (length > 2 ? name[2] : '\0')))
        class ++;
    return length < 2 || length > 3 ? CLASSES : class;
}

/* Behind the name that begins with the percent sign. */
static char *read_register(tidy_lines *l, uint32_t n, char *begin) {
    char *at = begin + 1;
    while (islower((unsigned char)*at)) at++;
    unsigned class = class_named(begin, (size_t)(at - begin));
    if (class == CLASSES || !isdigit((unsigned char)*at)) return at;
    uint32_t number = 0;
    for (; isdigit((unsigned char)*at); at++) number = number * 10 + (uint32_t)(*at - '0');
    l->tokens[l->token_count++] = (token){.line = n,
                                          .at = (uint32_t)(begin - l->text),
                                          .reg = l->first_of[class] + number,
                                          .length = (uint8_t)(at - begin)};
    return at;
}

static uint32_t label_in(const line *of, const char *text) {
    const char *at = memchr(text + of->begin, '$', of->end - of->begin);
    return at ? (uint32_t)strtoul(at + 2, NULL, 10) : TVM_NONE;
}

static void read_line(tidy_lines *l, uint32_t n) {
    line *of = &l->lines[n];
    char *end = l->text + of->end;
    of->first = l->token_count;
    of->label = of->target = TVM_NONE;
    for (char *at = l->text + of->begin; at && at < end;) {
        at = memchr(at, '%', (size_t)(end - at));
        if (at) at = read_register(l, n, at);
    }
    of->count = l->token_count - of->first;
    if (l->text[of->begin] == '$')
        of->label = label_in(of, l->text);
    else
        of->target = label_in(of, l->text);
    if (of->label == TVM_NONE) read_instruction(l, of);
}

/* ---- registers ---- */

/* Labels that a branch before leads to and that have not come yet, by line: few, as control is structured. */
typedef struct ahead {
    uint32_t lines[64];
    unsigned count;
    uint32_t nearest;
    bool failed;
} ahead;

static void find_nearest(ahead *a, uint32_t n, uint32_t count) {
    unsigned kept = 0;
    a->nearest = count;
    for (unsigned i = 0; i < a->count; i++) {
        if (a->lines[i] <= n) continue;
        a->lines[kept++] = a->lines[i];
        if (a->lines[i] < a->nearest) a->nearest = a->lines[i];
    }
    a->count = kept;
}

static void add_target(ahead *a, uint32_t n) {
    for (unsigned i = 0; i < a->count; i++)
        if (a->lines[i] == n) return;
    if (a->count == sizeof a->lines / sizeof *a->lines)
        a->failed = true;
    else
        a->lines[a->count++] = n;
    if (n < a->nearest) a->nearest = n;
}

static void use_token(tidy_lines *l, uint32_t n, uint32_t i, uint32_t reach) {
    const line *of = &l->lines[n];
    reg_use *use = &l->uses[l->tokens[of->first + i].reg];
    bool result = i >= of->guarded && i < (uint32_t)of->guarded + of->results;
    use->last = n;
    if (of->is_wgmma) use->is_pinned = true;
    if (!result && of->kind != LINE_OPAQUE) {
        if (use->assigned == 0) use->is_early = true;
        return;
    }
    if (use->assigned == 0) use->line = n, use->reach = reach;
    use->assigned += of->kind == LINE_OPAQUE || of->guarded ? 2 : 1;
}

static bool find_uses(tidy_lines *l, uint32_t labels) {
    ahead a = {.nearest = l->line_count};
    uint32_t *places = calloc(labels + (size_t)1, sizeof *places);
    if (!places) return false;
    for (uint32_t n = 0; n < l->line_count; n++)
        if (l->lines[n].label < labels) places[l->lines[n].label] = n;
    for (uint32_t n = 0; n < l->line_count; n++) {
        const line *of = &l->lines[n];
        if (of->label != TVM_NONE) find_nearest(&a, n, l->line_count);
        /* results last: an instruction reads before it assigns */
        for (uint32_t i = 0; i < of->count; i++)
            if (i < of->guarded || i >= (uint32_t)of->guarded + of->results) use_token(l, n, i, a.nearest);
        for (uint32_t i = of->guarded; i < (uint32_t)of->guarded + of->results; i++)
            use_token(l, n, i, a.nearest);
        if (of->target < labels && places[of->target] > n) add_target(&a, places[of->target]);
    }
    free(places);
    for (uint32_t r = 0; r < l->reg_count && !a.failed; r++) {
        reg_use *use = &l->uses[r];
        use->is_plain = use->assigned == 1 && !use->is_early && use->last < use->reach;
    }
    return true;
}

bool tvm_tidy_read(tidy_lines *l, emitter *e) {
    uint32_t *counts[CLASSES];
    tvm_text all = {0};
    find_counts(e, counts);
    for (unsigned class = 0; class < CLASSES; class ++)
        l->first_of[class + 1] = l->first_of[class] + *counts[class];
    l->reg_count = l->first_of[CLASSES];
    tvm_text_append(&all, &e->prologue);
    tvm_text_append(&all, &e->body);
    l->text = all.data;
    if (all.failed || !all.data) return false;
    size_t lines = 0, tokens = 0;
    for (size_t i = 0; i < all.size; i++) {
        lines += all.data[i] == '\n';
        tokens += all.data[i] == '%';
    }
    l->lines = calloc(lines + 1, sizeof *l->lines);
    l->tokens = calloc(tokens + 1, sizeof *l->tokens);
    l->uses = calloc(l->reg_count + (size_t)1, sizeof *l->uses);
    if (!l->lines || !l->tokens || !l->uses) return false;
    for (char *at = all.data, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        l->lines[l->line_count] =
            (line){.begin = (uint32_t)(at - all.data), .end = (uint32_t)(end - all.data)};
        read_line(l, l->line_count++);
    }
    return find_uses(l, e->next_label);
}

/* ---- writing ---- */

typedef struct numbering {
    uint32_t *numbers; /* by register: one more than its new one; 0: it has none yet */
    uint32_t counts[CLASSES];
} numbering;

/* Zeros in front of a hexadecimal number are left out. */
static void write_literal(const tidy_lines *l, const token *of, tvm_text *out) {
    const char *literal = l->text + of->literal;
    uint32_t zeros = 0, most = of->literal_length;
    if (most > 2 && literal[1] == 'x')
        while (zeros + 3 < most && literal[2 + zeros] == '0') zeros++;
    if (zeros > 0) tvm_text_bytes(out, literal, 2);
    tvm_text_bytes(out, literal + (zeros > 0 ? 2 + zeros : 0), most - (zeros > 0 ? 2 + zeros : 0));
}

static void write_register(const tidy_lines *l, uint32_t r, numbering *names, tvm_text *out) {
    unsigned class = class_of(l, r);
    char name[16], *at = name + sizeof name;
    if (names->numbers[r] == 0) names->numbers[r] = ++names->counts[class];
    uint32_t number = names->numbers[r] - 1;
    do {
        *--at = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    for (size_t i = strlen(classes[class].prefix); i-- > 0;) *--at = classes[class].prefix[i];
    tvm_text_bytes(out, at, (size_t)(name + sizeof name - at));
}

static void write_line(const tidy_lines *l, const line *of, numbering *names, tvm_text *out) {
    uint32_t at = of->begin;
    for (uint32_t i = 0; i < of->count; i++) {
        const token *next = &l->tokens[of->first + i];
        tvm_text_bytes(out, l->text + at, next->at - at);
        if (next->reg == TVM_NONE)
            write_literal(l, next, out);
        else
            write_register(l, next->reg, names, out);
        at = next->at + next->length;
        if (of->end - at > 2 && memcmp(l->text + at, "+0]", 3) == 0) at += 2;
    }
    tvm_text_bytes(out, l->text + at, of->end + 1 - at);
}

/* The operand that the text begins with goes to *name; what is behind it, or NULL. */
static const char *take_operand(const char *text, char name[16]) {
    size_t length = strcspn(text, ",;");
    if (length == 0 || length > 15) return NULL;
    memcpy(name, text, length);
    name[length] = '\0';
    return text + length + strspn(text + length, ", ");
}

/* 0 - x and x * -1 of a word, once their constants are seen, are written as not and add: see emit_negated in
 * expr_emit.c, which writes those of scalars. `begin` is the line's, the last one in the text. */
static void write_negated(tvm_text *out, size_t begin) {
    static const char *const starts[] = {"\tsub.s32 ", "\tsub.u32 ", "\tmul.lo.s32 ", "\tmul.lo.u32 "};
    char to[16], a[16], b[16], text[80];
    if (out->failed) return;
    const char *last = out->data + begin, *at = NULL;
    for (size_t i = 0; i < sizeof starts / sizeof *starts && !at; i++)
        if (strncmp(last, starts[i], strlen(starts[i])) == 0) at = last + strlen(starts[i]);
    if (!at || !(at = take_operand(at, to)) || !(at = take_operand(at, a)) || !take_operand(at, b)) return;
    bool subtracts = last[1] == 's' && (strcmp(a, "0") == 0 || strcmp(a, "0x0") == 0);
    const char *minus = strcmp(a, "0xffffffff") == 0 || strcmp(a, "-1") == 0   ? b
                        : strcmp(b, "0xffffffff") == 0 || strcmp(b, "-1") == 0 ? a
                                                                               : NULL;
    const char *of = subtracts ? b : last[1] == 'm' ? minus : NULL;
    if (!of || *of != '%') return;
    int size = snprintf(text, sizeof text, "\tnot.b32 %s, %s;\n\tadd.s32 %s, %s, 1;\n", to, of, to, to);
    out->size = begin;
    tvm_text_bytes(out, text, (size_t)size);
}

bool tvm_tidy_write(const tidy_lines *l, emitter *e, tvm_text *out) {
    uint32_t *counts[CLASSES];
    numbering names = {.numbers = calloc(l->reg_count + (size_t)1, sizeof *names.numbers)};
    if (!names.numbers) return false;
    for (uint32_t n = 0; n < l->line_count; n++) {
        size_t begin = out->size;
        if (l->lines[n].is_dead) continue;
        write_line(l, &l->lines[n], &names, out);
        write_negated(out, begin);
    }
    free(names.numbers);
    find_counts(e, counts);
    for (unsigned class = 0; class < CLASSES; class ++) *counts[class] = names.counts[class];
    return !out->failed;
}

void tvm_tidy_free(tidy_lines *l) {
    free(l->text);
    free(l->lines);
    free(l->tokens);
    free(l->uses);
}
