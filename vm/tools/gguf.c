#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    VERSION_LEAST = 2,
    VERSION_MOST = 3,
    ALIGNMENT = 32,         /* where general.alignment says nothing */
    PAIR_LEAST = 8 + 4 + 1, /* bytes of a pair, and of a tensor's entry, at the least */
    TENSOR_LEAST = 8 + 4 + 8 + 4 + 8
};

/* ---- types ---- */

#define NUMBERS(kind, bits, exponent, mantissa)                                                              \
    { kind, bits, exponent, mantissa }
#define BLOCKS NUMBERS(TVM_KIND_NONE, 0, 0, 0)

static const tvm_gguf_type types[] = {
    {0, "F32", 1, 4, NUMBERS(TVM_KIND_FLOAT, 32, 8, 23)},
    {1, "F16", 1, 2, NUMBERS(TVM_KIND_FLOAT, 16, 5, 10)},
    {2, "Q4_0", 32, 18, BLOCKS},
    {3, "Q4_1", 32, 20, BLOCKS},
    {6, "Q5_0", 32, 22, BLOCKS},
    {7, "Q5_1", 32, 24, BLOCKS},
    {8, "Q8_0", 32, 34, BLOCKS},
    {10, "Q2_K", 256, 84, BLOCKS},
    {11, "Q3_K", 256, 110, BLOCKS},
    {12, "Q4_K", 256, 144, BLOCKS},
    {13, "Q5_K", 256, 176, BLOCKS},
    {14, "Q6_K", 256, 210, BLOCKS},
    {16, "IQ2_XXS", 256, 66, BLOCKS},
    {17, "IQ2_XS", 256, 74, BLOCKS},
    {18, "IQ3_XXS", 256, 98, BLOCKS},
    {19, "IQ1_S", 256, 50, BLOCKS},
    {20, "IQ4_NL", 32, 18, BLOCKS},
    {21, "IQ3_S", 256, 110, BLOCKS},
    {22, "IQ2_S", 256, 82, BLOCKS},
    {23, "IQ4_XS", 256, 136, BLOCKS},
    {24, "I8", 1, 1, NUMBERS(TVM_KIND_INT, 8, 0, 0)},
    {25, "I16", 1, 2, NUMBERS(TVM_KIND_INT, 16, 0, 0)},
    {26, "I32", 1, 4, NUMBERS(TVM_KIND_INT, 32, 0, 0)},
    {27, "I64", 1, 8, NUMBERS(TVM_KIND_INT, 64, 0, 0)},
    {28, "F64", 1, 8, NUMBERS(TVM_KIND_FLOAT, 64, 11, 52)},
    {29, "IQ1_M", 256, 56, BLOCKS},
    {30, "BF16", 1, 2, NUMBERS(TVM_KIND_FLOAT, 16, 8, 7)},
    {34, "TQ1_0", 256, 54, BLOCKS},
    {35, "TQ2_0", 256, 66, BLOCKS},
    {39, "MXFP4", 32, 17, BLOCKS},
    {40, "NVFP4", 64, 36, BLOCKS},
    {41, "Q1_0", 128, 18, BLOCKS},
};

static const tvm_gguf_type *type_numbered(uint32_t number) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].number == number) return &types[i];
    return NULL;
}

/* ---- numbers and strings, one after the other ---- */

typedef struct cursor {
    const uint8_t *start, *at, *end;
    const char *path;
    tvm_diags *diags;
} cursor;

static tvm_status refuse(const cursor *c, tvm_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tvm_status refuse(const cursor *c, tvm_status status, const char *format, ...) {
    char text[TVM_GGUF_NAME_MAX + 256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tvm_place place = {.file = c->path};
    return tvm_diag_add(c->diags, status, &place, NULL, "%s", text);
}

static uint64_t left(const cursor *c) {
    return (uint64_t)(c->end - c->at);
}

/* `size` bytes, at the most 8, as a number; past the end it is an error. */
static tvm_status take(cursor *c, unsigned size, uint64_t *number, const char *what) {
    *number = 0;
    if (left(c) < size) return refuse(c, TVM_FORMAT, "the file ends within %s", what);
    for (unsigned i = 0; i < size; i++) *number |= (uint64_t)*c->at++ << 8 * i;
    return TVM_OK;
}

static tvm_status take_u32(cursor *c, uint32_t *number, const char *what) {
    uint64_t wide;
    tvm_status status = take(c, 4, &wide, what);
    *number = (uint32_t)wide;
    return status;
}

static tvm_status take_string(cursor *c, const uint8_t **text, uint64_t *length, const char *what) {
    tvm_status status = take(c, 8, length, what);
    if (status) return status;
    if (*length > left(c))
        return refuse(c, TVM_FORMAT, "%s is a string of %" PRIu64 " bytes; the file has %" PRIu64 " more",
                      what, *length, left(c));
    *text = c->at;
    c->at += *length;
    return TVM_OK;
}

/* Copies a text that is printable ASCII and fits. */
static bool copy_plain(const uint8_t *text, uint64_t length, char *to, size_t size) {
    if (length >= size) return false;
    for (uint64_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~') return false;
    memcpy(to, text, length);
    to[length] = '\0';
    return true;
}

/* ---- keys and values ---- */

enum { BOOL = 7, STRING = 8, ARRAY = 9 };

/* Bytes of a value of the type; 0 of those that have no fixed size, and of types that there are not. */
static unsigned value_bytes(uint32_t type) {
    static const unsigned bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes / sizeof *bytes ? bytes[type] : 0;
}

static tvm_status skip_strings(cursor *c, uint64_t count) {
    tvm_status status = TVM_OK;
    for (uint64_t i = 0; !status && i < count; i++) {
        const uint8_t *text;
        uint64_t length;
        status = take_string(c, &text, &length, "a value");
    }
    return status;
}

/* `count` values of the type, which begin here. */
static tvm_status skip_values(cursor *c, uint32_t type, uint64_t count) {
    unsigned bytes = value_bytes(type);
    if (type == STRING) return skip_strings(c, count);
    if (!bytes)
        return refuse(c, TVM_FORMAT,
                      type == ARRAY ? "an array has elements of type %" PRIu32 ", arrays again"
                                    : "a value is of type %" PRIu32 ", which there is not",
                      type);
    if (count > left(c) / bytes)
        return refuse(c, TVM_FORMAT, "an array has %" PRIu64 " elements; the file has %" PRIu64 " bytes more",
                      count, left(c));
    c->at += count * bytes;
    return TVM_OK;
}

static tvm_status read_pair(cursor *c, tvm_gguf_pair *pair) {
    tvm_status status = take_string(c, &pair->key, &pair->key_bytes, "a key");
    if (!status) status = take_u32(c, &pair->type, "the type of a value");
    pair->element = pair->type;
    pair->count = 1;
    if (!status && pair->type == ARRAY) {
        status = take_u32(c, &pair->element, "the type of an array");
        if (!status) status = take(c, 8, &pair->count, "the count of an array");
    }
    pair->value = c->at;
    return status ? status : skip_values(c, pair->element, pair->count);
}

static const tvm_gguf_pair *find(const tvm_gguf *file, const char *key) {
    size_t length = strlen(key);
    for (size_t i = 0; i < file->pair_count; i++)
        if (file->pairs[i].key_bytes == length && !memcmp(file->pairs[i].key, key, length))
            return &file->pairs[i];
    return NULL;
}

bool tvm_gguf_text(const tvm_gguf *file, const char *key, char *text, size_t size) {
    const tvm_gguf_pair *pair = find(file, key);
    if (!pair || pair->type != STRING) return false;
    uint64_t length = 0;
    for (unsigned i = 0; i < 8; i++) length |= (uint64_t)pair->value[i] << 8 * i;
    return copy_plain(pair->value + 8, length, text, size);
}

bool tvm_gguf_number(const tvm_gguf *file, const char *key, uint64_t *number) {
    static const bool signs[] = {false, true,  false, true,  false, true, false,
                                 false, false, false, false, true,  false};
    const tvm_gguf_pair *pair = find(file, key);
    enum { F32 = 6, F64 = 12 };
    if (!pair || pair->type == F32 || pair->type == F64 || pair->type == BOOL) return false;
    unsigned bytes = value_bytes(pair->type);
    if (!bytes || (signs[pair->type] && pair->value[bytes - 1] & 0x80)) return false;
    *number = 0;
    for (unsigned i = 0; i < bytes; i++) *number |= (uint64_t)pair->value[i] << 8 * i;
    return true;
}

/* ---- tensors ---- */

/* Extents, of which the file has that of the weights that follow one another first. */
static tvm_status read_shape(cursor *c, tvm_gguf_tensor *tensor) {
    uint64_t extent, before = 1;
    tvm_status status = take_u32(c, &tensor->rank, "the extents of a tensor");
    if (!status && (tensor->rank > TVM_GGUF_RANK || !tensor->rank))
        return refuse(c, TVM_FORMAT, "tensor '%s' has %u extents; 1 to %d are expected", tensor->name,
                      tensor->rank, TVM_GGUF_RANK);
    for (unsigned d = 0; !status && d < tensor->rank; d++) {
        status = take(c, 8, &extent, "the extents of a tensor");
        if (!status && (!extent || extent > INT64_MAX || __builtin_mul_overflow(before, extent, &before)))
            return refuse(c, TVM_FORMAT, "tensor '%s' has an extent of %" PRIu64, tensor->name, extent);
        tensor->shape[tensor->rank - 1 - d] = extent;
    }
    tensor->bytes = before; /* weights */
    return status;
}

static tvm_status read_tensor(cursor *c, tvm_gguf_tensor *tensor) {
    const uint8_t *name;
    uint64_t length;
    uint32_t number;
    tvm_status status = take_string(c, &name, &length, "the name of a tensor");
    if (status) return status;
    if (!copy_plain(name, length, tensor->name, sizeof tensor->name))
        return refuse(c, TVM_FORMAT,
                      "a tensor has a name of %" PRIu64 " bytes; up to %d of plain text are expected", length,
                      TVM_GGUF_NAME_MAX - 1);
    status = read_shape(c, tensor);
    if (!status) status = take_u32(c, &number, "the type of a tensor");
    if (!status) status = take(c, 8, &tensor->offset, "the place of a tensor");
    if (status) return status;
    const tvm_gguf_type *type = tensor->type = type_numbered(number);
    if (!type)
        return refuse(c, TVM_UNSUPPORTED, "tensor '%s' is of ggml's type %" PRIu32 ", which is not known",
                      tensor->name, number);
    if (tensor->shape[tensor->rank - 1] % type->weights)
        return refuse(c, TVM_FORMAT,
                      "tensor '%s' has rows of %" PRIu64 " weights, not whole blocks of %u (%s)",
                      tensor->name, tensor->shape[tensor->rank - 1], type->weights, type->name);
    if (__builtin_mul_overflow(tensor->bytes / type->weights, type->bytes, &tensor->bytes))
        return refuse(c, TVM_FORMAT, "tensor '%s' is larger than any file", tensor->name);
    return TVM_OK;
}

static int by_place(const void *a, const void *b) {
    const tvm_gguf_tensor *x = a, *y = b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1)
           : x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1)
                                  : 0;
}

/* Offsets within the data become offsets in the file, once they are known to be good. */
static tvm_status place_tensors(cursor *c, tvm_gguf *out) {
    uint64_t alignment = ALIGNMENT, end = 0;
    tvm_gguf_number(out, "general.alignment", &alignment);
    if (!alignment || alignment % 8 || alignment > UINT32_MAX)
        return refuse(c, TVM_FORMAT, "general.alignment is %" PRIu64 "; a multiple of 8 is expected",
                      alignment);
    uint64_t start = ((uint64_t)(c->at - c->start) + alignment - 1) / alignment * alignment;
    uint64_t size = (uint64_t)(c->end - c->start), data = size > start ? size - start : 0;
    if (out->tensor_count) qsort(out->tensors, out->tensor_count, sizeof *out->tensors, by_place);
    for (size_t i = 0; i < out->tensor_count; i++) {
        tvm_gguf_tensor *tensor = &out->tensors[i];
        if (tensor->offset % alignment)
            return refuse(c, TVM_FORMAT,
                          "tensor '%s' lies at byte %" PRIu64 ", no multiple of the alignment %" PRIu64,
                          tensor->name, tensor->offset, alignment);
        if (tensor->offset > data || tensor->bytes > data - tensor->offset)
            return refuse(c, TVM_FORMAT,
                          "tensor '%s' has %" PRIu64 " bytes from byte %" PRIu64
                          " of the data on, which has %" PRIu64 ": the file is not whole",
                          tensor->name, tensor->bytes, tensor->offset, data);
        if (tensor->offset < end)
            return refuse(c, TVM_FORMAT, "tensors '%s' and '%s' lie in the same bytes",
                          out->tensors[i - 1].name, tensor->name);
        end = tensor->offset + tensor->bytes;
        tensor->offset += start;
    }
    return TVM_OK;
}

/* ---- the file ---- */

bool tvm_gguf_is(const uint8_t *bytes, size_t size) {
    return size >= 4 && !memcmp(bytes, "GGUF", 4);
}

static tvm_status read_head(cursor *c, uint64_t *tensors, uint64_t *pairs) {
    uint32_t version;
    if (!tvm_gguf_is(c->start, left(c))) return refuse(c, TVM_FORMAT, "this is no GGUF file");
    c->at += 4;
    tvm_status status = take_u32(c, &version, "the version");
    if (status) return status;
    if (version && !(version & 0xffff))
        return refuse(c, TVM_UNSUPPORTED,
                      "the numbers are big-endian; make the file little-endian with gguf-convert-endian");
    if (version < VERSION_LEAST || version > VERSION_MOST)
        return refuse(c, TVM_UNSUPPORTED, "GGUF version %" PRIu32 " is not known; %d and %d are", version,
                      VERSION_LEAST, VERSION_MOST);
    status = take(c, 8, tensors, "the number of tensors");
    return status ? status : take(c, 8, pairs, "the number of keys");
}

static tvm_status check_parts(const cursor *c, const tvm_gguf *file) {
    uint64_t parts = 1;
    if (!tvm_gguf_number(file, "split.count", &parts) || parts <= 1) return TVM_OK;
    return refuse(c, TVM_UNSUPPORTED,
                  "this is one of %" PRIu64 " parts of a file; join them with llama-gguf-split --merge",
                  parts);
}

tvm_status tvm_gguf_read(const uint8_t *bytes, size_t size, const char *path, tvm_gguf *out,
                         tvm_diags *diags) {
    cursor c = {bytes, bytes, bytes + size, path, diags};
    uint64_t tensors = 0, pairs = 0;
    *out = (tvm_gguf){0};
    tvm_status status = read_head(&c, &tensors, &pairs);
    if (status) return status;
    if (pairs > left(&c) / PAIR_LEAST || tensors > left(&c) / TENSOR_LEAST)
        return refuse(&c, TVM_FORMAT, "%" PRIu64 " keys and %" PRIu64 " tensors are said to be in %zu bytes",
                      pairs, tensors, size);
    out->pairs = calloc(pairs + 1, sizeof *out->pairs);
    out->tensors = calloc(tensors + 1, sizeof *out->tensors);
    if (!out->pairs || !out->tensors) return tvm_diag_no_memory(diags);
    for (; !status && out->pair_count < pairs; out->pair_count += !status)
        status = read_pair(&c, &out->pairs[out->pair_count]);
    for (; !status && out->tensor_count < tensors; out->tensor_count += !status)
        status = read_tensor(&c, &out->tensors[out->tensor_count]);
    if (!status) status = check_parts(&c, out);
    return status ? status : place_tensors(&c, out);
}

void tvm_gguf_free(tvm_gguf *file) {
    free(file->tensors);
    free(file->pairs);
    *file = (tvm_gguf){0};
}
