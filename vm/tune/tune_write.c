/* The chosen variants as one program: their kernels under names of their own, and an entry whose cases are
 * the classes. A variant's text is what tvm-dis prints, in a scope of its own. */
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"
#include "language.h"
#include "vbc.h"

static bool is_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* What the entry is called: that of --kernel, or what the program has one of. */
static const char *tuned_name(const tune *t, const tvm_ir_program *program) {
    if (t->options.kernel) return t->options.kernel;
    return tvm_string(program,
                      program->entry_count ? program->entries[0].head.name : program->kernels[0].name);
}

static const tvm_ir_entry *find_entry(const tvm_ir_program *program, const char *name) {
    for (uint32_t e = 0; e < program->entry_count; e++)
        if (!strcmp(tvm_string(program, program->entries[e].head.name), name)) return &program->entries[e];
    return NULL;
}

/* Is a line of the listing one that begins "WORD NAME", with NAME one of the tuned kernels? */
static bool is_kept(const tvm_ir_program *program, const tvm_ir_entry *entry, const char *tuned,
                    const char *name, size_t length) {
    if (!entry) return strlen(tuned) == length && !strncmp(name, tuned, length);
    for (uint32_t c = 0; c < entry->case_count; c++) {
        const char *kernel = tvm_string(program, program->kernels[entry->cases[c].kernel].name);
        if (strlen(kernel) == length && !strncmp(name, kernel, length)) return true;
    }
    return false;
}

/* Copies the layouts and the kernels, the latter renamed. */
static void put_kernels(const tune_variant *v, const tvm_ir_program *program, const char *tuned,
                        const char *listing, tvm_text *out) {
    const tvm_ir_entry *entry = find_entry(program, tuned);
    bool keeps = true;
    tvm_text_add(out, "\n; %s\n.scope\n", v->label);
    for (const char *line = listing; *line; line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");
        if (!strncmp(line, ".vasm", 5)) continue;
        if (!strncmp(line, ".entry", 6)) break;
        if (!strncmp(line, ".kernel ", 8)) {
            size_t name = 0;
            while (is_word(line[8 + name])) name++;
            keeps = is_kept(program, entry, tuned, line + 8, name);
            if (keeps)
                tvm_text_add(out, ".kernel %.*s_%s%.*s\n", (int)name, line + 8, v->suffix,
                             (int)(length - 8 - name), line + 8 + name);
        } else if (keeps && length) {
            tvm_text_add(out, "%.*s\n", (int)length, line);
        }
        if (!strncmp(line, ".end\n", 5)) keeps = true;
        if (!line[length]) break;
    }
    tvm_text_puts(out, ".endscope\n");
}

/* "; m=1: 3.20 of 4.00 us" */
static void put_costs(const tune *t, unsigned c, tvm_text *out) {
    const char *before = ";";
    if (c == t->class_count) tvm_text_puts(out, "; for all else, not measured");
    for (unsigned s = 0; s < t->shape_count; s++) {
        if (t->shapes[s].class_number != c || t->shapes[s].check_only) continue;
        double best = t->variants[t->chosen[c]].costs[s];
        double usual = t->variants[0].state == TUNE_TIMED ? t->variants[0].costs[s] : NAN;
        tvm_text_add(out, "%s %s: %.4g of %.4g %s", before, t->shapes[s].text, best, usual,
                     tune_cost_units[t->options.cost]);
        before = ",";
    }
    tvm_text_puts(out, "\n");
}

/* How much of what follows a case's kernel comes before its cost: the word that follows an operand. A
 * parameter of that name follows an operator. */
static size_t before_cost(const char *text, size_t length) {
    static const char word[] = " cost ";
    for (size_t i = 0; i + sizeof word - 1 <= length; i++)
        if (!strncmp(text + i, word, sizeof word - 1) &&
            (i == 0 || is_word(text[i - 1]) || text[i - 1] == ')'))
            return i;
    return length;
}

static bool has_costs(const tvm_ir_entry *entry) {
    for (uint32_t c = 0; entry && c < entry->case_count; c++)
        if (entry->cases[c].cost != TVM_NONE) return true;
    return false;
}

/* The cases of the tuned entry, each with one condition more (""): kernels with the suffix in their names.
 * Where they have costs, a case without one, which never holds, keeps them apart from the cases that follow.
 */
static void put_entry(const char *listing, const char *tuned, const char *suffix, const char *where,
                      tvm_text *out) {
    char head[TUNE_TEXT];
    snprintf(head, sizeof head, "\n.entry %s\n", tuned);
    const char *line = strstr(listing, head), *last = "";
    bool costs = false;
    size_t name = 6;
    for (line = line ? line + strlen(head) : ""; !strncmp(line, ".case ", 6);
         line += strcspn(line, "\n") + 1) {
        size_t length = strcspn(line, "\n");
        for (name = 6, last = line; is_word(line[name]);) name++;
        tvm_text_add(out, "%.*s%s%s", (int)name, line, *suffix ? "_" : "", suffix);
        size_t end = name + before_cost(line + name, length - name);
        bool has = !strncmp(line + name, " if ", 4);
        if (has || where[0]) tvm_text_add(out, " if %s", where);
        if (has && where[0]) tvm_text_add(out, " && (%.*s)", (int)(end - name - 4), line + name + 4);
        if (has && !where[0]) tvm_text_add(out, "%.*s", (int)(end - name - 4), line + name + 4);
        tvm_text_add(out, "%.*s\n", (int)(length - end), line + end);
        costs = costs || end < length;
        if (!line[length]) break;
    }
    if (costs) tvm_text_add(out, "%.*s%s%s if target < 0\n", (int)name, last, *suffix ? "_" : "", suffix);
}

enum { WHERE = TUNE_TEXT + 64 };

/* The condition of a class on the device that it was measured on: of its target, or of this very size, too.
 */
static const char *condition_of(const tune *t, unsigned c, bool sized, char where[WHERE]) {
    int at = 0;
    where[0] = 0;
    if (t->device.is_gpu && sized)
        at = snprintf(where, WHERE, "multiprocessors == %u && ", t->device.multiprocessors);
    if (t->device.is_gpu) at += snprintf(where + at, WHERE - (size_t)at, "target == %u", t->device.target);
    if (t->classes[c][0]) snprintf(where + at, WHERE - (size_t)at, "%s(%s)", at ? " && " : "", t->classes[c]);
    return where;
}

/* The cases of a class (beyond the last: the default, for all else): of a kernel one, of an entry each of its
 * own that the class's condition allows, too. */
static void put_cases(const tune *t, unsigned c, uint32_t number, const tvm_ir_program *program,
                      const char *tuned, const char *listing, tvm_text *out) {
    const tune_variant *v = &t->variants[number];
    char where[WHERE] = "";
    if (c < t->class_count) condition_of(t, c, false, where);
    if (!find_entry(program, tuned)) {
        tvm_text_add(out, ".case %s_%s%s%s", tuned, v->suffix, where[0] ? " if " : "", where);
        tvm_text_puts(out, " ");
        put_costs(t, c, out);
        return;
    }
    put_costs(t, c, out);
    put_entry(listing, tuned, v->suffix, where, out);
}

/* Is there a launch that none of the cases is for? */
static bool has_condition(const tune *t) {
    return t->device.is_gpu || t->classes[t->class_count - 1][0];
}

static tvm_status read_variant(const tune *t, uint32_t v, tvm_ir_program **program, char **listing,
                               tvm_diags *diags) {
    char path[TUNE_TEXT];
    *listing = NULL;
    tvm_status status = tvm_vbc_read_file(tune_path(t, v, path), program, diags);
    if (!status) tvm_ir_program_drop_images(*program);
    return status ? status : tvm_disassemble(*program, listing, diags);
}

/* The variants that are chosen, each once, and the default behind all cases where the last class has a
 * condition. */
static tvm_status put_program(const tune *t, tvm_text *out, tvm_diags *diags) {
    tvm_text cases = {0}, kernels = {0};
    char tuned[TUNE_TEXT] = "";
    tvm_status status = TVM_OK;
    unsigned language = 3;
    bool falls_back = has_condition(t) && t->variants[0].state == TUNE_TIMED;
    for (unsigned c = 0; !status && c < t->class_count + falls_back; c++) {
        uint32_t v = c < t->class_count ? t->chosen[c] : 0;
        tvm_ir_program *program = NULL;
        char *listing = NULL;
        if (v == UINT32_MAX) continue;
        bool again = false;
        for (unsigned b = 0; b < c; b++) again = again || t->chosen[b] == v;
        status = read_variant(t, v, &program, &listing, diags);
        if (!status) {
            snprintf(tuned, sizeof tuned, "%s", tuned_name(t, program));
            if (has_costs(find_entry(program, tuned))) language = TVM_LANGUAGE_OF_COSTS;
            if (!again) put_kernels(&t->variants[v], program, tuned, listing, &kernels);
            put_cases(t, c, v, program, tuned, listing, &cases);
        }
        free(listing);
        tvm_ir_program_free(program);
    }
    if (!status && !cases.size)
        status = tvm_diag_add(diags, TVM_INVALID, NULL, NULL,
                              "no class has a variant that is right: nothing to write");
    tvm_text_add(
        out,
        "; The best variants of '%s' that tvm-tune found on %s,\n; by %s. Written by tvm-tune, not by hand.\n",
        t->options.input, t->device.text, tune_cost_names[t->options.cost]);
    tvm_text_add(out, ".vasm %u\n", language);
    tvm_text_append(out, &kernels);
    tvm_text_add(out, "\n.entry %s\n", tuned);
    tvm_text_append(out, &cases);
    tvm_text_puts(out, ".end\n");
    tvm_text_free(&kernels);
    tvm_text_free(&cases);
    return status ? status : out->failed ? tvm_diag_no_memory(diags) : TVM_OK;
}

bool tune_writes_bytecode(const char *path) {
    size_t length = strlen(path);
    return length > 4 && !strcmp(path + length - 4, ".vbc");
}

tvm_status tune_write(const tune *t, tvm_diags *diags) {
    const char *path = t->options.output;
    tvm_text text = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = put_program(t, &text, diags);
    /* Assembled also where text is written: what is handed out must be right. */
    if (!status) status = tvm_assemble_text(text.data, text.size, "tuned", NULL, &program, diags);
    if (!status && tune_writes_bytecode(path))
        status = tvm_vbc_write_file(program, path, 0, diags);
    else if (!status)
        status = tvm_file_write(path, text.data, text.size, diags);
    tvm_ir_program_free(program);
    tvm_text_free(&text);
    return status;
}

/* ---- cases for the program itself ---- */

/* A kernel's text in a listing, from .kernel to .end; NULL: it has none of that name. */
static const char *find_kernel(const char *listing, const char *name, size_t *size) {
    char head[TUNE_TEXT];
    snprintf(head, sizeof head, "\n.kernel %s(", name);
    const char *at = strstr(listing, head), *end = at ? strstr(at, "\n.end\n") : NULL;
    if (end) *size = (size_t)(end - at);
    return end ? at : NULL;
}

/* Are the kernels of the variant's entry the program's own, so that its cases can name them? */
static tvm_status check_own(const tvm_ir_program *program, const char *tuned, const char *listing,
                            const char *usual, tvm_diags *diags) {
    const tvm_ir_entry *entry = find_entry(program, tuned);
    if (!entry)
        return tvm_diag_add(diags, TVM_INVALID, NULL, "-o writes the kernels, too",
                            "--cases: '%s' is a kernel; only an entry has cases", tuned);
    for (uint32_t c = 0; c < entry->case_count; c++) {
        const char *name = tvm_string(program, program->kernels[entry->cases[c].kernel].name);
        size_t size = 0, other = 0;
        const char *own = find_kernel(listing, name, &size), *from = find_kernel(usual, name, &other);
        if (!own || !from || size != other || memcmp(own, from, size) != 0)
            return tvm_diag_add(diags, TVM_INVALID, NULL, "-o writes the kernels, too",
                                "--cases: kernel '%s' of a variant is not the default's", name);
    }
    return TVM_OK;
}

/* For each class in which a variant is better than the default. */
static tvm_status put_own_cases(const tune *t, const char *usual, tvm_text *out, tvm_diags *diags) {
    tvm_status status = TVM_OK;
    for (unsigned c = 0; !status && c < t->class_count; c++) {
        uint32_t v = t->chosen[c];
        tvm_ir_program *program = NULL;
        char *listing = NULL, where[WHERE];
        if (v == UINT32_MAX || v == 0 || isnan(t->gains[c])) continue;
        status = read_variant(t, v, &program, &listing, diags);
        const char *tuned = status ? "" : tuned_name(t, program);
        if (!status) status = check_own(program, tuned, listing, usual, diags);
        if (!status) {
            put_costs(t, c, out);
            put_entry(listing, tuned, "", condition_of(t, c, true, where), out);
        }
        free(listing);
        tvm_ir_program_free(program);
    }
    return status;
}

tvm_status tune_cases_write(const tune *t, tvm_diags *diags) {
    tvm_text text = {0};
    tvm_ir_program *program = NULL;
    char *usual = NULL;
    bool compares = t->variants[0].state == TUNE_TIMED; /* else nothing is known to be better */
    tvm_status status = compares ? read_variant(t, 0, &program, &usual, diags) : TVM_OK;
    tvm_ir_program_free(program);
    tvm_text_add(
        &text, "; The cases of '%s' that tvm-tune found on %s,\n; by %s. Written by tvm-tune, not by hand.\n",
        t->options.input, t->device.text, tune_cost_names[t->options.cost]);
    if (!status && compares) status = put_own_cases(t, usual, &text, diags);
    if (!status && text.failed) status = tvm_diag_no_memory(diags);
    if (!status) status = tvm_file_write(t->options.cases, text.data, text.size, diags);
    tvm_text_free(&text);
    free(usual);
    return status;
}
