/* What is computed once: at kernel entry, or before a loop. An instruction whose operands are such values is
 * kept as text, so that an equal one shares its register. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "analysis.h"
#include "caches.h"
#include "emit.h"

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

static pure_entry *pure_find(pure_entry *table, uint32_t capacity, const char *string, uint32_t scope) {
    uint32_t at = (uint32_t)(XXH3_64bits_withSeed(string, strlen(string), scope) & (capacity - 1));
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
static reg compute_once(emitter *e, tvm_text *out, uint32_t scope, char reg_class, const char *string) {
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
    e->body = (tvm_text){0};
    tvm_fact_enter_loop(e, frame->scope, insn, e->kernel->insns[insn].match);
    return frame;
}

void tvm_leave_loop(emitter *e) {
    loop_frame *frame = &e->caches->loops[--e->caches->loop_count];
    tvm_text inside = e->body;
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

bool tvm_loop_invariant(const emitter *e, uint32_t expr) {
    const loop_frame *loop = tvm_innermost_loop(e);
    return loop && tvm_fact_invariant(e, expr, loop->scope);
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
    tvm_text inside = e->body;
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
