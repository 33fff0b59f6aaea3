/* The canonical forms, with T elements in 16 bytes and W pieces of 16 bytes beside each other:
 *
 *   along k      row 8i + r at i * stride + r * width, the second 16 bytes of a step at 16, without a swizzle
 * at leading transposed   k 8i + s at i * stride + s * width, row T * (W * j + p) + r at j * leading + p * 16
 * + r; without a swizzle k 8i + s at i * leading + s * 16, row T * j + r at j * stride + r
 *
 * Sources: PTX ISA, "Canonical Layouts"; CUTLASS, include/cute/arch/mma_sm100_desc.hpp, which has them, too.
 */
#include "tensor_matrix.h"

#include "numbers.h"
#include "tensor_memory.h"

enum { PIECE = 16, EIGHT = 8 };

/* From the tile's first element, in bytes, before the swizzle. */
static uint32_t place(const tensor_matrix *m, uint32_t row, uint32_t k) {
    const uint32_t at[TVM_MAX_RANK] = {m->k_first ? k : row, m->k_first ? row : k};
    return tvm_shared_linear(&m->tile, at) * m->tile.bytes;
}

static uint32_t in_step(const tensor_matrix *m) {
    return TVM_TENSOR_STEP / m->tile.bytes;
}

/* Does element i of a dimension lie at i % inner * step + i / inner % beside * near + i / inner / beside *
 * far? */
typedef struct run {
    uint32_t inner, step, beside, near, far;
} run;

static uint32_t in_run(const run *r, uint32_t i) {
    return i % r->inner * r->step + i / r->inner % r->beside * r->near + i / r->inner / r->beside * r->far;
}

/* The rows, and k within each step. */
static bool lies_so(const tensor_matrix *m, const run *rows, const run *k) {
    uint32_t first = place(m, 0, 0);
    for (uint32_t r = 0; r < m->rows; r++)
        if (place(m, r, 0) != first + in_run(rows, r)) return false;
    for (uint32_t i = 0; i < m->steps * in_step(m); i++)
        if (place(m, 0, i) != place(m, 0, i - i % in_step(m)) + in_run(k, i % in_step(m))) return false;
    return true;
}

static uint32_t row_at(const tensor_matrix *m, uint32_t row) {
    return row < m->rows ? place(m, row, 0) - place(m, 0, 0) : 0;
}

static bool along_k(tensor_matrix *m) {
    uint32_t bytes = m->tile.bytes, half = place(m, 0, in_step(m) / 2) - place(m, 0, 0);
    m->stride = row_at(m, EIGHT);
    m->leading = half;
    const run rows = {EIGHT, m->width, UINT32_MAX, m->stride, 0},
              k = {PIECE / bytes, bytes, UINT32_MAX, half, 0};
    return (half == PIECE || m->width == PIECE) && lies_so(m, &rows, &k);
}

static bool transposed(tensor_matrix *m) {
    uint32_t bytes = m->tile.bytes, pieces = m->width / PIECE, whole = PIECE / bytes;
    bool swizzled = pieces > 1;
    uint32_t of_k = place(m, 0, EIGHT) - place(m, 0, 0), of_rows = row_at(m, whole * pieces);
    const run rows = {whole, bytes, pieces, PIECE, of_rows}, k = {EIGHT, m->width, UINT32_MAX, of_k, 0};
    m->stride = swizzled ? of_k : of_rows;
    m->leading = swizzled ? of_rows : of_k;
    m->is_transposed = true;
    return bytes <= 2 && lies_so(m, &rows, &k);
}

/* Each step begins in the first of eight rows, and ends in the swizzle's width. */
static bool begins_well(const tensor_matrix *m) {
    uint32_t period = m->width > PIECE ? EIGHT * m->width : PIECE;
    for (uint32_t s = 0; s < m->steps; s++) {
        uint32_t start = (uint32_t)tvm_tensor_matrix_start(m, s), in_row = start % m->width;
        bool fits =
            m->width == PIECE || (m->is_transposed ? in_row == 0 : in_row + TVM_TENSOR_STEP <= m->width);
        if (start % PIECE || start % period >= m->width || !fits) return false;
    }
    return m->tile.dynamic_divisor * m->tile.bytes % period == 0;
}

static bool is_in_field(uint32_t bytes) {
    return bytes % PIECE == 0 && bytes < UINT32_C(1) << 18;
}

const char *tvm_tensor_matrix_find(kernel_state *k, const tvm_operand *tensor, const uint32_t tile[2],
                                   bool k_first, tensor_matrix *out) {
    static const char layout[] =
        "the tile does not lie as a matrix descriptor says it: leave the layout of its tensor "
        "out, and give stages a dimension of their own";
    *out = (tensor_matrix){.k_first = k_first, .rows = tile[k_first]};
    bool linear = tvm_shared_open(k, &out->tile, tensor->value, tensor + 1, 2, tile, 1);
    const tvm_shared_layout *of = out->tile.layout;
    out->steps = tile[!k_first] * out->tile.bytes / TVM_TENSOR_STEP;
    out->width = (uint32_t)PIECE << of->swizzle_bits;
    if (!linear) return layout;
    if (of->swizzle_bits && (of->swizzle_bits > 3 || of->swizzle_shift != 3 ||
                             (UINT32_C(1) << of->swizzle_base) * out->tile.bytes != PIECE))
        return "the tensor's swizzle is not one of tcgen05's, of 16 bytes in rows of 32, 64 or 128: leave its layout "
               "out";
    if (!along_k(out) && !transposed(out)) return layout;
    return begins_well(out) && is_in_field(out->leading) && is_in_field(out->stride) ? NULL : layout;
}

int32_t tvm_tensor_matrix_start(const tensor_matrix *m, uint32_t step) {
    return (int32_t)(m->tile.constant * m->tile.bytes + place(m, 0, step * in_step(m)));
}

uint32_t tvm_tensor_matrix_high(const tensor_matrix *m) {
    static const uint32_t modes[] = {0, 6, 4, 2}; /* 16 bytes: none; 32, 64, 128 */
    enum { VERSION = 1 << 14, MODE = 29 };
    return modes[tvm_log2_floor(m->width / PIECE)] << MODE | VERSION | m->stride / PIECE;
}

uint32_t tvm_tensor_matrix_low(const tensor_matrix *m) {
    return m->leading / PIECE << 16;
}
