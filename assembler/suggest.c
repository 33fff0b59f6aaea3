#include "suggest.h"

#include <stdio.h>
#include <string.h>

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Optimal string alignment distance, by rows; both at most TVM_SUGGEST_MAX long. */
static unsigned distance(const char *a, size_t na, const char *b, size_t nb) {
    unsigned rows[3][TVM_SUGGEST_MAX + 1];
    for (size_t j = 0; j <= nb; j++) rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i - 1) % 3];
        const unsigned *second = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned cost = a[i - 1] != b[j - 1];
            row[j] = least(least(above[j] + 1, row[j - 1] + 1), above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], second[j - 2] + 1);
        }
    }
    return rows[na % 3][nb];
}

void tvm_suggest_start(tvm_suggest *suggest, const char *wanted, size_t length) {
    suggest->wanted = wanted;
    suggest->length = length;
    suggest->best[0] = '\0';
    suggest->distance = TVM_SUGGEST_MAX;
}

void tvm_suggest_offer(tvm_suggest *suggest, const char *name, size_t length) {
    if (!length || length > TVM_SUGGEST_MAX || suggest->length > TVM_SUGGEST_MAX) return;
    unsigned d = distance(suggest->wanted, suggest->length, name, length);
    if (d >= suggest->distance) return;
    suggest->distance = d;
    memcpy(suggest->best, name, length);
    suggest->best[length] = '\0';
}

void tvm_suggest_offer_all(tvm_suggest *suggest, const char *(*name)(size_t index)) {
    const char *offered;
    for (size_t i = 0; (offered = name(i)); i++) tvm_suggest_offer(suggest, offered, strlen(offered));
}

const char *tvm_suggest_best(const tvm_suggest *suggest) {
    size_t tolerance = suggest->length / 3 + (suggest->length < 3);
    if (tolerance > 3) tolerance = 3;
    if (!suggest->best[0] || suggest->distance > tolerance) return NULL;
    /* A name of one or two letters resembles everything: all of it must not have changed. */
    if (suggest->distance >= suggest->length) return NULL;
    return suggest->best;
}

const char *tvm_suggest_hint(const tvm_suggest *suggest, const char *sigil, char hint[96]) {
    const char *best = tvm_suggest_best(suggest);
    if (!best) return NULL;
    snprintf(hint, 96, "did you mean '%s%s'?", sigil, best);
    return hint;
}
