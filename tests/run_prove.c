/* The prover: what it says of the cases, of the shipped programs, of small kernels (prove_small.h,
 * prove_seeded.h), and of mutants of all of them (prove_mutants.h) is never contradicted by the sanitizer. Of
 * the seeded mistakes of tests/cases/sanitizer that are races on shared memory or deadlocks none is proved
 * absent, and none of those of prove_seeded.h; where the prover shows a race, the sanitizer reports that pair
 * of lines, and threads that are named hold the element.
 *
 * A part of the mutants is made, with TVM_TEST_ALL a larger one, with TVM_TEST_ALL=exhaustive all.
 *
 *   run_prove [-v] [CASE...]       -v: says what is not proved; without arguments: all
 *   run_prove --long-mutants N [SEED]   of the kernels of prove_line.h, whose proofs take long
 *   run_prove --mutants N [SEED]   N mutants at random, of up to three changes each; what the sanitizer
 *                                  contradicts is printed */
#include <glob.h>
#include <time.h>

#include "extent_kit.h"
#include "fileio.h"
#include "generate/generate.h"
#include "prove_line.h"
#include "prove_shipped.h"
#include "prove_seeded.h"
#include "prove_small.h"
#include "prove_subject.h"

static unsigned passed, bad, threads_told;
static bool verbose, patient; /* patient: proofs may take long */

static void count(bool good, const char *what) {
    passed += good;
    bad += !good;
    if (!good) printf("FAIL: %s\n", what);
}

/* ---- verdicts ---- */

/* Of kernels that are proved, or mutated. */
typedef struct tally {
    unsigned kernels, races, deadlocks; /* that are proved */
    unsigned both;                      /* that are proved free of both */
    unsigned conditional;               /* of deadlock, if other blocks do their part */
    unsigned for_tcgen05;               /* of the kernels; none of these is proved */
    double most;                        /* seconds that a kernel took */
} tally;

/* Of mutants, by way; the last is of several changes. */
typedef struct way_tally {
    unsigned mutants, refuted, open, proved, ran;
    unsigned wrong; /* proved, and the sanitizer reports it; or shown, and it does not */
} way_tally;

static way_tally ways[PROVE_WAYS + 1];

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void judge(const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof) {
    tvm_text text = {0};
    tvm_status made =
        patient ? tvm_prove_long(program, kernel, proof, NULL) : tvm_prove(program, kernel, proof, NULL);
    if (made != TVM_OK) abort();
    if (verbose) {
        tvm_proof_add(&text, program, kernel, proof);
        fputs(tvm_text_string(&text), stdout);
    }
    tvm_text_free(&text);
}

static bool is_proved(const tvm_proof *proof) {
    return proof->races.verdict == TVM_PROVED && proof->deadlocks.verdict == TVM_PROVED;
}

static void judge_original(const prove_subject *s, tvm_proof *proof, tally *t) {
    double before = seconds();
    judge(s->program, s->kernel, proof);
    double took = seconds() - before;
    if (took > t->most) t->most = took;
    t->kernels++;
    t->races += proof->races.verdict == TVM_PROVED;
    t->deadlocks += proof->deadlocks.verdict == TVM_PROVED;
    t->both += is_proved(proof);
    t->conditional += proof->deadlocks.verdict == TVM_PROVED_IF;
}

/* Compares a proof with what a launch shows; *ran: it has. */
static bool agrees(const prove_subject *s, const tvm_ir_program *program, uint32_t kernel,
                   const tvm_proof *proof, bool *ran) {
    char *reports = NULL;
    prove_found found = {.race = false};
    bool shown = proof->races.verdict == TVM_REFUTED;
    *ran = false;
    if (!shown && proof->races.verdict != TVM_PROVED && proof->deadlocks.verdict != TVM_PROVED) return true;
    *ran = prove_run_subject(s, program, kernel, &reports);
    if (reports != NULL) found = prove_read_reports(program, &program->kernels[kernel], proof, reports);
    bool good = !prove_is_contradicted(proof, &found);
    if (shown && *ran) good = good && (found.confirms || found.fault);
    good = good && prove_tells_right(program, kernel, proof, &threads_told);
    if (!good)
        fprintf(stderr, "%s: %s: races %d (%s), deadlocks %d, but the sanitizer: %s\n", s->name,
                prove_subject_kernel(s), (int)proof->races.verdict, proof->races.text,
                (int)proof->deadlocks.verdict, reports != NULL ? reports : "nothing");
    free(reports);
    return good;
}

/* ---- mutants ---- */

/* Proves the mutant and compares. */
static bool try_mutant(const prove_subject *s, const tvm_ir_program *mutant, way_tally *t) {
    tvm_proof proof;
    bool ran;
    judge(mutant, 0, &proof);
    bool good = agrees(s, mutant, 0, &proof, &ran);
    t->mutants++;
    t->ran += ran;
    t->refuted += proof.races.verdict == TVM_REFUTED;
    t->proved += is_proved(&proof);
    t->open += !is_proved(&proof) && proof.races.verdict != TVM_REFUTED;
    t->wrong += !good;
    return good;
}

/* Is this way of the instruction one of those that are tried? One of `every`, each way as often. */
static bool takes(uint32_t at, unsigned way, unsigned every) {
    uint64_t state = (uint64_t)at * PROVE_WAYS + way;
    return generate_bits(&state) % every == 0;
}

/* One of so many ways is tried: without TVM_TEST_ALL, with it; of all that there are, where it is exhaustive.
 */
static unsigned share(unsigned quick, unsigned all) {
    return test_exhaustively() ? 1 : test_all() ? all : quick;
}

/* All mutants of one change, or a part of them. */
static bool mutate(const prove_subject *s, unsigned every) {
    enum { MANNERS = 6 };
    const tvm_ir_kernel *kernel = &s->program->kernels[s->kernel];
    tvm_ir_program *spare = NULL;
    bool good = true;
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        for (unsigned way = 0; way < PROVE_WAYS; way++) {
            bool more = takes(i, way, every);
            for (unsigned nth = 0; more && nth < MANNERS; nth++) {
                tvm_ir_program *mutant = prove_mutant(s->program, s->kernel, i, way, nth, &spare, &more);
                if (mutant == NULL) continue;
                bool right = try_mutant(s, mutant, &ways[way]);
                if (!right)
                    fprintf(stderr, "%s: mutant: line %u, %s, %u\n", s->name, kernel->insns[i].line,
                            prove_ways[way].name, nth);
                good = good && right;
                tvm_ir_program_free(mutant);
            }
        }
    tvm_ir_program_free(spare);
    return good;
}

/* ---- cases ---- */

/* Lines of the case's reports that are of a race on shared memory, or of a wait for ever. */
static bool expects(const case_file *c, bool deadlock) {
    static const char *const races[] = {"race on shared memory", "read of what no copy has delivered",
                                        "write where a copy is under way",
                                        "freed shared memory is still in use"},
                             *const waits[] = {"a barrier that not all reach", ": deadlock: ", "out of step"};
    const char *const *texts = deadlock ? waits : races;
    size_t texts_count = deadlock ? sizeof waits / sizeof *waits : sizeof races / sizeof *races;
    for (size_t i = 0; c->sanitizer != NULL && i < texts_count; i++) {
        const char *line = strstr(c->sanitizer, texts[i]);
        for (; line != NULL; line = strstr(line + 1, texts[i])) {
            const char *element = strchr(line, '%'), *end = strchr(line, '\n');
            if (deadlock || (element != NULL && (end == NULL || element < end))) return true;
        }
    }
    return false;
}

/* What is done with each kernel of a source: proved and mutated, or kept for later. */
typedef struct visitor {
    bool (*visit)(void *closure, prove_subject *s);
    void *closure;
} visitor;

static bool visit_case(const case_file *c, const char *folder, const visitor *v, tvm_ir_program **program) {
    bool good = true, has = c->errors == NULL && c->kernel != NULL;
    has = has && case_assemble(c, folder, program, NULL) == TVM_OK;
    for (uint32_t k = 0; has && k < (*program)->kernel_count; k++) {
        prove_subject s = {.name = c->name, .program = *program, .kernel = k, .c = c};
        if (strcmp(prove_subject_kernel(&s), c->kernel) != 0) continue;
        prove_case_scalars(&s);
        good = v->visit(v->closure, &s) && good;
    }
    return good;
}

typedef struct case_run {
    bool wrong; /* it has a mistake */
    unsigned every;
    tally *t;
} case_run;

static bool run_subject_of_case(void *closure, prove_subject *s) {
    const case_run *run = closure;
    tvm_proof proof;
    bool ran;
    if (verbose) printf("-- %s\n", s->name);
    judge_original(s, &proof, run->t);
    bool good = agrees(s, s->program, s->kernel, &proof, &ran);
    if (!run->wrong && s->c->refusal == NULL && proof.races.verdict == TVM_REFUTED) good = false;
    if (run->wrong && expects(s->c, false) && proof.races.verdict == TVM_PROVED) good = false;
    if (run->wrong && expects(s->c, true) && proof.deadlocks.verdict == TVM_PROVED) good = false;
    return mutate(s, run->every) && good;
}

static void run_cases(char **paths, const char *folder, bool wrong, tally *t) {
    case_run run = {wrong, share(5, 3), t};
    for (char **path = paths; path != NULL && *path != NULL; path++) {
        case_file *c = case_read(*path);
        tvm_ir_program *program = NULL;
        const visitor v = {run_subject_of_case, &run};
        count(c != NULL && visit_case(c, folder, &v, &program), *path);
        tvm_ir_program_free(program);
        case_free(c);
    }
}

static void free_paths(char **paths) {
    for (char **path = paths; path != NULL && *path != NULL; path++) free(*path);
    free(paths);
}

/* ---- shipped programs ---- */

/* Without TVM_TEST_ALL one kernel of each program is mutated in part. */
static bool mutate_shipped(prove_subject *s, unsigned mutated) {
    unsigned turn = s->program->kernels[s->kernel].insn_count;
    if (s->kernel >= mutated || (!test_all() && s->kernel != turn % mutated)) return true;
    prove_find_size(s);
    return mutate(s, share(40, 15));
}

/* Is what is proved of the kernel what the list of open kernels says, no more, and if it is all: no less? */
static bool is_as_told(const tvm_proof *proof, const open_kernel *open, bool all) {
    bool both = open->why == NULL, races = proof->races.verdict == TVM_PROVED,
         deadlocks = proof->deadlocks.verdict == TVM_PROVED, cond = proof->deadlocks.verdict == TVM_PROVED_IF;
    bool told_races = both || (open->proved & RACES_PROVED), told_if = open->proved & DEADLOCKS_PROVED_IF;
    if (all) return races == told_races && deadlocks == both && cond == told_if;
    return (told_races || !races) && (both || !deadlocks) && (told_if || both || !cond);
}

/* Is what the quick proof says told, too? What takes long is proved again: one kernel, with TVM_TEST_ALL
 * each. */
static bool is_told(const prove_subject *s, const tvm_proof *quick, const open_kernel *open) {
    if (open == NULL) return is_proved(quick);
    bool first = strcmp(open->name, "matmul_lowbit_mma_64x256x1") == 0;
    if (!is_as_told(quick, open, false)) return false;
    if (!(test_all() || first)) return true;
    tvm_proof proof;
    patient = true;
    judge(s->program, s->kernel, &proof);
    patient = false;
    if (is_as_told(&proof, open, true)) return true;
    fprintf(stderr, "%s: races %d (%s), deadlocks %d (%s)\n", open->name, (int)proof.races.verdict,
            proof.races.text, (int)proof.deadlocks.verdict, proof.deadlocks.text);
    return false;
}

/* Counts a kernel by the list of those that are open. */
static void tally_told(const open_kernel *open, tally *t) {
    bool both = open == NULL || open->why == NULL;
    t->kernels++;
    t->races += both || (open->proved & RACES_PROVED);
    t->deadlocks += both;
    t->both += both;
    t->conditional += !both && (open->proved & DEADLOCKS_PROVED_IF);
}

static void run_program(const char *folder, const shipped_program *of, tally *all) {
    tvm_ir_program *program = assemble_program(folder, of);
    tally quick = {.most = all->most};
    bool good = program != NULL;
    for (uint32_t k = 0; good && k < program->kernel_count; k++) {
        prove_subject s = {.name = of->name, .program = program, .kernel = k};
        const open_kernel *open = find_open(prove_subject_kernel(&s));
        tvm_proof proof;
        judge_original(&s, &proof, &quick);
        tally_told(open, all);
        all->for_tcgen05 += is_for_tcgen05(prove_subject_kernel(&s));
        good = proof.races.verdict != TVM_REFUTED && proof.deadlocks.verdict != TVM_REFUTED &&
               is_told(&s, &proof, open) && mutate_shipped(&s, of->mutated);
    }
    all->most = quick.most;
    good = good && quick.races >= of->races && quick.deadlocks >= of->deadlocks;
    if (!good) fprintf(stderr, "%s: %u and %u kernels are proved\n", of->name, quick.races, quick.deadlocks);
    tvm_ir_program_free(program);
    count(good, of->name);
}

/* The shipped programs', and those of tests/foreign. */
static void run_programs(const char *folder, tally *shipped, tally *foreign) {
    for (size_t i = 0; i < PROGRAMS; i++)
        run_program(folder, &programs[i], is_foreign(&programs[i]) ? foreign : shipped);
}

/* ---- small kernels ---- */

/* The verifier with proofs accepts what is proved alone, and says what is missing. */
static bool verifies(const char *order, tvm_status expected) {
    char text[512];
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    snprintf(text, sizeof text,
             ".vasm 3\n.kernel k(y: global f32[64])\n.warps 2\n.grid 1\n%%s = alloc-shared f32[64]\n"
             "store-shared %%s, alloc-register(f32[64], spatial(64), init 1.0)\n%s\n"
             "store-global y, load-shared(%%s, flatten(column_spatial(2, 32)))\n.end\n",
             order);
    if (tvm_assemble_text(text, strlen(text), "t.vasm", NULL, &program, NULL) != TVM_OK) abort();
    bool good = tvm_verify_proved(program, &diags) == expected && diags.count == (expected != TVM_OK);
    if (diags.count)
        good = good && diags.items[0].line == 8 && strstr(diags.items[0].message, "races on shared") != NULL;
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
    return good;
}

static tvm_ir_program *assemble_small(const char *what, const char *text) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    if (tvm_assemble_text(text, strlen(text), "t.vasm", NULL, &program, &diags) != TVM_OK)
        fprintf(stderr, "%s: %s\n%s", what, diags.count ? diags.items[0].message : "", text);
    tvm_diags_free(&diags);
    return program;
}

/* Of two stores before a load the later one is told, as the sanitizer does. */
static bool tells_latest(void) {
    static const char text[] =
        ".vasm 7\n.kernel k(y: global f32[64])\n.warps 2\n.grid 1\n%s = alloc-shared f32[64]\n"
        "%v = alloc-register f32[64], spatial(64), init 1.0\nstore-shared %s, %v\nstore-shared %s, %v\n"
        "store-global y, load-shared(%s, flatten(column_spatial(2, 32)))\n.end\n";
    tvm_ir_program *program = NULL;
    tvm_proof proof;
    if (tvm_assemble_text(text, strlen(text), "t.vasm", NULL, &program, NULL) != TVM_OK) abort();
    judge(program, 0, &proof);
    const tvm_insn *insns = program->kernels[0].insns;
    bool good = proof.races.verdict == TVM_REFUTED && insns[proof.races.insn].line == 9 &&
                insns[proof.races.other].line == 8;
    tvm_ir_program_free(program);
    return good;
}

static bool is_said(const small_kernel *of) {
    char *text = small_text(of);
    tvm_proof proof;
    tvm_ir_program *program = assemble_small(of->what, text);
    free(text);
    if (program == NULL) return false;
    judge(program, 0, &proof);
    bool good = proof.races.verdict == of->races && proof.deadlocks.verdict == of->deadlocks;
    if (!good)
        fprintf(stderr, "%s: races %d (%s), deadlocks %d (%s)\n", of->what, (int)proof.races.verdict,
                proof.races.text, (int)proof.deadlocks.verdict, proof.deadlocks.text);
    tvm_ir_program_free(program);
    return good;
}

/* ---- seeded mistakes ---- */

static bool run_right(const seeded_kernel *of, unsigned every) {
    tvm_ir_program *program = assemble_small(of->what, of->text);
    tvm_proof proof;
    bool ran;
    if (program == NULL) return false;
    prove_subject s = {.name = of->what, .program = program};
    prove_small_scalars(&s);
    judge(program, 0, &proof);
    bool good = is_proved(&proof) && agrees(&s, program, 0, &proof, &ran) && ran;
    if (!good)
        fprintf(stderr, "%s: races %d (%s), deadlocks %d (%s)\n", of->what, (int)proof.races.verdict,
                proof.races.text, (int)proof.deadlocks.verdict, proof.deadlocks.text);
    good = mutate(&s, every) && good;
    tvm_ir_program_free(program);
    return good;
}

/* The launch shows the mistake, the proof does not deny it, and what it shows the launch confirms. */
static bool run_mistake(const seeded_kernel *of, const seeded_mistake *mistake) {
    char *text = seeded_text(of, mistake), *reports = NULL;
    tvm_ir_program *program = text != NULL ? assemble_small(mistake->what, text) : NULL;
    tvm_proof proof;
    prove_found found = {.race = false};
    free(text);
    if (program == NULL) return false;
    prove_subject s = {.name = mistake->what, .program = program};
    prove_small_scalars(&s);
    judge(program, 0, &proof);
    if (prove_run_subject(&s, program, 0, &reports) && reports != NULL)
        found = prove_read_reports(program, &program->kernels[0], &proof, reports);
    bool good = (found.race || found.deadlock) && !prove_is_contradicted(&proof, &found);
    if (proof.races.verdict == TVM_REFUTED)
        good = good && found.confirms && prove_tells_right(program, 0, &proof, &threads_told);
    if (!good)
        fprintf(stderr, "%s: %s: races %d (%s), deadlocks %d, the sanitizer: %s\n", of->what, mistake->what,
                (int)proof.races.verdict, proof.races.text, (int)proof.deadlocks.verdict,
                reports != NULL ? reports : "nothing");
    free(reports);
    tvm_ir_program_free(program);
    return good;
}

static unsigned run_seeded(const seeded_kernel *kernels, size_t kernel_count, unsigned every) {
    unsigned mistakes = 0;
    for (size_t i = 0; i < kernel_count; i++) {
        const seeded_kernel *of = &kernels[i];
        count(run_right(of, every), of->what);
        for (const seeded_mistake *m = of->mistakes; m->what != NULL; m++, mistakes++)
            count(run_mistake(of, m), m->what);
    }
    return mistakes;
}

/* Those that take long, too. */
static unsigned run_all_seeded(void) {
    unsigned mistakes = run_seeded(seeded_kernels, SEEDED_KERNELS, share(5, 1));
    patient = true;
    mistakes += run_seeded(long_kernels, LONG_KERNELS, share(200, 20));
    patient = false;
    return mistakes;
}

/* ---- all ---- */

static void say(const char *what, const tally *t) {
    printf(
        "%s: %u kernels, %u proved free of races, %u of deadlock, %u if other blocks do their part, %u of both; "
        "%.1f ms the longest\n",
        what, t->kernels, t->races, t->deadlocks, t->conditional, t->both, 1e3 * t->most);
}

static bool is_counted(const char *top, const char *name, const tally *t) {
    const unsigned figures[] = {t->kernels, t->races, t->deadlocks, t->conditional, t->both};
    return manual_says(top, name, figures, sizeof figures / sizeof *figures);
}

static void add_up(way_tally *sum, const way_tally *t) {
    sum->mutants += t->mutants;
    sum->refuted += t->refuted;
    sum->open += t->open;
    sum->proved += t->proved;
    sum->ran += t->ran;
    sum->wrong += t->wrong;
}

static way_tally say_ways(bool each) {
    way_tally sum = {.mutants = 0};
    for (unsigned way = 0; way <= PROVE_WAYS; way++) {
        const way_tally *t = &ways[way];
        add_up(&sum, t);
        if (each && t->mutants)
            printf("  %-20s %6u mutants, %6u shown, %6u not proved, %6u proved, %6u launched, %u wrong\n",
                   way < PROVE_WAYS ? prove_ways[way].name : "several", t->mutants, t->refuted, t->open,
                   t->proved, t->ran, t->wrong);
    }
    printf("%u mutants, %u with a race shown, %u not proved, %u proved, %u launched, %u wrong\n", sum.mutants,
           sum.refuted, sum.open, sum.proved, sum.ran, sum.wrong);
    return sum;
}

/* ---- mutants at random ---- */

enum { MOST_SUBJECTS = 1024, CHANGES = 3, TRIES = 400 };

typedef struct pool {
    prove_subject subjects[MOST_SUBJECTS];
    unsigned count;
    case_file *cases[MOST_SUBJECTS];
    tvm_ir_program *programs[MOST_SUBJECTS];
    unsigned kept;
} pool;

static bool keep(void *closure, prove_subject *s) {
    pool *p = closure;
    if (p->count == MOST_SUBJECTS) return false;
    p->subjects[p->count++] = *s;
    return true;
}

static void keep_cases(pool *p, const char *wrong, const char *folder) {
    char **paths = case_list(wrong);
    const visitor v = {keep, p};
    for (char **path = paths; path != NULL && *path != NULL && p->kept < MOST_SUBJECTS; path++) {
        case_file *c = p->cases[p->kept] = case_read(*path);
        if (c != NULL) count(visit_case(c, folder, &v, &p->programs[p->kept++]), *path);
    }
    free_paths(paths);
}

static void keep_shipped(pool *p, const char *folder) {
    for (size_t i = 0; i < PROGRAMS && p->kept < MOST_SUBJECTS; i++) {
        tvm_ir_program *program = assemble_program(folder, &programs[i]);
        for (uint32_t k = 0; program != NULL && k < program->kernel_count && k < programs[i].mutated; k++) {
            prove_subject s = {.name = programs[i].name, .program = program, .kernel = k};
            prove_find_size(&s);
            keep(p, &s);
        }
        p->programs[p->kept++] = program;
    }
}

static void keep_small(pool *p, const seeded_kernel *kernels, size_t kernel_count) {
    for (size_t i = 0; i < kernel_count && p->kept < MOST_SUBJECTS; i++) {
        tvm_ir_program *program = assemble_small(kernels[i].what, kernels[i].text);
        prove_subject s = {.name = kernels[i].what, .program = program};
        if (program == NULL) continue;
        p->programs[p->kept++] = program;
        prove_small_scalars(&s);
        keep(p, &s);
    }
}

static void free_pool(pool *p) {
    for (unsigned i = 0; i < p->kept; i++) {
        tvm_ir_program_free(p->programs[i]);
        case_free(p->cases[i]);
    }
    free(p);
}

static uint32_t below(uint64_t *state, uint32_t n) {
    return (uint32_t)(generate_bits(state) % n);
}

/* One change somewhere, of a verified kernel; its way. PROVE_WAYS: none was found. */
static unsigned change(tvm_ir_program *program, uint64_t *state) {
    tvm_ir_kernel *kernel = &program->kernels[0];
    for (unsigned i = 0; i < TRIES && kernel->insn_count; i++) {
        unsigned way = below(state, PROVE_WAYS);
        const prove_spot s = {program, kernel, below(state, kernel->insn_count), below(state, 4)};
        if (prove_ways[way].change(&s)) return way;
    }
    return PROVE_WAYS;
}

/* NULL: the verifier refuses it. *way: the last one's; of several changes PROVE_WAYS. */
static tvm_ir_program *random_mutant(const prove_subject *s, uint64_t *state, unsigned *way) {
    unsigned changes = 1 + (below(state, 3) == 0) * (1 + below(state, CHANGES - 1));
    tvm_ir_program *mutant = tvm_ir_program_clone_kernel(s->program, s->kernel);
    if (mutant == NULL) abort();
    for (unsigned i = 0; i < changes; i++) {
        unsigned made = change(mutant, state);
        *way = changes > 1 ? PROVE_WAYS : made;
        if (made < PROVE_WAYS && tvm_verify(mutant, NULL) == TVM_OK) continue;
        tvm_ir_program_free(mutant);
        return NULL;
    }
    return mutant;
}

static void print_program(const tvm_ir_program *program, uint64_t number) {
    char *text = NULL;
    if (tvm_disassemble(program, &text, NULL) == TVM_OK)
        printf("; mutant %llu\n%s\n", (unsigned long long)number, text);
    free(text);
}

static unsigned orders_of(const prove_subject *s) {
    const tvm_ir_kernel *kernel = &s->program->kernels[s->kernel];
    unsigned orders = 0;
    for (uint32_t i = 0; i < kernel->insn_count; i++) orders += prove_orders(&kernel->insns[i]);
    return orders;
}

/* Of three the one with the most to get wrong. */
static const prove_subject *random_subject(const pool *p, uint64_t *state) {
    const prove_subject *best = &p->subjects[below(state, p->count)];
    for (unsigned i = 0; i < 2; i++) {
        const prove_subject *other = &p->subjects[below(state, p->count)];
        if (orders_of(other) > orders_of(best)) best = other;
    }
    return best;
}

static void random_mutants(pool *p, uint64_t mutants, uint64_t seed) {
    for (uint64_t made = 0, tried = 0; made < mutants && tried < 100 * mutants; tried++) {
        uint64_t state = (seed << 32) + tried;
        unsigned way = PROVE_WAYS;
        const prove_subject *s = random_subject(p, &state);
        tvm_ir_program *mutant = random_mutant(s, &state, &way);
        if (mutant == NULL) continue;
        made++;
        if (!try_mutant(s, mutant, &ways[way])) {
            print_program(mutant, tried);
            count(false, s->name);
        }
        tvm_ir_program_free(mutant);
        if (made % 1000 == 0) say_ways(false), fflush(stdout); /* so far */
    }
}

static void run_all(const char *top, const char *right, const char *wrong, const char *folder) {
    tally seeded = {.kernels = 0}, cases = {.kernels = 0}, shipped = {.kernels = 0}, foreign = {.kernels = 0};
    char **mistakes = case_list(wrong), **others = case_list(right);
    run_cases(mistakes, right, true, &seeded);
    run_cases(others, right, false, &cases);
    run_programs(folder, &shipped, &foreign);
    for (size_t i = 0; i < sizeof small_kernels / sizeof *small_kernels; i++)
        count(is_said(&small_kernels[i]), small_kernels[i].what);
    count(is_in_manual(top), "the manual names kernels that are not proved");
    count(is_counted(top, "shipped programs", &shipped), "the manual's figures of shipped programs");
    const tally tcgen05 = {.kernels = shipped.for_tcgen05};
    count(is_counted(top, "those for tcgen05", &tcgen05), "the manual's figures of tcgen05");
    count(is_counted(top, "tests/foreign", &foreign), "the manual's figures of tests/foreign");
    count(tells_latest(), "the later store is told");
    count(verifies("sync", TVM_OK), "tvm_verify_proved accepts");
    count(verifies("sync-warp", TVM_INVALID), "tvm_verify_proved refuses");
    unsigned seeded_mistakes = run_all_seeded();
    free_paths(mistakes);
    free_paths(others);
    say("mistakes", &seeded);
    say("cases", &cases);
    say("shipped", &shipped);
    say("foreign", &foreign);
    way_tally sum = say_ways(test_all());
    printf("%u seeded mistakes, %u threads told\n", seeded_mistakes, threads_told);
    count(sum.refuted + sum.open >= 60 && seeded_mistakes >= 60, "enough mistakes are refused");
    count(threads_told > 0, "threads are told");
}

int main(int argc, char **argv) {
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".";
    char right[4096], wrong[4096], folder[4096];
    snprintf(right, sizeof right, "%s/tests/cases", top);
    snprintf(wrong, sizeof wrong, "%s/tests/cases/sanitizer", top);
    snprintf(folder, sizeof folder, "%s/programs", top);
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    argv += verbose;
    argc -= verbose;
    patient = argc > 2 && strcmp(argv[1], "--long-mutants") == 0;
    if (patient || (argc > 2 && strcmp(argv[1], "--mutants") == 0)) {
        pool *p = calloc(1, sizeof *p);
        if (p == NULL) abort();
        if (!patient) {
            keep_cases(p, wrong, right);
            keep_cases(p, right, right);
            keep_shipped(p, folder);
        }
        keep_small(p, patient ? long_kernels : seeded_kernels, patient ? LONG_KERNELS : SEEDED_KERNELS);
        random_mutants(p, strtoull(argv[2], NULL, 0), argc > 3 ? strtoull(argv[3], NULL, 0) : 1);
        say_ways(true);
        free_pool(p);
    } else if (argc > 1) {
        tally given = {.kernels = 0};
        run_cases(argv + 1, right, strstr(argv[1], "sanitizer") != NULL, &given);
        say("given", &given);
        say_ways(true);
    } else {
        run_all(top, right, wrong, folder);
    }
    printf("%u passed, %u failed\n", passed, bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
