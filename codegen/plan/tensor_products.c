/* Products for the tensor core: see tensor_products.h. Blocks that have no columns of tensor memory wait for
 * those of another block on their multiprocessor (PTX ISA, "tcgen05.alloc"), which ends by itself: a kernel
 * allocates once, before anything else, and one whose blocks wait for each other is left as it is. */
#include "tensor_products.h"

#include <stdlib.h>
#include <string.h>

#include "find_facts.h"
#include "kernel_plan.h"
#include "mma_operands.h"
#include "pipeline.h"
#include "tensor_matrix.h"
#include "tensor_memory.h"

enum { GROUP = 4, FRAGMENT = 8 }; /* warps that reach all lanes; columns of a fragment of sums */

typedef struct finder {
    kernel_state k;
    tensor_products *out;
    tvm_pipeline loop;
    bool *ahead;
    uint32_t *outer; /* by instruction: what opens the innermost control around it; TVM_NONE */
    tvm_why *why;
} finder;

static const tvm_insn *insn_at(const finder *f, uint32_t at) {
    return &f->k.kernel->insns[at];
}

static bool is_inside(const finder *f, uint32_t at) {
    return at > f->loop.loop && at < f->loop.end;
}

static bool refuse(const finder *f, const char *why) {
    tvm_refuse(f->why, "%s", why);
    return false;
}

/* ---- the kernel ---- */

static bool find_loop(finder *f) {
    const tvm_ir_kernel *kernel = f->k.kernel;
    uint32_t count = 0, wrong, products = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        products += insn_at(f, i)->op == TVM_OP_MMA;
        if (tvm_insn_class(insn_at(f, i)) == TVM_CLASS_SECTION) return refuse(f, "the kernel has roles");
        if (tvm_pipeline_stages(kernel, insn_at(f, i)) && count++ == 0) f->loop.loop = i;
    }
    if (products == 0) return refuse(f, "there are no products");
    if (count != 1) return refuse(f, count ? "several pipelined loops" : "no pipelined loop");
    return tvm_pipeline_find(f->k.program, kernel, f->loop.loop, &f->loop, f->ahead, &wrong, NULL) == TVM_OK;
}

static bool check_kernel(const finder *f) {
    const tvm_ir_kernel *kernel = f->k.kernel;
    if (tvm_has_tensor_memory(kernel)) return refuse(f, "the kernel has tensor memory of its own");
    if (tvm_kernel_waits(kernel) || tvm_cluster_blocks(kernel) > 1)
        return refuse(f, "blocks wait for each other, which may wait for tensor memory");
    if (kernel->warps % GROUP)
        return refuse(f, "warps are no multiple of 4, which reach all 128 rows of sums");
    return true;
}

static void find_outer(finder *f) {
    uint32_t stack[TVM_MAX_DEPTH + 1], depth = 0;
    for (uint32_t i = 0; i < f->k.kernel->insn_count; i++) {
        tvm_op_class class = tvm_insn_class(insn_at(f, i));
        if (class == TVM_CLASS_END) depth--;
        f->outer[i] = depth > 0 ? stack[depth - 1] : TVM_NONE;
        if (tvm_class_opens(class)) stack[depth++] = i;
    }
    for (uint32_t at = f->outer[f->loop.loop]; at != TVM_NONE; at = f->outer[at])
        f->out->repeats = f->out->repeats || tvm_insn_class(insn_at(f, at)) == TVM_CLASS_LOOP;
}

/* ---- the loop: products and scalars alone, which nothing else reads ---- */

static bool is_scalar(const finder *f, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(f->k.kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT) return false;
    return tvm_insn_class(insn) == TVM_CLASS_COMPUTE && insn->result != TVM_NONE &&
           f->k.kernel->slots[insn->result].kind == TVM_SLOT_SCALAR && !tvm_op(insn->op)->effects;
}

static bool reads_scalar(const finder *f, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(f->k.kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_EXPR && tvm_expr_reads(f->k.kernel, operands[o].value, slot))
            return true;
    return false;
}

/* Does an instruction outside of the body, the loop's own bounds included, read the scalar? */
static bool is_read_outside(const finder *f, uint32_t slot) {
    for (uint32_t i = 0; i < f->k.kernel->insn_count; i++)
        if (!is_inside(f, i) && reads_scalar(f, insn_at(f, i), slot)) return true;
    return false;
}

static bool check_body(const finder *f) {
    for (uint32_t i = f->loop.loop; i < f->loop.end; i++) {
        const tvm_insn *insn = insn_at(f, i);
        bool sets = insn->result != TVM_NONE && f->k.kernel->slots[insn->result].kind == TVM_SLOT_SCALAR;
        if (sets && is_read_outside(f, insn->result))
            return refuse(f, "a scalar of the pipelined loop is read outside of it");
        if (i == f->loop.loop || f->ahead[i] || insn->op == TVM_OP_MMA || is_scalar(f, insn)) continue;
        tvm_refuse(f->why, "beside its products the pipelined loop has %s", tvm_op(insn->op)->mnemonic);
        return false;
    }
    return true;
}

/* ---- products ---- */

/* NULL: the types are of a kind of tcgen05.mma, with sums of 32 bits. */
static const char *check_types(const finder *f, const tvm_mma *mma) {
    const tvm_mma_types *types = mma->types;
    if (mma->scaling || !types) return "products with scales";
    if (types->is_scalar) return "products of f32 in full: the word tf32 takes the tensor core";
    if (types->sums != TVM_MMA_F32 && types->sums != TVM_MMA_I32) return "sums are neither f32 nor i32";
    if (types->a.bits < 8 || types->b.bits < 8) return "operands of less than 8 bits";
    if (types->sums == TVM_MMA_I32 && !tvm_target_has(f->k.target, TVM_HAS_TCGEN05_I8))
        return "the target has no tcgen05.mma of integers";
    return NULL;
}

/* The extents of mma-tensor (isa/rules_tensor.c), whose b is a whole tensor along n. */
static const char *check_extents(const finder *f, const tvm_mma *mma) {
    enum { COLUMNS = 16, COLUMNS_MAX = 256 };
    const tvm_slot *b = &f->k.kernel->slots[mma->b.slot];
    if (mma->leading || mma->a.tile_rank != 2 || mma->b.tile_rank != 2 || mma->splits_k)
        return "products of several matrices";
    if (mma->m != TVM_TENSOR_LANES) return "sums have other than 128 rows";
    if (mma->n % COLUMNS || mma->n > COLUMNS_MAX) return "columns are no multiple of 16 up to 256";
    if (mma->k * mma->types->a.bits % (8 * TVM_TENSOR_STEP)) return "k is no multiple of 32 bytes";
    unsigned last = tvm_slot_rank(f->k.program, b) - 1;
    return tvm_slot_shape(f->k.program, b)[mma->b.is_transposed ? last - 1 : last] == mma->n
               ? NULL
               : "b is a part of the columns of its tensor";
}

static const char *check_matrix(finder *f, const tvm_mma_source *source, bool k_first) {
    tensor_matrix matrix;
    return tvm_tensor_matrix_find(&f->k, source->tensor, source->tile, k_first, TVM_TENSOR_STEP, &matrix);
}

static bool check_product(finder *f, uint32_t at) {
    const tvm_mma *mma = &tvm_mma_operands_of(&f->k, insn_at(f, at))->mma;
    f->k.insn = insn_at(f, at);
    if (!is_inside(f, at)) return refuse(f, "a product stands outside of the pipelined loop");
    if (!mma->a.is_shared || !mma->b.is_shared) return refuse(f, "an operand is in registers");
    if (insn_at(f, at)->result != mma->c) return refuse(f, "products do not add to what they add up");
    const char *why = check_types(f, mma);
    if (!why) why = check_extents(f, mma);
    if (!why) why = check_matrix(f, &mma->a, mma->a.is_transposed);
    if (!why) why = check_matrix(f, &mma->b, !mma->b.is_transposed);
    return !why || refuse(f, why);
}

/* ---- sums ---- */

/* Each warpgroup its part of the columns, in the fragments of mma, so that what follows from the layout that
 * the sums had is much the same. */
static bool find_layout(const finder *f, uint32_t columns, tvm_layout *out) {
    const uint32_t groups = f->k.kernel->warps / GROUP, of_group = columns / FRAGMENT / groups;
    const uint32_t beside[] = {1, groups}, lanes[] = {GROUP, 1}, own[] = {2, of_group};
    static const char atom[] = "mma.m16n8k16.C";
    tvm_layout outer, rows, fragment;
    return columns % (FRAGMENT * groups) == 0 && tvm_layout_spatial(2, beside, &outer, NULL) == TVM_OK &&
           tvm_layout_spatial(2, lanes, &rows, NULL) == TVM_OK &&
           tvm_layout_local(2, own, out, NULL) == TVM_OK &&
           tvm_layout_atom(atom, sizeof atom - 1, &fragment, NULL) == TVM_OK &&
           tvm_layout_compose(out, &fragment, out, NULL) == TVM_OK &&
           tvm_layout_compose(&rows, out, out, NULL) == TVM_OK &&
           tvm_layout_compose(&outer, out, out, NULL) == TVM_OK;
}

/* Is it an alloc-register of zeros, where the loop stands, before it? */
static bool makes_zeros(const finder *f, uint32_t at) {
    const tvm_insn *insn = insn_at(f, at);
    const tvm_operand *init = tvm_operands(f->k.kernel, insn);
    if (insn->op != TVM_OP_ALLOC_REGISTER || at > f->loop.loop || f->outer[at] != f->outer[f->loop.loop])
        return false;
    if (insn->count == 0 || init->kind == TVM_OPERAND_NONE) return true;
    const tvm_expr *value = &f->k.kernel->exprs[init->value];
    return (value->op == TVM_EXPR_INTEGER || value->op == TVM_EXPR_FLOAT) &&
           value->value.i == 0; /* not of -0.0 */
}

static bool names_slot(const finder *f, const tvm_insn *insn, uint32_t slot) {
    const tvm_operand *operands = tvm_operands(f->k.kernel, insn);
    for (uint32_t o = 0; o < insn->count; o++)
        if (operands[o].kind == TVM_OPERAND_SLOT && operands[o].value == slot) return true;
    return false;
}

static tensor_read *add_read(const finder *f, uint32_t slot, uint32_t at, uint32_t columns) {
    tensor_products *out = f->out;
    if (out->read_count == TVM_PRODUCTS_READS) return NULL;
    tensor_read *read = &out->reads[out->read_count++];
    *read = (tensor_read){.sums = out->count - 1, .at = at, .slot = slot, .columns = columns};
    read->before = *tvm_slot_layout(&f->k, slot);
    return find_layout(f, columns, &read->layout) ? read : NULL;
}

/* Adds what a slice takes: all rows of some columns. */
static bool add_slice(const finder *f, uint32_t at) {
    const tvm_insn *insn = insn_at(f, at);
    const tvm_operand *offset = tvm_operands(f->k.kernel, insn) + 1, *extent = offset + 1 + offset->value;
    if (insn->op != TVM_OP_SLICE || f->outer[at] != f->outer[f->loop.loop] || offset[1].value != 0 ||
        extent[1].value != TVM_TENSOR_LANES)
        return false;
    tensor_read *read = add_read(f, insn->result, at, extent[2].value);
    if (!read) return false;
    read->is_slice = true;
    read->column = offset[2].value;
    return true;
}

/* The reads of the sums, all behind the loop, and before the end of what is around both. */
static bool find_reads(const finder *f, const tensor_sums *sums) {
    uint32_t around = f->outer[f->loop.loop], before = f->out->read_count, first = TVM_NONE;
    uint32_t end = around == TVM_NONE ? f->k.kernel->insn_count : insn_at(f, around)->match;
    bool slices = true;
    for (uint32_t i = 0; i < f->k.kernel->insn_count; i++) {
        if (is_inside(f, i) || !names_slot(f, insn_at(f, i), sums->slot)) continue;
        if (i < f->loop.end || i > end) return refuse(f, "sums are read before the loop, or elsewhere");
        uint32_t at = i;
        while (f->outer[at] != around) at = f->outer[at];
        if (at < first) first = at;
        slices = slices && add_slice(f, i);
    }
    if (first == TVM_NONE) return refuse(f, "sums are not read");
    if (slices) return true;
    f->out->read_count = before;
    return add_read(f, sums->slot, first, sums->columns) ||
           refuse(f, "columns do not part among the warpgroups by 8");
}

/* What assigns the sums: the alloc-register, the products, and, once they have been read, anything. */
static bool find_made(const finder *f, tensor_sums *sums) {
    uint32_t first = TVM_NONE, made = 0;
    for (uint32_t r = 0; r < f->out->read_count; r++)
        if (f->out->reads[r].sums == f->out->count - 1 && f->out->reads[r].at < first)
            first = f->out->reads[r].at;
    for (uint32_t i = 0; i < f->k.kernel->insn_count; i++) {
        if (is_inside(f, i) || insn_at(f, i)->result != sums->slot) continue;
        if (i > f->loop.end && i >= first && !f->out->reads[f->out->read_count - 1].is_slice) continue;
        if (!makes_zeros(f, i) || made++)
            return refuse(f, "sums begin with other than zeros, made before the loop");
        sums->made = i;
    }
    return made > 0 || refuse(f, "sums are not made where the loop stands");
}

static bool add_sums(finder *f, const tvm_mma *mma) {
    tensor_products *out = f->out;
    for (uint32_t i = 0; i < out->count; i++)
        if (out->sums[i].slot == mma->c) return true;
    if (out->count == TVM_PRODUCTS_SUMS) return refuse(f, "more than 8 tensors of sums");
    tensor_sums *sums = &out->sums[out->count++];
    *sums = (tensor_sums){.slot = mma->c, .columns = mma->n};
    out->columns += (mma->n + FRAGMENT - 1) / FRAGMENT * FRAGMENT;
    if (out->columns > TVM_TENSOR_COLUMNS) return refuse(f, "sums of more than 512 columns");
    return find_reads(f, sums) && find_made(f, sums);
}

/* ---- layouts that follow from those of the sums ---- */

/* By reduce, and as a tensor of one dimension: 0 is the layout itself. */
enum { FOLLOWERS = 5 };

static bool follower(const tvm_layout *layout, unsigned which, tvm_layout *out) {
    *out = *layout;
    if (which == 0) return true;
    unsigned dim = (which - 1) / 2;
    if (tvm_layout_reduce(layout, dim, out, NULL) != TVM_OK) return false;
    return which % 2 || tvm_layout_squeeze(out, dim, out, NULL) == TVM_OK;
}

bool tvm_tensor_renames(const tensor_products *products, const tvm_layout *layout, tvm_layout *out) {
    for (uint32_t r = 0; r < products->read_count; r++)
        for (unsigned which = 0; which < FOLLOWERS; which++) {
            tvm_layout before;
            if (follower(&products->reads[r].before, which, &before) && tvm_layout_equal(&before, layout) &&
                follower(&products->reads[r].layout, which, out))
                return true;
        }
    return false;
}

/* Does the slot's layout become another one? */
static bool changes(const finder *f, uint32_t slot) {
    tvm_layout renamed;
    const tvm_slot *of = slot == TVM_NONE ? NULL : &f->k.kernel->slots[slot];
    return of && of->kind == TVM_SLOT_REGISTER &&
           tvm_tensor_renames(f->out, &f->k.program->layouts[of->layout], &renamed) &&
           !tvm_layout_equal(&renamed, &f->k.program->layouts[of->layout]);
}

/* Is the result of the instruction that of the elements, whatever threads hold them? A view is of what a
 * thread holds, unless it is the same tensor under another name; reduce and scan combine in an order that
 * follows from the layout. */
static bool is_of_elements(const finder *f, const tvm_insn *insn) {
    const tvm_ir_kernel *kernel = f->k.kernel;
    const tvm_operand *operands = tvm_operands(kernel, insn);
    bool any = changes(f, insn->result);
    for (uint32_t o = 0; o < insn->count; o++) {
        if (operands[o].kind != TVM_OPERAND_SLOT) continue;
        any = any || changes(f, operands[o].value);
        if (insn->op != TVM_OP_VIEW) continue;
        const tvm_slot *from = &kernel->slots[operands[o].value], *to = &kernel->slots[insn->result];
        if (from->layout == to->layout && from->dtype.bits == to->dtype.bits) return true;
    }
    return !any || (insn->op != TVM_OP_VIEW && insn->op != TVM_OP_REDUCE && insn->op != TVM_OP_SCAN);
}

static bool check_elements(const finder *f) {
    for (uint32_t i = 0; i < f->k.kernel->insn_count; i++) {
        if (is_of_elements(f, insn_at(f, i))) continue;
        tvm_refuse(f->why, "the layout of the sums, which would be another one, decides what %s gives",
                   tvm_op(insn_at(f, i)->op)->mnemonic);
        return false;
    }
    return true;
}

static bool find_products(finder *f) {
    for (uint32_t i = 0; i < f->k.kernel->insn_count; i++) {
        if (insn_at(f, i)->op != TVM_OP_MMA) continue;
        if (!check_product(f, i) || !add_sums(f, &tvm_mma_operands_of(&f->k, insn_at(f, i))->mma))
            return false;
    }
    return true;
}

bool tvm_tensor_products_find(const tvm_ir_program *program, uint32_t kernel, tvm_target target,
                              tensor_products *out, tvm_why *why) {
    finder f = {.k = {.program = program, .kernel = &program->kernels[kernel], .target = target},
                .out = out,
                .why = why};
    size_t count = f.k.kernel->insn_count + (size_t)1;
    memset(out, 0, sizeof *out);
    if (!tvm_target_has(target, TVM_HAS_TCGEN05)) return refuse(&f, "the target has none");
    f.ahead = calloc(count, sizeof *f.ahead);
    f.outer = calloc(count, sizeof *f.outer);
    bool found = f.ahead && f.outer && find_loop(&f) && check_kernel(&f) && check_body(&f);
    if (found) {
        find_outer(&f);
        found = tvm_plan_memory(&f.k) == TVM_OK && tvm_facts_make(&f.k) == TVM_OK && find_products(&f) &&
                check_elements(&f);
        tvm_plan_free(&f.k);
    }
    out->loop = f.loop.loop;
    out->end = f.loop.end;
    free(f.ahead);
    free(f.outer);
    return found;
}
