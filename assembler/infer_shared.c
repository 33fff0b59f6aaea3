/* Layouts of shared tensors: of a few swizzles the one with which the kernel's loads and stores meet the
 * fewest bank conflicts. The one that alloc-shared has of itself stays where another is no better, and where
 * mma or what is not a plain load, store or copy uses the tensor: ldmatrix, wgmma and the copies of whole
 * tensors are made for it. A tensor whose elements are at computed indices has no swizzle: it lessens no
 * conflict of such elements, and takes instructions for each. What mma-tensor or copy-tensor reads lies as
 * matrix descriptors can say it. */
#include "infer_state.h"

#include "infer_open.h"
#include "numbers.h"

enum { BANKS = 32, WORD = 4, LANES = 32, WIDEST = 16, SAMPLES = 16 };

/* ---- the cost of one access ---- */

typedef struct tile_access {
    tvm_layout tile; /* of the trailing dimensions */
    unsigned bytes;  /* of an element */
    uint64_t weight;
} tile_access;

/* Where a thread's element lies, in bytes. */
static uint32_t place(const tile_access *access, const tvm_shared_layout *shared, uint32_t thread,
                      uint32_t local) {
    uint32_t index[TVM_MAX_RANK] = {0};
    tvm_layout_map(&access->tile, thread, local, index + shared->rank - access->tile.rank);
    return tvm_shared_layout_offset(shared, index) * access->bytes;
}

/* Bytes that thread 0 can move at once: elements that follow each other, and begin at a multiple of that. */
static unsigned width_of(const tile_access *access, const tvm_shared_layout *shared) {
    uint32_t locals = tvm_layout_locals(&access->tile);
    for (unsigned bytes = WIDEST; bytes > access->bytes; bytes /= 2) {
        uint32_t count = bytes / access->bytes;
        bool fits = locals % count == 0;
        for (uint32_t l = 0; fits && l < locals && l < SAMPLES * count; l++) {
            uint32_t first = place(access, shared, 0, l / count * count);
            fits = first % bytes == 0 && place(access, shared, 0, l) == first + l % count * access->bytes;
        }
        if (fits) return bytes;
    }
    return access->bytes;
}

/* Times that the banks are read for one access of `lanes` lanes from `lane` on. */
static unsigned waves(const tile_access *access, const tvm_shared_layout *shared, uint32_t lane,
                      uint32_t lanes, uint32_t local, unsigned width) {
    uint32_t words[LANES * WIDEST / WORD], in_bank[BANKS] = {0};
    unsigned count = 0, most = 1;
    for (uint32_t t = lane; t < lane + lanes; t++) {
        uint32_t first = place(access, shared, t, local) / WORD;
        for (uint32_t w = first; w <= first + (width > WORD ? width / WORD - 1 : 0); w++) {
            unsigned i = 0;
            while (i < count && words[i] != w) i++;
            if (i < count) continue;
            words[count++] = w;
            if (++in_bank[w % BANKS] > most) most = in_bank[w % BANKS];
        }
    }
    return most;
}

static uint64_t access_cost(const tile_access *access, const tvm_shared_layout *shared) {
    unsigned width = width_of(access, shared);
    uint32_t step = width / access->bytes, accesses = tvm_layout_locals(&access->tile) / step;
    uint32_t lanes = width > 2 * WORD ? LANES / (width / WORD) : width > WORD ? LANES / 2 : LANES;
    uint32_t samples = accesses < SAMPLES ? accesses : SAMPLES;
    uint64_t cost = 0;
    for (uint32_t s = 0; s < samples; s++) {
        uint32_t local = (uint32_t)((uint64_t)s * accesses / samples) * step;
        for (uint32_t lane = 0; lane < LANES; lane += lanes)
            cost += waves(access, shared, lane, lanes, local, width);
    }
    return access->weight * (2 * (uint64_t)accesses + 4 * cost * accesses / (samples ? samples : 1));
}

/* ---- the accesses of a tensor ---- */

typedef struct tensor_use {
    tile_access *accesses;
    uint32_t count;
    bool fixed;   /* something uses it that is made for its own layout */
    bool copied;  /* in pieces of 16 bytes */
    bool indexed; /* by tensors of indices: gather, scatter, atomic operations */
    bool by_core; /* the tensor core reads it by a matrix descriptor */
} tensor_use;

static bool has_operand(const tvm_infer_state *in, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(in->kernel, insn);
    for (uint32_t i = 0; i < insn->count; i++)
        if (operands[i].kind == TVM_OPERAND_SLOT && operands[i].value == slot) return true;
    return false;
}

static bool has_indices(const tvm_infer_state *in, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(in->kernel, insn);
    const char *cursor = tvm_op(insn->op)->operands;
    tvm_operand_desc desc;
    uint32_t at = 0;
    while (at < insn->count && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        uint32_t count = tvm_entry_operands(in->program, in->kernel, &desc, &operands[at]);
        for (uint32_t i = 1; desc.kind == 'v' && i < count; i++)
            if (operands[at + i].kind == TVM_OPERAND_SLOT) return true;
        at += count;
    }
    return false;
}

static void find_use(tvm_infer_state *in, uint32_t slot, tensor_use *use) {
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        const tvm_insn *insn = &in->kernel->insns[i];
        const tvm_op_info *row = tvm_op(insn->op);
        tvm_infer_operands registers;
        if (!has_operand(in, insn, slot) || row->class == TVM_CLASS_FREE) continue;
        tvm_infer_registers(in, i, &registers);
        uint32_t result = tvm_infer_result(in, i);
        uint32_t moved = result != TVM_NONE ? result : registers.count ? registers.slots[0] : TVM_NONE;
        bool alone = registers.count + (result != TVM_NONE) == 1;
        if (row->effects & TVM_EFFECT_TENSOR)
            use->by_core = true;
        else if (has_indices(in, insn))
            use->indexed = true;
        else if (row->class == TVM_CLASS_MOVE && alone && in->layout[moved] != TVM_NONE)
            use->accesses[use->count++] = (tile_access){tvm_infer_layout(in, in->layout[moved]),
                                                        in->work[slot].dtype.bits / 8, in->weights[i]};
        else if (row->effects & TVM_EFFECT_ASYNC && row->class == TVM_CLASS_MOVE)
            use->copied = true;
        else
            use->fixed = true;
    }
}

static uint64_t cost_of(const tensor_use *use, const tvm_shared_layout *shared) {
    uint64_t cost = 0;
    for (uint32_t i = 0; i < use->count; i++) cost += access_cost(&use->accesses[i], shared);
    return cost;
}

/* Row-major under a swizzle of chunks of 2^base elements, by the rows' numbers. */
static bool swizzled(const tvm_shared_layout *shape, unsigned base, unsigned bits, tvm_shared_layout *out) {
    uint32_t strides[TVM_MAX_RANK], stride = 1, row = shape->shape[shape->rank - 1];
    for (unsigned d = shape->rank; d-- > 0; stride *= shape->shape[d]) strides[d] = stride;
    unsigned row_bits = tvm_log2_floor(row);
    if (row != 1U << row_bits || base + bits > row_bits) return false;
    unsigned shift = row_bits - base;
    return tvm_shared_layout_make(shape->rank, shape->shape, shape->rank, shape->shape, strides, base, bits,
                                  shift, out, NULL) == TVM_OK;
}

/* accesses: room for one an instruction. */
static void decide(tvm_infer_state *in, uint32_t slot, tile_access *accesses) {
    tensor_use use = {.accesses = accesses};
    const tvm_shared_layout own = in->program->shared_layouts[in->kernel->slots[slot].layout];
    tvm_shared_layout best = own, made;
    unsigned bytes = in->kernel->slots[slot].dtype.bits / 8;
    if (own.rank < 2) return;
    find_use(in, slot, &use);
    if (use.by_core) {
        unsigned bits = in->kernel->slots[slot].dtype.bits;
        if (tvm_shared_layout_for_tensor_core(own.rank, own.shape, bits, &made, NULL) == TVM_OK)
            in->kernel->slots[slot].layout = tvm_ir_program_shared_layout(in->program, &made);
        if (in->kernel->slots[slot].layout == TVM_NONE) in->failed = true;
        return;
    }
    if (!bytes || use.fixed || !(use.count || use.indexed)) return;
    unsigned widest = tvm_log2_floor(WIDEST / bytes);
    if (use.indexed && !swizzled(&own, widest, 0, &best)) return;
    uint64_t least = use.indexed ? 0 : cost_of(&use, &own);
    for (unsigned base = widest + 1; base-- > (use.copied ? widest : 0);)
        for (unsigned bits = 0; bits <= 5; bits++) {
            if (!swizzled(&own, base, bits, &made)) continue;
            uint64_t cost = cost_of(&use, &made);
            if (cost >= least) continue;
            least = cost;
            best = made;
        }
    in->kernel->slots[slot].layout = tvm_ir_program_shared_layout(in->program, &best);
    if (in->kernel->slots[slot].layout == TVM_NONE) in->failed = true;
}

void tvm_infer_shared_layouts(tvm_infer_state *in) {
    tile_access *accesses = tvm_infer_array(in, in->kernel->insn_count, sizeof *accesses);
    for (uint32_t s = 0; s < in->slot_count && !in->failed; s++)
        if (in->kernel->slots[s].kind == TVM_SLOT_SHARED && tvm_asm_is_open(in->as, s))
            decide(in, s, accesses);
}
