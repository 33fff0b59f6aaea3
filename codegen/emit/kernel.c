/* One kernel to PTX: its parameters, the registers of its slots, the walk over its instructions, its frame.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "barrier.h"
#include "bulk_plan.h"
#include "caches.h"
#include "cluster.h"
#include "copy.h"
#include "emit.h"
#include "module.h"
#include "groups.h"
#include "mbarrier.h"
#include "mma_operands.h"
#include "params.h"
#include "pipeline.h"
#include "shared_plan.h"
#include "uses.h"
#include "wgmma.h"

typedef tvm_status (*emit_function)(emitter *, const tvm_insn *);

static const emit_function emitters[] = {
#define TVM_OP(number, id, mnemonic, since, class, family, ...) [number] = tvm_emit_##family,
#include "opcodes.def"
};

/* Instructions of one kernel after unrolling. */
enum { MAX_EMITTED_INSNS = 4 * TVM_MAX_INSNS };

tvm_status tvm_emit_error(emitter *e, tvm_status status, const char *hint, const char *format, ...) {
    tvm_place place = {0};
    if (e->insn) {
        place.file = e->insn->file == TVM_NONE ? NULL : tvm_string(e->program, e->insn->file);
        place.line = e->insn->line;
    }
    va_list arguments;
    va_start(arguments, format);
    tvm_diag_addv(e->diags, status, &place, hint, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- slots ---- */

static void declare_scalar(emitter *e, uint32_t s) {
    tvm_dtype type = e->kernel->slots[s].dtype;
    reg r;
    if (type.kind == TVM_KIND_FLOAT)
        r = type.bits == 64 ? tvm_new_fd(e) : tvm_new_f(e);
    else
        r = type.kind != TVM_KIND_BOOL && type.bits == 64 ? tvm_new_rd(e) : tvm_new_r(e);
    memcpy(e->slots[s].reg, r.name, sizeof r.name);
}

static void count_reads(emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_operand *operands = tvm_operands(kernel, &kernel->insns[i]);
        for (uint32_t o = 0; o < kernel->insns[i].count; o++) {
            if (operands[o].kind != TVM_OPERAND_SLOT) continue;
            slot_state *slot = &e->slots[operands[o].value];
            slot->reads++;
        }
    }
}

static void declare_slots(emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    count_reads(e);
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
            e->slots[s].words = tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e, s)), slot->dtype.bits);
            e->next_word += e->slots[s].words;
        }
    }
    for (uint32_t s = kernel->slot_count; s < kernel->slot_count + e->temporary_count; s++) {
        e->slots[s].first_word = e->next_word;
        e->slots[s].words =
            tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e, s)), tvm_slot_dtype(e, s).bits);
        e->next_word += e->slots[s].words;
    }
}

/* ---- instructions ---- */

static tvm_status emit_one(emitter *e, const tvm_insn *insn) {
    const char *done = tvm_group_done(e, insn);
    if (done) {
        tvm_explain(e, done, 0, 0, -1, "");
        return TVM_OK;
    }
    tvm_wgmma_wait(e, insn);
    group_emitter *emit = tvm_group_emit(e, insn);
    return emit ? emit(e, insn) : emitters[insn->op](e, insn);
}

tvm_status tvm_emit_range(emitter *e, uint32_t first, uint32_t last) {
    uint32_t outer = e->position;
    for (e->position = first; e->position < last;) {
        const tvm_insn *insn = &e->kernel->insns[e->position++];
        if (e->insn_budget == 0)
            return tvm_emit_error(e, TVM_UNSUPPORTED, "lower the unroll numbers",
                                  "the kernel is too long once unrolled");
        e->insn_budget--;
        e->insn = insn;
        e->caches->stamp++;
        if (e->body.failed || e->prologue.failed) return tvm_diag_no_memory(e->diags);
        tvm_status status = emit_one(e, insn);
        if (status != TVM_OK) return status;
        e->caches->explained[insn - e->kernel->insns] = true;
        if (insn->result != TVM_NONE) e->slots[insn->result].version++;
    }
    e->position = outer;
    return TVM_OK;
}

static void declare_registers(const emitter *e, tvm_text *out) {
    const struct {
        const char *type, *prefix;
        uint32_t count;
    } classes[] = {{".pred", "%p", e->next_pred}, {".b32", "%r", e->next_r},   {".b64", "%rd", e->next_rd},
                   {".f32", "%f", e->next_f},     {".f64", "%fd", e->next_fd}, {".b16", "%h", e->next_h},
                   {".b32", "%w", e->next_word}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].count > 0)
            tvm_text_add(out, "\t.reg %s %s<%u>;\n", classes[i].type, classes[i].prefix, classes[i].count);
}

static void write_entry(const emitter *e, tvm_text *out) {
    const char *name = tvm_string(e->program, e->kernel->name);
    tvm_text_add(out, "\n.visible .entry %s(", name);
    tvm_params_write(&e->code->abi, out);
    /* Without .minnctapersm ptxas aims at an occupancy of its own choice, for which it may spill. */
    tvm_text_add(out, "\n)\n.maxntid %u, 1, 1\n.minnctapersm %u\n", e->code->abi.threads,
                 (unsigned)e->kernel->resident);
    if (tvm_cluster_blocks(e->kernel) > 1)
        tvm_text_add(out, ".explicitcluster\n.reqnctapercluster %u, %u, %u\n", e->code->abi.cluster[0],
                     e->code->abi.cluster[1], e->code->abi.cluster[2]);
    tvm_text_puts(out, "{\n");
    declare_registers(e, out);
    tvm_text_append(out, &e->prologue);
    tvm_text_append(out, &e->body);
    tvm_text_add(out, "\tret;\n}\n");
}

/* PTX ISA, "Identifiers": "_" alone is none, and WARP_SZ is a predefined constant. */
static tvm_status check_name(emitter *e) {
    const char *name = e->code->name;
    if (strcmp(name, "_") != 0 && strcmp(name, "WARP_SZ") != 0) return TVM_OK;
    return tvm_emit_error(e, TVM_UNSUPPORTED, "rename the kernel", "kernel '%s': PTX has no such name", name);
}

static tvm_status start_kernel(emitter *e) {
    tvm_status status = check_name(e);
    if (status == TVM_OK) status = tvm_mma_operands_make(e);
    if (status == TVM_OK) status = tvm_caches_make(e);
    return status == TVM_OK ? tvm_shared_plan_make(e) : status;
}

static tvm_status translate_kernel(emitter *e) {
    tvm_status status = tvm_facts_make(e);
    if (status == TVM_OK) status = tvm_slot_uses_make(e);
    if (status != TVM_OK) return status;
    if (e->claims) tvm_fact_claim_values(e);
    tvm_control_plan(e);
    declare_slots(e);
    tvm_params_load(e);
    tvm_mbarriers_plan(e);
    tvm_bulk_prepare(e);
    status = tvm_groups_make(e);
    if (status == TVM_OK) status = tvm_proxy_plan(e);
    e->insn_budget = MAX_EMITTED_INSNS;
    if (status == TVM_OK) status = tvm_emit_range(e, 0, e->kernel->insn_count);
    if (status == TVM_OK) tvm_wgmma_drain(e);
    if (status == TVM_OK) tvm_emit_block_end(e);
    if (status == TVM_OK && (e->body.failed || e->prologue.failed)) status = tvm_diag_no_memory(e->diags);
    return status;
}

/* Does a block of the target have the shared memory that the kernel needs? Else the ABI says that it has not.
 */
static bool is_held(emitter *e) {
    tvm_kernel_abi *abi = &e->code->abi;
    if (e->shared_bytes > tvm_target_shared_bytes(e->target)) {
        *abi = (tvm_kernel_abi){.absence = TVM_ABI_TOO_BIG, .shared_bytes = (uint32_t)e->shared_bytes};
        return false;
    }
    abi->shared_bytes = (uint32_t)e->shared_bytes;
    return true;
}

static void free_emitter(emitter *e) {
    tvm_wgmma_free(e);
    tvm_groups_free(e);
    tvm_slot_uses_free(e);
    tvm_facts_free(e);
    tvm_caches_free(e);
    tvm_text_free(&e->body);
    tvm_text_free(&e->prologue);
    tvm_mma_operands_free(e);
    free(e->bulk.unfenced);
}

/* The tile of a copy-async. */
static bulk_tile tile_of(const emitter *e, const tvm_insn *insn) {
    bulk_tile tile = {.shared = tvm_operands(e->kernel, insn)};
    tile.global = tile.shared + 1 + tvm_slot_shared_layout(e, tile.shared->value)->rank;
    const tvm_operand *extents = tile.global + 1 + e->kernel->slots[tile.global->value].rank;
    tile.rank = extents->value;
    for (unsigned d = 0; d < tile.rank; d++) tile.extent[d] = extents[1 + d].value;
    return tile;
}

static bool copies_fit(emitter *e, char why[BULK_WHY_MAX]) {
    uint32_t end = 0;
    for (uint32_t i = 0; i < e->kernel->insn_count; i++) {
        const tvm_insn *insn = &e->kernel->insns[i];
        bulk_plan plan;
        if (tvm_pipeline_stages(e->kernel, insn)) end = insn->match;
        if (i >= end || insn->op != TVM_OP_COPY_ASYNC) continue;
        const bulk_tile tile = tile_of(e, insn);
        e->insn = insn;
        if (!tvm_bulk_plan_make(e, &tile, BULK_LOAD, &plan, why)) return false;
    }
    return true;
}

bool tvm_copies_fit_engine(const tvm_ir_program *program, uint32_t kernel, tvm_target target, tvm_why *why) {
    char text[BULK_WHY_MAX] = "";
    tvm_kernel_code code = {.name = ""};
    emitter e = {.program = program,
                 .kernel = &program->kernels[kernel],
                 .team = tvm_block_team(&program->kernels[kernel]),
                 .target = target,
                 .code = &code};
    tvm_status status = tvm_mma_operands_make(&e);
    if (status == TVM_OK) status = tvm_caches_make(&e);
    if (status == TVM_OK) status = tvm_shared_plan_make(&e);
    if (status == TVM_OK) status = tvm_facts_make(&e);
    bool fit = status == TVM_OK && copies_fit(&e, text);
    if (!fit) snprintf(why->text, sizeof why->text, "%.*s", (int)sizeof why->text - 1, text);
    free_emitter(&e);
    return fit;
}

tvm_status tvm_emit_kernel(const tvm_ir_program *program, uint32_t kernel, const char *not_parted,
                           tvm_module *module, module_text *out, tvm_diags *diags) {
    emitter e = {.program = program,
                 .kernel = &program->kernels[kernel],
                 .team = tvm_block_team(&program->kernels[kernel]),
                 .target = module->target,
                 .diags = diags,
                 .module = module,
                 .code = &module->kernels[kernel],
                 .not_parted = not_parted,
                 .claims = out->claims,
                 .globals = &out->globals};
    tvm_status status = start_kernel(&e);
    bool held = status == TVM_OK && is_held(&e);
    if (held) status = translate_kernel(&e);
    if (held && status == TVM_OK) {
        write_entry(&e, &out->kernels);
        out->uses_vprintf = out->uses_vprintf || e.uses_vprintf;
        if (e.ptx_version > out->ptx_version) out->ptx_version = e.ptx_version;
    }
    free_emitter(&e);
    return status;
}
