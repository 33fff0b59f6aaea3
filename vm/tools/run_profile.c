/* tvm-run --profile: counting and measuring. */
#include "run_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen.h"
#include "mma.h"
#include "runtime.h"

static tvm_status failed(tvm_context *context, tvm_status status, tvm_diags *diags) {
    return status ? tvm_diag_add(diags, status, NULL, NULL, "%s", tvm_message(context)) : TVM_OK;
}

static uint64_t elements_of(const tvm_ir_program *program, const tvm_slot *slot) {
    const uint32_t *shape = tvm_slot_shape(program, slot);
    uint64_t elements = 1;
    for (unsigned d = 0; d < tvm_slot_rank(program, slot); d++) elements *= shape[d];
    return elements;
}

static tvm_run_pipe tensor_pipe(tvm_dtype type) {
    return type.bits <= 8 ? TVM_RUN_TENSOR_8 : type.bits <= 16 ? TVM_RUN_TENSOR_16 : TVM_RUN_TENSOR_32;
}

/* Multiplications and additions. */
static void add_product(tvm_run_profile *p, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        const tvm_insn *insn, uint64_t times) {
    tvm_mma mma;
    if (!tvm_mma_read(program, kernel, &kernel->operands[insn->first], insn->count, &mma) || !mma.types)
        return;
    tvm_run_pipe pipe = mma.types->is_scalar ? TVM_RUN_FLOAT : tensor_pipe(mma.types->a);
    p->operations[pipe] += times * 2 * mma.batch * mma.m * mma.n * mma.k;
}

static void add_operations(tvm_run_profile *p, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                           const tvm_insn *insn, uint64_t times) {
    const tvm_op_info *info = tvm_op(insn->op);
    if (info->class != TVM_CLASS_COMPUTE || insn->result == TVM_NONE ||
        kernel->slots[insn->result].kind != TVM_SLOT_REGISTER)
        return;
    const tvm_slot *result = &kernel->slots[insn->result];
    if (insn->op == TVM_OP_MMA) {
        add_product(p, program, kernel, insn, times);
        return;
    }
    /* what a reduction reads is what it computes with */
    uint64_t elements = elements_of(program, result);
    const tvm_operand *first = insn->count ? &kernel->operands[insn->first] : NULL;
    if (first && first->kind == TVM_OPERAND_SLOT && kernel->slots[first->value].kind == TVM_SLOT_REGISTER) {
        uint64_t read = elements_of(program, &kernel->slots[first->value]);
        if (read > elements) elements = read;
    }
    p->operations[result->dtype.kind == TVM_KIND_FLOAT ? TVM_RUN_FLOAT : TVM_RUN_INTEGER] += times * elements;
}

/* How often what was selected for a line runs: translated instructions have numbers of their own where a
 * pipelined loop was written anew. */
static uint64_t times_of(const tvm_ir_kernel *kernel, const tvm_selection *s, const uint64_t *executed) {
    uint64_t times = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (s->line && kernel->insns[i].line == s->line && executed[i] > times) times = executed[i];
    return times || s->line || s->insn >= kernel->insn_count ? times : executed[s->insn];
}

/* Passes through the banks: those of the translated instructions, for every warp and every execution. */
static tvm_status add_conflicts(tvm_run_profile *p, const tvm_ir_program *program, uint32_t kernel,
                                const uint64_t *executed, const char *target, tvm_diags *diags) {
    tvm_target parsed;
    tvm_module *module = NULL;
    tvm_status status = tvm_target_parse(target, &parsed, diags);
    if (!status) status = tvm_translate(program, parsed, &module, diags);
    if (status) return status;
    const tvm_kernel_code *code = &module->kernels[kernel];
    tvm_target_name(parsed, p->target);
    for (size_t i = 0; i < code->selection_count; i++) {
        const tvm_selection *s = &code->selections[i];
        if (s->conflicts < 0) continue;
        uint64_t times = times_of(&program->kernels[kernel], s, executed) * program->kernels[kernel].warps;
        unsigned least = s->bits >= 128 ? 4 : s->bits >= 64 ? 2 : 1;
        p->conflicts += times * s->count * (uint64_t)s->conflicts;
        p->passes += times * s->count * (least + (uint64_t)s->conflicts);
    }
    tvm_module_free(module);
    return TVM_OK;
}

/* The binding's program in another context. */
static tvm_status load_again(const tvm_run_binding *binding, tvm_context *context, tvm_program **code,
                             tvm_diags *diags) {
    void *bytes = NULL;
    size_t size;
    tvm_status status =
        failed(binding->context, tvm_program_bytes(binding->function->code, &bytes, &size), diags);
    if (!status) status = failed(context, tvm_load(context, bytes, size, code), diags);
    free(bytes);
    return status;
}

/* One launch on the interpreter, which sees the device's multiprocessors and target. */
static tvm_status count(const tvm_run_binding *binding, const tvm_run_args *args, const char *target,
                        tvm_run_profile *p, tvm_diags *diags) {
    tvm_launch_env env = tvm_context_launch_env(binding->context);
    tvm_context_options options = {
        .device = TVM_DEVICE_CPU, .multiprocessors = env.multiprocessors, .target = env.target};
    tvm_context *context = NULL;
    tvm_program *code = NULL;
    tvm_kernel *kernel = NULL;
    tvm_run_binding *own = calloc(1, sizeof *own);
    uint32_t index = binding->variant->index;
    const tvm_ir_program *program = binding->function->code->program;
    tvm_launch_counts counts = {.executed =
                                    calloc((size_t)program->kernels[index].insn_count + 1, sizeof(uint64_t))};
    tvm_status status = own && counts.executed ? TVM_OK : tvm_diag_no_memory(diags);
    if (!status) status = failed(context, tvm_context_create(&options, &context), diags);
    if (!status) status = load_again(binding, context, &code, diags);
    if (!status)
        status = failed(context, tvm_get_kernel(code, tvm_kernel_name(binding->variant), &kernel), diags);
    if (!status) status = tvm_run_bind(context, kernel, args, own, diags);
    if (!status) status = tvm_run_upload(own, diags);
    if (!status)
        status = failed(context, tvm_launch_counted(kernel, own->values, own->count, &counts), diags);
    p->instructions = counts.instructions;
    p->blocks = counts.blocks;
    p->turns = counts.turns;
    p->global_read = counts.global_read;
    p->global_written = counts.global_written;
    p->shared_read = counts.shared_read;
    p->shared_written = counts.shared_written;
    for (size_t i = 0; !status && i < own->count; i++) p->tensor_bytes += own->values[i].bytes;
    for (uint32_t i = 0; !status && i < program->kernels[index].insn_count; i++)
        add_operations(p, program, &program->kernels[index], &program->kernels[index].insns[i],
                       counts.executed[i]);
    if (!status && target) status = add_conflicts(p, program, index, counts.executed, target, diags);
    if (own) tvm_run_unbind(own);
    free(own);
    free(counts.executed);
    tvm_program_free(code);
    tvm_context_free(context);
    return status;
}

tvm_status tvm_run_profile_take(tvm_run_binding *binding, const tvm_run_args *args, tvm_run_profile *profile,
                                tvm_diags *diags) {
    tvm_context *context = binding->context;
    char name[16];
    tvm_target found;
    *profile = (tvm_run_profile){.kernel = tvm_kernel_name(binding->variant),
                                 .device = tvm_device_name(context),
                                 .microseconds = NAN,
                                 .bytes_per_second = NAN,
                                 .operations_per_second = NAN};
    tvm_status status = TVM_OK;
    unsigned arch = tvm_context_launch_env(context).target;
    const char *target = NULL;
    if (arch && tvm_target_for_device((int)arch / 10, (int)arch % 10, &found, NULL) == TVM_OK)
        target = tvm_target_name(found, name);
    if (tvm_device(context) != TVM_DEVICE_CPU) {
        status = failed(
            context, tvm_time(binding->function, binding->values, binding->count, 0, &profile->microseconds),
            diags);
        if (!status)
            status = tvm_run_walls(context, &profile->bytes_per_second, &profile->operations_per_second,
                                   &profile->walls_measured, diags);
    }
    return status ? status : count(binding, args, target, profile, diags);
}

uint64_t tvm_run_profile_bytes(const tvm_run_profile *p) {
    uint64_t touched = p->global_read + p->global_written;
    return touched < p->tensor_bytes ? touched : p->tensor_bytes;
}

double tvm_run_profile_operations(const tvm_run_profile *p) {
    return (double)p->operations[TVM_RUN_TENSOR_16] + (double)p->operations[TVM_RUN_TENSOR_8] / 2 +
           (double)p->operations[TVM_RUN_TENSOR_32] * 2;
}
