#include "run_args.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

/* Length of the identifier that text begins with. */
static size_t identifier_length(const char *text) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    return *text >= '0' && *text <= '9' ? 0 : strspn(text, letters);
}

bool tvm_run_is_arg(const char *word) {
    size_t length = identifier_length(word);
    return length && word[length] == '=';
}

static tvm_status usage(const tvm_run_arg *arg, const char *what, tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "argument '%s': %s", arg->name, what);
}

static bool parse_u64(const char *text, uint64_t *value) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return !*end && !errno;
}

/* Reads what comes before `,out:`. */
static tvm_status parse_source(tvm_run_arg *arg, const char *value, tvm_diags *diags) {
    arg->text = value;
    if (value[0] == '@') {
        arg->source = TVM_RUN_FILE;
        arg->text = value + 1;
        return *arg->text ? TVM_OK : usage(arg, "a file name is expected after '@'", diags);
    }
    if (!strcmp(value, "zeros")) {
        arg->source = TVM_RUN_ZEROS;
    } else if (!strcmp(value, "iota")) {
        arg->source = TVM_RUN_IOTA;
    } else if (!strcmp(value, "rand")) {
        arg->source = TVM_RUN_RAND;
    } else if (!strncmp(value, "rand:", 5)) {
        arg->source = TVM_RUN_RAND;
        arg->seeded = parse_u64(value + 5, &arg->seed);
        if (!arg->seeded) return usage(arg, "a number is expected after 'rand:'", diags);
    }
    return TVM_OK;
}

static tvm_status parse_value(tvm_run_arg *arg, char *value, tvm_diags *diags) {
    if (!*value) return usage(arg, "a value is expected after '='", diags);
    if (!strncmp(value, "out:", 4)) {
        arg->source = TVM_RUN_ZEROS;
        arg->out = value + 4;
    } else {
        char *out = strstr(value, ",out:");
        if (out) {
            *out = '\0';
            arg->out = out + 5;
        }
        tvm_status status = parse_source(arg, value, diags);
        if (status) return status;
    }
    return arg->out && !*arg->out ? usage(arg, "a file name is expected after 'out:'", diags) : TVM_OK;
}

tvm_status tvm_run_args_add(tvm_run_args *args, const char *word, tvm_diags *diags) {
    if (!tvm_run_is_arg(word))
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "'%s' is not NAME=VALUE", word);
    tvm_run_arg *items = reallocarray(args->items, args->count + 1, sizeof *items);
    if (!items) return tvm_diag_no_memory(diags);
    args->items = items;
    tvm_run_arg *arg = &items[args->count];
    *arg = (tvm_run_arg){.word = strdup(word)};
    if (!arg->word) return tvm_diag_no_memory(diags);
    args->count++;
    char *equals = strchr(arg->word, '=');
    *equals = '\0';
    arg->name = arg->word;
    for (size_t i = 0; i + 1 < args->count; i++)
        if (!strcmp(items[i].name, arg->name)) return usage(arg, "it is given twice", diags);
    tvm_status status = parse_value(arg, equals + 1, diags);
    if (status || !arg->out || !strcmp(arg->out, "-")) return status;
    for (size_t i = 0; i + 1 < args->count; i++)
        if (items[i].out && !strcmp(items[i].out, arg->out))
            return usage(arg, "another result is written to the same file", diags);
    return TVM_OK;
}

void tvm_run_args_free(tvm_run_args *args) {
    for (size_t i = 0; i < args->count; i++) free(args->items[i].word);
    free(args->items);
    *args = (tvm_run_args){0};
}

/* ---- numbers ---- */

static bool parse_integer(const char *text, tvm_dtype type, int64_t *value) {
    bool negative = *text == '-';
    uint64_t magnitude;
    if (!parse_u64(text + negative, &magnitude)) return false;
    bool is_signed = type.kind == TVM_KIND_INT;
    uint64_t largest =
        type.bits == 64 ? (is_signed ? INT64_MAX : UINT64_MAX) : ((uint64_t)1 << (type.bits - is_signed)) - 1;
    if (negative && !is_signed && magnitude) return false;
    if (magnitude > largest + (negative && is_signed)) return false;
    *value = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

static bool parse_float(const char *text, double *value) {
    char *end;
    if (!*text || strchr(" \t\n", *text)) return false;
    *value = strtod(text, &end);
    return !*end;
}

static bool parse_bool(const char *text, int64_t *value) {
    *value = !strcmp(text, "true") || !strcmp(text, "1");
    return *value || !strcmp(text, "false") || !strcmp(text, "0");
}

tvm_status tvm_run_number(const tvm_run_arg *arg, tvm_dtype type, tvm_value *value, tvm_diags *diags) {
    bool fits = arg->source == TVM_RUN_TEXT && !arg->out;
    *value = (tvm_value){0};
    if (type.kind == TVM_KIND_FLOAT)
        fits = fits && parse_float(arg->text, &value->f);
    else if (type.kind == TVM_KIND_BOOL)
        fits = fits && parse_bool(arg->text, &value->i);
    else
        fits = fits && parse_integer(arg->text, type, &value->i);
    if (fits) return TVM_OK;
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "argument '%s' takes a number of type %s, not '%s'",
                        arg->name, TVM_DTYPE_TEXT(type), arg->text ? arg->text : "out:");
}

/* ---- tensors made here ---- */

/* SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Uniform in [-1, 1), a multiple of 2^-mantissa, so that the type holds it exactly. */
static uint64_t random_float(tvm_dtype type, uint64_t *state) {
    unsigned bits = type.mantissa + 1u;
    double step = ldexp(1.0, -(int)type.mantissa);
    return tvm_encode(type, (double)(next_random(state) >> (64 - bits)) * step - 1.0);
}

static uint64_t random_code(tvm_dtype type, uint64_t *state) {
    if (type.kind == TVM_KIND_BOOL) return next_random(state) >> 63;
    if (type.kind == TVM_KIND_FLOAT && type.bits > 8) return random_float(type, state);
    uint64_t code;
    do code = next_random(state) >> (64 - type.bits);
    while (type.kind == TVM_KIND_FLOAT && !isfinite(tvm_decode(type, code)));
    return code;
}

static uint64_t iota_code(tvm_dtype type, uint64_t i) {
    if (type.kind == TVM_KIND_FLOAT) return tvm_encode(type, (double)i);
    if (type.kind == TVM_KIND_BOOL) return i & 1;
    return type.bits == 64 ? i : i & (((uint64_t)1 << type.bits) - 1);
}

/* Is every bit pattern a value to draw? Then whole words of the string are drawn at once. */
static bool any_code_will_do(tvm_dtype type) {
    if (type.kind == TVM_KIND_FLOAT)
        return tvm_dtype_is_lowbit(type) && !tvm_float_has_nan(type) && !tvm_float_has_infinity(type);
    return type.kind != TVM_KIND_BOOL;
}

void tvm_run_fill(const tvm_run_arg *arg, tvm_dtype type, uint64_t elements, uint64_t seed, uint8_t *data) {
    size_t bytes = (size_t)((elements * type.bits + 7) / 8);
    uint64_t state = arg->seeded ? arg->seed : seed;
    memset(data, 0, bytes);
    if (arg->source == TVM_RUN_RAND && any_code_will_do(type)) {
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t word = next_random(&state);
            memcpy(data + at, &word, bytes - at < 8 ? bytes - at : 8);
        }
    } else if (arg->source == TVM_RUN_RAND || arg->source == TVM_RUN_IOTA) {
        for (uint64_t i = 0; i < elements; i++)
            tvm_bits_set(data, i * type.bits, type.bits,
                         arg->source == TVM_RUN_RAND ? random_code(type, &state) : iota_code(type, i));
    }
}
