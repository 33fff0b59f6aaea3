#include "claims.h"

#include <stdlib.h>

#include "facts.h"

static bool grow(tvm_claims *claims) {
    size_t capacity = claims->capacity ? 2 * claims->capacity : 256;
    tvm_claim *items = realloc(claims->items, capacity * sizeof *items);
    if (!items) return false;
    claims->items = items;
    claims->capacity = capacity;
    return true;
}

/* The constants of the path; false: they are too many. */
static bool note_constants(const kernel_state *k, tvm_claim *claim) {
    for (uint32_t s = k->kernel->param_count; s < k->kernel->slot_count; s++) {
        const slot_fact *slot = &k->facts->slots[s];
        if (!slot->constant || k->kernel->slots[s].kind != TVM_SLOT_SCALAR) continue;
        if (claim->constants == TVM_CLAIM_CONSTANTS) return false;
        claim->slot[claim->constants] = s;
        claim->value[claim->constants++] = slot->value;
    }
    return true;
}

void tvm_fact_claim(const kernel_state *k, const tvm_claim *made) {
    tvm_claims *claims = k->claims;
    tvm_claim claim = *made;
    if (k->kernel->exprs[claim.expr].op == TVM_EXPR_INTEGER) return;
    claim.kernel = (uint32_t)(k->kernel - k->program->kernels);
    if (!k->insn || !note_constants(k, &claim)) {
        claims->left_out++;
        return;
    }
    claim.insn = (uint32_t)(k->insn - k->kernel->insns);
    if (claims->count == claims->capacity && !grow(claims))
        claims->failed = true;
    else
        claims->items[claims->count++] = claim;
}

void tvm_fact_claim_values(kernel_state *k) {
    for (uint32_t i = 0; i < k->kernel->insn_count; i++) {
        const tvm_operand *operands = tvm_operands(k->kernel, &k->kernel->insns[i]);
        k->insn = &k->kernel->insns[i];
        for (uint32_t o = 0; o < k->insn->count; o++) {
            uint32_t expr = operands[o].value;
            if (operands[o].kind != TVM_OPERAND_EXPR || node_of(k, expr)->type.kind == TVM_KIND_FLOAT)
                continue;
            const expr_fact *fact = &k->facts->exprs[expr];
            tvm_fact_claim(
                k, &(tvm_claim){.kind = TVM_CLAIM_RANGE, .expr = expr, .low = fact->low, .high = fact->high});
            tvm_fact_claim(k,
                           &(tvm_claim){.kind = TVM_CLAIM_DIVISOR, .expr = expr, .divisor = fact->divisor});
        }
    }
    k->insn = NULL;
}
