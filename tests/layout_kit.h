/* For the tests of layouts: layouts as the library makes them, and random ones with their tables. */
#ifndef TVM_TESTS_LAYOUT_KIT_H
#define TVM_TESTS_LAYOUT_KIT_H

#include "check_kit.h"

#include "layout.h"
#include "layout_reference.h"

static inline tvm_layout local2(uint32_t a, uint32_t b) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_local(2, (uint32_t[]){a, b}, &out, NULL), TVM_OK);
    return out;
}

static inline tvm_layout spatial2(uint32_t a, uint32_t b) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_spatial(2, (uint32_t[]){a, b}, &out, NULL), TVM_OK);
    return out;
}

static inline tvm_layout compose(tvm_layout a, tvm_layout b) {
    tvm_layout out;
    ck_assert_int_eq(tvm_layout_compose(&a, &b, &out, NULL), TVM_OK);
    return out;
}

/* A random layout and its table. */
static inline void random_layout(uint32_t *state, uint32_t most, tvm_layout *layout, reference *table) {
    lists from;
    tvm_why why = {""};
    random_lists(state, most, &from);
    ck_assert_msg(make_from(&from, layout, &why) == TVM_OK, "%s", why.text);
    reference_from_lists(&from, table);
}

/* Small modes dealt to threads, as long as these divide `threads`, and to locals; what is left of
 * the threads are replicas. */
static inline tvm_layout random_layout_over(uint32_t *state, unsigned rank, const uint32_t *shape,
                                            uint32_t threads) {
    lists from;
    tvm_layout layout;
    tvm_why why = {""};
    memset(&from, 0, sizeof from);
    from.rank = rank;
    for (unsigned d = 0; d < rank; d++) {
        from.shape[d] = shape[d];
        for (uint32_t rest = shape[d]; rest > 1; rest /= from.mode_size[from.modes - 1]) {
            from.mode_size[from.modes] = rest % 2 == 0 ? 2 : rest % 3 == 0 ? 3 : rest % 5 == 0 ? 5 : rest;
            from.mode_dim[from.modes++] = d;
        }
    }
    uint8_t order[TVM_MAX_MODES];
    for (unsigned m = 0; m < from.modes; m++) {
        unsigned at = random_below(state, 3) == 0 ? random_below(state, m + 1) : m;
        order[m] = order[at];
        order[at] = (uint8_t)m;
    }
    uint32_t local_first = random_below(state, 4);
    for (unsigned i = 0; i < from.modes; i++) {
        uint32_t size = from.mode_size[order[i]];
        if (i + local_first < from.modes && threads % size == 0) {
            from.spatial[from.spatials++] = order[i];
            threads /= size;
        } else {
            from.local[from.locals++] = order[i];
        }
    }
    if (threads > 1) {
        unsigned at = random_below(state, from.spatials + 1);
        memmove(from.spatial + at + 1, from.spatial + at, (from.spatials - at) * sizeof from.spatial[0]);
        from.spatial[at] = -(int32_t)threads;
        from.spatials++;
    }
    ck_assert_msg(make_from(&from, &layout, &why) == TVM_OK, "%s", why.text);
    return layout;
}

#endif
