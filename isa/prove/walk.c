/* Explores the states of each team. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- sets of byte strings ---- */

static bool grow(prove_set *set) {
    uint32_t capacity = set->capacity ? 2 * set->capacity : 256;
    struct prove_string *strings = calloc(capacity, sizeof *strings);
    if (!strings) return false;
    for (uint32_t i = 0; i < set->capacity; i++) {
        if (!set->strings[i].bytes) continue;
        uint32_t at = (uint32_t)XXH3_64bits(set->strings[i].bytes, set->strings[i].size) & (capacity - 1);
        while (strings[at].bytes) at = (at + 1) & (capacity - 1);
        strings[at] = set->strings[i];
    }
    free(set->strings);
    set->strings = strings;
    set->capacity = capacity;
    return true;
}

uint32_t tvm_prove_set_number(prover *p, prove_set *set, const void *bytes, size_t size) {
    if (2 * set->count >= set->capacity && !grow(set)) {
        p->no_memory = true;
        return TVM_NONE;
    }
    uint32_t mask = set->capacity - 1, at = (uint32_t)XXH3_64bits(bytes, size) & mask;
    for (; set->strings[at].bytes; at = (at + 1) & mask)
        if (set->strings[at].size == size && memcmp(set->strings[at].bytes, bytes, size) == 0)
            return set->strings[at].number;
    uint8_t *copy = malloc(size);
    if (!copy) {
        p->no_memory = true;
        return TVM_NONE;
    }
    memcpy(copy, bytes, size);
    set->strings[at] = (struct prove_string){copy, (uint32_t)size, set->count};
    return set->count++;
}

bool tvm_prove_set_add(prover *p, prove_set *set, const void *bytes, size_t size) {
    uint32_t count = set->count;
    return tvm_prove_set_number(p, set, bytes, size) == count && !p->no_memory;
}

void tvm_prove_set_clear(prove_set *set) {
    for (uint32_t i = 0; i < set->capacity; i++) free(set->strings[i].bytes);
    free(set->strings);
    *set = (prove_set){0};
}

/* ---- states ---- */

bool tvm_prove_copy_state(prover *p, prove_state *to, const prove_state *from) {
    size_t values = p->scalar_count * sizeof *to->values, records = from->record_count * sizeof *to->records;
    *to = *from;
    to->values = malloc(values + 1);
    to->records = malloc(records + 1);
    to->record_capacity = from->record_count;
    if (!to->values || !to->records) {
        free(to->values);
        free(to->records);
        to->values = NULL;
        to->records = NULL;
        p->no_memory = true;
        return false;
    }
    if (values) memcpy(to->values, from->values, values);
    if (records) memcpy(to->records, from->records, records);
    return true;
}

void tvm_prove_free_state(prove_state *state) {
    free(state->values);
    free(state->records);
}

/* Where a team is, with what it knows; which accesses it has been there with is kept apart. */
static uint32_t number_of(prover *p, uint32_t context, const prove_state *state) {
    uint64_t head[3] = {(uint64_t)context << 32 | state->at, state->held, state->sure};
    size_t values = p->scalar_count * sizeof *state->values;
    uint8_t *bytes = malloc(sizeof head + values);
    if (!bytes) {
        p->no_memory = true;
        return TVM_NONE;
    }
    memcpy(bytes, head, sizeof head);
    if (values) memcpy(bytes + sizeof head, state->values, values);
    uint32_t number = tvm_prove_set_number(p, &p->visited, bytes, sizeof head + values);
    free(bytes);
    return number;
}

/* Has the team been in the state before? What becomes of an access depends on where the team is and what it
 * knows, not on its other accesses: those that it has been here with before are left out, and if that is all
 * of them the path has been looked at, in parts. */
static bool is_new(prover *p, uint32_t context, prove_state *state) {
    struct {
        uint32_t number, padding;
        prove_record record;
    } pair;
    const uint32_t before = p->visited.count, number = number_of(p, context, state);
    uint32_t kept = 0;
    memset(&pair, 0, sizeof pair);
    pair.number = number;
    for (uint32_t r = 0; r < state->record_count && !p->no_memory; r++) {
        pair.record = state->records[r];
        if (tvm_prove_set_add(p, &p->met, &pair, sizeof pair)) state->records[kept++] = pair.record;
    }
    tvm_prove_charge(p, 10 + p->scalar_count * sizeof *state->values / 8 + 4 * (uint64_t)state->record_count);
    state->record_count = kept;
    return !p->no_memory && (number == before || kept > 0);
}

/* ---- paths ---- */

typedef struct paths {
    prover *p;
    uint32_t context;
    prove_state *waiting; /* a stack */
    uint32_t count, capacity;
} paths;

static void push(paths *w, const prove_state *state, uint32_t at) {
    if (w->count == w->capacity) {
        uint32_t capacity = w->capacity ? 2 * w->capacity : 16;
        prove_state *waiting = realloc(w->waiting, capacity * sizeof *waiting);
        if (!waiting) {
            w->p->no_memory = true;
            return;
        }
        w->waiting = waiting;
        w->capacity = capacity;
    }
    if (!tvm_prove_copy_state(w->p, &w->waiting[w->count], state)) return;
    w->waiting[w->count].sure = false;
    w->waiting[w->count++].at = at;
}

void tvm_prove_forget(prover *p, prove_state *state, uint32_t slot) {
    if (slot != TVM_NONE && p->tracked[slot] >= 0) state->values[p->tracked[slot]] = (prove_value){0};
}

void tvm_prove_leave_loop(prover *p, prove_state *state, uint32_t loop) {
    tvm_prove_forget(p, state, p->kernel->insns[loop].result);
    tvm_prove_move_records(p, state, loop, true);
    state->at = behind(p->kernel->insns[loop].match);
}

/* At the head of a loop, with the variable of the turn. False: the path has been looked at. */
static bool turn(paths *w, prove_state *state, uint32_t at) {
    prover *p = w->p;
    const tvm_insn *loop = &p->kernel->insns[at];
    if (!is_new(p, w->context, state)) return false;
    int more = tvm_prove_goes_on(p, state, loop);
    if (more < 0) {
        push(w, state, behind(loop->match));
        if (!p->no_memory) tvm_prove_leave_loop(p, &w->waiting[w->count - 1], at);
        state->sure = false;
    }
    if (more == 0)
        tvm_prove_leave_loop(p, state, at);
    else
        state->at = behind(at);
    return true;
}

void tvm_prove_enter_loop(prover *p, prove_state *state, uint32_t at) {
    const tvm_insn *loop = &p->kernel->insns[at];
    tvm_prove_move_records(p, state, at,
                           true); /* of a time before, that was left by way of a loop around it */
    if (loop->op == TVM_OP_FOR)
        tvm_prove_assign(p, state, loop->result, tvm_prove_first_turn(p, state, loop));
    state->at = 2 * at + 1;
}

void tvm_prove_turn_loop(prover *p, prove_state *state, uint32_t at) {
    const tvm_insn *loop = &p->kernel->insns[at];
    if (loop->op == TVM_OP_FOR) tvm_prove_assign(p, state, loop->result, tvm_prove_next_turn(p, state, loop));
    tvm_prove_move_records(p, state, at, false);
    state->at = 2 * at + 1;
}

static void branch(paths *w, prove_state *state, uint32_t at) {
    const tvm_insn *insn = &w->p->kernel->insns[at];
    prove_value condition = tvm_prove_eval(w->p, state, tvm_operands(w->p->kernel, insn)[0].value);
    if (condition.kind == PROVE_EXACT) {
        state->at = condition.v ? behind(at) : behind(insn->match);
        return;
    }
    push(w, state, behind(insn->match));
    state->sure = false;
    state->at = behind(at);
}

static bool close(paths *w, prove_state *state, uint32_t at) {
    uint32_t opener = w->p->kernel->insns[at].match;
    if (tvm_insn_class(&w->p->kernel->insns[opener]) == TVM_CLASS_LOOP) {
        tvm_prove_turn_loop(w->p, state, opener);
        return true;
    }
    state->at = behind(at);
    return is_new(w->p, w->context, state);
}

/* May the instruction wait for what other teams, or other blocks, do? */
static bool waits(const prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    return insn->op == TVM_OP_WAIT_BARRIER || insn->op == TVM_OP_SYNC_BARRIER ||
           tvm_prove_meets_pair(p, at) || (insn->op == TVM_OP_SYNC_CLUSTER && p->out_of_step) ||
           tvm_op(insn->op)->effects & TVM_EFFECT_WAIT;
}

/* The block's scalars are where each team of the role begins. Where one of them waits, it is not sure that
 * the block comes to what is behind. */
static void begin_role(prover *p, prove_state *state, uint32_t at) {
    for (uint32_t c = 1; c < p->context_count && !p->no_memory; c++) {
        prove_context *context = &p->contexts[c];
        if (context->role != at) continue;
        prove_state *starts = realloc(context->starts, (context->start_count + 1) * sizeof *starts);
        if (!starts) {
            p->no_memory = true;
            return;
        }
        context->starts = starts;
        prove_state *start = &starts[context->start_count];
        if (!tvm_prove_copy_state(p, start, state)) return;
        context->start_count++;
        start->record_count = 0;
        start->held = tvm_prove_held_first(p, c);
        start->at = 2 * context->from;
        tvm_prove_assign(p, start, p->kernel->insns[at].result, tvm_prove_exact(context->index));
    }
    if (!p->gathers) tvm_prove_begin_role(p, state, p->groups[at] / 2);
    for (uint32_t i = at; i < p->kernel->insns[at].match; i++) state->sure = state->sure && !waits(p, i);
    state->at = behind(p->kernel->insns[at].match);
}

static void step(paths *w, prove_state *state, uint32_t at) {
    prover *p = w->p;
    const tvm_insn *insn = &p->kernel->insns[at];
    tvm_op_class class = tvm_insn_class(insn);
    tvm_prove_access(p, w->context, state, at);
    if (class == TVM_CLASS_ORDER) tvm_prove_order(p, w->context, state, at);
    if (insn->op == TVM_OP_FREE_SHARED && !p->gathers) tvm_prove_frees(p, state, at);
    if (insn->op == TVM_OP_LET && state->record_count) tvm_prove_drop_bounds(p, state, insn->result);
    if (insn->op == TVM_OP_LET && p->tracked[insn->result] >= 0)
        tvm_prove_assign(p, state, insn->result,
                         tvm_prove_eval(p, state, tvm_operands(p->kernel, insn)[0].value));
    else
        tvm_prove_forget(p, state, insn->result);
    if (tvm_op(insn->op)->effects & TVM_EFFECT_WAIT || tvm_prove_meets_pair(p, at) ||
        (insn->op == TVM_OP_SYNC_CLUSTER && p->out_of_step))
        state->sure = false;
    state->at = behind(at);
}

/* False: the path ends here. */
static bool go(paths *w, prove_state *state) {
    prover *p = w->p;
    uint32_t at = state->at / 2;
    const tvm_insn *insn = &p->kernel->insns[at];
    if (tvm_insn_class(insn) <= TVM_CLASS_BRANCH && !p->bears[at]) {
        state->at = behind(tvm_prove_end_of(p->kernel, at));
        state->sure = false; /* it may be a loop without end */
        return true;
    }
    switch (tvm_insn_class(insn)) {
    case TVM_CLASS_LOOP:
        if (state->at & 1) return turn(w, state, at);
        tvm_prove_enter_loop(p, state, at);
        if (p->runs && p->runs[at]) state->at = behind(at);
        return true;
    case TVM_CLASS_BRANCH:
        branch(w, state, at);
        return true;
    case TVM_CLASS_ELSE:
        state->at = 2 * insn->match;
        return true;
    case TVM_CLASS_END:
        return close(w, state, at);
    case TVM_CLASS_SECTION:
        begin_role(p, state, at);
        return true;
    case TVM_CLASS_JUMP:
        if (insn->op == TVM_OP_BREAK)
            tvm_prove_leave_loop(p, state, insn->match);
        else
            tvm_prove_turn_loop(p, state, insn->match);
        return true;
    case TVM_CLASS_EXIT:
        return false;
    default:
        step(w, state, at);
        if (insn->op == TVM_OP_ASSERT) return tvm_prove_learn(p, state, insn);
        return insn->op != TVM_OP_TRAP;
    }
}

void tvm_prove_allow(prover *p, uint64_t work) {
    p->proof->steps += work;
    p->most_work += work;
}

void tvm_prove_charge(prover *p, uint64_t work) {
    p->proof->steps += work;
    if (p->proof->steps > p->most_work) p->too_long = true;
}

static bool goes_on(prover *p) {
    tvm_prove_charge(p, 1);
    return !p->no_memory && !p->restart && !p->too_long;
}

/* What a team has started and nobody has waited for where it ends; rings that it has not let go of. */
static void check_end(prover *p, uint32_t context, const prove_state *state) {
    for (uint32_t t = 0; t < p->token_count && !p->gathers; t++)
        if (p->tokens[t].producers >> context & 1) p->drained &= ~(state->held & UINT64_C(1) << t);
    for (uint32_t r = 0; r < state->record_count && !p->gathers; r++) {
        const prove_site *site = &p->sites[p->places[state->records[r].place].site];
        if (site->actor != PROVE_BULK) continue;
        uint64_t own = state->records[r].marks & p->rings;
        if (!own)
            tvm_prove_fail(p, &p->proof->deadlocks, TVM_NOT_PROVED, site->insn, TVM_NONE,
                           "the block may end before somebody has waited for the bytes of %s",
                           tvm_prove_mnemonic(p, site->insn));
    }
}

static void walk_from(prover *p, uint32_t context, const prove_state *start) {
    paths w = {.p = p, .context = context};
    uint32_t end = p->contexts[context].end;
    push(&w, start, start->at);
    if (w.count) w.waiting[0].sure = start->sure;
    while (w.count && goes_on(p)) {
        prove_state state = w.waiting[--w.count];
        bool ends = false;
        while (goes_on(p) && !(ends = state.at / 2 >= end) && go(&w, &state)) continue;
        if (ends || (state.at / 2 < end && p->kernel->insns[state.at / 2].op == TVM_OP_EXIT))
            check_end(p, context, &state);
        tvm_prove_free_state(&state);
    }
    while (w.count) tvm_prove_free_state(&w.waiting[--w.count]);
    free(w.waiting);
}

void tvm_prove_walk(prover *p) {
    prove_state start = {.sure = true};
    start.values = calloc(p->scalar_count + (size_t)1, sizeof *start.values);
    if (!start.values) {
        p->no_memory = true;
        return;
    }
    walk_from(p, 0, &start);
    for (uint32_t c = 1; c < p->context_count; c++)
        for (uint32_t s = 0; s < p->contexts[c].start_count && goes_on(p); s++)
            walk_from(p, c, &p->contexts[c].starts[s]);
    tvm_prove_free_state(&start);
}
