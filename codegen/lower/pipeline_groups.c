/* A pipelined loop with groups of cp.async: every thread of the team copies, and waits for its own copies. */
#include "pipeline_build.h"

typedef struct bounds {
    tvm_dtype type;
    uint32_t start, end; /* expressions */
    int64_t step;
    uint32_t ahead; /* the scalar: the loop's variable in the turn that is being copied */
} bounds;

/* A scalar in place of an expression that the body may change: a loop reads its end once. */
static uint32_t fixed(lowering *l, const tvm_insn *insn, uint32_t expr) {
    if (!(tvm_expr_leaves(l->from, expr) & TVM_LEAF_VARIABLE)) return expr;
    uint32_t slot = tvm_lower_scalar(l, "bound", l->from->exprs[expr].type);
    tvm_lower_let(l, insn, slot, expr);
    return tvm_lower_value(l, slot);
}

/* Those of a turn, to the tile. */
static void write_copies(lowering *l, const bounds *b, uint32_t tile) {
    l->tile = tile;
    l->renamed[l->from->insns[l->loop.loop].result] = b->ahead;
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++)
        if (l->ahead[i]) tvm_lower_copy(l, &l->from->insns[i]);
    l->renamed[l->from->insns[l->loop.loop].result] = TVM_NONE;
}

/* Scalars that are computed ahead have another name there. */
static void rename_ahead(lowering *l, bool on) {
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++) {
        uint32_t slot = l->from->insns[i].result;
        if (!l->ahead[i] || slot == TVM_NONE) continue;
        l->renamed[slot] = on ? tvm_lower_scalar(l, tvm_string(l->program, l->to->slots[slot].name),
                                                 l->to->slots[slot].dtype)
                              : TVM_NONE;
    }
}

/* `if` %ahead is a turn's: `above` it, without having wrapped, and below the end. */
static void open_if(lowering *l, const tvm_insn *insn, const bounds *b, uint32_t above, bool wraps) {
    uint32_t ahead = tvm_lower_value(l, b->ahead);
    uint32_t inside = tvm_lower_binary(l, TVM_EXPR_LT, TVM_BOOL, ahead, b->end);
    if (wraps)
        inside = tvm_lower_binary(l, TVM_EXPR_LAND, TVM_BOOL,
                                  tvm_lower_binary(l, TVM_EXPR_GT, TVM_BOOL, ahead, above), inside);
    tvm_lower_insert(l, insn, TVM_OP_IF, TVM_NONE, &(tvm_operand){TVM_OPERAND_EXPR, inside}, 1);
}

static uint32_t sum(lowering *l, tvm_dtype type, uint32_t expr, int64_t more) {
    const tvm_expr *to = &l->to->exprs[expr];
    if (to->op == TVM_EXPR_INTEGER) {
        tvm_scalar value = {.i = (int64_t)((uint64_t)to->value.i + (uint64_t)more)};
        return tvm_lower_constant(l, type, tvm_scalar_cast(type, TVM_I(64), value).i);
    }
    return more == 0 ? expr
                     : tvm_lower_binary(l, TVM_EXPR_ADD, type, expr, tvm_lower_constant(l, type, more));
}

static void write_prologue(lowering *l, const tvm_insn *insn, const bounds *b) {
    rename_ahead(l, true);
    for (uint32_t s = 0; s + 1 < l->loop.stages; s++) {
        tvm_lower_let(l, insn, b->ahead, sum(l, b->type, b->start, (int64_t)s * b->step));
        open_if(l, insn, b, b->start, s > 0);
        write_copies(l, b, tvm_lower_constant(l, TVM_I(32), s));
        tvm_lower_insert(l, insn, TVM_OP_END, TVM_NONE, NULL, 0);
        tvm_lower_insert(l, insn, TVM_OP_COMMIT_GROUP, TVM_NONE, NULL, 0);
    }
}

static void finish_products(lowering *l, const tvm_insn *insn) {
    if (!l->products.found) return;
    tvm_lower_buffer_barrier(l, insn, TVM_OP_COMMIT_TENSOR, l->products.done);
    tvm_lower_buffer_barrier(l, insn, TVM_OP_WAIT_BARRIER, l->products.done);
}

/* The head of a turn: its own copies are done, those of a later one begin. */
static void write_head(lowering *l, const tvm_insn *insn, const bounds *b) {
    uint32_t turn = tvm_lower_value(l, insn->result), stages = l->loop.stages;
    if (stages > 1) tvm_lower_numbered(l, insn, TVM_OP_WAIT_GROUP, stages - 2);
    finish_products(l, insn); /* of the turn before, which read what is filled next */
    tvm_lower_insert(l, insn, TVM_OP_SYNC, TVM_NONE, NULL, 0);
    tvm_lower_let(l, insn, b->ahead, sum(l, b->type, turn, (int64_t)(stages - 1) * b->step));
    if (stages > 1) open_if(l, insn, b, turn, true);
    write_copies(l, b, stages > 1 ? tvm_lower_tile_before(l) : tvm_lower_constant(l, TVM_I(32), 0));
    if (stages > 1) tvm_lower_insert(l, insn, TVM_OP_END, TVM_NONE, NULL, 0);
    tvm_lower_insert(l, insn, TVM_OP_COMMIT_GROUP, TVM_NONE, NULL, 0);
    if (stages > 1) return;
    tvm_lower_numbered(l, insn, TVM_OP_WAIT_GROUP, 0);
    tvm_lower_insert(l, insn, TVM_OP_SYNC, TVM_NONE, NULL, 0);
}

static void write_body(lowering *l) {
    rename_ahead(l, false);
    l->tile = tvm_lower_value(l, l->stage);
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++) {
        const tvm_insn *insn = &l->from->insns[i];
        if (insn->op == TVM_OP_MMA && l->products.found)
            tvm_lower_product(l, i);
        else if (insn->op != TVM_OP_COPY_ASYNC)
            tvm_lower_copy(l, insn);
    }
}

void tvm_lower_groups(lowering *l, uint32_t at) {
    const tvm_insn *insn = &l->from->insns[at];
    const tvm_operand *operands = tvm_operands(l->from, insn);
    tvm_lower_find(l, at);
    if (l->failed) return;
    bounds b = {.type = l->from->slots[insn->result].dtype,
                .step = l->from->exprs[operands[2].value].value.i};
    b.start = fixed(l, insn, operands[0].value);
    b.end = fixed(l, insn, operands[1].value);
    b.ahead = tvm_lower_scalar(l, tvm_string(l->program, l->from->slots[insn->result].name), b.type);
    l->stage = tvm_lower_scalar(l, "stage", TVM_I(32));
    /* The rings' last tiles may still be read. */
    if (l->loops++ > 0 || l->depth > 0) tvm_lower_insert(l, insn, TVM_OP_SYNC, TVM_NONE, NULL, 0);
    write_prologue(l, insn, &b);
    tvm_lower_let(l, insn, l->stage, tvm_lower_constant(l, TVM_I(32), 0));
    if (l->products.found) tvm_lower_begin_products(l, insn);
    tvm_operand loop[TVM_FOR_PIPELINE + 1] = {
        {TVM_OPERAND_EXPR, b.start}, {TVM_OPERAND_EXPR, b.end}, operands[2], operands[3]};
    tvm_lower_insert(l, insn, TVM_OP_FOR, insn->result, loop, TVM_FOR_PIPELINE + 1);
    write_head(l, insn, &b);
    write_body(l);
    tvm_lower_let(l, insn, l->stage, tvm_lower_tile_after(l));
    if (l->products.found) tvm_lower_turn_products(l, insn);
    tvm_lower_insert(l, insn, TVM_OP_END, TVM_NONE, NULL, 0);
    finish_products(l, insn);
    l->loop.end = 0;
}
