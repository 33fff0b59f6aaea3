/* mma as wgmma (codegen/select/wgmma.h): where it is taken and where not, and that the products are right in
 * either case. The PTX is executed by ptx_machine.h, which notices what is read before it is there; inputs
 * are small integers, so that all sums are exact. */
#include <check.h>
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

enum { TIMEOUT = 600, M_MAX = 256, N_MAX = 312, K_MAX = 512 };

/* y = sum over k of a[m, k] x[n, k], plus what the program makes of c. */
typedef struct shape {
    const char *type;
    unsigned warps, n, k; /* n: columns of a product */
    unsigned products;    /* one below the other in x: n * products rows */
    unsigned fragments;   /* of 16 rows of a that a warp has */
} shape;

static const char prologue[] =
    ".vasm 2\n"
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

static tvm_ir_program *assemble(const shape *at, const char *body) {
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

static unsigned rows_of(const shape *at) {
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

static void make_operands(const shape *at) {
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

static void run(const tvm_module *module, int some) {
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

static double dot(const shape *at, unsigned m, unsigned r, unsigned from, unsigned to) {
    int bf16 = at->type[0] == 'b';
    double sum = 0;
    for (unsigned k = from; k < to; k++)
        sum += half_value(bf16, o.a[m * at->k + k]) * half_value(bf16, o.x[r * at->k + k]);
    return sum;
}

static double product(const shape *at, unsigned m, unsigned r) {
    return dot(at, m, r, 0, at->k);
}

static double plus_c(const shape *at, unsigned m, unsigned r) {
    return product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

static double twice_plus_c(const shape *at, unsigned m, unsigned r) {
    return 2 * product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

/* Columns of 16: the products begin four rows further down, and the second four further up than it would. */
static double shifted_plus_c(const shape *at, unsigned m, unsigned r) {
    return dot(at, m, r < at->n ? r + 4 : r - 4, 0, at->k) + (double)o.c[m * at->n * at->products + r];
}

static double five_times_plus_c(const shape *at, unsigned m, unsigned r) {
    return 5 * product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

/* Of three products: the second is added to the third. */
static double third_with_second(const shape *at, unsigned m, unsigned r) {
    return r < 2 * at->n ? plus_c(at, m, r) : plus_c(at, m, r - at->n) + product(at, m, r);
}

/* Of two. */
static double both_plus_c(const shape *at, unsigned m, unsigned r) {
    return plus_c(at, m, r) + product(at, m, (r + at->n) % (2 * at->n));
}

/* The first 64 rows of y are of the first half of k, the others of the second. */
static double product_of_half(const shape *at, unsigned m, unsigned r) {
    return dot(at, m % 64, r, m / 64 * 64, m / 64 * 64 + 64);
}

static double scaled(const shape *at, unsigned m, unsigned r, double zero) {
    double sum = 0;
    for (unsigned k = 0; k < at->k; k++)
        sum += (get_bits(o.q, 4 * ((size_t)m * at->k + k), 4) - zero) * half_value(0, o.x[r * at->k + k]);
    return sum * half_value(0, o.s[m]);
}

static double scaled_less_8(const shape *at, unsigned m, unsigned r) {
    return scaled(at, m, r, 8);
}

static double scaled_less_3(const shape *at, unsigned m, unsigned r) {
    return scaled(at, m, r, 3);
}

static void compare(const shape *at, const char *name, const char *target, expectation expected) {
    unsigned rows = at->n * at->products;
    for (unsigned m = 0; m < rows_of(at); m++)
        for (unsigned r = 0; r < rows; r++) {
            double sum = expected(at, m, r);
            ptx_must((double)o.y[m * rows + r] == sum, "%s, %s: y[%u, %u] is %.9g, expected %.9g", name,
                     target, m, r, (double)o.y[m * rows + r], sum);
        }
}

/* ---- what was selected ---- */

static unsigned count_selected(const tvm_module *module, const char *candidate) {
    unsigned count = 0;
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        count += strstr(module->kernels[0].selections[i].candidate, candidate) != NULL;
    return count;
}

static bool is_said(const tvm_module *module, const char *reason) {
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        if (strstr(module->kernels[0].selections[i].refused, reason)) return true;
    return false;
}

/* Loops, and what runs beside products, are what ptxas may not be able to follow. */
static bool is_telling(const char *body) {
    return strstr(body, "for %") || strstr(body, "while") || strstr(body, "cast-lowbit") ||
           strstr(body, "%sa[");
}

/* ptxas neither serializes them nor spills. */
static void check_compiled(const char *name, tvm_module *module) {
    char *path = NULL;
    bool found = tvm_ptxas_find(&path, NULL) == TVM_OK;
    if (found) {
        ck_assert_int_eq(tvm_ptxas(module, path, NULL), TVM_OK);
        const tvm_kernel_code *code = &module->kernels[0];
        ck_assert_msg(code->loss[0] == '\0', "%s: %s", name, code->loss);
        ck_assert_msg(code->spill_stores == 0, "%s: %d bytes of spills", name, code->spill_stores);
    }
    free(path);
}

typedef struct row {
    const char *name;
    shape at;
    const char *body;
    expectation expected;
    const char *wgmma; /* the candidate */
    unsigned count;    /* of it, and no mma.sync */
} row;

static void check_row(const row *r) {
    static const char *const targets[] = {"sm_90a", "sm_80", "sm_90", "sm_100a"};
    tvm_ir_program *program = assemble(&r->at, r->body);
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        tvm_target parsed;
        if (tvm_target_parse(targets[t], &parsed, NULL) != TVM_OK) continue;
        tvm_module *module = translate(program, targets[t]);
        unsigned found = count_selected(module, t == 0 ? r->wgmma : "wgmma");
        ck_assert_msg(found == (t == 0 ? r->count : 0), "%s, %s: %u %s", r->name, targets[t], found,
                      r->wgmma);
        ck_assert_msg((count_selected(module, "mma.sync") == 0) == (t == 0), "%s, %s", r->name, targets[t]);
        ck_assert((strstr(module->ptx, "fence.proxy.async") != NULL) == (t == 0));
        ck_assert_uint_eq(count_selected(module, ", scaled"), strncmp(r->name, "u4", 2) == 0);
        make_operands(&r->at);
        run(module, 3);
        compare(&r->at, r->name, targets[t], r->expected);
        if (t == 0 && is_telling(r->body)) check_compiled(r->name, module);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}

/* ---- where it is taken ---- */

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
/* A ring of both operands, whose products run beside the copies of the next turn's. */
#define RING                                                                                                 \
    "%sa = alloc-shared T[3, M, 64]\n%sx = alloc-shared T[3, R, 64]\n"                                       \
    ".for J = 0 to 2\ncopy-async %sa[J], ga[0, J * 64], [M, 64]\n"                                           \
    "copy-async %sx[J], gx[0, J * 64], [R, 64]\ncommit-group\n.endfor\n" LOAD_C                              \
    "for %i = 0 to some + 1\nwait-group 1\nsync\n"                                                           \
    "if %i + 2 < K / 64\ncopy-async %sa[(%i + 2) % 3], ga[0, (%i + 2) * 64], [M, 64]\n"                      \
    "copy-async %sx[(%i + 2) % 3], gx[0, (%i + 2) * 64], [R, 64]\nend\ncommit-group\n"                       \
    "%acc = mma %sa[%i % 3, 0, 0], %sx[%i % 3, 0, 0], %acc, transpose_b, k 64\nend\n"                        \
    "store-global gy[0, 0], %acc\n"

static const row rows[] = {
    {"both in shared memory",
     {"f16", 4, 64, 64, 1, 1},
     COPY_X COPY_A LOAD_C SHARED_MMA("%d", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n64k16.f32.f16 of shared a",
     1},
    {"both in shared memory, two warpgroups of two fragments, k beyond a row",
     {"bf16", 8, 24, 128, 1, 2},
     FRAGMENTS,
     plus_c,
     "wgmma.m64n24k16.f32.bf16 of shared a",
     1},
    {"both in shared memory, four fragments",
     {"f16", 4, 16, 64, 1, 4},
     FRAGMENTS,
     plus_c,
     "wgmma.m64n16k16.f32.f16 of shared a",
     1},
    {"rows of a that a warpgroup does not have one after the other",
     {"f16", 4, 16, 64, 1, 2},
     COPY_X COPY_A LOAD_C SHARED_MMA("%d", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n16k16.f32",
     1},
    {"rows of 64 bytes",
     {"f16", 4, 40, 32, 1, 1},
     COPY_X COPY_A LOAD_C SHARED_MMA("%d", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n40k16.f32.f16 of shared a",
     1},
    {"rows of 32 bytes",
     {"bf16", 8, 72, 16, 1, 1},
     COPY_X COPY_A LOAD_C SHARED_MMA("%d", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n72k16.f32.bf16 of shared a",
     1},
    {"joined, of shared a",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X COPY_A LOAD_CS
     ".for P = 0 to 2\n%d${P} = mma %sa[0, 0], %sx[P * N, 0], %c${P}, transpose_b, k K\n.endfor\n" STORE_DS,
     plus_c,
     "wgmma.m64n32k16.f32.f16 of shared a",
     1},
    {"no swizzle: blocks of 16 bytes of each row",
     {"f16", 4, 24, 64, 1, 1},
     "%sx = alloc-shared T[R, K], shared([R, K], [R, K / 8, 8], [8, R * 8, 1])\n"
     "copy-async %sx, gx[0, 0], [R, K]\ncommit-group\nwait-group 0\nsync\n" LOAD_A LOAD_C MMA("%d", "0", "0",
                                                                                              "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n24k16",
     1},
    {"x stored transposed, rows of 128 bytes",
     {"f16", 4, 64, 32, 1, 1},
     COPY_X TRANSPOSED_X("alloc-shared T[K, R]"),
     plus_c,
     "wgmma.m64n64k16",
     1},
    {"x stored transposed, beyond a row",
     {"bf16", 8, 192, 32, 1, 1},
     COPY_X TRANSPOSED_X("alloc-shared T[K, R]"),
     plus_c,
     "wgmma.m64n192k16",
     1},
    {"x stored transposed, rows of 64 bytes",
     {"f16", 4, 32, 64, 1, 1},
     COPY_X TRANSPOSED_X("alloc-shared T[K, R]"),
     plus_c,
     "wgmma.m64n32k16",
     1},
    {"x stored transposed, rows of 32 bytes",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X TRANSPOSED_X("alloc-shared T[K, R]"),
     plus_c,
     "wgmma.m64n16k16",
     1},
    {"x stored transposed, no swizzle",
     {"f16", 4, 24, 32, 1, 1},
     COPY_X TRANSPOSED_X("alloc-shared T[K, R], shared([K, R], [K, R / 8, 8], [8, K * 8, 1])"),
     plus_c,
     "wgmma.m64n24k16",
     1},
    {"a stored transposed",
     {"f16", 8, 32, 32, 1, 1},
     COPY_X TRANSPOSED_A,
     plus_c,
     "wgmma.m64n32k16.f32.f16 of shared a",
     1},
    {"a ring of both", {"f16", 8, 32, 256, 1, 1}, RING, plus_c, "wgmma.m64n32k16.f32.f16 of shared a", 1},
    {"a softmax beside a product",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A LOAD_CS SOFTMAX STORE_DS,
     plus_c,
     "wgmma.m64n16k16",
     2},
    {"turns that run beside the products of the one before",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C TURNS STORE_Y,
     five_times_plus_c,
     "wgmma.m64n16k16",
     1},
    {"sums that a branch reads, and the next turn",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C "%t = alloc-register f32[M, N], C, init 0.0\n"
                          "for %i = 0 to some + 2\nif %i == 3\n%t = max %acc, %t\n%t = sub %t, %t\nend\n" MORE
                          "if %i == 4\n%w = load-global ga[0, 0], A\nend\nend\n%d = add %acc, %t\n" STORE_Y,
     five_times_plus_c,
     "wgmma.m64n16k16",
     1},
    {"a while that continues and breaks beside them",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C "%i = 0\nwhile %i < 9\n%i = %i + 1\n" MORE "if %i < some\ncontinue\nend\n" MORE
                          "if %i >= some\nbreak\nend\nend\n" MORE "store-global gy[0, 0], %acc\n",
     five_times_plus_c,
     "wgmma.m64n16k16",
     3},
    {"what it reads is stored again",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C
     "%x = load-shared %sx[0, 0], permute(B, [1, 0])\n%none = sub %x, %x\nsync\n"
     "%d = mma %w, %sx[0, 0], %acc, transpose_b\nsync\nstore-shared %sx[0, 0], %none\nsync\n"
     "%again = mma %w, %sx[0, 0], %d, transpose_b\nstore-global gy[0, 0], %again\n",
     plus_c,
     "wgmma.m64n16k16",
     2},
    {"one product",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A ZERO MMA("%d", "0", "0", "%acc") STORE_Y,
     product,
     "wgmma.m64n16k16.f32",
     1},
    {"bf16, k beyond a row",
     {"bf16", 4, 24, 128, 1, 1},
     COPY_X LOAD_A ZERO MMA("%d", "0", "0", "%acc") STORE_Y,
     product,
     "wgmma.m64n24k16.f32",
     1},
    {"two warpgroups along m",
     {"f16", 8, 16, 128, 1, 1},
     COPY_X LOAD_A ZERO MMA("%d", "0", "0", "%acc") STORE_Y,
     product,
     "wgmma.m64n16k16.f32",
     1},
    {"c in a slot of its own",
     {"f16", 4, 32, 64, 1, 1},
     COPY_X LOAD_A LOAD_C MMA("%d", "0", "0", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n32k16.f32",
     1},
    {"c in the result's slot",
     {"f16", 4, 64, 64, 1, 1},
     COPY_X LOAD_A LOAD_C MMA("%acc", "0", "0", "%acc") "store-global gy[0, 0], %acc\n",
     plus_c,
     "wgmma.m64n64k16.f32",
     1},
    {"joined", {"f16", 4, 8, 64, 4, 1}, COPY_X LOAD_A JOINED, plus_c, "wgmma.m64n32k16.f32", 1},
    {"joined, two warpgroups",
     {"bf16", 8, 16, 128, 3, 1},
     COPY_X LOAD_A JOINED,
     plus_c,
     "wgmma.m64n48k16.f32",
     1},
    {"one after the other to the same sums",
     {"f16", 4, 16, 128, 1, 1},
     COPY_X LOAD_A LOAD_C MMA("%acc", "0", "0", "%acc")
         MMA("%acc", "0", "0", "%acc") "store-global gy[0, 0], %acc\n",
     twice_plus_c,
     "wgmma.m64n16k16.f32",
     2},
    {"one after the other through other sums",
     {"f16", 4, 16, 128, 1, 1},
     COPY_X LOAD_A LOAD_C MMA("%e", "0", "0", "%acc") MMA("%d", "0", "0", "%e") STORE_Y,
     twice_plus_c,
     "wgmma.m64n16k16.f32",
     2},
    {"u4 less 8, fragments along k",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X WEIGHTS("8") SCALED_PRODUCTS,
     scaled_less_8,
     "wgmma.m64n16k16.f32",
     1},
    {"u4 less 3, 32 columns",
     {"f16", 4, 32, 64, 1, 1},
     COPY_X WEIGHTS("3") SCALED_PRODUCTS,
     scaled_less_3,
     "wgmma.m64n32k16.f32",
     1},
    {"u4, joined",
     {"f16", 8, 16, 128, 2, 1},
     COPY_X WEIGHTS("8") SCALED_PRODUCTS,
     scaled_less_8,
     "wgmma.m64n32k16.f32",
     1},
    {"two fragments of rows",
     {"bf16", 4, 16, 128, 2, 2},
     COPY_X LOAD_A JOINED,
     plus_c,
     "wgmma.m64n32k16.f32",
     1},
    {"u4 less 8, two fragments",
     {"f16", 4, 16, 64, 1, 2},
     COPY_X WEIGHTS("8") SCALED_PRODUCTS,
     scaled_less_8,
     "wgmma.m64n16k16.f32",
     1},
    {"u4 less 3, nested",
     {"f16", 4, 16, 64, 1, 4},
     COPY_X WEIGHTS("3") SCALED_PRODUCTS,
     scaled_less_3,
     "wgmma.m64n16k16.f32",
     1},
    {"u4, nested, 32 columns",
     {"f16", 4, 32, 64, 1, 4},
     COPY_X WEIGHTS("8") SCALED_PRODUCTS,
     scaled_less_8,
     "wgmma.m64n32k16.f32",
     1},
    {"u4, nested, joined",
     {"f16", 4, 16, 64, 2, 4},
     COPY_X WEIGHTS("8") SCALED_PRODUCTS,
     scaled_less_8,
     "wgmma.m64n32k16.f32",
     1},
    {"c is what one before gave",
     {"f16", 4, 16, 64, 3, 1},
     COPY_X LOAD_A LOAD_CS PRODUCT("0", "0", "c0") PRODUCT("1", "1", "c1") PRODUCT("2", "2", "d1") STORE_DS,
     third_with_second,
     "wgmma.m64n",
     2},
    {"a result that is assigned again",
     {"f16", 4, 16, 64, 3, 1},
     COPY_X LOAD_A LOAD_CS PRODUCT("0", "2", "c0") PRODUCT("1", "0", "c1") PRODUCT("2", "0", "c2")
         PRODUCT("0", "0", "c0") PRODUCT("1", "1", "c1") PRODUCT("2", "2", "c2") STORE_DS,
     plus_c,
     "wgmma.m64n",
     3},
    {"the same sums in wgmma of other shapes",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A LOAD_CS PRODUCT("0", "0", "c0") PRODUCT("1", "1", "c1") PRODUCT("1", "1", "d1")
         PRODUCT("0", "0", "d0") STORE_DS,
     twice_plus_c,
     "wgmma.m64n",
     3},
    {"the same sums in other places",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A LOAD_CS PRODUCT("0", "0", "c0") PRODUCT("1", "1", "c1") PRODUCT("0", "1", "d1")
         PRODUCT("1", "0", "d0") STORE_DS,
     both_plus_c,
     "wgmma.m64n32k16",
     2},
    {"warpgroups along k",
     {"f16", 8, 16, 128, 1, 1},
     COPY_X HALVES("%sx[0, 0]", ", split_k"),
     product_of_half,
     "wgmma.m64n16k16",
     1},
    {"an index that goes below 0",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A "for %i = -16 to 1 step 16\n%acc = load-global gc[0, %i + 16], C\n" MMA(
         "%d", "%i + 16", "0", "%acc") "store-global gy[0, %i + 16], %d\nend\n",
     plus_c,
     "wgmma.m64n16k16",
     1},
    {"in loops and their branches",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C "for %i = 0 to some\nif %i == 1\n" MORE "continue\nelse\n" MORE MORE
                          "end\nif %i == 2\nbreak\nend\nend\n"
                          "store-global gy[0, 0], %acc\n",
     five_times_plus_c,
     "wgmma.m64n16k16",
     3},
    {"in an unrolled loop",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C "for %i = 0 to 5 unroll 5\n" MORE "end\nstore-global gy[0, 0], %acc\n",
     five_times_plus_c,
     "wgmma.m64n16k16",
     1},
    {"in a loop that is unrolled in part",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C "for %i = 0 to some + 2 unroll 2\n" MORE "end\n%d = view %acc, f32, C\n" STORE_Y,
     five_times_plus_c,
     "wgmma.m64n16k16",
     1},
    {"a ring of stages",
     {"f16", 4, 16, 256, 1, 1},
     ".layout A1 = spatial(W, 1).local(1, 4).mma.m16n8k16.A\n"
     "%sx = alloc-shared T[3, R, 64]\n"
     ".for J = 0 to 2\ncopy-async %sx[J], gx[0, J * 64], [R, 64]\ncommit-group\n.endfor\n" LOAD_C
     "for %i = 0 to some + 1\nwait-group 1\nsync\n%w = load-global ga[0, %i * 64], A1\n"
     "if %i + 2 < K / 64\ncopy-async %sx[(%i + 2) % 3], gx[0, (%i + 2) * 64], [R, 64]\nend\ncommit-group\n"
     "%acc = mma %w, %sx[%i % 3, 0, 0], %acc, transpose_b\nend\n"
     "store-global gy[0, 0], %acc\n",
     plus_c,
     "wgmma.m64n16k16",
     1},
    {"weights that are converted meanwhile",
     {"f16", 4, 16, 256, 1, 1},
     ".layout A1 = spatial(W, 1).local(1, 4).mma.m16n8k16.A\n" COPY_X
     ".for J = 0 to 4\n%codes = load-global gq[0, J * 64], A1\n"
     "%pairs${J} = cast-lowbit %codes, u4, packing pair\n.endfor\n" ZERO
     ".for J = 0 to 4\n%half = cast-lowbit %pairs${J}, f16\n%w${J % 2} = sub %half, 8\n"
     "%acc = mma %w${J % 2}, %sx[0, J * 64], %acc, transpose_b\n.endfor\n" SCALE
     "%d = mul %acc, %scale\n" STORE_Y,
     scaled_less_8,
     "wgmma.m64n16k16",
     4},
    {"weights that are converted to where those were",
     {"f16", 4, 16, 256, 1, 1},
     ".layout A1 = spatial(W, 1).local(1, 4).mma.m16n8k16.A\n" COPY_X
     ".for J = 0 to 4\n%codes = load-global gq[0, J * 64], A1\n"
     "%pairs${J} = cast-lowbit %codes, u4, packing pair\n.endfor\n" ZERO
     ".for J = 0 to 4\n%half = cast-lowbit %pairs${J}, f16\n%w = sub %half, 8\n" MMA(
         "%acc", "0", "J * 64", "%acc") ".endfor\n" SCALE "%d = mul %acc, %scale\n" STORE_Y,
     scaled_less_8,
     "wgmma.m64n16k16",
     4},
    {"the same sums from the beginning",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C MMA("%d", "0", "0", "%acc") MMA("%d", "0", "0", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n16k16.f32",
     2},
    {"products that do not lie one below the other",
     {"f16", 4, 16, 64, 3, 1},
     COPY_X LOAD_A LOAD_CS PRODUCT("0", "0", "c0") PRODUCT("2", "2", "c2") PRODUCT("1", "1", "c1") STORE_DS,
     plus_c,
     "wgmma.m64n16k16.f32",
     3},
    {"256 columns",
     {"f16", 4, 256, 64, 1, 1},
     COPY_X LOAD_A LOAD_C MMA("%d", "0", "0", "%acc") STORE_Y,
     plus_c,
     "wgmma.m64n256k16.f32",
     1},
    {"no more than 256 columns are joined",
     {"f16", 4, 104, 64, 3, 1},
     COPY_X LOAD_A JOINED,
     plus_c,
     "wgmma.m64n",
     2},
};
enum { ROWS = sizeof rows / sizeof *rows };

START_TEST(products_are_right) {
    check_row(&rows[_i]);
}
END_TEST

static const char *body_of(const char *name, const shape **at) {
    for (unsigned i = 0; i < ROWS; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *at = &rows[i].at;
            return rows[i].body;
        }
    ck_abort_msg("no row %s", name);
}

/* Does the first `what` come between a group of wgmma and the wait for it? */
static bool runs_beside(const char *ptx, const char *what) {
    const char *at = strstr(ptx, what), *commit = NULL;
    for (const char *c = ptx; (c = strstr(c, "wgmma.commit_group")) != NULL && c < at; c++) commit = c;
    const char *wait = commit ? strstr(commit, "wgmma.wait_group.sync.aligned 0;") : NULL;
    return at && commit && wait && wait > at;
}

START_TEST(what_does_not_depend_runs_beside) {
    const shape *at;
    const char *softmax = body_of("a softmax beside a product", &at);
    tvm_ir_program *program = assemble(at, softmax);
    tvm_module *module = translate(program, "sm_90a");
    ck_assert(runs_beside(module->ptx, "ex2.approx"));
    ck_assert(runs_beside(module->ptx, "shfl.sync.bfly"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
    /* No turn waits: what is left of the last one is waited for after the loop. */
    const char *turns = body_of("turns that run beside the products of the one before", &at);
    program = assemble(at, turns);
    module = translate(program, "sm_90a");
    const char *wait = strstr(module->ptx, "wgmma.wait_group.sync.aligned 0;"),
               *turn = strstr(module->ptx, "ex2");
    ck_assert(turn && wait && strstr(turn, "bra.uni") < wait);
    ck_assert_ptr_null(strstr(wait + 1, "wgmma.wait_group.sync.aligned 0;"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* In a loop ptxas would take the registers of %w for the product of which %w is a view while wgmma still
 * reads them.
 */
START_TEST(what_becomes_an_operand_is_computed_after_the_wait) {
    static const shape at = {"f16", 4, 16, 64, 1, 1};
    static const char body[] = COPY_X LOAD_A LOAD_C
        "for %i = 0 to some\n%t = load-global ga[0, 0], A\n%scaled = mul %t, 3\n%w = view %scaled, T, A\n" MMA(
            "%acc", "0", "0", "%acc") "end\nstore-global gy[0, 0], %acc\n";
    tvm_ir_program *program = assemble(&at, body);
    tvm_module *module = translate(program, "sm_90a");
    const char *product = strstr(module->ptx, "wgmma.fence"),
               *wait = strstr(module->ptx, "wgmma.wait_group.sync.aligned 0;"),
               *multiply = strstr(module->ptx, "mul.rn.f16x2");
    ck_assert(product && wait && multiply && wait < multiply && multiply < product);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* Every warp stores all of x, and reads what it stored itself, without a sync. */
START_TEST(what_each_warp_stored_itself_is_seen) {
    static const char body[] =
        "%all = load-global gx[0, 0], permute(B, [1, 0])\n%sx = alloc-shared T[R, 64]\n"
        "store-shared %sx[0, 0], %all\nsync-warp\n" LOAD_A LOAD_C MMA("%d", "0", "0", "%acc") STORE_Y;
    const shape at = {"f16", 4, 16, 64, 1, 1};
    tvm_ir_program *program = assemble(&at, body);
    tvm_module *module = translate(program, "sm_90a");
    ck_assert_uint_eq(count_selected(module, "wgmma.m64n16k16"), 1);
    make_operands(&at);
    run(module, 3);
    compare(&at, "stored by each", "sm_90a", plus_c);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- where it is not ---- */

typedef struct refusal {
    const char *name;
    shape at;
    const char *body;
    expectation expected;
    const char *why; /* part of what is said; NULL: nothing */
} refusal;

#define COPY_TO(X)                                                                                           \
    "%sx = " X "\ncopy-async %sx, gx[0, 0], [R, K]\n"                                                        \
    "commit-group\nwait-group 0\nsync\n"
#define MULTIPLY LOAD_A LOAD_C MMA("%d", "0", "0", "%acc") STORE_Y

static const refusal refusals[] = {
    {"no swizzle",
     {"f16", 4, 16, 64, 1, 1},
     COPY_TO("alloc-shared T[R, K], row_major") MULTIPLY,
     plus_c,
     "swizzle(3, 1 to 3, 3)"},
    {"another swizzle",
     {"f16", 4, 16, 64, 1, 1},
     COPY_TO("alloc-shared T[R, K], swizzle(3, 2, 3)") MULTIPLY,
     plus_c,
     "swizzle(3, 1 to 3, 3)"},
    {"rows of 128 that are not cut into blocks of columns",
     {"f16", 4, 16, 128, 1, 1},
     COPY_TO("alloc-shared T[R, K], swizzle(3, 3, 4)") MULTIPLY,
     plus_c,
     "swizzle(3, 1 to 3, 3)"},
    {"b in registers",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C LOAD_X "%d = mma %w, %x, %acc\n" STORE_Y,
     plus_c,
     NULL},
    {"a sync before the mma",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C LOAD_X "sync\n%d = mma %w, %x, %acc\n" STORE_Y,
     plus_c,
     NULL},
    {"a store before the mma",
     {"f16", 4, 16, 64, 1, 1},
     COPY_X LOAD_A LOAD_C
     "%none = alloc-register T[R, 64], replicated(W, 2).spatial(2, 16).local(N / 2, 4), init 0.0\nsync\n" LOAD_X
     "store-shared %sx[0, 0], %none\n%d = mma %w, %x, %acc\n" STORE_Y,
     plus_c,
     NULL},
    {"8 columns", {"f16", 4, 8, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "8 columns"},
    {"one warp", {"f16", 1, 16, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "multiple of 4"},
    {"6 warps", {"f16", 6, 16, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "multiple of 4"},
    {"not at a multiple of 8 rows, known",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A ".for P = 0 to 2\n%acc = load-global gc[0, P * N], C\n" MMA(
         "%d", "P * 8 + 4", "0", "%acc") "store-global gy[0, P * N], %d\n.endfor\n",
     shifted_plus_c,
     "first of 8 rows"},
    {"not at a multiple of 8 rows",
     {"f16", 4, 16, 64, 2, 1},
     COPY_X LOAD_A "for %p = 0 to 2\n%acc = load-global gc[0, %p * N], C\n" MMA(
         "%d", "%p * 8 + some + 1", "0", "%acc") "store-global gy[0, %p * N], %d\nend\n",
     shifted_plus_c,
     "multiple of 8 rows"},
    {"a warpgroup's rows begin between two multiples of 8",
     {"f16", 8, 16, 128, 1, 1},
     "%sx = alloc-shared T[2, 20, 64]\n.for J = 0 to 2\ncopy-async %sx[J, 0, 0], gx[0, J * 64], [R, 64]\n.endfor\n"
     "commit-group\nwait-group 0\nsync\n" HALVES("%sx[0, 0, 0]", ""),
     product_of_half,
     "first of 8 rows"},
    {"264 columns", {"f16", 4, 264, 64, 1, 1}, COPY_X MULTIPLY, plus_c, "more than 256 columns"},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

START_TEST(others_are_left_to_mma_sync) {
    const refusal *r = &refusals[_i];
    tvm_ir_program *program = assemble(&r->at, r->body);
    tvm_module *module = translate(program, "sm_90a");
    ck_assert_msg(!strstr(module->ptx, "wgmma"), "%s", r->name);
    ck_assert_msg(r->why ? is_said(module, r->why) : !is_said(module, "wgmma"), "%s", r->name);
    make_operands(&r->at);
    run(module, 3);
    compare(&r->at, r->name, "sm_90a", r->expected);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_wgmma");
    TCase *tests = tcase_create("wgmma");
    tcase_set_timeout(tests, TIMEOUT);
    tcase_add_loop_test(tests, products_are_right, 0, ROWS);
    tcase_add_test(tests, what_does_not_depend_runs_beside);
    tcase_add_test(tests, what_becomes_an_operand_is_computed_after_the_wait);
    tcase_add_test(tests, what_each_warp_stored_itself_is_seen);
    tcase_add_loop_test(tests, others_are_left_to_mma_sync, 0, REFUSALS);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
