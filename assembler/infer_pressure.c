/* Registers that a thread needs at once, as far as the assembler can tell: the words of the tensors that are
 * alive between two instructions. */
#include "infer_state.h"

enum {
    REGISTERS = 65536, /* of a multiprocessor */
    MOST = 255,        /* of a thread */
    OTHERS = 24        /* addresses, loops' variables, predicates' sources */
};

/* ---- where tensors are alive ---- */

/* The loop, if any, of which the instruction is a part and the other is not: its end. */
static uint32_t end_of_loops(const uint32_t *ends, const uint32_t *outer, uint32_t loop, uint32_t begins) {
    uint32_t end = 0;
    for (; loop != TVM_NONE && loop > begins; loop = outer[loop]) end = ends[loop];
    return end;
}

typedef struct loops {
    uint32_t *of;    /* of each instruction: the innermost loop's first instruction, or TVM_NONE */
    uint32_t *outer; /* of a loop's first instruction: the loop around it */
    uint32_t *ends;  /* of a loop's first instruction: its last one */
} loops;

static void find_loops(const tvm_infer_state *in, loops *all) {
    uint32_t open[TVM_ASM_CONTROLS], loop = TVM_NONE, depth = 0;
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        tvm_op_class class = tvm_insn_class(&in->kernel->insns[i]);
        all->of[i] = loop;
        if (tvm_class_opens(class) && depth < TVM_ASM_CONTROLS) {
            open[depth++] = loop;
            if (class != TVM_CLASS_LOOP) continue;
            all->outer[i] = loop;
            all->ends[i] = in->kernel->insn_count;
            loop = i;
        } else if (class == TVM_CLASS_END && depth) {
            uint32_t before = open[--depth];
            if (loop != before) all->ends[loop] = i;
            loop = before;
        }
    }
}

/* What is another name of its operand's registers has its operand live as long as itself. */
static void find_aliases(tvm_infer_state *in) {
    for (uint32_t i = in->kernel->insn_count; i-- > 0;) {
        uint16_t op = in->kernel->insns[i].op;
        uint32_t result = tvm_infer_result(in, i);
        tvm_infer_operands registers;
        bool names = op == TVM_OP_VIEW || op == TVM_OP_RESHAPE || op == TVM_OP_TRANSPOSE ||
                     op == TVM_OP_SQUEEZE || op == TVM_OP_UNSQUEEZE;
        if (!names || result == TVM_NONE || in->definitions[result] != i) continue;
        tvm_infer_registers(in, i, &registers);
        tvm_infer_life *life = &in->lives[registers.slots[0]];
        if (in->definitions[registers.slots[0]] == TVM_NONE) continue;
        in->lives[result].is_alias = true;
        if (in->lives[result].last > life->last) life->last = in->lives[result].last;
    }
}

/* A tensor is alive from where it is first assigned to where it is last used; in a loop that it enters, to
 * the loop's end. */
void tvm_infer_find_lives(tvm_infer_state *in) {
    uint32_t insns = in->kernel->insn_count;
    loops all = {tvm_infer_array(in, insns, sizeof(uint32_t)), tvm_infer_array(in, insns, sizeof(uint32_t)),
                 tvm_infer_array(in, insns, sizeof(uint32_t))};
    in->lives = tvm_infer_array(in, in->slot_count, sizeof *in->lives);
    in->loop = all.of;
    if (in->failed) return;
    find_loops(in, &all);
    for (uint32_t s = 0; s < in->slot_count; s++) {
        tvm_infer_life *life = &in->lives[s];
        uint32_t first = in->first_use[s], last = in->first_use[s + 1];
        if (first == last) continue;
        life->first = in->uses[first];
        for (uint32_t i = first; i < last; i++) {
            uint32_t use = in->uses[i], end = end_of_loops(all.ends, all.outer, all.of[use], life->first);
            if (use > life->last) life->last = use;
            if (end > life->last) life->last = end;
        }
    }
    find_aliases(in);
}

/* ---- how many ---- */

uint32_t tvm_infer_words(const tvm_infer_state *in, uint32_t slot) {
    const tvm_layout layout = tvm_infer_layout(in, in->layout[slot]);
    return (uint32_t)(((uint64_t)tvm_layout_locals(&layout) * in->work[slot].dtype.bits + 31) / 32);
}

static uint32_t greatest(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

uint32_t tvm_infer_registers_of_thread(const tvm_infer_state *in) {
    uint32_t resident = greatest(in->kernel->resident, 1), threads = 32 * greatest(in->kernel->warps, 1);
    uint32_t registers = REGISTERS / (threads * resident) / 8 * 8;
    return registers > MOST ? MOST : registers;
}

static bool reads(const tvm_infer_state *in, uint32_t insn, uint32_t slot) {
    tvm_infer_operands registers;
    tvm_infer_registers(in, insn, &registers);
    for (unsigned k = 0; k < registers.count; k++)
        if (registers.slots[k] == slot) return true;
    return false;
}

/* Is the tensor read before it is assigned once more, behind the instruction or from the begin of a loop
 * around it? Of branches the text's first one counts. */
static bool is_alive(const tvm_infer_state *in, uint32_t slot, uint32_t insn) {
    const tvm_infer_life *life = &in->lives[slot];
    if (insn < life->first || insn >= life->last || life->is_alias) return false;
    for (uint32_t after = insn;; after = in->loop[after]) {
        uint32_t i = in->first_use[slot];
        while (i < in->first_use[slot + 1] && in->uses[i] <= after) i++;
        if (i < in->first_use[slot + 1]) return reads(in, in->uses[i], slot);
        if (in->loop[after] == TVM_NONE) return false;
    }
}

uint32_t tvm_infer_alive_words(const tvm_infer_state *in, uint32_t slot, uint32_t insn) {
    return in->layout[slot] != TVM_NONE && !in->remade[slot] && is_alive(in, slot, insn)
               ? tvm_infer_words(in, slot)
               : 0;
}

uint32_t tvm_infer_alive(const tvm_infer_state *in, uint32_t insn) {
    uint32_t words = 0, result = tvm_infer_result(in, insn);
    tvm_infer_product product;
    for (uint32_t s = 0; s < in->slot_count; s++) words += tvm_infer_alive_words(in, s, insn);
    if (in->kernel->insns[insn].op == TVM_OP_MMA && result != TVM_NONE && in->layout[result] != TVM_NONE &&
        tvm_infer_product_of(in, insn, in->layout[result], &product))
        words += product.registers;
    return words;
}

/* ---- what too many cost ---- */

/* What does not fit is stored to local memory and loaded again. */
uint64_t tvm_infer_spill_cost(tvm_infer_state *in) {
    enum { SPILL = 2 * (4 + 4) }; /* a store and a load, of one line each */
    uint32_t most = tvm_infer_registers_of_thread(in) - OTHERS;
    uint64_t cost = 0;
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        uint32_t alive = in->kernel->insns[i].op == TVM_OP_MMA ? tvm_infer_alive(in, i) : 0;
        if (alive > most) cost += (uint64_t)(alive - most) * SPILL * in->weights[i];
    }
    return cost;
}
