/* A register is *plain* where one instruction, without a guard, assigns it, and comes before all that read it
 * on every path: its value is then the same wherever it is read. Of others a value is known within straight
 * code, up to the next instruction that assigns the register.
 *
 * What wgmma reads and assigns is in use while other instructions are done: such registers keep their names,
 * and the moves to them their places. */
#include "tidy.h"

#include <stdlib.h>
#include <string.h>

#include "tidy_lines.h"

/* What a plain register, or within straight code any, has been assigned. */
typedef struct known {
    uint32_t from;           /* a register; TVM_NONE: nothing is known */
    uint32_t block, version; /* of straight code: the block, and the version of `from` */
    uint32_t own;            /* that of the register itself */
} known;

typedef struct tidy {
    tidy_lines l;
    uint32_t *version;    /* by register: assignments so far */
    known *copies;        /* by register */
    uint32_t *literal;    /* by register, plain: one more than the line that moves a constant to it */
    uint32_t *busy;       /* by register: the last line where it stands in the place of another */
    uint32_t *first, *of; /* tokens by register: of[first[r] .. first[r + 1]) in the order of the text */
    uint32_t *block, *products; /* by line: straight code, and wgmma, counted */
} tidy;

enum { ANYWHERE = 0 }; /* blocks are counted from 1 */

static bool is_literal(const tidy_lines *l, const line *at) {
    const char *source = l->text + l->tokens[at->first].at + l->tokens[at->first].length;
    return at->is_move && at->count == 1 && source[0] == ',' &&
           (source[2] == '-' || (source[2] >= '0' && source[2] <= '9'));
}

static bool is_copy(const line *at) {
    return at->is_move && at->count == 2;
}

/* ---- what is read ---- */

static uint32_t value_of(const tidy *t, uint32_t r, uint32_t block) {
    for (known c = t->copies[r]; c.from != TVM_NONE && c.block == ANYWHERE; c = t->copies[r]) r = c.from;
    known c = t->copies[r];
    bool holds =
        c.from != TVM_NONE && c.block == block && c.version == t->version[c.from] && c.own == t->version[r];
    return holds ? c.from : r;
}

/* Puts the constant where the register is read, in an instruction that takes it. */
static void use_literal(tidy *t, const line *at, token *read) {
    uint32_t from = t->literal[read->reg];
    if (from == 0 || !at->takes_literals) return;
    const line *move = &t->l.lines[from - 1];
    const token *assigned = &t->l.tokens[move->first];
    uint32_t begin = assigned->at + assigned->length + 2,
             end = move->end - 1; /* behind ", ", and before ";" */
    bool real = t->l.text[begin] == '0' && (t->l.text[begin + 1] == 'f' || t->l.text[begin + 1] == 'd');
    if (real != at->is_real) return;
    *read = (token){.at = read->at,
                    .length = read->length,
                    .reg = TVM_NONE,
                    .literal = begin,
                    .literal_length = (uint16_t)(end - begin)};
}

static void assign(tidy *t, const line *at) {
    for (uint32_t i = 0; i < at->count; i++)
        if (at->kind == LINE_OPAQUE || (i >= at->guarded && i < at->guarded + at->results))
            t->version[t->l.tokens[at->first + i].reg]++;
}

static void note_move(tidy *t, uint32_t n, uint32_t block) {
    const line *at = &t->l.lines[n];
    const token *tokens = &t->l.tokens[at->first];
    uint32_t to = tokens[0].reg;
    const reg_use *uses = t->l.uses;
    if (is_literal(&t->l, at) && uses[to].is_plain) t->literal[to] = n + 1;
    if (!is_copy(at) || tokens[1].reg == TVM_NONE || tokens[1].reg == to || uses[to].is_pinned) return;
    uint32_t from = tokens[1].reg;
    if (!tvm_tidy_same_class(&t->l, from, to)) return;
    if (uses[to].is_plain && uses[from].is_plain)
        t->copies[to] = (known){.from = from, .block = ANYWHERE};
    else if (!uses[from].is_plain)
        t->copies[to] = (known){from, block, t->version[from], t->version[to]};
}

static void propagate(tidy *t) {
    for (uint32_t n = 0; n < t->l.line_count; n++) {
        line *at = &t->l.lines[n];
        for (uint32_t i = 0; i < at->count && at->kind != LINE_OPAQUE; i++) {
            token *read = &t->l.tokens[at->first + i];
            if (i >= at->guarded && i < at->guarded + at->results) continue;
            read->reg = value_of(t, read->reg, t->block[n]);
            if (i >= at->guarded) use_literal(t, at, read);
        }
        assign(t, at);
        if (at->is_move) note_move(t, n, t->block[n]);
    }
}

/* ---- where results go ---- */

static bool list_tokens(tidy *t) {
    t->first = calloc(t->l.reg_count + (size_t)2, sizeof *t->first);
    t->of = calloc(t->l.token_count + (size_t)1, sizeof *t->of);
    if (!t->first || !t->of) return false;
    for (uint32_t i = 0; i < t->l.token_count; i++)
        if (t->l.tokens[i].reg != TVM_NONE) t->first[t->l.tokens[i].reg + 2]++;
    for (uint32_t r = 0; r < t->l.reg_count; r++) t->first[r + 2] += t->first[r + 1];
    for (uint32_t i = 0; i < t->l.token_count; i++)
        if (t->l.tokens[i].reg != TVM_NONE) t->of[t->first[t->l.tokens[i].reg + 1]++] = i;
    return true;
}

static bool assigns(const tidy *t, const line *at, uint32_t r) {
    for (uint32_t i = 0; i < at->count; i++)
        if (t->l.tokens[at->first + i].reg == r &&
            (at->kind == LINE_OPAQUE || (i >= at->guarded && i < at->guarded + at->results)))
            return true;
    return false;
}

/* Is the register mentioned between two lines, or assigned in those from `behind` on to `last`, where it may
 * be at the end? */
static bool is_in_the_way(const tidy *t, uint32_t r, uint32_t begin, uint32_t move, uint32_t last) {
    for (uint32_t i = t->first[r]; i < t->first[r + 1]; i++) {
        uint32_t n = t->l.tokens[t->of[i]].line;
        if (n > begin && n < move) return true;
        if (n <= move || n > last) continue;
        const line *at = &t->l.lines[n];
        if (assigns(t, at, r) && (n < last || at->kind == LINE_OPAQUE)) return true;
    }
    return false;
}

/* All that mentions the plain register lies in one piece of straight code, in lines that are understood. */
static bool is_within(const tidy *t, uint32_t r, uint32_t block) {
    for (uint32_t i = t->first[r]; i < t->first[r + 1]; i++) {
        const token *at = &t->l.tokens[t->of[i]];
        if (at->reg != r || t->block[at->line] != block || t->l.lines[at->line].kind == LINE_OPAQUE)
            return false;
    }
    return true;
}

/* The result of an instruction, in a plain register, is moved to another one at line n: it goes there at
 * once. */
static void redirect(tidy *t, uint32_t n) {
    line *move = &t->l.lines[n];
    uint32_t to = t->l.tokens[move->first].reg, from = t->l.tokens[move->first + 1].reg;
    const reg_use *uses = t->l.uses;
    if (from == TVM_NONE || from == to || !uses[from].is_plain || uses[to].is_plain ||
        !tvm_tidy_same_class(&t->l, from, to))
        return;
    uint32_t begin = uses[from].line, last = t->l.tokens[t->of[t->first[from + 1] - 1]].line;
    const line *made = &t->l.lines[begin];
    if (made->kind == LINE_USE || made->guarded || !assigns(t, made, from) || assigns(t, made, to)) return;
    if (uses[to].is_pinned && t->products[begin] != t->products[n]) return;
    if (begin < t->busy[to] || !is_within(t, from, t->block[n]) || is_in_the_way(t, to, begin, n, last))
        return;
    for (uint32_t i = t->first[from]; i < t->first[from + 1]; i++) t->l.tokens[t->of[i]].reg = to;
    t->busy[to] = last > n ? last : n;
    move->is_dead = true;
}

/* ---- what nobody reads ---- */

static void drop_unread(tidy *t) {
    uint32_t *reads = t->busy; /* by register */
    memset(reads, 0, t->l.reg_count * sizeof *reads);
    for (uint32_t n = 0; n < t->l.line_count; n++) {
        const line *at = &t->l.lines[n];
        for (uint32_t i = 0; i < at->count && !at->is_dead; i++) {
            const token *of = &t->l.tokens[at->first + i];
            bool result = i >= at->guarded && i < at->guarded + at->results;
            if (of->reg != TVM_NONE && (at->kind == LINE_OPAQUE || !result)) reads[of->reg]++;
        }
    }
    for (uint32_t n = t->l.line_count; n-- > 0;) {
        line *at = &t->l.lines[n];
        const token *tokens = &t->l.tokens[at->first];
        if (at->is_dead || at->kind != LINE_PURE) continue;
        bool read = false;
        for (uint32_t i = at->guarded; i < at->guarded + at->results; i++)
            read = read || reads[tokens[i].reg];
        if (read && !(is_copy(at) && tokens[0].reg == tokens[1].reg)) continue;
        at->is_dead = true;
        for (uint32_t i = 0; i < at->count; i++)
            if ((i < at->guarded || i >= at->guarded + at->results) && tokens[i].reg != TVM_NONE)
                reads[tokens[i].reg]--;
    }
}

/* ---- all of it ---- */

static bool make(tidy *t) {
    size_t regs = t->l.reg_count + (size_t)1, lines = t->l.line_count + (size_t)1;
    t->version = calloc(regs, sizeof *t->version);
    t->copies = malloc(regs * sizeof *t->copies);
    t->literal = calloc(regs, sizeof *t->literal);
    t->busy = calloc(regs, sizeof *t->busy);
    t->block = calloc(lines, sizeof *t->block);
    t->products = calloc(lines, sizeof *t->products);
    if (!t->version || !t->copies || !t->literal || !t->busy || !t->block || !t->products) return false;
    for (size_t r = 0; r < regs; r++) t->copies[r] = (known){.from = TVM_NONE};
    uint32_t block = 1, products = 0;
    for (uint32_t n = 0; n < t->l.line_count; n++) {
        const line *at = &t->l.lines[n];
        block += at->label != TVM_NONE || at->target != TVM_NONE;
        products += at->is_wgmma;
        t->block[n] = block;
        t->products[n] = products;
    }
    return true;
}

static void release(tidy *t) {
    tvm_tidy_free(&t->l);
    free(t->version);
    free(t->copies);
    free(t->literal);
    free(t->busy);
    free(t->first);
    free(t->of);
    free(t->block);
    free(t->products);
}

bool tvm_tidy(emitter *e, tvm_text *out) {
    tidy t = {0};
    bool done = tvm_tidy_read(&t.l, e) && make(&t);
    if (done) propagate(&t);
    done = done && list_tokens(&t);
    for (uint32_t n = 0; done && n < t.l.line_count; n++)
        if (is_copy(&t.l.lines[n])) redirect(&t, n);
    if (done) drop_unread(&t);
    done = done && tvm_tidy_write(&t.l, e, out);
    release(&t);
    return done;
}
