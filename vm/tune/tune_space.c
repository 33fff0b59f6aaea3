/* The space of a program, and its variants made by all cores. */
#include "tune.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "embed.h"
#include "fileio.h"
#include "lexer.h"
#include "native.h"
#include "vbc.h"

enum { NAP_MS = 5 };

const char *const tune_state_names[TUNE_STATES] = {"left", "dropped", "wrong", "failed", "measured"};
const char *const tune_cost_names[TUNE_COSTS] = {"time", "instructions", "bytes"};
const char *const tune_cost_units[TUNE_COSTS] = {"us", "instructions", "bytes"};

const char *tune_path(const tune *t, uint32_t variant, char path[TUNE_TEXT]) {
    snprintf(path, TUNE_TEXT, "%s/%u.vbc", t->folder, (unsigned)variant);
    return path;
}

/* With the values of a point, or (TVM_NONE) without any. files: to which those that are included are added;
 * NULL: to none. */
static tvm_status assemble(const tune *t, uint32_t point, tvm_tune_space *space, tvm_tool_files *files,
                           tvm_ir_program **program, tvm_diags *diags) {
    const tvm_source_options *o = &t->options.source;
    const tvm_tune_space *s = &t->space;
    size_t more = point == TVM_NONE ? 0 : s->name_count;
    const char *defines[TVM_TUNE_NAMES + 64];
    char text[TVM_TUNE_NAMES][2 * TVM_TUNE_VALUE + 4];
    if (o->define_count > 64) return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "more than 64 -D");
    for (size_t i = 0; i < o->define_count; i++) defines[i] = o->defines[i];
    for (size_t n = 0; n < more; n++) {
        snprintf(text[n], sizeof text[n], "%s=%s", s->names[n], s->values[(size_t)point * s->name_count + n]);
        defines[o->define_count + n] = text[n];
    }
    tvm_assembler_options how = tvm_source_assembler(o, files);
    how.defines = defines;
    how.define_count += more;
    how.space = space;
    return tvm_assemble_text(t->text, t->text_size, t->options.input, &how, program, diags);
}

/* False: the name is too long. */
static bool name_variant(const tvm_tune_space *s, uint32_t point, tune_variant *v) {
    size_t at = 0, to = 0;
    for (unsigned n = 0; n < s->name_count && at < TUNE_LABEL; n++)
        at += (size_t)snprintf(v->label + at, TUNE_LABEL - at, "%s%s=%s", n ? " " : "", s->names[n],
                               s->values[(size_t)point * s->name_count + n]);
    for (const char *c = v->label; *c; c++)
        if (*c != '=') v->suffix[to++] = *c == '-' ? 'm' : isalnum((unsigned char)*c) ? *c : '_';
    return at < TUNE_LABEL;
}

tvm_status tune_space_read(tune *t, tvm_diags *diags) {
    uint8_t *text = NULL;
    tvm_ir_program *program = NULL;
    tvm_status status = tvm_file_read(t->options.input, TVM_SOURCE_MAX, &text, &t->text_size, diags);
    t->text = (char *)text;
    if (status) return status;
    /* Its first point need not be one that assembles: that shows with the others. */
    assemble(t, TVM_NONE, &t->space, &t->files, &program, NULL);
    tvm_ir_program_free(program);
    program = NULL;
    if (!t->space.point_count) {
        status = assemble(t, TVM_NONE, NULL, NULL, &program, diags);
        tvm_ir_program_free(program);
        return status ? status
                      : tvm_diag_add(diags, TVM_INVALID, NULL, ".tune BM in [64, 128], STAGES in [2, 3]",
                                     "'%s' has nothing to tune: no .tune", t->options.input);
    }
    t->count = t->space.point_count;
    t->variants = calloc(t->count, sizeof *t->variants);
    if (!t->variants) return tvm_diag_no_memory(diags);
    for (uint32_t v = 0; v < t->count; v++) {
        tune_variant *variant = &t->variants[v];
        if (!name_variant(&t->space, v, variant))
            return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                                "the names and values of a point are longer than %d bytes: '%.60s...'",
                                TUNE_LABEL - 1, variant->label);
        variant->registers = -1;
        variant->spilled = -1;
        variant->rank = -1;
        variant->costs = calloc(t->shape_count, sizeof *variant->costs);
        if (!variant->costs) return tvm_diag_no_memory(diags);
        for (unsigned s = 0; s < t->shape_count; s++) variant->costs[s] = NAN;
    }
    return TVM_OK;
}

/* ---- building ---- */

typedef struct build {
    tune *t;
    tvm_target target;
    bool has_target, can_compile, embeds;
    tvm_ptx_compiler compiler;
    atomic_uint next, built;
} build;

static void drop(tune_variant *v, tune_state state, const tvm_diags *diags) {
    v->state = state;
    snprintf(v->why, sizeof v->why, "%s", diags->count ? diags->items[0].message : "out of memory");
    for (char *c = v->why; *c; c++)
        if (*c == '\n') *c = ' ';
}

/* Is the kernel one that the tuned name means: itself, or a variant of the entry? */
static bool is_meant(const tvm_ir_program *program, const char *name, uint32_t kernel) {
    if (!name || !strcmp(tvm_string(program, program->kernels[kernel].name), name)) return true;
    for (uint32_t e = 0; e < program->entry_count; e++) {
        if (strcmp(tvm_string(program, program->entries[e].head.name), name)) continue;
        for (uint32_t c = 0; c < program->entries[e].case_count; c++)
            if (program->entries[e].cases[c].kernel == kernel) return true;
    }
    return false;
}

/* What the report says: shared memory that is not there, and spills, of any kernel that is meant. */
static void read_report(const build *b, const tvm_ir_program *program, const tvm_module *module,
                        tune_variant *v) {
    bool any = false;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_kernel_code *code = &module->kernels[k];
        if (!is_meant(program, b->t->options.kernel, k)) continue;
        uint64_t bytes = 0;
        if (!tvm_kernel_shared_bytes(program, &program->kernels[k], b->target, &bytes, NULL) &&
            bytes > v->shared)
            v->shared = bytes;
        if (code->abi.absence == TVM_ABI_PRESENT) any = true;
        if (code->registers > v->registers) v->registers = code->registers;
        if (code->registers >= 0) {
            int64_t spilled = code->spill_stores > code->spill_loads ? code->spill_stores : code->spill_loads;
            if (spilled > v->spilled) v->spilled = spilled;
        }
    }
    char name[16];
    if (!any) {
        v->state = TUNE_DROPPED;
        snprintf(v->why, sizeof v->why,
                 "no code for %s: %" PRIu64 " bytes of shared memory, of %u, or an assume",
                 tvm_target_name(b->target, name), v->shared, tvm_target_shared_bytes(b->target));
    } else if (v->spilled > b->t->options.spills) {
        v->state = TUNE_DROPPED;
        snprintf(v->why, sizeof v->why, "%" PRId64 " bytes of a thread are spilled, at %d registers",
                 v->spilled, v->registers);
    }
}

static tvm_status translate(const build *b, tvm_ir_program *program, tune_variant *v, tvm_diags *diags) {
    tvm_module *module = NULL;
    tvm_status status = tvm_translate(program, b->target, &module, diags);
    /* Compiled for the report, even where it is compiled again for the file: only here are spills known. */
    if (!status && b->can_compile) status = tvm_ptx_compile(&b->compiler, module, diags);
    if (!status) read_report(b, program, module, v);
    tvm_module_free(module);
    if (!status && b->embeds && v->state == TUNE_WAITING)
        status = tvm_embed(program, &b->target, 1, &b->compiler, 1, diags);
    return status;
}

static void build_one(const build *b, uint32_t number) {
    tune_variant *v = &b->t->variants[number];
    tvm_diags diags = {0};
    tvm_ir_program *program = NULL;
    char path[TUNE_TEXT];
    tvm_status status = assemble(b->t, number, NULL, NULL, &program, &diags);
    /* What the log says of a variant need not be found out again: its code is only written out. */
    if (!status && b->has_target && v->state == TUNE_WAITING) status = translate(b, program, v, &diags);
    if (!status)
        status = tvm_vbc_write_file(program, tune_path(b->t, number, path), TVM_VBC_LINES | TVM_VBC_IMAGES,
                                    &diags);
    if (status) drop(v, TUNE_DROPPED, &diags);
    tvm_ir_program_free(program);
    tvm_diags_free(&diags);
}

static void *build_some(void *argument) {
    build *b = argument;
    for (uint32_t v = atomic_fetch_add(&b->next, 1); v < b->t->count; v = atomic_fetch_add(&b->next, 1)) {
        if (b->t->variants[v].state == TUNE_WAITING || b->t->variants[v].state == TUNE_TIMED) build_one(b, v);
        atomic_fetch_add(&b->built, 1);
    }
    return NULL;
}

/* On a GPU the variants get cubins; for the interpreter a target is asked for what is dropped alone. */
static tvm_status find_target(build *b, tvm_diags *diags) {
    tune *t = b->t;
    tvm_status status = TVM_OK;
    if (t->options.from) return TVM_OK; /* nothing is run */
    if (t->options.target)
        status = tvm_target_parse_native(t->options.target, &b->target, diags);
    else if (t->device.is_gpu)
        status =
            tvm_target_for_device((int)t->device.target / 10, (int)t->device.target % 10, &b->target, diags);
    else
        return TVM_OK;
    if (status) return status;
    b->has_target = true;
    status = tvm_ptx_compiler_find(&b->compiler, NULL, diags);
    b->can_compile = !status && b->compiler.kind != TVM_PTX_BY_DRIVER;
    if (b->can_compile) status = tvm_ptx_compiler_ask(&b->compiler, diags);
    b->embeds = t->device.is_gpu && b->can_compile;
    return status;
}

tvm_status tune_space_build(tune *t, tune_idle *idle, void *data, tvm_diags *diags) {
    build b = {.t = t};
    pthread_t builders[256];
    unsigned started = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned jobs = t->options.jobs ? t->options.jobs : cores > 0 ? (unsigned)cores : 1;
    tvm_status status = find_target(&b, diags);
    if (jobs > 256) jobs = 256;
    if (jobs > t->count) jobs = t->count;
    while (!status && started < jobs && !pthread_create(&builders[started], NULL, build_some, &b)) started++;
    if (!status && !started) build_some(&b);
    while (!status && atomic_load(&b.built) < t->count) {
        if (idle) idle(data, atomic_load(&b.built), t->count);
        nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
    }
    for (unsigned i = 0; i < started; i++) pthread_join(builders[i], NULL);
    tvm_ptx_compiler_free(&b.compiler);
    return status;
}
