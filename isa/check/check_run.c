/* Goes through a kernel, team by team, from one invariant of the certificate to the next. */
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"

/* ---- what can be passed over ---- */

uint32_t tvm_check_end_of(const tvm_ir_kernel *kernel, uint32_t opener) {
    uint32_t end = kernel->insns[opener].match;
    return tvm_insn_class(&kernel->insns[end]) == TVM_CLASS_ELSE ? kernel->insns[end].match : end;
}

/* Does the instruction touch or order shared memory, assign a scalar that is followed, or leave by another
 * way than that from `from` to `end`? */
static bool does_matter(const checker *c, uint32_t i, uint32_t from, uint32_t end) {
    const tvm_insn *insn = &c->kernel->insns[i];
    tvm_op_class class = tvm_insn_class(insn);
    if (class == TVM_CLASS_ORDER || class == TVM_CLASS_SECTION || class == TVM_CLASS_EXIT ||
        class == TVM_CLASS_FREE || insn->op == TVM_OP_TRAP || c->first_site[i] != c->first_site[i + 1])
        return true;
    if (class == TVM_CLASS_JUMP && (insn->match < from || insn->match > end)) return true;
    return insn->result != TVM_NONE && c->scalar_of[insn->result] >= 0;
}

/* By opener. That a loop ends is no claim. */
static void find_matters(checker *c) {
    for (uint32_t i = 0; i < c->kernel->insn_count; i++) {
        tvm_op_class class = tvm_insn_class(&c->kernel->insns[i]);
        if (class != TVM_CLASS_LOOP && class != TVM_CLASS_BRANCH) continue;
        uint32_t end = tvm_check_end_of(c->kernel, i);
        for (uint32_t j = i; j <= end && !c->matters[i]; j++) c->matters[i] = does_matter(c, j, i, end);
    }
}

/* ---- states ---- */

void tvm_check_push(checker *c, const check_state *state) {
    if (c->waiting_count == c->waiting_capacity) {
        uint32_t capacity = c->waiting_capacity ? 2 * c->waiting_capacity : 64;
        check_state *waiting = realloc(c->waiting, capacity * sizeof *waiting);
        if (!waiting) {
            c->no_memory = c->over = true;
            return;
        }
        c->waiting = waiting;
        c->waiting_capacity = capacity;
    }
    c->waiting[c->waiting_count++] = *state;
    tvm_check_charge(c, 4);
}

/* Has the team been in the state before? What follows then has been looked at. */
static bool is_new(checker *c, const check_state *state) {
    bool is;
    size_t size = offsetof(check_state, values) + c->scalar_count * sizeof *state->values;
    tvm_check_set_add(c, &c->seen, state, size, &is);
    tvm_check_charge(c, 10 + size / 16);
    return is && !c->over;
}

/* ---- invariants ---- */

static bool includes(const checker *c, const check_state *invariant, const check_state *state, uint32_t at) {
    bool good = invariant->team == state->team && invariant->at == at && invariant->held == state->held;
    for (uint32_t i = 0; i < c->scalar_count && good; i++)
        good = tvm_check_includes(&invariant->values[i], &state->values[i]);
    return good;
}

bool tvm_check_admit(checker *c, uint32_t at, check_state *state) {
    for (uint32_t i = 0; i < c->invariant_count; i++) {
        tvm_check_charge(c, 1);
        if (!includes(c, &c->invariants[i], state, at)) continue;
        memcpy(state->values, c->invariants[i].values, sizeof state->values);
        return true;
    }
    return false;
}

static bool admit(checker *c, uint32_t at, check_state *state) {
    bool admitted = !c->over && c->admit(c, at, state);
    if (!admitted && !c->over)
        tvm_check_refuse(c, at, "a path comes here with scalars or rings of which no invariant says so");
    return admitted;
}

/* ---- control ---- */

static void move_record(checker *c, check_state *state, uint32_t loop, bool ends) {
    if (!state->record.place) return;
    uint32_t place = state->record.place - 1;
    state->record.place =
        1 + (ends ? tvm_check_place_after(c, place, loop) : tvm_check_next_place(c, place, loop));
}

void tvm_check_leave_loop(checker *c, check_state *state, uint32_t loop) {
    tvm_check_assign(c, state, c->kernel->insns[loop].result, (check_value){0});
    move_record(c, state, loop, true);
    state->at = check_behind(c->kernel->insns[loop].match);
}

static void enter_loop(checker *c, check_state *state, uint32_t at) {
    const tvm_insn *loop = &c->kernel->insns[at];
    move_record(c, state, at, true); /* of a time before, that was left by way of a loop around it */
    if (loop->op == TVM_OP_FOR)
        tvm_check_assign(c, state, loop->result,
                         tvm_check_eval(c, state, tvm_operands(c->kernel, loop)[0].value));
    state->at = 2 * at + 1;
}

static void turn_loop(checker *c, check_state *state, uint32_t at) {
    const tvm_insn *loop = &c->kernel->insns[at];
    if (loop->op == TVM_OP_FOR) tvm_check_assign(c, state, loop->result, tvm_check_next_turn(c, state, loop));
    move_record(c, state, at, false);
    state->at = 2 * at + 1;
}

/* At the head of a loop. False: the path has been looked at. */
static bool head(checker *c, check_state *state, uint32_t at) {
    const tvm_insn *loop = &c->kernel->insns[at];
    if (!admit(c, at, state) || !is_new(c, state)) return false;
    int more = tvm_check_decides(c, state, loop);
    if (more < 0) {
        check_state leaves = *state;
        tvm_check_leave_loop(c, &leaves, at);
        tvm_check_push(c, &leaves);
    }
    if (more == 0) {
        tvm_check_leave_loop(c, state, at);
    } else {
        tvm_check_goes_on(c, state, loop);
        state->at = check_behind(at);
    }
    return true;
}

static void branch(checker *c, check_state *state, uint32_t at) {
    const tvm_insn *insn = &c->kernel->insns[at];
    int yes = tvm_check_decides(c, state, insn);
    if (yes < 0) {
        check_state other = *state;
        other.at = check_behind(insn->match);
        tvm_check_push(c, &other);
    }
    state->at = yes ? check_behind(at) : check_behind(insn->match);
}

/* The teams of the role begin, with the block's scalars; the block's other warps go on behind. */
static void begin_role(checker *c, check_state *state, uint32_t at) {
    for (uint32_t t = 1; t < c->team_count && !state->record.place && !c->over; t++) {
        check_state start = *state;
        if (c->teams[t].role != at) continue;
        start.team = t;
        start.held = tvm_check_held_first(c, t);
        tvm_check_assign(c, &start, c->kernel->insns[at].result,
                         (check_value){.kind = CHECK_EXACT, .v = c->teams[t].index});
        admit(c, at, &start);
    }
    if (state->record.place) tvm_check_add_entry(c, state, c->groups[at] / 2);
    state->at = check_behind(c->kernel->insns[at].match);
}

/* What the team has started and nobody has waited for where it ends; rings that it has not let go of. */
static void at_end(checker *c, const check_state *state) {
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (c->rings[r].producers >> state->team & 1 && state->held >> r & 1)
            c->drained &= ~(UINT64_C(1) << r);
    if (!state->record.place || state->record.marks & c->proper) return;
    const check_site *site = tvm_check_site(c, state->record.place - 1);
    if (site->actor == CHECK_BULK)
        tvm_check_fail(c, &c->checked->deadlocks, site->insn,
                       "the block may end before somebody has waited for the copy");
}

static void free_shared(checker *c, const check_state *state, uint32_t at) {
    if (!state->record.place) return;
    const check_site *site = tvm_check_site(c, state->record.place - 1);
    if (site->actor >= CHECK_COPY && site->root == tvm_operands(c->kernel, &c->kernel->insns[at])->value)
        tvm_check_fail(c, &c->checked->races, at, "free-shared of a tensor that a copy may still use");
}

/* False: the path ends. */
static bool step(checker *c, check_state *state, uint32_t at) {
    const tvm_insn *insn = &c->kernel->insns[at];
    const bool had = state->record.place != 0;
    tvm_check_access(c, state, at);
    if (tvm_insn_class(insn) == TVM_CLASS_ORDER) tvm_check_order(c, state, at);
    if (insn->op == TVM_OP_FREE_SHARED) free_shared(c, state, at);
    if (insn->result != TVM_NONE && c->scalar_of[insn->result] >= 0)
        tvm_check_assign(c, state, insn->result,
                         insn->op == TVM_OP_LET
                             ? tvm_check_eval(c, state, tvm_operands(c->kernel, insn)[0].value)
                             : (check_value){0});
    state->at = check_behind(at);
    return insn->op != TVM_OP_TRAP && (!had || state->record.place);
}

static bool go(checker *c, check_state *state) {
    const uint32_t at = state->at / 2;
    const tvm_insn *insn = &c->kernel->insns[at];
    const tvm_op_class class = tvm_insn_class(insn);
    switch (class) {
    case TVM_CLASS_LOOP:
    case TVM_CLASS_BRANCH:
        if (!c->matters[at])
            state->at = check_behind(tvm_check_end_of(c->kernel, at));
        else if (class == TVM_CLASS_BRANCH)
            branch(c, state, at);
        else if (state->at & 1)
            return head(c, state, at);
        else
            enter_loop(c, state, at);
        return true;
    case TVM_CLASS_ELSE:
        state->at = 2 * insn->match;
        return true;
    case TVM_CLASS_END:
        if (tvm_insn_class(&c->kernel->insns[insn->match]) == TVM_CLASS_LOOP) {
            turn_loop(c, state, insn->match);
            return true;
        }
        state->at = check_behind(at);
        return is_new(c, state);
    case TVM_CLASS_SECTION:
        begin_role(c, state, at);
        return true;
    case TVM_CLASS_JUMP:
        if (insn->op == TVM_OP_BREAK)
            tvm_check_leave_loop(c, state, insn->match);
        else
            turn_loop(c, state, insn->match);
        return true;
    case TVM_CLASS_EXIT:
        at_end(c, state);
        return false;
    default:
        return step(c, state, at);
    }
}

static void run_from(checker *c, const check_state *start) {
    tvm_check_push(c, start);
    while (c->waiting_count && !c->over) {
        check_state state = c->waiting[--c->waiting_count];
        bool goes = true;
        while (goes && !c->over && state.at / 2 < c->teams[state.team].end) {
            tvm_check_charge(c, 1);
            goes = go(c, &state);
        }
        if (goes && !c->over) at_end(c, &state);
    }
}

void tvm_check_run(checker *c) {
    check_state start = {.team = 0};
    c->drained = c->proper;
    find_matters(c);
    run_from(c, &start);
    for (uint32_t i = 0; i < c->invariant_count && !c->over; i++) {
        start = c->invariants[i];
        if (start.team == 0 || start.at != c->teams[start.team].role) continue;
        start.at = 2 * c->teams[start.team].from;
        run_from(c, &start);
    }
}
