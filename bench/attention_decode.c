/* attention_decode against a kernel that only reads as many bytes as the cache has, in one run: medians of
 * replays of CUDA graphs of 40 launches or more, over copies of the cache that are larger together than three
 * times the L2. 8 heads of 128 elements in the cache. See attention_decode --help and bench/NOTES. */
#include <argp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"
#include "value.h"

enum {
    SEED = 7,
    D = 128,
    KV_HEADS = 8,
    SLAB_TOKENS = 16,
    DEFINES = 10,
    REPLAYS = 9,
    TEXT = 128,
    BATCH_MAX = 64,
    CHUNK = 1 << 24
};

/* `slab`: bytes of 16 tokens of a head in the cache. */
typedef struct form {
    const char *name, *defines;
    unsigned slab;
} form;

static const form forms[] = {
    {"f16", "ATYPE=f16", 8192},
    {"f8_e4m3", "KTYPE=f8_e4m3 VTYPE=f8_e4m3", 4096 + 64},
    {"u4", "KTYPE=u4 VTYPE=u4", 2048 + 64},
    {"u3", "KTYPE=u3 VTYPE=u3", 1536 + 64},
    {"u2", "KTYPE=u2 VTYPE=u2 KZEROS=true VZEROS=true", 1024 + 128},
    {"u8", "KTYPE=u8 VTYPE=u8", 4096 + 64},
    {"f8_e4m3-u4", "KTYPE=f8_e4m3 VTYPE=u4", 3072 + 64},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* `mixed`: lengths from 1 to twice the length. */
typedef struct point {
    unsigned batch, length, heads;
    bool mixed;
} point;

static const point points[] = {{1, 512, 32, false},    {1, 2048, 32, false},  {1, 4096, 32, false},
                               {16, 2048, 32, false},  {16, 4096, 32, false}, {64, 4096, 32, false},
                               {1, 65536, 32, false},  {64, 8192, 32, true},  {64, 8192, 32, false},
                               {64, 16384, 32, false}, {64, 4096, 64, false}, {1, 131072, 64, false}};
enum { POINTS = sizeof points / sizeof *points };

enum { KERNELS = 16 };

/* `points`: what is measured of them, count. */
typedef struct options {
    const char *folder, *code, *only, *json, *svg, *kernels[KERNELS];
    const char *defines[DEFINES / 2];
    unsigned page, count, kernel_count, define_count;
    point points[POINTS];
} options;

static const struct argp_option argp_options[] = {
    {"programs", 'p', "DIR", 0, "take attention_decode.vasm of DIR (default: programs)", 0},
    {"code", 'c', "DIR", 0, "take DIR/TYPE.vbc, assembled before", 0},
    {"only", 'o', "LIST", 0, "these types, with blanks between", 0},
    {"points", 'n', "N", 0, "the first N shapes", 0},
    {"shapes", 'x', "LIST", 0, "these, such as '1x2048 64x8192m', of 32 heads (m: of mixed lengths)", 0},
    {"kernel", 'k', "NAME", 0,
     "this variant in place of the entry's choice; of several the results are compared", 0},
    {"define", 'D', "NAME=VALUE", 0, "an option of the program, such as EARLY=true", 0},
    {"page", 'g', "N", 0, "tokens of a page (default: 16)", 0},
    {"json", 'j', "FILE", 0, "write a line of JSON a point", 0},
    {"svg", 's', "FILE", 0, "draw the shares of the floor, by shape and type", 0},
    {0}};

static bool parse_shapes(options *o, const char *list) {
    int used;
    for (o->count = 0; o->count < POINTS; o->count++, list += used) {
        point *p = &o->points[o->count];
        *p = (point){.heads = 32};
        if (sscanf(list, " %ux%u%n", &p->batch, &p->length, &used) != 2) break;
        p->mixed = list[used] == 'm';
        used += p->mixed;
        if (p->batch < 1 || p->batch > BATCH_MAX || p->length < 1 || p->length > 1 << 20) return false;
    }
    return o->count > 0 && strspn(list, " ") == strlen(list);
}

static error_t parse_option(int key, char *arg, struct argp_state *state) {
    options *o = state->input;
    switch (key) {
    case 'p':
        o->folder = arg;
        return 0;
    case 'c':
        o->code = arg;
        return 0;
    case 'o':
        o->only = arg;
        return 0;
    case 'n':
        o->count = (unsigned)strtoul(arg, NULL, 10);
        if (o->count > POINTS) o->count = POINTS;
        return 0;
    case 'x':
        if (!parse_shapes(o, arg)) argp_error(state, "%s: no shapes of 1 to %d sequences", arg, BATCH_MAX);
        return 0;
    case 'g':
        o->page = (unsigned)strtoul(arg, NULL, 10);
        return 0;
    case 'k':
        if (o->kernel_count == KERNELS) argp_error(state, "at most %d variants", KERNELS);
        o->kernels[o->kernel_count++] = arg;
        return 0;
    case 'D':
        if (o->define_count == DEFINES / 2) argp_error(state, "at most %d options", DEFINES / 2);
        o->defines[o->define_count++] = arg;
        return 0;
    case 'j':
        o->json = arg;
        return 0;
    case 's':
        o->svg = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the picture: share of the floor, a column a shape, a colour a type ---- */

/* 0: not measured. */
typedef struct shares {
    double of[FORMS][POINTS];
    float
        *out[POINTS]; /* what the first variant made of the first copy, for the others to be compared with */
} shares;

enum { LEFT = 50, TOP = 60, COLUMN = 110, HEIGHT = 260 };
static const char *const colours[FORMS] = {"#0072b2", "#e69f00", "#d55e00", "#009e73",
                                           "#cc79a7", "#56b4e9", "#6b4c9a"};

static double y_of(double share) {
    return TOP + HEIGHT * (1 - (share < 1 ? share : 1));
}

static void draw_axes(FILE *out, const options *o) {
    for (unsigned tenth = 0; tenth <= 10; tenth += 2)
        fprintf(out,
                "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#e4e4e4\"/><text x=\"%d\" "
                "y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n",
                LEFT, y_of(tenth / 10.0), LEFT + COLUMN * (int)o->count, y_of(tenth / 10.0), LEFT - 6,
                y_of(tenth / 10.0) + 4, tenth / 10.0);
    for (unsigned j = 0; j < o->count; j++)
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%u \xc3\x97 %u%s, %u</text>\n",
                LEFT + COLUMN * (int)j + COLUMN / 2, TOP + HEIGHT + 16, o->points[j].batch,
                o->points[j].length, o->points[j].mixed ? " mixed" : "", o->points[j].heads);
    for (unsigned i = 0; i < FORMS; i++)
        fprintf(out, "<circle cx=\"%d\" cy=\"40\" r=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"44\">%s</text>\n",
                LEFT + COLUMN * (int)i, colours[i], LEFT + COLUMN * (int)i + 8, forms[i].name);
}

static bool draw(const options *o, const shares *all) {
    FILE *out = fopen(o->svg, "w");
    if (!out) return false;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n<text x=\"%d\" y=\"20\" font-size=\"14\">Decode attention, share of the read "
            "floor: batch \xc3\x97 tokens, heads</text>\n",
            LEFT + COLUMN * (int)o->count + 20, TOP + HEIGHT + 30, LEFT);
    draw_axes(out, o);
    for (unsigned i = 0; i < FORMS; i++)
        for (unsigned j = 0; j < o->count; j++)
            if (all->of[i][j] > 0)
                fprintf(
                    out,
                    "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"><title>%s: %.3f</title></circle>\n",
                    LEFT + COLUMN * (j + 0.2 + 0.1 * i), y_of(all->of[i][j]), colours[i], forms[i].name,
                    all->of[i][j]);
    fputs("</svg>\n", out);
    bool written = !ferror(out);
    return fclose(out) == 0 && written;
}

typedef struct work {
    tvm_kernel *kernel;
    const uint16_t *words; /* CHUNK bytes of contents */
    point point;
    unsigned max_pages, pages;
    size_t bytes; /* of the cache that are read */
    bench_copies copies;
    void *q, *table, *lengths, *out;
} work;

static bool launch(bench *b, unsigned i, void *data) {
    work *w = data;
    const unsigned scalars[] = {w->point.batch, 1, w->point.heads, KV_HEADS, w->pages, w->max_pages, 0};
    void *const tensors[] = {w->q, w->copies.at[i % w->copies.count], w->table, w->lengths, w->out};
    tvm_value values[16] = {0};
    unsigned n = 0;
    for (unsigned j = 0; j < sizeof scalars / sizeof *scalars; j++) values[n++].i = scalars[j];
    values[n++].f = 0.088;
    for (unsigned j = 0; j < sizeof tensors / sizeof *tensors; j++) values[n++].data = tensors[j];
    return bench_ok(b, tvm_launchv(w->kernel, b->stream, values, n), "launch");
}

/* Words that are moderate numbers as f16 and as f8, and whatever they are as other codes. */
static uint16_t *random_words(bench *b) {
    uint16_t *words = malloc(CHUNK);
    if (words) bench_fill_random(b, words, CHUNK);
    for (size_t i = 0; words && i < CHUNK / sizeof *words; i++)
        words[i] = (uint16_t)((words[i] & 0x87bf) | 0x3800);
    return words;
}

static bool fill(bench *b, const work *w, void *to, size_t bytes) {
    bool ok = true;
    for (size_t done = 0; ok && done < bytes; done += CHUNK)
        ok = bench_write(b, (uint8_t *)to + done, w->words, bytes - done < CHUNK ? bytes - done : CHUNK);
    return ok;
}

/* Lengths, pages in no order, and the cache. */
static bool make(bench *b, work *w, const options *o, const form *f) {
    const point *p = &w->point;
    int lengths[BATCH_MAX];
    b->random = SEED; /* the same for each variant */
    size_t tokens = 0, slabs = 0;
    for (unsigned i = 0; i < p->batch; i++) {
        lengths[i] = p->mixed ? (int)(1 + bench_random(b) % (2 * p->length)) : (int)p->length;
        unsigned pages = ((unsigned)lengths[i] + o->page - 1) / o->page;
        if (pages > w->max_pages) w->max_pages = pages;
        w->pages += pages;
        tokens += (size_t)lengths[i];
        slabs += ((size_t)lengths[i] + SLAB_TOKENS - 1) / SLAB_TOKENS;
    }
    if (p->mixed) fprintf(stderr, "%zu tokens in all\n", tokens);
    size_t entries = (size_t)p->batch * w->max_pages, q = (size_t)p->batch * p->heads * D * 2;
    size_t cache = (size_t)w->pages * KV_HEADS * (o->page / SLAB_TOKENS) * f->slab;
    int *table = calloc(entries, sizeof *table), *order = calloc(w->pages, sizeof *order);
    w->bytes = slabs * KV_HEADS * f->slab;
    for (unsigned i = 0; order && i < w->pages; i++) {
        unsigned j = (unsigned)(bench_random(b) % (i + 1));
        order[i] = order[j], order[j] = (int)i;
    }
    unsigned next = 0;
    for (size_t i = 0; table && order && i < entries; i++)
        if ((int)(i % w->max_pages * o->page) < lengths[i / w->max_pages]) table[i] = order[next++];
    bool ok = (table && order) || bench_fail(b, "out of memory");
    ok = ok && bench_alloc(b, entries * sizeof *table, &w->table) &&
         bench_write(b, w->table, table, entries * 4) &&
         bench_alloc(b, p->batch * sizeof *lengths, &w->lengths) &&
         bench_write(b, w->lengths, lengths, p->batch * 4) && bench_alloc(b, q, &w->q) &&
         fill(b, w, w->q, q) && bench_alloc(b, q, &w->out);
    w->copies.bytes = cache;
    unsigned copies = (unsigned)(3 * b->l2 / cache) + 1;
    for (; ok && w->copies.count < copies && w->copies.count < BENCH_COPIES_MAX; w->copies.count++)
        ok = bench_alloc(b, cache, &w->copies.at[w->copies.count]) &&
             fill(b, w, w->copies.at[w->copies.count], cache);
    free(table), free(order);
    return ok;
}

/* Of copy 0; the first call of a shape keeps it, others print by how much they differ. */
static bool compare(bench *b, work *w, float **first) {
    size_t count = (size_t)w->point.batch * w->point.heads * D;
    uint16_t *bits = malloc(count * sizeof *bits);
    float *out = malloc(count * sizeof *out);
    value_type f16;
    bool ok = (bits && out && value_type_named("f16", &f16)) || bench_fail(b, "out of memory");
    ok = ok && launch(b, 0, w) && bench_wait(b) && bench_read(b, bits, w->out, count * sizeof *bits);
    double most = 0, difference = 0;
    for (size_t i = 0; ok && i < count; i++) {
        out[i] = (float)value_of(&f16, bits[i]);
        most = fmax(most, fabs((double)out[i]));
        double apart = *first ? fabs((double)(out[i] - (*first)[i])) : 0;
        if (!(apart <= difference) && !isnan(difference)) difference = apart;
    }
    if (ok && *first) printf("  differs by %.2g of %.2g\n", difference, most);
    free(bits);
    if (ok && !*first)
        *first = out;
    else
        free(out);
    return ok;
}

static bool run_point(bench *b, bench_floor *floor, const options *o, const form *f, tvm_kernel *kernel,
                      const uint16_t *words, const point *p, FILE *json, double *share, float **first) {
    work w = {.kernel = kernel, .words = words, .point = *p};
    bench_time time = {0};
    double floor_time = 0;
    bool ok =
        make(b, &w, o, f) &&
        (o->kernel_count > 1 ? compare(b, &w, first) : launch(b, 0, &w) && bench_wait(b)) &&
        bench_measure(b, launch, &w, bench_copies_launches(&w.copies, BENCH_LAUNCHES), REPLAYS, &time) &&
        bench_floor_time(b, floor, &w.copies, w.bytes / 16 * 16, false, &floor_time);
    if (ok) {
        *share = floor_time / time.median;
        printf("%-10s %2u x %6u%s heads %2u  %9.1f MB  floor %8.2f us  ours %8.2f us  %5.1f%%  %5.2f TB/s\n",
               f->name, p->batch, p->length, p->mixed ? " mixed" : "      ", p->heads, (double)w.bytes / 1e6,
               floor_time, time.median, 100 * floor_time / time.median, (double)w.bytes / time.median / 1e6);
        if (json)
            fprintf(
                json,
                "{\"type\": \"%s\", \"batch\": %u, \"length\": %u, \"mixed\": %s, \"heads\": %u, \"page\": %u, "
                "\"bytes\": %zu, \"floor_us\": %.3f, \"ours_us\": %.3f}\n",
                f->name, p->batch, p->length, p->mixed ? "true" : "false", p->heads, o->page, w.bytes,
                floor_time, time.median);
    } else {
        printf("%-10s %2u x %6u: %s\n", f->name, p->batch, p->length, b->why);
    }
    fflush(stdout);
    for (unsigned i = 0; i < w.copies.count; i++) bench_free(b, w.copies.at[i]);
    bench_free(b, w.q), bench_free(b, w.table), bench_free(b, w.lengths), bench_free(b, w.out);
    return ok;
}

static bool load(bench *b, const options *o, const form *f, tvm_program **program) {
    char path[4096], copy[TEXT], page[16], *rest = NULL;
    const char *defines[DEFINES] = {page};
    size_t count = 1;
    snprintf(page, sizeof page, "PAGE=%u", o->page);
    snprintf(copy, sizeof copy, "%s", f->defines);
    for (char *at = strtok_r(copy, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) defines[count++] = at;
    for (unsigned i = 0; i < o->define_count; i++) defines[count++] = o->defines[i];
    if (o->code) snprintf(path, sizeof path, "%s/%s.vbc", o->code, f->name);
    if (!o->code) snprintf(path, sizeof path, "%s/attention_decode.vasm", o->folder);
    return bench_load(b, path, defines, o->code ? 0 : count, program);
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at++)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

/* Shapes that a variant does not serve are left out of the picture. */
static bool run_form(bench *b, bench_floor *floor, const options *o, unsigned number, const uint16_t *words,
                     FILE *json, shares *all) {
    tvm_program *program = NULL;
    const form *f = &forms[number];
    bool ok = load(b, o, f, &program);
    if (!ok) printf("%s: %s\n", f->name, b->why);
    for (unsigned k = 0; program && k < o->kernel_count && !b->lost; k++) {
        tvm_kernel *kernel = NULL;
        if (tvm_get_kernel(program, o->kernels[k], &kernel) != TVM_OK) {
            printf("%s: there is no %s\n", f->name, o->kernels[k]);
            continue;
        }
        if (o->kernel_count > 1) printf("%s\n", o->kernels[k]);
        for (unsigned j = 0; j < o->count && !b->lost; j++)
            ok = run_point(b, floor, o, f, kernel, words, &o->points[j], json, &all->of[number][j],
                           &all->out[j]) &&
                 ok;
    }
    for (unsigned j = 0; j < POINTS; j++) free(all->out[j]), all->out[j] = NULL;
    tvm_program_free(program);
    return ok;
}

static bool run_all(bench *b, const options *o, FILE *json, shares *all) {
    bench_floor *floor = bench_floor_open();
    uint16_t *words = random_words(b);
    bool ok = true;
    for (unsigned i = 0; i < FORMS && floor && words && !b->lost; i++)
        if (!o->only || has_word(o->only, forms[i].name))
            ok = run_form(b, floor, o, i, words, json, all) && ok;
    bench_floor_close(b, floor);
    free(words);
    return ok && floor && words && !b->lost;
}

int main(int argc, char **argv) {
    static const struct argp parser = {
        argp_options, parse_option, NULL, "Measures attention_decode against the read floor.",
        NULL,         NULL,         NULL};
    options o = {.folder = "programs", .page = SLAB_TOKENS, .count = POINTS};
    bench b;
    shares all = {{{0}}, {NULL}};
    memcpy(o.points, points, sizeof points);
    argp_err_exit_status = 2;
    argp_parse(&parser, argc, argv, 0, NULL, &o);
    if (o.kernel_count == 0) o.kernels[o.kernel_count++] = "attention_decode";
    FILE *json = o.json ? fopen(o.json, "w") : NULL;
    bool ok = bench_open(&b, false, SEED);
    if (ok && !b.cuda) ok = bench_fail(&b, "there is no GPU");
    if (ok && o.json && !json) ok = bench_fail(&b, "%s: cannot be written", o.json);
    b.rest = 0.02;
    if (ok)
        ok = run_all(&b, &o, json, &all);
    else
        fprintf(stderr, "attention_decode: %s\n", b.why);
    if (json && fclose(json)) ok = false;
    if (ok && o.svg && !draw(&o, &all)) {
        fprintf(stderr, "attention_decode: %s: cannot be written\n", o.svg);
        ok = false;
    }
    bench_close(&b);
    return ok ? 0 : 1;
}
