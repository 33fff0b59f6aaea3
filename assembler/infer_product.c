/* What a product costs in the layout that its sums have: the time of the tensor cores, and the fragments that
 * warps load from shared memory. The conditions of wgmma are those of vasm(5), "mma".
 *
 * A tensor core of an H100 multiplies 512 pairs of f16 a cycle (NVIDIA, "H100 Tensor Core GPU Architecture":
 * 1024 dense FLOP a cycle and core), which is four cycles for the 16 x 8 x 16 of mma.m16n8k16, or for as many
 * bytes of a narrower type. mma.sync takes about twice as long (Luo et al., "Benchmarking and Dissecting the
 * Nvidia Hopper GPU Architecture", 2024, measure 0.63 of the peak), as it does on an A100, whose cores do
 * half as much a cycle. wgmma reads b, and a shared a, at 128 bytes a cycle. */
#include "infer_state.h"

enum {
    GROUP = 4, /* warps of a wgmma */
    WARP = 32,
    FRAGMENT_ROWS = 16,
    SYNC = 8,                 /* cycles of an m16n8 fragment and 32 bytes of k, by mma.sync */
    ASYNC = 4,                /* by wgmma */
    BEGIN = 4,                /* descriptors, and the issue, of a wgmma of any width */
    READ_A = 16,              /* 64 rows of 32 bytes, from shared memory */
    READ_B = 2,               /* 8 columns of 32 bytes */
    LEAST_COLUMNS = 2,        /* eights of columns of a wgmma */
    MOST_COLUMNS = 32,        /* the same */
    LDMATRIX_WORDS = 4,       /* of a thread */
    LDMATRIX = 4 + 4 * 4,     /* its issue, and four passes over the banks: infer_cost.c */
    LOAD_ELEMENT = 4 + 4 + 1, /* what ldmatrix cannot load, and what puts it into its word */
    PIECE = 16                /* bytes that wgmma's swizzles move */
};

/* Elements of a dimension that a thread holds: halves of fragments along rows and columns. */
static uint32_t locals_along(const tvm_layout *layout, unsigned dim) {
    uint32_t count = 1;
    for (unsigned i = 0; i < layout->locals; i++)
        if (layout->mode_dim[layout->local[i]] == dim) count *= layout->mode_size[layout->local[i]];
    return count;
}

/* ---- what wgmma can do ---- */

/* Is element [dim] of the sums of each four warps the same, or `step` further in each warp? */
static bool warps_step(const tvm_layout *sums, unsigned dim, uint32_t step) {
    uint32_t warps = tvm_layout_threads(sums) / WARP, first[TVM_MAX_RANK], index[TVM_MAX_RANK];
    for (uint32_t w = 0; w < warps; w++) {
        if (w % GROUP == 0) tvm_layout_map(sums, w * WARP, 0, first);
        tvm_layout_map(sums, w * WARP, 0, index);
        if (index[dim] != first[dim] + w % GROUP * step) return false;
    }
    return true;
}

/* NULL, or why wgmma cannot read the tensor, and what to write. */
static const char *lies_otherwise(const tvm_infer_state *in, const tvm_mma_source *source, bool k_first) {
    const tvm_slot *slot = &in->kernel->slots[source->slot];
    const tvm_shared_layout *lies = &in->program->shared_layouts[slot->layout];
    unsigned bytes = slot->dtype.bits / 8;
    if (k_first && bytes != 2)
        return "wgmma reads elements of other than 16 bits with k last alone: store the tile so (transpose_b of b)";
    bool swizzled = lies->swizzle_bits >= 1 && lies->swizzle_bits <= 3 && lies->swizzle_shift == 3;
    if (swizzled && (UINT32_C(1) << lies->swizzle_base) * bytes == PIECE) return NULL;
    return "wgmma reads rows under swizzles of 32, 64 or 128 bytes: leave the layout of the shared tensor out, "
           "and give it rows of 32 or 64 bytes or of a multiple of 128 bytes";
}

static const char *refuse_wgmma(const tvm_infer_state *in, uint32_t insn, const tvm_mma *mma,
                                const tvm_layout *sums) {
    tvm_team team = tvm_infer_team(in, insn);
    unsigned n = sums->rank - 1U;
    uint32_t columns = locals_along(sums, n) / 2, batch = 1;
    if (mma->types->sums == TVM_MMA_F64) return "wgmma does not multiply f64";
    if (tvm_mma_is_mixed(mma)) return "wgmma has neither floats of 4 and 6 bits, f16 sums of f8, nor scales";
    if (!mma->b.is_shared) return "wgmma reads b from shared memory: store it to a shared tensor";
    if (team.warps % GROUP != 0) return "wgmma is done by four warps: write .warps 4, or a multiple of it";
    if (team.first % GROUP != 0) return "wgmma is done by warps 4i to 4i+3: begin the role at such a warp";
    for (unsigned d = 0; d + 2 < sums->rank; d++) {
        batch *= locals_along(sums, d);
        if (!warps_step(sums, d, 0)) batch = 0;
    }
    if (batch != 1)
        return "wgmma is done by four warps of one matrix of the batch: use four warps for each, or a loop";
    if (!warps_step(sums, n, 0))
        return "wgmma is done by four warps, of 16 rows each, that have the same columns: give c a multiple of "
               "64 rows, or exchange a and b";
    if (columns < LEAST_COLUMNS) return "8 columns are as fast by mma.sync: give c 16 columns or more";
    if (columns > MOST_COLUMNS) return "wgmma has 256 columns at most: use more warps, or fewer columns";
    return lies_otherwise(in, &mma->b, !mma->b.is_transposed);
}

/* Does a wgmma read the shared a where it lies? */
static bool reads_a(const tvm_infer_state *in, const tvm_mma *mma, const tvm_layout *sums) {
    return mma->a.is_shared && warps_step(sums, sums->rank - 2U, FRAGMENT_ROWS) &&
           !lies_otherwise(in, &mma->a, mma->a.is_transposed);
}

/* ---- costs ---- */

/* The fragments of a shared operand, brought to registers. */
static uint64_t load_fragments(const tvm_infer_state *in, const tvm_mma *mma, bool a, const tvm_layout *sums,
                               uint32_t *words) {
    const tvm_mma_source *source = a ? &mma->a : &mma->b;
    unsigned bits = in->kernel->slots[source->slot].dtype.bits;
    bool k_first = source->is_transposed == a;
    tvm_layout fragments;
    *words = 0;
    if (tvm_mma_fragments(mma->atoms, sums, a, source->rank, source->shape, &fragments, NULL) != TVM_OK)
        return 0;
    uint32_t locals = tvm_layout_locals(&fragments);
    *words = (locals * bits + 31) / 32;
    if (mma->types->is_scalar || bits > 32 || (k_first && bits != 16)) return (uint64_t)locals * LOAD_ELEMENT;
    return (uint64_t)(*words + LDMATRIX_WORDS - 1) / LDMATRIX_WORDS * LDMATRIX;
}

bool tvm_infer_product_of(const tvm_infer_state *in, uint32_t insn, uint32_t result, tvm_infer_product *out) {
    const tvm_insn *source = &in->kernel->insns[insn];
    const tvm_layout sums = tvm_infer_layout(in, result);
    tvm_mma mma;
    uint32_t words_a = 0, words_b = 0;
    *out = (tvm_infer_product){.why = NULL};
    if (sums.rank < 2 ||
        !tvm_mma_read(in->program, in->kernel, tvm_operands(in->kernel, source), source->count, &mma) ||
        !mma.types)
        return false;
    uint64_t steps = mma.k / mma.atoms->k, rows = locals_along(&sums, sums.rank - 2U) / 2,
             tiles = tvm_layout_locals(&sums) / 4;
    out->a = mma.a.slot;
    if (mma.types->is_scalar) {
        out->why =
            "f32 in full is multiplied without tensor cores: the word tf32, or operands of 16 bits, use them";
        out->tensor = (uint64_t)tvm_layout_locals(&sums) * mma.k;
        if (mma.a.is_shared) out->fragments += load_fragments(in, &mma, true, &sums, &words_a);
        if (mma.b.is_shared) out->fragments += load_fragments(in, &mma, false, &sums, &words_b);
        return true;
    }
    out->why = refuse_wgmma(in, insn, &mma, &sums);
    if (mma.a.is_shared) out->fragments = load_fragments(in, &mma, true, &sums, &words_a);
    if (out->why) {
        out->tensor = tiles * steps * SYNC;
        if (mma.b.is_shared) out->fragments += load_fragments(in, &mma, false, &sums, &words_b);
        return true;
    }
    bool shared_a = reads_a(in, &mma, &sums);
    uint64_t columns = tiles / (rows ? rows : 1);
    uint64_t multiplied = columns * ASYNC, read = columns * READ_B + (shared_a ? READ_A : 0);
    out->tensor = rows * steps * (multiplied + BEGIN);
    if (shared_a) out->fragments = 0;
    if (read > multiplied) out->fragments += rows * steps * (read - multiplied);
    out->registers = shared_a ? 0 : words_a;
    return true;
}
