/* The steps of a check, in order; see check_impl.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check_impl.h"
#include "tensor_memory.h"

/* ---- what is found ---- */

void tvm_check_fail(checker *c, tvm_checked_claim *claim, uint32_t insn, const char *format, ...) {
    va_list arguments;
    (void)c;
    if (!claim->holds) return;
    claim->holds = false;
    claim->insn = insn;
    va_start(arguments, format);
    vsnprintf(claim->text, sizeof claim->text, format, arguments);
    va_end(arguments);
}

void tvm_check_refuse(checker *c, uint32_t insn, const char *text) {
    tvm_check_fail(c, &c->checked->races, insn, "%s", text);
    tvm_check_fail(c, &c->checked->deadlocks, insn, "%s", text);
    c->over = true;
}

void tvm_check_charge(checker *c, uint64_t work) {
    c->checked->steps += work;
    if (c->checked->steps > CHECK_WORK && !c->over)
        tvm_check_refuse(c, TVM_NONE, "to check it takes more work than the limit");
}

/* ---- sets ---- */

static bool grow_set(check_set *set, size_t size) {
    if (set->count + 2 > set->capacity) {
        uint32_t capacity = set->capacity ? 2 * set->capacity : 256;
        uint32_t *at = realloc(set->at, (size_t)capacity * sizeof *at);
        if (!at) return false;
        if (!set->capacity) at[0] = 0;
        set->at = at;
        set->capacity = capacity;
        free(set->buckets);
        set->bucket_count = 2 * capacity;
        set->buckets = calloc(set->bucket_count, sizeof *set->buckets);
        if (!set->buckets) return false;
        for (uint32_t i = 0; i < set->count; i++) {
            uint32_t b =
                (uint32_t)XXH3_64bits(set->bytes + at[i], at[i + 1] - at[i]) & (set->bucket_count - 1);
            while (set->buckets[b]) b = (b + 1) & (set->bucket_count - 1);
            set->buckets[b] = i + 1;
        }
    }
    if (set->size + size > set->room) {
        size_t room = 2 * (set->room + size);
        uint8_t *bytes = room < UINT32_MAX ? realloc(set->bytes, room) : NULL;
        if (!bytes) return false;
        set->bytes = bytes;
        set->room = room;
    }
    return true;
}

uint32_t tvm_check_set_add(checker *c, check_set *set, const void *bytes, size_t size, bool *is_new) {
    if (is_new) *is_new = false;
    if (!grow_set(set, size)) {
        c->no_memory = c->over = true;
        return 0;
    }
    uint32_t mask = set->bucket_count - 1, b = (uint32_t)XXH3_64bits(bytes, size) & mask;
    for (; set->buckets[b]; b = (b + 1) & mask) {
        uint32_t i = set->buckets[b] - 1;
        if (set->at[i + 1] - set->at[i] == size && memcmp(set->bytes + set->at[i], bytes, size) == 0)
            return i;
    }
    memcpy(set->bytes + set->size, bytes, size);
    set->size += size;
    set->at[++set->count] = (uint32_t)set->size;
    set->buckets[b] = set->count;
    if (is_new) *is_new = true;
    return set->count - 1;
}

static void free_set(check_set *set) {
    free(set->bytes);
    free(set->at);
    free(set->buckets);
    *set = (check_set){0};
}

/* ---- teams ---- */

static void find_teams(checker *c) {
    const tvm_ir_kernel *kernel = c->kernel;
    c->teams[0] = (check_team){.role = TVM_NONE, .end = kernel->insn_count, .warps = tvm_block_team(kernel)};
    c->team_count = 1;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        if (tvm_insn_class(insn) != TVM_CLASS_SECTION) continue;
        const tvm_role role = tvm_role_of(kernel, insn);
        for (uint32_t t = 0; t < tvm_role_teams(&role) && c->team_count < CHECK_TEAMS; t++)
            c->teams[c->team_count++] = (check_team){.role = i,
                                                     .index = t,
                                                     .from = i + 1,
                                                     .end = insn->match,
                                                     .group = c->groups[i] / 2,
                                                     .warps = tvm_role_team(&role, t)};
    }
}

/* A sync of all of the block ends a group. */
static void find_groups(checker *c) {
    uint32_t depth = 0, group = 0, roles = 0, epoch = 0;
    for (uint32_t i = 0; i < c->kernel->insn_count; i++) {
        const tvm_insn *insn = &c->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (class == TVM_CLASS_END) depth--;
        c->groups[i] = 2 * group + roles;
        c->epochs[i] = epoch;
        if (tvm_class_opens(class)) depth++;
        if (class == TVM_CLASS_SECTION) roles = 1;
        if (depth == 0 && (insn->op == TVM_OP_SYNC || insn->op == TVM_OP_SYNC_CLUSTER)) group++;
        if (depth == 0 && insn->op == TVM_OP_SYNC_CLUSTER) epoch++;
    }
}

/* ---- what is not looked at ---- */

static void find_pending(checker *c, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(c->kernel, insn), *pending = NULL;
    if (insn->op == TVM_OP_ARRIVE_BARRIER) pending = &operands[insn->count - 2];
    if (insn->op == TVM_OP_WAIT_GROUP || insn->op == TVM_OP_WAIT_BULK) pending = operands;
    if (pending && pending->kind == TVM_OPERAND_CONST && pending->value > c->most_pending)
        c->most_pending = pending->value;
    if (c->most_pending > UINT8_MAX)
        tvm_check_refuse(c, TVM_NONE, "an instruction leaves out too many products");
}

/* All blocks of a cluster come to each sync-cluster if no control stands around it, or around an exit. */
static void find_waits_for_blocks(checker *c) {
    uint32_t depth = 0;
    bool several = tvm_cluster_blocks(c->kernel) > 1, may_leave = false;
    for (uint32_t i = 0; i < c->kernel->insn_count; i++) {
        const tvm_insn *insn = &c->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        if (class == TVM_CLASS_END) depth--;
        if (tvm_class_opens(class)) depth++;
        find_pending(c, insn);
        if (tvm_op(insn->op)->effects & TVM_EFFECT_WAIT) c->checked->waits_for_blocks = true;
        if (insn->op == TVM_OP_COMMIT_TENSOR && tvm_tensor_is_pair(c->kernel, insn))
            tvm_check_fail(c, &c->checked->deadlocks, i, "commit-tensor of a pair waits for the other block");
        may_leave = may_leave || class == TVM_CLASS_EXIT;
        if (insn->op != TVM_OP_SYNC_CLUSTER || !several || (!depth && !may_leave)) continue;
        tvm_check_fail(c, &c->checked->deadlocks, i,
                       "sync-cluster, and a block may go another way before it");
        c->out_of_step = true;
    }
}

/* ---- both claims ---- */

bool tvm_check_begin(checker *c) {
    const tvm_ir_kernel *kernel = c->kernel;
    c->bad_ring = CHECK_RINGS;
    c->checked->races.holds = c->checked->deadlocks.holds = true;
    c->groups = calloc(kernel->insn_count + (size_t)1, sizeof *c->groups);
    c->epochs = calloc(kernel->insn_count + (size_t)1, sizeof *c->epochs);
    c->matters = calloc(kernel->insn_count + (size_t)1, sizeof *c->matters);
    c->scalar_of = malloc((kernel->slot_count + (size_t)1) * sizeof *c->scalar_of);
    if (!c->groups || !c->epochs || !c->matters || !c->scalar_of) return false;
    for (uint32_t s = 0; s < kernel->slot_count; s++) c->scalar_of[s] = -1;
    find_groups(c);
    find_teams(c);
    find_waits_for_blocks(c);
    return tvm_check_find_cells(c) && tvm_check_find_sites(c);
}

void tvm_check_all(checker *c) {
    for (uint32_t i = 0; i < c->scalar_count; i++) c->scalar_of[c->slots[i]] = (int32_t)i;
    for (uint32_t r = 0; r < c->ring_count; r++)
        if (c->rings[r].full != c->rings[r].empty) c->proper |= UINT64_C(1) << r;
    if (c->site_count == 0 && c->cell_count == 0) return;
    tvm_check_run(c);
    if (c->over || !tvm_check_rings(c)) return;
    if (c->waits && !c->no_memory) tvm_check_turns(c);
    if (!c->checked->deadlocks.holds || !c->waits || c->over) c->drained = 0;
    if (!c->over) tvm_check_teams(c);
    if (!c->over) tvm_check_blocks(c);
}

void tvm_check_end(checker *c) {
    for (uint32_t s = 0; s < c->site_count; s++) free(c->sites[s].threads);
    free(c->sites);
    free(c->first_site);
    free(c->first_cell);
    free(c->groups);
    free(c->epochs);
    free(c->matters);
    free(c->scalar_of);
    free(c->invariants);
    free(c->waiting);
    free_set(&c->places);
    free_set(&c->entries);
    free_set(&c->seen);
}

tvm_status tvm_check(const tvm_ir_program *program, uint32_t kernel, const uint32_t *words, uint32_t count,
                     tvm_checked *checked, tvm_diags *diags) {
    checker *c = calloc(1, sizeof *c);
    *checked = (tvm_checked){.races = {.insn = TVM_NONE}, .deadlocks = {.insn = TVM_NONE}};
    if (!c) return tvm_diag_no_memory(diags);
    c->program = program;
    c->kernel = &program->kernels[kernel];
    c->checked = checked;
    c->admit = tvm_check_admit;
    bool made = tvm_check_begin(c);
    if (made && !c->over && tvm_check_read(c, words, count)) tvm_check_all(c);
    bool no_memory = !made || c->no_memory;
    tvm_check_end(c);
    free(c);
    if (!no_memory) return TVM_OK;
    checked->races.holds = checked->deadlocks.holds = false;
    return tvm_diag_no_memory(diags);
}
