/* Atomic operations. An instruction is executed as a whole, its elements one after the other in row-major
 * order. Where the order of blocks can be seen, blocks take turns (interp_turns.c). */
#include "interp_impl.h"
#include "sanitize.h"

#include <stdlib.h>
#include <string.h>

#include "interp_loops.h"

typedef struct atomic_plan {
    interp_places places;
    interp_loop_function loop; /* NULL: exch and cas */
    uint32_t source, expected; /* slots; expected: or TVM_NONE */
    uint32_t rank;             /* of the block whose tensor it is, an expression; TVM_NONE: this one */
    unsigned bytes;
    bool takes_turns; /* the order of blocks can be seen */
    tvm_order order;
    uint32_t expected_step[TVM_MAX_RANK];
} atomic_plan;

/* The element-wise instruction that computes the new element; TVM_OP_COUNT: none. */
static unsigned row_of(tvm_atomic operation) {
    static const unsigned rows[TVM_ATOMIC_COUNT] = {
        [TVM_ATOMIC_ADD] = TVM_OP_ADD, [TVM_ATOMIC_SUB] = TVM_OP_SUB,    [TVM_ATOMIC_MIN] = TVM_OP_MIN,
        [TVM_ATOMIC_MAX] = TVM_OP_MAX, [TVM_ATOMIC_EXCH] = TVM_OP_COUNT, [TVM_ATOMIC_CAS] = TVM_OP_COUNT,
        [TVM_ATOMIC_AND] = TVM_OP_AND, [TVM_ATOMIC_OR] = TVM_OP_OR,      [TVM_ATOMIC_XOR] = TVM_OP_XOR};
    return rows[operation];
}

/* Can it be seen in which order the operations were done? */
static bool shows_order(tvm_atomic operation, tvm_dtype type, bool fetches) {
    bool sums = operation == TVM_ATOMIC_ADD || operation == TVM_ATOMIC_SUB;
    return fetches || operation == TVM_ATOMIC_EXCH || operation == TVM_ATOMIC_CAS ||
           (sums && type.kind == TVM_KIND_FLOAT);
}

static tvm_status plan_atomic(tvm_interp_kernel *k, interp_insn *insn, bool fetches, tvm_diags *diags) {
    tvm_atomic operation = (tvm_atomic)insn->operands[0].value;
    const tvm_operand *memory = insn->operands + 1;
    const tvm_operand *source = memory + 1 + tvm_slot_rank(k->program, interp_slot(k, memory->value));
    atomic_plan *plan = insn->plan = calloc(1, sizeof *plan);
    if (!plan) return tvm_diag_no_memory(diags);
    tvm_dtype type = interp_slot(k, memory->value)->dtype;
    plan->source = source->value;
    plan->bytes = tvm_dtype_container(type);
    plan->expected = source[1].kind == TVM_OPERAND_SLOT ? source[1].value : TVM_NONE;
    plan->order = source[3].kind == TVM_OPERAND_CONST ? (tvm_order)source[3].value : TVM_ORDER_RELAXED;
    plan->rank = source[5].kind == TVM_OPERAND_EXPR ? source[5].value : TVM_NONE;
    tvm_interp_plan_places(k, memory, plan->source, &source[2], &plan->places);
    plan->places.in_block = source[4].kind == TVM_OPERAND_CONST && source[4].value == TVM_SCOPE_CTA;
    if (plan->expected != TVM_NONE)
        tvm_interp_broadcast_steps(k, plan->expected, plan->places.tile_rank, plan->expected_step);
    if (row_of(operation) != TVM_OP_COUNT) plan->loop = tvm_interp_element_loop(row_of(operation), type);
    /* a block's or cluster's own memory is not seen by others */
    bool is_global = interp_slot(k, memory->value)->kind == TVM_SLOT_GLOBAL;
    plan->takes_turns = is_global && shows_order(operation, type, fetches);
    if (plan->takes_turns) k->takes_turns = true;
    return TVM_OK;
}

tvm_status tvm_plan_ATOMIC(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_atomic(kernel, insn, false, diags);
}

tvm_status tvm_plan_ATOMIC_FETCH(tvm_interp_kernel *kernel, interp_insn *insn, tvm_diags *diags) {
    return plan_atomic(kernel, insn, true, diags);
}

/* An instruction being done. */
typedef struct atomic_work {
    interp_context *context;
    tvm_status status; /* of the sanitizer */
    const atomic_plan *plan;
    const uint8_t *source, *expected; /* expected: or NULL */
    uint8_t *result;                  /* NULL: nothing is fetched */
    uint64_t inside;                  /* elements so far */
} atomic_work;

static const uint8_t *expected_of(const atomic_work *w, size_t element) {
    const interp_places *places = &w->plan->places;
    size_t at = 0;
    for (unsigned d = places->tile_rank; d-- > 0; element /= places->tile[d])
        at += element % places->tile[d] * w->plan->expected_step[d];
    return w->expected + at * w->plan->bytes;
}

/* What the thread that does it releases and acquires. */
static void order(atomic_work *w, size_t element, const void *place) {
    uint32_t thread = 0;
    bool releases = w->plan->order == TVM_ORDER_RELEASE || w->plan->order == TVM_ORDER_ACQ_REL;
    bool acquires = w->plan->order == TVM_ORDER_ACQUIRE || w->plan->order == TVM_ORDER_ACQ_REL;
    if ((acquires || releases) && w->status == TVM_OK)
        w->status = tvm_sanitize_thread(w->context, w->plan->source, element, &thread);
    if (acquires && w->status == TVM_OK) w->status = tvm_sanitize_acquire_one(w->context, place, thread);
    if (releases && w->status == TVM_OK) w->status = tvm_sanitize_release_one(w->context, place, thread);
}

static void update(void *data, size_t element, uint8_t *place) {
    static const size_t steps[3] = {1, 1, 1};
    atomic_work *w = data;
    unsigned bytes = w->plan->bytes;
    uint64_t old = 0, value = 0, made = 0;
    memcpy(&value, w->source + element * bytes, bytes);
    const void *const operands[3] = {&old, &value, NULL};
    if (place && interp_sanitized(w->context)) order(w, element, place);
    if (place) {
        w->inside++;
        memcpy(&old, place, bytes);
        made = value;
        if (w->plan->loop) w->plan->loop(1, &made, operands, steps);
        if (!w->expected || memcmp(&old, expected_of(w, element), bytes) == 0) memcpy(place, &made, bytes);
    }
    if (w->result) memcpy(w->result + element * bytes, &old, bytes);
}

static tvm_status do_atomic(interp_context *context, const interp_insn *insn, uint8_t *result) {
    interp_block *block = context->block, *owner = block;
    const atomic_plan *plan = insn->plan;
    interp_run *run = block->run;
    tvm_status status = plan->rank == TVM_NONE ? TVM_OK : tvm_interp_peer(context, insn, plan->rank, &owner);
    if (status != TVM_OK) return status;
    if (plan->takes_turns && !tvm_interp_take_turn(context)) return interp_again(context, INTERP_AT_TURN);
    atomic_work work = {
        .context = context, .plan = plan, .source = interp_tensor(block, plan->source), .result = result};
    if (plan->expected != TVM_NONE) work.expected = interp_tensor(block, plan->expected);
    pthread_mutex_lock(&run->atomics);
    status = tvm_interp_each_place(context, insn, &plan->places, owner, update, &work);
    pthread_mutex_unlock(&run->atomics);
    if (plan->takes_turns) tvm_interp_pass_turn(context);
    if (status == TVM_OK) status = work.status;
    bool is_shared = interp_slot(block->kernel, plan->places.memory)->kind == TVM_SLOT_SHARED;
    interp_count(block, is_shared, true, work.inside, 8 * plan->bytes);
    interp_count(block, is_shared, false, work.inside, 8 * plan->bytes);
    if (!block->kernel->waits) return status;
    pthread_mutex_lock(&run->mutex);
    tvm_interp_changed(run); /* perhaps a semaphore */
    pthread_mutex_unlock(&run->mutex);
    return status;
}

tvm_status tvm_interp_ATOMIC(interp_context *context, const interp_insn *insn) {
    return do_atomic(context, insn, NULL);
}

tvm_status tvm_interp_ATOMIC_FETCH(interp_context *context, const interp_insn *insn) {
    return do_atomic(context, insn, interp_tensor(context->block, insn->source->result));
}
