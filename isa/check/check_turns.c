/* Do teams that wait for each other at rings come to their ends?
 *
 * What a team does next depends on its own decisions alone, and a wait that may go on stays so: phases only
 * go forward, and that none is missed is what makes a ring. So if one order in which teams run comes to the
 * end, each does. The teams of a group are run here in one order, each until it has to wait, and a decision
 * that is not known both ways. Decisions by what no role of the group assigns, nor the block between them,
 * are the same in all teams: loops with the same bounds, and the same conditions. What the first team to come
 * there decides is kept until the last has come. */
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"

enum { MOST_KEYS = 24, MOST_KEPT = 32, MOST_AHEAD = 64, NO_KEY = MOST_KEYS };

typedef struct key {
    uint32_t op, operands[3]; /* expressions */
    uint32_t users;           /* teams, as bits */
} key;

/* Decisions of a key that some team has not come to yet. */
typedef struct kept {
    uint32_t bits;
    uint8_t count, taken[CHECK_TEAMS], pad[3];
} kept;

/* Compared as bytes, up to the last team. Of a state's record `level`: the team has arrived at the
 * sync-barrier where it waits. */
typedef struct joint {
    uint32_t first;
    kept kept[MOST_KEYS];
    uint8_t ahead[CHECK_TEAMS][CHECK_CELLS]; /* phases that have ended, less those waited for */
    uint16_t missing[CHECK_CELLS];           /* arrivals */
    check_state teams[CHECK_TEAMS];
} joint;

typedef struct turns {
    checker *c;
    uint32_t first, end; /* teams */
    key keys[MOST_KEYS];
    uint32_t key_count;
    uint8_t *key_of, *bears; /* by instruction */
    joint *waiting;
    uint32_t count, capacity;
} turns;

static void stop(checker *c, uint32_t insn, const char *why) {
    tvm_check_fail(c, &c->checked->deadlocks, insn, "%s", why);
    c->over = true;
}

/* ---- what bears on waits and arrivals ---- */

static bool is_turn_scalar(const checker *c, uint32_t slot) {
    return slot != TVM_NONE && c->scalar_of[slot] >= 0 && c->turn_scalars >> c->scalar_of[slot] & 1;
}

static bool names_barrier(const tvm_insn *insn) {
    return insn->op == TVM_OP_ARRIVE_BARRIER || insn->op == TVM_OP_WAIT_BARRIER ||
           insn->op == TVM_OP_SYNC_BARRIER;
}

/* By opener: has it such an instruction, a scalar, or a jump to a loop that has? */
static void find_bears(turns *t) {
    const tvm_ir_kernel *kernel = t->c->kernel;
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < kernel->insn_count; i++) {
            if (tvm_insn_class(&kernel->insns[i]) > TVM_CLASS_BRANCH) continue;
            for (uint32_t j = i; j < tvm_check_end_of(kernel, i) && !t->bears[i]; j++) {
                const tvm_insn *insn = &kernel->insns[j];
                bool jumps =
                    tvm_insn_class(insn) == TVM_CLASS_JUMP && insn->match != i && t->bears[insn->match];
                t->bears[i] = names_barrier(insn) || is_turn_scalar(t->c, insn->result) || jumps;
            }
        }
}

/* ---- what is decided alike ---- */

static bool is_assigned(const turns *t, uint32_t slot, uint32_t from, uint32_t end) {
    for (uint32_t i = from; i < end; i++)
        if (t->c->kernel->insns[i].result == slot) return true;
    return false;
}

static bool is_constant(const turns *t, uint32_t expr) {
    const tvm_expr *node = &t->c->kernel->exprs[expr];
    tvm_check_charge(t->c, 1);
    if (node->op == TVM_EXPR_SLOT)
        return !is_assigned(t, node->a, t->c->teams[t->first].role, t->c->teams[t->end - 1].end);
    for (unsigned i = 0; i < tvm_expr_arity(node); i++)
        if (!is_constant(t, node->operands[i])) return false;
    return true;
}

static bool is_left_early(const tvm_ir_kernel *kernel, uint32_t loop) {
    for (uint32_t i = loop; i < kernel->insns[loop].match; i++)
        if (kernel->insns[i].op == TVM_OP_BREAK && kernel->insns[i].match == loop) return true;
    return false;
}

static void add_key(turns *t, uint32_t team, uint32_t at) {
    const tvm_ir_kernel *kernel = t->c->kernel;
    const tvm_insn *insn = &kernel->insns[at];
    key made = {.op = insn->op};
    bool counts = insn->op == TVM_OP_FOR, alike = insn->op == TVM_OP_IF || counts;
    uint32_t k = 0;
    if (counts) /* by a number, each decision may be known */
        alike = !is_left_early(kernel, at) && !is_assigned(t, insn->result, at + 1, insn->match) &&
                kernel->exprs[tvm_operands(kernel, insn)[1].value].op != TVM_EXPR_INTEGER;
    for (unsigned o = 0; o < (counts ? 3 : 1) && alike; o++) {
        made.operands[o] = tvm_operands(kernel, insn)[o].value;
        alike = is_constant(t, made.operands[o]);
    }
    if (!alike) return;
    while (k < t->key_count && (t->keys[k].op != made.op ||
                                memcmp(t->keys[k].operands, made.operands, sizeof made.operands) != 0))
        k++;
    if (k == MOST_KEYS) return;
    if (k == t->key_count) t->keys[t->key_count++] = made;
    t->keys[k].users |= UINT32_C(1) << team;
    t->key_of[at] = (uint8_t)k;
}

/* ---- states ---- */

static void push(turns *t, const joint *j) {
    if (t->count == t->capacity) {
        uint32_t capacity = t->capacity ? 2 * t->capacity : 16;
        joint *more = realloc(t->waiting, capacity * sizeof *more);
        if (!more) {
            t->c->no_memory = t->c->over = true;
            return;
        }
        t->waiting = more;
        t->capacity = capacity;
    }
    t->waiting[t->count++] = *j;
    tvm_check_charge(t->c, sizeof *j / 16);
}

static bool is_new(turns *t, const joint *j) {
    const size_t size = offsetof(joint, teams) + t->end * sizeof *j->teams;
    bool is;
    tvm_check_charge(t->c, size / 16);
    tvm_check_set_add(t->c, &t->c->seen, j, size, &is);
    return is && !t->c->over;
}

/* ---- a team ---- */

typedef enum outcome { ENDS, WAITS, DECIDES } outcome;

static bool is_over(const turns *t, const joint *j, uint32_t team) {
    return j->teams[team].at / 2 >= t->c->teams[team].end;
}

static void arrive(const turns *t, joint *j, uint32_t at, uint16_t cell) {
    if (--j->missing[cell]) return;
    j->missing[cell] = (uint16_t)t->c->cells[cell].arrivals;
    for (uint32_t i = t->first; i < t->end; i++)
        if (t->c->cells[cell].wait_by >> i & 1 && ++j->ahead[i][cell] > MOST_AHEAD)
            stop(t->c, at, "arrivals run ahead of those who wait for them");
}

/* False: it waits. */
static bool pass(const turns *t, joint *j, uint32_t team, uint32_t at) {
    const tvm_insn *insn = &t->c->kernel->insns[at];
    uint16_t cell = tvm_check_cell_at(t->c, &j->teams[team], tvm_operands(t->c->kernel, insn));
    if (cell == CHECK_NO_CELL) {
        stop(t->c, at, "which mbarrier it is does not follow from the invariants");
        return false;
    }
    if (insn->op != TVM_OP_WAIT_BARRIER && !j->teams[team].record.level) {
        arrive(t, j, at, cell);
        j->teams[team].record.level = 1;
    }
    if (insn->op == TVM_OP_ARRIVE_BARRIER) return true;
    if (j->ahead[team][cell] < 1) return false;
    j->ahead[team][cell]--;
    return true;
}

static void set(const turns *t, check_state *state, uint32_t slot, check_value value) {
    if (is_turn_scalar(t->c, slot)) tvm_check_assign(t->c, state, slot, value);
}

/* At a loop's head: what the certificate knows of it, which is less. */
static void at_head(const turns *t, check_state *state, uint32_t loop, bool first) {
    const checker *c = t->c;
    const tvm_insn *insn = &c->kernel->insns[loop];
    if (insn->op == TVM_OP_FOR)
        set(t, state, insn->result,
            first ? tvm_check_eval(c, state, tvm_operands(c->kernel, insn)->value)
                  : tvm_check_next_turn(c, state, insn));
    state->at = 2 * loop + 1;
    for (uint32_t i = 0; i < c->invariant_count; i++) {
        const check_state *known = &c->invariants[i];
        bool fits = known->team == state->team && known->at == loop;
        check_state wide = *state;
        for (uint32_t s = 0; s < c->scalar_count && fits; s++) {
            if (!(c->turn_scalars >> s & 1)) continue;
            fits = tvm_check_includes(&known->values[s], &state->values[s]);
            wide.values[s] = known->values[s];
        }
        if (fits) {
            *state = wide;
            return;
        }
    }
}

static void decide(const turns *t, joint *j, uint32_t team, bool yes) {
    check_state *state = &j->teams[team];
    const uint32_t at = state->at / 2;
    const tvm_insn *insn = &t->c->kernel->insns[at];
    if (!yes && tvm_insn_class(insn) == TVM_CLASS_LOOP) {
        tvm_check_leave_loop(t->c, state, at);
        return;
    }
    if (yes) tvm_check_goes_on(t->c, state, insn);
    state->at = yes ? check_behind(at) : check_behind(insn->match);
}

/* Runs a team until it has to wait or to decide. */
static outcome advance(const turns *t, joint *j, uint32_t team, bool *moved) {
    checker *c = t->c;
    check_state *state = &j->teams[team];
    for (; !is_over(t, j, team) && !c->over; *moved = true) {
        const uint32_t at = state->at / 2;
        const tvm_insn *insn = &c->kernel->insns[at];
        const tvm_op_class class = tvm_insn_class(insn);
        bool loops =
            class == TVM_CLASS_END && tvm_insn_class(&c->kernel->insns[insn->match]) == TVM_CLASS_LOOP;
        tvm_check_charge(c, 1);
        if (class <= TVM_CLASS_BRANCH && !t->bears[at]) {
            state->at = check_behind(tvm_check_end_of(c->kernel, at));
        } else if (class == TVM_CLASS_LOOP && !(state->at & 1)) {
            at_head(t, state, at, true);
        } else if (class <= TVM_CLASS_BRANCH) {
            int yes = tvm_check_decides(c, state, insn);
            if (yes < 0) return DECIDES;
            decide(t, j, team, yes);
        } else if (class == TVM_CLASS_ELSE) {
            state->at = 2 * insn->match;
        } else if (loops || insn->op == TVM_OP_CONTINUE) {
            at_head(t, state, insn->match, false);
        } else if (insn->op == TVM_OP_BREAK) {
            tvm_check_leave_loop(c, state, insn->match);
        } else {
            if (names_barrier(insn) && !pass(t, j, team, at)) return WAITS;
            state->record.level = 0;
            set(t, state, insn->result,
                insn->op == TVM_OP_LET ? tvm_check_eval(c, state, tvm_operands(c->kernel, insn)->value)
                                       : (check_value){0});
            state->at = check_behind(at);
        }
    }
    return ENDS;
}

/* ---- decisions ---- */

/* Drops what all teams that go on have taken. */
static void drop_taken(const turns *t, joint *j, uint32_t number) {
    kept *k = &j->kept[number];
    uint8_t least = k->count;
    for (uint32_t i = t->first; i < t->end; i++)
        if (t->keys[number].users >> i & 1 && !is_over(t, j, i) && k->taken[i] < least) least = k->taken[i];
    k->bits = least < 32 ? k->bits >> least : 0;
    k->count = (uint8_t)(k->count - least);
    for (uint32_t i = t->first; i < t->end; i++)
        k->taken[i] = (uint8_t)(k->taken[i] > least ? k->taken[i] - least : 0);
}

/* Takes the decision that another team has taken before; false: there is none. */
static bool follow(const turns *t, joint *j, uint32_t team) {
    const uint32_t number = t->key_of[j->teams[team].at / 2];
    if (number == NO_KEY || j->kept[number].taken[team] >= j->kept[number].count) return false;
    decide(t, j, team, j->kept[number].bits >> j->kept[number].taken[team]++ & 1);
    drop_taken(t, j, number);
    return true;
}

static void choose(turns *t, joint *j, uint32_t team, bool yes) {
    const uint32_t number = t->key_of[j->teams[team].at / 2];
    kept *k = number == NO_KEY ? NULL : &j->kept[number];
    if (k && k->count == MOST_KEPT) stop(t->c, j->teams[team].at / 2, "teams decide too far ahead");
    if (t->c->over) return;
    if (k) {
        k->bits |= (uint32_t)yes << k->count++;
        k->taken[team]++;
    }
    decide(t, j, team, yes);
    if (k) drop_taken(t, j, number);
}

/* ---- all teams ---- */

/* Each phase that brings bytes has been waited for; of the others it is noted. */
static void check_ends(const turns *t, const joint *j) {
    checker *c = t->c;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        bool waited = j->missing[i] == c->cells[i].arrivals, ours = false;
        for (uint32_t n = t->first; n < t->end; n++) {
            ours = ours || c->cells[i].arrive_by >> n & 1;
            if (c->cells[i].wait_by >> n & 1 && j->ahead[n][i] > 0) waited = false;
        }
        if (waited || !ours) continue;
        for (uint32_t r = 0; r < c->ring_count; r++)
            if (c->rings[r].full == i) c->drained &= ~(UINT64_C(1) << r);
        if (c->cells[i].bring_by)
            tvm_check_fail(c, &c->checked->deadlocks, TVM_NONE,
                           "the block may end before somebody has waited for all bytes of a copy");
    }
}

/* Runs the teams until each waits, has ended or has a decision to take that no other has taken; returns the
 * first of the latter. */
static uint32_t run_to_decision(const turns *t, joint *j) {
    uint32_t team = t->end;
    for (bool moved = true; moved && !t->c->over;) {
        moved = false;
        team = t->end;
        for (uint32_t i = t->first; i < t->end; i++) {
            outcome to;
            while ((to = advance(t, j, i, &moved)) == DECIDES && follow(t, j, i)) moved = true;
            if (to == DECIDES && team == t->end) team = i;
        }
    }
    return team;
}

static void run(turns *t, joint *j) {
    checker *c = t->c;
    for (uint32_t team; (team = run_to_decision(t, j)) < t->end && !c->over;) {
        if (!is_new(t, j)) return; /* what follows has been looked at */
        push(t, j);
        if (c->over) return;
        choose(t, &t->waiting[t->count - 1], team, false);
        choose(t, j, team, true);
    }
    for (uint32_t i = t->first; i < t->end && !c->over; i++)
        if (!is_over(t, j, i)) stop(c, j->teams[i].at / 2, "it may wait for a team that waits or has ended");
    if (!c->over) check_ends(t, j);
}

static bool begin(turns *t, joint *j) {
    checker *c = t->c;
    memset(j, 0, sizeof *j);
    j->first = t->first;
    for (uint32_t i = t->first; i < t->end; i++) {
        uint32_t starts = 0;
        for (uint32_t n = 0; n < c->invariant_count; n++) {
            if (c->invariants[n].team != i || c->invariants[n].at != c->teams[i].role) continue;
            starts++;
            for (uint32_t s = 0; s < c->scalar_count; s++)
                if (c->turn_scalars >> s & 1) j->teams[i].values[s] = c->invariants[n].values[s];
        }
        j->teams[i].team = i;
        j->teams[i].at = 2 * c->teams[i].from;
        for (uint32_t n = 0; n < c->cell_count; n++) j->ahead[i][n] = c->cells[n].open;
        if (starts == 1) continue;
        tvm_check_fail(c, &c->checked->deadlocks, c->teams[i].role,
                       "not one invariant says how the role begins");
        return false;
    }
    for (uint32_t n = 0; n < c->cell_count; n++) j->missing[n] = (uint16_t)c->cells[n].arrivals;
    return true;
}

static void run_group(turns *t) {
    checker *c = t->c;
    joint *j = malloc(sizeof *j);
    if (j && begin(t, j)) push(t, j);
    while (j && t->count && !c->over) {
        *j = t->waiting[--t->count];
        if (c->checked->deadlocks.holds) run(t, j);
    }
    c->no_memory = c->no_memory || !j;
    free(j);
}

/* Each wait is at a ring; no warp is in two roles of a group, and the block does not leave between them. */
static bool can_be_run(checker *c) {
    uint32_t warps = 0;
    const char *why = NULL;
    for (uint32_t i = 0; i < c->cell_count; i++)
        for (uint32_t t = 0; t < c->team_count; t++)
            if (c->cells[i].wait_by >> t & 1 && !tvm_check_is_taken(c, t, i))
                why = "a wait is at no ring of the certificate";
    for (uint32_t t = 1; t < c->team_count; t++) {
        const uint32_t own = tvm_check_warps(c, t);
        bool alone = t == 1 || c->teams[t].group != c->teams[t - 1].group;
        if (alone) warps = 0;
        if (warps & own) why = "warps are in two roles that run beside each other";
        for (uint32_t i = alone ? c->teams[t].role : c->teams[t - 1].end; i < c->teams[t].role; i++)
            if (tvm_insn_class(&c->kernel->insns[i]) == TVM_CLASS_EXIT)
                why = "the block may leave between two roles";
        warps |= own;
    }
    if (why) tvm_check_fail(c, &c->checked->deadlocks, TVM_NONE, "%s", why);
    return !why;
}

void tvm_check_turns(checker *c) {
    const size_t insns = c->kernel->insn_count + (size_t)1;
    if (!can_be_run(c)) return;
    for (uint32_t team = 1; team < c->team_count && !c->over;) {
        turns t = {.c = c, .first = team, .end = team, .key_of = malloc(insns), .bears = calloc(insns, 1)};
        while (t.end < c->team_count && c->teams[t.end].group == c->teams[team].group) t.end++;
        team = t.end;
        if (t.key_of && t.bears) {
            memset(t.key_of, NO_KEY, insns);
            find_bears(&t);
            for (uint32_t n = t.first; n < t.end; n++)
                for (uint32_t i = c->teams[n].from; i < c->teams[n].end; i++)
                    if (t.bears[i]) add_key(&t, n, i);
            run_group(&t);
        } else {
            c->no_memory = c->over = true;
        }
        free(t.key_of);
        free(t.bears);
        free(t.waiting);
    }
    c->over = c->no_memory || !c->checked->races.holds; /* of races there is more to look at */
}
