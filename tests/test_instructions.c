/* Every row of isa/opcodes.def, by the kernels of tests/instructions.txt: with all that it can have it is
 * text and bytecode and text again, and its PTX has the effects that the row says, on some target each, and
 * no others. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "fileio.h"
#include "interp_loops.h"
#include "suite_kit.h"
#include "translate_kit.h"
#include "vbc.h"

static const char *const targets[] = {"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
static const char prologue[] =
    ".vasm 7\n"
    ".layout L8 = spatial(1, 1, 1, 1, 1, 1, 4, 8).local(1, 1, 1, 1, 1, 2, 1, 2)\n"
    ".layout L8x4 = spatial(1, 1, 1, 1, 1, 1, 16, 8).local(1, 1, 1, 1, 1, 2, 1, 2)\n";

static char *programs[TVM_OP_COUNT]; /* by opcode */

/* ---- the file ---- */

static void add_program(unsigned op, const char *text, size_t length) {
    ck_assert_msg(programs[op] == NULL, "%s stands twice", tvm_op(op)->mnemonic);
    programs[op] = calloc(sizeof prologue + length, 1);
    ck_assert_ptr_nonnull(programs[op]);
    memcpy(programs[op], prologue, sizeof prologue - 1);
    memcpy(programs[op] + sizeof prologue - 1, text, length);
}

static void read_programs(void) {
    const char *top = getenv("srcdir");
    char path[4096];
    uint8_t *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/tests/instructions.txt", top != NULL ? top : ".");
    ck_assert_int_eq(tvm_file_read(path, 1 << 20, &bytes, &size, NULL), TVM_OK);
    for (const char *at = strstr((const char *)bytes, "\n== "), *next; at != NULL; at = next) {
        size_t length = strcspn(at + 4, "\n");
        const char *text = at + 4 + length + 1;
        tvm_opcode op = tvm_op_by_name(at + 4, length);
        ck_assert_msg(op != TVM_OP_COUNT, "no instruction is named %.*s", (int)length, at + 4);
        next = strstr(text - 1, "\n== ");
        add_program(op, text, next != NULL ? (size_t)(next + 1 - text) : strlen(text));
    }
    free(bytes);
}

static void free_programs(void) {
    for (unsigned op = 0; op < TVM_OP_COUNT; op++) {
        free(programs[op]);
        programs[op] = NULL;
    }
}

static tvm_ir_program *program_of(unsigned op) {
    ck_assert_msg(programs[op] != NULL, "tests/instructions.txt has no %s", tvm_op(op)->mnemonic);
    return assemble(programs[op]);
}

/* ---- text and bytecode ---- */

/* The operands that instructions of the row have in the kernel: what excludes each other is in several. */
static uint32_t given_operands(const tvm_ir_kernel *kernel, unsigned op) {
    bool given[TVM_INSN_OPERANDS] = {false};
    uint32_t count = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (insn->op != op) continue;
        for (uint32_t o = 0; o < insn->count; o++) {
            bool is_given = tvm_operands(kernel, insn)[o].kind != TVM_OPERAND_NONE;
            count += is_given && !given[o];
            given[o] = given[o] || is_given;
        }
    }
    return count;
}

static bool has_row(const tvm_ir_kernel *kernel, unsigned op) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (kernel->insns[i].op == op) return true;
    return false;
}

START_TEST(test_round_trip) {
    unsigned op = (unsigned)_i;
    tvm_diags diags = {0};
    uint8_t *bytes = NULL, *bytes2 = NULL;
    size_t size = 0, size2 = 0;
    char *text = NULL;
    tvm_ir_program *read = NULL;
    read_programs();
    tvm_ir_program *program = program_of(op);
    ck_assert_msg(has_row(program->kernels, op), "the kernel of %s has none", tvm_op(op)->mnemonic);
    ck_assert_uint_eq(given_operands(program->kernels, op), tvm_op_operands_max(tvm_op(op)));
    ck_assert_int_eq(tvm_vbc_write(program, 0, &bytes, &size, &diags), TVM_OK);
    tvm_status status = tvm_vbc_read(bytes, size, NULL, &read, &diags);
    tvm_diags_print(&diags, stderr, "test_instructions", false);
    ck_assert_msg(status == TVM_OK, "its own bytecode is refused");
    ck_assert_int_eq(tvm_disassemble(read, &text, &diags), TVM_OK);
    tvm_ir_program *again = assemble(text);
    ck_assert_int_eq(tvm_vbc_write(again, 0, &bytes2, &size2, &diags), TVM_OK);
    ck_assert_uint_eq(size, size2);
    ck_assert_mem_eq(bytes, bytes2, size);
    tvm_ir_program_free(program);
    tvm_ir_program_free(read);
    tvm_ir_program_free(again);
    free(bytes), free(bytes2), free(text);
    free_programs();
}
END_TEST

/* ---- effects ---- */

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* What a PTX instruction with this opcode does. `shared`: of an access to shared memory. */
static unsigned ptx_effects(const char *opcode, unsigned reads_shared, unsigned writes_shared) {
    bool global = strstr(opcode, ".global") != NULL, shared = strstr(opcode, ".shared") != NULL;
    bool strong = strstr(opcode, ".acquire") != NULL || strstr(opcode, ".relaxed") != NULL;
    if (begins(opcode, "tcgen05.commit")) return TVM_EFFECT_ASYNC | TVM_EFFECT_MBARRIER;
    if (begins(opcode, "tcgen05.alloc"))
        return TVM_EFFECT_TENSOR | TVM_EFFECT_SCRATCH; /* writes the address */
    if (begins(opcode, "tcgen05.mma") || begins(opcode, "tcgen05.cp"))
        return TVM_EFFECT_TENSOR | TVM_EFFECT_ASYNC | reads_shared;
    if (begins(opcode, "tcgen05.")) return TVM_EFFECT_TENSOR;
    if (begins(opcode, "bar.warp.")) return TVM_EFFECT_WARP_BARRIER;
    if (begins(opcode, "bar.") || begins(opcode, "barrier.")) return TVM_EFFECT_BARRIER;
    if (begins(opcode, "mbarrier.")) return TVM_EFFECT_MBARRIER;
    if (begins(opcode, "clusterlaunchcontrol.try_cancel")) return TVM_EFFECT_ASYNC | writes_shared;
    if (begins(opcode, "griddepcontrol.wait")) return TVM_EFFECT_LAST_LAUNCH;
    if (begins(opcode, "griddepcontrol.launch_dependents")) return TVM_EFFECT_NEXT_LAUNCH;
    if (begins(opcode, "call")) return TVM_EFFECT_OUTPUT;
    if (begins(opcode, "prefetch.tensormap")) return 0;
    if (begins(opcode, "prefetch.global")) return TVM_EFFECT_READ_GLOBAL;
    if (strstr(opcode, ".bulk_group")) return TVM_EFFECT_ASYNC | TVM_EFFECT_WRITE_GLOBAL | reads_shared;
    if (begins(opcode, "cp.async.mbarrier.")) return TVM_EFFECT_ASYNC | TVM_EFFECT_MBARRIER;
    if (begins(opcode, "ldmatrix")) return reads_shared;
    if (begins(opcode, "stmatrix")) return writes_shared;
    if (begins(opcode, "cp."))
        return TVM_EFFECT_ASYNC | (global ? TVM_EFFECT_READ_GLOBAL : 0) | (shared ? writes_shared : 0);
    if (begins(opcode, "ld."))
        return (global ? TVM_EFFECT_READ_GLOBAL | (strong ? TVM_EFFECT_WAIT : 0) : 0) |
               (shared ? reads_shared : 0);
    if (begins(opcode, "st.")) return (global ? TVM_EFFECT_WRITE_GLOBAL : 0) | (shared ? writes_shared : 0);
    if (begins(opcode, "atom.") || begins(opcode, "red."))
        return (global ? TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_WRITE_GLOBAL : 0) |
               (shared ? reads_shared | writes_shared : 0);
    ck_assert_msg(!begins(opcode, "wgmma.") && !begins(opcode, "prefetch"), "what are the effects of %s?",
                  opcode);
    return 0;
}

/* Of all instructions of one kernel of a module. Shared memory is the translator's own where the program has
 * no shared tensor. */
static unsigned kernel_effects(const char *ptx, bool has_shared) {
    static const char entry[] = ".visible .entry";
    unsigned effects = 0, reads = has_shared ? TVM_EFFECT_READ_SHARED : TVM_EFFECT_SCRATCH;
    unsigned writes = has_shared ? TVM_EFFECT_WRITE_SHARED : TVM_EFFECT_SCRATCH;
    for (const char *line = ptx; *line != '\0'; line += strcspn(line, "\n"), line += *line == '\n') {
        char opcode[128];
        if (line != ptx && begins(line, entry)) break;
        const char *at = line + strspn(line, " \t{");
        if (*at == '@') at += strcspn(at, " "), at += strspn(at, " ");
        snprintf(opcode, sizeof opcode, "%.*s", (int)strcspn(at, " \t;\n"), at);
        if (opcode[0] != '.') effects |= ptx_effects(opcode, reads, writes);
    }
    return effects;
}

static bool has_shared_tensor(const tvm_ir_kernel *kernel) {
    for (uint32_t s = 0; s < kernel->slot_count; s++)
        if (kernel->slots[s].kind == TVM_SLOT_SHARED) return true;
    return false;
}

/* Of the instructions that make mbarriers or allocate tensor memory, and of the end of a block, which reads
 * how many arrivals were counted at mbarriers where copies complete that nobody waits for, waits for the
 * tensor core, and frees the memory. */
static unsigned mbarrier_effects(const tvm_ir_kernel *kernel) {
    unsigned effects = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        uint32_t result = kernel->insns[i].result, op = kernel->insns[i].op;
        const unsigned work = TVM_EFFECT_ASYNC | TVM_EFFECT_TENSOR;
        if ((tvm_op(op)->effects & work) == work) effects |= TVM_EFFECT_MBARRIER;
        if (op == TVM_OP_COPY_BULK || op == TVM_OP_COPY_CLUSTER) effects |= TVM_EFFECT_READ_SHARED;
        if (result != TVM_NONE &&
            (kernel->slots[result].kind == TVM_SLOT_BARRIER || kernel->slots[result].kind == TVM_SLOT_TENSOR))
            effects |= tvm_op(kernel->insns[i].op)->effects;
    }
    return effects;
}

static const char *effects_text(unsigned effects, char text[256]) {
    static const char *const names[] = {
        "READ_GLOBAL",  "WRITE_GLOBAL", "READ_SHARED", "WRITE_SHARED", "SCRATCH", "ASYNC",    "BARRIER",
        "WARP_BARRIER", "WAIT",         "NEXT_LAUNCH", "LAST_LAUNCH",  "OUTPUT",  "MBARRIER", "TENSOR"};
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (effects >> i & 1) used += (size_t)snprintf(text + used, 256 - used, " %s", names[i]);
    return text;
}

START_TEST(test_effects) {
    unsigned op = (unsigned)_i, found = 0;
    char said[256], done[256];
    read_programs();
    tvm_ir_program *program = program_of(op);
    unsigned expected = tvm_op(op)->effects | mbarrier_effects(program->kernels);
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        tvm_module *module = translate(program, targets[t]);
        const char *ptx = module->ptx;
        for (uint32_t k = 0; k < program->kernel_count; k++) {
            if (module->kernels[k].abi.absence == TVM_ABI_OTHER_TARGET) continue;
            ptx = strstr(ptx + 1, ".visible .entry");
            ck_assert_ptr_nonnull(ptx);
            found |= kernel_effects(ptx, has_shared_tensor(&program->kernels[k]));
        }
        tvm_module_free(module);
    }
    ck_assert_msg(found == expected, "the row of %s says%s, its PTX has%s", tvm_op(op)->mnemonic,
                  effects_text(expected, said), effects_text(found, done));
    tvm_ir_program_free(program);
    free_programs();
}
END_TEST

/* ---- element-wise rows ---- */

static const bool is_element[TVM_OP_COUNT] = {
#define TVM_OP_ELEMENT(number, ...) [number] = true,
#include "opcodes.def"
};

/* The interpreter has a loop for each type that the row takes. */
START_TEST(test_element_types) {
    static const struct {
        tvm_dtype type;
        unsigned trait;
    } types[] = {{TVM_I(8), TVM_TRAIT_SIGNED},    {TVM_I(16), TVM_TRAIT_SIGNED},
                 {TVM_I(32), TVM_TRAIT_SIGNED},   {TVM_I(64), TVM_TRAIT_SIGNED},
                 {TVM_U(8), TVM_TRAIT_UNSIGNED},  {TVM_U(16), TVM_TRAIT_UNSIGNED},
                 {TVM_U(32), TVM_TRAIT_UNSIGNED}, {TVM_U(64), TVM_TRAIT_UNSIGNED},
                 {TVM_F16, TVM_TRAIT_FLOAT},      {TVM_BF16, TVM_TRAIT_FLOAT},
                 {TVM_F32, TVM_TRAIT_FLOAT},      {TVM_F64, TVM_TRAIT_DOUBLE},
                 {TVM_BOOL, TVM_TRAIT_BOOL},      {TVM_U(4), 0}};
    const tvm_op_info *info = tvm_op((unsigned)_i);
    for (size_t t = 0; is_element[_i] && t < sizeof types / sizeof *types; t++) {
        char name[TVM_DTYPE_NAME_MAX];
        if (!(info->traits & types[t].trait)) continue;
        ck_assert_msg(tvm_interp_element_loop((unsigned)_i, types[t].type) != NULL, "%s of %s",
                      info->mnemonic, tvm_dtype_name(types[t].type, name));
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("instructions");
    TCase *tests = tcase_create("rows");
    tcase_add_loop_test(tests, test_round_trip, 0, TVM_OP_COUNT);
    tcase_add_loop_test(tests, test_effects, 0, TVM_OP_COUNT);
    tcase_add_loop_test(tests, test_element_types, 0, TVM_OP_COUNT);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
