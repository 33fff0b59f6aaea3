/* Blocks of a cluster: what each does in the shared memory of the others. A sync-cluster outside of loops and
 * conditions orders all that any block did before it and all that any does after it. Between two of them
 * nothing is known to order blocks. */
#include "check_impl.h"

bool tvm_check_is_reached(const checker *c, uint32_t root) {
    for (uint32_t s = 0; s < c->site_count && tvm_cluster_blocks(c->kernel) > 1; s++)
        if (c->sites[s].is_far && c->sites[s].root == root) return true;
    return false;
}

static bool is_number(const checker *c, uint32_t expr, int64_t number) {
    const tvm_expr *node = &c->kernel->exprs[expr];
    return node->op == TVM_EXPR_INTEGER && node->value.i == number;
}

/* The block's rank in a cluster along one axis, as the assembler writes it: block.x % blocks, + 0. */
static bool is_rank(const checker *c, uint32_t expr) {
    const tvm_expr *node = &c->kernel->exprs[expr];
    const uint32_t blocks = tvm_cluster_blocks(c->kernel);
    if (node->op == TVM_EXPR_ADD && is_number(c, node->b, 0)) return is_rank(c, node->a);
    if (node->op != TVM_EXPR_MOD || !is_number(c, node->b, blocks)) return false;
    const tvm_expr *of = &c->kernel->exprs[node->a];
    return of->op == TVM_EXPR_BLOCK && c->kernel->cluster[of->a] == blocks;
}

/* Rows of which each block has the one of its rank are different ones. */
static bool is_apart(const checker *c, const check_site *s, const check_site *t) {
    for (unsigned d = 0; d < s->rank && s->slot == t->slot && !s->everywhere && !t->everywhere; d++)
        if (s->extent[d] == 1 && t->extent[d] == 1 && is_rank(c, s->indices[d].value) &&
            is_rank(c, t->indices[d].value))
            return true;
    return false;
}

/* May an access of another block meet it? A copy lasts until somebody has waited for it. */
static bool is_beside(const checker *c, const check_site *far, const check_entry *entry) {
    const check_site *site = tvm_check_site(c, entry->place);
    const uint32_t epoch = c->epochs[far->insn], other = c->epochs[site->insn];
    bool lasts = site->actor >= CHECK_COPY && (entry->team == 0 || tvm_check_lasts(c, entry));
    return other == epoch || (lasts && other < epoch);
}

/* Is there a sync-cluster between alloc-shared, or after free-shared, and the access? */
static void check_life(checker *c, const check_site *far) {
    for (uint32_t i = 0; i < c->kernel->insn_count; i++) {
        const tvm_insn *insn = &c->kernel->insns[i];
        bool made = insn->result == far->root && c->epochs[i] >= c->epochs[far->insn];
        bool freed = insn->op == TVM_OP_FREE_SHARED && tvm_operands(c->kernel, insn)->value == far->root;
        if (made || freed)
            tvm_check_fail(c, &c->checked->races, i,
                           "other blocks access the tensor, and no sync-cluster stands between");
    }
}

void tvm_check_blocks(checker *c) {
    for (uint32_t a = 0; a < c->entries.count && !c->over; a++) {
        const check_entry *x = tvm_check_set_at(&c->entries, a);
        const check_site *far = tvm_check_site(c, x->place);
        if (!far->is_far || tvm_cluster_blocks(c->kernel) == 1) continue;
        if (c->out_of_step) tvm_check_fail(c, &c->checked->races, far->insn, "blocks may be out of step");
        check_life(c, far);
        tvm_check_charge(c, c->entries.count);
        for (uint32_t b = 0; b < c->entries.count; b++) {
            const check_entry *y = tvm_check_set_at(&c->entries, b);
            const check_site *site = tvm_check_site(c, y->place);
            if (is_beside(c, far, y) && !is_apart(c, far, site) && tvm_check_overlap(c, x->place, y->place))
                tvm_check_fail(c, &c->checked->races, far->insn,
                               "nothing orders it and what another block does at line %u",
                               (unsigned)c->kernel->insns[site->insn].line);
        }
    }
}
