/* Register layouts: the rules by which instructions relate the layouts of their operands. Each rule is
 * decided on digits: thread and local parts of an index are independent, so what holds for thread 0's locals
 * and for every thread's first element holds for all pairs. */
#include <string.h>

#include "layout_digits.h"

enum { NO_DIM = TVM_MAX_RANK };

/* Does each thread's part of the index agree, where dimension d of `result` is dimension to_dim[d] of
 * `operand` (NO_DIM: not a dimension of the operand)? Extents of matched dimensions must be equal. */
static bool spatial_agrees(const tvm_layout *operand, const tvm_layout *result, const unsigned *to_dim) {
    tvm_digits have, all;
    tvm_digits_of(operand, &have);
    tvm_digits_of(result, &all);
    tvm_digit_list want = {.count = 0};
    for (unsigned i = 0; i < all.spatial.count; i++) {
        tvm_digit digit = all.spatial.items[i];
        if (digit.stride != 0) {
            unsigned dim = to_dim[digit.dim];
            digit = (tvm_digit){digit.size, dim == NO_DIM ? 0 : digit.stride, dim};
        }
        tvm_digit_push(&want, digit);
    }
    return tvm_digit_lists_equal(&have.spatial, &want);
}

/* Does thread 0 hold the element? Then *local is where. */
static bool first_thread_holds(const tvm_layout *layout, const uint32_t *index, uint32_t *local) {
    uint32_t thread;
    tvm_layout_locate(layout, index, &thread, local);
    return thread == 0;
}

static bool same_threads(const tvm_layout *a, const tvm_layout *b, tvm_why *why) {
    uint32_t threads_a = tvm_layout_threads(a), threads_b = tvm_layout_threads(b);
    if (threads_a == threads_b) return true;
    tvm_refuse(why, "one layout has %u threads, the other %u", threads_a, threads_b);
    return false;
}

/* ---- broadcasts ---- */

static bool match_dims(const tvm_layout *operand, const tvm_layout *result, unsigned *to_dim, tvm_why *why) {
    if (operand->rank > result->rank) {
        tvm_refuse(why, "rank %u does not broadcast to rank %u", operand->rank, result->rank);
        return false;
    }
    unsigned missing = (unsigned)result->rank - operand->rank;
    for (unsigned d = 0; d < result->rank; d++) {
        uint32_t extent = d < missing ? 1 : operand->shape[d - missing];
        if (extent != 1 && extent != result->shape[d]) {
            tvm_refuse(why, "extent %u does not broadcast to %u in dimension %u", extent, result->shape[d],
                       d);
            return false;
        }
        to_dim[d] = extent == 1 ? NO_DIM : d - missing;
    }
    return true;
}

bool tvm_layout_broadcasts(const tvm_layout *operand, const tvm_layout *result, uint32_t *local_map,
                           tvm_why *why) {
    unsigned to_dim[TVM_MAX_RANK];
    if (!match_dims(operand, result, to_dim, why) || !same_threads(operand, result, why)) return false;
    bool same = operand->rank == result->rank && tvm_layout_equal(operand, result);
    if (!same && !spatial_agrees(operand, result, to_dim)) {
        tvm_refuse(why, "the elements are spread over the threads differently");
        return false;
    }
    /* Where the threads' digits of a dimension agree, so do the elements that are left to each of them. */
    uint32_t locals = local_map ? tvm_layout_locals(result) : 0;
    for (uint32_t l = 0; l < locals; l++) {
        uint32_t index[TVM_MAX_RANK], part[TVM_MAX_RANK] = {0}, local = l;
        tvm_layout_map(result, 0, l, index);
        for (unsigned d = 0; d < result->rank; d++)
            if (to_dim[d] != NO_DIM) part[to_dim[d]] = index[d];
        if (!same && !first_thread_holds(operand, part, &local)) return false;
        local_map[l] = local;
    }
    return true;
}

/* ---- joint ---- */

/* A digit of the thread number: it counts `below`, which is the product of the digits less significant. */
typedef struct placed_digit {
    uint64_t below;
    tvm_digit digit;
} placed_digit;

typedef struct joint {
    const tvm_layout *const *operands;
    tvm_digits digits; /* so far */
    placed_digit placed[TVM_MAX_DIGITS];
    unsigned count;
} joint;

/* The shape that all operands broadcast to. */
static tvm_status joint_shape(joint *j, unsigned count, tvm_why *why) {
    uint32_t shape[TVM_MAX_RANK];
    unsigned rank = 0;
    for (unsigned o = 0; o < count; o++)
        if (j->operands[o]->rank > rank) rank = j->operands[o]->rank;
    for (unsigned back = 1; back <= rank; back++) {
        uint32_t extent = 1;
        for (unsigned o = 0; o < count; o++) {
            const tvm_layout *operand = j->operands[o];
            uint32_t own = back <= operand->rank ? operand->shape[operand->rank - back] : 1;
            if (own != 1 && extent != 1 && own != extent)
                return tvm_refuse(why, "extents %u and %u do not broadcast", extent, own);
            if (own != 1) extent = own;
        }
        shape[rank - back] = extent;
    }
    tvm_digits_start(&j->digits, rank, shape);
    return tvm_shape_check(rank, shape, why);
}

/* Takes the digits of dimension `dim` of the result from the operand's dimension `own`. */
static void take_dimension(joint *j, const tvm_layout *operand, unsigned own, unsigned dim) {
    tvm_digits have;
    tvm_digits_of(operand, &have);
    uint64_t below = 1;
    for (unsigned i = have.spatial.count; i-- > 0;) {
        tvm_digit digit = have.spatial.items[i];
        if (digit.stride != 0 && digit.dim == own)
            j->placed[j->count++] = (placed_digit){below, {digit.size, digit.stride, dim}};
        below *= digit.size;
    }
    for (unsigned i = 0; i < have.local.count; i++) {
        tvm_digit digit = have.local.items[i];
        if (digit.dim == own) tvm_digit_push(&j->digits.local, (tvm_digit){digit.size, digit.stride, dim});
    }
}

/* Takes out the most significant digit; false when there is none left. */
static bool take_highest(joint *j, placed_digit *highest) {
    unsigned best = 0;
    if (j->count == 0) return false;
    for (unsigned i = 1; i < j->count; i++)
        if (j->placed[i].below > j->placed[best].below) best = i;
    *highest = j->placed[best];
    j->placed[best] = j->placed[--j->count];
    return true;
}

/* Puts the digits together to a thread number, with replication where there is none. */
static tvm_status join_threads(joint *j, uint64_t threads, tvm_why *why) {
    placed_digit next;
    unsigned above = 0;
    uint64_t limit = threads;
    for (; take_highest(j, &next); limit = next.below) {
        uint64_t reach = next.below * next.digit.size;
        if (limit % reach != 0)
            return tvm_refuse(why,
                              "dimensions %u and %u are spread over the same threads, so that no thread "
                              "holds all that the result needs",
                              above, next.digit.dim);
        tvm_digit_push(&j->digits.spatial, (tvm_digit){.size = limit / reach});
        tvm_digit_push(&j->digits.spatial, next.digit);
        above = next.digit.dim;
    }
    tvm_digit_push(&j->digits.spatial, (tvm_digit){.size = limit});
    return TVM_OK;
}

tvm_status tvm_layout_joint(const tvm_layout *const *operands, unsigned count, tvm_layout *out,
                            tvm_why *why) {
    joint j = {.operands = operands};
    for (unsigned o = 1; o < count; o++)
        if (!same_threads(operands[0], operands[o], why)) return TVM_INVALID;
    tvm_status status = joint_shape(&j, count, why);
    if (status != TVM_OK) return status;
    for (unsigned d = 0; d < j.digits.rank; d++) {
        unsigned back = j.digits.rank - d, o = 0;
        if (j.digits.shape[d] == 1) continue;
        while (operands[o]->rank < back || operands[o]->shape[operands[o]->rank - back] == 1) o++;
        take_dimension(&j, operands[o], operands[o]->rank - back, d);
    }
    status = join_threads(&j, tvm_layout_threads(operands[0]), why);
    return status == TVM_OK ? tvm_digits_finish(&j.digits, out, why) : status;
}

/* ---- view ---- */

/* Along every replication digit of `to`, does `from` repeat, too? */
static bool copies_agree(const tvm_layout *from, const tvm_layout *to, tvm_why *why) {
    uint32_t threads = tvm_layout_threads(to), below = threads, held[TVM_MAX_THREADS];
    uint64_t dim_stride[TVM_MAX_RANK], product = 1;
    tvm_digits digits;
    tvm_digits_of(from, &digits);
    for (unsigned d = from->rank; d-- > 0; product *= from->shape[d]) dim_stride[d] = product;
    tvm_digits_spell(&digits.spatial, dim_stride, held);
    for (unsigned i = 0; i < to->spatials; i++) {
        int32_t m = to->spatial[i];
        uint32_t size = m < 0 ? (uint32_t)-m : to->mode_size[m];
        below /= size;
        if (m >= 0) continue;
        for (uint32_t t = 0; t < threads; t++) {
            uint32_t holder = t - t / below % size * below;
            if (held[t] == held[holder]) continue;
            tvm_refuse(why, "threads %u and %u would hold the same elements but hold different bits", holder,
                       t);
            return false;
        }
    }
    return true;
}

bool tvm_layout_viewable(const tvm_layout *from, unsigned from_bits, const tvm_layout *to, unsigned to_bits,
                         tvm_why *why) {
    if (!same_threads(from, to, why)) return false;
    uint32_t from_locals = tvm_layout_locals(from), to_locals = tvm_layout_locals(to);
    uint64_t have = (uint64_t)from_bits * from_locals, want = (uint64_t)to_bits * to_locals;
    if (have != want) {
        tvm_refuse(why, "a thread holds %llu bits (%u elements of %u bits), not %llu (%u of %u)",
                   (unsigned long long)have, from_locals, from_bits, (unsigned long long)want, to_locals,
                   to_bits);
        return false;
    }
    return copies_agree(from, to, why);
}

/* ---- mma ---- */

static bool mma_quotient(const tvm_layout *layout, const char *atom_name, tvm_layout *outer, tvm_why *why) {
    tvm_layout atom;
    if (layout->rank < 2) {
        tvm_refuse(why, "an operand of mma has rank 2 or more, not %u", layout->rank);
        return false;
    }
    *outer = *layout;
    if (!atom_name) return true;
    if (tvm_layout_atom(atom_name, strlen(atom_name), &atom, why) != TVM_OK) return false;
    if (tvm_layout_divide_right(layout, &atom, outer, why) == TVM_OK) return true;
    tvm_refuse(why, "the layout is not a product X.%s", atom_name);
    return false;
}

/* Do all of c's matrices along this batch dimension share the operand's one? */
static bool broadcasts(const tvm_layout *outer, const tvm_layout *outer_c, unsigned d) {
    return d + 2U < outer_c->rank && outer->shape[d] == 1;
}

static void without_broadcasts(const tvm_layout *outer, const tvm_layout *outer_c, uint32_t *index) {
    for (unsigned d = 0; d + 2U < outer_c->rank; d++)
        if (broadcasts(outer, outer_c, d)) index[d] = 0;
}

/* One operand against c: a has c's rows and k as columns, b has c's columns and k as rows. The k dimension is
 * the only one in which the tile numbers of the two differ. */
static bool mma_operand_fits(const tvm_layout *outer, const tvm_layout *outer_c, unsigned k_dim, char name,
                             tvm_why *why) {
    unsigned to_dim[TVM_MAX_RANK];
    for (unsigned d = 0; d < outer_c->rank; d++)
        to_dim[d] = d == k_dim || broadcasts(outer, outer_c, d) ? NO_DIM : d;
    if (!spatial_agrees(outer, outer_c, to_dim)) {
        tvm_refuse(why, "the tiles of %c are spread over the warps otherwise than those of c", name);
        return false;
    }
    uint32_t local;
    for (uint32_t k = 0; k < outer->shape[k_dim]; k++) {
        uint32_t index[TVM_MAX_RANK] = {0};
        index[k_dim] = k;
        if (!first_thread_holds(outer, index, &local)) {
            tvm_refuse(why, "a warp does not hold tile %u along k of %c", k, name);
            return false;
        }
    }
    uint32_t tiles = tvm_layout_locals(outer_c);
    for (uint32_t t = 0; t < tiles; t++) {
        uint32_t index[TVM_MAX_RANK];
        tvm_layout_map(outer_c, 0, t, index);
        index[k_dim] = 0;
        without_broadcasts(outer, outer_c, index);
        if (!first_thread_holds(outer, index, &local)) {
            tvm_refuse(why, "a warp does not hold the tile of %c for its tile %u of c", name, t);
            return false;
        }
    }
    return true;
}

/* The operand with as many dimensions as c: leading ones of extent 1. */
static bool mma_widen(tvm_layout *layout, unsigned rank, tvm_why *why) {
    while (layout->rank < rank)
        if (tvm_layout_unsqueeze(layout, 0, layout, why) != TVM_OK) return false;
    if (layout->rank == rank) return true;
    tvm_refuse(why, "an operand of rank %u, expected 2 to %u as c", layout->rank, rank);
    return false;
}

static bool mma_extent_fits(uint32_t operand, uint32_t c) {
    return operand == c || operand == 1;
}

/* Shapes [.., m, k], [.., k, n] and [.., m, n], the leading extents of a and b those of c or 1? */
static bool mma_shapes_fit(const tvm_layout *a, const tvm_layout *b, const tvm_layout *c, tvm_why *why) {
    unsigned m = c->rank - 2U, n = c->rank - 1U;
    for (unsigned d = 0; d < m; d++) {
        if (mma_extent_fits(a->shape[d], c->shape[d]) && mma_extent_fits(b->shape[d], c->shape[d])) continue;
        tvm_refuse(why, "a, b and c have extents %u, %u and %u in batch dimension %u", a->shape[d],
                   b->shape[d], c->shape[d], d);
        return false;
    }
    if (a->shape[m] == c->shape[m] && b->shape[n] == c->shape[n] && a->shape[n] == b->shape[m]) return true;
    tvm_refuse(why, "shapes [%u, %u] and [%u, %u] do not multiply to [%u, %u]", a->shape[m], a->shape[n],
               b->shape[m], b->shape[n], c->shape[m], c->shape[n]);
    return false;
}

bool tvm_mma_plan_make(const tvm_mma_atoms *atoms, const tvm_layout *a, const tvm_layout *b,
                       const tvm_layout *c, tvm_mma_plan *plan, tvm_why *why) {
    tvm_mma_plan made;
    tvm_layout wide_a = *a, wide_b = *b;
    if (!mma_quotient(a, atoms->a, &made.outer_a, why) || !mma_quotient(b, atoms->b, &made.outer_b, why) ||
        !mma_quotient(c, atoms->c, &made.outer_c, why) || !mma_widen(&made.outer_a, c->rank, why) ||
        !mma_widen(&made.outer_b, c->rank, why) || !mma_widen(&wide_a, c->rank, why) ||
        !mma_widen(&wide_b, c->rank, why) || !mma_shapes_fit(&wide_a, &wide_b, c, why))
        return false;
    unsigned m = c->rank - 2U, n = c->rank - 1U;
    if (!same_threads(a, c, why) || !same_threads(b, c, why) ||
        !mma_operand_fits(&made.outer_a, &made.outer_c, n, 'a', why) ||
        !mma_operand_fits(&made.outer_b, &made.outer_c, m, 'b', why))
        return false;
    made.tiles_c = tvm_layout_locals(&made.outer_c);
    made.tiles_k = made.outer_a.shape[n];
    *plan = made;
    return true;
}

void tvm_mma_tile(const tvm_mma_plan *plan, uint32_t tile_c, uint32_t k, uint32_t *tile_a, uint32_t *tile_b) {
    uint32_t in_a[TVM_MAX_RANK], in_b[TVM_MAX_RANK], thread;
    unsigned rank = plan->outer_c.rank;
    tvm_layout_map(&plan->outer_c, 0, tile_c, in_a);
    memcpy(in_b, in_a, sizeof in_b);
    in_a[rank - 1] = in_b[rank - 2] = k;
    without_broadcasts(&plan->outer_a, &plan->outer_c, in_a);
    without_broadcasts(&plan->outer_b, &plan->outer_c, in_b);
    tvm_layout_locate(&plan->outer_a, in_a, &thread, tile_a);
    tvm_layout_locate(&plan->outer_b, in_b, &thread, tile_b);
}
