/* What the tests of the prover share: launches of a kernel, or of a mutant of it, with the sanitizer, and
 * whether its reports contradict a proof. */
#ifndef TVM_TESTS_PROVE_KIT_H
#define TVM_TESTS_PROVE_KIT_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fileio.h"
#include "interp.h"
#include "launch.h"
#include "prove.h"
#include "prove_mutants.h"

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
    void (*fill)(const void *closure, const tvm_ir_kernel *kernel, uint32_t p, uint8_t *bytes, size_t count);
    const void *closure;
    uint32_t most_blocks; /* clusters along an axis, beyond which the grid is cut off; 0: none is */
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

static inline void prove_cut_grid(const prove_launch *l, uint32_t grid[3]) {
    const uint32_t *cluster = l->program->kernels[l->kernel].cluster;
    for (unsigned d = 0; d < 3 && l->most_blocks; d++)
        if (grid[d] > l->most_blocks * cluster[d]) grid[d] = l->most_blocks * cluster[d];
}

/* The sanitizer's reports as JSON, malloc'ed, or NULL: there are none. False: the launch is refused, is too
 * large, has no blocks, or comes to no end. */
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
    if (good) {
        prove_cut_grid(l, env.grid);
        tvm_status status = tvm_interp_run(ready, args, env.grid, &options, &diags);
        good = status == TVM_OK || status == TVM_SANITIZER;
        if (status == TVM_SANITIZER) *reports = strdup(diags.items[diags.count - 1].message);
    }
    tvm_interp_free(ready);
    for (uint32_t p = 0; p < kernel->param_count; p++) free(args[p].data);
    if (output != NULL) fclose(output);
    tvm_diags_free(&diags);
    return good;
}

/* ---- reports ---- */

/* Is the element that a report names, "%s[1, 0]", one of shared memory or of tensor memory? */
static inline bool prove_is_on_chip(const tvm_ir_program *program, const tvm_ir_kernel *kernel,
                                    const char *element) {
    size_t length = strcspn(element, "[") - (element[0] == '%');
    for (uint32_t s = 0; s < kernel->slot_count && element[0] == '%'; s++) {
        const char *name = tvm_string(program, kernel->slots[s].name);
        bool on_chip = kernel->slots[s].kind == TVM_SLOT_SHARED || kernel->slots[s].kind == TVM_SLOT_TENSOR;
        if (on_chip && strlen(name) == length && strncmp(name, element + 1, length) == 0) return true;
    }
    return false;
}

static inline bool prove_is_race(const char *kind) {
    static const char *const kinds[] = {"race-shared", "race-tensor", "undelivered", "busy", "reuse"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kind, kinds[i]) == 0) return true;
    return false;
}

/* Of an element of global memory, where it is none on the chip. */
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
            prove_is_race(kind) && (strcmp(kind, "reuse") == 0 || prove_is_on_chip(program, kernel, element));
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

/* ---- counterexamples ---- */

/* What a proof that shows a race says of it: an element, and threads of either access; -1: none is named. */
typedef struct prove_told {
    int64_t index[TVM_MAX_RANK];
    unsigned rank;
    long now, before;
} prove_told;

static inline long prove_thread_in(const char *text, const char *end) {
    const char *at = strstr(text, "(thread ");
    return at != NULL && (end == NULL || at < end) ? strtol(at + strlen("(thread "), NULL, 10) : -1;
}

/* "load-shared reads %s[1, 0] (thread 3), which store-shared, line 7, wrote (thread 32): ..." */
static inline prove_told prove_read_told(const char *text) {
    prove_told told = {.rank = 0};
    const char *which = strstr(text, ", which "), *bracket = strchr(text, '[');
    told.now = prove_thread_in(text, which);
    told.before = which != NULL ? prove_thread_in(which, NULL) : -1;
    char *at = (char *)(uintptr_t)bracket;
    while (at != NULL && at < which && *at != ']' && told.rank < TVM_MAX_RANK)
        told.index[told.rank++] = strtoll(at + 1, &at, 10);
    return told;
}

/* The register tensor between which and shared memory the instruction moves; NULL. */
static inline const tvm_slot *prove_register_of(const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const tvm_slot *slot = insn->result != TVM_NONE ? &kernel->slots[insn->result] : NULL;
    for (uint32_t o = 0; o < insn->count && slot == NULL; o++) {
        const tvm_operand *operand = &kernel->operands[insn->first + o];
        if (operand->kind == TVM_OPERAND_SLOT && kernel->slots[operand->value].kind == TVM_SLOT_REGISTER)
            slot = &kernel->slots[operand->value];
    }
    return slot != NULL && slot->kind == TVM_SLOT_REGISTER ? slot : NULL;
}

static inline tvm_team prove_team_at(const tvm_ir_kernel *kernel, uint32_t insn) {
    tvm_team_walk walk = {.depth = 0};
    tvm_team team = tvm_block_team(kernel);
    for (uint32_t i = 0; i <= insn; i++) team = tvm_team_next(&walk, kernel, &kernel->insns[i]);
    return team;
}

/* Where the element is in the instruction's tile; false: its place is no constant. */
static inline bool prove_in_tile(const tvm_ir_program *program, tvm_ir_kernel *kernel, uint32_t insn,
                                 const prove_told *told, int64_t *tile) {
    const prove_spot s = {program, kernel, insn, 0};
    unsigned none = 0;
    uint32_t o = prove_find(&s, &none, prove_is_tensor);
    for (unsigned d = 0; o != TVM_NONE && d < told->rank; d++) {
        const tvm_operand *index = &kernel->operands[o + 1 + d];
        if (index->kind != TVM_OPERAND_EXPR || kernel->exprs[index->value].op != TVM_EXPR_INTEGER)
            return false;
        tile[d] = told->index[d] - kernel->exprs[index->value].value.i;
    }
    return o != TVM_NONE && told->rank == tvm_slot_rank(program, prove_slot_at(&s, o));
}

/* Does the thread hold the element, by the layout of the instruction's register tensor? True, too, where that
 * is not known; *checked is one more where it is. */
static inline bool prove_holds(const tvm_ir_program *program, tvm_ir_kernel *kernel, uint32_t insn,
                               const prove_told *told, long thread, unsigned *checked) {
    const tvm_slot *slot = prove_register_of(kernel, &kernel->insns[insn]);
    int64_t tile[TVM_MAX_RANK];
    if (thread < 0 || slot == NULL || !prove_in_tile(program, kernel, insn, told, tile)) return true;
    const tvm_layout *layout = &program->layouts[slot->layout];
    tvm_team team = prove_team_at(kernel, insn);
    uint32_t own = ((uint32_t)thread - 32 * team.first) % (32 * team.warps);
    (*checked)++;
    for (uint32_t local = 0; local < tvm_layout_locals(layout); local++) {
        uint32_t index[TVM_MAX_RANK];
        bool same = true;
        tvm_layout_map(layout, own, local, index);
        for (unsigned d = 0; d < told->rank; d++)
            same = same &&
                   tile[d] == (d < told->rank - layout->rank ? 0 : index[d - (told->rank - layout->rank)]);
        if (same) return true;
    }
    return false;
}

/* Do different threads hold the element that a race is shown at? */
static inline bool prove_tells_right(const tvm_ir_program *program, uint32_t kernel, const tvm_proof *proof,
                                     unsigned *checked) {
    const prove_told told = prove_read_told(proof->races.text);
    tvm_ir_kernel *k = &program->kernels[kernel];
    if (proof->races.verdict != TVM_REFUTED) return true;
    return (told.now < 0 || told.now != told.before) &&
           prove_holds(program, k, proof->races.insn, &told, told.now, checked) &&
           prove_holds(program, k, proof->races.other, &told, told.before, checked);
}

/* ---- figures of the manual ---- */

enum { MANUAL_SIZE = 1 << 20, MANUAL_LINE = 200 };

/* The text of tvm-memory(7), which the caller frees; without it the suite ends. */
static inline char *manual_text(const char *top) {
    char path[4200];
    uint8_t *bytes = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "%s/man/tvm-memory.7", top);
    char *text = NULL;
    if (tvm_file_read(path, MANUAL_SIZE, &bytes, &size, NULL) == TVM_OK) text = strndup((char *)bytes, size);
    free(bytes);
    if (text == NULL) abort();
    return text;
}

/* Has tvm-memory(7) a line, of a table, of this name and these figures alone? Suites fail where it says
 * something else than what they have counted. */
static inline bool manual_says(const char *top, const char *name, const unsigned *figures, size_t count) {
    char line[MANUAL_LINE];
    int at = snprintf(line, sizeof line, "\n%s", name);
    for (size_t i = 0; i < count; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "\t%u", figures[i]);
    snprintf(line + at, sizeof line - (size_t)at, "\n");
    char *text = manual_text(top);
    bool good = strstr(text, line) != NULL;
    free(text);
    if (!good) fprintf(stderr, "tvm-memory(7) should have the line:%s", line);
    return good;
}

#endif
