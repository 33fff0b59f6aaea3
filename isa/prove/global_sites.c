/* Where a kernel accesses global memory: its text from top to bottom, with what each scalar is there. Control
 * is structured, so that a scalar which paths give different values, or which a loop assigns, is a new
 * unknown where they meet. A term speaks of the latest time that control came to each place it names. */
#include "global_impl.h"

#include <stdlib.h>
#include <string.h>

#include "paths.h"
#include "view.h"

/* ---- scalars ---- */

static bool goes_on(const global_prover *g) {
    return !g->gave_up && !g->p->no_memory && !g->p->too_long;
}

static uint32_t atom(global_prover *g, global_kind kind, uint32_t a, uint32_t b, tvm_dtype type) {
    global_term made = {.kind = (uint8_t)kind, .a = a, .b = b};
    tvm_global_type_range(type, &made.low, &made.high);
    made.uniform = kind == GLOBAL_DEVICE;
    return tvm_global_term(g, &made);
}

static uint32_t leaf(global_prover *g, uint32_t expr) {
    const tvm_expr *node = &g->kernel->exprs[expr];
    switch (node->op) {
    case TVM_EXPR_INTEGER:
        if (node->type.kind == TVM_KIND_UINT && node->type.bits == 64 && node->value.i < 0) break;
        return tvm_global_const(g, node->value.i);
    case TVM_EXPR_SLOT:
        return g->env[node->a];
    case TVM_EXPR_BLOCK:
        return g->axes[node->a];
    case TVM_EXPR_GRID:
        return global_at(g, g->axes[node->a])->kind == GLOBAL_BLOCK ? global_at(g, g->axes[node->a])->b
                                                                    : tvm_global_const(g, 1);
    default:
        break;
    }
    uint32_t term = atom(g, GLOBAL_DEVICE, expr, 0, node->type);
    if (term != TVM_NONE && node->op == TVM_EXPR_MULTIPROCESSORS) g->terms[term].low = 1;
    return term;
}

/* The size limit of a tree bounds the recursion. */
static uint32_t eval(global_prover *g, uint32_t expr) {
    const tvm_expr *node = &g->kernel->exprs[expr];
    unsigned arity = tvm_expr_arity(node);
    uint32_t terms[3];
    tvm_prove_charge(g->p, 1);
    if (!goes_on(g)) return TVM_NONE;
    if (arity == 0) return leaf(g, expr);
    for (unsigned i = 0; i < arity; i++) {
        terms[i] = eval(g, node->operands[i]);
        if (terms[i] == TVM_NONE) return TVM_NONE;
    }
    return tvm_global_apply(g, node, g->kernel->exprs[node->a].type, terms);
}

/* Nothing is known of the slot from the instruction on. */
static void forget(global_prover *g, uint32_t slot, uint32_t insn) {
    bool scalar = g->kernel->slots[slot].kind == TVM_SLOT_SCALAR;
    g->env[slot] = scalar ? atom(g, GLOBAL_OPAQUE, insn, slot, g->kernel->slots[slot].dtype) : TVM_NONE;
}

/* What the instructions [from, end) assign. */
static void forget_all(global_prover *g, uint32_t from, uint32_t end, uint32_t insn) {
    tvm_prove_charge(g->p, (end - from) / 8);
    for (uint32_t i = from; i < end; i++)
        if (g->kernel->insns[i].result != TVM_NONE) forget(g, g->kernel->insns[i].result, insn);
}

static bool assigns(const tvm_ir_kernel *kernel, uint32_t from, uint32_t end, uint32_t slot) {
    for (uint32_t i = from; i < end; i++)
        if (kernel->insns[i].result == slot) return true;
    return false;
}

/* ---- what the launch knows ---- */

/* `term op constant`, or the other way round, of what the launch knows. */
static void narrow(global_prover *g, unsigned op, uint32_t term, int64_t k) {
    bool below = op == TVM_EXPR_LT || op == TVM_EXPR_LE || op == TVM_EXPR_EQ,
         above = op == TVM_EXPR_GT || op == TVM_EXPR_GE || op == TVM_EXPR_EQ;
    global_term *t = &g->terms[term];
    if (op == TVM_EXPR_LT && k > INT64_MIN) k--;
    if (op == TVM_EXPR_GT && k < INT64_MAX) k++;
    if (below && k < t->high) t->high = k;
    if (above && k > t->low) t->low = k;
}

static void assume(global_prover *g, uint32_t expr) {
    const tvm_expr *node = &g->kernel->exprs[expr];
    if (node->op == TVM_EXPR_LAND) {
        assume(g, node->a);
        assume(g, node->b);
        return;
    }
    if (!tvm_expr_is_comparison(node->op)) return;
    uint32_t a = eval(g, node->a), b = eval(g, node->b);
    if (a == TVM_NONE || b == TVM_NONE) return;
    tvm_dtype type = g->kernel->exprs[node->a].type;
    if (type.kind == TVM_KIND_FLOAT || (type.kind == TVM_KIND_UINT && type.bits == 64)) return;
    bool first = global_at(g, a)->kind == GLOBAL_CONST, second = global_at(g, b)->kind == GLOBAL_CONST;
    if (second && !first) narrow(g, node->op, a, global_at(g, b)->k);
    if (first && !second) narrow(g, tvm_expr_mirrored(node->op), b, global_at(g, a)->k);
}

/* Of the extents of tensors, see global_impl.h. */
static void find_params(global_prover *g) {
    const tvm_ir_kernel *kernel = g->kernel;
    for (uint32_t s = 0; s < kernel->param_count && goes_on(g); s++) {
        if (kernel->slots[s].kind != TVM_SLOT_SCALAR) continue;
        g->env[s] = atom(g, GLOBAL_PARAM, s, 0, kernel->slots[s].dtype);
        if (g->env[s] != TVM_NONE) g->terms[g->env[s]].uniform = true;
    }
    for (uint32_t s = 0; s < kernel->param_count && goes_on(g); s++)
        for (unsigned d = 0; kernel->slots[s].kind == TVM_SLOT_GLOBAL && d < kernel->slots[s].rank; d++) {
            const tvm_expr *extent = &kernel->exprs[kernel->slots[s].shape[d]];
            if (extent->op != TVM_EXPR_SLOT || extent->type.kind != TVM_KIND_INT) continue;
            narrow(g, TVM_EXPR_GE, g->env[extent->a], 0);
            narrow(g, TVM_EXPR_LE, g->env[extent->a], GLOBAL_EXTENT_MAX);
        }
    for (uint32_t i = 0; i < kernel->assume_count && goes_on(g); i++) assume(g, kernel->assumes[i]);
}

static void find_grid(global_prover *g) {
    static const int64_t most[3] = {INT32_MAX, UINT16_MAX, UINT16_MAX}; /* what a launch takes */
    for (unsigned d = 0; d < 3; d++) {
        uint32_t extent = TVM_NONE;
        if (goes_on(g))
            extent = g->kernel->grid[d] == TVM_NONE ? tvm_global_const(g, 1) : eval(g, g->kernel->grid[d]);
        g->axes[d] = TVM_NONE;
        if (extent == TVM_NONE) continue;
        global_term grid = {
            .kind = GLOBAL_GRID, .a = d, .b = extent, .low = 1, .high = most[d], .uniform = true};
        const global_term *of = global_at(g, extent);
        if (of->low > grid.low) grid.low = of->low;
        if (of->high < grid.high) grid.high = of->high;
        if (grid.high <= 1) {
            g->axes[d] = tvm_global_const(g, 0);
            continue;
        }
        uint32_t made = tvm_global_term(g, &grid);
        g->axes[d] = tvm_global_term(
            g, &(global_term){.kind = GLOBAL_BLOCK, .a = d, .b = made, .low = 0, .high = grid.high - 1});
    }
}

/* ---- accesses ---- */

const tvm_operand *tvm_global_entry(const global_prover *g, const tvm_insn *insn, const char *kinds) {
    const char *cursor = tvm_op(insn->op)->operands;
    const tvm_operand *operands = tvm_operands(g->kernel, insn);
    uint32_t at = 0;
    for (tvm_operand_desc desc; at < insn->count && tvm_operand_next(&cursor, &desc);) {
        if (!desc.stored) continue;
        if (strchr(kinds, desc.kind)) return &operands[at];
        at += tvm_entry_operands(g->p->program, g->kernel, &desc, &operands[at]);
    }
    return NULL;
}

static bool is_global(const global_prover *g, const tvm_operand *operand) {
    return operand && operand->kind == TVM_OPERAND_SLOT &&
           g->kernel->slots[operand->value].kind == TVM_SLOT_GLOBAL;
}

static global_mode mode_of(const global_prover *g, const tvm_insn *insn) {
    unsigned effects = tvm_op(insn->op)->effects;
    const tvm_operand *scope = tvm_global_entry(g, insn, "K");
    if (tvm_insn_class(insn) == TVM_CLASS_ORDER) return GLOBAL_SEMAPHORE;
    if (insn->op == TVM_OP_PUT_GLOBAL) return GLOBAL_PUT;
    if (insn->op == TVM_OP_TAKE_GLOBAL) return GLOBAL_TAKE;
    if (!(effects & TVM_EFFECT_WRITE_GLOBAL)) return GLOBAL_READ;
    if (!(effects & TVM_EFFECT_READ_GLOBAL)) return GLOBAL_WRITE;
    bool block = scope && scope->kind == TVM_OPERAND_CONST &&
                 (scope->value == TVM_SCOPE_CTA || scope->value == TVM_SCOPE_CLUSTER);
    return block ? GLOBAL_ATOMIC_BLOCK : GLOBAL_ATOMIC;
}

/* The extents of the tile, a number for each of its dimensions, by what the instruction moves. */
static bool tile_of(const global_prover *g, global_site *site, const tvm_insn *insn,
                    uint32_t extent[TVM_MAX_RANK], unsigned *rank) {
    const tvm_operand *list = tvm_global_entry(g, insn, "A"), *source = tvm_global_entry(g, insn, "r");
    uint32_t tensor = insn->result;
    *rank = 0;
    if (list) {
        if (list->kind != TVM_OPERAND_CONST || list->value > TVM_MAX_RANK) return false;
        *rank = list->value;
        for (unsigned d = 0; d < *rank; d++) extent[d] = list[1 + d].value;
        return true;
    }
    if (tensor == TVM_NONE && source && source->kind == TVM_OPERAND_SLOT) tensor = source->value;
    if (tensor == TVM_NONE || g->kernel->slots[tensor].kind != TVM_SLOT_REGISTER) return true;
    *rank = tvm_slot_rank(g->p->program, &g->kernel->slots[tensor]);
    memcpy(extent, tvm_slot_shape(g->p->program, &g->kernel->slots[tensor]), *rank * sizeof *extent);
    site->layout = &g->p->program->layouts[g->kernel->slots[tensor].layout];
    site->tensor_rank = *rank;
    return true;
}

/* What a slot is a view of, and where. */
static global_view view_of(const global_prover *g, uint32_t slot) {
    const tvm_slot *s = &g->kernel->slots[slot];
    if (s->view && g->env[slot] != TVM_NONE) return g->views[g->env[slot]];
    global_view view = {
        .root = tvm_view_root(g->kernel, slot), .space = slot, .unclear = s->view != 0, .rank = s->rank};
    for (unsigned d = 0; d < s->rank; d++) {
        view.base[d] = TVM_NONE;
        view.from[d] = (uint8_t)d;
    }
    return view;
}

/* An index in the tensor that the view lies in. */
static uint32_t placed(global_prover *g, const global_view *view, unsigned d, uint32_t index) {
    return view->base[d] == TVM_NONE ? index : tvm_global_plus(g, view->base[d], index, 1);
}

static void make_view(global_prover *g, uint32_t at) {
    const tvm_insn *insn = &g->kernel->insns[at];
    tvm_view shape;
    tvm_view_read(g->kernel, insn, &shape);
    const global_view base = view_of(g, shape.base);
    global_view view = base;
    bool uniform = true;
    uint32_t index[TVM_MAX_RANK];
    for (unsigned d = 0; d < shape.base_rank; d++) {
        index[d] = eval(g, shape.index[d].value);
        uniform = uniform && index[d] != TVM_NONE && global_at(g, index[d])->uniform;
    }
    if (g->kernel->slots[insn->result].form == TVM_FORM_PART) {
        for (unsigned d = 0; d < shape.base_rank && d < TVM_MAX_RANK; d++) {
            uint32_t sum = index[d] == TVM_NONE ? TVM_NONE : placed(g, &base, base.from[d], index[d]);
            view.unclear = view.unclear || sum == TVM_NONE;
            view.base[base.from[d]] = sum;
        }
        for (unsigned d = 0; d < shape.rank; d++) view.from[d] = base.from[shape.from[d]];
    } else {
        for (unsigned d = 0; d < base.rank; d++)
            uniform = uniform && (base.base[d] == TVM_NONE || global_at(g, base.base[d])->uniform);
        view = (global_view){.root = base.root,
                             .space = insn->result,
                             .unclear = base.unclear || !uniform,
                             .rank = shape.rank};
        for (unsigned d = 0; d < shape.rank; d++) view.base[d] = TVM_NONE, view.from[d] = (uint8_t)d;
    }
    if (g->view_count == g->view_capacity) {
        uint32_t capacity = g->view_capacity ? 2 * g->view_capacity : 16;
        global_view *views = realloc(g->views, capacity * sizeof *views);
        if (!views) {
            g->p->no_memory = true;
            return;
        }
        g->views = views;
        g->view_capacity = capacity;
    }
    g->views[g->view_count] = view;
    g->env[insn->result] = g->view_count++;
}

static void find_place(global_prover *g, global_site *site, const tvm_insn *insn, const tvm_operand *tensor) {
    const global_view view = view_of(g, tensor->value);
    uint32_t tile[TVM_MAX_RANK];
    unsigned rank = g->kernel->slots[tensor->value].rank, tile_rank = 0;
    site->root = view.root;
    site->tensor = tensor->value;
    site->space = view.space;
    site->rank = view.rank;
    site->strided = g->kernel->slots[view.space].form == TVM_FORM_STRIDED;
    site->unclear = view.unclear || !tile_of(g, site, insn, tile, &tile_rank) || tile_rank > rank;
    for (unsigned d = 0; d < view.rank; d++) {
        site->index[d] = view.base[d];
        site->extent[d] = 1;
    }
    for (unsigned d = 0; d < rank && !site->unclear; d++) {
        const tvm_operand *index = &tensor[1 + d];
        unsigned to = view.from[d];
        bool is_scalar = index->kind == TVM_OPERAND_EXPR, is_tile = d + tile_rank >= rank;
        uint32_t term = is_scalar ? eval(g, index->value) : TVM_NONE;
        site->scattered = site->scattered || !is_scalar;
        site->index[to] = term == TVM_NONE ? TVM_NONE : placed(g, &view, to, term);
        site->extent[to] = is_tile && is_scalar ? tile[d + tile_rank - rank] : 1;
    }
}

static void keep_guards(global_prover *g, global_site *site) {
    site->first_guard = g->guard_count;
    for (uint32_t i = 0; i < g->stack_count; i++) {
        if (g->guard_count == GLOBAL_GUARDS) break; /* to know less is right, too */
        g->guards[g->guard_count++] = g->stack[i];
    }
    site->guards = g->guard_count - site->first_guard;
}

static void add_site(global_prover *g, uint32_t at, uint32_t around, uint32_t role) {
    const tvm_insn *insn = &g->kernel->insns[at];
    const tvm_operand *tensor = tvm_global_entry(g, insn, "gav");
    if (tvm_insn_class(insn) == TVM_CLASS_ORDER || tvm_insn_class(insn) == TVM_CLASS_MOVE) {
        /* copies name shared memory first, and it may be the only one */
        unsigned effects = tvm_op(insn->op)->effects;
        if (!(effects & (TVM_EFFECT_READ_GLOBAL | TVM_EFFECT_WRITE_GLOBAL))) return;
    } else {
        return;
    }
    if (!is_global(g, tensor) || !g->written[tvm_view_root(g->kernel, tensor->value)]) return;
    if (g->site_count == GLOBAL_SITES) {
        g->gave_up = true;
        return;
    }
    global_site *site = &g->sites[g->site_count++];
    *site =
        (global_site){.insn = at,
                      .role = role,
                      .around = around,
                      .mode = mode_of(g, insn),
                      .async = tvm_op(insn->op)->effects & TVM_EFFECT_ASYNC || insn->op == TVM_OP_PUT_GLOBAL};
    find_place(g, site, insn, tensor);
    keep_guards(g, site);
}

static void find_written(global_prover *g) {
    for (uint32_t i = 0; i < g->kernel->insn_count; i++) {
        const tvm_insn *insn = &g->kernel->insns[i];
        if (!(tvm_op(insn->op)->effects & TVM_EFFECT_WRITE_GLOBAL)) continue;
        const tvm_operand *tensor = tvm_global_entry(g, insn, "gav");
        if (is_global(g, tensor)) g->written[tvm_view_root(g->kernel, tensor->value)] = true;
    }
}

/* ---- the walk ---- */

typedef struct frame {
    uint32_t opener, stack_count, condition, role;
    uint32_t *other; /* env of the other path of a branch */
    bool dead_before, other_dead, has_else;
} frame;

typedef struct walk {
    global_prover *g;
    frame frames[TVM_MAX_DEPTH];
    unsigned depth;
    bool dead;
} walk;

static uint32_t *copy_env(global_prover *g) {
    size_t size = g->kernel->slot_count * sizeof *g->env;
    uint32_t *copy = malloc(size + 1);
    tvm_prove_charge(g->p, 1 + g->kernel->slot_count / 8);
    if (copy && size)
        memcpy(copy, g->env, size);
    else if (!copy)
        g->p->no_memory = true;
    return copy;
}

static void push_guard(global_prover *g, uint32_t term, bool holds) {
    if (term == TVM_NONE || g->stack_count == GLOBAL_GUARDS) return;
    const global_term *t = global_at(g, term);
    tvm_prove_charge(g->p, 1);
    if (t->kind == GLOBAL_OP && t->op == TVM_EXPR_LAND && holds) {
        uint32_t b = t->b;
        push_guard(g, t->a, true);
        push_guard(g, b, true);
    } else if (t->kind == GLOBAL_OP && t->op == TVM_EXPR_LOR && !holds) {
        uint32_t b = t->b;
        push_guard(g, t->a, false);
        push_guard(g, b, false);
    } else if (t->kind == GLOBAL_OP && t->op == TVM_EXPR_LNOT) {
        push_guard(g, t->a, !holds);
    } else {
        g->stack[g->stack_count++] = (global_guard){term, holds};
    }
}

static void begin_loop(walk *w, uint32_t at) {
    global_prover *g = w->g;
    const tvm_insn *insn = &g->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(g->kernel, insn);
    if (insn->op != TVM_OP_FOR) {
        forget_all(g, at + 1, insn->match, at);
        push_guard(g, eval(g, operands[0].value), true);
        return;
    }
    uint32_t start = eval(g, operands[0].value), end = eval(g, operands[1].value),
             step = eval(g, operands[2].value);
    tvm_dtype type = g->kernel->slots[insn->result].dtype;
    bool plain = start != TVM_NONE && end != TVM_NONE && step != TVM_NONE &&
                 !(type.kind == TVM_KIND_UINT && type.bits == 64) &&
                 !assigns(g->kernel, at + 1, insn->match, insn->result);
    tvm_prove_charge(g->p, (insn->match - at) / 8);
    forget_all(g, at + 1, insn->match, at);
    forget(g, insn->result, at);
    if (!plain) return;
    global_term made = {.kind = GLOBAL_LOOP, .a = at, .b = start, .c = end, .step = step};
    made.low = global_at(g, start)->low;
    made.high = global_at(g, end)->high;
    if (made.high > INT64_MIN) made.high--;
    if (made.high < made.low) made.high = made.low; /* it has no turn */
    g->env[insn->result] = tvm_global_term(g, &made);
}

static void open(walk *w, uint32_t at) {
    global_prover *g = w->g;
    const tvm_insn *insn = &g->kernel->insns[at];
    frame *f = &w->frames[w->depth++];
    *f = (frame){.opener = at,
                 .stack_count = g->stack_count,
                 .condition = TVM_NONE,
                 .role = w->depth > 1 ? f[-1].role : TVM_NONE,
                 .dead_before = w->dead};
    switch (tvm_insn_class(insn)) {
    case TVM_CLASS_LOOP:
        begin_loop(w, at);
        return;
    case TVM_CLASS_SECTION: {
        const tvm_role role = tvm_role_of(g->kernel, insn);
        f->role = at;
        uint32_t term = atom(g, GLOBAL_ROLE, at, 0, g->kernel->slots[insn->result].dtype);
        if (term != TVM_NONE)
            g->terms[term].low = 0, g->terms[term].high = (int64_t)tvm_role_teams(&role) - 1;
        g->env[insn->result] = term;
        return;
    }
    default:
        f->condition = eval(g, tvm_operands(g->kernel, insn)[0].value);
        f->other = copy_env(g);
        push_guard(g, f->condition, true);
    }
}

static void begin_else(walk *w) {
    global_prover *g = w->g;
    frame *f = &w->frames[w->depth - 1];
    uint32_t *then = g->env;
    g->env = f->other;
    f->other = then;
    f->other_dead = w->dead;
    f->has_else = true;
    w->dead = f->dead_before;
    g->stack_count = f->stack_count;
    push_guard(g, f->condition, false);
}

static void close_branch(walk *w, frame *f, uint32_t at) {
    global_prover *g = w->g;
    bool other_dead = f->has_else ? f->other_dead : f->dead_before;
    g->stack_count = f->stack_count;
    if (w->dead && !other_dead) {
        uint32_t *env = g->env;
        g->env = f->other;
        f->other = env;
        push_guard(g, f->condition, f->has_else);
    } else if (other_dead && !w->dead) {
        push_guard(g, f->condition, !f->has_else);
    } else if (!w->dead) {
        tvm_prove_charge(g->p, 1 + g->kernel->slot_count / 8);
        for (uint32_t s = 0; s < g->kernel->slot_count; s++)
            if (g->env[s] != f->other[s]) forget(g, s, at);
    }
    w->dead = w->dead && other_dead;
    free(f->other);
}

static void close(walk *w, uint32_t at) {
    global_prover *g = w->g;
    frame *f = &w->frames[--w->depth];
    if (tvm_insn_class(&g->kernel->insns[f->opener]) == TVM_CLASS_BRANCH) {
        close_branch(w, f, at);
        return;
    }
    forget_all(g, f->opener, at, at);
    g->stack_count = f->stack_count;
    w->dead = f->dead_before;
}

/* Where a scalar comes from that nobody writes, one more than its number; 0: it is not known, or memory is
 * out. */
static uint32_t keep_load(global_prover *g, const global_site *place) {
    if (g->load_count == g->load_capacity) {
        uint32_t capacity = g->load_capacity ? 2 * g->load_capacity : 16;
        global_site *loads = realloc(g->loads, capacity * sizeof *loads);
        if (!loads) {
            g->p->no_memory = true;
            return 0;
        }
        g->loads = loads;
        g->load_capacity = capacity;
    }
    g->loads[g->load_count++] = *place;
    return g->load_count;
}

/* A scalar that comes of memory: alike for all where nobody writes the place that all read. */
static void load(global_prover *g, uint32_t at) {
    const tvm_insn *insn = &g->kernel->insns[at];
    const tvm_operand *interval = tvm_insn_interval(g->p->program, g->kernel, insn),
                      *tensor = tvm_global_entry(g, insn, "gav");
    uint32_t low = interval ? eval(g, interval[0].value) : TVM_NONE,
             end = interval ? eval(g, interval[1].value) : TVM_NONE, number = 0;
    bool uniform = false;
    if (is_global(g, tensor) && !g->written[tvm_view_root(g->kernel, tensor->value)]) {
        global_site place = {.insn = at};
        find_place(g, &place, insn, tensor);
        uniform = !place.unclear && !place.scattered;
        for (unsigned d = 0; d < place.rank && uniform; d++)
            uniform = place.index[d] != TVM_NONE && global_at(g, place.index[d])->uniform;
        number = keep_load(g, &place);
    }
    uint32_t term = atom(g, GLOBAL_LOADED, at, number, g->kernel->slots[insn->result].dtype);
    if (term == TVM_NONE) return;
    g->terms[term].uniform = uniform;
    if (low != TVM_NONE && end != TVM_NONE) {
        g->terms[term].low = global_at(g, low)->low;
        if (global_at(g, end)->high > g->terms[term].low) g->terms[term].high = global_at(g, end)->high - 1;
    }
    g->env[insn->result] = term;
}

static void step(walk *w, uint32_t at) {
    global_prover *g = w->g;
    const tvm_insn *insn = &g->kernel->insns[at];
    uint32_t around = w->depth ? w->frames[w->depth - 1].opener : TVM_NONE,
             role = w->depth ? w->frames[w->depth - 1].role : TVM_NONE;
    if (!w->dead) add_site(g, at, around, role);
    if (insn->result == TVM_NONE) return;
    if (insn->op == TVM_OP_VIEW_GLOBAL) {
        make_view(g, at);
        return;
    }
    forget(g, insn->result, at);
    if (g->kernel->slots[insn->result].kind != TVM_SLOT_SCALAR) return;
    if (insn->op == TVM_OP_LET) {
        uint32_t term = eval(g, tvm_operands(g->kernel, insn)[0].value);
        if (term != TVM_NONE) g->env[insn->result] = term;
    } else {
        load(g, at);
    }
}

static void walk_all(global_prover *g) {
    walk w = {.g = g};
    for (uint32_t i = 0; i < g->kernel->insn_count && goes_on(g); i++) {
        tvm_op_class class = tvm_insn_class(&g->kernel->insns[i]);
        g->around[i] = w.depth ? w.frames[w.depth - 1].opener : TVM_NONE;
        g->first_site[i] = g->site_count;
        tvm_prove_charge(g->p, 1);
        if (tvm_class_opens(class))
            open(&w, i);
        else if (class == TVM_CLASS_ELSE)
            begin_else(&w);
        else if (class == TVM_CLASS_END)
            close(&w, i);
        else
            step(&w, i);
        w.dead = w.dead || class == TVM_CLASS_JUMP || class == TVM_CLASS_EXIT ||
                 g->kernel->insns[i].op == TVM_OP_TRAP;
    }
    while (w.depth) free(w.frames[--w.depth].other);
    g->first_site[g->kernel->insn_count] = g->site_count;
}

bool tvm_global_find_sites(global_prover *g) {
    size_t insns = g->kernel->insn_count + (size_t)1, slots = g->kernel->slot_count + (size_t)1;
    g->buckets = malloc(GLOBAL_BUCKETS * sizeof *g->buckets);
    g->env = malloc(slots * sizeof *g->env);
    g->written = calloc(slots, sizeof *g->written);
    g->around = malloc(insns * sizeof *g->around);
    g->first_site = malloc(insns * sizeof *g->first_site);
    g->stack = malloc(GLOBAL_GUARDS * sizeof *g->stack);
    g->guards = malloc(GLOBAL_GUARDS * sizeof *g->guards);
    g->sites = malloc(GLOBAL_SITES * sizeof *g->sites);
    if (!g->buckets || !g->env || !g->written || !g->around || !g->first_site || !g->stack || !g->guards ||
        !g->sites) {
        g->p->no_memory = true;
        return false;
    }
    for (uint32_t i = 0; i < GLOBAL_BUCKETS; i++) g->buckets[i] = TVM_NONE;
    for (size_t s = 0; s < slots; s++) g->env[s] = TVM_NONE;
    find_written(g);
    find_params(g);
    find_grid(g);
    if (goes_on(g)) walk_all(g);
    return goes_on(g);
}

/* ---- what comes to what ---- */

typedef struct reach {
    global_prover *g;
    size_t words; /* of a set of sites */
} reach;

static bool meet(void *context, void *into, const void *other) {
    const reach *r = context;
    uint64_t *to = into, more = 0;
    const uint64_t *from = other;
    for (size_t i = 0; i < 2 * r->words; i++) {
        more |= from[i] & ~to[i];
        to[i] |= from[i];
    }
    tvm_prove_charge(r->g->p, 1 + r->words / 2);
    return more != 0;
}

static uint32_t role_at(const global_prover *g, uint32_t insn) {
    uint32_t at = g->around[insn];
    while (at != TVM_NONE && tvm_insn_class(&g->kernel->insns[at]) != TVM_CLASS_SECTION) at = g->around[at];
    return at;
}

/* All of the block, or the teams of a role, have seen what they did. */
static void synchronize(const reach *r, uint32_t role, uint64_t *sets) {
    for (uint32_t s = 0; s < r->g->site_count; s++) {
        const global_site *site = &r->g->sites[s];
        uint64_t bit = UINT64_C(1) << s % 64;
        if (site->async || (role != TVM_NONE && site->role != role)) continue;
        sets[r->words + s / 64] &= ~bit;
        if (role == TVM_NONE) sets[s / 64] &= ~bit;
    }
}

static void step_reach(void *context, uint32_t at, void *state) {
    const reach *r = context;
    global_prover *g = r->g;
    uint64_t *sets = state;
    const tvm_insn *insn = &g->kernel->insns[at];
    if (insn->op == TVM_OP_SYNC || insn->op == TVM_OP_SYNC_CLUSTER) synchronize(r, role_at(g, at), sets);
    for (uint32_t s = g->first_site[at]; s < g->first_site[at + 1]; s++) {
        tvm_prove_charge(g->p, 1 + g->site_count / 4);
        for (uint32_t b = 0; b < g->site_count; b++) {
            uint8_t *of = &g->reach[(size_t)b * g->site_count + s];
            if (sets[b / 64] >> b % 64 & 1) *of |= GLOBAL_REACHES;
            if (sets[r->words + b / 64] >> b % 64 & 1) *of |= GLOBAL_REACHES_TEAM;
        }
        sets[s / 64] |= UINT64_C(1) << s % 64;
        sets[r->words + s / 64] |= UINT64_C(1) << s % 64;
    }
}

bool tvm_global_find_reach(global_prover *g) {
    reach r = {.g = g, .words = (g->site_count + 63) / 64};
    g->reach = calloc((size_t)g->site_count * g->site_count + 1, 1);
    const tvm_paths paths = {
        .kernel = g->kernel, .context = &r, .size = 16 * r.words + 16, .meet = meet, .step = step_reach};
    if (!g->reach || !tvm_paths_walk(&paths)) g->p->no_memory = true;
    return !g->p->no_memory;
}
