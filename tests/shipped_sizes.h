/* Scalar arguments that serve the kernels of the shipped programs. */
#ifndef TVM_TESTS_SHIPPED_SIZES_H
#define TVM_TESTS_SHIPPED_SIZES_H

#include <string.h>

/* Tried in turn until a kernel takes its scalars: of rows, of the rest, and of a head's values. */
typedef struct size_of {
    int rows, rest, values;
} size_of;

static const size_of shipped_sizes[] = {
    {3, 64, 64},      {17, 256, 256},    {64, 128, 128},   {2, 512, 512}, {128, 256, 256},  {64, 1024, 1024},
    {1, 2048, 2048},  {5, 4096, 4096},   {70, 1000, 1000}, {7, 33, 33},   {8192, 256, 256}, {300, 60, 60},
    {16, 8192, 8192}, {1, 16384, 16384}, {70, 192, 128},   {70, 96, 96},  {70, 80, 80}};
enum { SHIPPED_SIZES = sizeof shipped_sizes / sizeof *shipped_sizes };

/* Of attention: sequences, the heads of both sides, and pages. */
static const struct {
    const char *name;
    int value;
} named[] = {{"batch", 2}, {"queries", 1},   {"heads", 4},  {"kv_heads", 2}, {"sequences", 2},
             {"pages", 4}, {"max_pages", 2}, {"window", 0}, {"longest", 1}};

static inline int shipped_scalar(const char *name, const size_of *size) {
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (!strcmp(name, named[i].name)) return named[i].value;
    bool rows = !strcmp(name, "m") || !strcmp(name, "rows") || !strcmp(name, "tokens");
    if (!strcmp(name, "dv")) return size->values;
    return rows ? size->rows : size->rest;
}

#endif
