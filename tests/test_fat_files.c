/* A bytecode file with code for many GPUs: which of it a GPU takes that the file names, that is newer, older,
 * or between what it names, by CUDA's rules of compatibility; and tables of such code that nobody has written
 * with tvm-cc. The ptxas is a script, the GPU a driver without one. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "image_kit.h"

#define EMBEDDED      ", embedded in the program"
#define CUBIN(target) "cubin for " target EMBEDDED BY
#define PTX(target)   "PTX for " target EMBEDDED ", compiled by the driver"
#define MADE(target)  "PTX for " target ", compiled by the driver"

/* ---- the nearest of what is there ---- */

/* On a machine without a compiler of PTX. */
static const struct {
    const char *embedded;
    unsigned capability;
    const char *origin;
} takes[] = {
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 80, CUBIN("sm_80")},
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 86, CUBIN("sm_86")},
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 88,
     CUBIN("sm_86")}, /* no target of its own: a lower minor number */
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 87, MADE("sm_87")}, /* Tegra takes no desktop's cubin */
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 90, CUBIN("sm_90a")},
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 95, PTX("sm_90")},
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 101, PTX("sm_100")},
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 103, MADE("sm_103a")},
    {"sm_80,sm_86,sm_90a,sm_100a,sm_120a", 130, PTX("sm_120")},
    {"sm_87", 88, PTX("sm_87")}, /* of Tegra: its PTX runs, its cubin does not */
    {"sm_87", 89, MADE("sm_89")},
    {"sm_100f", 100, CUBIN("sm_100f")}, /* of a family: what is known to be of it, and no older */
    {"sm_100f", 103, CUBIN("sm_100f")},
    {"sm_100f", 110, MADE("sm_110a")},
    {"sm_100f", 107, MADE("sm_103")},
    {"sm_103f", 100, MADE("sm_100a")},
    {"sm_120f", 121, CUBIN("sm_120f")},
    {"sm_120f", 122, MADE("sm_121")},
    {"sm_100f,sm_100", 100, CUBIN("sm_100f")}, /* the one that has more, in any order */
    {"sm_100,sm_100f", 103, CUBIN("sm_100f")},
    {"sm_100,sm_103", 103, CUBIN("sm_103")},
    {"sm_90a,sm_90a,sm_90a", 90, CUBIN("sm_90a")},
};
enum { TAKES = sizeof takes / sizeof *takes };

START_TEST(a_gpu_takes_the_nearest) {
    embed(takes[_i].embedded);
    through_the_file();
    no_compiler();
    ck_assert_str_eq(origin_on(takes[_i].capability), takes[_i].origin);
}
END_TEST

START_TEST(a_target_is_embedded_once) {
    embed("sm_90a,sm_80,sm_90a");
    ck_assert_uint_eq(program->image_count, 4);
}
END_TEST

/* ---- tables that tvm-cc does not write ---- */

/* Twice the same, and one of a target that does not exist: the first that can be used is. */
START_TEST(code_that_is_there_twice_is_taken_once) {
    uint8_t another[] = "\177ELF another";
    embed("sm_90a");
    tvm_ir_image again = program->images[0];
    again.code = another;
    again.code_size = sizeof another - 1;
    ck_assert_uint_ne(tvm_ir_program_add_image(program, &again), TVM_NONE);
    strcpy(again.target, "sm_9000z");
    ck_assert_uint_ne(tvm_ir_program_add_image(program, &again), TVM_NONE);
    through_the_file();
    ck_assert_uint_eq(program->image_count, 4);
    ck_assert_str_eq(origin_on(90), CUBIN("sm_90a"));
    ck_assert_str_eq((const char *)image.code, "\177ELF made for -arch=sm_90a");
}
END_TEST

/* Numbers of the section with one image, by their place from its begin: version, count, and of the image
 * version of the code generator, hash, kind, length of the target's name, that of its maker's, number of
 * facts, size of the code. A name of 6 characters, one of 27, and 11 facts are between. */
enum {
    AT_COUNT = 4,
    AT_KIND = 8 + 4 + 16,
    AT_TARGET = AT_KIND + 1,
    AT_MAKER = AT_TARGET + 4 + 6,
    AT_FACTS = AT_MAKER + 4 + 27,
    AT_SIZE = AT_FACTS + 4 + 11 * 4
};
static const struct {
    size_t at, bytes;
    uint64_t value;
} hostile[] = {
    {AT_COUNT, 4, 65},
    {AT_COUNT, 4, UINT32_MAX},
    {AT_COUNT, 4, 3},
    {AT_COUNT, 4, 1},
    {AT_KIND, 1, 2},
    {AT_TARGET, 4, 16},
    {AT_TARGET, 4, UINT32_MAX},
    {AT_TARGET, 4, 5},
    {AT_MAKER, 4, 64},
    {AT_MAKER, 4, UINT32_MAX},
    {AT_FACTS, 4, 65537},
    {AT_FACTS, 4, UINT32_MAX},
    {AT_FACTS, 4, 10},
    {AT_SIZE, 8, 1},
    {AT_SIZE, 8, 1 << 20},
    {AT_SIZE, 8, UINT64_MAX},
    {AT_SIZE, 8, UINT64_MAX - 64},
};
enum { HOSTILE = sizeof hostile / sizeof *hostile };

static uint8_t *written(size_t *size) {
    uint8_t *bytes;
    embed("sm_90a");
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &bytes, size, &diags), TVM_OK);
    return bytes;
}

/* One message that names the section, and no program. */
static void expect_refused(const uint8_t *bytes, size_t size) {
    tvm_ir_program *read = NULL;
    tvm_diags said = {0};
    ck_assert_int_eq(tvm_vbc_read(bytes, size, "t.vbc", &read, &said), TVM_FORMAT);
    ck_assert_ptr_null(read);
    ck_assert_uint_eq(said.count, 1);
    tvm_diags_free(&said);
}

/* An image whose code reaches into the next one, or beyond the file; names, facts and images without end. */
START_TEST(hostile_numbers_are_refused) {
    uint8_t *entry;
    size_t size, section_size;
    uint8_t *bytes = written(&size), *section = images_section(bytes, &section_size, &entry);
    uint64_t code_size;
    memcpy(&code_size, section + AT_SIZE, sizeof code_size);
    ck_assert_uint_eq(code_size, program->images[0].code_size); /* the places are right */
    memcpy(section + hostile[_i].at, &hostile[_i].value, hostile[_i].bytes);
    const uint64_t sum = XXH3_64bits(section, section_size);
    memcpy(entry + 24, &sum, sizeof sum);
    expect_refused(bytes, size);
    free(bytes);
}
END_TEST

/* The file ends within the table, which its header says or not; or the section lies upon another one. */
START_TEST(truncated_and_overlapping_tables_are_refused) {
    uint8_t *entry;
    size_t size, section_size;
    uint8_t *bytes = written(&size), *section = images_section(bytes, &section_size, &entry);
    const size_t before = (size_t)(section - bytes);
    for (size_t kept = 0; kept < section_size; kept += kept < 200 ? 1 : 97) {
        uint8_t *cut = malloc(before + kept); /* no byte more, so that a read beyond it is found */
        const uint64_t total = before + kept, sum = XXH3_64bits(section, kept), length = kept;
        ck_assert_ptr_nonnull(cut);
        memcpy(cut, bytes, total);
        expect_refused(cut, total);
        memcpy(cut + 16, &total, sizeof total);
        memcpy(cut + (entry - bytes) + 16, &length, sizeof length);
        memcpy(cut + (entry - bytes) + 24, &sum, sizeof sum);
        expect_refused(cut, total);
        free(cut);
    }
    const uint64_t wrong[] = {before - 1, before - VBC_ENTRY_SIZE, 0, size, UINT64_MAX, before + 1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(entry + 8, &wrong[i], sizeof wrong[i]);
        expect_refused(bytes, size);
    }
    free(bytes);
}
END_TEST

/* ---- through tvm.h ---- */

#ifdef HAVE_CUDA_H

static const struct {
    const char *capability, *origin;
} devices[] = {
    {"90", CUBIN("sm_90a")},
    {"89", CUBIN("sm_80")},
    {"130", PTX("sm_100")},
    {"103", CUBIN("sm_100f")},
};
enum { DEVICES = sizeof devices / sizeof *devices };

START_TEST(a_driver_loads_what_its_gpu_takes) {
    embed("sm_80,sm_90a,sm_100f");
    no_compiler();
    setenv("FAKE_CUDA_CC", devices[_i].capability, 1);
    ck_assert_int_eq(prepare(), TVM_OK);
    ck_assert_str_eq(tvm_code_origin(loaded), devices[_i].origin);
    ck_assert_ptr_null(tvm_context_warning(context));
    ck_assert_int_eq(tvm_launch(tvm_kernel_at(loaded, 0), NULL, 0, NULL), TVM_OK);
    tvm_program_free(loaded);
    tvm_context_free(context);
    unsetenv("FAKE_CUDA_CC");
}
END_TEST

START_TEST(a_gpu_older_than_all_targets_is_refused) {
    const tvm_context_options options = {.device = TVM_DEVICE_CUDA, .cache_dir = ""};
    if (!dlopen("tests/fake/libcuda.so.1", RTLD_NOW)) ck_abort_msg("%s", dlerror());
    setenv("FAKE_CUDA_CC", "75", 1);
    ck_assert_int_eq(tvm_context_create(&options, &context), TVM_UNSUPPORTED);
    ck_assert_ptr_nonnull(
        strstr(tvm_message(context), "a device of compute capability 7.5 is not supported"));
    tvm_context_free(context);
    unsetenv("FAKE_CUDA_CC");
}
END_TEST

#endif

int main(void) {
    Suite *suite = suite_create("fat_files");
    TCase *cases = tcase_create("fat_files");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_loop_test(cases, a_gpu_takes_the_nearest, 0, TAKES);
    tcase_add_test(cases, a_target_is_embedded_once);
    tcase_add_test(cases, code_that_is_there_twice_is_taken_once);
    tcase_add_loop_test(cases, hostile_numbers_are_refused, 0, HOSTILE);
    tcase_add_test(cases, truncated_and_overlapping_tables_are_refused);
#ifdef HAVE_CUDA_H
    tcase_add_loop_test(cases, a_driver_loads_what_its_gpu_takes, 0, DEVICES);
    tcase_add_test(cases, a_gpu_older_than_all_targets_is_refused);
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
