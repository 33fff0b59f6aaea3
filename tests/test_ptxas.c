/* Finding and running ptxas, with shell scripts in its place. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "check_kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen.h"
#include "folder_kit.h"
#include "ptxas.h"
#include "fork_kit.h"
#include "suite_kit.h"

/* The ptxas of the toolkit that configure found. */
#define CONFIGURED TVM_CUDA_PREFIX "/bin/ptxas"
enum { LIMIT_MS = 60 * 1000 };

static char folder[64];
static tvm_diags diags;
static char ptx[] = ".version 8.0\n";
static tvm_kernel_code kernels[2];
static tvm_module module;

static void set_up(void) {
    folder_make(folder);
    setenv("TMPDIR", folder, 1);
    unsetenv("TVM_PTXAS");
    diags = (tvm_diags){0};
    kernels[0] = (tvm_kernel_code){
        .name = "first", .registers = -1, .spill_stores = -1, .spill_loads = -1, .stack_bytes = -1};
    kernels[1] = kernels[0];
    kernels[1].name = "second";
    module = (tvm_module){
        .target = {90, 'a'}, .ptx = ptx, .ptx_size = sizeof ptx - 1, .kernels = kernels, .kernel_count = 2};
}

static void tear_down(void) {
    folder_remove(folder);
    free(module.cubin);
    tvm_diags_free(&diags);
}

/* A shell script in the folder; returns its path. */
static const char *script(const char *body) {
    static char path[128];
    snprintf(path, sizeof path, "%s/script", folder);
    folder_script(path, "%s", body);
    return path;
}

/* Entries of the folder besides the script: what a run left behind. */
static int left_behind(void) {
    DIR *directory = opendir(folder);
    int count = 0;
    ck_assert_ptr_nonnull(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "script") != 0;
    closedir(directory);
    return count;
}

static void expect_message(const char *part) {
    ck_assert_uint_ge(diags.count, 1);
    ck_assert_msg(strstr(diags.items[0].message, part) != NULL, "'%s' is not in: %s", part,
                  diags.items[0].message);
}

START_TEST(a_missing_ptxas_is_named) {
    ck_assert_int_eq(tvm_ptxas(&module, "/nowhere/ptxas", &diags), TVM_NO_PTXAS);
    expect_message("/nowhere/ptxas");
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(the_search_names_every_place) {
    char *path;
    setenv("CUDA_HOME", "/no/cuda", 1);
    setenv("PATH", "/no/path/one:/no/path/two", 1);
    tvm_status status = tvm_ptxas_find(&path, &diags);
    if (status == TVM_OK) { /* the toolkit has one: configured, or in its default prefix */
        ck_assert(strcmp(path, CONFIGURED) == 0 || strcmp(path, "/usr/local/cuda/bin/ptxas") == 0);
        free(path);
        return;
    }
    ck_assert_int_eq(status, TVM_NO_PTXAS);
    expect_message("/no/cuda/bin/ptxas");
    expect_message("/no/path/one/ptxas");
    expect_message("/no/path/two/ptxas");
    expect_message("/usr/local/cuda/bin/ptxas");
}
END_TEST

START_TEST(the_variable_decides) {
    char *path;
    setenv("TVM_PTXAS", "/no/such/ptxas", 1);
    ck_assert_int_eq(tvm_ptxas_find(&path, &diags), TVM_NO_PTXAS);
    ck_assert_ptr_null(path);
    expect_message("/no/such/ptxas");
    setenv("TVM_PTXAS", script("exit 0\n"), 1);
    ck_assert_int_eq(tvm_ptxas_find(&path, NULL), TVM_OK);
    ck_assert_str_eq(path, getenv("TVM_PTXAS"));
    free(path);
}
END_TEST

START_TEST(path_is_searched_in_order) {
    char *path, program[128];
    char list[256];
    script("exit 0\n");
    snprintf(program, sizeof program, "%s/ptxas", folder);
    snprintf(list, sizeof list, "/no/such/folder:%s:/bin", folder);
    ck_assert_int_eq(symlink("script", program), 0);
    setenv("CUDA_HOME", "/no/cuda", 1);
    setenv("PATH", list, 1);
    ck_assert_int_eq(tvm_ptxas_find(&path, NULL), TVM_OK);
    /* that of a toolkit that configure found comes first */
    ck_assert_str_eq(path, *TVM_CUDA_PREFIX && !access(CONFIGURED, X_OK) ? CONFIGURED : program);
    free(path);
}
END_TEST

START_TEST(a_failure_carries_what_was_printed) {
    const char *path = script("echo 'line 7; error : no such thing' >&2\nexit 3\n");
    ck_assert_int_eq(tvm_ptxas(&module, path, &diags), TVM_PTXAS);
    expect_message("exit status 3");
    expect_message("line 7; error : no such thing");
    ck_assert_ptr_null(module.cubin);
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(a_crash_is_reported) {
    ck_assert_int_eq(tvm_ptxas(&module, script("kill -SEGV $$\n"), &diags), TVM_PTXAS);
    expect_message("signal 11");
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(one_that_hangs_is_killed_with_its_children) {
    char body[256], marker[128];
    snprintf(marker, sizeof marker, "%s/pid", folder);
    snprintf(body, sizeof body, "sleep 1000 & echo $! >'%s'\necho started\nwait\n", marker);
    const char *path = script(body);
    /* A busy machine may not even begin it within a second. */
    for (int seconds = 1; access(marker, F_OK) != 0; seconds *= 2) {
        tvm_diags_free(&diags);
        ck_assert_int_eq(tvm_ptxas_within(&module, path, seconds * 1000, &diags), TVM_PTXAS);
        expect_message("did not finish within ");
    }
    expect_message("started");
    int pid = 0;
    FILE *file = fopen(marker, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    unlink(marker);
    char state[64];
    snprintf(state, sizeof state, "/proc/%d/stat", pid);
    bool alive = true; /* a zombie that nobody has waited for yet is dead, too */
    while (alive) {
        char letter = 'Z';
        file = fopen(state, "r");
        if (file && fscanf(file, "%*d %*s %c", &letter) != 1) letter = 'Z';
        if (file) fclose(file);
        alive = letter != 'Z';
        if (alive) nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(much_output_does_not_block) {
    const char *path = script(
        "i=0\nwhile [ $i -lt 6000 ]; do echo 'a line of forty characters or thereabouts'; i=$((i+1)); done\nexit 1\n");
    ck_assert_int_eq(tvm_ptxas_within(&module, path, LIMIT_MS, &diags), TVM_PTXAS);
    expect_message("exit status 1");
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(the_cubin_and_the_usage_are_read) {
    /* the arguments: -v -arch=sm_90a -o CUBIN PTX */
    const char *path = script(
        "[ \"$1\" = -v ] && [ \"$2\" = -arch=sm_90a ] && [ \"$3\" = -o ] || exit 9\n"
        "cat \"$5\" >\"$4\"; printf done >>\"$4\"\n"
        "cat <<'X'\n"
        "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due "
        "to insufficient register resources for the wgmma pipeline in the function 'second'\n"
        "ptxas info    : 8 bytes gmem, 24 bytes cmem[4]\n"
        "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
        "ptxas info    : Function properties for second\n"
        "    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size\n"
        "ptxas info    : Compiling entry function 'first' for 'sm_90a'\n"
        "ptxas info    : Function properties for first\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 24 registers, 360 bytes cmem[0]\n"
        "X\n");
    ck_assert_int_eq(tvm_ptxas_within(&module, path, LIMIT_MS, &diags), TVM_OK);
    ck_assert_uint_eq(module.cubin_size, sizeof ptx - 1 + 4);
    ck_assert_mem_eq(module.cubin, ".version 8.0\ndone", module.cubin_size);
    ck_assert_int_eq(kernels[0].registers, 24);
    ck_assert_int_eq(kernels[0].stack_bytes, 0);
    ck_assert_int_eq(kernels[0].spill_stores, 0);
    ck_assert_int_eq(kernels[0].spill_loads, 0);
    ck_assert_str_eq(kernels[0].loss, "");
    ck_assert_ptr_nonnull(strstr(kernels[1].loss, "(C7511) Potential Performance Loss: wgmma.mma_async"));
    ck_assert_int_eq(kernels[1].registers, 255);
    ck_assert_int_eq(kernels[1].stack_bytes, 16);
    ck_assert_int_eq(kernels[1].spill_stores, 4);
    ck_assert_int_eq(kernels[1].spill_loads, 8);
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(success_without_a_file_is_a_failure) {
    ck_assert_int_ne(tvm_ptxas(&module, script("exit 0\n"), &diags), TVM_OK);
    ck_assert_int_eq(left_behind(), 0);
    tvm_diags_free(&diags);
    diags = (tvm_diags){0};
    ck_assert_int_eq(tvm_ptxas(&module, script(": >\"$4\"\n"), &diags), TVM_PTXAS);
    expect_message("wrote nothing");
    ck_assert_int_eq(left_behind(), 0);
}
END_TEST

START_TEST(needs_no_place_for_temporary_files) {
    const char *path = script("cat \"$5\" >\"$4\"\n");
    setenv("TMPDIR", "/no/such/folder", 1);
    ck_assert_int_eq(tvm_ptxas(&module, path, &diags), TVM_OK);
    ck_assert_uint_eq(module.cubin_size, sizeof ptx - 1);
}
END_TEST

/* A process that is told to end while ptxas works leaves no file behind. */
/* Services are often started so: what is passed to ptxas must not be taken for one of its streams. */
START_TEST(standard_streams_may_be_closed) {
    const char *path = script("cat \"$5\" >\"$4\"\n");
    int kept[3];
    for (int i = 0; i < 3; i++) {
        kept[i] = fcntl(i, F_DUPFD, 10);
        if (_i >> i & 1) close(i);
    }
    tvm_status status = tvm_ptxas(&module, path, &diags);
    for (int i = 0; i < 3; i++) dup2(kept[i], i), close(kept[i]);
    ck_assert_msg(status == TVM_OK, "%s", diags.count ? diags.items[0].message : "");
    ck_assert_uint_eq(module.cubin_size, sizeof ptx - 1);
    ck_assert_mem_eq(module.cubin, ptx, sizeof ptx - 1);
}
END_TEST

START_TEST(an_interrupted_process_leaves_nothing) {
    static const int signals[] = {SIGINT, SIGTERM, SIGKILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        char body[512], marker[128];
        snprintf(marker, sizeof marker, "%s/pid", folder);
        snprintf(body, sizeof body, "echo $$ >'%s.tmp'; mv '%s.tmp' '%s'\nsleep 1000\n", marker, marker,
                 marker);
        const char *path = script(body);
        pid_t child = fork_quietly();
        if (!child) {
            signal(signals[i], SIG_DFL); /* Check has handlers of its own */
            _exit(tvm_ptxas(&module, path, NULL));
        }
        while (access(marker, F_OK) != 0) sched_yield();
        int pid = 0;
        FILE *file = fopen(marker, "r");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
        fclose(file);
        unlink(marker);
        ck_assert_int_eq(kill(child, signals[i]), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_assert_int_eq(left_behind(), 0);
        ck_assert_int_eq(kill(-pid, SIGKILL), 0); /* its own group: the test's to end */
    }
}
END_TEST

START_TEST(the_time_limit_is_chosen) {
    const char *path = script("echo started\nsleep 1000\n");
    setenv("TVM_PTXAS_TIMEOUT", "1", 1);
    ck_assert_int_eq(tvm_ptxas(&module, path, &diags), TVM_PTXAS);
    expect_message("did not finish within 1 s");
    expect_message("started");
    static const char *const wrong[] = {"0", "-1", "x", "5s", "100000", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tvm_diags_free(&diags);
        diags = (tvm_diags){0};
        setenv("TVM_PTXAS_TIMEOUT", wrong[i], 1);
        ck_assert_int_eq(tvm_ptxas(&module, path, &diags), TVM_USAGE);
        expect_message("TVM_PTXAS_TIMEOUT");
    }
    unsetenv("TVM_PTXAS_TIMEOUT");
}
END_TEST

START_TEST(usage_of_unknown_kernels_and_odd_lines_is_ignored) {
    tvm_ptxas_read_usage(&module, "Used 7 registers\n"
                                  "ptxas info : Compiling entry function 'third' for 'sm_80'\n"
                                  "ptxas info : Used 9 registers\n"
                                  "ptxas info : Compiling entry function 'first");
    ck_assert_int_eq(kernels[0].registers, -1);
    ck_assert_int_eq(kernels[1].registers, -1);
    tvm_ptxas_read_usage(&module,
                         "ptxas warning : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n");
    ck_assert_str_eq(kernels[0].loss, "(C7508) Potential Performance Loss: 'setmaxnreg' ignored");
    ck_assert_str_eq(kernels[0].loss, kernels[1].loss);
    /* Each is told, once. */
    for (unsigned i = 0; i < 2; i++)
        tvm_ptxas_read_usage(
            &module, "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
                     "serialized in the function 'first'\n");
    ck_assert_str_eq(
        kernels[0].loss,
        "(C7508) Potential Performance Loss: 'setmaxnreg' ignored; (C7510) Potential Performance "
        "Loss: wgmma.mma_async instructions are serialized in the function 'first'");
    ck_assert_str_eq(kernels[1].loss, "(C7508) Potential Performance Loss: 'setmaxnreg' ignored");
}
END_TEST

START_TEST(the_version_is_the_release_line) {
    char *version;
    const char *path = script("[ \"$1\" = --version ] || exit 1\n"
                              "echo 'ptxas: NVIDIA (R) Ptx optimizing assembler'\n"
                              "echo 'Cuda compilation tools, release 13.0, V13.0.88'\n"
                              "echo 'Build cuda_13.0'\n");
    ck_assert_int_eq(tvm_ptxas_version(path, &version, &diags), TVM_OK);
    ck_assert_str_eq(version, "Cuda compilation tools, release 13.0, V13.0.88");
    free(version);
    ck_assert_int_eq(tvm_ptxas_version("/no/such/ptxas", &version, &diags), TVM_NO_PTXAS);
    ck_assert_ptr_null(version);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ptxas");
    TCase *tests = tcase_create("ptxas");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_missing_ptxas_is_named);
    tcase_add_test(tests, the_search_names_every_place);
    tcase_add_test(tests, the_variable_decides);
    tcase_add_test(tests, path_is_searched_in_order);
    tcase_add_test(tests, a_failure_carries_what_was_printed);
    tcase_add_test(tests, a_crash_is_reported);
    tcase_add_test(tests, one_that_hangs_is_killed_with_its_children);
    tcase_add_test(tests, much_output_does_not_block);
    tcase_add_test(tests, the_cubin_and_the_usage_are_read);
    tcase_add_test(tests, success_without_a_file_is_a_failure);
    tcase_add_test(tests, needs_no_place_for_temporary_files);
    tcase_add_loop_test(tests, standard_streams_may_be_closed, 1, 8);
    tcase_add_test(tests, an_interrupted_process_leaves_nothing);
    tcase_add_test(tests, the_time_limit_is_chosen);
    tcase_add_test(tests, usage_of_unknown_kernels_and_odd_lines_is_ignored);
    tcase_add_test(tests, the_version_is_the_release_line);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
