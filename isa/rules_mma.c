/* The rule of mma. */
#include <stdio.h>
#include <string.h>

#include "mma.h"
#include "rules.h"

/* Entries of the row. */
enum { A, B, C };

/* " or " between the last two. */
static void add_name(char *text, size_t size, tvm_dtype type, bool last) {
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", !used ? "" : last ? " or " : ", ", TVM_DTYPE_TEXT(type));
}

static bool takes_a(tvm_dtype a) {
    return tvm_mma_atoms_of(a, false) != NULL;
}

static bool takes_both(tvm_dtype a, tvm_dtype b) {
    const tvm_mma_types *t;
    for (unsigned i = 0; (t = tvm_mma_types_at(i)); i++)
        if (tvm_dtype_same(t->a, a) && tvm_dtype_same(t->b, b)) return true;
    return false;
}

/* The types of b that go with a, or of c with both. */
static void list_types(tvm_dtype a, const tvm_dtype *b, char *text, size_t size) {
    tvm_dtype found[8];
    unsigned count = 0;
    const tvm_mma_types *t;
    for (unsigned i = 0; (t = tvm_mma_types_at(i)); i++) {
        tvm_dtype type = b ? t->c : t->b;
        if (!tvm_dtype_same(t->a, a) || (b && !tvm_dtype_same(t->b, *b))) continue;
        if (count == 0 || !tvm_dtype_same(found[count - 1], type)) found[count++] = type;
    }
    text[0] = '\0';
    for (unsigned i = 0; i < count; i++) add_name(text, size, found[i], i + 1 == count);
}

static tvm_dtype type_of(const tvm_rule *rule, unsigned entry) {
    return tvm_mma_type_of(rule->program, rule->kernel, rule->operands, rule->count, entry == A);
}

static tvm_status check_types(const tvm_rule *rule) {
    char want[80];
    tvm_dtype a = type_of(rule, A), b = type_of(rule, B), c = tvm_rule_slot(rule, C)->dtype;
    bool as_tf32 = tvm_mma_reads_tf32(rule->program, rule->kernel, rule->operands, rule->count);
    if (!takes_a(a))
        return tvm_refuse(
            rule->why,
            "%s has type %s, expected f16, bf16, tf32, f32, f64, i8, u8, f8_e4m3, f8_e5m2, f6_e2m3, "
            "f6_e3m2 or f4_e2m1",
            TVM_RULE_NAME(rule, A), TVM_DTYPE_TEXT(a));
    if (as_tf32 && !tvm_dtype_same(a, TVM_F32))
        return tvm_refuse(rule->why, "tf32 is of f32 operands, %s has type %s", TVM_RULE_NAME(rule, A),
                          TVM_DTYPE_TEXT(a));
    list_types(a, NULL, want, sizeof want);
    if (!takes_both(a, b))
        return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", TVM_RULE_NAME(rule, B),
                          TVM_DTYPE_TEXT(b), want, TVM_RULE_NAME(rule, A));
    list_types(a, &b, want, sizeof want);
    if (!tvm_mma_find_types(a, b, c, false))
        return tvm_refuse(rule->why, "%s has type %s, expected %s", TVM_RULE_NAME(rule, C), TVM_DTYPE_TEXT(c),
                          want);
    return TVM_OK;
}

/* ---- scales ---- */

static const tvm_slot *slot_of(const tvm_rule *rule, uint32_t slot) {
    return &rule->kernel->slots[slot];
}

static tvm_status check_scale_types(const tvm_rule *rule, const tvm_mma *mma) {
    tvm_dtype a = mma->a.type, b = mma->b.type;
    if ((mma->scale_a == TVM_NONE) != (mma->scale_b == TVM_NONE))
        return tvm_refuse(rule->why,
                          "scale_a and scale_b go together: give an operand without scales those of 1.0");
    tvm_dtype scale = slot_of(rule, mma->scale_a)->dtype, other = slot_of(rule, mma->scale_b)->dtype;
    if (!tvm_mma_is_small_float(a) || !tvm_mma_is_small_float(b))
        return tvm_refuse(rule->why, "scales are of floats of 4, 6 or 8 bits, %s has type %s",
                          TVM_RULE_NAME(rule, tvm_mma_is_small_float(a) ? B : A),
                          TVM_DTYPE_TEXT(tvm_mma_is_small_float(a) ? b : a));
    if (!mma->scaling)
        return tvm_refuse(rule->why, "scale_a has type %s, expected e8m0%s", TVM_DTYPE_TEXT(scale),
                          a.bits == 4 && b.bits == 4 ? ", or f8_e4m3 for blocks of 16"
                                                     : "; scales of f8_e4m3 are of two operands of f4_e2m1");
    if (!tvm_dtype_same(scale, other))
        return tvm_refuse(rule->why, "scale_b has type %s, expected %s as scale_a", TVM_DTYPE_TEXT(other),
                          TVM_DTYPE_TEXT(scale));
    if (mma->types->sums != TVM_MMA_F32)
        return tvm_refuse(rule->why, "%s has type f16, expected f32 with scales", TVM_RULE_NAME(rule, C));
    return TVM_OK;
}

static tvm_status check_scale_shape(const tvm_rule *rule, const tvm_mma *mma, bool a) {
    const tvm_layout *layout =
        &rule->program->layouts[slot_of(rule, a ? mma->scale_a : mma->scale_b)->layout];
    uint32_t want[TVM_MAX_RANK];
    unsigned rank;
    tvm_mma_scale_shape(mma, a, &rank, want);
    bool fits = layout->rank == rank;
    for (unsigned d = 0; fits && d < rank; d++) fits = layout->shape[d] == want[d];
    if (fits) return TVM_OK;
    return tvm_refuse(rule->why, "scale_%c has shape %s, expected %s: one for each %u elements of %s along k",
                      a ? 'a' : 'b', TVM_SHAPE_TEXT(layout->rank, layout->shape), TVM_SHAPE_TEXT(rank, want),
                      mma->scaling->block, TVM_RULE_NAME(rule, a ? A : B));
}

/* Each warp has the scales of the fragments that it multiplies. */
static tvm_status check_scales(const tvm_rule *rule, const tvm_mma *mma) {
    tvm_mma_plan plan;
    tvm_why why = {""};
    if (mma->k % mma->atoms->k != 0)
        return tvm_refuse(rule->why, "k is %u, expected a multiple of %u", mma->k, mma->atoms->k);
    tvm_status status = check_scale_shape(rule, mma, true);
    if (status == TVM_OK) status = check_scale_shape(rule, mma, false);
    if (status != TVM_OK) return status;
    const tvm_layout *layouts = rule->program->layouts;
    if (tvm_mma_plan_make(mma->scaling->scales, &layouts[slot_of(rule, mma->scale_a)->layout],
                          &layouts[slot_of(rule, mma->scale_b)->layout], tvm_rule_layout(rule, C), &plan,
                          &why))
        return TVM_OK;
    return tvm_refuse(rule->why, "of scale_a and scale_b as a and b: %s", why.text);
}

/* ---- operands ---- */

/* A register tensor has c's batch extents, or is broadcast along them, then these rows and columns. */
static tvm_status check_registers(const tvm_rule *rule, unsigned entry, uint32_t rows, uint32_t columns) {
    const tvm_layout *layout = tvm_rule_layout(rule, entry), *c = tvm_rule_layout(rule, C);
    uint32_t want[TVM_MAX_RANK];
    memcpy(want, c->shape, sizeof want);
    want[c->rank - 2] = rows;
    want[c->rank - 1] = columns;
    bool fits = layout->rank >= 2 && layout->rank <= c->rank;
    for (unsigned d = 0; fits && d < layout->rank; d++) {
        bool is_one = d + 2U < layout->rank && layout->shape[d] == 1;
        fits = is_one || layout->shape[d] == want[c->rank - layout->rank + d];
    }
    if (fits) return TVM_OK;
    return tvm_refuse(rule->why, "%s has shape %s, expected %s", TVM_RULE_NAME(rule, entry),
                      TVM_SHAPE_TEXT(layout->rank, layout->shape), TVM_SHAPE_TEXT(c->rank, want));
}

/* The register tensor that says what k is, before that is known. */
static tvm_status check_first(const tvm_rule *rule) {
    char operand[TVM_RULE_NAME_MAX], name_c[TVM_RULE_NAME_MAX];
    const tvm_layout *c = tvm_rule_layout(rule, C);
    bool is_b = tvm_rule_slot(rule, B)->kind == TVM_SLOT_REGISTER;
    unsigned entry = is_b ? B : A;
    if (tvm_rule_slot(rule, entry)->kind != TVM_SLOT_REGISTER) return TVM_OK;
    const tvm_layout *layout = tvm_rule_layout(rule, entry);
    tvm_rule_name(rule, entry, operand);
    tvm_rule_name(rule, C, name_c);
    unsigned rank = layout->rank;
    uint32_t columns = c->shape[c->rank - 1];
    if (rank < 2 || rank > c->rank)
        return tvm_refuse(rule->why,
                          "%s has shape %s, expected rank %u as %s, or less for a batch that shares it",
                          operand, TVM_SHAPE_TEXT(rank, layout->shape), c->rank, name_c);
    if (!is_b || layout->shape[rank - 1] == columns) return TVM_OK;
    return tvm_refuse(rule->why, "%s has shape %s, expected k x %u as %s has %u columns", operand,
                      TVM_SHAPE_TEXT(rank, layout->shape), columns, name_c, columns);
}

/* Of type_a and type_b. The elements lie along k. */
static tvm_status check_spread(const tvm_rule *rule, const tvm_mma *mma, bool is_a) {
    const tvm_mma_source *source = is_a ? &mma->a : &mma->b;
    const tvm_slot *slot = slot_of(rule, source->slot);
    const char *name = is_a ? "type_a" : "type_b", *operand = TVM_RULE_NAME(rule, is_a ? A : B);
    if (!source->is_spread) return TVM_OK;
    if (!source->is_shared || !tvm_dtype_same(slot->dtype, TVM_U(8)))
        return tvm_refuse(rule->why,
                          "%s is of a tile of u8 in shared memory, of which 16 have 16 elements, %s %s%s",
                          name, operand, source->is_shared ? "has type " : "is a register tensor",
                          source->is_shared ? TVM_DTYPE_TEXT(slot->dtype) : "");
    if (source->is_transposed == is_a)
        return tvm_refuse(rule->why, "%s: elements of %u bits lie along k%s", name, source->type.bits,
                          is_a ? ", not transpose_a" : ": expected a tile [n, k], and transpose_b");
    if (mma->scaling && mma->scaling->operands->k != 32)
        return tvm_refuse(rule->why, "%s: two operands of f4_e2m1 with scales fill their bytes", name);
    return TVM_OK;
}

/* Whether the entry is a shared tile decides which words go with it. */
static tvm_status check_words(const tvm_rule *rule, const tvm_mma *mma) {
    if (mma->a.is_transposed && !mma->a.is_shared)
        return tvm_refuse(rule->why, "transpose_a is of a tile in shared memory, a is a register tensor");
    if (mma->b.is_transposed && !mma->b.is_shared)
        return tvm_refuse(rule->why, "transpose_b is of a tile in shared memory, b is a register tensor");
    if (mma->splits_k && !mma->a.is_shared && !mma->b.is_shared)
        return tvm_refuse(rule->why, "split_k is of a tile in shared memory, a and b are register tensors");
    return TVM_OK;
}

static tvm_status check_source(const tvm_rule *rule, const tvm_mma *mma, bool a, tvm_layout *layout) {
    const tvm_mma_source *source = a ? &mma->a : &mma->b;
    const tvm_layout *c = tvm_rule_layout(rule, C);
    unsigned entry = a ? A : B;
    tvm_why why = {""};
    if (!source->is_shared) {
        *layout = *tvm_rule_layout(rule, entry);
        return check_registers(rule, entry, a ? mma->m : mma->k, a ? mma->k : mma->n);
    }
    tvm_status status = tvm_rule_tile(rule, entry, source->tile_rank, source->tile);
    if (status != TVM_OK) return status;
    if (tvm_mma_fragments(mma->atoms, c, a, source->rank, source->shape, layout, &why) != TVM_OK)
        return tvm_refuse(rule->why, "%s", why.text);
    return TVM_OK;
}

tvm_status tvm_rule_MMA(const tvm_rule *rule) {
    const tvm_layout *c = tvm_rule_layout(rule, C);
    tvm_layout a, b;
    tvm_mma mma;
    tvm_status status = check_types(rule);
    if (status != TVM_OK) return status;
    if (c->rank < 2)
        return tvm_refuse(rule->why, "%s has shape %s, expected a matrix, or a batch of matrices",
                          TVM_RULE_NAME(rule, C), TVM_SHAPE_TEXT(c->rank, c->shape));
    status = check_first(rule);
    if (status != TVM_OK) return status;
    if (!tvm_mma_read(rule->program, rule->kernel, rule->operands, rule->count, &mma))
        return tvm_refuse(rule->why, "a and b are shared tiles: expected k, as 'k 64'");
    if (mma.k > TVM_MAX_TILE_ELEMENTS)
        return tvm_refuse(rule->why, "k is %u, expected at most %d", mma.k, TVM_MAX_TILE_ELEMENTS);
    bool scaled = mma.scale_a != TVM_NONE || mma.scale_b != TVM_NONE;
    status = check_words(rule, &mma);
    if (status == TVM_OK) status = check_spread(rule, &mma, true);
    if (status == TVM_OK) status = check_spread(rule, &mma, false);
    if (status == TVM_OK && scaled) status = check_scale_types(rule, &mma);
    if (status == TVM_OK && scaled) status = check_scales(rule, &mma);
    if (status == TVM_OK) status = check_source(rule, &mma, false, &b);
    if (status == TVM_OK) status = check_source(rule, &mma, true, &a);
    if (status != TVM_OK) return status;
    tvm_mma_plan plan;
    tvm_why why = {""};
    if (!tvm_mma_plan_make(mma.atoms, &a, &b, c, &plan, &why)) return tvm_refuse(rule->why, "%s", why.text);
    return tvm_rule_register(rule, mma.types->c, c);
}
