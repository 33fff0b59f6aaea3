/* Programs that memory bounds, against a plain copy of as many bytes, in one run: medians of replays of CUDA
 * graphs of 40 launches or more over rotating copies of the data, larger than three times the L2. The copy is
 * the faster of two kernels. Each line of the table below is a point: a program of programs/, its
 * definitions, and the arguments of a launch. See elementwise --help and bench/NOTES. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "types.h"

enum { ARGUMENTS = 12, DEFINES = 6, TEXT = 128, COPY_KERNELS = 2, ALIGNMENT = 256, OWN_POINTS = 64 };

/* Arguments, with blanks between: `i:16384` an integer, `f:1e-5` a float, `r:f16:COUNT` a tensor that is
 * read, `w:...` one that is written, `b:...` one that is both; `k:i32:COUNT:LIMIT` is read, of numbers below
 * LIMIT. A count is a product, 4096*32. */
typedef struct point {
    const char *file, *defines, *kernel, *arguments;
} point;

static const point points[] = {
    {"vector_add", "T=f16", "vector_add", "i:67108864 r:f16:67108864 r:f16:67108864 w:f16:67108864"},
    {"vector_add", "T=f32", "vector_add", "i:67108861 r:f32:67108861 r:f32:67108861 w:f32:67108861"},
    {"swiglu", "T=f16", "swiglu", "i:16384 i:4096 r:f16:16384*8192 w:f16:16384*4096"},
    {"swiglu", "T=f16", "swiglu", "i:4096 i:152064 r:f16:4096*304128 w:f16:4096*152064"},
    {"swiglu", "T=bf16 ACT=gelu_tanh", "swiglu", "i:16384 i:4096 r:bf16:16384*8192 w:bf16:16384*4096"},
    {"swiglu", "T=f16", "swiglu", "i:64 i:8192 r:f16:64*16384 w:f16:64*8192"},
    {"quantize_rows", "T=f16", "quantize_rows",
     "i:16384 i:4096 r:f16:16384*4096 w:i8:16384*4096 w:f32:16384"},
    {"quantize_rows", "T=f16", "quantize_rows",
     "i:4096 i:152064 r:f16:4096*152064 w:i8:4096*152064 w:f32:4096"},
    {"quantize_rows", "T=f16 OTYPE=f8_e4m3", "quantize_rows",
     "i:16384 i:4096 r:f16:16384*4096 w:u8:16384*4096 w:f32:16384"},
    {"quantize_rows", "T=f16 OTYPE=f8_e4m3 GROUP=128", "quantize_rows",
     "i:16384 i:4096 r:f16:16384*4096 w:u8:16384*4096 w:f32:16384*32"},
    {"quantize_rows", "T=bf16 OTYPE=f8_e4m3", "swiglu_quantize_rows",
     "i:16384 i:4096 r:bf16:16384*8192 w:u8:16384*4096 w:f32:16384"},
    {"rope", "T=f16", "rope",
     "i:4096 i:8192 i:32 i:128 k:i32:8192:4096 r:f32:4096*128 r:f16:8192*32*128 w:f16:8192*32*128"},
    {"rope", "T=f16 STYLE=interleaved", "rope",
     "i:4096 i:8192 i:32 i:128 k:i32:8192:4096 r:f32:4096*128 r:f16:8192*32*128 w:f16:8192*32*128"},
    {"transpose", "T=f16", "transpose", "i:16384 i:4096 r:f16:16384*4096 w:f16:16384*4096"},
    {"transpose", "T=f16", "transpose", "i:4096 i:152064 r:f16:4096*152064 w:f16:4096*152064"},
    {"transpose", "T=f32", "transpose", "i:8192 i:8192 r:f32:8192*8192 w:f32:8192*8192"},
    {"transpose", "T=f16", "transpose", "i:8191 i:8193 r:f16:8191*8193 w:f16:8191*8193"},
    {"scatter_add", "T=f32", "scatter_add",
     "i:16384 i:16384 i:4096 r:f32:16384*4096 k:i32:16384:16384 b:f32:16384*4096"},
    {"scatter_add", "T=f16", "scatter_add",
     "i:16384 i:16384 i:4096 r:f16:16384*4096 k:i32:16384:16384 b:f16:16384*4096"},
    {"embedding", "T=f16", "embedding",
     "i:16384 i:16384 i:4096 r:f16:16384*4096 k:i32:16384:16384 w:f16:16384*4096"},
    {"histogram", "T=i32", "histogram", "i:67108864 i:256 k:i32:67108864:256 b:i32:256"},
    {"histogram", "T=i32", "histogram", "i:67108864 i:16384 k:i32:67108864:16384 b:i32:16384"},
    {"softmax", "T=f16", "softmax", "i:16384 i:4096 r:f16:16384*4096 w:f16:16384*4096"},
    {"softmax", "T=f16", "softmax", "i:4096 i:152064 r:f16:4096*152064 w:f16:4096*152064"},
    {"layer_norm", "T=f16", "layer_norm",
     "i:16384 i:4096 f:1e-5 r:f16:16384*4096 r:f16:4096 r:f16:4096 w:f16:16384*4096"},
    {"layer_norm", "T=f16", "layer_norm",
     "i:4096 i:152064 f:1e-5 r:f16:4096*152064 r:f16:152064 r:f16:152064 w:f16:4096*152064"},
    {"rms_norm", "T=f16", "rms_norm", "i:16384 i:4096 f:1e-5 r:f16:16384*4096 r:f16:4096 w:f16:16384*4096"},
    {"rms_norm", "T=f16", "rms_norm",
     "i:4096 i:152064 f:1e-5 r:f16:4096*152064 r:f16:152064 w:f16:4096*152064"},
    {"softmax", "T=f16", "softmax", "i:16384 i:4097 r:f16:16384*4097 w:f16:16384*4097"},
    {"rms_norm", "T=f16", "rms_norm", "i:16384 i:4097 f:1e-5 r:f16:16384*4097 r:f16:4097 w:f16:16384*4097"},
    {"layer_norm", "T=f16", "layer_norm",
     "i:16384 i:1001 f:1e-5 r:f16:16384*1001 r:f16:1001 r:f16:1001 w:f16:16384*1001"},
    {"rms_norm", "T=f16", "rms_norm", "i:64 i:8192 f:1e-5 r:f16:64*8192 r:f16:8192 w:f16:64*8192"},
    {"rms_norm", "T=f16", "add_rms_norm",
     "i:16384 i:4096 f:1e-5 r:f16:16384*4096 b:f16:16384*4096 r:f16:4096 w:f16:16384*4096"},
    {"cumsum", "T=f16", "cumsum", "i:16384 i:4096 r:f16:16384*4096 w:f16:16384*4096"},
    {"cumsum", "T=f16", "cumsum", "i:4096 i:152064 r:f16:4096*152064 w:f16:4096*152064"},
    {"argmax", "T=f16", "argmax", "i:64 i:152064 r:f16:64*152064 w:i32:64"},
    {"reduce", "T=f16", "reduce", "i:16384 i:4096 r:f16:16384*4096 w:f16:16384"},
    {"topk", "T=f16 K=20", "topk", "i:64 i:152064 r:f16:64*152064 w:f16:64*20 w:i32:64*20"},
    {"sample", "T=f16", "sample", "i:64 i:152064 i:1 i:0 f:1 f:1 r:f16:64*152064 w:i32:64"},
    {"sample", "T=f16", "sample", "i:64 i:152064 i:1 i:0 f:1 f:0.9 r:f16:64*152064 w:i32:64"},
    {"sample", "T=f16 TOPK=50", "sample", "i:64 i:152064 i:1 i:0 f:1 f:0.9 r:f16:64*152064 w:i32:64"},
    {"probabilities", "T=f16", "probabilities", "i:64 i:152064 f:1 f:1 r:f16:64*152064 w:f32:64*152064"},
    {"accept", "", "accept", "i:16 i:4 i:152064 i:1 i:0 r:f32:80*152064 r:i32:64 w:i32:80 w:i32:16"},
};
enum { POINTS = sizeof points / sizeof *points };

typedef struct options {
    const char *folder, *only, *defines;
    point own[OWN_POINTS];
    size_t own_count;
    double rest;
    unsigned replays;
    bool cached;
} options;

static const struct argp_option argp_options[] = {
    {"programs", 'p', "DIR", 0, "take the programs of DIR (default: programs)", 0},
    {"only", 'o', "TEXT", 0, "only points whose program, definitions or kernel contain TEXT", 0},
    {"define", 'D', "NAME=VALUE ...", 0, "more definitions for every point", 0},
    {"point", 'x', "FILE/DEFINES/KERNEL/ARGUMENTS", 0,
     "this point in place of the table's; once or more. FILE is a program's name, or a file's that ends in .vbc",
     0},
    {"cached", 'c', NULL, 0, "copies of the data that together fill a third of the L2, not three of them", 0},
    {"replays", 'n', "N", 0, "replays of each graph, 15 at most (default: 15)", 0},
    {"rest", 'r', "SECONDS", 0, "pause before each turn of replays (default: 0.1)", 0},
    {0}};

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    options *o = state->input;
    point *own;
    char *rest = NULL;
    switch (key) {
    case 'p':
        o->folder = arg;
        return 0;
    case 'o':
        o->only = arg;
        return 0;
    case 'D':
        o->defines = arg;
        return 0;
    case 'x':
        if (o->own_count == OWN_POINTS) argp_error(state, "too many points");
        own = &o->own[o->own_count++];
        own->file = strtok_r(arg, "/", &rest);
        own->defines = strtok_r(NULL, "/", &rest);
        own->kernel = strtok_r(NULL, "/", &rest);
        own->arguments = strtok_r(NULL, "/", &rest);
        if (!own->arguments) argp_error(state, "FILE/DEFINES/KERNEL/ARGUMENTS is expected");
        return 0;
    case 'c':
        o->cached = true;
        return 0;
    case 'n':
        o->replays = (unsigned)strtoul(arg, NULL, 10);
        if (!o->replays || o->replays > BENCH_REPLAYS) argp_error(state, "1 to 15 replays are expected");
        return 0;
    case 'r':
        o->rest = strtod(arg, NULL);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- a point ---- */

typedef struct argument {
    char kind;     /* i f r w b k */
    double number; /* of a scalar; the limit of k */
    size_t bytes, at;
} argument;

typedef struct work {
    tvm_kernel *kernel;
    argument arguments[ARGUMENTS];
    unsigned count;
    size_t moved; /* bytes that are read or written */
    bench_copies copies;
    void *stream;
} work;

static size_t product(const char *text) {
    char *end;
    size_t value = strtoull(text, &end, 10);
    while (*end == '*') value *= strtoull(end + 1, &end, 10);
    return value;
}

static bool read_argument(bench *b, const char *text, argument *a) {
    char type[16] = "", count[64] = "";
    unsigned long long limit = 0;
    tvm_dtype dtype;
    *a = (argument){.kind = text[0]};
    if (a->kind == 'i' || a->kind == 'f') {
        a->number = strtod(text + 2, NULL);
        return true;
    }
    int fields = sscanf(text, "%*c:%15[^:]:%63[^:]:%llu", type, count, &limit);
    if (fields < 2 || !tvm_dtype_parse(type, strlen(type), &dtype)) return bench_fail(b, "what is %s?", text);
    a->number = (double)limit;
    a->bytes = product(count) * dtype.bits / 8;
    return true;
}

static bool read_arguments(bench *b, const point *p, work *w, size_t *total) {
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", p->arguments);
    for (char *at = strtok_r(copy, " ", &rest); at && w->count < ARGUMENTS; at = strtok_r(NULL, " ", &rest)) {
        argument *a = &w->arguments[w->count++];
        if (!read_argument(b, at, a)) return false;
        a->at = *total;
        *total += (a->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        w->moved += a->kind == 'b' ? 2 * a->bytes : a->bytes;
    }
    return true;
}

/* Random bits that are numbers of moderate size as f16, bf16 and f32; or integers below a limit. */
static bool fill(bench *b, const work *w, uint8_t *host, size_t room) {
    for (unsigned c = 0; c < w->copies.count; c++)
        for (unsigned i = 0; i < w->count; i++) {
            const argument *a = &w->arguments[i];
            for (size_t done = 0; done < a->bytes; done += room) {
                size_t part = a->bytes - done < room ? a->bytes - done : room;
                if (done == 0 || part < room) bench_fill_random(b, host, part);
                for (size_t j = 0; j + 2 <= part && a->kind != 'k' && done == 0; j += 2) {
                    uint16_t word;
                    memcpy(&word, host + j, 2);
                    word = (uint16_t)((word & 0x87ff) | 0x3800);
                    memcpy(host + j, &word, 2);
                }
                for (size_t j = 0; j + 4 <= part && a->kind == 'k' && done == 0; j += 4) {
                    uint32_t word;
                    memcpy(&word, host + j, 4);
                    word = (uint32_t)((double)word * 0x1p-32 * a->number);
                    memcpy(host + j, &word, 4);
                }
                if (!bench_write(b, (uint8_t *)w->copies.at[c] + a->at + done, host, part)) return false;
            }
        }
    return true;
}

static bool launch(bench *b, unsigned i, void *data) {
    work *w = data;
    tvm_value values[ARGUMENTS] = {0};
    uint8_t *base = w->copies.at[i % w->copies.count];
    for (unsigned a = 0; a < w->count; a++) {
        values[a].i = (int64_t)w->arguments[a].number;
        values[a].f = w->arguments[a].number;
        if (w->arguments[a].bytes) values[a].data = base + w->arguments[a].at;
        values[a].bytes = w->arguments[a].bytes;
    }
    return bench_ok(b, tvm_launchv(w->kernel, b->stream, values, w->count), "launch");
}

/* ---- the copy ---- */

typedef struct copier {
    tvm_kernel *kernel;
    const bench_copies *copies;
    size_t bytes; /* of a half */
} copier;

static const char copy_text[] =
    ".vasm 3\n.table WAYS(WARPS, PIECES)\nsmall: 4, 4\nlarge: 8, 8\n.endtable\n"
    ".for W in WAYS\n.const TILE = 32 * WARPS * PIECES * 4\n"
    ".kernel copy_${W.name}(n: i32, x: global u32[n], y: global u32[n])\n"
    ".warps WARPS\n.grid cdiv(n, TILE)\n.assume n % 4 == 0\n"
    "%i = i64(block.x) * TILE\nstore-global y[%i], load-global(x[%i], [TILE])\n.end\n"
    ".endfor\n";

/* From the first half of the data to the second. */
static bool copy(bench *b, unsigned i, void *data) {
    const copier *c = data;
    uint8_t *from = c->copies->at[i % c->copies->count], *to = from + c->bytes;
    tvm_value values[] = {
        {.i = (int64_t)(c->bytes / 4)}, {.data = from, .bytes = c->bytes}, {.data = to, .bytes = c->bytes}};
    return bench_ok(b, tvm_launchv(c->kernel, b->stream, values, 3), "copy");
}

/* ---- the run ---- */

typedef struct run {
    bench b;
    options o;
    tvm_kernel *copy[COPY_KERNELS];
    uint8_t *host;
    size_t room;
} run;

static bool load(run *r, const point *p, tvm_program **program, work *w) {
    char path[4096], text[TEXT * 2], *rest = NULL;
    const char *defines[DEFINES];
    size_t count = 0;
    size_t length = strlen(p->file);
    bool bytecode = length > 4 && !strcmp(p->file + length - 4, ".vbc");
    snprintf(path, sizeof path, "%s/%s%s", r->o.folder, p->file, bytecode ? "" : ".vasm");
    snprintf(text, sizeof text, "%s %s", p->defines, r->o.defines ? r->o.defines : "");
    for (char *at = strtok_r(text, " ", &rest); at && count < DEFINES; at = strtok_r(NULL, " ", &rest))
        defines[count++] = at;
    return bench_load(&r->b, path, defines, count, program) &&
           bench_ok(&r->b, tvm_get_kernel(*program, p->kernel, &w->kernel), p->kernel);
}

static bool measure(run *r, const point *p, work *w, size_t total) {
    bench *b = &r->b;
    copier copiers[COPY_KERNELS];
    bench_job jobs[COPY_KERNELS + 1];
    bench_time times[COPY_KERNELS + 1];
    unsigned launches = bench_copies_launches(&w->copies, BENCH_LAUNCHES);
    if (!fill(b, w, r->host, r->room)) return false;
    for (unsigned i = 0; i < w->copies.count; i++)
        if (!launch(b, i, w) || !bench_wait(b)) return false;
    jobs[0] = (bench_job){launch, w, launches};
    for (unsigned c = 0; c < COPY_KERNELS; c++) {
        copiers[c] = (copier){r->copy[c], &w->copies, total / 2 / 16 * 16};
        if (copiers[c].bytes > w->moved / 2) copiers[c].bytes = w->moved / 2 / 16 * 16;
        jobs[c + 1] = (bench_job){copy, &copiers[c], launches};
        if (!copy(b, 0, &copiers[c]) || !bench_wait(b)) return false;
    }
    if (!bench_measure_in_turn(b, jobs, COPY_KERNELS + 1, r->o.replays, times)) return false;
    double best = times[1].median;
    for (unsigned c = 1; c < COPY_KERNELS; c++)
        if (times[c + 1].median < best) best = times[c + 1].median;
    printf("%-52s %9.2f us %5.2f TB/s  copy %9.2f us %5.2f TB/s  %4.2f  %s\n", p->kernel, times[0].median,
           (double)w->moved / times[0].median * 1e-6, best, (double)w->moved / best * 1e-6,
           best / times[0].median, p->defines);
    printf("    %s\n", p->arguments);
    fflush(stdout);
    return true;
}

static bool run_point(run *r, const point *p) {
    work w = {0};
    tvm_program *program = NULL;
    size_t total = 0;
    bool ok = load(r, p, &program, &w) && read_arguments(&r->b, p, &w, &total) &&
              bench_copies_make(&r->b, total, &w.copies) && measure(r, p, &w, total);
    if (!ok) printf("%s %s: %s\n", p->kernel, p->defines, r->b.why);
    bench_copies_free(&r->b, &w.copies);
    tvm_program_free(program);
    return !r->b.lost;
}

static bool chosen(const options *o, const point *p) {
    return !o->only || strstr(p->file, o->only) || strstr(p->defines, o->only) || strstr(p->kernel, o->only);
}

static bool open_all(run *r, tvm_program **program) {
    static const char *const names[COPY_KERNELS] = {"copy_small", "copy_large"};
    if (!bench_open(&r->b, false, 0)) return false;
    r->b.rest = r->o.rest;
    if (r->o.cached) r->b.l2 /= 9; /* of which copies fill three */
    r->room = 16 << 20;
    r->host = malloc(r->room);
    if (!r->host) return bench_fail(&r->b, "out of memory");
    if (!bench_ok(&r->b, tvm_assemble(r->b.context, copy_text, sizeof copy_text - 1, NULL, program), "copy"))
        return false;
    for (unsigned c = 0; c < COPY_KERNELS; c++)
        if (!bench_ok(&r->b, tvm_get_kernel(*program, names[c], &r->copy[c]), names[c])) return false;
    return true;
}

int main(int argc, char **argv) {
    static const struct argp argp = {
        argp_options, parse_option, NULL, "Measure memory-bound programs against a copy of as many bytes.",
        NULL,         NULL,         NULL};
    run r = {.o = {.folder = "programs", .rest = 0.1, .replays = BENCH_REPLAYS}};
    tvm_program *program = NULL;
    argp_parse(&argp, argc, argv, 0, NULL, &r.o);
    bool ok = open_all(&r, &program);
    for (size_t i = 0; ok && i < r.o.own_count; i++) ok = run_point(&r, &r.o.own[i]);
    for (size_t i = 0; ok && !r.o.own_count && i < POINTS; i++)
        if (chosen(&r.o, &points[i])) ok = run_point(&r, &points[i]);
    if (!ok) fprintf(stderr, "elementwise: %s\n", r.b.why);
    tvm_program_free(program);
    free(r.host);
    bench_close(&r.b);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
