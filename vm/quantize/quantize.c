/* tvm_quantize: weights in memory to codes, scales and zero points. */
#include "numbers.h"
#include "work.h"
#include "search.h"
#include "tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_COLUMNS = 512, LONG_COLUMNS = 64, LONG_ROWS = 1024 };

/* A piece is a group of rows by some columns. */
typedef struct quantizer {
    const tvm_quantize_options *options;
    pack_float source;
    unsigned item; /* bytes of a weight */
    const uint8_t *weights;
    bool turned; /* weights are [n, k] in memory */
    uint8_t *packed;
    uint16_t *scales, *zeros;
    uint64_t k, n, group, row_bytes, piece_columns, pieces_across;
    tvm_dtype type;
    pack_scaler scaler;
    pack_coder coder;
    struct quantizer_memory *memory; /* one a thread */
    unsigned threads;
} quantizer;

typedef struct quantizer_memory {
    uint8_t *slab; /* the piece, row-major, of weights that are turned */
    uint8_t *codes;
    int32_t greatest[PIECE_COLUMNS], least[PIECE_COLUMNS];
    float divisors[PIECE_COLUMNS], reciprocals[PIECE_COLUMNS], offsets[PIECE_COLUMNS];
    uint16_t scales[PIECE_COLUMNS], zeros[PIECE_COLUMNS];
    void *search;
} quantizer_memory;

/* ---- a piece ---- */

static double weight_at(const quantizer *q, const pack_rows *rows, size_t i, size_t j) {
    size_t at = i * rows->stride + j;
    if (q->source == PACK_F32) return (double)((const float *)rows->data)[at];
    uint16_t code = ((const uint16_t *)rows->data)[at];
    return (double)(q->source == PACK_F16 ? tvm_f16_to_f32(code) : tvm_bf16_to_f32(code));
}

static tvm_status check_finite(const quantizer *q, const pack_rows *rows, uint64_t row, uint64_t column,
                               const quantizer_memory *m, tvm_diags *diags) {
    int32_t above = q->source == PACK_F16 ? 0x7c00 << 16 : 0x7f800000;
    bool finite = true;
    for (size_t j = 0; j < rows->columns; j++)
        finite = finite && m->greatest[j] < above && m->least[j] > ~above;
    for (size_t i = 0; !finite && i < rows->rows; i++)
        for (size_t j = 0; j < rows->columns; j++) {
            double value = weight_at(q, rows, i, j);
            if (isfinite(value)) continue;
            return tvm_diag_add(diags, TVM_FORMAT, NULL, NULL, "weight [%" PRIu64 ", %" PRIu64 "] is %s",
                                row + i, column + j, isnan(value) ? "NaN" : "infinite");
        }
    return TVM_OK;
}

static tvm_status find_scales(const quantizer *q, const pack_rows *rows, uint64_t row, uint64_t column,
                              quantizer_memory *m, pack_divisors *by, tvm_diags *diags) {
    memset(m->greatest, 0, sizeof m->greatest);
    memset(m->least, 0, sizeof m->least);
    tvm_pack_extremes(q->source, rows, m->greatest, m->least);
    tvm_status status = check_finite(q, rows, row, column, m, diags);
    if (status) return status;
    if (!tvm_pack_scales(&q->scaler, q->source, rows->columns, m->greatest, m->least, m->scales, m->zeros,
                         by))
        return tvm_diag_add(diags, TVM_FORMAT, NULL, NULL,
                            "a scale of group %" PRIu64 ", columns %" PRIu64 " to %" PRIu64
                            " is beyond the range of its type",
                            row / q->group, column, column + rows->columns - 1);
    const float *importance = q->options->importance ? q->options->importance + row : NULL;
    if (q->options->scales == TVM_SCALES_MSE)
        tvm_pack_search(&q->scaler, &q->coder, q->source, rows, importance, m->scales, m->zeros, by,
                        m->search);
    size_t at = (size_t)(row / q->group * q->n + column);
    memcpy(q->scales + at, m->scales, rows->columns * sizeof *m->scales);
    if (q->zeros) memcpy(q->zeros + at, m->zeros, rows->columns * sizeof *m->zeros);
    return TVM_OK;
}

static tvm_status quantize_piece(void *closure, unsigned thread, uint64_t piece, tvm_diags *diags) {
    const quantizer *q = closure;
    quantizer_memory *m = &q->memory[thread];
    uint64_t row = piece / q->pieces_across * q->group, column = piece % q->pieces_across * q->piece_columns;
    uint64_t columns = q->n - column < q->piece_columns ? q->n - column : q->piece_columns;
    pack_rows rows = {.stride = q->n, .rows = q->group, .columns = columns};
    if (q->turned) {
        tvm_pack_transpose(q->item, q->weights + (column * q->k + row) * q->item, q->k, columns, q->group,
                           m->slab, columns);
        rows.data = m->slab;
        rows.stride = columns;
    } else {
        rows.data = q->weights + (row * q->n + column) * q->item;
    }
    pack_divisors by = {.divisors = m->divisors, .reciprocals = m->reciprocals, .offsets = m->offsets};
    tvm_status status = find_scales(q, &rows, row, column, m, &by, diags);
    if (status) return status;
    uint64_t wide = pack_row_columns(q->type, columns);
    memset(m->codes, 0, (size_t)(q->group * wide));
    tvm_pack_codes(&q->coder, q->source, &rows, &by, m->codes, wide);
    for (uint64_t i = 0; i < q->group; i++) {
        uint8_t string[PIECE_COLUMNS + 8];
        tvm_pack_bits(q->type.bits, m->codes + i * wide, wide, string);
        memcpy(q->packed + (row + i) * q->row_bytes + column * q->type.bits / 8, string,
               wide * q->type.bits / 8);
    }
    return TVM_OK;
}

/* ---- memory ---- */

static void *aligned(uint64_t bytes) {
    return aligned_alloc(64, tvm_round_up(bytes + 64, 64));
}

static tvm_status run(quantizer *q, tvm_diags *diags) {
    q->piece_columns = q->group > LONG_ROWS ? LONG_COLUMNS : PIECE_COLUMNS;
    q->pieces_across = (q->n + q->piece_columns - 1) / q->piece_columns;
    uint64_t pieces = q->k / q->group * q->pieces_across, area = q->group * q->piece_columns;
    q->threads = tvm_work_threads(q->options->threads);
    if (q->threads > pieces) q->threads = (unsigned)pieces;
    q->memory = calloc(q->threads, sizeof *q->memory);
    bool good = q->memory;
    for (unsigned i = 0; good && i < q->threads; i++) {
        q->memory[i].codes = aligned(area);
        q->memory[i].slab = q->turned ? aligned(area * q->item) : NULL;
        q->memory[i].search = aligned(tvm_pack_search_bytes(q->group));
        good = q->memory[i].codes && q->memory[i].search && (!q->turned || q->memory[i].slab);
    }
    tvm_status status =
        good ? tvm_work(pieces, q->threads, quantize_piece, q, NULL, diags) : tvm_diag_no_memory(diags);
    for (unsigned i = 0; q->memory && i < q->threads; i++) {
        free(q->memory[i].codes);
        free(q->memory[i].slab);
        free(q->memory[i].search);
    }
    free(q->memory);
    return status;
}

/* ---- what is given ---- */

static tvm_status wrong(const char *tensor, const char *expected, tvm_diags *diags) {
    return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL, "%s: %s is expected", tensor, expected);
}

static bool is_row_major(const tvm_tensor *t) {
    return !t->strides ||
           ((t->strides[1] == 1 || t->shape[1] == 1) && (t->strides[0] == t->shape[1] || t->shape[0] == 1));
}

static bool is_turned(const tvm_tensor *t) {
    return t->strides && (t->strides[0] == 1 || t->shape[0] == 1) &&
           (t->strides[1] == t->shape[0] || t->shape[1] == 1);
}

static bool is_type(const tvm_tensor *t, tvm_tensor_code code, unsigned bits) {
    return t->dtype.code == code && t->dtype.bits == bits && t->dtype.lanes == 1;
}

/* A matrix in the host's memory. */
static tvm_status check_matrix(const char *name, const tvm_tensor *t, tvm_diags *diags) {
    if (!t) return wrong(name, "a tensor", diags);
    int32_t device = t->device.device_type;
    if (device != TVM_TENSOR_CPU && device != TVM_TENSOR_CUDA_HOST && device != TVM_TENSOR_CUDA_MANAGED)
        return wrong(name, "a tensor in the host's memory", diags);
    if (t->ndim != 2 || !t->shape || t->shape[0] < 0 || t->shape[1] < 0)
        return wrong(name, "a matrix", diags);
    if ((!t->data || !tvm_tensor_is_addressable(t)) && t->shape[0] && t->shape[1])
        return wrong(name, "an address", diags);
    return TVM_OK;
}

static tvm_status take_weights(quantizer *q, const tvm_tensor *t, tvm_diags *diags) {
    tvm_status status = check_matrix("weights", t, diags);
    if (status) return status;
    q->source = is_type(t, TVM_TENSOR_FLOAT, 32)   ? PACK_F32
                : is_type(t, TVM_TENSOR_FLOAT, 16) ? PACK_F16
                                                   : PACK_BF16;
    if (q->source == PACK_BF16 && !is_type(t, TVM_TENSOR_BFLOAT, 16))
        return wrong("weights", "f32, f16 or bf16", diags);
    q->item = q->source == PACK_F32 ? 4 : 2;
    q->turned = !is_row_major(t);
    if (q->turned && !is_turned(t))
        return wrong("weights", "a row-major matrix or the transpose of one", diags);
    q->weights = tvm_tensor_data(t);
    q->k = (uint64_t)t->shape[0];
    q->n = (uint64_t)t->shape[1];
    if ((uintptr_t)q->weights % q->item)
        return wrong("weights", "an address that is a multiple of an element", diags);
    return TVM_OK;
}

static tvm_status take_scales(quantizer *q, const char *name, const tvm_tensor *t, bool bf16,
                              tvm_diags *diags) {
    tvm_status status = check_matrix(name, t, diags);
    if (status) return status;
    if (!is_type(t, bf16 ? TVM_TENSOR_BFLOAT : TVM_TENSOR_FLOAT, 16))
        return wrong(name, q->scales ? "the type of scales" : "f16 or bf16", diags);
    uint64_t groups = (uint64_t)t->shape[0];
    if ((uint64_t)t->shape[1] != q->n || !is_row_major(t) || (!groups && q->k) || (groups && q->k % groups) ||
        (q->group && groups != q->k / q->group))
        return wrong(name, "a row-major matrix of k / group rows and n columns", diags);
    q->group = groups ? q->k / groups : 1;
    if ((uintptr_t)tvm_tensor_data(t) % 2) return wrong(name, "an even address", diags);
    if (q->scales)
        q->zeros = tvm_tensor_data(t);
    else
        q->scales = tvm_tensor_data(t);
    return TVM_OK;
}

static tvm_status take_packed(quantizer *q, const tvm_tensor *t, tvm_diags *diags) {
    tvm_status status = check_matrix("packed", t, diags);
    if (status) return status;
    q->row_bytes = pack_row_columns(q->type, q->n) * q->type.bits / 8;
    q->packed = tvm_tensor_data(t);
    if (is_type(t, TVM_TENSOR_UINT, 8) && is_row_major(t) && (uint64_t)t->shape[0] == q->k &&
        (uint64_t)t->shape[1] == q->row_bytes)
        return TVM_OK;
    char text[96];
    snprintf(text, sizeof text, "a row-major uint8 matrix of %" PRIu64 " by %" PRIu64, q->k, q->row_bytes);
    return wrong("packed", text, diags);
}

static tvm_status take_options(quantizer *q, bool zeros, tvm_diags *diags) {
    const tvm_quantize_options *options = q->options;
    const char *type = options->type ? options->type : "";
    if (!tvm_dtype_parse(type, strlen(type), &q->type) || q->type.bits > 8 || q->type.kind == TVM_KIND_BOOL)
        return tvm_diag_add(
            diags, TVM_ARGUMENT, NULL, NULL,
            "type: '%.40s' is no type of weights: u1 to u8, i2 to i8 and floats of 3 to 8 bits are", type);
    if (zeros && q->type.kind != TVM_KIND_UINT)
        return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                            "zeros: zero points go with unsigned types, not with %s", type);
    if (options->scales != TVM_SCALES_MSE && options->scales != TVM_SCALES_ABSMAX)
        return wrong("scales", "TVM_SCALES_MSE or TVM_SCALES_ABSMAX", diags);
    if (options->importance && options->importance_length != q->k)
        return wrong("importance", "a number for each of the k rows", diags);
    for (size_t i = 0; options->importance && i < q->k; i++)
        if (!(options->importance[i] >= 0) || isinf(options->importance[i]))
            return tvm_diag_add(diags, TVM_ARGUMENT, NULL, NULL,
                                "importance: number %zu is not finite and positive or 0", i);
    return TVM_OK;
}

tvm_status tvm_quantize(tvm_context *context, const tvm_quantize_options *options, const tvm_tensor *weights,
                        const tvm_tensor *packed, const tvm_tensor *scales, const tvm_tensor *zeros) {
    if (!context || !options) return tvm_context_missing(context, __func__);
    tvm_diags diags = {0};
    quantizer q = {.options = options};
    bool bf16 = scales && scales->dtype.code == TVM_TENSOR_BFLOAT;
    tvm_status status = tvm_context_usable(context, &diags);
    if (!status) status = take_weights(&q, weights, &diags);
    if (!status) status = take_options(&q, zeros, &diags);
    if (!status) status = take_scales(&q, "scales", scales, bf16, &diags);
    if (!status && zeros) status = take_scales(&q, "zeros", zeros, bf16, &diags);
    if (!status) status = take_packed(&q, packed, &diags);
    if (!status && q.k && q.n) {
        q.scaler = tvm_pack_scaler_make(q.type, zeros, bf16);
        q.coder = tvm_pack_coder_make(q.type);
        status = run(&q, &diags);
    }
    return tvm_context_finish(context, status, &diags);
}
