/* The PTX of the data-driven cases (tests/cases.txt) is what tests/ptx_hashes.txt says, as long as
 * TVM_CODEGEN_VERSION, a part of the cubin cache's key, is the one that stands there: else a cache would go
 * on giving out the cubins of other PTX. `make update-ptx-hashes` writes the file:
 *
 *   test_ptx_hashes --update LANDED    LANDED: the file as it was, which must be of another version where the
 * PTX of a case differs
 *
 * The file: `codegen VERSION`, then a line a case: its name, a hash of its program and of its PTX for each
 * target, `-` where there is none. A case whose program is new or has changed says nothing of the code
 * generator; so does a target that the kernel is refused for, before or now. */
#include "check_kit.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "case_file.h"
#include "codegen.h"
#include "suite_kit.h"

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
enum { TARGETS = sizeof targets / sizeof *targets, NAME_MAX_BYTES = 64 };

typedef struct case_hashes {
    char name[NAME_MAX_BYTES];
    uint32_t program;
    uint32_t ptx[TARGETS]; /* 0: refused */
} case_hashes;

typedef struct hash_file {
    unsigned version;
    case_hashes *cases;
    size_t count;
} hash_file;

static char folder[4096], path[4096];
static char **paths;
static hash_file landed;

/* ---- the file ---- */

static uint32_t parse_hash(const char *word) {
    return strcmp(word, "-") == 0 ? 0 : (uint32_t)strtoul(word, NULL, 16);
}

static bool parse_case(const char *line, case_hashes *c) {
    char word[1 + TARGETS][16];
    _Static_assert(TARGETS == 5, "one %15s a target");
    if (sscanf(line, "%63s %15s %15s %15s %15s %15s %15s", c->name, word[0], word[1], word[2], word[3],
               word[4], word[5]) != 2 + TARGETS)
        return false;
    c->program = parse_hash(word[0]);
    for (size_t t = 0; t < TARGETS; t++) c->ptx[t] = parse_hash(word[1 + t]);
    return true;
}

/* False where it is not such a file, as it is with the marks of a merge in it; one that is missing has
 * nothing. */
static bool read_hashes(const char *name, hash_file *file) {
    char line[256];
    FILE *stream = fopen(name, "r");
    if (stream == NULL) return true;
    bool good = fgets(line, sizeof line, stream) == NULL || sscanf(line, "codegen %u", &file->version) == 1;
    while (good && fgets(line, sizeof line, stream) != NULL) {
        file->cases = reallocarray(file->cases, file->count + 1, sizeof *file->cases);
        if (file->cases == NULL) abort();
        good = parse_case(line, &file->cases[file->count++]);
    }
    fclose(stream);
    return good;
}

static void print_hash(FILE *stream, uint32_t hash) {
    if (hash == 0)
        fprintf(stream, " -");
    else
        fprintf(stream, " %08" PRIx32, hash);
}

static void write_case(FILE *stream, const case_hashes *c) {
    fprintf(stream, "%s", c->name);
    print_hash(stream, c->program);
    for (size_t t = 0; t < TARGETS; t++) print_hash(stream, c->ptx[t]);
    fprintf(stream, "\n");
}

static const case_hashes *find_case(const hash_file *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->cases[i].name, name) == 0) return &file->cases[i];
    return NULL;
}

/* ---- the cases ---- */

static uint32_t hash_bytes(const void *bytes, size_t size) {
    uint32_t hash = (uint32_t)XXH3_64bits(bytes, size);
    return hash == 0 ? 1 : hash;
}

static uint32_t hash_program(const case_file *c) {
    uint32_t hashes[CASE_MAX_ITEMS + 1] = {hash_bytes(c->program, strlen(c->program))};
    for (size_t i = 0; i < c->define_count; i++)
        hashes[1 + i] = hash_bytes(c->defines[i], strlen(c->defines[i]));
    return hash_bytes(hashes, sizeof hashes);
}

static uint32_t hash_ptx(const tvm_ir_program *program, const char *name) {
    tvm_target target;
    tvm_module *module = NULL;
    if (tvm_target_parse(name, &target, NULL) != TVM_OK) abort();
    if (tvm_translate(program, target, &module, NULL) != TVM_OK) return 0;
    uint32_t hash = hash_bytes(module->ptx, module->ptx_size);
    tvm_module_free(module);
    return hash;
}

/* False where the case has no program that is assembled. */
static bool hash_case(const char *case_path, case_hashes *hashes) {
    tvm_ir_program *program = NULL;
    case_file *c = case_read(case_path);
    if (c == NULL) abort();
    bool is_program = c->errors == NULL && case_assemble(c, folder, &program, NULL) == TVM_OK;
    snprintf(hashes->name, sizeof hashes->name, "%s", c->name);
    hashes->program = hash_program(c);
    for (size_t t = 0; is_program && t < TARGETS; t++) hashes->ptx[t] = hash_ptx(program, targets[t]);
    tvm_ir_program_free(program);
    case_free(c);
    return is_program;
}

/* The targets for which the same program gives other PTX than it did, with a space before each; "": none. */
static const char *changed_targets(const case_hashes *now, const case_hashes *was, char names[128]) {
    names[0] = '\0';
    if (was == NULL || was->program != now->program) return names;
    for (size_t t = 0; t < TARGETS; t++)
        if (now->ptx[t] != 0 && was->ptx[t] != 0 && now->ptx[t] != was->ptx[t])
            strcat(strcat(names, " "), targets[t]);
    return names;
}

/* ---- the suite ---- */

START_TEST(the_hashes_are_of_this_version) {
    ck_assert_msg(landed.version == TVM_CODEGEN_VERSION,
                  "TVM_CODEGEN_VERSION is %d, %s is of %u: run `make update-ptx-hashes`", TVM_CODEGEN_VERSION,
                  path, landed.version);
    ck_assert_uint_gt(landed.count, 0);
}
END_TEST

START_TEST(ptx_changes_with_the_version_alone) {
    case_hashes now = {0};
    char names[128];
    if (!hash_case(paths[_i], &now)) return;
    changed_targets(&now, find_case(&landed, now.name), names);
    ck_assert_msg(
        names[0] == '\0' || landed.version != TVM_CODEGEN_VERSION,
        "%s: other PTX for%s, while TVM_CODEGEN_VERSION is still %d. If the change is meant, raise the "
        "version in codegen/codegen.h and run `make update-ptx-hashes`",
        now.name, names, TVM_CODEGEN_VERSION);
}
END_TEST

static int compare_hashes(void) {
    int count = 0;
    while (paths[count] != NULL) count++;
    Suite *suite = suite_create("PTX hashes");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, the_hashes_are_of_this_version);
    tcase_add_loop_test(tests, ptx_changes_with_the_version_alone, 0, count);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}

/* ---- --update ---- */

static int update(void) {
    unsigned changed = 0, added = 0;
    char *text = NULL, names[128];
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL) abort();
    fprintf(stream, "codegen %d\n", TVM_CODEGEN_VERSION);
    for (char **p = paths; *p != NULL; p++) {
        case_hashes now = {0};
        if (!hash_case(*p, &now)) continue;
        const case_hashes *was = find_case(&landed, now.name);
        write_case(stream, &now);
        if (was == NULL || was->program != now.program) added++;
        if (*changed_targets(&now, was, names) == '\0') continue;
        printf("other PTX: %s for%s\n", now.name, names);
        changed++;
    }
    fclose(stream);
    bool is_refused = changed > 0 && landed.version >= TVM_CODEGEN_VERSION;
    if (is_refused)
        fprintf(stderr,
                "the PTX of %u cases is not what it was in version %u of the code generator: raise "
                "TVM_CODEGEN_VERSION in codegen/codegen.h (it is %d) first\n",
                changed, landed.version, TVM_CODEGEN_VERSION);
    FILE *out = is_refused ? NULL : fopen(path, "w");
    bool written = out != NULL && fputs(text, out) >= 0;
    if (out != NULL && fclose(out) != 0) written = false;
    if (written)
        printf("%s: version %d, %u cases with other PTX, %u new\n", path, TVM_CODEGEN_VERSION, changed,
               added);
    if (!written && !is_refused) perror(path);
    free(text);
    return written ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".";
    bool is_update = argc == 3 && strcmp(argv[1], "--update") == 0;
    snprintf(folder, sizeof folder, "%s/tests/cases", top);
    snprintf(path, sizeof path, "%s/tests/ptx_hashes.txt", top);
    paths = case_list(folder);
    const char *from = is_update ? argv[2] : path;
    if (paths == NULL || !read_hashes(from, &landed)) {
        fprintf(stderr, paths == NULL ? "no cases in %s\n" : "%s is not a file of hashes\n",
                paths == NULL ? folder : from);
        return EXIT_FAILURE;
    }
    int status = is_update ? update() : compare_hashes();
    for (char **p = paths; *p != NULL; p++) free(*p);
    free(paths), free(landed.cases);
    return status;
}
