/* What was measured, as a table, as JSON, and beside what peers measured. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

typedef struct peer_point {
    int peer;
    char type[12];
    int64_t m, n, k;
    double microseconds;
} peer_point;

struct decode_report {
    const decode_options *options;
    const char *device;
    decode_point *points;
    size_t count, capacity;
    unsigned failures;
    char peers[DECODE_PEERS][16];
    unsigned peer_count;
    peer_point *peer_points;
    size_t peer_point_count;
};

/* ---- peers: a JSON object a line, {"peer", "type", "m", "n", "k", "us"} ---- */

static int peer_number(decode_report *r, const char *name) {
    for (unsigned i = 0; i < r->peer_count; i++)
        if (!strncmp(r->peers[i], name, sizeof r->peers[i] - 1)) return (int)i;
    if (r->peer_count == DECODE_PEERS) return -1;
    snprintf(r->peers[r->peer_count], sizeof r->peers[0], "%.15s", name);
    return (int)r->peer_count++;
}

static bool add_peer(decode_report *r, json_t *line) {
    const char *peer, *type;
    json_int_t m, n, k;
    double microseconds;
    if (json_unpack(line, "{s:s, s:s, s:I, s:I, s:I, s:F}", "peer", &peer, "type", &type, "m", &m, "n", &n,
                    "k", &k, "us", &microseconds))
        return false;
    int number = peer_number(r, peer);
    if (number < 0) return false;
    peer_point *grown = reallocarray(r->peer_points, r->peer_point_count + 1, sizeof *grown);
    if (!grown) return false;
    r->peer_points = grown;
    peer_point *p = &grown[r->peer_point_count++];
    *p = (peer_point){.peer = number, .m = m, .n = n, .k = k, .microseconds = microseconds};
    snprintf(p->type, sizeof p->type, "%.11s", type);
    return true;
}

static void read_peers(decode_report *r, const char *path) {
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t capacity = 0;
    unsigned number = 0;
    if (!file) fprintf(stderr, "decode: %s: cannot be read; the table is without peers\n", path);
    while (file && getline(&text, &capacity, file) > 0) {
        number++;
        if (text[strspn(text, " \t\r\n")] == 0) continue;
        json_t *line = json_loads(text, 0, NULL);
        if (!line || !add_peer(r, line)) fprintf(stderr, "decode: %s:%u: left out\n", path, number);
        json_decref(line);
    }
    free(text);
    if (file) fclose(file);
}

static double peer_time(const decode_report *r, unsigned peer, const decode_point *p) {
    for (size_t i = 0; i < r->peer_point_count; i++) {
        const peer_point *q = &r->peer_points[i];
        if (q->peer == (int)peer && q->m == p->m && q->n == p->n && q->k == p->k &&
            !strcmp(q->type, p->type.name))
            return q->microseconds;
    }
    return NAN;
}

/* ---- the report ---- */

decode_report *decode_report_open(bench *b, const decode_options *options, const char *device) {
    decode_report *r = calloc(1, sizeof *r);
    if (!r) {
        bench_fail(b, "out of memory");
        return NULL;
    }
    r->options = options;
    r->device = device;
    if (options->peers) read_peers(r, options->peers);
    return r;
}

void decode_report_close(decode_report *r) {
    if (!r) return;
    free(r->points);
    free(r->peer_points);
    free(r);
}

unsigned decode_report_failures(const decode_report *r) {
    return r->failures;
}

static void print_number(const char *format, int width, double value) {
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(format, width, value);
}

static void print_heading(const decode_report *r) {
    if (r->options->chain)
        printf(
            "chains of %u matmuls or a few more; floor and ours with programmatic dependent launch, per matmul\n",
            r->options->chain);
    printf("%-8s %3s %6s %6s %5s %9s %8s %8s %7s %8s %8s %8s", "type", "m", "n", "k", "group", "bytes",
           "floor us", "ours us", "x floor", "cuBLAS", "its best", "speed-up");
    for (unsigned i = 0; i < r->peer_count; i++) printf(" %10s", r->peers[i]);
    printf(" %9s\n", "error");
}

static double point_floor(const decode_report *r, const decode_point *p) {
    return r->options->chain && !isnan(p->floor_pdl) ? p->floor_pdl : p->floor;
}

static void print_row(const decode_report *r, const decode_point *p) {
    printf("%-8s %3lld %6lld %6lld %5lld %9zu", p->type.name, (long long)p->m, (long long)p->n,
           (long long)p->k, (long long)p->group, p->bytes);
    print_number(" %*.2f", 8, point_floor(r, p));
    print_number(" %*.2f", 8, p->ours);
    print_number(" %*.3f", 7, p->ours / point_floor(r, p));
    print_number(" %*.2f", 8, p->cublas);
    print_number(" %*.2f", 8, p->cublas_best);
    print_number(" %*.2f", 8, p->cublas / p->ours);
    for (unsigned i = 0; i < r->peer_count; i++) print_number(" %*.2f", 10, peer_time(r, i, p));
    print_number(" %*.2g", 9, p->error);
    printf("%s%s\n", *p->why ? "  " : "", p->why);
    fflush(stdout);
}

bool decode_report_add(bench *b, decode_report *r, const decode_point *point) {
    if (r->count == r->capacity) {
        size_t capacity = r->capacity ? 2 * r->capacity : 64;
        decode_point *grown = reallocarray(r->points, capacity, sizeof *grown);
        if (!grown) return bench_fail(b, "out of memory");
        r->points = grown;
        r->capacity = capacity;
    }
    if (r->count == 0) print_heading(r);
    r->points[r->count++] = *point;
    if (*point->why) r->failures++;
    print_row(r, point);
    return true;
}

/* ---- JSON ---- */

static void set_number(json_t *object, const char *name, double value) {
    json_object_set_new(object, name, isfinite(value) ? json_real(value) : json_null());
}

static json_t *point_json(const decode_report *r, const decode_point *p) {
    json_t *object = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "type", p->type.name, "m", (json_int_t)p->m,
                               "n", (json_int_t)p->n, "k", (json_int_t)p->k, "group", (json_int_t)p->group,
                               "bytes", (json_int_t)p->bytes);
    if (!object) return NULL;
    set_number(object, "floor_us", p->floor);
    set_number(object, "floor_pdl_us", p->floor_pdl);
    set_number(object, "ours_us", p->ours);
    set_number(object, "ours_least_us", p->ours_least);
    set_number(object, "ratio", p->ours / point_floor(r, p));
    set_number(object, "cublas_us", p->cublas);
    set_number(object, "cublas_best_us", p->cublas_best);
    set_number(object, "error", p->error);
    for (unsigned i = 0; i < r->peer_count; i++) set_number(object, r->peers[i], peer_time(r, i, p));
    if (*p->why) json_object_set_new(object, "failure", json_string(p->why));
    return object;
}

static bool write_json(bench *b, const decode_report *r) {
    json_t *points = json_array();
    for (size_t i = 0; i < r->count; i++) json_array_append_new(points, point_json(r, &r->points[i]));
    json_t *all = json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:o}", "device", r->device, "kernel",
                            r->options->kernel, "chain", (int)r->options->chain, "launches", BENCH_LAUNCHES,
                            "replays", BENCH_REPLAYS, "rest", r->options->rest, "points", points);
    int failed = !all || json_dump_file(all, r->options->json, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    return !failed || bench_fail(b, "%s: cannot be written", r->options->json);
}

bool decode_report_write(bench *b, const decode_report *r) {
    if (r->options->json && !write_json(b, r)) return false;
    if (r->options->svg && !decode_svg_write(r->options->svg, r->device, r->options, r->points, r->count))
        return bench_fail(b, "%s: cannot be written", r->options->svg);
    return true;
}
