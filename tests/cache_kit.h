/* What the suites of the cache share: a folder, and entries that are known by a number. */
#ifndef TVM_TESTS_CACHE_KIT_H
#define TVM_TESTS_CACHE_KIT_H

#include "cache.h"
#include "folder_kit.h"

static char folder[64];

static inline void make_folder(void) {
    folder_make(folder);
}

static inline void remove_folder(void) {
    folder_remove(folder);
}

static inline tvm_cache *open_cache(uint64_t limit) {
    tvm_diags warnings = {0};
    tvm_cache *cache = tvm_cache_open(folder, limit, &warnings);
    ck_assert_ptr_nonnull(cache);
    ck_assert_uint_eq(warnings.count, 0);
    return cache;
}

static inline tvm_cache_key key_of(int number) {
    char text[32];
    snprintf(text, sizeof text, "entry %d", number);
    return tvm_cache_key_of(text, NULL, 0);
}

static inline void path_of(int number, char path[512]) {
    tvm_cache_key key = key_of(number);
    int length = snprintf(path, 512, "%s/", folder);
    for (size_t i = 0; i < sizeof key.hash; i++)
        length += snprintf(path + length, 512 - (size_t)length, "%02x", ((const uint8_t *)key.hash)[i]);
    snprintf(path + length, 512 - (size_t)length, ".entry");
}

static inline bool holds(tvm_cache *cache, int number, const void *bytes, size_t size) {
    uint8_t *got = NULL;
    size_t got_size = 0;
    if (!tvm_cache_get(cache, key_of(number), &got, &got_size)) return false;
    ck_assert_uint_eq(got_size, size);
    ck_assert_mem_eq(got, bytes, size);
    free(got);
    return true;
}

#endif
