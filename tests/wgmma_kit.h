/* Products of a few lines, as programs for tests of mma as wgmma (codegen/plan/wgmma.h): the text around
 * them, their operands, what is expected, and what was selected. The PTX is executed by ptx_machine.h, which
 * notices what is read before it is there; inputs are small integers, so that all sums are exact. */
#ifndef TVM_TESTS_WGMMA_KIT_H
#define TVM_TESTS_WGMMA_KIT_H

#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "abi_kit.h"
#include "codegen.h"
#include "interp.h"
#include "launch.h"
#include "matmul_reference.h"
#include "ptx_machine.h"
#include "shipped_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

enum { M_MAX = 256, N_MAX = 312, K_MAX = 512 };

/* y = sum over k of a[m, k] x[n, k], plus what the program makes of c. */
typedef struct shape {
    const char *type;
    unsigned warps, n, k; /* n: columns of a product */
    unsigned products;    /* one below the other in x: n * products rows */
    unsigned fragments;   /* of 16 rows of a that a warp has */
} shape;

static const char prologue[] =
    ".vasm 3\n"
    ".const T = %s, W = %u, N = %u, K = %u, R = %u, F = %u, M = 16 * W * F\n"
    ".layout A = spatial(W, 1).column_local(F, K / 16).mma.m16n8k16.A\n"
    ".layout B = replicated(W, 2).local(K / 16, N / 8).mma.m16n8k16.B\n"
    ".layout C = spatial(W, 1).local(F, N / 8).mma.m16n8k16.C\n"
    ".kernel f(ga: global T[M, K], gx: global T[R, K], gq: global u4[M, K], gs: global f16[M],\n"
    "          gc: global f32[M, R], gy: global f32[M, R], some: i32)\n"
    ".warps W\n.grid 1\n"
    "%s\n"
    ".end\n";

/* x in shared memory. */
#define COPY_X                                                                                               \
    "%sx = alloc-shared T[R, K]\ncopy-async %sx, gx[0, 0], [R, K]\ncommit-group\nwait-group 0\nsync\n"
/* D = w . x + C, of x from row ROW and column COLUMN of k on. */
#define MMA(D, ROW, COLUMN, C) D " = mma %w, %sx[" ROW ", " COLUMN "], " C ", transpose_b\n"
#define LOAD_A                 "%w = load-global ga[0, 0], A\n"
#define LOAD_C                 "%acc = load-global gc[0, 0], C\n"
#define ZERO                   "%acc = alloc-register f32[M, N], C, init 0.0\n"
#define LOAD_X                 "%x2 = load-shared %sx[0, 0], permute(B, [1, 0])\n%x = view %x2, T, B\n"
#define STORE_Y                "store-global gy[0, 0], %d\n"

static inline tvm_ir_program *assemble(const shape *at, const char *body) {
    static char text[1 << 16];
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    int size = snprintf(text, sizeof text, prologue, at->type, at->warps, at->n, at->k, at->n * at->products,
                        at->fragments, body);
    ck_assert_int_lt(size, (int)sizeof text);
    tvm_status status = tvm_assemble_text(text, (size_t)size, "test", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_msg(status == TVM_OK, "not assembled:\n%s", text);
    tvm_diags_free(&diags);
    return program;
}

static inline unsigned rows_of(const shape *at) {
    return 16 * at->warps * at->fragments;
}

/* ---- operands ---- */

typedef struct operands {
    uint16_t a[M_MAX * K_MAX] __attribute__((aligned(16)));
    uint16_t x[N_MAX * K_MAX] __attribute__((aligned(16)));
    uint8_t q[M_MAX * K_MAX] __attribute__((aligned(16)));
    uint16_t s[M_MAX] __attribute__((aligned(16)));
    float c[M_MAX * N_MAX] __attribute__((aligned(16)));
    float y[M_MAX * N_MAX] __attribute__((aligned(16)));
} operands;

static operands o;

static inline void make_operands(const shape *at) {
    uint64_t state = 0x9e3779b97f4a7c15u + at->k + at->n;
    bool bf16 = at->type[0] == 'b';
    ck_assert(rows_of(at) <= M_MAX && at->n * at->products <= N_MAX && at->k <= K_MAX);
    memset(&o, 0, sizeof o);
    for (size_t i = 0; i < M_MAX * K_MAX; i++) {
        o.a[i] = small_half(bf16, &state);
        o.q[i] = (uint8_t)(next_random(&state) >> 40);
    }
    for (size_t i = 0; i < N_MAX * K_MAX; i++) o.x[i] = small_half(bf16, &state);
    for (size_t i = 0; i < M_MAX; i++) o.s[i] = half_code(0, 0, (int)(i % 5) - 2, 0);
    for (size_t i = 0; i < M_MAX * N_MAX; i++) o.c[i] = (float)(next_random(&state) % 17) - 8;
}

static inline void run(const tvm_module *module, int some) {
    ptx_machine m = ptx_load(module->ptx, "f", module->kernels[0].abi.threads);
    void *const arguments[] = {o.a, o.x, o.q, o.s, o.c, o.y};
    for (unsigned i = 0; i < 6; i++) m.params[i] = (uint64_t)(uintptr_t)arguments[i];
    m.params[6] = (uint64_t)some;
    ptx_run(&m);
    ptx_free(&m);
}

/* ---- what is expected ---- */

/* Of y[m, r], with the operands as they are. */
typedef double (*expectation)(const shape *at, unsigned m, unsigned r);

static inline double dot(const shape *at, unsigned m, unsigned r, unsigned from, unsigned to) {
    int bf16 = at->type[0] == 'b';
    double sum = 0;
    for (unsigned k = from; k < to; k++)
        sum += half_value(bf16, o.a[m * at->k + k]) * half_value(bf16, o.x[r * at->k + k]);
    return sum;
}

static inline double product(const shape *at, unsigned m, unsigned r) {
    return dot(at, m, r, 0, at->k);
}

static inline double plus_c(const shape *at, unsigned m, unsigned r) {
    return product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

static inline double twice_plus_c(const shape *at, unsigned m, unsigned r) {
    return 2 * product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

/* Columns of 16: the products begin four rows further down, and the second four further up than it would. */
static inline double shifted_plus_c(const shape *at, unsigned m, unsigned r) {
    return dot(at, m, r < at->n ? r + 4 : r - 4, 0, at->k) + (double)o.c[m * at->n * at->products + r];
}

static inline double five_times_plus_c(const shape *at, unsigned m, unsigned r) {
    return 5 * product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

/* Of three products: the second is added to the third. */
static inline double third_with_second(const shape *at, unsigned m, unsigned r) {
    return r < 2 * at->n ? plus_c(at, m, r) : plus_c(at, m, r - at->n) + product(at, m, r);
}

/* Of two. */
static inline double both_plus_c(const shape *at, unsigned m, unsigned r) {
    return plus_c(at, m, r) + product(at, m, (r + at->n) % (2 * at->n));
}

/* The first 64 rows of y are of the first half of k, the others of the second. */
static inline double product_of_half(const shape *at, unsigned m, unsigned r) {
    return dot(at, m % 64, r, m / 64 * 64, m / 64 * 64 + 64);
}

static inline double scaled(const shape *at, unsigned m, unsigned r, double zero) {
    double sum = 0;
    for (unsigned k = 0; k < at->k; k++)
        sum += (get_bits(o.q, 4 * ((size_t)m * at->k + k), 4) - zero) * half_value(0, o.x[r * at->k + k]);
    return sum * half_value(0, o.s[m]);
}

static inline double scaled_less_8(const shape *at, unsigned m, unsigned r) {
    return scaled(at, m, r, 8);
}

static inline double scaled_less_3(const shape *at, unsigned m, unsigned r) {
    return scaled(at, m, r, 3);
}

static inline void compare(const shape *at, const char *name, const char *target, expectation expected) {
    unsigned rows = at->n * at->products;
    for (unsigned m = 0; m < rows_of(at); m++)
        for (unsigned r = 0; r < rows; r++) {
            double sum = expected(at, m, r);
            ptx_must((double)o.y[m * rows + r] == sum, "%s, %s: y[%u, %u] is %.9g, expected %.9g", name,
                     target, m, r, (double)o.y[m * rows + r], sum);
        }
}

/* ---- what was selected ---- */

static inline unsigned count_selected(const tvm_module *module, const char *candidate) {
    unsigned count = 0;
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        count += strstr(module->kernels[0].selections[i].candidate, candidate) != NULL;
    return count;
}

static inline bool is_said(const tvm_module *module, const char *reason) {
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        if (strstr(module->kernels[0].selections[i].refused, reason)) return true;
    return false;
}

/* Loops, and what runs beside products, are what ptxas may not be able to follow. */
static inline bool is_telling(const char *body) {
    return strstr(body, "for %") || strstr(body, "while") || strstr(body, "cast-lowbit") ||
           strstr(body, "%sa[");
}

/* ---- parts of programs ---- */

/* A product with one more below it. */
#define JOINED                                                                                               \
    ".for P = 0 to R / N\n%acc${P} = load-global gc[0, P * N], C\n.endfor\n"                                 \
    ".for P = 0 to R / N\n" MMA(                                                                             \
        "%acc${P}", "P * N", "0",                                                                            \
        "%acc${P}") ".endfor\n"                                                                              \
                    ".for P = 0 to R / N\nstore-global gy[0, P * N], %acc${P}\n.endfor\n"

/* u4 weights that mma takes before their conversion is finished. NESTED: fragments that follow each other
 * along m, so that the classes are nested; else along k. */
#define WEIGHTS(ZERO_POINT)                                                                                  \
    "%codes = load-global gq[0, 0], A\n%pairs = cast-lowbit %codes, u4, packing pair\n"                      \
    "%half = cast-lowbit %pairs, f16\n%w = sub %half, " ZERO_POINT "\n" SCALE
/* Those of %w, for sums. */
#define SCALE                                                                                                \
    "%s1 = load-global gs[0], squeeze(reduce(C, 1), 1)\n%s2 = view %s1, f16, reduce(C, 1)\n"                 \
    "%scale = cast %s2, f32\n"
#define SCALED_PRODUCTS                                                                                      \
    ".for P = 0 to R / N\n%zero${P} = alloc-register f32[M, N], C, init 0.0\n.endfor\n"                      \
    ".for P = 0 to R / N\n%dot${P} = mma %w, %sx[P * N, 0], %zero${P}, transpose_b, reassociate\n.endfor\n"  \
    ".for P = 0 to R / N\n%out = mul %dot${P}, %scale\nstore-global gy[0, P * N], %out\n.endfor\n"

/* Product R of w, with columns from R * N on, to %d<D>, from what is named C. */
#define LOAD_CS          ".for P = 0 to R / N\n%c${P} = load-global gc[0, P * N], C\n.endfor\n"
#define STORE_DS         ".for P = 0 to R / N\nstore-global gy[0, P * N], %d${P}\n.endfor\n"
#define PRODUCT(R, D, C) MMA("%d" D, R " * N", "0", "%" C)
#define MORE             MMA("%acc", "0", "0", "%acc")

/* The first four warps take the first half of k, the others the second. */
#define HALVES(SX, SPLIT)                                                                                    \
    ".layout AG = spatial(2, 4, 1).local(1, 1, 4).mma.m16n8k16.A\n"                                          \
    ".layout BG = spatial(2, 1, 1).replicated(4, 3).local(1, 4, N / 8).mma.m16n8k16.B\n"                     \
    ".layout CG = spatial(2, 4, 1).local(1, 1, N / 8).mma.m16n8k16.C\n"                                      \
    "%wide = load-global ga[0, 0], reshape(permute(AG, [1, 0, 2]), [64, 128])\n%w = view %wide, T, AG\n"     \
    "%none = alloc-register f32[2, 64, N], CG, init 0.0\n"                                                   \
    "%sums = mma %w, " SX ", %none, transpose_b" SPLIT "\n"                                                  \
    "%d = view %sums, f32, reshape(CG, [128, N])\n" STORE_Y

/* Of two products: a softmax of the first one's sums, while the second one is on its way. */
#define SOFTMAX                                                                                              \
    PRODUCT("1", "1s", "c1")                                                                                 \
    PRODUCT("0", "0", "c0")                                                                                  \
    "%none = sub %d1s, %d1s\n%e = exp %none\n%most = reduce max, %e, 1\n%rest = sub %e, %most\n"             \
    "%d1 = add %d1s, %rest\n"
/* Turns that need nothing of the one before but its sums, which wgmma adds to in order. */
#define TURNS                                                                                                \
    "%t = alloc-register f32[M, N], C, init 0.0\n"                                                           \
    "for %i = 0 to some + 2\n%e = exp %t\n%one = min %e, 1.0\n%t = sub %one, 1.0\n" MORE "end\n"             \
    "%d = add %acc, %t\n"

/* a in shared memory, and one from there. */
#define COPY_A                                                                                               \
    "%sa = alloc-shared T[M, K]\ncopy-async %sa, ga[0, 0], [M, K]\ncommit-group\nwait-group 0\nsync\n"
#define SHARED_MMA(D, C) D " = mma %sa[0, 0], %sx[0, 0], " C ", transpose_b, k K\n"
/* Of F fragments a warp: those of a warpgroup are 64 rows one after the other. */
#define ROWS_OF_64 ".layout CF = spatial(W / 4, 1).local(F, 1).spatial(4, 1).local(1, N / 8).mma.m16n8k16.C\n"
#define FRAGMENTS                                                                                            \
    ROWS_OF_64 COPY_X COPY_A                                                                                 \
        "%acc = load-global gc[0, 0], CF\n" SHARED_MMA("%acc", "%acc") "store-global gy[0, 0], %acc\n"
/* Operands that are stored transposed, in tensors that are made so. */
#define TRANSPOSED_X(X)                                                                                      \
    LOAD_X "%st = " X "\nstore-shared %st[0, 0], %x\nsync\n" LOAD_A LOAD_C                                   \
           "%d = mma %w, %st[0, 0], %acc\n" STORE_Y
#define TRANSPOSED_A                                                                                         \
    "%wt = load-global ga[0, 0], A\n%turned = view %wt, T, permute(A, [1, 0])\n"                             \
    "%sa = alloc-shared T[K, M]\nstore-shared %sa[0, 0], %turned\nsync\n"                                    \
    "%acc = load-global gc[0, 0], C\n%d = mma %sa[0, 0], %sx[0, 0], %acc, transpose_a, transpose_b, k K\n" STORE_Y
#endif
