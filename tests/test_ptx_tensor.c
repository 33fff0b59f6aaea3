/* The tests' own PTX machine, on tcgen05: products written by hand against sums of the test's own, and what
 * is not defined is found. No generated code is involved. */
#include <check.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static jmp_buf undefined;
static char said[512];

static void note(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    longjmp(undefined, 1);
}
#define ptx_abort(...) note(__VA_ARGS__)

#include "ptx_machine.h"
#include "ptxas_kit.h"
#include "suite_kit.h"

enum { K = 16, THREADS = 128 };

/* A product of M rows of x by N rows of y, each of 32 bytes. Each thread brings its row of x and of y to
 * shared memory, where eight rows of 16 bytes lie together; one thread multiplies, all take the sums. */
static const char head[] =
    ".version 8.6\n.target sm_100a\n.address_size 64\n.extern .shared .align 128 .b8 tvm_smem[];\n"
    ".visible .entry k(.param .u64 param_0, .param .u64 param_1, .param .u64 param_2)\n{\n";
static const char body[] =
    ".reg .pred %p<8>;\n.reg .b32 %r<80>;\n.reg .b64 %rd<16>;\n"
    "mov.u32 %r0, %tid.x;\n"
    "mov.u32 %r1, tvm_smem;\n"
    "ld.param.u64 %rd0, [param_0];\n"
    "ld.param.u64 %rd1, [param_1];\n"
    "ld.param.u64 %rd2, [param_2];\n"
    /* row r at (r / 8) * 256 + (r % 8) * 16, its second half 128 further */
    "shr.u32 %r2, %r0, 3;\n"
    "shl.b32 %r2, %r2, 8;\n"
    "and.b32 %r3, %r0, 7;\n"
    "shl.b32 %r3, %r3, 4;\n"
    "add.s32 %r2, %r2, %r3;\n"
    "add.s32 %r2, %r2, %r1;\n"
    "mul.wide.u32 %rd3, %r0, 32;\n"
    "add.s64 %rd4, %rd0, %rd3;\n"
    "add.s64 %rd5, %rd1, %rd3;\n"
    "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd4];\n"
    "st.shared.v4.b32 [%r2+1024], {%r4, %r5, %r6, %r7};\n"
    "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd4+16];\n"
    "st.shared.v4.b32 [%r2+1152], {%r4, %r5, %r6, %r7};\n"
    "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd5];\n"
    "st.shared.v4.b32 [%r2+8192], {%r4, %r5, %r6, %r7};\n"
    "ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd5+16];\n"
    "st.shared.v4.b32 [%r2+8320], {%r4, %r5, %r6, %r7};\n"
    "fence.proxy.async.shared::cta;\n"
    "setp.lt.u32 %p0, %r0, 32;\n"
    "setp.eq.u32 %p1, %r0, 0;\n"
    "@!%p0 bra $L1;\n"
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 64;\n"
    "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
    "@%p1 mbarrier.init.shared.b64 [%r1+8], 1;\n"
    "$L1:\n"
    "bar.sync 0;\n"
    "ld.shared.b32 %r8, [%r1];\n"
    /* descriptors: start, 128 from half to half, 256 from eight rows to eight, version 1 */
    "add.s32 %r9, %r1, 1024;\n"
    "shr.u32 %r9, %r9, 4;\n"
    "cvt.u64.u32 %rd6, %r9;\n"
    "or.b64 %rd6, %rd6, 0x0000401000080000;\n"
    "add.s32 %r10, %r1, 8192;\n"
    "shr.u32 %r10, %r10, 4;\n"
    "cvt.u64.u32 %rd7, %r10;\n"
    "or.b64 %rd7, %rd7, 0x0000401000080000;\n"
    "mov.u32 %r11, IDESC;\n"
    "setp.ne.u32 %p2, %r0, %r0;\n"
    "setp.eq.u32 %p3, %r0, %r0;\n"
    "@!%p0 bra $L2;\n"
    "@%p1 tcgen05.mma.cta_group::1.kind::KIND [%r8], %rd6, %rd7, %r11, %p2;\n"
    "@%p1 tcgen05.mma.cta_group::1.kind::KIND [%r8], %rd6, %rd7, %r11, %p3;\n"
    "@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1+8];\n"
    "$L2:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+8], 0;\n"
    "@!%p4 bra $L2;\n"
    "tcgen05.fence::after_thread_sync;\n"
    /* lanes of the thread's warp; 32 sums a thread */
    "shr.u32 %r12, %r0, 5;\n"
    "shl.b32 %r12, %r12, 21;\n"
    "add.s32 %r12, %r12, %r8;\n"
    "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}, [%r12];\n"
    "tcgen05.wait::ld.sync.aligned;\n"
    "add.s64 %rd8, %rd2, %rd3;\n"
    "st.global.v4.b32 [%rd8], {%r20, %r21, %r22, %r23};\n"
    "st.global.v4.b32 [%rd8+16], {%r24, %r25, %r26, %r27};\n"
    "tcgen05.fence::before_thread_sync;\n"
    "bar.sync 0;\n"
    "tcgen05.fence::after_thread_sync;\n"
    "@!%p0 bra $L3;\n"
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;\n"
    "$L3:\n"
    "ret;\n"
    "}\n";

typedef struct change {
    const char *from, *to, *says; /* to "": the line is left out */
} change;

/* The text with KIND, IDESC and the change. */
static void make_text(char *text, size_t size, const char *kind, uint32_t descriptor, const change *c) {
    char idesc[16], *at = text;
    snprintf(idesc, sizeof idesc, "0x%x", descriptor);
    const struct {
        const char *from, *to;
    } all[] = {{"KIND", kind}, {"IDESC", idesc}, {c ? c->from : "KIND", c ? c->to : kind}};
    at += snprintf(at, size, "%s", head);
    bool changed = false;
    for (const char *from = body; *from;) {
        unsigned i = 0;
        while (i < 3 && strncmp(from, all[i].from, strlen(all[i].from)) != 0) i++;
        ck_assert_uint_lt((size_t)(at - text) + 256, size);
        if (i == 3 || (i == 2 && changed)) {
            *at++ = *from++;
            continue;
        }
        changed = changed || i == 2;
        at += sprintf(at, "%s", all[i].to);
        from += strlen(all[i].from);
    }
    *at = '\0';
    ck_assert(c == NULL || changed);
}

static bool run_text(const char *text, const void *x, const void *y, void *z) {
    ptx_machine m = ptx_load(text, "k", THREADS);
    m.params[0] = (uint64_t)(uintptr_t)x;
    m.params[1] = (uint64_t)(uintptr_t)y;
    m.params[2] = (uint64_t)(uintptr_t)z;
    volatile bool good = false;
    if (setjmp(undefined) == 0) {
        ptx_run(&m);
        good = true;
    }
    ptx_free(&m);
    return good;
}

/* Twice the product of small integers, which every type here has: sums of 2 * 16 or 2 * 32 products. */
static void multiply(const char *kind, uint32_t descriptor, tvm_dtype type, unsigned bytes, unsigned rows,
                     bool is_integer) {
    static uint8_t x[THREADS * 32], y[THREADS * 32];
    static uint32_t z[THREADS * 8];
    static char text[8192];
    unsigned k = 32 / bytes, pad = type.bits < 8; /* 16 codes of 6 or 4 bits begin 16 bytes */
    double a[THREADS][32], b[THREADS][32];
    memset(x, 0, sizeof x), memset(y, 0, sizeof y);
    for (unsigned r = 0; r < THREADS; r++)
        for (unsigned i = 0; i < k; i++) {
            a[r][i] = (r * 7 + i * 3) % 4, b[r][i] = (r * 5 + i) % 3;
            unsigned bit = pad ? i / 16 * 128 + i % 16 * type.bits : i * type.bits;
            uint64_t codes[2] = {tvm_encode(type, a[r][i]), tvm_encode(type, b[r][i])};
            for (unsigned n = 0; n < type.bits; n++, bit++) {
                x[r * 32 + bit / 8] |= (uint8_t)((codes[0] >> n & 1) << bit % 8);
                y[r * 32 + bit / 8] |= (uint8_t)((codes[1] >> n & 1) << bit % 8);
            }
        }
    make_text(text, sizeof text, kind, descriptor, NULL);
    ck_assert_msg(run_text(text, x, y, z), "%s", said);
    for (unsigned lane = 0; lane < THREADS; lane++)
        for (unsigned c = 0; c < 8 && (rows == 128 || lane % 32 < 16); c++) {
            unsigned r = rows == 128 ? lane : lane / 32 * 16 + lane % 32;
            double sum = 0;
            for (unsigned i = 0; i < k; i++) sum += 2 * a[r][i] * b[c][i];
            float f;
            memcpy(&f, &z[lane * 8 + c], 4);
            ck_assert_msg((is_integer ? (double)(int32_t)z[lane * 8 + c] : (double)f) == sum,
                          "%s: row %u, column %u: %g, not %g", kind, r, c, (double)f, sum);
        }
}

/* 64 columns: N >> 3 from bit 17 on; M >> 4 from bit 24 on; the sum's type from bit 4, a's from 7, b's from
 * 10. */
static uint32_t descriptor_of(unsigned sum, unsigned operand, unsigned rows) {
    return sum << 4 | operand << 7 | operand << 10 | 64 / 8 << 17 | rows / 16 << 24;
}

START_TEST(products_of_each_kind_are_right) {
    const tvm_dtype f16 = {TVM_KIND_FLOAT, 16, 5, 10}, bf16 = {TVM_KIND_FLOAT, 16, 8, 7},
                    tf32 = {TVM_KIND_FLOAT, 32, 8, 23}, e4m3 = {TVM_KIND_FLOAT, 8, 4, 3},
                    e5m2 = {TVM_KIND_FLOAT, 8, 5, 2}, e2m3 = {TVM_KIND_FLOAT, 6, 2, 3},
                    e3m2 = {TVM_KIND_FLOAT, 6, 3, 2}, e2m1 = {TVM_KIND_FLOAT, 4, 2, 1},
                    u8 = {TVM_KIND_UINT, 8, 0, 0}, s8 = {TVM_KIND_INT, 8, 0, 0};
    for (unsigned rows = 64; rows <= 128; rows += 64) {
        multiply("f16", descriptor_of(1, 0, rows), f16, 2, rows, false);
        multiply("f16", descriptor_of(1, 1, rows), bf16, 2, rows, false);
        multiply("tf32", descriptor_of(1, 2, rows), tf32, 4, rows, false);
        multiply("f8f6f4", descriptor_of(1, 0, rows), e4m3, 1, rows, false);
        multiply("f8f6f4", descriptor_of(1, 1, rows), e5m2, 1, rows, false);
        multiply("f8f6f4", descriptor_of(1, 3, rows), e2m3, 1, rows, false);
        multiply("f8f6f4", descriptor_of(1, 4, rows), e3m2, 1, rows, false);
        multiply("f8f6f4", descriptor_of(1, 5, rows), e2m1, 1, rows, false);
        multiply("i8", descriptor_of(2, 0, rows), u8, 1, rows, true);
        multiply("i8", descriptor_of(2, 1, rows), s8, 1, rows, true);
    }
}
END_TEST

/* Each instruction that orders something, left out, and what else is not defined. */
static const change mistakes[] = {
    {"fence.proxy.async.shared::cta;\n", "", "no fence and barrier came after it"},
    {"$L2:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+8], 0;\n@!%p4 bra $L2;\n", "$L2:\n",
     "may still be written"},
    {"@%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1+8];\n", "",
     "wait for others that never come"},
    {"tcgen05.fence::after_thread_sync;\n", "", "may still be written"},
    {"tcgen05.wait::ld.sync.aligned;\n", "", "has a register"},
    {"tcgen05.fence::before_thread_sync;\n", "", "gives back what is still accessed"},
    {"bar.sync 0;\ntcgen05.fence::after_thread_sync;\n", "bar.sync 0;\n",
     "gives back what is still accessed"},
    {"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;\n", "", "ends with tensor memory"},
    {"tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 64;\n",
     "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;\n", "not as many columns"},
    {"shl.b32 %r12, %r12, 21;\n", "shl.b32 %r12, %r12, 20;\n", "lanes of other warps"},
    {"add.s32 %r12, %r12, %r8;\n", "add.s32 %r12, %r12, 0;\n", "is not allocated"},
    {"[%r1], 64;\n", "[%r1], 48;\n", "no number of columns"},
    {"[%r1], 64;\n", "[%r1], 32;\n", "is not allocated"},
    {"or.b64 %rd7, %rd7, 0x0000401000080000;\n", "or.b64 %rd7, %rd7, 0x0000001000080000;\n",
     "a descriptor of something else"},
    {"mov.u32 %r11, IDESC;\n", "mov.u32 %r11, 0;\n", "unknown 0 x 0"},
    {"@%p1 tcgen05.mma.cta_group::1", "@%p0 tcgen05.mma.cta_group::1", "by two threads of a warp"},
    {"tcgen05.commit.cta_group::1", "tcgen05.commit.cta_group::2", "another .cta_group than before"},
    {"tcgen05.alloc.cta_group::1", "tcgen05.alloc.cta_group::2", "the pair has one block"},
    {"kind::KIND [%r8], %rd6, %rd7, %r11, %p2;",
     "kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %rd6, %rd7, %r11, [%r8], [%r8], %p2;",
     "a descriptor of something else"},
    /* products whose sums are of another shape, or begin elsewhere, are in no order */
    {"[%r8], %rd6, %rd7, %r11, %p3;", "[%r8], %rd6, %rd7, 0x8080010, %p3;", "may still be written"},
    {"[%r8], %rd6, %rd7, %r11, %p3;", "[%r8+8], %rd6, %rd7, 0x8080010, %p3;", "may still be written"},
    /* nor is one whose a is the sums of the one before, or that writes where that reads a */
    {"[%r8], %rd6, %rd7, %r11, %p3;", "[%r8], [%r8], %rd7, %r11, %p3;", "may still be written"},
    {"[%r8], %rd6, %rd7, %r11, %p2;\n@%p1 tcgen05.mma.cta_group::1.kind::KIND [%r8], %rd6, %rd7, %r11, %p3;",
     "[%r8], [%r8+32], %rd7, 0x8080010, %p2;\n"
     "@%p1 tcgen05.mma.cta_group::1.kind::f16 [%r8+32], %rd6, %rd7, 0x8080010, %p2;",
     "may still be read"},
};

START_TEST(what_is_not_defined_is_found) {
    static const uint8_t x[THREADS * 32];
    static uint32_t z[THREADS * 8];
    static char text[8192];
    const change *c = &mistakes[_i];
    make_text(text, sizeof text, "f16", descriptor_of(1, 0, 128), c);
    ck_assert_msg(!run_text(text, x, x, z), "%s is not missed", c->from);
    ck_assert_msg(strstr(said, c->says) != NULL, "%s: %s, not %s", c->from, said, c->says);
}
END_TEST

/* A place in tensor memory and the register that has it: the figures of "Data Movement Shape". */
START_TEST(registers_hold_their_cells) {
    static const struct {
        ptx_movement v;
        unsigned lane, r, row, column;
    } all[] = {{{"32x32b", 32, 1, 4, false}, 17, 3, 17, 3},   {{"16x64b", 16, 1, 2, false}, 1, 0, 8, 0},
               {{"16x64b", 16, 1, 2, false}, 6, 1, 1, 3},     {{"16x128b", 16, 2, 2, false}, 5, 1, 9, 1},
               {{"16x128b", 16, 2, 2, false}, 31, 2, 7, 7},   {{"16x256b", 16, 4, 2, false}, 5, 1, 1, 3},
               {{"16x256b", 16, 4, 2, false}, 30, 6, 15, 12}, {{"32x32b", 32, 1, 4, true}, 17, 3, 17, 6}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        ptx_spot at = ptx_tensor_place(&all[i].v, all[i].lane, all[i].r);
        ck_assert_msg(at.lane == all[i].row && at.column == all[i].column, "%u: lane %u, column %u", i,
                      at.lane, at.column);
    }
}
END_TEST

START_TEST(ptxas_takes_the_text) {
    static char text[8192];
    make_text(text, sizeof text, "f16", descriptor_of(1, 0, 128), NULL);
    tvm_module module = {.ptx = text, .ptx_size = strlen(text)};
    tvm_diags diags = {0};
    ptxas_verdict verdict;
    ck_assert_int_eq(tvm_target_parse("sm_100a", &module.target, NULL), TVM_OK);
    tvm_status status = ptxas_judge(&module, "tcgen05 by hand", &verdict, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    tvm_diags_free(&diags);
    ck_assert_int_eq(status, TVM_OK);
    free(module.cubin);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ptx_tensor");
    TCase *tests = suite_case(suite, "tcgen05");
    tcase_add_test(tests, products_of_each_kind_are_right);
    tcase_add_loop_test(tests, what_is_not_defined_is_found, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(tests, registers_hold_their_cells);
    tcase_add_test(tests, ptxas_takes_the_text);
    return run_suite(suite);
}
