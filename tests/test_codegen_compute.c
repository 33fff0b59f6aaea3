/* Translation of the instructions that compute: what is selected, the order of accumulation, and that ptxas
 * takes every operation of every type, and every conversion, for every target. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "ptxas_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
enum { TARGETS = sizeof targets / sizeof targets[0] };

/* ---- helpers ---- */

static tvm_module *translate_text(const char *text, const char *target_name) {
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, target_name);
    tvm_ir_program_free(program);
    return module;
}

/* Where there is a ptxas, it takes it and spills nothing. */
static void check_ptxas(tvm_module *module) {
    tvm_diags diags = {0};
    ptxas_verdict verdict;
    tvm_status status = ptxas_judge(module, "codegen_compute", &verdict, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    tvm_diags_free(&diags);
    ck_assert_int_eq(status, TVM_OK);
    ck_assert_msg(verdict.kernel == NULL, "%s: spills or %s", verdict.kernel, verdict.loss);
}

/* Translates and assembles a text for every target. */
static void check_text(const char *text) {
    tvm_ir_program *program = assemble(text);
    for (unsigned t = 0; t < TARGETS; t++) {
        tvm_module *module = translate(program, targets[t]);
        check_ptxas(module);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}

static unsigned count(const char *text, const char *part) {
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
    return n;
}

static const tvm_selection *selection_of(const tvm_module *module, const char *instruction) {
    for (size_t i = 0; i < module->kernels[0].selection_count; i++)
        if (strcmp(module->kernels[0].selections[i].instruction, instruction) == 0)
            return &module->kernels[0].selections[i];
    ck_abort_msg("no selection of %s", instruction);
    return NULL;
}

static void expect_candidate(const tvm_module *module, const char *instruction, const char *part) {
    const tvm_selection *selection = selection_of(module, instruction);
    ck_assert_msg(strstr(selection->candidate, part) != NULL, "%s: %s", instruction, selection->candidate);
}

/* ---- every operation of every type ---- */

static void write_operations(FILE *out, tvm_dtype type) {
    char name[TVM_DTYPE_NAME_MAX];
    bool is_float = type.kind == TVM_KIND_FLOAT;
    tvm_dtype_name(type, name);
    fprintf(
        out,
        ".kernel ops_%s(a: global %s[64, 8], b: global %s[64, 8], y: global %s[64, 8], z: global bool[64, 8], s: "
        "f32, i: i32)\n"
        ".warps 2\n.grid 1\n"
        "%%x = load-global a[0, 0], spatial(64, 1).local(1, 8)\n"
        "%%v = load-global b[0, 0], spatial(64, 1).local(1, 8)\n",
        name, name, name, name);
    fprintf(out,
            "%%add = add %%x, %%v\n%%sub = sub %%add, s\n%%mul = mul i, %%sub\n%%div = div %%mul, %%v\n");
    fprintf(out, "%%min = min %%div, %%x\n%%max = max %%min, 3\n%%fma = fma %%max, %%v, %%x\n");
    fprintf(out, "%%last = %s\n", is_float ? "neg %fma" : "mod %fma, %v");
    if (type.kind == TVM_KIND_INT) fprintf(out, "%%last = neg %%last\n");
    if (is_float && type.bits <= 32) fprintf(out, "%%last = exp %%last\n");
    for (unsigned c = 0; c < TVM_COMPARE_COUNT; c++)
        fprintf(out, "%%c%u = compare %s, %%last, %%x\n%%last = where %%c%u, %%last, %s\n", c,
                tvm_compare_names[c], c, c % 2 ? "%v" : "s");
    fprintf(out, "%%rows = reduce sum, %%last, 0\n%%columns = reduce max, %%last, 1\n");
    fprintf(out, "%%all = add %%last, %%rows\n%%all = sub %%all, %%columns\n");
    fprintf(out, "store-global y[0, 0], %%all\nstore-global z[0, 0], %%c0\n.end\n");
}

START_TEST(every_operation_of_every_type) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t total = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, ".vasm 1\n");
    for (size_t i = 0; i < total; i++)
        if (tvm_dtype_is_arithmetic(types[i])) write_operations(out, types[i]);
    fclose(out);
    check_text(text);
    free(text);
}
END_TEST

/* ---- every conversion ---- */

static bool is_standard(tvm_dtype type) {
    return !tvm_dtype_is_lowbit(type) || (tvm_dtype_is_integer(type) && type.bits == 8);
}

static bool takes_part_in_lowbit(tvm_dtype type) {
    if (tvm_dtype_is_lowbit(type)) return true;
    return (tvm_dtype_is_integer(type) && type.bits <= 32) || tvm_dtype_same(type, TVM_F16) ||
           tvm_dtype_same(type, TVM_BF16) || tvm_dtype_same(type, TVM_F32);
}

/* A kernel for a source type with the conversions to every other; the results are not used, so that ptxas
 * checks them but has little to do. */
static void write_conversions(FILE *out, tvm_dtype from, const tvm_dtype *types, size_t total) {
    char source[TVM_DTYPE_NAME_MAX], name[TVM_DTYPE_NAME_MAX];
    tvm_dtype_name(from, source);
    fprintf(out, ".kernel from_%s(a: global %s[256])\n.warps 1\n.grid 1\n", source, source);
    fprintf(out, "%%x = load-global a[0], spatial(32).local(8)\n");
    for (size_t i = 0; i < total; i++) {
        tvm_dtype_name(types[i], name);
        bool lowbit = tvm_dtype_is_lowbit(from) || tvm_dtype_is_lowbit(types[i]);
        if (is_standard(from) && is_standard(types[i])) fprintf(out, "%%c_%s = cast %%x, %s\n", name, name);
        if (lowbit && takes_part_in_lowbit(from) && takes_part_in_lowbit(types[i]))
            fprintf(out, "%%l_%s = cast-lowbit %%x, %s\n", name, name);
    }
    fprintf(out, ".end\n");
}

START_TEST(every_conversion) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t total = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX), size = 0;
    char *text = NULL;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    fprintf(out, ".vasm 1\n");
    for (size_t i = 0; i < total; i++) write_conversions(out, types[i], types, total);
    fclose(out);
    check_text(text);
    free(text);
}
END_TEST

/* ---- selection ---- */

#define HALVES(type, body)                                                                                   \
    ".vasm 1\n.kernel k(a: global " type "[32, 8], y: global " type "[32, 8])\n.warps 1\n.grid 1\n"          \
    "%x = load-global a[0, 0], spatial(32, 1).local(1, 8)\n" body "store-global y[0, 0], %r\n.end\n"

START_TEST(f16_is_computed_in_pairs) {
    tvm_module *module = translate_text(HALVES("f16", "%r = add %x, %x\n"), "sm_80");
    ck_assert_uint_eq(count(module->ptx, "add.rn.f16x2"), 4);
    expect_candidate(module, "%r = add", "packed pairs f16");
    tvm_module_free(module);
    module = translate_text(HALVES("f16", "%r = div %x, %x\n"), "sm_80");
    ck_assert_uint_eq(count(module->ptx, "div.rn.f32"), 8);
    ck_assert_str_eq(selection_of(module, "%r = div")->refused, "packed pairs: no packed division");
    tvm_module_free(module);
}
END_TEST

START_TEST(bf16_sums_go_through_fma_where_there_is_no_add) {
    static const char *const rows[][2] = {{"add.rn.bf16x2", HALVES("bf16", "%r = add %x, %x\n")},
                                          {"sub.rn.bf16x2", HALVES("bf16", "%r = sub %x, %x\n")},
                                          {"mul.rn.bf16x2", HALVES("bf16", "%r = mul %x, %x\n")}};
    for (unsigned i = 0; i < 3; i++) {
        tvm_module *module = translate_text(rows[i][1], "sm_89");
        ck_assert_uint_eq(count(module->ptx, rows[i][0]), 0);
        ck_assert_uint_eq(count(module->ptx, "fma.rn.bf16x2"), 4);
        check_ptxas(module);
        tvm_module_free(module);
        module = translate_text(rows[i][1], "sm_90a");
        ck_assert_uint_eq(count(module->ptx, rows[i][0]), 4);
        check_ptxas(module);
        tvm_module_free(module);
    }
}
END_TEST

START_TEST(low_bit_codes_are_converted_in_pairs) {
    static const struct {
        const char *type, *to, *candidate;
    } rows[] = {{"u1", "f16", "spliced pairs"},      {"i3", "f16", "spliced pairs"},
                {"u8", "f16", "spliced pairs"},      {"u4", "bf16", "spliced pairs"},
                {"u8", "bf16", "single elements"},   {"f6_e3m2", "f16", "scaled pairs"},
                {"f8_e4m3", "bf16", "scaled pairs"}, {"f8_e7m0", "f16", "single elements"},
                {"f8_e5m2", "f16", "scaled pairs"},  {"u4", "f32", "single elements"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 ".vasm 1\n.kernel k(a: global %s[256], y: global %s[256])\n.warps 1\n.grid 1\n"
                 "%%x = load-global a[0], spatial(32).local(8)\n%%r = cast-lowbit %%x, %s\n"
                 "store-global y[0], %%r\n.end\n",
                 rows[i].type, rows[i].to, rows[i].to);
        tvm_module *module = translate_text(text, "sm_80");
        expect_candidate(module, "%r = cast-lowbit", rows[i].candidate);
        ck_assert_uint_eq(count(module->ptx, "cvt.rn.f16.s32") + count(module->ptx, "cvt.rn.f32.u32"), 0);
        check_ptxas(module);
        tvm_module_free(module);
    }
}
END_TEST

/* ---- mma ---- */

/* The first registers of d, a and c of each mma in the text. */
static unsigned read_mmas(const char *ptx, int d[], int a[], int c[], unsigned capacity) {
    unsigned n = 0;
    for (const char *at = ptx; (at = strstr(at, "mma.sync")) && n < capacity; at++, n++)
        ck_assert_int_eq(
            sscanf(at, "%*s {%%w%d, %*[^}]}, {%%w%d, %*[^}]}, {%*[^}]}, {%%w%d", &d[n], &a[n], &c[n]), 3);
    return n;
}

static void expect_zero(const char *ptx, int word) {
    char text[64];
    snprintf(text, sizeof text, "mov.b32 %%w%d, 0x00000000;", word);
    ck_assert_uint_eq(count(ptx, text), 1);
}

START_TEST(mma_accumulates_in_the_order_of_k) {
    enum { TILES = 2, STEPS = 3, ALL = TILES * STEPS };
    tvm_module *module = translate_text(
        ".vasm 1\n.kernel k(a: global f16[16, 48], b: global f16[48, 16], y: global f32[16, 16])\n.warps 1\n.grid 1\n"
        "%ta = load-global a[0, 0], local(1, 3).mma.m16n8k16.A\n"
        "%tb = load-global b[0, 0], local(3, 2).mma.m16n8k16.B\n"
        "%tc = alloc-register f32[16, 16], layout local(1, 2).mma.m16n8k16.C, init 0.0\n"
        "%td = mma %ta, %tb, %tc\nstore-global y[0, 0], %td\n.end\n",
        "sm_80");
    int d[ALL + 1], a[ALL + 1], c[ALL + 1], last[2] = {-1, -1}, steps[2] = {0, 0};
    ck_assert_uint_eq(read_mmas(module->ptx, d, a, c, ALL + 1), ALL);
    ck_assert_uint_eq(count(module->ptx, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), ALL);
    for (unsigned i = 0; i < ALL; i++) {
        int tile = d[i] != d[0];
        ck_assert_int_gt(a[i], last[tile]); /* the fragment of a holds its steps of k in ascending words */
        last[tile] = a[i];
        /* the first step adds to the zeros where they are, others to what is there */
        if (steps[tile]++ == 0)
            expect_zero(module->ptx, c[i]);
        else
            ck_assert_int_eq(c[i], d[i]);
    }
    ck_assert_int_eq(steps[0], STEPS);
    ck_assert_int_eq(steps[1], STEPS);
    ck_assert_uint_eq(selection_of(module, "%td = mma")->count, ALL);
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

/* ---- reduce ---- */

static tvm_module *translate_reduce(const char *warps, const char *layout, const char *rest) {
    char text[1024];
    snprintf(text, sizeof text,
             ".vasm 7\n.kernel k(y: global f32[1024, 1024], s: f32)\n.warps %s\n.grid 1\n"
             "%%x = alloc-register %s, init s\n%s\nstore-global y[0, 0], %%r\n.end\n",
             warps, layout, rest);
    return translate_text(text, "sm_80");
}

START_TEST(reduce_within_a_warp_uses_shuffles_alone) {
    tvm_module *module =
        translate_reduce("1", "f32[8, 16], layout spatial(8, 4).local(1, 4)", "%r = reduce sum, %x, 1");
    ck_assert_uint_eq(count(module->ptx, "shfl.sync.bfly"), 2);
    ck_assert_uint_eq(count(module->ptx, "add.rn.f32"), 3 + 2);
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 0);
    ck_assert_uint_eq(module->kernels[0].abi.shared_bytes, 0);
    const char *first = strstr(module->ptx, "shfl.sync.bfly"), *second = strstr(first + 1, "shfl.sync.bfly");
    ck_assert_ptr_nonnull(strstr(first, ", 1, 31, "));
    ck_assert_ptr_nonnull(strstr(second, ", 2, 31, "));
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

START_TEST(reduce_across_warps_uses_shared_memory) {
    tvm_module *module =
        translate_reduce("4", "f32[4, 32], layout spatial(4, 32).local(1, 1)", "%r = reduce max, %x, 0");
    ck_assert_uint_eq(count(module->ptx, "shfl.sync"), 0);
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 1);
    ck_assert_uint_eq(count(module->ptx, "ld.shared.f32"), 4);
    ck_assert_uint_ge(module->kernels[0].abi.shared_bytes, 128 * 4);
    check_ptxas(module);
    tvm_module_free(module);
    /* three partial results are not a power of two: one after the other */
    module = translate_reduce("3", "f32[3, 32], layout spatial(3, 32)", "%r = reduce sum, %x, 0");
    ck_assert_uint_eq(count(module->ptx, "ld.shared.f32"), 3);
    ck_assert_str_ne(selection_of(module, "%r = reduce")->refused, "");
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

/* A warp is left with one partial result: eight of them lie side by side, 32 are spread over the lanes. Two
 * reductions take turns with two buffers, so that the barrier of one is enough for both; in a loop the first
 * waits for the readers of the turn before. */
START_TEST(reduce_of_whole_warps_has_one_barrier) {
    tvm_module *module = translate_reduce("8", "f32[1, 256], layout spatial(1, 256)",
                                          "%m = reduce max, %x, 1\n%d = sub %x, %m\n%r = reduce sum, %d, 1");
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 2);
    ck_assert_uint_eq(count(module->ptx, "ld.shared.v4.f32"), 4);
    ck_assert_uint_eq(module->kernels[0].abi.shared_bytes, 2 * 32);
    check_ptxas(module);
    tvm_module_free(module);
    module = translate_reduce("32", "f32[1, 1024], layout spatial(1, 1024)", "%r = reduce sum, %x, 1");
    ck_assert_uint_eq(count(module->ptx, "ld.shared.f32"), 1);
    ck_assert_uint_eq(count(module->ptx, "shfl.sync.bfly"), 10);
    check_ptxas(module);
    tvm_module_free(module);
    module = translate_reduce(
        "8", "i32[1, 256], layout spatial(1, 256)",
        "for %i = 0 to i32(s)\n%q = reduce sum, %x, 1\n%x = add %x, %q\nend\n%r = cast %x, f32");
    ck_assert_uint_eq(count(module->ptx, "redux.sync.add.s32"), 1);
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 2);
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

/* One bool of all threads: no shared memory, and no barrier beside. */
START_TEST(reduce_of_votes_is_the_barrier) {
    static const char *const words[2][2] = {{"any", "bar.red.or.pred"}, {"all", "bar.red.and.pred"}};
    for (unsigned i = 0; i < 2; i++) {
        char rest[128];
        snprintf(rest, sizeof rest,
                 "%%c = compare gt, %%x, 0.0\n%%v = reduce %s, %%c, 1\n%%r = cast %%v, f32", words[i][0]);
        tvm_module *module = translate_reduce("4", "f32[1, 256], layout spatial(1, 128).local(1, 2)", rest);
        ck_assert_uint_eq(count(module->ptx, words[i][1]), 1);
        ck_assert_uint_eq(count(module->ptx, "bar.sync"), 0);
        ck_assert_uint_eq(module->kernels[0].abi.shared_bytes, 0);
        check_ptxas(module);
        tvm_module_free(module);
    }
}
END_TEST

/* By whole threads a word takes one shuffle; by a place the registers move on and one of each thread is
 * shuffled. */
START_TEST(shift_within_a_warp_is_shuffles) {
    tvm_module *module =
        translate_reduce("1", "f32[8, 16], layout spatial(8, 4).local(1, 4)", "%r = shift %x, 1, 4");
    ck_assert_uint_eq(count(module->ptx, "shfl.sync.up.b32"), 4);
    tvm_module_free(module);
    module =
        translate_reduce("1", "f32[8, 16], layout spatial(8, 4).local(1, 4)", "%r = shift %x, 1, 1, back");
    ck_assert_uint_eq(count(module->ptx, "shfl.sync.down.b32"), 1);
    ck_assert_uint_eq(count(module->ptx, "selp.b32"), 1);
    ck_assert_uint_eq(module->kernels[0].abi.shared_bytes, 0);
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

/* 7 outputs a thread: as 4, 2 and 1; 18: in two turns, of 4 times 4 and of 2. */
START_TEST(reduce_exchanges_sixteen_bytes_at_a_time) {
    tvm_module *module =
        translate_reduce("4", "f32[4, 224], layout spatial(4, 32).local(1, 7)", "%r = reduce sum, %x, 0");
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 1);
    for (unsigned width = 1; width <= 4; width *= 2) {
        char store[32], load[32];
        snprintf(store, sizeof store, width == 1 ? "st.shared.f32" : "st.shared.v%u.f32", width);
        snprintf(load, sizeof load, width == 1 ? "ld.shared.f32" : "ld.shared.v%u.f32", width);
        ck_assert_uint_eq(count(module->ptx, store), 1);
        ck_assert_uint_eq(count(module->ptx, load), 4);
    }
    check_ptxas(module);
    tvm_module_free(module);
    module = translate_reduce("2", "f64[2, 576], layout spatial(2, 32).local(1, 18)",
                              "%v = reduce sum, %x, 0\n%r = cast %v, f32");
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 3);
    ck_assert_uint_eq(count(module->ptx, "st.shared.v2.f64"), 9);
    ck_assert_uint_eq(count(module->ptx, "ld.shared.v2.f64"), 18);
    check_ptxas(module);
    tvm_module_free(module);
    /* 6 KB are left of the 163 KB of sm_80: 8 outputs of 128 threads would take 4 KB, 16 take 8 KB */
    module = translate_reduce("4", "f32[4, 512], layout spatial(4, 32).local(1, 16)",
                              "%tile = alloc-shared u8[160768]\n%v = load-shared %tile[0], auto(128, u8)\n"
                              "store-shared %tile[0], %v\n%r = reduce sum, %x, 0");
    ck_assert_uint_eq(count(module->ptx, "bar.sync"), 3);
    ck_assert_uint_le(module->kernels[0].abi.shared_bytes, 163 * 1024);
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

/* ---- the rest ---- */

START_TEST(constants_fill_words) {
    tvm_module *module =
        translate_text(".vasm 1\n.kernel k(y: global u8[32, 3])\n.warps 1\n.grid 1\n"
                       "%x = alloc-register u3[32, 8], layout spatial(32, 1).local(1, 8), init 5\n"
                       "%r = view %x, u8, spatial(32, 1).local(1, 3)\n"
                       "store-global y[0, 0], %r\n.end\n",
                       "sm_80");
    /* eight times 101: 1011 0110 1101 1011 0110 1101 */
    ck_assert_uint_ge(count(module->ptx, "0xb6db6d;"), 1);
    check_ptxas(module);
    tvm_module_free(module);
}
END_TEST

START_TEST(tensors_are_printed_by_vprintf) {
    check_text(
        ".vasm 1\n.kernel k(a: global f16[32, 2], b: global i3[256], c: global u64[32])\n.warps 2\n.grid 1\n"
        "%x = load-global a[0, 0], replicated(2, 2).spatial(32, 1).local(1, 2)\n"
        "%y = load-global b[0], replicated(2).spatial(32).local(8)\n"
        "%z = load-global c[0], replicated(2).spatial(32)\n"
        "for %i = 0 to 4 unroll 2\nprint-tensor %x\nend\nprint-tensor %y\nprint-tensor %z\n.end\n"
        ".kernel other(a: global f32[32])\n.warps 1\n.grid 1\n"
        "%x = load-global a[0], spatial(32)\nprint-tensor %x\n.end\n");
}
END_TEST

START_TEST(the_report_lists_every_instruction) {
    tvm_ir_program *program = assemble(HALVES("f16", "%r = div %x, %x\n"));
    tvm_module *module = translate(program, "sm_90a");
    tvm_diags diags = {0};
    char *report = NULL;
    ck_assert_int_eq(tvm_report(program, module, &report, &diags), TVM_OK);
    ck_assert_ptr_nonnull(strstr(report, "kernel k for sm_90a: 32 threads, 0 bytes of shared memory"));
    ck_assert_ptr_nonnull(strstr(report, "%x = load-global"));
    ck_assert_ptr_nonnull(strstr(report, "%r = div"));
    ck_assert_ptr_nonnull(strstr(report, "no packed division"));
    ck_assert_ptr_nonnull(strstr(report, "has not been compiled"));
    free(report);
    char *ptxas = NULL;
    if (tvm_ptxas_find(&ptxas, NULL) == TVM_OK) {
        ck_assert_int_eq(tvm_ptxas(module, ptxas, &diags), TVM_OK);
        ck_assert_int_eq(tvm_report(program, module, &report, &diags), TVM_OK);
        ck_assert_ptr_nonnull(strstr(report, "0 bytes of spill stores"));
        free(report);
    }
    free(ptxas);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_compute");
    TCase *tests = tcase_create("compute");
    tcase_add_test(tests, every_operation_of_every_type);
    tcase_add_test(tests, every_conversion);
    tcase_add_test(tests, f16_is_computed_in_pairs);
    tcase_add_test(tests, bf16_sums_go_through_fma_where_there_is_no_add);
    tcase_add_test(tests, low_bit_codes_are_converted_in_pairs);
    tcase_add_test(tests, mma_accumulates_in_the_order_of_k);
    tcase_add_test(tests, reduce_within_a_warp_uses_shuffles_alone);
    tcase_add_test(tests, reduce_across_warps_uses_shared_memory);
    tcase_add_test(tests, reduce_of_whole_warps_has_one_barrier);
    tcase_add_test(tests, reduce_of_votes_is_the_barrier);
    tcase_add_test(tests, shift_within_a_warp_is_shuffles);
    tcase_add_test(tests, reduce_exchanges_sixteen_bytes_at_a_time);
    tcase_add_test(tests, constants_fill_words);
    tcase_add_test(tests, tensors_are_printed_by_vprintf);
    tcase_add_test(tests, the_report_lists_every_instruction);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
