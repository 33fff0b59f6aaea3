/* Pipelined loops to plain ones, before anything else looks at the kernels. */
#include "pipeline_lower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "pipeline.h"
#include "shared_plan.h"
#include "verify.h"

typedef struct lowering {
    tvm_ir_program *program;   /* the copy: what is written to */
    const tvm_ir_kernel *from; /* as it was */
    tvm_ir_kernel *to;
    tvm_pipeline loop; /* the one being written out; its END is 0 outside of any */
    bool *ahead;       /* tvm_pipeline_find */
    uint32_t *renamed; /* by slot: the scalar that stands for it in what is done ahead; TVM_NONE: itself */
    uint32_t stage;    /* the scalar: which tile of the rings the turn has */
    uint32_t tile;     /* expression: the tile that tensors of the rings are read or written in here */
    unsigned loops;    /* pipelined ones written out so far */
    unsigned depth;    /* of the control around what is being written */
    bool failed;
} lowering;

/* ---- building ---- */

static uint32_t node(lowering *l, tvm_expr expr) {
    uint32_t index = tvm_ir_kernel_expr(l->to, &expr);
    if (index == TVM_NONE) l->failed = true;
    return index;
}

static uint32_t constant(lowering *l, tvm_dtype type, int64_t value) {
    return node(l, (tvm_expr){.op = TVM_EXPR_INTEGER, .type = type, .value.i = value});
}

static uint32_t value_of(lowering *l, uint32_t slot) {
    return node(l, (tvm_expr){.op = TVM_EXPR_SLOT, .type = l->to->slots[slot].dtype, .a = slot});
}

static uint32_t binary(lowering *l, tvm_expr_op op, tvm_dtype type, uint32_t a, uint32_t b) {
    return node(l, (tvm_expr){.op = (uint8_t)op, .type = type, .a = a, .b = b});
}

static void insert(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t result,
                   const tvm_operand *operands, uint32_t count) {
    tvm_insn insn = {.op = (uint16_t)op, .result = result, .file = place->file, .line = place->line};
    if (!l->failed && tvm_ir_kernel_add_insn(l->to, &insn, operands, count) == TVM_NONE) l->failed = true;
}

static void let(lowering *l, const tvm_insn *place, uint32_t slot, uint32_t expr) {
    insert(l, place, TVM_OP_LET, slot, &(tvm_operand){TVM_OPERAND_EXPR, expr}, 1);
}

static void numbered(lowering *l, const tvm_insn *place, tvm_opcode op, uint32_t number) {
    insert(l, place, op, TVM_NONE, &(tvm_operand){TVM_OPERAND_CONST, number}, 1);
}

static bool is_taken(const lowering *l, const char *name) {
    for (uint32_t s = 0; s < l->to->slot_count; s++)
        if (strcmp(tvm_string(l->program, l->to->slots[s].name), name) == 0) return true;
    return false;
}

/* A scalar with a name that no other variable has: `like`, or stage, and a number. */
static uint32_t new_scalar(lowering *l, const char *like, tvm_dtype type) {
    char name[TVM_MAX_NAME + 1];
    unsigned number = l->loops;
    do snprintf(name, sizeof name, "%.200s_ahead%u", like, number++);
    while (is_taken(l, name));
    uint32_t string = tvm_ir_program_string(l->program, name, strlen(name));
    tvm_slot slot = {.name = string, .kind = TVM_SLOT_SCALAR, .dtype = type, .layout = TVM_NONE};
    uint32_t index = string == TVM_NONE ? TVM_NONE : tvm_ir_kernel_add_slot(l->to, &slot);
    if (index == TVM_NONE) l->failed = true;
    return index == TVM_NONE ? 0 : index;
}

/* ---- rings ---- */

static bool is_ring(const lowering *l, uint32_t slot) {
    return l->loop.end != 0 && tvm_pipeline_fills(&l->loop, slot);
}

/* The tensor's layout with the stages in front, each at a whole period of the swizzle and of what wgmma and
 * bulk copies ask of an address. */
static void make_ring(lowering *l, uint32_t slot, uint32_t stages) {
    tvm_slot *tensor = &l->to->slots[slot];
    const tvm_shared_layout *tile = &l->program->shared_layouts[tensor->layout];
    uint32_t shape[TVM_MAX_RANK] = {stages}, size[TVM_MAX_MODES] = {stages}, stride[TVM_MAX_MODES];
    unsigned period = tile->swizzle_bits ? tile->swizzle_base + tile->swizzle_shift + tile->swizzle_bits : 0;
    uint64_t align = tvm_shared_tensor_alignment(tile, tensor->dtype.bits) * 8 / tensor->dtype.bits;
    if (align < UINT64_C(1) << period) align = UINT64_C(1) << period;
    tvm_shared_layout ring;
    memcpy(shape + 1, tile->shape, tile->rank * sizeof *shape);
    memcpy(size + 1, tile->mode_size, tile->modes * sizeof *size);
    memcpy(stride + 1, tile->mode_stride, tile->modes * sizeof *stride);
    stride[0] = (uint32_t)tvm_round_up(tvm_shared_layout_span(tile), align);
    if (tile->modes == TVM_MAX_MODES ||
        tvm_shared_layout_make(tile->rank + 1U, shape, tile->modes + 1U, size, stride, tile->swizzle_base,
                               tile->swizzle_bits, tile->swizzle_shift, &ring, NULL) != TVM_OK)
        l->failed = true;
    else
        tensor->layout = tvm_ir_program_shared_layout(l->program, &ring);
    if (tensor->layout == TVM_NONE) l->failed = true;
}

/* ---- instructions as they were, in another tile and with other scalars ---- */

/* The limit on the size of a tree bounds the recursion. */
static uint32_t renamed_expr(lowering *l, uint32_t expr) {
    tvm_expr copy = l->from->exprs[expr];
    unsigned arity = tvm_expr_op_info(copy.op)->arity;
    if (copy.op == TVM_EXPR_SLOT && l->renamed[copy.a] != TVM_NONE) return value_of(l, l->renamed[copy.a]);
    uint32_t *children[3] = {&copy.a, &copy.b, &copy.c};
    bool changed = false;
    for (unsigned i = 0; i < arity; i++) {
        uint32_t child = renamed_expr(l, *children[i]);
        changed = changed || child != *children[i];
        *children[i] = child;
    }
    return changed ? node(l, copy) : expr;
}

static void copy_insn(lowering *l, const tvm_insn *insn) {
    tvm_operand operands[TVM_INSN_OPERANDS + TVM_MAX_RANK];
    const tvm_operand *old = tvm_operands(l->from, insn);
    uint32_t count = 0;
    for (uint32_t o = 0; o < insn->count && count + 2 < TVM_INSN_OPERANDS + TVM_MAX_RANK; o++) {
        operands[count] = old[o];
        if (old[o].kind == TVM_OPERAND_EXPR) operands[count].value = renamed_expr(l, old[o].value);
        count++;
        if (old[o].kind == TVM_OPERAND_SLOT && is_ring(l, old[o].value))
            operands[count++] = (tvm_operand){TVM_OPERAND_EXPR, l->tile};
    }
    uint32_t result = insn->result;
    if (result != TVM_NONE && l->renamed[result] != TVM_NONE) result = l->renamed[result];
    insert(l, insn, (tvm_opcode)insn->op, result, operands, count);
}

/* ---- a loop ---- */

typedef struct bounds {
    tvm_dtype type;
    uint32_t start, end; /* expressions */
    int64_t step;
    uint32_t ahead; /* the scalar: the loop's variable in the turn that is being copied */
} bounds;

/* A scalar in place of an expression that the body may change: a loop reads its end once. */
static uint32_t fixed(lowering *l, const tvm_insn *insn, uint32_t expr) {
    if (!(tvm_expr_leaves(l->from, expr) & TVM_LEAF_VARIABLE)) return expr;
    uint32_t slot = new_scalar(l, "bound", l->from->exprs[expr].type);
    let(l, insn, slot, expr);
    return value_of(l, slot);
}

/* Those of a turn, to the tile. */
static void write_copies(lowering *l, const bounds *b, uint32_t tile) {
    l->tile = tile;
    l->renamed[l->from->insns[l->loop.loop].result] = b->ahead;
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++)
        if (l->ahead[i]) copy_insn(l, &l->from->insns[i]);
    l->renamed[l->from->insns[l->loop.loop].result] = TVM_NONE;
}

/* Scalars that are computed ahead have another name there. */
static void rename_ahead(lowering *l, bool on) {
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++) {
        uint32_t slot = l->from->insns[i].result;
        if (!l->ahead[i] || slot == TVM_NONE) continue;
        l->renamed[slot] =
            on ? new_scalar(l, tvm_string(l->program, l->to->slots[slot].name), l->to->slots[slot].dtype)
               : TVM_NONE;
    }
}

/* `if` %ahead is a turn's: `above` it, without having wrapped, and below the end. */
static void open_if(lowering *l, const tvm_insn *insn, const bounds *b, uint32_t above, bool wraps) {
    uint32_t ahead = value_of(l, b->ahead);
    uint32_t inside = binary(l, TVM_EXPR_LT, TVM_BOOL, ahead, b->end);
    if (wraps)
        inside = binary(l, TVM_EXPR_LAND, TVM_BOOL, binary(l, TVM_EXPR_GT, TVM_BOOL, ahead, above), inside);
    insert(l, insn, TVM_OP_IF, TVM_NONE, &(tvm_operand){TVM_OPERAND_EXPR, inside}, 1);
}

static uint32_t sum(lowering *l, tvm_dtype type, uint32_t expr, int64_t more) {
    const tvm_expr *to = &l->to->exprs[expr];
    if (to->op == TVM_EXPR_INTEGER) {
        tvm_scalar value = {.i = (int64_t)((uint64_t)to->value.i + (uint64_t)more)};
        return constant(l, type, tvm_scalar_cast(type, TVM_I(64), value).i);
    }
    return more == 0 ? expr : binary(l, TVM_EXPR_ADD, type, expr, constant(l, type, more));
}

static void write_prologue(lowering *l, const tvm_insn *insn, const bounds *b) {
    rename_ahead(l, true);
    for (uint32_t s = 0; s + 1 < l->loop.stages; s++) {
        let(l, insn, b->ahead, sum(l, b->type, b->start, (int64_t)s * b->step));
        open_if(l, insn, b, b->start, s > 0);
        write_copies(l, b, constant(l, TVM_I(32), s));
        insert(l, insn, TVM_OP_END, TVM_NONE, NULL, 0);
        insert(l, insn, TVM_OP_COMMIT_GROUP, TVM_NONE, NULL, 0);
    }
}

/* The tile that was read in the turn before. */
static uint32_t tile_before(lowering *l) {
    tvm_dtype type = TVM_I(32);
    uint32_t stage = value_of(l, l->stage);
    uint32_t is_first = binary(l, TVM_EXPR_EQ, TVM_BOOL, stage, constant(l, type, 0));
    uint32_t before = binary(l, TVM_EXPR_SUB, type, stage, constant(l, type, 1));
    return node(l, (tvm_expr){.op = TVM_EXPR_SELECT,
                              .type = type,
                              .a = is_first,
                              .b = constant(l, type, l->loop.stages - 1),
                              .c = before});
}

static uint32_t tile_after(lowering *l) {
    tvm_dtype type = TVM_I(32);
    uint32_t stage = value_of(l, l->stage);
    uint32_t is_last = binary(l, TVM_EXPR_EQ, TVM_BOOL, stage, constant(l, type, l->loop.stages - 1));
    uint32_t after = binary(l, TVM_EXPR_ADD, type, stage, constant(l, type, 1));
    return node(
        l,
        (tvm_expr){.op = TVM_EXPR_SELECT, .type = type, .a = is_last, .b = constant(l, type, 0), .c = after});
}

/* The head of a turn: its own copies are done, those of a later one begin. */
static void write_head(lowering *l, const tvm_insn *insn, const bounds *b) {
    uint32_t turn = value_of(l, insn->result), stages = l->loop.stages;
    if (stages > 1) numbered(l, insn, TVM_OP_WAIT_GROUP, stages - 2);
    insert(l, insn, TVM_OP_SYNC, TVM_NONE, NULL, 0);
    let(l, insn, b->ahead, sum(l, b->type, turn, (int64_t)(stages - 1) * b->step));
    if (stages > 1) open_if(l, insn, b, turn, true);
    write_copies(l, b, stages > 1 ? tile_before(l) : constant(l, TVM_I(32), 0));
    if (stages > 1) insert(l, insn, TVM_OP_END, TVM_NONE, NULL, 0);
    insert(l, insn, TVM_OP_COMMIT_GROUP, TVM_NONE, NULL, 0);
    if (stages > 1) return;
    numbered(l, insn, TVM_OP_WAIT_GROUP, 0);
    insert(l, insn, TVM_OP_SYNC, TVM_NONE, NULL, 0);
}

static void write_body(lowering *l) {
    rename_ahead(l, false);
    l->tile = value_of(l, l->stage);
    for (uint32_t i = l->loop.loop + 1; i < l->loop.end; i++)
        if (l->from->insns[i].op != TVM_OP_COPY_ASYNC) copy_insn(l, &l->from->insns[i]);
}

static void write_loop(lowering *l, uint32_t at) {
    const tvm_insn *insn = &l->from->insns[at];
    const tvm_operand *operands = tvm_operands(l->from, insn);
    uint32_t wrong;
    memset(l->ahead, 0, l->from->insn_count * sizeof *l->ahead);
    if (tvm_pipeline_find(l->program, l->from, at, &l->loop, l->ahead, &wrong, NULL) != TVM_OK) {
        l->failed = true;
        return;
    }
    bounds b = {.type = l->from->slots[insn->result].dtype,
                .step = l->from->exprs[operands[2].value].value.i};
    b.start = fixed(l, insn, operands[0].value);
    b.end = fixed(l, insn, operands[1].value);
    b.ahead = new_scalar(l, tvm_string(l->program, l->from->slots[insn->result].name), b.type);
    l->stage = new_scalar(l, "stage", TVM_I(32));
    /* The rings' last tiles may still be read. */
    if (l->loops++ > 0 || l->depth > 0) insert(l, insn, TVM_OP_SYNC, TVM_NONE, NULL, 0);
    write_prologue(l, insn, &b);
    let(l, insn, l->stage, constant(l, TVM_I(32), 0));
    tvm_operand loop[TVM_FOR_PIPELINE + 1] = {
        {TVM_OPERAND_EXPR, b.start}, {TVM_OPERAND_EXPR, b.end}, operands[2], operands[3]};
    insert(l, insn, TVM_OP_FOR, insn->result, loop, TVM_FOR_PIPELINE + 1);
    write_head(l, insn, &b);
    write_body(l);
    let(l, insn, l->stage, tile_after(l));
    insert(l, insn, TVM_OP_END, TVM_NONE, NULL, 0);
    l->loop.end = 0;
}

/* ---- kernels ---- */

static bool has_pipelines(const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_pipeline_stages(kernel, &kernel->insns[i])) return true;
    return false;
}

/* Every ring before the first instruction that allocates one. */
static void make_rings(lowering *l) {
    for (uint32_t i = 0; i < l->from->insn_count && !l->failed; i++) {
        uint32_t wrong;
        if (!tvm_pipeline_stages(l->from, &l->from->insns[i])) continue;
        if (tvm_pipeline_find(l->program, l->from, i, &l->loop, l->ahead, &wrong, NULL) != TVM_OK)
            l->failed = true;
        for (uint32_t t = 0; t < l->loop.tensor_count && !l->failed; t++) {
            const tvm_slot *old = &l->from->slots[l->loop.tensors[t]],
                           *new = &l->to->slots[l->loop.tensors[t]];
            if (old->layout == new->layout) make_ring(l, l->loop.tensors[t], l->loop.stages);
        }
    }
    l->loop.end = 0;
}

static bool lower_kernel(tvm_ir_program *program, const tvm_ir_kernel *from, tvm_ir_kernel *to) {
    lowering l = {.program = program, .from = from, .to = to};
    l.ahead = calloc(from->insn_count, sizeof *l.ahead);
    l.renamed = malloc((size_t)TVM_MAX_SLOTS * sizeof *l.renamed);
    l.failed = !l.ahead || !l.renamed;
    if (l.renamed) memset(l.renamed, 0xff, (size_t)TVM_MAX_SLOTS * sizeof *l.renamed);
    to->insn_count = to->operand_count = 0;
    if (!l.failed) make_rings(&l);
    for (uint32_t i = 0; i < from->insn_count && !l.failed; i++) {
        if (tvm_pipeline_stages(from, &from->insns[i])) {
            write_loop(&l, i);
            i = from->insns[i].match;
        } else {
            tvm_op_class class = tvm_insn_class(&from->insns[i]);
            l.depth += tvm_class_opens(class);
            l.depth -= class == TVM_CLASS_END;
            copy_insn(&l, &from->insns[i]);
        }
    }
    free(l.ahead);
    free(l.renamed);
    return !l.failed;
}

tvm_status tvm_pipelines_lower(const tvm_ir_program *program, tvm_ir_program **lowered, tvm_diags *diags) {
    bool any = false;
    *lowered = NULL;
    for (uint32_t k = 0; k < program->kernel_count && !any; k++) any = has_pipelines(&program->kernels[k]);
    if (!any) return TVM_OK;
    tvm_ir_program *copy = tvm_ir_program_clone_kernels(program);
    if (!copy) return tvm_diag_no_memory(diags);
    tvm_status status = TVM_OK;
    for (uint32_t k = 0; k < program->kernel_count && status == TVM_OK; k++)
        if (has_pipelines(&program->kernels[k]) &&
            !lower_kernel(copy, &program->kernels[k], &copy->kernels[k]))
            status = tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "use fewer or shorter pipelined loops",
                                  "kernel '%s' is too long once its pipelined loops are written out",
                                  tvm_string(program, program->kernels[k].name));
    if (status == TVM_OK) status = tvm_verify(copy, diags);
    if (status == TVM_OK)
        *lowered = copy;
    else
        tvm_ir_program_free(copy);
    return status;
}
