/* The cache folder under what other processes and the machine do to it: claims, processes that are killed
 * while they write, a full disk, entries that are not to be trusted; what is counted and cleared. */
#include "check_kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache_kit.h"
#include "fork_kit.h"
#include "suite_kit.h"

enum { PATIENCE_MS = 100 * 1000 };

/* Files whose names have this in them. */
static size_t files_with(const char *part) {
    size_t count = 0;
    DIR *open = opendir(folder);
    ck_assert_ptr_nonnull(open);
    for (struct dirent *item = readdir(open); item; item = readdir(open))
        count += strstr(item->d_name, part) != NULL;
    closedir(open);
    return count;
}

static void assert_all_succeed(const pid_t *children, int count) {
    for (int i = 0; i < count; i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
    }
}

/* ---- claims ---- */

enum { PROCESSES = 64 };

/* One that finds nothing computes; *computed counts them. */
static int get_or_compute(int *computed) {
    tvm_cache *cache = tvm_cache_open(folder, TVM_CACHE_LIMIT, NULL);
    tvm_cache_claim claim;
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (!cache) return 1;
    if (!tvm_cache_get_or_claim(cache, key_of(1), PATIENCE_MS, &claim, &bytes, &size)) {
        __atomic_add_fetch(computed, 1, __ATOMIC_SEQ_CST);
        for (int i = 0; i < 100; i++) sched_yield();
        tvm_cache_put(cache, key_of(1), "result", 6, NULL);
        tvm_cache_release(&claim);
    } else if (size != 6 || memcmp(bytes, "result", 6) != 0) {
        return 2;
    }
    free(bytes);
    tvm_cache_close(cache);
    return 0;
}

START_TEST(one_of_many_processes_computes) {
    pid_t children[PROCESSES];
    int *computed = mmap(NULL, sizeof *computed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(computed, MAP_FAILED);
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork_quietly();
        if (!children[i]) _exit(get_or_compute(computed));
    }
    assert_all_succeed(children, PROCESSES);
    ck_assert_int_eq(*computed, 1);
    munmap(computed, sizeof *computed);
}
END_TEST

static void *compute_in_thread(void *computed) {
    return (void *)(intptr_t)get_or_compute(computed);
}

START_TEST(one_of_many_threads_computes) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    int computed = 0;
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, compute_in_thread, &computed), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        ck_assert_int_eq(pthread_join(threads[i], &result), 0);
        ck_assert_ptr_null(result);
    }
    ck_assert_int_eq(computed, 1);
}
END_TEST

START_TEST(waiting_is_bounded) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_claim first, second, other;
    uint8_t *bytes;
    size_t size;
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), 0, &first, &bytes, &size));
    ck_assert_int_ne(first.lock, 0);
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), 5, &second, &bytes, &size));
    ck_assert_int_eq(second.lock, 0); /* computes as well */
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(2), PATIENCE_MS, &other, &bytes, &size));
    ck_assert_int_ne(other.lock, 0); /* another key's making is not waited for */
    tvm_cache_release(&first);
    tvm_cache_release(&second);
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), 0, &second, &bytes, &size));
    ck_assert_int_ne(second.lock, 0);
    tvm_cache_release(&second);
    tvm_cache_release(&other);
    tvm_cache_close(cache);
}
END_TEST

START_TEST(a_claim_ends_with_its_process) {
    int told[2];
    ck_assert_int_eq(pipe(told), 0);
    pid_t child = fork_quietly();
    if (!child) {
        tvm_cache *cache = tvm_cache_open(folder, TVM_CACHE_LIMIT, NULL);
        tvm_cache_claim claim;
        uint8_t *bytes;
        size_t size;
        if (tvm_cache_get_or_claim(cache, key_of(1), 0, &claim, &bytes, &size) || !claim.lock) _exit(1);
        if (write(told[1], "x", 1) != 1) _exit(2);
        for (;;) pause();
    }
    char byte;
    ck_assert_int_eq(read(told[0], &byte, 1), 1);
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_claim claim;
    uint8_t *bytes;
    size_t size;
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), 0, &claim, &bytes, &size));
    ck_assert_int_eq(claim.lock, 0);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), PATIENCE_MS, &claim, &bytes, &size));
    ck_assert_int_ne(claim.lock, 0);
    tvm_cache_release(&claim);
    tvm_cache_close(cache);
    close(told[0]);
    close(told[1]);
}
END_TEST

START_TEST(without_a_folder_everyone_computes) {
    tvm_cache *cache = tvm_cache_open("/proc/no/cache", TVM_CACHE_LIMIT, NULL);
    tvm_cache_claim first, second;
    uint8_t *bytes;
    size_t size;
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), PATIENCE_MS, &first, &bytes, &size));
    ck_assert(!tvm_cache_get_or_claim(cache, key_of(1), PATIENCE_MS, &second, &bytes, &size));
    ck_assert(!tvm_cache_get_or_claim(NULL, key_of(1), PATIENCE_MS, &first, &bytes, &size));
    tvm_cache_release(&first);
    tvm_cache_close(cache);
}
END_TEST

/* ---- processes that are killed ---- */

/* A sanitizer makes a process slow to begin. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define KILLS 300
#endif
#endif
#if !defined KILLS && defined __SANITIZE_ADDRESS__
#define KILLS 300
#elif !defined KILLS
#define KILLS 2500
#endif
enum { ENTRIES = 4, BIG = 30000, LONGEST_NS = 400000 };

/* An entry's bytes follow from its number, its size from that and the version. */
static size_t contents_of(int number, unsigned version, uint8_t *bytes) {
    size_t size = (size_t)BIG - 1000 * (version % 8);
    for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)((unsigned)number * 31 + version + i);
    return size;
}

static void write_forever(unsigned seed) {
    static uint8_t bytes[BIG];
    tvm_cache *cache = tvm_cache_open(folder, (uint64_t)3 * BIG, NULL);
    if (!cache) _exit(1);
    for (unsigned i = seed;; i++) {
        size_t size = contents_of((int)(i % ENTRIES), i % 256, bytes);
        tvm_cache_put(cache, key_of((int)(i % ENTRIES)), bytes, size, NULL);
    }
}

/* What is served is one that was put whole; returns how many are. */
static int assert_no_bad_entry(tvm_cache *cache) {
    static uint8_t expected[BIG];
    int served = 0;
    for (int number = 0; number < ENTRIES; number++) {
        uint8_t *got;
        size_t size;
        if (!tvm_cache_get(cache, key_of(number), &got, &size)) continue;
        ck_assert_uint_gt(size, 0);
        unsigned version = (got[0] - (unsigned)number * 31) % 256;
        ck_assert_uint_eq(size, contents_of(number, version, expected));
        ck_assert_mem_eq(got, expected, size);
        free(got);
        served++;
    }
    return served;
}

START_TEST(killed_writers_leave_no_bad_entry) {
    tvm_cache *cache = open_cache((uint64_t)3 * BIG);
    unsigned random = 12345;
    int served = 0;
    for (int round = 0; round < KILLS; round++) {
        random = random * 1103515245u + 12345u;
        pid_t child = fork_quietly();
        if (!child) write_forever(random >> 8);
        nanosleep(&(struct timespec){.tv_nsec = (long)(random >> 4) % LONGEST_NS}, NULL);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        served += assert_no_bad_entry(cache);
    }
    ck_assert_int_gt(served, 0);
    tvm_cache_put(cache, key_of(ENTRIES), "x", 1, NULL);
    ck_assert_uint_eq(files_with(".tmp"), 0);
    tvm_cache_close(cache);
}
END_TEST

/* ---- a full disk ---- */

/* Exit status of what `work` returns in a process that cannot write files beyond `bytes`. */
static void in_small_files(rlim_t bytes, int (*work)(void)) {
    pid_t child = fork_quietly();
    if (!child) {
        struct rlimit limit = {bytes, bytes};
        if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(99);
        _exit(work());
    }
    assert_all_succeed(&child, 1);
}

static int put_on_full_disk(void) {
    static uint8_t bytes[BIG];
    tvm_diags warnings = {0};
    tvm_cache *cache = tvm_cache_open(folder, TVM_CACHE_LIMIT, &warnings);
    uint8_t *got;
    size_t size;
    if (!cache || warnings.count) return 1;
    for (int i = 1; i < 5; i++) tvm_cache_put(cache, key_of(i), bytes, sizeof bytes, &warnings);
    if (warnings.count != 1 || !strstr(warnings.items[0].message, folder)) return 2;
    for (int i = 1; i < 5; i++) { /* from memory */
        if (!tvm_cache_get(cache, key_of(i), &got, &size) || size != sizeof bytes) return 3;
        free(got);
    }
    tvm_cache_put(cache, key_of(9), "small", 5, &warnings); /* which there is room for */
    tvm_diags_free(&warnings);
    tvm_cache_close(cache);
    return 0;
}

START_TEST(full_disk_falls_back_to_memory) {
    in_small_files(1000, put_on_full_disk);
    ck_assert_uint_eq(files_with(".tmp"), 0);
    ck_assert_uint_eq(files_with(".entry"), 1);
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    ck_assert(holds(cache, 9, "small", 5));
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_close(cache);
}
END_TEST

static int put_with_no_room_at_all(void) {
    tvm_cache *cache = tvm_cache_open(folder, TVM_CACHE_LIMIT, NULL);
    uint8_t *got;
    size_t size;
    tvm_cache_put(cache, key_of(1), "newer", 5, NULL);
    /* The old one, where the new one could not be written, or the new one from memory: never half of one. */
    if (!tvm_cache_get(cache, key_of(1), &got, &size) || size != 5) return 1;
    free(got);
    tvm_cache_close(cache);
    return 0;
}

START_TEST(full_disk_keeps_the_old_entry) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_put(cache, key_of(1), "older", 5, NULL);
    in_small_files(0, put_with_no_room_at_all);
    ck_assert(holds(cache, 1, "older", 5));
    ck_assert_uint_eq(files_with(".tmp"), 0);
    tvm_cache_close(cache);
}
END_TEST

START_TEST(memory_is_bounded) {
    static uint8_t bytes[1000];
    tvm_cache *cache = tvm_cache_open("/proc/no/cache", 3500, NULL);
    for (int i = 0; i < 4; i++) {
        memset(bytes, i, sizeof bytes);
        tvm_cache_put(cache, key_of(i), bytes, sizeof bytes, NULL);
        if (i == 2) {
            memset(bytes, 0, sizeof bytes);
            ck_assert(holds(cache, 0, bytes, sizeof bytes)); /* now used last */
        }
    }
    memset(bytes, 0, sizeof bytes);
    ck_assert(holds(cache, 0, bytes, sizeof bytes));
    ck_assert(!holds(cache, 1, "", 0));
    memset(bytes, 2, sizeof bytes);
    ck_assert(holds(cache, 2, bytes, sizeof bytes));
    tvm_cache_close(cache);
}
END_TEST

/* ---- what is not trusted ---- */

/* The entry is neither served nor left. */
static void assert_distrusted(tvm_cache *cache, int number) {
    char path[512];
    struct stat info;
    path_of(number, path);
    ck_assert(!holds(cache, number, "", 0));
    ck_assert_int_ne(lstat(path, &info), 0);
}

START_TEST(links_and_others_files_are_not_served) {
    char path[512], elsewhere[512];
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    path_of(1, path);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", folder);
    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    ck_assert_int_eq(rename(path, elsewhere), 0);
    ck_assert_int_eq(symlink(elsewhere, path), 0);
    assert_distrusted(cache, 1);
    ck_assert_int_eq(access(elsewhere, F_OK), 0); /* the link alone is removed */

    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    ck_assert_int_eq(chmod(path, 0620), 0);
    assert_distrusted(cache, 1);
    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    ck_assert_int_eq(chmod(path, 0602), 0);
    assert_distrusted(cache, 1);
    if (geteuid() == 0) {
        tvm_cache_put(cache, key_of(1), "good", 4, NULL);
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
        assert_distrusted(cache, 1);
    }
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* would block who reads it */
    assert_distrusted(cache, 1);
    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    ck_assert(holds(cache, 1, "good", 4));
    tvm_cache_close(cache);
}
END_TEST

START_TEST(a_generous_umask_changes_nothing) {
    mode_t before = umask(0);
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    ck_assert(holds(cache, 1, "good", 4));
    char path[512];
    struct stat info;
    path_of(1, path);
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_uint_eq(info.st_mode & 0777, 0600);
    tvm_cache_close(cache);
    umask(before);
}
END_TEST

START_TEST(a_folder_that_changes_hands_is_not_served) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_diags warnings = {0};
    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_put(cache, key_of(2), "memory", 6, &warnings);
    ck_assert_uint_eq(warnings.count, 1);
    ck_assert(holds(cache, 2, "memory", 6));
    ck_assert_int_eq(chmod(folder, 0700), 0);
    ck_assert(holds(cache, 1, "good", 4));
    tvm_diags_free(&warnings);
    tvm_cache_close(cache);
}
END_TEST

START_TEST(a_removed_folder_is_made_again) {
    tvm_cache *cache = open_cache(TVM_CACHE_LIMIT);
    tvm_cache_put(cache, key_of(1), "good", 4, NULL);
    remove_folder();
    tvm_diags warnings = {0};
    ck_assert(!holds(cache, 1, "", 0));
    tvm_cache_put(cache, key_of(1), "good", 4, &warnings);
    ck_assert_uint_eq(warnings.count, 0);
    ck_assert_uint_eq(files_with(".entry"), 1);
    ck_assert(holds(cache, 1, "good", 4));
    tvm_cache_close(cache);
}
END_TEST

/* ---- counting and clearing ---- */

START_TEST(stats_count_and_clear_removes) {
    char path[512];
    tvm_cache *cache = open_cache(1 << 20);
    tvm_cache_stats stats;
    tvm_diags diags = {0};
    uint64_t bytes = 0;
    for (int i = 0; i < 5; i++) {
        struct stat info;
        tvm_cache_put(cache, key_of(i), "0123456789", (size_t)i, NULL);
        path_of(i, path);
        ck_assert_int_eq(stat(path, &info), 0);
        bytes += (uint64_t)info.st_size;
    }
    snprintf(path, sizeof path, "%s/notes.txt", folder);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    ck_assert_int_eq(tvm_cache_read_stats(cache, &stats, &diags), TVM_OK);
    ck_assert_str_eq(stats.dir, folder);
    ck_assert_uint_eq(stats.entries, 5);
    ck_assert_uint_eq(stats.bytes, bytes);
    ck_assert_uint_eq(stats.limit, 1 << 20);
    ck_assert_int_eq(tvm_cache_clear(cache, &stats, &diags), TVM_OK);
    ck_assert_uint_eq(stats.entries, 5);
    ck_assert_uint_eq(stats.bytes, bytes);
    ck_assert_int_eq(tvm_cache_read_stats(cache, &stats, &diags), TVM_OK);
    ck_assert_uint_eq(stats.entries, 0);
    ck_assert_uint_eq(stats.bytes, 0);
    ck_assert_int_eq(access(path, F_OK), 0); /* not the cache's */
    ck_assert_uint_eq(diags.count, 0);
    remove_folder();
    ck_assert_int_eq(tvm_cache_read_stats(cache, &stats, &diags), TVM_IO);
    ck_assert_uint_eq(diags.count, 1);
    tvm_diags_free(&diags);
    tvm_cache_close(cache);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}
END_TEST

static uint64_t limit_of(const char *text, size_t warned) {
    tvm_diags warnings = {0};
    tvm_cache_stats stats;
    setenv("TVM_CACHE_LIMIT", text, 1);
    tvm_cache *cache = tvm_cache_open(folder, 0, &warnings);
    ck_assert_uint_eq(warnings.count, warned);
    ck_assert_int_eq(tvm_cache_read_stats(cache, &stats, NULL), TVM_OK);
    tvm_cache_close(cache);
    tvm_diags_free(&warnings);
    return stats.limit;
}

START_TEST(the_environment_sets_the_bound) {
    ck_assert_uint_eq(limit_of("", 0), TVM_CACHE_LIMIT);
    ck_assert_uint_eq(limit_of("123", 0), 123);
    ck_assert_uint_eq(limit_of("3K", 0), 3 * 1024);
    ck_assert_uint_eq(limit_of("5M", 0), 5 * 1024 * 1024);
    ck_assert_uint_eq(limit_of("7G", 0), 7 * (uint64_t)1024 * 1024 * 1024);
    static const char *const wrong[] = {
        "x", "-1", "1T", "1KK", " 1", "99999999999999999999", "18446744073709551615G"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_uint_eq(limit_of(wrong[i], 1), TVM_CACHE_LIMIT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache, shared");
    TCase *cases = tcase_create("cache, shared");
    tcase_add_checked_fixture(cases, make_folder, remove_folder);
    tcase_add_test(cases, one_of_many_processes_computes);
    tcase_add_test(cases, one_of_many_threads_computes);
    tcase_add_test(cases, waiting_is_bounded);
    tcase_add_test(cases, a_claim_ends_with_its_process);
    tcase_add_test(cases, without_a_folder_everyone_computes);
    tcase_add_test(cases, killed_writers_leave_no_bad_entry);
    tcase_add_test(cases, full_disk_falls_back_to_memory);
    tcase_add_test(cases, full_disk_keeps_the_old_entry);
    tcase_add_test(cases, memory_is_bounded);
    tcase_add_test(cases, links_and_others_files_are_not_served);
    tcase_add_test(cases, a_generous_umask_changes_nothing);
    tcase_add_test(cases, a_folder_that_changes_hands_is_not_served);
    tcase_add_test(cases, a_removed_folder_is_made_again);
    tcase_add_test(cases, stats_count_and_clear_removes);
    tcase_add_test(cases, the_environment_sets_the_bound);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
