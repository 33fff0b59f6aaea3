/* What the header comment of a program that ships says of its kernels and entries, `;   NAME    a, b: i32; x:
 * T[a, b]; y: T[a] (OPTION)`, is what they take: it is made a kernel of the program's own constants, and an
 * entry of both, whose kernels have the same parameters (the language's own rule). */
#include "check_kit.h"
#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shipped_kit.h"
#include "language.h"
#include "suite_kit.h"
#include "text.h"

static char *file_text(const char *path) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &bytes, &size, NULL), TVM_OK);
    char *text = malloc(size + 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    free(bytes);
    return text;
}

/* The lines of a header that say what NAME takes, as one; NULL: there are none. */
static char *signature_of(const char *text, const char *name) {
    tvm_text out = {0};
    size_t column = 0, length = strlen(name);
    for (const char *line = text; *line == ';'; line = strchr(line, '\n') + 1) {
        size_t end = strcspn(line, "\n"), begin = 1 + strspn(line + 1, " ");
        bool starts = begin == 4 && strncmp(line + begin, name, length) == 0 &&
                      strncmp(line + begin + length, "  ", 2) == 0;
        if (column > 0 && begin < column) break;
        if (starts) begin = column = begin + length + strspn(line + begin + length, " ");
        if (column > 0) tvm_text_add(&out, "%.*s ", (int)(end - begin), line + begin);
    }
    return column > 0 ? out.data : NULL;
}

/* `text` up to a character outside of brackets, and what is behind it. */
static char *upto(char *text, char stop) {
    int depth = 0;
    for (; *text != '\0' && (*text != stop || depth > 0); text++)
        depth += (*text == '[' || *text == '(') - (*text == ']' || *text == ')');
    if (*text == '\0') return text;
    *text = '\0';
    return text + 1;
}

/* "x, y: T[a] (OPTION)" as parameters. */
static void add_parameters(tvm_text *out, char *group, bool *first) {
    char *type = upto(group, ':'), *names = group;
    char *option = strstr(type, " (");
    if (option != NULL) *option = '\0', option += 2, *strrchr(option, ')') = '\0';
    while (*names != '\0') {
        char *name = names + strspn(names, " ");
        names = upto(name, ',');
        tvm_text_add(out, "%s%s: %s%s%s%s", *first ? "" : ", ", name,
                     strchr(type, '[') != NULL ? "global " : "", type + strspn(type, " "),
                     option != NULL ? " if " : "", option != NULL ? option : "");
        *first = false;
    }
}

static void add_documented(tvm_text *out, char *signature, const char *name, const char *kernel) {
    bool first = true;
    tvm_text_add(out, ".kernel documented_%s(", name);
    for (char *group = signature; *group != '\0';) {
        char *next = upto(group, ';');
        if (group[strspn(group, " ")] != '\0') add_parameters(out, group + strspn(group, " "), &first);
        group = next;
    }
    tvm_text_add(
        out,
        ")\n.warps 1\n.grid 1\n.end\n.entry as_documented_%s\n.case %s if target == 1\n.case documented_%s\n.end\n",
        name, kernel, name);
}

static bool is_of_an_entry(const tvm_ir_program *program, uint32_t kernel) {
    for (uint32_t e = 0; e < program->entry_count; e++)
        for (uint32_t c = 0; c < program->entries[e].case_count; c++)
            if (program->entries[e].cases[c].kernel == kernel) return true;
    return false;
}

static void add_one(tvm_text *out, const char *path, const char *header, const char *name,
                    const char *kernel) {
    char *signature = signature_of(header, name);
    ck_assert_msg(signature != NULL, "%s: the header does not say what %s takes", path, name);
    add_documented(out, signature, name, kernel);
    free(signature);
}

/* The program's header, or where it does not say what NAME takes that of the file that the program is made
 * of. */
static char *header_of(const char *text, const char *name) {
    char part[256], path[5000], *own = signature_of(text, name);
    const char *include = strstr(text, "\n.include \"");
    free(own);
    if (own != NULL || include == NULL) return strdup(text);
    snprintf(part, sizeof part, "%.*s", (int)strcspn(include + 11, "\""), include + 11);
    return file_text(program_path(part, path));
}

static void check_program(const char *path, const char *define) {
    tvm_ir_program *program = assemble_file(path, define);
    uint32_t named = program->entry_count > 0 ? program->entries[0].head.name : program->kernels[0].name;
    char *text = file_text(path), *header = header_of(text, tvm_string(program, named));
    const char *version = strstr(text, "\n.vasm ");
    tvm_text all = {0};
    tvm_text_add(&all, "%.*s\n.vasm %d\n%s", (int)(version - text), text, TVM_LANGUAGE_VERSION,
                 strchr(version + 1, '\n') + 1);
    for (uint32_t e = 0; e < program->entry_count; e++) {
        const tvm_ir_entry *entry = &program->entries[e];
        add_one(&all, path, header, tvm_string(program, entry->head.name),
                tvm_string(program, program->kernels[entry->cases[0].kernel].name));
    }
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const char *name = tvm_string(program, program->kernels[k].name);
        bool tuned = strstr(name, "__") != NULL;
        if (!tuned && !is_of_an_entry(program, k)) add_one(&all, path, header, name, name);
    }
    tvm_ir_program_free(program);
    tvm_diags diags = {0};
    tvm_status status = assemble_text_with(all.data, all.size, path, define, &program, &diags);
    tvm_diags_print(&diags, stderr, path, false);
    ck_assert_msg(status == TVM_OK, "%s with '%s': its header says otherwise", path, define);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    tvm_text_free(&all);
    free(header), free(text);
}

START_TEST(every_program_takes_what_its_header_says) {
    char pattern[5000];
    glob_t found;
    unsigned programs = 0;
    ck_assert_int_eq(glob(program_path("*.vasm", pattern), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++, programs++) check_program(found.gl_pathv[i], "");
    globfree(&found);
    ck_assert_uint_ge(programs, 20);
}
END_TEST

static const char *const options[][2] = {
    {"attention.vasm", "PAGE=16 CAP=true"},
    {"attention.vasm", "ALIBI=true T=f8_e4m3"},
    {"attention_decode.vasm", "KTYPE=u4 VTYPE=u4 KCHANNELS=true KZEROS=true LSE=true SOFT_CAP=true"},
    {"kv_append.vasm", "QKV=true"},
    {"kv_append.vasm", "KTYPE=u4 VTYPE=u4 KCHANNELS=true KZEROS=true"},
    {"matmul.vasm", "T=i8 BIAS=true RESIDUAL=true"},
    {"matmul_lowbit_u4.vasm", "GROUP=0 ZEROS=true BIAS=true FACTOR=true"},
    {"matmul_lowbit_u4.vasm", "GROUP=16 OTYPE=f32"},
    {"matmul_u3.vasm", "ZEROS=true GROUP=64"},
    {"quantize_rows.vasm", "GROUP=128"},
    {"quantize_rows.vasm", "GROUP=128 BY_GROUP=true"},
    {"matmul_scaled.vasm", "BY_GROUP=true"},
    {"layer_norm.vasm", "OTYPE=i8 GROUP=128 BY_GROUP=true"},
    {"rms_norm.vasm", "OTYPE=i8 GROUP=128 BY_GROUP=true"},
    {"rms_norm.vasm", "INNER=true"},
    {"rms_norm.vasm", "GATE=after"},
    {"state_space.vasm", "SKIP=true BIAS=true GATE=true"},
    {"causal_conv.vasm", "BIAS=true"},
};
enum { OPTIONS = sizeof options / sizeof *options };

START_TEST(and_with_options) {
    char path[5000];
    check_program(program_path(options[_i][0], path), options[_i][1]);
}
END_TEST

/* ---- the manual */

/* A shape without what its writing leaves free: spaces, and the sign of a product. */
static void plain_shape(const char *shape, char out[128]) {
    size_t to = 0;
    for (; *shape != '\0' && to < 126; shape++) {
        if (*shape != ' ' && *shape != '*' && *shape != '\n') out[to++] = *shape;
        if (*shape == ']') break;
    }
    out[to] = '\0';
}

/* Where the text says `name[shape]`, with or without a type between, the shape is the header's; how many do.
 */
static int shapes_said(const char *text, const char *name, const char *shape, const char *program) {
    int said = 0;
    char expected[128], found[128];
    plain_shape(shape, expected);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
        const char *behind = at + strlen(name);
        if (isalnum((unsigned char)at[-1]) || strchr("_[*", at[-1]) != NULL) continue;
        if (*behind == ' ')
            behind += strspn(behind, " ("), behind += strspn(behind, "abcdefghijklmnopqrstuvwxyz0123456789");
        if (*behind != '[') continue;
        plain_shape(behind, found);
        ck_assert_msg(strcmp(found, expected) == 0, "%s: the manual says %s%s, the header %s", program, name,
                      found, shape);
        said++;
    }
    return said;
}

/* Of the tensors `x, y: T[a, b]` of a signature. */
static int tensors_said(char *signature, const char *text, const char *program) {
    int said = 0;
    for (char *group = signature; *group != '\0';) {
        char *next = upto(group, ';'), *type = upto(group, ':'), *names = group;
        const char *shape = strchr(type, '[');
        while (shape != NULL && *names != '\0') {
            char *name = names + strspn(names, " ");
            names = upto(name, ',');
            said += shapes_said(text, name, shape, program);
        }
        group = next;
    }
    return said;
}

/* The list of parameters: from the program's name to the first `;` of its paragraph. */
START_TEST(the_manual_says_the_same) {
    char path[5000], head[128], list[2000];
    glob_t found;
    int said = 0;
    char *manual = file_text(program_path("../man/tilusvm.7", path));
    ck_assert_int_eq(glob(program_path("*.vasm", path), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *file = strrchr(found.gl_pathv[i], '/') + 1;
        snprintf(head, sizeof head, "\n.B %s\n", file);
        const char *paragraph = strstr(manual, head);
        if (paragraph == NULL) continue;
        const char *end = strstr(paragraph, "\n.TP");
        size_t length = strcspn(paragraph, ";"), most = end != NULL ? (size_t)(end - paragraph) : length;
        snprintf(list, sizeof list, "%.*s", (int)(length < most ? length : most), paragraph);
        snprintf(head, sizeof head, "%.*s", (int)strcspn(file, "."), file);
        char *text = file_text(found.gl_pathv[i]), *signature = signature_of(text, head);
        if (signature != NULL) said += tensors_said(signature, list, file);
        free(signature), free(text);
    }
    globfree(&found);
    free(manual);
    ck_assert_int_ge(said, 20);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("signatures");
    TCase *tests = tcase_create("signatures");
    tcase_add_test(tests, every_program_takes_what_its_header_says);
    tcase_add_loop_test(tests, and_with_options, 0, OPTIONS);
    tcase_add_test(tests, the_manual_says_the_same);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
