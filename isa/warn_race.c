/* One walk over the structured control of a kernel, with the accesses that some path brings here unordered.
 * Loops are walked twice, so that what a turn leaves meets the next one. */
#include "warn_race.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

enum { MOST_STEPS = 1 << 20, MOST_PAIRS = 64 };

/* What is left to order an access: nothing; of a team's the other warps, of a copy the other threads; all; of
 * a copy a commit-group, too. */
typedef enum level { ORDERED, PARTLY, UNORDERED, UNCOMMITTED } level;

typedef struct access {
    uint32_t insn;
    uint32_t slot, tensor; /* tensor: of the registers; TVM_NONE: a copy */
    tvm_team team;
    bool writes;
    unsigned rank;
    const tvm_operand *indices;
    uint32_t extent[TVM_MAX_RANK]; /* of the tile, in the dimensions of the shared tensor */
} access;

typedef struct path {
    uint8_t *levels; /* by access */
    bool dead;       /* no path comes here */
} path;

typedef struct walk {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    tvm_diags *diags;
    access *accesses;
    uint32_t *number; /* by instruction: one more than its access; 0: none */
    uint32_t count;
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

/* False: none that the walk knows. */
static bool find_access(const walk *w, const tvm_insn *insn, bool pipelined, access *out) {
    const tvm_operand *operands = tvm_operands(w->kernel, insn);
    bool copies = insn->op == TVM_OP_COPY_ASYNC, stores = insn->op == TVM_OP_STORE_SHARED;
    if ((!copies && !stores && insn->op != TVM_OP_LOAD_SHARED) || (copies && pipelined)) return false;
    uint32_t tile[TVM_MAX_RANK];
    *out = (access){
        .slot = operands[0].value, .indices = operands + 1, .tensor = TVM_NONE, .writes = copies || stores};
    out->rank = tvm_slot_rank(w->program, &w->kernel->slots[out->slot]);
    uint32_t after = 1 + out->rank;
    if (copies) {
        const tvm_operand *extents = operands + after + 1 + w->kernel->slots[operands[after].value].rank;
        const tvm_operand *parts = extents + 1 + extents[0].value + 1;
        for (unsigned d = 0; d < extents[0].value; d++) tile[d] = extents[1 + d].value;
        set_extent(out, out->rank, tile, extents[0].value);
        return parts->kind == TVM_OPERAND_NONE;
    }
    out->tensor = stores ? operands[after].value : insn->result;
    const tvm_slot *tensor = &w->kernel->slots[out->tensor];
    set_extent(out, out->rank, tvm_slot_shape(w->program, tensor), tvm_slot_rank(w->program, tensor));
    return !has_mask(w, insn, after + stores);
}

static bool find_accesses(walk *w) {
    tvm_team_walk teams = {.depth = 0};
    uint32_t pipelined = 0; /* the END of the pipelined loop around */
    for (uint32_t i = 0; i < w->kernel->insn_count; i++) {
        const tvm_insn *insn = &w->kernel->insns[i];
        access found;
        tvm_team team = tvm_team_next(&teams, w->kernel, insn);
        if (tvm_pipeline_stages(w->kernel, insn)) pipelined = insn->match;
        if (!find_access(w, insn, i < pipelined, &found)) continue;
        found.insn = i;
        found.team = team;
        w->accesses[w->count++] = found;
        w->number[i] = w->count;
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

/* Does a thread (or warp) have an element in `b` that in `a` only others have? */
static bool differ(walk *w, const access *a, const access *b, const int64_t *distance, bool by_warp) {
    const tvm_layout *first = &w->program->layouts[w->kernel->slots[a->tensor].layout];
    const tvm_layout *second = &w->program->layouts[w->kernel->slots[b->tensor].layout];
    const uint32_t *shape = tvm_slot_shape(w->program, &w->kernel->slots[a->slot]);
    uint32_t threads = tvm_layout_threads(first), each = by_warp ? 32 : 1, size = 1;
    for (unsigned d = 0; d < a->rank; d++) size *= shape[d];
    uint32_t *held =
        calloc(size, sizeof *held); /* by place: one more than the last thread (or warp) that has it */
    bool *covered = calloc(size, sizeof *covered), found = false;
    if (!held || !covered) w->no_memory = true;
    for (uint32_t t = 0; t < threads && !w->no_memory; t++)
        for (uint32_t l = 0; l < tvm_layout_locals(first); l++) {
            int64_t place = place_of(w, a, first, NULL, t, l);
            if (place >= 0 && place < size) covered[place] = true;
        }
    for (uint32_t t = 0; t < threads && !w->no_memory && !found; t += each) {
        for (uint32_t u = t; u < t + each; u++)
            for (uint32_t l = 0; l < tvm_layout_locals(first); l++) {
                int64_t place = place_of(w, a, first, NULL, u, l);
                if (place >= 0 && place < size) held[place] = t + 1;
            }
        for (uint32_t u = t; u < t + each && !found; u++)
            for (uint32_t l = 0; l < tvm_layout_locals(second) && !found; l++) {
                int64_t place = place_of(w, b, second, distance, u, l);
                found = place >= 0 && place < size && covered[place] && held[place] != t + 1;
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
    if (a->tensor == TVM_NONE)
        hint = left >= UNORDERED ? "commit-group, wait-group and sync between them" : hint;
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
    bool copies = a->tensor == TVM_NONE || b->tensor == TVM_NONE;
    if (!copies && !differ(w, a, b, distance, left == PARTLY)) return;
    w->pairs[w->pair_count].first = a->insn;
    w->pairs[w->pair_count++].second = b->insn;
    warn(w, a, b, left);
}

/* ---- paths ---- */

static bool reads(const walk *w, uint32_t expr, uint32_t slot) {
    const tvm_expr *e = &w->kernel->exprs[expr];
    const uint32_t operands[3] = {e->a, e->b, e->c};
    if (e->op == TVM_EXPR_SLOT) return e->a == slot;
    for (unsigned i = 0; i < tvm_expr_op_info(e->op)->arity; i++)
        if (reads(w, operands[i], slot)) return true;
    return false;
}

/* What the index was when the access was made is not known any more. */
static void assign(const walk *w, path *p, uint32_t slot) {
    for (uint32_t a = 0; a < w->count; a++)
        for (unsigned d = 0; d < w->accesses[a].rank && p->levels[a]; d++)
            if (reads(w, w->accesses[a].indices[d].value, slot)) p->levels[a] = ORDERED;
}

static void order(const walk *w, path *p, const tvm_insn *insn) {
    for (uint32_t a = 0; a < w->count; a++) {
        bool copies = w->accesses[a].tensor == TVM_NONE;
        uint8_t *left = &p->levels[a];
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

static void do_plain(walk *w, path *p, uint32_t at) {
    const tvm_insn *insn = &w->kernel->insns[at];
    if (tvm_insn_class(insn) == TVM_CLASS_ORDER) order(w, p, insn);
    if (w->number[at]) {
        const access *now = &w->accesses[w->number[at] - 1];
        for (uint32_t a = 0; a < w->count && !w->no_memory; a++)
            if (p->levels[a]) check_pair(w, &w->accesses[a], now, (level)p->levels[a]);
        p->levels[w->number[at] - 1] = now->tensor == TVM_NONE ? UNCOMMITTED : UNORDERED;
    }
    if (insn->result != TVM_NONE && w->kernel->slots[insn->result].kind == TVM_SLOT_SCALAR)
        assign(w, p, insn->result);
}

/* Of a walk that is out of memory nothing more is looked at. */
static path copy_of(walk *w, const path *p) {
    path copy = {.levels = malloc((size_t)w->count + 1), .dead = p->dead};
    if (copy.levels)
        memcpy(copy.levels, p->levels, w->count);
    else
        w->no_memory = true;
    return copy;
}

static void meet(const walk *w, path *into, const path *other) {
    if (other->dead || !other->levels || !into->levels) return;
    for (uint32_t a = 0; a < w->count; a++)
        if (into->dead || into->levels[a] < other->levels[a]) into->levels[a] = other->levels[a];
    into->dead = false;
}

static void forget(const walk *w, path *p) {
    memset(p->levels, ORDERED, w->count);
}

/* Paths that leave the loop around, and those that go on with its next turn. */
typedef struct jumps {
    path out, next;
} jumps;

static void walk_range(walk *w, path *p, uint32_t from, uint32_t end, jumps *around);

/* A loop is taken to run once at least. */
static void walk_loop(walk *w, path *p, uint32_t at) {
    const tvm_insn *loop = &w->kernel->insns[at];
    jumps around = {.out = copy_of(w, p), .next = copy_of(w, p)};
    around.out.dead = around.next.dead = true;
    for (unsigned turn = 0; turn < 2 && !w->no_memory; turn++) {
        if (loop->result != TVM_NONE) assign(w, p, loop->result);
        walk_range(w, p, at + 1, loop->match, &around);
        meet(w, p, &around.next);
    }
    if (!w->no_memory) meet(w, p, &around.out);
    free(around.out.levels);
    free(around.next.levels);
}

static void walk_branch(walk *w, path *p, uint32_t at, jumps *around) {
    const tvm_insn *opener = &w->kernel->insns[at], *middle = &w->kernel->insns[opener->match];
    bool has_else = tvm_insn_class(middle) == TVM_CLASS_ELSE;
    path other = copy_of(w, p);
    if (!w->no_memory) walk_range(w, p, at + 1, opener->match, around);
    if (!w->no_memory && has_else) walk_range(w, &other, opener->match + 1, middle->match, around);
    if (!w->no_memory) meet(w, p, &other);
    free(other.levels);
}

/* Teams of a role are compared with themselves alone. */
static void walk_role(walk *w, path *p, uint32_t at) {
    forget(w, p);
    walk_range(w, p, at + 1, w->kernel->insns[at].match, NULL);
    forget(w, p);
    p->dead = false;
}

static void walk_range(walk *w, path *p, uint32_t from, uint32_t end, jumps *around) {
    for (uint32_t at = from; at < end && !w->no_memory && !p->dead && w->steps < MOST_STEPS; at++) {
        const tvm_insn *insn = &w->kernel->insns[at];
        w->steps++;
        switch (tvm_insn_class(insn)) {
        case TVM_CLASS_LOOP:
            walk_loop(w, p, at);
            at = insn->match;
            break;
        case TVM_CLASS_BRANCH:
            walk_branch(w, p, at, around);
            at = tvm_insn_class(&w->kernel->insns[insn->match]) == TVM_CLASS_ELSE
                     ? w->kernel->insns[insn->match].match
                     : insn->match;
            break;
        case TVM_CLASS_SECTION:
            walk_role(w, p, at);
            at = insn->match;
            break;
        case TVM_CLASS_JUMP:
            if (around) meet(w, insn->op == TVM_OP_BREAK ? &around->out : &around->next, p);
            p->dead = true;
            break;
        case TVM_CLASS_EXIT:
            p->dead = true;
            break;
        default:
            do_plain(w, p, at);
        }
    }
}

static void walk_kernel(walk *w) {
    const tvm_ir_kernel *kernel = w->kernel;
    w->accesses = calloc((size_t)kernel->insn_count + 1, sizeof *w->accesses);
    w->number = calloc((size_t)kernel->insn_count + 1, sizeof *w->number);
    if (!w->accesses || !w->number) {
        w->no_memory = true;
    } else if (find_accesses(w)) {
        path p = {.levels = calloc((size_t)w->count + 1, 1)};
        if (p.levels)
            walk_range(w, &p, 0, kernel->insn_count, NULL);
        else
            w->no_memory = true;
        free(p.levels);
    }
    free(w->accesses);
    free(w->number);
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
