/* The table of formats, and what their layers share. Layouts are those that the programs which write them
 * document or show in their sources: AutoGPTQ and GPTQModel (nn_modules/qlinear), AutoAWQ
 * (modules/linear/gemm), compressed-tensors (compressors), the OCP microscaling formats 1.0 as in gpt-oss and
 * Quark, NVIDIA Model Optimizer's export (torch/export/quant_utils), DeepSeek-V3 (inference/fp8_cast_bf16),
 * bitsandbytes (functional.QuantState, nn.Linear8bitLt), transformers (integrations/bitnet). */
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

/* ---- tensors ---- */

bool ck_is_scale(const ck_tensor *tensor) {
    return ck_has_type(tensor, TVM_F16) || ck_has_type(tensor, TVM_BF16) || ck_has_type(tensor, TVM_F32);
}

uint64_t ck_extent(const ck_tensor *tensor, unsigned from_end) {
    return tensor->data && tensor->header->rank > from_end
               ? tensor->header->shape[tensor->header->rank - 1 - from_end]
               : 1;
}

uint64_t ck_count(const ck_tensor *tensor) {
    unsigned bits = tensor->data ? tensor->header->type.bits : 0;
    return bits ? tensor->header->bytes * 8 / bits : 0;
}

tvm_status ck_need(const checkpoint *c, const ck_layer *layer, const char *what, const ck_tensor *tensor,
                   tvm_dtype type, uint64_t rows, uint64_t columns, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (!tensor->data) return ck_refuse(c, layer, TVM_FORMAT, diags, "it has no %s", what);
    bool typed = type.kind == TVM_KIND_NONE ? ck_is_scale(tensor) : ck_has_type(tensor, type);
    if (typed && tensor->header->rank == 2 && ck_extent(tensor, 1) == rows && ck_extent(tensor, 0) == columns)
        return TVM_OK;
    const char *name = type.kind == TVM_KIND_NONE ? "F16, BF16 or F32" : tvm_safetensors_type(type);
    return ck_refuse(c, layer, TVM_FORMAT, diags, "%s is %s; %s [%" PRIu64 ", %" PRIu64 "] is expected", what,
                     tvm_safetensor_text(tensor->header, text), name, rows, columns);
}

double ck_number(const ck_tensor *tensor, tvm_dtype type, uint64_t index) {
    uint16_t half;
    if (type.bits == 32) return (double)tvm_f32_from_bits(ck_word_at(tensor->data, index));
    if (type.bits != 16) return tvm_decode(type, tensor->data[index]);
    memcpy(&half, tensor->data + 2 * index, sizeof half);
    return (double)(type.exponent == 5 ? tvm_f16_to_f32(half) : tvm_bf16_to_f32(half));
}

/* ---- groups and blocks ---- */

tvm_status ck_set_group(const checkpoint *c, ck_layer *layer, uint64_t groups, tvm_diags *diags) {
    if (!groups || !layer->k || layer->k % groups)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "%" PRIu64 " rows do not make %" PRIu64 " equal groups", layer->k, groups);
    layer->group = layer->k / groups;
    return TVM_OK;
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool covers(uint64_t blocks, uint64_t block, uint64_t extent) {
    return blocks == extent / block + (extent % block != 0);
}

tvm_status ck_set_blocks(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    enum { BLOCK = 128 };
    char text[TVM_SAFETENSORS_TEXT_MAX];
    const ck_tensor *scales = &layer->scales;
    const uint64_t *said = c->config.block;
    unsigned rank = scales->header->rank;
    uint64_t tall = said[0] ? said[0] : BLOCK, wide = said[0] ? said[1] : BLOCK;
    uint64_t rows = rank == 1 ? ck_extent(scales, 0) : ck_extent(scales, 1),
             across = rank == 1 ? 1 : ck_extent(scales, 0);
    layer->group = layer->block_rows = layer->k;
    layer->block_columns = layer->n;
    if (ck_count(scales) == 1) return TVM_OK;
    if (rank && rank <= 2 && rows == layer->n) {
        tvm_status status = ck_set_group(c, layer, across, diags);
        layer->block_rows = layer->group;
        layer->block_columns = 1;
        return status;
    }
    if (rank == 2 && covers(rows, tall, layer->n) && covers(across, wide, layer->k)) {
        layer->block_columns = tall;
        layer->block_rows = wide;
        layer->group = common_divisor(wide, layer->k); /* the last block may have fewer rows */
        return TVM_OK;
    }
    return ck_refuse(
        c, layer, TVM_FORMAT, diags,
        "its scales are %s; one, [%" PRIu64 "], [%" PRIu64 ", groups] or one for each block of %" PRIu64
        " by %" PRIu64 " of [%" PRIu64 ", %" PRIu64 "] are expected",
        tvm_safetensor_text(scales->header, text), layer->n, layer->n, tall, wide, layer->n, layer->k);
}

double ck_scale_of_block(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t across = (layer->k - 1) / layer->block_rows + 1,
             down = (layer->n - 1) / layer->block_columns + 1;
    uint64_t row = index * down + column / layer->block_columns;
    return ck_number(&layer->scales, layer->numbers, row * across + group * layer->group / layer->block_rows);
}

double ck_scale_of_group(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    return ck_number(&layer->scales, layer->numbers,
                     (index * (layer->k / layer->group) + group) * layer->n + column);
}

/* Row `row`, of group `group`, takes the next place of its group. */
static tvm_status place_row(const checkpoint *c, ck_layer *layer, uint64_t row, uint32_t group,
                            uint64_t *filled, uint32_t *order, tvm_diags *diags) {
    uint64_t groups = layer->k / layer->group;
    if (group >= groups)
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "g_idx[%" PRIu64 "] is %" PRId32 "; there are %" PRIu64 " groups", row,
                         (int32_t)group, groups);
    if (filled[group] == layer->group)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "g_idx gives group %" PRIu32 " more rows than %" PRIu64
                         "; groups of one size are expected",
                         group, layer->group);
    order[group * layer->group + filled[group]++] = (uint32_t)row;
    return TVM_OK;
}

tvm_status ck_set_order(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    const ck_tensor *tensor = &layer->order_tensor;
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (!tensor->data || !layer->k) return TVM_OK;
    if (!ck_has_type(tensor, TVM_I(32)) || tensor->header->rank != 1 || ck_count(tensor) != layer->k)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "g_idx is %s; I32 [%" PRIu64 "] is expected",
                         tvm_safetensor_text(tensor->header, text), layer->k);
    /* what compressed-tensors leaves in it where rows are not moved */
    if (ck_word_at(tensor->data, 0) == UINT32_MAX) return TVM_OK;
    uint32_t *order = calloc(layer->k, sizeof *order);
    uint64_t *filled = calloc(layer->k / layer->group, sizeof *filled);
    tvm_status status = order && filled ? TVM_OK : tvm_diag_no_memory(diags);
    bool moved = false;
    for (uint64_t i = 0; !status && i < layer->k; i++) {
        uint32_t group = ck_word_at(tensor->data, i);
        status = place_row(c, layer, i, group, filled, order, diags);
        moved = moved || group != i / layer->group;
    }
    free(filled);
    if (status || !moved)
        free(order);
    else
        layer->order = order;
    return status;
}

bool ck_any_zero_off_middle(const ck_layer *layer) {
    for (uint64_t g = 0; g < layer->k / layer->group; g++)
        for (uint64_t j = 0; j < layer->n; j++)
            if (layer->format->zero(layer, 0, g, j) != (double)(1u << (layer->bits - 1))) return true;
    return false;
}

/* pre_quant_scale [k] multiplies the inputs before the layer does (Model Optimizer's AWQ): the scales of a
 * group can do that instead where its inputs have one. Whether the products are exact is seen when they are
 * rounded. */
static tvm_status fold_input_scales(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    char text[TVM_SAFETENSORS_TEXT_MAX];
    ck_tensor inputs = ck_claim(c, layer->name, ".pre_quant_scale");
    if (!inputs.data) return TVM_OK;
    if (!ck_is_scale(&inputs) || ck_count(&inputs) != layer->k || ck_extent(&inputs, 0) != layer->k ||
        layer->stacked)
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "pre_quant_scale is %s; F16, BF16 or F32 [%" PRIu64 "] is expected",
                         tvm_safetensor_text(inputs.header, text), layer->k);
    layer->input_scales = calloc(layer->k / layer->group, sizeof *layer->input_scales);
    if (!layer->input_scales) return tvm_diag_no_memory(diags);
    for (uint64_t i = 0; i < layer->k; i++) {
        double *scale = &layer->input_scales[i / layer->group];
        uint64_t input = layer->order ? layer->order[i] : i;
        double value = ck_number(&inputs, inputs.header->type, input);
        if (i % layer->group == 0) *scale = value;
        if (!isfinite(value) || value != *scale)
            return ck_refuse(
                c, layer, TVM_UNSUPPORTED, diags,
                "pre_quant_scale[%" PRIu64 "] is %g, of another input of its group %g: the scales of "
                "the weights cannot take them over; let the program that quantizes fold them into the "
                "layer before",
                input, value, *scale);
    }
    return TVM_OK;
}

/* ---- the table ---- */

static const ck_format formats[] = {
    {"gptq", ".qweight", ".scales", ck_is_gptq, ck_plan_gptq, ck_take_gptq, ck_scale_of_group, ck_zero_gptq,
     NULL},
    {"gptq_v2", ".qweight", ".scales", ck_is_gptq, ck_plan_gptq, ck_take_gptq, ck_scale_of_group,
     ck_zero_gptq, NULL},
    {"gptq_p", ".qweight", ".scales", ck_is_gptq, ck_plan_gptq, ck_take_gptq, ck_scale_of_group, ck_zero_gptq,
     NULL},
    {"awq", ".qweight", ".scales", ck_is_awq, ck_plan_awq, ck_take_awq, ck_scale_of_group, ck_zero_awq, NULL},
    {"compressed-tensors", ".weight_packed", ".weight_scale", ck_is_compressed, ck_plan_compressed,
     ck_take_turned, ck_scale_of_block, ck_zero_compressed, NULL},
    {"compressed-tensors", ".weight", ".weight_scale", ck_is_int8, ck_plan_int8, ck_take_turned,
     ck_scale_of_block, NULL, NULL},
    {"mxfp4", "_blocks", "_scales", ck_is_mxfp4_blocks, ck_plan_mxfp4_blocks, ck_take_turned,
     ck_scale_of_block, NULL, NULL},
    {"mxfp4", ".weight_packed", ".weight_scale", ck_is_mxfp4, ck_plan_mxfp4, ck_take_turned,
     ck_scale_of_block, NULL, NULL},
    {"mxfp4", ".weight", ".weight_scale", ck_is_mxfp4, ck_plan_mxfp4, ck_take_turned, ck_scale_of_block, NULL,
     NULL},
    {"nvfp4", ".weight_packed", ".weight_scale", ck_is_nvfp4, ck_plan_nvfp4, ck_take_turned,
     ck_scale_of_block, NULL, NULL},
    {"nvfp4", ".weight", ".weight_scale", ck_is_nvfp4, ck_plan_nvfp4, ck_take_turned, ck_scale_of_block, NULL,
     NULL},
    {"mxfp8", ".weight", ".weight_scale", ck_is_mxfp8, ck_plan_fp8, ck_take_turned, ck_scale_of_block, NULL,
     NULL},
    {"fp8-block", ".weight", ".weight_scale_inv", ck_is_fp8, ck_plan_fp8, ck_take_turned, ck_scale_of_block,
     NULL, NULL},
    {"fp8", ".weight", ".weight_scale", ck_is_fp8, ck_plan_fp8, ck_take_turned, ck_scale_of_block, NULL,
     NULL},
    {"bitnet", ".weight", ".weight_scale", ck_is_bitnet, ck_plan_bitnet, ck_take_bitnet, ck_scale_bitnet,
     NULL, NULL},
    {"bitsandbytes", ".weight", ".weight.absmax", ck_is_bitsandbytes, ck_plan_bitsandbytes, ck_take_turned,
     ck_scale_bitsandbytes, NULL, NULL},
    {"bitsandbytes", ".weight", ".SCB", ck_is_bitsandbytes_int8, ck_plan_bitsandbytes_int8, ck_take_turned,
     ck_scale_bitsandbytes_int8, NULL, NULL},
    {"tilusvm", ".packed", ".scales", ck_is_ours, ck_plan_ours, ck_take_ours, ck_scale_ours, ck_zero_ours,
     NULL},
    {"mlx", ".weight", ".scales", ck_is_mlx, ck_plan_mlx, ck_take_turned, ck_scale_of_block, NULL,
     ck_offset_mlx},
    {"gguf", ".weight", ".weight", ck_is_blocks, ck_plan_blocks, ck_take_blocks, ck_scale_blocks, NULL,
     ck_offset_blocks},
};
enum { FORMATS = sizeof formats / sizeof *formats };

const char *tvm_checkpoint_formats(void) {
    return "auto, gptq, gptq_v2, gptq_p, awq, compressed-tensors, mxfp4, nvfp4, mxfp8, fp8-block, fp8, "
           "bitnet, bitsandbytes, mlx, gguf, tilusvm";
}

static bool is_wanted(const checkpoint *c, const ck_format *format) {
    if (strcmp(c->options->from, "auto")) return !strcmp(c->options->from, format->name);
    return strcmp(format->name, "tilusvm") != 0; /* ours is read where it is named */
}

/* The length of X in a tensor's name X + suffix; 0: it has another end. */
static size_t stem(const char *name, const char *suffix) {
    size_t length = strlen(name), tail = strlen(suffix);
    return length > tail && !strcmp(name + length - tail, suffix) ? length - tail : 0;
}

/* ---- formats that are not read ---- */

/* By the end of a tensor's name, and by quant_method. `lacks` ends "layer X is of NAME, ". Endings as the
 * programs write them: torchao (prototype/safetensors), HQQ (core/quantize.py: HQQLinear), ExLlamaV3
 * (doc/exl3.md), ExLlamaV2 (ext.py), AQLM (inference.py), QuIP# (lib/linear), VPTQ (layers/vqlinear.py). */
static const struct foreign {
    const char *name, *method, *end, *lacks;
} foreign[] = {
    {"torchao", "torchao", "._weight_qdata", "whose packings for its own kernels are not read"},
    {"torchao", "torchao", ".weight:_data", "whose packings for its own kernels are not read"},
    {"HQQ", "hqq", ".W_q", "whose groups need not be inputs of one output, and are not read"},
    {"EXL3", "exl3", ".trellis", "whose codes of a trellis between Hadamard transforms no kernel multiplies"},
    {"EXL2", "exl2", ".q_weight", "whose groups of different widths are not read"},
    {"AQLM", "aqlm", ".codebooks", "whose codebooks of vectors no kernel multiplies"},
    {"QuIP#", "quip", ".Qidxs", "whose lattice codes between Hadamard transforms no kernel multiplies"},
    {"VPTQ", "vptq", ".centroids.weight", "whose codebooks of vectors no kernel multiplies"},
};

static tvm_status refuse_foreign(const struct foreign *format, const char *file, const char *layer,
                                 int length, tvm_diags *diags) {
    tvm_place place = {.file = file};
    return tvm_diag_add(
        diags, TVM_UNSUPPORTED, &place, NULL,
        "%s%.*s%s is of %s, %s; quantize the model that it was made of, with tilusvm.quantize_, or let %s "
        "save its weights as floats, and quantize these",
        layer ? "layer '" : "the model", layer ? length : 0, layer ? layer : "", layer ? "'" : "",
        format->name, format->lacks, format->name);
}

static tvm_status check_foreign(const checkpoint *c, const ck_tensor *tensor, tvm_diags *diags) {
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        size_t length = stem(tensor->header->name, foreign[i].end);
        if (!length) continue;
        return refuse_foreign(&foreign[i], c->files[tensor->file].path, tensor->header->name,
                              length > 120 ? 120 : (int)length, diags);
    }
    return TVM_OK;
}

/* ---- finding layers ---- */

static tvm_status plan_layer(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_claim(c, layer->name, layer->format->codes);
    ck_claim(c, layer->name, layer->format->scales);
    if (!layer->codes.header->bytes || !layer->scales.header->bytes)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "it has no weights, or no scales");
    tvm_status status = layer->format->plan(c, layer, diags);
    return status ? status : fold_input_scales(c, layer, diags);
}

static tvm_status add_layer(checkpoint *c, const ck_tensor *tensor, tvm_diags *diags) {
    for (size_t i = 0; i < FORMATS; i++) {
        size_t length = stem(tensor->header->name, formats[i].codes);
        if (!length || !is_wanted(c, &formats[i])) continue;
        ck_layer layer = {
            .format = &formats[i], .file = tensor->file, .codes = *tensor, .count = 1, .rescale = 1};
        layer.multiplier = 1;
        layer.name = strndup(tensor->header->name, length);
        if (!layer.name) return tvm_diag_no_memory(diags);
        layer.scales = ck_find(c, layer.name, formats[i].scales);
        ck_layer *layers = NULL;
        bool matches = layer.scales.data && formats[i].matches(&layer);
        if (matches) layers = realloc(c->layers, (c->layer_count + 1) * sizeof *layers);
        if (!layers) free(layer.name);
        if (!matches) continue;
        if (!layers) return tvm_diag_no_memory(diags);
        c->layers = layers;
        c->layers[c->layer_count++] = layer;
        return plan_layer(c, &c->layers[c->layer_count - 1], diags);
    }
    return TVM_OK;
}

/* Why there is nothing to import. */
static tvm_status name_nothing(const checkpoint *c, tvm_diags *diags) {
    tvm_place place = {.file = c->options->input};
    const char *method = c->config.method;
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (!strcmp(c->options->from, "auto") && !strcmp(method, foreign[i].method))
            return refuse_foreign(&foreign[i], c->options->input, NULL, 0, diags);
    if (method[0])
        return tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL,
                            "no layer of format %s is here; the configuration says '%s'; known are %s",
                            c->options->from, method, tvm_checkpoint_formats());
    return tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL, "no layer of format %s is here; known are %s",
                        c->options->from, tvm_checkpoint_formats());
}

/* ---- tensors that no layer has claimed ---- */

static int by_layer_name(const void *a, const void *b) {
    const ck_layer *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static bool is_one_of(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* The layer of which the tensor would be a part, and what it is called there: "bias" of "X.bias". */
static const ck_layer *owner_of(const checkpoint *c, const char *name, const char **part) {
    char text[512];
    if (!c->layer_count || strlen(name) >= sizeof text) return NULL;
    strcpy(text, name);
    for (char *dot; (dot = strrchr(text, '.'));) {
        *dot = '\0';
        *part = name + (dot + 1 - text);
        ck_layer key = {.name = text};
        const ck_layer *found = bsearch(&key, c->layers, c->layer_count, sizeof key, by_layer_name);
        if (found) return found;
    }
    return NULL;
}

/* Is there a layer in the module `name`, of `length` letters? */
static bool has_layers(const checkpoint *c, const char *name, size_t length) {
    for (size_t i = 0; i < c->layer_count; i++)
        if (!strncmp(c->layers[i].name, name, length) && c->layers[i].name[length] == '.') return true;
    return false;
}

/* Scales of a cache of keys and values, which are tensors of the attention or of a projection in it. */
static bool is_of_cache(const checkpoint *c, const char *name) {
    static const char *const names[] = {"k_scale", "v_scale", "q_scale", "kv_scale"};
    const char *last = strrchr(name, '.');
    if (!last || !is_one_of(last + 1, names, sizeof names / sizeof *names)) return false;
    size_t length = (size_t)(last - name);
    if (has_layers(c, name, length)) return true;
    while (length && name[length - 1] != '.') length--;
    return length && has_layers(c, name, length - 1);
}

/* What is said of activations is not taken over, as none of it changes the weights: their scales, static or
 * bounds, and those of caches. */
static bool is_of_activations(const char *part) {
    static const char *const names[] = {"input_scale",
                                        "input_zero_point",
                                        "input_global_scale",
                                        "input_scale_ub",
                                        "activation_scale",
                                        "output_scale",
                                        "output_zero_point",
                                        "output_global_scale",
                                        "k_scale",
                                        "v_scale",
                                        "q_scale",
                                        "kv_scale",
                                        "k_bias",
                                        "v_bias"};
    return is_one_of(part, names, sizeof names / sizeof *names);
}

/* Scales of codes of no known form: the weights would be lost in the copy. */
static tvm_status check_strange(const checkpoint *c, const ck_tensor *tensor, tvm_diags *diags) {
    char name[512], text[TVM_SAFETENSORS_TEXT_MAX];
    tvm_place place = {.file = c->files[tensor->file].path};
    for (size_t i = 0; i < FORMATS && !strcmp(c->options->from, "auto"); i++) {
        size_t length = stem(tensor->header->name, formats[i].scales);
        if (!length || length >= sizeof name || !strcmp(formats[i].codes, formats[i].scales)) continue;
        memcpy(name, tensor->header->name, length);
        name[length] = '\0';
        ck_tensor codes = ck_find(c, name, formats[i].codes);
        if (codes.data && !ck_is_scale(&codes))
            return tvm_diag_add(diags, TVM_UNSUPPORTED, &place, NULL,
                                "layer '%.120s' is quantized in no known form: '%s' is %s", name,
                                formats[i].codes + 1, tvm_safetensor_text(codes.header, text));
    }
    return TVM_OK;
}

static tvm_status check_unclaimed(checkpoint *c, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < c->tensor_count; i++) {
        const char *name = c->tensors[i].header->name, *part = NULL;
        if (c->claimed[i]) continue;
        const ck_layer *owner = owner_of(c, name, &part);
        if (is_of_cache(c, name) || (owner && is_of_activations(part)))
            c->claimed[i] = 1;
        else if (owner && strcmp(part, "bias"))
            status = ck_refuse(c, owner, TVM_UNSUPPORTED, diags,
                               "it has a tensor '%.80s'; what that does to the weights is not known", part);
        else if (!owner)
            status = check_strange(c, &c->tensors[i], diags);
    }
    return status;
}

bool ck_has_codes(const checkpoint *c) {
    for (size_t i = 0; i < c->layer_count; i++)
        if (!c->layers[i].plain) return true;
    return false;
}

/* A GGUF file of which nothing is quantized is still to be given transformers' names. */
static bool has_plain_names(const checkpoint *c) {
    return c->file_count == 1 && c->files[0].changes &&
           (!strcmp(c->options->from, "auto") || !strcmp(c->options->from, "gguf"));
}

tvm_status ck_find_layers(checkpoint *c, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (size_t i = 0; !status && i < c->tensor_count; i++) status = check_foreign(c, &c->tensors[i], diags);
    for (size_t i = 0; !status && i < c->tensor_count; i++) status = add_layer(c, &c->tensors[i], diags);
    if (!status && !c->layer_count && !has_plain_names(c)) status = name_nothing(c, diags);
    if (c->layer_count) qsort(c->layers, c->layer_count, sizeof *c->layers, by_layer_name);
    for (size_t i = 1; !status && i < c->layer_count; i++)
        if (!strcmp(c->layers[i].name, c->layers[i - 1].name))
            status = ck_refuse(c, &c->layers[i], TVM_FORMAT, diags, "it has two kinds of codes");
    return status ? status : check_unclaimed(c, diags);
}
