/* mbarriers: what a team may do with those of a ring, and what rings order between teams. See check_impl.h.
 */
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"

/* ---- one by one ---- */

static uint32_t count_of(const checker *c, uint32_t slot) {
    const tvm_slot *of = &c->kernel->slots[slot];
    const uint32_t *shape = tvm_slot_shape(c->program, of);
    uint32_t count = 1;
    for (unsigned d = 0; d < tvm_slot_rank(c->program, of); d++) count *= shape[d];
    return count;
}

bool tvm_check_find_cells(checker *c) {
    uint32_t depth = 0;
    c->first_cell = calloc(c->kernel->slot_count + (size_t)1, sizeof *c->first_cell);
    for (uint32_t i = 0; c->first_cell && i < c->kernel->insn_count; i++) {
        const tvm_insn *insn = &c->kernel->insns[i];
        const tvm_operand *operands = tvm_operands(c->kernel, insn);
        tvm_op_class class = tvm_insn_class(insn);
        if (class == TVM_CLASS_END) depth--;
        if (tvm_class_opens(class)) depth++;
        if (insn->op == TVM_OP_ARRIVE_BARRIER && operands[insn->count - 1].kind != TVM_OPERAND_NONE)
            tvm_check_refuse(c, i, "an arrival at another block's mbarrier is not looked at");
        if (insn->op != TVM_OP_ALLOC_BARRIER) continue;
        uint32_t count = count_of(c, insn->result);
        if (depth || c->cell_count + count > CHECK_CELLS) {
            tvm_check_refuse(c, i,
                             "mbarriers are made in a loop, a condition or a role, or there are too many");
            return true;
        }
        c->first_cell[insn->result] = c->cell_count;
        while (count--)
            c->cells[c->cell_count++] =
                (check_cell){.slot = insn->result,
                             .arrivals = operands[0].kind == TVM_OPERAND_NONE ? 1 : operands[0].value,
                             .open = operands[1].kind != TVM_OPERAND_NONE};
    }
    return c->first_cell != NULL;
}

uint16_t tvm_check_cell_at(const checker *c, const check_state *state, const tvm_operand *operand) {
    const tvm_slot *slot = &c->kernel->slots[operand->value];
    const uint32_t *shape = tvm_slot_shape(c->program, slot);
    int64_t at = 0;
    for (unsigned d = 0; d < tvm_slot_rank(c->program, slot); d++) {
        check_value index = tvm_check_eval(c, state, operand[1 + d].value);
        if (index.kind != CHECK_EXACT || index.v < 0 || index.v >= shape[d]) return CHECK_NO_CELL;
        at = at * shape[d] + index.v;
    }
    return (uint16_t)(c->first_cell[operand->value] + at);
}

/* ---- by turns ---- */

static bool is_own(const check_ring *ring) {
    return ring->full == ring->empty;
}

static bool is_half(const check_ring *ring) {
    return ring->empty == CHECK_NO_CELL;
}

static bool produces(const check_ring *ring, uint32_t team) {
    return ring->producers >> team & 1;
}

static bool consumes(const check_ring *ring, uint32_t team) {
    return ring->consumers >> team & 1;
}

/* Is an arrival at the cell, by this team, the one that lets go of the ring? */
static bool lets_go(const check_ring *ring, uint32_t team, uint32_t cell) {
    return produces(ring, team) ? ring->full == cell
                                : consumes(ring, team) && !is_half(ring) && ring->empty == cell;
}

static bool takes(const check_ring *ring, uint32_t team, uint32_t cell) {
    if (is_own(ring)) return produces(ring, team) && ring->full == cell;
    return produces(ring, team) ? !is_half(ring) && ring->empty == cell
                                : consumes(ring, team) && ring->full == cell;
}

/* Each producer of a half ring holds it from the beginning of its role. */
uint64_t tvm_check_held_first(const checker *c, uint32_t team) {
    uint64_t held = 0;
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (is_half(&c->rings[r]) && produces(&c->rings[r], team)) held |= UINT64_C(1) << r;
    return held;
}

bool tvm_check_is_taken(const checker *c, uint32_t team, uint32_t cell) {
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (takes(&c->rings[r], team, cell)) return true;
    return false;
}

static void break_ring(checker *c, uint32_t ring, uint32_t insn) {
    c->bad_ring = ring;
    tvm_check_refuse(
        c, insn, "a team does not wait and arrive at a ring's mbarriers by turns, as the certificate says");
}

/* What the instruction names; CHECK_NO_CELL: it is not known, which ends the check. */
static uint16_t used_cell(checker *c, const check_state *state, uint32_t insn) {
    uint16_t cell = tvm_check_cell_at(c, state, tvm_operands(c->kernel, &c->kernel->insns[insn]));
    if (cell == CHECK_NO_CELL)
        tvm_check_refuse(c, insn, "which mbarrier it is does not follow from the invariants");
    return cell;
}

static void let_go(checker *c, check_state *state, uint32_t number, uint32_t pending) {
    const check_ring *ring = &c->rings[number];
    check_record *record = &state->record;
    const uint64_t bit = UINT64_C(1) << number;
    /* the ring's own mbarrier brings what a producer copies; of a consumer none does */
    uint32_t brings = produces(ring, state->team) ? ring->full : CHECK_NO_CELL - 1;
    if (!record->place) return;
    if (tvm_check_is_complete(c, record, brings, pending)) {
        record->marks |= bit;
    } else if (record->cover & bit) {
        record->cover &= ~bit;
        tvm_check_add_entry(c, state, c->teams[state->team].group);
    }
}

void tvm_check_arrive(checker *c, check_state *state, uint32_t at) {
    const uint32_t team = state->team;
    const tvm_insn *insn = &c->kernel->insns[at];
    uint16_t cell = used_cell(c, state, at);
    uint32_t pending = 0;
    if (cell == CHECK_NO_CELL) return;
    if (insn->op == TVM_OP_ARRIVE_BARRIER) {
        const tvm_operand *operand = &tvm_operands(c->kernel, insn)[insn->count - 2];
        if (operand->kind == TVM_OPERAND_CONST) pending = operand->value;
    }
    c->cells[cell].arrive_by |= UINT32_C(1) << team;
    for (uint32_t r = 0; r < c->ring_count && !c->over; r++) {
        const uint64_t bit = UINT64_C(1) << r;
        if (!lets_go(&c->rings[r], team, cell)) continue;
        /* a ring is held until it is let go of; of an own mbarrier the bit says that the team has arrived */
        if (is_own(&c->rings[r]) == ((state->held & bit) != 0)) break_ring(c, r, at);
        state->held ^= bit;
        let_go(c, state, r, pending);
    }
}

void tvm_check_wait(checker *c, check_state *state, uint32_t at) {
    const uint32_t team = state->team;
    uint16_t cell = used_cell(c, state, at);
    bool own = false;
    if (cell == CHECK_NO_CELL) return;
    c->cells[cell].wait_by |= UINT32_C(1) << team;
    for (uint32_t r = 0; r < c->ring_count && !c->over; r++) {
        const check_ring *ring = &c->rings[r];
        const uint64_t bit = UINT64_C(1) << r;
        /* where all that meet arrive and wait, who has arrived itself has waited for its own phase, too */
        bool met = is_half(ring) && ring->full == cell && produces(ring, team) && !(state->held & bit);
        bool taken = takes(ring, team, cell);
        own = own || (taken && is_own(ring));
        if (taken && is_own(ring) != ((state->held & bit) != 0)) break_ring(c, r, at);
        if (taken) state->held ^= bit;
        if ((taken || met) && state->record.marks & bit) memset(&state->record, 0, sizeof state->record);
    }
    c->waits = c->waits || !own;
}

/* A copy whose bytes the mbarrier's phase waits for: of a ring while it is held, of an own mbarrier before
 * the arrival. Otherwise it is not known which phase it is that waits. */
void tvm_check_bring(checker *c, const check_state *state, const check_site *site) {
    uint16_t cell = site->barrier ? tvm_check_cell_at(c, state, site->barrier) : CHECK_NO_CELL;
    if (cell == CHECK_NO_CELL) {
        tvm_check_refuse(c, site->insn, "which mbarrier the copy is for does not follow from the invariants");
        return;
    }
    c->cells[cell].bring_by |= UINT32_C(1) << state->team;
    for (uint32_t r = 0; r < c->ring_count && !c->over; r++)
        if (c->rings[r].full == cell && (state->held >> r & 1) == is_own(&c->rings[r]))
            break_ring(c, r, site->insn);
}

/* ---- are they what the certificate says? ---- */

static uint32_t bits_of(uint32_t set) {
    return (uint32_t)__builtin_popcount(set);
}

/* All of them teams of roles, of one group, and of different warps: it is warps that count the phases they
 * have waited for. */
static bool is_of_one_group(const checker *c, uint32_t set) {
    uint32_t group = UINT32_MAX, warps = 0;
    if (set & 1) return false;
    for (uint32_t t = 1; t < c->team_count; t++) {
        const uint32_t own = tvm_check_warps(c, t);
        if (!(set >> t & 1)) continue;
        if (warps & own || (group != UINT32_MAX && c->teams[t].group != group)) return false;
        group = c->teams[t].group;
        warps |= own;
    }
    return group != UINT32_MAX;
}

/* What is said of who uses the mbarriers is what was found. In a half ring whose producers are one team of
 * those that meet there, all of them arrive and wait. */
static bool is_ring(const checker *c, const check_ring *ring) {
    const check_cell *full = &c->cells[ring->full];
    const uint32_t both = ring->producers | ring->consumers;
    if (full->open || full->arrivals != bits_of(full->arrive_by) || ring->producers & ring->consumers)
        return false;
    if (is_own(ring))
        return full->arrive_by == ring->producers && full->wait_by == ring->producers && !ring->consumers &&
               bits_of(ring->producers) == 1 && !(full->bring_by & ~ring->producers);
    if (!ring->producers || !ring->consumers || !is_of_one_group(c, both)) return false;
    if (is_half(ring)) {
        bool once = full->arrive_by == ring->producers && full->wait_by == ring->consumers &&
                    !(full->bring_by & ~ring->producers);
        bool meeting = full->arrive_by == both && full->wait_by == both && !full->bring_by &&
                       bits_of(ring->producers) == 1;
        return once || meeting;
    }
    const check_cell *empty = &c->cells[ring->empty];
    return full->arrive_by == ring->producers && full->wait_by == ring->consumers && empty->open &&
           empty->wait_by == ring->producers && empty->arrive_by == ring->consumers && !empty->bring_by &&
           !(full->bring_by & ~ring->producers) && empty->arrivals == bits_of(ring->consumers);
}

bool tvm_check_rings(checker *c) {
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (!is_ring(c, &c->rings[r])) {
            c->bad_ring = r;
            tvm_check_refuse(c, TVM_NONE, "mbarriers are used by other teams than the certificate says");
            return false;
        }
    return true;
}

/* ---- different teams ---- */

/* Does a wait for the mbarrier's tensor come, on some path, after the instruction? */
static bool may_wait_after(const checker *c, const check_team *team, uint32_t insn, uint32_t slot) {
    uint32_t from = insn;
    for (uint32_t i = insn; i-- > team->from;)
        if (tvm_insn_class(&c->kernel->insns[i]) == TVM_CLASS_LOOP && c->kernel->insns[i].match > insn)
            from = i;
    for (uint32_t i = from; i < team->end; i++) {
        const tvm_insn *wait = &c->kernel->insns[i];
        if ((wait->op == TVM_OP_WAIT_BARRIER || wait->op == TVM_OP_SYNC_BARRIER) &&
            tvm_operands(c->kernel, wait)->value == slot)
            return true;
    }
    return false;
}

uint64_t tvm_check_waits_no_more(const checker *c, uint32_t team, uint32_t insn) {
    uint64_t after = 0;
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (!is_own(&c->rings[r]) && consumes(&c->rings[r], team) &&
            !may_wait_after(c, &c->teams[team], insn, c->cells[c->rings[r].full].slot))
            after |= UINT64_C(1) << r;
    return after;
}

bool tvm_check_lasts(const checker *c, const check_entry *entry) {
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (entry->cover & c->drained & UINT64_C(1) << r && produces(&c->rings[r], entry->team)) return false;
    return entry->lasts;
}

static bool is_beside(const checker *c, const check_entry *a, const check_entry *b) {
    if (a->team == b->team) return false;
    return a->group == b->group || (a->group < b->group ? tvm_check_lasts(c, a) : tvm_check_lasts(c, b));
}

/* Is what the producer does before the phase's end, which the consumer has waited for? */
static bool comes_before(const check_entry *a, const check_entry *b, const check_ring *ring,
                         uint64_t drained) {
    return a->cover & b->after & drained && produces(ring, a->team) && consumes(ring, b->team);
}

/* Do both hold a ring, from its two sides, or does one come after all that the ring brings? */
static bool is_ordered(const checker *c, const check_entry *a, const check_entry *b) {
    for (uint32_t r = 0; r < c->ring_count; r++) {
        const check_ring *ring = &c->rings[r];
        const uint64_t bit = UINT64_C(1) << r;
        bool sides = (produces(ring, a->team) && consumes(ring, b->team)) ||
                     (produces(ring, b->team) && consumes(ring, a->team));
        if (is_own(ring)) continue;
        if ((a->cover & b->cover & bit && sides) || comes_before(a, b, ring, c->drained & bit) ||
            comes_before(b, a, ring, c->drained & bit))
            return true;
    }
    return false;
}

static void check_frees(checker *c, const check_entry *entry) {
    const check_site *site = tvm_check_site(c, entry->place);
    for (uint32_t i = 0; entry->lasts && i < c->kernel->insn_count; i++)
        if (c->kernel->insns[i].op == TVM_OP_FREE_SHARED &&
            tvm_operands(c->kernel, &c->kernel->insns[i])->value == site->root)
            tvm_check_fail(c, &c->checked->races, i,
                           "free-shared of a tensor that a copy of a role may still use");
}

void tvm_check_teams(checker *c) {
    for (uint32_t a = 0; a < c->entries.count && !c->over; a++, tvm_check_charge(c, c->entries.count - a)) {
        const check_entry *x = tvm_check_set_at(&c->entries, a);
        check_frees(c, x);
        for (uint32_t b = a + 1; b < c->entries.count; b++) {
            const check_entry *y = tvm_check_set_at(&c->entries, b);
            if (!is_beside(c, x, y) || !tvm_check_overlap(c, x->place, y->place) || is_ordered(c, x, y))
                continue;
            uint32_t one = tvm_check_site(c, x->place)->insn, two = tvm_check_site(c, y->place)->insn;
            tvm_check_fail(c, &c->checked->races, two,
                           "%s and, of another team, %s, line %u: no ring orders them",
                           tvm_op(c->kernel->insns[two].op)->mnemonic,
                           tvm_op(c->kernel->insns[one].op)->mnemonic, (unsigned)c->kernel->insns[one].line);
            return;
        }
    }
}
