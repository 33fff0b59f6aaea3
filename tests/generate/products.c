/* Atomic operations whose results no order changes, and matrix products that no order rounds. */
#include "state.h"

#include <string.h>

#include "mma.h"
#include "target_traits.h"

static uint32_t constant(gen *g, int64_t value) {
    return gen_integer(g, TVM_I(32), value);
}

/* ---- atomic operations ---- */

/* A tensor of the type, of which (whole) every element is a small whole number. */
static uint32_t operand(gen *g, tvm_dtype type, bool whole, const tvm_layout *layout) {
    if (whole) {
        uint32_t slot = gen_load_input(g, "small", type, layout);
        return slot;
    }
    uint32_t slot = gen_register_of(g, type, TVM_NONE);
    return slot != TVM_NONE && tvm_layout_equal(gen_layout_of(g, slot), layout) ? slot
                                                                                : gen_fresh(g, type, layout);
}

static bool is_order_free(unsigned operation, tvm_dtype type) {
    if (operation == TVM_ATOMIC_EXCH || operation == TVM_ATOMIC_CAS) return false;
    return tvm_dtype_is_integer(type);
}

/* Every place once: then any operation will do, and what it fetches is told; of floats they are whole
 * numbers, which no sum rounds. */
void gen_atomic(gen *g) {
    static const tvm_dtype types[] = {TVM_I(32), TVM_U(32), TVM_I(64), TVM_U(64),
                                      TVM_F32,   TVM_F16,   TVM_BF16,  TVM_F64};
    uint32_t shape[TVM_MAX_RANK], extents[TVM_MAX_RANK + 1];
    tvm_dtype type = types[gen_below(g, 8)];
    unsigned operation = gen_below(g, TVM_ATOMIC_COUNT);
    bool unique = g->depth == 0 && !g->in_role && (gen_one_in(g, 2) || !is_order_free(operation, type)),
         fetch = unique && gen_one_in(g, 2);
    tvm_layout layout;
    unsigned rank = gen_shape(g, shape);
    if ((!unique && !is_order_free(operation, type)) || g->params + 6 >= GEN_PARAMS ||
        (type.kind == TVM_KIND_FLOAT && operation >= TVM_ATOMIC_AND) || !gen_layout(g, rank, shape, &layout))
        return;
    uint32_t source = operand(g, type, type.kind == TVM_KIND_FLOAT, &layout);
    gen_insn insn = gen_begin(fetch ? TVM_OP_ATOMIC_FETCH : TVM_OP_ATOMIC);
    for (unsigned d = 0; d < rank; d++) extents[1 + d] = constant(g, shape[d] + gen_below(g, 3));
    extents[0] = constant(g, g->blocks);
    gen_put_const(&insn, operation);
    gen_put_slot(&insn, gen_param(g, "zero", type, rank + 1, extents));
    gen_put_expr(&insn, unique ? gen_block(g) : constant(g, 0));
    for (unsigned d = 0; d < rank; d++)
        if (gen_one_in(g, 2))
            gen_put_expr(&insn, constant(g, 0));
        else
            gen_put_slot(&insn, gen_index_tensor(g, &layout, unique, d));
    gen_put_slot(&insn, source);
    if (operation == TVM_ATOMIC_CAS)
        gen_put_slot(&insn, gen_one_in(g, 2) ? source : gen_fresh(g, type, &layout));
    else
        gen_put_none(&insn);
    uint32_t mask = gen_one_in(g, 3) ? gen_register_of(g, TVM_BOOL, source) : TVM_NONE;
    if (mask == TVM_NONE && gen_one_in(g, 6)) mask = gen_fresh(g, TVM_BOOL, &layout);
    if (mask != TVM_NONE && tvm_layout_equal(gen_layout_of(g, mask), &layout))
        gen_put_slot(&insn, mask);
    else
        gen_put_none(&insn);
    gen_put_const(&insn, gen_below(g, TVM_ORDER_COUNT));
    gen_put_const(&insn, unique ? gen_below(g, TVM_SCOPE_COUNT) : 1 + gen_below(g, TVM_SCOPE_COUNT - 1));
    gen_put_none(&insn); /* rank: gen_cluster */
    uint32_t result = TVM_NONE;
    if (gen_take(g, &insn, &result) && fetch) g->vars[result].exact_bits = type.kind != TVM_KIND_FLOAT;
}

/* ---- matrix products ---- */

typedef struct product {
    tvm_dtype a, b, c;
    const char *atom_a, *atom_b, *atom_c; /* NULL: of threads */
    uint32_t m, n, k;                     /* of an atom */
    tvm_dtype scale;                      /* of blocks of so many elements; block 0: no scales */
    uint32_t block;
    const char *scale_a, *scale_b;
} product;

#define F4   TVM_FLOAT(4, 2, 1)
#define E4M3 TVM_FLOAT(8, 4, 3)
#define E5M2 TVM_FLOAT(8, 5, 2)
#define K8   "mma.m16n8k8.A", "mma.m16n8k8.B", "mma.m16n8k8.C", 16, 8, 8
#define K16  "mma.m16n8k16.A", "mma.m16n8k16.B", "mma.m16n8k16.C", 16, 8, 16
#define K32  "mma.m16n8k32.A", "mma.m16n8k32.B", "mma.m16n8k32.C", 16, 8, 32
#define K64  "mma.m16n8k64.A", "mma.m16n8k64.B", "mma.m16n8k64.C", 16, 8, 64
#define NONE {TVM_KIND_BOOL, 8, 0, 0}, 0, NULL, NULL

static product choose(gen *g) {
    static const product all[] = {
        {TVM_F16, TVM_F16, TVM_F32, K16, NONE},
        {TVM_F16, TVM_F16, TVM_F16, K16, NONE},
        {TVM_BF16, TVM_BF16, TVM_F32, K16, NONE},
        {TVM_TF32, TVM_TF32, TVM_F32, K8, NONE},
        {TVM_I(8), TVM_U(8), TVM_I(32), K32, NONE},
        {TVM_U(8), TVM_U(8), TVM_I(32), K32, NONE},
        {E4M3, E5M2, TVM_F32, K32, NONE},
        {TVM_F64, TVM_F64, TVM_F64, K8, NONE},
        {TVM_F32, TVM_F32, TVM_F32, NULL, NULL, NULL, 1, 1, 1, NONE},
        {TVM_F32, TVM_F32, TVM_F32, K8, NONE},
        {F4, E4M3, TVM_F32, K32, NONE},
        {TVM_FLOAT(6, 3, 2), TVM_FLOAT(6, 2, 3), TVM_F16, K32, NONE},
        {E5M2, F4, TVM_F32, K32, TVM_E8M0, 32, "mma.scale_vec1.A", "mma.scale_vec1.B"},
        {F4, F4, TVM_F32, K64, TVM_E8M0, 32, "mma.scale_vec2.A", "mma.scale_vec2.B"},
        {F4, F4, TVM_F32, K64, E4M3, 16, "mma.scale_vec4.A", "mma.scale_vec4.B"},
    };
    return all[gen_below(g, sizeof all / sizeof *all)];
}

/* Warps (or threads) along m and n, and the tiles that each has. */
typedef struct tiling {
    uint32_t down, across, m, n, k;
} tiling;

static bool atom(const char *name, tvm_layout *out) {
    tvm_why why;
    const uint32_t one[2] = {1, 1};
    if (name == NULL) return tvm_layout_local(2, one, out, &why) == TVM_OK;
    return tvm_layout_atom(name, strlen(name), out, &why) == TVM_OK;
}

/* spatial(down, 1).replicated(across) and the like, composed with locals and the fragment. */
static bool operand_layout(const char *name, uint32_t down, uint32_t across, bool rows, bool columns,
                           uint32_t height, uint32_t width, tvm_layout *out) {
    tvm_why why;
    tvm_layout first, second, inner, held;
    const uint32_t tall[2] = {down, 1}, broad[2] = {1, across}, tile[2] = {height, width};
    tvm_status status =
        rows ? tvm_layout_spatial(2, tall, &first, &why) : tvm_layout_replicated(2, down, &first, &why);
    if (status == TVM_OK)
        status = columns ? tvm_layout_spatial(2, broad, &second, &why)
                         : tvm_layout_replicated(2, across, &second, &why);
    if (status != TVM_OK || !atom(name, &inner)) return false;
    if (tvm_layout_local(2, tile, &held, &why) != TVM_OK) return false;
    tvm_layout outer;
    return tvm_layout_compose(&first, &second, &outer, &why) == TVM_OK &&
           tvm_layout_compose(&outer, &held, &first, &why) == TVM_OK &&
           tvm_layout_compose(&first, &inner, out, &why) == TVM_OK;
}

/* Small whole numbers; of tf32, whose inputs are f32, viewed. */
static uint32_t fragment(gen *g, tvm_dtype type, const tvm_layout *layout) {
    if (!tvm_dtype_same(type, TVM_TF32)) return gen_load_input(g, "small", type, layout);
    gen_insn insn = gen_begin(TVM_OP_VIEW);
    gen_put_slot(&insn, gen_load_input(g, "small", TVM_F32, layout));
    insn.type = (tvm_result_type){.dtype = type, .has_layout = true, .layout = *layout};
    uint32_t slot = gen_must(g, &insn);
    g->vars[slot] = (gen_var){.alive = true, .exact_bits = true, .whole = true, .high = 4};
    return slot;
}

/* The tensor in a shared one, stored as it is or transposed; puts it and its indices. */
static void put_stored(gen *g, gen_insn *insn, uint32_t slot, bool transposed) {
    tvm_why why;
    const tvm_layout *layout = gen_layout_of(g, slot);
    tvm_dtype type = g->kernel->slots[slot].dtype;
    uint32_t order[2] = {1, 0}, height = layout->shape[0], shape[2] = {height, layout->shape[1]};
    if (transposed) {
        gen_insn turn = gen_begin(TVM_OP_TRANSPOSE);
        gen_put_slot(&turn, slot);
        gen_put_list(&turn, 2, order);
        slot = gen_must(g, &turn);
        shape[0] = shape[1], shape[1] = height;
    }
    gen_insn alloc = gen_begin(TVM_OP_ALLOC_SHARED), store = gen_begin(TVM_OP_STORE_SHARED);
    alloc.type.dtype = type;
    alloc.type.has_layout =
        tvm_shared_layout_auto(2, shape, type.bits, &alloc.type.shared_layout, &why) == TVM_OK;
    uint32_t tile = gen_must(g, &alloc);
    gen_put_slot(&store, tile);
    gen_put_expr(&store, constant(g, 0));
    gen_put_expr(&store, constant(g, 0));
    gen_put_slot(&store, slot);
    gen_put_none(&store);
    gen_must(g, &store);
    gen_sync(g);
    gen_put_slot(insn, tile);
    gen_put_expr(insn, constant(g, 0));
    gen_put_expr(insn, constant(g, 0));
}

static void put_shared(gen *g, gen_insn *insn, tvm_dtype type, const tvm_layout *layout, bool transposed) {
    put_stored(g, insn, fragment(g, type, layout), transposed);
}

static void put_flag(gen_insn *insn, bool flag) {
    if (flag)
        gen_put_const(insn, 1);
    else
        gen_put_none(insn);
}

/* An earlier product of the type and layout, while its sums are small; or zeros. */
static uint32_t sums(gen *g, tvm_dtype type, const tvm_layout *layout) {
    uint32_t slot = gen_register_of(g, type, TVM_NONE);
    bool fits = slot != TVM_NONE && g->vars[slot].whole && g->vars[slot].high < 512 &&
                tvm_layout_equal(gen_layout_of(g, slot), layout);
    return fits ? slot : gen_fresh(g, type, layout);
}

/* 1, 2 and 4, which are read as f32: an e8m0 that is outside of its tensor would be 2^-127. */
static uint32_t load_scales(gen *g, tvm_dtype type, const tvm_layout *layout) {
    gen_insn least = gen_begin(TVM_OP_MAX),
             cast = gen_begin(tvm_dtype_is_lowbit(type) ? TVM_OP_CAST_LOWBIT : TVM_OP_CAST);
    gen_put_slot(&least, gen_load_input(g, "scale", TVM_F32, layout));
    gen_put_expr(&least, constant(g, 1));
    gen_put_slot(&cast, gen_must(g, &least));
    cast.type.dtype = type;
    return gen_must(g, &cast);
}

/* An operand of a product: in registers, or in shared memory, transposed or not; apart: as bytes, of which
 * each 16 begin with elements of this type. */
typedef struct factor {
    bool shared, turned, apart;
    tvm_spread type;
} factor;

/* Floats of at most 8 bits may be others, any of 4 and 6 bits; two of 4 bits with scales fill their bytes. */
static void choose_apart(gen *g, const product *p, factor *of) {
    if (!of->shared || !tvm_mma_is_small_float(p->a) || (p->block && p->a.bits == p->b.bits)) return;
    of->apart = gen_one_in(g, 2);
    of->type = (tvm_spread)(p->block ? 1 + gen_below(g, 2) : gen_below(g, TVM_SPREAD_COUNT));
}

/* Bytes of 5 patterns. */
static void put_apart(gen *g, gen_insn *insn, const tvm_layout *layout, bool turned) {
    gen_insn times = gen_begin(TVM_OP_MUL);
    gen_put_slot(&times, fragment(g, TVM_U(8), layout));
    gen_put_expr(&times, constant(g, 53));
    put_stored(g, insn, gen_must(g, &times), turned);
}

static void put_factor(gen *g, gen_insn *insn, const factor *of, tvm_dtype type, const tvm_layout *layout) {
    if (of->apart)
        put_apart(g, insn, layout, of->turned);
    else if (of->shared)
        put_shared(g, insn, type, layout, of->turned);
    else
        gen_put_slot(insn, fragment(g, type, layout));
}

static void put_type(gen_insn *insn, const factor *of) {
    if (of && of->apart)
        gen_put_const(insn, of->type);
    else
        gen_put_none(insn);
}

/* The kernel is for targets, and the interpreter, that multiply elements which are apart. */
static void assume_apart(gen *g) {
    const tvm_expr has = {.op = TVM_EXPR_HAS, .type = TVM_BOOL, .a = TVM_HAS_MMA_F8F6F4},
                   memory = {.op = TVM_EXPR_LIMIT, .type = TVM_I(32), .a = TVM_LIMIT_SHARED_MEMORY};
    uint32_t none =
        gen_apply(g, TVM_EXPR_EQ, tvm_ir_kernel_expr(g->kernel, &memory), gen_integer(g, TVM_I(32), 0));
    tvm_ir_kernel_add_assume(g->kernel,
                             gen_apply(g, TVM_EXPR_LOR, tvm_ir_kernel_expr(g->kernel, &has), none));
}

/* The last words, and the scales, which stand in two slots; high: of its numbers. */
static void take_product(gen *g, const product *p, gen_insn *insn, const uint32_t *scales,
                         const factor factors[2], int64_t high) {
    uint32_t result = TVM_NONE;
    put_flag(insn, gen_one_in(g, 4));                           /* reassociate: no sum is rounded */
    put_flag(insn, p->atom_a && tvm_dtype_same(p->a, TVM_F32)); /* tf32 */
    for (unsigned i = 0; i < 2; i++) {
        if (scales)
            gen_put_slot(insn, scales[i]);
        else
            gen_put_none(insn);
    }
    for (unsigned i = 0; i < 2; i++) put_type(insn, factors ? &factors[i] : NULL);
    if (!gen_take(g, insn, &result)) return;
    bool apart = factors && (factors[0].apart || factors[1].apart);
    if (apart) assume_apart(g);
    /* sums of f16 may be infinite, and NaN then */
    bool finite = !apart || p->c.bits > 16;
    g->vars[result] =
        (gen_var){.alive = true, .exact_bits = finite, .whole = !apart, .high = apart ? 0 : high};
    gen_store_output(g, result);
}

/* Elements narrower than a byte are stored along k: threads have runs of those that are whole bytes. */
static void put_product(gen *g, const product *p, const tvm_layout *a, const tvm_layout *b,
                        const tvm_layout *c, const uint32_t *scales) {
    bool allocates = g->depth == 0 && !g->in_role;
    factor of[2] = {{.shared = false}, {.shared = allocates && gen_one_in(g, 2)}};
    of[0].shared = of[1].shared && gen_one_in(g, 3);
    for (unsigned i = 0; i < 2; i++) choose_apart(g, p, &of[i]);
    of[0].turned = of[0].shared && !of[0].apart && p->a.bits >= 8 && gen_one_in(g, 2);
    of[1].turned = of[1].shared && (of[1].apart || p->b.bits < 8 || gen_one_in(g, 2));
    gen_insn insn = gen_begin(TVM_OP_MMA);
    put_factor(g, &insn, &of[0], p->a, a);
    put_factor(g, &insn, &of[1], p->b, b);
    uint32_t sum = sums(g, p->c, c), before = (uint32_t)g->vars[sum].high;
    gen_put_slot(&insn, sum);
    put_flag(&insn, of[0].turned);
    put_flag(&insn, of[1].turned);
    gen_put_none(&insn);
    if (of[0].shared && of[1].shared)
        gen_put_const(&insn, a->shape[1]);
    else
        gen_put_none(&insn);
    take_product(g, p, &insn, scales, of, before + (scales ? 256 : 16) * (int64_t)a->shape[1]);
}

/* ---- batches ---- */

/* Each warp's own tile of a batch. */
static bool batch_layout(gen *g, const char *name, uint32_t height, uint32_t width, tvm_layout *out) {
    tvm_why why;
    tvm_layout inner, entry, first, held, outer;
    const uint32_t warps[3] = {g->team.warps, 1, 1}, tile[3] = {1, height, width};
    return atom(name, &inner) && tvm_layout_unsqueeze(&inner, 0, &entry, &why) == TVM_OK &&
           tvm_layout_spatial(3, warps, &first, &why) == TVM_OK &&
           tvm_layout_local(3, tile, &held, &why) == TVM_OK &&
           tvm_layout_compose(&first, &held, &outer, &why) == TVM_OK &&
           tvm_layout_compose(&outer, &entry, out, &why) == TVM_OK;
}

/* The matrices of the batch one after the other along k, in a shared tensor. */
static bool put_split(gen *g, gen_insn *insn, tvm_dtype type, uint32_t rows, uint32_t columns) {
    const uint32_t shape[TVM_MAX_RANK] = {rows, columns};
    tvm_layout layout;
    if (!gen_layout(g, 2, shape, &layout)) return false;
    put_shared(g, insn, type, &layout, false);
    return true;
}

/* Of each warp a matrix; those of b, or of both, now and then parts of one along k. */
static void put_batch(gen *g, const product *p) {
    uint32_t m = 1 + gen_below(g, 2), n = 1 + gen_below(g, 2), k = 1 + gen_below(g, 2), warps = g->team.warps;
    bool whole = p->a.bits >= 8 && p->b.bits >= 8;
    bool split = whole && g->depth == 0 && !g->in_role && !gen_one_in(g, 4), both = split && gen_one_in(g, 3),
         turn_a = both && gen_one_in(g, 2), turn_b = split && gen_one_in(g, 2);
    tvm_layout a, b, c;
    if (!batch_layout(g, p->atom_a, m, k, &a) || !batch_layout(g, p->atom_b, k, n, &b) ||
        !batch_layout(g, p->atom_c, m, n, &c))
        return;
    gen_insn insn = gen_begin(TVM_OP_MMA);
    uint32_t rows = a.shape[1], all = a.shape[2] * warps, columns = b.shape[2];
    if (!both)
        gen_put_slot(&insn, fragment(g, p->a, &a));
    else if (!put_split(g, &insn, p->a, turn_a ? all : rows, turn_a ? rows : all))
        return;
    if (!split)
        gen_put_slot(&insn, fragment(g, p->b, &b));
    else if (!put_split(g, &insn, p->b, turn_b ? columns : all, turn_b ? all : columns))
        return;
    uint32_t sum = sums(g, p->c, &c), before = (uint32_t)g->vars[sum].high;
    gen_put_slot(&insn, sum);
    put_flag(&insn, turn_a);
    put_flag(&insn, turn_b);
    put_flag(&insn, split);
    if (both)
        gen_put_const(&insn, a.shape[2]);
    else
        gen_put_none(&insn);
    take_product(g, p, &insn, NULL, NULL, before + 16 * (int64_t)a.shape[2]);
}

void gen_mma(gen *g) {
    product p = choose(g);
    bool threads = p.atom_a == NULL;
    uint32_t units = threads ? tvm_team_threads(g->team) : g->team.warps;
    tiling t = {.down = 1,
                .across = units,
                .m = 1 + gen_below(g, 2),
                .n = 1 + gen_below(g, 3),
                .k = 1 + gen_below(g, 3)};
    while (t.across % 2 == 0 && gen_one_in(g, 2)) t.across /= 2, t.down *= 2;
    tvm_layout a, b, c;
    if (!g->options->layouts_matter || g->params + 4 >= GEN_PARAMS) return;
    if (!threads && !p.block && units > 1 && gen_one_in(g, 3)) {
        put_batch(g, &p);
        return;
    }
    if (!operand_layout(p.atom_a, t.down, t.across, true, false, t.m, t.k, &a) ||
        !operand_layout(p.atom_b, t.down, t.across, false, true, t.k, t.n, &b) ||
        !operand_layout(p.atom_c, t.down, t.across, true, true, t.m, t.n, &c))
        return;
    if (!p.block) {
        put_product(g, &p, &a, &b, &c, NULL);
        return;
    }
    tvm_layout first, second;
    if (g->params + 6 >= GEN_PARAMS ||
        !operand_layout(p.scale_a, t.down, t.across, true, false, t.m, t.k, &first) ||
        !operand_layout(p.scale_b, t.down, t.across, false, true, t.k, t.n, &second))
        return;
    const uint32_t scales[2] = {load_scales(g, p.scale, &first), load_scales(g, p.scale, &second)};
    put_product(g, &p, &a, &b, &c, scales);
}
