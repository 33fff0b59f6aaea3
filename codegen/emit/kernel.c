/* One kernel to PTX: its parameters, the registers of its slots, the walk over its instructions, its frame.
 */
#include "kernel.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "emit_cancel.h"
#include "emit_drain.h"
#include "emit_mbarrier.h"
#include "emit_tensor.h"
#include "emit_wgmma.h"
#include "groups.h"
#include "hoist.h"
#include "kernel_plan.h"
#include "mbarrier_plan.h"
#include "params.h"
#include "tidy.h"
#include "turns_emit.h"
#include "wgmma_impl.h"
#include "wgmma_wait.h"

typedef tvm_status (*emit_function)(emitter *, const tvm_insn *);

static const emit_function emitters[] = {
#define TVM_OP(number, id, mnemonic, since, class, family, ...) [number] = tvm_emit_##family,
#include "opcodes.def"
};

/* Instructions of one kernel after unrolling. */
enum { MAX_EMITTED_INSNS = 4 * TVM_MAX_INSNS };

tvm_status tvm_emit_error(emitter *e, tvm_status status, const char *hint, const char *format, ...) {
    tvm_place place = {0};
    if (e->k->insn) {
        place.file = e->k->insn->file == TVM_NONE ? NULL : tvm_string(e->k->program, e->k->insn->file);
        place.line = e->k->insn->line;
    }
    va_list arguments;
    va_start(arguments, format);
    tvm_diag_addv(e->k->diags, status, &place, hint, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- slots ---- */

static void declare_scalar(emitter *e, uint32_t s) {
    tvm_dtype type = e->k->kernel->slots[s].dtype;
    reg r;
    if (type.kind == TVM_KIND_FLOAT)
        r = type.bits == 64 ? tvm_new_fd(e) : tvm_new_f(e);
    else
        r = type.kind != TVM_KIND_BOOL && type.bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
    memcpy(e->slots[s].reg, r.name, sizeof r.name);
}

static void declare_slots(emitter *e) {
    const tvm_ir_kernel *kernel = e->k->kernel;
    for (uint32_t s = 0; s < kernel->slot_count; s++) {
        const tvm_slot *slot = &kernel->slots[s];
        if (slot->kind == TVM_SLOT_SCALAR) {
            declare_scalar(e, s);
        } else if (slot->kind == TVM_SLOT_BARRIER) {
            reg r = tvm_new_r(e);
            memcpy(e->slots[s].reg, r.name, sizeof r.name);
        } else if (slot->kind == TVM_SLOT_GLOBAL) {
            reg r = tvm_new_rd(e);
            memcpy(e->slots[s].reg, r.name, sizeof r.name);
        } else if (slot->kind == TVM_SLOT_REGISTER) {
            e->slots[s].first_word = e->next_word;
            e->slots[s].words =
                tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e->k, s)), slot->dtype.bits);
            e->next_word += e->slots[s].words;
        }
    }
    for (uint32_t s = kernel->slot_count; s < kernel->slot_count + e->k->temporary_count; s++) {
        e->slots[s].first_word = e->next_word;
        e->slots[s].words =
            tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e->k, s)), tvm_slot_dtype(e->k, s).bits);
        e->next_word += e->slots[s].words;
    }
}

/* ---- instructions ---- */

static tvm_status emit_one(emitter *e, const tvm_insn *insn) {
    const char *done = tvm_group_done(e->k, insn);
    if (done) {
        tvm_explain(e, done, 0, 0, -1, "");
        return TVM_OK;
    }
    tvm_wgmma_wait(e, insn);
    if (tvm_wgmma_takes(e->k, insn)) return tvm_emit_wgmma(e, insn);
    tvm_emit_tensor_fence(e, insn, TENSOR_FENCE_BEFORE);
    tvm_status status = emitters[insn->op](e, insn);
    tvm_emit_tensor_fence(e, insn, TENSOR_FENCE_AFTER);
    return status;
}

tvm_status tvm_emit_range(emitter *e, uint32_t first, uint32_t last) {
    uint32_t outer = e->position;
    for (e->position = first; e->position < last;) {
        const tvm_insn *insn = &e->k->kernel->insns[e->position++];
        if (e->insn_budget == 0)
            return tvm_emit_error(e, TVM_UNSUPPORTED, "lower the unroll numbers",
                                  "the kernel is too long once unrolled");
        e->insn_budget--;
        e->k->insn = insn;
        e->values.stamp++;
        if (e->body.failed || e->prologue.failed) return tvm_diag_no_memory(e->k->diags);
        tvm_status status = emit_one(e, insn);
        if (status != TVM_OK) return status;
        e->explained[insn - e->k->kernel->insns] = true;
    }
    e->position = outer;
    return TVM_OK;
}

static void count_registers(const emitter *e, uint32_t counts[TVM_REGISTER_CLASSES]) {
    const uint32_t found[TVM_REGISTER_CLASSES] = {e->next_pred, e->next_r, e->next_rd,  e->next_f,
                                                  e->next_fd,   e->next_h, e->next_word};
    memcpy(counts, found, sizeof found);
}

void tvm_declare_registers(const uint32_t counts[TVM_REGISTER_CLASSES], tvm_text *out) {
    static const struct {
        const char *type, *prefix;
    } classes[TVM_REGISTER_CLASSES] = {{".pred", "%p"}, {".b32", "%r"}, {".b64", "%rd"}, {".b32", "%f"},
                                       {".b64", "%fd"}, {".b16", "%h"}, {".b32", "%w"}};
    for (size_t i = 0; i < TVM_REGISTER_CLASSES; i++)
        if (counts[i] > 0)
            tvm_text_add(out, "\t.reg %s %s<%u>;\n", classes[i].type, classes[i].prefix, (unsigned)counts[i]);
}

static bool write_entry(emitter *e, tvm_text *out) {
    tvm_text code = {0};
    bool tidied = tvm_tidy(e, &code);
    const char *name = tvm_string(e->k->program, e->k->kernel->name);
    tvm_text_add(out, "\n.visible .entry %s(", name);
    tvm_params_write(&e->code->abi, out);
    /* Without .minnctapersm ptxas aims at an occupancy of its own choice, for which it may spill. */
    tvm_text_add(out, "\n)\n.maxntid %u, 1, 1\n.minnctapersm %u\n", e->code->abi.threads,
                 (unsigned)e->k->kernel->resident);
    if (tvm_cluster_blocks(e->k->kernel) > 1)
        tvm_text_add(out, ".explicitcluster\n.reqnctapercluster %u, %u, %u\n", e->code->abi.cluster[0],
                     e->code->abi.cluster[1], e->code->abi.cluster[2]);
    tvm_text_puts(out, "{\n");
    uint32_t counts[TVM_REGISTER_CLASSES];
    count_registers(e, counts);
    tvm_declare_registers(counts, out);
    tvm_text_append(out, &code);
    tvm_text_add(out, "\tret;\n}\n");
    tvm_text_free(&code);
    return tidied;
}

/* PTX ISA, "Identifiers": "_" alone is none, and WARP_SZ is a predefined constant. */
static tvm_status check_name(emitter *e) {
    const char *name = e->code->name;
    if (strcmp(name, "_") != 0 && strcmp(name, "WARP_SZ") != 0) return TVM_OK;
    return tvm_emit_error(e, TVM_UNSUPPORTED, "rename the kernel", "kernel '%s': PTX has no such name", name);
}

static tvm_status make_emitter(emitter *e) {
    const tvm_ir_kernel *kernel = e->k->kernel;
    size_t exprs = kernel->expr_count + (size_t)1;
    e->slots = calloc(kernel->slot_count + e->k->temporary_count + (size_t)1, sizeof *e->slots);
    e->values = (expr_values){.stable = calloc(exprs, sizeof *e->values.stable),
                              .local = calloc(exprs, sizeof *e->values.local),
                              .local_stamp = calloc(exprs, sizeof *e->values.local_stamp),
                              .stamp = 1};
    e->explained = calloc(kernel->insn_count + (size_t)1, sizeof *e->explained);
    bool made = e->slots && e->values.stable && e->values.local && e->values.local_stamp && e->explained;
    return made ? tvm_hoist_make(e) : tvm_diag_no_memory(e->k->diags);
}

static tvm_status translate_kernel(emitter *e) {
    tvm_status status = tvm_plan_kernel(e->k);
    if (status == TVM_OK) status = make_emitter(e);
    if (status != TVM_OK) return status;
    declare_slots(e);
    tvm_params_load(e);
    tvm_turns_begin(e);
    tvm_mbarriers_begin(e);
    tvm_cancels_begin(e);
    e->shared = e->k->shared;
    e->insn_budget = MAX_EMITTED_INSNS;
    status = tvm_emit_range(e, 0, e->k->kernel->insn_count);
    if (status == TVM_OK) tvm_wgmma_drain(e);
    if (status == TVM_OK) tvm_emit_block_end(e);
    if (status == TVM_OK && (e->body.failed || e->prologue.failed)) status = tvm_diag_no_memory(e->k->diags);
    return status;
}

/* Does a block of the target have the shared memory that the kernel needs? Else the ABI says that it has not.
 */
static bool is_held(emitter *e) {
    tvm_kernel_abi *abi = &e->code->abi;
    if (e->k->shared_bytes > tvm_target_shared_bytes(e->k->target)) {
        *abi = (tvm_kernel_abi){.absence = TVM_ABI_TOO_BIG, .shared_bytes = (uint32_t)e->k->shared_bytes};
        return false;
    }
    abi->shared_bytes = (uint32_t)e->k->shared_bytes;
    return true;
}

static void free_emitter(emitter *e) {
    tvm_hoist_free(e);
    tvm_text_free(&e->body);
    tvm_text_free(&e->prologue);
    free(e->slots);
    free(e->values.stable);
    free(e->values.local);
    free(e->values.local_stamp);
    free(e->explained);
}

/* May a block end before it has made its mbarriers? */
static bool may_end_before(const emitter *e) {
    bool found = false, ends = false;
    for (uint32_t i = 0; i < e->k->kernel->insn_count; i++) {
        const tvm_insn *insn = &e->k->kernel->insns[i];
        found = found || (insn->op == TVM_OP_ALLOC_BARRIER && !e->k->slots[insn->result].named.first);
        ends = ends || (insn->op == TVM_OP_EXIT && !found);
    }
    return found && ends;
}

/* Why the code cannot be a body among others; NULL: it can. */
static const char *no_body(const emitter *e) {
    if (tvm_cluster_blocks(e->k->kernel) > 1) return "it has clusters";
    if (e->k->tensor.used) return "it has tensor memory";
    if (e->code->abi.map_count) return "it takes tensor maps";
    if (e->uses_vprintf || e->globals->size) return "it prints";
    if (e->module->sets_registers) return "its roles have registers of their own";
    if (e->k->counts_turns) return "its turns are limited";
    if (may_end_before(e)) return "it may exit before its alloc-barrier";
    for (uint32_t s = 0; s < e->k->kernel->slot_count; s++)
        if (e->k->kernel->slots[s].kind == TVM_SLOT_BARRIER && e->k->slots[s].named.first &&
            e->k->slots[s].named.first + tvm_mbarrier_count(e->k, s) > FRAME_BARRIER)
            return "it has all of a block's barriers";
    return NULL;
}

/* Those that the body makes: they are no more when it ends. */
static bool find_mbarriers(const emitter *e, body_text *body) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < e->k->kernel->slot_count; s++)
        if (e->k->kernel->slots[s].kind == TVM_SLOT_BARRIER && !e->k->slots[s].named.first)
            count += tvm_mbarrier_count(e->k, s);
    body->mbarriers = calloc(count + (size_t)1, sizeof *body->mbarriers);
    if (!body->mbarriers) return false;
    for (uint32_t s = 0; s < e->k->kernel->slot_count; s++)
        if (e->k->kernel->slots[s].kind == TVM_SLOT_BARRIER && !e->k->slots[s].named.first)
            for (uint32_t i = 0; i < tvm_mbarrier_count(e->k, s); i++)
                body->mbarriers[body->mbarrier_count++] = e->k->slots[s].shared_offset + 8 * i;
    return true;
}

static bool write_body(emitter *e, body_text *body) {
    uint32_t counts[TVM_REGISTER_CLASSES];
    tvm_text_add(&e->body, "$L%u:\n", (unsigned)body->frame.end);
    bool tidied = tvm_tidy(e, &body->text);
    count_registers(e, counts);
    for (size_t i = 0; i < TVM_REGISTER_CLASSES; i++)
        if (counts[i] > body->counts[i]) body->counts[i] = counts[i];
    body->next_label = e->next_label;
    body->uses_engine = e->k->bulk.by_engine || e->k->bulk.reads_by_engine || e->k->wgmma->used;
    return tidied && find_mbarriers(e, body);
}

static tvm_status emit_kernel(const tvm_ir_program *program, uint32_t kernel, left_alone left,
                              tvm_module *module, tvm_kernel_code *code, body_text *body, module_text *out,
                              tvm_diags *diags) {
    kernel_state k = {.program = program,
                      .kernel = &program->kernels[kernel],
                      .target = module->target,
                      .diags = diags,
                      .claims = out->options.claims,
                      .counts_turns = out->options.counts_turns};
    emitter e = {.k = &k,
                 .team = tvm_block_team(k.kernel),
                 .module = module,
                 .code = code,
                 .body_frame = body ? &body->frame : NULL,
                 .next_label = body ? body->next_label : 0,
                 .left = left,
                 .globals = &out->globals};
    if (body) body->frame.end = tvm_new_label(&e);
    tvm_status status = check_name(&e);
    if (status == TVM_OK) status = tvm_plan_memory(&k);
    bool held = status == TVM_OK && is_held(&e);
    if (held) status = translate_kernel(&e);
    if (held && status == TVM_OK && body) body->frame.wrong = no_body(&e);
    if (held && status == TVM_OK && !(body ? write_body(&e, body) : write_entry(&e, &out->kernels)))
        status = tvm_diag_no_memory(diags);
    if (held && status == TVM_OK) {
        out->uses_vprintf = out->uses_vprintf || e.uses_vprintf;
        if (e.ptx_version > out->ptx_version) out->ptx_version = e.ptx_version;
    }
    free_emitter(&e);
    tvm_plan_free(&k);
    return status;
}

tvm_status tvm_emit_kernel(const tvm_ir_program *program, uint32_t kernel, left_alone left,
                           tvm_module *module, module_text *out, tvm_diags *diags) {
    return emit_kernel(program, kernel, left, module, &module->kernels[kernel], NULL, out, diags);
}

tvm_status tvm_emit_body(const tvm_ir_program *program, uint32_t kernel, left_alone left, tvm_module *module,
                         tvm_kernel_code *code, body_text *body, module_text *out, tvm_diags *diags) {
    return emit_kernel(program, kernel, left, module, code, body, out, diags);
}
