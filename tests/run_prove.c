/* The prover: what it says of the cases, of the shipped programs, and of mutants of both is never
 * contradicted by the sanitizer. Of the seeded mistakes of tests/cases/sanitizer that are races on shared
 * memory or deadlocks none is proved absent; where the prover shows a race, the sanitizer reports that pair
 * of lines.
 *
 *   run_prove [-v] [CASE...]     -v: says what is not proved; without arguments: all */
#include <glob.h>
#include <time.h>

#include "case_file.h"
#include "fileio.h"
#include "prove_kit.h"
#include "shipped_launch.h"

static unsigned passed, bad;
static bool verbose;

static void count(bool good, const char *what) {
    passed += good;
    bad += !good;
    if (!good) printf("FAIL: %s\n", what);
}

static void judge(const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof) {
    tvm_text text = {0};
    if (tvm_prove(program, kernel, proof, NULL) != TVM_OK) abort();
    if (verbose) {
        tvm_proof_add(&text, program, kernel, proof);
        fputs(tvm_text_string(&text), stdout);
    }
    tvm_text_free(&text);
}

/* ---- cases ---- */

static void fill_case(void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes,
                      size_t elements) {
    const prove_launch *l = closure;
    const case_file *c = l->closure;
    const char *text = case_argument(c, tvm_string(l->program, kernel->slots[p].name));
    if (text != NULL) case_fill(kernel->slots[p].dtype, bytes, elements, text);
}

static void case_scalars(const case_file *c, prove_launch *l) {
    const tvm_ir_kernel *kernel = &l->program->kernels[l->kernel];
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        const char *text = case_argument(c, tvm_string(l->program, kernel->slots[p].name));
        if (kernel->slots[p].kind != TVM_SLOT_SCALAR || text == NULL) continue;
        if (kernel->slots[p].dtype.kind == TVM_KIND_FLOAT)
            l->scalars[p].f = strtod(text, NULL);
        else
            l->scalars[p].i = strtoll(text, NULL, 0);
    }
}

/* Of a kernel, launched as the case has it: NULL where the launch is refused. */
static char *run_of(const case_file *c, const tvm_ir_program *program, uint32_t kernel, bool *ran) {
    prove_launch l = {.program = program, .kernel = kernel};
    struct {
        prove_launch launch;
    } given;
    char *reports = NULL;
    case_scalars(c, &l);
    given.launch = l;
    given.launch.closure = (void *)(uintptr_t)c;
    l.fill = fill_case;
    l.closure = &given.launch;
    *ran = prove_run(&l, &reports);
    return reports;
}

/* Proves a kernel and compares with what a launch shows; *found: of the launch. */
static bool agrees(const case_file *c, const tvm_ir_program *program, uint32_t kernel, tvm_proof *proof,
                   prove_found *found) {
    bool ran = false;
    *found = (prove_found){.race = false};
    judge(program, kernel, proof);
    bool claims = proof->races.verdict == TVM_PROVED || proof->deadlocks.verdict == TVM_PROVED;
    if (!claims && proof->races.verdict != TVM_REFUTED) return true;
    char *reports = run_of(c, program, kernel, &ran);
    if (reports != NULL) *found = prove_read_reports(program, &program->kernels[kernel], proof, reports);
    bool good = !prove_is_contradicted(proof, found);
    if (proof->races.verdict == TVM_REFUTED && ran) good = good && (found->confirms || found->fault);
    if (!good)
        fprintf(stderr, "races %d (%s), deadlocks %d, but the sanitizer: %s\n", (int)proof->races.verdict,
                proof->races.text, (int)proof->deadlocks.verdict, reports != NULL ? reports : "nothing");
    free(reports);
    return good;
}

typedef struct tally {
    unsigned mutants, refuted, open, proved; /* of races */
    unsigned kernels, races, deadlocks;      /* that are proved */
    unsigned conditional;                    /* of deadlock, if other blocks do their part */
    unsigned both;                           /* that are proved free of both */
    double most;                             /* seconds that a kernel took; of a program: that all did */
    unsigned long long steps;                /* of a program */
} tally;

static void add_verdict(tally *t, const tvm_proof *proof) {
    t->mutants++;
    bool both = proof->races.verdict == TVM_PROVED && proof->deadlocks.verdict == TVM_PROVED;
    t->refuted += proof->races.verdict == TVM_REFUTED;
    t->proved += both;
    t->open += !both && proof->races.verdict != TVM_REFUTED;
}

static bool mutate_case(const case_file *c, const tvm_ir_program *program, uint32_t kernel, tally *t) {
    bool good = true;
    for (uint32_t i = 0; i < program->kernels[kernel].insn_count; i++)
        for (unsigned way = 0; way < PROVE_WAYS; way++) {
            tvm_ir_program *mutant = prove_mutant(program, kernel, i, (prove_way)way);
            tvm_proof proof;
            prove_found found;
            if (mutant == NULL) continue;
            bool agree = agrees(c, mutant, 0, &proof, &found);
            if (!agree)
                fprintf(stderr, "%s: mutant: line %u, way %u\n", c->name,
                        program->kernels[kernel].insns[i].line, way);
            good = good && agree;
            add_verdict(t, &proof);
            tvm_ir_program_free(mutant);
        }
    return good;
}

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

static bool run_case(const char *path, const char *folder, bool wrong, tally *t) {
    case_file *c = case_read(path);
    tvm_ir_program *program = NULL;
    if (c == NULL) return false;
    bool good = true, has = c->errors == NULL && c->kernel != NULL;
    has = has && case_assemble(c, folder, &program, NULL) == TVM_OK;
    for (uint32_t k = 0; has && k < program->kernel_count; k++) {
        tvm_proof proof;
        prove_found found;
        if (strcmp(tvm_string(program, program->kernels[k].name), c->kernel) != 0) continue;
        if (verbose) printf("-- %s\n", c->name);
        good = agrees(c, program, k, &proof, &found) && good;
        if (!wrong && c->refusal == NULL && proof.races.verdict == TVM_REFUTED) good = false;
        if (wrong && expects(c, false) && proof.races.verdict == TVM_PROVED) good = false;
        if (wrong && expects(c, true) && proof.deadlocks.verdict == TVM_PROVED) good = false;
        t->kernels++;
        t->races += proof.races.verdict == TVM_PROVED;
        t->deadlocks += proof.deadlocks.verdict == TVM_PROVED;
        t->conditional += proof.deadlocks.verdict == TVM_PROVED_IF;
        t->both += proof.races.verdict == TVM_PROVED && proof.deadlocks.verdict == TVM_PROVED;
        good = mutate_case(c, program, k, t) && good;
    }
    tvm_ir_program_free(program);
    case_free(c);
    return good;
}

static void run_cases(char **paths, const char *folder, bool wrong, tally *t) {
    for (char **path = paths; path != NULL && *path != NULL; path++)
        count(run_case(*path, folder, wrong, t), *path);
}

static void free_paths(char **paths) {
    for (char **path = paths; path != NULL && *path != NULL; path++) free(*path);
    free(paths);
}

static void say(const char *what, const tally *t) {
    printf(
        "%s: %u kernels, %u proved free of races, %u of deadlock, %u if other blocks do their part, %u of both; %u "
        "mutants, %u with a race shown, %u not proved, %u proved; %.1f ms the longest\n",
        what, t->kernels, t->races, t->deadlocks, t->conditional, t->both, t->mutants, t->refuted, t->open,
        t->proved, 1e3 * t->most);
}

/* ---- shipped programs ---- */

static void fill_shipped(void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes,
                         size_t elements) {
    const prove_launch *l = closure;
    const size_of *size = l->closure;
    const tvm_dtype type = kernel->slots[p].dtype;
    tvm_param_info info = {.name = tvm_string(l->program, kernel->slots[p].name),
                           .type = type.kind == TVM_KIND_INT && type.bits == 32 ? "i32" : ""};
    shipped_sequences(&info, size, (int32_t *)(void *)bytes, elements, false);
}

/* Launches the kernel with the sizes that it accepts first; false: with none. */
static bool run_shipped(const tvm_ir_program *program, uint32_t kernel, char **reports) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    for (size_t s = 0; s < SHIPPED_SIZES; s++) {
        size_of size = shipped_sizes[s];
        prove_launch given = {.program = program, .kernel = kernel, .closure = &size}, l = given;
        for (uint32_t p = 0; p < k->param_count; p++) {
            int value = shipped_scalar(tvm_string(program, k->slots[p].name), &size);
            if (k->slots[p].dtype.kind == TVM_KIND_FLOAT)
                l.scalars[p].f = 1;
            else
                l.scalars[p].i = k->slots[p].dtype.kind == TVM_KIND_BOOL ? 1 : value;
        }
        l.fill = fill_shipped;
        l.closure = &given;
        if (prove_run(&l, reports)) return true;
    }
    return false;
}

/* A mutant that is proved shows nothing to the sanitizer. */
static bool mutant_is_right(const tvm_ir_program *mutant, const tvm_proof *proof) {
    char *reports = NULL;
    if (proof->races.verdict != TVM_PROVED && proof->deadlocks.verdict != TVM_PROVED) return true;
    if (!run_shipped(mutant, 0, &reports) || reports == NULL) return true;
    prove_found found = prove_read_reports(mutant, &mutant->kernels[0], proof, reports);
    bool good = !prove_is_contradicted(proof, &found);
    if (!good) fprintf(stderr, "the sanitizer: %s\n", reports);
    free(reports);
    return good;
}

static bool mutate_shipped(const tvm_ir_program *program, uint32_t kernel, tally *t) {
    bool good = true;
    const tvm_ir_kernel *k = &program->kernels[kernel];
    for (uint32_t i = 0; i < k->insn_count; i++)
        for (unsigned way = 0; way < PROVE_WAYS; way++) {
            if (way == PROVE_NEXT_VALUE) continue; /* most are of places in global memory */
            tvm_ir_program *mutant = prove_mutant(program, kernel, i, (prove_way)way);
            tvm_proof proof;
            if (mutant == NULL) continue;
            judge(mutant, 0, &proof);
            bool right = mutant_is_right(mutant, &proof);
            if (!right)
                fprintf(stderr, "%s: line %u, way %u\n", tvm_string(program, k->name), k->insns[i].line, way);
            good = good && right;
            add_verdict(t, &proof);
            tvm_ir_program_free(mutant);
        }
    return good;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* `most`: of its kernels, that are mutated; `races`, `deadlocks`: kernels that are proved free of them, at
 * least. */
typedef struct shipped_program {
    const char *name, *define;
    unsigned races, deadlocks, mutated;
} shipped_program;

static void run_program(const char *folder, const shipped_program *of, tally *all) {
    char path[4200];
    tvm_ir_program *program = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    tally t = {.kernels = 0};
    const tvm_assembler_options options = {.include_dirs = &folder,
                                           .include_dir_count = 1,
                                           .defines = &of->define,
                                           .define_count = of->define != NULL};
    snprintf(path, sizeof path, "%s/%s", folder, of->name);
    bool good = tvm_file_read(path, 1 << 20, &text, &size, NULL) == TVM_OK &&
                tvm_assemble_text((const char *)text, size, path, &options, &program, NULL) == TVM_OK;
    for (uint32_t k = 0; good && k < program->kernel_count; k++) {
        tvm_proof proof;
        double before = seconds();
        judge(program, k, &proof);
        double took = seconds() - before;
        if (took > all->most) all->most = took;
        t.most += took;
        t.steps += proof.steps;
        t.kernels++;
        t.races += proof.races.verdict == TVM_PROVED;
        t.deadlocks += proof.deadlocks.verdict == TVM_PROVED;
        t.both += proof.races.verdict == TVM_PROVED && proof.deadlocks.verdict == TVM_PROVED;
        t.conditional += proof.deadlocks.verdict == TVM_PROVED_IF;
        good = proof.races.verdict != TVM_REFUTED && proof.deadlocks.verdict != TVM_REFUTED;
        if (good && k < of->mutated) good = mutate_shipped(program, k, all);
    }
    if (verbose)
        printf("== %s: %u kernels, %u proved free of both; %llu steps, %.1f ms\n", of->name, t.kernels,
               t.both, (unsigned long long)t.steps, 1e3 * t.most);
    good = good && t.races >= of->races && t.deadlocks >= of->deadlocks;
    if (!good)
        fprintf(stderr, "%s: %u and %u of %u kernels are proved\n", of->name, t.races, t.deadlocks,
                t.kernels);
    all->kernels += t.kernels;
    all->races += t.races;
    all->deadlocks += t.deadlocks;
    all->conditional += t.conditional;
    all->both += t.both;
    free(text);
    tvm_ir_program_free(program);
    count(good, path);
}

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

/* ---- small kernels ---- */

typedef struct small_kernel {
    const char *what, *head, *body;
    tvm_proof_verdict races, deadlocks;
} small_kernel;

#define ROWS_OF_BLOCKS                                                                                       \
    "%s = alloc-shared f32[2, 64], row_major\n%x = alloc-register f32[1, 64], spatial(1, 64), init 1.0\n"
#define RESULT     "store-global y, squeeze(load-shared(%s[0, 0], spatial(1, 64)), 0)\n"
#define SENDS(ROW) "store-cluster %s[" ROW ", 0], 0, %x\nstore-cluster %s[" ROW ", 0], 1, %x\n"
#define RING(WAIT, LAST, BARRIER)                                                                                   \
    "%s = alloc-shared f32[1, 64], row_major\n%full = alloc-barrier [1]\n"                                          \
    "%empty = alloc-barrier [1], arrivals 2, open\n%met = alloc-barrier [1], arrivals 2\n"                          \
    "role copy warps 2 to 3\nfor %i = 0 to n\nwait-barrier %empty\ncopy-bulk %s, x[%i, 0], barrier %full\n"         \
    "arrive-barrier %full\nend\nend\nrole use warps 0 to 2 by 1\nfor %i = 0 to n\n" WAIT                            \
    "%v = load-shared %s[0, 0], local(1, 2).spatial(1, 32)\narrive-barrier %empty\nend\n" BARRIER                   \
    "if role.index == 0\nstore-shared %s[0, 0], alloc-register(f32[1, 64], local(1, 2).spatial(1, 32))\nend\n" LAST \
    "end\n"

/* Rounds of as many turns as roles find out for themselves. */
#define ROUNDS(COPY_COUNT, USE_COUNT)                                                                           \
    "%s = alloc-shared f32[1, 64], row_major\n%full = alloc-barrier [1]\n"                                      \
    "%empty = alloc-barrier [1], arrivals 2, open\nrole copy warps 2 to 3\nfor %w = 0 to n\n" COPY_COUNT        \
    "for %i = 0 to %c\nwait-barrier %empty\ncopy-bulk %s, x[%i, 0], barrier %full\narrive-barrier %full\nend\n" \
    "end\nend\nrole use warps 0 to 2 by 1\nfor %u = 0 to n\n" USE_COUNT                                         \
    "if %u == m\nsync\nend\nfor %j = 0 to %d\nwait-barrier %full\n"                                             \
    "%v = load-shared %s[0, 0], local(1, 2).spatial(1, 32)\narrive-barrier %empty\nend\nend\nend\n"

/* Each thread stores the tile of a turn, as all of them have it. */
#define LOOP(FOR, INDEX, AFTER)                                                                              \
    "%t = alloc-shared f32[256], row_major\n" FOR "store-shared %t[" INDEX                                   \
    "], alloc-register(f32[32], replicated(64).local(32), init 1.0)\nend\n" AFTER

/* Each warp stores the elements below a scalar's multiple by another thread than those from it on. */
#define PARTS(SCALAR, END, BETWEEN)                                                                          \
    "%t = alloc-shared f32[256], row_major\n%w = " SCALAR "\n"                                               \
    "for %i = 0 to min(" END                                                                                 \
    ", 256)\nstore-shared %t[%i], alloc-register(f32[1], replicated(64), init 1.0)\n"                        \
    "end\n" BETWEEN                                                                                          \
    "for %j = %w to 64\nstore-shared %t[%j * 4], alloc-register(f32[4], replicated(16).spatial(4), init 1.0)\nend\n"

static const small_kernel small_kernels[] = {
    {"rows of blocks", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("cluster.rank") "sync-cluster\n" RESULT, TVM_PROVED, TVM_PROVED},
    {"one row of both blocks", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("0") "sync-cluster\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a row that is read at once", ".cluster 2",
     ROWS_OF_BLOCKS "sync-cluster\n" SENDS("cluster.rank") "sync\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a tensor that is not there yet", ".cluster 2",
     ROWS_OF_BLOCKS SENDS("cluster.rank") "sync-cluster\n" RESULT, TVM_NOT_PROVED, TVM_PROVED},
    {"a sync-cluster of one block", ".cluster 2", "if cluster.rank == 0\nsync-cluster\nend\n", TVM_PROVED,
     TVM_NOT_PROVED},
    {"an element that one of several threads stores", "",
     "%t = alloc-shared i32[4]\nstore-cluster %t[0], 0, alloc-register(i32[4], replicated(64).local(4), init 2)\n"
     "%w = load-cluster %t[0], 0, replicated(64).local(4)\n",
     TVM_NOT_PROVED, TVM_PROVED},
    {"rows of blocks that are out of step", ".cluster 2",
     ROWS_OF_BLOCKS "if cluster.rank == 0\nsync-cluster\nend\n" SENDS("cluster.rank") "sync-cluster\n" RESULT,
     TVM_NOT_PROVED, TVM_NOT_PROVED},
    {"a race behind a role that waits for ever", "",
     "%b = alloc-barrier [1]\nrole a warps 0 to 1\nwait-barrier %b\nend\n%t = alloc-shared f32[96]\n"
     "store-shared %t, alloc-register(f32[96], spatial(96), init 1.0)\n"
     "%u = load-shared %t, flatten(column_spatial(3, 32))\n",
     TVM_NOT_PROVED, TVM_NOT_PROVED},
    {"a block that leaves", ".cluster 2", "if cluster.rank == 0\nexit\nend\nsync-cluster\n", TVM_NOT_PROVED,
     TVM_NOT_PROVED},
    {"a cluster that leaves", ".cluster 2", "if block.x / 2 == 1\nexit\nend\nsync-cluster\n", TVM_PROVED,
     TVM_PROVED},
    {"a stage that is used again", "",
     RING("wait-barrier %full\n", "", "arrive-barrier %met\nwait-barrier %met\n"), TVM_PROVED, TVM_PROVED},
    {"one that others still read", "", RING("wait-barrier %full\n", "", ""), TVM_NOT_PROVED, TVM_PROVED},
    {"one that a copy comes to", "",
     RING("wait-barrier %full\n", "wait-barrier %full\n", "arrive-barrier %met\nwait-barrier %met\n"),
     TVM_NOT_PROVED, TVM_NOT_PROVED},
    {"roles that count alike", "", ROUNDS("%c = %w < m ? m : 3\n", "%d = %u < m ? m : 3\n"), TVM_PROVED,
     TVM_PROVED},
    {"roles that count on", "",
     ROUNDS("%t = %w * 2\nif %w > m\n%t = %t - 1\nend\n%c = %t\n",
            "%q = %u * 2\nif %u > m\n%q = %q - 1\nend\n%d = %q\n"),
     TVM_PROVED, TVM_PROVED},
    {"roles that count differently", "", ROUNDS("%c = %w < m ? m : 3\n", "%d = %u < m ? n : 3\n"), TVM_PROVED,
     TVM_NOT_PROVED},
    {"roles that count on differently", "",
     ROUNDS("%t = %w * 2\nif %w > m\n%t = %t - 1\nend\n%c = %t\n",
            "%q = %u * 2\nif %u > m\n%q = %q - 1\n%q = %q - 1\nend\n%d = %q\n"),
     TVM_PROVED, TVM_NOT_PROVED},
    {"teams that count differently", "",
     ROUNDS("%c = %w < m ? m : 3\n", "%d = %u < m ? m : 3 + role.index\n"), TVM_PROVED, TVM_NOT_PROVED},
    {"a count that memory tells", "",
     ROUNDS("%c = i32(load-scalar(y[%w]))\n", "%d = i32(load-scalar(y[%u]))\n"), TVM_PROVED, TVM_NOT_PROVED},
    {"tiles of a loop", "", LOOP("for %i = 0 to n\n", "%i * 32 + 32", ""), TVM_PROVED, TVM_PROVED},
    {"tiles that overlap", "", LOOP("for %i = 0 to n\n", "%i * 16 + 16", ""), TVM_NOT_PROVED, TVM_PROVED},
    {"tiles of a loop that are read behind it", "",
     LOOP("for %i = 0 to n\n", "%i * 32", "%w = load-shared %t[0], spatial(64)\n"), TVM_NOT_PROVED,
     TVM_PROVED},
    {"tiles of a loop that begins again", "",
     "%t = alloc-shared f32[256], row_major\nfor %j = 0 to n\nfor %i = 0 to n\nif n == 3\nbreak\nend\n"
     "store-shared %t[%i * 32], alloc-register(f32[32], replicated(64).local(32), init 1.0)\nend\nend\n",
     TVM_NOT_PROVED, TVM_PROVED},
    {"tiles before and behind a scalar", "", PARTS("min(max(n, 0), 64)", "%w * 4", ""), TVM_PROVED,
     TVM_PROVED},
    {"those of a scalar that has changed", "",
     PARTS("min(max(n, 0), 64)", "%w * 4", "%w = min(max(m, 0), 64)\n"), TVM_NOT_PROVED, TVM_PROVED},
    {"tiles that end behind it", "", PARTS("min(max(n, 0), 64)", "%w * 4 + 1", ""), TVM_NOT_PROVED,
     TVM_PROVED},
    {"a scalar whose multiples wrap", "", PARTS("n", "%w * 4", ""), TVM_NOT_PROVED, TVM_PROVED},
    {"a semaphore", "", "%a = alloc-global i32[1], clean\nlock-semaphore %a[0], n\n", TVM_PROVED,
     TVM_PROVED_IF},
};

static bool is_said(const small_kernel *of) {
    tvm_text text = {0};
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_proof proof;
    tvm_text_add(
        &text,
        ".vasm 7\n.kernel k(n: i32, m: i32, x: global f32[n, 64], y: global f32[64])\n.warps %d\n%s\n.grid 4\n"
        ".assume n >= 0\n%s.end\n",
        strstr(of->body, "role") ? 3 : 2, of->head, of->body);
    if (tvm_assemble_text(tvm_text_string(&text), text.size, "t.vasm", NULL, &program, &diags) != TVM_OK) {
        fprintf(stderr, "%s: %s\n", of->what, diags.count ? diags.items[0].message : "");
        abort();
    }
    judge(program, 0, &proof);
    bool good = proof.races.verdict == of->races && proof.deadlocks.verdict == of->deadlocks;
    if (!good)
        fprintf(stderr, "%s: races %d (%s), deadlocks %d (%s)\n", of->what, (int)proof.races.verdict,
                proof.races.text, (int)proof.deadlocks.verdict, proof.deadlocks.text);
    tvm_text_free(&text);
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
    return good;
}

static const shipped_program programs[] = {
    {"argmax.vasm", NULL, 5, 5, 5},
    {"attention.vasm", NULL, 6, 6, 0},
    {"attention_decode.vasm", NULL, 6, 1, 3},
    {"attention_merge.vasm", NULL, 6, 6, 0},
    {"cumsum.vasm", NULL, 5, 5, 0},
    {"embedding.vasm", NULL, 2, 2, 0},
    {"histogram.vasm", NULL, 4, 4, 1},
    {"kv_append.vasm", NULL, 2, 2, 0},
    {"layer_norm.vasm", NULL, 11, 11, 11},
    {"matmul.vasm", NULL, 9, 9, 9},
    {"matmul.vasm", "T=i8", 9, 9, 1},
    {"matmul_lowbit_u4.vasm", NULL, 46, 41, 24},
    {"matmul_simple.vasm", NULL, 2, 2, 2},
    {"matmul_u3.vasm", NULL, 2, 2, 2},
    {"quantize_rows.vasm", NULL, 18, 18, 18},
    {"reduce.vasm", NULL, 4, 4, 0},
    {"rms_norm.vasm", NULL, 18, 18, 18},
    {"rope.vasm", NULL, 5, 5, 0},
    {"sample.vasm", NULL, 2, 2, 2},
    {"scatter_add.vasm", NULL, 2, 2, 0},
    {"softmax.vasm", NULL, 12, 12, 12},
    {"swiglu.vasm", NULL, 3, 3, 0},
    {"topk.vasm", NULL, 2, 3, 3},
    {"transpose.vasm", NULL, 2, 2, 0},
    {"vector_add.vasm", NULL, 1, 1, 0},
    {"widen_lowbit.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/attention_backward.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/convolution.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/convolution_halo.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/cross_entropy.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/fft.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/linear_attention.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/mla_decode.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/moe_u4.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/mxfp4.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/sgmv.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/split_k.vasm", NULL, 1, 0, 0},
    {"../tests/foreign/verify.vasm", NULL, 1, 1, 0},
    {"../tests/foreign/w8a8.vasm", NULL, 1, 1, 0},
};

int main(int argc, char **argv) {
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".";
    char right[4096], wrong[4096], folder[4096];
    tally seeded = {.kernels = 0}, cases = {.kernels = 0}, shipped = {.kernels = 0};
    snprintf(right, sizeof right, "%s/tests/cases", top);
    snprintf(wrong, sizeof wrong, "%s/tests/cases/sanitizer", top);
    snprintf(folder, sizeof folder, "%s/programs", top);
    verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    argv += verbose;
    argc -= verbose;
    if (argc > 1) {
        run_cases(argv + 1, right, strstr(argv[1], "sanitizer") != NULL, &cases);
    } else {
        char **mistakes = case_list(wrong), **others = case_list(right);
        run_cases(mistakes, right, true, &seeded);
        run_cases(others, right, false, &cases);
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
            run_program(folder, &programs[i], &shipped);
        for (size_t i = 0; i < sizeof small_kernels / sizeof *small_kernels; i++)
            count(is_said(&small_kernels[i]), small_kernels[i].what);
        free_paths(mistakes);
        free_paths(others);
        count(shipped.refuted + shipped.open >= 60, "enough mutants are refused");
        count(tells_latest(), "the later store is told");
        count(verifies("sync", TVM_OK), "tvm_verify_proved accepts");
        count(verifies("sync-warp", TVM_INVALID), "tvm_verify_proved refuses");
    }
    say("seeded", &seeded);
    say("cases", &cases);
    say("shipped", &shipped);
    printf("%u passed, %u failed\n", passed, bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
