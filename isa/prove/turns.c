/* Do teams that wait for each other at rings come to their ends?
 *
 * Teams run as they like, but what each does next depends on its own decisions alone, and a wait that may go
 * on stays so: phases only go forward, and that none is missed is what makes a ring. So if one order in which
 * teams run comes to the end, each does. All teams of a group of roles are run here in one order, each until
 * it has to wait, with a decision at each condition that is not known, once no team can go on without. Loops
 * with the same bounds, and the same conditions, of what no role assigns, are decided alike in all teams, and
 * so are the counterparts of alike.c: what the first team to come there decides is kept until the last has.
 */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 24, MOST_KEPT = 32 };

/* Decisions that are the same in all teams. */
typedef struct shared_key {
    uint32_t op, operands[3]; /* expressions */
    uint32_t counterpart;     /* else: an instruction */
    uint32_t users;           /* teams, as bits */
} shared_key;

/* Those of a key that some team has not come to yet. */
typedef struct kept {
    uint32_t bits;
    uint8_t count, taken[PROVE_CONTEXTS]; /* by team */
    uint8_t pad[3];
} kept;

typedef struct joint {
    prove_state teams[PROVE_CONTEXTS];
    kept kept[MOST_KEYS];
    int8_t *ahead;     /* by team, then cell: phases that have ended, less those waited for */
    uint16_t *missing; /* arrivals, by cell */
} joint;

typedef struct turns {
    prover *p;
    uint32_t group, first, end; /* teams */
    uint32_t start;             /* of those in which they begin */
    shared_key keys[MOST_KEYS];
    uint32_t key_count;
    uint8_t *key_of; /* by instruction; MOST_KEYS: none */
    prove_bearing bearing;
    joint *waiting;
    uint32_t count, capacity;
} turns;

/* ---- what is decided alike ---- */

/* A loop that is left early does not take its last decision. */
static bool is_left_early(const prover *p, uint32_t loop) {
    for (uint32_t i = loop; i < p->kernel->insns[loop].match; i++)
        if (p->kernel->insns[i].op == TVM_OP_BREAK && p->kernel->insns[i].match == loop) return true;
    return false;
}

/* What a decision has in common with others: the place of the first of its counterparts, or else what it
 * reads. False: it is the team's own. */
static bool find_key(const turns *t, uint32_t at, shared_key *key) {
    const tvm_insn *insn = &t->p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(t->p->kernel, insn);
    unsigned count = insn->op == TVM_OP_FOR ? 3 : 1;
    bool constant = insn->op == TVM_OP_IF || (insn->op == TVM_OP_FOR && !is_left_early(t->p, at));
    memset(key, 0, sizeof *key);
    key->counterpart = t->bearing.counterpart[at];
    if (key->counterpart != TVM_NONE) return true;
    for (unsigned o = 0; o < count && constant; o++) {
        constant = tvm_prove_is_constant(t->p, t->first, t->end, operands[o].value);
        key->operands[o] = operands[o].value;
    }
    key->op = insn->op;
    return constant;
}

static void add_key(turns *t, uint32_t team, uint32_t at) {
    shared_key key;
    uint32_t k = 0;
    if (!t->bearing.insns[at] || !find_key(t, at, &key)) return;
    while (k < t->key_count && (t->keys[k].op != key.op || t->keys[k].counterpart != key.counterpart ||
                                memcmp(t->keys[k].operands, key.operands, sizeof key.operands) != 0))
        k++;
    if (k == MOST_KEYS) return;
    if (k == t->key_count) t->keys[t->key_count++] = key;
    t->keys[k].users |= UINT32_C(1) << team;
    t->key_of[at] = (uint8_t)k;
}

static bool find_keys(turns *t) {
    t->key_of = malloc(t->p->kernel->insn_count + (size_t)1);
    if (!t->key_of) return false;
    memset(t->key_of, MOST_KEYS, t->p->kernel->insn_count + (size_t)1);
    for (uint32_t c = t->first; c < t->end; c++)
        for (uint32_t i = t->p->contexts[c].from; i < t->p->contexts[c].end; i++)
            if (tvm_insn_class(&t->p->kernel->insns[i]) <= TVM_CLASS_BRANCH) add_key(t, c, i);
    return true;
}

/* ---- states ---- */

static void free_joint(const turns *t, joint *j) {
    for (uint32_t c = t->first; c < t->end; c++) tvm_prove_free_state(&j->teams[c]);
    free(j->ahead);
    free(j->missing);
}

static bool copy_joint(const turns *t, joint *to, const joint *from) {
    prover *p = t->p;
    size_t cells = p->cell_count, pairs = PROVE_CONTEXTS * cells;
    memset(to, 0, sizeof *to);
    memcpy(to->kept, from->kept, sizeof to->kept);
    to->ahead = malloc(pairs + 1);
    to->missing = malloc((cells + 1) * sizeof *to->missing);
    bool made = to->ahead && to->missing;
    for (uint32_t c = t->first; c < t->end && made; c++)
        made = tvm_prove_copy_state(p, &to->teams[c], &from->teams[c]);
    if (made) {
        memcpy(to->ahead, from->ahead, pairs);
        memcpy(to->missing, from->missing, cells * sizeof *to->missing);
        return true;
    }
    p->no_memory = true;
    free_joint(t, to);
    return false;
}

static bool is_new(turns *t, const joint *j) {
    prover *p = t->p;
    tvm_text bytes = {0};
    tvm_text_bytes(&bytes, (const char *)&t->group, sizeof t->group);
    for (uint32_t c = t->first; c < t->end; c++) {
        tvm_text_bytes(&bytes, (const char *)&j->teams[c].at, sizeof j->teams[c].at);
        tvm_text_bytes(&bytes, (const char *)j->teams[c].values,
                       p->scalar_count * sizeof *j->teams[c].values);
    }
    tvm_text_bytes(&bytes, (const char *)j->kept, t->key_count * sizeof *j->kept);
    tvm_text_bytes(&bytes, (const char *)j->ahead, (size_t)PROVE_CONTEXTS * p->cell_count);
    tvm_text_bytes(&bytes, (const char *)j->missing, p->cell_count * sizeof *j->missing);
    if (bytes.failed) p->no_memory = true;
    tvm_prove_charge(p, 10 + bytes.size / 8);
    bool is = !bytes.failed && tvm_prove_set_add(p, &p->visited, bytes.data, bytes.size);
    tvm_text_free(&bytes);
    return is;
}

/* ---- a team ---- */

typedef enum outcome { ENDS, WAITS, DECIDES } outcome;

static bool is_over(const turns *t, const joint *j, uint32_t team) {
    return j->teams[team].at / 2 >= t->p->contexts[team].end;
}

static void arrive(const turns *t, joint *j, uint16_t cell) {
    if (--j->missing[cell]) return;
    j->missing[cell] = (uint16_t)t->p->cells[cell].arrivals;
    for (uint32_t c = t->first; c < t->end; c++)
        if (t->p->cells[cell].wait_by >> c & 1) j->ahead[c * t->p->cell_count + cell]++;
}

/* False: the phase has not ended. */
static bool wait(const turns *t, joint *j, uint32_t team, uint16_t cell) {
    int8_t *ahead = &j->ahead[team * t->p->cell_count + cell];
    if (*ahead < 1) return false;
    --*ahead;
    return true;
}

static void decide(const turns *t, joint *j, uint32_t team, bool yes) {
    prove_state *state = &j->teams[team];
    uint32_t at = state->at / 2;
    if (yes)
        state->at = behind(at);
    else if (tvm_insn_class(&t->p->kernel->insns[at]) == TVM_CLASS_LOOP)
        tvm_prove_leave_loop(t->p, state, at);
    else
        state->at = behind(t->p->kernel->insns[at].match);
}

/* At a loop or a condition: 1 or 0 is known, -1 is not. */
static int known(const turns *t, const prove_state *state, uint32_t at) {
    const tvm_insn *insn = &t->p->kernel->insns[at];
    if (tvm_insn_class(insn) == TVM_CLASS_LOOP) return tvm_prove_goes_on(t->p, state, insn);
    prove_value condition = tvm_prove_eval(t->p, state, tvm_operands(t->p->kernel, insn)[0].value);
    return condition.kind == PROVE_EXACT ? condition.v != 0 : -1;
}

static bool plain(const turns *t, joint *j, uint32_t team, uint32_t at) {
    prover *p = t->p;
    prove_state *state = &j->teams[team];
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    bool both =
        insn->op == TVM_OP_SYNC_BARRIER; /* at an mbarrier of its own: the arrival is all that it waits for */
    if (both || insn->op == TVM_OP_ARRIVE_BARRIER || insn->op == TVM_OP_WAIT_BARRIER) {
        uint16_t cell = tvm_prove_cell_at(p, state, operands);
        if (cell == PROVE_NO_CELL) p->too_long = true; /* it has been walked over, and was known */
        if (p->too_long) return false;
        if (insn->op != TVM_OP_WAIT_BARRIER) arrive(t, j, cell);
        if (insn->op != TVM_OP_ARRIVE_BARRIER && !wait(t, j, team, cell)) return false;
    }
    bool needed = insn->result != TVM_NONE && p->tracked[insn->result] >= 0 && t->bearing.slots[insn->result];
    if (insn->op == TVM_OP_LET && needed)
        tvm_prove_assign(p, state, insn->result, tvm_prove_eval(p, state, operands[0].value));
    else
        tvm_prove_forget(p, state, insn->result);
    if (insn->op == TVM_OP_ASSERT) tvm_prove_learn(p, state, insn); /* a path where it fails counts, too */
    state->at = behind(at);
    return true;
}

/* The variable of a loop, on which nothing depends that is looked at here. */
static void forget_variable(const turns *t, prove_state *state, uint32_t loop) {
    uint32_t slot = t->p->kernel->insns[loop].result;
    if (slot != TVM_NONE && !t->bearing.slots[slot]) tvm_prove_forget(t->p, state, slot);
}

static void next_turn(const turns *t, prove_state *state, uint32_t loop) {
    tvm_prove_turn_loop(t->p, state, loop);
    forget_variable(t, state, loop);
}

/* Runs a team until it has to wait or to decide. */
static outcome advance(const turns *t, joint *j, uint32_t team, bool *moved) {
    prover *p = t->p;
    prove_state *state = &j->teams[team];
    for (; !is_over(t, j, team) && !p->too_long && !p->restart; *moved = true) {
        uint32_t at = state->at / 2, match = p->kernel->insns[at].match;
        tvm_op_class class = tvm_insn_class(&p->kernel->insns[at]);
        tvm_prove_charge(p, 1);
        if (class <= TVM_CLASS_BRANCH && !t->bearing.insns[at]) {
            state->at = behind(tvm_prove_end_of(p->kernel, at));
        } else if (class == TVM_CLASS_LOOP && !(state->at & 1)) {
            tvm_prove_enter_loop(p, state, at);
            forget_variable(t, state, at);
        } else if (class == TVM_CLASS_LOOP || class == TVM_CLASS_BRANCH) {
            int yes = known(t, state, at);
            if (yes < 0 || t->bearing.counterpart[at] != TVM_NONE) return DECIDES;
            decide(t, j, team, yes);
        } else if (class == TVM_CLASS_ELSE) {
            state->at = 2 * match;
        } else if (class == TVM_CLASS_END) {
            if (tvm_insn_class(&p->kernel->insns[match]) == TVM_CLASS_LOOP)
                next_turn(t, state, match);
            else
                state->at = behind(at);
        } else if (class == TVM_CLASS_JUMP) {
            if (p->kernel->insns[at].op == TVM_OP_BREAK)
                tvm_prove_leave_loop(p, state, match);
            else
                next_turn(t, state, match);
        } else if (!plain(t, j, team, at)) {
            return WAITS;
        }
    }
    return ENDS;
}

/* ---- decisions ---- */

/* Drops what all teams that go on have taken. */
static void drop_taken(const turns *t, joint *j, uint32_t key) {
    kept *k = &j->kept[key];
    uint8_t least = k->count;
    for (uint32_t c = t->first; c < t->end; c++)
        if (t->keys[key].users >> c & 1 && !is_over(t, j, c) && k->taken[c] < least) least = k->taken[c];
    if (!least) return;
    k->bits = least < 32 ? k->bits >> least : 0;
    k->count = (uint8_t)(k->count - least);
    for (uint32_t c = t->first; c < t->end; c++)
        k->taken[c] = (uint8_t)(k->taken[c] > least ? k->taken[c] - least : 0);
}

/* Takes the decision that another team has taken before; false: there is none. */
static bool follow(const turns *t, joint *j, uint32_t team, uint32_t key) {
    kept *k = &j->kept[key];
    if (key == MOST_KEYS || k->taken[team] >= k->count) return false;
    bool yes = k->bits >> k->taken[team]++ & 1;
    decide(t, j, team, yes);
    drop_taken(t, j, key);
    return true;
}

static void choose(turns *t, joint *j, uint32_t team, uint32_t key, bool yes) {
    if (key < MOST_KEYS) {
        kept *k = &j->kept[key];
        if (k->count == MOST_KEPT) {
            t->p->too_long = true;
            return;
        }
        k->bits |= (uint32_t)yes << k->count++;
        k->taken[team]++;
    }
    decide(t, j, team, yes);
    if (key < MOST_KEYS) drop_taken(t, j, key);
}

static void push(turns *t, const joint *j) {
    if (t->count == t->capacity) {
        uint32_t capacity = t->capacity ? 2 * t->capacity : 16;
        joint *more = realloc(t->waiting, capacity * sizeof *more);
        if (!more) {
            t->p->no_memory = true;
            return;
        }
        t->waiting = more;
        t->capacity = capacity;
    }
    if (copy_joint(t, &t->waiting[t->count], j)) t->count++;
}

/* ---- all teams ---- */

static void stuck(const turns *t, uint32_t team, const joint *j) {
    uint32_t at = j->teams[team].at / 2;
    tvm_prove_fail(
        t->p, &t->p->proof->deadlocks, TVM_NOT_PROVED, at, TVM_NONE,
        "%s may wait for a team that has ended, or waits itself: that both run through as many turns is not "
        "known",
        tvm_prove_mnemonic(t->p, at));
}

static bool is_of_group(const turns *t, uint32_t set) {
    for (uint32_t c = t->first; c < t->end; c++)
        if (set >> c & 1) return true;
    return false;
}

/* Each phase that brings bytes has been waited for. */
static void check_ends(const turns *t, const joint *j) {
    prover *p = t->p;
    for (uint32_t i = 0; i < p->cell_count; i++) {
        if (!is_of_group(t, p->cells[i].arrive_by)) continue;
        bool waited = j->missing[i] == p->cells[i].arrivals;
        for (uint32_t c = t->first; c < t->end; c++)
            if (p->cells[i].wait_by >> c & 1 && j->ahead[c * p->cell_count + i] > 0) waited = false;
        for (uint32_t k = 0; k < p->token_count && !waited; k++)
            if (p->tokens[k].full == i) p->drained &= ~(UINT64_C(1) << k);
        if (!waited && p->cells[i].bring_by)
            tvm_prove_fail(t->p, &t->p->proof->deadlocks, TVM_NOT_PROVED, TVM_NONE, TVM_NONE,
                           "the block may end before somebody has waited for all bytes that '%s' brings",
                           tvm_string(p->program, p->kernel->slots[p->cells[i].slot].name));
    }
}

/* Runs the teams until each waits, has ended or has a decision to take that no other has taken. */
static void run_all(turns *t, joint *j) {
    const prover *p = t->p;
    for (bool moved = true; moved && !p->too_long && !p->no_memory;) {
        moved = false;
        for (uint32_t c = t->first; c < t->end; c++)
            while (advance(t, j, c, &moved) == DECIDES && follow(t, j, c, t->key_of[j->teams[c].at / 2]))
                moved = true;
    }
}

/* The first team that has a decision to take. */
static uint32_t next_to_decide(const turns *t, const joint *j) {
    for (uint32_t c = t->first; c < t->end; c++) {
        uint32_t at = j->teams[c].at / 2;
        tvm_op_class class = is_over(t, j, c) ? TVM_CLASS_END : tvm_insn_class(&t->p->kernel->insns[at]);
        if (class == TVM_CLASS_LOOP || class == TVM_CLASS_BRANCH) return c;
    }
    return t->end;
}

static void run(turns *t, joint *j) {
    prover *p = t->p;
    for (;;) {
        run_all(t, j);
        uint32_t team = next_to_decide(t, j);
        if (p->restart) p->too_long = true;
        if (team == t->end || p->no_memory || p->too_long) break;
        uint32_t key = t->key_of[j->teams[team].at / 2];
        int yes = known(t, &j->teams[team], j->teams[team].at / 2);
        if (!is_new(t, j)) return;
        if (yes < 0) {
            push(t, j);
            if (p->no_memory) return;
            choose(t, &t->waiting[t->count - 1], team, key, false);
        }
        choose(t, j, team, key, yes != 0);
    }
    if (p->no_memory || p->too_long) return;
    for (uint32_t c = t->first; c < t->end; c++)
        if (!is_over(t, j, c)) {
            stuck(t, c, j);
            return;
        }
    check_ends(t, j);
}

static bool begin(const turns *t, joint *j) {
    prover *p = t->p;
    memset(j, 0, sizeof *j);
    j->ahead = calloc((size_t)PROVE_CONTEXTS * p->cell_count + 1, 1);
    j->missing = calloc(p->cell_count + (size_t)1, sizeof *j->missing);
    bool made = j->ahead && j->missing;
    if (!made) p->no_memory = true;
    for (uint32_t c = t->first; c < t->end && made; c++)
        made = tvm_prove_copy_state(p, &j->teams[c], &p->contexts[c].starts[t->start]);
    for (uint32_t c = t->first; c < t->end && made; c++)
        for (uint32_t s = 0; s < p->kernel->slot_count; s++)
            if (!t->bearing.slots[s]) tvm_prove_forget(p, &j->teams[c], s);
    for (uint32_t i = 0; i < p->cell_count && made; i++) {
        j->missing[i] = (uint16_t)p->cells[i].arrivals;
        for (uint32_t c = t->first; c < t->end; c++) j->ahead[c * p->cell_count + i] = p->cells[i].open;
    }
    return made;
}

static void run_group(turns *t) {
    joint first;
    bool made = begin(t, &first);
    if (made) push(t, &first);
    free_joint(t, &first);
    while (t->count) {
        joint j = t->waiting[--t->count];
        bool goes = !t->p->no_memory && !t->p->too_long && t->p->proof->deadlocks.verdict == TVM_PROVED;
        if (goes) run(t, &j);
        free_joint(t, &j);
    }
    free(t->waiting);
    t->waiting = NULL;
    t->capacity = 0;
}

/* ---- may they be run so? ---- */

static bool refuse(prover *p, uint32_t insn, const char *why) {
    tvm_prove_fail(p, &p->proof->deadlocks, TVM_NOT_PROVED, insn, TVM_NONE, "%s %s",
                   tvm_prove_mnemonic(p, insn), why);
    return false;
}

/* A role begins where the one before it in its group does: each start of the one goes with that of the other.
 */
static bool begins_as_before(const prover *p, uint32_t c) {
    const prove_context *team = &p->contexts[c], *before = team - 1;
    if (c == 1 || before->group != team->group || team->role == before->role) return true;
    for (uint32_t i = before->end + 1; i < team->role; i++)
        if (tvm_class_opens(tvm_insn_class(&p->kernel->insns[i]))) return false;
    return team->start_count == before->start_count;
}

/* Each wait is at a ring, at a place that is known. */
static bool can_be_run(prover *p) {
    uint32_t warps = 0;
    for (uint32_t i = 0; i < p->cell_count; i++)
        for (uint32_t c = 0; c < p->context_count; c++)
            if (p->cells[i].wait_by >> c & 1 && !tvm_prove_is_of_token(p, c, (uint16_t)i))
                return refuse(p, p->odd_wait, "waits at an mbarrier that is not known to be one of a ring");
    for (uint32_t i = 0; i < p->cell_count; i++)
        if (p->cells[i].wild) return refuse(p, p->odd_wait, "waits, and it is not known for which mbarriers");
    for (uint32_t c = 1; c < p->context_count; c++) {
        tvm_team team = p->contexts[c].team;
        uint32_t own = (team.warps == 32 ? UINT32_MAX : (UINT32_C(1) << team.warps) - 1) << team.first;
        if (c > 1 && p->contexts[c].group != p->contexts[c - 1].group) warps = 0;
        if (warps & own) return refuse(p, p->odd_wait, "waits, and warps are in two roles");
        if (!begins_as_before(p, c))
            return refuse(p, p->odd_wait, "waits, and roles begin in different ways");
        warps |= own;
    }
    return true;
}

/* What was found before does not keep the teams from being run, and comes first. */
void tvm_prove_turns(prover *p) {
    const tvm_proof_part before = p->proof->deadlocks;
    p->proof->deadlocks = (tvm_proof_part){.insn = TVM_NONE, .other = TVM_NONE};
    bool can = can_be_run(p);
    tvm_prove_set_clear(&p->visited);
    for (uint32_t c = 1; c < p->context_count && can;) {
        turns t = {.p = p, .group = p->contexts[c].group, .first = c, .end = c};
        while (t.end < p->context_count && p->contexts[t.end].group == t.group) t.end++;
        c = t.end;
        can = tvm_prove_find_bearing(p, t.first, t.end, &t.bearing) && find_keys(&t);
        if (!can) p->no_memory = true;
        for (; can && t.start < p->contexts[t.first].start_count; t.start++) run_group(&t);
        tvm_prove_free_bearing(&t.bearing);
        free(t.key_of);
    }
    if (p->proof->deadlocks.verdict != TVM_PROVED || p->too_long) p->drained = 0;
    if (before.verdict > p->proof->deadlocks.verdict) p->proof->deadlocks = before;
}
