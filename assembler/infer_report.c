/* The listing of tvm-as --layouts: for each tensor its layout, as a product where it is one, and why. */
#include "infer_state.h"

#include <stdio.h>
#include <string.h>

#include "infer_open.h"
#include "text.h"

/* ---- a layout as a product of primitives ---- */

enum { PIECES = 32, PIECE_MAX = 96 };

typedef struct product {
    const tvm_layout *layout;
    unsigned spatials, locals; /* digits that are left, most significant first */
    int lowest[TVM_MAX_RANK];  /* the mode of each dimension that is its least significant one left */
    char pieces[PIECES][PIECE_MAX];
    unsigned count; /* the last piece stands first */
} product;

static bool is_lowest(const product *p, int mode) {
    return mode >= 0 && p->lowest[p->layout->mode_dim[mode]] == mode;
}

static void take(product *p, int mode, uint32_t extents[TVM_MAX_RANK]) {
    unsigned dim = p->layout->mode_dim[mode];
    extents[dim] = p->layout->mode_size[mode];
    p->lowest[dim] = mode > 0 && p->layout->mode_dim[mode - 1] == dim ? mode - 1 : -1;
}

static void add_piece(product *p, const char *name, const uint32_t *extents) {
    char *text = p->pieces[p->count++];
    int size = snprintf(text, PIECE_MAX, "%s(", name);
    for (unsigned d = 0; d < p->layout->rank; d++)
        size += snprintf(text + size, PIECE_MAX - (size_t)size, "%s%u", d ? ", " : "", extents[d]);
    snprintf(text + size, PIECE_MAX - (size_t)size, ")");
}

/* The primitive that the least significant digits left are: of the threads, or of the locals. */
static bool take_piece(product *p, bool spatial) {
    uint32_t extents[TVM_MAX_RANK];
    unsigned before = TVM_MAX_RANK, taken = 0, *left = spatial ? &p->spatials : &p->locals;
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) extents[d] = 1;
    if (p->count == PIECES) return false;
    if (spatial && *left && p->layout->spatial[*left - 1] < 0) {
        uint32_t copies = (uint32_t)-p->layout->spatial[--*left];
        if (p->layout->rank == 1)
            snprintf(p->pieces[p->count++], PIECE_MAX, "replicated(%u)", copies);
        else
            snprintf(p->pieces[p->count++], PIECE_MAX, "replicated(%u, %u)", copies, p->layout->rank);
        return true;
    }
    while (*left) {
        int mode = spatial ? p->layout->spatial[*left - 1] : p->layout->local[*left - 1];
        if (!is_lowest(p, mode) || p->layout->mode_dim[mode] >= before) break;
        before = p->layout->mode_dim[mode];
        take(p, mode, extents);
        --*left;
        taken++;
    }
    if (taken) add_piece(p, spatial ? "spatial" : "local", extents);
    return taken > 0;
}

static bool write_product(const tvm_layout *layout, tvm_text *text) {
    product p = {.layout = layout, .spatials = layout->spatials, .locals = layout->locals};
    for (unsigned d = 0; d < TVM_MAX_RANK; d++) p.lowest[d] = -1;
    for (unsigned m = 0; m < layout->modes; m++) p.lowest[layout->mode_dim[m]] = (int)m;
    while (p.spatials || p.locals)
        if (!take_piece(&p, false) && !take_piece(&p, true)) return false;
    for (unsigned i = p.count; i-- > 0;) tvm_text_add(text, "%s%s", p.pieces[i], i ? "." : "");
    return true;
}

/* As X.atom of one of the atoms. */
static bool write_atom(const tvm_layout *layout, const char *const *atoms, size_t count, tvm_text *text) {
    tvm_layout atom, outer;
    bool good = false;
    for (size_t i = 0; i < count && !good; i++) {
        tvm_text text_outer = {0};
        good = tvm_layout_atom(atoms[i], strlen(atoms[i]), &atom, NULL) == TVM_OK &&
               tvm_layout_divide_right(layout, &atom, &outer, NULL) == TVM_OK &&
               write_product(&outer, &text_outer);
        if (good)
            tvm_text_add(text, "%s%s%s", tvm_text_string(&text_outer), text_outer.size ? "." : "", atoms[i]);
        tvm_text_free(&text_outer);
    }
    return good;
}

static void write_layout(const tvm_layout *layout, tvm_text *text) {
    static const char *const atoms[] = {"mma.m16n8k16.C", "mma.m16n8k16.A", "mma.m16n8k16.B",
                                        "mma.m16n8k32.A", "mma.m16n8k32.B", "mma.m16n8k8.A",
                                        "mma.m16n8k8.B",  "mma.m16n8k64.A", "mma.m16n8k64.B"};
    /* what is no product of anything else */
    static const char *const scales[] = {"mma.scale_vec4.A", "mma.scale_vec2.A", "mma.scale_vec1.A"};
    char canonical[TVM_LAYOUT_TEXT_MAX];
    if (!write_atom(layout, atoms, sizeof atoms / sizeof *atoms, text) && !write_product(layout, text) &&
        !write_atom(layout, scales, sizeof scales / sizeof *scales, text))
        tvm_text_puts(text, tvm_layout_text(layout, canonical));
}

/* ---- the listing ---- */

static void write_reason(const tvm_infer_state *in, uint32_t slot, tvm_text *text) {
    static const char *const why[] = {
        [TVM_WHY_WRITTEN] = "written",
        [TVM_WHY_ACCESS] = "wide accesses of",
        [TVM_WHY_REDUCTION] = "short way of",
        [TVM_WHY_PRODUCT] = "warps over the sums of",
        [TVM_WHY_RULE] = "from the operands of",
        [TVM_WHY_USE] = "for",
        [TVM_WHY_ANY] = "nothing asks for another one",
    };
    const tvm_infer_reason *reason = &in->reasons[slot];
    bool names = reason->why != TVM_WHY_WRITTEN && reason->why != TVM_WHY_ANY;
    if (!in->open[slot]) {
        tvm_text_puts(text, why[TVM_WHY_WRITTEN]);
        return;
    }
    tvm_text_puts(text, why[reason->why]);
    if (names)
        tvm_text_add(text, " %s, line %u", tvm_op(in->source[reason->insn].op)->mnemonic,
                     in->source[reason->insn].line);
}

static void write_type(const tvm_infer_state *in, uint32_t slot, tvm_text *text) {
    const tvm_slot *of = &in->kernel->slots[slot];
    const uint32_t *shape = tvm_slot_shape(in->program, of);
    tvm_text_add(text, "%%%s: %s[", tvm_string(in->program, of->name), TVM_DTYPE_TEXT(of->dtype));
    for (unsigned d = 0; d < tvm_slot_rank(in->program, of); d++)
        tvm_text_add(text, "%s%u", d ? ", " : "", shape[d]);
    tvm_text_puts(text, "]");
}

static void write_row(tvm_infer_state *in, tvm_text *out, uint32_t line, uint32_t slot) {
    char canonical[TVM_LAYOUT_TEXT_MAX];
    tvm_text type = {0}, layout = {0};
    const tvm_slot *of = &in->kernel->slots[slot];
    write_type(in, slot, &type);
    if (of->kind == TVM_SLOT_SHARED)
        tvm_text_puts(&layout, tvm_shared_layout_text(&in->program->shared_layouts[of->layout], canonical));
    else
        write_layout(&in->program->layouts[of->layout], &layout);
    tvm_text_add(out, "%6u  %-28s  %s\n        %-28s  ", line, tvm_text_string(&type),
                 tvm_text_string(&layout), "");
    if (of->kind == TVM_SLOT_SHARED)
        tvm_text_puts(out, tvm_asm_is_open(in->as, slot) ? "fewest bank conflicts" : "written");
    else
        write_reason(in, slot, out);
    tvm_text_puts(out, "\n");
    tvm_text_free(&type);
    tvm_text_free(&layout);
}

/* What the kernel's instructions assign, each variable at its first; and the changes of layout between them.
 */
void tvm_infer_report(tvm_infer_state *in, uint32_t first_made) {
    tvm_text *out = in->as->options->layouts;
    const tvm_ir_kernel *kernel = in->kernel;
    bool *seen = tvm_arena_alloc(&in->as->scratch, kernel->slot_count + 1);
    if (!seen) {
        in->failed = true;
        return;
    }
    memset(seen, 0, kernel->slot_count + 1);
    tvm_text_add(out, "%skernel %s: %u threads\n", out->size ? "\n" : "",
                 tvm_string(in->program, kernel->name), 32 * kernel->warps);
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        uint32_t slot = kernel->insns[i].result;
        if (slot == TVM_NONE || seen[slot] || slot >= first_made) continue;
        seen[slot] = true;
        if (kernel->slots[slot].kind == TVM_SLOT_REGISTER || kernel->slots[slot].kind == TVM_SLOT_SHARED)
            write_row(in, out, kernel->insns[i].line, slot);
    }
    for (uint32_t i = 0; i < kernel->insn_count; i++) {
        const tvm_insn *insn = &kernel->insns[i];
        const tvm_operand *operands = tvm_operands(kernel, insn);
        bool made = insn->result != TVM_NONE && insn->count == 1 && operands[0].kind == TVM_OPERAND_SLOT &&
                    (insn->result >= first_made || operands[0].value >= first_made) &&
                    insn->op == TVM_OP_RELAYOUT;
        if (!made) continue;
        tvm_text_add(out, "%6u  relayout of %%%s to ", insn->line,
                     tvm_string(in->program, kernel->slots[operands[0].value].name));
        write_layout(&in->program->layouts[kernel->slots[insn->result].layout], out);
        tvm_text_puts(out, "\n");
    }
}

/* ---- products ---- */

/* The operand a that a thread holds whole, in which case it is many registers. */
static void write_a(tvm_infer_state *in, const tvm_infer_product *of, tvm_text *out) {
    const tvm_slot *a = &in->kernel->slots[of->a];
    const char *name = tvm_string(in->program, a->name);
    if (a->kind == TVM_SLOT_REGISTER && in->layout[of->a] != TVM_NONE)
        tvm_text_add(out, ", %%%s from %u registers of a thread", name, (unsigned)tvm_infer_words(in, of->a));
    else if (of->registers)
        tvm_text_add(out, ", %%%s loaded to %u registers of a thread, not read where it lies", name,
                     (unsigned)of->registers);
}

void tvm_infer_report_products(tvm_infer_state *in, tvm_text *out) {
    for (uint32_t i = 0; i < in->kernel->insn_count; i++) {
        tvm_infer_product of;
        uint32_t result = tvm_infer_result(in, i);
        if (in->kernel->insns[i].op != TVM_OP_MMA || result == TVM_NONE || in->layout[result] == TVM_NONE ||
            !tvm_infer_product_of(in, i, in->layout[result], &of))
            continue;
        tvm_text_add(out, "%6u  product %%%s: ", in->kernel->insns[i].line,
                     tvm_string(in->program, in->kernel->slots[result].name));
        tvm_text_add(out, "%s%s", of.why ? "no wgmma: " : "wgmma, where the target has it",
                     of.why ? of.why : "");
        write_a(in, &of, out);
        tvm_text_puts(out, "\n");
    }
}
