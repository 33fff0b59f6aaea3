/* From a layout to those that follow from it: forwards by an instruction's rule, backwards by trying. */
#include "infer_state.h"

#include <string.h>

static bool same_shape(const tvm_layout *a, const tvm_layout *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

/* ---- backwards ---- */

/* The part of a layout that a tensor of the shape has which is broadcast to it: no leading dimensions beyond
 * its own, one element where it has no more. */
static bool broadcast_part(const tvm_layout *wide, const tvm_layout *shape, tvm_layout *part) {
    if (shape->rank > wide->rank) return false;
    *part = *wide;
    while (part->rank > shape->rank)
        if (tvm_layout_reduce(part, 0, part, NULL) != TVM_OK ||
            tvm_layout_squeeze(part, 0, part, NULL) != TVM_OK)
            return false;
    for (unsigned d = 0; d < shape->rank; d++) {
        if (shape->shape[d] == part->shape[d]) continue;
        if (shape->shape[d] != 1 || tvm_layout_reduce(part, d, part, NULL) != TVM_OK) return false;
    }
    return true;
}

/* What operand k of an mma has when the sums have this layout. */
static bool fragments(const tvm_infer_state *in, uint32_t insn, const tvm_infer_operands *registers,
                      unsigned k, const tvm_layout *sums, tvm_layout *out) {
    const tvm_insn *mma = &in->kernel->insns[insn];
    const tvm_operand *operands = tvm_operands(in->kernel, mma);
    const tvm_mma_places at = tvm_mma_find_places(in->program, in->kernel, operands, mma->count);
    uint32_t place = registers->at[k];
    if (place == at.c) {
        *out = *sums;
        return true;
    }
    const tvm_layout shape = tvm_infer_shape_of(in, registers->slots[k]);
    bool is_scale = place == at.scale_a || place == at.scale_b, is_a = place == 0 || place == at.scale_a;
    bool as_tf32 = tvm_mma_reads_tf32(in->program, in->kernel, operands, mma->count);
    const tvm_dtype a = tvm_mma_type_of(in->program, in->kernel, operands, mma->count, true),
                    b = tvm_mma_type_of(in->program, in->kernel, operands, mma->count, false);
    const tvm_mma_atoms *atoms = tvm_mma_atoms_of(a, as_tf32);
    if (at.scale_a != TVM_NONE) {
        const tvm_mma_scaling *scaling =
            tvm_mma_find_scaling(a, b, in->work[operands[at.scale_a].value].dtype);
        atoms = !scaling ? NULL : is_scale ? scaling->scales : scaling->operands;
    }
    return atoms != NULL &&
           tvm_mma_fragments(atoms, sums, is_a, shape.rank, shape.shape, out, NULL) == TVM_OK;
}

static bool guess(const tvm_infer_state *in, uint32_t insn, const tvm_infer_operands *registers, unsigned k,
                  const tvm_layout *result, tvm_layout *out) {
    if (in->kernel->insns[insn].op == TVM_OP_MMA) return fragments(in, insn, registers, k, result, out);
    const tvm_layout shape = tvm_infer_shape_of(in, registers->slots[k]);
    return broadcast_part(result, &shape, out);
}

typedef struct permutation {
    uint32_t order[TVM_MAX_RANK];
    unsigned count;
} permutation;

static bool next_permutation(permutation *p) {
    unsigned i = p->count;
    while (i > 1 && p->order[i - 2] >= p->order[i - 1]) i--;
    if (i < 2) return false;
    unsigned j = p->count;
    while (p->order[j - 1] <= p->order[i - 2]) j--;
    uint32_t t = p->order[i - 2];
    p->order[i - 2] = p->order[j - 1];
    p->order[j - 1] = t;
    for (unsigned a = i - 1, b = p->count - 1; a < b; a++, b--) {
        t = p->order[a];
        p->order[a] = p->order[b];
        p->order[b] = t;
    }
    return true;
}

/* Instructions of one operand that rearrange: the result's layout with its dimensions exchanged, or in
 * another shape. */
static bool rearranged(tvm_infer_state *in, uint32_t insn, uint32_t result, uint32_t operand,
                       uint32_t *layout) {
    const tvm_layout to = tvm_infer_layout(in, result), shape = tvm_infer_shape_of(in, operand);
    tvm_layout made;
    permutation p = {.count = to.rank};
    for (unsigned d = 0; d < to.rank; d++) p.order[d] = d;
    if (tvm_layout_elements(&to) == tvm_layout_elements(&shape) &&
        tvm_layout_reshape(&to, shape.rank, shape.shape, &made, NULL) == TVM_OK &&
        (*layout = tvm_infer_number(in, &made)) != TVM_NONE &&
        tvm_infer_attempt(in, insn, layout, result, NULL, NULL))
        return true;
    for (bool more = to.rank == shape.rank && to.rank <= 4; more; more = next_permutation(&p)) {
        if (tvm_layout_permute(&to, p.order, &made, NULL) != TVM_OK || !same_shape(&made, &shape)) continue;
        *layout = tvm_infer_number(in, &made);
        if (*layout != TVM_NONE && tvm_infer_attempt(in, insn, layout, result, NULL, NULL)) return true;
    }
    return false;
}

bool tvm_infer_backwards(tvm_infer_state *in, uint32_t insn, uint32_t result, uint32_t *layouts) {
    tvm_infer_operands registers;
    tvm_infer_registers(in, insn, &registers);
    const tvm_layout to = tvm_infer_layout(in, result);
    unsigned missing = 0;
    bool guessed = true;
    for (unsigned k = 0; k < registers.count; k++) {
        tvm_layout made;
        if (layouts[k] != TVM_NONE) continue;
        missing++;
        if (guess(in, insn, &registers, k, &to, &made)) layouts[k] = tvm_infer_number(in, &made);
        guessed = guessed && layouts[k] != TVM_NONE;
    }
    if (guessed && tvm_infer_attempt(in, insn, layouts, result, NULL, NULL)) return true;
    return registers.count == 1 && missing == 1 &&
           rearranged(in, insn, result, registers.slots[0], &layouts[0]);
}

bool tvm_infer_beside(tvm_infer_state *in, uint32_t insn, unsigned k, uint32_t layout, uint32_t *layouts) {
    const tvm_layout of_k = tvm_infer_layout(in, layout);
    tvm_infer_operands registers;
    tvm_infer_registers(in, insn, &registers);
    for (unsigned j = 0; j < registers.count; j++) {
        const tvm_layout shape = tvm_infer_shape_of(in, registers.slots[j]);
        tvm_layout part;
        if (j == k) {
            layouts[j] = layout;
            continue;
        }
        if (!broadcast_part(&of_k, &shape, &part)) return false;
        layouts[j] = tvm_infer_number(in, &part);
        if (layouts[j] == TVM_NONE) return false;
    }
    return tvm_infer_attempt(in, insn, layouts, TVM_NONE, NULL, NULL);
}

/* ---- spreading ---- */

typedef struct queue {
    uint32_t *slots;
    uint32_t count;
} queue;

static void decide(tvm_infer_state *in, queue *q, uint32_t slot, uint32_t layout, tvm_infer_why why,
                   uint32_t insn) {
    if (in->layout[slot] != TVM_NONE) return;
    in->layout[slot] = layout;
    in->reasons[slot] = (tvm_infer_reason){why, insn};
    q->slots[q->count++] = slot;
}

/* The result's layout that the operands suggest: what the rule makes of them, or that of one of its shape. */
static uint32_t suggested(tvm_infer_state *in, uint32_t insn, const tvm_infer_operands *registers,
                          uint32_t result, const uint32_t *known, uint32_t *layouts) {
    const tvm_layout shape = tvm_infer_shape_of(in, result);
    uint32_t made;
    bool all = true;
    for (unsigned k = 0; k < registers->count; k++) all = all && known[k] != TVM_NONE;
    memcpy(layouts, known, registers->count * sizeof *layouts);
    if (all && tvm_infer_attempt(in, insn, layouts, TVM_NONE, &made, NULL)) return made;
    for (unsigned k = 0; k < registers->count; k++) {
        if (known[k] == TVM_NONE) continue;
        const tvm_layout of_k = tvm_infer_layout(in, known[k]);
        if (!same_shape(&of_k, &shape)) continue;
        memcpy(layouts, known, registers->count * sizeof *layouts);
        if (tvm_infer_backwards(in, insn, known[k], layouts)) return known[k];
        /* Of operands that disagree, those that were known count for nothing but this one. */
        for (unsigned j = 0; j < registers->count; j++) layouts[j] = j == k ? known[k] : TVM_NONE;
        if (tvm_infer_backwards(in, insn, known[k], layouts)) return known[k];
    }
    return TVM_NONE;
}

/* What an instruction makes known of its slots. */
static void settle(tvm_infer_state *in, queue *q, uint32_t insn) {
    tvm_infer_operands registers;
    uint32_t known[TVM_INFER_OPERANDS], layouts[TVM_INFER_OPERANDS];
    tvm_infer_registers(in, insn, &registers);
    uint32_t result = tvm_infer_result(in, insn), layout;
    if (result == TVM_NONE && registers.count < 2) return;
    if (!registers.count) return;
    for (unsigned k = 0; k < registers.count; k++) known[k] = layouts[k] = in->layout[registers.slots[k]];
    if (result == TVM_NONE) {
        unsigned k = 0;
        while (k < registers.count &&
               (known[k] == TVM_NONE || !tvm_infer_beside(in, insn, k, known[k], layouts)))
            k++;
        for (unsigned j = 0; k < registers.count && j < registers.count; j++)
            decide(in, q, registers.slots[j], layouts[j], TVM_WHY_USE, insn);
        return;
    }
    layout = in->layout[result];
    if (layout == TVM_NONE) {
        layout = suggested(in, insn, &registers, result, known, layouts);
        if (layout == TVM_NONE) return;
        decide(in, q, result, layout, TVM_WHY_RULE, insn);
    } else if (!tvm_infer_backwards(in, insn, layout, layouts)) {
        for (unsigned k = 0; k < registers.count; k++) layouts[k] = TVM_NONE;
        if (!tvm_infer_backwards(in, insn, layout, layouts)) return;
    }
    for (unsigned k = 0; k < registers.count; k++)
        decide(in, q, registers.slots[k], layouts[k], TVM_WHY_USE, insn);
}

void tvm_infer_spread(tvm_infer_state *in, uint32_t slot, uint32_t layout, tvm_infer_reason reason) {
    queue q = {.slots = in->queue};
    decide(in, &q, slot, layout, reason.why, reason.insn);
    for (uint32_t next = 0; next < q.count; next++)
        for (uint32_t i = in->first_use[q.slots[next]]; i < in->first_use[q.slots[next] + 1]; i++)
            if (!in->within || in->within[in->uses[i]]) settle(in, &q, in->uses[i]);
}
