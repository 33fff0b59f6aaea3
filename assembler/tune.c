/* .tune NAME in [VALUE, ...], ... [if CONDITION]: constants whose best values are to be found by measuring. A
 * program is assembled with one point of the space that its .tune make together, the first unless -D says
 * otherwise; tvm-tune asks for the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "directives.h"
#include "expressions.h"
#include "names.h"
#include "report.h"

static tvm_value *point_of(const tvm_tunes *t, uint32_t point) {
    return &t->values[(size_t)point * TVM_TUNE_NAMES];
}

static bool is_tunable(const tvm_value *v) {
    return tvm_value_is_number(v) || v->kind == TVM_VALUE_DTYPE || v->kind == TVM_VALUE_STRING;
}

/* Each point so far with each value of the list: the last name varies fastest. */
static bool multiply(tvm_asm *as, const tvm_token *token, const tvm_value *list) {
    tvm_tunes *t = &as->statics.tunes;
    uint32_t points = t->points ? t->points : 1, count = list->as.list.count;
    if ((uint64_t)points * count > TVM_TUNE_POINTS)
        return tvm_asm_invalid(as, token, NULL, "the space has more than %d points", TVM_TUNE_POINTS);
    tvm_value *values = malloc((size_t)points * count * TVM_TUNE_NAMES * sizeof *values);
    if (!values) return tvm_asm_no_memory(as);
    for (uint32_t p = 0; p < points; p++)
        for (uint32_t i = 0; i < count; i++) {
            tvm_value *point = &values[((size_t)p * count + i) * TVM_TUNE_NAMES];
            if (t->points) memcpy(point, point_of(t, p), TVM_TUNE_NAMES * sizeof *point);
            point[t->names] = list->as.list.items[i];
        }
    free(t->values);
    t->values = values;
    t->points = points * count;
    return true;
}

/* NAME in [VALUE, ...]; a value that -D gives is the only one. */
static bool one_name(tvm_asm *as) {
    tvm_tunes *t = &as->statics.tunes;
    const char *name;
    uint32_t length;
    tvm_value list;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect_name(as, "the name of a constant to tune", &name, &length)) return false;
    if (t->names == TVM_TUNE_NAMES)
        return tvm_asm_invalid(as, token, NULL, "more than %d constants to tune", TVM_TUNE_NAMES);
    name = tvm_arena_text(&as->keep, name, length);
    if (!name) return tvm_asm_no_memory(as);
    if (!tvm_asm_check_name(as, token, name, length)) return false;
    if (!tvm_asm_expect(as, "in", "after the name of the constant, and a list of its values")) {
        tvm_asm_poison_name(as, name, length);
        return false;
    }
    const tvm_token *at = tvm_asm_peek(as);
    if (!tvm_asm_static(as, "the values of a constant to tune", &list) || list.kind == TVM_VALUE_POISON) {
        tvm_asm_poison_name(as, name, length);
        return false;
    }
    if (list.kind != TVM_VALUE_LIST || !list.as.list.count)
        return tvm_asm_error(as, at, "NAME in [64, 128]", "expected a list of values, found %s",
                             list.kind == TVM_VALUE_LIST ? "one without a value" : tvm_value_what(&list));
    list = tvm_value_copy(&as->keep, &list);
    if (list.kind == TVM_VALUE_POISON) return tvm_asm_no_memory(as);
    for (uint32_t i = 0; i < list.as.list.count; i++)
        if (!is_tunable(&list.as.list.items[i]))
            return tvm_asm_error(as, at, NULL, "%s cannot be tuned: numbers, types and strings can",
                                 tvm_value_what(&list.as.list.items[i]));
    tvm_value given = list.as.list.items[0];
    bool overrides = false;
    if (!tvm_asm_overridden(as, token, name, length, &given, &overrides)) return false;
    if (overrides) {
        if (!is_tunable(&given))
            return tvm_asm_invalid(as, token, NULL, "-D %.*s gives %s, which cannot be tuned", (int)length,
                                   name, tvm_value_what(&given));
        list.as.list.count = 1;
        list.as.list.items = &given;
    }
    if (!multiply(as, at, &list)) return false;
    t->name[t->names] = (tvm_word){name, length};
    t->token[t->names++] = token;
    return true;
}

/* Reads the condition, which begins at the cursor, once for each point, whose values have their names, and
 * drops the points for which it does not hold. */
static bool filter(tvm_asm *as) {
    tvm_tunes *t = &as->statics.tunes;
    uint32_t begin = as->text.at, kept = 0;
    for (uint32_t p = 0; p < t->points; p++) {
        bool holds = false, good = true;
        as->text.at = begin;
        tvm_symbols_enter(&as->statics.names);
        for (unsigned n = 0; n < t->names && good; n++)
            good = tvm_asm_define(as, t->token[n], t->name[n].name, t->name[n].length, &point_of(t, p)[n]);
        good = good && tvm_asm_condition(as, "the condition of a space to tune", &holds);
        tvm_symbols_leave(&as->statics.names);
        if (!good) return false;
        if (!holds) continue;
        if (kept != p) memcpy(point_of(t, kept), point_of(t, p), TVM_TUNE_NAMES * sizeof *t->values);
        kept++;
    }
    t->points = kept;
    return true;
}

static const char *value_text(const tvm_value *value, char text[TVM_TUNE_VALUE]) {
    char buffer[64];
    if (value->kind == TVM_VALUE_STRING)
        snprintf(text, TVM_TUNE_VALUE, "%.*s", (int)value->as.string.length, value->as.string.text);
    else
        snprintf(text, TVM_TUNE_VALUE, "%s", tvm_value_text(value, buffer));
    return text;
}

/* For the one who asked. */
static bool fill_space(tvm_asm *as, tvm_tune_space *space) {
    const tvm_tunes *t = &as->statics.tunes;
    tvm_tune_space_free(space);
    space->values = calloc((size_t)t->points * t->names, sizeof *space->values);
    if (!space->values) return tvm_asm_no_memory(as);
    space->name_count = t->names;
    space->point_count = t->points;
    for (unsigned n = 0; n < t->names; n++)
        snprintf(space->names[n], TVM_TUNE_VALUE, "%.*s", (int)t->name[n].length, t->name[n].name);
    for (uint32_t p = 0; p < t->points; p++)
        for (unsigned n = 0; n < t->names; n++)
            value_text(&point_of(t, p)[n], space->values[(size_t)p * t->names + n]);
    return true;
}

void tvm_tune_space_free(tvm_tune_space *space) {
    free(space->values);
    *space = (tvm_tune_space){.values = NULL};
}

bool tvm_directive_tune(tvm_asm *as, const tvm_token *token) {
    tvm_tunes *t = &as->statics.tunes;
    unsigned before = t->names;
    tvm_value settled[TVM_TUNE_NAMES];
    if (as->text.version < 3)
        return tvm_asm_error(as, token, NULL,
                             "'.tune' is of version 3 of the language: begin with '.vasm 3'");
    if (as->statics.names.scope != 0)
        return tvm_asm_error(as, token, NULL, "'.tune' stands outside of loops, macros and scopes");
    if (before) memcpy(settled, t->values, sizeof settled);
    do {
        if (!one_name(as)) return false;
    } while (tvm_asm_accept(as, ","));
    if (tvm_asm_accept(as, "if") && !filter(as)) return false;
    bool same = t->points > 0;
    for (unsigned n = 0; same && n < before; n++) same = tvm_value_equal(&settled[n], &t->values[n]);
    if (!same)
        return tvm_asm_invalid(as, token, NULL, "no point of the space%s meets the condition",
                               before ? " with the first values of the '.tune' before it" : "");
    for (unsigned n = before; n < t->names; n++)
        if (!tvm_asm_define(as, t->token[n], t->name[n].name, t->name[n].length, &t->values[n])) return false;
    if (as->options && as->options->space && !fill_space(as, as->options->space)) return false;
    return tvm_asm_expect_end(as);
}
