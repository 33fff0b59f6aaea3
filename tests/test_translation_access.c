/* The PTX of loads and stores of global memory accesses what the bytecode says, for all values: each
 * load-global and store-global of every shipped kernel, as a kernel of its own with the same indices, tensor,
 * layout and assumptions, is proved by Z3. Of each element that a thread has it is proved that the PTX
 * accesses it exactly if it is inside of the tensor, and at its address; and that the PTX accesses nothing
 * else. Which element that is follows from the layout's lists, as isa/layout.h tells, and where it is from
 * the extents; what expressions mean is in smt_expr.h, what PTX means in smt_ptx.h.
 *
 * Straight-line code alone is looked at, with branches ahead. Where Z3 does not decide in ACCESS_STEPS, or
 * the PTX is not understood, the access is unknown: addresses whose last bits decide how wide an access is,
 * for example.
 *
 * Not taken are masks, which are data; layouts of which several threads have an element to store, as one of
 * them does; types of less than 8 bits; tensors by strides; tiles of which a thread has more than ELEMENTS
 * elements; and expressions that smt_expr.h does not take. */
#include "check_kit.h"
#include <glob.h>

#include "extent_kit.h"
#include "layout.h"
#include "shipped_kit.h"
#include "smt_expr.h"
#include "suite_kit.h"
#include "translate_kit.h"

/* Of PROVED_OF accesses one may be unknown. */
enum { ELEMENTS = 64, ONE_OF = 32, PROVED_OF = 3, ACCESS_STEPS = 500000 };

/* A load or store, and its kernel. */
typedef struct tile_access {
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    const tvm_slot *tensor, *tile;
    const tvm_layout *layout;
    const tvm_operand *indices;
    bool is_store;
} tile_access;

typedef struct tally {
    unsigned proved, unknown, others, elements;
} tally;

static known_texts known;

/* ---- which ---- */

static bool has_replicas(const tvm_layout *layout) {
    for (unsigned i = 0; i < layout->spatials; i++)
        if (layout->spatial[i] < 0) return true;
    return false;
}

static uint32_t locals_of(const tvm_layout *layout) {
    uint32_t locals = 1;
    for (unsigned i = 0; i < layout->locals; i++) locals *= layout->mode_size[layout->local[i]];
    return locals;
}

/* False: it is none, or not taken. */
static bool find_access(const tvm_ir_program *program, const tvm_ir_kernel *kernel, uint32_t at,
                        tile_access *a) {
    const tvm_insn *insn = &kernel->insns[at];
    const tvm_operand *operands = tvm_operands(kernel, insn);
    if (insn->op != TVM_OP_LOAD_GLOBAL && insn->op != TVM_OP_STORE_GLOBAL) return false;
    const tvm_slot *tensor = &kernel->slots[operands[0].value];
    bool is_store = insn->op == TVM_OP_STORE_GLOBAL;
    const tvm_slot *tile = &kernel->slots[is_store ? operands[1 + tensor->rank].value : insn->result];
    *a =
        (tile_access){program, kernel, tensor, tile, &program->layouts[tile->layout], operands + 1, is_store};
    return tensor->form == TVM_FORM_ROW_MAJOR && tensor->dtype.bits >= 8 &&
           tensor->dtype.bits == tile->dtype.bits && tensor->dtype.kind == tile->dtype.kind &&
           tvm_layout_threads(a->layout) % 32 == 0 && locals_of(a->layout) <= ELEMENTS &&
           !(is_store && has_replicas(a->layout));
}

/* ---- a kernel of its own ---- */

static void write_shape(extract *x, const tile_access *a) {
    x->is_extent = true;
    for (unsigned d = 0; d < a->tensor->rank; d++) {
        tvm_text_add(&x->text, d ? ", " : "[");
        write_expression(x, a->tensor->shape[d]);
    }
    x->is_extent = false;
    tvm_text_add(&x->text, "]");
}

static void write_indices(extract *x, const tile_access *a) {
    for (unsigned d = 0; d < a->tensor->rank; d++) {
        tvm_text_add(&x->text, d ? ", " : "[");
        write_expression(x, a->indices[d].value);
    }
    tvm_text_add(&x->text, "]");
}

static bool has_large(const tile_access *a) {
    bool large = false;
    for (unsigned d = 0; d < a->tensor->rank; d++)
        large = large || a->kernel->exprs[a->tensor->shape[d]].size > NODES ||
                a->kernel->exprs[a->indices[d].value].size > NODES;
    return large;
}

static void write_body(extract *x, const tile_access *a) {
    char layout[TVM_LAYOUT_TEXT_MAX];
    tvm_layout_text(a->layout, layout);
    if (a->is_store) {
        tvm_text_add(&x->text, "    %%r = alloc-register %s[", type_name(a->tensor->dtype));
        for (unsigned d = 0; d < a->layout->rank; d++)
            tvm_text_add(&x->text, "%s%u", d ? ", " : "", a->layout->shape[d]);
        tvm_text_add(&x->text, "], %s\n    store-global z", layout);
        write_indices(x, a);
        tvm_text_add(&x->text, ", %%r\n.end\n");
    } else {
        tvm_text_add(&x->text, "    %%r = load-global z");
        write_indices(x, a);
        tvm_text_add(&x->text, ", %s\n    store-global y[", layout);
        for (unsigned d = 0; d < a->layout->rank; d++) tvm_text_add(&x->text, d ? ", 0" : "0");
        tvm_text_add(&x->text, "], %%r\n.end\n");
    }
}

/* False: it is not taken. The first pass finds the scalars. */
static bool write_access(extract *x, const tile_access *a) {
    if (has_large(a)) return false;
    write_shape(x, a);
    write_indices(x, a);
    tvm_text_free(&x->text);
    x->text = (tvm_text){0};
    write_parameters(x);
    tvm_text_add(&x->text, ", z: global %s", type_name(a->tensor->dtype));
    write_shape(x, a);
    if (!a->is_store) {
        tvm_text_add(&x->text, ", y: global %s[", type_name(a->tensor->dtype));
        for (unsigned d = 0; d < a->layout->rank; d++)
            tvm_text_add(&x->text, "%s%u", d ? ", " : "", a->layout->shape[d]);
        tvm_text_add(&x->text, "]");
    }
    tvm_text_add(&x->text, ")\n.warps %u\n.grid g0, g1, g2\n", tvm_layout_threads(a->layout) / 32);
    write_assumptions(x, false);
    write_body(x, a);
    return !x->refused && !x->text.failed;
}

/* ---- what it means ---- */

/* What is so of a thread's element: inside, it is accessed at the address. */
typedef struct element {
    Z3_ast inside, address;
} element;

/* The digit of a mode: of the thread, or of the local index. */
static Z3_ast digit_of(const meaning *m, const tile_access *a, unsigned mode, uint32_t local) {
    Z3_context z3 = m->launch->z3;
    const tvm_layout *layout = a->layout;
    uint32_t place = 1;
    for (unsigned i = layout->locals; i-- > 0; place *= layout->mode_size[layout->local[i]])
        if (layout->local[i] == mode) return smt_constant(z3, 64, local / place % layout->mode_size[mode]);
    place = 1;
    for (unsigned i = layout->spatials; i-- > 0;) {
        int32_t s = layout->spatial[i];
        uint32_t size = s < 0 ? (uint32_t)-s : layout->mode_size[s];
        if (s == (int32_t)mode)
            return Z3_mk_zero_ext(
                z3, 32,
                Z3_mk_bvurem(z3, Z3_mk_bvudiv(z3, m->launch->thread, smt_constant(z3, 32, place)),
                             smt_constant(z3, 32, size)));
        place *= size;
    }
    ck_abort_msg("a mode that is nowhere");
    return NULL;
}

/* Where the element is in dimension d of the tile. */
static Z3_ast place_of(const meaning *m, const tile_access *a, unsigned d, uint32_t local) {
    Z3_context z3 = m->launch->z3;
    Z3_ast place = smt_constant(z3, 64, 0);
    for (unsigned mode = 0; mode < a->layout->modes; mode++) {
        if (a->layout->mode_dim[mode] != d) continue;
        place = Z3_mk_bvmul(z3, place, smt_constant(z3, 64, a->layout->mode_size[mode]));
        place = Z3_mk_bvadd(z3, place, digit_of(m, a, mode, local));
    }
    return place;
}

static Z3_ast wide(const meaning *m, uint32_t expr) {
    bool is_signed = m->x->kernel->exprs[expr].type.kind == TVM_KIND_INT;
    return smt_resize(m->launch->z3, mean(m, expr), 64, is_signed);
}

static element element_of(const meaning *m, const tile_access *a, uint32_t local) {
    Z3_context z3 = m->launch->z3;
    element e = {Z3_mk_true(z3), smt_constant(z3, 64, 0)};
    unsigned leading = a->tensor->rank - a->layout->rank;
    for (unsigned d = 0; d < a->tensor->rank; d++) {
        Z3_ast at = wide(m, a->indices[d].value), extent = wide(m, a->tensor->shape[d]);
        if (d >= leading) at = Z3_mk_bvadd(z3, at, place_of(m, a, d - leading, local));
        Z3_ast all[3] = {e.inside, Z3_mk_bvsge(z3, at, smt_constant(z3, 64, 0)), Z3_mk_bvslt(z3, at, extent)};
        e.inside = Z3_mk_and(z3, 3, all);
        e.address = Z3_mk_bvadd(z3, Z3_mk_bvmul(z3, e.address, extent), at);
    }
    Z3_ast bytes = Z3_mk_bvmul(z3, e.address, smt_constant(z3, 64, a->tensor->dtype.bits / 8));
    e.address = Z3_mk_bvadd(z3, m->launch->params[m->x->slot_count + 3], bytes);
    return e;
}

/* The launch refuses other extents; and the thread is one of the block. */
static void assert_launch(const meaning *m, const tile_access *a) {
    Z3_context z3 = m->launch->z3;
    uint32_t threads = tvm_layout_threads(a->layout);
    Z3_solver_assert(z3, m->premises, Z3_mk_bvult(z3, m->launch->thread, smt_constant(z3, 32, threads)));
    for (unsigned d = 0; d < a->tensor->rank; d++) {
        Z3_ast extent = wide(m, a->tensor->shape[d]);
        Z3_solver_assert(z3, m->premises, Z3_mk_bvsge(z3, extent, smt_constant(z3, 64, 0)));
        Z3_solver_assert(z3, m->premises, Z3_mk_bvsle(z3, extent, smt_constant(z3, 64, INT32_MAX)));
    }
}

/* ---- a proof ---- */

typedef struct proof {
    const meaning *m; /* its premises have no products of what is no number, which take long */
    Z3_solver all;    /* premises */
    const tile_access *a;
    smt_ptx *ptx;
    Z3_params sums; /* simplifies to sums of products */
    element elements[ELEMENTS];
    uint32_t count;
    const char *open; /* what was not decided */
} proof;

static Z3_lbool can_be(const proof *p, Z3_solver premises, Z3_ast formula) {
    Z3_context z3 = p->m->launch->z3;
    Z3_solver_push(z3, premises);
    Z3_solver_assert(z3, premises, formula);
    Z3_lbool can = Z3_solver_check(z3, premises);
    Z3_solver_pop(z3, premises, 1);
    return can;
}

/* Is the formula so wherever the premises and `where` are? */
static Z3_lbool is_so(const proof *p, Z3_ast where, Z3_ast formula) {
    Z3_context z3 = p->m->launch->z3;
    Z3_ast both[2] = {where, Z3_mk_not(z3, formula)};
    Z3_ast denied = Z3_simplify_ex(z3, Z3_mk_and(z3, 2, both), p->sums);
    if (Z3_get_bool_value(z3, denied) == Z3_L_FALSE) return Z3_L_TRUE;
    Z3_lbool can = can_be(p, p->m->premises, denied);
    if (can != Z3_L_FALSE) can = can_be(p, p->all, denied);
    return can == Z3_L_FALSE ? Z3_L_TRUE : can == Z3_L_TRUE ? Z3_L_FALSE : Z3_L_UNDEF;
}

static unsigned thread_bits(uint32_t threads) {
    unsigned bits = 0;
    while (1u << bits < threads) bits++;
    return bits;
}

/* Are the addresses the same, thread by thread: sums of the same products of indices and extents? Else where
 * they are asked for. */
static Z3_lbool is_same_address(const proof *p, Z3_ast where, Z3_ast a, Z3_ast b) {
    Z3_context z3 = p->m->launch->z3;
    uint32_t threads = tvm_layout_threads(p->a->layout);
    unsigned bits = thread_bits(threads);
    Z3_ast thread = variable(z3, "thread", 0, bits), same = Z3_simplify_ex(z3, Z3_mk_eq(z3, a, b), p->sums);
    bool all = true;
    for (uint32_t t = 0; t < threads && all && Z3_get_bool_value(z3, same) != Z3_L_TRUE; t++) {
        Z3_ast number = smt_constant(z3, bits, t);
        Z3_ast its = Z3_simplify_ex(z3, Z3_substitute(z3, same, 1, &thread, &number), p->sums);
        all = Z3_get_bool_value(z3, its) == Z3_L_TRUE;
    }
    return all ? Z3_L_TRUE : is_so(p, where, same);
}

static uint64_t number_in(const proof *p, Z3_model model, Z3_ast term) {
    uint64_t value = 0;
    Z3_ast number = NULL;
    Z3_context z3 = p->m->launch->z3;
    ck_assert(Z3_model_eval(z3, model, term, true, &number));
    ck_assert(Z3_get_numeral_uint64(z3, number, &value));
    return value;
}

/* Values in which all elements of a thread are inside, so that they are at places of their own; NULL: none
 * was found. */
static Z3_model all_inside(const proof *p) {
    Z3_context z3 = p->m->launch->z3;
    Z3_model model = NULL;
    Z3_solver_push(z3, p->m->premises);
    for (uint32_t i = 0; i < p->count; i++) Z3_solver_assert(z3, p->m->premises, p->elements[i].inside);
    if (Z3_solver_check(z3, p->m->premises) == Z3_L_TRUE) {
        model = Z3_solver_get_model(z3, p->m->premises);
        Z3_model_inc_ref(z3, model);
    }
    Z3_solver_pop(z3, p->m->premises, 1);
    return model;
}

/* Of an element: the accesses that are at its address in the model are so wherever they are done, and one of
 * them is done exactly if it is inside. *used: so many bytes of the accesses are elements. */
static Z3_lbool prove_element(proof *p, Z3_model model, const element *e, unsigned *used) {
    Z3_context z3 = p->m->launch->z3;
    const unsigned bytes = p->a->tensor->dtype.bits / 8;
    const uint64_t at = number_in(p, model, e->address);
    Z3_ast done = Z3_mk_false(z3);
    for (unsigned i = 0; i < p->ptx->access_count; i++) {
        const smt_access *access = &p->ptx->accesses[i];
        if (access->is_store != p->a->is_store) continue;
        uint64_t offset = at - number_in(p, model, access->address);
        if (offset % bytes != 0 || offset >= access->bytes) continue;
        Z3_ast address = Z3_mk_bvadd(z3, access->address, smt_constant(z3, 64, offset));
        Z3_ast both[2] = {done, access->guard}, where[2] = {access->guard, e->inside};
        Z3_lbool same = is_same_address(p, Z3_mk_and(z3, 2, where), address, e->address);
        p->open = "an address";
        if (same != Z3_L_TRUE) return same;
        done = Z3_mk_or(z3, 2, both);
        *used += bytes;
    }
    p->open = "a condition";
    Z3_lbool only = is_so(p, done, e->inside);
    return only == Z3_L_TRUE ? is_so(p, e->inside, done) : only;
}

/* All elements, and no byte beside. */
static Z3_lbool prove_elements(proof *p) {
    Z3_context z3 = p->m->launch->z3;
    Z3_model model = p->ptx->unknown[0] ? NULL : all_inside(p);
    unsigned used = 0, all = 0;
    p->open = p->ptx->unknown[0] ? p->ptx->unknown : "elements that are inside";
    if (model == NULL) return Z3_L_UNDEF;
    Z3_lbool so = Z3_L_TRUE;
    for (uint32_t i = 0; i < p->count && so == Z3_L_TRUE; i++)
        so = prove_element(p, model, &p->elements[i], &used);
    for (unsigned i = 0; i < p->ptx->access_count; i++)
        if (p->ptx->accesses[i].is_store == p->a->is_store) all += p->ptx->accesses[i].bytes;
    Z3_model_dec_ref(z3, model);
    return so == Z3_L_TRUE && used != all ? Z3_L_FALSE : so;
}

/* What is known of a parameter stands in its place: that it is not negative, of an extent, and what number an
 * assumption says that it is. */
static void place_known(const extract *x, const tile_access *a, smt_launch *launch) {
    const tvm_expr *exprs = x->kernel->exprs;
    for (unsigned i = 0; i < x->slot_count; i++) {
        unsigned bits = x->kernel->slots[x->slots[i]].dtype.bits;
        for (unsigned d = 0; d < a->tensor->rank; d++) {
            const tvm_expr *extent = &exprs[a->tensor->shape[d]];
            if (extent->op == TVM_EXPR_SLOT && extent->a == x->slots[i] && extent->type.kind == TVM_KIND_INT)
                launch->params[i] = unsigned_variable(launch->z3, "p", i, bits);
        }
        for (uint32_t k = 0; k < x->kernel->assume_count; k++) {
            const tvm_expr *is = &exprs[x->kernel->assumes[k]];
            if (is->op == TVM_EXPR_EQ && exprs[is->a].op == TVM_EXPR_SLOT && exprs[is->a].a == x->slots[i] &&
                exprs[is->b].op == TVM_EXPR_INTEGER)
                launch->params[i] = smt_constant(launch->z3, bits, (uint64_t)exprs[is->b].value.i);
        }
    }
}

/* Of a power of two of threads no more bits than they need, so that terms are simpler. */
static Z3_ast thread_of(Z3_context z3, uint32_t threads) {
    unsigned bits = thread_bits(threads);
    Z3_ast thread = variable(z3, "thread", 0, bits);
    return Z3_mk_zero_ext(z3, 32 - bits, thread);
}

static Z3_lbool prove(const extract *x, const tile_access *a, const char *ptx) {
    Z3_config config = Z3_mk_config();
    smt_launch launch = {.z3 = Z3_mk_context(config)};
    Z3_context z3 = launch.z3;
    Z3_del_config(config);
    Z3_solver solver = new_solver(z3, ACCESS_STEPS);
    begin_launch(x, false, &launch, solver);
    place_known(x, a, &launch);
    launch.thread = thread_of(z3, tvm_layout_threads(a->layout));
    launch.params[x->slot_count + 4] = variable(z3, "y", 0, 64);
    const meaning m = {x, &launch, solver};
    proof p = {.m = &m,
               .all = new_solver(z3, ACCESS_STEPS),
               .a = a,
               .ptx = smt_run_accesses(&launch, ptx),
               .count = locals_of(a->layout)};
    p.sums = Z3_mk_params(z3);
    Z3_params_inc_ref(z3, p.sums);
    Z3_params_set_bool(z3, p.sums, Z3_mk_string_symbol(z3, "som"), true);
    assert_launch(&m, a);
    assert_assumptions(&m, WITHOUT_PRODUCTS);
    for (uint32_t i = 0; i < p.count; i++) p.elements[i] = element_of(&m, a, i);
    const meaning whole = {x, &launch, p.all};
    Z3_ast_vector few = Z3_solver_get_assertions(z3, solver);
    Z3_ast_vector_inc_ref(z3, few);
    for (unsigned i = 0; i < Z3_ast_vector_size(z3, few); i++)
        Z3_solver_assert(z3, p.all, Z3_ast_vector_get(z3, few, i));
    Z3_ast_vector_dec_ref(z3, few);
    assert_assumptions(&whole, WITH_PRODUCTS);
    Z3_lbool so = prove_elements(&p);
    if (so == Z3_L_FALSE)
        printf("refuted, %s:\n%s%s\n", p.open, x->text.data, ptx);
    else if (so == Z3_L_UNDEF)
        printf("unknown, %s:\n%s\n", p.open, x->text.data);
    smt_free(p.ptx);
    Z3_params_dec_ref(z3, p.sums);
    Z3_solver_dec_ref(z3, p.all);
    Z3_solver_dec_ref(z3, solver);
    Z3_del_context(z3);
    return so;
}

/* What is proved of the PTX, with `to` in place of `from` where that is not NULL. */
static Z3_lbool translate_and_prove(const extract *x, const tile_access *a, const char *from,
                                    const char *to) {
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    tvm_status status = tvm_assemble_text(x->text.data, x->text.size, "access", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_msg(status == TVM_OK, "refused:\n%s", x->text.data);
    tvm_module *module = translate(program, "sm_90a");
    char *ptx = strdup(module->ptx), *at = from ? strstr(ptx, from) : NULL;
    ck_assert_msg(!from || (at && strlen(from) == strlen(to)), "no %s in:\n%s", from, ptx);
    if (at) memcpy(at, to, strlen(to));
    Z3_lbool so = prove(x, a, ptx);
    free(ptx);
    tvm_module_free(module);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
    return so;
}

/* ---- shipped programs ---- */

static void check_access(const tile_access *a, tally *t) {
    extract x = {.kernel = a->kernel};
    bool taken = write_access(&x, a);
    if (!taken) t->others++;
    /* always as few, as all of them take Z3 most of an hour */
    if (taken && is_new(&known, &x) && known.count % ONE_OF == 0) {
        Z3_lbool so = translate_and_prove(&x, a, NULL, NULL);
        ck_assert_msg(so != Z3_L_FALSE, "the PTX accesses something else");
        t->proved += so == Z3_L_TRUE;
        t->unknown += so == Z3_L_UNDEF;
        t->elements += so == Z3_L_TRUE ? locals_of(a->layout) : 0;
    }
    tvm_text_free(&x.text);
}

static bool is_access(const tvm_insn *insn) {
    return insn->op == TVM_OP_LOAD_GLOBAL || insn->op == TVM_OP_STORE_GLOBAL;
}

static void check_program(const char *path, tally *t) {
    tvm_ir_program *program = assemble_file(path, "");
    for (uint32_t k = 0; k < program->kernel_count; k++)
        for (uint32_t i = 0; i < program->kernels[k].insn_count; i++) {
            tile_access a;
            if (!is_access(&program->kernels[k].insns[i])) continue;
            if (find_access(program, &program->kernels[k], i, &a))
                check_access(&a, t);
            else
                t->others++;
        }
    tvm_ir_program_free(program);
}

START_TEST(accesses_of_shipped_programs_are_proved) {
    char pattern[5000];
    glob_t found;
    tally t = {0};
    ck_assert_int_eq(glob(program_path("*.vasm", pattern), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) check_program(found.gl_pathv[i], &t);
    globfree(&found);
    printf("%u accesses with %u elements of a thread proved, %u unknown; %u not taken\n", t.proved,
           t.elements, t.unknown, t.others);
    ck_assert_uint_gt(t.proved, 10);
    ck_assert_uint_le(t.unknown * PROVED_OF, t.proved);
}
END_TEST

/* ---- what is wrong is refuted ---- */

/* A load or store, and a part of its PTX that is exchanged for another. */
typedef struct fault {
    const char *body, *from, *to;
} fault;

#define STORE                                                                                                \
    "%r = alloc-register f16[16, 64], spatial(4, 32).local(4, 2)\nstore-global x[a * 16, b * 64], %r\n"
#define LOAD                                                                                                 \
    "%r = load-global x[block.x * 16, b], spatial(4, 32).local(4, 2)\n"                                      \
    "%s = alloc-shared f16[16, 64]\nstore-shared %s, %r\n"

static const fault faults[] = {
    {STORE, "setp.lt.u32 %p0", "setp.le.u32 %p0"},
    {STORE, "setp.lt.u32 %p1", "setp.lt.s32 %p1"},
    {STORE, "@%p2 st", "@%p0 st"},
    {STORE, "mul.lo.s64 %rd3, %rd2, 2", "mul.lo.s64 %rd3, %rd2, 4"},
    {STORE, "shl.b32 %r6, %r5, 2", "shl.b32 %r6, %r5, 3"},
    {STORE, "and.b32 %r7, %r4, 31", "and.b32 %r7, %r4, 15"},
    {STORE, "st.global.b32", "st.global.b64"},
    {LOAD, "setp.lt.u32 %p0", "setp.le.u32 %p0"},
    {LOAD, "@%p2 ld", "@%p0 ld"},
};

START_TEST(wrong_ptx_is_refuted) {
    const fault *f = &faults[_i];
    char text[1000];
    tvm_ir_program *program = NULL;
    tvm_diags diags = {0};
    int size = snprintf(
        text, sizeof text,
        ".vasm 7\n.kernel k(n: i32, m: i32, a: i32, b: i32, x: global f16[n, m])\n.warps 4\n.grid 1 << 16\n"
        ".assume m %% 8 == 0, b %% 2 == 0\n%s.end\n",
        f->body);
    tvm_status status = tvm_assemble_text(text, (size_t)size, "fault", NULL, &program, &diags);
    tvm_diags_print(&diags, stderr, "test", false);
    ck_assert_int_eq(status, TVM_OK);
    tile_access a;
    uint32_t at = 0;
    while (!is_access(&program->kernels[0].insns[at])) at++;
    ck_assert(find_access(program, &program->kernels[0], at, &a));
    extract x = {.kernel = a.kernel};
    ck_assert(write_access(&x, &a));
    ck_assert_int_eq(translate_and_prove(&x, &a, NULL, NULL), Z3_L_TRUE);
    ck_assert_int_eq(translate_and_prove(&x, &a, f->from, f->to), Z3_L_FALSE);
    tvm_text_free(&x.text);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("translation_access");
    TCase *tests = suite_case(suite, "translation_access");
    tcase_set_timeout(tests, 3600);
    tcase_add_loop_test(tests, wrong_ptx_is_refuted, 0, sizeof faults / sizeof *faults);
    tcase_add_test(tests, accesses_of_shipped_programs_are_proved);
    return run_suite(suite);
}
