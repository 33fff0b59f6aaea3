/* The elements that an instruction accesses: the tensors' shadows, a launch and its blocks. */
#include "sanitize_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static uint32_t event_actor(const sanitizer *s, const interp_context *context,
                            const sanitize_access *access) {
    if (access->actor == SANITIZE_BULK) { /* the mbarrier may be another block's */
        const interp_block *of = context->block->cluster;
        while (access->barrier < of->barriers || access->barrier >= of->barriers + of->kernel->barrier_count)
            of++;
        return san_barrier_actor(s, &s->blocks[of - of->cluster], (uint32_t)(access->barrier - of->barriers));
    }
    return san_actor_of(s, context, access->actor == SANITIZE_DONE ? SANITIZE_THREADS : access->actor);
}

/* When it ends, for the actors that go on beside the team. */
static uint32_t event_time(sanitizer *s, const interp_context *context, const sanitize_access *access) {
    switch (access->actor) {
    case SANITIZE_COPY:
        return (uint32_t)context->groups + 1;
    case SANITIZE_STORE_READ:
    case SANITIZE_STORE_WRITE:
        return san_context_of(s, context)->stores + 1;
    case SANITIZE_BULK:
        return (uint32_t)access->barrier->phases + 1;
    case SANITIZE_TENSOR:
        return san_context_of(s, context)->commits + 1;
    case SANITIZE_DONE:
        return 0;
    case SANITIZE_THREADS:
    case SANITIZE_MMA:
        break;
    }
    return s->now;
}

/* One of the threads that hold an element does it; of other accesses all do. */
static bool is_of_one(const interp_insn *insn, sanitize_mode mode) {
    bool atomic = mode == SANITIZE_ATOMIC || mode == SANITIZE_ATOMIC_BLOCK;
    return atomic || insn->source->op == TVM_OP_STORE_CLUSTER;
}

/* By its address, since tensors may share memory, and views do; NULL: it has no elements. */
static san_region *find_region(const sanitizer *s, const sanitize_access *access, uintptr_t data,
                               bool shared) {
    const san_block *block = &s->blocks[access->owner - access->owner->cluster];
    san_region *regions = shared ? block->shared : s->regions;
    uint32_t count = shared ? s->kernel->kernel->slot_count : s->region_count;
    for (uint32_t r = 0; r < count; r++)
        if (data - regions[r].base < regions[r].bytes) return &regions[r];
    return NULL;
}

bool tvm_sanitize_open(interp_context *context, const interp_insn *insn, const sanitize_access *access,
                       sanitize_walk *walk) {
    sanitizer *s = context->block->run->sanitizer;
    const tvm_interp_kernel *k = s->kernel;
    bool shared = interp_slot(k, access->memory)->kind != TVM_SLOT_GLOBAL; /* or in tensor memory */
    uint32_t number = (uint32_t)(insn - k->insns);
    tvm_dtype dtype = interp_slot(k, access->memory)->dtype;
    uintptr_t data = (uintptr_t)(shared ? interp_tensor(access->owner, access->memory)
                                        : tvm_interp_data(context, access->memory));
    *walk = (sanitize_walk){.context = context,
                            .sanitizer = s,
                            .region = find_region(s, access, data, shared),
                            .bits = shared ? 8 * tvm_dtype_container(dtype) : dtype.bits,
                            .mode = access->mode,
                            .updates = access->updates,
                            .is_cast = access->is_cast,
                            .mask = is_of_one(insn, access->mode) ? SAN_THREAD : UINT16_MAX,
                            .actor = access->actor,
                            .slot = access->memory,
                            .rank = (uint32_t)(access->owner - access->owner->cluster)};
    if (!walk->region) return false;
    walk->first = (data - walk->region->base) / walk->region->granule;
    walk->early = !shared && tvm_san_is_early(s, context);
    bool made = tvm_san_threads(s, context, access, number, walk);
    san_event event = {.actor = event_actor(s, context, access),
                       .time = event_time(s, context, access),
                       .insn = number,
                       .layout = walk->layout,
                       .mode = (uint8_t)access->mode,
                       .rank = (uint8_t)(context->block - context->block->cluster),
                       .sums = access->sums};
    if (made) walk->event = tvm_san_event(s, san_context_of(s, context), &event);
    if (!walk->event) walk->status = tvm_interp_no_memory(s->run);
    return walk->event != 0;
}

/* ---- global memory ---- */

typedef struct range {
    uintptr_t first, end;
    uint32_t slot;
    unsigned granule;
    bool undefined, scratch;
} range;

static int by_address(const void *a, const void *b) {
    const range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* The largest cell that begins at the beginning of both, and of which the elements are made. */
static unsigned common_granule(unsigned a, unsigned b, uintptr_t distance) {
    unsigned granule = a < b ? a : b;
    while (distance % granule) granule /= 2;
    return granule;
}

static uint32_t find_ranges(const interp_run *run, range *ranges) {
    const tvm_interp_kernel *k = run->kernel;
    uint32_t count = 0;
    for (uint32_t s = 0; s < k->kernel->slot_count; s++) {
        const tvm_slot *slot = interp_slot(k, s);
        if (slot->kind != TVM_SLOT_GLOBAL || slot->view) continue;
        const interp_global *global = interp_run_global(run, s);
        bool undefined = s >= k->kernel->param_count;
        for (uint32_t i = 0; i < k->launch_tensor_count; i++)
            if (k->launch_tensors[i].slot == s && k->launch_tensors[i].clean) undefined = false;
        unsigned granule = slot->dtype.bits < 8 || slot->dtype.bits % 8 ? 1 : slot->dtype.bits / 8;
        ranges[count++] = (range){(uintptr_t)global->data,
                                  (uintptr_t)global->data + global->bytes,
                                  s,
                                  granule & (granule - 1) ? 1 : granule,
                                  undefined,
                                  s >= k->kernel->param_count};
    }
    if (count) qsort(ranges, count, sizeof *ranges, by_address);
    return count;
}

/* One region for tensors that overlap. */
static bool make_regions(sanitizer *s, const range *ranges, uint32_t count) {
    for (uint32_t i = 0, next; i < count; i = next) {
        san_region *region = &s->regions[s->region_count++];
        uintptr_t end = ranges[i].end;
        region->base = ranges[i].first;
        region->granule = ranges[i].granule;
        region->undefined = ranges[i].undefined;
        region->scratch = ranges[i].scratch;
        for (next = i + 1; next < count && ranges[next].first < end; next++) {
            if (ranges[next].end > end) end = ranges[next].end;
            region->granule =
                common_granule(region->granule, ranges[next].granule, ranges[next].first - region->base);
        }
        region->bytes = end - region->base;
        if (!tvm_san_region_make(region, region->bytes / region->granule + 1)) return false;
    }
    return true;
}

static bool make_globals(sanitizer *s) {
    uint32_t slots = s->kernel->kernel->slot_count;
    range *ranges = calloc((size_t)slots + 1, sizeof *ranges);
    s->regions = calloc((size_t)slots + 1, sizeof *s->regions);
    bool made = ranges && s->regions && make_regions(s, ranges, find_ranges(s->run, ranges));
    free(ranges);
    return made;
}

/* ---- blocks ---- */

static bool make_shared(const sanitizer *s, san_block *block) {
    const tvm_interp_kernel *k = s->kernel;
    bool made = true;
    for (uint32_t slot = 0; slot < k->kernel->slot_count && made; slot++) {
        unsigned kind = interp_slot(k, slot)->kind;
        if ((kind != TVM_SLOT_SHARED && kind != TVM_SLOT_TENSOR) || interp_slot(k, slot)->view) continue;
        san_region *region = &block->shared[slot];
        made = tvm_san_region_make(region, k->extents[slot]);
        region->granule = tvm_dtype_container(interp_slot(k, slot)->dtype);
        region->undefined = true;
    }
    return made;
}

static bool make_block(const sanitizer *s, san_block *block) {
    const tvm_interp_kernel *k = s->kernel;
    block->contexts = calloc(s->context_count, sizeof *block->contexts);
    block->barriers = calloc((size_t)k->barrier_count + 1, sizeof *block->barriers);
    block->shared = calloc((size_t)k->kernel->slot_count + 1, sizeof *block->shared);
    block->freed = calloc((size_t)k->kernel->slot_count + 1, sizeof *block->freed);
    bool made = block->contexts && block->barriers && block->shared && block->freed && make_shared(s, block);
    for (uint32_t c = 0; c < s->context_count && made; c++) {
        block->contexts[c].latest = calloc((size_t)k->kernel->insn_count + 1, sizeof(uint32_t));
        made = block->contexts[c].latest != NULL;
    }
    return made;
}

static uint32_t count_contexts(const tvm_ir_kernel *kernel) {
    uint32_t count = 1;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        if (tvm_insn_class(&kernel->insns[i]) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, &kernel->insns[i]);
        count += tvm_role_teams(&role);
    }
    return count;
}

static void free_block(const sanitizer *s, san_block *block) {
    for (uint32_t c = 0; block->contexts && c < s->context_count; c++) {
        tvm_san_clock_free(&block->contexts[c].seen);
        for (uint32_t i = 0; i < block->contexts[c].acquired_capacity; i++)
            tvm_san_clock_free(&block->contexts[c].acquired[i].clock);
        free(block->contexts[c].acquired);
        free(block->contexts[c].latest);
    }
    for (uint32_t b = 0; block->barriers && b < s->kernel->barrier_count; b++) {
        tvm_san_clock_free(&block->barriers[b].arrived);
        tvm_san_clock_free(&block->barriers[b].ended);
    }
    for (uint32_t slot = 0; block->shared && slot < s->kernel->kernel->slot_count; slot++) {
        tvm_san_region_free(&block->shared[slot]);
    }
    free(block->contexts);
    free(block->barriers);
    free(block->shared);
    free(block->freed);
}

static void sanitizer_free(sanitizer *s) {
    for (uint32_t b = 0; b < s->block_count; b++) free_block(s, &s->blocks[b]);
    for (uint32_t r = 0; r < s->region_count; r++) tvm_san_region_free(&s->regions[r]);
    for (uint32_t l = 0; s->layouts && l < s->kernel->program->layout_count; l++) free(s->layouts[l].codes);
    for (uint32_t w = 0; w < s->word_capacity; w++) tvm_san_clock_free(&s->words[w].clock);
    for (uint32_t p = 0; p < s->part_count; p++) free(s->parts[p].codes);
    free(s->parts);
    free(s->words);
    free(s->layouts);
    free(s->regions);
    free(s->events);
    free(s->reports);
    free(s);
}

tvm_status tvm_sanitize_begin(interp_run *run) {
    const tvm_interp_kernel *k = run->kernel;
    sanitizer *s = run->sanitizer = calloc(1, sizeof *s);
    if (!s) return tvm_diag_no_memory(run->diags);
    s->run = run;
    s->kernel = k;
    s->now = 1;
    tvm_san_past_begin(s);
    s->context_count = count_contexts(k->kernel);
    s->actor_count = s->context_count * SAN_ACTORS + k->barrier_count;
    s->layouts = calloc((size_t)k->program->layout_count + 1, sizeof *s->layouts);
    bool made = s->layouts && make_globals(s);
    s->block_count = tvm_cluster_blocks(k->kernel);
    for (uint32_t b = 0; b < s->block_count && made; b++) made = make_block(s, &s->blocks[b]);
    tvm_status status = made ? TVM_OK : tvm_diag_no_memory(run->diags);
    if (made && run->blocks > (SAN_LAUNCHES - 1) / s->actor_count)
        status = tvm_diag_add(run->diags, TVM_UNSUPPORTED, NULL, NULL,
                              "kernel '%s': %llu blocks are too many for the sanitizer",
                              tvm_string(k->program, k->kernel->name), (unsigned long long)run->blocks);
    if (status == TVM_OK) return status;
    sanitizer_free(s);
    run->sanitizer = NULL;
    return status;
}

/* Where the worker's block has its shared tensors. */
static void place_shared(const sanitizer *s, san_block *block, const interp_block *memory) {
    for (uint32_t slot = 0; slot < s->kernel->kernel->slot_count; slot++) {
        san_region *region = &block->shared[slot];
        if (!region->cells) continue;
        region->base = (uintptr_t)interp_tensor(memory, slot);
        region->bytes = region->count * region->granule;
    }
}

void tvm_sanitize_cluster(interp_block *cluster) {
    sanitizer *s = cluster->run->sanitizer;
    const uint32_t *grid = cluster->run->grid;
    s->now++;
    tvm_san_past_blocks(s);
    for (uint32_t b = 0; b < cluster->cluster_size; b++) {
        san_block *block = &s->blocks[b];
        block->runs = true;
        block->waited = false;
        const int32_t *index = cluster[b].index;
        uint64_t number = ((uint64_t)index[2] * grid[1] + (uint64_t)index[1]) * grid[0] + (uint64_t)index[0];
        block->first_actor = (uint32_t)(number * s->actor_count);
        memcpy(block->index, index, sizeof block->index);
        place_shared(s, block, &cluster[b]);
        memset(block->warps, 0, sizeof block->warps);
        memset(block->freed, 0, s->kernel->kernel->slot_count * sizeof *block->freed);
        for (uint32_t c = 0; c < s->context_count; c++) {
            san_context *context = &block->contexts[c];
            context->seen.count = 0;
            for (uint32_t i = 0; i < context->acquired_count; i++) context->acquired[i].clock.count = 0;
            context->acquired_count = 0;
            context->retired = context->warp_retired = 0;
            context->stores = context->commits = context->product_count = 0;
        }
        for (uint32_t i = 0; i < s->kernel->barrier_count; i++)
            block->barriers[i].arrived.count = block->barriers[i].ended.count = 0;
    }
}

/* ---- the end ---- */

static tvm_status add_reports(const sanitizer *s, tvm_diags *diags) {
    for (uint32_t i = 0; i < s->report_count; i++) {
        const san_report *report = &s->reports[i];
        const tvm_place place = tvm_san_place(s, report->insn);
        char count[48] = "";
        if (report->count > 1)
            snprintf(count, sizeof count, "; %llu times", (unsigned long long)report->count);
        tvm_diag_add(diags, TVM_SANITIZER, &place, report->hint, "%s: %s: %s%s",
                     tvm_string(s->kernel->program, s->kernel->kernel->name), tvm_san_kind_text(report->kind),
                     report->what, count);
    }
    if (s->lost)
        tvm_diag_add(diags, TVM_SANITIZER, NULL, NULL, "%llu more reports", (unsigned long long)s->lost);
    return TVM_SANITIZER;
}

static tvm_status add_json(const sanitizer *s, tvm_diags *diags) {
    char *text = tvm_san_json(s);
    if (!text) return tvm_diag_no_memory(diags);
    tvm_diag_add(diags, TVM_SANITIZER, NULL, NULL, "%s", text);
    free(text);
    return TVM_SANITIZER;
}

tvm_status tvm_sanitize_end(interp_run *run, tvm_status status) {
    sanitizer *s = run->sanitizer;
    run->sanitizer = NULL;
    tvm_san_past_blocks(s);
    tvm_san_finish(s);
    if (s->no_memory)
        status = tvm_diag_no_memory(run->diags);
    else if (s->report_count && (status == TVM_OK || status == TVM_FAULT))
        status = run->options->sanitize == TVM_SANITIZE_JSON ? add_json(s, run->diags)
                                                             : add_reports(s, run->diags);
    else if (s->report_count)
        add_reports(s, run->diags);
    tvm_san_past_end(s);
    sanitizer_free(s);
    return status;
}

bool tvm_sanitize_found(const interp_run *run) {
    return run->sanitizer && run->sanitizer->report_count > 0;
}
