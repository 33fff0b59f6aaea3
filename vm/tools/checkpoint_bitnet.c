/* What BitNet models have of a layer (transformers, integrations/bitnet.py): X.weight U8 [n / 4, k], of whose
 * byte [r, i] bits 2j and 2j + 1 are the weight of output j * n / 4 + r and input i, plus one: 0, 1 and 2 for
 * -1, 0 and 1. X.weight_scale is one float. By the configuration's linear_class weights are multiplied by it
 * (autobitlinear) or divided (bitlinear, also where it says nothing). They become codes of u2, whose zero
 * point is the middle, 2, with scales of 1 and the scale as the multiplier of all values. */
#include "checkpoint_impl.h"

#include <inttypes.h>
#include <math.h>

enum { VALUES = 4 /* of a byte */ };

bool ck_is_bitnet(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_U(8)) && ck_is_scale(&layer->scales) &&
           ck_count(&layer->scales) == 1;
}

static tvm_status check_codes(const checkpoint *c, const ck_layer *layer, tvm_diags *diags) {
    for (uint64_t i = 0; i < layer->codes.header->bytes; i++) {
        unsigned byte = layer->codes.data[i];
        if (byte & byte >> 1 & 0x55)
            return ck_refuse(c, layer, TVM_FORMAT, diags,
                             "weight[%" PRIu64 ", %" PRIu64
                             "] is %u, which has a code of 3; those of BitNet are 0 to 2",
                             i / layer->k, i % layer->k, byte);
    }
    return TVM_OK;
}

tvm_status ck_plan_bitnet(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    if (strcmp(c->config.method, "bitnet") && strcmp(c->options->from, "bitnet"))
        return ck_refuse(
            c, layer, TVM_UNSUPPORTED, diags,
            "it has the tensors of BitNet, but quant_method is not bitnet; --from=bitnet reads it so");
    if (layer->codes.header->rank != 2)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "weight has %u dimensions; [n / 4, k] is expected",
                         layer->codes.header->rank);
    double scale = ck_number(&layer->scales, layer->scales.header->type, 0);
    layer->n = VALUES * ck_extent(&layer->codes, 1);
    layer->k = layer->group = layer->block_rows = ck_extent(&layer->codes, 0);
    layer->block_columns = layer->n;
    layer->bits = 2;
    layer->type = TVM_U(2);
    layer->numbers = layer->scales.header->type;
    layer->multiplier = strcmp(c->config.linear_class, "autobitlinear") ? (double)(1 / (float)scale) : scale;
    layer->has_multiplier = true;
    if (!isfinite(layer->multiplier) || !(layer->multiplier > 0))
        return ck_refuse(c, layer, TVM_FORMAT, diags, "weight_scale is %g", scale);
    return check_codes(c, layer, diags);
}

void ck_take_bitnet(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                    uint64_t column, uint64_t columns, uint8_t *to, size_t stride) {
    (void)index; /* there are no stacks */
    uint64_t quarter = layer->n / VALUES;
    for (uint64_t j = 0; j < columns; j++) {
        uint64_t output = column + j;
        const uint8_t *bytes = layer->codes.data + output % quarter * layer->k;
        for (uint64_t i = 0; i < count; i++)
            to[i * stride + j] = (uint8_t)((bytes[rows[i]] >> 2 * (output / quarter) & 3) + 1);
    }
}

double ck_scale_bitnet(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)layer, (void)index, (void)group, (void)column;
    return 1;
}
