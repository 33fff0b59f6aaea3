#include "claims.h"

#include <stdlib.h>

#include "analysis.h"

static bool grow(tvm_claims *claims) {
    size_t capacity = claims->capacity ? 2 * claims->capacity : 256;
    tvm_claim *items = realloc(claims->items, capacity * sizeof *items);
    if (!items) return false;
    claims->items = items;
    claims->capacity = capacity;
    return true;
}

/* The constants of the path; false: they are too many. */
static bool note_constants(const emitter *e, tvm_claim *claim) {
    for (uint32_t s = e->kernel->param_count; s < e->kernel->slot_count; s++) {
        const slot_fact *slot = &e->facts->slots[s];
        if (!slot->constant || e->kernel->slots[s].kind != TVM_SLOT_SCALAR) continue;
        if (claim->constants == TVM_CLAIM_CONSTANTS) return false;
        claim->slot[claim->constants] = s;
        claim->value[claim->constants++] = slot->value;
    }
    return true;
}

void tvm_fact_claim(const emitter *e, const tvm_claim *made) {
    tvm_claims *claims = e->claims;
    tvm_claim claim = *made;
    if (e->kernel->exprs[claim.expr].op == TVM_EXPR_INTEGER) return;
    claim.kernel = (uint32_t)(e->kernel - e->program->kernels);
    if (!e->insn || !note_constants(e, &claim)) {
        claims->left_out++;
        return;
    }
    claim.insn = (uint32_t)(e->insn - e->kernel->insns);
    if (claims->count == claims->capacity && !grow(claims))
        claims->failed = true;
    else
        claims->items[claims->count++] = claim;
}

void tvm_fact_claim_values(emitter *e) {
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        const tvm_operand *operands = tvm_operands(e->kernel, &e->kernel->insns[i]);
        e->insn = &e->kernel->insns[i];
        for (uint32_t o = 0; o < e->insn->count; o++) {
            uint32_t expr = operands[o].value;
            if (operands[o].kind != TVM_OPERAND_EXPR || node_of(e, expr)->type.kind == TVM_KIND_FLOAT)
                continue;
            const expr_fact *fact = &e->facts->exprs[expr];
            tvm_fact_claim(
                e, &(tvm_claim){.kind = TVM_CLAIM_RANGE, .expr = expr, .low = fact->low, .high = fact->high});
            tvm_fact_claim(e,
                           &(tvm_claim){.kind = TVM_CLAIM_DIVISOR, .expr = expr, .divisor = fact->divisor});
        }
    }
    e->insn = NULL;
}
