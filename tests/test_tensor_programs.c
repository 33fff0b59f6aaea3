/* Random kernels with products in tensor memory: types, extents, scales, operands that lie either way or in
 * tensor memory, or that come spread over bytes, sums in several tensors, added to, changed by threads and
 * added to again, loaded in layouts of every kind. The interpreter's results are those of the code for
 * sm_100a on the tests' PTX machine, bit for bit. And a ring, in many orders of the warps.
 *
 *   test_tensor_programs [PROGRAMS [FIRST_SEED]]    40 programs */
#include "assembler_kit.h"
#include "compare_kit.h"
#include "ptx_launch_kit.h"
#include "suite_kit.h"
#include "text.h"
#include "translate_kit.h"

static uint64_t programs = 40, first_seed = 1;

typedef struct kind {
    const char *a, *b, *sum;
    unsigned bits;           /* of an element of a and b in shared memory */
    bool turns;              /* may lie with k not last */
    const char *scale;       /* type of the scales; NULL: there are none */
    unsigned block;          /* elements that have one */
    const char *of_a, *of_b; /* type_a and type_b; NULL: the tile has its own */
} kind;
static const kind kinds[] = {{"f16", "f16", "f32", 16, true, NULL, 0, NULL, NULL},
                             {"bf16", "bf16", "f32", 16, true, NULL, 0, NULL, NULL},
                             {"tf32", "tf32", "f32", 32, false, NULL, 0, NULL, NULL},
                             {"f8_e4m3", "f8_e5m2", "f32", 8, true, NULL, 0, NULL, NULL},
                             {"f8_e5m2", "f8_e5m2", "f32", 8, true, NULL, 0, NULL, NULL},
                             {"i8", "u8", "i32", 8, true, NULL, 0, NULL, NULL},
                             {"u8", "i8", "i32", 8, true, NULL, 0, NULL, NULL},
                             {"f8_e5m2", "f8_e4m3", "f32", 8, true, "e8m0", 32, NULL, NULL},
                             {"f4_e2m1", "f4_e2m1", "f32", 4, false, "e8m0", 32, NULL, NULL},
                             {"f4_e2m1", "f4_e2m1", "f32", 4, false, "f8_e4m3", 16, NULL, NULL},
                             {"u8", "f8_e4m3", "f32", 8, false, NULL, 0, "f6_e2m3", NULL},
                             {"f8_e4m3", "u8", "f32", 8, false, "e8m0", 32, NULL, "f4_e2m1"},
                             {"u8", "u8", "f32", 8, false, NULL, 0, "f4_e2m1", "f6_e3m2"},
                             {"u8", "u8", "f32", 8, false, "e8m0", 32, "f6_e3m2", "f6_e2m3"},
                             {"u8", "u8", "f32", 8, false, "e8m0", 32, "f4_e2m1", "f4_e2m1"}};
enum { KINDS = sizeof kinds / sizeof *kinds, LINES = 128 };

typedef struct maker {
    uint64_t state;
    tvm_text text;
    const kind *kind;
    unsigned warps, columns, k, sums;
    bool turn_a, turn_b, a_in_tensor;
    bool spread_a, spread_b; /* copy-bulk brings them, of type of_a and of_b */
    unsigned lines;          /* of the sums, of a block */
    unsigned blocks;         /* 2: a pair, each with its lines of a, and half of the columns of b */
    unsigned a_lines;        /* of a block: as many as of the sums, or in a pair 64, whose sums are folded */
    unsigned own;            /* columns of b that a block has */
} maker;

static unsigned below(maker *m, unsigned n) {
    m->state = m->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(m->state >> 33) % n;
}

static bool one_in(maker *m, unsigned n) {
    return below(m, n) == 0;
}

static const char *pair(const maker *m) {
    return m->blocks == 2 ? ", pair" : "";
}

/* Threads see what others have done; of a pair, in both blocks. */
static void put_sync(maker *m) {
    tvm_text_add(&m->text, m->blocks == 2 ? "    sync-cluster\n" : "    sync\n");
}

/* A layout of the team's threads for [lines, columns], as the instructions of tensor memory take them. */
static void put_layout(maker *m, unsigned columns, bool fragments) {
    if (m->warps == 8) tvm_text_add(&m->text, "spatial(1, 2).");
    unsigned each = columns / (m->warps / 4);
    if (fragments || m->lines < LINES)
        tvm_text_add(&m->text, "spatial(4, 1).local(%u, %u).mma.m16n8k16.C", m->lines / 64, each / 8);
    else
        tvm_text_add(&m->text, "spatial(128, 1).local(1, %u)", each);
}

/* Bytes of a lane that have the scales of so many rows and this much of k, in whole copies of 16. */
static unsigned scale_bytes(const maker *m, unsigned rows, unsigned k) {
    unsigned words = (k / m->kind->block + 3) / 4;
    return words * ((rows + 31) / 32) * 4;
}

static unsigned whole(unsigned bytes) {
    return (bytes + 15) / 16 * 16;
}

/* Products of one sum: all of k, or two parts of it, which begin in blocks of 128 bytes where there are more.
 */
static void put_products(maker *m, unsigned sum, bool adds) {
    const kind *of = m->kind;
    unsigned block = 128 * 8 / of->bits, step = m->k > block ? block : 32 * 8 / of->bits,
             parts = of->scale && m->k <= block ? 1 : m->k / step,
             cut = parts > 1 ? below(m, parts) * step : 0;
    const unsigned ends[3] = {0, cut, m->k};
    for (unsigned i = cut ? 0 : 1; i < 2; i++) {
        unsigned from = cut ? ends[i] : 0, count = ends[i + 1] - from;
        tvm_text_add(&m->text, "    mma-tensor %%d[%u], ", sum);
        if (m->a_in_tensor)
            tvm_text_add(&m->text, "%%ta[0, %u]", from);
        else
            tvm_text_add(&m->text, m->turn_a ? "%%sa[%u, 0]" : "%%sa[0, %u]", from);
        tvm_text_add(&m->text, m->turn_b ? ", %%sb[0, %u]" : ", %%sb[%u, 0]", from);
        tvm_text_add(&m->text, "%s%s, k %u%s", m->turn_a ? ", transpose_a" : "",
                     m->turn_b ? ", transpose_b" : "", count,
                     adds || (cut && i == 1) ? "" : ", accumulate false");
        if (of->of_a) tvm_text_add(&m->text, ", type_a %s", of->of_a);
        if (of->of_b) tvm_text_add(&m->text, ", type_b %s", of->of_b);
        if (of->scale)
            tvm_text_add(&m->text, ", scale_a %%ra[0, %u], scale_b %%rb[0, %u]", scale_bytes(m, LINES, from),
                         scale_bytes(m, m->columns, from));
        tvm_text_add(&m->text, "%s\n", pair(m));
    }
}

/* Scales come by copies to all quarters of the lanes, or by threads. */
static void put_scales(maker *m, char name, unsigned rows) {
    unsigned bytes = whole(scale_bytes(m, rows, m->k));
    tvm_text_add(&m->text, "    %%r%c = alloc-tensor %s[%u, %u]\n", name, m->kind->scale, LINES, bytes);
    if (one_in(m, 3)) {
        tvm_text_add(&m->text, "    store-tensor %%r%c, load-global(p%c, ", name, name);
        put_layout(m, bytes, false);
        tvm_text_add(&m->text, ")\n");
        put_sync(m);
    } else {
        /* In rows that a matrix descriptor says, or of 16 bytes. */
        unsigned row = bytes & (bytes - 1) || one_in(m, 2) ? 16 : bytes;
        tvm_text_add(&m->text, "    %%q%c = alloc-shared %s[%u, 32, %u]\n", name, m->kind->scale, bytes / row,
                     row);
        for (unsigned i = 0; i < bytes / row; i++)
            tvm_text_add(&m->text,
                         "    store-shared %%q%c[%u, 0, 0], load-global(p%c[0, %u], auto(32, %u))\n", name, i,
                         name, i * row, row);
        put_sync(m);
        for (unsigned i = 0; i < bytes / row; i++)
            tvm_text_add(&m->text, "    copy-tensor %%r%c[0, %u], %%q%c[%u], [32, %u]%s\n", name, i * row,
                         name, i, row, pair(m));
    }
}

static void put_commit(maker *m) {
    tvm_text_add(&m->text, "    commit-tensor %%done%s\n    wait-barrier %%done\n", pair(m));
}

/* The sum in registers, whole or in parts of its columns; `more` is added, and it is stored back. */
static void put_change(maker *m, unsigned sum) {
    unsigned least = 8 * m->warps / 4,
             part = m->columns % (2 * least) == 0 && one_in(m, 2) ? m->columns / 2 : m->columns;
    bool fragments = one_in(m, 2);
    if (part < m->columns) tvm_text_add(&m->text, "    for %%c%u = 0 to %u step %u\n", sum, m->columns, part);
    const char *at = part < m->columns ? ", 0, %c" : "";
    tvm_text_add(&m->text, "    %%v%u = load-tensor %%d[%u%s", sum, sum, at);
    if (*at) tvm_text_add(&m->text, "%u", sum);
    tvm_text_add(&m->text, "], ");
    put_layout(m, part, fragments);
    tvm_text_add(&m->text, "\n    store-tensor %%d[%u%s", sum, at);
    if (*at) tvm_text_add(&m->text, "%u", sum);
    tvm_text_add(&m->text, "], %%v%u + 1\n", sum);
    if (*at) tvm_text_add(&m->text, "    end\n");
}

static void put_result(maker *m, unsigned sum) {
    tvm_text_add(&m->text, "    store-global y[block.x * %u + %u, 0], load-tensor(%%d[%u], ",
                 m->sums * m->lines, sum * m->lines, sum);
    if (one_in(m, 3))
        tvm_text_add(&m->text, "[%u, %u]", m->lines, m->columns);
    else
        put_layout(m, m->columns, one_in(m, 2));
    tvm_text_add(&m->text, ")\n");
}

/* One operand of a block from global to shared memory. */
static void put_load(maker *m, char name, bool spread, unsigned rows, unsigned columns) {
    if (spread)
        tvm_text_add(&m->text,
                     "    copy-bulk %%s%c, %c[block.x, 0, 0], barrier %%come\n    arrive-barrier %%come\n"
                     "    wait-barrier %%come\n",
                     name, name);
    else
        tvm_text_add(&m->text, "    store-shared %%s%c, load-global(%c[block.x, 0, 0], auto(%u, %u))\n", name,
                     name, rows, columns);
}

static void put_operands(maker *m) {
    unsigned ra = m->turn_a ? m->k : m->a_lines, ca = m->turn_a ? m->a_lines : m->k, own = m->own,
             rb = m->turn_b ? own : m->k, cb = m->turn_b ? m->k : own;
    char scales[96] = "";
    if (m->kind->scale)
        snprintf(scales, sizeof scales, ", pa: global %s[%u, %u], pb: global %s[%u, %u]", m->kind->scale,
                 LINES, whole(scale_bytes(m, LINES, m->k)), m->kind->scale, LINES,
                 whole(scale_bytes(m, m->columns, m->k)));
    tvm_text_add(
        &m->text,
        ".vasm 7\n.kernel k(a: global %s[%u, %u, %u], b: global %s[%u, %u, %u], y: global %s[%u, %u]%s)\n"
        ".warps %u\n.cluster %u\n.grid %u\n    %%done = alloc-barrier [1]\n    %%come = alloc-barrier [1]\n"
        "    %%sa = alloc-shared %s[%u, %u]\n    %%sb = alloc-shared %s[%u, %u]\n",
        m->spread_a ? m->kind->of_a : m->kind->a, m->blocks, ra, ca, m->spread_b ? m->kind->of_b : m->kind->b,
        m->blocks, rb, cb, m->kind->sum, m->blocks * m->sums * m->lines, m->columns, scales, m->warps,
        m->blocks, m->blocks, m->kind->a, ra, ca, m->kind->b, rb, cb);
    put_load(m, 'a', m->spread_a, ra, ca);
    put_load(m, 'b', m->spread_b, rb, cb);
    tvm_text_add(&m->text, "    %%d = alloc-tensor %s[%u, %u, %u]\n", m->kind->sum, m->sums, m->lines,
                 m->columns);
    if (m->a_in_tensor)
        tvm_text_add(&m->text, "    %%ta = alloc-tensor %s[%u, %u]\n", m->kind->a, m->lines, m->k);
    put_sync(m);
    if (m->a_in_tensor && m->lines == LINES && one_in(m, 2)) {
        tvm_text_add(&m->text, "    copy-tensor %%ta, %%sa, [%u, %u]%s\n", LINES, m->k, pair(m));
    } else if (m->a_in_tensor) {
        tvm_text_add(&m->text, "    store-tensor %%ta, load-shared(%%sa, ");
        put_layout(m, m->k, false);
        tvm_text_add(&m->text, ")\n");
        put_sync(m);
    }
    if (m->kind->scale) put_scales(m, 'a', LINES), put_scales(m, 'b', m->columns);
}

/* malloc'ed. */
static char *make_text(maker *m) {
    unsigned step = 32 * 8 / m->kind->bits;
    m->warps = one_in(m, 3) ? 8 : 4;
    m->columns = 16 * (1 + below(m, 8));
    m->k = step << below(m, 4);
    m->turn_a = m->kind->turns && one_in(m, 3);
    m->turn_b = !m->kind->turns || !one_in(m, 3);
    if (!m->turn_b) m->columns = 16U << below(m, 4); /* whole swizzled blocks */
    m->blocks = one_in(m, 3) ? 2 : 1;
    if (m->blocks == 2) m->columns = m->turn_b ? (m->columns + 16) / 32 * 32 + 32 : 2 * m->columns;
    m->sums = 1 + below(m, m->columns > 128 ? 1 : m->columns > 64 ? 2 : 3); /* of 512 columns */
    m->a_in_tensor = !m->turn_a && m->kind->bits >= 8 && !m->kind->of_a && one_in(m, 3);
    m->lines = !m->kind->scale && m->blocks == 1 && one_in(m, 3) ? LINES / 2 : LINES;
    if (m->lines < LINES && m->kind->bits == 8) m->a_in_tensor = false;          /* in no fragments */
    if (m->lines < LINES && m->a_in_tensor && m->k < 2 * m->warps) m->warps = 4; /* of 8 columns each */
    m->a_lines = m->lines, m->own = m->columns / m->blocks;
    if (m->blocks == 2 && !m->kind->scale && !m->a_in_tensor && one_in(m, 2)) {
        m->a_lines = LINES / 2;
        m->columns /= 2;
    }
    m->spread_a = m->kind->of_a && m->k % 128 == 0 && !one_in(m, 3);
    m->spread_b = m->kind->of_b && m->k % 128 == 0 && !one_in(m, 3);
    put_operands(m);
    for (unsigned s = 0; s < m->sums; s++) put_products(m, s, false);
    put_commit(m);
    if (one_in(m, 2)) {
        for (unsigned s = 0; s < m->sums; s++)
            if (one_in(m, 2)) put_change(m, s);
        put_sync(m);
        for (unsigned s = m->sums; s-- > 0;)
            if (one_in(m, 2)) put_products(m, s, true);
        put_commit(m);
    }
    for (unsigned s = 0; s < m->sums; s++) put_result(m, s);
    tvm_text_add(&m->text, ".end\n");
    char *text = strdup(tvm_text_string(&m->text));
    ck_assert_ptr_nonnull(text);
    tvm_text_free(&m->text);
    return text;
}

/* Numbers of few digits: integers to 15, floats to 4 in steps of a quarter; of what holds others any bytes.
 */
static uint8_t *operand(maker *m, const char *name, const char *holds, size_t count) {
    tvm_dtype type;
    ck_assert(tvm_dtype_parse(name, strlen(name), &type));
    enum { LINE = 64 }; /* as devices give memory */
    size_t room = (count * type.bits / 8 / LINE + 1) * LINE;
    uint8_t *bytes = aligned_alloc(LINE, room);
    ck_assert_ptr_nonnull(bytes);
    memset(bytes, 0, room);
    for (size_t i = 0; i < count; i++) {
        double value =
            type.kind == TVM_KIND_FLOAT ? ((double)below(m, 33) - 16) / 4 : below(m, holds ? 256 : 16);
        if (type.kind == TVM_KIND_INT) value -= 8;
        tvm_bits_set(bytes, i * type.bits, type.bits, tvm_encode(type, value));
    }
    return bytes;
}

/* Scales from a quarter to 4, the same in all quarters of the lanes. */
static uint8_t *scales(maker *m, unsigned rows) {
    if (!m->kind->scale) return NULL;
    unsigned lane = whole(scale_bytes(m, rows, m->k));
    uint8_t *bytes = calloc(LINES, lane);
    ck_assert_ptr_nonnull(bytes);
    bool e8m0 = strcmp(m->kind->scale, "e8m0") == 0;
    for (unsigned i = 0; i < 32 * lane; i++)
        bytes[i] = (uint8_t)(e8m0 ? 125 + below(m, 5) : 0x28 + below(m, 33));
    for (unsigned q = 1; q < 4; q++) memcpy(bytes + (size_t)q * 32 * lane, bytes, (size_t)32 * lane);
    return bytes;
}

/* The code, of all blocks; the arguments are tensors; order: of the warps (ptx_order.h). */
static void run_code(const tvm_module *module, const tvm_ir_program *program, const tvm_interp_arg *args,
                     unsigned count, const uint32_t grid[3], uint64_t order) {
    enum { STEPS = 200 * 1000 };
    uint64_t values[5] = {0};
    tvm_launch_env env = {.grid = {grid[0], grid[1], grid[2]}};
    for (unsigned i = 0; i < count; i++) values[i] = (uint64_t)(uintptr_t)args[i].data;
    ptx_machine machine = ptx_load(module->ptx, "k", module->kernels[0].abi.threads);
    machine.order = order;
    if (order) machine.steps_most = STEPS;
    ptx_launch(&machine, module, program, program->kernels, &env, values, values);
    ck_assert_msg(!machine.fault[0] && !machine.trapped, "%s", machine.fault);
    ptx_free(&machine);
}

static void check(maker *m, const char *text, const tvm_ir_program *program) {
    size_t results = (size_t)m->blocks * m->sums * m->lines * m->columns, bytes = 4 * results;
    const kind *of = m->kind;
    size_t count_b = (size_t)m->blocks * m->own * m->k;
    uint8_t *a = m->spread_a ? operand(m, of->of_a, NULL, (size_t)m->blocks * m->a_lines * m->k)
                             : operand(m, of->a, of->of_a, (size_t)m->blocks * m->a_lines * m->k),
            *b = m->spread_b ? operand(m, of->of_b, NULL, count_b) : operand(m, of->b, of->of_b, count_b),
            *want = calloc(1, bytes), *found = calloc(1, bytes), *pa = scales(m, LINES),
            *pb = scales(m, m->columns);
    ck_assert(want && found);
    const uint32_t grid[3] = {m->blocks, 1, 1};
    tvm_interp_arg args[5] = {{.data = a}, {.data = b}, {.data = want}, {.data = pa}, {.data = pb}};
    run_interpreter(program, "k", args, grid);
    tvm_module *module = translate(program, "sm_100a");
    args[2].data = found;
    run_code(module, program, args, m->kind->scale ? 5 : 3, grid, 0);
    if (memcmp(want, found, bytes) != 0) fprintf(stderr, "%s", text);
    compare_tensors("tensor memory", (tvm_dtype){TVM_KIND_UINT, 32, 0, 0}, found, want, results);
    tvm_module_free(module);
    free(a), free(b), free(want), free(found), free(pa), free(pb);
}

START_TEST(the_code_does_what_the_interpreter_does) {
    uint64_t made = 0;
    for (uint64_t seed = first_seed; seed < first_seed + programs; seed++) {
        maker m = {.state = seed * UINT64_C(0x9e3779b97f4a7c15), .kind = &kinds[seed % KINDS]};
        tvm_diags diags = {0};
        tvm_ir_program *program = NULL;
        char *text = make_text(&m);
        if (tvm_assemble_text(text, strlen(text), "tensor.vasm", NULL, &program, &diags) != TVM_OK) {
            fprintf(stderr, "%s", text);
            tvm_diags_print(&diags, stderr, "tensor", false);
        }
        ck_assert_ptr_nonnull(program);
        check(&m, text, program);
        made++;
        tvm_ir_program_free(program);
        tvm_diags_free(&diags);
        free(text);
    }
    ck_assert_uint_eq(made, programs);
}
END_TEST

/* A ring of two stages whose products one thread starts, and the team's other warp waits there, too, although
 * nothing depends on it: it would wait for ever, were the stage filled twice more before it comes. */
enum { RING_ROWS = 128, RING_COLUMNS = 32, RING_K = 512, RING_ORDERS = 20 };
static const char ring[] =
    ".vasm 7\n"
    ".kernel k(a: global f16[128, 512], b: global f16[32, 512], y: global f32[128, 32])\n"
    ".warps 7\n"
    ".grid 1\n"
    "    %sa = alloc-shared f16[2, 128, 32]\n"
    "    %sb = alloc-shared f16[2, 32, 32]\n"
    "    %full = alloc-barrier [2]\n"
    "    %empty = alloc-barrier [2], open\n"
    "    %done = alloc-barrier [1]\n"
    "    %d = alloc-tensor f32[128, 32]\n"
    "    role producer warps 4 to 5\n"
    "        for %k = 0 to 512 step 32\n"
    "            wait-barrier %empty[%k / 32 % 2]\n"
    "            copy-bulk %sa[%k / 32 % 2], a[0, %k], barrier %full[%k / 32 % 2]\n"
    "            copy-bulk %sb[%k / 32 % 2], b[0, %k], barrier %full[%k / 32 % 2]\n"
    "            arrive-barrier %full[%k / 32 % 2]\n"
    "        end\n"
    "    end\n"
    "    role products warps 5 to 7\n"
    "        for %k = 0 to 512 step 32\n"
    "            wait-barrier %full[%k / 32 % 2]\n"
    "            mma-tensor %d, %sa[%k / 32 % 2], %sb[%k / 32 % 2], transpose_b, accumulate %k > 0\n"
    "            commit-tensor %empty[%k / 32 % 2]\n"
    "        end\n"
    "        commit-tensor %done[0]\n"
    "    end\n"
    "    role epilogue warps 0 to 4\n"
    "        wait-barrier %done[0]\n"
    "        store-global y[0, 0], load-tensor(%d, [128, 32])\n"
    "    end\n"
    ".end\n";

/* Nothing but the commit-tensor holds the even block's team: its products need nothing of the odd block's,
 * which would wait for ever, were there two ends of products before it waits for the first one. */
static const char pair_ring[] =
    ".vasm 7\n"
    ".kernel k(a: global f16[256, 512], b: global f16[32, 512], y: global f32[256, 32])\n"
    ".warps 4\n"
    ".cluster 2\n"
    ".grid 2\n"
    "    %sa = alloc-shared f16[128, 512]\n"
    "    %sb = alloc-shared f16[16, 512]\n"
    "    %done = alloc-barrier [1]\n"
    "    %d = alloc-tensor f32[128, 32]\n"
    "    for %k = 0 to 512 step 64\n"
    "        store-shared %sa[0, %k], load-global(a[block.x * 128, %k], auto(128, 64))\n"
    "        store-shared %sb[0, %k], load-global(b[block.x * 16, %k], auto(16, 64))\n"
    "    end\n"
    "    sync-cluster\n"
    "    for %k = 0 to 512 step 64\n"
    "        mma-tensor %d, %sa[0, %k], %sb[0, %k], transpose_b, k 64, accumulate %k > 0, pair\n"
    "        commit-tensor %done[0], pair\n"
    "        wait-barrier %done[0]\n"
    "    end\n"
    "    store-global y[block.x * 128, 0], load-tensor(%d, [128, 32])\n"
    ".end\n";

static void run_ring(const char *text, uint32_t blocks) {
    static float want[2 * RING_ROWS * RING_COLUMNS], found[2 * RING_ROWS * RING_COLUMNS];
    const uint32_t grid[3] = {blocks, 1, 1};
    const size_t bytes = blocks * sizeof want / 2;
    maker m = {.state = 1, .kind = &kinds[0]};
    tvm_ir_program *program = assemble(text);
    uint8_t *a = operand(&m, "f16", NULL, (size_t)blocks * RING_ROWS * RING_K),
            *b = operand(&m, "f16", NULL, (size_t)RING_COLUMNS * RING_K);
    tvm_interp_arg args[3] = {{.data = a}, {.data = b}, {.data = want}};
    run_interpreter(program, "k", args, grid);
    tvm_module *module = translate(program, "sm_100a");
    args[2].data = found;
    for (uint64_t order = 1; order <= RING_ORDERS; order++) {
        memset(found, 0x7f, bytes);
        run_code(module, program, args, 3, grid, order);
        ck_assert_mem_eq(found, want, bytes);
    }
    tvm_module_free(module);
    tvm_ir_program_free(program);
    free(a), free(b);
}

START_TEST(warps_of_a_team_fall_behind_no_turn) {
    run_ring(ring, 1);
}
END_TEST

START_TEST(the_odd_block_falls_behind_no_turn) {
    run_ring(pair_ring, 2);
}
END_TEST

int main(int argc, char **argv) {
    if (argc > 1) programs = strtoull(argv[1], NULL, 0);
    if (argc > 2) first_seed = strtoull(argv[2], NULL, 0);
    Suite *suite = suite_create("tensor_programs");
    TCase *tests = suite_case(suite, "random");
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, the_code_does_what_the_interpreter_does);
    tcase_add_test(tests, warps_of_a_team_fall_behind_no_turn);
    tcase_add_test(tests, the_odd_block_falls_behind_no_turn);
    return run_suite(suite);
}
