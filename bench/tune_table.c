/* The times that bench/tune takes, as text:
 *
 *     # what follows is left out
 *     device MULTIPROCESSORS TARGET NAME
 *     TYPE M N K NAME:MICROSECONDS NAME:- ... */
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const tune_layer tune_layers[TUNE_LAYERS] = {
    {"Llama-3.3-70B qkv", {10240, 8192}},     {"Llama-3.3-70B o", {8192, 8192}},
    {"Llama-3.3-70B gate+up", {57344, 8192}}, {"Llama-3.3-70B down", {8192, 28672}},
    {"Qwen2.5-32B qkv", {7168, 5120}},        {"Qwen2.5-32B o", {5120, 5120}},
    {"Qwen2.5-32B gate+up", {55296, 5120}},   {"Qwen2.5-32B gate or up", {27648, 5120}},
    {"Qwen2.5-32B down", {5120, 27648}},      {"Gemma-2-9B qkv", {8192, 3584}},
    {"Gemma-2-9B o", {3584, 4096}},           {"Gemma-2-9B gate+up", {28672, 3584}},
    {"Gemma-2-9B down", {3584, 14336}},
};

void tune_table_free(tune_table *t) {
    free(t->rows);
    *t = (tune_table){0};
}

static tune_row *find(const tune_table *t, const char *type, int64_t m, decode_shape shape) {
    for (size_t i = 0; i < t->count; i++) {
        tune_row *row = &t->rows[i];
        if (row->m == m && row->shape.n == shape.n && row->shape.k == shape.k && !strcmp(row->type, type))
            return row;
    }
    return NULL;
}

const tune_row *tune_table_find(const tune_table *t, const char *type, int64_t m, decode_shape shape) {
    return find(t, type, m, shape);
}

const tune_time *tune_row_time(const tune_row *row, const char *variant) {
    for (unsigned i = 0; i < row->count; i++)
        if (!strcmp(row->times[i].variant, variant)) return &row->times[i];
    return NULL;
}

bool tune_table_put(bench *b, tune_table *t, const tune_row *row) {
    tune_row *known = find(t, row->type, row->m, row->shape);
    if (known) {
        *known = *row;
        return true;
    }
    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        tune_row *grown = reallocarray(t->rows, capacity, sizeof *grown);
        if (!grown) return bench_fail(b, "out of memory");
        t->rows = grown;
        t->capacity = capacity;
    }
    t->rows[t->count++] = *row;
    return true;
}

/* ---- reading ---- */

static bool read_device(tune_table *t, const char *text) {
    tune_table read = {0};
    if (sscanf(text, "device %u %u %127[^\n]", &read.multiprocessors, &read.target, read.device) != 3)
        return false;
    if (!*t->device) {
        t->multiprocessors = read.multiprocessors, t->target = read.target;
        memcpy(t->device, read.device, sizeof t->device);
    }
    return t->multiprocessors == read.multiprocessors && t->target == read.target &&
           !strcmp(t->device, read.device);
}

/* NAME:MICROSECONDS or NAME:- */
static bool read_time(char *text, tune_time *time) {
    char *colon = strchr(text, ':'), *end;
    if (!colon || colon == text || colon - text >= TUNE_NAME) return false;
    *colon = 0;
    memcpy(time->variant, text, strlen(text) + 1);
    time->microseconds = NAN;
    if (!strcmp(colon + 1, "-")) return true;
    time->microseconds = strtod(colon + 1, &end);
    return end != colon + 1 && !*end && time->microseconds > 0;
}

static bool read_row(char *text, tune_row *row) {
    value_type type;
    int used = 0;
    *row = (tune_row){0};
    if (sscanf(text, "%11s %" SCNd64 " %" SCNd64 " %" SCNd64 "%n", row->type, &row->m, &row->shape.n,
               &row->shape.k, &used) != 4 ||
        !value_type_named(row->type, &type) || type.bits > 8 || row->m < 1 || row->shape.n < 1 ||
        row->shape.k < 1)
        return false;
    char *rest = NULL;
    for (char *part = strtok_r(text + used, " \t", &rest); part; part = strtok_r(NULL, " \t", &rest)) {
        tune_time time;
        if (row->count == TUNE_VARIANTS || !read_time(part, &time) || tune_row_time(row, time.variant))
            return false;
        row->times[row->count++] = time;
    }
    return row->count > 0;
}

static bool read_line(bench *b, tune_table *t, char *line, const char *path, unsigned number) {
    tune_row row;
    line[strcspn(line, "#\n")] = 0;
    if (!line[strspn(line, " \t")]) return true;
    if (!strncmp(line, "device ", 7))
        return read_device(t, line) || bench_fail(b, "%s:%u: another device", path, number);
    if (!*t->device) return bench_fail(b, "%s:%u: the line `device` comes first", path, number);
    if (!read_row(line, &row))
        return bench_fail(b, "%s:%u: TYPE M N K NAME:MICROSECONDS ... is expected", path, number);
    return tune_table_put(b, t, &row);
}

bool tune_table_read(bench *b, tune_table *t, const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    bool ok = file || bench_fail(b, "%s: cannot be read", path);
    for (unsigned number = 1; ok && getline(&line, &capacity, file) > 0; number++)
        ok = read_line(b, t, line, path, number);
    if (ok && ferror(file)) ok = bench_fail(b, "%s: cannot be read", path);
    free(line);
    if (file) fclose(file);
    return ok;
}

/* ---- writing ---- */

static const char *layer_name(decode_shape shape) {
    for (unsigned i = 0; i < TUNE_LAYERS; i++)
        if (tune_layers[i].shape.n == shape.n && tune_layers[i].shape.k == shape.k)
            return tune_layers[i].name;
    return NULL;
}

void tune_print_heading(const tune_table *t, FILE *out) {
    fprintf(out,
            "# bench/tune: type, m, n, k, and the time of each variant of " TUNE_ENTRY
            " in microseconds a launch; -: not for these sizes, or wrong\ndevice %u %u %s\n",
            t->multiprocessors, t->target, t->device);
}

void tune_print_row(const tune_row *row, FILE *out) {
    const char *layer = layer_name(row->shape);
    fprintf(out, "%s %" PRId64 " %" PRId64 " %" PRId64 " ", row->type, row->m, row->shape.n, row->shape.k);
    for (unsigned i = 0; i < row->count; i++)
        if (isnan(row->times[i].microseconds))
            fprintf(out, " %s:-", row->times[i].variant);
        else
            fprintf(out, " %s:%.2f", row->times[i].variant, row->times[i].microseconds);
    fprintf(out, layer ? "  # %s\n" : "\n", layer);
    fflush(out);
}

bool tune_table_write(bench *b, const tune_table *t, const char *path) {
    tune_file file;
    if (!tune_file_open(b, path, &file)) return false;
    tune_print_heading(t, file.out);
    for (size_t i = 0; i < t->count; i++) tune_print_row(&t->rows[i], file.out);
    return tune_file_close(b, &file, true);
}

bool tune_file_open(bench *b, const char *path, tune_file *file) {
    file->path = path;
    snprintf(file->temporary, sizeof file->temporary, "%.4090s.tmp", path);
    file->out = fopen(file->temporary, "w");
    return file->out || bench_fail(b, "%s: cannot be written", file->temporary);
}

bool tune_file_close(bench *b, tune_file *file, bool keep) {
    if (!file->out) return false;
    bool written = !ferror(file->out);
    written = fclose(file->out) == 0 && written;
    if (keep && written && rename(file->temporary, file->path) == 0) return true;
    remove(file->temporary);
    return keep ? bench_fail(b, "%s: cannot be written", file->path) : true;
}
