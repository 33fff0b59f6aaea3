/* Inside of the prover: what its files share. See prove.h. */
#ifndef TVM_ISA_PROVE_PROVE_IMPL_H
#define TVM_ISA_PROVE_PROVE_IMPL_H

#include "prove.h"
#include "shared_view.h"

enum {
    PROVE_CONTEXTS = TVM_MAX_TEAMS + 1, /* 0: the block's own; then the teams of its roles */
    PROVE_TOKENS = 64,
    PROVE_VALUES = 64,         /* different ones that a scalar may have before it counts as unknown */
    PROVE_WORK = 1 << 21,      /* steps, of some 10 ns each, that a kernel may take */
    PROVE_LONG_WORK = 1 << 25, /* the same, where a proof may take long */
    PROVE_FAR_WORK = 1 << 18,  /* steps for what other blocks do */
    PROVE_LONG_FAR_WORK = 1 << 29,
    PROVE_UNKNOWN = INT32_MIN, /* an index */
    PROVE_ALIGNED,             /* an index that is a multiple of the tile's extent */
    PROVE_RANK,                /* an index that is the block's rank in its cluster, of an extent of 1 */
    PROVE_TOUCHED = 1,         /* what is known of a tensor */
    PROVE_TOUCHED_BY_WRITES = 2,
    PROVE_TOUCHED_FAR = 4 /* by other blocks of the cluster */
};

/* ---- scalars ---- */

typedef enum prove_kind {
    PROVE_ANY,   /* nothing is known */
    PROVE_EXACT, /* it is `v` */
    PROVE_CLASS  /* at least 0, at most `high`, and `v` modulo `modulus` */
} prove_kind;

typedef struct prove_value {
    int64_t v, high;
    uint32_t kind, modulus;
} prove_value;

/* How a scalar is kept. Each mode knows less than the one before. */
typedef enum prove_mode {
    PROVE_NUMBERS,
    PROVE_CLASSES, /* of a loop's variable */
    PROVE_SIGNS,   /* of a loop's variable, that it is not negative */
    PROVE_NOTHING
} prove_mode;

typedef struct prove_scalar {
    uint32_t slot;
    prove_mode mode;
    int64_t seen[PROVE_VALUES];
    uint32_t seen_count;
} prove_scalar;

/* ---- accesses ---- */

typedef enum prove_actor {
    PROVE_THREADS,
    PROVE_PRODUCT, /* reads until an arrival that does not leave it out */
    PROVE_PIPED,   /* a copy of a pipelined loop, which is ordered by itself */
    PROVE_COPY,    /* copy-async */
    PROVE_STORE,   /* store-bulk, of its tile */
    PROVE_BULK     /* copy-bulk */
} prove_actor;

/* A tile in shared memory that an instruction names. */
typedef struct prove_site {
    uint32_t insn, slot, root;
    prove_actor actor;
    bool writes, is_atomic;
    bool is_far;                /* load-cluster or store-cluster */
    bool by_warps;              /* a warp touches its elements together */
    bool is_masked;             /* some of the elements may be left out */
    bool everywhere;            /* the indices are not known: any place of the tensor */
    const tvm_layout *layout;   /* whose threads have which element; NULL: any thread of the team */
    tvm_layout own_layout;      /* of a product's tile */
    const tvm_operand *parts;   /* of a copy-async whose tile is shared out among the warps */
    const tvm_operand *barrier; /* of copy-bulk */
    unsigned rank;
    const tvm_operand *indices, *block; /* block: the rank of the one whose memory it is; NULL: the own one */
    uint32_t extent[TVM_MAX_RANK], shape[TVM_MAX_RANK];
    uint32_t first; /* in the root's elements */
    tvm_shared_digits digits[TVM_MAX_RANK];
    uint32_t ticket;           /* of places that a counter has handed out, the counter's slot + 1 */
    uint16_t *threads, *warps; /* by element of the tile, made when needed: who has it, or PROVE_SEVERAL */
} prove_site;
enum { PROVE_SEVERAL = UINT16_MAX };

/* A scalar times a number; times 0: none. */
typedef struct prove_bound {
    uint32_t slot;
    int32_t times;
} prove_bound;

/* A site at a place. */
typedef struct prove_place {
    uint32_t site;
    int32_t block;             /* its rank; PROVE_UNKNOWN */
    int32_t low[TVM_MAX_RANK]; /* PROVE_UNKNOWN to PROVE_RANK: anywhere along the dimension */
    /* Where the index is by * variable + from, of a loop that goes on: the loop, + 1. Of an access of a turn
     * before it is moved, so that the variable is that of this turn; one that is `behind` is there or lower.
     */
    uint32_t loop[TVM_MAX_RANK];
    int32_t by[TVM_MAX_RANK], from[TVM_MAX_RANK], behind[TVM_MAX_RANK];
    prove_bound under[TVM_MAX_RANK],
        over[TVM_MAX_RANK]; /* the tile ends there or before; begins there or behind */
} prove_place;

static inline bool tvm_prove_is_exact(int32_t low) {
    return low > PROVE_RANK;
}

/* Are both relative to the variable of one loop? */
static inline bool tvm_prove_is_alike(const prove_place *x, const prove_place *y, unsigned d) {
    return x->loop[d] && x->loop[d] == y->loop[d] && x->by[d] == y->by[d];
}

static inline bool tvm_prove_is_split(const prove_site *site, unsigned d) {
    return site->digits[d].count > 1;
}

/* ---- states ---- */

typedef enum prove_level {
    PROVE_OPEN,      /* nothing orders it; of a copy-async: no commit-group yet */
    PROVE_COMMITTED, /* copy-async */
    PROVE_WARPS,     /* threads, or a copy-async that was waited for: those of a warp are in order */
    PROVE_RETIRED    /* copy-async: its threads have waited */
} prove_level;

/* An access of the team that is not ordered before all that follows. No padding: it is compared as bytes. */
typedef struct prove_record {
    uint32_t place;
    uint8_t level;  /* prove_level */
    uint8_t age;    /* commit-groups, products or store-bulks since, up to most_pending */
    uint16_t cell;  /* of copy-bulk; PROVE_NO_CELL: not known */
    uint64_t marks; /* rings that the team has let go of since */
    uint64_t cover; /* rings that it held, and still does or has let go of when the access was complete */
} prove_record;
enum { PROVE_NO_CELL = UINT16_MAX };

typedef struct prove_state {
    uint32_t at;   /* 2 * instruction, + 1: the head of a loop that has been entered */
    bool sure;     /* every block comes here */
    uint64_t held; /* rings; of a mbarrier of one team: it has arrived */
    prove_value *values;
    prove_record *records;
    uint32_t record_count, record_capacity;
} prove_state;

/* ---- mbarriers ---- */

typedef struct prove_cell {
    uint32_t slot, index, arrivals;
    bool open, wild;                       /* wild: an instruction may mean it, or another */
    uint32_t arrive_by, wait_by, bring_by; /* contexts, as bits */
} prove_cell;

typedef struct prove_token {
    uint16_t full, empty; /* cells; of a team's own mbarrier the same; PROVE_NO_CELL: half of a ring */
    uint32_t producers, consumers;
    bool broken;
} prove_token;

typedef struct prove_context {
    uint32_t role, index; /* instruction; TVM_NONE: the block */
    uint32_t from, end;   /* instructions */
    uint32_t group;       /* roles of a group run beside each other */
    tvm_team team;
    prove_state *starts; /* of the block where the role begins */
    uint32_t start_count;
} prove_context;

/* An access as the other teams see it. */
typedef struct prove_entry {
    uint32_t context, group, place;
    bool lasts; /* nothing after its group orders it, but that its ring has been drained */
    uint64_t cover;
    uint64_t after; /* rings whose products the team waits for no more */
} prove_entry;

typedef struct prove_set { /* of byte strings */
    struct prove_string {
        uint8_t *bytes;
        uint32_t size, number; /* in the order in which they came */
    } * strings;
    uint32_t count, capacity;
} prove_set;

typedef struct prover {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_proof *proof;
    bool no_memory, restart, too_long;
    uint64_t work, most_work; /* of a pass; of all so far and this one */
    uint64_t far_work;        /* of handovers.c */
    bool out_of_step;         /* blocks of the cluster may come to different numbers of sync-cluster */
    bool gathers;             /* who uses which mbarrier; no accesses */
    uint8_t *bears;           /* by instruction: on places, order or paths */
    uint8_t *runs;            /* by instruction, a loop that runs a turn at least; NULL: not known of any */
    int32_t *tracked;         /* by slot: a scalar, or -1 */
    prove_scalar *scalars;
    uint32_t scalar_count;
    uint32_t modulus; /* of classes; 1: none */
    prove_site *sites;
    uint32_t site_count;
    uint32_t *first_site; /* by instruction, and one more */
    uint32_t *groups;     /* by instruction */
    uint32_t *epochs;     /* by instruction */
    uint8_t *touched;     /* by context, then root: PROVE_TOUCHED... */
    prove_place *places;
    uint32_t place_count, place_capacity;
    uint32_t *place_buckets, place_bucket_count;
    prove_cell *cells;
    uint32_t cell_count;
    uint32_t *first_cell; /* by slot */
    prove_token tokens[PROVE_TOKENS];
    uint32_t token_count;
    uint64_t rings;        /* tokens that are rings, as bits */
    uint64_t drained;      /* all phases of which their consumers have waited for where their group ends */
    uint32_t most_pending; /* groups, store-bulks or products that one instruction leaves out */
    prove_context contexts[PROVE_CONTEXTS];
    uint32_t context_count;
    prove_entry *entries;
    uint32_t entry_count, entry_capacity;
    prove_set entry_set, visited;
    prove_set met; /* accesses with which a team was where it was, by the number in `visited` */
    bool handed;   /* what each take-global waits for is put by a block of a lower index, for it alone */
    bool far;      /* global memory, and what blocks wait for, is looked at */
    const char *why_not_handed; /* NULL: that is not looked at */
    bool waits_alone;           /* each wait was for an arrival of its own team */
    uint32_t odd_wait;          /* else: the first that was not */
    struct {
        uint32_t a, b, level;
        int64_t distance[TVM_MAX_RANK];
    } known[256]; /* comparisons of threads */
    uint32_t known_count;
} prover;

/* ---- scalars.c ---- */

bool tvm_prove_find_scalars(prover *p);
/* The only instruction whose result the slot is; NULL: there are several, or none. */
const tvm_insn *tvm_prove_definition(const prover *p, uint32_t slot);
prove_value tvm_prove_eval(const prover *p, const prove_state *state, uint32_t expr);
prove_value tvm_prove_exact(int64_t v);
/* The scalar has the value now. */
void tvm_prove_assign(prover *p, prove_state *state, uint32_t slot, prove_value value);
/* What is so behind the `assert`; false: it does not hold, and nothing comes behind it. */
bool tvm_prove_learn(prover *p, prove_state *state, const tvm_insn *insn);
/* The first value of a loop's variable, and the one after `before`; PROVE_ANY where it is not known. */
prove_value tvm_prove_first_turn(const prover *p, const prove_state *state, const tvm_insn *loop);
prove_value tvm_prove_next_turn(const prover *p, const prove_state *state, const tvm_insn *loop);
/* Does the loop go on with its variable's value? 1 yes, 0 no, -1 it is not known. */
int tvm_prove_goes_on(const prover *p, const prove_state *state, const tvm_insn *loop);

/* All values that the expression may have, whatever the arguments are. */
typedef struct prove_range {
    int64_t low, high;
} prove_range;
prove_range tvm_prove_range(const prover *p, uint32_t expr);
/* Does nothing in the expression wrap? */
bool tvm_prove_is_whole(const prover *p, uint32_t expr);

/* ---- sites.c ---- */

bool tvm_prove_find_sites(prover *p);
void tvm_prove_free_sites(prover *p);
/* What an instruction does to other blocks of the cluster. */
typedef enum prove_reach {
    PROVE_NEAR,     /* nothing */
    PROVE_ACCESSES, /* it accesses their shared memory while it runs */
    PROVE_SENDS     /* it arrives at an mbarrier, or starts a copy */
} prove_reach;
prove_reach tvm_prove_reach_of(const prover *p, uint32_t insn);
/* Is an element of both certain, and which threads (of the team) have it? */
typedef struct prove_pair {
    bool certain;
    uint32_t index[TVM_MAX_RANK];
    uint32_t first, second; /* threads; PROVE_SEVERAL: not one */
} prove_pair;
/* Do other threads, or threads of other warps, touch at `b` what was touched at `a` before? The two overlap.
 */
bool tvm_prove_differ(prover *p, uint32_t a, uint32_t b, bool warps, prove_pair *pair);

/* ---- tickets.c ---- */

/* Finds which sites are at places that a counter hands out. */
void tvm_prove_find_tickets(prover *p);

/* ---- places.c ---- */

/* The site's place in the state; TVM_NONE: out of memory. */
uint32_t tvm_prove_place_of(prover *p, const prove_state *state, uint32_t site);
/* The place at the next turn of the loop; behind the loop, or any: TVM_NONE is all loops. */
uint32_t tvm_prove_next_place(prover *p, uint32_t place, uint32_t loop);
uint32_t tvm_prove_place_after(prover *p, uint32_t place, uint32_t loop);
/* The place without what the scalar, or any (TVM_NONE), says of where it is. */
uint32_t tvm_prove_place_without(prover *p, uint32_t place, uint32_t slot);
/* How far an element of dimension d may be from the first one, among the root's. */
uint64_t tvm_prove_most(const prove_site *site, unsigned d);
/* May the two touch an element, of which one writes, but not both by an atomic operation? */
bool tvm_prove_overlap(const prover *p, uint32_t a, uint32_t b);

/* ---- records.c ---- */

void tvm_prove_order(prover *p, uint32_t context, prove_state *state, uint32_t insn);
void tvm_prove_access(prover *p, uint32_t context, prove_state *state, uint32_t site);
void tvm_prove_let_go(prover *p, uint32_t context, prove_state *state, uint32_t token, uint32_t pending);
void tvm_prove_take(prover *p, prove_state *state, uint32_t token);
/* The loop goes on, or ends. */
void tvm_prove_move_records(prover *p, prove_state *state, uint32_t loop, bool ends);
/* The scalar is assigned. */
void tvm_prove_drop_bounds(prover *p, prove_state *state, uint32_t slot);
void tvm_prove_begin_role(prover *p, const prove_state *state, uint32_t group);
bool tvm_prove_frees(prover *p, const prove_state *state, uint32_t insn);

/* ---- rings.c ---- */

bool tvm_prove_find_cells(prover *p);
void tvm_prove_find_tokens(prover *p);
/* What a team holds where its role begins. */
uint64_t tvm_prove_held_first(const prover *p, uint32_t context);
void tvm_prove_arrive(prover *p, uint32_t context, prove_state *state, uint32_t insn);
void tvm_prove_wait(prover *p, uint32_t context, prove_state *state, uint32_t insn);
void tvm_prove_bring(prover *p, uint32_t context, const prove_state *state, const prove_site *site);
/* Does the wait belong to a ring of that team, or its own mbarrier? */
bool tvm_prove_is_of_token(const prover *p, uint32_t context, uint16_t cell);
/* The cell of mbarriers at an operand; PROVE_NO_CELL. */
uint16_t tvm_prove_cell_at(const prover *p, const prove_state *state, const tvm_operand *operand);
/* The rings for whose products the team does not wait any more once it has come to the instruction. */
uint64_t tvm_prove_waits_no_more(const prover *p, uint32_t context, uint32_t insn);
void tvm_prove_compare_teams(prover *p);
/* Does an access last beyond its group? */
bool tvm_prove_lasts(const prover *p, const prove_entry *entry);

/* ---- clusters.c ---- */

bool tvm_prove_find_epochs(prover *p);
bool tvm_prove_meets_pair(const prover *p, uint32_t at);
bool tvm_prove_is_rank(const prover *p, uint32_t expr);
/* Do other blocks of the cluster access the tensor? */
bool tvm_prove_is_reached(const prover *p, uint32_t root);
void tvm_prove_compare_blocks(prover *p);

/* ---- alike.c ---- */

typedef struct prove_bearing {
    uint8_t *insns, *slots; /* that bear on waits and arrivals */
    uint32_t
        *counterpart; /* by instruction, of a decision: that of the first team that decides alike; TVM_NONE */
} prove_bearing;
/* Where the body of a loop, or all of a condition, ends. */
uint32_t tvm_prove_end_of(const tvm_ir_kernel *kernel, uint32_t at);
/* Marks the scalars of the instruction's indices of shared memory and mbarriers. */
void tvm_prove_mark_indices(prover *p, uint32_t insn, uint8_t *slots);
/* Marks the scalars of all operands; true: there is a new one. */
bool tvm_prove_mark_operands(prover *p, uint32_t insn, uint8_t *slots);
/* Adds to the instructions, and to the scalars that they read, until all that bears on them is there. */
void tvm_prove_close_over(prover *p, uint32_t from, uint32_t end, uint8_t *insns, uint8_t *slots);
/* Of the teams of a group; false: out of memory. */
bool tvm_prove_find_bearing(prover *p, uint32_t first, uint32_t end, prove_bearing *bearing);
void tvm_prove_free_bearing(prove_bearing *bearing);
/* Does no role of the teams assign what the expression reads? */
bool tvm_prove_is_constant(prover *p, uint32_t first, uint32_t end, uint32_t expr);

/* ---- turns.c ---- */

/* Do all teams of roles come to their ends, whose waits are for rings? Else says what is not known. Finds
 * which rings are drained. */
void tvm_prove_turns(prover *p);

/* ---- handovers.c ---- */

/* Does each take-global find, in the end, what a block of a lower index puts for it? Sets p->handed. */
void tvm_prove_handovers(prover *p);

/* ---- census.c ---- */

/* Does the lock-semaphore wait for a count of blocks that it gets? */
bool tvm_prove_is_counted(const prover *p, uint32_t wait);

/* ---- floors.c ---- */

/* Finds loops that run at least one turn: p->runs. False: out of memory. */
bool tvm_prove_find_runs(prover *p, uint64_t most_work);

/* ---- walk.c ---- */

void tvm_prove_walk(prover *p);
bool tvm_prove_copy_state(prover *p, prove_state *to, const prove_state *from);
void tvm_prove_free_state(prove_state *state);
/* Where a state stands behind an instruction. */
static inline uint32_t behind(uint32_t insn) {
    return 2 * (insn + 1);
}
void tvm_prove_forget(prover *p, prove_state *state, uint32_t slot);
/* At a loop, to its head; at its end, to the head of the next turn; from its head out. */
void tvm_prove_enter_loop(prover *p, prove_state *state, uint32_t loop);
void tvm_prove_turn_loop(prover *p, prove_state *state, uint32_t loop);
void tvm_prove_leave_loop(prover *p, prove_state *state, uint32_t loop);
/* Accounts for work that a walk may still do as before. */
void tvm_prove_allow(prover *p, uint64_t work);
/* Accounts for work; too much ends the walk. */
void tvm_prove_charge(prover *p, uint64_t work);
/* The number of the bytes, which are added where they are not there; TVM_NONE: out of memory. */
uint32_t tvm_prove_set_number(prover *p, prove_set *set, const void *bytes, size_t size);
/* Adds the bytes; false: they were there, or out of memory. */
bool tvm_prove_set_add(prover *p, prove_set *set, const void *bytes, size_t size);
void tvm_prove_set_clear(prove_set *set);

/* ---- global.c ---- */

/* Races on global memory, into p->proof->global. */
void tvm_prove_global(prover *p);

/* ---- prove.c ---- */

/* What is missing; the first one stays, but that a refutation takes its place. */
void tvm_prove_fail(prover *p, tvm_proof_part *part, tvm_proof_verdict verdict, uint32_t insn, uint32_t other,
                    const char *format, ...) __attribute__((format(printf, 6, 7)));
const char *tvm_prove_mnemonic(const prover *p, uint32_t insn);
uint32_t tvm_prove_line(const prover *p, uint32_t insn);

#endif
