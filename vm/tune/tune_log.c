/* The log of a run in JSON, from which a later run takes the results. */
#include "tune.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"

enum { LOG_VERSION = 1, LOG_LIMIT = 256 << 20 };

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
                              json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:i, s:o}", "point", x->label,
                                        "state", tune_state_names[x->state], "why", x->why, "registers",
                                        x->registers, "spilled", (json_int_t)x->spilled, "shared",
                                        (json_int_t)x->shared, "rank", x->rank, "costs", costs_json(t, x)));
    }
    json_t *log =
        json_pack("{s:i, s:s, s:s, s:s, s:b, s:i, s:i, s:s, s:s, s:o, s:o}", "version", LOG_VERSION,
                  "program", t->options.input, "kernel", t->options.kernel ? t->options.kernel : "", "device",
                  t->device.text, "gpu", t->device.is_gpu, "target", (int)t->device.target, "multiprocessors",
                  (int)t->device.multiprocessors, "cost", tune_cost_names[t->options.cost], "unit",
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

/* The device that the log's times are of. */
static void read_device(tune *t, const json_t *log) {
    const char *text = json_string_value(json_object_get(log, "device"));
    t->device = (tune_device){.target = (unsigned)json_integer_value(json_object_get(log, "target")),
                              .multiprocessors =
                                  (unsigned)json_integer_value(json_object_get(log, "multiprocessors")),
                              .is_gpu = json_is_true(json_object_get(log, "gpu"))};
    snprintf(t->device.text, sizeof t->device.text, "%s", text ? text : "a device without a name");
}

tvm_status tune_log_read(tune *t, const char *path, tvm_diags *diags) {
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
    if (!status && t->options.from) read_device(t, log);
    json_decref(log);
    return status;
}
