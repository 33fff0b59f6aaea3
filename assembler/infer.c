/* The layouts of a kernel's open tensors: see infer.h. */
#include "infer.h"

#include <string.h>

#include "infer_open.h"
#include "infer_state.h"
#include "report.h"
#include "text.h"
#include "view.h"

enum {
    LOOP_TURNS = 8, /* of a loop, to weigh what is in it */
    WEIGHT_MAX = 4096,
    CANDIDATES = 48,    /* anchors that are compared */
    ATTEMPTS = 1 << 20, /* after so many, the first anchor is taken without a comparison */
    IMPROVEMENTS = 3    /* walks over the tensors */
};

/* ---- the state ---- */

static void weigh(tvm_infer_state *in) {
    uint32_t weight = 1, outer[TVM_ASM_CONTROLS], depth = 0;
    tvm_team_walk walk = {.depth = 0};
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        in->teams[i] = tvm_team_next(&walk, in->kernel, &in->kernel->insns[i]);
        tvm_op_class class = tvm_insn_class(&in->kernel->insns[i]);
        if (class == TVM_CLASS_END && depth) weight = outer[--depth];
        in->weights[i] = weight;
        if (!tvm_class_opens(class) || depth == TVM_ASM_CONTROLS) continue;
        outer[depth++] = weight;
        if (class == TVM_CLASS_LOOP && weight < WEIGHT_MAX) weight *= LOOP_TURNS;
    }
}

/* Each register slot that an instruction has, once. */
static unsigned slots_of(const tvm_infer_state *in, uint32_t insn, uint32_t slots[TVM_INFER_OPERANDS + 1]) {
    tvm_infer_operands registers;
    unsigned count = 0;
    uint32_t result = tvm_infer_result(in, insn);
    tvm_infer_registers(in, insn, &registers);
    if (result != TVM_NONE) slots[count++] = result;
    for (unsigned k = 0; k < registers.count; k++) {
        unsigned i = 0;
        while (i < count && slots[i] != registers.slots[k]) i++;
        if (i == count) slots[count++] = registers.slots[k];
    }
    return count;
}

static void find_uses(tvm_infer_state *in) {
    uint32_t slots[TVM_INFER_OPERANDS + 1], total = 0;
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        unsigned count = slots_of(in, i, slots);
        for (unsigned k = 0; k < count; k++) in->first_use[slots[k] + 1]++;
        total += count;
    }
    for (uint32_t s = 0; s < in->slot_count; s++) in->first_use[s + 1] += in->first_use[s];
    in->uses = tvm_infer_array(in, total, sizeof *in->uses);
    uint32_t *next = tvm_infer_array(in, in->slot_count, sizeof *next);
    if (!in->uses || !next) return;
    memcpy(next, in->first_use, in->slot_count * sizeof *next);
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        unsigned count = slots_of(in, i, slots);
        for (unsigned k = 0; k < count; k++) in->uses[next[slots[k]]++] = i;
    }
}

/* Does the instruction make its result of nothing but scalars, and do nothing else? */
static bool makes_anew(const tvm_infer_state *in, uint32_t insn) {
    tvm_infer_operands registers;
    tvm_infer_registers(in, insn, &registers);
    return !registers.count && !tvm_infer_row(in, insn)->effects;
}

static void find_definitions(tvm_infer_state *in) {
    uint8_t *times = tvm_infer_array(in, in->slot_count, sizeof *times);
    for (uint32_t i = 0; times && i < in->kernel->insn_count; i++) {
        uint32_t slot = in->kernel->insns[i].result;
        if (slot == TVM_NONE) continue;
        in->definitions[slot] = times[slot] ? TVM_NONE : i;
        in->remade[slot] = !times[slot] && tvm_infer_result(in, i) == slot && makes_anew(in, i);
        times[slot] = 1;
    }
}

static bool start(tvm_infer_state *in, tvm_asm *as) {
    *in = (tvm_infer_state){.as = as, .program = as->program, .kernel = tvm_asm_kernel(as)};
    tvm_views_find(in->kernel);
    in->slot_count = in->kernel->slot_count;
    uint32_t insns = in->kernel->insn_count;
    in->work = tvm_infer_array(in, in->slot_count + TVM_INFER_OPERANDS, sizeof *in->work);
    in->layout = tvm_infer_array(in, in->slot_count, sizeof *in->layout);
    in->open = tvm_infer_array(in, in->slot_count, sizeof *in->open);
    in->reasons = tvm_infer_array(in, in->slot_count, sizeof *in->reasons);
    in->weights = tvm_infer_array(in, insns, sizeof *in->weights);
    in->teams = tvm_infer_array(in, insns, sizeof *in->teams);
    in->first_use = tvm_infer_array(in, in->slot_count + 1, sizeof *in->first_use);
    in->definitions = tvm_infer_array(in, in->slot_count, sizeof *in->definitions);
    in->remade = tvm_infer_array(in, in->slot_count, sizeof *in->remade);
    in->source = tvm_infer_array(in, insns, sizeof *in->source);
    in->queue = tvm_infer_array(in, in->slot_count, sizeof *in->queue);
    in->asked = tvm_infer_array(in, insns, sizeof *in->asked);
    in->plans = tvm_infer_array(in, insns, sizeof *in->plans);
    if (in->failed) return false;
    if (insns) memcpy(in->source, in->kernel->insns, insns * sizeof *in->source);
    memcpy(in->work, in->kernel->slots, in->slot_count * sizeof *in->work);
    in->view = *in->kernel;
    in->view.slots = in->work;
    in->view.slot_count = in->slot_count + TVM_INFER_OPERANDS;
    for (uint32_t s = 0; s < in->slot_count; s++) {
        const tvm_slot *slot = &in->work[s];
        in->open[s] = slot->kind == TVM_SLOT_REGISTER && tvm_asm_is_open(as, s);
        in->layout[s] = slot->kind == TVM_SLOT_REGISTER && !in->open[s] ? slot->layout : TVM_NONE;
        in->definitions[s] = TVM_NONE;
    }
    weigh(in);
    find_uses(in);
    find_definitions(in);
    tvm_infer_find_lives(in);
    return !in->failed;
}

/* ---- costs of a choice ---- */

/* Products choose first: `products` is the time of the tensor cores and that of what does not fit into the
 * registers beside them; only among equals counts `all`, in which the former is, too, and then the registers
 * that are moved. */
typedef struct choice_cost {
    uint64_t products, all, registers;
} choice_cost;

static void add_cost(tvm_infer_state *in, uint32_t insn, choice_cost *cost) {
    tvm_infer_plan plan;
    tvm_infer_make_plan(in, insn, &plan);
    cost->products += (plan.cost < TVM_INFER_NEVER ? plan.tensor : TVM_INFER_NEVER) * in->weights[insn];
    cost->all += plan.cost * in->weights[insn];
    cost->registers += plan.registers;
}

static choice_cost cost_around(tvm_infer_state *in, uint32_t slot) {
    choice_cost cost = {0, 0, 0};
    for (uint32_t i = in->first_use[slot]; i < in->first_use[slot + 1]; i++) add_cost(in, in->uses[i], &cost);
    return cost;
}

static bool is_less(choice_cost a, choice_cost b) {
    if (a.products != b.products) return a.products < b.products;
    return a.all != b.all ? a.all < b.all : a.registers < b.registers;
}

/* ---- components: open tensors that instructions connect ---- */

/* The memory serves one component after the other. */
typedef struct component {
    uint32_t *slots;
    uint32_t count;
    uint32_t *insns;
    uint32_t insn_count;
    uint32_t *before, *spread[CANDIDATES]; /* layouts while anchors are compared */
} component;

static void collect(tvm_infer_state *in, uint32_t first, bool *seen, bool *seen_insn, component *c) {
    c->slots[c->count++] = first;
    seen[first] = true;
    for (uint32_t next = 0; next < c->count; next++)
        for (uint32_t i = in->first_use[c->slots[next]]; i < in->first_use[c->slots[next] + 1]; i++) {
            uint32_t slots[TVM_INFER_OPERANDS + 1], insn = in->uses[i];
            if (seen_insn[insn]) continue;
            seen_insn[insn] = true;
            c->insns[c->insn_count++] = insn;
            unsigned count = slots_of(in, insn, slots);
            for (unsigned k = 0; k < count; k++) {
                if (seen[slots[k]] || !in->open[slots[k]]) continue;
                seen[slots[k]] = true;
                c->slots[c->count++] = slots[k];
            }
        }
}

/* Anchors of what is not decided, by the instructions in their order; if there are any for mma, these alone.
 */
static unsigned find_candidates(tvm_infer_state *in, const component *c, bool products,
                                tvm_infer_anchor candidates[CANDIDATES]) {
    unsigned total = 0;
    for (uint32_t s = 0; s < c->count; s++) {
        uint32_t slot = c->slots[s];
        if (in->layout[slot] != TVM_NONE) continue;
        for (uint32_t i = in->first_use[slot]; i < in->first_use[slot + 1]; i++) {
            tvm_infer_anchor anchors[TVM_INFER_ANCHORS];
            if (products != tvm_infer_is_product(in, in->uses[i], slot)) continue;
            unsigned count = tvm_infer_anchors(in, in->uses[i], slot, anchors);
            for (unsigned k = 0; k < count && total < CANDIDATES; k++) {
                unsigned same = 0;
                while (same < total &&
                       (candidates[same].slot != slot || candidates[same].layout != anchors[k].layout))
                    same++;
                if (same == total) candidates[total++] = anchors[k];
            }
        }
    }
    return total;
}

static bool make_any(const tvm_infer_state *in, uint32_t slot, tvm_layout *made, tvm_why *why) {
    const tvm_layout shape = tvm_infer_shape_of(in, slot);
    return tvm_layout_auto(shape.rank, shape.shape, tvm_layout_threads(&shape), in->work[slot].dtype.bits,
                           made, why) == TVM_OK;
}

/* What no anchor decides. */
static void decide_any(tvm_infer_state *in, uint32_t slot) {
    tvm_layout made;
    if (!make_any(in, slot, &made, NULL)) return;
    uint32_t number = tvm_infer_number(in, &made);
    if (number != TVM_NONE) tvm_infer_spread(in, slot, number, (tvm_infer_reason){TVM_WHY_ANY, 0});
}

static void decide_rest(tvm_infer_state *in, const component *c) {
    tvm_infer_anchor anchors[TVM_INFER_ANCHORS];
    for (uint32_t s = 0; s < c->count; s++) {
        uint32_t slot = c->slots[s];
        for (uint32_t i = in->first_use[slot]; in->layout[slot] == TVM_NONE && i < in->first_use[slot + 1];
             i++)
            if (tvm_infer_anchors(in, in->uses[i], slot, anchors))
                tvm_infer_spread(in, slot, anchors[0].layout, anchors[0].reason);
    }
    for (uint32_t s = 0; s < c->count; s++)
        if (in->layout[c->slots[s]] == TVM_NONE) decide_any(in, c->slots[s]);
}

/* The anchor from which the component costs least: that of the lowest number among equals. */
static bool best_candidate(tvm_infer_state *in, component *c, const tvm_infer_anchor *candidates,
                           unsigned count, unsigned *best) {
    choice_cost least = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    bool compared[CANDIDATES] = {false};
    memcpy(c->before, in->layout, in->slot_count * sizeof *c->before);
    for (unsigned i = 0; i < count; i++) {
        unsigned known = 0;
        while (known < i &&
               (!compared[known] || c->spread[known][candidates[i].slot] != candidates[i].layout))
            known++;
        if (known < i) continue; /* it follows from another one */
        choice_cost cost = {0, 0, 0};
        tvm_infer_spread(in, candidates[i].slot, candidates[i].layout, candidates[i].reason);
        if (!c->spread[i]) c->spread[i] = tvm_infer_array(in, in->slot_count, sizeof(uint32_t));
        if (!c->spread[i]) return false;
        compared[i] = true;
        memcpy(c->spread[i], in->layout, in->slot_count * sizeof(uint32_t));
        decide_rest(in, c);
        for (uint32_t k = 0; k < c->insn_count; k++) add_cost(in, c->insns[k], &cost);
        uint64_t spills = tvm_infer_spill_cost(in);
        cost.products += spills;
        cost.all += spills;
        memcpy(in->layout, c->before, in->slot_count * sizeof(uint32_t));
        if (!is_less(cost, least)) continue;
        least = cost;
        *best = i;
    }
    return count > 0;
}

static void spread_written(tvm_infer_state *in) {
    for (uint32_t s = 0; s < in->slot_count && !in->failed; s++) {
        uint32_t written = in->layout[s];
        if (in->open[s] || written == TVM_NONE) continue;
        in->layout[s] = TVM_NONE;
        tvm_infer_spread(in, s, written, (tvm_infer_reason){TVM_WHY_WRITTEN, 0});
    }
}

/* A tile for which there is no layout in this many threads; the others of the component follow from it. */
static bool refuse_undecided(const tvm_infer_state *in, const component *c) {
    for (uint32_t i = 0; i < c->count && !in->failed; i++) {
        uint32_t slot = c->slots[i];
        const tvm_layout shape = tvm_infer_shape_of(in, slot);
        const tvm_open_slot *made = &in->as->open.slots[slot];
        tvm_layout layout;
        tvm_why why = {""};
        tvm_text extents = {0};
        if (in->layout[slot] != TVM_NONE) continue;
        make_any(in, slot, &layout, &why);
        for (unsigned d = 0; d < shape.rank; d++)
            tvm_text_add(&extents, "%s%u", d ? ", " : "", (unsigned)shape.shape[d]);
        tvm_asm_error_in(in->as, made->source, made->token,
                         "smaller tiles, in a loop or by more blocks, or more .warps leave each thread fewer",
                         "no layout for a tile of [%s] in %u threads: %s", tvm_text_string(&extents),
                         (unsigned)tvm_layout_threads(&shape), why.text);
        tvm_text_free(&extents);
        return false;
    }
    return true;
}

static bool decide_component(tvm_infer_state *in, component *c) {
    for (unsigned products = 2; products-- > 0 && !in->failed;) {
        tvm_infer_anchor candidates[CANDIDATES];
        unsigned best = 0, count;
        while (!in->failed && in->attempts < ATTEMPTS &&
               (count = find_candidates(in, c, products, candidates)) > 0 &&
               best_candidate(in, c, candidates, count, &best))
            tvm_infer_spread(in, candidates[best].slot, candidates[best].layout, candidates[best].reason);
    }
    decide_rest(in, c);
    return refuse_undecided(in, c);
}

/* ---- improvements: one tensor at a time ---- */

static void try_instead(tvm_infer_state *in, uint32_t slot, uint32_t layout, tvm_infer_reason reason,
                        choice_cost *least) {
    uint32_t before = in->layout[slot];
    if (layout == TVM_NONE || layout == before) return;
    in->layout[slot] = layout;
    choice_cost cost = cost_around(in, slot);
    if (is_less(cost, *least)) {
        *least = cost;
        in->reasons[slot] = reason;
    } else {
        in->layout[slot] = before;
    }
}

static void improve(tvm_infer_state *in, uint32_t slot) {
    choice_cost least = cost_around(in, slot);
    for (uint32_t i = in->first_use[slot]; i < in->first_use[slot + 1]; i++) {
        uint32_t insn = in->uses[i], layouts[TVM_INFER_OPERANDS], made;
        tvm_infer_operands registers;
        tvm_infer_anchor anchors[TVM_INFER_ANCHORS];
        unsigned count = tvm_infer_anchors(in, insn, slot, anchors);
        for (unsigned k = 0; k < count; k++)
            try_instead(in, slot, anchors[k].layout, anchors[k].reason, &least);
        tvm_infer_registers(in, insn, &registers);
        uint32_t result = tvm_infer_result(in, insn);
        if (result == TVM_NONE || !registers.count) continue;
        for (unsigned k = 0; k < registers.count; k++) layouts[k] = in->layout[registers.slots[k]];
        if (result == slot) {
            if (tvm_infer_attempt(in, insn, layouts, TVM_NONE, &made, NULL))
                try_instead(in, slot, made, (tvm_infer_reason){TVM_WHY_RULE, insn}, &least);
            continue;
        }
        for (unsigned k = 0; k < registers.count; k++)
            if (registers.slots[k] == slot) layouts[k] = TVM_NONE;
        if (!tvm_infer_backwards(in, insn, in->layout[result], layouts)) continue;
        for (unsigned k = 0; k < registers.count; k++)
            if (registers.slots[k] == slot)
                try_instead(in, slot, layouts[k], (tvm_infer_reason){TVM_WHY_USE, insn}, &least);
    }
}

static bool decide(tvm_infer_state *in) {
    bool good = true;
    bool *seen = tvm_infer_array(in, in->slot_count, sizeof *seen);
    bool *seen_insn = tvm_infer_array(in, in->kernel->insn_count, sizeof *seen_insn);
    component c = {.slots = tvm_infer_array(in, in->slot_count, sizeof *c.slots),
                   .insns = tvm_infer_array(in, in->kernel->insn_count, sizeof *c.insns),
                   .before = tvm_infer_array(in, in->slot_count, sizeof *c.before)};
    if (in->failed) return false;
    spread_written(in);
    for (uint32_t s = 0; s < in->slot_count && !in->failed; s++) {
        if (!in->open[s] || seen[s]) continue;
        c.count = c.insn_count = 0;
        collect(in, s, seen, seen_insn, &c);
        good = decide_component(in, &c) && good;
    }
    for (unsigned walk = 0; good && walk < IMPROVEMENTS; walk++)
        for (uint32_t s = 0; s < in->slot_count && !in->failed && in->attempts < ATTEMPTS; s++)
            if (in->open[s]) improve(in, s);
    if (good) tvm_infer_improve_regions(in);
    return good && !in->failed;
}

/* ---- the kernel with its layouts ---- */

/* The instruction that no plan can do: what its rule says, and where its tensors have their layouts from. */
static bool contradiction(tvm_infer_state *in, uint32_t insn) {
    tvm_infer_operands registers;
    uint32_t layouts[TVM_INFER_OPERANDS], slots[TVM_INFER_OPERANDS + 1];
    tvm_why why = {""};
    tvm_text from = {0};
    const tvm_open_insn *place = &in->as->open.insns[insn];
    tvm_infer_registers(in, insn, &registers);
    uint32_t result = tvm_infer_result(in, insn);
    for (unsigned k = 0; k < registers.count; k++) layouts[k] = in->layout[registers.slots[k]];
    if (tvm_infer_attempt(in, insn, layouts, result == TVM_NONE ? TVM_NONE : in->layout[result], NULL, &why))
        return true;
    unsigned count = slots_of(in, insn, slots);
    for (unsigned k = 0; k < count; k++) {
        const tvm_infer_reason *reason = &in->reasons[slots[k]];
        bool inferred = in->open[slots[k]] && reason->why != TVM_WHY_ANY && reason->why != TVM_WHY_WRITTEN;
        uint32_t line =
            inferred ? in->kernel->insns[reason->insn].line : in->as->open.slots[slots[k]].token->line;
        tvm_text_add(&from, "%s'%%%s' has its layout from line %u", k ? ", " : "",
                     tvm_string(in->program, in->kernel->slots[slots[k]].name), line);
    }
    tvm_asm_error_in(in->as, place->source, place->token, tvm_text_string(&from), "%s: %s",
                     tvm_op(in->kernel->insns[insn].op)->mnemonic, why.text);
    tvm_text_free(&from);
    return false;
}

/* Does any plan ask for a relayout? */
static bool changes(const tvm_infer_state *in, uint32_t insn, const tvm_infer_plan *plan) {
    tvm_infer_operands registers;
    uint32_t result = tvm_infer_result(in, insn);
    tvm_infer_registers(in, insn, &registers);
    for (unsigned k = 0; k < registers.count; k++)
        if (plan->layouts[k] != in->layout[registers.slots[k]]) return true;
    return result != TVM_NONE && plan->result != in->layout[result];
}

static bool conclude(tvm_infer_state *in) {
    uint32_t insns = in->kernel->insn_count;
    tvm_infer_plan *plans = tvm_infer_array(in, insns, sizeof *plans);
    bool good = true, any = false;
    if (in->failed) return false;
    for (uint32_t i = 0; i < insns; i++) {
        uint32_t slots[TVM_INFER_OPERANDS + 1];
        if (!slots_of(in, i, slots)) continue;
        tvm_infer_make_plan(in, i, &plans[i]);
        if (plans[i].cost >= TVM_INFER_NEVER) {
            good = contradiction(in, i) && good;
            continue;
        }
        any = any || changes(in, i, &plans[i]);
    }
    for (uint32_t s = 0; s < in->slot_count; s++)
        if (in->open[s] && in->layout[s] != TVM_NONE) in->kernel->slots[s].layout = in->layout[s];
    return good && (!any || tvm_infer_rewrite(in, plans));
}

bool tvm_asm_infer_layouts(tvm_asm *as) {
    tvm_infer_state in;
    tvm_text products = {0};
    bool listed = as->options && as->options->layouts;
    if (!as->open.count && !listed) return true;
    tvm_arena_reset(&as->scratch);
    if (!start(&in, as)) return tvm_asm_no_memory(as);
    bool good = decide(&in);
    if (good) tvm_infer_shared_layouts(&in);
    if (good && !in.failed) tvm_infer_warn(&in);
    if (good && listed) tvm_infer_report_products(&in, &products);
    good = good && !in.failed && conclude(&in);
    if (good && listed) tvm_infer_report(&in, in.slot_count);
    if (good && listed) tvm_text_puts(as->options->layouts, tvm_text_string(&products));
    tvm_text_free(&products);
    as->statement.assigned = NULL;
    if (in.failed) tvm_asm_no_memory(as);
    return good;
}
