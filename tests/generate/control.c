/* Control: loops of few turns, conditions, and the order in which statements come. */
#include "state.h"

#include <string.h>

static uint32_t constant(gen *g, int64_t value) {
    return gen_integer(g, TVM_I(32), value);
}

static void plain(gen *g, unsigned op) {
    gen_insn insn = gen_begin(op);
    gen_must(g, &insn);
}

/* A sync, unless nothing was read or written since the last. */
static void settle(gen *g) {
    bool busy = false;
    for (unsigned i = 0; i < g->shared_count; i++) busy = busy || g->shared[i].read || g->shared[i].written;
    if (busy) gen_sync(g);
}

/* Statements between an opener and its end: variables of theirs end with them. */
void gen_body(gen *g, unsigned statements) {
    uint32_t before = g->kernel->slot_count;
    g->depth++;
    for (unsigned i = 0; i < statements; i++) gen_statement(g);
    settle(g);
    g->depth--;
    for (uint32_t s = before; s < g->kernel->slot_count && s < GEN_SLOTS; s++)
        if (g->kernel->slots[s].kind != TVM_SLOT_GLOBAL) g->vars[s].alive = false;
}

/* ---- scalars ---- */

static uint32_t let(gen *g, uint32_t expr, int64_t low, int64_t high) {
    gen_insn insn = gen_begin(TVM_OP_LET);
    gen_put_expr(&insn, expr);
    uint32_t slot = gen_must(g, &insn);
    g->vars[slot] = (gen_var){.alive = true, .whole = true, .low = low, .high = high};
    return slot;
}

static void assign(gen *g, uint32_t slot, uint32_t expr) {
    gen_insn insn = gen_begin(TVM_OP_LET);
    insn.type = (tvm_result_type){.kind = TVM_SLOT_SCALAR, .dtype = g->kernel->slots[slot].dtype};
    gen_put_expr(&insn, expr);
    if (!gen_take(g, &insn, &slot)) g->failed = true;
}

/* %v = %v == last ? 0 : %v + 1, as of the stages of a ring. */
static void step_ring(gen *g, uint32_t slot) {
    uint32_t now = gen_slot_expr(g, slot);
    tvm_expr node = {.op = TVM_EXPR_SELECT, .type = TVM_I(32), .b = constant(g, 0)};
    node.a = gen_apply(g, TVM_EXPR_EQ, now, constant(g, g->vars[slot].high));
    node.c = gen_apply(g, TVM_EXPR_ADD, now, constant(g, 1));
    assign(g, slot, gen_node(g, node));
}

static void scalar_statement(gen *g) {
    if (gen_one_in(g, 2)) {
        for (uint32_t s = 0; s < g->kernel->slot_count; s++)
            if (g->kernel->slots[s].kind == TVM_SLOT_SCALAR && g->vars[s].alive && g->vars[s].loose &&
                gen_one_in(g, 2)) {
                step_ring(g, s);
                return;
            }
        uint32_t ring = let(g, constant(g, 0), 0, 1 + gen_below(g, 4));
        g->vars[ring].loose = true;
        return;
    }
    gen_range r = gen_scalar(g, 3);
    let(g, r.expr, r.low, r.high);
}

/* ---- control ---- */

static void begin_if(gen *g) {
    gen_insn insn = gen_begin(TVM_OP_IF);
    gen_put_expr(&insn, gen_condition(g));
    settle(g);
    gen_must(g, &insn);
}

static void condition(gen *g) {
    begin_if(g);
    gen_body(g, 1 + gen_below(g, 3));
    if (gen_one_in(g, 2)) {
        plain(g, TVM_OP_ELSE);
        gen_body(g, 1 + gen_below(g, 2));
    }
    plain(g, TVM_OP_END);
}

/* break, or continue with the next turn, where the condition holds. */
static void jump(gen *g) {
    begin_if(g);
    plain(g, gen_one_in(g, 2) ? TVM_OP_BREAK : TVM_OP_CONTINUE);
    plain(g, TVM_OP_END);
}

static void loop_body(gen *g) {
    uint32_t before = g->kernel->slot_count;
    g->loops++;
    g->depth++;
    for (unsigned i = 1 + gen_below(g, 3); i > 0; i--) {
        gen_statement(g);
        if (gen_one_in(g, 8)) jump(g);
    }
    settle(g);
    g->depth--;
    g->loops--;
    for (uint32_t s = before; s < g->kernel->slot_count && s < GEN_SLOTS; s++)
        if (g->kernel->slots[s].kind != TVM_SLOT_GLOBAL) g->vars[s].alive = false;
}

static void count_loop(gen *g) {
    gen_range start = {constant(g, 0), 0, 0}, end = gen_scalar(g, 1);
    int64_t step = 1 + gen_below(g, 3), turns = 1 + gen_below(g, 4);
    tvm_dtype type = gen_one_in(g, 5) ? TVM_I(64) : TVM_I(32);
    if (gen_one_in(g, 3)) start = gen_scalar(g, 1);
    if (end.high - start.low > turns * step || gen_one_in(g, 2)) {
        end.expr = gen_apply(g, TVM_EXPR_ADD, start.expr, constant(g, turns * step - gen_below(g, 2)));
        end.high = start.high + turns * step;
    }
    gen_insn insn = gen_begin(TVM_OP_FOR);
    gen_put_expr(&insn, gen_cast(g, type, start.expr));
    gen_put_expr(&insn, gen_cast(g, type, end.expr));
    gen_put_expr(&insn, gen_integer(g, type, step));
    gen_put_const(&insn, gen_one_in(g, 3) ? 1 + gen_below(g, 4) : 1);
    gen_put_none(&insn);
    settle(g);
    uint32_t i = gen_must(g, &insn);
    int64_t last = end.high > start.low ? end.high - 1 : start.low;
    g->vars[i] = (gen_var){.alive = true, .whole = type.bits == 32, .low = start.low, .high = last};
    loop_body(g);
    g->vars[i].alive = false;
    plain(g, TVM_OP_END);
}

static void while_loop(gen *g) {
    int64_t turns = 1 + gen_below(g, 4);
    uint32_t left = let(g, constant(g, turns), 0, turns);
    gen_insn insn = gen_begin(TVM_OP_WHILE);
    gen_put_expr(&insn, gen_apply(g, TVM_EXPR_GT, gen_slot_expr(g, left), constant(g, 0)));
    settle(g);
    gen_must(g, &insn);
    assign(g, left, gen_apply(g, TVM_EXPR_SUB, gen_slot_expr(g, left), constant(g, 1)));
    loop_body(g);
    plain(g, TVM_OP_END);
}

/* ---- reports ---- */

static uint32_t text(gen *g, const char *words) {
    return tvm_ir_program_string(g->program, words, strlen(words));
}

/* What never comes about. */
static void report(gen *g) {
    gen_range r = gen_scalar(g, 2);
    uint32_t high = constant(g, r.high);
    bool traps = gen_one_in(g, 2);
    gen_insn insn = gen_begin(traps ? TVM_OP_TRAP : TVM_OP_ASSERT);
    if (traps) {
        gen_insn begin = gen_begin(TVM_OP_IF);
        gen_put_expr(&begin, gen_apply(g, TVM_EXPR_GT, r.expr, high));
        settle(g);
        gen_must(g, &begin);
    } else {
        gen_put_expr(&insn, gen_apply(g, TVM_EXPR_LE, r.expr, high));
    }
    if (gen_one_in(g, 2))
        insn.operands[insn.count++] = (tvm_operand){TVM_OPERAND_STRING, text(g, "not so")};
    else
        gen_put_none(&insn);
    gen_must(g, &insn);
    if (traps) plain(g, TVM_OP_END);
}

static void print(gen *g) {
    gen_insn insn = gen_begin(TVM_OP_PRINTF);
    uint32_t tensor = gen_register(g);
    if (tensor != TVM_NONE && gen_one_in(g, 2)) {
        insn = gen_begin(TVM_OP_PRINT_TENSOR);
        gen_put_slot(&insn, tensor);
    } else {
        insn.operands[insn.count++] = (tvm_operand){TVM_OPERAND_STRING, text(g, "{} of {}")};
        gen_put_const(&insn, 2);
        gen_put_expr(&insn, gen_scalar(g, 2).expr);
        gen_put_expr(&insn, gen_slot_expr(g, g->scalar_f32));
    }
    gen_must(g, &insn);
}

void gen_statement(gen *g) {
    unsigned way = gen_below(g, 40);
    if (g->failed || g->kernel->slot_count > GEN_SLOTS - 40) return;
    if (way < 18)
        gen_compute(g);
    else if (way < 26)
        gen_memory(g);
    else if (way < 28)
        scalar_statement(g);
    else if (way < 30)
        gen_mma(g);
    else if (way == 30)
        report(g);
    else if (way == 31)
        plain(g, TVM_OP_SYNC_WARP);
    else if (way == 32 && g->options->prints)
        print(g);
    else if (way < 36 && g->depth < GEN_DEPTH && g->loops < 2)
        count_loop(g);
    else if (way == 36 && g->depth < GEN_DEPTH && g->loops < 2)
        while_loop(g);
    else if (way == 37 && g->depth < GEN_DEPTH)
        condition(g);
    else if (way == 38) {
        uint32_t slot = gen_register(g);
        if (slot != TVM_NONE) gen_store_output(g, slot);
    } else
        gen_compute(g);
}
