/* Layers of integer codes: GPTQ, AWQ, compressed-tensors. */
#include "checkpoint_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- GPTQ ---- */

/* qweight I32 [k * bits / 32, n]: of a column, the words are a string of codes; qzeros I32 [groups, n * bits
 * / 32]: so are those of a row; scales [groups, n]; g_idx I32 [k], the group of each row. In the planar
 * layout (GPTQModel, docs/gptq_planar.md) each 32 codes are bits words, in planes. */
bool ck_is_gptq(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_I(32)) &&
           ck_extent(&layer->scales, 0) == ck_extent(&layer->codes, 0);
}

/* From the zero points' columns, where there are some. */
static unsigned gptq_bits(const checkpoint *c, const ck_layer *layer) {
    for (unsigned bits = 1; bits <= 8; bits++)
        if (layer->zeros.data ? ck_extent(&layer->zeros, 0) * 32 == layer->n * bits
                              : c->config.widths == 1u << bits)
            return bits;
    return 0;
}

/* What --from names, else what the configuration says; that of AutoGPTQ's first version where it says
 * nothing. */
static tvm_status gptq_layout(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    static const char *const known[] = {"gptq", "gptq_v2", "gptq_p"};
    const char *said = c->config.checkpoint_format, *name = layer->format->name;
    if (!strcmp(name, known[0]) && said[0]) name = said;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i])) continue;
        layer->plus_one = i == 0;
        layer->planar = i == 2;
        return TVM_OK;
    }
    return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                     "checkpoint_format '%.30s' is not known; gptq, gptq_v2 and gptq_p are", said);
}

static tvm_status check_gptq_bits(const checkpoint *c, const ck_layer *layer, tvm_diags *diags) {
    unsigned bits = layer->bits;
    if (layer->planar ? bits < 2 : bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "codes of %s bits are known; qzeros or the configuration tell",
                         layer->planar ? "2 to 8" : "2, 3, 4 or 8");
    if (ck_extent(&layer->codes, 1) * 32 % bits)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "the words of qweight are no whole number of codes");
    if (layer->planar && (layer->k % 32 || layer->n % 32))
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "[%" PRIu64 ", %" PRIu64 "] is no multiple of 32, as planes of bits need", layer->k,
                         layer->n);
    return TVM_OK;
}

tvm_status ck_plan_gptq(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    layer->zeros = ck_claim(c, layer->name, ".qzeros");
    layer->order_tensor = ck_claim(c, layer->name, ".g_idx");
    layer->n = ck_extent(&layer->codes, 0);
    layer->bits = gptq_bits(c, layer);
    layer->type = TVM_U(layer->bits);
    layer->numbers = layer->scales.header->type;
    layer->k = layer->bits ? ck_extent(&layer->codes, 1) * 32 / layer->bits : 0;
    uint64_t groups = ck_extent(&layer->scales, 1), rows = layer->k * layer->bits / 32;
    tvm_status status = gptq_layout(c, layer, diags);
    if (!status) status = check_gptq_bits(c, layer, diags);
    if (!status) status = ck_need(c, layer, "qweight", &layer->codes, TVM_I(32), rows, layer->n, diags);
    if (!status) status = ck_set_group(c, layer, groups, diags);
    if (!status)
        status = ck_need(c, layer, "scales", &layer->scales, (tvm_dtype){0}, groups, layer->n, diags);
    if (!status && layer->zeros.data)
        status =
            ck_need(c, layer, "qzeros", &layer->zeros, TVM_I(32), groups, layer->n * layer->bits / 32, diags);
    if (!status) status = ck_set_order(c, layer, diags);
    if (!status) layer->own_zeros = layer->zeros.data && ck_any_zero_off_middle(layer);
    return status;
}

/* Without a mask: 15 stored is a zero point of 16, as the programs that run these models read it. */
double ck_zero_gptq(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index;
    unsigned bits = layer->bits, value = 0, shift;
    const uint8_t *row = layer->zeros.data + group * layer->n * bits / 8;
    if (!layer->planar) return (double)(ck_string_at(row, column * bits, bits) + layer->plus_one);
    for (ck_plane plane = {0}; ck_next_plane(bits, &plane);) {
        uint32_t word = ck_word_at(row, ck_plane_word(bits, plane, column, &shift));
        value |= (word >> shift & ((1u << plane.width) - 1)) << plane.lowest;
    }
    return value;
}

/* ---- AWQ ---- */

/* qweight I32 [k, n / 8], a word eight columns in the order 0 2 4 6 1 3 5 7; qzeros I32 [groups, n / 8]
 * likewise; scales [groups, n]. */
bool ck_is_awq(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_I(32)) &&
           ck_extent(&layer->scales, 0) == 8 * ck_extent(&layer->codes, 0);
}

tvm_status ck_plan_awq(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    const ck_config *config = &c->config;
    const char *version = config->version[0] ? config->version : config->checkpoint_format;
    layer->zeros = ck_claim(c, layer->name, ".qzeros");
    layer->k = ck_extent(&layer->codes, 1);
    layer->n = 8 * ck_extent(&layer->codes, 0);
    layer->bits = 4;
    layer->type = TVM_U(4);
    layer->numbers = layer->scales.header->type;
    if (config->widths && !(config->widths >> 4 & 1))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "codes of 4 bits are known; the configuration says otherwise");
    if (version[0] && strcmp(version, "gemm"))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "version '%.30s' is not known; gemm is", version);
    uint64_t groups = ck_extent(&layer->scales, 1);
    tvm_status status = ck_need(c, layer, "qweight", &layer->codes, TVM_I(32), layer->k, layer->n / 8, diags);
    if (!status) status = ck_set_group(c, layer, groups, diags);
    if (!status)
        status = ck_need(c, layer, "scales", &layer->scales, (tvm_dtype){0}, groups, layer->n, diags);
    if (!status) status = ck_need(c, layer, "qzeros", &layer->zeros, TVM_I(32), groups, layer->n / 8, diags);
    if (!status) layer->own_zeros = ck_any_zero_off_middle(layer);
    return status;
}

double ck_zero_awq(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index;
    return ck_word_at(layer->zeros.data, group * (layer->n / 8) + column / 8) >> ck_awq_shift(column) & 15;
}

/* ---- compressed-tensors ---- */

/* pack-quantized: weight_packed I32 [n, words], codes offset by half their range; weight_scale [n, groups],
 * [n, 1] or one number; weight_zero_point I32 [words, groups], packed along n; weight_shape I64 [2];
 * weight_g_idx. Before version 0.20 a word had 32 / bits whole codes, since then the words are one string of
 * bits. */
bool ck_is_compressed(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_I(32));
}

static uint64_t words_of(uint64_t codes, unsigned bits, bool dense) {
    uint64_t a_word = 32 / bits;
    return dense ? (codes * bits + 31) / 32 : (codes + a_word - 1) / a_word;
}

/* The two packings are different ones, of so many codes. */
static bool packings_differ(uint64_t codes, unsigned bits) {
    return 32 % bits && codes > 32 / bits;
}

/* The version that wrote the checkpoint: 0 of words of whole codes, 1 of strings, -1 not said. */
static int dense_by_version(const ck_config *config) {
    unsigned major, minor;
    if (sscanf(config->version, "%u.%u", &major, &minor) != 2) return -1;
    return major > 0 || minor >= 20;
}

/* Which width and packing make so many words of k codes: mostly the number tells. */
static tvm_status find_packing(const checkpoint *c, ck_layer *layer, uint64_t words, tvm_diags *diags) {
    const ck_config *config = &c->config;
    int version = dense_by_version(config);
    unsigned found = 0;
    for (unsigned bits = 8; bits >= 1; bits--)
        for (int dense = 0; dense <= packings_differ(layer->k, bits); dense++) {
            if (words_of(layer->k, bits, dense) != words) continue;
            if (config->widths && !(config->widths >> bits & 1)) continue;
            if (version >= 0 && packings_differ(layer->k, bits) && dense != version) continue;
            /* without a word of the configuration: 8 bits, rather than 7 in words of 4 codes */
            if (found && !config->widths && bits == 7 && !dense && layer->bits == 8) continue;
            layer->bits = bits;
            layer->dense = dense;
            found++;
        }
    if (found == 1) return TVM_OK;
    if (found)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "%" PRIu64 " words may be %" PRIu64
                         " codes in more than one packing; num_bits and the "
                         "version in the configuration tell",
                         words, layer->k);
    return ck_refuse(c, layer, TVM_FORMAT, diags,
                     "%" PRIu64 " words a row are not %" PRIu64
                     " codes of the bits that the configuration says",
                     words, layer->k);
}

/* From weight_shape; without it from the words, where they are full of codes. */
static tvm_status find_shape(const checkpoint *c, ck_layer *layer, uint64_t words, tvm_diags *diags) {
    ck_tensor shape = ck_claim(c, layer->name, ".weight_shape");
    uint64_t rows = ck_extent(&layer->codes, 1), widths = c->config.widths;
    layer->n = rows;
    layer->k = words * (widths == 1u << 8 ? 4 : widths == 1u << 2 ? 16 : widths == 1u << 1 ? 32 : 8);
    if (!shape.data) return TVM_OK;
    bool wide = ck_has_type(&shape, TVM_I(64));
    if ((!wide && !ck_has_type(&shape, TVM_I(32))) || shape.header->rank != 1 || ck_count(&shape) != 2)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "weight_shape is not I64 [2]");
    layer->n = tvm_container_get(shape.header->type, shape.data, 0);
    layer->k = tvm_container_get(shape.header->type, shape.data, 1);
    if (layer->n != rows || !layer->k || layer->k > words * 32)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "weight_shape does not go with weight_packed");
    return TVM_OK;
}

tvm_status ck_plan_compressed(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    uint64_t words = ck_extent(&layer->codes, 0);
    layer->zeros = ck_claim(c, layer->name, ".weight_zero_point");
    layer->order_tensor = ck_claim(c, layer->name, ".weight_g_idx");
    layer->numbers = layer->scales.header->type;
    layer->pitch = 4 * words;
    tvm_status status = find_shape(c, layer, words, diags);
    if (!status) status = find_packing(c, layer, words, diags);
    if (status) return status;
    layer->type = TVM_U(layer->bits);
    status = ck_need(c, layer, "weight_packed", &layer->codes, TVM_I(32), layer->n, words, diags);
    if (!status) status = ck_set_blocks(c, layer, diags);
    if (!status && !ck_is_scale(&layer->scales))
        status = ck_refuse(c, layer, TVM_FORMAT, diags, "weight_scale is of type %.20s",
                           layer->scales.header->dtype);
    if (!status && layer->zeros.data)
        status = ck_need(c, layer, "weight_zero_point", &layer->zeros, TVM_I(32),
                         words_of(layer->n, layer->bits, layer->dense), layer->k / layer->group, diags);
    if (!status) status = ck_set_order(c, layer, diags);
    if (!status) layer->own_zeros = layer->zeros.data && ck_any_zero_off_middle(layer);
    return status;
}

double ck_zero_compressed(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t groups = layer->k / layer->group, a_word = 32 / layer->bits;
    uint64_t bit = layer->dense ? column * layer->bits : column / a_word * 32 + column % a_word * layer->bits;
    uint64_t low = ck_word_at(layer->zeros.data, bit / 32 * groups + group), high = 0;
    (void)index;
    if (bit % 32 + layer->bits > 32) high = ck_word_at(layer->zeros.data, (bit / 32 + 1) * groups + group);
    return (double)((high << 32 | low) >> bit % 32 & ((1u << layer->bits) - 1));
}

/* int-quantized: weight I8 [n, k], weight_scale for a column, a group or a block, and no zero points. */
bool ck_is_int8(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_I(8));
}

tvm_status ck_plan_int8(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor zeros = ck_claim(c, layer->name, ".weight_zero_point");
    layer->n = ck_extent(&layer->codes, 1);
    layer->k = layer->pitch = ck_extent(&layer->codes, 0);
    layer->bits = 8;
    layer->type = TVM_I(8);
    layer->numbers = layer->scales.header->type;
    tvm_status status = ck_need(c, layer, "weight", &layer->codes, TVM_I(8), layer->n, layer->k, diags);
    for (size_t i = 0; !status && zeros.data && i < zeros.header->bytes; i++)
        if (zeros.data[i])
            status = ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "zero points of signed codes are not known");
    if (!status && !ck_is_scale(&layer->scales))
        status = ck_refuse(c, layer, TVM_FORMAT, diags, "weight_scale is of type %.20s",
                           layer->scales.header->dtype);
    return status ? status : ck_set_blocks(c, layer, diags);
}
