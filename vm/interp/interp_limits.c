/* The limits that end a launch: a number of instructions, a time, a call of tvm_cancel in another thread.
 * They are checked once per slice of instructions; each worker has slices of its own. The number of turns is
 * a limit of each warp, which is checked in each of them. */
#include "interp_impl.h"

#include <time.h>

enum { SLICE = 1024 };

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void tvm_interp_limits_begin(interp_run *run, const tvm_interp_options *options) {
    static const tvm_interp_options none = {0};
    run->options = options ? options : &none;
    uint64_t most = run->options->instructions;
    atomic_init(&run->instructions, most > 0 && most < INT64_MAX ? (int64_t)most : INT64_MAX);
    run->deadline =
        run->options->milliseconds ? now() + (int64_t)run->options->milliseconds * 1000000 : INT64_MAX;
    if (run->options->cancelled) run->cancelled = atomic_load(run->options->cancelled);
}

/* Instructions of the next slice; 0: there are none left. */
static uint32_t take_slice(interp_run *run) {
    int_fast64_t left = atomic_load_explicit(&run->instructions, memory_order_relaxed), taken;
    if (left == INT64_MAX) return SLICE;
    do taken = left < SLICE ? left : SLICE;
    while (!atomic_compare_exchange_weak_explicit(&run->instructions, &left, left - taken,
                                                  memory_order_relaxed, memory_order_relaxed));
    return (uint32_t)taken;
}

tvm_status tvm_interp_next_slice(interp_context *context, const interp_insn *insn) {
    interp_run *run = context->block->run;
    const tvm_interp_options *options = run->options;
    if (options->cancelled && atomic_load(options->cancelled) != run->cancelled)
        return tvm_interp_end(context, insn, TVM_CANCELLED, "the launch was cancelled");
    if (run->deadline != INT64_MAX && now() >= run->deadline)
        return tvm_interp_end(context, insn, TVM_LIMIT,
                              "the launch takes longer than its limit of %u milliseconds",
                              options->milliseconds);
    uint32_t taken = take_slice(run);
    context->block->slice = taken - 1; /* the instruction is one of them */
    if (taken > 0) return TVM_OK;
    return tvm_interp_end(context, insn, TVM_LIMIT,
                          "the launch executes more than its limit of %llu instructions",
                          (unsigned long long)options->instructions);
}

/* What the block's own context does while roles run, its warps do before or after their role: a warp's turns
 * are those of all contexts that it is in. */
tvm_status tvm_interp_turn(interp_context *context, const interp_insn *insn) {
    interp_block *block = context->block;
    uint32_t most = block->run->options->turns;
    if (!most && !block->counts) return TVM_OK;
    for (uint32_t w = context->team.first; w < context->team.first + context->team.warps; w++) {
        uint64_t made = ++block->turns[w];
        if (block->counts && made > block->counts->turns) block->counts->turns = made;
        if (most && made > most)
            return tvm_interp_end(context, insn, TVM_LIMIT, "the budget of %u turns is used up, in warp %u",
                                  (unsigned)most, (unsigned)w);
    }
    return TVM_OK;
}
