/* Every fact that the prover claims while it translates a program (codegen/analysis/claims.h) is checked when
 * the program runs: a copy of it with an `assert` before each instruction that something is claimed of runs
 * on the interpreter. Programs: random ones on hostile arguments (random_ring.h), which compute indices in
 * every way, and those of every row of the table (generate/generate.h), and the cases.
 *
 *   test_claims [SEEDS [FIRST]]      programs to make, and the first one's seed */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "case_file.h"
#include "claims.h"
#include "generate/arguments.h"
#include "generate/generate.h"
#include "generate/node.h"
#include "hostile_launch.h"
#include "random_ring.h"
#include "suite_kit.h"
#include "vbc.h"
#include "verify.h"

enum { PROGRAMS = 300, LAUNCHES = 3, INSTRUCTIONS = 1 << 20, FOR_UNROLL = 3, FOR_STAGES = 4 };

static unsigned seeds = PROGRAMS, first_seed = 1;

/* ---- a claim as an expression ---- */

static uint32_t node(tvm_ir_kernel *k, unsigned op, tvm_dtype type, uint32_t a, uint32_t b) {
    uint32_t expr = generate_node(k, (tvm_expr){.op = (uint8_t)op, .type = type, .a = a, .b = b});
    ck_assert_uint_ne(expr, TVM_NONE);
    return expr;
}

static uint32_t number(tvm_ir_kernel *k, int64_t value) {
    return generate_node(k, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = TVM_I(64), .value.i = value});
}

static uint32_t wide(tvm_ir_kernel *k, uint32_t expr) {
    if (tvm_dtype_same(k->exprs[expr].type, TVM_I(64))) return expr;
    return node(k, TVM_EXPR_CAST, TVM_I(64), expr, 0);
}

static uint32_t both(tvm_ir_kernel *k, uint32_t a, uint32_t b) {
    return a == TVM_NONE ? b : b == TVM_NONE ? a : node(k, TVM_EXPR_LAND, TVM_BOOL, a, b);
}

static uint32_t is_multiple(tvm_ir_kernel *k, uint32_t value, uint64_t divisor) {
    if (divisor == 0) return node(k, TVM_EXPR_EQ, TVM_BOOL, value, number(k, 0));
    if (divisor == 1 || divisor > INT64_MAX) return TVM_NONE;
    uint32_t rest = node(k, TVM_EXPR_MOD, TVM_I(64), value, number(k, (int64_t)divisor));
    return node(k, TVM_EXPR_EQ, TVM_BOOL, rest, number(k, 0));
}

/* TVM_NONE: it says nothing. */
static uint32_t claimed(tvm_ir_kernel *k, const tvm_claim *c) {
    uint32_t value = wide(k, c->expr), low = TVM_NONE, high = TVM_NONE;
    switch (c->kind) {
    case TVM_CLAIM_RANGE:
        if (c->low > INT64_MIN) low = node(k, TVM_EXPR_GE, TVM_BOOL, value, number(k, c->low));
        if (c->high < INT64_MAX) high = node(k, TVM_EXPR_LE, TVM_BOOL, value, number(k, c->high));
        return both(k, low, high);
    case TVM_CLAIM_DIVISOR:
        return is_multiple(k, value, c->divisor);
    case TVM_CLAIM_REST:
        return is_multiple(k, node(k, TVM_EXPR_SUB, TVM_I(64), value, number(k, c->low)), c->divisor);
    default:
        low = node(k, TVM_EXPR_GE, TVM_BOOL, value, number(k, 0));
        high = node(k, TVM_EXPR_SUB, TVM_I(64), wide(k, c->bound), number(k, c->low));
        return both(k, low, node(k, TVM_EXPR_LE, TVM_BOOL, value, high));
    }
}

/* The instructions of a kernel before its claims came in. */
typedef struct original {
    tvm_insn *insns;
    uint32_t count;
} original;

/* Is the slot assigned where instruction `at` is reached: before it, in a body that it stands in, too? */
static bool is_assigned(const original *of, uint32_t slot, uint32_t at) {
    for (uint32_t i = 0; i < at; i++) {
        bool around = of->insns[i].result == slot;
        for (uint32_t o = 0; o <= i && around; o++) {
            bool opens = tvm_class_opens(tvm_insn_class(&of->insns[o])) || of->insns[o].op == TVM_OP_ELSE;
            if (opens && of->insns[o].match > i && of->insns[o].match < at) around = false;
        }
        if (around) return true;
    }
    return false;
}

/* It holds, or this is another path. What may be unassigned is read by nothing that is claimed of. */
static uint32_t where_it_holds(tvm_ir_kernel *k, const tvm_claim *c, const original *of, uint32_t condition) {
    for (unsigned i = 0; i < c->constants; i++) {
        if (!is_assigned(of, c->slot[i], c->insn)) continue;
        uint32_t slot = generate_node(
            k, (tvm_expr){.op = TVM_EXPR_SLOT, .type = k->slots[c->slot[i]].dtype, .a = c->slot[i]});
        uint32_t other = node(k, TVM_EXPR_NE, TVM_BOOL, wide(k, slot), number(k, c->value[i]));
        condition = node(k, TVM_EXPR_LOR, TVM_BOOL, other, condition);
    }
    return condition;
}

/* ---- a program with its claims ---- */

/* Is it of values that a body has? multiprocessors and target are known to the launch alone. */
static bool is_of_the_body(const tvm_ir_kernel *k, const tvm_claim *c) {
    unsigned leaves = tvm_expr_leaves(k, c->expr);
    if (c->kind == TVM_CLAIM_INSIDE) leaves |= tvm_expr_leaves(k, c->bound);
    return !(leaves & (TVM_LEAF_MULTIPROCESSORS | TVM_LEAF_TARGET));
}

static void put_claim(tvm_ir_program *program, tvm_ir_kernel *k, const tvm_claim *c, const original *of) {
    static const char *const kinds[] = {"range", "divisor", "rest", "inside"};
    char text[160];
    if (!is_of_the_body(k, c)) return;
    uint32_t condition = claimed(k, c);
    if (condition == TVM_NONE || k->exprs[condition].op == TVM_EXPR_INTEGER) return;
    condition = where_it_holds(k, c, of, condition);
    snprintf(text, sizeof text, "claim: %s of expression %u: %lld, %lld, %llu", kinds[c->kind], c->expr,
             (long long)c->low, (long long)c->high, (unsigned long long)c->divisor);
    const tvm_operand operands[2] = {
        {TVM_OPERAND_EXPR, condition},
        {TVM_OPERAND_STRING, tvm_ir_program_string(program, text, strlen(text))}};
    const tvm_insn insn = {.op = TVM_OP_ASSERT, .result = TVM_NONE, .match = TVM_NONE, .file = TVM_NONE};
    ck_assert_uint_ne(tvm_ir_kernel_add_insn(k, &insn, operands, 2), TVM_NONE);
}

static int by_insn(const void *a, const void *b) {
    const tvm_claim *x = a, *y = b;
    if (x->kernel != y->kernel) return x->kernel < y->kernel ? -1 : 1;
    return x->insn < y->insn ? -1 : x->insn > y->insn;
}

static bool same_claim(const tvm_claim *a, const tvm_claim *b) {
    return a->kind == b->kind && a->expr == b->expr && a->bound == b->bound && a->low == b->low &&
           a->high == b->high && a->divisor == b->divisor && a->constants == b->constants &&
           memcmp(a->slot, b->slot, sizeof a->slot) == 0 && memcmp(a->value, b->value, sizeof a->value) == 0;
}

/* The kernel's claims from `c` on go in before their instructions; returns the first one of another kernel.
 */
static const tvm_claim *put_claims(tvm_ir_program *program, uint32_t index, const tvm_claim *c,
                                   const tvm_claim *end) {
    tvm_ir_kernel *k = &program->kernels[index];
    const original of = {malloc((k->insn_count + (size_t)1) * sizeof *k->insns), k->insn_count};
    ck_assert_ptr_nonnull(of.insns);
    if (of.count) memcpy(of.insns, k->insns, of.count * sizeof *of.insns);
    k->insn_count = 0;
    for (uint32_t i = 0; i < of.count; i++) {
        const tvm_claim *first = c;
        for (; c < end && c->kernel == index && c->insn == i; c++) {
            const tvm_claim *before = first;
            while (before < c && !same_claim(before, c)) before++;
            if (before == c && of.insns[i].op != TVM_OP_ELSE && k->insn_count < 50000)
                put_claim(program, k, c, &of);
        }
        tvm_operand operands[TVM_INSN_OPERANDS];
        if (of.insns[i].count)
            memcpy(operands, tvm_operands(k, &of.insns[i]), of.insns[i].count * sizeof *operands);
        ck_assert_uint_ne(tvm_ir_kernel_add_insn(k, &of.insns[i], operands, of.insns[i].count), TVM_NONE);
    }
    free(of.insns);
    return c;
}

/* A copy whose loops are plain ones: a pipelined loop is translated as another program, and of a body that is
 * there several times each has claims of its own. */
static tvm_ir_program *with_plain_loops(const tvm_ir_program *program) {
    tvm_ir_program *plain = tvm_ir_program_clone_kernels(program);
    ck_assert_ptr_nonnull(plain);
    for (uint32_t n = 0; n < plain->kernel_count; n++) {
        const tvm_ir_kernel *k = &plain->kernels[n];
        for (uint32_t i = 0; i < k->insn_count; i++) {
            const tvm_insn *insn = &k->insns[i];
            if (insn->op != TVM_OP_FOR) continue;
            k->operands[insn->first + FOR_UNROLL].value = 1;
            if (insn->count > FOR_STAGES) k->operands[insn->first + FOR_STAGES].kind = TVM_OPERAND_NONE;
        }
    }
    return plain;
}

/* Claims of the program's translation, of which there are none where it is refused; it then asserts them. */
static size_t assert_claims(tvm_ir_program *program, const char *target_name) {
    tvm_diags diags = {0};
    tvm_target target;
    tvm_module *module = NULL;
    tvm_claims claims = {.items = NULL};
    const tvm_translate_options options = {.claims = &claims};
    tvm_ir_program *plain = with_plain_loops(program);
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    size_t count = 0;
    bool good = tvm_translate_with(plain, target, &options, &module, &diags) == TVM_OK;
    if (good && claims.count) {
        ck_assert(!claims.failed);
        qsort(claims.items, claims.count, sizeof *claims.items, by_insn);
        const tvm_claim *c = claims.items, *end = c + claims.count;
        for (uint32_t k = 0; k < program->kernel_count; k++) c = put_claims(program, k, c, end);
        count = claims.count;
        tvm_status status = tvm_verify(program, &diags);
        tvm_diags_print(&diags, stderr, "claims", false);
        ck_assert_int_eq(status, TVM_OK);
    }
    if (good) tvm_module_free(module);
    free(claims.items);
    tvm_ir_program_free(plain);
    tvm_diags_free(&diags);
    return count;
}

/* ---- programs ---- */

typedef struct counts {
    size_t claims;
    unsigned launches, wrong;
} counts;

static void note(counts *all, const char *fault, const char *name, const char *text) {
    all->launches++;
    if (!strstr(fault, "claim: ")) return;
    all->wrong++;
    fprintf(stderr, "%s: %s\n%s\n", name, fault, text);
}

static tvm_ir_program *assemble(const char *text) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_assemble_text(text, strlen(text), "random.vasm", NULL, &program, &diags);
    tvm_diags_free(&diags);
    return program;
}

static void run_hostile(const random_program *p, unsigned seed, counts *all) {
    tvm_ir_program *program = assemble(p->text);
    tvm_interp_kernel *ready = NULL;
    uint64_t state = seed;
    char name[32];
    snprintf(name, sizeof name, "seed %u", seed);
    if (!program) return;
    all->claims += assert_claims(program, seed / 4 % 2 ? "sm_90a" : "sm_80");
    ck_assert_int_eq(tvm_interp_prepare(program, &program->kernels[0], &ready, NULL), TVM_OK);
    for (unsigned i = 0, tries = 0; i < LAUNCHES && tries < 60; tries++) {
        launch l = {.program = program, .kernel = &program->kernels[0]};
        if (!choose_arguments(&l, &state)) continue;
        make_tensors(&l);
        interpret(&l, ready);
        note(all, l.fault, name, p->text);
        free_tensors(&l);
        i++;
    }
    tvm_interp_free(ready);
    tvm_ir_program_free(program);
}

START_TEST(claims_hold_for_hostile_arguments) {
    static random_program p;
    counts all = {0};
    for (unsigned i = 0; i < seeds && all.wrong < 3; i++) {
        random_kernel_make(&p, first_seed + i);
        run_hostile(&p, first_seed + i, &all);
    }
    printf("%zu claims of %u programs, %u launches\n", all.claims, seeds, all.launches);
    ck_assert_uint_eq(all.wrong, 0);
    ck_assert_uint_ge(all.claims, 20 * (size_t)seeds);
    ck_assert_uint_ge(all.launches, seeds);
}
END_TEST

static void run_generated(tvm_ir_program *program, const char *name, const char *text, unsigned set,
                          counts *all) {
    tvm_interp_kernel *ready = NULL;
    tvm_diags diags = {0};
    generate_launch l;
    ck_assert_int_eq(tvm_interp_prepare(program, &program->kernels[0], &ready, &diags), TVM_OK);
    if (generate_launch_make(&l, program, 0, set, 0, &diags)) {
        tvm_status status = generate_launch_interpret(&l, ready, INSTRUCTIONS, TVM_SANITIZE_OFF, &diags);
        note(all, status == TVM_OK ? "" : diags.items[0].message, name, text);
        if (status != TVM_OK) fprintf(stderr, "%s: %s\n", name, diags.items[0].message);
        all->wrong += status != TVM_OK;
    }
    generate_launch_free(&l);
    tvm_interp_free(ready);
    tvm_diags_free(&diags);
}

START_TEST(claims_hold_in_programs_of_every_row) {
    static const char *const targets[] = {"sm_80", "sm_90a"};
    const generate_options options = {.clusters = true, .layouts_matter = true};
    counts all = {0};
    for (unsigned i = 0; i < seeds && all.wrong < 3; i++) {
        char name[32], *text = generate_program(first_seed + i, &options, NULL);
        tvm_ir_program *program = text ? assemble(text) : NULL;
        snprintf(name, sizeof name, "generated %u", first_seed + i);
        if (program) {
            all.claims += assert_claims(program, targets[i % 2]);
            run_generated(program, name, text, i % GENERATE_SETS, &all);
        }
        tvm_ir_program_free(program);
        free(text);
    }
    printf("%zu claims of %u generated programs, %u launches\n", all.claims, seeds, all.launches);
    ck_assert_uint_eq(all.wrong, 0);
    ck_assert_uint_ge(all.claims, 20 * (size_t)seeds);
}
END_TEST

static char folder[4096];

/* A case that ends well also does with the claims. */
static void run_case(const case_file *c, tvm_context *context, counts *all) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *bytes = NULL;
    size_t size;
    if (c->errors || c->refusal || c->prints || !c->kernel ||
        case_assemble(c, folder, &program, &diags) != TVM_OK) {
        tvm_diags_free(&diags);
        return;
    }
    all->claims += assert_claims(program, "sm_90a");
    ck_assert_int_eq(tvm_vbc_write(program, 0, &bytes, &size, &diags), TVM_OK);
    tvm_diags_free(&diags);
    bool good = case_launch(c, context, bytes, size, NULL);
    if (!good) fprintf(stderr, "%s: with its claims it ends otherwise\n", c->name);
    all->wrong += !good;
    all->launches++;
    free(bytes);
    tvm_ir_program_free(program);
}

START_TEST(claims_hold_in_the_cases) {
    const tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    tvm_context *context = NULL;
    char **paths = case_list(folder);
    counts all = {0};
    ck_assert_ptr_nonnull(paths);
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    for (char **path = paths; *path; path++) {
        case_file *c = case_read(*path);
        ck_assert_ptr_nonnull(c);
        run_case(c, context, &all);
        case_free(c);
        free(*path);
    }
    free(paths);
    tvm_context_free(context);
    printf("%zu claims of %u cases\n", all.claims, all.launches);
    ck_assert_uint_eq(all.wrong, 0);
    ck_assert_uint_ge(all.launches, 100);
}
END_TEST

int main(int argc, char **argv) {
    snprintf(folder, sizeof folder, "%s/tests/cases", getenv("srcdir") ? getenv("srcdir") : ".");
    if (argc > 1) seeds = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2) first_seed = (unsigned)strtoul(argv[2], NULL, 0);
    Suite *suite = suite_create("claims");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, claims_hold_for_hostile_arguments);
    tcase_add_test(tests, claims_hold_in_programs_of_every_row);
    tcase_add_test(tests, claims_hold_in_the_cases);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
