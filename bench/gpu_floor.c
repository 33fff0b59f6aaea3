/* The read floor: a kernel that reads and nothing else, in 16-byte pieces with several in flight a thread,
 * tuned over the number in flight, the blocks and their threads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { DEPTHS = 2, TUNING_REPLAYS = 3, THREADS_MAX = 2048 };
static const unsigned depths[DEPTHS] = {4, 8}; /* 16-byte loads in flight */

typedef struct floor_shape {
    unsigned depth; /* index into depths */
    unsigned blocks, threads;
} floor_shape;

typedef struct floor_entry {
    struct floor_entry *next;
    size_t bytes;
    bool pdl;
    floor_shape best;
    double microseconds;
} floor_entry;

struct bench_floor {
    CUmodule module[DEPTHS][2]; /* [depth][pdl] */
    CUfunction function[DEPTHS][2];
    floor_entry *entries;
};

bench_floor *bench_floor_open(void) {
    return calloc(1, sizeof(bench_floor));
}

void bench_floor_close(bench *b, bench_floor *f) {
    if (!f) return;
    for (unsigned i = 0; i < DEPTHS; i++)
        for (unsigned pdl = 0; pdl < 2; pdl++)
            if (f->module[i][pdl]) b->driver.module_unload(f->module[i][pdl]);
    while (f->entries) {
        floor_entry *next = f->entries->next;
        free(f->entries);
        f->entries = next;
    }
    free(f);
}

/* ---- the kernel ---- */

/* for (i = thread; i + (depth - 1) * stride < n; i += depth * stride) depth loads; then the rest one by one.
 */
static const char prologue[] =
    ".visible .entry read(.param .u64 data, .param .u64 count, .param .u64 out) {\n"
    ".reg .b64 %p, %e, %o, %i, %s, %n, %a, %d;\n.reg .b32 %v<32>;\n.reg .b32 %x<4>;\n.reg .b32 %acc;\n.reg .pred %q;\n"
    "ld.param.u64 %p, [data]; ld.param.u64 %n, [count]; ld.param.u64 %o, [out];\n"
    "mov.u32 %x0, %ctaid.x; mov.u32 %x1, %ntid.x; mov.u32 %x2, %tid.x; mov.u32 %x3, %nctaid.x;\n"
    "mad.lo.u32 %x2, %x0, %x1, %x2; mul.lo.u32 %x3, %x3, %x1;\n"
    "cvt.u64.u32 %i, %x2; cvt.u64.u32 %s, %x3; shl.b64 %d, %s, 4; mov.u32 %acc, 0;\n";
static const char epilogue[] =
    "TAIL:\n"
    "setp.ge.u64 %q, %i, %n; @%q bra DONE;\n"
    "shl.b64 %a, %i, 4; add.u64 %a, %p, %a;\n"
    "ld.global.nc.L1::no_allocate.v4.u32 {%v0, %v1, %v2, %v3}, [%a];\n"
    "xor.b32 %acc, %acc, %v0; xor.b32 %acc, %acc, %v1; xor.b32 %acc, %acc, %v2; xor.b32 %acc, %acc, %v3;\n"
    "add.u64 %i, %i, %s; bra TAIL;\n"
    "DONE:\n";
static const char last[] = "setp.ne.u32 %q, %acc, 305419896; @%q ret; st.global.u32 [%o], %acc; ret;\n}\n";

static bool write_kernel(unsigned depth, bool pdl, char **text) {
    size_t length;
    FILE *out = open_memstream(text, &length);
    if (!out) return false;
    fprintf(out, ".version %s\n.target %s\n.address_size 64\n%s", pdl ? "7.8" : "7.4",
            pdl ? "sm_90" : "sm_80", prologue);
    if (pdl) fprintf(out, "griddepcontrol.launch_dependents;\n");
    fprintf(out,
            "LOOP:\nmad.lo.u64 %%e, %%s, %u, %%i; setp.ge.u64 %%q, %%e, %%n; @%%q bra TAIL;\n"
            "shl.b64 %%a, %%i, 4; add.u64 %%a, %%p, %%a;\n",
            depth - 1);
    for (unsigned i = 0; i < 4 * depth; i += 4)
        fprintf(
            out,
            "ld.global.nc.L1::no_allocate.v4.u32 {%%v%u, %%v%u, %%v%u, %%v%u}, [%%a]; add.u64 %%a, %%a, %%d;\n",
            i, i + 1, i + 2, i + 3);
    for (unsigned i = 0; i < 4 * depth; i++) fprintf(out, "xor.b32 %%acc, %%acc, %%v%u;\n", i);
    fprintf(out, "mad.lo.u64 %%i, %%s, %u, %%i; bra LOOP;\n%s", depth, epilogue);
    if (pdl) fprintf(out, "griddepcontrol.wait;\n");
    fputs(last, out);
    bool written = !ferror(out);
    if (fclose(out) == 0 && written) return true;
    free(*text);
    return false;
}

static bool load_kernel(bench *b, bench_floor *f, unsigned depth, bool pdl) {
    char *text = NULL;
    if (f->function[depth][pdl]) return true;
    if (!write_kernel(depths[depth], pdl, &text)) return bench_fail(b, "floor: out of memory");
    CUmodule *module = &f->module[depth][pdl];
    bool ok =
        bench_driver_ok(b, b->driver.module_load(module, text, 0, NULL, NULL), "floor: cuModuleLoadData") &&
        bench_driver_ok(b, b->driver.module_function(&f->function[depth][pdl], *module, "read"),
                        "floor: cuModuleGetFunction");
    free(text);
    return ok;
}

/* ---- its time ---- */

typedef struct floor_job {
    const bench_copies *copies;
    size_t bytes;
    bool pdl;
    CUfunction function;
    unsigned blocks, threads;
    void *out;
} floor_job;

static bool enqueue_read(bench *b, unsigned i, void *data) {
    floor_job *job = data;
    uint64_t address = (uint64_t)(uintptr_t)job->copies->at[i % job->copies->count];
    uint64_t count = job->bytes / 16, out = (uint64_t)(uintptr_t)job->out;
    void *parameters[] = {&address, &count, &out};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                   .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = job->blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = job->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = b->stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUresult result = job->pdl ? b->launch_ex(&config, job->function, parameters, NULL)
                               : b->driver.launch(job->function, job->blocks, 1, 1, job->threads, 1, 1, 0,
                                                  b->stream, parameters, NULL);
    return bench_driver_ok(b, result, "floor: launch");
}

static bool time_shape(bench *b, bench_floor *f, floor_job *job, const floor_shape *shape, unsigned replays,
                       double *microseconds) {
    bench_time time;
    if (!load_kernel(b, f, shape->depth, job->pdl)) return false;
    job->function = f->function[shape->depth][job->pdl];
    job->blocks = shape->blocks, job->threads = shape->threads;
    if (!enqueue_read(b, 0, job) ||
        !bench_measure(b, enqueue_read, job, bench_copies_launches(job->copies, BENCH_LAUNCHES), replays,
                       &time))
        return false;
    *microseconds = time.median;
    return true;
}

static bool tune(bench *b, bench_floor *f, floor_job *job, floor_shape *best) {
    double least = INFINITY;
    for (unsigned depth = 0; depth < DEPTHS; depth++)
        for (unsigned blocks = 1; blocks <= 8; blocks *= 2)
            for (unsigned threads = 256; threads <= 1024 && blocks * threads <= THREADS_MAX; threads *= 2) {
                floor_shape shape = {depth, blocks * b->multiprocessors, threads};
                double time;
                if (!time_shape(b, f, job, &shape, TUNING_REPLAYS, &time)) return false;
                if (time >= least) continue;
                least = time;
                *best = shape;
            }
    return true;
}

/* What was best for a number of bytes within an eighth is not looked for again. */
static const floor_entry *find(const bench_floor *f, size_t bytes, bool pdl, bool exact) {
    for (const floor_entry *e = f->entries; e; e = e->next) {
        size_t difference = e->bytes > bytes ? e->bytes - bytes : bytes - e->bytes;
        if (e->pdl == pdl && difference <= (exact ? 0 : bytes / 8)) return e;
    }
    return NULL;
}

bool bench_floor_time(bench *b, bench_floor *f, const bench_copies *copies, size_t bytes, bool pdl,
                      double *microseconds) {
    if (bytes > copies->bytes)
        return bench_fail(b, "floor: %zu bytes of copies of %zu", bytes, copies->bytes);
    if (pdl && !b->launch_ex) return bench_fail(b, "floor: the driver has no cuLaunchKernelEx");
    const floor_entry *known = find(f, bytes, pdl, true);
    if (known) {
        *microseconds = known->microseconds;
        return true;
    }
    floor_job job = {.copies = copies, .bytes = bytes, .pdl = pdl};
    floor_entry *entry = malloc(sizeof *entry);
    if (!entry) return bench_fail(b, "floor: out of memory");
    *entry = (floor_entry){.next = f->entries, .bytes = bytes, .pdl = pdl};
    known = find(f, bytes, pdl, false);
    if (known) entry->best = known->best;
    bool ok = bench_alloc(b, 16, &job.out) && (known || tune(b, f, &job, &entry->best)) &&
              time_shape(b, f, &job, &entry->best, BENCH_REPLAYS, &entry->microseconds);
    bench_free(b, job.out);
    if (!ok) {
        free(entry);
        return false;
    }
    f->entries = entry;
    *microseconds = entry->microseconds;
    return true;
}
