#include "variants_memory.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { BUCKETS = 512, WAYS = 2, ODD = 1 };

/* A slot is its state, then the values of the parameters. The state is the index, and above it a count of
 * writes, twice: odd while the slot is written, 0 while it is empty. Readers take what they read only when
 * the state is the same before and after. */
struct tvm_choices {
    uint16_t params[TVM_CHOICE_PARAMS];
    uint32_t count;
    atomic_uint_fast64_t words[]; /* BUCKETS * WAYS slots */
};

tvm_choices *tvm_choices_make(const uint16_t *params, uint32_t count) {
    tvm_choices *made =
        calloc(1, sizeof *made + (size_t)BUCKETS * WAYS * (1 + count) * sizeof made->words[0]);
    if (!made) return NULL;
    made->count = count;
    for (uint32_t i = 0; i < count; i++) made->params[i] = params[i];
    return made;
}

/* The first slot of the bucket. */
static inline size_t bucket_of(const tvm_choices *choices, const tvm_scalar *scalars) {
    uint64_t hash = 0;
    for (uint32_t i = 0; i < choices->count; i++) {
        hash = (hash ^ scalars[choices->params[i]].u) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash % BUCKETS * WAYS * (1 + (size_t)choices->count);
}

static inline uint64_t load(const atomic_uint_fast64_t *word) {
    return atomic_load_explicit(word, memory_order_acquire);
}

/* Every load is an acquire: a value that is half of a write brings with it that the state is odd. */
static inline bool holds(const tvm_choices *choices, const atomic_uint_fast64_t *slot,
                         const tvm_scalar *scalars, uint32_t *index) {
    uint64_t state = load(slot), writes = state >> 32;
    bool same = writes && !(writes & ODD);
    for (uint32_t i = 0; same && i < choices->count; i++)
        same = load(&slot[1 + i]) == scalars[choices->params[i]].u;
    if (!same || load(slot) != state) return false;
    *index = (uint32_t)state;
    return true;
}

bool tvm_choices_find(const tvm_choices *choices, const tvm_scalar *scalars, uint32_t *index) {
    const atomic_uint_fast64_t *slot = &choices->words[bucket_of(choices, scalars)];
    for (unsigned way = 0; way < WAYS; way++, slot += 1 + choices->count)
        if (holds(choices, slot, scalars, index)) return true;
    return false;
}

void tvm_choices_note(tvm_choices *choices, const tvm_scalar *scalars, uint32_t index) {
    atomic_uint_fast64_t *slot = &choices->words[bucket_of(choices, scalars)],
                         *other = slot + 1 + choices->count;
    uint32_t writes = (uint32_t)(load(slot) >> 32), of_other = (uint32_t)(load(other) >> 32);
    if (of_other < writes) { /* the one that was written less often is the older one */
        slot = other;
        writes = of_other;
    }
    uint64_t state = load(slot);
    if (state >> 32 != writes || writes & ODD ||
        !atomic_compare_exchange_strong(slot, &state, (uint64_t)(writes + 1) << 32))
        return;
    for (uint32_t i = 0; i < choices->count; i++)
        atomic_store_explicit(&slot[1 + i], scalars[choices->params[i]].u, memory_order_release);
    atomic_store_explicit(slot, (uint64_t)(writes + 2) << 32 | index, memory_order_release);
}
