/* What the generator's files share: a kernel in the making, and what is known of its variables. Private to
 * tests/generate. */
#ifndef TVM_TESTS_GENERATE_STATE_H
#define TVM_TESTS_GENERATE_STATE_H

#include "generate.h"
#include "verify.h"

enum {
    GEN_SLOTS = 400,
    GEN_OPERANDS = 40,
    GEN_PARAMS = 18, /* tensors */
    GEN_SHAPES = 3,
    GEN_DEPTH = 3,
    GEN_LOCALS = 32, /* elements that a thread holds of a tensor whose layout is chosen */
    GEN_FEW_LOCALS = 4,
    GEN_BLOCKS = 3
};

/* What is known of a variable beside its type. */
typedef struct gen_var {
    bool alive;      /* assigned on every path to here */
    bool loose;      /* may be assigned again: nothing below is claimed of it */
    bool exact_bits; /* no NaN in it has a payload of nobody's choice */
    bool whole;      /* a scalar: its values are within low..high; a tensor: whole numbers within +-high */
    int64_t low, high;
    unsigned units; /* of what is approximate: how far off in the last place; 0: exact */
} gen_var;

/* A shared tensor that programs read and write in turn. */
typedef struct gen_shared {
    uint32_t slot;
    bool written, read; /* since the last sync */
    bool freed;
} gen_shared;

typedef struct gen {
    uint64_t state;
    const generate_options *options;
    tvm_ir_program *program;
    tvm_ir_kernel *kernel; /* the program's only one: does not move */
    tvm_team team;
    uint32_t blocks;
    unsigned axis;              /* along which the blocks lie, and a cluster's */
    uint32_t teams, team_index; /* of a role that has several; teams: else 0 */
    gen_var vars[GEN_SLOTS];
    bool outside[GEN_SLOTS]; /* of roles: what was alive there */
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    unsigned type_count;
    unsigned params, names, depth, loops;
    bool in_role, failed;
    bool ended; /* nothing may follow */
    struct {
        unsigned rank;
        uint32_t extent[TVM_MAX_RANK];
    } shapes[GEN_SHAPES];
    gen_shared shared[4];
    unsigned shared_count;
    uint32_t scalar_i32, scalar_i64, scalar_u32, scalar_f32, scalar_f64, scalar_bool; /* parameters */
} gen;

/* ---- values.c: numbers, expressions, layouts, slots ---- */
unsigned gen_below(gen *g, unsigned n);
/* The most elements that a thread holds of a tensor. */
uint32_t gen_locals(const gen *g);
bool gen_one_in(gen *g, unsigned n);
/* Of constants alone, its value. */
uint32_t gen_node(gen *g, tvm_expr node);
uint32_t gen_integer(gen *g, tvm_dtype type, int64_t value);
uint32_t gen_float(gen *g, tvm_dtype type, double value);
uint32_t gen_slot_expr(gen *g, uint32_t slot);
uint32_t gen_block(gen *g);
uint32_t gen_apply(gen *g, unsigned op, uint32_t a, uint32_t b);
uint32_t gen_cast(gen *g, tvm_dtype type, uint32_t a);
/* An i32 expression, and between which numbers it is. */
typedef struct gen_range {
    uint32_t expr;
    int64_t low, high;
} gen_range;
gen_range gen_scalar(gen *g, unsigned depth);
/* An i32 expression that is a multiple of `step` from 0 to `last`. */
uint32_t gen_index(gen *g, uint32_t last, uint32_t step);
uint32_t gen_condition(gen *g);
/* Of any type that a scalar may have; to be converted to an element of `type`. */
uint32_t gen_scalar_for(gen *g, tvm_dtype type);
tvm_dtype gen_dtype(gen *g);
bool gen_layout(gen *g, unsigned rank, const uint32_t *shape, tvm_layout *out);
bool gen_spread(gen *g, unsigned rank, const uint32_t *shape, bool replicas, tvm_layout *out);
/* One of the program's shapes, or a part of it. */
unsigned gen_shape(gen *g, uint32_t shape[TVM_MAX_RANK]);
uint32_t gen_param(gen *g, const char *kind, tvm_dtype type, unsigned rank, const uint32_t *extents);
uint32_t gen_name(gen *g, const char *kind);
const tvm_layout *gen_layout_of(const gen *g, uint32_t slot);
/* An alive register tensor, or TVM_NONE. */
uint32_t gen_register(gen *g);
/* One of a type and of the shape of `like` (TVM_NONE: of any). */
uint32_t gen_register_of(gen *g, tvm_dtype type, uint32_t like);

/* ---- rows.c: instructions ---- */
typedef struct gen_insn {
    unsigned op;
    tvm_operand operands[GEN_OPERANDS];
    uint32_t count;
    tvm_result_type type;
} gen_insn;
gen_insn gen_begin(unsigned op);
void gen_put_slot(gen_insn *insn, uint32_t slot);
void gen_put_expr(gen_insn *insn, uint32_t expr);
void gen_put_const(gen_insn *insn, uint32_t value);
void gen_put_none(gen_insn *insn);
void gen_put_list(gen_insn *insn, unsigned count, const uint32_t *values);
/* Appends the instruction where the rules take it; *result (may be NULL) is its variable, a new one unless
 * it is given. */
bool gen_take(gen *g, gen_insn *insn, uint32_t *result);
/* The same of what the generator knows to be right: else the program has failed. */
uint32_t gen_must(gen *g, gen_insn *insn);
/* A row that computes registers from registers, by its operands' kinds. */
bool gen_compute(gen *g);
/* A tensor of the type and layout that holds something. */
uint32_t gen_fresh(gen *g, tvm_dtype type, const tvm_layout *layout);

/* ---- memory.c ---- */
/* An eviction priority, or none. */
void gen_put_evict(gen *g, gen_insn *insn);
void gen_sync(gen *g);
uint32_t gen_load_input(gen *g, const char *kind, tvm_dtype type, const tvm_layout *layout);
void gen_store_output(gen *g, uint32_t slot);
void gen_alloc_shared(gen *g);
void gen_memory(gen *g);
/* i32 or i64: of an input, or (unique) the coordinates along the axis, moved or exchanged. */
uint32_t gen_index_tensor(gen *g, const tvm_layout *layout, bool unique, unsigned axis);

/* ---- products.c ---- */
void gen_atomic(gen *g);
void gen_mma(gen *g);

/* ---- program.c ---- */
/* Every register tensor becomes an output. */
void gen_store_results(gen *g);

/* ---- control.c ---- */
void gen_body(gen *g, unsigned statements);
void gen_statement(gen *g);
void gen_between_blocks(gen *g);
void gen_pipeline(gen *g);
void gen_bulk(gen *g);
void gen_roles(gen *g);
void gen_cluster(gen *g);

#endif
