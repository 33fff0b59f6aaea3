/* view, of register tensors.
 *
 * A thread's bits are those of its elements, one after the other in the order of its local indices, each of
 * the type's width, or where its packing puts them. All threads' bits one after the other are a string, in
 * which each bit of an element of the result has its place, and each bit of the source. The plan finds, once,
 * where in the dense source the bits of each byte of the dense result lie: in pieces, neighbouring bits on
 * both sides. Where the pieces are whole bytes that is a copy, in units as wide as can be. */
#include <stdlib.h>
#include <string.h>

#include "interp_impl.h"
#include "interp_vector.h"
#include "packing.h"

enum { MOST_PIECES = 8 };

/* ---- the bits of a thread's elements ---- */

/* What neighbouring bits of a block of a packing are. No thread's elements begin or end inside of a block. A
 * linear tensor is of blocks of one element. */
typedef struct bit_place {
    uint8_t element, at; /* the element in the block, and the bit of its code */
} bit_place;
typedef struct bit_order {
    uint32_t elements, bits; /* of a block, and of an element */
    bool packed;
    uint8_t complement;
    bit_place place[TVM_PAIR_FIELDS * 2 * 8]; /* of each bit of a packed block */
    uint16_t bit[TVM_PAIR_FIELDS * 2][8];     /* of each bit of each of its elements */
} bit_order;

static void find_order(bit_order *order, const tvm_slot *slot) {
    tvm_packing packing = (tvm_packing)slot->packing;
    *order = (bit_order){.elements = 1, .bits = slot->dtype.bits, .packed = packing != TVM_PACKING_LINEAR};
    if (!order->packed) return;
    order->elements = tvm_packing_block(packing, slot->dtype);
    order->complement = (uint8_t)tvm_packing_complement(packing, slot->dtype);
    for (uint32_t e = 0; e < order->elements; e++)
        for (unsigned b = 0; b < order->bits; b++) {
            order->bit[e][b] = (uint16_t)tvm_packing_bit(packing, slot->dtype, e, b);
            order->place[order->bit[e][b]] = (bit_place){(uint8_t)e, (uint8_t)b};
        }
}

/* The string's bit that is bit `at` of the code of an entry. */
static uint32_t string_bit(const bit_order *order, uint32_t entry, uint32_t at) {
    if (!order->packed) return entry * order->bits + at;
    return entry / order->elements * (order->elements * order->bits) +
           order->bit[entry % order->elements][at];
}

/* The entry, and the bit of its code, that is a bit of the string. */
static uint32_t entry_at(const bit_order *order, uint32_t bit, uint32_t *at) {
    uint32_t block = order->elements * order->bits;
    if (!order->packed) {
        *at = bit % block;
        return bit / block;
    }
    const bit_place *place = &order->place[bit % block];
    *at = place->at;
    return bit / block * order->elements + place->element;
}

/* ---- the plan ---- */

/* Bits of a byte of the result: `mask` of those from bit `from` of the source on lie from bit `at` on. */
typedef struct view_piece {
    uint32_t from, to; /* to: the byte */
    uint8_t at, mask;
    uint8_t keep; /* of what the byte has so far */
} view_piece;

typedef enum view_way {
    VIEW_COPY,  /* units of whole bytes */
    VIEW_BITS,  /* bytes of one piece each, but for a few */
    VIEW_PIECES /* bytes of several pieces */
} view_way;

typedef struct view_plan {
    view_way way;
    uint32_t source, bytes; /* bytes: of the result */
    interp_units units;     /* of VIEW_COPY */
    uint32_t planes;        /* of VIEW_PIECES: the most pieces of a byte */
    uint32_t pieces;        /* of VIEW_BITS: those of bytes that have several */
    uint8_t mask, flip;     /* bits of a byte; those that are complemented */
    bool flips;             /* the bytes differ in what is complemented */
    uint32_t *at;     /* of each unit, its place in the source in units; of each byte, its bit, by plane */
    uint16_t *shapes; /* of VIEW_PIECES, by plane: interp_shape */
    uint8_t *flip_of; /* of each byte, where they differ */
    view_piece *piece;
} view_plan;

/* A byte of an element of a thread: its pieces, of which there are `count` from `first` on, and the bits that
 * are complemented. */
typedef struct local_byte {
    uint32_t first;
    uint8_t count, flip;
} local_byte;

/* What the plan is made from. All threads have their elements alike, so that what is found for the first one
 * holds for all, as many elements further as the thread's first one is. */
typedef struct view_work {
    bit_order from, to;
    uint32_t from_bytes, to_bytes; /* of containers */
    uint32_t elements, from_locals, to_locals;
    uint32_t *from_element; /* of each entry of the source: its place in the dense tensor */
    uint32_t *to_entry;     /* of each element of the result */
    local_byte *locals;     /* of the first thread's elements of the result */
    view_piece *pieces;     /* theirs */
    uint32_t count;         /* of them */
} view_work;

/* Is this bit of an entry stored complemented? Those of codes may be, which have up to eight. */
static bool is_complemented(const bit_order *order, uint32_t bit) {
    return bit < 8 && (order->complement >> bit & 1);
}

/* The source's dense bit that is a bit of the string, and how many bits from there on are neighbours in both:
 * at most `count`. */
static uint32_t source_bit(const view_work *w, uint32_t bit, uint32_t *count, bool *complemented) {
    uint32_t at, entry = entry_at(&w->from, bit, &at), length = 1;
    *complemented = is_complemented(&w->from, at);
    if (!w->from.packed)
        length = w->from.bits - at;
    else
        while (length < *count && at + length < w->from.bits &&
               string_bit(&w->from, entry, at + length) == bit + length &&
               is_complemented(&w->from, at + length) == *complemented)
            length++;
    if (length < *count) *count = length;
    return w->from_element[entry] * 8 * w->from_bytes + at;
}

/* The pieces of a byte of an entry of the result; returns how many. */
static unsigned byte_pieces(const view_work *w, uint32_t entry, uint32_t byte, view_piece pieces[MOST_PIECES],
                            uint8_t *flip) {
    uint32_t first = 8 * byte, end = first + 8 < w->to.bits ? first + 8 : w->to.bits;
    unsigned count = 0;
    *flip = w->to.complement;
    for (uint32_t at = first, length; at < end; at += length) {
        uint32_t bit = string_bit(&w->to, entry, at), place = at - first;
        for (length = 1; at + length < end && string_bit(&w->to, entry, at + length) == bit + length;)
            length++;
        bool complemented;
        uint32_t from = source_bit(w, bit, &length, &complemented);
        uint8_t mask = (uint8_t)((1u << length) - 1);
        if (complemented) *flip ^= (uint8_t)(mask << place);
        view_piece *last = count ? &pieces[count - 1] : NULL;
        if (last && from == last->from + (place - last->at))
            last->mask |= (uint8_t)(mask << (place - last->at));
        else
            pieces[count++] = (view_piece){.from = from, .mask = mask, .at = (uint8_t)place};
    }
    return count;
}

static void plan_copy(view_plan *plan, const view_work *w) {
    uint32_t unit = w->from_bytes < w->to_bytes ? w->from_bytes : w->to_bytes;
    uint32_t parts = w->to_bytes / unit, of_source = w->from_bytes / unit;
    plan->units = (interp_units){unit, w->elements * parts, plan->at};
    for (uint32_t e = 0; e < w->elements; e++)
        for (uint32_t i = 0; i < parts; i++) {
            uint32_t place = w->to_entry[e] * parts + i; /* in the string, in units */
            plan->at[e * parts + i] = w->from_element[place / of_source] * of_source + place % of_source;
        }
    tvm_interp_widen_units(&plan->units);
}

/* The first thread's bytes. */
static void find_locals(view_work *w) {
    for (uint32_t b = 0; b < w->to_locals * w->to_bytes; b++) {
        local_byte *byte = &w->locals[b];
        byte->first = w->count;
        byte->count =
            (uint8_t)byte_pieces(w, b / w->to_bytes, b % w->to_bytes, w->pieces + w->count, &byte->flip);
        w->count += byte->count;
    }
}

/* How the bytes are made, if not by a copy. */
static void choose_way(view_plan *plan, const view_work *w) {
    uint32_t several = 0, bytes = w->to_locals * w->to_bytes;
    plan->planes = 1;
    plan->flip = w->locals[0].flip;
    plan->mask = (uint8_t)(w->to.bits < 8 ? (1u << w->to.bits) - 1 : 0xff);
    for (uint32_t b = 0; b < bytes; b++) {
        const local_byte *byte = &w->locals[b];
        if (byte->count > plan->planes) plan->planes = byte->count;
        if (byte->count > 1) several += byte->count;
        plan->flips = plan->flips || byte->flip != plan->flip;
    }
    plan->way = several <= bytes / 2 ? VIEW_BITS : VIEW_PIECES;
    if (plan->way == VIEW_BITS) plan->planes = 1;
    if (plan->way == VIEW_PIECES) several = 0;
    for (uint32_t e = 0; e < w->elements && several; e++)
        for (uint32_t i = 0; i < w->to_bytes; i++) {
            uint32_t count = w->locals[w->to_entry[e] % w->to_locals * w->to_bytes + i].count;
            if (count > 1) plan->pieces += count;
        }
}

static void plan_byte(view_plan *plan, const view_work *w, uint32_t byte, const local_byte *local,
                      uint32_t further, view_piece **next) {
    if (plan->flips) plan->flip_of[byte] = local->flip;
    for (unsigned p = 0; p < local->count; p++) {
        view_piece piece = w->pieces[local->first + p];
        piece.from += further;
        piece.to = byte;
        piece.keep = p ? 0xff : 0;
        if (p == 0 || plan->way == VIEW_PIECES) plan->at[(size_t)p * plan->bytes + byte] = piece.from;
        if (plan->way == VIEW_PIECES)
            plan->shapes[(size_t)p * plan->bytes + byte] = interp_shape(piece.at, piece.mask);
        else if (local->count > 1)
            *(*next)++ = piece;
    }
}

static void plan_bytes(view_plan *plan, const view_work *w) {
    view_piece *next = plan->piece;
    for (uint32_t e = 0; e < w->elements; e++) {
        uint32_t thread = w->to_entry[e] / w->to_locals, local = w->to_entry[e] % w->to_locals;
        uint32_t further =
            (w->from_element[thread * w->from_locals] - w->from_element[0]) * 8 * w->from_bytes;
        for (uint32_t i = 0; i < w->to_bytes; i++)
            plan_byte(plan, w, e * w->to_bytes + i, &w->locals[local * w->to_bytes + i], further, &next);
    }
}

/* The plan and what it points to, in one block. */
static view_plan *place_plan(const view_plan *plan) {
    size_t places = plan->way == VIEW_COPY ? plan->bytes : (size_t)plan->bytes * plan->planes;
    size_t at = places * sizeof *plan->at, piece = plan->pieces * sizeof *plan->piece;
    size_t shapes = plan->way == VIEW_PIECES ? places * sizeof *plan->shapes : 0;
    view_plan *placed = calloc(1, sizeof *plan + at + piece + shapes + (plan->flips ? plan->bytes : 0));
    if (!placed) return NULL;
    *placed = *plan;
    uint8_t *behind = (uint8_t *)(placed + 1);
    placed->at = (uint32_t *)(void *)behind;
    placed->piece = (view_piece *)(void *)(behind + at);
    placed->shapes = (uint16_t *)(void *)(behind + at + piece);
    placed->flip_of = behind + at + piece + shapes;
    return placed;
}

static bool is_copy(const view_work *w) {
    return !w->from.packed && !w->to.packed && w->from.bits == 8 * w->from_bytes &&
           w->to.bits == 8 * w->to_bytes;
}

static view_plan *make_plan(tvm_interp_kernel *k, const interp_insn *insn, view_work *w) {
    view_plan plan = {.source = insn->operands[0].value, .bytes = w->elements * w->to_bytes};
    const tvm_layout *to = &k->program->layouts[interp_slot(k, insn->source->result)->layout];
    const tvm_layout *from = &k->program->layouts[interp_slot(k, plan.source)->layout];
    uint32_t entries = tvm_layout_threads(to) * w->to_locals;
    uint32_t *elements = malloc(entries * sizeof *elements);
    if (!elements) return NULL;
    tvm_layout_table(from, w->from_element);
    tvm_layout_table(to, elements);
    for (uint32_t e = 0; e < entries; e++) w->to_entry[elements[e]] = e;
    free(elements);
    if (is_copy(w)) {
        plan.way = VIEW_COPY;
    } else {
        find_locals(w);
        choose_way(&plan, w);
    }
    view_plan *placed = place_plan(&plan);
    if (placed && placed->way == VIEW_COPY) plan_copy(placed, w);
    if (placed && placed->way != VIEW_COPY) plan_bytes(placed, w);
    return placed;
}

tvm_status tvm_plan_VIEW(tvm_interp_kernel *k, interp_insn *insn, tvm_diags *diags) {
    const tvm_slot *source = interp_slot(k, insn->operands[0].value);
    const tvm_slot *result = interp_slot(k, insn->source->result);
    const tvm_layout *from = &k->program->layouts[source->layout];
    const tvm_layout *to = &k->program->layouts[result->layout];
    view_work w = {.from_bytes = tvm_dtype_container(source->dtype),
                   .to_bytes = tvm_dtype_container(result->dtype),
                   .elements = tvm_layout_elements(to),
                   .from_locals = tvm_layout_locals(from),
                   .to_locals = tvm_layout_locals(to)};
    find_order(&w.from, source);
    find_order(&w.to, result);
    size_t bytes = (size_t)w.to_locals * w.to_bytes;
    w.from_element = malloc((size_t)tvm_layout_threads(from) * w.from_locals * sizeof *w.from_element);
    w.to_entry = malloc((size_t)w.elements * sizeof *w.to_entry);
    w.locals = malloc(bytes * sizeof *w.locals);
    w.pieces = malloc(bytes * MOST_PIECES * sizeof *w.pieces);
    if (w.from_element && w.to_entry && w.locals && w.pieces) insn->plan = make_plan(k, insn, &w);
    free(w.from_element);
    free(w.to_entry);
    free(w.locals);
    free(w.pieces);
    return insn->plan ? TVM_OK : tvm_diag_no_memory(diags);
}

/* ---- execution ---- */

static void gather_pieces(const view_plan *plan, uint8_t *to, const uint8_t *from) {
    if (plan->way == VIEW_BITS) {
        tvm_interp_gather_bits(to, from, plan->at, plan->mask, plan->bytes);
        for (const view_piece *p = plan->piece, *end = p + plan->pieces; p < end; p++) {
            unsigned pair = from[p->from / 8] | (unsigned)from[p->from / 8 + 1] << 8;
            to[p->to] = (uint8_t)((to[p->to] & p->keep) | (pair >> p->from % 8 & p->mask) << p->at);
        }
    } else {
        memset(to, 0, plan->bytes);
        for (uint32_t p = 0; p < plan->planes; p++)
            tvm_interp_gather_pieces(to, from, plan->at + (size_t)p * plan->bytes,
                                     plan->shapes + (size_t)p * plan->bytes, plan->bytes);
    }
    if (plan->flips)
        for (uint32_t b = 0; b < plan->bytes; b++) to[b] ^= plan->flip_of[b];
    else if (plan->flip)
        for (uint32_t b = 0; b < plan->bytes; b++) to[b] ^= plan->flip;
}

tvm_status tvm_interp_VIEW(interp_context *context, const interp_insn *insn) {
    const view_plan *plan = insn->plan;
    const uint8_t *from = interp_tensor(context->block, plan->source);
    uint8_t *to = interp_tensor(context->block, insn->source->result);
    if (to == from) return TVM_OK; /* one slot has one type and layout: the same bits */
    if (plan->way == VIEW_COPY)
        tvm_interp_copy_units(&plan->units, to, from);
    else
        gather_pieces(plan, to, from);
    return TVM_OK;
}
