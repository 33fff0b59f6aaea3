/* Instructions: any row that computes registers, its operands chosen by their kinds; what of that is right,
 * the rules say. */
#include "math_reference.h"
#include "state.h"

#include <stdio.h>
#include <string.h>

/* ---- building ---- */

gen_insn gen_begin(unsigned op) {
    return (gen_insn){.op = op};
}

static void put(gen_insn *insn, uint32_t kind, uint32_t value) {
    if (insn->count < GEN_OPERANDS) insn->operands[insn->count++] = (tvm_operand){kind, value};
}

void gen_put_slot(gen_insn *insn, uint32_t slot) {
    put(insn, TVM_OPERAND_SLOT, slot);
}
void gen_put_expr(gen_insn *insn, uint32_t expr) {
    put(insn, TVM_OPERAND_EXPR, expr);
}
void gen_put_const(gen_insn *insn, uint32_t value) {
    put(insn, TVM_OPERAND_CONST, value);
}
void gen_put_none(gen_insn *insn) {
    put(insn, TVM_OPERAND_NONE, 0);
}
void gen_put_list(gen_insn *insn, unsigned count, const uint32_t *values) {
    gen_put_const(insn, count);
    for (unsigned i = 0; i < count; i++) gen_put_const(insn, values[i]);
}

static uint32_t slot_of_type(gen *g, const tvm_result_type *type) {
    tvm_slot slot = {.name = gen_name(g, "v"),
                     .kind = (uint8_t)type->kind,
                     .dtype = type->dtype,
                     .packing = (uint8_t)type->packing,
                     .layout = TVM_NONE};
    if (type->kind == TVM_SLOT_REGISTER) slot.layout = tvm_ir_program_layout(g->program, &type->layout);
    if (tvm_slot_has_places(type->kind))
        slot.layout = tvm_ir_program_shared_layout(g->program, &type->shared_layout);
    if (type->kind == TVM_SLOT_GLOBAL) {
        slot.rank = (uint8_t)type->rank;
        slot.form = (uint8_t)type->form;
        memcpy(slot.shape, type->shape, sizeof slot.shape);
        memcpy(slot.stride, type->stride, sizeof slot.stride);
    }
    uint32_t index = tvm_ir_kernel_add_slot(g->kernel, &slot);
    if (index < GEN_SLOTS) return index;
    g->failed = true;
    return 0;
}

bool gen_take(gen *g, gen_insn *made, uint32_t *result) {
    tvm_why why;
    tvm_insn insn = {.op = (uint16_t)made->op,
                     .result = TVM_NONE,
                     .count = made->count,
                     .match = TVM_NONE,
                     .file = TVM_NONE};
    if (g->failed || made->count >= GEN_OPERANDS) return false;
    if (tvm_infer(g->program, g->kernel, g->team, &insn, made->operands, &made->type, &why) != TVM_OK)
        return false;
    if (made->type.kind == TVM_SLOT_REGISTER && tvm_layout_locals(&made->type.layout) > 4 * GEN_LOCALS)
        return false;
    if (made->type.kind != TVM_SLOT_NONE) {
        bool given = result && *result != TVM_NONE;
        insn.result = given ? *result : slot_of_type(g, &made->type);
        if (!given) g->vars[insn.result] = (gen_var){.alive = true};
        if (result) *result = insn.result;
    }
    if (tvm_ir_kernel_add_insn(g->kernel, &insn, made->operands, made->count) == TVM_NONE) g->failed = true;
    if (made->op == TVM_OP_VIEW_GLOBAL || made->op == TVM_OP_VIEW_SHARED)
        g->kernel->slots[insn.result].view = g->kernel->insn_count;
    return !g->failed;
}

uint32_t gen_must(gen *g, gen_insn *insn) {
    uint32_t result = TVM_NONE;
    if (!gen_take(g, insn, &result)) g->failed = true;
    return result == TVM_NONE ? 0 : result;
}

uint32_t gen_fresh(gen *g, tvm_dtype type, const tvm_layout *layout) {
    gen_insn insn = gen_begin(TVM_OP_ALLOC_REGISTER);
    int value = (int)gen_below(g, 4);
    insn.type = (tvm_result_type){.dtype = type, .has_layout = true, .layout = *layout};
    gen_put_expr(&insn, gen_integer(g, TVM_I(32), value));
    uint32_t slot = gen_must(g, &insn);
    bool plain = !tvm_dtype_is_lowbit(type) || type.bits == 8;
    g->vars[slot] = (gen_var){.alive = true, .exact_bits = true, .whole = plain, .high = value};
    return slot;
}

/* ---- what is known of a result ---- */

static bool moves_elements(unsigned op) {
    switch (op) {
    case TVM_OP_RELAYOUT:
    case TVM_OP_TRANSPOSE:
    case TVM_OP_RESHAPE:
    case TVM_OP_SQUEEZE:
    case TVM_OP_UNSQUEEZE:
    case TVM_OP_SLICE:
    case TVM_OP_INSERT:
    case TVM_OP_CONCAT:
    case TVM_OP_REPEAT:
    case TVM_OP_REPEAT_INTERLEAVE:
    case TVM_OP_SHIFT:
        return true;
    default:
        return false;
    }
}

/* How far off a function may be on a GPU, in units of the last place: what the tests of functions allow,
 * rounded up; of those that have an interval, whose arguments may be a little beyond it, more. */
static unsigned function_units(unsigned op, tvm_dtype type, bool fast) {
    enum { NEAR_INTERVAL = 64 };
    unsigned t = type.bits == 16 ? type.exponent == 8 : 2;
    for (size_t i = 0; i < MATH_ROWS; i++) {
        const math_row *row = &math_rows[i];
        if (row->fast != fast || strcmp(row->name, tvm_op(op)->mnemonic) != 0) continue;
        if (row->beyond > 0 || row->absolute > 0) return NEAR_INTERVAL;
        return row->units[t] > 0.5 ? (unsigned)row->units[t] + 1 : 0;
    }
    return 0;
}

static void note_result(gen *g, const gen_insn *insn, uint32_t result, bool fast) {
    gen_var *v = &g->vars[result];
    tvm_dtype type = g->kernel->slots[result].dtype;
    bool has_nan = type.kind == TVM_KIND_FLOAT && tvm_float_has_nan(type);
    *v = (gen_var){.alive = true, .exact_bits = true, .whole = true};
    for (uint32_t i = 0; i < insn->count; i++) {
        if (insn->operands[i].kind != TVM_OPERAND_SLOT) continue;
        const gen_var *source = &g->vars[insn->operands[i].value];
        v->exact_bits = v->exact_bits && source->exact_bits;
        v->whole = v->whole && source->whole;
        if (source->high > v->high) v->high = source->high;
    }
    if (!moves_elements(insn->op)) v->whole = false;
    if (!moves_elements(insn->op) && insn->op != TVM_OP_VIEW) v->exact_bits = !has_nan;
    if (!has_nan) v->exact_bits = true;
    if (type.kind == TVM_KIND_FLOAT) v->units = function_units(insn->op, type, fast);
}

/* The largest whole number that a fast function is spoken of; those that have no interval are of all. */
static int64_t fast_until(unsigned op) {
    for (size_t i = 0; i < MATH_ROWS; i++)
        if (math_rows[i].fast && strcmp(math_rows[i].name, tvm_op(op)->mnemonic) == 0 &&
            math_rows[i].beyond > 0)
            return (int64_t)math_rows[i].beyond;
    return INT64_MAX;
}

/* May the row's result be told of these operands, the same on every machine? */
static bool is_defined(gen *g, const gen_insn *insn, bool fast) {
    bool is_float = false, is_whole = true, is_exact = true;
    int64_t high = 0;
    for (uint32_t i = 0; i < insn->count; i++) {
        if (insn->operands[i].kind != TVM_OPERAND_SLOT) continue;
        const gen_var *source = &g->vars[insn->operands[i].value];
        is_float = is_float || g->kernel->slots[insn->operands[i].value].dtype.kind == TVM_KIND_FLOAT;
        is_whole = is_whole && source->whole;
        is_exact = is_exact && source->exact_bits;
        if (source->high > high) high = source->high;
    }
    if (fast && (!is_whole || high > fast_until(insn->op))) return false;
    if (insn->op == TVM_OP_VIEW) return is_exact && g->options->layouts_matter;
    if ((insn->op != TVM_OP_REDUCE && insn->op != TVM_OP_SCAN) || g->options->layouts_matter) return true;
    unsigned operation = insn->operands[0].value;
    return !is_float || (operation != TVM_SUM && operation != TVM_REDUCE_PROD);
}

/* ---- operands by their kinds ---- */

typedef struct row {
    gen_insn insn;
    uint32_t first;    /* the first register tensor; TVM_NONE: none yet */
    tvm_layout layout; /* its layout */
    bool fast, failed;
    uint32_t axis;
} row;

static void use_register(gen *g, row *r, uint32_t slot) {
    if (slot == TVM_NONE) {
        r->failed = true;
        return;
    }
    if (r->first == TVM_NONE) {
        r->first = slot;
        r->layout = *gen_layout_of(g, slot);
    }
    gen_put_slot(&r->insn, slot);
}

/* A tensor like the first one: of its type, and mostly of its shape. */
static uint32_t partner(gen *g, const row *r) {
    uint32_t slot =
        gen_register_of(g, g->kernel->slots[r->first].dtype, gen_one_in(g, 5) ? TVM_NONE : r->first);
    return slot == TVM_NONE ? r->first : slot;
}

static void put_tensor(gen *g, row *r, char kind) {
    if (r->insn.op == TVM_OP_WHERE && r->first == TVM_NONE) {
        use_register(g, r, gen_register_of(g, TVM_BOOL, TVM_NONE));
        return;
    }
    if (r->insn.op == TVM_OP_WHERE && r->insn.count == 1) {
        uint32_t slot = gen_register(g);
        for (unsigned i = 0; i < 6 && slot != TVM_NONE; i++) {
            const tvm_layout *layout = gen_layout_of(g, slot);
            if (memcmp(layout->shape, r->layout.shape, sizeof layout->shape) == 0) break;
            slot = gen_register(g);
        }
        if (slot == TVM_NONE) {
            r->failed = true;
            return;
        }
        r->first = slot; /* y is like x */
        gen_put_slot(&r->insn, slot);
        return;
    }
    if (kind == 'b' && gen_one_in(g, 3)) {
        tvm_dtype type = r->first == TVM_NONE ? TVM_I(32) : g->kernel->slots[r->first].dtype;
        gen_put_expr(&r->insn, gen_scalar_for(g, type));
    } else {
        use_register(g, r, r->first == TVM_NONE ? gen_register(g) : partner(g, r));
    }
}

static void put_number(gen *g, row *r, const tvm_operand_desc *desc) {
    bool is_count = desc->name[0] == 'c';
    uint32_t rank = r->first == TVM_NONE ? r->insn.type.layout.rank : r->layout.rank;
    if (r->insn.op == TVM_OP_UNSQUEEZE) rank++;
    uint32_t value = is_count ? 1 + gen_below(g, 3) : rank ? gen_below(g, rank) : 0;
    if (r->insn.op == TVM_OP_SHIFT && desc->name[0] == 'b')
        value = r->layout.shape[r->axis] > 1 ? 1 + gen_below(g, r->layout.shape[r->axis] - 1) : 1;
    else if (!is_count)
        r->axis = value;
    gen_put_const(&r->insn, value);
}

/* The numbers of a list as the row wants them. */
static void put_numbers(gen *g, row *r, const tvm_operand_desc *desc) {
    uint32_t list[TVM_MAX_RANK];
    unsigned rank = r->layout.rank;
    if (r->first == TVM_NONE) {
        r->failed = true;
        return;
    }
    if (r->insn.op == TVM_OP_TRANSPOSE) {
        for (unsigned d = 0; d < rank; d++) list[d] = d;
        for (unsigned d = rank; d > 1; d--) {
            unsigned with = gen_below(g, d);
            uint32_t at = list[d - 1];
            list[d - 1] = list[with];
            list[with] = at;
        }
    } else if (r->insn.op == TVM_OP_REDUCE) {
        unsigned count = 0;
        for (unsigned d = 0; d < rank; d++)
            if (gen_one_in(g, 2) || (d + 1 == rank && count == 0)) list[count++] = d;
        rank = count;
    } else if (r->insn.op == TVM_OP_RESHAPE) {
        uint32_t left = tvm_layout_elements(&r->layout);
        for (rank = 0; left > 1 && rank < 4; rank++) {
            uint32_t factor = left % 2 == 0 ? 2u << gen_below(g, 5) : left;
            list[rank] = rank == 3 || left % factor != 0 ? left : factor;
            left /= list[rank];
        }
        if (rank == 0) list[rank++] = 1;
    } else if (desc->kind == 'D') { /* an offset of slice or insert */
        for (unsigned d = 0; d < rank; d++)
            list[d] = gen_one_in(g, 2) ? 0 : r->layout.shape[d] / (2 + gen_below(g, 3));
    } else { /* the extents of a slice */
        for (unsigned d = 0; d < rank; d++) {
            uint32_t room = r->layout.shape[d] - r->insn.operands[2 + d].value;
            list[d] = gen_one_in(g, 2) ? room : room > 1 ? room / 2 : 1;
        }
    }
    gen_put_list(&r->insn, rank, list);
}

static void put_optional_layout(gen *g, row *r) {
    uint32_t shape[TVM_MAX_RANK] = {0};
    tvm_result_type *type = &r->insn.type;
    unsigned rank = r->layout.rank;
    memcpy(shape, r->layout.shape, sizeof shape);
    if (r->insn.op == TVM_OP_SLICE) {
        for (unsigned d = 0; d < rank; d++) shape[d] = r->insn.operands[3 + rank + d].value;
    } else if (r->insn.op == TVM_OP_CONCAT) {
        const tvm_layout *other = gen_layout_of(g, r->insn.operands[1].value);
        if (r->axis < other->rank) shape[r->axis] += other->shape[r->axis];
    } else {
        type->has_layout = true;
        type->layout = r->layout;
        return;
    }
    type->has_layout = gen_layout(g, rank, shape, &type->layout);
}

/* As many elements as are bits of the source; no two threads with the same ones. */
static void put_view(gen *g, row *r) {
    const tvm_slot *source = &g->kernel->slots[r->first];
    tvm_dtype to = gen_dtype(g);
    uint32_t bits = source->dtype.bits * tvm_layout_locals(&r->layout);
    uint32_t threads = tvm_team_threads(g->team), locals = bits / to.bits;
    r->insn.type.dtype = to;
    if (bits % to.bits != 0 || locals == 0) {
        r->failed = true;
        return;
    }
    bool same = to.bits == source->dtype.bits && gen_one_in(g, 3);
    uint32_t flat[2] = {threads, locals}, one[1] = {threads * locals};
    r->insn.type.has_layout = true;
    if (same)
        r->insn.type.layout = r->layout;
    else if (gen_one_in(g, 2))
        r->failed = !gen_spread(g, 2, flat, false, &r->insn.type.layout);
    else
        r->failed = !gen_spread(g, 1, one, false, &r->insn.type.layout);
}

static void put_result(gen *g, row *r, const tvm_operand_desc *desc) {
    uint32_t shape[TVM_MAX_RANK];
    tvm_result_type *type = &r->insn.type;
    switch (desc->kind) {
    case 't':
        type->dtype = r->insn.op == TVM_OP_RANDOM_BITS ? TVM_U(32)
                      : r->insn.op == TVM_OP_RANDOM_UNIFORM || r->insn.op == TVM_OP_RANDOM_NORMAL
                          ? TVM_F32
                          : gen_dtype(g);
        type->has_layout = gen_layout(g, gen_shape(g, shape), shape, &type->layout);
        if (!type->has_layout) r->failed = true;
        return;
    case 'T':
        if (r->insn.op == TVM_OP_VIEW)
            put_view(g, r);
        else
            type->dtype = gen_dtype(g);
        return;
    case 'L':
        if (type->has_layout || r->first == TVM_NONE) return;
        if (!desc->optional)
            type->has_layout = gen_layout(g, r->layout.rank, r->layout.shape, &type->layout);
        else if (gen_one_in(g, 3))
            put_optional_layout(g, r);
        return;
    case 'U': /* of the text alone */
        return;
    case 'P':
        type->packing =
            tvm_dtype_is_lowbit(type->dtype) && gen_one_in(g, 3) ? TVM_PACKING_PAIR : TVM_PACKING_LINEAR;
        return;
    default:
        r->failed = true;
    }
}

static void put_operand(gen *g, row *r, const tvm_operand_desc *desc) {
    const tvm_operand_words *words = tvm_words_of(desc->kind);
    if (!desc->stored) {
        put_result(g, r, desc);
    } else if (desc->optional && (desc->kind == 'F' ? !gen_one_in(g, 4) : gen_one_in(g, 2))) {
        gen_put_none(&r->insn);
    } else if (words != NULL) {
        gen_put_const(&r->insn, gen_below(g, words->count));
    } else if (desc->kind == 'F') {
        r->fast = r->fast || (desc->name_length == 4 && memcmp(desc->name, "fast", 4) == 0);
        gen_put_const(&r->insn, 1);
    } else if (desc->kind == 'r' || desc->kind == 'b') {
        put_tensor(g, r, desc->kind);
    } else if (desc->kind == 'x') {
        bool integer = r->insn.op != TVM_OP_ALLOC_REGISTER;
        gen_put_expr(&r->insn, integer ? gen_scalar(g, 2).expr : gen_scalar_for(g, r->insn.type.dtype));
    } else if (desc->kind == 'N') {
        put_number(g, r, desc);
    } else if (tvm_is_list(desc->kind)) {
        put_numbers(g, r, desc);
    } else {
        r->failed = true;
    }
}

static bool computes_registers(unsigned op) {
    const tvm_op_info *info = tvm_op(op);
    return (info->class == TVM_CLASS_COMPUTE && info->result == TVM_SLOT_REGISTER && op != TVM_OP_MMA) ||
           op == TVM_OP_ALLOC_REGISTER;
}

/* A variable that may be assigned again, of the very type of the result. */
static uint32_t assigned_again(gen *g, const tvm_result_type *type) {
    for (uint32_t s = 0; s < g->kernel->slot_count; s++) {
        const tvm_slot *slot = &g->kernel->slots[s];
        if (slot->kind == TVM_SLOT_REGISTER && g->vars[s].alive && g->vars[s].loose &&
            tvm_dtype_same(slot->dtype, type->dtype) && slot->packing == type->packing &&
            tvm_layout_equal(gen_layout_of(g, s), &type->layout) && gen_one_in(g, 2))
            return s;
    }
    return TVM_NONE;
}

static bool try_row(gen *g, unsigned op) {
    row r = {.insn = gen_begin(op), .first = TVM_NONE};
    const char *cursor = tvm_op(op)->operands;
    tvm_operand_desc desc;
    while (!r.failed && tvm_operand_next(&cursor, &desc)) put_operand(g, &r, &desc);
    if (r.failed || g->failed || !is_defined(g, &r.insn, r.fast)) return false;
    gen_insn asked = r.insn;
    tvm_insn insn = {.op = (uint16_t)op, .result = TVM_NONE, .count = asked.count};
    tvm_why why;
    if (tvm_infer(g->program, g->kernel, g->team, &insn, asked.operands, &asked.type, &why) != TVM_OK)
        return false;
    if (tvm_layout_locals(&asked.type.layout) > 4 * gen_locals(g)) return false;
    tvm_dtype type = asked.type.dtype;
    unsigned units = type.kind == TVM_KIND_FLOAT ? function_units(op, type, r.fast) : 0;
    uint32_t result = units ? TVM_NONE : assigned_again(g, &asked.type);
    bool again = result != TVM_NONE;
    if (!gen_take(g, &r.insn, &result)) return false;
    if (again) return true;
    note_result(g, &r.insn, result, r.fast);
    if (!units && g->vars[result].high == 0 && gen_one_in(g, 4)) { /* to be assigned again */
        bool has_nan = type.kind == TVM_KIND_FLOAT && tvm_float_has_nan(type);
        g->vars[result] = (gen_var){.alive = true, .loose = true, .exact_bits = !has_nan};
    }
    if (units) gen_store_output(g, result);
    return true;
}

bool gen_compute(gen *g) {
    for (unsigned tries = 0; tries < 30 && !g->failed; tries++) {
        unsigned op = gen_below(g, TVM_OP_COUNT);
        if (!computes_registers(op)) continue;
        for (unsigned again = 0; again < 4; again++)
            if (try_row(g, op)) return true;
    }
    return false;
}
