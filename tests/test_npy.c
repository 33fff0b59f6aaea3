/* .npy files: what NumPy writes is read, what is written NumPy would have written, anything else is refused
 * with a reason. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"
#include "suite_kit.h"

/* A file with this header text and this many bytes of data (0, 1, 2, ...), malloc'ed. */
static uint8_t *make_file(unsigned version, const char *header, size_t data, size_t *size) {
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    *size = start + length + data;
    uint8_t *file = malloc(*size);
    ck_assert_ptr_nonnull(file);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[7] = 0;
    for (size_t i = 8; i < start; i++) file[i] = (uint8_t)(length >> 8 * (i - 8));
    memcpy(file + start, header, length);
    for (size_t i = 0; i < data; i++) file[start + length + i] = (uint8_t)i;
    return file;
}

static tvm_status parse(const uint8_t *file, size_t size, tvm_npy *npy, tvm_diags *diags) {
    uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees a read past the end */
    ck_assert_ptr_nonnull(exact);
    memcpy(exact, file, size);
    tvm_status status = tvm_npy_parse(exact, size, "a.npy", npy, diags);
    free(exact);
    ck_assert_msg(status == TVM_OK || !diags || diags->count == 1, "status %d, %zu messages", status,
                  diags ? diags->count : 0);
    return status;
}

/* numpy.save of numpy.arange(6, dtype='<u2').reshape(2, 3), NumPy 1.24. */
static const char numpy_file[] =
    "\x93NUMPY\x01\x00\x76\x00{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }"
    "                                                          \n"
    "\0\0\1\0\2\0\3\0\4\0\5";

START_TEST(reads_what_numpy_writes) {
    ck_assert_uint_eq(sizeof numpy_file, 128 + 12);
    tvm_npy npy;
    ck_assert_int_eq(parse((const uint8_t *)numpy_file, sizeof numpy_file, &npy, NULL), TVM_OK);
    ck_assert_int_eq(npy.kind, 'u');
    ck_assert_uint_eq(npy.item, 2);
    ck_assert_uint_eq(npy.rank, 2);
    ck_assert_uint_eq(npy.shape[0], 2);
    ck_assert_uint_eq(npy.shape[1], 3);
    ck_assert_uint_eq(npy.offset, 128);
    ck_assert_uint_eq(npy.bytes, 12);
}
END_TEST

START_TEST(writes_what_numpy_writes) {
    char path[] = "/tmp/tvm-test-npy-XXXXXX";
    int descriptor = mkstemp(path);
    ck_assert_int_ge(descriptor, 0);
    tvm_npy npy = {.kind = 'u', .item = 2, .rank = 2, .shape = {2, 3}, .bytes = 12};
    ck_assert_int_eq(tvm_npy_write(path, &npy, numpy_file + 128, NULL), TVM_OK);
    close(descriptor);
    char bytes[sizeof numpy_file + 1];
    FILE *stream = fopen(path, "rb");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fread(bytes, 1, sizeof bytes, stream), sizeof numpy_file);
    fclose(stream);
    unlink(path);
    ck_assert_mem_eq(bytes, numpy_file, sizeof numpy_file);
}
END_TEST

START_TEST(writing_fails_whole) {
    tvm_npy npy = {.kind = 'u', .item = 2, .rank = 2, .shape = {2, 3}, .bytes = 12};
    tvm_diags diags = {0};
    ck_assert_int_eq(tvm_npy_write("/nowhere/at/all.npy", &npy, numpy_file + 128, &diags), TVM_IO);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_str_eq(diags.items[0].file, "/nowhere/at/all.npy");
    tvm_diags_free(&diags);
}
END_TEST

static const struct accepted {
    unsigned version;
    const char *header;
    size_t data;
    const char *text;
} accepted[] = {
    {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12, "'<f4' (3,)"},
    {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12, "'<f4' (3,)"},
    {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 12, "'<f4' (3,)"},
    {1, "{'shape':(2,2),\"descr\":\"|i1\",'fortran_order':False}", 4, "'|i1' (2, 2)"},
    {1, "  {'descr': '|b1', 'fortran_order': False, 'shape': (2L, 2L)}  ", 4, "'|b1' (2, 2)"},
    {1, "{'descr': '<f8', 'fortran_order': False, 'shape': ()}", 8, "'<f8' ()"},
    {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 5)}", 0, "'<f8' (0, 5)"},
    {1, "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999999999, 0)}", 0,
     "'<f8' (99999999999, 99999999999, 0)"},
    {1, "{'descr': '>u1', 'fortran_order': False, 'shape': (2,)}", 2, "'|u1' (2,)"},
    {1, "{'descr': '<V2', 'fortran_order': False, 'shape': (2,)}", 4, "'<V2' (2,)"},
    {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,2)}", 2,
     "'|u1' (1, 1, 1, 1, 1, 1, 1, 2)"},
};

START_TEST(accepts) {
    const struct accepted *row = &accepted[_i];
    size_t size;
    uint8_t *file = make_file(row->version, row->header, row->data, &size);
    tvm_npy npy;
    char text[TVM_NPY_TEXT_MAX];
    ck_assert_int_eq(parse(file, size, &npy, NULL), TVM_OK);
    ck_assert_str_eq(tvm_npy_text(&npy, text), row->text);
    ck_assert_uint_eq(npy.bytes, row->data);
    ck_assert_uint_eq(npy.offset + npy.bytes, size);
    free(file);
}
END_TEST

#define HEAD "{'descr': '<f4', 'fortran_order': False, "

static const struct refused {
    const char *header;
    size_t data;
    tvm_status status;
    const char *why;
} refused[] = {
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (3,)}", 12, TVM_UNSUPPORTED, "big-endian"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", 12, TVM_UNSUPPORTED, "structured"},
    {"{'descr': '<M8[us]', 'fortran_order': False, 'shape': (3,)}", 24, TVM_UNSUPPORTED, "dtype"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", 24, TVM_FORMAT, "descr"},
    {"{'descr': '<\x01"
     "4', 'fortran_order': False, 'shape': (3,)}",
     12, TVM_FORMAT, "descr"},
    {"{'descr': 'f4', 'fortran_order': False, 'shape': (3,)}", 12, TVM_FORMAT, "descr"},
    {"{'descr': '<f0', 'fortran_order': False, 'shape': (3,)}", 12, TVM_UNSUPPORTED, "dtype"},
    {"{'descr': 4, 'fortran_order': False, 'shape': (3,)}", 12, TVM_FORMAT, "descr"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}", 12, TVM_FORMAT, "fortran_order"},
    {HEAD "'shape': (3,)}", 8, TVM_FORMAT, "truncated"},
    {HEAD "'shape': (3,)}", 16, TVM_FORMAT, "longer"},
    {HEAD "'shape': (3)}", 12, TVM_FORMAT, "tuple"},
    {HEAD "'shape': 3}", 12, TVM_FORMAT, "tuple"},
    {HEAD "'shape': [3]}", 12, TVM_FORMAT, "tuple"},
    {HEAD "'shape': (-3,)}", 12, TVM_FORMAT, "numbers"},
    {HEAD "'shape': (,)}", 4, TVM_FORMAT, "numbers"},
    {HEAD "'shape': (3 3)}", 36, TVM_FORMAT, "numbers"},
    {HEAD "'shape': (3,", 12, TVM_FORMAT, "numbers"},
    {HEAD "'shape': (18446744073709551616,)}", 0, TVM_FORMAT, "numbers"},
    {HEAD "'shape': (18446744073709551615, 18446744073709551615)}", 4, TVM_FORMAT, "larger than memory"},
    {HEAD "'shape': (4611686018427387904,)}", 0, TVM_FORMAT, "larger than memory"},
    {HEAD "'shape': (1,1,1,1,1,1,1,1,1)}", 4, TVM_UNSUPPORTED, "8 dimensions"},
    {HEAD "}", 4, TVM_FORMAT, "missing"},
    {HEAD "'descr': '<f4', 'shape': (1,)}", 4, TVM_FORMAT, "twice"},
    {HEAD "'shape': (1,), 'more': 1}", 4, TVM_FORMAT, "key"},
    {HEAD "'shape': (1,)", 4, TVM_FORMAT, "'}' is expected"},
    {HEAD "'shape': (1,)} x", 4, TVM_FORMAT, "after"},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}", 4, TVM_FORMAT, "',' or '}'"},
    {"{'descr", 4, TVM_FORMAT, "entry"},
    {"", 4, TVM_FORMAT, "'{'"},
    {"[]", 4, TVM_FORMAT, "'{'"},
};

START_TEST(refuses) {
    const struct refused *row = &refused[_i];
    size_t size;
    uint8_t *file = make_file(1, row->header, row->data, &size);
    tvm_npy npy;
    tvm_diags diags = {0};
    ck_assert_int_eq(parse(file, size, &npy, &diags), row->status);
    ck_assert_str_eq(diags.items[0].file, "a.npy");
    ck_assert_msg(strstr(diags.items[0].message, row->why) != NULL, "'%s' does not say '%s'",
                  diags.items[0].message, row->why);
    tvm_diags_free(&diags);
    free(file);
}
END_TEST

/* Of a file that never ends no more is asked for than its header says; asking looks at nothing but what is
 * there. */
START_TEST(says_how_long_it_is) {
    uint8_t endless[4 * sizeof numpy_file] = {0};
    memcpy(endless, numpy_file, sizeof numpy_file);
    uint64_t size = 0;
    for (unsigned asked = 0; asked < 4; asked++) {
        uint8_t *there = malloc(size ? size : 1); /* so that a sanitizer sees a read past the end */
        ck_assert_ptr_nonnull(there);
        memcpy(there, endless, size);
        uint64_t next = tvm_npy_extent(there, size);
        free(there);
        if (next <= size) break;
        size = next;
    }
    ck_assert_uint_eq(size, sizeof numpy_file);
    ck_assert_uint_le(tvm_npy_extent(endless, sizeof endless), sizeof numpy_file);
}
END_TEST

START_TEST(asks_for_no_more_of_other_files) {
    static const uint8_t zeros[64];
    uint8_t file[sizeof numpy_file];
    ck_assert_uint_le(tvm_npy_extent(zeros, sizeof zeros), sizeof zeros);
    memcpy(file, numpy_file, sizeof file);
    file[6] = 9;
    ck_assert_uint_le(tvm_npy_extent(file, 12), 12);
    memcpy(file, "\x93NUMPY\2\0\xff\xff\xff\xff", 12);
    ck_assert_uint_le(tvm_npy_extent(file, 12), 12);
    memcpy(file, numpy_file, sizeof file);
    file[30] = '?';
    ck_assert_uint_le(tvm_npy_extent(file, sizeof file), sizeof file);
}
END_TEST

START_TEST(refuses_a_header_that_is_too_long) {
    static const char words[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}";
    enum { MOST = 1 << 20 };
    char *header = malloc(MOST + 2);
    ck_assert_ptr_nonnull(header);
    memset(header, ' ', MOST + 1);
    memcpy(header, words, strlen(words));
    for (size_t more = 0; more < 2; more++) {
        header[MOST + more] = '\0';
        size_t size;
        uint8_t *file = make_file(2, header, 12, &size);
        tvm_npy npy;
        tvm_diags diags = {0};
        ck_assert_int_eq(parse(file, size, &npy, &diags), more ? TVM_FORMAT : TVM_OK);
        if (more) ck_assert_ptr_nonnull(strstr(diags.items[0].message, "longer than 1 MiB"));
        tvm_diags_free(&diags);
        free(file);
        header[MOST] = ' ';
    }
    free(header);
}
END_TEST

START_TEST(refuses_other_files) {
    tvm_npy npy;
    uint8_t file[sizeof numpy_file];
    ck_assert_int_eq(parse((const uint8_t *)"PK\3\4 something", 14, &npy, NULL), TVM_FORMAT);
    memcpy(file, numpy_file, sizeof file);
    file[6] = 4;
    ck_assert_int_eq(parse(file, sizeof file, &npy, NULL), TVM_VERSION);
    file[6] = 0;
    ck_assert_int_eq(parse(file, sizeof file, &npy, NULL), TVM_VERSION);
    file[6] = 1;
    file[7] = 1;
    ck_assert_int_eq(parse(file, sizeof file, &npy, NULL), TVM_VERSION);
}
END_TEST

START_TEST(refuses_every_truncation) {
    for (size_t size = 0; size < sizeof numpy_file; size++) {
        tvm_npy npy;
        ck_assert_int_eq(parse((const uint8_t *)numpy_file, size, &npy, NULL), TVM_FORMAT);
    }
}
END_TEST

START_TEST(survives_corruption) {
    uint32_t state = 1;
    for (int round = 0; round < 20000; round++) {
        uint8_t file[sizeof numpy_file];
        memcpy(file, numpy_file, sizeof file);
        for (int i = 0; i < 1 + round % 3; i++) {
            state = state * 1664525 + 1013904223;
            file[(state >> 8) % 70] = (uint8_t)(state >> 24);
        }
        tvm_npy npy;
        if (parse(file, sizeof file, &npy, NULL) != TVM_OK) continue;
        uint64_t elements = 1; /* whatever it says fits the file */
        for (unsigned d = 0; d < npy.rank; d++) elements *= npy.shape[d];
        ck_assert_uint_eq(npy.offset + elements * npy.item, sizeof file);
    }
}
END_TEST

static const struct stands {
    const char *type;
    unsigned rank;
    int64_t shape[3];
    const char *text; /* NULL: is no array */
    size_t bytes;
} stands[] = {
    {"f16", 2, {2, 3}, "'<f2' (2, 3)", 12}, {"bf16", 1, {3}, "'<u2' (3,)", 6},
    {"tf32", 1, {3}, "'<f4' (3,)", 12},     {"f32", 1, {3}, "'<f4' (3,)", 12},
    {"f64", 0, {0}, "'<f8' ()", 8},         {"bool", 1, {3}, "'|b1' (3,)", 3},
    {"i8", 1, {3}, "'|i1' (3,)", 3},        {"u8", 1, {3}, "'|u1' (3,)", 3},
    {"i16", 1, {3}, "'<i2' (3,)", 6},       {"u64", 1, {3}, "'<u8' (3,)", 24},
    {"u3", 2, {5, 16}, "'|u1' (5, 6)", 30}, {"i4", 3, {2, 2, 2}, "'|u1' (2, 2, 1)", 4},
    {"u1", 1, {8}, "'|u1' (1,)", 1},        {"f6_e3m2", 1, {4}, "'|u1' (3,)", 3},
    {"f8_e4m3", 1, {4}, "'|u1' (4,)", 4},   {"u3", 2, {5, 4}, NULL, 0},
    {"f32", 2, {-1, 4}, NULL, 0},           {"u3", 2, {0, 16}, "'|u1' (0, 6)", 0},
    {"f32", 2, {INT64_MAX, 4}, NULL, 0},    {"f64", 2, {INT64_MAX, 0}, "'<f8' (9223372036854775807, 0)", 0},
    {"u7", 1, {INT64_MAX - 7}, NULL, 0},
};

START_TEST(stands_in_a_file) {
    const struct stands *row = &stands[_i];
    tvm_dtype type;
    tvm_npy npy;
    char text[TVM_NPY_TEXT_MAX];
    ck_assert(tvm_dtype_parse(row->type, strlen(row->type), &type));
    ck_assert_int_eq(tvm_npy_of(type, row->rank, row->shape, &npy), row->text != NULL);
    if (!row->text) return;
    ck_assert_str_eq(tvm_npy_text(&npy, text), row->text);
    ck_assert_uint_eq(npy.bytes, row->bytes);
    ck_assert(tvm_npy_fits(&npy, &npy, type));
    if (!row->rank) return;
    tvm_npy other = npy;
    other.shape[row->rank - 1]++;
    ck_assert(!tvm_npy_fits(&other, &npy, type));
    other = npy;
    other.rank--;
    ck_assert(!tvm_npy_fits(&other, &npy, type));
    other = npy;
    other.kind = 'c';
    ck_assert(!tvm_npy_fits(&other, &npy, type));
}
END_TEST

START_TEST(opaque_bytes_fit_only_types_numpy_lacks) {
    int64_t shape[] = {4};
    tvm_npy expected, given = {.kind = 'V', .item = 2, .rank = 1, .shape = {4}, .bytes = 8};
    ck_assert(tvm_npy_of(TVM_BF16, 1, shape, &expected));
    ck_assert(tvm_npy_fits(&given, &expected, TVM_BF16));
    ck_assert(tvm_npy_of(TVM_F16, 1, shape, &expected));
    ck_assert(!tvm_npy_fits(&given, &expected, TVM_F16));
}
END_TEST

/* A [2, 3] array in Fortran order: 0 10 1 11 2 12, and its rows four elements apart. */
START_TEST(arranges_elements) {
    static const char header[] = "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3)}";
    static const int16_t columns[] = {0, 10, 1, 11, 2, 12};
    static const int64_t apart[] = {4, 1};
    size_t size;
    uint8_t *file = make_file(1, header, sizeof columns, &size);
    tvm_npy npy;
    int64_t step[TVM_MAX_RANK];
    int16_t rows[8] = {0, 0, 0, -1, 0, 0, 0, -1};
    ck_assert_int_eq(parse(file, size, &npy, NULL), TVM_OK);
    ck_assert(npy.fortran);
    tvm_npy_steps(&npy, step);
    ck_assert_int_eq(step[0], 1);
    ck_assert_int_eq(step[1], 2);
    tvm_npy_arrange(&npy, apart, (uint8_t *)rows, step, (const uint8_t *)columns);
    static const int16_t expected[] = {0, 1, 2, -1, 10, 11, 12, -1};
    ck_assert_mem_eq(rows, expected, sizeof expected);
    free(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("npy");
    TCase *cases = tcase_create("npy");
    tcase_add_test(cases, reads_what_numpy_writes);
    tcase_add_test(cases, writes_what_numpy_writes);
    tcase_add_test(cases, writing_fails_whole);
    tcase_add_loop_test(cases, accepts, 0, sizeof accepted / sizeof *accepted);
    tcase_add_loop_test(cases, refuses, 0, sizeof refused / sizeof *refused);
    tcase_add_test(cases, refuses_other_files);
    tcase_add_test(cases, says_how_long_it_is);
    tcase_add_test(cases, asks_for_no_more_of_other_files);
    tcase_add_test(cases, refuses_a_header_that_is_too_long);
    tcase_add_test(cases, refuses_every_truncation);
    tcase_add_test(cases, survives_corruption);
    tcase_add_loop_test(cases, stands_in_a_file, 0, sizeof stands / sizeof *stands);
    tcase_add_test(cases, opaque_bytes_fit_only_types_numpy_lacks);
    tcase_add_test(cases, arranges_elements);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
