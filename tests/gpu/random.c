/* Random programs (tests/generate) on the GPU against the interpreter: check_gpu --random N [--seed S]. Many
 * are one module, which a core compiles while others do; what takes the time is ptxas. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "assembler.h"
#include "generate/arguments.h"
#include "generate/batch.h"
#include "generate/generate.h"
#include "generate/shrink.h"
#include "suite.h"
#include "vbc.h"

enum {
    BATCH = 40,      /* programs of a module */
    LARGE = 64,      /* one program of so many is not small */
    WORKERS = 64,    /* at most */
    ARENA = 1 << 25, /* bytes on the GPU of a worker's tensors */
    ALIGN = 256,
    MARGIN_BYTE = 0xa5, /* around each tensor */
    SHOWN = 3,          /* programs that differ are made smaller and printed */
    SHRINKS = 300,
    INSTRUCTIONS = 1 << 22,
    TELL_SECONDS = 5
};

typedef struct hunt {
    tvm_context *gpu;
    uint64_t first, count;
    atomic_ullong next, programs, launches;
    atomic_uint wrong, lost; /* lost: programs of which there is no result */
    atomic_bool dead;        /* the GPU's context is */
    pthread_mutex_t lock;    /* of output, and of what follows */
    char *shown[SHOWN];
    unsigned shown_count;
    double start, told; /* seconds */
} hunt;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void tell(const hunt *h) {
    printf("%llu random programs, %llu launches, %u wrong, %u without a result (%.1f s)\n",
           (unsigned long long)atomic_load(&h->programs), (unsigned long long)atomic_load(&h->launches),
           atomic_load(&h->wrong), atomic_load(&h->lost), seconds() - h->start);
    fflush(stdout);
}

/* How far it has come, now and then. */
static void tell_at_times(hunt *h) {
    pthread_mutex_lock(&h->lock);
    if (seconds() - h->told > TELL_SECONDS) {
        h->told = seconds();
        tell(h);
    }
    pthread_mutex_unlock(&h->lock);
}

/* A worker's tensors. */
typedef struct arena {
    uint8_t *host;
    void *device;
    uint64_t at[TVM_MAX_PARAMS], used;
} arena;

static bool arena_make(hunt *h, arena *a) {
    a->host = malloc(ARENA);
    return a->host && tvm_memory_alloc(h->gpu, ARENA, &a->device) == TVM_OK;
}

static bool place_tensors(arena *a, const generate_launch *l) {
    a->used = ALIGN;
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        a->at[p] = a->used;
        if (l->tensors[p]) a->used += (l->bytes[p] + 2 * ALIGN - 1) / ALIGN * ALIGN;
    }
    if (a->used > ARENA) return false;
    memset(a->host, MARGIN_BYTE, a->used);
    for (uint32_t p = 0; p < l->kernel->param_count; p++)
        if (l->tensors[p]) memcpy(a->host + a->at[p], l->tensors[p], l->bytes[p]);
    return true;
}

/* Is every byte between the tensors as it was? */
static bool margins_hold(const arena *a, const generate_launch *l, tvm_why *why) {
    uint64_t from = 0;
    for (uint32_t p = 0; p <= l->kernel->param_count; p++) {
        bool last = p == l->kernel->param_count;
        if (!last && !l->tensors[p]) continue;
        for (uint64_t end = last ? a->used : a->at[p]; from < end; from++)
            if (a->host[from] != MARGIN_BYTE) {
                snprintf(why->text, sizeof why->text, "written outside of the tensors, before parameter %u",
                         p);
                return false;
            }
        if (!last) from = a->at[p] + l->bytes[p];
    }
    return true;
}

static bool run_on_gpu(hunt *h, tvm_kernel *kernel, arena *a, const generate_launch *l) {
    tvm_value values[TVM_MAX_PARAMS];
    for (uint32_t p = 0; p < l->kernel->param_count; p++) {
        values[p] = (tvm_value){.i = l->scalars[p].i, .f = l->scalars[p].f};
        if (l->tensors[p])
            values[p] = (tvm_value){.data = (uint8_t *)a->device + a->at[p], .bytes = l->bytes[p]};
    }
    return tvm_memory_write(h->gpu, a->device, a->host, a->used) == TVM_OK &&
           tvm_launchv(kernel, NULL, values, l->kernel->param_count) == TVM_OK &&
           tvm_synchronize(h->gpu, NULL) == TVM_OK &&
           tvm_memory_read(h->gpu, a->host, a->device, a->used) == TVM_OK;
}

static bool interpret(generate_launch *l, tvm_sanitize sanitize, tvm_why *why) {
    tvm_diags diags = {0};
    tvm_interp_kernel *ready = NULL;
    bool good = tvm_interp_prepare(l->program, l->kernel, &ready, &diags) == TVM_OK &&
                generate_launch_interpret(l, ready, INSTRUCTIONS, sanitize, &diags) == TVM_OK;
    if (!good)
        snprintf(why->text, sizeof why->text, "interpreter: %.180s",
                 diags.count ? diags.items[0].message : "?");
    tvm_interp_free(ready);
    tvm_diags_free(&diags);
    return good;
}

/* Does the kernel do on both what it does? Otherwise *why. */
static bool same_on_both(hunt *h, tvm_kernel *kernel, const tvm_ir_program *program, uint32_t index,
                         unsigned set, tvm_sanitize sanitize, arena *a, tvm_why *why) {
    generate_launch l;
    bool good = true;
    if (generate_launch_make(&l, program, index, set, 0, NULL) && place_tensors(a, &l)) {
        atomic_fetch_add(&h->launches, 1);
        good = interpret(&l, sanitize, why);
        if (good && !run_on_gpu(h, kernel, a, &l)) {
            snprintf(why->text, sizeof why->text, "%.190s", tvm_message(h->gpu));
            atomic_store(&h->dead, true);
            good = false;
        }
        good = good && margins_hold(a, &l, why);
        for (uint32_t p = 0; good && p < l.kernel->param_count; p++)
            good = !l.tensors[p] || generate_same(&l, p, l.tensors[p], a->host + a->at[p], why);
    }
    generate_launch_free(&l);
    return good;
}

/* ---- programs ---- */

typedef struct loaded {
    tvm_ir_program *program;
    tvm_program *code;
} loaded;

static void unload(loaded *l) {
    tvm_program_free(l->code);
    tvm_ir_program_free(l->program);
}

/* Assembled and compiled. */
static bool load(hunt *h, const char *text, loaded *l, tvm_why *why) {
    tvm_diags diags = {0};
    uint8_t *bytes = NULL;
    size_t size;
    *l = (loaded){.program = NULL};
    bool good = tvm_assemble_text(text, strlen(text), "random.vasm", NULL, &l->program, &diags) == TVM_OK &&
                tvm_vbc_write(l->program, 0, &bytes, &size, &diags) == TVM_OK;
    if (!good && diags.count) snprintf(why->text, sizeof why->text, "%.190s", diags.items[0].message);
    if (good && (tvm_load(h->gpu, bytes, size, &l->code) != TVM_OK ||
                 tvm_prepare(tvm_kernel_at(l->code, 0)) != TVM_OK)) {
        snprintf(why->text, sizeof why->text, "%.190s", tvm_message(h->gpu));
        good = false;
    }
    free(bytes);
    tvm_diags_free(&diags);
    return good;
}

static char *make(uint64_t seed) {
    tvm_why why;
    const generate_options options = {.small = seed % LARGE != 0, .clusters = true, .layouts_matter = true};
    return generate_program(seed, &options, &why);
}

static void note_wrong(hunt *h, uint64_t seed, const char *text, const tvm_why *why) {
    pthread_mutex_lock(&h->lock);
    atomic_fetch_add(&h->wrong, 1);
    if (h->shown_count < SHOWN) {
        printf("seed %llu: %s\n%s\n", (unsigned long long)seed, why->text, text);
        h->shown[h->shown_count++] = strdup(text);
    } else {
        printf("seed %llu: %s\n", (unsigned long long)seed, why->text);
    }
    fflush(stdout);
    pthread_mutex_unlock(&h->lock);
}

static unsigned set_of(uint64_t seed) {
    return (unsigned)(seed % GENERATE_SETS);
}

static void run_batch(hunt *h, uint64_t first, unsigned count, arena *a) {
    char *texts[BATCH];
    loaded l;
    tvm_why why = {""};
    for (unsigned i = 0; i < count; i++) texts[i] = make(first + i);
    char *all = generate_batch(texts, count);
    if (load(h, all, &l, &why)) {
        uint32_t index = 0;
        for (unsigned i = 0; i < count && !atomic_load(&h->dead); i++) {
            if (!texts[i]) continue;
            atomic_fetch_add(&h->programs, 1);
            if (!same_on_both(h, tvm_kernel_at(l.code, index), l.program, index, set_of(first + i),
                              TVM_SANITIZE_OFF, a, &why))
                note_wrong(h, first + i, texts[i], &why);
            index++;
        }
    } else {
        atomic_fetch_add(&h->lost, count);
        printf("seeds from %llu on: %s\n", (unsigned long long)first, why.text);
    }
    unload(&l);
    free(all);
    for (unsigned i = 0; i < count; i++) free(texts[i]);
    tell_at_times(h);
}

static void *work(void *data) {
    hunt *h = data;
    arena a = {.host = NULL};
    bool good = arena_make(h, &a);
    while (good && !atomic_load(&h->dead)) {
        uint64_t at = atomic_fetch_add(&h->next, BATCH);
        if (at >= h->count) break;
        run_batch(h, h->first + at, h->count - at < BATCH ? (unsigned)(h->count - at) : BATCH, &a);
    }
    if (!good) atomic_fetch_add(&h->lost, 1);
    tvm_memory_free(h->gpu, a.device);
    free(a.host);
    return NULL;
}

/* ---- making smaller ---- */

typedef struct attempt {
    hunt *h;
    arena *a;
} attempt;

/* Any set of arguments will do, as long as both have results and nothing undefined is read. */
static bool fails(const char *text, void *data) {
    attempt *t = data;
    loaded l;
    tvm_why why = {""};
    bool bad = false;
    if (!atomic_load(&t->h->dead) && load(t->h, text, &l, &why))
        for (unsigned set = 0; set < GENERATE_SETS && !bad; set++)
            bad = !same_on_both(t->h, tvm_kernel_at(l.code, 0), l.program, 0, set, TVM_SANITIZE_TEXT, t->a,
                                &why) &&
                  strncmp(why.text, "interpreter", strlen("interpreter")) != 0;
    unload(&l);
    return bad;
}

static void show(hunt *h) {
    arena a = {.host = NULL};
    attempt t = {h, &a};
    for (unsigned i = 0; i < h->shown_count; i++) {
        if (!atomic_load(&h->dead) && (a.host || arena_make(h, &a))) {
            char *small = shrink(h->shown[i], fails, &t, SHRINKS);
            printf("made smaller:\n%s\n", small);
            free(small);
        }
        free(h->shown[i]);
    }
    if (!atomic_load(&h->dead) && a.device) tvm_memory_free(h->gpu, a.device);
    free(a.host);
}

/* ---- the whole ---- */

bool gpu_random(tvm_context *gpu, uint64_t first, uint64_t count) {
    hunt h = {.gpu = gpu, .first = first, .count = count};
    pthread_t threads[WORKERS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = cores < 1 ? 1 : cores > WORKERS ? WORKERS : (size_t)cores, started = 0;
    h.start = h.told = seconds();
    pthread_mutex_init(&h.lock, NULL);
    while (started < wanted && pthread_create(&threads[started], NULL, work, &h) == 0) started++;
    if (started == 0) work(&h);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    tell(&h);
    show(&h);
    pthread_mutex_destroy(&h.lock);
    return atomic_load(&h.wrong) == 0 && atomic_load(&h.lost) == 0 && atomic_load(&h.programs) > 0;
}
