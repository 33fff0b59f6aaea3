/* The rule of mma. */
#include <string.h>

#include "mma.h"
#include "rules.h"

/* Entries of the row. */
enum { A, B, C };

static tvm_status check_types(const tvm_rule *rule) {
    char name[TVM_DTYPE_NAME_MAX], want[TVM_DTYPE_NAME_MAX], operand[TVM_RULE_NAME_MAX],
        other[TVM_RULE_NAME_MAX];
    tvm_dtype a = tvm_rule_slot(rule, A)->dtype, b = tvm_rule_slot(rule, B)->dtype,
              c = tvm_rule_slot(rule, C)->dtype;
    if (!tvm_dtype_same(a, TVM_F16) && !tvm_dtype_same(a, TVM_BF16))
        return tvm_refuse(rule->why, "%s has type %s, expected f16 or bf16", tvm_rule_name(rule, A, operand),
                          tvm_dtype_name(a, name));
    if (!tvm_dtype_same(a, b))
        return tvm_refuse(rule->why, "%s has type %s, expected %s as %s", tvm_rule_name(rule, B, operand),
                          tvm_dtype_name(b, name), tvm_dtype_name(a, want), tvm_rule_name(rule, A, other));
    if (!tvm_dtype_same(c, TVM_F32))
        return tvm_refuse(rule->why, "%s has type %s, expected f32", tvm_rule_name(rule, C, operand),
                          tvm_dtype_name(c, name));
    return TVM_OK;
}

/* A register tensor has c's batch extents, then these rows and columns. */
static tvm_status check_registers(const tvm_rule *rule, unsigned entry, uint32_t rows, uint32_t columns) {
    char found[TVM_SHAPE_TEXT_MAX], expected[TVM_SHAPE_TEXT_MAX], operand[TVM_RULE_NAME_MAX];
    const tvm_layout *layout = tvm_rule_layout(rule, entry), *c = tvm_rule_layout(rule, C);
    uint32_t want[TVM_MAX_RANK];
    memcpy(want, c->shape, sizeof want);
    want[c->rank - 2] = rows;
    want[c->rank - 1] = columns;
    if (layout->rank == c->rank && memcmp(layout->shape, want, c->rank * sizeof *want) == 0) return TVM_OK;
    return tvm_refuse(rule->why, "%s has shape %s, expected %s", tvm_rule_name(rule, entry, operand),
                      tvm_shape_text(layout->rank, layout->shape, found),
                      tvm_shape_text(c->rank, want, expected));
}

/* The register tensor that says what k is, before that is known. */
static tvm_status check_first(const tvm_rule *rule) {
    char found[TVM_SHAPE_TEXT_MAX], operand[TVM_RULE_NAME_MAX], name_c[TVM_RULE_NAME_MAX];
    const tvm_layout *c = tvm_rule_layout(rule, C);
    bool is_b = tvm_rule_slot(rule, B)->kind == TVM_SLOT_REGISTER;
    unsigned entry = is_b ? B : A, rank = c->rank;
    if (tvm_rule_slot(rule, entry)->kind != TVM_SLOT_REGISTER) return TVM_OK;
    const tvm_layout *layout = tvm_rule_layout(rule, entry);
    tvm_rule_name(rule, entry, operand);
    tvm_rule_name(rule, C, name_c);
    if (layout->rank != rank)
        return tvm_refuse(rule->why, "%s has shape %s, expected rank %u as %s", operand,
                          tvm_shape_text(layout->rank, layout->shape, found), rank, name_c);
    if (!is_b || layout->shape[rank - 1] == c->shape[rank - 1]) return TVM_OK;
    return tvm_refuse(rule->why, "%s has shape %s, expected k x %u as %s has %u columns", operand,
                      tvm_shape_text(rank, layout->shape, found), c->shape[rank - 1], name_c,
                      c->shape[rank - 1]);
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
    if (tvm_mma_fragments(c, a, mma->k, layout, &why) != TVM_OK) return tvm_refuse(rule->why, "%s", why.text);
    return TVM_OK;
}

tvm_status tvm_rule_MMA(const tvm_rule *rule) {
    char found[TVM_SHAPE_TEXT_MAX], operand[TVM_RULE_NAME_MAX];
    const tvm_layout *c = tvm_rule_layout(rule, C);
    tvm_layout a, b;
    tvm_mma mma;
    tvm_status status = check_types(rule);
    if (status != TVM_OK) return status;
    if (c->rank < 2)
        return tvm_refuse(rule->why, "%s has shape %s, expected a matrix, or a batch of matrices",
                          tvm_rule_name(rule, C, operand), tvm_shape_text(c->rank, c->shape, found));
    status = check_first(rule);
    if (status != TVM_OK) return status;
    if (!tvm_mma_read(rule->program, rule->kernel, rule->operands, rule->count, &mma))
        return tvm_refuse(rule->why, "a and b are shared tiles: expected k, as 'k 64'");
    if (mma.k > TVM_MAX_TILE_ELEMENTS)
        return tvm_refuse(rule->why, "k is %u, expected at most %d", mma.k, TVM_MAX_TILE_ELEMENTS);
    status = check_words(rule, &mma);
    if (status == TVM_OK) status = check_source(rule, &mma, false, &b);
    if (status == TVM_OK) status = check_source(rule, &mma, true, &a);
    if (status != TVM_OK) return status;
    tvm_mma_plan plan;
    tvm_why why = {""};
    if (!tvm_mma_plan_make(&a, &b, c, &plan, &why)) return tvm_refuse(rule->why, "%s", why.text);
    return tvm_rule_register(rule, TVM_F32, c);
}
