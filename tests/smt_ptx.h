/* PTX as terms of bit vectors, for proofs by Z3: what the straight-line code of a kernel computes from its
 * parameters, by the PTX ISA, section 9.7. An instruction or operand that is not here makes the result
 * unknown, never proved. Registers hold bit vectors of 32 or 64 bits, predicates formulas.
 *
 * Where accesses are asked for (smt_run_accesses), branches ahead are followed on both ways, and data that is
 * not understood is opaque: a register that holds it has no term, and neither has what is computed from it.
 * An address or a condition without a term makes the whole unknown, and so does a branch back. */
#ifndef TVM_TESTS_SMT_PTX_H
#define TVM_TESTS_SMT_PTX_H

#include <z3.h>

#include "ptxas_mistakes_kit.h"

enum { SMT_PARAMS = 64, SMT_REGISTERS = 4096 };

/* What a launch gives a thread. */
typedef struct smt_launch {
    Z3_context z3;
    Z3_ast params[SMT_PARAMS]; /* NULL: none that is known */
    Z3_ast block[3], grid[3];  /* 32 bits */
    Z3_ast thread;             /* the same; NULL: none is known */
} smt_launch;

/* A load or store of global memory. */
typedef struct smt_access {
    bool is_store;
    Z3_ast guard, address; /* a formula; 64 bits */
    unsigned bytes;
} smt_access;

/* What a branch to a label ahead asks. */
typedef struct smt_branch {
    char label[24];
    Z3_ast taken;
} smt_branch;

enum { SMT_ACCESSES = 1024, SMT_BRANCHES = 64 };

typedef struct smt_ptx {
    const smt_launch *launch;
    ptx_scan scan;
    Z3_ast regs[SCAN_CLASSES][SMT_REGISTERS];
    Z3_ast halved[2][SCAN_CLASSES]
                 [SMT_REGISTERS]; /* what the register is the lower, the upper half of, or NULL */
    Z3_ast stored[2];             /* the words of the last store to global memory, the lower one first */
    Z3_ast stored_whole;          /* what both are the halves of, or NULL */
    unsigned stored_count;
    char unknown[80]; /* what was not understood first, or "" */
    bool is_lenient;  /* accesses are asked for; what follows is of these */
    bool is_opaque[SCAN_CLASSES][SMT_REGISTERS];
    Z3_ast reached; /* by the thread, the line: a formula */
    smt_access accesses[SMT_ACCESSES];
    unsigned access_count;
    smt_branch branches[SMT_BRANCHES];
    unsigned branch_count;
    unsigned was_assigned; /* registers, by the line */
} smt_ptx;

static inline Z3_ast smt_constant(Z3_context z3, unsigned bits, uint64_t value) {
    return Z3_mk_unsigned_int64(z3, bits < 64 ? value & ((UINT64_C(1) << bits) - 1) : value,
                                Z3_mk_bv_sort(z3, bits));
}

static inline unsigned smt_bits(Z3_context z3, Z3_ast value) {
    Z3_sort sort = Z3_get_sort(z3, value);
    return Z3_get_sort_kind(z3, sort) == Z3_BV_SORT ? Z3_get_bv_sort_size(z3, sort) : 1;
}

/* To so many bits: cut off, or extended. */
static inline Z3_ast smt_resize(Z3_context z3, Z3_ast value, unsigned bits, bool is_signed) {
    unsigned has = smt_bits(z3, value);
    if (has == bits) return value;
    if (has > bits) return Z3_mk_extract(z3, bits - 1, 0, value);
    return is_signed ? Z3_mk_sign_ext(z3, bits - has, value) : Z3_mk_zero_ext(z3, bits - has, value);
}

/* A formula as 0 or 1. */
static inline Z3_ast smt_number(Z3_context z3, Z3_ast formula, unsigned bits) {
    return Z3_mk_ite(z3, formula, smt_constant(z3, bits, 1), smt_constant(z3, bits, 0));
}

/* By a name of PTX and the assembly's alike: lt le gt ge eq ne. NULL: none of them. */
static inline Z3_ast smt_compare(Z3_context z3, const char *test, bool is_signed, Z3_ast a, Z3_ast b) {
    if (strncmp(test, "eq", 2) == 0) return Z3_mk_eq(z3, a, b);
    if (strncmp(test, "ne", 2) == 0) return Z3_mk_not(z3, Z3_mk_eq(z3, a, b));
    if (strncmp(test, "lt", 2) == 0) return is_signed ? Z3_mk_bvslt(z3, a, b) : Z3_mk_bvult(z3, a, b);
    if (strncmp(test, "le", 2) == 0) return is_signed ? Z3_mk_bvsle(z3, a, b) : Z3_mk_bvule(z3, a, b);
    if (strncmp(test, "gt", 2) == 0) return is_signed ? Z3_mk_bvsgt(z3, a, b) : Z3_mk_bvugt(z3, a, b);
    if (strncmp(test, "ge", 2) == 0) return is_signed ? Z3_mk_bvsge(z3, a, b) : Z3_mk_bvuge(z3, a, b);
    return NULL;
}

static inline Z3_ast smt_either(Z3_context z3, bool least, bool is_signed, Z3_ast a, Z3_ast b) {
    Z3_ast less = smt_compare(z3, "lt", is_signed, a, b);
    return least ? Z3_mk_ite(z3, less, a, b) : Z3_mk_ite(z3, less, b, a);
}

/* ---- operands ---- */

static inline Z3_ast smt_give_up(smt_ptx *s, const scan_line *line) {
    if (s->unknown[0] == '\0' && !s->is_lenient)
        snprintf(s->unknown, sizeof s->unknown, "%.*s", (int)strcspn(line->op, "\n"), line->op);
    return NULL;
}

static inline Z3_ast smt_special(const smt_launch *l, const scan_operand *o) {
    static const char axes[] = "xyz";
    for (unsigned i = 0; i < 3; i++) {
        char block[] = "%ctaid._", grid[] = "%nctaid._";
        block[7] = grid[8] = axes[i];
        if (scan_is(o, block)) return l->block[i];
        if (scan_is(o, grid)) return l->grid[i];
    }
    return scan_is(o, "%tid.x") ? l->thread : NULL;
}

/* An operand of so many bits, or a predicate (bits 1); NULL where it is not understood. */
static inline Z3_ast smt_operand(smt_ptx *s, const scan_line *line, unsigned group, unsigned bits) {
    const scan_operand *o = scan_group(&s->scan, line, group, NULL);
    Z3_context z3 = s->launch->z3;
    Z3_ast value = NULL;
    if (o == NULL) return smt_give_up(s, line);
    if (o->cls != SCAN_NONE)
        value = o->number < SMT_REGISTERS ? s->regs[o->cls][o->number] : NULL;
    else if (isdigit((unsigned char)*o->at) && o->at[1] != 'f' && o->at[1] != 'd')
        value = smt_constant(z3, bits, strtoull(o->at, NULL, 0));
    else if (*o->at == '-')
        value = smt_constant(z3, bits, (uint64_t)strtoll(o->at, NULL, 0));
    else
        value = smt_special(s->launch, o);
    if (value == NULL || smt_bits(z3, value) != bits) return smt_give_up(s, line);
    return value;
}

static inline bool smt_is_true(const smt_ptx *s, Z3_ast formula) {
    return Z3_get_bool_value(s->launch->z3, formula) == Z3_L_TRUE;
}

/* Of a register whose value is not known from here on. */
static inline void smt_cloud(smt_ptx *s, const scan_operand *to) {
    if (to == NULL || to->cls == SCAN_NONE || to->number >= SMT_REGISTERS) return;
    s->regs[to->cls][to->number] = NULL;
    s->is_opaque[to->cls][to->number] = true;
}

static inline void smt_assign(smt_ptx *s, const scan_line *line, const scan_operand *to, Z3_ast value) {
    if (to == NULL || to->cls == SCAN_NONE || to->number >= SMT_REGISTERS || line->is_guarded) {
        smt_give_up(s, line);
        return;
    }
    Z3_ast *reg = &s->regs[to->cls][to->number];
    s->was_assigned++;
    if (s->is_opaque[to->cls][to->number] && s->is_lenient && !smt_is_true(s, s->reached)) return;
    bool joins = s->is_lenient && *reg != NULL && !smt_is_true(s, s->reached);
    *reg = joins ? Z3_mk_ite(s->launch->z3, s->reached, value, *reg) : value;
    s->is_opaque[to->cls][to->number] = false;
    for (unsigned i = 0; i < 2; i++) s->halved[i][to->cls][to->number] = NULL;
}

/* ---- instructions ---- */

/* vote.sync.any.pred %p1, %p0, ...: true where the thread's own is, and else it is not known. */
static inline Z3_ast smt_vote(smt_ptx *s, const scan_line *line) {
    Z3_context z3 = s->launch->z3;
    Z3_ast own = smt_operand(s, line, 1, 1);
    if (own == NULL) return NULL;
    Z3_ast others = Z3_mk_fresh_const(z3, "vote", Z3_mk_bool_sort(z3)), both[2] = {own, others};
    return Z3_mk_or(z3, 2, both);
}

/* Of an opcode's last type, .s32 for example. */
typedef struct smt_type {
    unsigned bits;
    bool is_signed;
} smt_type;

static inline smt_type smt_type_at(const char *dot) {
    return (smt_type){.bits = strncmp(dot, ".pred", 5) == 0 ? 1 : (unsigned)atoi(dot + 2),
                      .is_signed = dot[1] == 's'};
}

static inline smt_type smt_last_type(const char *op) {
    return smt_type_at(strrchr(op, '.'));
}

/* Products: .lo, .wide; with an addend. */
static inline Z3_ast smt_product(smt_ptx *s, const scan_line *line, const char *op, smt_type type) {
    Z3_context z3 = s->launch->z3;
    bool wide = strstr(op, ".wide") != NULL;
    unsigned bits = wide ? 2 * type.bits : type.bits;
    Z3_ast a = smt_operand(s, line, 1, type.bits), b = smt_operand(s, line, 2, type.bits);
    if (a == NULL || b == NULL) return NULL;
    if (!wide && strstr(op, ".lo") == NULL) return smt_give_up(s, line);
    a = smt_resize(z3, a, bits, type.is_signed), b = smt_resize(z3, b, bits, type.is_signed);
    Z3_ast product = Z3_mk_bvmul(z3, a, b);
    if (op[1] == 'u') return product;
    Z3_ast c = smt_operand(s, line, 3, bits);
    return c == NULL ? NULL : Z3_mk_bvadd(z3, product, c);
}

static inline Z3_ast smt_shift(smt_ptx *s, const scan_line *line, const char *op, smt_type type) {
    Z3_context z3 = s->launch->z3;
    Z3_ast a = smt_operand(s, line, 1, type.bits), by = smt_operand(s, line, 2, 32);
    if (a == NULL || by == NULL) return NULL;
    by = smt_resize(z3, by, type.bits, false);
    if (op[2] == 'l') return Z3_mk_bvshl(z3, a, by);
    return type.is_signed ? Z3_mk_bvashr(z3, a, by) : Z3_mk_bvlshr(z3, a, by);
}

static inline Z3_ast smt_two(smt_ptx *s, const scan_line *line, const char *op, smt_type type) {
    Z3_context z3 = s->launch->z3;
    Z3_ast a = smt_operand(s, line, 1, type.bits), b = smt_operand(s, line, 2, type.bits);
    if (a == NULL || b == NULL) return NULL;
    bool formulas = type.bits == 1;
    Z3_ast both[2] = {a, b};
    if (strncmp(op, "add.", 4) == 0) return Z3_mk_bvadd(z3, a, b);
    if (strncmp(op, "sub.", 4) == 0) return Z3_mk_bvsub(z3, a, b);
    if (strncmp(op, "min.", 4) == 0) return smt_either(z3, true, type.is_signed, a, b);
    if (strncmp(op, "max.", 4) == 0) return smt_either(z3, false, type.is_signed, a, b);
    if (strncmp(op, "and.", 4) == 0) return formulas ? Z3_mk_and(z3, 2, both) : Z3_mk_bvand(z3, a, b);
    if (strncmp(op, "or.", 3) == 0) return formulas ? Z3_mk_or(z3, 2, both) : Z3_mk_bvor(z3, a, b);
    if (strncmp(op, "xor.", 4) == 0) return formulas ? Z3_mk_xor(z3, a, b) : Z3_mk_bvxor(z3, a, b);
    if (strncmp(op, "div.", 4) == 0) return type.is_signed ? Z3_mk_bvsdiv(z3, a, b) : Z3_mk_bvudiv(z3, a, b);
    if (strncmp(op, "rem.", 4) == 0) return type.is_signed ? Z3_mk_bvsrem(z3, a, b) : Z3_mk_bvurem(z3, a, b);
    return smt_give_up(s, line);
}

static inline Z3_ast smt_one(smt_ptx *s, const scan_line *line, const char *op, smt_type type) {
    Z3_context z3 = s->launch->z3;
    Z3_ast a = smt_operand(s, line, 1, type.bits);
    if (a == NULL) return NULL;
    if (strncmp(op, "mov.", 4) == 0) return a;
    if (strncmp(op, "neg.", 4) == 0) return Z3_mk_bvneg(z3, a);
    return type.bits == 1 ? Z3_mk_not(z3, a) : Z3_mk_bvnot(z3, a);
}

/* cvt.TO.FROM. */
static inline Z3_ast smt_convert(smt_ptx *s, const scan_line *line, const char *op) {
    smt_type from = smt_last_type(op), to = smt_type_at(op + 3);
    Z3_ast a = smt_operand(s, line, 1, from.bits);
    if (a == NULL || strchr("su", op[4]) == NULL || to.bits < 32) return smt_give_up(s, line);
    return smt_resize(s->launch->z3, a, to.bits, from.is_signed);
}

static inline Z3_ast smt_select(smt_ptx *s, const scan_line *line, smt_type type) {
    Z3_ast a = smt_operand(s, line, 1, type.bits), b = smt_operand(s, line, 2, type.bits),
           p = smt_operand(s, line, 3, 1);
    return a && b && p ? Z3_mk_ite(s->launch->z3, p, a, b) : NULL;
}

static inline Z3_ast smt_test(smt_ptx *s, const scan_line *line, const char *op, smt_type type) {
    Z3_ast a = smt_operand(s, line, 1, type.bits), b = smt_operand(s, line, 2, type.bits);
    Z3_ast test = a && b ? smt_compare(s->launch->z3, op + 5, type.is_signed, a, b) : NULL;
    return test ? test : smt_give_up(s, line);
}

/* ld.param.b32 %r0, [param_3]. */
static inline Z3_ast smt_parameter(smt_ptx *s, const scan_line *line, smt_type type) {
    const scan_operand *from = scan_group(&s->scan, line, 1, NULL);
    unsigned number = SMT_PARAMS;
    if (from != NULL) sscanf(from->at, "param_%u", &number);
    Z3_ast value = number < SMT_PARAMS ? s->launch->params[number] : NULL;
    return value && smt_bits(s->launch->z3, value) == type.bits ? value : smt_give_up(s, line);
}

/* mov.b64 {low, high}, x. */
static inline void smt_split(smt_ptx *s, const scan_line *line) {
    Z3_context z3 = s->launch->z3;
    const scan_operand *low = scan_group(&s->scan, line, 0, NULL);
    Z3_ast from = smt_operand(s, line, 1, 64);
    if (from == NULL) return;
    smt_assign(s, line, low, Z3_mk_extract(z3, 31, 0, from));
    smt_assign(s, line, low + 1, Z3_mk_extract(z3, 63, 32, from));
    for (unsigned i = 0; i < 2 && s->unknown[0] == '\0'; i++) s->halved[i][low[i].cls][low[i].number] = from;
}

static inline void smt_store(smt_ptx *s, const scan_line *line) {
    unsigned count;
    const scan_operand *first = scan_group(&s->scan, line, 1, &count);
    s->stored_count = 0;
    s->stored_whole = NULL;
    for (unsigned i = 0; i < count && i < 2; i++) {
        bool is = first[i].cls != SCAN_NONE && first[i].number < SMT_REGISTERS;
        s->stored[i] = is ? s->regs[first[i].cls][first[i].number] : NULL;
        if (s->stored[i] == NULL && !is && isdigit((unsigned char)*first[i].at))
            s->stored[i] = smt_constant(s->launch->z3, 32, strtoull(first[i].at, NULL, 0));
        if (s->stored[i] == NULL) smt_give_up(s, line);
    }
    s->stored_count = count;
    if (count != 2 || s->unknown[0] != '\0' || first[0].cls == SCAN_NONE || first[1].cls == SCAN_NONE) return;
    Z3_ast low = s->halved[0][first[0].cls][first[0].number],
           high = s->halved[1][first[1].cls][first[1].number];
    if (low == high) s->stored_whole = low;
}

static inline void smt_run_line(smt_ptx *s, const scan_line *line) {
    char op[40];
    unsigned results;
    const scan_operand *to = scan_group(&s->scan, line, 0, &results);
    snprintf(op, sizeof op, "%.*s", (int)line->op_length, line->op);
    if (line->is_opaque || (strchr(op, '.') == NULL && strcmp(op, "ret") != 0)) {
        smt_give_up(s, line);
        return;
    }
    if (strcmp(op, "ret") == 0) return;
    if (strrchr(op, '.')[1] == 'f') { /* of floats nothing is here */
        smt_give_up(s, line);
        return;
    }
    smt_type type = smt_last_type(op);
    Z3_ast value;
    if (strncmp(op, "st.global", 9) == 0) {
        smt_store(s, line);
        return;
    }
    if (strcmp(op, "mov.b64") == 0 && results == 2) {
        smt_split(s, line);
        return;
    }
    if (strncmp(op, "ld.param", 8) == 0)
        value = smt_parameter(s, line, type);
    else if (strncmp(op, "cvt.", 4) == 0)
        value = smt_convert(s, line, op);
    else if (strncmp(op, "mul.", 4) == 0 || strncmp(op, "mad.", 4) == 0)
        value = smt_product(s, line, op, type);
    else if (strncmp(op, "shl.", 4) == 0 || strncmp(op, "shr.", 4) == 0)
        value = smt_shift(s, line, op, type);
    else if (strncmp(op, "setp.", 5) == 0)
        value = smt_test(s, line, op, type);
    else if (strcmp(op, "vote.sync.any.pred") == 0)
        value = smt_vote(s, line);
    else if (strncmp(op, "selp.", 5) == 0)
        value = smt_select(s, line, type);
    else if (strncmp(op, "mov.", 4) == 0 || strncmp(op, "neg.", 4) == 0 || strncmp(op, "not.", 4) == 0)
        value = smt_one(s, line, op, type);
    else
        value = smt_two(s, line, op, type);
    if (value != NULL) smt_assign(s, line, to, value);
}

/* ---- accesses ---- */

static inline void smt_lose(smt_ptx *s, const char *what) {
    if (s->unknown[0] == '\0') snprintf(s->unknown, sizeof s->unknown, "%.60s", what);
}

/* What the guard of a line asks, with what leads to the line; `at`: the line. NULL: not known. */
static inline Z3_ast smt_guard(smt_ptx *s, const char *at) {
    Z3_context z3 = s->launch->z3;
    while (*at == '\t' || *at == ' ') at++;
    if (*at != '@') return s->reached;
    bool negated = at[1] == '!';
    unsigned number = SMT_REGISTERS;
    if (sscanf(at + 1 + negated, "%%p%u", &number) != 1 || number >= SMT_REGISTERS) return NULL;
    Z3_ast guard = s->regs[0][number]; /* predicates are the first class */
    if (guard == NULL) return NULL;
    if (negated) guard = Z3_mk_not(z3, guard);
    Z3_ast both[2] = {s->reached, guard};
    return Z3_simplify(z3, Z3_mk_and(z3, 2, both));
}

/* ld.global.v4.b32 {...}, [%rd1+16]: of the operand `group`. */
static inline void smt_add_access(smt_ptx *s, const scan_line *line, Z3_ast guard, unsigned group) {
    Z3_context z3 = s->launch->z3;
    unsigned parts;
    char op[48];
    snprintf(op, sizeof op, "%.*s", (int)line->op_length, line->op);
    const char *vector = strstr(op, ".v");
    const scan_operand *to = scan_group(&s->scan, line, group, &parts);
    bool known = to != NULL && to->cls != SCAN_NONE && to->number < SMT_REGISTERS;
    Z3_ast address = known ? s->regs[to->cls][to->number] : NULL;
    if (guard == NULL || address == NULL || smt_bits(z3, address) != 64 || parts > 2 ||
        s->access_count == SMT_ACCESSES) {
        smt_lose(s, line->op);
        return;
    }
    if (parts == 2)
        address = Z3_mk_bvadd(z3, address, smt_constant(z3, 64, (uint64_t)strtoll(to[1].at, NULL, 0)));
    unsigned bytes = smt_last_type(op).bits / 8 *
                     (vector && isdigit((unsigned char)vector[2]) ? (unsigned)atoi(vector + 2) : 1);
    s->accesses[s->access_count++] = (smt_access){strncmp(op, "st", 2) == 0, guard, address, bytes};
}

static inline Z3_ast smt_or(const smt_ptx *s, Z3_ast a, Z3_ast b) {
    Z3_ast both[2] = {a, b};
    return a == NULL ? b : Z3_simplify(s->launch->z3, Z3_mk_or(s->launch->z3, 2, both));
}

/* The label is ahead: what jumps there is taken up where it comes. */
static inline void smt_branch_to(smt_ptx *s, const scan_line *line, Z3_ast guard, const char *from) {
    Z3_context z3 = s->launch->z3;
    const scan_operand *to = scan_group(&s->scan, line, 0, NULL);
    char label[24];
    if (to == NULL || guard == NULL || s->branch_count == SMT_BRANCHES || to->length >= sizeof label - 2) {
        smt_lose(s, "a branch");
        return;
    }
    snprintf(label, sizeof label, "\n%.*s:", (int)to->length, to->at);
    if (strstr(from, label) == NULL) smt_lose(s, "a loop");
    smt_branch *branch = &s->branches[s->branch_count++];
    snprintf(branch->label, sizeof branch->label, "%s", label + 1);
    branch->taken = guard;
    Z3_ast both[2] = {s->reached, Z3_mk_not(z3, guard)};
    s->reached = Z3_simplify(z3, Z3_mk_and(z3, 2, both));
}

static inline void smt_reach_label(smt_ptx *s, const char *at) {
    for (unsigned i = 0; i < s->branch_count; i++)
        if (strncmp(at, s->branches[i].label, strlen(s->branches[i].label)) == 0)
            s->reached = smt_or(s, s->reached, s->branches[i].taken);
}

/* A line whose accesses, branches and registers are wanted. */
static inline void smt_follow_line(smt_ptx *s, const scan_line *line, const char *at) {
    Z3_ast guard = smt_guard(s, at);
    unsigned results;
    const scan_operand *to = scan_group(&s->scan, line, 0, &results);
    if (line->is_opaque) {
        for (uint32_t i = 0; i < line->count; i++) smt_cloud(s, &s->scan.operands[line->first + i]);
        return;
    }
    if (scan_op_starts(line, "bra")) {
        smt_branch_to(s, line, guard, at);
        return;
    }
    if (scan_op_starts(line, "ret")) {
        if (line->is_guarded) smt_lose(s, "a guarded ret");
        return;
    }
    if (scan_op_starts(line, "st.global")) {
        smt_add_access(s, line, guard, 0);
        return;
    }
    if (scan_op_starts(line, "ld.global")) smt_add_access(s, line, guard, 1);
    bool understood = !line->is_guarded && (results == 1 || scan_op_starts(line, "mov.b64"));
    s->was_assigned = 0;
    if (understood && !scan_op_starts(line, "ld.global")) smt_run_line(s, line);
    if (s->was_assigned == results) return;
    for (unsigned i = 0; i < results; i++) smt_cloud(s, &to[i]);
}

static inline void smt_run_body(smt_ptx *s, const char *ptx) {
    const char *at = strstr(ptx, "\n{\n");
    if (at == NULL) abort();
    for (at += 3; *at != '\0' && *at != '}'; at += strcspn(at, "\n") + 1) {
        scan_line line;
        s->scan.operand_count = 0;
        if (*at == '$' && s->is_lenient)
            smt_reach_label(s, at);
        else if (*at == '$')
            snprintf(s->unknown, sizeof s->unknown, "a label");
        else if (!scan_read_line(&s->scan, at, at + strcspn(at, "\n"), &line))
            continue;
        else if (s->is_lenient)
            smt_follow_line(s, &line, at);
        else
            smt_run_line(s, &line);
    }
}

/* The body of the first kernel in the text. Freed by smt_free. */
static inline smt_ptx *smt_run(const smt_launch *launch, const char *ptx) {
    smt_ptx *s = calloc(1, sizeof *s);
    if (s == NULL) abort();
    s->launch = launch;
    smt_run_body(s, ptx);
    return s;
}

/* The same, for the accesses of global memory. */
static inline smt_ptx *smt_run_accesses(const smt_launch *launch, const char *ptx) {
    smt_ptx *s = calloc(1, sizeof *s);
    if (s == NULL) abort();
    s->launch = launch;
    s->is_lenient = true;
    s->reached = Z3_mk_true(launch->z3);
    smt_run_body(s, ptx);
    return s;
}

static inline void smt_free(smt_ptx *s) {
    free(s->scan.operands);
    free(s);
}

#endif
