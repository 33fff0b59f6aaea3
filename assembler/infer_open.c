/* Open layouts while a kernel is read: shapes by the rules of the language, on whole layouts. */
#include "infer_open.h"

#include <stdlib.h>
#include <string.h>

#include "mma.h"
#include "report.h"

/* Without .warps, which has been said to be missing, a team of one warp stands in. */
bool tvm_infer_whole(unsigned rank, const uint32_t *shape, tvm_team team, tvm_layout *layout, tvm_why *why) {
    uint32_t threads = team.warps ? tvm_team_threads(team) : 32;
    return tvm_layout_whole(rank, shape, threads, layout, why) == TVM_OK;
}

/* ---- arrays beside the kernel's ---- */

static bool grow(void **items, uint32_t *capacity, uint32_t count, size_t size) {
    if (count <= *capacity) return true;
    uint32_t wanted = *capacity ? *capacity * 2 : 64;
    if (wanted < count) wanted = count;
    void *more = realloc(*items, wanted * size);
    if (!more) return false;
    memset((char *)more + *capacity * size, 0, (wanted - *capacity) * size);
    *items = more;
    *capacity = wanted;
    return true;
}

bool tvm_asm_note_slot(tvm_asm *as, const tvm_token *token, uint32_t slot, const tvm_result_type *type) {
    tvm_open_layouts *open = &as->open;
    if (!grow((void **)&open->slots, &open->slot_capacity, slot + 1, sizeof *open->slots))
        return tvm_asm_no_memory(as);
    open->slots[slot] = (tvm_open_slot){type->open, as->text.source, token};
    if (type->open) open->count++;
    return true;
}

bool tvm_asm_note_insn(tvm_asm *as, const tvm_token *token) {
    tvm_open_layouts *open = &as->open;
    uint32_t count = tvm_asm_kernel(as)->insn_count;
    if (!grow((void **)&open->insns, &open->insn_capacity, count, sizeof *open->insns))
        return tvm_asm_no_memory(as);
    open->insns[count - 1] = (tvm_open_insn){as->text.source, token};
    return true;
}

bool tvm_asm_is_open(const tvm_asm *as, uint32_t slot) {
    return slot < as->open.slot_capacity && as->open.slots[slot].open;
}

bool tvm_asm_has_open(const tvm_asm *as, const tvm_operand *operands, uint32_t count) {
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    for (uint32_t i = 0; as->open.count && i < count; i++)
        if (operands[i].kind == TVM_OPERAND_SLOT &&
            kernel->slots[operands[i].value].kind == TVM_SLOT_REGISTER &&
            tvm_asm_is_open(as, operands[i].value))
            return true;
    return false;
}

void tvm_asm_forget_open(tvm_asm *as) {
    tvm_open_layouts *open = &as->open;
    if (open->slots) memset(open->slots, 0, open->slot_capacity * sizeof *open->slots);
    open->shape_count = open->count = 0;
}

void tvm_asm_free_open(tvm_asm *as) {
    free(as->open.shapes);
    free(as->open.slots);
    free(as->open.insns);
}

/* ---- shapes ---- */

/* The threads that have the slot's tensor. */
static tvm_team team_of(const tvm_asm *as, const tvm_slot *slot) {
    return (tvm_team){0, tvm_layout_threads(&as->program->layouts[slot->layout]) / 32};
}

/* Brings the shapes up to the kernel's slots. */
static bool follow(tvm_asm *as) {
    tvm_open_layouts *open = &as->open;
    const tvm_ir_kernel *kernel = tvm_asm_kernel(as);
    if (!grow((void **)&open->shapes, &open->shape_capacity, kernel->slot_count, sizeof *open->shapes))
        return tvm_asm_no_memory(as);
    for (; open->shape_count < kernel->slot_count; open->shape_count++) {
        tvm_slot *slot = &open->shapes[open->shape_count];
        tvm_layout whole;
        *slot = kernel->slots[open->shape_count];
        if (slot->kind != TVM_SLOT_REGISTER) continue;
        if (!tvm_infer_whole(tvm_slot_rank(as->program, slot), tvm_slot_shape(as->program, slot),
                             team_of(as, slot), &whole, NULL) ||
            (slot->layout = tvm_ir_program_layout(as->program, &whole)) == TVM_NONE)
            return tvm_asm_no_memory(as);
    }
    return true;
}

/* mma's operands have layouts of their own: it is checked when they are known. The result is what is added
 * to. */
static tvm_status product_shape(const tvm_asm *as, const tvm_ir_kernel *kernel, const tvm_insn *insn,
                                const tvm_operand *operands, tvm_result_type *type) {
    const tvm_mma_places at = tvm_mma_find_places(as->program, kernel, operands, insn->count);
    const tvm_slot *slot = &kernel->slots[operands[at.c].value];
    type->dtype = slot->dtype;
    type->layout = as->program->layouts[slot->layout];
    type->kind = TVM_SLOT_REGISTER;
    type->has_layout = type->open = true;
    return TVM_OK;
}

tvm_status tvm_asm_infer_shape(tvm_asm *as, const tvm_insn *insn, const tvm_operand *operands,
                               tvm_result_type *type, tvm_why *why) {
    tvm_ir_kernel kernel = *tvm_asm_kernel(as);
    const tvm_result_type declared = *type;
    tvm_team team = tvm_asm_team(as);
    if (!follow(as)) return TVM_NO_MEMORY;
    kernel.slots = as->open.shapes;
    if (insn->op == TVM_OP_MMA) return product_shape(as, &kernel, insn, operands, type);
    if (type->has_layout &&
        !tvm_infer_whole(declared.layout.rank, declared.layout.shape, team, &type->layout, why))
        return TVM_INVALID;
    type->open = true;
    tvm_status status = tvm_infer(as->program, &kernel, team, insn, operands, type, why);
    type->open = declared.open;
    if (status != TVM_OK || type->kind != TVM_SLOT_REGISTER) return status;
    if (declared.has_layout && !declared.open) {
        type->layout = declared.layout;
        return TVM_OK;
    }
    tvm_layout derived = type->layout;
    type->open = true;
    return tvm_infer_whole(derived.rank, derived.shape, team, &type->layout, why) ? TVM_OK : TVM_INVALID;
}

bool tvm_asm_same_layout(tvm_asm *as, const tvm_token *token, const char *name, uint32_t length,
                         uint32_t index, const tvm_result_type *type) {
    tvm_slot *slot = &tvm_asm_kernel(as)->slots[index];
    const tvm_layout *old = &as->program->layouts[slot->layout], *now = &type->layout;
    tvm_open_slot *known = &as->open.slots[index];
    bool shapes = old->rank == now->rank && memcmp(old->shape, now->shape, sizeof old->shape) == 0;
    if (shapes && type->open) return true;
    if (shapes && known->open) {
        known->open = false;
        as->open.count--;
        slot->layout = tvm_ir_program_layout(as->program, now);
        return slot->layout != TVM_NONE || tvm_asm_no_memory(as);
    }
    if (tvm_layout_equal(old, now)) return true;
    return tvm_asm_invalid(as, token, "one name is one variable of one layout: choose another name",
                           "'%%%.*s' has another %s than this gives: that of line %u", (int)length, name,
                           shapes ? "layout" : "shape", known->token->line);
}
