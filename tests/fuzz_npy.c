/* Fuzzing target: headers of .npy files. What is accepted describes bytes that are there. */
#include "fuzz_kit.h"
#include "npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How far the file would be read, asked of what is there so far; beyond `size` when it says that it has more.
 */
static uint64_t read_extent(const uint8_t *data, size_t size) {
    uint64_t there = 0;
    for (;;) {
        uint8_t *file = malloc(there ? there : 1);
        if (!file) abort();
        if (there) memcpy(file, data, there);
        uint64_t next = tvm_npy_extent(file, there);
        free(file);
        if (next > size || next <= there) return next > size ? next : there;
        there = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_diags diags = {0};
    tvm_npy npy;
    char text[TVM_NPY_TEXT_MAX];
    /* A copy of exactly the size, so that a read past its end shows. */
    uint8_t *file = malloc(size ? size : 1);
    if (!file) return 0;
    if (size) memcpy(file, data, size);
    uint64_t extent = read_extent(data, size);
    tvm_status status = tvm_npy_parse(file, size, "fuzz.npy", &npy, &diags);
    fuzz_status(status, &diags);
    if (status == TVM_OK) {
        uint64_t bytes = npy.item;
        for (unsigned d = 0; d < npy.rank; d++)
            FUZZ_REQUIRE(!__builtin_mul_overflow(bytes, npy.shape[d], &bytes) || npy.bytes == 0, &diags);
        FUZZ_REQUIRE(extent == size, &diags);
        FUZZ_REQUIRE(npy.offset <= size && npy.bytes <= size - npy.offset, &diags);
        FUZZ_REQUIRE(strlen(tvm_npy_text(&npy, text)) < sizeof text, &diags);
    }
    tvm_diags_free(&diags);
    free(file);
    return 0;
}
