/* What is computed once: at the beginning of a section, the kernel's at last, or before a loop. An
 * instruction whose operands are such values is kept as text, so that an equal one shares its register. */
#include "hoist.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "analysis.h"

tvm_status tvm_hoist_make(emitter *e) {
    e->hoist = calloc(1, sizeof *e->hoist);
    return e->hoist ? TVM_OK : tvm_diag_no_memory(e->k->diags);
}

void tvm_hoist_free(emitter *e) {
    hoisting *h = e->hoist;
    if (!h) return;
    for (uint32_t i = 0; i < h->pure_capacity; i++) free(h->pure[i].text);
    while (h->loop_count > 0) tvm_leave_loop(e);
    free(h->pure);
    free(h);
    e->hoist = NULL;
}

static pure_entry *pure_find(pure_entry *table, uint32_t capacity, const char *string, uint32_t scope) {
    uint32_t at = (uint32_t)(XXH3_64bits_withSeed(string, strlen(string), scope) & (capacity - 1));
    while (table[at].text && (table[at].scope != scope || strcmp(table[at].text, string) != 0))
        at = (at + 1) & (capacity - 1);
    return &table[at];
}

static bool pure_grow(hoisting *h) {
    uint32_t capacity = h->pure_capacity ? h->pure_capacity * 2 : 256;
    pure_entry *table = calloc(capacity, sizeof *table);
    if (!table) return false;
    for (uint32_t i = 0; i < h->pure_capacity; i++)
        if (h->pure[i].text) *pure_find(table, capacity, h->pure[i].text, h->pure[i].scope) = h->pure[i];
    free(h->pure);
    h->pure = table;
    h->pure_capacity = capacity;
    return true;
}

/* The entry of what is computed once in a scope; new when its value has no name yet. NULL: out of memory. */
static pure_entry *remember(hoisting *h, uint32_t scope, const char *string) {
    if (h->pure_count * 2 >= h->pure_capacity && !pure_grow(h)) return NULL;
    pure_entry *entry = pure_find(h->pure, h->pure_capacity, string, scope);
    if (entry->text) return entry;
    entry->text = strdup(string);
    if (!entry->text) return NULL;
    h->pure_count++;
    entry->scope = scope;
    return entry;
}

static bool is_known(const hoisting *h, uint32_t scope, const char *string) {
    return h->pure_capacity && pure_find(h->pure, h->pure_capacity, string, scope)->text;
}

/* The instruction's value; added to *out where it is new. */
static reg compute_once(emitter *e, tvm_text *out, uint32_t scope, char reg_class, const char *string) {
    pure_entry *entry = remember(e->hoist, scope, string);
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

static reg at_entry(emitter *e, char reg_class, const char *string) {
    return compute_once(e, e->values.in_prologue ? &e->body : &e->prologue, 0, reg_class, string);
}

reg tvm_pure(emitter *e, char reg_class, const char *format, ...) {
    hoisting *h = e->hoist;
    char string[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(string, sizeof string, format, arguments);
    va_end(arguments);
    if (e->values.in_prologue || is_known(h, 0, string)) return at_entry(e, reg_class, string);
    for (unsigned i = 0; i < h->section_count; i++) {
        section_frame *section = &h->sections[i];
        if (i + 1 == h->section_count || is_known(h, section->scope, string))
            return compute_once(e, &section->beginning, section->scope, reg_class, string);
    }
    return at_entry(e, reg_class, string);
}

reg tvm_pure_at_entry(emitter *e, char reg_class, const char *format, ...) {
    char string[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(string, sizeof string, format, arguments);
    va_end(arguments);
    return at_entry(e, reg_class, string);
}

/* ---- sections ---- */

void tvm_enter_section(emitter *e) {
    hoisting *h = e->hoist;
    h->sections[h->section_count++] =
        (section_frame){.scope = ++h->scopes, .loops = h->loop_count, .before = e->body};
    e->body = (tvm_text){0};
}

void tvm_leave_section(emitter *e) {
    section_frame *section = &e->hoist->sections[--e->hoist->section_count];
    tvm_text inside = e->body;
    e->body = section->before;
    tvm_text_append(&e->body, &section->beginning);
    tvm_text_append(&e->body, &inside);
    tvm_text_free(&section->beginning);
    tvm_text_free(&inside);
}

/* ---- before a loop ---- */

loop_frame *tvm_enter_loop(emitter *e, uint32_t insn) {
    hoisting *h = e->hoist;
    loop_frame *frame = &h->loops[h->loop_count++];
    *frame = (loop_frame){
        .insn = insn, .scope = ++h->scopes, .conditions = e->k->facts->condition_count, .before = e->body};
    e->body = (tvm_text){0};
    tvm_fact_enter_loop(e->k, frame->scope, insn, e->k->kernel->insns[insn].match);
    return frame;
}

void tvm_leave_loop(emitter *e) {
    loop_frame *frame = &e->hoist->loops[--e->hoist->loop_count];
    tvm_text inside = e->body;
    e->body = frame->before;
    tvm_text_append(&e->body, &frame->preheader);
    tvm_text_append(&e->body, &inside);
    tvm_text_free(&frame->preheader);
    tvm_text_free(&inside);
}

loop_frame *tvm_innermost_loop(const emitter *e) {
    hoisting *h = e->hoist;
    unsigned around = h->section_count ? h->sections[h->section_count - 1].loops : 0;
    for (unsigned i = h->loop_count; i-- > around;)
        if (!h->loops[i].is_unrolled) return &h->loops[i];
    return NULL;
}

bool tvm_loop_invariant(const emitter *e, uint32_t expr) {
    const loop_frame *loop = tvm_innermost_loop(e);
    return loop && tvm_fact_invariant(e->k, expr, loop->scope);
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
    hoisting *h = e->hoist;
    loop_frame *frame = tvm_innermost_loop(e);
    char key[24];
    snprintf(key, sizeof key, "expression %u", (unsigned)expr);
    pure_entry *entry = remember(h, frame->scope, key);
    if (!entry) frame->preheader.failed = true;
    if (entry && entry->value.name[0]) return entry->value;
    /* It is emitted as if for an instruction of its own that stands before the loop. */
    tvm_text inside = e->body;
    e->body = frame->preheader;
    unsigned conditions = tvm_fact_set_aside(e->k, frame->conditions);
    e->values.stamp++;
    reg value = tvm_emit_expr(e, expr);
    e->values.stamp++;
    tvm_fact_leave(e->k, conditions);
    frame->preheader = e->body;
    e->body = inside;
    entry = remember(h, frame->scope, key);
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
