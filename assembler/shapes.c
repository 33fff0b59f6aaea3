/* Shapes: of tiles, static ones; of global tensors, which a launch evaluates. */
#include "shapes.h"

#include "cursor.h"
#include "expressions.h"
#include "head.h"
#include "report.h"
#include "scalars.h"

static bool add_extent(tvm_asm *as, const tvm_token *token, const tvm_value *item, const char *what,
                       unsigned most, uint32_t *extents, uint32_t *count) {
    if (item->kind == TVM_VALUE_POISON) return false;
    if (item->kind != TVM_VALUE_INTEGER)
        return tvm_asm_error(as, token, NULL, "%s is made of static integers, not of %s", what,
                             tvm_value_what(item));
    if (item->as.i < 1 || item->as.i > TVM_MAX_TILE_ELEMENTS)
        return tvm_asm_invalid(as, token, NULL, "an extent of %s is from 1 to %d, not %lld", what,
                               TVM_MAX_TILE_ELEMENTS, (long long)item->as.i);
    if (*count >= most) return tvm_asm_invalid(as, token, NULL, "%s has at most %u dimensions", what, most);
    extents[(*count)++] = (uint32_t)item->as.i;
    return true;
}

bool tvm_asm_extents(tvm_asm *as, const tvm_token *token, const tvm_value *items, uint32_t count,
                     const char *what, unsigned most, uint32_t *extents, uint32_t *extent_count) {
    *extent_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const tvm_value *inner = &items[i];
        uint32_t inner_count = 1;
        if (items[i].kind == TVM_VALUE_LIST) {
            inner = items[i].as.list.items;
            inner_count = items[i].as.list.count;
        }
        for (uint32_t j = 0; j < inner_count; j++)
            if (!add_extent(as, token, &inner[j], what, most, extents, extent_count)) return false;
    }
    if (!*extent_count) return tvm_asm_error(as, token, NULL, "%s has at least one dimension", what);
    return true;
}

bool tvm_asm_auto_layout(tvm_asm *as, const tvm_token *token, unsigned rank, const uint32_t *shape,
                         unsigned bits, tvm_layout *layout) {
    tvm_why why;
    if (!as->kernel.begun)
        return tvm_asm_error(as, token, NULL,
                             "auto depends on the number of threads: it stands only in a kernel");
    if (!tvm_asm_check_warps(as, token) || !tvm_asm_kernel(as)->warps) return false;
    if (tvm_layout_auto(rank, shape, tvm_team_threads(tvm_asm_team(as)), bits, layout, &why) == TVM_OK)
        return true;
    return tvm_asm_invalid(as, token, NULL, "auto: %s", why.text);
}

/* ---- of global tensors ---- */

bool tvm_asm_extent(tvm_asm *as, const tvm_token *token, const tvm_value *value, unsigned leaves,
                    const char *what, uint32_t *expr) {
    if (value->kind == TVM_VALUE_POISON) return false;
    if (!tvm_value_is_scalar(value))
        return tvm_asm_error(as, token, NULL, "%s is an integer, not %s", what, tvm_value_what(value));
    tvm_dtype type = tvm_asm_type_of(as, value);
    if (type.kind == TVM_KIND_FLOAT)
        return tvm_asm_error(as, token, NULL, "%s is an integer, not a float", what);
    if (!tvm_dtype_same(type, TVM_I(32))) type = TVM_I(64);
    return tvm_asm_lower(as, token, value, type, expr) && tvm_asm_launch_time(as, token, *expr, leaves, what);
}

/* A list of them, past its bracket. */
static bool extents(tvm_asm *as, unsigned leaves, const char *what, uint32_t *count, uint32_t *exprs) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value list;
    if (!tvm_asm_list(as, "]", &list)) return false;
    *count = list.as.list.count;
    if (*count < 1 || *count > TVM_MAX_RANK)
        return tvm_asm_invalid(as, token, NULL, "a tensor has 1 to %d dimensions, not %u", TVM_MAX_RANK,
                               *count);
    for (uint32_t d = 0; d < *count; d++)
        if (!tvm_asm_extent(as, token, &list.as.list.items[d], leaves, what, &exprs[d])) return false;
    return true;
}

bool tvm_asm_global_shape(tvm_asm *as, unsigned leaves, uint32_t *rank, uint32_t shape[TVM_MAX_RANK]) {
    return extents(as, leaves, "an extent", rank, shape);
}

bool tvm_asm_global_strides(tvm_asm *as, unsigned leaves, uint32_t rank, uint32_t stride[TVM_MAX_RANK]) {
    const tvm_token *token = tvm_asm_peek(as);
    uint32_t count;
    if (!extents(as, leaves, "a stride", &count, stride)) return false;
    return count == rank || tvm_asm_invalid(as, token, NULL, "%u strides for %u dimensions", count, rank);
}
