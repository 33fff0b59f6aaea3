/* relayout between random layouts, in every way that the code generator has: what a kernel loads in one
 * layout, moves to another and stores is what it loaded, on the interpreter and as generated code. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "layout_kit.h"
#include "program_kit.h"
#include "ptx_run_kit.h"
#include "suite_kit.h"

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

/* ---- slice, insert, concat, repeat ---- */

enum { SLICE, INSERT, CONCAT, REPEAT, INTERLEAVE, PIECES };

/* A random instruction over random layouts of two dimensions, and what it must make of x and y = x + 1000. */
typedef struct piece_case {
    unsigned what, rows, columns, axis, times;
    uint32_t offset[2], extent[2];
    uint32_t result[2];
} piece_case;

static int32_t expected_at(const piece_case *c, uint32_t i, uint32_t j) {
    uint32_t at[2] = {i, j}, second = 0, width = c->columns;
    switch (c->what) {
    case SLICE:
        at[0] += c->offset[0], at[1] += c->offset[1];
        break;
    case INSERT:
        second = i >= c->offset[0] && i < c->offset[0] + c->extent[0] && j >= c->offset[1] &&
                 j < c->offset[1] + c->extent[1];
        if (second) at[0] -= c->offset[0], at[1] -= c->offset[1], width = c->extent[1];
        break;
    case CONCAT:
        second = at[c->axis] >= (c->axis ? c->columns : c->rows);
        if (second) at[c->axis] -= c->axis ? c->columns : c->rows, width = c->extent[1];
        break;
    case REPEAT:
        at[c->axis] %= c->axis ? c->columns : c->rows;
        break;
    default:
        at[c->axis] /= c->times;
    }
    return (int32_t)(at[0] * width + at[1] + second * 10000);
}

static void random_case(uint32_t *state, unsigned what, piece_case *c) {
    static const uint32_t extents[] = {2, 4, 6, 8, 16, 32};
    *c = (piece_case){.what = what, .axis = random_below(state, 2), .times = 1 + random_below(state, 4)};
    c->rows = extents[random_below(state, 6)], c->columns = extents[random_below(state, 6)];
    c->extent[0] = 1 + random_below(state, c->rows), c->extent[1] = 1 + random_below(state, c->columns);
    for (unsigned d = 0; d < 2; d++)
        c->offset[d] = random_below(state, (d ? c->columns : c->rows) - c->extent[d] + 1);
    if (what == CONCAT) c->extent[!c->axis] = c->axis ? c->rows : c->columns;
    c->result[0] = c->rows, c->result[1] = c->columns;
    if (what == SLICE) memcpy(c->result, c->extent, sizeof c->result);
    if (what == CONCAT) c->result[c->axis] += c->extent[c->axis];
    if (what >= REPEAT) c->result[c->axis] *= c->times;
}

static void case_body(uint32_t *state, const piece_case *c, uint32_t threads, char *body, size_t size) {
    char layout[TVM_LAYOUT_TEXT_MAX];
    tvm_layout result = random_layout_over(state, 2, c->result, threads);
    tvm_layout_text(&result, layout);
    if (c->what == SLICE)
        snprintf(body, size, "slice %%v, [%u, %u], [%u, %u], layout %s", c->offset[0], c->offset[1],
                 c->extent[0], c->extent[1], layout);
    else if (c->what == INSERT)
        snprintf(body, size, "insert %%v, %%w, [%u, %u]", c->offset[0], c->offset[1]);
    else if (c->what == CONCAT)
        snprintf(body, size, "concat %%v, %%w, %u, layout %s", c->axis, layout);
    else
        snprintf(body, size, "%s %%v, %u, %u", c->what == REPEAT ? "repeat" : "repeat-interleave", c->axis,
                 c->times);
}

static void check_case(uint32_t *state, const piece_case *c) {
    static int32_t in[2 * 1024], out[8 * 1024];
    char text[8192], body[2048], first[TVM_LAYOUT_TEXT_MAX], second[TVM_LAYOUT_TEXT_MAX];
    uint32_t threads = 32 * (1 + random_below(state, 3)), y_rows = c->extent[0], y_columns = c->extent[1];
    tvm_layout x = random_layout_over(state, 2, (const uint32_t[]){c->rows, c->columns}, threads),
               y = random_layout_over(state, 2, c->extent, threads);
    case_body(state, c, threads, body, sizeof body);
    snprintf(text, sizeof text,
             ".vasm 3\n.kernel k(x: global i32[%u, %u], z: global i32[%u, %u])\n.warps %u\n.grid 1\n"
             "%%v = load-global x, %s\n%%w = iota(i32[%u, %u], axis 0, layout %s) * %u + "
             "iota(i32[%u, %u], axis 1, layout %s) + 10000\n%%r = %s\nstore-global z, %%r\n.end\n",
             c->rows, c->columns, c->result[0], c->result[1], threads / 32, tvm_layout_text(&x, first),
             y_rows, y_columns, tvm_layout_text(&y, second), y_columns, y_rows, y_columns, second, body);
    for (uint32_t i = 0; i < c->rows * c->columns; i++) in[i] = (int32_t)i;
    tvm_ir_program *program = assemble(text);
    static const char *const targets[] = {"sm_80", "sm_90a"};
    for (unsigned t = 0; t < 2; t++) {
        memset(out, 0x5a, sizeof out);
        run_ptx(program, targets[t], (const uint8_t *)in, (uint8_t *)out, sizeof in);
        for (uint32_t i = 0; i < c->result[0] * c->result[1]; i++)
            ck_assert_msg(out[i] == expected_at(c, i / c->result[1], i % c->result[1]),
                          "%s: element %u is %d, expected %d:\n%s", targets[t], i, out[i],
                          expected_at(c, i / c->result[1], i % c->result[1]), text);
    }
    tvm_ir_program_free(program);
}

START_TEST(test_pieces) {
    uint32_t state = 5 + (uint32_t)_i;
    for (unsigned round = 0; round < ROUNDS; round++) {
        piece_case c;
        do random_case(&state, (unsigned)_i, &c);
        while (c.result[0] * c.result[1] > 1024);
        check_case(&state, &c);
    }
}
END_TEST

/* Nothing moves where a slice, a stack of equal layouts or a repetition is of whole registers. */
START_TEST(test_pieces_in_registers) {
    tvm_ir_program *program = assemble(
        ".vasm 3\n.kernel k(x: global f16[32, 64], z: global f16[64, 64])\n.warps 1\n.grid 1\n"
        "%v = load-global x, local(4, 2).spatial(8, 4).local(1, 8)\n%a = slice %v, [8, 32], [16, 32]\n"
        "%b = concat %a, %a, 1\n%c = insert %b, %a, [0, 32]\n%d = repeat %c, 0, 2\n%e = slice %d, [0, 0], [16, 64]\n"
        "%f = repeat-interleave %e, 0, 4\nstore-global z, %f\n.end\n");
    tvm_module *module = translate(program, "sm_90a");
    ck_assert_ptr_null(strstr(module->ptx, "st.shared"));
    ck_assert_ptr_null(strstr(module->ptx, "bar.sync"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rearrange");
    TCase *tests = tcase_create("rearrange");
    tcase_add_loop_test(tests, test_random_layouts, 0, sizeof types / sizeof *types);
    tcase_add_test(tests, test_ways);
    tcase_add_loop_test(tests, test_pieces, 0, PIECES);
    tcase_add_test(tests, test_pieces_in_registers);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
