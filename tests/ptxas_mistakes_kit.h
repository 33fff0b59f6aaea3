/* The occasions of ptxas' mistakes in PTX: for each row of codegen/compile/ptxas_mistakes.def a function
 * `has_ID` that tells whether a line, with what was written before it, is what ptxas compiles wrong. The
 * suites ask it of all PTX that they give to ptxas (ptxas_kit.h).
 *
 * A kernel is read line by line, as the code generator writes it: an instruction a line. Of each register the
 * line that assigned it last is known; of loops nothing. */
#ifndef TVM_TESTS_PTXAS_MISTAKES_KIT_H
#define TVM_TESTS_PTXAS_MISTAKES_KIT_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "ptxas_mistakes.h"

enum { SCAN_NONE = -1, SCAN_CLASSES = 7 };

/* A register or a constant; `group` is the operand that it is of, as {%w0, %w1} is one. */
typedef struct scan_operand {
    const char *at;
    unsigned length, group;
    int cls; /* of a register; SCAN_NONE: it is none */
    uint32_t number;
} scan_operand;

typedef struct scan_line {
    const char *op;
    unsigned op_length;
    bool is_guarded, is_opaque; /* opaque: several instructions */
    uint32_t first, count;      /* operands */
    int before;                 /* the line that assigned its first result before it */
    int from, wait; /* the line that assigned what its result is the same as; the last wait before it */
} scan_line;

typedef struct ptx_scan {
    tvm_target target;
    scan_line *lines;
    scan_operand *operands;
    size_t line_count, line_room, operand_count, operand_room;
    int *assigned[SCAN_CLASSES];
    size_t assigned_room[SCAN_CLASSES];
    int wgmma, wait; /* the last wgmma behind the last fence, and the last wait for wgmma */
} ptx_scan;

static inline void *scan_room(void *array, size_t *room, size_t need, size_t size) {
    if (need <= *room) return array;
    *room = need * 2;
    void *larger = realloc(array, *room * size);
    if (larger == NULL) abort();
    return larger;
}

/* ---- reading a line ---- */

static inline int scan_class_of(const char *at, unsigned length) {
    static const char *const names[SCAN_CLASSES] = {"p", "r", "rd", "f", "fd", "h", "w"};
    for (int c = 0; c < SCAN_CLASSES; c++)
        if (strlen(names[c]) == length && memcmp(names[c], at, length) == 0) return c;
    return SCAN_NONE;
}

/* A register %w12, if it is one. */
static inline void scan_read_register(scan_operand *o) {
    unsigned letters = 1;
    o->cls = SCAN_NONE;
    if (*o->at != '%') return;
    while (letters < o->length && islower((unsigned char)o->at[letters])) letters++;
    if (letters == o->length || !isdigit((unsigned char)o->at[letters])) return;
    o->cls = scan_class_of(o->at + 1, letters - 1);
    o->number = (uint32_t)strtoul(o->at + letters, NULL, 10);
}

static inline bool scan_in_word(char c) {
    return isalnum((unsigned char)c) || c == '%' || c == '$' || c == '_' || c == '-' || c == '.';
}

static inline void scan_read_operands(ptx_scan *s, scan_line *line, const char *at, const char *end) {
    unsigned group = 0, depth = 0;
    line->first = (uint32_t)s->operand_count;
    while (at < end) {
        const char *from = at;
        while (at < end && scan_in_word(*at)) at++;
        if (at > from) {
            s->operands = scan_room(s->operands, &s->operand_room, s->operand_count + 1, sizeof *s->operands);
            scan_operand *o = &s->operands[s->operand_count++];
            *o = (scan_operand){.at = from, .length = (unsigned)(at - from), .group = group};
            scan_read_register(o);
            continue;
        }
        if (*at == '{') depth++;
        if (*at == '}') depth--;
        if (*at == ',' && depth == 0) group++;
        at++;
    }
    line->count = (uint32_t)(s->operand_count - line->first);
}

/* False: no instruction. */
static inline bool scan_read_line(ptx_scan *s, const char *at, const char *end, scan_line *line) {
    *line = (scan_line){.before = SCAN_NONE, .from = SCAN_NONE, .wait = SCAN_NONE};
    while (at < end && (*at == '\t' || *at == ' ')) at++;
    if (at < end && *at == '@') {
        line->is_guarded = true;
        while (at < end && *at != ' ') at++;
        while (at < end && *at == ' ') at++;
    }
    const char *stop = memchr(at, ';', (size_t)(end - at));
    if (stop == NULL || *at == '.' || *at == '/') return false;
    line->is_opaque = *at == '{';
    if (line->is_opaque) stop = end;
    line->op = at;
    while (at < stop && *at != ' ' && *at != '\t') at++;
    line->op_length = (unsigned)(at - line->op);
    scan_read_operands(s, line, at, stop);
    return true;
}

/* ---- what lines tell ---- */

static inline bool scan_op_starts(const scan_line *line, const char *start) {
    size_t length = strlen(start);
    return length <= line->op_length && memcmp(line->op, start, length) == 0;
}

static inline bool scan_op_has(const scan_line *line, const char *part) {
    return memmem(line->op, line->op_length, part, strlen(part)) != NULL;
}

static inline bool scan_is(const scan_operand *o, const char *text) {
    return o != NULL && strlen(text) == o->length && strncasecmp(o->at, text, o->length) == 0;
}

static inline bool scan_same(const scan_operand *a, const scan_operand *b) {
    return a != NULL && b != NULL && a->length == b->length && memcmp(a->at, b->at, a->length) == 0;
}

/* The first part of an operand; *count: how many it has. */
static inline const scan_operand *scan_group(const ptx_scan *s, const scan_line *line, unsigned group,
                                             unsigned *count) {
    const scan_operand *first = NULL;
    unsigned found = 0;
    for (uint32_t i = 0; i < line->count; i++) {
        const scan_operand *o = &s->operands[line->first + i];
        if (o->group != group) continue;
        if (found++ == 0) first = o;
    }
    if (count != NULL) *count = found;
    return first;
}

static inline int scan_assigned_at(const ptx_scan *s, const scan_operand *o) {
    if (o == NULL || o->cls == SCAN_NONE || o->number >= s->assigned_room[o->cls]) return SCAN_NONE;
    return s->assigned[o->cls][o->number];
}

/* The line that assigned it last, or NULL. */
static inline const scan_line *scan_assigned(const ptx_scan *s, const scan_operand *o) {
    int at = scan_assigned_at(s, o);
    return at == SCAN_NONE ? NULL : &s->lines[at];
}

/* Does the line move a constant? */
static inline bool scan_moves_constant(const ptx_scan *s, const scan_line *line) {
    if (line == NULL || line->is_opaque || !scan_op_starts(line, "mov.")) return false;
    const scan_operand *from = scan_group(s, line, 1, NULL);
    return from != NULL && isdigit((unsigned char)*from->at);
}

/* May it be a constant: of a move, or of one where a guarded line does not assign it? */
static inline bool scan_may_be_constant(const ptx_scan *s, const scan_operand *o) {
    const scan_line *line = scan_assigned(s, o);
    if (line != NULL && line->is_guarded && line->before != SCAN_NONE) line = &s->lines[line->before];
    return scan_moves_constant(s, line);
}

static inline void scan_assign(ptx_scan *s, const scan_operand *o, int at) {
    if (o->cls == SCAN_NONE) return;
    size_t room = s->assigned_room[o->cls];
    s->assigned[o->cls] =
        scan_room(s->assigned[o->cls], &s->assigned_room[o->cls], o->number + 1, sizeof(int));
    for (; room < s->assigned_room[o->cls]; room++) s->assigned[o->cls][room] = SCAN_NONE;
    s->assigned[o->cls][o->number] = at;
}

/* Notes what the last line assigns: its first operand, unless that is none; all of an opaque one. */
static inline void scan_note(ptx_scan *s) {
    static const char *const without[] = {"st.",      "red.",    "bar",     "bra",     "cp.",       "ret",
                                          "prefetch", "wgmma.f", "wgmma.c", "wgmma.w", "mbarrier.", "fence"};
    int at = (int)s->line_count - 1;
    scan_line *line = &s->lines[at];
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (scan_op_starts(line, without[i])) return;
    line->before = scan_assigned_at(s, scan_group(s, line, 0, NULL));
    for (uint32_t i = 0; i < line->count; i++) {
        const scan_operand *o = &s->operands[line->first + i];
        if (o->group == 0 || line->is_opaque) scan_assign(s, o, at);
    }
}

/* ---- a row each ---- */

static inline bool scan_is_wgmma_of_registers(const ptx_scan *s, const scan_line *line) {
    unsigned count = 0;
    if (!scan_op_starts(line, "wgmma.mma_async")) return false;
    scan_group(s, line, 1, &count);
    return count > 1;
}

/* Are the sums only written: is the predicate of the operand false, whatever the arguments? */
static inline bool scan_only_writes(const ptx_scan *s, const scan_line *wgmma) {
    const scan_line *from = scan_assigned(s, scan_group(s, wgmma, 3, NULL));
    return from != NULL && scan_op_starts(from, "setp.ne") &&
           scan_same(scan_group(s, from, 1, NULL), scan_group(s, from, 2, NULL));
}

/* Are all words of a moved constants? *may: may all be constants? */
static inline bool scan_a_is_constant(const ptx_scan *s, const scan_line *wgmma, bool *may) {
    bool is = true;
    *may = true;
    for (uint32_t i = 0; i < wgmma->count; i++) {
        const scan_operand *o = &s->operands[wgmma->first + i];
        if (o->group != 1) continue;
        is = is && scan_moves_constant(s, scan_assigned(s, o));
        *may = *may && scan_may_be_constant(s, o);
    }
    return is;
}

/* Of a of constants and a that is none the values are not known to be the same. */
static inline bool scan_may_be_alike(const ptx_scan *s, const scan_line *one, const scan_line *other) {
    bool may_one, may_other, is_one = scan_a_is_constant(s, one, &may_one),
                             is_other = scan_a_is_constant(s, other, &may_other);
    return !(is_one && !may_other) && !(is_other && !may_one);
}

static inline bool has_WGMMA_ALIKE(const ptx_scan *s, const scan_line *line) {
    if (s->wgmma == SCAN_NONE || !scan_is_wgmma_of_registers(s, line)) return false;
    const scan_line *other = &s->lines[s->wgmma];
    return scan_is_wgmma_of_registers(s, other) && scan_only_writes(s, line) && scan_only_writes(s, other) &&
           scan_same(scan_group(s, line, 2, NULL), scan_group(s, other, 2, NULL)) &&
           scan_may_be_alike(s, line, other);
}

/* Is the operand a constant that the operation on integers leaves the other one as it is with? */
static inline bool scan_is_neutral(const scan_line *line, const scan_operand *o) {
    static const struct {
        const char *op;
        uint32_t constant;
    } neutral[] = {{"or.b32", 0},           {"xor.b32", 0},    {"add.u32", 0},   {"add.s32", 0},
                   {"sub.u32", 0},          {"sub.s32", 0},    {"shl.b32", 0},   {"shr.", 0},
                   {"and.b32", UINT32_MAX}, {"mul.lo.u32", 1}, {"mul.lo.s32", 1}};
    if (o == NULL || !(isdigit((unsigned char)*o->at) || *o->at == '-')) return false;
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (scan_op_starts(line, neutral[i].op))
            return (uint32_t)strtol(o->at, NULL, 0) == neutral[i].constant;
    return false;
}

/* What the line's result is the same as, if that is known: a register that it moves, or that an operation
 * leaves as it is. */
static inline const scan_operand *scan_kept(const ptx_scan *s, const scan_line *line) {
    unsigned results, count;
    scan_group(s, line, 0, &results);
    const scan_operand *x = scan_group(s, line, 1, &count), *y = scan_group(s, line, 2, NULL);
    if (line->is_opaque || results != 1 || count != 1) return NULL;
    if (scan_op_starts(line, "mov.") || scan_is_neutral(line, y)) return x;
    return scan_op_starts(line, "sub.") || scan_op_starts(line, "sh") || !scan_is_neutral(line, x) ? NULL : y;
}

/* Is what the line has assigned, but for moves, of before a wait that one of the moves is behind? */
static inline bool scan_is_moved_past_wait(const ptx_scan *s, int at) {
    for (; at != SCAN_NONE; at = s->lines[at].from) {
        int from = s->lines[at].from;
        if (from != SCAN_NONE && from < s->lines[at].wait && !scan_moves_constant(s, &s->lines[from]))
            return true;
    }
    return false;
}

static inline bool has_WGMMA_JOINED(const ptx_scan *s, const scan_line *line) {
    if (!scan_is_wgmma_of_registers(s, line)) return false;
    for (uint32_t i = 0; i < line->count; i++) {
        const scan_operand *o = &s->operands[line->first + i];
        if (o->group == 1 && scan_is_moved_past_wait(s, scan_assigned_at(s, o))) return true;
    }
    return false;
}

static inline bool has_SATURATED(const ptx_scan *s, const scan_line *line) {
    if (!scan_op_starts(line, "min.f32") && !scan_op_starts(line, "min.ftz.f32")) return false;
    for (unsigned g = 1; g <= 2; g++) {
        const scan_operand *o = scan_group(s, line, g, NULL);
        const scan_line *from = scan_assigned(s, o);
        if (scan_moves_constant(s, from)) o = scan_group(s, from, 1, NULL);
        if (scan_is(o, "0f3F800000") || scan_is(o, "0x3f800000")) return true;
    }
    return false;
}

static inline bool has_NEGATION_LOST(const ptx_scan *s, const scan_line *line) {
    if (!scan_op_starts(line, "min.s32") && !scan_op_starts(line, "max.s32")) return false;
    for (unsigned g = 1; g <= 2; g++) {
        const scan_line *from = scan_assigned(s, scan_group(s, line, g, NULL));
        if (from == NULL) continue;
        const scan_operand *left = scan_group(s, from, 1, NULL), *right = scan_group(s, from, 2, NULL);
        bool of_register = right != NULL && right->cls != SCAN_NONE;
        if (scan_op_starts(from, "neg.s32")) return true;
        if (scan_op_starts(from, "sub.") && of_register && (scan_is(left, "0") || scan_is(left, "0x0")))
            return true;
        if (scan_op_starts(from, "mul.lo.") && (scan_is(right, "-1") || scan_is(right, "0xffffffff")))
            return true;
    }
    return false;
}

static inline bool has_F8_HALVES(const ptx_scan *s, const scan_line *line) {
    if (!scan_op_starts(line, "mma.sync") || tvm_target_has(s->target, TVM_HAS_MMA_F8_CORES)) return false;
    if (!scan_op_has(line, ".e4m3") && !scan_op_has(line, ".e5m2")) return false;
    for (uint32_t i = 0; i < line->count; i++) {
        const scan_operand *o = &s->operands[line->first + i];
        if ((o->group == 1 || o->group == 2) && scan_may_be_constant(s, o)) return true;
    }
    return false;
}

static inline bool has_COPY_POLICY(const ptx_scan *s, const scan_line *line) {
    (void)s;
    return scan_op_starts(line, "cp.async.c") && scan_op_has(line, "cache_hint");
}

static inline bool has_CONSTANTS_FORGOTTEN(const ptx_scan *s, const scan_line *line) {
    if (!line->is_guarded || !scan_op_starts(line, "st.shared") || !scan_op_has(line, ".v4")) return false;
    bool one = true; /* one register four times: seen to be right */
    for (uint32_t i = 0; i < line->count; i++) {
        const scan_operand *o = &s->operands[line->first + i];
        if (o->group == 1 && !scan_moves_constant(s, scan_assigned(s, o))) return false;
        one = one && (o->group != 1 || scan_same(o, scan_group(s, line, 1, NULL)));
    }
    return !one;
}

static inline bool has_SELECTED_INTO_X(const ptx_scan *s, const scan_line *line) {
    if (!scan_op_starts(line, "selp.f")) return false;
    const scan_operand *x = scan_group(s, line, 1, NULL);
    const scan_line *from = scan_assigned(s, scan_group(s, line, 3, NULL));
    if (from == NULL || !scan_op_starts(from, "setp.nan") || x->cls == SCAN_NONE) return false;
    return !scan_same(x, scan_group(s, line, 0, NULL)) && scan_same(x, scan_group(s, from, 1, NULL)) &&
           scan_same(x, scan_group(s, from, 2, NULL));
}

typedef bool scan_detector(const ptx_scan *s, const scan_line *line);

static inline scan_detector *scan_detector_of(size_t mistake) {
    static scan_detector *const detectors[] = {
#define TVM_PTXAS_MISTAKE(id, ...) has_##id,
#include "ptxas_mistakes.def"
    };
    return detectors[mistake];
}

/* ---- a text ---- */

static inline void scan_next_kernel(ptx_scan *s) {
    s->line_count = s->operand_count = 0;
    s->wgmma = s->wait = SCAN_NONE;
    for (int c = 0; c < SCAN_CLASSES; c++)
        for (size_t i = 0; i < s->assigned_room[c]; i++) s->assigned[c][i] = SCAN_NONE;
}

/* The mistake that the line is an occasion of, or NULL; the line is one of those before from now on. */
static inline const char *scan_judge_line(ptx_scan *s, scan_line line) {
    size_t count;
    const tvm_ptxas_mistake *rows = tvm_ptxas_mistakes(&count);
    const char *found = NULL;
    s->lines = scan_room(s->lines, &s->line_room, s->line_count + 1, sizeof *s->lines);
    line.wait = s->wait;
    line.from = scan_assigned_at(s, scan_kept(s, &line));
    s->lines[s->line_count] = line;
    for (size_t i = 0; i < count && found == NULL; i++)
        if (scan_detector_of(i)(s, &line)) found = rows[i].name;
    if (scan_op_starts(&line, "wgmma.fence")) s->wgmma = SCAN_NONE;
    if (scan_op_starts(&line, "wgmma.wait_group")) s->wait = (int)s->line_count;
    if (scan_op_starts(&line, "wgmma.mma_async")) s->wgmma = (int)s->line_count;
    s->line_count++;
    scan_note(s);
    return found;
}

/* The first occasion of a mistake, whose name it gives and whose line goes to *at; NULL: there is none. */
static inline const char *scan_occasion(const char *ptx, const char **at) {
    ptx_scan s = {.wgmma = SCAN_NONE, .wait = SCAN_NONE};
    char target[16] = "";
    const char *found = NULL, *name = strstr(ptx, ".target ");
    if (name != NULL) sscanf(name, ".target %15[a-z0-9_]", target);
    if (tvm_target_parse(target, &s.target, NULL) != TVM_OK) abort();
    for (const char *next; *ptx != '\0' && found == NULL; ptx = next) {
        const char *end = ptx + strcspn(ptx, "\n");
        next = end + (*end == '\n');
        scan_line line;
        if (*ptx == '}') scan_next_kernel(&s); /* registers are of a kernel */
        if (scan_read_line(&s, ptx, end, &line)) found = scan_judge_line(&s, line);
        if (found != NULL) *at = ptx;
    }
    for (int c = 0; c < SCAN_CLASSES; c++) free(s.assigned[c]);
    free(s.lines);
    free(s.operands);
    return found;
}

#endif
