/* The options that decode and tune have in common. */
#include <stdlib.h>
#include <string.h>

#include "decode.h"

enum {
    KEY_PROGRAM = 512,
    KEY_TYPES,
    KEY_BATCHES,
    KEY_SHAPES,
    KEY_TIME,
    KEY_REST,
    KEY_CPU,
    KEY_SEED,
    KEY_TARGET
};

static const struct argp_option argp_options[] = {
    {"program", KEY_PROGRAM, "PATTERN", 0,
     "take these files, %s standing for the type; what ends in .vasm is assembled, with WTYPE defined", 0},
    {"define", 'D', "NAME=VALUE", 0, "set a constant of a .vasm program", 0},
    {"types", KEY_TYPES, "LIST", 0, "u4,f6_e3m2,...", 0},
    {"batches", KEY_BATCHES, "LIST", 0, "rows of activations, such as 1,16", 0},
    {"shapes", KEY_SHAPES, "LIST", 0, "NxK,...", 0},
    {"time", KEY_TIME, "SECONDS", 0, "begin no point after SECONDS", 0},
    {"rest", KEY_REST, "SECONDS", 0,
     "before each measurement, for a board that is at its power limit otherwise", 0},
    {"cpu", KEY_CPU, NULL, 0, "check on the interpreter", 0},
    {"target", KEY_TARGET, "N", 0, "code for an older target than the GPU's own, as 80", 0},
    {"seed", KEY_SEED, "N", 0, "of the random numbers (default: the clock's)", 0},
    {0}};

/* Calls add for each part of a list; it returns what is wrong with one, or NULL. */
static void each_part(struct argp_state *state, char *list,
                      const char *(*add)(decode_options *, const char *)) {
    char *rest = NULL;
    for (char *part = strtok_r(list, ",", &rest); part; part = strtok_r(NULL, ",", &rest)) {
        const char *wrong = add(state->input, part);
        if (wrong) argp_error(state, "%s: %s", part, wrong);
    }
}

static const char *add_type(decode_options *o, const char *text) {
    if (o->type_count == DECODE_TYPES) return "too many types";
    value_type *type = &o->types[o->type_count];
    if (!value_type_named(text, type) || type->bits > 8) return "there is no such type";
    o->type_count++;
    return NULL;
}

static bool parse_count(const char **text, int64_t *count) {
    char *end;
    *count = strtol(*text, &end, 10);
    bool ok = end != *text && *count > 0 && *count <= 1 << 20;
    *text = end;
    return ok;
}

static const char *add_batch(decode_options *o, const char *text) {
    if (o->batch_count == DECODE_BATCHES) return "too many batches";
    if (!parse_count(&text, &o->batches[o->batch_count]) || *text) return "a number of rows is expected";
    o->batch_count++;
    return NULL;
}

static const char *add_shape(decode_options *o, const char *text) {
    if (o->shape_count == DECODE_SHAPES) return "too many shapes";
    decode_shape *shape = &o->shapes[o->shape_count];
    if (!parse_count(&text, &shape->n) || *text++ != 'x' || !parse_count(&text, &shape->k) || *text)
        return "NxK is expected";
    o->shape_count++;
    return NULL;
}

static double parse_seconds(struct argp_state *state, const char *option, const char *text) {
    enum { MOST = 24 * 60 * 60 };
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds > 0 && seconds <= MOST))
        argp_error(state, "%s %s: seconds are expected, at most %d", option, text, MOST);
    return seconds;
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    decode_options *o = state->input;
    switch (key) {
    case KEY_PROGRAM:
        o->program = arg;
        return 0;
    case 'D':
        if (o->define_count == DECODE_DEFINES) argp_error(state, "-D %s: too many constants", arg);
        o->defines[o->define_count++] = arg;
        return 0;
    case KEY_TYPES:
        each_part(state, arg, add_type);
        return 0;
    case KEY_BATCHES:
        each_part(state, arg, add_batch);
        return 0;
    case KEY_SHAPES:
        each_part(state, arg, add_shape);
        return 0;
    case KEY_TIME:
        o->seconds = parse_seconds(state, "--time", arg);
        return 0;
    case KEY_REST:
        o->rest = parse_seconds(state, "--rest", arg);
        return 0;
    case KEY_CPU:
        o->cpu = true, o->timed = false;
        return 0;
    case KEY_TARGET:
        o->target = (unsigned)strtoul(arg, NULL, 10);
        return 0;
    case KEY_SEED:
        o->seed = strtoull(arg, NULL, 0);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp decode_argp = {argp_options, parse_option, NULL, NULL, NULL, NULL, NULL};
