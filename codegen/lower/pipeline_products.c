/* Products of the tensor core in a pipelined loop (plan/tensor_products.h): sums in tensor memory, which
 * threads load where the program first reads them.
 *
 *     %sums = alloc-tensor [BUFFERS, 128, COLUMNS]      at the beginning of the kernel
 *     %adds = 0                                         before the turns
 *     mma-tensor %sums[..], A, B, accumulate %adds != 0
 *     %adds = 1                                         at the end of a turn
 *     commit-tensor %done[..]                           behind the turns
 *     wait-barrier %done[..]
 *     if %adds != 0: %c = load-tensor %sums[..]         before the first read; else it is still zeros
 *
 * The register tensors of the sums, and all that follow from their layouts, get those in which threads load
 * from tensor memory: the layouts are consistently renamed. */
#include "pipeline_build.h"

#include "mma.h"
#include "tensor_memory.h"

/* ---- layouts ---- */

static void rename_layouts(lowering *l) {
    for (uint32_t s = 0; s < l->from->slot_count && !l->failed; s++) {
        tvm_layout renamed;
        const tvm_slot *slot = &l->from->slots[s];
        if (slot->kind != TVM_SLOT_REGISTER ||
            !tvm_tensor_renames(l->products.found, &l->program->layouts[slot->layout], &renamed))
            continue;
        l->to->slots[s].layout = tvm_ir_program_layout(l->program, &renamed);
        if (l->to->slots[s].layout == TVM_NONE) l->failed = true;
    }
}

/* A slice of the sums, of which no register tensor has all: `made` is their alloc-register. */
static void make_slice(lowering *l, const tensor_read *read) {
    const tvm_insn *made = &l->from->insns[l->products.found->sums[read->sums].made];
    tvm_lower_insert(l, &l->from->insns[read->at], TVM_OP_ALLOC_REGISTER, read->slot,
                     tvm_operands(l->from, made), made->count);
}

static bool make_slices(lowering *l, uint32_t at) {
    const tensor_products *found = l->products.found;
    bool any = false;
    for (uint32_t r = 0; r < found->read_count; r++) {
        if (found->reads[r].at != at || !found->reads[r].is_slice) continue;
        make_slice(l, &found->reads[r]);
        any = true;
    }
    return any;
}

void tvm_lower_renamed(lowering *l) {
    l->to->insn_count = l->to->operand_count = 0;
    rename_layouts(l);
    for (uint32_t i = 0; i < l->from->insn_count && !l->failed; i++)
        if (!make_slices(l, i) && l->from->insns[i].op != TVM_OP_MMA) tvm_lower_copy(l, &l->from->insns[i]);
}

/* ---- tensor memory ---- */

static uint32_t alloc_sums(lowering *l, const tvm_insn *place, const tensor_sums *sums) {
    const uint32_t shape[] = {l->products.buffers, TVM_TENSOR_LANES, sums->columns};
    tvm_slot slot = {.kind = TVM_SLOT_TENSOR, .dtype = l->from->slots[sums->slot].dtype};
    tvm_shared_layout layout;
    if (tvm_shared_layout_row_major(3, shape, &layout, NULL) != TVM_OK) l->failed = true;
    slot.layout = l->failed ? TVM_NONE : tvm_ir_program_shared_layout(l->program, &layout);
    if (slot.layout == TVM_NONE) l->failed = true;
    uint32_t index = tvm_lower_variable(l, tvm_string(l->program, l->from->slots[sums->slot].name), slot);
    tvm_lower_insert(l, place, TVM_OP_ALLOC_TENSOR, index, NULL, 0);
    return index;
}

void tvm_lower_alloc_products(lowering *l, uint32_t buffers, bool takes) {
    const tensor_products *found = l->products.found;
    const tvm_insn *place = &l->from->insns[found->loop];
    l->products.buffers = buffers;
    rename_layouts(l);
    for (uint32_t i = 0; i < found->count && !l->failed; i++)
        l->products.sums[i] = alloc_sums(l, place, &found->sums[i]);
    l->products.done = tvm_lower_barriers(l, place, "done", buffers, false);
    if (takes) l->products.taken = tvm_lower_barriers(l, place, "taken", buffers, true);
}

static uint32_t buffer_of(lowering *l) {
    return l->products.buffers > 1 ? tvm_lower_value(l, l->products.buffer)
                                   : tvm_lower_constant(l, TVM_I(32), 0);
}

void tvm_lower_first_buffer(lowering *l, const tvm_insn *place) {
    if (l->products.buffers == 1) return;
    l->products.buffer = tvm_lower_scalar(l, "buffer", TVM_I(32));
    tvm_lower_let(l, place, l->products.buffer, tvm_lower_constant(l, TVM_I(32), 0));
}

void tvm_lower_next_buffer(lowering *l, const tvm_insn *place) {
    if (l->products.buffers == 1) return;
    uint32_t one = tvm_lower_constant(l, TVM_I(32), 1);
    tvm_lower_let(l, place, l->products.buffer,
                  tvm_lower_binary(l, TVM_EXPR_SUB, TVM_I(32), one, buffer_of(l)));
}

void tvm_lower_buffer_barrier(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t barriers) {
    tvm_lower_barrier(l, place, op, barriers, buffer_of(l), 0);
}

/* ---- products ---- */

static void set_adds(lowering *l, const tvm_insn *place, uint32_t expr) {
    tvm_lower_let(l, place, l->products.adds, expr);
}

void tvm_lower_begin_products(lowering *l, const tvm_insn *place) {
    l->products.adds = tvm_lower_scalar(l, "adds", TVM_I(32));
    set_adds(l, place, tvm_lower_constant(l, TVM_I(32), 0));
}

void tvm_lower_turn_products(lowering *l, const tvm_insn *place) {
    set_adds(l, place, tvm_lower_constant(l, TVM_I(32), 1));
}

static uint32_t adds(lowering *l) {
    return tvm_lower_binary(l, TVM_EXPR_NE, TVM_BOOL, tvm_lower_value(l, l->products.adds),
                            tvm_lower_constant(l, TVM_I(32), 0));
}

/* The buffer's matrix of the sums, from a column on. */
static uint32_t name_sums(lowering *l, uint32_t sums, uint32_t column, tvm_operand *operands) {
    operands[0] = (tvm_operand){TVM_OPERAND_SLOT, l->products.sums[sums]};
    operands[1] = (tvm_operand){TVM_OPERAND_EXPR, buffer_of(l)};
    operands[2] = (tvm_operand){TVM_OPERAND_EXPR, tvm_lower_constant(l, TVM_I(32), 0)};
    operands[3] = (tvm_operand){TVM_OPERAND_EXPR, tvm_lower_constant(l, TVM_I(32), column)};
    return 4;
}

static uint32_t sums_of(const lowering *l, uint32_t slot) {
    uint32_t i = 0;
    while (l->products.found->sums[i].slot != slot) i++;
    return i;
}

static uint32_t name_tile(lowering *l, const tvm_mma_source *source, tvm_operand *operands) {
    unsigned rank = tvm_slot_rank(l->program, &l->from->slots[source->slot]);
    uint32_t count = 0;
    operands[count++] = source->tensor[0];
    if (tvm_pipeline_fills(&l->loop, source->slot))
        operands[count++] = (tvm_operand){TVM_OPERAND_EXPR, l->tile};
    for (unsigned d = 1; d <= rank; d++)
        operands[count++] = (tvm_operand){TVM_OPERAND_EXPR, tvm_lower_expr(l, source->tensor[d].value)};
    return count;
}

/* Is it the turn's first to have its sums? */
static bool is_first(const lowering *l, uint32_t at) {
    const tvm_insn *insns = l->from->insns;
    for (uint32_t i = l->loop.loop + 1; i < at; i++)
        if (insns[i].op == TVM_OP_MMA && insns[i].result == insns[at].result) return false;
    return true;
}

void tvm_lower_product(lowering *l, uint32_t at) {
    const tvm_insn *insn = &l->from->insns[at];
    tvm_operand operands[TVM_INSN_OPERANDS + 2 * TVM_MAX_RANK];
    const tvm_operand none = {TVM_OPERAND_NONE, 0}, flag = {TVM_OPERAND_CONST, 1};
    tvm_mma mma;
    tvm_mma_read(l->program, l->from, tvm_operands(l->from, insn), insn->count, &mma);
    uint32_t count = name_sums(l, sums_of(l, insn->result), 0, operands);
    count += name_tile(l, &mma.a, operands + count);
    count += name_tile(l, &mma.b, operands + count);
    operands[count++] = is_first(l, at) ? (tvm_operand){TVM_OPERAND_EXPR, adds(l)} : none;
    operands[count++] = mma.a.is_transposed ? flag : none;
    operands[count++] = mma.b.is_transposed ? flag : none;
    operands[count++] = (tvm_operand){TVM_OPERAND_CONST, mma.k};
    tvm_lower_insert(l, insn, TVM_OP_MMA_TENSOR, TVM_NONE, operands, count);
}

/* ---- sums in registers ---- */

void tvm_lower_await_products(lowering *l, const tvm_insn *place) {
    const tvm_operand *bounds = tvm_operands(l->from, place);
    uint32_t any = tvm_lower_binary(l, TVM_EXPR_LT, TVM_BOOL, bounds[0].value, bounds[1].value);
    l->products.adds = tvm_lower_scalar(l, "adds", TVM_I(32));
    set_adds(l, place,
             tvm_lower_node(l, (tvm_expr){.op = TVM_EXPR_SELECT,
                                          .type = TVM_I(32),
                                          .a = any,
                                          .b = tvm_lower_constant(l, TVM_I(32), 1),
                                          .c = tvm_lower_constant(l, TVM_I(32), 0)}));
    tvm_lower_buffer_barrier(l, place, TVM_OP_WAIT_BARRIER, l->products.done);
}

static void load_read(lowering *l, const tensor_read *read) {
    const tvm_insn *place = &l->from->insns[read->at];
    tvm_operand operands[4];
    if (read->is_slice) make_slice(l, read);
    tvm_lower_insert(l, place, TVM_OP_IF, TVM_NONE, &(tvm_operand){TVM_OPERAND_EXPR, adds(l)}, 1);
    uint32_t count = name_sums(l, read->sums, read->column, operands);
    tvm_lower_insert(l, place, TVM_OP_LOAD_TENSOR, read->slot, operands, count);
    tvm_lower_insert(l, place, TVM_OP_END, TVM_NONE, NULL, 0);
}

product_load tvm_lower_load_products(lowering *l, uint32_t at) {
    const tensor_products *found = l->products.found;
    product_load load = {false, false};
    bool loads = false, more = false;
    for (uint32_t i = 0; found && i < found->read_count; i++) {
        more = more || found->reads[i].at > at;
        if (found->reads[i].at != at) continue;
        loads = true;
        load.is_read = found->reads[i].is_slice;
        load_read(l, &found->reads[i]);
    }
    load.is_last = loads && !more;
    return load;
}
