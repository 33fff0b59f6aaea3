/* Mutants of kernels: one instruction changed in one of the ways in which order is got wrong. Table
 * prove_ways has a row for each way. A way that changes an instruction in several manners numbers them from 0
 * (prove_spot.nth), and ends with false. Most mutants have a race or a deadlock; some are as right as before.
 */
#ifndef TVM_TESTS_PROVE_MUTANTS_H
#define TVM_TESTS_PROVE_MUTANTS_H

#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "verify.h"

/* What is changed: instruction `at` of the kernel, in manner `nth`. */
typedef struct prove_spot {
    const tvm_ir_program *program;
    tvm_ir_kernel *kernel;
    uint32_t at;
    unsigned nth;
} prove_spot;

typedef struct prove_way {
    const char *name;
    bool (*change)(const prove_spot *s);
} prove_way;

/* ---- instructions ---- */

static inline tvm_insn *prove_insn(const prove_spot *s) {
    return &s->kernel->insns[s->at];
}

static inline bool prove_orders(const tvm_insn *insn) {
    return tvm_insn_class(insn) == TVM_CLASS_ORDER;
}

static inline bool prove_is_plain(const tvm_insn *insn) {
    return tvm_insn_class(insn) > TVM_CLASS_FREE;
}

/* Instruction `from` comes to stand at `to`; tvm_verify finds again what closes what. */
static inline void prove_move(tvm_ir_kernel *kernel, uint32_t from, uint32_t to) {
    const tvm_insn moved = kernel->insns[from];
    if (from < to)
        memmove(&kernel->insns[from], &kernel->insns[from + 1], (to - from) * sizeof moved);
    else
        memmove(&kernel->insns[to + 1], &kernel->insns[to], (from - to) * sizeof moved);
    kernel->insns[to] = moved;
}

/* A new instruction at `at`, with the place of `like`. */
static inline void prove_insert(const prove_spot *s, uint32_t at, tvm_opcode op, const tvm_operand *operands,
                                uint32_t count) {
    tvm_insn made = {.op = (uint16_t)op,
                     .result = TVM_NONE,
                     .match = TVM_NONE,
                     .file = prove_insn(s)->file,
                     .line = prove_insn(s)->line};
    uint32_t last = tvm_ir_kernel_add_insn(s->kernel, &made, operands, count);
    if (last == TVM_NONE) abort();
    prove_move(s->kernel, last, at);
}

/* The opener of class `class` that stands closest around the instruction; TVM_NONE. */
static inline uint32_t prove_around(const tvm_ir_kernel *kernel, uint32_t at, tvm_op_class class) {
    for (uint32_t i = at; i-- > 0;)
        if (tvm_insn_class(&kernel->insns[i]) == class && kernel->insns[i].match > at) return i;
    return TVM_NONE;
}

/* ---- expressions ---- */

static inline uint32_t prove_constant(tvm_ir_kernel *kernel, tvm_dtype type, int64_t value) {
    return tvm_ir_kernel_expr(kernel,
                              &(tvm_expr){.op = TVM_EXPR_INTEGER, .type = type, .value = {.i = value}});
}

static inline uint32_t prove_binary(tvm_ir_kernel *kernel, tvm_expr_op op, uint32_t a, uint32_t b) {
    tvm_dtype type = tvm_expr_is_comparison(op) ? TVM_BOOL : kernel->exprs[a].type;
    return tvm_ir_kernel_expr(kernel, &(tvm_expr){.op = (uint8_t)op, .type = type, .a = a, .b = b});
}

static inline uint32_t prove_plus(tvm_ir_kernel *kernel, uint32_t expr, int64_t more) {
    return prove_binary(kernel, TVM_EXPR_ADD, expr, prove_constant(kernel, kernel->exprs[expr].type, more));
}

/* ---- operands ---- */

/* Operand `i` of those that the row's entry `desc` has from `first` on. */
typedef struct prove_operand {
    const tvm_operand_desc *desc;
    uint32_t first, i;
} prove_operand;

static inline bool prove_is_named(const tvm_operand_desc *desc, const char *name) {
    return strlen(name) == desc->name_length && memcmp(name, desc->name, desc->name_length) == 0;
}

/* Operand number *nth of those for which `is` is true: its number in kernel->operands. TVM_NONE: *nth is less
 * by all that there are. */
static inline uint32_t prove_find(const prove_spot *s, unsigned *nth,
                                  bool (*is)(const prove_spot *s, const prove_operand *o)) {
    const tvm_insn *insn = prove_insn(s);
    const char *cursor = tvm_op(insn->op)->operands;
    tvm_operand_desc desc;
    prove_operand o = {.desc = &desc, .first = insn->first};
    while (o.first < insn->first + insn->count && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        uint32_t count = tvm_entry_operands(s->program, s->kernel, &desc, &s->kernel->operands[o.first]);
        for (o.i = 0; o.i < count; o.i++)
            if (is(s, &o) && (*nth)-- == 0) return o.first + o.i;
        o.first += count;
    }
    return TVM_NONE;
}

static inline const tvm_slot *prove_slot_at(const prove_spot *s, uint32_t operand) {
    const tvm_operand *o = &s->kernel->operands[operand];
    return o->kind == TVM_OPERAND_SLOT ? &s->kernel->slots[o->value] : NULL;
}

/* An index of a tensor in shared memory, or of an mbarrier. */
static inline bool prove_is_index(const prove_spot *s, const prove_operand *o) {
    const tvm_slot *slot = prove_slot_at(s, o->first);
    return o->i > 0 && slot && tvm_slot_has_places(slot->kind) &&
           s->kernel->operands[o->first + o->i].kind == TVM_OPERAND_EXPR;
}

static inline bool prove_is_odd_index(const prove_spot *s, const prove_operand *o) {
    if (!prove_is_index(s, o)) return false;
    const tvm_expr *index = &s->kernel->exprs[s->kernel->operands[o->first + o->i].value];
    return index->op != TVM_EXPR_INTEGER || index->value.i != 0;
}

static inline bool prove_is_tensor(const prove_spot *s, const prove_operand *o) {
    const tvm_slot *slot = prove_slot_at(s, o->first);
    return o->i == 0 && slot && tvm_slot_has_places(slot->kind);
}

static inline bool prove_is_rank(const prove_spot *s, const prove_operand *o) {
    return prove_is_named(o->desc, "rank") && s->kernel->operands[o->first].kind == TVM_OPERAND_EXPR;
}

static inline bool prove_is_pending(const prove_spot *s, const prove_operand *o) {
    (void)s;
    return prove_is_named(o->desc, "pending");
}

static inline bool prove_is_extent(const prove_spot *s, const prove_operand *o) {
    (void)s;
    return prove_is_named(o->desc, "tile") && o->i > 0;
}

static inline bool prove_is_flag(const prove_spot *s, const prove_operand *o) {
    (void)s;
    return prove_is_named(o->desc, "read") || prove_is_named(o->desc, "open");
}

static inline bool prove_is_arrivals(const prove_spot *s, const prove_operand *o) {
    (void)s;
    return prove_is_named(o->desc, "arrivals");
}

/* Warps of a role. */
static inline bool prove_is_bound(const prove_spot *s, const prove_operand *o) {
    return tvm_insn_class(prove_insn(s)) == TVM_CLASS_SECTION && !prove_is_named(o->desc, "registers") &&
           s->kernel->operands[o->first].kind == TVM_OPERAND_CONST;
}

static inline bool prove_is_condition(const prove_spot *s, const prove_operand *o) {
    (void)s;
    return prove_is_named(o->desc, "condition");
}

/* The constant, or what it is where it is left out, becomes another one. */
static inline bool prove_set_constant(const prove_spot *s, uint32_t operand, uint32_t left_out, int more) {
    tvm_operand *o = &s->kernel->operands[operand];
    uint32_t value = o->kind == TVM_OPERAND_CONST ? o->value : left_out;
    if ((int)value + more < 0) return false;
    *o = (tvm_operand){TVM_OPERAND_CONST, (uint32_t)((int)value + more)};
    return true;
}

/* ---- instructions of order: left out, moved, weaker ---- */

static inline bool prove_left_out(const prove_spot *s) {
    tvm_op_class class = tvm_insn_class(prove_insn(s));
    if ((class != TVM_CLASS_ORDER && class != TVM_CLASS_JUMP) || s->nth) return false;
    prove_move(s->kernel, s->at, s->kernel->insn_count - 1);
    s->kernel->insn_count--;
    return true;
}

static inline bool prove_twice(const prove_spot *s) {
    const tvm_insn insn = *prove_insn(s);
    tvm_operand operands[TVM_INSN_OPERANDS];
    if (!prove_orders(&insn) || s->nth) return false;
    for (uint32_t o = 0; o < insn.count; o++) operands[o] = s->kernel->operands[insn.first + o];
    prove_insert(s, s->at, (tvm_opcode)insn.op, operands, insn.count);
    return true;
}

/* Behind the nth + 1 next instructions; an instruction that orders nothing, behind one that does. */
static inline bool prove_moved_on(const prove_spot *s) {
    uint32_t to = s->at + 1 + s->nth;
    if (!prove_is_plain(prove_insn(s)) || to >= s->kernel->insn_count) return false;
    for (uint32_t i = s->at + 1; i <= to; i++)
        if (!prove_is_plain(&s->kernel->insns[i])) return false;
    if (!prove_orders(prove_insn(s)) && (s->nth || !prove_orders(prove_insn(s) + 1))) return false;
    prove_move(s->kernel, s->at, to);
    return true;
}

/* Before the nth + 2 instructions that stand before it. (One is the way above, of the other.) */
static inline bool prove_moved_back(const prove_spot *s) {
    if (!prove_orders(prove_insn(s)) || s->at < s->nth + 2) return false;
    for (uint32_t i = s->at - s->nth - 2; i < s->at; i++)
        if (!prove_is_plain(&s->kernel->insns[i])) return false;
    prove_move(s->kernel, s->at, s->at - s->nth - 2);
    return true;
}

/* Before the loop around it; behind it. */
static inline bool prove_out_of_loop(const prove_spot *s) {
    uint32_t loop = prove_around(s->kernel, s->at, TVM_CLASS_LOOP);
    if (!prove_orders(prove_insn(s)) || loop == TVM_NONE || s->nth > 1) return false;
    prove_move(s->kernel, s->at, s->nth ? s->kernel->insns[loop].match : loop);
    return true;
}

/* To the beginning of the next loop; to the end of the one before. */
static inline bool prove_into_loop(const prove_spot *s) {
    const tvm_insn *insns = s->kernel->insns;
    if (!prove_orders(prove_insn(s)) || s->nth > 1) return false;
    uint32_t i = s->at;
    if (s->nth == 0) {
        while (++i < s->kernel->insn_count && prove_is_plain(&insns[i])) continue;
        if (i == s->kernel->insn_count || tvm_insn_class(&insns[i]) != TVM_CLASS_LOOP) return false;
    } else {
        while (i > 0 && prove_is_plain(&insns[i - 1])) i--;
        if (i-- == 0 || tvm_insn_class(&insns[i]) != TVM_CLASS_END ||
            tvm_insn_class(&insns[insns[i].match]) != TVM_CLASS_LOOP)
            return false;
    }
    prove_move(s->kernel, s->at, i);
    return true;
}

/* The nth of the conditions that not all fulfil: the innermost loop's variable is even, the team is the
 * role's first, the block is the first along x. TVM_NONE: there is no such. */
static inline uint32_t prove_odd_condition(const prove_spot *s) {
    static const tvm_op_class classes[] = {TVM_CLASS_LOOP, TVM_CLASS_SECTION};
    tvm_ir_kernel *kernel = s->kernel;
    uint32_t values[3], count = 0;
    for (unsigned c = 0; c < 2; c++) {
        uint32_t opener = prove_around(kernel, s->at, classes[c]);
        uint32_t slot = opener == TVM_NONE ? TVM_NONE : kernel->insns[opener].result;
        if (slot == TVM_NONE) continue;
        tvm_dtype type = kernel->slots[slot].dtype;
        uint32_t value =
            tvm_ir_kernel_expr(kernel, &(tvm_expr){.op = TVM_EXPR_SLOT, .type = type, .a = slot});
        if (c == 0) value = prove_binary(kernel, TVM_EXPR_MOD, value, prove_constant(kernel, type, 2));
        values[count++] = value;
    }
    values[count++] = tvm_ir_kernel_expr(kernel, &(tvm_expr){.op = TVM_EXPR_BLOCK, .type = TVM_I(32)});
    if (s->nth >= count) return TVM_NONE;
    uint32_t value = values[s->nth];
    return prove_binary(kernel, TVM_EXPR_EQ, value, prove_constant(kernel, kernel->exprs[value].type, 0));
}

/* Under such a condition. */
static inline bool prove_in_one_branch(const prove_spot *s) {
    uint32_t condition = prove_orders(prove_insn(s)) ? prove_odd_condition(s) : TVM_NONE;
    if (condition == TVM_NONE) return false;
    prove_insert(s, s->at + 1, TVM_OP_END, NULL, 0);
    prove_insert(s, s->at, TVM_OP_IF, &(tvm_operand){TVM_OPERAND_EXPR, condition}, 1);
    return true;
}

/* An exit before it, under such a condition. */
static inline bool prove_behind_exit(const prove_spot *s) {
    uint32_t condition = prove_orders(prove_insn(s)) ? prove_odd_condition(s) : TVM_NONE;
    if (condition == TVM_NONE) return false;
    prove_insert(s, s->at, TVM_OP_END, NULL, 0);
    prove_insert(s, s->at, TVM_OP_EXIT, NULL, 0);
    prove_insert(s, s->at, TVM_OP_IF, &(tvm_operand){TVM_OPERAND_EXPR, condition}, 1);
    return true;
}

static inline bool prove_weaker(const prove_spot *s) {
    static const tvm_opcode weaker[][2] = {{TVM_OP_SYNC, TVM_OP_SYNC_WARP},
                                           {TVM_OP_SYNC_CLUSTER, TVM_OP_SYNC}};
    for (size_t i = 0; i < sizeof weaker / sizeof *weaker && s->nth == 0; i++) {
        if (prove_insn(s)->op != weaker[i][0]) continue;
        prove_insn(s)->op = (uint16_t)weaker[i][1];
        return true;
    }
    return false;
}

static inline bool prove_one_more_pending(const prove_spot *s) {
    unsigned nth = s->nth;
    uint32_t o = prove_find(s, &nth, prove_is_pending);
    return o != TVM_NONE && prove_set_constant(s, o, 0, 1);
}

/* `read` of wait-bulk, `open` of mbarriers: given, or not. */
static inline bool prove_flag(const prove_spot *s) {
    unsigned nth = s->nth;
    uint32_t o = prove_find(s, &nth, prove_is_flag);
    if (o == TVM_NONE) return false;
    tvm_operand *flag = &s->kernel->operands[o];
    *flag = flag->kind == TVM_OPERAND_NONE ? (tvm_operand){TVM_OPERAND_CONST, 1}
                                           : (tvm_operand){TVM_OPERAND_NONE, 0};
    return true;
}

/* ---- what is named: mbarriers, tiles, indices, ranks ---- */

static inline bool prove_arrivals(const prove_spot *s) {
    unsigned nth = s->nth / 2;
    uint32_t o = prove_find(s, &nth, prove_is_arrivals);
    return o != TVM_NONE && prove_set_constant(s, o, 1, s->nth % 2 ? -1 : 1);
}

/* The nth of the tensors, or mbarriers, of the same type that could stand there. */
static inline bool prove_exchange(const prove_spot *s, tvm_slot_kind kind) {
    unsigned left = s->nth;
    for (unsigned n = 0;; n++) {
        unsigned nth = n;
        uint32_t o = prove_find(s, &nth, prove_is_tensor);
        if (o == TVM_NONE) return false;
        const tvm_slot *slot = prove_slot_at(s, o);
        if (slot->kind != kind) continue;
        for (uint32_t i = 0; i < s->kernel->slot_count; i++) {
            const tvm_slot *other = &s->kernel->slots[i];
            if (other == slot || other->kind != kind || other->layout != slot->layout ||
                !tvm_dtype_same(other->dtype, slot->dtype) || left-- > 0)
                continue;
            s->kernel->operands[o].value = i;
            return true;
        }
    }
}

static inline bool prove_other_barrier(const prove_spot *s) {
    return prove_exchange(s, TVM_SLOT_BARRIER);
}

static inline bool prove_other_tensor(const prove_spot *s) {
    return prove_exchange(s, TVM_SLOT_SHARED);
}

static inline bool prove_next_index(const prove_spot *s) {
    unsigned nth = s->nth;
    uint32_t o = prove_find(s, &nth, prove_is_index);
    if (o == TVM_NONE) return false;
    uint32_t made = prove_plus(s->kernel, s->kernel->operands[o].value, 1);
    s->kernel->operands[o].value = made;
    return true;
}

/* The extent of the dimension of which the operand is an index. */
static inline uint32_t prove_extent_of(const prove_spot *s, uint32_t operand) {
    uint32_t tensor = operand;
    while (s->kernel->operands[tensor].kind != TVM_OPERAND_SLOT) tensor--;
    return tvm_slot_shape(s->program, prove_slot_at(s, tensor))[operand - tensor - 1];
}

/* The next one, of the last the first: it stays inside. */
static inline bool prove_turned_index(const prove_spot *s) {
    unsigned nth = s->nth;
    uint32_t o = prove_find(s, &nth, prove_is_index);
    if (o == TVM_NONE) return false;
    uint32_t next = prove_plus(s->kernel, s->kernel->operands[o].value, 1);
    uint32_t extent = prove_constant(s->kernel, s->kernel->exprs[next].type, prove_extent_of(s, o));
    uint32_t made = prove_binary(s->kernel, TVM_EXPR_MOD, next, extent);
    s->kernel->operands[o].value = made;
    return true;
}

static inline bool prove_no_index(const prove_spot *s) {
    unsigned nth = s->nth;
    uint32_t o = prove_find(s, &nth, prove_is_odd_index);
    if (o == TVM_NONE) return false;
    uint32_t made = prove_constant(s->kernel, s->kernel->exprs[s->kernel->operands[o].value].type, 0);
    s->kernel->operands[o].value = made;
    return true;
}

/* The next block of the cluster; the first. */
static inline bool prove_other_rank(const prove_spot *s) {
    unsigned nth = s->nth / 2;
    uint32_t o = prove_find(s, &nth, prove_is_rank), made;
    if (o == TVM_NONE) return false;
    uint32_t rank = s->kernel->operands[o].value;
    tvm_dtype type = s->kernel->exprs[rank].type;
    if (s->nth % 2)
        made = prove_constant(s->kernel, type, 0);
    else
        made = prove_binary(s->kernel, TVM_EXPR_MOD, prove_plus(s->kernel, rank, 1),
                            prove_constant(s->kernel, type, tvm_cluster_blocks(s->kernel)));
    s->kernel->operands[o].value = made;
    return true;
}

/* Twice as large along a dimension, or half. */
static inline bool prove_other_tile(const prove_spot *s) {
    unsigned nth = s->nth / 2;
    uint32_t o = prove_find(s, &nth, prove_is_extent);
    if (o == TVM_NONE) return false;
    uint32_t *extent = &s->kernel->operands[o].value;
    *extent = s->nth % 2 ? (*extent + 1) / 2 : 2 * *extent;
    return true;
}

/* The result in another layout, of the same shape, that some tensor of the program has. */
static inline bool prove_other_layout(const prove_spot *s) {
    const tvm_insn *insn = prove_insn(s);
    unsigned left = s->nth;
    if (tvm_insn_class(insn) != TVM_CLASS_MOVE || insn->result == TVM_NONE) return false;
    tvm_slot *slot = &s->kernel->slots[insn->result];
    if (slot->kind != TVM_SLOT_REGISTER) return false;
    const tvm_layout *own = &s->program->layouts[slot->layout];
    for (uint32_t i = 0; i < s->program->layout_count; i++) {
        const tvm_layout *other = &s->program->layouts[i];
        if (i == slot->layout || other->rank != own->rank ||
            memcmp(other->shape, own->shape, own->rank * sizeof *own->shape) != 0 || left-- > 0)
            continue;
        slot->layout = i;
        return true;
    }
    return false;
}

/* ---- control, and scalars ---- */

static inline bool prove_next_value(const prove_spot *s) {
    const tvm_insn *insn = prove_insn(s);
    if (insn->op != TVM_OP_LET || !tvm_dtype_is_integer(s->kernel->slots[insn->result].dtype) || s->nth)
        return false;
    uint32_t o = insn->first, made = prove_plus(s->kernel, s->kernel->operands[o].value, 1);
    s->kernel->operands[o].value = made;
    return true;
}

/* A turn more at the end; one less; one less at the beginning. */
static inline bool prove_other_turns(const prove_spot *s) {
    const tvm_insn *insn = prove_insn(s);
    if (!tvm_insn_has(insn, TVM_TRAIT_COUNTER) || s->nth > 2) return false;
    uint32_t start = insn->first, bound = start + (s->nth < 2), step = start + 2;
    uint32_t made = prove_binary(s->kernel, s->nth == 1 ? TVM_EXPR_SUB : TVM_EXPR_ADD,
                                 s->kernel->operands[bound].value, s->kernel->operands[step].value);
    s->kernel->operands[bound].value = made;
    return true;
}

/* The opposite; always true. */
static inline bool prove_other_condition(const prove_spot *s) {
    unsigned none = 0;
    uint32_t o = prove_find(s, &none, prove_is_condition), made;
    if (o == TVM_NONE || s->nth > 1) return false;
    if (s->nth)
        made = prove_constant(s->kernel, TVM_BOOL, 1);
    else
        made = tvm_ir_kernel_expr(
            s->kernel, &(tvm_expr){.op = TVM_EXPR_LNOT, .type = TVM_BOOL, .a = s->kernel->operands[o].value});
    s->kernel->operands[o].value = made;
    return true;
}

/* A role's first warp, its end, the warps of a team: one more, or one less. */
static inline bool prove_other_warps(const prove_spot *s) {
    unsigned nth = s->nth / 2;
    uint32_t o = prove_find(s, &nth, prove_is_bound);
    return o != TVM_NONE && (prove_set_constant(s, o, 0, s->nth % 2 ? -1 : 1) || s->nth % 2);
}

static const prove_way prove_ways[] = {
    {"left out", prove_left_out},
    {"done twice", prove_twice},
    {"moved on", prove_moved_on},
    {"moved back", prove_moved_back},
    {"out of its loop", prove_out_of_loop},
    {"into a loop", prove_into_loop},
    {"in one branch", prove_in_one_branch},
    {"behind an exit", prove_behind_exit},
    {"a weaker one", prove_weaker},
    {"one more pending", prove_one_more_pending},
    {"open, or read", prove_flag},
    {"arrivals", prove_arrivals},
    {"another mbarrier", prove_other_barrier},
    {"another tensor", prove_other_tensor},
    {"index + 1", prove_next_index},
    {"index + 1, inside", prove_turned_index},
    {"index 0", prove_no_index},
    {"another rank", prove_other_rank},
    {"another tile", prove_other_tile},
    {"another layout", prove_other_layout},
    {"scalar + 1", prove_next_value},
    {"turns of a loop", prove_other_turns},
    {"another condition", prove_other_condition},
    {"warps of a role", prove_other_warps},
};
enum { PROVE_WAYS = sizeof prove_ways / sizeof *prove_ways };

/* Kernel 0 of the result is the mutant, verified; NULL: the verifier refuses it, or (*more is false) the way
 * has no such manner. *spare: NULL, or a copy of the kernel that was made and not needed, for the next call.
 */
static inline tvm_ir_program *prove_mutant(const tvm_ir_program *program, uint32_t kernel, uint32_t at,
                                           unsigned way, unsigned nth, tvm_ir_program **spare, bool *more) {
    if (*spare == NULL) *spare = tvm_ir_program_clone_kernel(program, kernel);
    tvm_ir_program *mutant = *spare;
    if (mutant == NULL) abort();
    const prove_spot s = {mutant, &mutant->kernels[0], at, nth};
    *more = prove_ways[way].change(&s);
    if (!*more) return NULL;
    *spare = NULL;
    if (tvm_verify(mutant, NULL) == TVM_OK) return mutant;
    tvm_ir_program_free(mutant);
    return NULL;
}

#endif
