/* Tensor maps that launches make for what a kernel's ABI asks for, with a driver that writes down what it is
 * asked to make (fake_cuda.c). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "assembler_kit.h"
#include "cuda_kit.h"
#include "runtime_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

#ifdef HAVE_CUDA_H
#include <cuda.h>

static const char source[] = ".vasm 2\n"
                             ".kernel f(m: i64, n: i32, x: global f16[3, m, n])\n"
                             ".warps 1\n"
                             ".grid 1\n"
                             "    %t = alloc-global u8[grid.x, 64]\n"
                             "    launch-dependents\n"
                             ".end\n";

static cuda_kit kit;
static char driver_log[80];
static tvm_context *context;
static tvm_program *code;
static tvm_kernel *kernel;

/* The program with code that takes these maps, which need not be its own. */
static void embed(const tvm_abi_map *maps, unsigned count) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_vbc_read(kit.bytecode, kit.bytecode_size, "kit", &program, &diags), TVM_OK);
    tvm_module *module = translate(program, "sm_90a");
    tvm_ir_image image = {.codegen = TVM_CODEGEN_VERSION, .target = "sm_90a", .made_by = "a test"};
    for (unsigned i = 0; i < count; i++)
        ck_assert_uint_ne(tvm_abi_add_map(&module->kernels[0].abi, &maps[i]), TVM_NONE);
    ck_assert_int_eq(tvm_vbc_hash(program, image.hash, &diags), TVM_OK);
    ck_assert_int_eq(tvm_module_abi(module, &image.facts, &image.fact_count, &diags), TVM_OK);
    image.code = (uint8_t *)(uintptr_t) "\177ELF";
    image.code_size = 5;
    ck_assert_uint_ne(tvm_ir_program_add_image(program, &image), TVM_NONE);
    free(kit.bytecode);
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &kit.bytecode, &kit.bytecode_size, &diags),
                     TVM_OK);
    free(image.facts);
    tvm_module_free(module);
    tvm_ir_program_free(program);
}

static const tvm_abi_map both[] = {
    {.tensor = 2,
     .element = TVM_ABI_F16,
     .rank = 3,
     .swizzle = TVM_ABI_SWIZZLE_128,
     .promotion = 4,
     .box = {1, 32, 64}},
    {.tensor = 3, .element = TVM_ABI_BITS64, .rank = 2, .is_written = 1, .box = {16, 4}}};

static void open_with(const tvm_abi_map *maps, unsigned count) {
    tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = kit.cache};
    embed(maps, count);
    ck_assert_msg(tvm_context_create(&options, &context) == TVM_OK, "%s", tvm_message(context));
    ck_assert_int_eq(tvm_load(context, kit.bytecode, kit.bytecode_size, &code), TVM_OK);
    kernel = kernel_named(code, "f");
}

static void setup_with(const char *text) {
    kit_setup_with(&kit, text);
    snprintf(driver_log, sizeof driver_log, "%s/driver.log", kit.folder);
    setenv("FAKE_CUDA_LOG", driver_log, 1);
}

static void setup(void) {
    setup_with(source);
}

static void teardown(void) {
    tvm_program_free(code);
    tvm_context_free(context);
    code = NULL;
    context = NULL;
    ck_assert_int_eq(kit.driver->live(), 0);
    ck_assert_int_eq(kit.driver->mistakes(), 0);
    kit_teardown(&kit);
}

/* The parameters of the launches since the last call. */
static const char *launched(void) {
    static char text[2048];
    FILE *log = fopen(driver_log, "r");
    size_t size = log ? fread(text, 1, sizeof text - 1, log) : 0;
    text[size] = '\0';
    if (log) fclose(log);
    unlink(driver_log);
    char *at = strstr(text, "launch f ");
    return at ? at : text;
}

static _Alignas(16) char x[64], other[64];

START_TEST(maps_are_made_of_the_arguments) {
    char expected[256];
    open_with(both, 2);
    ck_assert_int_eq(tvm_prepare(kernel), TVM_OK);
    setenv("FAKE_CUDA_PARAMS", "lippt", 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1000), 64, x), TVM_OK);
    const char *text = launched();
    snprintf(expected, sizeof expected, " 1000 64 %p ", (void *)x);
    ck_assert_ptr_nonnull(strstr(text, expected));
    /* f16 is 6, a swizzle of 128 bytes 3, a promotion to 256 bytes 3 */
    snprintf(expected, sizeof expected, "{%p 6[64,1000,3] 128 128000 64x32x1 3 3}", (void *)x);
    ck_assert_msg(strstr(text, expected) != NULL, "'%s' has no '%s'", text, expected);
}
END_TEST

/* u8 by eight: u64 is 4. */
START_TEST(tensors_of_the_launch_have_maps) {
    void *place;
    char expected[64];
    open_with(both, 2);
    setenv("FAKE_CUDA_PARAMS", "lipptt", 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1), 8, x), TVM_OK);
    const char *text = launched();
    ck_assert_int_eq(sscanf(strstr(text, " 1 8 "), " 1 8 %*p %p", &place), 1);
    snprintf(expected, sizeof expected, "{%p 4[8,1] 64 4x16 0 0}", place);
    ck_assert_msg(strstr(text, expected) != NULL, "'%s' has no '%s'", text, expected);
}
END_TEST

/* Types 14 and 15, 16U4_ALIGN16B and 16U6_ALIGN16B, of tensors that are read so: elements of the map are the
 * tensor's, rows of multiples of 128, in steps of multiples of 32 bytes from an address that is one. */
START_TEST(elements_that_are_spread_have_their_types) {
    static const char narrow[] =
        ".vasm 7\n"
        ".kernel f(m: i32, n: i32, x: global f4_e2m1[m, n], y: global f6_e3m2[m, n])\n"
        ".warps 1\n.grid 1\n.end\n";
    static const tvm_abi_map maps[] = {{.tensor = 2,
                                        .element = TVM_ABI_SPREAD4,
                                        .rank = 2,
                                        .swizzle = TVM_ABI_SWIZZLE_128,
                                        .box = {16, 128}},
                                       {.tensor = 3, .element = TVM_ABI_SPREAD6, .rank = 2, .box = {8, 128}}};
    static _Alignas(32) char wide[64];
    char expected[64];
    kit_teardown(&kit);
    setup_with(narrow);
    open_with(maps, 2);
    setenv("FAKE_CUDA_PARAMS", "iipptt", 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, 40, 256, wide, wide + 32), TVM_OK);
    const char *text = launched();
    snprintf(expected, sizeof expected, "{%p 14[256,40] 128 128x16 3 0}", (void *)wide);
    ck_assert_msg(strstr(text, expected) != NULL, "'%s' has no '%s'", text, expected);
    snprintf(expected, sizeof expected, "{%p 15[256,40] 192 128x8 0 0}", (void *)(wide + 32));
    ck_assert_msg(strstr(text, expected) != NULL, "'%s' has no '%s'", text, expected);
    ck_assert_int_eq(tvm_launch(kernel, NULL, 40, 192, wide, wide), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(context), "a row is a multiple of 128 elements, not 192"));
    ck_assert_int_eq(tvm_launch(kernel, NULL, 40, 128, wide + 16, wide), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(context), "its address is a multiple of 32"));
    ck_assert_int_eq(tvm_launch(kernel, NULL, 0, 128, NULL, NULL), TVM_OK);
}
END_TEST

static long encoded(void) {
    return kit.driver->calls("cuTensorMapEncodeTiled");
}

START_TEST(a_launch_with_the_same_tensors_makes_none) {
    open_with(both, 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1), 64, other), TVM_OK); /* %t is there */
    kit.driver->reset();
    for (int i = 0; i < 4; i++) ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1000), 64, x), TVM_OK);
    ck_assert_int_eq(encoded(), 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1000), 72, x), TVM_OK);
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1000), 64, other), TVM_OK);
    long all = encoded(); /* one more where two of the three share their place */
    ck_assert(all == 3 || all == 4);
    ck_assert_int_eq(kit.driver->calls("cuMemAlloc"), 0);
    setenv("FAKE_CUDA_PARAMS", "lippt", 1);
    launched();
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(1000), 72, x), TVM_OK);
    ck_assert_ptr_nonnull(strstr(launched(), "6[72,1000,3] 144 144000 64x32x1 3 3}"));
    ck_assert(encoded() <= all + 1);
}
END_TEST

START_TEST(tensors_without_elements_are_all_outside) {
    void *place;
    open_with(both, 1);
    setenv("FAKE_CUDA_PARAMS", "lippt", 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(0), 64, NULL), TVM_OK);
    const char *map = strchr(launched(), '{');
    ck_assert_ptr_nonnull(map);
    ck_assert_int_eq(sscanf(map, "{%p 6[1,1,1] ", &place), 1);
    ck_assert_ptr_nonnull(place);
    for (unsigned i = 0; i < 16; i++) ck_assert_int_eq(((char *)place)[i], 0);
}
END_TEST

static void refuses(int64_t m, int32_t n, const char *rule) {
    ck_assert_int_eq(tvm_launch(kernel, NULL, m, n, x), TVM_ARGUMENT);
    ck_assert_msg(strstr(tvm_message(context), "kernel 'f' copies tensor 'x' by a tensor map") &&
                      strstr(tvm_message(context), rule),
                  "'%s' does not say '%s'", tvm_message(context), rule);
}

START_TEST(what_fits_no_map_is_refused) {
    open_with(both, 1);
    refuses(10, 60, "a multiple of 16 below 2^40, not 120");
    refuses(1, 0x7fffffff, "an extent is at most 2^31 - 257, not 2147483647");
    refuses(INT64_C(1) << 34, 8, "an extent is at most 2^31 - 257, not 17179869184");
    ck_assert_int_eq(tvm_launch(kernel, NULL, INT64_C(10), 64, x), TVM_OK);
}
END_TEST

/* Column-major, its first dimension the rows of the map, which is the ABI's to say. */
static const char strided_source[] =
    ".vasm 3\n"
    ".kernel f(ld: i32, n: i32, x: global f16[3, 64, n] strides [1, ld, 4096])\n"
    ".warps 1\n"
    ".grid 1\n"
    "    launch-dependents\n"
    ".end\n";
static const tvm_abi_map strided = {
    .tensor = 2, .element = TVM_ABI_F16, .rank = 3, .row = 2, .box = {8, 4, 2}};

static void setup_strided(void) {
    kit_setup_with(&kit, strided_source);
    snprintf(driver_log, sizeof driver_log, "%s/driver.log", kit.folder);
    setenv("FAKE_CUDA_LOG", driver_log, 1);
}

START_TEST(maps_have_the_strides_of_the_launch) {
    char expected[256];
    open_with(&strided, 1);
    setenv("FAKE_CUDA_PARAMS", "iipt", 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, 16, 5, x), TVM_OK);
    snprintf(expected, sizeof expected, "{%p 6[3,5,64] 8192 32 8x2x4 0 0}", (void *)x);
    const char *text = launched();
    ck_assert_msg(strstr(text, expected) != NULL, "'%s' has no '%s'", text, expected);
    ck_assert_int_eq(tvm_launch(kernel, NULL, 24, 5, x), TVM_OK);
    ck_assert_ptr_nonnull(strstr(launched(), "6[3,5,64] 8192 48 "));
    ck_assert_int_eq(tvm_launch(kernel, NULL, 12, 5, x), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(context), "a multiple of 16 below 2^40, not 24"));
}
END_TEST

START_TEST(a_row_of_elements_apart_is_refused) {
    tvm_abi_map other_row = strided;
    other_row.row = 0;
    other_row.box[2] = 8;
    open_with(&other_row, 1);
    ck_assert_int_eq(tvm_launch(kernel, NULL, 16, 5, x), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(context), "the stride of a row's elements is 1, not 4096"));
}
END_TEST

START_TEST(a_driver_that_fails_is_quoted) {
    open_with(both, 1);
    ck_assert_int_eq(tvm_prepare(kernel), TVM_OK);
    const char *failed = "";
    for (long nth = 1; strcmp(failed, "cuTensorMapEncodeTiled"); nth++) {
        kit.driver->fail_nth(nth, CUDA_ERROR_UNKNOWN);
        tvm_status status = tvm_launch(kernel, NULL, nth, 64, x);
        failed = kit.driver->failed();
        ck_assert_ptr_nonnull(failed);
        if (strcmp(failed, "cuTensorMapEncodeTiled")) continue;
        ck_assert_int_eq(status, TVM_DRIVER);
        ck_assert_ptr_nonnull(strstr(tvm_message(context), "cuTensorMapEncodeTiled"));
    }
}
END_TEST

static void *launch_many(void *seed) {
    unsigned state = *(unsigned *)seed;
    for (int i = 0; i < 500; i++) {
        state = state * 1103515245 + 12345;
        if (tvm_launch(kernel, NULL, (int64_t)(state >> 16 & 127) + 1, 64, state & 1 << 28 ? x : other))
            return NULL;
    }
    return seed;
}

START_TEST(threads_find_whole_maps) {
    enum { LAUNCHERS = 4 };
    pthread_t threads[LAUNCHERS];
    unsigned seeds[LAUNCHERS];
    void *result;
    open_with(both, 1);
    ck_assert_int_eq(tvm_prepare(kernel), TVM_OK);
    unlink(driver_log);
    setenv("FAKE_CUDA_PARAMS", "lippt", 1);
    for (unsigned i = 0; i < LAUNCHERS; i++) {
        seeds[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_many, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < LAUNCHERS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_nonnull(result);
    }
    char line[512];
    int lines = 0;
    FILE *log = fopen(driver_log, "r");
    ck_assert_ptr_nonnull(log);
    while (fgets(line, sizeof line, log)) {
        long long m, extent, stride;
        void *address, *mapped;
        int found =
            sscanf(line, "launch f 1,1,1 32,1,1 0 default %lld 64 %p %*p {%p 6[64,%lld,3] 128 %lld 64x32x1",
                   &m, &address, &mapped, &extent, &stride);
        ck_assert_msg(found == 5, "%s", line);
        ck_assert_ptr_eq(address, mapped);
        ck_assert_int_eq(extent, m);
        ck_assert_int_eq(stride, 128 * m);
        lines++;
    }
    fclose(log);
    ck_assert_int_eq(lines, 500 * LAUNCHERS);
}
END_TEST

#endif

/* ---- maps that no launch could make are not believed ---- */

static const tvm_abi_map wrong[] = {
    {.tensor = 0, .rank = 3, .box = {1, 1, 64}},
    {.tensor = 4, .rank = 2, .box = {1, 64}},
    {.tensor = 2,
     .element = TVM_ABI_F16,
     .rank = 3,
     .row = 1,
     .box = {1, 8, 64}}, /* of a tensor in row-major order */
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .view = 3, .box = {1, 1, 64}}, /* slot 2 is no view */
    {.tensor = 2, .element = TVM_ABI_ELEMENTS, .rank = 3, .box = {1, 1, 64}},
    {.tensor = 2, .element = TVM_ABI_BITS8, .rank = 3, .box = {1, 1, 64}}, /* half an element */
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 2, .box = {1, 64}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .box = {1, 0, 64}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .box = {1, 257, 64}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .box = {1, 1, 4}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .box = {1, 1, 64, 1}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .swizzle = TVM_ABI_SWIZZLE_64, .box = {1, 1, 64}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .swizzle = TVM_ABI_SWIZZLES, .box = {1, 1, 8}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .promotion = 3, .box = {1, 1, 8}},
    {.tensor = 2, .element = TVM_ABI_F16, .rank = 3, .is_written = 2, .box = {1, 1, 8}},
};

static const char plain[] = ".vasm 2\n"
                            ".kernel f(m: i64, n: i32, x: global f16[3, m, n])\n"
                            ".warps 1\n"
                            ".grid 1\n"
                            "    %t = alloc-global u8[grid.x, 64]\n"
                            ".end\n";

/* Of elements that are spread: rows of 128, not written, swizzled by 128 bytes or not at all, of their own
 * size. */
static const char narrow_plain[] = ".vasm 7\n"
                                   ".kernel f(m: i32, x: global f4_e2m1[m, 256], y: global u3[m, 256])\n"
                                   ".warps 1\n"
                                   ".grid 1\n"
                                   ".end\n";
static const tvm_abi_map wrong_spread[] = {
    {.tensor = 1, .element = TVM_ABI_SPREAD4, .rank = 2, .box = {8, 64}},
    {.tensor = 1, .element = TVM_ABI_SPREAD4, .rank = 2, .is_written = 1, .box = {8, 128}},
    {.tensor = 1, .element = TVM_ABI_SPREAD4, .rank = 2, .swizzle = TVM_ABI_SWIZZLE_64, .box = {8, 128}},
    {.tensor = 1, .element = TVM_ABI_SPREAD6, .rank = 2, .box = {8, 128}},
    {.tensor = 2, .element = TVM_ABI_SPREAD6, .rank = 2, .box = {8, 128}},
};

static tvm_status decode_of(const char *text, const tvm_abi_map *map, tvm_kernel_abi *made,
                            tvm_kernel_abi **read) {
    tvm_ir_program *program = assemble(text);
    tvm_module *module = translate(program, "sm_90a");
    uint32_t *words, count;
    ck_assert_uint_ne(tvm_abi_add_map(&module->kernels[0].abi, map), TVM_NONE);
    ck_assert_int_eq(tvm_module_abi(module, &words, &count, NULL), TVM_OK);
    tvm_status status = tvm_abi_decode(words, count, program, 90, tvm_target_traits_for(90), read);
    for (uint32_t less = 1; less < count; less++) {
        tvm_kernel_abi *none;
        ck_assert_int_eq(tvm_abi_decode(words, count - less, program, 90, tvm_target_traits_for(90), &none),
                         TVM_FORMAT);
    }
    *made = module->kernels[0].abi;
    free(words);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    return status;
}

static tvm_status decode_with(const tvm_abi_map *map, tvm_kernel_abi *made, tvm_kernel_abi **read) {
    return decode_of(plain, map, made, read);
}

START_TEST(wrong_maps_of_narrow_elements_are_not_believed) {
    static const tvm_abi_map right = {.tensor = 1, .element = TVM_ABI_SPREAD4, .rank = 2, .box = {8, 128}};
    tvm_kernel_abi made, *read;
    for (size_t i = 0; i < sizeof wrong_spread / sizeof *wrong_spread; i++)
        ck_assert_int_eq(decode_of(narrow_plain, &wrong_spread[i], &made, &read), TVM_FORMAT);
    ck_assert_int_eq(decode_of(narrow_plain, &right, &made, &read), TVM_OK);
    ck_assert_mem_eq(&read->maps[0], &right, sizeof right);
    free(read);
}
END_TEST

START_TEST(wrong_maps_are_not_believed) {
    tvm_kernel_abi made, *read;
    ck_assert_int_eq(decode_with(&wrong[_i], &made, &read), TVM_FORMAT);
}
END_TEST

START_TEST(a_map_survives_being_numbers) {
    static const tvm_abi_map map = {.tensor = 3,
                                    .element = TVM_ABI_BITS32,
                                    .rank = 2,
                                    .swizzle = TVM_ABI_SWIZZLE_32,
                                    .promotion = 2,
                                    .is_written = 1,
                                    .box = {256, 8}};
    tvm_kernel_abi made, *read;
    ck_assert_int_eq(decode_with(&map, &made, &read), TVM_OK);
    ck_assert_uint_eq(read->map_count, 1);
    ck_assert_mem_eq(&read->maps[0], &map, sizeof map);
    ck_assert_mem_eq(read, &made, sizeof made);
    free(read);
}
END_TEST

START_TEST(equal_maps_are_one_row) {
    tvm_kernel_abi abi = {0};
    tvm_abi_map map = {.tensor = 2, .rank = 2, .box = {8, 64}};
    ck_assert_uint_eq(tvm_abi_add(&abi, TVM_ABI_TENSOR, 8, 0), 0);
    ck_assert_uint_eq(tvm_abi_add_map(&abi, &map), 1);
    map.box[0] = 16;
    ck_assert_uint_eq(tvm_abi_add_map(&abi, &map), 2);
    map.box[0] = 8;
    ck_assert_uint_eq(tvm_abi_add_map(&abi, &map), 1);
    ck_assert_uint_eq(abi.map_count, 2);
    ck_assert_uint_eq(abi.params[2].index, 1);
    while (abi.map_count < TVM_ABI_TENSOR_MAPS) {
        map.box[0]++;
        ck_assert_uint_ne(tvm_abi_add_map(&abi, &map), TVM_NONE);
        if (map.box[0] == 15) map.box[0] = 16;
    }
    map.box[0]++;
    ck_assert_uint_eq(tvm_abi_add_map(&abi, &map), TVM_NONE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tensor maps");
    TCase *encoding = tcase_create("encoding"), *launches = tcase_create("launches");
    tcase_add_loop_test(encoding, wrong_maps_are_not_believed, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(encoding, a_map_survives_being_numbers);
    tcase_add_test(encoding, wrong_maps_of_narrow_elements_are_not_believed);
    tcase_add_test(encoding, equal_maps_are_one_row);
#ifdef HAVE_CUDA_H
    tcase_add_checked_fixture(launches, setup, teardown);
    tcase_add_test(launches, maps_are_made_of_the_arguments);
    tcase_add_test(launches, tensors_of_the_launch_have_maps);
    tcase_add_test(launches, elements_that_are_spread_have_their_types);
    tcase_add_test(launches, a_launch_with_the_same_tensors_makes_none);
    tcase_add_test(launches, tensors_without_elements_are_all_outside);
    tcase_add_test(launches, what_fits_no_map_is_refused);
    tcase_add_test(launches, a_driver_that_fails_is_quoted);
    tcase_add_test(launches, threads_find_whole_maps);
    TCase *steps = tcase_create("strides");
    tcase_add_checked_fixture(steps, setup_strided, teardown);
    tcase_add_test(steps, maps_have_the_strides_of_the_launch);
    tcase_add_test(steps, a_row_of_elements_apart_is_refused);
    suite_add_tcase(suite, steps);
#endif
    suite_add_tcase(suite, encoding);
    suite_add_tcase(suite, launches);
    return run_suite(suite);
}
