/* What MLX writes of a layer (mlx.nn.QuantizedLinear, mlx/ops.cpp: quantize): X.weight U32 [n, k * bits /
 * 32], of each row a string of codes, low bits first; X.scales and X.biases [n, groups], a weight is code *
 * scale + bias. Of the mode mxfp4 there are no biases, and scales are U8, powers of two. The configuration's
 * member "quantization" has bits and group_size, of all layers or by a layer's name. */
#include "checkpoint_impl.h"

#include <inttypes.h>

bool ck_is_mlx(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_U(32));
}

/* The width and the group that the configuration has, of which there are so many words and groups a row. */
static tvm_status find_width(const checkpoint *c, ck_layer *layer, uint64_t words, uint64_t groups,
                             tvm_diags *diags) {
    static const unsigned widths[] = {2, 3, 4, 5, 6, 8};
    unsigned found = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (unsigned log = 4; log <= 7; log++) {
            unsigned bits = widths[i], group = 1u << log;
            if (!(c->config.widths >> bits & 1) || !(c->config.groups >> log & 1)) continue;
            if (groups > UINT64_MAX / 1024 || words * 32 != groups * group * bits) continue;
            layer->bits = bits;
            layer->k = groups * group;
            found++;
        }
    if (found == 1) return TVM_OK;
    return ck_refuse(c, layer, found ? TVM_UNSUPPORTED : TVM_FORMAT, diags,
                     "%" PRIu64 " words and %" PRIu64 " groups a row are %s; the bits and group_size of the "
                     "configuration's quantization tell",
                     words, groups,
                     found ? "codes of more than one width" : "no codes of a width that it has");
}

static bool is_embedding(const char *name) {
    static const char end[] = "embed_tokens";
    size_t length = strlen(name);
    return length >= sizeof end - 1 && !strcmp(name + length - (sizeof end - 1), end);
}

tvm_status ck_plan_mlx(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    uint64_t words = ck_extent(&layer->codes, 0), groups = ck_extent(&layer->scales, 0);
    layer->zeros = ck_claim(c, layer->name, ".biases");
    layer->n = ck_extent(&layer->codes, 1);
    layer->pitch = 4 * words;
    layer->dense = true;
    layer->plain = is_embedding(layer->name);
    if (layer->codes.header->rank != 2)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "stacks of matrices are not read; convert the model of one "
                         "matrix for each expert");
    tvm_status status = find_width(c, layer, words, groups, diags);
    if (status) return status;
    bool power = !layer->zeros.data && ck_has_type(&layer->scales, TVM_U(8));
    if (power && (layer->bits != 4 || groups * 32 != layer->k))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "of the modes without biases only mxfp4 is read; convert the "
                         "model in mode affine");
    layer->type = power ? TVM_FLOAT(4, 2, 1) : TVM_U(layer->bits);
    layer->numbers = power ? TVM_E8M0 : layer->scales.header->type;
    layer->own_zeros = layer->has_offsets = !power;
    status = ck_set_blocks(c, layer, diags);
    if (!status)
        status = ck_need(c, layer, "scales", &layer->scales, power ? TVM_U(8) : (tvm_dtype){0}, layer->n,
                         groups, diags);
    if (!status && !power)
        status = ck_need(c, layer, "biases", &layer->zeros, (tvm_dtype){0}, layer->n, groups, diags);
    return status;
}

double ck_offset_mlx(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index;
    return ck_number(&layer->zeros, layer->zeros.header->type, column * (layer->k / layer->group) + group);
}
