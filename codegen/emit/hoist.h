/* What is computed once, at the beginning of a section or before a loop, and those that are being emitted. */
#ifndef TVM_CODEGEN_HOIST_H
#define TVM_CODEGEN_HOIST_H

#include "emit.h"

/* An instruction that is computed once, at the beginning of a section or before a loop, and the register that
 * holds its value. */
typedef struct pure_entry {
    char *text;     /* with `$` for the destination; NULL: free */
    uint32_t scope; /* 0: at kernel entry; or section_frame.scope, loop_frame.scope */
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

/* A section that is being emitted, a role: at its beginning is computed what is asked for in it first.
 * Others, which may be short of registers, do not hold it. */
typedef struct section_frame {
    uint32_t scope;
    unsigned loops; /* around it */
    tvm_text before, beginning;
} section_frame;

typedef struct hoisting {
    pure_entry *pure;
    uint32_t pure_count, pure_capacity;
    loop_frame loops[TVM_MAX_DEPTH + 1];
    unsigned loop_count;
    section_frame sections[TVM_MAX_DEPTH + 1];
    unsigned section_count;
    uint32_t scopes; /* loops and sections begun */
} hoisting;

tvm_status tvm_hoist_make(emitter *e);
void tvm_hoist_free(emitter *e);

/* Goes on with e->body as the text after the beginning of a section. */
void tvm_enter_section(emitter *e);
void tvm_leave_section(emitter *e);
/* Goes on with e->body as the text before and after the beginning of a loop. The frame is the last of loops.
 */
loop_frame *tvm_enter_loop(emitter *e, uint32_t insn);
void tvm_leave_loop(emitter *e);
/* The innermost loop in the innermost section that is not unrolled; NULL: there is none. */
loop_frame *tvm_innermost_loop(const emitter *e);
/* Does the expression's value stay the same while that loop runs? False outside of one. */
bool tvm_loop_invariant(const emitter *e, uint32_t expr);

#endif
