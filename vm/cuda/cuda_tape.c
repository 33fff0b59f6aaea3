#include "config.h"
#ifdef HAVE_CUDA_H

#include "cuda_tape.h"

#include <stdlib.h>
#include <string.h>

#include "image.h"

#if CUDA_VERSION >= 12000

/* Which body each launch runs: launches of the same kernel share one. */
typedef struct bodies {
    tvm_persistent_body *all;
    uint32_t *of; /* a launch's */
    uint32_t count;
} bodies;

static bool find_bodies(const tvm_device_node *nodes, uint32_t count, bodies *found) {
    found->all = calloc(count + (size_t)1, sizeof *found->all);
    found->of = calloc(count + (size_t)1, sizeof *found->of);
    if (!found->all || !found->of) return false;
    for (uint32_t i = 0; i < count; i++) {
        const cuda_code *code = nodes[i].code;
        const tvm_persistent_body body = {code->program, nodes[i].launch->kernel};
        uint32_t at = 0;
        while (at < found->count &&
               (found->all[at].program != body.program || found->all[at].kernel != body.kernel))
            at++;
        if (at == found->count) found->all[found->count++] = body;
        found->of[i] = at;
    }
    return true;
}

/* ---- code ---- */

/* As of any kernel (cuda_load.c). */
enum { SHARED_UNASKED = 48 * 1024 };

static tvm_status load(cuda_tape *tape, const tvm_module *module, tvm_diags *diags) {
    cuda_device *device = tape->device;
    const tvm_cuda_driver *driver = &device->driver;
    const void *code = module->cubin ? (const void *)module->cubin : module->ptx;
    CUresult result = driver->module_load(&tape->module, code, 0, NULL, NULL);
    if (result) return tvm_cuda_result(device, result, "cuModuleLoadDataEx", diags);
    result = driver->module_function(&tape->function, tape->module, TVM_PERSISTENT_NAME);
    if (result) return tvm_cuda_result(device, result, "cuModuleGetFunction", diags);
    if (tape->shared_bytes > SHARED_UNASKED)
        result = driver->function_set(tape->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      (int)tape->shared_bytes);
    return tvm_cuda_result(device, result, "cuFuncSetAttribute", diags);
}

/* The parameters lie as the launches' own code takes them. */
static bool same_rows(const tvm_kernel_abi *a, const tvm_kernel_abi *b) {
    return a->param_count == b->param_count &&
           !memcmp(a->params, b->params, a->param_count * sizeof a->params[0]);
}

static tvm_status make_code(cuda_tape *tape, const bodies *of, const tvm_device_node *nodes, uint32_t count,
                            bool notes_times, tvm_diags *diags) {
    cuda_device *device = tape->device;
    tvm_module *module = NULL;
    tvm_diags warnings = {0};
    uint32_t resident = 0;
    const tvm_image_request request = {.target = device->target,
                                       .capability = device->capability,
                                       .cache = device->cache,
                                       .observer = device->observer};
    tvm_status status =
        tvm_translate_persistent(of->all, of->count, device->target, notes_times, &module, &resident, diags);
    if (!status) status = tvm_image_compile(&request, module, &warnings, diags);
    for (uint32_t i = 0; !status && i < count; i++) {
        const cuda_code *code = nodes[i].code;
        if (!same_rows(&code->kernels[nodes[i].launch->kernel].abi, &module->kernels[1 + of->of[i]].abi))
            status =
                tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, "make the program's code anew",
                             "launch '%s': the kernel's code is not of this code generator", nodes[i].name);
    }
    if (!status) {
        tape->threads = module->kernels[0].abi.threads;
        tape->shared_bytes = module->kernels[0].abi.shared_bytes;
        tape->row_bytes = tvm_persistent_row_bytes(module);
        status = load(tape, module, diags);
    }
    tvm_cuda_warn(device, &warnings);
    tvm_diags_free(&warnings);
    tvm_module_free(module);
    return status;
}

/* ---- co-residency ---- */

static uint64_t blocks_of(const tvm_device_launch *launch) {
    return (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
}

/* As many blocks as are resident at a time. The tape's order gives each of as many tasks in a row a block of
 * its own, so that blocks of a launch that wait for each other all come to run. */
static tvm_status find_workers(cuda_tape *tape, const tvm_device_node *nodes, uint32_t count,
                               tvm_diags *diags) {
    int blocks = 0;
    CUresult result =
        tape->device->driver.active_blocks(&blocks, tape->function, (int)tape->threads, tape->shared_bytes);
    if (result)
        return tvm_cuda_result(tape->device, result, "cuOccupancyMaxActiveBlocksPerMultiprocessor", diags);
    tape->workers = blocks > 0 ? (uint32_t)blocks * tape->device->multiprocessors : 0;
    if (!tape->workers)
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "no block of the persistent kernel, of %u threads, has room on a multiprocessor",
                            tape->threads);
    for (uint32_t i = 0; i < count; i++) {
        const cuda_code *code = nodes[i].code;
        if (!code->kernels[nodes[i].launch->kernel].waits || blocks_of(nodes[i].launch) <= tape->workers)
            continue;
        return tvm_diag_add(
            diags, TVM_LIMIT, NULL,
            "name a variant with fewer blocks, or with as many resident ones as the others",
            "launch '%s': its %llu blocks wait for each other, and %u blocks of the persistent kernel are resident "
            "at a time",
            nodes[i].name, (unsigned long long)blocks_of(nodes[i].launch), tape->workers);
    }
    return TVM_OK;
}

/* ---- memory ---- */

enum { ALIGNMENT = 256 };

typedef struct layout {
    uint64_t rows, waits, counters, times, bytes; /* from the first byte */
} layout;

static uint64_t place(uint64_t *end, uint64_t bytes) {
    uint64_t at = *end;
    *end += (bytes + (ALIGNMENT - 1)) / ALIGNMENT * ALIGNMENT;
    return at;
}

static layout plan(const tvm_tape *tape, uint32_t row_bytes, bool notes_times) {
    layout l = {0};
    l.rows = place(&l.bytes, (uint64_t)tape->task_count * row_bytes);
    l.waits = place(&l.bytes, tape->wait_count * sizeof(tvm_persistent_wait));
    l.counters = place(&l.bytes, (tape->counter_count + UINT64_C(1)) * TVM_PERSISTENT_COUNTER_BYTES);
    l.times = place(&l.bytes, notes_times ? tape->task_count * sizeof(tvm_persistent_times) : 0);
    return l;
}

/* A launch that may begin early and does not wait itself has to be waited for. */
static bool waits_itself(const tvm_device_node *node) {
    const cuda_code *code = node->code;
    return node->early && code->kernels[node->launch->kernel].abi.flags & TVM_ABI_WAITS_FOR_DEPENDENCY;
}

static tvm_persistent_row row_of(const tvm_tape *tape, const tvm_tape_task *task,
                                 const tvm_device_node *nodes, const bodies *of) {
    const uint32_t *grid = nodes[task->launch].launch->grid;
    tvm_persistent_row row = {
        .body = of->of[task->launch],
        .is_early = waits_itself(&nodes[task->launch]),
        .block = {task->first % grid[0], task->first / grid[0] % grid[1], task->first / grid[0] / grid[1]},
        .grid = {grid[0], grid[1], grid[2]},
        .counter = task->counter * TVM_PERSISTENT_COUNTER_BYTES,
        .raise = task->raise};
    if (!task->wait_count) return row;
    row.wait = tape->waits[task->first_wait].counter * TVM_PERSISTENT_COUNTER_BYTES;
    row.value = tape->waits[task->first_wait].value;
    row.more = task->first_wait + 1;
    row.more_count = task->wait_count - 1;
    return row;
}

static void fill(uint8_t *bytes, const layout *l, uint32_t row_bytes, const tvm_tape *tape,
                 const tvm_device_node *nodes, const bodies *of, const cuda_params *params) {
    tvm_persistent_wait *waits = (void *)(bytes + l->waits);
    for (uint32_t i = 0; i < tape->task_count; i++) {
        const tvm_persistent_row row = row_of(tape, &tape->tasks[i], nodes, of);
        uint8_t *to = bytes + l->rows + (uint64_t)i * row_bytes;
        memcpy(to, &row, sizeof row);
        memcpy(to + sizeof row, params[tape->tasks[i].launch].bytes, row_bytes - sizeof row);
    }
    for (uint32_t i = 0; i < tape->wait_count; i++)
        waits[i] = (tvm_persistent_wait){tape->waits[i].counter * TVM_PERSISTENT_COUNTER_BYTES,
                                         tape->waits[i].value};
}

static tvm_status make_memory(cuda_tape *tape, const tvm_tape *rows, const tvm_device_node *nodes,
                              const bodies *of, const cuda_params *params, bool notes_times,
                              tvm_diags *diags) {
    const tvm_cuda_driver *driver = &tape->device->driver;
    const layout l = plan(rows, tape->row_bytes, notes_times);
    CUresult result = driver->memory_alloc(&tape->memory, l.bytes);
    if (result) return tvm_cuda_result(tape->device, result, "cuMemAlloc", diags);
    uint8_t *bytes = calloc(1, l.bytes);
    if (!bytes) return tvm_diag_no_memory(diags);
    fill(bytes, &l, tape->row_bytes, rows, nodes, of, params);
    result = driver->memory_write(tape->memory, bytes, l.bytes);
    free(bytes);
    tape->times = notes_times ? tape->memory + l.times : 0;
    tape->params = (tvm_persistent_params){.rows = tape->memory + l.rows,
                                           .waits = tape->memory + l.waits,
                                           .counters = tape->memory + l.counters,
                                           .times = tape->times,
                                           .tasks = rows->task_count,
                                           .counter_count = rows->counter_count};
    return tvm_cuda_result(tape->device, result, "cuMemcpyHtoD", diags);
}

/* ---- the whole ---- */

tvm_status tvm_cuda_tape_make(cuda_device *device, const tvm_device_node *nodes, uint32_t count,
                              const tvm_tape *rows, const cuda_params *params, cuda_tape **made,
                              tvm_diags *diags) {
    bool notes_times = rows->notes_times;
    bodies of = {0};
    cuda_tape *tape = calloc(1, sizeof *tape);
    bool has_memory = tape && find_bodies(nodes, count, &of);
    tvm_status status = has_memory ? TVM_OK : tvm_diag_no_memory(diags);
    if (!status) {
        tape->device = device;
        status = make_code(tape, &of, nodes, count, notes_times, diags);
    }
    if (!status) status = find_workers(tape, nodes, count, diags);
    if (!status) status = make_memory(tape, rows, nodes, &of, params, notes_times, diags);
    free(of.all);
    free(of.of);
    if (status) {
        tvm_cuda_tape_free(tape);
        return status;
    }
    *made = tape;
    return TVM_OK;
}

CUDA_KERNEL_NODE_PARAMS tvm_cuda_tape_node(cuda_tape *tape) {
    tvm_persistent_params *p = &tape->params;
    void *const addresses[] = {&p->rows, &p->waits, &p->counters, &p->times, &p->tasks, &p->counter_count};
    memcpy(tape->addresses, addresses, sizeof addresses);
    uint32_t blocks = p->tasks < tape->workers ? p->tasks : tape->workers;
    return (CUDA_KERNEL_NODE_PARAMS){.func = tape->function,
                                     .gridDimX = blocks ? blocks : 1,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = tape->threads,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .sharedMemBytes = tape->shared_bytes,
                                     .kernelParams = tape->addresses};
}

void tvm_cuda_tape_free(cuda_tape *tape) {
    if (!tape) return;
    if (tape->memory) tape->device->driver.memory_free(tape->memory);
    if (tape->module) tape->device->driver.module_unload(tape->module);
    free(tape);
}

#endif
#endif /* HAVE_CUDA_H */
