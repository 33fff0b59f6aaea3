/* What every emitter uses: text, virtual registers, the words of register tensors, the selection record. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "analysis.h"
#include "groups.h"
#include "module.h"
#include "numbers.h"

void tvm_emit(emitter *e, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tvm_text_bytes(&e->body, "\t", 1);
    tvm_text_addv(&e->body, format, arguments);
    tvm_text_bytes(&e->body, "\n", 1);
    va_end(arguments);
}

void tvm_emit_prologue(emitter *e, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    tvm_text_bytes(&e->prologue, "\t", 1);
    tvm_text_addv(&e->prologue, format, arguments);
    tvm_text_bytes(&e->prologue, "\n", 1);
    va_end(arguments);
}

/* ---- registers ---- */

/* Eight digits are more than a kernel within the limits of a program can use. */
static inline reg numbered(const char *prefix, uint32_t number) {
    reg r = {""};
    size_t length = strlen(prefix); /* of a literal: known when this is compiled */
    unsigned digits = 1;
    number %= 10000000U;
    for (uint32_t rest = number / 10; rest; rest /= 10) digits++;
    memcpy(r.name, prefix, length);
    for (unsigned i = digits; i-- > 0; number /= 10) r.name[length + i] = (char)('0' + number % 10);
    return r;
}

reg tvm_pred(uint32_t number) {
    return numbered("%p", number);
}
reg tvm_new_pred(emitter *e) {
    return tvm_pred(e->next_pred++);
}
reg tvm_new_r(emitter *e) {
    return numbered("%r", e->next_r++);
}
reg tvm_new_rd(emitter *e) {
    return numbered("%rd", e->next_rd++);
}
reg tvm_new_f(emitter *e) {
    return numbered("%f", e->next_f++);
}
reg tvm_new_fd(emitter *e) {
    return numbered("%fd", e->next_fd++);
}
reg tvm_new_h(emitter *e) {
    return numbered("%h", e->next_h++);
}
uint32_t tvm_new_label(emitter *e) {
    return e->next_label++;
}

reg tvm_both(emitter *e, reg a, reg b) {
    if (!a.name[0] || !b.name[0]) return a.name[0] ? a : b;
    reg both = tvm_new_pred(e);
    tvm_emit(e, "and.pred %s, %s, %s;", both.name, a.name, b.name);
    return both;
}

reg tvm_slot_word(const emitter *e, uint32_t slot, uint32_t i) {
    return numbered("%w", e->slots[slot].first_word + i);
}

void tvm_emit_trap(emitter *e, reg predicate, bool when) {
    tvm_emit(e, "@%s%s trap;", when ? "" : "!", predicate.name);
}

bool tvm_emit_byte_guard(emitter *e, uint32_t index, unsigned bits) {
    uint32_t whole = tvm_bits_whole(bits);
    if (tvm_fact_divisor(e->k, index) % whole == 0) return false;
    reg at = tvm_emit_expr(e, index), rest = tvm_new_r(e), p = tvm_new_pred(e);
    if (e->k->kernel->exprs[index].type.bits == 64) {
        reg narrow = tvm_new_r(e);
        tvm_emit(e, "cvt.u32.u64 %s, %s;", narrow.name, at.name);
        at = narrow;
    }
    tvm_emit(e, "and.b32 %s, %s, %u;", rest.name, at.name, whole - 1);
    tvm_emit(e, "setp.ne.u32 %s, %s, 0;", p.name, rest.name);
    tvm_emit_trap(e, p, true);
    return true;
}

uint32_t tvm_tensor_words(uint32_t locals, unsigned bits) {
    return (uint32_t)(((uint64_t)locals * bits + 31) / 32);
}

/* The number of a multiprocessor has no bit 31. */
static reg unknown_zero(emitter *e) {
    reg number = tvm_pure(e, 'r', "mov.u32 $, %%smid;");
    return tvm_pure(e, 'r', "shr.u32 $, %s, 31;", number.name);
}

reg tvm_hidden_word(emitter *e, uint32_t word) {
    return tvm_pure(e, 'r', "or.b32 $, %s, 0x%08x;", unknown_zero(e).name, (unsigned)word);
}

void tvm_hide_constants(emitter *e, uint32_t slot) {
    reg zero = unknown_zero(e);
    uint32_t count =
        tvm_tensor_words(tvm_layout_locals(tvm_slot_layout(e->k, slot)), tvm_slot_dtype(e->k, slot).bits);
    for (uint32_t i = 0; i < count; i++) {
        reg word = tvm_slot_word(e, slot, i);
        tvm_emit(e, "or.b32 %s, %s, %s;", word.name, word.name, zero.name);
    }
}

/* ---- elements out of words ---- */

static reg read_narrow(emitter *e, uint32_t slot, uint64_t bit, unsigned bits, bool sign) {
    reg low = tvm_slot_word(e, slot, (uint32_t)(bit / 32)), out = tvm_new_r(e);
    unsigned at = (unsigned)(bit % 32);
    if (bits == 8 && at % 8 == 0) {
        unsigned byte = at / 8, fill = sign ? 8 + byte : 4;
        tvm_emit(e, "prmt.b32 %s, %s, 0, 0x%x%x%x%x;", out.name, low.name, fill, fill, fill, byte);
    } else if (bits == 16 && at % 16 == 0) {
        unsigned byte = at / 8, fill = sign ? 9 + byte : 4;
        tvm_emit(e, "prmt.b32 %s, %s, 0, 0x%x%x%x%x;", out.name, low.name, fill, fill, byte + 1, byte);
    } else {
        if (at + bits > 32) {
            reg high = tvm_slot_word(e, slot, (uint32_t)(bit / 32) + 1), joined = tvm_new_r(e);
            tvm_emit(e, "shf.r.wrap.b32 %s, %s, %s, %u;", joined.name, low.name, high.name, at);
            low = joined;
            at = 0;
        }
        tvm_emit(e, "bfe.%s %s, %s, %u, %u;", sign ? "s32" : "u32", out.name, low.name, at, bits);
    }
    return out;
}

/* The runs of bits of an element, put together. Of a signed one the last run has the sign bit complemented:
 * sign-extended that is -1 for what should be 0, and 0 for -1. */
static reg read_packed(emitter *e, uint32_t slot, uint32_t local, bool sign) {
    tvm_packing_run runs[TVM_PACKING_RUNS];
    tvm_dtype type = tvm_slot_dtype(e->k, slot);
    uint32_t complement = tvm_packing_complement(tvm_slot_packing(e->k, slot), type);
    unsigned count = tvm_packing_runs(tvm_slot_packing(e->k, slot), tvm_slot_dtype(e->k, slot), local, runs);
    reg code = {""};
    for (unsigned i = count; i-- > 0;) {
        bool first = i == count - 1;
        reg part = tvm_new_r(e);
        tvm_emit(e, "bfe.%s %s, %s, %u, %u;", sign && first ? "s32" : "u32", part.name,
                 tvm_slot_word(e, slot, runs[i].bit / 32).name, (unsigned)(runs[i].bit % 32),
                 (unsigned)runs[i].count);
        if (first) {
            code = part;
        } else {
            reg joined = tvm_new_r(e);
            tvm_emit(e, "mad.lo.u32 %s, %s, %u, %s;", joined.name, code.name, 1u << runs[i].count, part.name);
            code = joined;
        }
    }
    if (complement) {
        reg whole = tvm_new_r(e);
        uint32_t ones = sign ? ~(complement - 1) : complement;
        tvm_emit(e, "xor.b32 %s, %s, 0x%x;", whole.name, code.name, (unsigned)ones);
        code = whole;
    }
    return code;
}

void tvm_read_halves(emitter *e, uint32_t slot, uint32_t word, reg halves[2]) {
    halves[0] = tvm_new_h(e);
    halves[1] = tvm_new_h(e);
    tvm_emit(e, "mov.b32 {%s, %s}, %s;", halves[0].name, halves[1].name, tvm_slot_word(e, slot, word).name);
}

reg tvm_read_element(emitter *e, uint32_t slot, uint32_t local, bool extend) {
    tvm_dtype type = tvm_slot_dtype(e->k, slot);
    if (tvm_slot_packing(e->k, slot) != TVM_PACKING_LINEAR)
        return read_packed(e, slot, local, extend && type.kind == TVM_KIND_INT);
    uint64_t bit = (uint64_t)local * type.bits;
    uint32_t word = (uint32_t)(bit / 32);
    reg low = tvm_slot_word(e, slot, word);
    if (type.bits == 64) {
        reg out = type.kind == TVM_KIND_FLOAT ? tvm_new_fd(e) : tvm_new_rd(e);
        tvm_emit(e, "mov.b64 %s, {%s, %s};", out.name, low.name, tvm_slot_word(e, slot, word + 1).name);
        return out;
    }
    if (type.bits == 32) {
        reg out = type.kind == TVM_KIND_FLOAT ? tvm_new_f(e) : tvm_new_r(e);
        tvm_emit(e, "mov.b32 %s, %s;", out.name, low.name);
        return out;
    }
    if (type.bits == 16 && type.kind == TVM_KIND_FLOAT) {
        reg halves[2];
        tvm_read_halves(e, slot, word, halves);
        return halves[local % 2];
    }
    return read_narrow(e, slot, bit, type.bits, extend && type.kind == TVM_KIND_INT);
}

/* ---- elements into words ---- */

static bool begin(emitter *e, element_writer *w, uint32_t slot, bool apart) {
    *w = (element_writer){.slot = slot, .bits = tvm_slot_dtype(e->k, slot).bits};
    w->built = calloc(e->slots[slot].words ? e->slots[slot].words : 1, sizeof *w->built);
    w->packed = tvm_slot_packing(e->k, slot) != TVM_PACKING_LINEAR;
    w->apart = apart && !w->packed;
    if (w->packed) w->built_count = e->slots[slot].words;
    if (w->built) return true;
    w->failed = true;
    tvm_diag_no_memory(e->k->diags);
    return false;
}

reg tvm_write_place(emitter *e, const element_writer *w) {
    bool own = w->apart && w->built_count < e->slots[w->slot].words;
    return own ? tvm_slot_word(e, w->slot, w->built_count) : tvm_new_r(e);
}

bool tvm_write_begin(emitter *e, element_writer *w, uint32_t slot) {
    return begin(e, w, slot, false);
}

bool tvm_write_begin_apart(emitter *e, element_writer *w, uint32_t slot, bool apart) {
    return begin(e, w, slot, apart);
}

static void push_word(emitter *e, element_writer *w, reg word) {
    if (w->failed || w->built_count >= e->slots[w->slot].words) return;
    reg place = tvm_slot_word(e, w->slot, w->built_count);
    if (w->apart && strcmp(place.name, word.name) != 0) tvm_emit(e, "mov.b32 %s, %s;", place.name, word.name);
    w->built[w->built_count++] = word;
    w->word = w->built_count;
    w->filled = 0;
}

/* Two 16-bit elements make a word. */
static void write_half(emitter *e, element_writer *w, reg value, bool is_float) {
    if (w->filled == 0) {
        w->half = value;
        w->filled = 16;
        return;
    }
    reg word = tvm_write_place(e, w);
    if (is_float)
        tvm_emit(e, "mov.b32 %s, {%s, %s};", word.name, w->half.name, value.name);
    else
        tvm_emit(e, "prmt.b32 %s, %s, %s, 0x5410;", word.name, w->half.name, value.name);
    push_word(e, w, word);
}

/* An element of any width below 16, or 8: goes on top of the bits collected. */
static void write_bits(emitter *e, element_writer *w, reg value) {
    unsigned room = 32 - w->filled;
    if (w->filled == 0) {
        w->pending = value;
    } else {
        unsigned length = w->bits < room ? w->bits : room;
        reg joined = tvm_new_r(e);
        if (length == 8 && w->filled % 8 == 0) {
            static const unsigned selectors[4] = {0x3214, 0x3240, 0x3410, 0x4210};
            tvm_emit(e, "prmt.b32 %s, %s, %s, 0x%04x;", joined.name, w->pending.name, value.name,
                     selectors[w->filled / 8]);
        } else {
            tvm_emit(e, "bfi.b32 %s, %s, %s, %u, %u;", joined.name, value.name, w->pending.name, w->filled,
                     length);
        }
        w->pending = joined;
    }
    w->filled += w->bits;
    if (w->filled < 32) return;
    unsigned over = w->filled - 32;
    push_word(e, w, w->pending);
    if (over == 0) return;
    reg rest = tvm_new_r(e);
    tvm_emit(e, "shr.u32 %s, %s, %u;", rest.name, value.name, w->bits - over);
    w->pending = rest;
    w->filled = over;
}

/* Each run of bits into its word, which begins as zero. */
static void write_packed(emitter *e, element_writer *w, reg value) {
    tvm_packing_run runs[TVM_PACKING_RUNS];
    unsigned count =
        tvm_packing_runs(tvm_slot_packing(e->k, w->slot), tvm_slot_dtype(e->k, w->slot), w->local, runs);
    uint32_t complement =
        tvm_packing_complement(tvm_slot_packing(e->k, w->slot), tvm_slot_dtype(e->k, w->slot));
    if (complement) {
        reg stored = tvm_new_r(e);
        tvm_emit(e, "xor.b32 %s, %s, 0x%x;", stored.name, value.name, (unsigned)complement);
        value = stored;
    }
    for (unsigned i = 0; i < count; i++) {
        reg part = value, *word = &w->built[runs[i].bit / 32], joined = tvm_new_r(e);
        if (runs[i].at > 0) {
            part = tvm_new_r(e);
            tvm_emit(e, "shr.u32 %s, %s, %u;", part.name, value.name, (unsigned)runs[i].at);
        }
        tvm_emit(e, "bfi.b32 %s, %s, %s, %u, %u;", joined.name, part.name, word->name[0] ? word->name : "0",
                 (unsigned)(runs[i].bit % 32), (unsigned)runs[i].count);
        *word = joined;
    }
    w->local++;
}

/* The value's register may be written again before the end, unless it is the word's own. */
static void write_whole(emitter *e, element_writer *w, reg value) {
    reg word = tvm_write_place(e, w);
    if (strcmp(word.name, value.name) != 0) tvm_emit(e, "mov.b32 %s, %s;", word.name, value.name);
    push_word(e, w, word);
}

void tvm_write_element(emitter *e, element_writer *w, reg value) {
    bool is_float = tvm_slot_dtype(e->k, w->slot).kind == TVM_KIND_FLOAT;
    if (w->packed) {
        write_packed(e, w, value);
        return;
    }
    w->local++;
    if (w->bits == 64) {
        reg low = tvm_new_r(e), high = tvm_new_r(e);
        if (w->apart && w->built_count + 1 < e->slots[w->slot].words) {
            low = tvm_slot_word(e, w->slot, w->built_count);
            high = tvm_slot_word(e, w->slot, w->built_count + 1);
        }
        tvm_emit(e, "mov.b64 {%s, %s}, %s;", low.name, high.name, value.name);
        push_word(e, w, low);
        push_word(e, w, high);
    } else if (w->bits == 32) {
        write_whole(e, w, value);
    } else if (w->bits == 16) {
        write_half(e, w, value, is_float);
    } else {
        write_bits(e, w, value);
    }
}

void tvm_write_word(emitter *e, element_writer *w, reg word) {
    if (w->bits) w->local += 32 / w->bits;
    write_whole(e, w, word);
}

void tvm_write_end(emitter *e, element_writer *w) {
    if (w->filled > 0 && w->bits == 16 && tvm_slot_dtype(e->k, w->slot).kind == TVM_KIND_FLOAT) {
        reg word = tvm_new_r(e);
        tvm_emit(e, "mov.b32 %s, {%s, %s};", word.name, w->half.name, w->half.name);
        push_word(e, w, word);
    } else if (w->filled > 0) {
        push_word(e, w, w->bits == 16 ? w->half : w->pending);
    }
    for (uint32_t i = 0; i < w->built_count && !w->apart; i++)
        tvm_emit(e, "mov.b32 %s, %s;", tvm_slot_word(e, w->slot, i).name, w->built[i].name);
    free(w->built);
    w->built = NULL;
}

/* ---- values of the thread, computed at kernel entry ---- */

reg tvm_thread_id(emitter *e) {
    reg thread = tvm_pure(e, 'r', "mov.u32 $, %%tid.x;");
    if (e->team.first > 0) thread = tvm_pure(e, 'r', "sub.u32 $, %s, %u;", thread.name, 32 * e->team.first);
    return e->teams > 1 ? tvm_pure_modulo(e, thread, tvm_team_threads(e->team)) : thread;
}

reg tvm_shared_base(emitter *e) {
    return tvm_pure(e, 'r', "mov.u32 $, tvm_smem;");
}

/* PTX ISA, "Matrix Descriptor Format": an address is encoded as (x & 0x3FFFF) >> 4. What lies above is the
 * rank of a cluster's block, on a GPU from bit 24 on, and would become part of the leading offset. */
reg tvm_matrix_base(emitter *e) {
    reg base = tvm_shared_base(e);
    if (tvm_cluster_blocks(e->k->kernel) == 1) return base;
    return tvm_pure(e, 'r', "and.b32 $, %s, 0x3ffff;", base.name);
}

bool tvm_thread_coordinate(emitter *e, const tvm_layout *layout, unsigned dim, reg *out) {
    return tvm_coordinate_of(e, layout, dim, tvm_thread_id(e), out);
}

/* ptxas 13.0 divides by constants as by any number, in some 20 instructions. By what is no power of two the
 * quotient is the upper part of a product: with 2^s < by < 2^(s + 1) and m = ceil(2^(32 + s) / by), which
 * fits a word, x m / 2^(32 + s) is no less than x / by, and for x < 2^31 less than 1 / by above it (Granlund
 * and Montgomery, "Division by Invariant Integers using Multiplication", 1994). */
reg tvm_pure_divide(emitter *e, reg value, uint32_t by) {
    unsigned shift = tvm_log2_floor(by);
    if (by == 1) return value;
    if (tvm_is_power_of_two(by)) return tvm_pure(e, 'r', "shr.u32 $, %s, %u;", value.name, shift);
    uint64_t factor = ((UINT64_C(1) << (32 + shift)) + by - 1) / by;
    reg high = tvm_pure(e, 'r', "mul.hi.u32 $, %s, %u;", value.name, (unsigned)factor);
    return tvm_pure(e, 'r', "shr.u32 $, %s, %u;", high.name, shift);
}

reg tvm_pure_modulo(emitter *e, reg value, uint32_t by) {
    if (tvm_is_power_of_two(by)) return tvm_pure(e, 'r', "and.b32 $, %s, %u;", value.name, by - 1);
    reg whole = tvm_pure_scale(e, tvm_pure_divide(e, value, by), by);
    return tvm_pure(e, 'r', "sub.u32 $, %s, %s;", value.name, whole.name);
}

reg tvm_pure_scale(emitter *e, reg value, uint32_t by) {
    if (by == 1) return value;
    if (tvm_is_power_of_two(by))
        return tvm_pure(e, 'r', "shl.b32 $, %s, %u;", value.name, tvm_log2_floor(by));
    return tvm_pure(e, 'r', "mul.lo.u32 $, %s, %u;", value.name, by);
}

bool tvm_coordinate_of(emitter *e, const tvm_layout *layout, unsigned dim, reg thread, reg *out) {
    bool any = false;
    uint32_t below = 1, total = tvm_layout_threads(layout);
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t m = layout->spatial[i];
        uint32_t size = m < 0 ? (uint32_t)-m : layout->mode_size[m];
        if (m >= 0 && layout->mode_dim[m] == dim) {
            uint32_t stride = 1;
            for (unsigned n = (unsigned)m + 1; n < layout->modes && layout->mode_dim[n] == dim; n++)
                stride *= layout->mode_size[n];
            reg digit = tvm_pure_divide(e, thread, below);
            if (below * size < total) digit = tvm_pure_modulo(e, digit, size);
            digit = tvm_pure_scale(e, digit, stride);
            *out = any ? tvm_pure(e, 'r', "add.u32 $, %s, %s;", out->name, digit.name) : digit;
            any = true;
        }
        below *= size;
    }
    return any;
}

reg tvm_emit_elect(emitter *e, uint32_t label) {
    reg leader = tvm_new_pred(e);
    if (e->team.warps > 1) {
        reg first = tvm_pure(e, 'p', "setp.lt.u32 $, %s, 32;", tvm_thread_id(e).name);
        tvm_emit(e, "@!%s bra $L%u;", first.name, label);
    }
    tvm_emit(e, "elect.sync _|%s, 0xffffffff;", leader.name);
    return leader;
}

/* ---- the selection record ---- */

static const char *keep_string(emitter *e, const char *string) {
    const char *kept = tvm_module_keep(e->module, string);
    if (!kept) e->body.failed = true;
    return kept ? kept : "";
}

static tvm_selection *add_selection(emitter *e) {
    tvm_kernel_code *code = e->code;
    size_t capacity = e->selection_capacity;
    if (code->selection_count == capacity) {
        capacity = capacity ? capacity * 2 : 32;
        tvm_selection *items = realloc(code->selections, capacity * sizeof *items);
        if (!items) {
            e->body.failed = true;
            return NULL;
        }
        code->selections = items;
        e->selection_capacity = capacity;
    }
    return &code->selections[code->selection_count++];
}

void tvm_explain(emitter *e, const char *candidate, unsigned bits, unsigned count, int conflicts,
                 const char *refused) {
    uint32_t number = (uint32_t)(e->k->insn - e->k->kernel->insns);
    if (e->explained[number]) return;
    tvm_selection *selection = add_selection(e);
    if (!selection) return;
    const char *mnemonic = tvm_op(e->k->insn->op)->mnemonic, *pattern;
    const char *not_taken = tvm_group_refused(e->k, e->k->insn, &pattern);
    char name[160], why[512], left[320];
    if (!refused) refused = "";
    if (e->k->insn->op == TVM_OP_MMA && e->left.products && tvm_target_has(e->k->target, TVM_HAS_TCGEN05)) {
        snprintf(left, sizeof left, "tcgen05: %s%s%.150s", e->left.products, *refused ? "; " : "", refused);
        refused = left;
    }
    if (not_taken) {
        snprintf(why, sizeof why, "%s: %s%s%s", pattern, not_taken, *refused ? "; " : "", refused);
        refused = why;
    }
    if (e->k->insn->result != TVM_NONE) {
        const char *slot = tvm_string(e->k->program, e->k->kernel->slots[e->k->insn->result].name);
        snprintf(name, sizeof name, "%s%.100s = %s", slot[0] == '%' ? "" : "%", slot, mnemonic);
    } else {
        snprintf(name, sizeof name, "%s", mnemonic);
    }
    *selection = (tvm_selection){.insn = number,
                                 .line = e->k->insn->line,
                                 .instruction = keep_string(e, name),
                                 .candidate = keep_string(e, candidate),
                                 .bits = bits,
                                 .count = count,
                                 .conflicts = conflicts,
                                 .refused = keep_string(e, refused)};
}
