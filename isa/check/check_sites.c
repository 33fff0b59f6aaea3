/* What an instruction touches of shared memory. */
#include <stdlib.h>
#include <string.h>

#include "check_impl.h"
#include "mma.h"
#include "pipeline.h"

static const tvm_slot *slot_of(const checker *c, const tvm_operand *operand) {
    return &c->kernel->slots[operand->value];
}

static bool is_shared(const checker *c, const tvm_operand *operand) {
    return operand->kind == TVM_OPERAND_SLOT && slot_of(c, operand)->kind == TVM_SLOT_SHARED;
}

static unsigned rank_of(const checker *c, const tvm_operand *operand) {
    const tvm_slot *slot = slot_of(c, operand);
    return slot->kind == TVM_SLOT_GLOBAL ? slot->rank : tvm_slot_rank(c->program, slot);
}

static check_site *add_site(checker *c, uint32_t insn, const tvm_operand *tensor, check_actor actor,
                            bool writes) {
    check_site *site = &c->sites[c->site_count++];
    tvm_shared_root root;
    *site = (check_site){.insn = insn, .slot = tensor->value, .actor = actor, .writes = writes};
    tvm_shared_root_find(c->program, c->kernel, site->slot, &root);
    site->root = root.slot;
    site->first = root.first;
    site->rank = rank_of(c, tensor);
    site->indices = tensor + 1;
    memcpy(site->digits, root.digits, sizeof site->digits);
    memcpy(site->shape, tvm_slot_shape(c->program, slot_of(c, tensor)), site->rank * sizeof *site->shape);
    return site;
}

/* A tile of the trailing dimensions. */
static void set_tile(check_site *site, unsigned rank, const uint32_t *tile) {
    for (unsigned d = 0; d < site->rank; d++)
        site->extent[d] = d + rank < site->rank ? 1 : tile[d + rank - site->rank];
}

/* Between a shared tensor, of this block or another, and a register tensor. */
static void add_move(checker *c, uint32_t at) {
    const tvm_insn *insn = &c->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    bool ranked =
        insn->op == TVM_OP_LOAD_CLUSTER || insn->op == TVM_OP_STORE_CLUSTER; /* behind the indices */
    bool stores = insn->op == TVM_OP_STORE_SHARED || insn->op == TVM_OP_STORE_CLUSTER;
    check_site *site = add_site(c, at, operands, CHECK_THREADS, stores);
    uint32_t tensor = stores ? operands[1 + site->rank + ranked].value : insn->result;
    site->is_far = ranked;
    const tvm_slot *slot = &c->kernel->slots[tensor];
    site->layout = &c->program->layouts[slot->layout];
    set_tile(site, tvm_slot_rank(c->program, slot), tvm_slot_shape(c->program, slot));
}

/* The list of a tile's extents behind both tensors of a copy, of which the first is operand `first`. */
static const tvm_operand *extents_of(const checker *c, const tvm_operand *first) {
    const tvm_operand *second = first + 1 + rank_of(c, first);
    return second + 1 + rank_of(c, second);
}

static check_site *add_copy(checker *c, uint32_t at, unsigned first, bool from_shared, check_actor actor) {
    const tvm_operand *pair = tvm_operands(c->kernel, &c->kernel->insns[at]) + first;
    const tvm_operand *extents = extents_of(c, pair);
    const tvm_operand *tensor = from_shared ? pair + 1 + rank_of(c, pair) : pair;
    check_site *site = add_site(c, at, tensor, actor, !from_shared);
    uint32_t tile[TVM_MAX_RANK] = {0};
    for (unsigned d = 0; d < extents->value && d < TVM_MAX_RANK; d++) tile[d] = extents[1 + d].value;
    set_tile(site, extents->value, tile);
    const tvm_operand *barrier = extents + 1 + extents->value;
    if (actor == CHECK_BULK && barrier->kind == TVM_OPERAND_SLOT) site->barrier = barrier;
    return site;
}

/* Tiles that are multiplied: which warp reads which element is not looked at. */
static void add_product(checker *c, uint32_t at) {
    const tvm_insn *insn = &c->kernel->insns[at];
    tvm_mma mma;
    if (!tvm_mma_read(c->program, c->kernel, tvm_operands(c->kernel, insn), insn->count, &mma)) return;
    for (unsigned i = 0; i < 2; i++) {
        const tvm_mma_source *source = i ? &mma.b : &mma.a;
        if (!source->is_shared) continue;
        check_site *site = add_site(c, at, source->tensor, CHECK_PRODUCT, false);
        set_tile(site, source->tile_rank, source->tile);
    }
}

/* At places that registers name: any. */
static void add_places(checker *c, uint32_t at, const tvm_operand *tensor, bool writes, bool is_atomic) {
    check_site *site = add_site(c, at, tensor, CHECK_THREADS, writes);
    site->everywhere = true;
    site->is_atomic = is_atomic;
    memcpy(site->extent, site->shape, sizeof site->extent);
}

static void add_sites(checker *c, uint32_t at, bool is_piped) {
    const tvm_insn *insn = &c->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    switch (insn->op) {
    case TVM_OP_LOAD_SHARED:
    case TVM_OP_STORE_SHARED:
    case TVM_OP_LOAD_CLUSTER:
    case TVM_OP_STORE_CLUSTER:
        add_move(c, at);
        break;
    case TVM_OP_COPY_ASYNC:
        add_copy(c, at, 0, false, is_piped ? CHECK_PIPED : CHECK_COPY);
        break;
    case TVM_OP_COPY_BULK:
        add_copy(c, at, 0, false, CHECK_BULK);
        break;
    case TVM_OP_STORE_BULK:
    case TVM_OP_REDUCE_BULK:
        add_copy(c, at, insn->op == TVM_OP_REDUCE_BULK, true, CHECK_STORE);
        break;
    case TVM_OP_MMA:
        add_product(c, at);
        break;
    case TVM_OP_LOAD_SCALAR:
        if (is_shared(c, operands)) set_tile(add_site(c, at, operands, CHECK_THREADS, false), 0, NULL);
        break;
    case TVM_OP_GATHER:
    case TVM_OP_SCATTER:
        if (is_shared(c, operands)) add_places(c, at, operands, insn->op == TVM_OP_SCATTER, false);
        break;
    case TVM_OP_ATOMIC:
    case TVM_OP_ATOMIC_FETCH:
        if (is_shared(c, operands + 1)) add_places(c, at, operands + 1, true, true);
        break;
    default:
        break;
    }
}

/* It names shared memory, or an mbarrier, and is not known here, or reaches for another block. */
static bool is_unknown(const checker *c, uint32_t at) {
    const tvm_insn *insn = &c->kernel->insns[at];
    const tvm_operand *operands = tvm_operands(c->kernel, insn);
    unsigned tensors = 0;
    for (uint32_t o = 0; o < insn->count; o++) tensors += is_shared(c, &operands[o]);
    if (insn->op == TVM_OP_VIEW_SHARED || insn->op == TVM_OP_FREE_SHARED) return false;
    bool atomic =
        insn->op == TVM_OP_ATOMIC || insn->op == TVM_OP_ATOMIC_FETCH; /* of old ones the scope is last */
    bool far =
        (atomic && operands[insn->count - 1].kind == TVM_OPERAND_EXPR) ||
        (insn->op == TVM_OP_COPY_BULK && operands[insn->count - 1].kind != TVM_OPERAND_NONE); /* multicast */
    return far || c->site_count - c->first_site[at] < tensors;
}

bool tvm_check_find_sites(checker *c) {
    const tvm_ir_kernel *kernel = c->kernel;
    uint32_t pipelined = 0;
    c->sites = calloc(2 * (size_t)kernel->insn_count + 2, sizeof *c->sites);
    c->first_site = calloc(kernel->insn_count + (size_t)1, sizeof *c->first_site);
    if (!c->sites || !c->first_site) return false;
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        c->first_site[i] = c->site_count;
        if (tvm_pipeline_stages(kernel, &kernel->insns[i])) pipelined = kernel->insns[i].match;
        add_sites(c, i, i < pipelined);
        if (is_unknown(c, i))
            tvm_check_refuse(
                c, i, "the instruction's access to shared memory, or to another block, is not looked at");
    }
    c->first_site[kernel->insn_count] = c->site_count;
    return true;
}
