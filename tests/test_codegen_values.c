/* What the generated code computes, without a GPU: the PTX is executed by ptx_machine.h and compared with
 * tvm_cast and with the interpreter. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
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

static tvm_ir_program *assemble(const char *text, size_t size) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_assemble(text, size, "test", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    return program;
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
        if (strcmp(module->kernels[k].name, kernel) == 0) threads = module->kernels[k].threads;
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

enum { ELEMENTS = 512, ROUNDS = 3 };

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
    tvm_ir_program *program = assemble(text, size);
    tvm_module *module = translate(program, 80);
    for (size_t i = 0; i < total; i++)
        for (int lowbit = 0; lowbit < 2; lowbit++)
            for (unsigned round = 0;
                 has_cast(types[i], from, lowbit) && round < (from.bits <= 8 ? 1 : ROUNDS); round++)
                check_cast(module, types[i], from, lowbit, round);
    tvm_module_free(module);
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
        ".kernel ops_%s(a: global %s[%d, %d], y: global %s[%d, %d], z: global bool[%d, %d], s: f32, i: i32)\n.warps 1\n.grid 1\n"
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
    tvm_ir_program *program = assemble(text, size);
    for (unsigned arch = 80; arch <= 90; arch += 10) {
        tvm_module *module = translate(program, arch);
        for (unsigned round = 0; round < 20; round++)
            for (size_t i = 0; i < total; i++)
                if (tvm_dtype_is_arithmetic(types[i])) check_operations(program, module, types[i]);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
    free(text);
}
END_TEST
