/* The choice among variants against the conditions as they are, evaluated one after the other: of every
 * shipped program on every kind of device, and of formulas made at random, divisions by zero among them; for
 * arguments that are new, for those that were there before, and in several threads at a time. */
#include <glob.h>
#include <pthread.h>

#include "shipped_kit.h"
#include "suite_kit.h"
#include "variants.h"

static unsigned draw(unsigned *state, unsigned below) {
    *state = *state * 1664525U + 1013904223U;
    return (unsigned)(((uint64_t)(*state >> 8) * below) >> 24);
}

/* ---- what is expected ---- */

typedef struct choice {
    tvm_status status;
    uint32_t index;
} choice;

/* too_big: of each kernel; NULL: none is. Cases with costs that follow one another are gone through to their
 * end, for the least of those that hold. */
static choice expected_choice(const tvm_ir_entry *entry, const tvm_launch_env *env, const bool *too_big) {
    const choice refused = {TVM_ARGUMENT, TVM_NONE};
    const tvm_eval_env known = {.slots = env->scalars,
                                .multiprocessors = (int32_t)env->multiprocessors,
                                .target = (int32_t)env->target,
                                .traits = env->traits};
    uint32_t best = TVM_NONE;
    int64_t least = 0;
    for (uint32_t i = 0; i < entry->case_count; i++) {
        tvm_scalar value = {.i = 1}, cost = {.i = 0};
        const tvm_ir_case *made = &entry->cases[i];
        if (best != TVM_NONE && made->cost == TVM_NONE) break;
        if (too_big && too_big[made->kernel]) continue;
        if (made->condition != TVM_NONE && tvm_expr_eval(&entry->head, made->condition, &known, &value, NULL))
            return refused;
        if (!value.i) continue;
        if (made->cost == TVM_NONE) return (choice){TVM_OK, i};
        if (tvm_expr_eval(&entry->head, made->cost, &known, &cost, NULL)) return refused;
        if (best == TVM_NONE || cost.i < least) {
            best = i;
            least = cost.i;
        }
    }
    return best == TVM_NONE ? refused : (choice){TVM_OK, best};
}

static void is_expected(const tvm_variants *variants, const tvm_ir_entry *entry, const tvm_launch_env *env,
                        const bool *too_big, unsigned *chosen) {
    choice expected = expected_choice(entry, env, too_big);
    for (unsigned again = 0; again < 2; again++) {
        uint32_t index = TVM_NONE;
        tvm_diags diags = {0};
        tvm_status status = tvm_variants_choose(variants, env, &index, &diags);
        ck_assert_uint_eq(index, expected.index);
        ck_assert(expected.status ? status == TVM_ARGUMENT || status == TVM_RESOURCES : status == TVM_OK);
        ck_assert_uint_eq(diags.count, status != TVM_OK);
        tvm_diags_free(&diags);
    }
    *chosen += expected.status == TVM_OK;
}

/* ---- shipped programs ---- */

static const struct device {
    uint32_t target, multiprocessors;
} devices[] = {{80, 108}, {86, 84}, {89, 128}, {90, 132}, {90, 78}, {100, 148}, {120, 188}, {0, 4}};

/* Where tables turn, and anything. */
static int64_t draw_size(unsigned *state) {
    static const int64_t turns[] = {0,     1,     8,         16,  17,  32,   33,   64,   65,
                                    96,    112,   128,       256, 288, 1024, 3584, 4096, 11008,
                                    20480, 40960, INT32_MAX, -1,  57,  300,  4098, 8192, 28672};
    enum { TURNS = sizeof turns / sizeof *turns };
    unsigned kind = draw(state, 4);
    if (kind < 2) return turns[draw(state, TURNS)];
    return kind == 2 ? 128 * (int64_t)draw(state, 400) : (int64_t)draw(state, 1 << 20) - 100;
}

static void draw_arguments(const tvm_ir_kernel *head, unsigned *state, tvm_scalar *scalars) {
    for (uint32_t p = 0; p < head->param_count; p++) {
        tvm_dtype type = head->slots[p].dtype;
        scalars[p].i = draw_size(state);
        if (type.kind == TVM_KIND_FLOAT) scalars[p].f = (double)(float)draw(state, 1000) / 8;
        if (type.kind == TVM_KIND_BOOL) scalars[p].i &= 1;
        if (type.kind == TVM_KIND_UINT && scalars[p].i < 0) scalars[p].i = UINT32_MAX;
    }
}

static unsigned try_entry(const tvm_ir_program *program, const tvm_ir_entry *entry, unsigned *state) {
    enum { SHAPES = 400 };
    const tvm_room any_room = {0};
    unsigned chosen = 0;
    for (unsigned d = 0; d < sizeof devices / sizeof *devices; d++) {
        tvm_scalar scalars[TVM_MAX_PARAMS] = {{0}};
        const tvm_launch_env env = {.scalars = scalars,
                                    .target = devices[d].target,
                                    .traits = tvm_target_traits_for(devices[d].target),
                                    .multiprocessors = devices[d].multiprocessors};
        tvm_variants *variants;
        ck_assert_int_eq(tvm_variants_make(program, entry, &env, &any_room, &variants, NULL), TVM_OK);
        for (unsigned i = 0; i < SHAPES; i++) {
            draw_arguments(&entry->head, state, scalars);
            is_expected(variants, entry, &env, NULL, &chosen);
        }
        tvm_variants_free(variants);
    }
    return chosen;
}

START_TEST(shipped_entries_choose_what_their_conditions_say) {
    char pattern[5000];
    glob_t found;
    unsigned state = 5, entries = 0;
    snprintf(pattern, sizeof pattern, "%s/*.vasm", programs_folder());
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t f = 0; f < found.gl_pathc; f++) {
        tvm_ir_program *program = assemble_file(found.gl_pathv[f], "");
        for (uint32_t e = 0; e < program->entry_count; e++, entries++)
            ck_assert_msg(try_entry(program, &program->entries[e], &state) > 0, "%s", found.gl_pathv[f]);
        tvm_ir_program_free(program);
    }
    ck_assert_uint_gt(entries, 15);
    globfree(&found);
}
END_TEST

/* ---- formulas made at random ---- */

static void write_number(FILE *out, unsigned *state, unsigned depth, const char *type);

static void write_bool(FILE *out, unsigned *state, unsigned depth) {
    static const char *const compare[] = {"<", "<=", ">", ">=", "==", "!="};
    static const char *const types[] = {"i32", "i64", "u32", "u64"};
    const char *type = types[draw(state, 4)];
    if (depth && draw(state, 3) == 0) {
        fputs("(", out);
        write_bool(out, state, depth - 1);
        fputs(draw(state, 2) ? " && " : " || ", out);
        write_bool(out, state, depth - 1);
        fputs(")", out);
        return;
    }
    fputs("(", out);
    write_number(out, state, depth, type);
    fprintf(out, " %s ", compare[draw(state, 6)]);
    write_number(out, state, depth, type);
    fputs(")", out);
}

static void write_leaf(FILE *out, unsigned *state, const char *type) {
    static const char *const leaves[] = {"m", "n", "k", "u", "w", "multiprocessors", "target", "b"};
    unsigned kind = draw(state, 12);
    if (kind < 8)
        fprintf(out, "%s(%s)", type, leaves[kind]);
    else if (kind > 9) /* as divisors: all are divided by differently */
        fprintf(out, "%s(%u)", type, kind == 10 ? draw(state, 20) : 1U << draw(state, 31));
    else
        fprintf(out, "%s(m * %u)", type, draw(state, 7) + 2);
}

/* Of the type, an integer's. */
static void write_number(FILE *out, unsigned *state, unsigned depth, const char *type) {
    static const char *const infix[] = {"+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"};
    static const char *const calls[] = {"min", "max", "cdiv"};
    unsigned kind = depth ? draw(state, 18) : 17;
    if (kind >= 16) {
        write_leaf(out, state, type);
    } else if (kind == 15) {
        fputs("(", out);
        write_bool(out, state, depth - 1);
        fputs(" ? ", out);
        write_number(out, state, depth - 1, type);
        fputs(" : ", out);
        write_number(out, state, depth - 1, type);
        fputs(")", out);
    } else if (kind == 14) {
        fprintf(out, "%s(", draw(state, 2) ? "-" : "~");
        write_number(out, state, depth - 1, type);
        fputs(")", out);
    } else if (kind >= 10) {
        fprintf(out, "%s(", calls[kind < 13 ? kind - 10 : 2]);
        write_number(out, state, depth - 1, type);
        fputs(", ", out);
        write_number(out, state, depth - 1, type);
        fputs(")", out);
    } else {
        fputs("(", out);
        write_number(out, state, depth - 1, type);
        fprintf(out, " %s ", infix[kind]);
        write_number(out, state, depth - 1, type);
        fputs(")", out);
    }
}

enum { NAMED = 8 };

/* Of formulas that other cases have, too: runs of cases with costs, often equal ones, and cases without. */
static void write_cost(FILE *out, unsigned *state, const char *type) {
    unsigned kind = draw(state, 6);
    if (kind == 0)
        fprintf(out, " cost %u", draw(state, 3));
    else if (kind == 1)
        fprintf(out, " cost i64(c%u) / i64(m)", draw(state, NAMED));
    else if (kind == 2)
        fprintf(out, " cost (m > 0 ? i64(c%u) : i64(f32(k) * f))", draw(state, NAMED));
    else if (kind > 3)
        fprintf(out, " cost i64(c%u %% %s(%u))", draw(state, NAMED), type, draw(state, 3) + 1);
}

/* A table whose cases have formulas in common, as a table of costs has. */
static tvm_ir_program *random_formulas(unsigned *state, bool costs) {
    static const char *const types[] = {"i32", "i64", "u32", "u64"};
    char *text = NULL;
    size_t size = 0;
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    FILE *out = open_memstream(&text, &size);
    fprintf(out, ".vasm %d\n", costs ? 7 : 1);
    for (unsigned v = 0; v < 3; v++)
        fprintf(out,
                ".kernel v%u(m: i32, n: i32, k: i64, u: u32, w: u64, b: bool, f: f32, x: global f32[8])\n"
                ".warps 1\n.grid 1\n    exit\n.end\n",
                v);
    fputs(".entry pick\n", out);
    const char *type = types[draw(state, 4)];
    for (unsigned i = 0; i < NAMED; i++) {
        fprintf(out, ".let c%u = ", i);
        write_number(out, state, 3, type);
        fputs("\n", out);
    }
    for (unsigned i = 0; i < 10; i++) {
        fprintf(out, ".case v%u if ", i % 3);
        if (draw(state, 3) == 0) write_bool(out, state, 1), fputs(" && ", out);
        if (draw(state, 8) == 0) fputs("f > 3.0 && ", out);
        fprintf(out, "c%u %s min(c%u, c%u + %s(m))", draw(state, NAMED),
                draw(state, 2) ? "==" : "<=", draw(state, NAMED), draw(state, NAMED), type);
        if (costs) write_cost(out, state, type);
        fputs("\n", out);
    }
    fputs(".end\n", out);
    fclose(out);
    tvm_status status = tvm_assemble_text(text, size, "random.vasm", NULL, &program, &diags);
    if (status) tvm_diags_print(&diags, stderr, "test_choice", false);
    ck_assert_msg(status == TVM_OK, "not assembled:\n%s", text);
    tvm_diags_free(&diags);
    free(text);
    return program;
}

static void draw_small(unsigned *state, tvm_scalar *scalars) {
    static const int64_t odd[] = {INT32_MIN, INT32_MAX, -1, 0, 1, 65536};
    for (unsigned p = 0; p < 5; p++) scalars[p].i = (int64_t)draw(state, 12) - (p < 3 ? 4 : 0);
    if (draw(state, 8) == 0) scalars[draw(state, 3)].i = odd[draw(state, 6)];
    if (draw(state, 20) == 0) scalars[2].i = draw(state, 2) ? INT64_MIN : INT64_MAX;
    if (draw(state, 20) == 0) scalars[3].u = UINT32_MAX;
    if (draw(state, 20) == 0) scalars[4].u = UINT64_MAX;
    scalars[5].i = draw(state, 2);
    scalars[6].f = draw(state, 8);
}

static tvm_status need_of(const void *code, uint32_t kernel, uint64_t *needs, tvm_diags *diags) {
    (void)diags;
    *needs = ((const bool *)code)[kernel] ? 101 : 100;
    return TVM_OK;
}

START_TEST(random_formulas_choose_what_their_conditions_say) {
    unsigned state = 1000U + (unsigned)_i, chosen = 0;
    bool too_big[3] = {_i % 3 == 1, _i % 5 == 1, _i % 7 == 1};
    atomic_uchar answers[3] = {0};
    const tvm_room room = {.has = 100, .ask = need_of, .code = too_big, .answers = answers};
    tvm_ir_program *program = random_formulas(&state, _i % 2);
    tvm_scalar scalars[8] = {{0}};
    const tvm_launch_env env = {.scalars = scalars,
                                .multiprocessors = 6,
                                .target = _i % 2 ? 90 : 0,
                                .traits = tvm_target_traits_for(_i % 2 ? 90 : 0)};
    tvm_variants *variants;
    ck_assert_int_eq(tvm_variants_make(program, &program->entries[0], &env, &room, &variants, NULL), TVM_OK);
    for (unsigned run = 0; run < 500; run++) {
        draw_small(&state, scalars);
        is_expected(variants, &program->entries[0], &env, too_big, &chosen);
    }
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

/* ---- several threads ---- */

enum { THREADS = 4, KNOWN = 3000 };

typedef struct shared_table {
    const tvm_ir_entry *entry;
    const tvm_variants *variants;
    tvm_scalar scalars[KNOWN][TVM_MAX_PARAMS];
    uint32_t expected[KNOWN];
    atomic_uint wrong;
} shared_table;

/* More shapes than are remembered, in an order of its own. */
static void *choose_many(void *closure) {
    static atomic_uint numbers;
    shared_table *t = closure;
    unsigned state = atomic_fetch_add(&numbers, 1);
    tvm_launch_env env = {.target = 90, .traits = tvm_target_traits_for(90), .multiprocessors = 132};
    for (unsigned i = 0; i < 4 * KNOWN; i++) {
        unsigned shape = draw(&state, i % 2 ? KNOWN : 40);
        uint32_t index = TVM_NONE;
        env.scalars = t->scalars[shape];
        tvm_status status = tvm_variants_choose(t->variants, &env, &index, NULL);
        if (index != t->expected[shape] || (status == TVM_OK) != (index != TVM_NONE)) t->wrong++;
    }
    return NULL;
}

START_TEST(threads_choose_at_the_same_time) {
    static shared_table t;
    char path[5000];
    unsigned state = 9;
    const tvm_room any_room = {0};
    pthread_t threads[THREADS];
    tvm_variants *variants;
    tvm_launch_env env = {.target = 90, .traits = tvm_target_traits_for(90), .multiprocessors = 132};
    tvm_ir_program *program = assemble_file(program_path("matmul.vasm", path), "");
    t.entry = &program->entries[0];
    for (unsigned i = 0; i < KNOWN; i++) {
        draw_arguments(&t.entry->head, &state, t.scalars[i]);
        env.scalars = t.scalars[i];
        t.expected[i] = expected_choice(t.entry, &env, NULL).index;
    }
    ck_assert_int_eq(tvm_variants_make(program, t.entry, &env, &any_room, &variants, NULL), TVM_OK);
    t.variants = variants;
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, choose_many, &t), 0);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    ck_assert_uint_eq(t.wrong, 0);
    tvm_variants_free(variants);
    tvm_ir_program_free(program);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("choice");
    TCase *cases = tcase_create("choice");
    tcase_add_test(cases, shipped_entries_choose_what_their_conditions_say);
    tcase_add_loop_test(cases, random_formulas_choose_what_their_conditions_say, 0, 240);
    tcase_add_test(cases, threads_choose_at_the_same_time);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
