/* Inside of the checker: its rules, and what its files share.
 *
 * Control is structured and each team does its instructions in the order of the text. A state of a team is
 * where it is, what the scalars are that the certificate names (a number, a class, or anything), which rings
 * it holds, and at most one access that it has made and that nothing orders yet before all that follows: as
 * what orders an access does not depend on others, a path with many accesses is as many paths with one. A
 * condition that is not known goes both ways. At a loop's head, and where a role begins, the state has to be
 * one of the certificate's invariants of that place, and goes on as that. (check_run.c)
 *
 * check_sites.c  what an instruction touches of shared memory
 * check_places.c where that is, and whether two of them have an element in common that different threads have
 * check_order.c  what orders an access of a team before what the team does later
 * check_rings.c  mbarriers: what a team may do with those of a ring; what rings order between teams
 * check_clusters.c what blocks of a cluster do in each other's shared memory
 * check_turns.c  that teams which wait for each other come to their ends
 * check_values.c scalars
 * check_read.c   a certificate from its words
 *
 * Rings. (full, empty) are two mbarriers, the second one open; producers alone wait for `empty` and arrive at
 * `full`, by turns, the wait first; consumers alone wait for `full` and arrive at `empty`, by turns, the wait
 * first; each expects as many arrivals as there are teams that arrive. So phase i of `full` is made of the
 * i-th arrivals of all producers, each of which has waited for phase i of `empty`, and the other way round:
 * what a producer does between its wait and its arrival is before or after what a consumer does between its
 * own. A half ring has no `empty`: each producer arrives once, and each consumer waits once. An own mbarrier
 * (full is empty) is one team's, which arrives and then waits, by turns. */
#ifndef TVM_ISA_CHECK_CHECK_IMPL_H
#define TVM_ISA_CHECK_CHECK_IMPL_H

#include "check.h"
#include "shared_view.h"

enum {
    CHECK_TEAMS = TVM_MAX_TEAMS + 1, /* 0: the block's own; then the teams of its roles */
    CHECK_RINGS = 64,
    CHECK_SCALARS = 48,
    CHECK_CELLS = 96,
    CHECK_INVARIANTS = 1 << 13,
    CHECK_WORK = 1 << 23, /* steps, of which each takes no more than some 30 bytes */
    CHECK_VERSION = 1,
    CHECK_UNKNOWN = INT32_MIN, /* an index */
    CHECK_ALIGNED,             /* one that is a multiple of the tile's extent */
    CHECK_NO_CELL = UINT16_MAX
};

/* ---- scalars ---- */

typedef enum check_kind {
    CHECK_ANY,
    CHECK_EXACT, /* v */
    CHECK_CLASS  /* from 0 to high, and v modulo modulus */
} check_kind;

typedef struct check_value {
    int64_t v, high;
    uint32_t kind, modulus;
} check_value;

/* ---- accesses ---- */

typedef enum check_actor {
    CHECK_THREADS,
    CHECK_PRODUCT, /* reads until an arrival that does not leave it out */
    CHECK_PIPED,   /* a copy of a pipelined loop, which is ordered by itself */
    CHECK_COPY,    /* copy-async */
    CHECK_STORE,   /* store-bulk, of its tile */
    CHECK_BULK     /* copy-bulk */
} check_actor;

typedef struct check_site {
    uint32_t insn, slot, root;
    check_actor actor;
    bool writes, is_atomic, everywhere;
    bool is_far; /* of load-cluster or store-cluster; of all that hold an element one stores it */
    const tvm_layout *layout;   /* whose threads have which element; NULL: any thread of the team */
    const tvm_operand *barrier; /* of copy-bulk */
    const tvm_operand *indices;
    unsigned rank;
    uint32_t extent[TVM_MAX_RANK], shape[TVM_MAX_RANK];
    uint32_t first; /* in the root's elements */
    tvm_shared_digits digits[TVM_MAX_RANK];
    uint16_t *threads; /* by element of the tile, made when needed: who has it, or CHECK_SEVERAL */
} check_site;
enum { CHECK_SEVERAL = UINT16_MAX };

/* A site at a place. Where an index is by * variable + from, of a loop that goes on: the loop, + 1. An access
 * of a turn before is moved, so that the variable is that of this turn; one that is `behind` is there or
 * lower. */
typedef struct check_place {
    uint32_t site;
    int32_t low[TVM_MAX_RANK]; /* a number, or CHECK_UNKNOWN, CHECK_ALIGNED */
    uint32_t loop[TVM_MAX_RANK];
    int32_t by[TVM_MAX_RANK], from[TVM_MAX_RANK], behind[TVM_MAX_RANK];
} check_place;

typedef enum check_level {
    CHECK_OPEN,      /* nothing orders it; of a copy-async: no commit-group yet */
    CHECK_COMMITTED, /* copy-async */
    CHECK_WARPS,     /* those of a warp are in order */
    CHECK_RETIRED    /* copy-async: its threads have waited */
} check_level;

typedef struct check_record {
    uint32_t place; /* + 1; 0: there is none */
    uint8_t level, age;
    uint16_t cell;  /* of copy-bulk */
    uint64_t marks; /* rings that the team has let go of since */
    uint64_t cover; /* rings held from the access until it was complete */
} check_record;

/* Compared as bytes: what is not used is zeros. */
typedef struct check_state {
    uint32_t team;
    uint32_t at; /* 2 * instruction, + 1: the head of a loop that has been entered; of an invariant: a loop,
                  * or a role */
    uint64_t held;
    check_record record;
    check_value values[CHECK_SCALARS];
} check_state;

/* ---- mbarriers, teams ---- */

typedef struct check_cell {
    uint32_t slot, arrivals;
    bool open;
    uint32_t arrive_by, wait_by, bring_by; /* teams, as bits: as found */
} check_cell;

typedef struct check_ring {
    uint32_t full, empty;          /* cells; of an own one the same; CHECK_NO_CELL: half of a ring */
    uint32_t producers, consumers; /* teams, as bits */
} check_ring;

typedef struct check_team {
    uint32_t role, index, from, end; /* role: instruction; TVM_NONE: the block */
    uint32_t group;                  /* roles of a group run beside each other */
    tvm_team warps;
} check_team;

/* An access as the other teams see it. Compared as bytes, as places are: neither has padding. */
typedef struct check_entry {
    uint32_t team, group, place, lasts; /* lasts: nothing after its group orders it, but its ring */
    uint64_t cover, after;              /* after: rings for whose products the team waits no more */
} check_entry;

typedef struct check_set { /* of byte strings of one length each, in the order in which they came */
    uint8_t *bytes;
    uint32_t *at, *buckets; /* where each begins, and behind the last; number + 1 */
    uint32_t count, capacity, bucket_count;
    size_t size, room;
} check_set;

typedef struct checker {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_checked *checked;
    bool no_memory, over; /* over: the work, or a claim that carries the others has failed */
    uint32_t bad_ring;    /* that a team does not keep to; CHECK_RINGS: none */
    /* of the certificate */
    uint32_t slots[CHECK_SCALARS], scalar_count;
    uint64_t turn_scalars; /* as bits: those on which waits and arrivals depend */
    check_ring rings[CHECK_RINGS];
    uint32_t ring_count;
    check_state *invariants;
    uint32_t invariant_count, invariant_capacity;
    /* of the kernel */
    int32_t *scalar_of; /* by slot; -1 */
    uint8_t *matters;   /* by instruction that opens: its body has an access, an order, a scalar, a way out */
    uint32_t *groups;   /* by instruction: twice its group, + 1 where a role stands before */
    uint32_t *epochs;   /* by instruction: how many sync-clusters stand before, outside of control */
    bool out_of_step;   /* blocks of the cluster may come to different ones */
    check_site *sites;
    uint32_t site_count, *first_site; /* by instruction, and one more */
    check_cell cells[CHECK_CELLS];
    uint32_t cell_count, *first_cell; /* by slot */
    check_team teams[CHECK_TEAMS];
    uint32_t team_count, most_pending;
    check_set places, entries, seen;
    check_state *waiting; /* paths that are still to be gone, a stack */
    uint32_t waiting_count, waiting_capacity;
    uint64_t proper;  /* rings that are no half ones and no own ones, and half ones: those that order teams */
    uint64_t drained; /* of which each phase has been waited for at the end */
    bool waits;       /* some wait is for another team */
    /* Is the state one of the certificate's at the loop, or role? It becomes that. The maker of certificates
     * has a function of its own here, which adds it. */
    bool (*admit)(struct checker *c, uint32_t at, check_state *state);
    void *closure;
} checker;

/* ---- check.c ---- */

void tvm_check_fail(checker *c, tvm_checked_claim *claim, uint32_t insn, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Neither claim can be confirmed. */
void tvm_check_refuse(checker *c, uint32_t insn, const char *text);
void tvm_check_charge(checker *c, uint64_t work);
/* The number of the bytes, which are added where they are new (*is_new, may be NULL). */
uint32_t tvm_check_set_add(checker *c, check_set *set, const void *bytes, size_t size, bool *is_new);
static inline const void *tvm_check_set_at(const check_set *set, uint32_t number) {
    return set->bytes + set->at[number];
}
/* What it needs of the kernel; then both claims; and its end. */
bool tvm_check_begin(checker *c);
void tvm_check_all(checker *c);
void tvm_check_end(checker *c);

/* ---- check_read.c ---- */

bool tvm_check_read(checker *c, const uint32_t *words, uint32_t count);

/* ---- check_values.c ---- */

check_value tvm_check_eval(const checker *c, const check_state *state, uint32_t expr);
void tvm_check_assign(const checker *c, check_state *state, uint32_t slot, check_value value);
bool tvm_check_includes(const check_value *wide, const check_value *value);
/* The value of a loop's variable in the next turn, at the head, before it is compared. */
check_value tvm_check_next_turn(const checker *c, const check_state *state, const tvm_insn *loop);
/* 1: the loop goes on, or the condition holds; 0: not; -1: it is not known. */
int tvm_check_decides(const checker *c, const check_state *state, const tvm_insn *insn);
/* The loop has gone on: its variable is below the end. */
void tvm_check_goes_on(const checker *c, check_state *state, const tvm_insn *loop);

/* ---- check_sites.c ---- */

bool tvm_check_find_sites(checker *c);

/* ---- check_places.c ---- */

static inline const check_place *tvm_check_place(const checker *c, uint32_t place) {
    return (const check_place *)tvm_check_set_at(&c->places, place);
}
static inline const check_site *tvm_check_site(const checker *c, uint32_t place) {
    return &c->sites[tvm_check_place(c, place)->site];
}
uint32_t tvm_check_place_of(checker *c, const check_state *state, uint32_t site);
/* In the next turn of the loop, or behind it (TVM_NONE: behind all). */
uint32_t tvm_check_next_place(checker *c, uint32_t place, uint32_t loop);
uint32_t tvm_check_place_after(checker *c, uint32_t place, uint32_t loop);
/* May the two touch an element, of which one writes, but not both by an atomic operation? */
bool tvm_check_overlap(const checker *c, uint32_t a, uint32_t b);
/* Do other threads (warps) have at b what was touched at a? The two overlap. */
bool tvm_check_differ(checker *c, uint32_t a, uint32_t b, bool warps);

/* ---- check_order.c ---- */

/* What the instruction does to the state's access; it may be gone then. */
void tvm_check_order(checker *c, check_state *state, uint32_t insn);
/* The accesses of the instruction: compared with the state's; each is where another path begins. */
void tvm_check_access(checker *c, check_state *state, uint32_t insn);
void tvm_check_add_entry(checker *c, const check_state *state, uint32_t group);
/* Is the access over when an arrival at the cell that leaves out `pending` products is? */
bool tvm_check_is_complete(const checker *c, const check_record *record, uint32_t cell, uint32_t pending);

/* ---- check_rings.c ---- */

/* The team's warps, as bits. */
static inline uint32_t tvm_check_warps(const checker *c, uint32_t team) {
    return (uint32_t)(((UINT64_C(1) << c->teams[team].warps.warps) - 1) << c->teams[team].warps.first);
}

bool tvm_check_find_cells(checker *c);
uint16_t tvm_check_cell_at(const checker *c, const check_state *state, const tvm_operand *operand);
uint64_t tvm_check_held_first(const checker *c, uint32_t team);
void tvm_check_arrive(checker *c, check_state *state, uint32_t insn);
void tvm_check_wait(checker *c, check_state *state, uint32_t insn);
void tvm_check_bring(checker *c, const check_state *state, const check_site *site);
/* Are the rings what the certificate says, by who has been found to use them? */
bool tvm_check_rings(checker *c);
bool tvm_check_is_taken(const checker *c, uint32_t team, uint32_t cell);
uint64_t tvm_check_waits_no_more(const checker *c, uint32_t team, uint32_t insn);
/* Does a copy of a role last beyond its group? Of a ring that is drained, somebody has waited for it. */
bool tvm_check_lasts(const checker *c, const check_entry *entry);
void tvm_check_teams(checker *c);

/* ---- check_clusters.c ---- */

bool tvm_check_is_reached(const checker *c, uint32_t root);
void tvm_check_blocks(checker *c);

/* ---- check_run.c ---- */

static inline uint32_t check_behind(uint32_t insn) {
    return 2 * (insn + 1);
}
uint32_t tvm_check_end_of(const tvm_ir_kernel *kernel, uint32_t opener);
void tvm_check_leave_loop(checker *c, check_state *state, uint32_t loop);
void tvm_check_push(checker *c, const check_state *state); /* another path, from there */
bool tvm_check_admit(checker *c, uint32_t at, check_state *state);
void tvm_check_run(checker *c);

/* ---- check_turns.c ---- */

void tvm_check_turns(checker *c);

#endif
