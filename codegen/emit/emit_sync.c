/* What orders blocks and launches: semaphores, programmatic dependent launch. */
#include <stdio.h>

#include "barrier.h"
#include "emit.h"
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

static tvm_status dependency(emitter *e, const char *instruction, uint32_t flag) {
    char name[16], refused[64];
    if (tvm_target_has(e->k->target, TVM_HAS_GRIDDEPCONTROL)) {
        tvm_emit(e, "%s;", instruction);
        e->code->abi.flags |= flag;
        tvm_explain(e, instruction, 0, 1, -1, "");
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
