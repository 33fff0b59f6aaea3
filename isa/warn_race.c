/* The accesses that some path brings to each instruction unordered; the walk over a loop compares those of
 * one iteration with those of the next. */
#include "warn_race.h"

#include <stdlib.h>
#include <string.h>

#include "mma.h"
#include "paths.h"
#include "pipeline.h"

enum { MOST_STEPS = 1 << 20, MOST_PAIRS = 64 };

/* What is left to order an access: nothing; of a team's the other warps, of a copy the other threads; all; of
 * a copy a commit-group, too. */
typedef enum level { ORDERED, PARTLY, UNORDERED, UNCOMMITTED } level;

typedef struct access {
    uint32_t insn;
    uint32_t slot;
    const tvm_layout *layout; /* which threads have which elements of the tile; NULL: of a copy, any */
    tvm_team team;
    bool writes, copies;
    bool by_warps; /* a warp reads its elements together, as mma does */
    unsigned rank;
    const tvm_operand *indices;
    uint32_t extent[TVM_MAX_RANK]; /* of the tile, in the dimensions of the shared tensor */
} access;

typedef struct walk {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_diags *diags;
    access *accesses;
    uint32_t *number; /* by instruction: one more than its first access; 0: none */
    uint32_t count;
    tvm_layout *tiles; /* of mma */
    uint32_t tile_count;
    uint32_t steps;
    struct {
        uint32_t first, second;
    } pairs[MOST_PAIRS];
    uint32_t pair_count;
    bool no_memory;
} walk;

/* ---- accesses ---- */

static bool has_mask(const walk *w, const tvm_insn *insn, uint32_t at) {
    return at < insn->count && tvm_operands(w->kernel, insn)[at].kind == TVM_OPERAND_SLOT;
}

static void set_extent(access *a, unsigned rank, const uint32_t *tile, unsigned tile_rank) {
    for (unsigned d = 0; d < rank; d++)
        a->extent[d] = d < rank - tile_rank ? 1 : tile[d - (rank - tile_rank)];
}

static const tvm_layout *layout_of(const walk *w, uint32_t slot) {
    return &w->program->layouts[w->kernel->slots[slot].layout];
}

static access *add_access(walk *w, uint32_t insn, tvm_team team, const tvm_operand *tensor) {
    access *a = &w->accesses[w->count++];
    *a = (access){.insn = insn, .team = team, .slot = tensor->value, .indices = tensor + 1};
    a->rank = tvm_slot_rank(w->program, &w->kernel->slots[a->slot]);
    if (!w->number[insn]) w->number[insn] = w->count;
    return a;
}

/* One whose warps share the tile out is not looked at. */
static void add_copy(walk *w, uint32_t at, tvm_team team) {
    const tvm_operand *operands = tvm_operands(w->kernel, &w->kernel->insns[at]);
    const tvm_operand *source = operands + 1 + tvm_slot_rank(w->program, &w->kernel->slots[operands->value]);
    const tvm_operand *extents = source + 1 + w->kernel->slots[source->value].rank;
    const tvm_operand *parts = extents + 1 + extents[0].value + 1;
    uint32_t tile[TVM_MAX_RANK];
    if (parts->kind != TVM_OPERAND_NONE) return;
    access *a = add_access(w, at, team, operands);
    a->writes = a->copies = true;
    for (unsigned d = 0; d < extents[0].value; d++) tile[d] = extents[1 + d].value;
    set_extent(a, a->rank, tile, extents[0].value);
}

static void add_move(walk *w, uint32_t at, tvm_team team) {
    const tvm_insn *insn = &w->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    bool stores = insn->op == TVM_OP_STORE_SHARED;
    uint32_t after = 1 + tvm_slot_rank(w->program, &w->kernel->slots[operands->value]);
    if (has_mask(w, insn, after + stores)) return;
    access *a = add_access(w, at, team, operands);
    uint32_t tensor = stores ? operands[after].value : insn->result;
    const tvm_slot *slot = &w->kernel->slots[tensor];
    a->writes = stores;
    a->layout = layout_of(w, tensor);
    set_extent(a, a->rank, tvm_slot_shape(w->program, slot), tvm_slot_rank(w->program, slot));
}

/* A tile that is multiplied: each warp reads what its fragments need. */
static void add_operand(walk *w, uint32_t at, tvm_team team, const tvm_mma *mma, bool is_a) {
    const tvm_mma_source *source = is_a ? &mma->a : &mma->b;
    tvm_layout fragments, *tile = &w->tiles[w->tile_count];
    if (!source->is_shared || !mma->types ||
        tvm_mma_fragments(mma->atoms, layout_of(w, mma->c), is_a, source->rank, source->shape, &fragments,
                          NULL) != TVM_OK ||
        tvm_mma_tile_layout(mma, is_a, &fragments, tile, NULL) != TVM_OK)
        return;
    w->tile_count++;
    access *a = add_access(w, at, team, source->tensor);
    a->layout = tile;
    a->by_warps = true;
    set_extent(a, a->rank, source->tile, source->tile_rank);
}

static void add_mma(walk *w, uint32_t at, tvm_team team) {
    const tvm_insn *insn = &w->kernel->insns[at];
    tvm_mma mma;
    if (!tvm_mma_read(w->program, w->kernel, tvm_operands(w->kernel, insn), insn->count, &mma)) return;
    add_operand(w, at, team, &mma, true);
    add_operand(w, at, team, &mma, false);
}

static bool find_accesses(walk *w) {
    tvm_team_walk teams = {.depth = 0};
    uint32_t pipelined = 0; /* the END of the pipelined loop around */
    for (uint32_t i = 0; i < w->kernel->insn_count; i++) {
        const tvm_insn *insn = &w->kernel->insns[i];
        tvm_team team = tvm_team_next(&teams, w->kernel, insn);
        if (tvm_pipeline_stages(w->kernel, insn)) pipelined = insn->match;
        if (insn->op == TVM_OP_COPY_ASYNC && i >= pipelined) add_copy(w, i, team);
        if (insn->op == TVM_OP_STORE_SHARED || insn->op == TVM_OP_LOAD_SHARED) add_move(w, i, team);
        if (insn->op == TVM_OP_MMA) add_mma(w, i, team);
    }
    return w->count > 1;
}

/* ---- the same elements, other threads ---- */

static bool constant(const walk *w, const tvm_operand *index, int64_t *value) {
    const tvm_expr *e = &w->kernel->exprs[index->value];
    *value = e->value.i;
    return e->op == TVM_EXPR_INTEGER;
}

/* How far the second tile begins behind the first, where that is known: constants, or one expression. */
static bool distances(const walk *w, const access *a, const access *b, int64_t *distance) {
    for (unsigned d = 0; d < a->rank; d++) {
        int64_t x = 0, y = 0;
        bool known = constant(w, &a->indices[d], &x) && constant(w, &b->indices[d], &y);
        if (!known && a->indices[d].value != b->indices[d].value) return false;
        distance[d] = known ? y - x : 0;
        if (distance[d] >= (int64_t)a->extent[d] || -distance[d] >= (int64_t)b->extent[d]) return false;
    }
    return true;
}

/* Places in the shared tensor of a thread's elements, relative to the first access; those of `b` that lie
 * outside of a's tile are none of it. */
static int64_t place_of(const walk *w, const access *at, const tvm_layout *layout, const int64_t *distance,
                        uint32_t thread, uint32_t local) {
    const uint32_t *shape = tvm_slot_shape(w->program, &w->kernel->slots[at->slot]);
    uint32_t index[TVM_MAX_RANK];
    int64_t place = 0;
    tvm_layout_map(layout, thread, local, index);
    for (unsigned d = 0; d < at->rank; d++) {
        unsigned lead = at->rank - layout->rank;
        int64_t along = (distance ? distance[d] : 0) + (d < lead ? 0 : index[d - lead]);
        if (along < 0) return -1;
        place = place * shape[d] + along;
    }
    return place;
}

/* Of an element, by its place, among the threads (or warps) of the access, numbered from 1: the only one that
 * has it, or UINT32_MAX. */
static void note_holder(uint32_t *held, uint32_t who) {
    *held = *held == 0 || *held == who ? who : UINT32_MAX;
}

/* Does a thread (or warp) have an element in `b` that others have in `a`: only others where `a` writes, since
 * all that have it write one value; any others where it reads. What a warp reads together, its other threads
 * have, too. */
static bool differ(walk *w, const access *a, const access *b, const int64_t *distance, bool by_warp) {
    const tvm_layout *first = a->layout, *second = b->layout;
    bool others = !by_warp && (a->by_warps || b->by_warps);
    const uint32_t *shape = tvm_slot_shape(w->program, &w->kernel->slots[a->slot]);
    uint32_t threads = tvm_layout_threads(first), each = by_warp ? 32 : 1, size = 1;
    for (unsigned d = 0; d < a->rank; d++) size *= shape[d];
    uint32_t *held =
        calloc(size, sizeof *held); /* by place: one more than the last thread (or warp) that wrote it */
    bool *covered = calloc(size, sizeof *covered), found = false;
    if (!held || !covered) w->no_memory = true;
    for (uint32_t t = 0; t < threads && !w->no_memory; t++)
        for (uint32_t l = 0; l < tvm_layout_locals(first); l++) {
            int64_t place = place_of(w, a, first, NULL, t, l);
            if (place < 0 || place >= size) continue;
            covered[place] = true;
            if (!a->writes) note_holder(&held[place], t / each * each + 1);
        }
    for (uint32_t t = 0; t < threads && !w->no_memory && !found; t += each) {
        for (uint32_t u = t; u < t + each && a->writes; u++)
            for (uint32_t l = 0; l < tvm_layout_locals(first); l++) {
                int64_t place = place_of(w, a, first, NULL, u, l);
                if (place >= 0 && place < size) held[place] = t + 1;
            }
        for (uint32_t u = t; u < t + each && !found; u++)
            for (uint32_t l = 0; l < tvm_layout_locals(second) && !found; l++) {
                int64_t place = place_of(w, b, second, distance, u, l);
                found = place >= 0 && place < size && covered[place] && (others || held[place] != t + 1);
            }
    }
    free(held);
    free(covered);
    return found;
}

static void warn(walk *w, const access *a, const access *b, level left) {
    const tvm_insn *first = &w->kernel->insns[a->insn], *second = &w->kernel->insns[b->insn];
    tvm_place place = {.line = second->line};
    const char *hint = "a sync between them";
    if (second->file != TVM_NONE) place.file = tvm_string(w->program, second->file);
    if (a->copies) hint = left >= UNORDERED ? "commit-group, wait-group and sync between them" : hint;
    tvm_diag_add(w->diags, TVM_OK, &place, hint,
                 "%s: %s: on some path nothing orders it after the %s of '%s' in line %u, by other threads",
                 tvm_string(w->program, w->kernel->name), tvm_op(second->op)->mnemonic,
                 tvm_op(first->op)->mnemonic, tvm_string(w->program, w->kernel->slots[a->slot].name),
                 (unsigned)first->line);
}

/* `a` comes before `b` with that much left to order. */
static void check_pair(walk *w, const access *a, const access *b, level left) {
    int64_t distance[TVM_MAX_RANK];
    if (a->slot != b->slot || (!a->writes && !b->writes) || w->pair_count == MOST_PAIRS) return;
    for (uint32_t p = 0; p < w->pair_count; p++)
        if (w->pairs[p].first == a->insn && w->pairs[p].second == b->insn) return;
    if (!distances(w, a, b, distance)) return;
    if (!a->copies && !b->copies && !differ(w, a, b, distance, left == PARTLY)) return;
    w->pairs[w->pair_count].first = a->insn;
    w->pairs[w->pair_count++].second = b->insn;
    warn(w, a, b, left);
}

/* ---- paths ---- */

/* What the index was when the access was made is not known any more. */
static void assign(const walk *w, uint8_t *levels, uint32_t slot) {
    for (uint32_t a = 0; a < w->count; a++)
        for (unsigned d = 0; d < w->accesses[a].rank && levels[a]; d++)
            if (tvm_expr_reads(w->kernel, w->accesses[a].indices[d].value, slot)) levels[a] = ORDERED;
}

static void order(const walk *w, uint8_t *levels, const tvm_insn *insn) {
    for (uint32_t a = 0; a < w->count; a++) {
        bool copies = w->accesses[a].copies;
        uint8_t *left = &levels[a];
        if (insn->op == TVM_OP_COMMIT_GROUP)
            *left = *left == UNCOMMITTED ? UNORDERED : *left;
        else if (insn->op == TVM_OP_WAIT_GROUP)
            *left = copies && *left == UNORDERED ? PARTLY : *left;
        else if (insn->op == TVM_OP_SYNC)
            *left = copies && *left >= UNORDERED ? *left : ORDERED;
        else if (insn->op == TVM_OP_SYNC_WARP && !copies && w->accesses[a].team.warps > 1)
            *left = *left ? PARTLY : ORDERED;
        else
            *left = ORDERED;
    }
}

/* A role's teams are compared with themselves alone. */
static void forget(void *context, void *state) {
    memset(state, ORDERED, ((const walk *)context)->count);
}

static void step(void *context, uint32_t at, void *state) {
    walk *w = context;
    uint8_t *levels = state;
    const tvm_insn *insn = &w->kernel->insns[at];
    if (w->no_memory || w->steps++ >= MOST_STEPS) return;
    if (tvm_insn_class(insn) == TVM_CLASS_SECTION) forget(w, levels);
    if (tvm_insn_class(insn) == TVM_CLASS_ORDER) order(w, levels, insn);
    uint32_t first = w->number[at] ? w->number[at] - 1 : w->count, end = first;
    while (end < w->count && w->accesses[end].insn == at) end++;
    for (uint32_t n = first; n < end; n++)
        for (uint32_t a = 0; a < w->count && !w->no_memory; a++)
            if (levels[a]) check_pair(w, &w->accesses[a], &w->accesses[n], (level)levels[a]);
    for (uint32_t n = first; n < end; n++) levels[n] = w->accesses[n].copies ? UNCOMMITTED : UNORDERED;
    if (insn->result != TVM_NONE && w->kernel->slots[insn->result].kind == TVM_SLOT_SCALAR)
        assign(w, levels, insn->result);
}

static bool meet(void *context, void *into, const void *other) {
    const walk *w = context;
    uint8_t *levels = into;
    const uint8_t *more = other;
    bool grown = false;
    for (uint32_t a = 0; a < w->count; a++) {
        if (levels[a] >= more[a]) continue;
        levels[a] = more[a];
        grown = true;
    }
    return grown;
}

/* A loop is taken to run once at least. */
static void walk_paths(walk *w) {
    const tvm_paths paths = {.kernel = w->kernel,
                             .context = w,
                             .size = w->count,
                             .meet = meet,
                             .step = step,
                             .leave_role = forget,
                             .loops_run = true};
    if (!tvm_paths_walk(&paths)) w->no_memory = true;
}

static void walk_kernel(walk *w) {
    const tvm_ir_kernel *kernel = w->kernel;
    size_t products = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) products += kernel->insns[i].op == TVM_OP_MMA;
    w->accesses = calloc(kernel->insn_count + products + 1, sizeof *w->accesses);
    w->tiles = calloc(2 * products + 1, sizeof *w->tiles);
    w->number = calloc((size_t)kernel->insn_count + 1, sizeof *w->number);
    if (!w->accesses || !w->number || !w->tiles) {
        w->no_memory = true;
    } else if (find_accesses(w)) {
        walk_paths(w);
    }
    free(w->accesses);
    free(w->number);
    free(w->tiles);
}

tvm_status tvm_warn_races(const tvm_ir_program *program, tvm_diags *diags) {
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        walk *w = calloc(1, sizeof *w);
        if (!w) return tvm_diag_no_memory(diags);
        w->program = program;
        w->kernel = &program->kernels[k];
        w->diags = diags;
        walk_kernel(w);
        bool no_memory = w->no_memory;
        free(w);
        if (no_memory) return tvm_diag_no_memory(diags);
    }
    return TVM_OK;
}
