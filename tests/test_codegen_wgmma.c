/* mma as wgmma: where it is taken, and that the products are right (wgmma_kit.h). */
#include "ptxas_kit.h"
#include "wgmma_kit.h"

/* ptxas neither serializes them nor spills. */
static void check_compiled(const char *name, tvm_module *module) {
    ptxas_verdict verdict;
    ck_assert_int_eq(ptxas_judge(module, name, &verdict, NULL), TVM_OK);
    ck_assert_msg(verdict.kernel == NULL, "%s: %d bytes of spills; %s", name, verdict.stored, verdict.loss);
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

/* What %t times 3 becomes %w by: moves alone. In a loop ptxas would take the registers of %w for the product,
 * while wgmma still reads them.
 */
#define TURN(MOVES)                                                                                          \
    COPY_X LOAD_A LOAD_C                                                                                     \
        "for %i = 0 to some\n%t = load-global ga[0, 0], A\n%scaled = mul %t, 3\n" MOVES MMA(                 \
            "%acc", "0", "0", "%acc") "end\nstore-global gy[0, 0], %acc\n"
static const char *const moved[] = {
    TURN("%w = view %scaled, T, A\n"),
    TURN("%view = view %scaled, u16, A\n%none = view %t, u16, A\n%w = view %view, T, A\n"),
    TURN("%left = slice %scaled, [0, 0], [M, K / 2]\n%right = slice %scaled, [0, K / 2], [M, K / 2]\n"
         "%w = concat %left, %right, axis 1, layout A\n"),
    TURN("%left = slice %scaled, [0, 0], [M, K / 2]\n%w = insert %scaled, %left, [0, 0]\n"),
    TURN("%turned = transpose %scaled\n%w = transpose %turned\n"),
    TURN(
        "if %i == 1\n%w = view %scaled, T, A\nelse\n%other = reshape %scaled, [M, K]\n%w = view %other, T, A\nend\n"),
    TURN(
        "%view = view %scaled, u32, spatial(32 * W).local(K / 4)\n%cast = cast %view, i32\n%same = %cast + 0\n"
        "%all = %same & 0xffffffff\n%w = view %all, T, A\n"),
    /* a turn before */
    COPY_X LOAD_A LOAD_C
    "%t = load-global ga[0, 0], A\n%scaled = mul %t, 3\nfor %i = 0 to some\n"
    "%w = view %scaled, T, A\n" MMA(
        "%acc", "0", "0",
        "%acc") "%t = load-global ga[0, 0], A\n"
                "%scaled = mul %t, 3\nif %i == 7\ncontinue\nend\nend\nstore-global gy[0, 0], %acc\n",
};

/* The text of the kernel's loop. */
static char *loop_of(const char *ptx) {
    for (const char *head = ptx; (head = strstr(head, "\n$L")) != NULL; head++) {
        char back[32];
        snprintf(back, sizeof back, "bra.uni %.*s;", (int)strcspn(head + 1, ":"), head + 1);
        const char *end = strstr(head, back);
        if (end != NULL) return strndup(head, (size_t)(end - head));
    }
    ck_abort_msg("no loop in:\n%s", ptx);
}

/* Of two turns, one behind the other. */
static bool waits_before(const char *turn, const char *what) {
    char *turns = NULL;
    ck_assert_int_gt(asprintf(&turns, "%s%s", turn, turn), 0);
    const char *at = turns, *end = turns + strlen(turn);
    for (const char *c = at; (c = strstr(c, "wgmma.commit_group")) != NULL && c < end; c++) at = c;
    const char *wait = strstr(at, "wgmma.wait_group.sync.aligned 0;"), *found = strstr(at, what);
    bool waits = wait != NULL && found != NULL && wait < found;
    free(turns);
    return waits;
}

static double three_times_plus_c_thrice(const shape *at, unsigned m, unsigned r) {
    return 9 * product(at, m, r) + (double)o.c[m * at->n * at->products + r];
}

START_TEST(what_becomes_an_operand_is_computed_after_the_wait) {
    static const shape at = {"f16", 4, 16, 64, 1, 1};
    tvm_ir_program *program = assemble(&at, moved[_i]);
    tvm_module *module = translate(program, "sm_90a");
    char *turn = loop_of(module->ptx);
    ck_assert_msg(waits_before(turn, "mul.rn.f16x2"), "%s", moved[_i]);
    ck_assert(!waits_before(turn, "ld.global"));
    make_operands(&at);
    run(module, 3);
    compare(&at, moved[_i], "sm_90a", three_times_plus_c_thrice);
    check_compiled(moved[_i], module);
    free(turn);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* A variable that becomes one operand and then another: what becomes the one need not wait for the product of
 * the other.
 */
START_TEST(what_becomes_another_operand_runs_beside) {
    static const shape at = {"f16", 4, 16, 64, 1, 1};
    static const char body[] =
        COPY_X LOAD_C "%t = load-global ga[0, 0], A\n%s = %t * 3\n%w = view %s, T, A\n" MMA(
            "%acc", "0", "0",
            "%acc") "%s = %t * 5\n%v = view %s, T, A\n"
                    "%acc = mma %v, %sx[0, 0], %acc, transpose_b\nstore-global gy[0, 0], %acc\n";
    tvm_ir_program *program = assemble(&at, body);
    tvm_module *module = translate(program, "sm_90a");
    ck_assert(runs_beside(module->ptx, "0x4500"));
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

static unsigned count_groups(const shape *at, const char *body) {
    tvm_ir_program *program = assemble(at, body);
    tvm_module *module = translate(program, "sm_90a");
    unsigned groups = 0;
    for (const char *c = module->ptx; (c = strstr(c, "wgmma.commit_group")) != NULL; c++) groups++;
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return groups;
}

/* The fragments of an operand are computed beside the steps of its product, each step a group; those of
 * operands that take turns beside the product of the other, which is one group.
 */
START_TEST(operands_that_take_turns_are_computed_beside_whole_products) {
    static const shape at = {"f16", 4, 16, 64, 1, 1};
    static const char one[] = COPY_X LOAD_C "%t = load-global ga[0, 0], A\n%w = %t * 3\n" MMA(
        "%acc", "0", "0", "%acc") "store-global gy[0, 0], %acc\n";
    static const char two[] = COPY_X LOAD_C "%t = load-global ga[0, 0], A\n%w = %t * 3\n" MMA(
        "%acc", "0", "0",
        "%acc") "%v = %t * 5\n"
                "%acc = mma %v, %sx[0, 0], %acc, transpose_b\nstore-global gy[0, 0], %acc\n";
    ck_assert_uint_eq(count_groups(&at, one), 4);
    ck_assert_uint_eq(count_groups(&at, two), 2);
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

/* What the threads of a warp tell each other by shared memory goes on beside a product, and as nothing but
 * threads touches that memory, no fence follows. */
START_TEST(a_warp_shares_beside_a_product) {
    static const char body[] = COPY_X LOAD_A LOAD_C "%so = alloc-shared f32[M, N]\n" MMA(
        "%p", "0", "0",
        "%acc") "store-shared %so[0, 0], %acc\nsync-warp\n%back = load-shared %so[0, 0], C\n%none = sub %back, %acc\n"
                "%d = add %p, %none\nsync\n" STORE_Y;
    const shape at = {"f16", 4, 16, 64, 1, 1};
    tvm_ir_program *program = assemble(&at, body);
    tvm_module *module = translate(program, "sm_90a");
    ck_assert(runs_beside(module->ptx, "bar.warp.sync"));
    const char *first = strstr(module->ptx, "fence.proxy.async");
    ck_assert(first && !strstr(first + 1, "fence.proxy.async")); /* of x */
    make_operands(&at);
    run(module, 3);
    compare(&at, "shared beside a product", "sm_90a", plus_c);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_wgmma");
    TCase *tests = tcase_create("wgmma");
    tcase_add_loop_test(tests, products_are_right, 0, ROWS);
    tcase_add_test(tests, what_does_not_depend_runs_beside);
    tcase_add_loop_test(tests, what_becomes_an_operand_is_computed_after_the_wait, 0,
                        sizeof moved / sizeof *moved);
    tcase_add_test(tests, what_becomes_another_operand_runs_beside);
    tcase_add_test(tests, operands_that_take_turns_are_computed_beside_whole_products);
    tcase_add_test(tests, what_each_warp_stored_itself_is_seen);
    tcase_add_test(tests, a_warp_shares_beside_a_product);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
