/* cast and view. */
#include "interp_impl.h"

#include <stdlib.h>
#include <string.h>

#include "interp_vector.h"

/* ---- cast ---- */

typedef enum cast_way {
    CAST_COPY,    /* the same type */
    CAST_TABLE,   /* from containers of one byte: a table of all codes */
    CAST_WIDEN,   /* f16 or bf16 to f32 */
    CAST_NARROW,  /* f32 to f16 or bf16 */
    CAST_ELEMENTS /* one call an element */
} cast_way;

typedef struct cast_plan {
    cast_way way;
    tvm_dtype from, to;
    uint32_t source, count;
    bool lowbit;
    uint64_t table[256]; /* of containers of the result */
} cast_plan;

static bool tvm_is_half(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_F16) || tvm_dtype_same(type, TVM_BF16);
}

static cast_way choose_cast(tvm_dtype from, tvm_dtype to) {
    if (tvm_dtype_same(from, to)) return CAST_COPY;
    if (tvm_dtype_container(from) == 1) return CAST_TABLE;
    if (tvm_is_half(from) && tvm_dtype_same(to, TVM_F32)) return CAST_WIDEN;
    if (tvm_is_half(to) && tvm_dtype_same(from, TVM_F32)) return CAST_NARROW;
    return CAST_ELEMENTS;
}

tvm_status tvm_plan_CAST(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    cast_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    plan->source = insn->operands[0].value;
    plan->count = k->extents[insn->source->result];
    plan->from = interp_slot(k, plan->source)->dtype;
    plan->to = interp_slot(k, insn->source->result)->dtype;
    plan->lowbit = tvm_insn_has(insn->source, TVM_TRAIT_LOWBIT);
    plan->way = choose_cast(plan->from, plan->to);
    if (plan->way != CAST_TABLE) return TVM_OK;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t code = plan->from.kind == TVM_KIND_BOOL ? byte != 0 : byte & ((1u << plan->from.bits) - 1);
        tvm_container_set(plan->to, plan->table, byte, tvm_cast(plan->to, plan->from, code, plan->lowbit));
    }
    return TVM_OK;
}

static void cast_table(const cast_plan *plan, void *to, const uint8_t *from) {
    switch (tvm_dtype_container(plan->to)) {
    case 1: {
        const uint8_t *table = (const uint8_t *)plan->table;
        uint8_t *bytes = to;
        for (uint32_t i = 0; i < plan->count; i++) bytes[i] = table[from[i]];
        break;
    }
    case 2:
        tvm_interp_lookup_16(to, from, (const uint16_t *)(const void *)plan->table, plan->count);
        break;
    case 4:
        tvm_interp_lookup_32(to, from, (const uint32_t *)(const void *)plan->table, plan->count);
        break;
    default: {
        uint64_t *words = to;
        for (uint32_t i = 0; i < plan->count; i++) words[i] = plan->table[from[i]];
        break;
    }
    }
}

/* As tvm_encode has it, a NaN has one code. */
static void cast_widen(const cast_plan *plan, float *to, const uint16_t *from) {
    if (tvm_dtype_same(plan->from, TVM_F16))
        tvm_interp_f16_to_f32(to, from, plan->count);
    else
        tvm_interp_bf16_to_f32(to, from, plan->count);
    const float canonical = tvm_f32_from_bits(0x7fffffff);
    for (uint32_t i = 0; i < plan->count; i++) to[i] = to[i] == to[i] ? to[i] : canonical;
}

static void cast_narrow(const cast_plan *plan, uint16_t *to, const float *from) {
    if (tvm_dtype_same(plan->to, TVM_F16))
        tvm_interp_f32_to_f16(to, from, plan->count);
    else
        tvm_interp_f32_to_bf16(to, from, plan->count);
}

tvm_status tvm_interp_CAST(interp_context *context, const interp_insn *insn) {
    const cast_plan *plan = insn->plan;
    const void *from = interp_tensor(context->block, plan->source);
    void *to = interp_tensor(context->block, insn->source->result);
    switch (plan->way) {
    case CAST_COPY:
        if (to != from) memcpy(to, from, (size_t)plan->count * tvm_dtype_container(plan->to));
        break;
    case CAST_TABLE:
        cast_table(plan, to, from);
        break;
    case CAST_WIDEN:
        cast_widen(plan, to, from);
        break;
    case CAST_NARROW:
        cast_narrow(plan, to, from);
        break;
    case CAST_ELEMENTS:
        for (uint32_t i = 0; i < plan->count; i++)
            tvm_container_set(
                plan->to, to, i,
                tvm_cast(plan->to, plan->from, tvm_container_get(plan->from, from, i), plan->lowbit));
        break;
    }
    return TVM_OK;
}

/* ---- view ----
 * A thread's bits are those of its elements, one after the other in the order of its local indices, each of
 * the type's width, or where its packing puts them. All threads' bits one after the other are the string of
 * which every element of the result is `bits` bits, at a position that the plan has found. When the source's
 * elements are whole bytes and those that an element of the result needs are neighbours, the dense source is
 * read in place. */

/* The runs of the elements of a block of a packing; no thread's elements begin or end inside a block. */
typedef struct packed_block {
    uint32_t elements; /* 0: linear */
    uint32_t complement;
    uint32_t bits;
    unsigned count[2 * TVM_PAIR_FIELDS];
    tvm_packing_run runs[2 * TVM_PAIR_FIELDS][TVM_PACKING_RUNS];
} packed_block;

typedef struct view_plan {
    uint32_t source;
    tvm_dtype from, to;
    packed_block from_block, to_block;
    bool in_place;
    uint32_t count;       /* elements of the result */
    uint32_t entries;     /* elements of the string: threads * locals of the source */
    uint32_t *order;      /* the source's element of each entry */
    uint32_t positions[]; /* bit of each element of the result; its entry when the result is packed */
} view_plan;

static void find_runs(packed_block *block, const tvm_slot *slot) {
    tvm_packing packing = (tvm_packing)slot->packing;
    if (packing == TVM_PACKING_LINEAR) return;
    block->elements = tvm_packing_block(packing, slot->dtype);
    block->bits = slot->dtype.bits;
    block->complement = tvm_packing_complement(packing, slot->dtype);
    for (uint32_t i = 0; i < block->elements; i++)
        block->count[i] = tvm_packing_runs(packing, slot->dtype, i, block->runs[i]);
}

/* The byte of the string at which the word begins that holds a run of an entry; a run lies in one word. */
static size_t run_word(const packed_block *block, uint32_t entry, const tvm_packing_run *run) {
    return ((size_t)(entry / block->elements) * (block->elements * block->bits) + run->bit) / 32 * 4;
}

static uint32_t load_word(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static uint8_t get_packed(const packed_block *block, const uint8_t *string, uint32_t entry) {
    uint32_t code = 0, in = entry % block->elements;
    for (unsigned r = 0; r < block->count[in]; r++) {
        const tvm_packing_run *run = &block->runs[in][r];
        uint32_t word = load_word(string + run_word(block, entry, run)) >> run->bit % 32;
        code |= (word & ((1u << run->count) - 1)) << run->at;
    }
    return (uint8_t)(code ^ block->complement);
}

/* The string has been zeroed. */
static void put_packed(const packed_block *block, uint8_t *string, uint32_t entry, uint8_t code) {
    uint32_t in = entry % block->elements;
    code ^= (uint8_t)block->complement;
    for (unsigned r = 0; r < block->count[in]; r++) {
        const tvm_packing_run *run = &block->runs[in][r];
        uint8_t *bytes = string + run_word(block, entry, run);
        uint32_t word = ((uint32_t)code >> run->at & ((1u << run->count) - 1)) << run->bit % 32;
        for (unsigned i = 0; i < 4; i++) bytes[i] |= (uint8_t)(word >> (8 * i));
    }
}

/* Positions in the string of the elements of the result, from its (thread, local) -> element table. */
static void string_positions(view_plan *plan, const uint32_t *elements, uint32_t entries) {
    uint32_t unit = plan->to_block.elements ? 1 : plan->to.bits;
    for (uint32_t e = 0; e < entries; e++) plan->positions[elements[e]] = e * unit;
}

/* Can every element of the result be read from the dense source? */
static bool in_place(const view_plan *plan) {
    unsigned from = plan->from.bits;
    if (from != 8 * tvm_dtype_container(plan->from) || plan->from_block.elements || plan->to_block.elements)
        return false;
    for (uint32_t i = 0; i < plan->count; i++) {
        uint32_t first = plan->positions[i] / from, last = (plan->positions[i] + plan->to.bits - 1) / from;
        for (uint32_t e = first; e < last; e++)
            if (plan->order[e + 1] != plan->order[e] + 1) return false;
    }
    return true;
}

tvm_status tvm_plan_VIEW(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    const tvm_slot *source = interp_slot(k, insn->operands[0].value);
    const tvm_slot *result = interp_slot(k, insn->source->result);
    const tvm_layout *from = &k->program->layouts[source->layout];
    const tvm_layout *to = &k->program->layouts[result->layout];
    uint32_t count = tvm_layout_elements(to), threads = tvm_layout_threads(from);
    uint32_t entries = threads * tvm_layout_locals(from), targets = threads * tvm_layout_locals(to);
    view_plan *plan = calloc(1, sizeof *plan + ((size_t)count + entries) * sizeof(uint32_t));
    uint32_t *elements = malloc(targets * sizeof *elements);
    if (!plan || !elements) {
        free(plan);
        free(elements);
        return tvm_diag_no_memory(diags);
    }
    insn->plan = plan;
    plan->source = insn->operands[0].value;
    plan->from = source->dtype;
    plan->to = result->dtype;
    find_runs(&plan->from_block, source);
    find_runs(&plan->to_block, result);
    plan->count = count;
    plan->entries = entries;
    plan->order = plan->positions + count;
    tvm_layout_table(from, plan->order);
    tvm_layout_table(to, elements);
    string_positions(plan, elements, targets);
    free(elements);
    plan->in_place = in_place(plan);
    for (uint32_t i = 0; plan->in_place && i < count; i++)
        plan->positions[i] = plan->order[plan->positions[i] / plan->from.bits] * plan->from.bits +
                             plan->positions[i] % plan->from.bits;
    if (!plan->in_place) {
        size_t containers = (size_t)entries * tvm_dtype_container(plan->from) + INTERP_SLACK;
        tvm_interp_need_scratch(k, 2 * ((containers + 63) / 64 * 64));
    }
    return TVM_OK;
}

#define ORDER_LOOP(bytes)                                                                                    \
    for (uint32_t e = 0; e < plan->entries; e++)                                                             \
    memcpy(to + (size_t)e * (bytes), from + (size_t)plan->order[e] * (bytes), (bytes))

/* The source's containers in the order of the string. */
static void gather_entries(const view_plan *plan, const uint8_t *from, uint8_t *to) {
    switch (tvm_dtype_container(plan->from)) {
    case 1:
        ORDER_LOOP(1);
        break;
    case 2:
        ORDER_LOOP(2);
        break;
    case 4:
        ORDER_LOOP(4);
        break;
    default:
        ORDER_LOOP(8);
        break;
    }
}

/* The string of the source's bits, in scratch. */
static const uint8_t *make_string(const view_plan *plan, const uint8_t *from, uint8_t *scratch) {
    unsigned bytes = tvm_dtype_container(plan->from);
    gather_entries(plan, from, scratch);
    const packed_block *block = &plan->from_block;
    if (plan->from.bits == 8 * bytes && !block->elements) return scratch;
    uint8_t *string = scratch + ((size_t)plan->entries * bytes + INTERP_SLACK + 63) / 64 * 64;
    if (block->elements) {
        memset(string, 0, (size_t)plan->entries * block->bits / 8);
        for (uint32_t e = 0; e < plan->entries; e++) put_packed(block, string, e, scratch[e]);
        return string;
    }
    tvm_bits_pack(plan->from, string, 0, plan->entries, scratch);
    return string;
}

/* Elements of 16, 32 and 64 bits begin at whole bytes. */
#define POSITION_LOOP(bytes)                                                                                 \
    for (uint32_t i = 0; i < plan->count; i++)                                                               \
    memcpy(to + (size_t)i * (bytes), string + (plan->positions[i] >> 3), (bytes))

tvm_status tvm_interp_VIEW(interp_context *context, const interp_insn *insn) {
    const view_plan *plan = insn->plan;
    const uint8_t *string = interp_tensor(context->block, plan->source);
    uint8_t *to = interp_tensor(context->block, insn->source->result);
    if (to == string) return TVM_OK; /* one slot has one type and layout: the same bits */
    if (!plan->in_place) string = make_string(plan, string, context->block->scratch);
    if (plan->to_block.elements) {
        for (uint32_t i = 0; i < plan->count; i++)
            to[i] = get_packed(&plan->to_block, string, plan->positions[i]);
        return TVM_OK;
    }
    switch (tvm_dtype_container(plan->to)) {
    case 1:
        tvm_interp_gather_bits(to, string, plan->positions, (uint8_t)((1u << plan->to.bits) - 1),
                               plan->count);
        break;
    case 2:
        POSITION_LOOP(2);
        break;
    case 4:
        POSITION_LOOP(4);
        break;
    default:
        POSITION_LOOP(8);
        break;
    }
    return TVM_OK;
}
