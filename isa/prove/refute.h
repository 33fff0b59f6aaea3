/* Facts about whole numbers, and what contradicts itself. See refute.c. */
#ifndef TVM_ISA_PROVE_REFUTE_H
#define TVM_ISA_PROVE_REFUTE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    REFUTE_TERMS = 12,     /* of a sum */
    REFUTE_DEGREE = 3,     /* unknowns of a product */
    REFUTE_UNKNOWNS = 2048 /* 0 is none */
};

/* by * of[0] * of[1] * of[2], the greatest first; a number by itself: all are 0. */
typedef struct refute_term {
    int64_t by;
    uint16_t of[REFUTE_DEGREE], pad;
} refute_term;

/* Terms of different products, in order, none of them 0. */
typedef struct refute_sum {
    uint32_t count, pad;
    refute_term terms[REFUTE_TERMS];
} refute_sum;

/* An unknown whole number. One that is a quotient keeps what it is a quotient of. */
typedef struct refute_unknown {
    int64_t low, high;
    bool is_own;      /* of a block, or a time: not the same for all blocks of a launch */
    bool is_passing;  /* of a time: nothing else is said with it but facts of the moment */
    int64_t divisor;  /* a number; 0: it is no such quotient */
    refute_sum whole; /* divisor * unknown is at most that */
} refute_unknown;

typedef struct refute_unknowns {
    refute_unknown of[REFUTE_UNKNOWNS];
    uint32_t count; /* with 0 */
    uint64_t work;  /* of refutations, in steps of some 10 ns */
    uint64_t most_work;
} refute_unknowns;

static inline refute_sum tvm_refute_number(int64_t v) {
    refute_sum sum = {.count = v != 0};
    sum.terms[0].by = v;
    return sum;
}

static inline refute_sum tvm_refute_of(uint16_t unknown) {
    refute_sum sum = {.count = 1};
    sum.terms[0] = (refute_term){.by = 1, .of = {unknown}};
    return sum;
}

/* Is the sum a number? */
static inline bool tvm_refute_is_number(const refute_sum *sum, int64_t *v) {
    *v = sum->count ? sum->terms[0].by : 0;
    return sum->count == 0 || (sum->count == 1 && sum->terms[0].of[0] == 0);
}

/* A new one, 0 where there are too many. */
uint16_t tvm_refute_unknown_new(refute_unknowns *u, int64_t low, int64_t high, bool is_own);

/* *to += by * sum, *to = a * b, *to with `value` in the place of the unknown. False: too large; *to is as it
 * was. */
bool tvm_refute_add(refute_sum *to, int64_t by, const refute_sum *sum);
bool tvm_refute_multiply(refute_sum *to, const refute_sum *a, const refute_sum *b);
bool tvm_refute_replace(refute_sum *to, uint16_t unknown, const refute_sum *value);
bool tvm_refute_has(const refute_sum *sum, uint16_t unknown);
/* Bounds by those of the unknowns; INT64_MIN and INT64_MAX where there are none. */
void tvm_refute_range(const refute_unknowns *u, const refute_sum *sum, int64_t *low, int64_t *high);

/* Facts, sums of which each is 0 or more, and whether they contradict each other. NULL: out of memory; free()
 * frees. */
typedef struct refute_solver refute_solver;
refute_solver *tvm_refute_solver_new(refute_unknowns *u);
void tvm_refute_solver_copy(refute_solver *to, const refute_solver *from);
/* The same, as long as `from` is there and has no more facts. */
void tvm_refute_solver_try(refute_solver *to, const refute_solver *from);
/* Do they, with this one? False also where it is not found. */
bool tvm_refute_solver_add(refute_solver *solver, const refute_sum *fact);

bool tvm_refute_solver_denies(const refute_solver *solver, const refute_sum *sum);

/* The same of the solver's facts, which are in `facts`, too. `effort`: 0: products are unknowns; 1: products
 * have facts of their own; each more splits into three cases, that one unknown is less than, equal to or
 * greater than another. */
bool tvm_refute(const refute_solver *solver, const refute_sum *facts, uint32_t count, unsigned effort);
/* The same, where the last fact is one like the others, and not what is to be refuted. */
bool tvm_refute_facts(const refute_solver *solver, const refute_sum *facts, uint32_t count, unsigned effort);
/* Adds facts about products in facts and in `about`, up to `most` in all; their new number. */
uint32_t tvm_refute_learn(const refute_solver *solver, refute_sum *facts, uint32_t count, uint32_t most,
                          const refute_sum *about);

#endif
