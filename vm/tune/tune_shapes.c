/* The shapes file: a line a shape, NAME=VALUE words; `if CONDITION` and `else` begin classes, `check` a shape
 * that is for checking alone. */
#include "tune.h"

#include <stdlib.h>
#include <string.h>

#include "fileio.h"

enum { FILE_LIMIT = 1 << 20 };

/* The words of a shape, then those of --args that it does not name. */
static tvm_status add_words(tune *t, tune_shape *shape, char *line, tvm_diags *diags) {
    char *rest = NULL;
    tvm_status status = TVM_OK;
    for (char *word = strtok_r(line, " \t", &rest); !status && word; word = strtok_r(NULL, " \t", &rest))
        status = tvm_run_is_arg(word)
                     ? tvm_run_args_add(&shape->args, word, diags)
                     : tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "'%.80s' is not NAME=VALUE", word);
    size_t own = shape->args.count;
    for (size_t i = 0; !status && i < t->options.word_count; i++) {
        const char *word = t->options.words[i];
        size_t length = strcspn(word, "=");
        bool named = false;
        for (size_t a = 0; a < own; a++)
            named = named || (strlen(shape->args.items[a].name) == length &&
                              !strncmp(shape->args.items[a].name, word, length));
        if (!named) status = tvm_run_args_add(&shape->args, word, diags);
    }
    return status;
}

static tvm_status add_shape(tune *t, char *line, bool check_only, tvm_diags *diags) {
    if (t->shape_count == TUNE_SHAPES)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "more than %d shapes", TUNE_SHAPES);
    tune_shape *shape = &t->shapes[t->shape_count++];
    *shape = (tune_shape){.class_number = t->class_count ? t->class_count - 1 : 0, .check_only = check_only};
    snprintf(shape->text, sizeof shape->text, "%s", line);
    return add_words(t, shape, line, diags);
}

static tvm_status add_class(tune *t, const char *condition, tvm_diags *diags) {
    if (t->class_count == TUNE_CLASSES)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "more than %d classes", TUNE_CLASSES);
    if (t->class_count && !t->classes[t->class_count - 1][0])
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "what comes after 'else' is never reached");
    if (strlen(condition) >= TUNE_TEXT)
        return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "the condition is longer than %d bytes",
                            TUNE_TEXT - 1);
    snprintf(t->classes[t->class_count++], TUNE_TEXT, "%s", condition);
    return TVM_OK;
}

static tvm_status read_line(tune *t, char *line, tvm_diags *diags) {
    line[strcspn(line, "#\r")] = 0;
    line += strspn(line, " \t");
    for (size_t n = strlen(line); n && strchr(" \t", line[n - 1]);) line[--n] = 0;
    if (!*line) return TVM_OK;
    if (!strncmp(line, "if ", 3)) return add_class(t, line + 3 + strspn(line + 3, " \t"), diags);
    if (!strcmp(line, "else")) return add_class(t, "", diags);
    bool check_only = !strncmp(line, "check ", 6);
    if (!t->class_count && !check_only) {
        tvm_status status = add_class(t, "", diags);
        if (status) return status;
    }
    return add_shape(t, check_only ? line + 6 : line, check_only, diags);
}

tvm_status tune_shapes_read(tune *t, tvm_diags *diags) {
    const char *path = t->options.shapes;
    uint8_t *bytes = NULL;
    size_t size;
    char none[1] = "";
    if (!path) {
        tvm_status status = add_class(t, "", diags);
        return status ? status : add_shape(t, none, false, diags);
    }
    tvm_status status = tvm_file_read(path, FILE_LIMIT, &bytes, &size, diags);
    char *text = status ? NULL : strndup((char *)bytes, size), *rest = text;
    free(bytes);
    if (!status && !text) return tvm_diag_no_memory(diags);
    for (unsigned number = 1; !status && rest; number++) {
        tvm_diags said = {0};
        char *line = strsep(&rest, "\n");
        status = read_line(t, line, &said);
        if (status)
            tvm_diag_add(diags, status, &(tvm_place){.file = path, .line = number}, NULL, "%s",
                         said.count ? said.items[0].message : "out of memory");
        tvm_diags_free(&said);
    }
    free(text);
    bool timed = false;
    for (unsigned s = 0; s < t->shape_count; s++) timed = timed || !t->shapes[s].check_only;
    if (!status && !timed)
        status = tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "%s: no shape to measure", path);
    return status;
}

void tune_shapes_free(tune *t) {
    for (unsigned s = 0; s < t->shape_count; s++) tvm_run_args_free(&t->shapes[s].args);
}
