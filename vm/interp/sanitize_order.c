/* What orders threads (tvm-memory(7)), as changes of clocks. */
#include "sanitize_impl.h"

#include <stdlib.h>
#include <string.h>

static sanitizer *sanitizer_of(const interp_block *block) {
    return block->run->sanitizer;
}

static tvm_status finish(sanitizer *s, bool done) {
    return done ? TVM_OK : tvm_interp_no_memory(s->run);
}

static uint32_t index_of(const interp_context *context) {
    return (uint32_t)(context - context->block->contexts);
}

/* Adds to `clock` what the threads of the context have done and seen, those copies that have ended for the
 * ones that made them, and all products but the latest `pending`. */
static bool publish(sanitizer *s, const san_block *block, uint32_t index, uint32_t pending,
                    san_clock *clock) {
    const san_context *own = &block->contexts[index];
    uint32_t products = s->now;
    bool done = true;
    for (uint32_t i = 0; i < own->acquired_count && done; i++)
        done = tvm_san_join(clock, &own->acquired[i].clock);
    if (pending > own->product_count) pending = own->product_count;
    if (pending) products = own->products[(own->product_count - pending) % (TVM_MAX_PENDING + 1)];
    return done && tvm_san_join(clock, &own->seen) &&
           tvm_san_see(clock, san_all(san_actor(block, index, SANITIZE_THREADS)), s->now) &&
           tvm_san_see(clock, san_all(san_actor(block, index, SANITIZE_MMA)), products) &&
           tvm_san_see(clock, san_all(san_actor(block, index, SANITIZE_COPY)),
                       own->retired ? (uint32_t)own->retired + 1 : 0);
}

/* All threads of the team have it now. */
static void forget_acquired(san_context *context) {
    for (uint32_t i = 0; i < context->acquired_count; i++) context->acquired[i].clock.count = 0;
    context->acquired_count = 0;
}

/* ---- a team ---- */

void tvm_sanitize_turn(const interp_context *context) {
    sanitizer_of(context->block)->now++;
}

/* All warps of the block stand at a sync of its own context, with what they did in roles that have ended. */
tvm_status tvm_sanitize_sync(interp_context *context) {
    sanitizer *s = sanitizer_of(context->block);
    san_block *block = san_block_of(s, context->block);
    uint32_t index = index_of(context);
    san_clock *seen = &block->contexts[index].seen;
    s->now++;
    bool done = publish(s, block, index, 0, seen);
    for (uint32_t c = 1; c < s->context_count && index == 0 && done; c++)
        done = publish(s, block, c, 0, seen);
    forget_acquired(&block->contexts[index]);
    for (uint32_t w = context->team.first; w < context->team.first + context->team.warps; w++)
        block->warps[w] = s->now;
    return finish(s, done);
}

tvm_status tvm_sanitize_sync_warp(interp_context *context) {
    sanitizer *s = sanitizer_of(context->block);
    san_block *block = san_block_of(s, context->block);
    san_context *own = san_context_of(s, context);
    s->now++;
    own->warp_retired = own->retired ? own->retired + 1 : 0;
    for (uint32_t i = 0; i < own->acquired_count; i++) own->acquired[i].thread |= SAN_WARP;
    for (uint32_t w = context->team.first; w < context->team.first + context->team.warps; w++)
        block->warps[w] = s->now;
    return TVM_OK;
}

/* ---- roles ---- */

static bool overlap(tvm_team a, tvm_team b) {
    return a.first < b.first + b.warps && b.first < a.first + a.warps;
}

/* A team knows what the block had seen, and its warps what they saw in roles that have ended. */
tvm_status tvm_sanitize_role_begin(interp_context *team, const interp_context *block) {
    sanitizer *s = sanitizer_of(team->block);
    san_block *own = san_block_of(s, team->block);
    san_clock *seen = &own->contexts[index_of(team)].seen;
    bool done = tvm_san_join(seen, &own->contexts[index_of(block)].seen);
    for (uint32_t c = 1; c < s->context_count && done; c++)
        if (c != index_of(team) && overlap(team->team, team->block->contexts[c].team))
            done = tvm_san_join(seen, &own->contexts[c].seen);
    s->now++;
    return finish(s, done);
}

tvm_status tvm_sanitize_roles_end(interp_context *block) {
    sanitizer *s = sanitizer_of(block->block);
    san_block *own = san_block_of(s, block->block);
    bool done = true;
    for (uint32_t c = 1; c < s->context_count && done; c++)
        done = tvm_san_join(&own->contexts[0].seen, &own->contexts[c].seen);
    return finish(s, done);
}

/* ---- mbarriers ---- */

static san_barrier *barrier_of(sanitizer *s, const interp_block *block, const interp_barrier *barrier) {
    return &san_block_of(s, block)->barriers[barrier - block->barriers];
}

void tvm_sanitize_alloc_barrier(interp_context *context, uint32_t first, uint32_t count) {
    sanitizer *s = sanitizer_of(context->block);
    san_block *block = san_block_of(s, context->block);
    for (uint32_t i = first; i < first + count; i++) {
        block->barriers[i].arrived.count = block->barriers[i].ended.count = 0;
        block->barriers[i].made = s->now;
        block->barriers[i].maker = context->pc - 1;
    }
}

void tvm_sanitize_far(interp_context *context, const interp_insn *insn, const interp_block *peer,
                      const interp_barrier *barrier, bool copies) {
    sanitizer *s = sanitizer_of(context->block);
    const san_block *block = san_block_of(s, peer);
    const san_barrier *own = barrier_of(s, peer, barrier);
    const san_clock *seen = &san_context_of(s, context)->seen;
    uint32_t actor = san_barrier_actor(s, block, (uint32_t)(barrier - peer->barriers));
    bool made = own->made < tvm_san_seen(seen, san_all(san_actor(block, 0, SANITIZE_THREADS)));
    if (made && (!copies || barrier->phases == 0 || tvm_san_seen(seen, san_all(actor)) > barrier->phases))
        return;
    san_report *report = tvm_san_report(s, SAN_CLUSTER, (uint32_t)(insn - s->kernel->insns), own->maker);
    if (!report) return;
    const int32_t *at = context->block->index, *to = peer->index;
    memcpy(report->block, at, sizeof report->block);
    report->hint =
        made ? "an arrive-barrier with rank by the other block behind its wait for that phase, and a "
               "wait-barrier here"
             : "a sync-cluster between alloc-barrier and what others do with the mbarrier";
    snprintf(
        report->what, sizeof report->what,
        made
            ? "%s (block (%d,%d,%d)) may come to an earlier phase of the mbarrier of block (%d,%d,%d), which "
              "alloc-barrier, line %u, has made"
            : "%s (block (%d,%d,%d)) may come to the mbarrier of block (%d,%d,%d) before alloc-barrier, line "
              "%u, has made it",
        tvm_san_mnemonic(s, report->insn), at[0], at[1], at[2], to[0], to[1], to[2],
        (unsigned)tvm_san_place(s, own->maker).line);
}

tvm_status tvm_sanitize_arrive(interp_context *context, interp_block *block, const interp_barrier *barrier,
                               uint32_t pending) {
    sanitizer *s = sanitizer_of(context->block);
    s->now++;
    return finish(s, publish(s, san_block_of(s, context->block), index_of(context), pending,
                             &barrier_of(s, block, barrier)->arrived));
}

tvm_status tvm_sanitize_phase(interp_block *block, const interp_barrier *barrier) {
    sanitizer *s = sanitizer_of(block);
    san_barrier *own = barrier_of(s, block, barrier);
    bool done = tvm_san_join(&own->ended, &own->arrived) &&
                tvm_san_see(&own->ended,
                            san_all(san_barrier_actor(s, san_block_of(s, block),
                                                      (uint32_t)(barrier - block->barriers))),
                            (uint32_t)barrier->phases + 1);
    own->arrived.count = 0;
    return finish(s, done);
}

tvm_status tvm_sanitize_wait(interp_context *context, const interp_barrier *barrier) {
    sanitizer *s = sanitizer_of(context->block);
    return finish(
        s, tvm_san_join(&san_context_of(s, context)->seen, &barrier_of(s, context->block, barrier)->ended));
}

/* What the products had seen comes before the arrival, too. */
tvm_status tvm_sanitize_commit(interp_context *context, interp_block *block, const interp_barrier *barrier) {
    sanitizer *s = sanitizer_of(context->block);
    san_context *own = san_context_of(s, context);
    san_clock *arrived = &barrier_of(s, block, barrier)->arrived;
    s->now++;
    own->commits++;
    return finish(
        s, tvm_san_join(arrived, &own->seen) &&
               tvm_san_see(arrived, san_all(san_actor_of(s, context, SANITIZE_TENSOR)), own->commits + 1));
}

/* ---- what runs on ---- */

void tvm_sanitize_mma(interp_context *context) {
    sanitizer *s = sanitizer_of(context->block);
    san_context *own = san_context_of(s, context);
    s->now++;
    own->products[own->product_count++ % (TVM_MAX_PENDING + 1)] = s->now;
}

void tvm_sanitize_wait_group(interp_context *context, uint64_t retired) {
    san_context *own = san_context_of(sanitizer_of(context->block), context);
    if (retired > own->retired) own->retired = retired;
}

void tvm_sanitize_store(interp_context *context) {
    san_context_of(sanitizer_of(context->block), context)->stores++;
}

/* A barrier of the team. */
tvm_status tvm_sanitize_wait_bulk(interp_context *context, uint32_t pending, bool read) {
    sanitizer *s = sanitizer_of(context->block);
    san_context *own = san_context_of(s, context);
    uint32_t done = own->stores > pending ? own->stores - pending : 0;
    if (!done) return TVM_OK;
    bool good = tvm_san_see(&own->seen, san_all(san_actor_of(s, context, SANITIZE_STORE_READ)), done + 1);
    if (!read)
        good = good &&
               tvm_san_see(&own->seen, san_all(san_actor_of(s, context, SANITIZE_STORE_WRITE)), done + 1);
    return finish(s, good);
}

/* ---- blocks ---- */

tvm_status tvm_sanitize_sync_cluster(interp_block *cluster) {
    sanitizer *s = sanitizer_of(cluster);
    san_clock all = {0};
    bool done = true;
    s->now++;
    for (uint32_t b = 0; b < cluster->cluster_size; b++)
        for (uint32_t c = 0; c < s->context_count; c++) done = done && publish(s, &s->blocks[b], c, 0, &all);
    for (uint32_t b = 0; b < cluster->cluster_size; b++) {
        done = done && tvm_san_join(&s->blocks[b].contexts[0].seen, &all);
        forget_acquired(&s->blocks[b].contexts[0]);
        for (uint32_t w = 0; w < s->kernel->kernel->warps; w++) s->blocks[b].warps[w] = s->now;
    }
    tvm_san_clock_free(&all);
    return finish(s, done);
}

/* The word's entry: open addressing, at most half full. */
static san_clock *find_word(sanitizer *s, const void *address) {
    if (2 * s->word_count >= s->word_capacity) {
        uint32_t capacity = s->word_capacity ? 2 * s->word_capacity : 64;
        san_word *words = calloc(capacity, sizeof *words), *old = s->words;
        if (!words) return NULL;
        for (uint32_t i = 0; i < s->word_capacity; i++) {
            if (!old[i].address) continue;
            uint32_t to = (uint32_t)((uintptr_t)old[i].address / 4 * 2654435761u) & (capacity - 1);
            while (words[to].address) to = (to + 1) & (capacity - 1);
            words[to] = old[i];
        }
        free(old);
        s->words = words;
        s->word_capacity = capacity;
    }
    uint32_t at = (uint32_t)((uintptr_t)address / 4 * 2654435761u) & (s->word_capacity - 1);
    while (s->words[at].address && s->words[at].address != address) at = (at + 1) & (s->word_capacity - 1);
    if (!s->words[at].address) s->word_count++;
    s->words[at].address = address;
    return &s->words[at].clock;
}

tvm_status tvm_sanitize_release(interp_context *context, const void *word) {
    sanitizer *s = sanitizer_of(context->block);
    san_clock *clock = find_word(s, word);
    s->now++;
    return finish(s, clock && publish(s, san_block_of(s, context->block), index_of(context), 0, clock));
}

tvm_status tvm_sanitize_acquire(interp_context *context, const void *word) {
    sanitizer *s = sanitizer_of(context->block);
    const san_clock *clock = find_word(s, word);
    return finish(s, clock && tvm_san_join(&san_context_of(s, context)->seen, clock));
}

/* ---- atomics ---- */

/* What the thread, or its warp, has beside the team's; NULL: nothing, or (make) out of memory. */
static san_acquired *acquired_of(san_context *context, uint32_t thread, bool make) {
    for (uint32_t i = 0; i < context->acquired_count; i++)
        if (context->acquired[i].thread == thread) return &context->acquired[i];
    if (!make) return NULL;
    if (context->acquired_count == context->acquired_capacity) {
        uint32_t capacity = context->acquired_capacity ? 2 * context->acquired_capacity : 4;
        san_acquired *more = realloc(context->acquired, capacity * sizeof *more);
        if (!more) return NULL;
        memset(more + context->acquired_capacity, 0, (capacity - context->acquired_capacity) * sizeof *more);
        context->acquired = more;
        context->acquired_capacity = capacity;
    }
    san_acquired *own = &context->acquired[context->acquired_count++];
    own->thread = (uint16_t)thread;
    return own;
}

/* What the thread did since the last sync, and its warp until it last met. */
static bool publish_thread(const sanitizer *s, const san_block *block, uint32_t index, uint32_t thread,
                           san_clock *clock) {
    uint32_t actor = san_actor(block, index, SANITIZE_THREADS);
    san_context *own = &block->contexts[index];
    const san_acquired *beside = acquired_of(own, thread, false),
                       *warps = acquired_of(own, thread | SAN_WARP, false);
    return tvm_san_join(clock, &own->seen) && (!beside || tvm_san_join(clock, &beside->clock)) &&
           (!warps || tvm_san_join(clock, &warps->clock)) &&
           tvm_san_see(clock, san_warp(actor, thread / 32), block->warps[thread / 32]) &&
           tvm_san_see(clock, san_thread(actor, thread), s->now);
}

tvm_status tvm_sanitize_release_one(interp_context *context, const void *word, uint32_t thread) {
    sanitizer *s = sanitizer_of(context->block);
    san_clock *clock = find_word(s, word);
    s->now++;
    s->one_sided = true;
    return finish(
        s, clock && publish_thread(s, san_block_of(s, context->block), index_of(context), thread, clock));
}

tvm_status tvm_sanitize_acquire_one(interp_context *context, const void *word, uint32_t thread) {
    sanitizer *s = sanitizer_of(context->block);
    const san_clock *clock = find_word(s, word);
    san_acquired *own = acquired_of(san_context_of(s, context), thread, true);
    s->one_sided = true;
    return finish(s, clock && own && tvm_san_join(&own->clock, clock));
}

/* ---- shared memory ---- */

/* The latest event of a cell that nothing orders: of copies that are still under way. */
static bool is_busy(const sanitizer *s, const san_block *block, const san_clock *seen, uint32_t event) {
    if (!event) return false;
    const san_event *e = &s->events[event];
    uint32_t local = e->actor - block->first_actor;
    bool copies = local < s->actor_count &&
                  (local >= s->context_count * SAN_ACTORS || local % SAN_ACTORS >= SANITIZE_COPY);
    return copies && e->time && e->time >= tvm_san_seen(seen, san_all(e->actor));
}

static void report_reuse(sanitizer *s, const san_block *block, uint32_t insn, uint32_t slot, uint32_t event) {
    san_report *report = tvm_san_report(s, SAN_REUSE, insn, s->events[event].insn);
    if (!report) return;
    report->slot = slot;
    memcpy(report->block, block->index, sizeof report->block);
    report->hint =
        "wait for the copy, with wait-group, wait-barrier or wait-bulk, and sync, before free-shared";
    snprintf(report->what, sizeof report->what,
             "%s may take the memory of %%%s, which %s, line %u, still uses (block (%d,%d,%d))",
             tvm_san_mnemonic(s, insn), interp_slot_name(s->kernel, slot),
             tvm_san_mnemonic(s, s->events[event].insn),
             (unsigned)tvm_san_place(s, s->events[event].insn).line, block->index[0], block->index[1],
             block->index[2]);
}

/* Memory that was freed may be given out: nothing may be under way there. */
static void check_freed(sanitizer *s, const san_block *block, uint32_t insn, uint32_t slot) {
    san_region *region = &block->shared[slot];
    const san_clock *seen = &block->contexts[0].seen;
    for (uint64_t i = 0; i < region->count; i++) {
        const san_cell *cell = &region->cells[i];
        const uint32_t events[3] = {cell->write, cell->read, cell->other};
        for (unsigned e = 0; e < 3; e++) {
            if (!is_busy(s, block, seen, events[e])) continue;
            report_reuse(s, block, insn, slot, events[e]);
            return;
        }
    }
}

tvm_status tvm_sanitize_alloc_shared(interp_context *context, const interp_insn *insn) {
    sanitizer *s = sanitizer_of(context->block);
    san_block *block = san_block_of(s, context->block);
    san_region *region = &block->shared[insn->source->result];
    memset(region->cells, 0, region->count * sizeof *region->cells);
    for (uint32_t slot = 0; slot < s->kernel->kernel->slot_count; slot++)
        if (block->freed[slot] &&
            interp_slot(s->kernel, slot)->kind == interp_slot(s->kernel, insn->source->result)->kind)
            check_freed(s, block, (uint32_t)(insn - s->kernel->insns), slot);
    return TVM_OK;
}

void tvm_sanitize_free_shared(interp_context *context, const interp_insn *insn) {
    sanitizer *s = sanitizer_of(context->block);
    san_block_of(s, context->block)->freed[insn->operands[0].value] = true;
}
