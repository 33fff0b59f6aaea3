/* What layouts cost: estimates in issue slots of one warp, all threads of a block doing alike. They rank the
 * choices of one program; they are no times. */
#include "infer_state.h"

enum {
    SECTOR_BYTES = 32,
    WARP = 32,
    ACCESS_BYTES = 16,
    ISSUE = 4, /* an access, beside the data that it moves */
    LINE_BYTES = 128,
    LINE = 4,       /* a line of the cache that an access touches */
    RELAYOUT = 100, /* two barriers, and waiting for what has just been stored */
    SHUFFLE = 2,
    CROSSING_WARPS = 60, /* a reduction through shared memory */
    BANKS_BYTES = 128,
    PUT = 1,     /* a piece of less than a register, taken out of one or put into one */
    PUT_BITS = 2 /* an element of less than a byte */
};

/* Elements that are neighbours in the last dimension and in a thread. */
static uint32_t run_of(const tvm_layout *layout) {
    if (!layout->locals || !layout->modes) return 1;
    unsigned fastest = layout->local[layout->locals - 1];
    return fastest == layout->modes - 1U && layout->mode_dim[fastest] == layout->rank - 1
               ? layout->mode_size[fastest]
               : 1;
}

unsigned tvm_infer_access_bytes(const tvm_layout *layout, unsigned bits, unsigned widest) {
    uint64_t run = (uint64_t)run_of(layout) * bits;
    unsigned bytes = widest;
    while (bytes > 1 && run % (8U * bytes) != 0) bytes /= 2;
    return bytes;
}

/* Where the first elements of warp 0's lanes lie: the row above, the byte in it below. */
typedef struct lane_places {
    uint64_t at[WARP];
    unsigned count;
} lane_places;

/* What the dimensions' indices count for in a place of bits. */
static void find_steps(const tvm_layout *layout, unsigned bits, uint64_t step[TVM_MAX_RANK]) {
    uint64_t rows = UINT64_C(1) << 32;
    step[layout->rank - 1] = bits;
    for (unsigned d = layout->rank - 1; d-- > 0; rows *= layout->shape[d]) step[d] = rows;
}

/* Least significant part of the thread's number first: each repeats the lanes so far, further on. */
static void find_lanes(const tvm_layout *layout, unsigned bits, lane_places *lanes) {
    uint32_t threads = tvm_layout_threads(layout);
    uint64_t step[TVM_MAX_RANK], stride[TVM_MAX_MODES];
    find_steps(layout, bits, step);
    tvm_layout_mode_strides(layout, stride);
    lanes->count = threads < WARP ? threads : WARP;
    lanes->at[0] = 0;
    unsigned count = 1;
    for (unsigned i = layout->spatials; i-- > 0 && count < lanes->count;) {
        int32_t m = layout->spatial[i];
        uint64_t size = m < 0 ? (uint64_t) - (int64_t)m : layout->mode_size[m];
        uint64_t by = m < 0 ? 0 : stride[m] * step[layout->mode_dim[m]], total = count * size;
        for (uint64_t lane = count; lane < total && lane < lanes->count; lane++)
            lanes->at[lane] = lanes->at[lane - count] + by;
        count = (unsigned)(total < WARP ? total : WARP);
    }
    for (unsigned lane = 0; lane < lanes->count; lane++) {
        uint64_t row = lanes->at[lane] & ~(uint64_t)UINT32_MAX;
        lanes->at[lane] = row + (lanes->at[lane] - row) / 8;
    }
}

/* Different pieces of `size` bytes, a power of two, that they touch in one access. */
static unsigned touched(const lane_places *lanes, unsigned size) {
    uint64_t pieces[WARP], greatest = 0;
    unsigned count = 0;
    for (unsigned lane = 0; lane < lanes->count; lane++) {
        uint64_t piece = lanes->at[lane] / size;
        unsigned i = count; /* mostly the last one again, or one beyond all */
        if (piece > greatest) i = 0;
        while (i > 0 && pieces[i - 1] != piece) i--;
        if (i == 0) pieces[count++] = piece;
        if (piece > greatest) greatest = piece;
    }
    return count;
}

tvm_infer_space tvm_infer_space_of(const tvm_infer_state *in, uint32_t insn) {
    unsigned effects = tvm_infer_row(in, insn)->effects;
    const tvm_operand *operands = tvm_operands(in->kernel, &in->kernel->insns[insn]);
    for (uint32_t i = 0; i < in->kernel->insns[insn].count; i++) {
        if (operands[i].kind != TVM_OPERAND_SLOT) continue;
        unsigned kind = in->kernel->slots[operands[i].value].kind;
        if (kind == TVM_SLOT_GLOBAL && effects & (TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_WRITE_GLOBAL))
            return TVM_SPACE_GLOBAL;
        if (kind == TVM_SLOT_SHARED && effects & (TVM_EFFECT_READ_SHARED | TVM_EFFECT_WRITE_SHARED))
            return TVM_SPACE_SHARED;
    }
    return TVM_SPACE_NONE;
}

static uint64_t words(const tvm_layout *layout, unsigned bits) {
    return ((uint64_t)tvm_layout_locals(layout) * bits + 31) / 32;
}

uint64_t tvm_infer_access_cost(tvm_infer_space space, const tvm_layout *layout, unsigned bits,
                               unsigned widest) {
    unsigned bytes = tvm_infer_access_bytes(layout, bits, widest);
    uint64_t thread_bytes = ((uint64_t)tvm_layout_locals(layout) * bits + 7) / 8;
    uint64_t accesses = (thread_bytes + bytes - 1) / bytes;
    lane_places lanes;
    find_lanes(layout, bits, &lanes);
    if (space == TVM_SPACE_GLOBAL)
        return accesses * (ISSUE + LINE * touched(&lanes, LINE_BYTES) + touched(&lanes, SECTOR_BYTES));
    unsigned waves = (touched(&lanes, bytes) * bytes + BANKS_BYTES - 1) / BANKS_BYTES;
    return accesses * (ISSUE + 4 * (uint64_t)waves);
}

/* A tensor to or from the memory of a relayout: an element of less than a byte takes one. */
static uint64_t scratch_cost(const tvm_layout *layout, unsigned bits) {
    unsigned stored = bits < 8 ? 8 : bits;
    unsigned bytes = bits < 8 ? 1 : tvm_infer_access_bytes(layout, bits, ACCESS_BYTES);
    uint64_t pieces = (uint64_t)tvm_layout_locals(layout) * stored / 8 / bytes;
    lane_places lanes;
    find_lanes(layout, stored, &lanes);
    unsigned waves = (touched(&lanes, bytes) * bytes + BANKS_BYTES - 1) / BANKS_BYTES;
    return pieces * (ISSUE + 4 * (uint64_t)waves + (bits < 8 ? PUT_BITS : bytes < 4 ? PUT : 0));
}

uint64_t tvm_infer_relayout_cost(const tvm_layout *from, const tvm_layout *to, unsigned bits) {
    if (tvm_layout_equal(from, to)) return 0;
    if (tvm_layout_broadcasts(from, to, NULL, NULL)) return 1 + words(to, bits) / 4;
    return RELAYOUT + scratch_cost(from, bits) + scratch_cost(to, bits);
}

/* Threads over which a dimension is spread, within a warp and beyond. */
static void spread_of(const tvm_layout *layout, unsigned dim, uint32_t *lanes, uint32_t *warps) {
    uint32_t below = 1;
    *lanes = *warps = 1;
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t m = layout->spatial[i];
        uint32_t size = m < 0 ? (uint32_t)-m : layout->mode_size[m];
        if (m >= 0 && layout->mode_dim[m] == dim) {
            uint32_t within = below >= WARP ? 1 : below * size <= WARP ? size : WARP / below;
            *lanes *= within;
            *warps *= size / within;
        }
        below *= size;
    }
}

static unsigned steps_of(uint32_t threads) {
    unsigned steps = 0;
    while (1U << steps < threads) steps++;
    return steps;
}

/* A row that combines along the axes that differ in extent. */
static uint64_t combining(const tvm_layout *from, const tvm_layout *to, unsigned bits) {
    uint64_t cost = 0;
    for (unsigned d = 0; d < from->rank && from->rank == to->rank; d++) {
        uint32_t lanes, warps;
        if (from->shape[d] == to->shape[d]) continue;
        spread_of(from, d, &lanes, &warps);
        cost += (uint64_t)steps_of(lanes) * SHUFFLE * words(to, bits);
        if (warps > 1) cost += CROSSING_WARPS + 2 * warps * words(to, bits);
    }
    return cost;
}

/* A scan along an axis: each part of it that a thread holds is one more to be combined with those of other
 * threads. */
static uint64_t scanning(const tvm_layout *layout, unsigned axis, unsigned bits) {
    uint32_t lanes, warps, parts = tvm_layout_locals(layout);
    unsigned finest = layout->modes;
    while (finest > 0 && layout->mode_dim[finest - 1] != axis) finest--;
    for (unsigned i = 0; finest > 0 && i < layout->locals; i++)
        if (layout->local[i] == finest - 1) parts /= layout->mode_size[finest - 1];
    spread_of(layout, axis, &lanes, &warps);
    uint64_t words = ((uint64_t)parts * bits + 31) / 32, cost = steps_of(lanes) * SHUFFLE * words;
    return warps > 1 ? cost + CROSSING_WARPS + 2 * warps * words : cost;
}

/* Numbers come by fours of a counter. A thread that holds fewer of them side by side selects those. */
static uint64_t drawing(const tvm_infer_state *in, uint32_t insn, const tvm_layout *layout) {
    enum {
        WORDS = 4,
        ROUNDS = 10,
        ROUND = 8
    }; /* Philox 4x32-10: two wide products, and what is added to them */
    uint16_t op = in->kernel->insns[insn].op;
    if (op != TVM_OP_RANDOM_BITS && op != TVM_OP_RANDOM_UNIFORM && op != TVM_OP_RANDOM_NORMAL) return 0;
    uint32_t run = run_of(layout) % WORDS == 0 ? WORDS : run_of(layout) % 2 == 0 ? 2 : 1;
    uint64_t counters = tvm_layout_locals(layout) / run;
    return counters * (ROUNDS * ROUND + (run < WORDS ? run * (WORDS - 1) : 0));
}

static unsigned scan_axis(const tvm_infer_state *in, uint32_t insn) {
    enum { OPERATION, SOURCE, AXIS };
    return tvm_operands(in->kernel, &in->kernel->insns[insn])[AXIS].value;
}

uint64_t tvm_infer_work_cost(tvm_infer_state *in, uint32_t insn, const uint32_t *layouts, uint32_t result) {
    tvm_infer_operands registers;
    uint64_t cost = 0;
    unsigned effects = tvm_infer_row(in, insn)->effects;
    tvm_infer_registers(in, insn, &registers);
    uint32_t slot = tvm_infer_result(in, insn);
    tvm_layout to = {0};
    if (slot != TVM_NONE) to = tvm_infer_layout(in, result);
    if (tvm_infer_space_of(in, insn) == TVM_SPACE_NONE && slot != TVM_NONE)
        cost += words(&to, in->work[slot].dtype.bits) + drawing(in, insn, &to);
    for (unsigned k = 0; k < registers.count; k++) {
        unsigned bits = in->work[registers.slots[k]].dtype.bits;
        const tvm_layout layout = tvm_infer_layout(in, layouts[k]);
        /* The fragments of mma: what computes them computes what the warp holds of both. */
        if (in->kernel->insns[insn].op == TVM_OP_MMA) cost += 2 * words(&layout, bits);
        if (effects & TVM_EFFECT_SCRATCH && slot != TVM_NONE) cost += combining(&layout, &to, bits);
        if (in->kernel->insns[insn].op == TVM_OP_SCAN) cost += scanning(&layout, scan_axis(in, insn), bits);
    }
    return cost;
}
