/* From costs to a variant for each class, and the table that is printed. */
#include "tune.h"

#include <math.h>
#include <string.h>

/* The geometric mean, over the class's shapes, of a variant's cost by that of the one it is compared with
 * (NULL: 1). NAN where it has none of them. */
static double mean_cost(const tune *t, unsigned class_number, const tune_variant *v, const tune_variant *by) {
    double sum = 0;
    unsigned count = 0;
    if (v->state != TUNE_TIMED || (by && by->state != TUNE_TIMED)) return NAN;
    for (unsigned s = 0; s < t->shape_count; s++) {
        if (t->shapes[s].class_number != class_number || t->shapes[s].check_only) continue;
        if (isnan(v->costs[s]) || (by && isnan(by->costs[s]))) return NAN;
        sum += log(fmax(v->costs[s], 1e-9) / (by ? fmax(by->costs[s], 1e-9) : 1));
        count++;
    }
    return count ? exp(sum / count) : NAN;
}

void tune_choose(tune *t) {
    for (unsigned c = 0; c < t->class_count; c++) {
        double least = INFINITY;
        t->chosen[c] = UINT32_MAX;
        for (uint32_t v = 0; v < t->count; v++) {
            double cost = mean_cost(t, c, &t->variants[v], NULL);
            if (!(cost < least)) continue;
            least = cost;
            t->chosen[c] = v;
        }
        t->gains[c] = NAN;
        if (t->chosen[c] == UINT32_MAX) continue;
        t->gains[c] = 100 * (1 - mean_cost(t, c, &t->variants[t->chosen[c]], &t->variants[0]));
        if (t->gains[c] >= t->options.gain || isnan(t->gains[c])) continue;
        t->chosen[c] = 0;
        t->gains[c] = 0;
    }
}

static void print_cost(double cost, tune_cost what, FILE *out) {
    if (isnan(cost))
        fprintf(out, "            -");
    else if (what == TUNE_TIME)
        fprintf(out, " %12.3f", cost);
    else
        fprintf(out, " %12.0f", cost);
}

static void print_class(const tune *t, unsigned c, FILE *out) {
    bool shown = false;
    for (unsigned s = 0; s < t->shape_count; s++) {
        if (t->shapes[s].class_number != c || t->shapes[s].check_only) continue;
        if (!shown) {
            fprintf(out, "%s%s:",
                    t->classes[c][0]     ? "if "
                    : t->class_count > 1 ? "else"
                                         : "all shapes",
                    t->classes[c]);
            if (t->chosen[c] == UINT32_MAX)
                fprintf(out, " no variant is right for all of its shapes\n");
            else if (isnan(t->gains[c]))
                fprintf(out, " %s (the default was not measured)\n", t->variants[t->chosen[c]].label);
            else if (t->chosen[c] == 0)
                fprintf(out, " the default: nothing is %g %% better\n", t->options.gain);
            else
                fprintf(out, " %s, %.1f %% better than the default\n", t->variants[t->chosen[c]].label,
                        t->gains[c]);
            fprintf(out, "  %-38s      default       chosen  %s\n", "shape",
                    tune_cost_units[t->options.cost]);
            shown = true;
        }
        const char *text = t->shapes[s].text[0] ? t->shapes[s].text : "(of --args)";
        if (strlen(text) > 38) fprintf(out, "  %s\n", text);
        fprintf(out, "  %-38s", strlen(text) > 38 ? "" : text);
        print_cost(t->variants[0].state == TUNE_TIMED ? t->variants[0].costs[s] : NAN, t->options.cost, out);
        print_cost(t->chosen[c] == UINT32_MAX ? NAN : t->variants[t->chosen[c]].costs[s], t->options.cost,
                   out);
        fputc('\n', out);
    }
}

tvm_status tune_check_device(const tune *t, tvm_diags *diags) {
    const tune_options *o = &t->options;
    if (t->device.is_gpu || o->cost != TUNE_TIME || o->allow_interpreter || (!o->output && !o->cases))
        return TVM_OK;
    return tvm_diag_add(
        diags, TVM_UNSUPPORTED, NULL,
        "--allow-interpreter writes them all the same; --cost=bytes or instructions counts instead",
        "%s is not written: these are times of the interpreter, whose order is not that of a GPU",
        o->output ? "-o" : "--cases");
}

void tune_print(const tune *t, FILE *out) {
    unsigned counts[TUNE_STATES] = {0};
    for (uint32_t v = 0; v < t->count; v++) counts[t->variants[v].state]++;
    fprintf(out, "%s: %u variants: %u measured, %u dropped, %u wrong, %u failed, %u left\n", t->device.text,
            (unsigned)t->count, counts[TUNE_TIMED], counts[TUNE_DROPPED], counts[TUNE_WRONG],
            counts[TUNE_FAILED], counts[TUNE_WAITING]);
    if (!t->device.is_gpu)
        fprintf(out, "This is the interpreter's order of the variants, which is not that of a GPU.\n");
    for (unsigned c = 0; c < t->class_count; c++) print_class(t, c, out);
    for (uint32_t v = 0; v < t->count; v++)
        if (t->variants[v].state != TUNE_TIMED)
            fprintf(out, "%-8s %s%s%s\n", tune_state_names[t->variants[v].state], t->variants[v].label,
                    t->variants[v].why[0] ? ": " : "", t->variants[v].why);
}
