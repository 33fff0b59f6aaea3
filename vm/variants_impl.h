/* The structure of an entry's table; private to variants*.c. */
#ifndef TVM_VM_VARIANTS_IMPL_H
#define TVM_VM_VARIANTS_IMPL_H

#include "variants.h"
#include "variants_memory.h"
#include "variants_values.h"

/* The target of a decision: another decision, or the end. */
#define CHOSEN UINT32_C(0x80000000) /* | case */
#define NOBODY UINT32_MAX

/* Those before EXPRESSION are range checks. CANDIDATE and LEAST are no decisions, but steps of a choice among
 * costs, which stand where its cases' conditions lead. */
typedef enum subject { PARAM, SIGNED_MODULO, UNSIGNED_MODULO, EXPRESSION, CANDIDATE, LEAST } subject;

/* Is low <= value <= low + span, modulo 2^64? The value is that of a parameter, or that modulo a number. Of
 * an EXPRESSION, which is bool, `low` is the index, `span` its test among the table's values; so of a
 * CANDIDATE, the case `of` whose condition holds, its cost. Behind all of a choice, LEAST is where its least
 * one is taken. */
typedef struct decision {
    uint64_t low, span;
    uint32_t modulus;
    uint16_t param;
    uint8_t subject;
    bool is_signed;             /* how the values are ordered */
    uint32_t offer;             /* of a CANDIDATE: its number among the table's offers; NO_OFFER */
    uint32_t group;             /* of a CANDIDATE: the costs of one are computed together */
    bool always;                /* of a CANDIDATE: the case has no condition on arguments */
    uint32_t if_true, if_false; /* of a CANDIDATE: where to go on, both; of LEAST: where its choice begins,
                                   and where to go on when none of its cases holds */
    uint32_t of;                /* the case whose condition it is a part of */
} decision;

#define NO_OFFER UINT32_MAX

/* A candidate whose cost is computed together with those of the offers around it. */
typedef struct offer {
    uint16_t place; /* where its cost is among the values of a run */
    uint32_t left;  /* offers that are met next, one after the other */
    uint32_t of;    /* its case */
    uint32_t next;  /* where to go on behind it */
} offer;

static inline bool has_expression(const decision *d) {
    return d->subject == EXPRESSION || d->subject == CANDIDATE;
}

struct tvm_variants {
    const tvm_ir_program *program;
    const tvm_ir_entry *entry;
    tvm_room room;
    decision *decisions; /* each after those it leads to */
    uint32_t count, capacity;
    uint32_t start;
    uint32_t *rest;       /* of each case: where to go on when there is no room for it */
    tvm_values *values;   /* of the expressions */
    offer *offers;        /* as they are met */
    tvm_choices *choices; /* made before; NULL: the table is too short to be worth it */
};

/* Makes the chain: fills decisions, start and rest. `leaves` says what of the expressions the device decides:
 * the leaves of each, as tvm_expr_leaves, malloc'ed. False: out of memory. */
bool tvm_variants_make_chain(tvm_variants *table, const tvm_launch_env *env, uint8_t **leaves);

#endif
