/* Entries: that the chain of decisions chooses what the table says, what is said when nothing serves, and the
 * public interface on the interpreter. */
#include "check_kit.h"
#include <stdlib.h>
#include <string.h>

#include "assembler.h"
#include "assembler_kit.h"
#include "codegen.h"
#include "suite_kit.h"
#include "tvm.h"
#include "variants.h"
#include "vbc.h"
#include "verify.h"

static const tvm_room any_room = {0};

/* ---- the chain against the conditions themselves, one after the other ---- */

static const char random_head[] =
    ".vasm 1\n.kernel v(m: i32, n: i64, u: u32, w: u64, b: bool, f: f32, x: global f32[32])\n.warps 1\n    exit\n"
    ".end\n.entry pick\n";

static unsigned draw(unsigned *state, unsigned below) {
    *state = *state * 1664525U + 1013904223U;
    return (unsigned)(((uint64_t)(*state >> 8) * below) >> 24);
}

static void write_leaf(FILE *out, unsigned *state) {
    static const char *const params[] = {"m",     "n",     "u",     "w",      "m % 4",
                                         "n % 3", "u % 5", "w % 2", "i64(m)", "m + u"};
    static const char *const device[] = {"target", "multiprocessors", "f", "2 * m"};
    static const char *const compare[] = {"<", "<=", ">", ">=", "==", "!="};
    unsigned kind = draw(state, 12), c = draw(state, 7);
    const char *op = compare[draw(state, 6)];
    if (kind == 0)
        fputs("b", out);
    else if (kind == 1)
        fprintf(out, "%u %s %s", c, op, params[draw(state, 8)]);
    else if (kind == 2)
        fprintf(out, "%s %s %u", device[draw(state, 4)], op, c * 30);
    else if (kind == 3)
        fprintf(out, "m %s n", op);
    else
        fprintf(out, "%s %s %u", params[draw(state, 10)], op, c);
}

static void write_condition(FILE *out, unsigned *state, unsigned depth) {
    unsigned kind = depth ? draw(state, 5) : 4;
    if (kind == 0) fputs("!", out);
    if (kind != 4) fputs("(", out);
    if (kind == 4) {
        write_leaf(out, state);
    } else {
        write_condition(out, state, depth - 1);
        if (kind) {
            fputs(kind == 1 ? " || " : " && ", out);
            write_condition(out, state, depth - 1);
        }
        fputs(")", out);
    }
}

static tvm_ir_program *random_table(unsigned *state, unsigned cases) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fputs(random_head, out);
    for (unsigned i = 0; i < cases; i++) {
        fputs(".case v if ", out);
        write_condition(out, state, 4);
        fputs("\n", out);
    }
    fputs(".case v if m == 100\n.end\n", out);
    fclose(out);
    tvm_ir_program *program = assemble(text);
    free(text);
    return program;
}

static uint32_t first_that_holds(const tvm_ir_entry *entry, const tvm_launch_env *env) {
    const tvm_eval_env known = {.slots = env->scalars,
                                .multiprocessors = (int32_t)env->multiprocessors,
                                .target = (int32_t)env->target,
                                .traits = env->traits};
    for (uint32_t i = 0; i < entry->case_count; i++) {
        tvm_scalar value;
        ck_assert_int_eq(tvm_expr_eval(&entry->head, entry->cases[i].condition, &known, &value, NULL),
                         TVM_OK);
        if (value.i) return i;
    }
    return TVM_NONE;
}

START_TEST(test_choice_is_the_first_case_that_holds) {
    unsigned state = 17U + (unsigned)_i, chosen = 0;
    tvm_ir_program *program = random_table(&state, 1 + draw(&state, 12));
    const tvm_ir_entry *entry = &program->entries[0];
    tvm_scalar scalars[7] = {{0}};
    tvm_launch_env env = {.scalars = scalars,
                          .multiprocessors = 90,
                          .target = _i % 2 ? 90 : 0,
                          .traits = tvm_target_traits_for(_i % 2 ? 90 : 0)};
    tvm_variants *variants;
    bool possible[13];
    ck_assert_int_eq(tvm_variants_make(program, entry, &env, &any_room, &variants, NULL), TVM_OK);
    ck_assert_int_eq(tvm_variants_possible(variants, possible, NULL), TVM_OK);
    for (unsigned run = 0; run < 2000; run++) {
        for (unsigned p = 0; p < 6; p++) scalars[p].i = (int64_t)draw(&state, 9) - (p < 2 ? 3 : 0);
        if (draw(&state, 50) == 0) scalars[draw(&state, 2)].i = INT32_MIN;
        if (draw(&state, 50) == 0) scalars[3].u = UINT64_MAX - draw(&state, 2);
        scalars[4].i &= 1;
        scalars[5].f = (double)draw(&state, 90) / 4;
        uint32_t expected = first_that_holds(entry, &env), index = TVM_NONE;
        tvm_diags diags = {0};
        tvm_status status = tvm_variants_choose(variants, &env, &index, &diags);
        ck_assert_int_eq(status, expected == TVM_NONE ? TVM_ARGUMENT : TVM_OK);
        ck_assert_uint_eq(index, expected);
        if (expected != TVM_NONE) ck_assert(possible[expected]);
        chosen += expected != TVM_NONE;
        ck_assert_uint_eq(diags.count, expected == TVM_NONE);
        tvm_diags_free(&diags);
    }
    ck_assert_uint_gt(chosen, 0);
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- what the device decides; what is nearest ---- */

static const char kernels[] = ".vasm 1\n"
                              ".kernel v0(m: i32, n: i32, x: global i32[n])\n.warps 1\n    exit\n.end\n"
                              ".kernel v1(m: i32, n: i32, x: global i32[n])\n.warps 1\n    exit\n.end\n";

static tvm_ir_program *table(const char *cases) {
    char text[1024];
    snprintf(text, sizeof text, "%s.entry pick\n%s.end\n", kernels, cases);
    return assemble(text);
}

START_TEST(test_what_a_device_can_run) {
    tvm_ir_program *program = table(".case v0 if target >= 90 && m < 4\n.case v1 if target < 90 || n == 3\n"
                                    ".case v0 if multiprocessors > 100\n.case v1\n.case v0 if m == 9\n");
    static const struct {
        unsigned target, multiprocessors;
        bool possible[5];
    } devices[] = {{90, 132, {true, true, true, false, false}},
                   {90, 100, {true, true, false, true, false}},
                   {80, 108, {false, true, false, false, false}},
                   {0, 4, {false, true, false, false, false}}};
    for (unsigned d = 0; d < sizeof devices / sizeof *devices; d++) {
        const tvm_launch_env env = {.target = devices[d].target,
                                    .traits = tvm_target_traits_for(devices[d].target),
                                    .multiprocessors = devices[d].multiprocessors};
        tvm_variants *variants;
        ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &any_room, &variants, NULL),
                         TVM_OK);
        bool possible[5];
        ck_assert_int_eq(tvm_variants_possible(variants, possible, NULL), TVM_OK);
        for (unsigned i = 0; i < 5; i++)
            ck_assert_msg(possible[i] == devices[d].possible[i], "device %u, case %u", d, i);
        tvm_variants_free(variants);
    }
    tvm_ir_program_free(program);
}
END_TEST

static const struct nearest_case {
    const char *cases;
    int m, n;
    unsigned target;
    const char *message;
} nearest_cases[] = {
    /* fewer failures before smaller distance */
    {".case v0 if m <= 99 && n <= 63\n.case v1 if m <= 4\n", 100, 64, 0,
     "no variant of 'pick' serves m = 100, n = 64; the nearest is 'v1', which needs m <= 4"},
    {".case v0 if m <= 8\n.case v1 if m <= 64\n.case v0 if m >= 1000\n", 100, 1, 0,
     "no variant of 'pick' serves m = 100; the nearest is 'v1', which needs m <= 64"},
    /* what the caller cannot change is worse than anything he can */
    {".case v0 if target >= 90 && m <= 128\n.case v1 if m == 1 && n == 1\n", 100, 64, 80,
     "no variant of 'pick' serves m = 100, n = 64, target = 80; the nearest is 'v1', which needs m == 1 and n == 1"},
    {".case v0 if target >= 90\n", 100, 64, 80,
     "no variant of 'pick' serves target = 80; the nearest is 'v0', which needs target >= 90"},
    /* the nearer alternative; negations */
    {".case v0 if (m <= 8 || m >= 96) && (n % 3 == 0 || n < 16)\n", 90, 17, 0,
     "no variant of 'pick' serves m = 90, n = 17; the nearest is 'v0', which needs m >= 96 and n < 16"},
    {".case v0 if !(m > 8 || n == 17)\n", 9, 17, 0,
     "no variant of 'pick' serves m = 9, n = 17; the nearest is 'v0', which needs m <= 8 and n != 17"},
};

START_TEST(test_nearest) {
    const struct nearest_case *c = &nearest_cases[_i];
    tvm_ir_program *program = table(c->cases);
    tvm_scalar scalars[3] = {{.i = c->m}, {.i = c->n}};
    const tvm_launch_env env = {.scalars = scalars,
                                .target = c->target,
                                .traits = tvm_target_traits_for(c->target),
                                .multiprocessors = 4};
    tvm_variants *variants;
    tvm_diags diags = {0};
    uint32_t index;
    ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &any_room, &variants, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_variants_choose(variants, &env, &index, &diags), TVM_ARGUMENT);
    ck_assert_uint_eq(diags.count, 1);
    ck_assert_str_eq(diags.items[0].message, c->message);
    tvm_diags_free(&diags);
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

/* Of the kernels v0, v1 and v2 each needs so much of 100 bytes. */
static const struct room_case {
    const char *cases;
    uint64_t needs[3];
    int64_t m;
    uint32_t chosen;     /* TVM_NONE: none */
    const char *message; /* then */
} room_cases[] = {
    {".case v0 if m <= 8\n.case v1 if m <= 16\n.case v2\n", {100, 100, 100}, 8, 0, ""},
    {".case v0 if m <= 8\n.case v1 if m <= 16\n.case v2\n", {101, 100, 100}, 8, 1, ""},
    {".case v0 if m <= 8\n.case v1 if m <= 16\n.case v2\n", {101, 200, 0}, 8, 2, ""},
    {".case v0 if m <= 8\n.case v1 if m <= 16\n.case v0\n",
     {101, 0, 0},
     17,
     TVM_NONE,
     "no variant of 'pick' serves m = 17 on this device: 'v0' needs 101 bytes of shared memory, of which a block has "
     "100"},
    {".case v0 if m <= 8\n.case v1 if m <= 16\n.case v2\n",
     {101, 102, 103},
     9,
     TVM_NONE,
     "no variant of 'pick' serves m = 9 on this device: 'v1' needs 102 bytes of shared memory, of which a block "
     "has 100"},
    {".case v0\n",
     {101, 0, 0},
     9,
     TVM_NONE,
     "no variant of 'pick' serves any arguments on this device: 'v0' needs 101 bytes of shared memory, of which a "
     "block has 100"},
    {".case v0 if m <= 16\n.case v1 if m <= 8\n",
     {101, 0, 0},
     17,
     TVM_NONE,
     "no variant of 'pick' serves m = 17; the nearest is 'v1', which needs m <= 8"},
};
enum { ROOM_CASES = sizeof room_cases / sizeof *room_cases };

static unsigned asked; /* how often */

static tvm_status need_of(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags) {
    (void)diags;
    asked++;
    *needs = ((const uint64_t *)code)[kernel];
    return TVM_OK;
}

START_TEST(test_kernels_without_room_are_passed_over) {
    const struct room_case *c = &room_cases[_i];
    char text[1024];
    snprintf(text, sizeof text,
             "%s.kernel v2(m: i32, n: i32, x: global i32[n])\n.warps 1\n.end\n.entry pick\n%s.end\n", kernels,
             c->cases);
    tvm_ir_program *program = assemble(text);
    tvm_scalar scalars[3] = {{.i = c->m}};
    const tvm_launch_env env = {.scalars = scalars};
    atomic_uchar answers[3] = {0};
    const tvm_room room = {.has = 100, .ask = need_of, .code = c->needs, .answers = answers};
    bool possible[3];
    tvm_variants *variants;
    tvm_diags diags = {0};
    uint32_t index = TVM_NONE;
    asked = 0;
    ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &room, &variants, &diags),
                     TVM_OK);
    ck_assert_uint_eq(asked, 0);
    tvm_status status = tvm_variants_choose(variants, &env, &index, &diags);
    ck_assert_uint_eq(index, c->chosen);
    if (c->chosen == TVM_NONE) {
        bool none = strstr(c->message, "shared memory") != NULL;
        ck_assert_int_eq(status, none ? TVM_RESOURCES : TVM_ARGUMENT);
        ck_assert_str_eq(diags.items[0].message, c->message);
    } else {
        ck_assert_int_eq(status, TVM_OK);
        ck_assert_uint_eq(asked, c->chosen + 1); /* of the kernels that were chosen before it */
    }
    ck_assert_int_eq(tvm_variants_possible(variants, possible, NULL), TVM_OK);
    ck_assert_uint_le(asked, 5);
    for (uint32_t i = 0; i < program->entries[0].case_count; i++)
        if (c->needs[program->entries[0].cases[i].kernel] > 100) ck_assert(!possible[i]);
    tvm_diags_free(&diags);
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- costs ---- */

static const char cost_program[] =
    ".vasm 7\n.for V in [2, 3, 5, 7]\n.kernel k${V}(n: i32, d: i32)\n.warps 1\n.grid 1\n.end\n.endfor\n"
    ".entry pick\n"
    ".case k7 if n > 1000 && d == 1 cost 0\n.case k5 if n > 1000\n"
    ".for V in [2, 3, 5]\n.let rounds = cdiv(n, 32 * V)\n"
    ".case k${V} if n % V == 0 cost (d == 9 ? rounds / (d - 9) : rounds * V)\n.endfor\n"
    ".case k7 if n == 11\n.case k3 if n > 8 cost n\n.case k2 if n > 8 cost n\n.end\n";

/* sizes: what a block of k2, k3, k5 and k7 needs, of 100. */
static const struct cost_case {
    int64_t n, d;
    uint64_t sizes[4];
    uint32_t index; /* TVM_NONE: refused */
    const char *words;
} cost_cases[] = {
    {1024, 1, {0}, 0, "case 1: k7, cost 0, taken"},
    {1024, 2, {0}, 1, "case 2: k5, no cost, taken"}, /* the one of the choice before does not hold */
    {30, 0, {0}, 2, "case 3: k2, cost 2, taken\ncase 4: k3, cost 3\ncase 5: k5, cost 5\n"},
    {150, 0, {0}, 4, "case 5: k5, cost 5, taken"},
    {138, 0, {0}, 2, "case 3: k2, cost 6, taken\ncase 4: k3, cost 6\n"}, /* equals */
    {75, 0, {0}, 3, "case 4: k3, cost 3, taken"},
    {11, 0, {0}, 5, "case 6: k7, no cost, taken"},
    {77, 0, {0}, 6, "case 7: k3, cost 77, taken\ncase 8: k2, cost 77\n"},
    {7, 0, {0}, TVM_NONE, "no variant of 'pick' serves n = 7, d = 0"},
    {30,
     0,
     {101},
     3,
     "case 3: k2, cost 2, needs more shared memory than a block has\ncase 4: k3, cost 3, taken"},
    {30, 0, {101, 101}, 4, "case 5: k5, cost 5, taken"},
    {138, 0, {101, 101}, TVM_NONE, "needs 101 bytes of shared memory"},
    {11, 0, {0, 0, 0, 101}, 6, "case 7: k3, cost 11, taken"},
    {30, 9, {0}, TVM_NONE, "entry 'pick': a cost, i64(d == 9 ? "},
    {30, 9, {101, 101, 101}, TVM_NONE, "shared memory"},  /* the costs need no value */
    {7, 9, {0}, TVM_NONE, "no variant of 'pick' serves"}, /* neither where the conditions do not hold */
};

START_TEST(test_least_cost) {
    const struct cost_case *c = &cost_cases[_i];
    tvm_ir_program *program = assemble(cost_program);
    tvm_scalar scalars[2] = {{.i = c->n}, {.i = c->d}};
    const tvm_launch_env env = {
        .scalars = scalars, .multiprocessors = 8, .target = 90, .traits = tvm_target_traits_for(90)};
    atomic_uchar answers[4] = {0};
    const tvm_room room = {.has = 100, .ask = need_of, .code = c->sizes, .answers = answers};
    tvm_variants *variants;
    bool possible[8];
    ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &room, &variants, NULL), TVM_OK);
    for (unsigned again = 0; again < 2; again++) {
        uint32_t index = TVM_NONE;
        tvm_diags diags = {0};
        tvm_text text = {0};
        ck_assert_int_eq(tvm_variants_choose(variants, &env, &index, &diags) == TVM_OK, c->index != TVM_NONE);
        ck_assert_uint_eq(index, c->index);
        if (index == TVM_NONE)
            ck_assert_ptr_nonnull(strstr(diags.items[0].message, c->words));
        else
            ck_assert_int_eq(tvm_variants_costs(variants, &env, &text, &diags), TVM_OK);
        if (index != TVM_NONE) ck_assert_ptr_nonnull(strstr(tvm_text_string(&text), c->words));
        tvm_text_free(&text);
        tvm_diags_free(&diags);
    }
    ck_assert_int_eq(tvm_variants_possible(variants, possible, NULL), TVM_OK);
    if (c->index != TVM_NONE) ck_assert(possible[c->index]);
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

/* What stands behind a choice with a case that always holds is never chosen. */
START_TEST(test_costs_that_always_hold) {
    tvm_ir_program *program =
        assemble(".vasm 7\n.for V in [1, 2, 3]\n.kernel k${V}(n: i32)\n.warps 1\n.grid 1\n.end\n.endfor\n"
                 ".entry pick\n.case k1 if n > 3 cost 1\n.case k2 if target >= 90 cost n\n.case k3\n.end\n");
    tvm_scalar n = {.i = 0};
    for (uint32_t target = 80; target <= 90; target += 10) {
        const tvm_launch_env env = {
            .scalars = &n, .multiprocessors = 8, .target = target, .traits = tvm_target_traits_for(target)};
        tvm_variants *variants;
        bool possible[3];
        ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &any_room, &variants, NULL),
                         TVM_OK);
        ck_assert_int_eq(tvm_variants_possible(variants, possible, NULL), TVM_OK);
        ck_assert(possible[0] && possible[1] == (target == 90) && possible[2] == (target == 80));
        tvm_variants_free(variants);
    }
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(test_condition_that_divides_by_zero) {
    tvm_ir_program *program = table(".case v0 if n != 0 && m % n == 1\n.case v1 if m / n > 2\n");
    tvm_scalar scalars[3] = {{.i = 5}, {.i = 2}};
    const tvm_launch_env env = {.scalars = scalars};
    tvm_variants *variants;
    tvm_diags diags = {0};
    uint32_t index;
    ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &any_room, &variants, &diags),
                     TVM_OK);
    ck_assert_int_eq(tvm_variants_choose(variants, &env, &index, &diags), TVM_OK);
    ck_assert_uint_eq(index, 0);
    scalars[1].i = 0;
    ck_assert_int_eq(tvm_variants_choose(variants, &env, &index, &diags), TVM_ARGUMENT);
    ck_assert_str_eq(diags.items[0].message,
                     "entry 'pick': a condition, m / n > 2 (m = 5, n = 0): division by zero");
    tvm_diags_free(&diags);
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- code for one target ---- */

static bool has_code(const tvm_ir_program *program, const char *target_name, const char *entry_point) {
    tvm_target target;
    tvm_module *module = NULL;
    ck_assert_int_eq(tvm_target_parse(target_name, &target, NULL), TVM_OK);
    ck_assert_int_eq(tvm_translate(program, target, &module, NULL), TVM_OK);
    ck_assert_uint_eq(module->kernel_count, program->kernel_count);
    bool found = strstr(module->ptx, entry_point) != NULL;
    tvm_module_free(module);
    return found;
}

START_TEST(test_kernels_of_other_targets_have_no_code) {
    tvm_ir_program *program =
        assemble(".vasm 1\n"
                 ".kernel hopper(m: i32)\n.warps 1\n.assume target >= 90 && m > 2, m < 9\n"
                 "    exit\n.end\n"
                 ".kernel others(m: i32)\n.warps 1\n.assume target < 90 || m > 2\n"
                 ".assume target != 80 || multiprocessors > 1\n    exit\n.end\n");
    ck_assert(has_code(program, "sm_90a", ".entry hopper"));
    ck_assert(has_code(program, "sm_100a", ".entry hopper"));
    ck_assert(!has_code(program, "sm_89", ".entry hopper"));
    ck_assert(has_code(program, "sm_80", ".entry others"));
    ck_assert(has_code(program, "sm_90a", ".entry others"));
    tvm_ir_program_free(program);
}
END_TEST

/* ---- tvm.h ---- */

static const char runtime_text[] =
    ".vasm 1\n"
    ".kernel plain(n: i32, x: global i32[n])\n.warps 1\n    exit\n.end\n"
    ".kernel even(n: i32, x: global i32[n, 2])\n.warps 1\n.grid cdiv(n, 16)\n.assume n >= 16\n"
    "    %v = alloc-register i32[16, 2], spatial(16, 2), init 2\n    store-global x[block.x * 16, 0], %v\n.end\n"
    ".kernel odd(n: i32, x: global i32[n + 1, 2])\n.warps 1\n.grid cdiv(n, 16)\n"
    "    %v = alloc-register i32[16, 2], spatial(16, 2), init 1\n    store-global x[block.x * 16, 0], %v\n.end\n"
    ".entry pick\n.case even if n % 2 == 0\n.case odd if target != 0 || n < 100\n.end\n"
    ".entry agreed\n.case even if n % 4 == 0\n.case even\n.end\n";

typedef struct loaded {
    tvm_context *context;
    tvm_program *program;
    tvm_kernel *pick;
} loaded;

static loaded load(unsigned target) {
    loaded l = {0};
    tvm_context_options options = {.device = TVM_DEVICE_CPU, .threads = 1, .target = target};
    tvm_ir_program *program = assemble(runtime_text);
    tvm_diags diags = {0};
    uint8_t *bytes;
    size_t size;
    ck_assert_int_eq(tvm_vbc_write(program, true, &bytes, &size, &diags), TVM_OK);
    tvm_ir_program_free(program);
    ck_assert_int_eq(tvm_context_create(&options, &l.context), TVM_OK);
    ck_assert_int_eq(tvm_load(l.context, bytes, size, &l.program), TVM_OK);
    ck_assert_int_eq(tvm_get_kernel(l.program, "pick", &l.pick), TVM_OK);
    free(bytes);
    return l;
}

static void unload(loaded *l) {
    tvm_program_free(l->program);
    tvm_context_free(l->context);
}

START_TEST(test_introspection) {
    loaded l = load(0);
    tvm_param_info info;
    ck_assert_uint_eq(tvm_kernel_count(l.program), 5);
    ck_assert_str_eq(tvm_kernel_name(tvm_kernel_at(l.program, 0)), "plain");
    ck_assert_ptr_eq(tvm_kernel_at(l.program, 3), l.pick);
    ck_assert_str_eq(tvm_kernel_name(l.pick), "pick");
    ck_assert_uint_eq(tvm_param_count(l.pick), 2);
    ck_assert_int_eq(tvm_param(l.pick, 1, &info), TVM_OK);
    ck_assert_str_eq(info.name, "x");
    ck_assert_str_eq(info.type, "i32");
    ck_assert_uint_eq(info.rank, 2);
    ck_assert_str_eq(info.shape, ""); /* the variants' differ */
    ck_assert_int_eq(tvm_param(tvm_kernel_at(l.program, 4), 1, &info), TVM_OK);
    ck_assert_str_eq(info.shape, "[n, 2]"); /* of all variants */
    tvm_kernel_info code;
    ck_assert_int_eq(tvm_get_kernel_info(l.pick, &code), TVM_USAGE);
    ck_assert_str_eq(tvm_message(l.context),
                     "'pick' is an entry, which has no code of its own\n"
                     "  hint: tvm_kernel_variant names the kernel that a launch runs");
    unload(&l);
}
END_TEST

START_TEST(test_variant_and_shape_follow_the_values) {
    loaded l = load(0);
    tvm_value values[2] = {{.i = 16}};
    const char *name;
    int64_t shape[8];
    size_t bytes;
    ck_assert_int_eq(tvm_kernel_variant(l.pick, values, 2, &name), TVM_OK);
    ck_assert_str_eq(name, "even");
    ck_assert_int_eq(tvm_param_shape(l.pick, 1, values, 2, shape, &bytes), TVM_OK);
    ck_assert_int_eq(shape[0], 16);
    values[0].i = 17;
    ck_assert_int_eq(tvm_kernel_variant(l.pick, values, 2, &name), TVM_OK);
    ck_assert_str_eq(name, "odd");
    ck_assert_int_eq(tvm_param_shape(l.pick, 1, values, 2, shape, &bytes), TVM_OK);
    ck_assert_int_eq(shape[0], 18);
    ck_assert_uint_eq(bytes, 18 * 2 * 4);
    ck_assert_int_eq(tvm_kernel_variant(tvm_kernel_at(l.program, 0), values, 2, &name), TVM_OK);
    ck_assert_str_eq(name, "plain");
    values[0].i = 101;
    ck_assert_int_eq(tvm_kernel_variant(l.pick, values, 2, &name), TVM_ARGUMENT);
    ck_assert_ptr_null(name);
    ck_assert_int_eq(tvm_param_shape(l.pick, 1, values, 2, shape, &bytes), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(l.context), "no variant of 'pick' serves n = 101, target = 0"));
    unload(&l);
    l = load(90);
    ck_assert_int_eq(tvm_kernel_variant(l.pick, values, 2, &name), TVM_OK);
    ck_assert_str_eq(name, "odd");
    unload(&l);
}
END_TEST

static int first_of(loaded *l, void *data) {
    int32_t value;
    ck_assert_int_eq(tvm_memory_read(l->context, &value, data, sizeof value), TVM_OK);
    return value;
}

START_TEST(test_launches_run_the_variant) {
    loaded l = load(0);
    void *data;
    double time;
    ck_assert_int_eq(tvm_memory_alloc(l.context, 4096, &data), TVM_OK);
    ck_assert_int_eq(tvm_prepare(l.pick), TVM_OK);
    ck_assert_int_eq(tvm_launch(l.pick, NULL, 16, data), TVM_OK);
    ck_assert_int_eq(first_of(&l, data), 2);
    ck_assert_int_eq(tvm_launch(l.pick, NULL, 17, data), TVM_OK);
    ck_assert_int_eq(first_of(&l, data), 1);
    tvm_value values[2] = {{.i = 20}, {.data = data, .bytes = 160}};
    ck_assert_int_eq(tvm_launchv(l.pick, NULL, values, 2), TVM_OK);
    ck_assert_int_eq(first_of(&l, data), 2);
    values[0].i = 19;
    ck_assert_int_eq(tvm_time(l.pick, values, 2, 1, &time), TVM_OK);
    ck_assert_int_eq(first_of(&l, data), 1);
    /* `odd` needs 20 rows of two for 19: that is what the bytes are compared with */
    values[1].bytes = 152;
    ck_assert_int_eq(tvm_launchv(l.pick, NULL, values, 2), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(
        strstr(tvm_message(l.context), "entry 'pick': kernel 'odd': tensor 'x' has 160 bytes"));
    ck_assert_int_eq(tvm_launch(l.pick, NULL, 14, data), TVM_ARGUMENT);
    ck_assert_str_eq(tvm_message(l.context), "entry 'pick': kernel 'even' assumes n >= 16 (n = 14)");
    ck_assert_int_eq(tvm_launch(l.pick, NULL, 103, data), TVM_ARGUMENT);
    ck_assert_str_eq(
        tvm_message(l.context),
        "no variant of 'pick' serves n = 103, target = 0; the nearest is 'odd', which needs n < 100");
    ck_assert_int_eq(tvm_launchv(l.pick, NULL, values, 1), TVM_ARGUMENT);
    ck_assert_str_eq(tvm_message(l.context), "kernel 'pick' takes 2 arguments, 1 were given");
    tvm_function bound;
    ck_assert_int_eq(tvm_bind(l.pick, &bound), TVM_OK);
    ck_assert_int_eq(((int (*)(int32_t, void *))bound)(18, data), TVM_OK);
    ck_assert_int_eq(first_of(&l, data), 2);
    ck_assert_int_eq(((int (*)(int32_t, void *))bound)(103, data), TVM_ARGUMENT);
    int64_t extents[] = {20, 2};
    tvm_tensor tensor = {.data = data,
                         .device = {TVM_TENSOR_CPU, 0},
                         .ndim = 2,
                         .dtype = {TVM_TENSOR_INT, 32, 1},
                         .shape = extents};
    values[1] = (tvm_value){.tensor = &tensor};
    ck_assert_int_eq(tvm_launchv(l.pick, NULL, values, 2), TVM_OK); /* odd: 19 + 1 rows */
    ck_assert_int_eq(first_of(&l, data), 1);
    values[0].i = 18;
    ck_assert_int_eq(tvm_launchv(l.pick, NULL, values, 2), TVM_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(tvm_message(l.context), "entry 'pick': kernel 'even': "));
    values[1] = (tvm_value){0};
    ck_assert_int_eq(tvm_reserve(l.pick, NULL, values, 2), TVM_OK);
    ck_assert_int_eq(tvm_memory_free(l.context, data), TVM_OK);
    unload(&l);
}
END_TEST

/* ---- the verifier, on what no assembler writes ---- */

static void spoil(tvm_ir_program *program, unsigned kind) {
    tvm_ir_entry *entry = &program->entries[0];
    tvm_ir_kernel *head = &entry->head;
    switch (kind) {
    case 0:
        entry->cases[0].kernel = program->kernel_count;
        break;
    case 1:
        entry->cases[0].condition = head->expr_count;
        break;
    case 2: /* not bool */
        entry->cases[0].condition = 0;
        break;
    case 3:
        entry->case_count = 0;
        break;
    case 4:
        head->name = program->kernels[1].name;
        break;
    case 5:
        program->kernels[1].slots[0].dtype = TVM_I(64);
        break;
    case 6:
        head->exprs[head->expr_count - 1].a = head->expr_count;
        break;
    case 7:
        head->slots[1].kind = TVM_SLOT_GLOBAL;
        break;
    case 8:
        head->param_count = 1;
        break;
    case 10:
        entry->cases[0].cost = head->expr_count;
        break;
    case 11:
        entry->cases[1].cost = entry->cases[1].condition;
        break;
    case 12: /* n, an i32 */
        entry->cases[1].cost = head->exprs[entry->cases[1].condition].a;
        break;
    default:
        head->name = 1U << 30;
        break;
    }
}

START_TEST(test_verifier_refuses) {
    static const char *const words[] = {"kernel 2 does not exist",
                                        "does not exist",
                                        "expected bool",
                                        "no case",
                                        "kernels or entries",
                                        "parameter 1 of 'v1'",
                                        "operands",
                                        "tensor cannot stand",
                                        "",
                                        "is not an identifier",
                                        "the cost of case 1: expression",
                                        "the cost of case 2 has type bool, expected i64",
                                        "the cost of case 2 has type i32, expected i64"};
    tvm_ir_program *program = table(".case v0 if m < 3\n.case v1 if n == 2\n");
    tvm_diags diags = {0};
    spoil(program, (unsigned)_i);
    ck_assert_int_eq(tvm_verify(program, &diags), TVM_INVALID);
    ck_assert_uint_gt(diags.count, 0);
    bool found = false;
    for (size_t i = 0; i < diags.count; i++) found = found || strstr(diags.items[i].message, words[_i]);
    ck_assert_msg(found, "%s", diags.items[0].message);
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("variants");
    TCase *tcase = tcase_create("entries");
    tcase_add_loop_test(tcase, test_choice_is_the_first_case_that_holds, 0, 60);
    tcase_add_test(tcase, test_what_a_device_can_run);
    tcase_add_loop_test(tcase, test_kernels_without_room_are_passed_over, 0, ROOM_CASES);
    tcase_add_loop_test(tcase, test_nearest, 0, sizeof nearest_cases / sizeof *nearest_cases);
    tcase_add_loop_test(tcase, test_least_cost, 0, sizeof cost_cases / sizeof *cost_cases);
    tcase_add_test(tcase, test_costs_that_always_hold);
    tcase_add_test(tcase, test_condition_that_divides_by_zero);
    tcase_add_test(tcase, test_kernels_of_other_targets_have_no_code);
    tcase_add_test(tcase, test_introspection);
    tcase_add_test(tcase, test_variant_and_shape_follow_the_values);
    tcase_add_test(tcase, test_launches_run_the_variant);
    tcase_add_loop_test(tcase, test_verifier_refuses, 0, 13);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
