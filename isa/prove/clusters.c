/* Blocks of a cluster: what each does in the shared memory of the others. A sync-cluster that stands outside
 * of loops and conditions orders all that any block did before it and all that any does after it; what stands
 * between two of them is called an epoch. In an epoch nothing is known to order two blocks. */
#include "prove_impl.h"

#include <stdlib.h>

/* ---- what is alike in all blocks of a cluster ---- */

static bool is_number(const prover *p, uint32_t expr, int64_t number) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    return node->op == TVM_EXPR_INTEGER && node->value.i == number;
}

/* The rank in a cluster along one axis, as the assembler writes it. */
bool tvm_prove_is_rank(const prover *p, uint32_t expr) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_ADD && is_number(p, node->b, 0)) return tvm_prove_is_rank(p, node->a);
    const tvm_expr *of = &p->kernel->exprs[node->a];
    uint32_t blocks = tvm_cluster_blocks(p->kernel);
    return node->op == TVM_EXPR_MOD && of->op == TVM_EXPR_BLOCK && blocks == p->kernel->cluster[of->a] &&
           blocks > 1 && is_number(p, node->b, blocks);
}

static bool is_alike(const prover *p, uint32_t expr) {
    const tvm_expr *node = &p->kernel->exprs[expr];
    if (node->op == TVM_EXPR_SLOT) return node->a < p->kernel->param_count;
    if (node->op == TVM_EXPR_BLOCK) return p->kernel->cluster[node->a] == 1;
    if (node->op == TVM_EXPR_DIV) {
        const tvm_expr *of = &p->kernel->exprs[node->a], *by = &p->kernel->exprs[node->b];
        if (of->op == TVM_EXPR_BLOCK && by->op == TVM_EXPR_INTEGER && by->value.i > 0 &&
            by->value.i % p->kernel->cluster[of->a] == 0)
            return true;
    }
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (!is_alike(p, node->operands[i])) return false;
    return true;
}

/* ---- epochs ---- */

static void refuse(prover *p, uint32_t insn, const char *why) {
    tvm_prove_fail(p, &p->proof->deadlocks, TVM_NOT_PROVED, insn, TVM_NONE, "%s %s",
                   tvm_prove_mnemonic(p, insn), why);
    p->out_of_step = true;
}

/* All blocks come to each sync-cluster, and as often, if no condition that they may decide differently, nor a
 * loop, stands around it or around an exit. Else the sync-cluster of one block may meet another one of
 * another block, and epochs say nothing. */
bool tvm_prove_find_epochs(prover *p) {
    uint32_t depth = 0, odd = 0, epoch = 0, leaves = TVM_NONE, meets = TVM_NONE;
    p->epochs = calloc(p->kernel->insn_count + (size_t)1, sizeof *p->epochs);
    for (uint32_t i = 0; p->epochs && i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (class == TVM_CLASS_END && --depth < odd) odd = 0;
        p->epochs[i] = epoch;
        bool alike = class == TVM_CLASS_BRANCH && is_alike(p, tvm_operands(p->kernel, insn)->value);
        if (tvm_class_opens(class)) depth++;
        if (tvm_class_opens(class) && !odd && !alike) odd = depth;
        if (class == TVM_CLASS_EXIT && odd) leaves = i;
        if (insn->op != TVM_OP_SYNC_CLUSTER) continue;
        if (odd) refuse(p, i, "stands in a loop or under a condition that blocks may decide differently");
        epoch += depth == 0;
        meets = i;
    }
    if (leaves == TVM_NONE || meets == TVM_NONE || tvm_cluster_blocks(p->kernel) == 1) return p->epochs;
    refuse(p, meets, "waits for blocks that may have left by exit");
    tvm_prove_fail(p, &p->proof->races, TVM_NOT_PROVED, leaves, meets,
                   "exit of one block, where another one goes on to sync-cluster, line %u",
                   tvm_prove_line(p, meets));
    return p->epochs;
}

/* ---- accesses of different blocks ---- */

bool tvm_prove_is_reached(const prover *p, uint32_t root) {
    return p->touched[root] & PROVE_TOUCHED_FAR;
}

/* May an access of one block meet that of another one, in time? A copy lasts until somebody has waited for
 * it. */
static bool is_beside(const prover *p, uint32_t far, const prove_entry *entry, const prove_site *site) {
    bool lasts = site->actor >= PROVE_COPY && (entry->context == 0 || tvm_prove_lasts(p, entry));
    return p->epochs[site->insn] == far || (lasts && p->epochs[site->insn] < far);
}

/* Rows of which each block has the one of its rank are different ones. */
static bool is_apart(const prover *p, const prove_entry *a, const prove_entry *b) {
    const prove_place *x = &p->places[a->place], *y = &p->places[b->place];
    for (unsigned d = 0; d < TVM_MAX_RANK && p->sites[x->site].slot == p->sites[y->site].slot; d++)
        if (x->low[d] == PROVE_RANK && y->low[d] == PROVE_RANK) return true;
    return false;
}

static bool conflict(const prover *p, const prove_entry *a, const prove_entry *b) {
    const prove_site *x = &p->sites[p->places[a->place].site], *y = &p->sites[p->places[b->place].site];
    if (!is_beside(p, p->epochs[x->insn], b, y) || is_apart(p, a, b)) return false;
    if (x->is_atomic && y->is_atomic)
        return x->root == y->root && !y->block; /* one of the block's own scope */
    return tvm_prove_overlap(p, a->place, b->place);
}

static bool is_made(const prover *p, const prove_site *site) {
    for (uint32_t i = 0; i < p->kernel->insn_count; i++)
        if (p->kernel->insns[i].result == site->root && p->epochs[i] >= p->epochs[site->insn]) return false;
    return true;
}

void tvm_prove_compare_blocks(prover *p) {
    for (uint32_t a = 0; a < p->entry_count && !p->too_long; a++) {
        const prove_site *x = &p->sites[p->places[p->entries[a].place].site];
        if (!x->block) continue;
        tvm_prove_charge(p, p->entry_count);
        if (p->out_of_step)
            tvm_prove_fail(p, &p->proof->races, TVM_NOT_PROVED, x->insn, TVM_NONE,
                           "%s: blocks may be out of step, as a sync-cluster stands in a loop or under a "
                           "condition that they may decide differently",
                           tvm_prove_mnemonic(p, x->insn));
        if (!is_made(p, x))
            tvm_prove_fail(
                p, &p->proof->races, TVM_NOT_PROVED, x->insn, TVM_NONE,
                "%s: no sync-cluster outside of loops and conditions stands between it and alloc-shared",
                tvm_prove_mnemonic(p, x->insn));
        for (uint32_t b = 0; b < p->entry_count; b++) {
            const prove_site *y = &p->sites[p->places[p->entries[b].place].site];
            if (!conflict(p, &p->entries[a], &p->entries[b])) continue;
            tvm_prove_fail(
                p, &p->proof->races, TVM_NOT_PROVED, x->insn, y->insn,
                "%s of '%s' and %s, line %u, of another block: no sync-cluster outside of loops and "
                "conditions stands between them",
                tvm_prove_mnemonic(p, x->insn), tvm_string(p->program, p->kernel->slots[x->slot].name),
                tvm_prove_mnemonic(p, y->insn), tvm_prove_line(p, y->insn));
            return;
        }
    }
}
