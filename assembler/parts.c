#include "parts.h"

#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "instruction.h"
#include "report.h"
#include "result.h"

/* What the list says. The new dimensions and those of the tensor together are the wide ones. */
typedef struct part {
    uint32_t rank, given; /* dimensions of the tensor, and those of them that have an item */
    uint32_t shape[TVM_MAX_RANK], offset[TVM_MAX_RANK], extent[TVM_MAX_RANK];
    uint32_t added[TVM_MAX_RANK], added_count;   /* wide ones that are new */
    uint32_t left_out[TVM_MAX_RANK], left_count; /* wide ones that have an index */
} part;

/* ---- the list ---- */

/* A bound of a range, or an index: a static integer. */
static bool place(tvm_asm *as, uint32_t least, uint32_t most, uint32_t *result) {
    int64_t value;
    if (!tvm_asm_static_integer(as, least, most, "a place in this dimension of the tensor", &value))
        return false;
    *result = (uint32_t)value;
    return true;
}

static bool at_separator(const tvm_asm *as) {
    return tvm_asm_at(as, ",") || tvm_asm_at(as, "]");
}

static bool range(tvm_asm *as, part *p) {
    uint32_t from = 0, end = p->shape[p->given], d = p->given++;
    if (!tvm_asm_at(as, ":") && !place(as, 0, p->shape[d] - 1, &from)) return false;
    bool index = !tvm_asm_accept(as, ":");
    if (index) p->left_out[p->left_count++] = d + p->added_count;
    if (index)
        end = from + 1;
    else if (!at_separator(as) && !place(as, from + 1, p->shape[d], &end))
        return false;
    p->offset[d] = from;
    p->extent[d] = end - from;
    return true;
}

static bool item(tvm_asm *as, part *p) {
    const tvm_token *token = tvm_asm_peek(as);
    if (tvm_asm_at(as, "None") && !tvm_symbols_find(&as->statics.names, "None", sizeof "None" - 1)) {
        tvm_asm_next(as);
        if (p->added_count == TVM_MAX_RANK)
            return tvm_asm_invalid(as, token, NULL, "a tensor has at most %d dimensions", TVM_MAX_RANK);
        p->added[p->added_count] = p->given + p->added_count;
        p->added_count++;
        return true;
    }
    if (p->given == p->rank)
        return tvm_asm_invalid(as, token, NULL, "the tensor has %u dimension%s", p->rank,
                               p->rank == 1 ? "" : "s");
    return range(as, p);
}

static bool list(tvm_asm *as, part *p) {
    do {
        if (!item(as, p)) return false;
    } while (tvm_asm_accept(as, ",") && !tvm_asm_at(as, "]"));
    if (!tvm_asm_expect(as, "]", "or ',' after a part of the tensor")) return false;
    /* A tensor has a dimension. */
    if (p->left_count == p->rank && !p->added_count) p->left_count--;
    return true;
}

/* ---- the instructions ---- */

static bool numbers(tvm_asm *as, const uint32_t *from, uint32_t count, tvm_value *value) {
    tvm_value *items = tvm_arena_alloc(&as->scratch, count * sizeof *items);
    if (!items) return tvm_asm_no_memory(as);
    for (uint32_t i = 0; i < count; i++) items[i] = tvm_value_integer(from[i]);
    *value = (tvm_value){.kind = TVM_VALUE_LIST, .as.list = {items, count}};
    return true;
}

static bool along(tvm_asm *as, unsigned op, const tvm_token *token, uint32_t axis, tvm_value *value) {
    const tvm_value operands[2] = {*value, tvm_value_integer(axis)};
    return tvm_asm_tensor_operation(as, op, token, operands, 2, value);
}

/* Where the threads' registers are not divided as the tile is, its layout is inferred. */
static bool slice(tvm_asm *as, const tvm_token *token, const part *p, tvm_value *value) {
    tvm_value operands[3] = {*value};
    return numbers(as, p->offset, p->rank, &operands[1]) && numbers(as, p->extent, p->rank, &operands[2]) &&
           tvm_asm_tensor_operation(as, TVM_OP_SLICE, token, operands, 3, value) &&
           tvm_asm_open_unless_follows(as, value, p->rank, p->extent);
}

bool tvm_asm_part(tvm_asm *as, const tvm_token *token, tvm_value *value) {
    part p = {0};
    if (!tvm_asm_settle(as, value)) return false;
    const tvm_slot *slot = &tvm_asm_kernel(as)->slots[value->as.tensor.slot];
    p.rank = tvm_slot_rank(as->program, slot);
    memcpy(p.shape, tvm_slot_shape(as->program, slot), p.rank * sizeof *p.shape);
    memcpy(p.extent, p.shape, sizeof p.extent);
    bool good = list(as, &p);
    if (good && memcmp(p.extent, p.shape, p.rank * sizeof *p.shape) != 0) good = slice(as, token, &p, value);
    for (uint32_t i = 0; good && i < p.added_count; i++)
        good = along(as, TVM_OP_UNSQUEEZE, token, p.added[i], value);
    for (uint32_t i = p.left_count; good && i-- > 0;)
        good = along(as, TVM_OP_SQUEEZE, token, p.left_out[i], value);
    return good;
}
