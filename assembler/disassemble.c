/* A program as text that assembles to it again. */
#include "assembler.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expr_text.h"
#include "language.h"
#include "lexer.h"
#include "value.h"
#include "verify.h"
#include "pipeline.h"

enum { LINE_MAX_WIDTH = 110, MARGIN = 4 };

typedef struct listing {
    tvm_text out;
    const tvm_ir_program *program;
    const tvm_ir_kernel *kernel;
    unsigned language;       /* version of the text: the least that the program needs */
    char prefix[32];         /* of the names of register layouts */
    uint32_t *layout_number; /* of each of the program's, in the order in which they are written; TVM_NONE:
                                nowhere */
} listing;

/* ---- layouts: each that is written anywhere gets a name ---- */

static bool is_parameter_name(const tvm_ir_program *program, const char *prefix) {
    size_t length = strlen(prefix);
    for (uint32_t k = 0; k < program->kernel_count; k++)
        for (uint32_t i = 0; i < program->kernels[k].param_count; i++)
            if (strncmp(tvm_string(program, program->kernels[k].slots[i].name), prefix, length) == 0)
                return true;
    return false;
}

/* "L", or with as many underscores before it as keep it from beginning a parameter's name. */
static bool choose_prefix(listing *l) {
    size_t length = 0;
    do {
        if (length + 2 >= sizeof l->prefix) return false;
        memset(l->prefix, '_', length);
        memcpy(l->prefix + length, "L", 2);
        length++;
    } while (is_parameter_name(l->program, l->prefix));
    return true;
}

/* Does the layout of the result follow from the operands? */
static bool layout_follows(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const tvm_slot *slot = &kernel->slots[insn->result];
    tvm_result_type type = {.kind = TVM_SLOT_REGISTER, .dtype = slot->dtype};
    const tvm_team team = {0, tvm_layout_threads(&program->layouts[slot->layout]) / 32};
    return tvm_infer(program, kernel, team, insn, tvm_operands(kernel, insn), &type, NULL) == TVM_OK &&
           tvm_layout_equal(&type.layout, &program->layouts[slot->layout]);
}

/* Is the instruction written with its result's register layout? */
static bool writes_layout(const tvm_ir_program *program, const tvm_ir_kernel *kernel, const tvm_insn *insn) {
    const char *cursor = tvm_op(insn->op)->operands;
    bool has_shape = false;
    tvm_operand_desc desc;
    while (tvm_operand_next(&cursor, &desc)) {
        if (desc.kind == 't') has_shape = true;
        if (desc.kind == 'L') return has_shape || !desc.optional || !layout_follows(program, kernel, insn);
    }
    return false;
}

/* Numbers the layouts that are written, so that the text does not depend on others or on where they stand. */
static void number_layouts(listing *l, uint32_t *order, uint32_t *count) {
    const tvm_ir_program *program = l->program;
    *count = 0;
    for (uint32_t i = 0; i < program->layout_count; i++) l->layout_number[i] = TVM_NONE;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &program->kernels[k];
        for (uint32_t i = 0; i < kernel->insn_count; i++) {
            if (!writes_layout(program, kernel, &kernel->insns[i])) continue;
            uint32_t layout = kernel->slots[kernel->insns[i].result].layout;
            if (l->layout_number[layout] != TVM_NONE) continue;
            order[*count] = layout;
            l->layout_number[layout] = (*count)++;
        }
    }
}

static bool print_layouts(listing *l) {
    char text[TVM_LAYOUT_TEXT_MAX];
    uint32_t count, *order = calloc(l->program->layout_count + 1, sizeof *order);
    l->layout_number = calloc(l->program->layout_count + 1, sizeof *l->layout_number);
    bool good = order && l->layout_number;
    if (good) {
        number_layouts(l, order, &count);
        if (count) tvm_text_puts(&l->out, "\n");
        for (uint32_t i = 0; i < count; i++)
            tvm_text_add(&l->out, ".layout %s%" PRIu32 " = %s\n", l->prefix, i,
                         tvm_layout_text(&l->program->layouts[order[i]], text));
    }
    free(order);
    return good;
}

/* ---- operands ---- */

static void print_slot(listing *l, uint32_t slot) {
    tvm_print_slot(&l->out, l->program, l->kernel, slot);
}

static void print_expr(listing *l, uint32_t expr, bool wide) {
    tvm_print_expr(&l->out, l->program, l->kernel, expr, wide);
}

/* "[2, 4]" */
static void print_extents(listing *l, const tvm_slot *slot) {
    const uint32_t *shape = tvm_slot_shape(l->program, slot);
    for (unsigned d = 0; d < tvm_slot_rank(l->program, slot); d++)
        tvm_text_add(&l->out, "%s%" PRIu32, d ? ", " : "[", shape[d]);
    tvm_text_puts(&l->out, "]");
}

static void print_shape(listing *l, const tvm_slot *slot) {
    tvm_text_puts(&l->out, TVM_DTYPE_TEXT(slot->dtype));
    print_extents(l, slot);
}

/* "[m, n]" */
static void print_exprs(listing *l, unsigned count, const uint32_t *exprs) {
    for (unsigned d = 0; d < count; d++) {
        tvm_text_puts(&l->out, d ? ", " : "[");
        print_expr(l, exprs[d], false);
    }
    tvm_text_puts(&l->out, "]");
}

/* "f32[m, n]" of a global tensor. */
static void print_global_type(listing *l, const tvm_slot *slot) {
    tvm_text_puts(&l->out, TVM_DTYPE_TEXT(slot->dtype));
    print_exprs(l, slot->rank, slot->shape);
}

/* What the result's slot says: no operand of the instruction holds it. */
static void print_declared(listing *l, const tvm_insn *insn, char kind) {
    const tvm_slot *slot = &l->kernel->slots[insn->result];
    char text[TVM_LAYOUT_TEXT_MAX];
    switch (kind) {
    case 't':
    case 'B':
        print_shape(l, slot);
        break;
    case 'T':
        tvm_text_puts(&l->out, TVM_DTYPE_TEXT(slot->dtype));
        break;
    case 'L':
        tvm_text_add(&l->out, "%s%" PRIu32, l->prefix, l->layout_number[slot->layout]);
        break;
    case 'P':
        tvm_text_puts(&l->out, tvm_packing_names[slot->packing]);
        break;
    case 'G':
        print_global_type(l, slot);
        break;
    case 'X':
        print_exprs(l, slot->rank, slot->shape);
        break;
    case 'Z':
        if (slot->form == TVM_FORM_STRIDED)
            print_exprs(l, slot->rank, slot->stride);
        else
            tvm_text_puts(&l->out, "row_major");
        break;
    case 'W':
        print_extents(l, slot);
        break;
    default: /* 'S' */
        tvm_text_puts(&l->out, tvm_shared_layout_text(&l->program->shared_layouts[slot->layout], text));
        break;
    }
}

static void print_quoted(listing *l, uint32_t string) {
    tvm_text_puts(&l->out, "\"");
    for (const char *c = tvm_string(l->program, string); *c; c++)
        tvm_text_add(&l->out, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
    tvm_text_puts(&l->out, "\"");
}

/* Prints a stored operand; returns how many entries it takes. */
static uint32_t print_stored(listing *l, const tvm_operand *operands, const tvm_operand_desc *desc,
                             bool wide) {
    uint32_t value = operands[0].value;
    if (tvm_is_list(desc->kind)) {
        for (uint32_t i = 0; i < value; i++)
            tvm_text_add(&l->out, "%s%" PRIu32, i ? ", " : "[", operands[1 + i].value);
        tvm_text_puts(&l->out, "]");
        return 1 + value;
    }
    if (operands[0].kind == TVM_OPERAND_STRING) {
        print_quoted(l, value);
        return 1;
    }
    const tvm_operand_words *words = tvm_words_of(desc->kind);
    if (words) {
        tvm_text_puts(&l->out, words->names[value]);
        return 1;
    }
    if (operands[0].kind == TVM_OPERAND_CONST) {
        tvm_text_add(&l->out, "%" PRIu32, value);
        return 1;
    }
    if (desc->kind == 'I') {
        print_expr(l, value, false);
        tvm_text_puts(&l->out, " to ");
        print_expr(l, operands[1].value, false);
        return 2;
    }
    if (operands[0].kind == TVM_OPERAND_EXPR) {
        print_expr(l, value, wide);
        return 1;
    }
    print_slot(l, value);
    if (!desc->indexed || l->kernel->slots[value].kind == TVM_SLOT_REGISTER) return 1;
    unsigned rank = tvm_slot_rank(l->program, &l->kernel->slots[value]);
    for (unsigned d = 0; d < rank; d++) {
        tvm_text_puts(&l->out, d ? ", " : "[");
        if (operands[1 + d].kind == TVM_OPERAND_SLOT)
            print_slot(l, operands[1 + d].value);
        else
            print_expr(l, operands[1 + d].value, false);
    }
    tvm_text_puts(&l->out, "]");
    return 1 + rank;
}

/* ---- instructions ---- */

static bool is_f64(tvm_dtype type) {
    return tvm_dtype_same(type, TVM_F64);
}

/* Where a tensor of f64 takes part, the assembler reads float literals as f64. */
static bool is_wide(const listing *l, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(l->kernel, insn);
    const char *cursor = tvm_op(insn->op)->operands;
    tvm_operand_desc desc;
    while (tvm_operand_next(&cursor, &desc))
        if (desc.kind == 't' && is_f64(l->kernel->slots[insn->result].dtype)) return true;
    for (uint32_t i = 0; i < insn->count; i++)
        if (operands[i].kind == TVM_OPERAND_SLOT && is_f64(l->kernel->slots[operands[i].value].dtype))
            return true;
    return false;
}

/* The type of the elements that scalars are converted to: of the tensors that may be scalars, or of the
 * result that has an initial value. Kind NONE: they are not converted. */
static tvm_dtype element_type(const listing *l, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(l->kernel, insn), *end = operands + insn->count;
    const char *cursor = tvm_op(insn->op)->operands;
    tvm_operand_desc desc;
    if (insn->op == TVM_OP_ALLOC_REGISTER) return l->kernel->slots[insn->result].dtype;
    while (insn->count && operands < end && tvm_operand_next(&cursor, &desc)) {
        if (!desc.stored) continue;
        if (desc.kind == 'b' && operands->kind == TVM_OPERAND_SLOT)
            return l->kernel->slots[operands->value].dtype;
        operands += tvm_entry_operands(l->program, l->kernel, &desc, operands);
    }
    return (tvm_dtype){0};
}

/* A constant with a fraction that becomes an integer is written with its type. */
static bool is_fraction(const listing *l, const tvm_insn *insn, const tvm_operand *operand) {
    if (operand->kind != TVM_OPERAND_EXPR) return false;
    const tvm_expr *node = &l->kernel->exprs[operand->value];
    tvm_dtype element = element_type(l, insn);
    return node->op == TVM_EXPR_FLOAT && !tvm_is_whole(node->value.f) && element.kind != TVM_KIND_NONE &&
           element.kind != TVM_KIND_FLOAT;
}

static void print_operands(listing *l, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(l->kernel, insn);
    const tvm_operand *end = insn->count ? operands + insn->count : operands; /* without any it is NULL */
    const char *cursor = tvm_op(insn->op)->operands, *before = " ";
    bool wide = is_wide(l, insn);
    tvm_operand_desc desc;
    while (tvm_operand_next(&cursor, &desc)) {
        if (desc.stored && operands == end) continue; /* it came later than the bytecode */
        if (desc.stored && operands->kind == TVM_OPERAND_NONE) {
            operands++;
            continue;
        }
        if (desc.kind == 'U') continue; /* it has been done */
        if (desc.kind == 'L' && !writes_layout(l->program, l->kernel, insn)) continue;
        if (desc.kind == 'Z' && l->kernel->slots[insn->result].form == TVM_FORM_PART) continue;
        if (desc.kind == 'P' && l->kernel->slots[insn->result].packing == TVM_PACKING_LINEAR) continue;
        if (desc.kind == 'V') {
            for (operands++; operands < end; operands++) {
                tvm_text_puts(&l->out, ", ");
                print_expr(l, operands->value, wide);
            }
            continue;
        }
        tvm_text_puts(&l->out, before);
        if (desc.optional)
            tvm_text_add(&l->out, "%.*s%s", (int)desc.name_length, desc.name, desc.kind == 'F' ? "" : " ");
        if (desc.kind == 'F') {
            operands++;
        } else if ((desc.kind == 'b' || desc.kind == 'x') && is_fraction(l, insn, operands)) {
            tvm_text_add(&l->out, "%s(", TVM_DTYPE_TEXT(l->kernel->exprs[operands->value].type));
            print_expr(l, operands->value, false);
            tvm_text_puts(&l->out, ")");
            operands++;
        } else if (desc.stored) {
            operands += print_stored(l, operands, &desc, wide);
        } else {
            print_declared(l, insn, desc.kind);
        }
        before = ", ";
    }
}

static void print_for(listing *l, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(l->kernel, insn);
    const tvm_expr *step = &l->kernel->exprs[operands[2].value];
    tvm_text_puts(&l->out, "for ");
    print_slot(l, insn->result);
    tvm_text_puts(&l->out, " = ");
    print_expr(l, operands[0].value, false);
    tvm_text_puts(&l->out, " to ");
    print_expr(l, operands[1].value, false);
    if (step->op != TVM_EXPR_INTEGER || step->value.i != 1) {
        tvm_text_puts(&l->out, " step ");
        print_expr(l, operands[2].value, false);
    }
    if (operands[3].value != 1) tvm_text_add(&l->out, " unroll %" PRIu32, operands[3].value);
    uint32_t stages = tvm_pipeline_stages(l->kernel, insn);
    if (stages) tvm_text_add(&l->out, " pipeline %" PRIu32, stages);
}

static void print_role(listing *l, const tvm_insn *insn) {
    const tvm_operand *operands = tvm_operands(l->kernel, insn);
    tvm_text_add(&l->out, "role %s warps %" PRIu32 " to %" PRIu32,
                 tvm_string(l->program, l->kernel->slots[insn->result].name), operands[0].value,
                 operands[1].value);
    if (operands[2].kind != TVM_OPERAND_NONE) tvm_text_add(&l->out, " by %" PRIu32, operands[2].value);
    if (operands[3].kind != TVM_OPERAND_NONE) tvm_text_add(&l->out, " registers %" PRIu32, operands[3].value);
}

static void print_instruction(listing *l, const tvm_insn *insn) {
    if (tvm_insn_class(insn) == TVM_CLASS_SECTION) {
        print_role(l, insn);
        return;
    }
    if (tvm_insn_has(insn, TVM_TRAIT_COUNTER)) {
        print_for(l, insn);
        return;
    }
    if (insn->result != TVM_NONE) {
        print_slot(l, insn->result);
        tvm_text_puts(&l->out, " = ");
    }
    if (tvm_insn_has(insn, TVM_TRAIT_VALUE)) {
        print_expr(l, tvm_operands(l->kernel, insn)->value, false);
        return;
    }
    tvm_text_puts(&l->out, tvm_op(insn->op)->mnemonic);
    print_operands(l, insn);
}

static void print_code(listing *l) {
    unsigned depth = 1;
    for (uint32_t i = 0; i < l->kernel->insn_count; i++) {
        const tvm_insn *insn = &l->kernel->insns[i];
        tvm_op_class class = tvm_insn_class(insn);
        bool closes = class == TVM_CLASS_ELSE || class == TVM_CLASS_END;
        bool opens = class == TVM_CLASS_ELSE || tvm_class_opens(class);
        if (closes && depth > 1) depth--;
        tvm_text_add(&l->out, "%*s", (int)(depth * MARGIN), "");
        print_instruction(l, insn);
        tvm_text_puts(&l->out, "\n");
        if (opens) depth++;
    }
}

/* ---- kernels ---- */

static void print_parameter(listing *l, uint32_t index) {
    const tvm_slot *slot = &l->kernel->slots[index];
    tvm_text_add(&l->out, "%s: ", tvm_string(l->program, slot->name));
    if (slot->kind == TVM_SLOT_GLOBAL) {
        tvm_text_puts(&l->out, "global ");
        print_global_type(l, slot);
        if (slot->form == TVM_FORM_STRIDED) {
            tvm_text_puts(&l->out, " strides ");
            print_exprs(l, slot->rank, slot->stride);
        }
    } else {
        tvm_text_puts(&l->out, TVM_DTYPE_TEXT(slot->dtype));
    }
}

/* On one line, or a line a parameter. */
static void print_parameters(listing *l, bool lines) {
    const char *name = tvm_string(l->program, l->kernel->name);
    tvm_text_add(&l->out, ".kernel %s(", name);
    for (uint32_t i = 0; i < l->kernel->param_count; i++) {
        if (i && lines)
            tvm_text_add(&l->out, ",\n%*s", (int)(sizeof ".kernel (" - 1 + strlen(name)), "");
        else if (i)
            tvm_text_puts(&l->out, ", ");
        print_parameter(l, i);
    }
    tvm_text_puts(&l->out, ")\n");
}

static void print_grid(listing *l) {
    unsigned axes = 3;
    while (axes > (l->language >= 2) && l->kernel->grid[axes - 1] == TVM_NONE) axes--;
    for (unsigned axis = 0; axis < axes; axis++) {
        tvm_text_puts(&l->out, axis ? ", " : ".grid ");
        if (l->kernel->grid[axis] == TVM_NONE)
            tvm_text_puts(&l->out, "1");
        else
            print_expr(l, l->kernel->grid[axis], false);
    }
    if (axes) tvm_text_puts(&l->out, "\n");
}

static void print_cluster(listing *l) {
    const uint32_t *cluster = l->kernel->cluster;
    if (tvm_cluster_blocks(l->kernel) == 1) return;
    tvm_text_add(&l->out, ".cluster %" PRIu32, cluster[0]);
    if (cluster[1] > 1 || cluster[2] > 1) tvm_text_add(&l->out, ", %" PRIu32, cluster[1]);
    if (cluster[2] > 1) tvm_text_add(&l->out, ", %" PRIu32, cluster[2]);
    tvm_text_puts(&l->out, "\n");
}

static void print_kernel(listing *l, const tvm_ir_kernel *kernel) {
    l->kernel = kernel;
    tvm_text_puts(&l->out, "\n");
    size_t start = l->out.size;
    print_parameters(l, false);
    if (l->out.size - start > LINE_MAX_WIDTH && !l->out.failed) {
        l->out.size = start;
        print_parameters(l, true);
    }
    tvm_text_add(&l->out, ".warps %" PRIu32 "\n", kernel->warps);
    if (kernel->resident != 1) tvm_text_add(&l->out, ".resident %" PRIu32 "\n", kernel->resident);
    print_cluster(l);
    print_grid(l);
    for (uint32_t i = 0; i < kernel->assume_count; i++) {
        tvm_text_puts(&l->out, ".assume ");
        print_expr(l, kernel->assumes[i], false);
        tvm_text_puts(&l->out, "\n");
    }
    print_code(l);
    tvm_text_puts(&l->out, ".end\n");
}

static void print_entry(listing *l, const tvm_ir_entry *entry) {
    l->kernel = &entry->head;
    tvm_text_add(&l->out, "\n.entry %s\n", tvm_string(l->program, entry->head.name));
    for (uint32_t i = 0; i < entry->case_count; i++) {
        const tvm_ir_case *made = &entry->cases[i];
        tvm_text_add(&l->out, ".case %s", tvm_string(l->program, l->program->kernels[made->kernel].name));
        if (made->condition != TVM_NONE) {
            tvm_text_puts(&l->out, " if ");
            print_expr(l, made->condition, false);
        }
        if (made->cost != TVM_NONE) {
            tvm_text_puts(&l->out, " cost ");
            print_expr(l, made->cost, false);
        }
        tvm_text_puts(&l->out, "\n");
    }
    tvm_text_puts(&l->out, ".end\n");
}

/* The version of the text: what the program needs, and the layouts that are written, which it does not store.
 */
static unsigned text_language(const tvm_ir_program *program) {
    unsigned language = tvm_language_needed(program);
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const tvm_ir_kernel *kernel = &program->kernels[k];
        for (uint32_t i = 0; i < kernel->insn_count; i++) {
            const char *cursor = tvm_op(kernel->insns[i].op)->operands;
            tvm_operand_desc desc;
            while (tvm_operand_next(&cursor, &desc))
                if (desc.kind == 'L' && desc.since > language &&
                    writes_layout(program, kernel, &kernel->insns[i]))
                    language = desc.since;
        }
    }
    return language;
}

tvm_status tvm_disassemble(const tvm_ir_program *program, char **text, tvm_diags *diags) {
    *text = NULL;
    listing l = {.program = program};
    if (!choose_prefix(&l))
        return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                            "the parameters' names leave none for layouts");
    l.out.limit = TVM_SOURCE_MAX;
    l.language = text_language(program);
    tvm_text_add(&l.out, ".vasm %u\n", l.language);
    bool good = print_layouts(&l);
    for (uint32_t k = 0; good && k < program->kernel_count; k++) {
        print_kernel(&l, &program->kernels[k]);
        good = !l.out.failed;
    }
    for (uint32_t i = 0; good && i < program->entry_count; i++) {
        print_entry(&l, &program->entries[i]);
        good = !l.out.failed;
    }
    free(l.layout_number);
    if (good) {
        *text = l.out.data;
        return TVM_OK;
    }
    bool too_long = l.out.too_long;
    tvm_text_free(&l.out);
    if (!too_long) return tvm_diag_no_memory(diags);
    return tvm_diag_add(diags, TVM_UNSUPPORTED, NULL, NULL,
                        "the program's text is longer than the %d bytes of a source", TVM_SOURCE_MAX);
}
