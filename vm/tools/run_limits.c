#include "run_limits.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char tvm_run_limits_names[] =
    "scratch-bytes=N, blocks=N, instructions=N, milliseconds=N, turns=N, co-resident or no-embedded-code";

static bool parse_number(const char *text, uint64_t greatest, uint64_t *number) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *number = value;
    return !*end && !errno && value >= 1 && value <= greatest;
}

/* NAME=N; false: it is none. */
static bool parse_limit(const char *word, tvm_limits *limits) {
    uint64_t milliseconds = limits->milliseconds, turns = limits->turns;
    const struct {
        const char *name;
        uint64_t *limit, greatest;
    } numbers[] = {{"scratch-bytes", &limits->scratch_bytes, UINT64_MAX},
                   {"blocks", &limits->blocks, UINT64_MAX},
                   {"instructions", &limits->instructions, UINT64_MAX},
                   {"milliseconds", &milliseconds, UINT_MAX},
                   {"turns", &turns, UINT_MAX}};
    if (!strcmp(word, "co-resident")) {
        limits->co_resident = 1;
        return true;
    }
    if (!strcmp(word, "no-embedded-code")) {
        limits->no_embedded_code = 1;
        return true;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        size_t length = strlen(numbers[i].name);
        if (strncmp(word, numbers[i].name, length) || word[length] != '=') continue;
        bool right = parse_number(word + length + 1, numbers[i].greatest, numbers[i].limit);
        limits->milliseconds = (unsigned)milliseconds;
        limits->turns = (unsigned)turns;
        return right;
    }
    return false;
}

const char *tvm_run_limits_parse(char *text, tvm_limits *limits) {
    for (char *word; (word = strsep(&text, ",")) != NULL;)
        if (!parse_limit(word, limits)) return word;
    return NULL;
}
