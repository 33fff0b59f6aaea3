/* bench/tune: its parts. */
#ifndef BENCH_TUNE_H
#define BENCH_TUNE_H

#include <stdio.h>

#include "decode.h"

#define TUNE_ENTRY "matmul_lowbit" /* its variants are the kernels matmul_lowbit_NAME */

enum { TUNE_VARIANTS = BENCH_JOBS, TUNE_NAME = 16 };

/* ---- tune_table.c: the times ---- */

typedef struct tune_time {
    char variant[TUNE_NAME]; /* what follows matmul_lowbit_ in the kernel's name */
    double microseconds;       /* NAN: the kernel is not for these sizes, or its result was wrong */
} tune_time;

/* A point: all variants, measured in turn. */
typedef struct tune_row {
    char type[12];
    int64_t m;
    decode_shape shape;
    unsigned count;
    tune_time times[TUNE_VARIANTS];
} tune_row;

typedef struct tune_table {
    char device[128]; /* "": nothing has been measured */
    unsigned multiprocessors, target;
    tune_row *rows;
    size_t count, capacity;
} tune_table;

void tune_table_free(tune_table *table);
/* Adds the rows of a file that tune_table_write wrote, in place of those of the same points. All must come
 * from one device. */
bool tune_table_read(bench *b, tune_table *table, const char *path);
bool tune_table_write(bench *b, const tune_table *table, const char *path);
bool tune_table_put(bench *b, tune_table *table, const tune_row *row);
const tune_row *tune_table_find(const tune_table *table, const char *type, int64_t m, decode_shape shape);
/* NULL when there is no time of it, which may be NAN. */
const tune_time *tune_row_time(const tune_row *row, const char *variant);
/* The lines of a file. */
void tune_print_heading(const tune_table *table, FILE *out);
void tune_print_row(const tune_row *row, FILE *out);

/* A file that is there is replaced when all of the new one has been written, and is to be kept. */
typedef struct tune_file {
    const char *path;
    char temporary[4096];
    FILE *out;
} tune_file;
bool tune_file_open(bench *b, const char *path, tune_file *file);
bool tune_file_close(bench *b, tune_file *file, bool keep);

/* The linear layers of the models that the table is for. */
typedef struct tune_layer {
    const char *name;
    decode_shape shape;
} tune_layer;
enum { TUNE_LAYERS = 13 };
extern const tune_layer tune_layers[TUNE_LAYERS];

/* ---- tune_cases.c: what follows from them ---- */

typedef struct tune_cases_options {
    const decode_options *program; /* assembled without the table, to ask what the rule chooses */
    const char *path;              /* of the file to include; NULL: none is written */
    const char *command;           /* that the file names */
    double gain;                   /* percent that a case must be worth */
} tune_cases_options;
/* Compares the times with what the rule chooses, prints it, and writes the cases for what is better. */
bool tune_cases_write(bench *b, const tune_table *table, const tune_cases_options *options);

#endif
