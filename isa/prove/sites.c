/* Which elements of shared memory an instruction touches, and which of a team's threads. */
#include "prove_impl.h"

#include <stdlib.h>
#include <string.h>

#include "mma.h"
#include "pipeline.h"
#include "shared_view.h"
#include "view.h"

/* ---- what instructions name ---- */

static const tvm_slot *slot_of(const prover *p, uint32_t slot) {
    return &p->kernel->slots[slot];
}

static bool is_shared(const prover *p, const tvm_operand *operand) {
    return operand->kind == TVM_OPERAND_SLOT && slot_of(p, operand->value)->kind == TVM_SLOT_SHARED;
}

static prove_site *add_site(prover *p, uint32_t insn, const tvm_operand *tensor, prove_actor actor,
                            bool writes) {
    prove_site *site = &p->sites[p->site_count++];
    tvm_shared_root root;
    *site = (prove_site){.insn = insn, .slot = tensor->value, .actor = actor, .writes = writes};
    tvm_shared_root_find(p->program, p->kernel, site->slot, &root);
    site->root = root.slot;
    site->first = root.first;
    site->rank = tvm_slot_rank(p->program, slot_of(p, site->slot));
    memcpy(site->digits, root.digits, sizeof site->digits);
    memcpy(site->shape, tvm_slot_shape(p->program, slot_of(p, site->slot)), site->rank * sizeof *site->shape);
    site->indices = tensor + 1;
    return site;
}

/* A tile of the trailing dimensions. */
static void set_tile(prove_site *site, unsigned tile_rank, const uint32_t *tile) {
    for (unsigned d = 0; d < site->rank; d++) {
        unsigned points = site->rank - tile_rank;
        site->extent[d] = d < points ? 1 : tile[d - points];
    }
}

static const tvm_layout *layout_of(const prover *p, uint32_t slot) {
    return &p->program->layouts[slot_of(p, slot)->layout];
}

static void set_register(prover *p, prove_site *site, uint32_t tensor) {
    const tvm_slot *slot = slot_of(p, tensor);
    site->layout = layout_of(p, tensor);
    set_tile(site, tvm_slot_rank(p->program, slot), tvm_slot_shape(p->program, slot));
}

/* Between a shared tensor and a register tensor. */
static void add_move(prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    bool far = insn->op == TVM_OP_LOAD_CLUSTER ||
               insn->op == TVM_OP_STORE_CLUSTER; /* the rank comes after the indices */
    bool stores = insn->op == TVM_OP_STORE_SHARED || insn->op == TVM_OP_STORE_CLUSTER;
    prove_site *site = add_site(p, at, operands, PROVE_THREADS, stores);
    site->is_far = far;
    uint32_t behind = 1 + site->rank + far + stores;
    set_register(p, site, stores ? operands[behind - 1].value : insn->result);
    if (far && tvm_cluster_blocks(p->kernel) > 1) site->block = &operands[1 + site->rank];
    site->is_masked = insn->count > behind && operands[behind].kind == TVM_OPERAND_SLOT;
}

/* The list of a tile's extents behind both tensors. */
static const tvm_operand *extents_of(const prover *p, const tvm_operand *operands) {
    const tvm_operand *second = operands + 1;
    unsigned first_rank = slot_of(p, operands->value)->kind == TVM_SLOT_GLOBAL
                              ? slot_of(p, operands->value)->rank
                              : tvm_slot_rank(p->program, slot_of(p, operands->value));
    second += first_rank;
    unsigned second_rank = slot_of(p, second->value)->kind == TVM_SLOT_GLOBAL
                               ? slot_of(p, second->value)->rank
                               : tvm_slot_rank(p->program, slot_of(p, second->value));
    return second + 1 + second_rank;
}

static void set_extents(prove_site *site, const tvm_operand *extents) {
    uint32_t tile[TVM_MAX_RANK];
    for (unsigned d = 0; d < extents->value && d < TVM_MAX_RANK; d++) tile[d] = extents[1 + d].value;
    set_tile(site, extents->value, tile);
}

static void add_copy(prover *p, uint32_t at, bool is_piped) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[at]);
    const tvm_operand *extents = extents_of(p, operands), *parts = extents + 1 + extents->value + 1;
    prove_site *site = add_site(p, at, operands, is_piped ? PROVE_PIPED : PROVE_COPY, true);
    set_extents(site, extents);
    if (parts->kind == TVM_OPERAND_CONST) site->parts = parts;
}

static void add_bulk(prover *p, uint32_t at) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[at]);
    const tvm_operand *extents = extents_of(p, operands), *barrier = extents + 1 + extents->value;
    prove_site *site = add_site(p, at, operands, PROVE_BULK, true);
    set_extents(site, extents);
    if (barrier->kind == TVM_OPERAND_SLOT) site->barrier = barrier;
}

/* store-bulk and reduce-bulk. */
static void add_store(prover *p, uint32_t at, uint32_t target) {
    const tvm_operand *operands = tvm_operands(p->kernel, &p->kernel->insns[at]) + target;
    const tvm_operand *source = operands + 1 + slot_of(p, operands->value)->rank;
    set_extents(add_site(p, at, source, PROVE_STORE, false), extents_of(p, operands));
}

/* A tile that is multiplied: each warp reads what its fragments need. */
static void add_factor(prover *p, uint32_t at, const tvm_mma *mma, bool is_a) {
    const tvm_mma_source *source = is_a ? &mma->a : &mma->b;
    tvm_layout fragments;
    if (!source->is_shared) return;
    prove_site *site = add_site(p, at, source->tensor, PROVE_PRODUCT, false);
    set_tile(site, source->tile_rank, source->tile);
    site->by_warps = true;
    if (mma->types &&
        tvm_mma_fragments(mma->atoms, layout_of(p, mma->c), is_a, source->rank, source->shape, &fragments,
                          NULL) == TVM_OK &&
        tvm_mma_tile_layout(mma, is_a, &fragments, &site->own_layout, NULL) == TVM_OK)
        site->layout = &site->own_layout;
}

static void add_product(prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    tvm_mma mma;
    if (!tvm_mma_read(p->program, p->kernel, tvm_operands(p->kernel, insn), insn->count, &mma)) return;
    add_factor(p, at, &mma, true);
    add_factor(p, at, &mma, false);
}

/* gather, scatter and atomic operations, at places that registers name. */
static void add_places(prover *p, uint32_t at, const tvm_operand *tensor, bool writes, bool is_atomic) {
    prove_site *site = add_site(p, at, tensor, PROVE_THREADS, writes);
    site->everywhere = true;
    site->is_atomic = is_atomic;
    const tvm_insn *insn = &p->kernel->insns[at];
    if (tvm_prove_reach_of(p, at)) site->block = &tvm_operands(p->kernel, insn)[insn->count - 1];
    memcpy(site->extent, site->shape, sizeof site->extent);
}

static void add_scalar(prover *p, uint32_t at) {
    prove_site *site = add_site(p, at, tvm_operands(p->kernel, &p->kernel->insns[at]), PROVE_THREADS, false);
    set_tile(site, 0, NULL);
}

prove_reach tvm_prove_reach_of(const prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    bool alone = tvm_cluster_blocks(p->kernel) == 1;
    switch (insn->op) {
    case TVM_OP_LOAD_CLUSTER:
    case TVM_OP_STORE_CLUSTER:
        return alone ? PROVE_NEAR : PROVE_ACCESSES;
    case TVM_OP_COPY_CLUSTER:
        return PROVE_SENDS;
    case TVM_OP_ARRIVE_BARRIER:
    case TVM_OP_COPY_BULK: /* rank; multicast */
        return operands[insn->count - 1].kind != TVM_OPERAND_NONE ? PROVE_SENDS : PROVE_NEAR;
    case TVM_OP_ATOMIC:
    case TVM_OP_ATOMIC_FETCH: /* rank; instructions of before there was one end with the scope */
        return operands[insn->count - 1].kind == TVM_OPERAND_EXPR ? PROVE_ACCESSES : PROVE_NEAR;
    default:
        return PROVE_NEAR;
    }
}

static void add_sites(prover *p, uint32_t at, bool is_piped) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    switch (insn->op) {
    case TVM_OP_LOAD_SHARED:
    case TVM_OP_STORE_SHARED:
    case TVM_OP_LOAD_CLUSTER:
    case TVM_OP_STORE_CLUSTER:
        add_move(p, at);
        break;
    case TVM_OP_COPY_ASYNC:
        add_copy(p, at, is_piped);
        break;
    case TVM_OP_COPY_BULK:
        add_bulk(p, at);
        break;
    case TVM_OP_STORE_BULK:
        add_store(p, at, 0);
        break;
    case TVM_OP_REDUCE_BULK:
        add_store(p, at, 1);
        break;
    case TVM_OP_MMA:
        add_product(p, at);
        break;
    case TVM_OP_LOAD_SCALAR:
        if (is_shared(p, operands)) add_scalar(p, at);
        break;
    case TVM_OP_GATHER:
    case TVM_OP_SCATTER:
        if (is_shared(p, operands)) add_places(p, at, operands, insn->op == TVM_OP_SCATTER, false);
        break;
    case TVM_OP_ATOMIC:
    case TVM_OP_ATOMIC_FETCH:
        if (is_shared(p, operands + 1)) add_places(p, at, operands + 1, true, true);
        break;
    default:
        break;
    }
}

/* An instruction that names shared memory, and that is not known here. */
static bool is_unknown(const prover *p, uint32_t at) {
    const tvm_insn *insn = &p->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(p->kernel, insn);
    bool names = false;
    for (uint32_t o = 0; o < insn->count; o++) names = names || is_shared(p, &operands[o]);
    return names && p->first_site[at] == p->site_count && insn->op != TVM_OP_VIEW_SHARED &&
           insn->op != TVM_OP_FREE_SHARED;
}

bool tvm_prove_find_sites(prover *p) {
    const tvm_ir_kernel *kernel = p->kernel;
    uint32_t pipelined = 0;
    p->sites = calloc(2 * (size_t)kernel->insn_count + 2, sizeof *p->sites);
    p->first_site = calloc(kernel->insn_count + (size_t)1, sizeof *p->first_site);
    p->place_bucket_count = 1 << 12;
    p->place_buckets = calloc(p->place_bucket_count, sizeof *p->place_buckets);
    if (!p->sites || !p->first_site || !p->place_buckets) return false;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        p->first_site[i] = p->site_count;
        if (tvm_pipeline_stages(kernel, &kernel->insns[i])) pipelined = kernel->insns[i].match;
        add_sites(p, i, i < pipelined);
        prove_reach reach = tvm_prove_reach_of(p, i);
        if (reach == PROVE_SENDS)
            tvm_prove_fail(
                p, &p->proof->races, TVM_NOT_PROVED, i, TVM_NONE,
                "%s reaches for another block of the cluster: order between blocks is not looked at",
                tvm_prove_mnemonic(p, i));
        else if (is_unknown(p, i))
            tvm_prove_fail(p, &p->proof->races, TVM_NOT_PROVED, i, TVM_NONE,
                           "%s of shared memory is not looked at", tvm_prove_mnemonic(p, i));
    }
    p->first_site[kernel->insn_count] = p->site_count;
    tvm_prove_find_tickets(p);
    return true;
}

void tvm_prove_free_sites(prover *p) {
    for (uint32_t s = 0; s < p->site_count; s++) {
        free(p->sites[s].threads);
        free(p->sites[s].warps);
    }
    free(p->sites);
    free(p->first_site);
    free(p->places);
    free(p->place_buckets);
}

/* ---- whose are they? ---- */

static uint32_t elements_of(const prove_site *site) {
    uint32_t count = 1;
    for (unsigned d = 0; d < site->rank; d++) count *= site->extent[d];
    return count;
}

static void hold(uint16_t *who, uint32_t thread) {
    if (*who == PROVE_SEVERAL - 1) *who = (uint16_t)thread;
    if (*who != thread) *who = PROVE_SEVERAL;
}

static bool holders_of_layout(prove_site *site, uint32_t count) {
    uint32_t threads = tvm_layout_threads(site->layout), locals = tvm_layout_locals(site->layout);
    uint32_t *table = malloc((size_t)threads * locals * sizeof *table);
    if (!table) return false;
    tvm_layout_table(site->layout, table);
    for (uint32_t i = 0; i < threads * locals; i++) {
        if (table[i] >= count) continue;
        hold(&site->threads[table[i]], i / locals);
        hold(&site->warps[table[i]], i / locals / 32);
    }
    free(table);
    return true;
}

/* Of a copy that the warps share out, the last dimension's parts fastest. */
static void holders_of_parts(prove_site *site, uint32_t count) {
    for (uint32_t e = 0; e < count; e++) {
        uint32_t rest = e, step = 1, warp = 0, first = site->rank - site->parts->value;
        for (unsigned d = site->rank; d-- > first;) {
            uint32_t along = site->parts[1 + d - first].value;
            warp += rest % site->extent[d] / (site->extent[d] / along) * step;
            step *= along;
            rest /= site->extent[d];
        }
        site->warps[e] = (uint16_t)warp;
    }
}

/* Fills threads and warps, by element of the tile in row-major order. */
static bool find_holders(prover *p, prove_site *site) {
    uint32_t count = elements_of(site);
    if (site->threads) return true;
    site->threads = malloc(count * sizeof *site->threads);
    site->warps = malloc(count * sizeof *site->warps);
    bool made = site->threads && site->warps;
    tvm_prove_charge(p, count);
    for (uint32_t e = 0; made && e < count; e++) site->threads[e] = site->warps[e] = PROVE_SEVERAL - 1;
    if (made && site->layout) made = holders_of_layout(site, count);
    if (made && site->parts && site->parts->value <= site->rank) holders_of_parts(site, count);
    if (!made) p->no_memory = true;
    for (uint32_t e = 0; made && e < count; e++) {
        if (site->threads[e] == PROVE_SEVERAL - 1 || site->by_warps) site->threads[e] = PROVE_SEVERAL;
        if (site->warps[e] == PROVE_SEVERAL - 1) site->warps[e] = PROVE_SEVERAL;
    }
    return made;
}

/* The element of `a`'s tile that is element e of b's, which begins that far behind it; -1: none. */
static int64_t across(const prove_site *a, const prove_site *b, const int64_t *distance, uint32_t e,
                      uint32_t *index) {
    int64_t place = 0, step = 1;
    for (unsigned d = a->rank; d-- > 0;) {
        int64_t along = (int64_t)(e % b->extent[d]) + distance[d];
        e /= b->extent[d];
        if (along < 0 || along >= a->extent[d]) return -1;
        index[d] = (uint32_t)along;
        place += along * step;
        step *= a->extent[d];
    }
    return place;
}

/* All that hold an element of a tile that was written wrote one value: who of them reads it reads its own. Of
 * store-cluster one of them writes it. */
static bool is_own(const prove_site *a, const prove_site *b, const int64_t *distance) {
    if (!a->layout || !b->layout || a->by_warps || b->by_warps || !tvm_layout_equal(a->layout, b->layout))
        return false;
    for (unsigned d = 0; d < a->rank; d++)
        if (distance[d] != 0) return false;
    return tvm_layout_replication(a->layout) == 1 || (a->writes && !a->is_far && !b->writes);
}

static bool compare(prover *p, prove_site *a, prove_site *b, const int64_t *distance, bool warps,
                    prove_pair *pair) {
    uint32_t count = elements_of(b), index[TVM_MAX_RANK] = {0};
    unsigned found = 0;
    if (is_own(a, b, distance)) return false;
    if (!find_holders(p, a) || !find_holders(p, b)) return true;
    tvm_prove_charge(p, count);
    for (uint32_t e = 0; e < count; e++) {
        int64_t other = across(a, b, distance, e, index);
        if (other < 0) continue;
        uint16_t first = warps ? a->warps[other] : a->threads[other],
                 second = warps ? b->warps[e] : b->threads[e];
        if (first == second && first != PROVE_SEVERAL) continue;
        bool clear = a->threads[other] != PROVE_SEVERAL && b->threads[e] != PROVE_SEVERAL;
        unsigned telling = !clear ? 1 : a->threads[other] / 32 == b->threads[e] / 32 ? 2 : 3;
        if (telling <= found) continue;
        found = telling;
        memcpy(pair->index, index, sizeof index);
        pair->first = a->threads[other];
        pair->second = b->threads[e];
        if (telling == 3) break; /* threads of different warps, as the sanitizer names them */
    }
    pair->certain = found > 0;
    return found > 0;
}

/* The number of element e of the tile among the root's elements, that of the place's first one left out. */
static uint32_t root_element(const prove_site *site, uint32_t e) {
    uint32_t at = 0;
    for (unsigned d = site->rank; d-- > 0; e /= site->extent[d])
        at += tvm_shared_digits_at(&site->digits[d], e % site->extent[d]);
    return at;
}

/* Tiles of two views of one tensor, of which b's begins that many elements behind a's. */
static bool compare_views(prover *p, prove_site *a, prove_site *b, int64_t distance, bool warps) {
    uint32_t size = 0, count = elements_of(a);
    if (!find_holders(p, a) || !find_holders(p, b)) return true;
    for (unsigned d = 0; d < a->rank; d++)
        size += tvm_prove_is_split(a, d) ? (uint32_t)tvm_prove_most(a, d)
                                         : tvm_shared_digits_at(&a->digits[d], a->extent[d] - 1);
    uint16_t *who = malloc((size + (size_t)1) * sizeof *who);
    bool found = false;
    if (!who) {
        p->no_memory = true;
        return true;
    }
    tvm_prove_charge(p, size + count);
    for (uint32_t i = 0; i <= size; i++) who[i] = PROVE_SEVERAL - 1;
    for (uint32_t e = 0; e < count; e++) who[root_element(a, e)] = warps ? a->warps[e] : a->threads[e];
    count = elements_of(b);
    for (uint32_t e = 0; e < count && !found; e++) {
        int64_t at = root_element(b, e) + distance;
        if (at < 0 || at > size || who[at] == PROVE_SEVERAL - 1) continue;
        uint16_t own = warps ? b->warps[e] : b->threads[e];
        found = own == PROVE_SEVERAL || own != who[at];
    }
    free(who);
    return found;
}

/* What the place's index along dimension d adds; false: it is not known, or the elements behind it are not as
 * those behind the first. */
static bool add_index(const prove_site *site, const prove_place *place, unsigned d, int64_t *sum) {
    if (!tvm_prove_is_exact(place->low[d]) || (tvm_prove_is_split(site, d) && place->low[d] != 0))
        return false;
    *sum += tvm_shared_digits_at(&site->digits[d], (uint32_t)place->low[d]);
    return true;
}

/* How far the second place is behind the first, along each dimension; among the root's elements, where they
 * are of different views. Indices that are not known but are multiples of one extent are those of one place,
 * or of places that have no element in common. False: it is not known. */
static bool find_distance(const prover *p, const prove_place *x, const prove_place *y, int64_t *distance) {
    const prove_site *s = &p->sites[x->site], *t = &p->sites[y->site];
    bool one = s->slot == t->slot;
    if (!one) distance[0] = (int64_t)t->first - s->first;
    for (unsigned d = 0; d < s->rank && one; d++) {
        bool exact = tvm_prove_is_exact(x->low[d]) && tvm_prove_is_exact(y->low[d]),
             same = s->extent[d] == t->extent[d];
        bool aligned = x->low[d] != PROVE_UNKNOWN && y->low[d] != PROVE_UNKNOWN && same &&
                       (!tvm_prove_is_exact(x->low[d]) || x->low[d] % (int64_t)s->extent[d] == 0) &&
                       (!tvm_prove_is_exact(y->low[d]) || y->low[d] % (int64_t)t->extent[d] == 0);
        bool linear = tvm_prove_is_alike(x, y, d) && !x->behind[d] && !y->behind[d];
        if (!exact && !aligned && !linear) return false;
        distance[d] = exact ? (int64_t)y->low[d] - x->low[d] : linear ? (int64_t)y->from[d] - x->from[d] : 0;
    }
    int64_t before = 0, behind = 0;
    for (unsigned d = 0; d < s->rank && !one; d++)
        if (!add_index(s, x, d, &before)) return false;
    for (unsigned d = 0; d < t->rank && !one; d++)
        if (!add_index(t, y, d, &behind)) return false;
    distance[0] += behind - before;
    return true;
}

static bool was_found_free(const prover *p, uint32_t a, uint32_t b, bool warps, const int64_t *distance) {
    for (uint32_t i = 0; i < p->known_count; i++)
        if (p->known[i].a == a && p->known[i].b == b && p->known[i].level == warps &&
            memcmp(p->known[i].distance, distance, sizeof p->known[i].distance) == 0)
            return true;
    return false;
}

bool tvm_prove_differ(prover *p, uint32_t a, uint32_t b, bool warps, prove_pair *pair) {
    const prove_place *x = &p->places[a], *y = &p->places[b];
    prove_site *s = &p->sites[x->site], *t = &p->sites[y->site];
    int64_t distance[TVM_MAX_RANK] = {0};
    *pair = (prove_pair){.first = PROVE_SEVERAL, .second = PROVE_SEVERAL};
    if (!find_distance(p, x, y, distance)) return true;
    if (was_found_free(p, x->site, y->site, warps, distance)) return false;
    bool conflict = s->slot == t->slot ? compare(p, s, t, distance, warps, pair)
                                       : compare_views(p, s, t, distance[0], warps);
    for (unsigned d = 0; d < s->rank; d++) pair->index[d] += (uint32_t)x->low[d];
    if (conflict) return true;
    uint32_t at = p->known_count < 256 ? p->known_count++ : 255;
    p->known[at].a = x->site;
    p->known[at].b = y->site;
    p->known[at].level = warps;
    memcpy(p->known[at].distance, distance, sizeof distance);
    return false;
}
