/* Where a program's code for a GPU comes from: what tvm-cc --embed puts into a bytecode file, when it is used
 * and when not, and how many translate when many processes find the cache empty. The ptxas is a script. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_kit.h"
#include "image_kit.h"

START_TEST(embedded_code_comes_back) {
    embed("sm_80,sm_90a");
    ck_assert_uint_eq(program->image_count, 4);
    through_the_file();
    ck_assert_uint_eq(program->image_count, 4);
    static const char *const targets[] = {"sm_80", "sm_90a", "sm_80", "sm_90"};
    for (uint32_t i = 0; i < 4; i++) {
        const tvm_ir_image *embedded = &program->images[i];
        char cubin[64];
        snprintf(cubin, sizeof cubin, "\177ELF made for -arch=%s", targets[i]);
        ck_assert_str_eq(embedded->target, targets[i]);
        ck_assert_int_eq(embedded->ptx, i >= 2);
        if (i < 2) ck_assert_str_eq((const char *)embedded->code, cubin);
        if (i >= 2) ck_assert_ptr_nonnull(strstr((const char *)embedded->code, targets[i]));
        ck_assert_str_eq(embedded->made_by, i < 2 ? "ptxas release 99.0, V99.0.1" : "");
        ck_assert_uint_eq(embedded->fact_count, 11); /* version, 8 of the kernel, a row for n and x */
    }
}
END_TEST

START_TEST(embedding_again_replaces) {
    uint8_t *before, *after;
    size_t before_size, after_size;
    uint64_t hash[2][2];
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_LINES | TVM_VBC_IMAGES, &before, &before_size, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_vbc_hash(program, hash[0], &diags), TVM_OK);
    embed("sm_80,sm_89,sm_90a,sm_100a");
    ck_assert_uint_eq(program->image_count, 7); /* PTX for sm_80, sm_90 and sm_100 */
    ck_assert_int_eq(tvm_vbc_hash(program, hash[1], &diags), TVM_OK);
    ck_assert_mem_eq(hash[0], hash[1], sizeof hash[0]);
    through_the_file();
    embed("sm_89");
    ck_assert_uint_eq(program->image_count, 2);
    through_the_file();
    embed("none");
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_LINES | TVM_VBC_IMAGES, &after, &after_size, &diags),
                     TVM_OK);
    ck_assert_uint_eq(before_size, after_size);
    ck_assert_mem_eq(before, after, after_size);
    free(before);
    free(after);
}
END_TEST

START_TEST(targets_that_are_none_are_refused) {
    static const char *const wrong[] = {
        "",
        "sm_80,",
        ",sm_80",
        "sm_80;sm_90",
        "sm_81",
        "sm_80,none",
        ("sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,sm_80,"
         "sm_80,sm_80,sm_80,sm_80,sm_80")};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tvm_target targets[TVM_EMBED_MAX];
        size_t count;
        ck_assert_int_ne(tvm_embed_parse(wrong[i], targets, &count, &diags), TVM_OK);
        ck_assert_uint_eq(diags.count, i + 1);
    }
}
END_TEST

START_TEST(a_compiler_that_fails_embeds_nothing) {
    tvm_target targets[2] = {{80, '\0'}, {90, 'a'}};
    tvm_ptx_compiler compiler;
    embed("sm_89");
    ck_assert_int_eq(tvm_ptx_compiler_ptxas("/bin/false", &compiler, &diags), TVM_OK);
    ck_assert_int_eq(tvm_embed(program, targets, 2, &compiler, 2, &diags), TVM_PTXAS);
    ck_assert_uint_ge(diags.count, 1);
    ck_assert_uint_eq(program->image_count, 0);
    tvm_ptx_compiler_free(&compiler);
}
END_TEST

START_TEST(exactly_the_target_needs_nothing_more) {
    embed("sm_80,sm_90a");
    through_the_file();
    ck_assert_str_eq(origin_on(90), "cubin for sm_90a, embedded in the program" BY);
    ck_assert_str_eq((const char *)image.code, "\177ELF made for -arch=sm_90a");
    ck_assert_int_eq(logged(""), 0); /* although there is a ptxas */
    no_compiler();
    ck_assert_str_eq(origin_on(80), "cubin for sm_80, embedded in the program" BY);
    ck_assert_uint_eq(warnings.count, 0);
}
END_TEST

START_TEST(a_lower_target_stands_in_without_a_compiler) {
    embed("sm_80,sm_90a");
    through_the_file();
    ck_assert_str_eq(origin_on(89), "cubin for sm_89" BY); /* better than sm_80's */
    no_compiler();
    tvm_diags_free(&warnings);
    warnings = (tvm_diags){0};
    ck_assert_str_eq(origin_on(89), "cubin for sm_80, embedded in the program" BY);
    /* Not sm_90a's, which runs on that alone, but translated: the code generator knows the GPU. */
    ck_assert_str_eq(origin_on(100), "PTX for sm_100a, compiled by the driver");
}
END_TEST

/* Of an older target's PTX machine code for the GPU's own architecture is made, and kept apart from its
 * other code. */
START_TEST(code_for_an_older_target_is_compiled_for_the_gpu) {
    ck_assert_str_eq(origin_of(80, 90), "cubin for sm_80" BY);
    ck_assert_str_eq((const char *)image.code, "\177ELF made for -arch=sm_90");
    tvm_cache_key elsewhere = image.key;
    ck_assert_str_eq(origin_on(80), "cubin for sm_80" BY);
    ck_assert_str_eq((const char *)image.code, "\177ELF made for -arch=sm_80");
    ck_assert_mem_ne(&image.key, &elsewhere, sizeof elsewhere);
    ck_assert_str_eq(origin_of(80, 130), "PTX for sm_80, compiled by the driver");
}
END_TEST

START_TEST(a_newer_gpu_takes_embedded_ptx) {
    embed("sm_80,sm_89,sm_90a");
    through_the_file();
    ck_assert_str_eq(origin_on(130), "PTX for sm_90, embedded in the program, compiled by the driver");
    ck_assert_ptr_nonnull(strstr(image.code, ".target sm_90\n"));
    embed("sm_120a");
    ck_assert_str_eq(origin_on(150), "PTX for sm_120, embedded in the program, compiled by the driver");
    embed("none");
    ck_assert_str_eq(origin_on(130), "PTX for sm_121, compiled by the driver");
    ck_assert_int_eq(logged(""), 0); /* no cubin that ptxas makes would run there */
}
END_TEST

/* A kernel that assumes more than the embedded code's target is not in that code. */
START_TEST(embedded_code_without_the_kernels_of_a_gpu_is_left) {
    tvm_ir_program_free(program);
    program = assemble(KERNEL_FOR("3.0", ".assume target >= 90\n"));
    embed("sm_80,sm_90");
    through_the_file();
    ck_assert_uint_eq(program->image_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const tvm_ir_image *made = &program->images[i];
        unsigned arch = strcmp(made->target, "sm_80") ? 90 : 80;
        tvm_kernel_abi *abi;
        ck_assert_int_eq(
            tvm_abi_decode(made->facts, made->fact_count, program, arch, tvm_target_traits_for(arch), &abi),
            TVM_OK);
        ck_assert_uint_eq(abi->absence, arch == 90 ? TVM_ABI_PRESENT : TVM_ABI_OTHER_TARGET);
        free(abi);
    }
    no_compiler();
    ck_assert_str_eq(origin_on(90), "cubin for sm_90, embedded in the program" BY);
    ck_assert_str_eq(origin_on(130), "PTX for sm_90, embedded in the program, compiled by the driver");
    setenv("TVM_PTXAS", script_path, 1);
    embed("sm_80");
    no_compiler();
    ck_assert_str_eq(origin_on(90), "PTX for sm_90a, compiled by the driver");
}
END_TEST

START_TEST(without_anything_it_is_translated) {
    ck_assert_str_eq(origin_on(90), "cubin for sm_90a" BY);
    no_compiler();
    ck_assert_str_eq(origin_on(90), "PTX for sm_90a, compiled by the driver");
}
END_TEST

/* Ignored with one note that has this in it. */
static void expect_ignored(const char *note) {
    ck_assert_str_eq(origin_on(90), "cubin for sm_90a" BY);
    ck_assert_uint_eq(warnings.count, 1);
    ck_assert_msg(strstr(warnings.items[0].message, note) != NULL, "'%s' does not say '%s'",
                  warnings.items[0].message, note);
}

START_TEST(code_of_another_generator_is_ignored) {
    embed("sm_90a");
    for (uint32_t i = 0; i < program->image_count; i++) program->images[i].codegen++;
    through_the_file();
    char note[64];
    snprintf(note, sizeof note, "version %d of the code generator", TVM_CODEGEN_VERSION + 1);
    expect_ignored(note);
}
END_TEST

START_TEST(code_of_another_program_is_ignored) {
    embed("sm_90a");
    tvm_ir_program *other = assemble(KERNEL("4.0"));
    for (uint32_t i = 0; i < program->image_count; i++)
        ck_assert_uint_ne(tvm_ir_program_add_image(other, &program->images[i]), TVM_NONE);
    tvm_ir_program_free(program);
    program = other;
    through_the_file();
    expect_ignored("another program");
}
END_TEST

/* A fact, by its place (tvm_abi_encode), that the code of a kernel with n, an i32, and x, a tensor, cannot
 * have. */
static const struct wrong_fact {
    uint32_t at, value;
} wrong_facts[] = {
    {0, TVM_ABI_ENCODING + 1},
    {1, TVM_ABI_OTHER_TARGET},
    {1, TVM_ABI_ABSENCES},
    {2, 0},
    {2, 96},
    {2, 1 << 20},
    {3, TVM_MAX_SHARED_BYTES + 1},
    {3, UINT32_MAX},
    {4, 2},
    {6, 0},
    {7, TVM_ABI_FLAGS + 1},
    {8, 1},
    {8, 3},
    {8, UINT32_MAX},
    {9, TVM_ABI_KINDS | 8 << 8},
    {9, TVM_ABI_INTEGER | 8 << 8},
    {9, TVM_ABI_INTEGER | 3 << 8},
    {9, TVM_ABI_INTEGER | 4 << 8 | 1 << 16},
    {9, TVM_ABI_INTEGER | 4 << 8 | 2 << 16},
    {9, TVM_ABI_FLOAT | 4 << 8},
    {9, TVM_ABI_TENSOR | 8 << 8},
    {9, TVM_ABI_TENSOR_MAP | 128 << 8 | 1 << 16},
    {9, TVM_ABI_SCRATCH | 8 << 8},
    {9, TVM_ABI_TARGET | 8 << 8},
};
enum { WRONG_FACTS = sizeof wrong_facts / sizeof *wrong_facts };

START_TEST(impossible_facts_are_not_believed) {
    embed("sm_90a");
    for (uint32_t j = 0; j < program->image_count; j++) {
        ck_assert_uint_eq(program->images[j].fact_count, 11);
        ck_assert_uint_eq(program->images[j].facts[9], TVM_ABI_INTEGER | 4 << 8);
        program->images[j].facts[wrong_facts[_i].at] = wrong_facts[_i].value;
    }
    expect_ignored("ignored");
}
END_TEST

START_TEST(missing_facts_are_not_believed) {
    embed("sm_90a");
    program->images[0].fact_count--;
    program->images[1].fact_count = 0;
    expect_ignored("ignored");
}
END_TEST

/* ---- the section as bytes */

START_TEST(any_changed_byte_is_survived) {
    uint8_t *bytes, *entry;
    size_t size, section_size;
    embed("sm_90a");
    tvm_ir_program_drop_images(program);
    embed("sm_80");
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &bytes, &size, &diags), TVM_OK);
    uint8_t *section = images_section(bytes, &section_size, &entry);
    for (size_t at = 0; at < section_size && at < 300; at++) {
        for (unsigned flip = 1; flip < 256; flip <<= 1) {
            tvm_ir_program *read = NULL;
            tvm_diags said = {0};
            section[at] ^= (uint8_t)flip;
            ck_assert_int_eq(tvm_vbc_read(bytes, size, "t.vbc", &read, &said), TVM_FORMAT); /* the checksum */
            tvm_diags_free(&said);
            said = (tvm_diags){0};
            uint64_t sum = XXH3_64bits(section, section_size);
            memcpy(entry + 24, &sum, 8);
            tvm_status status = tvm_vbc_read(bytes, size, "t.vbc", &read, &said);
            ck_assert(status == TVM_OK || status == TVM_FORMAT || status == TVM_VERSION);
            ck_assert_int_eq(status == TVM_OK, said.count == 0);
            if (at < 4) ck_assert_int_eq(status, TVM_VERSION);
            tvm_ir_program_free(read);
            tvm_diags_free(&said);
            section[at] ^= (uint8_t)flip;
            sum = XXH3_64bits(section, section_size);
            memcpy(entry + 24, &sum, 8);
        }
    }
    free(bytes);
}
END_TEST

/* The first version of the section had as many numbers for each kernel: what it says is read, and is of
 * another code generator. */
START_TEST(the_first_version_of_the_section_is_read) {
    uint8_t *bytes, *entry;
    size_t size, section_size;
    embed("sm_90a");
    tvm_ir_program *written = program;
    for (uint32_t i = 0; i < program->image_count; i++) program->images[i].codegen = 8;
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &bytes, &size, &diags), TVM_OK);
    uint8_t *section = images_section(bytes, &section_size, &entry);
    uint8_t *after = section;
    section[0] = 1;
    for (uint32_t i = 0; i < written->image_count;
         i++) { /* one kernel of as many numbers as there were facts but one */
        const uint32_t kernels = 1, count = written->images[i].fact_count, numbers = count - 1;
        uint8_t *at = memmem(after, (size_t)(section + section_size - after), &written->images[i].facts[1],
                             numbers * sizeof numbers);
        ck_assert_ptr_nonnull(at);
        after = at + numbers * sizeof numbers;
        memcpy(at - 8, &kernels, 4);
        memcpy(at - 4, &numbers, 4);
    }
    uint64_t sum = XXH3_64bits(section, section_size);
    memcpy(entry + 24, &sum, 8);
    ck_assert_int_eq(tvm_vbc_read(bytes, size, "t.vbc", &program, &diags), TVM_OK);
    ck_assert_uint_eq(program->image_count, written->image_count);
    ck_assert_uint_eq(program->images[0].fact_count, written->images[0].fact_count - 1);
    ck_assert_str_eq(program->images[0].target, "sm_90a");
    expect_ignored("version 8 of the code generator");
    tvm_ir_program_free(written);
    free(bytes);
}
END_TEST

START_TEST(control_characters_are_refused) {
    static const char *const texts[] = {"sm\033[31m", "sm_90a\n", "sm_\200"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint8_t *bytes;
        size_t size;
        tvm_ir_program *read = NULL;
        embed("sm_90a");
        strcpy(program->images[0].target, texts[i]);
        ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &bytes, &size, &diags), TVM_OK);
        ck_assert_int_eq(tvm_vbc_read(bytes, size, "t.vbc", &read, &diags), TVM_FORMAT);
        ck_assert_ptr_nonnull(strstr(diags.items[i].message, "IMGS"));
        free(bytes);
    }
}
END_TEST

/* ---- many processes, one cold cache */

enum { PROCESSES = 64 };

static int make_in_process(const char *cache_folder) {
    tvm_cache *cache = tvm_cache_open(cache_folder, 0, NULL);
    tvm_image_request request = {.program = program, .target = {90, 'a'}, .capability = 90, .cache = cache};
    tvm_diags said = {0};
    if (!cache || tvm_image_make(&request, &image, &said, &said) || said.count) return 1;
    if (strcmp(image.code, "\177ELF made for -arch=sm_90a") != 0) return 2;
    tvm_image_free(&image);
    tvm_cache_close(cache);
    return 0;
}

START_TEST(one_of_many_processes_translates) {
    char cache_folder[128];
    pid_t children[PROCESSES];
    snprintf(cache_folder, sizeof cache_folder, "%s/cache", folder);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork_quietly();
        if (!children[i]) _exit(make_in_process(cache_folder));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
    ck_assert_int_eq(logged("-v -arch=sm_90a"), 1);
}
END_TEST

/* ---- in parallel */

enum { PARALLEL = 4 };

START_TEST(targets_are_embedded_in_parallel) {
    static const tvm_target targets[PARALLEL] = {{80, '\0'}, {86, '\0'}, {89, '\0'}, {90, 'a'}};
    tvm_ptx_compiler compiler;
    folder_meeting_ptxas(folder, PARALLEL);
    ck_assert_int_eq(tvm_ptx_compiler_find(&compiler, NULL, &diags), TVM_OK);
    ck_assert_int_eq(tvm_embed(program, targets, PARALLEL, &compiler, PARALLEL, &diags), TVM_OK);
    ck_assert_uint_eq(program->image_count, PARALLEL + 2);
    tvm_ptx_compiler_free(&compiler);
}
END_TEST

/* ---- nvJitLink */

static void use_nvjitlink(void) {
    char library[PATH_MAX];
    ck_assert_ptr_nonnull(realpath("tests/fake/libnvJitLink.so.13", library));
    unsetenv("TVM_PTXAS");
    setenv("TVM_NVJITLINK", library, 1);
}

START_TEST(the_driver_stands_in_for_a_library_that_fails) {
    use_nvjitlink();
    setenv("FAKE_NVJITLINK_FAIL", "alone", 1);
    ck_assert_str_eq(origin_on(90), "PTX for sm_90a, compiled by the driver");
    ck_assert_ptr_nonnull(strstr(image.code, ".target sm_90a"));
    ck_assert_uint_eq(warnings.count, 1);
    ck_assert_ptr_nonnull(strstr(warnings.items[0].message, "nvJitLink"));
    unsetenv("FAKE_NVJITLINK_FAIL");
}
END_TEST

START_TEST(nvjitlink_is_part_of_the_key) {
    char cache_folder[128];
    use_nvjitlink();
    snprintf(cache_folder, sizeof cache_folder, "%s/cache", folder);
    tvm_cache *cache = tvm_cache_open(cache_folder, 0, NULL);
    tvm_image_request request = {.program = program, .target = {90, 'a'}, .capability = 90, .cache = cache};
    char origin[TVM_IMAGE_ORIGIN_MAX];
    static const char *const expected[] = {"cubin for sm_90a, by nvJitLink 99.1",
                                           "cubin for sm_90a, from the cache, by nvJitLink 99.1"};
    for (int i = 0; i < 2; i++) {
        tvm_image_free(&image);
        ck_assert_int_eq(tvm_image_make(&request, &image, &warnings, &diags), TVM_OK);
        ck_assert_str_eq(tvm_image_origin(&image, origin), expected[i]);
    }
    setenv("TVM_PTXAS", script_path, 1);
    tvm_image_free(&image);
    ck_assert_int_eq(tvm_image_make(&request, &image, &warnings, &diags), TVM_OK);
    ck_assert_str_eq(tvm_image_origin(&image, origin), "cubin for sm_90a" BY);
    ck_assert_uint_eq(warnings.count, 0);
    tvm_cache_close(cache);
}
END_TEST

#ifdef HAVE_CUDA_H

/* ---- through tvm.h, on a driver without a GPU */

START_TEST(a_machine_without_ptxas_runs_it) {
    embed("sm_80,sm_90a");
    no_compiler();
    ck_assert_int_eq(prepare(), TVM_OK);
    ck_assert_str_eq(tvm_code_origin(loaded), "cubin for sm_90a, embedded in the program" BY);
    ck_assert_ptr_null(tvm_context_warning(context));
    ck_assert_int_eq(tvm_launch(tvm_kernel_at(loaded, 0), NULL, 0, NULL), TVM_OK);
    tvm_program_free(loaded);
    tvm_context_free(context);
}
END_TEST

START_TEST(a_driver_that_refuses_it_gets_another) {
    embed("sm_90a");
    setenv("FAKE_CUDA_REFUSE", "1", 1);
    ck_assert_int_ne(prepare(), TVM_OK);
    ck_assert_int_eq(logged("-v -arch=sm_90a"), 1);
    ck_assert_ptr_nonnull(strstr(tvm_context_warning(context), "embedded"));
    unsetenv("FAKE_CUDA_REFUSE");
    tvm_program_free(loaded);
    tvm_context_free(context);
}
END_TEST

static void *prepare_first(void *code) {
    return tvm_prepare(tvm_kernel_at(code, 0)) ? code : NULL;
}

START_TEST(threads_translate_their_programs_in_parallel) {
    static const char *const sources[PARALLEL] = {KERNEL("3.0"), KERNEL("4.0"), KERNEL("5.0"), KERNEL("6.0")};
    tvm_program *programs[PARALLEL];
    pthread_t threads[PARALLEL];
    ck_assert_int_eq(prepare(), TVM_OK);
    folder_meeting_ptxas(folder, PARALLEL);
    for (int i = 0; i < PARALLEL; i++) {
        uint8_t *bytes;
        size_t size;
        tvm_ir_program *assembled = assemble(sources[i]);
        ck_assert_int_eq(tvm_vbc_write(assembled, 0, &bytes, &size, &diags), TVM_OK);
        tvm_ir_program_free(assembled);
        ck_assert_int_eq(tvm_load(context, bytes, size, &programs[i]), TVM_OK);
        free(bytes);
    }
    for (int i = 0; i < PARALLEL; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, prepare_first, programs[i]), 0);
    for (int i = 0; i < PARALLEL; i++) {
        void *failed;
        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
        ck_assert_str_eq(tvm_code_origin(programs[i]), "cubin for sm_90a" BY);
    }
    for (int i = 0; i < PARALLEL; i++) tvm_program_free(programs[i]);
    tvm_program_free(loaded);
    tvm_context_free(context);
}
END_TEST

#endif

START_TEST(the_interpreter_says_so) {
    uint8_t *bytes;
    size_t size;
    tvm_context *cpu;
    tvm_program *code;
    embed("sm_90a");
    ck_assert_int_eq(tvm_vbc_write(program, TVM_VBC_IMAGES, &bytes, &size, &diags), TVM_OK);
    ck_assert_int_eq(tvm_context_create(&(tvm_context_options){.device = TVM_DEVICE_CPU}, &cpu), TVM_OK);
    ck_assert_int_eq(tvm_load(cpu, bytes, size, &code), TVM_OK);
    ck_assert_str_eq(tvm_code_origin(code), "interpreted");
    tvm_program_free(code);
    tvm_context_free(cpu);
    free(bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("image");
    TCase *cases = tcase_create("image");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, embedded_code_comes_back);
    tcase_add_test(cases, embedding_again_replaces);
    tcase_add_test(cases, targets_that_are_none_are_refused);
    tcase_add_test(cases, a_compiler_that_fails_embeds_nothing);
    tcase_add_test(cases, exactly_the_target_needs_nothing_more);
    tcase_add_test(cases, a_lower_target_stands_in_without_a_compiler);
    tcase_add_test(cases, code_for_an_older_target_is_compiled_for_the_gpu);
    tcase_add_test(cases, a_newer_gpu_takes_embedded_ptx);
    tcase_add_test(cases, embedded_code_without_the_kernels_of_a_gpu_is_left);
    tcase_add_test(cases, without_anything_it_is_translated);
    tcase_add_test(cases, code_of_another_generator_is_ignored);
    tcase_add_test(cases, code_of_another_program_is_ignored);
    tcase_add_loop_test(cases, impossible_facts_are_not_believed, 0, WRONG_FACTS);
    tcase_add_test(cases, missing_facts_are_not_believed);
    tcase_add_test(cases, the_first_version_of_the_section_is_read);
    tcase_add_test(cases, any_changed_byte_is_survived);
    tcase_add_test(cases, control_characters_are_refused);
    tcase_add_test(cases, one_of_many_processes_translates);
    tcase_add_test(cases, the_driver_stands_in_for_a_library_that_fails);
    tcase_add_test(cases, nvjitlink_is_part_of_the_key);
    tcase_add_test(cases, targets_are_embedded_in_parallel);
    tcase_add_test(cases, the_interpreter_says_so);
#ifdef HAVE_CUDA_H
    tcase_add_test(cases, a_machine_without_ptxas_runs_it);
    tcase_add_test(cases, a_driver_that_refuses_it_gets_another);
    tcase_add_test(cases, threads_translate_their_programs_in_parallel);
#endif
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
