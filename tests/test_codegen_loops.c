/* What the generated code computes once before a loop instead of in each turn. That the values are right is
 * tested by the cases (test_codegen_cases, and on a GPU). */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "suite_kit.h"

enum { LABELS = 256 };

/* A kernel over x f32[m, n] of one warp; %r and %l, variables that its loops do not change. */
static char *translate(const char *body) {
    static const char head[] =
        ".vasm 1\n.kernel f(m: i32, n: i32, a: i64, x: global f32[m, n], wide: global f32[1000, 1540])\n"
        ".warps 1\n.grid 1\n.assume n % 4 == 0\n.layout T = local(4, 1).spatial(1, 32)\n"
        "%sum = alloc-register f32[4, 32], T, init 0.0\n"
        "%r = block.x\n%l = a\nif m > 10\n%r = %r + 1\n%l = %l + 1\nend\n";
    char text[2048];
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_module *module = NULL;
    int size = snprintf(text, sizeof text, "%s%s\nstore-global x, %%sum\n.end\n", head, body);
    ck_assert_int_lt(size, (int)sizeof text);
    tvm_status status = tvm_assemble_text(text, (size_t)size, "test", NULL, &program, &diags);
    if (status == TVM_OK) status = tvm_translate(program, (tvm_target){90, 'a'}, &module, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    char *ptx = strdup(module->ptx);
    ck_assert_ptr_nonnull(ptx);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    return ptx;
}

static unsigned occurrences(const char *text, const char *part) {
    unsigned count = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) count++;
    return count;
}

/* The text from the label of the innermost loop to its branch back to it: the shortest of all. The caller
 * frees it. */
static char *innermost_loop(const char *ptx) {
    const char *label[LABELS] = {NULL}, *from = NULL;
    size_t length = 0;
    for (const char *at = ptx; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        unsigned number;
        size_t line = strcspn(at, "\n");
        if (sscanf(at, "$L%u:", &number) == 1) {
            ck_assert_uint_lt(number, LABELS);
            label[number] = at;
            continue;
        }
        const char *branch = strstr(at, "bra.uni $L");
        if (branch == NULL || branch >= at + line || sscanf(branch, "bra.uni $L%u;", &number) != 1) continue;
        ck_assert_uint_lt(number, LABELS);
        if (label[number] == NULL || (from != NULL && (size_t)(at - label[number]) >= length)) continue;
        from = label[number];
        length = (size_t)(at - from);
    }
    ck_assert_msg(from != NULL, "no loop:\n%s", ptx);
    return strndup(from, length);
}

typedef struct hoist_row {
    const char *body;
    const char *part;   /* of an instruction */
    bool stays;         /* it stands in the loop: what it computes changes there */
    const char *inside; /* another one that does stand in the loop */
} hoist_row;

#define LOAD(row, column) "%v = load-global x[" row ", " column "], T\n%sum = add %sum, %v\n"

static const hoist_row rows[] = {
    /* an index times the row's length, in 64 bits */
    {"for %j = 0 to n step 32\n" LOAD("%r", "%j") "end", "mul.lo.s64", false, "ld.global"},
    {"for %j = 0 to m\n" LOAD("%j", "%r") "end", "mul.lo.s64", true, "ld.global"},
    {"for %i = 0 to m\nfor %j = 0 to n step 32\n" LOAD("%i + %r * 3", "%j") "end\nend", "mul.lo.s64", false,
     "ld.global"},
    {"for %j = 0 to n step 32\nfor %u = 0 to 2 unroll 2\n" LOAD("%r", "%j + %u") "end\nend", "mul.lo.s64",
     false, "ld.global"},
    {"%j = 0\nwhile %j < n\n" LOAD("%r + 1", "%j") "%j = %j + 32\nend", "mul.lo.s64", false, "ld.global"},
    {"%j = 0\nwhile %j < n\n" LOAD("%r", "%j") "%j = %j + 32\n%r = %r + 1\nend", "mul.lo.s64", true,
     "ld.global"},
    {"for %j = 0 to n step 32\n" LOAD("i32(%l) * 5", "%j") "end", "mul.lo.s64", false, "ld.global"},
    /* of copies, too */
    {"%s = alloc-shared f32[4, 32]\nfor %j = 0 to n step 32\ncopy-async %s, x[%r, %j]\nend", "mul.lo.s64",
     false, "cp.async.cg"},
    /* comparisons of a condition */
    {"for %j = 0 to n\nif %l < 4000000000\nsync\nend\nend", "setp.lt.s64", false, "setp.ne.b32"},
    {"for %j = 0 to n\nif %l + i64(%j) < 4000000000\nsync\nend\nend", "setp.lt.s64", true, "bar.sync"},
    {"for %j = 0 to n\nif %r % 7 == 3\nsync\nend\nend", "rem.s32", false, "bar.sync"},
    {"for %j = 0 to n\nif %r % 7 == 3\n%r = %r + 1\nend\nend", "rem.s32", true, ""},
};

START_TEST(what_a_loop_leaves_alone_is_computed_before_it) {
    const hoist_row *row = &rows[_i];
    char *ptx = translate(row->body), *loop = innermost_loop(ptx);
    ck_assert_msg((occurrences(loop, row->part) > 0) == row->stays, "%s: %s in\n%s", row->body, row->part,
                  loop);
    ck_assert_msg(strstr(loop, row->inside) != NULL, "%s: no %s in\n%s", row->body, row->inside, loop);
    ck_assert_msg(occurrences(ptx, row->part) > 0, "%s: no %s at all", row->body, row->part);
    free(loop);
    free(ptx);
}
END_TEST

/* The instruction has 13 bits less one for a constant: more would be added in each thread and turn. */
START_TEST(constants_of_copies_are_small) {
    char *ptx =
        translate("%t = alloc-shared f32[64, 64]\nfor %j = 0 to 15\ncopy-async %t, wide[%r, %j * 64]\nend");
    unsigned copies = 0;
    for (const char *at = ptx; (at = strstr(at, "cp.async.cg")); at++) {
        const char *plus = strchr(strstr(at, "], [%rd"), '+');
        ck_assert_ptr_nonnull(plus);
        long bytes = strtol(plus + 1, NULL, 10);
        ck_assert_msg(bytes >= -2048 && bytes <= 2047, "%ld: %.80s", bytes, at);
        copies++;
    }
    ck_assert_uint_eq(copies, 64 * 64 / 4 / 32);
    free(ptx);
}
END_TEST

typedef struct proof_row {
    const char *body;
    unsigned traps; /* of the accesses and steps that are not proved */
} proof_row;

#define RING       "%s = alloc-shared f32[3, 4, 32]\n%st = 0\nfor %j = 0 to m\n"
#define USE(index) "%v = load-shared %s[" index ", 0], T\n"

static const proof_row proofs[] = {
    {RING USE("%st") "%st = %st == 2 ? 0 : %st + 1\nend", 0},
    {RING USE("%st") "%st = %st < 2 ? %st + 1 : 0\nend", 0},
    {RING USE("%st") "%st = 2 - %st\nend", 0},
    {RING "%into = %st == 0 ? 2 : %st - 1\ncopy-async %s[%into], x[0, 0]\n%st = %st == 2 ? 0 : %st + 1\nend",
     0},
    {RING "if n > 7\n%st = 1\nelse\n%st = 2\nend\n" USE("%st") "end", 0},
    {RING USE("%j % 3") "end", 0},
    {"%s = alloc-shared f32[3, 4, 32]\nfor %j = 0 to 3\n" USE("%j") "end\nfor %j = 0 to 2\n" USE(
         "2 - %j") "end",
     0},
    /* the ring is left, at its end, at its beginning, or where a number wraps */
    {RING USE("%st") "%st = %st == 3 ? 0 : %st + 1\nend", 1},
    {RING USE("%st") "%st = %st == 0 ? 3 : %st - 1\nend", 1},
    {RING USE("%st") "%st = %st == 1 ? 0 : %st + 1\nif n > 7\n%st = %st + 1\nend\nend", 1},
    {RING USE("%st") "%st = %st + 1\nend", 1},
    {RING "%into = %st == 0 ? 1 : %st - 2\n" USE("%into") "%st = %st == 2 ? 0 : %st + 1\nend", 1},
    {RING USE("(%j + 2) % 3") "end", 1},
    {RING USE("m") "end", 1},
    {"for %j = 0 to m step n\nsync\nend", 1},
    {"for %j = 0 to m step max(n, 1)\nsync\nend", 0},
};

START_TEST(what_cannot_be_proved_traps_and_nothing_else) {
    char *ptx = translate(proofs[_i].body);
    ck_assert_msg(occurrences(ptx, " trap;") == proofs[_i].traps, "%s:\n%s", proofs[_i].body, ptx);
    free(ptx);
}
END_TEST

START_TEST(a_warp_waits_for_its_own_threads) {
    char *ptx = translate("sync-warp");
    ck_assert_uint_eq(occurrences(ptx, "bar.warp.sync 0xffffffff;"), 1);
    ck_assert_uint_eq(occurrences(ptx, "bar.sync"), 0);
    free(ptx);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen loops");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, what_a_loop_leaves_alone_is_computed_before_it, 0, sizeof rows / sizeof *rows);
    tcase_add_test(tests, constants_of_copies_are_small);
    tcase_add_loop_test(tests, what_cannot_be_proved_traps_and_nothing_else, 0,
                        sizeof proofs / sizeof *proofs);
    tcase_add_test(tests, a_warp_waits_for_its_own_threads);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
