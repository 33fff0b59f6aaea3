/* .safetensors files: what others write is read, what is written others read, anything else is refused with a
 * reason. */
#include "check_kit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "safetensors.h"
#include "suite_kit.h"

/* A file of this header text, whose length is said to be `length`, and this many bytes of data; the open
 * descriptor. */
static int make_file(const char *header, uint64_t length, size_t data) {
    char path[] = "/tmp/tvm-test-safetensors-XXXXXX";
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    unlink(path);
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++) bytes[i] = (uint8_t)(length >> 8 * i);
    ck_assert_int_eq(write(descriptor, bytes, 8), 8);
    ck_assert_int_eq(write(descriptor, header, strlen(header)), (ssize_t)strlen(header));
    for (size_t i = 0; i < data; i++) {
        uint8_t byte = (uint8_t)i;
        ck_assert_int_eq(write(descriptor, &byte, 1), 1);
    }
    return descriptor;
}

/* The status, and the message of the one diagnostic. */
static tvm_status read_file(int descriptor, tvm_safetensors *tensors, char message[512]) {
    tvm_diags diags = {0};
    tvm_status status = tvm_safetensors_read(descriptor, "a.safetensors", tensors, &diags);
    ck_assert_uint_eq(diags.count, status != TVM_OK);
    snprintf(message, 512, "%s", status ? diags.items[0].message : "");
    if (status) ck_assert_str_eq(diags.items[0].file, "a.safetensors");
    tvm_diags_free(&diags);
    close(descriptor);
    return status;
}

/* As safetensors 0.4 for Python writes it: blanks after the header, the wider type first. */
static const char header_of_others[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[8,14]}}   ";

START_TEST(reads_what_others_write) {
    tvm_safetensors tensors;
    char message[512], text[TVM_SAFETENSORS_TEXT_MAX];
    ck_assert_int_eq(read_file(make_file(header_of_others, strlen(header_of_others), 14), &tensors, message),
                     TVM_OK);
    ck_assert_uint_eq(tensors.count, 2);
    const tvm_safetensor *a = tvm_safetensors_find(&tensors, "a.weight");
    ck_assert_ptr_nonnull(a);
    ck_assert(tvm_dtype_same(a->type, TVM_BF16));
    ck_assert_uint_eq(a->rank, 2);
    ck_assert_uint_eq(a->shape[0], 3);
    ck_assert_uint_eq(a->shape[1], 1);
    ck_assert_uint_eq(a->offset, 8 + strlen(header_of_others) + 8);
    ck_assert_uint_eq(a->bytes, 6);
    ck_assert_str_eq(tvm_safetensor_text(a, text), "BF16 [3, 1]");
    ck_assert_ptr_null(tvm_safetensors_find(&tensors, "a"));
    ck_assert_str_eq(tvm_safetensors_metadata(&tensors, "format"), "pt");
    ck_assert_ptr_null(tvm_safetensors_metadata(&tensors, "b"));
    tvm_safetensors_free(&tensors);
}
END_TEST

START_TEST(reads_empty_ones) {
    static const char *const headers[] = {
        "{}", "{\"a\":{\"dtype\":\"F16\",\"shape\":[0,4],\"data_offsets\":[0,0]}}",
        "{\"a\":{\"dtype\":\"F16\",\"shape\":[0,9007199254740993,9007199254740993],\"data_offsets\":[0,0]}}"};
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        tvm_safetensors tensors;
        char message[512];
        ck_assert_int_eq(read_file(make_file(headers[i], strlen(headers[i]), 0), &tensors, message), TVM_OK);
        ck_assert_uint_eq(tensors.count, i > 0);
        tvm_safetensors_free(&tensors);
    }
}
END_TEST

START_TEST(a_scalar_and_an_unknown_type) {
    static const char header[] = "{\"s\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
                                 "\"x\":{\"dtype\":\"F4_NEW\",\"shape\":[3],\"data_offsets\":[8,10]}}";
    tvm_safetensors tensors;
    char message[512];
    ck_assert_int_eq(read_file(make_file(header, strlen(header), 10), &tensors, message), TVM_OK);
    ck_assert_uint_eq(tensors.items[0].rank, 0);
    ck_assert_int_eq(tensors.items[1].type.kind, TVM_KIND_NONE);
    tvm_safetensors_free(&tensors);
}
END_TEST

#define TENSOR(name, dtype, shape, begin, end)                                                               \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct hostile {
    const char *header;
    size_t data;
    const char *says;
    tvm_status status;
} hostile[] = {
    {"", 0, "does not begin with '{'", TVM_FORMAT},
    {" {}", 0, "does not begin with '{'", TVM_FORMAT},
    {"[]", 0, "does not begin with '{'", TVM_FORMAT},
    {"{", 0, "not JSON", TVM_FORMAT},
    {"{\"a\":}", 0, "not JSON", TVM_FORMAT},
    {"{} x", 0, "not JSON", TVM_FORMAT},
    {"{\"a\":\"\xff\"}", 0, "not JSON", TVM_FORMAT},
    {"{\"a\\u0000b\":1}", 0, "not JSON", TVM_FORMAT},
    {"{\"a\":1}", 0, "'a' is not an object", TVM_FORMAT},
    {"{\"a\":{}}", 0, "no string 'dtype'", TVM_FORMAT},
    {"{\"a\":{\"dtype\":3}}", 0, "no string 'dtype'", TVM_FORMAT},
    {"{\"a\":{\"dtype\":\"U8\"}}", 0, "no array 'shape'", TVM_FORMAT},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0, "dimension 0", TVM_FORMAT},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,0]}}", 0, "dimension 0", TVM_FORMAT},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "'data_offsets'", TVM_FORMAT},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "'data_offsets'", TVM_FORMAT},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, "'data_offsets'", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "9 dimensions", TVM_UNSUPPORTED},
    {"{" TENSOR("a", "U8", "[4]", "0", "4") "}", 3, "has 3", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[4]", "3", "1") "}", 4, "'a' lies at", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[4]", "0", "18446744073709551616") "}", 4, "not JSON", TVM_FORMAT},
    {"{" TENSOR("a", "F16", "[4]", "0", "4") "}", 4, "F16 [4], but has 4 bytes", TVM_FORMAT},
    {"{" TENSOR("a", "F32", "[4611686018427387905]", "0", "4") "}", 4, "but has 4 bytes", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[4294967296,4294967296]", "0", "0") "}", 0, "but has 0 bytes", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[4]", "0", "4") "," TENSOR("b", "U8", "[4]", "2", "6") "}", 6,
     "'a' and 'b' overlap", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[4]", "0", "4") "," TENSOR("b", "U8", "[4]", "0", "4") "}", 4, "overlap",
     TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[2]", "0", "2") "," TENSOR("b", "U8", "[2]", "3", "5") "}", 5, "bytes 2 to 3",
     TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[2]", "0", "2") "}", 5, "bytes 2 to 5", TVM_FORMAT},
    {"{" TENSOR("a", "U8", "[2]", "0", "2") "," TENSOR("a", "U8", "[2]", "2", "4") "}", 4, "duplicate",
     TVM_FORMAT},
    {"{\"__metadata__\":3}", 0, "'__metadata__'", TVM_FORMAT},
    {"{\"__metadata__\":{\"a\":3}}", 0, "metadata 'a'", TVM_FORMAT},
};

START_TEST(refuses) {
    const struct hostile *row = &hostile[_i];
    tvm_safetensors tensors;
    char message[512];
    ck_assert_int_eq(read_file(make_file(row->header, strlen(row->header), row->data), &tensors, message),
                     row->status);
    ck_assert_msg(strstr(message, row->says) != NULL, "'%s' is not said: %s", row->says, message);
    tvm_safetensors_free(&tensors);
}
END_TEST

START_TEST(refuses_lengths) {
    static const uint64_t lengths[] = {3, 100, 99999999, 100000001, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        tvm_safetensors tensors;
        char message[512];
        ck_assert_int_eq(read_file(make_file("{}", lengths[i], 0), &tensors, message), TVM_FORMAT);
        ck_assert_msg(strstr(message, "truncated") != NULL, "%s", message);
        tvm_safetensors_free(&tensors);
    }
}
END_TEST

START_TEST(refuses_a_header_that_is_too_long) {
    tvm_safetensors tensors;
    char message[512];
    int descriptor = make_file("{}", 100000001, 0);
    ck_assert_int_eq(ftruncate(descriptor, 200000000), 0); /* a hole */
    ck_assert_int_eq(read_file(descriptor, &tensors, message), TVM_FORMAT);
    ck_assert_msg(strstr(message, "100000001 bytes") != NULL, "%s", message);
    tvm_safetensors_free(&tensors);
}
END_TEST

/* Every file that a good one begins with, and deep nesting. */
START_TEST(refuses_what_is_cut_off) {
    char text[sizeof header_of_others], message[512], deep[20001];
    tvm_safetensors tensors;
    size_t length = strlen(header_of_others);
    for (size_t cut = 0; cut + 3 < length; cut++) {
        memcpy(text, header_of_others, cut);
        text[cut] = '\0';
        ck_assert_int_eq(read_file(make_file(text, cut, 14), &tensors, message), TVM_FORMAT);
        tvm_safetensors_free(&tensors);
    }
    for (size_t data = 0; data < 14; data++) {
        ck_assert_int_eq(read_file(make_file(header_of_others, length, data), &tensors, message), TVM_FORMAT);
        tvm_safetensors_free(&tensors);
    }
    memset(deep, '[', 20000);
    memcpy(deep, "{\"a\":", 5);
    deep[20000] = '\0';
    ck_assert_int_eq(read_file(make_file(deep, 20000, 0), &tensors, message), TVM_FORMAT);
    tvm_safetensors_free(&tensors);
}
END_TEST

START_TEST(missing_tensor) {
    tvm_safetensors tensors;
    const tvm_safetensor *tensor;
    char message[512];
    tvm_diags diags = {0};
    ck_assert_int_eq(read_file(make_file(header_of_others, strlen(header_of_others), 14), &tensors, message),
                     TVM_OK);
    ck_assert_int_eq(tvm_safetensors_need(&tensors, "a.safetensors", "c", &tensor, &diags), TVM_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(diags.items[0].message, "'c'; it has b, a.weight"));
    tvm_diags_free(&diags);
    tvm_safetensors_free(&tensors);
}
END_TEST

START_TEST(writes_what_it_reads) {
    char a[] = "x \"quoted\"", b[] = "y", key[] = "key", value[] = "value \\ \xc3\xa9";
    tvm_safetensor items[] = {{.name = a, .type = TVM_F16, .rank = 2, .shape = {2, 3}},
                              {.name = b, .type = TVM_FLOAT(8, 4, 3), .rank = 1, .shape = {5}}};
    char *metadata[] = {key, value};
    tvm_safetensors tensors = {.items = items, .count = 2, .metadata = metadata, .metadata_count = 1}, read;
    uint8_t *header;
    size_t size;
    char message[512], path[] = "/tmp/tvm-test-safetensors-XXXXXX";
    ck_assert_int_eq(tvm_safetensors_header(&tensors, &header, &size, NULL), TVM_OK);
    ck_assert_uint_eq(size % 8, 0);
    ck_assert_int_eq(header[8], '{');
    int descriptor = mkstemp(path);
    unlink(path);
    ck_assert_int_eq(write(descriptor, header, size), (ssize_t)size);
    ck_assert_int_eq(ftruncate(descriptor, (off_t)size + 17), 0);
    ck_assert_int_eq(read_file(descriptor, &read, message), TVM_OK);
    ck_assert_uint_eq(read.count, 2);
    ck_assert_str_eq(read.items[0].name, a);
    ck_assert_str_eq(read.items[1].dtype, "F8_E4M3");
    ck_assert_uint_eq(read.items[0].offset, size);
    ck_assert_uint_eq(read.items[1].offset, size + 12);
    ck_assert_str_eq(tvm_safetensors_metadata(&read, "key"), value);
    tvm_safetensors_free(&read);
    free(header);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("safetensors");
    TCase *reading = tcase_create("reading"), *refusing = tcase_create("refusing"),
          *writing = tcase_create("writing");
    tcase_add_test(reading, reads_what_others_write);
    tcase_add_test(reading, reads_empty_ones);
    tcase_add_test(reading, a_scalar_and_an_unknown_type);
    tcase_add_test(reading, missing_tensor);
    tcase_add_loop_test(refusing, refuses, 0, sizeof hostile / sizeof hostile[0]);
    tcase_add_test(refusing, refuses_lengths);
    tcase_add_test(refusing, refuses_a_header_that_is_too_long);
    tcase_add_test(refusing, refuses_what_is_cut_off);
    tcase_add_test(writing, writes_what_it_reads);
    suite_add_tcase(suite, reading);
    suite_add_tcase(suite, refusing);
    suite_add_tcase(suite, writing);
    return run_suite(suite);
}
