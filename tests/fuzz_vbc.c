/* Fuzzing target: containers. The mutator changes the program, so that what only the verifier can refuse is
 * written as a container; or the contents of sections, and then sets right the sizes, offsets and checksums,
 * so that the reader's later stages are reached; now and then it leaves them wrong. */
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

/* ---- the program ---- */

static uint32_t below(unsigned *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u; /* Numerical Recipes' */
    return n ? (*seed >> 8) % n : 0;
}

/* Another slot of the same kind and rank, or the same one: the writer takes as many indices as were verified.
 */
static uint32_t other_slot(const tvm_ir_kernel *kernel, uint32_t slot, unsigned *seed) {
    uint32_t other = below(seed, kernel->slot_count);
    const tvm_slot *a = &kernel->slots[other], *b = &kernel->slots[slot];
    return a->kind == b->kind && a->rank == b->rank && a->layout == b->layout ? other : slot;
}

/* Numbers alone, not those that say how many follow. */
static void change_operand(tvm_ir_kernel *kernel, unsigned *seed) {
    if (kernel->insn_count == 0) return;
    const tvm_insn *insn = &kernel->insns[below(seed, kernel->insn_count)];
    if (insn->count == 0) return;
    tvm_operand *operand = &kernel->operands[insn->first + below(seed, insn->count)];
    const char *row = tvm_op(insn->op)->operands;
    bool lists = strstr(row, ":A") || strstr(row, ":D") || strstr(row, ":V");
    if (operand->kind == TVM_OPERAND_SLOT)
        operand->value = other_slot(kernel, operand->value, seed);
    else if (operand->kind == TVM_OPERAND_EXPR)
        operand->value = below(seed, kernel->expr_count);
    else if (operand->kind == TVM_OPERAND_CONST && !lists)
        operand->value = below(seed, 2) ? operand->value ^ 1u << below(seed, 8) : below(seed, 4);
}

static void change_expr(tvm_ir_kernel *kernel, unsigned *seed) {
    if (kernel->expr_count == 0) return;
    tvm_expr *node = &kernel->exprs[below(seed, kernel->expr_count)];
    unsigned op = below(seed, TVM_EXPR_COUNT);
    if (node->op == TVM_EXPR_INTEGER)
        node->value.i = below(seed, 2) ? node->value.i + 1 : (int64_t)(UINT64_MAX << below(seed, 32));
    else if (tvm_expr_op_info(op)->arity == tvm_expr_op_info(node->op)->arity && op > TVM_EXPR_SLOT)
        node->op = (uint8_t)op;
}

/* Another type, layout or packing; another result or instruction of as many operands. */
static void change_slot(const tvm_ir_program *program, tvm_ir_kernel *kernel, unsigned *seed) {
    tvm_dtype types[TVM_DTYPE_COUNT_MAX];
    if (kernel->slot_count == 0) return;
    tvm_slot *slot = &kernel->slots[below(seed, kernel->slot_count)];
    uint32_t way = below(seed, 3);
    if (way == 0)
        slot->dtype = types[below(seed, (uint32_t)tvm_dtype_list(types, TVM_DTYPE_COUNT_MAX))];
    else if (slot->kind == TVM_SLOT_REGISTER && way == 1)
        slot->layout = below(seed, program->layout_count);
    else if (slot->kind == TVM_SLOT_REGISTER)
        slot->packing ^= 1;
}

static void change_insn(tvm_ir_kernel *kernel, unsigned *seed) {
    if (kernel->insn_count == 0) return;
    tvm_insn *insn = &kernel->insns[below(seed, kernel->insn_count)];
    unsigned op = below(seed, TVM_OP_COUNT);
    if (strcmp(tvm_op(op)->operands, tvm_op(insn->op)->operands) == 0)
        insn->op = (uint16_t)op;
    else if (insn->result != TVM_NONE)
        insn->result = other_slot(kernel, insn->result, seed);
}

/* Words that mean nothing: whoever reads the container keeps them. */
static void change_certificate(tvm_ir_kernel *kernel, unsigned *seed) {
    const uint32_t count = 1 + below(seed, 8);
    uint32_t *words = malloc(count * sizeof *words);
    for (uint32_t i = 0; words && i < count; i++) words[i] = below(seed, 9);
    free(kernel->certificate);
    kernel->certificate = words;
    kernel->certificate_count = words ? count : 0;
}

/* The container of the changed program; its size, or 0. */
static size_t change_program(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    uint8_t *bytes = NULL;
    size_t made = 0;
    if (tvm_vbc_read(data, size, "fuzz.vbc", &program, &diags) == TVM_OK && program->kernel_count > 0) {
        tvm_ir_kernel *kernel = &program->kernels[below(&seed, program->kernel_count)];
        for (uint32_t i = 1 + below(&seed, 3); i > 0; i--) {
            uint32_t way = below(&seed, 9);
            if (way < 4)
                change_operand(kernel, &seed);
            else if (way < 6)
                change_expr(kernel, &seed);
            else if (way == 6)
                change_slot(program, kernel, &seed);
            else if (way == 7)
                change_certificate(kernel, &seed);
            else
                change_insn(kernel, &seed);
        }
        tvm_status status =
            tvm_vbc_write(program, TVM_VBC_LINES | TVM_VBC_CERTIFICATES, &bytes, &made, &diags);
        if (status != TVM_OK || made > max_size) made = 0;
        if (made) memcpy(data, bytes, made);
    }
    free(bytes);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    return made;
}

/* ---- sections ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    size_t made = seed % 2 ? change_program(data, size, max_size, seed / 2) : 0;
    if (made) return made;
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
