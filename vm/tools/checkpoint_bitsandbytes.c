/* What bitsandbytes writes of a layer of 4 bits (functional.QuantState.as_dict, packed):
 *
 *   X.weight, n * k / 2 bytes: the codes of W transposed, row after row, the first of two in the upper half.
 * They are U8 [.., 1], or elements of another quant_storage, such as BF16, that are those bytes.
 *   X.weight.quant_map F32 [16]: what the codes mean, nf4 or fp4
 *   X.weight.absmax F32 [n * k / blocksize]: the scales of as many codes that follow each other; or U8, with
 *   X.weight.nested_absmax F32, nested_quant_map F32 [256]: and scales, and what their codes mean
 *   X.weight.quant_state.bitsandbytes__nf4, or __fp4, U8: a JSON object of quant_type, blocksize, shape [n,
 * k], and of nested scales nested_blocksize and nested_offset.
 *
 * And of a layer of 8 bits (nn.Linear8bitLt): X.weight I8 [n, k], X.SCB F32 [n], the largest magnitude of
 * each column of W, which the code 127 stands for, and X.weight_format U8, 0 of codes in rows. */
#include "checkpoint_impl.h"
#include "code_tables.h"

#include <inttypes.h>
#include <jansson.h>

static float table_value(bool nf4, unsigned code) {
    return (float)(nf4 ? NF4 : FP4)[code];
}

double ck_table_value(const char *table, unsigned code) {
    return (double)table_value(!strcmp(table, "nf4"), code);
}

static float f32_at(const ck_tensor *tensor, uint64_t index) {
    return tvm_f32_from_bits(ck_word_at(tensor->data, index));
}

bool ck_is_bitsandbytes(const ck_layer *layer) {
    return layer->codes.header->type.kind != TVM_KIND_NONE;
}

/* The numbers of the state, which are said to be in `state`; 0 of what is not there. */
static tvm_status read_state(const checkpoint *c, ck_layer *layer, const ck_tensor *state, tvm_diags *diags) {
    json_error_t error;
    json_t *root = json_loadb((const char *)state->data, state->header->bytes, 0, &error);
    const json_t *shape = json_object_get(root, "shape");
    json_int_t n = json_integer_value(json_array_get(shape, 0)),
               k = json_integer_value(json_array_get(shape, 1)),
               block = json_integer_value(json_object_get(root, "blocksize")),
               outer = json_integer_value(json_object_get(root, "nested_blocksize"));
    layer->offset = (float)json_number_value(json_object_get(root, "nested_offset"));
    bool good = json_array_size(shape) == 2 && n > 0 && k > 0 && block > 0 && outer >= 0;
    if (!root) return ck_refuse(c, layer, TVM_FORMAT, diags, "its quant_state is not JSON: %s", error.text);
    json_decref(root);
    if (!good)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "its quant_state has no shape [n, k] and no blocksize");
    layer->n = (uint64_t)n, layer->k = (uint64_t)k;
    layer->group = (uint64_t)block, layer->outer_group = (uint64_t)outer;
    return TVM_OK;
}

/* Are the codes, whose count is known to be right, those of rows of whole groups? */
static tvm_status check_codes(const checkpoint *c, const ck_layer *layer, tvm_diags *diags) {
    uint64_t weights = 0;
    if (__builtin_mul_overflow(layer->n, layer->k, &weights) || layer->codes.header->bytes * 2 != weights)
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "the weight has %" PRIu64 " bytes, not two codes in each of [%" PRIu64 ", %" PRIu64
                         "]",
                         (uint64_t)layer->codes.header->bytes, layer->n, layer->k);
    if (layer->k % layer->group || layer->k % 2)
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags,
                         "rows of %" PRIu64 " weights are no whole blocks of %" PRIu64, layer->k,
                         layer->group);
    return TVM_OK;
}

static tvm_status check_scales(const checkpoint *c, const ck_layer *layer, tvm_diags *diags) {
    bool nested = ck_has_type(&layer->scales, TVM_U(8));
    uint64_t blocks = layer->n * (layer->k / layer->group);
    if ((!nested && !ck_has_type(&layer->scales, TVM_F32)) || ck_count(&layer->scales) != blocks)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "absmax is not F32 or U8 [%" PRIu64 "]", blocks);
    if (!nested) return TVM_OK;
    if (!ck_has_type(&layer->values, TVM_F32) || ck_count(&layer->values) != 256)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "nested_quant_map is not F32 [256]");
    if (!layer->outer_group || !ck_has_type(&layer->outer, TVM_F32) ||
        ck_count(&layer->outer) != (blocks + layer->outer_group - 1) / layer->outer_group)
        return ck_refuse(c, layer, TVM_FORMAT, diags,
                         "nested_absmax is not F32, one for each nested_blocksize scales");
    return TVM_OK;
}

tvm_status ck_plan_bitsandbytes(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor nf4 = ck_claim(c, layer->name, ".weight.quant_state.bitsandbytes__nf4"),
              fp4 = ck_claim(c, layer->name, ".weight.quant_state.bitsandbytes__fp4"),
              map = ck_claim(c, layer->name, ".weight.quant_map");
    layer->values = ck_claim(c, layer->name, ".weight.nested_quant_map");
    layer->outer = ck_claim(c, layer->name, ".weight.nested_absmax");
    layer->numbers = TVM_F32;
    layer->type = TVM_U(4);
    layer->bits = 4;
    layer->upper_first = true;
    layer->table = nf4.data ? "nf4" : "fp4";
    const ck_tensor *state = nf4.data ? &nf4 : &fp4;
    if (!ck_has_type(state, TVM_U(8)))
        return ck_refuse(c, layer, TVM_FORMAT, diags, "it has no quant_state of nf4 or fp4");
    if (!ck_has_type(&map, TVM_F32) || ck_count(&map) != 16)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "quant_map is not F32 [16]");
    for (unsigned i = 0; i < 16; i++)
        if (!(f32_at(&map, i) == table_value(nf4.data != NULL, i)))
            return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "quant_map[%u] is %g; that of %s is %g", i,
                             (double)f32_at(&map, i), layer->table, (double)table_value(nf4.data != NULL, i));
    tvm_status status = read_state(c, layer, state, diags);
    layer->pitch = layer->k / 2;
    if (!status) status = check_codes(c, layer, diags);
    return status ? status : check_scales(c, layer, diags);
}

/* In f32, as bitsandbytes computes nested ones. */
double ck_scale_bitsandbytes(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    uint64_t block = column * (layer->k / layer->group) + group;
    (void)index;
    if (!ck_has_type(&layer->scales, TVM_U(8))) return (double)f32_at(&layer->scales, block);
    float value =
        f32_at(&layer->values, layer->scales.data[block]) * f32_at(&layer->outer, block / layer->outer_group);
    return (double)(value + layer->offset);
}

/* ---- 8 bits ---- */

bool ck_is_bitsandbytes_int8(const ck_layer *layer) {
    return ck_has_type(&layer->codes, TVM_I(8));
}

tvm_status ck_plan_bitsandbytes_int8(const checkpoint *c, ck_layer *layer, tvm_diags *diags) {
    ck_tensor format = ck_claim(c, layer->name, ".weight_format");
    layer->n = ck_extent(&layer->codes, 1);
    layer->k = layer->pitch = layer->group = ck_extent(&layer->codes, 0);
    layer->bits = 8;
    layer->type = TVM_I(8);
    layer->numbers = TVM_F32;
    if (format.data && (!ck_has_type(&format, TVM_U(8)) || ck_count(&format) != 1 || format.data[0]))
        return ck_refuse(c, layer, TVM_UNSUPPORTED, diags, "its weight_format is not 0, of codes in rows");
    if (!ck_has_type(&layer->scales, TVM_F32) || ck_count(&layer->scales) != layer->n)
        return ck_refuse(c, layer, TVM_FORMAT, diags, "SCB is not F32 [%" PRIu64 "]", layer->n);
    return ck_need(c, layer, "weight", &layer->codes, TVM_I(8), layer->n, layer->k, diags);
}

double ck_scale_bitsandbytes_int8(const ck_layer *layer, uint64_t index, uint64_t group, uint64_t column) {
    (void)index, (void)group;
    return (double)f32_at(&layer->scales, column) / 127;
}
