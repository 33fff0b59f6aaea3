/* What orders blocks and launches: semaphores, programmatic dependent launch. */
#include <stdio.h>

#include "barrier.h"
#include "emit.h"
#include "frame.h"
#include "global_access.h"
#include "turns_emit.h"

typedef struct semaphore {
    reg address, value;
    reg first;    /* predicate: the block's first thread, which speaks for all */
    bool guarded; /* it is not known to lie inside of its tensor, which is tested */
} semaphore;

static semaphore find_semaphore(emitter *e, const tvm_insn *insn) {
    static const uint32_t origin[TVM_MAX_RANK] = {0};
    const tvm_operand *operands = tvm_operands(e->k->kernel, insn);
    unsigned rank = e->k->kernel->slots[operands->value].rank;
    global_access g = {.tile = {.extent = {1}}};
    semaphore s;
    reg inside;
    tvm_global_open(e, &g, operands->value, operands + 1, 1);
    if (tvm_global_predicate(&g, origin, &inside)) tvm_emit_trap(e, inside, false);
    s.guarded = tvm_global_is_guarded(&g.tile);
    s.address = tvm_global_pointer(&g, origin);
    s.value = tvm_emit_expr(e, operands[1 + rank].value);
    s.first = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", tvm_thread_id(e).name);
    return s;
}

/* fence SEMAPHORE: the acquire of one thread and the barrier order what the others do after it: causality
 * order is transitive (PTX ISA, "Memory Consistency Model"). In the other threads the loop ends at once. */
tvm_status tvm_emit_LOCK_SEMAPHORE(emitter *e, const tvm_insn *insn) {
    semaphore s = find_semaphore(e, insn);
    reg found = tvm_new_r(e), differs = tvm_new_pred(e);
    uint32_t again = tvm_new_label(e);
    tvm_emit(e, "mov.b32 %s, %s;", found.name, s.value.name);
    tvm_text_add(&e->body, "$L%u:\n", again);
    tvm_emit(e, "@%s ld.acquire.gpu.global.b32 %s, [%s];", s.first.name, found.name, s.address.name);
    tvm_emit(e, "setp.ne.b32 %s, %s, %s;", differs.name, found.name, s.value.name);
    tvm_emit_ask_again(e, differs, true, again);
    tvm_emit_barrier(e);
    tvm_explain(e, s.guarded ? "ld.acquire.gpu, bar.sync guarded" : "ld.acquire.gpu, bar.sync", 32, 1, -1,
                "");
    return TVM_OK;
}

/* fence SEMAPHORE: the barrier comes first: the release then covers what all threads wrote. */
tvm_status tvm_emit_RELEASE_SEMAPHORE(emitter *e, const tvm_insn *insn) {
    semaphore s = find_semaphore(e, insn);
    tvm_emit_barrier(e);
    tvm_emit(e, "@%s st.release.gpu.global.b32 [%s], %s;", s.first.name, s.address.name, s.value.name);
    tvm_explain(e, s.guarded ? "bar.sync, st.release.gpu guarded" : "bar.sync, st.release.gpu", 32, 1, -1,
                "");
    return TVM_OK;
}

/* ---- programmatic dependent launch (fence DEPENDENCY); where the target lacks it, launches never overlap
 * ---- */

/* fence SEMAPHORE, GLOBAL_TO_ENGINE, DEPENDENCY: what the tasks before have written is seen by the thread
 * that asks, by its team behind the barrier, and by the copies that these then start. */
static void wait_for_tasks(emitter *e) {
    const frame_wait wait = {.first = tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", tvm_thread_id(e).name),
                             .differs = tvm_new_pred(e),
                             .found = tvm_new_r(e),
                             .address = tvm_new_rd(e),
                             .waits = tvm_new_rd(e),
                             .again = tvm_new_label(e),
                             .more = tvm_new_label(e)};
    tvm_frame_wait_text(&wait, &e->body);
    tvm_emit_barrier(e);
    if (e->k->bulk.by_engine || e->k->bulk.reads_by_engine) tvm_emit(e, "fence.proxy.async.global;");
    if (!e->body_frame->notes_times) return;
    reg thread = tvm_pure(e, 'r', "mov.u32 $, %%tid.x;");
    tvm_frame_stamp(tvm_pure(e, 'p', "setp.eq.u32 $, %s, 0;", thread.name), tvm_new_rd(e), FRAME_WAITED,
                    &e->body);
}

static tvm_status dependency(emitter *e, const char *instruction, uint32_t flag) {
    char name[16], refused[64];
    bool waits = flag == TVM_ABI_WAITS_FOR_DEPENDENCY;
    if (e->body_frame || tvm_target_has(e->k->target, TVM_HAS_GRIDDEPCONTROL)) {
        if (!e->body_frame)
            tvm_emit(e, "%s;", instruction);
        else if (waits)
            wait_for_tasks(e);
        e->code->abi.flags |= flag;
        tvm_explain(e, e->body_frame ? "the tape" : instruction, 0, 1, -1, "");
    } else {
        snprintf(refused, sizeof refused, "%s: %s lacks it", instruction,
                 tvm_target_name(e->k->target, name));
        tvm_explain(e, "nothing", 0, 0, -1, refused);
    }
    return TVM_OK;
}

tvm_status tvm_emit_LAUNCH_DEPENDENTS(emitter *e, const tvm_insn *insn) {
    (void)insn;
    return dependency(e, "griddepcontrol.launch_dependents", TVM_ABI_LAUNCHES_DEPENDENTS);
}

tvm_status tvm_emit_WAIT_DEPENDENCY(emitter *e, const tvm_insn *insn) {
    (void)insn;
    return dependency(e, "griddepcontrol.wait", TVM_ABI_WAITS_FOR_DEPENDENCY);
}
