/* Register layouts: the canonical form and what can be asked of it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "layout_digits.h"

/* Without padding, canonical layouts (unused entries zero) can be compared as bytes. */
static_assert(sizeof(tvm_layout) == TVM_MAX_RANK * 4 + TVM_MAX_MODES * 10 + 4, "tvm_layout has padding");

/* ---- digits ---- */

void tvm_digits_start(tvm_digits *digits, unsigned rank, const uint32_t *shape) {
    digits->rank = rank;
    for (unsigned d = 0; d < rank; d++) digits->shape[d] = shape[d];
    digits->spatial.count = 0;
    digits->local.count = 0;
}

void tvm_digit_push(tvm_digit_list *list, tvm_digit digit) {
    if (digit.size == 1) return;
    if (digit.stride == 0) digit.dim = 0;
    if (list->count > 0) {
        tvm_digit *last = &list->items[list->count - 1];
        bool both_replicate = last->stride == 0 && digit.stride == 0;
        bool continues =
            digit.stride != 0 && last->dim == digit.dim && last->stride == digit.stride * digit.size;
        if (both_replicate || continues) {
            last->size *= digit.size;
            last->stride = digit.stride;
            return;
        }
    }
    assert(list->count < TVM_MAX_DIGITS);
    list->items[list->count++] = digit;
}

void tvm_digit_push_all(tvm_digit_list *list, const tvm_digit_list *more) {
    for (unsigned i = 0; i < more->count; i++) tvm_digit_push(list, more->items[i]);
}

bool tvm_digit_lists_equal(const tvm_digit_list *a, const tvm_digit_list *b) {
    if (a->count != b->count) return false;
    for (unsigned i = 0; i < a->count; i++) {
        const tvm_digit *x = &a->items[i], *y = &b->items[i];
        if (x->size != y->size || x->stride != y->stride || x->dim != y->dim) return false;
    }
    return true;
}

/* Strides of modes within their dimension: the product of the less significant ones. */
static void mode_strides(unsigned modes, const uint32_t *mode_size, const uint8_t *mode_dim,
                         uint64_t *strides) {
    for (unsigned m = modes; m-- > 0;) {
        bool innermost = m + 1 == modes || mode_dim[m + 1] != mode_dim[m];
        strides[m] = innermost ? 1 : strides[m + 1] * mode_size[m + 1];
    }
}

void tvm_layout_mode_strides(const tvm_layout *layout, uint64_t *strides) {
    mode_strides(layout->modes, layout->mode_size, layout->mode_dim, strides);
}

void tvm_digits_of(const tvm_layout *layout, tvm_digits *digits) {
    uint64_t strides[TVM_MAX_MODES];
    tvm_layout_mode_strides(layout, strides);
    tvm_digits_start(digits, layout->rank, layout->shape);
    for (unsigned i = 0; i < layout->spatials; i++) {
        int32_t m = layout->spatial[i];
        tvm_digit replication = {(uint64_t) - (int64_t)m, 0, 0};
        tvm_digit_push(&digits->spatial,
                       m < 0 ? replication
                             : (tvm_digit){layout->mode_size[m], strides[m], layout->mode_dim[m]});
    }
    for (unsigned i = 0; i < layout->locals; i++) {
        unsigned m = layout->local[i];
        tvm_digit_push(&digits->local, (tvm_digit){layout->mode_size[m], strides[m], layout->mode_dim[m]});
    }
}

/* ---- checks ---- */

tvm_status tvm_shape_check(unsigned rank, const uint32_t *shape, tvm_why *why) {
    if (rank < 1 || rank > TVM_MAX_RANK)
        return tvm_refuse(why, "rank %u is not between 1 and %d", rank, TVM_MAX_RANK);
    uint64_t elements = 1;
    for (unsigned d = 0; d < rank; d++) {
        if (shape[d] == 0) return tvm_refuse(why, "dimension %u has extent 0", d);
        elements *= shape[d];
        if (elements > TVM_MAX_TILE_ELEMENTS)
            return tvm_refuse(why, "the shape has more than %d elements", TVM_MAX_TILE_ELEMENTS);
    }
    return TVM_OK;
}

tvm_status tvm_modes_assign(unsigned rank, const uint32_t *shape, unsigned modes, const uint32_t *mode_size,
                            uint8_t *mode_dim, tvm_why *why) {
    unsigned dim = 0;
    uint64_t product = 1;
    for (unsigned m = 0; m < modes; m++) {
        if (mode_size[m] == 0) return tvm_refuse(why, "mode %u has size 0", m);
        while (mode_size[m] > 1 && dim < rank && product == shape[dim]) {
            dim++;
            product = 1;
        }
        if (dim == rank) return tvm_refuse(why, "mode %u exceeds the shape", m);
        product *= mode_size[m];
        if (product > shape[dim])
            return tvm_refuse(why, "modes of dimension %u do not multiply to its extent %u", dim, shape[dim]);
        mode_dim[m] = (uint8_t)dim;
    }
    for (; dim < rank; dim++, product = 1) {
        if (product != shape[dim])
            return tvm_refuse(why, "modes of dimension %u do not multiply to its extent %u", dim, shape[dim]);
    }
    return TVM_OK;
}

static tvm_status check_product(const tvm_digit_list *list, uint64_t limit, const char *what, tvm_why *why) {
    uint64_t product = 1;
    for (unsigned i = 0; i < list->count; i++) {
        product *= list->items[i].size;
        if (product > limit)
            return tvm_refuse(why, "the layout has more than %llu %s", (unsigned long long)limit, what);
    }
    return TVM_OK;
}

/* ---- from digits to the canonical form ---- */

typedef struct mode {
    tvm_digit digit;
    unsigned place; /* in its list */
    bool is_local;
} mode;

static bool mode_before(const mode *a, const mode *b) {
    return a->digit.dim != b->digit.dim ? a->digit.dim < b->digit.dim : a->digit.stride > b->digit.stride;
}

/* Inserts the digits that are modes into `sorted`, by dimension and falling stride. */
static unsigned sort_modes(const tvm_digit_list *list, bool is_local, mode *sorted, unsigned count) {
    for (unsigned i = 0; i < list->count; i++) {
        mode item = {list->items[i], i, is_local};
        if (item.digit.stride == 0) continue;
        unsigned at = count++;
        for (; at > 0 && mode_before(&item, &sorted[at - 1]); at--) sorted[at] = sorted[at - 1];
        sorted[at] = item;
    }
    return count;
}

/* Do the modes of each dimension count through it exactly once? */
static bool modes_cover(const tvm_digits *digits, const mode *sorted, unsigned count) {
    for (unsigned d = digits->rank; d-- > 0;) {
        uint64_t product = 1;
        for (; count > 0 && sorted[count - 1].digit.dim == d; count--) {
            if (sorted[count - 1].digit.stride != product) return false;
            product *= sorted[count - 1].digit.size;
        }
        if (product != digits->shape[d]) return false;
    }
    return count == 0;
}

tvm_status tvm_digits_finish(const tvm_digits *digits, tvm_layout *out, tvm_why *why) {
    uint32_t shape[TVM_MAX_RANK] = {0};
    for (unsigned d = 0; d < digits->rank && d < TVM_MAX_RANK; d++)
        shape[d] = digits->shape[d] > UINT32_MAX ? UINT32_MAX : (uint32_t)digits->shape[d];
    tvm_status status = tvm_shape_check(digits->rank, shape, why);
    if (status == TVM_OK) status = check_product(&digits->spatial, TVM_MAX_THREADS, "threads", why);
    if (status != TVM_OK) return status;

    mode sorted[2 * TVM_MAX_DIGITS];
    unsigned count = sort_modes(&digits->spatial, false, sorted, 0);
    count = sort_modes(&digits->local, true, sorted, count);
    if (count > TVM_MAX_MODES || !modes_cover(digits, sorted, count))
        return tvm_refuse(why, "the modes do not cover every element exactly once");

    tvm_layout layout;
    memset(&layout, 0, sizeof layout);
    memcpy(layout.shape, shape, sizeof shape);
    layout.rank = (uint8_t)digits->rank;
    layout.modes = (uint8_t)count;
    layout.spatials = (uint8_t)digits->spatial.count;
    layout.locals = (uint8_t)digits->local.count;
    for (unsigned i = 0; i < digits->spatial.count; i++)
        if (digits->spatial.items[i].stride == 0) layout.spatial[i] = -(int32_t)digits->spatial.items[i].size;
    for (unsigned m = 0; m < count; m++) {
        layout.mode_size[m] = (uint32_t)sorted[m].digit.size;
        layout.mode_dim[m] = (uint8_t)sorted[m].digit.dim;
        if (sorted[m].is_local)
            layout.local[sorted[m].place] = (uint8_t)m;
        else
            layout.spatial[sorted[m].place] = (int32_t)m;
    }
    *out = layout;
    return TVM_OK;
}

/* ---- make, valid, equal ---- */

static tvm_status check_uses(unsigned modes, unsigned spatials, const int32_t *spatial, unsigned locals,
                             const uint8_t *local, tvm_why *why) {
    uint32_t used = 0;
    unsigned uses = 0;
    for (unsigned i = 0; i < spatials; i++) {
        int32_t m = spatial[i];
        if (m < 0) {
            if (m < -TVM_MAX_THREADS) return tvm_refuse(why, "a replication exceeds %d", TVM_MAX_THREADS);
            continue;
        }
        if ((unsigned)m >= modes) return tvm_refuse(why, "spatial names mode %d of %u", m, modes);
        if (used >> m & 1) return tvm_refuse(why, "mode %d is used twice", m);
        used |= UINT32_C(1) << m;
        uses++;
    }
    for (unsigned i = 0; i < locals; i++) {
        unsigned m = local[i];
        if (m >= modes) return tvm_refuse(why, "local names mode %u of %u", m, modes);
        if (used >> m & 1) return tvm_refuse(why, "mode %u is used twice", m);
        used |= UINT32_C(1) << m;
        uses++;
    }
    for (unsigned m = 0; m < modes && uses < modes; m++)
        if (!(used >> m & 1)) return tvm_refuse(why, "mode %u is neither spatial nor local", m);
    return TVM_OK;
}

tvm_status tvm_layout_make(unsigned rank, const uint32_t *shape, unsigned modes, const uint32_t *mode_size,
                           unsigned spatials, const int32_t *spatial, unsigned locals, const uint8_t *local,
                           tvm_layout *out, tvm_why *why) {
    uint8_t dims[TVM_MAX_MODES];
    uint64_t strides[TVM_MAX_MODES];
    if (modes > TVM_MAX_MODES || spatials > TVM_MAX_MODES || locals > TVM_MAX_MODES)
        return tvm_refuse(why, "a list of the layout has more than %d entries", TVM_MAX_MODES);
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status == TVM_OK) status = tvm_modes_assign(rank, shape, modes, mode_size, dims, why);
    if (status == TVM_OK) status = check_uses(modes, spatials, spatial, locals, local, why);
    if (status != TVM_OK) return status;

    mode_strides(modes, mode_size, dims, strides);
    tvm_digits digits;
    tvm_digits_start(&digits, rank, shape);
    uint64_t threads = 1;
    for (unsigned i = 0; i < spatials; i++) {
        int32_t m = spatial[i];
        tvm_digit digit = {m < 0 ? (uint32_t)-m : mode_size[m], m < 0 ? 0 : strides[m], m < 0 ? 0 : dims[m]};
        threads *= digit.size;
        if (threads > TVM_MAX_THREADS)
            return tvm_refuse(why, "the layout has more than %d threads", TVM_MAX_THREADS);
        tvm_digit_push(&digits.spatial, digit);
    }
    for (unsigned i = 0; i < locals; i++) {
        unsigned m = local[i];
        tvm_digit_push(&digits.local, (tvm_digit){mode_size[m], strides[m], dims[m]});
    }
    status = tvm_digits_finish(&digits, out, why);
    return status == TVM_OK && !tvm_layout_holdable(out, why) ? TVM_INVALID : status;
}

bool tvm_layout_holdable(const tvm_layout *layout, tvm_why *why) {
    uint32_t locals = tvm_layout_locals(layout);
    if (locals <= TVM_MAX_LOCALS) return true;
    tvm_refuse(why, "a thread would hold %u elements, above %d", locals, TVM_MAX_LOCALS);
    return false;
}

bool tvm_layout_valid(const tvm_layout *layout, tvm_why *why) {
    tvm_layout canonical;
    if (tvm_layout_make(layout->rank, layout->shape, layout->modes, layout->mode_size, layout->spatials,
                        layout->spatial, layout->locals, layout->local, &canonical, why) != TVM_OK)
        return false;
    if (!tvm_layout_equal(layout, &canonical)) {
        tvm_refuse(why, "the layout is not in canonical form");
        return false;
    }
    return true;
}

bool tvm_layout_equal(const tvm_layout *a, const tvm_layout *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- queries ---- */

static uint32_t spatial_size(const tvm_layout *layout, unsigned i) {
    int32_t m = layout->spatial[i];
    return m < 0 ? (uint32_t)-m : layout->mode_size[m];
}

uint32_t tvm_layout_threads(const tvm_layout *layout) {
    uint32_t product = 1;
    for (unsigned i = 0; i < layout->spatials; i++) product *= spatial_size(layout, i);
    return product;
}

uint32_t tvm_layout_locals(const tvm_layout *layout) {
    uint32_t product = 1;
    for (unsigned i = 0; i < layout->locals; i++) product *= layout->mode_size[layout->local[i]];
    return product;
}

uint32_t tvm_layout_elements(const tvm_layout *layout) {
    uint32_t product = 1;
    for (unsigned d = 0; d < layout->rank; d++) product *= layout->shape[d];
    return product;
}

uint32_t tvm_layout_replication(const tvm_layout *layout) {
    uint32_t product = 1;
    for (unsigned i = 0; i < layout->spatials; i++)
        if (layout->spatial[i] < 0) product *= spatial_size(layout, i);
    return product;
}

void tvm_layout_map(const tvm_layout *layout, uint32_t thread, uint32_t local, uint32_t *index) {
    uint32_t value[TVM_MAX_MODES];
    for (unsigned i = layout->spatials; i-- > 0;) {
        uint32_t size = spatial_size(layout, i);
        if (layout->spatial[i] >= 0) value[layout->spatial[i]] = thread % size;
        thread /= size;
    }
    for (unsigned i = layout->locals; i-- > 0;) {
        unsigned m = layout->local[i];
        value[m] = local % layout->mode_size[m];
        local /= layout->mode_size[m];
    }
    for (unsigned d = 0; d < layout->rank; d++) index[d] = 0;
    for (unsigned m = 0; m < layout->modes; m++) {
        uint32_t *at = &index[layout->mode_dim[m]];
        *at = *at * layout->mode_size[m] + value[m];
    }
}

uint32_t tvm_layout_element(const tvm_layout *layout, uint32_t thread, uint32_t local) {
    uint32_t index[TVM_MAX_RANK];
    uint32_t element = 0;
    tvm_layout_map(layout, thread, local, index);
    for (unsigned d = 0; d < layout->rank; d++) element = element * layout->shape[d] + index[d];
    return element;
}

void tvm_layout_locate(const tvm_layout *layout, const uint32_t *index, uint32_t *thread, uint32_t *local) {
    uint32_t value[TVM_MAX_MODES];
    uint32_t rest = 0;
    for (unsigned m = layout->modes; m-- > 0;) {
        bool innermost = m + 1 == layout->modes || layout->mode_dim[m + 1] != layout->mode_dim[m];
        if (innermost) rest = index[layout->mode_dim[m]];
        value[m] = rest % layout->mode_size[m];
        rest /= layout->mode_size[m];
    }
    *thread = 0;
    for (unsigned i = 0; i < layout->spatials; i++) {
        int32_t m = layout->spatial[i];
        *thread = *thread * spatial_size(layout, i) + (m < 0 ? 0 : value[m]);
    }
    *local = 0;
    for (unsigned i = 0; i < layout->locals; i++) {
        unsigned m = layout->local[i];
        *local = *local * layout->mode_size[m] + value[m];
    }
}

/* Least significant digit first: appending a digit repeats the block so far once per value. */
void tvm_digits_spell(const tvm_digit_list *list, const uint64_t *dim_stride, uint32_t *flat) {
    uint32_t count = 1;
    flat[0] = 0;
    for (unsigned i = list->count; i-- > 0;) {
        const tvm_digit *digit = &list->items[i];
        uint32_t step = (uint32_t)(digit->stride * dim_stride[digit->dim]);
        uint32_t total = count * (uint32_t)digit->size;
        for (uint32_t n = count; n < total; n++) flat[n] = flat[n - count] + step;
        count = total;
    }
}

void tvm_layout_table(const tvm_layout *layout, uint32_t *table) {
    uint64_t dim_stride[TVM_MAX_RANK];
    uint64_t product = 1;
    for (unsigned d = layout->rank; d-- > 0; product *= layout->shape[d]) dim_stride[d] = product;
    tvm_digits digits;
    tvm_digits_of(layout, &digits);
    uint32_t base[TVM_MAX_THREADS];
    uint32_t threads = tvm_layout_threads(layout), locals = tvm_layout_locals(layout);
    tvm_digits_spell(&digits.spatial, dim_stride, base);
    tvm_digits_spell(&digits.local, dim_stride, table);
    for (uint32_t t = 1; t < threads; t++)
        for (uint32_t l = 0; l < locals; l++) table[(size_t)t * locals + l] = base[t] + table[l];
}
