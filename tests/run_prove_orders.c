/* The second judge of the prover: what it proves of a kernel holds for its code, too. Each launch of a kernel
 * that is proved free of races and deadlock, and of a mutant that is, gives one result on the PTX machine
 * whatever the order of its warps, copies and blocks (ptx_order.h), and comes to its end. That the orders
 * show mistakes is known by those of prove_seeded.h. Left out is what the sanitizer reports of the launch:
 * races on global memory, faults.
 *
 * A process of its own runs each, as the machine ends it where it sees a race.
 *
 *   run_prove_orders [EVERY [ORDERS]]      one of so many mutants, in so many orders */
#include "check_kit.h"
#include <unistd.h>

enum { SAME, DIFFERENT, STOPPED, ENDLESS }; /* how a process ends */
#undef ck_abort_msg
#define ck_abort_msg(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), _exit(STOPPED))

#include <sys/wait.h>

#include "extent_kit.h"
#include "generate/generate.h"
#include "prove_seeded.h"
#include "prove_subject.h"
#include "ptx_launch_kit.h"

enum { STEPS = 60 * 1000 /* of a launch */, MANNERS = 3 };

static unsigned passed, bad, every, orders;

static void count(bool good, const char *what) {
    passed += good;
    bad += !good;
    if (!good) printf("FAIL: %s\n", what);
}

/* ---- one launch ---- */

typedef struct code {
    const prove_subject *s;
    const tvm_ir_program *program;
    uint32_t kernel;
    tvm_target target;
    tvm_module *module;
    tvm_launch_env env;
} code;

/* A tile that threads hold together: the machine knows one writer of a byte, and the sanitizer all that hold
 * it. */
static bool stores_replicas(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                            const tvm_insn *insn) {
    bool writes = tvm_op(insn->op)->effects & TVM_EFFECT_WRITE_SHARED;
    for (uint32_t o = 0; o < insn->count && writes; o++) {
        const tvm_operand *operand = &kernel->operands[insn->first + o];
        if (operand->kind == TVM_OPERAND_SLOT && kernel->slots[operand->value].kind == TVM_SLOT_REGISTER &&
            tvm_layout_replication(&program->layouts[kernel->slots[operand->value].layout]) > 1)
            return true;
    }
    return false;
}

/* Does it wait for blocks beyond its own cluster, print, which the machine does not, or store so to a
 * cluster? */
static bool is_beyond(const tvm_ir_program *program, const tvm_ir_kernel *kernel) {
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        if (tvm_op(kernel->insns[i].op)->effects & (TVM_EFFECT_WAIT | TVM_EFFECT_OUTPUT) ||
            stores_replicas(program, kernel, &kernel->insns[i]))
            return true;
    return false;
}

/* False: it is not for the target, or not for the machine. */
static bool make_code(code *c) {
    const tvm_ir_kernel *kernel = &c->program->kernels[c->kernel];
    c->env = (tvm_launch_env){.scalars = c->s->scalars,
                              .multiprocessors = 2,
                              .target = c->target.arch,
                              .traits = tvm_target_traits_for(c->target.arch)};
    if (!tvm_kernel_is_for(kernel, c->target.arch, c->env.traits) || is_beyond(c->program, kernel) ||
        tvm_launch_check(c->program, kernel, &c->env, NULL) != TVM_OK ||
        tvm_translate(c->program, c->target, &c->module, NULL) != TVM_OK)
        return false;
    const prove_launch l = {
        .program = c->program, .kernel = c->kernel, .most_blocks = c->s->is_shipped ? 2 : 0};
    prove_cut_grid(&l, c->env.grid);
    /* a loop of cas begins with a load of what others may change meanwhile, which the machine takes for a
     * race */
    bool is_loop = strstr(c->module->ptx, ".shared.cas.") != NULL;
    return c->module->kernels[c->kernel].abi.absence == TVM_ABI_PRESENT && !is_loop;
}

static uint64_t bytes_of(const code *c, uint32_t p) {
    int64_t shape[TVM_MAX_RANK];
    uint64_t bytes = 0;
    if (tvm_launch_shape(c->program, &c->program->kernels[c->kernel], p, &c->env, shape, &bytes, NULL) !=
        TVM_OK)
        abort();
    return bytes;
}

/* Of all tensors after the launch: FNV-1a. *ended: not after too many instructions, or with a trap. */
static uint64_t result_of(const code *c, uint64_t order, bool *ended) {
    const tvm_ir_kernel *kernel = &c->program->kernels[c->kernel];
    const tvm_kernel_code *made = &c->module->kernels[c->kernel];
    uint64_t values[TVM_MAX_PARAMS], bytes[TVM_MAX_PARAMS] = {0}, hash = UINT64_C(14695981039346656037);
    tvm_interp_arg args[TVM_MAX_PARAMS] = {{.data = NULL}};
    prove_launch l = {.program = c->program, .kernel = c->kernel, .closure = c->s, .fill = prove_fill(c->s)};
    memcpy(l.scalars, c->s->scalars, sizeof l.scalars);
    *ended = prove_make_tensors(&l, &c->env, args);
    if (!*ended) return 0;
    ptx_machine m = ptx_load(c->module->ptx, made->name, made->abi.threads);
    m.order = order;
    m.steps_most = STEPS;
    for (uint32_t p = 0; p < kernel->param_count; p++) {
        tvm_dtype type = kernel->slots[p].dtype;
        values[p] = type.kind == TVM_KIND_FLOAT ? tvm_encode(type, l.scalars[p].f) : l.scalars[p].u;
        if (args[p].data == NULL) continue;
        values[p] = (uint64_t)(uintptr_t)args[p].data;
        bytes[p] = bytes_of(c, p);
        ptx_allow(&m, args[p].data, bytes[p]);
    }
    ptx_own own;
    ptx_own_make(&own, &m, c->program, kernel, &c->env);
    ptx_launch(&m, c->module, c->program, kernel, &c->env, values, own.place);
    *ended = !m.fault[0] && !m.trapped;
    for (uint32_t p = 0; p < kernel->param_count; p++)
        for (uint64_t i = 0; i < bytes[p]; i++)
            hash = (hash ^ ((uint8_t *)args[p].data)[i]) * UINT64_C(1099511628211);
    ptx_free(&m);
    ptx_own_free(&own);
    for (uint32_t p = 0; p < kernel->param_count; p++) free(args[p].data);
    return hash;
}

static int run_orders(const code *c) {
    bool ended;
    uint64_t first = result_of(c, 0, &ended);
    for (uint64_t order = 1; order <= orders && ended; order++)
        if (result_of(c, order, &ended) != first && ended) return DIFFERENT;
    return ended ? SAME : ENDLESS;
}

/* -1: there is no such code. */
static int judge_code(const prove_subject *s, const tvm_ir_program *program, uint32_t kernel,
                      tvm_target target) {
    code c = {.s = s, .program = program, .kernel = kernel, .target = target};
    int how = -1;
    if (make_code(&c)) {
        fflush(NULL);
        pid_t child = fork();
        if (child < 0) abort();
        if (child == 0) _exit(run_orders(&c));
        if (waitpid(child, &how, 0) != child) abort();
        how = WIFEXITED(how) ? WEXITSTATUS(how) : STOPPED;
    }
    tvm_module_free(c.module);
    return how;
}

/* ---- kernels ---- */

static const tvm_target targets[] = {{.arch = 80}, {.arch = 90, .feature = 'a'}};
enum { TARGETS = sizeof targets / sizeof *targets };

typedef struct tally {
    unsigned launched, ended;
} tally;

static bool is_proved(const tvm_ir_program *program, uint32_t kernel) {
    tvm_proof proof;
    if (tvm_prove(program, kernel, &proof, NULL) != TVM_OK) abort();
    return proof.races.verdict == TVM_PROVED && proof.deadlocks.verdict == TVM_PROVED;
}

/* Proved, and the sanitizer finds nothing else either. */
static bool is_right(const prove_subject *s, const tvm_ir_program *program, uint32_t kernel) {
    char *reports = NULL;
    bool right =
        is_proved(program, kernel) && prove_run_subject(s, program, kernel, &reports) && reports == NULL;
    free(reports);
    return right;
}

static void print_program(const tvm_ir_program *program) {
    char *text = NULL;
    if (tvm_disassemble(program, &text, NULL) == TVM_OK) fputs(text, stderr);
    free(text);
}

/* All orders of a kernel that is proved give one result. */
static bool agrees(const prove_subject *s, const tvm_ir_program *program, uint32_t kernel, tally *t) {
    bool good = true;
    if (!is_right(s, program, kernel)) return true;
    for (unsigned i = 0; i < TARGETS; i++) {
        int how = judge_code(s, program, kernel, targets[i]);
        t->launched += how >= 0;
        t->ended += how == SAME;
        if (how < 0 || how == SAME || how == ENDLESS) continue;
        fprintf(stderr, "%s, sm_%u: %s\n", s->name, targets[i].arch,
                how == DIFFERENT ? "orders with different results" : "a race, or no end");
        good = false;
    }
    return good;
}

static bool takes(uint32_t at, unsigned way) {
    uint64_t state = (uint64_t)at * PROVE_WAYS + way;
    return generate_bits(&state) % every == 0;
}

static bool mutate(const prove_subject *s, tally *t) {
    const tvm_ir_kernel *kernel = &s->program->kernels[s->kernel];
    tvm_ir_program *spare = NULL;
    bool good = true;
    for (uint32_t i = 0; i < kernel->insn_count; i++)
        for (unsigned way = 0; way < PROVE_WAYS; way++) {
            bool more = takes(i, way);
            for (unsigned nth = 0; more && nth < MANNERS; nth++) {
                tvm_ir_program *mutant = prove_mutant(s->program, s->kernel, i, way, nth, &spare, &more);
                if (mutant == NULL) continue;
                bool right = agrees(s, mutant, 0, t);
                if (!right) {
                    fprintf(stderr, "mutant: line %u, %s, %u\n", kernel->insns[i].line, prove_ways[way].name,
                            nth);
                    print_program(mutant);
                }
                good = good && right;
                tvm_ir_program_free(mutant);
            }
        }
    tvm_ir_program_free(spare);
    return good;
}

static tvm_ir_program *assemble_small(const char *text) {
    tvm_ir_program *program = NULL;
    if (tvm_assemble_text(text, strlen(text), "t.vasm", NULL, &program, NULL) != TVM_OK) abort();
    return program;
}

static void run_right(const seeded_kernel *of, tally *t) {
    tvm_ir_program *program = assemble_small(of->text);
    prove_subject s = {.name = of->what, .program = program};
    unsigned ended = t->ended;
    prove_small_scalars(&s);
    bool good = agrees(&s, program, 0, t);
    count(good && t->ended > ended && mutate(&s, t), of->what);
    tvm_ir_program_free(program);
}

/* The machine does a block, or a cluster, by itself. */
static bool is_left_out(const seeded_kernel *of) {
    tvm_ir_program *program = assemble_small(of->text);
    bool is = is_beyond(program, &program->kernels[0]);
    tvm_ir_program_free(program);
    return is;
}

/* Do the orders show the mistake, on some target? */
static bool is_seen(const seeded_kernel *of, const seeded_mistake *mistake) {
    char *text = seeded_text(of, mistake);
    tvm_ir_program *program = assemble_small(text);
    prove_subject s = {.name = mistake->what, .program = program};
    bool seen = false;
    prove_small_scalars(&s);
    for (unsigned i = 0; i < TARGETS && !seen; i++) {
        int how = judge_code(&s, program, 0, targets[i]);
        seen = how == DIFFERENT || how == STOPPED;
    }
    if (!seen) fprintf(stderr, "not seen: %s: %s\n", of->what, mistake->what);
    tvm_ir_program_free(program);
    free(text);
    return seen;
}

static void run_cases(const char *folder, tally *t) {
    char **paths = case_list(folder);
    unsigned long i = 0;
    for (char **path = paths; path != NULL && *path != NULL; path++, i++) {
        case_file *c = test_takes(i, 4) ? case_read(*path) : NULL;
        tvm_ir_program *program = NULL;
        bool has = c != NULL && c->errors == NULL && c->kernel != NULL &&
                   case_assemble(c, folder, &program, NULL) == TVM_OK;
        for (uint32_t k = 0; has && k < program->kernel_count; k++) {
            prove_subject s = {.name = c->name, .program = program, .kernel = k, .c = c};
            if (strcmp(prove_subject_kernel(&s), c->kernel) != 0) continue;
            prove_case_scalars(&s);
            bool good = agrees(&s, program, k, t);
            count(mutate(&s, t) && good, *path);
        }
        tvm_ir_program_free(program);
        case_free(c);
        free(*path);
    }
    free(paths);
}

int main(int argc, char **argv) {
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".";
    char folder[4096];
    unsigned mistakes = 0, seen = 0;
    tally right = {0}, cases = {0};
    every = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : test_exhaustively() ? 3 : test_all() ? 10 : 30;
    orders = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : test_all() ? 4 : 2;
    snprintf(folder, sizeof folder, "%s/tests/cases", top);
    for (size_t i = 0; i < SEEDED_KERNELS; i++) {
        if (is_left_out(&seeded_kernels[i])) continue;
        run_right(&seeded_kernels[i], &right);
        for (const seeded_mistake *m = seeded_kernels[i].mistakes; m->what != NULL; m++, mistakes++)
            seen += is_seen(&seeded_kernels[i], m);
    }
    run_cases(folder, &cases);
    printf("%u of %u mistakes are seen; %u launches of kernels that are proved, %u to their end\n", seen,
           mistakes, right.launched + cases.launched, right.ended + cases.ended);
    count(2 * seen >= mistakes, "the orders show mistakes");
    printf("%u passed, %u failed\n", passed, bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
