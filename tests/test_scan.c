/* scan and reduce over random layouts, axes and directions: the generated code gives the interpreter's bits,
 * and these are the sums of float64, nearly. */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "layout_kit.h"
#include "ptx_run_kit.h"
#include "suite_kit.h"
#include "tvm.h"
#include "vbc.h"

enum { ELEMENTS_MAX = 1 << 13, ROUNDS = 12 };

static const struct {
    const char *type, *operation;
    unsigned bytes;
} kinds[] = {{"f32", "sum", 4}, {"i64", "max", 8}, {"f16", "min", 2},
             {"i8", "prod", 1}, {"u32", "xor", 4}, {"f64", "sum", 8}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint8_t x[8 * ELEMENTS_MAX] __attribute__((aligned(64))),
    z[8 * ELEMENTS_MAX] __attribute__((aligned(64))), expected[8 * ELEMENTS_MAX] __attribute__((aligned(64)));

static void interpret(tvm_ir_program *program, size_t size, size_t results) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .cache_dir = ""};
    tvm_context *context = NULL;
    tvm_program *code = NULL;
    tvm_kernel *kernel = NULL;
    uint8_t *bytes = NULL;
    size_t length = 0;
    tvm_value arguments[2] = {{.data = x, .bytes = size}, {.data = expected, .bytes = results}};
    ck_assert_int_eq(tvm_vbc_write(program, true, &bytes, &length, NULL), TVM_OK);
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_int_eq(tvm_load(context, bytes, length, &code), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(code, "k", &kernel), TVM_OK);
    ck_assert_msg(tvm_launchv(kernel, NULL, arguments, 2) == TVM_OK, "%s", tvm_message(context));
    tvm_program_free(code);
    tvm_context_free(context);
    free(bytes);
}

/* `body` makes %r of %v; the result has shape `result`. */
static void check_body(unsigned kind, const tvm_layout *layout, const char *body, const char *result,
                       size_t results) {
    char text[4096], shape[64] = "", written[TVM_LAYOUT_TEXT_MAX];
    size_t size = (size_t)tvm_layout_elements(layout) * kinds[kind].bytes;
    for (unsigned d = 0; d < layout->rank; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%u", d ? ", " : "",
                 layout->shape[d]);
    snprintf(text, sizeof text,
             ".vasm 3\n.kernel k(x: global %s[%s], z: global %s[%s])\n.warps %u\n.grid 1\n"
             "%%v = load-global x, %s\n%s\nstore-global z, %%r\n.end\n",
             kinds[kind].type, shape, kinds[kind].type, result ? result : shape,
             tvm_layout_threads(layout) / 32, tvm_layout_text(layout, written), body);
    results *= kinds[kind].bytes;
    tvm_ir_program *program = assemble(text);
    memset(expected, 0x5a, results);
    interpret(program, size, results);
    static const char *const targets[] = {"sm_80", "sm_90a"};
    for (unsigned t = 0; t < 2; t++) {
        memset(z, 0x5a, results);
        run_ptx(program, targets[t], x, z, size > results ? size : results);
        ck_assert_msg(memcmp(expected, z, results) == 0, "%s: not the interpreter's bits:\n%s", targets[t],
                      text);
    }
    tvm_ir_program_free(program);
}

/* Small numbers: of floats with fractions, so that the order of a sum shows. */
static void fill(unsigned kind, size_t elements, uint32_t *state) {
    for (size_t i = 0; i < elements; i++) {
        double value = ((double)random_below(state, 20000) - 10000) / 1023;
        if (kind == 0) ((float *)(void *)x)[i] = (float)value;
        if (kind == 1) ((int64_t *)(void *)x)[i] = (int64_t)(value * 1e12);
        if (kind == 2) ((uint16_t *)(void *)x)[i] = tvm_f64_to_f16(value);
        if (kind == 3) x[i] = (uint8_t)random_below(state, 256) | 1;
        if (kind == 4) ((uint32_t *)(void *)x)[i] = random_next(state);
        if (kind == 5) ((double *)(void *)x)[i] = value / 3;
    }
}

/* The sum of all before, or up to, each element, in float64. */
static void check_sums(const tvm_layout *layout, unsigned axis, bool exclusive, bool reverse) {
    uint32_t inner = 1, extent = layout->shape[axis], elements = tvm_layout_elements(layout);
    for (unsigned d = axis + 1; d < layout->rank; d++) inner *= layout->shape[d];
    for (uint32_t base = 0; base < elements; base++) {
        double sum = 0;
        if (base / inner % extent != 0) continue;
        for (uint32_t i = 0; i < extent; i++) {
            uint32_t at = base + (reverse ? extent - 1 - i : i) * inner;
            double value = (double)((const float *)(const void *)x)[at],
                   found = (double)((const float *)(const void *)expected)[at];
            double want = exclusive ? sum : sum + value;
            ck_assert_msg(fabs(found - want) < 1e-3, "element %u is %g, expected %g", at, found, want);
            sum += value;
        }
    }
}

static tvm_layout random_tile(uint32_t *state) {
    static const uint32_t extents[] = {1, 2, 4, 6, 8, 12, 16, 32, 64, 96, 128}, warps[] = {1, 2, 3, 4, 8};
    uint32_t shape[3], left = 4096, threads = 32 * warps[random_below(state, 5)];
    unsigned rank = 1 + random_below(state, 3);
    for (unsigned d = 0; d < rank; d++) {
        do shape[d] = extents[random_below(state, 11)];
        while (shape[d] > left);
        left /= shape[d];
    }
    return random_layout_over(state, rank, shape, threads);
}

START_TEST(scans_are_the_interpreters) {
    unsigned kind = (unsigned)_i;
    uint32_t state = 11 + kind;
    for (unsigned round = 0; round < ROUNDS; round++) {
        char body[128];
        tvm_layout layout = random_tile(&state);
        unsigned axis = random_below(&state, layout.rank);
        bool exclusive = random_below(&state, 2), reverse = random_below(&state, 2);
        snprintf(body, sizeof body, "%%r = scan %s, %%v, %u%s%s", kinds[kind].operation, axis,
                 exclusive ? ", exclusive" : "", reverse ? ", reverse" : "");
        fill(kind, tvm_layout_elements(&layout), &state);
        check_body(kind, &layout, body, NULL, tvm_layout_elements(&layout));
        if (kind == 0) check_sums(&layout, axis, exclusive, reverse);
    }
}
END_TEST

/* Layouts whose axis is one digit of many threads: of shuffles and of totals in shared memory, each lane's or
 * each warp's. */
START_TEST(scans_over_threads_are_the_interpreters) {
    static const uint32_t shapes[][2] = {{32, 4}, {64, 2}, {128, 1}, {256, 1}, {512, 2}, {96, 1}, {24, 4}};
    uint32_t state = 7;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (unsigned way = 0; way < 4; way++) {
            static const char *const ways[] = {"", ", reverse", ", exclusive", ", exclusive, reverse"};
            char body[128];
            tvm_layout layout;
            tvm_why why = {""};
            ck_assert_msg(tvm_layout_spatial(2, shapes[i], &layout, &why) == TVM_OK, "%s", why.text);
            snprintf(body, sizeof body, "%%r = scan sum, %%v, 0%s", ways[way]);
            fill(0, tvm_layout_elements(&layout), &state);
            check_body(0, &layout, body, NULL, tvm_layout_elements(&layout));
            check_sums(&layout, 0, way >= 2, way % 2);
        }
}
END_TEST

START_TEST(reductions_are_the_interpreters) {
    unsigned kind = (unsigned)_i;
    uint32_t state = 99 + kind;
    for (unsigned round = 0; round < ROUNDS; round++) {
        char body[128], result[64] = "";
        tvm_layout layout = random_tile(&state);
        unsigned axis = random_below(&state, layout.rank), also = random_below(&state, layout.rank);
        size_t results = 1;
        for (unsigned d = 0; d < layout.rank; d++) {
            uint32_t extent = d == axis || d == also ? 1 : layout.shape[d];
            snprintf(result + strlen(result), sizeof result - strlen(result), "%s%u", d ? ", " : "", extent);
            results *= extent;
        }
        snprintf(body, sizeof body, "%%r = reduce %s, %%v, %u, also [%u]", kinds[kind].operation, axis, also);
        fill(kind, tvm_layout_elements(&layout), &state);
        check_body(kind, &layout, body, result, results);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("scan");
    TCase *tests = tcase_create("scan");
    tcase_add_loop_test(tests, scans_are_the_interpreters, 0, KINDS);
    tcase_add_test(tests, scans_over_threads_are_the_interpreters);
    tcase_add_loop_test(tests, reductions_are_the_interpreters, 0, KINDS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
