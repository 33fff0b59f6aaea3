/* The prover, of global memory: small kernels that it accepts, each with a twin that it must not, and mutants
 * of the cases and of the shipped programs, of which none that it accepts shows a race to the sanitizer.
 * Mutants change what indices, loops and conditions are computed of: another block's index, an extent instead
 * of another, an element further, `/` for `%`; plain stores for atomic operations; no semaphores.
 *
 *   run_prove_global [-v] [CASE...]     -v: says what is not proved; without arguments: all */
#include "case_file.h"
#include "fileio.h"
#include "prove_kit.h"
#include "shipped_launch.h"

static unsigned passed, bad, mutants, accepted, races;
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

/* What a launch of the kernel shows against the proof. */
typedef bool (*launch_with)(const void *closure, const tvm_ir_program *program, uint32_t kernel,
                            char **reports);

static bool agrees(const tvm_ir_program *program, uint32_t kernel, launch_with launch, const void *closure,
                   tvm_proof *proof) {
    char *reports = NULL;
    judge(program, kernel, proof);
    if (proof->global.verdict != TVM_PROVED && proof->global.verdict != TVM_REFUTED) return true;
    if (!launch(closure, program, kernel, &reports)) return true;
    prove_found found = {.race = false};
    if (reports != NULL) found = prove_read_reports(program, &program->kernels[kernel], proof, reports);
    bool refuted = proof->global.verdict == TVM_REFUTED, good = refuted ? true : !found.global;
    races += refuted && found.confirms_global;
    if (!good) fprintf(stderr, "proved, but the sanitizer: %s\n", reports);
    free(reports);
    return good;
}

/* ---- mutants ---- */

typedef enum global_way {
    NO_BLOCK,     /* an index of the block is 0 */
    NO_GRID,      /* an extent of the grid is 1 */
    DIV_FOR_MOD,  /* and the other way round */
    OTHER_AXIS,   /* x for y, y for z, z for x */
    ONE_FURTHER,  /* a scalar or an index plus 1 */
    HALF_AS_MUCH, /* a constant is half */
    PLAIN,        /* a store for an atomic operation */
    NO_SEMAPHORE, /* a lock or a release is left out */
    NO_CONDITION, /* if 1 */
    OTHER_INDEX,  /* the first two indices of global memory change places */
    GLOBAL_WAYS
} global_way;

/* The first global tensor of an instruction, with indices; NULL. */
static tvm_operand *tensor_of(tvm_ir_kernel *kernel, const tvm_insn *insn) {
    for (uint32_t o = 0; o + 1 < insn->count; o++) {
        tvm_operand *operand = &kernel->operands[insn->first + o];
        if (operand->kind == TVM_OPERAND_SLOT && kernel->slots[operand->value].kind == TVM_SLOT_GLOBAL &&
            operand[1].kind == TVM_OPERAND_EXPR)
            return operand;
    }
    return NULL;
}

/* A copy of the expression whose n-th node that the way changes is changed. */
static uint32_t changed(tvm_ir_kernel *kernel, uint32_t expr, global_way way, unsigned *n) {
    tvm_expr node = kernel->exprs[expr];
    bool half = way == HALF_AS_MUCH && node.op == TVM_EXPR_INTEGER && node.value.i > 1;
    bool fits = (way == NO_BLOCK && node.op == TVM_EXPR_BLOCK) ||
                (way == NO_GRID && node.op == TVM_EXPR_GRID) ||
                (way == OTHER_AXIS && node.op == TVM_EXPR_BLOCK) || half ||
                (way == DIV_FOR_MOD && tvm_dtype_is_integer(node.type) &&
                 (node.op == TVM_EXPR_DIV || node.op == TVM_EXPR_MOD));
    if (fits && (*n)-- == 0) {
        if (way == NO_BLOCK || way == NO_GRID) return prove_constant(kernel, node.type, way == NO_GRID);
        if (half) return prove_constant(kernel, node.type, node.value.i / 2);
        if (way == OTHER_AXIS) node.a = (node.a + 1) % 3;
        if (way == DIV_FOR_MOD) node.op = node.op == TVM_EXPR_DIV ? TVM_EXPR_MOD : TVM_EXPR_DIV;
        return tvm_ir_kernel_expr(kernel, &node);
    }
    for (unsigned i = 0; i < tvm_expr_arity(&node); i++) {
        uint32_t operand = changed(kernel, node.operands[i], way, n);
        if (operand == node.operands[i]) continue;
        node.operands[i] = operand;
        return tvm_ir_kernel_expr(kernel, &node);
    }
    return expr;
}

/* Of the operands that are scalars. */
static bool change_scalars(tvm_ir_kernel *kernel, uint32_t at, global_way way, unsigned n) {
    const tvm_insn insn = kernel->insns[at];
    for (uint32_t o = 0; o < insn.count; o++) {
        const tvm_operand operand = kernel->operands[insn.first + o];
        if (operand.kind != TVM_OPERAND_EXPR) continue;
        uint32_t made = changed(kernel, operand.value, way, &n);
        if (made == operand.value) continue;
        kernel->operands[insn.first + o].value = made;
        return true;
    }
    return false;
}

static bool further(tvm_ir_kernel *kernel, uint32_t at) {
    const tvm_insn insn = kernel->insns[at];
    const tvm_operand *tensor = tensor_of(kernel, &insn);
    if (insn.op == TVM_OP_LET && !tvm_dtype_is_integer(kernel->slots[insn.result].dtype)) return false;
    if (insn.op != TVM_OP_LET && tensor == NULL) return false;
    uint32_t place = insn.op == TVM_OP_LET ? insn.first : (uint32_t)(tensor + 1 - kernel->operands);
    uint32_t made = prove_plus(kernel, kernel->operands[place].value, 1);
    kernel->operands[place].value = made;
    return true;
}

/* atomic OPERATION TARGET, SOURCE, EXPECTED, MASK, ORDER, SCOPE, RANK is scatter TARGET, SOURCE, MASK. */
static bool plain(tvm_ir_kernel *kernel, uint32_t at) {
    tvm_insn *insn = &kernel->insns[at];
    if (insn->op != TVM_OP_ATOMIC || insn->count < 6) return false;
    tvm_operand *operands = &kernel->operands[insn->first];
    if (kernel->slots[operands[1].value].kind != TVM_SLOT_GLOBAL) return false;
    uint32_t source = 2U + kernel->slots[operands[1].value].rank;
    operands[source + 1] = operands[source + 2]; /* the mask */
    insn->op = TVM_OP_SCATTER;
    insn->first++;
    insn->count = source + 1;
    return true;
}

static bool mutate(tvm_ir_kernel *kernel, uint32_t at, global_way way, unsigned n) {
    tvm_insn *insn = &kernel->insns[at];
    tvm_operand *tensor = tensor_of(kernel, insn);
    switch (way) {
    case ONE_FURTHER:
        return n == 0 && further(kernel, at);
    case PLAIN:
        return n == 0 && plain(kernel, at);
    case NO_SEMAPHORE:
        if (n != 0 || (insn->op != TVM_OP_LOCK_SEMAPHORE && insn->op != TVM_OP_RELEASE_SEMAPHORE))
            return false;
        return prove_left_out(&(prove_spot){.kernel = kernel, .at = at});
    case NO_CONDITION:
        if (n != 0 || insn->op != TVM_OP_IF) return false;
        kernel->operands[insn->first].value = prove_constant(kernel, TVM_BOOL, 1);
        return true;
    case OTHER_INDEX:
        if (n != 0 || tensor == NULL || kernel->slots[tensor->value].rank < 2 ||
            tensor[2].kind != TVM_OPERAND_EXPR)
            return false;
        uint32_t kept = tensor[1].value;
        tensor[1].value = tensor[2].value;
        tensor[2].value = kept;
        return true;
    default:
        return change_scalars(kernel, at, way, n);
    }
}

static bool mutate_all(const tvm_ir_program *program, uint32_t kernel, unsigned places, launch_with launch,
                       const void *closure) {
    bool good = true;
    for (uint32_t i = 0; i < program->kernels[kernel].insn_count; i++)
        for (unsigned way = 0; way < GLOBAL_WAYS; way++)
            for (unsigned n = 0; n < places; n++) {
                tvm_ir_program *mutant = tvm_ir_program_clone_kernel(program, kernel);
                tvm_proof proof;
                if (mutant == NULL) abort();
                bool made = mutate(&mutant->kernels[0], i, (global_way)way, n);
                if (made && tvm_verify(mutant, NULL) == TVM_OK) {
                    bool agree = agrees(mutant, 0, launch, closure, &proof);
                    if (!agree)
                        fprintf(stderr, "%s: mutant: line %u, way %u, %u\n",
                                tvm_string(program, program->kernels[kernel].name),
                                program->kernels[kernel].insns[i].line, way, n);
                    good = good && agree;
                    mutants++;
                    accepted += proof.global.verdict == TVM_PROVED;
                }
                tvm_ir_program_free(mutant);
                if (!made) break;
            }
    return good;
}

/* ---- cases ---- */

static void fill_case(const void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes,
                      size_t elements) {
    const prove_launch *l = closure;
    const case_file *c = l->closure;
    const char *text = case_argument(c, tvm_string(l->program, kernel->slots[p].name));
    if (text != NULL) case_fill(kernel->slots[p].dtype, bytes, elements, text);
}

static bool launch_case(const void *closure, const tvm_ir_program *program, uint32_t kernel, char **reports) {
    const case_file *c = closure;
    const tvm_ir_kernel *k = &program->kernels[kernel];
    prove_launch given = {.program = program, .kernel = kernel, .closure = c}, l = given;
    for (uint32_t p = 0; p < k->param_count; p++) {
        const char *text = case_argument(c, tvm_string(program, k->slots[p].name));
        if (k->slots[p].kind != TVM_SLOT_SCALAR || text == NULL) continue;
        if (k->slots[p].dtype.kind == TVM_KIND_FLOAT)
            l.scalars[p].f = strtod(text, NULL);
        else
            l.scalars[p].i = strtoll(text, NULL, 0);
    }
    l.fill = fill_case;
    l.closure = &given;
    return prove_run(&l, reports);
}

static void run_case(const char *path, const char *folder) {
    case_file *c = case_read(path);
    tvm_ir_program *program = NULL;
    bool good = c != NULL;
    bool has = good && c->errors == NULL && c->kernel != NULL;
    has = has && case_assemble(c, folder, &program, NULL) == TVM_OK;
    for (uint32_t k = 0; has && k < program->kernel_count; k++) {
        tvm_proof proof;
        if (strcmp(tvm_string(program, program->kernels[k].name), c->kernel) != 0) continue;
        if (verbose) printf("-- %s\n", c->name);
        good = agrees(program, k, launch_case, c, &proof) && good;
        good = mutate_all(program, k, getenv("TVM_TEST_ALL") ? 3 : 1, launch_case, c) && good;
    }
    tvm_ir_program_free(program);
    if (c != NULL) case_free(c);
    count(good, path);
}

static void run_cases(const char *folder) {
    char **paths = case_list(folder);
    for (char **path = paths; path != NULL && *path != NULL; path++) {
        run_case(*path, folder);
        free(*path);
    }
    free(paths);
}

/* ---- small kernels ---- */

typedef struct small_kernel {
    const char *what, *grid, *body;
    tvm_proof_verdict verdict;
    const char *broken; /* the body of the twin */
    tvm_proof_verdict refused;
} small_kernel;

#define TILE "%v = alloc-register f32[16, 32], layout spatial(4, 32).local(4, 1), init 1.0\n"
#define LINE "%w = alloc-register f32[128], layout spatial(128), init 1.0\n"

#define BAND                                                                                                 \
    "%band = max(cdiv(n, 32) * 4, 1)\n%first = block.x / %band * 4\n"                                        \
    "%high = max(min(cdiv(m, 16) - %first, 4), 1)\n"

static const small_kernel small_kernels[] = {
    {"a tile of each block", "cdiv(m, 16), cdiv(n, 32)",
     TILE "store-global y[block.x * 16, block.y * 32], %v\n", TVM_PROVED,
     TILE "store-global y[block.x * 16, block.y * 16], %v\n", TVM_NOT_PROVED},
    {"an index that is left out", "cdiv(m, 16), cdiv(n, 32)",
     TILE "store-global y[block.x * 16, block.y * 32], %v\n", TVM_PROVED,
     TILE "store-global y[block.x * 16, 0], %v\n", TVM_NOT_PROVED},
    {"the same place of all", "cdiv(m, 16)", TILE "store-global y[block.x * 16, 0], %v\n", TVM_PROVED,
     TILE "store-global y[0, 0], %v\n", TVM_REFUTED},
    {"the digits of a block's number", "cdiv(m, 16) * cdiv(n, 32)",
     TILE "store-global y[block.x / cdiv(n, 32) * 16, block.x % cdiv(n, 32) * 32], %v\n", TVM_PROVED,
     TILE "store-global y[block.x / cdiv(n, 32) * 16, block.x % cdiv(m, 16) * 32], %v\n", TVM_NOT_PROVED},
    {"blocks that walk along", "4",
     TILE "for %t = block.x to cdiv(m, 16) step grid.x\nstore-global y[%t * 16, 0], %v\nend\n", TVM_PROVED,
     TILE "for %t = block.x to cdiv(m, 16) step 2\nstore-global y[%t * 16, 0], %v\nend\n", TVM_NOT_PROVED},
    {"rows of a block", "cdiv(m, 64)",
     TILE "for %i = block.x * 4 to min(block.x * 4 + 4, m)\nstore-global y[%i * 16, 0], %v\nend\n",
     TVM_PROVED,
     TILE "for %i = block.x * 4 to min(block.x * 4 + 5, m)\nstore-global y[%i * 16, 0], %v\nend\n",
     TVM_NOT_PROVED},
    {"one block", "4", LINE "if block.x == 2\nstore-global z[0], %w\nend\n", TVM_PROVED,
     LINE "if block.x >= 2\nstore-global z[0], %w\nend\n", TVM_NOT_PROVED},
    {"the last block", "4", LINE "if block.x >= 3\nstore-global z[0], %w\nend\n", TVM_PROVED,
     LINE "if block.x != 3\nstore-global z[0], %w\nend\n", TVM_NOT_PROVED},
    {"the first block of a pair", "cdiv(m, 16) * 2",
     TILE "if block.x % 2 == 0\nstore-global y[block.x / 2 * 16, 0], %v\nend\n", TVM_PROVED,
     TILE "if block.x % 2 == 0\nelse\nif block.x == 5\nend\nend\nstore-global y[block.x / 2 * 16, 0], %v\n",
     TVM_NOT_PROVED},
    {"an atomic operation", "4", LINE "atomic add z[0], %w\n", TVM_PROVED, LINE "store-global z[0], %w\n",
     TVM_REFUTED},
    {"one of a block's scope", "4", LINE "atomic add z[block.x * 128], %w, scope cta\n", TVM_PROVED,
     LINE "atomic add z[0], %w, scope cta\n", TVM_NOT_PROVED},
    {"a read beside atomic operations", "4",
     LINE "atomic add z[0], %w\n%r = load-global x[0], spatial(128)\n", TVM_PROVED,
     LINE "atomic add z[0], %w\n%r = load-global z[0], spatial(128)\n", TVM_NOT_PROVED},
    {"a tensor that is read and written", "cdiv(n, 128)",
     "%r = load-global z[block.x * 128], spatial(128)\nstore-global z[block.x * 128], %r\n", TVM_PROVED,
     "%r = load-global z[block.x * 128 + 1], spatial(128)\nstore-global z[block.x * 128], %r\n",
     TVM_NOT_PROVED},
    {"another thread's element", "1",
     LINE
     "store-global z[0], %w\nsync\n%r = load-global z[0], flatten(column_spatial(4, 32))\nstore-global z[512], %r\n",
     TVM_PROVED,
     LINE
     "store-global z[0], %w\n%r = load-global z[0], flatten(column_spatial(4, 32))\nstore-global z[512], %r\n",
     TVM_NOT_PROVED},
    {"turns that go on", "1", LINE "for %i = 0 to 8\nstore-global z[%i * 128], %w\nend\n", TVM_PROVED,
     LINE "for %i = 0 to 8\nstore-global z[%i * 64], %w\nend\n", TVM_NOT_PROVED},
    {"turns with a sync", "1", LINE "for %i = 0 to 8\nstore-global z[%i * 64], %w\nsync\nend\n", TVM_PROVED,
     LINE "for %i = 0 to 8\nstore-global z[%i * 64], %w\nif %i == 3\nsync\nend\nend\n", TVM_NOT_PROVED},
    {"a view", "cdiv(m, 16)",
     TILE "%u = view-global y[block.x * 16, 0], [16, n]\nstore-global %u[0, 0], %v\n", TVM_PROVED,
     TILE "%u = view-global y[0, 0], [16, n]\nstore-global %u[0, 0], %v\n", TVM_NOT_PROVED},
    {"a semaphore", "4",
     "%s = alloc-global i32[1], clean\n" LINE
     "lock-semaphore %s[0], block.x\nstore-global z[0], %w\nrelease-semaphore %s[0], block.x + 1\n",
     TVM_PROVED_IF,
     "%s = alloc-global i32[1], clean\n" LINE "store-global z[0], %w\nrelease-semaphore %s[0], block.x + 1\n",
     TVM_REFUTED},
    {"what is put once", "4",
     "%s = alloc-global f32[grid.x, 128], clean\n" LINE "put-global %s[block.x], %w\n", TVM_PROVED,
     "%s = alloc-global f32[grid.x, 128], clean\n" LINE "put-global %s[block.x / 2], %w\n", TVM_NOT_PROVED},
    {"elements that are passed on", "4",
     "%s = alloc-global f32[grid.x, 128], clean\n" LINE
     "put-global %s[block.x], %w\nif block.x > 0\n%r = take-global %s[block.x - 1], spatial(128)\nend\n",
     TVM_PROVED,
     LINE
     "put-global z[block.x * 128], %w\nif block.x > 0\n%r = take-global z[block.x * 128 - 128], spatial(128)\nend\n",
     TVM_NOT_PROVED},
    {"a table's places", "4",
     TILE "%p = load-scalar table[block.x], range 0 to 8\nstore-global y[%p * 16, 0], %v\n", TVM_PROVED_IF,
     TILE "%p = load-scalar table[block.x / 2], range 0 to 8\nstore-global y[%p * 16, 0], %v\n",
     TVM_NOT_PROVED},
    {"an index that does not wrap", "cdiv(m, 16)", TILE "store-global y[block.x * 16, 0], %v\n", TVM_PROVED,
     TILE "store-global y[block.x * (1 << 28), 0], %v\n", TVM_PROVED_IF},
    {"a band of tiles", "cdiv(m, 16) * cdiv(n, 32)",
     BAND TILE "store-global y[(%first + block.x % %band % %high) * 16, block.x % %band / %high * 32], %v\n",
     TVM_PROVED,
     BAND TILE "store-global y[(%first + block.x % %band % 4) * 16, block.x % %band / %high * 32], %v\n",
     TVM_NOT_PROVED},
    {"teams of a role", "1",
     "role use warps 0 to 4 by 2\n%w = alloc-register f32[64], layout spatial(64)\nstore-global z[role.index * 64], "
     "%w\nend\n",
     TVM_PROVED,
     "role use warps 0 to 4 by 2\n%w = alloc-register f32[64], layout spatial(64)\nstore-global z[role.index * 32], "
     "%w\nend\n",
     TVM_NOT_PROVED},
    {"two roles", "1",
     "role a warps 0 to 2\nstore-global z[0], alloc-register(f32[64], spatial(64))\nend\nrole b warps 2 to 4\n"
     "store-global z[64], alloc-register(f32[64], spatial(64))\nend\n",
     TVM_PROVED,
     "role a warps 0 to 2\nstore-global z[0], alloc-register(f32[64], spatial(64))\nend\nrole b warps 2 to 4\n"
     "store-global z[63], alloc-register(f32[64], spatial(64))\nend\n",
     TVM_NOT_PROVED},
};

static bool launch_small(const void *closure, const tvm_ir_program *program, uint32_t kernel,
                         char **reports) {
    const int64_t *sizes = closure;
    prove_launch l = {.program = program, .kernel = kernel};
    l.scalars[0].i = sizes[0];
    l.scalars[1].i = sizes[1];
    return prove_run(&l, reports);
}

static bool says(const small_kernel *of, const char *body, tvm_proof_verdict verdict) {
    static const int64_t sizes[][2] = {{64, 96}, {100, 33}, {16, 1024}};
    tvm_text text = {0};
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_proof proof;
    tvm_text_add(
        &text,
        ".vasm 7\n.kernel k(m: i32, n: i32, x: global f32[n], y: global f32[m, n], z: global f32[n],\n"
        "table: global i32[m])\n.warps 4\n.grid %s\n.assume m >= 0, n >= 0\n%s.end\n",
        of->grid, body);
    if (tvm_assemble_text(tvm_text_string(&text), text.size, "t.vasm", NULL, &program, &diags) != TVM_OK) {
        fprintf(stderr, "%s: %s\n%s", of->what, diags.count ? diags.items[0].message : "",
                tvm_text_string(&text));
        abort();
    }
    bool good = true;
    unsigned confirmed = races;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        good = agrees(program, 0, launch_small, sizes[i], &proof) && good;
    if (verdict == TVM_REFUTED) good = good && races > confirmed;
    if (proof.global.verdict != verdict)
        fprintf(stderr, "%s: %d, not %d: %s\n%s", of->what, (int)proof.global.verdict, (int)verdict,
                proof.global.text, body);
    good = good && proof.global.verdict == verdict;
    good = mutate_all(program, 0, 4, launch_small, sizes[0]) && good;
    tvm_text_free(&text);
    tvm_diags_free(&diags);
    tvm_ir_program_free(program);
    return good;
}

/* ---- shipped programs ---- */

static void fill_shipped(const void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes,
                         size_t elements) {
    const prove_launch *l = closure;
    const size_of *size = l->closure;
    const tvm_dtype type = kernel->slots[p].dtype;
    tvm_param_info info = {.name = tvm_string(l->program, kernel->slots[p].name),
                           .type = type.kind == TVM_KIND_INT && type.bits == 32 ? "i32" : ""};
    shipped_sequences(&info, size, (int32_t *)(void *)bytes, elements, false);
}

static bool launch_shipped(const void *closure, const tvm_ir_program *program, uint32_t kernel,
                           char **reports) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    (void)closure;
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

/* `proved`: of its kernels, and `conditional`: if what is said holds; at least. */
typedef struct shipped_program {
    const char *name;
    unsigned kernels, proved, conditional, mutated;
} shipped_program;

static const shipped_program programs[] = {
    {"accept.vasm", 1, 0, 0, 0},
    {"all_reduce.vasm", 3, 0, 0, 0},
    {"argmax.vasm", 5, 5, 0, 0},
    {"attention.vasm", 24, 0, 0, 0},
    {"attention_backward.vasm", 20, 0, 0, 0},
    {"attention_decode.vasm", 9, 0, 9, 0},
    {"attention_merge.vasm", 6, 6, 0, 0},
    {"combine.vasm", 2, 2, 0, 1},
    {"bucket.vasm", 9, 0, 0, 0},
    {"causal_conv.vasm", 2, 0, 0, 0},
    {"column_sums.vasm", 2, 2, 0, 0},
    {"cross_entropy.vasm", 4, 4, 0, 0},
    {"cumsum.vasm", 5, 5, 0, 0},
    {"dequantize_lowbit.vasm", 1, 1, 0, 1},
    {"embedding.vasm", 2, 2, 0, 1},
    {"gated_delta.vasm", 8, 0, 0, 0},
    {"embedding_backward.vasm", 2, 2, 0, 1},
    {"histogram.vasm", 4, 4, 0, 1},
    {"index_scores.vasm", 1, 1, 0, 0},
    {"kv_append.vasm", 2, 0, 1, 0},
    {"layer_norm.vasm", 11, 11, 0, 0},
    {"layer_norm_backward.vasm", 7, 7, 0, 0},
    {"matmul.vasm", 14, 14, 0, 0},
    {"matmul_lowbit_a8.vasm", 10, 10, 0, 0},
    {"matmul_lowbit_u4.vasm", 64, 36, 0, 0},
    {"matmul_scaled.vasm", 8, 8, 0, 0},
    {"matmul_simple.vasm", 2, 2, 0, 1},
    {"matmul_ternary.vasm", 6, 6, 0, 0},
    {"matmul_u3.vasm", 2, 2, 0, 0},
    {"mla_append.vasm", 1, 0, 0, 0},
    {"mla_decode.vasm", 3, 0, 0, 0},
    {"probabilities.vasm", 2, 2, 0, 0},
    {"qkv_lowbit.vasm", 7, 1, 0, 0},
    {"quantize_rows.vasm", 18, 18, 0, 0},
    {"reduce.vasm", 4, 4, 0, 1},
    {"rms_norm.vasm", 18, 18, 0, 0},
    {"rms_norm_backward.vasm", 7, 7, 0, 0},
    {"rope.vasm", 5, 5, 0, 1},
    {"route.vasm", 9, 0, 0, 0},
    {"sample.vasm", 2, 2, 0, 0},
    {"scatter_add.vasm", 2, 2, 0, 1},
    {"softmax.vasm", 12, 12, 0, 0},
    {"state_space.vasm", 3, 0, 0, 0},
    {"swiglu.vasm", 3, 3, 0, 1},
    {"swiglu_backward.vasm", 2, 0, 0, 0},
    {"topk.vasm", 3, 2, 0, 0},
    {"topk_set.vasm", 1, 0, 0, 0},
    {"transpose.vasm", 2, 2, 0, 1},
    {"vector_add.vasm", 1, 1, 0, 1},
    {"widen_lowbit.vasm", 2, 2, 0, 1},
};

/* Counts of all: kernels, proved, and proved on conditions. */
enum { KERNELS, PROVED, CONDITIONAL, FIGURES };

static void run_program(const char *folder, const shipped_program *of, unsigned figures[FIGURES]) {
    char path[4200];
    tvm_ir_program *program = NULL;
    uint8_t *text = NULL;
    size_t size = 0;
    unsigned proved = 0, conditional = 0;
    const tvm_assembler_options options = {.include_dirs = &folder, .include_dir_count = 1};
    snprintf(path, sizeof path, "%s/%s", folder, of->name);
    bool good = tvm_file_read(path, 1 << 20, &text, &size, NULL) == TVM_OK &&
                tvm_assemble_text((const char *)text, size, path, &options, &program, NULL) == TVM_OK;
    for (uint32_t k = 0; good && k < program->kernel_count; k++) {
        tvm_proof proof;
        judge(program, k, &proof);
        proved += proof.global.verdict == TVM_PROVED;
        conditional += proof.global.verdict == TVM_PROVED_IF;
        good = proof.global.verdict != TVM_REFUTED;
        unsigned most = getenv("TVM_TEST_ALL") ? 1 + 2 * of->mutated : of->mutated;
        if (good && k < most) good = mutate_all(program, k, 2, launch_shipped, NULL);
    }
    bool enough = good && program->kernel_count == of->kernels && proved >= of->proved &&
                  conditional >= of->conditional;
    if (!enough) fprintf(stderr, "%s: %u proved, %u conditionally\n", of->name, proved, conditional);
    figures[KERNELS] += of->kernels;
    figures[PROVED] += proved;
    figures[CONDITIONAL] += conditional;
    free(text);
    tvm_ir_program_free(program);
    count(enough, path);
}

static void run_programs(const char *top, const char *folder) {
    unsigned figures[FIGURES] = {0};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        run_program(folder, &programs[i], figures);
    count(manual_says(top, "shipped programs, global memory", figures, FIGURES), "the manual's figures");
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
    for (int i = 1; i < argc; i++) run_case(argv[i], right);
    if (argc == 1) {
        for (size_t i = 0; i < sizeof small_kernels / sizeof *small_kernels; i++) {
            const small_kernel *of = &small_kernels[i];
            count(says(of, of->body, of->verdict), of->what);
            count(says(of, of->broken, of->refused), of->what);
        }
        run_programs(top, folder);
        run_cases(wrong);
        run_cases(right);
    }
    printf("%u mutants, %u of them proved; %u passed, %u failed\n", mutants, accepted, passed, bad);
    return bad == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
