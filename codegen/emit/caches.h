/* Private to the core of the code generator: what one kernel's translation remembers. */
#ifndef TVM_CODEGEN_CACHES_H
#define TVM_CODEGEN_CACHES_H

#include "emit.h"

/* An instruction that is computed once, at kernel entry or before a loop, and the register that holds its
 * value. */
typedef struct pure_entry {
    char *text;     /* with `$` for the destination; NULL: free */
    uint32_t scope; /* 0: at kernel entry; or loop_frame.scope */
    reg value;
} pure_entry;

/* A loop that is being emitted: e->body is what follows its beginning, until tvm_leave_loop. */
typedef struct loop_frame {
    uint32_t insn;           /* its FOR or WHILE */
    uint32_t continue_label; /* of the copy of the body being emitted */
    uint32_t break_label;
    bool is_unrolled;               /* it is no loop any more, so that nothing is computed before it */
    uint32_t scope;                 /* numbers the loops as they are emitted, from 1 */
    wait_set at_continue, at_break; /* what wgmma may be unfinished where paths come to those labels */
    unsigned conditions;            /* those that hold at its beginning: the mark of tvm_fact_set_aside */
    tvm_text before;                /* what was emitted before the loop */
    tvm_text preheader;             /* what is computed once, right before it */
} loop_frame;

typedef struct caches {
    /* expressions: values for the whole kernel, and values for the instruction numbered `stamp` */
    reg *stable_value; /* by expression; name[0] == 0: not computed */
    reg *local_value;
    uint64_t *local_stamp;
    uint64_t stamp;
    bool in_prologue; /* body and prologue are exchanged */

    pure_entry *pure;
    uint32_t pure_count, pure_capacity;

    loop_frame loops[TVM_MAX_DEPTH + 1];
    unsigned loop_count;
    uint32_t scopes;  /* loops begun */
    uint32_t *unroll; /* by the insn of FOR: copies of the body that the size of the code allows */
    uint32_t *weight; /* by the insn of FOR: instructions of its body, inner loops unrolled */

    bool *reuses;    /* by slot: its shared memory was another tensor's before */
    bool *explained; /* by instruction: copies of an unrolled loop's body are explained once */
    size_t selection_capacity;
} caches;

tvm_status tvm_caches_make(emitter *e);
void tvm_caches_free(emitter *e);

/* The coordinate map(thread, 0)[dim] of a thread number in a register, computed at kernel entry; false when
 * it is always zero. */
bool tvm_coordinate_of(emitter *e, const tvm_layout *layout, unsigned dim, reg thread, reg *out);

/* Unsigned arithmetic by constants at kernel entry. */
reg tvm_pure_divide(emitter *e, reg value, uint32_t by);
reg tvm_pure_modulo(emitter *e, reg value, uint32_t by);
reg tvm_pure_scale(emitter *e, reg value, uint32_t by);

/* Goes on with e->body as the text before and after the beginning of a loop. The frame is the last of loops.
 */
loop_frame *tvm_enter_loop(emitter *e, uint32_t insn);
void tvm_leave_loop(emitter *e);
/* The innermost loop that is not unrolled; NULL: there is none. */
loop_frame *tvm_innermost_loop(const emitter *e);
/* Does the expression's value stay the same while that loop runs? False outside of one. */
bool tvm_loop_invariant(const emitter *e, uint32_t expr);

/* Fills unroll and weight. */
void tvm_control_plan(emitter *e);

/* Emits the instructions [first, last) of the kernel. */
tvm_status tvm_emit_range(emitter *e, uint32_t first, uint32_t last);

/* An error of translation, with the place of the instruction being emitted. */
tvm_status tvm_emit_error(emitter *e, tvm_status status, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
