/* Fuzzing target: the prover, and the checker of certificates. The mutator leaves out, moves and changes
 * instructions that order accesses, indices, mbarriers and scalars of a program, which keeps the certificate
 * that it had before, or one with other words; what is still proved of it, or confirmed, a launch with the
 * sanitizer does not contradict. */
#include "certify.h"
#include "fuzz_kit.h"
#include "prove_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

static uint32_t below(unsigned *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u; /* Numerical Recipes' */
    return n ? (*seed >> 8) % n : 0;
}

/* Up to so many tries until an instruction has something to change. */
static void change(const tvm_ir_program *program, tvm_ir_kernel *kernel, unsigned *seed) {
    enum { TRIES = 64, MANNERS = 4 };
    for (unsigned i = 0; i < TRIES && kernel->insn_count > 0; i++) {
        const prove_spot s = {program, kernel, below(seed, kernel->insn_count), below(seed, MANNERS)};
        if (prove_ways[below(seed, PROVE_WAYS)].change(&s)) return;
    }
}

/* A certificate of the program as it is, one word of some of which is changed. */
static void certify(const tvm_ir_program *program, uint32_t number, unsigned *seed) {
    tvm_ir_kernel *kernel = &program->kernels[number];
    tvm_certificate made;
    if (below(seed, 2) || tvm_certify(program, number, &made, NULL) != TVM_OK) return;
    if (made.count && below(seed, 2)) made.words[below(seed, made.count)] ^= UINT32_C(1) << below(seed, 8);
    free(kernel->certificate);
    kernel->certificate = made.words;
    kernel->certificate_count = made.count;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    tvm_ir_program *program = NULL;
    uint8_t *bytes = NULL;
    size_t made = 0;
    if (tvm_vbc_read(data, size, "fuzz.vbc", &program, NULL) == TVM_OK && program->kernel_count > 0) {
        uint32_t number = below(&seed, program->kernel_count);
        tvm_ir_kernel *kernel = &program->kernels[number];
        bool good = true;
        certify(program, number, &seed);
        for (uint32_t i = 1 + below(&seed, 3); i > 0 && good; i--) {
            change(program, kernel, &seed);
            good = tvm_verify(program, NULL) == TVM_OK;
        }
        if (!good ||
            tvm_vbc_write(program, TVM_VBC_LINES | TVM_VBC_CERTIFICATES, &bytes, &made, NULL) != TVM_OK ||
            made > max_size)
            made = 0;
        if (made) memcpy(data, bytes, made);
    }
    free(bytes);
    tvm_ir_program_free(program);
    return made ? made : LLVMFuzzerMutate(data, size, max_size);
}

/* What is confirmed with the certificate counts as proved. */
static void confirm(const tvm_ir_program *program, uint32_t kernel, const uint32_t *words, uint32_t count,
                    tvm_proof *proof) {
    tvm_checked checked;
    tvm_diags diags = {0};
    FUZZ_REQUIRE(tvm_check(program, kernel, words, count, &checked, &diags) == TVM_OK, &diags);
    FUZZ_REQUIRE(checked.races.holds == (checked.races.text[0] == '\0'), &diags);
    FUZZ_REQUIRE(checked.deadlocks.holds == (checked.deadlocks.text[0] == '\0'), &diags);
    if (checked.races.holds) proof->races.verdict = TVM_PROVED;
    if (checked.deadlocks.holds && !checked.waits_for_blocks) proof->deadlocks.verdict = TVM_PROVED;
}

static void check(const tvm_ir_program *program, uint32_t kernel) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    prove_launch l = {.program = program, .kernel = kernel};
    tvm_diags diags = {0};
    tvm_proof proof;
    char *reports = NULL;
    tvm_status status = tvm_prove(program, kernel, &proof, &diags);
    fuzz_status(status, &diags);
    FUZZ_REQUIRE(status == TVM_OK, &diags);
    FUZZ_REQUIRE((proof.races.verdict == TVM_PROVED) == (proof.races.text[0] == '\0'), &diags);
    FUZZ_REQUIRE((proof.deadlocks.verdict == TVM_PROVED) == (proof.deadlocks.text[0] == '\0'), &diags);
    FUZZ_REQUIRE((proof.global.verdict == TVM_PROVED) == (proof.global.text[0] == '\0'), &diags);
    tvm_certificate own;
    FUZZ_REQUIRE(tvm_certify(program, kernel, &own, &diags) == TVM_OK, &diags);
    confirm(program, kernel, own.words, own.count, &proof);
    confirm(program, kernel, k->certificate, k->certificate_count, &proof);
    free(own.words);
    if (proof.races.verdict != TVM_PROVED && proof.deadlocks.verdict != TVM_PROVED &&
        proof.global.verdict != TVM_PROVED)
        return;
    for (uint32_t p = 0; p < k->param_count; p++) {
        if (k->slots[p].dtype.kind == TVM_KIND_FLOAT)
            l.scalars[p].f = 16.0;
        else
            l.scalars[p].i = k->slots[p].dtype.kind == TVM_KIND_BOOL ? 1 : 16;
    }
    if (!prove_run(&l, &reports) || !reports) return;
    const prove_found found = prove_read_reports(program, k, &proof, reports);
    if (prove_is_contradicted(&proof, &found)) fprintf(stderr, "%s\n", reports);
    FUZZ_REQUIRE(!prove_is_contradicted(&proof, &found), &diags);
    free(reports);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tvm_ir_program *program = NULL;
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes) return 0;
    if (size) memcpy(bytes, data, size);
    if (tvm_vbc_read(bytes, size, "fuzz.vbc", &program, NULL) == TVM_OK)
        for (uint32_t k = 0; k < program->kernel_count; k++)
            if (program->kernels[k].insn_count <= FUZZ_INSNS) check(program, k);
    tvm_ir_program_free(program);
    free(bytes);
    return 0;
}
