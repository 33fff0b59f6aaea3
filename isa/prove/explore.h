/* What is so of a block's scalars on each path of a kernel, as facts about sums of unknowns. See explore.c.
 */
#ifndef TVM_ISA_PROVE_EXPLORE_H
#define TVM_ISA_PROVE_EXPLORE_H

#include "prove_impl.h"
#include "refute.h"

enum {
    EXPLORE_FACTS = 128, /* of a moment */
    EXPLORE_DEPTH = 3,   /* of loops that are looked into */
    EXPLORE_GHOSTS = 4,  /* numbers that a caller changes at instructions that he asks for */
    EXPLORE_KEPT = EXPLORE_GHOSTS + TVM_MAX_RANK, /* and such that he leaves alone */
    EXPLORE_CHOICES = 24,                         /* in one instruction */
    EXPLORE_ALL = UINT8_MAX - 1,                  /* a distance (slice.c) that is beyond all */
    EXPLORE_APART = 4                             /* moments; of more those that come of one are joined */
};

/* Values are of the kernel's scalars that are followed, the indices of the block, ghosts, and what followed
 * ones were where a loop, and a turn of it, began: explorer.values of them. */
typedef struct explore_moment {
    refute_sum *values;
    uint32_t fact_count, looked; /* looked: so many when facts about products were added */
    bool cannot_be;              /* its facts contradict each other */
    refute_solver *solver;       /* has the first `solved` facts; NULL: none yet */
    uint32_t solved;
    refute_sum facts[EXPLORE_FACTS];
} explore_moment;

typedef struct explore_moments {
    explore_moment **of;
    uint32_t count, capacity;
} explore_moments;

typedef struct explore_quotient {
    refute_sum whole, by;
    uint16_t unknown;
} explore_quotient;

typedef struct explorer {
    prover *p;
    refute_unknowns *unknowns;
    refute_solver *trial;
    unsigned most;   /* distance of what is followed (slice.c) */
    unsigned ghosts; /* so many of them change */
    uint8_t *insns;  /* that bear on what is asked */
    int32_t *index;  /* of a slot among the values; -1: it is not followed */
    uint8_t *edge;   /* by instruction: what it assigns is followed, but not all that it reads */
    int64_t *floors; /* by instruction, what it assigns is at least; NULL: not known */
    uint32_t followed, values;
    uint16_t *leaves; /* by expression: the unknown of one that is alike in all blocks; 0: none yet */
    explore_quotient *quotients;
    uint32_t quotient_count, quotient_capacity;
    bool failed; /* a limit; what was found does not count */
    bool exact;  /* sums are meant as numbers that do not wrap */
    bool coarse; /* loops are not looked into */
    unsigned silent, depth;
    bool choices[EXPLORE_CHOICES]; /* of what is not known, in the order of asking */
    unsigned choice_count, choice_at;
    explore_moments ends; /* where a path ends, by exit or behind the last instruction */
    /* At an instruction that is marked in `asked`; true: the path is not looked at any further. */
    bool (*meet)(struct explorer *e, explore_moment *m, uint32_t insn);
    void *closure;
    const uint8_t *asked;
} explorer;

/* The value's number of a block's index, and of a ghost. */
static inline uint32_t tvm_explore_block(const explorer *e, unsigned axis) {
    return e->followed + axis;
}
static inline uint32_t tvm_explore_ghost(const explorer *e, unsigned ghost) {
    return e->followed + 3 + ghost;
}

/* False: out of memory, which p->no_memory says. `asked`: by instruction; what bears on these is followed, up
 * to the distance `most` (slice.c). */
bool tvm_explore_begin(explorer *e, prover *p, refute_unknowns *unknowns, const uint8_t *asked,
                       unsigned most);
void tvm_explore_end(explorer *e);
/* Of a kernel without roles, from its first instruction; takes the moment. */
void tvm_explore_all(explorer *e, explore_moment *start);
/* One where nothing is known but that the block is one of the grid. */
explore_moment *tvm_explore_start(explorer *e);
/* All values are 0. NULL: out of memory. */
explore_moment *tvm_explore_new(explorer *e);
explore_moment *tvm_explore_copy(explorer *e, const explore_moment *from);
void tvm_explore_free(explore_moment *m);
bool tvm_explore_add(explorer *e, explore_moments *to, explore_moment *m);
void tvm_explore_clear(explore_moments *moments);

/* The sum is 0 or more from here on. False: that cannot be. */
bool tvm_explore_learn(explorer *e, explore_moment *m, const refute_sum *sum);
/* Is the sum 0 or more, for sure? */
bool tvm_explore_follows(explorer *e, explore_moment *m, const refute_sum *sum, unsigned effort);
/* The same of a - b - by; and can the moment not be at all? */
bool tvm_explore_is_above(explorer *e, explore_moment *m, const refute_sum *a, const refute_sum *b,
                          int64_t by, unsigned effort);
/* Adds facts about products, those of the sum, too. False: there are no more. */
bool tvm_explore_look(explorer *e, explore_moment *m, const refute_sum *about);
bool tvm_explore_is_refuted(explorer *e, explore_moment *m, unsigned effort);
/* Back to so many unknowns and quotients. */
void tvm_explore_forget(explorer *e, uint32_t unknowns, uint32_t quotients);
/* Leaves out facts that follow from others. */
void tvm_explore_tidy(explorer *e, explore_moment *m);
/* Leaves out facts about what no value has, nor any instruction from there on reads. */
void tvm_explore_drop(explorer *e, explore_moment *m, uint32_t from);
/* Makes one of all from the first on, of which is so what is of each. */
void tvm_explore_join(explorer *e, explore_moments *moments, uint32_t first);
/* One way of two that the facts leave open: inside of tvm_explore_each each of them in turn. */
bool tvm_explore_choose(explorer *e);
/* Inside of meet, or of an evaluation: what an expression is. */
/* The same, where both are looked at if it is not known. */
bool tvm_explore_is_positive(explorer *e, explore_moment *m, const refute_sum *sum);
refute_sum tvm_explore_value(explorer *e, explore_moment *m, uint32_t expr);
bool tvm_explore_holds(explorer *e, explore_moment *m, uint32_t expr);
/* A new unknown of the type. */
refute_sum tvm_explore_unknown(explorer *e, tvm_dtype type, bool is_own);
/* The least and the greatest value of a type. */
void tvm_explore_limits(tvm_dtype type, int64_t *low, int64_t *high);
/* The type of a value; of what is no scalar i64. */
tvm_dtype tvm_explore_type(const explorer *e, uint32_t value);
refute_sum tvm_explore_grid(explorer *e, unsigned axis);

/* ---- slice.c ---- */

/* Finds e->insns, e->index and e->edge. False: out of memory. */
bool tvm_explore_slice(explorer *e);
/* Less is asked from here on, and no more is followed than bears on that. False: out of memory. */
bool tvm_explore_narrow(explorer *e, const uint8_t *asked);

/* ---- floors.c ---- */

/* What instructions at the edge assign at least, into e->floors; they may do so much work. */
void tvm_explore_find_floors(explorer *e, uint64_t most_work);

/* ---- loops.c ---- */

/* Runs the loop from each of the moments, which become those behind it. */
void tvm_explore_loop(explorer *e, uint32_t loop, explore_moments *moments);
/* ---- explore.c, for loops.c ---- */
typedef struct explore_jumps {
    explore_moments breaks, continues;
} explore_jumps;
void tvm_explore_range(explorer *e, uint32_t from, uint32_t end, explore_moments *moments,
                       explore_jumps *jumps);
/* Calls `what` for each way that choices can be made, of a copy of each moment; true: the copy is kept. Where
 * there are many, those of one moment may be joined. */
typedef bool explore_step(explorer *e, explore_moment *m, const void *how);
void tvm_explore_each(explorer *e, explore_moments *moments, bool joins, explore_step *what, const void *how);

#endif
