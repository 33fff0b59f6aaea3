/* GPTQ's tensors (AutoGPTQ and GPTQModel: nn_modules/qlinear, pack) and those of compressed-tensors'
 * pack-quantized (compressors), as checkpoint_integers.c reads them. Codes are unsigned ones: of a signed
 * type they are those plus half their range, with the zero point there. Rows of W are in the order of the
 * inputs, and g_idx says which group each is of. */
#include "checkpoint_export.h"
#include "pack_vector.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS = 32, COLUMNS = 1024, STRIDE = COLUMNS, TALL = 1024, NARROW = 64, GROUPS = 1024 };

/* ---- what can be written ---- */

static double zero_of(const ck_layer *layer, uint64_t group, uint64_t column) {
    if (layer->type.kind == TVM_KIND_INT) return 1u << (layer->bits - 1);
    return ck_group_at(layer, 0, group, column).zero;
}

/* Zero points are whole numbers of as many bits. */
static tvm_status check_zeros(const checkpoint *c, const ck_layer *layer, ck_plan *plan, tvm_diags *diags) {
    for (uint64_t g = 0; layer->own_zeros && g < layer->k / layer->group; g++)
        for (uint64_t j = 0; j < layer->n; j++) {
            double zero = zero_of(layer, g, j);
            if (zero == 0) plan->zero_at_0 = true;
            if (zero != floor(zero) || zero < 0 || zero >= 1u << layer->bits)
                return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                                 "the zero point of group %" PRIu64 ", column %" PRIu64
                                 " is %g; %s has whole ones from 0 to %u",
                                 g, j, zero, c->options->to, (1u << layer->bits) - 1);
        }
    return TVM_OK;
}

static tvm_status check_layer(const checkpoint *c, const ck_layer *layer, ck_plan *plan, tvm_diags *diags) {
    unsigned bits = layer->bits;
    bool gptq = plan->target == CK_GPTQ, wide = bits == 2 || bits == 4 || bits == 8 || (gptq && bits == 3);
    char type[TVM_DTYPE_NAME_MAX];
    if (layer->plain) return TVM_OK;
    if (layer->table || (layer->type.kind != TVM_KIND_UINT && layer->type.kind != TVM_KIND_INT) || !wide)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "it is of %s; %s has integers of %s bits",
                         layer->table ? layer->table : tvm_dtype_name(layer->type, type), c->options->to,
                         gptq ? "2, 3, 4 or 8" : "2, 4 or 8");
    if (layer->stacked) return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "it is a stack of matrices");
    if (layer->k % 32 || (gptq && layer->n % 32))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "[%" PRIu64 ", %" PRIu64 "] is no multiple of 32",
                         layer->k, layer->n);
    uint64_t group = layer->group == layer->k ? 0 : layer->group;
    if (plan->bits && (plan->bits != bits || plan->group != group))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "it has other widths or groups than layers before it");
    plan->bits = bits;
    plan->group = group;
    plan->own_zeros = plan->own_zeros || layer->own_zeros;
    plan->ordered = plan->ordered || layer->order;
    return check_zeros(c, layer, plan, diags);
}

tvm_status ck_plan_export(checkpoint *c, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    if (!c->options->to) return TVM_OK;
    c->plan.target = strcmp(c->options->to, "gptq") ? CK_COMPRESSED : CK_GPTQ;
    for (size_t i = 0; !status && i < c->layer_count; i++)
        status = check_layer(c, &c->layers[i], &c->plan, diags);
    return status;
}

/* ---- tensors ---- */

unsigned ck_exported_parts(const checkpoint *c, const ck_layer *layer, ck_exported parts[CK_EXPORTED_PARTS]) {
    uint64_t groups = layer->k / layer->group, words = layer->k * layer->bits / 32, a_word = 32 / layer->bits;
    tvm_dtype half = layer->scale_type, word = TVM_I(32);
    unsigned count = 0;
    if (c->plan.target == CK_GPTQ) {
        parts[count++] = (ck_exported){CK_PART_QWEIGHT, ".qweight", word, 2, {words, layer->n}};
        parts[count++] = (ck_exported){c->plan.zero_at_0 ? CK_PART_QZEROS : CK_PART_QZEROS_LESS_1,
                                       ".qzeros",
                                       word,
                                       2,
                                       {groups, layer->n * layer->bits / 32}};
        parts[count++] = (ck_exported){CK_PART_SCALES, ".scales", half, 2, {groups, layer->n}};
        parts[count++] = (ck_exported){CK_PART_G_IDX, ".g_idx", word, 1, {layer->k, 0}};
        return count;
    }
    parts[count++] = (ck_exported){CK_PART_WEIGHT_PACKED, ".weight_packed", word, 2, {layer->n, words}};
    parts[count++] = (ck_exported){CK_PART_WEIGHT_SCALE, ".weight_scale", half, 2, {layer->n, groups}};
    parts[count++] = (ck_exported){CK_PART_WEIGHT_SHAPE, ".weight_shape", TVM_I(64), 1, {2, 0}};
    if (c->plan.own_zeros)
        parts[count++] = (ck_exported){
            CK_PART_ZERO_POINT, ".weight_zero_point", word, 2, {(layer->n + a_word - 1) / a_word, groups}};
    if (layer->order) parts[count++] = (ck_exported){CK_PART_G_IDX, ".weight_g_idx", word, 1, {layer->k, 0}};
    return count;
}

/* Codes of inputs from `row` on, unsigned ones. */
static void take(const ck_layer *layer, uint64_t row, uint64_t count, uint64_t column, uint64_t columns,
                 uint8_t *codes, size_t stride) {
    uint64_t rows[ROWS];
    uint8_t half = layer->type.kind == TVM_KIND_INT ? (uint8_t)(1u << (layer->bits - 1)) : 0;
    for (uint64_t start = 0; start < count; start += ROWS) {
        uint8_t *to = codes + start * stride;
        for (uint64_t i = 0; i < ROWS; i++) rows[i] = row + start + i;
        layer->format->take(layer, 0, rows, ROWS, column, columns, to, stride);
        for (uint64_t i = 0; half && i < ROWS; i++)
            for (uint64_t j = 0; j < columns; j++) to[i * stride + j] ^= half;
    }
}

/* Adds `code` at bit `at` of a string of words. */
static void add_code(uint32_t *words, uint64_t at, unsigned bits, uint32_t code, size_t stride) {
    words[at / 32 * stride] |= code << at % 32;
    if (at % 32 + bits > 32) words[(at / 32 + 1) * stride] |= code >> (32 - at % 32);
}

/* 32 rows of codes are as many rows of words as codes have bits. */
static tvm_status write_qweight(const ck_part *part, const tvm_output *output, uint64_t number,
                                uint8_t *memory, tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    tvm_status status = TVM_OK;
    for (uint64_t column = 0; !status && column < layer->n; column += COLUMNS) {
        uint64_t columns = layer->n - column < COLUMNS ? layer->n - column : COLUMNS;
        uint32_t words[8 * COLUMNS] = {0};
        take(layer, number * ROWS, ROWS, column, columns, memory, STRIDE);
        for (uint64_t i = 0; i < ROWS; i++)
            for (uint64_t j = 0; j < columns; j++)
                add_code(words + j, i * layer->bits, layer->bits, memory[i * STRIDE + j], COLUMNS);
        for (uint64_t w = 0; !status && w < layer->bits; w++)
            status =
                tvm_output_write(output, words + w * COLUMNS, columns * 4,
                                 part->offset + ((number * layer->bits + w) * layer->n + column) * 4, diags);
    }
    return status;
}

static tvm_status write_qzeros(const ck_part *part, const tvm_output *output, uint64_t group,
                               tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    tvm_status status = TVM_OK;
    for (uint64_t column = 0; !status && column < layer->n; column += COLUMNS) {
        uint64_t columns = layer->n - column < COLUMNS ? layer->n - column : COLUMNS;
        uint32_t words[8 * COLUMNS / 32 + 1] = {0};
        for (uint64_t j = 0; j < columns; j++)
            add_code(words, j * layer->bits, layer->bits,
                     (uint32_t)zero_of(layer, group, column + j) - (part->kind == CK_PART_QZEROS_LESS_1), 1);
        status = tvm_output_write(output, words, columns * layer->bits / 8,
                                  part->offset + (group * layer->n + column) * layer->bits / 8, diags);
    }
    return status;
}

/* Rows of the file are columns of W. */
static tvm_status write_weight_packed(const ck_part *part, const tvm_output *output, uint64_t number,
                                      uint8_t *memory, tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint64_t steps = (layer->k + TALL - 1) / TALL, row = number % steps * TALL,
             column = number / steps * NARROW;
    uint64_t count = layer->k - row < TALL ? layer->k - row : TALL;
    uint64_t columns = layer->n - column < NARROW ? layer->n - column : NARROW;
    tvm_status status = TVM_OK;
    take(layer, row, count, column, columns, memory, NARROW);
    for (uint64_t j = 0; !status && j < columns; j++) {
        uint32_t words[TALL / 4] = {0};
        for (uint64_t i = 0; i < count; i++)
            add_code(words, i * layer->bits, layer->bits, memory[i * NARROW + j], 1);
        status = tvm_output_write(output, words, count * layer->bits / 8,
                                  part->offset + ((column + j) * layer->k + row) * layer->bits / 8, diags);
    }
    return status;
}

static tvm_status write_weight_scale(const ck_part *part, const tvm_output *output, uint64_t column,
                                     tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint64_t groups = layer->k / layer->group;
    tvm_status status = TVM_OK;
    for (uint64_t g = 0; !status && g < groups; g += GROUPS) {
        uint16_t scales[GROUPS], zero;
        uint64_t count = groups - g < GROUPS ? groups - g : GROUPS;
        for (uint64_t i = 0; i < count; i++) {
            ck_group group = ck_group_at(layer, 0, g + i, column);
            ck_written(layer, &group, &scales[i], &zero);
        }
        status = tvm_output_write(output, scales, count * 2, part->offset + (column * groups + g) * 2, diags);
    }
    return status;
}

/* Words of the zero points of as many columns as fit one. */
static tvm_status write_zero_point(const ck_part *part, const tvm_output *output, uint64_t word,
                                   tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint64_t groups = layer->k / layer->group, a_word = 32 / layer->bits;
    tvm_status status = TVM_OK;
    for (uint64_t g = 0; !status && g < groups; g += GROUPS) {
        uint32_t words[GROUPS] = {0};
        uint64_t count = groups - g < GROUPS ? groups - g : GROUPS;
        for (uint64_t i = 0; i < count; i++)
            for (uint64_t j = 0; j < a_word && word * a_word + j < layer->n; j++)
                words[i] |= (uint32_t)zero_of(layer, g + i, word * a_word + j) << j * layer->bits;
        status = tvm_output_write(output, words, count * 4, part->offset + (word * groups + g) * 4, diags);
    }
    return status;
}

static tvm_status write_g_idx(const ck_part *part, const tvm_output *output, uint64_t number,
                              tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint32_t groups[GROUPS];
    uint64_t row = number * GROUPS, count = layer->k - row < GROUPS ? layer->k - row : GROUPS;
    for (uint64_t i = 0; i < count; i++)
        groups[i] = layer->group_of ? layer->group_of[row + i] : (uint32_t)((row + i) / layer->group);
    return tvm_output_write(output, groups, count * 4, part->offset + row * 4, diags);
}

uint64_t ck_export_pieces(const ck_part *part) {
    const ck_layer *layer = part->layer;
    uint64_t a_word = 32 / layer->bits;
    switch (part->kind) {
    case CK_PART_QWEIGHT:
        return layer->k / ROWS;
    case CK_PART_QZEROS:
    case CK_PART_QZEROS_LESS_1:
        return layer->k / layer->group;
    case CK_PART_WEIGHT_PACKED:
        return ((layer->k + TALL - 1) / TALL) * ((layer->n + NARROW - 1) / NARROW);
    case CK_PART_WEIGHT_SCALE:
        return layer->n;
    case CK_PART_ZERO_POINT:
        return (layer->n + a_word - 1) / a_word;
    case CK_PART_G_IDX:
        return (layer->k + GROUPS - 1) / GROUPS;
    default:
        return 1;
    }
}

size_t ck_export_memory(const ck_part *part) {
    if (part->kind == CK_PART_QWEIGHT) return ROWS * STRIDE;
    return part->kind == CK_PART_WEIGHT_PACKED ? TALL * NARROW : 0;
}

tvm_status ck_write_exported(const ck_part *part, const tvm_output *output, uint64_t number, uint8_t *memory,
                             tvm_diags *diags) {
    int64_t shape[2] = {(int64_t)part->layer->n, (int64_t)part->layer->k};
    switch (part->kind) {
    case CK_PART_QWEIGHT:
        return write_qweight(part, output, number, memory, diags);
    case CK_PART_QZEROS:
    case CK_PART_QZEROS_LESS_1:
        return write_qzeros(part, output, number, diags);
    case CK_PART_WEIGHT_PACKED:
        return write_weight_packed(part, output, number, memory, diags);
    case CK_PART_WEIGHT_SCALE:
        return write_weight_scale(part, output, number, diags);
    case CK_PART_ZERO_POINT:
        return write_zero_point(part, output, number, diags);
    case CK_PART_G_IDX:
        return write_g_idx(part, output, number, diags);
    default:
        return tvm_output_write(output, shape, sizeof shape, part->offset, diags);
    }
}

/* ---- the configuration ---- */

/* Modules with a matrix that is not quantized. */
static json_t *ignored(const checkpoint *c) {
    static const char end[] = ".weight";
    json_t *names = json_array();
    for (size_t i = 0; i < c->tensor_count; i++) {
        const tvm_safetensor *header = c->tensors[i].header;
        size_t length = strlen(header->name), tail = sizeof end - 1;
        if (c->claimed[i] || header->rank != 2 || length <= tail || strcmp(header->name + length - tail, end))
            continue;
        json_array_append_new(names, json_stringn(header->name, length - tail));
    }
    return names;
}

void *ck_export_config(const checkpoint *c) {
    const ck_plan *plan = &c->plan;
    json_int_t bits = plan->bits, group = plan->group ? (json_int_t)plan->group : -1;
    if (plan->target == CK_GPTQ)
        return json_pack("{s:s, s:I, s:I, s:b, s:b, s:s, s:b}", "quant_method", "gptq", "bits", bits,
                         "group_size", group, "desc_act", (int)plan->ordered, "sym", (int)!plan->own_zeros,
                         "checkpoint_format", plan->zero_at_0 ? "gptq_v2" : "gptq", "lm_head", 0);
    json_t *weights =
        json_pack("{s:I, s:s, s:b, s:s, s:b}", "num_bits", bits, "type", "int", "symmetric",
                  (int)!plan->own_zeros, "strategy", plan->group ? "group" : "channel", "dynamic", 0);
    if (plan->group) json_object_set_new(weights, "group_size", json_integer(group));
    if (plan->ordered) json_object_set_new(weights, "actorder", json_string("group"));
    return json_pack("{s:s, s:s, s:s, s:o, s:{s:{s:[s], s:o, s:n, s:n}}}", "quant_method",
                     "compressed-tensors", "format", "pack-quantized", "quantization_status", "compressed",
                     "ignore", ignored(c), "config_groups", "group_0", "targets", "Linear", "weights",
                     weights, "input_activations", "output_activations");
}
