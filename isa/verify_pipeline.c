/* The rules of pipelined loops, checked once all others hold. */
#include <stdlib.h>

#include "pipeline.h"
#include "verify_state.h"

typedef struct check {
    tvm_verify_state *state;
    const tvm_ir_kernel *kernel;
    bool *ahead;
    uint32_t *filled; /* by slot: one more than the stages that it is filled for; 0: by no pipelined loop */
    uint64_t shared_bytes; /* of all stages */
} check;

static uint64_t slot_bytes(const check *c, uint32_t slot) {
    const tvm_slot *of = &c->kernel->slots[slot];
    return (uint64_t)tvm_shared_layout_span(&c->state->program->shared_layouts[of->layout]) * of->dtype.bits /
           8;
}

static const char *name_of(const check *c, uint32_t slot) {
    return tvm_string(c->state->program, c->kernel->slots[slot].name);
}

static void check_loop(check *c, uint32_t loop) {
    tvm_pipeline pipeline;
    tvm_why why = {""};
    uint32_t at = loop;
    const tvm_insn *insn = &c->kernel->insns[loop];
    if (!tvm_verify_charge(c->state, 16 * (uint64_t)(insn->match - loop))) return;
    if (tvm_pipeline_find(c->state->program, c->kernel, loop, &pipeline, c->ahead, &at, &why) != TVM_OK) {
        tvm_verify_error(c->state, &c->kernel->insns[at], "%s", why.text);
        return;
    }
    for (uint32_t t = 0; t < pipeline.tensor_count; t++) {
        uint32_t slot = pipeline.tensors[t], *filled = &c->filled[slot];
        if (*filled == 0) c->shared_bytes += pipeline.stages * slot_bytes(c, slot);
        if (*filled != 0 && *filled != pipeline.stages + 1)
            tvm_verify_error(c->state, insn, "'%s' is filled with %u stages here, with %u in a loop before",
                             name_of(c, slot), pipeline.stages, *filled - 1);
        *filled = pipeline.stages + 1;
    }
    if (c->shared_bytes > TVM_MAX_SHARED_BYTES)
        tvm_verify_error(c->state, insn, "%llu bytes of shared memory for the stages, expected at most %d",
                         (unsigned long long)c->shared_bytes, TVM_MAX_SHARED_BYTES);
}

/* A tensor that a pipelined loop fills has the tile of an iteration only in such a loop. */
static void check_use(check *c, const tvm_insn *insn, const tvm_pipeline *around) {
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    if (tvm_insn_class(insn) == TVM_CLASS_FREE) return;
    for (uint32_t o = 0; o < insn->count; o++) {
        if (operands[o].kind != TVM_OPERAND_SLOT || !c->filled[operands[o].value]) continue;
        if (insn->op == TVM_OP_VIEW_SHARED || c->kernel->slots[operands[o].value].view)
            tvm_verify_error(c->state, insn, "'%s' is filled by a pipelined loop: expected no view of it",
                             name_of(c, operands[o].value));
        else if (!(around && tvm_pipeline_fills(around, operands[o].value)))
            tvm_verify_error(c->state, insn, "'%s' is filled by a pipelined loop: expected its use there",
                             name_of(c, operands[o].value));
    }
}

static void check_uses(check *c) {
    tvm_pipeline pipeline = {0};
    for (uint32_t i = 0; i < c->kernel->insn_count && !tvm_verify_done(c->state); i++) {
        const tvm_insn *insn = &c->kernel->insns[i];
        uint32_t at;
        if (tvm_pipeline_stages(c->kernel, insn))
            tvm_pipeline_find(c->state->program, c->kernel, i, &pipeline, c->ahead, &at, NULL);
        check_use(c, insn, i < pipeline.end ? &pipeline : NULL);
    }
}

void tvm_verify_pipelines(tvm_verify_state *state) {
    check c = {.state = state, .kernel = state->kernel};
    bool any = false;
    for (uint32_t i = 0; i < c.kernel->insn_count && !any; i++)
        any = tvm_pipeline_stages(c.kernel, &c.kernel->insns[i]) > 0;
    if (!any) return;
    c.ahead = calloc(c.kernel->insn_count, sizeof *c.ahead);
    c.filled = calloc(c.kernel->slot_count + (size_t)1, sizeof *c.filled);
    if (c.ahead && c.filled) {
        unsigned before = state->errors;
        for (uint32_t i = 0; i < c.kernel->insn_count && !tvm_verify_done(state); i++)
            if (tvm_pipeline_stages(c.kernel, &c.kernel->insns[i])) check_loop(&c, i);
        if (state->errors == before) check_uses(&c);
    } else {
        state->status = tvm_diag_no_memory(state->diags);
        state->errors++;
        state->stopped = true;
    }
    free(c.ahead);
    free(c.filled);
}
