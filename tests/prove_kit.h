/* What the tests of the prover share: mutants of kernels, launches of them with the sanitizer, and whether
 * its reports contradict a proof. */
#ifndef TVM_TESTS_PROVE_KIT_H
#define TVM_TESTS_PROVE_KIT_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interp.h"
#include "launch.h"
#include "prove.h"
#include "verify.h"

enum {
    PROVE_KIT_BYTES = 1 << 22,       /* of a tensor, at most */
    PROVE_KIT_INSTRUCTIONS = 1 << 14 /* of a launch: loops may not end */
};

/* ---- launches ---- */

typedef struct prove_launch {
    const tvm_ir_program *program;
    uint32_t kernel;
    tvm_scalar scalars[TVM_MAX_PARAMS];
    /* fills the elements of tensor parameter `p` */
    void (*fill)(void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes, size_t count);
    void *closure;
} prove_launch;

static inline bool prove_make_tensors(const prove_launch *l, const tvm_launch_env *env,
                                      tvm_interp_arg *args) {
    const tvm_ir_kernel *kernel = &l->program->kernels[l->kernel];
    bool made = true;
    for (uint32_t p = 0; p < kernel->param_count && made; p++) {
        int64_t shape[TVM_MAX_RANK];
        uint64_t bytes = 0;
        args[p].scalar = l->scalars[p];
        if (kernel->slots[p].kind != TVM_SLOT_GLOBAL) continue;
        made = tvm_launch_shape(l->program, kernel, p, env, shape, &bytes, NULL) == TVM_OK &&
               bytes <= PROVE_KIT_BYTES;
        if (!made) break;
        args[p].data = aligned_alloc(64, (bytes + 128) / 64 * 64);
        if (args[p].data == NULL) abort();
        memset(args[p].data, 0, bytes + 1);
        if (l->fill != NULL)
            l->fill(l->closure, kernel, p, args[p].data, 8 * bytes / kernel->slots[p].dtype.bits);
    }
    return made;
}

/* The sanitizer's reports as JSON, malloc'ed, or NULL: there are none. False: the launch is refused, is too
 * large, or has no blocks. */
static inline bool prove_run(const prove_launch *l, char **reports) {
    const tvm_ir_kernel *kernel = &l->program->kernels[l->kernel];
    tvm_interp_arg args[TVM_MAX_PARAMS];
    tvm_launch_env env = {.scalars = l->scalars, .multiprocessors = TVM_INTERP_MULTIPROCESSORS};
    tvm_interp_kernel *ready = NULL;
    FILE *output = fopen("/dev/null", "w");
    tvm_diags diags = {0};
    const tvm_interp_options options = {.threads = 1,
                                        .instructions = PROVE_KIT_INSTRUCTIONS,
                                        .sanitize = TVM_SANITIZE_JSON,
                                        .output = output};
    memset(args, 0, sizeof args);
    *reports = NULL;
    bool good = output != NULL && tvm_launch_check(l->program, kernel, &env, NULL) == TVM_OK && env.grid[0] &&
                env.grid[1] && env.grid[2] && prove_make_tensors(l, &env, args) &&
                tvm_interp_prepare(l->program, kernel, &ready, NULL) == TVM_OK;
    if (good && tvm_interp_run(ready, args, env.grid, &options, &diags) == TVM_SANITIZER)
        *reports = strdup(diags.items[diags.count - 1].message);
    tvm_interp_free(ready);
    for (uint32_t p = 0; p < kernel->param_count; p++) free(args[p].data);
    if (output != NULL) fclose(output);
    tvm_diags_free(&diags);
    return good;
}

/* ---- reports ---- */

/* Is the element that a report names, "%s[1, 0]", one of shared memory? */
static inline bool prove_is_shared(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                   const char *element) {
    size_t length = strcspn(element, "[") - (element[0] == '%');
    for (uint32_t s = 0; s < kernel->slot_count && element[0] == '%'; s++) {
        const char *name = tvm_string(program, kernel->slots[s].name);
        if (kernel->slots[s].kind == TVM_SLOT_SHARED && strlen(name) == length &&
            strncmp(name, element + 1, length) == 0)
            return true;
    }
    return false;
}

static inline bool prove_is_race(const char *kind) {
    static const char *const kinds[] = {"race-shared", "undelivered", "busy", "reuse"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

/* Of an element of global memory, where it is none of shared memory. */
static inline bool prove_is_global_race(const char *kind) {
    static const char *const kinds[] = {"race-global", "order-dependent", "undelivered", "busy"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

/* A wait that lasts for ever, or bytes that nobody waits for. */
static inline bool prove_is_deadlock(const char *kind, const char *message) {
    return strcmp(kind, "deadlock") == 0 || strcmp(kind, "barrier") == 0 || strcmp(kind, "cluster") == 0 ||
           (strcmp(kind, "fault") == 0 && strstr(message, "phase") != NULL);
}

typedef struct prove_found {
    bool race, deadlock;
    bool global; /* a race on global memory */
    bool confirms_global;
    bool fault;
    bool confirms; /* a race of the two instructions that the proof names */
} prove_found;

static inline prove_found prove_read_reports(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                             const tvm_proof *proof, const char *json) {
    prove_found found = {.race = false};
    json_t *document = json_loads(json, 0, NULL), *report;
    size_t i;
    if (document == NULL) abort();
    json_array_foreach(json_object_get(document, "reports"), i, report) {
        const char *kind = json_string_value(json_object_get(report, "kind"));
        const char *message = json_string_value(json_object_get(report, "message"));
        const char *element = json_string_value(json_object_get(report, "element"));
        json_int_t line = json_integer_value(json_object_get(json_object_get(report, "place"), "line"));
        json_int_t other = json_integer_value(json_object_get(json_object_get(report, "other"), "line"));
        bool race =
            prove_is_race(kind) && (strcmp(kind, "reuse") == 0 || prove_is_shared(program, kernel, element));
        bool global = !race && prove_is_global_race(kind);
        found.race = found.race || race;
        found.global = found.global || global;
        if (global && proof->global.verdict == TVM_REFUTED)
            found.confirms_global =
                found.confirms_global || (line == kernel->insns[proof->global.insn].line &&
                                          other == kernel->insns[proof->global.other].line);
        found.fault = found.fault || strcmp(kind, "fault") == 0 || strcmp(kind, "outside") == 0 ||
                      strcmp(kind, "cluster") == 0;
        found.deadlock = found.deadlock || prove_is_deadlock(kind, message);
        if (race && proof->races.verdict == TVM_REFUTED)
            found.confirms = found.confirms || (line == kernel->insns[proof->races.insn].line &&
                                                other == kernel->insns[proof->races.other].line);
    }
    json_decref(document);
    return found;
}

/* Does the sanitizer find what a proof says that there is not? */
static inline bool prove_is_contradicted(const tvm_proof *proof, const prove_found *found) {
    return (found->race && proof->races.verdict == TVM_PROVED) ||
           (found->global && proof->global.verdict == TVM_PROVED) ||
           (found->deadlock && proof->deadlocks.verdict == TVM_PROVED);
}

/* ---- mutants ---- */

typedef enum prove_way {
    PROVE_WITHOUT,    /* the instruction is left out */
    PROVE_LATER,      /* it changes places with the next one */
    PROVE_PENDING,    /* it leaves one more unfinished */
    PROVE_WEAKER,     /* sync-warp for sync */
    PROVE_OTHER,      /* another mbarrier */
    PROVE_ARRIVALS,   /* one more arrival */
    PROVE_OPENED,     /* open, or not */
    PROVE_NEXT_INDEX, /* the first index of shared memory, or of an mbarrier, plus 1 */
    PROVE_NO_INDEX,   /* the index 0 */
    PROVE_NEXT_VALUE, /* a scalar plus 1 */
    PROVE_WAYS
} prove_way;

static inline const tvm_operand *prove_operand(const tvm_ir_kernel *kernel, const tvm_insn *insn,
                                               uint32_t o) {
    return &kernel->operands[insn->first + o];
}

static inline uint32_t prove_constant(tvm_ir_kernel *kernel, tvm_dtype type, int64_t value) {
    return tvm_ir_kernel_expr(kernel,
                              &(tvm_expr){.op = TVM_EXPR_INTEGER, .type = type, .value = {.i = value}});
}

static inline uint32_t prove_one_more(tvm_ir_kernel *kernel, uint32_t expr) {
    tvm_dtype type = kernel->exprs[expr].type;
    uint32_t one = prove_constant(kernel, type, 1);
    return tvm_ir_kernel_expr(kernel, &(tvm_expr){.op = TVM_EXPR_ADD, .type = type, .a = expr, .b = one});
}

/* An assertion that holds does nothing. */
static inline void prove_leave_out(tvm_ir_kernel *kernel, uint32_t at) {
    tvm_insn made = {.op = TVM_OP_ASSERT,
                     .result = TVM_NONE,
                     .file = kernel->insns[at].file,
                     .line = kernel->insns[at].line};
    const tvm_operand operands[2] = {{TVM_OPERAND_EXPR, prove_constant(kernel, TVM_BOOL, 1)},
                                     {TVM_OPERAND_NONE, 0}};
    uint32_t last = tvm_ir_kernel_add_insn(kernel, &made, operands, 2);
    if (last == TVM_NONE) abort();
    kernel->insns[at] = kernel->insns[last];
    kernel->insn_count--;
}

static inline bool prove_is_plain(const tvm_insn *insn) {
    return tvm_insn_class(insn) > TVM_CLASS_FREE;
}

/* The first operand that is an index of shared memory or of an mbarrier; NULL. */
static inline tvm_operand *prove_index(tvm_ir_kernel *kernel, const tvm_insn *insn) {
    for (uint32_t o = 0; o + 1 < insn->count; o++) {
        tvm_operand *operand = &kernel->operands[insn->first + o];
        if (operand->kind == TVM_OPERAND_SLOT && tvm_slot_is_in_shared(kernel->slots[operand->value].kind) &&
            operand[1].kind == TVM_OPERAND_EXPR)
            return &operand[1];
    }
    return NULL;
}

static inline bool prove_set_pending(tvm_ir_kernel *kernel, const tvm_insn *insn) {
    bool arrives = insn->op == TVM_OP_ARRIVE_BARRIER;
    if (insn->op != TVM_OP_WAIT_GROUP && insn->op != TVM_OP_WAIT_BULK && !arrives) return false;
    tvm_operand *pending = &kernel->operands[insn->first + (arrives ? insn->count - 2 : 0)];
    uint32_t value = pending->kind == TVM_OPERAND_CONST ? pending->value : 0;
    *pending = (tvm_operand){TVM_OPERAND_CONST, value + 1};
    return true;
}

static inline bool prove_set_other(tvm_ir_kernel *kernel, const tvm_insn *insn) {
    for (uint32_t o = 0; o < insn->count; o++) {
        tvm_operand *operand = &kernel->operands[insn->first + o];
        if (operand->kind != TVM_OPERAND_SLOT || kernel->slots[operand->value].kind != TVM_SLOT_BARRIER)
            continue;
        for (uint32_t i = 1; i < kernel->slot_count; i++) {
            uint32_t other = (operand->value + i) % kernel->slot_count;
            if (kernel->slots[other].kind != TVM_SLOT_BARRIER ||
                kernel->slots[other].layout != kernel->slots[operand->value].layout)
                continue;
            operand->value = other;
            return true;
        }
    }
    return false;
}

/* Changes instruction `at` in one way; false: it has no such. */
static inline bool prove_mutate(tvm_ir_kernel *kernel, uint32_t at, prove_way way) {
    tvm_insn *insn = &kernel->insns[at];
    tvm_operand *index = prove_index(kernel, insn),
                *operands = insn->count ? &kernel->operands[insn->first] : NULL;
    bool orders = tvm_insn_class(insn) == TVM_CLASS_ORDER, allocates = insn->op == TVM_OP_ALLOC_BARRIER;
    uint32_t made;
    switch (way) {
    case PROVE_WITHOUT:
        if (orders) prove_leave_out(kernel, at);
        return orders;
    case PROVE_LATER:
        if (at + 1 >= kernel->insn_count || !prove_is_plain(insn) || !prove_is_plain(insn + 1)) return false;
        if (!orders && tvm_insn_class(insn + 1) != TVM_CLASS_ORDER) return false;
        const tvm_insn kept = insn[0];
        insn[0] = insn[1];
        insn[1] = kept;
        return true;
    case PROVE_PENDING:
        return prove_set_pending(kernel, insn);
    case PROVE_WEAKER:
        if (insn->op != TVM_OP_SYNC) return false;
        insn->op = TVM_OP_SYNC_WARP;
        return true;
    case PROVE_OTHER:
        return prove_set_other(kernel, insn);
    case PROVE_ARRIVALS:
        if (allocates)
            operands[0] = (tvm_operand){TVM_OPERAND_CONST,
                                        operands[0].kind == TVM_OPERAND_CONST ? operands[0].value + 1 : 2};
        return allocates;
    case PROVE_OPENED:
        if (allocates)
            operands[1] = operands[1].kind == TVM_OPERAND_NONE ? (tvm_operand){TVM_OPERAND_CONST, 1}
                                                               : (tvm_operand){TVM_OPERAND_NONE, 0};
        return allocates;
    case PROVE_NEXT_INDEX:
        if (index == NULL) return false;
        made = prove_one_more(kernel, index->value);
        prove_index(kernel, insn)->value = made;
        return true;
    case PROVE_NO_INDEX:
        if (index == NULL) return false;
        made = prove_constant(kernel, kernel->exprs[index->value].type, 0);
        if (made == index->value) return false;
        index->value = made;
        return true;
    default:
        if (insn->op != TVM_OP_LET || !tvm_dtype_is_integer(kernel->slots[insn->result].dtype)) return false;
        operands[0].value = prove_one_more(kernel, operands[0].value);
        return true;
    }
}

/* Kernel 0 of the result is the mutant, verified; NULL: there is no such, or the verifier refuses it. */
static inline tvm_ir_program *prove_mutant(const tvm_ir_program *program, uint32_t kernel, uint32_t at,
                                           prove_way way) {
    tvm_ir_program *mutant = tvm_ir_program_clone_kernel(program, kernel);
    if (mutant == NULL) abort();
    if (prove_mutate(&mutant->kernels[0], at, way) && tvm_verify(mutant, NULL) == TVM_OK) return mutant;
    tvm_ir_program_free(mutant);
    return NULL;
}

#endif
