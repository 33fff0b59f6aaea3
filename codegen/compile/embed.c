#include "embed.h"

#include <stdlib.h>
#include <string.h>

#include "native.h"
#include "vbc.h"
#include "work.h"

static bool is_among(const tvm_target *targets, size_t count, tvm_target target) {
    for (size_t i = 0; i < count; i++)
        if (tvm_target_same(targets[i], target)) return true;
    return false;
}

tvm_status tvm_embed_parse(const char *list, tvm_target targets[TVM_EMBED_MAX], size_t *count,
                           tvm_diags *diags) {
    unsigned words = 0;
    *count = 0;
    if (strcmp(list, "none") == 0) return TVM_OK;
    for (const char *at = list;; at++) {
        char name[64];
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : (int)sizeof name, at);
        if (words++ == TVM_EMBED_MAX)
            return tvm_diag_add(diags, TVM_USAGE, NULL, NULL, "more than %d targets to embed", TVM_EMBED_MAX);
        tvm_status status = tvm_target_parse_native(name, &targets[*count], diags);
        if (!status && !is_among(targets, *count, targets[*count])) ++*count;
        at += length;
        if (status != TVM_OK || !*at) return status;
    }
}

/* ---- the jobs: a module each ---- */

typedef struct job {
    tvm_target target;
    bool ptx;
    tvm_module *module;
    tvm_status status;
    tvm_diags diags;
} job;

enum { MAX_JOBS = 2 * TVM_EMBED_MAX }; /* a cubin, and at most one PTX, of each target */

typedef struct work {
    const tvm_ir_program *program;
    const tvm_ptx_compiler *compiler;
    job jobs[MAX_JOBS];
    size_t count;
} work;

static tvm_status do_job(void *closure, unsigned thread, uint64_t number, tvm_diags *diags) {
    work *w = closure;
    job *j = &w->jobs[number];
    (void)thread, (void)diags;
    j->status = tvm_translate(w->program, j->target, &j->module, &j->diags);
    if (!j->status) j->status = tvm_module_check(w->program, j->module, &j->diags);
    if (!j->status && !j->ptx) j->status = tvm_ptx_compile(w->compiler, j->module, &j->diags);
    return TVM_OK; /* how each of them went is looked at when all are done */
}

static unsigned major_of(tvm_target target) {
    return target.arch / 10;
}

/* Is the target's architecture the lowest of its major number, the first time that it is there, or the
 * highest of all? */
static bool has_ptx(const tvm_target *targets, size_t count, size_t index) {
    const unsigned arch = targets[index].arch;
    bool lowest = true, highest = true;
    for (size_t i = 0; i < count; i++) {
        const unsigned other = targets[i].arch;
        if (i < index && other == arch) return false;
        lowest = lowest && (major_of(targets[i]) != major_of(targets[index]) || other >= arch);
        highest = highest && other <= arch;
    }
    return lowest || highest;
}

static void plan(work *w, const tvm_target *targets, size_t count) {
    for (size_t i = 0; i < count; i++) w->jobs[w->count++] = (job){.target = targets[i]};
    for (size_t i = 0; i < count; i++)
        if (has_ptx(targets, count, i))
            w->jobs[w->count++] = (job){.target = {targets[i].arch, '\0'}, .ptx = true};
}

/* ---- the images ---- */

static tvm_status add_image(tvm_ir_program *program, const job *j, const uint64_t hash[2], tvm_diags *diags) {
    const tvm_module *module = j->module;
    tvm_ir_image image = {.codegen = TVM_CODEGEN_VERSION, .hash = {hash[0], hash[1]}, .ptx = j->ptx};
    tvm_status status = tvm_module_abi(module, &image.facts, &image.fact_count, diags);
    if (status) return status;
    tvm_target_name(j->target, image.target);
    if (!j->ptx) memcpy(image.made_by, module->made_by, sizeof image.made_by);
    image.code = j->ptx ? (uint8_t *)module->ptx : module->cubin;
    image.code_size = j->ptx ? module->ptx_size : module->cubin_size;
    status = tvm_ir_program_add_image(program, &image) == TVM_NONE ? tvm_diag_no_memory(diags) : TVM_OK;
    free(image.facts);
    return status;
}

/* PTX that the architecture-specific instructions of the program cannot be written in, or whose target has no
 * room for it, is left out. */
static tvm_status finish(tvm_ir_program *program, const work *w, const uint64_t hash[2], tvm_diags *diags) {
    for (size_t i = 0; i < w->count; i++) {
        const job *j = &w->jobs[i];
        if (j->ptx && j->status == TVM_UNSUPPORTED) continue;
        for (size_t d = 0; j->status && d < j->diags.count; d++) {
            const tvm_diag *said = &j->diags.items[d];
            const tvm_place place = {.file = said->file, .line = said->line, .column = said->column};
            tvm_diag_add(diags, said->status, &place, said->hint, "%s", said->message);
        }
        tvm_status status = j->status ? j->status : add_image(program, j, hash, diags);
        if (status) return status;
    }
    return TVM_OK;
}

tvm_status tvm_embed(tvm_ir_program *program, const tvm_target *targets, size_t count,
                     const tvm_ptx_compiler *compiler, unsigned jobs, tvm_diags *diags) {
    uint64_t hash[2];
    tvm_ir_program_drop_images(program);
    tvm_status status = tvm_vbc_hash(program, hash, diags);
    if (status || count == 0) return status;
    work *w = calloc(1, sizeof *w);
    if (!w) return tvm_diag_no_memory(diags);
    w->program = program;
    w->compiler = compiler;
    plan(w, targets, count);
    jobs = tvm_work_threads(jobs);
    status = tvm_work(w->count, jobs < w->count ? jobs : (unsigned)w->count, do_job, w, NULL, diags);
    if (!status) status = finish(program, w, hash, diags);
    if (status) tvm_ir_program_drop_images(program);
    for (size_t i = 0; i < w->count; i++) {
        tvm_module_free(w->jobs[i].module);
        tvm_diags_free(&w->jobs[i].diags);
    }
    free(w);
    return status;
}
