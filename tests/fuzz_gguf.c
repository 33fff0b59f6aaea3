/* Fuzzing target: GGUF files, as tvm-pack --from gguf opens them. What is accepted describes bytes that are
 * there, each once, under names of transformers. */
#include "checkpoint_impl.h"
#include "fuzz_kit.h"
#include "gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Tensors in the order of their data, none of which has a byte of another. */
static void check_tensors(const tvm_gguf *read, size_t size, const tvm_diags *diags) {
    uint64_t end = 0;
    for (size_t i = 0; i < read->tensor_count; i++) {
        const tvm_gguf_tensor *tensor = &read->tensors[i];
        uint64_t weights = 1;
        FUZZ_REQUIRE(tensor->offset >= end && tensor->offset % 8 == 0, diags);
        FUZZ_REQUIRE(tensor->offset <= size && tensor->bytes <= size - tensor->offset, diags);
        FUZZ_REQUIRE(tensor->rank >= 1 && tensor->rank <= TVM_GGUF_RANK, diags);
        for (unsigned d = 0; d < tensor->rank; d++)
            FUZZ_REQUIRE(tensor->shape[d] && !__builtin_mul_overflow(weights, tensor->shape[d], &weights),
                         diags);
        FUZZ_REQUIRE(tensor->bytes == weights / tensor->type->weights * tensor->type->bytes, diags);
        end = tensor->offset + tensor->bytes;
    }
}

static void check_values(const tvm_gguf *read) {
    static const char *const keys[] = {"general.architecture", "general.alignment", "split.count",
                                       "llama.attention.head_count", "tokenizer.ggml.tokens"};
    char text[64];
    uint64_t number;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (tvm_gguf_text(read, keys[i], text, sizeof text) && strlen(text) >= sizeof text) abort();
        tvm_gguf_number(read, keys[i], &number);
    }
}

/* Each row of a tensor is a row of the file, and each once: their sum is that of all. */
static void check_rows(const ck_file *file, const tvm_diags *diags) {
    for (size_t i = 0; i < file->tensors.count; i++) {
        const tvm_safetensor *header = &file->tensors.items[i];
        const ck_tensor tensor = {.header = header, .data = file->bytes, .change = &file->changes[i]};
        uint64_t rows = header->shape[header->rank == 1 ? 0 : header->rank - 2], sum = 0;
        if (rows > 4096) continue;
        for (uint64_t r = 0; r < rows; r++) {
            FUZZ_REQUIRE(ck_row_of_file(&tensor, r) < rows, diags);
            sum += ck_row_of_file(&tensor, r);
        }
        FUZZ_REQUIRE(sum == rows * (rows - 1) / 2, diags);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_diags diags = {0}, again = {0};
    char path[] = "fuzz.gguf";
    uint8_t *bytes = malloc(size ? size : 1); /* of exactly the size, so that a read past its end shows */
    if (!bytes) return 0;
    if (size) memcpy(bytes, data, size);
    tvm_gguf read;
    tvm_status status = tvm_gguf_read(bytes, size, path, &read, &diags);
    fuzz_status(status, &diags);
    if (status == TVM_OK) check_tensors(&read, size, &diags);
    if (status == TVM_OK) check_values(&read);
    tvm_gguf_free(&read);
    ck_file file = {.path = path, .bytes = bytes, .size = size};
    tvm_status named = ck_read_gguf(&file, &again);
    fuzz_status(named, &again);
    FUZZ_REQUIRE(status == TVM_OK || named == status, &again);
    if (named == TVM_OK) check_rows(&file, &again);
    tvm_safetensors_free(&file.tensors);
    free(file.changes);
    free(bytes);
    tvm_diags_free(&diags);
    tvm_diags_free(&again);
    return 0;
}
