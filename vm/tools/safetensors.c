#include "safetensors.h"
#include "numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, ALIGNMENT = 64, LISTED = 12 };

/* ---- types ---- */

static const struct named_type {
    const char *name;
    tvm_dtype type;
} named_types[] = {
    {"BOOL", {TVM_KIND_BOOL, 8, 0, 0}},     {"U8", {TVM_KIND_UINT, 8, 0, 0}},
    {"I8", {TVM_KIND_INT, 8, 0, 0}},        {"U16", {TVM_KIND_UINT, 16, 0, 0}},
    {"I16", {TVM_KIND_INT, 16, 0, 0}},      {"U32", {TVM_KIND_UINT, 32, 0, 0}},
    {"I32", {TVM_KIND_INT, 32, 0, 0}},      {"U64", {TVM_KIND_UINT, 64, 0, 0}},
    {"I64", {TVM_KIND_INT, 64, 0, 0}},      {"F16", {TVM_KIND_FLOAT, 16, 5, 10}},
    {"BF16", {TVM_KIND_FLOAT, 16, 8, 7}},   {"F32", {TVM_KIND_FLOAT, 32, 8, 23}},
    {"F64", {TVM_KIND_FLOAT, 64, 11, 52}},  {"F8_E4M3", {TVM_KIND_FLOAT, 8, 4, 3}},
    {"F8_E5M2", {TVM_KIND_FLOAT, 8, 5, 2}}, {"F8_E8M0", {TVM_KIND_FLOAT, 8, 8, 0}},
};
enum { NAMED_TYPES = sizeof named_types / sizeof named_types[0] };

const char *tvm_safetensors_type(tvm_dtype type) {
    for (size_t i = 0; i < NAMED_TYPES; i++)
        if (tvm_dtype_same(named_types[i].type, type)) return named_types[i].name;
    return NULL;
}

static tvm_dtype type_named(const char *name) {
    for (size_t i = 0; i < NAMED_TYPES; i++)
        if (!strcmp(named_types[i].name, name)) return named_types[i].type;
    return (tvm_dtype){0};
}

/* ---- reading ---- */

typedef struct header_reader {
    const char *path;
    uint64_t data_bytes;
    tvm_safetensors *out;
    tvm_diags *diags;
} header_reader;

static tvm_status malformed(const header_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static tvm_status malformed(const header_reader *reader, const char *format, ...) {
    char text[TVM_SAFETENSORS_TEXT_MAX + 256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    tvm_place place = {.file = reader->path};
    return tvm_diag_add(reader->diags, TVM_FORMAT, &place, NULL, "%s", text);
}

static bool read_u64(const json_t *value, uint64_t *number) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

static tvm_status read_shape(const header_reader *reader, const json_t *shape, tvm_safetensor *tensor) {
    if (!json_is_array(shape)) return malformed(reader, "tensor '%.80s' has no array 'shape'", tensor->name);
    tvm_place place = {.file = reader->path};
    if (json_array_size(shape) > TVM_MAX_RANK)
        return tvm_diag_add(reader->diags, TVM_UNSUPPORTED, &place, NULL,
                            "tensor '%.80s' has %zu dimensions; %d are the most", tensor->name,
                            json_array_size(shape), TVM_MAX_RANK);
    tensor->rank = (unsigned)json_array_size(shape);
    for (unsigned d = 0; d < tensor->rank; d++)
        if (!read_u64(json_array_get(shape, d), &tensor->shape[d]))
            return malformed(reader, "dimension %u of tensor '%.80s' is not a number", d, tensor->name);
    return TVM_OK;
}

/* Offsets within the data; they become offsets in the file when all is known to fit. */
static tvm_status read_offsets(const header_reader *reader, const json_t *offsets, tvm_safetensor *tensor) {
    uint64_t begin, end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_u64(json_array_get(offsets, 0), &begin) || !read_u64(json_array_get(offsets, 1), &end))
        return malformed(reader, "tensor '%.80s' has no pair of numbers 'data_offsets'", tensor->name);
    if (begin > end || end > reader->data_bytes)
        return malformed(
            reader, "tensor '%.80s' lies at bytes %" PRIu64 " to %" PRIu64 " of the data, which has %" PRIu64,
            tensor->name, begin, end, reader->data_bytes);
    tensor->offset = begin;
    tensor->bytes = end - begin;
    return TVM_OK;
}

/* Bytes that type and shape make; false when they do not fit 64 bits. */
static bool shape_bytes(const tvm_safetensor *tensor, uint64_t *bytes) {
    *bytes = tensor->type.bits / 8u;
    for (unsigned d = 0; d < tensor->rank; d++)
        if (!tensor->shape[d]) return *bytes = 0, true;
    for (unsigned d = 0; d < tensor->rank; d++)
        if (__builtin_mul_overflow(*bytes, tensor->shape[d], bytes)) return false;
    return true;
}

static tvm_status read_tensor(const header_reader *reader, const char *name, const json_t *value,
                              tvm_safetensor *tensor) {
    if (!json_is_object(value))
        return malformed(reader, "the entry of tensor '%.80s' is not an object", name);
    tensor->name = strdup(name);
    if (!tensor->name) return tvm_diag_no_memory(reader->diags);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype) return malformed(reader, "tensor '%.80s' has no string 'dtype'", name);
    tensor->dtype = strdup(dtype);
    if (!tensor->dtype) return tvm_diag_no_memory(reader->diags);
    tensor->type = type_named(dtype);
    tvm_status status = read_shape(reader, json_object_get(value, "shape"), tensor);
    if (!status) status = read_offsets(reader, json_object_get(value, "data_offsets"), tensor);
    uint64_t bytes;
    if (status || tensor->type.kind == TVM_KIND_NONE) return status;
    if (shape_bytes(tensor, &bytes) && bytes == tensor->bytes) return TVM_OK;
    char text[TVM_SAFETENSORS_TEXT_MAX];
    return malformed(reader, "tensor '%.80s' is %s, but has %" PRIu64 " bytes of data", name,
                     tvm_safetensor_text(tensor, text), tensor->bytes);
}

static tvm_status read_metadata(const header_reader *reader, json_t *object) {
    if (!json_is_object(object)) return malformed(reader, "'__metadata__' is not an object");
    tvm_safetensors *out = reader->out;
    out->metadata = calloc(2 * json_object_size(object) + 1, sizeof *out->metadata);
    if (!out->metadata) return tvm_diag_no_memory(reader->diags);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_is_string(value)) return malformed(reader, "metadata '%.80s' is not a string", key);
        char **pair = out->metadata + 2 * out->metadata_count++;
        pair[0] = strdup(key);
        pair[1] = strdup(json_string_value(value));
        if (!pair[0] || !pair[1]) return tvm_diag_no_memory(reader->diags);
    }
    return TVM_OK;
}

static int by_offset(const void *a, const void *b) {
    const tvm_safetensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Every byte of the data belongs to one tensor: the format demands it, so that nothing can hide in a file. */
static tvm_status check_cover(const header_reader *reader, uint64_t data_offset) {
    tvm_safetensors *out = reader->out;
    if (out->count) qsort(out->items, out->count, sizeof *out->items, by_offset);
    uint64_t end = 0;
    for (size_t i = 0; i < out->count; i++) {
        tvm_safetensor *tensor = &out->items[i];
        if (tensor->offset < end)
            return malformed(reader, "tensors '%.80s' and '%.80s' overlap", tensor[-1].name, tensor->name);
        if (tensor->offset > end)
            return malformed(reader, "bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor", end,
                             tensor->offset);
        end = tensor->offset + tensor->bytes;
        tensor->offset += data_offset;
    }
    if (end == reader->data_bytes) return TVM_OK;
    return malformed(reader, "bytes %" PRIu64 " to %" PRIu64 " of the data belong to no tensor", end,
                     reader->data_bytes);
}

static tvm_status read_root(const header_reader *reader, json_t *root, uint64_t data_offset) {
    tvm_safetensors *out = reader->out;
    if (!json_is_object(root)) return malformed(reader, "the header is not a JSON object");
    out->items = calloc(json_object_size(root) + 1, sizeof *out->items);
    if (!out->items) return tvm_diag_no_memory(reader->diags);
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        tvm_status status = !strcmp(name, "__metadata__")
                                ? read_metadata(reader, value)
                                : read_tensor(reader, name, value, &out->items[out->count++]);
        if (status) return status;
    }
    return check_cover(reader, data_offset);
}

tvm_status tvm_read_at(int descriptor, const char *path, void *bytes, size_t size, uint64_t offset,
                       tvm_diags *diags) {
    tvm_place place = {.file = path};
    uint8_t *at = bytes;
    while (size) {
        ssize_t got = pread(descriptor, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot read: %s", strerror(errno));
        if (!got) return tvm_diag_add(diags, TVM_FORMAT, &place, NULL, "the file is truncated");
        at += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
    return TVM_OK;
}

static tvm_status parse_header(const header_reader *reader, const char *text, size_t length) {
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        if (json_error_code(&error) == json_error_out_of_memory) return tvm_diag_no_memory(reader->diags);
        return malformed(reader, "the header is not JSON: %s at byte %d", error.text, error.position);
    }
    tvm_status status = read_root(reader, root, LENGTH_BYTES + (uint64_t)length);
    json_decref(root);
    return status;
}

tvm_status tvm_safetensors_read(int descriptor, const char *path, tvm_safetensors *out, tvm_diags *diags) {
    *out = (tvm_safetensors){0};
    header_reader reader = {.path = path, .out = out, .diags = diags};
    struct stat info;
    tvm_place place = {.file = path};
    if (fstat(descriptor, &info))
        return tvm_diag_add(diags, TVM_IO, &place, NULL, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return tvm_diag_add(diags, TVM_IO, &place, NULL, "this is not a regular file");
    uint64_t size = (uint64_t)info.st_size;
    uint8_t bytes[LENGTH_BYTES];
    if (size < LENGTH_BYTES)
        return malformed(&reader, "this is not a .safetensors file: it has %" PRIu64 " bytes", size);
    tvm_status status = tvm_read_at(descriptor, path, bytes, sizeof bytes, 0, diags);
    if (status) return status;
    uint64_t length = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)bytes[i] << 8 * i;
    if (length > size - LENGTH_BYTES)
        return malformed(&reader,
                         "this is not a .safetensors file, or it is truncated: the header has %" PRIu64
                         " bytes, the file %" PRIu64,
                         length, size);
    if (length > TVM_SAFETENSORS_HEADER_MAX)
        return malformed(&reader, "the header has %" PRIu64 " bytes; %d are the most", length,
                         TVM_SAFETENSORS_HEADER_MAX);
    char *text = malloc(length + 1);
    if (!text) return tvm_diag_no_memory(diags);
    reader.data_bytes = size - LENGTH_BYTES - length;
    status = tvm_read_at(descriptor, path, text, length, LENGTH_BYTES, diags);
    if (!status && (!length || text[0] != '{'))
        status = malformed(&reader, "the header does not begin with '{'");
    if (!status) status = parse_header(&reader, text, length);
    free(text);
    return status;
}

void tvm_safetensors_free(tvm_safetensors *tensors) {
    for (size_t i = 0; i < tensors->count; i++) {
        free(tensors->items[i].name);
        free(tensors->items[i].dtype);
    }
    for (size_t i = 0; i < 2 * tensors->metadata_count; i++) free(tensors->metadata[i]);
    free(tensors->items);
    free(tensors->metadata);
    *tensors = (tvm_safetensors){0};
}

const tvm_safetensor *tvm_safetensors_find(const tvm_safetensors *tensors, const char *name) {
    for (size_t i = 0; i < tensors->count; i++)
        if (!strcmp(tensors->items[i].name, name)) return &tensors->items[i];
    return NULL;
}

tvm_status tvm_safetensors_need(const tvm_safetensors *tensors, const char *path, const char *name,
                                const tvm_safetensor **tensor, tvm_diags *diags) {
    *tensor = tvm_safetensors_find(tensors, name);
    if (*tensor) return TVM_OK;
    char text[512] = "";
    size_t at = 0;
    for (size_t i = 0; i < tensors->count && i < LISTED && at < sizeof text - 100; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.80s", i ? ", " : "", tensors->items[i].name);
    if (tensors->count > LISTED) snprintf(text + at, sizeof text - at, ", ...");
    tvm_place place = {.file = path};
    return tvm_diag_add(diags, TVM_NOT_FOUND, &place, NULL, "the file has no tensor '%s'; it has %s", name,
                        tensors->count ? text : "none");
}

const char *tvm_safetensors_metadata(const tvm_safetensors *tensors, const char *key) {
    for (size_t i = 0; i < tensors->metadata_count; i++)
        if (!strcmp(tensors->metadata[2 * i], key)) return tensors->metadata[2 * i + 1];
    return NULL;
}

const char *tvm_safetensor_text(const tvm_safetensor *tensor, char text[TVM_SAFETENSORS_TEXT_MAX]) {
    int at = snprintf(text, TVM_SAFETENSORS_TEXT_MAX, "%.40s [", tensor->dtype);
    for (unsigned d = 0; d < tensor->rank; d++)
        at += snprintf(text + at, TVM_SAFETENSORS_TEXT_MAX - (size_t)at, "%s%" PRIu64, d ? ", " : "",
                       tensor->shape[d]);
    snprintf(text + at, TVM_SAFETENSORS_TEXT_MAX - (size_t)at, "]");
    return text;
}

/* ---- writing ---- */

static json_t *tensor_entry(const tvm_safetensor *tensor, uint64_t begin) {
    json_t *shape = json_array();
    for (unsigned d = 0; d < tensor->rank; d++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape[d]));
    const char *type = tensor->type.kind == TVM_KIND_NONE ? tensor->dtype : tvm_safetensors_type(tensor->type);
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + tensor->bytes));
}

/* The header as text, freed with free; NULL when memory runs out or a string is not UTF-8. */
static char *header_text(tvm_safetensors *tensors) {
    json_t *root = json_object(), *metadata = json_object();
    bool good = root && metadata;
    for (size_t i = 0; good && i < tensors->metadata_count; i++)
        good = !json_object_set_new(metadata, tensors->metadata[2 * i],
                                    json_string(tensors->metadata[2 * i + 1]));
    if (good && tensors->metadata_count) good = !json_object_set(root, "__metadata__", metadata);
    uint64_t begin = 0;
    for (size_t i = 0; good && i < tensors->count; i++) {
        tvm_safetensor *tensor = &tensors->items[i];
        good = (tensor->type.kind == TVM_KIND_NONE || shape_bytes(tensor, &tensor->bytes)) &&
               !json_object_set_new(root, tensor->name, tensor_entry(tensor, begin));
        tensor->offset = begin;
        begin += tensor->bytes;
    }
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(metadata);
    json_decref(root);
    return text;
}

tvm_status tvm_safetensors_header(tvm_safetensors *tensors, uint8_t **header, size_t *size,
                                  tvm_diags *diags) {
    char *text = header_text(tensors);
    if (!text) return tvm_diag_no_memory(diags);
    size_t length = strlen(text);
    *size = tvm_round_up(LENGTH_BYTES + length, ALIGNMENT);
    *header = malloc(*size);
    if (*header) {
        memset(*header, ' ', *size);
        for (unsigned i = 0; i < LENGTH_BYTES; i++) (*header)[i] = (uint8_t)((*size - LENGTH_BYTES) >> 8 * i);
        memcpy(*header + LENGTH_BYTES, text, length);
        for (size_t i = 0; i < tensors->count; i++) tensors->items[i].offset += *size;
    }
    free(text);
    return *header ? TVM_OK : tvm_diag_no_memory(diags);
}
