/* Layers of floats of 8 and 4 bits. */
#include "checkpoint_impl.h"

#include <inttypes.h>
#include <math.h>

static bool is_e8m0(const ck_tensor *tensor) {
    return ck_has_type(tensor, TVM_U(8)) || ck_has_type(tensor, TVM_E8M0);
}

/* ---- 8 bits ---- */

/* weight F8_E4M3 or F8_E5M2 [n, k]; weight_scale, or weight_scale_inv, by which weights are multiplied, too:
 * one, one for each column, [n, groups], or one for each block, 128 by 128 unless the configuration says
 * otherwise. */
bool ck_is_fp8(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_FLOAT(8, 4, 3)) || ck_has_type(&layer->codes, TVM_FLOAT(8, 5, 2));
}

/* OCP microscaling formats 1.0: scales are powers of two, as U8 in most files. */
bool ck_is_mxfp8(const ck_layer *layer) {
    return ck_is_fp8(layer) && is_e8m0(&layer->scales);
}

tvm_status ck_plan_fp8(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    enum { MX_GROUP = 32 };
    const ck_tensor *scales = &layer->scales;
    bool bytes = ck_has_type(scales, TVM_U(8)) && layer->format->matches == ck_is_mxfp8;
    layer->n = ck_extent(&layer->codes, 1);
    layer->k = layer->pitch = ck_extent(&layer->codes, 0);
    layer->bits = 8;
    layer->type = layer->codes.header->type;
    layer->numbers = bytes ? TVM_E8M0 : scales->header->type;
    tvm_status status = ck_need(c, layer, "weight", &layer->codes, layer->type, layer->n, layer->k, diags);
    if (!status && !ck_is_scale(scales) && !ck_has_type(scales, TVM_E8M0) && !bytes)
        status =
            ck_refuse(c, layer, TVM_FORMAT, diags, "its scales are of type %.20s", scales->header->dtype);
    if (!status) status = ck_set_blocks(c, layer, diags);
    if (!status && bytes && (layer->group != MX_GROUP || layer->block_columns != 1))
        status = ck_refuse(c, layer, TVM_FORMAT, diags, "scales of U8 are not one for each 32 weights");
    return status;
}

/* ---- 4 bits ---- */

/* Groups of `group` weights of a column, two codes in a byte. */
static void set_pairs(ck_layer *layer, uint64_t group) {
    layer->group = layer->block_rows = group;
    layer->block_columns = 1;
    layer->bits = 4;
    layer->type = TVM_FLOAT(4, 2, 1);
    layer->pitch = layer->k / 2;
}

/* X_blocks U8 [count, n, k / 32, 16], the lower half of a byte first; X_scales U8 [count, n, k / 32] are
 * e8m0. */
bool ck_is_mxfp4_blocks(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_U(8)) && layer->codes.header->rank >= 3 &&
           ck_extent(&layer->codes, 0) == 16;
}

tvm_status ck_plan_mxfp4_blocks(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    const ck_tensor *codes = &layer->codes, *scales = &layer->scales;
    layer->n = ck_extent(codes, 2);
    layer->k = ck_extent(codes, 1) * 32;
    layer->stacked = codes->header->rank == 4;
    layer->count = layer->stacked ? ck_extent(codes, 3) : 1;
    layer->numbers = TVM_E8M0;
    set_pairs(layer, 32);
    if (is_e8m0(scales) && codes->header->rank <= 4 && scales->header->rank == codes->header->rank - 1 &&
        ck_extent(scales, 0) == layer->k / 32 && ck_extent(scales, 1) == layer->n &&
        ck_extent(scales, 2) == layer->count)
        return TVM_OK;
    return ck_refuse(c, layer, TVM_FORMAT, diags, "scales are %s; U8, one for each 32 weights, is expected",
                     tvm_safetensor_text(scales->header, text));
}

static tvm_status plan_pairs(const checkpoint *c, ck_layer *layer, uint64_t group, tvm_diags *diags) {
    layer->n = ck_extent(&layer->codes, 1);
    layer->k = 2 * ck_extent(&layer->codes, 0);
    set_pairs(layer, group);
    tvm_status status =
        ck_need(c, layer, "the weight", &layer->codes, TVM_U(8), layer->n, layer->k / 2, diags);
    if (!status)
        status = ck_need(c, layer, "weight_scale", &layer->scales, layer->scales.header->type, layer->n,
                         layer->k / group, diags);
    if (!status && layer->k % group)
        status =
            ck_refuse(c, layer, TVM_FORMAT, diags, "%" PRIu64 " is no multiple of %" PRIu64, layer->k, group);
    return status;
}

/* weight_packed (compressed-tensors) or weight (Quark, Model Optimizer) U8 [n, k / 2], the lower half of a
 * byte first; weight_scale [n, k / 32] is e8m0. */
bool ck_is_mxfp4(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_U(8)) && is_e8m0(&layer->scales);
}

tvm_status ck_plan_mxfp4(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    layer->numbers = TVM_E8M0;
    return plan_pairs(c, layer, 32, diags);
}

/* weight_packed or weight U8 [n, k / 2], weight_scale F8_E4M3 [n, k / 16] times a scale of all:
 * weight_scale_2, or the reciprocal of weight_global_scale. */
bool ck_is_nvfp4(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_U(8)) && ck_has_type(&layer->scales, TVM_FLOAT(8, 4, 3));
}

tvm_status ck_plan_nvfp4(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor times = ck_claim(c, layer->name, ".weight_scale_2"),
              over = ck_claim(c, layer->name, ".weight_global_scale");
    const ck_tensor *global = times.data ? &times : &over;
    layer->numbers = TVM_FLOAT(8, 4, 3);
    tvm_status status = plan_pairs(c, layer, 16, diags);
    if (status) return status;
    if (!ck_has_type(global, TVM_F32) || ck_count(global) != 1 || (times.data && over.data))
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "weight_scale_2 or weight_global_scale, one F32, is expected");
    /* the quotient is f32, as the programs that run these models compute it */
    double value = ck_number(global, TVM_F32, 0);
    layer->multiplier = times.data ? value : (double)(1 / (float)value);
    layer->has_multiplier = true;
    if (!isfinite(layer->multiplier) || !(layer->multiplier > 0))
        return ck_refuse(c, layer, TVM_FORMAT, diags, "the scale of all weights is %g", value);
    return TVM_OK;
}
