/* tvm-pack: what is refused, with what is said of it, and nothing left behind. */
#include "check_kit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pack_kit.h"
#include "suite_kit.h"
#include "tvm.h"

START_TEST(refuses_weights_that_are_not_finite) {
    static const double strange[] = {NAN, INFINITY, -INFINITY};
    static const char *const says[] = {"is NaN", "is infinite", "is infinite"};
    static const tvm_dtype sources[] = {
        {TVM_KIND_FLOAT, 16, 5, 10}, {TVM_KIND_FLOAT, 16, 8, 7}, {TVM_KIND_FLOAT, 32, 8, 23}};
    for (unsigned i = 0; i < 18; i++) {
        double *weights = random_weights(512 * 24, 1, i);
        weights[300 * 24 + 17] = weights[400 * 24 + 2] = strange[i % 3];
        bool transpose = i >= 9;
        write_weights(in_folder("w.npy"), sources[i / 3 % 3], 512, 24, weights, transpose);
        free(weights);
        pack_options options = {.input = in_folder("w.npy"),
                                .output = in_folder("out"),
                                .type = TVM_U(4),
                                .group = 128,
                                .scale_type = TVM_F16,
                                .transpose = transpose,
                                .threads = 2};
        char text[64];
        snprintf(text, sizeof text, "weight [%d, %d] %s", transpose ? 17 : 300, transpose ? 300 : 17,
                 says[i % 3]);
        pack_badly(&options, text);
        options.group = 0;
        pack_badly(&options, text);
    }
}
END_TEST

START_TEST(refuses_what_does_not_fit) {
    double *weights = random_weights(64 * 20, 1, 1);
    weights[3 * 20 + 1] = 1e30;
    write_weights(in_folder("w.npy"), TVM_F32, 64, 20, weights, false);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = TVM_U(4),
                            .group = 32,
                            .scale_type = TVM_F16};
    pack_badly(&options, "the scale of group 0, column 1 is beyond the range of f16");
    options.group = 48;
    pack_badly(&options, "a group of 48 rows does not divide k, which is 64");
    options.group = 32;
    options.type = TVM_F16;
    pack_badly(&options, "f16 is no type of weights");
    options.type = TVM_I(4);
    options.own_zeros = true;
    pack_badly(&options, "goes with unsigned types");
    options.own_zeros = false;
    options.type = (tvm_dtype){0};
    pack_badly(&options, "neither a type nor a layout");
    options.type = TVM_U(4);
    options.tensor = "a";
    pack_badly(&options, "a .npy file has no tensors");
    options.tensor = NULL;
    options.layout = in_folder("w.npy");
    tvm_diags diags = {0};
    ck_assert_int_ne(tvm_pack(&options, &diags), TVM_OK);
    tvm_diags_free(&diags);
    assemble_matmul(in_folder("m.vbc"), TVM_U(3));
    options.layout = in_folder("m.vbc");
    pack_badly(&options, "the type is u4, but the layout of");
    options.type = TVM_U(3);
    pack_badly(&options, "n % 8 == 0");
    write_npy(in_folder("w.npy"), TVM_U(8), 4, 4, weights);
    options.layout = NULL;
    pack_badly(&options, "the array is U8 [4, 4]; F32, F16 or BF16 is expected");
    free(weights);
}
END_TEST

START_TEST(refuses_malformed_files) {
    pack_options options = {
        .input = in_folder("w.bin"), .output = in_folder("out"), .type = TVM_U(4), .scale_type = TVM_F16};
    write_text(options.input, "short", 5);
    pack_badly(&options, "not a .safetensors file");
    write_text(options.input, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    pack_badly(&options, "truncated");
    write_text(options.input, "\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14);
    pack_badly(&options, "malformed .npy header");
    write_text(options.input, "\x93NUMPY\x01\x00\x02\x00{}", 12);
    pack_badly(&options, "missing");
    double *weights = random_weights(64 * 8, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 64, 8, weights, false);
    free(weights);
    ck_assert_int_eq(truncate(in_folder("w.npy"), 1000), 0);
    options.input = in_folder("w.npy");
    pack_badly(&options, "truncated");
    options.input = in_folder("w.none");
    pack_badly(&options, "cannot open");
}
END_TEST

START_TEST(refuses_to_unpack) {
    double *weights = random_weights(128 * 16, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 128, 16, weights, false);
    free(weights);
    assemble_matmul(in_folder("m.vbc"), TVM_U(4));
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("p.tvmw"),
                            .layout = in_folder("m.vbc"),
                            .scale_type = TVM_F16};
    pack_well(&options);
    pack_options back = {.input = in_folder("p.tvmw"), .output = in_folder("out")};
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_unpack(&back, &diags), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "m.vbc"));
    tvm_diags_free(&diags);
    assemble_matmul(in_folder("m.vbc"), TVM_U(3));
    back.layout = in_folder("m.vbc");
    ck_assert_int_eq(tvm_unpack(&back, &diags), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "the layout of"));
    tvm_diags_free(&diags);
    back.input = in_folder("w.npy");
    ck_assert_int_ne(tvm_unpack(&back, &diags), TVM_OK);
    tvm_diags_free(&diags);
    ck_assert(!folder_has("out"));
}
END_TEST

/* Two programs whose packed weights have the same type and size, and lie in another order. */
static void assemble_order(const char *to, const char *warps, const char *rows, const char *bytes) {
    char text[1024];
    int length =
        snprintf(text, sizeof text,
                 ".vasm 1\n"
                 ".kernel pack(n: i32, k: i32, p: global u8[k / 128, n / 16, 1024], w: global u4[k, n])\n"
                 ".warps %s\n"
                 ".grid n / 16, k / 128\n"
                 ".assume n %% 16 == 0, k %% 128 == 0\n"
                 "    %%c = load-global w[block.y * 128, block.x * 16], %s\n"
                 "    %%q = view %%c, u8, %s\n"
                 "    store-global p[block.y, block.x, 0], %%q\n"
                 ".end\n",
                 warps, rows, bytes);
    assemble(to, text, (size_t)length, "order.vasm", NULL);
}

START_TEST(refuses_to_unpack_the_order_of_another_program) {
    double *weights = random_weights(128 * 16, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 128, 16, weights, false);
    free(weights);
    assemble_order(in_folder("m.vbc"), "4", "spatial(128, 1).local(1, 16)", "spatial(128).local(8)");
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("p.tvmw"),
                            .layout = in_folder("m.vbc"),
                            .scale_type = TVM_F16};
    pack_well(&options);
    pack_options back = {
        .input = in_folder("p.tvmw"), .output = in_folder("out"), .layout = in_folder("m.vbc")};
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_unpack(&back, &diags), TVM_OK);
    ck_assert_int_eq(unlink(in_folder("out")), 0);
    assemble_order(in_folder("m.vbc"), "2", "local(2, 1).spatial(64, 1).local(1, 16)",
                   "spatial(64).local(16)");
    ck_assert_int_eq(tvm_unpack(&back, &diags), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "laid out by another program"));
    tvm_diags_free(&diags);
    ck_assert(!folder_has("out"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pack refusals");
    TCase *bad = tcase_create("refusals");
    tcase_add_test(bad, refuses_weights_that_are_not_finite);
    tcase_add_test(bad, refuses_what_does_not_fit);
    tcase_add_test(bad, refuses_malformed_files);
    tcase_add_test(bad, refuses_to_unpack);
    tcase_add_test(bad, refuses_to_unpack_the_order_of_another_program);
    tcase_add_checked_fixture(bad, setup, teardown);
    suite_add_tcase(suite, bad);
    return run_suite(suite);
}
