/* Fuzzing target: containers. The mutator changes the contents of sections and then sets right the sizes,
 * offsets and checksums, so that the reader's later stages and the verifier are reached; now and then it
 * leaves them wrong. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz_kit.h"
#include "image.h"
#include "vbc_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

static uint64_t get(const uint8_t *at, unsigned bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | at[bytes];
    return value;
}

static void set(uint8_t *at, unsigned bytes, uint64_t value) {
    for (; bytes--; value >>= 8) *at++ = (uint8_t)value;
}

/* Number of sections, 0 when the table is not one. */
static unsigned sections(const uint8_t *data, size_t size) {
    if (size < VBC_HEADER_SIZE || memcmp(data, VBC_MAGIC, VBC_MAGIC_SIZE) != 0) return 0;
    uint64_t count = get(data + 12, 4), end = VBC_HEADER_SIZE + count * VBC_ENTRY_SIZE;
    if (count > VBC_MAX_SECTIONS || end > size) return 0;
    for (unsigned s = 0; s < count; s++) {
        const uint8_t *entry = data + VBC_HEADER_SIZE + s * VBC_ENTRY_SIZE;
        if (get(entry + 8, 8) != end || get(entry + 16, 8) > size - end) return 0;
        end += get(entry + 16, 8);
    }
    return end == size ? (unsigned)count : 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    unsigned count = sections(data, size);
    if (count == 0 || seed % 32 == 0) return LLVMFuzzerMutate(data, size, max_size);
    uint8_t *entry = data + VBC_HEADER_SIZE + seed / 32 % count * VBC_ENTRY_SIZE;
    size_t offset = get(entry + 8, 8), length = get(entry + 16, 8), tail = size - offset - length;
    uint8_t *part = malloc(max_size), *rest = malloc(tail + 1);
    size_t room = max_size - offset - tail;
    if (part && rest && length <= room && room > 0) {
        memcpy(part, data + offset, length);
        memcpy(rest, data + offset + length, tail);
        size_t changed = LLVMFuzzerMutate(part, length, seed & 1 ? room : length ? length : 1);
        memcpy(data + offset, part, changed);
        memcpy(data + offset + changed, rest, tail);
        size = offset + changed + tail;
        set(entry + 16, 8, changed);
        set(entry + 24, 8, XXH3_64bits(data + offset, changed));
        for (uint8_t *next = entry + VBC_ENTRY_SIZE; next < data + VBC_HEADER_SIZE + count * VBC_ENTRY_SIZE;
             next += VBC_ENTRY_SIZE)
            set(next + 8, 8, get(next + 8, 8) + changed - length);
        set(data + 16, 8, size);
    }
    free(part);
    free(rest);
    return size;
}

/* Of the code that is embedded nothing is chosen but what fits the program. */
static void fuzz_images(const tvm_ir_program *program) {
    static const unsigned capabilities[] = {80, 89, 90, 120, 150};
    uint64_t hash[2];
    tvm_diags diags = {0};
    FUZZ_REQUIRE(tvm_vbc_hash(program, hash, &diags) == TVM_OK, &diags);
    tvm_image_note_stale(program, hash, &diags);
    for (size_t i = 0; i < sizeof capabilities / sizeof *capabilities; i++) {
        tvm_image_request request = {.program = program, .capability = capabilities[i]};
        FUZZ_REQUIRE(tvm_target_for_device((int)capabilities[i] / 10, (int)capabilities[i] % 10,
                                           &request.target, NULL) == TVM_OK,
                     &diags);
        for (int kind = TVM_EMBEDDED_EXACT; kind <= TVM_EMBEDDED_PTX_FOR; kind++) {
            tvm_image image = {0};
            if (!tvm_image_find_embedded(&request, hash, (tvm_embedded_kind)kind, &image)) continue;
            FUZZ_REQUIRE(image.kernel_count == program->kernel_count, &diags);
            FUZZ_REQUIRE(((const char *)image.code)[image.code_size] == '\0', &diags);
            tvm_image_free(&image);
        }
    }
    tvm_diags_free(&diags);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes) return 0;
    if (size) memcpy(bytes, data, size);
    tvm_status status = tvm_vbc_read(bytes, size, "fuzz.vbc", &program, &diags);
    fuzz_status(status, &diags);
    tvm_diags_free(&diags);
    if (status == TVM_OK) fuzz_images(program);
    if (status == TVM_OK) fuzz_program(program);
    tvm_ir_program_free(program);
    free(bytes);
    return 0;
}
