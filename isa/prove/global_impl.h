/* Proofs that a kernel has no races on global memory: what their files share.
 *
 * The promise. A kernel is proved free of races on global memory if no launch of it has two accesses of an
 * element of a tensor of the launch (a parameter, or what alloc-global makes; views of one are that tensor)
 * by different blocks, by different teams of a block or by different threads of a team, one of which writes,
 * that nothing in tvm-memory(7) orders. Atomic operations are in order with each other, those of scope cta
 * and cluster within their block; put-global with the take-global of its elements, in clean tensors;
 * semaphores with each other and with atomic operations. That holds
 *
 *   - for launches without an extent that is a parameter of the kernel and beyond GLOBAL_EXTENT_MAX, so that
 *     cdiv(n, 128) does not wrap; all other scalars are what they are, of 32 or 64 bits that wrap;
 *
 *   - where no two parameters of the launch have memory in common of which one is written. The sanitizer,
 *     which sees addresses, compares those, too; a proof knows tensors;
 *
 *   - of one launch: those before and after are not looked at, nor elements that were never written, nor what
 *     comes after a fault.
 *
 * What is TVM_PROVED_IF holds if, in addition, all that the text says does:
 *
 *   - semaphores: an access stands before a release, and the other one behind a lock, without a condition
 *     that one has and the other has not; which values are released and waited for is not looked at;
 *
 *   - loads: a scalar that is loaded from memory (a page) says where; then different elements of that tensor
 *     hold different values, and of memory that the kernel writes, different blocks read different values;
 *
 *   - scatter: what a tensor of indices names is different elements, for all threads, turns and blocks;
 *
 *   - an index of 32 bits does not wrap;
 *
 *   - strides of the launch keep the elements of a tensor apart.
 *
 * The method (global_pairs.c). Two accesses at two times are two valuations of the same terms. global_sites.c
 * walks the text once and has each scalar as a term over the block's index, loops' variables, parameters, and
 * unknowns where paths meet; each is a mathematical integer: a sum that may wrap is a term of its own unless
 * its bounds show that it does not (global_terms.c, global_bounds.c). If the tiles of the two have an element
 * in common, then along each dimension
 *
 *     -(extent of the first) < index of the first - index of the second < extent of the second,
 *
 * and from that it follows, until nothing new does:
 *
 *   - sums: if all but multiples of c can differ by less than c, the multiples are equal, and what is left
 *     differs as before. So digits of mixed radix are equal one by one, and the radix may be a scalar, too;
 *
 *   - x / n and x % n are equal, n is: x is (whatever the sign, as x is x / n * n + x % n also where that
 *     wraps);
 *
 *   - a loop's variable is equal: its start is, modulo the step; if both starts are below the step they are
 *     equal (blocks that walk along by the extent of the grid). Else the starts differ by less than the loop
 *     is long;
 *
 *   - a sum that may have wrapped is equal: so is the sum, if it cannot differ by 2^bits;
 *
 *   - both stand under the condition x == y, y is equal: x is;
 *
 *   - what is computed of equal terms is equal.
 *
 * If the block's indices are equal in the end, both were one block: no two have an element in common. The
 * same with the index of the team in its role for two teams of a block; and with the variables of all loops
 * around it for an instruction that a team does twice. Two conditions that contradict each other, or
 * differences that are too large, show that there is no such element at all. Within a team also what a sync
 * orders on every path (paths.h) is in order, and what the same thread does: the same place of the same
 * layout. What one put-global has put, one take-global takes: so if the former put each element of a clean
 * tensor once, the latter take it once.
 *
 * A counterexample is given where each block writes the first elements unconditionally. */
#ifndef TVM_ISA_PROVE_GLOBAL_IMPL_H
#define TVM_ISA_PROVE_GLOBAL_IMPL_H

#include "prove_impl.h"

enum {
    GLOBAL_EXTENT_MAX = INT32_MAX - (1 << 16),
    GLOBAL_FACTORS = 6,         /* of a product */
    GLOBAL_SUM = 10,            /* entries of a sum */
    GLOBAL_TERMS = 1 << 16,     /* of a kernel */
    GLOBAL_SITES = 1 << 10,     /* likewise */
    GLOBAL_GUARDS = 1 << 14,    /* of all sites */
    GLOBAL_BUCKETS = 1 << 12,   /* of terms */
    GLOBAL_DEPTH = 40,          /* of terms within terms that are looked into */
    GLOBAL_BOUND_DEPTH = 5,     /* substitutions of a bound */
    GLOBAL_BOUND_WORK = 1 << 9, /* likewise, of one that is asked for */
    GLOBAL_FACTS = 96           /* of a pair of sites */
};

/* ---- terms: what a scalar is, as a mathematical integer ---- */

typedef enum global_kind {
    GLOBAL_CONST,  /* `k` */
    GLOBAL_PARAM,  /* slot a */
    GLOBAL_DEVICE, /* expression a: a leaf that the launch knows, or a float constant */
    GLOBAL_GRID,   /* extent of axis a; b: what the kernel says it is */
    GLOBAL_BLOCK,  /* index along axis a; b: GLOBAL_GRID */
    GLOBAL_LOOP,   /* variable of the loop at instruction a, from b to below c in steps of `step` */
    GLOBAL_ROLE,   /* index of the team in the role at instruction a */
    GLOBAL_LOADED, /* what the load at instruction a gives; b: one more than its place in `loads`, or 0 */
    GLOBAL_OPAQUE, /* slot b where control comes to instruction a */
    GLOBAL_OP,     /* operator `op` of a, b, c; of a product c: GLOBAL_EXACT, which does not wrap */
    GLOBAL_WRAP,   /* a in two's complement of `bits`, `op`: signed */
    GLOBAL_SUM_OF  /* `k` and entries of the pool's `parts` from a on, b of them */
} global_kind;

typedef struct global_part {
    int64_t by;
    uint32_t term;
} global_part;

typedef struct global_term {
    uint8_t kind, op, bits;
    bool uniform; /* the same for all blocks of a launch */
    uint32_t a, b, c, step, next;
    int64_t k, low, high;
} global_term;

/* A sum by itself: k + by * term + ... */
typedef struct global_sum {
    int64_t k;
    unsigned count;
    global_part parts[GLOBAL_SUM];
} global_sum;

typedef struct global_guard {
    uint32_t term;
    bool holds;
} global_guard;

/* ---- accesses ---- */

typedef enum global_mode {
    GLOBAL_READ,
    GLOBAL_WRITE,
    GLOBAL_ATOMIC,
    GLOBAL_ATOMIC_BLOCK, /* of scope cta */
    GLOBAL_PUT,
    GLOBAL_TAKE,
    GLOBAL_SEMAPHORE
} global_mode;

typedef struct global_site {
    uint32_t insn, role; /* role: instruction, or TVM_NONE */
    uint32_t root;       /* slot: the tensor of the launch */
    uint32_t tensor;     /* slot that the instruction names */
    uint32_t space; /* slot in whose indices it is said where: the root, or a view with an order of its own */
    global_mode mode;
    bool async;     /* goes on after the instruction; of put-global: until what it has put is taken */
    bool scattered; /* some indices are tensors */
    bool unclear;   /* where it is is not known at all */
    bool strided;   /* the space has strides of the launch */
    unsigned rank;
    uint32_t index[TVM_MAX_RANK]; /* terms; TVM_NONE: any */
    uint32_t extent[TVM_MAX_RANK];
    const tvm_layout *layout; /* whose threads have which element; NULL: any thread */
    uint32_t tensor_rank;     /* of the layout */
    uint32_t first_guard, guards;
    uint32_t around; /* the innermost opener around it, or TVM_NONE */
} global_site;

/* What an array of slots holds of each where the walk is. */
typedef struct global_view {
    uint32_t root, space;
    bool unclear;
    unsigned rank;               /* of the space */
    uint32_t base[TVM_MAX_RANK]; /* terms: where the view begins */
    uint8_t from[TVM_MAX_RANK];  /* which dimension of the space is dimension d of the view */
} global_view;

typedef struct global_prover {
    prover *p;
    const tvm_ir_kernel *kernel;
    bool gave_up; /* a limit above */
    unsigned work;
    global_term *terms;
    uint32_t term_count, term_capacity;
    global_part *parts;
    uint32_t part_count, part_capacity;
    uint32_t *buckets;
    uint32_t axes[3]; /* terms of the block's indices */
    uint32_t *env;    /* by slot: a term; of a view, one of views; TVM_NONE: nothing is known */
    global_view *views;
    uint32_t view_count, view_capacity;
    global_site *loads; /* of scalars: where they are */
    uint32_t load_count, load_capacity;
    uint32_t *around;    /* by instruction: the opener around it */
    global_guard *stack; /* of what holds where the walk is */
    uint32_t stack_count;
    global_guard *guards; /* of the sites */
    uint32_t guard_count;
    global_site *sites;
    uint32_t site_count;
    uint32_t *first_site; /* by instruction, and one more */
    bool *written;        /* by slot: some instruction may write in it or in its views */
    uint8_t *reach;       /* by two sites: GLOBAL_REACHES... */
    uint8_t *memo;        /* by term, of one question */
} global_prover;

enum { GLOBAL_EXACT = 1, GLOBAL_REACHES = 1, GLOBAL_REACHES_TEAM = 2 };

/* In a sum with terms of two accesses at two times: that of the second. What is uniform has no such mark. */
#define GLOBAL_OTHER (UINT32_C(1) << 31)

static inline const global_term *global_at(const global_prover *g, uint32_t term) {
    return &g->terms[term & ~GLOBAL_OTHER];
}

/* ---- global_terms.c ---- */

/* Each gives TVM_NONE where memory or a limit is exhausted (p->no_memory, gave_up), and takes it. */
uint32_t tvm_global_const(global_prover *g, int64_t k);
uint32_t tvm_global_term(global_prover *g, const global_term *made);
uint32_t tvm_global_sum(global_prover *g, const global_sum *sum);
uint32_t tvm_global_plus(global_prover *g, uint32_t a, uint32_t b, int64_t by); /* a + by * b */
uint32_t tvm_global_apply(global_prover *g, const tvm_expr *node, tvm_dtype operands, const uint32_t *terms);
void tvm_global_type_range(tvm_dtype type, int64_t *low, int64_t *high);
/* The term as a sum, of itself at least. */
global_sum tvm_global_as_sum(const global_prover *g, uint32_t term);
/* *sum += by * term; false: too large. */
bool tvm_global_add(const global_prover *g, global_sum *sum, int64_t by, uint32_t term);
/* A product as a number times terms, of itself at least. */
typedef struct global_product {
    int64_t by;
    unsigned count;
    uint32_t factors[GLOBAL_FACTORS];
} global_product;
/* False: it has too many, or is no product of whole numbers. */
bool tvm_global_as_product(const global_prover *g, uint32_t term, global_product *product);
/* Takes the factors of `of` out of *product; false: it has not all of them. */
bool tvm_global_without(global_product *product, const global_product *of);
void tvm_global_sum_range(const global_prover *g, const global_sum *sum, int64_t *low, int64_t *high);

/* ---- global_bounds.c ---- */

/* An upper bound of the sum's values, INT64_MAX where there is none. */
int64_t tvm_global_most(global_prover *g, const global_sum *sum);
/* Is a less than b, always? */
bool tvm_global_less(global_prover *g, uint32_t a, uint32_t b);
/* An upper bound of x / d that the product gives which x is below; INT64_MAX. */
int64_t tvm_global_most_quotient(global_prover *g, uint32_t x, uint32_t d);

/* ---- global_sites.c ---- */

bool tvm_global_find_sites(global_prover *g);
/* The first operand of the row's entry of one of the kinds; NULL. */
const tvm_operand *tvm_global_entry(const global_prover *g, const tvm_insn *insn, const char *kinds);
/* Which accesses come to which others with no sync in between. */
bool tvm_global_find_reach(global_prover *g);

/* ---- global_pairs.c ---- */

typedef enum global_apart {
    GLOBAL_BLOCKS, /* other blocks */
    GLOBAL_TEAMS,  /* other teams of a block */
    GLOBAL_TURNS   /* one team, at other times */
} global_apart;

enum { GLOBAL_NO_WRAP = 1, GLOBAL_DIFFERENT = 2, GLOBAL_ALL_ASSUMED = 3 };

typedef struct global_answer {
    bool apart;      /* no element is of both */
    bool same_place; /* or else it is at the same place of both tiles */
    bool wraps;      /* that holds if no index has wrapped */
    uint32_t load;   /* instruction: that holds if what it loads differs; TVM_NONE */
} global_answer;
/* Two accesses, of other blocks, teams or turns. */
global_answer tvm_global_compare(global_prover *g, const global_site *a, const global_site *b,
                                 global_apart how);

#endif
