/* Waiting for wgmma where code is being written: see plan/wgmma_waits.c. */
#include "wgmma_wait.h"

#include "wgmma_impl.h"

/* fence PRODUCT */
static void wait(emitter *e, unsigned pending) {
    tvm_emit(e, "wgmma.wait_group.sync.aligned %u;", pending);
    tvm_waits_end(&e->unfinished, pending);
}

void tvm_wgmma_drain(emitter *e) {
    if (!tvm_waits_none(&e->unfinished)) wait(e, 0);
}

void tvm_wgmma_wait(emitter *e, const tvm_insn *insn) {
    unsigned pending = tvm_wgmma_may_be_pending(e->k, &e->unfinished, insn);
    if (pending < WAIT_ANY) wait(e, pending);
}

bool tvm_wgmma_start(emitter *e, uint32_t number) {
    bool behind = !tvm_waits_none(&e->unfinished);
    tvm_waits_commit(&e->unfinished, number);
    return behind;
}

void tvm_wgmma_pace(emitter *e) {
    wait(e, 1);
}

wait_set tvm_waits(const emitter *e) {
    return e->unfinished;
}

wait_set tvm_waits_enter(emitter *e, wait_set now) {
    wait_set before = e->unfinished;
    e->unfinished = now;
    return before;
}

void tvm_waits_meet(emitter *e, const wait_set *other) {
    tvm_waits_add(&e->unfinished, other);
}

void tvm_waits_at_head(emitter *e, uint32_t loop) {
    if (e->k->wgmma->heads) tvm_waits_add(&e->unfinished, &e->k->wgmma->heads[loop]);
}

void tvm_waits_before_head(emitter *e, uint32_t loop) {
    wait_set head = e->k->wgmma->heads ? e->k->wgmma->heads[loop] : (wait_set){{0}};
    if (tvm_waits_add(&head, &e->unfinished)) tvm_wgmma_drain(e);
}
