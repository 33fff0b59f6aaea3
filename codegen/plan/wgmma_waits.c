/* What waits for wgmma: what reads or assigns the sums of one that may not have finished, or writes what it
 * reads, or makes its a (wgmma_makers.c). Groups finish in order, so to wait for a product is to wait until
 * at most as many groups are unfinished as have been committed after its own. How many these are may depend
 * on the path: what is kept of each product is the least number of groups from its last one on, its age. Ages
 * flow along the instructions; where paths meet, the lower one holds. At a loop's head what its turns leave
 * unfinished must be known before the body is emitted: a pass over the kernel finds it, as the solution of
 * the same flow.
 *
 * A product is one group. Where its a is computed right before it (is_paced), each step of k is one, and all
 * but the latest group are waited for: ptxas then computes a's fragments of the next step while the tensor
 * cores do this one, and needs registers for those of two steps only. Where the program itself has two
 * operands take turns, one is computed while the other is multiplied, and such waits would only hold the
 * warps up. */
#include <stdlib.h>

#include "paths.h"
#include "shared_view.h"
#include "view.h"
#include "groups.h"
#include "wgmma_impl.h"
#include "wgmma_waits.h"

/* ---- ages ---- */

enum {
    LAST = WAIT_PRODUCTS - 1 /* products from this number on share an entry */
};

static unsigned entry_of(uint32_t number) {
    return number < LAST ? number : LAST;
}

bool tvm_waits_none(const wait_set *set) {
    for (unsigned i = 0; i < WAIT_PRODUCTS; i++)
        if (set->age[i]) return false;
    return true;
}

bool tvm_waits_add(wait_set *into, const wait_set *other) {
    bool grown = false;
    for (unsigned i = 0; i < WAIT_PRODUCTS; i++) {
        if (other->age[i] == 0 || (into->age[i] != 0 && into->age[i] <= other->age[i])) continue;
        into->age[i] = other->age[i];
        grown = true;
    }
    return grown;
}

void tvm_waits_commit(wait_set *set, uint32_t number) {
    for (unsigned i = 0; i < WAIT_PRODUCTS; i++)
        if (set->age[i] != 0 && set->age[i] < WAIT_ANY) set->age[i]++;
    set->age[entry_of(number)] = 1;
}

void tvm_waits_end(wait_set *set, unsigned pending) {
    for (unsigned i = 0; i < WAIT_PRODUCTS; i++)
        if (set->age[i] > pending) set->age[i] = 0;
}

/* ---- conflicts ---- */

static bool is_sums_of(const kernel_state *k, const product *p, uint32_t slot) {
    for (uint32_t j = 0; j < p->joined; j++)
        if (slot_sums(k, p + j) == slot) return true;
    return false;
}

/* Must another instruction wait for p? */
static bool waits_for(const kernel_state *k, const tvm_insn *insn, const product *p) {
    const tvm_op_info *info = tvm_op(insn->op);
    const tvm_operand *operands = tvm_operands(k->kernel, insn);
    const mma_operands *o = operands_of(k, p);
    bool writes = info->effects & TVM_EFFECT_WRITE_SHARED || info->class == TVM_CLASS_FREE;
    if (info->class == TVM_CLASS_EXIT) return true;
    if (info->class >= TVM_CLASS_LOOP && info->class <= TVM_CLASS_JUMP && insn->result == TVM_NONE)
        return false;
    if (info->class != TVM_CLASS_LOOP && !(info->traits & TVM_TRAIT_BESIDE)) return true;
    if (tvm_wgmma_makes_a(k, insn, p) || (insn->result != TVM_NONE && is_sums_of(k, p, insn->result)))
        return true;
    /* it would load its a to where that of p is */
    if (k->mma[insn - k->kernel->insns] && tvm_mma_operands_of(k, insn)->mma.a.is_shared &&
        tvm_mma_operands_of(k, insn)->a == o->a)
        return !p->all.a_is_shared;
    for (uint32_t i = 0; i < insn->count; i++) {
        if (operands[i].kind != TVM_OPERAND_SLOT) continue;
        bool is_read = tvm_shared_alias(k->kernel, operands[i].value, o->mma.b.slot) ||
                       (o->mma.a.is_shared && tvm_shared_alias(k->kernel, operands[i].value, o->mma.a.slot));
        if (is_sums_of(k, p, operands[i].value) || (writes && is_read)) return true;
    }
    return false;
}

/* The same for a wgmma, the first of those that are joined. Those of the same shape that add to the same sums
 * in the same places are done in order. */
static bool follows(const kernel_state *k, const product *q, const product *p) {
    bool in_order = tvm_wgmma_same_sums(k, q, p);
    for (const product *of = q; of < q + q->joined; of++) {
        uint32_t c = operands_of(k, of)->mma.c, result = slot_sums(k, of);
        if (tvm_wgmma_makes_a(k, &k->kernel->insns[of->mma], p)) return true;
        if (in_order && c == result) continue;
        if (is_sums_of(k, p, c) || is_sums_of(k, p, result)) return true;
    }
    return q->why_a && !p->all.a_is_shared && operands_of(k, q)->a == operands_of(k, p)->a;
}

static bool must_wait(const kernel_state *k, const tvm_insn *insn, const product *p) {
    const struct wgmma_plan *s = k->wgmma;
    const tvm_insn *next = tvm_group_next(k, insn);
    if (!tvm_wgmma_takes(k, insn)) return waits_for(k, insn, p) || (next && waits_for(k, next, p));
    const product *q = &s->products[s->product[insn_number(k, insn)] - 1];
    return s->role[q->mma] == WGMMA_FIRST && follows(k, q, p);
}

static bool is_first(const struct wgmma_plan *s, uint32_t number) {
    return s->role[s->products[number].mma] == WGMMA_FIRST;
}

/* The products that one group of this age may have done, at most; 0: there is none. */
static uint32_t joined_at(const struct wgmma_plan *s, const wait_set *set, unsigned age) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (set->age[entry_of(i)] == age && is_first(s, i) && s->products[i].joined > most)
            most = s->products[i].joined;
    return most;
}

/* The groups that do no more than the latest products which the instruction lets be unfinished. */
static unsigned groups_let_be(const kernel_state *k, const wait_set *set, const tvm_insn *insn) {
    const tvm_operand *said = &tvm_operands(k->kernel, insn)[insn->count - 2]; /* before the rank */
    uint32_t left = said->kind == TVM_OPERAND_CONST ? said->value : 0;
    unsigned age = 1;
    for (; age < WAIT_ANY; age++) {
        uint32_t joined = joined_at(k->wgmma, set, age);
        if (joined == 0 || joined > left) break;
        left -= joined;
    }
    return age - 1;
}

unsigned tvm_wgmma_may_be_pending(const kernel_state *k, const wait_set *set, const tvm_insn *insn) {
    const struct wgmma_plan *s = k->wgmma;
    unsigned pending = WAIT_ANY;
    if (tvm_waits_none(set)) return pending;
    if (tvm_insn_has(insn, TVM_TRAIT_PENDING)) return groups_let_be(k, set, insn);
    for (uint32_t i = 0; i < s->count; i++) {
        unsigned age = set->age[entry_of(i)];
        if (age != 0 && age <= pending && is_first(s, i) && must_wait(k, insn, &s->products[i]))
            pending = age - 1;
    }
    return pending;
}

/* ---- ages at the heads of loops ---- */

static bool meet(void *context, void *into, const void *other) {
    (void)context;
    return tvm_waits_add(into, other);
}

static void step(void *context, uint32_t at, void *state) {
    const kernel_state *k = context;
    const struct wgmma_plan *s = k->wgmma;
    if (tvm_insn_class(&k->kernel->insns[at]) == TVM_CLASS_LOOP) s->heads[at] = *(const wait_set *)state;
    tvm_waits_end(state, tvm_wgmma_may_be_pending(k, state, &k->kernel->insns[at]));
    if (s->role[at] != WGMMA_FIRST) return;
    tvm_waits_commit(state, s->product[at] - 1);
    if (s->products[s->product[at] - 1].is_paced) tvm_waits_end(state, 1);
}

/* A role waits for all at its beginning and at its end. */
static void leave_role(void *context, void *state) {
    (void)context;
    *(wait_set *)state = (wait_set){{0}};
}

tvm_status tvm_wgmma_plan_waits(kernel_state *k) {
    const tvm_paths paths = {.kernel = k->kernel,
                             .context = k,
                             .size = sizeof(wait_set),
                             .meet = meet,
                             .step = step,
                             .leave_role = leave_role};
    struct wgmma_plan *s = k->wgmma;
    if (!s->used) return TVM_OK;
    tvm_status status = tvm_wgmma_find_makers(k);
    if (status != TVM_OK) return status;
    s->heads = calloc(k->kernel->insn_count + (size_t)1, sizeof *s->heads);
    return s->heads && tvm_paths_walk(&paths) ? TVM_OK : tvm_diag_no_memory(k->diags);
}
