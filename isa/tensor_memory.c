#include "tensor_memory.h"

#include <string.h>

enum { TOGETHER = 8 }; /* columns of one tcgen05.cp, at multiples of which a tensor begins */

static uint32_t in_column(unsigned bits) {
    return TVM_TENSOR_COLUMN_BITS / bits;
}

uint32_t tvm_tensor_matrix_columns(const tvm_ir_program *program, const tvm_slot *slot) {
    return tvm_slot_shape(program, slot)[tvm_slot_rank(program, slot) - 1] / in_column(slot->dtype.bits);
}

uint32_t tvm_tensor_columns(const tvm_ir_program *program, const tvm_slot *slot) {
    const uint32_t *shape = tvm_slot_shape(program, slot);
    uint32_t columns = tvm_tensor_matrix_columns(program, slot);
    for (unsigned d = 0; d + 2 < tvm_slot_rank(program, slot); d++) columns *= shape[d];
    return (columns + TOGETHER - 1) / TOGETHER * TOGETHER;
}

/* ---- loads and stores ---- */

/* 32x32b: thread l has lane l, a register a column. The others, of 16 lanes: thread l has lanes l / 4 and l /
 * 4 + 8, of 4 or 8 columns one or two from l mod 4 times as many on. */
static const tvm_tensor_shape shapes[] = {
    {"32x32b", 32, 1, 1, 128}, {"16x256b", 16, 8, 4, 32}, {"16x128b", 16, 4, 2, 64}};
enum { SHAPES = sizeof shapes / sizeof *shapes, LANES = 32, QUARTERS = 4, EIGHT = 8 };

/* What a thread has in the first of its registers. */
static void first_place(const tvm_tensor_shape *shape, uint32_t lane, uint32_t *row, uint32_t *column) {
    *row = shape->lanes == LANES ? lane : lane / 4;
    *column = shape->lanes == LANES ? 0 : lane % 4 * (shape->columns / 4);
}

/* Do the threads have the places of the shape, each warp those of its lanes? A warp's columns may begin
 * anywhere. */
static bool threads_fit(const tvm_layout *layout, unsigned bits, const tvm_tensor_shape *shape) {
    uint32_t of_warp = 0, own = layout->shape[0] / QUARTERS;
    if (shape->lanes > own) return false;
    for (uint32_t t = 0; t < tvm_layout_threads(layout); t++) {
        uint32_t at[TVM_MAX_RANK], row, column;
        tvm_layout_map(layout, t, 0, at);
        if (t % LANES == 0) of_warp = at[1];
        first_place(shape, t % LANES, &row, &column);
        if (of_warp % in_column(bits) || at[1] != of_warp + column * in_column(bits) ||
            at[0] != t / LANES % QUARTERS * own + row)
            return false;
    }
    return true;
}

/* Adds a word at a lane and a column, both as of thread 0, which come in any order. */
static bool add_word(tvm_tensor_access *access, uint32_t row, uint32_t column, uint32_t word) {
    const tvm_tensor_shape *shape = access->shape;
    uint32_t beside = shape->lanes == LANES ? 1 : shape->columns / 4, in = column % shape->columns;
    uint32_t number = row % shape->lanes / EIGHT * beside + in;
    if (in >= beside || row % shape->lanes % EIGHT || number >= shape->words) return false;
    tvm_tensor_unit unit = {.lane = (uint16_t)(row - row % shape->lanes), .column = (uint16_t)(column - in)};
    uint32_t at = access->count;
    for (uint32_t i = 0; i < access->count; i++)
        if (access->units[i].lane == unit.lane && access->units[i].column == unit.column) at = i;
    if (at == TVM_TENSOR_COLUMNS) return false;
    if (at == access->count) {
        memset(unit.words, 0xff, sizeof unit.words);
        access->units[access->count++] = unit;
    }
    access->units[at].words[number] = (uint16_t)word;
    return true;
}

static bool comes_before(const tvm_tensor_unit *a, const tvm_tensor_unit *b) {
    return a->lane < b->lane || (a->lane == b->lane && a->column < b->column);
}

static void sort_units(tvm_tensor_access *access) {
    for (uint32_t i = 1; i < access->count; i++) {
        const tvm_tensor_unit unit = access->units[i];
        uint32_t at = i;
        for (; at > 0 && comes_before(&unit, &access->units[at - 1]); at--)
            access->units[at] = access->units[at - 1];
        access->units[at] = unit;
    }
}

/* Are a thread's elements whole columns, and these units of the shape? */
static bool locals_fit(const tvm_layout *layout, unsigned bits, tvm_tensor_access *access) {
    uint32_t locals = tvm_layout_locals(layout), elements = in_column(bits), words = locals / elements;
    if (locals % elements || words > TVM_TENSOR_COLUMNS * TVM_TENSOR_UNIT_WORDS) return false;
    access->count = 0;
    for (uint32_t w = 0; w < words; w++) {
        uint32_t first[TVM_MAX_RANK], at[TVM_MAX_RANK];
        tvm_layout_map(layout, 0, w * elements, first);
        for (uint32_t i = 1; i < elements; i++) {
            tvm_layout_map(layout, 0, w * elements + i, at);
            if (at[0] != first[0] || at[1] != first[1] + i) return false;
        }
        if (first[1] % elements || !add_word(access, first[0], first[1] / elements, w)) return false;
    }
    sort_units(access);
    return words == access->count * access->shape->words;
}

tvm_status tvm_tensor_access_find(const tvm_layout *layout, unsigned bits, tvm_team team,
                                  tvm_tensor_access *out, tvm_why *why) {
    if (team.first % QUARTERS || team.warps % QUARTERS)
        return tvm_refuse(
            why, "warp w of a block reaches the lanes from 32 * (w mod 4) on: expected a team of whole "
                 "warpgroups, 4 warps from a multiple of 4 on");
    for (unsigned s = 0; s < SHAPES; s++) {
        out->shape = &shapes[s];
        if (threads_fit(layout, bits, out->shape) && locals_fit(layout, bits, out)) return TVM_OK;
    }
    return tvm_refuse(
        why, layout->shape[0] == TVM_TENSOR_HALF
                 ? "threads do not reach the lanes so: expected "
                   "spatial(4, 1).local(1, n).mma.m16n8k16.C, or no layout; relayout moves elements"
                 : "threads do not reach the lanes so: expected spatial(128, 1).local(1, n), "
                   "spatial(4, 1).local(2, n).mma.m16n8k16.C, or no layout; relayout moves elements");
}

/* What a warpgroup has: a row a thread; or fragments, of which a warp has one beside the other. */
static tvm_status of_group(uint32_t rows, uint32_t columns, tvm_layout *out, tvm_why *why) {
    static const char atom[] = "mma.m16n8k16.C";
    const bool whole = rows == TVM_TENSOR_LANES;
    const uint32_t lanes[] = {whole ? rows : QUARTERS, 1}, own[] = {1, whole ? columns : columns / EIGHT};
    tvm_layout outer, fragment;
    tvm_status status = tvm_layout_spatial(2, lanes, &outer, why);
    if (status == TVM_OK) status = tvm_layout_local(2, own, out, why);
    if (status == TVM_OK) status = tvm_layout_compose(&outer, out, out, why);
    if (whole || status != TVM_OK) return status;
    status = tvm_layout_atom(atom, sizeof atom - 1, &fragment, why);
    return status == TVM_OK ? tvm_layout_compose(out, &fragment, out, why) : status;
}

tvm_status tvm_tensor_layout(uint32_t rows, uint32_t columns, tvm_team team, tvm_layout *out, tvm_why *why) {
    const uint32_t groups[] = {1, team.warps / QUARTERS}, least = rows == TVM_TENSOR_LANES ? 1 : EIGHT;
    tvm_layout outer;
    if (team.warps % QUARTERS || columns % (least * groups[1]))
        return tvm_refuse(
            why, "%u columns for %u warps: expected whole warpgroups, and as many columns for each%s",
            columns, team.warps, least > 1 ? ", a multiple of 8" : "");
    tvm_status status = tvm_layout_spatial(2, groups, &outer, why);
    if (status == TVM_OK) status = of_group(rows, columns / groups[1], out, why);
    return status == TVM_OK ? tvm_layout_compose(&outer, out, out, why) : status;
}

/* ---- products ---- */

static uint32_t extent(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_operand *tensor,
                       unsigned from_last) {
    const tvm_slot *slot = &kernel->slots[tensor->value];
    return tvm_slot_shape(program, slot)[tvm_slot_rank(program, slot) - 1 - from_last];
}

/* Returns the operand behind it. */
static const tvm_operand *read_tile(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                    const tvm_operand *tensor, tvm_tensor_tile *out) {
    if (tensor->kind != TVM_OPERAND_SLOT) return tensor + 1;
    const tvm_slot *slot = &kernel->slots[tensor->value];
    out->tensor = tensor;
    out->is_shared = slot->kind == TVM_SLOT_SHARED;
    out->type = slot->dtype;
    return tensor + 1 + tvm_slot_rank(program, slot);
}

static void set_tile(tvm_tensor_tile *tile, uint32_t rows, uint32_t columns) {
    tile->tile[0] = tile->is_transposed ? columns : rows;
    tile->tile[1] = tile->is_transposed ? rows : columns;
}

bool tvm_tensor_spreads(tvm_dtype shared, tvm_dtype global) {
    return tvm_dtype_same(shared, TVM_U(8)) && global.bits < 8 && tvm_mma_is_small_float(global);
}

bool tvm_copy_spreads(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const tvm_operand *target = tvm_operands(kernel, insn);
    const tvm_slot *shared = &kernel->slots[target->value];
    const tvm_operand *source = target + 1 + tvm_slot_rank(program, shared);
    return tvm_tensor_spreads(shared->dtype, kernel->slots[source->value].dtype);
}

static void set_type(tvm_tensor_tile *tile, const tvm_operand *spread) {
    tile->is_spread = spread->kind == TVM_OPERAND_CONST;
    if (tile->is_spread) tile->type = tvm_spread_dtype((tvm_spread)spread->value);
}

static void read_scales(tvm_tensor_mma *out) {
    if (!out->scale_a.tensor || !out->scale_b.tensor) return;
    out->scaling = tvm_mma_find_scaling(out->a.type, out->b.type, out->scale_a.type);
    if (!out->scaling) return;
    uint32_t words = (out->k / out->scaling->block + TVM_TENSOR_SCALES - 1) / TVM_TENSOR_SCALES;
    set_tile(&out->scale_a, TVM_TENSOR_LANES, TVM_TENSOR_SCALES * words * tvm_tensor_scale_columns(out->m));
    set_tile(&out->scale_b, TVM_TENSOR_LANES, TVM_TENSOR_SCALES * words * tvm_tensor_scale_columns(out->n));
}

void tvm_tensor_mma_read(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                         const tvm_operand *operands, tvm_tensor_mma *out) {
    enum { ACCUMULATE, TRANSPOSE_A, TRANSPOSE_B, K, SCALES };
    enum { TYPE_A, TYPE_B, PAIR }; /* behind the scales */
    memset(out, 0, sizeof *out);
    const tvm_operand *at = read_tile(program, kernel, operands, &out->d);
    at = read_tile(program, kernel, at, &out->a);
    at = read_tile(program, kernel, at, &out->b);
    out->accumulate = &at[ACCUMULATE];
    out->a.is_transposed = at[TRANSPOSE_A].kind == TVM_OPERAND_CONST;
    out->b.is_transposed = at[TRANSPOSE_B].kind == TVM_OPERAND_CONST;
    out->m = tvm_tensor_rows(program, &kernel->slots[out->d.tensor->value]);
    out->k = at[K].kind == TVM_OPERAND_CONST ? at[K].value
                                             : extent(program, kernel, out->a.tensor, out->a.is_transposed);
    const tvm_operand *types = read_tile(program, kernel, &at[SCALES], &out->scale_a);
    types = read_tile(program, kernel, types, &out->scale_b);
    out->blocks = types[PAIR].kind == TVM_OPERAND_CONST ? 2 : 1;
    out->n = out->blocks * extent(program, kernel, out->b.tensor, out->b.is_transposed);
    out->folds = out->blocks > 1 && out->m == TVM_TENSOR_LANES && out->a.is_shared &&
                 extent(program, kernel, out->a.tensor, !out->a.is_transposed) == TVM_TENSOR_HALF;
    if (out->folds) out->m = TVM_TENSOR_HALF;
    out->step = TVM_TENSOR_STEP * 8 / out->a.type.bits;
    set_type(&out->a, &types[TYPE_A]);
    set_type(&out->b, &types[TYPE_B]);
    set_tile(&out->d, out->folds ? TVM_TENSOR_LANES : out->m, out->folds ? out->n / 2 : out->n);
    set_tile(&out->a, out->m, out->k);
    set_tile(&out->b, out->k, out->n / out->blocks);
    out->types =
        tvm_mma_find_types(out->a.type, out->b.type, out->d.type, tvm_dtype_same(out->a.type, TVM_F32));
    read_scales(out);
}

bool tvm_tensor_is_pair(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    bool works =
        insn->op == TVM_OP_COPY_TENSOR || insn->op == TVM_OP_MMA_TENSOR || insn->op == TVM_OP_COMMIT_TENSOR;
    return works && tvm_operands(kernel, insn)[insn->count - 1].kind == TVM_OPERAND_CONST;
}
