/* The table of formats. Layouts are those that the programs which write them document or show in their
 * sources: AutoGPTQ and GPTQModel (nn_modules/qlinear), AutoAWQ (modules/linear/gemm), compressed-tensors
 * (compressors/quantized_compressors), the OCP microscaling formats 1.0 as in gpt-oss, NVIDIA Model
 * Optimizer's NVFP4 export, DeepSeek-V3 (inference/fp8_cast_bf16), bitsandbytes (functional.QuantState). */
#include "checkpoint_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

tvm_status ck_refuse(const checkpoint *c, const ck_layer *layer, tvm_status status, tvm_diags *diags,
                     const char *format, ...) {
    char text[512];
    tvm_place place = {.file = c->files[layer->file].path};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return tvm_diag_add(diags, status, &place, NULL, "layer '%.120s' (%s): %s", layer->name,
                        layer->format->name, text);
}

static bool is_half(const ck_tensor *tensor) {
    return ck_has_type(tensor, TVM_F16) || ck_has_type(tensor, TVM_BF16);
}

static uint64_t extent(const ck_tensor *tensor, unsigned from_end) {
    return tensor->data && tensor->header->rank > from_end
               ? tensor->header->shape[tensor->header->rank - 1 - from_end]
               : 1;
}

/* Is the tensor a matrix of `rows` by `columns`, of one of the types? (TVM_KIND_NONE: that of any scale.) */
static tvm_status need(const checkpoint *c, const ck_layer *layer, const char *what, const ck_tensor *tensor,
                       tvm_dtype type, uint64_t rows, uint64_t columns, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (!tensor->data) return ck_refuse(c, layer, TVM_FORMAT, diags, "it has no %s", what);
    bool typed = type.kind == TVM_KIND_NONE ? is_half(tensor) || ck_has_type(tensor, TVM_F32)
                                            : ck_has_type(tensor, type);
    if (typed && tensor->header->rank == 2 && extent(tensor, 1) == rows && extent(tensor, 0) == columns)
        return TVM_OK;
    const char *name = type.kind == TVM_KIND_NONE ? "F16, BF16 or F32" : tvm_safetensors_type(type);
    return ck_refuse(c, layer, TVM_FORMAT, diags, "%s is %s; %s [%" PRIu64 ", %" PRIu64 "] is expected", what,
                     tvm_safetensor_text(tensor->header, text), name, rows, columns);
}

/* ---- numbers in memory ---- */

/* A number of a tensor of scales. */
static double scale_at(const ck_tensor *tensor, uint64_t index) {
    tvm_dtype type = tensor->header->type;
    uint16_t half;
    if (type.bits == 32) return (double)tvm_f32_from_bits(ck_word_at(tensor->data, index));
    if (type.bits != 16) return tvm_decode(type, tensor->data[index]);
    memcpy(&half, tensor->data + 2 * index, sizeof half);
    return (double)(type.exponent == 5 ? tvm_f16_to_f32(half) : tvm_bf16_to_f32(half));
}

/* ---- groups ---- */

/* Groups of rows as they are scaled, from the number of groups. */
static tvm_status set_group(const checkpoint *c, ck_layer *layer, uint64_t groups, tvm_diags *diags) {
    if (!groups || !layer->k || layer->k % groups)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "%" PRIu64 " rows do not make %" PRIu64 " equal groups", layer->k, groups);
    layer->group = layer->k / groups;
    return TVM_OK;
}

/* Rows in the order of their groups: order, unless they stand so. */
static tvm_status set_order(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    const ck_tensor *tensor = &layer->order_tensor;
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (!tensor->data || !layer->k) return TVM_OK;
    if (!ck_has_type(tensor, TVM_I(32)) || tensor->header->rank != 1 || extent(tensor, 0) != layer->k)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "g_idx is %s; I32 [%" PRIu64 "] is expected",
                         tvm_safetensor_text(tensor->header, text), layer->k);
    /* what compressed-tensors leaves in it where rows are not moved */
    if (ck_word_at(tensor->data, 0) == UINT32_MAX) return TVM_OK;
    uint64_t groups = layer->k / layer->group;
    uint32_t *order = calloc(layer->k, sizeof *order);
    uint64_t *filled = calloc(groups, sizeof *filled);
    tvm_status status = order && filled ? TVM_OK : tvm_diag_no_memory(diags);
    bool moved = false;
    for (uint64_t i = 0; !status && i < layer->k; i++) {
        uint32_t group = ck_word_at(tensor->data, i);
        if (group >= groups)
            status = ck_refuse(c, layer, TVM_FORMAT, diags,
                               "g_idx[%" PRIu64 "] is %" PRId32 "; there are %" PRIu64 " groups", i,
                               (int32_t)group, groups);
        else if (filled[group] == layer->group)
            status = ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                               "g_idx gives group %" PRIu32 " more rows than %" PRIu64
                               "; groups of one size are expected",
                               group, layer->group);
        else
            order[group * layer->group + filled[group]++] = (uint32_t)i;
        moved = moved || group != i / layer->group;
    }
    free(filled);
    if (status || !moved)
        free(order);
    else
        layer->order = order;
    return status;
}

static bool any_zero_off_middle(const ck_layer *layer) {
    for (uint64_t g = 0; g < layer->k / layer->group; g++)
        for (uint64_t j = 0; j < layer->n; j++)
            if (layer->format->zero(layer, 0, g, j) != 1u << (layer->bits - 1)) return true;
    return false;
}

/* ---- GPTQ ---- */

/* qweight I32 [k * bits / 32, n]: of a column, the words are a string of codes; qzeros I32 [groups, n * bits
 * / 32]: so are those of a row; scales [groups, n]; g_idx I32 [k], the group of each row. */
static bool is_gptq(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".scales");
    return ck_has_type(&layer->codes, TVM_I(32)) && scales.data &&
           extent(&scales, 0) == extent(&layer->codes, 0);
}

/* From the zero points' columns, where there are some. */
static unsigned gptq_bits(const checkpoint *c, const ck_layer *layer) {
    for (unsigned bits = 2; layer->zeros.data && bits <= 8; bits++)
        if (layer->n && extent(&layer->zeros, 0) * 32 == layer->n * bits) return bits;
    return layer->zeros.data ? 0 : c->config.bits;
}

static tvm_status plan_gptq(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    layer->scales = ck_find(c, layer->name, ".scales");
    layer->zeros = ck_find(c, layer->name, ".qzeros");
    layer->order_tensor = ck_find(c, layer->name, ".g_idx");
    layer->n = extent(&layer->codes, 0);
    layer->plus_one = !strcmp(layer->format->name, "gptq") && strcmp(c->config.version, "gptq_v2");
    layer->bits = gptq_bits(c, layer);
    if (layer->bits != 2 && layer->bits != 3 && layer->bits != 4 && layer->bits != 8)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "codes of 2, 3, 4 or 8 bits are known; qzeros or the configuration tell");
    layer->k = extent(&layer->codes, 1) * 32 / layer->bits;
    layer->type = TVM_U(layer->bits);
    uint64_t groups = extent(&layer->scales, 1);
    tvm_status status =
        need(c, layer, "qweight", &layer->codes, TVM_I(32), layer->k * layer->bits / 32, layer->n, diags);
    if (!status && extent(&layer->codes, 1) * 32 % layer->bits)
        status = ck_refuse(c, layer, TVM_FORMAT, diags, "the words of qweight are no whole number of codes");
    if (!status) status = set_group(c, layer, groups, diags);
    if (!status) status = need(c, layer, "scales", &layer->scales, (tvm_dtype){0}, groups, layer->n, diags);
    if (!status && layer->zeros.data)
        status =
            need(c, layer, "qzeros", &layer->zeros, TVM_I(32), groups, layer->n * layer->bits / 32, diags);
    if (!status) status = set_order(c, layer, diags);
    if (!status) layer->own_zeros = layer->zeros.data && any_zero_off_middle(layer);
    return status;
}

static double scale_by_group(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    return scale_at(&layer->scales, (index * (layer->k / layer->group) + group) * layer->n + column);
}

/* Without a mask: 15 stored is a zero point of 16, as the programs that run these models read it. */
static unsigned zero_gptq(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index;
    const uint8_t *row = layer->zeros.data + group * layer->n * layer->bits / 8;
    return ck_string_at(row, column * layer->bits, layer->bits) + layer->plus_one;
}

/* ---- AWQ ---- */

/* qweight I32 [k, n / 8], a word eight columns in the order 0 2 4 6 1 3 5 7; qzeros I32 [groups, n / 8]
 * likewise; scales [groups, n]. */
static bool is_awq(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".scales");
    return ck_has_type(&layer->codes, TVM_I(32)) && scales.data &&
           extent(&scales, 0) == 8 * extent(&layer->codes, 0);
}

static tvm_status plan_awq(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    layer->scales = ck_find(c, layer->name, ".scales");
    layer->zeros = ck_find(c, layer->name, ".qzeros");
    layer->k = extent(&layer->codes, 1);
    layer->n = 8 * extent(&layer->codes, 0);
    layer->bits = 4;
    layer->type = TVM_U(4);
    if (c->config.bits && c->config.bits != 4)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "codes of %u bits are not known", c->config.bits);
    if (c->config.version[0] && strcmp(c->config.version, "gemm"))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "version '%.30s' is not known; gemm is",
                         c->config.version);
    uint64_t groups = extent(&layer->scales, 1);
    tvm_status status = need(c, layer, "qweight", &layer->codes, TVM_I(32), layer->k, layer->n / 8, diags);
    if (!status) status = set_group(c, layer, groups, diags);
    if (!status) status = need(c, layer, "scales", &layer->scales, (tvm_dtype){0}, groups, layer->n, diags);
    if (!status) status = need(c, layer, "qzeros", &layer->zeros, TVM_I(32), groups, layer->n / 8, diags);
    if (!status) layer->own_zeros = any_zero_off_middle(layer);
    return status;
}

static unsigned zero_awq(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index;
    return ck_word_at(layer->zeros.data, group * (layer->n / 8) + column / 8) >> ck_awq_shift(column) & 15;
}

/* ---- rows of codes [n, k], along k ---- */

/* One scale for all, or [n, groups]. */
static double scale_turned(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index;
    uint64_t at = column * (layer->k / layer->group) + group;
    return scale_at(&layer->scales,
                    layer->scales.header->bytes * 8 == layer->scales.header->type.bits ? 0 : at);
}

/* ---- compressed-tensors ---- */

/* pack-quantized: weight_packed I32 [n, ceil(k / (32 / bits))], codes offset by half their range;
 * weight_scale [n, groups] or [n, 1]; weight_zero_point I32 [ceil(n / (32 / bits)), groups], packed along n;
 * weight_shape I64 [2]; weight_g_idx. */
static bool is_compressed(const checkpoint *c, const ck_layer *layer) {
    (void)c;
    return ck_has_type(&layer->codes, TVM_I(32));
}

static unsigned compressed_bits(const checkpoint *c, const ck_layer *layer, uint64_t words) {
    for (unsigned bits = 8; bits >= 1; bits--) {
        uint64_t a_word = 32 / bits;
        if ((layer->k + a_word - 1) / a_word == words && (bits != 8 || c->config.bits != 7)) return bits;
    }
    return 0;
}

static tvm_status plan_compressed(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor shape = ck_find(c, layer->name, ".weight_shape");
    layer->scales = ck_find(c, layer->name, ".weight_scale");
    layer->zeros = ck_find(c, layer->name, ".weight_zero_point");
    layer->order_tensor = ck_find(c, layer->name, ".weight_g_idx");
    uint64_t words = extent(&layer->codes, 0), rows = extent(&layer->codes, 1);
    layer->n = rows;
    layer->k = words * (c->config.bits && c->config.bits <= 8 ? 32 / c->config.bits : 8);
    if (shape.data && extent(&shape, 0) == 2 &&
        (ck_has_type(&shape, TVM_I(64)) || ck_has_type(&shape, TVM_I(32)))) {
        layer->n = tvm_container_get(shape.header->type, shape.data, 0);
        layer->k = tvm_container_get(shape.header->type, shape.data, 1);
    }
    if (layer->n != rows || layer->k > words * 32)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "weight_shape does not go with weight_packed");
    layer->bits = compressed_bits(c, layer, words);
    if (!layer->bits) return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "codes of 1 to 8 bits are known");
    layer->type = TVM_U(layer->bits);
    uint64_t groups = extent(&layer->scales, 0), a_word = 32 / layer->bits;
    tvm_status status = need(c, layer, "weight_packed", &layer->codes, TVM_I(32), rows, words, diags);
    if (!status)
        status = need(c, layer, "weight_scale", &layer->scales, (tvm_dtype){0}, layer->n, groups, diags);
    if (!status) status = set_group(c, layer, groups, diags);
    if (!status && layer->zeros.data)
        status = need(c, layer, "weight_zero_point", &layer->zeros, TVM_I(32),
                      (layer->n + a_word - 1) / a_word, groups, diags);
    if (!status) status = set_order(c, layer, diags);
    if (!status) layer->own_zeros = layer->zeros.data && any_zero_off_middle(layer);
    return status;
}

static unsigned zero_compressed(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t groups = layer->k / layer->group, a_word = 32 / layer->bits;
    (void)index;
    return ck_word_at(layer->zeros.data, column / a_word * groups + group) >> column % a_word * layer->bits &
           ((1u << layer->bits) - 1);
}

/* int-quantized: weight I8 [n, k], weight_scale [n, 1] or [n, groups], and no zero points. */
static bool is_int8(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".weight_scale");
    return ck_has_type(&layer->codes, TVM_I(8)) && scales.data;
}

static tvm_status plan_bytes(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor zeros = ck_find(c, layer->name, ".weight_zero_point");
    layer->scales = ck_find(c, layer->name, ".weight_scale");
    layer->n = extent(&layer->codes, 1);
    layer->k = extent(&layer->codes, 0);
    layer->bits = 8;
    layer->type = ck_has_type(&layer->codes, TVM_I(8)) ? TVM_I(8) : TVM_FLOAT(8, 4, 3);
    tvm_status status =
        need(c, layer, "weight", &layer->codes, layer->codes.header->type, layer->n, layer->k, diags);
    uint64_t scales =
        layer->scales.data ? layer->scales.header->bytes * 8 / layer->scales.header->type.bits : 0;
    for (size_t i = 0; !status && zeros.data && i < zeros.header->bytes; i++)
        if (zeros.data[i])
            status = ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "zero points of signed codes are not known");
    if (status) return status;
    if (scales == 1 || (scales == layer->n && extent(&layer->scales, 0) <= 1)) {
        layer->group = layer->k ? layer->k : 1;
        return is_half(&layer->scales) || ck_has_type(&layer->scales, TVM_F32)
                   ? TVM_OK
                   : ck_refuse(c, layer, TVM_FORMAT, diags, "weight_scale is of type %.20s",
                               layer->scales.header->dtype);
    }
    uint64_t groups = extent(&layer->scales, 0);
    status = need(c, layer, "weight_scale", &layer->scales, (tvm_dtype){0}, layer->n, groups, diags);
    return status ? status : set_group(c, layer, groups, diags);
}

/* ---- floats of 8 bits ---- */

static bool is_fp8(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".weight_scale");
    return ck_has_type(&layer->codes, TVM_FLOAT(8, 4, 3)) && scales.data;
}

/* weight F8_E4M3 [n, k], weight_scale_inv [ceil(n / 128), ceil(k / 128)], by which weights are multiplied. */
static bool is_fp8_block(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".weight_scale_inv");
    return ck_has_type(&layer->codes, TVM_FLOAT(8, 4, 3)) && scales.data;
}

static tvm_status plan_fp8_block(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    enum { BLOCK = 128 };
    layer->scales = ck_find(c, layer->name, ".weight_scale_inv");
    layer->n = extent(&layer->codes, 1);
    layer->k = extent(&layer->codes, 0);
    layer->bits = 8;
    layer->type = TVM_FLOAT(8, 4, 3);
    layer->block_rows = layer->block_columns = BLOCK;
    tvm_status status =
        need(c, layer, "weight", &layer->codes, TVM_FLOAT(8, 4, 3), layer->n, layer->k, diags);
    if (!status)
        status = need(c, layer, "weight_scale_inv", &layer->scales, (tvm_dtype){0},
                      (layer->n + BLOCK - 1) / BLOCK, (layer->k + BLOCK - 1) / BLOCK, diags);
    /* the last block may have fewer rows: groups that divide both */
    layer->group = BLOCK;
    while (layer->k % layer->group) layer->group /= 2;
    return status;
}

static double scale_of_block(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t across = extent(&layer->scales, 0);
    (void)index;
    return scale_at(&layer->scales,
                    column / layer->block_columns * across + group * layer->group / layer->block_rows);
}

/* ---- floats of 4 bits ---- */

/* X_blocks U8 [count, n, k / 32, 16], the lower half of a byte first; X_scales U8 [count, n, k / 32] are
 * e8m0. */
static bool is_mxfp4(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, "_scales");
    return ck_has_type(&layer->codes, TVM_U(8)) && scales.data && layer->codes.header->rank >= 3 &&
           extent(&layer->codes, 0) == 16;
}

static tvm_status check_e8m0(const checkpoint *c, const ck_layer *layer, tvm_diags *diags) {
    for (uint64_t i = 0; i < layer->scales.header->bytes; i++)
        if (layer->scales.data[i] == 255)
            return ck_refuse(c, layer, TVM_FORMAT, diags, "scale %" PRIu64 " is NaN", i);
    return TVM_OK;
}

static tvm_status plan_mxfp4(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    layer->scales = ck_find(c, layer->name, "_scales");
    layer->n = extent(&layer->codes, 2);
    layer->k = extent(&layer->codes, 1) * 32;
    layer->group = 32;
    layer->bits = 4;
    layer->type = TVM_FLOAT(4, 2, 1);
    layer->stacked = layer->codes.header->rank == 4;
    layer->count = layer->stacked ? extent(&layer->codes, 3) : 1;
    if (!layer->scales.data ||
        (!ck_has_type(&layer->scales, TVM_U(8)) && !ck_has_type(&layer->scales, TVM_E8M0)) ||
        layer->codes.header->rank > 4 ||
        layer->scales.header->bytes != layer->count * layer->n * (layer->k / 32) ||
        extent(&layer->scales, 0) != layer->k / 32)
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "scales are %s; U8, one for each 32 weights, is expected",
                         layer->scales.data ? tvm_safetensor_text(layer->scales.header, text) : "not there");
    return check_e8m0(c, layer, diags);
}

static double scale_e8m0(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t groups = layer->k / layer->group;
    return ldexp(1, (int)layer->scales.data[(index * layer->n + column) * groups + group] - 127);
}

/* weight_packed or weight U8 [n, k / 2], weight_scale F8_E4M3 [n, k / 16] times a scale of all:
 * weight_scale_2, or the reciprocal of weight_global_scale. */
static bool is_nvfp4(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".weight_scale");
    return ck_has_type(&layer->codes, TVM_U(8)) && ck_has_type(&scales, TVM_FLOAT(8, 4, 3));
}

static tvm_status plan_pairs(const checkpoint *c, ck_layer *layer, uint64_t group, tvm_dtype scale,
                             tvm_diags *diags) {
    layer->scales = ck_find(c, layer->name, ".weight_scale");
    layer->n = extent(&layer->codes, 1);
    layer->k = 2 * extent(&layer->codes, 0);
    layer->group = group;
    layer->bits = 4;
    layer->type = TVM_FLOAT(4, 2, 1);
    tvm_status status = need(c, layer, "the weight", &layer->codes, TVM_U(8), layer->n, layer->k / 2, diags);
    if (!status)
        status = need(c, layer, "weight_scale", &layer->scales, scale, layer->n, layer->k / group, diags);
    if (!status && layer->k % group)
        status =
            ck_refuse(c, layer, TVM_FORMAT, diags, "%" PRIu64 " is no multiple of %" PRIu64, layer->k, group);
    return status;
}

static tvm_status plan_nvfp4(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor times = ck_find(c, layer->name, ".weight_scale_2"),
              over = ck_find(c, layer->name, ".weight_global_scale");
    const ck_tensor *global = times.data ? &times : &over;
    tvm_status status = plan_pairs(c, layer, 16, TVM_FLOAT(8, 4, 3), diags);
    if (status) return status;
    if (!ck_has_type(global, TVM_F32) || global->header->bytes != 4)
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "weight_scale_2 or weight_global_scale, one F32, is expected");
    /* the quotient is f32, as the programs that run these models compute it */
    double value = scale_at(global, 0);
    layer->multiplier = times.data ? value : (double)(1 / (float)value);
    layer->has_multiplier = true;
    if (!isfinite(layer->multiplier) || !(layer->multiplier > 0))
        return ck_refuse(c, layer, TVM_FORMAT, diags, "the scale of all weights is %g", value);
    return TVM_OK;
}

static bool is_mxfp4_rows(const checkpoint *c, const ck_layer *layer) {
    ck_tensor scales = ck_find(c, layer->name, ".weight_scale");
    return ck_has_type(&layer->codes, TVM_U(8)) &&
           (ck_has_type(&scales, TVM_U(8)) || ck_has_type(&scales, TVM_E8M0));
}

static tvm_status plan_mxfp4_rows(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor scales = ck_find(c, layer->name, ".weight_scale");
    tvm_status status = plan_pairs(c, layer, 32, scales.header->type, diags);
    return status ? status : check_e8m0(c, layer, diags);
}

/* ---- the table ---- */

static const ck_format formats[] = {
    {"gptq", ".qweight", is_gptq, plan_gptq, ck_take_gptq, scale_by_group, zero_gptq},
    {"gptq_v2", ".qweight", is_gptq, plan_gptq, ck_take_gptq, scale_by_group, zero_gptq},
    {"awq", ".qweight", is_awq, plan_awq, ck_take_awq, scale_by_group, zero_awq},
    {"compressed-tensors", ".weight_packed", is_compressed, plan_compressed, ck_take_turned, scale_turned,
     zero_compressed},
    {"compressed-tensors", ".weight", is_int8, plan_bytes, ck_take_turned, scale_turned, NULL},
    {"mxfp4", "_blocks", is_mxfp4, plan_mxfp4, ck_take_turned, scale_e8m0, NULL},
    {"mxfp4", ".weight_packed", is_mxfp4_rows, plan_mxfp4_rows, ck_take_turned, scale_e8m0, NULL},
    {"nvfp4", ".weight_packed", is_nvfp4, plan_nvfp4, ck_take_turned, scale_turned, NULL},
    {"nvfp4", ".weight", is_nvfp4, plan_nvfp4, ck_take_turned, scale_turned, NULL},
    {"fp8-block", ".weight", is_fp8_block, plan_fp8_block, ck_take_turned, scale_of_block, NULL},
    {"fp8", ".weight", is_fp8, plan_bytes, ck_take_turned, scale_turned, NULL},
    {"bitsandbytes", ".weight", ck_is_bitsandbytes, ck_plan_bitsandbytes, ck_take_turned,
     ck_scale_bitsandbytes, NULL},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* What tensors of a layer are called, that are not the model's own any more. */
static const char *const consumed[] = {".qweight",
                                       ".qzeros",
                                       ".scales",
                                       ".g_idx",
                                       ".weight_packed",
                                       ".weight",
                                       ".weight_scale",
                                       ".weight_zero_point",
                                       ".weight_shape",
                                       ".weight_g_idx",
                                       ".weight_global_scale",
                                       ".weight_scale_2",
                                       ".input_scale",
                                       ".input_zero_point",
                                       "_blocks",
                                       "_scales",
                                       ".weight_scale_inv",
                                       ".input_global_scale",
                                       ".weight.absmax",
                                       ".weight.quant_map",
                                       ".weight.nested_absmax",
                                       ".weight.nested_quant_map",
                                       ".weight.quant_state.bitsandbytes__nf4",
                                       ".weight.quant_state.bitsandbytes__fp4"};

const char *tvm_checkpoint_formats(void) {
    return "auto, gptq, gptq_v2, awq, compressed-tensors, mxfp4, nvfp4, fp8-block, fp8, bitsandbytes";
}

static bool is_wanted(const checkpoint *c, const ck_format *format) {
    return !strcmp(c->options->from, "auto") || !strcmp(c->options->from, format->name);
}

/* The length of X in a tensor's name X + suffix; 0: it has another end. */
static size_t stem(const char *name, const char *suffix) {
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && !strcmp(name + length - tail, suffix) ? length - tail : 0;
}

static int by_layer_name(const void *a, const void *b) {
    const ck_layer *x = a, *y = b;
    return strcmp(x->name, y->name);
}

bool ck_is_consumed(const checkpoint *c, const char *name) {
    char text[512];
    for (size_t i = 0; i < sizeof consumed / sizeof *consumed; i++) {
        size_t length = stem(name, consumed[i]);
        if (!length || length >= sizeof text) continue;
        memcpy(text, name, length);
        text[length] = '\0';
        ck_layer key = {.name = text};
        if (c->layer_count && bsearch(&key, c->layers, c->layer_count, sizeof key, by_layer_name))
            return true;
    }
    return false;
}

static tvm_status add_layer(checkpoint *c, const ck_tensor *tensor, tvm_diags *diags) {
    for (size_t i = 0; i < FORMATS; i++) {
        size_t length = stem(tensor->header->name, formats[i].suffix);
        if (!length || !is_wanted(c, &formats[i])) continue;
        ck_layer layer = {
            .format = &formats[i], .file = tensor->file, .codes = *tensor, .count = 1, .rescale = 1};
        layer.multiplier = 1;
        layer.name = strndup(tensor->header->name, length);
        if (!layer.name) return tvm_diag_no_memory(diags);
        if (!formats[i].matches(c, &layer)) {
            free(layer.name);
            continue;
        }
        ck_layer *layers = realloc(c->layers, (c->layer_count + 1) * sizeof *layers);
        if (!layers) {
            free(layer.name);
            return tvm_diag_no_memory(diags);
        }
        c->layers = layers;
        c->layers[c->layer_count++] = layer;
        ck_layer *added = &c->layers[c->layer_count - 1];
        tvm_status status = formats[i].plan(c, added, diags);
        if (!status && (!added->k || !added->n))
            status = ck_refuse(c, added, TVM_FORMAT, diags, "it has no weights");
        return status;
    }
    return TVM_OK;
}

/* Why there is nothing to import. */
static tvm_status name_nothing(const checkpoint *c, tvm_diags *diags) {
    tvm_place place = {.file = c->options->input};
    const char *method = c->config.method;
    if (method[0])
        return tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL,
                            "no layer of format %s is here; the configuration says '%s'; known are %s",
                            c->options->from, method, tvm_checkpoint_formats());
    return tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL, "no layer of format %s is here; known are %s",
                        c->options->from, tvm_checkpoint_formats());
}

tvm_status ck_find_layers(checkpoint *c, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < c->tensor_count; i++) status = add_layer(c, &c->tensors[i], diags);
    if (!status && !c->layer_count) status = name_nothing(c, diags);
    if (c->layer_count) qsort(c->layers, c->layer_count, sizeof *c->layers, by_layer_name);
    for (size_t i = 1; !status && i < c->layer_count; i++)
        if (!strcmp(c->layers[i].name, c->layers[i - 1].name))
            status = ck_refuse(c, &c->layers[i], TVM_FORMAT, diags, "it has two kinds of codes");
    return status;
}
