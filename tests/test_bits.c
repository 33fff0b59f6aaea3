/* Compact bit strings and containers against strings of one byte a bit. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "random_kit.h"
#include "suite_kit.h"
#include "types.h"

enum { MAX_BITS = 40 * 64 + 128 };

/* Exactly the bytes that hold `bits` bits, random, on the heap, so that a memory checker sees any other
 * access. */
static uint8_t *random_string(size_t bits) {
    size_t size = (bits + 7) / 8;
    uint8_t *string = malloc(size ? size : 1);
    ck_assert_ptr_nonnull(string);
    for (size_t i = 0; i < size; i++) string[i] = (uint8_t)random_bits();
    return string;
}

static void spread(const uint8_t *string, size_t bits, uint8_t *out) {
    for (size_t i = 0; i < (bits + 7) / 8 * 8; i++) out[i] = string[i / 8] >> (i % 8) & 1;
}

static uint64_t gather(const uint8_t *spread_bits, size_t bit, unsigned bits) {
    uint64_t code = 0;
    for (unsigned i = 0; i < bits; i++) code += spread_bits[bit + i] ? UINT64_C(1) << i : 0;
    return code;
}

START_TEST(get_every_width_and_offset) {
    unsigned bits = (unsigned)_i;
    uint8_t model[MAX_BITS];
    for (unsigned offset = 0; offset < 72; offset++) {
        uint8_t *string = random_string(offset + bits);
        spread(string, offset + bits, model);
        ck_assert_uint_eq(tvm_bits_get(string, offset, bits), gather(model, offset, bits));
        free(string);
    }
}
END_TEST

START_TEST(set_every_width_and_offset) {
    unsigned bits = (unsigned)_i;
    uint8_t before[MAX_BITS], after[MAX_BITS];
    for (unsigned offset = 0; offset < 72; offset++) {
        size_t total = (offset + bits + 7u) / 8 * 8;
        uint8_t *string = random_string(total);
        spread(string, total, before);
        uint64_t word = random_bits();
        tvm_bits_set(string, offset, bits, word); /* bits of word beyond the width are dropped */
        spread(string, total, after);
        size_t wrong = 0;
        for (size_t i = 0; i < total; i++) {
            bool inside = i >= offset && i < offset + bits;
            wrong += after[i] != (inside ? word >> (i - offset) & 1 : before[i]);
        }
        ck_assert_uint_eq(wrong, 0);
        free(string);
    }
}
END_TEST

START_TEST(far_offsets) {
    size_t size = 1 << 20;
    uint8_t *string = calloc(size, 1);
    ck_assert_ptr_nonnull(string);
    uint64_t bit = 8 * (uint64_t)size - 61;
    tvm_bits_set(string, bit, 61, 0x1234567890abcdefu);
    ck_assert_uint_eq(tvm_bits_get(string, bit, 61), 0x1234567890abcdefu & ((UINT64_C(1) << 61) - 1));
    ck_assert_uint_eq(string[size - 1], (0x1234567890abcdefu >> 53) & 0xff);
    free(string);
}
END_TEST

/* What a program that holds the elements in an array of uint8_t, uint16_t, uint32_t or uint64_t sees. */
static uint64_t host_element(const void *containers, unsigned bytes, size_t index) {
    const uint8_t *at = (const uint8_t *)containers + bytes * index;
    uint16_t half;
    uint32_t word;
    uint64_t code;
    switch (bytes) {
    case 1:
        return *at;
    case 2:
        memcpy(&half, at, sizeof half);
        return half;
    case 4:
        memcpy(&word, at, sizeof word);
        return word;
    default:
        memcpy(&code, at, sizeof code);
        return code;
    }
}

static void check_unpack(tvm_dtype type, unsigned offset, size_t count) {
    uint8_t model[MAX_BITS];
    unsigned bytes = tvm_dtype_container(type);
    uint8_t *string = random_string(offset + count * type.bits);
    void *containers = malloc(count ? count * bytes : 1);
    ck_assert_ptr_nonnull(containers);
    spread(string, offset + count * type.bits, model);
    tvm_bits_unpack(type, string, offset, count, containers);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t expected = gather(model, offset + i * type.bits, type.bits);
        wrong += host_element(containers, bytes, i) != expected;
        wrong += tvm_container_get(type, containers, i) != expected;
    }
    ck_assert_msg(wrong == 0, "%u bits at %u, %zu elements", type.bits, offset, count);
    free(string);
    free(containers);
}

static void check_pack(tvm_dtype type, unsigned offset, size_t count) {
    uint8_t before[MAX_BITS], after[MAX_BITS];
    unsigned bytes = tvm_dtype_container(type);
    size_t end = offset + count * type.bits, total = (end + 7) / 8 * 8;
    uint8_t *string = random_string(total);
    uint8_t *containers = random_string(8 * count * bytes); /* with bits beyond the width, too */
    spread(string, total, before);
    tvm_bits_pack(type, string, offset, count, containers);
    spread(string, total, after);
    size_t wrong = 0;
    for (size_t i = 0; i < total; i++) {
        uint64_t expected = before[i];
        if (i >= offset && i < end) {
            size_t bit = i - offset;
            expected = host_element(containers, bytes, bit / type.bits) >> (bit % type.bits) & 1;
        }
        wrong += after[i] != expected;
    }
    ck_assert_msg(wrong == 0, "%u bits at %u, %zu elements", type.bits, offset, count);
    free(string);
    free(containers);
}

START_TEST(pack_and_unpack_every_type) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    size_t count = tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX);
    ck_assert_uint_eq(count, 55);
    for (size_t t = 0; t < count; t++)
        for (unsigned offset = 0; offset < 9; offset++)
            for (size_t elements = 0; elements <= 40; elements += 1 + elements / 10) {
                check_unpack(types[t], offset, elements);
                check_pack(types[t], offset, elements);
            }
}
END_TEST

/* Element i is bits [i*w, (i+1)*w) of little-endian bytes: by hand. */
START_TEST(examples) {
    static const uint8_t values[8] = {1, 2, 3, 4, 5, 6, 7, 0};
    uint8_t string[4] = {0, 0, 0, 0xff};
    tvm_bits_pack(TVM_U(3), string, 0, 8, values);
    static const uint8_t expected[4] = {0xd1, 0x58, 0x1f, 0xff};
    ck_assert_mem_eq(string, expected, 4);
    uint8_t back[8];
    tvm_bits_unpack(TVM_FLOAT(3, 1, 1), string, 0, 8, back);
    ck_assert_mem_eq(back, values, 8);
    static const uint32_t words[1] = {0x12345678};
    tvm_bits_pack(TVM_F32, string, 0, 1, words);
    static const uint8_t little[4] = {0x78, 0x56, 0x34, 0x12};
    ck_assert_mem_eq(string, little, 4);
}
END_TEST

START_TEST(container_elements) {
    uint64_t storage[4];
    memset(storage, 0xee, sizeof storage);
    tvm_container_set(TVM_I(3), storage, 5, 0xfd);
    ck_assert_uint_eq(host_element(storage, 1, 5), 0x05); /* a code: zero-extended */
    ck_assert_uint_eq(host_element(storage, 1, 4), 0xee);
    ck_assert_uint_eq(host_element(storage, 1, 6), 0xee);
    ck_assert_uint_eq(tvm_container_get(TVM_I(3), storage, 6), 0x06); /* bits beyond the width do not count */
    tvm_container_set(TVM_BF16, storage, 0, 0x3f80);
    ck_assert_uint_eq(host_element(storage, 2, 0), 0x3f80);
    tvm_container_set(TVM_F32, storage, 3, 0x3f800000);
    ck_assert_uint_eq(host_element(storage, 4, 3), 0x3f800000);
    tvm_container_set(TVM_F64, storage, 3, UINT64_C(0x3ff0000000000000));
    ck_assert_uint_eq(host_element(storage, 8, 3), UINT64_C(0x3ff0000000000000));
    ck_assert_uint_eq(tvm_container_get(TVM_F64, storage, 3), UINT64_C(0x3ff0000000000000));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bits");
    TCase *cases = tcase_create("bits");
    tcase_add_loop_test(cases, get_every_width_and_offset, 1, 65);
    tcase_add_loop_test(cases, set_every_width_and_offset, 1, 65);
    tcase_add_test(cases, far_offsets);
    tcase_add_test(cases, pack_and_unpack_every_type);
    tcase_add_test(cases, examples);
    tcase_add_test(cases, container_elements);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
