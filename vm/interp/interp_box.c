#include "interp_box.h"

#include <string.h>

#include "shared_view.h"

void tvm_interp_row_major(unsigned rank, const int64_t *shape, int64_t *stride) {
    uint64_t step = 1;
    for (unsigned d = rank; d-- > 0; step *= (uint64_t)shape[d]) stride[d] = (int64_t)step;
}

unsigned tvm_interp_slot_shape(const tvm_interp_kernel *k, uint32_t slot, int64_t shape[TVM_MAX_RANK]) {
    const tvm_slot *s = interp_slot(k, slot);
    unsigned rank = tvm_slot_rank(k->program, s);
    const uint32_t *extents = tvm_slot_shape(k->program, s);
    for (unsigned d = 0; d < rank; d++) shape[d] = extents[d];
    return rank;
}

void tvm_interp_shared_steps(const tvm_interp_kernel *k, uint32_t slot, int64_t stride[TVM_MAX_RANK]) {
    tvm_shared_root root;
    tvm_shared_root_find(k->program, k->kernel, slot, &root);
    for (unsigned d = 0; d < tvm_slot_rank(k->program, interp_slot(k, slot)); d++) {
        const tvm_shared_digits *digits = &root.digits[d];
        stride[d] = digits->count == 1 ? digits->step[0] : 0;
    }
}

interp_box tvm_interp_box_make(unsigned rank, const int64_t *shape, const int64_t *stride,
                               const int64_t *start, unsigned tile_rank, const int64_t *tile,
                               const int64_t *dense) {
    interp_box b = {.rank = tile_rank, .inside = true};
    uint64_t base = 0;
    for (unsigned d = rank; d-- > 0;) {
        uint64_t step = (uint64_t)stride[d];
        base += (uint64_t)start[d] * step; /* wraps when far outside: not used then */
        if (d < rank - tile_rank) {
            if (start[d] < 0 || start[d] >= shape[d]) b.inside = false;
        } else {
            unsigned t = d - (rank - tile_rank);
            bool before = start[d] <= -tile[t], after = start[d] >= shape[d];
            b.extent[t] = tile[t];
            b.low[t] = start[d] < 0 && !before ? -start[d] : 0;
            b.high[t] = before || after ? 0 : tile[t] < shape[d] - start[d] ? tile[t] : shape[d] - start[d];
            b.step[t] = (int64_t)step;
            b.dense[t] = dense[t];
            if (b.low[t] >= b.high[t]) b.inside = false;
        }
    }
    b.base = (int64_t)base;
    return b;
}

void tvm_interp_box_split(interp_box *b, const tvm_shared_digits *split, unsigned rank,
                          const int64_t *start) {
    if (!split) return;
    unsigned lead = rank - b->rank;
    b->split = split + lead;
    memcpy(b->start, start + lead, b->rank * sizeof *start);
    for (unsigned d = 0; d < lead; d++)
        if (split[d].count > 1) b->base += tvm_shared_digits_at(&split[d], (uint32_t)start[d]);
}

uint64_t tvm_interp_box_inside(const interp_box *b) {
    uint64_t inside = b->inside;
    for (unsigned d = 0; d < b->rank && inside; d++) inside *= (uint64_t)(b->high[d] - b->low[d]);
    return inside;
}

/* Merges dimensions that are contiguous on both sides, for longer rows. */
static void box_merge(interp_box *b) {
    if (b->split) return;
    for (unsigned d = b->rank - 1; d > 0 && b->rank > 1; d--) {
        bool whole = b->low[d] == 0 && b->high[d] == b->extent[d];
        if (!whole || b->step[d - 1] != b->extent[d] * b->step[d] ||
            b->dense[d - 1] != b->extent[d] * b->dense[d])
            return;
        int64_t extent = b->extent[d];
        b->extent[d - 1] *= extent;
        b->low[d - 1] *= extent;
        b->high[d - 1] *= extent;
        b->step[d - 1] = b->step[d];
        b->dense[d - 1] = b->dense[d];
        b->rank = d;
    }
}

static void fill(interp_width w, uint8_t *dense, int64_t count) {
    if (count > 0) tvm_interp_fill(w.type, dense, (size_t)count, w.fill);
}

/* Elements of whole bytes, `from_step` and `to_step` elements apart. */
static void copy_apart(uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step, int64_t count,
                       unsigned bytes) {
    for (int64_t i = 0; i < count; i++)
        memcpy(to + (size_t)(i * to_step) * bytes, from + (size_t)(i * from_step) * bytes, bytes);
}

/* Words that other launches access meanwhile, each by one access. */
static void copy_strong(uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = __atomic_load_n((const uint32_t *)from + i * from_step, __ATOMIC_RELAXED);
        __atomic_store_n((uint32_t *)to + i * to_step, word, __ATOMIC_RELAXED);
    }
}

/* A row of a tile that is being loaded: the fill, what is inside, the fill. Its elements are `step` apart;
 * those that are no whole bytes are next to each other. */
static void load_row(interp_width w, const uint8_t *container, int64_t element, int64_t step, uint8_t *dense,
                     int64_t extent, int64_t low, int64_t high) {
    fill(w, dense, low);
    if (w.strong)
        copy_strong(dense + (size_t)low * w.bytes, 1, container + (element + low * step) * w.bytes, step,
                    high - low);
    else if (step != 1)
        copy_apart(dense + (size_t)low * w.bytes, 1, container + (element + low * step) * w.bytes, step,
                   high - low, w.bytes);
    else if (w.bits == 8 * w.bytes)
        memcpy(dense + (size_t)low * w.bytes, container + (element + low) * w.bytes,
               (size_t)(high - low) * w.bytes);
    else
        tvm_bits_unpack(w.type, container, (uint64_t)(element + low) * w.bits, (size_t)(high - low),
                        dense + (size_t)low * w.bytes);
    fill(w, dense + (size_t)high * w.bytes, extent - high);
}

static void store_row(interp_width w, uint8_t *container, int64_t element, int64_t step, const uint8_t *dense,
                      int64_t low, int64_t high) {
    if (w.strong)
        copy_strong(container + (element + low * step) * w.bytes, step, dense + (size_t)low * w.bytes, 1,
                    high - low);
    else if (step != 1)
        copy_apart(container + (element + low * step) * w.bytes, step, dense + (size_t)low * w.bytes, 1,
                   high - low, w.bytes);
    else if (w.bits == 8 * w.bytes)
        memcpy(container + (element + low) * w.bytes, dense + (size_t)low * w.bytes,
               (size_t)(high - low) * w.bytes);
    else
        tvm_bits_pack(w.type, container, (uint64_t)(element + low) * w.bits, (size_t)(high - low),
                      dense + (size_t)low * w.bytes);
}

/* Of elements of whole bytes. */
static void combine_row(interp_width w, uint8_t *container, int64_t element, int64_t step,
                        const uint8_t *dense, int64_t low, int64_t high) {
    static const size_t steps[3] = {1, 1, 1};
    int64_t together = step == 1 ? high - low : 1;
    for (int64_t i = low; i < high; i += together) {
        uint8_t *at = container + (element + i * step) * w.bytes;
        const void *const operands[3] = {at, dense + (size_t)i * w.bytes, NULL};
        w.combine((size_t)together, at, operands, steps);
    }
}

/* The row at an index, of the last dimension: where it begins on both sides; false: it is outside. */
static inline bool box_row(const interp_box *b, const int64_t *index, int64_t *element, int64_t *place) {
    bool inside = b->inside;
    *element = b->base;
    *place = 0;
    for (unsigned d = 0; d + 1 < b->rank; d++) {
        inside = inside && index[d] >= b->low[d] && index[d] < b->high[d];
        if (inside && b->split && b->split[d].count > 1)
            *element += tvm_shared_digits_at(&b->split[d], (uint32_t)(b->start[d] + index[d]));
        *element = (int64_t)((uint64_t)*element + (uint64_t)index[d] * (uint64_t)b->step[d]);
        *place += index[d] * b->dense[d];
    }
    return inside;
}

/* The index of the next row; false: there is none. */
static inline bool box_next(const interp_box *b, int64_t *index) {
    unsigned d = b->rank - 1;
    while (d > 0 && ++index[d - 1] == b->extent[d - 1]) index[--d] = 0;
    return d > 0;
}

/* The run of even steps from index `at` of the last dimension on: its end, its step, and the element at `at`,
 * of a row that begins at *element. */
static inline int64_t box_run(const interp_box *b, int64_t at, int64_t *element, int64_t *step) {
    unsigned last = b->rank - 1;
    const tvm_shared_digits *digits = b->split ? &b->split[last] : NULL;
    *step = b->step[last];
    if (!digits || digits->count < 2) {
        *element += at * *step;
        return b->high[last];
    }
    int64_t place = b->start[last] + at, inner = digits->size[digits->count - 1];
    *element += tvm_shared_digits_at(digits, (uint32_t)place);
    *step = digits->step[digits->count - 1];
    int64_t end = at + inner - place % inner;
    return end < b->high[last] ? end : b->high[last];
}

/* The row in runs: of a view that joins dimensions. */
static void move_runs(const interp_box *b, interp_direction way, interp_width w, uint8_t *container,
                      int64_t element, uint8_t *dense) {
    unsigned last = b->rank - 1;
    if (way == INTERP_LOAD) {
        fill(w, dense, b->low[last]);
        fill(w, dense + (size_t)b->high[last] * w.bytes, b->extent[last] - b->high[last]);
    }
    for (int64_t at = b->low[last]; at < b->high[last];) {
        int64_t first = element, step, end = box_run(b, at, &first, &step), count = end - at;
        uint8_t *row = dense + (size_t)at * w.bytes;
        if (way == INTERP_LOAD)
            load_row(w, container, first, step, row, count, 0, count);
        else if (way == INTERP_COMBINE)
            combine_row(w, container, first, step, row, 0, count);
        else
            store_row(w, container, first, step, row, 0, count);
        at = end;
    }
}

/* One row of the last dimension after the other. */
void tvm_interp_box_move(interp_box b, interp_direction way, interp_width w, uint8_t *container,
                         uint8_t *dense) {
    box_merge(&b);
    unsigned last = b.rank - 1;
    int64_t index[TVM_MAX_RANK] = {0}, element, place;
    do {
        bool inside = box_row(&b, index, &element, &place);
        uint8_t *row = dense + (size_t)place * w.bytes;
        if (inside && b.split)
            move_runs(&b, way, w, container, element, row);
        else if (inside && way == INTERP_LOAD)
            load_row(w, container, element, b.step[last], row, b.extent[last], b.low[last], b.high[last]);
        else if (inside && way == INTERP_COMBINE)
            combine_row(w, container, element, b.step[last], row, b.low[last], b.high[last]);
        else if (inside)
            store_row(w, container, element, b.step[last], row, b.low[last], b.high[last]);
        else if (way == INTERP_LOAD)
            fill(w, row, b.extent[last]);
    } while (box_next(&b, index));
}

tvm_status tvm_interp_box_sanitize(interp_box b, interp_context *context, const interp_insn *insn,
                                   const sanitize_access *access) {
    sanitize_walk walk;
    int64_t index[TVM_MAX_RANK] = {0}, element, place;
    if (!tvm_sanitize_open(context, insn, access, &walk)) return walk.status;
    box_merge(&b);
    unsigned last = b.rank - 1;
    do {
        bool inside = box_row(&b, index, &element, &place);
        for (int64_t at = b.low[last]; inside && at < b.high[last];) {
            int64_t first = element, step, end = box_run(&b, at, &first, &step);
            tvm_sanitize_row(&walk, first, step, place + at, end - at);
            at = end;
        }
    } while (box_next(&b, index));
    return walk.status;
}
