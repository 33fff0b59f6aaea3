#include "npy.h"
#include "fileio.h"
#include "numbers.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char magic[6] = "\x93NUMPY";
enum { MAGIC_END = 8, LONGEST_START = 12 }; /* with the version; with the length of the header's text */

/* ---- the header: a dict literal of Python with the keys descr, fortran_order and shape, in any order ----
 */

typedef struct header_reader {
    const char *at, *end;
    const char *path;
    tvm_diags *diags;
    tvm_npy *npy;
    bool has_descr, has_order, has_shape;
} header_reader;

static tvm_status malformed(const header_reader *reader, const char *what) {
    tvm_place place = {.file = reader->path};
    return tvm_diag_add(reader->diags, TVM_FORMAT, &place, NULL, "malformed .npy header: %s", what);
}

static tvm_status unsupported(const header_reader *reader, const char *hint, const char *what) {
    tvm_place place = {.file = reader->path};
    return tvm_diag_add(reader->diags, TVM_UNSUPPORTED, &place, hint, "%s", what);
}

static void skip_blanks(header_reader *reader) {
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at) reader->at++;
}

/* Takes the character if it is next, blanks before it skipped. */
static bool take(header_reader *reader, char c) {
    skip_blanks(reader);
    if (reader->at == reader->end || *reader->at != c) return false;
    reader->at++;
    return true;
}

static bool take_word(header_reader *reader, const char *word) {
    skip_blanks(reader);
    size_t length = strlen(word);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length)) return false;
    reader->at += length;
    return true;
}

/* A string in single or double quotes, without escapes. */
static bool take_string(header_reader *reader, const char **text, size_t *length) {
    char quote = take(reader, '\'') ? '\'' : take(reader, '"') ? '"' : '\0';
    if (!quote) return false;
    const char *start = reader->at;
    while (reader->at < reader->end && *reader->at != quote && *reader->at != '\\') reader->at++;
    if (reader->at == reader->end || *reader->at != quote) return false;
    *text = start;
    *length = (size_t)(reader->at++ - start);
    return true;
}

static bool take_number(header_reader *reader, uint64_t *number) {
    skip_blanks(reader);
    const char *start = reader->at;
    uint64_t value = 0;
    for (; reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9'; reader->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*reader->at - '0'), &value))
            return false;
    *number = value;
    bool any = reader->at > start;
    take(reader, 'L'); /* Python 2 wrote 16L */
    return any;
}

static tvm_status read_descr(header_reader *reader) {
    const char *text;
    size_t length;
    if (take(reader, '[')) return unsupported(reader, NULL, "a structured dtype is not supported");
    if (!take_string(reader, &text, &length)) return malformed(reader, "'descr' is not a string");
    if (length < 3 || length > 8 || !strchr("<>|=", text[0]) || !isalpha((unsigned char)text[1]))
        return malformed(reader, "'descr' is not a type such as '<f4'");
    unsigned item = 0;
    for (size_t i = 2; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return unsupported(reader, NULL, "this dtype is not supported");
        item = item * 10 + (unsigned)(text[i] - '0');
    }
    if (!item) return unsupported(reader, NULL, "this dtype is not supported");
    if (text[0] == '>' && item > 1)
        return unsupported(reader, "numpy: a.astype(a.dtype.newbyteorder('<'))",
                           "the array is big-endian; little-endian is needed");
    reader->npy->kind = text[1];
    reader->npy->item = item;
    return TVM_OK;
}

static tvm_status read_order(header_reader *reader) {
    if (take_word(reader, "False")) return TVM_OK;
    if (take_word(reader, "True")) {
        reader->npy->fortran = true;
        return TVM_OK;
    }
    return malformed(reader, "'fortran_order' is neither True nor False");
}

static tvm_status read_shape(header_reader *reader) {
    if (!take(reader, '(')) return malformed(reader, "'shape' is not a tuple");
    tvm_npy *npy = reader->npy;
    bool comma = true;
    while (!take(reader, ')')) {
        uint64_t extent;
        if (!comma || !take_number(reader, &extent))
            return malformed(reader, "'shape' is not a tuple of numbers");
        if (npy->rank == TVM_MAX_RANK)
            return unsupported(reader, NULL, "the array has more than 8 dimensions");
        npy->shape[npy->rank++] = extent;
        comma = take(reader, ',');
    }
    if (npy->rank == 1 && !comma) return malformed(reader, "'shape' is a number, not a tuple");
    return TVM_OK;
}

static bool same_text(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static tvm_status read_entry(header_reader *reader) {
    const char *key;
    size_t length;
    if (!take_string(reader, &key, &length) || !take(reader, ':'))
        return malformed(reader, "an entry 'key': value is expected");
    bool *seen = same_text(key, length, "descr")           ? &reader->has_descr
                 : same_text(key, length, "fortran_order") ? &reader->has_order
                 : same_text(key, length, "shape")         ? &reader->has_shape
                                                           : NULL;
    if (!seen) return malformed(reader, "a key other than 'descr', 'fortran_order' and 'shape'");
    if (*seen) return malformed(reader, "a key stands there twice");
    *seen = true;
    return seen == &reader->has_descr   ? read_descr(reader)
           : seen == &reader->has_order ? read_order(reader)
                                        : read_shape(reader);
}

static tvm_status read_header(header_reader *reader) {
    if (!take(reader, '{')) return malformed(reader, "it does not begin with '{'");
    bool comma = true;
    while (!take(reader, '}')) {
        if (!comma) return malformed(reader, "',' or '}' is expected");
        tvm_status status = read_entry(reader);
        if (status) return status;
        comma = take(reader, ',');
    }
    skip_blanks(reader);
    if (reader->at != reader->end) return malformed(reader, "there is text after the closing '}'");
    if (!reader->has_descr || !reader->has_order || !reader->has_shape)
        return malformed(reader, "'descr', 'fortran_order' or 'shape' is missing");
    return TVM_OK;
}

/* Bytes of all elements; false when they do not fit a size_t. An extent of 0 makes an empty array, whatever
 * the others. */
static bool data_bytes(const tvm_npy *npy, size_t *bytes) {
    uint64_t product = npy->item;
    for (unsigned i = 0; i < npy->rank; i++)
        if (!npy->shape[i]) product = 0;
    for (unsigned i = 0; product && i < npy->rank; i++)
        if (__builtin_mul_overflow(product, npy->shape[i], &product)) return false;
    *bytes = product;
    return product <= SIZE_MAX / 2;
}

/* All before the data; `size` is that of the whole file, of which the header must be there. */
static tvm_status parse_header(header_reader *reader, const uint8_t *file, size_t size) {
    tvm_place place = {.file = reader->path};
    *reader->npy = (tvm_npy){0};
    if (size < MAGIC_END || memcmp(file, magic, sizeof magic))
        return tvm_diag_add(reader->diags, TVM_FORMAT, &place, NULL, "this is not a .npy file");
    unsigned version = file[6];
    if (version < 1 || version > 3 || file[7])
        return tvm_diag_add(reader->diags, TVM_VERSION, &place, NULL,
                            ".npy version %u.%u is not known (1.0 to 3.0 are)", version, file[7]);
    size_t start = version == 1 ? 10 : 12;
    if (size < start) return malformed(reader, "the file is truncated");
    size_t length = (size_t)file[8] | (size_t)file[9] << 8;
    if (version > 1) length |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
    reader->npy->offset = start + length;
    if (length > TVM_NPY_HEADER_LIMIT) return malformed(reader, "it is longer than 1 MiB");
    if (length > size - start) return malformed(reader, "the file is truncated");
    reader->at = (const char *)file + start;
    reader->end = reader->at + length;
    tvm_status status = read_header(reader);
    if (!status && !data_bytes(reader->npy, &reader->npy->bytes))
        return malformed(reader, "the array is larger than memory can be");
    return status;
}

tvm_status tvm_npy_parse(const uint8_t *file, size_t size, const char *path, tvm_npy *npy, tvm_diags *diags) {
    header_reader reader = {.path = path, .diags = diags, .npy = npy};
    tvm_status status = parse_header(&reader, file, size);
    if (status) return status;
    tvm_place place = {.file = path};
    char text[TVM_NPY_TEXT_MAX];
    size_t there = size - npy->offset;
    if (there > npy->bytes)
        return tvm_diag_add(diags, TVM_FORMAT, &place, NULL,
                            "the file is longer than its header says: %s takes %zu bytes of data",
                            tvm_npy_text(npy, text), npy->bytes);
    if (there < npy->bytes)
        return tvm_diag_add(diags, TVM_FORMAT, &place, NULL,
                            "the file is truncated: %s takes %zu bytes of data, and %zu are there",
                            tvm_npy_text(npy, text), npy->bytes, there);
    return TVM_OK;
}

uint64_t tvm_npy_extent(const uint8_t *file, size_t size) {
    tvm_npy npy;
    header_reader reader = {.npy = &npy};
    if (size < LONGEST_START) return LONGEST_START;
    tvm_status status = parse_header(&reader, file, size);
    if (npy.offset > size && npy.offset <= LONGEST_START + TVM_NPY_HEADER_LIMIT) return npy.offset;
    return status ? 0 : npy.offset + npy.bytes;
}

/* ---- order ---- */

void tvm_npy_steps(const tvm_npy *npy, int64_t step[TVM_MAX_RANK]) {
    uint64_t below = 1;
    for (unsigned i = 0; i < npy->rank; i++) {
        unsigned d = npy->fortran ? i : npy->rank - 1 - i;
        step[d] = (int64_t)below;
        below *= npy->shape[d];
    }
}

void tvm_npy_arrange(const tvm_npy *npy, const int64_t *to_step, uint8_t *to, const int64_t *from_step,
                     const uint8_t *from) {
    uint64_t index[TVM_MAX_RANK] = {0};
    unsigned d = npy->rank;
    if (!npy->bytes) return;
    do {
        int64_t at = 0, place = 0;
        for (d = 0; d < npy->rank; d++) {
            at += (int64_t)index[d] * from_step[d];
            place += (int64_t)index[d] * to_step[d];
        }
        memcpy(to + (size_t)place * npy->item, from + (size_t)at * npy->item, npy->item);
        while (d > 0 && ++index[d - 1] == npy->shape[d - 1]) index[--d] = 0;
    } while (d > 0);
}

/* ---- types ---- */

bool tvm_npy_of(tvm_dtype type, unsigned rank, const int64_t *shape, tvm_npy *npy) {
    bool packed = type.bits < 8 || (type.kind == TVM_KIND_FLOAT && type.bits == 8);
    *npy = (tvm_npy){.kind = 'u', .item = type.bits < 8 ? 1 : type.bits / 8u, .rank = rank};
    if (type.kind == TVM_KIND_BOOL)
        npy->kind = 'b';
    else if (type.kind == TVM_KIND_INT && !packed)
        npy->kind = 'i';
    else if (type.kind == TVM_KIND_FLOAT && !packed && !tvm_dtype_same(type, TVM_BF16))
        npy->kind = 'f';
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] < 0) return false;
        npy->shape[i] = (uint64_t)shape[i];
    }
    if (rank && type.bits < 8) {
        uint64_t bits;
        if (__builtin_mul_overflow(npy->shape[rank - 1], (uint64_t)type.bits, &bits) || bits % 8)
            return false;
        npy->shape[rank - 1] = bits / 8;
    }
    return data_bytes(npy, &npy->bytes);
}

bool tvm_npy_fits(const tvm_npy *given, const tvm_npy *expected, tvm_dtype type) {
    bool lowbit = tvm_dtype_is_lowbit(type);
    bool bytes = lowbit || tvm_dtype_same(type, TVM_E8M0);
    bool opaque = (given->kind == 'V' && (bytes || tvm_dtype_same(type, TVM_BF16))) ||
                  (given->kind == 'u' && bytes); /* bit strings, of i8 too */
    if ((given->kind != expected->kind && !opaque) || given->item != expected->item) return false;
    if (given->rank != expected->rank) return false;
    for (unsigned i = 0; i < given->rank; i++)
        if (given->shape[i] != expected->shape[i]) return false;
    return true;
}

const char *tvm_npy_text(const tvm_npy *npy, char text[TVM_NPY_TEXT_MAX]) {
    int at = snprintf(text, TVM_NPY_TEXT_MAX, "'%c%c%u' (", npy->item > 1 ? '<' : '|', npy->kind, npy->item);
    for (unsigned i = 0; i < npy->rank; i++)
        at +=
            snprintf(text + at, (size_t)(TVM_NPY_TEXT_MAX - at), "%s%" PRIu64, i ? ", " : "", npy->shape[i]);
    snprintf(text + at, (size_t)(TVM_NPY_TEXT_MAX - at), "%s)", npy->rank == 1 ? "," : "");
    return text;
}

/* ---- writing ---- */

enum { HEADER_ALIGNMENT = 64 };

size_t tvm_npy_header(const tvm_npy *npy, uint8_t header[TVM_NPY_HEADER_MAX]) {
    char description[TVM_NPY_TEXT_MAX + 64], text[TVM_NPY_TEXT_MAX];
    tvm_npy_text(npy, text);
    char *shape = strchr(text, '(');
    shape[-1] = '\0';
    int length = snprintf(description, sizeof description,
                          "{'descr': %s, 'fortran_order': False, 'shape': %s, }", text, shape);
    size_t used =
        10 + (size_t)length + 1; /* the description is filled up with blanks and ends with a newline */
    size_t offset = tvm_round_up(used, HEADER_ALIGNMENT);
    memset(header, ' ', offset);
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    header[8] = (uint8_t)(offset - 10);
    header[9] = (uint8_t)((offset - 10) >> 8);
    memcpy(header + 10, description, (size_t)length);
    header[offset - 1] = '\n';
    return offset;
}

tvm_status tvm_npy_write(const char *path, const tvm_npy *npy, const void *data, tvm_diags *diags) {
    uint8_t header[TVM_NPY_HEADER_MAX];
    size_t offset = tvm_npy_header(npy, header);
    uint8_t *file = malloc(offset + npy->bytes);
    if (!file) return tvm_diag_no_memory(diags);
    memcpy(file, header, offset);
    if (npy->bytes) memcpy(file + offset, data, npy->bytes);
    tvm_status status = tvm_file_write(path, file, offset + npy->bytes, diags);
    free(file);
    return status;
}
