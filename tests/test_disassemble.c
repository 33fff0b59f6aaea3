/* The disassembler: its text assembles to the same bytes. */
#include <stdio.h>

#include "assembler_kit.h"
#include "fileio.h"
#include "suite_kit.h"
#include "vbc.h"

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static bytes container(const tvm_ir_program *program) {
    bytes result;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_vbc_write(program, false, &result.data, &result.size, &diags), TVM_OK);
    tvm_diags_free(&diags);
    return result;
}

static char *disassemble(const tvm_ir_program *program) {
    char *text;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_disassemble(program, &text, &diags), TVM_OK);
    tvm_diags_free(&diags);
    return text;
}

/* Consumes the program; returns its text. */
static char *round_trip(tvm_ir_program *program) {
    bytes before = container(program);
    char *text = disassemble(program);
    tvm_ir_program *again = assemble(text);
    bytes after = container(again);
    ck_assert_msg(before.size == after.size && memcmp(before.data, after.data, before.size) == 0,
                  "other bytes from:\n%s", text);
    char *text_again = disassemble(again);
    ck_assert_str_eq(text, text_again);
    free(text_again);
    free(before.data);
    free(after.data);
    tvm_ir_program_free(program);
    tvm_ir_program_free(again);
    return text;
}

/* ---- expressions: how they are printed, and that they come back ---- */

static const struct {
    const char *text;
    const char *printed; /* NULL: as written */
} expressions[] = {
    {"m + n * 2", NULL},
    {"(m + n) * 2", NULL},
    {"m - (n - 1)", NULL},
    {"m - n - 1", NULL},
    {"((m) - (n)) - (1)", "m - n - 1"},
    {"m / (n / 3) / 2", NULL},
    {"m % n * 2", NULL},
    {"m * (n % 2)", NULL},
    {"-m", NULL},
    {"--m", NULL},
    {"-(m + n)", NULL},
    {"-m * -3", NULL},
    {"m - -3", NULL},
    {"~(m & n | 3 ^ n)", NULL},
    {"(m | n) & 3", NULL},
    {"m << 2 >> n", NULL},
    {"m << (2 + n)", "m << 2 + n"},
    {"l << 5000000000", "l << i64(5000000000)"},
    {"1 << m", NULL},
    {"i64(1) << m", NULL},
    {"m < n == b", NULL},
    {"!(m < n) && b || m == n", NULL},
    {"b && (b || m == 1)", NULL},
    {"!b", NULL},
    {"m && n", "m != 0 && n != 0"},
    {"b ? m : n", NULL},
    {"(b ? m : n) + 1", NULL},
    {"b ? m : b ? n : 1", NULL},
    {"(b ? b : m == 1) ? 3 : n", NULL},
    {"b ? 1 : 2", NULL},
    {"b ? i64(1) : 2", "b ? i64(1) : i64(2)"},
    {"b ? b ? 1 : 2 : 3", NULL},
    {"min(m, 3) + max(n, m, 4)", "min(m, 3) + max(max(n, m), 4)"},
    {"cdiv(m, 8)", NULL},
    {"cdiv(l, 8)", NULL},
    {"l + 3", NULL},
    {"l + m", "l + i64(m)"},
    {"u + m", "i64(u) + i64(m)"},
    {"u + 4294967295", NULL},
    {"i64(3)", NULL},
    {"u32(3)", NULL},
    {"u64(18446744073709551615)", NULL},
    {"i64(0x8000000000000000)", NULL},
    {"i32(-2147483648)", "-2147483648"},
    {"5000000000", "i64(5000000000)"},
    {"i64(3) + 4", "i64(7)"},
    {"i32(l * 3)", NULL},
    {"f32(m)", NULL},
    {"x * 0.1", NULL},
    {"x * 2", "x * 2.0"},
    {"f64(x) * 0.1", NULL},
    {"f64(0.1)", NULL},
    {"0.1", NULL},
    {"1.0e30", "1e+30"},
    {"-0.0", NULL},
    {"f64(0.1) + 0.2", "f64(0.30000000000000004)"},
    {"x + 16777217.0", "x + 16777216.0"},
    {"x > inf", NULL},
    {"x == -inf", NULL},
    {"nan", NULL},
    {"true", NULL},
    {"b == true", NULL},
    {"b == 1", "i32(b) == 1"},
    {"bool(m)", NULL},
    {"block.x * 16 + grid.y - block.z", NULL},
};

START_TEST(test_expressions) {
    char body[256], line[256];
    snprintf(body, sizeof body, "%%r = %s", expressions[_i].text);
    char *text = round_trip(assemble_body(body));
    const char *printed = expressions[_i].printed ? expressions[_i].printed : expressions[_i].text;
    snprintf(line, sizeof line, "    %%r = %s\n", printed);
    ck_assert_msg(strstr(text, line) != NULL, "'%s' is not in\n%s", line, text);
    free(text);
}
END_TEST

/* ---- statements ---- */

static const char *const bodies[] = {
    "",
    "exit",
    "%r = alloc-register f32[16, 8]",
    "%r = alloc-register f32[16, 8], init -1.5\n%s = alloc-register i32[16, 8], spatial(8, 4).local(2, 2)",
    "%r = alloc-register f64[8, 4], init 0.1\n%s = add %r, f32(0.1)\n%t = mul 0.1, %s\n%v = sub %t, 1",
    "%r = alloc-register f64[8, 4], init f32(0.1)\n%y = compare ge, %r, 0.5\n%z = where %y, %r, 0.25",
    "%s = alloc-shared f16[2, 16, 64]\n%t = alloc-shared u8[128], row_major\nfree-shared %t\nfree-shared %s",
    "%s = alloc-shared f16[16, 64], shared([16, 64], [16, 64], [72, 1])",
    "%r = load-global a[m, n], spatial(8, 4)\nstore-global a[l, 0], %r",
    "%r = load-global a[3], spatial(32)",
    "%s = alloc-shared f32[4, 8, 4]\n%r = load-shared %s[m % 4], spatial(8, 4)\nstore-shared %s[1, 0, 0], %r",
    "%s = alloc-shared f32[4, 8, 4]\ncopy-async %s[2], a[m, n * 4]\ncommit-group\nwait-group 1\nsync",
    "%s = alloc-shared f32[4, 8, 4]\ncopy-async %s[m % 2, 0, 0], a, [1, 4]\nwait-group 0",
    "%s = alloc-shared f32[4, 8, 4]\ncopy-async %s[2], a[m, n * 4], warps [1, 1]\nsync-warp\n"
    "copy-async %s, a[1], [2, 4], evict last, warps [1, 1]\ncopy-async %s, a[1], [2, 4], evict last",
    "%q = alloc-register u8[96], spatial(32).local(3)\n%w = view %q, u3, spatial(32).local(8)",
    "%w = alloc-register u3[8, 4]\n%h = cast-lowbit %w, f16\n%f = cast %h, f32\n%i = cast %f, i8",
    "%a1 = alloc-register f16[16, 16], mma.m16n8k16.A\n%b1 = alloc-register f16[16, 8], mma.m16n8k16.B\n"
    "%c = alloc-register f32[16, 8], mma.m16n8k16.C\n%c = mma %a1, %b1, %c",
    "%r = load-global a, spatial(8, 4)\n%s = add %r, %r\n%s = sub %r, 1\n%s = mul m, %r\n%s = div 1.0, %r\n"
    "%s = min (m + 1) * 2, %r\n%s = max %r, x\n%s = fma %r, 2, %s\n%s = neg %s\n%s = exp %s",
    "%r = alloc-register i32[8, 4]\n%s = mod %r, 3\n%t = reduce sum, %s, 0\n%v = reduce max %s, 1\nprint-tensor %v",
    "for %i = 0 to m\nend\nfor %j = i64(1) to l step 4 unroll 3\nend\nfor %k = 0 to m step n\nbreak\nend",
    "%i = u32(0)\nfor %k = %i to 9\nend\nfor %h = i64(0) to 9\nend",
    "if m\nsync\nelif n == 2\nexit\nelif b\nelse\nsync\nend\nwhile l < 3\ncontinue\nend",
    "if m\nif n\nelse\nend\nelse\nif b\nend\nsync\nend",
    "%i = 0\n%i = %i + 1\n%f = 1.0\n%f = 2\n%d = f64(1)\n%d = %f\n%c = true\n%c = %i == 2",
};

START_TEST(test_statements) {
    free(round_trip(assemble_body(bodies[_i])));
}
END_TEST

START_TEST(test_kernels) {
    free(round_trip(assemble(".vasm 1\n")));
    free(round_trip(assemble(".vasm 1\n.kernel f()\n.warps 1\n.end\n")));
    free(round_trip(assemble(
        ".vasm 1\n.kernel f(m: i32)\n.warps 7\n.grid 1, 2, m\n.end\n"
        ".kernel g(l: i64, x: f64, a: global u3[l, 8], b: global f6_e3m2[l / 4, cdiv(l, 8), 4])\n"
        ".warps 32\n.grid l * 2\n.assume l > 3, l % 4 == 0 && x > 0.5\n"
        "%r = alloc-register bf16[32, 32]\n.end\n"
        ".kernel h(a: global bool[4])\n.warps 1\n%r = load-global a, local(4).replicated(32)\n.end\n")));
}
END_TEST

/* A parameter may have a name that means something else where it stands bare. */
START_TEST(test_names_that_mean_something) {
    char *text = round_trip(
        assemble(".vasm 1\n.kernel f(add: i32, L0: i32, to: i32, init: i32, step: i32, tile: i32)\n"
                 ".warps 1\n"
                 "%x = %add\n%x = %add - 1\n%z = L0 + to\n"
                 "for %i = to to init step step\nend\n"
                 "%r = alloc-register u3[8, 4], init init\n"
                 "%s = alloc-register f32[8, 4], init 0.0\n%s = add %add, %s\n.end\n"));
    ck_assert_ptr_nonnull(strstr(text, "%x = (add) - 1"));
    free(text);
}
END_TEST

/* And a variable may have the same name. */
START_TEST(test_variables_named_as_parameters) {
    char *text = round_trip(
        assemble(".vasm 2\n.kernel f(add: i32, nan: i32, n: i32, max: global f32[n], x: global f32[n])\n"
                 ".warps 1\n.grid (add)\n"
                 "%x = load-global x[n], auto(32)\n%max = load-global max[nan], auto(32)\n"
                 "%n = (add) + n\n%add = nan\n%nan = (add) - nan\n"
                 "store-global max[n], %max\n.end\n"
                 ".kernel g(n: i32)\n.warps 1\n.grid 1\n%n = n\n%n = %n + n\n.end\n"));
    ck_assert_ptr_nonnull(strstr(text, "%n = (add) + n\n"));
    ck_assert_ptr_nonnull(strstr(text, "%n = %n + n\n"));
    ck_assert_ptr_nonnull(strstr(text, "store-global max[n], %max\n"));
    free(text);
}
END_TEST

START_TEST(test_warps_of_a_copy) {
    char *text = round_trip(
        assemble(".vasm 1\n.kernel f(a: global f32[m, 8], m: i32)\n.warps 6\n%s = alloc-shared f32[6, 8]\n"
                 "copy-async %s, a[m], warps [3, 2]\nsync-warp\n.end\n"));
    ck_assert_ptr_nonnull(strstr(text, "warps [3, 2]\n"));
    ck_assert_ptr_null(strstr(text, "evict"));
    ck_assert_ptr_nonnull(strstr(text, "    sync-warp\n"));
    free(text);
}
END_TEST

START_TEST(test_layouts_are_named_once) {
    char *text = round_trip(
        assemble_body("%r = load-global a, spatial(8, 4)\n%s = load-global a[1, 1], spatial(8, 4)"));
    const char *first = strstr(text, "layout([8, 4]");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, "layout([8, 4]"));
    free(text);
}
END_TEST

/* A container from elsewhere may hold them in any order, and more than it uses: the text is the same. */
START_TEST(test_layouts_are_numbered_as_they_are_used) {
    tvm_ir_program *program =
        assemble_body("%r = load-global a, spatial(8, 4)\n%s = load-global a[1, 1], spatial(4, 8)");
    char *text = disassemble(program);
    ck_assert_uint_eq(program->layout_count, 2);
    tvm_layout swapped = program->layouts[0], unused = swapped;
    program->layouts[0] = program->layouts[1];
    program->layouts[1] = swapped;
    tvm_ir_kernel *kernel = &program->kernels[0];
    for (uint32_t i = 0; i < kernel->slot_count; i++)
        if (kernel->slots[i].kind == TVM_SLOT_REGISTER) kernel->slots[i].layout ^= 1;
    unused.shape[0] = 1;
    ck_assert_uint_ne(tvm_ir_program_layout(program, &unused), TVM_NONE);
    char *text_then = disassemble(program);
    ck_assert_str_eq(text, text_then);
    ck_assert_ptr_nonnull(strstr(text, ".layout L0 = layout([8, 4]"));
    ck_assert_ptr_nonnull(strstr(text, ".layout L1 = layout([4, 8]"));
    free(text);
    free(text_then);
    tvm_ir_program_free(program);
}
END_TEST

/* The layout of an element-wise result is written where the operands do not give it. */
START_TEST(test_layouts_that_follow) {
    char *text = round_trip(
        assemble(".vasm 2\n.kernel f(r: global f32[8], c: global f32[8, 1])\n.warps 1\n.grid 1\n"
                 ".layout N = local(2, 1).spatial(4, 8)\n"
                 "%r = load-global r, squeeze(reduce(N, 0), 0)\n%c = load-global c, reduce(N, 1)\n"
                 "%a = add %c, %r\n%b = add %r, %c, layout local(1, 1).N\n%d = add %b, 1.0\n"
                 "%e = add %c, %r, layout permute(N, [0, 1])\n"
                 "%x = alloc-register f32[4, 8], layout local(2, 2).spatial(2, 4).replicated(4, 2)\n"
                 "%y = add %x, %x, layout column_local(2, 2).spatial(2, 4).replicated(4, 2)\n.end\n"));
    ck_assert_ptr_nonnull(strstr(text, "%a = add %c, %r\n"));
    ck_assert_ptr_nonnull(strstr(text, "%b = add %r, %c\n"));
    ck_assert_ptr_nonnull(strstr(text, "%d = add %b, 1.0\n"));
    ck_assert_ptr_nonnull(strstr(text, "%y = add %x, %x, layout L"));
    free(text);
}
END_TEST

START_TEST(test_indentation) {
    char *text = round_trip(assemble_body("for %i = 0 to m\nif %i == 2\nsync\nelse\nexit\nend\nend"));
    ck_assert_ptr_nonnull(strstr(text, "    for %i = 0 to m\n"
                                       "        if %i == 2\n"
                                       "            sync\n"
                                       "        else\n"
                                       "            exit\n"
                                       "        end\n"
                                       "    end\n"
                                       ".end\n"));
    free(text);
}
END_TEST

/* Nothing of what was only used on the way is kept. */
START_TEST(test_no_orphans) {
    tvm_ir_program *program = assemble(".vasm 1\n.layout UNUSED = local(3, 3)\n.kernel f(m: i32)\n.warps 1\n"
                                       "%x = m > 1 ? 2 : 3\n%y = (m + 5) * 0 == 0 ? 1 : 1\n.assume 1 == 1\n"
                                       "%z = true ? m : m + 17\n.end\n");
    const tvm_ir_kernel *kernel = &program->kernels[0];
    bool *used = calloc(kernel->expr_count, sizeof *used);
    for (uint32_t i = 0; i < kernel->operand_count; i++)
        if (kernel->operands[i].kind == TVM_OPERAND_EXPR) used[kernel->operands[i].value] = true;
    for (uint32_t i = kernel->expr_count; i-- > 0;) {
        ck_assert_msg(used[i], "expression %u", i);
        const uint32_t children[] = {kernel->exprs[i].a, kernel->exprs[i].b, kernel->exprs[i].c};
        for (unsigned c = 0; c < tvm_expr_op_info(kernel->exprs[i].op)->arity; c++) used[children[c]] = true;
    }
    ck_assert_uint_eq(program->layout_count, 0);
    ck_assert_uint_eq(kernel->assume_count, 0);
    free(used);
    free(round_trip(program));
}
END_TEST

/* ---- the programs that ship ---- */

static const char *const weight_types[] = {"u1",      "u2",      "u3",      "u4",      "u5",      "u6",
                                           "u7",      "u8",      "i2",      "i3",      "i4",      "i5",
                                           "i6",      "i7",      "i8",      "f3_e1m1", "f4_e2m1", "f5_e2m2",
                                           "f6_e3m2", "f7_e3m3", "f8_e4m3", "f8_e5m2", "f8_e6m1"};

START_TEST(test_matmul) {
    const char *folder = getenv("srcdir");
    char path[1024], define[64];
    snprintf(path, sizeof path, "%s/programs/matmul_u3.vasm", folder ? folder : ".");
    snprintf(define, sizeof define, "WTYPE=%s", weight_types[_i]);
    const char *defines[] = {define};
    tvm_assembler_options options = {.defines = defines, .define_count = 1};
    uint8_t *text;
    size_t size;
    tvm_ir_program *program;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &text, &size, &diags), TVM_OK);
    tvm_status status = tvm_assemble_text((const char *)text, size, path, &options, &program, &diags);
    if (status != TVM_OK) tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    free(text);
    free(round_trip(program));
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static Suite *make_suite(void) {
    Suite *suite = suite_create("disassemble");
    TCase *all = tcase_create("round trips");
    tcase_add_loop_test(all, test_expressions, 0, COUNT(expressions));
    tcase_add_loop_test(all, test_statements, 0, COUNT(bodies));
    tcase_add_test(all, test_kernels);
    tcase_add_test(all, test_names_that_mean_something);
    tcase_add_test(all, test_variables_named_as_parameters);
    tcase_add_test(all, test_warps_of_a_copy);
    tcase_add_test(all, test_layouts_are_named_once);
    tcase_add_test(all, test_layouts_are_numbered_as_they_are_used);
    tcase_add_test(all, test_layouts_that_follow);
    tcase_add_test(all, test_indentation);
    tcase_add_test(all, test_no_orphans);
    tcase_add_loop_test(all, test_matmul, 0, COUNT(weight_types));
    suite_add_tcase(suite, all);
    return suite;
}

int main(void) {
    return run_suite(make_suite());
}
