/* Scalar arguments that serve the kernels of the shipped programs. */
#ifndef TVM_TESTS_SHIPPED_SIZES_H
#define TVM_TESTS_SHIPPED_SIZES_H

#include <stdbool.h>
#include <string.h>

/* Tried in turn until a kernel takes its scalars: of rows, of the rest, of a head's values, and of what is
 * summed over (0: as the rest); heads of keys. */
typedef struct size_of {
    int rows, rest, values, summed, kv_heads;
} size_of;

static const size_of shipped_sizes[] = {
    {3, 64, 64, 0, 2},      {17, 256, 256, 0, 2},    {64, 128, 128, 0, 2},   {2, 512, 512, 0, 2},
    {128, 256, 256, 0, 2},  {64, 1024, 1024, 0, 2},  {1, 2048, 2048, 0, 2},  {5, 4096, 4096, 0, 2},
    {70, 1000, 1000, 0, 2}, {7, 33, 33, 0, 2},       {8192, 256, 256, 0, 2}, {300, 60, 60, 0, 2},
    {16, 8192, 8192, 0, 2}, {1, 16384, 16384, 0, 2}, {70, 192, 128, 0, 2},   {70, 96, 96, 0, 2},
    {70, 80, 80, 0, 2},     {3, 64, 64, 0, 8}};
enum { SHIPPED_SIZES = sizeof shipped_sizes / sizeof *shipped_sizes };

/* Of attention: sequences and pages; heads of keys and states where heads of values are more. Of weights: the
 * first row. Of one of several devices: its rank. */
static const struct {
    const char *name;
    int value;
} named[] = {{"batch", 2},  {"queries", 1},   {"sequences", 2}, {"pages", 4}, {"max_pages", 2}, {"first", 0},
             {"window", 0}, {"key_heads", 2}, {"groups", 2},    {"slots", 4}, {"kept", 1},      {"rank", 0}};

static inline int shipped_scalar(const char *name, const size_of *size) {
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (!strcmp(name, named[i].name)) return named[i].value;
    bool rows =
        !strcmp(name, "m") || !strcmp(name, "rows") || !strcmp(name, "tokens") || !strcmp(name, "longest");
    if (!strcmp(name, "kv_heads")) return size->kv_heads;
    if (!strcmp(name, "heads")) return 2 * size->kv_heads;
    if (!strcmp(name, "k") && size->summed) return size->summed;
    if (!strcmp(name, "dv")) return size->values;
    return rows ? size->rows : size->rest;
}

#endif
