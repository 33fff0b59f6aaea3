/* Cases of the verifier: a kernel with something of every kind, what a case adds to it, and the words of the
 * diagnostic that a user needs to see. */
#ifndef TVM_TESTS_VERIFY_CASE_H
#define TVM_TESTS_VERIFY_CASE_H

#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "program.h"
#include "program_kit.h"
#include "verify.h"

/* A kernel with something of every kind, to which a case adds its instructions. */
typedef struct fixture {
    kit k;
    tvm_layout row;            /* c reduced over its rows: 1x8 */
    uint32_t m, n, a, f, q, w; /* parameters: i32, i32, f16[m, n], f32[m, n], u3[m, n], bool */
    uint32_t ra, rb, rc, rd, mask, row_sum, codes; /* f16 A, f16 B, f32 C, f32 C, bool C, f32 row, u3 A */
    uint32_t i, j, wide, real;                     /* i32, i32, i64, f32 */
    uint32_t sa, sb;                               /* f16[4, 16, 16], f32[16, 8] */
    uint32_t zero, one, yes;                       /* expressions: 0, 1, m < n */
} fixture;

static inline void start(fixture *t) {
    tvm_why why = {""};
    memset(t, 0, sizeof *t);
    kit *k = &t->k;
    kit_start(k, "matmul");
    ck_assert_int_eq(tvm_layout_reduce(&k->c, 0, &t->row, &why), TVM_OK);
    t->m = kit_scalar(k, "m", TVM_I(32));
    t->n = kit_scalar(k, "n", TVM_I(32));
    uint32_t m = kit_slot_expr(k, t->m), n = kit_slot_expr(k, t->n);
    t->a = kit_global(k, "a", TVM_F16, m, n);
    t->f = kit_global(k, "f", TVM_F32, m, n);
    t->q = kit_global(k, "q", TVM_U(3), m, n);
    t->w = kit_scalar(k, "w", TVM_BOOL);
    k->kernel->param_count = 6;
    k->kernel->grid[0] = kit_binary(k, TVM_EXPR_CDIV, TVM_I(32), m, kit_int(k, 16));
    t->ra = kit_register(k, "ra", TVM_F16, &k->a);
    t->rb = kit_register(k, "rb", TVM_F16, &k->b);
    t->rc = kit_register(k, "rc", TVM_F32, &k->c);
    t->rd = kit_register(k, "rd", TVM_F32, &k->c);
    t->mask = kit_register(k, "mask", TVM_BOOL, &k->c);
    t->row_sum = kit_register(k, "row_sum", TVM_F32, &t->row);
    t->codes = kit_register(k, "codes", TVM_U(3), &k->a);
    t->i = kit_scalar(k, "i", TVM_I(32));
    t->j = kit_scalar(k, "j", TVM_I(32));
    t->wide = kit_scalar(k, "wide", TVM_I(64));
    t->real = kit_scalar(k, "real", TVM_F32);
    t->sa = kit_shared(k, "sa", TVM_F16, 3, (const uint32_t[]){4, 16, 16});
    t->sb = kit_shared(k, "sb", TVM_F32, 2, (const uint32_t[]){16, 8});
    t->zero = kit_int(k, 0);
    t->one = kit_int(k, 1);
    t->yes = kit_binary(k, TVM_EXPR_LT, TVM_BOOL, m, n);
}

/* Every tensor gets a value. */
static inline void define_all(fixture *t) {
    const uint32_t tensors[] = {t->ra, t->rb, t->rc, t->mask, t->row_sum, t->codes};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        INSN(&t->k, ALLOC_REGISTER, tensors[i], (tvm_operand){TVM_OPERAND_NONE, 0});
    INSN0(&t->k, ALLOC_SHARED, t->sa);
    INSN0(&t->k, ALLOC_SHARED, t->sb);
    INSN(&t->k, LET, t->i, X(t->zero));
}

static inline uint32_t reg(fixture *t, const char *name, tvm_dtype type, const tvm_layout *layout) {
    uint32_t slot = kit_register(&t->k, name, type, layout);
    INSN(&t->k, ALLOC_REGISTER, slot, (tvm_operand){TVM_OPERAND_NONE, 0});
    return slot;
}

typedef struct verify_case {
    const char *name;
    void (*build)(fixture *t); /* after define_all, unless raw */
    const char *words[4];      /* all of them in one diagnostic; none: the program is right */
    bool raw;
} verify_case;

static inline bool has_words(const tvm_diag *diag, const char *const *words) {
    for (unsigned w = 0; w < 4 && words[w] != NULL; w++)
        if (strstr(diag->message, words[w]) == NULL) return false;
    return true;
}

static inline void run_case(const verify_case *c) {
    fixture t;
    tvm_diags diags = {0};
    start(&t);
    if (!c->raw) define_all(&t);
    c->build(&t);
    tvm_status status = tvm_verify(t.k.program, &diags);
    const char *first = diags.count > 0 ? diags.items[0].message : "(no diagnostic)";
    if (c->words[0] == NULL) {
        ck_assert_msg(status == TVM_OK && diags.count == 0, "%s: %s", c->name, first);
    } else {
        ck_assert_msg(status == TVM_INVALID && diags.count > 0, "%s: was accepted", c->name);
        bool found = false;
        for (size_t i = 0; i < diags.count; i++) found = found || has_words(&diags.items[i], c->words);
        ck_assert_msg(found, "%s: %s", c->name, first);
    }
    tvm_diags_free(&diags);
    kit_end(&t.k);
}

#define BUILD(name) static void name(fixture *t)

/* for %j = 0 to n step STEP unroll UNROLL, left open. */
static inline void loop(fixture *t, uint32_t step, uint32_t unroll) {
    INSN(&t->k, FOR, t->j, X(t->zero), X(kit_slot_expr(&t->k, t->n)), X(step), K(unroll));
}

#define RIGHT(build)                                                                                         \
    { #build, build, {NULL }, false }
#define WRONG(build, ...)                                                                                    \
    { #build, build, {__VA_ARGS__ }, false }
#define WRONG_RAW(build, ...)                                                                                \
    { #build, build, {__VA_ARGS__ }, true }

/* The test of an array `group_cases`, and its entry in a TCase. */
#define CASE_TEST(group)                                                                                     \
    START_TEST(test_##group) {                                                                               \
        run_case(&group##_cases[_i]);                                                                        \
    }                                                                                                        \
    END_TEST
#define ADD_CASES(tcase, group)                                                                              \
    tcase_add_loop_test((tcase), test_##group, 0, sizeof group##_cases / sizeof group##_cases[0])

#endif
