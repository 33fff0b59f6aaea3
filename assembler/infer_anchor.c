/* Anchors: the layouts that a tensor would have for the sake of one instruction. */
#include "infer_state.h"

#include <string.h>

#include "numbers.h"

enum { ACCESS_BYTES = 16 };

typedef struct anchor_list {
    tvm_infer_state *in;
    tvm_infer_anchor *items;
    unsigned count;
    uint32_t slot;
    tvm_infer_reason reason;
    unsigned line; /* the dimension that the layouts have as the last one */
} anchor_list;

static void add(anchor_list *list, const tvm_layout *layout) {
    tvm_layout back;
    if (list->count == TVM_INFER_ANCHORS || !tvm_infer_lines_back(layout, list->line, &back)) return;
    uint32_t number = tvm_infer_number(list->in, &back);
    if (number == TVM_NONE) return;
    for (unsigned i = 0; i < list->count; i++)
        if (list->items[i].layout == number) return;
    list->items[list->count++] = (tvm_infer_anchor){list->slot, number, list->reason};
}

/* outer.inner, outer over the threads' shape (`spatial`) or not. */
static bool compose(bool spatial, unsigned rank, const uint32_t *outer, const tvm_layout *inner,
                    tvm_layout *out) {
    tvm_layout made;
    return (spatial ? tvm_layout_spatial : tvm_layout_local)(rank, outer, &made, NULL) == TVM_OK &&
           tvm_layout_compose(&made, inner, out, NULL) == TVM_OK;
}

/* ---- accesses and reductions ---- */

/* `inner` threads to each of the leading index's parts, which the warps have: rows that no two warps share.
 */
static void add_rows(anchor_list *list, const tvm_layout *shape, uint32_t threads, unsigned bits) {
    uint32_t warps = (uint32_t)tvm_gcd(threads / 32, shape->shape[0]);
    uint32_t outer[TVM_MAX_RANK], inner[TVM_MAX_RANK];
    tvm_layout made;
    if (shape->rank < 2 || warps < 2) return;
    for (unsigned d = 0; d < shape->rank; d++) {
        outer[d] = d ? 1 : warps;
        inner[d] = shape->shape[d] / outer[d];
    }
    if (tvm_layout_auto(shape->rank, inner, threads / warps, bits, &made, NULL) == TVM_OK &&
        compose(true, shape->rank, outer, &made, &made))
        add(list, &made);
}

/* Each thread with all of the axis. */
static void add_within_threads(anchor_list *list, const tvm_layout *shape, uint32_t threads, unsigned bits,
                               unsigned axis) {
    uint32_t rest[TVM_MAX_RANK], whole[TVM_MAX_RANK];
    tvm_layout made, along;
    for (unsigned d = 0; d < shape->rank; d++) {
        rest[d] = d == axis ? 1 : shape->shape[d];
        whole[d] = d == axis ? shape->shape[d] : 1;
    }
    if (tvm_layout_auto(shape->rank, rest, threads, bits, &made, NULL) != TVM_OK ||
        tvm_layout_local(shape->rank, whole, &along, NULL) != TVM_OK)
        return;
    /* Of the last dimension the axis is the run of a thread, of others it lies outside of the run. */
    bool last = axis + 1U == shape->rank;
    if (tvm_layout_compose(last ? &made : &along, last ? &along : &made, &made, NULL) == TVM_OK)
        add(list, &made);
}

/* Each thread with blocks of as many rows as a run has elements, each warp with 4 by 8 of them: runs, and
 * lines of half a kilobyte in all, along either dimension. */
static void add_blocks(anchor_list *list, const tvm_layout *shape, uint32_t threads, unsigned bits) {
    enum { RUN_BITS = ACCESS_BYTES * 8, ROWS = 4, COLUMNS = 8 };
    uint32_t one[TVM_MAX_RANK], grid[TVM_MAX_RANK], lanes[TVM_MAX_RANK], block[TVM_MAX_RANK];
    uint32_t run = RUN_BITS / bits, warps = threads / 32;
    unsigned rank = shape->rank, m = rank - 2, n = rank - 1;
    tvm_layout made, inner, all;
    if (rank < 2 || run < 2 || shape->shape[m] % (ROWS * run) || shape->shape[n] % (COLUMNS * run)) return;
    for (unsigned d = 0; d < rank; d++) one[d] = grid[d] = lanes[d] = block[d] = 1;
    block[m] = block[n] = run;
    lanes[m] = ROWS, lanes[n] = COLUMNS;
    memcpy(one, shape->shape, m * sizeof *one);
    uint32_t rows = shape->shape[m] / (ROWS * run), columns = shape->shape[n] / (COLUMNS * run);
    grid[m] = (uint32_t)tvm_gcd(warps, rows);
    grid[n] = warps / grid[m];
    one[m] = rows / grid[m];
    one[n] = columns / grid[n];
    if (one[n] * grid[n] != columns || tvm_layout_local(rank, block, &inner, NULL) != TVM_OK ||
        tvm_layout_local(rank, one, &all, NULL) != TVM_OK || !compose(true, rank, lanes, &inner, &made) ||
        !compose(true, rank, grid, &made, &made) || tvm_layout_compose(&all, &made, &made, NULL) != TVM_OK)
        return;
    add(list, &made);
}

/* What `auto` leaves replicated, because the runs of 16 bytes are fewer than the threads, in runs that are
 * shorter. */
static void add_shorter(anchor_list *list, const tvm_layout *shape, uint32_t threads, unsigned bits) {
    unsigned own = list->in->work[list->slot].dtype.bits;
    tvm_layout made;
    uint32_t least = UINT32_MAX;
    for (; bits <= ACCESS_BYTES * 8 && bits / own <= ACCESS_BYTES; bits *= 2) {
        if (tvm_layout_auto(shape->rank, shape->shape, threads, bits, &made, NULL) != TVM_OK) return;
        uint32_t copies = tvm_layout_replication(&made);
        if (copies >= least) continue;
        if (least != UINT32_MAX) add(list, &made);
        least = copies;
    }
}

/* In runs of `width` bytes: those that `auto` gives elements that are wider by as much as 16 bytes are. */
static void add_moved(anchor_list *list, uint32_t threads, unsigned width) {
    const tvm_layout found = tvm_infer_shape_of(list->in, list->slot);
    tvm_layout shape = found;
    for (unsigned d = list->line; d + 1 < shape.rank; d++) shape.shape[d] = shape.shape[d + 1];
    shape.shape[shape.rank - 1] = found.shape[list->line];
    unsigned bits = list->in->work[list->slot].dtype.bits * (ACCESS_BYTES / width);
    tvm_layout made;
    if (tvm_layout_auto(shape.rank, shape.shape, threads, bits, &made, NULL) == TVM_OK) add(list, &made);
    add_rows(list, &shape, threads, bits);
    add_shorter(list, &shape, threads, bits);
    add_blocks(list, &shape, threads, bits);
}

/* ---- mma ---- */

/* c = outer.C, of which `outer` is `warps` over the parts of a matrix, each thread's tiles in between. */
static void add_grid(anchor_list *list, const tvm_layout *shape, const tvm_layout *atom, uint32_t copies,
                     uint32_t batch, uint32_t rows, uint32_t columns) {
    uint32_t grid[TVM_MAX_RANK], tiles[TVM_MAX_RANK];
    unsigned rank = shape->rank;
    tvm_layout made;
    for (unsigned d = 0; d < rank; d++) {
        uint32_t extent = shape->shape[d] / (d + 2 < rank ? 1 : atom->shape[d + 2 - rank]);
        grid[d] = d + 1 == rank ? columns : d + 2 == rank ? rows : d + 3 == rank ? batch : 1;
        tiles[d] = extent / grid[d];
        if (tiles[d] * grid[d] != extent) return;
    }
    tvm_layout replicas;
    if (compose(false, rank, tiles, atom, &made) && compose(true, rank, grid, &made, &made) &&
        tvm_layout_replicated(rank, copies, &replicas, NULL) == TVM_OK &&
        tvm_layout_compose(&replicas, &made, &made, NULL) == TVM_OK)
        add(list, &made);
}

/* Groups of four warps that share b, each warp the rows of its quarter of 64, as wgmma has them. */
static void add_groups(anchor_list *list, const tvm_layout *shape, const tvm_layout *atom, uint32_t rows,
                       uint32_t columns) {
    uint32_t part[TVM_MAX_RANK];
    unsigned rank = shape->rank, m = rank - 2, n = rank - 1;
    uint32_t m_tiles = shape->shape[m] / atom->shape[0], n_tiles = shape->shape[n] / atom->shape[1];
    tvm_layout made;
    if (m_tiles % (4 * rows) || n_tiles % columns || n_tiles / columns < 2) return;
    for (unsigned d = 0; d < rank; d++) part[d] = 1;
    part[n] = n_tiles / columns;
    if (!compose(false, rank, part, atom, &made)) return;
    part[n] = 1;
    part[m] = 4;
    if (!compose(true, rank, part, &made, &made)) return;
    memcpy(part, shape->shape, m * sizeof *part);
    part[m] = m_tiles / 4 / rows;
    if (!compose(false, rank, part, &made, &made)) return;
    for (unsigned d = 0; d < m; d++) part[d] = 1;
    part[m] = rows;
    part[n] = columns;
    if (compose(true, rank, part, &made, &made)) add(list, &made);
}

static void add_products(anchor_list *list, uint32_t warps) {
    const tvm_layout shape = tvm_infer_shape_of(list->in, list->slot);
    tvm_layout atom;
    if (shape.rank < 2 || tvm_layout_atom("mma.m16n8k16.C", strlen("mma.m16n8k16.C"), &atom, NULL) != TVM_OK)
        return;
    for (uint32_t columns = 1; warps % 4 == 0 && columns <= warps / 4; columns++)
        if (warps / 4 % columns == 0) add_groups(list, &shape, &atom, warps / 4 / columns, columns);
    uint32_t batch = shape.rank < 3 ? 1 : (uint32_t)tvm_gcd(warps, shape.shape[shape.rank - 3]);
    uint32_t rest = warps / batch;
    for (uint32_t copies = 1; copies <= rest && (copies == 1 || !list->count); copies++)
        for (uint32_t columns = 1; rest % copies == 0 && columns <= rest / copies; columns++)
            if (rest / copies % columns == 0)
                add_grid(list, &shape, &atom, copies, batch, rest / copies / columns, columns);
}

/* ---- by instruction ---- */

bool tvm_infer_is_product(const tvm_infer_state *in, uint32_t insn, uint32_t slot) {
    const tvm_insn *mma = &in->kernel->insns[insn];
    if (mma->op != TVM_OP_MMA) return false;
    const tvm_operand *operands = tvm_operands(in->kernel, mma);
    const tvm_mma_places at = tvm_mma_find_places(in->program, in->kernel, operands, mma->count);
    return slot == tvm_infer_result(in, insn) || operands[at.c].value == slot;
}

unsigned tvm_infer_anchors(tvm_infer_state *in, uint32_t insn, uint32_t slot,
                           tvm_infer_anchor anchors[TVM_INFER_ANCHORS]) {
    anchor_list list = {.in = in, .items = anchors, .slot = slot, .reason = {TVM_WHY_ACCESS, insn}};
    const tvm_op_info *row = tvm_infer_row(in, insn);
    unsigned ordinal;
    tvm_team team = tvm_infer_team(in, insn);
    const tvm_layout shape = tvm_infer_shape_of(in, slot);
    uint32_t result = tvm_infer_result(in, insn);
    list.line = shape.rank - 1U;
    if (tvm_infer_is_product(in, insn, slot)) {
        list.reason.why = TVM_WHY_PRODUCT;
        add_products(&list, team.warps);
    } else if (tvm_infer_moved(in, insn, &ordinal) == slot &&
               tvm_infer_space_of(in, insn) != TVM_SPACE_NONE && in->kernel->insns[insn].op != TVM_OP_MMA) {
        list.line = tvm_infer_line(in, insn, shape.rank);
        add_moved(&list, tvm_team_threads(team), tvm_infer_width(in, insn, in->work[slot].dtype.bits));
    } else if (row->effects & TVM_EFFECT_SCRATCH && result != TVM_NONE && slot != result) {
        const tvm_layout to = tvm_infer_shape_of(in, result);
        list.reason.why = TVM_WHY_REDUCTION;
        add_moved(&list, tvm_team_threads(team), ACCESS_BYTES);
        for (unsigned d = 0; d < shape.rank && to.rank == shape.rank; d++)
            if (to.shape[d] != shape.shape[d])
                add_within_threads(&list, &shape, tvm_team_threads(team), in->work[slot].dtype.bits, d);
    }
    return list.count;
}
