/* Programs of litmus_model.h from PTX, a line an instruction. What stands between brackets is a name in place
 * of an address:
 *
 *   [x]          a place in global memory
 *   [x@1]        in shared memory of block 1
 *   [m@1#2]      an mbarrier there, in its phase 2; of none: 0
 *   [x!]         what a loop reads that has ended: not what was there at first
 *   [-]          of no account; the instruction does what else it does
 *
 * Registers are %r0 to %r9. A store of one that a load has set depends on that load. Where a copy of the
 * engine is for several blocks, it is a line for each. */
#ifndef TVM_TESTS_LITMUS_TEXT_H
#define TVM_TESTS_LITMUS_TEXT_H

#include <stdio.h>
#include <stdlib.h>

#include "litmus_model.h"

enum { LITMUS_BARRIERS = 48, LITMUS_COPIES = 16, LITMUS_REGS = 10, LITMUS_LINE = 200, LITMUS_BRACKETS = 4 };

/* An asynchronous operation of a thread, by its events. `group` is the number of its group, or what it will
 * be. */
typedef struct litmus_copy {
    unsigned read, last; /* it has read its source; it has ended */
    int group;
} litmus_copy;

/* cp.async, cp.async.bulk of groups, wgmma. */
typedef enum litmus_engine { LITMUS_CP, LITMUS_BULK, LITMUS_WGMMA, LITMUS_ENGINES } litmus_engine;

typedef struct litmus_thread {
    unsigned agent, warp;
    litmus_copy copy[LITMUS_ENGINES][LITMUS_COPIES];
    unsigned copies[LITMUS_ENGINES];
    int groups[LITMUS_ENGINES];
    int turns[LITMUS_BARRIERS]; /* at barriers without phases of their own */
    int reg[LITMUS_REGS];       /* the event that has set it */
    int products_after;         /* the last wgmma.fence */
} litmus_thread;

typedef struct litmus_builder {
    litmus_program *p;
    char barrier[LITMUS_BARRIERS][32];
    int barriers;
} litmus_builder;

/* ---- words of a line ---- */

static inline const char *litmus_next(const char *line) {
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

/* Is it one of the parts, at dots, of the line's first word behind a guard? */
static inline bool litmus_says(const char *line, const char *part) {
    size_t length = strlen(part);
    if (*line == '@') line += strcspn(line, " ") + 1;
    for (const char *at = line; *at && *at != ' ' && *at != ';';) {
        size_t n = strcspn(at, ". ;");
        if (n == length && strncmp(at, part, n) == 0) return true;
        at += n + (at[n] == '.');
    }
    return false;
}

static inline bool litmus_begins(const char *line, const char *with) {
    if (*line == '@') line += strcspn(line, " ") + 1;
    return strncmp(line, with, strlen(with)) == 0;
}

static inline litmus_order litmus_order_of(const char *line, litmus_order without) {
    return litmus_says(line, "acq_rel")   ? LITMUS_ACQ_REL
           : litmus_says(line, "acquire") ? LITMUS_ACQUIRE
           : litmus_says(line, "release") ? LITMUS_RELEASE
           : litmus_says(line, "relaxed") ? LITMUS_RELAXED
           : litmus_says(line, "sc")      ? LITMUS_SC
                                          : without;
}

static inline litmus_scope litmus_scope_of(const char *line, litmus_scope without) {
    return litmus_says(line, "cta")       ? LITMUS_CTA
           : litmus_says(line, "cluster") ? LITMUS_CLUSTER
           : litmus_says(line, "gpu")     ? LITMUS_GPU
           : litmus_says(line, "sys")     ? LITMUS_SYS
                                          : without;
}

/* ---- events ---- */

static inline unsigned litmus_event_add(litmus_program *p, litmus_event e) {
    unsigned at = p->count++;
    ck_assert_uint_lt(at, LITMUS_EVENTS);
    p->event[at] = e;
    for (unsigned i = 0; i < at; i++)
        if (p->event[i].agent == e.agent || p->event[i].agent == 0) litmus_add(&p->order, i, at);
    return at;
}

static inline unsigned litmus_agent_add(litmus_program *p, unsigned block, unsigned cluster) {
    ck_assert_uint_lt(p->agents, LITMUS_AGENTS);
    p->agent[p->agents] = (litmus_agent){block, cluster};
    return p->agents++;
}

static inline unsigned litmus_nothing(litmus_program *p, unsigned agent) {
    return litmus_event_add(p, (litmus_event){.agent = agent, .source = LITMUS_ANY});
}

/* The place of that name; its initial write is made with it. */
static inline int litmus_place_of(litmus_program *p, const char *name) {
    for (unsigned i = 0; i < p->places; i++)
        if (strcmp(p->place[i].name, name) == 0) return (int)i;
    ck_assert_uint_lt(p->places, LITMUS_PLACES);
    litmus_place *place = &p->place[p->places];
    const char *block = strchr(name, '@');
    place->is_shared = block;
    if (block) place->block = (unsigned)atoi(block + 1);
    ck_assert_uint_lt(strlen(name), sizeof place->name);
    memcpy(place->name, name, strlen(name) + 1);
    return (int)p->places++;
}

static inline int litmus_barrier_of(litmus_builder *b, const char *name) {
    for (int i = 0; i < b->barriers; i++)
        if (strcmp(b->barrier[i], name) == 0) return i;
    ck_assert_int_lt(b->barriers, LITMUS_BARRIERS);
    snprintf(b->barrier[b->barriers], sizeof b->barrier[0], "%s", name);
    return b->barriers++;
}

/* What stands between brackets. */
typedef struct litmus_bracket {
    char name[24];
    int phase;
    bool sees_another, is_nothing;
} litmus_bracket;

static inline unsigned litmus_brackets(const char *line, litmus_bracket out[LITMUS_BRACKETS]) {
    unsigned count = 0;
    for (; (line = strchr(line, '[')) && count < LITMUS_BRACKETS; count++) {
        litmus_bracket *b = &out[count];
        size_t n = strcspn(++line, "]"), name = strcspn(line, "]#!");
        ck_assert_uint_lt(name, sizeof b->name);
        *b = (litmus_bracket){.sees_another = n > name && line[n - 1] == '!'};
        memcpy(b->name, line, name);
        b->is_nothing = strcmp(b->name, "-") == 0;
        if (line[name] == '#') b->phase = atoi(line + name + 1);
        line += n;
    }
    return count;
}

/* ---- reads, writes, atomic operations ---- */

static inline int litmus_register(const char *text) {
    const char *at = strstr(text, "%r");
    return at && at[2] >= '0' && at[2] <= '9' ? at[2] - '0' : LITMUS_ANY;
}

static inline void litmus_access(litmus_builder *b, litmus_thread *t, const char *line) {
    litmus_bracket at[LITMUS_BRACKETS];
    bool loads = litmus_begins(line, "ld"), stores = litmus_begins(line, "st"),
         red = litmus_begins(line, "red");
    if (litmus_brackets(line, at) == 0 || at[0].is_nothing) return;
    litmus_order without =
        litmus_says(line, "volatile") || (!loads && !stores) ? LITMUS_RELAXED : LITMUS_WEAK;
    litmus_event e = {.kind = loads    ? LITMUS_READ
                              : stores ? LITMUS_WRITE
                                       : LITMUS_READ | LITMUS_WRITE | (red ? LITMUS_RED : 0),
                      .agent = t->agent,
                      .place = litmus_place_of(b->p, at[0].name),
                      .order = litmus_order_of(line, without),
                      .scope = litmus_scope_of(line, litmus_says(line, "volatile") ? LITMUS_SYS : LITMUS_GPU),
                      .sees_another = at[0].sees_another,
                      .adds = litmus_says(line, "add"),
                      .source = LITMUS_ANY,
                      .reg = LITMUS_ANY};
    const char *behind = strchr(line, ']') + 1;
    int from = loads ? LITMUS_ANY : litmus_register(behind);
    if (from >= 0) e.source = t->reg[from];
    if (!loads && *behind == ',') e.value = atoi(behind + 1);
    if (!stores && !red) e.reg = litmus_register(line);
    if (e.reg >= 0 && e.reg < LITMUS_REGS) t->reg[e.reg] = (int)b->p->count;
    litmus_event_add(b->p, e);
}

/* ---- fences and barriers ---- */

static inline void litmus_fence(litmus_builder *b, litmus_thread *t, const char *line) {
    litmus_event e = {.kind = LITMUS_FENCE, .agent = t->agent, .source = LITMUS_ANY};
    if (litmus_says(line, "proxy")) {
        e.kind = LITMUS_PROXY_FENCE;
        e.spaces = litmus_says(line, "global")            ? LITMUS_GLOBAL
                   : litmus_says(line, "shared::cta")     ? LITMUS_SHARED
                   : litmus_says(line, "shared::cluster") ? LITMUS_SHARED | LITMUS_FAR
                                                          : LITMUS_GLOBAL | LITMUS_SHARED | LITMUS_FAR;
    } else {
        e.order = litmus_order_of(line, LITMUS_ACQ_REL);
        e.scope = litmus_scope_of(line, LITMUS_SYS);
        if (litmus_says(line, "mbarrier_init")) return; /* of mbarrier.init, which is no event */
    }
    litmus_event_add(b->p, e);
}

static inline void litmus_arrive_or_wait(litmus_builder *b, litmus_thread *t, litmus_event e, int barrier,
                                         int phase) {
    e.agent = t->agent;
    e.barrier = barrier;
    e.phase = phase;
    e.source = LITMUS_ANY;
    litmus_event_add(b->p, e);
}

/* bar, bar.warp and barrier.cluster: a thread's nth arrival meets the others' nth. */
static inline void litmus_barrier(litmus_builder *b, litmus_thread *t, const char *line) {
    const litmus_agent *own = &b->p->agent[t->agent];
    bool cluster = litmus_begins(line, "barrier.cluster"), warp = litmus_begins(line, "bar.warp");
    char name[32];
    if (cluster)
        snprintf(name, sizeof name, "cluster %u", own->cluster);
    else if (warp)
        snprintf(name, sizeof name, "warp %u of %u", t->warp, own->block);
    else
        snprintf(name, sizeof name, "bar %d of %u", atoi(strchr(line, ' ') + 1), own->block);
    int barrier = litmus_barrier_of(b, name);
    bool waits = !litmus_says(line, "arrive"), arrives = !cluster || !waits;
    litmus_event arrival = {.kind = LITMUS_ARRIVE,
                            .order = litmus_order_of(line, LITMUS_RELEASE),
                            .scope = cluster ? LITMUS_CLUSTER : LITMUS_CTA};
    litmus_event wait = {
        .kind = LITMUS_WAIT, .order = litmus_order_of(line, LITMUS_ACQUIRE), .scope = arrival.scope};
    if (arrives) litmus_arrive_or_wait(b, t, arrival, barrier, t->turns[barrier]);
    if (waits) litmus_arrive_or_wait(b, t, wait, barrier, t->turns[barrier]);
    if (waits || !cluster) t->turns[barrier]++;
}

static inline void litmus_mbarrier(litmus_builder *b, litmus_thread *t, const char *line) {
    litmus_bracket at[LITMUS_BRACKETS];
    bool waits = litmus_says(line, "try_wait") || litmus_says(line, "test_wait");
    if ((!waits && !litmus_says(line, "arrive")) || litmus_brackets(line, at) == 0) return;
    litmus_event e = {.kind = waits ? LITMUS_WAIT : LITMUS_ARRIVE,
                      .order = litmus_order_of(line, waits ? LITMUS_ACQUIRE : LITMUS_RELEASE),
                      .scope = litmus_scope_of(line, LITMUS_CTA)};
    litmus_arrive_or_wait(b, t, e, litmus_barrier_of(b, at[0].name), at[0].phase);
}

/* ---- asynchronous operations ---- */

/* An agent for it, which comes after what the thread did up to `last`; LITMUS_ANY: up to now. */
static inline litmus_thread litmus_spawn(litmus_builder *b, const litmus_thread *t, int last) {
    litmus_program *p = b->p;
    const litmus_agent own = p->agent[t->agent];
    litmus_thread child = {.agent = litmus_agent_add(p, own.block, own.cluster)};
    unsigned end = last == LITMUS_ANY ? p->count : (unsigned)last + 1;
    unsigned start = litmus_nothing(p, child.agent);
    for (unsigned e = 0; e < end; e++)
        if (p->event[e].agent == t->agent) litmus_add(&p->order, e, start);
    return child;
}

static inline void litmus_touch(litmus_builder *b, const litmus_thread *t, const litmus_bracket *at,
                                unsigned kind, litmus_proxy proxy) {
    if (at->is_nothing) return;
    bool atomic = kind == (LITMUS_READ | LITMUS_WRITE);
    litmus_event_add(b->p, (litmus_event){.kind = kind | (atomic ? LITMUS_RED : 0),
                                          .agent = t->agent,
                                          .place = litmus_place_of(b->p, at->name),
                                          .proxy = proxy,
                                          .order = atomic ? LITMUS_RELAXED : LITMUS_WEAK,
                                          .scope = LITMUS_GPU,
                                          .value = 1,
                                          .adds = atomic,
                                          .source = LITMUS_ANY,
                                          .reg = LITMUS_ANY});
}

/* The implicit fence at the end of what the asynchronous proxy does. */
static inline unsigned litmus_end_of(litmus_builder *b, const litmus_thread *t, bool fences) {
    litmus_event e = {.agent = t->agent, .source = LITMUS_ANY};
    if (fences) e.kind = LITMUS_PROXY_FENCE, e.spaces = LITMUS_GLOBAL | LITMUS_SHARED | LITMUS_FAR;
    return litmus_event_add(b->p, e);
}

/* The end of what it has read so far; an agent of its own, as nothing that it does later comes after that. */
static inline unsigned litmus_has_read(litmus_builder *b, const litmus_thread *t, bool fences) {
    const litmus_agent own = b->p->agent[t->agent];
    litmus_thread end = {.agent = litmus_agent_add(b->p, own.block, own.cluster)};
    unsigned at = litmus_end_of(b, &end, fences);
    for (unsigned e = 0; e < at; e++)
        if (b->p->event[e].agent == t->agent) litmus_add(&b->p->order, e, at);
    return at;
}

static inline void litmus_started(litmus_thread *t, litmus_engine engine, unsigned read, unsigned last) {
    ck_assert_uint_lt(t->copies[engine], LITMUS_COPIES);
    t->copy[engine][t->copies[engine]++] = (litmus_copy){read, last, t->groups[engine]};
}

/* cp.async, cp.async.bulk and cp.reduce.async.bulk; [target], [source], and the mbarrier where there is one.
 */
static inline void litmus_start_copy(litmus_builder *b, litmus_thread *t, const char *line) {
    litmus_bracket at[LITMUS_BRACKETS];
    unsigned count = litmus_brackets(line, at);
    bool bulk = litmus_says(line, "bulk"), reduces = litmus_says(line, "reduce");
    litmus_proxy proxy = bulk ? LITMUS_ASYNC : LITMUS_GENERIC;
    ck_assert_uint_ge(count, 2);
    litmus_thread child = litmus_spawn(b, t, LITMUS_ANY);
    litmus_touch(b, &child, &at[1], LITMUS_READ, proxy);
    unsigned read = litmus_has_read(b, &child, bulk);
    litmus_touch(b, &child, &at[0], reduces ? LITMUS_READ | LITMUS_WRITE : LITMUS_WRITE, proxy);
    unsigned last = litmus_end_of(b, &child, bulk);
    if (count > 2)
        litmus_arrive_or_wait(b, &child, (litmus_event){.kind = LITMUS_ARRIVE, .completes = true},
                              litmus_barrier_of(b, at[2].name), at[2].phase);
    else
        litmus_started(t, bulk ? LITMUS_BULK : LITMUS_CP, read, last);
}

/* wgmma.mma_async [a], [b]: what it reads of shared memory. */
static inline void litmus_start_product(litmus_builder *b, litmus_thread *t, const char *line) {
    litmus_bracket at[LITMUS_BRACKETS];
    unsigned count = litmus_brackets(line, at);
    ck_assert_int_ge(t->products_after, 0);
    litmus_thread child = litmus_spawn(b, t, t->products_after);
    for (unsigned i = 0; i < count; i++) litmus_touch(b, &child, &at[i], LITMUS_READ, LITMUS_ASYNC);
    unsigned last = litmus_end_of(b, &child, true);
    litmus_started(t, LITMUS_WGMMA, last, last);
}

/* wait_group: all but the latest groups have ended, or have read. */
static inline void litmus_wait_group(litmus_builder *b, litmus_thread *t, litmus_engine engine,
                                     const char *line) {
    const char *number = strrchr(line, ' ');
    int pending = number ? atoi(number) : 0;
    unsigned wait = litmus_nothing(b->p, t->agent);
    for (unsigned i = 0; i < t->copies[engine]; i++) {
        const litmus_copy *copy = &t->copy[engine][i];
        if (copy->group + pending < t->groups[engine])
            litmus_add(&b->p->order, litmus_says(line, "read") ? copy->read : copy->last, wait);
    }
}

/* cp.async.mbarrier.arrive: an arrival that comes when the thread's copies have. */
static inline void litmus_arrive_after(litmus_builder *b, const litmus_thread *t, const char *line) {
    litmus_bracket at[LITMUS_BRACKETS];
    if (litmus_brackets(line, at) == 0) return;
    const litmus_agent own = b->p->agent[t->agent];
    litmus_thread child = {.agent = litmus_agent_add(b->p, own.block, own.cluster)};
    unsigned arrival = b->p->count;
    litmus_arrive_or_wait(b, &child, (litmus_event){.kind = LITMUS_ARRIVE, .completes = true},
                          litmus_barrier_of(b, at[0].name), at[0].phase);
    for (unsigned i = 0; i < t->copies[LITMUS_CP]; i++)
        litmus_add(&b->p->order, t->copy[LITMUS_CP][i].last, arrival);
}

/* ---- a thread ---- */

static inline void litmus_line(litmus_builder *b, litmus_thread *t, const char *line) {
    bool wgmma = litmus_begins(line, "wgmma"), copies = litmus_begins(line, "cp");
    litmus_engine engine = wgmma ? LITMUS_WGMMA : litmus_says(line, "bulk") ? LITMUS_BULK : LITMUS_CP;
    if (litmus_says(line, "commit_group"))
        t->groups[engine]++;
    else if (litmus_says(line, "wait_group"))
        litmus_wait_group(b, t, engine, line);
    else if (wgmma && litmus_says(line, "fence"))
        t->products_after = (int)litmus_nothing(b->p, t->agent);
    else if (wgmma)
        litmus_start_product(b, t, line);
    else if (copies && litmus_says(line, "mbarrier") && !litmus_says(line, "bulk"))
        litmus_arrive_after(b, t, line);
    else if (copies)
        litmus_start_copy(b, t, line);
    else if (litmus_begins(line, "fence") || litmus_begins(line, "membar"))
        litmus_fence(b, t, line);
    else if (litmus_begins(line, "bar"))
        litmus_barrier(b, t, line);
    else if (litmus_begins(line, "mbarrier"))
        litmus_mbarrier(b, t, line);
    else if (litmus_begins(line, "ld") || litmus_begins(line, "st") || litmus_begins(line, "atom") ||
             litmus_begins(line, "red"))
        litmus_access(b, t, line);
    else
        ck_abort_msg("litmus: unknown %s", line);
}

/* A thread of a program; clusters are of two blocks. */
typedef struct litmus_source {
    unsigned block, cluster, warp;
    const char *text; /* lines */
} litmus_source;

/* Initial writes come before all, so that the places are found first. */
static inline void litmus_begin(litmus_builder *b, const litmus_source *threads, unsigned count) {
    litmus_program *p = b->p;
    litmus_bracket at[LITMUS_BRACKETS];
    memset(p, 0, sizeof *p);
    litmus_agent_add(p, 0, 0);
    for (unsigned i = 0; i < count; i++)
        for (const char *line = threads[i].text; *line; line = litmus_next(line)) {
            char text[LITMUS_LINE];
            snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
            unsigned brackets = litmus_begins(text, "mbarrier") ? 0 : litmus_brackets(text, at);
            if (litmus_begins(text, "cp") && brackets > 2) brackets = 2;
            if (litmus_begins(text, "cp") && brackets == 1) brackets = 0;
            for (unsigned n = 0; n < brackets; n++)
                if (!at[n].is_nothing) litmus_place_of(p, at[n].name);
        }
    for (unsigned i = 0; i < p->places; i++)
        litmus_event_add(p, (litmus_event){.kind = LITMUS_WRITE, .place = (int)i, .source = LITMUS_ANY});
}

static inline void litmus_read(litmus_program *p, const litmus_source *threads, unsigned count) {
    litmus_builder b = {.p = p};
    litmus_begin(&b, threads, count);
    for (unsigned i = 0; i < count; i++) {
        litmus_thread t = {.warp = threads[i].warp, .products_after = LITMUS_ANY};
        t.agent = litmus_agent_add(p, threads[i].block, threads[i].cluster);
        for (const char *line = threads[i].text; *line; line = litmus_next(line)) {
            char text[LITMUS_LINE];
            ck_assert_uint_lt(strcspn(line, "\n"), sizeof text);
            snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
            litmus_line(&b, &t, text);
        }
    }
}

#endif
