/* The mistakes of ptxas: the occasion of each is found in its own kernel, and not in what the code generator
 * writes instead; a listing is judged by its signs; and the ptxas that is found, where there is an nvdisasm
 * too, is judged without a doubt. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "ptxas.h"
#include "ptxas_mistakes.h"
#include "ptxas_mistakes_kit.h"
#include "suite_kit.h"

static const tvm_ptxas_mistake *rows;
static size_t row_count;

static const tvm_ptxas_mistake *row_named(const char *name) {
    for (size_t i = 0; i < row_count; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    ck_abort_msg("no row %s", name);
    return NULL;
}

/* ---- occasions ---- */

static const char *occasion_in(const char *target, const char *body) {
    const tvm_ptxas_mistake row = {.target = target, .body = body};
    const char *line = NULL;
    char *ptx = tvm_ptxas_mistake_ptx(&row);
    ck_assert_ptr_nonnull(ptx);
    const char *name = scan_occasion(ptx, &line);
    free(ptx);
    return name;
}

START_TEST(every_kernel_is_an_occasion) {
    const tvm_ptxas_mistake *row = &rows[_i];
    if (row->body != NULL) ck_assert_pstr_eq(occasion_in(row->target, row->body), row->name);
}
END_TEST

/* What is written, with the name of the mistake that it is an occasion of, or NULL. */
typedef struct sample {
    const char *name, *target, *body;
} sample;

#define ZERO_SUMS "setp.ne.b32 %p0, 0, 0;\n"
#define PRODUCT(D, A, B)                                                                                     \
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {" D ", %f1, %f2, %f3}, {" A ", %w1, %w2, %w3}, " B   \
    ", %p0, 1, 1, 0;\n"
#define FENCE "wgmma.fence.sync.aligned;\n"
#define WAIT  "wgmma.wait_group.sync.aligned 0;\n"
#define F8(A) "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0}, {" A "}, {%w4}, {%f0};\n"

static const sample samples[] = {
    {"wgmma-alike", "sm_90a", ZERO_SUMS FENCE PRODUCT("%f0", "%w0", "%rd1") PRODUCT("%f4", "%w4", "%rd1")},
    {NULL, "sm_90a", ZERO_SUMS FENCE PRODUCT("%f0", "%w0", "%rd1") FENCE PRODUCT("%f4", "%w4", "%rd1")},
    {NULL, "sm_90a", ZERO_SUMS FENCE PRODUCT("%f0", "%w0", "%rd1") PRODUCT("%f4", "%w4", "%rd2")},
    {NULL, "sm_90a",
     "setp.eq.b32 %p0, 0, 0;\n" FENCE PRODUCT("%f0", "%w0", "%rd1") PRODUCT("%f4", "%w4", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT "mov.b32 %w0, %w4;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT
     "mov.b32 %w7, %w4;\nmov.b32 %w0, %w7;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\nmov.b32 %w7, %w4;\n" WAIT
     "mov.b32 %w0, %w7;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT "mov.b32 %w0, %w4;\n" WAIT FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT
     "mov.b32 %w0, %w4;\nmov.b32 %w4, 0;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT "or.b32 %w0, 0x0, %w4;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"wgmma-joined", "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT
     "and.b32 %w0, %w4, 0xffffffff;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {NULL, "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT "sub.u32 %w0, 0x0, %w4;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {NULL, "sm_90a",
     "mul.rn.f16x2 %w4, %w5, %w6;\n" WAIT "or.b32 %w0, %w4, %w5;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {NULL, "sm_90a",
     "cvt.rn.f16.f32 %h4, %f5;\n" WAIT "mov.b32 %w0, {%h4, %h4};\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {NULL, "sm_90a",
     WAIT "mul.rn.f16x2 %w4, %w5, %w6;\nmov.b32 %w0, %w4;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {NULL, "sm_90a", WAIT "mul.rn.f16x2 %w0, %w5, %w6;\n" FENCE PRODUCT("%f0", "%w0", "%rd1")},
    {"min-max-saturated", "sm_80", "mov.b32 %w0, 0x3f800000;\nmin.f32 %f0, %w0, %f1;\n"},
    {NULL, "sm_80", "mov.b32 %w0, 0x3f800000;\nor.b32 %w0, %w0, %r2;\nmin.f32 %f0, %w0, %f1;\n"},
    {NULL, "sm_80", "min.f32 %f0, %f1, 0f40000000;\nmax.f32 %f0, %f0, 0f3F800000;\n"},
    {"negation-lost", "sm_90a", "sub.s32 %r2, 0, %r2;\nmax.s32 %r3, %r4, %r2;\n"},
    {NULL, "sm_90a", "sub.s32 %r2, 0x0, 1;\nmax.s32 %r3, %r4, %r2;\n"},
    {"negation-lost", "sm_100a", "mul.lo.s32 %r2, %r2, -1;\nmin.s32 %r3, %r2, %r4;\n"},
    {NULL, "sm_90a", "not.b32 %r2, %r2;\nadd.s32 %r2, %r2, 1;\nmin.s32 %r3, %r2, %r4;\n"},
    {NULL, "sm_90a", "neg.s32 %r2, %r2;\nand.b32 %r2, %r2, 7;\nmin.s32 %r3, %r2, %r4;\n"},
    {"f8-constant-halves", "sm_90a", "mov.b32 %w0, 0x38383838;\n" F8("%w0")},
    {"f8-constant-halves", "sm_100a", "mov.b32 %w0, 0;\n@%p0 ld.global.b32 %w0, [%rd0];\n" F8("%w0")},
    {NULL, "sm_89", "mov.b32 %w0, 0x38383838;\n" F8("%w0")},
    {NULL, "sm_90a", "mov.b32 %w0, 0x38383838;\nor.b32 %w0, %w0, %r2;\n" F8("%w0")},
    {NULL, "sm_90a", "mov.b32 %w0, 0;\nld.global.b32 %w0, [%rd0];\n" F8("%w0")},
    {"copy-policy", "sm_80", "@%p0 cp.async.ca.shared.global.L2::cache_hint [%r2], [%rd0], 4, %rd1;\n"},
    {NULL, "sm_80", "cp.async.cg.shared.global.L2::128B [%r2], [%rd0], 16;\n"},
    {NULL, "sm_90a",
     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r2], [%rd0], 16, "
     "[%r3], %rd1;\n"},
    {"constants-forgotten", "sm_90a",
     "mov.b32 %w0, 0x2;\nmov.b32 %w1, 0x2;\n@%p0 st.shared.v4.b32 [%r2], {%w0, %w1, %w0, %w1};\n"},
    {NULL, "sm_90a", "mov.b32 %w0, 0x2;\n@%p0 st.shared.v4.b32 [%r2], {%w0, %w0, %w0, %w0};\n"},
    {NULL, "sm_90a", "mov.b32 %w0, 0x2;\nmov.b32 %w1, 0x2;\nst.shared.v4.b32 [%r2], {%w0, %w1, %w0, %w1};\n"},
    {NULL, "sm_90a",
     "mov.b32 %w0, 0x2;\nmov.b32 %w1, 0x2;\nor.b32 %w0, %w0, %r3;\n"
     "@%p0 st.shared.v4.b32 [%r2], {%w0, %w1, %w0, %w1};\n"},
    {"selected-into-x", "sm_80", "setp.nan.f32 %p0, %f0, %f0;\nselp.f32 %f1, %f0, %f2, %p0;\n"},
    {NULL, "sm_80", "setp.nan.f32 %p0, %f0, %f0;\nselp.f32 %f0, %f0, %f2, %p0;\n"},
    {NULL, "sm_80", "setp.nan.f32 %p0, %f0, %f0;\nselp.f32 %f1, 0f7FFFFFFF, %f2, %p0;\n"},
};

START_TEST(occasions_are_what_they_are) {
    const sample *given = &samples[_i];
    const char *name = occasion_in(given->target, given->body);
    if (given->name == NULL)
        ck_assert_msg(name == NULL, "%s in:\n%s", name, given->body);
    else
        ck_assert_pstr_eq(name, given->name);
}
END_TEST

/* A register is another one in the next kernel. */
START_TEST(kernels_are_apart) {
    static const char ptx[] = ".target sm_90a\n.entry a()\n{\nneg.s32 %r2, %r2;\n}\n"
                              ".entry b()\n{\nmin.s32 %r3, %r2, %r4;\n}\n";
    const char *line;
    ck_assert_ptr_null(scan_occasion(ptx, &line));
}
END_TEST

/* ---- listings ---- */

typedef struct listing {
    const char *name, *text;
    tvm_ptxas_finding finding;
} listing;

static const listing listings[] = {
    {"wgmma-alike", "HGMMA.64x8x16.F32 R24, R28, gdesc[UR4], RZ, !UPT, gsb0 ;\n", TVM_PTXAS_WRONG},
    {"wgmma-alike", "HGMMA.64x8x16.F32 R24, R28 ;\nHGMMA.64x8x16.F32 R4, R28 ;\n", TVM_PTXAS_RIGHT},
    {"wgmma-alike", "EXIT ;\n", TVM_PTXAS_UNCLEAR},
    {"wgmma-joined",
     "HMUL2 R28, R28, 3, 3 ;\nWARPGROUP.DEPBAR.LE gsb0, 0x0 ;\nHGMMA.64x8x16.F32 R24, R28, gdesc[UR8] ;\n",
     TVM_PTXAS_WRONG},
    {"wgmma-joined",
     "HMUL2 R4, R4, 3, 3 ;\nWARPGROUP.DEPBAR.LE gsb0, 0x0 ;\nMOV R28, R4 ;\n"
     "HGMMA.64x8x16.F32 R24, R28, gdesc[UR8] ;\n",
     TVM_PTXAS_RIGHT},
    {"min-max-saturated", "FADD.SAT R5, RZ, R0 ;\n", TVM_PTXAS_WRONG},
    {"min-max-saturated", "FMNMX R0, R0, 1, PT ;\nFMNMX R5, -RZ, R0, !PT ;\n", TVM_PTXAS_RIGHT},
    {"negation-lost", "IADD3 R4, -R4, RZ, RZ ;\nVIMNMX3 R5, R4, R5, R0, PT ;\n", TVM_PTXAS_WRONG},
    {"negation-lost", "IADD3 R4, -R4, RZ, RZ ;\nIADD3 R5, -R5, RZ, RZ ;\nVIMNMX3 R5, R4, R5, R0, PT ;\n",
     TVM_PTXAS_RIGHT},
    {"negation-lost", "VIMNMX R4, R4, R5, !PT ;\nIADD3 R4, -R4, RZ, RZ ;\n", TVM_PTXAS_UNCLEAR},
    {"f8-constant-halves", "F2FP.F16.E4M3.UNPACK_B R13, 2.2420775e-44 ;\nSTG.E.64 ;\n", TVM_PTXAS_WRONG},
    {"f8-constant-halves", "F2FP.F16.E4M3.UNPACK_B R13, RZ ;\nSTG.E.64 ;\n", TVM_PTXAS_RIGHT},
    {"copy-policy", "LDGSTS.E.BYPASS.128 [UR4], desc[UR15][R4.64] ;\n", TVM_PTXAS_WRONG},
    {"copy-policy", "LDGSTS.E.BYPASS.128 [UR4], desc[UR16][R4.64] ;\n", TVM_PTXAS_RIGHT},
};

START_TEST(listings_are_judged) {
    const listing *given = &listings[_i];
    tvm_ptxas_finding finding;
    ck_assert_int_eq(tvm_ptxas_judge_listing(row_named(given->name), given->text, &finding, NULL), TVM_OK);
    ck_assert_msg(finding == given->finding, "%s: %d of:\n%s", given->name, finding, given->text);
}
END_TEST

/* ---- the ptxas that is found ---- */

/* Whatever its release, it makes the mistake, or does not. */
START_TEST(this_ptxas_is_judged) {
    const tvm_ptxas_mistake *row = &rows[_i];
    char *ptxas = NULL, *nvdisasm = NULL;
    tvm_ptxas_finding finding = TVM_PTXAS_WRONG;
    tvm_diags diags = {0};
    if (row->body != NULL && tvm_ptxas_find(&ptxas, NULL) == TVM_OK &&
        tvm_nvdisasm_find(ptxas, &nvdisasm, NULL) == TVM_OK) {
        tvm_status status = tvm_ptxas_judge(row, ptxas, nvdisasm, &finding, &diags);
        tvm_diags_print(&diags, stderr, "test", false);
        ck_assert_int_eq(status, TVM_OK);
        ck_assert_int_ne(finding, TVM_PTXAS_UNCLEAR);
    }
    tvm_diags_free(&diags);
    free(nvdisasm);
    free(ptxas);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mistakes of ptxas");
    TCase *tests = suite_case(suite, "mistakes");
    rows = tvm_ptxas_mistakes(&row_count);
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, every_kernel_is_an_occasion, 0, (int)row_count);
    tcase_add_loop_test(tests, occasions_are_what_they_are, 0, sizeof samples / sizeof *samples);
    tcase_add_test(tests, kernels_are_apart);
    tcase_add_loop_test(tests, listings_are_judged, 0, sizeof listings / sizeof *listings);
    tcase_add_loop_test(tests, this_ptxas_is_judged, 0, (int)row_count);
    return run_suite(suite);
}
