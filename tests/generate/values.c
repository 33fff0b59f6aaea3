/* What programs compute with: numbers, scalar expressions of known ranges, types, layouts, tensors. */
#include "node.h"
#include "state.h"

#include <stdio.h>
#include <string.h>

unsigned gen_below(gen *g, unsigned n) {
    return (unsigned)(generate_bits(&g->state) % n);
}

uint32_t gen_locals(const gen *g) {
    return g->options->small ? GEN_FEW_LOCALS : GEN_LOCALS;
}

bool gen_one_in(gen *g, unsigned n) {
    return gen_below(g, n) == 0;
}

/* ---- expressions ---- */

uint32_t gen_node(gen *g, tvm_expr node) {
    uint32_t expr = generate_node(g->kernel, node);
    if (expr != TVM_NONE) return expr;
    g->failed = true;
    return 0; /* one that exists: that of n */
}

uint32_t gen_integer(gen *g, tvm_dtype type, int64_t value) {
    return gen_node(g, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = type, .value.i = value});
}

uint32_t gen_float(gen *g, tvm_dtype type, double value) {
    return gen_node(g, (tvm_expr){.op = TVM_EXPR_FLOAT, .type = type, .value.f = value});
}

uint32_t gen_slot_expr(gen *g, uint32_t slot) {
    return gen_node(g, (tvm_expr){.op = TVM_EXPR_SLOT, .type = g->kernel->slots[slot].dtype, .a = slot});
}

uint32_t gen_block(gen *g) {
    return gen_node(g, (tvm_expr){.op = TVM_EXPR_BLOCK, .type = TVM_I(32), .a = g->axis});
}

uint32_t gen_apply(gen *g, unsigned op, uint32_t a, uint32_t b) {
    tvm_dtype type = tvm_expr_is_comparison(op) ? TVM_BOOL : g->kernel->exprs[a].type;
    return gen_node(g, (tvm_expr){.op = (uint8_t)op, .type = type, .a = a, .b = b});
}

uint32_t gen_cast(gen *g, tvm_dtype type, uint32_t a) {
    if (tvm_dtype_same(g->kernel->exprs[a].type, type)) return a;
    return gen_node(g, (tvm_expr){.op = TVM_EXPR_CAST, .type = type, .a = a});
}

static gen_range constant(gen *g, int64_t value) {
    return (gen_range){gen_integer(g, TVM_I(32), value), value, value};
}

static gen_range leaf(gen *g) {
    uint32_t found[8];
    unsigned count = 0;
    if (gen_one_in(g, 3)) return constant(g, gen_below(g, 9));
    if (gen_one_in(g, 4)) return (gen_range){gen_block(g), 0, g->blocks - 1};
    if (gen_one_in(g, 12))
        return (gen_range){gen_node(g, (tvm_expr){.op = TVM_EXPR_GRID, .type = TVM_I(32), .a = g->axis}),
                           g->blocks, g->blocks};
    for (uint32_t s = g->kernel->slot_count; s-- > 0 && count < 8;)
        if (g->kernel->slots[s].kind == TVM_SLOT_SCALAR && g->vars[s].alive && g->vars[s].whole &&
            tvm_dtype_same(g->kernel->slots[s].dtype, TVM_I(32)))
            found[count++] = s;
    if (count == 0) return constant(g, gen_below(g, 40));
    uint32_t slot = found[gen_below(g, count)];
    return (gen_range){gen_slot_expr(g, slot), g->vars[slot].low, g->vars[slot].high};
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static gen_range by_constant(gen *g, gen_range a) {
    int64_t by = 1 + gen_below(g, 9);
    uint32_t number = gen_integer(g, TVM_I(32), by);
    switch (gen_below(g, 7)) {
    case 0:
        return (gen_range){gen_apply(g, TVM_EXPR_MUL, a.expr, number), a.low * by, a.high * by};
    case 1:
        return (gen_range){gen_apply(g, TVM_EXPR_DIV, a.expr, number), a.low / by, a.high / by};
    case 2:
        return (gen_range){gen_apply(g, TVM_EXPR_MOD, a.expr, number), a.low < 0 ? 1 - by : 0, by - 1};
    case 3:
        return (gen_range){gen_apply(g, TVM_EXPR_CDIV, a.expr, number), (a.low + by - 1) / by,
                           (a.high + by - 1) / by};
    case 4:
        number = gen_integer(g, TVM_I(32), by % 4);
        return (gen_range){gen_apply(g, TVM_EXPR_SHL, a.expr, number), a.low * (1 << by % 4),
                           a.high * (1 << by % 4)};
    case 5:
        return (gen_range){gen_apply(g, TVM_EXPR_AND, a.expr, number), 0, by};
    default:
        return (gen_range){gen_apply(g, TVM_EXPR_SHR, a.expr, gen_integer(g, TVM_I(32), by % 4)),
                           a.low >> by % 4, a.high >> by % 4};
    }
}

static gen_range select(gen *g, gen_range a, gen_range b) {
    tvm_expr node = {.op = TVM_EXPR_SELECT, .type = TVM_I(32), .b = a.expr, .c = b.expr};
    node.a = gen_condition(g);
    return (gen_range){gen_node(g, node), least(a.low, b.low), most(a.high, b.high)};
}

static gen_range of_one(gen *g, gen_range a) {
    tvm_expr node = {.op = gen_one_in(g, 2) ? TVM_EXPR_NEG : TVM_EXPR_NOT, .type = TVM_I(32), .a = a.expr};
    int64_t less = node.op == TVM_EXPR_NOT;
    return (gen_range){gen_node(g, node), -a.high - less, -a.low - less};
}

/* Of two that are not negative: it has no bit above the highest one of either. */
static gen_range bits_of(gen *g, gen_range a, gen_range b) {
    int64_t all = 1;
    while (all <= a.high || all <= b.high) all *= 2;
    if (a.low < 0 || b.low < 0) return a;
    return (gen_range){gen_apply(g, gen_one_in(g, 2) ? TVM_EXPR_OR : TVM_EXPR_XOR, a.expr, b.expr), 0,
                       all - 1};
}

gen_range gen_scalar(gen *g, unsigned depth) {
    if (depth == 0 || gen_one_in(g, 4)) return leaf(g);
    gen_range a = gen_scalar(g, depth - 1);
    if (gen_one_in(g, 8)) return of_one(g, a);
    if (gen_one_in(g, 2)) return by_constant(g, a);
    gen_range b = gen_scalar(g, depth - 1);
    bool small = most(most(a.high, -a.low), most(b.high, -b.low)) < 1 << 12;
    switch (gen_below(g, 7)) {
    case 6:
        return bits_of(g, a, b);
    case 0:
        return (gen_range){gen_apply(g, TVM_EXPR_SUB, a.expr, b.expr), a.low - b.high, a.high - b.low};
    case 1:
        return (gen_range){gen_apply(g, TVM_EXPR_MIN, a.expr, b.expr), least(a.low, b.low),
                           least(a.high, b.high)};
    case 2:
        return (gen_range){gen_apply(g, TVM_EXPR_MAX, a.expr, b.expr), most(a.low, b.low),
                           most(a.high, b.high)};
    case 3:
        return select(g, a, b);
    case 4:
        if (!small || a.low < 0 || b.low < 0) return a;
        return (gen_range){gen_apply(g, TVM_EXPR_MUL, a.expr, b.expr), a.low * b.low, a.high * b.high};
    default:
        return (gen_range){gen_apply(g, TVM_EXPR_ADD, a.expr, b.expr), a.low + b.low, a.high + b.high};
    }
}

uint32_t gen_index(gen *g, uint32_t last, uint32_t step) {
    uint32_t places = last / step + 1;
    gen_range r = gen_scalar(g, gen_below(g, 3));
    if (places == 1) return gen_integer(g, TVM_I(32), 0);
    if (r.low < 0) {
        r.expr = gen_apply(g, TVM_EXPR_MAX, r.expr, gen_integer(g, TVM_I(32), 0));
        r.low = 0;
        r.high = most(r.high, 0);
    }
    if (r.high >= places) {
        bool wrap = gen_one_in(g, 2);
        uint32_t bound = gen_integer(g, TVM_I(32), wrap ? places : places - 1);
        r.expr = gen_apply(g, wrap ? TVM_EXPR_MOD : TVM_EXPR_MIN, r.expr, bound);
    }
    if (step > 1) r.expr = gen_apply(g, TVM_EXPR_MUL, r.expr, gen_integer(g, TVM_I(32), step));
    return r.expr;
}

uint32_t gen_condition(gen *g) {
    static const unsigned comparisons[] = {TVM_EXPR_LT, TVM_EXPR_LE, TVM_EXPR_GT,
                                           TVM_EXPR_GE, TVM_EXPR_EQ, TVM_EXPR_NE};
    gen_range a = gen_scalar(g, 1), b = gen_scalar(g, 1);
    uint32_t first = gen_apply(g, comparisons[gen_below(g, 6)], a.expr, b.expr);
    if (gen_one_in(g, 6)) return gen_node(g, (tvm_expr){.op = TVM_EXPR_LNOT, .type = TVM_BOOL, .a = first});
    if (!gen_one_in(g, 4)) return first;
    uint32_t other = gen_slot_expr(g, g->scalar_bool);
    return gen_apply(g, gen_one_in(g, 2) ? TVM_EXPR_LAND : TVM_EXPR_LOR, first, other);
}

uint32_t gen_scalar_for(gen *g, tvm_dtype type) {
    static const double floats[] = {0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e30, -65504.0, 0x1p-20, 7.25};
    if (gen_one_in(g, 4)) {
        uint32_t of[] = {g->scalar_i32, g->scalar_i64, g->scalar_u32,
                         g->scalar_f32, g->scalar_f64, g->scalar_bool};
        return gen_slot_expr(g, of[gen_below(g, 6)]);
    }
    if (gen_one_in(g, 4)) return gen_scalar(g, 2).expr;
    if (type.kind == TVM_KIND_FLOAT) {
        uint32_t number = gen_float(g, TVM_F32, (double)(float)floats[gen_below(g, 10)]);
        if (gen_one_in(g, 4))
            number = gen_apply(g, TVM_EXPR_MUL + gen_below(g, 2) * (TVM_EXPR_ADD - TVM_EXPR_MUL), number,
                               gen_slot_expr(g, g->scalar_f32));
        return number;
    }
    int64_t value =
        gen_one_in(g, 3) ? (int64_t)(int32_t)generate_bits(&g->state) : (int64_t)gen_below(g, 12) - 2;
    return gen_integer(g, TVM_I(32), value);
}

/* ---- types and shapes ---- */

tvm_dtype gen_dtype(gen *g) {
    static const tvm_dtype often[] = {TVM_F16,   TVM_F32,   TVM_I(32), TVM_BF16,  TVM_U(8),
                                      TVM_I(8),  TVM_I(32), TVM_F16,   TVM_U(32), TVM_I(64),
                                      TVM_U(64), TVM_F64,   TVM_I(16), TVM_U(16), TVM_BOOL};
    if (gen_one_in(g, 4)) return g->types[gen_below(g, g->type_count)];
    return often[gen_below(g, sizeof often / sizeof *often)];
}

unsigned gen_shape(gen *g, uint32_t shape[TVM_MAX_RANK]) {
    unsigned of = gen_below(g, GEN_SHAPES), rank = g->shapes[of].rank;
    memcpy(shape, g->shapes[of].extent, sizeof g->shapes[of].extent);
    if (gen_one_in(g, 5)) shape[gen_below(g, rank)] = 1;
    return rank;
}

/* ---- layouts ---- */

typedef struct modes {
    uint32_t size[TVM_MAX_MODES];
    unsigned count;
} modes;

/* A dimension's extent as a product, each factor 2, 3, 4, or what is left. */
static void split(gen *g, uint32_t extent, modes *m) {
    while (extent > 1 && m->count < TVM_MAX_MODES - 1) {
        uint32_t factor = extent % 2 == 0 ? 2 : extent % 3 == 0 ? 3 : extent % 5 == 0 ? 5 : extent;
        while (factor < extent && extent / factor % 2 == 0 && gen_one_in(g, 2)) factor *= 2;
        if (extent % factor != 0) factor = extent;
        m->size[m->count++] = factor;
        extent /= factor;
    }
    if (extent > 1) m->size[m->count++] = extent;
}

static void shuffle(gen *g, unsigned *items, unsigned count) {
    for (unsigned i = count; i > 1; i--) {
        unsigned j = gen_below(g, i), item = items[i - 1];
        items[i - 1] = items[j];
        items[j] = item;
    }
}

/* Every mode to threads or to locals, in any order; what is left of the threads replicates. */
bool gen_spread(gen *g, unsigned rank, const uint32_t *shape, bool replicas, tvm_layout *out) {
    modes m = {.count = 0};
    unsigned order[TVM_MAX_MODES], locals = 0, spatials = 0;
    uint8_t local[TVM_MAX_MODES];
    int32_t spatial[TVM_MAX_MODES];
    uint32_t left = tvm_team_threads(g->team), held = 1;
    for (unsigned d = 0; d < rank; d++) split(g, shape[d], &m);
    for (unsigned i = 0; i < m.count; i++) order[i] = i;
    bool in_order = gen_one_in(g, 2);
    if (!in_order) shuffle(g, order, m.count);
    for (unsigned i = 0; i < m.count; i++) {
        bool fits = left % m.size[order[i]] == 0;
        if (fits && (!replicas || !gen_one_in(g, 4))) {
            left /= m.size[order[i]];
            spatial[spatials++] = (int32_t)order[i];
        } else {
            held *= m.size[order[i]];
            local[locals++] = (uint8_t)order[i];
        }
    }
    if (held > gen_locals(g) || (left > 1 && !replicas)) return false;
    if (left > 1) {
        unsigned at = gen_below(g, spatials + 1);
        memmove(spatial + at + 1, spatial + at, (spatials - at) * sizeof *spatial);
        spatial[at] = -(int32_t)left;
        spatials++;
    }
    tvm_why why;
    return tvm_layout_make(rank, shape, m.count, m.size, spatials, spatial, locals, local, out, &why) ==
           TVM_OK;
}

bool gen_layout(gen *g, unsigned rank, const uint32_t *shape, tvm_layout *out) {
    tvm_why why;
    for (unsigned tries = 0; tries < 8; tries++)
        if (!gen_one_in(g, 3) && gen_spread(g, rank, shape, true, out)) return true;
    return tvm_layout_auto(rank, shape, tvm_team_threads(g->team), 8u << gen_below(g, 4), out, &why) ==
               TVM_OK &&
           tvm_layout_locals(out) <= 4 * gen_locals(g);
}

/* ---- slots ---- */

uint32_t gen_name(gen *g, const char *kind) {
    char name[48];
    snprintf(name, sizeof name, "%s%u", kind, g->names++);
    return tvm_ir_program_string(g->program, name, strlen(name));
}

uint32_t gen_param(gen *g, const char *kind, tvm_dtype type, unsigned rank, const uint32_t *extents) {
    tvm_slot slot = {.name = gen_name(g, kind),
                     .kind = TVM_SLOT_GLOBAL,
                     .rank = (uint8_t)rank,
                     .dtype = type,
                     .layout = TVM_NONE};
    for (unsigned d = 0; d < rank; d++) slot.shape[d] = extents[d];
    uint32_t index = tvm_ir_kernel_add_slot(g->kernel, &slot);
    if (index == TVM_NONE || index >= GEN_SLOTS) {
        g->failed = true;
        return 0;
    }
    g->params++;
    g->vars[index] = (gen_var){.alive = true};
    return index;
}

const tvm_layout *gen_layout_of(const gen *g, uint32_t slot) {
    static const tvm_layout none = {.rank = 0};
    uint32_t layout = g->kernel->slots[slot].layout; /* of a program that has failed, of any slot */
    return layout < g->program->layout_count ? &g->program->layouts[layout] : &none;
}

static bool of_team(const gen *g, uint32_t slot) {
    return g->kernel->slots[slot].kind == TVM_SLOT_REGISTER && g->vars[slot].alive &&
           tvm_layout_threads(gen_layout_of(g, slot)) == tvm_team_threads(g->team);
}

static bool same_shape(const tvm_layout *a, const tvm_layout *b) {
    return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

uint32_t gen_register(gen *g) {
    uint32_t found = TVM_NONE;
    unsigned count = 0;
    for (uint32_t s = 0; s < g->kernel->slot_count; s++)
        if (of_team(g, s) && g->vars[s].units == 0 && gen_one_in(g, ++count)) found = s;
    return found;
}

uint32_t gen_register_of(gen *g, tvm_dtype type, uint32_t like) {
    uint32_t found = TVM_NONE;
    unsigned count = 0;
    for (uint32_t s = 0; s < g->kernel->slot_count; s++)
        if (of_team(g, s) && g->vars[s].units == 0 && tvm_dtype_same(g->kernel->slots[s].dtype, type) &&
            g->kernel->slots[s].packing == 0 &&
            (like == TVM_NONE || same_shape(gen_layout_of(g, s), gen_layout_of(g, like))) &&
            gen_one_in(g, ++count))
            found = s;
    return found;
}
