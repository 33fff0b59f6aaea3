/* What the generated code computes, without a GPU: the PTX is executed by ptx_machine.h and compared with
 * tvm_cast and with the interpreter. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "fileio.h"
#include "interp.h"
#include "ptx_machine.h"

enum { TIMEOUT = 600 };

/* ---- helpers ---- */

static uint64_t random_state = UINT64_C(88172645463325252);

static uint64_t random_bits(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static tvm_module *translate(const tvm_ir_program *program, unsigned arch) {
    tvm_diags diags = {0};
    tvm_module *module = NULL;
    tvm_status status = tvm_translate(program, (tvm_target){arch, arch >= 90 ? 'a' : '\0'}, &module, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    return module;
}

/* One argument: the address of a tensor, or the value of a scalar. */
static void run_ptx(const tvm_module *module, const char *kernel, const tvm_interp_arg *args, unsigned count,
                    const uint32_t grid[3]) {
    unsigned threads = 0;
    for (size_t k = 0; k < module->kernel_count; k++)
        if (strcmp(module->kernels[k].name, kernel) == 0) threads = module->kernels[k].abi.threads;
    ptx_machine m = ptx_load(module->ptx, kernel, threads);
    memcpy(m.grid, grid, sizeof m.grid);
    for (unsigned i = 0; i < count; i++)
        m.params[i] = args[i].data ? (uint64_t)(uintptr_t)args[i].data : args[i].scalar.u;
    for (uint64_t b = 0; b < (uint64_t)grid[0] * grid[1] * grid[2]; b++) {
        m.block[0] = (uint32_t)(b % grid[0]);
        m.block[1] = (uint32_t)(b / grid[0] % grid[1]);
        m.block[2] = (uint32_t)(b / grid[0] / grid[1]);
        ptx_run(&m);
    }
    ptx_free(&m);
}

static void run_interpreter(const tvm_ir_program *program, const char *kernel, const tvm_interp_arg *args,
                            const uint32_t grid[3]) {
    tvm_diags diags = {0};
    tvm_interp_kernel *prepared = NULL;
    tvm_interp_options options = {.threads = 1};
    ck_assert_int_eq(tvm_interp_prepare(program, tvm_find_kernel(program, kernel), &prepared, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_interp_run(prepared, args, grid, &options, &diags), TVM_OK);
    tvm_interp_free(prepared);
    tvm_diags_free(&diags);
}

static const uint32_t one_block[3] = {1, 1, 1};

/* A code for tests of a type: anything, or a value near those where rounding and saturation happen. */
static uint64_t sample(tvm_dtype type) {
    static const double special[] = {0,        1,           0.5,         1.5,      2.5,   127.5, 128.5,
                                     255.5,    448,         464,         57344,    61440, 65504, 65519.99,
                                     65520,    240,         480,         INFINITY, NAN,   1e300, 0x1p-149,
                                     0x1p-133, 2147483648., 4294967295., 1e19,     9.3e18};
    uint64_t any = random_bits() & (type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << type.bits) - 1);
    if (type.kind == TVM_KIND_BOOL) return any & 1;
    if (type.bits <= 8) return any;
    double sign = random_bits() & 1 ? -1 : 1, value = 0;
    switch (random_bits() % 5) {
    case 0:
        return any;
    case 1:
        value = special[random_bits() % (sizeof special / sizeof *special)];
        break;
    case 2:
        value = ldexp((double)(random_bits() % 4096), (int)(random_bits() % 60) - 36);
        break;
    case 3:
        value = ldexp((double)(random_bits() % 4096), (int)(random_bits() % 280) - 150);
        break;
    default:
        value = (double)(random_bits() % 4000) / 4;
        break;
    }
    uint64_t code = tvm_encode(type, sign * value);
    /* next to the value, where a tie becomes none */
    uint64_t near = code + random_bits() % 3 - 1;
    return type.kind == TVM_KIND_FLOAT && type.bits >= 32 && isfinite(tvm_decode(type, near)) ? near : code;
}

/* ---- conversions ---- */

enum { ELEMENTS = 512, ROUNDS = 2 };

static bool is_standard(tvm_dtype type) {
    return !tvm_dtype_is_lowbit(type) || (tvm_dtype_is_integer(type) && type.bits == 8);
}

static bool takes_part_in_lowbit(tvm_dtype type) {
    if (tvm_dtype_is_lowbit(type)) return true;
    return (tvm_dtype_is_integer(type) && type.bits <= 32) || tvm_dtype_same(type, TVM_F16) ||
           tvm_dtype_same(type, TVM_BF16) || tvm_dtype_same(type, TVM_F32);
}

static bool has_cast(tvm_dtype to, tvm_dtype from, bool lowbit) {
    if (!lowbit) return is_standard(from) && is_standard(to);
    return (tvm_dtype_is_lowbit(from) || tvm_dtype_is_lowbit(to)) && takes_part_in_lowbit(from) &&
           takes_part_in_lowbit(to);
}

static void write_cast(FILE *out, tvm_dtype to, tvm_dtype from, bool lowbit) {
    char source[TVM_DTYPE_NAME_MAX], name[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(from, source);
    tvm_dtype_name(to, name);
    fprintf(out,
            ".kernel %s_%s(a: global %s[%d], y: global %s[%d])\n.warps 1\n.grid 1\n"
            "%%x = load-global a[0], spatial(32).local(16)\n%%r = %s %%x, %s\nstore-global y[0], %%r\n.end\n",
            lowbit ? "low" : "std", name, source, ELEMENTS, name, ELEMENTS, lowbit ? "cast-lowbit" : "cast",
            name);
}

static void check_cast(const tvm_module *module, tvm_dtype to, tvm_dtype from, bool lowbit, unsigned round) {
    static uint8_t input[ELEMENTS * 8] __attribute__((aligned(16))),
        output[ELEMENTS * 8] __attribute__((aligned(16)));
    char kernel[32], name[TVM_DTYPE_NAME_MAX], source[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(to, name);
    tvm_dtype_name(from, source);
    snprintf(kernel, sizeof kernel, "%s_%s", lowbit ? "low" : "std", name);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        /* all codes of up to 8 bits, in two orders */
        uint64_t code = from.bits <= 8 && round == 0 && from.kind != TVM_KIND_BOOL
                            ? (i * 5 + i / 256) % (1u << from.bits)
                            : sample(from);
        tvm_bits_set(input, (uint64_t)i * from.bits, from.bits, code);
    }
    tvm_interp_arg args[2] = {{.data = input}, {.data = output}};
    run_ptx(module, kernel, args, 2, one_block);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        uint64_t code = tvm_bits_get(input, (uint64_t)i * from.bits, from.bits);
        uint64_t found = tvm_bits_get(output, (uint64_t)i * to.bits, to.bits),
                 want = tvm_cast(to, from, code, lowbit);
        ck_assert_msg(found == want, "%s %s to %s: code %llx gives %llx, expected %llx", kernel, source, name,
                      (unsigned long long)code, (unsigned long long)found, (unsigned long long)want);
    }
}

static void check_casts_from(tvm_dtype from, const tvm_dtype *types, size_t total) {
    size_t size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, ".vasm 1\n");
    for (size_t i = 0; i < total; i++)
        for (int lowbit = 0; lowbit < 2; lowbit++)
            if (has_cast(types[i], from, lowbit)) write_cast(out, types[i], from, lowbit);
    fclose(out);
    tvm_ir_program *program = assemble(text);
    bool other_code = tvm_dtype_same(from, TVM_F32) || tvm_dtype_same(from, TVM_BF16); /* to f8 on sm_90 */
    for (unsigned arch = 80; arch <= (other_code ? 90u : 80u); arch += 10) {
        tvm_module *module = translate(program, arch);
        for (size_t i = 0; i < total; i++)
            for (int lowbit = 0; lowbit < 2; lowbit++)
                for (unsigned round = 0;
                     has_cast(types[i], from, lowbit) && round < (from.bits <= 8 ? 1 : ROUNDS); round++)
                    check_cast(module, types[i], from, lowbit, round);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
    free(text);
}

START_TEST(every_conversion_is_exact) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t total = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    for (size_t i = 0; i < total; i++) check_casts_from(types[i], types, total);
}
END_TEST

/* ---- element-wise, against the interpreter ---- */

enum { ROWS = 32, COLUMNS = 3, RESULTS = 18, TILE = ROWS * COLUMNS };

/* `%v` is a row, `%u` a column: all ways of broadcasting. Each result is stored to rows of its own. */
static void write_operations(FILE *out, tvm_dtype type) {
    static const char *const binary[] = {"add", "sub", "mul", "div", "min", "max"};
    char name[TVM_DTYPE_NAME_MAX];
    unsigned stored = 0;
    bool is_float = type.kind == TVM_KIND_FLOAT;
    tvm_dtype_name(type, name);
    fprintf(
        out,
        ".kernel ops_%s(a: global %s[%d, %d], y: global %s[%d, %d], z: global bool[%d, %d], s: f32, i: i32)\n"
        ".warps 1\n.grid 1\n"
        "%%x = load-global a[0, 0], spatial(32, 1).local(1, 3)\n"
        "%%v = load-global a[1, 0], replicated(32, 2).local(1, 3)\n"
        "%%u = load-global a[0, 1], spatial(32, 1)\n"
        "%%w = load-global a[0, 0], spatial(32, 1).local(1, 3)\n%%w = sub %%w, %%v\n",
        name, name, ROWS, COLUMNS, name, ROWS * RESULTS, COLUMNS, ROWS * TVM_COMPARE_COUNT, COLUMNS);
    for (unsigned i = 0; i < 6; i++)
        fprintf(
            out,
            "%%r = %s %%x, %%v\nstore-global y[%u, 0], %%r\n%%r = %s %s, %%w\nstore-global y[%u, 0], %%r\n",
            binary[i], ROWS * stored, binary[i], i % 2 ? "s" : "i", ROWS * (stored + 1)),
            stored += 2;
    fprintf(out, "%%r = %s\nstore-global y[%u, 0], %%r\n",
            type.kind == TVM_KIND_UINT ? "mod %x, %v" : "neg %x", ROWS * stored++);
    fprintf(out, "%%r = %s\nstore-global y[%u, 0], %%r\n", is_float ? "fma %u, %x, s" : "mod %x, %u",
            ROWS * stored++);
    fprintf(out, "%%r = fma %%x, %%v, %%u\nstore-global y[%u, 0], %%r\n", ROWS * stored++);
    fprintf(out, "%%r = add %%u, %%x\nstore-global y[%u, 0], %%r\n", ROWS * stored++);
    for (unsigned c = 0; c < TVM_COMPARE_COUNT; c++)
        fprintf(out, "%%c = compare %s, %%x, %%v\nstore-global z[%u, 0], %%c\n", tvm_compare_names[c],
                ROWS * c);
    fprintf(out, "%%r = where %%c, %%x, %%u\nstore-global y[%u, 0], %%r\n", ROWS * stored++);
    fprintf(out, "%%r = where %%c, s, %%v\nstore-global y[%u, 0], %%r\n.end\n", ROWS * stored++);
    ck_assert_uint_eq(stored, RESULTS);
}

/* Equal codes, or both NaN, whose sign and payload arithmetic leaves open. */
static bool same_value(tvm_dtype type, uint64_t a, uint64_t b) {
    if (a == b) return true;
    return type.kind == TVM_KIND_FLOAT && isnan(tvm_decode(type, a)) && isnan(tvm_decode(type, b));
}

static void compare_tensors(const char *what, tvm_dtype type, const uint8_t *found, const uint8_t *want,
                            size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t a = tvm_bits_get(found, i * type.bits, type.bits),
                 b = tvm_bits_get(want, i * type.bits, type.bits);
        ck_assert_msg(same_value(type, a, b), "%s: element %zu is %llx, expected %llx", what, i,
                      (unsigned long long)a, (unsigned long long)b);
    }
}

static void check_operations(const tvm_ir_program *program, const tvm_module *module, tvm_dtype type) {
    static uint8_t a[TILE * 8 + 64] __attribute__((aligned(16)));
    static uint8_t y[2][TILE * RESULTS * 8] __attribute__((aligned(16)));
    static uint8_t z[2][TILE * TVM_COMPARE_COUNT] __attribute__((aligned(16)));
    char kernel[32], name[TVM_DTYPE_NAME_MAX];
    snprintf(kernel, sizeof kernel, "ops_%s", tvm_dtype_name(type, name));
    for (unsigned i = 0; i < TILE; i++) tvm_bits_set(a, (uint64_t)i * type.bits, type.bits, sample(type));
    for (unsigned side = 0; side < 2; side++) {
        tvm_interp_arg args[5] = {
            {.data = a}, {.data = y[side]}, {.data = z[side]}, {.scalar.f = 2.5}, {.scalar.i = -77}};
        if (side == 0)
            run_interpreter(program, kernel, args, one_block);
        else {
            args[3].scalar.u = tvm_f32_bits(2.5f);
            args[4].scalar.u = (uint32_t)-77;
            run_ptx(module, kernel, args, 5, one_block);
        }
    }
    compare_tensors(kernel, type, y[1], y[0], (size_t)TILE * RESULTS);
    compare_tensors(kernel, TVM_BOOL, z[1], z[0], (size_t)TILE * TVM_COMPARE_COUNT);
}

START_TEST(every_operation_is_that_of_the_interpreter) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t total = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, ".vasm 1\n");
    for (size_t i = 0; i < total; i++)
        if (tvm_dtype_is_arithmetic(types[i])) write_operations(out, types[i]);
    fclose(out);
    tvm_ir_program *program = assemble(text);
    for (unsigned arch = 80; arch <= 90; arch += 10) {
        tvm_module *module = translate(program, arch);
        for (unsigned round = 0; round < 8; round++)
            for (size_t i = 0; i < total; i++)
                if (tvm_dtype_is_arithmetic(types[i])) check_operations(program, module, types[i]);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
    free(text);
}
END_TEST

/* ---- bits, bounds and whole numbers, against the interpreter ---- */

enum { BITS_COUNT = 512, BITS_RESULTS = 10 };

static void write_bit_operations(FILE *out, tvm_dtype type) {
    static const char *const integers[] = {"and %x, %y", "%x | i",        "%x ^ %y",   "~%x",
                                           "%x << %y",   "%x >> %y",      "shl %x, 3", "popcount %x",
                                           "shr i, %y",  "clip %x, 3, %y"};
    static const char *const floats[] = {"floor %x",       "ceil %x",         "round %x", "trunc %x",
                                         "clip %x, -1, s", "clip %x, %y, %x", "sqrt %x",  "abs %x",
                                         "neg %y",         "clip 0, %x, %y"};
    static const char *const bools[] = {"and %x, %y", "%x | %y", "%x ^ %y",   "~%x",     "not %y",
                                        "or %x, i",   "%x & s",  "xor i, %y", "%x ^ %x", "%x | %x"};
    const char *const *all = type.kind == TVM_KIND_BOOL    ? bools
                             : type.kind == TVM_KIND_FLOAT ? floats
                                                           : integers;
    char name[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(type, name);
    fprintf(
        out,
        ".kernel bits_%s(a: global %s[2, 512], y: global %s[10, 512], s: f32, i: i32)\n.warps 1\n.grid 1\n"
        "%%x = load-global a[0], spatial(32).local(16)\n%%y = load-global a[1], spatial(32).local(16)\n",
        name, name, name);
    for (unsigned i = 0; i < BITS_RESULTS; i++)
        fprintf(out, "%%r = %s\nstore-global y[%u], %%r\n", all[i], i);
    fprintf(out, ".end\n");
}

static void check_bit_operations(const tvm_ir_program *program, const tvm_module *module, tvm_dtype type) {
    static uint8_t a[2 * BITS_COUNT * 8] __attribute__((aligned(16)));
    static uint8_t y[2][BITS_RESULTS * BITS_COUNT * 8] __attribute__((aligned(16)));
    char kernel[32], name[TVM_DTYPE_NAME_MAX];
    snprintf(kernel, sizeof kernel, "bits_%s", tvm_dtype_name(type, name));
    for (unsigned i = 0; i < 2 * BITS_COUNT; i++)
        tvm_bits_set(a, (uint64_t)i * type.bits, type.bits, sample(type));
    tvm_interp_arg args[4] = {{.data = a}, {.data = y[0]}, {.scalar.f = 2.5}, {.scalar.i = 77}};
    run_interpreter(program, kernel, args, one_block);
    args[1].data = y[1];
    args[2].scalar.u = tvm_f32_bits(2.5f);
    run_ptx(module, kernel, args, 4, one_block);
    compare_tensors(kernel, type, y[1], y[0], (size_t)BITS_RESULTS * BITS_COUNT);
}

static bool has_bit_operations(tvm_dtype type) {
    return tvm_dtype_is_arithmetic(type) || type.kind == TVM_KIND_BOOL;
}

START_TEST(bits_bounds_and_whole_numbers_are_those_of_the_interpreter) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t total = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, ".vasm 3\n");
    for (size_t i = 0; i < total; i++)
        if (has_bit_operations(types[i])) write_bit_operations(out, types[i]);
    fclose(out);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, 80);
    for (size_t i = 0; i < total; i++)
        if (has_bit_operations(types[i])) check_bit_operations(program, module, types[i]);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    free(text);
}
END_TEST

/* ---- reduce, in the interpreter's order, to the last bit ---- */

typedef struct reduce_case {
    unsigned warps;
    const char *layout;
    unsigned rows, columns;
} reduce_case;

static const reduce_case reduce_cases[] = {
    {1, "spatial(8, 4).local(2, 4)", 16, 16},
    {1, "local(2, 1).column_spatial(8, 4).local(1, 3)", 16, 12},
    {4, "spatial(4, 1).column_spatial(4, 8).local(2, 2)", 32, 16},
    {2, "column_spatial(2, 1).local(2, 3).spatial(8, 4)", 32, 12},
    {3, "spatial(3, 1).spatial(4, 8).local(1, 3)", 12, 24},
    {3, "spatial(1, 6).spatial(16, 1)", 16, 6},
    {2, "replicated(2, 2).spatial(4, 8).column_local(3, 2)", 12, 16},
    {2, "spatial(1, 64)", 1, 64},
    {8, "spatial(256, 1).local(1, 5)", 256, 5},
    {2, "column_spatial(2, 16).local(2, 5).spatial(2, 1)", 8, 80},
    {1, "mma.m16n8k16.C", 16, 8},
    {4, "spatial(4, 32).local(1, 7)", 4, 224},
    {4, "spatial(2, 1).spatial(1, 2).local(1, 9).spatial(2, 16).local(2, 1)", 8, 288},
    {6, "spatial(3, 1).replicated(2, 2).local(2, 5).spatial(2, 16).local(1, 2)", 12, 160},
};

static void check_reduce(const reduce_case *row, tvm_dtype type, const char *operation, unsigned axis) {
    static uint8_t a[2304 * 8 + 16] __attribute__((aligned(16))), y[2][2304 * 8] __attribute__((aligned(16)));
    char text[1024], name[TVM_DTYPE_NAME_MAX], what[200];
    tvm_dtype_name(type, name);
    unsigned rows = axis == 0 ? 1 : row->rows, columns = axis == 1 ? 1 : row->columns;
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel k(a: global %s[%u, %u], y: global %s[%u, %u])\n.warps %u\n.grid 1\n"
             "%%x = load-global a[0, 0], %s\n%%r = reduce %s, %%x, %u\nstore-global y[0, 0], %%r\n.end\n",
             name, row->rows, row->columns, name, rows, columns, row->warps, row->layout, operation, axis);
    for (unsigned i = 0; i < row->rows * row->columns; i++) {
        uint64_t code = random_bits() & (type.bits == 64 ? UINT64_MAX : (UINT64_C(1) << type.bits) - 1);
        if (type.kind == TVM_KIND_FLOAT) code = tvm_encode(type, (double)(random_bits() % 20001) / 37 - 270);
        tvm_bits_set(a, (uint64_t)i * type.bits, type.bits, code);
    }
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, 80);
    for (unsigned side = 0; side < 2; side++) {
        tvm_interp_arg args[2] = {{.data = a}, {.data = y[side]}};
        if (side == 0)
            run_interpreter(program, "k", args, one_block);
        else
            run_ptx(module, "k", args, 2, one_block);
    }
    snprintf(what, sizeof what, "%s %s of %s along %u", operation, name, row->layout, axis);
    compare_tensors(what, type, y[1], y[0], (size_t)rows * columns);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}

START_TEST(reduce_combines_in_the_order_stated) {
    const reduce_case *row = &reduce_cases[_i];
    const tvm_dtype types[] = {TVM_F16,  TVM_BF16,  TVM_F32,   TVM_F64,
                               TVM_I(8), TVM_U(16), TVM_I(32), TVM_U(64)};
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++)
        for (unsigned axis = 0; axis < 2; axis++) {
            check_reduce(row, types[t], "sum", axis);
            check_reduce(row, types[t], "max", axis);
        }
}
END_TEST

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
        tvm_module *module = translate(program, 80);
        tvm_interp_arg args[3] = {{.data = a}, {.data = b}, {.data = y}};
        run_ptx(module, "k", args, 3, one_block);
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
        run_ptx(module, "pack", pack, 4, pack_grid);
        run_ptx(module, "matmul", matmul, 7, grid);
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
    tvm_module *module = translate(program, 80);
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
    tvm_module *module = translate(program, 90);
    for (unsigned side = 0; side < 2; side++) {
        tvm_interp_arg args[3] = {{.data = a}, {.data = b}, {.data = y[side]}};
        if (side == 0)
            run_interpreter(program, "k", args, one_block);
        else
            run_ptx(module, "k", args, 3, one_block);
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
    tvm_module *module = translate(program, 90);
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
            run_ptx(module, "pack", pack, 4, pack_grid);
            run_ptx(module, "matmul", matmul, 7, grid);
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
    Suite *suite = suite_create("codegen_values");
    TCase *tests = tcase_create("values");
    tcase_set_timeout(tests, TIMEOUT);
    tcase_add_test(tests, every_conversion_is_exact);
    tcase_add_test(tests, every_operation_is_that_of_the_interpreter);
    tcase_add_test(tests, bits_bounds_and_whole_numbers_are_those_of_the_interpreter);
    tcase_add_loop_test(tests, reduce_combines_in_the_order_stated, 0,
                        sizeof reduce_cases / sizeof *reduce_cases);
    tcase_add_test(tests, mma_multiplies_matrices);
    tcase_add_test(tests, mma_multiplies_batches);
    tcase_add_loop_test(tests, weights_are_the_first_operand, 0,
                        sizeof swapped_cases / sizeof *swapped_cases);
    tcase_add_loop_test(tests, the_matmul_is_that_of_the_interpreter, 0,
                        sizeof weight_types / sizeof *weight_types);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
