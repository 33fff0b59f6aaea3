/* Shared memory by liveness: first fit among the tensors that live at the same time. */
#include "shared_view.h"
#include "view.h"
#include "shared_plan.h"

#include <stdlib.h>

#include "bulk_plan.h"
#include "drains.h"
#include "numbers.h"
#include "scratch_need.h"
#include "tensor_plan.h"

typedef struct block {
    uint64_t first, last; /* bytes [first, last) */
    uint32_t slot;
} block;

typedef struct plan {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    block *live; /* ascending */
    size_t live_count;
    block *freed;
    size_t freed_count;
    uint64_t end;
    uint32_t *offset; /* by slot */
    bool *reuses;     /* by slot: its memory was another tensor's before */
    bool *engine;     /* by slot: the copy engine may write it */
    bool *undrained;  /* by slot of mbarriers: copies may be under way when a block ends */
    uint32_t *ledger; /* by slot of those: where their arrivals are counted, 4 bytes each */
    bool cancels;     /* the code asks the target to cancel launches of blocks */
    uint32_t answer;  /* where that of cancel-block comes */
    uint32_t tensor;  /* where the translator's part of tensor memory is */
} plan;

/* wgmma and bulk copies want what is swizzled to begin where the swizzle does (PTX ISA, "Matrix Descriptor
 * Format"): those of rows of 32, 64 and 128 bytes repeat after 8 of these. */
uint64_t tvm_shared_tensor_alignment(const tvm_shared_layout *layout, unsigned bits) {
    unsigned swizzle = layout->swizzle_bits;
    bool in_rows = swizzle > 0 && swizzle <= 3 && layout->swizzle_shift == 3 &&
                   (UINT32_C(1) << layout->swizzle_base) * bits == 128;
    return in_rows ? (uint64_t)SHARED_ALIGNMENT << swizzle : SHARED_ALIGNMENT;
}

/* The same of a slot. */
static uint64_t alignment_of(const plan *p, uint32_t slot) {
    const tvm_slot *tensor = &p->kernel->slots[slot];
    const tvm_shared_layout *layout = &p->program->shared_layouts[tensor->layout];
    uint64_t least = tvm_shared_tensor_alignment(layout, tensor->dtype.bits);
    uint64_t wanted = p->engine[slot] ? tvm_bulk_alignment(layout, tensor->dtype.bits) : 0;
    return wanted > least ? wanted : least;
}

static void allocate(plan *p, uint32_t slot) {
    const tvm_slot *tensor = &p->kernel->slots[slot];
    const tvm_shared_layout *layout = &p->program->shared_layouts[tensor->layout];
    unsigned bits = tensor->dtype.bits;
    uint64_t size = (uint64_t)tvm_shared_layout_span(layout) * bits / 8, first = 0;
    size_t at = 0;
    while (at < p->live_count && p->live[at].first < first + size)
        first = tvm_round_up(p->live[at++].last, alignment_of(p, slot));
    /* Later blocks move up to keep the order. */
    for (size_t i = p->live_count; i > at; i--) p->live[i] = p->live[i - 1];
    p->live[at] = (block){first, first + size, slot};
    p->live_count++;
    if (first + size > p->end) p->end = first + size;
    p->offset[slot] = (uint32_t)first;
    for (size_t i = 0; i < p->freed_count; i++)
        if (p->freed[i].first < first + size && first < p->freed[i].last) p->reuses[slot] = true;
}

static void release(plan *p, uint32_t slot) {
    size_t at = 0;
    while (at < p->live_count && p->live[at].slot != slot) at++;
    if (at == p->live_count) return;
    p->freed[p->freed_count++] = p->live[at];
    for (p->live_count--; at < p->live_count; at++) p->live[at] = p->live[at + 1];
}

/* Behind the tensors, which want more alignment. */
static void place_barriers(plan *p) {
    for (uint32_t s = 0; s < p->kernel->slot_count; s++) {
        const tvm_slot *slot = &p->kernel->slots[s];
        if (slot->kind != TVM_SLOT_BARRIER) continue;
        p->end = tvm_round_up(p->end, slot->dtype.bits / 8);
        p->offset[s] = (uint32_t)p->end;
        p->end += (uint64_t)tvm_shared_layout_span(&p->program->shared_layouts[slot->layout]) *
                  slot->dtype.bits / 8;
    }
    for (uint32_t s = 0; s < p->kernel->slot_count; s++) {
        if (!p->undrained[s]) continue;
        p->ledger[s] = (uint32_t)p->end;
        p->end += (uint64_t)tvm_shared_layout_span(&p->program->shared_layouts[p->kernel->slots[s].layout]) *
                  sizeof(uint32_t);
    }
    if (p->cancels) {
        p->answer = (uint32_t)tvm_round_up(p->end, TVM_CANCEL_MBARRIER);
        p->end = p->answer + TVM_CANCEL_BYTES;
    }
    if (!tvm_has_tensor_memory(p->kernel)) return;
    p->tensor = (uint32_t)tvm_round_up(p->end, TENSOR_MEETS);
    p->end = p->tensor + tvm_tensor_shared_bytes(p->kernel);
}

/* The shared tensors of bulk copies. */
static void find_engine(plan *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    if (insn->op != TVM_OP_COPY_BULK && insn->op != TVM_OP_STORE_BULK && insn->op != TVM_OP_REDUCE_BULK &&
        insn->op != TVM_OP_COPY_CLUSTER)
        return;
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT &&
            p->kernel->slots[operands[o].value].kind == TVM_SLOT_SHARED)
            p->engine[tvm_view_root(p->kernel, operands[o].value)] = true;
}

static bool make_plan(plan *p, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                      tvm_target target) {
    size_t slots = kernel->slot_count + (size_t)1;
    *p = (plan){.program = program,
                .kernel = kernel,
                .cancels = tvm_target_has(target, TVM_HAS_LAUNCH_CONTROL) && tvm_cancels_blocks(kernel),
                .live = calloc(slots, sizeof *p->live),
                .freed = calloc(slots, sizeof *p->freed),
                .offset = calloc(slots, sizeof *p->offset),
                .reuses = calloc(slots, sizeof *p->reuses),
                .engine = calloc(slots, sizeof *p->engine),
                .undrained = calloc(slots, sizeof *p->undrained),
                .ledger = calloc(slots, sizeof *p->ledger)};
    if (!p->live || !p->freed || !p->offset || !p->reuses || !p->engine || !p->undrained || !p->ledger ||
        !tvm_drains_find(program, kernel, target, p->undrained))
        return false;
    for (uint32_t i = 0; i < kernel->insn_count; i++) find_engine(p, &kernel->insns[i]);
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        bool shared = insn->result != TVM_NONE && kernel->slots[insn->result].kind == TVM_SLOT_SHARED;
        if (class == TVM_CLASS_ALLOCATE && shared && p->live_count < slots)
            allocate(p, insn->result);
        else if (class == TVM_CLASS_FREE && p->freed_count < slots)
            release(p, tvm_operands(kernel, insn)[0].value);
    }
    place_barriers(p);
    return true;
}

static void free_plan(plan *p) {
    free(p->live);
    free(p->freed);
    free(p->offset);
    free(p->reuses);
    free(p->engine);
    free(p->undrained);
    free(p->ledger);
}

/* What the instructions [first, end) pass through shared memory from `offset` on, one after the other; those
 * of roles left out. */
static shared_need need_of(const plan *p, tvm_target target, uint32_t first, uint32_t end, uint64_t offset) {
    uint64_t scratch = 0, small = 0;
    unsigned uses = 0;
    for (uint32_t i = first; i < end; i++) {
        if (tvm_insn_class(&p->kernel->insns[i]) == TVM_CLASS_SECTION) i = p->kernel->insns[i].match;
        uint64_t bytes = tvm_scratch_need(p->program, p->kernel, &p->kernel->insns[i], target, offset);
        if (bytes > scratch) scratch = bytes;
        if (bytes > 0 && bytes <= SCRATCH_SMALL) {
            uses++;
            if (bytes > small) small = bytes;
        }
    }
    small = tvm_round_up(small, 16);
    if (uses < 2 || offset + 2 * small > tvm_target_shared_bytes(target)) small = 0;
    if (scratch < 2 * small) scratch = 2 * small;
    return (shared_need){offset, small, offset + scratch};
}

/* Behind the tensors, the scratch memory of the block, then that of each team of a role, which run at the
 * same time. Returns the end. */
static uint64_t place_scratch(const plan *p, tvm_target target, shared_need *whole, shared_need *roles) {
    const tvm_ir_kernel *kernel = p->kernel;
    *whole = need_of(p, target, 0, kernel->insn_count, tvm_round_up(p->end, SHARED_ALIGNMENT));
    uint64_t end = whole->bytes;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        if (tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, &kernel->insns[i]);
        *roles = need_of(p, target, i + 1, kernel->insns[i].match, tvm_round_up(end, SHARED_ALIGNMENT));
        uint64_t bytes = tvm_round_up(roles->bytes - roles->scratch, SHARED_ALIGNMENT);
        roles->bytes = roles->scratch + bytes;
        if (bytes > 0) end = roles->scratch + bytes * tvm_role_teams(&role);
        roles++;
    }
    return end;
}

tvm_status tvm_shared_plan_make(kernel_state *k) {
    plan p;
    bool made = make_plan(&p, k->program, k->kernel, k->target);
    for (uint32_t s = 0; made && s < k->kernel->slot_count; s++) {
        k->slots[s].shared_offset = p.offset[s];
        k->slots[s].ledger = p.ledger[s];
        k->slots[s].reuses = p.reuses[s];
    }
    for (uint32_t s = 0; made && s < k->kernel->slot_count; s++) {
        tvm_shared_root root;
        if (k->kernel->slots[s].kind != TVM_SLOT_SHARED || !k->kernel->slots[s].view) continue;
        tvm_shared_root_find(k->program, k->kernel, s, &root);
        k->slots[s].shared_offset = p.offset[root.slot];
        k->slots[s].shared_base = root.base;
    }
    k->tensor.shared = p.tensor;
    k->answer = p.answer;
    if (made) k->shared_bytes = place_scratch(&p, k->target, &k->shared, k->role_shared);
    free_plan(&p);
    return made ? TVM_OK : tvm_diag_no_memory(k->diags);
}

bool tvm_shared_bytes(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_target target,
                      uint64_t *bytes) {
    plan p;
    bool made = make_plan(&p, program, kernel, target);
    shared_need whole, roles[TVM_MAX_TEAMS];
    if (made) *bytes = place_scratch(&p, target, &whole, roles);
    free_plan(&p);
    return made;
}
