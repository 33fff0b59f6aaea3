#include "checkpoint_export.h"
#include "pack_vector.h"

#include <math.h>
#include <string.h>

enum {
    COPY_BYTES = 4 << 20, /* of a piece */
    MOVED_BYTES = 1 << 16,
    ROWS = 64, /* of codes, of a piece */
    COLUMNS = 1024,
    STRIDE = COLUMNS + 64, /* rows of codes do not all lie in the same lines of a cache */
    GROUPS = 16,           /* of scales, of a piece */
    VALUE_ROWS = 1024,     /* of floats, of a piece */
    VALUE_COLUMNS = 64
};

static uint64_t parts_of(uint64_t extent, uint64_t step) {
    return extent / step + (extent % step != 0);
}

static uint64_t groups_of(const ck_layer *layer) {
    return layer->k / layer->group;
}

uint64_t ck_row_bytes(const ck_layer *layer) {
    return pack_row_columns(layer->type, layer->n) * layer->type.bits / 8;
}

/* ---- copies ---- */

/* Rows of a tensor that are moved: those of a matrix, or the numbers of a vector. */
static uint64_t moved_rows(const ck_tensor *source) {
    return source->header->shape[source->header->rank == 1 ? 0 : source->header->rank - 2];
}

static uint64_t moved_rows_a_piece(const ck_tensor *source) {
    uint64_t bytes = source->header->bytes / moved_rows(source);
    return bytes < MOVED_BYTES ? MOVED_BYTES / bytes : 1;
}

static tvm_status write_copy(const ck_part *part, const tvm_output *output, uint64_t number,
                             tvm_diags *diags) {
    uint64_t at = number * COPY_BYTES, left = part->source->header->bytes - at;
    return tvm_output_write(output, part->source->data + at, left < COPY_BYTES ? left : COPY_BYTES,
                            part->offset + at, diags);
}

static tvm_status write_moved(const ck_part *part, const tvm_output *output, uint64_t number, uint8_t *memory,
                              tvm_diags *diags) {
    const ck_tensor *source = part->source;
    uint64_t rows = moved_rows(source), bytes = source->header->bytes / rows,
             step = moved_rows_a_piece(source);
    uint64_t first = number * step, count = rows - first < step ? rows - first : step;
    const uint8_t *one = source->data + ck_row_of_file(source, first) * bytes;
    if (count == 1 && source->change->added == 0)
        return tvm_output_write(output, one, bytes, part->offset + first * bytes, diags);
    for (uint64_t i = 0; i < count; i++) {
        memcpy(memory + i * bytes, source->data + ck_row_of_file(source, first + i) * bytes, bytes);
        if (source->change->added != 0) { /* F32 */
            float value;
            memcpy(&value, memory + i * bytes, sizeof value);
            value -= source->change->added;
            memcpy(memory + i * bytes, &value, sizeof value);
        }
    }
    return tvm_output_write(output, memory, count * bytes, part->offset + first * bytes, diags);
}

/* ---- codes and scales ---- */

/* Codes of groups whose weights are one number are 0. */
static void clear_constants(const ck_layer *layer, uint64_t index, uint64_t row, uint64_t count,
                            uint64_t column, uint64_t columns, uint8_t *codes) {
    for (uint64_t i = 0; i < count; i += layer->group)
        for (uint64_t j = 0; j < columns; j++) {
            if (!ck_group_at(layer, index, (row + i) / layer->group, column + j).constant) continue;
            for (uint64_t l = i; l < count && l < i + layer->group; l++) codes[l * STRIDE + j] = 0;
        }
}

static tvm_status write_packed(const ck_part *part, const tvm_output *output, uint64_t number,
                               uint8_t *memory, tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint64_t steps = parts_of(layer->k, ROWS), index = number / steps, row = number % steps * ROWS;
    uint64_t rows[ROWS], count = layer->k - row < ROWS ? layer->k - row : ROWS, width = ck_row_bytes(layer);
    uint64_t wide = pack_row_columns(layer->type, layer->n);
    uint8_t *codes = memory, *packed = memory + ROWS * STRIDE;
    for (uint64_t i = 0; i < count; i++) rows[i] = layer->order ? layer->order[row + i] : row + i;
    for (uint64_t column = 0; column < wide; column += COLUMNS) {
        uint64_t some = wide - column < COLUMNS ? wide - column : COLUMNS;
        uint64_t there = layer->n - column < some ? layer->n - column : some;
        layer->format->take(layer, index, rows, count, column, there, codes, STRIDE);
        if (layer->has_constants) clear_constants(layer, index, row, count, column, there, codes);
        for (uint64_t i = 0; i < count; i++) {
            uint8_t string[COLUMNS + 8];
            memset(codes + i * STRIDE + there, 0, some - there);
            tvm_pack_bits(layer->type.bits, codes + i * STRIDE, some, string);
            memcpy(packed + i * width + column * layer->type.bits / 8, string, some * layer->type.bits / 8);
        }
    }
    return tvm_output_write(output, packed, count * width, part->offset + (index * layer->k + row) * width,
                            diags);
}

/* In place: codes of 8 bits, one a byte. */
static void narrow(uint16_t *codes, uint64_t count) {
    uint8_t *bytes = (uint8_t *)codes;
    for (uint64_t i = 0; i < count; i++) bytes[i] = (uint8_t)codes[i];
}

/* Scales or zero points of some groups. */
static tvm_status write_scales(const ck_part *part, const tvm_output *output, uint64_t number,
                               tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint64_t groups = groups_of(layer), steps = parts_of(groups, GROUPS);
    uint64_t index = number / steps, group = number % steps * GROUPS;
    uint64_t end = groups - group < GROUPS ? groups : group + GROUPS, item = layer->scale_type.bits / 8u;
    tvm_status status = TVM_OK;
    for (uint64_t g = group; g < end; g++)
        for (uint64_t column = 0; !status && column < layer->n; column += COLUMNS) {
            uint16_t scales[COLUMNS], zeros[COLUMNS];
            uint64_t some = layer->n - column < COLUMNS ? layer->n - column : COLUMNS;
            for (uint64_t j = 0; j < some; j++) {
                ck_group here = ck_group_at(layer, index, g, column + j);
                ck_written(layer, &here, &scales[j], &zeros[j]);
            }
            if (item == 1) narrow(scales, some);
            status =
                tvm_output_write(output, part->kind == CK_PART_SCALES ? scales : zeros, some * item,
                                 part->offset + ((index * groups + g) * layer->n + column) * item, diags);
        }
    return status;
}

/* ---- floats ---- */

static void put(tvm_dtype type, double value, uint64_t place, uint8_t *to) {
    uint16_t half;
    float wide = (float)value;
    if (type.bits == 32) {
        memcpy(to + 4 * place, &wide, sizeof wide);
        return;
    }
    ck_rounded(type, value, &half);
    memcpy(to + 2 * place, &half, sizeof half);
}

/* Rows of the output, which are columns of W, in the order of the inputs. */
static tvm_status write_values(const ck_part *part, const tvm_output *output, uint64_t number,
                               uint8_t *memory, tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    uint64_t steps = parts_of(layer->k, VALUE_ROWS), row = number % steps * VALUE_ROWS,
             column = number / steps * VALUE_COLUMNS;
    uint64_t count = layer->k - row < VALUE_ROWS ? layer->k - row : VALUE_ROWS;
    uint64_t columns = layer->n - column < VALUE_COLUMNS ? layer->n - column : VALUE_COLUMNS,
             last = UINT64_MAX;
    unsigned item = layer->float_type.bits / 8u;
    uint8_t *codes = memory, *values = memory + ROWS * STRIDE;
    double levels[256];
    ck_group groups[VALUE_COLUMNS];
    for (unsigned code = 0; code >> layer->bits == 0; code++) levels[code] = ck_level(layer, code);
    for (uint64_t start = 0; start < count; start += ROWS) {
        uint64_t rows[ROWS], some = count - start < ROWS ? count - start : ROWS;
        for (uint64_t i = 0; i < some; i++) rows[i] = row + start + i;
        layer->format->take(layer, 0, rows, some, column, columns, codes, STRIDE);
        for (uint64_t i = 0; i < some; i++) {
            uint64_t g = layer->group_of ? layer->group_of[rows[i]] : rows[i] / layer->group;
            for (uint64_t j = 0; g != last && j < columns; j++)
                groups[j] = ck_group_at(layer, 0, g, column + j);
            last = g;
            for (uint64_t j = 0; j < columns; j++)
                put(layer->float_type,
                    ck_value(layer, &groups[j], levels[codes[i * STRIDE + j]]) * layer->multiplier,
                    j * VALUE_ROWS + start + i, values);
        }
    }
    tvm_status status = TVM_OK;
    for (uint64_t j = 0; !status && j < columns; j++)
        status = tvm_output_write(output, values + j * VALUE_ROWS * item, count * item,
                                  part->offset + ((column + j) * layer->k + row) * item, diags);
    return status;
}

/* ---- all kinds ---- */

uint64_t ck_part_pieces(const ck_part *part) {
    const ck_layer *layer = part->layer;
    if (part->kind >= CK_PART_QWEIGHT) return ck_export_pieces(part);
    switch (part->kind) {
    case CK_PART_COPY:
        return parts_of(part->source->header->bytes, COPY_BYTES);
    case CK_PART_ROWS:
        return parts_of(moved_rows(part->source), moved_rows_a_piece(part->source));
    case CK_PART_PACKED:
        return layer->count * parts_of(layer->k, ROWS);
    case CK_PART_SCALES:
    case CK_PART_ZEROS:
        return layer->count * parts_of(groups_of(layer), GROUPS);
    case CK_PART_VALUES:
        return parts_of(layer->n, VALUE_COLUMNS) * parts_of(layer->k, VALUE_ROWS);
    default:
        return 1;
    }
}

size_t ck_part_memory(const ck_part *part) {
    const ck_layer *layer = part->layer;
    if (part->kind >= CK_PART_QWEIGHT) return ck_export_memory(part);
    if (part->kind == CK_PART_ROWS) return MOVED_BYTES;
    if (part->kind == CK_PART_VALUES) return ROWS * STRIDE + VALUE_ROWS * VALUE_COLUMNS * sizeof(float);
    if (part->kind != CK_PART_PACKED) return 0;
    return ROWS * STRIDE + ck_row_bytes(layer) * (layer->k < ROWS ? layer->k : ROWS) + 8;
}

tvm_status ck_write_piece(const ck_part *part, const tvm_output *output, uint64_t number, uint8_t *memory,
                          tvm_diags *diags) {
    const ck_layer *layer = part->layer;
    float multiplier;
    switch (part->kind) {
    case CK_PART_COPY:
        return write_copy(part, output, number, diags);
    case CK_PART_ROWS:
        return write_moved(part, output, number, memory, diags);
    case CK_PART_PACKED:
        return write_packed(part, output, number, memory, diags);
    case CK_PART_SCALES:
    case CK_PART_ZEROS:
        return write_scales(part, output, number, diags);
    case CK_PART_ORDER:
        return tvm_output_write(output, layer->order, layer->k * sizeof *layer->order, part->offset, diags);
    case CK_PART_MULTIPLIER:
        multiplier = (float)layer->multiplier;
        return tvm_output_write(output, &multiplier, sizeof multiplier, part->offset, diags);
    case CK_PART_VALUES:
        return write_values(part, output, number, memory, diags);
    default:
        return ck_write_exported(part, output, number, memory, diags);
    }
}
