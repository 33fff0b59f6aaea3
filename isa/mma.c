/* What mma's operands are, and the layouts that follow from c. */
#include "mma.h"

#include <string.h>

#include "layout_digits.h"

/* ---- types ---- */

static const tvm_mma_atoms k8 = {"mma.m16n8k8.A", "mma.m16n8k8.B", "mma.m16n8k16.C", 8};
static const tvm_mma_atoms k16 = {"mma.m16n8k16.A", "mma.m16n8k16.B", "mma.m16n8k16.C", 16};
static const tvm_mma_atoms k32 = {"mma.m16n8k32.A", "mma.m16n8k32.B", "mma.m16n8k16.C", 32};
static const tvm_mma_atoms k64 = {"mma.m16n8k64.A", "mma.m16n8k64.B", "mma.m16n8k16.C", 64};
static const tvm_mma_atoms vec1 = {"mma.scale_vec1.A", "mma.scale_vec1.B", "mma.m16n8k16.C", 1};
static const tvm_mma_atoms vec2 = {"mma.scale_vec2.A", "mma.scale_vec2.B", "mma.m16n8k16.C", 2};
static const tvm_mma_atoms vec4 = {"mma.scale_vec4.A", "mma.scale_vec4.B", "mma.m16n8k16.C", 4};
static const tvm_mma_atoms elements = {NULL, NULL, NULL, 1};

#define F(bits, exponent, mantissa)                                                                          \
    { TVM_KIND_FLOAT, bits, exponent, mantissa }
#define I8                                                                                                   \
    { TVM_KIND_INT, 8, 0, 0 }
#define U8                                                                                                   \
    { TVM_KIND_UINT, 8, 0, 0 }
#define I32                                                                                                  \
    { TVM_KIND_INT, 32, 0, 0 }
#define F16  F(16, 5, 10)
#define BF16 F(16, 8, 7)
#define TF32 F(32, 8, 10)
#define F32  F(32, 8, 23)
#define F64  F(64, 11, 52)
/* Floats of 4, 6 and 8 bits, by their letters. */
#define SMALL_E4M3 F(8, 4, 3)
#define SMALL_E5M2 F(8, 5, 2)
#define SMALL_E2M3 F(6, 2, 3)
#define SMALL_E3M2 F(6, 3, 2)
#define SMALL_E2M1 F(4, 2, 1)
/* Sums of f32, which came with version `since`, and of f16. */
#define SMALL(a, b, since)                                                                                   \
    {SMALL_##a, SMALL_##b, F32, TVM_MMA_F32, &k32, false, since}, {                                          \
        SMALL_##a, SMALL_##b, F16, TVM_MMA_F16, &k32, false, 7                                               \
    }
#define WITH_EACH(a, since)                                                                                  \
    SMALL(a, E4M3, since), SMALL(a, E5M2, since), SMALL(a, E2M3, 7), SMALL(a, E3M2, 7), SMALL(a, E2M1, 7)
static const tvm_mma_types all_types[] = {
    {F16, F16, F32, TVM_MMA_F32, &k16, false, 1},
    {BF16, BF16, F32, TVM_MMA_F32, &k16, false, 1},
    {F16, F16, F16, TVM_MMA_F16, &k16, false, 3},
    {TF32, TF32, F32, TVM_MMA_F32, &k8, false, 3},
    {F32, F32, F32, TVM_MMA_F32, &elements, true, 3},
    {F64, F64, F64, TVM_MMA_F64, &k8, false, 3},
    {I8, I8, I32, TVM_MMA_I32, &k32, false, 3},
    {I8, U8, I32, TVM_MMA_I32, &k32, false, 3},
    {U8, I8, I32, TVM_MMA_I32, &k32, false, 3},
    {U8, U8, I32, TVM_MMA_I32, &k32, false, 3},
    WITH_EACH(E4M3, 3),
    WITH_EACH(E5M2, 3),
    WITH_EACH(E2M3, 7),
    WITH_EACH(E3M2, 7),
    WITH_EACH(E2M1, 7),
};
enum { TYPES = sizeof all_types / sizeof *all_types };

/* OCP Microscaling Formats (MX) 1.0: blocks of 32 and scales of e8m0; NVFP4: blocks of 16, of e4m3. Two
 * operands of 4 bits fill their bytes. */
static const tvm_mma_scaling mx = {F(8, 8, 0), 32, &k32, &vec1}, mxf4 = {F(8, 8, 0), 32, &k64, &vec2},
                             nvf4 = {SMALL_E4M3, 16, &k64, &vec4};

bool tvm_mma_is_small_float(tvm_dtype type) {
    static const tvm_dtype small[] = {SMALL_E4M3, SMALL_E5M2, SMALL_E2M3, SMALL_E3M2, SMALL_E2M1};
    for (unsigned i = 0; i < sizeof small / sizeof *small; i++)
        if (tvm_dtype_same(type, small[i])) return true;
    return false;
}

bool tvm_mma_is_mixed(const tvm_mma *mma) {
    const tvm_mma_types *types = mma->types;
    if (!tvm_mma_is_small_float(types->a)) return false;
    return mma->scaling || types->sums == TVM_MMA_F16 || types->a.bits < 8 || types->b.bits < 8;
}

const tvm_mma_scaling *tvm_mma_find_scaling(tvm_dtype a, tvm_dtype b, tvm_dtype scale) {
    bool both_f4 = a.bits == 4 && b.bits == 4;
    if (!tvm_mma_is_small_float(a) || !tvm_mma_is_small_float(b)) return NULL;
    if (tvm_dtype_same(scale, mx.type)) return both_f4 ? &mxf4 : &mx;
    return both_f4 && tvm_dtype_same(scale, nvf4.type) ? &nvf4 : NULL;
}

const tvm_mma_types *tvm_mma_types_at(unsigned i) {
    return i < TYPES ? &all_types[i] : NULL;
}

static tvm_dtype read_as(tvm_dtype type, bool as_tf32) {
    return as_tf32 && tvm_dtype_same(type, TVM_F32) ? TVM_TF32 : type;
}

const tvm_mma_types *tvm_mma_find_types(tvm_dtype a, tvm_dtype b, tvm_dtype c, bool as_tf32) {
    for (unsigned i = 0; i < TYPES; i++) {
        const tvm_mma_types *t = &all_types[i];
        if (tvm_dtype_same(t->a, read_as(a, as_tf32)) && tvm_dtype_same(t->b, read_as(b, as_tf32)) &&
            tvm_dtype_same(t->c, c))
            return t;
    }
    return NULL;
}

const tvm_mma_atoms *tvm_mma_atoms_of(tvm_dtype operand, bool as_tf32) {
    for (unsigned i = 0; i < TYPES; i++)
        if (tvm_dtype_same(all_types[i].a, read_as(operand, as_tf32))) return all_types[i].atoms;
    return NULL;
}

/* ---- operands ---- */

/* Number of operands that an entry of the row takes. */
static uint32_t source_size(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                            const tvm_operand *operand) {
    const tvm_slot *slot = &kernel->slots[operand->value];
    return slot->kind == TVM_SLOT_SHARED ? 1 + tvm_slot_rank(program, slot) : 1;
}

/* Options come after the operands; of what was written before they existed they are missing. */
static uint32_t option(const tvm_operand *operands, uint32_t count, uint32_t at) {
    return at < count && operands[at].kind == TVM_OPERAND_CONST ? operands[at].value : 0;
}

/* spread: the operand that names the type; NULL: there is none. */
static void read_source(const tvm_ir_kernel *kernel, const tvm_operand *operand, bool transposed,
                        const tvm_operand *spread, tvm_mma_source *source) {
    const tvm_slot *slot = &kernel->slots[operand->value];
    source->slot = operand->value;
    source->tensor = operand;
    source->is_shared = slot->kind == TVM_SLOT_SHARED;
    source->is_transposed = transposed;
    source->is_spread = spread != NULL;
    source->type = spread ? tvm_spread_dtype((tvm_spread)spread->value) : slot->dtype;
}

/* A register tensor's shape is its own. A tile of a shared tensor has the batch extents of c, but 1 where its
 * tensor has that, and no more leading dimensions than its tensor; split along k, it has those of c. */
static void find_shape(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_mma *mma,
                       bool is_a, tvm_mma_source *source) {
    const tvm_slot *slot = &kernel->slots[source->slot];
    const uint32_t *own = tvm_slot_shape(program, slot);
    unsigned rank = tvm_slot_rank(program, slot), leading = mma->leading;
    source->rank = rank;
    memcpy(source->shape, own, rank * sizeof *own);
    if (!source->is_shared) return;
    if (!mma->splits_k && rank < leading + 2) leading = rank < 2 ? 0 : rank - 2;
    for (unsigned d = 0; d < leading; d++) {
        bool is_one = !mma->splits_k && own[rank - 2 - leading + d] == 1;
        source->shape[d] = is_one ? 1 : mma->extent[mma->leading - leading + d];
    }
    source->rank = leading + 2;
    source->shape[leading] = is_a ? mma->m : mma->k;
    source->shape[leading + 1] = is_a ? mma->k : mma->n;
}

/* Of a shared operand, whose shape is known. */
static void find_tile(const tvm_mma *mma, bool is_a, tvm_mma_source *source) {
    uint64_t all = mma->splits_k ? (uint64_t)mma->batch * mma->k : mma->k;
    uint32_t k = all < UINT32_MAX ? (uint32_t)all : UINT32_MAX, other = is_a ? mma->m : mma->n;
    unsigned rank = mma->splits_k ? 0 : source->rank - 2;
    bool k_first = source->is_transposed == is_a;
    memcpy(source->tile, source->shape, rank * sizeof *source->shape);
    source->tile[rank] = k_first ? k : other;
    source->tile[rank + 1] = k_first ? other : k;
    source->tile_rank = rank + 2;
    source->k_stride = k_first ? other : 1;
    source->other_stride = k_first ? 1 : k;
    source->batch_stride = mma->splits_k ? mma->k * source->k_stride : mma->k * other;
}

static uint32_t find_k(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_mma *mma) {
    const tvm_slot *slot = &kernel->slots[mma->b.is_shared ? mma->a.slot : mma->b.slot];
    if (mma->a.is_shared && mma->b.is_shared) return 0;
    unsigned rank = tvm_slot_rank(program, slot);
    return rank < 2 ? 0 : tvm_slot_shape(program, slot)[rank - (mma->b.is_shared ? 1 : 2)];
}

/* In their order. */
enum { TRANSPOSE_A, TRANSPOSE_B, SPLIT_K, K, REASSOCIATE, READ_TF32, SCALE_A, SCALE_B, TYPE_A, TYPE_B };

static uint32_t scale_at(const tvm_operand *operands, uint32_t count, uint32_t at) {
    return at < count && operands[at].kind == TVM_OPERAND_SLOT ? at : TVM_NONE;
}

tvm_mma_places tvm_mma_find_places(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                   const tvm_operand *operands, uint32_t count) {
    uint32_t at_b = source_size(program, kernel, operands);
    uint32_t at_c = at_b + source_size(program, kernel, operands + at_b);
    return (tvm_mma_places){at_b, at_c, scale_at(operands, count, at_c + 1 + SCALE_A),
                            scale_at(operands, count, at_c + 1 + SCALE_B)};
}

static void read_scales(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        const tvm_operand *operands, uint32_t count, tvm_mma *out) {
    tvm_mma_places at = tvm_mma_find_places(program, kernel, operands, count);
    out->scale_a = at.scale_a == TVM_NONE ? TVM_NONE : operands[at.scale_a].value;
    out->scale_b = at.scale_b == TVM_NONE ? TVM_NONE : operands[at.scale_b].value;
    out->atoms = out->types ? out->types->atoms : NULL;
    if (out->scale_a == TVM_NONE) return;
    out->scaling = tvm_mma_find_scaling(out->a.type, out->b.type, kernel->slots[out->scale_a].dtype);
    if (out->scaling) out->atoms = out->scaling->operands;
}

tvm_dtype tvm_spread_dtype(tvm_spread spread) {
    static const tvm_dtype types[TVM_SPREAD_COUNT] = {[TVM_SPREAD_F4_E2M1] = SMALL_E2M1,
                                                      [TVM_SPREAD_F6_E2M3] = SMALL_E2M3,
                                                      [TVM_SPREAD_F6_E3M2] = SMALL_E3M2};
    return types[spread];
}

/* What type_a or type_b says; NULL: nothing. */
static const tvm_operand *spread_of(const tvm_operand *operands, uint32_t count, uint32_t at) {
    return at < count && operands[at].kind == TVM_OPERAND_CONST ? &operands[at] : NULL;
}

tvm_dtype tvm_mma_type_of(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                          const tvm_operand *operands, uint32_t count, bool is_a) {
    tvm_mma_places at = tvm_mma_find_places(program, kernel, operands, count);
    const tvm_operand *spread = spread_of(operands, count, at.c + 1 + (is_a ? TYPE_A : TYPE_B));
    if (spread) return tvm_spread_dtype((tvm_spread)spread->value);
    return kernel->slots[operands[is_a ? 0 : at.b].value].dtype;
}

bool tvm_mma_reads_tf32(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        const tvm_operand *operands, uint32_t count) {
    uint32_t at_b = source_size(program, kernel, operands);
    uint32_t at_c = at_b + source_size(program, kernel, operands + at_b);
    return option(operands, count, at_c + 1 + READ_TF32) != 0;
}

bool tvm_mma_read(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_operand *operands,
                  uint32_t count, tvm_mma *out) {
    uint32_t at_b = source_size(program, kernel, operands);
    uint32_t at_c = at_b + source_size(program, kernel, operands + at_b), options = at_c + 1;
    memset(out, 0, sizeof *out);
    read_source(kernel, operands, option(operands, count, options + TRANSPOSE_A) != 0,
                spread_of(operands, count, options + TYPE_A), &out->a);
    read_source(kernel, operands + at_b, option(operands, count, options + TRANSPOSE_B) != 0,
                spread_of(operands, count, options + TYPE_B), &out->b);
    out->c = operands[at_c].value;
    out->types = tvm_mma_find_types(out->a.type, out->b.type, kernel->slots[out->c].dtype,
                                    option(operands, count, options + READ_TF32) != 0);
    read_scales(program, kernel, operands, count, out);
    out->splits_k = option(operands, count, options + SPLIT_K) != 0;
    out->may_reassociate = option(operands, count, options + REASSOCIATE) != 0;
    const uint32_t *shape = tvm_slot_shape(program, &kernel->slots[out->c]);
    out->leading = tvm_slot_rank(program, &kernel->slots[out->c]) - 2;
    out->batch = 1;
    for (unsigned d = 0; d < out->leading; d++) out->batch *= out->extent[d] = shape[d];
    out->m = shape[out->leading];
    out->n = shape[out->leading + 1];
    uint32_t k = option(operands, count, options + K);
    out->k = k ? k : find_k(program, kernel, out);
    if (out->k == 0) return false;
    find_shape(program, kernel, out, true, &out->a);
    find_shape(program, kernel, out, false, &out->b);
    if (out->a.is_shared) find_tile(out, true, &out->a);
    if (out->b.is_shared) find_tile(out, false, &out->b);
    return true;
}

uint32_t tvm_mma_matrix(const tvm_mma *mma, const tvm_mma_source *source, uint32_t matrix) {
    uint32_t number = 0, step = 1;
    for (unsigned d = 0; d < mma->leading; d++) {
        uint32_t dim = mma->leading - 1 - d, at = matrix % mma->extent[dim];
        matrix /= mma->extent[dim];
        if (d + 2 >= source->rank) break;
        uint32_t extent = source->shape[source->rank - 3 - d];
        if (extent > 1) number += at * step;
        step *= extent;
    }
    return number;
}

uint32_t tvm_mma_matrices(const tvm_mma_source *source) {
    uint32_t count = 1;
    for (unsigned d = 0; d + 2 < source->rank; d++) count *= source->shape[d];
    return count;
}

void tvm_mma_scale_shape(const tvm_mma *mma, bool a, unsigned *rank, uint32_t *shape) {
    const tvm_mma_source *source = a ? &mma->a : &mma->b;
    *rank = source->rank;
    memcpy(shape, source->shape, sizeof source->shape);
    shape[source->rank - (a ? 1U : 2U)] /= mma->scaling->block;
}

static bool is_broadcast(const tvm_mma *mma, const tvm_mma_source *source) {
    bool found = source->rank < mma->leading + 2;
    for (unsigned d = 0; !found && d < mma->leading; d++) found = source->shape[d] != mma->extent[d];
    return found;
}

bool tvm_mma_broadcasts(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                        const tvm_operand *operands, uint32_t count) {
    tvm_mma mma;
    return tvm_mma_read(program, kernel, operands, count, &mma) &&
           (is_broadcast(&mma, &mma.a) || is_broadcast(&mma, &mma.b));
}

unsigned tvm_mma_since(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                       const tvm_operand *operands, uint32_t count) {
    tvm_mma mma;
    tvm_mma_read(program, kernel, operands, count, &mma);
    return mma.types ? mma.types->since : 1;
}

/* ---- layouts ---- */

/* c = warps.C */
static tvm_status find_warps(const tvm_mma_atoms *atoms, const tvm_layout *c, tvm_layout *warps,
                             tvm_why *why) {
    tvm_layout atom;
    *warps = *c;
    if (!atoms->c) return TVM_OK;
    tvm_status status = tvm_layout_atom(atoms->c, strlen(atoms->c), &atom, why);
    if (status == TVM_OK) status = tvm_layout_divide_right(c, &atom, warps, why);
    return status == TVM_OK ? status : tvm_refuse(why, "c's layout is not a product X.%s", atoms->c);
}

/* `warps` of c's rank without the leading dimensions that an operand of this shape broadcasts. */
static tvm_status drop_batch(tvm_layout *warps, unsigned rank, const uint32_t *shape, tvm_why *why) {
    tvm_status status = TVM_OK;
    while (warps->rank > rank && status == TVM_OK) {
        status = tvm_layout_reduce(warps, 0, warps, why);
        if (status == TVM_OK) status = tvm_layout_squeeze(warps, 0, warps, why);
    }
    for (unsigned d = 0; d + 2 < rank && status == TVM_OK; d++)
        if (shape[d] == 1) status = tvm_layout_reduce(warps, d, warps, why);
    return status;
}

tvm_status tvm_mma_fragments(const tvm_mma_atoms *atoms, const tvm_layout *c, bool a, unsigned rank,
                             const uint32_t *shape, tvm_layout *out, tvm_why *why) {
    const char *name = a ? atoms->a : atoms->b;
    tvm_layout atom, warps, steps;
    uint32_t along[TVM_MAX_RANK];
    if (rank < 2 || rank > c->rank)
        return tvm_refuse(why, "an operand of rank %u, expected 2 to %u as c", rank, c->rank);
    uint32_t k = shape[rank - (a ? 1U : 2U)];
    if (k % atoms->k != 0) return tvm_refuse(why, "k is %u, expected a multiple of %u", k, atoms->k);
    tvm_status status = find_warps(atoms, c, &warps, why);
    if (status != TVM_OK) return status;
    /* What a warp has of c along the dimension that the operand lacks, it needs once; and all of k. */
    for (unsigned d = 0; d < rank; d++) along[d] = 1;
    along[rank - (a ? 1U : 2U)] = k / atoms->k;
    status = tvm_layout_reduce(&warps, c->rank - (a ? 1U : 2U), &warps, why);
    if (status == TVM_OK) status = drop_batch(&warps, rank, shape, why);
    if (status == TVM_OK) status = tvm_layout_local(rank, along, &steps, why);
    if (status == TVM_OK) status = tvm_layout_compose(&steps, &warps, out, why);
    if (status != TVM_OK || !name) return status;
    status = tvm_layout_atom(name, strlen(name), &atom, why);
    return status == TVM_OK ? tvm_layout_compose(out, &atom, out, why) : status;
}

tvm_status tvm_mma_tile_layout(const tvm_mma *mma, bool a, const tvm_layout *fragments, tvm_layout *out,
                               tvm_why *why) {
    const tvm_mma_source *source = a ? &mma->a : &mma->b;
    unsigned rank = fragments->rank, leading = rank - 2u, k_dim = a ? rank - 1u : rank - 2u;
    unsigned other = a ? rank - 2u : rank - 1u, count = 0;
    bool k_first = source->is_transposed == a;
    uint32_t order[TVM_MAX_RANK];
    tvm_layout turned;
    /* Split along k, the batch stands right before k. */
    if (!k_first && mma->splits_k) order[count++] = other;
    for (unsigned d = 0; d < leading; d++) order[count++] = d;
    if (!k_first && !mma->splits_k) order[count++] = other;
    order[count++] = k_dim;
    if (k_first) order[count++] = other;
    tvm_status status = tvm_layout_permute(fragments, order, &turned, why);
    return status == TVM_OK ? tvm_layout_reshape(&turned, source->tile_rank, source->tile, out, why) : status;
}
