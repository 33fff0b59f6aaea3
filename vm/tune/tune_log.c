/* The log of a run in JSON, from which a later run takes what is known, and the picture of the costs. */
#include "tune.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"

enum { LOG_VERSION = 1, LOG_LIMIT = 256 << 20, BAR = 420, LEFT = 330, ROW = 16, TOP = 40 };

static json_t *costs_json(const tune *t, const tune_variant *v) {
    json_t *costs = json_array();
    for (unsigned s = 0; s < t->shape_count; s++)
        json_array_append_new(costs, isnan(v->costs[s]) ? json_null() : json_real(v->costs[s]));
    return costs;
}

static json_t *shapes_json(const tune *t) {
    json_t *shapes = json_array();
    for (unsigned s = 0; s < t->shape_count; s++)
        json_array_append_new(shapes, json_pack("{s:s, s:b, s:s}", "arguments", t->shapes[s].text, "check",
                                                t->shapes[s].check_only, "class",
                                                t->classes[t->shapes[s].class_number]));
    return shapes;
}

tvm_status tune_log_write(const tune *t, tvm_diags *diags) {
    json_t *variants = json_array();
    for (uint32_t v = 0; v < t->count; v++) {
        const tune_variant *x = &t->variants[v];
        json_array_append_new(variants,
                              json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:o}", "point", x->label, "state",
                                        tune_state_names[x->state], "why", x->why, "registers", x->registers,
                                        "spilled", (json_int_t)x->spilled, "shared", (json_int_t)x->shared,
                                        "costs", costs_json(t, x)));
    }
    json_t *log = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "version", LOG_VERSION, "program",
                            t->options.input, "kernel", t->options.kernel ? t->options.kernel : "", "device",
                            t->device, "cost", tune_cost_names[t->options.cost], "unit",
                            tune_cost_units[t->options.cost], "shapes", shapes_json(t), "variants", variants);
    char *text = log ? json_dumps(log, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    tvm_status status =
        text ? tvm_file_write(t->options.log, text, strlen(text), diags) : tvm_diag_no_memory(diags);
    free(text);
    json_decref(log);
    return status;
}

/* ---- --resume ---- */

static tune_variant *find_variant(tune *t, const char *label) {
    for (uint32_t v = 0; label && v < t->count; v++)
        if (!strcmp(t->variants[v].label, label)) return &t->variants[v];
    return NULL;
}

/* What was measured, or shown to be wrong, is known; what failed or was left out is tried again. */
static bool read_variant(tune *t, const json_t *from) {
    tune_variant *v = find_variant(t, json_string_value(json_object_get(from, "point")));
    const char *state = json_string_value(json_object_get(from, "state"));
    const char *why = json_string_value(json_object_get(from, "why"));
    const json_t *costs = json_object_get(from, "costs");
    if (!state || !why || json_array_size(costs) != t->shape_count) return false;
    if (!v) return true; /* the space has become another */
    bool timed = !strcmp(state, tune_state_names[TUNE_TIMED]),
         wrong = !strcmp(state, tune_state_names[TUNE_WRONG]);
    if (!timed && !wrong) return true;
    v->state = timed ? TUNE_TIMED : TUNE_WRONG;
    v->measured = true;
    snprintf(v->why, sizeof v->why, "%s", why);
    v->registers = (int)json_integer_value(json_object_get(from, "registers"));
    v->spilled = json_integer_value(json_object_get(from, "spilled"));
    for (unsigned s = 0; s < t->shape_count; s++) {
        const json_t *cost = json_array_get(costs, s);
        double value = json_is_number(cost) ? json_number_value(cost) : NAN;
        v->costs[s] = value >= 0 ? value : NAN;
    }
    return true;
}

static bool same_shapes(const tune *t, const json_t *shapes) {
    if (json_array_size(shapes) != t->shape_count) return false;
    for (unsigned s = 0; s < t->shape_count; s++) {
        const char *text = json_string_value(json_object_get(json_array_get(shapes, s), "arguments"));
        if (!text || strcmp(text, t->shapes[s].text)) return false;
    }
    return true;
}

tvm_status tune_log_read(tune *t, tvm_diags *diags) {
    const char *path = t->options.resume;
    const tvm_place place = {.file = path};
    uint8_t *bytes = NULL;
    size_t size, i;
    json_error_t error;
    json_t *variant;
    tvm_status status = tvm_file_read(path, LOG_LIMIT, &bytes, &size, diags);
    if (status) return status;
    json_t *log = json_loadb((char *)bytes, size, 0, &error);
    free(bytes);
    const char *cost = json_string_value(json_object_get(log, "cost"));
    if (!log)
        status =
            tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "no JSON: line %d: %s", error.line, error.text);
    else if (json_integer_value(json_object_get(log, "version")) != LOG_VERSION)
        status = tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "no log of tvm-tune");
    else if (!cost || strcmp(cost, tune_cost_names[t->options.cost]))
        status = tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "a log of other costs");
    else if (!same_shapes(t, json_object_get(log, "shapes")))
        status = tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "a log of other shapes");
    json_array_foreach(status ? NULL : json_object_get(log, "variants"), i,
                       variant) if (!status && !read_variant(t, variant)) status =
        tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "variant %zu is damaged", i);
    json_decref(log);
    return status;
}

/* ---- the picture ---- */

static void put_escaped(tvm_text *out, const char *text) {
    for (; *text; text++) {
        const char *as = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
        if (as)
            tvm_text_puts(out, as);
        else
            tvm_text_bytes(out, text, 1);
    }
}

static void put_row(const tune *t, const tune_variant *v, unsigned shape, double most, bool chosen,
                    unsigned y, tvm_text *out) {
    double cost = v->state == TUNE_TIMED ? v->costs[shape] : NAN;
    tvm_text_add(out, "<text x=\"%d\" y=\"%u\" text-anchor=\"end\"%s>", LEFT - 6, y + 12,
                 chosen ? " font-weight=\"bold\"" : "");
    put_escaped(out, v->label);
    tvm_text_puts(out, "</text>");
    double width = isnan(cost) || most <= 0 ? 0 : BAR * cost / most;
    if (!isnan(cost))
        tvm_text_add(out, "<rect x=\"%d\" y=\"%u\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>", LEFT, y + 2,
                     width, ROW - 4,
                     chosen             ? "#009e73"
                     : v == t->variants ? "#e69f00"
                                        : "#56b4e9");
    tvm_text_add(out, "<text x=\"%.1f\" y=\"%u\"%s>", LEFT + width + 4, y + 12,
                 isnan(cost) ? " fill=\"#c00\"" : "");
    if (isnan(cost))
        tvm_text_puts(out, v->state == TUNE_TIMED ? "not for this shape" : tune_state_names[v->state]);
    else
        tvm_text_add(out, "%.4g", cost);
    tvm_text_puts(out, "</text>\n");
}

tvm_status tune_svg_write(const tune *t, tvm_diags *diags) {
    tvm_text body = {0}, out = {0};
    unsigned y = TOP;
    for (unsigned s = 0; s < t->shape_count; s++) {
        double most = 0;
        if (t->shapes[s].check_only) continue;
        unsigned c = t->shapes[s].class_number;
        for (uint32_t v = 0; v < t->count; v++)
            if (t->variants[v].state == TUNE_TIMED) most = fmax(most, t->variants[v].costs[s]);
        tvm_text_add(&body, "<text x=\"12\" y=\"%u\" font-weight=\"bold\">", y + 12);
        put_escaped(&body, t->shapes[s].text[0] ? t->shapes[s].text : "all shapes");
        tvm_text_add(&body, ", %s</text>\n", tune_cost_units[t->options.cost]);
        y += ROW + 4;
        for (uint32_t v = 0; v < t->count; v++, y += ROW)
            put_row(t, &t->variants[v], s, most, v == t->chosen[c], y, &body);
        y += ROW;
    }
    tvm_text_add(
        &out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" font-family=\"sans-serif\" "
        "font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "<text x=\"12\" y=\"24\" font-size=\"14\">",
        LEFT + BAR + 120, y + 12);
    put_escaped(&out, t->options.input);
    tvm_text_puts(&out, " on ");
    put_escaped(&out, t->device);
    tvm_text_puts(&out, ": green is chosen, orange the default</text>\n");
    tvm_text_append(&out, &body);
    tvm_text_puts(&out, "</svg>\n");
    tvm_text_free(&body);
    tvm_status status =
        out.failed ? tvm_diag_no_memory(diags) : tvm_file_write(t->options.svg, out.data, out.size, diags);
    tvm_text_free(&out);
    return status;
}
