/* The shipped programs, for sm_80 and sm_90a, on tensors that strangers filled: page tables, lengths, indices
 * and scales of any bits. The generated code, executed by ptx_machine.h, reads and writes its tensors alone;
 * it may trap. Kernels whose blocks wait for each other's data, which here never comes, are code that counts
 * turns, and end. */
#include "check_kit.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent_kit.h"
#include "launch.h"
#include "ptx_launch_kit.h"
#include "generate/generate.h"
#include "shipped_kit.h"
#include "shipped_sizes.h"
#include "suite_kit.h"

enum {
    MOST_BYTES = 1 << 20,
    MOST_BLOCKS = 2,
    FILLS = 2,
    STEPS = 60 * 1000,
    ALL_STEPS = 3 * 1000 * 1000,
    TURNS = 1000
};

typedef struct launch {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    const tvm_module *module;
    tvm_launch_env env;
    tvm_scalar scalars[TVM_MAX_PARAMS];
    uint8_t *data[TVM_MAX_PARAMS];
    uint64_t bytes[TVM_MAX_PARAMS];
} launch;

static uint8_t *memory(uint64_t bytes) {
    uint8_t *data = aligned_alloc(256, (bytes + 256) / 256 * 256);
    ck_assert_ptr_nonnull(data);
    memset(data, 0, bytes);
    return data;
}

/* False: not of these sizes. */
static bool choose(launch *l, const size_of *size, unsigned arch) {
    int64_t shape[TVM_MAX_RANK];
    uint64_t bytes;
    tvm_launch_tensor tensors[TVM_MAX_LAUNCH_TENSORS];
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        const tvm_slot *slot = &l->kernel->slots[p];
        int value = shipped_scalar(tvm_string(l->program, slot->name), size);
        if (slot->kind != TVM_SLOT_SCALAR) continue;
        if (slot->dtype.kind == TVM_KIND_FLOAT)
            l->scalars[p].f = 1;
        else
            l->scalars[p].i = slot->dtype.kind == TVM_KIND_BOOL ? 1 : value;
    }
    l->env = (tvm_launch_env){
        .scalars = l->scalars, .multiprocessors = 2, .target = arch, .traits = tvm_target_traits_for(arch)};
    if (tvm_launch_check(l->program, l->kernel, &l->env, NULL) != TVM_OK) return false;
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->kernel->slots[p].kind == TVM_SLOT_GLOBAL &&
            (tvm_launch_shape(l->program, l->kernel, p, &l->env, shape, &l->bytes[p], NULL) != TVM_OK ||
             l->bytes[p] > MOST_BYTES))
            return false;
    uint32_t own = tvm_launch_tensors(l->kernel, tensors);
    for (uint32_t i = 0; i < own; i++)
        if (tvm_launch_shape(l->program, l->kernel, tensors[i].slot, &l->env, shape, &bytes, NULL) !=
                TVM_OK ||
            bytes > MOST_BYTES)
            return false;
    return true;
}

/* Words: extremes, small ones, or any bits. */
static void fill(uint8_t *data, uint64_t bytes, unsigned how, uint64_t *state) {
    static const uint32_t extremes[] = {0x80000000u, 0x7fffffffu, UINT32_MAX, 0, 1, 1u << 20, 0x40000000u, 7};
    for (uint64_t i = 0; i < bytes; i += 4) {
        uint64_t bits = generate_bits(state);
        uint32_t word = how == 0 ? extremes[bits % 8] : how == 1 ? (uint32_t)(bits % 40) - 4 : (uint32_t)bits;
        memcpy(data + i, &word, bytes - i < 4 ? bytes - i : 4);
    }
}

static void run(launch *l, unsigned how) {
    const tvm_kernel_code *code = &l->module->kernels[l->kernel - l->program->kernels];
    uint64_t values[TVM_MAX_PARAMS], state = how + 1;
    ptx_own own;
    ptx_machine m = ptx_load(l->module->ptx, code->name, code->abi.threads);
    m.steps_most =
        test_all() ? ALL_STEPS : STEPS; /* a loop of 2^31 iterations has done nothing wrong so far */
    m.asks_again = true;
    m.turns = TURNS;
    bool counted = tvm_abi_find(&code->abi, TVM_ABI_TURNS, 0) != TVM_NONE;
    if (counted) m.steps_most = ALL_STEPS;
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        tvm_dtype type = l->kernel->slots[p].dtype;
        values[p] = type.kind == TVM_KIND_FLOAT ? tvm_encode(type, l->scalars[p].f) : l->scalars[p].u;
        if (l->kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        l->data[p] = memory(l->bytes[p]);
        fill(l->data[p], l->bytes[p], how, &state);
        ptx_allow(&m, l->data[p], l->bytes[p]);
        values[p] = (uint64_t)(uintptr_t)l->data[p];
    }
    ptx_own_make(&own, &m, l->program, l->kernel, &l->env);
    for (unsigned d = 0; d < 3; d++) { /* whole clusters */
        uint32_t most = code->abi.cluster[d] > MOST_BLOCKS ? code->abi.cluster[d] : MOST_BLOCKS;
        if (l->env.grid[d] > most) l->env.grid[d] = most;
    }
    ptx_launch(&m, l->module, l->program, l->kernel, &l->env, values, own.place);
    ck_assert_msg(!m.fault[0] || (!counted && strcmp(m.fault, ptx_endless) == 0), "%s, fill %u: %s",
                  code->name, how, m.fault);
    ptx_free(&m);
    ptx_own_free(&own);
    for (uint32_t p = 0; p < l->kernel->param_count; p++) free(l->data[p]);
}

/* The nth time that it is run: with every other of the fills, and with those left out the next time. */
static unsigned run_kernel(const tvm_ir_program *program, const tvm_module *module, uint32_t k, unsigned arch,
                           unsigned nth) {
    launch l = {.program = program, .kernel = &program->kernels[k], .module = module};
    unsigned s = 0;
    if (!tvm_kernel_is_for(l.kernel, arch, tvm_target_traits_for(arch)) ||
        module->kernels[k].abi.absence != TVM_ABI_PRESENT)
        return 0;
    while (s < SHIPPED_SIZES && !choose(&l, &shipped_sizes[s], arch)) s++;
    if (s == SHIPPED_SIZES) return 0;
    run(&l, (k + nth) % FILLS);
    return 1;
}

static bool any_waits(const tvm_ir_program *program) {
    bool any = false;
    for (uint32_t k = 0; k < program->kernel_count; k++) any = any || tvm_kernel_waits(&program->kernels[k]);
    return any;
}

static tvm_module *translate(const tvm_ir_program *program, tvm_target target, bool counts) {
    const tvm_translate_options options = {.counts_turns = counts};
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_translate_with(program, target, &options, &module, NULL), TVM_OK);
    return module;
}

START_TEST(nothing_but_tensors_is_touched) {
    static const tvm_target targets[] = {{.arch = 80}, {.arch = 90, .feature = 'a'}};
    char pattern[5000];
    glob_t found;
    unsigned kernels = 0, ran = 0;
    snprintf(pattern, sizeof pattern, "%s/*.vasm", programs_folder());
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        tvm_ir_program *program = assemble_file(found.gl_pathv[i], "");
        for (unsigned t = 0; t < sizeof targets / sizeof *targets; t++) {
            tvm_module *plain = translate(program, targets[t], false),
                       *counting = any_waits(program) ? translate(program, targets[t], true) : NULL;
            for (uint32_t k = 0; k < program->kernel_count; k++) {
                bool waits = tvm_kernel_waits(&program->kernels[k]);
                ran += run_kernel(program, waits ? counting : plain, k, targets[t].arch, t);
            }
            kernels += program->kernel_count;
            tvm_module_free(plain);
            tvm_module_free(counting);
        }
        tvm_ir_program_free(program);
    }
    globfree(&found);
    printf("%u of %u kernels, of either target\n", ran, kernels);
    ck_assert_uint_ge(2 * ran, kernels);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("hostile programs");
    TCase *tests = tcase_create("hostile programs");
    tcase_add_test(tests, nothing_but_tensors_is_touched);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
