/* What the generated code computes, without a GPU: the PTX is executed by ptx_machine.h and compared with
 * tvm_cast and with the interpreter. */
#include "check_kit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "codegen.h"
#include "compare_kit.h"
#include "interp.h"
#include "random_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

static const char *const targets[] = {"sm_80", "sm_90a"};

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
    run_translated(module, kernel, args, 2, one_block);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        uint64_t code = tvm_bits_get(input, (uint64_t)i * from.bits, from.bits);
        uint64_t found = tvm_bits_get(output, (uint64_t)i * to.bits, to.bits),
                 want = tvm_cast(to, from, code, lowbit);
        bool is_right = to.bits < 32 ? found == want : same_value(to, found, want);
        ck_assert_msg(is_right, "%s %s to %s: code %llx gives %llx, expected %llx", kernel, source, name,
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
    for (unsigned t = 0; t < (other_code ? 2 : 1); t++) {
        tvm_module *module = translate(program, targets[t]);
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
            run_translated(module, kernel, args, 5, one_block);
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
    for (unsigned t = 0; t < 2; t++) {
        tvm_module *module = translate(program, targets[t]);
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
    run_translated(module, kernel, args, 4, one_block);
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
    tvm_module *module = translate(program, "sm_80");
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
    tvm_module *module = translate(program, "sm_80");
    for (unsigned side = 0; side < 2; side++) {
        tvm_interp_arg args[2] = {{.data = a}, {.data = y[side]}};
        if (side == 0)
            run_interpreter(program, "k", args, one_block);
        else
            run_translated(module, "k", args, 2, one_block);
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

int main(void) {
    Suite *suite = suite_create("codegen_values");
    TCase *tests = tcase_create("values");
    tcase_add_test(tests, every_conversion_is_exact);
    tcase_add_test(tests, every_operation_is_that_of_the_interpreter);
    tcase_add_test(tests, bits_bounds_and_whole_numbers_are_those_of_the_interpreter);
    tcase_add_loop_test(tests, reduce_combines_in_the_order_stated, 0,
                        sizeof reduce_cases / sizeof *reduce_cases);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
