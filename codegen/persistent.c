#include "persistent.h"

#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "kernel.h"
#include "pipeline_lower.h"

enum { BODIES_MAX = 4096, THREADS_OF_MULTIPROCESSOR = 2048, PIECE = 16 /* bytes of a copy */ };

/* Registers of the loop over tasks, which holds none of them while a body runs. */
enum { LOOP_PREDICATES = 2, LOOP_WORDS = 4, LOOP_ADDRESSES = 3 };
/* Labels of the loop. */
enum {
    LABEL_TASK,
    LABEL_OVER,
    LABEL_WAITED,
    LABEL_AGAIN,
    LABEL_MORE,
    LABEL_NEXT,
    LABEL_CLEAR,
    LABEL_END,
    LABEL_FIRST_BODY
};

typedef struct persistent {
    tvm_module *module;
    const tvm_persistent_body *bodies;
    body_text *texts;
    uint32_t count, threads, shared_bytes, resident;
    uint32_t rows, row_bytes; /* of the two rows in shared memory: where they begin, behind the bodies' */
    uint32_t registers[TVM_REGISTER_CLASSES];
    uint32_t next_label;
    bool notes_times, uses_engine;
} persistent;

static tvm_status refuse(const persistent *p, uint32_t body, const char *why, tvm_diags *diags) {
    const tvm_ir_program *program = p->bodies[body].program;
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                        "kernel '%s' cannot be a part of a persistent kernel: %s",
                        tvm_string(program, program->kernels[p->bodies[body].kernel].name), why);
}

/* ---- bodies ---- */

/* The registers are for as many blocks as the kernel with the fewest resident ones asks for. */
static void take_body(persistent *p, uint32_t body, const tvm_ir_kernel *kernel) {
    const tvm_kernel_abi *abi = &p->module->kernels[1 + body].abi;
    if (abi->threads > p->threads) p->threads = abi->threads;
    if (abi->shared_bytes > p->shared_bytes) p->shared_bytes = abi->shared_bytes;
    if (!p->resident || kernel->resident < p->resident) p->resident = kernel->resident;
    memcpy(p->registers, p->texts[body].counts, sizeof p->registers);
    p->next_label = p->texts[body].next_label;
    p->uses_engine = p->uses_engine || p->texts[body].uses_engine;
}

static tvm_status emit_lowered(persistent *p, uint32_t body, const tvm_lowered *lowered, module_text *parts,
                               tvm_diags *diags) {
    uint32_t kernel = p->bodies[body].kernel;
    const tvm_ir_program *program = lowered->program ? lowered->program : p->bodies[body].program;
    tvm_kernel_code *code = &p->module->kernels[1 + body];
    body_text *text = &p->texts[body];
    left_alone left = {NULL, "no pipelined loop"};
    if (lowered->program) left = (left_alone){lowered->not_parted[kernel], lowered->no_products[kernel]};
    text->frame.notes_times = p->notes_times;
    text->next_label = p->next_label;
    memcpy(text->counts, p->registers, sizeof text->counts);
    code->abi = tvm_module_abi_of(&program->kernels[kernel], p->module->target);
    if (code->abi.absence) return refuse(p, body, "it is not for the target", diags);
    tvm_status status = tvm_emit_body(program, kernel, left, p->module, code, text, parts, diags);
    if (status) return status;
    if (code->abi.absence) return refuse(p, body, "it needs more shared memory than a block has", diags);
    if (text->frame.wrong) return refuse(p, body, text->frame.wrong, diags);
    take_body(p, body, &program->kernels[kernel]);
    return TVM_OK;
}

static tvm_status emit_body(persistent *p, uint32_t body, module_text *parts, tvm_diags *diags) {
    const tvm_ir_program *program = p->bodies[body].program;
    tvm_kernel_code *code = &p->module->kernels[1 + body];
    tvm_lowered lowered;
    code->registers = code->spill_stores = code->spill_loads = code->stack_bytes = -1;
    code->name =
        tvm_module_keep(p->module, tvm_string(program, program->kernels[p->bodies[body].kernel].name));
    if (!code->name) return tvm_diag_no_memory(diags);
    tvm_status status = tvm_pipelines_lower(program, p->module->target, &lowered, diags);
    if (!status) status = emit_lowered(p, body, &lowered, parts, diags);
    tvm_lowered_free(&lowered);
    return status;
}

/* ---- the loop over tasks ---- */

/* Brings the row of task %r0 to shared memory, by as many threads as it has pieces of 16 bytes; where there
 * is no such task, nothing. Uses %p0, %p1, %rd0, %rd1, %r2. */
static void write_copy(const persistent *p, int to, tvm_text *out) {
    tvm_text_add(out, "\tld.param.b32 %%r2, [param_4];\n\tsetp.lt.u32 %%p0, %%r0, %%r2;\n");
    tvm_text_add(out, "\tsetp.lt.u32 %%p1, %%t%d, %u;\n\tand.pred %%p0, %%p0, %%p1;\n", FRAME_THREAD,
                 (unsigned)(p->row_bytes / PIECE));
    tvm_text_add(out, "\tld.param.b64 %%rd0, [param_0];\n\tmul.wide.u32 %%rd1, %%r0, %u;\n",
                 (unsigned)p->row_bytes);
    tvm_text_add(out, "\tadd.s64 %%rd0, %%rd0, %%rd1;\n\tmul.wide.u32 %%rd1, %%t%d, %d;\n", FRAME_THREAD,
                 PIECE);
    tvm_text_add(out, "\tadd.s64 %%rd0, %%rd0, %%rd1;\n\tmad.lo.u32 %%r2, %%t%d, %d, %%t%d;\n", FRAME_THREAD,
                 PIECE, to);
    tvm_text_puts(out, "\t@%p0 cp.async.cg.shared.global [%r2+0], [%rd0+0], 16;\n");
}

/* fence COPY_GROUP: the first row. */
static void write_head(const persistent *p, tvm_text *out) {
    tvm_text_add(out, "\n.visible .entry " TVM_PERSISTENT_NAME "(");
    for (int i = 0; i < 4; i++) tvm_text_add(out, "\n\t.param .b64 param_%d,", i);
    tvm_text_add(
        out, "\n\t.param .b32 param_4,\n\t.param .b32 param_5\n)\n.maxntid %u, 1, 1\n.minnctapersm %u\n{\n",
        (unsigned)p->threads, (unsigned)p->resident);
    tvm_declare_registers(p->registers, out);
    tvm_text_add(out, "\t.reg .b32 %%t<%d>;\n\t.reg .b64 %%td<%d>;\n", FRAME_WORDS, FRAME_ADDRESSES);
    tvm_text_add(out, "\tmov.u32 %%t%d, %%tid.x;\n\tmov.u32 %%t%d, %%ctaid.x;\n", FRAME_THREAD, FRAME_TASK);
    tvm_text_add(out, "\tld.param.b64 %%td%d, [param_2];\n\tmov.u32 %%r0, tvm_smem;\n", FRAME_COUNTERS);
    tvm_text_add(out, "\tadd.u32 %%t%d, %%r0, %u;\n\tadd.u32 %%t%d, %%r0, %u;\n", FRAME_NEXT_ROW,
                 (unsigned)p->rows, FRAME_ROW, (unsigned)(p->rows + p->row_bytes));
    tvm_text_add(out, "\tmov.u32 %%r0, %%t%d;\n", FRAME_TASK);
    write_copy(p, FRAME_NEXT_ROW, out);
    tvm_text_add(out, "\tcp.async.wait_all;\n\tbar.sync %d;\n", FRAME_BARRIER);
}

/* The row's words to the registers that outlive the task, and the next row on its way. %r3: the body; %r1:
 * whether it is early. */
static void write_row(const persistent *p, tvm_text *out) {
    tvm_text_add(out, "$L%d:\n\tld.param.b32 %%r0, [param_4];\n\tsetp.ge.u32 %%p0, %%t%d, %%r0;\n",
                 LABEL_TASK, FRAME_TASK);
    tvm_text_add(out, "\t@%%p0 bra $L%d;\n\tmov.u32 %%r0, %%t%d;\n", LABEL_OVER, FRAME_ROW);
    tvm_text_add(out, "\tmov.u32 %%t%d, %%t%d;\n\tmov.u32 %%t%d, %%r0;\n", FRAME_ROW, FRAME_NEXT_ROW,
                 FRAME_NEXT_ROW);
    tvm_text_add(out, "\tld.shared.v4.b32 {%%r3, %%r1, %%t%d, %%t%d}, [%%t%d+0];\n", FRAME_BLOCK,
                 FRAME_BLOCK + 1, FRAME_ROW);
    tvm_text_add(out, "\tld.shared.v4.b32 {%%t%d, %%t%d, %%t%d, %%t%d}, [%%t%d+16];\n", FRAME_BLOCK + 2,
                 FRAME_GRID, FRAME_GRID + 1, FRAME_GRID + 2, FRAME_ROW);
    tvm_text_add(out, "\tld.shared.v4.b32 {%%t%d, %%t%d, %%t%d, %%t%d}, [%%t%d+32];\n", FRAME_COUNTER,
                 FRAME_RAISE, FRAME_WAIT, FRAME_VALUE, FRAME_ROW);
    tvm_text_add(out, "\tld.shared.v2.b32 {%%t%d, %%t%d}, [%%t%d+48];\n", FRAME_MORE, FRAME_MORE_COUNT,
                 FRAME_ROW);
    tvm_text_add(out, "\tmov.u32 %%r0, %%nctaid.x;\n\tadd.u32 %%r0, %%r0, %%t%d;\n", FRAME_TASK);
    write_copy(p, FRAME_NEXT_ROW, out);
    if (!p->notes_times) return;
    tvm_text_add(out, "\tld.param.b64 %%td%d, [param_3];\n\tmul.wide.u32 %%rd1, %%t%d, %zu;\n", FRAME_STAMPS,
                 FRAME_TASK, sizeof(tvm_persistent_times));
    tvm_text_add(out, "\tadd.s64 %%td%d, %%td%d, %%rd1;\n", FRAME_STAMPS, FRAME_STAMPS);
}

/* fence SEMAPHORE, GLOBAL_TO_ENGINE: behind the barrier the block's memory is the next body's, too. */
static void write_wait(const persistent *p, tvm_text *out) {
    const frame_wait wait = {.first = {"%p0"},
                             .differs = {"%p1"},
                             .found = {"%r2"},
                             .address = {"%rd0"},
                             .waits = {"%rd1"},
                             .again = LABEL_AGAIN,
                             .more = LABEL_MORE};
    tvm_text_add(out, "\tsetp.eq.u32 %%p0, %%t%d, 0;\n", FRAME_THREAD);
    if (p->notes_times) tvm_frame_stamp(wait.first, (reg){"%rd1"}, FRAME_BEGUN, out);
    tvm_text_add(out, "\tsetp.ne.u32 %%p1, %%r1, 0;\n\t@%%p1 bra $L%d;\n", LABEL_WAITED);
    tvm_frame_wait_text(&wait, out);
    if (p->notes_times) tvm_frame_stamp(wait.first, (reg){"%rd1"}, FRAME_WAITED, out);
    tvm_text_add(out, "$L%d:\n\tbar.sync %d;\n", LABEL_WAITED, FRAME_BARRIER);
    if (p->uses_engine) tvm_text_puts(out, "\tfence.proxy.async;\n");
}

static void write_choice(const persistent *p, tvm_text *out) {
    for (uint32_t i = 1; i < p->count; i++)
        tvm_text_add(out, "\tsetp.eq.u32 %%p0, %%r3, %u;\n\t@%%p0 bra $L%u;\n", (unsigned)i,
                     (unsigned)(LABEL_FIRST_BODY + i));
}

/* fence SEMAPHORE, MBARRIER_INIT, BLOCK_END: warps that a body has no use for go on where it ends. No copy to
 * shared memory is under way then, and its mbarriers are no more before the next body takes the memory,
 * behind the barrier at its begin. */
static void write_body(const persistent *p, uint32_t body, tvm_text *out) {
    const body_text *text = &p->texts[body];
    uint32_t threads = p->module->kernels[1 + body].abi.threads;
    tvm_text_add(out, "$L%u:\n", (unsigned)(LABEL_FIRST_BODY + body));
    if (threads < p->threads)
        tvm_text_add(out, "\tsetp.ge.u32 %%p0, %%t%d, %u;\n\t@%%p0 bra $L%u;\n", FRAME_THREAD,
                     (unsigned)threads, (unsigned)text->frame.end);
    tvm_text_append(out, &text->text);
    tvm_text_puts(out, "\tcp.async.wait_all;\n");
    if (p->uses_engine) tvm_text_puts(out, "\tfence.proxy.async.shared::cta;\n");
    tvm_text_add(out, "\tbar.sync %d;\n\tsetp.eq.u32 %%p0, %%t%d, 0;\n", FRAME_BARRIER, FRAME_THREAD);
    if (text->mbarrier_count) tvm_text_puts(out, "\tmov.u32 %r0, tvm_smem;\n");
    for (uint32_t i = 0; i < text->mbarrier_count; i++)
        tvm_text_add(out, "\t@%%p0 mbarrier.inval.shared.b64 [%%r0+%u];\n", (unsigned)text->mbarriers[i]);
    tvm_text_add(out, "\tcvt.u64.u32 %%rd0, %%t%d;\n\tadd.s64 %%rd0, %%rd0, %%td%d;\n", FRAME_COUNTER,
                 FRAME_COUNTERS);
    tvm_text_add(out, "\t@%%p0 red.release.gpu.global.add.u32 [%%rd0], %%t%d;\n", FRAME_RAISE);
    if (p->notes_times) tvm_frame_stamp((reg){"%p0"}, (reg){"%rd0"}, FRAME_ENDED, out);
    tvm_text_add(out, "\tbra $L%d;\n", LABEL_NEXT);
}

/* The last block of all to come here knows by its turn that nothing waits for a counter any more. */
static void write_end(tvm_text *out) {
    tvm_text_add(out, "$L%d:\n\tmov.u32 %%r0, %%nctaid.x;\n\tadd.u32 %%t%d, %%t%d, %%r0;\n", LABEL_NEXT,
                 FRAME_TASK, FRAME_TASK);
    tvm_text_add(out, "\tbra $L%d;\n$L%d:\n\tsetp.eq.u32 %%p0, %%t%d, 0;\n", LABEL_TASK, LABEL_OVER,
                 FRAME_THREAD);
    tvm_text_add(out, "\tld.param.b32 %%r0, [param_5];\n\tmul.wide.u32 %%rd0, %%r0, %d;\n",
                 TVM_PERSISTENT_COUNTER_BYTES);
    tvm_text_add(out, "\tadd.s64 %%rd0, %%rd0, %%td%d;\n\tmov.u32 %%r1, %%nctaid.x;\n", FRAME_COUNTERS);
    tvm_text_puts(out, "\tsub.u32 %r1, %r1, 1;\n\tmov.b32 %r2, 0xffffffff;\n\tmov.b32 %r3, 0;\n");
    tvm_text_puts(out, "\t@%p0 atom.acq_rel.gpu.global.inc.u32 %r2, [%rd0], %r1;\n");
    tvm_text_add(out, "\tsetp.eq.u32 %%p0, %%r2, %%r1;\n$L%d:\n\tsetp.eq.u32 %%p1, %%r0, 0;\n", LABEL_CLEAR);
    tvm_text_add(out, "\t@%%p1 bra $L%d;\n\t@%%p0 st.global.b32 [%%td%d], %%r3;\n", LABEL_END,
                 FRAME_COUNTERS);
    tvm_text_add(out, "\tadd.s64 %%td%d, %%td%d, %d;\n\tsub.u32 %%r0, %%r0, 1;\n", FRAME_COUNTERS,
                 FRAME_COUNTERS, TVM_PERSISTENT_COUNTER_BYTES);
    tvm_text_add(out, "\tbra $L%d;\n$L%d:\n\tret;\n}\n", LABEL_CLEAR, LABEL_END);
}

static void write_entry(persistent *p, tvm_text *out) {
    static const uint32_t own[TVM_REGISTER_CLASSES] = {LOOP_PREDICATES, LOOP_WORDS, LOOP_ADDRESSES};
    for (unsigned i = 0; i < TVM_REGISTER_CLASSES; i++)
        if (p->registers[i] < own[i]) p->registers[i] = own[i];
    write_head(p, out);
    write_row(p, out);
    write_wait(p, out);
    write_choice(p, out);
    for (uint32_t i = 0; i < p->count; i++) write_body(p, i, out);
    write_end(out);
}

/* ---- the module ---- */

static void place_rows(persistent *p) {
    uint32_t most = THREADS_OF_MULTIPROCESSOR / p->threads;
    if (p->resident > most) p->resident = most;
    p->row_bytes = tvm_persistent_row_bytes(p->module);
    p->rows = (p->shared_bytes + (PIECE - 1)) / PIECE * PIECE;
    p->shared_bytes = p->rows + 2 * p->row_bytes;
    while (p->threads * PIECE < p->row_bytes) p->threads += 32; /* each thread copies a piece */
}

static tvm_status make(persistent *p, tvm_diags *diags) {
    module_text parts = {.ptx_version = 0};
    tvm_status status = TVM_OK;
    p->next_label = LABEL_FIRST_BODY + p->count;
    for (uint32_t i = 0; !status && i < p->count; i++) status = emit_body(p, i, &parts, diags);
    if (!status) {
        place_rows(p);
        if (p->shared_bytes > tvm_target_shared_bytes(p->module->target))
            status = tvm_diag_add(
                diags, TVM_UNSUPPORTED, NULL, NULL,
                "a persistent kernel of these kernels needs %u bytes of shared memory, of which a "
                "block has %u",
                (unsigned)p->shared_bytes, tvm_target_shared_bytes(p->module->target));
    }
    if (!status) {
        p->module->kernels[0] = (tvm_kernel_code){
            .name = TVM_PERSISTENT_NAME,
            .abi = {.threads = p->threads, .shared_bytes = p->shared_bytes, .cluster = {1, 1, 1}},
            .registers = -1,
            .spill_stores = -1,
            .spill_loads = -1,
            .stack_bytes = -1};
        write_entry(p, &parts.kernels);
        status = tvm_module_finish(p->module, &parts, diags);
    }
    tvm_text_free(&parts.globals);
    tvm_text_free(&parts.kernels);
    return status;
}

uint32_t tvm_persistent_row_bytes(const tvm_module *module) {
    uint32_t most = 0;
    for (size_t k = 1; k < module->kernel_count; k++)
        if (module->kernels[k].abi.param_bytes > most) most = module->kernels[k].abi.param_bytes;
    return FRAME_PARAMS + (most + (PIECE - 1)) / PIECE * PIECE;
}

tvm_status tvm_translate_persistent(const tvm_persistent_body *bodies, uint32_t count, tvm_target target,
                                    bool notes_times, tvm_module **module, uint32_t *resident,
                                    tvm_diags *diags) {
    persistent p = {.bodies = bodies, .count = count, .notes_times = notes_times};
    *module = NULL;
    if (!count || count > BODIES_MAX)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "a persistent kernel has 1 to %d bodies, not %u", BODIES_MAX, (unsigned)count);
    p.texts = calloc(count, sizeof *p.texts);
    p.module = calloc(1, sizeof *p.module);
    if (p.module) p.module->kernels = calloc(count + (size_t)1, sizeof *p.module->kernels);
    bool made = p.texts && p.module && p.module->kernels;
    if (made) p.module->target = target, p.module->kernel_count = count + (size_t)1;
    tvm_status status = made ? make(&p, diags) : tvm_diag_no_memory(diags);
    for (uint32_t i = 0; p.texts && i < count; i++) {
        tvm_text_free(&p.texts[i].text);
        free(p.texts[i].mbarriers);
    }
    free(p.texts);
    if (status) {
        tvm_module_free(p.module);
        return status;
    }
    *module = p.module;
    *resident = p.resident;
    return TVM_OK;
}
