/* The PTX memory model as axioms, for programs of a few instructions: every execution that it allows is
 * found.
 *
 * After D. Lustig, S. Sahasrabuddhe, O. Giroux, "A Formal Analysis of the NVIDIA PTX Memory Consistency
 * Model" (ASPLOS 2019), and chapter 8 of the PTX ISA, "Memory Consistency Model", whose names the relations
 * have. Two things are added, of which those have no formula:
 *
 * - Proxies. Accesses of one address by the generic and the asynchronous proxy are in proxy-preserved base
 *   causality order where a fence.proxy.async of the address's state space lies between them along base
 * causality order, as the ISA has it of alias fences. The end of a bulk copy is such a fence
 * ("cp.async.bulk", implicit proxy fence).
 * - Asynchronous operations are agents of their own, with what the descriptions of their instructions order:
 * they come after what their thread did before ("Asynchronous Operations"), and before who waits for their
 * end.
 *
 * And one rule beyond the axioms, which `performed` switches on: what has been performed before a barrier at
 * which its thread then arrives is not undone by what begins after the barrier. A read cannot return such a
 * write, and a write comes before it in coherence order ("membar" says when accesses are performed,
 * "mbarrier.test_wait" that those before an arrival are). By the axioms alone a read and a later write of
 * another proxy, or of a block that the arrival's scope leaves out, are unordered.
 *
 * All accesses of a place are of its whole. */
#ifndef TVM_TESTS_LITMUS_MODEL_H
#define TVM_TESTS_LITMUS_MODEL_H

#include "check_kit.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    LITMUS_EVENTS = 192,
    LITMUS_WORDS = LITMUS_EVENTS / 64,
    LITMUS_AGENTS = 64,
    LITMUS_PLACES = 16,
    LITMUS_ANY = -1 /* a read may read any write */
};

/* ---- programs ---- */

/* What an event does: a mask. */
enum {
    LITMUS_READ = 1,
    LITMUS_WRITE = 2, /* both: an atomic operation */
    LITMUS_RED = 4,   /* such a one that returns nothing */
    LITMUS_FENCE = 8,
    LITMUS_PROXY_FENCE = 16,
    LITMUS_ARRIVE = 32, /* at a barrier */
    LITMUS_WAIT = 64    /* until the arrivals of a phase have come */
};

typedef enum litmus_order {
    LITMUS_WEAK,
    LITMUS_RELAXED,
    LITMUS_ACQUIRE,
    LITMUS_RELEASE,
    LITMUS_ACQ_REL,
    LITMUS_SC
} litmus_order;
typedef enum litmus_scope { LITMUS_CTA, LITMUS_CLUSTER, LITMUS_GPU, LITMUS_SYS } litmus_scope;
typedef enum litmus_proxy { LITMUS_GENERIC, LITMUS_ASYNC } litmus_proxy;
/* State spaces, as those of a proxy fence: a mask. */
enum { LITMUS_GLOBAL = 1, LITMUS_SHARED = 2, LITMUS_FAR = 4 /* shared memory of the other blocks, too */ };

/* A thread, or an asynchronous operation of one. */
typedef struct litmus_agent {
    unsigned block, cluster;
} litmus_agent;

typedef struct litmus_place {
    char name[24];
    bool is_shared;
    unsigned block; /* that has it, if so */
} litmus_place;

typedef struct litmus_event {
    unsigned kind, agent;
    int place; /* of an access */
    litmus_order order;
    litmus_scope scope;
    litmus_proxy proxy;
    unsigned spaces; /* of a proxy fence */
    int barrier, phase;
    bool completes;    /* an arrival of an asynchronous operation, which tells every one that waits */
    bool sees_another; /* a read that reads what another agent than the initial one wrote: a loop's last */
    bool adds;         /* an atomic operation adds its value; else the write has it, */
    int value;
    int source; /* or the event that read it; LITMUS_ANY: the value */
    int reg;    /* of a read */
} litmus_event;

typedef struct litmus_relation {
    uint64_t row[LITMUS_EVENTS][LITMUS_WORDS];
} litmus_relation;

/* Agent 0 makes the initial writes, one a place, before all else. */
typedef struct litmus_program {
    litmus_event event[LITMUS_EVENTS];
    unsigned count;
    litmus_agent agent[LITMUS_AGENTS];
    unsigned agents;
    litmus_place place[LITMUS_PLACES];
    unsigned places;
    litmus_relation order; /* program order, and where asynchronous operations begin and end */
    bool performed;
} litmus_program;

/* ---- relations ---- */

static inline void litmus_add(litmus_relation *r, unsigned a, unsigned b) {
    r->row[a][b / 64] |= UINT64_C(1) << (b % 64);
}

static inline bool litmus_has(const litmus_relation *r, unsigned a, unsigned b) {
    return r->row[a][b / 64] >> (b % 64) & 1;
}

static inline void litmus_unite(litmus_relation *r, const litmus_relation *other, unsigned count) {
    for (unsigned a = 0; a < count; a++)
        for (unsigned w = 0; w < LITMUS_WORDS; w++) r->row[a][w] |= other->row[a][w];
}

static inline void litmus_close(litmus_relation *r, unsigned count) {
    for (unsigned via = 0; via < count; via++)
        for (unsigned a = 0; a < count; a++)
            if (litmus_has(r, a, via))
                for (unsigned w = 0; w < LITMUS_WORDS; w++) r->row[a][w] |= r->row[via][w];
}

static inline bool litmus_has_cycle(const litmus_relation *r, unsigned count) {
    litmus_relation closed = *r;
    litmus_close(&closed, count);
    for (unsigned a = 0; a < count; a++)
        if (litmus_has(&closed, a, a)) return true;
    return false;
}

/* ---- an execution ---- */

typedef struct litmus_execution {
    const litmus_program *p;
    int from[LITMUS_EVENTS]; /* what a read reads */
    litmus_relation observation, base, cause, coherence, communication;
    litmus_relation performed; /* base, and arrivals of any scope before their waits */
} litmus_execution;

/* Called of each execution that is allowed. */
typedef void (*litmus_found)(void *context, const litmus_execution *x);

static inline bool litmus_is_memory(const litmus_event *e) {
    return e->kind & (LITMUS_READ | LITMUS_WRITE);
}

static inline bool litmus_is_atomic(const litmus_event *e) {
    return (e->kind & LITMUS_READ) && (e->kind & LITMUS_WRITE);
}

static inline bool litmus_includes(const litmus_program *p, const litmus_event *e, unsigned agent) {
    const litmus_agent *own = &p->agent[e->agent], *other = &p->agent[agent];
    if (e->scope == LITMUS_CTA) return own->block == other->block;
    return e->scope != LITMUS_CLUSTER || own->cluster == other->cluster;
}

/* PTX ISA, "Morally strong operations". */
static inline bool litmus_morally_strong(const litmus_program *p, unsigned a, unsigned b) {
    const litmus_event *x = &p->event[a], *y = &p->event[b];
    bool both = litmus_is_memory(x) && litmus_is_memory(y);
    if (x->agent == 0 || y->agent == 0 || x->proxy != y->proxy || (both && x->place != y->place))
        return false;
    if (x->agent == y->agent) return true;
    return x->order != LITMUS_WEAK && y->order != LITMUS_WEAK && litmus_includes(p, x, y->agent) &&
           litmus_includes(p, y, x->agent);
}

static inline bool litmus_releases(const litmus_event *e) {
    return e->order == LITMUS_RELEASE || e->order >= LITMUS_ACQ_REL;
}

static inline bool litmus_acquires(const litmus_event *e) {
    return !(e->kind & LITMUS_RED) && (e->order == LITMUS_ACQUIRE || e->order >= LITMUS_ACQ_REL);
}

/* Atomic operations pass on what they read. */
static inline void litmus_observe(litmus_execution *x) {
    const litmus_program *p = x->p;
    memset(&x->observation, 0, sizeof x->observation);
    for (unsigned r = 0; r < p->count; r++)
        if (x->from[r] >= 0 && litmus_morally_strong(p, (unsigned)x->from[r], r))
            litmus_add(&x->observation, (unsigned)x->from[r], r);
    litmus_close(&x->observation, p->count); /* a chain's inner links are atomic: they read and write */
}

/* Do the events, in program order, begin a release of what the second one writes? */
static inline bool litmus_begins_release(const litmus_program *p, unsigned first, unsigned write) {
    const litmus_event *f = &p->event[first], *w = &p->event[write];
    if (w->order == LITMUS_WEAK || !(w->kind & LITMUS_WRITE) || !litmus_releases(f) || f->agent != w->agent)
        return false;
    if (f->kind & LITMUS_FENCE) return first < write;
    return (f->kind & LITMUS_WRITE) && f->place == w->place && first <= write;
}

static inline bool litmus_ends_acquire(const litmus_program *p, unsigned read, unsigned last) {
    const litmus_event *l = &p->event[last], *r = &p->event[read];
    if (r->order == LITMUS_WEAK || !(r->kind & LITMUS_READ) || !litmus_acquires(l) || l->agent != r->agent)
        return false;
    if (l->kind & LITMUS_FENCE) return last > read && !(r->kind & LITMUS_RED);
    return (l->kind & LITMUS_READ) && l->place == r->place && read <= last;
}

/* PTX ISA, "Memory synchronization", of patterns: the write of one is observed by the read of the other. */
static inline void litmus_synchronize(litmus_execution *x, unsigned write, unsigned read) {
    const litmus_program *p = x->p;
    for (unsigned first = 0; first < p->count; first++) {
        if (!litmus_begins_release(p, first, write)) continue;
        for (unsigned last = 0; last < p->count; last++)
            if (litmus_ends_acquire(p, read, last) && litmus_morally_strong(p, first, last))
                litmus_add(&x->base, first, last);
    }
}

/* An arrival of a phase comes before who waits for it: to the axioms, if each one's scope has the other. */
static inline void litmus_meet(litmus_execution *x) {
    const litmus_program *p = x->p;
    for (unsigned a = 0; a < p->count; a++) {
        const litmus_event *arrival = &p->event[a];
        if (!(arrival->kind & LITMUS_ARRIVE)) continue;
        for (unsigned b = 0; b < p->count; b++) {
            const litmus_event *wait = &p->event[b];
            if (!(wait->kind & LITMUS_WAIT) || wait->barrier != arrival->barrier ||
                wait->phase != arrival->phase)
                continue;
            litmus_add(&x->performed, a, b);
            if (arrival->completes ||
                (arrival->order == LITMUS_RELEASE && wait->order == LITMUS_ACQUIRE &&
                 litmus_includes(p, arrival, wait->agent) && litmus_includes(p, wait, arrival->agent)))
                litmus_add(&x->base, a, b);
        }
    }
}

static inline bool litmus_covers(const litmus_program *p, const litmus_event *fence,
                                 const litmus_place *place) {
    const litmus_agent *own = &p->agent[fence->agent];
    if (!place->is_shared) return fence->spaces & LITMUS_GLOBAL;
    if (fence->spaces & LITMUS_FAR) return true; /* no other cluster reaches it */
    return fence->spaces & LITMUS_SHARED && place->block == own->block;
}

/* PTX ISA, "Proxy-preserved base causality order". */
static inline bool litmus_is_preserved(const litmus_execution *x, unsigned a, unsigned b) {
    const litmus_program *p = x->p;
    const litmus_event *from = &p->event[a], *to = &p->event[b];
    if (!litmus_is_memory(from) || !litmus_is_memory(to) || from->place != to->place) return false;
    if (!litmus_has(&x->base, a, b)) return false;
    if (from->agent == 0) return true; /* the launch */
    if (from->proxy == to->proxy &&
        (from->proxy == LITMUS_GENERIC || p->agent[from->agent].block == p->agent[to->agent].block))
        return true;
    for (unsigned f = 0; f < p->count; f++)
        if (p->event[f].kind & LITMUS_PROXY_FENCE && litmus_has(&x->base, a, f) &&
            litmus_has(&x->base, f, b) && litmus_covers(p, &p->event[f], &p->place[from->place]))
            return true;
    return false;
}

/* What comes before what, of a choice of who reads what and of the order of the fences. */
static inline void litmus_find_cause(litmus_execution *x, const litmus_relation *fences) {
    const litmus_program *p = x->p;
    litmus_relation kept = {0};
    x->base = p->order;
    memset(&x->performed, 0, sizeof x->performed);
    litmus_unite(&x->base, fences, p->count);
    for (unsigned w = 0; w < p->count; w++)
        for (unsigned r = 0; r < p->count; r++)
            if (litmus_has(&x->observation, w, r)) litmus_synchronize(x, w, r);
    litmus_meet(x);
    litmus_unite(&x->performed, &x->base, p->count);
    litmus_close(&x->performed, p->count);
    litmus_close(&x->base, p->count);
    for (unsigned a = 0; a < p->count; a++)
        for (unsigned b = 0; b < p->count; b++)
            if (litmus_is_preserved(x, a, b)) litmus_add(&kept, a, b);
    x->cause = kept;
    for (unsigned w = 0; w < p->count; w++)
        for (unsigned z = 0; z < p->count; z++)
            if (litmus_has(&x->observation, w, z))
                for (unsigned i = 0; i < LITMUS_WORDS; i++) x->cause.row[w][i] |= kept.row[z][i];
}

/* ---- axioms ---- */

static inline void litmus_find_communication(litmus_execution *x) {
    const litmus_program *p = x->p;
    x->communication = x->coherence;
    for (unsigned r = 0; r < p->count; r++) {
        if (x->from[r] < 0) continue;
        litmus_add(&x->communication, (unsigned)x->from[r], r);
        for (unsigned w = 0; w < p->count; w++)
            if (w != r && litmus_has(&x->coherence, (unsigned)x->from[r], w))
                litmus_add(&x->communication, r, w);
    }
}

/* "Atomicity" of atomic operations. */
static inline bool litmus_is_torn(const litmus_execution *x) {
    const litmus_program *p = x->p;
    for (unsigned a = 0; a < p->count; a++) {
        if (!litmus_is_atomic(&p->event[a])) continue;
        for (unsigned w = 0; w < p->count; w++)
            if (w != a && litmus_has(&x->coherence, (unsigned)x->from[a], w) &&
                litmus_has(&x->coherence, w, a) && litmus_morally_strong(p, a, w))
                return true;
    }
    return false;
}

/* "Sequential Consistency Per Location" */
static inline bool litmus_is_incoherent(const litmus_execution *x) {
    const litmus_program *p = x->p;
    litmus_relation both = {0};
    for (unsigned a = 0; a < p->count; a++)
        for (unsigned b = 0; b < p->count; b++) {
            const litmus_event *e = &p->event[a], *f = &p->event[b];
            bool in_order = litmus_is_memory(e) && litmus_is_memory(f) && e->agent == f->agent && a < b &&
                            e->place == f->place && e->proxy == f->proxy;
            if (in_order || (litmus_has(&x->communication, a, b) && litmus_morally_strong(p, a, b)))
                litmus_add(&both, a, b);
        }
    return litmus_has_cycle(&both, p->count);
}

/* "Causality", "Coherence" and, if the program asks for it, reads that are performed. */
static inline bool litmus_contradicts(const litmus_execution *x) {
    const litmus_program *p = x->p;
    for (unsigned a = 0; a < p->count; a++)
        for (unsigned b = 0; b < p->count; b++)
            if (litmus_has(&x->communication, a, b) && litmus_has(&x->cause, b, a)) return true;
    for (unsigned r = 0; r < p->count && p->performed; r++)
        if (x->from[r] >= 0 && litmus_has(&x->performed, r, (unsigned)x->from[r])) return true;
    return false;
}

/* ---- all executions ---- */

typedef struct litmus_search {
    litmus_execution x;
    litmus_found found;
    void *context;
} litmus_search;

static inline void litmus_judge(litmus_search *s) {
    litmus_find_communication(&s->x);
    if (!litmus_is_torn(&s->x) && !litmus_is_incoherent(&s->x) && !litmus_contradicts(&s->x))
        s->found(s->context, &s->x);
}

/* Writes of one place that are morally strong to each other are in order, one way or the other. */
static inline void litmus_order_writes(litmus_search *s) {
    const litmus_program *p = s->x.p;
    litmus_close(&s->x.coherence, p->count);
    for (unsigned w = 0; w < p->count; w++)
        if (litmus_has(&s->x.coherence, w, w)) return;
    for (unsigned a = 0; a < p->count; a++)
        for (unsigned b = 0; b < a; b++) {
            const litmus_event *e = &p->event[a], *f = &p->event[b];
            if (!(e->kind & LITMUS_WRITE) || !(f->kind & LITMUS_WRITE) || !litmus_morally_strong(p, a, b) ||
                litmus_has(&s->x.coherence, a, b) || litmus_has(&s->x.coherence, b, a))
                continue;
            const litmus_relation before = s->x.coherence;
            litmus_add(&s->x.coherence, b, a);
            litmus_order_writes(s);
            s->x.coherence = before;
            litmus_add(&s->x.coherence, a, b);
            litmus_order_writes(s);
            s->x.coherence = before;
            return;
        }
    litmus_judge(s);
}

/* The initial writes come first; cause orders others. */
static inline void litmus_begin_coherence(litmus_execution *x) {
    const litmus_program *p = x->p;
    memset(&x->coherence, 0, sizeof x->coherence);
    for (unsigned a = 0; a < p->count; a++)
        for (unsigned b = 0; b < p->count; b++) {
            const litmus_event *e = &p->event[a], *f = &p->event[b];
            if (a == b || !(e->kind & LITMUS_WRITE) || !(f->kind & LITMUS_WRITE) || e->place != f->place)
                continue;
            bool performed = p->performed && litmus_has(&x->performed, a, b);
            if (e->agent == 0 || performed || litmus_has(&x->cause, a, b)) litmus_add(&x->coherence, a, b);
        }
}

/* Every order of fence.sc that are morally strong to each other ("Fence-SC"). */
static inline void litmus_order_fences(litmus_search *s, litmus_relation *fences) {
    const litmus_program *p = s->x.p;
    for (unsigned a = 0; a < p->count; a++)
        for (unsigned b = 0; b < a; b++) {
            const litmus_event *e = &p->event[a], *f = &p->event[b];
            if (!(e->kind & f->kind & LITMUS_FENCE) || e->order != LITMUS_SC || f->order != LITMUS_SC ||
                !litmus_morally_strong(p, a, b) || litmus_has(fences, a, b) || litmus_has(fences, b, a))
                continue;
            litmus_relation other = *fences;
            litmus_add(&other, b, a);
            litmus_order_fences(s, &other);
            litmus_add(fences, a, b);
            litmus_order_fences(s, fences);
            return;
        }
    litmus_find_cause(&s->x, fences);
    for (unsigned f = 0; f < p->count; f++)
        if (p->event[f].order == LITMUS_SC && litmus_has(&s->x.base, f, f)) return;
    litmus_begin_coherence(&s->x);
    litmus_order_writes(s);
}

/* "No Thin Air": values do not come from themselves. */
static inline bool litmus_is_thin(const litmus_execution *x) {
    litmus_relation r = {0};
    for (unsigned e = 0; e < x->p->count; e++) {
        if (x->from[e] >= 0) litmus_add(&r, (unsigned)x->from[e], e);
        if (x->p->event[e].source >= 0) litmus_add(&r, (unsigned)x->p->event[e].source, e);
    }
    return litmus_has_cycle(&r, x->p->count);
}

static inline void litmus_choose(litmus_search *s, unsigned r) {
    const litmus_program *p = s->x.p;
    while (r < p->count && !(p->event[r].kind & LITMUS_READ)) s->x.from[r++] = LITMUS_ANY;
    if (r == p->count) {
        litmus_relation fences = {0};
        if (litmus_is_thin(&s->x)) return;
        litmus_observe(&s->x);
        litmus_order_fences(s, &fences);
        return;
    }
    for (unsigned w = 0; w < p->count; w++) {
        const litmus_event *e = &p->event[w];
        if (w == r || !(e->kind & LITMUS_WRITE) || e->place != p->event[r].place) continue;
        if (p->event[r].sees_another && e->agent == 0) continue;
        s->x.from[r] = (int)w;
        litmus_choose(s, r + 1);
    }
}

static inline void litmus_run(const litmus_program *p, litmus_found found, void *context) {
    litmus_search s = {.x.p = p, .found = found, .context = context};
    litmus_choose(&s, 0);
}

/* What a write writes. */
static inline int litmus_value(const litmus_execution *x, int write) {
    const litmus_event *e = &x->p->event[write];
    if (e->source >= 0) return litmus_value(x, x->from[e->source]);
    return e->adds ? litmus_value(x, x->from[write]) + e->value : e->value;
}

#endif
