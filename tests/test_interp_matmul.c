/* The shipped matmul on the interpreter: weights of several types, sizes that are no multiple of a tile,
 * against a loop in double. */
#include "interp_case.h"

#include "fileio.h"
#include "suite_kit.h"

enum { M = 21, N = 136, K = 256, GROUP = 128, TILES = 2 };

static uint16_t a[M * K], scales[K / GROUP * N], c[M * N];
static uint8_t weights[K * N], packed[K / GROUP * TILES * GROUP * 128];

static tvm_ir_program *assemble_matmul(const char *define) {
    char path[1024];
    const char *top = getenv("srcdir");
    uint8_t *text = NULL;
    size_t size;
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    const tvm_assembler_options options = {.defines = &define, .define_count = 1};
    snprintf(path, sizeof path, "%s/programs/matmul_u3.vasm", top ? top : ".");
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &text, &size, &diags), TVM_OK);
    tvm_status status = tvm_assemble_text((const char *)text, size, path, &options, &program, &diags);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "");
    tvm_diags_free(&diags);
    free(text);
    return program;
}

/* What weight code stands for, before the scale. */
static double weight(tvm_dtype type, size_t element) {
    uint64_t code = bit_string_get(weights, element, type.bits);
    if (type.kind == TVM_KIND_UINT) return (double)code - (1 << (type.bits - 1));
    if (type.kind == TVM_KIND_INT) return (double)code - (code >> (type.bits - 1) ? 1 << type.bits : 0);
    return float_value(type.exponent, type.mantissa, false, code);
}

static void check_matmul(const char *name) {
    char define[32];
    tvm_dtype type;
    uint32_t state = 5;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    snprintf(define, sizeof define, "WTYPE=%s", name);
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (uint8_t)next_random(&state);
    for (int i = 0; i < M * K; i++) a[i] = f16_code((int32_t)next_random(&state) * 0x1p-31L);
    for (int i = 0; i < K / GROUP * N; i++) scales[i] = f16_code((1 + next_random(&state) % 7) * 0x1p-6L);
    for (int i = 0; i < M * N; i++) c[i] = 0x7fff;
    tvm_ir_program *program = assemble_matmul(define);
    const char *const kernels[] = {"pack", "matmul"};
    for (int i = 0; i < 2; i++) {
        outcome out =
            launch(program, kernels[i], 2,
                   VALUES(INT("m", M), INT("n", N), INT("k", K), TENSOR("a", a), TENSOR("w", weights),
                          TENSOR("p", packed), TENSOR("s", scales), TENSOR("c", c)));
        ck_assert_msg(out.status == TVM_OK, "%s", out.message);
        free(out.output);
    }
    tvm_ir_program_free(program);
    for (size_t i = 0; i < M; i++)
        for (size_t j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (size_t p = 0; p < K; p++) {
                double term =
                    f16_value(a[i * K + p]) * weight(type, p * N + j) * f16_value(scales[p / GROUP * N + j]);
                sum += term;
                size += fabs(term);
            }
            double error = fabs(f16_value(c[i * N + j]) - sum);
            ck_assert_msg(error <= ldexp(fabs(sum), -11) + ldexp(size, -20),
                          "%s: c[%zu, %zu] is off by %g of %g", name, i, j, error, sum);
        }
}

START_TEST(matmul_of_several_weight_types) {
    static const char *const types[] = {"u1", "u3", "u8", "i2", "i5", "f3_e1m1", "f4_e2m1", "f6_e3m2"};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) check_matmul(types[t]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("interp_matmul");
    TCase *tests = tcase_create("interp_matmul");
    tcase_add_test(tests, matmul_of_several_weight_types);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
