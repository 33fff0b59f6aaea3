#include "pack_job.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A piece, in rows and columns of W. */
typedef struct piece {
    pack_job *job;
    pack_buffers *buffers;
    uint64_t row, column;
    uint64_t rows, columns;
    tvm_diags *diags;
} piece;

/* ---- reading ---- */

/* rows x columns elements of `item` bytes at (row, column) of the file's matrix, to `to` without gaps. */
static tvm_status read_block(const piece *p, uint64_t row, uint64_t rows, uint64_t column, uint64_t columns,
                             unsigned item, uint64_t width, void *to) {
    const pack_array *input = &p->job->input;
    uint8_t *at = to;
    uint64_t run = columns * item;
    if (columns == width) {
        run *= rows;
        rows = 1;
    }
    tvm_status status = TVM_OK;
    for (uint64_t i = 0; !status && i < rows; i++, at += run)
        status = tvm_read_at(input->descriptor, input->path, at, run,
                             input->offset + ((row + i) * width + column) * item, p->diags);
    return status;
}

/* Rows of the band from `row` on as they stand in the file, unless they are there. */
static tvm_status load_raw(const piece *p, uint64_t row, uint64_t rows) {
    const pack_job *job = p->job;
    pack_buffers *buffers = p->buffers;
    if (buffers->raw_column == p->column && buffers->raw_row <= row && row + rows <= buffers->raw_end)
        return TVM_OK;
    uint64_t end = job->k - row < job->raw_rows ? job->k : row + job->raw_rows;
    buffers->raw_end = 0;
    tvm_status status = read_block(p, p->column, p->columns, row, end - row, job->item, job->k, buffers->raw);
    if (status) return status;
    buffers->raw_column = p->column;
    buffers->raw_row = row;
    buffers->raw_end = end;
    return TVM_OK;
}

/* Rows [row, row + rows) of the piece's columns into the slab. */
static tvm_status load(const piece *p, uint64_t row, uint64_t rows) {
    const pack_job *job = p->job;
    pack_buffers *buffers = p->buffers;
    if (job->options->given == PACK_BIT_STRINGS) {
        unsigned bits = job->type.bits;
        tvm_status status = read_block(p, row, rows, p->column * bits / 8, p->columns * bits / 8, 1,
                                       job->n * bits / 8, buffers->raw);
        if (!status) tvm_bits_unpack(job->type, buffers->raw, 0, rows * p->columns, buffers->slab);
        return status;
    }
    if (!job->options->transpose)
        return read_block(p, row, rows, p->column, p->columns, job->item, job->n, buffers->slab);
    tvm_status status = load_raw(p, row, rows);
    if (!status)
        tvm_pack_transpose(job->item, (const uint8_t *)buffers->raw + (row - buffers->raw_row) * job->item,
                           buffers->raw_end - buffers->raw_row, p->columns, rows, buffers->slab, p->columns);
    return status;
}

/* ---- scales ---- */

/* Rows of the slab up to the end of the group of `row`. */
static uint64_t rows_of_group(const pack_job *job, uint64_t row, uint64_t end) {
    uint64_t next = (row / job->group + 1) * job->group;
    return (next < end ? next : end) - row;
}

static pack_rows slab_rows(const piece *p, uint64_t slab, uint64_t row, uint64_t rows, uint64_t column,
                           uint64_t columns) {
    const uint8_t *data = p->buffers->slab;
    return (pack_rows){.data = data + ((row - slab) * p->columns + column) * p->job->item,
                       .stride = p->columns,
                       .rows = rows,
                       .columns = columns};
}

static size_t group_at(const piece *p, uint64_t row) {
    return (size_t)((row / p->job->group - p->row / p->job->group) * p->columns);
}

static void slab_extremes(const piece *p, uint64_t slab, uint64_t rows) {
    for (uint64_t row = slab; row < slab + rows;) {
        uint64_t run = rows_of_group(p->job, row, slab + rows);
        pack_rows part = slab_rows(p, slab, row, run, 0, p->columns);
        size_t at = group_at(p, row);
        tvm_pack_extremes(p->job->source, &part, p->buffers->greatest + at, p->buffers->least + at);
        row += run;
    }
}

static tvm_status load_slab(const piece *p, uint64_t slab, uint64_t *rows) {
    uint64_t left = p->row + p->rows - slab;
    *rows = left < p->job->slab_rows ? left : p->job->slab_rows;
    return load(p, slab, *rows);
}

static double element(const pack_job *job, const void *slab, size_t i) {
    if (job->source == PACK_F32) return (double)((const float *)slab)[i];
    uint16_t code = ((const uint16_t *)slab)[i];
    return (double)(job->source == PACK_F16 ? tvm_f16_to_f32(code) : tvm_bf16_to_f32(code));
}

static tvm_status name_place(const piece *p, uint64_t row, uint64_t column, const char *what) {
    const pack_job *job = p->job;
    tvm_place place = {.file = job->input.path};
    bool swapped = job->options->transpose;
    return tvm_diag_add(p->diags, TVM_FORMAT, &place, NULL, "weight [%" PRIu64 ", %" PRIu64 "]%s%.80s %s",
                        swapped ? column : row, swapped ? row : column, job->input.name ? " of tensor " : "",
                        job->input.name ? job->input.name : "", what);
}

/* Some weight of the piece is NaN or infinite: names the first. */
static tvm_status name_nonfinite(const piece *p) {
    tvm_status status = TVM_OK;
    uint64_t rows;
    for (uint64_t slab = p->row; !status && slab < p->row + p->rows; slab += rows) {
        status = load_slab(p, slab, &rows);
        for (uint64_t i = 0; !status && i < rows * p->columns; i++) {
            double value = element(p->job, p->buffers->slab, i);
            if (!isfinite(value))
                status = name_place(p, slab + i / p->columns, p->column + i % p->columns,
                                    isnan(value) ? "is NaN" : "is infinite");
        }
    }
    tvm_place place = {.file = p->job->input.path};
    return status ? status
                  : tvm_diag_add(p->diags, TVM_FORMAT, &place, NULL, "the file changes while it is read");
}

static bool all_finite(const piece *p, size_t count) {
    bool f16 = p->job->source == PACK_F16;
    int32_t above = f16 ? 0x7c00 << 16 : 0x7f800000;
    int32_t below = ~above;
    bool finite = true;
    for (size_t i = 0; i < count; i++)
        finite &= p->buffers->greatest[i] < above && p->buffers->least[i] > below;
    return finite;
}

static tvm_status name_overflow(const piece *p, size_t count) {
    uint16_t infinity = p->job->scaler.bf16 ? 0x7f80 : 0x7c00;
    size_t i = 0;
    while (i + 1 < count && (p->buffers->scales[i] & 0x7fff) != infinity) i++;
    tvm_place place = {.file = p->job->input.path};
    return tvm_diag_add(p->diags, TVM_FORMAT, &place,
                        p->job->scaler.bf16 ? NULL : "--scale bf16 has a wider range",
                        "the scale of group %" PRIu64 ", column %" PRIu64 " is beyond the range of %s",
                        p->row / p->job->group + i / p->columns, p->column + i % p->columns,
                        p->job->scaler.bf16 ? "bf16" : "f16");
}

static tvm_status write_matrix(const piece *p, const uint16_t *values, uint64_t at) {
    const pack_job *job = p->job;
    uint64_t rows = (p->rows + job->group - 1) / job->group, first = p->row / job->group;
    uint64_t run = p->columns, width = job->n;
    if (run == width) {
        run *= rows;
        rows = 1;
    }
    tvm_status status = TVM_OK;
    for (uint64_t i = 0; !status && i < rows; i++)
        status = tvm_output_write(&job->output, values + i * p->columns, run * sizeof *values,
                                  at + ((first + i) * width + p->column) * sizeof *values, p->diags);
    return status;
}

/* Counts the scales that are 0 where the weights are not. The key of -0 is -1 (pack_key_f32). */
static void count_underflows(const piece *p, size_t count) {
    pack_buffers *buffers = p->buffers;
    for (size_t i = 0; i < count; i++) {
        if (buffers->scales[i] & 0x7fff || (buffers->greatest[i] <= 0 && buffers->least[i] >= -1)) continue;
        uint64_t group = p->row / p->job->group + i / p->columns, column = p->column + i % p->columns;
        if (pack_is_first(buffers, group, column)) {
            buffers->first_group = group;
            buffers->first_column = column;
        }
        buffers->underflows++;
    }
}

/* Better scales for the groups of a piece, which is in the slab. */
static void search_scales(const piece *p) {
    const pack_job *job = p->job;
    pack_buffers *buffers = p->buffers;
    for (uint64_t row = p->row; row < p->row + p->rows; row += job->group) {
        pack_rows part = slab_rows(p, p->row, row, rows_of_group(job, row, p->row + p->rows), 0, p->columns);
        size_t at = group_at(p, row);
        pack_divisors by = {buffers->by.divisors + at, buffers->by.reciprocals + at, buffers->by.offsets + at,
                            buffers->by.moderate};
        tvm_pack_search(&job->scaler, &job->coder, job->source, &part,
                        job->importance ? job->importance + row : NULL, buffers->scales + at,
                        buffers->zeros + at, &by, buffers->search);
        buffers->by.moderate = by.moderate;
    }
}

/* The first pass: scales and zeros of the piece. A piece of one slab is in memory afterwards. */
static tvm_status find_scales(const piece *p) {
    pack_job *job = p->job;
    pack_buffers *buffers = p->buffers;
    size_t count = (size_t)((p->rows + job->group - 1) / job->group * p->columns);
    uint64_t rows;
    memset(buffers->greatest, 0, count * sizeof *buffers->greatest);
    memset(buffers->least, 0, count * sizeof *buffers->least);
    for (uint64_t slab = p->row; slab < p->row + p->rows; slab += rows) {
        tvm_status status = load_slab(p, slab, &rows);
        if (status) return status;
        slab_extremes(p, slab, rows);
    }
    if (!all_finite(p, count)) return name_nonfinite(p);
    if (!tvm_pack_scales(&job->scaler, job->source, count, buffers->greatest, buffers->least, buffers->scales,
                         buffers->zeros, &buffers->by))
        return name_overflow(p, count);
    if (job->options->search) search_scales(p);
    count_underflows(p, count);
    tvm_status status = write_matrix(p, buffers->scales, job->scales_at);
    if (!status && job->has_zeros) status = write_matrix(p, buffers->zeros, job->zeros_at);
    return status;
}

/* ---- codes ---- */

static tvm_status name_strange_code(const piece *p, uint64_t slab, const pack_rows *rows) {
    const uint8_t *data = rows->data, *start = p->buffers->slab;
    char what[64];
    bool sign_extended = p->job->input.type.kind == TVM_KIND_INT;
    for (size_t i = 0; i < rows->rows; i++)
        for (size_t j = 0; j < rows->columns; j++) {
            const uint8_t *code = data + i * rows->stride + j;
            pack_rows one = {.data = code, .stride = 1, .rows = 1, .columns = 1};
            uint8_t copy;
            if (tvm_pack_copy_codes(p->job->type, sign_extended, &one, &copy, 1)) continue;
            snprintf(what, sizeof what, "is %d, which is no code of %s",
                     sign_extended ? (int)(int8_t)*code : *code, TVM_DTYPE_TEXT(p->job->type));
            size_t at = (size_t)(code - start);
            return name_place(p, slab + at / p->columns, p->column + at % p->columns, what);
        }
    return TVM_OK;
}

/* Codes of `rows` rows from `row` and some columns of the piece. */
static tvm_status encode(const piece *p, uint64_t slab, uint64_t row, uint64_t rows, uint64_t column,
                         uint64_t columns, uint8_t *codes, size_t code_stride) {
    const pack_job *job = p->job;
    if (job->options->given != PACK_WEIGHTS) {
        pack_rows part = slab_rows(p, slab, row, rows, column, columns);
        return tvm_pack_copy_codes(job->type, job->input.type.kind == TVM_KIND_INT, &part, codes, code_stride)
                   ? TVM_OK
                   : name_strange_code(p, slab, &part);
    }
    for (uint64_t end = row + rows; row < end;) {
        uint64_t run = rows_of_group(job, row, end);
        pack_rows part = slab_rows(p, slab, row, run, column, columns);
        size_t at = group_at(p, row) + column;
        pack_divisors by = {.divisors = p->buffers->by.divisors + at,
                            .reciprocals = p->buffers->by.reciprocals + at,
                            .offsets = p->buffers->by.offsets + at,
                            .moderate = p->buffers->by.moderate};
        tvm_pack_codes(&job->coder, job->source, &part, &by, codes, code_stride);
        codes += run * code_stride;
        row += run;
    }
    return TVM_OK;
}

static tvm_status write_tiles(const piece *p, uint64_t row, uint64_t tiles) {
    const pack_job *job = p->job;
    const pack_layout *layout = &job->layout;
    uint64_t tile_row = row / layout->rows, tile_column = p->column / layout->columns;
    uint64_t together = layout->down ? 1 : tiles;
    tvm_status status = TVM_OK;
    for (uint64_t t = 0; !status && t < tiles; t += together)
        status = tvm_output_write(
            &job->output, p->buffers->out + t * layout->bytes, together * layout->bytes,
            job->packed_at + pack_layout_place(layout, job->k, job->n, tile_row, tile_column + t), p->diags);
    return status;
}

/* One row of tiles. */
static tvm_status pack_tiles(const piece *p, uint64_t slab, uint64_t row, uint64_t rows) {
    const pack_layout *layout = &p->job->layout;
    uint64_t tiles = 0;
    tvm_status status = TVM_OK;
    for (uint64_t column = 0; !status && column < p->columns; column += layout->columns, tiles++) {
        uint64_t left = p->columns - column;
        uint64_t columns = left < layout->columns ? left : layout->columns;
        if (rows < layout->rows || columns < layout->columns)
            memset(p->buffers->codes, 0, (size_t)layout->rows * layout->columns);
        status = encode(p, slab, row, rows, column, columns, p->buffers->codes, layout->columns);
        if (!status)
            pack_layout_tile(layout, p->buffers->codes, p->buffers->scratch,
                             p->buffers->out + tiles * layout->bytes);
    }
    return status ? status : write_tiles(p, row, tiles);
}

static tvm_status pack_plain(const piece *p, uint64_t slab, uint64_t row, uint64_t rows) {
    const pack_job *job = p->job;
    unsigned bits = job->type.bits;
    bool last = p->column + p->columns == job->n;
    uint64_t columns = last ? job->columns - p->column : p->columns;
    uint64_t run = columns * bits / 8, width = job->columns * bits / 8, left = p->column * bits / 8;
    uint8_t *codes = p->buffers->codes;
    tvm_status status = encode(p, slab, row, rows, 0, p->columns, codes, columns);
    if (status) return status;
    for (uint64_t i = 0; i < rows; i++, codes += columns) {
        memset(codes + p->columns, 0, columns - p->columns);
        tvm_pack_bits(bits, codes, columns, p->buffers->out + i * run);
    }
    if (run == width) {
        run *= rows;
        rows = 1;
    }
    for (uint64_t i = 0; !status && i < rows; i++)
        status = tvm_output_write(&job->output, p->buffers->out + i * run, run,
                                  job->packed_at + (row + i) * width + left, p->diags);
    return status;
}

static tvm_status pack_slab(const piece *p, uint64_t slab, uint64_t rows) {
    uint64_t step = p->job->laid_out ? p->job->layout.rows : PACK_PLAIN_ROWS;
    tvm_status status = TVM_OK;
    for (uint64_t row = slab; !status && row < slab + rows; row += step) {
        uint64_t left = slab + rows - row, some = left < step ? left : step;
        status = p->job->laid_out ? pack_tiles(p, slab, row, some) : pack_plain(p, slab, row, some);
    }
    return status;
}

static tvm_status pack_piece(const piece *p) {
    const pack_job *job = p->job;
    bool weights = job->options->given == PACK_WEIGHTS;
    tvm_status status = weights ? find_scales(p) : TVM_OK;
    uint64_t rows;
    bool in_memory = weights && p->rows <= job->slab_rows;
    for (uint64_t slab = p->row; !status && slab < p->row + p->rows; slab += rows) {
        rows = p->rows;
        if (!in_memory) status = load_slab(p, slab, &rows);
        if (!status) status = pack_slab(p, slab, rows);
    }
    return status;
}

tvm_status pack_quantize(void *closure, unsigned thread, uint64_t band, tvm_diags *diags) {
    pack_job *job = closure;
    uint64_t row = band / job->pieces_across * job->band_rows;
    uint64_t end = job->k - row < job->band_rows ? job->k : row + job->band_rows;
    piece p = {.job = job,
               .buffers = &job->buffers[thread],
               .column = band % job->pieces_across * job->piece_columns,
               .diags = diags};
    p.columns = job->n - p.column < job->piece_columns ? job->n - p.column : job->piece_columns;
    tvm_status status = TVM_OK;
    for (p.row = row; !status && p.row < end; p.row += job->piece_rows) {
        p.rows = end - p.row < job->piece_rows ? end - p.row : job->piece_rows;
        status = pack_piece(&p);
    }
    return status;
}
