/* Program to PTX: the frame of module and kernel, and the walk over the instructions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis.h"
#include "caches.h"
#include "emit.h"
#include "shared_plan.h"
#include "uses.h"
#include "wgmma.h"

typedef tvm_status (*emit_function)(emitter *, const tvm_insn *);

static const emit_function emitters[] = {
#define TVM_OP(id, mnemonic, family, result, operands, effects, semantics) tvm_emit_##family,
#include "opcodes.def"
#undef TVM_OP
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

/* ---- what a kernel's translation remembers ---- */

tvm_status tvm_caches_make(emitter *e) {
    const tvm_ir_kernel *kernel = e->kernel;
    caches *c = calloc(1, sizeof *c);
    e->caches = c;
    if (!c) return tvm_diag_no_memory(e->diags);
    size_t exprs = kernel->expr_count + (size_t)1, insns = kernel->insn_count + (size_t)1;
    c->stable_value = calloc(exprs, sizeof *c->stable_value);
    c->local_value = calloc(exprs, sizeof *c->local_value);
    c->local_stamp = calloc(exprs, sizeof *c->local_stamp);
    c->unroll = calloc(insns, sizeof *c->unroll);
    c->weight = calloc(insns, sizeof *c->weight);
    c->reuses = calloc(kernel->slot_count + (size_t)1, sizeof *c->reuses);
    c->explained = calloc(insns, sizeof *c->explained);
    if (!c->stable_value || !c->local_value || !c->local_stamp || !c->unroll || !c->weight || !c->reuses ||
        !c->explained)
        return tvm_diag_no_memory(e->diags);
    c->stamp = 1;
    return TVM_OK;
}

void tvm_caches_free(emitter *e) {
    caches *c = e->caches;
    if (!c) return;
    for (uint32_t i = 0; i < c->pure_capacity; i++) free(c->pure[i].text);
    while (c->loop_count > 0) tvm_leave_loop(e);
    free(c->pure);
    free(c->stable_value);
    free(c->local_value);
    free(c->local_stamp);
    free(c->unroll);
    free(c->weight);
    free(c->reuses);
    free(c->explained);
    free(c);
    e->caches = NULL;
}

static uint64_t hash_text(const char *string, uint32_t scope) {
    uint64_t hash = UINT64_C(14695981039346656037) ^ scope; /* FNV-1a */
    for (; *string; string++) hash = (hash ^ (unsigned char)*string) * UINT64_C(1099511628211);
    return hash;
}

static pure_entry *pure_find(pure_entry *table, uint32_t capacity, const char *string, uint32_t scope) {
    uint32_t at = (uint32_t)(hash_text(string, scope) & (capacity - 1));
    while (table[at].text && (table[at].scope != scope || strcmp(table[at].text, string) != 0))
        at = (at + 1) & (capacity - 1);
    return &table[at];
}

static bool pure_grow(caches *c) {
    uint32_t capacity = c->pure_capacity ? c->pure_capacity * 2 : 256;
    pure_entry *table = calloc(capacity, sizeof *table);
    if (!table) return false;
    for (uint32_t i = 0; i < c->pure_capacity; i++)
        if (c->pure[i].text) *pure_find(table, capacity, c->pure[i].text, c->pure[i].scope) = c->pure[i];
    free(c->pure);
    c->pure = table;
    c->pure_capacity = capacity;
    return true;
}

/* The entry of what is computed once in a scope; new when its value has no name yet. NULL: out of memory. */
static pure_entry *remember(caches *c, uint32_t scope, const char *string) {
    if (c->pure_count * 2 >= c->pure_capacity && !pure_grow(c)) return NULL;
    pure_entry *entry = pure_find(c->pure, c->pure_capacity, string, scope);
    if (entry->text) return entry;
    entry->text = strdup(string);
    if (!entry->text) return NULL;
    c->pure_count++;
    entry->scope = scope;
    return entry;
}

/* The instruction's value; added to *out where it is new. */
static reg compute_once(emitter *e, text *out, uint32_t scope, char reg_class, const char *string) {
    pure_entry *entry = remember(e->caches, scope, string);
    if (!entry) {
        out->failed = true;
        return (reg){"%r0"};
    }
    if (entry->value.name[0]) return entry->value;
    entry->value = reg_class == 'd' ? tvm_new_rd(e) : reg_class == 'p' ? tvm_new_pred(e) : tvm_new_r(e);
    const char *dollar = strchr(string, '$');
    int before = dollar ? (int)(dollar - string) : 0;
    tvm_text_add(out, "\t%.*s%s%s\n", before, string, entry->value.name, dollar ? dollar + 1 : string);
    return entry->value;
}

reg tvm_pure(emitter *e, char reg_class, const char *format, ...) {
    char string[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(string, sizeof string, format, arguments);
    va_end(arguments);
    return compute_once(e, e->caches->in_prologue ? &e->body : &e->prologue, 0, reg_class, string);
}

/* ---- before a loop ---- */

loop_frame *tvm_enter_loop(emitter *e, uint32_t insn) {
    caches *c = e->caches;
    loop_frame *frame = &c->loops[c->loop_count++];
    *frame = (loop_frame){
        .insn = insn, .scope = ++c->scopes, .conditions = e->facts->condition_count, .before = e->body};
    e->body = (text){0};
    tvm_fact_enter_loop(e, frame->scope, insn, e->kernel->insns[insn].match);
    return frame;
}

void tvm_leave_loop(emitter *e) {
    loop_frame *frame = &e->caches->loops[--e->caches->loop_count];
    text inside = e->body;
    e->body = frame->before;
    tvm_text_append(&e->body, &frame->preheader);
    tvm_text_append(&e->body, &inside);
    tvm_text_free(&frame->preheader);
    tvm_text_free(&inside);
}

loop_frame *tvm_innermost_loop(const emitter *e) {
    for (unsigned i = e->caches->loop_count; i-- > 0;)
        if (!e->caches->loops[i].is_unrolled) return &e->caches->loops[i];
    return NULL;
}

reg tvm_hoist(emitter *e, char reg_class, const char *format, ...) {
    char string[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(string, sizeof string, format, arguments);
    va_end(arguments);
    loop_frame *frame = tvm_innermost_loop(e);
    return compute_once(e, &frame->preheader, frame->scope, reg_class, string);
}

reg tvm_hoist_expr(emitter *e, uint32_t expr) {
    caches *c = e->caches;
    loop_frame *frame = tvm_innermost_loop(e);
    char key[24];
    snprintf(key, sizeof key, "expression %u", (unsigned)expr);
    pure_entry *entry = remember(c, frame->scope, key);
    if (!entry) frame->preheader.failed = true;
    if (entry && entry->value.name[0]) return entry->value;
    /* It is emitted as if for an instruction of its own that stands before the loop. */
    text inside = e->body;
    e->body = frame->preheader;
    unsigned conditions = tvm_fact_set_aside(e, frame->conditions);
    c->stamp++;
    reg value = tvm_emit_expr(e, expr);
    c->stamp++;
    tvm_fact_leave(e, conditions);
    frame->preheader = e->body;
    e->body = inside;
    entry = remember(c, frame->scope, key);
    if (entry) entry->value = value;
    return value;
}

/* ptxas does not see through a shuffle, be it with the lane itself. */
reg tvm_hoist_kept(emitter *e, char reg_class, reg value) {
    reg lane = tvm_pure(e, 'r', "mov.u32 $, %%laneid;");
    if (reg_class == 'r')
        return tvm_hoist(e, 'r', "shfl.sync.idx.b32 $, %s, %s, 31, -1;", value.name, lane.name);
    return tvm_hoist(e, 'd',
                     "{ .reg .b32 l, h; mov.b64 {l, h}, %s; shfl.sync.idx.b32 l, l, %s, 31, -1; "
                     "shfl.sync.idx.b32 h, h, %s, 31, -1; mov.b64 $, {l, h}; }",
                     value.name, lane.name, lane.name);
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
            if (i > 0 && kernel->insns[i - 1].result == operands[o].value) slot->reads_at_once++;
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
        } else if (slot->kind == TVM_SLOT_GLOBAL) {
            reg r = tvm_new_rd(e);
            memcpy(e->slots[s].reg, r.name, sizeof r.name);
        } else if (slot->kind == TVM_SLOT_REGISTER) {
            e->slots[s].first_word = e->next_word;
            e->slots[s].words = tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e, s)), slot->dtype.bits);
            e->next_word += e->slots[s].words;
        }
    }
}

static bool param_is_wide(const tvm_slot *slot) {
    return slot->kind == TVM_SLOT_GLOBAL || (slot->kind == TVM_SLOT_SCALAR && slot->dtype.bits == 64);
}

static void load_params(emitter *e) {
    for (uint32_t p = 0; p < e->kernel->param_count; p++) {
        const tvm_slot *slot = &e->kernel->slots[p];
        bool is_float = slot->kind == TVM_SLOT_SCALAR && slot->dtype.kind == TVM_KIND_FLOAT;
        tvm_emit_prologue(e, "ld.param.%c%u %s, [param_%u];", is_float ? 'f' : 'b',
                          param_is_wide(slot) ? 64U : 32U, e->slots[p].reg, p);
    }
    e->launch_tensor_count = tvm_launch_tensors(e->kernel, e->launch_tensors);
    for (uint32_t i = 0; i < e->launch_tensor_count; i++)
        tvm_emit_prologue(e, "ld.param.b64 %s, [param_%u];", e->slots[e->launch_tensors[i].slot].reg,
                          e->kernel->param_count + i);
}

uint32_t tvm_device_param(const emitter *e, tvm_expr_op op) {
    return e->kernel->param_count + e->launch_tensor_count + (op == TVM_EXPR_TARGET);
}

/* ---- instructions ---- */

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
        bool by_wgmma = tvm_wgmma_takes(e, insn);
        if (!by_wgmma) tvm_wgmma_settle(e, insn);
        tvm_status status = by_wgmma ? tvm_emit_wgmma(e, insn) : emitters[insn->op](e, insn);
        if (status != TVM_OK) return status;
        if (insn->result != TVM_NONE) e->slots[insn->result].version++;
    }
    tvm_wgmma_settle(e, NULL);
    e->position = outer;
    return TVM_OK;
}

static void declare_registers(const emitter *e, text *out) {
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

static void write_entry(const emitter *e, text *out) {
    const char *name = tvm_string(e->program, e->kernel->name);
    tvm_text_add(out, "\n.visible .entry %s(", name);
    for (uint32_t p = 0; p < e->kernel->param_count; p++)
        tvm_text_add(out, "%s\n\t.param .b%u param_%u", p ? "," : "",
                     param_is_wide(&e->kernel->slots[p]) ? 64U : 32U, p);
    for (uint32_t i = 0; i < e->launch_tensor_count; i++)
        tvm_text_add(out, "%s\n\t.param .b64 param_%u", e->kernel->param_count + i ? "," : "",
                     e->kernel->param_count + i);
    if (e->reads_device) {
        uint32_t first = tvm_device_param(e, TVM_EXPR_MULTIPROCESSORS);
        tvm_text_add(out, "%s\n\t.param .b32 param_%u,\n\t.param .b32 param_%u", first ? "," : "", first,
                     tvm_device_param(e, TVM_EXPR_TARGET));
    }
    /* Without .minnctapersm ptxas aims at an occupancy of its own choice, for which it may spill. */
    tvm_text_add(out, "\n)\n.maxntid %u, 1, 1\n.minnctapersm %u\n{\n", e->code->threads,
                 (unsigned)e->kernel->resident);
    declare_registers(e, out);
    tvm_text_append(out, &e->prologue);
    tvm_text_append(out, &e->body);
    tvm_text_add(out, "\tret;\n}\n");
}

static tvm_status check_shared(emitter *e) {
    uint64_t bytes = (uint64_t)e->scratch_offset + e->scratch_bytes;
    unsigned limit = tvm_target_shared_bytes(e->target);
    char name[16];
    e->insn = NULL;
    if (bytes > limit)
        return tvm_emit_error(e, TVM_UNSUPPORTED, NULL,
                              "kernel %s needs %llu bytes of shared memory; a block on %s has at most %u",
                              e->code->name, (unsigned long long)bytes, tvm_target_name(e->target, name),
                              limit);
    e->code->shared_bytes = (unsigned)bytes;
    return TVM_OK;
}

/* PTX ISA, "Identifiers": "_" alone is none, and WARP_SZ is a predefined constant. */
static tvm_status check_name(emitter *e) {
    const char *name = e->code->name;
    if (strcmp(name, "_") != 0 && strcmp(name, "WARP_SZ") != 0) return TVM_OK;
    return tvm_emit_error(e, TVM_UNSUPPORTED, "rename the kernel", "kernel '%s': PTX has no such name", name);
}

static tvm_status translate_kernel(emitter *e) {
    e->slots = calloc(e->kernel->slot_count + (size_t)1, sizeof *e->slots);
    if (!e->slots) return tvm_diag_no_memory(e->diags);
    tvm_status status = check_name(e);
    if (status == TVM_OK) status = tvm_caches_make(e);
    if (status == TVM_OK) status = tvm_facts_make(e);
    if (status == TVM_OK) status = tvm_slot_uses_make(e);
    if (status != TVM_OK) return status;
    tvm_control_plan(e);
    declare_slots(e);
    load_params(e);
    status = tvm_shared_plan_make(e);
    if (status == TVM_OK) status = tvm_wgmma_plan(e);
    e->insn_budget = MAX_EMITTED_INSNS;
    if (status == TVM_OK) status = tvm_emit_range(e, 0, e->kernel->insn_count);
    if (status == TVM_OK) status = check_shared(e);
    if (status == TVM_OK && (e->body.failed || e->prologue.failed)) status = tvm_diag_no_memory(e->diags);
    return status;
}

static tvm_status emit_kernel(const tvm_ir_program *program, const tvm_ir_kernel *kernel, tvm_module *module,
                              tvm_kernel_code *code, text *globals, text *out, bool *uses_vprintf,
                              tvm_diags *diags) {
    emitter e = {.program = program,
                 .kernel = kernel,
                 .target = module->target,
                 .diags = diags,
                 .module = module,
                 .code = code,
                 .globals = globals};
    tvm_status status = translate_kernel(&e);
    if (status == TVM_OK) {
        write_entry(&e, out);
        *uses_vprintf = *uses_vprintf || e.uses_vprintf;
    }
    tvm_wgmma_free(&e);
    tvm_slot_uses_free(&e);
    tvm_facts_free(&e);
    tvm_caches_free(&e);
    tvm_text_free(&e.body);
    tvm_text_free(&e.prologue);
    free(e.slots);
    return status;
}

/* ---- the module ---- */

/* The lowest PTX ISA version that has the target (PTX ISA, "Release Notes"). */
static const char *ptx_version(tvm_target target) {
    if (target.arch >= 120) return "8.7";
    if (target.arch >= 103) return "8.8";
    if (target.arch >= 100) return "8.6";
    return "8.0";
}

static bool start_module(tvm_module *module, const tvm_ir_program *program) {
    module->kernels = calloc(program->kernel_count + (size_t)1, sizeof *module->kernels);
    if (!module->kernels) return false;
    module->kernel_count = program->kernel_count;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const char *name = tvm_string(program, program->kernels[k].name);
        size_t size = strlen(name) + 1;
        struct kept *node = malloc(sizeof *node + size);
        if (!node) return false;
        node->next = module->owner;
        module->owner = node;
        memcpy(node->bytes, name, size);
        bool is_for = tvm_kernel_is_for(&program->kernels[k], module->target.arch);
        uint32_t threads = is_for ? 32 * program->kernels[k].warps : 0;
        module->kernels[k] = (tvm_kernel_code){.name = node->bytes,
                                               .threads = threads,
                                               .registers = -1,
                                               .spill_stores = -1,
                                               .spill_loads = -1,
                                               .stack_bytes = -1};
    }
    return true;
}

static void write_module(tvm_module *module, const text *globals, const text *kernels, bool uses_vprintf,
                         text *out) {
    char name[16];
    tvm_text_add(out, ".version %s\n.target %s\n.address_size 64\n\n", ptx_version(module->target),
                 tvm_target_name(module->target, name));
    tvm_text_add(out, ".extern .shared .align %d .b8 tvm_smem[];\n", SHARED_ALIGNMENT_MAX);
    if (uses_vprintf)
        tvm_text_add(
            out, ".extern .func (.param .b32 result) vprintf(.param .b64 format, .param .b64 arguments);\n");
    tvm_text_append(out, globals);
    tvm_text_append(out, kernels);
}

tvm_status tvm_translate(const tvm_ir_program *program, tvm_target target, tvm_module **module_out,
                         tvm_diags *diags) {
    *module_out = NULL;
    tvm_module *module = calloc(1, sizeof *module);
    if (!module) return tvm_diag_no_memory(diags);
    module->target = target;
    text globals = {0}, kernels = {0}, all = {0};
    bool uses_vprintf = false;
    tvm_status status = start_module(module, program) ? TVM_OK : tvm_diag_no_memory(diags);
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK; k++)
        if (module->kernels[k].threads)
            status = emit_kernel(program, &program->kernels[k], module, &module->kernels[k], &globals,
                                 &kernels, &uses_vprintf, diags);
    if (status == TVM_OK) {
        write_module(module, &globals, &kernels, uses_vprintf, &all);
        if (all.failed) status = tvm_diag_no_memory(diags);
    }
    tvm_text_free(&globals);
    tvm_text_free(&kernels);
    if (status != TVM_OK) {
        tvm_text_free(&all);
        tvm_module_free(module);
        return status;
    }
    module->ptx = all.data;
    module->ptx_size = all.size;
    *module_out = module;
    return TVM_OK;
}

void tvm_module_free(tvm_module *module) {
    if (!module) return;
    for (size_t k = 0; module->kernels && k < module->kernel_count; k++) free(module->kernels[k].selections);
    free(module->kernels);
    for (struct kept *node = module->owner, *next; node; node = next) {
        next = node->next;
        free(node);
    }
    free(module->ptx);
    free(module->cubin);
    free(module);
}
