/* The order that generated code relies on, by the axioms of the PTX memory model (litmus_model.h): of each
 * pattern of codegen/emit/fences.def, what the threads of a launch do to a byte has one outcome, and others
 * as soon as a fence of it is left out or weakened. The threads' instructions are those of the code that the
 * translator writes, as ptx_machine.h executes it. The model itself is held against verdicts that are
 * published. */
#include "check_kit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "assembler_kit.h"
#include "launch.h"
#include "litmus_patterns.h"
#include "litmus_trace.h"
#include "ptx_launch_kit.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* ---- the model ---- */

/* Up to four threads, in blocks of their own unless `block` says so. */
typedef struct known_row {
    const char *name, *thread[4];
    unsigned block[4];
    const char *outcome; /* thread:register=value, or place=value in the end */
    bool is_allowed;
} known_row;

#define APART                                                                                                \
    { 0, 1, 2, 3 }
#define MP(store, load)                                                                                      \
    { "st.global.b32 [x], 1;\n" store, load "ld.global.b32 %r1, [x];" }
#define SB(fence)                                                                                            \
    {                                                                                                        \
        "st.relaxed.gpu.global.b32 [x], 1;\n" fence "ld.relaxed.gpu.global.b32 %r0, [y];",                   \
            "st.relaxed.gpu.global.b32 [y], 1;\n" fence "ld.relaxed.gpu.global.b32 %r1, [x];"                \
    }
#define IRIW(fence, load)                                                                                    \
    {                                                                                                        \
        "st.relaxed.gpu.global.b32 [x], 1;", "st.relaxed.gpu.global.b32 [y], 1;",                            \
            load " %r0, [x];\n" fence load " %r1, [y];", load " %r2, [y];\n" fence load " %r3, [x];"         \
    }
#define TWO_TWO_W(fence)                                                                                     \
    {                                                                                                        \
        "st.relaxed.gpu.global.b32 [x], 1;\n" fence "st.relaxed.gpu.global.b32 [y], 2;",                     \
            "st.relaxed.gpu.global.b32 [y], 1;\n" fence "st.relaxed.gpu.global.b32 [x], 2;"                  \
    }
#define CORR(store, load)                                                                                    \
    { store " [x], 1;", load " %r0, [x];\n" load " %r1, [x];" }
#define FIRST "1:0=1 1:1=0" /* the second thread sees the flag, not the data */

/* The PTX ISA's litmus tests (chapter 8, "Axioms"), those of the paper's figures, and what its text says of
 * them. */
static const known_row known[] = {
    {"CoRR", CORR("st.relaxed.sys.global.b32", "ld.relaxed.sys.global.b32"), APART, FIRST, false},
    {"CoRR, weak", CORR("st.global.b32", "ld.global.b32"), APART, FIRST, true},
    {"CoRR, a scope too small", CORR("st.relaxed.cta.global.b32", "ld.relaxed.gpu.global.b32"), APART, FIRST,
     true},
    {"MP",
     MP("fence.sys;\nst.relaxed.sys.global.b32 [f], 1;", "ld.relaxed.sys.global.b32 %r0, [f];\nfence.sys;\n"),
     APART, FIRST, false},
    {"MP, no fence", MP("st.relaxed.sys.global.b32 [f], 1;", "ld.relaxed.sys.global.b32 %r0, [f];\n"), APART,
     FIRST, true},
    {"MP, a weak flag", MP("fence.sys;\nst.global.b32 [f], 1;", "ld.global.b32 %r0, [f];\nfence.sys;\n"),
     APART, FIRST, true},
    {"MP, release and acquire",
     MP("st.release.gpu.global.b32 [f], 1;", "ld.acquire.gpu.global.b32 %r0, [f];\n"), APART, FIRST, false},
    {"MP, release and relaxed",
     MP("st.release.gpu.global.b32 [f], 1;", "ld.relaxed.gpu.global.b32 %r0, [f];\n"), APART, FIRST, true},
    {"MP, relaxed and acquire",
     MP("st.relaxed.gpu.global.b32 [f], 1;", "ld.acquire.gpu.global.b32 %r0, [f];\n"), APART, FIRST, true},
    {"MP of a block",
     MP("st.release.cta.global.b32 [f], 1;", "ld.acquire.cta.global.b32 %r0, [f];\n"),
     {5, 5},
     FIRST,
     false},
    {"MP, scope cta between blocks",
     MP("st.release.cta.global.b32 [f], 1;", "ld.acquire.cta.global.b32 %r0, [f];\n"), APART, FIRST, true},
    {"MP, one scope too small",
     MP("st.release.cta.global.b32 [f], 1;", "ld.acquire.gpu.global.b32 %r0, [f];\n"), APART, FIRST, true},
    {"MP of a cluster",
     MP("st.release.cluster.global.b32 [f], 1;", "ld.acquire.cluster.global.b32 %r0, [f];\n"),
     {0, 1},
     FIRST,
     false},
    {"MP, scope cluster between clusters",
     MP("st.release.cluster.global.b32 [f], 1;", "ld.acquire.cluster.global.b32 %r0, [f];\n"),
     {0, 2},
     FIRST,
     true},
    {"MP, a reduction does not acquire",
     MP("st.release.gpu.global.b32 [f], 1;", "red.relaxed.gpu.global.add.u32 [f], 1;\nfence.acq_rel.gpu;\n"),
     APART, "f=2 1:1=0", true},
    {"MP by an atomic",
     MP("st.release.gpu.global.b32 [f], 1;",
        "atom.relaxed.gpu.global.add.u32 %r0, [f], 1;\nfence.acq_rel.gpu;\n"),
     APART, FIRST, false},
    {"SB", SB("fence.sc.gpu;\n"), APART, "0:0=0 1:1=0", false},
    {"SB, acq_rel", SB("fence.acq_rel.gpu;\n"), APART, "0:0=0 1:1=0", true},
    {"SB, a scope too small", SB("fence.sc.cta;\n"), APART, "0:0=0 1:1=0", true},
    {"SB, none", SB(""), APART, "0:0=0 1:1=0", true},
    {"LB",
     {"ld.global.b32 %r0, [x];\nst.global.b32 [y], 1;", "ld.global.b32 %r1, [y];\nst.global.b32 [x], 1;"},
     APART,
     "0:0=1 1:1=1",
     true},
    {"LB with dependencies",
     {"ld.global.b32 %r0, [x];\nst.global.b32 [y], %r0;", "ld.global.b32 %r1, [y];\nst.global.b32 [x], %r1;"},
     APART,
     "0:0=1",
     false},
    {"LB, acquire and release",
     {"ld.acquire.gpu.global.b32 %r0, [x];\nst.release.gpu.global.b32 [y], 1;",
      "ld.acquire.gpu.global.b32 %r1, [y];\nst.release.gpu.global.b32 [x], 1;"},
     APART,
     "0:0=1 1:1=1",
     false},
    {"IRIW", IRIW("fence.sc.gpu;\n", "ld.relaxed.gpu.global.b32"), APART, "2:0=1 2:1=0 3:2=1 3:3=0", false},
    {"IRIW, acquire", IRIW("", "ld.acquire.gpu.global.b32"), APART, "2:0=1 2:1=0 3:2=1 3:3=0", true},
    {"IRIW, acq_rel", IRIW("fence.acq_rel.gpu;\n", "ld.relaxed.gpu.global.b32"), APART,
     "2:0=1 2:1=0 3:2=1 3:3=0", true},
    {"2+2W", TWO_TWO_W("fence.sc.gpu;\n"), APART, "x=1 y=1", false},
    {"2+2W, acq_rel", TWO_TWO_W("fence.acq_rel.gpu;\n"), APART, "x=1 y=1", true},
    {"2+2W, relaxed", TWO_TWO_W(""), APART, "x=1 y=1", true},
    {"WRC, cumulative",
     {"st.relaxed.gpu.global.b32 [x], 1;",
      "ld.relaxed.gpu.global.b32 %r0, [x];\nst.release.gpu.global.b32 [y], 1;",
      "ld.acquire.gpu.global.b32 %r1, [y];\nld.relaxed.gpu.global.b32 %r2, [x];"},
     APART,
     "1:0=1 2:1=1 2:2=0",
     false},
    {"WRC, a weak write",
     {"st.global.b32 [x], 1;", "ld.global.b32 %r0, [x];\nst.release.gpu.global.b32 [y], 1;",
      "ld.acquire.gpu.global.b32 %r1, [y];\nld.relaxed.gpu.global.b32 %r2, [x];"},
     APART,
     "1:0=1 2:1=1 2:2=0",
     true},
    {"a release sequence",
     {"st.global.b32 [x], 1;\nst.release.gpu.global.b32 [f], 1;",
      "atom.relaxed.gpu.global.add.u32 %r0, [f], 1;",
      "ld.acquire.gpu.global.b32 %r1, [f];\nld.global.b32 %r2, [x];"},
     APART,
     "1:0=1 2:1=2 2:2=0",
     false},
    {"atomics",
     {"atom.sys.global.add.u32 %r0, [x], 1;", "atom.sys.global.add.u32 %r0, [x], 1;"},
     APART,
     "x=1",
     false},
    {"atomics, a scope too small",
     {"atom.cta.global.add.u32 %r0, [x], 1;", "atom.gpu.global.add.u32 %r0, [x], 1;"},
     APART,
     "x=1",
     true},
    {"MP by bar.sync", MP("bar.sync 0;", "bar.sync 0;\n"), {7, 7}, "1:1=0", false},
    {"MP by another barrier", MP("bar.sync 0;", "bar.sync 1;\n"), {7, 7}, "1:1=0", true},
    {"MP by barrier.cluster",
     MP("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;",
        "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"),
     {0, 1},
     "1:1=0",
     false},
    {"MP by barrier.cluster, relaxed",
     MP("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;",
        "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n"),
     {0, 1},
     "1:1=0",
     true},
    {"a bulk copy of what the thread stored",
     {"st.shared.b32 [s@0], 1;\nfence.proxy.async.shared::cta;\n"
      "cp.async.bulk.global.shared::cta.bulk_group [y], [s@0];\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nld.global.b32 %r0, [y];\nld.shared.b32 %r1, [s@0];"},
     APART,
     "s@0=0",
     false},
};

typedef struct wanted {
    const char *outcome;
    bool is_found;
} wanted;

/* One term of an outcome. */
static bool holds(const litmus_execution *x, const char *term) {
    const litmus_program *p = x->p;
    unsigned thread;
    int reg, value;
    char name[24];
    if (sscanf(term, "%u:%d=%d", &thread, &reg, &value) == 3) {
        for (unsigned e = p->count; e-- > 0;)
            if (p->event[e].agent == 1 + thread && p->event[e].kind & LITMUS_READ && p->event[e].reg == reg)
                return litmus_value(x, x->from[e]) == value;
        ck_abort_msg("no such register: %s", term);
    }
    ck_assert_int_eq(sscanf(term, "%23[^=]=%d", name, &value), 2);
    for (unsigned w = 0; w < p->count; w++) {
        bool is_last = p->event[w].kind & LITMUS_WRITE && strcmp(p->place[p->event[w].place].name, name) == 0;
        for (unsigned o = 0; o < p->count && is_last; o++) is_last = !litmus_has(&x->coherence, w, o);
        if (is_last && litmus_value(x, (int)w) == value) return true;
    }
    return false;
}

static void look(void *context, const litmus_execution *x) {
    wanted *w = context;
    bool all = true;
    for (const char *term = w->outcome; *term && all; term += strspn(term, " ")) {
        all = holds(x, term);
        term += strcspn(term, " ");
    }
    w->is_found = w->is_found || all;
}

START_TEST(the_model_gives_the_published_verdicts) {
    const known_row *row = &known[_i];
    litmus_source threads[4];
    unsigned count = 0;
    for (; count < 4 && row->thread[count]; count++)
        threads[count] = (litmus_source){row->block[count], row->block[count] / 2, count, row->thread[count]};
    litmus_program *p = malloc(sizeof *p);
    ck_assert_ptr_nonnull(p);
    litmus_read(p, threads, count);
    wanted w = {.outcome = row->outcome};
    litmus_run(p, look, &w);
    ck_assert_msg(w.is_found == row->is_allowed, "%s: %s is %sallowed", row->name, row->outcome,
                  w.is_found ? "" : "not ");
    free(p);
}
END_TEST

/* ---- the patterns ---- */

typedef enum judged { AXIOMS, PERFORMED, STATED } judged;
static const struct {
    const char *name;
    judged by;
} fences[] = {
#define FENCE(name, by, instructions, rule) {#name, by},
#include "fences.def"
#undef FENCE
};

/* How many outcomes there are: reads that read different writes, or last writes that are not one. */
typedef struct outcomes {
    int from[LITMUS_EVENTS];
    unsigned count;
} outcomes;

static unsigned last_writes(const litmus_execution *x, int place) {
    unsigned last = 0;
    for (unsigned w = 0; w < x->p->count; w++) {
        bool is_last = x->p->event[w].kind & LITMUS_WRITE && x->p->event[w].place == place;
        for (unsigned o = 0; o < x->p->count && is_last; o++) is_last = !litmus_has(&x->coherence, w, o);
        last += is_last;
    }
    return last;
}

static void count_outcome(void *context, const litmus_execution *x) {
    outcomes *o = context;
    if (o->count == 0 || memcmp(o->from, x->from, x->p->count * sizeof *o->from) != 0) o->count++;
    memcpy(o->from, x->from, x->p->count * sizeof *o->from);
    for (unsigned place = 0; place < x->p->places; place++)
        if (last_writes(x, (int)place) > 1) o->count++;
}

static unsigned outcomes_of(const litmus_source *threads, unsigned count, bool performed) {
    litmus_program *p = malloc(sizeof *p);
    outcomes o = {.count = 0};
    ck_assert_ptr_nonnull(p);
    litmus_read(p, threads, count);
    p->performed = performed;
    litmus_run(p, count_outcome, &o);
    free(p);
    return o.count;
}

/* The lines of a thread without what is lost; malloc'ed. */
static char *without(const char *text, const pattern_change *lost) {
    char *out = calloc(2, strlen(text) + 64), *end = out;
    ck_assert_ptr_nonnull(out);
    for (; *text; text = litmus_next(text)) {
        int length = (int)strcspn(text, "\n");
        const char *found = lost ? strstr(text, lost->find) : NULL;
        if (!found || found >= text + length)
            end += sprintf(end, "%.*s\n", length, text);
        else if (lost->put)
            end +=
                sprintf(end, "%.*s%s%.*s\n", (int)(found - text), text, lost->put,
                        length - (int)(found - text) - (int)strlen(lost->find), found + strlen(lost->find));
    }
    return out;
}

/* Of the threads with a change, or none. */
static unsigned outcomes_with(const litmus_source *threads, unsigned count, const pattern_change *lost,
                              bool performed) {
    litmus_source changed[TRACE_SOURCES] = {{0}};
    char *text[TRACE_SOURCES] = {NULL};
    for (unsigned i = 0; i < count; i++) {
        text[i] = without(threads[i].text, lost);
        changed[i] = threads[i];
        changed[i].text = text[i];
    }
    unsigned found = outcomes_of(changed, count, performed);
    for (unsigned i = 0; i < count; i++) free(text[i]);
    return found;
}

/* The launch of a row's kernel, whose two parameters are tensors. */
static void trace_launch(const pattern_row *row, litmus_trace *trace, tvm_ir_program *program) {
    const tvm_ir_kernel *kernel = &program->kernels[0];
    tvm_module *module = translate(program, "sm_90a");
    tvm_launch_env env = {.multiprocessors = 4, .target = 90, .traits = tvm_target_traits_for(90)};
    tvm_scalar scalars[2] = {{0}};
    uint64_t values[2], tensors[1] = {0}, bytes;
    uint8_t *data[2];
    env.scalars = scalars;
    ck_assert_int_eq(tvm_launch_check(program, kernel, &env, NULL), TVM_OK);
    ptx_machine m = ptx_load(module->ptx, "k", module->kernels[0].abi.threads);
    for (uint32_t i = 0; i < 2; i++) {
        int64_t shape[TVM_MAX_RANK];
        ck_assert_int_eq(tvm_launch_shape(program, kernel, i, &env, shape, &bytes, NULL), TVM_OK);
        data[i] = aligned_alloc(256, (bytes + 255) / 256 * 256);
        ck_assert_ptr_nonnull(data[i]);
        memset(data[i], 0, bytes);
        values[i] = (uint64_t)(uintptr_t)data[i];
        ptx_allow(&m, data[i], bytes);
    }
    trace->shared = row->shared;
    if (row->global) trace->global = data[row->global[0] - 'x'] + row->at;
    m.watch = trace_insn;
    m.watcher = trace;
    ptx_launch(&m, module, program, kernel, &env, values, tensors);
    ck_assert_msg(!m.fault[0] && !m.trapped, "%s: %s", row->name, m.trapped ? "a trap" : m.fault);
    ptx_free(&m);
    for (uint32_t i = 0; i < 2; i++) free(data[i]);
    tvm_module_free(module);
}

static judged judged_by(const char *name) {
    for (size_t i = 0; i < sizeof fences / sizeof *fences; i++)
        if (strcmp(fences[i].name, name) == 0) return fences[i].by;
    ck_abort_msg("fences.def has no %s", name);
    return STATED;
}

static void show(const litmus_source *threads, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        fprintf(stderr, "-- a thread of warp %u, block %u\n%s", threads[i].warp, threads[i].block,
                threads[i].text);
}

START_TEST(a_pattern_has_one_outcome_and_others_without_a_part) {
    const pattern_row *row = &patterns[_i];
    char text[4096];
    snprintf(text, sizeof text, ".vasm 7\n.kernel k(%s.end\n", row->text);
    tvm_ir_program *program = assemble(text);
    litmus_trace *trace = calloc(1, sizeof *trace);
    litmus_source threads[TRACE_SOURCES];
    ck_assert_ptr_nonnull(trace);
    trace_launch(row, trace, program);
    const uint32_t *by = program->kernels[0].cluster;
    unsigned count = trace_sources(trace, by[0] * by[1] * by[2], threads);
    ck_assert_int_eq(judged_by(row->name), row->performed ? PERFORMED : AXIOMS);
    if (outcomes_with(threads, count, NULL, row->performed) != 1) {
        show(threads, count);
        ck_abort_msg("%s: %u outcomes", row->name, outcomes_with(threads, count, NULL, row->performed));
    }
    if (row->performed) ck_assert_uint_gt(outcomes_with(threads, count, NULL, false), 1);
    for (const pattern_change *lost = row->lost; lost < row->lost + PATTERN_CHANGES && lost->find; lost++)
        if (outcomes_with(threads, count, lost, row->performed) < 2) {
            show(threads, count);
            ck_abort_msg("%s: one outcome without %s", row->name, lost->find);
        }
    trace_free(trace);
    tvm_ir_program_free(program);
}
END_TEST

START_TEST(each_pattern_has_a_kernel) {
    const char *name = fences[_i].name;
    bool has = false;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        has = has || strcmp(patterns[i].name, name) == 0;
    ck_assert_msg(has == (fences[_i].by != STATED), "%s", name);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("litmus");
    TCase *tests = suite_case(suite, "all");
    tcase_add_loop_test(tests, the_model_gives_the_published_verdicts, 0, sizeof known / sizeof *known);
    tcase_add_loop_test(tests, a_pattern_has_one_outcome_and_others_without_a_part, 0,
                        sizeof patterns / sizeof *patterns);
    tcase_add_loop_test(tests, each_pattern_has_a_kernel, 0, sizeof fences / sizeof *fences);
    return run_suite(suite);
}
