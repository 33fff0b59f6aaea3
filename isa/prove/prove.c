/* The passes of a proof, in order; see prove.h. */
#include "prove_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tensor_memory.h"
#include "verify.h"

enum { MOST_WALKS = 200 };

/* ---- what is found ---- */

const char *tvm_prove_mnemonic(const prover *p, uint32_t insn) {
    return tvm_op(p->kernel->insns[insn].op)->mnemonic;
}

uint32_t tvm_prove_line(const prover *p, uint32_t insn) {
    return p->kernel->insns[insn].line;
}

void tvm_prove_fail(prover *p, tvm_proof_part *part, tvm_proof_verdict verdict, uint32_t insn, uint32_t other,
                    const char *format, ...) {
    (void)p;
    if (part->verdict >= verdict) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part->text, sizeof part->text, format, arguments);
    va_end(arguments);
    part->verdict = verdict;
    part->insn = insn;
    part->other = other;
}

/* ---- teams ---- */

static bool find_contexts(prover *p) {
    const tvm_ir_kernel *kernel = p->kernel;
    p->contexts[0] =
        (prove_context){.role = TVM_NONE, .end = kernel->insn_count, .team = tvm_block_team(kernel)};
    p->context_count = 1;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (tvm_insn_class(insn) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, insn);
        for (uint32_t t = 0; t < tvm_role_teams(&role) && p->context_count < PROVE_CONTEXTS; t++)
            p->contexts[p->context_count++] = (prove_context){.role = i,
                                                              .index = t,
                                                              .from = i + 1,
                                                              .end = insn->match,
                                                              .group = p->groups[i] / 2,
                                                              .team = tvm_role_team(&role, t)};
    }
    return true;
}

/* By instruction twice the number of its group, which a sync of all of the block ends, and 1 where a role
 * stands before it. */
static bool find_groups(prover *p) {
    uint32_t depth = 0, group = 0, roles = 0;
    p->groups = calloc(p->kernel->insn_count + (size_t)1, sizeof *p->groups);
    for (uint32_t i = 0; p->groups && i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (class == TVM_CLASS_END) depth--;
        p->groups[i] = 2 * group + roles;
        if (tvm_class_opens(class)) depth++;
        if (class == TVM_CLASS_SECTION) roles = 1;
        if (depth == 0 && (insn->op == TVM_OP_SYNC || insn->op == TVM_OP_SYNC_CLUSTER)) group++;
    }
    return p->groups != NULL;
}

static void touch(prover *p, uint32_t context, const prove_site *site) {
    uint8_t *touched = &p->touched[(size_t)context * p->kernel->slot_count + site->root];
    *touched |= PROVE_TOUCHED;
    if (site->writes) *touched |= PROVE_TOUCHED_BY_WRITES;
    if (site->block) *touched |= PROVE_TOUCHED_FAR;
}

/* Which tensors each team writes; of the block what any does, as its accesses come before theirs. */
static bool find_touched(prover *p) {
    p->touched = calloc((size_t)PROVE_CONTEXTS * p->kernel->slot_count + 1, sizeof *p->touched);
    for (uint32_t s = 0; p->touched && s < p->site_count; s++)
        for (uint32_t c = 0; c < p->context_count; c++)
            if (c == 0 || (p->sites[s].insn >= p->contexts[c].from && p->sites[s].insn < p->contexts[c].end))
                touch(p, c, &p->sites[s]);
    return p->touched != NULL;
}

static void find_pending(prover *p) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        const tvm_operand *operands = tvm_operands(p->kernel, insn), *pending = NULL;
        if (insn->op == TVM_OP_ARRIVE_BARRIER) pending = &operands[insn->count - 2];
        if (insn->op == TVM_OP_WAIT_GROUP || insn->op == TVM_OP_WAIT_BULK) pending = operands;
        if (pending && pending->kind == TVM_OPERAND_CONST && pending->value > p->most_pending)
            p->most_pending = pending->value;
    }
    if (p->most_pending > UINT8_MAX) p->too_long = true;
}

/* ---- walks ---- */

static void clear(prover *p) {
    for (uint32_t c = 0; c < p->context_count; c++) {
        for (uint32_t s = 0; s < p->contexts[c].start_count; s++)
            tvm_prove_free_state(&p->contexts[c].starts[s]);
        free(p->contexts[c].starts);
        p->contexts[c].starts = NULL;
        p->contexts[c].start_count = 0;
    }
    p->entry_count = 0;
    tvm_prove_set_clear(&p->entry_set);
    tvm_prove_set_clear(&p->visited);
    tvm_prove_set_clear(&p->met);
}

/* Until no scalar is known too well and no ring is broken; what a walk has found that was given up does not
 * count. */
static void walk_all(prover *p) {
    const tvm_proof before = *p->proof;
    for (unsigned turn = 0;; turn++) {
        uint64_t steps = p->proof->steps;
        *p->proof = before;
        p->proof->steps = steps;
        p->restart = false;
        p->waits_alone = true;
        p->drained = p->rings;
        clear(p);
        if (turn == MOST_WALKS) p->too_long = true;
        if (p->no_memory || p->too_long) return;
        tvm_prove_walk(p);
        if (!p->restart) return;
    }
}

static bool has_shared(const prover *p) {
    return p->site_count > 0 || p->cell_count > 0;
}

/* At commit-tensor of a pair the teams of both blocks meet. */
bool tvm_prove_meets_pair(const prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    return insn->op == TVM_OP_COMMIT_TENSOR && tvm_tensor_is_pair(p->kernel, insn);
}

/* Waits for other blocks, of which nothing is known here. */
static void find_far_waits(prover *p) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        bool comes = (insn->op == TVM_OP_TAKE_GLOBAL && p->handed) || tvm_prove_is_counted(p, i);
        if (tvm_op(insn->op)->effects & TVM_EFFECT_WAIT && !comes)
            tvm_prove_fail(p, &p->proof->deadlocks, TVM_PROVED_IF, i, TVM_NONE,
                           "what %s waits for comes from other blocks%s%s", tvm_prove_mnemonic(p, i),
                           p->why_not_handed ? ": it " : "", p->why_not_handed ? p->why_not_handed : "");
        if (tvm_prove_reach_of(p, i) == PROVE_SENDS)
            tvm_prove_fail(p, &p->proof->deadlocks, TVM_NOT_PROVED, i, TVM_NONE,
                           "%s waits for other blocks, which is not looked at", tvm_prove_mnemonic(p, i));
        if (tvm_prove_meets_pair(p, i))
            tvm_prove_fail(p, &p->proof->deadlocks, TVM_NOT_PROVED, i, TVM_NONE,
                           "%s of a pair waits for the other block, which is not looked at",
                           tvm_prove_mnemonic(p, i));
    }
}

static void give_up(prover *p, tvm_proof_part *part) {
    tvm_prove_fail(p, part, TVM_NOT_PROVED, TVM_NONE, TVM_NONE, "the kernel has too many states to look at");
}

static void prove_all(prover *p) {
    bool made = tvm_prove_find_scalars(p) && find_groups(p) && tvm_prove_find_epochs(p) && find_contexts(p) &&
                tvm_prove_find_sites(p) && tvm_prove_find_cells(p) && find_touched(p);
    if (!made) {
        p->no_memory = true;
        return;
    }
    find_pending(p);
    if (p->far_work > PROVE_FAR_WORK && !tvm_prove_find_runs(p, p->far_work / 8)) p->no_memory = true;
    if (p->no_memory) return;
    if (p->far) tvm_prove_handovers(p);
    find_far_waits(p);
    if (!has_shared(p)) return;
    if (p->cell_count) {
        p->gathers = true;
        walk_all(p);
        p->gathers = false;
        tvm_prove_find_tokens(p);
    }
    walk_all(p);
    bool walked = !p->too_long, waits = !p->waits_alone && walked;
    p->most_work = p->proof->steps + p->work;
    if (!waits)
        p->drained = 0;
    else if (!p->no_memory)
        tvm_prove_turns(p);
    if (p->too_long && p->cell_count)
        give_up(p, &p->proof->deadlocks); /* else nothing waits for what may not come */
    p->too_long = !walked;
    p->most_work = p->proof->steps + p->work;
    if (!p->no_memory && walked) {
        tvm_prove_compare_teams(p);
        tvm_prove_compare_blocks(p);
    }
    if (p->too_long) give_up(p, &p->proof->races);
}

static void end(prover *p) {
    clear(p);
    free(p->tracked);
    free(p->bears);
    free(p->runs);
    free(p->scalars);
    tvm_prove_free_sites(p);
    free(p->groups);
    free(p->epochs);
    free(p->touched);
    free(p->cells);
    free(p->first_cell);
    free(p->entries);
    free(p);
}

/* far_work: of what concerns other blocks, and global memory; 0: that is not looked at. */
static tvm_status prove_within(const tvm_ir_program *program, uint32_t kernel, uint64_t work,
                               uint64_t far_work, tvm_proof *proof, tvm_diags *diags) {
    prover *p = calloc(1, sizeof *p);
    const tvm_proof_part none = {.insn = TVM_NONE, .other = TVM_NONE};
    *proof = (tvm_proof){.races = none, .deadlocks = none, .global = none};
    if (!p) return tvm_diag_no_memory(diags);
    p->program = program;
    p->kernel = &program->kernels[kernel];
    p->proof = proof;
    p->modulus = 1;
    p->work = p->most_work = work;
    p->waits_alone = true;
    p->far = far_work > 0;
    p->far_work = far_work;
    prove_all(p);
    if (p->far && !p->no_memory) tvm_prove_global(p);
    bool no_memory = p->no_memory;
    end(p);
    return no_memory ? tvm_diag_no_memory(diags) : TVM_OK;
}

tvm_status tvm_prove(const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof, tvm_diags *diags) {
    return prove_within(program, kernel, PROVE_WORK, PROVE_FAR_WORK, proof, diags);
}

tvm_status tvm_prove_long(const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof,
                          tvm_diags *diags) {
    tvm_status status = tvm_prove(program, kernel, proof, diags);
    bool is_open = (proof->races.verdict != TVM_PROVED && proof->races.verdict != TVM_REFUTED) ||
                   (proof->deadlocks.verdict != TVM_PROVED && proof->deadlocks.verdict != TVM_REFUTED);
    if (status != TVM_OK || !is_open) return status;
    return prove_within(program, kernel, PROVE_LONG_WORK, PROVE_LONG_FAR_WORK, proof, diags);
}

/* Adds what the part says as a diagnostic of that status; returns the status. */
static tvm_status judge(const tvm_ir_program *program, uint32_t kernel, const tvm_proof_part *part,
                        const char *of, tvm_status as, tvm_diags *diags) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    tvm_place place = {0};
    if (part->verdict == TVM_PROVED) return TVM_OK;
    if (part->insn != TVM_NONE) {
        place.line = k->insns[part->insn].line;
        if (k->insns[part->insn].file != TVM_NONE)
            place.file = tvm_string(program, k->insns[part->insn].file);
    }
    return tvm_diag_add(diags, as, &place, NULL, "%s: %s %s: %s", tvm_string(program, k->name),
                        part->verdict == TVM_REFUTED ? "has" : "not proved free of", of, part->text);
}

tvm_status tvm_verify_proved(tvm_ir_program *program, tvm_diags *diags) {
    tvm_status status = tvm_verify(program, diags);
    if (status != TVM_OK) return status;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        tvm_proof proof;
        tvm_status made = tvm_prove_long(program, k, &proof, diags);
        if (made != TVM_OK) return made;
        if (judge(program, k, &proof.races, "races on shared memory", TVM_INVALID, diags) != TVM_OK)
            status = TVM_INVALID;
        if (judge(program, k, &proof.deadlocks, "deadlock", TVM_INVALID, diags) != TVM_OK)
            status = TVM_INVALID;
    }
    return status;
}

tvm_status tvm_warn_refuted(const tvm_ir_program *program, tvm_diags *diags) {
    enum { WORK = 1 << 20, EACH = 1 << 18 }; /* less than 50 ms for all kernels */
    uint64_t left = WORK;
    tvm_status status = TVM_OK;
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK && left; k++) {
        tvm_proof proof;
        status = prove_within(program, k, left < EACH ? left : EACH, 0, &proof, diags);
        if (status != TVM_OK) return status;
        left -= proof.steps < left ? proof.steps : left;
        if (proof.races.verdict == TVM_REFUTED)
            status = judge(program, k, &proof.races, "races on shared memory", TVM_OK, diags);
        if (status == TVM_OK && proof.deadlocks.verdict == TVM_REFUTED)
            status = judge(program, k, &proof.deadlocks, "deadlock", TVM_OK, diags);
    }
    return status;
}
