/* Rules of what addresses elements one by one: masks, index tensors, gather and scatter. */
#include <string.h>

#include "rules.h"

/* Is the tensor broadcast to the tile within each thread? */
tvm_status tvm_rule_broadcasts(const tvm_rule *rule, const tvm_slot *slot, const char *what,
                               const tvm_layout *tile) {
    tvm_why why = {""};
    const tvm_layout *layout = &rule->program->layouts[slot->layout];
    if (tvm_layout_equal(layout, tile) || tvm_layout_broadcasts(layout, tile, NULL, &why)) return TVM_OK;
    return tvm_refuse(rule->why, "layout of %s: %.120s", what, why.text);
}

/* Elements that share a byte are not addressed one by one. */
static tvm_status whole_bytes(const tvm_rule *rule, unsigned memory) {
    tvm_dtype dtype = tvm_rule_slot(rule, memory)->dtype;
    if (dtype.bits % 8 == 0) return TVM_OK;
    return tvm_refuse(rule->why, "%s has type %s, expected elements of whole bytes",
                      TVM_RULE_NAME(rule, memory), TVM_DTYPE_TEXT(dtype));
}

tvm_status tvm_rule_mask(const tvm_rule *rule, unsigned entry, unsigned memory, const tvm_layout *tile) {
    char mask[TVM_RULE_NAME_MAX];
    if (!tvm_rule_is_given(rule, entry)) return TVM_OK;
    const tvm_slot *slot = tvm_rule_slot(rule, entry);
    tvm_rule_name(rule, entry, mask);
    if (slot->dtype.kind != TVM_KIND_BOOL)
        return tvm_refuse(rule->why, "the mask %s has type %s, expected bool", mask,
                          TVM_DTYPE_TEXT(slot->dtype));
    tvm_status status = whole_bytes(rule, memory);
    return status == TVM_OK ? tvm_rule_broadcasts(rule, slot, mask, tile) : status;
}

tvm_status tvm_rule_fill(const tvm_rule *rule, unsigned entry, unsigned memory) {
    return tvm_rule_is_given(rule, entry) ? whole_bytes(rule, memory) : TVM_OK;
}

/* ---- index tensors ---- */

static const tvm_slot *index_slot(const tvm_rule *rule, unsigned memory, unsigned d) {
    const tvm_operand *index = &rule->operands[rule->at[memory] + 1 + d];
    return index->kind == TVM_OPERAND_SLOT ? &rule->kernel->slots[index->value] : NULL;
}

static unsigned memory_rank(const tvm_rule *rule, unsigned memory) {
    return tvm_slot_rank(rule->program, tvm_rule_slot(rule, memory));
}

/* The layout that the index tensors and the mask give a tile: that of the first with the greatest rank and
 * extents, else what they give together. */
static tvm_status derived_layout(const tvm_rule *rule, unsigned mask, tvm_layout *out) {
    const tvm_layout *layouts[TVM_MAX_RANK + 1];
    unsigned count = 0;
    tvm_why why = {""};
    for (unsigned d = 0; d < memory_rank(rule, 0); d++)
        if (index_slot(rule, 0, d))
            layouts[count++] = &rule->program->layouts[index_slot(rule, 0, d)->layout];
    if (tvm_rule_is_tensor(rule, mask)) layouts[count++] = tvm_rule_layout(rule, mask);
    if (count == 0) return tvm_refuse(rule->why, "expected a layout for the result");
    for (unsigned i = 0; i < count; i++) {
        bool takes_all = true;
        for (unsigned j = 0; j < count; j++)
            takes_all = takes_all && tvm_layout_broadcasts(layouts[j], layouts[i], NULL, NULL);
        if (!takes_all) continue;
        *out = *layouts[i];
        return TVM_OK;
    }
    if (tvm_layout_joint(layouts, count, out, &why) == TVM_OK) return TVM_OK;
    return tvm_refuse(rule->why, "%s", why.text);
}

tvm_status tvm_rule_places(const tvm_rule *rule, unsigned memory, const tvm_layout *tile) {
    char what[TVM_RULE_NAME_MAX];
    unsigned rank = memory_rank(rule, memory), tensors = 0;
    for (unsigned d = 0; d < rank; d++) {
        const tvm_slot *slot = index_slot(rule, memory, d);
        if (!slot) continue;
        tensors++;
        snprintf(what, sizeof what, "index %u of %.40s", d, TVM_RULE_NAME(rule, memory));
        if (!tvm_dtype_same(slot->dtype, TVM_I(32)) && !tvm_dtype_same(slot->dtype, TVM_I(64)))
            return tvm_refuse(rule->why, "%s has type %s, expected i32 or i64", what,
                              TVM_DTYPE_TEXT(slot->dtype));
        tvm_status status = tvm_rule_broadcasts(rule, slot, what, tile);
        if (status != TVM_OK) return status;
    }
    if (tile->rank > rank && tensors == 0)
        return tvm_refuse(rule->why, "the tile has %u dimensions, %s only %u, and no index is a tensor",
                          tile->rank, TVM_RULE_NAME(rule, memory), rank);
    return whole_bytes(rule, memory);
}

tvm_status tvm_rule_GATHER(const tvm_rule *rule) {
    enum { MEMORY, EVICT, MASK, FILL };
    tvm_layout derived;
    if (!rule->type->has_layout) {
        tvm_status status = derived_layout(rule, MASK, &derived);
        if (status != TVM_OK) return status;
    }
    tvm_status status =
        tvm_rule_register(rule, tvm_rule_slot(rule, MEMORY)->dtype, rule->type->has_layout ? NULL : &derived);
    if (status == TVM_OK) status = tvm_rule_places(rule, MEMORY, &rule->type->layout);
    if (status == TVM_OK) status = tvm_rule_mask(rule, MASK, MEMORY, &rule->type->layout);
    return status == TVM_OK ? tvm_rule_fill(rule, FILL, MEMORY) : status;
}

tvm_status tvm_rule_SCATTER(const tvm_rule *rule) {
    enum { MEMORY, SOURCE, MASK };
    tvm_dtype to = tvm_rule_slot(rule, MEMORY)->dtype, from = tvm_rule_slot(rule, SOURCE)->dtype;
    if (!tvm_dtype_same(to, from))
        return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", TVM_RULE_NAME(rule, SOURCE),
                          TVM_DTYPE_TEXT(from), TVM_DTYPE_TEXT(to), TVM_RULE_NAME(rule, MEMORY));
    tvm_status status = tvm_rule_places(rule, MEMORY, tvm_rule_layout(rule, SOURCE));
    if (status == TVM_OK) status = tvm_rule_mask(rule, MASK, MEMORY, tvm_rule_layout(rule, SOURCE));
    return status == TVM_OK ? tvm_rule_nothing(rule) : status;
}
