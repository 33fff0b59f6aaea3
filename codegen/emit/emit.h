/* The writer of PTX: text and registers of one kernel, and what the emitters share.
 *
 * How a register tensor lives in PTX: every thread's elements, in local order, are one compact bit string of
 * locals * bits bits, held in ceil(locals*bits / 32) virtual .b32 registers (words): four u8, two f16, one
 * f32, half an f64 each; u3 elements lie across word borders. bool is 8 bits, 0 or 1. So view is a change of
 * name, and vector loads fill words directly. A slot's words are fixed registers, assigned by every
 * instruction that has the slot as result (operands are read before the result is written, also when they are
 * the same slot). */
#ifndef TVM_CODEGEN_EMIT_H
#define TVM_CODEGEN_EMIT_H

#include "kernel_state.h"
#include "text.h"
#include "wgmma_waits.h"

/* A virtual register. They are declared at the kernel's top by count. Returned by value so that names need no
 * ownership. */
typedef struct reg {
    char name[12];
} reg;

/* Of a view: its address is a register of the run. Nothing of it: a parameter or tensor of the launch. */
typedef struct tensor_place {
    bool moves;       /* it is known where the view is made, not at kernel entry */
    uint32_t made_at; /* loops begun until then (hoisting.scopes) */
} tensor_place;

/* Where a slot is. */
typedef struct slot_state {
    uint32_t first_word, words; /* REGISTER: %w<first_word + i> */
    char reg[24]; /* SCALAR: its register; GLOBAL: its address register (%rd.., already cvta'd to global);
                     BARRIER: that of the parities of the phases to wait for, a bit an mbarrier */
    tensor_place place; /* GLOBAL */
} slot_state;

/* Values of scalar expressions in registers: see expr_emit.c. */
typedef struct expr_values {
    reg *stable, *local;   /* by expression, for the whole kernel and for the instruction numbered `stamp`;
                              name[0] == 0: not computed */
    uint64_t *local_stamp; /* of local: that instruction */
    uint64_t stamp;
    bool in_prologue; /* body and prologue are exchanged */
} expr_values;

/* Why what the target has was not used where pipelined loops were written out, for the report; NULL: it was,
 * or there was no such loop. */
typedef struct left_alone {
    const char *copies;   /* TMA, for the copies */
    const char *products; /* tcgen05, for the products */
} left_alone;

typedef struct emitter {
    kernel_state *k;
    tvm_team team;      /* whose code is being emitted: of several teams of a role, the first */
    uint32_t teams;     /* 0 or 1: there is one */
    reg team_index;     /* of several: which one a thread is in */
    uint32_t barrier;   /* the number of its barrier, 0 of the block's; of several teams, that of the first */
    shared_need shared; /* of the block's team, or of the role whose code is being emitted */
    unsigned scratch_read;    /* scratch.h: buffers read since the last barrier */
    unsigned scratch_written; /* those that are being written */
    bool has_barriers;        /* the kernel's mbarriers are made before the code that is being emitted */
    bool stores_far;          /* threads store to the shared memory of other blocks of the cluster */
    reg cancel_parity, cancel_over; /* of cancel-block: the phase that is next; there is no block left */
    reg pair_parity; /* of the phase in which the thread's team meets that of the pair's other block next */
    reg tensor_base; /* the address of the kernel's columns of tensor memory; name[0] == 0: not yet */
    tvm_module *module;
    tvm_kernel_code *code; /* this kernel's; its ABI is filled as the code is made */
    left_alone left;
    struct body_frame *body_frame; /* frame.h; NULL: the code is an entry point of its own */
    bool *explained;               /* by instruction: copies of an unrolled loop's body are explained once */
    size_t selection_capacity;
    tvm_text prologue; /* thread-dependent values computed once, at kernel entry */
    tvm_text body;
    tvm_text *globals; /* module scope: strings, external functions */
    bool uses_vprintf;
    unsigned ptx_version; /* 84: 8.4; the least that has what was emitted, where the target's own may not */
    uint32_t next_pred, next_r, next_rd, next_f, next_fd, next_h, next_label, next_word;
    slot_state *slots; /* as those of the kernel's state */
    expr_values values;
    struct hoisting *hoist;
    reg turns_left;           /* turns_emit.h; without a name where nothing is counted */
    const tvm_insn *compared; /* the compare that was emitted last */
    uint32_t compared_pred;   /* %p of its first element; the others' follow */
    wait_set unfinished;      /* wgmma that may be, here */
    uint32_t position;        /* the instruction to emit next; an unrolled loop moves it past its end */
    uint32_t insn_budget;     /* instructions that may still be emitted: bounds unrolling */
} emitter;

/* Appends a line of PTX (indented, newline added) to the body or prologue. */
void tvm_emit(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tvm_emit_prologue(emitter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A fresh virtual register, by class: .pred %p, .b32 %r, .b64 %rd, .f32 %f, .f64 %fd, .b16 %h. */
reg tvm_new_pred(emitter *e);
reg tvm_pred(uint32_t number); /* %p<number> */
reg tvm_new_r(emitter *e);
reg tvm_new_rd(emitter *e);
reg tvm_new_f(emitter *e);
reg tvm_new_fd(emitter *e);
reg tvm_new_h(emitter *e);

/* `op d, a, b;` on words, such as "and.b32"; gives d, a new register. */
static inline reg word_op(emitter *e, const char *op, reg a, uint32_t b) {
    reg d = tvm_new_r(e);
    tvm_emit(e, "%s %s, %s, 0x%x;", op, d.name, a.name, (unsigned)b);
    return d;
}

/* Where both predicates hold; one without a name holds everywhere. */
reg tvm_both(emitter *e, reg a, reg b);

uint32_t tvm_new_label(emitter *e); /* written $L<n> */

/* Word i of a register tensor's slot. */
reg tvm_slot_word(const emitter *e, uint32_t slot, uint32_t i);
/* Puts a zero that ptxas cannot know to be one to each word of the slot, which keeps its value: for uses that
 * ptxas compiles wrong where it knows a word to be constant. */
void tvm_hide_constants(emitter *e, uint32_t slot);
/* The same of one word: a register of kernel entry that holds it. */
reg tvm_hidden_word(emitter *e, uint32_t word);
/* The register to use for `value`, which holds an operand of an f32 min that `expr` is: `value` itself, or a
 * hidden copy where it is the constant 1.0. ptxas 13.0 makes one saturating instruction of min with 1.0 and
 * max with a zero, in either order: it gives 0.0 where the result is -0.0, and where it is 1.0 as the min's
 * other operand is NaN. */
reg tvm_least_operand(emitter *e, uint32_t expr, reg value);
/* Stops the launch as a fault where the predicate is true (or else false), for the bounds of what is not
 * proved. The predicate is the same in all threads of the block, or of those that are to do something. */
void tvm_emit_trap(emitter *e, reg predicate, bool when);
/* Traps where an index of elements of so many bits begins inside a byte; false: it cannot. */
bool tvm_emit_byte_guard(emitter *e, uint32_t index, unsigned bits);
/* Words of a tensor: ceil(locals * bits / 32). */
uint32_t tvm_tensor_words(uint32_t locals, unsigned bits);

/* Element `local` of a tensor read out of its words, as a register of the type's class: f32 -> %f (mov.b32),
 * f64 -> %fd, i64/u64 -> %rd, f16/bf16 -> %h, integers and low-bit types of up to 32 bits -> %r (the code,
 * zero-extended; integers sign-extended when `extend`). tf32 -> %f. */
reg tvm_read_element(emitter *e, uint32_t slot, uint32_t local, bool extend);
/* Both f16 or bf16 elements of a word, in .b16 registers. */
void tvm_read_halves(emitter *e, uint32_t slot, uint32_t word, reg halves[2]);
/* Result elements are collected and written as whole words: begin, tvm_write_element for each local in
 * ascending order, end (flushes). The value register is of the class above; bits above the type's width are
 * ignored. */
typedef struct element_writer {
    uint32_t slot, local;
    unsigned bits;
    reg pending; /* the word being built */
    unsigned filled;
    reg half;
    uint32_t word;
    /* words are built in fresh registers and moved to the slot at end: operands may be the same slot */
    reg *built;
    uint32_t built_count;
    bool packed; /* the slot's packing is not linear: runs of bits go where it puts them */
    bool apart;  /* no operand is the same slot: words are written as they are built */
    bool failed;
} element_writer;
bool tvm_write_begin(emitter *e, element_writer *w, uint32_t slot);
/* The same; where `apart`, nothing that is still to be read lies in the slot. */
bool tvm_write_begin_apart(emitter *e, element_writer *w, uint32_t slot, bool apart);
/* A register in which the next word, or element of 32 bits, may be computed: the slot's own where it is
 * apart. */
reg tvm_write_place(emitter *e, const element_writer *w);
void tvm_write_element(emitter *e, element_writer *w, reg value);
void tvm_write_word(emitter *e, element_writer *w, reg word); /* a whole word at once, at a word boundary */
void tvm_write_end(emitter *e, element_writer *w);

/* A scalar expression's value in a register of its type's class (%r for bool i32 u32, %rd, %f, %fd); cached
 * where still valid. */
reg tvm_emit_expr(emitter *e, uint32_t expr);
/* The same as predicate. */
reg tvm_emit_condition(emitter *e, uint32_t expr);
/* A scalar expression converted to an element of `type`, in the class of tvm_read_element. */
reg tvm_emit_expr_as(emitter *e, uint32_t expr, tvm_dtype type, bool lowbit);

/* One element converted between types, registers in the classes of tvm_read_element (used by cast,
 * cast-lowbit, init, broadcast). */
reg tvm_emit_convert(emitter *e, tvm_dtype to, tvm_dtype from, reg value, bool lowbit);

/* Records what was selected for the instruction; strings are copied. */
void tvm_explain(emitter *e, const char *candidate, unsigned bits, unsigned count, int conflicts,
                 const char *refused);

/* Loads the tile of a shared tensor (its operand, then its indices) that threads have in `layout` to the
 * slot's words, in the order of its local elements. */
tvm_status tvm_emit_load_tile(emitter *e, const tvm_operand *tensor, const tvm_layout *layout, uint32_t slot);
/* The same of a tile of bytes that has elements of 4 or 6 bits, 16 at the beginning of each 16 bytes: a byte
 * of the slot's words has one in its lower bits. Of targets with has(mma_f8f6f4). */
tvm_status tvm_emit_load_spread(emitter *e, const tvm_operand *tensor, const tvm_layout *layout,
                                uint32_t slot, unsigned bits);

/* The thread's coordinate in dimension `dim` of a layout, map(tid, 0)[dim], as a %r computed once in the
 * prologue (cached by layout and dim); a constant-zero coordinate returns false and leaves *out alone. */
bool tvm_thread_coordinate(emitter *e, const tvm_layout *layout, unsigned dim, reg *out);
/* The same of a thread number in a register. */
bool tvm_coordinate_of(emitter *e, const tvm_layout *layout, unsigned dim, reg thread, reg *out);
reg tvm_thread_id(emitter *e); /* of the team: tid.x less the threads of the warps before it */

/* Branches to the label in all warps of the team but the first, of which it elects a thread: a predicate. */
reg tvm_emit_elect(emitter *e, uint32_t label);

/* Values computed once, at the beginning of the section (hoist.h) that asks for them, or of the kernel:
 * `format` is one PTX instruction whose destination is written `$`; an equal one that was computed there or
 * in a section around it is shared. reg_class: 'r' .b32, 'd' .b64, 'p' .pred. */
reg tvm_pure(emitter *e, char reg_class, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same at kernel entry, whichever section asks. */
reg tvm_pure_at_entry(emitter *e, char reg_class, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Arithmetic of words below 2^31 by constants, as tvm_pure. */
reg tvm_pure_divide(emitter *e, reg value, uint32_t by);
reg tvm_pure_modulo(emitter *e, reg value, uint32_t by);
reg tvm_pure_scale(emitter *e, reg value, uint32_t by);
/* The same, computed once before the innermost loop, where code is being emitted: its operands are values of
 * the prologue or of these functions. tvm_hoist_expr: an expression that is invariant there
 * (tvm_loop_invariant). */
reg tvm_hoist(emitter *e, char reg_class, const char *format, ...) __attribute__((format(printf, 3, 4)));
reg tvm_hoist_expr(emitter *e, uint32_t expr);
/* The value of a %r ('r') or %rd ('d') that was computed before the innermost loop, so that ptxas does not
 * compute it again in each turn, to save registers. */
reg tvm_hoist_kept(emitter *e, char reg_class, reg value);
/* The address of the block's dynamic shared memory in the shared window, as %r; and what of it a matrix
 * descriptor may have: its 18 bits, without the number of a cluster's block above them. */
reg tvm_shared_base(emitter *e);
reg tvm_matrix_base(emitter *e);

/* One function a family, declared from the opcode table: tvm_status tvm_emit_FAMILY(emitter *, const tvm_insn
 * *).
 */
#define TVM_OP(number, id, mnemonic, since, class, family, ...)                                              \
    tvm_status tvm_emit_##family(emitter *e, const tvm_insn *insn);
#include "opcodes.def"

#endif
