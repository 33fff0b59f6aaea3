/* The cache folder: what was put is got, by any process; anything wrong with a file or the folder costs an
 * entry, no more. */
#include "check_kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache_kit.h"
#include "fork_kit.h"
#include "suite_kit.h"

/* Files in the folder, their bytes in all, and the path of the last one seen. */
static size_t list_folder(uint64_t *bytes, char path[512]) {
    size_t count = 0;
    *bytes = 0;
    DIR *open = opendir(folder);
    ck_assert_ptr_nonnull(open);
    for (struct dirent *item = readdir(open); item; item = readdir(open)) {
        struct stat info;
        if (item->d_name[0] == '.') continue;
        snprintf(path, 512, "%s/%s", folder, item->d_name);
        ck_assert_int_eq(stat(path, &info), 0);
        *bytes += (uint64_t)info.st_size;
        count++;
    }
    closedir(open);
    return count;
}

START_TEST(keeps_what_is_put) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_put(cache, key_of(1), "one", 3, NULL);
    tvm_cache_put(cache, key_of(2), NULL, 0, NULL);
    ck_assert(holds(cache, 1, "one", 3));
    ck_assert(holds(cache, 2, "", 0));
    tvm_cache_put(cache, key_of(1), "other", 5, NULL);
    ck_assert(holds(cache, 1, "other", 5));
    tvm_cache_drop(cache, key_of(1));
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_close(cache);
    cache = open_cache(TVM_CACHE_LIMIT);
    ck_assert(holds(cache, 2, "", 0));
    tvm_cache_close(cache);
}
END_TEST

START_TEST(keys_differ) {
    /* Made of the same text and bytes, cut otherwise, too. */
    const tvm_cache_key keys[] = {tvm_cache_key_of("a", NULL, 0), tvm_cache_key_of("b", NULL, 0),
                                  tvm_cache_key_of("a", "a", 1),  tvm_cache_key_of("a", "b", 1),
                                  tvm_cache_key_of("a", "ab", 2), tvm_cache_key_of("aa", "b", 1)};
    const tvm_cache_key again = tvm_cache_key_of("a", "b", 1);
    ck_assert_mem_eq(&again, &keys[3], sizeof again);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        for (size_t j = 0; j < i; j++)
            for (unsigned word = 0; word < 4; word++) ck_assert(keys[i].hash[word] != keys[j].hash[word]);
}
END_TEST

START_TEST(every_corrupted_byte_is_noticed) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    char path[512];
    uint64_t bytes;
    tvm_cache_put(cache, key_of(1), "some bytes", 10, NULL);
    ck_assert_uint_eq(list_folder(&bytes, path), 1);
    for (uint64_t at = 0; at < bytes; at++) {
        tvm_cache_put(cache, key_of(1), "some bytes", 10, NULL);
        int file = open(path, O_RDWR);
        uint8_t byte;
        ck_assert_int_eq(pread(file, &byte, 1, (off_t)at), 1);
        byte ^= 0x10;
        ck_assert_int_eq(pwrite(file, &byte, 1, (off_t)at), 1);
        close(file);
        ck_assert(!holds(cache, 1, "", 0));
        ck_assert_int_ne(access(path, F_OK), 0); /* dropped */
    }
    tvm_cache_close(cache);
}
END_TEST

START_TEST(truncated_longer_and_renamed_are_noticed) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    char path[512], other[512];
    uint64_t bytes, unused;
    tvm_cache_put(cache, key_of(1), "some bytes", 10, NULL);
    list_folder(&bytes, path);
    for (uint64_t size = 0; size <= bytes + 1; size++) {
        if (size == bytes) continue;
        tvm_cache_put(cache, key_of(1), "some bytes", 10, NULL);
        ck_assert_int_eq(truncate(path, (off_t)size), 0);
        ck_assert(!holds(cache, 1, "", 0));
    }
    tvm_cache_put(cache, key_of(2), "two", 3, NULL);
    list_folder(&unused, other);
    ck_assert_int_eq(rename(other, path), 0);
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_close(cache);
}
END_TEST

/* An entry that was last used `seconds` ago. */
static void put_aged(tvm_cache *cache, int number, int seconds) {
    char path[512];
    struct timespec times[2];
    tvm_cache_put(cache, key_of(number), "0123456789", 10, NULL);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    path_of(number, path);
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

START_TEST(least_recently_used_goes_first) {
    char path[512];
    uint64_t one, bytes;
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_put(cache, key_of(0), "0123456789", 10, NULL);
    list_folder(&one, path);
    tvm_cache_drop(cache, key_of(0));
    tvm_cache_close(cache);
    cache = open_cache(3 * one);
    put_aged(cache, 1, 300);
    put_aged(cache, 2, 200);
    put_aged(cache, 3, 100);
    ck_assert(holds(cache, 1, "0123456789", 10)); /* now used last */
    tvm_cache_put(cache, key_of(4), "0123456789", 10, NULL);
    ck_assert_uint_eq(list_folder(&bytes, path), 3);
    ck_assert_uint_le(bytes, 3 * one);
    ck_assert(holds(cache, 1, "0123456789", 10));
    ck_assert(!holds(cache, 2, "", 0));
    ck_assert(holds(cache, 3, "0123456789", 10));
    ck_assert(holds(cache, 4, "0123456789", 10));
    tvm_cache_close(cache);
}
END_TEST

START_TEST(too_large_is_not_stored) {
    tvm_cache *cache = open_cache(100);
    char bytes[200] = {0};
    tvm_diags warnings = {0};
    tvm_cache_put(cache, key_of(1), bytes, sizeof bytes, &warnings);
    tvm_cache_put(cache, key_of(2), bytes, 99, &warnings);
    ck_assert_uint_eq(warnings.count, 0);
    ck_assert(!holds(cache, 1, "", 0));
    ck_assert(!holds(cache, 2, "", 0));
    tvm_cache_close(cache);
}
END_TEST

START_TEST(other_files_are_left_alone) {
    char path[512];
    snprintf(path, sizeof path, "%s/notes.txt", folder);
    FILE *notes = fopen(path, "w");
    ck_assert_ptr_nonnull(notes);
    for (int i = 0; i < 1000; i++) fputs("mine\n", notes);
    fclose(notes);
    tvm_cache *cache = open_cache(300);
    for (int i = 0; i < 20; i++) tvm_cache_put(cache, key_of(i), "0123456789", 10, NULL);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert(holds(cache, 19, "0123456789", 10));
    tvm_cache_close(cache);
}
END_TEST

START_TEST(abandoned_temporaries_are_removed) {
    char path[2][512];
    int writer = -1;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/0123456789abcdef0123456789abcdef.entry.tmp12.%d", folder, i);
        int file = open(path[i], O_CREAT | O_WRONLY, 0600);
        if (i)
            writer = file;
        else
            close(file);
    }
    ck_assert_int_eq(flock(writer, LOCK_EX), 0);
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_put(cache, key_of(1), "x", 1, NULL);
    ck_assert_int_ne(access(path[0], F_OK), 0);
    ck_assert_int_eq(access(path[1], F_OK), 0); /* its writer is at work */
    close(writer);
    tvm_cache_put(cache, key_of(1), "x", 1, NULL);
    ck_assert_int_ne(access(path[1], F_OK), 0);
    tvm_cache_close(cache);
}
END_TEST

enum { WRITERS = 4, ROUNDS = 50, ENTRIES = 5, BIG = 20000 };

/* Writes and reads entries that all writers share; a torn one would differ from what its key says. */
static int write_and_read(int writer) {
    tvm_cache *cache = tvm_cache_open(folder, 3 * BIG, NULL);
    static uint8_t bytes[BIG];
    int served = 0;
    if (!cache) return 1;
    for (int round = 0; round < ROUNDS; round++) {
        int entry = (round * 7 + writer) % ENTRIES;
        uint8_t *got;
        size_t size;
        memset(bytes, entry, sizeof bytes);
        tvm_cache_put(cache, key_of(entry), bytes, sizeof bytes, NULL);
        if (!tvm_cache_get(cache, key_of(entry), &got, &size)) continue; /* another one evicted it */
        bool same = size == sizeof bytes && !memcmp(got, bytes, size);
        free(got);
        if (!same) return 2;
        served++;
    }
    tvm_cache_close(cache);
    return served ? 0 : 3;
}

START_TEST(many_processes_at_once) {
    pid_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = fork_quietly();
        if (!writers[i]) _exit(write_and_read(i));
    }
    for (int i = 0; i < WRITERS; i++) {
        int status;
        ck_assert_int_eq(waitpid(writers[i], &status, 0), writers[i]);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
    char path[512];
    uint64_t bytes;
    ck_assert_uint_le(list_folder(&bytes, path), ENTRIES); /* and no temporaries */
}
END_TEST

START_TEST(folder_is_made_with_its_parents) {
    char path[128];
    struct stat info;
    snprintf(path, sizeof path, "%s/a/b/c", folder);
    tvm_cache *cache = tvm_cache_open(path, TVM_CACHE_LIMIT, NULL);
    ck_assert_ptr_nonnull(cache);
    tvm_cache_close(cache);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0700);
}
END_TEST

/* A cache in memory alone, and one warning that says why. */
static void assert_unusable(const char *path, const char *why) {
    tvm_diags warnings = {0};
    tvm_cache *cache = tvm_cache_open(path, TVM_CACHE_LIMIT, &warnings);
    ck_assert_ptr_nonnull(cache);
    ck_assert_uint_eq(warnings.count, 1);
    ck_assert_msg(strstr(warnings.items[0].message, why) != NULL, "'%s' does not say '%s'",
                  warnings.items[0].message, why);
    tvm_cache_put(cache, key_of(1), "x", 1, &warnings);
    ck_assert_uint_eq(warnings.count, 1);
    ck_assert(holds(cache, 1, "x", 1));
    ck_assert(!holds(cache, 2, "", 0));
    tvm_cache_drop(cache, key_of(1));
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_stats stats;
    ck_assert_int_eq(tvm_cache_read_stats(cache, &stats, &warnings), TVM_OK);
    ck_assert_ptr_null(stats.dir);
    tvm_diags_free(&warnings);
    tvm_cache_close(cache);
}

START_TEST(default_folder_follows_xdg) {
    char path[128];
    struct stat info;
    setenv("XDG_CACHE_HOME", folder, 1);
    tvm_cache_close(tvm_cache_open(NULL, TVM_CACHE_LIMIT, NULL));
    snprintf(path, sizeof path, "%s/tilusvm", folder);
    ck_assert_int_eq(stat(path, &info), 0);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", folder, 1);
    tvm_cache_close(tvm_cache_open(NULL, TVM_CACHE_LIMIT, NULL));
    snprintf(path, sizeof path, "%s/.cache/tilusvm", folder);
    ck_assert_int_eq(stat(path, &info), 0);
    unsetenv("HOME");
    assert_unusable(NULL, "XDG_CACHE_HOME");
}
END_TEST

START_TEST(unusable_folders_are_refused) {
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_unusable(path, "not a folder");
    snprintf(path, sizeof path, "%s/file/inside", folder);
    assert_unusable(path, "Not a directory");
    ck_assert_int_eq(chmod(folder, 0770), 0);
    assert_unusable(folder, "others may write");
    ck_assert_int_eq(chmod(folder, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(folder, 12345, 12345), 0);
        assert_unusable(folder, "another user");
        ck_assert_int_eq(chown(folder, 0, 0), 0);
    } else {
        assert_unusable("/", "another user");
    }
}
END_TEST

START_TEST(empty_name_is_no_cache) {
    tvm_diags warnings = {0};
    tvm_cache *cache = tvm_cache_open("", TVM_CACHE_LIMIT, &warnings);
    ck_assert_ptr_null(cache);
    ck_assert_uint_eq(warnings.count, 0);
    tvm_cache_put(cache, key_of(1), "x", 1, NULL);
    ck_assert(!holds(cache, 1, "x", 1));
    tvm_cache_drop(cache, key_of(1));
    tvm_cache_close(cache);
}
END_TEST

/* A user other than root, to whom permissions apply, reads a folder that nobody may write to. */
START_TEST(read_only_folder_is_read) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    char path[512];
    uint64_t bytes;
    tvm_cache_put(cache, key_of(1), "one", 3, NULL);
    list_folder(&bytes, path);
    tvm_cache_close(cache);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(folder, 12345, 12345), 0);
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
    }
    ck_assert_int_eq(chmod(folder, 0500), 0);
    pid_t child = fork_quietly();
    if (!child) {
        if (geteuid() == 0 && seteuid(12345)) _exit(1);
        tvm_diags warnings = {0};
        cache = tvm_cache_open(folder, TVM_CACHE_LIMIT, &warnings);
        uint8_t *got = NULL;
        size_t size;
        if (!cache || warnings.count) _exit(2);
        if (!tvm_cache_get(cache, key_of(1), &got, &size) || size != 3 || memcmp(got, "one", 3)) _exit(3);
        tvm_cache_put(cache, key_of(2), "two", 3, &warnings);
        tvm_cache_put(cache, key_of(3), "three", 5, &warnings);
        if (warnings.count != 1 || !strstr(warnings.items[0].message, folder)) _exit(4);
        if (!tvm_cache_get(cache, key_of(2), &got, &size) || size != 3 || memcmp(got, "two", 3)) _exit(5);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_int_eq(chmod(folder, 0700), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache");
    TCase *cases = tcase_create("cache");
    tcase_add_checked_fixture(cases, make_folder, remove_folder);
    tcase_add_test(cases, keeps_what_is_put);
    tcase_add_test(cases, keys_differ);
    tcase_add_test(cases, every_corrupted_byte_is_noticed);
    tcase_add_test(cases, truncated_longer_and_renamed_are_noticed);
    tcase_add_test(cases, least_recently_used_goes_first);
    tcase_add_test(cases, too_large_is_not_stored);
    tcase_add_test(cases, other_files_are_left_alone);
    tcase_add_test(cases, abandoned_temporaries_are_removed);
    tcase_add_test(cases, many_processes_at_once);
    tcase_add_test(cases, folder_is_made_with_its_parents);
    tcase_add_test(cases, default_folder_follows_xdg);
    tcase_add_test(cases, unusable_folders_are_refused);
    tcase_add_test(cases, empty_name_is_no_cache);
    tcase_add_test(cases, read_only_folder_is_read);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
