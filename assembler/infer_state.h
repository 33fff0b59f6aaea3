/* Private to the files infer*.c: a kernel while its open layouts are decided. Layouts are numbers of the
 * program's pool, so that equal ones are equal numbers. */
#ifndef TVM_ASSEMBLER_INFER_STATE_H
#define TVM_ASSEMBLER_INFER_STATE_H

#include "mma.h"
#include "state.h"
#include "text.h"
#include "typing.h"

enum {
    TVM_INFER_OPERANDS = 8, /* register tensors that an instruction reads, at most */
    TVM_INFER_ANCHORS = 8,  /* layouts that a tensor has for its own sake, at most */
    TVM_INFER_NEVER = 1 << 30,
    TVM_INFER_MEMOS = 1 << 16 /* that are kept of a kernel, which bounds the memory */
};

/* Why a tensor has its layout. */
typedef enum tvm_infer_why {
    TVM_WHY_WRITTEN,
    TVM_WHY_ACCESS,    /* as instruction `insn` loads or stores it best */
    TVM_WHY_REDUCTION, /* as `insn` reduces it best */
    TVM_WHY_PRODUCT,   /* the sums of mma `insn` */
    TVM_WHY_RULE,      /* `insn` makes it of its operands */
    TVM_WHY_USE,       /* `insn` needs it so */
    TVM_WHY_ANY        /* nothing asks for another one */
} tvm_infer_why;

typedef struct tvm_infer_reason {
    tvm_infer_why why;
    uint32_t insn;
} tvm_infer_reason;

/* What was found of an instruction with these layouts, and was asked again many times: a list for each
 * instruction. */
typedef struct tvm_infer_memo {
    struct tvm_infer_memo *next;
    uint32_t layouts[TVM_INFER_OPERANDS]; /* of the operands */
    uint32_t result;                      /* the result's, or TVM_NONE */
    uint32_t made;                        /* what was found */
    bool numbered, good;
} tvm_infer_memo;
struct tvm_infer_plan_memo;

/* The instructions between which a tensor is alive. */
typedef struct tvm_infer_life {
    uint32_t first, last;
    bool is_alias; /* of another tensor's registers */
} tvm_infer_life;

typedef struct tvm_infer_state {
    tvm_asm *as;
    tvm_ir_program *program;
    tvm_ir_kernel *kernel;
    tvm_ir_kernel view;  /* the kernel with `work` for its slots */
    tvm_slot *work;      /* the kernel's slots, and TVM_INFER_OPERANDS spare ones */
    uint32_t slot_count; /* of the kernel, before relayouts */
    uint32_t *layout;    /* of each register slot; TVM_NONE: not decided */
    bool *open;          /* to be decided */
    tvm_infer_reason *reasons;
    tvm_team *teams;   /* of each instruction */
    uint32_t *weights; /* of each instruction: how often it runs, as far as is known */
    uint32_t *uses;    /* instructions that have slot s: uses[first_use[s] .. first_use[s + 1]) */
    uint32_t *first_use;
    uint32_t
        *definitions; /* of each slot, also of scalars: the one instruction that assigns it, or TVM_NONE */
    bool *remade;     /* the definition of each slot can be done once more, for another layout */
    tvm_infer_life *lives;  /* of each slot */
    uint32_t *loop;         /* of each instruction: where the innermost loop around it begins, or TVM_NONE */
    tvm_insn *source;       /* the kernel's instructions before relayouts, which `insn` of reasons means */
    uint32_t *queue;        /* slots to spread from */
    const bool *within;     /* NULL, or of each instruction: is a layout spread through it? */
    uint64_t attempts;      /* how often a rule was asked, which bounds the work */
    tvm_infer_memo **asked; /* of each instruction: attempts */
    struct tvm_infer_plan_memo **plans; /* and plans */
    uint32_t memos;                     /* kept in all */
    bool failed;                        /* out of memory */
} tvm_infer_state;

/* The register tensors among an instruction's operands, in order: at[k] is an operand's place. */
typedef struct tvm_infer_operands {
    uint32_t at[TVM_INFER_OPERANDS];
    uint32_t slots[TVM_INFER_OPERANDS];
    unsigned count;
} tvm_infer_operands;

/* Zeroed, in scratch memory: `count` items. NULL, and in->failed, when memory is out. */
void *tvm_infer_array(tvm_infer_state *in, size_t count, size_t size);
void tvm_infer_registers(const tvm_infer_state *in, uint32_t insn, tvm_infer_operands *out);
/* The register tensor that an instruction moves to or from memory: its result, else the first operand that is
 * a register tensor and nothing else; TVM_NONE: none. *ordinal: which of the registers. */
uint32_t tvm_infer_moved(const tvm_infer_state *in, uint32_t insn, unsigned *ordinal);
/* The register slot that the instruction assigns, or TVM_NONE. */
uint32_t tvm_infer_result(const tvm_infer_state *in, uint32_t insn);
static inline const tvm_op_info *tvm_infer_row(const tvm_infer_state *in, uint32_t insn) {
    return tvm_op(in->kernel->insns[insn].op);
}
/* A copy, as of tvm_infer_shape_of: the layouts of the program move when one is added. */
tvm_layout tvm_infer_layout(const tvm_infer_state *in, uint32_t layout);
/* The number of a layout; TVM_NONE when memory is out, or a thread cannot hold it. */
uint32_t tvm_infer_number(tvm_infer_state *in, const tvm_layout *layout);
/* The shape of a register slot. */
tvm_layout tvm_infer_shape_of(const tvm_infer_state *in, uint32_t slot);
tvm_team tvm_infer_team(const tvm_infer_state *in, uint32_t insn);

/* Does the rule take operands of these layouts? declared: the result's layout, or TVM_NONE, where the rule
 * says it; *result (may be NULL) is what it is. */
bool tvm_infer_attempt(tvm_infer_state *in, uint32_t insn, const uint32_t *layouts, uint32_t declared,
                       uint32_t *result, tvm_why *why);

/* ---- infer_spread.c ---- */
/* Of an instruction without a result: operand k has this layout, the others what they have as parts of its
 * shape. */
bool tvm_infer_beside(tvm_infer_state *in, uint32_t insn, unsigned k, uint32_t layout, uint32_t *layouts);
/* The operands' layouts that would give the result its layout: those that are not TVM_NONE in `layouts` stay,
 * the others are filled in. False when none is found. */
bool tvm_infer_backwards(tvm_infer_state *in, uint32_t insn, uint32_t result, uint32_t *layouts);
/* Gives the slot the layout, and to others what follows from it. */
void tvm_infer_spread(tvm_infer_state *in, uint32_t slot, uint32_t layout, tvm_infer_reason reason);

/* ---- infer_anchor.c ---- */
typedef struct tvm_infer_anchor {
    uint32_t slot, layout;
    tvm_infer_reason reason;
} tvm_infer_anchor;
/* Layouts that the slot has for the instruction's sake, the best first; returns how many. */
unsigned tvm_infer_anchors(tvm_infer_state *in, uint32_t insn, uint32_t slot,
                           tvm_infer_anchor anchors[TVM_INFER_ANCHORS]);
/* Is the slot the sums of an mma? */
bool tvm_infer_is_product(const tvm_infer_state *in, uint32_t insn, uint32_t slot);

/* ---- infer_align.c ---- */
/* Bytes, 16 at most, that a thread may move at once where the instruction moves elements of `bits` of a
 * global tensor: its lines, and the place of the tile, are known to be multiples of that. 16 of other
 * instructions. */
unsigned tvm_infer_width(const tvm_infer_state *in, uint32_t insn, unsigned bits);
/* The dimension of the tile, of `rank` dimensions, that the instruction moves, along which neighbours are
 * neighbours in memory; the last one where there is none, and of shared tensors. */
unsigned tvm_infer_line(const tvm_infer_state *in, uint32_t insn, unsigned rank);
/* A layout with that dimension as the last one; and such a layout with it where it was. */
bool tvm_infer_lines_last(const tvm_layout *layout, unsigned line, tvm_layout *out);
bool tvm_infer_lines_back(const tvm_layout *layout, unsigned line, tvm_layout *out);

/* ---- infer_cost.c: about issue slots of a warp ---- */
/* The address space of which the instruction moves the tensor. */
typedef enum tvm_infer_space { TVM_SPACE_NONE, TVM_SPACE_GLOBAL, TVM_SPACE_SHARED } tvm_infer_space;
tvm_infer_space tvm_infer_space_of(const tvm_infer_state *in, uint32_t insn);
/* Bytes of an access of the widest kind that the layout's runs allow, `widest` at most. */
unsigned tvm_infer_access_bytes(const tvm_layout *layout, unsigned bits, unsigned widest);
/* An access of a tile in this layout, of at most `widest` bytes a thread at once. */
uint64_t tvm_infer_access_cost(tvm_infer_space space, const tvm_layout *layout, unsigned bits,
                               unsigned widest);
uint64_t tvm_infer_relayout_cost(const tvm_layout *from, const tvm_layout *to, unsigned bits);
/* What the instruction does on the tensors themselves, accesses aside. */
uint64_t tvm_infer_work_cost(tvm_infer_state *in, uint32_t insn, const uint32_t *layouts, uint32_t result);

/* ---- infer_product.c ---- */
/* An mma whose sums have a layout. */
typedef struct tvm_infer_product {
    const char *why;    /* NULL: wgmma does it, where there is one; else why not, and what to write */
    uint64_t tensor;    /* cycles of a tensor core for a warp */
    uint64_t fragments; /* issue slots for what is loaded from shared memory beside that */
    uint32_t registers; /* words of a that are loaded at once for a wgmma */
    uint32_t a;         /* slot */
} tvm_infer_product;
/* False where the sums are none of a product. */
bool tvm_infer_product_of(const tvm_infer_state *in, uint32_t insn, uint32_t result, tvm_infer_product *out);

/* ---- infer_pressure.c ---- */
/* Fills in->lives and in->loop. */
void tvm_infer_find_lives(tvm_infer_state *in);
/* Registers of a thread of the kernel. */
uint32_t tvm_infer_registers_of_thread(const tvm_infer_state *in);
/* Registers of a thread that the tensor takes, which is decided. */
uint32_t tvm_infer_words(const tvm_infer_state *in, uint32_t slot);
/* Registers of a thread that hold tensors behind the instruction, of those that are decided; and one of them.
 */
uint32_t tvm_infer_alive(const tvm_infer_state *in, uint32_t insn);
uint32_t tvm_infer_alive_words(const tvm_infer_state *in, uint32_t slot, uint32_t insn);
/* What the words that do not fit cost at the kernel's products. */
uint64_t tvm_infer_spill_cost(tvm_infer_state *in);

/* ---- infer_plan.c ---- */
/* How an instruction is done when its slots have the layouts they have: the layouts that it itself sees, to
 * which operands are brought before it and from which the result is brought after it. */
typedef struct tvm_infer_plan {
    uint64_t cost;      /* TVM_INFER_NEVER or more: it cannot be done */
    uint64_t tensor;    /* of that, time of the tensor cores */
    uint64_t registers; /* of a thread, that an access moves */
    uint32_t layouts[TVM_INFER_OPERANDS];
    uint32_t result;
} tvm_infer_plan;
/* Slots that are not decided make the plan free. */
void tvm_infer_make_plan(tvm_infer_state *in, uint32_t insn, tvm_infer_plan *plan);

/* ---- infer_region.c ---- */
/* Tries where relayouts are needed whether they are cheaper elsewhere. */
void tvm_infer_improve_regions(tvm_infer_state *in);

/* ---- infer_rewrite.c ---- */
/* Puts what the instructions' plans ask for into the kernel. */
bool tvm_infer_rewrite(tvm_infer_state *in, const tvm_infer_plan *plans);

/* ---- infer_shared.c ---- */
void tvm_infer_shared_layouts(tvm_infer_state *in);

/* ---- infer_warn.c ---- */
/* Warns of tiles that the threads cannot share, and of more registers than a thread has. */
void tvm_infer_warn(tvm_infer_state *in);

/* ---- infer_report.c ---- */
/* Adds the kernel to the listing of tvm-as --layouts. Slots from first_made on are those of relayouts. */
void tvm_infer_report(tvm_infer_state *in, uint32_t first_made);
/* Of each product whether it is one for wgmma; if not, why, and what to write. Before relayouts are put in.
 */
void tvm_infer_report_products(tvm_infer_state *in, tvm_text *out);

#endif
