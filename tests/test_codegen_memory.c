/* Translation of what moves data, and of control: the candidates selected, bounds that are proven away, the
 * plan of shared memory; and the generated code run on a machine of its own against the interpreter. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "interp.h"
#include "launch.h"
#include "ptx_machine.h"
#include "ptxas_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a"};
enum { TARGETS = sizeof targets / sizeof targets[0], MARGIN = 64, MARGIN_BYTE = 0x5a };

/* ---- helpers ---- */

static tvm_status try_translate(const tvm_ir_program *program, const char *target_name, tvm_module **module,
                                tvm_diags *diags) {
    tvm_target target;
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    return tvm_translate(program, target, module, diags);
}

static tvm_module *translate_text(const char *text) {
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_90a");
    tvm_ir_program_free(program);
    return module;
}

/* The selection of the first instruction whose name holds `part`. */
static const tvm_selection *selection(const tvm_module *module, const char *part) {
    const tvm_kernel_code *code = &module->kernels[0];
    for (size_t i = 0; i < code->selection_count; i++)
        if (strstr(code->selections[i].instruction, part)) return &code->selections[i];
    ck_abort_msg("nothing was said of %s", part);
    return NULL;
}

static unsigned occurrences(const char *text, const char *part) {
    unsigned count = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) count++;
    return count;
}

/* ---- selection ---- */

typedef struct selection_row {
    const char *body;   /* of a kernel of 4 warps: x f16[m, n], y f32[m, n], q u3[m, n] (makes n a multiple of
                           8),   z f32[m, n], c u8[m, 48] */
    const char *assume; /* "" or ".assume ..." */
    const char *instruction; /* whose selection is looked at */
    const char *candidate;
    unsigned bits;
    unsigned count;
    int conflicts;
    const char *refused; /* part of the reason, "" for none at all */
} selection_row;

#define ALL               ".assume m % 64 == 0, n % 64 == 0"
#define COPY(tile, warps) "copy-async %s[0, 0], x[block.y * 64, block.x * 64], [" tile "], warps [" warps "]"
#define PUT(layout)                                                                                          \
    "%v = alloc-register f32[64, 64], " layout ", init 1.0\nput-global z[block.y * 64, block.x * 64], %v"
#define TAKE(layout) "%v = take-global z[block.y * 64, block.x * 64], " layout
#define FRAGMENT_A   "replicated(4, 2).local(1, 4).mma.m16n8k16.A"
#define FRAGMENT_B   "spatial(1, 4).local(4, 2).mma.m16n8k16.B"

static const selection_row selection_rows[] = {
    /* Whole tiles: 128 bits, nothing guarded. */
    {"%v = load-global y[block.y * 64, block.x * 64], auto(64, 64)", ALL, "load-global", "ld.global.v4.b32",
     128, 8, -1, ""},
    {"%v = load-global x[block.y * 64, block.x * 64], auto(64, 64, f16)", ALL, "load-global",
     "ld.global.v4.b32", 128, 4, -1, ""},
    /* Rows may be cut off anywhere: guarded by rows, still wide. */
    {"%v = load-global y[block.y * 64, block.x * 64], auto(64, 64)", ".assume n % 64 == 0", "load-global",
     "ld.global.v4.b32 guarded", 128, 8, -1, ""},
    /* Columns in steps of 8. */
    {"%v = load-global y[block.y * 64, block.x * 64], auto(64, 64)", ".assume n % 8 == 0", "load-global",
     "ld.global.v4.b32 guarded", 128, 8, -1, ""},
    /* An even row: no more than two f32 are known to be aligned, which is tested where the kernel runs. */
    {"%v = load-global y[block.y * 64, block.x * 64], auto(64, 64)", ".assume n % 2 == 0", "load-global",
     "ld.global.v4.b32, or by elements", 128, 8, -1, ""},
    {"%v = load-global y[block.y * 64, block.x * 64], auto(64, 64)", "", "load-global",
     "ld.global.v4.b32, or by elements", 128, 8, -1, ""},
    /* Eight u3 are three bytes. */
    {"%v = load-global q[block.y * 64, block.x * 64], spatial(16, 8).local(4, 8)", ALL, "load-global",
     "ld.global.u8", 8, 12, -1, "multiples of 8 bits"},
    /* 64 of them are 24 bytes: three pieces of 8 where a block's start is known to be a multiple of that. */
    {"%v = load-global q[block.y * 128, block.x * 64], spatial(128, 1).local(1, 64)",
     ".assume m % 128 == 0, n % 64 == 0", "load-global", "ld.global.v2.b32 guarded", 64, 3, -1,
     "multiples of 64 bits"},
    {"%v = load-global q[block.y * 64, block.x * 64], spatial(2, 64).local(32, 1)", ALL, "load-global",
     "ld.global.u8 by element", 8, 64, -1, "begin inside bytes"},
    /* Constant rows run on: 48 bytes of a row, two rows to each thread are one run. */
    {"%v = load-global c[block.x * 256, 0], spatial(128, 1).local(2, 48)", ".assume m % 256 == 0",
     "load-global", "ld.global.v4.b32 guarded", 128, 6, -1, ""},
    {"%v = load-global y[block.y * 64, block.x * 64], auto(64, 64)\nstore-global z[block.y * 64, block.x * 64], %v",
     ALL, "store-global", "st.global.v4.b32", 128, 8, -1, ""},
    /* Tiles put and taken are as wide, and guarded, as those stored and loaded. */
    {PUT("auto(64, 64)"), ALL, "put-global", "st.relaxed.gpu.global.v4.b32", 128, 8, -1, ""},
    {PUT("auto(64, 64)"), ".assume n % 2 == 0", "put-global", "st.relaxed.gpu.global.v2.b32 guarded", 64, 16,
     -1, "st.relaxed.gpu.global.v4.b32: addresses are known to be multiples of 64 bits"},
    {PUT("auto(64, 64)"), "", "put-global", "st.relaxed.gpu.global.b32 guarded", 32, 32, -1,
     "multiples of 32 bits"},
    {TAKE("auto(64, 64)"), ALL, "take-global", "ld.relaxed.gpu.global.v4.b32", 128, 8, -1, ""},
    {TAKE("auto(64, 64)"), ".assume n % 4 == 0", "take-global", "ld.relaxed.gpu.global.v4.b32 guarded", 128,
     8, -1, ""},
    {TAKE("auto(64, 64)"), "", "take-global", "ld.relaxed.gpu.global.b32 guarded", 32, 32, -1,
     "ld.relaxed.gpu.global.v4.b32: addresses are known to be multiples of 32 bits"},
    {TAKE("spatial(2, 64).local(32, 1)"), ALL, "take-global", "ld.relaxed.gpu.global.b32", 32, 32, -1,
     "multiples of 32 bits"},
    /* ldmatrix, and why not. */
    {"%s = alloc-shared f16[16, 64]\n%v = load-shared %s[0, 0], " FRAGMENT_A, "", "load-shared",
     "ldmatrix.x4", 128, 4, 0, ""},
    {"%s = alloc-shared f16[16, 64], row_major\n%v = load-shared %s[0, 0], " FRAGMENT_A, "", "load-shared",
     "ldmatrix.x4", 128, 4, 28, ""},
    {"%s = alloc-shared f16[64, 64]\n%v = load-shared %s[0, 0], " FRAGMENT_B, "", "load-shared",
     "ldmatrix.x4.trans", 128, 4, 0, ""},
    {"%s = alloc-shared f16[16, 68], row_major\n%v = load-shared %s[0, 0], " FRAGMENT_A, "", "load-shared",
     "ld.shared.b32", 32, 16, 1, "16 contiguous, aligned bytes"},
    {"%s = alloc-shared f16[64, 32]\n%v = load-shared %s[0, 0], auto(64, 32, f16)", "", "load-shared",
     "ld.shared.v4.b32", 128, 2, 0, "no multiple of the 8x8 fragment"},
    {"%s = alloc-shared f32[32, 128], row_major\n%v = load-shared %s[0, 0], column_spatial(32, 4).local(1, 32)",
     "", "load-shared", "ld.shared.v4.b32", 128, 8, 28, ""},
    {"%s = alloc-shared u8[1, 1024]\n%v = load-shared %s[0, 0], local(1, 8).spatial(1, 128)", "",
     "load-shared", "ld.shared.u8", 8, 8, 0, "have 8 bits"},
    /* copy-async: 16 bytes, less where a row is aligned less, and by element where nothing is. */
    {"%s = alloc-shared f16[64, 64]\ncopy-async %s[0, 0], x[block.y * 64, block.x * 64], [64, 64]", ALL,
     "copy-async", "cp.async.cg 16", 128, 4, 0, ""},
    {"%s = alloc-shared f16[64, 64]\ncopy-async %s[0, 0], x[block.y * 64, block.x * 64], [64, 64]",
     ".assume n % 8 == 0", "copy-async", "cp.async.cg 16 guarded", 128, 4, 0, ""},
    {"%s = alloc-shared f16[64, 64]\ncopy-async %s[0, 0], x[block.y * 64, block.x * 64], [64, 64]",
     ".assume n % 4 == 0", "copy-async", "cp.async.ca 8 guarded", 64, 8, 0,
     "cp.async 16: global addresses are known to be multiples of 8 bytes"},
    {"%s = alloc-shared f16[64, 64]\ncopy-async %s[0, 0], x[block.y * 64, block.x * 64], [64, 64]",
     ".assume n % 2 == 0", "copy-async", "cp.async.ca 4 guarded", 32, 16, 0, "multiples of 4 bytes"},
    {"%s = alloc-shared f16[64, 64]\ncopy-async %s[0, 0], x[block.y * 64, block.x * 64], [64, 64]", "",
     "copy-async", "ld.global and st.shared by element", 16, 64, -1,
     "cp.async 4: global addresses are known to be multiples of 2 bytes"},
    /* by four warps: a part's rows are what has to be aligned, its chunks what 32 lanes take in turns */
    {"%s = alloc-shared f16[64, 64]\n" COPY("64, 64", "4, 1"), ALL, "copy-async", "cp.async.cg 16", 128, 4, 0,
     ""},
    {"%s = alloc-shared f16[64, 64]\n" COPY("64, 64", "2, 2"), ".assume n % 8 == 0", "copy-async",
     "cp.async.cg 16 guarded", 128, 4, 4, ""},
    {"%s = alloc-shared f16[4, 64]\n" COPY("4, 64", "4, 1"), ALL, "copy-async", "cp.async.cg 16", 128, 1, 0,
     ""},
    {"%s = alloc-shared f16[12, 24], row_major\n" COPY("12, 24", "4, 1"), ALL, "copy-async", "cp.async.cg 16",
     128, 1, 0, ""},
    {"%s = alloc-shared f16[64, 16], row_major\n" COPY("64, 16", "1, 4"), ALL, "copy-async", "cp.async.ca 8",
     64, 2, 6, "cp.async 16: the tile's rows are no multiple of 16 bytes"},
    {"%s = alloc-shared f16[64, 8], row_major\n" COPY("64, 8", "1, 4"), ALL, "copy-async", "cp.async.ca 4",
     32, 2, 3, "cp.async 8: the tile's rows are no multiple of 8 bytes"},
    {"%s = alloc-shared f16[64, 12], row_major\n" COPY("64, 12", "1, 4"), ALL, "copy-async",
     "ld.global and st.shared by element", 16, 12, -1,
     "cp.async 4: the tile's rows are no multiple of 4 bytes"},
    {"%s = alloc-shared f16[64, 64], swizzle(2, 2, 3)\ncopy-async %s[0, 0], x[block.y * 64, block.x * 64], [64, 64]",
     ALL, "copy-async", "cp.async.ca 8", 64, 8, 0, "16 bytes of a row are not contiguous in shared memory"},
};

static void check_selection(const selection_row *row) {
    char text[1024];
    snprintf(
        text, sizeof text,
        ".vasm 1\n.kernel f(m: i32, n: i32, x: global f16[m, n], y: global f32[m, n], q: global %s[m, n],\n"
        "z: global f32[m, n], c: global u8[m, 48])\n.warps 4\n.grid cdiv(n, 64), cdiv(m, 64)\n%s\n%s\n.end\n",
        strstr(row->body, "q[") ? "u3" : "u8", row->assume, row->body);
    tvm_module *module = translate_text(text);
    const tvm_selection *s = selection(module, row->instruction);
    ck_assert_msg(strcmp(s->candidate, row->candidate) == 0, "%s: %s instead of %s (%s)", row->body,
                  s->candidate, row->candidate, s->refused);
    ck_assert_msg(s->bits == row->bits && s->count == row->count && s->conflicts == row->conflicts,
                  "%s: %u bits, %u, %d conflicts", row->body, s->bits, s->count, s->conflicts);
    ck_assert_msg(row->refused[0] ? strstr(s->refused, row->refused) != NULL : !s->refused[0],
                  "%s: refused '%s'", row->body, s->refused);
    tvm_module_free(module);
}

START_TEST(the_widest_candidate_that_fits_is_taken) {
    check_selection(&selection_rows[_i]);
}
END_TEST

/* ---- bounds ---- */

typedef struct bounds_row {
    const char *head; /* .grid and .assume */
    const char *body;
    bool guarded;
} bounds_row;

/* y f32[m, n] over one warp; a tile is 4 by 32. */
static const bounds_row bounds_rows[] = {
    {".grid n / 32, m / 4", "%v = load-global y[block.y * 4, block.x * 32], auto(4, 32)", false},
    {".grid cdiv(n, 32), cdiv(m, 4)", "%v = load-global y[block.y * 4, block.x * 32], auto(4, 32)", true},
    {".grid 1\n.assume m % 4 == 0, n % 32 == 0",
     "for %i = 0 to m step 4\nfor %j = 0 to n step 32\n%v = load-global y[%i, %j], auto(4, 32)\nend\nend",
     false},
    {".grid 1\n.assume m % 4 == 0, n % 32 == 0",
     "for %i = 0 to m step 4\nfor %j = 0 to n step 16\n%v = load-global y[%i, %j], auto(4, 32)\nend\nend",
     true},
    {".grid 1\n.assume m % 4 == 0, n % 32 == 0",
     "%t = n / 32\nfor %j = 0 to %t\n%a = %j + 1\nif %a < %t\n%v = load-global y[0, %a * 32], auto(1, 32)\nend\nend",
     true},
    {".grid 1\n.assume m >= 4, n % 32 == 0",
     "%t = n / 32\nfor %j = 0 to %t\n%a = %j + 1\nif %a < %t\n%v = load-global y[3, %a * 32], auto(1, 32)\nend\nend",
     false},
    {".grid m / 4, cdiv(n, 64)\n.assume n % 32 == 0",
     "%e = min(n, (block.y + 1) * 64)\nfor %j = block.y * 64 to %e step 32\n"
     "%v = load-global y[block.x * 4, %j], auto(4, 32)\n"
     "end",
     false},
    {".grid (m / 4) * (n / 32)",
     "%p = m / 4\n%v = load-global y[block.x % %p * 4, block.x / %p * 32], auto(4, 32)", false},
    {".grid m / 4\n.assume n >= 33", "%v = load-global y[block.x * 4, 1], auto(4, 32)", false},
    {".grid m / 4\n.assume n >= 32", "%v = load-global y[block.x * 4, 1], auto(4, 32)", true},
    {".grid m / 4\n.assume n % 32 == 0",
     "%i = 0\nwhile %i < n\n%v = load-global y[block.x * 4, %i], auto(4, 32)\n%i = %i + 32\nend", true},
};

START_TEST(a_tile_is_guarded_only_where_it_may_cross_an_edge) {
    const bounds_row *row = &bounds_rows[_i];
    char text[1024];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel f(m: i32, n: i32, y: global f32[m, n])\n.warps 1\n%s\n%s\n.end\n", row->head,
             row->body);
    tvm_module *module = translate_text(text);
    const char *candidate = selection(module, "load-global")->candidate;
    /* what may be done by elements is tested by elements */
    bool guarded = strstr(candidate, "guarded") != NULL || strstr(candidate, "or by elements") != NULL;
    ck_assert_msg(guarded == row->guarded, "%s\n%s: %s", row->head, row->body, candidate);
    tvm_module_free(module);
}
END_TEST

/* ---- shared memory, unrolling, targets ---- */

START_TEST(freed_shared_memory_is_used_again_after_a_barrier) {
    tvm_module *module =
        translate_text(".vasm 1\n.kernel f()\n.warps 1\n.grid 1\n%a = alloc-shared f32[256]\n"
                       "%b = alloc-shared f32[64]\nfree-shared %a\n%c = alloc-shared f32[128]\n"
                       "%d = alloc-shared f32[128]\n.end\n");
    ck_assert_uint_eq(module->kernels[0].abi.shared_bytes, 1024 + 256);
    ck_assert_uint_eq(occurrences(module->ptx, "bar.sync"), 2);
    tvm_module_free(module);
}
END_TEST

/* A block has 163 KiB on sm_80, 99 KiB on sm_89. big, which prints, and small are variants of one entry. */
#define BIG                                                                                                      \
    ".kernel big()\n.warps 1\n.grid 1\n%a = alloc-shared f32[40000]\n%v = alloc-register f32[32], spatial(32), " \
    "init 0.0\nprint-tensor %v\n.end\n"
#define SMALL ".kernel small()\n.warps 1\n.grid 1\n%a = alloc-shared f32[64]\n.end\n"
static const struct too_big {
    const char *text, *message; /* NULL: the module is of use */
} too_big[] = {
    {BIG SMALL ".entry f\n.case big\n.case small\n.end\n", NULL},
    {BIG SMALL ".entry f\n.case small\n.end\n",
     "kernel big needs 160248 bytes of shared memory; a block on sm_89 has"},
    {BIG SMALL, "kernel big needs 160248 bytes of shared memory"},
    {BIG SMALL ".entry f\n.case big\n.end\n.entry g\n.case small\n.end\n",
     "of entry f no variant fits: kernel big needs 160248 bytes of shared memory"},
};
enum { TOO_BIG = sizeof too_big / sizeof *too_big };

START_TEST(kernels_that_a_target_cannot_hold_are_left_out) {
    char text[1024];
    snprintf(text, sizeof text, ".vasm 1\n%s", too_big[_i].text);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = NULL;
    tvm_diags diags = {0};
    ck_assert_int_eq(try_translate(program, "sm_80", &module, &diags), TVM_OK);
    ck_assert_uint_eq(module->kernels[0].abi.absence, TVM_ABI_PRESENT);
    ck_assert_int_eq(tvm_module_check(program, module, &diags), TVM_OK);
    tvm_module_free(module);
    ck_assert_int_eq(try_translate(program, "sm_89", &module, &diags), TVM_OK);
    ck_assert_uint_eq(module->kernels[0].abi.absence, TVM_ABI_TOO_BIG);
    ck_assert_uint_eq(module->kernels[0].abi.shared_bytes, 160248);
    ck_assert_uint_eq(module->kernels[1].abi.absence, TVM_ABI_PRESENT);
    ck_assert_ptr_null(strstr(module->ptx, "big"));
    ck_assert_ptr_null(strstr(module->ptx, "vprintf"));
    ck_assert_ptr_nonnull(strstr(module->ptx, ".entry small("));
    tvm_status status = tvm_module_check(program, module, &diags);
    ck_assert_int_eq(status, too_big[_i].message ? TVM_UNSUPPORTED : TVM_OK);
    if (status) ck_assert_ptr_nonnull(strstr(diags.items[0].message, too_big[_i].message));
    tvm_diags_free(&diags);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* What reduce passes through shared memory counts, and is less where little is left. */
START_TEST(shared_memory_is_known_before_translation) {
    static const char *const texts[] = {
        ".vasm 1\n.kernel f()\n.warps 1\n.grid 1\n.end\n",
        ".vasm 1\n.kernel f(x: global f32[128])\n.warps 4\n.grid 1\n%a = alloc-shared f32[100]\n"
        "%v = load-global x, spatial(128)\n%s = reduce sum, %v, 0\nstore-global x, %s\n.end\n",
        ".vasm 1\n.kernel f(x: global f32[128, 64])\n.warps 4\n.grid 1\n%a = alloc-shared f32[24000]\n"
        "%v = load-global x, spatial(128, 1).local(1, 64)\n%s = reduce sum, %v, 0\nstore-global x, %s\n.end\n"};
    for (unsigned i = 0; i < 3; i++) {
        tvm_ir_program *program = assemble(texts[i]);
        const tvm_target sm_89 = {89, '\0'};
        tvm_module *module = NULL;
        uint64_t bytes = 1;
        ck_assert_int_eq(try_translate(program, "sm_89", &module, NULL), TVM_OK);
        ck_assert_int_eq(tvm_kernel_shared_bytes(program, &program->kernels[0], sm_89, &bytes, NULL), TVM_OK);
        ck_assert_uint_eq(bytes, module->kernels[0].abi.shared_bytes);
        ck_assert_uint_le(bytes, tvm_target_shared_bytes(sm_89));
        ck_assert_int_eq(bytes == 0, i == 0);
        tvm_module_free(module);
        tvm_ir_program_free(program);
    }
}
END_TEST

static unsigned bodies(const char *loop) {
    char text[512];
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel f(n: i32)\n.warps 1\n.grid 1\n.assume n %% 8 == 0\n%s\nsync\nend\n.end\n",
             loop);
    tvm_module *module = translate_text(text);
    unsigned count = occurrences(module->ptx, "bar.sync");
    tvm_module_free(module);
    return count;
}

START_TEST(loops_are_unrolled_as_asked) {
    ck_assert_uint_eq(bodies("for %i = 0 to 5"), 1);
    ck_assert_uint_eq(bodies("for %i = 0 to 5 unroll 5"), 5);
    ck_assert_uint_eq(bodies("for %i = 0 to 5 unroll 16"), 5);
    ck_assert_uint_eq(bodies("for %i = 0 to 5 unroll 2"), 2);
    ck_assert_uint_eq(bodies("for %i = 0 to n unroll 4"), 4);
    ck_assert_uint_eq(bodies("for %i = 3 to 3 unroll 4"), 0);
    /* However much is asked for, the code stays bounded. */
    unsigned count = bodies("for %i = 0 to n unroll 1024\nfor %j = 0 to n unroll 1024\nsync\nend");
    ck_assert_uint_ge(count, 1024);
    ck_assert_uint_lt(count, 50000);
}
END_TEST

START_TEST(targets_are_known_by_name_and_by_device) {
    tvm_target target;
    char name[16];
    tvm_diags diags = {0};
    for (unsigned i = 0; i < TARGETS; i++) {
        ck_assert_int_eq(tvm_target_parse(targets[i], &target, NULL), TVM_OK);
        ck_assert_str_eq(tvm_target_name(target, name), targets[i]);
    }
    ck_assert_int_eq(tvm_target_for_device(9, 0, &target, NULL), TVM_OK);
    ck_assert_str_eq(tvm_target_name(target, name), "sm_90a");
    ck_assert_int_eq(tvm_target_for_device(8, 9, &target, NULL), TVM_OK);
    ck_assert_str_eq(tvm_target_name(target, name), "sm_89");
    ck_assert_int_eq(tvm_target_parse("sm_7000", &target, &diags), TVM_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "sm_90a"));
    ck_assert_int_eq(tvm_target_for_device(5, 0, &target, &diags), TVM_UNSUPPORTED);
    tvm_diags_free(&diags);
}
END_TEST

/* ---- against the interpreter ---- */

typedef struct run_row {
    const char *types; /* element types of x and z */
    const char *head;  /* .warps, .grid, .assume */
    const char *body;
    int m, n;
} run_row;

static const run_row run_rows[] = {
    {"f32 f32", ".warps 1\n.grid cdiv(n, 32), cdiv(m, 8)",
     "%v = load-global x[block.y * 8 - 1, block.x * 32 + 3], spatial(4, 8).local(2, 4)\n"
     "store-global z[block.y * 8, block.x * 32 - 5], %v",
     13, 45},
    {"f16 f16", ".warps 2\n.grid cdiv(n, 32), cdiv(m, 16)\n.assume n % 4 == 0",
     "%v = load-global x[block.y * 16, block.x * 32], spatial(1, 2).column_local(4, 2).column_spatial(4, 8)\n"
     "store-global z[block.y * 16, block.x * 32], %v",
     21, 44},
    {"u3 f32", ".warps 1\n.grid cdiv(n, 32), cdiv(m, 4)",
     "%v = load-global x[block.y * 4, block.x * 32 - 5], local(4, 1).spatial(1, 32)\n%w = cast-lowbit %v, f32\n"
     "store-global z[block.y * 4, block.x * 32], %w",
     7, 40},
    {"u5 u5", ".warps 1\n.grid cdiv(n, 64), m / 4",
     "%v = load-global x[block.y * 4, block.x * 64], spatial(4, 8).local(1, 8)\n"
     "store-global z[block.y * 4, block.x * 64], %v",
     8, 72},
    {"u1 f16", ".warps 1\n.grid cdiv(n, 32), m",
     "%v = load-global x[block.y, block.x * 32], spatial(1, 32)\n%w = cast-lowbit %v, f16\n"
     "store-global z[block.y, block.x * 32], %w",
     3, 48},
    {"f64 f64", ".warps 1\n.grid cdiv(n, 16), cdiv(m, 16)",
     "%s = alloc-shared f64[16, 16]\n%v = load-global x[block.y * 16, block.x * 16], auto(16, 16)\n"
     "store-shared %s[0, 0], %v\nsync\n"
     "%t = load-shared %s[0, 0], column_local(1, 8).column_spatial(16, 2)\n"
     "store-global z[block.y * 16, block.x * 16], %t",
     18, 17},
    {"u8 u8", ".warps 1\n.grid 1",
     "%s = alloc-shared u8[2, 16, 32], shared([2, 16, 32], [2, 16, 4, 8], [512, 8, 128, 1])\n%i = m % 2\n"
     "%v = load-global x[0, 0], auto(16, 32)\nstore-shared %s[%i, 0, 0], %v\nsync\n"
     "%t = load-shared %s[%i, 0, 0], local(16, 1).spatial(1, 32)\nstore-global z[0, 0], %t",
     15, 31},
    {"f16 f16", ".warps 2\n.grid cdiv(n, 64), cdiv(m, 32)\n.assume n % 8 == 0",
     "%s = alloc-shared f16[3, 32, 64]\n%i = (block.x + block.y + 2) % 3\n"
     "copy-async %s[%i], x[block.y * 32, block.x * 64]\ncommit-group\nwait-group 0\nsync\n"
     "for %k = 0 to 64 step 16\n%v = load-shared %s[%i, 0, %k], spatial(2, 1).mma.m16n8k16.A\n"
     "store-global z[block.y * 32, block.x * 64 + %k], %v\nend",
     41, 72},
    {"bf16 bf16", ".warps 1\n.grid cdiv(n, 32), cdiv(m, 32)\n.assume n % 2 == 0",
     "%s = alloc-shared bf16[32, 32], swizzle(1, 2, 4)\n"
     "copy-async %s[0, 0], x[block.y * 32, block.x * 32], [32, 32]\ncommit-group\nwait-group 0\nsync\n"
     "for %k = 0 to 32 step 16 unroll 2\n%v = load-shared %s[%k, 0], local(1, 4).mma.m16n8k16.B\n"
     "store-global z[block.y * 32 + %k, block.x * 32], %v\nend",
     35, 38},
    {"f16 f16", ".warps 1\n.grid 1",
     "%s = alloc-shared f16[5, 13]\ncopy-async %s[0, 0], x[1, 2], [5, 13]\ncommit-group\nwait-group 0\nsync\n"
     "for %i = 0 to 5\n%v = load-shared %s[%i, 0], replicated(32, 2).local(1, 13)\nstore-global z[%i, 0], %v\nend",
     4, 14},
    {"i32 i32", ".warps 1\n.grid 2",
     "%acc = alloc-register i32[1, 32], auto(1, 32), init 0\n%i = 0\nwhile %i < m\nif %i == 3\n%i = %i + 2\n"
     "continue\nend\n"
     "for %j = 0 to n step 32 unroll 3\nif %j + %i > 96\nbreak\nelse\n%v = load-global x[%i, %j], auto(1, 32)\n"
     "%acc = add %acc, %v\n%acc = mul %acc, %j + 1\nend\nend\n%i = %i + 1\nend\nstore-global z[block.x, 0], %acc",
     9, 150},
    {"i32 i32", ".warps 1\n.grid 1",
     "%acc = alloc-register i32[1, 32], auto(1, 32), init 0\n%k = 5\nfor %i = 2147483640 to 2147483647 step 4\n"
     "%k = %k + 1\nend\n"
     "for %i2 = 0 to 7 unroll 7\n%k = %k * 2 - %i2\nif %i2 == n\nbreak\nend\nend\n%acc = add %acc, %k\n"
     "store-global z[0, 0], %acc",
     1, 4},
    /* put and taken by the threads in another order: whole tiles, */
    {"f32 f32", ".warps 1\n.grid n / 32, m / 4",
     "%v = load-global x[block.y * 4, block.x * 32], spatial(4, 8).local(1, 4)\n"
     "put-global z[block.y * 4, block.x * 32], %v\nsync\n"
     "%w = take-global z[block.y * 4, block.x * 32], local(4, 1).spatial(1, 32)\nsync\n"
     "put-global z[block.y * 4, block.x * 32], %w",
     8, 64},
    /* in pairs, cut off at the edge, each element held by threads of both warps and by two of one, */
    {"f32 f32", ".warps 2\n.grid cdiv(n, 32), cdiv(m, 4)\n.assume n % 2 == 0",
     "%v = load-global x[block.y * 4, block.x * 32], replicated(2, 2).spatial(2, 8).replicated(2, 2).local(2, 4)\n"
     "put-global z[block.y * 4, block.x * 32 - 6], %v\n"
     "%w = take-global z[block.y * 4, block.x * 32 - 6], spatial(2, 1).replicated(2, 2).spatial(1, 8).local(1, 2)."
     "replicated(2, 2).local(2, 2)\n"
     "sync\nput-global z[block.y * 4, block.x * 32 - 6], %w",
     7, 38},
    /* and one by one, around a tensor's corners and outside of it. */
    {"f32 f32", ".warps 1\n.grid cdiv(n, 32) + 2, cdiv(m, 8) + 2",
     "%v = load-global x[block.y * 8 - 9, block.x * 32 - 35], spatial(4, 8).local(2, 4)\n"
     "put-global z[block.y * 8 - 9, block.x * 32 - 35], %v\n"
     "for %i = 0 to 2\n%w = take-global z[block.y * 8 - 9 + %i * 4, block.x * 32 - 35], spatial(4, 8).local(1, 4)\n"
     "sync\nput-global z[block.y * 8 - 9 + %i * 4, block.x * 32 - 35], %w\nend",
     13, 45},
};

/* A tensor with margins, so that anything read or written beside it shows. */
static uint8_t *with_margins(const uint8_t *data, uint64_t bytes) {
    uint8_t *block = aligned_alloc(64, (bytes + 2 * MARGIN + 63) / 64 * 64);
    ck_assert_ptr_nonnull(block);
    memset(block, MARGIN_BYTE, bytes + 2 * MARGIN);
    if (data)
        memcpy(block + MARGIN, data, bytes);
    else
        memset(block + MARGIN, 0, bytes);
    return block;
}

static void check_margins(const uint8_t *block, uint64_t bytes) {
    for (unsigned i = 0; i < MARGIN; i++) {
        ck_assert_uint_eq(block[i], MARGIN_BYTE);
        ck_assert_uint_eq(block[MARGIN + bytes + i], MARGIN_BYTE);
    }
}

static void run_ptx(const tvm_module *module, const tvm_interp_arg *args, unsigned count,
                    const uint32_t grid[3]) {
    ptx_machine m = ptx_load(module->ptx, "f", module->kernels[0].abi.threads);
    memcpy(m.grid, grid, sizeof m.grid);
    for (unsigned i = 0; i < count; i++)
        m.params[i] = args[i].data ? (uint64_t)(uintptr_t)args[i].data : args[i].scalar.u;
    for (uint32_t y = 0; y < grid[1]; y++)
        for (uint32_t x = 0; x < grid[0]; x++) {
            m.block[0] = x;
            m.block[1] = y;
            ptx_run(&m);
        }
    ptx_free(&m);
}

static void run_interpreter(const tvm_ir_program *program, const tvm_interp_arg *args,
                            const uint32_t grid[3]) {
    tvm_diags diags = {0};
    tvm_interp_kernel *prepared = NULL;
    tvm_interp_options options = {.threads = 1};
    ck_assert_int_eq(tvm_interp_prepare(program, &program->kernels[0], &prepared, &diags), TVM_OK);
    tvm_status status = tvm_interp_run(prepared, args, grid, &options, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tvm_interp_free(prepared);
    tvm_diags_free(&diags);
}

static tvm_ir_program *assemble_row(const run_row *row) {
    char text[2048], x[8], z[8];
    ck_assert_int_eq(sscanf(row->types, "%7s %7s", x, z), 2);
    snprintf(text, sizeof text,
             ".vasm 1\n.kernel f(m: i32, n: i32, x: global %s[m, n], z: global %s[m, n])\n%s\n%s\n.end\n", x,
             z, row->head, row->body);
    return assemble(text);
}

/* Elements that every type holds, all different from their neighbours. */
static void fill(uint8_t *data, tvm_dtype type, uint64_t elements) {
    for (uint64_t i = 0; i < elements; i++) {
        uint64_t code =
            type.bits < 16 ? (i * 7 + i / 5) & ((1U << type.bits) - 1) : tvm_encode(type, (double)(i % 997));
        tvm_bits_set(data, i * type.bits, type.bits, code);
    }
}

START_TEST(the_generated_code_does_what_the_interpreter_does) {
    const run_row *row = &run_rows[_i];
    tvm_ir_program *program = assemble_row(row);
    const tvm_ir_kernel *kernel = &program->kernels[0];
    tvm_scalar scalars[4] = {{.i = row->m}, {.i = row->n}, {0}, {0}};
    tvm_launch_env env = {.scalars = scalars, .multiprocessors = 1};
    ck_assert_int_eq(tvm_launch_check(program, kernel, &env, NULL), TVM_OK);
    const uint32_t *grid = env.grid;
    uint64_t elements = (uint64_t)row->m * (uint64_t)row->n;
    uint64_t x_bytes = elements * kernel->slots[2].dtype.bits / 8,
             z_bytes = elements * kernel->slots[3].dtype.bits / 8;
    uint8_t *x = with_margins(NULL, x_bytes), *want = with_margins(NULL, z_bytes);
    fill(x + MARGIN, kernel->slots[2].dtype, elements);
    tvm_interp_arg args[4] = {
        {.scalar = scalars[0]}, {.scalar = scalars[1]}, {.data = x + MARGIN}, {.data = want + MARGIN}};
    run_interpreter(program, args, grid);
    for (unsigned t = 0; t < TARGETS; t++) {
        tvm_module *module = translate(program, targets[t]);
        uint8_t *found = with_margins(NULL, z_bytes);
        args[3].data = found + MARGIN;
        run_ptx(module, args, 4, grid);
        for (uint64_t i = 0; i < z_bytes; i++)
            ck_assert_msg(found[MARGIN + i] == want[MARGIN + i], "%s:\n%s\nbyte %llu is %02x, not %02x",
                          targets[t], row->body, (unsigned long long)i, found[MARGIN + i], want[MARGIN + i]);
        check_margins(found, z_bytes);
        free(found);
        tvm_module_free(module);
    }
    free(x);
    free(want);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- prefetches ---- */

/* A gather that nobody reads, of rows of which some are outside: [64, 400] bytes of x[n, 400], or of each row
 * of them the first element of y[n, 3]. */
static const struct prefetch_row {
    const char *target, *gather;
    unsigned count; /* of instructions */
} prefetch_rows[] = {
    {"sm_90a", "x[%row, 0], layout spatial(32, 1).local(2, 400)", 8},
    {"sm_90a", "x[%row, 0], layout spatial(32, 1).local(2, 8)", 2},
    {"sm_80", "x[%row, 0], layout spatial(32, 1).local(2, 400)", 8},
    {"sm_80", "y[%row, 0], layout spatial(32, 1).local(2, 1)", 2},
};

START_TEST(a_gather_that_nobody_reads_is_a_prefetch) {
    const struct prefetch_row *row = &prefetch_rows[_i];
    enum { ROWS = 40 };
    _Alignas(16) static uint8_t x[ROWS * 400];
    static float y[ROWS * 3];
    char text[512];
    snprintf(
        text, sizeof text,
        ".vasm 3\n.kernel f(n: i32, x: global u8[n, 400], y: global f32[n, 3])\n.warps 1\n.grid 1\n"
        "%%row = iota(i32[64, 1], axis 0, layout spatial(32, 1).local(2, 1)) - 5\n%%near = gather %s\n.end\n",
        row->gather);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, row->target);
    const char *ptx = module->ptx;
    ck_assert_msg(occurrences(ptx, "prefetch.global.L2 [") == row->count, "%s\n%s", row->gather, ptx);
    ck_assert_msg(!strstr(ptx, "ld.global"), "%s", ptx);
    ptx_machine m = ptx_load(ptx, "f", module->kernels[0].abi.threads);
    m.grid[0] = m.grid[1] = m.grid[2] = 1;
    m.params[0] = ROWS, m.params[1] = (uint64_t)(uintptr_t)x, m.params[2] = (uint64_t)(uintptr_t)y;
    ptx_allow(&m, x, sizeof x);
    ptx_allow(&m, (const uint8_t *)y, sizeof y);
    ptx_run(&m);
    ck_assert_str_eq(m.fault, "");
    ptx_free(&m);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* ptxas takes all of it, for every target, where there is one. */
START_TEST(ptxas_accepts_every_candidate) {
    tvm_ir_program *program = assemble_row(&run_rows[_i]);
    for (unsigned t = 0; t < TARGETS; t++) {
        tvm_diags diags = {0};
        ptxas_verdict verdict;
        tvm_module *module = translate(program, targets[t]);
        tvm_status status = ptxas_judge(module, "codegen_memory", &verdict, &diags);
        tvm_diags_print(&diags, stderr, "test", false);
        ck_assert_int_eq(status, TVM_OK);
        ck_assert_msg(verdict.kernel == NULL, "%s: spills or %s", targets[t], verdict.loss);
        tvm_diags_free(&diags);
        tvm_module_free(module);
    }
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen memory");
    TCase *tests = tcase_create("all");
    const int runs = sizeof run_rows / sizeof run_rows[0];
    tcase_add_loop_test(tests, the_widest_candidate_that_fits_is_taken, 0,
                        sizeof selection_rows / sizeof selection_rows[0]);
    tcase_add_loop_test(tests, a_tile_is_guarded_only_where_it_may_cross_an_edge, 0,
                        sizeof bounds_rows / sizeof bounds_rows[0]);
    tcase_add_test(tests, freed_shared_memory_is_used_again_after_a_barrier);
    tcase_add_loop_test(tests, kernels_that_a_target_cannot_hold_are_left_out, 0, TOO_BIG);
    tcase_add_test(tests, shared_memory_is_known_before_translation);
    tcase_add_test(tests, loops_are_unrolled_as_asked);
    tcase_add_test(tests, targets_are_known_by_name_and_by_device);
    tcase_add_loop_test(tests, the_generated_code_does_what_the_interpreter_does, 0, runs);
    tcase_add_loop_test(tests, ptxas_accepts_every_candidate, 0, runs);
    tcase_add_loop_test(tests, a_gather_that_nobody_reads_is_a_prefetch, 0,
                        sizeof prefetch_rows / sizeof *prefetch_rows);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
