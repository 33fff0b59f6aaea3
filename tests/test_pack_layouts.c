/* tvm-pack: weights laid out for a program, against the interpreter running the program's own kernel. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pack_kit.h"
#include "suite_kit.h"
#include "tvm.h"

/* What the interpreter makes of rows of bit strings. */
static uint8_t *pack_by_kernel(const char *program, int64_t k, int64_t n, const uint8_t *rows, size_t bytes) {
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 2};
    tvm_context *context;
    tvm_program *code;
    tvm_kernel *pack;
    tvm_value values[4] = {{.i = 0}};
    uint8_t *result = calloc(bytes, 1);
    ck_assert_ptr_nonnull(result);
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_OK);
    ck_assert_int_eq(tvm_load_file(context, program, &code), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(code, "pack", &pack), TVM_OK);
    for (size_t p = 0; p < 4; p++) {
        tvm_param_info info;
        ck_assert_int_eq(tvm_param(pack, p, &info), TVM_OK);
        values[p].i = *info.name == 'k' ? k : n;
        if (!info.is_tensor) continue;
        size_t size = *info.name == 'w' ? (size_t)(k * n) * info.bits / 8 : bytes;
        ck_assert_int_eq(tvm_memory_alloc(context, size, &values[p].data), TVM_OK);
        if (*info.name == 'w')
            ck_assert_int_eq(tvm_memory_write(context, values[p].data, rows, size), TVM_OK);
    }
    ck_assert_int_eq(tvm_launchv(pack, NULL, values, 4), TVM_OK);
    for (size_t p = 0; p < 4; p++) {
        tvm_param_info info;
        tvm_param(pack, p, &info);
        if (*info.name == 'p') tvm_memory_read(context, result, values[p].data, bytes);
        if (info.is_tensor) tvm_memory_free(context, values[p].data);
    }
    tvm_program_free(code);
    tvm_context_free(context);
    return result;
}

/* Packs in plain rows and as the program says; the kernel brings the one to the other. */
static void check_layout(const char *program, tvm_dtype type, uint64_t k, uint64_t n, bool transpose) {
    double *weights = random_weights(k * n, 0.3, k + n);
    write_weights(in_folder("w.npy"), TVM_F16, k, n, weights, transpose);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .type = type,
                            .group = 64,
                            .scale_type = TVM_F16,
                            .transpose = transpose,
                            .threads = 2};
    pack_well(&options);
    packed plain = read_packed(options.output);
    options.layout = program;
    pack_well(&options);
    packed laid = read_packed(options.output);
    const tvm_safetensor *tensor = tvm_safetensors_find(&laid.tensors, "packed");
    uint8_t *expected =
        pack_by_kernel(program, (int64_t)k, (int64_t)n, data_of(&plain, "packed"), tensor->bytes);
    ck_assert_mem_eq(data_of(&laid, "packed"), expected, tensor->bytes);
    ck_assert_mem_eq(data_of(&laid, "scales"), data_of(&plain, "scales"), k / 64 * n * 2);
    double *back = unpack_to(&options, TVM_F32, "back.npy", k * n);
    options.layout = NULL;
    pack_well(&options);
    double *same = unpack_to(&options, TVM_F32, "back.npy", k * n);
    for (uint64_t i = 0; i < k * n; i++) ck_assert(back[i] == same[i]);
    free(back);
    free(same);
    free(expected);
    free_packed(&plain);
    free_packed(&laid);
    free(weights);
}

START_TEST(layout_of_the_matmul) {
    static const char *const names[] = {"u1", "u2", "u3", "u4", "u5", "u7", "u8", "i6", "f6_e3m2", "f8_e4m3"};
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(names[_i], strlen(names[_i]), &type));
    assemble_matmul(in_folder("m.vbc"), type);
    check_layout(in_folder("m.vbc"), type, 256, 264, false);
    check_layout(in_folder("m.vbc"), type, 128, 8, true);
}
END_TEST

/* Tiles down the columns, of sizes that are no powers of two, halves of codes far apart. */
static const char odd_layout[] =
    ".vasm 1\n"
    ".kernel pack(n: i32, k: i32, p: global u8[cdiv(n, 24), cdiv(k, 32), 384], w: global u4[k, n])\n"
    ".warps 1\n"
    ".grid cdiv(n, 24), cdiv(k, 32)\n"
    ".assume n % 8 == 0, k % 4 == 0\n"
    "    %c = load-global w[block.y * 32, block.x * 24], spatial(32, 1).local(1, 24)\n"
    "    %q = view %c, u8, spatial(32).local(12)\n"
    "    %low = where %mask, %q, %q\n"
    "    store-global p[block.x, block.y, 0], %q\n"
    ".end\n";

START_TEST(layout_down_the_columns) {
    char text[sizeof odd_layout];
    strcpy(text, odd_layout);
    char *line = strstr(text, "    %low");
    memmove(line, strchr(line, '\n') + 1, strlen(strchr(line, '\n') + 1) + 1);
    assemble(in_folder("m.vbc"), text, strlen(text), "odd.vasm", NULL);
    check_layout(in_folder("m.vbc"), TVM_U(4), 192, 64, false);
    check_layout(in_folder("m.vbc"), TVM_U(4), 64, 24, true);
    check_layout(in_folder("m.vbc"), TVM_U(4), 64, 8, false);
}
END_TEST

static const struct bad_layout {
    const char *signature, *body, *says;
} bad_layouts[] = {
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n]",
     "%v = load-global w[block.y, block.x * 32], spatial(1, 32)\n"
     "%o = alloc-register u8[1, 32], spatial(1, 32), init 1\n"
     "%s = add %v, %o\nstore-global p[block.y, block.x * 32], %s\n",
     "by itself"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n + n / 32]",
     "%v = load-global w[block.y, block.x * 32], spatial(1, 32)\n"
     "%o = alloc-register u8[1, 1], replicated(32, 2), init 1\n"
     "store-global p[block.y, block.x * 33], %v\nstore-global p[block.y, block.x * 33 + 32], %o\n",
     "no weight's"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n]",
     "%o = alloc-register u8[1, 32], spatial(1, 32), init 0\nstore-global p[block.y, block.x * 32], %o\n",
     "not all bits"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[k, n]",
     "%v = load-global w[block.y, 0], spatial(1, 32)\nstore-global p[block.y, block.x * 32], %v\n",
     "by itself"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u8[64, 64]",
     "%v = load-global w[block.y, 0], spatial(1, 32)\nstore-global p[block.y, block.x * 32], %v\n", "grow"},
    {"k: i32, n: i32, w: global f16[k, n], p: global u8[k, 2 * n]", "", "8 bits or less"},
    {"k: i32, n: i32, w: global u8[n, k], p: global u8[k, n]", "", "it must be"},
    {"k: i32, n: i32, w: global u8[k, n], p: global u16[k, n]", "", "it must be"},
    {"k: i32, n: i32, w: global u8[k, n]", "", "it must be"},
};

START_TEST(refuses_layouts) {
    const struct bad_layout *row = &bad_layouts[_i];
    char text[1024];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel pack(%s)\n.warps 1\n.grid cdiv(n, 32), k\n.assume n %% 32 == 0\n%s.end\n",
             row->signature, row->body);
    assemble(in_folder("m.vbc"), text, strlen(text), "bad.vasm", NULL);
    double *weights = random_weights(64 * 64, 1, 1);
    write_weights(in_folder("w.npy"), TVM_F16, 64, 64, weights, false);
    free(weights);
    pack_options options = {.input = in_folder("w.npy"),
                            .output = in_folder("out"),
                            .layout = in_folder("m.vbc"),
                            .scale_type = TVM_F16};
    pack_badly(&options, row->says);
}
END_TEST

/* ---- calls ---- */

static unsigned reads, writes;

/* In the place of those of the C library. */
ssize_t pread(int descriptor, void *bytes, size_t size, off_t offset) {
    reads++;
    return syscall(SYS_pread64, descriptor, bytes, size, offset);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset) {
    writes++;
    return syscall(SYS_pwrite64, descriptor, bytes, size, offset);
}

/* A matrix that is turned goes in runs of columns as long as one that is not, and comes in runs of rows. */
START_TEST(calls_of_both_orders) {
    enum { K = 1024, N = 4096 };
    unsigned counted[2];
    double *weights = random_weights((uint64_t)K * N, 0.3, 5);
    for (int transpose = 0; transpose < 2; transpose++) {
        pack_options options = {.input = in_folder("w.npy"),
                                .output = in_folder(transpose ? "turned" : "out"),
                                .type = TVM_U(4),
                                .group = _i ? K : 128,
                                .scale_type = TVM_F16,
                                .transpose = transpose,
                                .threads = 1};
        write_weights(options.input, TVM_F16, K, N, weights, transpose);
        reads = writes = 0;
        pack_well(&options);
        counted[transpose] = writes;
        ck_assert_uint_gt(writes, K);
        ck_assert_msg(writes + reads < 20 * K, "%u writes and %u reads", writes, reads);
    }
    ck_assert_msg(counted[1] <= counted[0] + counted[0] / 10, "%u writes, and %u turned", counted[0],
                  counted[1]);
    packed plain = read_packed(in_folder("out")), turned = read_packed(in_folder("turned"));
    ck_assert_mem_eq(data_of(&plain, "packed"), data_of(&turned, "packed"), (size_t)K * N / 2);
    free_packed(&plain);
    free_packed(&turned);
    free(weights);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("pack layouts");
    TCase *layouts = tcase_create("layouts");
    tcase_add_loop_test(layouts, layout_of_the_matmul, 0, 10);
    tcase_add_test(layouts, layout_down_the_columns);
    tcase_add_loop_test(layouts, refuses_layouts, 0, sizeof bad_layouts / sizeof bad_layouts[0]);
    tcase_add_loop_test(layouts, calls_of_both_orders, 0, 2);
    tcase_add_checked_fixture(layouts, setup, teardown);
    suite_add_tcase(suite, layouts);
    return run_suite(suite);
}
