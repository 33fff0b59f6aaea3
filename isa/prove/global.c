/* Races on global memory: all pairs of accesses of a kernel. See global_impl.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "global_impl.h"

static tvm_proof_part *part_of(const global_prover *g) {
    return &g->p->proof->global;
}

/* ---- what orders them ---- */

static bool is_atomic(global_mode mode) {
    return mode == GLOBAL_ATOMIC || mode == GLOBAL_ATOMIC_BLOCK || mode == GLOBAL_SEMAPHORE;
}

/* Is the tensor zero at first, so that nothing is taken of it but what was put? */
static bool is_clean(const global_prover *g, uint32_t root) {
    bool clean = false;
    for (uint32_t i = 0; i < g->kernel->insn_count && root >= g->kernel->param_count; i++)
        clean =
            clean || (g->kernel->insns[i].op == TVM_OP_ALLOC_GLOBAL && g->kernel->insns[i].result == root &&
                      tvm_operands(g->kernel, &g->kernel->insns[i])[0].kind != TVM_OPERAND_NONE);
    return clean;
}

/* Each element of a clean tensor is put once, as is shown of put-global, so taken once, and after that. */
static bool is_passed_on(const global_prover *g, const global_site *a, const global_site *b) {
    bool takes = a->mode == GLOBAL_TAKE || b->mode == GLOBAL_TAKE,
         others = (a->mode != GLOBAL_TAKE && a->mode != GLOBAL_PUT) ||
                  (b->mode != GLOBAL_TAKE && b->mode != GLOBAL_PUT);
    return takes && !others && is_clean(g, a->root);
}

static bool conflict(const global_site *a, const global_site *b, global_apart how) {
    if (a->mode == GLOBAL_READ && b->mode == GLOBAL_READ) return false;
    if (!is_atomic(a->mode) || !is_atomic(b->mode)) return true;
    return how == GLOBAL_BLOCKS && (a->mode == GLOBAL_ATOMIC_BLOCK || b->mode == GLOBAL_ATOMIC_BLOCK);
}

/* May the second come after the first without a sync? Copies of a pipelined loop run ahead of the text. */
static bool reaches(const global_prover *g, const global_site *a, const global_site *b, unsigned bit) {
    size_t i = (size_t)(a - g->sites), j = (size_t)(b - g->sites);
    bool ahead = (a->async && a->mode == GLOBAL_READ) || (b->async && b->mode == GLOBAL_READ);
    return ahead || g->reach[i * g->site_count + j] & bit || g->reach[j * g->site_count + i] & bit;
}

static bool several_teams(const global_prover *g, const global_site *a, const global_site *b) {
    if (a->role != b->role) return reaches(g, a, b, GLOBAL_REACHES);
    if (a->role == TVM_NONE) return false;
    const tvm_role role = tvm_role_of(g->kernel, &g->kernel->insns[a->role]);
    return tvm_role_teams(&role) > 1;
}

/* Each thread has the same elements of both, and those that have one together wrote one value. */
static bool is_own(const global_prover *g, const global_site *a, const global_site *b) {
    if (!a->layout || !b->layout || a->async || b->async || !tvm_layout_equal(a->layout, b->layout))
        return false;
    if (tvm_layout_replication(a->layout) == 1) return true;
    if (a->mode == GLOBAL_READ) {
        const global_site *swap = a;
        a = b;
        b = swap;
    }
    size_t i = (size_t)(a - g->sites), j = (size_t)(b - g->sites);
    return a->mode == GLOBAL_WRITE && b->mode == GLOBAL_READ &&
           !(g->reach[j * g->site_count + i] & GLOBAL_REACHES_TEAM);
}

/* ---- semaphores ---- */

/* Does the path of `insn` go through `other`, too, wherever it comes from or goes to? */
static bool is_along(const global_prover *g, uint32_t insn, uint32_t other) {
    uint32_t at = g->around[insn];
    while (at != TVM_NONE && at != g->around[other]) at = g->around[at];
    return at == g->around[other];
}

static bool orders(const global_prover *g, uint32_t insn, bool release) {
    const tvm_insn *of = &g->kernel->insns[insn];
    unsigned effects = tvm_op(of->op)->effects;
    bool is_lock = effects & TVM_EFFECT_READ_GLOBAL;
    if (tvm_insn_class(of) == TVM_CLASS_ORDER)
        return (effects & (TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_WRITE_GLOBAL)) && is_lock == !release;
    const tvm_operand *order = tvm_global_entry(g, of, "M");
    if (!order || order->kind != TVM_OPERAND_CONST) return false;
    return order->value == TVM_ORDER_ACQ_REL ||
           order->value == (release ? TVM_ORDER_RELEASE : TVM_ORDER_ACQUIRE);
}

/* The lock before it, or the release behind it; TVM_NONE. */
static uint32_t semaphore_of(const global_prover *g, const global_site *site, bool release) {
    uint32_t found = TVM_NONE;
    for (uint32_t i = 0; i < g->kernel->insn_count && found == TVM_NONE; i++) {
        bool there = release ? i > site->insn : i < site->insn;
        if (there && orders(g, i, release) && is_along(g, site->insn, i)) found = i;
    }
    tvm_prove_charge(g->p, g->kernel->insn_count / 4);
    return found;
}

/* The lock that orders them, if it waits for the release of the other. */
static uint32_t lock_of(const global_prover *g, const global_site *a, const global_site *b) {
    uint32_t lock = semaphore_of(g, b, false);
    if (lock == TVM_NONE || semaphore_of(g, a, true) == TVM_NONE) return TVM_NONE;
    return lock;
}

/* ---- what is said ---- */

static const char *name_of(const global_prover *g, uint32_t slot) {
    return tvm_string(g->p->program, g->kernel->slots[slot].name);
}

/* One more condition, of which the text has each once. */
__attribute__((format(printf, 4, 5))) static void condition(const global_prover *g, uint32_t insn,
                                                            uint32_t other, const char *format, ...) {
    tvm_proof_part *part = part_of(g);
    char text[TVM_PROOF_TEXT / 2];
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (part->verdict > TVM_PROVED_IF || (part->verdict == TVM_PROVED_IF && strstr(part->text, text))) return;
    size_t length = strlen(part->text);
    bool fits = size >= 0 && (size_t)size < sizeof text &&
                length + sizeof ", and if " + (size_t)size < sizeof part->text;
    if (!fits)
        tvm_prove_fail(g->p, part, TVM_NOT_PROVED, insn, other, "it is on too many conditions");
    else if (part->verdict == TVM_PROVED)
        tvm_prove_fail(g->p, part, TVM_PROVED_IF, insn, other, "if %s", text);
    else
        snprintf(part->text + length, sizeof part->text - length, ", and if %.*s", size, text);
}

/* What the term comes from of which no more is known than that it is there; TVM_NONE. */
static uint32_t unknown_of(const global_prover *g, uint32_t term, unsigned depth) {
    const global_term *t = global_at(g, term);
    uint32_t unknown = TVM_NONE;
    if (t->uniform || depth == 0) return TVM_NONE;
    if (t->kind == GLOBAL_LOADED || t->kind == GLOBAL_OPAQUE) return term;
    for (uint32_t i = 0; t->kind == GLOBAL_SUM_OF && i < t->b && unknown == TVM_NONE; i++)
        unknown = unknown_of(g, g->parts[t->a + i].term, depth - 1);
    if (t->kind == GLOBAL_WRAP) return unknown_of(g, t->a, depth - 1);
    if (t->kind == GLOBAL_LOOP) return unknown_of(g, t->b, depth - 1);
    const tvm_expr node = {.op = t->op};
    const uint32_t operands[3] = {t->a, t->b, t->c};
    for (unsigned i = 0; t->kind == GLOBAL_OP && i < tvm_expr_arity(&node) && unknown == TVM_NONE; i++)
        unknown = unknown_of(g, operands[i], depth - 1);
    return unknown;
}

/* Why it is not known. */
static void add_reason(const global_prover *g, const global_site *site) {
    enum { DEPTH = 8 };
    uint32_t unknown = TVM_NONE;
    for (unsigned d = 0; d < site->rank && unknown == TVM_NONE; d++)
        if (site->index[d] != TVM_NONE) unknown = unknown_of(g, site->index[d], DEPTH);
    tvm_proof_part *part = part_of(g);
    size_t length = strlen(part->text), room = sizeof part->text - length;
    const global_term *t = unknown != TVM_NONE ? global_at(g, unknown) : NULL;
    if (t && t->kind == GLOBAL_LOADED)
        snprintf(part->text + length, room, "; where that is depends on %s, line %u",
                 tvm_prove_mnemonic(g->p, t->a), (unsigned)tvm_prove_line(g->p, t->a));
    else if (t)
        snprintf(part->text + length, room,
                 "; where that is depends on %%%s, which paths that meet in line %u leave open",
                 name_of(g, t->b), (unsigned)tvm_prove_line(g->p, t->a));
    else if (site->scattered)
        snprintf(part->text + length, room, "; where that is depends on tensors of indices");
}

static void missing(const global_prover *g, const global_site *a, const global_site *b, const char *who) {
    if (part_of(g)->verdict >= TVM_NOT_PROVED) return;
    if (a == b)
        tvm_prove_fail(g->p, part_of(g), TVM_NOT_PROVED, a->insn, a->insn,
                       "nothing shows that %s has elements of %s of its own for %s",
                       tvm_prove_mnemonic(g->p, a->insn), name_of(g, a->root), who);
    else
        tvm_prove_fail(g->p, part_of(g), TVM_NOT_PROVED, b->insn, a->insn,
                       "nothing shows that %s and %s, line %u, have other elements of %s, for %s",
                       tvm_prove_mnemonic(g->p, b->insn), tvm_prove_mnemonic(g->p, a->insn),
                       (unsigned)tvm_prove_line(g->p, a->insn), name_of(g, a->root), who);
    add_reason(g, b);
}

static bool is_masked(const global_prover *g, const tvm_insn *insn) {
    const char *cursor = tvm_op(insn->op)->operands;
    const tvm_operand *operands = tvm_operands(g->kernel, insn);
    uint32_t at = 0;
    for (tvm_operand_desc desc; at < insn->count && tvm_operand_next(&cursor, &desc);) {
        if (!desc.stored) continue;
        if (desc.kind == 'r' && desc.optional && operands[at].kind != TVM_OPERAND_NONE) return true;
        at += tvm_entry_operands(g->p->program, g->kernel, &desc, &operands[at]);
    }
    return false;
}

/* Does every block write the first elements of the tensor, whatever happens before? */
static bool is_common(const global_prover *g, const global_site *site) {
    bool certain = site->mode == GLOBAL_WRITE && !site->scattered && !site->async &&
                   site->around == TVM_NONE && site->guards == 0 && site->root == site->tensor &&
                   !is_masked(g, &g->kernel->insns[site->insn]);
    for (uint32_t i = 0; i < site->insn && certain; i++) {
        tvm_op_class class = tvm_insn_class(&g->kernel->insns[i]);
        certain = class != TVM_CLASS_EXIT && g->kernel->insns[i].op != TVM_OP_WHILE &&
                  g->kernel->insns[i].op != TVM_OP_TRAP &&
                  !(tvm_op(g->kernel->insns[i].op)->effects & TVM_EFFECT_WAIT) && !orders(g, i, false);
    }
    for (unsigned d = 0; d < site->rank && certain; d++)
        certain = site->index[d] != TVM_NONE && global_at(g, site->index[d])->kind == GLOBAL_CONST &&
                  global_at(g, site->index[d])->k == 0;
    return certain;
}

static void unordered_blocks(const global_prover *g, const global_site *a, const global_site *b) {
    uint32_t lock = lock_of(g, a, b);
    if (lock == TVM_NONE || a == b) lock = lock == TVM_NONE && a != b ? lock_of(g, b, a) : lock;
    if (lock != TVM_NONE) {
        condition(g, lock, a->insn, "%s, line %u, waits for a release after what others write to %s",
                  tvm_prove_mnemonic(g->p, lock), (unsigned)tvm_prove_line(g->p, lock), name_of(g, a->root));
    } else if (a == b && is_common(g, a)) {
        tvm_prove_fail(g->p, part_of(g), TVM_REFUTED, a->insn, a->insn,
                       "%s writes the same elements of %s in every block: a race where there are two",
                       tvm_prove_mnemonic(g->p, a->insn), name_of(g, a->root));
    } else {
        missing(g, a, b, "each block");
    }
}

static void say_condition(const global_prover *g, const global_site *a, const global_answer *answer) {
    if (answer->load != TVM_NONE)
        condition(g, answer->load, a->insn,
                  "what %s, line %u, reads of other elements, or in other blocks, differs",
                  tvm_prove_mnemonic(g->p, answer->load), (unsigned)tvm_prove_line(g->p, answer->load));
    if (answer->wraps)
        condition(g, a->insn, TVM_NONE, "no index of %s, line %u, wraps", tvm_prove_mnemonic(g->p, a->insn),
                  (unsigned)tvm_prove_line(g->p, a->insn));
}

/* ---- pairs ---- */

static bool is_one_scatter(const global_site *a, const global_site *b) {
    return a == b && a->scattered;
}

/* False: nothing more can be said. */
static void compare_blocks(global_prover *g, const global_site *a, const global_site *b) {
    const global_answer answer = tvm_global_compare(g, a, b, GLOBAL_BLOCKS);
    if (answer.apart)
        say_condition(g, a, &answer);
    else if (!is_one_scatter(a, b)) /* what it names is said to differ */
        unordered_blocks(g, a, b);
}

static void compare_teams(global_prover *g, const global_site *a, const global_site *b) {
    const global_answer answer = tvm_global_compare(g, a, b, GLOBAL_TEAMS);
    if (answer.apart)
        say_condition(g, a, &answer);
    else if (!is_one_scatter(a, b))
        missing(g, a, b, "each team");
}

static void compare_turns(global_prover *g, const global_site *a, const global_site *b) {
    const global_answer answer = tvm_global_compare(g, a, b, GLOBAL_TURNS);
    if (answer.apart)
        say_condition(g, a, &answer);
    else if (!is_one_scatter(a, b) && !(answer.same_place && is_own(g, a, b)))
        missing(g, a, b, a == b ? "each turn" : "threads without a sync in between");
}

static void compare(global_prover *g, const global_site *a, const global_site *b) {
    bool teams = conflict(a, b, GLOBAL_TEAMS) && several_teams(g, a, b);
    bool turns = conflict(a, b, GLOBAL_TURNS) && a->role == b->role && reaches(g, a, b, GLOBAL_REACHES_TEAM);
    if (is_passed_on(g, a, b) || (!conflict(a, b, GLOBAL_BLOCKS) && !teams && !turns)) return;
    if (a->unclear || b->unclear || a->space != b->space) {
        tvm_prove_fail(g->p, part_of(g), TVM_NOT_PROVED, b->insn, a->insn,
                       "%s and %s, line %u, access %s by views whose places are not compared",
                       tvm_prove_mnemonic(g->p, b->insn), tvm_prove_mnemonic(g->p, a->insn),
                       (unsigned)tvm_prove_line(g->p, a->insn), name_of(g, a->root));
        return;
    }
    if (a->strided)
        condition(g, a->insn, TVM_NONE, "the strides of %s keep its elements apart", name_of(g, a->space));
    if (is_one_scatter(a, b) && conflict(a, b, GLOBAL_BLOCKS) && a->mode != GLOBAL_READ)
        condition(g, a->insn, TVM_NONE, "%s names different elements of %s",
                  tvm_prove_mnemonic(g->p, a->insn), name_of(g, a->root));
    if (conflict(a, b, GLOBAL_BLOCKS)) compare_blocks(g, a, b);
    if (teams) compare_teams(g, a, b);
    if (turns) compare_turns(g, a, b);
}

static void compare_all(global_prover *g) {
    for (uint32_t i = 0; i < g->site_count; i++)
        for (uint32_t j = i; j < g->site_count; j++) {
            tvm_prove_charge(g->p, 1);
            if (g->p->no_memory || g->p->too_long || part_of(g)->verdict == TVM_REFUTED) return;
            if (g->sites[i].root == g->sites[j].root) compare(g, &g->sites[i], &g->sites[j]);
        }
}

static void end(global_prover *g) {
    free(g->terms);
    free(g->parts);
    free(g->buckets);
    free(g->env);
    free(g->views);
    free(g->loads);
    free(g->around);
    free(g->stack);
    free(g->guards);
    free(g->sites);
    free(g->first_site);
    free(g->written);
    free(g->reach);
    free(g->memo);
}

void tvm_prove_global(prover *p) {
    global_prover g = {.p = p, .kernel = p->kernel};
    p->too_long = false;
    p->most_work = p->proof->steps + PROVE_WORK;
    bool found = tvm_global_find_sites(&g) && tvm_global_find_reach(&g);
    if (found) g.memo = malloc(g.term_count + (size_t)1);
    if (found && !g.memo) p->no_memory = true;
    if (found && g.memo) compare_all(&g);
    if (g.gave_up || p->too_long)
        tvm_prove_fail(p, &p->proof->global, TVM_NOT_PROVED, TVM_NONE, TVM_NONE,
                       "the kernel is too large to look at");
    end(&g);
}
