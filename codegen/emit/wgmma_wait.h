/* Code that waits for wgmma, and which of them may be unfinished where code is being written. */
#ifndef TVM_CODEGEN_WGMMA_WAIT_H
#define TVM_CODEGEN_WGMMA_WAIT_H

#include "emit.h"

/* A group of the product has been committed; was another unfinished? */
bool tvm_wgmma_start(emitter *e, uint32_t number);
/* Waits for all groups but the latest one. */
void tvm_wgmma_pace(emitter *e);
/* Before an instruction: waits if it must. */
void tvm_wgmma_wait(emitter *e, const tvm_insn *insn);
/* Waits for all. */
void tvm_wgmma_drain(emitter *e);

/* What may be unfinished here. */
wait_set tvm_waits(const emitter *e);
/* Goes on where `now` may be; returns what could be before. */
wait_set tvm_waits_enter(emitter *e, wait_set now);
/* Another path, with `other`, meets this one. */
void tvm_waits_meet(emitter *e, const wait_set *other);
/* At the head of a loop (its FOR or WHILE), where its turns meet what is before it; and where a turn ends. */
void tvm_waits_at_head(emitter *e, uint32_t loop);
void tvm_waits_before_head(emitter *e, uint32_t loop);

#endif
