/* What orders the accesses of one team, as tvm-memory(7) has it: each record is an access that some
 * instruction to come may not be ordered after. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

static const prove_site *site_of(const prover *p, uint32_t place) {
    return &p->sites[p->places[place].site];
}

static prove_actor actor_of(const prover *p, const prove_record *record) {
    return site_of(p, record->place)->actor;
}

/* Accesses of the team's own threads, that a sync orders. */
static bool is_of_threads(prove_actor actor) {
    return actor == PROVE_THREADS || actor == PROVE_PRODUCT;
}

/* Ages of more than any instruction asks for are alike. */
static void older(const prover *p, prove_record *record) {
    if (record->age < p->most_pending) record->age++;
}

/* Keeps the records that `keep` is true of. */
static void sift(prover *p, prove_state *state,
                 bool (*keep)(prover *p, const prove_record *record, uint64_t how), uint64_t how) {
    uint32_t kept = 0;
    for (uint32_t r = 0; r < state->record_count; r++)
        if (keep(p, &state->records[r], how)) state->records[kept++] = state->records[r];
    state->record_count = kept;
}

/* ---- a team ---- */

static bool outlives_sync(prover *p, const prove_record *record, uint64_t how) {
    (void)how;
    prove_actor actor = actor_of(p, record);
    if (is_of_threads(actor)) return false;
    return !(actor == PROVE_COPY && record->level >= PROVE_WARPS);
}

static void sync_warp(prover *p, uint32_t context, prove_state *state) {
    if (p->contexts[context].team.warps == 1) {
        sift(p, state, outlives_sync, 0);
        return;
    }
    for (uint32_t r = 0; r < state->record_count; r++) {
        prove_record *record = &state->records[r];
        prove_actor actor = actor_of(p, record);
        if (actor == PROVE_THREADS || actor == PROVE_PRODUCT) record->level = PROVE_WARPS;
        if (actor == PROVE_COPY && record->level == PROVE_RETIRED) record->level = PROVE_WARPS;
    }
}

static void commit_group(prover *p, prove_state *state) {
    for (uint32_t r = 0; r < state->record_count; r++) {
        prove_record *record = &state->records[r];
        if (actor_of(p, record) != PROVE_COPY) continue;
        if (record->level == PROVE_COMMITTED) older(p, record);
        if (record->level == PROVE_OPEN) record->level = PROVE_COMMITTED;
    }
}

static void wait_group(prover *p, prove_state *state, uint32_t pending) {
    for (uint32_t r = 0; r < state->record_count; r++) {
        prove_record *record = &state->records[r];
        if (actor_of(p, record) != PROVE_COPY || record->level != PROVE_COMMITTED || record->age < pending)
            continue;
        record->level = PROVE_RETIRED;
        record->age = 0;
    }
}

static bool is_unread(prover *p, const prove_record *record, uint64_t pending) {
    return actor_of(p, record) != PROVE_STORE || record->age < pending;
}

void tvm_prove_order(prover *p, uint32_t context, prove_state *state, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    switch (insn->op) {
    case TVM_OP_SYNC:
    case TVM_OP_SYNC_CLUSTER: /* which waits for the block's own threads, too */
        sift(p, state, outlives_sync, 0);
        break;
    case TVM_OP_SYNC_WARP:
        sync_warp(p, context, state);
        break;
    case TVM_OP_COMMIT_GROUP:
        commit_group(p, state);
        break;
    case TVM_OP_WAIT_GROUP:
        wait_group(p, state, operands[0].value);
        break;
    case TVM_OP_WAIT_BULK:
        sift(p, state, is_unread, operands[0].value);
        break;
    case TVM_OP_ARRIVE_BARRIER:
        tvm_prove_arrive(p, context, state, at);
        break;
    case TVM_OP_WAIT_BARRIER:
        tvm_prove_wait(p, context, state, at);
        break;
    case TVM_OP_SYNC_BARRIER:
        tvm_prove_arrive(p, context, state, at);
        tvm_prove_wait(p, context, state, at);
        break;
    default: /* it orders nothing that is looked at here */
        break;
    }
}

/* ---- rings ---- */

/* Is the access over when an arrival that leaves out `pending` products is? */
static bool is_complete(const prover *p, const prove_record *record, uint16_t cell, uint32_t pending) {
    switch (actor_of(p, record)) {
    case PROVE_PRODUCT:
        return record->age >= pending;
    case PROVE_COPY:
        return record->level >= PROVE_WARPS;
    case PROVE_STORE:
        return false;
    case PROVE_BULK:
        return record->cell == cell;
    default:
        return true;
    }
}

/* What others see: the access, with the rings that order it. */
static void add_entry(prover *p, uint32_t context, uint32_t group, const prove_record *record,
                      uint64_t cover) {
    prove_entry entry;
    memset(&entry, 0, sizeof entry);
    entry.context = context;
    entry.group = group;
    uint32_t place = tvm_prove_place_after(p, record->place, TVM_NONE);
    if (place == TVM_NONE) return;
    entry.place = tvm_prove_place_without(p, place, TVM_NONE);
    if (entry.place == TVM_NONE) return;
    entry.lasts = context != 0 && actor_of(p, record) >= PROVE_COPY;
    entry.cover = cover;
    entry.after = context != 0 ? tvm_prove_waits_no_more(p, context, site_of(p, record->place)->insn) : 0;
    if (!tvm_prove_set_add(p, &p->entry_set, &entry, sizeof entry)) return;
    if (p->entry_count == p->entry_capacity) {
        uint32_t capacity = p->entry_capacity ? 2 * p->entry_capacity : 64;
        prove_entry *entries = realloc(p->entries, capacity * sizeof *entries);
        if (!entries) {
            p->no_memory = true;
            return;
        }
        p->entries = entries;
        p->entry_capacity = capacity;
    }
    p->entries[p->entry_count++] = entry;
}

/* Does the ring's own mbarrier bring what this team copies? Of a consumer, none is. */
static uint16_t bringing(uint32_t context, const prove_token *token) {
    bool produces = token->producers >> context & 1;
    return produces || token->full == token->empty ? token->full : PROVE_NO_CELL - 1;
}

void tvm_prove_let_go(prover *p, uint32_t context, prove_state *state, uint32_t number, uint32_t pending) {
    uint64_t bit = UINT64_C(1) << number;
    uint16_t cell = bringing(context, &p->tokens[number]);
    for (uint32_t r = 0; r < state->record_count; r++) {
        prove_record *record = &state->records[r];
        if (is_complete(p, record, cell, pending)) {
            record->marks |= bit;
        } else if (record->cover & bit) {
            record->cover &= ~bit;
            add_entry(p, context, p->contexts[context].group, record, record->cover);
        }
    }
}

static bool is_not_marked(prover *p, const prove_record *record, uint64_t bit) {
    (void)p;
    return !(record->marks & bit);
}

void tvm_prove_take(prover *p, prove_state *state, uint32_t number) {
    sift(p, state, is_not_marked, UINT64_C(1) << number);
}

/* ---- an access ---- */

static const char *verb(const prove_site *site, bool past) {
    if (site->is_atomic) return past ? "updated" : "updates";
    return site->writes ? past ? "wrote" : "writes" : past ? "read" : "reads";
}

static void name_element(const prover *p, const prove_site *site, const uint32_t *index, bool known,
                         char out[96]) {
    int length = snprintf(out, 96, "%%%.40s%s", tvm_string(p->program, p->kernel->slots[site->slot].name),
                          known ? "[" : "");
    for (unsigned d = 0; d < site->rank && known && length < 88; d++)
        length += snprintf(out + length, 96 - (size_t)length, "%s%u", d ? ", " : "", index[d]);
    if (known && length < 95) snprintf(out + length, 96 - (size_t)length, "]");
}

static void name_threads(const prover *p, uint32_t context, const prove_site *site, uint32_t thread,
                         char out[48]) {
    if (site->actor >= PROVE_PIPED)
        snprintf(out, 48, " (the copy)");
    else if (thread == PROVE_SEVERAL)
        out[0] = '\0';
    else
        snprintf(out, 48, " (thread %u)", 32 * p->contexts[context].team.first + thread);
}

static const char *missing(prove_actor actor) {
    switch (actor) {
    case PROVE_COPY:
        return "no commit-group, wait-group and sync orders the copy before it on some path";
    case PROVE_STORE:
        return "no wait-bulk comes between them on some path";
    case PROVE_BULK:
        return "no wait-barrier for the copy is known to come between them on some path";
    default:
        return "nothing orders other threads' accesses between them on some path";
    }
}

/* In the memory of one block for sure? */
static bool is_one_block(const prover *p, const prove_place *x, const prove_place *y) {
    const bool far = p->sites[x->site].block != NULL;
    if (far != (p->sites[y->site].block != NULL)) return false;
    return !far || (x->block == y->block && tvm_prove_is_exact(x->block));
}

/* Are both at one place for sure? */
static bool is_certain(const prover *p, uint32_t a, uint32_t b) {
    const prove_place *x = &p->places[a], *y = &p->places[b];
    if (p->sites[x->site].slot != p->sites[y->site].slot || !is_one_block(p, x, y)) return false;
    for (unsigned d = 0; d < p->sites[x->site].rank; d++)
        if (x->low[d] <= PROVE_ALIGNED || y->low[d] <= PROVE_ALIGNED) return false;
    return true;
}

/* Is the element touched for sure, where the other access is a copy's, or else by a thread that is named, or
 * by all? */
static bool is_definite(const prove_site *site, uint32_t thread, bool beside_copy) {
    if (site->everywhere || site->is_masked) return false;
    return beside_copy || site->actor >= PROVE_COPY ||
           (!site->by_warps && (!site->layout || thread != PROVE_SEVERAL));
}

static void report(prover *p, uint32_t context, const prove_state *state, const prove_record *past,
                   uint32_t place, prove_pair *pair) {
    const prove_site *a = site_of(p, past->place), *b = site_of(p, place);
    char element[96], who[48], whom[48];
    bool certain = is_certain(p, past->place, place);
    if (certain && !pair->certain)
        for (unsigned d = 0; d < a->rank; d++) {
            int32_t x = p->places[past->place].low[d], y = p->places[place].low[d];
            pair->index[d] = (uint32_t)(x > y ? x : y);
        }
    name_element(p, b, pair->index, certain, element);
    name_threads(p, context, b, pair->second, who);
    name_threads(p, context, a, pair->first, whom);
    bool refuted = state->sure && certain && is_definite(a, pair->first, b->actor >= PROVE_COPY) &&
                   is_definite(b, pair->second, a->actor >= PROVE_COPY);
    tvm_prove_fail(p, &p->proof->races, refuted ? TVM_REFUTED : TVM_NOT_PROVED, b->insn, a->insn,
                   "%s %s %s%s, which %s, line %u, %s%s: %s", tvm_prove_mnemonic(p, b->insn), verb(b, false),
                   element, who, tvm_prove_mnemonic(p, a->insn), tvm_prove_line(p, a->insn), verb(a, true),
                   whom, missing(a->actor));
}

/* Two of threads, which hold elements by their layouts. */
static bool threads_conflict(prover *p, const prove_record *past, uint32_t place, prove_pair *pair) {
    const prove_site *now = site_of(p, place);
    bool alone = past->level == PROVE_WARPS;
    if (!alone && (now->by_warps || site_of(p, past->place)->by_warps)) return true;
    return tvm_prove_differ(p, past->place, place, alone, pair);
}

static bool conflicts(prover *p, const prove_record *past, uint32_t place, prove_pair *pair) {
    prove_actor then = actor_of(p, past), now = site_of(p, place)->actor;
    *pair = (prove_pair){.first = PROVE_SEVERAL, .second = PROVE_SEVERAL};
    if (!tvm_prove_overlap(p, past->place, place)) return false;
    if (then == PROVE_STORE || then == PROVE_BULK) return true;
    if (then == PROVE_COPY && past->level != PROVE_WARPS) return true;
    if (now == PROVE_PIPED) return then == PROVE_COPY;
    if (now == PROVE_STORE || now == PROVE_BULK) return true;
    if (now == PROVE_COPY && past->level != PROVE_WARPS) return true;
    return threads_conflict(p, past, place, pair);
}

/* The access before that is nearest in the text, of those that conflict, a write first: the one that the
 * sanitizer tells. */
static const prove_record *latest_conflict(prover *p, const prove_state *state, uint32_t place,
                                           prove_pair *pair) {
    const uint32_t now = site_of(p, place)->insn, all = p->kernel->insn_count;
    const prove_record *latest = NULL;
    uint32_t most = 0;
    for (uint32_t r = 0; r < state->record_count; r++) {
        prove_pair found;
        const prove_site *site = site_of(p, state->records[r].place);
        uint32_t key = site->insn + (site->insn < now ? all : 0) + (site->writes ? 2 * all : 0);
        if ((latest && key < most) || !conflicts(p, &state->records[r], place, &found)) continue;
        latest = &state->records[r];
        most = key;
        *pair = found;
    }
    return latest;
}

/* Does a record matter to the team itself: does it write what it has read? */
static bool matters(const prover *p, uint32_t context, const prove_site *site) {
    return site->writes ||
           p->touched[(size_t)context * p->kernel->slot_count + site->root] & PROVE_TOUCHED_BY_WRITES;
}

/* One that is the same but for its past is not needed beside the new one. */
static void add_record(prover *p, prove_state *state, const prove_record *record) {
    const prove_actor actor = actor_of(p, record);
    for (uint32_t r = 0; r < state->record_count; r++) {
        prove_record *other = &state->records[r];
        if (memcmp(other, record, sizeof *other) == 0) return;
        if (actor != PROVE_THREADS || other->place != record->place) continue;
        *other = *record;
        return;
    }
    if (state->record_count == state->record_capacity) {
        uint32_t capacity = state->record_capacity ? 2 * state->record_capacity : 16;
        prove_record *records = realloc(state->records, capacity * sizeof *records);
        if (!records) {
            p->no_memory = true;
            return;
        }
        state->records = records;
        state->record_capacity = capacity;
    }
    state->records[state->record_count++] = *record;
}

static bool is_wanted(prover *p, const prove_record *record, uint64_t context) {
    return actor_of(p, record) != PROVE_PRODUCT || record->age < p->most_pending ||
           matters(p, (uint32_t)context, site_of(p, record->place));
}

/* A product, or a store-bulk, is one more since those before. */
static void count_after(prover *p, uint32_t context, prove_state *state, prove_actor actor) {
    for (uint32_t r = 0; r < state->record_count; r++)
        if (actor_of(p, &state->records[r]) == actor) older(p, &state->records[r]);
    if (actor == PROVE_PRODUCT) sift(p, state, is_wanted, context);
}

void tvm_prove_access(prover *p, uint32_t context, prove_state *state, uint32_t insn) {
    if (p->kernel->insns[insn].op == TVM_OP_MMA && !p->gathers) count_after(p, context, state, PROVE_PRODUCT);
    for (uint32_t s = p->first_site[insn]; s < p->first_site[insn + 1] && !p->no_memory; s++) {
        const prove_site *site = &p->sites[s];
        if (site->actor == PROVE_BULK) tvm_prove_bring(p, context, state, site);
        if (p->gathers) continue;
        uint32_t place = tvm_prove_place_of(p, state, s);
        if (place == TVM_NONE || p->too_long) return;
        prove_pair pair;
        tvm_prove_charge(p, 10 + 2 * (uint64_t)state->record_count);
        const prove_record *past = latest_conflict(p, state, place, &pair);
        if (past) report(p, context, state, past, place, &pair);
        prove_record record;
        memset(&record, 0, sizeof record);
        record.place = place;
        record.cell = site->barrier ? tvm_prove_cell_at(p, state, site->barrier) : PROVE_NO_CELL;
        /* the code may start a copy of a pipelined loop before the ring is held */
        record.cover = site->actor == PROVE_PIPED ? 0 : state->held & p->rings;
        if (site->actor == PROVE_STORE) count_after(p, context, state, PROVE_STORE);
        if (context != 0 || p->groups[insn] & 1 || tvm_prove_is_reached(p, site->root))
            add_entry(p, context, p->groups[insn] / 2, &record, record.cover);
        if (site->actor == PROVE_PIPED) continue;
        if (matters(p, context, site) || site->actor == PROVE_PRODUCT || site->actor >= PROVE_COPY)
            add_record(p, state, &record);
    }
}

/* Equal ones are one. */
static void merge(prove_state *state) {
    for (uint32_t r = 0; r < state->record_count; r++)
        for (uint32_t s = state->record_count; s-- > r + 1;)
            if (memcmp(&state->records[r], &state->records[s], sizeof *state->records) == 0)
                state->records[s] = state->records[--state->record_count];
}

void tvm_prove_drop_bounds(prover *p, prove_state *state, uint32_t slot) {
    for (uint32_t r = 0; r < state->record_count; r++) {
        uint32_t place = tvm_prove_place_without(p, state->records[r].place, slot);
        if (place == TVM_NONE) return;
        state->records[r].place = place;
    }
    merge(state);
}

void tvm_prove_move_records(prover *p, prove_state *state, uint32_t loop, bool ends) {
    for (uint32_t r = 0; r < state->record_count && !p->no_memory; r++) {
        prove_record *record = &state->records[r];
        uint32_t place = ends ? tvm_prove_place_after(p, record->place, loop)
                              : tvm_prove_next_place(p, record->place, loop);
        if (place == TVM_NONE) return;
        record->place = place;
    }
    merge(state);
}

void tvm_prove_begin_role(prover *p, const prove_state *state, uint32_t group) {
    for (uint32_t r = 0; r < state->record_count; r++) add_entry(p, 0, group, &state->records[r], 0);
}

/* Nothing may be under way in a tensor whose memory others may get. */
bool tvm_prove_frees(prover *p, const prove_state *state, uint32_t insn) {
    uint32_t slot = tvm_operands(p->kernel, &p->kernel->insns[insn])->value;
    if (tvm_prove_is_reached(p, slot)) {
        tvm_prove_fail(p, &p->proof->races, TVM_NOT_PROVED, insn, TVM_NONE,
                       "free-shared of a tensor that other blocks of the cluster access");
        return false;
    }
    for (uint32_t r = 0; r < state->record_count; r++) {
        const prove_site *site = site_of(p, state->records[r].place);
        if (site->root != slot || site->actor < PROVE_COPY) continue;
        tvm_prove_fail(p, &p->proof->races, TVM_NOT_PROVED, insn, site->insn,
                       "free-shared of a tensor that %s, line %u, may still use",
                       tvm_prove_mnemonic(p, site->insn), tvm_prove_line(p, site->insn));
        return false;
    }
    for (uint32_t e = 0; e < p->entry_count; e++) {
        const prove_site *site = site_of(p, p->entries[e].place);
        if (site->root != slot || !p->entries[e].lasts) continue;
        tvm_prove_fail(p, &p->proof->races, TVM_NOT_PROVED, insn, site->insn,
                       "free-shared of a tensor that %s, line %u, of a role may still use",
                       tvm_prove_mnemonic(p, site->insn), tvm_prove_line(p, site->insn));
        return false;
    }
    return true;
}
