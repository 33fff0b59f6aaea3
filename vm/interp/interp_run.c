/* Blocks over host threads, contexts over a block. */
#include "interp_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"
#include "sanitize.h"

/* ---- errors ---- */

static void stop_run(interp_run *run, tvm_status status) {
    if (run->status == TVM_OK) run->status = status;
    atomic_store(&run->stop, true);
    tvm_interp_changed(run);
}

tvm_status tvm_interp_no_memory(interp_run *run) {
    pthread_mutex_lock(&run->mutex);
    if (run->status == TVM_OK) tvm_diag_no_memory(run->diags);
    stop_run(run, TVM_NO_MEMORY);
    pthread_mutex_unlock(&run->mutex);
    return TVM_NO_MEMORY;
}

static tvm_status end_with(const interp_context *context, const interp_insn *insn, const interp_insn *other,
                           tvm_status status, interp_fault fault, const char *format, va_list arguments) {
    const interp_block *block = context->block;
    const tvm_interp_kernel *k = block->kernel;
    interp_run *run = block->run;
    char message[2048];
    vsnprintf(message, sizeof message, format, arguments);
    tvm_place place = {0};
    const char *mnemonic = "";
    if (insn) {
        if (insn->source->file != TVM_NONE) place.file = tvm_string(k->program, insn->source->file);
        place.line = insn->source->line;
        mnemonic = tvm_op(insn->source->op)->mnemonic;
    }
    if (run->sanitizer && status == TVM_FAULT) {
        tvm_sanitize_fault(context, insn, other, fault, message);
        return status;
    }
    pthread_mutex_lock(&run->mutex);
    if (run->status == TVM_OK)
        tvm_diag_add(run->diags, status, &place, NULL, "%s: block (%d,%d,%d): %s%s%s",
                     tvm_string(k->program, k->kernel->name), block->index[0], block->index[1],
                     block->index[2], mnemonic, insn ? ": " : "", message);
    stop_run(run, status);
    pthread_mutex_unlock(&run->mutex);
    return status;
}

tvm_status tvm_interp_end(const interp_context *context, const interp_insn *insn, tvm_status status,
                          const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end_with(context, insn, NULL, status, INTERP_FAULT, format, arguments);
    va_end(arguments);
    return status;
}

tvm_status tvm_interp_fail(const interp_context *context, const interp_insn *insn, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end_with(context, insn, NULL, TVM_FAULT, INTERP_FAULT, format, arguments);
    va_end(arguments);
    return TVM_FAULT;
}

tvm_status tvm_interp_fault(const interp_context *context, const interp_insn *insn, interp_fault kind,
                            const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end_with(context, insn, NULL, TVM_FAULT, kind, format, arguments);
    va_end(arguments);
    return TVM_FAULT;
}

tvm_status tvm_interp_fault_between(const interp_context *context, const interp_insn *insn,
                                    const interp_insn *other, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    end_with(context, insn, other, TVM_FAULT, INTERP_CLUSTER, format, arguments);
    va_end(arguments);
    return TVM_FAULT;
}

tvm_status tvm_interp_evaluate(const interp_context *context, const interp_insn *insn, uint32_t expr,
                               tvm_scalar *value) {
    tvm_why why = {{0}};
    if (tvm_expr_eval(context->block->kernel->kernel, expr, &context->env, value, &why) != TVM_OK)
        return tvm_interp_fail(context, insn, "%s", why.text);
    return TVM_OK;
}

/* ---- a block ---- */

/* May the block's own context do the instruction while teams of its roles run? Scalars and control are each
 * team's own; all else is for all warps. */
static bool is_apart(const interp_insn *insn) {
    const tvm_op_info *info = tvm_op(insn->source->op);
    return info->class <= TVM_CLASS_JUMP || info->traits & TVM_TRAIT_VALUE;
}

/* Runs a context until it is done or blocked. */
static tvm_status context_run(interp_context *context) {
    interp_block *block = context->block;
    const tvm_interp_kernel *k = block->kernel;
    block->registers = context->registers;
    while (context->state == INTERP_READY) {
        if (context->pc >= k->kernel->insn_count) {
            context->state = INTERP_DONE;
            break;
        }
        const interp_insn *insn = &k->insns[context->pc];
        if (block->running && context == block->contexts && !is_apart(insn)) {
            context->state = INTERP_AT_ROLES;
            break;
        }
        context->pc++;
        tvm_status status = block->slice-- ? TVM_OK : tvm_interp_next_slice(context, insn);
        if (status == TVM_OK) status = insn->execute(context, insn);
        /* one that waits is done again */
        if (block->counts && context->pc != (uint32_t)(insn - k->insns))
            block->counts->executed[insn - k->insns]++;
        if (status != TVM_OK) return status;
    }
    return TVM_OK;
}

void tvm_interp_context_text(const interp_context *context, char text[320]) {
    const tvm_interp_kernel *k = context->block->kernel;
    const tvm_insn *insn = &k->kernel->insns[context->pc];
    char who[96] = "the block", why[160];
    if (context->role != TVM_NONE) {
        const tvm_insn *source = &k->kernel->insns[context->role];
        const tvm_role role = tvm_role_of(k->kernel, source);
        int length = snprintf(who, sizeof who, "role '%.60s'", interp_slot_name(k, source->result));
        if (tvm_role_teams(&role) > 1)
            snprintf(who + length, sizeof who - (size_t)length, " %" PRIu32, context->index);
    }
    tvm_interp_waits_for(context, why);
    snprintf(text, 320, "%s, line %" PRIu32 ": %s: %s", who, insn->line, tvm_op(insn->op)->mnemonic, why);
}

/* Do all that wait do so at one barrier, to which others that have ended did not come? */
static bool are_missed(const interp_block *cluster) {
    const interp_barrier *barrier = NULL;
    bool ended = false, meets = false;
    for (uint32_t b = 0; b < cluster->cluster_size; b++)
        for (uint32_t c = 0; c < cluster[b].context_count; c++) {
            const interp_context *context = &cluster[b].contexts[c];
            if (context->state == INTERP_AT_ROLES) continue;
            ended |= context->state == INTERP_DONE;
            meets |= context->state == INTERP_AT_CLUSTER;
            if (context->state != INTERP_AT_BARRIER) continue;
            if (barrier && barrier != context->awaited) return false;
            barrier = context->awaited;
        }
    return ended && !barrier != !meets;
}

/* The block waits for its roles, so that what these wait for is the reason, where there are any. */
static tvm_status report_deadlock(interp_block *cluster) {
    const interp_context *first = NULL;
    char text[1600] = "", one[320];
    size_t used = 0;
    tvm_status status = tvm_interp_cast_end(cluster);
    if (status != TVM_OK) return status;
    for (uint32_t b = 0; b < cluster->cluster_size; b++)
        for (uint32_t c = 0; c < cluster[b].context_count; c++) {
            const interp_context *context = &cluster[b].contexts[c];
            if (context->state == INTERP_DONE || context->state == INTERP_AT_ROLES) continue;
            if (!first) first = context;
            tvm_interp_context_text(context, one);
            if (used >= sizeof text) continue;
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", used ? "; " : "");
            if (cluster->cluster_size > 1 && used < sizeof text)
                used += (size_t)snprintf(text + used, sizeof text - used, "rank %" PRIu32 ", ", b);
            if (used < sizeof text) used += (size_t)snprintf(text + used, sizeof text - used, "%s", one);
        }
    if (!first) first = cluster->contexts;
    return tvm_interp_fault(first, &cluster->kernel->insns[first->pc],
                            are_missed(cluster) ? INTERP_BARRIER : INTERP_DEADLOCK, "deadlock: %s", text);
}

/* Those that wait for other blocks may look again. */
static bool look_again(interp_block *block) {
    bool any = false;
    for (uint32_t c = 0; c < block->context_count; c++) any |= block->contexts[c].state == INTERP_AT_OTHERS;
    if (!any || !tvm_interp_sleep(block)) return false;
    for (uint32_t c = 0; c < block->context_count; c++)
        if (block->contexts[c].state == INTERP_AT_OTHERS) block->contexts[c].state = INTERP_READY;
    return true;
}

/* Runs the contexts that are ready, one after the other, each until it blocks; counts them, and those that
 * have ended. */
static tvm_status run_ready(interp_block *block, uint32_t *ran, uint32_t *done) {
    for (uint32_t c = 0; c < block->context_count; c++) {
        interp_context *context = &block->contexts[c];
        if (context->state == INTERP_READY) {
            tvm_status status = context_run(context);
            if (status != TVM_OK) return status;
            ++*ran;
        }
        if (context->state == INTERP_DONE) tvm_interp_finish_stores(context, 0);
        *done += context->state == INTERP_DONE;
    }
    return TVM_OK;
}

/* Those that wait for the cluster's turn go on if it has come; false: there are none. */
static bool look_for_turn(interp_block *cluster) {
    bool any = false;
    for (uint32_t b = 0; b < cluster->cluster_size; b++)
        for (uint32_t c = 0; c < cluster[b].context_count; c++) {
            interp_context *context = &cluster[b].contexts[c];
            if (context->state != INTERP_AT_TURN) continue;
            any = true;
            if (cluster->has_turn) context->state = INTERP_READY;
        }
    return any;
}

/* Until all contexts of the cluster's blocks are done, or none can go on, before the cluster's turn comes. */
static tvm_status schedule(interp_block *cluster, bool *waits) {
    uint32_t count = cluster->cluster_size * cluster->context_count;
    for (;;) {
        uint32_t ran = 0, done = 0;
        for (uint32_t b = 0; b < cluster->cluster_size; b++) {
            tvm_status status = run_ready(&cluster[b], &ran, &done);
            if (status != TVM_OK) return status;
        }
        if (done == count) return TVM_OK;
        if (atomic_load_explicit(&cluster->run->stop, memory_order_relaxed)) return TVM_OK;
        for (uint32_t b = 0; !ran && b < cluster->cluster_size; b++) ran += look_again(&cluster[b]);
        if (ran) continue;
        if (!look_for_turn(cluster)) return report_deadlock(cluster);
        *waits = !cluster->has_turn;
        if (*waits) return TVM_OK;
    }
}

static void reset_context(interp_context *context) {
    const interp_block *block = context->block;
    const tvm_ir_kernel *kernel = block->kernel->kernel;
    context->pc = 0;
    context->has_arrived = false;
    context->pair_commits = 0;
    context->pipelined = false;
    context->state = context->role == TVM_NONE ? INTERP_READY : INTERP_DONE;
    context->copies.count = 0;
    context->stores.count = 0;
    context->tensor_works.count = 0;
    context->groups = 0;
    memset(context->slots, 0, kernel->slot_count * sizeof *context->slots);
    for (uint32_t p = 0; p < kernel->param_count; p++)
        if (kernel->slots[p].kind == TVM_SLOT_SCALAR) context->slots[p] = block->run->args[p].scalar;
    context->env.slots = context->slots;
    for (unsigned d = 0; d < 3; d++) {
        context->env.block[d] = block->index[d];
        context->env.grid[d] = (int32_t)block->run->grid[d];
    }
}

static void reset_block(interp_block *block) {
    block->running = 0;
    block->bulk.count = block->casts.count = 0;
    block->meets = INTERP_APART;
    memset(block->turns, 0, sizeof block->turns);
    memset(block->barriers, 0, block->kernel->barrier_count * sizeof *block->barriers);
    for (uint32_t c = 0; c < block->context_count; c++) reset_context(&block->contexts[c]);
    if (block->counts) block->counts->blocks++;
}

tvm_status tvm_interp_cluster_go(interp_block *cluster, bool *waits) {
    *waits = false;
    tvm_status status = schedule(cluster, waits);
    if (*waits) return status;
    if (status == TVM_OK) status = tvm_interp_cast_end(cluster);
    for (uint32_t b = 0; b < cluster->cluster_size; b++) {
        if (status == TVM_OK) status = tvm_interp_bulk_end(&cluster[b]);
        if (status == TVM_OK) status = tvm_interp_tensor_end(&cluster[b]);
        tvm_interp_print_flush(&cluster[b]);
    }
    return status;
}

static void block_free(interp_block *block) {
    for (uint32_t c = 0; c < block->context_count; c++) {
        free(block->contexts[c].registers);
        free(block->contexts[c].slots);
        free(block->contexts[c].views);
        free(block->contexts[c].loops);
        free(block->contexts[c].copies.items);
        free(block->contexts[c].stores.items);
        free(block->contexts[c].tensor_works.items);
    }
    free(block->contexts);
    free(block->barriers);
    free(block->memory);
    free(block->scratch);
    free(block->bulk.items);
    free(block->casts.items);
    free(block->print);
    if (block->counts) free(block->counts->executed);
    free(block->counts);
}

static void *aligned_memory(size_t bytes) {
    return aligned_alloc(64, (bytes + INTERP_SLACK + 63) / 64 * 64);
}

static bool context_make(interp_block *block, tvm_team team, uint32_t role, uint32_t index) {
    const tvm_interp_kernel *k = block->kernel;
    interp_context *context = &block->contexts[block->context_count++];
    *context = (interp_context){.block = block, .team = team, .role = role, .index = index};
    context->registers = aligned_memory(k->register_bytes);
    context->slots = calloc((size_t)k->kernel->slot_count + 1, sizeof *context->slots);
    context->loops = calloc((size_t)k->kernel->insn_count + 1, sizeof *context->loops);
    context->views = calloc((size_t)k->view_count + 1, sizeof *context->views);
    return context->registers && context->slots && context->views && context->loops;
}

static bool make_teams(interp_block *block) {
    const tvm_ir_kernel *kernel = block->kernel->kernel;
    bool made = context_make(block, tvm_block_team(kernel), TVM_NONE, 0);
    for (uint32_t i = 0; i < kernel->insn_count && block->kernel->has_roles; i++) {
        if (tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, &kernel->insns[i]);
        for (uint32_t t = 0; t < tvm_role_teams(&role) && made; t++)
            made = context_make(block, tvm_role_team(&role, t), i, t);
    }
    return made;
}

static bool block_make(interp_block *block, interp_run *run) {
    const tvm_interp_kernel *k = run->kernel;
    *block = (interp_block){.run = run, .kernel = k};
    block->memory = aligned_memory(k->memory_bytes);
    block->scratch = aligned_memory(k->scratch_bytes);
    block->contexts = calloc(1 + TVM_MAX_TEAMS, sizeof *block->contexts);
    block->barriers = calloc((size_t)k->barrier_count + 1, sizeof *block->barriers);
    if (run->options->counts) {
        block->counts = calloc(1, sizeof *block->counts);
        if (!block->counts) return false;
        block->counts->executed = calloc((size_t)k->kernel->insn_count + 1, sizeof(uint64_t));
        if (!block->counts->executed) return false;
    }
    if (!block->memory || !block->scratch || !block->contexts || !block->barriers) return false;
    return make_teams(block);
}

/* ---- a launch ---- */

/* `ended` workers will change nothing any more; one that goes on to its next block may have stored what
 * others wait for. */
static void tell_waiting(interp_run *run, unsigned ended) {
    pthread_mutex_lock(&run->mutex);
    run->working -= ended;
    tvm_interp_changed(run);
    pthread_mutex_unlock(&run->mutex);
}

bool tvm_interp_cluster_make(interp_block cluster[TVM_MAX_CLUSTER], interp_run *run) {
    bool made = true;
    uint32_t size = tvm_cluster_blocks(run->kernel->kernel);
    for (uint32_t b = 0; b < size; b++) {
        made = block_make(&cluster[b], run) && made;
        cluster[b].cluster = cluster;
        cluster[b].cluster_size = size;
    }
    if (!made) tvm_interp_no_memory(run);
    return made;
}

/* Clusters are begun in the order of their indices, x fastest. */
void tvm_interp_cluster_begin(interp_block *cluster, uint64_t number) {
    const interp_run *run = cluster->run;
    const uint32_t *extent = run->kernel->kernel->cluster;
    uint64_t index[3] = {0};
    for (unsigned d = 0; d < 3; d++) {
        index[d] = number % (run->grid[d] / extent[d]);
        number /= run->grid[d] / extent[d];
    }
    for (uint32_t b = 0; b < cluster->cluster_size; b++) {
        const uint32_t at[3] = {b % extent[0], b / extent[0] % extent[1], b / extent[0] / extent[1]};
        for (unsigned d = 0; d < 3; d++) cluster[b].index[d] = (int32_t)(index[d] * extent[d] + at[d]);
        reset_block(&cluster[b]);
    }
    cluster->has_turn = false;
    if (run->sanitizer) tvm_sanitize_cluster(cluster);
}

/* What a worker's block has counted. */
static void add_counts(interp_run *run, const interp_block *block) {
    tvm_launch_counts *all = run->options->counts;
    const tvm_launch_counts *own = block->counts;
    if (!own || !own->executed) return;
    pthread_mutex_lock(&run->mutex);
    all->blocks += own->blocks;
    if (own->turns > all->turns) all->turns = own->turns;
    all->global_read += own->global_read;
    all->global_written += own->global_written;
    all->shared_read += own->shared_read;
    all->shared_written += own->shared_written;
    for (uint32_t i = 0; i < run->kernel->kernel->insn_count; i++) {
        all->instructions += own->executed[i];
        if (all->executed) all->executed[i] += own->executed[i];
    }
    pthread_mutex_unlock(&run->mutex);
}

void tvm_interp_cluster_free(interp_block *cluster) {
    uint32_t size = cluster->cluster_size;
    for (uint32_t b = 0; b < size; b++) {
        add_counts(cluster->run, &cluster[b]);
        block_free(&cluster[b]);
    }
}

static void *worker(void *argument) {
    interp_run *run = argument;
    interp_block cluster[TVM_MAX_CLUSTER];
    bool made = tvm_interp_cluster_make(cluster, run), waits;
    while (made && !atomic_load_explicit(&run->stop, memory_order_relaxed)) {
        uint64_t number = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
        if (number >= run->blocks / cluster->cluster_size) break;
        tvm_interp_cluster_begin(cluster, number);
        tvm_status status = tvm_interp_cluster_go(cluster, &waits);
        if (status != TVM_OK && !(status == TVM_FAULT && run->sanitizer)) break;
        if (run->kernel->waits) tell_waiting(run, 0);
    }
    tvm_interp_cluster_free(cluster);
    tell_waiting(run, 1);
    return NULL;
}

/* The calling thread works, too: the launch goes on with fewer when threads cannot be had. */
void tvm_interp_work(interp_run *run, unsigned threads, void *(*body)(void *run)) {
    enum { MOST = 256 };
    pthread_t others[MOST];
    unsigned started = 0;
    if (threads > MOST) threads = MOST;
    if (threads > run->blocks) threads = (unsigned)run->blocks;
    run->working = threads;
    while (started + 1 < threads && pthread_create(&others[started], NULL, body, run) == 0) started++;
    if (started + 1 < threads) tell_waiting(run, threads - 1 - started);
    body(run);
    for (unsigned t = 0; t < started; t++) pthread_join(others[t], NULL);
}

/* ---- global tensors ---- */

static tvm_status find_global(interp_run *run, uint32_t slot, const tvm_launch_env *env, tvm_diags *diags) {
    const tvm_interp_kernel *k = run->kernel;
    interp_global *global = interp_run_global(run, slot);
    tvm_status status =
        tvm_launch_shape(k->program, k->kernel, slot, env, global->shape, &global->bytes, diags);
    return status == TVM_OK ? tvm_launch_strides(k->program, k->kernel, slot, env, global->stride, diags)
                            : status;
}

/* Extents that have no value are an error where the view is made, if it is. */
static void find_views(interp_run *run, const tvm_launch_env *env) {
    const tvm_interp_kernel *k = run->kernel;
    for (uint32_t s = 0; s < k->kernel->slot_count; s++)
        if (interp_slot(k, s)->view && interp_slot(k, s)->kind == TVM_SLOT_GLOBAL)
            interp_run_global(run, s)->known = find_global(run, s, env, NULL) == TVM_OK;
}

/* Undefined contents are all ones, as those of alloc-shared. */
static tvm_status make_global(interp_run *run, const tvm_launch_tensor *tensor, tvm_diags *diags) {
    interp_global *global = interp_run_global(run, tensor->slot);
    if (global->bytes <= PTRDIFF_MAX / 2) global->data = aligned_memory(global->bytes);
    if (!global->data)
        return tvm_diag_add(diags, TVM_DEVICE_MEMORY, NULL, NULL,
                            "kernel '%s': out of memory: %llu bytes for global tensor '%%%s' cannot be had",
                            tvm_string(run->kernel->program, run->kernel->kernel->name),
                            (unsigned long long)global->bytes, interp_slot_name(run->kernel, tensor->slot));
    memset(global->data, tensor->clean ? 0 : 0xff, global->bytes);
    return TVM_OK;
}

static tvm_status make_globals(interp_run *run, const tvm_interp_options *options, tvm_diags *diags) {
    const tvm_interp_kernel *k = run->kernel;
    uint32_t params = k->kernel->param_count;
    tvm_scalar *scalars = calloc((size_t)params + 1, sizeof *scalars);
    run->globals = calloc((size_t)params + k->launch_tensor_count + k->view_count + 1, sizeof *run->globals);
    if (!scalars || !run->globals) {
        free(scalars);
        return tvm_diag_no_memory(diags);
    }
    tvm_launch_env env = {.scalars = scalars, .multiprocessors = TVM_INTERP_MULTIPROCESSORS};
    if (options && options->multiprocessors) env.multiprocessors = options->multiprocessors;
    if (options) env.target = options->target, env.traits = options->traits;
    memcpy(env.grid, run->grid, sizeof env.grid);
    for (uint32_t p = 0; p < params; p++) {
        scalars[p] = run->args[p].scalar;
        run->globals[p].data = run->args[p].data;
    }
    tvm_status status = TVM_OK;
    for (uint32_t p = 0; p < params && status == TVM_OK; p++)
        if (interp_slot(k, p)->kind == TVM_SLOT_GLOBAL) status = find_global(run, p, &env, diags);
    for (uint32_t i = 0; i < k->launch_tensor_count && status == TVM_OK; i++) {
        status = find_global(run, k->launch_tensors[i].slot, &env, diags);
        if (status == TVM_OK) status = make_global(run, &k->launch_tensors[i], diags);
    }
    if (status == TVM_OK) find_views(run, &env);
    free(scalars);
    return status;
}

static void free_globals(interp_run *run) {
    const tvm_interp_kernel *k = run->kernel;
    for (uint32_t i = 0; run->globals && i < k->launch_tensor_count; i++)
        free(run->globals[k->kernel->param_count + i].data);
    free(run->globals);
}

/* What clean asks of the program: nothing but zero bits when the last block has ended. */
static tvm_status check_clean(const interp_run *run, const tvm_launch_tensor *tensor, tvm_diags *diags) {
    const tvm_interp_kernel *k = run->kernel;
    const interp_global *global = interp_run_global(run, tensor->slot);
    const uint8_t *data = global->data;
    uint64_t at = 0;
    while (at < global->bytes && !data[at]) at++;
    if (at == global->bytes) return TVM_OK;
    const tvm_insn *insn = &k->kernel->insns[tensor->insn];
    tvm_place place = {.line = insn->line};
    if (insn->file != TVM_NONE) place.file = tvm_string(k->program, insn->file);
    return tvm_diag_add(diags, TVM_FAULT, &place, NULL,
                        "%s: clean tensor '%%%s' is not zero at the end of the launch: element %llu of %llu",
                        tvm_string(k->program, k->kernel->name), interp_slot_name(k, tensor->slot),
                        (unsigned long long)(at * 8 / interp_slot(k, tensor->slot)->dtype.bits),
                        (unsigned long long)(global->bytes * 8 / interp_slot(k, tensor->slot)->dtype.bits));
}

/* Do blocks that take turns run side by side? Not where one may sleep for another, or they are in order for
 * another reason. */
static bool takes_turns(const interp_run *run) {
    const tvm_interp_kernel *k = run->kernel;
    return k->takes_turns && !k->in_order && !k->waits && !run->sanitizer;
}

static tvm_status run_blocks(interp_run *run, unsigned threads) {
    const tvm_interp_kernel *k = run->kernel;
    atomic_init(&run->next, run->first / tvm_cluster_blocks(k->kernel));
    atomic_init(&run->stop, false);
    pthread_mutex_init(&run->mutex, NULL);
    pthread_mutex_init(&run->atomics, NULL);
    pthread_cond_init(&run->changed, NULL);
    if (takes_turns(run))
        tvm_interp_run_turns(run, threads);
    else
        tvm_interp_work(run, k->takes_turns ? 1 : threads, worker);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->atomics);
    pthread_mutex_destroy(&run->mutex);
    tvm_status status = run->status;
    for (uint32_t i = 0; i < k->launch_tensor_count && status == TVM_OK && !tvm_sanitize_found(run); i++)
        if (k->launch_tensors[i].clean) status = check_clean(run, &k->launch_tensors[i], run->diags);
    return status;
}

tvm_status tvm_interp_run(const tvm_interp_kernel *kernel, const tvm_interp_arg *args, const uint32_t grid[3],
                          const tvm_interp_options *options, tvm_diags *diags) {
    interp_run run = {.kernel = kernel, .args = args, .diags = diags, .output = stdout};
    unsigned threads = options ? options->threads : 0;
    if (options && options->output) run.output = options->output;
    if (threads == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        threads = cores > 0 ? (unsigned)cores : 1;
    }
    if (kernel->in_order || (options && options->sanitize)) threads = 1;
    memcpy(run.grid, grid, sizeof run.grid);
    run.blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    if (run.blocks == 0) return TVM_OK;
    if (options && options->block_count) {
        run.first = options->first_block;
        run.blocks = run.first + options->block_count;
    }
    tvm_interp_limits_begin(&run, options);
    tvm_status status = make_globals(&run, options, diags);
    if (status == TVM_OK && run.options->sanitize) status = tvm_sanitize_begin(&run);
    if (status == TVM_OK) status = run_blocks(&run, threads);
    if (run.sanitizer) status = tvm_sanitize_end(&run, status);
    free_globals(&run);
    return status;
}
