/* Weights that mma takes before their conversion is finished (codegen/plan/scaled.h): where they are
 * chosen, where they must not be, and that the sums are the same, exactly. The PTX is executed by
 * ptx_machine.h. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "matmul_reference.h"
#include "ptx_machine.h"
#include "suite_kit.h"

enum { N_MAX = 128, K_MAX = 64, M_MAX = 32 };

/* One warp's product c[n, m] = ((w - zero) . x + plus) * s. NT, KT and MT count fragments along n, k and m.
 */
typedef struct shape {
    const char *tiles; /* how w's fragments follow each other in a thread's registers */
    unsigned nt, kt, mt;
} shape;

static const shape shapes[] = {
    {"column_local(4, 2)", 4, 2, 1}, /* all fragments of a step of k first: more classes */
    {"local(4, 2)", 4, 2, 1},
    {"column_local(2, 4)", 2, 4, 2},
    {"column_local(1, 4)", 1, 4, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* What follows the conversion to %half. */
typedef struct body {
    const char *scale_type, *text;
    double zero, plus;
} body;

#define SUMS_AS_WRITTEN "%zero = alloc-register f32[N, M], C, init 0.0\n%dot = mma %w, %x, %zero"
#define SUMS            SUMS_AS_WRITTEN ", reassociate\n"

static const char prologue[] = ".vasm 2\n"
                               ".const T = %s, N = %u, K = %u, M = %u, S = %s, ZERO = %g\n"
                               ".layout W = %s.mma.m16n8k16.A\n"
                               ".layout X = local(%u, %u).mma.m16n8k16.B\n"
                               ".layout C = local(%u, %u).mma.m16n8k16.C\n"
                               ".kernel product(gw: global T[N, K], gx: global f16[K, M], gs: global S[N],\n"
                               "                gc: global f32[N, M], gd: global f16[N, K])\n"
                               ".warps 1\n.grid 1\n"
                               "%%codes = load-global gw[0, 0], W\n"
                               "%%pairs = cast-lowbit %%codes, T, packing pair\n"
                               "%%x = load-global gx[0, 0], X\n"
                               "%%s1 = load-global gs[0], squeeze(reduce(C, 1), 1)\n"
                               "%%s2 = view %%s1, S, reduce(C, 1)\n"
                               "%s\n"
                               "store-global gc[0, 0], %%out\n"
                               ".end\n";

static tvm_ir_program *assemble(const char *type, const shape *at, const body *b) {
    char text[4096];
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    int size = snprintf(text, sizeof text, prologue, type, at->nt * 16, at->kt * 16, at->mt * 8,
                        b->scale_type, b->zero, at->tiles, at->kt, at->mt, at->nt, at->mt, b->text);
    ck_assert_int_lt(size, (int)sizeof text);
    tvm_status status = tvm_assemble_text(text, (size_t)size, "test", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    return program;
}

static tvm_module *translate(const tvm_ir_program *program) {
    tvm_diags diags = {0};
    tvm_module *module = NULL;
    tvm_status status = tvm_translate(program, (tvm_target){90, 'a'}, &module, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_diags_free(&diags);
    return module;
}

/* Is the zero taken off by way of a row of ones? */
static bool has_ones(const tvm_module *module) {
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        if (strstr(module->kernels[0].selections[i].candidate, "a row of ones")) return true;
    return false;
}

static bool is_scaled(const tvm_module *module) {
    unsigned scaled = 0;
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        scaled += strstr(module->kernels[0].selections[i].candidate, ", scaled") != NULL;
    ck_assert_uint_le(scaled, 1);
    return scaled;
}

/* ---- operands: every partial sum is exact in f32 ---- */

typedef struct operands {
    uint8_t w[N_MAX * K_MAX + 16] __attribute__((aligned(16)));
    uint16_t x[K_MAX * M_MAX] __attribute__((aligned(16)));
    uint32_t s[N_MAX] __attribute__((aligned(16))); /* of two or four bytes each */
    float c[N_MAX * M_MAX] __attribute__((aligned(16)));
    uint16_t d[N_MAX * K_MAX] __attribute__((aligned(16)));
} operands;

static double scale_of(unsigned row) {
    return matmul_pow2((int)(row % 5) - 2);
}

static void make_scales(operands *o, const char *type, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        uint16_t half = half_exact(strcmp(type, "bf16") == 0, scale_of(i));
        float whole = (float)scale_of(i);
        if (strcmp(type, "f32") == 0)
            memcpy((char *)o->s + 4 * (size_t)i, &whole, 4);
        else
            memcpy((char *)o->s + 2 * (size_t)i, &half, 2);
    }
}

/* Activations are -2, -1, 0, 1 or 2, weights any. */
static void make_operands(operands *o, const shape *at, const char *scale_type, uint64_t seed) {
    uint64_t state = 0x9e3779b97f4a7c15u + seed;
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < sizeof o->w; i++) o->w[i] = (uint8_t)(next_random(&state) >> 32);
    for (unsigned i = 0; i < at->kt * 16 * at->mt * 8; i++) {
        unsigned r = (unsigned)(next_random(&state) >> 32);
        o->x[i] = r % 5 == 0 ? 0 : half_code(0, r >> 8 & 1, (int)(r >> 9 & 1), 0);
    }
    make_scales(o, scale_type, at->nt * 16);
}

static void run(const tvm_module *module, operands *o) {
    ptx_machine machine = ptx_load(module->ptx, "product", module->kernels[0].abi.threads);
    void *const arguments[] = {o->w, o->x, o->s, o->c, o->d};
    for (unsigned i = 0; i < 5; i++) machine.params[i] = (uint64_t)(uintptr_t)arguments[i];
    for (unsigned i = 0; i < 3; i++) machine.grid[i] = 1;
    ptx_run(&machine);
    ptx_free(&machine);
}

static void compare(const operands *o, const char *name, const shape *at, const body *b) {
    weight_type type;
    unsigned n = at->nt * 16, k = at->kt * 16, m = at->mt * 8;
    ck_assert(weight_type_parse(name, &type));
    for (unsigned i = 0; i < n * m; i++) {
        double sum = b->plus;
        for (unsigned j = 0; j < k; j++) {
            unsigned code = get_bits(o->w, ((size_t)(i / m) * k + j) * (size_t)type.bits, type.bits);
            sum += (weight_value(type, code) - b->zero) * half_value(0, o->x[j * m + i % m]);
        }
        sum *= scale_of(i / m);
        ck_assert_msg((double)o->c[i] == sum, "%s, %s: c[%u, %u] is %.9g, expected %.9g", name, at->tiles,
                      i / m, i % m, (double)o->c[i], sum);
    }
}

/* How the weights are left: as f16 knows them, or to be scaled, with their zero, if they have one, taken off
 * them or off the sums. */
typedef enum result { FINISHED, SCALED, SCALED_WITH_ONES } result;

/* The sums are right in any case. */
static result convert_and_multiply(const char *type, const shape *at, const body *b) {
    static operands o;
    tvm_ir_program *program = assemble(type, at, b);
    tvm_module *module = translate(program);
    result found = !is_scaled(module) ? FINISHED : has_ones(module) ? SCALED_WITH_ONES : SCALED;
    ck_assert(found != FINISHED || !has_ones(module));
    make_operands(&o, at, b->scale_type, at->nt + 8 * at->mt);
    run(module, &o);
    compare(&o, type, at, b);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return found;
}

static bool check_product(const char *type, const shape *at, const body *b) {
    return convert_and_multiply(type, at, b) != FINISHED;
}

/* ---- where it is chosen ---- */

#define MINUS_ZERO "%half = cast-lowbit %pairs, f16\n%w = sub %half, ZERO\n"
#define AS_IT_IS   "%w = cast-lowbit %pairs, f16\n"
#define PRODUCT    SUMS "%scale = cast %s2, f32\n%out = mul %dot, %scale"

static const char *const unsigned_types[] = {"u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"};
static const char *const signed_types[] = {"i2", "i3", "i4", "i5", "i6", "i7", "i8"};

START_TEST(unsigned_weights_and_their_zero) {
    const char *type = unsigned_types[_i];
    const double zeros[] = {ldexp(1, _i), 0, 1};
    for (unsigned s = 0; s < SHAPES; s++)
        for (unsigned z = 0; z < 3; z++) {
            const body b = {"f16", z == 1 ? AS_IT_IS PRODUCT : MINUS_ZERO PRODUCT, zeros[z], 0};
            ck_assert_msg(check_product(type, &shapes[s], &b), "%s, %s, minus %g", type, shapes[s].tiles,
                          zeros[z]);
        }
}
END_TEST

START_TEST(signed_weights) {
    const body b = {"f16", AS_IT_IS PRODUCT, 0, 0};
    for (unsigned s = 0; s < SHAPES; s++)
        ck_assert_msg(check_product(signed_types[_i], &shapes[s], &b), "%s, %s", signed_types[_i],
                      shapes[s].tiles);
}
END_TEST

/* Those with 4 bits of exponent need no multiplication: they are as f8_e4m3, for which there is a converter.
 */
static const char *const float_types[] = {"f5_e1m3", "f5_e2m2", "f5_e3m1", "f6_e1m4", "f6_e2m3", "f6_e3m2",
                                          "f7_e1m5", "f7_e2m4", "f7_e3m3", "f8_e1m6", "f8_e2m5", "f8_e3m4"};
enum { FLOAT_TYPES = sizeof float_types / sizeof *float_types };

START_TEST(float_weights) {
    const body b = {"f16", AS_IT_IS PRODUCT, 0, 0};
    for (unsigned s = 0; s < SHAPES; s++)
        ck_assert_msg(check_product(float_types[_i], &shapes[s], &b), "%s, %s", float_types[_i],
                      shapes[s].tiles);
}
END_TEST

/* Through views of the sums, and by fma, which may have the scale first. */
START_TEST(sums_may_be_viewed_and_added) {
    static const char *const readers[] = {
        AS_IT_IS SUMS
        "%scale = cast %s2, f32\n%v = view %dot, f32, C\n%vv = view %v, f32, C\n%out = mul %scale, %vv",
        AS_IT_IS SUMS "%scale = cast %s2, f32\n%none = alloc-register f32[N, M], C, init 0.0\n"
                      "%one = fma %dot, %scale, %none\n%out = fma %scale, %dot, %none",
    };
    for (unsigned i = 0; i < sizeof readers / sizeof *readers; i++)
        for (unsigned t = 0; t < 8; t += 1)
            ck_assert_msg(check_product(unsigned_types[t], &shapes[0], &(body){"f16", readers[i], 0, 0}),
                          "%u, %s", i, unsigned_types[t]);
}
END_TEST

/* ---- where it must not be ---- */

static const body refused[] = {
    /* the sums are read by something else, before or after the scale */
    {"f16",
     AS_IT_IS SUMS
     "%scale = cast %s2, f32\n%twice = add %dot, %dot\n%half2 = mul %twice, 0.5\n%out = mul %half2, %scale",
     0, 0},
    {"f16", AS_IT_IS SUMS "%scale = cast %s2, f32\nstore-global gc[0, 0], %dot\n%out = mul %dot, %scale", 0,
     0},
    {"f16",
     AS_IT_IS SUMS
     "%scale = cast %s2, f32\n%v = view %dot, f32, C\nstore-global gc[0, 0], %v\n%out = mul %v, %scale",
     0, 0},
    {"f16", AS_IT_IS SUMS "%scale = cast %s2, f32\n%more = fma %scale, 0.0, %dot\n%out = mul %more, %scale",
     0, 0},
    /* c is not zero */
    {"f16",
     AS_IT_IS "%one = alloc-register f32[N, M], C, init 3.0\n%dot = mma %w, %x, %one\n"
              "%scale = cast %s2, f32\n%out = mul %dot, %scale",
     0, 3},
    {"f16",
     MINUS_ZERO "%dot = alloc-register f32[N, M], C, init 0.0\n%dot = mma %w, %x, %dot\n"
                "%scale = cast %s2, f32\n%out = mul %dot, %scale",
     1, 0},
    /* the sums' register is used again */
    {"f16",
     AS_IT_IS SUMS
     "%scale = cast %s2, f32\n%first = mul %dot, %scale\n%dot = alloc-register f32[N, M], C, init 1.0\n"
     "%out = fma %dot, %scale, %first",
     0, 1},
    /* a scale that reaches as far as f32 itself */
    {"bf16", AS_IT_IS PRODUCT, 0, 0},
    {"f32", AS_IT_IS SUMS "%out = mul %dot, %s2", 0, 0},
    /* the weights are read elsewhere, too */
    {"f16", AS_IT_IS PRODUCT "\nstore-global gd[0, 0], %w", 0, 0},
    {"f16", MINUS_ZERO PRODUCT "\nstore-global gd[0, 0], %w", 2, 0},
    {"f16",
     AS_IT_IS SUMS "%again = mma %w, %x, %dot\n%less = mma %w, %x, %zero\n%one = sub %again, %less\n"
                   "%scale = cast %s2, f32\n%out = mul %one, %scale",
     0, 0},
};
enum { REFUSED = sizeof refused / sizeof *refused };

START_TEST(other_readers_get_what_they_expect) {
    static const char *const types[] = {"u1", "u4", "u8", "u3", "f6_e3m2"};
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) {
        if (types[t][0] == 'f' && refused[_i].zero != 0) continue;
        ck_assert_msg(!check_product(types[t], &shapes[0], &refused[_i]), "%s is scaled", types[t]);
    }
}
END_TEST

/* Weights that the program itself leaves short of the power, 2^12: no more is taken off. */
START_TEST(the_program_may_take_the_power) {
    static const char text[] = "%half = cast-lowbit %pairs, f16\n%w = mul %half, 0.000244140625\n" SUMS
                               "%scale = cast %s2, f32\n%short = mul %dot, %scale\n%out = mul %short, 4096.0";
    ck_assert(!check_product("f6_e3m2", &shapes[_i], &(body){"f16", text, 0, 0}));
}
END_TEST

/* The products of one a and two b, one sum after the other: both at once, where nothing else reads the first.
 */
START_TEST(products_that_are_added_go_through_k_together) {
    static const struct {
        const char *text;
        bool together;
    } cases[] = {
        {"%twice = mma %w, %y, %dot\n%out = mul %twice, %half_scale", true},
        {"%twice = mma %w, %y, %dot\n%more = add %twice, %dot\n%less = sub %more, %dot\n"
         "%out = mul %less, %half_scale",
         false},
        {"%dot = mma %w, %y, %dot\n%out = mul %dot, %half_scale", true},
        {"%other = mul %scale, 2.0\n%twice = mma %w, %y, %dot\n%out = mul %twice, %half_scale", true},
        {"%v = cast-lowbit %pairs, f16\n%twice = mma %v, %y, %dot\n%out = mul %twice, %half_scale", false},
        {"%u = neg %y\n%y = neg %u\n%twice = mma %w, %y, %dot\n%out = mul %twice, %half_scale", false},
    };
    char text[1024];
    snprintf(text, sizeof text,
             "%%y = load-global gx[0, 0], X\n%%scale = cast %%s2, f32\n%%half_scale = mul %%scale, 0.5\n"
             "%%w = cast-lowbit %%pairs, f16\n%%zero = alloc-register f32[N, M], C, init 0.0\n"
             "%%dot = mma %%w, %%x, %%zero\n%s",
             cases[_i].text);
    static const char *const types[] = {"u4", "i5", "f6_e3m2"};
    for (unsigned s = 0; s < SHAPES; s++)
        for (unsigned t = 0; t < 3; t++) {
            const body b = {"f16", text, 0, 0};
            static operands o;
            tvm_ir_program *program = assemble(types[t], &shapes[s], &b);
            tvm_module *module = translate(program);
            unsigned together = 0;
            for (size_t i = 0; i < module->kernels[0].selection_count; i++)
                together += strcmp(module->kernels[0].selections[i].candidate, "in the mma before") == 0;
            ck_assert_uint_eq(together, cases[_i].together);
            make_operands(&o, &shapes[s], b.scale_type, 7);
            run(module, &o);
            compare(&o, types[t], &shapes[s], &b);
            tvm_module_free(module);
            tvm_ir_program_free(program);
        }
}
END_TEST

/* Activations of f16 as the sum of two bf16, which mma with an identity matrix makes of them (matmul_lowbit):
 * 11 bits of mantissa are there. */
START_TEST(activations_are_split_by_mma) {
    static const char text[] =
        "%eye = alloc-shared f16[16, 16], row_major\n%minus_eye = alloc-shared bf16[16, 16], row_major\n"
        "%none = alloc-register f16[16, 16], local(8, 1).spatial(2, 16), init 0.0\n"
        "%minus_none = alloc-register bf16[16, 16], local(8, 1).spatial(2, 16), init 0.0\n"
        "store-shared %eye, %none\nstore-shared %minus_eye, %minus_none\nsync\n"
        "%one = alloc-register f16[1, 1], replicated(32, 2), init 1.0\n"
        "%minus_one = alloc-register bf16[1, 1], replicated(32, 2), init -1.0\n"
        "for %i = 0 to 16\nstore-shared %eye[%i, %i], %one\nstore-shared %minus_eye[%i, %i], %minus_one\nend\n"
        "sync\n%unit = load-shared %eye, local(1, 2).mma.m16n8k16.B\n"
        "%minus = load-shared %minus_eye, local(1, 2).mma.m16n8k16.B\n"
        "%xa = view %x, f16, local(K / 32 * M / 8, 1).mma.m16n8k16.A\n"
        "%x_zero = alloc-register f32[K / 2 * M / 8, 16], local(K / 32 * M / 8, 2).mma.m16n8k16.C, init 0.0\n"
        "%wide = mma %xa, %unit, %x_zero\n%high_c = cast %wide, bf16\n"
        "%high_a = view %high_c, bf16, local(K / 32 * M / 8, 1).mma.m16n8k16.A\n"
        "%rest = mma %high_a, %minus, %wide\n%low_c = cast %rest, bf16\n"
        "%high = view %high_c, bf16, X\n%low = view %low_c, bf16, X\n%w = cast-lowbit %pairs, bf16\n"
        "%zero = alloc-register f32[N, M], C, init 0.0\n%low_dot = mma %w, %low, %zero\n"
        "%dot = mma %w, %high, %low_dot\n%scale = cast %s2, f32\n%out = mul %dot, %scale";
    static const char *const types[] = {"u4", "f6_e3m2", "f4_e2m1"};
    const body b = {"f16", text, 0, 0};
    for (unsigned t = 0; t < 3; t++) {
        static operands o;
        tvm_ir_program *program = assemble(types[t], &shapes[_i], &b);
        tvm_module *module = translate(program);
        make_operands(&o, &shapes[_i], b.scale_type, 5);
        for (unsigned i = 0; i < K_MAX * M_MAX; i++) o.x[i] = half_exact(0, (double)(i * 1237 % 4095) - 2047);
        run(module, &o);
        compare(&o, types[t], &shapes[_i], &b);
        tvm_module_free(module);
        tvm_ir_program_free(program);
    }
}
END_TEST

/* The zero costs a row of ones for each fragment of activations, or an addition for each word of weights;
 * nothing where it is the greatest code, so that the code's complement is minus the value, unless classes are
 * nested: of 4 bits, and of 2 where a thread's fragments follow each other along n. Activations of 8 and of
 * 16 rows. */
typedef struct zero_shape {
    shape at;
    bool ones, along_n;
} zero_shape;
static const zero_shape zero_shapes[] = {
    {{"column_local(4, 2)", 4, 2, 1}, true, true},   {{"local(4, 2)", 4, 2, 1}, true, false},
    {{"column_local(8, 2)", 8, 2, 2}, true, true},   {{"column_local(2, 4)", 2, 4, 1}, false, true},
    {{"column_local(1, 4)", 1, 4, 1}, false, false}, {{"column_local(4, 2)", 4, 2, 2}, false, true},
    {{"local(4, 2)", 4, 2, 2}, false, false},        {{"column_local(2, 2)", 2, 2, 4}, false, true},
};
enum { ZERO_SHAPES = sizeof zero_shapes / sizeof *zero_shapes };

/* What is taken off is what the code is too large by: of signed integers half their range more. In the
 * register it is a constant that the place of the code holds. */
static result with_zero(const char *type, double zero, const zero_shape *at) {
    double taken = zero + (type[0] == 'i' ? ldexp(1, type[1] - '1') : 0), range = ldexp(1, type[1] - '0');
    bool nested = type[1] == '4' || (type[1] == '2' && at->along_n);
    if (zero != floor(zero)) return FINISHED;
    if (taken == 0 || (taken == range - 1 && !nested)) return SCALED;
    if (at->ones) return SCALED_WITH_ONES;
    return fabs(taken) <= range ? SCALED : FINISHED;
}

static void check_zeros(const char *type) {
    double range = ldexp(1, type[1] - '0');
    const double zeros[] = {range / 2, range, -range, 1, 0, -range / 2, 0.5, range + 1, range - 1};
    for (unsigned s = 0; s < ZERO_SHAPES; s++)
        for (unsigned z = 0; z < sizeof zeros / sizeof *zeros; z++) {
            const body b = {"f16", zeros[z] == 0 ? AS_IT_IS PRODUCT : MINUS_ZERO PRODUCT, zeros[z], 0};
            result found = convert_and_multiply(type, &zero_shapes[s].at, &b),
                   expected = with_zero(type, zeros[z], &zero_shapes[s]);
            ck_assert_msg(found == expected, "%s, %s for %u, minus %g: %d instead of %d", type,
                          zero_shapes[s].at.tiles, zero_shapes[s].at.mt, zeros[z], found, expected);
        }
}

START_TEST(zeros_are_taken_off_where_it_costs_less) {
    if (_i < 8)
        check_zeros(unsigned_types[_i]);
    else
        check_zeros(signed_types[_i - 8]);
}
END_TEST

/* Where the program does not say `reassociate`, the zero is taken off in the register, or not at all. */
START_TEST(sums_are_as_written_without_the_word) {
    const shape wide = {"column_local(4, 2)", 4, 2, 1};
    double range = ldexp(1, unsigned_types[_i][1] - '0');
    const body b = {"f16", MINUS_ZERO SUMS_AS_WRITTEN "\n%scale = cast %s2, f32\n%out = mul %dot, %scale",
                    range / 2, 0};
    ck_assert_int_eq(convert_and_multiply(unsigned_types[_i], &wide, &b), SCALED);
}
END_TEST

START_TEST(floats_have_no_zero) {
    const shape wide = {"column_local(2, 2)", 2, 2, 4};
    ck_assert_int_eq(convert_and_multiply("f6_e3m2", &wide, &(body){"f16", AS_IT_IS PRODUCT, 0, 0}), SCALED);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_scaled");
    TCase *tests = tcase_create("scaled");
    tcase_add_loop_test(tests, unsigned_weights_and_their_zero, 0, 8);
    tcase_add_loop_test(tests, signed_weights, 0, 7);
    tcase_add_loop_test(tests, float_weights, 0, FLOAT_TYPES);
    tcase_add_test(tests, sums_may_be_viewed_and_added);
    tcase_add_loop_test(tests, other_readers_get_what_they_expect, 0, REFUSED);
    tcase_add_loop_test(tests, the_program_may_take_the_power, 0, SHAPES);
    tcase_add_loop_test(tests, products_that_are_added_go_through_k_together, 0, 6);
    tcase_add_loop_test(tests, activations_are_split_by_mma, 0, SHAPES);
    tcase_add_loop_test(tests, zeros_are_taken_off_where_it_costs_less, 0, 15);
    tcase_add_loop_test(tests, sums_are_as_written_without_the_word, 0, 8);
    tcase_add_test(tests, floats_have_no_zero);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
