/* The state of packing and unpacking, shared by pack.c, pack_quantize.c and pack_unpack.c. */
#ifndef TVM_VM_PACK_JOB_H
#define TVM_VM_PACK_JOB_H

#include "numbers.h"
#include "output.h"
#include "pack.h"
#include "pack_file.h"
#include "pack_layout.h"
#include "search.h"

/* Memory of one thread. */
typedef struct pack_buffers {
    void *slab; /* rows of the input, or of the output of unpacking */
    void *raw;  /* as they stand in the file, when that is otherwise */
    uint64_t raw_column, raw_row,
        raw_end;               /* of a transposed input: the columns' first, and the rows that raw has */
    uint8_t *codes;            /* of a tile, or of some rows */
    void *scratch;             /* of pack_layout_tile */
    uint8_t *out;              /* packed */
    int32_t *greatest, *least; /* [groups of a piece, columns of a piece] */
    pack_divisors by;          /* of the same */
    uint16_t *scales, *zeros;
    void *search;                       /* of tvm_pack_search */
    uint64_t underflows;                /* scales that are 0 though the group has another weight than 0 */
    uint64_t first_group, first_column; /* of them, the first group's first */
} pack_buffers;

/* Is a scale that underflows at this place before all that were counted? */
static inline bool pack_is_first(const pack_buffers *counted, uint64_t group, uint64_t column) {
    if (!counted->underflows || group != counted->first_group)
        return !counted->underflows || group < counted->first_group;
    return column < counted->first_column;
}

/* The matrix W, k by n, is cut into pieces of piece_rows (whole groups and whole tiles) by piece_columns
 * (whole tiles); a piece is gone through in slabs of slab_rows (whole tiles). A thread takes a band at a
 * time: pieces one below the other of band_rows rows. Of a transposed input raw_rows rows of a band are read
 * at once. */
typedef struct pack_job {
    const pack_options *options;
    pack_array input;
    pack_layout layout;
    bool laid_out;
    tvm_dtype type;
    uint64_t k, n, group;
    uint64_t columns; /* of a row of plain packing: n, and codes 0 up to whole bytes (pack_row_columns) */
    uint32_t tile_rows, tile_columns;
    uint64_t piece_rows, piece_columns, pieces_across;
    uint64_t band_rows, bands; /* of all columns */
    uint64_t slab_rows, raw_rows;
    unsigned item; /* bytes of an element of a slab */
    pack_float source;
    pack_scaler scaler;
    pack_coder coder;
    pack_array given_scales, given_zeros; /* of codes */
    bool has_scales, has_zeros;
    float *importance; /* of the k rows, for the search, or NULL */
    tvm_output output;
    uint64_t packed_at, scales_at, zeros_at; /* in the output; unpacking: in the input */
    unsigned threads;
    pack_buffers *buffers; /* one a thread */
} pack_job;

/* Rows that plain packing takes at a time. */
enum { PACK_PLAIN_ROWS = 64 };

/* Fixes pieces, slabs and threads and allocates the buffers. */
tvm_status pack_job_plan(pack_job *job, tvm_diags *diags);
void pack_job_free(pack_job *job);

/* Opens options->layout, if there is one, and checks the type given against it. */
tvm_status pack_job_layout(pack_job *job, tvm_diags *diags);

/* One band: reads, quantizes, writes. closure is the job. */
tvm_status pack_quantize(void *closure, unsigned thread, uint64_t band, tvm_diags *diags);

#endif
