/* What an instruction's text says of its result's type and shape; of a shared tensor, of its layout. */
#include "operand.h"

#include <stdio.h>
#include <string.h>

#include "cursor.h"
#include "expressions.h"
#include "report.h"
#include "shapes.h"

/* `f32[16, 128]` */
bool tvm_asm_read_typed_shape(tvm_asm *as, tvm_reading *r) {
    tvm_value list;
    if (!tvm_asm_type(as, &r->type.dtype)) return false;
    const tvm_token *token = tvm_asm_peek(as);
    if (!tvm_asm_expect(as, "[", "and the shape after the type") || !tvm_asm_list(as, "]", &list) ||
        !tvm_asm_extents(as, token, list.as.list.items, list.as.list.count, "the shape", TVM_MAX_RANK,
                         r->shape, &r->rank))
        return false;
    r->has_shape = true;
    if (r->type.dtype.kind == TVM_KIND_FLOAT && r->type.dtype.bits == 64) r->wide = true;
    return true;
}

bool tvm_asm_same_shape(tvm_asm *as, const tvm_token *token, const tvm_reading *r, unsigned rank,
                        const uint32_t *shape) {
    if (!r->has_shape) return true;
    if (rank == r->rank && memcmp(shape, r->shape, rank * sizeof *shape) == 0) return true;
    char text[2][96] = {"", ""};
    for (unsigned i = 0; i < 2; i++)
        for (unsigned d = 0; d < (i ? rank : r->rank); d++)
            snprintf(text[i] + strlen(text[i]), sizeof text[i] - strlen(text[i]), "%s%u", d ? ", " : "",
                     i ? shape[d] : r->shape[d]);
    return tvm_asm_invalid(as, token, NULL, "the layout has shape [%s], the tensor [%s]", text[1], text[0]);
}

/* The shape of =t with a swizzle of its row-major order. */
static bool swizzled(tvm_asm *as, const tvm_token *token, tvm_reading *r, unsigned base, unsigned bits,
                     unsigned shift) {
    uint32_t strides[TVM_MAX_RANK];
    uint64_t stride = 1;
    tvm_why why;
    for (unsigned d = r->rank; d-- > 0;) {
        strides[d] = (uint32_t)stride;
        stride *= r->shape[d];
        if (stride > TVM_MAX_TILE_ELEMENTS)
            return tvm_asm_invalid(as, token, NULL, "a tensor has at most %d elements",
                                   TVM_MAX_TILE_ELEMENTS);
    }
    if (tvm_shared_layout_make(r->rank, r->shape, r->rank, r->shape, strides, base, bits, shift,
                               &r->type.shared_layout, &why) != TVM_OK)
        return tvm_asm_invalid(as, token, NULL, "%s", why.text);
    r->type.has_layout = true;
    return true;
}

bool tvm_asm_read_shared_layout(tvm_asm *as, tvm_reading *r) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value value;
    if (!tvm_asm_static(as, "a layout", &value) || value.kind == TVM_VALUE_POISON) return false;
    if (value.kind == TVM_VALUE_SWIZZLE)
        return swizzled(as, token, r, value.as.swizzle.base, value.as.swizzle.bits, value.as.swizzle.shift);
    if (value.kind == TVM_VALUE_ROW_MAJOR) return swizzled(as, token, r, 0, 0, 0);
    if (value.kind != TVM_VALUE_SHARED)
        return tvm_asm_error(as, token, NULL, "expected a shared layout, found %s", tvm_value_what(&value));
    r->type.shared_layout = *value.as.shared;
    r->type.has_layout = true;
    return tvm_asm_same_shape(as, token, r, r->type.shared_layout.rank, r->type.shared_layout.shape);
}

/* `f32[grid.x, n]` */
bool tvm_asm_read_global_type(tvm_asm *as, tvm_reading *r) {
    return tvm_asm_type(as, &r->type.dtype) && tvm_asm_expect(as, "[", "and the shape after the type") &&
           tvm_asm_global_shape(as, TVM_LEAF_GRID, &r->type.rank, r->type.shape);
}

/* The shape in row-major order. */
bool tvm_asm_plain_order(tvm_asm *as, tvm_reading *r) {
    tvm_why why;
    r->type.has_layout = true;
    return tvm_shared_layout_row_major(r->rank, r->shape, &r->type.shared_layout, &why) == TVM_OK ||
           tvm_asm_invalid(as, r->token, NULL, "%s", why.text);
}

/* `[4]`: mbarriers. */
bool tvm_asm_read_barriers(tvm_asm *as, tvm_reading *r) {
    const tvm_token *token = tvm_asm_peek(as);
    tvm_value list;
    if (!tvm_asm_expect(as, "[", "and the number of mbarriers") || !tvm_asm_list(as, "]", &list) ||
        !tvm_asm_extents(as, token, list.as.list.items, list.as.list.count, "the extents", TVM_MAX_RANK,
                         r->shape, &r->rank))
        return false;
    return tvm_asm_plain_order(as, r);
}
