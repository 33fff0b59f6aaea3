/* What tvm-pack has written itself, as tilusvm-weights(5) says: the layers of a model, and a matrix by
 * itself, whose layer is called "linear". */
#include "checkpoint_impl.h"
#include "pack_vector.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

bool ck_is_ours(const ck_layer *layer) {
    const ck_tensor *scales = &layer->scales;
    return ck_has_type(&layer->codes, TVM_U(8)) &&
           (ck_is_scale(scales) || ck_has_type(scales, TVM_U(8)) || ck_has_type(scales, TVM_FLOAT(8, 4, 3)) ||
            ck_has_type(scales, TVM_E8M0));
}

/* "e,k,n" or "k,n" */
static bool read_shape(const char *text, ck_layer *layer) {
    uint64_t extents[3];
    char rest;
    int count = text ? sscanf(text, "%" SCNu64 ",%" SCNu64 ",%" SCNu64 "%c", &extents[0], &extents[1],
                              &extents[2], &rest)
                     : 0;
    if (count != 2 && count != 3) return false;
    layer->stacked = count == 3;
    layer->count = count == 3 ? extents[0] : 1;
    layer->k = extents[count - 2];
    layer->n = extents[count - 1];
    return layer->count && layer->k && layer->n && layer->k < INT32_MAX && layer->n < INT32_MAX &&
           layer->count < INT32_MAX;
}

static bool read_type(const char *text, ck_layer *layer) {
    bool table = text && (!strcmp(text, "nf4") || !strcmp(text, "fp4"));
    layer->type = TVM_U(4);
    layer->table = !table ? NULL : text[0] == 'n' ? "nf4" : "fp4";
    if (!table && (!text || !tvm_dtype_parse(text, strlen(text), &layer->type))) return false;
    layer->bits = layer->type.bits;
    return layer->bits <= 8 && layer->type.kind != TVM_KIND_BOOL;
}

/* From the metadata, which are an object of texts. */
static tvm_status read_description(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    const tvm_safetensors *tensors = &c->files[layer->file].tensors;
    char key[512];
    snprintf(key, sizeof key, "%.500s.packed", layer->name);
    const char *text = tvm_safetensors_metadata(tensors, key),
               *format = tvm_safetensors_metadata(tensors, "format");
    json_t *said = text ? json_loads(text, 0, NULL) : NULL;
    if (!text && format && !strcmp(format, "tilusvm-weights")) {
        said = json_object();
        for (size_t i = 0; i < tensors->metadata_count; i++)
            json_object_set_new(said, tensors->metadata[2 * i], json_string(tensors->metadata[2 * i + 1]));
    }
    const char *group = json_string_value(json_object_get(said, "group")),
               *scale = json_string_value(json_object_get(said, "scale")),
               *packing = json_string_value(json_object_get(said, "packing"));
    bool rows = !packing || !strcmp(packing, "rows");
    layer->group = group ? strtoull(group, NULL, 10) : 0;
    bool good = read_shape(json_string_value(json_object_get(said, "shape")), layer) &&
                read_type(json_string_value(json_object_get(said, "type")), layer) && layer->group &&
                layer->k % layer->group == 0;
    layer->numbers = layer->scales.header->type;
    if (ck_has_type(&layer->scales, TVM_U(8)) && scale && !strcmp(scale, "e8m0")) layer->numbers = TVM_E8M0;
    good = good && (ck_is_scale(&layer->scales) || ck_is_narrow(layer->numbers));
    json_decref(said);
    if (!good) return ck_refuse(c, layer, TVM_FORMAT, diags, "the metadata do not describe it");
    if (!rows)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "its codes are laid out for a program; pack the weights without --layout");
    return TVM_OK;
}

/* order[i] is the input of row i; stored rows are inputs: place_of[order[i]] = i. */
static tvm_status read_order(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    const ck_tensor *tensor = &layer->order_tensor;
    if (!tensor->data) return TVM_OK;
    if (!ck_has_type(tensor, TVM_I(32)) || tensor->header->rank != 1 || ck_count(tensor) != layer->k)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "order is not I32 [%" PRIu64 "]", layer->k);
    layer->order = calloc(layer->k, sizeof *layer->order);
    layer->place_of = calloc(layer->k, sizeof *layer->place_of);
    if (!layer->order || !layer->place_of) return tvm_diag_no_memory(diags);
    for (uint64_t i = 0; i < layer->k; i++) {
        uint32_t input = ck_word_at(tensor->data, i);
        if (input >= layer->k || layer->place_of[input] || (i && input == layer->order[0]))
            return ck_refuse(c, layer, TVM_FORMAT, diags, "order is no permutation of the inputs");
        layer->order[i] = input;
        layer->place_of[input] = (uint32_t)i;
    }
    return TVM_OK;
}

/* Is the tensor [count, rows, columns], without the first for a matrix? */
static tvm_status need(const checkpoint *c, const ck_layer *layer, const char *what, const ck_tensor *tensor,
                       uint64_t rows, uint64_t columns, tvm_diags *diags) {
    const tvm_safetensor *header = tensor->header;
    char text[TVM_SAFETENSORS_TEXT_MAX];
    if (!tensor->data) return ck_refuse(c, layer, TVM_FORMAT, diags, "it has no %s", what);
    if (header->rank == 2u + layer->stacked && ck_extent(tensor, 0) == columns &&
        ck_extent(tensor, 1) == rows && ck_extent(tensor, 2) == layer->count)
        return TVM_OK;
    return ck_refuse(c, layer, TVM_FORMAT, diags, "%s is %s; [%" PRIu64 ", %" PRIu64 "] is expected", what,
                     tvm_safetensor_text(header, text), rows, columns);
}

/* Beside scales of 8 bits it stays what it is; halves are multiplied by it, and rounded anew. */
static void take_multiplier(ck_layer *layer) {
    if (!ck_is_narrow(layer->numbers)) {
        layer->numbers = TVM_F32;
        return;
    }
    layer->multiplier = ck_number(&layer->values, TVM_F32, 0);
    layer->has_multiplier = true;
    layer->values = (ck_tensor){0};
}

tvm_status ck_plan_ours(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    layer->zeros = ck_claim(c, layer->name, ".zeros");
    layer->order_tensor = ck_claim(c, layer->name, ".order");
    layer->values = ck_claim(c, layer->name, ".multiplier");
    tvm_status status = read_description(c, layer, diags);
    if (status) return status;
    layer->own_zeros = layer->zeros.data != NULL;
    layer->pitch = pack_row_columns(layer->type, layer->n) * layer->bits / 8;
    uint64_t groups = layer->k / layer->group;
    status = need(c, layer, "packed", &layer->codes, layer->k, layer->pitch, diags);
    if (!status) status = need(c, layer, "scales", &layer->scales, groups, layer->n, diags);
    if (!status && layer->own_zeros) status = need(c, layer, "zeros", &layer->zeros, groups, layer->n, diags);
    if (!status && layer->own_zeros && (!ck_is_scale(&layer->zeros) || layer->type.kind != TVM_KIND_UINT))
        status =
            ck_refuse(c, layer, TVM_FORMAT, diags, "zeros are no numbers, or not those of an unsigned type");
    if (!status && layer->values.data &&
        (!ck_has_type(&layer->values, TVM_F32) || ck_count(&layer->values) != 1))
        status = ck_refuse(c, layer, TVM_FORMAT, diags, "multiplier is not F32 [1]");
    if (!status && layer->values.data) take_multiplier(layer);
    return status ? status : read_order(c, layer, diags);
}

void ck_take_ours(const ck_layer *layer, uint64_t index, const uint64_t *rows, uint64_t count,
                  uint64_t column, uint64_t columns, uint8_t *to, size_t stride) {
    for (uint64_t i = 0; i < count; i++, to += stride) {
        uint64_t row = index * layer->k + (layer->place_of ? layer->place_of[rows[i]] : rows[i]);
        const uint8_t *string = layer->codes.data + row * layer->pitch;
        for (uint64_t j = 0; j < columns; j++)
            to[j] = (uint8_t)ck_string_at(string, (column + j) * layer->bits, layer->bits);
    }
}

double ck_scale_ours(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t place = (index * (layer->k / layer->group) + group) * layer->n + column;
    tvm_dtype type = ck_is_narrow(layer->numbers) ? layer->numbers : layer->scales.header->type;
    double scale = ck_number(&layer->scales, type, place);
    return layer->values.data ? scale * ck_number(&layer->values, TVM_F32, 0) : scale;
}

double ck_zero_ours(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t place = (index * (layer->k / layer->group) + group) * layer->n + column;
    return ck_number(&layer->zeros, layer->zeros.header->type, place);
}
