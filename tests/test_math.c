/* Functions of floats: the interpreter rounds correctly, and the PTX, executed by ptx_machine.h with exact
 * functions of the hardware, stays within the bounds of vasm(5). */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "interp.h"
#include "interp_loops.h"
#include "fileio.h"
#include "math_reference.h"
#include "ptx_machine.h"
#include "random_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { SAMPLES = 512 };

/* A code: any, one of the row's interval, or one where something special happens. */
static uint64_t sample(const math_row *row, tvm_dtype type, unsigned i) {
    static const double special[] = {
        0, -0.0, 1, -1, 2, -2, 0.5, 1.5, 2.5, -2.5, INFINITY, -INFINITY, NAN, 0x1p-149, 0x1p-126, 88.72283,
        1e30, 1.0000001, 0.99999994, 3, -3, 105616, 1e38,
        /* f64 alone has them all */
        1e308, 0x1p-1074, -0x1p-1060, 0x1p-1022, 709.7827, -745.1, 710.4, 1 + 0x1p-52, 1 - 0x1p-53, 0x1p-30,
        134217730, 0x1.921fb54442d18p0, 0x1.6ac5b262ca1ffp849, 0x1.921fb54442d18p27, -0x1.fffffffffffffp1023};
    enum { SPECIALS = sizeof special / sizeof *special };
    if (i < SPECIALS) return tvm_encode(type, special[i]);
    if (i % 3 == 0) return random_bits() >> (64 - type.bits);
    return tvm_encode(type, row->low + (row->high - row->low) * (double)(random_bits() >> 11) * 0x1p-53);
}

/* ---- the interpreter ---- */

static void check_rounding(const math_row *row, tvm_dtype type, uint64_t x, uint64_t y) {
    tvm_opcode op = tvm_op_by_name(row->name, strlen(row->name));
    const void *const operands[3] = {&x, &y, NULL};
    uint64_t found = 0;
    tvm_interp_element_loop(op, type)(1, &found, operands, (const size_t[3]){1, 1, 1});
    double a = tvm_decode(type, x), b = tvm_decode(type, y), result = tvm_decode(type, found);
    long double exact = math_value(row, (long double)a, (long double)b);
    if (type.bits == 64) { /* for whose rounding long double has too few digits more */
        ck_assert_msg(math_units(type, exact, result) <= 0.51, "%s(%a, %a) is %a, expected %La", row->name, a,
                      b, result, exact);
        return;
    }
    uint64_t want = math_rounded(type, exact);
    if (isnan(result) && isnan(tvm_decode(type, want))) return;
    ck_assert_msg(found == want, "%s(%a, %a) is %a, expected %a", row->name, a, b, result,
                  tvm_decode(type, want));
}

/* All codes of f16 and bf16, and many of f32; f64 nearly so. */
START_TEST(the_interpreter_rounds_correctly) {
    const math_row *row = &math_rows[_i];
    for (unsigned t = 0; t < MATH_TYPES; t++)
        for (unsigned i = 0, end = t == MATH_F64 ? 1 << 13 : 1 << 16; i < end && math_has(row, t); i++) {
            bool all = math_types[t].bits == 16 && row->unary;
            uint64_t x = all ? i : sample(row, math_types[t], i % 8191);
            check_rounding(row, math_types[t], x, sample(row, math_types[t], i % 4093));
        }
}
END_TEST

START_TEST(roots_of_f64_are_rounded) {
    static const char *const names[] = {"sqrt", "floor", "ceil", "round", "trunc"};
    static double (*const functions[])(double) = {sqrt, floor, ceil, rint, trunc};
    for (unsigned f = 0; f < 5; f++)
        for (unsigned i = 0; i < 1000; i++) {
            double x = ldexp((double)(random_bits() >> 11), (int)(random_bits() % 60) - 60), found;
            const void *const operands[3] = {&x, NULL, NULL};
            tvm_opcode op = tvm_op_by_name(names[f], strlen(names[f]));
            tvm_interp_element_loop(op, TVM_F64)(1, &found, operands, (const size_t[3]){1, 0, 0});
            ck_assert(found == functions[f](x));
        }
}
END_TEST

/* ---- the PTX ---- */

static tvm_module *translate_row(const math_row *row, tvm_dtype type, const char *target) {
    char text[512], name[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(type, name);
    snprintf(
        text, sizeof text,
        ".vasm 5\n.kernel k(x: global %s[512], y: global %s[512], r: global %s[512])\n.warps 2\n.grid 1\n"
        "%%x = load-global x, spatial(64).local(8)\n%%y = load-global y, spatial(64).local(8)\n"
        "%%r = %s %%x%s%s\nstore-global r, %%r\n.end\n",
        name, name, name, row->name, row->binary ? ", %y" : "", row->fast ? ", fast" : "");
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, target);
    tvm_ir_program_free(program);
    return module;
}

static void check_bound(const math_row *row, unsigned t, const char *target) {
    static uint8_t x[SAMPLES * 8] __attribute__((aligned(16))), y[SAMPLES * 8] __attribute__((aligned(16))),
        r[SAMPLES * 8] __attribute__((aligned(16)));
    tvm_dtype type = math_types[t];
    for (unsigned i = 0; i < SAMPLES; i++) {
        tvm_bits_set(x, i * type.bits, type.bits, sample(row, type, i));
        tvm_bits_set(y, i * type.bits, type.bits, sample(row, type, i % 47));
    }
    tvm_module *module = translate_row(row, type, target);
    ptx_machine m = ptx_load(module->ptx, "k", 64);
    m.params[0] = (uint64_t)(uintptr_t)x, m.params[1] = (uint64_t)(uintptr_t)y;
    m.params[2] = (uint64_t)(uintptr_t)r;
    ptx_run(&m);
    ptx_free(&m);
    tvm_module_free(module);
    double worst = 0;
    for (unsigned i = 0; i < SAMPLES; i++) {
        double a = tvm_decode(type, tvm_bits_get(x, i * type.bits, type.bits)),
               b = tvm_decode(type, tvm_bits_get(y, i * type.bits, type.bits)),
               found = tvm_decode(type, tvm_bits_get(r, i * type.bits, type.bits));
        if (!math_counts(row, a, b)) continue;
        double error = math_error(row, type, a, b, found);
        if (error > worst) worst = error;
        ck_assert_msg(error <= row->units[t], "%s%s on %s: (%a, %a) is %a, expected %La: %g units", row->name,
                      row->fast ? " fast" : "", target, a, b, found,
                      math_value(row, (long double)a, (long double)b), error);
    }
    if (getenv("MATH_VERBOSE"))
        printf("%s%s %u: %.3f\n", row->name, row->fast ? " fast" : "", type.bits, worst);
}

START_TEST(the_code_keeps_its_bounds) {
    for (unsigned t = 0; t < MATH_TYPES && math_has(&math_rows[_i], t); t++) {
        check_bound(&math_rows[_i], t, "sm_80");
        check_bound(&math_rows[_i], t, "sm_90a");
    }
}
END_TEST

/* Does `NAME NUMBER` stand in the text, each a word? */
static bool states(const char *text, const char *name, double number) {
    size_t length = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at++) {
        char *end;
        bool is_word = strchr(" \n", at[-1]) && at[length] == ' ';
        if (is_word && strtod(at + length, &end) == number && end > at + length && strchr(" ,\n", *end))
            return true;
    }
    return false;
}

/* The lines of the manual's table that follows these words. */
static char *manual_table(const char *manual, const char *words) {
    const char *at = strstr(manual, words);
    at = at ? strstr(at, ".nf\n") : NULL;
    const char *end = at ? strstr(at, ".fi\n") : NULL;
    ck_assert_msg(end != NULL, "the manual has no table after '%s'", words);
    return strndup(at, (size_t)(end - at)); /* begins with a dot: no name does */
}

START_TEST(the_manual_states_the_bounds_that_are_tested) {
    char path[4096];
    uint8_t *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/man/vasm.5.in", getenv("srcdir") ? getenv("srcdir") : ".");
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &bytes, &size, NULL), TVM_OK);
    char *manual = strndup((const char *)bytes, size), *plain = manual_table(manual, "in a sweep of f32"),
         *wide = manual_table(manual, "in a sweep of f64:"),
         *fast = manual_table(manual, "In f32, in the same units:");
    for (size_t i = 0; i < MATH_ROWS; i++) {
        const math_row *row = &math_rows[i];
        const char *table = row->fast ? fast : plain;
        if (!row->fast && row->units[2] <= 0.5) continue; /* correctly rounded: in words */
        if (!row->fast)
            ck_assert_msg(states(wide, row->name, row->units[MATH_F64]),
                          "%s: the manual does not say %g of f64", row->name, row->units[MATH_F64]);
        if (row->absolute > 0) continue; /* of several rows together, in words */
        ck_assert_msg(states(table, row->name, row->units[2]), "%s%s: the manual does not say %g", row->name,
                      row->fast ? " fast" : "", row->units[2]);
    }
    free(plain);
    free(wide);
    free(fast);
    free(manual);
    free(bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("math");
    TCase *tests = tcase_create("functions");
    tcase_add_loop_test(tests, the_interpreter_rounds_correctly, 0, MATH_ROWS);
    tcase_add_test(tests, roots_of_f64_are_rounded);
    tcase_add_test(tests, the_manual_states_the_bounds_that_are_tested);
    tcase_add_loop_test(tests, the_code_keeps_its_bounds, 0, MATH_ROWS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
