/* Random programs (generate/generate.h): the text that the disassembler writes is the same program; the
 * generated code for two targets, executed by ptx_machine.h, does what the interpreter does; so it does
 * unrolled or not, and with other layouts; and the sanitizer has nothing to say of it. Each program is
 * checked in a process of its own; one that fails is made smaller and shown.
 *
 *   test_random_programs [SEEDS [FIRST]]    programs to make, and the first one's seed
 *   test_random_programs FILE.vasm          checks that program */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fileio.h"
#include "fuzz_kit.h"
#include "generate/arguments.h"
#include "generate/batch.h"
#include "generate/coverage.h"
#include "generate/generate.h"
#include "generate/relayout.h"
#include "generate/shrink.h"
#include "mma.h"
#include "ptx_launch_kit.h"
#include "suite_kit.h"

enum { PROGRAMS = 120, COVERED = 6000, INSTRUCTIONS = 1 << 20, SHRINKS = 3000, SHOWN = 3 };

/* What a child says of its program. */
typedef enum outcome {
    GOOD,
    REFUSED = 20,
    FAULT,
    DIFFERS,
    TRAPS,
    OUTSIDE,
    UNROLLED,
    RELAID,
    UNDEFINED,
    ABORTED
} outcome;

static unsigned seeds = PROGRAMS;
static uint64_t first_seed = 1;
static const char *file; /* to be checked in place of them */

static outcome bad(outcome what, const char *where, const char *text) {
    fprintf(stderr, "%s: %s\n", where, text);
    return what;
}

/* ---- generated code ---- */

static bool is_for_the_machine(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_op(kernel->insns[i].op)->effects & TVM_EFFECT_OUTPUT) return false;
    return true;
}

static uint64_t argument(const generate_launch *l, uint32_t p) {
    const tvm_slot *slot = &l->kernel->slots[p];
    if (l->tensors[p]) return (uint64_t)(uintptr_t)l->tensors[p];
    return slot->dtype.kind == TVM_KIND_FLOAT ? tvm_encode(slot->dtype, l->scalars[p].f) : l->scalars[p].u;
}

static outcome run_ptx(const generate_launch *l, const tvm_module *module, const char *where) {
    const tvm_kernel_code *code = &module->kernels[0];
    ptx_machine m = ptx_load(module->ptx, code->name, code->abi.threads);
    ptx_own own;
    uint64_t values[TVM_MAX_PARAMS];
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        values[p] = argument(l, p);
        if (l->tensors[p]) ptx_allow(&m, l->tensors[p], l->bytes[p]);
    }
    ptx_own_make(&own, &m, l->program, l->kernel, &l->env);
    ptx_allow(&m, (const uint8_t *)"", 0);
    ptx_launch(&m, module, l->program, l->kernel, &l->env, values, own.place);
    outcome result = m.fault[0]  ? bad(OUTSIDE, where, m.fault)
                     : m.trapped ? bad(TRAPS, where, "the generated code traps")
                                 : GOOD;
    ptx_own_free(&own);
    ptx_free(&m);
    return result;
}

/* The code for a target gives what the interpreter gave. */
static outcome compare_ptx(const tvm_ir_program *program, const generate_launch *expected,
                           const char *target_name, outcome otherwise) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    tvm_why why = {""};
    generate_launch l;
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    if (!tvm_kernel_is_for(&program->kernels[0], target.arch, tvm_target_traits_of(target))) return GOOD;
    if (tvm_translate(program, target, &module, &diags) != TVM_OK) {
        tvm_diags_print(&diags, stderr, target_name, false);
        return FAULT;
    }
    outcome result = GOOD;
    if (module->kernels[0].abi.absence == TVM_ABI_PRESENT && is_for_the_machine(&program->kernels[0]) &&
        generate_launch_make(&l, program, 0, expected->set, target.arch, &diags)) {
        result = run_ptx(&l, module, target_name);
        if (result == GOOD && !generate_launches_same(expected, &l, &why))
            result = bad(otherwise, target_name, why.text);
        generate_launch_free(&l);
    }
    tvm_module_free(module);
    tvm_diags_free(&diags);
    return result;
}

/* ---- metamorphic ---- */

/* The same loops with other numbers of turns in their bodies. */
static outcome compare_unrolled(tvm_ir_program *program, const generate_launch *expected) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    bool any = false;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        if (kernel->insns[i].op != TVM_OP_FOR) continue;
        tvm_operand *unroll = &kernel->operands[kernel->insns[i].first + 3];
        unroll->value = unroll->value == 1 ? 3 : 1;
        any = true;
    }
    return any ? compare_ptx(program, expected, "sm_80", UNROLLED) : GOOD;
}

/* Has it products that a target has instructions of its own for? */
static bool has_small_products(const tvm_ir_program *program) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        tvm_mma mma;
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op == TVM_OP_MMA &&
            tvm_mma_read(program, kernel, tvm_operands(kernel, insn), insn->count, &mma) &&
            tvm_mma_is_mixed(&mma))
            return true;
    }
    return false;
}

static outcome interpret(generate_launch *l, const tvm_ir_program *program, tvm_sanitize sanitize) {
    tvm_diags diags = {0};
    tvm_interp_kernel *ready = NULL;
    outcome result = GOOD;
    tvm_status status = tvm_interp_prepare(program, &program->kernels[0], &ready, &diags);
    if (status == TVM_OK) status = generate_launch_interpret(l, ready, INSTRUCTIONS, sanitize, &diags);
    const char *message = diags.count ? diags.items[0].message : "?";
    bool ends = strstr(message, "deadlock") == NULL;
    if (status != TVM_OK)
        result = bad(status == TVM_SANITIZER && ends ? UNDEFINED : FAULT, "interpreter", message);
    tvm_interp_free(ready);
    tvm_diags_free(&diags);
    return result;
}

/* The layouts are left out, and the assembler finds others. */
static outcome compare_relaid(const char *text, const generate_launch *expected) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_why why = {""};
    generate_launch l;
    outcome result = GOOD;
    char *open = leave_layouts_out(text);
    if (open && tvm_assemble_text(open, strlen(open), "open.vasm", NULL, &program, &diags) == TVM_OK) {
        if (generate_launch_make(&l, program, 0, expected->set, 0, &diags)) {
            result = interpret(&l, program, TVM_SANITIZE_OFF);
            if (result == GOOD && !generate_launches_same(expected, &l, &why))
                result = bad(RELAID, "layouts", why.text);
        }
        generate_launch_free(&l);
        if (result == GOOD) result = compare_ptx(program, expected, "sm_90a", RELAID);
    } else if (getenv("RANDOM_VERBOSE")) {
        tvm_diags_print(&diags, stderr, "layouts left out", false);
    }
    tvm_ir_program_free(program);
    free(open);
    tvm_diags_free(&diags);
    return result;
}

/* ---- one program ---- */

static outcome check_set(const char *text, tvm_ir_program *program, unsigned set, bool any_layout) {
    tvm_diags diags = {0};
    generate_launch l;
    outcome result = GOOD;
    if (generate_launch_make(&l, program, 0, set, 0, &diags)) {
        result = interpret(&l, program, TVM_SANITIZE_TEXT);
        if (result == GOOD) result = compare_ptx(program, &l, "sm_80", DIFFERS);
        if (result == GOOD) result = compare_ptx(program, &l, "sm_90a", DIFFERS);
        if (result == GOOD && has_small_products(program))
            result = compare_ptx(program, &l, "sm_120a", DIFFERS);
        if (result == GOOD && any_layout) result = compare_relaid(text, &l);
        if (result == GOOD) result = compare_unrolled(program, &l);
    }
    generate_launch_free(&l);
    tvm_diags_free(&diags);
    return result;
}

/* A program whose results depend on no layout says so in its first line. */
static outcome check_program(const char *text) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    bool any_layout = strncmp(text, "; any layout", strlen("; any layout")) == 0;
    if (tvm_assemble_text(text, strlen(text), "random.vasm", NULL, &program, &diags) != TVM_OK) {
        tvm_diags_print(&diags, stderr, "random", false);
        tvm_diags_free(&diags);
        return REFUSED;
    }
    fuzz_round_trips(program);
    outcome result = GOOD;
    unsigned one = (unsigned)strlen(text) % GENERATE_SETS;
    for (unsigned set = file ? 0 : one; result == GOOD && set <= (file ? GENERATE_SETS - 1 : one); set++)
        result = check_set(text, program, set, any_layout);
    tvm_ir_program_free(program);
    return result;
}

/* In another process, which may end as it will. */
static outcome check_apart(const char *text, bool quiet) {
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (quiet && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
            _exit(ABORTED);
        _exit((int)check_program(text));
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) != EXIT_FAILURE ? (outcome)WEXITSTATUS(status) : ABORTED;
}

static bool fails_alike(const char *text, void *data) {
    return check_apart(text, true) == *(const outcome *)data;
}

static void show(const char *name, const char *text, outcome what) {
    char *small = shrink(text, fails_alike, &what, SHRINKS);
    fprintf(stderr, "%s, made smaller:\n%s\n", name, small);
    check_apart(small, false);
    free(small);
}

static void cover(void *data, const tvm_ir_program *program) {
    generate_cover(data, program);
}

/* Of every second program results do not depend on layouts. */
static char *make(uint64_t seed, generate_coverage *coverage, tvm_why *why) {
    const generate_options options = {.prints = true,
                                      .clusters = true,
                                      .layouts_matter = seed % 2 == 0,
                                      .made = coverage ? cover : NULL,
                                      .data = coverage};
    char *text = generate_program(seed, &options, why);
    if (!text || options.layouts_matter) return text;
    size_t size = strlen(text) + 32;
    char *marked = malloc(size);
    ck_assert_ptr_nonnull(marked);
    snprintf(marked, size, "; any layout\n%s", text);
    free(text);
    return marked;
}

START_TEST(programs_do_on_all_machines_what_the_interpreter_does) {
    unsigned wrong = 0, made = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seeds && wrong < SHOWN; seed++) {
        tvm_why why;
        char name[64], *text = make(seed, NULL, &why);
        if (!text) continue;
        made++;
        outcome what = check_apart(text, false);
        snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
        if (what != GOOD) {
            wrong++;
            fprintf(stderr, "%s: outcome %d\n", name, (int)what);
            show(name, text, what);
        }
        free(text);
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_ge(made, seeds * 9 / 10);
}
END_TEST

/* A GPU is given many at a time. */
START_TEST(programs_are_one_text_together) {
    enum { TOGETHER = 60 };
    const generate_options options = {.prints = false};
    char *texts[TOGETHER];
    tvm_why why;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    unsigned made = 0;
    for (unsigned i = 0; i < TOGETHER; i++) {
        texts[i] = generate_program(first_seed + i, &options, &why);
        made += texts[i] != NULL;
    }
    char *all = generate_batch(texts, TOGETHER);
    tvm_status status = tvm_assemble_text(all, strlen(all), "all.vasm", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "a batch", false);
    ck_assert_int_eq(status, TVM_OK);
    ck_assert_uint_eq(program->kernel_count, made);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    for (unsigned i = 0; i < TOGETHER; i++) free(texts[i]);
    free(all);
}
END_TEST

/* ---- coverage ---- */

/* Parts of the table that no program can have. */
static const char *const left_out[] = {
    "scan operation argmax",                              /* refused: scan has them not */
    "scan operation argmin",      "put-global scope cta", /* refused: no other block is reached for sure */
    "put-global scope cluster",   "take-global scope cta",
    "take-global scope cluster",  "reduce-bulk operation sub", /* refused, too */
    "reduce-bulk operation min",  "reduce-bulk operation max",
    "reduce-bulk operation exch", "reduce-bulk operation cas",
    "reduce-bulk operation and",  "reduce-bulk operation or",
    "reduce-bulk operation xor",  "cancel-block", /* sm_90a has it not */
};

/* sm_90a has no tensor memory: test_tensor_programs. print-tensor is of registers. */
static bool is_of_tensor_memory(const char *part) {
    static const char end[] = "-tensor", other[] = "print-";
    size_t op = strcspn(part, " "), length = sizeof end - 1;
    return op > length && memcmp(part + op - length, end, length) == 0 &&
           strncmp(part, other, sizeof other - 1) != 0;
}

static bool is_left_out(const char *part) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strcmp(part, left_out[i]) == 0) return true;
    return is_of_tensor_memory(part);
}

typedef struct parts {
    unsigned made, left_out, wrong;
} parts;

static void see_part(void *data, const char *part, uint64_t count) {
    parts *p = data;
    bool out = is_left_out(part);
    p->made += !out;
    p->left_out += out;
    if (out == (count == 0)) return;
    p->wrong++;
    fprintf(stderr, "%s: in %llu instructions of %d programs%s\n", part, (unsigned long long)count, COVERED,
            out ? ", and said to be left out" : "");
}

START_TEST(programs_have_every_part_of_the_language) {
    static generate_coverage coverage;
    parts p = {0};
    tvm_why why;
    for (uint64_t seed = 1; seed <= COVERED; seed++) free(make(seed, &coverage, &why));
    generate_coverage_each(&coverage, see_part, &p);
    printf("%u parts of the language are in random programs, %u are left out\n", p.made, p.left_out);
    ck_assert_uint_eq(p.wrong, 0);
}
END_TEST

START_TEST(the_file_does_it_too) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(tvm_file_read(file, 1 << 20, &bytes, &size, NULL), TVM_OK);
    char *text = strndup((char *)bytes, size);
    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(check_apart(text, false), GOOD);
    free(text);
    free(bytes);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1 && strstr(argv[1], ".vasm")) file = argv[1];
    if (argc > 1) seeds = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 0);
    Suite *suite = suite_create("random programs");
    TCase *tests = tcase_create("all");
    if (file) {
        tcase_add_test(tests, the_file_does_it_too);
    } else {
        tcase_add_test(tests, programs_do_on_all_machines_what_the_interpreter_does);
        tcase_add_test(tests, programs_are_one_text_together);
        tcase_add_test(tests, programs_have_every_part_of_the_language);
    }
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
