#include "paths.h"

#include <stdlib.h>
#include <string.h>

/* Control that is open. */
typedef struct frame {
    uint32_t opener;
    uint8_t *head;             /* of a loop */
    bool dead_before, is_dead; /* that nothing came to the opener; that its other path brings nothing */
} frame;

typedef struct walk {
    const tvm_paths *paths;
    uint8_t *heads; /* of loops, in the order of the text */
    uint32_t loops; /* begun in this pass */
    /* `now`, then two a frame. other: of a branch its other path, of a loop what leaves it by a jump, of a
     * role what was before it. next: what goes on with the next turn of a loop. */
    uint8_t *states;
    frame frames[TVM_MAX_DEPTH];
    unsigned depth;
    bool dead; /* no path comes here */
    bool grown;
} walk;

static uint8_t *other_of(const walk *w, unsigned depth) {
    return w->states + (1 + 2 * (size_t)depth) * w->paths->size;
}
static uint8_t *next_of(const walk *w, unsigned depth) {
    return other_of(w, depth) + w->paths->size;
}

static void set(const walk *w, void *to, const void *from) {
    if (from)
        memcpy(to, from, w->paths->size);
    else
        memset(to, 0, w->paths->size);
}

static bool meet(const walk *w, void *into, const void *other) {
    return w->paths->meet(w->paths->context, into, other);
}

static void end_path(walk *w) {
    set(w, w->states, NULL);
    w->dead = true;
}

static void open_frame(walk *w, uint32_t at, tvm_op_class class) {
    unsigned d = w->depth++;
    bool is_loop = class == TVM_CLASS_LOOP;
    w->frames[d] = (frame){.opener = at, .dead_before = w->dead, .is_dead = is_loop || w->dead};
    set(w, other_of(w, d), is_loop ? NULL : w->states);
    set(w, next_of(w, d), NULL);
    if (!is_loop) return;
    uint8_t *head = w->frames[d].head = w->heads + w->loops++ * w->paths->size;
    if (meet(w, head, w->states)) w->grown = true;
    set(w, w->states, head);
}

/* Behind a loop comes what leaves it: from its head, or with loops_run from its end, and by jumps. */
static void close_loop(walk *w, unsigned d) {
    const frame *f = &w->frames[d];
    meet(w, w->states, next_of(w, d));
    if (meet(w, f->head, w->states)) w->grown = true;
    if (!w->paths->loops_run) set(w, w->states, f->head);
    meet(w, w->states, other_of(w, d));
    w->dead = f->dead_before;
}

static void close_frame(walk *w) {
    unsigned d = --w->depth;
    const frame *f = &w->frames[d];
    switch (tvm_insn_class(&w->paths->kernel->insns[f->opener])) {
    case TVM_CLASS_LOOP:
        close_loop(w, d);
        break;
    case TVM_CLASS_SECTION:
        if (w->dead) set(w, w->states, other_of(w, d));
        w->dead = f->dead_before;
        if (w->paths->leave_role) w->paths->leave_role(w->paths->context, w->states);
        break;
    default:
        meet(w, w->states, other_of(w, d));
        w->dead = w->dead && f->is_dead;
    }
}

static void begin_else(walk *w) {
    unsigned d = w->depth - 1;
    uint8_t *then = next_of(w, d); /* of no loop */
    set(w, then, w->states);
    set(w, w->states, other_of(w, d));
    set(w, other_of(w, d), then);
    w->frames[d].is_dead = w->dead;
    w->dead = w->frames[d].dead_before;
}

static void jump(walk *w, const tvm_insn *insn) {
    unsigned d = w->depth;
    while (d-- > 0 && w->frames[d].opener != insn->match) continue;
    meet(w, insn->op == TVM_OP_BREAK ? other_of(w, d) : next_of(w, d), w->states);
    end_path(w);
}

static void walk_insn(walk *w, uint32_t at) {
    const tvm_insn *insn = &w->paths->kernel->insns[at];
    tvm_op_class class = tvm_insn_class(insn);
    bool is_loop = class == TVM_CLASS_LOOP;
    if (is_loop) open_frame(w, at, class);
    if (!w->dead) w->paths->step(w->paths->context, at, w->states);
    if (tvm_class_opens(class) && !is_loop) open_frame(w, at, class);
    if (class == TVM_CLASS_ELSE) begin_else(w);
    if (class == TVM_CLASS_END) close_frame(w);
    if (class == TVM_CLASS_JUMP && !w->dead) jump(w, insn);
    if (class == TVM_CLASS_EXIT) end_path(w);
}

bool tvm_paths_walk(const tvm_paths *paths) {
    walk w = {.paths = paths};
    size_t loops = 0;
    for (uint32_t i = 0; i < paths->kernel->insn_count; i++)
        loops += tvm_insn_class(&paths->kernel->insns[i]) == TVM_CLASS_LOOP;
    w.heads = calloc(loops + 1, paths->size);
    w.states = calloc(1 + 2 * (size_t)TVM_MAX_DEPTH, paths->size);
    bool made = w.heads && w.states;
    w.grown = made;
    while (w.grown) {
        w.grown = w.dead = false;
        w.loops = 0;
        set(&w, w.states, NULL);
        for (uint32_t i = 0; i < paths->kernel->insn_count; i++) walk_insn(&w, i);
    }
    free(w.heads);
    free(w.states);
    return made;
}
