/* A program in memory: what the assembler makes, the container stores, the verifier checks, the interpreter
 * runs and the code generator translates. All indices are into the arrays of the same program or kernel. A
 * program from tvm_vbc_read or the assembler has been verified: its readers need no checks of their own. */
#ifndef TVM_ISA_PROGRAM_H
#define TVM_ISA_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diag.h"
#include "layout.h"
#include "packing.h"
#include "target_traits.h"
#include "types.h"

#define TVM_NONE UINT32_MAX

enum {
    TVM_MAX_PARAMS = 64,
    TVM_MAX_SLOTS = 4096,     /* of a kernel */
    TVM_MAX_INSNS = 1 << 16,  /* of a kernel */
    TVM_MAX_EXPRS = 1 << 16,  /* of a kernel */
    TVM_MAX_EXPR_SIZE = 1024, /* nodes of one expression written out as a tree */
    TVM_MAX_CLUSTER = 8,      /* blocks of a cluster: what every GPU that has clusters takes */
    TVM_MAX_RESIDENT = 32,    /* blocks of a multiprocessor */
    TVM_MAX_DEPTH = 64,       /* of nested control */
    TVM_MAX_UNROLL = 1024,    /* of one for */
    TVM_MAX_PENDING = 64,     /* groups of one wait-group */
    TVM_MAX_BARRIERS = 32,    /* mbarriers of one alloc-barrier */
    TVM_MAX_TEAMS = 15, /* in the roles of a kernel: each has one of the 16 barriers, the block the first */
    TVM_MAX_ARRIVALS = 1024, /* of one of them */
    TVM_MAX_NAME = 255,      /* bytes of a name */
    TVM_MAX_KERNELS = 256,
    TVM_MAX_ENTRIES = 256,
    TVM_MAX_CASES = 4096,             /* of an entry */
    TVM_MAX_VIEW_DEPTH = 8,           /* views of views */
    TVM_MAX_LAUNCH_TENSORS = 16,      /* alloc-global of a kernel */
    TVM_MAX_CERTIFICATE = 1 << 20,    /* words, of a kernel */
    TVM_MAX_IMAGES = 64,              /* of a program */
    TVM_MAX_IMAGE_FACTS = 1 << 16,    /* of an image */
    TVM_IMAGE_TARGET_MAX = 16,        /* bytes with the NUL */
    TVM_IMAGE_MADE_BY_MAX = 64,       /* bytes with the NUL */
    TVM_MAX_LAYOUTS = 1 << 16,        /* of a program; as many shared layouts */
    TVM_MAX_SHARED_BYTES = 227 * 1024 /* of a block: the largest of the targets */
};

/* ---- instructions ---- */

/* Only its size is used: one more than the highest number. */
union tvm_op_extent {
#define TVM_OP(number, id, ...) char up_to_##id[number + 1];
#include "opcodes.def"
};

typedef enum tvm_opcode {
#define TVM_OP(number, id, ...) TVM_OP_##id = number,
#include "opcodes.def"
    TVM_OP_COUNT = sizeof(union tvm_op_extent)
} tvm_opcode;

/* What an instruction does to control and to the lives of variables, else what it is for. */
typedef enum tvm_op_class {
    TVM_CLASS_LOOP,     /* opens a body that runs any number of times */
    TVM_CLASS_BRANCH,   /* opens a body that may run */
    TVM_CLASS_SECTION,  /* opens a body for some of the warps: a role */
    TVM_CLASS_ELSE,     /* ends the body of a branch and opens its other one */
    TVM_CLASS_END,      /* closes */
    TVM_CLASS_JUMP,     /* goes to the end or the head of the innermost loop */
    TVM_CLASS_EXIT,     /* the block goes no further */
    TVM_CLASS_ALLOCATE, /* makes a tensor */
    TVM_CLASS_FREE,     /* ends a tensor */
    TVM_CLASS_MOVE,     /* between registers, shared, global and tensor memory */
    TVM_CLASS_COMPUTE,  /* scalars and registers to scalars and registers */
    TVM_CLASS_ORDER,    /* orders what others do */
    TVM_CLASS_REPORT    /* tells the user something */
} tvm_op_class;

/* What the code of an instruction does beside its result, on one target at least. A test compares it with the
 * PTX. */
typedef enum tvm_effect {
    TVM_EFFECT_READ_GLOBAL = 1,
    TVM_EFFECT_WRITE_GLOBAL = 2,
    TVM_EFFECT_READ_SHARED = 4, /* the shared tensors of the program */
    TVM_EFFECT_WRITE_SHARED = 8,
    TVM_EFFECT_SCRATCH = 16, /* writes and reads shared memory of the translator's own */
    TVM_EFFECT_ASYNC = 32,   /* starts asynchronous copies, or groups or waits for them */
    TVM_EFFECT_BARRIER = 64, /* all threads of the block wait for each other */
    TVM_EFFECT_WARP_BARRIER = 128,
    TVM_EFFECT_WAIT = 256,         /* may wait for another block */
    TVM_EFFECT_NEXT_LAUNCH = 512,  /* lets the next launch begin */
    TVM_EFFECT_LAST_LAUNCH = 1024, /* waits for the launch before */
    TVM_EFFECT_OUTPUT = 2048,      /* writes to the user's output */
    TVM_EFFECT_MBARRIER = 4096,    /* makes mbarriers, arrives at them or waits for them */
    TVM_EFFECT_TENSOR = 8192       /* allocates, reads or writes tensor memory */
} tvm_effect;

/* Explained at the head of opcodes.def. */
typedef enum tvm_trait {
    TVM_TRAIT_SYNTAX = 1,
    TVM_TRAIT_BESIDE = 2,
    TVM_TRAIT_PACKED = 4,
    TVM_TRAIT_MEMO = 8,
    TVM_TRAIT_VALUE = 32,
    TVM_TRAIT_COUNTER = 64,
    TVM_TRAIT_LOWBIT = 128,
    TVM_TRAIT_COMMUTES = 256,
    TVM_TRAIT_OFFSET = 512,
    TVM_TRAIT_FACTOR = 1024,
    /* the types of element that an element-wise row takes */
    TVM_TRAIT_SIGNED = 2048,   /* i8 i16 i32 i64 */
    TVM_TRAIT_UNSIGNED = 4096, /* u8 u16 u32 u64 */
    TVM_TRAIT_FLOAT = 8192,    /* f16 bf16 f32 */
    TVM_TRAIT_DOUBLE = 16384,  /* f64 */
    TVM_TRAIT_BOOL = 32768,    /* bool */
    TVM_TRAIT_PENDING = 65536, /* of an ORDER: its operand pending says how many products may be unfinished */
    /* types of element that came with version 5 of the language, where the row is older */
    TVM_TRAIT_FLOAT_5 = 131072,
    TVM_TRAIT_DOUBLE_5 = 262144
} tvm_trait;

typedef enum tvm_slot_kind {
    TVM_SLOT_NONE = 0,
    TVM_SLOT_SCALAR,
    TVM_SLOT_REGISTER,
    TVM_SLOT_SHARED,
    TVM_SLOT_GLOBAL,
    TVM_SLOT_BARRIER, /* mbarriers, in shared memory */
    TVM_SLOT_TENSOR,  /* a tensor in tensor memory: tensor_memory.h */
    TVM_SLOT_KINDS
} tvm_slot_kind;

typedef struct tvm_op_info {
    const char *mnemonic;
    const char *family;
    unsigned since; /* version of the language */
    tvm_op_class class;
    tvm_slot_kind result;
    const char *operands;
    unsigned effects; /* of tvm_effect */
    unsigned traits;  /* of tvm_trait */
    const char *semantics;
} tvm_op_info;

/* The row of an opcode; NULL when there is none: op >= TVM_OP_COUNT. */
const tvm_op_info *tvm_op(unsigned op);
/* Does the row compute on elements one by one? */
static inline bool tvm_op_is_elementwise(const tvm_op_info *info) {
    return info->traits &
           (TVM_TRAIT_SIGNED | TVM_TRAIT_UNSIGNED | TVM_TRAIT_FLOAT | TVM_TRAIT_DOUBLE | TVM_TRAIT_BOOL);
}
/* Does such a row take elements of the type? */
bool tvm_op_takes_element(const tvm_op_info *info, tvm_dtype type);
/* TVM_OP_COUNT when no instruction is so named. */
tvm_opcode tvm_op_by_name(const char *mnemonic, size_t length);

/* One entry of a row's operand list. */
typedef struct tvm_operand_desc {
    const char *name; /* not terminated: name_length bytes */
    size_t name_length;
    char kind; /* x r b s m g a v w c e N A D I C R O M K E Y F; for kinds that are not stored: t T L S G P W
                  B */
    bool indexed;   /* s[], g[], a[], v[], w[], c[], e[]; m[], where it is shared */
    bool stored;    /* false for =t =T =L =S =G =P =W =B */
    bool optional;  /* ? */
    unsigned since; /* version of the language; 0: that of the row */
} tvm_operand_desc;
/* Walks the list: start with *cursor = info->operands; false at the end. */
bool tvm_operand_next(const char **cursor, tvm_operand_desc *desc);

/* Only its size is used: an entry of a list takes four characters at least, its blank or NUL included. */
union tvm_row_extent {
#define TVM_OP(number, id, mnemonic, since, class, family, result, operands, ...)                            \
    char of_##id[sizeof operands / 4 + 1];
#include "opcodes.def"
};

enum {
    /* bounds: no row's list has more entries, no instruction more operands */
    TVM_ROW_OPERANDS = sizeof(union tvm_row_extent),
    TVM_INSN_OPERANDS = TVM_ROW_OPERANDS * (1 + TVM_MAX_RANK)
};
/* The most operands, stored flat, that an instruction of the row has. */
uint32_t tvm_op_operands_max(const tvm_op_info *info);

/* LOW and END of kind I are two EXPR. */
typedef enum tvm_operand_kind {
    TVM_OPERAND_NONE = 0, /* an optional operand that was left out */
    TVM_OPERAND_SLOT,     /* value: slot */
    TVM_OPERAND_EXPR,     /* value: expression */
    TVM_OPERAND_CONST,    /* value: the number; of A and D: the count, followed by that many CONST; of V: the
                             count,    followed by that many EXPR; of F: 1; of C, R and E: below */
    TVM_OPERAND_STRING    /* value: string */
} tvm_operand_kind;

typedef enum tvm_compare { TVM_EQ, TVM_NE, TVM_LT, TVM_LE, TVM_GT, TVM_GE, TVM_COMPARE_COUNT } tvm_compare;
typedef enum tvm_reduction {
    TVM_SUM,
    TVM_REDUCE_MAX,
    TVM_REDUCE_MIN,
    TVM_REDUCE_PROD,
    TVM_REDUCE_AND,
    TVM_REDUCE_OR,
    TVM_REDUCE_XOR,
    TVM_REDUCE_ANY,
    TVM_REDUCE_ALL,
    TVM_REDUCE_ARGMAX,
    TVM_REDUCE_ARGMIN,
    TVM_REDUCTION_COUNT
} tvm_reduction;
/* Types of elements that lie 16 by 16, each time at the beginning of 16 bytes. */
typedef enum tvm_spread {
    TVM_SPREAD_F4_E2M1,
    TVM_SPREAD_F6_E2M3,
    TVM_SPREAD_F6_E3M2,
    TVM_SPREAD_COUNT
} tvm_spread;
typedef enum tvm_evict { TVM_EVICT_NORMAL, TVM_EVICT_FIRST, TVM_EVICT_LAST, TVM_EVICT_COUNT } tvm_evict;
typedef enum tvm_atomic {
    TVM_ATOMIC_ADD,
    TVM_ATOMIC_SUB,
    TVM_ATOMIC_MIN,
    TVM_ATOMIC_MAX,
    TVM_ATOMIC_EXCH,
    TVM_ATOMIC_CAS,
    TVM_ATOMIC_AND,
    TVM_ATOMIC_OR,
    TVM_ATOMIC_XOR,
    TVM_ATOMIC_COUNT
} tvm_atomic;
typedef enum tvm_order {
    TVM_ORDER_RELAXED,
    TVM_ORDER_ACQUIRE,
    TVM_ORDER_RELEASE,
    TVM_ORDER_ACQ_REL,
    TVM_ORDER_COUNT
} tvm_order;
typedef enum tvm_scope {
    TVM_SCOPE_CTA,
    TVM_SCOPE_CLUSTER,
    TVM_SCOPE_GPU,
    TVM_SCOPE_SYS,
    TVM_SCOPE_COUNT
} tvm_scope;
/* An atomic-fetch of a layout whose threads hold elements together gives what they were to all of them
 * through shared memory, up to so many bytes. */
enum { TVM_FETCH_SHARED_BYTES = 4096 };
extern const char *const tvm_atomic_names[TVM_ATOMIC_COUNT];
extern const char *const tvm_order_names[TVM_ORDER_COUNT];
extern const char *const tvm_scope_names[TVM_SCOPE_COUNT];
typedef enum tvm_axes { TVM_AXIS_X, TVM_AXIS_Y, TVM_AXIS_Z, TVM_AXES_ALL, TVM_AXES_COUNT } tvm_axes;
extern const char *const tvm_axes_names[TVM_AXES_COUNT];
extern const char *const tvm_compare_names[TVM_COMPARE_COUNT];
extern const char *const tvm_reduction_names[TVM_REDUCTION_COUNT];
extern const char *const tvm_evict_names[TVM_EVICT_COUNT];
extern const char *const tvm_spread_names[TVM_SPREAD_COUNT];

/* Is the operand a list of constants: their count, then each? */
static inline bool tvm_is_list(char kind) {
    return kind == 'A' || kind == 'D';
}

/* The words of an operand kind that is one of several. */
typedef struct tvm_operand_words {
    char kind;
    unsigned count;
    const char *what; /* "a comparison" */
    const char *const *names;
    const uint8_t *since; /* of each word, the version of the language; NULL: all came with the first */
} tvm_operand_words;
/* NULL for other kinds. */
const tvm_operand_words *tvm_words_of(char kind);
/* Those of the first operand of an instruction; NULL: that is no word. */
const tvm_operand_words *tvm_op_first_words(unsigned op);

typedef struct tvm_operand {
    uint32_t kind; /* tvm_operand_kind */
    uint32_t value;
} tvm_operand;

/* Operands are stored flat: operands[first .. first+count) of the kernel, in the row's order; an indexed
 * tensor is its SLOT followed by one EXPR per dimension (of kind v: or a SLOT, a register tensor). */
typedef struct tvm_insn {
    uint16_t op;
    uint32_t result; /* slot or TVM_NONE */
    uint32_t first;
    uint32_t count;
    uint32_t
        match; /* FOR WHILE ROLE: its END; IF: its ELSE or END; ELSE: END; END: the opener (IF, also past an
                  ELSE); BREAK CONTINUE: the loop; others TVM_NONE. Derived, not stored in the container. */
    uint32_t file; /* string, or TVM_NONE */
    uint32_t line; /* 0 when unknown */
} tvm_insn;

/* An opcode that does not exist, before the verifier says so, does nothing to control. */
static inline tvm_op_class tvm_insn_class(const tvm_insn *insn) {
    const tvm_op_info *info = tvm_op(insn->op);
    return info ? info->class : TVM_CLASS_COMPUTE;
}

/* Does the class open a body that an END closes? */
static inline bool tvm_class_opens(tvm_op_class class) {
    return class <= TVM_CLASS_SECTION;
}

/* Has the instruction's row one of these traits? */
static inline bool tvm_insn_has(const tvm_insn *insn, unsigned traits) {
    const tvm_op_info *info = tvm_op(insn->op);
    return info && info->traits & traits;
}

/* ---- scalar expressions: a pool of nodes, each after its operands; equal nodes are shared ---- */

/* Only its size is used: one more than the highest number. */
union tvm_expr_extent {
#define TVM_EXPR(number, id, ...) char up_to_##id[number + 1];
#include "expr.def"
#undef TVM_EXPR
};

typedef enum tvm_expr_op {
#define TVM_EXPR(number, id, ...) TVM_EXPR_##id = number,
#include "expr.def"
#undef TVM_EXPR
    TVM_EXPR_COUNT = sizeof(union tvm_expr_extent)
} tvm_expr_op;

typedef struct tvm_expr {
    uint8_t op; /* tvm_expr_op */
    tvm_dtype type;
    uint16_t size; /* nodes when written out as a tree; set by tvm_ir_kernel_expr and tvm_verify */
    union {        /* operands: earlier expressions; or what expr.def says; unused ones 0 */
        struct {
            uint32_t a, b, c;
        };
        uint32_t operands[3];
    };
    union {
        int64_t i;
        double f;
    } value; /* of INTEGER and FLOAT, else i = 0 */
} tvm_expr;

typedef enum tvm_expr_takes {
    TVM_TAKES_NOTHING,
    TVM_TAKES_ANY,
    TVM_TAKES_NUMBER,
    TVM_TAKES_INTEGER,
    TVM_TAKES_BOOL
} tvm_expr_takes;

enum { TVM_EXPR_CALL = 14 }; /* the precedence of what is written as a call */

/* A row of expr.def. */
typedef struct tvm_expr_info {
    const char *text;
    unsigned since; /* version of the language */
    unsigned arity;
    unsigned precedence;
    tvm_expr_takes takes;
    unsigned tensors;     /* version from which on operands may be register tensors; 0: they may not */
    uint16_t instruction; /* that it means there */
    uint8_t word;         /* its first operand, where that is a word */
} tvm_expr_info;
const tvm_expr_info *tvm_expr_op_info(unsigned op);
static inline unsigned tvm_expr_arity(const tvm_expr *node) {
    return tvm_expr_op_info(node->op)->arity;
}
/* LT LE GT GE EQ NE, which stand together in expr.def. */
static inline bool tvm_expr_is_comparison(unsigned op) {
    return op >= TVM_EXPR_LT && op <= TVM_EXPR_NE;
}
/* For a comparison: of `b op a`, which holds where `a op b` does; and of what holds where it does not, NaN
 * aside. */
static inline tvm_expr_op tvm_expr_mirrored(unsigned op) {
    static const uint8_t mirrored[] = {TVM_EXPR_GT, TVM_EXPR_GE, TVM_EXPR_LT,
                                       TVM_EXPR_LE, TVM_EXPR_EQ, TVM_EXPR_NE};
    return (tvm_expr_op)mirrored[op - TVM_EXPR_LT];
}
static inline tvm_expr_op tvm_expr_opposite(unsigned op) {
    static const uint8_t opposite[] = {TVM_EXPR_GE, TVM_EXPR_GT, TVM_EXPR_LE,
                                       TVM_EXPR_LT, TVM_EXPR_NE, TVM_EXPR_EQ};
    return (tvm_expr_op)opposite[op - TVM_EXPR_LT];
}
/* May its operands, the condition of ?: aside, have this type? */
bool tvm_expr_takes_type(unsigned op, tvm_dtype type);

/* ---- slots: the variables of a kernel; the first param_count are its parameters ---- */

/* How the elements of a global tensor lie in memory. */
typedef enum tvm_global_form {
    TVM_FORM_ROW_MAJOR, /* one behind the other */
    TVM_FORM_STRIDED,   /* by the strides of the slot */
    TVM_FORM_PART,      /* of a view: by those of the tensor that it is a part of (view.h) */
    TVM_FORMS
} tvm_global_form;

typedef struct tvm_slot {
    uint32_t name;  /* string; unique in the kernel */
    uint8_t kind;   /* tvm_slot_kind */
    uint8_t rank;   /* of GLOBAL; of others see the layout */
    uint8_t form;   /* tvm_global_form, of GLOBAL; else 0 */
    bool at_launch; /* of a view: the launch checks that it lies inside. Derived, as `view` */
    tvm_dtype dtype;
    uint8_t packing; /* tvm_packing, of REGISTER; else 0 */
    uint32_t layout; /* REGISTER: program->layouts; SHARED, BARRIER, TENSOR: program->shared_layouts; else
                        TVM_NONE */
    /* GLOBAL: launch-time expressions, of what is no parameter also of the grid */
    uint32_t shape[TVM_MAX_RANK];
    uint32_t stride[TVM_MAX_RANK]; /* of form STRIDED: the same, in elements */
    uint32_t view; /* GLOBAL: one more than the view-global that makes it; 0: none. Derived, not stored in the
                      container: tvm_views_find */
} tvm_slot;

/* Finds equal entries of a pool, so that they are shared; private to program.c. */
typedef struct tvm_index {
    uint32_t *buckets; /* entry + 1, or 0 */
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t count;    /* entries [0, count) of the pool are in */
} tvm_index;

typedef struct tvm_ir_kernel {
    uint32_t name;       /* string; unique in the program; an identifier */
    uint32_t warps;      /* 1..32; threads = 32 * warps */
    uint32_t resident;   /* 1..32: blocks that a multiprocessor is to hold at once, which bounds registers */
    uint32_t cluster[3]; /* 1..8: blocks of a cluster along x, y, z; the grid's extents are multiples */
    uint32_t grid[3];    /* launch-time expressions; x, y, z; TVM_NONE is 1 */
    uint32_t param_count;
    tvm_slot *slots;
    uint32_t slot_count, slot_capacity;
    uint32_t *assumes; /* bool launch-time expressions */
    uint32_t assume_count, assume_capacity;
    tvm_expr *exprs;
    uint32_t expr_count, expr_capacity;
    tvm_index expr_index;
    tvm_operand *operands;
    uint32_t operand_count, operand_capacity;
    tvm_insn *insns;
    uint32_t insn_count, insn_capacity;
    uint32_t *certificate; /* of isa/check, which alone knows what it says; NULL: none */
    uint32_t certificate_count;
} tvm_ir_kernel;

/* A range of a block's warps: those that do an instruction together. A register tensor is spread over the
 * threads of a team, whose number 0 is the first of its first warp; they wait for each other at a barrier. */
typedef struct tvm_team {
    uint32_t first, warps;
} tvm_team;
static inline tvm_team tvm_block_team(const tvm_ir_kernel *kernel) {
    return (tvm_team){0, kernel->warps};
}
static inline uint32_t tvm_team_threads(tvm_team team) {
    return 32 * team.warps;
}

/* What a role says: its warps [first, end) are teams of `by` warps each, which run the same code, each at its
 * own pace. */
typedef struct tvm_role {
    uint32_t first, end, by;
    uint32_t registers; /* of a thread; 0: it says nothing of them */
} tvm_role;
/* Of an instruction of class SECTION; what is wrong there is taken as the whole block. */
tvm_role tvm_role_of(const tvm_ir_kernel *kernel, const tvm_insn *insn);
uint32_t tvm_role_teams(const tvm_role *role);
tvm_team tvm_role_team(const tvm_role *role, uint32_t index);

/* Walks a kernel from its first instruction: the team that does each; of several alike, the first. */
typedef struct tvm_team_walk {
    tvm_team team;
    unsigned depth; /* of control in a role; 0: outside of roles */
} tvm_team_walk;
tvm_team tvm_team_next(tvm_team_walk *walk, const tvm_ir_kernel *kernel, const tvm_insn *insn);

/* A line of an entry's table. */
typedef struct tvm_ir_case {
    uint32_t condition; /* bool launch-time expression of the head; TVM_NONE: always */
    uint32_t kernel;    /* index in the program */
    uint32_t cost; /* i64 launch-time expression of the head; TVM_NONE: the case is a choice of its own */
} tvm_ir_case;

/* A name under which several kernels of one signature, its variants, are launched. Cases with a cost that
 * follow one another are one choice, a case without is one of its own. The kernel is that of the first choice
 * that has a case whose condition holds: of such cases the one that costs least, the first of equals. */
typedef struct tvm_ir_entry {
    tvm_ir_kernel head; /* a kernel without code: name (unique among kernels and entries), the parameters of
                           the first variant with ranks but without shapes, and the conditions' expressions */
    tvm_ir_case *cases;
    uint32_t case_count, case_capacity;
    /* In programs of language versions before TVM_LANGUAGE_OF_SHAPES. Derived, not stored in the container.
     */
    bool shapes_may_differ;
} tvm_ir_entry;

/* Code made of the program ahead of time. Who reads it decides whether to trust and use it: none of it has
 * been verified. */
typedef struct tvm_ir_image {
    uint32_t codegen;                    /* version of the code generator that made it */
    uint64_t hash[2];                    /* tvm_vbc_hash of the program that it was made of */
    bool ptx;                            /* PTX text, else a cubin */
    char target[TVM_IMAGE_TARGET_MAX];   /* "sm_90a" */
    char made_by[TVM_IMAGE_MADE_BY_MAX]; /* "nvJitLink 13.0"; "" of PTX */
    uint32_t *facts;                     /* the code generator's: what launches of the code have to know */
    uint32_t fact_count;
    uint8_t *code; /* 16-byte aligned, a NUL after it */
    size_t code_size;
} tvm_ir_image;

typedef struct tvm_ir_program {
    char **strings; /* each NUL-terminated UTF-8, no control characters */
    uint32_t string_count, string_capacity;
    tvm_layout *layouts;
    uint32_t layout_count, layout_capacity;
    tvm_shared_layout *shared_layouts;
    uint32_t shared_layout_count, shared_layout_capacity;
    tvm_ir_kernel *kernels;
    uint32_t kernel_count, kernel_capacity;
    tvm_ir_entry *entries;
    uint32_t entry_count, entry_capacity;
    tvm_index string_index, layout_index, shared_layout_index;
    tvm_ir_image *images;
    uint32_t image_count, image_capacity;
} tvm_ir_program;

/* ---- building ----
 * Each returns the index of the (possibly shared) entry, or TVM_NONE when memory or a limit above is
 * exhausted. */
tvm_ir_program *tvm_ir_program_new(void);
void tvm_ir_program_free(tvm_ir_program *program); /* NULL is fine */
/* A copy of the kernels and of what they refer to, with the same indices: without entries and images. NULL
 * when out of memory. */
tvm_ir_program *tvm_ir_program_clone_kernels(const tvm_ir_program *program);
/* The same of one kernel, which is the copy's kernel 0. */
tvm_ir_program *tvm_ir_program_clone_kernel(const tvm_ir_program *program, uint32_t kernel);
uint32_t tvm_ir_program_string(tvm_ir_program *program, const char *text, size_t length);
uint32_t tvm_ir_program_layout(tvm_ir_program *program, const tvm_layout *layout);
uint32_t tvm_ir_program_shared_layout(tvm_ir_program *program, const tvm_shared_layout *layout);
uint32_t tvm_ir_program_add_kernel(tvm_ir_program *program, uint32_t name);
/* Copies facts and code. */
uint32_t tvm_ir_program_add_image(tvm_ir_program *program, const tvm_ir_image *image);
void tvm_ir_program_drop_images(tvm_ir_program *program);
uint32_t tvm_ir_kernel_add_slot(tvm_ir_kernel *kernel, const tvm_slot *slot);
uint32_t tvm_ir_kernel_add_assume(tvm_ir_kernel *kernel, uint32_t expr);
/* Shares equal nodes; folds nothing. */
uint32_t tvm_ir_kernel_expr(tvm_ir_kernel *kernel, const tvm_expr *expr);
/* Appends an instruction with its operands copied; match is set by tvm_ir_kernel_match. */
uint32_t tvm_ir_kernel_add_insn(tvm_ir_kernel *kernel, const tvm_insn *insn, const tvm_operand *operands,
                                uint32_t count);
uint32_t tvm_ir_program_add_entry(tvm_ir_program *program, uint32_t name);
/* Appends a case. A head without parameters takes those of its kernel, where there is one. */
uint32_t tvm_ir_entry_add_case(tvm_ir_program *program, tvm_ir_entry *entry, const tvm_ir_case *made);

/* Building without sharing, for a reader that has indices from elsewhere to keep. */
uint32_t tvm_append_string(tvm_ir_program *program, const char *text, size_t length);
uint32_t tvm_append_layout(tvm_ir_program *program, const tvm_layout *layout);
uint32_t tvm_append_shared_layout(tvm_ir_program *program, const tvm_shared_layout *layout);
uint32_t tvm_append_expr(tvm_ir_kernel *kernel, const tvm_expr *expr);
/* Nodes of `node` written out as a tree, from the sizes of its operands, which must be below `count`;
 * saturates at UINT16_MAX. 0 when an operand is not below `count`. */
uint16_t tvm_expr_tree_size(const tvm_expr *exprs, uint32_t count, const tvm_expr *node);

/* ---- reading ---- */
const char *tvm_string(const tvm_ir_program *program, uint32_t string); /* "" for TVM_NONE */
const tvm_ir_kernel *tvm_find_kernel(const tvm_ir_program *program, const char *name);
const tvm_ir_entry *tvm_find_entry(const tvm_ir_program *program, const char *name);
/* Is the text an identifier, a letter or `_`, then letters, digits and `_`? (A name has at most
 * TVM_MAX_NAME.) */
bool tvm_is_identifier(const char *text, size_t length);
static inline const tvm_operand *tvm_operands(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    return kernel->operands ? kernel->operands + insn->first : NULL; /* no operand: no array */
}
/* How many operands belong to the row's entry that begins at `operand`. */
uint32_t tvm_entry_operands(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                            const tvm_operand_desc *desc, const tvm_operand *operand);
/* How many operands, of kind NONE, the row has behind those that are given: an instruction that is written
 * leaves out what it may at its end, and so do rows that have got more operands since. */
uint32_t tvm_operands_left_out(const tvm_ir_program *program, const tvm_ir_kernel *kernel, unsigned op,
                               const tvm_operand *operands, uint32_t count);
/* The two operands of kind I, low and end, of which the instruction's result is at least the first and less
 * than the second; NULL: it has none. */
const tvm_operand *tvm_insn_interval(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                     const tvm_insn *insn);
/* Has a slot of the kind a layout of the program's shared_layouts? */
static inline bool tvm_slot_has_places(unsigned kind) {
    return kind == TVM_SLOT_SHARED || kind == TVM_SLOT_BARRIER || kind == TVM_SLOT_TENSOR;
}
/* Rank and constant extent of REGISTER, SHARED, BARRIER and TENSOR slots. */
unsigned tvm_slot_rank(const tvm_ir_program *program, const tvm_slot *slot);
const uint32_t *tvm_slot_shape(const tvm_ir_program *program, const tvm_slot *slot);

/* Blocks of a cluster; 1: the kernel has none. */
static inline uint32_t tvm_cluster_blocks(const tvm_ir_kernel *kernel) {
    return kernel->cluster[0] * kernel->cluster[1] * kernel->cluster[2];
}

/* Has it an instruction in which a block may wait for another one that is not of its cluster? */
bool tvm_kernel_waits(const tvm_ir_kernel *kernel);
/* Has it a cancel-block? */
bool tvm_cancels_blocks(const tvm_ir_kernel *kernel);

/* Has the kernel tensors in tensor memory? */
bool tvm_has_tensor_memory(const tvm_ir_kernel *kernel);

/* May the kernel be launched on this target, an architecture (0: the interpreter) with these traits: has it
 * clusters and tensor memory where the kernel has any, and does no assume that reads the target alone refuse
 * it? */
bool tvm_kernel_is_for(const tvm_ir_kernel *kernel, uint32_t target, const tvm_target_traits *traits);

/* A global tensor of the launch: what alloc-global makes. */
typedef struct tvm_launch_tensor {
    uint32_t slot;
    uint32_t insn;
    bool clean;
} tvm_launch_tensor;
/* Those of a kernel, in the order of its instructions; returns how many. Walks the whole kernel. */
uint32_t tvm_launch_tensors(const tvm_ir_kernel *kernel, tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS]);

/* Values of run-time scalars: integers and bool sign- or zero-extended in i, floats in f. */
typedef union tvm_scalar {
    int64_t i;
    uint64_t u;
    double f;
} tvm_scalar;

/* Values of a kernel's first expressions, by index, where many are evaluated that have parts in common. */
enum { TVM_EVAL_KEPT = 2048 };
typedef struct tvm_eval_kept {
    bool known[TVM_EVAL_KEPT];
    tvm_scalar values[TVM_EVAL_KEPT];
} tvm_eval_kept;

/* Where scalar expressions are evaluated. slots[s] is the value of scalar slot s. */
typedef struct tvm_eval_env {
    const tvm_scalar *slots;
    int32_t block[3];
    int32_t grid[3];
    int32_t multiprocessors;
    int32_t target;                  /* 80, 89, 90, ...; 0: the interpreter */
    const tvm_target_traits *traits; /* of the target; NULL: it has none */
    tvm_eval_kept *kept;             /* NULL, or what is known here, to which evaluation adds */
} tvm_eval_env;

/* The definition of scalar expressions. TVM_INVALID and *why on a division by zero; integers wrap in their
 * type. */
tvm_status tvm_expr_eval(const tvm_ir_kernel *kernel, uint32_t expr, const tvm_eval_env *env,
                         tvm_scalar *value, tvm_why *why);
/* One operator on values already known (used by the assembler to fold constants with the same meaning). */
tvm_status tvm_expr_apply(const tvm_expr *node, tvm_dtype operand_type, const tvm_scalar operands[3],
                          tvm_scalar *value, tvm_why *why);
/* A scalar converted between scalar types, as `cast` defines it. */
tvm_scalar tvm_scalar_cast(tvm_dtype to, tvm_dtype from, tvm_scalar value);
/* Is the scalar slot read where the expression is evaluated? */
bool tvm_expr_reads(const tvm_ir_kernel *kernel, uint32_t expr, uint32_t slot);
/* What the leaves of an expression are, constants left out. */
enum {
    TVM_LEAF_PARAM = 1,
    TVM_LEAF_VARIABLE = 2,
    TVM_LEAF_BLOCK = 4,
    TVM_LEAF_GRID = 8,
    TVM_LEAF_MULTIPROCESSORS = 16,
    TVM_LEAF_TARGET = 32,
    /* what a launch knows */
    TVM_LEAF_LAUNCH = TVM_LEAF_PARAM | TVM_LEAF_MULTIPROCESSORS | TVM_LEAF_TARGET
};
unsigned tvm_expr_leaves(const tvm_ir_kernel *kernel, uint32_t expr);
/* leaves[e] of every expression of the kernel, whose operands come first. */
void tvm_expr_leaves_all(const tvm_ir_kernel *kernel, uint8_t *leaves);
/* Can a launch evaluate it before the grid is known: scalar parameters, constants, multiprocessors
 * and target alone? (shape of a parameter, grid, assume) */
bool tvm_expr_is_launch_time(const tvm_ir_kernel *kernel, uint32_t expr);
/* Does a launch give the leaf: the number of multiprocessors, the target, a capability or a limit of it? */
static inline bool tvm_expr_is_of_device(unsigned op) {
    return op == TVM_EXPR_MULTIPROCESSORS || op == TVM_EXPR_TARGET || op == TVM_EXPR_HAS ||
           op == TVM_EXPR_LIMIT;
}
/* The value of such a leaf. */
int32_t tvm_expr_of_device(const tvm_expr *node, const tvm_eval_env *env);

#endif
