/* Random numbers: element i of a tile is made of word i mod 4 of Philox 4x32-10 at counter offset + i / 4. */
#include "random.h"

#include "interp_impl.h"

INTERP_NO_PLAN(RANDOM)

/* Seed, offset and stream as 64 bits; a stream that is left out is 0. */
static tvm_status read_scalars(interp_context *context, const interp_insn *insn, uint64_t scalars[3]) {
    for (unsigned i = 0; i < 3; i++) {
        tvm_scalar value = {0};
        if (insn->operands[i].kind == TVM_OPERAND_EXPR) {
            tvm_status status = tvm_interp_evaluate(context, insn, insn->operands[i].value, &value);
            if (status != TVM_OK) return status;
        }
        scalars[i] = value.u;
    }
    return TVM_OK;
}

tvm_status tvm_interp_RANDOM(interp_context *context, const interp_insn *insn) {
    const tvm_interp_kernel *k = context->block->kernel;
    uint32_t result = insn->source->result, words[TVM_PHILOX_WORDS] = {0};
    unsigned op = insn->source->op;
    void *elements = interp_tensor(context->block, result);
    uint64_t scalars[3];
    tvm_status status = read_scalars(context, insn, scalars);
    if (status != TVM_OK) return status;
    const uint32_t key[2] = {(uint32_t)scalars[0], (uint32_t)(scalars[0] >> 32)};
    for (uint32_t i = 0; i < k->extents[result]; i++) {
        uint64_t at = scalars[1] + i / TVM_PHILOX_WORDS;
        const uint32_t counter[TVM_PHILOX_WORDS] = {(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)scalars[2],
                                                    (uint32_t)(scalars[2] >> 32)};
        if (i % TVM_PHILOX_WORDS == 0) tvm_philox(key, counter, words);
        uint32_t word = words[i % TVM_PHILOX_WORDS];
        if (op == TVM_OP_RANDOM_UNIFORM) word = tvm_f32_bits(tvm_random_uniform(word));
        if (op == TVM_OP_RANDOM_NORMAL) word = tvm_f32_bits(tvm_random_normal(word));
        tvm_container_set(interp_slot(k, result)->dtype, elements, i, word);
    }
    return TVM_OK;
}
