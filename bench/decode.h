/* bench/decode: its parts, most of which bench/tune is made of, too. */
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H

#include <argp.h>

#include "gpu.h"
#include "value.h"

enum {
    DECODE_TYPES = VALUE_TYPES,
    DECODE_SHAPES = 32,
    DECODE_BATCHES = 32,
    DECODE_DEFINES = 32,
    DECODE_COLUMNS = 64, /* of the result that are compared with the reference */
    DECODE_PEERS = 8
};

typedef struct decode_shape {
    int64_t n, k;
} decode_shape;

typedef struct decode_options {
    const char *program, *kernel, *json, *svg, *peers; /* program: %s stands for the type */
    char pattern[4096];                                /* of --programs */
    const char *defines[DECODE_DEFINES];               /* -D, for programs in .vasm */
    unsigned define_count;
    value_type types[DECODE_TYPES];
    unsigned type_count;
    decode_shape shapes[DECODE_SHAPES];
    unsigned shape_count;
    int64_t batches[DECODE_BATCHES];
    unsigned batch_count;
    unsigned chain;  /* matmuls of a chain; 0: single ones */
    double seconds;  /* no point is begun after them; 0: no limit */
    double rest;     /* seconds before each measurement */
    bool timed;      /* else only checked */
    bool checked;    /* else only timed */
    bool cublas_too; /* measure cuBLAS beside */
    bool cpu;
    unsigned target; /* of the code for a GPU, 80, 90, ...; 0: the GPU's own */
    uint64_t seed;
} decode_options;

/* --program, -D, --types, --batches, --shapes, --time, --rest, --cpu, --target, --seed: a child of a
 * program's own options, whose input is the decode_options. */
extern const struct argp decode_argp;

/* One point of the table. Times are microseconds, NAN where there is none. */
typedef struct decode_point {
    value_type type;
    int64_t m, n, k, group;
    size_t bytes; /* packed weights, scales, zero points and activations */
    double floor, floor_pdl, ours, ours_least, cublas, cublas_best, error;
    char why[256]; /* "": the point is right and measured */
} decode_point;

/* ---- decode_reference.c: C = A . W in float64 for some columns ---- */

typedef struct decode_reference {
    int64_t k;
    unsigned count;
    int64_t column[DECODE_COLUMNS];
    double *weights;  /* [count][k] */
    double *products; /* [rows][count], once they have been computed */
} decode_reference;
/* Chooses columns, the first and the last among them, in runs of four; the weights are the caller's to fill
 * in. */
bool decode_reference_make(bench *b, int64_t n, int64_t k, decode_reference *r);
void decode_reference_free(decode_reference *r);
/* The products with a, row-major codes [rows, k]. */
bool decode_reference_multiply(bench *b, decode_reference *r, int64_t rows, const value_type *a_type,
                               const void *a);
/* The Frobenius norm of the difference of c, row-major codes [m, n], and the products of the first m rows,
 * over that of the latter, in these columns; infinity when an element of c, in any column, is not a number.
 */
double decode_reference_error(const decode_reference *r, int64_t m, int64_t n, const value_type *c_type,
                              const void *c);
/* What rounding of the output, and of weights to the activations' type, may leave: 1e-3 for f16. */
double decode_tolerance(const value_type *c_type);

/* Code `index` of 16- or 32-bit codes. */
uint32_t decode_code(const value_type *type, const void *codes, size_t index);
void decode_set_code(const value_type *type, void *codes, size_t index, uint32_t code);

/* ---- decode_matmul.c: ours ---- */

typedef struct decode_program {
    value_type type;
    bool tried; /* loading it */
    tvm_program *program;
    tvm_kernel *pack, *multiply;
    int roles[8], pack_roles[4]; /* each parameter's place, -1: there is none */
    char why[512];               /* it could not be loaded */
} decode_program;
bool decode_program_load(bench *b, const decode_options *options, decode_program *program);
void decode_program_close(decode_program *program);
/* The name of the kernel that the entry (or kernel) chooses on b's device; it lives as long as the program.
 */
bool decode_program_variant(bench *b, const decode_program *program, int64_t m, decode_shape shape,
                            const char **name);

/* Weights of one type and shape on the device, in rotating copies, and what the results are compared with. */
typedef struct decode_problem decode_problem;
bool decode_problem_make(bench *b, decode_program *program, const decode_options *options, decode_shape shape,
                         int64_t max_m, decode_problem **problem);
void decode_problem_free(bench *b, decode_problem *problem);
/* What the launches from here on are: m rows of activations, at most max_m, by this kernel, of the same
 * parameters as the program's `multiply`, which it is at first. */
void decode_problem_set(decode_problem *problem, tvm_kernel *kernel, int64_t m);
/* tvm_reserve: TVM_ARGUMENT when the kernel is not for these sizes. */
tvm_status decode_problem_reserve(bench *b, decode_problem *problem);
/* A launch on the first copy and one on the last: fails when the error is beyond the tolerance, an element
 * stays unwritten, or they differ. */
bool decode_problem_check(bench *b, decode_problem *problem, double *error);
/* Launch number i of a graph, on its copy, and how many make one: at least so many. */
bool decode_problem_enqueue(bench *b, unsigned i, decode_problem *problem);
unsigned decode_problem_launches(const decode_problem *problem, unsigned least);
/* Checks and measures the program's `multiply`: error, bytes, group, floors, ours. */
bool decode_problem_run(bench *b, decode_problem *problem, bench_floor *floor, int64_t m,
                        decode_point *point);

/* ---- decode_cublas.c: cuBLASLt, opened at run time ---- */

typedef struct decode_cublas decode_cublas;
bool decode_cublas_open(bench *b, decode_cublas **cublas);
void decode_cublas_close(bench *b, decode_cublas *cublas);
/* The f16 matmul with f32 sums, the weights stored [n, k], over rotating copies: for each of the batches the
 * time of what the heuristic names first, and the best of what it names. */
bool decode_cublas_run(bench *b, decode_cublas *cublas, decode_shape shape, const int64_t *batches,
                       unsigned count, double *first, double *best);

/* ---- decode_report.c, decode_svg.c ---- */

typedef struct decode_report decode_report;
/* Reads the peers' file when there is one. */
decode_report *decode_report_open(bench *b, const decode_options *options, const char *device);
void decode_report_close(decode_report *report);
/* Prints the point as a row, the heading before the first, and keeps it. */
bool decode_report_add(bench *b, decode_report *report, const decode_point *point);
unsigned decode_report_failures(const decode_report *report);
/* Writes the JSON and SVG files that were asked for, with all points so far. */
bool decode_report_write(bench *b, const decode_report *report);

/* At most this many times the floor, on the shape 57344 x 8192: the project's aim. NAN: none is set. */
double decode_target(unsigned bits, int64_t m);
bool decode_svg_write(const char *path, const char *device, const decode_options *options,
                      const decode_point *points, size_t count);

#endif
