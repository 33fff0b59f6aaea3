/* Layouts that the text leaves out: each text is compared with one in which they are written. */
#include <stdio.h>

#include "assembler_kit.h"
#include "suite_kit.h"

static char *printed(const char *text) {
    tvm_ir_program *program = assemble(text);
    tvm_diags diags = {0};
    char *plain = NULL;
    ck_assert_int_eq(tvm_disassemble(program, &plain, &diags), TVM_OK);
    tvm_ir_program_free(program);
    return plain;
}

#define KERNEL                                                                                               \
    ".vasm 3\n.kernel f(n: i32, x: global f16[n, 1024], y: global f16[n, 1024], z: global f32[n, 1024])\n"
#define AXPY                                                                                                 \
    ".vasm 3\n.kernel f(n: i32, a: f32, x: global f32[n], y: global f32[n])\n.warps 4\n.grid 1\n.assume n % 4 == 0\n"
#define COLUMNS                                                                                              \
    ".vasm 3\n.kernel f(m: i32, x: global f16[m, 64] strides [1, m])\n.warps 4\n.grid 1\n.assume m % 8 == 0\n"
#define PRODUCT                                                                                                    \
    ".vasm 3\n.kernel f(a: global f16[64, 64], b: global f16[64, 64], c: global f32[64, 64])\n.grid 1\n.warps 4\n" \
    "%s = alloc-shared f16[64, 64]\n%t = alloc-shared f16[64, 64]\n"

static const struct {
    const char *text, *plain;
} same[] = {
    /* an access of 16 bytes a thread, and what is made of it */
    {AXPY "%u = load-global x, [512]\n%v = load-global y, tile [512]\nstore-global y, fma(%u, a, %v)\n.end\n",
     AXPY "%u = load-global x, spatial(128).local(4)\n%v = load-global y, spatial(128).local(4)\n"
          "store-global y, fma(%u, a, %v)\n.end\n"},
    /* rows of any length: single elements side by side */
    {".vasm 3\n.kernel f(n: i32, x: global f16[n, n])\n.warps 4\n.grid 1\n%u = load-global x, [4, 256]\n"
     "store-global x, neg(%u)\n.end\n",
     ".vasm 3\n.kernel f(n: i32, x: global f16[n, n])\n.warps 4\n.grid 1\n"
     "%u = load-global x, local(4, 2).spatial(1, 128)\nstore-global x, neg(%u)\n.end\n"},
    /* what is written wins: it goes forwards and backwards */
    {AXPY
     "%u = load-global x, [512]\n%v = load-global y, local(4).spatial(128)\nstore-global y, %u + %v\n.end\n",
     AXPY "%u = load-global x, local(4).spatial(128)\n%v = load-global y, local(4).spatial(128)\n"
          "store-global y, %u + %v\n.end\n"},
    {AXPY "%u = alloc-register f32[512], init a\n%v = load-global y, local(4).spatial(128)\n"
          "%u = fma %u, a, %v\nstore-global y, %u\n.end\n",
     AXPY
     "%u = alloc-register f32[512], local(4).spatial(128), init a\n%v = load-global y, local(4).spatial(128)\n"
     "%u = fma %u, a, %v\nstore-global y, %u\n.end\n"},
    /* a variable's layout may be written where it is assigned again */
    {AXPY
     "%u = alloc-register f32[512], init a\n%u = load-global y, local(4).spatial(128)\nstore-global y, %u\n.end\n",
     AXPY
     "%u = alloc-register f32[512], local(4).spatial(128), init a\n%u = load-global y, local(4).spatial(128)\n"
     "store-global y, %u\n.end\n"},
    /* a column-major tensor: the runs of threads, and neighbours of threads, go along its columns */
    {COLUMNS
     "%u = load-global x[block.x * 64, 0], [64, 64]\nstore-global x[block.x * 64, 0], neg(%u)\n.end\n",
     COLUMNS "%u = load-global x[block.x * 64, 0], local(1, 4).spatial(1, 16).spatial(8, 1).local(8, 1)\n"
             "store-global x[block.x * 64, 0], neg(%u)\n.end\n"},
    /* and so of a transposed view, from which the rows of another tensor take a relayout */
    {".vasm 3\n.kernel f(n: i32, x: global f16[n, n], y: global f16[n, n])\n.warps 4\n.grid 1\n.assume n % 8 == 0\n"
     "%t = view-global x, order [1, 0]\nstore-global y, load-global(%t, [64, 64])\n.end\n",
     ".vasm 3\n.kernel f(n: i32, x: global f16[n, n], y: global f16[n, n])\n.warps 4\n.grid 1\n.assume n % 8 == 0\n"
     "%t = view-global x, order [1, 0]\n"
     "%t_1 = load-global %t, local(1, 4).spatial(1, 16).spatial(8, 1).local(8, 1)\n"
     "%t_1_1 = relayout %t_1, local(4, 1).spatial(16, 8).local(1, 8)\nstore-global y, %t_1_1\n.end\n"},
    /* a row in one warp, for the sake of the reduction, in runs of 16 bytes of f32; its sum is broadcast */
    {KERNEL ".warps 4\n.grid 1\n%u = cast(load-global(x, [4, 1024]), f32)\n%v = %u - reduce(max, %u, 1)\n"
            "store-global z, %v\n.end\n",
     KERNEL
     ".warps 4\n.grid 1\n%u = cast(load-global(x, spatial(4, 1).local(1, 8).spatial(1, 32).local(1, 4)), f32)\n"
     "%v = %u - reduce(max, %u, 1)\nstore-global z, %v\n.end\n"},
    /* a row in one warp, for the sake of the scan */
    {KERNEL ".warps 4\n.grid 1\nstore-global y, scan(sum, load-global(x, [4, 1024]), 1)\n.end\n", KERNEL
     ".warps 4\n.grid 1\n"
     "store-global y, scan(sum, load-global(x, spatial(4, 1).local(1, 4).spatial(1, 32).local(1, 8)), 1)\n"
     ".end\n"},
    /* the tile of a gather is what its text says, more than its indices */
    {KERNEL ".warps 4\n.grid 1\n%i = iota i32[16, 1], axis 0, layout spatial(16, 1).replicated(8, 2)\n"
            "store-global y, gather(x[%i, 0], layout [16, 64])\n.end\n",
     KERNEL ".warps 4\n.grid 1\n%i = iota i32[16, 1], axis 0, layout spatial(16, 1).replicated(8, 2)\n"
            "store-global y, gather(x[%i, 0], layout spatial(16, 8).local(1, 8))\n.end\n"},
    /* columns within threads */
    {KERNEL ".warps 4\n.grid 1\n%u = load-global x, [16, 1024]\nstore-global y, reduce(max, %u, 0)\n.end\n",
     KERNEL ".warps 4\n.grid 1\n%u = load-global x, local(16, 1).spatial(1, 128).local(1, 8)\n"
            "store-global y, reduce(max, %u, 0)\n.end\n"},
    /* sums of mma: four warps over the rows, which share b, as wgmma has it */
    {PRODUCT "%c = alloc-register f32[64, 64], init 0\n%c = mma %s, %t, %c, k 64\nstore-global c, %c\n.end\n",
     PRODUCT "%c = alloc-register f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0\n"
             "%c = mma %s, %t, %c, k 64\nstore-global c, %c\n.end\n"},
    /* a product of a product: the sums of the first are the fragments of the second */
    {PRODUCT
     "%z = alloc-register f32[64, 64], init 0\n%c = mma %s, %t, %z, k 64\n%d = mma cast(%c, f16), %t, %z\n"
     "store-global c, %d\n.end\n",
     PRODUCT "%z = alloc-register f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0\n"
             "%c = mma %s, %t, %z, k 64\n%d = mma cast(%c, f16), %t, %z\nstore-global c, %d\n.end\n"},
    /* what is stored is brought to a layout of 16-byte accesses, once it is narrow; a load of fragments
       likewise */
    {PRODUCT "%c = alloc-register f32[64, 64], init 0\n%c = mma %s, %t, %c, k 64\n"
             "store-global a, cast(%c, f16)\n.end\n",
     PRODUCT "%c = alloc-register f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0\n"
             "%c = mma %s, %t, %c, k 64\n%t_1 = cast %c, f16\n%t_1_1 = relayout %t_1, auto(64, 64, f16)\n"
             "store-global a, %t_1_1\n.end\n"},
    {PRODUCT "%u = load-global a, [64, 64]\n%c = alloc-register f32[64, 64], init 0\n%c = mma %u, %t, %c\n"
             "store-global c, %c\n.end\n",
     PRODUCT
     "%u_1 = load-global a, auto(64, 64, f16)\n%u = relayout %u_1, spatial(4, 1).local(1, 4).mma.m16n8k16.A\n"
     "%c = alloc-register f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0\n"
     "%c = mma %u, %t, %c\nstore-global c, %c\n.end\n"},
    /* between two written layouts an inferred one: it takes the first, and is changed for the second, before
       the loop in which that is */
    {AXPY "%u = load-global x, spatial(128).local(4)\n%v = load-global y, local(4).spatial(128)\n"
          "%w = alloc-register f32[512], init 1\n%u = add %u, %w\n"
          "for %i = 0 to n\n%v = add %v, %w\nend\nstore-global y, %u\nstore-global x, %v\n.end\n",
     AXPY "%u = load-global x, spatial(128).local(4)\n%v = load-global y, local(4).spatial(128)\n"
          "%w = alloc-register f32[512], local(4).spatial(128), init 1\n"
          "%w_1 = alloc-register f32[512], spatial(128).local(4), init 1\n%u = add %u, %w_1\n"
          "for %i = 0 to n\n%v = add %v, %w\nend\nstore-global y, %u\nstore-global x, %v\n.end\n"},
    /* a row of biases takes the layout of the sums, which stay as they are; so does a column */
    {PRODUCT "%c = alloc-register f32[64, 64], init 0\n%c = mma %s, %t, %c, k 64\n"
             "store-global c, %c + load-global(c[0, 0], [64])\n.end\n",
     PRODUCT
     "%c = alloc-register f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0\n"
     "%c = mma %s, %t, %c, k 64\n"
     "store-global c, %c + load-global(c[0, 0], squeeze(reduce(spatial(4, 1).local(1, 8).mma.m16n8k16.C, 0), 0))\n"
     ".end\n"},
    /* more warps than fragments: they have the same sums */
    {PRODUCT "%c = alloc-register f32[16, 16], init 0\n%c = mma %s, %t, %c, k 64\nstore-global c, %c\n.end\n",
     PRODUCT "%c = alloc-register f32[16, 16], replicated(2, 2).spatial(1, 2).mma.m16n8k16.C, init 0\n"
             "%c = mma %s, %t, %c, k 64\nstore-global c, %c\n.end\n"},
    /* codes are turned behind their conversion and what follows it */
    {".vasm 3\n.kernel f(w: global u4[64, 64], c: global f32[64, 64])\n.grid 1\n.warps 4\n"
     "%t = alloc-shared f16[64, 64]\n%z = alloc-register f32[64, 64], init 0.0\n"
     "%w = cast-lowbit(load-global(w, [64, 64]), f16) - 8.0\n%c = mma %w, %t, %z\nstore-global c, %c\n.end\n",
     ".vasm 3\n.kernel f(w: global u4[64, 64], c: global f32[64, 64])\n.grid 1\n.warps 4\n"
     "%t = alloc-shared f16[64, 64]\n"
     "%z = alloc-register f32[64, 64], spatial(4, 1).local(1, 8).mma.m16n8k16.C, init 0.0\n"
     "%w = cast-lowbit(load-global(w, auto(64, 64, u4)), f16) - 8.0\n"
     "%w_3 = relayout %w, spatial(4, 1).local(1, 4).mma.m16n8k16.A\n%c = mma %w_3, %t, %z\nstore-global c, %c\n.end\n"},
    /* transposed: squares in each thread, whose registers change places */
    {PRODUCT "store-global c, transpose(load-global(c, [64, 64]))\n.end\n", PRODUCT
     "%t_1 = load-global c, local(1, 2).spatial(16, 8).local(4, 4)\n%t_2 = transpose %t_1\n"
     "%t_2_1 = relayout %t_2, local(2, 1).spatial(1, 16).spatial(8, 1).local(4, 4)\nstore-global c, %t_2_1\n.end\n"},
    /* 32 columns to be read by a warp: the swizzle of single elements */
    {PRODUCT "%u = alloc-shared f32[32, 32]\nstore-shared %u, load-global(c, local(8, 1).spatial(4, 32))\n"
             "store-global c, load-shared(%u, local(1, 8).column_spatial(32, 4))\n.end\n",
     PRODUCT "%u = alloc-shared f32[32, 32], swizzle(0, 5, 5)\n"
             "store-shared %u, load-global(c, local(8, 1).spatial(4, 32))\n"
             "store-global c, load-shared(%u, local(1, 8).column_spatial(32, 4))\n.end\n"},
};

START_TEST(test_same_as_written) {
    char *open = printed(same[_i].text), *written = printed(same[_i].plain);
    ck_assert_str_eq(open, written);
    free(open);
    free(written);
}
END_TEST

static const struct {
    const char *text;
    unsigned line;
    const char *message, *hint;
} mistakes[] = {
    {AXPY "%u = load-global x\n.end\n", 6, "expected the tile, as [16, 64], or a layout",
     "leaves the layout"},
    {AXPY "%u = load-global x, [512]\n%v = load-global y, [256]\n%u = add %u, %v\n.end\n", 8,
     "does not broadcast", NULL},
    {AXPY "%u = load-global x, [512]\n%u = load-global x, [256]\n.end\n", 7,
     "'%u' has another shape than this gives: that of line 6", "one name is one variable"},
    {AXPY "%u = load-global x, spatial(128).local(4)\n%u = load-global x, local(4).spatial(128)\n.end\n", 7,
     "'%u' has another layout than this gives: that of line 6", "one name is one variable"},
    {AXPY
     "%u = load-global x, spatial(128).local(4)\n%v = load-global y, local(4).spatial(128)\n%w = %u + %v\n.end\n",
     8, "spread over the threads differently",
     "'%u' has its layout from line 6, '%v' has its layout from line 7"},
    {".vasm 2\n.kernel f(x: global f32[4])\n.warps 4\n.grid 1\n%u = load-global x, [512]\n.end\n", 5,
     "expected a register layout, found a list", NULL},
};

START_TEST(test_mistakes) {
    tvm_ir_program *program;
    tvm_diags diags = {0};
    const char *text = mistakes[_i].text;
    ck_assert_int_ne(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_uint_eq(diags.items[0].line, mistakes[_i].line);
    ck_assert_msg(strstr(diags.items[0].message, mistakes[_i].message) != NULL, "%s", diags.items[0].message);
    if (mistakes[_i].hint)
        ck_assert_msg(diags.items[0].hint && strstr(diags.items[0].hint, mistakes[_i].hint), "%s",
                      diags.items[0].hint ? diags.items[0].hint : "(no hint)");
    tvm_diags_free(&diags);
}
END_TEST

/* Each tensor with its layout, where that comes from, and the line. */
START_TEST(test_listing) {
    tvm_text layouts = {0};
    tvm_assembler_options options = {.layouts = &layouts};
    tvm_ir_program_free(assemble_with(same[3].text, &options));
    const char *text = tvm_text_string(&layouts);
    ck_assert_ptr_nonnull(strstr(text, "kernel f: 128 threads"));
    ck_assert_ptr_nonnull(strstr(text, "     6  %u: f32[512]                  local(4).spatial(128)\n"));
    ck_assert_ptr_nonnull(strstr(text, "from the operands of fma, line 8"));
    ck_assert_ptr_nonnull(strstr(text, "written"));
    tvm_text_free(&layouts);
    /* behind a relayout that was put before it, too */
    layouts = (tvm_text){0};
    tvm_ir_program_free(
        assemble_with(PRODUCT "%u = load-global a, [64, 64]\n%z = alloc-register f32[64, 64], init 0\n"
                              "%c = mma %u, %t, %z\nstore-global a, cast(%c, f16)\n.end\n",
                      &options));
    text = tvm_text_string(&layouts);
    ck_assert_ptr_nonnull(strstr(text, "warps over the sums of mma, line 9"));
    ck_assert_ptr_nonnull(strstr(text, "relayout of %t_1 to "));
    tvm_text_free(&layouts);
}
END_TEST

/* What no layout makes good: the program is assembled, and one warning says where and what to write. */
static const struct {
    const char *text;
    unsigned line;
    const char *message, *hint;
} doubtful[] = {
    {AXPY "%u = load-global x, [1021]\nstore-global y, %u\n.end\n", 6,
     "128 threads do not share the tile [1021] evenly: each holds 1021 of its 1021 elements",
     "they share [1024] evenly"},
    {KERNEL ".warps 4\n.grid 1\nstore-global y, load-global(x, [1, 768])\n.end\n", 5,
     "each moves its 6 elements 4 bytes at a time", "[1, 1024] evenly: what is outside"},
    {KERNEL ".warps 4\n.grid 1\nstore-global y, load-global(x, [1, 768])\n.end\n", 5, "[1, 768]",
     ".warps 3 share this one"},
    {".vasm 3\n.kernel f(a: global f16[128, 64], b: global f16[256, 64], c: global f32[128, 256])\n.grid 1\n.warps 4\n"
     "%s = alloc-shared f16[128, 64]\n%t = alloc-shared f16[256, 64]\n"
     "%c = alloc-register f32[128, 256], init 0\n%d = alloc-register f32[64, 64], init 1\n"
     "for %i = 0 to 4\n%c = mma %s, %t, %c, transpose_b, k 64\n%d = %d * %d\nend\n"
     "store-global c, %c\nstore-global c, %d\n.end\n",
     9, "the tensors of this loop need 288 registers of a thread, which has 255: %c has 256, %d has 32",
     "more .warps"},
};

START_TEST(test_warnings) {
    tvm_ir_program *program;
    tvm_diags diags = {0};
    const char *text = doubtful[_i].text;
    ck_assert_int_eq(tvm_assemble_text(text, strlen(text), "test.vasm", NULL, &program, &diags), TVM_OK);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_int_eq(diags.items[0].status, TVM_OK);
    ck_assert_uint_eq(diags.items[0].line, doubtful[_i].line);
    ck_assert_msg(strstr(diags.items[0].message, doubtful[_i].message) != NULL, "%s", diags.items[0].message);
    ck_assert_msg(strstr(diags.items[0].hint, doubtful[_i].hint) != NULL, "%s", diags.items[0].hint);
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
}
END_TEST

/* Of each product whether it is one for wgmma, and what to write if it is not. */
static const struct {
    const char *text, *listed;
} listed_products[] = {
    {PRODUCT "%c = alloc-register f32[64, 64], init 0\n%c = mma %s, %t, %c, k 64\nstore-global c, %c\n.end\n",
     "     8  product %c: wgmma, where the target has it\n"},
    {PRODUCT "%u = load-global a, [64, 64]\n%z = alloc-register f32[64, 64], init 0.0\n%c = mma %u, %t, %z\n"
             "store-global c, %c\n.end\n",
     "product %c: wgmma, where the target has it, %u from 16 registers of a thread\n"},
    {PRODUCT "%c = alloc-register f32[16, 64], init 0\n%c = mma %s, %t, %c, k 64\nstore-global c, %c\n.end\n",
     "have the same columns: give c a multiple of 64 rows, or exchange a and b"},
    {PRODUCT "%v = load-global b, [64, 64]\n%z = alloc-register f32[64, 64], init 0.0\n%c = mma %s, %v, %z\n"
             "store-global c, %c\n.end\n",
     "no wgmma: wgmma reads b from shared memory: store it to a shared tensor"},
};

START_TEST(test_products) {
    tvm_text layouts = {0};
    tvm_assembler_options options = {.layouts = &layouts};
    tvm_ir_program_free(assemble_with(listed_products[_i].text, &options));
    ck_assert_msg(strstr(tvm_text_string(&layouts), listed_products[_i].listed) != NULL, "%s",
                  tvm_text_string(&layouts));
    tvm_text_free(&layouts);
}
END_TEST

/* Rules that look at where elements are are not asked of tensors whose layout is not known yet. */
START_TEST(test_shapes_alone) {
    tvm_ir_program_free(assemble(".vasm 3\n.kernel f(x: global u32[8192])\n.warps 32\n.grid 1\n"
                                 "%s = alloc-shared u32[8192]\n%x = load-global x, [8192]\n"
                                 "%was = atomic-fetch add, %s[0], %x\nstore-global x, %was\n.end\n"));
}
END_TEST

/* Tensors by the thousand, connected and not: memory and work are bounded. */
START_TEST(test_many) {
    tvm_text text = {0};
    tvm_text_puts(&text, AXPY "%s = alloc-register f32[512], init 0\n");
    for (unsigned i = 0; i < 1300; i++)
        tvm_text_add(&text, "%%a%u = load-global x[%u], [512]\n%%b%u = neg %%a%u\n%s%%b%u\n", i, 4 * i, i, i,
                     i % 2 ? "%s = add %s, " : "store-global y, ", i);
    tvm_text_puts(&text, ".end\n");
    tvm_ir_program_free(assemble(tvm_text_string(&text)));
    tvm_text_free(&text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("infer");
    TCase *tests = tcase_create("infer");
    tcase_add_loop_test(tests, test_same_as_written, 0, sizeof same / sizeof *same);
    tcase_add_loop_test(tests, test_mistakes, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(tests, test_listing);
    tcase_add_loop_test(tests, test_warnings, 0, sizeof doubtful / sizeof *doubtful);
    tcase_add_loop_test(tests, test_products, 0, sizeof listed_products / sizeof *listed_products);
    tcase_add_test(tests, test_shapes_alone);
    tcase_add_test(tests, test_many);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
