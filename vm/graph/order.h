/* The order of items that stand in a list and may run at the same time unless one waits for the other: the
 * launches of a graph, the tasks of a tape. An item waits for earlier ones alone. And the memory that items
 * touch: which two meet there. */
#ifndef TVM_GRAPH_ORDER_H
#define TVM_GRAPH_ORDER_H

#include "diag.h"

/* Whom each item comes after, directly or not: a row of bits an item. */
typedef struct tvm_precedence {
    uint32_t count;
    size_t words; /* of a row */
    uint64_t *before;
} tvm_precedence;

/* Of items without order. Release with tvm_precedence_free, also a zero-initialised one. TVM_NO_MEMORY. */
tvm_status tvm_precedence_make(tvm_precedence *order, uint32_t count, tvm_diags *diags);
void tvm_precedence_free(tvm_precedence *order);
/* `later` waits for `earlier`, whose own order is complete. */
void tvm_precedence_add(tvm_precedence *order, uint32_t earlier, uint32_t later);
/* Has item `earlier` ended when item `later` begins? */
bool tvm_precedence_has(const tvm_precedence *order, uint32_t earlier, uint32_t later);
static inline const uint64_t *tvm_precedence_row(const tvm_precedence *order, uint32_t item) {
    return order->before + item * order->words;
}

/* An item touches the bytes from `begin` up to `end`, addresses of any one space. */
typedef struct tvm_touch {
    uint64_t begin, end;
    uint32_t item;
    uint32_t subject; /* what it touches there, as the caller numbers it */
    bool writes;
} tvm_touch;

/* Sorts the touches by their begin, and calls `meet` for each two that overlap, are of different items, and
 * of which one writes, until it returns false; the item of `a` is the earlier one. */
typedef bool tvm_meet(void *closure, const tvm_touch *a, const tvm_touch *b);
void tvm_touches_meet(tvm_touch *touches, size_t count, tvm_meet *meet, void *closure);

#endif
