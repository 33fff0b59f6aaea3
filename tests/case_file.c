#include "case_file.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fileio.h"

static char *duplicate(const char *text, size_t length) {
    char *copy = malloc(length + 1);
    if (copy == NULL) abort();
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

static void append_line(char **text, const char *line, size_t length) {
    size_t old = *text == NULL ? 0 : strlen(*text);
    char *grown = realloc(*text, old + length + 2);
    if (grown == NULL) abort();
    memcpy(grown + old, line, length);
    grown[old + length] = '\n';
    grown[old + length + 1] = '\0';
    *text = grown;
}

static bool add_item(case_item *items, size_t *count, const char *line, size_t length) {
    const char *equals = memchr(line, '=', length);
    if (equals == NULL || *count == CASE_MAX_ITEMS) return false;
    const char *name_end = equals;
    while (name_end > line && name_end[-1] == ' ') name_end--;
    const char *value = equals + 1;
    while (value < line + length && *value == ' ') value++;
    items[*count].name = duplicate(line, (size_t)(name_end - line));
    items[*count].text = duplicate(value, (size_t)(line + length - value));
    (*count)++;
    return true;
}

typedef enum section {
    SECTION_NONE,
    SECTION_PROGRAM,
    SECTION_ERROR,
    SECTION_LAUNCH,
    SECTION_OUT,
    SECTION_REFUSE,
    SECTION_PRINTS,
    SECTION_SANITIZER,
    SECTION_WARNINGS,
    SECTION_PRINTS_GPU
} section;

/* Handles a line that begins with `-- `; returns false when it is not understood. */
static bool open_section(case_file *c, char *words, section *now) {
    char *save = NULL;
    const char *name = strtok_r(words, " ", &save);
    char *word = strtok_r(NULL, " ", &save);
    if (name == NULL) return false;
    if (strcmp(name, "program") == 0)
        *now = SECTION_PROGRAM;
    else if (strcmp(name, "bytecode") == 0 && word != NULL && c->bytecode == NULL)
        *now = SECTION_NONE, c->bytecode = duplicate(word, strlen(word));
    else if (strcmp(name, "error") == 0)
        *now = SECTION_ERROR, c->errors = duplicate("", 0);
    else if (strcmp(name, "prints") == 0)
        *now = SECTION_PRINTS, c->prints = duplicate("", 0);
    else if (strcmp(name, "sanitizer") == 0)
        *now = SECTION_SANITIZER, c->sanitizer = duplicate("", 0);
    else if (strcmp(name, "warnings") == 0)
        *now = SECTION_WARNINGS, c->warnings = duplicate("", 0);
    else if (strcmp(name, "prints-gpu") == 0)
        *now = SECTION_PRINTS_GPU, c->prints_gpu = duplicate("", 0);
    else if (strcmp(name, "trap") == 0)
        *now = SECTION_REFUSE, c->refusal = duplicate("", 0), c->traps = true,
        c->traps_gpu = word != NULL && strcmp(word, "gpu") == 0;
    else if (strcmp(name, "refuse") == 0)
        *now = SECTION_REFUSE, c->refusal = duplicate("", 0);
    else if (strcmp(name, "define") == 0 && word != NULL && c->define_count < CASE_MAX_ITEMS)
        c->defines[c->define_count++] = duplicate(word, strlen(word));
    else if (strcmp(name, "launch") == 0 && word != NULL && c->kernel == NULL)
        *now = SECTION_LAUNCH, c->kernel = duplicate(word, strlen(word));
    else if (strcmp(name, "before") == 0 && word != NULL && c->before == NULL)
        *now = SECTION_NONE, c->before = duplicate(word, strlen(word));
    else if (strcmp(name, "out") == 0 && word != NULL && c->out_count < CASE_MAX_ITEMS) {
        case_item *item = &c->outs[c->out_count++];
        *now = SECTION_OUT;
        item->name = duplicate(word, strlen(word));
        item->text = duplicate("", 0);
        const char *key = strtok_r(NULL, " ", &save), *value = strtok_r(NULL, " ", &save);
        if (key != NULL && (strcmp(key, "tolerance") != 0 || value == NULL)) return false;
        if (key != NULL) item->tolerance = strtod(value, NULL);
    } else
        return false;
    return true;
}

static bool add_line(case_file *c, section now, const char *line, size_t length) {
    bool blank = length == 0 || line[0] == '#';
    switch (now) {
    case SECTION_NONE:
        return blank;
    case SECTION_PROGRAM:
        append_line(&c->program, line, length);
        return true;
    case SECTION_ERROR:
        append_line(&c->errors, line, length);
        return true;
    case SECTION_REFUSE:
        append_line(&c->refusal, line, length);
        return true;
    case SECTION_PRINTS:
        append_line(&c->prints, line, length);
        return true;
    case SECTION_SANITIZER:
        append_line(&c->sanitizer, line, length);
        return true;
    case SECTION_WARNINGS:
        append_line(&c->warnings, line, length);
        return true;
    case SECTION_PRINTS_GPU:
        append_line(&c->prints_gpu, line, length);
        return true;
    case SECTION_LAUNCH:
        return blank || add_item(c->args, &c->arg_count, line, length);
    case SECTION_OUT:
        append_line(&c->outs[c->out_count - 1].text, line, length);
        return true;
    }
    return false;
}

/* Does it say what must come of the program? A case that does not could not fail. */
static bool has_outcome(const case_file *c) {
    if (c->errors != NULL) return *c->errors != '\0';
    if (c->kernel == NULL) return false;
    if (c->sanitizer != NULL) return *c->sanitizer != '\0';
    if (c->refusal != NULL) return *c->refusal != '\0' || c->bytecode != NULL;
    return c->out_count > 0 || (c->prints != NULL && *c->prints != '\0');
}

case_file *case_read(const char *path) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    tvm_diags diags = {0};
    if (tvm_file_read(path, 1 << 20, &bytes, &size, &diags) != TVM_OK) {
        tvm_diags_print(&diags, stderr, "cases", false);
        tvm_diags_free(&diags);
        return NULL;
    }
    case_file *c = calloc(1, sizeof *c);
    if (c == NULL) abort();
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    c->name = duplicate(base, strcspn(base, "."));
    section now = SECTION_NONE;
    unsigned number = 0;
    bool good = true;
    for (char *line = (char *)bytes, *next; good && line < (char *)bytes + size; line = next) {
        size_t length = strcspn(line, "\n");
        next = line + length + 1;
        number++;
        if (length >= 3 && memcmp(line, "-- ", 3) == 0) {
            line[length] = '\0';
            good = open_section(c, line + 3, &now);
        } else
            good = add_line(c, now, line, length);
    }
    if (good && (c->program == NULL) == (c->bytecode == NULL)) good = false;
    if (!good) fprintf(stderr, "%s:%u: not a case file\n", path, number);
    if (good && !has_outcome(c)) {
        fprintf(stderr, "%s: it does not say what must come of the program\n", path);
        good = false;
    }
    free(bytes);
    if (good) return c;
    case_free(c);
    return NULL;
}

void case_free(case_file *c) {
    if (c == NULL) return;
    for (size_t i = 0; i < c->define_count; i++) free(c->defines[i]);
    for (size_t i = 0; i < c->arg_count; i++) free(c->args[i].name), free(c->args[i].text);
    for (size_t i = 0; i < c->out_count; i++) free(c->outs[i].name), free(c->outs[i].text);
    free(c->name), free(c->program), free(c->bytecode), free(c->kernel), free(c->before), free(c->errors),
        free(c->refusal);
    free(c->prints), free(c->prints_gpu), free(c->sanitizer), free(c->warnings), free(c);
}

tvm_status case_assemble(const case_file *c, const char *folder, tvm_ir_program **program, tvm_diags *diags) {
    const char *defines[CASE_MAX_ITEMS];
    for (size_t i = 0; i < c->define_count; i++) defines[i] = c->defines[i];
    tvm_assembler_options options = {
        .defines = defines, .define_count = c->define_count, .include_dirs = &folder, .include_dir_count = 1};
    return tvm_assemble_text(c->program, strlen(c->program), "case.vasm", &options, program, diags);
}

char **case_list(const char *folder) {
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/*.case", folder);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) return NULL;
    char **paths = calloc(found.gl_pathc + 1, sizeof *paths);
    if (paths == NULL) abort();
    for (size_t i = 0; i < found.gl_pathc; i++)
        paths[i] = duplicate(found.gl_pathv[i], strlen(found.gl_pathv[i]));
    globfree(&found);
    return paths;
}

bool case_lines_found(const char *expected, const char *text, const char *name) {
    bool all = true;
    for (const char *line = expected; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        char *one = duplicate(line, length);
        if (length > 0 && strstr(text, one) == NULL) {
            fprintf(stderr, "%s: not said: %s\n---- said:\n%s----\n", name, one, text);
            all = false;
        }
        free(one);
        line += length + (line[length] == '\n');
    }
    return all;
}

/* ---- contents of tensors */

/* Two hexadecimal digits a byte. */
static bool fill_bytes(uint8_t *bytes, size_t count, const char *text) {
    text += strspn(text, " ");
    for (size_t i = 0; i < count; i++, text += 2) {
        char digits[3] = {text[0], text[0] ? text[1] : '\0', '\0'}, *end;
        bytes[i] = (uint8_t)strtoul(digits, &end, 16);
        if (end != digits + 2) return false;
    }
    return text[strspn(text, " \n")] == '\0';
}

/* Codes at random, the same ones for the same number (splitmix64). */
static void fill_noise(tvm_dtype type, uint8_t *bytes, size_t count, const char *text) {
    uint64_t state = strtoull(text, NULL, 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t code = state += 0x9e3779b97f4a7c15u;
        code = (code ^ code >> 30) * 0xbf58476d1ce4e5b9u;
        code = (code ^ code >> 27) * 0x94d049bb133111ebu;
        tvm_bits_set(bytes, i * type.bits, type.bits, (code ^ code >> 31) >> (64u - type.bits));
    }
}

bool case_fill(tvm_dtype type, uint8_t *bytes, size_t count, const char *text) {
    char *rest = NULL;
    double first = 0, step = 0;
    if (strncmp(text, "iota", 4) == 0)
        step = 1;
    else if (strncmp(text, "ramp ", 5) == 0)
        first = strtod(text + 5, &rest), step = strtod(rest, NULL);
    else if (strncmp(text, "noise ", 6) == 0)
        return fill_noise(type, bytes, count, text + 6), true;
    else if (strncmp(text, "fill ", 5) == 0)
        first = strtod(text + 5, NULL);
    else if (strncmp(text, "zeros", 5) != 0) {
        bool codes = strncmp(text, "codes", 5) == 0;
        if (strncmp(text, "bytes", 5) == 0) return fill_bytes(bytes, (count * type.bits + 7) / 8, text + 5);
        const char *at = text + strspn(text, "valuescod");
        for (size_t i = 0; i < count; i++) {
            uint64_t code = codes ? strtoull(at, &rest, 0) : tvm_encode(type, strtod(at, &rest));
            if (rest == at) return false;
            at = rest;
            tvm_bits_set(bytes, i * type.bits, type.bits, code);
        }
        return at[strspn(at, " \n")] == '\0';
    }
    for (size_t i = 0; i < count; i++)
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, first + step * (double)i));
    return true;
}

static bool near_enough(tvm_dtype type, uint64_t got, uint64_t expected, double tolerance) {
    if (got == expected) return true;
    double g = tvm_decode(type, got), e = tvm_decode(type, expected);
    if (g != g && e != e) return true; /* any NaN */
    if (g == e) return tolerance > 0;
    double distance = g > e ? g - e : e - g, scale = e < 0 ? -e : e;
    return distance <= tolerance * (scale > 1 ? scale : 1);
}

bool case_compare(const case_file *c, const case_item *out, tvm_dtype type, const uint8_t *bytes,
                  size_t count) {
    uint8_t *expected = calloc(count * type.bits / 8 + 1, 1);
    if (expected == NULL) abort();
    bool good = case_fill(type, expected, count, out->text);
    if (!good) fprintf(stderr, "%s: out %s: does not give %zu elements\n", c->name, out->name, count);
    unsigned shown = 0;
    for (size_t i = 0; i < count && expected != NULL && (good || shown) && shown < 5; i++) {
        uint64_t g = tvm_bits_get(bytes, i * type.bits, type.bits),
                 e = tvm_bits_get(expected, i * type.bits, type.bits);
        if (near_enough(type, g, e, out->tolerance)) continue;
        fprintf(stderr, "%s: %s: element %zu is %.9g (0x%llx), expected %.9g (0x%llx)\n", c->name, out->name,
                i, tvm_decode(type, g), (unsigned long long)g, tvm_decode(type, e), (unsigned long long)e);
        good = false;
        shown++;
    }
    free(expected);
    return good;
}

/* ---- one launch */

typedef struct launch {
    const case_file *c;
    tvm_context *context;
    tvm_kernel *function;
    size_t count;
    tvm_value values[CASE_MAX_ITEMS];
    tvm_dtype types[CASE_MAX_ITEMS];
    bool tensor[CASE_MAX_ITEMS];
    size_t elements[CASE_MAX_ITEMS], bytes[CASE_MAX_ITEMS];
    const char *names[CASE_MAX_ITEMS];
} launch;

const char *case_argument(const case_file *c, const char *name) {
    for (size_t i = 0; i < c->arg_count; i++)
        if (strcmp(c->args[i].name, name) == 0) return c->args[i].text;
    return NULL;
}

static bool read_params(launch *l) {
    l->count = tvm_param_count(l->function);
    for (size_t i = 0; i < l->count && i < CASE_MAX_ITEMS; i++) {
        tvm_param_info info;
        if (tvm_param(l->function, i, &info) != TVM_OK ||
            !tvm_dtype_parse(info.type, strlen(info.type), &l->types[i]))
            return false;
        l->names[i] = info.name;
        l->tensor[i] = info.is_tensor;
        const char *text = case_argument(l->c, info.name);
        if (text == NULL) {
            fprintf(stderr, "%s: no argument %s\n", l->c->name, info.name);
            return false;
        }
        l->values[i].i = text[0] == '-' ? strtoll(text, NULL, 0) : (int64_t)strtoull(text, NULL, 0);
        l->values[i].f = strtod(text, NULL);
    }
    return true;
}

static bool fill_tensor(launch *l, size_t i, size_t room) {
    uint8_t *host = calloc(room, 1);
    if (host == NULL) abort();
    bool good = case_fill(l->types[i], host, l->elements[i], case_argument(l->c, l->names[i]));
    if (!good)
        fprintf(stderr, "%s: %s: does not give %zu elements\n", l->c->name, l->names[i], l->elements[i]);
    good = good && tvm_memory_alloc(l->context, room, &l->values[i].data) == TVM_OK &&
           tvm_memory_write(l->context, l->values[i].data, host, room) == TVM_OK;
    free(host);
    return good;
}

static tvm_status make_tensors(launch *l) {
    for (size_t i = 0; i < l->count; i++) {
        if (!l->tensor[i]) continue;
        int64_t shape[8];
        tvm_status status = tvm_param_shape(l->function, i, l->values, l->count, shape, &l->bytes[i]);
        if (status != TVM_OK) return status;
        l->elements[i] = l->bytes[i] * 8 / l->types[i].bits;
        l->values[i].bytes = l->bytes[i];
        if (!fill_tensor(l, i, l->bytes[i] + 16)) return TVM_USAGE;
    }
    return TVM_OK;
}

static bool check_outputs(launch *l, case_output *output) {
    bool good = true;
    for (size_t i = 0; i < l->count; i++) {
        if (!l->tensor[i]) continue;
        uint8_t *host = calloc(l->bytes[i] + 16, 1);
        if (host == NULL) abort();
        good = tvm_memory_read(l->context, host, l->values[i].data, l->bytes[i] + 16) == TVM_OK && good;
        for (size_t b = 0; b < 16; b++) /* the 16 bytes behind the tensor were zero */
            if (host[l->bytes[i] + b] != 0) {
                fprintf(stderr, "%s: %s: written beyond its end\n", l->c->name, l->names[i]);
                good = false;
                break;
            }
        for (size_t o = 0; o < l->c->out_count; o++)
            if (strcmp(l->c->outs[o].name, l->names[i]) == 0)
                good = case_compare(l->c, &l->c->outs[o], l->types[i], host, l->elements[i]) && good;
        if (output != NULL)
            output->bytes[i] = host, output->sizes[i] = l->bytes[i];
        else
            free(host);
    }
    return good;
}

/* Launches, with what it prints (the driver writes to the descriptor) kept in a file instead of standard
 * output. */
static tvm_status launch_now(launch *l, FILE *printed) {
    fflush(stdout);
    int out = dup(STDOUT_FILENO);
    if (out < 0 || dup2(fileno(printed), STDOUT_FILENO) < 0) abort();
    tvm_status status = tvm_launchv(l->function, NULL, l->values, l->count);
    if (status == TVM_OK) status = tvm_synchronize(l->context, NULL);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    close(out);
    return status;
}

/* The kernel that the case has come first: its parameters are among the launch's. */
static tvm_status launch_before(const launch *l, tvm_program *code) {
    tvm_kernel *kernel = NULL;
    tvm_value values[CASE_MAX_ITEMS];
    tvm_status status = tvm_get_kernel(code, l->c->before, &kernel);
    size_t count = status == TVM_OK ? tvm_param_count(kernel) : 0;
    for (size_t i = 0; i < count; i++) {
        tvm_param_info info;
        size_t at = 0;
        if (tvm_param(kernel, i, &info) != TVM_OK) return TVM_USAGE;
        while (at < l->count && strcmp(info.name, l->names[at]) != 0) at++;
        if (at == l->count) return TVM_USAGE;
        values[i] = l->values[at];
    }
    return status == TVM_OK ? tvm_launchv(kernel, NULL, values, count) : status;
}

static bool check_printed(const case_file *c, tvm_device_kind device, FILE *printed) {
    static const size_t limit = 1 << 20;
    const char *expected = device == TVM_DEVICE_CUDA ? c->prints_gpu : c->prints;
    if (expected == NULL) return true;
    char *text = calloc(limit, 1);
    if (text == NULL) abort();
    rewind(printed);
    size_t size = fread(text, 1, limit - 1, printed);
    text[size] = '\0';
    bool good = case_lines_found(expected, text, c->name);
    free(text);
    return good;
}

size_t case_count_lines(const char *text, const char *begin) {
    size_t count = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        count += strncmp(line, begin, strlen(begin)) == 0;
    }
    return count;
}

/* What the case says, and no other report. */
static bool check_sanitizer(const case_file *c, tvm_status status, const char *message) {
    static const char begin[] = "case.vasm:";
    if (status != TVM_SANITIZER) fprintf(stderr, "%s: nothing was reported\n", c->name);
    if (status != TVM_SANITIZER || !case_lines_found(c->sanitizer, message, c->name)) return false;
    if (case_count_lines(message, begin) == case_count_lines(c->sanitizer, begin)) return true;
    fprintf(stderr, "%s: other reports, too:\n%s\n", c->name, message);
    return false;
}

bool case_launch(const case_file *c, tvm_context *context, const uint8_t *bytecode, size_t size,
                 case_output *output) {
    launch l = {.c = c, .context = context};
    FILE *printed = tmpfile();
    if (printed == NULL) abort();
    tvm_program *code = NULL;
    tvm_status status = tvm_load(context, bytecode, size, &code);
    if (status == TVM_OK) status = tvm_get_kernel(code, c->kernel, &l.function);
    bool good = status == TVM_OK && read_params(&l);
    if (good) {
        status = make_tensors(&l);
        if (status == TVM_OK && c->before != NULL) status = launch_before(&l, code);
        if (status == TVM_OK) status = launch_now(&l, printed);
    }
    if (output != NULL && status != TVM_OK)
        output->message = duplicate(tvm_message(context), strlen(tvm_message(context)));
    if (good && c->sanitizer != NULL) {
        good = check_sanitizer(c, status, tvm_message(context));
    } else if (good && c->refusal != NULL) {
        good = status != TVM_OK && case_lines_found(c->refusal, tvm_message(context), c->name);
        if (status == TVM_OK) fprintf(stderr, "%s: the launch was not refused\n", c->name);
    } else if (status != TVM_OK) {
        fprintf(stderr, "%s: %s\n", c->name, tvm_message(context));
        good = false;
    } else
        good = good && check_outputs(&l, output) && check_printed(c, tvm_device(context), printed);
    fclose(printed);
    for (size_t i = 0; i < l.count; i++)
        if (l.tensor[i] && l.values[i].data != NULL) tvm_memory_free(context, l.values[i].data);
    tvm_program_free(code);
    return good;
}

void case_output_free(case_output *output) {
    for (size_t i = 0; i < CASE_MAX_ITEMS; i++) free(output->bytes[i]);
    free(output->message);
    memset(output, 0, sizeof *output);
}
