/* The choice of the kernel that a launch of an entry runs. */
#include "variants_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- room ---- */

tvm_status tvm_room_for(const tvm_room *room, uint32_t kernel, bool *fits, tvm_diags *diags) {
    uint64_t needs;
    *fits = true;
    if (!room->ask) return TVM_OK;
    tvm_room_answer answer = atomic_load_explicit(&room->answers[kernel], memory_order_relaxed);
    if (answer == TVM_ROOM_NOT_ASKED) {
        tvm_status status = room->ask(room->code, kernel, &needs, diags);
        if (status) return status;
        answer = needs <= room->has ? TVM_ROOM_FITS : TVM_ROOM_TOO_BIG;
        atomic_store_explicit(&room->answers[kernel], (unsigned char)answer, memory_order_relaxed);
    }
    *fits = answer == TVM_ROOM_FITS;
    return TVM_OK;
}

/* ---- making ---- */

/* The candidates whose costs are found with those of others, in runs: those of one that are met one behind
 * the other. */
static bool make_offers(tvm_variants *t) {
    uint32_t count = 0;
    t->offers = calloc(t->count + (size_t)1, sizeof *t->offers);
    if (!t->offers) return false;
    for (uint32_t i = 0; i < t->count; i++) { /* each after those that it leads to */
        decision *d = &t->decisions[i];
        uint16_t place;
        if (d->subject != CANDIDATE || d->offer == NO_OFFER) continue;
        d->offer = NO_OFFER;
        if (!tvm_values_place(t->values, (uint32_t)d->span, &place)) continue;
        const decision *next = &t->decisions[d->if_true];
        bool follows =
            count && next->subject == CANDIDATE && next->offer == count - 1 && next->group == d->group;
        d->offer = count;
        t->offers[count] = (offer){place, follows ? t->offers[count - 1].left + 1 : 0, d->of, d->if_true};
        count++;
    }
    return true;
}

/* The tests of the decisions that are expressions, of each expression one. The costs of candidates that are
 * met one behind the other belong together. */
static bool make_values(tvm_variants *t, const tvm_launch_env *env, const uint8_t *leaves) {
    const tvm_ir_kernel *head = &t->entry->head;
    uint32_t *of = calloc(3 * (size_t)t->count + head->expr_count + 1, sizeof *of), count = 0;
    if (!of) return false;
    uint32_t *roots = of + head->expr_count, *tests = roots + t->count, *together = tests + t->count;
    uint32_t next = NOBODY;                 /* decision behind the candidate that was met last */
    for (uint32_t i = t->count; i-- > 0;) { /* as they are met */
        decision *d = &t->decisions[i];
        bool goes_with = d->subject == CANDIDATE && next == i;
        d->offer = NO_OFFER;
        if (d->subject == CANDIDATE) next = d->if_true;
        if (!has_expression(d) || of[d->low]) continue;
        if (count) together[count] = together[count - 1] + !goes_with;
        d->group = together[count];
        roots[count++] = (uint32_t)d->low;
        of[d->low] = count;
    }
    bool made = tvm_values_make(head, env, leaves, roots, together, count, tests, &t->values);
    for (uint32_t i = 0; made && i < t->count; i++) {
        decision *d = &t->decisions[i];
        if (!has_expression(d)) continue;
        uint32_t root = of[d->low] - 1;
        bool of_group = d->subject == CANDIDATE && d->group == together[root];
        d->span = tests[root];
        d->offer = of_group && d->span != TVM_NO_TEST ? 0 : NO_OFFER;
    }
    free(of);
    return made && make_offers(t);
}

/* So many decisions are taken sooner than a choice is remembered. */
enum { NEAR = 8 };

/* Marks the parameters that the decisions read; false: out of memory. Operands come before their operators.
 */
static bool find_read(const tvm_variants *t, bool read[TVM_MAX_PARAMS], bool *expressions) {
    const tvm_ir_kernel *head = &t->entry->head;
    bool *used = calloc(head->expr_count + (size_t)1, sizeof *used);
    if (!used) return false;
    for (uint32_t i = 0; i < t->count; i++) {
        const decision *d = &t->decisions[i];
        if (d->subject != LEAST) *(has_expression(d) ? &used[d->low] : &read[d->param]) = true;
    }
    *expressions = false;
    for (uint32_t e = head->expr_count; e-- > 0;) {
        const tvm_expr *node = &head->exprs[e];
        if (!used[e]) continue;
        *expressions = true;
        if (node->op == TVM_EXPR_SLOT) read[node->a] = true;
        for (unsigned o = 0; o < tvm_expr_arity(node); o++) used[node->operands[o]] = true;
    }
    free(used);
    return true;
}

/* The parameters that the decisions read are what a choice is remembered by. */
static bool make_choices(tvm_variants *t) {
    bool read[TVM_MAX_PARAMS] = {false}, expressions;
    uint16_t params[TVM_MAX_PARAMS];
    uint32_t count = 0;
    if (!find_read(t, read, &expressions)) return false;
    for (uint32_t p = 0; p < t->entry->head.param_count; p++)
        if (read[p]) params[count++] = (uint16_t)p;
    if (count > TVM_CHOICE_PARAMS || (t->count <= NEAR && !expressions)) return true;
    t->choices = tvm_choices_make(params, count);
    return t->choices != NULL;
}

static bool make_table(tvm_variants *t, const tvm_launch_env *env) {
    uint8_t *leaves;
    if (!tvm_variants_make_chain(t, env, &leaves)) return false;
    bool made = make_values(t, env, leaves) && make_choices(t);
    free(leaves);
    return made;
}

tvm_status tvm_variants_make(const tvm_ir_program *program, const tvm_ir_entry *entry,
                             const tvm_launch_env *env, const tvm_room *room, tvm_variants **variants,
                             tvm_diags *diags) {
    tvm_variants *table = calloc(1, sizeof *table);
    *variants = NULL;
    if (!table) return tvm_diag_no_memory(diags);
    table->program = program;
    table->entry = entry;
    table->room = *room;
    if (!make_table(table, env)) {
        tvm_variants_free(table);
        return tvm_diag_no_memory(diags);
    }
    *variants = table;
    return TVM_OK;
}

void tvm_variants_free(tvm_variants *variants) {
    if (!variants) return;
    free(variants->decisions);
    free(variants->rest);
    free(variants->values);
    free(variants->offers);
    free(variants->choices);
    free(variants);
}

/* ---- what is possible ---- */

/* Marks where an end leads: past the cases that there is no room for. */
static tvm_status reach(const tvm_variants *t, uint32_t end, bool *reached, bool *possible,
                        tvm_diags *diags) {
    bool fits = false;
    while (end != NOBODY && end & CHOSEN && !fits) {
        uint32_t i = end & ~CHOSEN;
        tvm_status status = tvm_room_for(&t->room, t->entry->cases[i].kernel, &fits, diags);
        if (status) return status;
        if (fits) possible[i] = true;
        end = t->rest[i];
    }
    if (!fits && end != NOBODY) reached[end] = true;
    return TVM_OK;
}

tvm_status tvm_variants_possible(const tvm_variants *variants, bool *possible, tvm_diags *diags) {
    const tvm_variants *t = variants;
    bool *reached = calloc(t->count + (size_t)1, sizeof *reached);
    if (!reached) return tvm_diag_no_memory(diags);
    for (uint32_t i = 0; i < t->entry->case_count; i++) possible[i] = false;
    tvm_status status = reach(t, t->start, reached, possible, diags);
    bool decided = false; /* the choice has a case that always holds */
    for (uint32_t i = t->count; i-- > 0 && !status;) {
        const decision *d = &t->decisions[i];
        bool fits = false;
        if (!reached[i]) continue;
        if (d->subject == CANDIDATE)
            status = tvm_room_for(&t->room, t->entry->cases[d->of].kernel, &fits, diags);
        if (fits) possible[d->of] = true;
        decided = decided || (fits && d->always);
        if (!status && d->subject < CANDIDATE) status = reach(t, d->if_true, reached, possible, diags);
        if (!status && !(d->subject == LEAST && decided))
            status = reach(t, d->if_false, reached, possible, diags);
        decided = decided && d->subject != LEAST;
    }
    free(reached);
    return status;
}

/* ---- choosing ---- */

/* An expression as it is: what one has in common with others is evaluated once. */
static tvm_status evaluate(const tvm_variants *t, uint32_t expr, const tvm_launch_env *env,
                           tvm_eval_kept *kept, int64_t *result, tvm_why *why) {
    tvm_eval_env known = tvm_launch_eval_env(env);
    known.kept = kept;
    tvm_scalar value = {0};
    tvm_status status = tvm_expr_eval(&t->entry->head, expr, &known, &value, why);
    *result = value.i;
    return status;
}

/* Says why it cannot be evaluated. */
static tvm_status refuse_expression(const tvm_variants *t, const decision *d, const tvm_launch_env *env,
                                    tvm_diags *diags) {
    uint32_t expr = (uint32_t)d->low;
    int64_t value;
    tvm_why why = {""};
    evaluate(t, expr, env, NULL, &value, &why);
    tvm_text text = tvm_launch_expr_text(t->program, &t->entry->head, expr, env);
    tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "entry '%s': a %s, %s: %s",
                 tvm_string(t->program, t->entry->head.name), d->subject == CANDIDATE ? "cost" : "condition",
                 tvm_text_string(&text), why.text);
    tvm_text_free(&text);
    return TVM_ARGUMENT;
}

static inline bool in_range(const decision *d, const tvm_launch_env *env) {
    uint64_t value = env->scalars[d->param].u;
    if (d->subject == SIGNED_MODULO) value = (uint64_t)((int64_t)value % (int64_t)d->modulus);
    if (d->subject == UNSIGNED_MODULO) value %= d->modulus;
    return value - d->low <= d->span;
}

/* What is known of the arguments of one choice. */
typedef struct knowledge {
    bool begun, keeps; /* the run; what is kept */
    bool by_run;       /* the value that was found last is one of the run */
    uint32_t best;     /* of the candidates that were met: the one that costs least; NOBODY: there is none */
    int64_t least;     /* its cost */
    tvm_values_run run;
    tvm_eval_kept kept;
} knowledge;

/* False where the expression cannot be evaluated. */
static bool find_value(const tvm_variants *t, const decision *d, const tvm_launch_env *env, knowledge *known,
                       int64_t *value) {
    known->by_run = false;
    if (d->span != TVM_NO_TEST) {
        if (!known->begun) tvm_values_begin(t->values, env->scalars, &known->run);
        known->begun = true;
        known->by_run = tvm_values_find(t->values, &known->run, (uint32_t)d->span, value);
        if (known->by_run) return true;
    }
    if (!known->keeps) memset(known->kept.known, 0, sizeof known->kept.known);
    known->keeps = true;
    return evaluate(t, (uint32_t)d->low, env, &known->kept, value, NULL) == TVM_OK;
}

/* Has it been found that the case's kernel is too big? */
static inline bool is_too_big(const tvm_variants *t, uint32_t index) {
    return t->room.ask && atomic_load_explicit(&t->room.answers[t->entry->cases[index].kernel],
                                               memory_order_relaxed) == TVM_ROOM_TOO_BIG;
}

/* Of equals the first is met first. */
static void take_if_less(const tvm_variants *t, uint32_t index, int64_t cost, knowledge *known) {
    if ((known->best != NOBODY && known->least <= cost) || is_too_big(t, index)) return;
    known->best = index;
    known->least = cost;
}

/* The least of the offers from `first` down to `last`, which is met last; of equals the first. Without a
 * branch, as none could be foreseen. */
static const offer *least_offer(const offer *first, const offer *last, const int64_t *values) {
    const offer *best = first;
    int64_t least = values[first->place];
    for (const offer *o = first; o > last;) {
        o--;
        int64_t cost = values[o->place];
        best = cost < least ? o : best;
        least = cost < least ? cost : least;
    }
    return best;
}

/* Offers the candidate whose cost has been found, and those behind it whose costs were found with it. */
static uint32_t offer_all(const tvm_variants *t, const decision *d, int64_t cost, knowledge *known) {
    if (d->offer == NO_OFFER || !known->by_run) {
        take_if_less(t, d->of, cost, known);
        return d->if_true;
    }
    const int64_t *values = known->run.values;
    const offer *first = &t->offers[d->offer],
                *last = first - first->left; /* the next ones stand before it */
    const offer *best = least_offer(first, last, values);
    if (!is_too_big(t, best->of)) {
        take_if_less(t, best->of, values[best->place], known);
        return last->next;
    }
    for (const offer *o = first + 1; o > last;) {
        o--;
        take_if_less(t, o->of, values[o->place], known);
    }
    return last->next;
}

/* Where the choice among costs leads: to the least candidate, to what follows where there is none, and once
 * more to its beginning where the least one is found to be too big, which then is no candidate. So rooms are
 * asked for of as few kernels as possible. */
static tvm_status take_least(const tvm_variants *t, const decision *d, knowledge *known, uint32_t *at,
                             tvm_diags *diags) {
    uint32_t best = known->best;
    bool fits;
    *at = d->if_false;
    if (best == NOBODY) return TVM_OK;
    tvm_status status = tvm_room_for(&t->room, t->entry->cases[best].kernel, &fits, diags);
    *at = fits ? CHOSEN | best : d->if_true;
    known->best = NOBODY;
    return status;
}

/* One decision. The conditions and costs of cases that there is no room for need not have a value. */
static tvm_status step(const tvm_variants *t, const tvm_launch_env *env, knowledge *known, uint32_t *at,
                       tvm_diags *diags) {
    const decision *d = &t->decisions[*at];
    int64_t value;
    bool fits;
    if (d->subject == LEAST) return take_least(t, d, known, at, diags);
    if (d->subject < EXPRESSION || find_value(t, d, env, known, &value)) {
        if (d->subject < EXPRESSION) value = in_range(d, env);
        *at = value ? d->if_true : d->if_false;
        if (d->subject == CANDIDATE) *at = offer_all(t, d, value, known);
        return TVM_OK;
    }
    tvm_status status = tvm_room_for(&t->room, t->entry->cases[d->of].kernel, &fits, diags);
    if (status) return status;
    if (fits) return refuse_expression(t, d, env, diags);
    *at = t->rest[d->of];
    return TVM_OK;
}

/* From `at` on to an end. */
static tvm_status follow(const tvm_variants *t, const tvm_launch_env *env, knowledge *known, uint32_t *at,
                         tvm_diags *diags) {
    tvm_status status = TVM_OK;
    while (!(*at & CHOSEN) && !status) status = step(t, env, known, at, diags);
    return status;
}

/* As far as the first end whose case there is room for. */
static tvm_status search(const tvm_variants *t, const tvm_launch_env *env, uint32_t at, uint32_t *index,
                         tvm_diags *diags) {
    knowledge known;
    known.begun = known.keeps = known.by_run = false;
    known.best = NOBODY;
    for (bool fits = false;;) {
        tvm_status status = follow(t, env, &known, &at, diags);
        if (status) return status;
        if (at == NOBODY) return tvm_variants_refuse(t->program, t->entry, env, &t->room, diags);
        *index = at & ~CHOSEN;
        status = tvm_room_for(&t->room, t->entry->cases[*index].kernel, &fits, diags);
        if (status || fits) return status;
        at = t->rest[*index];
    }
}

/* Has it been found that there is room for the case's kernel? */
static inline bool is_roomy(const tvm_variants *t, uint32_t index) {
    return !t->room.ask || atomic_load_explicit(&t->room.answers[t->entry->cases[index].kernel],
                                                memory_order_relaxed) == TVM_ROOM_FITS;
}

tvm_status tvm_variants_choose(const tvm_variants *variants, const tvm_launch_env *env, uint32_t *index,
                               tvm_diags *diags) {
    const tvm_variants *t = variants;
    uint32_t at = t->start;
    for (unsigned i = 0; i < NEAR && !(at & CHOSEN) && t->decisions[at].subject < EXPRESSION; i++)
        at = in_range(&t->decisions[at], env) ? t->decisions[at].if_true : t->decisions[at].if_false;
    if (at != NOBODY && at & CHOSEN && is_roomy(t, at & ~CHOSEN)) {
        *index = at & ~CHOSEN;
        return TVM_OK;
    }
    if (t->choices && tvm_choices_find(t->choices, env->scalars, index)) return TVM_OK;
    uint32_t found;
    tvm_status status = search(t, env, at, &found, diags);
    if (status) return status;
    *index = found;
    if (t->choices) tvm_choices_note(t->choices, env->scalars, found);
    return TVM_OK;
}
