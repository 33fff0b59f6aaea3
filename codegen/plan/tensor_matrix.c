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

/* From the tile's first element, in bits, before the swizzle. */
static uint32_t place(const tensor_matrix *m, uint32_t row, uint32_t k) {
    const uint32_t at[TVM_MAX_RANK] = {m->k_first ? k : row, m->k_first ? row : k};
    return tvm_shared_linear(&m->tile, at) * m->tile.bits;
}

/* Elements that so many bytes have. */
static uint32_t in_bytes(const tensor_matrix *m, uint32_t bytes) {
    return bytes * 8 / m->tile.bits;
}

/* Does element i of a dimension lie at i % inner * step + i / inner % beside * near + i / inner / beside *
 * far, the step in bits and the others in bytes? */
typedef struct run {
    uint32_t inner, step, beside, near, far;
} run;

static uint32_t in_run(const run *r, uint32_t i) {
    uint32_t bytes = i / r->inner % r->beside * r->near + i / r->inner / r->beside * r->far;
    return i % r->inner * r->step + 8 * bytes;
}

/* The rows, and k within each step. */
static bool lies_so(const tensor_matrix *m, const run *rows, const run *k) {
    uint32_t first = place(m, 0, 0), in_step = in_bytes(m, m->step);
    for (uint32_t r = 0; r < m->rows; r++)
        if (place(m, r, 0) != first + in_run(rows, r)) return false;
    for (uint32_t i = 0; i < m->steps * in_step; i++)
        if (place(m, 0, i) != place(m, 0, i - i % in_step) + in_run(k, i % in_step)) return false;
    return true;
}

/* Bytes to a row, and to an element along k. */
static uint32_t row_at(const tensor_matrix *m, uint32_t row) {
    return row < m->rows ? (place(m, row, 0) - place(m, 0, 0)) / 8 : 0;
}

static uint32_t k_at(const tensor_matrix *m, uint32_t k) {
    return (place(m, 0, k) - place(m, 0, 0)) / 8;
}

static bool along_k(tensor_matrix *m) {
    uint32_t bits = m->tile.bits, half = m->step > PIECE ? k_at(m, in_bytes(m, PIECE)) : PIECE;
    m->stride = row_at(m, EIGHT);
    m->leading = half;
    const run rows = {EIGHT, 8 * m->width, UINT32_MAX, m->stride, 0},
              k = {in_bytes(m, PIECE), bits, UINT32_MAX, half, 0};
    return (half == PIECE || m->width == PIECE) && lies_so(m, &rows, &k);
}

static bool transposed(tensor_matrix *m) {
    uint32_t bits = m->tile.bits, pieces = m->width / PIECE, whole = in_bytes(m, PIECE);
    if (bits < 8 || bits > 16) return false;
    bool swizzled = pieces > 1;
    uint32_t of_k = k_at(m, EIGHT), of_rows = row_at(m, whole * pieces);
    const run rows = {whole, bits, pieces, PIECE, of_rows}, k = {EIGHT, 8 * m->width, UINT32_MAX, of_k, 0};
    m->stride = swizzled ? of_k : of_rows;
    m->leading = swizzled ? of_rows : of_k;
    m->is_transposed = true;
    return lies_so(m, &rows, &k);
}

/* Each step begins in the first of eight rows, and ends in the swizzle's width. */
static bool begins_well(const tensor_matrix *m) {
    uint32_t period = m->width > PIECE ? EIGHT * m->width : PIECE;
    for (uint32_t s = 0; s < m->steps; s++) {
        uint32_t start = (uint32_t)tvm_tensor_matrix_start(m, s), in_row = start % m->width;
        bool fits = m->width == PIECE || (m->is_transposed ? in_row == 0 : in_row + m->step <= m->width);
        if (start % PIECE || start % period >= m->width || !fits) return false;
    }
    return m->tile.dynamic_divisor * m->tile.bits % (8 * period) == 0;
}

static bool is_in_field(uint32_t bytes) {
    return bytes % PIECE == 0 && bytes < UINT32_C(1) << 18;
}

const char *tvm_tensor_matrix_find(kernel_state *k, const tvm_operand *tensor, const uint32_t tile[2],
                                   bool k_first, uint32_t step, tensor_matrix *out) {
    static const char layout[] =
        "the tile does not lie as a matrix descriptor says it: leave the layout of its tensor "
        "out, and give stages a dimension of their own";
    *out = (tensor_matrix){.k_first = k_first, .step = step, .rows = tile[k_first]};
    bool linear = tvm_shared_open(k, &out->tile, tensor->value, tensor + 1, 2, tile, 1);
    const tvm_shared_layout *of = out->tile.layout;
    out->steps = tile[!k_first] * out->tile.bits / 8 / step;
    out->width = (uint32_t)PIECE << of->swizzle_bits;
    if (!linear) return layout;
    if (of->swizzle_bits && (of->swizzle_bits > 3 || of->swizzle_shift != 3 ||
                             (UINT32_C(1) << of->swizzle_base) * out->tile.bits != 8 * PIECE))
        return "the tensor's swizzle is not one of tcgen05's, of 16 bytes in rows of 32, 64 or 128: leave its layout "
               "out";
    if (!along_k(out) && !transposed(out)) return layout;
    return begins_well(out) && is_in_field(out->leading) && is_in_field(out->stride) ? NULL : layout;
}

int32_t tvm_tensor_matrix_start(const tensor_matrix *m, uint32_t step) {
    return (int32_t)(m->tile.constant * m->tile.bits + place(m, 0, step * in_bytes(m, m->step))) / 8;
}

uint32_t tvm_tensor_matrix_high(const tensor_matrix *m) {
    static const uint32_t modes[] = {0, 6, 4, 2}; /* 16 bytes: none; 32, 64, 128 */
    enum { VERSION = 1 << 14, MODE = 29 };
    return modes[tvm_log2_floor(m->width / PIECE)] << MODE | VERSION | m->stride / PIECE;
}

uint32_t tvm_tensor_matrix_low(const tensor_matrix *m) {
    return m->leading / PIECE << 16;
}
