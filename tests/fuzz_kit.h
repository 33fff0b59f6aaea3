/* What must hold of any verified program, whatever it was made from: the properties that the fuzzing targets
 * check. A property that fails aborts, so that the fuzzer keeps the input. */
#ifndef TESTS_FUZZ_KIT_H
#define TESTS_FUZZ_KIT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "codegen.h"
#include "interp.h"
#include "launch.h"
#include "variants.h"
#include "vbc.h"

enum {
    FUZZ_INSNS = 256,     /* of a kernel that is translated or run */
    FUZZ_BYTES = 1 << 18, /* of all tensors of a kernel that is run */
    FUZZ_TURNS = 1 << 10, /* of its loops */
    FUZZ_BLOCKS = 4,      /* of a kernel that is run */
    FUZZ_GUARD = 64       /* alignment of a tensor */
};

#define FUZZ_REQUIRE(condition, diags)                                                                       \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                          \
            tvm_diags_print(diags, stderr, "fuzz", false);                                                   \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* An error comes with at least one message, success with none but warnings. */
static inline void fuzz_status(tvm_status status, const tvm_diags *diags) {
    size_t errors = 0;
    for (size_t i = 0; i < diags->count; i++) errors += diags->items[i].status != TVM_OK;
    FUZZ_REQUIRE((status == TVM_OK) == (errors == 0), diags);
    for (size_t i = 0; i < diags->count; i++) FUZZ_REQUIRE(diags->items[i].message[0] != '\0', diags);
}

static inline void fuzz_same_bytes(const tvm_ir_program *a, const tvm_ir_program *b, const char *text) {
    tvm_diags diags = {0};
    uint8_t *bytes[2] = {NULL, NULL};
    size_t size[2] = {0, 0};
    FUZZ_REQUIRE(tvm_vbc_write(a, false, &bytes[0], &size[0], &diags) == TVM_OK, &diags);
    FUZZ_REQUIRE(tvm_vbc_write(b, false, &bytes[1], &size[1], &diags) == TVM_OK, &diags);
    if (size[0] != size[1] || memcmp(bytes[0], bytes[1], size[0]) != 0) {
        fprintf(stderr, "not the same program again:\n%s\n", text);
        abort();
    }
    free(bytes[0]);
    free(bytes[1]);
}

/* program -> container -> program: the same container. */
static inline void fuzz_container_again(const tvm_ir_program *program) {
    const unsigned parts = TVM_VBC_LINES | TVM_VBC_IMAGES;
    tvm_diags diags = {0};
    uint8_t *bytes = NULL, *bytes_again = NULL;
    size_t size = 0, size_again = 0;
    tvm_ir_program *again = NULL;
    FUZZ_REQUIRE(tvm_vbc_write(program, parts, &bytes, &size, &diags) == TVM_OK, &diags);
    FUZZ_REQUIRE(tvm_vbc_read(bytes, size, "again.vbc", &again, &diags) == TVM_OK, &diags);
    fuzz_same_bytes(program, again, "(container)");
    FUZZ_REQUIRE(tvm_vbc_write(again, parts, &bytes_again, &size_again, &diags) == TVM_OK, &diags);
    FUZZ_REQUIRE(size == size_again && memcmp(bytes, bytes_again, size) == 0, &diags);
    free(bytes_again);
    tvm_ir_program_free(again);
    free(bytes);
}

/* The assembler leaves a cast to the type that a value has out; a container from elsewhere may have it. */
static inline bool fuzz_has_idle_cast(const tvm_ir_program *program) {
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &program->kernels[k];
        for (uint32_t e = 0; e < kernel->expr_count; e++)
            if (kernel->exprs[e].op == TVM_EXPR_CAST &&
                tvm_dtype_same(kernel->exprs[e].type, kernel->exprs[kernel->exprs[e].a].type))
                return true;
    }
    return false;
}

/* program -> text -> program -> text: the same text; returns the second program. (The containers may differ:
 * one from elsewhere need not share its strings and layouts.) */
static inline tvm_ir_program *fuzz_text_again(const tvm_ir_program *program) {
    tvm_diags diags = {0};
    char *text = NULL, *text_again = NULL;
    tvm_ir_program *again = NULL;
    FUZZ_REQUIRE(tvm_disassemble(program, &text, &diags) == TVM_OK, &diags);
    tvm_status status = tvm_assemble_text(text, strlen(text), "again.vasm", NULL, &again, &diags);
    if (status != TVM_OK) fprintf(stderr, "%s\n", text);
    FUZZ_REQUIRE(status == TVM_OK, &diags);
    FUZZ_REQUIRE(tvm_disassemble(again, &text_again, &diags) == TVM_OK, &diags);
    bool same = strcmp(text, text_again) == 0 || fuzz_has_idle_cast(program);
    if (!same) fprintf(stderr, "%s\n\n%s\n", text, text_again);
    FUZZ_REQUIRE(same, &diags);
    free(text);
    free(text_again);
    return again;
}

/* What the assembler made comes back as the same container, too. */
static inline void fuzz_round_trips(const tvm_ir_program *program) {
    fuzz_container_again(program);
    tvm_ir_program *first = fuzz_text_again(program), *second = fuzz_text_again(first);
    fuzz_same_bytes(first, second, "(text)");
    tvm_ir_program_free(first);
    tvm_ir_program_free(second);
}

static inline void fuzz_translate(const tvm_ir_program *program) {
    static const char *const targets[] = {"sm_80", "sm_90a"};
    for (uint32_t k = 0; k < program->kernel_count; k++)
        if (program->kernels[k].insn_count > FUZZ_INSNS) return;
    for (size_t i = 0; i < 2; i++) {
        tvm_diags diags = {0};
        tvm_target target;
        tvm_module *module = NULL;
        FUZZ_REQUIRE(tvm_target_parse(targets[i], &target, &diags) == TVM_OK, &diags);
        tvm_status status = tvm_translate(program, target, &module, &diags);
        fuzz_status(status, &diags);
        if (status == TVM_OK) {
            char *report = NULL;
            FUZZ_REQUIRE(tvm_report(program, module, &report, &diags) == TVM_OK, &diags);
            free(report);
            tvm_module_free(module);
        }
        tvm_diags_free(&diags);
    }
}

/* Turns of a FOR between constants; UINT64_MAX of another. */
static inline uint64_t fuzz_turns(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(kernel, insn);
    int64_t value[3];
    for (unsigned i = 0; i < 3; i++) {
        const tvm_expr *node = &kernel->exprs[operands[i].value];
        if (node->op != TVM_EXPR_INTEGER || node->value.i < 0 || node->value.i > INT32_MAX) return UINT64_MAX;
        value[i] = node->value.i;
    }
    if (value[2] == 0 || value[1] <= value[0]) return 1; /* a fault, or none */
    return (uint64_t)((value[1] - value[0] - 1) / value[2] + 1);
}

/* Is the kernel small, and are its loops? (`while` may never end, which is no fault.) */
static inline bool fuzz_runs_briefly(const tvm_ir_kernel *kernel) {
    uint64_t turns = 1; /* of all loops, as if each stood in the one before it */
    if (kernel->insn_count > FUZZ_INSNS) return false;
    for (uint32_t i = 0; i < kernel->insn_count && turns <= FUZZ_TURNS; i++) {
        if (kernel->insns[i].op == TVM_OP_WHILE) return false;
        if (kernel->insns[i].op != TVM_OP_FOR) continue;
        uint64_t here = fuzz_turns(kernel, &kernel->insns[i]);
        turns = here > FUZZ_TURNS ? here : turns * here;
    }
    return turns <= FUZZ_TURNS;
}

/* Gives every tensor its memory, of exactly its size; false when that is too much. */
static inline bool fuzz_tensors(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                const tvm_launch_env *env, tvm_interp_arg *args) {
    uint64_t total = 0;
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        tvm_diags diags = {0};
        int64_t shape[TVM_MAX_RANK];
        uint64_t bytes = 0;
        args[p].scalar = env->scalars[p];
        if (kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        tvm_status status = tvm_launch_shape(program, kernel, p, env, shape, &bytes, &diags);
        fuzz_status(status, &diags);
        tvm_diags_free(&diags);
        if (status != TVM_OK || bytes > FUZZ_BYTES || (total += bytes) > FUZZ_BYTES) return false;
        if (posix_memalign(&args[p].data, FUZZ_GUARD, bytes ? bytes : 1)) return false;
        memset(args[p].data, 0x3c, bytes);
    }
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    for (uint32_t i = 0, count = tvm_launch_tensors(kernel, tensors); i < count; i++) {
        tvm_diags diags = {0};
        int64_t shape[TVM_MAX_RANK];
        uint64_t bytes = 0;
        tvm_status status = tvm_launch_shape(program, kernel, tensors[i].slot, env, shape, &bytes, &diags);
        fuzz_status(status, &diags);
        tvm_diags_free(&diags);
        if (status != TVM_OK || bytes > FUZZ_BYTES || (total += bytes) > FUZZ_BYTES) return false;
    }
    return true;
}

static inline void fuzz_run(const tvm_ir_program *program, const tvm_ir_kernel *kernel, FILE *output) {
    tvm_diags diags = {0};
    tvm_scalar scalars[TVM_MAX_PARAMS];
    tvm_interp_arg args[TVM_MAX_PARAMS];
    tvm_interp_kernel *ready = NULL;
    const tvm_interp_options options = {.threads = 1, .output = output};
    tvm_launch_env env = {.scalars = scalars, .multiprocessors = TVM_INTERP_MULTIPROCESSORS};
    const uint32_t *grid = env.grid;
    memset(scalars, 0, sizeof scalars);
    memset(args, 0, sizeof args);
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        const tvm_dtype *type = &kernel->slots[p].dtype;
        if (type->kind == TVM_KIND_FLOAT)
            scalars[p].f = 16.0;
        else
            scalars[p].i = type->kind == TVM_KIND_BOOL ? 1 : 16;
    }
    tvm_status status = tvm_launch_check(program, kernel, &env, &diags);
    fuzz_status(status, &diags);
    if (status == TVM_OK && (uint64_t)grid[0] * grid[1] <= FUZZ_BLOCKS &&
        (uint64_t)grid[0] * grid[1] * grid[2] <= FUZZ_BLOCKS && fuzz_tensors(program, kernel, &env, args)) {
        status = tvm_interp_prepare(program, kernel, &ready, &diags);
        if (status == TVM_OK) status = tvm_interp_run(ready, args, grid, &options, &diags);
        fuzz_status(status, &diags);
        tvm_interp_free(ready);
    }
    for (uint32_t p = 0; p < kernel->param_count; p++) free(args[p].data);
    tvm_diags_free(&diags);
}

/* Every entry makes its choice, for a device or another. */
static inline void fuzz_entry(const tvm_ir_program *program, const tvm_ir_entry *entry, uint32_t target) {
    tvm_diags diags = {0};
    tvm_scalar scalars[TVM_MAX_PARAMS];
    tvm_variants *variants = NULL;
    const tvm_room any_room = {0};
    bool possible[TVM_MAX_CASES];
    uint32_t index = TVM_NONE;
    const tvm_launch_env env = {.scalars = scalars,
                                .multiprocessors = TVM_INTERP_MULTIPROCESSORS,
                                .target = target,
                                .traits = tvm_target_traits_for(target)};
    memset(scalars, 0, sizeof scalars);
    tvm_status status = tvm_variants_make(program, entry, &env, &any_room, &variants, &diags);
    fuzz_status(status, &diags);
    if (status == TVM_OK) status = tvm_variants_choose(variants, &env, &index, &diags);
    fuzz_status(status, &diags);
    if (status == TVM_OK && index >= entry->case_count) abort();
    if (status == TVM_OK && tvm_variants_possible(variants, possible, &diags) == TVM_OK && !possible[index])
        abort();
    tvm_variants_free(variants);
    tvm_diags_free(&diags);
}

static inline void fuzz_program(const tvm_ir_program *program) {
    fuzz_round_trips(program);
    fuzz_translate(program);
    for (uint32_t i = 0; i < program->entry_count; i++) fuzz_entry(program, &program->entries[i], i % 2 * 90);
    FILE *output = fopen("/dev/null", "w");
    if (!output) return;
    for (uint32_t k = 0; k < program->kernel_count; k++)
        if (fuzz_runs_briefly(&program->kernels[k])) fuzz_run(program, &program->kernels[k], output);
    fclose(output);
}

#endif
