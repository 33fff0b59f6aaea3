/* Shared memory by liveness: first fit among the tensors that live at the same time. */
#include "shared_plan.h"

#include <stdlib.h>

#include "barrier.h"
#include "caches.h"
#include "numbers.h"

typedef struct block {
    uint64_t first, last; /* bytes [first, last) */
    uint32_t slot;
} block;

typedef struct plan {
    block *live; /* ascending */
    size_t live_count;
    block *freed;
    size_t freed_count;
    uint64_t end;
} plan;

/* wgmma wants swizzled rows of 128 bytes at the beginning of a period (PTX ISA, "Matrix Descriptor Format").
 */
static uint64_t alignment_of(const tvm_shared_layout *layout, unsigned bits) {
    bool swizzled = layout->swizzle_bits == 3 && layout->swizzle_base == 3 && layout->swizzle_shift == 3;
    return swizzled && bits == 16 ? SHARED_ALIGNMENT_MAX : SHARED_ALIGNMENT;
}

static void allocate(emitter *e, plan *p, uint32_t slot) {
    const tvm_shared_layout *layout = tvm_slot_shared_layout(e, slot);
    unsigned bits = tvm_slot_dtype(e, slot).bits;
    uint64_t size = (uint64_t)tvm_shared_layout_span(layout) * bits / 8, first = 0;
    size_t at = 0;
    while (at < p->live_count && p->live[at].first < first + size)
        first = tvm_round_up(p->live[at++].last, alignment_of(layout, bits));
    /* Later blocks move up to keep the order. */
    for (size_t i = p->live_count; i > at; i--) p->live[i] = p->live[i - 1];
    p->live[at] = (block){first, first + size, slot};
    p->live_count++;
    if (first + size > p->end) p->end = first + size;
    e->slots[slot].shared_offset = (uint32_t)first;
    for (size_t i = 0; i < p->freed_count; i++)
        if (p->freed[i].first < first + size && first < p->freed[i].last) e->caches->reuses[slot] = true;
}

static void release(plan *p, uint32_t slot) {
    size_t at = 0;
    while (at < p->live_count && p->live[at].slot != slot) at++;
    if (at == p->live_count) return;
    p->freed[p->freed_count++] = p->live[at];
    for (p->live_count--; at < p->live_count; at++) p->live[at] = p->live[at + 1];
}

tvm_status tvm_shared_plan_make(emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    size_t slots = kernel->slot_count + (size_t)1;
    plan p = {.live = calloc(slots, sizeof *p.live), .freed = calloc(slots, sizeof *p.freed)};
    tvm_status status = p.live && p.freed ? TVM_OK : tvm_diag_no_memory(e->diags);
    for (uint32_t i = 0; i < kernel->insn_count && status == TVM_OK; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op == TVM_OP_ALLOC_SHARED && p.live_count + 1 < slots + 1)
            allocate(e, &p, insn->result);
        else if (insn->op == TVM_OP_FREE_SHARED && p.freed_count + 1 < slots + 1)
            release(&p, tvm_operands(kernel, insn)[0].value);
        if (p.end > UINT32_MAX / 2)
            status = tvm_emit_error(e, TVM_UNSUPPORTED, NULL, "shared memory is exhausted");
    }
    e->scratch_offset = (uint32_t)tvm_round_up(p.end, SHARED_ALIGNMENT);
    free(p.live);
    free(p.freed);
    return status;
}

tvm_status tvm_emit_ALLOC_SHARED(emitter *e, const tvm_insn *insn) {
    /* The tensor that had the memory before may still be read by other warps. */
    if (e->caches->reuses[insn->result]) tvm_emit_barrier(e);
    return TVM_OK;
}

tvm_status tvm_emit_FREE_SHARED(emitter *e, const tvm_insn *insn) {
    (void)e;
    (void)insn;
    return TVM_OK;
}
