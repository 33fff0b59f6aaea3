/* Conversion alone: for each type, the time of a kernel that reads packed weights, converts them to pairs of
 * f16 and sums them (bench/convert_stream.vasm), against that of one that only reads as many bytes, in one
 * run; CUDA-graph replays over rotating copies, median, the best of several numbers of blocks. Before it is
 * timed each number of blocks is compared with float64 sums over the plain weights. See stream_gpu --help and
 * bench/NOTES. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "value.h"

enum {
    KEY_TYPES = 256,
    KEY_VALUES,
    KEY_JSON,
    KEY_CPU,
    KEY_NO_CHECK,
    KEY_TIME,
    KEY_SEED,
    DEFINES = 16,
    TUNING_REPLAYS = 3,
    COLUMNS = 8 /* that hold the same sum */
};

typedef struct stream_options {
    const char *program, *json;
    const char *defines[DEFINES + 1];
    unsigned define_count;
    value_type types[VALUE_TYPES];
    unsigned type_count;
    size_t values;
    double seconds;
    bool cpu, checked;
    uint64_t seed;
} stream_options;

static const struct argp_option argp_options[] = {
    {"types", KEY_TYPES, "LIST", 0, "u4,f6_e3m2,... (default: all 42)", 0},
    {"values", KEY_VALUES, "COUNT", 0, "weights to convert in a launch (default: 57344 x 8192)", 0},
    {"define", 'D', "NAME=VALUE", 0, "set a constant of the program", 0},
    {"json", KEY_JSON, "FILE", 0, "write the numbers, a JSON object a line", 0},
    {"time", KEY_TIME, "SECONDS", 0, "begin no type after SECONDS", 0},
    {"cpu", KEY_CPU, NULL, 0, "check on the interpreter (default: 100000 weights)", 0},
    {"no-check", KEY_NO_CHECK, NULL, 0, "time without a check, for profilers", 0},
    {"seed", KEY_SEED, "N", 0, "of the random numbers (default: the clock's)", 0},
    {0}};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    stream_options *o = state->input;
    char *rest = NULL;
    switch (key) {
    case KEY_TYPES:
        for (char *part = strtok_r(arg, ",", &rest); part; part = strtok_r(NULL, ",", &rest))
            if (o->type_count == VALUE_TYPES || !value_type_named(part, &o->types[o->type_count]) ||
                o->types[o->type_count++].bits > 8)
                argp_error(state, "%s: there is no such type, or too many are named", part);
        return 0;
    case KEY_VALUES:
        o->values = strtoull(arg, NULL, 10);
        if (!o->values || o->values > (size_t)1 << 32)
            argp_error(state, "--values %s: 1 to 2^32 is expected", arg);
        return 0;
    case 'D':
        if (o->define_count == DEFINES) argp_error(state, "too many -D");
        o->defines[o->define_count++] = arg;
        return 0;
    case KEY_JSON:
        o->json = arg;
        return 0;
    case KEY_TIME:
        o->seconds = strtod(arg, NULL);
        if (!(o->seconds > 0)) argp_error(state, "--time %s: seconds are expected", arg);
        return 0;
    case KEY_CPU:
        o->cpu = true;
        return 0;
    case KEY_NO_CHECK:
        o->checked = false;
        return 0;
    case KEY_SEED:
        o->seed = strtoull(arg, NULL, 0);
        return 0;
    case ARGP_KEY_ARG:
        if (o->program) argp_error(state, "one program is expected");
        o->program = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->program) argp_error(state, "the program, convert_stream.vasm, is expected");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a type ---- */

typedef struct stream {
    const value_type *type;
    tvm_program *program;
    tvm_kernel *pack, *kernel;
    size_t tile_bytes, tile_values, count; /* tiles */
    double *sum, *magnitude;               /* of each tile's weights */
    bench_copies copies;
    unsigned blocks;
    void *out;
} stream;

static bool load(bench *b, const stream_options *o, stream *s) {
    char define[32];
    const char *defines[DEFINES + 1];
    int64_t shape[8];
    tvm_value values[4] = {{.i = 1}, {.i = 1}};
    snprintf(define, sizeof define, "WTYPE=%s", s->type->name);
    memcpy(defines, o->defines, o->define_count * sizeof *defines);
    defines[o->define_count] = define;
    if (!bench_load(b, o->program, defines, o->define_count + 1, &s->program) ||
        !bench_ok(b, tvm_get_kernel(s->program, "pack", &s->pack), "pack") ||
        !bench_ok(b, tvm_get_kernel(s->program, "stream", &s->kernel), "stream") ||
        !bench_ok(b, tvm_param_shape(s->kernel, 2, values, 4, shape, &s->tile_bytes), "stream"))
        return false;
    s->tile_values = s->tile_bytes * 8 / s->type->bits;
    s->count = (o->values + s->tile_values - 1) / s->tile_values;
    return true;
}

/* Unsigned weights have their middle subtracted. */
static void sum_tiles(stream *s, const uint8_t *w) {
    double table[256];
    unsigned bits = s->type->bits;
    double middle = s->type->kind == 'u' ? (double)(1u << (bits - 1)) : 0;
    for (uint32_t code = 0; code < 1u << bits; code++) table[code] = value_of(s->type, code) - middle;
    for (size_t t = 0; t < s->count; t++)
        for (size_t i = 0; i < s->tile_values; i++) {
            double v = table[value_at(w, t * s->tile_values + i, bits)];
            s->sum[t] += v;
            s->magnitude[t] += fabs(v);
        }
}

static bool make_data(bench *b, stream *s) {
    size_t bytes = s->count * s->tile_bytes;
    uint8_t *w = malloc(bytes);
    void *device = NULL;
    s->sum = calloc(s->count, sizeof *s->sum);
    s->magnitude = calloc(s->count, sizeof *s->magnitude);
    bool ok = w && s->sum && s->magnitude;
    if (ok) {
        value_fill(b, s->type, w, s->count * s->tile_values);
        sum_tiles(s, w);
        ok = bench_alloc(b, bytes, &device) && bench_write(b, device, w, bytes) &&
             bench_copies_make(b, bytes, &s->copies);
    } else {
        bench_fail(b, "out of memory");
    }
    for (unsigned i = 0; ok && i < s->copies.count; i++) {
        tvm_value values[] = {{.i = (int64_t)s->count}, {.data = device}, {.data = s->copies.at[i]}};
        ok = bench_ok(b, tvm_launchv(s->pack, b->stream, values, 3), "pack");
    }
    ok = ok && bench_wait(b);
    bench_free(b, device);
    free(w);
    return ok;
}

static bool enqueue(bench *b, unsigned i, void *data) {
    stream *s = data;
    tvm_value values[] = {{.i = (int64_t)s->count},
                          {.i = s->blocks},
                          {.data = s->copies.at[i % s->copies.count]},
                          {.data = s->out}};
    return bench_ok(b, tvm_launchv(s->kernel, b->stream, values, 4), "stream");
}

/* Every block's sum against its tiles', the f32 sums' rounding allowed for. */
static bool check(bench *b, stream *s, float *sums) {
    size_t bytes = s->blocks * COLUMNS * sizeof *sums;
    memset(sums, 0xff, bytes);
    if (!bench_write(b, s->out, sums, bytes) || !enqueue(b, 0, s) || !bench_wait(b) ||
        !bench_read(b, sums, s->out, bytes))
        return false;
    for (size_t block = 0; block < s->blocks; block++) {
        double sum = 0, magnitude = 0;
        for (size_t t = block; t < s->count; t += s->blocks) sum += s->sum[t], magnitude += s->magnitude[t];
        for (size_t j = 0; j < COLUMNS; j++) {
            double got = (double)sums[block * COLUMNS + j];
            if (!(fabs(got - sum) <= 1e-5 * magnitude))
                return bench_fail(b, "wrong sum of block %zu of %u: %.9g, not %.9g", block, s->blocks, got,
                                  sum);
        }
    }
    return true;
}

/* The best number of blocks of a few, each checked. */
static bool tune(bench *b, const stream_options *o, stream *s) {
    static const unsigned blocks[] = {1, 2, 3, 4, 5, 6, 8};
    enum { CHOICES = sizeof blocks / sizeof *blocks };
    unsigned processors = b->cuda ? b->multiprocessors : 3, best = processors;
    double least = INFINITY;
    size_t bytes = processors * blocks[CHOICES - 1] * COLUMNS * sizeof(float);
    float *sums = malloc(bytes);
    bool ok = (sums || bench_fail(b, "out of memory")) && bench_alloc(b, bytes, &s->out);
    for (unsigned i = 0; ok && i < CHOICES; i++) {
        bench_time time = {0};
        s->blocks = processors * blocks[i];
        ok = (o->checked ? check(b, s, sums) : enqueue(b, 0, s)) &&
             (!b->cuda || bench_measure(b, enqueue, s, bench_copies_launches(&s->copies, BENCH_LAUNCHES),
                                        TUNING_REPLAYS, &time));
        if (!ok || time.median >= least) continue;
        least = time.median;
        best = s->blocks;
    }
    s->blocks = best;
    free(sums);
    return ok;
}

static void release(bench *b, stream *s) {
    bench_copies_free(b, &s->copies);
    bench_free(b, s->out);
    tvm_program_free(s->program);
    free(s->sum);
    free(s->magnitude);
}

/* The part of the read floor's speed that is asked for. */
static double target(unsigned bits) {
    return bits == 1 ? 0.35 : bits == 2 ? 0.6 : bits == 3 ? 0.75 : 0.9;
}

static bool run_type(bench *b, const stream_options *o, bench_floor *floor, const value_type *type,
                     FILE *json) {
    stream s = {.type = type};
    bench_time time;
    double floor_time;
    bool ok = load(b, o, &s) && make_data(b, &s) && tune(b, o, &s);
    size_t bytes = s.count * s.tile_bytes;
    if (ok && !b->cuda) {
        printf("%-8s %10zu right\n", type->name, bytes);
    } else if (ok &&
               bench_measure(b, enqueue, &s, bench_copies_launches(&s.copies, BENCH_LAUNCHES), BENCH_REPLAYS,
                             &time) &&
               bench_floor_time(b, floor, &s.copies, bytes, false, &floor_time)) {
        double share = floor_time / time.median;
        printf("%-8s %10zu %9.2f %9.2f %6.1f%% %6.0f%% %-5s %6u\n", type->name, bytes, floor_time,
               time.median, 100 * share, 100 * target(type->bits), share >= target(type->bits) ? "yes" : "no",
               s.blocks / b->multiprocessors);
        if (json)
            fprintf(
                json,
                "{\"type\": \"%s\", \"bytes\": %zu, \"floor_us\": %.3f, \"ours_us\": %.3f, \"blocks\": %u}\n",
                type->name, bytes, floor_time, time.median, s.blocks);
    } else {
        ok = false;
        printf("%-8s %s\n", type->name, b->why);
    }
    fflush(stdout);
    release(b, &s);
    return ok;
}

static bool run_all(bench *b, const stream_options *o, bench_floor *floor, FILE *json) {
    double begun = bench_seconds();
    bool ok = true;
    printf("%s, seed %#llx\n", tvm_device_name(b->context), (unsigned long long)o->seed);
    printf("%-8s %10s %9s %9s %7s %7s %-5s %6s\n", "type", "bytes", "floor us", "ours us", "speed", "target",
           "met", "blocks");
    for (unsigned i = 0; i < o->type_count && !b->lost; i++) {
        if (o->seconds > 0 && bench_seconds() - begun > o->seconds) {
            fprintf(stderr, "stream_gpu: %u types left out for lack of time\n", o->type_count - i);
            break;
        }
        fprintf(stderr, "stream_gpu: %.0f s: %s\n", bench_seconds() - begun, o->types[i].name);
        ok &= run_type(b, o, floor, &o->types[i], json);
    }
    return ok && !b->lost;
}

int main(int argc, char **argv) {
    static const struct argp parser = {argp_options,
                                       parse_option,
                                       "convert_stream.vasm",
                                       "Measures the conversion of packed weights against the read floor.\v"
                                       "Exit status: 0 every type was right, 1 one was not, 2 wrong usage.",
                                       NULL,
                                       NULL,
                                       NULL};
    stream_options o = {.checked = true, .seed = (uint64_t)(bench_seconds() * 1e9)};
    bench b;
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &o);
    if (!o.type_count) o.type_count = value_types(o.types);
    if (!o.values) o.values = o.cpu ? 100000 : (size_t)57344 * 8192;
    FILE *json = o.json ? fopen(o.json, "w") : NULL;
    bench_floor *floor = bench_floor_open();
    bool ok = bench_open(&b, o.cpu, o.seed);
    if (ok && !floor) ok = bench_fail(&b, "out of memory");
    if (ok && o.json && !json) ok = bench_fail(&b, "%s: cannot be written", o.json);
    if (!ok)
        fprintf(stderr, "stream_gpu: %s\n", b.why);
    else
        ok = run_all(&b, &o, floor, json);
    if (json && fclose(json)) ok = false;
    bench_floor_close(&b, floor);
    bench_close(&b);
    return ok ? 0 : 1;
}
