/* From times to the cases of the entry: for each width, shape and class of rows the kernel that was best,
 * where it is better than what the rule chooses. What that is the program itself says, on an interpreter that
 * shows itself as the device measured. */
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTHS = 8, ROWS = DECODE_BATCHES };

/* Rows of activations that are of one mind: above < m <= upto. */
typedef struct row_class {
    int64_t above, upto;
} row_class;
static const row_class classes[] = {{0, 8}, {8, 16}, {16, 32}, {32, 64}};
enum { CLASSES = sizeof classes / sizeof *classes };

typedef struct tune_case {
    decode_shape shape;
    row_class rows;
    char variant[TUNE_NAME];
    char note[256]; /* what it is worth */
} tune_case;

/* The cases of a type. */
typedef struct case_list {
    value_type type;
    tune_case *cases;
    size_t count;
} case_list;

typedef struct maker {
    bench *b, device; /* device: what is asked for the rule's choice */
    const tune_table *table;
    const tune_cases_options *options;
    decode_shape *shapes; /* of the table, by n, so that cases for one n stand together */
    size_t shape_count;
} maker;

/* ---- what was measured ---- */

static int by_shape(const void *x, const void *y) {
    const decode_shape *a = x, *b = y;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return (a->k > b->k) - (a->k < b->k);
}

static bool find_shapes(maker *m) {
    const tune_table *t = m->table;
    m->shapes = calloc(t->count + 1, sizeof *m->shapes);
    if (!m->shapes) return bench_fail(m->b, "out of memory");
    for (size_t i = 0; i < t->count; i++) m->shapes[i] = t->rows[i].shape;
    qsort(m->shapes, t->count, sizeof *m->shapes, by_shape);
    for (size_t i = 0; i < t->count; i++)
        if (!m->shape_count || by_shape(&m->shapes[m->shape_count - 1], &m->shapes[i]))
            m->shapes[m->shape_count++] = m->shapes[i];
    return true;
}

static unsigned rows_of(const maker *m, const value_type *type, decode_shape shape, row_class class,
                        const tune_row *rows[ROWS]) {
    unsigned count = 0;
    for (int64_t i = class.above + 1; i <= class.upto && count < ROWS; i++) {
        const tune_row *row = tune_table_find(m->table, type->name, i, shape);
        if (row) rows[count++] = row;
    }
    return count;
}

/* f16 cannot hold its weights before they are scaled: its kernels are not those of other types of its width.
 */
static bool is_beyond_half(const value_type *type) {
    return type->exponent > 5 || (type->exponent == 5 && type->mantissa < 2);
}

/* ---- a choice ---- */

static double log_time(const tune_time *time) {
    return time && !isnan(time->microseconds) ? log(time->microseconds) : INFINITY;
}

static bool is_kernel(const decode_program *program, const char *variant) {
    char name[64];
    tvm_kernel *kernel;
    snprintf(name, sizeof name, TUNE_ENTRY "_%s", variant);
    return tvm_get_kernel(program->program, name, &kernel) == TVM_OK;
}

/* The variant with the least product of its times over the rows. */
static const char *best_of(const decode_program *program, const tune_row **rows, unsigned count,
                           double *sum) {
    const char *best = NULL;
    *sum = INFINITY;
    for (unsigned v = 0; v < rows[0]->count; v++) {
        const char *variant = rows[0]->times[v].variant;
        double its = 0;
        for (unsigned i = 0; i < count; i++) its += log_time(tune_row_time(rows[i], variant));
        if (its < *sum && is_kernel(program, variant)) {
            best = variant;
            *sum = its;
        }
    }
    return best;
}

/* What the rule chooses for each of the rows. *known: there is a time of it, which is INFINITY when it was
 * wrong. */
static bool ask_rule(maker *m, const decode_program *program, const tune_row **rows, unsigned count,
                     const tune_time **rule, bool *known) {
    *known = true;
    for (unsigned i = 0; i < count; i++) {
        const char *name;
        size_t prefix = strlen(TUNE_ENTRY "_");
        if (!decode_program_variant(&m->device, program, rows[i]->m, rows[i]->shape, &name))
            return bench_fail(m->b, "%s", m->device.why);
        rule[i] = tune_row_time(rows[i], strlen(name) > prefix ? name + prefix : "");
        *known = *known && rule[i];
        if (!rule[i])
            fprintf(stderr,
                    "tune: %s, m %" PRId64 ", n %" PRId64 ", k %" PRId64
                    ": %s, which the rule chooses, was not measured\n",
                    rows[i]->type, rows[i]->m, rows[i]->shape.n, rows[i]->shape.k, name);
    }
    return true;
}

/* "m 16: 60.90 of 73.61 us" for each row; nan: the rule chooses what is wrong. */
static void write_note(char note[256], const tune_row **rows, unsigned count, const char *variant,
                       const tune_time **rule) {
    size_t at = 0;
    for (unsigned i = 0; i < count && at < 200; i++)
        at += (size_t)snprintf(note + at, 256 - at, "%sm %" PRId64 ": %.2f of %.2f us", i ? ", " : "",
                               rows[i]->m, tune_row_time(rows[i], variant)->microseconds,
                               rule[i]->microseconds);
}

static bool add_case(maker *m, case_list *list, const tune_case *made) {
    tune_case *last = list->count ? &list->cases[list->count - 1] : NULL;
    if (last && !by_shape(&last->shape, &made->shape) && last->rows.upto == made->rows.above &&
        !strcmp(last->variant, made->variant)) {
        last->rows.upto = made->rows.upto;
        size_t length = strlen(last->note);
        snprintf(last->note + length, sizeof last->note - length, ", %.200s", made->note);
        return true;
    }
    tune_case *grown = reallocarray(list->cases, list->count + 1, sizeof *grown);
    if (!grown) return bench_fail(m->b, "out of memory");
    list->cases = grown;
    grown[list->count++] = *made;
    return true;
}

static bool choose(maker *m, const decode_program *program, decode_shape shape, row_class class,
                   const tune_row **rows, unsigned count, case_list *list) {
    const tune_time *rule[ROWS];
    bool known;
    double sum, rule_sum = 0;
    if (!count) return true;
    if (!ask_rule(m, program, rows, count, rule, &known)) return false;
    if (!known) return true;
    for (unsigned i = 0; i < count; i++) rule_sum += log_time(rule[i]);
    const char *best = best_of(program, rows, count, &sum);
    if (!best) return true;
    double gain = 100 * (1 - exp((sum - rule_sum) / count));
    bool worth = gain > m->options->gain;
    tune_case made = {.shape = shape, .rows = class};
    memcpy(made.variant, best, strlen(best) + 1);
    write_note(made.note, rows, count, best, rule);
    printf("%-8s %6" PRId64 " x %-6" PRId64 " m %2" PRId64 " to %-2" PRId64 " variant %-9s %5.1f %% (%s)%s\n",
           program->type.name, shape.n, shape.k, class.above + 1, class.upto, best, gain, made.note,
           worth ? " *" : "");
    return !worth || add_case(m, list, &made);
}

/* ---- a type ---- */

/* What was not measured with it is as with `base`, which may be NULL. */
static bool make_list(maker *m, const value_type *base, case_list *list) {
    decode_program program = {.type = list->type};
    bool ok =
        decode_program_load(&m->device, m->options->program, &program) || bench_fail(m->b, "%s", program.why);
    for (size_t s = 0; ok && s < m->shape_count; s++)
        for (unsigned c = 0; ok && c < CLASSES; c++) {
            const tune_row *rows[ROWS];
            unsigned count = rows_of(m, &list->type, m->shapes[s], classes[c], rows);
            if (!count && base) count = rows_of(m, base, m->shapes[s], classes[c], rows);
            ok = choose(m, &program, m->shapes[s], classes[c], rows, count, list);
        }
    decode_program_close(&program);
    return ok;
}

static bool same_cases(const case_list *a, const case_list *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same = !by_shape(&a->cases[i].shape, &b->cases[i].shape) &&
               !memcmp(&a->cases[i].rows, &b->cases[i].rows, sizeof(row_class)) &&
               !strcmp(a->cases[i].variant, b->cases[i].variant);
    return same;
}

/* ---- a width ---- */

/* The types of this width that were measured, the one that stands for the others first. */
static unsigned types_of(const maker *m, unsigned bits, value_type types[VALUE_TYPES]) {
    value_type all[VALUE_TYPES];
    unsigned count = 0, total = value_types(all);
    for (unsigned beyond = 0; beyond < 2; beyond++)
        for (unsigned i = 0; i < total; i++) {
            bool measured = false;
            if (all[i].bits != bits || is_beyond_half(&all[i]) != beyond) continue;
            for (size_t r = 0; r < m->table->count && !measured; r++)
                measured = !strcmp(m->table->rows[r].type, all[i].name);
            if (measured) types[count++] = all[i];
        }
    return count;
}

static void write_list(const maker *m, const char *keyword, const char *condition, const case_list *list,
                       FILE *out) {
    fprintf(out, "%s %s\n", keyword, condition);
    for (size_t i = 0; i < list->count; i++) {
        const tune_case *c = &list->cases[i];
        fprintf(out,
                ".case " TUNE_ENTRY "_%s if multiprocessors == %u && target == %u && n == %" PRId64
                " && k == %" PRId64,
                c->variant, m->table->multiprocessors, m->table->target, c->shape.n, c->shape.k);
        if (c->rows.above) fprintf(out, " && m > %" PRId64, c->rows.above);
        fprintf(out, " && m <= %" PRId64 " ; %s\n", c->rows.upto, c->note);
    }
}

/* A type whose cases are not those of its width comes before it. */
static void write_width(const maker *m, unsigned bits, const case_list *lists, unsigned count, FILE *out) {
    static const case_list none;
    char condition[64];
    bool first = true;
    const case_list *base = count && !is_beyond_half(&lists[0].type) ? &lists[0] : &none;
    for (unsigned i = 0; i < count; i++) {
        if (&lists[i] == base || same_cases(&lists[i], is_beyond_half(&lists[i].type) ? &none : base))
            continue;
        snprintf(condition, sizeof condition, "WTYPE == %.11s", lists[i].type.name);
        write_list(m, first ? ".if" : ".elif", condition, &lists[i], out);
        first = false;
    }
    snprintf(condition, sizeof condition, "BITS == %u && !AS_BF16", bits);
    if (base->count) write_list(m, first ? ".if" : ".elif", condition, base, out);
    if (base->count || !first) fprintf(out, ".endif\n");
}

static bool make_width(maker *m, unsigned bits, FILE *out) {
    value_type types[VALUE_TYPES];
    case_list lists[VALUE_TYPES] = {0};
    unsigned count = types_of(m, bits, types);
    bool ok = true;
    for (unsigned i = 0; ok && i < count; i++) {
        lists[i].type = types[i];
        bool alone = i == 0 || is_beyond_half(&types[i]) || is_beyond_half(&types[0]);
        ok = make_list(m, alone ? NULL : &types[0], &lists[i]);
    }
    if (ok && out) write_width(m, bits, lists, count, out);
    for (unsigned i = 0; i < count; i++) free(lists[i].cases);
    return ok;
}

/* ---- the file ---- */

static void write_heading(const maker *m, FILE *out) {
    const tune_table *t = m->table;
    fprintf(out,
            "; The cases of " TUNE_ENTRY
            " that were measured: written by bench/tune, not by hand. For all others the rule in\n"
            "; " TUNE_ENTRY ".vasminc chooses. A case is worth more than %g %% of the rule's time.\n",
            m->options->gain);
    if (*t->device) fprintf(out, "; Device: %s, %u multiprocessors.\n", t->device, t->multiprocessors);
    fprintf(out, "; Command: %s\n", m->options->command);
}

static bool write_cases(maker *m, FILE *out) {
    if (out) write_heading(m, out);
    if (!m->table->count) return true;
    if (!bench_open_cpu(&m->device, m->table->multiprocessors, m->table->target, 1))
        return bench_fail(m->b, "%s", m->device.why);
    bool ok = find_shapes(m);
    for (unsigned bits = 1; ok && bits <= WIDTHS; bits++) ok = make_width(m, bits, out);
    return ok;
}

bool tune_cases_write(bench *b, const tune_table *table, const tune_cases_options *options) {
    maker m = {.b = b, .table = table, .options = options};
    tune_file file = {0};
    bool ok = !options->path || tune_file_open(b, options->path, &file);
    ok = ok && write_cases(&m, file.out);
    ok = (!options->path || tune_file_close(b, &file, ok)) && ok;
    bench_close(&m.device);
    free(m.shapes);
    return ok;
}
