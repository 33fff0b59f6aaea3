/* Which copies the copy engine makes, and the reasons for which others are made by threads, as `tvm-cc
 * --explain` says them. That both are right is tested by the cases. */
#include "check_kit.h"
#include <stdio.h>
#include <string.h>

#include "assembler_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* A kernel of x and y with this head, of one copy, which is in `body`: what does it, and why nothing better.
 */
typedef struct selected {
    const char *tensors, *head, *body, *target, *candidate, *refused;
    int swizzle; /* of the tensor map */
} selected;

#define ROWS    ".grid 1\n.assume n % 8 == 0\n"
#define CLUSTER ".cluster 2\n.grid 2\n"
#define BARRIER "%b = alloc-barrier [1]\n"
#define ARRIVED "arrive-barrier %b\nwait-barrier %b\n"
#define MATRIX  "x: global f16[m, n], y: global f16[m, n]"
#define LOAD(shared, from)                                                                                   \
    BARRIER "%s = alloc-shared " shared "\ncopy-bulk %s, " from ", barrier %b\n" ARRIVED
#define STORE(how, to) "%s = alloc-shared f16[8, 64]\n" how " " to ", %s\nwait-bulk 0\n"
#define SEND(more, in, at, tile)                                                                             \
    BARRIER "%s = alloc-shared f16[128, 64]" more "\n%in = alloc-shared f16[128, " in "\n"                   \
            "copy-cluster %in" at ", 0, %s" at tile ", barrier %b\n" ARRIVED
#define RING(before, stages)                                                                                 \
    "%s = alloc-shared f16[8, 64]\n%acc = alloc-register f16[8, 64], auto(8, 64), init 0.0\n" before         \
    "for %k = 0 to n step 64 pipeline " stages                                                               \
    "\ncopy-async %s, x[0, %k]\n%acc = %acc + load-shared(%s, auto(8, 64))\nend\nstore-global y, %acc\n"

static const selected copies[] = {
    /* by the engine: each rank, each swizzle */
    {"x: global f32[n]", ROWS, LOAD("f32[64]", "x"), "sm_90a", "cp.async.bulk.tensor.1d", "", 0},
    {MATRIX, ROWS, LOAD("f16[8, 64]", "x"), "sm_90a", "cp.async.bulk.tensor.2d", "", TVM_ABI_SWIZZLE_128},
    {MATRIX, ROWS, LOAD("f16[8, 64]", "x"), "sm_100a", "cp.async.bulk.tensor.2d", "", TVM_ABI_SWIZZLE_128},
    {MATRIX, ROWS, LOAD("f16[8, 32]", "x"), "sm_90a", "cp.async.bulk.tensor.2d", "", TVM_ABI_SWIZZLE_64},
    {MATRIX, ROWS, LOAD("f16[8, 16]", "x"), "sm_90a", "cp.async.bulk.tensor.2d", "", TVM_ABI_SWIZZLE_32},
    {MATRIX, ROWS, LOAD("f16[8, 64], row_major", "x"), "sm_90a", "cp.async.bulk.tensor.2d", "", 0},
    {"x: global f16[2, m, n]", ROWS, LOAD("f16[2, 8, 32], row_major", "x"), "sm_90a",
     "cp.async.bulk.tensor.3d", "", 0},
    {"x: global f16[2, 2, m, n]", ROWS, LOAD("f16[2, 2, 8, 32], row_major", "x"), "sm_90a",
     "cp.async.bulk.tensor.4d", "", 0},
    {"x: global f16[2, 2, 2, m, n]", ROWS, LOAD("f16[2, 2, 2, 8, 32], row_major", "x"), "sm_90a",
     "cp.async.bulk.tensor.5d", "", 0},
    {MATRIX, ROWS, STORE("store-bulk", "y"), "sm_90a", "cp.async.bulk.tensor.2d.global", "",
     TVM_ABI_SWIZZLE_128},
    {MATRIX, ROWS, STORE("reduce-bulk add,", "y"), "sm_90a", "cp.reduce.async.bulk.tensor.2d.global.add", "",
     TVM_ABI_SWIZZLE_128},
    {MATRIX, ROWS, STORE("store-bulk", "y[(m - 9) * 8, 64 - n * 8]"), "sm_90a",
     "cp.async.bulk.tensor.2d.global guarded", "", TVM_ABI_SWIZZLE_128},
    {MATRIX, CLUSTER, SEND("", "64]", "", ""), "sm_90a", "cp.async.bulk.shared::cluster", "", 0},
    {MATRIX, ROWS, RING("", "3"), "sm_90a", "cp.async.bulk.tensor.2d", "", TVM_ABI_SWIZZLE_128},
    /* as runs of bytes, of a tensor and of a view that is all of its memory in another shape */
    {"x: global u8[m, 2048]", ROWS, LOAD("u8[2048]", "x[m - 1, 0]"), "sm_90a", "cp.async.bulk guarded", "",
     0},
    {"x: global u8[m, 4096]", ROWS,
     "%v = view-global x, [m * 2, 2048], strides row_major\n" LOAD("u8[2048]", "%v[m - 1, 0]"), "sm_90a",
     "cp.async.bulk guarded", "", 0},
    /* by threads */
    {MATRIX, ROWS, LOAD("f16[8, 64]", "x"), "sm_80", "cp.async.cg 16", "tensor: sm_80 lacks it", 0},
    {"x: global f16[2, 2, 2, 2, m, n]", ROWS, LOAD("f16[8, 64]", "x"), "sm_90a", "cp.async.cg 16",
     "x has 6 dimensions, a tensor map at most 5", 0},
    {"x: global f16[m, n] strides [m, n]", ROWS, LOAD("f16[8, 64]", "x"), "sm_90a", "ld.global",
     "no stride of x is known to be 1", 0},
    {"x: global f16[m, n] strides [1, n]", ROWS, LOAD("f16[64]", "x[0, 0]"), "sm_90a", "ld.global",
     "the tile has one element only of the dimension of x that is rows in memory", 0},
    {"x: global f16[m, n] strides [m, 1]", ROWS, LOAD("f16[8, 64]", "x"), "sm_90a", "ld.global",
     "strides of x are known to be multiples of 2 bytes only, not of 16", 0},
    {MATRIX, ".grid 1\n", LOAD("f16[8, 64]", "x"), "sm_90a", "ld.global",
     "rows of x are known to be multiples of 2 bytes only, not of 16", 0},
    {MATRIX, ROWS, LOAD("f16[8, 64]", "x[0, 4 * m]"), "sm_90a", "cp.async.ca 8",
     "its rows are known to begin at multiples of 8 bytes only, not of 16", 0},
    {MATRIX, ROWS, LOAD("f16[32, 32], swizzle(1, 2, 4)", "x"), "sm_90a", "cp.async.ca 4",
     "the swizzle is none of a tensor map's", 0},
    {MATRIX, ROWS, LOAD("f16[32, 32], shared([32, 32], [32, 32], [1, 32])", "x"), "sm_90a", "ld.global",
     "2 bytes of a row are contiguous in shared memory, no multiple of 16", 0},
    {MATRIX, ROWS, LOAD("f16[100, 64], shared([100, 64], [100, 64], [72, 1])", "x"), "sm_90a",
     "cp.async.cg 16", "it is 100 boxes, contiguous in shared memory", 0},
    {MATRIX, ROWS, "%v = view-global x[0, 0], [m - 3, n]\n" LOAD("f16[8, 64]", "%v[m - 9, 0]"), "sm_90a",
     "cp.async.cg 16", "v is a view that ends, for all that is known, within the tile", 0},
    {MATRIX, ROWS, STORE("store-bulk", "y[m - 3, 0]"), "sm_90a", "",
     "index 0 of y may be negative, for all that is known", 0},
    {MATRIX, ROWS, SEND("", "64]", "", ""), "sm_90a", "ld.shared", "the cluster is one block", 0},
    {MATRIX, CLUSTER, SEND(", row_major", "72], row_major", "[0, 0]", ", [128, 64]"), "sm_90a", "ld.shared",
     "runs of bytes, expected at most 64", 0},
    /* a ring */
    {MATRIX, ROWS, RING("", "3"), "sm_80", "cp.async.cg 16", "", 0},
    {MATRIX, ".grid 1\n", RING("", "3"), "sm_90a", "ld.global",
     "no producer warp with TMA: rows of x are known to be multiples of 2 bytes only", 0},
    {MATRIX, ROWS, RING("", "1"), "sm_90a", "cp.async.cg 16", "one stage has nothing ahead", 0},
    {MATRIX, ROWS, RING("if m == 3\nexit\nend\n", "3"), "sm_90a", "cp.async.cg 16", "the kernel has exit", 0},
};
enum { COPIES = sizeof copies / sizeof *copies };

static bool is_copy(const tvm_selection *s) {
    return strstr(s->candidate, "cp.") == s->candidate || strstr(s->candidate, "ld.") == s->candidate;
}

START_TEST(a_copy_is_made_as_it_can_be) {
    const selected *c = &copies[_i];
    char text[2048];
    snprintf(text, sizeof text, ".vasm 4\n.kernel k(m: i32, n: i32, %s)\n.warps 4\n%s%s.end\n", c->tensors,
             c->head, c->body);
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, c->target);
    const tvm_kernel_code *code = &module->kernels[0];
    const tvm_selection *found = NULL;
    for (size_t i = 0; i < code->selection_count && found == NULL; i++)
        if (is_copy(&code->selections[i])) found = &code->selections[i];
    ck_assert_msg(found != NULL, "nothing copies:\n%s", text);
    size_t length = strlen(c->candidate);
    ck_assert_msg(strncmp(found->candidate, c->candidate, length) == 0 &&
                      strstr(found->refused, c->refused) != NULL,
                  "%s: %s; refused: %s\n%s", c->target, found->candidate, found->refused, text);
    bool by_engine = strstr(c->candidate, "bulk.tensor") != NULL;
    ck_assert_uint_eq(code->abi.map_count, by_engine);
    if (by_engine) ck_assert_int_eq(code->abi.maps[0].swizzle, c->swizzle);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}
END_TEST

/* What a loop over the tiles of a matrix says of their numbers, for positive extents. */
/* Elements that become bytes come by TMA, in boxes of 128 of a row, or not at all: a target that lacks it,
 * rows and beginnings that are not known to be multiples, and places in shared memory that are no rows of a
 * box. */
START_TEST(elements_are_spread_by_the_engine_alone) {
    static const struct {
        const char *target, *shape, *tile, *index, *why; /* NULL: it is made */
    } all[] = {
        {"sm_100a", "[m, n * 128]", "u8[2, 64, 128]", "%s[1], x[block.x * 64, block.y * 128]", NULL},
        {"sm_120a", "[m, n * 128]", "u8[2, 64, 128]", "%s[1], x[block.x * 64, block.y * 128]", NULL},
        {"sm_100a", "[m, n * 128]", "u8[64, 128]", "%s, x[-3, 256]", NULL},
        {"sm_90a", "[m, n * 128]", "u8[64, 128]", "%s, x", "sm_90a lacks it"},
        {"sm_100a", "[m, n * 64]", "u8[64, 128]", "%s, x", "to have multiples of 64, not of 128"},
        {"sm_100a", "[m, n * 128]", "u8[64, 128]", "%s, x[0, block.x * 32]", "begin at multiples of 32"},
        {"sm_100a", "[m, n * 128]", "u8[64, 128], swizzle(3, 4, 4)", "%s, x", "swizzle"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[1024];
        tvm_target target;
        tvm_module *module = NULL;
        tvm_diags diags = {0};

        snprintf(text, sizeof text,
                 ".vasm 7\n.kernel k(m: i32, n: i32, x: global f6_e2m3%s)\n.warps 4\n.grid 4, 4\n"
                 "%%s = alloc-shared %s\n%%b = alloc-barrier [1]\ncopy-bulk %s, barrier %%b\n"
                 "arrive-barrier %%b\nwait-barrier %%b\n.end\n",
                 all[i].shape, all[i].tile, all[i].index);
        tvm_ir_program *program = assemble(text);
        ck_assert_int_eq(tvm_target_parse(all[i].target, &target, NULL), TVM_OK);
        tvm_status status = tvm_translate(program, target, &module, &diags);
        ck_assert_msg(status == (all[i].why ? TVM_UNSUPPORTED : TVM_OK), "%s", text);
        if (all[i].why)
            ck_assert_msg(strstr(diags.items[0].message, all[i].why), "%s", diags.items[0].message);
        if (!all[i].why) ck_assert_uint_eq(module->kernels[0].abi.maps[0].element, TVM_ABI_SPREAD6);
        tvm_module_free(module);
        tvm_diags_free(&diags);
        tvm_ir_program_free(program);
    }
}
END_TEST

START_TEST(a_tile_of_a_persistent_kernel_is_stored_without_a_test) {
    static const char *const heads[] = {
        ".grid multiprocessors\n.assume m > 0, n > 0, n % 128 == 0, m % 8 == 0\n%tn = n / 128\n%tm = cdiv(m, 8)\n",
        ".grid multiprocessors\n.assume m > 0, n > 0, n % 8 == 0, n < 1 << 30, m < 1 << 30\n"
        "%tn = cdiv(n, 128)\n%tm = cdiv(m, 8)\n"};
    for (unsigned i = 0; i < 2; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 ".vasm 6\n.kernel k(m: i32, n: i32, " MATRIX ")\n.warps 4\n%s"
                 "%%s = alloc-shared f16[8, 128]\nfor %%t = block.x to %%tm * %%tn step grid.x\n"
                 "store-bulk y[%%t / %%tn * 8, %%t %% %%tn * 128], %%s\nend\n.end\n",
                 heads[i]);
        tvm_ir_program *program = assemble(text);
        tvm_module *module = translate(program, "sm_90a");
        const tvm_kernel_code *code = &module->kernels[0];
        unsigned stores = 0;
        for (size_t s = 0; s < code->selection_count; s++)
            stores += strcmp(code->selections[s].candidate, "cp.async.bulk.tensor.2d.global") == 0;
        ck_assert_msg(stores == 1, "no such store:\n%s\n%s", text, module->ptx);
        tvm_module_free(module);
        tvm_ir_program_free(program);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codegen_bulk");
    TCase *tests = tcase_create("selected");
    tcase_add_loop_test(tests, a_copy_is_made_as_it_can_be, 0, COPIES);
    tcase_add_test(tests, a_tile_of_a_persistent_kernel_is_stored_without_a_test);
    tcase_add_test(tests, elements_are_spread_by_the_engine_alone);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
