/* For the layout tests: layouts as plain tables, evaluated from their definition, with no code of the
 * library. */
#ifndef TVM_TESTS_LAYOUT_REFERENCE_H
#define TVM_TESTS_LAYOUT_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "layout.h"

enum { TABLE_MAX = 1 << 16 };

/* table[thread * locals + local] is the row-major flat element. */
typedef struct reference {
    unsigned rank;
    uint32_t shape[TVM_MAX_RANK];
    uint32_t threads, locals;
    uint32_t table[TABLE_MAX];
} reference;

/* The arguments of tvm_layout_make, with the dimension of each mode. */
typedef struct lists {
    unsigned rank, modes, spatials, locals;
    uint32_t shape[TVM_MAX_RANK];
    uint32_t mode_size[TVM_MAX_MODES];
    unsigned mode_dim[TVM_MAX_MODES];
    int32_t spatial[TVM_MAX_MODES];
    uint8_t local[TVM_MAX_MODES];
} lists;

/* xorshift32 */
static inline uint32_t random_next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static inline uint32_t random_below(uint32_t *state, uint32_t limit) {
    return random_next(state) / 7 % limit;
}

static inline uint32_t shape_elements(unsigned rank, const uint32_t *shape) {
    uint32_t product = 1;
    for (unsigned d = 0; d < rank; d++) product *= shape[d];
    return product;
}

static inline void unflatten(unsigned rank, const uint32_t *shape, uint32_t flat, uint32_t *index) {
    for (unsigned d = rank; d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
}

static inline uint32_t flatten(unsigned rank, const uint32_t *shape, const uint32_t *index) {
    uint32_t flat = 0;
    for (unsigned d = 0; d < rank; d++) flat = flat * shape[d] + index[d];
    return flat;
}

static inline void reference_index(const reference *r, uint32_t thread, uint32_t local, uint32_t *index) {
    unflatten(r->rank, r->shape, r->table[thread * r->locals + local], index);
}

/* Modes of random sizes, 1 included, that multiply to each extent; each dealt to spatial or local in random
 * order; random replication digits in between. */
static inline void random_lists_over(uint32_t *state, unsigned rank, const uint32_t *shape, bool replicate,
                                     lists *out) {
    memset(out, 0, sizeof *out);
    out->rank = rank;
    for (unsigned d = 0; d < rank; d++) {
        out->shape[d] = shape[d];
        uint32_t rest = shape[d];
        while (rest > 1 || random_below(state, 8) == 0) {
            uint32_t size = 1 + random_below(state, rest);
            while (rest % size != 0) size--;
            if (out->modes >= 12) size = rest;
            out->mode_size[out->modes] = size;
            out->mode_dim[out->modes++] = d;
            rest /= size;
        }
    }
    uint8_t order[TVM_MAX_MODES];
    for (unsigned m = 0; m < out->modes; m++) {
        unsigned at = random_below(state, m + 1);
        order[m] = order[at];
        order[at] = (uint8_t)m;
    }
    unsigned copies = 0;
    for (unsigned i = 0; i < out->modes; i++) {
        if (replicate && copies < 2 && random_below(state, 4) == 0) {
            copies++;
            out->spatial[out->spatials++] = -(int32_t)(1 + random_below(state, 3));
        }
        if (random_below(state, 2) == 0)
            out->spatial[out->spatials++] = order[i];
        else
            out->local[out->locals++] = order[i];
    }
    if (replicate && copies < 2 && random_below(state, 4) == 0)
        out->spatial[out->spatials++] = -(int32_t)(1 + random_below(state, 3));
}

/* Rank 1 to 3, at most `most` elements. */
static inline void random_lists(uint32_t *state, uint32_t most, lists *out) {
    static const uint32_t extents[] = {1, 2, 3, 4, 4, 5, 6, 8, 9, 12};
    uint32_t shape[TVM_MAX_RANK];
    unsigned rank = 1 + random_below(state, 3);
    uint32_t left = most;
    for (unsigned d = 0; d < rank; d++) {
        do shape[d] = extents[random_below(state, sizeof extents / sizeof *extents)];
        while (shape[d] > left);
        left /= shape[d];
    }
    random_lists_over(state, rank, shape, true, out);
}

static inline tvm_status make_from(const lists *from, tvm_layout *out, tvm_why *why) {
    return tvm_layout_make(from->rank, from->shape, from->modes, from->mode_size, from->spatials,
                           from->spatial, from->locals, from->local, out, why);
}

/* The definition: digits of thread and local, most significant first, are the modes; modes make up the index.
 */
static inline void reference_from_lists(const lists *from, reference *out) {
    out->rank = from->rank;
    memcpy(out->shape, from->shape, sizeof out->shape);
    out->threads = out->locals = 1;
    for (unsigned i = 0; i < from->spatials; i++) {
        int32_t m = from->spatial[i];
        out->threads *= m < 0 ? (uint32_t)-m : from->mode_size[m];
    }
    for (unsigned i = 0; i < from->locals; i++) out->locals *= from->mode_size[from->local[i]];
    for (uint32_t t = 0; t < out->threads; t++) {
        for (uint32_t l = 0; l < out->locals; l++) {
            uint32_t value[TVM_MAX_MODES] = {0}, index[TVM_MAX_RANK] = {0};
            uint32_t place = out->threads;
            for (unsigned i = 0; i < from->spatials; i++) {
                int32_t m = from->spatial[i];
                uint32_t size = m < 0 ? (uint32_t)-m : from->mode_size[m];
                place /= size;
                if (m >= 0) value[m] = t / place % size;
            }
            place = out->locals;
            for (unsigned i = 0; i < from->locals; i++) {
                unsigned m = from->local[i];
                place /= from->mode_size[m];
                value[m] = l / place % from->mode_size[m];
            }
            for (unsigned m = 0; m < from->modes; m++)
                index[from->mode_dim[m]] = index[from->mode_dim[m]] * from->mode_size[m] + value[m];
            out->table[t * out->locals + l] = flatten(out->rank, out->shape, index);
        }
    }
}

/* Is the library's layout this function? By map, element and table. */
static inline bool layout_is(const tvm_layout *layout, const reference *r) {
    static uint32_t table[TABLE_MAX];
    if (!tvm_layout_valid(layout, NULL) || layout->rank != r->rank ||
        tvm_layout_threads(layout) != r->threads || tvm_layout_locals(layout) != r->locals ||
        memcmp(layout->shape, r->shape, r->rank * sizeof *r->shape) != 0)
        return false;
    tvm_layout_table(layout, table);
    for (uint32_t t = 0; t < r->threads; t++) {
        for (uint32_t l = 0; l < r->locals; l++) {
            uint32_t index[TVM_MAX_RANK], want = r->table[t * r->locals + l];
            tvm_layout_map(layout, t, l, index);
            if (table[t * r->locals + l] != want || tvm_layout_element(layout, t, l) != want ||
                flatten(r->rank, r->shape, index) != want)
                return false;
        }
    }
    return true;
}

/* One list of digits read off a function of one number: sizes and strides, least significant first. */
typedef struct found_digits {
    unsigned count;
    uint32_t size[32], stride[32];
    unsigned dim[32];
} found_digits;

/* index of number n is index[n * TVM_MAX_RANK ...]; false when no digits spell it. */
static inline bool find_digits(unsigned rank, const uint32_t (*index)[TVM_MAX_RANK], uint32_t count,
                               found_digits *out) {
    out->count = 0;
    for (uint32_t step = 1; step < count;) {
        unsigned dim = 0, moving = 0;
        for (unsigned d = 0; d < rank; d++) {
            if (index[step][d] == 0) continue;
            dim = d;
            moving++;
        }
        if (moving > 1 || count % step != 0) return false;
        uint32_t size = 1;
        for (bool goes_on = true; goes_on; size += goes_on) {
            goes_on = size * step < count;
            for (unsigned d = 0; d < rank && goes_on; d++)
                goes_on = index[size * step][d] == size * index[step][d];
        }
        if (count / step % size != 0 || out->count == 32) return false;
        out->size[out->count] = size;
        out->stride[out->count] = index[step][dim];
        out->dim[out->count++] = dim;
        step *= size;
    }
    return true;
}

/* Is there any layout that is this function? Reads the digits off, checks that they tile each dimension and
 * that they give the whole table. */
static inline bool reference_is_layout(const reference *r) {
    static uint32_t by_thread[TABLE_MAX][TVM_MAX_RANK], by_local[TABLE_MAX][TVM_MAX_RANK];
    found_digits found[2];
    for (uint32_t t = 0; t < r->threads; t++) reference_index(r, t, 0, by_thread[t]);
    for (uint32_t l = 0; l < r->locals; l++) reference_index(r, 0, l, by_local[l]);
    if (r->table[0] != 0 ||
        !find_digits(r->rank, (const uint32_t(*)[TVM_MAX_RANK])by_thread, r->threads, &found[0]) ||
        !find_digits(r->rank, (const uint32_t(*)[TVM_MAX_RANK])by_local, r->locals, &found[1]))
        return false;
    for (unsigned i = 0; i < found[1].count; i++)
        if (found[1].stride[i] == 0) return false;
    for (unsigned d = 0; d < r->rank; d++) {
        uint32_t reach = 1;
        for (bool grew = true; grew;) {
            grew = false;
            for (unsigned k = 0; k < 2 && !grew; k++)
                for (unsigned i = 0; i < found[k].count && !grew; i++)
                    if (found[k].dim[i] == d && found[k].stride[i] == reach) {
                        reach *= found[k].size[i];
                        grew = true;
                    }
        }
        uint32_t product = 1;
        for (unsigned k = 0; k < 2; k++)
            for (unsigned i = 0; i < found[k].count; i++)
                if (found[k].dim[i] == d && found[k].stride[i] != 0) product *= found[k].size[i];
        if (reach != r->shape[d] || product != r->shape[d]) return false;
    }
    for (uint32_t t = 0; t < r->threads; t++) {
        for (uint32_t l = 0; l < r->locals; l++) {
            uint32_t index[TVM_MAX_RANK] = {0};
            uint32_t rest = t;
            for (unsigned i = 0; i < found[0].count; rest /= found[0].size[i++])
                index[found[0].dim[i]] += rest % found[0].size[i] * found[0].stride[i];
            rest = l;
            for (unsigned i = 0; i < found[1].count; rest /= found[1].size[i++])
                index[found[1].dim[i]] += rest % found[1].size[i] * found[1].stride[i];
            if (flatten(r->rank, r->shape, index) != r->table[t * r->locals + l]) return false;
        }
    }
    return true;
}

#endif
