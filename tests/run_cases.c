/* Runs the data-driven cases (tests/cases.txt): each is assembled, taken apart to text and put together
 * again, written to a container and read back, run by the interpreter, translated for every target and, where
 * there is a ptxas, put through it.
 *
 *   run_cases [CASE...]      without arguments: all of $srcdir/tests/cases */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case_file.h"
#include "codegen.h"
#include "ptxas_kit.h"
#include "vbc.h"

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static char *print_diags(const tvm_diags *diags) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL) abort();
    tvm_diags_print(diags, stream, "tvm-as", false);
    fclose(stream);
    return text;
}

/* Says what failed and why; releases the diagnostics. */
static bool failed(const case_file *c, const char *what, tvm_diags *diags) {
    char *text = print_diags(diags);
    fprintf(stderr, "%s: %s\n%s", c->name, what, text);
    free(text);
    tvm_diags_free(diags);
    return false;
}

static bool check_refused(const case_file *c, tvm_status status, tvm_diags *diags) {
    if (status == TVM_OK) {
        fprintf(stderr, "%s: the program was not refused\n", c->name);
        tvm_diags_free(diags);
        return false;
    }
    char *text = print_diags(diags);
    bool good = case_lines_found(c->errors, text, c->name);
    free(text);
    tvm_diags_free(diags);
    return good;
}

static bool write_container(const case_file *c, const tvm_ir_program *program, bool lines, bytes *out) {
    tvm_diags diags = {0};
    if (tvm_vbc_write(program, lines, &out->data, &out->size, &diags) != TVM_OK)
        return failed(c, "the container is not written", &diags);
    return true;
}

static bool same(const bytes *a, const bytes *b) {
    return a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

/* Text from the program assembles to the same bytes, and that program gives the same text. */
static bool check_round_trip(const case_file *c, const tvm_ir_program *program) {
    tvm_diags diags = {0};
    char *text = NULL, *text2 = NULL;
    tvm_ir_program *again = NULL;
    bytes first = {0}, second = {0};
    bool good =
        tvm_disassemble(program, &text, &diags) == TVM_OK || failed(c, "it is not disassembled", &diags);
    if (good && tvm_assemble_text(text, strlen(text), "disassembled", NULL, &again, &diags) != TVM_OK) {
        good = failed(c, "the disassembled text is refused", &diags);
        fprintf(stderr, "---- text:\n%s----\n", text);
    }
    good = good && write_container(c, program, false, &first) && write_container(c, again, false, &second);
    if (good && !same(&first, &second)) {
        fprintf(stderr, "%s: the disassembled text gives other bytes\n---- text:\n%s----\n", c->name, text);
        good = false;
    }
    if (good && (tvm_disassemble(again, &text2, &diags) != TVM_OK || strcmp(text, text2) != 0))
        good = failed(c, "a second disassembly differs", &diags);
    tvm_ir_program_free(again);
    free(text), free(text2), free(first.data), free(second.data);
    return good;
}

/* What is read (and so verified) is written as the same bytes. */
static bool check_container(const case_file *c, const bytes *container) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    bytes again = {0};
    if (tvm_vbc_read(container->data, container->size, c->name, &program, &diags) != TVM_OK)
        return failed(c, "its own container is refused", &diags);
    bool good = write_container(c, program, true, &again);
    if (good && !same(container, &again)) {
        fprintf(stderr, "%s: reading and writing changes the container\n", c->name);
        good = false;
    }
    tvm_ir_program_free(program);
    free(again.data);
    return good;
}

static bool check_interpreter(const case_file *c, const bytes *container) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2, .cache_dir = ""};
    tvm_context *context = NULL;
    bool good = tvm_context_create(&options, &context) == TVM_OK;
    if (!good)
        fprintf(stderr, "%s: %s\n", c->name, tvm_message(context));
    else
        good = case_launch(c, context, container->data, container->size, NULL);
    tvm_context_free(context);
    return good;
}

static bool check_translation(const case_file *c, const tvm_ir_program *program, const char *name) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    char what[64];
    snprintf(what, sizeof what, "translation for %s", name);
    if (tvm_target_parse(name, &target, &diags) != TVM_OK ||
        tvm_translate(program, target, &module, &diags) != TVM_OK)
        return failed(c, what, &diags);
    bool good = true;
    ptxas_verdict verdict;
    snprintf(what, sizeof what, "%s for %s", c->name, name);
    if (strcmp(name, "sm_90a") == 0 && ptxas_judge(module, what, &verdict, &diags) != TVM_OK) {
        good = failed(c, "ptxas refuses it", &diags);
        fprintf(stderr, "---- PTX:\n%s----\n", module->ptx);
    }
    tvm_module_free(module);
    return good;
}

static bool check_program(const case_file *c, const tvm_ir_program *program) {
    bytes container = {0};
    bool good = write_container(c, program, true, &container) && check_container(c, &container);
    good = check_round_trip(c, program) && good;
    if (container.data != NULL && c->kernel != NULL) good = check_interpreter(c, &container) && good;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        good = check_translation(c, program, targets[i]) && good;
    free(container.data);
    return good;
}

static bool run_case(const char *path, const char *folder) {
    case_file *c = case_read(path);
    if (c == NULL) return false;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = case_assemble(c, folder, &program, &diags);
    bool good;
    if (c->errors != NULL)
        good = check_refused(c, status, &diags);
    else if (status != TVM_OK)
        good = failed(c, "it is not assembled", &diags);
    else {
        tvm_diags_free(&diags);
        good = check_program(c, program);
    }
    tvm_ir_program_free(program);
    case_free(c);
    return good;
}

/* In a process of its own, so that one that crashes or leaks does not hide the others. */
static bool run_apart(const char *path, const char *folder) {
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        alarm(3600); /* a case that hangs; one that is slow on a busy machine goes on */
        exit(run_case(path, folder) ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child) return false;
    if (WIFSIGNALED(status)) fprintf(stderr, "%s: signal %d\n", path, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

/* Notes which instructions the case has, if its program is a good one. */
static void note_instructions(const char *path, const char *folder, bool seen[TVM_OP_COUNT]) {
    case_file *c = case_read(path);
    tvm_ir_program *program = NULL;
    if (c != NULL && c->errors == NULL && c->kernel != NULL &&
        case_assemble(c, folder, &program, NULL) == TVM_OK)
        for (uint32_t k = 0; k < program->kernel_count; k++)
            for (uint32_t i = 0; i < program->kernels[k].insn_count; i++)
                seen[program->kernels[k].insns[i].op] = true;
    tvm_ir_program_free(program);
    case_free(c);
}

/* Every instruction of the opcode table stands in a case that is run; returns how many do not. */
static unsigned count_missing(char **paths, const char *folder) {
    bool seen[TVM_OP_COUNT] = {false};
    unsigned missing = 0;
    for (char **path = paths; *path != NULL; path++) note_instructions(*path, folder, seen);
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        if (seen[op]) continue;
        printf("FAIL: no case runs %s\n", tvm_op(op)->mnemonic);
        missing++;
    }
    return missing;
}

int main(int argc, char **argv) {
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".";
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/tests/cases", top);
    char **listed = argc > 1 ? NULL : case_list(folder);
    char **paths = argc > 1 ? argv + 1 : listed;
    if (paths == NULL) {
        fprintf(stderr, "run_cases: no cases in %s\n", folder);
        return EXIT_FAILURE;
    }
    char *ptxas = NULL;
    if (tvm_ptxas_find(&ptxas, NULL) != TVM_OK) printf("no ptxas: PTX is made but not compiled\n");
    free(ptxas);
    unsigned passed = 0, bad = 0;
    for (char **path = paths; *path != NULL; path++) {
        if (run_apart(*path, folder)) {
            passed++;
        } else {
            printf("FAIL: %s\n", *path);
            bad++;
        }
    }
    if (listed != NULL) bad += count_missing(listed, folder);
    printf("%u passed, %u failed\n", passed, bad);
    for (char **path = listed; path != NULL && *path != NULL; path++) free(*path);
    free(listed);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
