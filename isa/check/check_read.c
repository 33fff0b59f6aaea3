/* A certificate from its words (vbc(5)): what is not as it should be is no certificate. */
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"

typedef struct words {
    const uint32_t *at, *end;
    bool bad;
} words;

static uint32_t take(words *w, uint32_t below) {
    uint32_t word = w->at < w->end ? *w->at : 0;
    if (w->at++ >= w->end || word >= below) {
        w->bad = true;
        w->at = w->end;
        return 0;
    }
    return word;
}

static uint32_t take_any(words *w) {
    uint32_t word = w->at < w->end ? *w->at : 0;
    w->bad = w->bad || w->at == w->end;
    w->at += !w->bad;
    return word;
}

static uint64_t take_wide(words *w) {
    uint64_t low = take_any(w);
    return low | (uint64_t)take_any(w) << 32;
}

static check_value take_value(words *w) {
    check_value value = {.kind = take(w, CHECK_CLASS + 1)};
    if (value.kind == CHECK_ANY) return value;
    value.v = (int64_t)take_wide(w);
    if (value.kind == CHECK_EXACT) return value;
    value.high = (int64_t)take_wide(w);
    value.modulus = take(w, (1 << 16) + 1);
    if (value.modulus == 0 || value.v < 0 || value.v >= value.modulus || value.high < 0) w->bad = true;
    return value;
}

static void take_scalars(checker *c, words *w) {
    c->scalar_count = take(w, CHECK_SCALARS + 1);
    c->turn_scalars = take_wide(w);
    for (uint32_t i = 0; i < c->scalar_count; i++) {
        uint32_t slot = take(w, c->kernel->slot_count);
        if (slot < c->kernel->param_count || c->kernel->slots[slot].kind != TVM_SLOT_SCALAR) w->bad = true;
        for (uint32_t before = 0; before < i; before++)
            if (c->slots[before] == slot) w->bad = true;
        c->slots[i] = slot;
    }
}

static void take_rings(checker *c, words *w) {
    c->ring_count = take(w, CHECK_RINGS + 1);
    for (uint32_t i = 0; i < c->ring_count; i++) {
        check_ring *ring = &c->rings[i];
        ring->full = take(w, c->cell_count);
        ring->empty = take(w, CHECK_NO_CELL + 1);
        if (ring->empty != CHECK_NO_CELL && ring->empty >= c->cell_count) w->bad = true;
        ring->producers = take(w, UINT32_C(1) << c->team_count);
        ring->consumers = take(w, UINT32_C(1) << c->team_count);
    }
}

static void take_invariants(checker *c, words *w) {
    uint32_t count = take(w, CHECK_INVARIANTS + 1);
    c->invariants = calloc(count + (size_t)1, sizeof *c->invariants);
    if (!c->invariants) {
        c->no_memory = c->over = w->bad = true;
        return;
    }
    for (c->invariant_count = 0; c->invariant_count < count && !w->bad; c->invariant_count++) {
        check_state *invariant = &c->invariants[c->invariant_count];
        invariant->team = take(w, c->team_count);
        invariant->at = take(w, c->kernel->insn_count);
        invariant->held = take_wide(w);
        for (uint32_t i = 0; i < c->scalar_count; i++) invariant->values[i] = take_value(w);
    }
}

bool tvm_check_read(checker *c, const uint32_t *from, uint32_t count) {
    if (count == 0) return true;
    words w = {from, from + count, false};
    take(&w, CHECK_VERSION + 1);
    take_scalars(c, &w);
    take_rings(c, &w);
    if (!w.bad) take_invariants(c, &w);
    if (c->no_memory) return false;
    if (!w.bad && w.at == w.end && from[0] == CHECK_VERSION) return true;
    tvm_check_refuse(c, TVM_NONE, "the certificate is malformed, or of a version that is not known");
    return false;
}
