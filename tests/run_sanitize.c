/* The sanitizer: finds what is wrong in the cases of tests/cases/sanitizer, each of which has a mistake, and
 * nothing in all other cases nor in the shipped programs.
 *
 *   run_sanitize [CASE...]      without arguments: all of them */
#include <glob.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "case_file.h"
#include "fileio.h"
#include "shipped_launch.h"
#include "vbc.h"
#include "language.h"
#include "warnings.h"

static unsigned passed, bad;

static void count(bool good, const char *what) {
    passed += good;
    bad += !good;
    if (!good) printf("FAIL: %s\n", what);
}

/* target: that launches see. */
static tvm_context *open_context(tvm_sanitize sanitize, unsigned target) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2, .cache_dir = "", .target = target};
    tvm_context *context = NULL;
    if (tvm_context_create(&options, &context) != TVM_OK || tvm_set_sanitizer(context, sanitize) != TVM_OK)
        abort();
    return context;
}

/* ---- cases ---- */

static bool has_faults(const case_file *c) {
    return c->errors != NULL || c->refusal != NULL || c->kernel == NULL;
}

/* What tvm-as says of a program with all warnings; without `expected` it says nothing. */
static bool check_warnings(const tvm_ir_program *program, const char *expected, const char *name) {
    static const char begin[] = "case.vasm:";
    tvm_diags diags = {0};
    char *text = NULL;
    size_t size = 0;
    tvm_warnings chosen = {0};
    bool good = tvm_warnings_choose(&chosen, "race") && tvm_warnings_choose(&chosen, "no-prove") &&
                tvm_warnings_find(program, &chosen, TVM_LANGUAGE_VERSION, &diags) == TVM_OK;
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL) abort();
    tvm_diags_print(&diags, stream, name, false);
    fclose(stream);
    if (expected == NULL) {
        good = good && diags.count == 0;
        if (!good) fprintf(stderr, "%s: warnings:\n%s", name, text);
    } else {
        good = good && case_lines_found(expected, text, name) &&
               diags.count == case_count_lines(expected, begin);
    }
    free(text);
    tvm_diags_free(&diags);
    return good;
}

/* Is a report of a kind that there is, and of this line? */
static bool is_report(const json_t *report, long line) {
    static const char *const kinds[] = {
#define SAN_KIND(id, name, text) name,
#include "sanitize_kinds.def"
    };
    const char *kind = json_string_value(json_object_get(report, "kind"));
    const json_t *place = json_object_get(report, "place");
    bool known = false;
    for (size_t i = 0; kind != NULL && i < sizeof kinds / sizeof *kinds; i++)
        known = known || strcmp(kind, kinds[i]) == 0;
    return known && json_integer_value(json_object_get(place, "line")) == line &&
           json_string_value(json_object_get(report, "message")) != NULL;
}

/* The reports as JSON are those of the text, in its order. */
static bool check_json(case_file *c, const uint8_t *bytes, size_t size) {
    static const char begin[] = "case.vasm:";
    static char none[] = "";
    char *expected = c->sanitizer;
    tvm_context *context = open_context(TVM_SANITIZE_JSON, 0);
    case_output output = {.message = NULL};
    c->sanitizer = none; /* no line of text is */
    bool good = case_launch(c, context, bytes, size, &output);
    c->sanitizer = expected;
    const char *message = output.message != NULL ? output.message : "";
    json_t *document = json_loads(message, 0, NULL), *all = json_object_get(document, "reports");
    good = good && json_is_integer(json_object_get(document, "lost")) &&
           json_array_size(all) == case_count_lines(expected, begin);
    size_t i = 0;
    for (const char *line = expected; good && line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, begin, strlen(begin)) != 0) continue;
        good = is_report(json_array_get(all, i++), strtol(line + strlen(begin), NULL, 10));
    }
    if (!good) fprintf(stderr, "%s: as JSON: %s\n", c->name, message);
    case_output_free(&output);
    json_decref(document);
    tvm_context_free(context);
    return good;
}

static bool run_case(const char *path, const char *folder, bool wrong) {
    case_file *c = case_read(path);
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (c == NULL) return false;
    bool good = has_faults(c) && !wrong;
    if (!good) {
        good = case_assemble(c, folder, &program, &diags) == TVM_OK &&
               tvm_vbc_write(program, true, &bytes, &size, &diags) == TVM_OK;
        if (!good) tvm_diags_print(&diags, stderr, path, false);
        good = good && check_warnings(program, c->warnings, c->name);
        tvm_context *context = open_context(TVM_SANITIZE_TEXT, 0);
        good = good && case_launch(c, context, bytes, size, NULL);
        tvm_context_free(context);
        if (wrong) good = good && check_json(c, bytes, size);
    }
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
    free(bytes);
    case_free(c);
    return good;
}

static void run_cases(char **paths, const char *folder, bool wrong) {
    for (char **path = paths; path != NULL && *path != NULL; path++)
        count(run_case(*path, folder, wrong), *path);
}

static void free_paths(char **paths) {
    for (char **path = paths; path != NULL && *path != NULL; path++) free(*path);
    free(paths);
}

/* ---- shipped programs ---- */

enum { MOST_KERNELS = 128 };

/* TVM_ARGUMENT: no size serves it. */
static tvm_status launch_kernel(tvm_context *context, tvm_kernel *kernel, unsigned times) {
    tvm_status status = TVM_ARGUMENT;
    for (size_t s = 0; s < SHIPPED_SIZES && status == TVM_ARGUMENT; s++)
        status = shipped_launch_kernel(context, kernel, &shipped_sizes[s], times, false);
    return status;
}

/* A program as it is assembled. */
typedef struct shipped_text {
    const char *folder, *path, *define; /* NAME=VALUE, or NULL */
    uint8_t *text;
    size_t size;
    bool waits; /* a kernel may begin before the launch ahead of it has ended */
} shipped_text;

static bool waits(const tvm_ir_program *program) {
    for (uint32_t k = 0; k < program->kernel_count; k++)
        for (uint32_t i = 0; i < program->kernels[k].insn_count; i++)
            if (program->kernels[k].insns[i].op == TVM_OP_WAIT_DEPENDENCY) return true;
    return false;
}

/* No variant has a warning. */
static bool is_silent(shipped_text *t) {
    tvm_ir_program *program = NULL;
    tvm_assembler_options options = {.include_dirs = &t->folder,
                                     .include_dir_count = 1,
                                     .defines = &t->define,
                                     .define_count = t->define != NULL};
    const char *text = (const char *)t->text;
    bool good = tvm_assemble_text(text, t->size, t->path, &options, &program, NULL) == TVM_OK &&
                check_warnings(program, NULL, t->path);
    t->waits = good && waits(program);
    tvm_ir_program_free(program);
    return good;
}

/* Those of the program's kernels that serve the target; *count: of all. */
static bool run_kernels(const shipped_text *t, unsigned target, bool *ran, size_t *count) {
    tvm_context *context = open_context(TVM_SANITIZE_TEXT, target);
    tvm_program *program = NULL;
    const tvm_assemble_options options = {.name = t->path,
                                          .include_dirs = &t->folder,
                                          .include_dir_count = 1,
                                          .defines = &t->define,
                                          .define_count = t->define != NULL};
    bool good = tvm_assemble(context, (const char *)t->text, t->size, &options, &program) == TVM_OK;
    if (!good) fprintf(stderr, "%s: %s\n", t->path, tvm_message(context));
    *count = tvm_kernel_count(program);
    for (size_t i = 0; good && i < *count && i < MOST_KERNELS; i++) {
        tvm_status status =
            ran[i] ? TVM_OK : launch_kernel(context, tvm_kernel_at(program, i), t->waits ? 2 : 1);
        ran[i] = status == TVM_OK;
        good = status == TVM_OK || status == TVM_ARGUMENT;
    }
    tvm_program_free(program);
    tvm_context_free(context);
    return good;
}

static void run_program(const char *folder, const char *name, const char *define) {
    static const unsigned targets[] = {90, 80, 100, 89, 120};
    char path[4200];
    shipped_text text = {.folder = folder, .path = path, .define = define};
    size_t kernels = 0;
    bool ran[MOST_KERNELS] = {false};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    bool good = tvm_file_read(path, 1 << 20, &text.text, &text.size, NULL) == TVM_OK && is_silent(&text);
    for (size_t t = 0; good && t < sizeof targets / sizeof *targets; t++)
        good = run_kernels(&text, targets[t], ran, &kernels);
    for (size_t i = 0; i < kernels; i++) {
        if (!good || (i < MOST_KERNELS && ran[i])) continue;
        fprintf(stderr, "%s: no size serves kernel %zu\n", path, i);
        good = false;
    }
    free(text.text);
    if (define != NULL) snprintf(path + strlen(path), sizeof path - strlen(path), " with %s", define);
    count(good && kernels, path);
}

static void run_programs(const char *folder) {
    static const char *const defined[][2] = {{"attention.vasm", "PAGE=16"},
                                             {"attention.vasm", "T=f8_e4m3"},
                                             {"attention_decode.vasm", "KTYPE=u4"},
                                             {"kv_append.vasm", "KTYPE=u4"},
                                             {"matmul_lowbit_u4.vasm", "EXPERTS=true"},
                                             {"matmul_scaled.vasm", "GROUP=32"},
                                             {"matmul_scaled.vasm", "TB=f4_e2m1"},
                                             {"matmul_lowbit_a8.vasm", "EXPERTS=true"},
                                             {"matmul_scaled.vasm", "EXPERTS=true"},
                                             {"matmul_scaled.vasm", "BY_GROUP=true"}};
    glob_t found;
    char pattern[4200];
    snprintf(pattern, sizeof pattern, "%s/*.vasm", folder);
    if (glob(pattern, 0, NULL, &found) != 0) abort();
    for (size_t i = 0; i < found.gl_pathc; i++)
        run_program(folder, strrchr(found.gl_pathv[i], '/') + 1, NULL);
    globfree(&found);
    for (size_t i = 0; i < sizeof defined / sizeof *defined; i++)
        run_program(folder, defined[i][0], defined[i][1]);
}

/* ---- launches of one stream ---- */

/* Launches kernels by their letters in one context; 'S': tvm_synchronize; a digit: the stream from then on.
 */
static tvm_status run_chain(const char *chain) {
    static const char text[] =
        ".vasm 3\n"
        ".kernel w(x: global i32[32])\n.warps 1\n.grid 1\n"
        "store-global x[0], iota(i32[32], 0, layout spatial(32))\nwait-dependency\n.end\n"
        ".kernel r(x: global i32[32])\n.warps 1\n.grid 1\n"
        "wait-dependency\nstore-global x[0], load-global(x[0], spatial(32)) + 1\n.end\n"
        ".kernel p(x: global i32[32])\n.warps 1\n.grid 1\n"
        "store-global x[0], load-global(x[0], spatial(32)) + 1\n.end\n";
    static int streams[10];
    tvm_context *context = open_context(TVM_SANITIZE_TEXT, 0);
    tvm_program *program = NULL;
    tvm_kernel *kernel = NULL;
    void *stream = NULL;
    tvm_value x = {.bytes = 128};
    if (tvm_assemble(context, text, strlen(text), NULL, &program) != TVM_OK ||
        tvm_memory_alloc(context, 128, &x.data) != TVM_OK)
        abort();
    memset(x.data, 0, 128);
    tvm_status status = TVM_OK;
    for (; *chain && status == TVM_OK; chain++) {
        const char name[2] = {*chain, '\0'};
        if (*chain >= '0' && *chain <= '9')
            stream = &streams[*chain - '0'];
        else if (*chain == 'S')
            status = tvm_synchronize(context, stream);
        else if ((status = tvm_get_kernel(program, name, &kernel)) == TVM_OK)
            status = tvm_launchv(kernel, stream, &x, 1);
    }
    tvm_memory_free(context, x.data);
    tvm_program_free(program);
    tvm_context_free(context);
    return status;
}

static void run_chains(void) {
    static const char *const right[] = {"w", "rSw", "r0w1w", "rp", "rrrp", "wSw"}, *const wrong[] = {
                                                                                       "pw",      "rw",
                                                                                       "ww",      "rrrw",
                                                                                       "r0w1w0w", "rSpw"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) count(run_chain(right[i]) == TVM_OK, right[i]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        count(run_chain(wrong[i]) == TVM_SANITIZER, wrong[i]);
}

int main(int argc, char **argv) {
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".";
    char right[4096], wrong[4096], programs[4096];
    snprintf(right, sizeof right, "%s/tests/cases", top);
    snprintf(wrong, sizeof wrong, "%s/tests/cases/sanitizer", top);
    snprintf(programs, sizeof programs, "%s/programs", top);
    if (argc > 1) {
        run_cases(argv + 1, right, strstr(argv[1], "sanitizer") != NULL);
    } else {
        char **seeded = case_list(wrong), **cases = case_list(right);
        run_cases(seeded, right, true);
        run_cases(cases, right, false);
        run_programs(programs);
        run_chains();
        free_paths(seeded);
        free_paths(cases);
    }
    printf("%u passed, %u failed\n", passed, bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
