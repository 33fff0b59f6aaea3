/* relayout between random layouts, in every way that the code generator has: what a kernel loads in one
 * layout, moves to another and stores is what it loaded, on the interpreter and as generated code. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "layout_kit.h"
#include "program_kit.h"
#include "ptx_run_kit.h"

enum { ELEMENTS_MAX = 1 << 13, ROUNDS = 12 };

static const struct {
    const char *type;
    unsigned bytes;
} types[] = {{"f16", 2}, {"u8", 1}, {"f32", 4}, {"i64", 8}, {"i16", 2}};

/* expected: what stands in the PTX for sm_90a; "": nothing moves between threads; NULL: anything. */
static void check_pair(const char *type, unsigned bytes, const tvm_layout *from, const tvm_layout *to,
                       const char *expected) {
    static uint8_t x[8 * ELEMENTS_MAX] __attribute__((aligned(64))),
        z[8 * ELEMENTS_MAX] __attribute__((aligned(64)));
    char text[4096], shape[64] = "", first[TVM_LAYOUT_TEXT_MAX], second[TVM_LAYOUT_TEXT_MAX];
    size_t size = (size_t)tvm_layout_elements(from) * bytes;
    ck_assert_uint_le(size, sizeof x);
    for (unsigned d = 0; d < from->rank; d++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%u", d ? ", " : "", from->shape[d]);
    snprintf(text, sizeof text,
             ".vasm 3\n.kernel k(x: global %s[%s], z: global %s[%s])\n.warps %u\n.grid 1\n"
             "%%v = load-global x, %s\nstore-global z, relayout(%%v, %s)\n.end\n",
             type, shape, type, shape, tvm_layout_threads(from) / 32, tvm_layout_text(from, first),
             tvm_layout_text(to, second));
    for (size_t i = 0; i < size; i++) x[i] = (uint8_t)(i * 151 >> 3 ^ i);
    tvm_ir_program *program = assemble(text);
    static const char *const targets[] = {"sm_80", "sm_90a"};
    for (unsigned t = 0; t < 2; t++) {
        memset(z, 0x5a, size);
        run_ptx(program, targets[t], x, z, size);
        ck_assert_msg(memcmp(x, z, size) == 0, "%s: elements are lost:\n%s", targets[t], text);
    }
    if (expected) {
        tvm_module *module = translate(program, "sm_90a");
        bool moves = strstr(module->ptx, "st.shared") || strstr(module->ptx, "shfl") ||
                     strstr(module->ptx, "movmatrix");
        ck_assert_msg(strstr(module->ptx, expected) != NULL && moves == (expected[0] != '\0'),
                      "not by '%s':\n%s", expected, text);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}

START_TEST(test_random_layouts) {
    uint32_t state = 77 + (uint32_t)_i;
    static const uint32_t extents[] = {2, 4, 6, 8, 12, 16, 32, 64}, warps[] = {1, 2, 3, 4};
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint32_t shape[3], left = 4096, threads = 32 * warps[random_below(&state, 4)];
        unsigned rank = 1 + random_below(&state, 3);
        for (unsigned d = 0; d < rank; d++) {
            if (left < 2) left = 2;
            do shape[d] = extents[random_below(&state, 8)];
            while (shape[d] > left);
            left /= shape[d];
        }
        tvm_layout from = random_layout_over(&state, rank, shape, threads),
                   to = random_layout_over(&state, rank, shape, threads);
        check_pair(types[_i].type, types[_i].bytes, &from, &to, NULL);
    }
}
END_TEST

static tvm_layout layout_of(const char *text) {
    char program[512];
    snprintf(program, sizeof program,
             ".vasm 3\n.kernel k(n: i32)\n.warps 4\n.grid 1\n%%x = alloc-register %s\n.end\n", text);
    tvm_ir_program *made = assemble(program);
    tvm_layout layout = made->layouts[0];
    tvm_ir_program_free(made);
    return layout;
}

START_TEST(test_ways) {
    static const struct {
        const char *from, *to, *way;
    } pairs[] = {
        {"f16[32, 64], layout spatial(4, 1).local(1, 8).ldmatrix",
         "f16[32, 64], layout spatial(4, 1).local(1, 8).permute(ldmatrix, [1, 0])", "movmatrix.sync.aligned"},
        {"f16[32, 64], layout spatial(4, 1).local(1, 8).permute(ldmatrix, [1, 0])",
         "f16[32, 64], layout spatial(4, 1).column_local(1, 8).ldmatrix", "movmatrix.sync.aligned"},
        {"f16[64, 32], layout spatial(64, 2).local(1, 16)",
         "f16[64, 32], layout layout([64, 32], [64, 2, 2, 8], [0, 1], [3, 2])", ""},
        {"f16[8, 32], layout replicated(4, 2).spatial(8, 4).local(1, 8)",
         "f16[8, 32], layout replicated(4, 2).column_spatial(8, 4).local(1, 8)", "shfl.sync.idx"},
        {"f16[32, 64], layout spatial(4, 1).spatial(8, 4).local(1, 16)",
         "f16[32, 64], layout spatial(1, 4).spatial(8, 4).local(4, 4)", "st.shared"},
    };
    for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        tvm_layout from = layout_of(pairs[i].from), to = layout_of(pairs[i].to);
        check_pair("f16", 2, &from, &to, pairs[i].way);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rearrange");
    TCase *tests = tcase_create("rearrange");
    tcase_set_timeout(tests, 300);
    tcase_add_loop_test(tests, test_random_layouts, 0, sizeof types / sizeof *types);
    tcase_add_test(tests, test_ways);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
