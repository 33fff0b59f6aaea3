/* Whole files in and out: contents, limits, and that a failed write leaves nothing behind. */
#include "check_kit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fileio.h"
#include "output.h"
#include "suite_kit.h"

static char folder[64];
static char path[96];

static void make_folder(void) {
    strcpy(folder, "/tmp/test_fileio.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
}

static void remove_folder(void) {
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0); /* fails if a temporary was left */
}

static void check_contents(const char *of, const void *bytes, size_t size) {
    tvm_diags diags = {0};
    uint8_t *read_bytes = NULL;
    size_t read_size = 0;
    ck_assert_int_eq(tvm_file_read(of, 1 << 24, &read_bytes, &read_size, &diags), TVM_OK);
    ck_assert_uint_eq(read_size, size);
    ck_assert_mem_eq(read_bytes, bytes, size);
    ck_assert_int_eq(read_bytes[size], 0);
    ck_assert_uint_eq(diags.count, 0);
    free(read_bytes);
}

START_TEST(test_round_trip) {
    tvm_diags diags = {0};
    static uint8_t bytes[300000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * i >> 7);
    static const size_t sizes[] = {sizeof bytes, 0, 1, 65535, 65536, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ck_assert_int_eq(tvm_file_write(path, bytes, sizes[i], &diags), TVM_OK);
        check_contents(path, bytes, sizes[i]);
    }
}
END_TEST

START_TEST(test_limit) {
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size;
    ck_assert_int_eq(tvm_file_write(path, "123456", 6, &diags), TVM_OK);
    ck_assert_int_eq(tvm_file_read(path, 6, &bytes, &size, &diags), TVM_OK);
    free(bytes);
    ck_assert_int_eq(tvm_file_read(path, 5, &bytes, &size, &diags), TVM_FORMAT);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "longer than 5 bytes"));
    ck_assert_str_eq(diags.items[0].file, path);
    tvm_diags_free(&diags);
}
END_TEST

/* "LENGTH bytes": two digits say how many there are in all. */
static uint64_t told_length(const uint8_t *bytes, size_t size) {
    if (size < 2) return 2;
    return bytes[0] == '?' ? 0 : (uint64_t)(bytes[0] - '0') * 10 + (uint64_t)(bytes[1] - '0');
}

static const struct told {
    const char *text;
    size_t read; /* a byte more than is told, when it is there */
} told[] = {{"08 bytes", 8}, {"08 bytes and more", 9}, {"20 bytes", 8}, {"0", 1}, {"", 0},
            {"02", 2},       {"?? bytes", 3}};

START_TEST(test_file_that_says_its_length) {
    const struct told *row = &told[_i];
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size = 99;
    ck_assert_int_eq(tvm_file_write(path, row->text, strlen(row->text), &diags), TVM_OK);
    ck_assert_int_eq(tvm_file_read_extent(path, 50, told_length, &bytes, &size, &diags), TVM_OK);
    ck_assert_uint_eq(size, row->read);
    ck_assert_mem_eq(bytes, row->text, size);
    ck_assert_int_eq(bytes[size], 0);
    free(bytes);
}
END_TEST

START_TEST(test_file_that_says_more_than_the_limit) {
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size;
    ck_assert_int_eq(tvm_file_write(path, "08 bytes", 8, &diags), TVM_OK);
    ck_assert_int_eq(tvm_file_read_extent(path, 7, told_length, &bytes, &size, &diags), TVM_FORMAT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "longer than 7 bytes"));
    tvm_diags_free(&diags);
}
END_TEST

static uint64_t always_70000(const uint8_t *bytes, size_t size) {
    (void)bytes;
    return size > 70000 ? 0 : 70000;
}

START_TEST(test_endless_device) {
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size;
    ck_assert_int_eq(tvm_file_read("/dev/zero", 100000, &bytes, &size, &diags), TVM_FORMAT);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "longer than 100000 bytes"));
    ck_assert_int_eq(tvm_file_read_extent("/dev/zero", 1 << 20, always_70000, &bytes, &size, &diags), TVM_OK);
    ck_assert_uint_eq(size, 70001);
    free(bytes);
    tvm_diags_free(&diags);
}
END_TEST

/* A pipe with a name is refused at once, though nobody writes to it; one without a name is read. */
START_TEST(test_pipes) {
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size;
    int ends[2];
    char name[64];
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(tvm_file_read(path, 100, &bytes, &size, &diags), TVM_IO);
    ck_assert_str_eq(diags.items[0].message, "this is a named pipe, not a regular file");
    ck_assert_int_eq(pipe(ends), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    pid_t writer = fork();
    if (!writer) { /* fills the pipe more than once */
        static uint8_t sent[300000];
        _exit(tvm_write_all(ends[1], sent, sizeof sent));
    }
    close(ends[1]);
    ck_assert_int_eq(tvm_file_read(name, 1 << 20, &bytes, &size, &diags), TVM_OK);
    ck_assert_uint_eq(size, 300000);
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    close(ends[0]);
    free(bytes);
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(test_missing_file_and_folder) {
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size;
    ck_assert_int_eq(tvm_file_read(path, 100, &bytes, &size, &diags), TVM_IO);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "No such file"));
    ck_assert_int_eq(tvm_file_read(folder, 100, &bytes, &size, &diags), TVM_IO);
    ck_assert_ptr_nonnull(strstr(diags.items[1].message, "directory"));
    char below[128];
    snprintf(below, sizeof below, "%s/none/file", folder);
    ck_assert_int_eq(tvm_file_write(below, "x", 1, &diags), TVM_IO);
    ck_assert_ptr_nonnull(strstr(diags.items[2].message, "No such file"));
    ck_assert_int_eq(tvm_file_write(folder, "x", 1, &diags), TVM_IO);
    ck_assert_uint_eq(diags.count, 4);
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(test_device_is_written_in_place) {
    tvm_diags diags = {0};
    struct stat info;
    ck_assert_int_eq(tvm_file_write("/dev/null", "abc", 3, &diags), TVM_OK);
    ck_assert_int_eq(stat("/dev/null", &info), 0);
    ck_assert(S_ISCHR(info.st_mode));
    ck_assert_int_eq(tvm_file_write("/dev/full", "abc", 3, &diags), TVM_IO);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "space"));
    tvm_diags_free(&diags);
}
END_TEST

START_TEST(test_links_and_permissions_are_kept) {
    tvm_diags diags = {0};
    char name[128];
    struct stat info;
    snprintf(name, sizeof name, "%s/link", folder);
    ck_assert_int_eq(tvm_file_write(path, "old", 3, &diags), TVM_OK);
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(symlink("file", name), 0);
    ck_assert_int_eq(tvm_file_write(name, "new!", 4, &diags), TVM_OK);
    check_contents(path, "new!", 4);
    ck_assert_int_eq(lstat(name, &info), 0);
    ck_assert(S_ISLNK(info.st_mode));
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0640);
    unlink(name);
}
END_TEST

START_TEST(test_new_file_has_the_usual_permissions) {
    tvm_diags diags = {0};
    struct stat info;
    mode_t mask = umask(027);
    ck_assert_int_eq(tvm_file_write(path, "x", 1, &diags), TVM_OK);
    umask(mask);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0640);
}
END_TEST

START_TEST(test_pipe_as_standard_input) {
    tvm_diags diags = {0};
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(write(ends[1], "from a pipe", 11), 11);
    close(ends[1]);
    ck_assert_int_ge(dup2(ends[0], STDIN_FILENO), 0);
    check_contents("-", "from a pipe", 11);
    ck_assert_uint_eq(diags.count, 0);
}
END_TEST

/* ---- however it ends ---- */

/* What the child's function returns; a signal is 128 and its number. */
static int in_child(int (*work)(void)) {
    int status;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) _exit(work());
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* SIGXFSZ is at its default, which ends a process. */
static int write_over_limit(void) {
    static uint8_t bytes[4096];
    struct rlimit limit = {1000, 1000};
    tvm_diags diags = {0};
    sigset_t pending;
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 1;
    if (tvm_file_write(path, bytes, sizeof bytes, &diags) != TVM_IO) return 2;
    if (!strstr(diags.items[0].message, strerror(EFBIG))) return 3;
    tvm_diags_free(&diags);
    if (sigpending(&pending) || sigismember(&pending, SIGXFSZ)) return 4;
    tvm_output output;
    tvm_status status = tvm_output_open(path, sizeof bytes, &output, &diags);
    tvm_output_close(&output);
    if (status != TVM_IO) return 5;
    tvm_diags_free(&diags);
    return tvm_file_write(path, bytes, 1000, &diags) == TVM_OK ? 0 : 6;
}

START_TEST(test_file_size_limit_is_an_error) {
    static const uint8_t zeros[1000];
    ck_assert_int_eq(in_child(write_over_limit), 0);
    check_contents(path, zeros, sizeof zeros);
}
END_TEST

static int write_over_limit_blocked(void) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGXFSZ);
    int result = write_over_limit();
    return result == 4 && !sigpending(&pending) && sigismember(&pending, SIGXFSZ) ? 0 : 1;
}

START_TEST(test_a_signal_of_the_caller_stays_its_own) {
    ck_assert_int_eq(in_child(write_over_limit_blocked), 0);
}
END_TEST

static int die_while_writing(void) {
    tvm_diags diags = {0};
    tvm_output output;
    if (tvm_output_open(path, 0, &output, &diags) || tvm_output_write(&output, "half", 4, 0, &diags))
        return 1;
    bool nameless = output.temporary == NULL;
    if (!nameless) tvm_output_close(&output); /* a file system without files that have no name */
    raise(SIGKILL);
    return 2;
}

START_TEST(test_killed_writer_leaves_nothing) {
    ck_assert_int_eq(in_child(die_while_writing), 128 + SIGKILL);
    ck_assert_int_ne(access(path, F_OK), 0); /* the folder must be empty: remove_folder */
}
END_TEST

START_TEST(test_output_replaces_when_committed) {
    tvm_diags diags = {0};
    tvm_output output;
    ck_assert_int_eq(tvm_file_write(path, "old", 3, &diags), TVM_OK);
    ck_assert_int_eq(tvm_output_open(path, 6, &output, &diags), TVM_OK);
    ck_assert_int_eq(tvm_output_write(&output, "new", 3, 3, &diags), TVM_OK);
    ck_assert_int_eq(tvm_output_write(&output, "all", 3, 0, &diags), TVM_OK);
    check_contents(path, "old", 3);
    ck_assert_int_eq(tvm_output_commit(&output, &diags), TVM_OK);
    tvm_output_close(&output);
    check_contents(path, "allnew", 6);
    ck_assert_int_eq(tvm_output_open(path, 0, &output, &diags), TVM_OK);
    tvm_output_close(&output);
    check_contents(path, "allnew", 6);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fileio");
    TCase *files = tcase_create("files");
    tcase_add_checked_fixture(files, make_folder, remove_folder);
    tcase_add_test(files, test_round_trip);
    tcase_add_test(files, test_limit);
    tcase_add_loop_test(files, test_file_that_says_its_length, 0, sizeof told / sizeof told[0]);
    tcase_add_test(files, test_file_that_says_more_than_the_limit);
    tcase_add_test(files, test_endless_device);
    tcase_add_test(files, test_pipes);
    tcase_add_test(files, test_missing_file_and_folder);
    tcase_add_test(files, test_device_is_written_in_place);
    tcase_add_test(files, test_links_and_permissions_are_kept);
    tcase_add_test(files, test_new_file_has_the_usual_permissions);
    tcase_add_test(files, test_pipe_as_standard_input);
    tcase_add_test(files, test_file_size_limit_is_an_error);
    tcase_add_test(files, test_a_signal_of_the_caller_stays_its_own);
    tcase_add_test(files, test_killed_writer_leaves_nothing);
    tcase_add_test(files, test_output_replaces_when_committed);
    suite_add_tcase(suite, files);
    return run_suite(suite);
}
