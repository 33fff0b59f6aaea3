#include "order.h"

#include <stdlib.h>

tvm_status tvm_precedence_make(tvm_precedence *order, uint32_t count, tvm_diags *diags) {
    *order = (tvm_precedence){.count = count, .words = ((size_t)count + 63) / 64};
    order->before = calloc(order->words * count + 1, sizeof *order->before);
    return order->before ? TVM_OK : tvm_diag_no_memory(diags);
}

void tvm_precedence_free(tvm_precedence *order) {
    free(order->before);
    *order = (tvm_precedence){0};
}

void tvm_precedence_add(tvm_precedence *order, uint32_t earlier, uint32_t later) {
    uint64_t *row = order->before + later * order->words;
    const uint64_t *from = tvm_precedence_row(order, earlier);
    for (size_t w = 0; w < order->words; w++) row[w] |= from[w];
    row[earlier / 64] |= UINT64_C(1) << earlier % 64;
}

bool tvm_precedence_has(const tvm_precedence *order, uint32_t earlier, uint32_t later) {
    return tvm_precedence_row(order, later)[earlier / 64] >> earlier % 64 & 1;
}

static int by_begin(const void *a, const void *b) {
    const tvm_touch *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

void tvm_touches_meet(tvm_touch *touches, size_t count, tvm_meet *meet, void *closure) {
    if (count) qsort(touches, count, sizeof *touches, by_begin);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i + 1; j < count && touches[j].begin < touches[i].end; j++) {
            const tvm_touch *a = &touches[i], *b = &touches[j];
            if (a->item == b->item || !(a->writes || b->writes) || b->begin == b->end) continue;
            if (!(a->item < b->item ? meet(closure, a, b) : meet(closure, b, a))) return;
        }
}
