/* Searches for a certificate of what the checker of isa/check can confirm: how well each scalar has to be
 * known, which mbarriers form rings, and what holds at loops' heads. Nothing here is trusted.
 *
 * The checker's own steps are run, with invariants that are made as they are needed. A scalar that has many
 * values is known less well from then on; a ring that a team does not keep to is none. Then all begins again.
 */
#include "certify.h"

#include <stdlib.h>
#include <string.h>

#include "check_impl.h"
#include "prove_impl.h"
#include "vbc.h"

enum { MOST_VALUES = 64, MOST_ROUNDS = 120 };

typedef enum mode { AS_NUMBER, AS_CLASS, AS_SIGN, AS_ANY } mode;

typedef struct maker {
    checker *c;
    uint32_t modulus;
    mode modes[CHECK_SCALARS];
    int64_t seen[CHECK_SCALARS][MOST_VALUES];
    unsigned seen_count[CHECK_SCALARS];
    bool joined[CHECK_TEAMS][CHECK_SCALARS]; /* not alike in all states in which the role begins */
    check_ring rings[CHECK_RINGS];
    uint32_t ring_count;
    bool again;
} maker;

/* ---- invariants ---- */

/* Too many values: it is known less well. */
static void note(maker *m, uint32_t scalar, int64_t v) {
    for (unsigned i = 0; i < m->seen_count[scalar]; i++)
        if (m->seen[scalar][i] == v) return;
    if (m->seen_count[scalar] < MOST_VALUES) {
        m->seen[scalar][m->seen_count[scalar]++] = v;
        return;
    }
    m->modes[scalar]++;
    m->seen_count[scalar] = 0;
    m->again = m->c->over = true;
}

/* A loop's variable, at its head, as a class. */
static check_value to_class(const maker *m, uint32_t loop, check_value value, mode as) {
    const tvm_insn *insn = &m->c->kernel->insns[loop];
    const tvm_expr *end = &m->c->kernel->exprs[tvm_operands(m->c->kernel, insn)[1].value],
                   *step = &m->c->kernel->exprs[tvm_operands(m->c->kernel, insn)[2].value];
    uint32_t modulus = as == AS_CLASS ? m->modulus : 1;
    int64_t most = end->op == TVM_EXPR_INTEGER ? end->value.i
                   : end->type.bits <= 32      ? UINT32_MAX
                                               : INT64_MAX / 2;
    if (value.kind == CHECK_ANY || value.v < 0 || step->op != TVM_EXPR_INTEGER) return (check_value){0};
    if (value.kind == CHECK_CLASS && value.modulus % modulus) return (check_value){0};
    int64_t high = most + step->value.i, least = value.kind == CHECK_EXACT ? value.v : value.high;
    return (check_value){value.v % modulus, high > least ? high : least, CHECK_CLASS, modulus};
}

static void widen(maker *m, uint32_t at, check_state *state) {
    const checker *c = m->c;
    const tvm_insn *insn = &c->kernel->insns[at];
    for (uint32_t i = 0; i < c->scalar_count; i++) {
        check_value *value = &state->values[i];
        bool variable = insn->op == TVM_OP_FOR && insn->result == c->slots[i];
        bool counted =
            variable && c->kernel->exprs[tvm_operands(c->kernel, insn)[1].value].op == TVM_EXPR_INTEGER;
        if (m->modes[i] == AS_ANY)
            *value = (check_value){0};
        else if (variable && (!counted || m->modes[i] != AS_NUMBER))
            *value = to_class(m, at, *value, m->modes[i] == AS_SIGN ? AS_SIGN : AS_CLASS);
        else if (value->kind == CHECK_EXACT)
            note(m, i, value->v);
    }
}

/* Where a role begins there is one invariant. */
static void join(maker *m, uint32_t team, uint32_t at, const check_state *state) {
    checker *c = m->c;
    for (uint32_t n = 0; n < c->invariant_count; n++) {
        if (c->invariants[n].team != team || c->invariants[n].at != at) continue;
        for (uint32_t i = 0; i < c->scalar_count; i++)
            if (!tvm_check_includes(&c->invariants[n].values[i], &state->values[i]))
                m->joined[team][i] = m->again = c->over = true;
    }
}

static bool add(checker *c, uint32_t at, check_state *state) {
    maker *m = c->closure;
    const uint32_t team = state->team;
    bool begins = tvm_insn_class(&c->kernel->insns[at]) == TVM_CLASS_SECTION;
    for (uint32_t i = 0; i < c->scalar_count && begins; i++)
        if (m->joined[team][i]) state->values[i] = (check_value){0};
    if (begins)
        join(m, team, at, state);
    else
        widen(m, at, state);
    if (c->over) return false;
    if (tvm_check_admit(c, at, state)) return true;
    if (c->invariant_count == c->invariant_capacity) {
        uint32_t capacity = c->invariant_capacity ? 2 * c->invariant_capacity : 64;
        check_state *more = realloc(c->invariants, capacity * sizeof *more);
        if (!more) {
            c->no_memory = c->over = true;
            return false;
        }
        c->invariants = more;
        c->invariant_capacity = capacity;
    }
    check_state *made = &c->invariants[c->invariant_count++];
    memset(made, 0, sizeof *made);
    made->team = team;
    made->at = at;
    made->held = state->held;
    memcpy(made->values, state->values, sizeof made->values);
    return true;
}

/* ---- rings ---- */

static void add_ring(maker *m, uint32_t full, uint32_t empty, uint32_t producers, uint32_t consumers) {
    if (m->ring_count < CHECK_RINGS)
        m->rings[m->ring_count++] = (check_ring){full, empty, producers, consumers};
}

/* By who has been found to use them; the checker says later which are none. */
static void guess_rings(maker *m) {
    const checker *c = m->c;
    for (uint32_t f = 0; f < c->cell_count; f++) {
        const check_cell *full = &c->cells[f];
        const uint32_t before = m->ring_count, arrive = full->arrive_by, wait = full->wait_by;
        if (full->open || !arrive || !wait) continue;
        if (arrive == wait && (arrive & (arrive - 1)) == 0) add_ring(m, f, f, arrive, 0);
        for (uint32_t e = 0; e < c->cell_count; e++)
            if (c->cells[e].open && c->cells[e].wait_by == arrive && c->cells[e].arrive_by == wait &&
                !(arrive & wait) && f - c->first_cell[full->slot] == e - c->first_cell[c->cells[e].slot])
                add_ring(m, f, e, arrive, wait);
        if (m->ring_count > before) continue;
        if (!(arrive & wait)) add_ring(m, f, CHECK_NO_CELL, arrive, wait);
        for (uint32_t t = 0; t < CHECK_TEAMS && arrive == wait; t++) { /* all of them meet there */
            const uint32_t bit = UINT32_C(1) << t;
            if (arrive & bit) add_ring(m, f, CHECK_NO_CELL, bit, arrive & ~bit);
        }
    }
}

static void drop_ring(maker *m, uint32_t number) {
    memmove(m->rings + number, m->rings + number + 1, (--m->ring_count - number) * sizeof *m->rings);
}

/* ---- scalars ---- */

/* Those that the prover would follow, and those of them on which waits and arrivals depend. */
static bool find_scalars(maker *m, const tvm_ir_program *program, const tvm_ir_kernel *kernel) {
    checker *c = m->c;
    prover *p = calloc(1, sizeof *p);
    tvm_proof proof = {0};
    prove_bearing bearing = {0};
    if (!p) return false;
    p->program = program;
    p->kernel = kernel;
    p->proof = &proof;
    p->most_work = UINT64_MAX;
    p->modulus = 1;
    bool made = tvm_prove_find_scalars(p);
    for (uint32_t t = 1; t < c->team_count; t++)
        p->contexts[t] =
            (prove_context){.role = c->teams[t].role, .from = c->teams[t].from, .end = c->teams[t].end};
    p->context_count = c->team_count;
    made = made && tvm_prove_find_bearing(p, 1, c->team_count, &bearing);
    for (uint32_t s = 0; made && s < kernel->slot_count; s++) {
        if (p->tracked[s] < 0) continue;
        if (c->scalar_count == CHECK_SCALARS) {
            made = false;
            c->over = true;
            break;
        }
        if (bearing.slots[s]) c->turn_scalars |= UINT64_C(1) << c->scalar_count;
        c->slots[c->scalar_count++] = s;
    }
    m->modulus = p->modulus;
    if (p->no_memory) c->no_memory = true;
    tvm_prove_free_bearing(&bearing);
    free(p->tracked);
    free(p->bears);
    free(p->scalars);
    free(p);
    return made;
}

/* ---- the search ---- */

static void put_wide(tvm_certificate *to, uint64_t v) {
    to->words[to->count++] = (uint32_t)v;
    to->words[to->count++] = (uint32_t)(v >> 32);
}

static bool write(const checker *c, tvm_certificate *to) {
    to->words = malloc((16 + c->scalar_count + 4 * (size_t)c->ring_count +
                        c->invariant_count * (4 + 6 * (size_t)c->scalar_count)) *
                       sizeof *to->words);
    if (!to->words) return false;
    to->words[to->count++] = CHECK_VERSION;
    to->words[to->count++] = c->scalar_count;
    put_wide(to, c->turn_scalars);
    for (uint32_t i = 0; i < c->scalar_count; i++) to->words[to->count++] = c->slots[i];
    to->words[to->count++] = c->ring_count;
    for (uint32_t i = 0; i < c->ring_count; i++) {
        const check_ring *ring = &c->rings[i];
        const uint32_t of[] = {ring->full, ring->empty, ring->producers, ring->consumers};
        memcpy(to->words + to->count, of, sizeof of);
        to->count += 4;
    }
    to->words[to->count++] = c->invariant_count;
    for (uint32_t i = 0; i < c->invariant_count; i++) {
        const check_state *of = &c->invariants[i];
        to->words[to->count++] = of->team;
        to->words[to->count++] = of->at;
        put_wide(to, of->held);
        for (uint32_t s = 0; s < c->scalar_count; s++) {
            to->words[to->count++] = of->values[s].kind;
            if (of->values[s].kind != CHECK_ANY) put_wide(to, (uint64_t)of->values[s].v);
            if (of->values[s].kind != CHECK_CLASS) continue;
            put_wide(to, (uint64_t)of->values[s].high);
            to->words[to->count++] = of->values[s].modulus;
        }
    }
    return true;
}

/* One round; true: there are others to come. *to has the certificate where there is one. */
static bool round_of(maker *m, bool *gathered, const tvm_ir_program *program, uint32_t kernel,
                     tvm_checked *checked, tvm_certificate *to) {
    checker *c = calloc(1, sizeof *c);
    bool more = false;
    m->c = c;
    if (!c) return false;
    *checked = (tvm_checked){.races = {.insn = TVM_NONE}, .deadlocks = {.insn = TVM_NONE}};
    c->program = program;
    c->kernel = &program->kernels[kernel];
    c->checked = checked;
    c->admit = add;
    c->closure = m;
    m->again = false;
    if (tvm_check_begin(c) && !c->over && (c->site_count || c->cell_count) &&
        find_scalars(m, program, c->kernel)) {
        memcpy(c->rings, m->rings, sizeof c->rings);
        c->ring_count = m->ring_count;
        tvm_check_all(c);
        if (m->again) {
            more = true;
        } else if (c->bad_ring < CHECK_RINGS) {
            drop_ring(m, c->bad_ring);
            more = true;
        } else if (!c->over && !*gathered && c->cell_count) {
            guess_rings(m);
            *gathered = more = true;
        } else if (!c->over && (checked->races.holds || checked->deadlocks.holds)) {
            if (!write(c, to)) c->no_memory = true;
        }
    }
    more = more && !c->no_memory;
    tvm_check_end(c);
    free(c);
    m->c = NULL;
    return more;
}

tvm_status tvm_certify(const tvm_ir_program *program, uint32_t kernel, tvm_certificate *certificate,
                       tvm_diags *diags) {
    maker *m = calloc(1, sizeof *m);
    bool gathered = false;
    tvm_checked checked;
    *certificate = (tvm_certificate){0};
    if (!m) return tvm_diag_no_memory(diags);
    for (unsigned i = 0; i < MOST_ROUNDS && round_of(m, &gathered, program, kernel, &checked, certificate);
         i++)
        continue;
    free(m);
    return TVM_OK;
}

tvm_status tvm_certify_program(tvm_ir_program **program, tvm_diags *diags) {
    uint8_t *bytes;
    size_t size;
    tvm_ir_program *made = NULL;
    tvm_status status = tvm_vbc_write(*program, TVM_VBC_LINES | TVM_VBC_IMAGES, &bytes, &size, diags);
    if (status != TVM_OK) return status;
    status = tvm_vbc_read(bytes, size, NULL, &made, diags);
    free(bytes);
    for (uint32_t k = 0; status == TVM_OK && k < made->kernel_count; k++) {
        tvm_certificate certificate;
        status = tvm_certify(made, k, &certificate, diags);
        made->kernels[k].certificate = certificate.words;
        made->kernels[k].certificate_count = certificate.count;
    }
    if (status == TVM_OK) {
        tvm_ir_program *before = *program;
        *program = made;
        made = before;
    }
    tvm_ir_program_free(made);
    return status;
}

/* ---- what is confirmed, as text ---- */

static void add_claim(tvm_text *text, const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                      const char *of, const tvm_checked_claim *claim, const char *condition) {
    tvm_text_add(text, "%s: %s: %s", tvm_string(program, kernel->name), of,
                 !claim->holds ? "not confirmed"
                 : condition   ? "confirmed, if"
                               : "confirmed");
    if (!claim->holds && claim->insn != TVM_NONE) {
        const tvm_insn *insn = &kernel->insns[claim->insn];
        if (insn->file != TVM_NONE) tvm_text_add(text, ": %s", tvm_string(program, insn->file));
        if (insn->line)
            tvm_text_add(text, ":%u", (unsigned)insn->line);
        else
            tvm_text_add(text, ": instruction %u", (unsigned)claim->insn);
    }
    if (!claim->holds || condition) tvm_text_add(text, ": %s", claim->holds ? condition : claim->text);
    tvm_text_puts(text, "\n");
}

void tvm_checked_add(tvm_text *text, const tvm_ir_program *program, uint32_t kernel,
                     const tvm_checked *checked) {
    const tvm_ir_kernel *k = &program->kernels[kernel];
    add_claim(text, program, k, "races", &checked->races, NULL);
    add_claim(text, program, k, "deadlocks", &checked->deadlocks,
              checked->waits_for_blocks ? "other blocks do what it waits for" : NULL);
}
