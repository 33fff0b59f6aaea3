/* mma in generated code, as the PTX machine executes it: fragments, batches, and two matmuls, of the program
 * that ships and of one whose weights are the A operand, which give what the interpreter gives. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "compare_kit.h"
#include "fileio.h"
#include "interp.h"
#include "random_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* ---- mma, with numbers whose sums are exact ---- */

START_TEST(mma_multiplies_matrices) {
    enum { M = 32, N = 24, DEPTH = 48 };
    static uint16_t a[M * DEPTH] __attribute__((aligned(16))), b[DEPTH * N] __attribute__((aligned(16)));
    static float y[M * N] __attribute__((aligned(16)));
    for (unsigned half = 0; half < 2; half++) {
        const char *name = half ? "bf16" : "f16";
        tvm_dtype type = half ? TVM_BF16 : TVM_F16;
        char text[1024];
        snprintf(
            text, sizeof text,
            ".vasm 1\n.kernel k(a: global %s[32, 48], b: global %s[48, 24], y: global f32[32, 24])\n"
            ".warps 2\n.grid 1\n"
            "%%ta = load-global a[0, 0], spatial(2, 1).local(1, 3).mma.m16n8k16.A\n"
            "%%tb = load-global b[0, 0], replicated(2, 2).local(3, 3).mma.m16n8k16.B\n"
            "%%tc = alloc-register f32[32, 24], layout spatial(2, 1).local(1, 3).mma.m16n8k16.C, init 1.0\n"
            "%%td = mma %%ta, %%tb, %%tc\nstore-global y[0, 0], %%td\n.end\n",
            name, name);
        for (unsigned i = 0; i < M * DEPTH; i++)
            a[i] = (uint16_t)tvm_encode(type, (double)(int)(random_bits() % 17) - 8);
        for (unsigned i = 0; i < DEPTH * N; i++)
            b[i] = (uint16_t)tvm_encode(type, (double)(int)(random_bits() % 17) - 8);
        tvm_ir_program *program = assemble(text);
        tvm_module *module = translate(program, "sm_80");
        tvm_interp_arg args[3] = {{.data = a}, {.data = b}, {.data = y}};
        run_translated(module, "k", args, 3, one_block);
        for (unsigned i = 0; i < M; i++)
            for (unsigned j = 0; j < N; j++) {
                double sum = 1;
                for (unsigned k = 0; k < DEPTH; k++)
                    sum += tvm_decode(type, a[i * DEPTH + k]) * tvm_decode(type, b[k * N + j]);
                ck_assert_msg((double)y[i * N + j] == sum, "%s: c[%u, %u] is %g, expected %g", name, i, j,
                              (double)y[i * N + j], sum);
            }
        tvm_module_free(module);
        tvm_ir_program_free(program);
    }
}
END_TEST

/* ---- the matmul that ships: copies, ldmatrix, conversions, mma, edges; bit by bit as interpreted ---- */

enum { MM = 19, NN = 136, KK = 384, TILE_K = 128, TILE_N = 128 };

static const char *const weight_types[] = {"u3", "u1", "i5", "u8", "f6_e3m2", "f8_e4m3"};

static tvm_ir_program *assemble_matmul(const char *weight_type) {
    char define[64], path[1024];
    const char *srcdir = getenv("srcdir");
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    snprintf(define, sizeof define, "WTYPE=%s", weight_type);
    snprintf(path, sizeof path, "%s/programs/matmul_u3.vasm", srcdir ? srcdir : ".");
    const char *const defines[] = {define};
    tvm_assembler_options options = {.defines = defines, .define_count = 1};
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &text, &size, &diags), TVM_OK);
    tvm_status status = tvm_assemble_text((const char *)text, size, path, &options, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    free(text);
    return program;
}

/* pack, then matmul, on the interpreter (side 0) or by the translation (side 1). */
static void run_matmul(const tvm_ir_program *program, const tvm_module *module, unsigned side, uint8_t *w,
                       uint8_t *p, uint16_t *a, uint16_t *s, uint16_t *c) {
    const uint32_t blocks_n = (NN + TILE_N - 1) / TILE_N;
    const uint32_t pack_grid[3] = {blocks_n, KK / TILE_K, 1}, grid[3] = {blocks_n, (MM + 15) / 16, 1};
    tvm_interp_arg pack[] = {{.scalar.i = KK}, {.scalar.i = NN}, {.data = w}, {.data = p}};
    tvm_interp_arg matmul[] = {{.scalar.i = MM}, {.scalar.i = NN}, {.scalar.i = KK}, {.data = a},
                               {.data = p},      {.data = s},      {.data = c}};
    if (side == 0) {
        run_interpreter(program, "pack", pack, pack_grid);
        run_interpreter(program, "matmul", matmul, grid);
    } else {
        run_translated(module, "pack", pack, 4, pack_grid);
        run_translated(module, "matmul", matmul, 7, grid);
    }
}

START_TEST(the_matmul_is_that_of_the_interpreter) {
    enum { GUARD = 64 };
    const size_t packed = (size_t)(KK / TILE_K) * ((NN + TILE_N - 1) / TILE_N) * TILE_K * TILE_N;
    static uint8_t w[KK * NN] __attribute__((aligned(16)));
    static uint16_t a[MM * KK] __attribute__((aligned(16))),
        scales[KK / TILE_K * NN] __attribute__((aligned(16)));
    static uint16_t c[2][MM * NN + GUARD] __attribute__((aligned(16)));
    uint8_t *p[2] = {aligned_alloc(16, packed), aligned_alloc(16, packed)};
    ck_assert(p[0] && p[1]);
    for (size_t i = 0; i < sizeof w; i++) w[i] = (uint8_t)random_bits();
    for (unsigned i = 0; i < MM * KK; i++)
        a[i] = tvm_f32_to_f16((float)(int)(random_bits() % 2001 - 1000) / 512);
    for (unsigned i = 0; i < KK / TILE_K * NN; i++)
        scales[i] = tvm_f32_to_f16((float)(random_bits() % 1000) / 4096);
    memset(c, 0x5a, sizeof c);
    tvm_ir_program *program = assemble_matmul(weight_types[_i]);
    tvm_module *module = translate(program, "sm_80");
    for (unsigned side = 0; side < 2; side++) {
        memset(p[side], 0, packed);
        run_matmul(program, module, side, w, p[side], a, scales, c[side]);
    }
    ck_assert_mem_eq(p[0], p[1], packed);
    compare_tensors(weight_types[_i], TVM_F16, (const uint8_t *)c[1], (const uint8_t *)c[0], MM * NN + GUARD);
    ck_assert_uint_eq(c[1][MM * NN], 0x5a5a);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    free(p[0]);
    free(p[1]);
}
END_TEST

/* ---- mma of batches, with numbers whose sums are exact ---- */

/* Two batch dimensions, one over the warps and one within each. */
START_TEST(mma_multiplies_batches) {
    enum { BATCH = 6, M = 32, N = 16, DEPTH = 32 };
    static const char text[] =
        ".vasm 1\n"
        ".kernel k(a: global bf16[3, 2, 32, 32], b: global bf16[3, 2, 32, 16], y: global f32[3, 2, 32, 16])\n"
        ".warps 4\n.grid 1\n"
        "%ta = load-global a, local(3, 1, 1, 1).spatial(1, 2, 2, 1).local(1, 1, 1, 2).mma.m16n8k16.A\n"
        "%tb = load-global b, spatial(1, 2, 1, 1).replicated(2, 4).local(3, 1, 2, 2).mma.m16n8k16.B\n"
        "%tc = load-global y, spatial(1, 2, 2, 1).local(3, 1, 1, 2).mma.m16n8k16.C\n"
        "%td = mma %ta, %tb, %tc\nstore-global y, %td\n.end\n";
    static uint16_t a[BATCH * M * DEPTH] __attribute__((aligned(16)));
    static uint16_t b[BATCH * DEPTH * N] __attribute__((aligned(16)));
    static float y[2][BATCH * M * N] __attribute__((aligned(16)));
    for (unsigned i = 0; i < BATCH * M * DEPTH; i++)
        a[i] = tvm_f32_to_bf16((float)(int)(random_bits() % 17) - 8);
    for (unsigned i = 0; i < BATCH * DEPTH * N; i++)
        b[i] = tvm_f32_to_bf16((float)(int)(random_bits() % 17) - 8);
    for (unsigned i = 0; i < BATCH * M * N; i++) y[0][i] = y[1][i] = (float)(i % 31);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_90a");
    for (unsigned side = 0; side < 2; side++) {
        tvm_interp_arg args[3] = {{.data = a}, {.data = b}, {.data = y[side]}};
        if (side == 0)
            run_interpreter(program, "k", args, one_block);
        else
            run_translated(module, "k", args, 3, one_block);
    }
    for (unsigned i = 0; i < BATCH * M * N; i++) {
        unsigned entry = i / (M * N), row = i / N % M, column = i % N;
        float sum = (float)(i % 31);
        for (unsigned k = 0; k < DEPTH; k++)
            sum += tvm_bf16_to_f32(a[(entry * M + row) * DEPTH + k]) *
                   tvm_bf16_to_f32(b[(entry * DEPTH + k) * N + column]);
        for (unsigned side = 0; side < 2; side++)
            ck_assert_msg(y[side][i] == sum, "%s: c[%u, %u, %u] is %g, expected %g",
                          side ? "ptx" : "interpreter", entry, row, column, (double)y[side][i], (double)sum);
    }
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- weights as the A operand of mma, k split over the warps ---- */

typedef struct swapped_case {
    const char *weight_type, *defines;
    unsigned wk, bm, nt, wn, kg;
} swapped_case;

static const swapped_case swapped_cases[] = {
    {"u4", "", 2, 8, 2, 2, 32},
    {"u4", "WK=4 BM=16 NT=4 KG=64", 4, 16, 4, 2, 64},
    {"u6", "WK=4 WN=1 NT=4 KG=16", 4, 8, 4, 1, 16},
    {"u3", "WK=8 WN=1 KG=128", 8, 8, 2, 1, 128},
    {"u2", "BM=32 KG=64", 2, 32, 2, 2, 64},
};

static tvm_ir_program *assemble_swapped(const swapped_case *row) {
    char text[512], directory[1024], list[128], *save = NULL;
    const char *srcdir = getenv("srcdir"), *defines[8];
    size_t count = 0;
    snprintf(list, sizeof list, "%s", row->defines);
    for (char *one = strtok_r(list, " ", &save); one; one = strtok_r(NULL, " ", &save))
        defines[count++] = one;
    int size =
        snprintf(text, sizeof text, ".vasm 1\n.const WTYPE = %s\n.include \"swapped_matmul.vasminc\"\n",
                 row->weight_type);
    snprintf(directory, sizeof directory, "%s/tests/cases", srcdir ? srcdir : ".");
    const char *const directories[] = {directory};
    tvm_assembler_options options = {
        .defines = defines, .define_count = count, .include_dirs = directories, .include_dir_count = 1};
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_assemble_text(text, (size_t)size, "test", &options, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    return program;
}

/* Activations by ldmatrix as they lie, and no bank conflict anywhere. */
static void check_selections(const tvm_module *module) {
    const tvm_kernel_code *matmul = &module->kernels[module->kernel_count - 1];
    unsigned matrices = 0;
    ck_assert_str_eq(matmul->name, "matmul");
    for (size_t i = 0; i < matmul->selection_count; i++) {
        const tvm_selection *selection = &matmul->selections[i];
        ck_assert_msg(selection->conflicts <= 0, "%s: %d conflicts", selection->instruction,
                      selection->conflicts);
        matrices += strncmp(selection->candidate, "ldmatrix.x", 10) == 0;
        ck_assert_ptr_null(strstr(selection->candidate, ".trans"));
    }
    ck_assert_uint_eq(matrices, 1);
}

enum { SWAPPED_M = 11, SWAPPED_BLOCKS = 2, SWAPPED_K_MAX = 2048, SWAPPED_N_MAX = 256 };

START_TEST(weights_are_the_first_operand) {
    const swapped_case *row = &swapped_cases[_i];
    const unsigned n = SWAPPED_BLOCKS * row->wn * row->nt * 16, step = row->wk * row->kg, k = 2 * step;
    static uint8_t w[SWAPPED_K_MAX * SWAPPED_N_MAX] __attribute__((aligned(16)));
    static uint8_t p[2][SWAPPED_K_MAX * SWAPPED_N_MAX] __attribute__((aligned(16)));
    static uint16_t a[SWAPPED_M * SWAPPED_K_MAX] __attribute__((aligned(16)));
    static uint16_t s[SWAPPED_K_MAX / 16 * SWAPPED_N_MAX] __attribute__((aligned(16)));
    static uint16_t c[2][SWAPPED_M * SWAPPED_N_MAX] __attribute__((aligned(16)));
    unsigned bits = (unsigned)(row->weight_type[1] - '0');
    ck_assert(k <= SWAPPED_K_MAX && n <= SWAPPED_N_MAX);
    for (size_t i = 0; i < sizeof w; i++) w[i] = (uint8_t)random_bits();
    for (unsigned i = 0; i < SWAPPED_M * k; i++) a[i] = tvm_f32_to_f16((float)(int)(random_bits() % 9) - 4);
    for (unsigned i = 0; i < k / row->kg * n; i++)
        s[i] = tvm_f32_to_f16(ldexpf(1, -(int)(random_bits() % 4)));
    tvm_ir_program *program = assemble_swapped(row);
    tvm_module *module = translate(program, "sm_90a");
    check_selections(module);
    const uint32_t pack_grid[3] = {SWAPPED_BLOCKS, k / step, 1};
    const uint32_t grid[3] = {SWAPPED_BLOCKS, (SWAPPED_M + row->bm - 1) / row->bm, 1};
    for (unsigned side = 0; side < 2; side++) {
        tvm_interp_arg pack[] = {{.scalar.i = k}, {.scalar.i = n}, {.data = w}, {.data = p[side]}};
        tvm_interp_arg matmul[] = {{.scalar.i = SWAPPED_M}, {.scalar.i = n}, {.scalar.i = k},  {.data = a},
                                   {.data = p[side]},       {.data = s},     {.data = c[side]}};
        if (side == 0) {
            run_interpreter(program, "pack", pack, pack_grid);
            run_interpreter(program, "matmul", matmul, grid);
        } else {
            run_translated(module, "pack", pack, 4, pack_grid);
            run_translated(module, "matmul", matmul, 7, grid);
        }
    }
    for (unsigned i = 0; i < SWAPPED_M * n; i++) {
        double sum = 0; /* exact: of multiples of 1/8 */
        for (unsigned j = 0; j < k; j++) {
            uint64_t code = tvm_bits_get(w, ((uint64_t)j * n + i % n) * bits, bits);
            sum += (double)tvm_f16_to_f32(a[i / n * k + j]) * ((double)code - ldexp(1, (int)bits - 1)) *
                   (double)tvm_f16_to_f32(s[j / row->kg * n + i % n]);
        }
        for (unsigned side = 0; side < 2; side++)
            ck_assert_msg(c[side][i] == tvm_f64_to_f16(sum), "%s: c[%u, %u] is %g, expected %g",
                          side ? "ptx" : "interpreter", i / n, i % n, (double)tvm_f16_to_f32(c[side][i]),
                          sum);
    }
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_mma");
    TCase *tests = tcase_create("mma");
    tcase_add_test(tests, mma_multiplies_matrices);
    tcase_add_test(tests, mma_multiplies_batches);
    tcase_add_loop_test(tests, weights_are_the_first_operand, 0,
                        sizeof swapped_cases / sizeof *swapped_cases);
    tcase_add_loop_test(tests, the_matmul_is_that_of_the_interpreter, 0,
                        sizeof weight_types / sizeof *weight_types);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
