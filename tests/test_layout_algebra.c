/* The algebra of register layouts against brute force: primitives, products and quotients, dimensions, auto.
 */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "layout_kit.h"
#include "suite_kit.h"

static reference ref_a, ref_b, ref_want;

/* ---- primitives ---- */

typedef tvm_status primitive_fn(unsigned, const uint32_t *, tvm_layout *, tvm_why *);

START_TEST(primitives_enumerate_their_shape) {
    static const uint32_t shapes[][3] = {{1, 1, 1}, {6, 1, 5}, {3, 4, 2}, {2, 2, 2}, {7, 3, 1}};
    static primitive_fn *const make[] = {tvm_layout_local, tvm_layout_column_local, tvm_layout_spatial,
                                         tvm_layout_column_spatial};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        uint32_t elements = shape_elements(3, shapes[s]);
        for (unsigned kind = 0; kind < 4; kind++) {
            tvm_layout layout;
            ck_assert_int_eq(make[kind](3, shapes[s], &layout, NULL), TVM_OK);
            memcpy(ref_want.shape, shapes[s], sizeof shapes[s]);
            ref_want.rank = 3;
            ref_want.threads = kind < 2 ? 1 : elements;
            ref_want.locals = kind < 2 ? elements : 1;
            for (uint32_t n = 0; n < elements; n++) {
                uint32_t column[3] = {n % shapes[s][0], n / shapes[s][0] % shapes[s][1],
                                      n / shapes[s][0] / shapes[s][1]};
                ref_want.table[n] = kind % 2 == 0 ? n : flatten(3, shapes[s], column);
            }
            ck_assert(layout_is(&layout, &ref_want));
        }
    }
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_spatial(2, (uint32_t[]){64, 32}, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_local(2, (uint32_t[]){128, 64}, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_local(2, (uint32_t[]){4, 0}, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_local(0, NULL, &layout, NULL), TVM_INVALID);
}
END_TEST

START_TEST(replicated_is_one_element_everywhere) {
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_replicated(3, 96, &layout, NULL), TVM_OK);
    ref_want = (reference){.rank = 3, .shape = {1, 1, 1}, .threads = 96, .locals = 1};
    ck_assert(layout_is(&layout, &ref_want));
    ck_assert_uint_eq(tvm_layout_replication(&layout), 96);
    ck_assert_int_eq(tvm_layout_replicated(1, 1, &layout, NULL), TVM_OK);
    ck_assert_uint_eq(layout.spatials, 0);
    ck_assert_int_eq(tvm_layout_replicated(1, 0, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_replicated(1, 1025, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_replicated(9, 4, &layout, NULL), TVM_INVALID);
}
END_TEST

/* ---- compose and divide ---- */

static void pad(reference *r, unsigned rank) {
    while (r->rank < rank) {
        memmove(r->shape + 1, r->shape, r->rank * sizeof *r->shape);
        r->shape[0] = 1;
        r->rank++;
    }
}

static void reference_compose(reference *outer, reference *inner, reference *out) {
    pad(outer, inner->rank);
    pad(inner, outer->rank);
    out->rank = outer->rank;
    out->threads = outer->threads * inner->threads;
    out->locals = outer->locals * inner->locals;
    for (unsigned d = 0; d < out->rank; d++) out->shape[d] = outer->shape[d] * inner->shape[d];
    for (uint32_t t = 0; t < out->threads; t++)
        for (uint32_t l = 0; l < out->locals; l++) {
            uint32_t high[TVM_MAX_RANK], low[TVM_MAX_RANK], index[TVM_MAX_RANK];
            reference_index(outer, t / inner->threads, l / inner->locals, high);
            reference_index(inner, t % inner->threads, l % inner->locals, low);
            for (unsigned d = 0; d < out->rank; d++) index[d] = high[d] * inner->shape[d] + low[d];
            out->table[t * out->locals + l] = flatten(out->rank, out->shape, index);
        }
}

/* The quotient by its definition, element by element; false when there is none. */
static bool reference_divide(const reference *whole, reference *divisor, bool is_right, reference *out) {
    if (divisor->rank > whole->rank || whole->threads % divisor->threads || whole->locals % divisor->locals)
        return false;
    pad(divisor, whole->rank);
    out->rank = whole->rank;
    out->threads = whole->threads / divisor->threads;
    out->locals = whole->locals / divisor->locals;
    for (unsigned d = 0; d < whole->rank; d++) {
        if (whole->shape[d] % divisor->shape[d] != 0) return false;
        out->shape[d] = whole->shape[d] / divisor->shape[d];
    }
    const reference *inner = is_right ? divisor : out, *outer = is_right ? out : divisor;
    for (uint32_t t = 0; t < out->threads; t++)
        for (uint32_t l = 0; l < out->locals; l++) {
            uint32_t index[TVM_MAX_RANK];
            reference_index(whole, is_right ? t * divisor->threads : t, is_right ? l * divisor->locals : l,
                            index);
            for (unsigned d = 0; d < out->rank; d++) {
                if (is_right) index[d] /= divisor->shape[d];
                if (index[d] >= out->shape[d]) return false;
            }
            out->table[t * out->locals + l] = flatten(out->rank, out->shape, index);
        }
    if (!reference_is_layout(out)) return false;
    for (uint32_t t = 0; t < whole->threads; t++)
        for (uint32_t l = 0; l < whole->locals; l++) {
            uint32_t want[TVM_MAX_RANK], high[TVM_MAX_RANK], low[TVM_MAX_RANK];
            reference_index(whole, t, l, want);
            reference_index(outer, t / inner->threads, l / inner->locals, high);
            reference_index(inner, t % inner->threads, l % inner->locals, low);
            for (unsigned d = 0; d < out->rank; d++)
                if (want[d] != high[d] * inner->shape[d] + low[d]) return false;
        }
    return true;
}

START_TEST(compose_is_the_kronecker_product) {
    uint32_t state = 23;
    for (int i = 0; i < 1500; i++) {
        tvm_layout a, b, product;
        random_layout(&state, 24, &a, &ref_a);
        random_layout(&state, 24, &b, &ref_b);
        if ((ref_a.threads * ref_b.threads) * (ref_a.locals * ref_b.locals) > TABLE_MAX) continue;
        reference_compose(&ref_a, &ref_b, &ref_want);
        tvm_status status = tvm_layout_compose(&a, &b, &product, NULL);
        if (ref_want.threads > TVM_MAX_THREADS) {
            ck_assert_int_eq(status, TVM_INVALID);
        } else {
            ck_assert_int_eq(status, TVM_OK);
            ck_assert(layout_is(&product, &ref_want));
        }
    }
}
END_TEST

START_TEST(compose_is_associative_and_has_a_unit) {
    uint32_t state = 29;
    tvm_layout one;
    ck_assert_int_eq(tvm_layout_local(1, (uint32_t[]){1}, &one, NULL), TVM_OK);
    for (int i = 0; i < 500; i++) {
        tvm_layout a, b, c;
        random_layout(&state, 8, &a, &ref_a);
        random_layout(&state, 8, &b, &ref_a);
        random_layout(&state, 8, &c, &ref_a);
        if (tvm_layout_threads(&a) * tvm_layout_threads(&b) * tvm_layout_threads(&c) > TVM_MAX_THREADS)
            continue;
        tvm_layout left = compose(compose(a, b), c), right = compose(a, compose(b, c));
        ck_assert(tvm_layout_equal(&left, &right));
        left = compose(a, one), right = compose(one, a);
        ck_assert(tvm_layout_equal(&left, &a) && tvm_layout_equal(&right, &a));
    }
}
END_TEST

START_TEST(compose_keeps_the_limits) {
    tvm_layout threads = spatial2(32, 32), locals = local2(64, 64), out;
    ck_assert_int_eq(tvm_layout_compose(&threads, &threads, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_compose(&locals, &locals, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_compose(&threads, &locals, &out, NULL), TVM_INVALID);
    tvm_layout tall = local2(4096, 1);
    ck_assert_int_eq(tvm_layout_compose(&tall, &threads, &out, NULL), TVM_INVALID);
}
END_TEST

START_TEST(divide_undoes_compose) {
    uint32_t state = 31;
    int divided = 0;
    for (int i = 0; i < 1000; i++) {
        tvm_layout a, b, product, quotient, again;
        random_layout(&state, 24, &a, &ref_a);
        random_layout(&state, 24, &b, &ref_b);
        if (tvm_layout_compose(&a, &b, &product, NULL) != TVM_OK) continue; /* beyond a limit */
        divided++;
        ck_assert_int_eq(tvm_layout_divide_right(&product, &b, &quotient, NULL), TVM_OK);
        again = compose(quotient, b);
        ck_assert(tvm_layout_equal(&again, &product));
        if (a.rank >= b.rank) ck_assert(tvm_layout_equal(&quotient, &a));
        ck_assert_int_eq(tvm_layout_divide_left(&product, &a, &quotient, NULL), TVM_OK);
        again = compose(a, quotient);
        ck_assert(tvm_layout_equal(&again, &product));
        if (b.rank >= a.rank) ck_assert(tvm_layout_equal(&quotient, &b));
    }
    ck_assert_int_gt(divided, 900);
}
END_TEST

/* Divisors cut from factors of the layout's shape, so that about as many divide as do not. */
START_TEST(divide_finds_a_quotient_exactly_when_there_is_one) {
    uint32_t state = 37;
    int found = 0, none = 0;
    for (int i = 0; i < 6000; i++) {
        tvm_layout whole, divisor, quotient;
        random_layout(&state, 48, &whole, &ref_a);
        uint32_t shape[TVM_MAX_RANK];
        for (unsigned d = 0; d < ref_a.rank; d++) {
            shape[d] = 1 + random_below(&state, ref_a.shape[d]);
            while (ref_a.shape[d] % shape[d] != 0) shape[d]--;
        }
        lists from;
        random_lists_over(&state, ref_a.rank, shape, random_below(&state, 3) == 0, &from);
        ck_assert_int_eq(make_from(&from, &divisor, NULL), TVM_OK);
        reference_from_lists(&from, &ref_b);
        bool is_right = i % 2 == 0;
        bool want = reference_divide(&ref_a, &ref_b, is_right, &ref_want);
        tvm_status status =
            (is_right ? tvm_layout_divide_right : tvm_layout_divide_left)(&whole, &divisor, &quotient, NULL);
        ck_assert_int_eq(status == TVM_OK, want);
        if (want) ck_assert(layout_is(&quotient, &ref_want));
        if (want && ref_b.threads * ref_b.locals > 1) found++;
        none += !want;
    }
    ck_assert_int_gt(found, 500);
    ck_assert_int_gt(none, 500);
}
END_TEST

/* ---- dimensions ---- */

START_TEST(reduce_forgets_a_dimension) {
    uint32_t state = 41;
    for (int i = 0; i < 1000; i++) {
        tvm_layout layout, reduced;
        random_layout(&state, 72, &layout, &ref_a);
        unsigned dim = random_below(&state, ref_a.rank);
        ck_assert_int_eq(tvm_layout_reduce(&layout, dim, &reduced, NULL), TVM_OK);
        /* Of the locals that become the same element, the first stays. */
        uint32_t kept[72], count = 0;
        for (uint32_t l = 0; l < ref_a.locals; l++) {
            uint32_t index[TVM_MAX_RANK];
            reference_index(&ref_a, 0, l, index);
            if (index[dim] == 0) kept[count++] = l;
        }
        ref_want = ref_a;
        ref_want.shape[dim] = 1;
        ref_want.locals = count;
        for (uint32_t t = 0; t < ref_a.threads; t++)
            for (uint32_t l = 0; l < count; l++) {
                uint32_t index[TVM_MAX_RANK];
                reference_index(&ref_a, t, kept[l], index);
                index[dim] = 0;
                ref_want.table[t * count + l] = flatten(ref_want.rank, ref_want.shape, index);
            }
        ck_assert(layout_is(&reduced, &ref_want));
        ck_assert_int_eq(tvm_layout_reduce(&layout, ref_a.rank, &reduced, NULL), TVM_INVALID);
    }
}
END_TEST

START_TEST(squeeze_and_unsqueeze_move_no_element) {
    uint32_t state = 43;
    for (int i = 0; i < 1000; i++) {
        tvm_layout layout, wide, back;
        random_layout(&state, 72, &layout, &ref_a);
        unsigned dim = random_below(&state, ref_a.rank + 1);
        ck_assert_int_eq(tvm_layout_unsqueeze(&layout, dim, &wide, NULL), TVM_OK);
        ref_want = ref_a;
        memmove(ref_want.shape + dim + 1, ref_want.shape + dim, (ref_a.rank - dim) * sizeof *ref_a.shape);
        ref_want.shape[dim] = 1;
        ref_want.rank++;
        ck_assert(layout_is(&wide, &ref_want));
        ck_assert_int_eq(tvm_layout_squeeze(&wide, dim, &back, NULL), TVM_OK);
        ck_assert(tvm_layout_equal(&back, &layout));
        ck_assert_int_eq(tvm_layout_unsqueeze(&layout, ref_a.rank + 1, &wide, NULL), TVM_INVALID);
        ck_assert_int_eq(tvm_layout_squeeze(&layout, ref_a.rank, &wide, NULL), TVM_INVALID);
        if (ref_a.shape[0] > 1) ck_assert_int_eq(tvm_layout_squeeze(&layout, 0, &wide, NULL), TVM_INVALID);
    }
    tvm_layout one, out;
    ck_assert_int_eq(tvm_layout_local(1, (uint32_t[]){1}, &one, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_squeeze(&one, 0, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_local(8, (uint32_t[]){1, 1, 1, 1, 1, 1, 1, 2}, &one, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_unsqueeze(&one, 0, &out, NULL), TVM_INVALID);
}
END_TEST

START_TEST(permute_reorders_dimensions) {
    uint32_t state = 47;
    for (int i = 0; i < 1000; i++) {
        tvm_layout layout, permuted;
        uint32_t order[TVM_MAX_RANK];
        random_layout(&state, 72, &layout, &ref_a);
        for (unsigned d = 0; d < ref_a.rank; d++) {
            unsigned at = random_below(&state, d + 1);
            order[d] = order[at];
            order[at] = d;
        }
        ck_assert_int_eq(tvm_layout_permute(&layout, order, &permuted, NULL), TVM_OK);
        ref_want = ref_a;
        for (unsigned d = 0; d < ref_a.rank; d++) ref_want.shape[d] = ref_a.shape[order[d]];
        for (uint32_t n = 0; n < ref_a.threads * ref_a.locals; n++) {
            uint32_t from[TVM_MAX_RANK], to[TVM_MAX_RANK];
            unflatten(ref_a.rank, ref_a.shape, ref_a.table[n], from);
            for (unsigned d = 0; d < ref_a.rank; d++) to[d] = from[order[d]];
            ref_want.table[n] = flatten(ref_want.rank, ref_want.shape, to);
        }
        ck_assert(layout_is(&permuted, &ref_want));
        order[0] = ref_a.rank;
        ck_assert_int_eq(tvm_layout_permute(&layout, order, &permuted, NULL), TVM_INVALID);
    }
    tvm_layout two = local2(2, 3), out;
    ck_assert_int_eq(tvm_layout_permute(&two, (uint32_t[]){1, 1}, &out, NULL), TVM_INVALID);
}
END_TEST

START_TEST(reshape_keeps_the_row_major_order) {
    uint32_t state = 53;
    int done = 0, refused = 0;
    for (int i = 0; i < 4000; i++) {
        tvm_layout layout, reshaped;
        random_layout(&state, 72, &layout, &ref_a);
        uint32_t left = shape_elements(ref_a.rank, ref_a.shape);
        ref_want = ref_a;
        memset(ref_want.shape, 0, sizeof ref_want.shape);
        ref_want.rank = 1 + random_below(&state, 4);
        for (unsigned d = 0; d < ref_want.rank; d++) {
            uint32_t extent = d + 1 == ref_want.rank ? left : 1 + random_below(&state, left);
            while (left % extent != 0) extent--;
            ref_want.shape[d] = extent;
            left /= extent;
        }
        bool want = reference_is_layout(&ref_want);
        ck_assert_int_eq(
            tvm_layout_reshape(&layout, ref_want.rank, ref_want.shape, &reshaped, NULL) == TVM_OK, want);
        if (want) ck_assert(layout_is(&reshaped, &ref_want));
        done += want;
        refused += !want;
    }
    ck_assert_int_gt(done, 500);
    ck_assert_int_gt(refused, 200);
    tvm_layout six = local2(2, 3), out;
    ck_assert_int_eq(tvm_layout_reshape(&six, 2, (uint32_t[]){2, 4}, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_reshape(&six, 2, (uint32_t[]){0, 6}, &out, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_reshape(&six, 9, (uint32_t[]){6, 1, 1, 1, 1, 1, 1, 1, 1}, &out, NULL),
                     TVM_INVALID);
}
END_TEST

START_TEST(flatten_is_rank_one) {
    uint32_t state = 59;
    for (int i = 0; i < 1000; i++) {
        tvm_layout layout, flat;
        random_layout(&state, 72, &layout, &ref_a);
        ref_a.shape[0] = shape_elements(ref_a.rank, ref_a.shape);
        ref_a.rank = 1;
        ck_assert_int_eq(tvm_layout_flatten(&layout, &flat, NULL), TVM_OK);
        ck_assert(layout_is(&flat, &ref_a));
    }
}
END_TEST

START_TEST(concat_joins_dimensions) {
    uint32_t state = 61;
    for (int i = 0; i < 1000; i++) {
        tvm_layout a, b, both;
        random_layout(&state, 16, &a, &ref_a);
        random_layout(&state, 16, &b, &ref_b);
        uint32_t threads = ref_a.threads * ref_b.threads, locals = ref_a.locals * ref_b.locals;
        if (threads > TVM_MAX_THREADS || threads * locals > TABLE_MAX) continue;
        ref_want = (reference){.rank = ref_a.rank + ref_b.rank, .threads = threads, .locals = locals};
        memcpy(ref_want.shape, ref_a.shape, ref_a.rank * sizeof *ref_a.shape);
        memcpy(ref_want.shape + ref_a.rank, ref_b.shape, ref_b.rank * sizeof *ref_b.shape);
        uint32_t elements_b = shape_elements(ref_b.rank, ref_b.shape);
        for (uint32_t t = 0; t < threads; t++)
            for (uint32_t l = 0; l < locals; l++) {
                uint32_t high = ref_a.table[t / ref_b.threads * ref_a.locals + l / ref_b.locals];
                uint32_t low = ref_b.table[t % ref_b.threads * ref_b.locals + l % ref_b.locals];
                ref_want.table[t * locals + l] = high * elements_b + low;
            }
        ck_assert_int_eq(tvm_layout_concat(&a, &b, &both, NULL), TVM_OK);
        ck_assert(layout_is(&both, &ref_want));
    }
    tvm_layout five, out;
    ck_assert_int_eq(tvm_layout_local(5, (uint32_t[]){1, 1, 1, 1, 2}, &five, NULL), TVM_OK);
    ck_assert_int_eq(tvm_layout_concat(&five, &five, &out, NULL), TVM_INVALID);
}
END_TEST

START_TEST(results_may_overwrite_operands) {
    tvm_layout a = compose(local2(2, 1), spatial2(4, 2)), b = local2(1, 2), want, x;
    want = compose(a, b);
    x = a;
    ck_assert_int_eq(tvm_layout_compose(&x, &b, &x, NULL), TVM_OK);
    ck_assert(tvm_layout_equal(&x, &want));
    x = b;
    ck_assert_int_eq(tvm_layout_compose(&a, &x, &x, NULL), TVM_OK);
    ck_assert(tvm_layout_equal(&x, &want));
    x = want;
    ck_assert_int_eq(tvm_layout_divide_right(&x, &b, &x, NULL), TVM_OK);
    ck_assert(tvm_layout_equal(&x, &a));
    x = want;
    ck_assert_int_eq(tvm_layout_divide_left(&x, &a, &x, NULL), TVM_OK);
    ck_assert(tvm_layout_equal(&x, &b));
}
END_TEST

/* ---- auto ---- */

START_TEST(auto_spreads_runs_over_threads) {
    /* f16[64, 64] over 128 threads: 8 threads a row of 8 elements each, 16 rows at once. */
    tvm_layout layout;
    ck_assert_int_eq(tvm_layout_auto(2, (uint32_t[]){64, 64}, 128, 16, &layout, NULL), TVM_OK);
    ck_assert_uint_eq(tvm_layout_threads(&layout), 128);
    ck_assert_uint_eq(tvm_layout_locals(&layout), 32);
    for (uint32_t t = 0; t < 128; t++)
        for (uint32_t l = 0; l < 32; l++)
            ck_assert_uint_eq(tvm_layout_element(&layout, t, l),
                              (l / 8 * 16 + t / 8) * 64 + t % 8 * 8 + l % 8);
    /* f32[8], 32 threads: two threads hold 4 each, sixteen copies. */
    ck_assert_int_eq(tvm_layout_auto(1, (uint32_t[]){8}, 32, 32, &layout, NULL), TVM_OK);
    for (uint32_t t = 0; t < 32; t++)
        for (uint32_t l = 0; l < 4; l++) ck_assert_uint_eq(tvm_layout_element(&layout, t, l), t % 2 * 4 + l);
    /* No common factor: everybody holds everything. */
    ck_assert_int_eq(tvm_layout_auto(1, (uint32_t[]){7}, 32, 32, &layout, NULL), TVM_OK);
    ck_assert_uint_eq(tvm_layout_replication(&layout), 32);
    ck_assert_int_eq(tvm_layout_auto(2, (uint32_t[]){101, 101}, 32, 32, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_auto(1, (uint32_t[]){8}, 0, 32, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_auto(1, (uint32_t[]){8}, 2048, 32, &layout, NULL), TVM_INVALID);
    ck_assert_int_eq(tvm_layout_auto(1, (uint32_t[]){8}, 32, 0, &layout, NULL), TVM_INVALID);
}
END_TEST

START_TEST(auto_runs_are_contiguous_and_aligned) {
    static const unsigned bits[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64};
    static const uint32_t extents[] = {1, 2, 3, 4, 6, 8, 16, 24, 32, 40, 64};
    for (size_t b = 0; b < sizeof bits / sizeof *bits; b++) {
        for (size_t i = 0; i < 11; i++) {
            for (size_t j = 0; j < 11; j++) {
                for (uint32_t threads = 32; threads <= 256; threads += threads == 32 ? 64 : 160) {
                    tvm_layout layout;
                    const uint32_t shape[2] = {extents[i], extents[j]};
                    ck_assert_int_eq(tvm_layout_auto(2, shape, threads, bits[b], &layout, NULL), TVM_OK);
                    ck_assert(tvm_layout_valid(&layout, NULL));
                    ck_assert_uint_eq(tvm_layout_threads(&layout), threads);
                    uint32_t run = 1, locals = tvm_layout_locals(&layout);
                    while (run < locals && run < extents[j] && tvm_layout_element(&layout, 0, run) == run)
                        run++;
                    bool bytes = extents[j] * bits[b] % 8 == 0;
                    uint32_t widest = extents[j] * bits[b] < 128 ? extents[j] * bits[b] : 128;
                    bool power = (extents[j] & (extents[j] - 1)) == 0 && (bits[b] & (bits[b] - 1)) == 0;
                    if (bytes) ck_assert_uint_eq(run * bits[b] % 8, 0);
                    if (bytes && power) ck_assert_uint_ge(run * bits[b], widest);
                }
            }
        }
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("layout_algebra");
    TCase *algebra = suite_case(suite, "algebra");
    tcase_add_test(algebra, primitives_enumerate_their_shape);
    tcase_add_test(algebra, replicated_is_one_element_everywhere);
    tcase_add_test(algebra, compose_is_the_kronecker_product);
    tcase_add_test(algebra, compose_is_associative_and_has_a_unit);
    tcase_add_test(algebra, compose_keeps_the_limits);
    tcase_add_test(algebra, divide_undoes_compose);
    tcase_add_test(algebra, divide_finds_a_quotient_exactly_when_there_is_one);
    tcase_add_test(algebra, reduce_forgets_a_dimension);
    tcase_add_test(algebra, squeeze_and_unsqueeze_move_no_element);
    tcase_add_test(algebra, permute_reorders_dimensions);
    tcase_add_test(algebra, reshape_keeps_the_row_major_order);
    tcase_add_test(algebra, flatten_is_rank_one);
    tcase_add_test(algebra, concat_joins_dimensions);
    tcase_add_test(algebra, results_may_overwrite_operands);
    tcase_add_test(algebra, auto_spreads_runs_over_threads);
    tcase_add_test(algebra, auto_runs_are_contiguous_and_aligned);
    return run_suite(suite);
}
