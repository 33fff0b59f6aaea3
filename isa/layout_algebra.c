/* Register layouts: primitives, atoms and the operations that make layouts of layouts. */
#include <string.h>

#include "layout_digits.h"
#include "numbers.h"

/* ---- primitives ---- */

/* One digit a dimension, all in one list. */
static tvm_status finish_holdable(const tvm_digits *digits, tvm_layout *out, tvm_why *why) {
    tvm_status status = tvm_digits_finish(digits, out, why);
    return status == TVM_OK && !tvm_layout_holdable(out, why) ? TVM_INVALID : status;
}

static tvm_status primitive(unsigned rank, const uint32_t *shape, bool is_spatial, bool is_column,
                            tvm_layout *out, tvm_why *why) {
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status != TVM_OK) return status;
    tvm_digits digits;
    tvm_digits_start(&digits, rank, shape);
    for (unsigned i = 0; i < rank; i++) {
        unsigned d = is_column ? rank - 1 - i : i;
        tvm_digit_push(is_spatial ? &digits.spatial : &digits.local, (tvm_digit){shape[d], 1, d});
    }
    return finish_holdable(&digits, out, why);
}

tvm_status tvm_layout_local(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why) {
    return primitive(rank, shape, false, false, out, why);
}

tvm_status tvm_layout_spatial(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why) {
    return primitive(rank, shape, true, false, out, why);
}

tvm_status tvm_layout_column_local(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why) {
    return primitive(rank, shape, false, true, out, why);
}

tvm_status tvm_layout_column_spatial(unsigned rank, const uint32_t *shape, tvm_layout *out, tvm_why *why) {
    return primitive(rank, shape, true, true, out, why);
}

tvm_status tvm_layout_replicated(unsigned rank, uint32_t threads, tvm_layout *out, tvm_why *why) {
    static const uint32_t ones[TVM_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    tvm_status status = tvm_shape_check(rank, ones, why);
    if (status != TVM_OK) return status;
    if (threads == 0) return tvm_refuse(why, "a layout cannot be held by 0 threads");
    tvm_digits digits;
    tvm_digits_start(&digits, rank, ones);
    tvm_digit_push(&digits.spatial, (tvm_digit){threads, 0, 0});
    return tvm_digits_finish(&digits, out, why);
}

tvm_status tvm_layout_whole(unsigned rank, const uint32_t *shape, uint32_t threads, tvm_layout *out,
                            tvm_why *why) {
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status != TVM_OK) return status;
    tvm_digits digits;
    tvm_digits_start(&digits, rank, shape);
    tvm_digit_push(&digits.spatial, (tvm_digit){threads, 0, 0});
    for (unsigned d = 0; d < rank; d++) tvm_digit_push(&digits.local, (tvm_digit){shape[d], 1, d});
    return tvm_digits_finish(&digits, out, why);
}

/* ---- atoms ---- */

enum { ATOM_FACTORS = 3 };

typedef struct factor {
    bool is_spatial, is_column;
    uint32_t shape[2];
} factor;

/* Composed left to right. A factor of one element changes nothing. */
typedef struct atom {
    const char *name;
    factor factors[ATOM_FACTORS];
} atom;

static const atom atoms[] = {
    {"mma.m16n8k16.A", {{false, true, {2, 2}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k16.B", {{false, false, {2, 1}}, {true, true, {4, 8}}, {false, false, {2, 1}}}},
    {"mma.m16n8k16.C", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k16.D", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k8.A", {{false, true, {2, 2}}, {true, false, {8, 4}}, {false, false, {1, 1}}}},
    {"mma.m16n8k8.B", {{false, false, {2, 1}}, {true, true, {4, 8}}, {false, false, {1, 1}}}},
    {"mma.m16n8k8.C", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k8.D", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k32.A", {{false, true, {2, 2}}, {true, false, {8, 4}}, {false, false, {1, 4}}}},
    {"mma.m16n8k32.B", {{false, false, {2, 1}}, {true, true, {4, 8}}, {false, false, {4, 1}}}},
    {"mma.m16n8k32.C", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k32.D", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k64.A", {{false, true, {2, 2}}, {true, false, {8, 4}}, {false, false, {1, 8}}}},
    {"mma.m16n8k64.B", {{false, false, {2, 1}}, {true, true, {4, 8}}, {false, false, {8, 1}}}},
    {"mma.m16n8k64.C", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"mma.m16n8k64.D", {{false, false, {2, 1}}, {true, false, {8, 4}}, {false, false, {1, 2}}}},
    {"ldmatrix", {{true, false, {8, 4}}, {false, false, {1, 2}}, {false, false, {1, 1}}}},
};

/* So many scales of each row of a, or of each column of b, one after the other along k. */
typedef struct scale_atom {
    const char *name;
    uint32_t shape[2];
} scale_atom;

static const scale_atom scale_atoms[] = {
    {"mma.scale_vec1.A", {16, 1}}, {"mma.scale_vec1.B", {1, 8}},  {"mma.scale_vec2.A", {16, 2}},
    {"mma.scale_vec2.B", {2, 8}},  {"mma.scale_vec4.A", {16, 4}}, {"mma.scale_vec4.B", {4, 8}},
};

enum { ATOMS = sizeof atoms / sizeof *atoms, SCALE_ATOMS = sizeof scale_atoms / sizeof *scale_atoms };

const char *tvm_layout_atom_name(size_t index) {
    if (index < ATOMS) return atoms[index].name;
    return index < ATOMS + SCALE_ATOMS ? scale_atoms[index - ATOMS].name : NULL;
}

/* PTX ISA, "Block Scaling for mma.sync", of thread-id 0: of the scales of a, lanes 4i and 4i + 1 have those
 * of rows i and i + 8; of those of b, lane 4i has column i. The other lanes have the same, so that it does
 * not matter which of them is asked. */
static tvm_status make_scales(const scale_atom *of, tvm_layout *out, tvm_why *why) {
    bool is_a = of->shape[0] == 16;
    unsigned along = is_a ? 1 : 0, across = is_a ? 0 : 1;
    tvm_digits digits;
    tvm_digits_start(&digits, 2, of->shape);
    tvm_digit_push(&digits.spatial, (tvm_digit){8, 1, across});
    tvm_digit_push(&digits.spatial, (tvm_digit){is_a ? 2 : 4, 0, 0});
    if (is_a) tvm_digit_push(&digits.spatial, (tvm_digit){2, 8, across});
    tvm_digit_push(&digits.local, (tvm_digit){of->shape[along], 1, along});
    return tvm_digits_finish(&digits, out, why);
}

static tvm_status make_factors(const atom *of, tvm_layout *out, tvm_why *why) {
    tvm_layout product;
    const uint32_t one[2] = {1, 1};
    tvm_status status = tvm_layout_local(2, one, &product, why);
    for (unsigned f = 0; f < ATOM_FACTORS && status == TVM_OK; f++) {
        const factor *next = &of->factors[f];
        tvm_layout layout;
        status = primitive(2, next->shape, next->is_spatial, next->is_column, &layout, why);
        if (status == TVM_OK) status = tvm_layout_compose(&product, &layout, &product, why);
    }
    if (status == TVM_OK) *out = product;
    return status;
}

static bool is_named(const char *of, const char *name, size_t length) {
    return strlen(of) == length && memcmp(of, name, length) == 0;
}

tvm_status tvm_layout_atom(const char *name, size_t length, tvm_layout *out, tvm_why *why) {
    for (size_t i = 0; i < ATOMS; i++)
        if (is_named(atoms[i].name, name, length)) return make_factors(&atoms[i], out, why);
    for (size_t i = 0; i < SCALE_ATOMS; i++)
        if (is_named(scale_atoms[i].name, name, length)) return make_scales(&scale_atoms[i], out, why);
    return tvm_refuse(why, "no layout atom is named `%.*s`", (int)(length < 60 ? length : 60), name);
}

/* ---- compose and divide ---- */

/* The digits with leading dimensions of extent 1 added up to `rank`. */
static void digits_padded(const tvm_layout *layout, unsigned rank, tvm_digits *digits) {
    tvm_digits_of(layout, digits);
    unsigned pad = rank > layout->rank ? rank - layout->rank : 0;
    if (pad == 0) return;
    for (unsigned d = layout->rank; d-- > 0;) digits->shape[d + pad] = digits->shape[d];
    for (unsigned d = 0; d < pad; d++) digits->shape[d] = 1;
    digits->rank += pad;
    tvm_digit_list *lists[2] = {&digits->spatial, &digits->local};
    for (unsigned k = 0; k < 2; k++)
        for (unsigned i = 0; i < lists[k]->count; i++)
            if (lists[k]->items[i].stride != 0) lists[k]->items[i].dim += pad;
}

static unsigned larger_rank(const tvm_layout *a, const tvm_layout *b) {
    return a->rank > b->rank ? a->rank : b->rank;
}

tvm_status tvm_layout_compose(const tvm_layout *outer, const tvm_layout *inner, tvm_layout *out,
                              tvm_why *why) {
    tvm_digits high, low, product;
    unsigned rank = larger_rank(outer, inner);
    digits_padded(outer, rank, &high);
    digits_padded(inner, rank, &low);
    product.rank = rank;
    for (unsigned d = 0; d < rank; d++) product.shape[d] = high.shape[d] * low.shape[d];
    product.spatial.count = product.local.count = 0;
    for (unsigned i = 0; i < high.spatial.count; i++) {
        tvm_digit digit = high.spatial.items[i];
        digit.stride *= low.shape[digit.dim];
        tvm_digit_push(&product.spatial, digit);
    }
    for (unsigned i = 0; i < high.local.count; i++) {
        tvm_digit digit = high.local.items[i];
        digit.stride *= low.shape[digit.dim];
        tvm_digit_push(&product.local, digit);
    }
    tvm_digit_push_all(&product.spatial, &low.spatial);
    tvm_digit_push_all(&product.local, &low.local);
    return tvm_digits_finish(&product, out, why);
}

/* Splits the number that the digits spell at its `low_size` least significant values; false when a digit
 * straddles the border in no whole factor. */
static bool split(const tvm_digit_list *list, uint64_t low_size, tvm_digit_list *high, tvm_digit_list *low) {
    unsigned border = list->count;
    for (; border > 0 && low_size % list->items[border - 1].size == 0 && low_size > 1; border--)
        low_size /= list->items[border - 1].size;
    high->count = low->count = 0;
    if (low_size > 1 && (border == 0 || list->items[border - 1].size % low_size != 0)) return false;
    for (unsigned i = 0; i < list->count; i++) {
        tvm_digit digit = list->items[i];
        if (i + 1 == border && low_size > 1) {
            tvm_digit_push(high, (tvm_digit){digit.size / low_size, digit.stride * low_size, digit.dim});
            tvm_digit_push(low, (tvm_digit){low_size, digit.stride, digit.dim});
        } else {
            tvm_digit_push(i < border ? high : low, digit);
        }
    }
    return true;
}

static bool unscale(tvm_digit_list *list, const uint64_t *shape) {
    for (unsigned i = 0; i < list->count; i++) {
        tvm_digit *digit = &list->items[i];
        if (digit->stride % shape[digit->dim] != 0) return false;
        digit->stride /= shape[digit->dim];
    }
    return true;
}

/* The digits of the quotient; composing it with the divisor then tells whether it is one. */
static bool quotient_digits(const tvm_layout *layout, const tvm_layout *divisor, bool is_right,
                            tvm_digits *quotient) {
    tvm_digits whole, part;
    uint32_t threads = tvm_layout_threads(layout), part_threads = tvm_layout_threads(divisor);
    uint32_t locals = tvm_layout_locals(layout), part_locals = tvm_layout_locals(divisor);
    if (divisor->rank > layout->rank || threads % part_threads != 0 || locals % part_locals != 0)
        return false;
    tvm_digits_of(layout, &whole);
    digits_padded(divisor, layout->rank, &part);
    quotient->rank = layout->rank;
    for (unsigned d = 0; d < layout->rank; d++) {
        if (whole.shape[d] % part.shape[d] != 0) return false;
        quotient->shape[d] = whole.shape[d] / part.shape[d];
    }
    tvm_digit_list unused;
    if (is_right)
        return split(&whole.spatial, part_threads, &quotient->spatial, &unused) &&
               split(&whole.local, part_locals, &quotient->local, &unused) &&
               unscale(&quotient->spatial, part.shape) && unscale(&quotient->local, part.shape);
    return split(&whole.spatial, threads / part_threads, &unused, &quotient->spatial) &&
           split(&whole.local, locals / part_locals, &unused, &quotient->local);
}

static tvm_status divide(const tvm_layout *layout, const tvm_layout *divisor, bool is_right, tvm_layout *out,
                         tvm_why *why) {
    tvm_digits digits;
    tvm_layout quotient, product;
    if (quotient_digits(layout, divisor, is_right, &digits) &&
        tvm_digits_finish(&digits, &quotient, NULL) == TVM_OK &&
        tvm_layout_compose(is_right ? &quotient : divisor, is_right ? divisor : &quotient, &product, NULL) ==
            TVM_OK &&
        tvm_layout_equal(&product, layout)) {
        *out = quotient;
        return TVM_OK;
    }
    return tvm_refuse(why, "the layout cannot be divided on the %s by the divisor",
                      is_right ? "right" : "left");
}

tvm_status tvm_layout_divide_right(const tvm_layout *layout, const tvm_layout *divisor, tvm_layout *out,
                                   tvm_why *why) {
    return divide(layout, divisor, true, out, why);
}

tvm_status tvm_layout_divide_left(const tvm_layout *layout, const tvm_layout *divisor, tvm_layout *out,
                                  tvm_why *why) {
    return divide(layout, divisor, false, out, why);
}

/* ---- dimensions ---- */

static tvm_status check_dim(const tvm_layout *layout, unsigned dim, tvm_why *why) {
    if (dim < layout->rank) return TVM_OK;
    return tvm_refuse(why, "dimension %u of a layout of rank %u", dim, layout->rank);
}

tvm_status tvm_layout_reduce(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why) {
    tvm_status status = check_dim(layout, dim, why);
    if (status != TVM_OK) return status;
    tvm_digits from, to;
    tvm_digits_of(layout, &from);
    tvm_digits_start(&to, layout->rank, layout->shape);
    to.shape[dim] = 1;
    for (unsigned i = 0; i < from.spatial.count; i++) {
        tvm_digit digit = from.spatial.items[i];
        if (digit.dim == dim) digit.stride = 0;
        tvm_digit_push(&to.spatial, digit);
    }
    for (unsigned i = 0; i < from.local.count; i++)
        if (from.local.items[i].dim != dim) tvm_digit_push(&to.local, from.local.items[i]);
    return tvm_digits_finish(&to, out, why);
}

/* Renames dimension d to new_dim[d]; extents of the result are given. */
static tvm_status rename_dims(const tvm_layout *layout, const unsigned *new_dim, unsigned rank,
                              const uint32_t *shape, tvm_layout *out, tvm_why *why) {
    tvm_digits from, to;
    tvm_digits_of(layout, &from);
    tvm_digits_start(&to, rank, shape);
    for (unsigned i = 0; i < from.spatial.count; i++) {
        tvm_digit digit = from.spatial.items[i];
        tvm_digit_push(&to.spatial, (tvm_digit){digit.size, digit.stride, new_dim[digit.dim]});
    }
    for (unsigned i = 0; i < from.local.count; i++) {
        tvm_digit digit = from.local.items[i];
        tvm_digit_push(&to.local, (tvm_digit){digit.size, digit.stride, new_dim[digit.dim]});
    }
    return tvm_digits_finish(&to, out, why);
}

tvm_status tvm_layout_squeeze(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why) {
    tvm_status status = check_dim(layout, dim, why);
    if (status != TVM_OK) return status;
    if (layout->shape[dim] != 1)
        return tvm_refuse(why, "dimension %u has extent %u, not 1", dim, layout->shape[dim]);
    if (layout->rank == 1) return tvm_refuse(why, "the only dimension cannot be squeezed");
    unsigned new_dim[TVM_MAX_RANK];
    uint32_t shape[TVM_MAX_RANK];
    for (unsigned d = 0; d < layout->rank; d++) {
        new_dim[d] = d > dim ? d - 1 : d;
        if (d != dim) shape[new_dim[d]] = layout->shape[d];
    }
    return rename_dims(layout, new_dim, layout->rank - 1U, shape, out, why);
}

tvm_status tvm_layout_unsqueeze(const tvm_layout *layout, unsigned dim, tvm_layout *out, tvm_why *why) {
    if (dim > layout->rank)
        return tvm_refuse(why, "a new dimension %u in a layout of rank %u", dim, layout->rank);
    if (layout->rank == TVM_MAX_RANK) return tvm_refuse(why, "the rank would exceed %d", TVM_MAX_RANK);
    unsigned new_dim[TVM_MAX_RANK];
    uint32_t shape[TVM_MAX_RANK];
    shape[dim] = 1;
    for (unsigned d = 0; d < layout->rank; d++) {
        new_dim[d] = d >= dim ? d + 1 : d;
        shape[new_dim[d]] = layout->shape[d];
    }
    return rename_dims(layout, new_dim, layout->rank + 1U, shape, out, why);
}

tvm_status tvm_layout_permute(const tvm_layout *layout, const uint32_t *order, tvm_layout *out,
                              tvm_why *why) {
    unsigned new_dim[TVM_MAX_RANK];
    uint32_t shape[TVM_MAX_RANK];
    unsigned seen = 0;
    for (unsigned d = 0; d < layout->rank; d++) {
        if (order[d] >= layout->rank || (seen >> order[d] & 1))
            return tvm_refuse(why, "the order is not a permutation of %u dimensions", layout->rank);
        seen |= 1U << order[d];
        new_dim[order[d]] = d;
        shape[d] = layout->shape[order[d]];
    }
    return rename_dims(layout, new_dim, layout->rank, shape, out, why);
}

/* ---- reshape ---- */

/* Splits a digit of row-major flat `digit.stride` over the dimensions of `to`, most significant part first.
 */
static bool deal(tvm_digit digit, const tvm_digits *to, tvm_digit_list *list) {
    tvm_digit parts[TVM_MAX_RANK];
    unsigned count = 0;
    uint64_t below = 1;
    for (unsigned d = to->rank; d-- > 0 && digit.size > 1; below *= to->shape[d]) {
        uint64_t above = below * to->shape[d];
        if (digit.stride >= above) continue;
        if (digit.stride % below != 0 || above % digit.stride != 0) return false;
        uint64_t size = digit.size < above / digit.stride ? digit.size : above / digit.stride;
        if (digit.size % size != 0 || (above / digit.stride) % size != 0) return false;
        parts[count++] = (tvm_digit){size, digit.stride / below, d};
        digit.size /= size;
        digit.stride *= size;
    }
    while (count > 0) tvm_digit_push(list, parts[--count]);
    return true;
}

/* Row-major flat digits first: there, digits of different dimensions can continue each other. */
static bool reshape_list(const tvm_digit_list *from, const uint64_t *dim_stride, const tvm_digits *to,
                         tvm_digit_list *list) {
    tvm_digit_list flat = {.count = 0};
    for (unsigned i = 0; i < from->count; i++) {
        tvm_digit digit = from->items[i];
        tvm_digit_push(&flat, (tvm_digit){digit.size, digit.stride * dim_stride[digit.dim], 0});
    }
    for (unsigned i = 0; i < flat.count; i++) {
        if (flat.items[i].stride == 0)
            tvm_digit_push(list, flat.items[i]);
        else if (!deal(flat.items[i], to, list))
            return false;
    }
    return true;
}

tvm_status tvm_layout_reshape(const tvm_layout *layout, unsigned rank, const uint32_t *shape, tvm_layout *out,
                              tvm_why *why) {
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status != TVM_OK) return status;
    uint64_t dim_stride[TVM_MAX_RANK], elements = 1, flat = 1;
    for (unsigned d = 0; d < rank; d++) elements *= shape[d];
    for (unsigned d = layout->rank; d-- > 0; flat *= layout->shape[d]) dim_stride[d] = flat;
    if (elements != flat)
        return tvm_refuse(why, "reshape of %llu elements to %llu", (unsigned long long)flat,
                          (unsigned long long)elements);
    tvm_digits from, to;
    tvm_digits_of(layout, &from);
    tvm_digits_start(&to, rank, shape);
    if (!reshape_list(&from.spatial, dim_stride, &to, &to.spatial) ||
        !reshape_list(&from.local, dim_stride, &to, &to.local))
        return tvm_refuse(why, "a mode of the layout straddles dimensions of the new shape");
    return tvm_digits_finish(&to, out, why);
}

tvm_status tvm_layout_flatten(const tvm_layout *layout, tvm_layout *out, tvm_why *why) {
    uint32_t elements = tvm_layout_elements(layout);
    return tvm_layout_reshape(layout, 1, &elements, out, why);
}

tvm_status tvm_layout_concat(const tvm_layout *a, const tvm_layout *b, tvm_layout *out, tvm_why *why) {
    unsigned rank = (unsigned)a->rank + b->rank;
    if (rank > TVM_MAX_RANK) return tvm_refuse(why, "the rank would be %u, above %d", rank, TVM_MAX_RANK);
    tvm_digits first, second;
    tvm_digits_of(a, &first);
    digits_padded(b, rank, &second);
    for (unsigned d = 0; d < b->rank; d++) first.shape[a->rank + d] = b->shape[d];
    first.rank = rank;
    tvm_digit_push_all(&first.spatial, &second.spatial);
    tvm_digit_push_all(&first.local, &second.local);
    return tvm_digits_finish(&first, out, why);
}

/* ---- auto ---- */

/* Elements of the run that one thread holds: a divisor of `extent` of at most 128 bits. Best are runs that
 * one access of 16, 8, 4, 2 or 1 bytes moves, then whole bytes, then the longest. */
static uint32_t run_length(uint32_t extent, unsigned bits) {
    uint32_t best = 1;
    unsigned best_rank = 0;
    for (uint32_t run = 1; run <= extent && run <= 128 / bits; run++) {
        if (extent % run != 0) continue;
        unsigned total = run * bits;
        unsigned rank = total % 8 != 0 ? 0 : (total & (total - 1)) != 0 ? 1 : 2;
        if (rank >= best_rank) {
            best = run;
            best_rank = rank;
        }
    }
    return best;
}

tvm_status tvm_layout_auto(unsigned rank, const uint32_t *shape, uint32_t threads, unsigned bits,
                           tvm_layout *out, tvm_why *why) {
    tvm_status status = tvm_shape_check(rank, shape, why);
    if (status != TVM_OK) return status;
    if (threads < 1 || threads > TVM_MAX_THREADS)
        return tvm_refuse(why, "%u threads are not between 1 and %d", threads, TVM_MAX_THREADS);
    if (bits < 1 || bits > 128) return tvm_refuse(why, "elements of %u bits", bits);
    uint32_t run = run_length(shape[rank - 1], bits);
    uint32_t taken[TVM_MAX_RANK];
    for (unsigned d = rank; d-- > 0;) {
        taken[d] = (uint32_t)tvm_gcd(threads, d + 1 == rank ? shape[d] / run : shape[d]);
        threads /= taken[d];
    }
    tvm_digits digits;
    tvm_digits_start(&digits, rank, shape);
    tvm_digit_push(&digits.spatial, (tvm_digit){threads, 0, 0});
    for (unsigned d = 0; d < rank; d++) {
        uint32_t inner = d + 1 == rank ? run : 1;
        tvm_digit_push(&digits.spatial, (tvm_digit){taken[d], inner, d});
        tvm_digit_push(&digits.local,
                       (tvm_digit){shape[d] / inner / taken[d], (uint64_t)inner * taken[d], d});
    }
    tvm_digit_push(&digits.local, (tvm_digit){run, 1, rank - 1});
    return finish_holdable(&digits, out, why);
}
