/* A whole program: its parameters, its statements, and what becomes of their results. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

#include "assembler.h"

static uint32_t scalar_param(gen *g, const char *name, tvm_dtype type) {
    tvm_slot slot = {.name = tvm_ir_program_string(g->program, name, strlen(name)),
                     .kind = TVM_SLOT_SCALAR,
                     .dtype = type,
                     .layout = TVM_NONE};
    uint32_t index = tvm_ir_kernel_add_slot(g->kernel, &slot);
    if (index == TVM_NONE) g->failed = true;
    g->vars[index] = (gen_var){.alive = true};
    return index;
}

/* 8, 40 or 64: see arguments.c. */
static void choose_assumptions(gen *g) {
    uint32_t n = gen_slot_expr(g, g->scalar_i32), zero = gen_integer(g, TVM_I(32), 0);
    g->vars[g->scalar_i32].whole = true;
    g->vars[g->scalar_i32].low = 8;
    g->vars[g->scalar_i32].high = 64;
    if (gen_one_in(g, 2)) tvm_ir_kernel_add_assume(g->kernel, gen_apply(g, TVM_EXPR_GT, n, zero));
    if (gen_one_in(g, 2))
        tvm_ir_kernel_add_assume(g->kernel, gen_apply(g, TVM_EXPR_LE, n, gen_integer(g, TVM_I(32), 64)));
    if (gen_one_in(g, 2)) {
        uint32_t rest = gen_apply(g, TVM_EXPR_MOD, n, gen_integer(g, TVM_I(32), 8));
        tvm_ir_kernel_add_assume(g->kernel, gen_apply(g, TVM_EXPR_EQ, rest, zero));
    }
}

static void choose_shapes(gen *g) {
    static const uint32_t extents[] = {1, 2, 3, 4, 8, 16, 32, 5, 6, 12, 24, 64, 8, 16, 4, 32};
    for (unsigned s = 0; s < GEN_SHAPES; s++) {
        uint32_t elements = 1, most = gen_locals(g) / 2 * tvm_team_threads(g->team);
        g->shapes[s].rank = 1 + gen_below(g, 3);
        for (unsigned d = 0; d < g->shapes[s].rank; d++) {
            uint32_t extent = extents[gen_below(g, 16)];
            while (elements * extent > most) extent = extent / 2 ? extent / 2 : 1;
            g->shapes[s].extent[d] = extent;
            elements *= extent;
        }
        if (s > 0 && gen_one_in(g, 2)) g->shapes[s] = g->shapes[0];
    }
}

/* So many; now and then with what machines differ in, so that it makes no difference. */
static uint32_t blocks(gen *g, uint32_t count) {
    uint32_t number = gen_integer(g, TVM_I(32), count);
    if (!gen_one_in(g, 6)) return number;
    unsigned what = gen_below(g, 4);
    if (what == 0) {
        uint32_t has = gen_node(
            g, (tvm_expr){.op = TVM_EXPR_HAS, .type = TVM_BOOL, .a = gen_below(g, TVM_CAPABILITY_COUNT)});
        return gen_node(
            g, (tvm_expr){.op = TVM_EXPR_SELECT, .type = TVM_I(32), .a = has, .b = number, .c = number});
    }
    if (what == 1) {
        uint32_t found = gen_node(g, (tvm_expr){.op = TVM_EXPR_MULTIPROCESSORS, .type = TVM_I(32)});
        return gen_apply(g, TVM_EXPR_MUL, number,
                         gen_apply(g, TVM_EXPR_MIN, found, gen_integer(g, TVM_I(32), 1)));
    }
    /* The interpreter's target is 0, and so are its limits. */
    tvm_expr leaf = {.op = what == 2 ? TVM_EXPR_TARGET : TVM_EXPR_LIMIT, .type = TVM_I(32)};
    if (what == 3) leaf.a = gen_below(g, TVM_LIMIT_COUNT);
    uint32_t least = gen_apply(g, TVM_EXPR_MIN, gen_node(g, leaf), gen_integer(g, TVM_I(32), 0));
    return gen_apply(g, TVM_EXPR_ADD, number, least);
}

static void begin(gen *g) {
    static const uint32_t warps[] = {1, 1, 2, 4, 4, 3, 8, 2};
    g->program = tvm_ir_program_new();
    if (g->program == NULL) abort();
    g->type_count = (unsigned)tvm_dtype_list(g->types, TVM_DTYPE_COUNT_MAX);
    tvm_ir_program_add_kernel(g->program, tvm_ir_program_string(g->program, "k", 1));
    g->kernel = &g->program->kernels[0];
    g->kernel->warps = warps[gen_below(g, 8)];
    g->team = tvm_block_team(g->kernel);
    g->scalar_i32 = scalar_param(g, "n", TVM_I(32));
    g->scalar_i64 = scalar_param(g, "c", TVM_I(64));
    g->scalar_u32 = scalar_param(g, "d", TVM_U(32));
    g->scalar_f32 = scalar_param(g, "f", TVM_F32);
    g->scalar_f64 = scalar_param(g, "e", TVM_F64);
    g->scalar_bool = scalar_param(g, "t", TVM_BOOL);
    bool clusters = g->options->clusters && gen_one_in(g, 4);
    g->blocks = clusters ? 2 : 1 + gen_below(g, GEN_BLOCKS);
    g->axis = clusters || gen_one_in(g, 3) ? gen_below(g, 3) : 0;
    if (clusters) g->kernel->cluster[g->axis] = 2;
    for (unsigned d = 0; d <= g->axis; d++) g->kernel->grid[d] = blocks(g, d == g->axis ? g->blocks : 1);
    choose_assumptions(g);
    choose_shapes(g);
}

static void plain(gen *g, unsigned op) {
    gen_insn insn = gen_begin(op);
    gen_must(g, &insn);
}

/* Ends every block, or none. */
static void maybe_exit(gen *g) {
    gen_insn insn = gen_begin(TVM_OP_IF);
    gen_put_expr(&insn, gen_condition(g));
    gen_must(g, &insn);
    plain(g, TVM_OP_EXIT);
    plain(g, TVM_OP_END);
}

static void statements(gen *g) {
    static void (*const special[])(gen *) = {gen_between_blocks, gen_pipeline, gen_bulk, gen_roles,
                                             gen_cluster};
    unsigned count = g->options->small ? 1 + gen_below(g, 5) : 3 + gen_below(g, 14);
    bool waits = gen_one_in(g, 8), clusters = g->kernel->cluster[g->axis] > 1;
    if (waits) plain(g, TVM_OP_WAIT_DEPENDENCY);
    tvm_layout layout;
    for (unsigned i = 0; i < 2; i++)
        if (gen_layout(g, g->shapes[i].rank, g->shapes[i].extent, &layout))
            gen_load_input(g, gen_one_in(g, 4) ? "small" : "raw", gen_dtype(g), &layout);
    for (unsigned i = gen_below(g, 3); i > 0; i--) gen_alloc_shared(g);
    unsigned last = gen_below(g, count + 1), with = gen_below(g, 3) ? 0 : gen_below(g, 5) + 1;
    for (unsigned i = 0; i < count && !g->failed && !g->ended; i++) {
        if (i == last && with) special[with - 1](g);
        if (i == last && clusters && !g->ended) gen_cluster(g);
        if (g->ended) break;
        if (gen_one_in(g, 40)) plain(g, TVM_OP_LAUNCH_DEPENDENTS);
        gen_statement(g);
    }
    if (!clusters && !g->ended && gen_one_in(g, 12)) maybe_exit(g);
}

void gen_store_results(gen *g) {
    for (uint32_t s = g->kernel->slot_count; s-- > 0 && g->params < GEN_PARAMS - 1;)
        if (g->kernel->slots[s].kind == TVM_SLOT_REGISTER && g->vars[s].alive && g->vars[s].units == 0)
            gen_store_output(g, s);
}

/* ---- parameters first ---- */

static void renumber(gen *g, const uint32_t *to) {
    tvm_ir_kernel *k = g->kernel;
    for (uint32_t i = 0; i < k->operand_count; i++)
        if (k->operands[i].kind == TVM_OPERAND_SLOT) k->operands[i].value = to[k->operands[i].value];
    for (uint32_t i = 0; i < k->insn_count; i++)
        if (k->insns[i].result != TVM_NONE) k->insns[i].result = to[k->insns[i].result];
    for (uint32_t i = 0; i < k->expr_count; i++)
        if (k->exprs[i].op == TVM_EXPR_SLOT) k->exprs[i].a = to[k->exprs[i].a];
}

static bool is_param(const gen *g, uint32_t s) {
    const tvm_slot *slot = &g->kernel->slots[s];
    if (s <= g->scalar_bool) return true;
    return slot->kind == TVM_SLOT_GLOBAL && tvm_string(g->program, slot->name)[0] != 'v';
}

static void params_first(gen *g) {
    uint32_t to[GEN_SLOTS], count = g->kernel->slot_count, next = 0;
    tvm_slot *slots = malloc(count * sizeof *slots);
    if (slots == NULL) abort();
    for (unsigned params = 2; params-- > 0;)
        for (uint32_t s = 0; s < count; s++)
            if (is_param(g, s) == (params == 1)) {
                slots[next] = g->kernel->slots[s];
                to[s] = next++;
                if (params) g->kernel->param_count = next;
            }
    memcpy(g->kernel->slots, slots, count * sizeof *slots);
    free(slots);
    renumber(g, to);
}

/* ---- the text ---- */

static void note_first(const tvm_diags *diags, tvm_why *why) {
    if (why && diags->count) snprintf(why->text, sizeof why->text, "%.190s", diags->items[0].message);
}

char *generate_program(uint64_t seed, const generate_options *options, tvm_why *why) {
    gen *g = calloc(1, sizeof *g);
    if (g == NULL) abort();
    char *text = NULL;
    tvm_diags diags = {0};
    g->state = seed;
    g->options = options;
    begin(g);
    statements(g);
    if (!g->ended) gen_store_results(g);
    if (why) snprintf(why->text, sizeof why->text, "what was to be right is not");
    if (!g->failed && g->kernel->slot_count < GEN_SLOTS) {
        params_first(g);
        if (tvm_verify(g->program, &diags) != TVM_OK ||
            tvm_disassemble(g->program, &text, &diags) != TVM_OK) {
            note_first(&diags, why);
            text = NULL;
        }
    }
    if (text && options->made) options->made(options->data, g->program);
    tvm_diags_free(&diags);
    tvm_ir_program_free(g->program);
    free(g);
    return text;
}
