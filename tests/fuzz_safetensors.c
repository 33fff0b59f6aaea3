/* Fuzzing target: .safetensors files. What is accepted describes bytes that are there, each once, and is the
 * same when it has been written again. The mutator changes the header's text and then sets right its length
 * and the size of the data, so that the reader's later stages are reached; now and then it leaves them wrong.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_kit.h"
#include "pack_file.h"
#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

enum { LENGTH_BYTES = 8 };

static uint64_t header_length(const uint8_t *data) {
    uint64_t length = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)data[i] << 8 * i;
    return length;
}

/* Where the last tensor ends, as the header's text says it. */
static size_t data_end(const uint8_t *text, size_t length) {
    static const char key[] = "\"data_offsets\":[";
    size_t end = 0;
    for (const uint8_t *at = text; (at = memmem(at, (size_t)(text + length - at), key, sizeof key - 1));) {
        size_t number = 0;
        for (at += sizeof key - 1; at < text + length && *at != ']'; at++) {
            if (*at >= '0' && *at <= '9')
                number = number * 10 + (size_t)(*at - '0');
            else
                number = 0;
        }
        if (number > end) end = number;
    }
    return end;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    if (size < LENGTH_BYTES || header_length(data) > size - LENGTH_BYTES || seed % 32 == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    uint64_t length = LLVMFuzzerMutate(data + LENGTH_BYTES, header_length(data), max_size - LENGTH_BYTES);
    for (unsigned i = 0; i < LENGTH_BYTES; i++) data[i] = (uint8_t)(length >> 8 * i);
    size_t end = data_end(data + LENGTH_BYTES, length);
    if (end > max_size - LENGTH_BYTES - length) return LENGTH_BYTES + length;
    memset(data + LENGTH_BYTES + length, 0x3c, end);
    return LENGTH_BYTES + length + end;
}

/* The tensors follow one another to the end of the file. */
static void check_tensors(const tvm_safetensors *tensors, const uint8_t *data, size_t size,
                          const tvm_diags *diags) {
    uint64_t end = LENGTH_BYTES + header_length(data);
    char text[TVM_SAFETENSORS_TEXT_MAX];
    for (size_t i = 0; i < tensors->count; i++) {
        const tvm_safetensor *tensor = &tensors->items[i];
        FUZZ_REQUIRE(tensor->offset == end && tensor->bytes <= size - end, diags);
        end += tensor->bytes;
        FUZZ_REQUIRE(tensor->rank <= TVM_MAX_RANK, diags);
        FUZZ_REQUIRE(tvm_safetensors_find(tensors, tensor->name) == tensor, diags);
        FUZZ_REQUIRE(strlen(tvm_safetensor_text(tensor, text)) < sizeof text, diags);
        uint64_t bytes = tensor->type.bits / 8u;
        for (unsigned d = 0; d < tensor->rank; d++)
            FUZZ_REQUIRE(!__builtin_mul_overflow(bytes, tensor->shape[d], &bytes) || tensor->bytes == 0 ||
                             tensor->type.kind == TVM_KIND_NONE,
                         diags);
        FUZZ_REQUIRE(bytes == tensor->bytes || tensor->bytes == 0 || tensor->type.kind == TVM_KIND_NONE,
                     diags);
    }
    FUZZ_REQUIRE(end == size, diags);
}

static void check_same(const tvm_safetensors *a, const tvm_safetensors *b, const tvm_diags *diags) {
    FUZZ_REQUIRE(a->count == b->count && a->metadata_count == b->metadata_count, diags);
    for (size_t i = 0; i < a->count; i++) {
        const tvm_safetensor *x = &a->items[i], *y = tvm_safetensors_find(b, x->name);
        FUZZ_REQUIRE(y && tvm_dtype_same(x->type, y->type) && x->rank == y->rank && x->bytes == y->bytes,
                     diags);
        for (unsigned d = 0; d < x->rank; d++) FUZZ_REQUIRE(x->shape[d] == y->shape[d], diags);
    }
    for (size_t i = 0; i < a->metadata_count; i++) {
        const char *value = tvm_safetensors_metadata(b, a->metadata[2 * i]);
        FUZZ_REQUIRE(value && !strcmp(value, a->metadata[2 * i + 1]), diags);
    }
}

/* A file without a name, with these bytes and then zeros up to `size`; its descriptor, negative when there is
 * none. */
static int make_file(const uint8_t *bytes, size_t there, uint64_t size) {
    int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
    if (descriptor < 0) return -1;
    if (write(descriptor, bytes, there) == (ssize_t)there && !ftruncate(descriptor, (off_t)size))
        return descriptor;
    close(descriptor);
    return -1;
}

/* file -> tensors -> file -> tensors: the same tensors. Types without a name here cannot be written. */
static void check_again(tvm_safetensors *tensors) {
    tvm_diags diags = {0};
    tvm_safetensors again;
    uint8_t *header = NULL;
    size_t size = 0;
    uint64_t whole = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        if (tensors->items[i].type.kind == TVM_KIND_NONE) return;
        whole += tensors->items[i].bytes;
    }
    FUZZ_REQUIRE(tvm_safetensors_header(tensors, &header, &size, &diags) == TVM_OK, &diags);
    int descriptor = make_file(header, size, size + whole);
    if (descriptor >= 0) {
        FUZZ_REQUIRE(tvm_safetensors_read(descriptor, "again", &again, &diags) == TVM_OK, &diags);
        check_same(tensors, &again, &diags);
        tvm_safetensors_free(&again);
        close(descriptor);
    }
    free(header);
}

/* As tvm-pack opens its input: the file, or the tensor of a file. */
static void check_array(int descriptor, const char *tensor) {
    tvm_diags diags = {0};
    pack_array array;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    fuzz_status(pack_array_open(path, tensor, &array, &diags), &diags);
    pack_array_close(&array);
    tvm_diags_free(&diags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_diags diags = {0};
    tvm_safetensors tensors;
    int descriptor = make_file(data, size, size);
    if (descriptor < 0) return 0;
    tvm_status status = tvm_safetensors_read(descriptor, "fuzz.safetensors", &tensors, &diags);
    fuzz_status(status, &diags);
    check_array(descriptor, status == TVM_OK && tensors.count ? tensors.items[0].name : NULL);
    if (status == TVM_OK) {
        check_tensors(&tensors, data, size, &diags);
        check_again(&tensors);
    }
    tvm_safetensors_free(&tensors);
    tvm_diags_free(&diags);
    close(descriptor);
    return 0;
}
