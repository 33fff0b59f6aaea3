/* Where threads fence what they wrote to shared memory, before they tell others of it: see barrier.h.
 *
 * A fence costs tens of cycles, as much as a barrier, and an arrival stands in each turn of a consumer's
 * loop; so it is left out where no thread can have written since its last one. "May have written" flows along
 * the instructions; where paths meet, either will do; at a loop's head it is the least solution that holds
 * for all turns. */
#include <stdlib.h>

#include "barrier.h"
#include "wgmma_impl.h"

typedef struct frame {
    uint32_t opener;
    bool other;     /* a branch: at the end of its other path so far; a loop: where it ends */
    bool continues; /* what jumps to the head of a loop have */
} frame;

typedef struct walk {
    emitter *e;
    bool written;
    frame frames[TVM_MAX_DEPTH];
    unsigned depth;
    bool grown;
} walk;

/* Does the instruction write through the threads, or wait for what they copied? */
static bool writes(const tvm_insn *insn) {
    const tvm_op_info *info = tvm_op(insn->op);
    if (info->class == TVM_CLASS_LOOP || insn->op == TVM_OP_COPY_BULK) return false;
    return info->effects & TVM_EFFECT_WRITE_SHARED ||
           (info->effects & TVM_EFFECT_ASYNC && !(info->effects & TVM_EFFECT_BARRIER));
}

/* Does every thread come to a fence there, where one is needed? */
static bool fences(const tvm_insn *insn) {
    return tvm_insn_class(insn) == TVM_CLASS_ORDER && tvm_op(insn->op)->effects & TVM_EFFECT_BARRIER;
}

static frame *innermost_loop(walk *w) {
    unsigned d = w->depth;
    while (d > 1 && tvm_insn_class(&w->e->kernel->insns[w->frames[d - 1].opener]) != TVM_CLASS_LOOP) d--;
    return &w->frames[d - 1];
}

static void close_frame(walk *w) {
    frame *f = &w->frames[--w->depth];
    bool *head = &w->e->bulk.unfenced[f->opener];
    if (tvm_insn_class(&w->e->kernel->insns[f->opener]) == TVM_CLASS_LOOP) {
        bool again = w->written || f->continues;
        if (again && !*head) *head = w->grown = true;
        w->written = *head;
    }
    w->written = w->written || f->other;
}

static void walk_insn(walk *w, uint32_t at) {
    const tvm_insn *insn = &w->e->kernel->insns[at];
    bool *unfenced = &w->e->bulk.unfenced[at];
    if (w->written && !*unfenced) *unfenced = w->grown = true;
    if (writes(insn)) *unfenced = true; /* its own are fenced, too */
    switch (tvm_insn_class(insn)) {
    case TVM_CLASS_LOOP:
        w->frames[w->depth++] = (frame){.opener = at};
        w->written = *unfenced;
        break;
    case TVM_CLASS_BRANCH:
    case TVM_CLASS_SECTION:
        w->frames[w->depth++] = (frame){.opener = at, .other = w->written};
        break;
    case TVM_CLASS_ELSE: {
        bool then = w->written;
        w->written = w->frames[w->depth - 1].other;
        w->frames[w->depth - 1].other = then;
        break;
    }
    case TVM_CLASS_END:
        close_frame(w);
        break;
    case TVM_CLASS_JUMP:
        if (insn->op == TVM_OP_BREAK)
            innermost_loop(w)->other |= w->written;
        else
            innermost_loop(w)->continues |= w->written;
        break;
    default:
        if (fences(insn)) w->written = false;
        if (writes(insn)) w->written = true;
    }
}

tvm_status tvm_proxy_plan(emitter *e) {
    e->bulk.unfenced = calloc(e->kernel->insn_count + (size_t)1, sizeof *e->bulk.unfenced);
    if (!e->bulk.unfenced) return tvm_diag_no_memory(e->diags);
    bool grown = true;
    while (grown) {
        walk w = {.e = e};
        for (uint32_t i = 0; i < e->kernel->insn_count; i++) walk_insn(&w, i);
        grown = w.grown;
    }
    return TVM_OK;
}

/* wgmma reads shared memory through the asynchronous proxy, and the copy engine writes it so (PTX ISA,
 * "Proxies"). */
void tvm_emit_proxy_fence(emitter *e) {
    if (!e->wgmma->used && !e->bulk.by_engine) return;
    bool unfenced = e->bulk.by_threads || e->bulk.unfenced[e->insn - e->kernel->insns];
    if (unfenced) tvm_emit(e, "fence.proxy.async.shared::cta;");
}
