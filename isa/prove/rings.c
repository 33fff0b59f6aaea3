/* mbarriers: which pairs of them are rings, whether each team keeps to them, and whether rings order what
 * different teams touch. See prove.h for why a ring orders. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- mbarriers, one by one ---- */

static uint32_t count_of(const prover *p, uint32_t slot) {
    const tvm_slot *of = &p->kernel->slots[slot];
    const uint32_t *shape = tvm_slot_shape(p->program, of);
    uint32_t count = 1;
    for (unsigned d = 0; d < tvm_slot_rank(p->program, of); d++) count *= shape[d];
    return count;
}

static void add_cells(prover *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    uint32_t count = count_of(p, insn->result);
    p->first_cell[insn->result] = p->cell_count;
    for (uint32_t i = 0; i < count; i++)
        p->cells[p->cell_count++] =
            (prove_cell){.slot = insn->result,
                         .index = i,
                         .arrivals = operands[0].kind == TVM_OPERAND_NONE ? 1 : operands[0].value,
                         .open = operands[1].kind != TVM_OPERAND_NONE};
}

bool tvm_prove_find_cells(prover *p) {
    size_t count = 0;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++)
        if (p->kernel->insns[i].op == TVM_OP_ALLOC_BARRIER) count += count_of(p, p->kernel->insns[i].result);
    p->cells = calloc(count + 1, sizeof *p->cells);
    p->first_cell = calloc(p->kernel->slot_count + (size_t)1, sizeof *p->first_cell);
    if (!p->cells || !p->first_cell || count >= PROVE_NO_CELL - 1) return false;
    for (uint32_t i = 0; i < p->kernel->insn_count; i++) {
        const tvm_insn *insn = &p->kernel->insns[i];
        if (insn->op == TVM_OP_ALLOC_BARRIER) add_cells(p, insn);
    }
    return true;
}

uint16_t tvm_prove_cell_at(const prover *p, const prove_state *state, const tvm_operand *operand) {
    const tvm_slot *slot = &p->kernel->slots[operand->value];
    const uint32_t *shape = tvm_slot_shape(p->program, slot);
    int64_t at = 0;
    for (unsigned d = 0; d < tvm_slot_rank(p->program, slot); d++) {
        prove_value index = tvm_prove_eval(p, state, operand[1 + d].value);
        if (index.kind != PROVE_EXACT || index.v < 0 || index.v >= shape[d]) return PROVE_NO_CELL;
        at = at * shape[d] + index.v;
    }
    return (uint16_t)(p->first_cell[operand->value] + at);
}

static void make_wild(prover *p, uint32_t slot) {
    for (uint32_t c = p->first_cell[slot]; c < p->first_cell[slot] + count_of(p, slot); c++)
        p->cells[c].wild = true;
}

/* ---- who uses which ---- */

typedef enum use { ARRIVES, WAITS } use;

static void note_use(prover *p, uint32_t context, uint16_t cell, uint32_t slot, use how) {
    if (cell == PROVE_NO_CELL) {
        make_wild(p, slot);
        return;
    }
    uint32_t *users = how == ARRIVES ? &p->cells[cell].arrive_by : &p->cells[cell].wait_by;
    *users |= UINT32_C(1) << context;
}

static uint32_t bits_of(uint32_t set) {
    return (uint32_t)__builtin_popcount(set);
}

/* All of them teams of roles, of one group, and of different warps: it is warps that count the phases they
 * have waited for. */
static bool is_of_one_group(const prover *p, uint32_t set) {
    uint32_t group = UINT32_MAX, warps = 0;
    if (set & 1) return false;
    for (uint32_t c = 1; c < p->context_count; c++) {
        tvm_team team = p->contexts[c].team;
        uint32_t own = (team.warps == 32 ? UINT32_MAX : (UINT32_C(1) << team.warps) - 1) << team.first;
        if (!(set >> c & 1)) continue;
        if (warps & own || (group != UINT32_MAX && p->contexts[c].group != group)) return false;
        group = p->contexts[c].group;
        warps |= own;
    }
    return group != UINT32_MAX;
}

static bool is_ring(const prover *p, const prove_cell *full, const prove_cell *empty) {
    uint32_t producers = full->arrive_by, consumers = full->wait_by;
    return !full->wild && !empty->wild && !full->open && empty->open && full->index == empty->index &&
           producers && consumers && !(producers & consumers) && empty->wait_by == producers &&
           empty->arrive_by == consumers && !(full->bring_by & ~producers) && !empty->bring_by &&
           full->arrivals == bits_of(producers) && empty->arrivals == bits_of(consumers) &&
           is_of_one_group(p, producers | consumers);
}

/* An mbarrier of one team. */
static bool is_own(const prove_cell *cell) {
    return !cell->wild && !cell->open && cell->arrivals == 1 && cell->arrive_by == cell->wait_by &&
           bits_of(cell->arrive_by) == 1 && !(cell->bring_by & ~cell->arrive_by);
}

/* An mbarrier at which teams arrive once, and for which others wait once: half of a ring. The former hold it
 * from the beginning of their roles to the arrival, the latter from the wait to the end. */
static bool is_once(const prover *p, const prove_cell *cell) {
    uint32_t before = cell->arrive_by, after = cell->wait_by;
    return !cell->wild && !cell->open && before && after && !(before & after) &&
           !(cell->bring_by & ~before) && cell->arrivals == bits_of(before) &&
           is_of_one_group(p, before | after);
}

/* An mbarrier at which each of some teams arrives once, and for which each of them waits then. */
static bool is_meeting(const prover *p, const prove_cell *cell) {
    return !cell->wild && !cell->open && cell->arrive_by == cell->wait_by && !cell->bring_by &&
           bits_of(cell->arrive_by) > 1 && cell->arrivals == bits_of(cell->arrive_by) &&
           is_of_one_group(p, cell->arrive_by);
}

static void add_token(prover *p, uint32_t full, uint32_t empty, uint32_t producers) {
    if (p->token_count == PROVE_TOKENS) return;
    if (full != empty) p->rings |= UINT64_C(1) << p->token_count;
    p->tokens[p->token_count++] = (prove_token){.full = (uint16_t)full,
                                                .empty = (uint16_t)empty,
                                                .producers = producers,
                                                .consumers = p->cells[full].wait_by};
}

/* For each team a half ring, of which it is the producer and the others are the consumers. */
static void add_meeting(prover *p, uint32_t full) {
    for (uint32_t c = 0; c < p->context_count; c++) {
        if (!(p->cells[full].arrive_by >> c & 1)) continue;
        add_token(p, full, PROVE_NO_CELL, UINT32_C(1) << c);
        p->tokens[p->token_count - 1].consumers &= ~(UINT32_C(1) << c);
    }
}

void tvm_prove_find_tokens(prover *p) {
    for (uint32_t f = 0; f < p->cell_count; f++) {
        uint32_t before = p->token_count, producers = p->cells[f].arrive_by;
        if (is_own(&p->cells[f])) add_token(p, f, f, producers);
        for (uint32_t e = 0; e < p->cell_count; e++)
            if (e != f && is_ring(p, &p->cells[f], &p->cells[e])) add_token(p, f, e, producers);
        if (p->token_count == before && is_once(p, &p->cells[f])) add_token(p, f, PROVE_NO_CELL, producers);
        if (p->token_count + PROVE_CONTEXTS < PROVE_TOKENS && is_meeting(p, &p->cells[f])) add_meeting(p, f);
    }
}

uint64_t tvm_prove_held_first(const prover *p, uint32_t context) {
    uint64_t held = 0;
    for (uint32_t t = 0; t < p->token_count && !p->gathers; t++)
        if (p->tokens[t].empty == PROVE_NO_CELL && !p->tokens[t].broken &&
            p->tokens[t].producers >> context & 1)
            held |= UINT64_C(1) << t;
    return held;
}

/* ---- by turns ---- */

static void break_token(prover *p, uint32_t number) {
    p->tokens[number].broken = true;
    p->restart = true;
}

static bool is_self(const prove_token *token) {
    return token->full == token->empty;
}

/* Is it an arrival, by this team, that lets go of the ring? */
static bool lets_go(const prove_token *token, uint32_t context, uint16_t cell) {
    if (is_self(token)) return token->full == cell;
    return (token->producers >> context & 1) ? token->full == cell
                                             : (token->consumers >> context & 1) && token->empty == cell;
}

static bool takes(const prove_token *token, uint32_t context, uint16_t cell) {
    if (is_self(token)) return token->full == cell;
    return (token->producers >> context & 1) ? token->empty == cell
                                             : (token->consumers >> context & 1) && token->full == cell;
}

/* Is it a wait for an mbarrier at which the team has arrived itself, with others? */
static bool has_met(const prove_token *token, uint32_t context, uint16_t cell) {
    return token->empty == PROVE_NO_CELL && token->full == cell && token->producers >> context & 1;
}

bool tvm_prove_is_of_token(const prover *p, uint32_t context, uint16_t cell) {
    for (uint32_t t = 0; t < p->token_count; t++)
        if (!p->tokens[t].broken && takes(&p->tokens[t], context, cell)) return true;
    return false;
}

static uint32_t pending_of(const prover *p, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    if (insn->op != TVM_OP_ARRIVE_BARRIER) return 0;
    const tvm_operand *pending = &operands[insn->count - 2];
    return pending->kind == TVM_OPERAND_CONST ? pending->value : 0;
}

/* Which mbarrier it is was known when users were found, or may be any. */
static uint16_t used_cell(prover *p, const prove_state *state, const tvm_operand *operands) {
    uint16_t cell = tvm_prove_cell_at(p, state, operands);
    if (cell == PROVE_NO_CELL && !p->gathers && !p->cells[p->first_cell[operands->value]].wild)
        p->too_long = true;
    return cell;
}

void tvm_prove_arrive(prover *p, uint32_t context, prove_state *state, uint32_t insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[insn]);
    uint16_t cell = used_cell(p, state, operands);
    if (p->gathers) note_use(p, context, cell, operands->value, ARRIVES);
    for (uint32_t t = 0; t < p->token_count && cell != PROVE_NO_CELL && !p->gathers; t++) {
        uint64_t bit = UINT64_C(1) << t;
        if (p->tokens[t].broken || !lets_go(&p->tokens[t], context, cell)) continue;
        /* a ring is held until it is let go of; of an own mbarrier the bit says that it has arrived */
        bool ready = is_self(&p->tokens[t]) ? !(state->held & bit) : state->held & bit;
        if (!ready) break_token(p, t);
        state->held ^= bit;
        tvm_prove_let_go(p, context, state, t, pending_of(p, &p->kernel->insns[insn]));
    }
}

void tvm_prove_wait(prover *p, uint32_t context, prove_state *state, uint32_t insn) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[insn]);
    uint16_t cell = used_cell(p, state, operands);
    bool alone = false;
    if (p->gathers) note_use(p, context, cell, operands->value, WAITS);
    for (uint32_t t = 0; t < p->token_count && cell != PROVE_NO_CELL && !p->gathers; t++) {
        uint64_t bit = UINT64_C(1) << t;
        if (!p->tokens[t].broken && has_met(&p->tokens[t], context, cell) && !(state->held & bit))
            tvm_prove_take(p, state, t);
        if (p->tokens[t].broken || !takes(&p->tokens[t], context, cell)) continue;
        bool self = is_self(&p->tokens[t]), ready = self ? state->held & bit : !(state->held & bit);
        alone = alone || self;
        if (!ready) break_token(p, t);
        state->held ^= bit;
        tvm_prove_take(p, state, t);
    }
    if (alone || p->gathers) return;
    if (p->waits_alone) p->odd_wait = insn;
    p->waits_alone = false;
    state->sure = false;
}

/* A copy whose bytes the mbarrier's phase waits for: of a ring while it is held, of a team's own mbarrier
 * before the arrival. Otherwise it is not known which phase it is that waits. */
void tvm_prove_bring(prover *p, uint32_t context, const prove_state *state, const prove_site *site) {
    uint16_t cell = site->barrier ? tvm_prove_cell_at(p, state, site->barrier) : PROVE_NO_CELL;
    if (p->gathers && cell != PROVE_NO_CELL) p->cells[cell].bring_by |= UINT32_C(1) << context;
    if (p->gathers && cell == PROVE_NO_CELL && site->barrier) make_wild(p, site->barrier->value);
    for (uint32_t t = 0; t < p->token_count && cell != PROVE_NO_CELL && !p->gathers; t++) {
        const prove_token *token = &p->tokens[t];
        bool held = state->held >> t & 1;
        if (!token->broken && token->full == cell && held == is_self(token)) break_token(p, t);
    }
}

/* ---- different teams ---- */

/* Does a wait for the mbarrier's tensor come, on some path, after the instruction? */
static bool may_wait_after(const prover *p, const prove_context *team, uint32_t insn, uint32_t slot) {
    uint32_t from = insn;
    for (uint32_t i = team->from; i < insn; i++)
        if (tvm_insn_class(&p->kernel->insns[i]) == TVM_CLASS_LOOP && p->kernel->insns[i].match > insn &&
            i < from)
            from = i;
    for (uint32_t i = from; i < team->end; i++) {
        const tvm_insn *wait = &p->kernel->insns[i];
        if ((wait->op == TVM_OP_WAIT_BARRIER || wait->op == TVM_OP_SYNC_BARRIER) &&
            tvm_operands(p->kernel, wait)->value == slot)
            return true;
    }
    return false;
}

uint64_t tvm_prove_waits_no_more(const prover *p, uint32_t context, uint32_t insn) {
    uint64_t after = 0;
    uint32_t slot = TVM_NONE; /* of the tokens before: most are of one tensor */
    bool waits = false;
    for (uint32_t t = 0; t < p->token_count; t++) {
        const prove_token *token = &p->tokens[t];
        if (token->broken || is_self(token) || !(token->consumers >> context & 1)) continue;
        if (p->cells[token->full].slot != slot) {
            slot = p->cells[token->full].slot;
            waits = may_wait_after(p, &p->contexts[context], insn, slot);
        }
        if (!waits) after |= UINT64_C(1) << t;
    }
    return after;
}

static bool is_producer(const prove_token *token, uint32_t context) {
    return token->producers >> context & 1;
}

/* Of a ring that is drained, somebody has waited for it. */
bool tvm_prove_lasts(const prover *p, const prove_entry *entry) {
    uint64_t drained = entry->cover & p->drained;
    for (uint32_t t = 0; t < p->token_count && entry->lasts; t++)
        if (drained >> t & 1 && is_producer(&p->tokens[t], entry->context)) return false;
    return entry->lasts;
}

static bool is_beside(const prover *p, const prove_entry *a, const prove_entry *b) {
    if (a->context == b->context) return false;
    return a->group == b->group || (a->group < b->group && tvm_prove_lasts(p, a)) ||
           (b->group < a->group && tvm_prove_lasts(p, b));
}

/* Is what the producer does before the phase's end, which the consumer has waited for? */
static bool comes_before(const prover *p, const prove_entry *a, const prove_entry *b, uint32_t t) {
    const prove_token *token = &p->tokens[t];
    return a->cover & b->after & p->drained & UINT64_C(1) << t && is_producer(token, a->context) &&
           token->consumers >> b->context & 1;
}

/* Do both hold a ring, from its two sides, or does one come after all that the ring brings? */
static bool is_ordered(const prover *p, const prove_entry *a, const prove_entry *b) {
    uint64_t both = a->cover & b->cover;
    for (uint32_t t = 0; t < p->token_count; t++) {
        const prove_token *token = &p->tokens[t];
        if (token->broken || is_self(token)) continue;
        if (both >> t & 1 && ((is_producer(token, a->context) && token->consumers >> b->context & 1) ||
                              (is_producer(token, b->context) && token->consumers >> a->context & 1)))
            return true;
        if (comes_before(p, a, b, t) || comes_before(p, b, a, t)) return true;
    }
    return false;
}

static void name_team(const prover *p, uint32_t context, char out[96]) {
    const prove_context *c = &p->contexts[context];
    if (context == 0)
        snprintf(out, 96, "the block");
    else
        snprintf(out, 96, "role '%.60s' %u",
                 tvm_string(p->program, p->kernel->slots[p->kernel->insns[c->role].result].name), c->index);
}

void tvm_prove_compare_teams(prover *p) {
    char who[96], whom[96];
    for (uint32_t a = 0; a < p->entry_count && !p->too_long; a++, tvm_prove_charge(p, p->entry_count - a))
        for (uint32_t b = a + 1; b < p->entry_count; b++) {
            const prove_entry *x = &p->entries[a], *y = &p->entries[b];
            if (!is_beside(p, x, y) || !tvm_prove_overlap(p, x->place, y->place) || is_ordered(p, x, y))
                continue;
            uint32_t first = p->sites[p->places[x->place].site].insn,
                     second = p->sites[p->places[y->place].site].insn;
            name_team(p, x->context, who);
            name_team(p, y->context, whom);
            tvm_prove_fail(
                p, &p->proof->races, TVM_NOT_PROVED, second, first,
                "%s of '%s' by %s and %s, line %u, by %s: no ring of mbarriers is known to order them",
                tvm_prove_mnemonic(p, second),
                tvm_string(p->program, p->kernel->slots[p->sites[p->places[y->place].site].slot].name), whom,
                tvm_prove_mnemonic(p, first), tvm_prove_line(p, first), who);
            return;
        }
}
