/* What orders an access of a team before what the team does later, as tvm-memory(7) has it. */
#include <string.h>

#include "check_impl.h"

static check_actor actor_of(const checker *c, const check_record *record) {
    return tvm_check_site(c, record->place - 1)->actor;
}

/* Ages of more than any instruction asks for are alike. */
static void older(const checker *c, check_record *record) {
    if (record->age < c->most_pending) record->age++;
}

static void drop(check_state *state) {
    memset(&state->record, 0, sizeof state->record);
}

/* ---- a team ---- */

static void sync(const checker *c, check_state *state) {
    check_actor actor = actor_of(c, &state->record);
    if (actor <= CHECK_PRODUCT || (actor == CHECK_COPY && state->record.level >= CHECK_WARPS)) drop(state);
}

static void sync_warp(const checker *c, check_state *state) {
    check_record *record = &state->record;
    check_actor actor = actor_of(c, record);
    if (c->teams[state->team].warps.warps == 1)
        sync(c, state);
    else if (actor <= CHECK_PRODUCT || (actor == CHECK_COPY && record->level == CHECK_RETIRED))
        record->level = CHECK_WARPS;
}

static void commit_group(const checker *c, check_record *record) {
    if (actor_of(c, record) != CHECK_COPY) return;
    if (record->level == CHECK_COMMITTED) older(c, record);
    if (record->level == CHECK_OPEN) record->level = CHECK_COMMITTED;
}

static void wait_group(const checker *c, check_record *record, uint32_t pending) {
    bool waited =
        actor_of(c, record) == CHECK_COPY && record->level == CHECK_COMMITTED && record->age >= pending;
    if (waited) record->level = CHECK_RETIRED, record->age = 0;
}

/* What else orders, as `lets go on other warps`, orders nothing that is looked at here. */
void tvm_check_order(checker *c, check_state *state, uint32_t at) {
    const tvm_insn *insn = &c->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    if (insn->op == TVM_OP_ARRIVE_BARRIER || insn->op == TVM_OP_SYNC_BARRIER) tvm_check_arrive(c, state, at);
    if (insn->op == TVM_OP_WAIT_BARRIER || insn->op == TVM_OP_SYNC_BARRIER) tvm_check_wait(c, state, at);
    if (!state->record.place) return;
    switch (insn->op) {
    case TVM_OP_SYNC:
    case TVM_OP_SYNC_CLUSTER: /* which waits for the block's own threads, too */
        sync(c, state);
        break;
    case TVM_OP_SYNC_WARP:
        sync_warp(c, state);
        break;
    case TVM_OP_COMMIT_GROUP:
        commit_group(c, &state->record);
        break;
    case TVM_OP_WAIT_GROUP:
        wait_group(c, &state->record, operands[0].value);
        break;
    case TVM_OP_WAIT_BULK:
        if (actor_of(c, &state->record) == CHECK_STORE && state->record.age >= operands[0].value) drop(state);
        break;
    default:
        break;
    }
}

bool tvm_check_is_complete(const checker *c, const check_record *record, uint32_t cell, uint32_t pending) {
    switch (actor_of(c, record)) {
    case CHECK_PRODUCT:
        return record->age >= pending;
    case CHECK_COPY:
        return record->level >= CHECK_WARPS;
    case CHECK_STORE:
        return false;
    case CHECK_BULK:
        return record->cell == cell;
    default:
        return true;
    }
}

/* ---- an access ---- */

/* Nothing orders the two: is it a race? */
static bool conflicts(checker *c, const check_record *past, uint32_t place) {
    check_actor then = actor_of(c, past), now = tvm_check_site(c, place)->actor;
    if (!tvm_check_overlap(c, past->place - 1, place)) return false;
    if (then == CHECK_STORE || then == CHECK_BULK) return true;
    if (then == CHECK_COPY && past->level != CHECK_WARPS) return true;
    if (now == CHECK_PIPED) return then == CHECK_COPY;
    if (now == CHECK_STORE || now == CHECK_BULK) return true;
    if (now == CHECK_COPY && past->level != CHECK_WARPS) return true;
    return tvm_check_differ(c, past->place - 1, place, past->level == CHECK_WARPS);
}

void tvm_check_add_entry(checker *c, const check_state *state, uint32_t group) {
    const uint32_t place = tvm_check_place_after(c, state->record.place - 1, TVM_NONE), team = state->team;
    const check_site *site = tvm_check_site(c, place);
    const check_entry entry = {.team = team,
                               .group = group,
                               .place = place,
                               .lasts = team != 0 && site->actor >= CHECK_COPY,
                               .cover = team != 0 ? state->record.cover : 0,
                               .after = team != 0 ? tvm_check_waits_no_more(c, team, site->insn) : 0};
    tvm_check_set_add(c, &c->entries, &entry, sizeof entry, NULL);
}

/* Does the team write what the site touches, so that it has to be remembered? */
static bool is_remembered(const checker *c, uint32_t team, const check_site *site) {
    if (site->actor == CHECK_PIPED) return false;
    if (site->writes || site->actor != CHECK_THREADS) return true;
    for (uint32_t s = 0; s < c->site_count; s++) {
        const check_site *other = &c->sites[s];
        bool own = team == 0 || (other->insn >= c->teams[team].from && other->insn < c->teams[team].end);
        if (own && other->root == site->root && other->writes) return true;
    }
    return false;
}

static void begin_record(checker *c, const check_state *state, const check_site *site, uint32_t place) {
    check_state next = *state;
    check_record *record = &next.record;
    uint16_t cell = site->barrier ? tvm_check_cell_at(c, state, site->barrier) : CHECK_NO_CELL;
    next.at = check_behind(site->insn);
    tvm_check_assign(c, &next, c->kernel->insns[site->insn].result, (check_value){0}); /* of load-scalar */
    record->place = place + 1;
    record->cell = cell;
    /* the code may start a copy of a pipelined loop before the ring is held */
    record->cover = site->actor == CHECK_PIPED ? 0 : state->held & c->proper;
    if (state->team != 0 || c->groups[site->insn] & 1 || tvm_check_is_reached(c, site->root))
        tvm_check_add_entry(c, &next, c->groups[site->insn] / 2);
    if (is_remembered(c, state->team, site)) tvm_check_push(c, &next);
}

void tvm_check_access(checker *c, check_state *state, uint32_t insn) {
    check_record *past = &state->record;
    if (c->kernel->insns[insn].op == TVM_OP_MMA && past->place && actor_of(c, past) == CHECK_PRODUCT)
        older(c, past);
    for (uint32_t s = c->first_site[insn]; s < c->first_site[insn + 1] && !c->over; s++) {
        const check_site *site = &c->sites[s];
        const uint32_t place = tvm_check_place_of(c, state, s);
        tvm_check_charge(c, 4);
        if (c->over) return;
        if (!past->place) {
            if (site->actor == CHECK_BULK) tvm_check_bring(c, state, site);
            begin_record(c, state, site, place);
            continue;
        }
        const tvm_insn *then = &c->kernel->insns[tvm_check_site(c, past->place - 1)->insn];
        if (conflicts(c, past, place))
            tvm_check_fail(c, &c->checked->races, insn, "%s and %s, line %u: nothing is known to order them",
                           tvm_op(c->kernel->insns[insn].op)->mnemonic, tvm_op(then->op)->mnemonic,
                           (unsigned)then->line);
        if (site->actor == CHECK_STORE && actor_of(c, past) == CHECK_STORE) older(c, past);
    }
}
